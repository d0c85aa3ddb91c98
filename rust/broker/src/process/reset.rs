//! Offsets of groups as a person sets them, while their members run.
//!
//! # Source
//! docs/reference/protocol.md 2.6.3 and 2.6.5.

use std::collections::BTreeMap;
use std::sync::Arc;

use rocketpy_model::{MessageQueue, QueueOffset, system};
use rocketpy_protocol::body::{GetConsumerStatusBody, ResetOffsetBody, ResetOffsetListBody};
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::header::{
    CloneGroupOffsetRequestHeader, GetConsumerStatusRequestHeader, Header, ResetOffsetRequestHeader,
};
use rocketpy_protocol::{Command, Language, json};
use rocketpy_remoting::{Reply, Response};
use rocketpy_store::Boundary;
use tracing::{info, warn};

use super::forward::{answer_of, member, members};
use super::offset::{readable, signed};
use super::{forward, held};
use crate::call::{Answer, Call, answer_from_header, look_up_aside, on_disk, success_json};
use crate::refusal::{Refusal, check_group_of_clients, check_offset_of_clients};
use crate::role::OfMaster;
use crate::shared::Shared;
use crate::table::offset::{Place, Readable};

/// The first version of Apache's client that goes where it is told to.
const FIRST_VERSION: i32 = 28;

/// INVOKE_BROKER_TO_RESET_OFFSET: sets a group to a time, to the end, or to an offset. Members are sent there by their next pulls, or
/// told to go there.
pub(super) fn reset(call: Call<'_>, reply: Reply) {
    answer_from_header(call, reply, |owner, request| async move {
        owner.check_master(OfMaster::Change)?;
        let header = ResetOffsetRequestHeader::read(&request.ext)?;
        check_offset_of_clients(header.group, header.topic)?;
        let (topic, group) = (header.topic.to_owned(), header.group.to_owned());
        let (looker, asked) = (owner.clone(), request.clone());
        let targets = look_up_aside(&owner, move || {
            let header = ResetOffsetRequestHeader::read(&asked.ext)?;
            targets(&looker, &header)
        });
        let targets = targets.await??;
        if !owner.config().server_side_reset {
            return tell_members(&owner, &header, targets);
        }
        let mut writes = Vec::new();
        for (queue_id, offset) in &targets {
            let place = Place { group: &group, topic: &topic, queue_id: *queue_id };
            let readable = readable(&owner, &topic, *queue_id);
            writes.push(owner.offsets.reset_running(place, *offset, readable)?);
        }
        for written in writes {
            on_disk(written).await?;
        }
        info!(group, topic, queues = targets.len(), "consumer group set to other offsets");
        held::resume_all(&owner, |held| held.of_topic(&topic)).await; // members at the end wait for messages
        Ok(success_json(&table(&owner, &topic, targets)))
    });
}

fn table(shared: &Shared, topic: &str, targets: Vec<(u32, i64)>) -> ResetOffsetBody {
    let (topic, broker_name): (Arc<str>, Arc<str>) =
        (topic.into(), shared.config().broker_name.as_str().into());
    let queue = |queue_id| MessageQueue { topic: topic.clone(), broker_name: broker_name.clone(), queue_id };
    let offset_table = targets.into_iter().map(|(queue_id, offset)| (queue(queue_id), offset)).collect();
    ResetOffsetBody { offset_table }
}

/// Tells the members of a group to go to other offsets and to commit them, each in the form that its language reads. Without force, none
/// goes forward.
fn tell_members(
    shared: &Shared,
    header: &ResetOffsetRequestHeader<'_>,
    mut targets: Vec<(u32, i64)>,
) -> Answer {
    let (topic, group) = (header.topic, header.group);
    for (queue_id, offset) in &mut targets {
        let stored = shared.offsets.get(group, topic, *queue_id);
        let stored = stored.ok_or_else(|| {
            let (group, topic, queue_id) = (group.to_owned(), topic.to_owned(), *queue_id);
            Refusal::NoOffsetToLeave { group, topic, queue_id }
        })?;
        if !header.is_force.unwrap_or(false) {
            *offset = stored.min(*offset);
        }
    }
    let mut members = members(shared, group);
    members.retain(|member| member.version >= FIRST_VERSION);
    if members.is_empty() {
        return Err(Refusal::ConsumerOffline { group: group.to_owned() });
    }
    let table = table(shared, topic, targets);
    let body_for = |language| match language {
        Language::Cpp => json::to_vec(&ResetOffsetListBody::from(table.clone())),
        _ => json::to_vec(&table),
    };
    for member in &members {
        let push = Command::request(request::RESET_CONSUMER_CLIENT_OFFSET, header);
        let push = push.with_body(body_for(member.language));
        if let Err(error) = member.connection.send_oneway(push) {
            warn!(group, client_id = %member.client_id, %error, "a member was not told of the reset of its group");
        }
    }
    info!(group, topic, members = members.len(), "members told to go to other offsets");
    Ok(success_json(&table))
}

