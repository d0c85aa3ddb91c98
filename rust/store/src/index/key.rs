//! The texts under which a record is found.

use std::borrow::Cow;
use std::collections::HashSet;

use rocketpy_filter::hash_code_on;
use rocketpy_model::property::split_key_bytes;
use rocketpy_model::{PhysicalOffset, property, sys_flag};
use rocketpy_protocol::disk::index::key_hash;
use rocketpy_protocol::properties_text::iter_bytes;
use rocketpy_protocol::record::RecordView;

/// What a key of a query is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[doc(alias = "indexType")]
pub enum KeyKind {
    /// An item of the message's keys, or its unique key.
    #[default]
    Any,
    /// The unique key that its producer gave it.
    Unique,
    /// Its tag.
    Tag,
}

/// Number of keys of a record, with its unique key, that are indexed in any case. More of them are indexed as long as their entries are not
/// longer than their text: a trace message has the ids of hundreds of messages as its keys. A text of 32 KB can hold 16,000 keys of one
/// letter, whose entries would take ten times its space.
const MIN_KEYS: usize = 64;
const ENTRY_BYTES: usize = 20;

/// Prefix of a tag in the index, as in Apache's 5.4 and later.
const TAG_TYPE: &str = "T#";

/// The properties of a record by which it is found: in the index, and by its tags code.
#[derive(Debug, Clone, Copy, Default)]
pub struct Keys<'a> {
    unique: &'a [u8],
    keys: &'a [u8],
    tag: &'a [u8],
    delay: &'a [u8],
}

impl<'a> Keys<'a> {
    /// Reads a properties text once; of a name that is there twice the last value counts.
    pub fn of(properties: &'a [u8]) -> Self {
        const UNIQUE: &[u8] = property::UNIQUE_KEY.as_bytes();
        const KEYS: &[u8] = property::KEYS.as_bytes();
        const TAGS: &[u8] = property::TAGS.as_bytes();
        const DELAY: &[u8] = property::DELAY.as_bytes();
        let mut found = Self::default();
        for (name, value) in iter_bytes(properties) {
            match name {
                UNIQUE => found.unique = value,
                KEYS => found.keys = value,
                TAGS => found.tag = value,
                DELAY => found.delay = value,
                _ => {}
            }
        }
        found
    }

    fn items(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        split_key_bytes(self.keys)
    }

    /// The tag; empty when there is none or it is not UTF-8.
    pub(crate) fn tag(&self) -> &'a str {
        std::str::from_utf8(self.tag).unwrap_or_default()
    }

    /// The delay level; `None` when there is none or it is not a number.
    pub(crate) fn delay_level(&self) -> Option<i64> {
        std::str::from_utf8(self.delay).ok()?.parse().ok()
    }

    /// The hashes under which a record with these keys is found, in the order in which they are indexed: of its unique key, of
    /// each of its keys, of its tag. Each hash is there once. The number of keys is limited: see `MIN_KEYS`. A record that rolls a
    /// transaction back has none.
    ///
    /// # Source
    /// docs/reference/store-format.md 4.4; for tags what Apache 5.5.0 writes. Apache indexes all keys, however many and how often.
    pub fn hashes(self, topic: &str, flags: i32) -> impl Iterator<Item = u32> + use<'a> {
        let (plain, of_tag) = self.hashes_of(topic, flags);
        let limit = MIN_KEYS.max(self.keys.len() / ENTRY_BYTES);
        // Most records have few keys: no allocation for them.
        let (mut first, mut count, mut others) = ([0; MIN_KEYS], 0, HashSet::new());
        let is_new = move |hash: &u32| {
            if first[..count].contains(hash) {
                return false;
            }
            if count == MIN_KEYS {
                return others.insert(*hash);
            }
            first[count] = *hash;
            count += 1;
            true
        };
        plain.filter(is_new).take(limit).chain(of_tag)
    }

    /// The hashes that another writer of the format may have indexed: all of them, each as often as its key is there.
    pub fn every_hash(self, topic: &str, flags: i32) -> impl Iterator<Item = u32> + use<'a> {
        let (plain, of_tag) = self.hashes_of(topic, flags);
        plain.chain(of_tag)
    }

    fn hashes_of(
        self,
        topic: &str,
        flags: i32,
    ) -> (impl Iterator<Item = u32> + use<'a>, impl Iterator<Item = u32> + use<'a>) {
        let is_rolled_back = sys_flag::transaction(flags) == sys_flag::TRANSACTION_ROLLBACK;
        let keys = if is_rolled_back { Self::default() } else { self };
        let of_topic = hash_code_on(hash_code_on(0, topic), "#");
        let of_tag = hash_code_on(of_topic, TAG_TYPE);
        let one = |text: &'a [u8]| Some(text).filter(|text| !text.is_empty()).into_iter();
        let plain = one(keys.unique).chain(keys.items()).map(move |key| hash_on(of_topic, key));
        (plain, one(keys.tag).map(move |tag| hash_on(of_tag, tag)))
    }
}

fn text(bytes: &[u8]) -> Cow<'_, str> {
    // Checking the whole text at once is several times as fast as a lossy conversion, and rarely fails.
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

/// The hash of a key that follows a text with the hash `before`.
fn hash_on(before: i32, key: &[u8]) -> u32 {
    key_hash(hash_code_on(before, &text(key)))
}

