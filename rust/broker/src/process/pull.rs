//! PULL_MESSAGE and LITE_PULL_MESSAGE, with long polling.
//!
//! # Source
//! docs/reference/protocol.md 2.3.3 and 5.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rocketpy_auth::{Action, Actions, Permit};
use rocketpy_model::sys_flag::pull as flag;
use rocketpy_protocol::Command;
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::header::{Header, PullMessageRequestHeader, PullMessageResponseHeader};
use rocketpy_remoting::{Reply, Response};
use rocketpy_store::{Fetch, StoreError};

use super::{held, quota};
use crate::blocking::on_disk;
use crate::call::{self, Call, response as respond};
use crate::cold_read::Reached;
use crate::desk::Desk;
use crate::operation::pull::{AskedFilter, Outcome, Placed, Pull, PullRequest, Reading, name_of};
use crate::operation::which_broker::{Next, PullStatus};
use crate::refusal::Refusal;
use crate::table::group::FoundGroup;
use crate::table::group_commit::Written;
use crate::table::offset::Readable;
use crate::waiting::{self, header_bytes};

/// Maximum wait of a pull of a group that has reached its limit of cold reads.
const COLD_WAIT: Duration = Duration::from_secs(1);

/// A pull that is to be held, the right to answer it, and for how long at most.
type ToHold = (Pull, Reply, Duration);

/// Decoded request.
fn asked<'a>(code: i32, header: &PullMessageRequestHeader<'a>) -> PullRequest<'a> {
    let commits = header.sys_flag & flag::COMMIT_OFFSET != 0 && header.commit_offset >= 0;
    let filter = if header.sys_flag & flag::CLASS_FILTER != 0 {
        AskedFilter::Class
    } else if header.sys_flag & flag::SUBSCRIPTION != 0 {
        let expression = header.subscription.unwrap_or_default();
        AskedFilter::Own { expression_type: header.expression_type, expression }
    } else {
        AskedFilter::OfGroup { version: header.sub_version }
    };
    PullRequest {
        group: header.consumer_group,
        topic: header.topic,
        queue_id: header.queue_id,
        offset: header.queue_offset,
        max_messages: header.max_msg_nums,
        max_bytes: header.max_msg_bytes.filter(|bytes| *bytes > 0).map(|bytes| bytes as usize),
        filter,
        commit: commits.then_some(header.commit_offset),
        is_lite: code == request::LITE_PULL_MESSAGE,
    }
}

/// Answers a pull, or gives it back to be held when there is nothing to answer and time to wait.
pub(super) fn pull(Call { desk, connection, request }: Call<'_>, reply: Reply) -> Option<ToHold> {
    let header = match PullMessageRequestHeader::read(&request.ext) {
        Ok(header) => header,
        Err(error) => {
            reply.send(Refusal::from(error).response());
            return None;
        }
    };
    let asked = asked(request.code, &header);
    let mut checked = match desk.pulls.group(&asked) {
        Ok(FoundGroup { written: Some(written), .. }) => {
            pull_once_made(desk, written, request, reply);
            return None;
        }
        Ok(FoundGroup { written: None, group }) => desk.pulls.check(&asked, &group),
        Err(refusal) => Err(refusal),
    };
    if let Ok(pull) = &mut checked {
        pull.user = quota::user_of(desk, request).map(Box::from);
    }
    let placed = checked.map(|pull| (desk.pulls.place(&pull, connection.id(), asked.commit), pull));
    let (placed, pull) = match placed {
        Ok(placed) => placed,
        Err(refusal) => {
            reply.send(refusal_response(&refusal));
            return None;
        }
    };
    let asked_hold = Duration::from_millis(header.suspend_timeout_millis.max(0).unsigned_abs());
    let hold = (header.sys_flag & flag::SUSPEND != 0).then(|| desk.pulls.hold_time(asked_hold));
    match placed {
        Ok(placed) => go_on(desk, placed, pull, reply, hold),
        Err(refusal) => {
            reply.send(refusal.response());
            None
        }
    }
}

