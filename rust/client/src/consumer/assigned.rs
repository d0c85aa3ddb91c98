//! One queue of a member: where it stands and what was pulled ahead of it.

use std::collections::VecDeque;
use std::sync::Arc;

use rocketpy_model::{MessageQueue, QueueOffset};
use tokio::sync::Notify;

use super::batch::PulledPart;
use crate::config::ConsumerConfig;

/// A part that was pulled and not handed out yet.
#[derive(Debug)]
pub(super) struct Cached {
    pub(super) part: PulledPart,
    /// Where the queue stands once the part is handed out: behind what the broker filtered out after it.
    pub(super) after: QueueOffset,
}

/// One queue that this member reads.
#[derive(Debug)]
pub(super) struct Assigned {
    pub(super) queue: Arc<MessageQueue>,
    /// Names this assignment: a pull task of an earlier one must not go on with it.
    pub(super) id: u64,
    /// Changes with every seek: an answer to a pull of an older epoch is of no use. Unique in the consumer.
    pub(super) epoch: u64,
    pub(super) paused: bool,
    /// Next offset to pull; `None` until the start is known.
    pub(super) next_pull: Option<QueueOffset>,
    /// Offset behind what was handed out.
    pub(super) position: Option<QueueOffset>,
    /// What the user is done with: the position when the latest poll began, or what was committed on demand since.
    pub(super) settled: Option<QueueOffset>,
    /// Last offset that the broker acknowledged as committed.
    pub(super) committed: Option<QueueOffset>,
    pub(super) cached: VecDeque<Cached>,
    pub(super) cached_messages: usize,
    pub(super) cached_bytes: usize,
    /// Wakes the queue's pull task after seek, resume, or when there is room again.
    pub(super) changed: Arc<Notify>,
}

impl Assigned {
    pub(super) fn new(queue: Arc<MessageQueue>, id: u64, paused: bool) -> Self {
        Self {
            queue,
            id,
            epoch: id,
            paused,
            next_pull: None,
            position: None,
            settled: None,
            committed: None,
            cached: VecDeque::new(),
            cached_messages: 0,
            cached_bytes: 0,
            changed: Arc::new(Notify::new()),
        }
    }

    pub(super) fn has_room(&self, config: &ConsumerConfig) -> bool {
        self.cached_messages < config.prefetch_messages && self.cached_bytes < config.prefetch_bytes
    }

    pub(super) fn drop_cached(&mut self) -> usize {
        self.cached.clear();
        self.cached_messages = 0;
        std::mem::take(&mut self.cached_bytes)
    }

    /// Takes up to `count` messages of the first part.
    pub(super) fn take(&mut self, count: usize) -> Option<PulledPart> {
        let first = self.cached.front_mut()?;
        let taken = first.part.split_front(count);
        if let Some(last) = taken.spans().last() {
            self.position = Some(last.queue_offset + 1);
        }
        if first.part.is_empty() {
            self.position = Some(first.after);
            self.cached.pop_front();
        }
        self.cached_messages -= taken.len();
        self.cached_bytes -= taken.size_bytes();
        Some(taken)
    }
}

/// A queue that came to this member; its pull task is to be started.
#[derive(Debug)]
pub(crate) struct Gained {
    pub(crate) queue: Arc<MessageQueue>,
    pub(crate) subscription: usize,
    pub(crate) id: u64,
    /// Wakes the pull task.
    pub(crate) changed: Arc<Notify>,
}

/// A queue that went to another member.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    pub(crate) queue: Arc<MessageQueue>,
    /// What the user was done with.
    pub(crate) settled: Option<QueueOffset>,
    /// Last offset that the broker acknowledged as committed.
    pub(crate) committed: Option<QueueOffset>,
}

impl Lost {
    /// What the user was done with and the broker does not know yet.
    pub(crate) fn to_commit(&self) -> Option<QueueOffset> {
        self.settled.filter(|settled| self.committed != Some(*settled))
    }
}
