//! Checks what a former process wrote to the log, once, when it is first read.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rocketpy_model::PhysicalOffset;
use rocketpy_protocol::record::{CheckMode, RecordCheck, check_record};

/// At most one record begins in this many bytes: the shortest is longer.
const PLACE_BYTES: u64 = 64;
/// Places of one word: one bit for each, below the word's tag.
const PLACES: u64 = 32;
/// Words that are kept: 8 MiB of memory, for records in 2 GiB of the log.
const WORDS: u64 = 1 << 20;

/// The records that this start found and did not check. Each is checked when it is read for the first time, so that damage is
/// reported, not served.
///
/// What was checked is noted in a table without locks. Many parts of the log share a word of the table. It holds the part that came
/// last, and which of its records were checked. A record whose note was displaced is checked again.
pub(crate) struct FirstReads {
    /// Records that begin before this were not checked by this start.
    unchecked_to: PhysicalOffset,
    /// Records that begin here have a checksum of their own. Elsewhere only the body's counts: what is in the place of a
    /// record's own may be a sender's.
    own_checks: Range<PhysicalOffset>,
    words: OnceLock<Box<[AtomicU64]>>,
}

/// Where the table notes a record.
struct Note {
    word: usize,
    tag: u64,
    bit: u64,
}

impl Note {
    fn of(at: PhysicalOffset) -> Self {
        let place = at.get() / PLACE_BYTES;
        let part = place / PLACES;
        // No log is as long as the parts that a tag of 32 bits tells apart.
        Self { word: (part % WORDS) as usize, tag: (part / WORDS) << PLACES, bit: 1 << (place % PLACES) }
    }
}

impl FirstReads {
    pub(crate) fn new(unchecked_to: PhysicalOffset, own_checks: Range<PhysicalOffset>) -> Self {
        Self { unchecked_to, own_checks, words: OnceLock::new() }
    }

    /// The part of the log that this start found in which records have a checksum of their own.
    pub(crate) fn own_checks(&self) -> &Range<PhysicalOffset> {
        &self.own_checks
    }

    /// Whether the record at a place needs no check.
    #[inline]
    pub(super) fn is_checked(&self, at: PhysicalOffset) -> bool {
        at >= self.unchecked_to || self.was_read(at)
    }

    #[cold]
    fn was_read(&self, at: PhysicalOffset) -> bool {
        let note = Note::of(at);
        let word = self.words.get().map_or(0, |words| words[note.word].load(Ordering::Relaxed));
        word & (u64::MAX << PLACES) == note.tag && word & note.bit != 0
    }

    /// Checks the record at a place, unless that was done before. `bytes` are the whole record.
    ///
    /// # Errors
    /// Why it is not what was written.
    ///
    /// # Source
    /// docs/durability.md R3; docs/reference/store-format.md 2.8.
    #[inline]
    pub(super) fn check(&self, at: PhysicalOffset, bytes: &[u8]) -> Result<(), String> {
        if self.is_checked(at) { Ok(()) } else { self.check_now(at, bytes) }
    }

    #[cold]
    fn check_now(&self, at: PhysicalOffset, bytes: &[u8]) -> Result<(), String> {
        let mode = if self.own_checks.contains(&at) { CheckMode::RecordRequired } else { CheckMode::Body };
        match check_record(bytes, mode) {
            Ok(RecordCheck::Record(view)) if view.physical_offset == at => {}
            Ok(RecordCheck::Record(view)) => {
                return Err(format!("the record contains another physical offset: {}", view.physical_offset));
            }
            Ok(RecordCheck::Blank { .. }) => return Err("a blank record is at that offset".to_owned()),
            Err(error) => return Err(error.to_string()),
        }
        let words = self.words.get_or_init(|| (0..WORDS).map(|_| AtomicU64::new(0)).collect());
        let note = Note::of(at);
        let word = &words[note.word];
        let former = word.load(Ordering::Relaxed);
        let is_same_part = former & (u64::MAX << PLACES) == note.tag;
        // Two threads may overwrite each other's bit: its record is checked again.
        word.store(note.bit | if is_same_part { former } else { note.tag }, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use rocketpy_protocol::record::RecordFields;

    use super::*;

    /// A record of 200 bytes or so.
    fn record_at(at: PhysicalOffset) -> Vec<u8> {
        let host = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let fields = RecordFields {
            topic: "t",
            queue_id: 0,
            flag: 0,
            sys_flag: 0,
            born_at_ms: 0,
            born_host: host,
            store_host: host,
            reconsume_times: 0,
            prepared_transaction_offset: 0.into(),
            body: &[7; 100],
            properties: b"",
            may_have_crc: true,
        };
        let mut bytes = Vec::new();
        fields.encode(true, &mut bytes).unwrap().finish(&mut bytes, 0.into(), at, 1);
        bytes
    }

    const PART: u64 = PLACE_BYTES * PLACES;

    #[test]
    fn a_record_is_checked_when_it_is_first_read_and_not_again() {
        let first = FirstReads::new(PhysicalOffset(1 << 40), PhysicalOffset::ZERO..PhysicalOffset(1 << 40));
        for at in [0, 200, PART - 1, PART, PART * WORDS, PART * WORDS + 200].map(PhysicalOffset) {
            let mut bytes = record_at(at);
            bytes[60] ^= 1; // the time it was stored
            assert!(first.check(at, &bytes).unwrap_err().contains("checksum"));
            assert!(!first.is_checked(at));
            bytes[60] ^= 1;
            first.check(at, &bytes).unwrap();
            assert!(first.is_checked(at));
        }
        assert!(!first.is_checked(PhysicalOffset(0)), "another part took its word");
        assert!(!first.is_checked(PhysicalOffset(400)), "it was not read");
        assert!(first.is_checked(PhysicalOffset(1 << 40)), "this start checked it");
    }

    #[test]
    fn where_another_program_wrote_only_the_body_counts() {
        let at = PhysicalOffset(64);
        let first = FirstReads::new(PhysicalOffset(1 << 20), PhysicalOffset::ZERO..PhysicalOffset::ZERO);
        let mut bytes = record_at(at);
        bytes[60] ^= 1;
        first.check(at, &bytes).unwrap();
        let at = PhysicalOffset(1024);
        let mut bytes = record_at(at);
        bytes[120] ^= 1; // the body
        assert!(first.check(at, &bytes).is_err());
        assert!(
            first
                .check(at, &record_at(PhysicalOffset(2048)))
                .unwrap_err()
                .contains("another physical offset: 2048")
        );
    }
}
