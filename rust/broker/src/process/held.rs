//! What this broker holds: pulls until a message comes, and questions about the newest messages until dispatch knows them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rocketpy_model::{PhysicalOffset, QueueOffset};
use rocketpy_protocol::Command;
use rocketpy_remoting::{Reply, cork};
use rocketpy_store::Arrival;
use tracing::debug;

use super::pull::{self, Pull};
use super::route::{Call, Function};
use crate::held_request::{Held, NoRoom, QueueKey, Waiter, WaitsFor};
use crate::refusal::Refusal;
use crate::shared::Shared;

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
    request: Command,
    function: Function,
    /// What readers might see of the log when the question came.
    end: PhysicalOffset,
}

/// Longest wait for dispatch. It is some hundred microseconds behind, unless it cannot write or the machine has no time for it.
/// Then the answer comes from what is there. Clients wait 3 s for an answer.
const DISPATCH_PATIENCE: Duration = Duration::from_secs(2);

impl Waiter for Waiting {
    fn waits_for(&self) -> WaitsFor<'_> {
        match self {
            Self::Pull(pull) => WaitsFor::Messages(std::slice::from_ref(&pull.queue)),
            Self::Question(question) => WaitsFor::Dispatch(question.end),
        }
    }

    fn is_woken_by(&self, arrival: &Arrival) -> bool {
        match self {
            Self::Pull(pull) => {
                pull.is_before(arrival.next_offset) && pull.filter.matches_code(arrival.tags_code)
            }
            Self::Question(_) => false,
        }
    }

    fn is_behind(&self, _queue: &QueueKey, max_offset: QueueOffset) -> bool {
        match self {
            Self::Pull(pull) => pull.is_before(max_offset),
            Self::Question(_) => false,
        }
    }

    fn held_bytes(&self) -> usize {
        match self {
            Self::Pull(pull) => pull.held_bytes(),
            Self::Question(question) => question.held_bytes(),
        }
    }
}

impl Waiting {
    /// Whether the wait is over by what the store shows now.
    fn is_over(&self, shared: &Shared) -> bool {
        match self {
            Self::Pull(pull) => pull.is_before(max_offset(shared, &pull.queue)),
            Self::Question(question) => shared.store.dispatched_offset() >= question.end,
        }
    }
}

impl Question {
    fn held_bytes(&self) -> usize {
        let fields: usize =
            self.request.ext.iter().map(|pair| pair.0.len() + pair.1.len() + size_of_val(&pair)).sum();
        fields + self.request.body.len() + self.request.remark.as_ref().map_or(0, String::len)
    }
}

/// Answers a question once dispatch has reached what readers may see of the log now.
pub(super) fn answer_once_dispatched(
    shared: &Arc<Shared>,
    function: Function,
    request: Command,
    reply: Reply,
) {
    let end = shared.store.readable_end();
    if shared.store.dispatched_offset() >= end {
        let connection = reply.connection().clone();
        return super::answer(function, Call { shared, connection: &connection, request: &request }, reply);
    }
    hold(shared, Waiting::Question(Question { request, function, end }), reply, DISPATCH_PATIENCE);
}

/// Holds a request, for `patience` at most. Without room for it the answer is SYSTEM_BUSY.
pub(super) fn hold(shared: &Arc<Shared>, waiter: Waiting, reply: Reply, patience: Duration) {
    match shared.held.hold(Held { waiter, reply, deadline: Instant::now() + patience }) {
        Ok(id) => {
            // It may have happened since the caller looked.
            let over = shared.held.take_if(id, |waiter| waiter.is_over(shared));
            resume(shared, over);
        }
        Err(refused) => {
            let (held, no_room) = *refused;
            debug!(peer = %held.reply.connection().peer(), ?no_room, "no room to hold a request");
            held.reply.send(refusal(no_room).response());
        }
    }
}

fn refusal(no_room: NoRoom) -> Refusal {
    match no_room {
        NoRoom::Requests { limit } => Refusal::TooManyHeld { limit },
        NoRoom::Bytes { limit } => Refusal::HeldBytes { limit },
    }
}

/// Answers requests that were held. None is held again.
pub(crate) fn resume(shared: &Arc<Shared>, released: impl IntoIterator<Item = Held<Waiting>>) {
    let _cork = cork();
    for Held { waiter, reply, .. } in released {
        match waiter {
            Waiting::Pull(pull) => pull::resume(shared, pull, reply),
            Waiting::Question(Question { request, function, .. }) => {
                let connection = reply.connection().clone();
                super::answer(function, Call { shared, connection: &connection, request: &request }, reply);
            }
        }
    }
}

/// Resumes the requests whose time is up; with `scans`, also those that a filter kept from being woken.
pub(crate) fn resume_due(shared: &Arc<Shared>, now: Instant, scans: bool) {
    let mut released = shared.held.overdue(now);
    if scans {
        released.extend(shared.held.behind(|queue| max_offset(shared, queue)));
    }
    resume(shared, released);
}

fn max_offset(shared: &Shared, queue: &QueueKey) -> QueueOffset {
    shared.store.queue_bounds(&queue.topic, queue.queue_id).max
}

#[cfg(test)]
mod tests;
