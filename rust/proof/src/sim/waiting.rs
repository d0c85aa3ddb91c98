//! Messages that wait on the simulated disk: delayed and timer messages, transactions, retries, dead letters. The services of a broker are
//! stepped between the operations after which its process may end.

use std::collections::BTreeSet;

use rocketpy_broker::{BrokerConfig, NotDone, Placed, Sent, SteppedBroker};
use rocketpy_env::Disk as _;
use rocketpy_env::sim::SimDisk;
use rocketpy_filter::MessageFilter;
use rocketpy_model::{PhysicalOffset, property, sys_flag};
use rocketpy_protocol::code::response;
use rocketpy_protocol::handle::RecallHandle;
use rocketpy_protocol::header::RecallMessageRequestHeader;
use rocketpy_protocol::properties_text;
use rocketpy_protocol::record::records;
use rocketpy_store::{ReadLimits, Store};

use super::level_clock::LevelClock;
use super::message::{Message, delivery};
use super::run::Run;
use super::script::born_host;
use crate::checker::Rule;
use crate::history::{Call, CrashKind, Delivery, Event, LogRange, QueueName, Reply, Send};
use crate::later::{
    Half, LEVEL, LEVEL_MS, PRODUCERS, TOPIC, dead_topic, end_transaction, retry_topic, send_back, unique_key,
};

/// Timer messages wait for less than this.
const LONGEST_TIMER_MS: i64 = 5000;
/// Others for more than two days: the broker stores them again on the way.
const FAR_MS: std::ops::Range<i64> = 2 * DAY_MS + HOUR_MS..3 * DAY_MS;
const HOUR_MS: i64 = 3_600_000;
pub(super) const DAY_MS: i64 = 24 * HOUR_MS;
/// Everything that waits comes within so many rounds. The clock may have been set back: later rounds take longer.
const ROUNDS: i64 = 400;
/// Maximum rounds until messages of a delay level arrive, also after steps of the clock: 200 s.
const LEVEL_ROUNDS: i64 = 80;
const ROUND_MS: i64 = 1000;
/// Turns of the timers in one step.
const TURNS: u32 = 20;
const MOST: ReadLimits = ReadLimits { max_messages: 1000, max_bytes: 1 << 20, copies: true };

pub(super) type Broker = SteppedBroker<SimDisk>;

/// What the clients know.
#[derive(Default)]
pub(super) struct Clients {
    halves: Vec<Half>,
    /// Messages that came, by number and whether as a retry, with the place of their record.
    came: Vec<(Send, u64)>,
    given_back: BTreeSet<(u64, bool)>,
    /// Messages with a time, and that time.
    timed: Vec<(u64, i64)>,
    pub(super) levels: LevelClock,
}

impl Run {
    /// A life in which messages wait. Returns whether it ended in order.
    pub(super) fn wait(
        &mut self,
        store: &std::sync::Arc<Store<SimDisk>>,
        steps: u32,
        end: CrashKind,
    ) -> bool {
        let config = BrokerConfig { store: store.config().clone(), ..BrokerConfig::default() };
        self.clients.levels.begin_life(store.max_physical_offset().get());
        let opened = SteppedBroker::open(store, config).map_err(|error| error.to_string());
        let broker = opened.and_then(|broker| {
            let topics = [TOPIC.to_owned(), retry_topic(), dead_topic()];
            let made = topics.iter().try_for_each(|topic| broker.make_topic(topic));
            made.map_err(|(_, text)| text).map(|()| broker)
        });
        let broker = match broker {
            Ok(broker) => broker,
            Err(error) => {
                self.wrong(Rule::Alive, format!("the broker does not open on a sound disk: {error}"));
                return false;
            }
        };
        self.quiet(|run| run.compare_timers(&broker));
        self.look_at_what_came(store);
        let is_last = !self.has_more_lives;
        for _ in 0..steps {
            self.step_waiting(store, &broker);
            self.note_levels(store);
            self.journal.lock().push(Event::Flushed { end: store.flushed_offset().get() });
            if self.is_broken() {
                return false;
            }
        }
        if is_last {
            self.let_all_come(store, &broker);
        }
        if end != CrashKind::Stop || self.is_broken() {
            return false;
        }
        broker.deliver_at_stop();
        self.settle(store);
        broker.stop();
        drop(broker);
        self.close(store)
    }

