//! The state of a consumer between broker and user: assigned queues, messages pulled ahead, positions. No I/O.

mod notices;
mod pushed;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use rocketpy_model::{MessageQueue, QueueOffset};

pub use self::notices::QueueChange;
use self::notices::RebalanceNotices;
pub(crate) use self::pushed::{Finished, Taken};
use super::assigned::{Assigned, Assignment, Gained, Kept, Lost};
use super::batch::PulledBatch;
use super::contact::Contacts;
use super::delivery::Delivery;
use super::epoch::Epoch;
use super::pulled::Pulled;
use super::stats::Counts;
use crate::config::ConsumerConfig;
use crate::error::ClientError;
use crate::traffic::Traffic;

/// Most moves kept for the user. Beyond them the oldest are dropped; each was logged.
const MAX_MOVES: usize = 1024;

/// The broker moved the reader of a queue: the requested offset does not exist or is no longer stored, or the group was reset.
///
/// If `to` is greater, the messages between `from` and `to` are gone or skipped, and were not read. If it is smaller, the group goes
/// back, or the queue became shorter: then the messages that follow were pulled before under the same offsets, or are new.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OffsetMove {
    /// The queue that is read.
    pub queue: MessageQueue,
    /// The requested offset.
    pub from: QueueOffset,
    /// Where reading continues.
    pub to: QueueOffset,
}

/// What a queue's pull task does next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Find the offset to start at.
    FindStart {
        epoch: Epoch,
    },
    Pull {
        epoch: Epoch,
        offset: QueueOffset,
    },
    /// Wait for `changed`.
    Wait,
    /// Get the queue's lock.
    Lock,
    /// The queue is no longer assigned.
    End,
}

/// Which of the queues that are kept for the user go to other members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GiveUp {
    /// Queues that the user needs no longer.
    Unneeded,
    /// Also queues past their time, except ordered ones whose handler runs.
    Overdue,
    /// All: the member closes.
    All,
}

/// Which offsets a commit sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommitScope {
    /// Everything handed out.
    HandedOut,
    /// What the user is done with: handed out before the latest poll, or committed on demand since.
    Settled,
}

/// The whole state of one consumer.
#[derive(Debug, Default)]
pub(crate) struct State {
    queues: BTreeMap<Arc<MessageQueue>, Assigned>,
    /// Numbers of handlers that run, by queue, where messages are consumed in order. A queue may have been given up since, or begun again: a
    /// handler still runs with messages that it had before.
    handlers: BTreeMap<Arc<MessageQueue>, usize>,
    /// Queues that the user paused, even while they are assigned to another member.
    paused: BTreeSet<Arc<MessageQueue>>,
    /// Queues with messages to hand out, the next one first. Each at most once.
    ready: VecDeque<Arc<MessageQueue>>,
    /// Queues whose position changed since the user was last done with what was handed out.
    unsettled: BTreeSet<Arc<MessageQueue>>,
    cached_bytes: usize,
    moves: VecDeque<OffsetMove>,
    failure: Option<ClientError>,
    pub(crate) contacts: Contacts,
    pub(super) counts: Counts,
    /// Whether a round of rebalancing is over.
    is_balanced: bool,
    /// The last epoch that began, in any queue.
    last_epoch: Epoch,
    delivery: Delivery,
    /// What the user knows of the assignment; `None` where nobody asks.
    notices: Option<RebalanceNotices>,
}

impl State {
    pub(crate) fn new(delivery: Delivery) -> Self {
        Self { delivery, ..Self::default() }
    }

    fn next_epoch(&mut self) -> Epoch {
        self.last_epoch = self.last_epoch.next();
        self.last_epoch
    }

