//! What handlers get and finish, and the locks of queues that are read in order.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use rocketpy_env::planted::{self, Bug};
use rocketpy_model::MessageQueue;

use super::State;
use crate::config::ConsumerConfig;
use crate::consumer::assigned::Assigned;
use crate::consumer::batch::PulledPart;
use crate::consumer::epoch::Epoch;
use crate::consumer::push::ProcessQueue;

/// Messages of one queue that a handler gets.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) part: PulledPart,
    /// Says when they were handed out, for [`State::finish`].
    pub(crate) life: Epoch,
    /// Becomes true when they are not wanted any more.
    pub(crate) over: Arc<AtomicBool>,
}

/// What the end of messages, or of a handler, changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Finished {
    /// A queue that was kept for its handlers can be given up, perhaps only once its time is over.
    pub(crate) is_kept_free: bool,
    /// A queue that is handed out in order can be handed out on.
    pub(crate) is_next_due: bool,
}

impl State {
    /// Hands out messages of one queue to a handler: up to as many as `most` says for the queue.
    pub(crate) fn take_part(
        &mut self,
        config: &ConsumerConfig,
        most: impl Fn(&MessageQueue) -> usize,
    ) -> Option<Taken> {
        for _ in 0..self.ready.len() {
            let queue = self.ready.pop_front()?;
            let may_hand_out = self.queues.get(&queue).is_some_and(|assigned| {
                let must_wait = self.delivery.is_ordered()
                    && self.is_at_work(assigned)
                    && !planted::has(Bug::OrderGivenUp)
                    || self.awaits_notice(assigned);
                !must_wait && self.may_hand_out(assigned)
            });
            let (count, was_full) = (most(&queue), self.cached_bytes >= config.prefetch_total_bytes);
            let Some(assigned) = self.queues.get_mut(&queue) else { continue };
            let taken = if may_hand_out && count > 0 { assigned.take(count) } else { None };
            if !assigned.prefetched.is_empty() {
                self.ready.push_back(queue.clone());
            }
            let (Some((part, bytes)), Some(in_work)) = (taken, &assigned.in_work) else { continue };
            assert!(!part.is_empty(), "a part that is handed out has a message");
            let (life, over) = (assigned.life, in_work.over().clone());
            self.uncount_bytes(bytes);
            self.unsettled.insert(queue);
            if was_full {
                self.wake_pulls();
            }
            return Some(Taken { part, life, over });
        }
        None
    }

    /// Notes that a handler begins with messages of a queue that is read in order.
    pub(crate) fn handler_began(&mut self, queue: &Arc<MessageQueue>) {
        assert!(self.delivery.is_ordered(), "handlers are counted where they must not overlap");
        *self.handlers.entry(queue.clone()).or_default() += 1;
    }

    /// Notes that a handler that [began](Self::handler_began) has returned.
    pub(crate) fn handler_ended(&mut self, queue: &MessageQueue) -> Finished {
        let count = self.handlers.get_mut(queue).expect("a handler that ends has begun");
        *count -= 1;
        if *count > 0 {
            return Finished::default();
        }
        self.handlers.remove(queue);
        self.queues.get(queue).map(|assigned| self.finished(assigned)).unwrap_or_default()
    }

    /// Whether a handler runs with messages of the queue, also with those that are not wanted any more, or messages of it are being sent back.
    fn is_at_work(&self, assigned: &Assigned) -> bool {
        self.handlers.contains_key(&assigned.queue)
            || assigned.in_work.as_ref().is_some_and(|in_work| in_work.unfinished() > 0)
    }

    /// Whether the user works on messages of the queue, where order counts also on those that are not wanted any more.
    pub(super) fn is_in_use(&self, assigned: &Assigned) -> bool {
        assigned.at.is_in_use() || self.delivery.is_ordered() && self.is_at_work(assigned)
    }

    /// What is possible with the queue now.
    fn finished(&self, assigned: &Assigned) -> Finished {
        let (is_free, is_ordered) = (!self.is_at_work(assigned), self.delivery.is_ordered());
        // In order, what waits for another try holds a queue back only until its time is over.
        let may_go = is_free || is_ordered && !self.handlers.contains_key(&assigned.queue);
        Finished {
            is_kept_free: may_go && !assigned.is_own(),
            is_next_due: is_free && is_ordered && !assigned.prefetched.is_empty(),
        }
    }

    /// Whether there are messages to hand out, or were pulled of a queue that may not be handed out now.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Whether nothing forbids to hand out messages of the queue: where order counts it needs its lock.
    pub(super) fn may_hand_out(&self, assigned: &Assigned) -> bool {
        !self.delivery.needs_locks() || assigned.is_locked()
    }

    /// Notes that handlers are done with messages of `part`.
    pub(crate) fn finish(&mut self, part: &PulledPart, life: Epoch, config: &ConsumerConfig) -> Finished {
        let Some(assigned) = self.queues.get_mut(part.queue()) else { return Finished::default() };
        let had_room = assigned.has_room(config);
        let Some(in_work) = &mut assigned.in_work else { return Finished::default() };
        in_work.finish(part.spans(), life);
        assigned.consumed_at = Some(Instant::now());
        assigned.at.settled = assigned.done_before();
        if !had_room && assigned.has_room(config) {
            assigned.changed.notify_one();
        }
        self.queues.get(part.queue()).map(|assigned| self.finished(assigned)).unwrap_or_default()
    }

    /// Number of messages that handlers have, or that are being sent back.
    pub(crate) fn unfinished(&self) -> usize {
        let of = |assigned: &Assigned| assigned.in_work.as_ref().map_or(0, ProcessQueue::unfinished);
        self.queues.values().map(of).sum()
    }

    /// Notes what a broker said of the locks of these queues, which were asked for at `asked_at`. A queue whose lock was not held before
    /// starts again from its stored offset: another member may have had it.
    pub(crate) fn locked(
        &mut self,
        queues: &[Arc<MessageQueue>],
        held: &BTreeSet<Arc<MessageQueue>>,
        asked_at: Instant,
    ) {
        for queue in queues {
            let epoch = self.next_epoch();
            let Some(assigned) = self.queues.get_mut(queue) else { continue };
            let was_locked = assigned.is_locked();
            assigned.locked = held.contains(queue).then_some(asked_at);
            if assigned.is_locked() == was_locked {
                continue;
            }
            assigned.begin(epoch);
            assigned.at.forget();
            let dropped = assigned.prefetched.clear();
            assigned.changed.notify_one();
            self.ready.retain(|ready| ready != queue);
            self.uncount_bytes(dropped);
        }
    }

    /// Every queue whose lock is held, also those that are kept.
    pub(crate) fn locked_queues(&self) -> Vec<Arc<MessageQueue>> {
        let locked = self.queues.values().filter(|assigned| assigned.locked.is_some());
        locked.map(|assigned| assigned.queue.clone()).collect()
    }
}
