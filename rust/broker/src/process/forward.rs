//! Requests that a live member of a group answers, through its broker.
//!
//! # Source
//! docs/reference/protocol.md 2.4 and 2.6.3.

use std::sync::Arc;
use std::time::Duration;

use rocketpy_protocol::Command;
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::header::{
    ConsumeMessageDirectlyResultRequestHeader, GetConsumerRunningInfoRequestHeader, Header,
};
use rocketpy_protocol::message_id::OffsetMessageId;
use rocketpy_remoting::{CallError, Reply, Response};
use tokio::sync::Semaphore;

use crate::call::{Call, answer_later, aside, without_body};
use crate::refusal::Refusal;
use crate::shared::Shared;
use crate::table::client::Member;

/// Longest wait for the member's answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Most questions whose members have not answered yet: a tool asks for one at a time.
const MAX_FORWARDED: usize = 64;
/// The first version of Apache's client that answers.
const FIRST_VERSION: i32 = 62;

/// Room for the questions that wait for their members.
#[derive(Debug)]
pub(crate) struct Forwarded(Arc<Semaphore>);

impl Default for Forwarded {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_FORWARDED)))
    }
}

/// GET_CONSUMER_RUNNING_INFO: what a member says of itself.
pub(super) fn running_info(Call { shared, request, .. }: Call<'_>, reply: Reply) {
    let (owner, request) = (shared.clone(), without_body(request.clone()));
    answer_later(shared, reply, async move {
        let header = GetConsumerRunningInfoRequestHeader::read(&request.ext)?;
        let member = member(&owner, header.consumer_group, header.client_id)?;
        let question = Command::request(request::GET_CONSUMER_RUNNING_INFO, &header);
        ask(&owner, &member, question).await
    });
}

/// CONSUME_MESSAGE_DIRECTLY: a member consumes one message now, whatever its offsets say.
pub(super) fn consume_directly(Call { shared, request, .. }: Call<'_>, reply: Reply) {
    let (owner, request) = (shared.clone(), without_body(request.clone()));
    answer_later(shared, reply, async move {
        let header = ConsumeMessageDirectlyResultRequestHeader::read(&request.ext)?;
        let member = member(&owner, header.consumer_group, header.client_id.unwrap_or_default())?;
        let id = header.msg_id.unwrap_or_default();
        let place: OffsetMessageId = id.parse().map_err(|_| Refusal::Value {
            field: "msgId",
            wanted: "an offset message id of this broker",
            value: id.to_owned(),
        })?;
        let (store, at) = (owner.store.clone(), place.physical_offset);
        let record = aside(move || store.record_at(at)).await?;
        let record = record.ok_or(Refusal::NoMessageAt { offset: at.to_wire() })?;
        let broker_name = Some(owner.config.broker_name.as_str());
        let header = ConsumeMessageDirectlyResultRequestHeader { broker_name, ..header };
        let question = Command::request(request::CONSUME_MESSAGE_DIRECTLY, &header).with_body(record);
        ask(&owner, &member, question).await
    });
}

fn member(shared: &Shared, group: &str, client_id: &str) -> Result<Member, Refusal> {
    let members = shared.clients.consumer_group(group).map(|view| view.members).unwrap_or_default();
    let member = members.into_iter().map(|consumer| consumer.member).find(|it| *it.client_id == *client_id);
    match member {
        Some(member) if member.version >= FIRST_VERSION => Ok(member),
        Some(member) => Err(Refusal::OldMember { client_id: client_id.to_owned(), version: member.version }),
        None => Err(Refusal::NoMember { group: group.to_owned(), client_id: client_id.to_owned() }),
    }
}

/// Puts the question to the member, and gives its answer as it is.
async fn ask(shared: &Shared, member: &Member, question: Command) -> Result<Response, Refusal> {
    let Ok(_place) = shared.forwarded.0.try_acquire() else {
        return Err(Refusal::TooManyForwarded { limit: MAX_FORWARDED });
    };
    let answer = match member.connection.call(question, TIMEOUT).await {
        Ok(answer) => answer,
        Err(CallError::Timeout { .. }) => {
            return Err(Refusal::MemberSilent { client_id: member.client_id.to_string() });
        }
        Err(error) => {
            let (client_id, reason) = (member.client_id.to_string(), error.to_string());
            return Err(Refusal::MemberGone { client_id, reason });
        }
    };
    if answer.code != response::SUCCESS {
        return Ok(Response::status(answer.code, answer.remark.unwrap_or_default()));
    }
    Ok(Response::success().with_body(answer.body))
}