    /// Checks that the files of the timers hold what a rebuild would.
    fn compare_timers(&mut self, broker: &Broker) {
        match broker.timers_beside_rebuild(self.disk.latest_ms()) {
            Ok(None) => {}
            Ok(Some(text)) => self.wrong(Rule::R6, format!("the timers differ from a rebuild: {text}")),
            Err((_, error)) => {
                self.wrong(Rule::R6, format!("the timers cannot be read: {error}"));
            }
        }
    }

    fn step_waiting(&mut self, store: &Store<SimDisk>, broker: &Broker) {
        if self.clients.levels.ahead_ms > 0 && self.rng.u8(0..6) == 0 {
            self.end_moment(broker);
        }
        match self.rng.u8(0..110) {
            0..=7 => self.send_waiting(broker, Wait::Level),
            8..=17 => {
                let is_far = self.plan.goes_far && self.rng.u8(0..4) == 0;
                let after_ms = self.rng.i64(if is_far { FAR_MS } else { 1..LONGEST_TIMER_MS });
                self.send_waiting(broker, Wait::Time(self.disk.now_ms() + after_ms));
            }
            18..=24 => self.send_waiting(broker, Wait::End),
            25..=33 => self.end_some(store, broker),
            34..=41 => self.give_back(store, broker),
            42..=53 => drop(store.step_flush()),
            54..=65 => drop(store.step_dispatch()),
            66..=69 => drop(store.step_checkpoint()),
            70 => store.step_allocate(),
            71..=77 => {
                broker.step_delays();
                self.clients.levels.has_unseen_step = false;
            }
            78..=84 => drop(broker.step_timers()),
            85..=88 => broker.step_timer_progress(),
            89..=93 => broker.step_transactions(),
            94..=96 => drop(broker.persist_offsets()),
            draw @ 97..=99 if self.plan.sets_clock => self.step_clock(broker, draw > 97),
            97..=98 if self.plan.goes_far => self.disk.pass_time(self.rng.i64(HOUR_MS..DAY_MS)),
            97..=103 => self.disk.pass_time(self.rng.i64(1..2 * ROUND_MS)),
            104..=105 => self.recall_some(store, broker),
            _ => self.read_waiting(store),
        }
    }

    /// Sends a message that waits.
    fn send_waiting(&mut self, broker: &Broker, wait: Wait) {
        self.last_message += 1;
        let queue = QueueName { topic: TOPIC.to_owned(), queue_id: 0 };
        let size = self.rng.usize(8..=self.plan.body_max);
        let message = Message::new(self.last_message, queue, size);
        let now_ms = self.disk.now_ms();
        let mut properties = message.properties.clone();
        let mut wish = |name, value: &str| properties_text::push(&mut properties, name, value);
        wish(property::UNIQUE_KEY, &unique_key(message.number));
        let (not_before_ms, sys_flag) = match wait {
            Wait::Level => {
                wish(property::DELAY, &LEVEL.to_string());
                (Some(self.level_ends_at(now_ms, message.number, false)), 0)
            }
            Wait::Time(due_ms) => {
                wish(property::TIMER_DELIVER_MS, &due_ms.to_string());
                (Some(due_ms), 0)
            }
            Wait::End => {
                wish(property::TRANSACTION_PREPARED, "true");
                wish(property::PRODUCER_GROUP, PRODUCERS);
                (None, sys_flag::TRANSACTION_PREPARED)
            }
        };
        let transaction = matches!(wait, Wait::End);
        let rolls = matches!(wait, Wait::Time(due_ms) if due_ms - now_ms >= FAR_MS.start);
        let call = Send { not_before_ms, transaction, rolls, ..message.call(true) };
        let sent = Sent {
            topic: TOPIC,
            sys_flag,
            born_at_ms: now_ms,
            born_host: born_host(),
            body: &message.body,
            properties: &properties,
        };
        let op = self.begin(Call::Send(call));
        let placed = broker.send(&sent);
        self.in_flight.clear();
        match placed {
            Ok(Placed { queue_offset, physical_offset, flushed }) => {
                let start = physical_offset.get();
                self.answered(op, flushed, sent_reply(TOPIC, Some(start)));
                if let Wait::Time(due_ms) = wait {
                    self.clients.timed.push((message.number, due_ms));
                }
                if transaction {
                    self.clients.halves.push(Half {
                        message: message.number,
                        queue_offset: queue_offset.to_wire(),
                        physical_offset: physical_offset.to_wire(),
                        is_committed: self.rng.bool(),
                        was_ended: false,
                    });
                }
            }
            Err(error) => self.not_done(op, &error),
        }
    }

