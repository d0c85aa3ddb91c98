//! Send back: a consumer gives back a message that it could not handle, and gets it again later.
//!
//! # Source
//! docs/reference/protocol.md 2.3.8, docs/reference/store-format.md 10.1.

use bytes::Bytes;
use rocketpy_env::Disk;
use rocketpy_env::planted::{self, Bug};
use rocketpy_model::{dead_letter, name, property, system};
use rocketpy_protocol::message_id::OffsetMessageId;
use rocketpy_protocol::record::RecordView;
use tracing::{debug, warn};

use crate::blocking::on_disk;
use crate::put::{AckCondition, Intake, StoredAgain, check_writable, count_dead_letter, count_sent_back};
use crate::refusal::Refusal;
use crate::role::OfMaster;

/// The delay level of a first retry, where the consumer names none: 10 s.
const FIRST_LEVEL: i32 = 3;
/// Delay level of a dead letter, which Apache's broker writes too.
const NO_DELAY: &str = "0";
/// Why a message is dead: its group got it as often as it may.
const RETRIES_EXHAUSTED: &str = "RETRIES_EXHAUSTED";
/// Why a message is dead: the consumer asked for no retry.
const GIVEN_UP: &str = "GIVEN_UP";
/// Why a message is dead: its record has no room for the properties of a retry.
const TOO_LONG: &str = "TOO_LONG";

/// A message that a consumer gives back.
#[derive(Debug, Clone)]
pub(crate) struct SendBack {
    /// Where its record starts.
    pub(crate) offset: i64,
    pub(crate) group: String,
    /// Below 0: no retry. 0: as often as it was tried says.
    pub(crate) delay_level: i32,
    /// Deliveries after which it is dead; `None`: the group says.
    pub(crate) max_reconsume_times: Option<i32>,
    /// Error of the consumer, which a dead letter carries.
    pub(crate) error: Option<String>,
}

/// Stores the message of a record again: for its group's retries, or as a dead letter.
///
/// Returns what the answer waits for: the flush of the copy, whatever message and broker say of their sends, and at a SYNC_MASTER its slaves.
/// The consumer commits past the message once it has the answer.
///
/// # Errors
/// The message is not stored. Too few slaves for a SYNC_MASTER refuse it before a copy exists: consumers send one themselves then, and a
/// second copy for each return would double the message with each of its retries.
pub(crate) async fn take_back(
    intake: &Intake<impl Disk>,
    asked: &SendBack,
    record: Result<Bytes, Refusal>,
) -> Result<AckCondition, Refusal> {
    intake.ground().check_master(OfMaster::SendBack)?;
    let found = intake.ground().group(&asked.group)?;
    on_disk(found.written).await?;
    let group = found.group;
    check_writable(intake)?;
    if group.retry_queues <= 0 {
        debug!(group = group.name, "message dropped, its group allows no retries (retryQueueNums)");
        return Ok(AckCondition::default());
    }
    let slaves = intake.slaves();
    if slaves.are_waited_for() {
        let there = slaves.are_there_for(intake.store().max_physical_offset());
        there.map_err(|too_few| Refusal::NoSlaveForReturned { why: too_few.to_string() })?;
    }
    let bytes = record?;
    let record = RecordView::parse(&bytes).map_err(|_| Refusal::NoMessageAt { offset: asked.offset })?;
    let limit = asked.max_reconsume_times.unwrap_or(group.retry_max_times);
    let death = match asked.delay_level {
        ..0 => Some(GIVEN_UP),
        _ => (record.reconsume_times >= limit).then_some(RETRIES_EXHAUSTED),
    };
    let topic = match death {
        Some(_) => system::dlq_topic(&group.name),
        None => system::retry_topic(&group.name),
    };
    let mut is_dead = death.is_some();
    let death = death.map(|reason| Death { reason, error: asked.error.as_deref() });
    let again = again(&record, asked.delay_level, &topic, death)?;
    let stored = match again.put(intake).await {
        Err(refusal) if refusal.is_too_long() => {
            warn!(group = group.name, offset = asked.offset, %refusal, "message without room for a retry becomes a dead letter");
            is_dead = true;
            put_long(intake, &record, &group.name, asked.error.as_deref()).await?
        }
        put => put?.ack,
    };
    count_sent_back(intake, &group.name, origin_topic(&record));
    if is_dead {
        count_dead_letter(intake, &group.name, origin_topic(&record));
    }
    let announced = stored.announced;
    let end = intake.store().max_physical_offset();
    let replicated = slaves.are_waited_for().then_some(end);
    Ok(AckCondition { flushed: Some(end), replicated, announced, timed: None })
}