/// Reads where the pull was placed, or sends the reader there.
fn go_on(
    desk: &Arc<Desk>,
    placed: Placed,
    pull: Pull,
    reply: Reply,
    hold: Option<Duration>,
) -> Option<ToHold> {
    match placed {
        Placed::Here(None) => return read(desk, pull, reply, hold),
        Placed::Here(Some(written)) => read_once_written(desk, written, pull, reply, hold),
        Placed::Elsewhere { next, readable: Readable { min, max }, why } => {
            let mut command = head(&pull, next, Bounds { min, max });
            command.remark = Some(why.to_owned());
            reply.send(Response::from(command));
        }
    }
    None
}

/// Serves the pull from its beginning once its group is made.
fn pull_once_made(desk: &Arc<Desk>, written: Written, request: &Command, reply: Reply) {
    let memory = match waiting::reserve(&reply, header_bytes(request)) {
        Ok(memory) => memory,
        Err(no_memory) => return reply.send(Refusal::from(no_memory).response()),
    };
    // The body is a part of the whole block that was read from the connection, and would keep it in memory. No pull has one.
    let request = Command { body: Bytes::new(), ..request.clone() };
    let owner = desk.clone();
    desk.ground.tasks().spawn(async move {
        let result = on_disk(Some(written)).await;
        drop(memory);
        match result {
            Ok(()) => {
                let connection = reply.connection().clone();
                let call = Call { desk: &owner, connection: &connection, request: &request };
                held::pull(call, reply);
            }
            Err(refusal) => reply.send(refusal_response(&refusal)),
        }
    });
}

