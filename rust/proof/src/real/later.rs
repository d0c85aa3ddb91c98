//! Messages that have to wait, and what comes of them: delayed ones, retries, dead letters.
//!
//! Their topics are read as a whole at every start, and at the end until nothing is missing. The clients that send them speak the
//! protocol themselves: a consumer of this client gives nothing back.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fastrand::Rng;
use rocketpy_client::{Admin, Client, ClientError, RangeReader, TopicSpec};
use rocketpy_env::now_ms;
use rocketpy_model::{property, system};
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::header::{
    ConsumerSendMsgBackRequestHeader, Header, SendMessageRequestHeader, SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
};
use rocketpy_protocol::message_id::OffsetMessageId;
use rocketpy_protocol::record::RecordView;
use rocketpy_protocol::{Command, properties_text};
use rocketpy_remoting as remoting;

use super::load::{Load, RETRY_PAUSE};
use super::message;
use crate::history::{Acknowledged, Call, Delivery, Event, LogRange, QueueName, Reply, Send};

/// Delayed messages come here.
const TOPIC: &str = "later";
/// The group that gives messages back: once as a retry, then as a dead letter.
const GROUP: &str = "back";
const MOST_RETRIES: i32 = 1;
/// The shortest delay level, and how long it is.
const LEVEL: i32 = 1;
const LEVEL_MS: i64 = 1000;
const BODY_BYTES: usize = 200;
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);
/// Everything that waits comes within this time, once nothing fails any more.
const ALL_WITHIN: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A message that came and may be given back.
#[derive(Debug)]
pub(super) struct Came {
    call: Send,
    start: u64,
    is_retry: bool,
}

fn retry_topic() -> String {
    system::retry_topic(GROUP)
}

fn dead_topic() -> String {
    system::dlq_topic(GROUP)
}

/// A send-back is answered after the flush, whatever the broker is set to.
pub(super) fn topics_of_their_own() -> impl Iterator<Item = (String, Acknowledged)> {
    [retry_topic(), dead_topic()].into_iter().map(|topic| (topic, Acknowledged::AfterFlush))
}

/// Makes the topics, and reads what came to them.
///
/// # Errors
/// What the server did not answer.
pub(super) async fn read(load: &Load, client: &Client) -> Result<(), ClientError> {
    let admin = Admin::new(client);
    let mut arrivals = Vec::new();
    for topic in [TOPIC.to_owned(), retry_topic(), dead_topic()] {
        admin.create_topic(&TopicSpec::new(&topic, 1)).await?;
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
            let came = if rng.bool() { self.take_came() } else { None };
            let all_well = match came {
                Some(came) => self.send_back(&caller, &broker, came).await,
                None => self.send_delayed(&caller, &broker).await,
            };
            let pause = if all_well { Duration::from_millis(rng.u64(2..20)) } else { RETRY_PAUSE };
            tokio::time::sleep(pause).await;
        }
    }

    async fn send_delayed(&self, caller: &remoting::Client, broker: &str) -> bool {
        let (message, call) = message::build(self.next_number(), 0, TOPIC, BODY_BYTES);
        let call = Send { not_before_ms: Some(now_ms() + LEVEL_MS), ..call };
        let mut properties = Vec::new();
        properties_text::encode(&message.properties, &mut properties);
        properties_text::push(&mut properties, property::DELAY, &LEVEL.to_string());
        let header = SendMessageRequestHeader {
            producer_group: "later",
            topic: TOPIC,
            default_topic: system::TEMPLATE_TOPIC,
            default_topic_queue_nums: 1,
            queue_id: 0,
            sys_flag: 0,
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
        let command = command.with_body(message.body.to_vec());
        self.call_later(caller, broker, command, call).await
    }

    /// Gives a message back: one that came gets a retry, a retry becomes a dead letter.
    async fn send_back(&self, caller: &remoting::Client, broker: &str, came: Came) -> bool {
        let (topic, wait_ms) = if came.is_retry { (dead_topic(), 0) } else { (retry_topic(), LEVEL_MS) };
        let times = if came.is_retry { 2 } else { 1 };
        let not_before_ms = Some(now_ms() + wait_ms);
        let call = Send { topic, not_before_ms, times, ..came.call };
        let header = ConsumerSendMsgBackRequestHeader {
            offset: came.start.cast_signed(),
            group: GROUP,
            delay_level: LEVEL,
            origin_msg_id: None,
            origin_topic: None,
            unit_mode: None,
            max_reconsume_times: Some(MOST_RETRIES),
            broker_name: None,
        };
        let command = Command::request(request::CONSUMER_SEND_MSG_BACK, &header);
        self.call_later(caller, broker, command, call).await
    }

    /// Makes a call and notes it. Whatever is no success is in doubt.
    async fn call_later(
        &self,
        caller: &remoting::Client,
        broker: &str,
        command: Command,
        call: Send,
    ) -> bool {
        let queue = QueueName { topic: call.topic.clone(), queue_id: 0 };
        let op = self.journal.lock().invoke(Call::Send(call));
        let answer = caller.call(broker, command, ANSWERED_WITHIN).await;
        let mut journal = self.journal.lock();
        match answer {
            Ok(answer) if answer.code == response::SUCCESS => {
                let log = start_of(&answer).map(|start| LogRange { start, end: start + 1 });
                journal.ok(op, Reply::Sent { queue, offset: 0, log });
                true
            }
            Ok(answer) => {
                let reason = format!("{}: {}", answer.code, answer.remark.unwrap_or_default());
                journal.push(Event::Unknown { op, reason });
                false
            }
            Err(error) => {
                journal.push(Event::Unknown { op, reason: error.to_string() });
                false
            }
        }
    }
}

/// Where the record lies that an answer to a send names; an answer to a send-back names none.
fn start_of(answer: &Command) -> Option<u64> {
    let header = SendMessageResponseHeader::read(&answer.ext).ok()?;
    Some(header.msg_id.parse::<OffsetMessageId>().ok()?.physical_offset.get())
}
