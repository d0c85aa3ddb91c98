//! Reading a queue, with long polling.
//!
//! # Source
//! docs/reference/protocol.md 2.3.3 and 5, docs/reference/store-format.md 11.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rocketpy_filter::MessageFilter;
use rocketpy_model::sys_flag::pull as flag;
use rocketpy_model::{GroupConfig, TopicConfig, perm, system};
use rocketpy_protocol::Command;
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::header::{Header, PullMessageRequestHeader, PullMessageResponseHeader};
use rocketpy_remoting::{Reply, Response};
use rocketpy_store::{Fetch, FetchStatus, ReadLimits, StoreError};
use tracing::{debug, info};

use super::held;
use super::offset::{readable, reader, signed};
use super::which_broker::{Next, Sources};
use crate::call::{self, Call, on_disk, response as respond};
use crate::held_request::QueueKey;
use crate::refusal::{Refusal, check_group_of_clients, check_offset_of_clients};
use crate::role::OfMaster;
use crate::shared::Shared;
use crate::table::group::FoundGroup;
use crate::table::group_commit::Written;
use crate::table::offset::{Place, PullAt, Pulling, Readable};
use crate::waiting::{self, Pull, header_bytes};

/// Bytes of one answer when the request states no limit: Apache's limit for messages in memory.
const DEFAULT_MAX_BYTES: usize = 256 * 1024;
/// Why a reader is sent to the offset of its group, or to the first message.
const CREATED_AGAIN: &str = "the topic was created again, or the store is another one";
/// Longest hold, even if the request asks for more.
const MAX_HOLD: Duration = Duration::from_secs(600);

/// A pull that is to be held, the right to answer it, and for how long at most.
type ToHold = (Pull, Reply, Duration);

/// Answers a pull, or gives it back to be held when there is nothing to answer and time to wait.
pub(super) fn pull(Call { shared, request, .. }: Call<'_>, reply: Reply) -> Option<ToHold> {
    let header = match PullMessageRequestHeader::read(&request.ext) {
        Ok(header) => header,
        Err(error) => {
            reply.send(Refusal::from(error).response());
            return None;
        }
    };
    // The length of the filter first: a group may have to be made, and the request waits for it.
    let found = check_broker(shared, request.code)
        .and_then(|()| check_length(shared, &header))
        .and_then(|()| check_not_of_broker(&header))
        .and_then(|()| shared.group(header.consumer_group));
    let checked = match found {
        Ok(FoundGroup { written: Some(written), .. }) => {
            pull_once_made(shared, written, request, reply);
            return None;
        }
        Ok(FoundGroup { written: None, group }) => check(shared, &header, &group),
        Err(refusal) => Err(refusal),
    };
    match checked {
        Ok(pull) => place_and_read(shared, &header, pull, reply),
        Err(refusal) => {
            reply.send(refusal_response(&refusal));
            None
        }
    }
}

/// Serves the pull from its beginning once its group is made.
fn pull_once_made(shared: &Arc<Shared>, written: Written, request: &Command, reply: Reply) {
    let memory = match waiting::reserve(&reply, header_bytes(request)) {
        Ok(memory) => memory,
        Err(no_memory) => return reply.send(Refusal::from(no_memory).response()),
    };
    // The body is a part of the whole block that was read from the connection, and would keep it in memory. No pull has one.
    let request = Command { body: Bytes::new(), ..request.clone() };
    let owner = shared.clone();
    shared.tasks.spawn(async move {
        let result = on_disk(Some(written)).await;
        drop(memory);
        match result {
            Ok(()) => {
                let connection = reply.connection().clone();
                let call = Call { shared: &owner, connection: &connection, request: &request };
                held::pull(call, reply);
            }
            Err(refusal) => reply.send(refusal_response(&refusal)),
        }
    });
}

