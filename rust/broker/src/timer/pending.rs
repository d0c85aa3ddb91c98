//! Records of the timer topic that are not in the wheel yet and may change deliveries.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use rocketpy_model::QueueOffset;
use rocketpy_store::timer::SLOT_MS;

use crate::refusal::Refusal;

/// Maximum number of pending records. Above it recalls are refused, and no record is stored again.
pub(super) const MAX_PENDING: usize = 1 << 16;
/// Maximum number of recalls of one slot: all of them are in memory while the slot is delivered, about 50 bytes each.
pub(super) const MAX_RECALLS_OF_SLOT: usize = 1 << 18;

/// Recalls, and messages that were stored again, until they are taken into the wheel: nothing of their slots, or of later ones, is
/// delivered before. Recalls are added by the threads that store them.
#[derive(Debug, Default)]
pub(crate) struct PendingRecords(Mutex<Slots>);

#[derive(Debug, Default)]
struct Slots {
    by_offset: BTreeMap<QueueOffset, i64>,
    /// Number of them per slot.
    counts: BTreeMap<i64, usize>,
    /// Number of recalls per slot of the wheel. No more slots than the wheel has.
    recalls: BTreeMap<i64, usize>,
}

impl PendingRecords {
    /// With recalls that are in the wheel, by slot.
    pub(super) fn new(recalls: BTreeMap<i64, usize>) -> Self {
        Self(Mutex::new(Slots { recalls, ..Slots::default() }))
    }

    /// Whether there is room for one more recall of a message that is due at a time. To be asked before that is stored.
    ///
    /// # Errors
    /// [`Refusal::PendingRecalls`], [`Refusal::RecallsOfSecond`].
    pub(crate) fn check_recall_at(&self, due_at_ms: i64) -> Result<(), Refusal> {
        self.check_recall(slot_of(due_at_ms))
    }

    /// Before the recall of a message is answered: from now on that is not delivered.
    pub(crate) fn recall_was_put(&self, queue_offset: QueueOffset, due_at_ms: i64) {
        self.add(queue_offset, slot_of(due_at_ms));
    }

    fn check_recall(&self, slot_ms: i64) -> Result<(), Refusal> {
        let slots = self.0.lock();
        if slots.by_offset.len() >= MAX_PENDING {
            return Err(Refusal::PendingRecalls { limit: MAX_PENDING });
        }
        let count = |counts: &BTreeMap<i64, usize>| counts.get(&slot_ms).copied().unwrap_or(0);
        if count(&slots.counts) + count(&slots.recalls) >= MAX_RECALLS_OF_SLOT {
            return Err(Refusal::RecallsOfSecond { limit: MAX_RECALLS_OF_SLOT });
        }
        Ok(())
    }

    /// Whether nothing may be stored again for now.
    pub(super) fn is_full(&self) -> bool {
        self.0.lock().by_offset.len() >= MAX_PENDING
    }

    /// A recall for a slot was taken into the wheel. One that is stored again on the way counts each time.
    pub(super) fn recall_is_in_wheel(&self, slot_ms: i64) {
        *self.0.lock().recalls.entry(slot_ms).or_default() += 1;
    }

    /// All slots before this time are done.
    pub(super) fn slots_are_done(&self, read_ms: i64) {
        let recalls = &mut self.0.lock().recalls;
        *recalls = recalls.split_off(&read_ms);
    }

    /// A message was stored.
    pub(super) fn add(&self, queue_offset: QueueOffset, slot_ms: i64) {
        let slots = &mut *self.0.lock();
        // The earlier slot of the two stays: it also holds messages before this one that are not in the wheel yet.
        let before_ms = slots.by_offset.get(&queue_offset).copied();
        let slot_ms = before_ms.map_or(slot_ms, |before_ms| before_ms.min(slot_ms));
        if let Some(before_ms) = slots.by_offset.insert(queue_offset, slot_ms) {
            slots.leave(before_ms);
        }
        *slots.counts.entry(slot_ms).or_default() += 1;
    }

    /// Another one takes the place of this one, which keeps what was added to it.
    pub(super) fn replace(&self, other: &Self) {
        let other = std::mem::take(&mut *other.0.lock());
        self.0.lock().recalls = other.recalls;
        other.by_offset.into_iter().for_each(|(queue_offset, slot_ms)| self.add(queue_offset, slot_ms));
    }

