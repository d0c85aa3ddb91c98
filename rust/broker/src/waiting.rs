//! The requests that this broker may hold, and what each waits for.

use rocketpy_model::PhysicalOffset;
use rocketpy_protocol::Command;
use rocketpy_remoting::{MemoryKind, NoMemory, Reply, Reservation};

use crate::call::Function;
use crate::held_request::{Awaited, Waiter, WaitsFor};
use crate::operation::pull::Pull;

/// Bytes that a waiting request takes at least: its task, with the request and the right to answer it.
const WAIT_BYTES: usize = 1024;

/// A request that this broker may hold.
#[derive(Debug)]
pub(crate) enum Waiting {
    /// A pull that found nothing.
    Pull(Pull),
    /// A question that is answered from consume queues or index.
    Question(Question),
}

/// A question that waits for dispatch: whoever got an acknowledgement before asks for a message that is there.
#[derive(Debug)]
pub(crate) struct Question {
    /// Without its body, which no such function reads.
    pub(crate) request: Command,
    pub(crate) function: Function,
    /// What readers might see of the log when the question came.
    pub(crate) end: PhysicalOffset,
}

/// Takes memory of the budget of all peers for what this request keeps while it waits: `bytes` besides what every request takes.
pub(crate) fn reserve(reply: &Reply, bytes: usize) -> Result<Reservation, NoMemory> {
    reply.connection().reserve(MemoryKind::Requests, WAIT_BYTES + bytes)
}

impl Waiter for Waiting {
    fn waits_for(&self) -> WaitsFor<'_> {
        match self {
            Self::Pull(Pull { queue, offset, filter, .. }) => {
                WaitsFor::Message(Awaited { queue, offset: *offset, codes: filter.codes() })
            }
            Self::Question(question) => WaitsFor::Dispatch(question.end),
        }
    }

    fn held_bytes(&self) -> usize {
        match self {
            Self::Pull(pull) => pull.held_bytes(),
            Self::Question(question) => question.held_bytes(),
        }
    }
}

impl Question {
    fn held_bytes(&self) -> usize {
        assert!(
            self.request.body.is_empty(),
            "a held request has no body, because held bytes do not count it"
        );
        header_bytes(&self.request)
    }
}

/// Bytes of memory that a request's header takes behind the struct.
pub(crate) fn header_bytes(request: &Command) -> usize {
    let fields: usize = request.ext.iter().map(|pair| pair.0.len() + pair.1.len() + size_of_val(&pair)).sum();
    fields + request.remark.as_ref().map_or(0, String::len)
}