/// Reads once the group has an offset for the queue on disk, where it must have one: the offset that the pull commits, the one
/// that is stored, or the place where a group of push consumers begins. Without it a kill would let the group begin at the end
/// again, behind messages that it was handed out and had not committed.
fn place_and_read(
    shared: &Arc<Shared>,
    header: &PullMessageRequestHeader<'_>,
    pull: Pull,
    reply: Reply,
) -> Option<ToHold> {
    let QueueKey { topic, queue_id } = &pull.queue;
    let place = Place { group: &pull.group, topic, queue_id: *queue_id };
    let (offset, readable) = (pull.offset, readable(shared, topic, *queue_id));
    let reader = reader(shared, reply.connection(), place, offset, readable);
    let at = PullAt { place, offset, commit: commit_of(header), readable, reader };
    let starts_here = || !system::is_broker_topic(topic) && shared.clients.is_pushed_to(&pull.group);
    let written = match shared.offsets.pull(&at, starts_here) {
        Ok((Pulling::Reads { refused }, written)) => {
            if let Some(error) = refused {
                debug!(group = &*pull.group, %error, "commit of a pull refused");
            }
            written
        }
        Ok((Pulling::Moved { to }, _)) => {
            let why = "the broker's last start took the queue back";
            reply.send(moved(shared, &pull, to, at.readable, why));
            return None;
        }
        Ok((Pulling::Reset { to }, _)) => {
            reply.send(moved(shared, &pull, to, at.readable, "the offset of the group was reset"));
            return None;
        }
        Ok((Pulling::Foreign { to }, _)) => {
            reply.send(moved(shared, &pull, to, at.readable, CREATED_AGAIN));
            return None;
        }
        Err(error) => {
            reply.send(Refusal::from(error).response());
            return None;
        }
    };
    let hold = (header.sys_flag & flag::SUSPEND != 0).then(|| hold_time(shared, header));
    let Some(written) = written else { return read(shared, pull, reply, hold) };
    read_once_written(shared, written, pull, reply, hold);
    None
}

/// Reads once the offset of the group is on disk.
fn read_once_written(
    shared: &Arc<Shared>,
    written: Written,
    pull: Pull,
    reply: Reply,
    hold: Option<Duration>,
) {
    let memory = match waiting::reserve(&reply, pull.held_bytes()) {
        Ok(memory) => memory,
        Err(no_memory) => return reply.send(Refusal::from(no_memory).response()),
    };
    let owner = shared.clone();
    shared.tasks.spawn(async move {
        let result = on_disk(Some(written)).await;
        drop(memory);
        match result {
            Ok(()) => {
                if let Some((pull, reply, patience)) = read(&owner, pull, reply, hold) {
                    held::hold_pull(&owner, pull, reply, patience);
                }
            }
            Err(refusal) => reply.send(refusal_response(&refusal)),
        }
    });
}

/// Says in the log that a reader goes on at another offset.
fn note_move(pull: &Pull, next: &Next, why: &str) {
    if next.code == response::PULL_OFFSET_MOVED {
        let QueueKey { topic, queue_id } = &pull.queue;
        let (group, topic) = (&*pull.group, &**topic);
        info!(
            group,
            topic,
            queue_id,
            old_offset = pull.offset,
            new_offset = next.offset,
            why,
            "reader moved"
        );
    }
}

/// The answer that sends a reader elsewhere.
fn moved(shared: &Shared, pull: &Pull, to: i64, Readable { min, max }: Readable, why: &str) -> Response {
    let next = Next::moved(shared, pull.sources, pull.offset, to);
    note_move(pull, &next, why);
    let mut command = head(pull, next, Bounds { min, max });
    command.remark = Some(why.to_owned());
    command.into()
}

fn hold_time(shared: &Shared, header: &PullMessageRequestHeader<'_>) -> Duration {
    let asked = Duration::from_millis(header.suspend_timeout_millis.max(0).unsigned_abs()).min(MAX_HOLD);
    if shared.config().long_polling { asked } else { asked.min(shared.config().short_polling) }
}

/// Answers a pull that was held.
pub(super) fn resume(shared: &Arc<Shared>, pull: Pull, reply: Reply) {
    match check_again(shared, &pull) {
        Ok(()) if is_created_again(shared, &pull) => {
            let QueueKey { topic, queue_id } = &pull.queue;
            let readable = readable(shared, topic, *queue_id);
            let to = shared.offsets.get(&pull.group, topic, *queue_id).unwrap_or(readable.min);
            reply.send(moved(shared, &pull, to, readable, CREATED_AGAIN));
        }
        Ok(()) => {
            let held_again = read(shared, pull, reply, None);
            debug_assert!(held_again.is_none(), "there is no time to wait");
        }
        Err(refusal) => reply.send(refusal_response(&refusal)),
    }
}

