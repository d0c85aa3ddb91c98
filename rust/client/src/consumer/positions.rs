//! How far a member is in one of its queues.

use rocketpy_model::QueueOffset;

/// Offsets of one queue; each is that of the next message.
#[derive(Debug, Default)]
pub(super) struct Positions {
    /// Next offset to pull; `None` until the start is known.
    pub(super) next_pull: Option<QueueOffset>,
    /// Offset after the last message handed out.
    pub(super) position: Option<QueueOffset>,
    /// Offset after the last message that the user got. Behind it the position moves where messages are filtered out.
    pub(super) handed_out: Option<QueueOffset>,
    /// The group was set to another offset, and nothing was handed out since.
    pub(super) is_reset: bool,
    /// The user is done with messages before this offset: the position when the latest poll began, or a later commit on demand.
    pub(super) settled: Option<QueueOffset>,
    /// Last committed offset that the broker acknowledged, since the group was last set to another one.
    pub(super) committed: Option<QueueOffset>,
    /// End of the queue (exclusive), as its broker last told it.
    pub(super) end: Option<QueueOffset>,
}

impl Positions {
    /// Begins at `offset`. `is_stored`: the broker has this offset for the group.
    pub(super) fn start(&mut self, offset: QueueOffset, is_stored: bool) {
        (self.next_pull, self.position, self.settled) = (Some(offset), Some(offset), Some(offset));
        self.committed = is_stored.then_some(offset);
    }

    /// Continues at `offset`.
    pub(super) fn seek(&mut self, offset: QueueOffset) {
        (self.next_pull, self.position) = (Some(offset), Some(offset));
        self.handed_out = self.handed_out.map(|handed_out| handed_out.min(offset));
    }

    /// Continues at the offset that the group was set to, whatever was handed out before.
    pub(super) fn reset(&mut self) {
        self.is_reset = true;
        self.committed = None; // the broker no longer has it
    }

    /// The user got the messages before `offset`.
    pub(super) fn hand_out(&mut self, offset: QueueOffset) {
        (self.position, self.handed_out) = (Some(offset), Some(offset));
        self.is_reset = false;
    }

    /// Forgets positions and commits beyond an offset. Returns where reading continues, with nothing pulled ahead.
    pub(super) fn go_back(&mut self, to: QueueOffset) -> QueueOffset {
        let next = self.position.map_or(to, |position| position.min(to));
        assert!(next <= to, "reading continues before the end of a queue that became shorter");
        (self.position, self.next_pull) = (Some(next), Some(next));
        self.settled = self.settled.map(|settled| settled.min(to));
        self.handed_out = self.handed_out.map(|handed_out| handed_out.min(to));
        self.committed = self.committed.filter(|committed| *committed <= to);
        next
    }

    /// Forgets everything but the end of the queue: another member may have read it meanwhile.
    pub(super) fn forget(&mut self) {
        let (end, is_reset) = (self.end, self.is_reset);
        *self = Self { end, is_reset, ..Self::default() };
    }

    /// The furthest of the offsets, but for the end.
    pub(super) fn furthest(&self) -> Option<QueueOffset> {
        self.next_pull.max(self.position).max(self.handed_out).max(self.settled).max(self.committed)
    }

    /// Whether the user may still work on messages.
    pub(super) fn is_in_use(&self) -> bool {
        self.handed_out > self.settled
    }
}
