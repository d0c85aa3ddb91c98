//! The seam to the layers above: requests come to a [`Handler`], answers leave by a [`Reply`].
use std::sync::Arc;

use bytes::Bytes;
use rocketpy_protocol::{Command, SerializeType, code, flag};
use tracing::debug;

use crate::connection::Connection;

/// Takes the requests of a connection.
#[doc(alias = "NettyRequestProcessor")]
#[doc(alias = "ChannelEventListener")]
pub trait Handler: Send + Sync + 'static {
    /// Handles one request; called on the connection's task, in the order of arrival.
    ///
    /// It must not block: other connections share the thread. The reply is given at once, or kept and given later from any thread.
    /// A panic is caught, answered with SYSTEM_ERROR, and the connection goes on.
    fn handle(&self, connection: &Arc<Connection>, request: Command, reply: Reply);

    /// Called once before the first request of a connection.
    fn connected(&self, _connection: &Arc<Connection>) {}

    /// Called once when a connection has ended, whoever ended it; nothing is handled for it afterwards. A peer that closed its half
    /// may still be given the answers that it waits for.
    fn disconnected(&self, _connection: &Arc<Connection>) {}
}

/// A handler that refuses every request with REQUEST_CODE_NOT_SUPPORTED.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoHandler;

impl Handler for NoHandler {
    fn handle(&self, _connection: &Arc<Connection>, request: Command, reply: Reply) {
        reply.send(Response::not_supported(request.code));
    }
}

/// An answer: a command, and a body that may consist of many slices.
#[derive(Debug)]
pub struct Response {
    /// Code, remark, header fields; its own `body`, when there is one, comes before the slices. `opaque`, the response bit and the
    /// serialization are set by [`Reply::send`].
    pub command: Command,
    /// Body slices, written as they are, without a copy.
    pub body: Vec<Bytes>,
}

impl Response {
    /// A response with code and remark, no header fields and no body.
    pub fn status(code: i32, remark: impl Into<String>) -> Self {
        Self::from(Command::bare_response(code).with_remark(remark))
    }

    /// A response SUCCESS without header fields and body.
    pub fn success() -> Self {
        Self::from(Command::bare_response(code::response::SUCCESS))
    }

    /// The refusal of a request code that this process does not know.
    pub fn not_supported(request_code: i32) -> Self {
        let remark = match code::request::name_of(request_code) {
            Some(name) => format!("request code {request_code} ({name}) is not supported here"),
            None => format!("request code {request_code} is not supported"),
        };
        Self::status(code::response::REQUEST_CODE_NOT_SUPPORTED, remark)
    }

    /// The same with one more body slice.
    #[must_use]
    pub fn with_body(mut self, slice: Bytes) -> Self {
        self.body.push(slice);
        self
    }

    /// Bytes of the whole body.
    pub fn body_len(&self) -> usize {
        self.command.body.len() + self.body.iter().map(Bytes::len).sum::<usize>()
    }
}

impl From<Command> for Response {
    fn from(command: Command) -> Self {
        Self { command, body: Vec::new() }
    }
}

/// The right to answer one request, once, from any thread.
///
/// Dropped without an answer (also by a panic) it answers SYSTEM_ERROR, so that no peer waits in vain. For a one-way request, and
/// after the connection has ended, sending does nothing.
#[derive(Debug)]
#[must_use = "a reply dropped without an answer tells the peer SYSTEM_ERROR"]
pub struct Reply {
    connection: Arc<Connection>,
    opaque: i32,
    code: i32,
    serialize: SerializeType,
    oneway: bool,
    answered: bool,
}

impl Reply {
    pub(crate) fn new(connection: Arc<Connection>, request: &Command) -> Self {
        Self {
            connection,
            opaque: request.opaque,
            code: request.code,
            serialize: request.serialize,
            oneway: request.is_oneway(),
            answered: false,
        }
    }

    /// Answers; the response leaves with whatever else is ready for this connection.
    pub fn send(mut self, response: impl Into<Response>) {
        self.answer(response.into());
    }

    /// Whether the peer asked for no answer; building one can then be spared.
    pub fn is_oneway(&self) -> bool {
        self.oneway
    }

    /// The connection that the request came by.
    pub fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    /// Leaves the request unanswered.
    pub(crate) fn abandon(mut self) {
        self.answered = true;
    }

    fn answer(&mut self, mut response: Response) {
        self.answered = true;
        if !self.oneway {
            let command = &mut response.command;
            command.opaque = self.opaque;
            command.serialize = self.serialize;
            command.flag |= flag::RESPONSE;
            self.connection.push_response(self.code, response);
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if !self.answered && !self.oneway {
            debug!(peer = %self.connection.peer(), code = self.code, "request left without an answer");
            let remark = "the request was given up by its handler";
            self.answer(Response::status(code::response::SYSTEM_ERROR, remark));
        }
        self.connection.request_done();
    }
}