/// The hash under which a key is looked up.
///
/// # Source
/// docs/reference/store-format.md 4.2; for tags what Apache 5.5.0 writes.
pub(crate) fn hash_of(topic: &str, key: &str, kind: KeyKind) -> u32 {
    let mut hash = hash_code_on(hash_code_on(0, topic), "#");
    if kind == KeyKind::Tag {
        hash = hash_code_on(hash, TAG_TYPE);
    }
    key_hash(hash_code_on(hash, key))
}

/// Whether every program that keeps an index has entries for a record: those before 5.4 have none for a tag.
pub(crate) fn is_keyed(view: &RecordView<'_>) -> bool {
    let keys = Keys::of(view.properties);
    let is_rolled_back = sys_flag::transaction(view.sys_flag) == sys_flag::TRANSACTION_ROLLBACK;
    !is_rolled_back && (!keys.unique.is_empty() || keys.items().next().is_some())
}

/// What is looked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub topic: &'a str,
    pub key: &'a str,
    pub kind: KeyKind,
    pub hash: u32,
    /// Both ends are included.
    pub begin_ms: i64,
    pub end_ms: i64,
    /// Records from this place on are wanted whenever they were stored: the clock may have been set in between.
    pub or_from: Option<PhysicalOffset>,
}

impl<'a> Wanted<'a> {
    pub(crate) fn new(topic: &'a str, key: &'a str, kind: KeyKind, begin_ms: i64, end_ms: i64) -> Self {
        Self { topic, key, kind, hash: hash_of(topic, key, kind), begin_ms, end_ms, or_from: None }
    }

    /// Whether records up to this end may be wanted by their offset.
    pub(crate) fn reaches(&self, end: PhysicalOffset) -> bool {
        self.or_from.is_some_and(|from| from <= end)
    }

    /// Whether a record is wanted. A different key may have the same hash.
    pub(crate) fn is(&self, view: &RecordView<'_>) -> bool {
        let is_in_time = (self.begin_ms..=self.end_ms).contains(&view.stored_at_ms);
        if view.topic != self.topic || !is_in_time && !self.reaches(view.physical_offset) {
            return false;
        }
        let keys = Keys::of(view.properties);
        let key = self.key.as_bytes();
        match self.kind {
            KeyKind::Any => keys.unique == key || keys.items().any(|item| item == key),
            KeyKind::Unique => keys.unique == key,
            KeyKind::Tag => keys.tag == key,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: &[u8] = b"KEYS\x01a  b \x02UNIQ_KEY\x01u\x02TAGS\x01TagA\x02";

    fn hashes(flags: i32, properties: &[u8]) -> Vec<u32> {
        Keys::of(properties).hashes("t", flags).collect()
    }

    fn expected(keys: &[&str]) -> Vec<u32> {
        keys.iter().map(|key| key_hash(rocketpy_filter::key_hash_code("t", key))).collect()
    }

    #[test]
    fn a_record_is_indexed_by_its_unique_key_each_of_its_keys_and_its_tag() {
        assert_eq!(hashes(0, T), expected(&["u", "a", "b", "T#TagA"]));
        assert_eq!(hashes(0, b"KEYS\x01 \x02"), expected(&[]));
        assert_eq!(hashes(0, b"x\x01y\x02"), expected(&[]));
        let twice = [T, b"KEYS\x01c\x02"].concat();
        assert_eq!(hashes(0, &twice), expected(&["u", "c", "T#TagA"]), "of two the last counts");
        assert_eq!(hash_of("t", "TagA", KeyKind::Tag), expected(&["T#TagA"])[0]);
        assert_eq!(hash_of("topicA", "key1", KeyKind::Any), 0x3d27_ad5d, "vector 15.1");
    }

    #[test]
    fn each_distinct_key_is_indexed_once_and_their_number_is_bounded() {
        let same = format!("UNIQ_KEY\u{1}a\u{2}KEYS\u{1}{}b\u{2}TAGS\u{1}t\u{2}", "a ".repeat(10_000));
        assert_eq!(hashes(0, same.as_bytes()), expected(&["a", "b", "T#t"]));
        let keys: Vec<String> = (0..16_000).map(|number| number.to_string()).collect();
        let many = format!("UNIQ_KEY\u{1}u\u{2}KEYS\u{1}{}\u{2}TAGS\u{1}t\u{2}", keys.join(" "));
        let found = hashes(0, many.as_bytes());
        let limit = keys.join(" ").len() / ENTRY_BYTES;
        assert_eq!(found.len(), limit + 1, "with the tag");
        assert_eq!(found[..3], expected(&["u", "0", "1"]));
        assert_eq!(found[limit], expected(&["T#t"])[0]);
        let every = Keys::of(many.as_bytes()).every_hash("t", 0);
        assert_eq!(every.count(), 16_002, "as Apache may have written them");
    }

    #[test]
    fn every_id_of_a_trace_message_is_indexed() {
        let ids: Vec<String> = (0..450).map(|number| format!("{number:032X}")).collect();
        let trace = format!("KEYS\u{1}{}\u{2}", ids.join(" "));
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        assert_eq!(hashes(0, trace.as_bytes()), expected(&ids));
    }

    #[test]
    fn a_half_message_is_indexed_and_one_that_rolls_back_is_not() {
        assert_eq!(hashes(sys_flag::TRANSACTION_PREPARED, T).len(), 4);
        assert_eq!(hashes(sys_flag::TRANSACTION_COMMIT, T).len(), 4);
        assert_eq!(hashes(sys_flag::TRANSACTION_ROLLBACK, T), expected(&[]));
    }

    #[test]
    fn keys_that_are_no_text_do_no_harm() {
        assert_eq!(hashes(0, b"KEYS\x01\xff a\x02").len(), 2);
    }
}
