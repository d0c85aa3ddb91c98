//! What a consumer received, and how far it is behind.

use rocketpy_model::{MessageQueue, QueueOffset};

use crate::traffic::Traffic;

/// What a consumer received, and where it stands in its queues.
///
/// # Units
/// Bytes are those of stored records.
#[derive(Debug, Clone)]
pub struct ConsumerStats {
    /// Handed out; a request is a poll that got messages. What was taken back and handed out again counts again.
    pub received: Traffic,
    /// Pulled from brokers, in answers with messages. Includes what was dropped later, as by a seek.
    pub pulled: Traffic,
    pub failed_pulls: u64,
    /// Queues assigned to this member now, sorted.
    pub queues: Vec<QueueProgress>,
}

/// Where a consumer stands in a queue.
#[derive(Debug, Clone)]
pub struct QueueProgress {
    pub queue: MessageQueue,
    /// Offset after the last message handed out, or of the first one that no handler has finished; `None` until the start is known.
    pub position: Option<QueueOffset>,
    /// End of the queue (exclusive), as its broker last told it.
    pub end: Option<QueueOffset>,
    /// Messages pulled ahead.
    pub prefetched_messages: usize,
    /// Their bytes.
    pub prefetched_bytes: usize,
    /// The user paused it.
    pub is_paused: bool,
}

/// What the state of a consumer counts.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) received: Traffic,
    pub(super) pulled: Traffic,
    pub(super) failed_pulls: u64,
}
