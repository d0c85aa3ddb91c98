//! A request on its way to its function, and the pieces of an answer.

use std::sync::Arc;

use bytes::Bytes;
use rocketpy_model::PhysicalOffset;
use rocketpy_protocol::code::{request as code, response};
use rocketpy_protocol::{Command, Header, json};
use rocketpy_remoting::{Connection, Reply, Response};
use serde::Serialize;
use tracing::debug;

use crate::desk::Desk;
use crate::disk_read::DiskReads;
use crate::ground::Ground;
use crate::refusal::Refusal;
use crate::tasks::Tasks;
use crate::waiting::{self, header_bytes};

/// Result of a request function.
pub(crate) type Answer = Result<Response, Refusal>;

/// A request and what its function may need.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) desk: &'a Arc<Desk>,
    pub(crate) connection: &'a Arc<Connection>,
    pub(crate) request: &'a Command,
}

/// Answers a request by its return.
pub(crate) type Serve = fn(Call<'_>) -> Answer;

/// Serves a request that is answered by a return, and where it may run.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Function {
    /// From memory, on the thread that serves the connection.
    AtOnce(Serve),
    /// By reads that may wait for the disk, from the header of the request alone.
    LookUp(Serve),
    /// From memory if `test` is true of the request, else by such reads.
    LookUpUnless { test: fn(&Desk, &Command) -> bool, serve: Serve },
    /// As [`Self::LookUp`], with as many reads as there are queues.
    Survey(Serve),
}

/// Answers with what the function returns.
pub(crate) fn answer(function: Function, desk: &Arc<Desk>, request: Command, reply: Reply) {
    match function {
        Function::LookUpUnless { test, serve } if test(desk, &request) => {
            answer(Function::AtOnce(serve), desk, request, reply);
        }
        Function::AtOnce(serve) => {
            let answer = serve(Call { desk, connection: reply.connection(), request: &request });
            finish(answer, reply);
        }
        Function::LookUp(serve) | Function::LookUpUnless { serve, .. } => {
            look_up(serve, &desk.reads.look_ups, desk, request, reply)
        }
        Function::Survey(serve) => look_up(serve, &desk.reads.surveys, desk, request, reply),
    }
}

fn look_up(serve: Serve, reads: &DiskReads, desk: &Arc<Desk>, request: Command, reply: Reply) {
    let request = without_body(request);
    let (owner, connection) = (desk.clone(), reply.connection().clone());
    let bytes = header_bytes(&request);
    let look_up = move || serve(Call { desk: &owner, connection: &connection, request: &request });
    read_aside(desk.ground.tasks(), reads, reply, bytes, look_up, finish);
}

/// A request that waits. Its body is a part of the whole block that was read from the connection, and would keep it in memory.
pub(crate) fn without_body(request: Command) -> Command {
    Command { body: Bytes::new(), ..request }
}

fn finish(answer: Answer, reply: Reply) {
    match answer {
        Ok(response) => reply.send(response),
        Err(refusal) => {
            debug!(%refusal, peer = %reply.connection().peer(), "request refused");
            reply.send(refusal.response());
        }
    }
}

/// Answers when the work is done. No thread that serves connections waits for it.
pub(crate) fn answer_later(tasks: &Tasks, reply: Reply, work: impl Future<Output = Answer> + Send + 'static) {
    tasks.spawn(async move { finish(work.await, reply) });
}

/// [`answer_later`] to a request that is kept without its body. It counts for its connection.
pub(crate) fn answer_from_header<W: Future<Output = Answer> + Send + 'static>(
    Call { desk, request, .. }: Call<'_>,
    reply: Reply,
    work: impl FnOnce(Arc<Desk>, Command) -> W,
) {
    let memory = match waiting::reserve(&reply, header_bytes(request)) {
        Ok(memory) => memory,
        Err(no_memory) => return finish(Err(no_memory.into()), reply),
    };
    let work = work(desk.clone(), without_body(request.clone()));
    answer_later(desk.ground.tasks(), reply, async move {
        let answer = work.await;
        drop(memory);
        answer
    });
}

/// Waits for a turn, reads from the disk, then calls `then` with the result. Without room for it the answer is SYSTEM_BUSY. What it
/// keeps until then, `bytes` of memory, counts for its connection; once that has ended nothing is read.
pub(crate) fn read_aside<T: Send + 'static>(
    tasks: &Tasks,
    reads: &DiskReads,
    reply: Reply,
    bytes: usize,
    read: impl FnOnce() -> T + Send + 'static,
    then: impl FnOnce(T, Reply) + Send + 'static,
) {
    let place = match reads.enter(reply.connection().id()) {
        Ok(place) => place,
        Err(refusal) => return finish(Err(refusal), reply),
    };
    let memory = match waiting::reserve(&reply, bytes) {
        Ok(memory) => memory,
        Err(no_memory) => return finish(Err(no_memory.into()), reply),
    };
    let connection = reply.connection().clone();
    tasks.spawn(async move {
        let done = place.read(move || connection.is_open().then(read)).await;
        drop(memory);
        if let Some(result) = done.flatten() {
            then(result, reply);
        }
    });
}

/// Reads the record at an offset of the log, then calls `then` with the result: at once if it is in memory, else as [`read_aside`] does.
pub(crate) fn read_record<T: Send + 'static>(
    ground: &Ground,
    look_ups: &DiskReads,
    offset: i64,
    reply: Reply,
    bytes: usize,
    read: impl FnOnce() -> T + Send + 'static,
    then: impl FnOnce(T, Reply) + Send + 'static,
) {
    let is_in_memory =
        u64::try_from(offset).is_ok_and(|at| ground.store().is_record_in_memory(PhysicalOffset(at)));
    match is_in_memory {
        true => then(read(), reply),
        false => read_aside(ground.tasks(), look_ups, reply, bytes, read, then),
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
    response(response::SUCCESS).with_body(json_body(body)).into()
}

pub(crate) fn success_json_with<'a, T: Serialize + ?Sized>(header: &impl Header<'a>, body: &T) -> Response {
    response(response::SUCCESS).with_header(header).with_body(json_body(body)).into()
}

fn json_body<T: Serialize + ?Sized>(body: &T) -> Vec<u8> {
    let mut json = json::to_vec(body);
    // Spare capacity would wait with the answer, and the budget does not count it.
    json.shrink_to_fit();
    json
}

/// Reads a JSON body.
pub(crate) fn body<T: serde::de::DeserializeOwned>(request: &Command) -> Result<T, Refusal> {
    json::from_slice(&request.body).map_err(|error| Refusal::Body {
        request: code::name_of(request.code).unwrap_or("the request"),
        reason: error.to_string(),
    })
}
