//! One function for each request code, and the table that leads to them.

mod client;
mod group;
mod message;
mod offset;
pub(crate) mod pull;
mod runtime_info;
mod send;
mod state;
mod topic;

use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) use client::expire;
pub(crate) use offset::signed;
use rocketpy_protocol::code::{request as code, response};
use rocketpy_protocol::{Command, Header, json};
use rocketpy_remoting::{Connection, Handler, Reply, Response};
use serde::Serialize;
use tracing::debug;

pub(crate) use crate::blocking::blocking;
use crate::refusal::Refusal;
use crate::shared::Shared;

/// What a request that is answered at once comes to.
type Answer = Result<Response, Refusal>;

/// Leads requests to their functions.
#[derive(Debug)]
pub(crate) struct Processor(pub(crate) Arc<Shared>);

impl Handler for Processor {
    fn handle(&self, connection: &Arc<Connection>, request: Command, reply: Reply) {
        let shared = &self.0;
        match request.code {
            code::SEND_MESSAGE | code::SEND_MESSAGE_V2 | code::SEND_BATCH_MESSAGE => {
                send::send(shared, connection, &request, reply);
            }
            code::PULL_MESSAGE | code::LITE_PULL_MESSAGE => pull::pull(shared, &request, reply),
            code::UPDATE_AND_CREATE_TOPIC => topic::put(shared, &request, reply),
            _ if looks_at_queues(&request) => answer_once_dispatched(shared, connection, request, reply),
            _ => answer_now(shared, connection, &request, reply),
        }
    }

    fn disconnected(&self, connection: &Arc<Connection>) {
        self.0.held_pulls.disconnected(connection.id());
        client::disconnected(&self.0, connection.id());
    }
}

/// How long an answer waits for dispatch at most: it lies behind by some hundred microseconds, unless it can not write or
/// the machine has no time for it. Clients wait 3 s for an answer.
const DISPATCH_PATIENCE: Duration = Duration::from_secs(2);

/// Whether the answer comes from consume queues or index: whoever got an acknowledgement before asks for a message that is there.
fn looks_at_queues(request: &Command) -> bool {
    match request.code {
        code::GET_MAX_OFFSET => !offset::is_of_next(request),
        code::SEARCH_OFFSET_BY_TIMESTAMP
        | code::GET_TOPIC_STATS_INFO
        | code::GET_CONSUME_STATS
        | code::QUERY_MESSAGE => true,
        _ => false,
    }
}

fn answer_once_dispatched(
    shared: &Arc<Shared>,
    connection: &Arc<Connection>,
    request: Command,
    reply: Reply,
) {
    let end = shared.store.readable_end();
    if shared.store.dispatched_offset() >= end {
        return answer_now(shared, connection, &request, reply);
    }
    let (owner, connection) = (Arc::clone(shared), Arc::clone(connection));
    shared.tasks.spawn(async move {
        let shared = owner;
        let deadline = Instant::now() + DISPATCH_PATIENCE;
        while shared.store.dispatched_offset() < end && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        answer_now(&shared, &connection, &request, reply);
    });
}

fn answer_now(shared: &Arc<Shared>, connection: &Arc<Connection>, request: &Command, reply: Reply) {
    match answer(shared, connection, request) {
        Ok(response) => reply.send(response),
        Err(refusal) => {
            debug!(code = request.code, %refusal, peer = %connection.peer(), "request refused");
            reply.send(refusal.response());
        }
    }
}