/// Whether the queue is not the one any more at which the pull was held.
fn is_created_again(shared: &Shared, pull: &Pull) -> bool {
    shared.creations.of(&pull.queue.topic, pull.queue.queue_id).number != pull.creation
}

/// What may have changed while the pull was held.
fn check_again(shared: &Shared, pull: &Pull) -> Result<(), Refusal> {
    check_permission(shared)?;
    if let Some(group) = shared.groups.get(&pull.group) {
        check_group(shared, &group)?;
    }
    check_topic(shared, &pull.group, &pull.queue.topic, i64::from(pull.queue.queue_id)).map(drop)
}

/// Whether the group may read at all.
fn check_group(shared: &Shared, group: &GroupConfig) -> Result<(), Refusal> {
    if !group.consume_enable {
        return Err(Refusal::GroupDisabled { group: group.name.clone() });
    }
    if !group.consume_broadcast_enable && shared.clients.is_broadcasting(&group.name) {
        return Err(Refusal::BroadcastDisabled { group: group.name.clone() });
    }
    Ok(())
}

/// The topic and its queue, if the group may read them.
fn check_topic(
    shared: &Shared,
    group: &str,
    topic: &str,
    queue_id: i64,
) -> Result<(Arc<TopicConfig>, u32), Refusal> {
    let Some(topic) = shared.topics.get(topic) else {
        return Err(Refusal::NoTopic { topic: topic.to_owned() });
    };
    let queue_id = check_readable(&topic, queue_id)?;
    if shared.groups.is_read_forbidden(group, &topic.name) {
        return Err(Refusal::ReadForbidden { group: group.to_owned(), topic: topic.name.clone() });
    }
    Ok((topic, queue_id))
}

/// The queue, if it may be read.
fn check_readable(topic: &TopicConfig, queue_id: i64) -> Result<u32, Refusal> {
    if !topic.perm.is_readable() {
        return Err(Refusal::TopicNotReadable { topic: topic.name.clone(), perm: topic.perm.bits() });
    }
    u32::try_from(queue_id).ok().filter(|queue| *queue < topic.read_queues).ok_or_else(|| {
        let queue_id = i32::try_from(queue_id).unwrap_or(i32::MAX);
        Refusal::QueueId { topic: topic.name.clone(), queue_id, queues: topic.read_queues }
    })
}

/// Whether this broker serves such pulls.
fn check_broker(shared: &Shared, code: i32) -> Result<(), Refusal> {
    check_permission(shared)?;
    let config = &shared.config();
    if code == request::LITE_PULL_MESSAGE && !config.lite_pull {
        return Err(Refusal::LitePullOff { broker: config.broker_name.clone() });
    }
    Ok(())
}

/// Whether this broker may be read.
fn check_permission(shared: &Shared) -> Result<(), Refusal> {
    shared.check_log()?;
    if !shared.config().slave_read {
        shared.check_master(OfMaster::Pull)?;
    }
    let permission = shared.permission();
    if permission & perm::READ == 0 {
        let broker = shared.config().broker_name.clone();
        return Err(Refusal::BrokerNotReadable { broker, permission });
    }
    Ok(())
}

/// Whether the group may read, and store an offset if the pull wants that.
fn check_not_of_broker(header: &PullMessageRequestHeader<'_>) -> Result<(), Refusal> {
    match commit_of(header) {
        Some(_) => check_offset_of_clients(header.consumer_group, header.topic),
        None => check_group_of_clients(header.consumer_group),
    }
}

/// The offset that the pull commits.
fn commit_of(header: &PullMessageRequestHeader<'_>) -> Option<i64> {
    let commits = header.sys_flag & flag::COMMIT_OFFSET != 0 && header.commit_offset >= 0;
    commits.then_some(header.commit_offset)
}

/// Whether the filter that the pull brings, if it brings one, is short enough.
fn check_length(shared: &Shared, header: &PullMessageRequestHeader<'_>) -> Result<(), Refusal> {
    let brings_one = header.sys_flag & flag::SUBSCRIPTION != 0;
    shared.check_filter(header.subscription.filter(|_| brings_one).unwrap_or_default())
}

