//! Gives messages to handlers, side by side.
//!
//! # Source
//! docs/reference/client.md 11.

use std::collections::{HashMap, VecDeque};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rocketpy_model::system;
use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout_at;
use tracing::error;

use super::direct::DirectRequest;
use super::send_back::{self, origin_topic};
use super::watch::Counts;
use super::work::{Fate, Held, Reason, STEAL_AFTER, Verdict, Work};
use crate::config::{PushConfig, PushTopic};
use crate::consumer::batch::PulledPart;
use crate::consumer::epoch::Epoch;
use crate::consumer::member::Member;
use crate::consumer::state::{Finished, Taken};
use crate::error::ClientError;
use crate::log_throttle::LogThrottle;
use crate::producer::Sender;
use crate::trace::{ConsumeResult, Consumption};

/// A handler gets messages for about this long at a time: fewer turns for quick handlers, and no others kept waiting by slow ones.
const TURN: Duration = Duration::from_millis(2);
/// Most messages of a turn.
const MAX_TURN_MESSAGES: u64 = 512;
/// Most messages of the retry topic that are taken at a time: they belong to several topics.
const RETRY_MESSAGES: usize = 64;
/// How long after a stop handlers get what was taken for them before: what was finished behind it would come again.
const STOP_GRACE: Duration = Duration::from_millis(500);
/// Most messages that are sent back at a time.
const SENDS_BACK: usize = 64;

/// Messages that a handler may have: of one queue and one topic, in order.
#[derive(Clone)]
pub(super) struct Piece {
    pub(super) part: PulledPart,
    /// Index of the topic that they were sent to.
    pub(super) topic: usize,
    pub(super) life: Epoch,
    pub(super) over: Arc<AtomicBool>,
    /// How many times the first messages were tried in their place.
    pub(super) tries: u32,
    /// Who waits for its end, where somebody asked that a handler consumes it. Nothing else becomes of it.
    pub(super) asked: Option<Arc<DirectRequest>>,
}

/// One topic with a handler.
pub(super) struct Topic {
    pub(super) name: Arc<str>,
    lane: usize,
    pub(super) batch: usize,
    /// Time of a message in nanoseconds, about; 0 while it is not known.
    pace_ns: AtomicU64,
}

/// What the callers of [`Engine::take`] share.
#[derive(Default)]
struct WorkTable {
    /// Taken from a queue and not given to a handler, by lane.
    returned: HashMap<usize, VecDeque<Piece>>,
    /// Not before these times.
    suspended: Vec<(Instant, Piece)>,
    /// What handlers have.
    works: HashMap<u64, Arc<Held>>,
    last_id: u64,
}

/// What push consumer, handlers and background tasks share.
pub(super) struct Engine {
    pub(super) member: Arc<Member>,
    pub(super) config: PushConfig,
    pub(super) topics: Vec<Topic>,
    retry_topic: String,
    desk: Mutex<WorkTable>,
    stopped_at: OnceLock<Instant>,
    /// Notified when a handler or a send-back ends.
    ended: Notify,
    pub(super) counts: Counts,
    /// Messages that are being sent back.
    pub(super) sending_back: AtomicUsize,
    pub(super) slots: Semaphore,
    /// Sends copies of messages that their broker does not take back.
    pub(super) copies: Sender,
    pub(super) send_back_failure: Mutex<LogThrottle>,
    pub(super) failure: Mutex<LogThrottle>,
}

impl Engine {
    pub(super) fn new(member: Arc<Member>, config: PushConfig, topics: Vec<PushTopic>) -> Arc<Self> {
        let topic = |PushTopic { subscription, lane, batch }: PushTopic| Topic {
            name: subscription.topic.into(),
            lane,
            batch: batch.max(1),
            pace_ns: AtomicU64::new(0),
        };
        assert!(!topics.is_empty(), "a push consumer has a topic");
        assert!(topics.len() <= member.activity.paces.len(), "each topic with a handler has a subscription");
        let is_one_lane = topics.iter().all(|topic| topic.lane == topics[0].lane);
        member.signals.wake_one_at_a_time(is_one_lane);
        Arc::new(Self {
            retry_topic: system::retry_topic(&member.group),
            copies: send_back::sender(&member.client),
            member,
            config,
            topics: topics.into_iter().map(topic).collect(),
            desk: Mutex::default(),
            stopped_at: OnceLock::new(),
            ended: Notify::new(),
            counts: Counts::new(),
            sending_back: AtomicUsize::new(0),
            slots: Semaphore::new(SENDS_BACK),
            send_back_failure: Mutex::default(),
            failure: Mutex::default(),
        })
    }

