//! Requests: [`route`] leads from a code to its function, the other files hold the functions.

mod client;
mod group;
pub(crate) mod held;
mod message;
mod offset;
mod pull;
pub(crate) mod route;
mod runtime_info;
mod send;
mod state;
mod topic;

use std::sync::Arc;

pub(crate) use client::expire;
use rocketpy_protocol::code::{request as code, response};
use rocketpy_protocol::{Command, Header, json};
use rocketpy_remoting::{Connection, Handler, Reply, Response};
use route::{Call, Function, Route, route_of};
use serde::Serialize;
use tracing::debug;

pub(crate) use crate::blocking::blocking;
use crate::refusal::Refusal;
use crate::shared::Shared;

/// What a function answers.
type Answer = Result<Response, Refusal>;

/// Leads requests to their functions.
#[derive(Debug)]
pub(crate) struct Processor(pub(crate) Arc<Shared>);

impl Handler for Processor {
    fn handle(&self, connection: &Arc<Connection>, request: Command, reply: Reply) {
        let shared = &self.0;
        let call = Call { shared, connection, request: &request };
        match route_of(request.code) {
            Some(Route::Replies(function)) => function(call, reply),
            Some(Route::Answers { function, waits }) if waits.for_dispatch(&request) => {
                held::answer_once_dispatched(shared, *function, request, reply);
            }
            Some(Route::Answers { function, .. }) => answer(*function, call, reply),
            Some(Route::Refused { why }) => refuse(call, reply, why),
            None => refuse(call, reply, code::who_answers(request.code)),
        }
    }

    fn disconnected(&self, connection: &Arc<Connection>) {
        self.0.held.disconnected(connection.id());
        client::disconnected(&self.0, connection.id());
    }
}

/// Answers with what the function returns.
fn answer(function: Function, call: Call<'_>, reply: Reply) {
    match function(call) {
        Ok(response) => reply.send(response),
        Err(refusal) => {
            let (code, peer) = (call.request.code, call.connection.peer());
            debug!(code, %refusal, %peer, "request refused");
            reply.send(refusal.response());
        }
    }
}

fn refuse(call: Call<'_>, reply: Reply, why: &'static str) {
    let refusal = Refusal::NotThereYet { code: call.request.code, why };
    debug!(%refusal, peer = %call.connection.peer(), "request refused");
    reply.send(refusal.response());
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
