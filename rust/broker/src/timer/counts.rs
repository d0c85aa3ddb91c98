//! Number of waiting messages per topic.

use std::collections::HashMap;

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

    pub(super) fn version(&self) -> DataVersion {
        self.0.lock().version
    }
}