    /// Ends some transaction, perhaps once more; often the first that is open, so that the progress of all moves.
    fn end_some(&mut self, store: &Store<SimDisk>, broker: &Broker) {
        let first = self.clients.halves.iter().position(|half| !half.was_ended);
        let Some(any) = self.rng.choice(0..self.clients.halves.len()) else { return };
        let number = first.filter(|_| self.rng.bool()).unwrap_or(any);
        let half = self.clients.halves[number];
        let op = self.begin(Call::Decide { message: half.message, committed: half.is_committed });
        let ended = broker.end_transaction(&end_transaction(&half));
        self.in_flight.clear();
        match ended {
            Ok(flushed) => {
                self.clients.halves[number].was_ended = true;
                self.answered_by(store, op, flushed, Reply::Decided);
            }
            Err((response::ILLEGAL_OPERATION, _)) => self.journal.lock().ok(op, Reply::DecidedOtherwise),
            Err(error) => self.not_done(op, &error),
        }
    }

    /// Takes some message back that waits for its time. When it is answered before the time, the message must not come.
    fn recall_some(&mut self, store: &Store<SimDisk>, broker: &Broker) {
        let Some((message, due_ms)) = self.rng.choice(&self.clients.timed).copied() else { return };
        let op = self.begin(Call::Recall { message });
        let handle = RecallHandle {
            topic: TOPIC.to_owned(),
            broker_name: BrokerConfig::default().broker_name,
            deliver_at_ms: due_ms,
            unique_key: unique_key(message),
        };
        let recall_handle = &handle.to_string();
        let request = RecallMessageRequestHeader {
            producer_group: Some(PRODUCERS),
            topic: TOPIC,
            recall_handle,
            broker_name: None,
        };
        let taken = broker.recall(&request, born_host());
        let in_time = !self.plan.sets_clock && self.disk.now_ms() < due_ms;
        self.in_flight.clear();
        match taken {
            Ok(flushed) => self.answered_by(store, op, flushed, Reply::Recalled { in_time }),
            Err(error) => self.not_done(op, &error),
        }
    }

    /// The earliest time of a copy that waits for a level from now on. With a wall clock that is set the monotonic one counts, for the copy
    /// too.
    fn level_ends_at(&mut self, now_ms: i64, message: u64, is_retry: bool) -> i64 {
        if !self.plan.sets_clock {
            return now_ms + LEVEL_MS;
        }
        self.clients.levels.sent(message, is_retry);
        self.steady_ms() + LEVEL_MS
    }

    /// Gives something back that came: a message gets a retry, a retry becomes a dead letter.
    fn give_back(&mut self, store: &Store<SimDisk>, broker: &Broker) {
        let Some((call, start)) = self.clients.came.pop() else { return };
        let is_retry = call.times > 0;
        self.clients.given_back.insert((call.message, is_retry));
        let now_ms = self.disk.now_ms();
        let (topic, not_before_ms) = match is_retry {
            true => (dead_topic(), now_ms),
            false => (retry_topic(), self.level_ends_at(now_ms, call.message, true)),
        };
        let not_before_ms = Some(not_before_ms);
        let reply = sent_reply(&topic, None);
        let times = call.times + 1;
        let op = self.begin(Call::Send(Send { topic, not_before_ms, times, ..call }));
        let taken = broker.send_back(&send_back(start));
        self.in_flight.clear();
        match taken {
            Ok(flushed) => self.answered_by(store, op, flushed, reply),
            Err(error) => self.not_done(op, &error),
        }
    }

    fn begin(&mut self, call: Call) -> u64 {
        let op = self.journal.lock().invoke(call);
        self.in_flight.push(op);
        op
    }

    /// What is stored just now is not flushed yet.
    fn answered(&self, op: u64, flushed: Option<PhysicalOffset>, reply: Reply) {
        let mut journal = self.journal.lock();
        match flushed {
            Some(end) => journal.wait(op, end.get(), reply),
            None => journal.ok(op, reply),
        }
    }

