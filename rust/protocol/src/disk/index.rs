//! The layout of an index file: a head, hash slots, and entries that are chained by slot.
//!
//! # Source
//! docs/reference/store-format.md 4.1 to 4.3.

use rocketpy_model::PhysicalOffset;

use crate::wire::Reader;

/// Hash slots of an index file, unless it was made with another number.
#[doc(alias = "maxHashSlotNum")]
pub const SLOTS: u32 = 5_000_000;
/// Entry numbers of an index file, unless it was made with another number; number 0 is never used.
#[doc(alias = "maxIndexNum")]
pub const ENTRIES: u32 = 20_000_000;
/// Bytes of the file's head, before the slots.
pub const HEADER_BYTES: u64 = 40;
/// Bytes of a slot: the number of its newest entry.
pub const SLOT_BYTES: u64 = 4;
/// Bytes of an entry.
pub const ENTRY_BYTES: u64 = IndexEntry::BYTES as u64;

/// The key hash that an index file stores, from the hash of the text `topic#key`: its absolute value, and 0 for the one number
/// that has none.
#[must_use]
#[doc(alias = "indexKeyHashMethod")]
pub const fn key_hash(hash_code: i32) -> u32 {
    match hash_code.checked_abs() {
        Some(hash) => hash.cast_unsigned(),
        None => 0,
    }
}

/// The slot of a key hash in a file of `slots` slots.
///
/// # Panics
/// When there is no slot.
#[must_use]
pub const fn slot_of(key_hash: u32, slots: u32) -> u32 {
    assert!(slots > 0, "an index file has a slot");
    key_hash % slots
}

/// Where a slot stands in its file, in bytes.
#[must_use]
pub const fn slot_position(slot: u32) -> u64 {
    HEADER_BYTES + slot as u64 * SLOT_BYTES
}

/// Where an entry stands in its file of `slots` slots, in bytes.
#[must_use]
pub const fn entry_position(number: u32, slots: u32) -> u64 {
    slot_position(slots) + number as u64 * ENTRY_BYTES
}

/// Length of a file of `slots` slots and `entries` entry numbers.
#[must_use]
pub const fn file_bytes(slots: u32, entries: u32) -> u64 {
    entry_position(entries, slots)
}

/// The head of an index file.
///
/// # Layout
/// 40 bytes, big-endian.
///
/// | bytes | field | meaning |
/// |---|---|---|
/// | 0..8 | `begin_stored_at_ms` | when the record of the first key was stored |
/// | 8..16 | `end_stored_at_ms` | of the last key |
/// | 16..24 | `begin_physical_offset` | where the record of the first key lies |
/// | 24..32 | `end_physical_offset` | of the last key |
/// | 32..36 | `used_slots` | slots that lead to an entry |
/// | 36..40 | `next_entry` | number of the next entry; a file without any has 0 or 1 |
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IndexHeader {
    /// Store time of the first key's record, Unix milliseconds; 0 in a file without keys.
    pub begin_stored_at_ms: i64,
    /// Store time of the last key's record, Unix milliseconds.
    pub end_stored_at_ms: i64,
    /// Start of the first key's record in the commit log.
    pub begin_physical_offset: PhysicalOffset,
    /// Start of the last key's record in the commit log.
    pub end_physical_offset: PhysicalOffset,
    /// Slots that lead to an entry.
    pub used_slots: u32,
    /// Number of the next entry. Both 0 and 1 mean that there is none yet.
    pub next_entry: u32,
}

impl IndexHeader {
    /// Bytes of an encoded head.
    pub const BYTES: usize = HEADER_BYTES as usize;

    /// The head as it stands in the file.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.begin_stored_at_ms.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.end_stored_at_ms.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.begin_physical_offset.get().to_be_bytes());
        bytes[24..32].copy_from_slice(&self.end_physical_offset.get().to_be_bytes());
        bytes[32..36].copy_from_slice(&self.used_slots.to_be_bytes());
        bytes[36..].copy_from_slice(&self.next_entry.to_be_bytes());
        bytes
    }

    /// Reads a head. Any bytes give one; the caller checks that its numbers fit the file.
    #[must_use]
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        let mut reader = Reader::new(bytes);
        let mut number = || reader.u64().unwrap_or_default();
        let (begin_ms, end_ms, begin, end, counts) = (number(), number(), number(), number(), number());
        Self {
            begin_stored_at_ms: begin_ms.cast_signed(),
            end_stored_at_ms: end_ms.cast_signed(),
            begin_physical_offset: PhysicalOffset(begin),
            end_physical_offset: PhysicalOffset(end),
            used_slots: (counts >> 32) as u32,
            next_entry: counts as u32,
        }
    }

    /// Seconds between the first key and a record that is stored at a time, as an entry says it. To be asked before the
    /// record's key is counted.
    #[must_use]
    pub fn seconds_since_begin(&self, stored_at_ms: i64) -> u32 {
        if self.begin_stored_at_ms <= 0 {
            return 0;
        }
        let seconds = stored_at_ms.saturating_sub(self.begin_stored_at_ms) / 1000;
        seconds.clamp(0, i64::from(i32::MAX)) as u32
    }

    /// Counts one more key.
    pub fn count(&mut self, physical_offset: PhysicalOffset, stored_at_ms: i64, slot_was_free: bool) {
        self.next_entry = self.next_entry.max(1);
        if self.next_entry == 1 {
            self.begin_physical_offset = physical_offset;
            self.begin_stored_at_ms = stored_at_ms;
        }
        self.used_slots += u32::from(slot_was_free);
        self.next_entry += 1;
        self.end_physical_offset = physical_offset;
        self.end_stored_at_ms = stored_at_ms;
    }
}

/// One entry of an index file: a key of a record.
///
/// # Layout
/// 20 bytes, big-endian.
///
/// | bytes | field | meaning |
/// |---|---|---|
/// | 0..4 | `key_hash` | see [`key_hash`] |
/// | 4..12 | `physical_offset` | first byte of the record in the commit log |
/// | 12..16 | `seconds` | between the file's first key and this one |
/// | 16..20 | `previous` | number of the entry before it in the same slot, 0 for none |
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IndexEntry {
    /// Hash of the key with its topic, at most `i32::MAX`; see [`key_hash`].
    pub key_hash: u32,
    /// Start of the record in the commit log.
    pub physical_offset: PhysicalOffset,
    /// Seconds from the store time of the file's first key to this one's.
    pub seconds: u32,
    /// Number of the entry before it in the same slot; 0 when it is the slot's first.
    pub previous: u32,
}

impl IndexEntry {
    /// Bytes of an encoded entry.
    pub const BYTES: usize = 20;

    /// The entry as it stands in the file.
    #[must_use]
    #[inline]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&self.key_hash.to_be_bytes());
        bytes[4..12].copy_from_slice(&self.physical_offset.get().to_be_bytes());
        bytes[12..16].copy_from_slice(&self.seconds.to_be_bytes());
        bytes[16..].copy_from_slice(&self.previous.to_be_bytes());
        bytes
    }

    /// Reads an entry. Any bytes give one.
    #[must_use]
    #[inline]
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        let [h0, h1, h2, h3, a, b, c, d, e, f, g, h, s0, s1, s2, s3, p @ ..] = *bytes;
        Self {
            key_hash: u32::from_be_bytes([h0, h1, h2, h3]),
            physical_offset: PhysicalOffset(u64::from_be_bytes([a, b, c, d, e, f, g, h])),
            seconds: u32::from_be_bytes([s0, s1, s2, s3]),
            previous: u32::from_be_bytes(p),
        }
    }
}
