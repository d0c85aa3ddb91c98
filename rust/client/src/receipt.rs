//! Acknowledgements of stored messages.

use rocketpy_model::{MessageQueue, QueueOffset};

/// How far an acknowledged message got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendStatus {
    /// Stored as the broker's flush and replication policy asks.
    SendOk,
    /// Stored, but the flush was not confirmed in time: a power cut may lose the message.
    FlushDiskTimeout,
    /// Stored, but replication was not confirmed in time.
    FlushSlaveTimeout,
    /// Stored, but no slave was available.
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
    /// How far the message got.
    pub status: SendStatus,
    /// Unique key, made by the client.
    pub msg_id: String,
    /// Offset message id, made by the broker.
    pub offset_msg_id: String,
    /// The queue that holds the message.
    pub queue: MessageQueue,
    /// The message's offset in that queue.
    pub queue_offset: QueueOffset,
    /// Id of the transaction, for a message that is part of one.
    pub transaction_id: Option<String>,
    /// What [`Producer::recall`](crate::Producer::recall) takes the message back by, while it waits for its time.
    pub recall_handle: Option<String>,
}
