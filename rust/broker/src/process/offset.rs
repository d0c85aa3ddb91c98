//! Requests about offsets of queues and groups.
//!
//! # Source
//! docs/reference/protocol.md 2.3.4.

use rocketpy_protocol::Command;
use rocketpy_protocol::header::{
    GetEarliestMsgStoretimeRequestHeader, GetEarliestMsgStoretimeResponseHeader, GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader, GetMinOffsetRequestHeader, GetMinOffsetResponseHeader, Header,
    QueryConsumerOffsetRequestHeader, QueryConsumerOffsetResponseHeader, SearchOffsetRequestHeader,
    SearchOffsetResponseHeader, UpdateConsumerOffsetRequestHeader, key,
};
use rocketpy_remoting::{Reply, Response};
use rocketpy_store::Boundary;
use tracing::debug;

use crate::call::{Answer, Call, answer_later, success_with};
use crate::desk::Desk;
use crate::ground::Ground;
use crate::members::Members;
use crate::operation::offset::{self, Commit};
use crate::operation::queue_id;
use crate::refusal::Refusal;
use crate::table::group_commit::Written;
use crate::table::offset::Place;

/// QUERY_CONSUMER_OFFSET.
pub(super) fn query(Call { desk, request, connection }: Call<'_>) -> Answer {
    let header = QueryConsumerOffsetRequestHeader::read(&request.ext)?;
    let queue_id = queue_id(header.queue_id)?;
    let place = Place { group: header.consumer_group, topic: header.topic, queue_id };
    let Desk { ground, members, .. } = &**desk;
    let offset = offset::offset_of(ground, members, connection.id(), place, is_of_stored(request))?;
    Ok(success_with(&QueryConsumerOffsetResponseHeader { offset }))
}

/// Whether a QUERY_CONSUMER_OFFSET is answered from memory.
pub(super) fn is_known(ground: &Ground, members: &Members, request: &Command) -> bool {
    is_of_stored(request)
        || QueryConsumerOffsetRequestHeader::read(&request.ext).is_ok_and(|header| {
            let queue_id = header.queue_id.unsigned_abs();
            let place = Place { group: header.consumer_group, topic: header.topic, queue_id };
            offset::is_known(ground, members, place)
        })
}

/// Whether a QUERY_CONSUMER_OFFSET asks only for a stored offset, not for the place where the group would begin.
pub(super) fn is_of_stored(request: &Command) -> bool {
    QueryConsumerOffsetRequestHeader::read(&request.ext)
        .is_ok_and(|header| header.set_zero_if_not_found == Some(false))
}

/// UPDATE_CONSUMER_OFFSET. The first offset of a group for a queue is on disk before the answer, and at the slaves of a SYNC_MASTER.
pub(super) fn update(call: Call<'_>, reply: Reply) {
    match commit(call) {
        Ok(None) => reply.send(Response::success()),
        Ok(Some(written)) => {
            let owner = call.desk.clone();
            let is_of_slave = call.request.ext.get(key::OF_SLAVE) == Some("true");
            answer_later(call.desk.ground.tasks(), reply, async move {
                written.done().await?;
                if !is_of_slave {
                    owner.acks.tables_at_slaves().have_change().await?;
                }
                Ok(Response::success())
            });
        }
        Err(refusal) => {
            debug!(%refusal, peer = %call.connection.peer(), "commit refused");
            reply.send(refusal.response());
        }
    }
}

fn commit(Call { desk, request, connection }: Call<'_>) -> Result<Option<Written>, Refusal> {
    let header = UpdateConsumerOffsetRequestHeader::read(&request.ext)?;
    let commit = Commit {
        group: header.consumer_group,
        topic: header.topic,
        queue_id: header.queue_id,
        offset: header.commit_offset,
        connection_id: connection.id(),
        is_reset: request.ext.get(key::IS_RESET) == Some("true"),
    };
    offset::commit(&desk.ground, &desk.members, &commit)
}

/// Whether a GET_MAX_OFFSET asks for the offset of the next message, even if earlier ones cannot be read yet.
pub(super) fn is_of_next(request: &Command) -> bool {
    GetMaxOffsetRequestHeader::read(&request.ext).is_ok_and(|header| header.committed == Some(false))
}

/// GET_MAX_OFFSET: the end of what can be read, or the offset that the next message gets. 0 for a queue that does not exist.
pub(super) fn max(Call { desk, request, .. }: Call<'_>) -> Answer {
    let header = GetMaxOffsetRequestHeader::read(&request.ext)?;
    let offset = offset::max(desk.ground.store(), header.topic, header.queue_id, is_of_next(request))?;
    Ok(success_with(&GetMaxOffsetResponseHeader { offset }))
}

/// GET_MIN_OFFSET.
pub(super) fn min(Call { desk, request, .. }: Call<'_>) -> Answer {
    let header = GetMinOffsetRequestHeader::read(&request.ext)?;
    let offset = offset::min(desk.ground.store(), header.topic, header.queue_id)?;
    Ok(success_with(&GetMinOffsetResponseHeader { offset }))
}

/// SEARCH_OFFSET_BY_TIMESTAMP.
pub(super) fn search(Call { desk, request, .. }: Call<'_>) -> Answer {
    let header = SearchOffsetRequestHeader::read(&request.ext)?;
    let boundary = match header.boundary_type {
        Some(name) if name.eq_ignore_ascii_case("UPPER") => Boundary::Upper,
        _ => Boundary::Lower,
    };
    let (store, at_ms) = (desk.ground.store(), header.timestamp);
    let offset = offset::at_time(store, header.topic, header.queue_id, at_ms, boundary)?;
    Ok(success_with(&SearchOffsetResponseHeader { offset }))
}

/// GET_EARLIEST_MSG_STORETIME: −1 when the queue holds nothing.
pub(super) fn earliest_stored_at(Call { desk, request, .. }: Call<'_>) -> Answer {
    let header = GetEarliestMsgStoretimeRequestHeader::read(&request.ext)?;
    let stored_at = offset::earliest_stored_at(desk.ground.store(), header.topic, header.queue_id)?;
    Ok(success_with(&GetEarliestMsgStoretimeResponseHeader { timestamp: stored_at.unwrap_or(-1) }))
}