    /// Assigns exactly the queues of `wanted` (queue and subscription). With `keep`, those that the user works on are kept for now, and
    /// those of whose loss the user has to be told. In order, a queue whose handler runs is kept in any case.
    pub(crate) fn assign(&mut self, wanted: &BTreeMap<Arc<MessageQueue>, usize>, keep: bool) -> Assignment {
        let mut assignment = Assignment::default();
        let is_gone = |queue: &Arc<MessageQueue>| !wanted.contains_key(queue);
        let gone: Vec<_> = self.queues().filter(|queue| is_gone(queue)).cloned().collect();
        for queue in gone {
            let is_kept = |assigned: &Assigned| keep && self.is_needed(assigned) || self.must_stay(assigned);
            if self.queues.get(&queue).is_some_and(is_kept) {
                let id = self.next_epoch();
                self.set_kept(&queue, Some(id));
                assignment.kept.push(Kept { queue, id });
            } else {
                assignment.lost.extend(self.remove(&queue));
            }
        }
        for (queue, subscription) in wanted {
            if self.queues.get(queue).is_some_and(|assigned| !assigned.is_own()) {
                self.set_kept(queue, None);
                assignment.has_returned = true;
            }
            if !self.queues.contains_key(queue) {
                let id = self.next_epoch();
                let (is_paused, is_pushed) = (self.paused.contains(queue), self.delivery.is_pushed());
                let assigned = Assigned::new(queue.clone(), id, is_paused, is_pushed);
                let changed = assigned.changed.clone();
                let (subscription, is_first) = (*subscription, !self.is_balanced);
                let gained = Gained { queue: queue.clone(), subscription, is_first, id, changed };
                assignment.gained.push(gained);
                self.queues.insert(queue.clone(), assigned);
            }
        }
        assert!(
            self.own().count() == wanted.len(),
            "the own queues of a member are those that it was assigned"
        );
        let prefetched: usize = self.queues.values().map(|assigned| assigned.prefetched.bytes()).sum();
        assert_eq!(
            prefetched, self.cached_bytes,
            "the prefetched bytes of a consumer are those of its queues"
        );
        self.note_change();
        assignment
    }

    /// Whether the user works on messages of a queue, or has to be told before it goes.
    fn is_needed(&self, assigned: &Assigned) -> bool {
        self.is_in_use(assigned) || self.user_knows_of(assigned)
    }

    /// Whether no other member may get the queue, whatever the time: an ordered handler runs with its messages. A message that waits for a
    /// retry does not hold the queue.
    fn must_stay(&self, assigned: &Assigned) -> bool {
        self.delivery.needs_locks() && self.handlers.contains_key(&assigned.queue)
    }

    /// Begins or ends the time in which a queue is only kept for its user.
    fn set_kept(&mut self, queue: &Arc<MessageQueue>, kept: Option<Epoch>) {
        let epoch = self.next_epoch();
        let Some(assigned) = self.queues.get_mut(queue) else { return };
        assert!(kept.is_none() || assigned.is_own(), "one handover at a time keeps a queue");
        assigned.kept = kept;
        // The answer to a pull that is under way is not wanted. If the queue comes back, what was pulled ahead is pulled again.
        assigned.epoch = epoch;
        assigned.at.next_pull = assigned.at.position;
        let dropped = assigned.prefetched.clear();
        assigned.changed.notify_one();
        self.ready.retain(|ready| ready != queue);
        self.uncount_bytes(dropped);
    }

    /// Messages of so many bytes are not prefetched any more.
    fn uncount_bytes(&mut self, bytes: usize) {
        assert!(bytes <= self.cached_bytes, "a consumer drops or hands out only bytes that it counted");
        self.cached_bytes -= bytes;
    }

    /// Gives up queues of `kept`. Takes these and those that came back out of `kept`, and returns their names.
    pub(crate) fn give_up(
        &mut self,
        kept: &mut Vec<Kept>,
        which: GiveUp,
    ) -> (Vec<Arc<MessageQueue>>, Vec<Lost>) {
        let before = kept.len();
        let (mut over, mut lost) = (Vec::new(), Vec::new());
        kept.retain(|Kept { queue, id }| {
            let assigned = self.queues.get(queue).filter(|assigned| assigned.kept == Some(*id));
            let is_here = assigned.is_some();
            let stays = assigned.is_some_and(|assigned| match which {
                GiveUp::Unneeded => self.is_needed(assigned),
                GiveUp::Overdue => self.must_stay(assigned),
                GiveUp::All => false,
            });
            if stays {
                return true;
            }
            over.push(queue.clone());
            if is_here {
                lost.extend(self.remove(queue));
            }
            false
        });
        assert!(over.len() + kept.len() == before, "each queue of a handover is given up or stays kept");
        self.note_change();
        (over, lost)
    }