fn check(
    shared: &Shared,
    header: &PullMessageRequestHeader<'_>,
    group: &GroupConfig,
) -> Result<Pull, Refusal> {
    check_group(shared, group)?;
    let (topic, queue_id) = check_topic(shared, &group.name, header.topic, i64::from(header.queue_id))?;
    let filter = filter_of(shared, header)?;
    Ok(Pull {
        queue: QueueKey { topic: topic.name.as_str().into(), queue_id },
        creation: shared.creations.of(&topic.name, queue_id).number,
        offset: header.queue_offset,
        filter,
        group: group.name.as_str().into(),
        limits: limits(shared, header),
        topic_sys_flag: topic.sys_flag,
        group_sys_flag: group.sys_flag,
        sources: Sources::of(group),
    })
}

fn limits(shared: &Shared, header: &PullMessageRequestHeader<'_>) -> ReadLimits {
    let config = &shared.config();
    let asked =
        header.max_msg_bytes.filter(|bytes| *bytes > 0).map_or(DEFAULT_MAX_BYTES, |bytes| bytes as usize);
    let messages = usize::try_from(header.max_msg_nums).unwrap_or(0).clamp(1, config.max_transfer_messages);
    ReadLimits {
        max_messages: u32::try_from(messages).unwrap_or(u32::MAX),
        max_bytes: asked.min(config.max_transfer_bytes) as u64,
        copies: false,
    }
}

fn filter_of(shared: &Shared, header: &PullMessageRequestHeader<'_>) -> Result<Arc<MessageFilter>, Refusal> {
    if header.sys_flag & flag::CLASS_FILTER != 0 {
        return Err(Refusal::ClassFilter { topic: header.topic.to_owned() });
    }
    if header.sys_flag & flag::SUBSCRIPTION != 0 {
        return shared.parsed_filter(header.expression_type, header.subscription.unwrap_or_default());
    }
    let Some(subscription) = shared.clients.for_pull(header.consumer_group, header.topic) else {
        return Err(Refusal::NoConsumers { group: header.consumer_group.to_owned() });
    };
    let Some(subscription) = subscription else {
        let (group, topic) = (header.consumer_group.to_owned(), header.topic.to_owned());
        return Err(Refusal::NoSubscription { group, topic });
    };
    let (stored, asked) = (subscription.data.sub_version, header.sub_version);
    if stored < asked {
        let (group, topic) = (header.consumer_group.to_owned(), header.topic.to_owned());
        return Err(Refusal::OldSubscription { group, topic, stored, asked });
    }
    match &subscription.filter {
        Some(filter) => Ok(filter.clone()),
        // The heartbeat was taken, for the sake of the client's other subscriptions: the pull says what is wrong with this one.
        None => {
            shared.parsed_filter(subscription.data.expression_type.as_deref(), &subscription.data.sub_string)
        }
    }
}

/// Reads the queue and answers: at once from memory, else when the disk has given what is there. With nothing to give and time
/// to wait it gives the pull back, to be held.
fn read(shared: &Arc<Shared>, mut pull: Pull, reply: Reply, hold: Option<Duration>) -> Option<ToHold> {
    pull.limits.copies = reply.connection().has_room_for_copies(); // asked at each read
    let QueueKey { topic, queue_id } = &pull.queue;
    let read = shared.store.get_in_memory(topic, *queue_id, pull.offset, &pull.limits, &pull.filter);
    match read.transpose() {
        Some(read) => finish(shared, pull, reply, hold, read),
        None => {
            read_aside(shared, pull, reply, hold);
            None
        }
    }
}

/// Reads from the disk, while the thread that serves the connection goes on, and answers then.
fn read_aside(shared: &Arc<Shared>, mut pull: Pull, reply: Reply, hold: Option<Duration>) {
    let (owner, store, bytes) = (shared.clone(), shared.store.clone(), pull.held_bytes());
    let connection = reply.connection().clone();
    let read = move || {
        pull.limits.copies = connection.has_room_for_copies();
        let QueueKey { topic, queue_id } = &pull.queue;
        let read = store.get(topic, *queue_id, pull.offset, &pull.limits, &pull.filter);
        (pull, read)
    };
    call::read_aside(shared, &shared.cold_pulls, reply, bytes, read, move |(pull, read), reply| {
        if let Some((pull, reply, patience)) = finish(&owner, pull, reply, hold, read) {
            held::hold_pull(&owner, pull, reply, patience);
        }
    });
}