    fn answered_by(&self, store: &Store<SimDisk>, op: u64, flushed: Option<PhysicalOffset>, reply: Reply) {
        self.answered(op, flushed.filter(|end| *end > store.flushed_offset()), reply);
    }

    /// Whatever is no success is in doubt.
    fn not_done(&mut self, op: u64, (code, text): &NotDone) {
        let reason = format!("{code}: {text}");
        self.journal.lock().push(Event::Unknown { op, reason });
    }

    /// After a start: what is there now, and what came.
    fn look_at_what_came(&mut self, store: &Store<SimDisk>) {
        let op = {
            let mut journal = self.journal.lock();
            journal.push(Event::Flushed { end: store.flushed_offset().get() });
            journal.invoke(Call::Audit)
        };
        let nothing = Reply::Audited { deliveries: Vec::new(), ends: Vec::new() };
        self.journal.lock().push(Event::Ok { op, reply: nothing });
        self.read_waiting(store);
    }

    /// Reads everything that came.
    fn read_waiting(&mut self, store: &Store<SimDisk>) {
        self.note_levels(store);
        let op = self.begin(Call::ReadLater);
        let mut arrivals = Vec::new();
        for topic in [TOPIC.to_owned(), retry_topic(), dead_topic()] {
            let bounds = store.queue_bounds(&topic, 0);
            let mut next = bounds.min;
            while next < bounds.max {
                match store.get(&topic, 0, next.to_wire(), &MOST, &MessageFilter::All) {
                    Ok(fetch) if fetch.next_offset > next => {
                        next = fetch.next_offset;
                        let views = fetch.records.iter().flat_map(|bytes| records(bytes)).flatten();
                        arrivals.extend(views.map(|view| {
                            let times = view.reconsume_times.cast_unsigned();
                            let delivery = Delivery { times, ..delivery(&view, true) };
                            let at = view.physical_offset.get();
                            let steady_ms = self.clients.levels.stored_at_ms(delivery.message, times, at);
                            (steady_ms.unwrap_or(view.stored_at_ms), delivery)
                        }));
                    }
                    other => {
                        self.wrong(Rule::R6, format!("{topic} cannot be read at {next}: {other:?}"));
                        break;
                    }
                }
            }
        }
        self.in_flight.clear();
        self.clients.note(&arrivals);
        self.journal.lock().push(Event::Ok { op, reply: Reply::Came { arrivals } });
    }

    fn settle(&mut self, store: &Store<SimDisk>) {
        if let Err(error) = store.step_flush() {
            self.wrong(Rule::C15, format!("a flush fails on a sound disk: {error}"));
        }
        while store.step_dispatch().is_ok_and(|worked| worked) {}
    }

    /// Lets time pass until nothing is missing.
    fn let_all_come(&mut self, store: &Store<SimDisk>, broker: &Broker) {
        self.end_moment(broker);
        for round in 0..ROUNDS {
            broker.step_delays();
            self.turn_timers(broker);
            broker.step_timer_progress();
            broker.step_transactions();
            self.settle(store);
            self.read_waiting(store);
            if self.is_broken() || self.journal.lock().checker.missing() == 0 {
                return;
            }
            if self.plan.sets_clock && round == LEVEL_ROUNDS {
                self.check_levels();
            }
            let is_far =
                self.plan.goes_far && round > ROUNDS / 20 || self.plan.sets_clock && round > LEVEL_ROUNDS;
            self.disk.pass_time(if is_far { HOUR_MS } else { ROUND_MS * (1 + round / 20) });
        }
    }

    /// Steps the timers until they have nothing to do.
    fn turn_timers(&self, broker: &Broker) {
        for _ in 0..TURNS {
            if !broker.step_timers() {
                break;
            }
        }
    }
}

/// For what a message waits.
#[derive(Debug, Clone, Copy)]
enum Wait {
    Level,
    Time(i64),
    /// The end of its transaction.
    End,
}

impl Clients {
    /// Notes what may be given back, in place of what could be before: a power cut may have taken that.
    fn note(&mut self, arrivals: &[(i64, Delivery)]) {
        self.came.clear();
        let mut known = BTreeSet::new();
        for (_, delivery) in arrivals.iter().filter(|(_, delivery)| delivery.queue.topic != dead_topic()) {
            let is_retry = delivery.times > 0;
            let name = (delivery.message, is_retry);
            if let Some(LogRange { start, .. }) = delivery.log
                && !self.given_back.contains(&name)
                && known.insert(name)
            {
                let call = Send {
                    message: delivery.message,
                    digest: delivery.digest,
                    times: delivery.times,
                    ..Send::default()
                };
                self.came.push((call, start));
            }
        }
    }
}