    /// Leaves out queues that are assigned or kept.
    pub(crate) fn retain_gone(&self, queues: &mut Vec<Arc<MessageQueue>>) {
        queues.retain(|queue| !self.queues.contains_key(queue));
    }

    /// Whether the queue is kept for its user.
    pub(crate) fn is_kept(&self, queue: &MessageQueue) -> bool {
        self.queues.get(queue).is_some_and(|assigned| !assigned.is_own())
    }

    /// What was committed of the kept queues, and what the user is done with.
    pub(crate) fn kept_to_commit(&self) -> Vec<Lost> {
        self.queues.values().filter(|assigned| !assigned.is_own()).map(Assigned::as_lost).collect()
    }

    /// Removes a queue and what was pulled ahead of it.
    fn remove(&mut self, queue: &Arc<MessageQueue>) -> Option<Lost> {
        let mut assigned = self.queues.remove(queue)?;
        self.uncount_bytes(assigned.prefetched.clear());
        assert!(
            !self.queues.is_empty() || self.cached_bytes == 0,
            "a consumer without queues counts no prefetched bytes"
        );
        self.ready.retain(|ready| ready != queue);
        self.unsettled.remove(queue);
        assigned.changed.notify_one();
        self.wake_pulls();
        Some(assigned.as_lost())
    }

    /// Whether the answer to a pull of this assignment and epoch is still wanted.
    pub(crate) fn is_current(&self, queue: &MessageQueue, id: Epoch, epoch: Epoch) -> bool {
        self.queues.get(queue).is_some_and(|assigned| assigned.id == id && assigned.epoch == epoch)
    }

    /// Whether assignment `id` of the queue lasts.
    pub(crate) fn is_assigned(&self, queue: &MessageQueue, id: Epoch) -> bool {
        self.queues.get(queue).is_some_and(|assigned| assigned.id == id && assigned.is_own())
    }

    pub(crate) fn contains(&self, queue: &MessageQueue) -> bool {
        self.queues.get(queue).is_some_and(Assigned::is_own)
    }

    /// Assigned queues, sorted, without those that are only kept for the user.
    pub(crate) fn queues(&self) -> impl Iterator<Item = &Arc<MessageQueue>> {
        self.own().map(|assigned| &assigned.queue)
    }

    pub(super) fn own(&self) -> impl Iterator<Item = &Assigned> {
        self.queues.values().filter(|assigned| assigned.is_own())
    }

    pub(crate) fn queue_count(&self) -> usize {
        self.queues.len()
    }

    /// What the pull task of assignment `id` of `queue` does next.
    pub(crate) fn task(&self, queue: &MessageQueue, id: Epoch, config: &ConsumerConfig) -> Task {
        let Some(assigned) = self.queues.get(queue).filter(|assigned| assigned.id == id) else {
            return Task::End;
        };
        let epoch = assigned.epoch;
        match assigned.at.next_pull {
            _ if !self.may_hand_out(assigned) && assigned.is_own() => Task::Lock,
            None => Task::FindStart { epoch },
            Some(_) if !assigned.is_own() => Task::Wait,
            Some(offset)
                if !assigned.paused
                    && assigned.has_room(config)
                    && (self.cached_bytes < config.prefetch_total_bytes
                        || assigned.prefetched.is_empty()) =>
            {
                Task::Pull { epoch, offset }
            }
            Some(_) => Task::Wait,
        }
    }

    /// Sets the start of a queue, unless a seek came first. `stored`: the broker has this offset for the group.
    pub(crate) fn start(&mut self, queue: &MessageQueue, epoch: Epoch, offset: QueueOffset, stored: bool) {
        if let Some(assigned) = self.queues.get_mut(queue)
            && assigned.epoch == epoch
        {
            assert!(
                assigned.prefetched.is_empty(),
                "nothing is prefetched before the start of a queue is known"
            );
            assert!(assigned.at.next_pull.is_none(), "the start of a queue is found once");
            assigned.at.start(offset, stored);
        }
    }

