//! What a consumer holds between broker and user: assigned queues, prefetched messages, positions. No I/O.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use rocketpy_model::{MessageQueue, QueueOffset};

use super::assigned::{Assigned, Cached, Gained, Lost};
use super::batch::{PulledBatch, PulledPart};
use crate::config::ConsumerConfig;
use crate::error::ClientError;

/// Moves kept for the user; when more come, the oldest go (each was logged).
const MAX_MOVES: usize = 1024;

/// The broker moved the reader of a queue: the offset asked for is not, or no longer, there.
///
/// Messages between `from` and `to` were not read when `to` is the greater one: they are gone. When it is the smaller one the queue has
/// become shorter, and what follows was read before under the same offsets or is new.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OffsetMove {
    pub queue: MessageQueue,
    pub from: QueueOffset,
    pub to: QueueOffset,
}

/// What a pull brought.
#[derive(Debug)]
pub(crate) struct Pulled {
    /// Messages that passed the filter.
    pub(crate) part: Option<PulledPart>,
    /// Offset to pull next.
    pub(crate) next: QueueOffset,
    /// Set when the broker moved the reader.
    pub(crate) moved_from: Option<QueueOffset>,
}

/// What a queue's pull task does next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Find the offset to start at.
    FindStart {
        epoch: u64,
    },
    Pull {
        epoch: u64,
        offset: QueueOffset,
    },
    /// Wait for `changed`.
    Wait,
    /// The queue is no longer assigned.
    End,
}

/// Which offsets a commit sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommitScope {
    /// Everything handed out.
    HandedOut,
    /// What the user is done with: handed out before the latest poll, or committed on demand.
    Settled,
}

/// All of one consumer.
#[derive(Debug, Default)]
pub(crate) struct State {
    queues: BTreeMap<Arc<MessageQueue>, Assigned>,
    /// Queues that the user has paused, also while they are with another member.
    paused: BTreeSet<Arc<MessageQueue>>,
    /// Queues with something to hand out, next first. Each at most once.
    ready: VecDeque<Arc<MessageQueue>>,
    cached_bytes: usize,
    moves: VecDeque<OffsetMove>,
    failure: Option<ClientError>,
    /// Last number given out as id or epoch.
    last_number: u64,
}

impl State {
    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Makes `wanted` (queue and subscription) the assigned queues.
    pub(crate) fn assign(&mut self, wanted: &BTreeMap<Arc<MessageQueue>, usize>) -> (Vec<Gained>, Vec<Lost>) {
        let gone: Vec<_> = self.queues.keys().filter(|queue| !wanted.contains_key(*queue)).cloned().collect();
        let lost = gone.iter().filter_map(|queue| self.remove(queue)).collect();
        let mut gained = Vec::new();
        for (queue, subscription) in wanted {
            if !self.queues.contains_key(queue) {
                let id = self.next_number();
                let assigned = Assigned::new(queue.clone(), id, self.paused.contains(queue));
                let changed = assigned.changed.clone();
                gained.push(Gained { queue: queue.clone(), subscription: *subscription, id, changed });
                self.queues.insert(queue.clone(), assigned);
            }
        }
        (gained, lost)
    }

    /// Forgets a queue and what was pulled ahead of it.
    fn remove(&mut self, queue: &Arc<MessageQueue>) -> Option<Lost> {
        let mut assigned = self.queues.remove(queue)?;
        self.cached_bytes -= assigned.drop_cached();
        self.ready.retain(|ready| ready != queue);
        assigned.changed.notify_one();
        self.wake_pulls();
        Some(Lost { queue: queue.clone(), settled: assigned.settled, committed: assigned.committed })
    }

    /// Whether an answer to a pull of this assignment and epoch is still of use.
    pub(crate) fn is_current(&self, queue: &MessageQueue, id: u64, epoch: u64) -> bool {
        self.queues.get(queue).is_some_and(|assigned| assigned.id == id && assigned.epoch == epoch)
    }

    pub(crate) fn contains(&self, queue: &MessageQueue) -> bool {
        self.queues.contains_key(queue)
    }

    /// Assigned queues, sorted.
    pub(crate) fn queues(&self) -> impl Iterator<Item = &Arc<MessageQueue>> {
        self.queues.keys()
    }

    pub(crate) fn queue_count(&self) -> usize {
        self.queues.len()
    }

