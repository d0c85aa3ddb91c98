//! Requests about offsets of queues and groups.
//!
//! # Source
//! docs/reference/protocol.md 2.3.4.

use rocketpy_model::system;
use rocketpy_protocol::Command;
use rocketpy_protocol::header::{
    GetEarliestMsgStoretimeRequestHeader, GetEarliestMsgStoretimeResponseHeader, GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader, GetMinOffsetRequestHeader, GetMinOffsetResponseHeader, Header,
    QueryConsumerOffsetRequestHeader, QueryConsumerOffsetResponseHeader, SearchOffsetRequestHeader,
    SearchOffsetResponseHeader, UpdateConsumerOffsetRequestHeader, key,
};
use rocketpy_remoting::{Connection, Reply, Response};
use rocketpy_store::Boundary;
use tracing::debug;

use crate::call::{Answer, Call, answer_later, queue_id, success_with};
use crate::refusal::{Refusal, check_offset_of_clients};
use crate::shared::Shared;
use crate::table::group_commit::Written;
use crate::table::offset::{Place, Readable, Reader};

/// QUERY_CONSUMER_OFFSET.
pub(super) fn query(Call { shared, request, connection }: Call<'_>) -> Answer {
    let header = QueryConsumerOffsetRequestHeader::read(&request.ext)?;
    shared.check_log()?;
    let (group, topic, queue) = (header.consumer_group, header.topic, queue_id(header.queue_id)?);
    let place = Place { group, topic, queue_id: queue };
    let bounds = readable(shared, topic, queue);
    // Tools ask for what is stored, and begin nowhere.
    let begins = |reader: &Reader| reader.is_member || !is_of_stored(request);
    let is_queue = shared.topics.get(topic).is_some_and(|topic| queue < topic.queues());
    let reader = reader(shared, connection, place, 0, bounds).filter(|reader| is_queue && begins(reader));
    let start = reader.and_then(|reader| shared.offsets.asked(place, bounds, reader));
    if let Some(offset) = shared.offsets.get(group, topic, queue) {
        return Ok(success_with(&QueryConsumerOffsetResponseHeader { offset }));
    }
    if let Some(offset) = start {
        return Ok(success_with(&QueryConsumerOffsetResponseHeader { offset }));
    }
    if is_queue && !is_of_stored(request) && starts_hot(shared, topic, queue)? {
        return Ok(success_with(&QueryConsumerOffsetResponseHeader { offset: 0 }));
    }
    Err(Refusal::NoOffset { group: group.to_owned(), topic: topic.to_owned(), queue_id: queue })
}

/// Whether a QUERY_CONSUMER_OFFSET is answered from memory.
pub(super) fn is_known(shared: &Shared, request: &Command) -> bool {
    is_of_stored(request)
        || QueryConsumerOffsetRequestHeader::read(&request.ext).is_ok_and(|header| {
            let (topic, queue) = (header.topic, header.queue_id.unsigned_abs());
            let bounds = shared.store.queue_bounds(topic, queue);
            shared.offsets.get(header.consumer_group, topic, queue).is_some()
                || bounds.min.get() > 0
                || bounds.max.get() == 0
        })
}

/// Whether a QUERY_CONSUMER_OFFSET asks only for a stored offset, not for the place where the group would begin.
pub(super) fn is_of_stored(request: &Command) -> bool {
    QueryConsumerOffsetRequestHeader::read(&request.ext)
        .is_ok_and(|header| header.set_zero_if_not_found == Some(false))
}

/// Whether the queue was never trimmed, and is empty or has its first message near the end of the log. Then a group without an
/// offset begins at the first message, whatever start it asks for. Otherwise it would ask for the end next, and messages that came
/// in between would be skipped.
fn starts_hot(shared: &Shared, topic: &str, queue_id: u32) -> Result<bool, Refusal> {
    let bounds = shared.store.queue_bounds(topic, queue_id);
    if bounds.min.get() > 0 || bounds.max.get() == 0 {
        return Ok(bounds.min.get() == 0);
    }
    let first = shared.store.entries(topic, queue_id, bounds.min, 1)?;
    let end = shared.store.max_physical_offset();
    Ok(first.iter().any(|entry| end.saturating_sub(entry.physical_offset) <= shared.hot_bytes))
}

/// UPDATE_CONSUMER_OFFSET. The first offset of a group for a queue is on disk before the answer.
pub(super) fn update(call: Call<'_>, reply: Reply) {
    match commit(call) {
        Ok(None) => reply.send(Response::success()),
        Ok(Some(written)) => answer_later(call.shared, reply, async move {
            written.done().await?;
            Ok(Response::success())
        }),
        Err(refusal) => {
            debug!(%refusal, peer = %call.connection.peer(), "commit refused");
            reply.send(refusal.response());
        }
    }
}