    /// Takes the result of a pull. True when there are new messages to hand out.
    pub(crate) fn pulled(&mut self, queue: &MessageQueue, epoch: Epoch, pulled: Pulled) -> bool {
        let Some(assigned) = self.queues.get_mut(queue) else { return false };
        if assigned.epoch != epoch {
            return false;
        }
        assert!(assigned.at.next_pull.is_some(), "a queue is pulled from once its start is known");
        (assigned.at.next_pull, assigned.pulled_at) = (Some(pulled.next), Some(Instant::now()));
        let life = self.last_epoch.next();
        assigned.at.end = Some(pulled.end);
        if let Some(from) = pulled.moved {
            let mut to = pulled.next;
            let is_shorter = to < from;
            if is_shorter {
                // What was pulled ahead of the queue's end is no longer there, and what was committed beyond it must not be committed
                // again. What was pulled ahead and survived is pulled again.
                let dropped = assigned.prefetched.clear();
                to = assigned.go_back(to, life, self.delivery.is_ordered());
                self.ready.retain(|ready| **ready != *queue);
                self.last_epoch = life;
                self.uncount_bytes(dropped);
            }
            note_move(&mut self.moves, OffsetMove { queue: queue.clone(), from, to });
            if is_shorter {
                return false; // such an answer has no messages
            }
        }
        let Some(assigned) = self.queues.get_mut(queue) else { return false };
        let Some(part) = pulled.part.filter(|part| !part.is_empty()) else {
            if !assigned.prefetched.extend(pulled.next) {
                assigned.at.position = Some(pulled.next);
                self.unsettled.insert(assigned.queue.clone());
            }
            return false;
        };
        assert!(assigned.is_own(), "nothing is pulled from a queue that is only kept for its user");
        let (messages, was_empty) = (part.len(), assigned.prefetched.is_empty());
        let bytes = assigned.prefetched.push(part, pulled.next);
        self.counts.pulled += Traffic::request(messages, bytes);
        self.cached_bytes += bytes;
        if was_empty && !assigned.paused {
            self.ready.push_back(assigned.queue.clone());
            self.check_ready();
        }
        true
    }

    fn check_ready(&self) {
        let (ready, queues) = (self.ready.len(), self.queues.len());
        assert!(ready <= queues, "a queue with messages is handed out in one turn: {ready} of {queues}");
    }

    /// Hands out up to `max_messages`, queue after queue.
    pub(crate) fn take(&mut self, max_messages: usize, config: &ConsumerConfig) -> PulledBatch {
        let mut batch = PulledBatch::default();
        let mut bytes = 0;
        let (mut left, was_full) = (max_messages, self.cached_bytes >= config.prefetch_total_bytes);
        while left > 0
            && let Some(queue) = self.ready.pop_front()
        {
            let Some(assigned) = self.queues.get_mut(&queue) else { continue };
            let had_room = assigned.has_room(config);
            assigned.consumed_at = Some(Instant::now());
            self.unsettled.insert(queue.clone());
            while left > 0
                && let Some((part, part_bytes)) = assigned.take(left)
            {
                left -= part.len();
                bytes += part_bytes;
                batch.push(part);
            }
            let is_empty = assigned.prefetched.is_empty();
            if (!had_room && assigned.has_room(config)) || (was_full && is_empty) {
                assigned.changed.notify_one();
            }
            if !is_empty {
                self.ready.push_back(queue);
            }
        }
        assert!(
            batch.len() == max_messages - left,
            "a batch has the messages that were taken from the queues"
        );
        if !batch.is_empty() {
            self.uncount_bytes(bytes);
            self.counts.received += Traffic::request(max_messages - left, bytes);
        }
        if was_full && self.cached_bytes < config.prefetch_total_bytes {
            self.wake_pulls();
        }
        batch
    }

    /// Marks everything handed out so far as done. True when a kept queue is among it, which can be given up now.
    pub(crate) fn settle(&mut self) -> bool {
        let mut is_any_kept = false;
        for queue in std::mem::take(&mut self.unsettled) {
            if let Some(assigned) = self.queues.get_mut(&queue) {
                assigned.at.settled = assigned.done_before();
                is_any_kept |= !assigned.is_own();
            }
        }
        is_any_kept
    }

    /// Queues that the next [`settle`](Self::settle) looks at.
    #[cfg(test)]
    pub(crate) fn unsettled(&self) -> Vec<Arc<MessageQueue>> {
        self.unsettled.iter().cloned().collect()
    }

    /// Notes a round of rebalancing.
    pub(crate) const fn balanced(&mut self) {
        self.is_balanced = true;
    }

