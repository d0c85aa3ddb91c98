//! The messages of one queue that were pulled ahead of the user.

use std::collections::VecDeque;

use rocketpy_model::QueueOffset;

use super::batch::{PulledPart, RecordSpan};

/// A part that was pulled and is not handed out yet.
#[derive(Debug)]
struct Cached {
    part: PulledPart,
    /// The queue's position once the part is handed out: behind the messages that the broker filtered out after it.
    after: QueueOffset,
}

/// Parts in the order of the queue; none is empty.
#[derive(Debug, Default)]
pub(super) struct Prefetched {
    parts: VecDeque<Cached>,
    messages: usize,
    bytes: usize,
}

/// Messages that were taken.
#[derive(Debug)]
pub(super) struct TakenPart {
    pub(super) part: PulledPart,
    pub(super) bytes: usize,
    /// The position behind the messages, where they are the last of their pull.
    pub(super) after: Option<QueueOffset>,
}

impl Prefetched {
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    pub(super) fn messages(&self) -> usize {
        self.messages
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The positions of the messages, in order.
    pub(super) fn spans(&self) -> impl DoubleEndedIterator<Item = &RecordSpan> {
        self.parts.iter().flat_map(|cached| cached.part.spans())
    }

    /// Adds the messages of a pull, and the position behind them. Returns their bytes.
    pub(super) fn push(&mut self, part: PulledPart, after: QueueOffset) -> usize {
        assert!(!part.is_empty(), "a prefetched part has messages");
        let bytes = part.size_bytes();
        self.messages += part.len();
        self.bytes += bytes;
        self.parts.push_back(Cached { part, after });
        bytes
    }

    /// Moves the position behind the last part: the broker filtered out what follows it. False when nothing is prefetched.
    pub(super) fn extend(&mut self, after: QueueOffset) -> bool {
        let last = self.parts.back_mut();
        last.map(|last| last.after = after).is_some()
    }

    /// Takes up to `count` messages from the first part.
    pub(super) fn take(&mut self, count: usize) -> Option<TakenPart> {
        let first = self.parts.front_mut()?;
        let part = first.part.split_front(count);
        let after = first.part.is_empty().then_some(first.after);
        if after.is_some() {
            self.parts.pop_front();
        }
        let bytes = part.size_bytes();
        assert!(
            part.len() <= self.messages && bytes <= self.bytes,
            "messages taken from a queue were counted as prefetched"
        );
        self.messages -= part.len();
        self.bytes -= bytes;
        assert!(
            !self.parts.is_empty() || (self.messages, self.bytes) == (0, 0),
            "a queue without prefetched parts counts no prefetched messages"
        );
        Some(TakenPart { part, bytes, after })
    }

    /// Drops everything. Returns its bytes.
    pub(super) fn clear(&mut self) -> usize {
        self.parts.clear();
        self.messages = 0;
        std::mem::take(&mut self.bytes)
    }
}