    fn is_stopping(&self) -> bool {
        self.stopped_at.get().is_some()
    }

    /// Whether nothing may begin any more, not even what was taken before the stop.
    pub(super) fn is_over(&self) -> bool {
        self.stopped_at.get().is_some_and(|at| at.elapsed() >= STOP_GRACE)
    }

    pub(super) fn begin_stop(&self) {
        self.stopped_at.get_or_init(Instant::now);
        self.member.signals.arrived.notify_waiters();
    }

    /// Waits until no handler runs and nothing is being sent back.
    pub(super) async fn quiet(&self) {
        loop {
            let mut ended = pin!(self.ended.notified());
            ended.as_mut().enable();
            let (runs, waits) = {
                let desk = self.desk.lock();
                let waits = desk.works.values().any(|held| held.has_waiting() && !held.is_over());
                let is_running = |held: &Arc<Held>| held.running_for().is_some();
                (
                    desk.works.values().any(is_running),
                    waits || desk.returned.values().any(|all| !all.is_empty()),
                )
            };
            if !runs && (!waits || self.is_over()) && self.sending_back.load(Ordering::Acquire) == 0 {
                return;
            }
            drop(timeout_at((Instant::now() + STOP_GRACE).into(), ended).await);
        }
    }

    /// Traces that a handler gets messages.
    pub(super) fn trace_begin(&self, part: &PulledPart, range: std::ops::Range<usize>) -> Vec<Consumption> {
        let Some(trace) = &self.member.trace else { return Vec::new() };
        let begun = trace.tracer.began(range.map(|index| ((), part.record(index))));
        begun.into_iter().map(|((), one)| one).collect()
    }

    /// Traces what became of them.
    pub(super) fn trace_end(&self, traced: &[Consumption], result: ConsumeResult) {
        if let Some(trace) = self.member.trace.as_ref().filter(|_| !traced.is_empty()) {
            trace.tracer.ended(traced, result, matches!(result, ConsumeResult::Success));
        }
    }

    pub(super) fn one_ended(&self) {
        self.ended.notify_waiters();
    }

    /// What handlers have.
    pub(super) fn held(&self) -> Vec<Arc<Held>> {
        self.desk.lock().works.values().cloned().collect()
    }

    pub(super) fn stuck(&self, lane: usize) -> usize {
        let desk = self.desk.lock();
        let here = desk.works.values().filter(|held| self.topics[held.topic].lane == lane);
        here.filter(|held| held.is_stuck()).count()
    }

    pub(super) async fn take(
        self: &Arc<Self>,
        lane: usize,
        max_wait: Duration,
    ) -> Result<Option<Work>, ClientError> {
        let deadline = Instant::now() + max_wait;
        loop {
            let mut arrived = pin!(self.member.signals.arrived.notified());
            // From here on no arrival is missed.
            arrived.as_mut().enable();
            self.member.check()?;
            if self.is_stopping() {
                let piece = if self.is_over() { None } else { self.returned(lane) };
                let closed = ClientError::Closed { what: "consumer" };
                return piece.map(|piece| Some(self.begin(piece))).ok_or(closed);
            }
            if let Some(piece) = self.next_piece(lane) {
                // The next one takes more, or sees to it that nothing waits behind a slow handler.
                let has_waiting = piece.part.len() > self.topics[piece.topic].batch;
                if has_waiting || self.member.state.lock().has_ready() {
                    self.member.signals.messages_arrived();
                }
                return Ok(Some(self.begin(piece)));
            }
            let until = self.look_again_at(lane).map_or(deadline, |at| at.min(deadline));
            if timeout_at(until.into(), arrived).await.is_err() && Instant::now() >= deadline {
                return Ok(None);
            }
        }
    }

    fn begin(self: &Arc<Self>, piece: Piece) -> Work {
        assert!(!piece.part.is_empty(), "a handler gets work with a message");
        assert!(piece.topic < self.topics.len(), "work is of a topic with a handler: {}", piece.topic);
        if self.config.ordered {
            // Before the handler looks whether its messages are still wanted: either it does not begin, or the queue waits for it.
            self.member.state.lock().handler_began(piece.part.queue());
        }
        let mut desk = self.desk.lock();
        desk.last_id += 1;
        let held = Held::new(desk.last_id, piece);
        let before = desk.works.insert(held.id, held.clone());
        assert!(before.is_none(), "each work has a number of its own");
        Work::new(self.clone(), held)
    }

