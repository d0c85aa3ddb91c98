//! Returns messages that a handler did not finish to their broker: they come again later, or go to the dead letters.
//!
//! # Source
//! docs/reference/client.md 14.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rocketpy_model::{dead_letter, property, sys_flag, system};
use rocketpy_protocol::properties_text;
use rocketpy_protocol::record::RecordView;
use tokio::time::timeout;
use tracing::{debug, warn};

use super::concurrent::{Engine, Piece};
use super::work::Verdict;
use crate::client::Client;
use crate::config::{ProducerConfig, Selector};
use crate::consumer::batch::PulledPart;
use crate::error::ClientError;
use crate::producer::{Outgoing, Recorder, Retried, Selection, Sender, Target};
use crate::{outcome, wire};

const OPERATION: &str = "send back";
/// Time for one attempt.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after an attempt that failed.
const PAUSE: Duration = Duration::from_secs(5);
/// Maximum length of a copy's properties with its error: the broker adds some.
const MAX_COPY_BYTES: usize = properties_text::MAX_BYTES - 1024;
/// The delay level of a first retry that names none; the broker counts in the same way.
const FIRST_LEVEL: i32 = 3;
/// Delays of brokers by level, from 1, where their `messageDelayLevel` says nothing else: seconds.
const DELAYS_S: [u64; 18] =
    [1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200];

/// Properties that a copy gets anew, or that would make it wait, or begin a transaction, a second time.
const NOT_COPIED: [&str; 14] = [
    property::RETRY_TOPIC,
    property::ORIGIN_MESSAGE_ID,
    property::DELAY,
    property::RECONSUME_TIME,
    property::MAX_RECONSUME_TIMES,
    property::TRANSACTION_PREPARED,
    property::TIMER_DELAY_SEC,
    property::TIMER_DELAY_MS,
    property::TIMER_DELIVER_MS,
    property::TIMER_DELAY_LEVEL,
    property::MIN_OFFSET,
    property::MAX_OFFSET,
    property::DLQ_ERROR,
    property::CRC32,
];

/// Sends messages back in the background until their broker has them. Until then they are not finished. Those that become dead letters
/// carry `error`, the type and text of the handler's error.
pub(super) fn start(engine: &Arc<Engine>, piece: Piece, verdict: Verdict, error: Option<&str>) {
    let is_wanted = engine.config.dead_letter_error;
    let error: Option<Arc<str>> =
        error.filter(|_| is_wanted).and_then(dead_letter::error_text).map(Arc::from);
    for index in 0..piece.part.len() {
        let one = Piece { part: piece.part.slice(index..index + 1), ..piece.clone() };
        engine.sending_back.fetch_add(1, Ordering::AcqRel);
        let (pending, outcome) = (Pending(engine.clone()), Outcome { verdict, error: error.clone() });
        engine.member.client.runtime().spawn(async move { send_back(&pending.0, one, &outcome).await });
    }
}

/// What becomes of a message that is sent back, and why.
struct Outcome {
    verdict: Verdict,
    error: Option<Arc<str>>,
}

/// Counts a message that is being sent back.
struct Pending(Arc<Engine>);

impl Drop for Pending {
    fn drop(&mut self) {
        self.0.sending_back.fetch_sub(1, Ordering::AcqRel);
        self.0.one_ended();
    }
}

async fn send_back(engine: &Arc<Engine>, Piece { part, life, over, .. }: Piece, outcome: &Outcome) {
    let member = &engine.member;
    assert_eq!(part.len(), 1, "messages are sent back one by one");
    loop {
        if member.is_closed() || over.load(Ordering::Acquire) {
            return; // not committed, so it comes again
        }
        let sent = {
            let Ok(_slot) = engine.slots.acquire().await else { return };
            attempt(engine, &part, outcome).await
        };
        match sent {
            Ok(is_dead) => {
                let count = if is_dead { &engine.counts.dead } else { &engine.counts.sent_back };
                count.fetch_add(1, Ordering::Relaxed);
                if engine.send_back_failure.lock().worked() {
                    warn!(group = %member.group, "send-back of messages recovered");
                }
                break;
            }
            Err(error) if engine.send_back_failure.lock().failed(Instant::now()) => {
                warn!(group = %member.group, queue = %part.queue(), %error, "send-back of a message failed, retrying");
            }
            Err(_) => {}
        }
        let mut changed = pin!(member.signals.handover.notified());
        changed.as_mut().enable();
        if !member.is_closed() {
            drop(timeout(PAUSE, changed).await);
        }
    }
    engine.finish(&part, life);
    if member.group_view.misses_retry_topic.load(Ordering::Acquire) {
        // It is there now.
        member.signals.wake.notify_one();
    }
}

