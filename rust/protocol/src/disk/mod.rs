//! Fixed layouts of the files beside the commit log: what is bytes only, without the files.
//!
//! # Source
//! docs/reference/store-format.md 3.1, 3.5, 4.1, 5.1 and 8.4 to 8.6.

mod extension;
pub mod index;
mod timer;

pub use extension::{ExtensionUnit, extension_address, extension_offset};
pub use index::{IndexEntry, IndexHeader};
use rocketpy_model::PhysicalOffset;
pub use timer::{TimerCheckpoint, TimerCut, TimerSlot, TimerUnit};

/// One consume queue entry.
///
/// # Layout
/// 20 bytes, big-endian, never split across files.
///
/// | bytes | field | meaning |
/// |---|---|---|
/// | 0..8 | `physical_offset` | first byte of the record in the commit log |
/// | 8..12 | `size_bytes` | record length |
/// | 12..20 | `tags_code` | tag hash, delivery time for delayed messages, or [`extension_address`] |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(alias = "CqUnit")]
pub struct ConsumeQueueEntry {
    /// Start of the record in the commit log.
    pub physical_offset: PhysicalOffset,
    /// Length of the record.
    pub size_bytes: u32,
    /// Hash of the message's tag, delivery time in Unix milliseconds, or the address of an extension unit.
    pub tags_code: i64,
}

impl ConsumeQueueEntry {
    /// Bytes of an encoded entry.
    pub const BYTES: usize = 20;

    /// What fills a queue file up to its first entry, when the queue does not begin at 0.
    pub const PRE_BLANK: Self =
        Self { physical_offset: PhysicalOffset::ZERO, size_bytes: i32::MAX as u32, tags_code: 0 };

    /// The entry as it stands in the file.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.physical_offset.get().to_be_bytes());
        bytes[8..12].copy_from_slice(&self.size_bytes.to_be_bytes());
        bytes[12..].copy_from_slice(&self.tags_code.to_be_bytes());
        bytes
    }

    /// Reads an entry. Any bytes give one; a place that was never written gives zeros.
    #[must_use]
    #[inline]
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h, s0, s1, s2, s3, t @ ..] = *bytes;
        Self {
            physical_offset: PhysicalOffset(u64::from_be_bytes([a, b, c, d, e, f, g, h])),
            size_bytes: u32::from_be_bytes([s0, s1, s2, s3]),
            tags_code: i64::from_be_bytes(t),
        }
    }
}

/// The five numbers at the head of the checkpoint page; the rest of its 4096 bytes is zero in the format.
///
/// # Units
/// Times are Unix milliseconds of the last record that is safe in each place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[doc(alias = "StoreCheckpoint")]
pub struct Checkpoint {
    /// Store time of the last record that is durable in the commit log.
    pub physic_msg_at_ms: i64,
    /// Store time of the last record whose consume queue entry is durable.
    pub logics_msg_at_ms: i64,
    /// Store time of the last record whose index entries are durable.
    pub index_msg_at_ms: i64,
    /// Flushed offset of the master, kept by Apache's controller mode; else 0.
    pub master_flushed_offset: PhysicalOffset,
    /// Confirm offset, kept by Apache's controller mode; else 0.
    pub confirm_offset: PhysicalOffset,
}

impl Checkpoint {
    /// Size of the checkpoint file.
    pub const FILE_BYTES: usize = 4096;
    /// Bytes that the five numbers take.
    pub const BYTES: usize = 40;
    /// How far recovery goes back behind the earliest of the times, in milliseconds.
    const MARGIN_MS: i64 = 3_000;

    /// The head of the checkpoint page.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let numbers = [
            self.physic_msg_at_ms as u64,
            self.logics_msg_at_ms as u64,
            self.index_msg_at_ms as u64,
            self.master_flushed_offset.get(),
            self.confirm_offset.get(),
        ];
        for (place, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_be_bytes());
        }
        bytes
    }

    /// Reads the head of a checkpoint page. Any bytes give a checkpoint; the caller checks its times.
    #[must_use]
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        let mut reader = crate::wire::Reader::new(bytes);
        let mut number = || reader.u64().unwrap_or_default();
        Self {
            physic_msg_at_ms: number() as i64,
            logics_msg_at_ms: number() as i64,
            index_msg_at_ms: number() as i64,
            master_flushed_offset: PhysicalOffset(number()),
            confirm_offset: PhysicalOffset(number()),
        }
    }

    /// The time from which abnormal recovery starts: three seconds before the earlier of log and queues, at least 0.
    #[must_use]
    pub fn min_timestamp_ms(&self) -> i64 {
        self.physic_msg_at_ms.min(self.logics_msg_at_ms).saturating_sub(Self::MARGIN_MS).max(0)
    }
}
