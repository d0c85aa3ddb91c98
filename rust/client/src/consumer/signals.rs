//! What the handle and the tasks of a member wait for.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(super) struct Signals {
    /// Messages can be handed out, or an error can be returned.
    pub(super) arrived: Notify,
    /// Whoever waits takes any message, and tells the next one of more: one is woken at an arrival, not all.
    wakes_one: AtomicBool,
    /// A round of rebalancing ended, or the start of a queue is known.
    pub(super) progress: Notify,
    /// A rebalance is wanted.
    pub(super) wake: Notify,
    /// A kept queue may be given up, or the consumer was closed.
    pub(super) handover: Notify,
    /// There may be a change to tell the user of. One task waits for it.
    pub(super) changed: Notify,
}

impl Signals {
    pub(super) fn wake_one_at_a_time(&self, wakes_one: bool) {
        self.wakes_one.store(wakes_one, Ordering::Relaxed);
    }

    /// There are messages to hand out.
    pub(super) fn messages_arrived(&self) {
        match self.wakes_one.load(Ordering::Relaxed) {
            true => self.arrived.notify_one(),
            false => self.arrived.notify_waiters(),
        }
    }
}
