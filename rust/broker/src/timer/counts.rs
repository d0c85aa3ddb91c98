//! Number of waiting messages per topic and per slot.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use parking_lot::Mutex;
use rocketpy_env::now_ms;
use rocketpy_model::DataVersion;
use rocketpy_store::timer::TimerUnit;

/// Counts by the hash of a topic: units name no other.
#[derive(Debug, Default)]
pub(super) struct Counts(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    version: DataVersion,
    /// How many, and since when, in Unix milliseconds.
    by_hash: HashMap<i32, (i64, i64)>,
    /// How many, by the start of their slot in Unix milliseconds.
    by_slot: BTreeMap<i64, u64>,
}

impl Counts {
    /// A message waits.
    pub(super) fn add(&self, unit: &TimerUnit) {
        self.change(unit, 1);
    }

    /// A message does not wait any more.
    pub(super) fn remove(&self, unit: &TimerUnit) {
        self.change(unit, -1);
    }

    /// Other counts take the place of these.
    pub(super) fn replace(&self, others: Self) {
        let mut inner = self.0.lock();
        let version = inner.version.next(now_ms());
        *inner = Inner { version, ..others.0.into_inner() };
    }

    fn change(&self, unit: &TimerUnit, by: i64) {
        if unit.flags & TimerUnit::RECALL != 0 {
            return;
        }
        let (mut inner, at_ms) = (self.0.lock(), now_ms());
        let inner = &mut *inner;
        let in_slot = inner.by_slot.entry(unit.slot_ms).or_default();
        *in_slot = in_slot.saturating_add_signed(by);
        if *in_slot == 0 {
            inner.by_slot.remove(&unit.slot_ms);
        }
        inner.version = inner.version.next(at_ms);
        let count = inner.by_hash.entry(unit.topic_hash).or_default();
        *count = (count.0 + by, at_ms);
        if count.0 <= 0 {
            inner.by_hash.remove(&unit.topic_hash);
        }
    }

    /// How many wait for the topic of a hash, and since when.
    pub(super) fn of(&self, topic_hash: i32) -> Option<(i64, i64)> {
        self.0.lock().by_hash.get(&topic_hash).copied()
    }

    /// How many wait in the slots of each range.
    pub(super) fn in_slots(&self, ranges: &[Range<i64>]) -> Vec<u64> {
        let inner = self.0.lock();
        let count = |range: &Range<i64>| match range.is_empty() {
            true => 0,
            false => inner.by_slot.range(range.clone()).map(|(_, count)| count).sum(),
        };
        ranges.iter().map(count).collect()
    }

    pub(super) fn version(&self) -> DataVersion {
        self.0.lock().version
    }
}
