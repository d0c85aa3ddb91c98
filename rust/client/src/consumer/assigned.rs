//! One queue of a member.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rocketpy_env::planted::{self, Bug};
use rocketpy_model::{MessageQueue, QueueOffset};
use tokio::sync::Notify;

use super::batch::PulledPart;
use super::epoch::Epoch;
use super::positions::Positions;
use super::prefetched::Prefetched;
use super::push::ProcessQueue;
use crate::config::ConsumerConfig;

/// How long a lock of a queue counts without being renewed; the broker keeps it for 60 s.
const LOCK_LASTS: Duration = Duration::from_secs(30);

/// One queue that this member reads.
#[derive(Debug)]
pub(super) struct Assigned {
    pub(super) queue: Arc<MessageQueue>,
    /// The first epoch of this assignment. It tells the assignment from earlier ones, whose pull tasks must end.
    pub(super) id: Epoch,
    /// Changes with every seek: the answer to a pull of an older epoch is dropped.
    pub(super) epoch: Epoch,
    /// Begins with the assignment, and wherever offsets may be handed out again.
    pub(super) life: Epoch,
    pub(super) paused: bool,
    /// The handover that keeps the queue for its user, although it belongs to another member. Nothing is pulled or handed out.
    pub(super) kept: Option<Epoch>,
    pub(super) at: Positions,
    /// What handlers work on; `None` where the user polls, and is done with all that was handed out before.
    pub(super) in_work: Option<ProcessQueue>,
    /// When a consumer in order last got the queue's lock.
    pub(super) locked: Option<Instant>,
    /// When a pull was last answered.
    pub(super) pulled_at: Option<Instant>,
    /// When a message was last handed out to a user who polls, or finished by a handler.
    pub(super) consumed_at: Option<Instant>,
    pub(super) prefetched: Prefetched,
    /// Wakes the queue's pull task after a seek, a resume, or when there is room again.
    pub(super) changed: Arc<Notify>,
}

impl Assigned {
    pub(super) fn new(queue: Arc<MessageQueue>, id: Epoch, paused: bool, is_pushed: bool) -> Self {
        assert!(id > Epoch::NEVER, "each assignment begins an epoch");
        Self {
            queue,
            id,
            epoch: id,
            life: id,
            paused,
            kept: None,
            at: Positions::default(),
            in_work: is_pushed.then(ProcessQueue::new),
            locked: None,
            pulled_at: None,
            consumed_at: None,
            prefetched: Prefetched::default(),
            changed: Arc::new(Notify::new()),
        }
    }

    /// Whether it is not only kept for the user.
    pub(super) fn is_own(&self) -> bool {
        self.kept.is_none()
    }

    pub(super) fn has_room(&self, config: &ConsumerConfig) -> bool {
        let in_work = self.in_work.as_ref().map_or((0, 0), |all| (all.len(), all.unfinished_bytes()));
        self.prefetched.messages() + in_work.0 < config.prefetch_messages
            && self.prefetched.bytes() + in_work.1 < config.prefetch_bytes
    }

    /// The user is done with everything before this offset, if all that was handed out to a user who polls is done.
    pub(super) fn done_before(&self) -> Option<QueueOffset> {
        let in_work = self.in_work.as_ref().filter(|_| !planted::has(Bug::CommitUnfinished));
        in_work.and_then(ProcessQueue::first_unfinished).or(self.at.position)
    }

    /// Whether a consumer in order has the queue's lock.
    ///
    /// # Source
    /// docs/reference/client.md 12.1.
    pub(super) fn is_locked(&self) -> bool {
        self.locked.is_some_and(|at| at.elapsed() < LOCK_LASTS)
    }

    pub(super) fn as_lost(&self) -> Lost {
        Lost { queue: self.queue.clone(), settled: self.at.settled, committed: self.at.committed }
    }

    /// Begins another epoch, in which offsets may be handed out again: what handlers have is not wanted any more.
    pub(super) fn begin(&mut self, epoch: Epoch) {
        assert!(self.epoch < epoch, "the epochs of a queue only grow");
        (self.epoch, self.life) = (epoch, epoch);
        if let Some(in_work) = &mut self.in_work {
            in_work.clear();
        }
    }

    /// Removes up to `count` messages from those pulled ahead, with their bytes.
    pub(super) fn take(&mut self, count: usize) -> Option<(PulledPart, usize)> {
        let taken = self.prefetched.take(count)?;
        assert!(self.is_own(), "nothing is handed out of a queue that is only kept for its user");
        assert!(!self.paused, "nothing is handed out of a paused queue");
        if let Some(last) = taken.part.spans().last() {
            self.at.hand_out(last.queue_offset + 1);
            if let Some(in_work) = &mut self.in_work {
                in_work.put(taken.part.spans(), self.life);
            }
        }
        if let Some(after) = taken.after {
            self.at.position = Some(after);
        }
        Some((taken.part, taken.bytes))
    }

    /// Forgets positions and commits beyond an offset. Returns where reading continues, with nothing pulled ahead.
    pub(super) fn go_back(&mut self, to: QueueOffset, life: Epoch, is_ordered: bool) -> QueueOffset {
        if let Some(in_work) = &mut self.in_work {
            in_work.cut(to, is_ordered);
            assert!(self.life < life, "the lives of a queue only grow");
            self.life = life;
        }
        self.at.go_back(to)
    }
}

/// A queue that was assigned to this member and has no pull task yet.
#[derive(Debug)]
pub(crate) struct Gained {
    pub(crate) queue: Arc<MessageQueue>,
    /// Index of its subscription.
    pub(crate) subscription: usize,
    /// It came with the first round of rebalancing.
    pub(crate) is_first: bool,
    /// The first epoch of the assignment.
    pub(crate) id: Epoch,
    /// Wakes the pull task.
    pub(crate) changed: Arc<Notify>,
}

/// A queue that was assigned to another member and is kept for the user.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    pub(crate) queue: Arc<MessageQueue>,
    /// Tells the handover from earlier and later ones of the queue.
    pub(crate) id: Epoch,
}

/// What an assignment changed.
#[derive(Debug, Default)]
pub(crate) struct Assignment {
    pub(crate) gained: Vec<Gained>,
    pub(crate) lost: Vec<Lost>,
    pub(crate) kept: Vec<Kept>,
    /// Whether queues that were kept are assigned again.
    pub(crate) has_returned: bool,
}

/// A queue that was assigned to another member.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    pub(crate) queue: Arc<MessageQueue>,
    /// The user was done with messages before this offset.
    pub(crate) settled: Option<QueueOffset>,
    /// Last committed offset that the broker acknowledged.
    pub(crate) committed: Option<QueueOffset>,
}

impl Lost {
    /// The offset to commit, if the broker does not have it yet.
    pub(crate) fn to_commit(&self) -> Option<QueueOffset> {
        self.settled.filter(|settled| self.committed != Some(*settled))
    }
}
