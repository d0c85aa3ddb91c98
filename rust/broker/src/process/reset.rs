//! Offsets of groups as a person sets them, while their members run.
//!
//! # Source
//! docs/reference/protocol.md 2.6.3 and 2.6.5.

use std::sync::Arc;

use rocketpy_model::MessageQueue;
use rocketpy_protocol::body::{GetConsumerStatusBody, ResetOffsetBody, ResetOffsetListBody};
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::header::{
    CloneGroupOffsetRequestHeader, GetConsumerStatusRequestHeader, Header, ResetOffsetRequestHeader,
};
use rocketpy_protocol::{Command, Language, json};
use rocketpy_remoting::{Reply, Response};
use tracing::{info, warn};

use super::forward::{answer_of, member, members};
use super::{forward, held};
use crate::call::{Answer, Call, answer_from_header, success_json};
use crate::disk_read::look_up_aside;
use crate::operation::reset::{self, Reset};
use crate::refusal::Refusal;
use crate::role::OfMaster;
use crate::table::client::ClientTable;

/// First version of Apache's client that follows a reset.
const FIRST_VERSION: i32 = 28;

/// INVOKE_BROKER_TO_RESET_OFFSET: sets a group to a time, to the end, or to an offset. Members are sent there by their next pulls, or
/// told to go there.
pub(super) fn reset(call: Call<'_>, reply: Reply) {
    let connection_id = call.connection.id();
    answer_from_header(call, reply, |owner, request| async move {
        owner.ground.check_master(OfMaster::Change)?;
        let header = ResetOffsetRequestHeader::read(&request.ext)?;
        let queue_id = header.queue_id.filter(|id| *id >= 0);
        let asked = Reset {
            group: header.group.to_owned(),
            topic: header.topic.to_owned(),
            queue_id,
            offset: header.offset.filter(|offset| *offset >= 0 && queue_id.is_some()),
            at_ms: header.timestamp,
            is_forced: header.is_force.unwrap_or(false),
        };
        let (ground, looked_up) = (owner.ground.clone(), asked.clone());
        let targets =
            look_up_aside(&owner.reads.look_ups, connection_id, move || reset::targets(&ground, &looked_up));
        let targets = targets.await??;
        let config = Arc::clone(&owner.ground.config());
        if !config.server_side_reset {
            let targets = reset::member_targets(&owner.members, &asked, targets)?;
            let table = table(&config.broker_name, &asked.topic, targets);
            return tell_members(owner.members.clients(), &header, &table);
        }
        reset::set(&owner.ground, &owner.members, &asked, &targets).await?;
        held::resume_all(&owner, |held| held.of_topic(&asked.topic)).await; // members at the end wait for messages
        Ok(success_json(&table(&config.broker_name, &asked.topic, targets)))
    });
}

fn table(broker_name: &str, topic: &str, targets: Vec<(u32, i64)>) -> ResetOffsetBody {
    let (topic, broker_name): (Arc<str>, Arc<str>) = (topic.into(), broker_name.into());
    let queue = |queue_id| MessageQueue { topic: topic.clone(), broker_name: broker_name.clone(), queue_id };
    let offset_table = targets.into_iter().map(|(queue_id, offset)| (queue(queue_id), offset)).collect();
    ResetOffsetBody { offset_table }
}

/// Tells the members of a group to go to other offsets and to commit them, each in the form that its language reads.
fn tell_members(
    clients: &ClientTable,
    header: &ResetOffsetRequestHeader<'_>,
    table: &ResetOffsetBody,
) -> Answer {
    let (topic, group) = (header.topic, header.group);
    let mut members = members(clients, group);
    members.retain(|member| member.version >= FIRST_VERSION);
    if members.is_empty() {
        return Err(Refusal::ConsumerOffline { group: group.to_owned() });
    }
    let body_for = |language| match language {
        Language::Cpp => json::to_vec(&ResetOffsetListBody::from(table.clone())),
        _ => json::to_vec(table),
    };
    for member in &members {
        let push = Command::request(request::RESET_CONSUMER_CLIENT_OFFSET, header);
        let push = push.with_body(body_for(member.language));
        if let Err(error) = member.connection.send_oneway(push) {
            warn!(group, client_id = %member.client_id, %error, "member not notified of the reset of its group");
        }
    }
    info!(group, topic, members = members.len(), "members notified of new offsets");
    Ok(success_json(table))
}

/// INVOKE_BROKER_TO_GET_CONSUMER_STATUS: offsets that the live members report.
pub(super) fn status(call: Call<'_>, reply: Reply) {
    answer_from_header(call, reply, |owner, request| async move {
        let header = GetConsumerStatusRequestHeader::read(&request.ext)?;
        let asked = match header.client_addr.filter(|id| !id.is_empty()) {
            Some(client_id) => vec![member(owner.members.clients(), header.group, client_id)?],
            None => members(owner.members.clients(), header.group),
        };
        if asked.is_empty() {
            return Err(Refusal::NobodyInGroup { group: header.group.to_owned() });
        }
        let mut body = GetConsumerStatusBody::default();
        let header = GetConsumerStatusRequestHeader { client_addr: None, ..header };
        for member in asked {
            let question = Command::request(request::GET_CONSUMER_STATUS_FROM_CLIENT, &header);
            let answer = answer_of(&owner.rooms, &member, question).await?;
            if answer.code == response::SUCCESS {
                let status: GetConsumerStatusBody = json::from_answer(&answer.body)
                    .map_err(|error| forward::gone(&member, error.to_string()))?;
                body.consumer_table.insert(member.client_id.to_string(), status.message_queue_table);
            }
        }
        Ok(success_json(&body))
    });
}

/// CLONE_GROUP_OFFSET: a group begins where another one is.
pub(super) fn copy(call: Call<'_>, reply: Reply) {
    answer_from_header(call, reply, |owner, request| async move {
        let header = CloneGroupOffsetRequestHeader::read(&request.ext)?;
        let topic = header.topic.filter(|topic| !topic.is_empty());
        let groups = [header.src_group, header.dest_group];
        reset::copy(&owner.ground, &owner.members, groups, topic).await?;
        Ok(Response::success())
    });
}
