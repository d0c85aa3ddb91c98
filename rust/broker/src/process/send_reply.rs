//! SEND_REPLY_MESSAGE: a reply goes to the client that waits for it, and into the reply topic.
//!
//! A reply is best effort: the answer says whether its client took it, and does not wait for the disk.
//!
//! # Source
//! docs/reference/protocol.md 2.3.2 and 2.4.4, docs/reference/client.md 5.12.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rocketpy_env::now_ms;
use rocketpy_model::{property, system};
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::header::{
    ReplyMessageRequestHeader, SendMessageRequestHeader, SendMessageResponseHeader,
};
use rocketpy_protocol::{Command, Header, properties_text};
use rocketpy_remoting::{Connection, Reply, Response};
use tracing::{debug, warn};

use super::rooms::MAX_PUSHES;
use super::send;
use crate::call::{Call, response as respond};
use crate::desk::Desk;
use crate::put::{Intake, NewMessage, Origin, check_writable, put_and_make};
use crate::refusal::Refusal;
use crate::shares::{NoPlace, Place};
use crate::waiting;

/// Maximum wait for the client's answer.
const PUSH_TIMEOUT: Duration = Duration::from_secs(10);
/// Ends a property in the text of properties.
const END: char = '\u{2}';

/// Pushes the reply to its client, stores it, and answers.
pub(super) fn send_reply(Call { desk, request, .. }: Call<'_>, reply: Reply) {
    let target = match target(desk, request) {
        Ok(target) => target,
        Err(refusal @ Refusal::TooManyReplies { .. }) => return reply.send(refusal.response()),
        Err(refusal) => Target::Nobody(refusal),
    };
    let memory = match waiting::reserve(&reply, waiting::header_bytes(request) + request.body.len()) {
        Ok(memory) => memory,
        Err(no_memory) => return reply.send(Refusal::from(no_memory).response()),
    };
    // A copy: the body is a part of the whole block that was read from the connection, and would keep it in memory.
    let body = Bytes::copy_from_slice(&request.body);
    let (intake, request) = (desk.intake.clone(), Command { body, ..request.clone() });
    desk.ground.tasks().spawn(async move {
        let answer = push_and_store(&intake, &request, target, reply.connection()).await;
        drop(memory);
        reply.send(answer.unwrap_or_else(|refusal| refusal.response()));
    });
}

/// Client that a reply goes to.
enum Target {
    Client {
        client_id: String,
        connection: Arc<Connection>,
        place: Place,
    },
    /// The reply is stored all the same.
    Nobody(Refusal),
}

/// The client that the property of a reply names, and a place for the push.
///
/// # Errors
/// The reply cannot be pushed.
fn target(desk: &Desk, request: &Command) -> Result<Target, Refusal> {
    let header = SendMessageRequestHeader::of(request)?;
    let properties = header.properties.unwrap_or_default();
    let Some(client_id) = properties_text::get(properties.as_bytes(), property::REPLY_TO_CLIENT) else {
        return Err(Refusal::NoRequester);
    };
    let not_pushed = |reason: String| Refusal::ReplyNotPushed { client_id: client_id.to_owned(), reason };
    let Some((connection, user)) = desk.members.clients().producer_connection(client_id) else {
        return Err(not_pushed("no live producer has this client id".to_owned()));
    };
    if desk.ground.config().auth.guard.as_ref().is_some_and(|guard| !guard.still_admits(user.as_deref())) {
        return Err(not_pushed("user of the producer was deleted or disabled".to_owned()));
    }
    let place = desk.rooms.reply_pushes.take(connection.id()).map_err(|full| match full {
        NoPlace::All => Refusal::TooManyReplies { limit: MAX_PUSHES },
        NoPlace::OfClient { taken } => not_pushed(format!("{taken} replies already wait for its answers")),
    })?;
    Ok(Target::Client { client_id: client_id.to_owned(), connection, place })
}

async fn push_and_store(
    intake: &Intake,
    request: &Command,
    target: Target,
    sender: &Connection,
) -> Result<Response, Refusal> {
    let header = SendMessageRequestHeader::of(request)?;
    check(intake, header.topic)?;
    let pushed = push(intake, &header, target, sender, &request.body).await;
    if let Err(refusal) = &pushed {
        debug!(%refusal, peer = %sender.peer(), "reply not pushed");
    }
    let mut answer = respond(response::SUCCESS);
    store(intake, &header, sender, request, &mut answer).await;
    let Err(refusal) = pushed else { return Ok(answer.into()) };
    let mut refused = refusal.response();
    refused.command.ext = answer.ext;
    Ok(refused)
}