    fn next_piece(self: &Arc<Self>, lane: usize) -> Option<Piece> {
        loop {
            if let Some(piece) = self.returned(lane) {
                return Some(piece);
            }
            let most = |queue: &rocketpy_model::MessageQueue| self.turn(&queue.topic, lane);
            let taken = self.member.state.lock().take_part(&self.member.config, most);
            match taken {
                None => return self.steal(lane),
                Some(taken) if *taken.part.queue().topic == *self.retry_topic => self.share_out(taken),
                Some(Taken { part, life, over }) => {
                    let topic = self.topic_named(&part.queue().topic)?;
                    return Some(Piece { part, topic, life, over, tries: 0, asked: None });
                }
            }
        }
    }

    /// How many messages of a topic the callers of a lane take at a time.
    fn turn(&self, topic: &str, lane: usize) -> usize {
        if *topic == *self.retry_topic {
            // In order no two are handled at a time, whatever their topics are.
            return if self.config.ordered { 1 } else { RETRY_MESSAGES };
        }
        let Some(topic) = self.topic_named(topic).map(|index| &self.topics[index]) else { return 0 };
        if topic.lane != lane {
            return 0;
        }
        let pace = topic.pace_ns.load(Ordering::Relaxed);
        let messages = (TURN.as_nanos() as u64).checked_div(pace).unwrap_or(1).min(MAX_TURN_MESSAGES);
        (messages as usize / topic.batch).max(1) * topic.batch
    }

    pub(super) fn topic_named(&self, name: &str) -> Option<usize> {
        self.topics.iter().position(|topic| *topic.name == *name)
    }

    /// Gives messages to a handler before all others. They are dropped when the consumer stops.
    pub(super) fn put_first(&self, piece: Piece) {
        let lane = self.topics[piece.topic].lane;
        self.desk.lock().returned.entry(lane).or_default().push_front(piece);
        self.member.signals.messages_arrived();
    }

    /// Something that was taken from a queue before, and whose time has come.
    fn returned(&self, lane: usize) -> Option<Piece> {
        let mut desk = self.desk.lock();
        let now = Instant::now();
        let due = |(at, piece): &(Instant, Piece)| *at <= now && self.topics[piece.topic].lane == lane;
        while let Some(index) = desk.suspended.iter().position(due) {
            let (_, piece) = desk.suspended.swap_remove(index);
            if !piece.over.load(Ordering::Acquire) {
                return Some(piece);
            }
        }
        let returned = desk.returned.get_mut(&lane)?;
        while let Some(piece) = returned.pop_front() {
            if !piece.over.load(Ordering::Acquire) {
                return Some(piece);
            }
        }
        None
    }

    /// Messages behind those of a handler that takes long.
    fn steal(&self, lane: usize) -> Option<Piece> {
        if self.config.ordered {
            return None;
        }
        let desk = self.desk.lock();
        let mut here = desk.works.values().filter(|held| self.topics[held.topic].lane == lane);
        here.find_map(|held| held.steal())
    }

    /// When there may be something though nothing arrives.
    fn look_again_at(&self, lane: usize) -> Option<Instant> {
        let desk = self.desk.lock();
        let suspended = desk.suspended.iter().filter(|(_, piece)| self.topics[piece.topic].lane == lane);
        let due = suspended.map(|(at, _)| *at).min();
        let has_waiting = |held: &Arc<Held>| self.topics[held.topic].lane == lane && held.has_waiting();
        let steal_at = (!self.config.ordered && desk.works.values().any(has_waiting))
            .then(|| Instant::now() + STEAL_AFTER);
        due.into_iter().chain(steal_at).min()
    }

