//! Sends and pulls under quotas, and the requests of an operator about them.
//!
//! # Source
//! docs/decisions/quotas.md.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rocketpy_model::sys_flag::pull as flag;
use rocketpy_model::system;
use rocketpy_protocol::body::Quota;
use rocketpy_protocol::code::{request as code, response};
use rocketpy_protocol::header::{
    Header, PullMessageRequestHeader, PullMessageResponseHeader, QueryMessageRequestHeader,
    RemoveQuotaRequestHeader, SendMessageRequestHeader,
};
use rocketpy_protocol::{Command, batch};
use rocketpy_remoting::{Connection, Reply, Response, cork};
use tracing::{debug, info};

use super::accounts;
use crate::blocking::on_disk;
use crate::call::{Answer, Call, answer_later, body, response as respond, success_json};
use crate::desk::Desk;
use crate::quota::{Direction, OverQuota, Released, Rule, Waiting, Want, is_limited_topic};
use crate::refusal::Refusal;
use crate::role::OfMaster;
use crate::table::group_commit::Written;
use crate::waiting::{self, header_bytes};

/// Maximum wait of a send, or of a read that does not ask for a wait: Java's clients give a send 3 s and repeat it at once.
const PATIENCE: Duration = Duration::from_secs(1);
/// Maximum wait of a pull that asks for one, in addition to its wait for messages: clients give it 10 to 15 s more than they ask for.
const PULL_PATIENCE: Duration = Duration::from_secs(5);

/// Serves a request.
pub(super) type Serve = fn(&Arc<Desk>, &Arc<Connection>, Command, Reply);

/// Names that a request is counted by.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Names<'a> {
    pub(super) topic: Option<&'a str>,
    pub(super) group: Option<&'a str>,
    pub(super) user: Option<&'a str>,
}

/// The user of a request; `None` while users are off: then anybody can send any name.
pub(super) fn user_of<'a>(desk: &Desk, request: &'a Command) -> Option<&'a str> {
    desk.ground.config().auth.guard.as_ref()?.user_of(request)
}

/// Serves a request, if its quotas allow it, or has it wait for them.
pub(super) fn serve_within(desk: &Arc<Desk>, request: Command, reply: Reply, serve: Serve) {
    let connection = reply.connection().clone();
    let Some((want, patience)) = want(desk, &connection, &request) else {
        return serve(desk, &connection, request, reply);
    };
    let (quotas, now) = (desk.ground.quotas(), desk.ground.store().monotonic());
    let Err(over) = quotas.ask(&want, now) else { return serve(desk, &connection, request, reply) };
    desk.ground.metrics().throttled();
    let bytes = header_bytes(&request) + request.body.len();
    let place = desk.rooms.quota_waits.take(connection.id()).ok();
    let room = place.and_then(|place| Some((waiting::reserve(&reply, bytes).ok()?, place)));
    let Some(room) = room else {
        quotas.rejected(&over);
        return reject(desk, &request, reply, over);
    };
    // A copy: the body is a part of the whole block that was read from the connection, and would keep it in memory.
    let request = Command { body: Bytes::copy_from_slice(&request.body), ..request };
    if let Err(waiting) = quotas.hold(want, Waiting { request, reply, room }, now + patience, now) {
        stopped(*waiting);
    }
}

