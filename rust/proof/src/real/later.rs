//! Messages that have to wait, and what comes of them: delayed and timed ones, transactions, retries, dead letters.
//!
//! Their topics are read as a whole at every start, and at the end until nothing is missing. The clients that send them speak the
//! protocol themselves: a consumer of this client gives nothing back.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fastrand::Rng;
use rocketpy_client::{Admin, Client, ClientError, RangeReader, TopicSpec};
use rocketpy_env::now_ms;
use rocketpy_model::{Message, property, sys_flag, system};
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::header::{
    CloneGroupOffsetRequestHeader, Header, ResetOffsetRequestHeader, SendMessageRequestHeader,
    SendMessageRequestHeaderV2, SendMessageResponseHeader, UpdateConsumerOffsetRequestHeader,
};
use rocketpy_protocol::message_id::OffsetMessageId;
use rocketpy_protocol::record::RecordView;
use rocketpy_protocol::{Command, properties_text};
use rocketpy_remoting as remoting;

use super::load::{Load, RETRY_PAUSE};
use super::{message, topic};
use crate::checker::Rule;
use crate::history::{Call, Delivery, Event, LogRange, QueueName, Reply, Send};
use crate::later::{
    ASKED_PRODUCERS, Half, LEVEL, LEVEL_MS, PRODUCERS, TOPIC, dead_topic, end_transaction, retry_topic,
    send_back, unique_key,
};

/// Timer messages wait for less than this.
const LONGEST_TIMER_MS: i64 = 3000;
const BODY_BYTES: usize = 200;
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);
/// Everything that waits comes within this time, once nothing fails any more.
const ALL_WITHIN: Duration = Duration::from_secs(30);
/// One in so many messages has as many properties as the broker takes: each later copy of it must still be stored.
const FULL_IN: u64 = 9;
/// Properties of such a message. The rest of the limit is for those that the broker adds: region, cluster, unique key.
const FULL_BYTES: usize = properties_text::MAX_SENT_BYTES - 128;
/// One in so many requests tries to move offsets by which the broker finds open transactions.
const HOSTILE_IN: u8 = 20;
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A message that came and may be given back.
#[derive(Debug)]
pub(super) struct Came {
    call: Send,
    start: u64,
    is_retry: bool,
}

/// Makes the topics, and reads what came to them.
///
/// # Errors
/// What the server did not answer.
pub(super) async fn read(load: &Load, client: &Client) -> Result<(), ClientError> {
    let admin = Admin::new(client);
    let mut arrivals = Vec::new();
    for topic in [TOPIC.to_owned(), retry_topic(), dead_topic()] {
        topic::create(&admin, &TopicSpec::new(&topic, 1)).await?;
        for queue in admin.queues(&topic).await? {
            let (start, end) = (admin.min_offset(&queue).await?, admin.max_offset(&queue).await?);
            let mut reader = RangeReader::new(client, queue, start, end, "*").await?;
            while let Some(part) = reader.next().await? {
                arrivals.extend(part.iter().map(|view| (view.stored_at_ms, delivery(&view))));
            }
        }
    }
    load.note_came(&arrivals);
    load.journal.lock().done(Call::ReadLater, Reply::Came { arrivals });
    Ok(())
}

