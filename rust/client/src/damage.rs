//! Messages whose body does not match its checksum.

use rocketpy_model::{MessageQueue, PhysicalOffset, QueueOffset};
use rocketpy_protocol::record::{RecordView, body_crc};

use crate::error::ClientError;

/// A message whose body does not match its checksum.
pub(crate) struct Damaged {
    pub(crate) queue_offset: QueueOffset,
    physical_offset: PhysicalOffset,
    stored_crc: u32,
    computed_crc: u32,
}

impl Damaged {
    /// Compares the body with its checksum; `None` when they agree.
    pub(crate) fn find(record: &RecordView<'_>, queue_offset: QueueOffset) -> Option<Self> {
        let (stored_crc, computed_crc) = (record.body_crc, body_crc(record.body));
        let physical_offset = record.physical_offset;
        (stored_crc != computed_crc).then_some(Self {
            queue_offset,
            physical_offset,
            stored_crc,
            computed_crc,
        })
    }

    pub(crate) fn into_error(self, queue: &MessageQueue) -> ClientError {
        let Self { queue_offset, physical_offset, stored_crc, computed_crc } = self;
        ClientError::DamagedMessage {
            queue: queue.clone(),
            queue_offset,
            physical_offset,
            stored_crc,
            computed_crc,
        }
    }
}

/// Compares the body of a looked-up record with its checksum.
///
/// # Errors
/// [`ClientError::DamagedMessage`].
pub(crate) fn check_body(record: &RecordView<'_>, broker_name: &str) -> Result<(), ClientError> {
    match Damaged::find(record, record.queue_offset) {
        Some(damaged) => {
            Err(damaged.into_error(&MessageQueue::new(record.topic, broker_name, record.queue_id)))
        }
        None => Ok(()),
    }
}
