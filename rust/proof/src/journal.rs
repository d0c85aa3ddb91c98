//! The history of a run, checked as it grows.

use crate::checker::Checker;
use crate::history::{Call, Event};

/// What a harness keeps of a history beside the checker.
pub(crate) trait Sink {
    /// An event that the checker has seen.
    fn take(&mut self, event: Event);
}

/// The history of one run or one store, with what its harness keeps of it.
#[derive(Debug, Default)]
pub(crate) struct Journal<S> {
    pub checker: Checker,
    last_op: u64,
    pub kept: S,
}

impl<S: Sink> Journal<S> {
    pub(crate) fn keeping(kept: S) -> Self {
        Self { checker: Checker::default(), last_op: 0, kept }
    }

    pub(crate) fn push(&mut self, event: Event) {
        self.checker.observe(&event);
        self.kept.take(event);
    }

    /// Notes a call; returns its number.
    pub(crate) fn invoke(&mut self, call: Call) -> u64 {
        let op = self.next_op();
        self.push(Event::Invoke { op, call });
        op
    }

    /// The number of a call that is noted in another way.
    pub(crate) const fn next_op(&mut self) -> u64 {
        self.last_op += 1;
        self.last_op
    }
}