/// The topic of replies exists on every broker of its cluster: none is made for a reply.
fn check(intake: &Intake, topic: &str) -> Result<(), Refusal> {
    check_writable(intake)?;
    let config = intake.config();
    // The right to send to another topic must not reach every client.
    let is_of_replies = topic.strip_suffix(system::REPLY_TOPIC_SUFFIX) == Some(&config.cluster_name);
    if config.auth.guard.is_some() && !is_of_replies {
        return Err(Refusal::NotReplyTopic { topic: topic.to_owned(), cluster: config.cluster_name.clone() });
    }
    if system::is_send_denied(topic) {
        return Err(Refusal::SendDenied { topic: topic.to_owned() });
    }
    match intake.ground().topics().get(topic) {
        Some(_) => Ok(()),
        None => Err(Refusal::NoTopic { topic: topic.to_owned() }),
    }
}

/// Hands the reply to its client, and waits until it has taken it.
async fn push(
    intake: &Intake,
    header: &SendMessageRequestHeader<'_>,
    target: Target,
    sender: &Connection,
    body: &Bytes,
) -> Result<(), Refusal> {
    let (client_id, connection, mut place) = match target {
        Target::Client { client_id, connection, place } => (client_id, connection, place),
        Target::Nobody(refusal) => return Err(refusal),
    };
    let not_pushed = |reason: String| Refusal::ReplyNotPushed { client_id: client_id.clone(), reason };
    let pushed = pushed_message(intake.ground().store_host(), header, sender, body);
    let answer = connection.call(pushed, PUSH_TIMEOUT).await;
    place.note(&answer);
    match answer {
        Ok(answer) if answer.code == response::SUCCESS => Ok(()),
        Ok(answer) => Err(not_pushed(format!("client answered with code {}", answer.code))),
        Err(error) => Err(not_pushed(error.to_string())),
    }
}

/// PUSH_REPLY_MESSAGE_TO_CLIENT.
fn pushed_message(
    store_host: SocketAddr,
    header: &SendMessageRequestHeader<'_>,
    sender: &Connection,
    body: &Bytes,
) -> Command {
    let (now_ms, mut properties) = (now_ms(), String::from(header.properties.unwrap_or_default()));
    if !properties.is_empty() && !properties.ends_with(END) {
        properties.push(END);
    }
    let mut time = Vec::new();
    properties_text::push(&mut time, property::PUSH_REPLY_TIME, &now_ms.to_string());
    properties.push_str(&String::from_utf8_lossy(&time));
    let header = ReplyMessageRequestHeader {
        producer_group: header.producer_group,
        topic: header.topic,
        default_topic: header.default_topic,
        default_topic_queue_nums: header.default_topic_queue_nums,
        queue_id: header.queue_id,
        sys_flag: header.sys_flag,
        born_timestamp: header.born_timestamp,
        flag: header.flag,
        properties: Some(&properties),
        reconsume_times: header.reconsume_times,
        unit_mode: header.unit_mode,
        born_host: &sender.peer().to_string(),
        store_host: &store_host.to_string(),
        store_timestamp: now_ms,
    };
    Command::request(request::PUSH_REPLY_MESSAGE_TO_CLIENT, &header).with_body(body.clone())
}

/// Stores the reply, if the broker keeps replies, and writes its place into the answer; else the place of no message.
async fn store(
    intake: &Intake,
    header: &SendMessageRequestHeader<'_>,
    sender: &Connection,
    request: &Command,
    answer: &mut Command,
) {
    let ground = intake.ground();
    if ground.config().store_replies {
        let message = NewMessage { is_batch: false, ..send::message(header, sender, request) };
        match put_and_make(intake, Origin::Client, &message).await {
            Ok(stored) => {
                if let Some(end) = stored.ack.flushed {
                    ground.store().request_flush(end);
                }
                *answer = send::answer(ground, header.topic, &stored).command;
                return;
            }
            Err(refusal) => warn!(%refusal, topic = header.topic, "reply not stored"),
        }
    }
    let config = ground.config();
    let header = SendMessageResponseHeader {
        msg_id: "0",
        queue_id: header.queue_id.max(0),
        queue_offset: 0,
        transaction_id: None,
        batch_uniq_id: None,
        recall_handle: None,
        region: Some(&config.region_id),
        trace_on: Some(if config.trace_on { "true" } else { "false" }),
    };
    header.write(&mut answer.ext);
}
