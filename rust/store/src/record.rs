//! Input and result of an append.

use std::net::SocketAddr;

use rocketpy_model::{PhysicalOffset, QueueOffset, sys_flag};

/// A message as the broker gives it to the store, which adds offsets, store time and checks.
#[doc(alias = "MessageExtBrokerInner")]
#[derive(Debug, Clone)]
pub struct NewRecord<'a> {
    /// Topic, already checked by [`rocketpy_model::name::check_topic`]: it becomes a folder name.
    pub topic: &'a str,
    /// Queue within the topic.
    pub queue_id: u32,
    /// The producer's own flag, never interpreted.
    pub flag: i32,
    /// Bits of `rocketpy_model::sys_flag`; the two address bits are set by the store.
    pub sys_flag: i32,
    /// The producer's clock.
    pub born_at_ms: i64,
    /// The producer's address.
    pub born_host: SocketAddr,
    /// Deliveries so far.
    pub reconsume_times: i32,
    /// Physical offset of the half message of a committed transaction message, else 0.
    pub prepared_transaction_offset: PhysicalOffset,
    /// Body as it is stored; for a batch the items of a wire batch.
    pub body: &'a [u8],
    /// Properties text. Ignored for a batch: its items have their own.
    ///
    /// # Source
    /// docs/reference/protocol.md 4.6.1.
    pub properties: &'a [u8],
    /// Whether the properties, or those of an item, may hold a `__CRC32#`, which is left out then. `false` saves a pass over the text.
    pub may_have_crc: bool,
}

/// Where a record went.
///
/// # Durability
/// The record survives the end of the process. It survives a power loss when `flushed_offset() >= end`.
#[doc(alias = "AppendMessageResult")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// First byte of the record in the log.
    pub physical_offset: PhysicalOffset,
    /// Entry of the record in its queue.
    pub queue_offset: QueueOffset,
    /// Length of the record.
    pub size_bytes: u32,
    /// The store's clock at the append.
    pub stored_at_ms: i64,
    /// First byte after the record: what a flush has to reach.
    pub end: PhysicalOffset,
}

/// Where the records of a batch went: consecutive in the log and in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppendedBatch {
    /// First byte of each record, in the order of the batch.
    pub physical_offsets: Vec<PhysicalOffset>,
    /// Queue offset of the first record; the others follow it.
    pub first_queue_offset: QueueOffset,
    /// Length of all records.
    pub size_bytes: u32,
    /// The store's clock at the append.
    pub stored_at_ms: i64,
    /// First byte after the last record.
    pub end: PhysicalOffset,
}

/// Whether a record takes a queue offset: half and rolled back messages do not.
pub fn counts_in_queue(flags: i32) -> bool {
    matches!(sys_flag::transaction(flags), 0 | sys_flag::TRANSACTION_COMMIT)
}
