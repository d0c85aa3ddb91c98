//! What may be set for one send.

use std::time::Duration;

use rocketpy_model::MessageQueue;

/// How one send chooses its queue and how long it may take.
#[derive(Debug, Clone, Default)]
pub struct SendOptions {
    /// The queue to send to; no other is tried.
    pub queue: Option<MessageQueue>,
    /// Messages with one key go to one queue, in order. Overrides the message's own order key.
    pub order_key: Option<String>,
    /// Overrides [`ProducerConfig::send_timeout`](crate::ProducerConfig::send_timeout).
    pub timeout: Option<Duration>,
}
