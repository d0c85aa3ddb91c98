//! What lies in the timer topic, is not in the wheel yet, and may change what is delivered.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rocketpy_model::QueueOffset;

/// Recalls, and messages that were stored again, until they are taken into the wheel: nothing of their slots, or of later ones, is
/// delivered before. Recalls are added by the threads that store them.
#[derive(Debug, Default)]
pub(super) struct Untaken(Mutex<Slots>);

#[derive(Debug, Default)]
struct Slots {
    by_offset: BTreeMap<QueueOffset, i64>,
    /// How many of them each slot has.
    counts: BTreeMap<i64, usize>,
}

impl Untaken {
    /// A message was stored.
    pub(super) fn add(&self, queue_offset: QueueOffset, slot_ms: i64) {
        let slots = &mut *self.0.lock();
        if slots.by_offset.insert(queue_offset, slot_ms).is_none() {
            *slots.counts.entry(slot_ms).or_default() += 1;
        }
    }

    /// Adds all of them to others.
    pub(super) fn move_to(self: Arc<Self>, others: &Self) {
        let moved = std::mem::take(&mut *self.0.lock());
        moved.by_offset.into_iter().for_each(|(queue_offset, slot_ms)| others.add(queue_offset, slot_ms));
    }

    /// All messages before this one are taken.
    pub(super) fn taken(&self, next: QueueOffset) {
        let slots = &mut *self.0.lock();
        while let Some(first) = slots.by_offset.first_entry().filter(|first| *first.key() < next) {
            let slot_ms = first.remove();
            if let Some(count) = slots.counts.get_mut(&slot_ms) {
                *count -= 1;
                if *count == 0 {
                    slots.counts.remove(&slot_ms);
                }
            }
        }
    }

    /// Nothing is waited for: whether something was.
    pub(super) fn give_up(&self) -> bool {
        !std::mem::take(&mut *self.0.lock()).by_offset.is_empty()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_held_until_all_of_its_messages_are_taken() {
        let untaken = Untaken::default();
        for (offset, slot_ms) in [(5, 9000), (3, 7000), (5, 9000), (4, 7000)] {
            untaken.add(QueueOffset(offset), slot_ms);
        }
        let after = |next| {
            untaken.taken(QueueOffset(next));
            untaken.first_slot_ms()
        };
        assert_eq!([3, 4, 5, 6].map(after), [Some(7000), Some(7000), Some(9000), None]);
        assert!(!untaken.give_up());
        untaken.add(QueueOffset(7), 1000);
        assert!(untaken.give_up());
        assert_eq!(untaken.first_slot_ms(), None);
    }
}
