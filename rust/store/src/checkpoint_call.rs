//! How dispatch asks for an early checkpoint.

use std::sync::atomic::Ordering;

use rocketpy_model::{AtomicPhysicalOffset, PhysicalOffset};

use crate::wake::Wake;

/// Shared by dispatch, which calls, and the checkpoint thread, which sleeps here.
#[derive(Debug)]
pub(crate) struct CheckpointCall {
    /// When dispatch passes this, a checkpoint is due; [`PhysicalOffset::MAX`] once it was called for.
    due_at: AtomicPhysicalOffset,
    wake: Wake,
}

impl CheckpointCall {
    pub(crate) fn new(due_at: PhysicalOffset) -> Self {
        Self { due_at: AtomicPhysicalOffset::new(due_at), wake: Wake::default() }
    }

    /// Calls for a checkpoint when dispatch has come far enough.
    pub(crate) fn passed(&self, dispatched: PhysicalOffset) {
        if dispatched >= self.due_at.load(Ordering::Relaxed) {
            self.due_at.store(PhysicalOffset::MAX, Ordering::Relaxed);
            self.wake.wake();
        }
    }

    /// Whether a checkpoint was called for and has not begun.
    pub(crate) fn is_called(&self) -> bool {
        self.due_at.load(Ordering::Relaxed) == PhysicalOffset::MAX
    }

    /// Answers the call: the next checkpoint is due when dispatch passes this.
    pub(crate) fn answer(&self, due_at: PhysicalOffset) {
        self.due_at.store(due_at, Ordering::Relaxed);
    }

    /// Where the checkpoint thread sleeps.
    pub(crate) fn wake(&self) -> &Wake {
        &self.wake
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dispatch_calls_once_it_has_come_far_enough_and_until_it_is_answered() {
        let call = CheckpointCall::new(PhysicalOffset(100));
        call.passed(PhysicalOffset(99));
        assert!(!call.is_called());
        call.passed(PhysicalOffset(100));
        assert!(call.is_called());
        call.answer(PhysicalOffset(200));
        call.passed(PhysicalOffset(150));
        assert!(!call.is_called());
    }
}