/// Messages, bytes and names of a request, and its maximum wait; `None` for a request that no quota limits.
fn want(desk: &Desk, connection: &Connection, request: &Command) -> Option<(Want, Duration)> {
    let user = user_of(desk, request);
    match request.code {
        code::SEND_MESSAGE
        | code::SEND_MESSAGE_V2
        | code::SEND_BATCH_MESSAGE
        | code::SEND_REPLY_MESSAGE
        | code::SEND_REPLY_MESSAGE_V2 => {
            let header = SendMessageRequestHeader::of(request).ok()?;
            let messages = if header.is_batch() { batch::items(&request.body).count().max(1) } else { 1 };
            let bytes = request.body.len() + header.properties.map_or(0, |properties| properties.len());
            let names = Names { topic: Some(header.topic), group: Some(header.producer_group), user };
            Some((wanted(Direction::Send, connection, names, (messages, bytes)), PATIENCE))
        }
        code::PULL_MESSAGE | code::LITE_PULL_MESSAGE => {
            let header = PullMessageRequestHeader::read(&request.ext).ok()?;
            let names = Names { topic: Some(header.topic), group: Some(header.consumer_group), user };
            let patience = if suspends(&header) { PULL_PATIENCE } else { PATIENCE };
            Some((wanted(Direction::Pull, connection, names, (0, 0)), patience))
        }
        code::QUERY_MESSAGE => {
            let header = QueryMessageRequestHeader::read(&request.ext).ok()?;
            let names = Names { topic: Some(header.topic), group: None, user };
            Some((wanted(Direction::Pull, connection, names, (0, 0)), PATIENCE))
        }
        code::VIEW_MESSAGE_BY_ID => {
            let names = Names { user, ..Names::default() };
            Some((wanted(Direction::Pull, connection, names, (0, 0)), PATIENCE))
        }
        _ => None,
    }
}

fn suspends(header: &PullMessageRequestHeader<'_>) -> bool {
    header.sys_flag & flag::SUSPEND != 0 && header.suspend_timeout_millis > 0
}

fn wanted(
    direction: Direction,
    connection: &Connection,
    Names { topic, group, user }: Names<'_>,
    (messages, bytes): (usize, usize),
) -> Want {
    Want {
        direction,
        topic: topic.filter(|topic| is_limited_topic(topic)).map(Box::from),
        group: group.filter(|group| !system::is_broker_group(group)).map(Box::from),
        address: connection.peer().ip(),
        user: user.map(Box::from),
        messages: messages as u64,
        bytes: bytes as u64,
    }
}

/// Charges the quotas of a read for the messages that it returns.
pub(super) fn charge(desk: &Desk, connection: &Connection, names: Names<'_>, messages: usize, bytes: usize) {
    if desk.ground.quotas().are_on() && messages > 0 {
        let want = wanted(Direction::Pull, connection, names, (messages, bytes));
        desk.ground.quotas().charge(&want, desk.ground.store().monotonic());
    }
}

/// Serves those that pass by now, and rejects those whose time is up.
pub(super) fn release(desk: &Arc<Desk>, serve: Serve) {
    loop {
        let released = desk.ground.quotas().release(desk.ground.store().monotonic());
        if released.is_empty() {
            return;
        }
        let _cork = cork();
        for released in released {
            match released {
                Released::Passed(waiting) => pass(desk, waiting, serve),
                Released::Late(Waiting { request, reply, .. }, over) => reject(desk, &request, reply, over),
            }
        }
    }
}

fn pass(desk: &Arc<Desk>, Waiting { request, reply, room }: Waiting, serve: Serve) {
    drop(room);
    let connection = reply.connection().clone();
    let is_read = !code::may_change(request.code);
    if is_read && !connection.is_open() {
        return reply.send_nothing();
    }
    if let Some(denied) = accounts::refusal_after_wait(desk, &request, &reply) {
        return reply.send(denied);
    }
    serve(desk, &connection, request, reply);
}

/// Rejects all requests that wait: the broker stops.
pub(crate) fn give_up(desk: &Arc<Desk>) {
    desk.ground.quotas().take_all().into_iter().for_each(stopped);
}

fn stopped(Waiting { reply, .. }: Waiting) {
    let why = "broker stopped while the request waited for its quota";
    reply.send(Response::status(response::SYSTEM_BUSY, why));
}

/// Answers that the quota is exceeded. A pull with a wait gets PULL_RETRY_IMMEDIATELY: all clients repeat it.
fn reject(desk: &Desk, request: &Command, reply: Reply, over: OverQuota) {
    if reply.is_oneway() {
        desk.ground.quotas().warn_of_dropped(&over, desk.ground.store().monotonic());
    }
    debug!(cause = %over, peer = %reply.connection().peer(), "request over quota");
    let again = match request.code {
        code::PULL_MESSAGE | code::LITE_PULL_MESSAGE => again(desk, request, &over),
        _ => None,
    };
    reply.send(again.unwrap_or_else(|| Refusal::OverQuota(Box::new(over)).response()));
}

