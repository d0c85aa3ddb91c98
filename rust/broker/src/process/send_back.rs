//! CONSUMER_SEND_MSG_BACK: a consumer gives back a message that it could not handle, and gets it again later.
//!
//! # Source
//! docs/reference/protocol.md 2.3.8, docs/reference/store-format.md 10.1.

use std::sync::Arc;

use bytes::Bytes;
use rocketpy_env::Disk;
use rocketpy_env::planted::{self, Bug};
use rocketpy_model::{PhysicalOffset, property, system};
use rocketpy_protocol::Command;
use rocketpy_protocol::header::{ConsumerSendMsgBackRequestHeader, Header};
use rocketpy_protocol::message_id::OffsetMessageId;
use rocketpy_protocol::record::RecordView;
use rocketpy_remoting::{Reply, Response};
use tracing::debug;

use crate::call::{Call, on_disk, read_record, without_body};
use crate::put::{AckCondition, StoredAgain, acknowledge, check_writable};
use crate::refusal::Refusal;
use crate::role::OfMaster;
use crate::shared::Shared;
use crate::waiting::header_bytes;

/// The delay level of a first retry, where the consumer names none: 10 s.
const FIRST_LEVEL: i32 = 3;
/// Why a message is dead: its group got it as often as it may.
const RETRIES_EXHAUSTED: &str = "RETRIES_EXHAUSTED";
/// Why a message is dead: the consumer asked for no retry.
const GIVEN_UP: &str = "GIVEN_UP";

/// Stores the message again: for its group's retries, or as a dead letter.
pub(super) fn send_back(Call { shared, request, .. }: Call<'_>, reply: Reply) {
    let offset = match ConsumerSendMsgBackRequestHeader::read(&request.ext) {
        Ok(header) => header.offset,
        Err(error) => return reply.send(Refusal::from(error).response()),
    };
    let request = without_body(request.clone());
    let (bytes, owner) = (header_bytes(&request), shared.clone());
    let read = move || (record_of(&owner, &request), owner, request);
    read_record(shared, offset, reply, bytes, read, |(record, shared, request), reply| {
        let owner = shared.clone();
        shared.tasks.run(async move {
            match take_back(&owner, &request, record).await {
                Ok(ack) => acknowledge(&owner, ack, reply, Response::success()),
                Err(refusal) => {
                    debug!(%refusal, peer = %reply.connection().peer(), "message not taken back");
                    reply.send(refusal.response());
                }
            }
        });
    });
}

/// The record that the request names.
pub(crate) fn record_of(shared: &Shared<impl Disk>, request: &Command) -> Result<Bytes, Refusal> {
    let header = ConsumerSendMsgBackRequestHeader::read(&request.ext)?;
    let missing = Refusal::NoMessageAt { offset: header.offset };
    let Ok(offset) = u64::try_from(header.offset) else { return Err(missing) };
    shared.store.record_at(PhysicalOffset(offset))?.ok_or(missing)
}

/// Returns what the answer waits for: the flush of the copy, whatever message and broker say of their sends. The consumer commits past the
/// message once it has the answer.
pub(crate) async fn take_back(
    shared: &Arc<Shared<impl Disk>>,
    request: &Command,
    record: Result<Bytes, Refusal>,
) -> Result<AckCondition, Refusal> {
    let header = ConsumerSendMsgBackRequestHeader::read(&request.ext)?;
    shared.check_master(OfMaster::SendBack)?;
    let found = shared.group(header.group)?;
    on_disk(found.written).await?;
    let group = found.group;
    check_writable(shared)?;
    if group.retry_queues <= 0 {
        debug!(group = group.name, "message dropped, its group has no retries (retryQueueNums)");
        return Ok(AckCondition::default());
    }
    let bytes = record?;
    let record = RecordView::parse(&bytes).map_err(|_| Refusal::NoMessageAt { offset: header.offset })?;
    let limit = header.max_reconsume_times.unwrap_or(group.retry_max_times);
    let death = match header.delay_level {
        ..0 => Some(GIVEN_UP),
        _ => (record.reconsume_times >= limit).then_some(RETRIES_EXHAUSTED),
    };
    let topic = match death {
        Some(_) => system::dlq_topic(&group.name),
        None => system::retry_topic(&group.name),
    };
    let again = again(&record, &header, &topic, death)?;
    let announced = again.put(shared).await?.ack.announced;
    let end = shared.store.max_physical_offset();
    // The group moves on once this is answered, so the copy is to outlive this machine where that can be.
    let replicated = shared.slaves.are_waited_for() && shared.slaves.are_there_for(end).is_ok();
    Ok(AckCondition { flushed: Some(end), replicated: replicated.then_some(end), announced })
}

