//! The properties of a stored message as one text: `name 0x01 value 0x02` for each.
//!
//! Newer writers end the last pair with 0x02, older ones do not; readers take both. A piece counts when it has a name, 0x01
//! and a value; everything else is skipped. A further 0x01 belongs to the value, as for readers of Apache's 5.x; those of 4.x
//! skip such a piece. Of two pairs with one name the last counts.
//!
//! # Source
//! docs/reference/store-format.md 2.2, docs/reference/protocol.md 4.4.

use std::borrow::Cow;
use std::ops::Range;

use memchr::{memchr, memrchr};
use rocketpy_model::Properties;
use rocketpy_model::property::{NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR};

/// Longest text that a record can hold.
pub const MAX_BYTES: usize = i16::MAX as usize;
/// Bytes of a record's properties that a broker of RocketPy reserves for later copies of a client's message: retries, dead letters, delays
/// and commits.
pub const RESERVED_BYTES: usize = 2560;
/// Maximum length of the properties of a client's message at a broker of RocketPy, with those that the broker adds. Apache's accept
/// [`MAX_BYTES`].
pub const MAX_SENT_BYTES: usize = MAX_BYTES - RESERVED_BYTES;

/// Appends the text of `properties` to `out`, with the final separator.
pub fn encode(properties: &Properties, out: &mut Vec<u8>) {
    if !properties.is_empty() {
        separate(out);
        out.extend_from_slice(properties.text().as_bytes());
    }
}

/// Appends one pair to a text, and before it the separator that the text may lack at its end.
///
/// # Panics
/// When name or value is empty or has a separator: such a text could not be read back.
pub fn push(out: &mut Vec<u8>, name: &str, value: &str) {
    assert!(is_storable(name) && is_storable(value), "a property the stored text cannot hold: {name:?}");
    push_bytes(out, name.as_bytes(), value.as_bytes());
}

/// As [`push`], for a pair that was read from a text: nothing is checked.
pub fn push_bytes(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    separate(out);
    out.extend_from_slice(name);
    out.push(NAME_VALUE_SEPARATOR);
    out.extend_from_slice(value);
    out.push(PROPERTY_SEPARATOR);
}

/// Ends the last pair of a text whose writer left it open.
fn separate(out: &mut Vec<u8>) {
    if out.last().is_some_and(|&last| last != PROPERTY_SEPARATOR) {
        out.push(PROPERTY_SEPARATOR);
    }
}

fn is_storable(text: &str) -> bool {
    !text.is_empty() && !text.bytes().any(|byte| byte == NAME_VALUE_SEPARATOR || byte == PROPERTY_SEPARATOR)
}

#[cfg(debug_assertions)]
thread_local! {
    static WALKS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Number of times that this thread has read through a text, in builds with debug assertions: tests check how often a path does.
#[cfg(debug_assertions)]
#[doc(hidden)]
#[must_use]
pub fn walks() -> u64 {
    WALKS.get()
}

#[inline]
pub(crate) fn count_walk() {
    #[cfg(debug_assertions)]
    WALKS.set(WALKS.get() + 1);
}

/// Names and values in the order of the text, duplicates included.
#[must_use]
#[inline]
pub fn iter_bytes(text: &[u8]) -> Pairs<'_> {
    count_walk();
    pairs(text)
}

/// As [`iter_bytes`], without being counted.
pub(crate) const fn pairs(text: &[u8]) -> Pairs<'_> {
    Pairs { separators: Separators { text, read: 0, marks: 0 }, start: 0, piece: 0, is_done: false }
}

/// The iterator of [`iter_bytes`].
#[derive(Debug, Clone)]
pub struct Pairs<'a> {
    separators: Separators<'a>,
    /// Where the pair that was returned last begins.
    start: usize,
    /// Where the next piece begins.
    piece: usize,
    is_done: bool,
}

impl Pairs<'_> {
    /// Place of the pair that was returned last, with its final separator.
    #[inline]
    #[must_use]
    pub fn place(&self) -> Range<usize> {
        self.start..self.piece.min(self.separators.text.len())
    }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a [u8], &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let text = self.separators.text;
        let mut name_end = None;
        while !self.is_done {
            let (end, is_piece) = match self.separators.next() {
                Some(at) => (at, text[at] == PROPERTY_SEPARATOR),
                None => {
                    self.is_done = true;
                    (text.len(), true)
                }
            };
            if !is_piece {
                name_end = name_end.or(Some(end));
                continue;
            }
            let start = std::mem::replace(&mut self.piece, end + 1);
            if let Some(name_end) = name_end.take()
                && name_end > start
                && name_end + 1 < end
            {
                self.start = start;
                return Some((&text[start..name_end], &text[name_end + 1..end]));
            }
        }
        None
    }
}