/// Reads until nothing is missing, or it took too long.
///
/// # Errors
/// As [`read`].
pub(super) async fn read_all(load: &Load, client: &Client) -> Result<(), ClientError> {
    let started = Instant::now();
    loop {
        read(load, client).await?;
        if load.journal.lock().checker.missing() == 0 || started.elapsed() > ALL_WITHIN {
            return Ok(());
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

fn delivery(view: &RecordView<'_>) -> Delivery {
    Delivery { times: view.reconsume_times.cast_unsigned(), ..message::delivery(view) }
}

impl Load {
    /// Notes what may be given back, in place of what could be before: a power cut may have taken that.
    fn note_came(&self, arrivals: &[(i64, Delivery)]) {
        let mut later = self.later.lock();
        let mut came = BTreeMap::new();
        for (_, delivery) in arrivals.iter().filter(|(_, delivery)| delivery.queue.topic != dead_topic()) {
            let name = (delivery.message, delivery.queue.topic != TOPIC);
            if let Some(log) = delivery.log.filter(|_| !later.given_back.contains(&name)) {
                let call = Send { message: delivery.message, digest: delivery.digest, ..Send::default() };
                came.insert(name, Came { call, start: log.start, is_retry: name.1 });
            }
        }
        later.came = came.into_values().collect();
    }

    /// A half message that is to be ended next; else any.
    fn draw_half(&self, rng: &mut Rng) -> Option<Half> {
        let mut later = self.later.lock();
        later.to_end.pop().or_else(|| rng.choice(&later.halves).copied())
    }

    fn take_came(&self) -> Option<Came> {
        let mut later = self.later.lock();
        let came = later.came.pop()?;
        later.given_back.insert((came.call.message, came.is_retry));
        Some(came)
    }

    /// Sends messages that wait, and gives back some of those that came.
    pub(super) async fn send_later(self, broker: String, mut rng: Rng) {
        let caller = remoting::Client::new(remoting::ClientConfig::default());
        while !self.sends_no_more() {
            let (came, half) = match rng.u8(0..4) {
                0 | 1 => (self.take_came(), None),
                2 => (None, self.draw_half(&mut rng)),
                _ => (None, None),
            };
            if rng.u8(0..HOSTILE_IN) == 0 {
                self.move_system_offsets(&caller, &broker, &mut rng).await;
            }
            let all_well = match (came, half) {
                (Some(came), _) => self.give_back(&caller, &broker, came).await,
                (None, Some(half)) => self.decide(&caller, &broker, half).await,
                (None, None) if rng.bool() => self.prepare(&caller, &broker).await,
                (None, None) if rng.bool() => self.send_delayed(&caller, &broker).await,
                (None, None) => {
                    let after_ms = rng.i64(1..LONGEST_TIMER_MS);
                    self.send_timed(&caller, &broker, now_ms() + after_ms).await
                }
            };
            let pause = if all_well { Duration::from_millis(rng.u64(2..20)) } else { RETRY_PAUSE };
            tokio::time::sleep(pause).await;
        }
    }

    async fn send_delayed(&self, caller: &remoting::Client, broker: &str) -> bool {
        let (message, call) = message::build(self.next_number(), 0, TOPIC, BODY_BYTES);
        let call = Send { not_before_ms: Some(now_ms() + LEVEL_MS), ..call };
        let wishes = [(property::DELAY, &*LEVEL.to_string())];
        let command = send_command(call.message, &message, 0, &wishes);
        self.call_later(caller, broker, command, Call::Send(call)).await.is_some()
    }

    async fn send_timed(&self, caller: &remoting::Client, broker: &str, due_ms: i64) -> bool {
        let (message, call) = message::build(self.next_number(), 0, TOPIC, BODY_BYTES);
        let call = Send { not_before_ms: Some(due_ms), ..call };
        let wishes = [(property::TIMER_DELIVER_MS, &*due_ms.to_string())];
        let command = send_command(call.message, &message, 0, &wishes);
        self.call_later(caller, broker, command, Call::Send(call)).await.is_some()
    }

    /// Sends a half message, and notes where it lies.
    async fn prepare(&self, caller: &remoting::Client, broker: &str) -> bool {
        let (message, call) = message::build(self.next_number(), 0, TOPIC, BODY_BYTES);
        let number = call.message;
        let asked_for = is_asked_for(number);
        let producers = if asked_for { ASKED_PRODUCERS } else { PRODUCERS };
        let wishes = [
            (property::TRANSACTION_PREPARED, "true"),
            (property::PRODUCER_GROUP, producers),
            (property::UNIQUE_KEY, &unique_key(number)),
        ];
        let command = send_command(number, &message, sys_flag::TRANSACTION_PREPARED, &wishes);
        let call = Call::Send(Send { transaction: true, asked_for, ..call });
        let Some(answer) = self.call_later(caller, broker, command, call).await else { return false };
        if !asked_for
            && let Ok(header) = SendMessageResponseHeader::read(&answer.ext)
            && let Some(start) = start_of(&answer)
        {
            let half = Half {
                message: number,
                queue_offset: header.queue_offset,
                physical_offset: start.cast_signed(),
                is_committed: is_committed(number),
                was_ended: false,
            };
            let mut later = self.later.lock();
            later.halves.push(half);
            if number.is_multiple_of(2) {
                later.to_end.push(half); // the others are ended later, or never
            }
        }
        true
    }

    /// Ends a transaction, perhaps once more.
    async fn decide(&self, caller: &remoting::Client, broker: &str, half: Half) -> bool {
        let command = end_transaction(&half);
        let call = Call::Decide { message: half.message, committed: half.is_committed };
        let is_answered = self.call_later(caller, broker, command, call).await.is_some();
        if !is_answered || !half.was_ended {
            self.later.lock().to_end.push(Half { was_ended: is_answered, ..half });
        }
        is_answered
    }

    /// Gives a message back: one that came gets a retry, a retry becomes a dead letter.
    async fn give_back(&self, caller: &remoting::Client, broker: &str, came: Came) -> bool {
        let (topic, wait_ms) = if came.is_retry { (dead_topic(), 0) } else { (retry_topic(), LEVEL_MS) };
        let times = if came.is_retry { 2 } else { 1 };
        let not_before_ms = Some(now_ms() + wait_ms);
        let call = Send { topic, not_before_ms, times, ..came.call };
        let command = send_back(came.start);
        self.call_later(caller, broker, command, Call::Send(call)).await.is_some()
    }

    async fn move_system_offsets(&self, caller: &remoting::Client, broker: &str, rng: &mut Rng) {
        let asked = hostile(rng);
        let code = asked.code;
        let answer = caller.call(broker, asked, ANSWERED_WITHIN).await;
        if answer.is_ok_and(|answer| answer.code == response::SUCCESS) {
            let text =
                format!("a client moved the offsets of {} (request {code})", system::TRANSACTION_GROUP);
            self.journal.lock().wrong(Rule::C8, text);
        }
    }

    /// Makes a call and notes it. Returns the answer of a success; whatever is none is in doubt.
    pub(super) async fn call_later(
        &self,
        caller: &remoting::Client,
        broker: &str,
        command: Command,
        call: Call,
    ) -> Option<Command> {
        let topic = if let Call::Send(send) = &call { Some(send.topic.clone()) } else { None };
        let op = self.journal.lock().invoke(call);
        let answer = caller.call(broker, command, ANSWERED_WITHIN).await;
        let mut journal = self.journal.lock();
        match answer {
            Ok(answer) if answer.code == response::SUCCESS => {
                let log = start_of(&answer).map(|start| LogRange { start, end: start + 1 });
                let sent = |topic| Reply::Sent { queue: QueueName { topic, queue_id: 0 }, offset: 0, log };
                journal.ok(op, topic.map_or(Reply::Decided, sent));
                Some(answer)
            }
            // A late end has this code too: the messages of this load name no time for their questions.
            Ok(answer) if topic.is_none() && answer.code == response::ILLEGAL_OPERATION => {
                journal.ok(op, Reply::DecidedOtherwise);
                None
            }
            Ok(answer) => {
                let reason = format!("{}: {}", answer.code, answer.remark.unwrap_or_default());
                if answer.code == response::MESSAGE_ILLEGAL {
                    journal.wrong(
                        Rule::C1,
                        format!("what waits is within all limits and was rejected: {reason}"),
                    );
                }
                journal.push(Event::Unknown { op, reason });
                None
            }
            Err(error) => {
                journal.push(Event::Unknown { op, reason: error.to_string() });
                None
            }
        }
    }
}

/// Whether a transaction is ended when the broker asks, and not before.
const fn is_asked_for(number: u64) -> bool {
    number % 4 == 3
}

/// What becomes of a transaction.
pub(super) const fn is_committed(number: u64) -> bool {
    number % 8 < 4
}

fn send_command(number: u64, message: &Message, flags: i32, wishes: &[(&str, &str)]) -> Command {
    let mut properties = Vec::new();
    properties_text::encode(&message.properties, &mut properties);
    for (name, value) in wishes {
        properties_text::push(&mut properties, name, value);
    }
    if number.is_multiple_of(FULL_IN) {
        fill(&mut properties);
    }
    let header = SendMessageRequestHeader {
        producer_group: PRODUCERS,
        topic: TOPIC,
        default_topic: system::TEMPLATE_TOPIC,
        default_topic_queue_nums: 1,
        queue_id: 0,
        sys_flag: flags,
        born_timestamp: now_ms(),
        flag: 0,
        properties: std::str::from_utf8(&properties).ok(),
        reconsume_times: None,
        unit_mode: None,
        max_reconsume_times: None,
        batch: None,
        broker_name: None,
    };
    let command = Command::request(request::SEND_MESSAGE_V2, &SendMessageRequestHeaderV2(header));
    command.with_body(message.body.to_vec())
}

/// Adds a property, with which these have as many bytes as the broker takes beside its own.
fn fill(properties: &mut Vec<u8>) {
    let mut with_one = properties.clone();
    properties_text::push(&mut with_one, "filler", "x");
    let value = "x".repeat(FULL_BYTES + 1 - with_one.len());
    properties_text::push(properties, "filler", &value);
    let bytes = properties.len();
    assert_eq!(bytes, FULL_BYTES, "filled properties are at the limit");
}

/// A request that would move an offset of the group by which the broker finds open transactions.
fn hostile(rng: &mut Rng) -> Command {
    let topic = if rng.bool() { system::HALF_TOPIC } else { system::OP_HALF_TOPIC };
    let (group, offset) = (system::TRANSACTION_GROUP, rng.i64(0..10_000));
    match rng.u8(0..3) {
        0 => Command::request(
            request::UPDATE_CONSUMER_OFFSET,
            &UpdateConsumerOffsetRequestHeader {
                consumer_group: group,
                topic,
                queue_id: 0,
                commit_offset: offset,
                broker_name: None,
            },
        ),
        1 => Command::request(
            request::INVOKE_BROKER_TO_RESET_OFFSET,
            &ResetOffsetRequestHeader {
                topic,
                group,
                timestamp: -1,
                is_force: Some(true),
                queue_id: Some(0),
                offset: Some(offset),
            },
        ),
        _ => Command::request(
            request::CLONE_GROUP_OFFSET,
            &CloneGroupOffsetRequestHeader {
                src_group: PRODUCERS,
                dest_group: group,
                topic: Some(topic),
                offline: None,
            },
        ),
    }
}

/// Where the record lies that an answer to a send names; an answer to a send-back names none.
fn start_of(answer: &Command) -> Option<u64> {
    let header = SendMessageResponseHeader::read(&answer.ext).ok()?;
    Some(header.msg_id.parse::<OffsetMessageId>().ok()?.physical_offset.get())
}
