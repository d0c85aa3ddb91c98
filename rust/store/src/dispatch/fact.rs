//! What dispatch needs to know of a record.

use rocketpy_model::{property, system};
use rocketpy_protocol::properties_text;

use crate::index::Key;

/// Stands for the queue of a record that gets no entry.
pub(crate) const NO_QUEUE: u64 = u64::MAX;

/// One record as dispatch sees it: known at append, or parsed from the log.
#[doc(alias = "DispatchRequest")]
#[derive(Debug)]
pub(crate) struct Fact {
    /// The uid of the record's queue, or [`NO_QUEUE`]. No counted reference: append and dispatch run on different cores
    /// and would pass the count back and forth.
    pub queue: u64,
    pub physical_offset: u64,
    pub size_bytes: u32,
    /// How many hashes of its keys come with it.
    pub keys: u32,
    pub queue_offset: u64,
    pub tags_code: i64,
    pub stored_at_ms: i64,
}

impl Fact {
    /// One of its keys.
    pub fn key(&self, hash: u32) -> Key {
        Key { hash, physical_offset: self.physical_offset, stored_at_ms: self.stored_at_ms }
    }

    /// Offset behind the record.
    pub fn end(&self) -> u64 {
        self.physical_offset + u64::from(self.size_bytes)
    }
}

/// What the tag code of a record is made of.
///
/// # Source
/// spec/store.md 2.8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TagSource {
    /// The hash of the tag, or 0.
    Tag(i64),
    /// A message of the schedule topic: the time of delivery, this many milliseconds after it is stored.
    Delay(i64),
}

impl TagSource {
    /// Looks at the properties of a record.
    pub fn of(topic: &str, properties: &[u8]) -> Self {
        let value = |name| properties_text::get(properties, name);
        if topic == system::SCHEDULE_TOPIC
            && let Some(level) = value(property::DELAY).and_then(|level| level.parse::<i64>().ok())
            && level > 0
        {
            return Self::Delay(delay_ms(level));
        }
        Self::Tag(value(property::TAGS).map_or(0, rocketpy_filter::tag_code))
    }

    /// The code that goes into the entry.
    pub fn code(self, stored_at_ms: i64) -> i64 {
        match self {
            Self::Tag(code) => code,
            Self::Delay(delay_ms) => stored_at_ms.saturating_add(delay_ms),
        }
    }
}

/// Apache's delay levels: 1 s 5 s 10 s 30 s, 1 to 10 min, 20 min, 30 min, 1 h, 2 h. A level beyond the last counts as it.
fn delay_ms(level: i64) -> i64 {
    const SECONDS: [i64; 18] =
        [1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200];
    SECONDS[(level.clamp(1, SECONDS.len() as i64) - 1) as usize] * 1000
}

/// The facts between append and dispatch: bounded, dropped when full. Dispatch reads the log for what was dropped.
#[derive(Debug)]
pub(crate) struct Handover {
    facts: Vec<Fact>,
    /// Key hashes of all facts, one behind the other.
    keys: Vec<u32>,
    limit: usize,
}

/// Key hashes for which there is room, for each fact that there is room for.
const KEYS_A_FACT: usize = 4;

impl Handover {
    pub fn new(limit: usize) -> Self {
        Self { facts: Vec::new(), keys: Vec::new(), limit }
    }

    /// Whether all facts of an append can be handed over; if not, none may be.
    pub fn has_room(&self, count: usize, keys: usize) -> bool {
        let keys = self.keys.len() + keys;
        self.facts.len() + count <= self.limit && keys <= self.limit.saturating_mul(KEYS_A_FACT)
    }

    /// Hands over one fact with its key hashes. Facts come in the order of the log.
    pub fn push(&mut self, fact: Fact, keys: &[u32]) {
        self.facts.push(fact);
        self.keys.extend_from_slice(keys);
    }

    /// Takes all facts, leaving the given empty lists in their place.
    pub fn take(&mut self, facts: &mut Vec<Fact>, keys: &mut Vec<u32>) {
        std::mem::swap(&mut self.facts, facts);
        std::mem::swap(&mut self.keys, keys);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delayed_message_has_its_delivery_time_as_tag_code() {
        const T: i64 = 1_700_000_000_123;
        let source = TagSource::of("SCHEDULE_TOPIC_XXXX", b"TAGS\x01a\x02DELAY\x013\x02");
        assert_eq!(source.code(T), T + 10_000);
        assert_eq!(source.code(T) as u64, 0x0000_018b_cfe5_8f8b, "vector 15.2");
        let ordinary = TagSource::of("topicA", b"TAGS\x01TagA\x02DELAY\x013\x02");
        assert_eq!(ordinary.code(T), 2_598_919);
        let beyond = TagSource::of("SCHEDULE_TOPIC_XXXX", b"DELAY\x0199\x02");
        assert_eq!(beyond.code(0), 7_200_000);
    }
}
