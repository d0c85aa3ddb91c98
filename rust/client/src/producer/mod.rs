//! Sending messages.

use std::{borrow::Borrow, sync::Arc, time::Duration};

use rocketpy_model::{Message, MessageQueue};

use crate::{
    client::Client,
    config::ProducerConfig,
    error::ClientError,
    receipt::Receipt,
};

/// How one send chooses its queue and how long it may take.
#[derive(Debug, Clone, Default)]
pub struct SendOptions {
    /// The queue to use; no other is tried.
    pub queue: Option<MessageQueue>,
    /// Messages with one key go to one queue, in order. Wins over the message's `__SHARDINGKEY` property, which says
    /// the same.
    pub order_key: Option<String>,
    /// Instead of [`ProducerConfig::send_timeout`].
    pub timeout: Option<Duration>,
}

/// Sends messages for one producer group. Clones share it.
#[derive(Clone)]
#[doc(alias = "DefaultMQProducer")]
pub struct Producer {
    shared: Arc<()>,
}

/// A submitted message: await it for its receipt. Dropping it does not take the message back.
pub struct PendingSend;

impl Future for PendingSend {
    type Output = Result<Receipt, ClientError>;
    fn poll(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<Receipt, ClientError>> {
        unimplemented!()
    }
}

/// The outcome of [`Producer::send_many`], in the order of its messages; receipts are made when asked for.
pub struct SentMany;

impl SentMany {
    /// Messages given.
    pub fn len(&self) -> usize {
        unimplemented!()
    }
    pub fn is_empty(&self) -> bool {
        unimplemented!()
    }
    /// Messages acknowledged.
    pub fn acknowledged(&self) -> usize {
        unimplemented!()
    }
    /// The receipt, or the failure, of one message.
    ///
    /// # Panics
    /// When `index` is not below `len()`.
    pub fn receipt(&self, _index: usize) -> Result<Receipt, ClientError> {
        unimplemented!()
    }
    /// [`ClientError::PartlySent`] unless every message was acknowledged.
    pub fn check(&self) -> Result<(), ClientError> {
        unimplemented!()
    }
}

impl Producer {
    /// Registers the group, tells the known brokers.
    pub async fn new(client: &Client, group: &str, config: ProducerConfig) -> Result<Self, ClientError> {
        let _ = (client, group, config);
        unimplemented!()
    }
    pub fn group(&self) -> &str {
        unimplemented!("{:?}", self.shared)
    }
    pub fn client(&self) -> &Client {
        unimplemented!()
    }
    /// Queues of the topic that may be written.
    pub async fn queues(&self, _topic: &str) -> Result<Vec<MessageQueue>, ClientError> {
        unimplemented!()
    }
    /// Sends one message and waits for its acknowledgement, trying another broker when one fails.
    pub async fn send(&self, _message: &Message, _options: SendOptions) -> Result<Receipt, ClientError> {
        unimplemented!()
    }
    /// Sends many messages in few requests; keeps the order of messages that go to one queue.
    /// `M` is anything that lends a `Message` (a `Message`, an `Arc<Message>`, a binding's own handle).
    pub async fn send_many<M>(&self, _messages: Vec<M>, _options: SendOptions) -> Result<SentMany, ClientError>
    where
        M: Borrow<Message> + Send + Sync + 'static,
    {
        unimplemented!()
    }
    /// Hands one message over; waits (up to the send timeout) only while the window is full.
    pub async fn submit(&self, _message: Message, _options: SendOptions) -> Result<PendingSend, ClientError> {
        unimplemented!()
    }
    /// As `submit`; the callback runs on a runtime thread when the outcome is known.
    pub async fn submit_with<F>(&self, _message: Message, _options: SendOptions, _done: F) -> Result<(), ClientError>
    where
        F: FnOnce(Result<Receipt, ClientError>) + Send + 'static,
    {
        unimplemented!()
    }
    /// Waits until every submitted message has its outcome.
    pub async fn flush(&self, _timeout: Duration) -> Result<(), ClientError> {
        unimplemented!()
    }
    /// Sends without an answer: only local failures are seen.
    pub async fn send_oneway(&self, _message: &Message, _options: SendOptions) -> Result<(), ClientError> {
        unimplemented!()
    }
    /// Flushes (up to the send timeout), unregisters the group. Idempotent.
    pub async fn close(&self) -> Result<(), ClientError> {
        unimplemented!()
    }
}