    /// What the pull task of assignment `id` of `queue` does next.
    pub(crate) fn task(&self, queue: &MessageQueue, id: u64, config: &ConsumerConfig) -> Task {
        let Some(assigned) = self.queues.get(queue).filter(|assigned| assigned.id == id) else {
            return Task::End;
        };
        let epoch = assigned.epoch;
        match assigned.next_pull {
            None => Task::FindStart { epoch },
            Some(offset)
                if !assigned.paused
                    && assigned.has_room(config)
                    && (self.cached_bytes < config.prefetch_total_bytes || assigned.cached.is_empty()) =>
            {
                Task::Pull { epoch, offset }
            }
            Some(_) => Task::Wait,
        }
    }

    /// Sets the start of a queue, unless a seek came before. `stored`: it is what the broker has for the group.
    pub(crate) fn start(&mut self, queue: &MessageQueue, epoch: u64, offset: QueueOffset, stored: bool) {
        if let Some(assigned) = self.queues.get_mut(queue)
            && assigned.epoch == epoch
        {
            assigned.next_pull = Some(offset);
            assigned.position = Some(offset);
            assigned.settled = Some(offset);
            assigned.committed = stored.then_some(offset);
        }
    }

    /// Takes the answer of a pull. True when there is something new to hand out.
    pub(crate) fn pulled(&mut self, queue: &MessageQueue, epoch: u64, pulled: Pulled) -> bool {
        let Some(assigned) = self.queues.get_mut(queue) else { return false };
        if assigned.epoch != epoch {
            return false;
        }
        assigned.next_pull = Some(pulled.next);
        if let Some(from) = pulled.moved_from {
            if self.moves.len() == MAX_MOVES {
                self.moves.pop_front();
            }
            self.moves.push_back(OffsetMove { queue: (*assigned.queue).clone(), from, to: pulled.next });
        }
        let Some(part) = pulled.part.filter(|part| !part.is_empty()) else {
            match assigned.cached.back_mut() {
                Some(last) => last.after = pulled.next,
                None => assigned.position = Some(pulled.next),
            }
            return false;
        };
        let size_bytes = part.size_bytes();
        assigned.cached_messages += part.len();
        assigned.cached_bytes += size_bytes;
        self.cached_bytes += size_bytes;
        assigned.cached.push_back(Cached { part, after: pulled.next });
        if assigned.cached.len() == 1 && !assigned.paused {
            self.ready.push_back(assigned.queue.clone());
        }
        true
    }

    /// Hands out up to `max_messages`, queue after queue.
    pub(crate) fn take(&mut self, max_messages: usize, config: &ConsumerConfig) -> PulledBatch {
        let mut batch = PulledBatch::default();
        let (mut left, was_full) = (max_messages, self.cached_bytes >= config.prefetch_total_bytes);
        while left > 0
            && let Some(queue) = self.ready.pop_front()
        {
            let Some(assigned) = self.queues.get_mut(&queue) else { continue };
            let had_room = assigned.has_room(config);
            while left > 0
                && let Some(part) = assigned.take(left)
            {
                left -= part.len();
                self.cached_bytes -= part.size_bytes();
                batch.push(part);
            }
            let is_empty = assigned.cached.is_empty();
            if (!had_room && assigned.has_room(config)) || (was_full && is_empty) {
                assigned.changed.notify_one();
            }
            if !is_empty {
                self.ready.push_back(queue);
            }
        }
        if was_full && self.cached_bytes < config.prefetch_total_bytes {
            self.wake_pulls();
        }
        batch
    }

    /// What was handed out so far counts as done.
    pub(crate) fn settle(&mut self) {
        for assigned in self.queues.values_mut() {
            assigned.settled = assigned.position;
        }
    }

    /// A commit that the user may ask for: of an assigned queue, and not above what was handed out.
    pub(crate) fn check_commit(
        &self,
        queue: &MessageQueue,
        offset: QueueOffset,
    ) -> Result<(Arc<MessageQueue>, QueueOffset), ClientError> {
        let assigned =
            self.queues.get(queue).and_then(|assigned| Some((&assigned.queue, assigned.position?)));
        let Some((shared, position)) = assigned else {
            return Err(ClientError::NotAssigned { queue: queue.clone() });
        };
        if offset > position {
            let (queue, min) = (queue.clone(), QueueOffset(0));
            return Err(ClientError::OffsetOutOfRange { queue, offset, min, max: position });
        }
        Ok((shared.clone(), offset))
    }