/// Where each queue is set to. Blocks.
fn targets(shared: &Shared, header: &ResetOffsetRequestHeader<'_>) -> Result<Vec<(u32, i64)>, Refusal> {
    let Some(topic) = shared.topics.get(header.topic) else {
        return Err(Refusal::NoTopic { topic: header.topic.to_owned() });
    };
    if shared.groups.get(header.group).is_none() {
        return Err(Refusal::NoGroup { group: header.group.to_owned() });
    }
    let queues = match header.queue_id.filter(|id| *id >= 0) {
        None => 0..topic.queues(),
        Some(id) => {
            let queue_id = id.unsigned_abs();
            if queue_id >= topic.queues() {
                let queues = topic.queues();
                return Err(Refusal::QueueId { topic: topic.name.clone(), queue_id: id, queues });
            }
            queue_id..queue_id + 1
        }
    };
    let wanted = header.offset.filter(|offset| *offset >= 0 && header.queue_id.is_some_and(|id| id >= 0));
    queues.map(|queue_id| Ok((queue_id, target(shared, header, queue_id, wanted)?))).collect()
}

fn target(
    shared: &Shared,
    header: &ResetOffsetRequestHeader<'_>,
    queue_id: u32,
    wanted: Option<i64>,
) -> Result<i64, Refusal> {
    let Readable { min, max } = readable(shared, header.topic, queue_id);
    match wanted {
        Some(offset) if (min..=max).contains(&offset) => Ok(offset),
        Some(offset) => Err(Refusal::OffsetRange { offset, min, max, queue_id }),
        None if header.timestamp < 0 => Ok(max),
        None => {
            let QueueOffset(offset) =
                shared.store.offset_by_time(header.topic, queue_id, header.timestamp, Boundary::Lower)?;
            Ok(signed(offset))
        }
    }
}

/// INVOKE_BROKER_TO_GET_CONSUMER_STATUS: where the live members stand, as they say.
pub(super) fn status(call: Call<'_>, reply: Reply) {
    answer_from_header(call, reply, |owner, request| async move {
        let header = GetConsumerStatusRequestHeader::read(&request.ext)?;
        let asked = match header.client_addr.filter(|id| !id.is_empty()) {
            Some(client_id) => vec![member(&owner, header.group, client_id)?],
            None => members(&owner, header.group),
        };
        if asked.is_empty() {
            return Err(Refusal::NobodyInGroup { group: header.group.to_owned() });
        }
        let mut body = GetConsumerStatusBody::default();
        let header = GetConsumerStatusRequestHeader { client_addr: None, ..header };
        for member in asked {
            let question = Command::request(request::GET_CONSUMER_STATUS_FROM_CLIENT, &header);
            let answer = answer_of(&owner, &member, question).await?;
            if answer.code == response::SUCCESS {
                let status: GetConsumerStatusBody = json::from_slice(&answer.body)
                    .map_err(|error| forward::gone(&member, error.to_string()))?;
                body.consumer_table.insert(member.client_id.to_string(), status.message_queue_table);
            }
        }
        Ok(success_json(&body))
    });
}

/// CLONE_GROUP_OFFSET: a group begins where another one is.
pub(super) fn copy(call: Call<'_>, reply: Reply) {
    answer_from_header(call, reply, |owner, request| async move { copy_offsets(&owner, &request).await });
}

async fn copy_offsets(shared: &Shared, request: &Command) -> Answer {
    shared.check_master(OfMaster::Change)?;
    let header = CloneGroupOffsetRequestHeader::read(&request.ext)?;
    for group in [header.src_group, header.dest_group] {
        check_group_of_clients(group)?;
        if shared.groups.get(group).is_none() {
            return Err(Refusal::NoGroup { group: group.to_owned() });
        }
    }
    let topics = match header.topic.filter(|topic| !topic.is_empty()) {
        Some(topic) => {
            check_offset_of_clients(header.dest_group, topic)?;
            vec![topic.to_owned()]
        }
        None => shared.offsets.topics_of(header.src_group),
    };
    let mut copied: BTreeMap<(String, u32), i64> = BTreeMap::new();
    for topic in topics.into_iter().filter(|topic| !system::is_broker_topic(topic)) {
        let Some(config) = shared.topics.get(&topic) else { continue };
        for queue_id in 0..config.queues() {
            if let Some(offset) = shared.offsets.get(header.src_group, &topic, queue_id) {
                copied.insert((topic.clone(), queue_id), offset);
            }
        }
    }
    let mut writes = Vec::new();
    for ((topic, queue_id), offset) in &copied {
        let place = Place { group: header.dest_group, topic, queue_id: *queue_id };
        writes.push(shared.offsets.reset_running(place, *offset, readable(shared, topic, *queue_id))?);
    }
    for written in writes {
        on_disk(written).await?;
    }
    info!(
        from = header.src_group,
        to = header.dest_group,
        queues = copied.len(),
        "offsets of a group copied"
    );
    Ok(Response::success())
}