/// Answers with what was read, or gives the pull back to be held.
fn finish(
    shared: &Shared,
    pull: Pull,
    reply: Reply,
    hold: Option<Duration>,
    read: Result<Fetch, StoreError>,
) -> Option<ToHold> {
    let QueueKey { topic, queue_id } = &pull.queue;
    let fetch = match read {
        Ok(fetch) => fetch,
        Err(error) => {
            reply.send(Refusal::from(error).response());
            return None;
        }
    };
    let code = code_of(fetch.status, pull.offset);
    let next = Next::after(shared, pull.sources, code, pull.offset, &fetch);
    match hold {
        Some(patience) if next.code == response::PULL_NOT_FOUND && !patience.is_zero() => {
            Some((pull, reply, patience))
        }
        _ => {
            let count = u64::from(fetch.count);
            shared.stats.pulled(count);
            if count > 0 {
                shared.rates.got(&pull.group, topic, count);
            }
            let place = Place { group: &pull.group, topic, queue_id: *queue_id };
            shared.offsets.pulled(place, next.offset);
            note_move(&pull, &next, remark(fetch.status));
            reply.send(answer(&pull, fetch, next));
            None
        }
    }
}

/// # Source
/// docs/reference/protocol.md 5.3.
fn code_of(status: FetchStatus, offset: i64) -> i32 {
    match status {
        FetchStatus::Found => response::SUCCESS,
        FetchStatus::NoMatchedMessage | FetchStatus::MessageWasRemoving => response::PULL_RETRY_IMMEDIATELY,
        FetchStatus::NoMessageInQueue if offset == 0 => response::PULL_NOT_FOUND,
        FetchStatus::OffsetOverflowOne | FetchStatus::OffsetFoundNull => response::PULL_NOT_FOUND,
        FetchStatus::NoMessageInQueue | FetchStatus::OffsetTooSmall | FetchStatus::OffsetOverflowBadly => {
            response::PULL_OFFSET_MOVED
        }
    }
}

fn answer(pull: &Pull, fetch: Fetch, next: Next) -> Response {
    let bounds = Bounds { min: signed(fetch.min_offset.get()), max: signed(fetch.max_offset.get()) };
    let mut command = head(pull, next, bounds);
    if next.code != response::SUCCESS {
        command.remark = Some(remark(fetch.status).to_owned());
    }
    Response { command, body: fetch.records, mapped_bytes: fetch.mapped_bytes }
}

/// What the queue holds.
struct Bounds {
    min: i64,
    max: i64,
}

fn head(pull: &Pull, next: Next, bounds: Bounds) -> Command {
    let header = PullMessageResponseHeader {
        suggest_which_broker_id: signed(next.broker_id),
        next_begin_offset: next.offset,
        min_offset: bounds.min,
        max_offset: bounds.max,
        offset_delta: None,
        topic_sys_flag: Some(pull.topic_sys_flag),
        group_sys_flag: Some(pull.group_sys_flag),
        forbidden_type: None,
        region: None,
        trace_on: None,
    };
    let mut command = respond(next.code);
    header.write(&mut command.ext);
    command
}

fn remark(status: FetchStatus) -> &'static str {
    match status {
        FetchStatus::Found => "FOUND",
        FetchStatus::NoMatchedMessage => "NO_MATCHED_MESSAGE",
        FetchStatus::MessageWasRemoving => "MESSAGE_WAS_REMOVING",
        FetchStatus::OffsetTooSmall => "OFFSET_TOO_SMALL",
        FetchStatus::OffsetOverflowOne => "OFFSET_OVERFLOW_ONE",
        FetchStatus::OffsetOverflowBadly => "OFFSET_OVERFLOW_BADLY",
        FetchStatus::OffsetFoundNull => "OFFSET_FOUND_NULL",
        FetchStatus::NoMessageInQueue => "NO_MESSAGE_IN_QUEUE",
    }
}

/// A refusal of a pull. With NO_PERMISSION a header field states what forbids it.
fn refusal_response(refusal: &Refusal) -> Response {
    let mut response = refusal.response();
    let forbidden_type = match refusal {
        Refusal::BrokerNotReadable { .. } | Refusal::LitePullOff { .. } => 1,
        Refusal::GroupDisabled { .. } => 2,
        Refusal::TopicNotReadable { .. } => 3,
        Refusal::BroadcastDisabled { .. } => 4,
        Refusal::ReadForbidden { .. } => 5,
        _ => return response,
    };
    response.command.ext.push("forbiddenType", &forbidden_type.to_string());
    response
}

#[cfg(test)]
mod tests;
