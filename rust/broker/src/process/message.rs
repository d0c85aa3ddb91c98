//! Requests for messages by physical offset and by key, and for entries of queues.

use rocketpy_auth::Action;
use rocketpy_model::QueueOffset;
use rocketpy_protocol::body::{ConsumeQueueData, QueryConsumeQueueResponseBody};
use rocketpy_protocol::code::response;
use rocketpy_protocol::header::{
    Header, QueryConsumeQueueRequestHeader, QueryMessageRequestHeader, QueryMessageResponseHeader,
    ViewMessageRequestHeader,
};
use rocketpy_remoting::Response;
use rocketpy_store::{KeyKind, QueueEntry};

use super::accounts::RecordCheck;
use super::quota::{self, Names, user_of};
use crate::call::{Answer, Call, response as response_with, success_json};
use crate::operation::look_up::{self, KeyQuery};
use crate::refusal::{Refusal, check_range};

/// VIEW_MESSAGE_BY_ID: the record that starts at a physical offset.
pub(super) fn view(call: Call<'_>) -> Answer {
    let Call { desk, connection, request } = call;
    let header = ViewMessageRequestHeader::read(&request.ext)?;
    let record = look_up::record_at(desk.ground.store(), header.offset)?;
    let check = RecordCheck::of(call);
    if let Some(denied) =
        check.and_then(|check| check.refusal(header.offset, &record, &[Action::Sub, Action::Get]))
    {
        return Ok(denied);
    }
    let names = Names { user: user_of(desk, request), ..Names::default() };
    quota::charge(desk, connection, names, 1, record.len());
    Ok(Response::success().with_body(record))
}

/// QUERY_MESSAGE: the records of a key that were stored in a range of time.
pub(super) fn query(Call { desk, connection, request }: Call<'_>) -> Answer {
    let header = QueryMessageRequestHeader::read(&request.ext)?;
    let is_unique = header.is_unique_key.unwrap_or(false);
    let kind = match header.index_type.unwrap_or("") {
        _ if is_unique => KeyKind::Unique,
        "" | "K" => KeyKind::Any,
        "U" => KeyKind::Unique,
        "T" => KeyKind::Tag,
        other => {
            let (field, wanted) = ("indexType", "K, U or T");
            return Err(Refusal::Value { field, wanted, value: other.to_owned() });
        }
    };
    let asked = KeyQuery {
        topic: header.topic,
        key: header.key,
        kind,
        max_messages: (!is_unique).then(|| u32::try_from(header.max_num).unwrap_or(0)),
        begin_ms: header.begin_timestamp,
        end_ms: header.end_timestamp,
    };
    let found = look_up::by_key(&desk.ground, &asked)?;
    let is_empty = found.records.is_empty();
    let bytes = found.records.iter().map(|record| record.len()).sum();
    let names = Names { topic: Some(header.topic), group: None, user: user_of(desk, request) };
    quota::charge(desk, connection, names, found.records.len(), bytes);
    let mut command = response_with(if is_empty { response::QUERY_NOT_FOUND } else { response::SUCCESS })
        .with_header(&QueryMessageResponseHeader {
            index_last_update_timestamp: found.last_stored_at_ms,
            index_last_update_phyoffset: found.last_physical_offset.to_wire(),
        });
    if is_empty {
        let (topic, key) = (header.topic, header.key);
        command.remark = Some(format!("no message of topic {topic} with key {key} was stored in that time"));
    }
    Ok(found.records.into_iter().fold(Response::from(command), Response::with_body))
}

/// Maximum number of entries in one answer.
const MAX_ENTRIES: usize = 10_000;

/// QUERY_CONSUME_QUEUE: entries of a queue, and whether they match the subscription of a group.
pub(super) fn query_queue(Call { desk, request, .. }: Call<'_>) -> Answer {
    let header = QueryConsumeQueueRequestHeader::read(&request.ext)?;
    let QueryConsumeQueueRequestHeader { topic, queue_id, index, count, .. } = header;
    check_range("count", 0..=MAX_ENTRIES, count)?;
    let queue = u32::try_from(queue_id)
        .ok()
        .filter(|queue| desk.ground.topics().get(topic).is_some_and(|topic| *queue < topic.queues()));
    let queue = queue.ok_or_else(|| Refusal::NoQueue { topic: topic.to_owned(), queue_id })?;
    let bounds = desk.ground.store().queue_bounds(topic, queue);
    let mut body = QueryConsumeQueueResponseBody {
        max_queue_index: bounds.max.to_wire(),
        min_queue_index: bounds.min.to_wire(),
        ..Default::default()
    };
    let mut filter = None;
    if let Some(group) = header.consumer_group {
        let subscription = desk.members.clients().for_pull(group, topic).flatten();
        body.filter_data = Some(match &subscription {
            Some(subscription) => subscription.data.sub_string.clone(),
            None => format!("{group}@{topic} is not online!"),
        });
        body.subscription_data = subscription.as_ref().map(|subscription| subscription.data.clone());
        filter = subscription.and_then(|subscription| subscription.filter.clone());
    }
    let from =
        u64::try_from(index).ok().map(QueueOffset).filter(|from| (bounds.min..bounds.max).contains(from));
    let Some(from) = from else {
        let mut response = success_json(&body);
        response.command.remark = Some(format!("Index {index} of {queue_id}@{topic} is not exist!"));
        return Ok(response);
    };
    let entries = desk.ground.store().entries(topic, queue, from, count.unsigned_abs() as usize)?;
    let data = |entry: QueueEntry| ConsumeQueueData {
        eval: filter.as_ref().is_some_and(|filter| filter.matches_code(entry.tags_code)),
        physic_offset: entry.physical_offset.to_wire(),
        physic_size: i32::try_from(entry.size_bytes).unwrap_or(i32::MAX),
        tags_code: entry.tags_code,
    };
    body.queue_data = Some(entries.into_iter().map(data).collect());
    Ok(success_json(&body))
}
