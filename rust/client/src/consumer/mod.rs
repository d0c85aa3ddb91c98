//! Receiving messages.

mod batch;

use std::{sync::Arc, time::Duration};

use rocketpy_model::{MessageQueue, QueueOffset};

pub use self::batch::{PulledBatch, PulledMessage, PulledPart, RecordSpan};
use crate::{
    client::Client,
    config::{ConsumerConfig, Subscription},
    error::ClientError,
};

/// Where to go in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    Offset(QueueOffset),
    Begin,
    End,
    /// First message stored at or after this time (milliseconds since 1970).
    Timestamp(i64),
}

/// The broker moved the reader of a queue: the offset asked for is not (or no longer) there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OffsetMove {
    pub queue: MessageQueue,
    pub from: QueueOffset,
    pub to: QueueOffset,
}

/// A member of a consumer group that pulls messages ahead and hands them out when polled. Clones share it.
#[derive(Clone)]
#[doc(alias = "DefaultLitePullConsumer")]
pub struct PullConsumer {
    shared: Arc<()>,
}

impl PullConsumer {
    /// Joins the group and starts pulling.
    pub async fn new(
        client: &Client,
        group: &str,
        subscriptions: Vec<Subscription>,
        config: ConsumerConfig,
    ) -> Result<Self, ClientError> {
        let _ = (client, group, subscriptions, config);
        unimplemented!()
    }
    pub fn group(&self) -> &str {
        unimplemented!("{:?}", self.shared)
    }
    pub fn client(&self) -> &Client {
        unimplemented!()
    }
    /// Hands out up to `max_messages` that are there, waiting up to `max_wait` for the first. Empty when none came.
    ///
    /// # Cancel safety
    /// Nothing is handed out when the future is dropped before it is ready.
    pub async fn poll(&self, _max_messages: usize, _max_wait: Duration) -> Result<PulledBatch, ClientError> {
        unimplemented!()
    }
    /// Commits, for every assigned queue, everything handed out so far, and waits for the brokers' answers.
    pub async fn commit(&self) -> Result<(), ClientError> {
        unimplemented!()
    }
    /// Commits given offsets (the next to read). Refuses an offset above what was handed out.
    pub async fn commit_offsets(&self, _offsets: &[(MessageQueue, QueueOffset)]) -> Result<(), ClientError> {
        unimplemented!()
    }
    /// The offset stored for the group.
    pub async fn committed(&self, _queue: &MessageQueue) -> Result<Option<QueueOffset>, ClientError> {
        unimplemented!()
    }
    /// Per assigned queue, the offset after the last message handed out; queues whose start is not known yet are left out.
    pub fn positions(&self) -> Vec<(MessageQueue, QueueOffset)> {
        unimplemented!()
    }
    /// Goes on reading an assigned queue from elsewhere; what was pulled ahead is dropped.
    pub async fn seek(&self, _queue: &MessageQueue, _position: Position) -> Result<QueueOffset, ClientError> {
        unimplemented!()
    }
    /// Stops pulling and handing out these queues until `resume`.
    pub fn pause(&self, _queues: &[MessageQueue]) -> Result<(), ClientError> {
        unimplemented!()
    }
    pub fn resume(&self, _queues: &[MessageQueue]) -> Result<(), ClientError> {
        unimplemented!()
    }
    /// Queues assigned to this member now, sorted.
    pub fn assignment(&self) -> Vec<MessageQueue> {
        unimplemented!()
    }
    /// Takes the moves that brokers ordered since the last call.
    pub fn take_offset_moves(&self) -> Vec<OffsetMove> {
        unimplemented!()
    }
    /// Leaves the group. With `auto_commit`, commits what it covers; else commits nothing. Idempotent.
    pub async fn close(&self) -> Result<(), ClientError> {
        unimplemented!()
    }
}

/// Reads one queue between two offsets, outside any group: for scans.
pub struct RangeReader;

impl RangeReader {
    /// Reads `[from, to)` of a queue; `tags` as in a subscription.
    pub async fn new(
        client: &Client,
        queue: MessageQueue,
        from: QueueOffset,
        to: QueueOffset,
        tags: &str,
    ) -> Result<Self, ClientError> {
        let _ = (client, queue, from, to, tags);
        unimplemented!()
    }
    /// The next part, or `None` at the end of the range.
    pub async fn next(&mut self) -> Result<Option<PulledPart>, ClientError> {
        unimplemented!()
    }
}
