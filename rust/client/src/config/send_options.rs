//! What may be set for one send.

use std::time::Duration;

use rocketpy_model::MessageQueue;

/// How one send chooses its queue, what it adds to the message and how long it may take.
#[derive(Debug, Clone, Default)]
pub struct SendOptions {
    /// The queue to send to; no other is tried.
    pub queue: Option<MessageQueue>,
    /// Messages with one key go to one queue, in order. Overrides the message's own order key.
    pub order_key: Option<String>,
    /// Unique key of the message; default: a new one. A message that is sent again under the key of its first time has the same
    /// id, by which consumers recognise the duplicate. `send_many` refuses it.
    pub msg_id: Option<String>,
    /// Overrides [`ProducerConfig::send_timeout`](crate::ProducerConfig::send_timeout).
    pub timeout: Option<Duration>,
    /// How long a submit waits for room in the window. Default: [`ProducerConfig::send_timeout`](crate::ProducerConfig::send_timeout).
    pub wait: Option<Duration>,
}
