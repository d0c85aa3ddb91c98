//! The messages that are recalled, of the slots that are in memory.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use rocketpy_env::random_u64;

/// With more recalls in memory no further slot is read while messages of earlier ones wait.
pub(super) const READ_AHEAD_RECALLS: usize = 1 << 16;

/// Messages that are recalled. They are told by 128 bits of hash: a unique key may be as long as all properties.
#[derive(Debug)]
pub(super) struct Recalled {
    seeds: [u64; 2],
    /// The slot after which each recall is over.
    last_slots: HashMap<[u64; 2], i64>,
}

impl Default for Recalled {
    fn default() -> Self {
        Self { seeds: [random_u64(), random_u64()], last_slots: HashMap::new() }
    }
}

impl Recalled {
    pub(super) fn len(&self) -> usize {
        self.last_slots.len()
    }

    /// Adds a message by its key, which the recall may write with or without the topic.
    ///
    /// # Source
    /// docs/reference/store-format.md 8.5.
    pub(super) fn insert(&mut self, topic: &str, recalls: &str, last_slot_ms: i64) {
        let key = recalls.strip_prefix(topic).and_then(|rest| rest.strip_prefix('+')).unwrap_or(recalls);
        self.last_slots.insert(self.hash(topic, key), last_slot_ms);
    }

    pub(super) fn contains(&self, topic: &str, key: &str) -> bool {
        !self.last_slots.is_empty() && self.last_slots.contains_key(&self.hash(topic, key))
    }

    /// All slots before this time are done.
    pub(super) fn forget_before(&mut self, read_ms: i64) {
        self.last_slots.retain(|_, last_slot_ms| *last_slot_ms >= read_ms);
        if self.last_slots.is_empty() {
            self.last_slots = HashMap::new(); // there may have been many
        }
    }

    fn hash(&self, topic: &str, key: &str) -> [u64; 2] {
        self.seeds.map(|seed| {
            let mut hasher = DefaultHasher::new();
            (seed, topic, key).hash(&mut hasher);
            hasher.finish()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recall_names_its_message_with_or_without_the_topic_until_its_slot_is_done() {
        let mut recalled = Recalled::default();
        recalled.insert("orders", "orders+a", 1000);
        recalled.insert("orders", "b", 2000);
        let found = |recalled: &Recalled| {
            [("orders", "a"), ("orders", "b"), ("other", "a"), ("orders", "orders+a")]
                .map(|(topic, key)| recalled.contains(topic, key))
        };
        assert_eq!(found(&recalled), [true, true, false, false]);
        recalled.forget_before(1001);
        assert_eq!(found(&recalled), [false, true, false, false]);
        recalled.forget_before(3000);
        assert_eq!(recalled.len(), 0);
    }
}