/// Reads once the offset of the group is on disk.
fn read_once_written(desk: &Arc<Desk>, written: Written, pull: Pull, reply: Reply, hold: Option<Duration>) {
    let memory = match waiting::reserve(&reply, pull.held_bytes()) {
        Ok(memory) => memory,
        Err(no_memory) => return reply.send(Refusal::from(no_memory).response()),
    };
    let owner = desk.clone();
    desk.ground.tasks().spawn(async move {
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

/// Answers a pull that was held, if its user may still have the messages.
pub(super) fn resume(desk: &Arc<Desk>, pull: Pull, reply: Reply) {
    if let Some(denied) = refusal_after_wait(desk, &pull, &reply) {
        return reply.send(denied);
    }
    match desk.pulls.place_again(&pull) {
        Ok(placed) => {
            let held_again = go_on(desk, placed, pull, reply, None);
            assert!(held_again.is_none(), "a pull that was held is answered, and not held again");
        }
        Err(refusal) => reply.send(refusal_response(&refusal)),
    }
}

/// The denial of a pull that has waited: its user may have lost its rights since.
fn refusal_after_wait(desk: &Desk, pull: &Pull, reply: &Reply) -> Option<Response> {
    let code = if pull.is_lite { request::LITE_PULL_MESSAGE } else { request::PULL_MESSAGE };
    let messages =
        Permit { topic: &pull.queue.topic, group: Some(&pull.group), actions: Actions::of(&[Action::Sub]) };
    let config = desk.ground.config();
    let guard = config.auth.guard.as_ref()?;
    guard.refusal_of_permit(code, pull.user.as_deref(), reply.connection().peer(), messages)
}

/// Reads the queue and answers: at once from memory, else when the disk has given what is there. With nothing to give and time
/// to wait it gives the pull back, to be held.
fn read(desk: &Arc<Desk>, mut pull: Pull, reply: Reply, hold: Option<Duration>) -> Option<ToHold> {
    pull.limits.copies = reply.connection().has_room_for_copies(); // asked at each read
    match desk.pulls.read_in_memory(&pull).transpose() {
        Some(read) => finish(desk, pull, reply, (hold, false), read),
        None => {
            read_cold(desk, pull, reply, hold);
            None
        }
    }
}

/// Reads from the disk, unless the group has reached its limit of cold reads. Then a push consumer gets an error, and pulls again soon. Others
/// would fail at it: they wait a second at most, and get one message.
fn read_cold(desk: &Arc<Desk>, mut pull: Pull, reply: Reply, hold: Option<Duration>) {
    let Err(reached) = desk.reads.of_groups.check(&pull.group) else {
        return read_aside(desk, pull, reply, hold);
    };
    if desk.members.clients().is_pushed_to(&pull.group) {
        let Reached { limit_bytes, window, .. } = reached;
        let refusal = Refusal::ReadsCold { group: pull.group.to_string(), limit_bytes, window };
        return reply.send(refusal.response());
    }
    let memory = match waiting::reserve(&reply, pull.held_bytes()) {
        Ok(memory) => memory,
        Err(no_memory) => return reply.send(Refusal::from(no_memory).response()),
    };
    pull.limits.max_messages = 1;
    let owner = desk.clone();
    desk.ground.tasks().spawn(async move {
        tokio::time::sleep(reached.left.min(COLD_WAIT)).await;
        drop(memory);
        if !reply.connection().is_open() {
            return;
        }
        match refusal_after_wait(&owner, &pull, &reply) {
            Some(denied) => reply.send(denied),
            None => read_aside(&owner, pull, reply, hold),
        }
    });
}

/// Reads from the disk on another thread than that of the connection, then answers.
fn read_aside(desk: &Arc<Desk>, mut pull: Pull, reply: Reply, hold: Option<Duration>) {
    let (owner, reader, bytes) = (desk.clone(), desk.clone(), pull.held_bytes());
    let connection = reply.connection().clone();
    let read = move || {
        pull.limits.copies = connection.has_room_for_copies();
        let read = reader.pulls.read(&pull);
        if let Ok(fetch) = &read {
            reader.reads.of_groups.note(&pull.group, fetch.size_bytes);
        }
        (pull, read)
    };
    call::read_aside(
        desk.ground.tasks(),
        &desk.reads.cold_pulls,
        reply,
        bytes,
        read,
        move |(pull, read), reply| {
            if let Some((pull, reply, patience)) = finish(&owner, pull, reply, (hold, true), read) {
                held::hold_pull(&owner, pull, reply, patience);
            }
        },
    );
}

/// Answers with what was read, or gives the pull back to be held.
fn finish(
    desk: &Desk,
    pull: Pull,
    reply: Reply,
    (hold, from_disk): (Option<Duration>, bool),
    read: Result<Fetch, StoreError>,
) -> Option<ToHold> {
    let reading = Reading { hold, since: (!reply.was_held()).then_some(reply.read_at()), from_disk };
    match read.map(|fetch| desk.pulls.outcome(&pull, fetch, reading)) {
        Ok(Outcome::Held(patience)) => return Some((pull, reply, patience)),
        Ok(Outcome::Answered { next, fetch }) => {
            let (topic, group) = (Some(&*pull.queue.topic), Some(&*pull.group));
            let names = quota::Names { topic, group, user: pull.user.as_deref() };
            quota::charge(desk, reply.connection(), names, fetch.count as usize, fetch.size_bytes as usize);
            reply.send(answer(&pull, fetch, next));
        }
        Err(error) => reply.send(Refusal::from(error).response()),
    }
    None
}

/// # Source
/// docs/reference/protocol.md 5.3.
fn code_of(status: PullStatus) -> i32 {
    match status {
        PullStatus::Found => response::SUCCESS,
        PullStatus::RetryNow => response::PULL_RETRY_IMMEDIATELY,
        PullStatus::NotFound => response::PULL_NOT_FOUND,
        PullStatus::Moved => response::PULL_OFFSET_MOVED,
    }
}

fn answer(pull: &Pull, fetch: Fetch, next: Next) -> Response {
    let bounds = Bounds { min: fetch.min_offset.to_wire(), max: fetch.max_offset.to_wire() };
    let mut command = head(pull, next, bounds);
    if next.status != PullStatus::Found {
        command.remark = Some(name_of(fetch.status).to_owned());
    }
    Response { body: fetch.records, mapped_bytes: fetch.mapped_bytes, ..Response::from(command) }
}

/// Offsets of the queue.
struct Bounds {
    min: i64,
    max: i64,
}

fn head(pull: &Pull, next: Next, bounds: Bounds) -> Command {
    let header = PullMessageResponseHeader {
        suggest_which_broker_id: i64::try_from(next.broker_id).unwrap_or(i64::MAX),
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
    let mut command = respond(code_of(next.status));
    header.write(&mut command.ext);
    command
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