    /// All messages before this one are taken.
    pub(super) fn taken(&self, next: QueueOffset) {
        let slots = &mut *self.0.lock();
        while let Some(first) = slots.by_offset.first_entry().filter(|first| *first.key() < next) {
            let slot_ms = first.remove();
            slots.leave(slot_ms);
        }
        let (waiting, slots) = (slots.by_offset.len(), slots.counts.len());
        assert!(slots <= waiting, "no slot waits without a message: {slots} slots, {waiting} messages");
    }

    /// Nothing is waited for: whether something was.
    pub(super) fn give_up(&self) -> bool {
        let slots = &mut *self.0.lock();
        slots.counts.clear();
        !std::mem::take(&mut slots.by_offset).is_empty()
    }

    /// Whether nothing of a slot may be delivered.
    pub(super) fn holds(&self, slot_ms: i64) -> bool {
        self.first_slot_ms().is_some_and(|first_ms| first_ms <= slot_ms)
    }

    /// The first slot of which nothing may be delivered.
    pub(super) fn first_slot_ms(&self) -> Option<i64> {
        self.0.lock().counts.keys().next().copied()
    }
}

impl Slots {
    /// A message of a slot waits no more.
    fn leave(&mut self, slot_ms: i64) {
        let count = self.counts.entry(slot_ms).or_default();
        assert!(*count > 0, "a message that waits is counted for its slot: {slot_ms}");
        *count -= 1;
        if *count == 0 {
            self.counts.remove(&slot_ms);
        }
    }
}

/// The slot of a time: the last whole second before it.
///
/// # Source
/// docs/reference/store-format.md 8.4 rule 3.
pub(crate) fn slot_of(due_at_ms: i64) -> i64 {
    due_at_ms.saturating_sub(1).div_euclid(SLOT_MS).saturating_mul(SLOT_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_held_until_all_of_its_messages_are_taken() {
        let pending = PendingRecords::default();
        for (offset, slot_ms) in [(5, 9000), (3, 7000), (5, 9000), (4, 7000)] {
            pending.add(QueueOffset(offset), slot_ms);
        }
        let after = |next| {
            pending.taken(QueueOffset(next));
            pending.first_slot_ms()
        };
        assert_eq!([3, 4, 5, 6].map(after), [Some(7000), Some(7000), Some(9000), None]);
        assert!(!pending.give_up());
        pending.add(QueueOffset(7), 1000);
        assert!(pending.give_up());
        assert_eq!(pending.first_slot_ms(), None);
    }

    #[test]
    fn a_message_that_is_added_again_for_another_slot_holds_only_that_one() {
        let pending = PendingRecords::default();
        pending.add(QueueOffset(5), 9000);
        let found = PendingRecords::default();
        found.add(QueueOffset(5), 7000);
        pending.replace(&found);
        assert_eq!(pending.first_slot_ms(), Some(7000));
        pending.taken(QueueOffset(6));
        assert_eq!(pending.first_slot_ms(), None, "nothing is held for ever");
    }

    #[test]
    fn recalls_have_a_bound_until_they_are_taken_and_for_each_slot_until_it_is_done() {
        let pending = PendingRecords::default();
        for offset in 0..MAX_PENDING as u64 {
            pending.check_recall(1000).unwrap();
            pending.add(QueueOffset(offset), 1000);
        }
        assert!(pending.is_full());
        assert!(matches!(pending.check_recall(9000), Err(Refusal::PendingRecalls { .. })));
        pending.taken(QueueOffset(1));
        pending.check_recall(9000).unwrap();
        for _ in 0..MAX_RECALLS_OF_SLOT - MAX_PENDING + 1 {
            pending.check_recall(1000).unwrap();
            pending.recall_is_in_wheel(1000);
        }
        assert!(matches!(pending.check_recall(1000), Err(Refusal::RecallsOfSecond { .. })));
        pending.check_recall(2000).unwrap();
        assert!(pending.give_up());
        pending.slots_are_done(1001);
        pending.check_recall(1000).unwrap();
    }
}