fn commit(Call { shared, request, connection }: Call<'_>) -> Result<Option<Written>, Refusal> {
    let header = UpdateConsumerOffsetRequestHeader::read(&request.ext)?;
    shared.check_log()?;
    let (group, topic) = (header.consumer_group, header.topic);
    check_offset_of_clients(group, topic)?;
    if shared.groups.get(group).is_none() {
        let missing = Refusal::NoGroup { group: group.to_owned() };
        if shared.role.is_master() || shared.group(group).is_err() {
            return Err(missing);
        }
    }
    let Some(config) = shared.topics.get(topic) else {
        return Err(Refusal::NoTopic { topic: topic.to_owned() });
    };
    let queue = queue_id(header.queue_id)?;
    if queue >= config.queues() {
        let (queue_id, queues) = (header.queue_id, config.queues());
        return Err(Refusal::QueueId { topic: topic.to_owned(), queue_id, queues });
    }
    if header.commit_offset < 0 {
        let value = header.commit_offset.to_string();
        return Err(Refusal::Value { field: "commitOffset", wanted: "0 or more", value });
    }
    let place = Place { group, topic, queue_id: queue };
    let (offset, readable) = (header.commit_offset, readable(shared, topic, queue));
    let is_reset = request.ext.get(key::IS_RESET) == Some("true");
    let stored = if is_reset {
        shared.offsets.reset(place, offset, readable)
    } else {
        shared.offsets.commit_of(reader(shared, connection, place, offset, readable), place, offset, readable)
    };
    let written = stored?;
    if !shared.role.is_master() {
        shared.own_commits.note(place, offset);
    }
    Ok(written)
}

/// Who pulls or commits at an offset; `None` at a slave, which moves nobody.
pub(super) fn reader(
    shared: &Shared,
    connection: &Connection,
    place: Place<'_>,
    offset: i64,
    readable: Readable,
) -> Option<Reader> {
    if !shared.role.is_master() {
        return None;
    }
    let Place { group, topic, queue_id } = place;
    // A start that lost the end of the log explains an offset beyond the end of a queue that was there before.
    let is_explained =
        || shared.in_doubt_to.is_some_and(|end| shared.creations.of(topic, queue_id).from < end);
    Some(Reader {
        connection_id: connection.id(),
        is_member: shared.clients.is_member(connection.id(), group),
        is_foreign_beyond_end: offset > readable.max && !system::is_system_group(group) && !is_explained(),
    })
}

/// What can be read of a queue.
pub(super) fn readable(shared: &Shared, topic: &str, queue_id: u32) -> Readable {
    let bounds = shared.store.queue_bounds(topic, queue_id);
    Readable { min: signed(bounds.min.get()), max: signed(bounds.max.get()) }
}

/// Whether a GET_MAX_OFFSET asks for the offset of the next message, even if earlier ones cannot be read yet.
pub(super) fn is_of_next(request: &Command) -> bool {
    GetMaxOffsetRequestHeader::read(&request.ext).is_ok_and(|header| header.committed == Some(false))
}

/// GET_MAX_OFFSET: the end of what can be read, or the offset that the next message gets. 0 for a queue that does not exist.
pub(super) fn max(Call { shared, request, .. }: Call<'_>) -> Answer {
    let header = GetMaxOffsetRequestHeader::read(&request.ext)?;
    let queue = queue_id(header.queue_id)?;
    let offset = if is_of_next(request) {
        shared.store.next_queue_offset(header.topic, queue)
    } else {
        shared.store.queue_bounds(header.topic, queue).max
    };
    Ok(success_with(&GetMaxOffsetResponseHeader { offset: signed(offset.get()) }))
}

/// GET_MIN_OFFSET.
pub(super) fn min(Call { shared, request, .. }: Call<'_>) -> Answer {
    let header = GetMinOffsetRequestHeader::read(&request.ext)?;
    let bounds = shared.store.queue_bounds(header.topic, queue_id(header.queue_id)?);
    Ok(success_with(&GetMinOffsetResponseHeader { offset: signed(bounds.min.get()) }))
}

/// SEARCH_OFFSET_BY_TIMESTAMP.
pub(super) fn search(Call { shared, request, .. }: Call<'_>) -> Answer {
    let header = SearchOffsetRequestHeader::read(&request.ext)?;
    let boundary = match header.boundary_type {
        Some(name) if name.eq_ignore_ascii_case("UPPER") => Boundary::Upper,
        _ => Boundary::Lower,
    };
    let queue = queue_id(header.queue_id)?;
    let offset = shared.store.offset_by_time(header.topic, queue, header.timestamp, boundary)?;
    Ok(success_with(&SearchOffsetResponseHeader { offset: signed(offset.get()) }))
}

/// GET_EARLIEST_MSG_STORETIME: −1 when the queue holds nothing.
pub(super) fn earliest_stored_at(Call { shared, request, .. }: Call<'_>) -> Answer {
    let header = GetEarliestMsgStoretimeRequestHeader::read(&request.ext)?;
    let queue_id = queue_id(header.queue_id)?;
    let stored_at = shared.store.earliest_stored_at(header.topic, queue_id)?;
    Ok(success_with(&GetEarliestMsgStoretimeResponseHeader { timestamp: stored_at.unwrap_or(-1) }))
}

/// A queue offset as the wire has it.
pub(crate) fn signed(offset: u64) -> i64 {
    i64::try_from(offset).unwrap_or(i64::MAX)
}
