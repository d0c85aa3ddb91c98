//! Held requests: pulls until a message arrives, and queries about the newest messages until they are dispatched.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rocketpy_model::{PhysicalOffset, QueueOffset};
use rocketpy_protocol::Command;
use rocketpy_remoting::{Connection, Reply, cork};
use rocketpy_store::{Arrival, Store};
use tokio::task::yield_now;
use tracing::{debug, error};

use super::{accounts, pull};
use crate::call::{Call, Function, answer, without_body};
use crate::desk::Desk;
use crate::held_request::{Held, HeldRequests, NoRoom, QueueKey, Released};
use crate::operation::pull::Pull;
use crate::refusal::Refusal;
use crate::waiting::{Question, Waiting};

/// Maximum wait for dispatch. It is some hundred microseconds behind, unless it cannot write or the machine has no time for it.
/// Then the answer comes from what is there. Clients wait 3 s for an answer.
const DISPATCH_PATIENCE: Duration = Duration::from_secs(2);

/// Pulls that are answered, and queues that are looked at, before other tasks of the thread get their turn.
const PULLS_A_TURN: usize = 64;
const QUEUES_A_TURN: usize = 1024;

/// Whether the wait is over by what the store and the connection show now. The end of a connection, and the stop of the broker, end
/// the wait of pulls alone: questions get an answer that leaves nothing out.
fn is_over(waiter: &Waiting, store: &Store, connection: &Connection) -> bool {
    match waiter {
        Waiting::Pull(pull) => !connection.is_open() || pull.is_before(max_offset(store, &pull.queue)),
        Waiting::Question(question) => store.dispatched_offset() >= question.end,
    }
}

/// Answers a pull, or holds it until there is something to answer.
pub(super) fn pull(call: Call<'_>, reply: Reply) {
    if let Some((pull, reply, patience)) = pull::pull(call, reply) {
        hold_pull(call.desk, pull, reply, patience);
    }
}

/// Holds a pull that found nothing.
pub(super) fn hold_pull(desk: &Arc<Desk>, pull: Pull, reply: Reply, patience: Duration) {
    hold(desk, Waiting::Pull(pull), reply, patience);
}

/// Answers a question once dispatch has reached what readers may see of the log now.
pub(super) fn answer_once_dispatched(desk: &Arc<Desk>, function: Function, request: Command, reply: Reply) {
    let end = desk.ground.store().readable_end();
    if desk.ground.store().dispatched_offset() >= end {
        return answer(function, desk, request, reply);
    }
    desk.ground.store().hurry_dispatch();
    let request = without_body(request);
    hold(desk, Waiting::Question(Question { request, function, end }), reply, DISPATCH_PATIENCE);
}

/// Holds a request, for `patience` at most. Without room for it the answer is SYSTEM_BUSY.
fn hold(desk: &Arc<Desk>, waiter: Waiting, mut reply: Reply, patience: Duration) {
    reply.note_held();
    let connection = reply.connection().clone();
    let held = Held { waiter, reply, deadline: Instant::now() + patience };
    // It may have happened since the caller looked. A connection is no longer open when its requests are taken out.
    match desk.held.hold(held, |waiter| is_over(waiter, desk.ground.store(), &connection)) {
        Ok(over) => resume(desk, over),
        Err(refused) => {
            let (held, no_room) = *refused;
            debug!(peer = %held.reply.connection().peer(), ?no_room, "request not held, no room");
            held.reply.send(refusal(no_room).response());
        }
    }
}

fn refusal(no_room: NoRoom) -> Refusal {
    match no_room {
        NoRoom::Requests { limit } => Refusal::TooManyHeld { limit },
        NoRoom::Bytes { limit } => Refusal::HeldBytes { limit },
        NoRoom::Memory(no_memory) => Refusal::Memory(no_memory),
    }
}

