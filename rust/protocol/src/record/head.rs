//! The fixed fields of a record, without its texts.

use rocketpy_model::{PhysicalOffset, QueueOffset, sys_flag};

use super::{
    FIXED_BYTES_V1, MAGIC_V1, MAGIC_V2, PHYSICAL_OFFSET_AT, QUEUE_OFFSET_AT, STORED_AT_AT_V4,
    STORED_AT_AT_V6, SYS_FLAG_AT,
};

/// Where the length of the body stands between IPv4 addresses. Each IPv6 address takes [`V6_MORE_BYTES`] more.
const BODY_LENGTH_AT_V4: usize = 84;
const V6_MORE_BYTES: usize = 12;
/// Where `queue_id` stands.
const QUEUE_ID_AT: usize = 12;

/// The first bytes of what may be a record: enough to tell whose it is, without its body.
///
/// # Layout
/// As in [`record`](super), up to the shortest record there is.
#[derive(Debug, Clone, Copy)]
pub struct RecordHead<'a>(&'a [u8; RecordHead::BYTES]);

impl<'a> RecordHead<'a> {
    /// Length of the shortest record: every record has at least this many bytes.
    pub const BYTES: usize = FIXED_BYTES_V1;

    /// Takes the bytes at the start of `bytes`, unchecked; `None` when there are too few.
    #[inline]
    #[must_use]
    pub fn of(bytes: &'a [u8]) -> Option<Self> {
        bytes.first_chunk().map(Self)
    }

    /// Whether the magic is a record's.
    #[inline]
    #[must_use]
    pub const fn is_record(&self) -> bool {
        matches!(self.magic(), MAGIC_V1 | MAGIC_V2)
    }

    /// Bytes of the whole record.
    #[inline]
    #[must_use]
    pub const fn size_bytes(&self) -> u32 {
        u32::from_be_bytes(self.part(0))
    }

    /// The magic number, which names the version.
    #[inline]
    #[must_use]
    pub const fn magic(&self) -> u32 {
        u32::from_be_bytes(self.part(4))
    }

    /// The queue.
    #[inline]
    #[must_use]
    pub const fn queue_id(&self) -> u32 {
        u32::from_be_bytes(self.part(QUEUE_ID_AT))
    }

    /// Offset in the queue.
    #[inline]
    #[must_use]
    pub const fn queue_offset(&self) -> QueueOffset {
        QueueOffset(u64::from_be_bytes(self.part(QUEUE_OFFSET_AT)))
    }

    /// Where the record says that it lies in the log.
    #[inline]
    #[must_use]
    pub const fn physical_offset(&self) -> PhysicalOffset {
        PhysicalOffset(u64::from_be_bytes(self.part(PHYSICAL_OFFSET_AT)))
    }

    /// When the broker stored it.
    #[inline]
    #[must_use]
    pub const fn stored_at_ms(&self) -> i64 {
        let is_v6 = i32::from_be_bytes(self.part(SYS_FLAG_AT)) & sys_flag::BORN_HOST_V6 != 0;
        i64::from_be_bytes(self.part(if is_v6 { STORED_AT_AT_V6 } else { STORED_AT_AT_V4 }))
    }

    /// Where the length of the body stands, 4 bytes; the body follows it.
    #[inline]
    #[must_use]
    pub const fn body_length_at(&self) -> usize {
        let flags =
            i32::from_be_bytes(self.part(SYS_FLAG_AT)) & (sys_flag::BORN_HOST_V6 | sys_flag::STORE_HOST_V6);
        BODY_LENGTH_AT_V4 + V6_MORE_BYTES * flags.count_ones() as usize
    }

    /// `N` bytes at a fixed place.
    const fn part<const N: usize>(&self, at: usize) -> [u8; N] {
        match self.0.split_at(at).1.first_chunk() {
            Some(bytes) => *bytes,
            None => panic!("the place lies in the head"),
        }
    }
}