    /// A commit on demand says what is done until the next poll: no automatic commit takes it back meanwhile.
    pub(crate) fn settle_at(&mut self, queue: &MessageQueue, offset: QueueOffset) {
        if let Some(assigned) = self.queues.get_mut(queue) {
            assigned.settled = Some(offset);
        }
    }

    /// Offsets that a commit has to send: those that the broker does not have yet.
    pub(crate) fn to_commit(&self, scope: CommitScope) -> Vec<(Arc<MessageQueue>, QueueOffset)> {
        let offset = |assigned: &Assigned| match scope {
            CommitScope::HandedOut => assigned.position,
            CommitScope::Settled => assigned.settled,
        };
        self.queues
            .values()
            .filter(|assigned| offset(assigned) != assigned.committed)
            .filter_map(|assigned| Some((assigned.queue.clone(), offset(assigned)?)))
            .collect()
    }

    /// Notes what a broker acknowledged.
    pub(crate) fn committed(&mut self, queue: &MessageQueue, offset: QueueOffset) {
        if let Some(assigned) = self.queues.get_mut(queue) {
            assigned.committed = Some(offset);
        }
    }

    /// Last acknowledged commits, which a broker may have forgotten.
    pub(crate) fn acknowledged(&self) -> Vec<(Arc<MessageQueue>, QueueOffset)> {
        let of = |assigned: &Assigned| Some((assigned.queue.clone(), assigned.committed?));
        self.queues.values().filter_map(of).collect()
    }

    /// Offset behind what was handed out, per queue.
    pub(crate) fn positions(&self) -> Vec<(MessageQueue, QueueOffset)> {
        let of = |assigned: &Assigned| Some(((*assigned.queue).clone(), assigned.position?));
        self.queues.values().filter_map(of).collect()
    }

    /// Reads on at `offset`; what was pulled ahead is forgotten. False when the queue is not assigned.
    pub(crate) fn seek(&mut self, queue: &MessageQueue, offset: QueueOffset) -> bool {
        let epoch = self.next_number();
        let Some(assigned) = self.queues.get_mut(queue) else { return false };
        assigned.epoch = epoch;
        assigned.next_pull = Some(offset);
        assigned.position = Some(offset);
        self.cached_bytes -= assigned.drop_cached();
        assigned.changed.notify_one();
        self.ready.retain(|ready| **ready != *queue);
        self.wake_pulls();
        true
    }

    /// Reads on at `offset` when more than that was handed out.
    pub(crate) fn take_back(&mut self, queue: &MessageQueue, offset: QueueOffset) {
        if self.queues.get(queue).is_some_and(|assigned| assigned.position > Some(offset)) {
            self.seek(queue, offset);
        }
    }

    /// Pauses or resumes one queue. False when it is neither assigned nor was paused before it was lost.
    pub(crate) fn set_paused(&mut self, queue: &MessageQueue, paused: bool) -> bool {
        let Some(assigned) = self.queues.get_mut(queue) else {
            return if paused { self.paused.contains(queue) } else { self.paused.remove(queue) };
        };
        if assigned.paused != paused {
            assigned.paused = paused;
            let queue = assigned.queue.clone();
            if paused {
                self.ready.retain(|ready| *ready != queue);
                self.paused.insert(queue);
            } else {
                self.paused.remove(&queue);
                assigned.changed.notify_one();
                if !assigned.cached.is_empty() {
                    self.ready.push_back(queue);
                }
            }
        }
        true
    }

    /// Resumes every queue, also those that are with another member.
    pub(crate) fn resume_all(&mut self) {
        for queue in self.paused.clone() {
            self.set_paused(&queue, false);
        }
    }

    /// Keeps an error for the next poll; a later one replaces it.
    pub(crate) fn fail(&mut self, error: ClientError) {
        self.failure = Some(error);
    }

    pub(crate) fn take_failure(&mut self) -> Option<ClientError> {
        self.failure.take()
    }

    pub(crate) fn take_moves(&mut self) -> Vec<OffsetMove> {
        self.moves.drain(..).collect()
    }

    /// Lets every pull task look again.
    pub(crate) fn wake_pulls(&self) {
        for assigned in self.queues.values() {
            assigned.changed.notify_one();
        }
    }
}
