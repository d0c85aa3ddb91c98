//! Settings of a push consumer.

use std::path::PathBuf;
use std::time::Duration;

use super::balance::Balance;
use super::{ConsumerConfig, Subscription};
use crate::error::ClientError;

/// Most retries that a group may ask for; the broker's field is signed.
const MAX_RETRIES: u32 = i32::MAX as u32;

/// One topic of a push consumer.
#[derive(Debug, Clone)]
pub struct PushTopic {
    /// The topic and its tags.
    pub subscription: Subscription,
    /// Which callers of [`PushConsumer::take`](crate::PushConsumer::take) get its messages.
    pub lane: usize,
    /// Most messages that its handler gets at a time.
    pub batch: usize,
}

/// Settings of a [`PushConsumer`](crate::PushConsumer).
#[derive(Debug, Clone)]
pub struct PushConfig {
    /// Those of every consumer. `auto_commit` and `retry_topic` are the push consumer's own.
    pub consumer: ConsumerConfig,
    /// How many times a message is given to a handler again before it goes to the dead letters. Default 16.
    pub max_retries: u32,
    /// Whether dead letters carry type and text of the error that a handler raised last. Default: on.
    pub dead_letter_error: bool,
    /// After this long a message whose handler has not returned is sent back, and the handler is no longer waited for. Not where
    /// order counts. Default 15 min.
    pub handler_timeout: Duration,
    /// Each queue's messages one after the other; one that fails is given to the handler again in its place. Default: off.
    pub ordered: bool,
    /// Pause before that. Default 1 s.
    pub retry_pause: Duration,
    /// Every member gets all messages, and keeps its offsets in a file. What fails is not sent back. Default: off.
    pub broadcast: bool,
    /// Folder of the files with these offsets; needed for `broadcast`.
    pub offsets_folder: Option<PathBuf>,
}

impl Default for PushConfig {
    fn default() -> Self {
        Self {
            consumer: ConsumerConfig::default(),
            max_retries: 16,
            dead_letter_error: true,
            handler_timeout: Duration::from_secs(900),
            ordered: false,
            retry_pause: Duration::from_secs(1),
            broadcast: false,
            offsets_folder: None,
        }
    }
}

impl PushConfig {
    pub(crate) fn check(&self) -> Result<(), ClientError> {
        let wrong =
            |field, reason: &str| Err(ClientError::InvalidConfig { field, reason: reason.to_owned() });
        if self.handler_timeout.is_zero() {
            return wrong("handler_timeout", "more than 0 s");
        }
        if self.max_retries > MAX_RETRIES {
            return wrong("max_retries", "at most 2147483647");
        }
        if self.broadcast && self.offsets_folder.is_none() {
            return wrong("offsets_folder", "needed for broadcast");
        }
        if self.broadcast && !matches!(self.consumer.balance, Balance::Average) {
            return wrong("balance", "members share no queues with broadcast");
        }
        Ok(())
    }
}