    /// Whether nothing that is sent from now on is missed in the queues of this member: each has its start, unless the user is told why
    /// not.
    pub(crate) fn has_joined(&self) -> bool {
        let has_starts = || self.queues.values().all(|assigned| assigned.at.position.is_some());
        self.is_balanced && (self.failure.is_some() || has_starts())
    }

    /// Checks a commit on demand: the queue must be assigned or kept, and the offset not above what was handed out. What was handed out
    /// before a reset does not count: then the offset is that of the reset.
    pub(crate) fn check_commit(
        &self,
        queue: &MessageQueue,
        offset: QueueOffset,
    ) -> Result<(Arc<MessageQueue>, QueueOffset), ClientError> {
        let assigned =
            self.queues.get(queue).and_then(|assigned| Some((&assigned.queue, assigned.at.position?)));
        let Some((shared, position)) = assigned else {
            return Err(ClientError::NotAssigned { queue: queue.clone() });
        };
        let is_of_before = self.queues.get(queue).is_some_and(|assigned| assigned.at.is_reset);
        if is_of_before {
            return Ok((shared.clone(), position));
        }
        if offset > position {
            let (queue, min) = (queue.clone(), QueueOffset(0));
            return Err(ClientError::OffsetOutOfRange { queue, offset, min, max: position });
        }
        Ok((shared.clone(), offset))
    }

    /// Notes a commit on demand, so that automatic commits before the next poll do not undo it.
    pub(crate) fn settle_at(&mut self, queue: &MessageQueue, offset: QueueOffset) {
        if let Some(assigned) = self.queues.get_mut(queue) {
            assert!(Some(offset) <= assigned.at.position, "no more is settled than was handed out");
            assigned.at.settled = Some(offset);
            self.unsettled.insert(assigned.queue.clone());
        }
    }

    /// The offsets that a commit must send: those that the broker does not have yet. Without [`kept_to_commit`](Self::kept_to_commit).
    pub(crate) fn to_commit(&self, scope: CommitScope) -> Vec<(Arc<MessageQueue>, QueueOffset)> {
        let offset = |assigned: &Assigned| match scope {
            CommitScope::HandedOut => assigned.at.position,
            CommitScope::Settled => assigned.at.settled,
        };
        self.own()
            .filter(|assigned| offset(assigned) != assigned.at.committed && self.may_hand_out(assigned))
            .filter_map(|assigned| Some((assigned.queue.clone(), offset(assigned)?)))
            .collect()
    }

    /// Notes an acknowledged commit.
    pub(crate) fn committed(&mut self, queue: &MessageQueue, offset: QueueOffset) {
        if let Some(assigned) = self.queues.get_mut(queue) {
            assigned.at.committed = Some(offset);
        }
    }

    /// The last acknowledged commits, which a restarted broker may have forgotten.
    pub(crate) fn acknowledged(&self) -> Vec<(Arc<MessageQueue>, QueueOffset)> {
        let of = |assigned: &Assigned| Some((assigned.queue.clone(), assigned.at.committed?));
        self.own().filter_map(of).collect()
    }

    /// The furthest offset that this member has of each queue, also of those that are kept.
    pub(crate) fn furthest(&self) -> BTreeMap<Arc<MessageQueue>, QueueOffset> {
        let of = |assigned: &Assigned| Some((assigned.queue.clone(), assigned.at.furthest()?));
        self.queues.values().filter_map(of).collect()
    }

    /// The offset after the last message handed out, per queue.
    pub(crate) fn positions(&self) -> Vec<(MessageQueue, QueueOffset)> {
        let of = |assigned: &Assigned| Some(((*assigned.queue).clone(), assigned.at.position?));
        self.own().filter_map(of).collect()
    }

    /// Continues at `offset` and drops what was pulled ahead. False when the queue is not assigned.
    pub(crate) fn seek(&mut self, queue: &MessageQueue, offset: QueueOffset) -> bool {
        let epoch = self.next_epoch();
        let Some(assigned) = self.queues.get_mut(queue) else { return false };
        assigned.begin(epoch);
        assigned.at.seek(offset);
        self.unsettled.insert(assigned.queue.clone());
        let dropped = assigned.prefetched.clear();
        assigned.changed.notify_one();
        self.ready.retain(|ready| **ready != *queue);
        self.uncount_bytes(dropped);
        self.wake_pulls();
        true
    }