/// The bytes of `text` before its first 0x02: a value, where a name and 0x01 were before it.
#[inline]
#[must_use]
pub fn first_piece(text: &[u8]) -> &[u8] {
    let mut separators = Separators { text, read: 0, marks: 0 };
    let end = separators.find(|&at| text[at] == PROPERTY_SEPARATOR).unwrap_or(text.len());
    &text[..end]
}

/// Positions of both separators in a text, found eight bytes at a time: names and values are too short for a search of
/// each to pay.
#[derive(Debug, Clone)]
struct Separators<'a> {
    text: &'a [u8],
    /// Bytes searched so far.
    read: usize,
    /// The top bit of each of the last eight bytes that is a separator.
    marks: u64,
}

impl Iterator for Separators<'_> {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        while self.marks == 0 {
            let rest = self.text.get(self.read..).filter(|rest| !rest.is_empty())?;
            let word = match rest.first_chunk::<8>() {
                Some(word) => *word,
                None => {
                    let mut word = [0; 8];
                    word[..rest.len()].copy_from_slice(rest);
                    word
                }
            };
            self.marks = marks(u64::from_le_bytes(word));
            self.read += 8;
        }
        let at = self.read - 8 + self.marks.trailing_zeros() as usize / 8;
        self.marks &= self.marks - 1;
        Some(at)
    }
}

/// The top bit of each byte that is a separator.
const fn marks(word: u64) -> u64 {
    const fn of(word: u64, byte: u8) -> u64 {
        const LOW: u64 = u64::from_ne_bytes([0x7f; 8]);
        let zero_where_equal = word ^ u64::from_ne_bytes([byte; 8]);
        !(((zero_where_equal & LOW) + LOW) | zero_where_equal | LOW)
    }
    of(word, NAME_VALUE_SEPARATOR) | of(word, PROPERTY_SEPARATOR)
}

/// Names and values in order, duplicates included; pairs that are not UTF-8 are left out.
pub fn iter(text: &[u8]) -> impl Iterator<Item = (&str, &str)> {
    iter_bytes(text)
        .filter_map(|(name, value)| Some((std::str::from_utf8(name).ok()?, std::str::from_utf8(value).ok()?)))
}

/// The value of `name` as readers show it: bytes that are not UTF-8 become replacement characters, as in Apache's clients.
#[must_use]
pub fn get_lossy<'a>(text: &'a [u8], name: &str) -> Option<Cow<'a, str>> {
    get_bytes(text, name).map(String::from_utf8_lossy)
}

fn pair(piece: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = memchr(NAME_VALUE_SEPARATOR, piece)?;
    let (name, value) = (&piece[..at], &piece[at + 1..]);
    (!name.is_empty() && !value.is_empty()).then_some((name, value))
}

/// The value of `name`, borrowed from the text; `None` also when the value is not UTF-8.
#[must_use]
pub fn get<'a>(text: &'a [u8], name: &str) -> Option<&'a str> {
    get_bytes(text, name).and_then(|value| std::str::from_utf8(value).ok())
}

/// The value of `name` as bytes. Searches from the end, because the last pair counts.
#[must_use]
pub fn get_bytes<'a>(mut text: &'a [u8], name: &str) -> Option<&'a [u8]> {
    count_walk();
    let name = name.as_bytes();
    while !text.is_empty() {
        let (before, piece) = match memrchr(PROPERTY_SEPARATOR, text) {
            Some(at) => (&text[..at], &text[at + 1..]),
            None => (&text[..0], text),
        };
        if let Some((&separator, value)) = piece.strip_prefix(name).and_then(<[u8]>::split_first)
            && separator == NAME_VALUE_SEPARATOR
            && !value.is_empty()
            && !name.is_empty()
        {
            return Some(value);
        }
        text = before;
    }
    None
}

