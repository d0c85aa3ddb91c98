//! Messages that are not what was stored.

use rocketpy_model::{MessageQueue, PhysicalOffset, QueueOffset};
use rocketpy_protocol::record::{
    CheckMode, FIXED_BYTES_V1, MAGIC_V1, MAGIC_V2, RecordError, RecordView, check_record,
};

use crate::error::ClientError;

/// A message that is not what was stored.
pub(crate) struct Damaged {
    pub(crate) queue_offset: QueueOffset,
    physical_offset: PhysicalOffset,
    reason: String,
}

impl Damaged {
    /// Compares a record with its checksum: its own, which covers all of its bytes, where it has one, else the body's. `None`
    /// when they agree.
    pub(crate) fn find(record: &RecordView<'_>, queue_offset: QueueOffset) -> Option<Self> {
        let error = check_record(record.bytes, CheckMode::Record).err()?;
        Some(Self { queue_offset, physical_offset: record.physical_offset, reason: error.to_string() })
    }

    /// The same for bytes whose fields do not fit together. `None` when they may be no record at all, or not a whole one: then
    /// the answer is at fault.
    ///
    /// # Source
    /// docs/reference/store-format.md 2.1.
    pub(crate) fn find_undecodable(
        bytes: &[u8],
        error: &RecordError,
        queue_offset: QueueOffset,
    ) -> Option<Self> {
        const PHYSICAL_OFFSET_AT: usize = 28;
        let (size, rest) = bytes.split_first_chunk()?;
        let magic = u32::from_be_bytes(*rest.first_chunk()?);
        let size = u32::from_be_bytes(*size) as usize;
        let is_whole = (FIXED_BYTES_V1..=bytes.len()).contains(&size);
        let physical_offset = u64::from_be_bytes(*bytes.get(PHYSICAL_OFFSET_AT..)?.first_chunk()?);
        (is_whole && [MAGIC_V1, MAGIC_V2].contains(&magic)).then(|| Self {
            queue_offset,
            physical_offset: PhysicalOffset(physical_offset),
            reason: error.to_string(),
        })
    }

    pub(crate) fn into_error(self, queue: &MessageQueue) -> ClientError {
        let Self { queue_offset, physical_offset, reason } = self;
        ClientError::DamagedMessage { queue: queue.clone(), queue_offset, physical_offset, reason }
    }
}

/// Compares a looked-up record with its checksum.
///
/// # Errors
/// [`ClientError::DamagedMessage`].
pub(crate) fn check(record: &RecordView<'_>, broker_name: &str) -> Result<(), ClientError> {
    match Damaged::find(record, record.queue_offset) {
        Some(damaged) => {
            Err(damaged.into_error(&MessageQueue::new(record.topic, broker_name, record.queue_id)))
        }
        None => Ok(()),
    }
}
