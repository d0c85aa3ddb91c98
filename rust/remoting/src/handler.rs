//! The seam to the layers above: a [`Handler`] takes requests, a [`Reply`] answers one.
use std::fmt;
use std::sync::Arc;

use rocketpy_protocol::{Command, SerializeType, code, flag};
use tracing::debug;

use crate::connection::Connection;
use crate::response::Response;

/// Takes the requests of a connection.
#[doc(alias = "NettyRequestProcessor")]
#[doc(alias = "ChannelEventListener")]
pub trait Handler: Send + Sync + 'static {
    /// Handles one request; called on the connection's task, or for one of a client's in a thread that [reads](crate::read_here) for
    /// it, in the order of arrival.
    ///
    /// It must not block: other connections share the thread. It may answer at once, or keep the reply and answer later from any
    /// thread. A panic is caught and answered with SYSTEM_ERROR; the connection stays open.
    fn handle(&self, connection: &Arc<Connection>, request: Command, reply: Reply);

    /// Called once before the first request of a connection.
    fn connected(&self, _connection: &Arc<Connection>) {}

    /// Called once when a connection has ended, whichever side ended it; no request of it is handled afterwards. A peer that closed
    /// only its sending half may still receive answers.
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

/// Admits or refuses requests before they reach the [`Handler`], for example by their signature.
pub trait RequestCheck: fmt::Debug + Send + Sync + 'static {
    /// Returns the refusal of a request, or `None` to admit it. Runs on the connection's task, so it must not block.
    ///
    /// A refused one-way request is dropped without an answer. A panic is caught and answered with SYSTEM_ERROR: the handler does
    /// not see the request.
    fn refusal(&self, connection: &Arc<Connection>, request: &Command) -> Option<Response>;
}

/// Who takes the requests of a connection.
#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) handler: Arc<dyn Handler>,
    /// `None` admits every request.
    pub(crate) check: Option<Arc<dyn RequestCheck>>,
}

impl Service {
    /// Asks the check, if there is one.
    pub(crate) fn refusal(&self, connection: &Arc<Connection>, request: &Command) -> Option<Response> {
        self.check.as_ref()?.refusal(connection, request)
    }
}

/// The right to answer one request, once, from any thread.
///
/// Dropped without an answer, also by a panic, it answers SYSTEM_ERROR, so that the peer does not wait until its timeout. For a
/// one-way request, and after the connection has ended, sending does nothing.
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

    /// Leaves the request without an answer, as the protocol wants it in a few cases.
    pub fn send_nothing(mut self) {
        self.answered = true;
    }

    /// Whether the peer asked for no answer; building one can then be spared.
    pub fn is_oneway(&self) -> bool {
        self.oneway
    }

    pub fn connection(&self) -> &Arc<Connection> {
        &self.connection
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
            debug!(peer = %self.connection.peer(), code = self.code, "request handler gave no response");
            let remark = "the handler gave up the request";
            self.answer(Response::status(code::response::SYSTEM_ERROR, remark));
        }
        self.connection.request_done();
    }
}