fn answer(shared: &Arc<Shared>, connection: &Arc<Connection>, request: &Command) -> Answer {
    match request.code {
        code::QUERY_CONSUMER_OFFSET => offset::query(shared, request),
        code::UPDATE_CONSUMER_OFFSET => offset::update(shared, request),
        code::GET_MAX_OFFSET => offset::max(shared, request),
        code::GET_MIN_OFFSET => offset::min(shared, request),
        code::SEARCH_OFFSET_BY_TIMESTAMP => offset::search(shared, request),
        code::GET_EARLIEST_MSG_STORETIME => offset::earliest_stored_at(shared, request),
        code::VIEW_MESSAGE_BY_ID => message::view(shared, request),
        code::QUERY_MESSAGE => message::query(shared, request),
        code::HEART_BEAT => client::heartbeat(shared, connection, request),
        code::UNREGISTER_CLIENT => client::unregister(shared, connection, request),
        code::CHECK_CLIENT_CONFIG => client::check(request),
        code::GET_CONSUMER_LIST_BY_GROUP => client::list(shared, request),
        code::LOCK_BATCH_MQ => client::lock_queues(shared, request),
        code::UNLOCK_BATCH_MQ => client::unlock_queues(shared, request),
        code::GET_CONSUMER_CONNECTION_LIST => client::consumer_connections(shared, request),
        code::GET_PRODUCER_CONNECTION_LIST => client::producer_connections(shared, request),
        code::DELETE_TOPIC_IN_BROKER => topic::delete(shared, request),
        code::GET_ALL_TOPIC_CONFIG => topic::all(shared),
        code::GET_TOPIC_CONFIG => topic::get(shared, request),
        code::GET_TOPIC_STATS_INFO => topic::stats(shared, request),
        code::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP => group::put(shared, request),
        code::DELETE_SUBSCRIPTIONGROUP => group::delete(shared, request),
        code::GET_ALL_SUBSCRIPTIONGROUP_CONFIG => group::all(shared),
        code::GET_CONSUME_STATS => group::consume_stats(shared, request),
        code::QUERY_TOPIC_CONSUME_BY_WHO => group::of_topic(shared, request),
        code::DELETE_EXPIRED_COMMITLOG => {
            shared.store.delete_expired();
            Ok(Response::success())
        }
        code::CLEAN_EXPIRED_CONSUMEQUEUE => {
            // A round of retention: files of queues go with the log's. Queues stay, for their numbers are nowhere else.
            blocking(|| shared.store.clean())?;
            Ok(Response::success())
        }
        code::GET_BROKER_CONFIG => state::config(shared),
        code::GET_BROKER_RUNTIME_INFO => state::runtime_info(shared),
        code => Err(Refusal::NotThereYet { code, why: why_not(code) }),
    }
}

/// The way out for a request that is known and not served.
fn why_not(code: i32) -> &'static str {
    match code {
        code::CONSUMER_SEND_MSG_BACK => {
            "failed messages are not taken back yet; consume them again from their offset"
        }
        code::END_TRANSACTION => "transactions are not there yet; send plain messages",
        code::SEND_REPLY_MESSAGE | code::SEND_REPLY_MESSAGE_V2 => "request-reply is not there yet",
        code::INVOKE_BROKER_TO_RESET_OFFSET => "commit the offsets instead while the group is stopped",
        _ if code::name_of(code).is_some() => "this broker does not have that function yet",
        _ => "no such code is known",
    }
}

/// A response with a code, ready for its header.
pub(super) fn response(code: i32) -> Command {
    Command::bare_response(code)
}

fn success_with<'a>(header: &impl Header<'a>) -> Response {
    response(response::SUCCESS).with_header(header).into()
}

fn success_json<T: Serialize + ?Sized>(body: &T) -> Response {
    response(response::SUCCESS).with_body(json::to_vec(body)).into()
}

fn queue_id(value: i32) -> Result<u32, Refusal> {
    u32::try_from(value).map_err(|_| Refusal::Value {
        field: "queueId",
        wanted: "0 or more",
        value: value.to_string(),
    })
}

/// Reads a JSON body.
fn body<T: serde::de::DeserializeOwned>(request: &Command) -> Result<T, Refusal> {
    json::from_slice(&request.body).map_err(|error| Refusal::Body {
        request: code::name_of(request.code).unwrap_or("the request"),
        reason: error.to_string(),
    })
}