    /// Continues at the offset that the group was set to: what was handed out before does not count any longer, and what was pulled
    /// ahead is dropped. False when the queue is not assigned.
    pub(crate) fn reset(&mut self, queue: &MessageQueue, to: QueueOffset) -> bool {
        if !self.contains(queue) {
            return false;
        }
        let position = self.queues.get(queue).and_then(|assigned| assigned.at.position);
        self.begin_at(queue, to);
        if let Some(from) = position.filter(|from| *from != to) {
            note_move(&mut self.moves, OffsetMove { queue: queue.clone(), from, to });
        }
        true
    }

    /// Continues at the offset that the group was set to.
    fn begin_at(&mut self, queue: &MessageQueue, to: QueueOffset) {
        self.seek(queue, to);
        self.settle_at(queue, to);
        if let Some(assigned) = self.queues.get_mut(queue) {
            assigned.at.reset();
        }
    }

    /// The broker has sent this member to an offset, which was noted in this epoch, because the group was set to it: what was pulled ahead
    /// before it is skipped too.
    pub(crate) fn was_reset(&mut self, queue: &MessageQueue, epoch: Epoch, to: QueueOffset) {
        let assigned = self.queues.get(queue).filter(|assigned| assigned.epoch == epoch && assigned.is_own());
        let Some(position) = assigned.and_then(|assigned| assigned.at.position) else { return };
        self.begin_at(queue, to);
        if position < to {
            if self.moves.back().is_some_and(|noted| noted.queue == *queue) {
                self.moves.pop_back();
            }
            note_move(&mut self.moves, OffsetMove { queue: queue.clone(), from: position, to });
        }
    }

    /// Continues where the broker sends this member, which it said in answer to a question: what a pull under way returns is dropped.
    /// Returns the epoch that begins; `None` if the queue is not assigned, or its start is not known yet.
    pub(crate) fn sent_to(&mut self, queue: &MessageQueue, answer: Pulled) -> Option<Epoch> {
        let epoch = self.next_epoch();
        let assigned = self.queues.get_mut(queue).filter(|assigned| assigned.at.next_pull.is_some())?;
        assigned.epoch = epoch;
        assigned.changed.notify_one();
        let has_messages = self.pulled(queue, epoch, answer);
        assert!(!has_messages, "an answer that sends this member to another offset has no messages");
        self.wake_pulls();
        Some(epoch)
    }

    /// Continues at `offset` if messages after it were handed out.
    pub(crate) fn take_back(&mut self, queue: &MessageQueue, offset: QueueOffset) {
        if self.queues.get(queue).is_some_and(|assigned| assigned.at.position > Some(offset)) {
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
                if !assigned.prefetched.is_empty() {
                    self.ready.push_back(queue);
                    self.check_ready();
                }
            }
        }
        true
    }

    /// Resumes every queue, even those assigned to another member.
    pub(crate) fn resume_all(&mut self) {
        for queue in self.paused.clone() {
            self.set_paused(&queue, false);
        }
    }

    /// Keeps an error for the next poll. A later one replaces it.
    pub(crate) fn fail(&mut self, error: ClientError) {
        self.failure = Some(error);
    }

    pub(crate) fn take_failure(&mut self) -> Option<ClientError> {
        self.failure.take()
    }

    /// The offsets up to which the user is done with the assigned queues of a topic.
    pub(crate) fn settled(&self, topic: &str) -> impl Iterator<Item = (&MessageQueue, QueueOffset)> {
        self.own()
            .filter(move |assigned| *assigned.queue.topic == *topic)
            .filter_map(|assigned| Some((&*assigned.queue, assigned.at.settled?)))
    }

    pub(crate) fn take_moves(&mut self) -> Vec<OffsetMove> {
        self.moves.drain(..).collect()
    }

    /// Wakes every pull task.
    pub(crate) fn wake_pulls(&self) {
        for assigned in self.queues.values() {
            assigned.changed.notify_one();
        }
    }
}

fn note_move(moves: &mut VecDeque<OffsetMove>, to: OffsetMove) {
    if moves.len() == MAX_MOVES {
        moves.pop_front();
    }
    moves.push_back(to);
}