/// Stores a dead letter of a record that has no room for a retry: another broker, or an earlier version, accepted it. Its properties
/// say of its way what they have room for.
async fn put_long(
    intake: &Intake<impl Disk>,
    record: &RecordView<'_>,
    group: &str,
    error: Option<&str>,
) -> Result<AckCondition, Refusal> {
    let topic = system::dlq_topic(group);
    let again = StoredAgain::of(record)
        .to(&topic, 0)
        .with_reconsume_times(record.reconsume_times.saturating_add(1))
        .without_property(property::DELAY)
        .without_property(property::DLQ_ERROR)
        .without_broker_properties()
        .with_fact(property::DLQ_REASON, TOO_LONG)?
        .with_fact(property::DLQ_ORIGIN_TOPIC, origin_topic(record))?
        .with_fact(property::RETRY_TOPIC, origin_topic(record))?;
    with_error(again, error)?.put(intake).await.map(|stored| stored.ack)
}

/// Adds the error of the consumer to a dead letter, unless the record has no room for it.
fn with_error<'a>(dead: StoredAgain<'a>, error: Option<&str>) -> Result<StoredAgain<'a>, Refusal> {
    match error.and_then(dead_letter::error_text) {
        Some(text) => dead.with_fact(property::DLQ_ERROR, &text),
        None => Ok(dead),
    }
}

/// The topic that a record was sent to first. A property that names none counts as absent.
fn origin_topic<'a>(record: &RecordView<'a>) -> &'a str {
    let named = record.property(property::RETRY_TOPIC).filter(|topic| name::check_topic(topic).is_ok());
    named.unwrap_or(record.topic)
}

/// Why a message becomes a dead letter.
struct Death<'a> {
    reason: &'static str,
    error: Option<&'a str>,
}

