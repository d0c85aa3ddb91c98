//! The seam to the layers above: a [`Handler`] takes requests, a [`Reply`] answers one.
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use rocketpy_protocol::{Command, SerializeType, code, flag};
use tracing::debug;

use crate::connection::Connection;
use crate::observer::{Answered, Outcome};
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

/// Counts connections by the address of the peer, and admits or refuses a new one.
pub trait ConnectionCheck: fmt::Debug + Send + Sync + 'static {
    /// Counts a connection and returns true, or returns false: it is closed at once.
    fn opens(&self, peer: IpAddr) -> bool;

    /// A connection has ended that was counted.
    fn closed(&self, peer: IpAddr);
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
    was_held: bool,
    /// When the request was read.
    read_at: Instant,
}

impl Reply {
    pub(crate) fn new(connection: Arc<Connection>, request: &Command, read_at: Instant) -> Self {
        Self {
            connection,
            opaque: request.opaque,
            code: request.code,
            serialize: request.serialize,
            oneway: request.is_oneway(),
            answered: false,
            was_held: false,
            read_at,
        }
    }

    /// Notes that the request waits for a message or for dispatch, for an [`AnswerObserver`](crate::AnswerObserver).
    pub fn note_held(&mut self) {
        self.was_held = true;
    }

    /// Answers; the response leaves with whatever else is ready for this connection.
    pub fn send(mut self, response: impl Into<Response>) {
        self.answer(response.into(), Outcome::Sent);
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

    /// When the request was read.
    pub fn read_at(&self) -> Instant {
        self.read_at
    }

    /// Whether the request waited for a message or for dispatch.
    pub fn was_held(&self) -> bool {
        self.was_held
    }

    fn answer(&mut self, mut response: Response, mut outcome: Outcome) {
        self.answered = true;
        let (code, refused_for) = (response.command.code, response.refused_for);
        if self.oneway {
            outcome = Outcome::OneWay;
        } else {
            let command = &mut response.command;
            command.opaque = self.opaque;
            command.serialize = self.serialize;
            command.flag |= flag::RESPONSE;
            if !self.connection.push_response(self.code, response) {
                outcome = Outcome::Closed;
            }
        }
        if let Some(observer) = self.connection.observer() {
            let (was_held, took) = (self.was_held, self.read_at.elapsed());
            let (request, response) = (self.code, code);
            observer.answered(&Answered { request, response, was_held, outcome, took, refused_for });
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if !self.answered && !self.oneway {
            debug!(peer = %self.connection.peer(), code = self.code, "request handler gave no response");
            let remark = "the handler gave up the request";
            self.answer(Response::status(code::response::SYSTEM_ERROR, remark), Outcome::Failed);
        }
        self.connection.request_done();
    }
}