/// Sends one message back. True when it is a dead letter now.
async fn attempt(engine: &Engine, part: &PulledPart, outcome: &Outcome) -> Result<bool, ClientError> {
    let record = part.record(0);
    let level = match outcome.verdict {
        Verdict::Retry => 0,
        Verdict::RetryAfter(delay) => level_of(delay),
        Verdict::RetryAtLevel(level) => level.max(1),
        Verdict::Reject => -1,
    };
    let limit = i32::try_from(engine.config.max_retries).unwrap_or(i32::MAX);
    let is_dead = level < 0 || record.reconsume_times >= limit;
    let fields = Fields { level, limit, error: outcome.error.as_deref() };
    let Err(error) = ask_broker(engine, part, &record, &fields).await else { return Ok(is_dead) };
    debug!(queue = %part.queue(), %error, "send-back rejected by the broker, sending a copy");
    let fields = Fields { error: fields.error.filter(|_| is_dead), ..fields };
    send_copy(engine, part, &record, &fields).await.map_err(|_| error)?;
    Ok(is_dead)
}

/// Request fields of a message that is sent back.
struct Fields<'a> {
    level: i32,
    limit: i32,
    error: Option<&'a str>,
}

async fn ask_broker(
    engine: &Engine,
    part: &PulledPart,
    record: &RecordView<'_>,
    fields: &Fields<'_>,
) -> Result<(), ClientError> {
    let (member, queue) = (&engine.member, part.queue());
    let api = member.client.api();
    let address = api.master_of(queue).await?;
    let place = record.offset_message_id().to_string();
    let request = wire::send_back(&wire::SendBack {
        group: &member.group,
        queue,
        physical_offset: record.physical_offset,
        delay_level: fields.level,
        msg_id: record.unique_key().unwrap_or(&place),
        topic: origin_topic(record),
        max_retries: fields.limit,
        error: fields.error,
    });
    let answer = api.call(&address, OPERATION, request, TIMEOUT).await?;
    outcome::success(OPERATION, &address, answer).map(drop)
}

/// Sends the message again, as an ordinary one to the retry topic. Brokers make a dead letter of one that was tried too often.
///
/// # Source
/// docs/reference/client.md 14.2.
async fn send_copy(
    engine: &Engine,
    part: &PulledPart,
    record: &RecordView<'_>,
    fields: &Fields<'_>,
) -> Result<(), ClientError> {
    let copy = copy_of(&engine.member.group, part, record, fields);
    engine.copies.deliver(&copy, Target::Any, TIMEOUT).await.map(drop).map_err(ClientError::from)
}

/// What sends such copies.
pub(super) fn sender(client: &Client) -> Sender {
    Sender {
        client: client.clone(),
        group: system::CLIENT_INNER_PRODUCER_GROUP.into(),
        config: Arc::new(ProducerConfig { retries: Some(2), ..ProducerConfig::default() }),
        selection: Arc::new(Selection::new(Selector::default())),
        recorder: Arc::new(Recorder::new()),
        tracer: None,
    }
}

/// Properties of the copy. What was stored is copied byte for byte, text or not.
fn copied_properties(record: &RecordView<'_>, place: &str, fields: &Fields<'_>) -> Vec<u8> {
    let level = fields.level;
    let mut properties = Vec::with_capacity(record.properties.len() + 128);
    for (name, value) in properties_text::iter_bytes(record.properties) {
        if !NOT_COPIED.iter().any(|left_out| left_out.as_bytes() == name) {
            properties_text::push_bytes(&mut properties, name, value);
        }
    }
    let origin_id = record.property(property::ORIGIN_MESSAGE_ID).unwrap_or(place);
    for (name, value) in
        [(property::RETRY_TOPIC, origin_topic(record)), (property::ORIGIN_MESSAGE_ID, origin_id)]
    {
        properties_text::push_bytes(&mut properties, name.as_bytes(), value.as_bytes());
    }
    if level >= 0 {
        let level =
            if level == 0 { FIRST_LEVEL.saturating_add(record.reconsume_times.max(0)) } else { level };
        properties_text::push(&mut properties, property::DELAY, &level.to_string());
    }
    if let Some(error) = fields.error {
        let size_bytes = properties.len() + property::DLQ_ERROR.len() + error.len() + 2;
        if size_bytes <= MAX_COPY_BYTES {
            properties_text::push(&mut properties, property::DLQ_ERROR, error);
        }
    }
    properties
}

