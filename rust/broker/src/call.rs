//! A request on its way to its function, and the pieces of an answer.

use std::sync::Arc;

use rocketpy_protocol::code::{request as code, response};
use rocketpy_protocol::{Command, Header, json};
use rocketpy_remoting::{Connection, Reply, Response};
use serde::Serialize;
use tracing::debug;

use crate::refusal::Refusal;
use crate::shared::Shared;
use crate::table::group_commit::Written;

/// What a function answers.
pub(crate) type Answer = Result<Response, Refusal>;

/// A request and what its function may need.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) shared: &'a Arc<Shared>,
    pub(crate) connection: &'a Arc<Connection>,
    pub(crate) request: &'a Command,
}

/// Serves a request that is answered by its return.
pub(crate) type Function = fn(Call<'_>) -> Answer;

/// Answers with what the function returns.
pub(crate) fn answer(function: Function, call: Call<'_>, reply: Reply) {
    match function(call) {
        Ok(response) => reply.send(response),
        Err(refusal) => {
            let (code, peer) = (call.request.code, call.connection.peer());
            debug!(code, %refusal, %peer, "request refused");
            reply.send(refusal.response());
        }
    }
}

/// Answers when the work is done. No thread that serves connections waits for it.
pub(crate) fn answer_later(
    shared: &Shared,
    reply: Reply,
    work: impl Future<Output = Answer> + Send + 'static,
) {
    shared.tasks.spawn(async move {
        match work.await {
            Ok(response) => reply.send(response),
            Err(refusal) => {
                debug!(%refusal, peer = %reply.connection().peer(), "request refused");
                reply.send(refusal.response());
            }
        }
    });
}

/// Does work that waits for the disk, on a thread that serves no connections.
pub(crate) async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(failure) if failure.is_panic() => std::panic::resume_unwind(failure.into_panic()),
        // The runtime ends, and this task with it at its next wait.
        Err(_) => std::future::pending().await,
    }
}

/// Waits for a change to be on disk, if it is not.
pub(crate) async fn on_disk(written: Option<Written>) -> Result<(), Refusal> {
    match written {
        Some(written) => Ok(written.done().await?),
        None => Ok(()),
    }
}

/// A response with a code, ready for its header.
pub(crate) fn response(code: i32) -> Command {
    Command::bare_response(code)
}

pub(crate) fn success_with<'a>(header: &impl Header<'a>) -> Response {
    response(response::SUCCESS).with_header(header).into()
}

pub(crate) fn success_json<T: Serialize + ?Sized>(body: &T) -> Response {
    // What is not needed would wait with the answer, and nobody would count it.
    let mut json = json::to_vec(body);
    json.shrink_to_fit();
    response(response::SUCCESS).with_body(json).into()
}

pub(crate) fn success_json_with<'a, T: Serialize + ?Sized>(header: &impl Header<'a>, body: &T) -> Response {
    response(response::SUCCESS).with_header(header).with_body(json::to_vec(body)).into()
}

pub(crate) fn queue_id(value: i32) -> Result<u32, Refusal> {
    u32::try_from(value).map_err(|_| Refusal::Value {
        field: "queueId",
        wanted: "0 or more",
        value: value.to_string(),
    })
}

/// Reads a JSON body.
pub(crate) fn body<T: serde::de::DeserializeOwned>(request: &Command) -> Result<T, Refusal> {
    json::from_slice(&request.body).map_err(|error| Refusal::Body {
        request: code::name_of(request.code).unwrap_or("the request"),
        reason: error.to_string(),
    })
}