/// Answers requests that were held. None is held again. A panic in one of them harms no other: the request is answered with
/// SYSTEM_ERROR.
fn resume(desk: &Arc<Desk>, released: impl IntoIterator<Item = Held<Waiting>>) {
    let _cork = cork();
    for Held { waiter, reply, .. } in released {
        let peer = reply.connection().peer();
        // The unwinding drops the reply, which then answers.
        let resumed = catch_unwind(AssertUnwindSafe(|| match waiter {
            Waiting::Pull(pull) => pull::resume(desk, pull, reply),
            Waiting::Question(Question { request, function, .. }) => {
                match accounts::refusal_after_wait(desk, &request, &reply) {
                    Some(denied) => reply.send(denied),
                    None => answer(function, desk, request, reply),
                }
            }
        }));
        if resumed.is_err() {
            error!(%peer, "held request panicked, answered with SYSTEM_ERROR");
        }
    }
}

/// Answers pulls that were held, a few at a time.
async fn resume_in_turns(desk: &Arc<Desk>, pulls: Vec<Held<Waiting>>) {
    let mut pulls = pulls.into_iter();
    loop {
        resume(desk, pulls.by_ref().take(PULLS_A_TURN));
        if pulls.len() == 0 {
            return;
        }
        yield_now().await;
    }
}

/// Answers each of these in a task of its own: an answer from the index may take a while.
fn resume_each(desk: &Arc<Desk>, released: impl IntoIterator<Item = Held<Waiting>>) {
    for held in released {
        let for_task = desk.clone();
        desk.ground.tasks().spawn(async move { resume(&for_task, [held]) });
    }
}

/// Answers what `take` takes out, until there is no more.
pub(crate) async fn resume_all(desk: &Arc<Desk>, take: impl Fn(&HeldRequests<Waiting>) -> Released<Waiting>) {
    loop {
        let released = take(&desk.held);
        let may_be_more = released.is_full();
        let (questions, pulls): (Vec<_>, Vec<_>) =
            released.held.into_iter().partition(|held| matches!(held.waiter, Waiting::Question(_)));
        resume_each(desk, questions);
        resume_in_turns(desk, pulls).await;
        if !may_be_more {
            return;
        }
        yield_now().await;
    }
}

/// Resumes the requests that these messages wake. The caller is the thread that dispatches: it takes out the first ones, and a task
/// does the rest.
pub(crate) fn arrived(desk: &Arc<Desk>, arrivals: &[Arrival]) {
    let (mut released, rest) = desk.held.arrived(arrivals);
    if released.held.is_empty() {
        return;
    }
    let (owner, rest) = (desk.clone(), rest.to_vec());
    desk.ground.tasks().spawn(async move {
        let mut rest = &*rest;
        loop {
            resume_in_turns(&owner, released.held).await;
            if rest.is_empty() {
                return;
            }
            (released, rest) = owner.held.arrived(rest);
        }
    });
}

/// Resumes the requests that waited for dispatch to come this far, as [`arrived`] does.
pub(crate) fn dispatched(desk: &Arc<Desk>, offset: PhysicalOffset) {
    let released = desk.held.dispatched(offset);
    let may_be_more = released.is_full();
    resume_each(desk, released.held);
    if may_be_more {
        let owner = desk.clone();
        desk.ground.tasks().spawn(async move { resume_all(&owner, |held| held.dispatched(offset)).await });
    }
}

/// Resumes the requests whose time is up; with `scans`, also those that a filter kept from being woken.
pub(crate) async fn resume_due(desk: &Arc<Desk>, now: Instant, scans: bool) {
    resume_all(desk, |held| held.overdue(now)).await;
    if !scans {
        return;
    }
    for queues in desk.held.queues().chunks(QUEUES_A_TURN) {
        let ends: Vec<_> =
            queues.iter().map(|queue| (queue.clone(), max_offset(desk.ground.store(), queue))).collect();
        resume_all(desk, |held| held.behind(&ends)).await;
        yield_now().await;
    }
}

fn max_offset(store: &Store, queue: &QueueKey) -> QueueOffset {
    store.queue_bounds(&queue.topic, queue.queue_id).max
}

#[cfg(test)]
mod tests;
