//! Which changes of the assignment the user knows.

use std::collections::BTreeMap;
use std::sync::Arc;

use rocketpy_model::MessageQueue;

use super::State;
use crate::consumer::assigned::Assigned;
use crate::consumer::epoch::Epoch;

/// Queues that a member gained or lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueChange {
    /// The queues with the first epochs of their assignments, sorted.
    queues: Vec<(Arc<MessageQueue>, Epoch)>,
    is_gain: bool,
}

impl QueueChange {
    /// The queues, sorted.
    pub fn queues(&self) -> impl Iterator<Item = &MessageQueue> {
        self.queues.iter().map(|(queue, _)| &**queue)
    }

    /// Whether the member gained them. Otherwise it loses them, or has lost them.
    pub fn is_gain(&self) -> bool {
        self.is_gain
    }
}

/// The assignment as the user knows it. Memory is bounded by the queues, however slow the user is.
#[derive(Debug, Default)]
pub(super) struct RebalanceNotices {
    queues: BTreeMap<Arc<MessageQueue>, Epoch>,
    /// The assignment may have changed since the user was notified.
    is_stale: bool,
    /// The member leaves its group, and with it all queues.
    is_leaving: bool,
    /// The user is being told of a change, by the task that [took](State::next_change) it.
    is_delivering: bool,
}

impl State {
    /// Tells the user of changes from now on.
    pub(crate) fn tell_changes(&mut self) {
        self.notices = Some(RebalanceNotices::default());
    }

    /// What the user has to be told next: losses first. The same again until [`delivered`](Self::delivered), unless it changed back.
    pub(crate) fn change(&mut self) -> Option<QueueChange> {
        let notices = self.notices.as_ref().filter(|notices| notices.is_stale)?;
        let is_leaving = notices.is_leaving;
        let is_gone =
            |(queue, id): &(&Arc<MessageQueue>, &Epoch)| is_leaving || !self.is_assigned(queue, **id);
        // Handlers that work on messages of a queue come first; they have a bounded time.
        let is_free = |(queue, id): &(&Arc<MessageQueue>, &Epoch)| {
            let is_busy = |assigned: &Assigned| assigned.id == **id && self.is_in_use(assigned);
            is_leaving || !self.delivery.is_pushed() || !self.queues.get(*queue).is_some_and(is_busy)
        };
        let gone = || notices.queues.iter().filter(is_gone);
        let lost: Vec<_> = gone().filter(is_free).map(|(queue, id)| (queue.clone(), *id)).collect();
        if !lost.is_empty() {
            return Some(QueueChange { queues: lost, is_gain: false });
        }
        let is_new = |assigned: &&Assigned| !is_leaving && !notices.queues.contains_key(&assigned.queue);
        let gained: Vec<_> =
            self.own().filter(is_new).map(|assigned| (assigned.queue.clone(), assigned.id)).collect();
        if !gained.is_empty() {
            return Some(QueueChange { queues: gained, is_gain: true });
        }
        let is_stale = gone().next().is_some();
        self.notices.as_mut()?.is_stale = is_stale;
        None
    }

    /// As [`change`](Self::change), for the one task that then tells the user.
    pub(crate) fn next_change(&mut self) -> Option<QueueChange> {
        let change = self.change()?;
        self.notices.as_mut()?.is_delivering = true;
        Some(change)
    }

    /// Whether there is nothing to tell, and the user is not being told of something.
    pub(crate) fn has_delivered_all(&mut self) -> bool {
        self.change().is_none() && !self.notices.as_ref().is_some_and(|notices| notices.is_delivering)
    }

    /// Notes that the user was told.
    pub(crate) fn delivered(&mut self, change: &QueueChange) {
        let Some(notices) = &mut self.notices else { return };
        for (queue, id) in &change.queues {
            if change.is_gain {
                notices.queues.insert(queue.clone(), *id);
            } else {
                notices.queues.remove(queue);
            }
        }
        (notices.is_stale, notices.is_delivering) = (true, false);
    }

    /// From now on the member has no queue, as far as its user is concerned.
    pub(crate) fn begin_leaving(&mut self) {
        if let Some(notices) = &mut self.notices {
            (notices.is_leaving, notices.is_stale) = (true, true);
        }
    }

    /// Notes that the assignment changed.
    pub(super) fn note_change(&mut self) {
        if let Some(notices) = &mut self.notices {
            notices.is_stale = true;
        }
    }

    /// Whether the user knows that the member has, or had, this assignment.
    pub(super) fn user_knows_of(&self, assigned: &Assigned) -> bool {
        let known = |notices: &RebalanceNotices| notices.queues.get(&assigned.queue) == Some(&assigned.id);
        self.notices.as_ref().is_some_and(known)
    }

    /// Whether messages of the queue must wait until the user knows of it.
    pub(super) fn awaits_notice(&self, assigned: &Assigned) -> bool {
        self.notices.is_some() && !self.user_knows_of(assigned)
    }
}