/// Copies `text` to `out` without the pairs named `name`. What is not a pair is copied as it is.
pub fn copy_without(text: &[u8], name: &str, out: &mut Vec<u8>) {
    count_walk();
    let start = out.len();
    for piece in text.split_inclusive(|&byte| byte == PROPERTY_SEPARATOR) {
        let bare = piece.strip_suffix(&[PROPERTY_SEPARATOR]).unwrap_or(piece);
        if pair(bare).is_some_and(|(have, _)| have == name.as_bytes()) {
            continue;
        }
        out.extend_from_slice(piece);
    }
    debug_assert!(out.len() - start <= text.len());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_text_reads_back_with_and_without_the_final_separator() {
        let mut properties = Properties::new();
        properties.set("TAGS", "TagA").unwrap();
        properties.set("KEYS", "k1 k2").unwrap();
        let mut text = Vec::new();
        encode(&properties, &mut text);
        assert_eq!(text, b"TAGS\x01TagA\x02KEYS\x01k1 k2\x02");
        let pairs = [("TAGS", "TagA"), ("KEYS", "k1 k2")];
        assert_eq!(iter(&text).collect::<Vec<_>>(), pairs);
        assert_eq!(iter(&text[..text.len() - 1]).collect::<Vec<_>>(), pairs);
    }

    #[test]
    fn pieces_without_name_or_value_are_skipped() {
        let text = b"\x02\x01v\x02n\x01\x02plain\x02a\x011\x02\x02";
        assert_eq!(iter(text).collect::<Vec<_>>(), [("a", "1")]);
        assert_eq!(get(text, "n"), None);
        assert_eq!(get(text, ""), None);
        assert_eq!(get(text, "a"), Some("1"));
    }

    #[test]
    fn the_last_of_two_values_counts() {
        let text = b"a\x011\x02b\x012\x02a\x013";
        assert_eq!(get(text, "a"), Some("3"));
        assert_eq!(iter(text).collect::<Vec<_>>(), [("a", "1"), ("b", "2"), ("a", "3")]);
    }

    #[test]
    fn a_second_0x01_belongs_to_the_value_for_every_reader() {
        let text = b"TAGS\x01a\x01b\x02x\x011";
        assert_eq!(get(text, "TAGS"), Some("a\u{1}b"));
        assert_eq!(iter(text).collect::<Vec<_>>(), [("TAGS", "a\u{1}b"), ("x", "1")]);
        let mut out = Vec::new();
        copy_without(text, "TAGS", &mut out);
        assert_eq!(out, b"x\x011");
    }

    proptest! {
        #[test]
        fn all_readers_see_the_same_pairs(text in "[ab\u{1}\u{2}]{0,24}", name in "[ab]{0,2}") {
            let text = text.as_bytes();
            let last = iter(text).filter(|(other, _)| *other == name).last();
            prop_assert_eq!(get(text, &name), last.map(|(_, value)| value));
            let mut copy = Vec::new();
            copy_without(text, &name, &mut copy);
            let others: Vec<_> = iter(text).filter(|(other, _)| *other != name).collect();
            prop_assert_eq!(iter(&copy).collect::<Vec<_>>(), others);
        }
    }

    #[test]
    fn a_name_that_begins_another_is_not_taken_for_it() {
        assert_eq!(get(b"TAGSX\x011\x02", "TAGS"), None);
        assert_eq!(get(b"XTAGS\x011\x02", "TAGS"), None);
    }

    #[test]
    fn a_pair_behind_an_open_text_gets_a_separator_between() {
        let mut text = b"a\x011".to_vec();
        push(&mut text, "b", "2");
        assert_eq!(text, b"a\x011\x02b\x012\x02");
    }

    #[test]
    fn pairs_are_found_wherever_they_stand_in_words_of_eight_bytes() {
        for shift in 0..20 {
            for length in 1..20 {
                let (name, value) = ("n".repeat(shift + 1), "\u{fe}\u{80}v".repeat(length));
                let text = format!("{name}\x01{value}\x02x\x01\u{1}1\x02last\x01{value}");
                let pairs: Vec<_> = iter(text.as_bytes()).collect();
                assert_eq!(pairs, [(&*name, &*value), ("x", "\u{1}1"), ("last", &*value)]);
            }
        }
    }

    #[test]
    fn places_of_pairs_include_their_final_separator() {
        let (mut pairs, mut places) = (iter_bytes(b"x\x02a\x011\x02\x02b\x012"), Vec::new());
        while pairs.next().is_some() {
            places.push(pairs.place());
        }
        assert_eq!(places, [2..6, 7..10]);
    }

    #[test]
    fn one_name_can_be_left_out_of_a_copy() {
        let mut out = Vec::new();
        copy_without(b"a\x011\x02x\x012\x02b\x013\x02x\x014", "x", &mut out);
        assert_eq!(out, b"a\x011\x02b\x013\x02");
    }
}