    /// Sorts messages of the retry topic by the topics that they were sent to.
    fn share_out(self: &Arc<Self>, Taken { part, life, over }: Taken) {
        let all = part.len();
        let topics: Vec<_> = part.iter().map(|record| self.topic_named(origin_topic(&record))).collect();
        let mut from = 0;
        for run in topics.chunk_by(PartialEq::eq) {
            let to = from + run.len();
            let (part, topic) = (part.slice(from..to), run[0]);
            from = to;
            let over = over.clone();
            let piece = Piece { part, topic: topic.unwrap_or(0), life, over, tries: 0, asked: None };
            match topic {
                Some(topic) => {
                    let lane = self.topics[topic].lane;
                    self.desk.lock().returned.entry(lane).or_default().push_back(piece);
                }
                None => {
                    let record = piece.part.record(0);
                    let topic = origin_topic(&record);
                    error!(
                        group = %self.member.group,
                        topic, "retried message sent back: no handler for its topic"
                    );
                    let error = format!("no handler for topic {topic}");
                    send_back::start(self, piece, Verdict::Retry, Some(&error));
                }
            }
        }
        assert!(from == all, "each retried message goes to the handler of one topic");
        self.member.signals.messages_arrived();
    }

    /// Notes that messages are done.
    pub(super) fn finish(&self, part: &PulledPart, life: Epoch) {
        let finished = self.member.state.lock().finish(part, life, &self.member.config);
        self.tell_of(&finished);
    }

    fn tell_of(&self, finished: &Finished) {
        if finished.is_kept_free {
            self.member.signals.handover.notify_waiters();
            self.member.tell_of_change();
        }
        if finished.is_next_due {
            self.member.signals.messages_arrived();
        }
    }

    /// Whether messages that a handler did not finish are given to it again in their place.
    pub(super) fn comes_again_in_place(&self, verdict: Verdict, tries: u32) -> bool {
        let is_last = tries >= self.config.max_retries;
        self.config.ordered && verdict != Verdict::Reject && !is_last
    }

    /// Gives messages to their handler again after a pause; it failed for so many of them.
    ///
    /// # Source
    /// docs/reference/client.md 12.2.
    pub(super) fn suspend(&self, piece: Piece, failed: usize, verdict: Verdict) {
        let pause = match verdict {
            Verdict::RetryAfter(pause) => pause,
            _ => self.config.retry_pause,
        };
        self.counts.failed(failed);
        self.desk.lock().suspended.push((Instant::now() + pause, piece));
        self.member.signals.messages_arrived();
    }

    /// Sends messages back that a handler did not finish.
    pub(super) fn fail(self: &Arc<Self>, piece: Piece, verdict: Verdict, reason: Option<Reason<'_>>) -> Fate {
        self.counts.failed(piece.part.len());
        if let Some(asked) = &piece.asked {
            asked.failed(reason);
            return Fate::Unchanged;
        }
        if self.config.broadcast {
            // Nobody else has to get them.
            self.finish(&piece.part, piece.life);
            return Fate::PassedOver;
        }
        let verdict = if self.config.ordered { Verdict::Reject } else { verdict };
        let is_dead = |times: i32| u32::try_from(times).is_ok_and(|times| times >= self.config.max_retries);
        let dead = match verdict {
            Verdict::Reject => piece.part.len(),
            _ => piece.part.iter().filter(|record| is_dead(record.reconsume_times)).count(),
        };
        let fate = match dead {
            0 => Fate::ComesAgain,
            dead if dead == piece.part.len() => Fate::Dead,
            _ => Fate::PartlyDead,
        };
        send_back::start(self, piece, verdict, reason.map(Reason::text));
        fate
    }

    /// A handler is done with what it had, or gives it up.
    pub(super) fn end(&self, held: &Held, finished: usize, unstarted: Piece) {
        let topic = &self.topics[held.topic];
        if finished > 0 {
            let pace = (held.age().as_nanos() / finished as u128).clamp(1, u128::from(u64::MAX)) as u64;
            let before = topic.pace_ns.load(Ordering::Relaxed);
            let pace = if before == 0 { pace } else { (before / 4 * 3).saturating_add(pace / 4).max(1) };
            topic.pace_ns.store(pace, Ordering::Relaxed);
        }
        let (is_left, queue) =
            (!unstarted.part.is_empty() && !held.is_over(), unstarted.part.queue().clone());
        let mut desk = self.desk.lock();
        desk.works.remove(&held.id);
        if is_left {
            desk.returned.entry(topic.lane).or_default().push_front(unstarted);
        }
        drop(desk);
        if self.config.ordered {
            let finished = self.member.state.lock().handler_ended(&queue);
            self.tell_of(&finished);
        }
        if is_left {
            self.member.signals.messages_arrived();
        }
        self.one_ended();
    }
}
