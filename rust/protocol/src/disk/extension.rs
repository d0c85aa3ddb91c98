//! What a consume queue keeps beside its entries when Apache's `enableConsumeQueueExt` is on.
//!
//! # Source
//! docs/reference/store-format.md 3.5.

use crate::wire::Reader;

/// The highest number that is an address: everything above is a tag code, which has 32 bits, or a time.
const ADDRESS_MAX: i64 = i32::MIN as i64 - 1;
/// The offset that this address names.
const OFFSET_MAX: u64 = ADDRESS_MAX.abs_diff(i64::MIN);

/// The value that an entry holds in place of the tag code, for a unit at an offset of the extension's stream.
///
/// # Panics
/// When the offset is higher than any address can say.
#[must_use]
#[doc(alias = "decorate")]
pub const fn extension_address(stream_offset: u64) -> i64 {
    assert!(stream_offset <= OFFSET_MAX, "no address reaches that far");
    i64::MIN.wrapping_add_unsigned(stream_offset)
}

/// The offset in the extension's stream that an entry's tag code names; `None` when it is a tag code.
#[must_use]
#[doc(alias = "unDecorate")]
pub const fn extension_offset(tags_code: i64) -> Option<u64> {
    if tags_code <= ADDRESS_MAX { Some(tags_code.abs_diff(i64::MIN)) } else { None }
}

/// One unit of the extension's stream: what an entry says, and which subscriptions it passes.
///
/// # Layout
/// Big-endian, never split across files; a file whose rest has no room ends with the size -1.
///
/// | bytes | field | meaning |
/// |---|---|---|
/// | 0..2 | size | of the unit: 20 and the bitmap |
/// | 2..10 | `tags_code` | tag hash |
/// | 10..18 | `stored_at_ms` | when the record was stored |
/// | 18..20 | | length of the bitmap |
/// | 20.. | `bitmap` | bits of the bloom filter, the lowest of each byte first |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(alias = "CqExtUnit")]
pub struct ExtensionUnit<'a> {
    /// The tags code that the entry has no room for.
    pub tags_code: i64,
    /// When the record was stored.
    pub stored_at_ms: i64,
    /// Bits of the filters that the record matches; the lowest bit of each byte first.
    pub bitmap: &'a [u8],
}

impl<'a> ExtensionUnit<'a> {
    /// Bytes of a unit without a bitmap.
    pub const FIXED_BYTES: usize = 20;

    /// The unit's bytes; `None` when they are more than the size field can say: such a unit is not stored, and its entry has
    /// the plain tag code.
    #[must_use]
    pub fn encode(&self) -> Option<Vec<u8>> {
        let size = i16::try_from(Self::FIXED_BYTES + self.bitmap.len()).ok()?;
        let mut bytes = Vec::with_capacity(Self::FIXED_BYTES + self.bitmap.len());
        bytes.extend_from_slice(&size.to_be_bytes());
        bytes.extend_from_slice(&self.tags_code.to_be_bytes());
        bytes.extend_from_slice(&self.stored_at_ms.to_be_bytes());
        bytes.extend_from_slice(&(size - Self::FIXED_BYTES as i16).to_be_bytes());
        bytes.extend_from_slice(self.bitmap);
        assert_eq!(bytes.len(), usize::from(size.cast_unsigned()), "a unit is as long as it says");
        Some(bytes)
    }

    /// Reads the unit at the start of `bytes`, which may go on behind it; `None` when none is there.
    #[must_use]
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let size = usize::try_from(reader.i16()?).ok()?;
        let (tags_code, stored_at_ms) = (reader.i64()?, reader.i64()?);
        let length = usize::try_from(reader.i16()?).ok()?;
        let bitmap = reader.take(length)?;
        (size == Self::FIXED_BYTES + length).then_some(Self { tags_code, stored_at_ms, bitmap })
    }
}