fn copy_of(group: &str, part: &PulledPart, record: &RecordView<'_>, fields: &Fields<'_>) -> Outgoing {
    let (level, limit) = (fields.level, fields.limit);
    let times = record.reconsume_times.saturating_add(1);
    let place = record.offset_message_id().to_string();
    let properties = copied_properties(record, &place, fields);
    let mut keys = crate::producer::KeyList::default();
    keys.push(record.unique_key().unwrap_or(&place));
    Outgoing {
        topic: system::retry_topic(group),
        message_bytes: record.body.len(),
        body: body_of(part, record),
        properties: String::from_utf8_lossy(&properties).into_owned(),
        flag: record.flag,
        sys_flag: record.sys_flag
            & (sys_flag::COMPRESSED | sys_flag::COMPRESSION_MASK | sys_flag::MULTI_TAGS),
        keys,
        batch: false,
        is_reply: false,
        born_at_ms: record.born_at_ms,
        // A limit below the number of retries says that it is dead.
        retried: Some(Retried { times, limit: if level < 0 { times - 1 } else { limit } }),
    }
}

/// The stored body, sharing its memory.
fn body_of(part: &PulledPart, record: &RecordView<'_>) -> Bytes {
    part.body().slice_ref(record.body)
}

pub(super) fn origin_topic<'a>(record: &RecordView<'a>) -> &'a str {
    record.property(property::RETRY_TOPIC).unwrap_or(record.topic)
}

/// The lowest level whose delay is not shorter; the last one for more than that.
fn level_of(delay: Duration) -> i32 {
    let level = DELAYS_S.partition_point(|seconds| Duration::from_secs(*seconds) < delay) + 1;
    level.min(DELAYS_S.len()) as i32
}

#[cfg(test)]
mod tests {
    use rocketpy_model::{PhysicalOffset, QueueOffset};
    use rocketpy_protocol::record::RecordFields;

    use super::*;

    #[test]
    fn a_copy_keeps_values_that_no_new_message_may_have() {
        let stored = b"p\x01with\x01separator\x02q\x01gr\xfcn\x02RETRY_TOPIC\x01a\x01b\x02";
        let fields = RecordFields {
            topic: "%RETRY%g",
            queue_id: 0,
            flag: 0,
            sys_flag: 0,
            born_at_ms: 0,
            born_host: "10.0.0.1:77".parse().unwrap(),
            store_host: "127.0.0.1:10911".parse().unwrap(),
            reconsume_times: 2,
            prepared_transaction_offset: PhysicalOffset(0),
            body: b"x",
            properties: stored,
            may_have_crc: false,
        };
        let mut bytes = Vec::new();
        let plan = fields.encode(false, &mut bytes).unwrap();
        plan.finish(&mut bytes, QueueOffset(0), PhysicalOffset(0), 0);
        let fields = Fields { level: -1, limit: 0, error: None };
        let copied = copied_properties(&RecordView::parse(&bytes).unwrap(), "PLACE", &fields);
        let pairs: Vec<_> = properties_text::iter_bytes(&copied).collect();
        let expected: [(&[u8], &[u8]); 4] = [
            (b"p", b"with\x01separator"),
            (b"q", b"gr\xfcn"),
            (b"RETRY_TOPIC", b"a\x01b"),
            (b"ORIGIN_MESSAGE_ID", b"PLACE"),
        ];
        assert_eq!(pairs, expected);
    }

    #[test]
    fn a_time_becomes_the_level_that_is_not_shorter() {
        let levels =
            [0.0, 1.0, 1.5, 5.0, 61.0, 7200.0, 1e6].map(|seconds| level_of(Duration::from_secs_f64(seconds)));
        assert_eq!(levels, [1, 1, 2, 2, 6, 18, 18]);
    }
}