fn sent_reply(topic: &str, start: Option<u64>) -> Reply {
    let queue = QueueName { topic: topic.to_owned(), queue_id: 0 };
    let log = start.map(|start| LogRange { start, end: start + 1 });
    Reply::Sent { queue, offset: 0, log }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::sim::Plan;

    #[test]
    fn a_slot_of_the_wheel_that_is_lost_is_seen_beside_a_rebuild() {
        let mut run = Run::new(Plan { sets_clock: false, ..Plan::waiting_of(0) });
        let store = run.open().unwrap();
        let config = BrokerConfig { store: store.config().clone(), ..BrokerConfig::default() };
        let broker = SteppedBroker::open(&store, config).unwrap();
        broker.make_topic(TOPIC).unwrap();
        let due_ms = run.disk.now_ms() + 10_000;
        run.send_waiting(&broker, Wait::Time(due_ms));
        run.settle(&store);
        while broker.step_timers() {}
        run.compare_timers(&broker);
        assert!(!run.is_broken());
        let wheel = Arc::clone(&store).config().root.join("timerwheel");
        run.disk.damage(&wheel, |bytes| bytes.fill(0)).unwrap();
        run.compare_timers(&broker);
        let violation = &run.violations()[0];
        assert_eq!(violation.rule, Rule::R6);
        assert!(violation.text.contains("differ from a rebuild: [0] are missing"), "{violation}");
    }
    #[test]
    fn an_end_is_known_after_a_start_though_the_clock_was_ahead_when_the_half_message_was_stored() {
        let mut run = Run::new(Plan { sets_clock: false, ..Plan::waiting_of(0) });
        let store = run.open().unwrap();
        let config = || BrokerConfig { store: store.config().clone(), ..BrokerConfig::default() };
        let broker = SteppedBroker::open(&store, config()).unwrap();
        broker.make_topic(TOPIC).unwrap();
        run.disk.step_clock(DAY_MS);
        run.send_waiting(&broker, Wait::End);
        run.disk.step_clock(-DAY_MS);
        run.settle(&store);
        let half = run.clients.halves[0];
        let end = |broker: &Broker, is_committed| {
            broker.end_transaction(&end_transaction(&Half { is_committed, ..half }))
        };
        end(&broker, true).unwrap();
        run.settle(&store);
        drop(broker);
        let broker = SteppedBroker::open(&store, config()).unwrap();
        end(&broker, true).unwrap();
        assert_eq!(end(&broker, false).unwrap_err().0, response::ILLEGAL_OPERATION);
    }

    #[test]
    fn an_end_is_not_late_when_the_clock_was_set_ahead_a_moment_before() {
        let mut run = Run::new(Plan { sets_clock: false, ..Plan::waiting_of(0) });
        let store = run.open().unwrap();
        let config = BrokerConfig { store: store.config().clone(), ..BrokerConfig::default() };
        let broker = SteppedBroker::open(&store, config).unwrap();
        broker.make_topic(TOPIC).unwrap();
        let mut properties = Vec::new();
        for (name, value) in [
            (property::UNIQUE_KEY, &*unique_key(1)),
            (property::TRANSACTION_PREPARED, "true"),
            (property::PRODUCER_GROUP, PRODUCERS),
            (property::CHECK_IMMUNITY_TIME_IN_SECONDS, "3600"),
        ] {
            properties_text::push(&mut properties, name, value);
        }
        let placed = broker.send(&Sent {
            topic: TOPIC,
            sys_flag: sys_flag::TRANSACTION_PREPARED,
            born_at_ms: run.disk.now_ms(),
            born_host: born_host(),
            body: b"paid",
            properties: &properties,
        });
        let placed = placed.unwrap();
        run.settle(&store);
        run.disk.step_clock(DAY_MS);
        let half = Half {
            message: 1,
            queue_offset: placed.queue_offset.to_wire(),
            physical_offset: placed.physical_offset.to_wire(),
            is_committed: true,
            was_ended: false,
        };
        broker.end_transaction(&end_transaction(&half)).unwrap();
    }
}