/// PULL_RETRY_IMMEDIATELY at the same offset, for a pull that asked for a wait.
fn again(desk: &Desk, request: &Command, over: &OverQuota) -> Option<Response> {
    let header = PullMessageRequestHeader::read(&request.ext).ok().filter(suspends)?;
    let queue_id = u32::try_from(header.queue_id).ok()?;
    let bounds = desk.ground.store().queue_bounds(header.topic, queue_id);
    let broker_id = desk.ground.role().get().broker_id();
    let mut command = respond(response::PULL_RETRY_IMMEDIATELY).with_header(&PullMessageResponseHeader {
        suggest_which_broker_id: i64::try_from(broker_id).unwrap_or(i64::MAX),
        next_begin_offset: header.queue_offset,
        min_offset: bounds.min.to_wire(),
        max_offset: bounds.max.to_wire(),
        offset_delta: None,
        topic_sys_flag: None,
        group_sys_flag: None,
        forbidden_type: None,
        region: None,
        trace_on: None,
    });
    command.remark = Some(over.to_string());
    let refused_for = Refusal::OverQuota(Box::new(over.clone())).response().refused_for;
    Some(Response { refused_for, ..Response::from(command) })
}

/// GET_QUOTAS.
pub(super) fn list(Call { desk, .. }: Call<'_>) -> Answer {
    Ok(success_json(&desk.ground.quotas().list(desk.ground.store().monotonic())))
}

/// SET_QUOTA.
pub(super) fn set(call: Call<'_>, reply: Reply) {
    let wanted = body::<Quota>(call.request).and_then(Rule::new);
    let wanted = wanted.and_then(|rule| {
        call.desk.ground.check_master(OfMaster::Change)?;
        let quota = rule.quota().clone();
        check_user(call.desk, &quota)?;
        Ok((quota, call.desk.ground.quotas().set(rule)?))
    });
    match wanted {
        Ok((quota, written)) => {
            info!(peer = %call.connection.peer(), scope = quota.scope, name = quota.name, "quota set");
            apply_once_written(call.desk, written, reply);
        }
        Err(refusal) => reply.send(refusal.response()),
    }
}

/// Refuses a quota of a user that does not exist: it would limit nobody. Topics and groups are made by their first use, users are not.
///
/// # Errors
/// Users are on, and none has the name.
fn check_user(desk: &Desk, quota: &Quota) -> Result<(), Refusal> {
    let config = desk.ground.config();
    let Some(guard) = config.auth.guard.as_ref().filter(|_| quota.scope == "user") else { return Ok(()) };
    if quota.name.ends_with('*') || guard.accounts().user(&quota.name).is_some() {
        return Ok(());
    }
    Err(Refusal::NoUser { name: quota.name.clone() })
}

/// REMOVE_QUOTA.
pub(super) fn remove(call: Call<'_>, reply: Reply) {
    let header = RemoveQuotaRequestHeader::read(&call.request.ext).map_err(Refusal::from);
    let removed = header.and_then(|header| {
        call.desk.ground.check_master(OfMaster::Change)?;
        let written = call.desk.ground.quotas().remove(header.scope, header.name)?;
        info!(peer = %call.connection.peer(), scope = header.scope, name = header.name, "quota removed");
        Ok(written)
    });
    match removed {
        Ok(written) => apply_once_written(call.desk, written, reply),
        Err(refusal) => reply.send(refusal.response()),
    }
}

fn apply_once_written(desk: &Arc<Desk>, written: Option<Written>, reply: Reply) {
    let owner = desk.clone();
    answer_later(desk.ground.tasks(), reply, async move {
        on_disk(written).await?;
        owner.ground.quotas().apply(owner.ground.store().monotonic());
        Ok(Response::success())
    });
}
