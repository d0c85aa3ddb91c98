//! What the broker said about a message that it stored.

use rocketpy_model::{MessageQueue, QueueOffset};

/// How far an acknowledged message got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendStatus {
    /// Stored as the broker's flush and replication policy asks.
    SendOk,
    /// Stored; the flush was not confirmed in time. It may be lost by a power cut.
    FlushDiskTimeout,
    /// Stored; replication was not confirmed in time.
    FlushSlaveTimeout,
    /// Stored; no slave was there to take it.
    SlaveNotAvailable,
}

impl SendStatus {
    /// Apache's name of the status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SendOk => "SEND_OK",
            Self::FlushDiskTimeout => "FLUSH_DISK_TIMEOUT",
            Self::FlushSlaveTimeout => "FLUSH_SLAVE_TIMEOUT",
            Self::SlaveNotAvailable => "SLAVE_NOT_AVAILABLE",
        }
    }
}

/// The acknowledgement of one message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[doc(alias = "SendResult")]
pub struct Receipt {
    pub status: SendStatus,
    /// Unique key, made by the client.
    pub msg_id: String,
    /// Offset message id, made by the broker.
    pub offset_msg_id: String,
    /// The queue that holds the message.
    pub queue: MessageQueue,
    pub queue_offset: QueueOffset,
    pub transaction_id: Option<String>,
}
