//! One queue of a member: its positions, and the messages pulled ahead.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rocketpy_env::planted::{self, Bug};
use rocketpy_model::{MessageQueue, QueueOffset};
use tokio::sync::Notify;

use super::batch::PulledPart;
use super::push::ProcessQueue;
use crate::config::ConsumerConfig;

/// How long a lock of a queue counts without being renewed; the broker keeps it for 60 s.
const LOCK_LASTS: Duration = Duration::from_secs(30);

/// A time in which a queue of a consumer is read in order: it begins with the assignment and with every seek.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Epoch(pub(crate) u64);

impl Epoch {
    /// Before every time of any queue.
    pub(crate) const NEVER: Self = Self(0);
}

/// A part that was pulled and is not handed out yet.
#[derive(Debug)]
pub(super) struct Cached {
    pub(super) part: PulledPart,
    /// The queue's position once the part is handed out: behind the messages that the broker filtered out after it.
    pub(super) after: QueueOffset,
}

/// One queue that this member reads.
#[derive(Debug)]
pub(super) struct Assigned {
    pub(super) queue: Arc<MessageQueue>,
    /// The first epoch of this assignment. It tells the assignment from earlier ones, whose pull tasks must end.
    pub(super) id: Epoch,
    /// Changes with every seek: the answer to a pull of an older epoch is dropped.
    pub(super) epoch: Epoch,
    pub(super) paused: bool,
    /// The handover that keeps the queue for its user, although it belongs to another member. Nothing is pulled or handed out.
    pub(super) kept: Option<Epoch>,
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
    /// What handlers work on; `None` where the user polls, and is done with all that was handed out before.
    pub(super) in_work: Option<ProcessQueue>,
    /// Begins with the assignment, and wherever offsets may be handed out again.
    pub(super) life: Epoch,
    /// When a consumer in order last got the queue's lock.
    pub(super) locked: Option<Instant>,
    /// When a pull was last answered.
    pub(super) pulled_at: Option<Instant>,
    /// When a message was last handed out to a user who polls, or finished by a handler.
    pub(super) consumed_at: Option<Instant>,
    /// End of the queue (exclusive), as its broker last told it.
    pub(super) end: Option<QueueOffset>,
    pub(super) cached: VecDeque<Cached>,
    pub(super) cached_messages: usize,
    pub(super) cached_bytes: usize,
    /// Wakes the queue's pull task after a seek, a resume, or when there is room again.
    pub(super) changed: Arc<Notify>,
}

impl Assigned {
    pub(super) fn new(queue: Arc<MessageQueue>, id: Epoch, paused: bool, is_pushed: bool) -> Self {
        Self {
            queue,
            id,
            epoch: id,
            paused,
            kept: None,
            next_pull: None,
            position: None,
            handed_out: None,
            is_reset: false,
            settled: None,
            committed: None,
            in_work: is_pushed.then(ProcessQueue::new),
            life: id,
            locked: None,
            pulled_at: None,
            consumed_at: None,
            end: None,
            cached: VecDeque::new(),
            cached_messages: 0,
            cached_bytes: 0,
            changed: Arc::new(Notify::new()),
        }
    }

    /// Whether the user may still work on messages of it.
    pub(super) fn is_in_use(&self) -> bool {
        self.handed_out > self.settled
    }

    /// Whether it is not only kept for the user.
    pub(super) fn is_own(&self) -> bool {
        self.kept.is_none()
    }

    pub(super) fn has_room(&self, config: &ConsumerConfig) -> bool {
        let in_work = self.in_work.as_ref().map_or((0, 0), |all| (all.len(), all.unfinished_bytes()));
        self.cached_messages + in_work.0 < config.prefetch_messages
            && self.cached_bytes + in_work.1 < config.prefetch_bytes
    }

    /// The user is done with everything before this offset, if all that was handed out to a user who polls is done.
    pub(super) fn done_before(&self) -> Option<QueueOffset> {
        let in_work = self.in_work.as_ref().filter(|_| !planted::has(Bug::CommitUnfinished));
        in_work.and_then(ProcessQueue::first_unfinished).or(self.position)
    }

    /// Whether a consumer in order has the queue's lock.
    ///
    /// # Source
    /// docs/reference/client.md 12.1.
    pub(super) fn is_locked(&self) -> bool {
        self.locked.is_some_and(|at| at.elapsed() < LOCK_LASTS)
    }

    pub(super) fn as_lost(&self) -> Lost {
        Lost { queue: self.queue.clone(), settled: self.settled, committed: self.committed }
    }

    pub(super) fn drop_cached(&mut self) -> usize {
        self.cached.clear();
        self.cached_messages = 0;
        std::mem::take(&mut self.cached_bytes)
    }

    /// Removes up to `count` messages from the first part.
    pub(super) fn take(&mut self, count: usize) -> Option<PulledPart> {
        let first = self.cached.front_mut()?;
        let taken = first.part.split_front(count);
        if let Some(last) = taken.spans().last() {
            self.position = Some(last.queue_offset + 1);
            self.handed_out = self.position;
            self.is_reset = false;
            if let Some(in_work) = &mut self.in_work {
                in_work.put(taken.spans(), self.life);
            }
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

/// A queue that was assigned to this member and has no pull task yet.
#[derive(Debug)]
pub(crate) struct Gained {
    pub(crate) queue: Arc<MessageQueue>,
    /// Index of its subscription.
    pub(crate) subscription: usize,
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

impl Assigned {
    /// Forgets positions and commits beyond an offset. Returns where reading continues, with nothing pulled ahead.
    pub(super) fn go_back(&mut self, to: QueueOffset, life: Epoch) -> QueueOffset {
        if let Some(in_work) = &mut self.in_work {
            in_work.cut(to);
            self.life = life;
        }
        let next = self.position.map_or(to, |position| position.min(to));
        (self.position, self.next_pull) = (Some(next), Some(next));
        self.settled = self.settled.map(|settled| settled.min(to));
        self.handed_out = self.handed_out.map(|handed_out| handed_out.min(to));
        self.committed = self.committed.filter(|committed| *committed <= to);
        next
    }
}

impl Lost {
    /// The offset to commit, if the broker does not have it yet.
    pub(crate) fn to_commit(&self) -> Option<QueueOffset> {
        self.settled.filter(|settled| self.committed != Some(*settled))
    }
}
