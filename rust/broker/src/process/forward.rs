//! Requests that a live member of a group answers, through its broker.
//!
//! # Source
//! docs/reference/protocol.md 2.4 and 2.6.3.

use std::time::Duration;

use rocketpy_auth::Action;
use rocketpy_protocol::Command;
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::header::{
    ConsumeMessageDirectlyResultRequestHeader, GetConsumerRunningInfoRequestHeader, Header,
};
use rocketpy_protocol::message_id::OffsetMessageId;
use rocketpy_remoting::{CallError, Reply, Response};

use super::accounts::RecordCheck;
use super::rooms::{MAX_FORWARDED, Rooms};
use crate::call::{Call, answer_from_header};
use crate::disk_read::look_up_aside;
use crate::refusal::Refusal;
use crate::shares::NoPlace;
use crate::table::client::{ClientTable, Member};

/// Maximum wait for the member's answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The first version of Apache's client that answers.
const FIRST_VERSION: i32 = 62;

/// GET_CONSUMER_RUNNING_INFO: what a member says of itself.
pub(super) fn running_info(call: Call<'_>, reply: Reply) {
    answer_from_header(call, reply, |owner, request| async move {
        let header = GetConsumerRunningInfoRequestHeader::read(&request.ext)?;
        let member = member(owner.members.clients(), header.consumer_group, header.client_id)?;
        let question = Command::request(request::GET_CONSUMER_RUNNING_INFO, &header);
        ask(&owner.rooms, &member, question).await
    });
}

/// CONSUME_MESSAGE_DIRECTLY: a member consumes one message now, whatever its offsets say.
pub(super) fn consume_directly(call: Call<'_>, reply: Reply) {
    let (connection_id, check) = (call.connection.id(), RecordCheck::of(call));
    answer_from_header(call, reply, move |owner, request| async move {
        let header = ConsumeMessageDirectlyResultRequestHeader::read(&request.ext)?;
        let member =
            member(owner.members.clients(), header.consumer_group, header.client_id.unwrap_or_default())?;
        let id = header.msg_id.unwrap_or_default();
        let place: OffsetMessageId = id.parse().map_err(|_| Refusal::Value {
            field: "msgId",
            wanted: "an offset message id of this broker",
            value: id.to_owned(),
        })?;
        let (store, at) = (owner.ground.store().clone(), place.physical_offset);
        let record =
            look_up_aside(&owner.reads.look_ups, connection_id, move || store.record_at(at)).await??;
        let record = record.ok_or(Refusal::NoMessageAt { offset: at.to_wire() })?;
        if let Some(check) = check {
            if let Some(denied) = check.refusal(at.to_wire(), &record, &[Action::Sub]) {
                return Ok(denied);
            }
            if !check.permits(&member, header.consumer_group, &record) {
                return Err(no_member(header.consumer_group, &member.client_id));
            }
        }
        let config = owner.ground.config();
        let broker_name = Some(config.broker_name.as_str());
        let header = ConsumeMessageDirectlyResultRequestHeader { broker_name, ..header };
        let question = Command::request(request::CONSUME_MESSAGE_DIRECTLY, &header).with_body(record);
        ask(&owner.rooms, &member, question).await
    });
}

/// The live members of a group.
pub(super) fn members(clients: &ClientTable, group: &str) -> Vec<Member> {
    let members = clients.consumer_group(group).map(|view| view.members).unwrap_or_default();
    members.into_iter().map(|consumer| consumer.member).collect()
}

/// A live member that can be asked.
pub(super) fn member(clients: &ClientTable, group: &str, client_id: &str) -> Result<Member, Refusal> {
    match members(clients, group).into_iter().find(|it| *it.client_id == *client_id) {
        Some(member) if member.version >= FIRST_VERSION => Ok(member),
        Some(member) => Err(Refusal::OldMember { client_id: client_id.to_owned(), version: member.version }),
        None => Err(no_member(group, client_id)),
    }
}

fn no_member(group: &str, client_id: &str) -> Refusal {
    Refusal::NoMember { group: group.to_owned(), client_id: client_id.to_owned() }
}

/// Puts the question to the member, and passes its answer on.
async fn ask(rooms: &Rooms, member: &Member, question: Command) -> Result<Response, Refusal> {
    let answer = answer_of(rooms, member, question).await?;
    if answer.code != response::SUCCESS {
        return Ok(Response::status(answer.code, answer.remark.unwrap_or_default()));
    }
    Ok(Response::success().with_body(answer.body))
}

/// The member's answer to a question.
pub(super) async fn answer_of(rooms: &Rooms, member: &Member, question: Command) -> Result<Command, Refusal> {
    let mut place = rooms.forwarded.take(member.connection.id()).map_err(|full| match full {
        NoPlace::All => Refusal::TooManyForwarded { limit: MAX_FORWARDED },
        NoPlace::OfClient { taken } => {
            Refusal::ManyForwardedTo { client_id: member.client_id.to_string(), taken }
        }
    })?;
    let answer = member.connection.call(question, TIMEOUT).await;
    place.note(&answer);
    answer.map_err(|error| match error {
        CallError::Timeout { .. } => Refusal::MemberSilent { client_id: member.client_id.to_string() },
        error => gone(member, error.to_string()),
    })
}

pub(super) fn gone(member: &Member, reason: String) -> Refusal {
    Refusal::MemberGone { client_id: member.client_id.to_string(), reason }
}