/// The message that the record becomes.
fn again<'a>(
    record: &RecordView<'a>,
    delay_level: i32,
    topic: &'a str,
    death: Option<Death<'_>>,
) -> Result<StoredAgain<'a>, Refusal> {
    let origin_topic = origin_topic(record);
    let place = OffsetMessageId { host: record.store_host, physical_offset: record.physical_offset };
    let own_id = place.to_string();
    let named = record.property(property::ORIGIN_MESSAGE_ID);
    let origin_id = named.filter(|id| id.parse::<OffsetMessageId>().is_ok()).unwrap_or(&own_id);
    let counted = if planted::has(Bug::RetryNotCounted) { 0 } else { 1 };
    let again = StoredAgain::of(record)
        .with_reconsume_times(record.reconsume_times.saturating_add(counted))
        .with_property(property::RETRY_TOPIC, origin_topic)?
        .with_property(property::ORIGIN_MESSAGE_ID, origin_id)?;
    if let Some(Death { reason, error }) = death {
        let dead = again
            .to(topic, 0)
            .with_property(property::DELAY, NO_DELAY)?
            .without_property(property::DLQ_ERROR)
            .with_property(property::DLQ_ORIGIN_TOPIC, origin_topic)?
            .with_property(property::DLQ_ORIGIN_MESSAGE_ID, origin_id)?
            .with_property(property::DLQ_REASON, reason)?;
        return with_error(dead, error);
    }
    let level = match delay_level {
        0 => FIRST_LEVEL.saturating_add(record.reconsume_times.max(0)),
        level => level,
    };
    again.to(topic, -1).delayed(level.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use rocketpy_model::PhysicalOffset;

    use super::*;
    use crate::FlushMode;
    use crate::operation::look_up::record_at;
    use crate::put::{NewMessage, Origin, put};
    use crate::testing::{TestBroker, message};

    fn asked(offset: PhysicalOffset, delay_level: i32) -> SendBack {
        SendBack {
            offset: offset.to_wire(),
            group: "group".to_owned(),
            delay_level,
            max_reconsume_times: None,
            error: None,
        }
    }

    async fn taken_back(broker: &TestBroker, asked: &SendBack) -> AckCondition {
        let record = record_at(broker.ground.store(), asked.offset);
        take_back(&broker.intake, asked, record).await.unwrap()
    }

    /// A broker whose log begins with a message that does not want to wait for the flush.
    fn with_a_message() -> TestBroker {
        let broker = TestBroker::open(|config| config.store.flush = FlushMode::Async);
        let message = message("SELF_TEST_TOPIC", "WAIT\u{1}false\u{2}");
        put(&broker.intake, Origin::Broker, &message).unwrap();
        broker
    }

    #[tokio::test]
    async fn the_answer_waits_for_the_flush_whatever_message_and_broker_say() {
        let broker = with_a_message();
        for delay_level in [-1, 0, 1] {
            let ack = taken_back(&broker, &asked(PhysicalOffset::ZERO, delay_level)).await;
            assert_eq!(ack.flushed, Some(broker.ground.store().max_physical_offset()), "level {delay_level}");
        }
    }

    #[tokio::test]
    async fn each_retry_waits_a_level_longer_and_after_sixteen_the_message_is_dead() {
        let broker = with_a_message();
        for tried in 0..17 {
            let message = NewMessage { reconsume_times: tried, ..message("SELF_TEST_TOPIC", "") };
            let stored = put(&broker.intake, Origin::Broker, &message).unwrap();
            let at = broker.ground.store().max_physical_offset();
            taken_back(&broker, &asked(stored.places.as_slice()[0], 0)).await;
            let bytes = broker.ground.store().record_at(at).unwrap().unwrap();
            let again = RecordView::parse(&bytes).unwrap();
            assert_eq!(again.reconsume_times, tried + 1);
            match u32::try_from(tried).unwrap() {
                16 => assert_eq!(
                    (again.topic, again.property(property::DLQ_REASON)),
                    ("%DLQ%group", Some(RETRIES_EXHAUSTED))
                ),
                tried => assert_eq!(
                    (again.topic, again.queue_id),
                    (system::SCHEDULE_TOPIC, 2 + tried),
                    "10 s to 2 h"
                ),
            }
        }
    }

    #[tokio::test]
    async fn retries_have_as_many_queues_as_their_group_says_and_none_where_it_says_none() {
        let broker = with_a_message();
        for (queues, stored) in [(0, false), (3, true)] {
            let mut group = rocketpy_model::GroupConfig::new("group");
            group.retry_queues = queues;
            let changed = broker.ground.groups().put(group).unwrap();
            changed.written.unwrap().done().await.unwrap();
            let end = broker.ground.store().max_physical_offset();
            taken_back(&broker, &asked(PhysicalOffset::ZERO, 1)).await;
            assert_eq!(broker.ground.store().max_physical_offset() > end, stored, "{queues} queues");
        }
        assert_eq!(broker.ground.topics().get("%RETRY%group").unwrap().write_queues, 3);
    }

    #[tokio::test]
    async fn a_stored_message_without_room_for_a_retry_becomes_a_dead_letter() {
        let broker = with_a_message();
        for bytes in [32_680, 32_720] {
            let properties = format!("CLUSTER\u{1}DefaultCluster\u{2}a\u{1}{}\u{2}", "x".repeat(bytes - 29));
            let stored =
                put(&broker.intake, Origin::Broker, &message("SELF_TEST_TOPIC", &properties)).unwrap();
            let at = broker.ground.store().max_physical_offset();
            taken_back(&broker, &asked(stored.places.as_slice()[0], 1)).await;
            let copy = broker.ground.store().record_at(at).unwrap().unwrap();
            let dead = RecordView::parse(&copy).unwrap();
            assert_eq!((dead.topic, dead.reconsume_times), ("%DLQ%group", 1), "{bytes} bytes");
            assert_eq!(dead.property(property::DLQ_REASON), Some(TOO_LONG));
            assert_eq!(dead.property("a").unwrap().len(), bytes - 29);
        }
    }
}
