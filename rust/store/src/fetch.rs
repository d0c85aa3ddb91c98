//! What a read of a queue asks for and gives back.

use bytes::Bytes;
use rocketpy_model::{PhysicalOffset, QueueOffset};

/// How much one read may return. If there is a record, a read returns at least one, of any size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadLimits {
    /// Maximum number of records.
    pub max_messages: u32,
    /// Maximum number of bytes of all records together.
    pub max_bytes: u64,
    /// Whether a read of a queue may copy short records. That is faster than slices of the mapped log, and takes memory.
    pub copies: bool,
}

/// How a read of a queue ended.
#[doc(alias = "GetMessageStatus")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FetchStatus {
    /// There are records.
    Found,
    /// Entries were read, but none passed the filter. Continue at `next_offset`.
    NoMatchedMessage,
    /// The records of the entries are gone. Continue at `next_offset`.
    MessageWasRemoving,
    /// The offset is before the first entry; `next_offset` is the minimum.
    OffsetTooSmall,
    /// The offset is the next one to be written: the caller waits.
    OffsetOverflowOne,
    /// The offset is after that; `next_offset` is the maximum.
    OffsetOverflowBadly,
    /// No consume queue file holds the offset; `next_offset` is the first entry of the next file.
    OffsetFoundNull,
    /// The queue has never held a message.
    NoMessageInQueue,
}

/// What a read of a queue gives.
#[doc(alias = "GetMessageResult")]
#[derive(Debug, Clone)]
pub struct Fetch {
    /// How the read ended.
    pub status: FetchStatus,
    /// Where the next read continues.
    pub next_offset: QueueOffset,
    /// First entry of the queue.
    pub min_offset: QueueOffset,
    /// Offset after the last entry of the queue.
    pub max_offset: QueueOffset,
    /// Number of records.
    pub count: u32,
    /// Length of all records.
    pub size_bytes: u64,
    /// The records in queue order. Those that follow each other in the log are a slice of its map; shorter runs are copied together.
    pub records: Vec<Bytes>,
    /// Bytes of `records` that are slices of the mapped log. The others take memory.
    pub mapped_bytes: usize,
}

/// First and next queue offset of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueBounds {
    /// First entry.
    pub min: QueueOffset,
    /// Offset that the next message gets.
    pub max: QueueOffset,
}

/// An entry of a queue: where its record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueEntry {
    /// Number of the entry in its queue.
    pub queue_offset: QueueOffset,
    /// First byte of the record in the log.
    pub physical_offset: PhysicalOffset,
    /// Length of the record.
    pub size_bytes: u32,
    /// Tag hash, sign-extended; for a delayed message the time of its delivery.
    pub tags_code: i64,
}

/// Which entry a look-up by time wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Boundary {
    /// The first entry stored at or after the time.
    #[default]
    Lower,
    /// The last entry stored at or before the time.
    Upper,
}

/// One queue of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueSummary {
    /// Topic of the queue.
    pub topic: std::sync::Arc<str>,
    /// Queue within the topic.
    pub queue_id: u32,
    /// What it holds.
    pub bounds: QueueBounds,
}
