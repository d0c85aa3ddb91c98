//! What an observer of answers is told.

use std::fmt;
use std::time::Duration;

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The answer was queued for the peer.
    Sent,
    /// The peer wants no answer.
    OneWay,
    /// The handler gave up the request.
    Failed,
    /// The connection ended before the answer.
    Closed,
}

/// An answered request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Answered {
    /// Code of the request.
    pub request: i32,
    /// Code of the answer.
    pub response: i32,
    /// Whether the request waited for a message or for dispatch ([`Reply::note_held`](crate::Reply::note_held)).
    pub was_held: bool,
    pub outcome: Outcome,
    /// Time since the request was read from the connection.
    pub took: Duration,
    /// Why the request was refused ([`Response::refused_for`](crate::Response::refused_for)).
    pub refused_for: Option<&'static str>,
}

/// Takes notice of each answer, on the thread that gives it. It must not block.
pub trait AnswerObserver: fmt::Debug + Send + Sync + 'static {
    fn answered(&self, answer: &Answered);
}
