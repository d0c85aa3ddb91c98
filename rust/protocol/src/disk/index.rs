//! Where a key stands in an index file.
//!
//! # Source
//! spec/store.md sections 4.1 and 4.2.

/// Hash slots of an index file, unless it was made with another number.
#[doc(alias = "maxHashSlotNum")]
pub const SLOTS: u32 = 5_000_000;
/// Bytes of the file's head, before the slots.
pub const HEADER_BYTES: u64 = 40;
/// Bytes of a slot: the number of its newest entry.
pub const SLOT_BYTES: u64 = 4;

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
    key_hash % slots
}

/// Where a slot stands in its file, in bytes.
#[must_use]
pub const fn slot_position(slot: u32) -> u64 {
    HEADER_BYTES + slot as u64 * SLOT_BYTES
}