/// The message that the record becomes.
fn again<'a>(
    record: &RecordView<'a>,
    header: &ConsumerSendMsgBackRequestHeader<'_>,
    topic: &'a str,
    death: Option<&'static str>,
) -> Result<StoredAgain<'a>, Refusal> {
    let origin_topic = record.property(property::RETRY_TOPIC).unwrap_or(record.topic);
    let place = OffsetMessageId { host: record.store_host, physical_offset: record.physical_offset };
    let own_id = place.to_string();
    let origin_id = record.property(property::ORIGIN_MESSAGE_ID).unwrap_or(&own_id);
    let counted = if planted::has(Bug::RetryNotCounted) { 0 } else { 1 };
    let again = StoredAgain::of(record)
        .with_reconsume_times(record.reconsume_times.saturating_add(counted))
        .with_property(property::RETRY_TOPIC, origin_topic)?
        .with_property(property::ORIGIN_MESSAGE_ID, origin_id)?;
    if let Some(reason) = death {
        return again
            .to(topic, 0)
            .without_property(property::DELAY)
            .with_property(property::DLQ_ORIGIN_TOPIC, origin_topic)?
            .with_property(property::DLQ_ORIGIN_MESSAGE_ID, origin_id)?
            .with_property(property::DLQ_REASON, reason);
    }
    let level = match header.delay_level {
        0 => FIRST_LEVEL.saturating_add(record.reconsume_times.max(0)),
        level => level,
    };
    again.to(topic, -1).delayed(level.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FlushMode;
    use crate::put::{NewMessage, Origin, put};
    use crate::testing::{TestShared, message};

    fn request(delay_level: i32) -> Command {
        request_at(PhysicalOffset::ZERO, delay_level)
    }

    fn request_at(offset: PhysicalOffset, delay_level: i32) -> Command {
        let header = ConsumerSendMsgBackRequestHeader {
            offset: offset.to_wire(),
            group: "group",
            delay_level,
            origin_msg_id: None,
            origin_topic: None,
            unit_mode: None,
            max_reconsume_times: None,
            broker_name: None,
        };
        Command::request(rocketpy_protocol::code::request::CONSUMER_SEND_MSG_BACK, &header)
    }

    /// A broker whose log begins with a message that does not want to wait for the flush.
    fn with_a_message() -> TestShared {
        let shared = TestShared::open(|config| config.store.flush = FlushMode::Async);
        let message = message("SELF_TEST_TOPIC", "WAIT\u{1}false\u{2}");
        put(&shared, Origin::Broker, &message).unwrap();
        shared
    }

    #[tokio::test]
    async fn the_answer_waits_for_the_flush_whatever_message_and_broker_say() {
        let shared = with_a_message();
        for delay_level in [-1, 0, 1] {
            let request = request(delay_level);
            let ack = take_back(&shared, &request, record_of(&shared, &request)).await.unwrap();
            assert_eq!(ack.flushed, Some(shared.store.max_physical_offset()), "level {delay_level}");
        }
    }

    #[tokio::test]
    async fn each_retry_waits_a_level_longer_and_after_sixteen_the_message_is_dead() {
        let shared = with_a_message();
        for tried in 0..17 {
            let message = NewMessage { reconsume_times: tried, ..message("SELF_TEST_TOPIC", "") };
            let stored = put(&shared, Origin::Broker, &message).unwrap();
            let request = request_at(stored.places.as_slice()[0], 0);
            let at = shared.store.max_physical_offset();
            take_back(&shared, &request, record_of(&shared, &request)).await.unwrap();
            let bytes = shared.store.record_at(at).unwrap().unwrap();
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
        let shared = with_a_message();
        for (queues, stored) in [(0, false), (3, true)] {
            let mut group = rocketpy_model::GroupConfig::new("group");
            group.retry_queues = queues;
            let changed = shared.groups.put(group).unwrap();
            changed.written.unwrap().done().await.unwrap();
            let end = shared.store.max_physical_offset();
            let request = request(1);
            take_back(&shared, &request, record_of(&shared, &request)).await.unwrap();
            assert_eq!(shared.store.max_physical_offset() > end, stored, "{queues} queues");
        }
        assert_eq!(shared.topics.get("%RETRY%group").unwrap().write_queues, 3);
    }
}
