//! Push consumers: handlers get messages, and each message ends by itself.
//!
//! A [`PushConsumer`] is a member of its group as a pull consumer is. Each of its queues knows what handlers have not finished
//! (`process_queue`), and the offset of the first such message is what is committed. `concurrent` gives messages to handlers, `work`
//! is what one of them has, `direct` gives them one that an administrator chose, `send_back` returns what failed to the broker,
//! `orderly` holds the locks of queues that are read in order, `local_offsets` keeps the offsets of a member that gets all messages,
//! and `watch` looks at handlers that take long.

mod concurrent;
mod direct;
mod local_offsets;
pub(super) mod orderly;
mod process_queue;
mod send_back;
mod watch;
mod work;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use rocketpy_model::system;
use rocketpy_protocol::compression::DecompressLimits;
use tokio::time::{Instant, timeout_at};
use tracing::warn;

use self::concurrent::Engine;
pub(crate) use self::local_offsets::LocalOffsets;
pub(crate) use self::process_queue::ProcessQueue;
pub use self::watch::PushStats;
pub use self::work::{Fate, Reason, Verdict, Work};
use super::delivery::Delivery;
use super::member::DirectHandlers;
use super::pull_consumer::{ConsumerState, PullConsumer};
use super::state::QueueChange;
use crate::client::Client;
use crate::config::{PushConfig, PushTopic};
use crate::error::ClientError;

/// How often what is finished is committed.
const COMMIT_INTERVAL: Duration = Duration::from_secs(1);

/// A member of a consumer group whose messages go to handlers.
///
/// Handlers run where its user calls [`take`](Self::take). Dropping it leaves the group.
#[doc(alias = "DefaultMQPushConsumer")]
pub struct PushConsumer {
    consumer: PullConsumer,
    engine: Arc<Engine>,
}

impl PushConsumer {
    /// Joins the group and starts pulling.
    ///
    /// # Errors
    /// As [`PullConsumer::new`]. With `broadcast` also [`ClientError::OffsetsFile`].
    pub async fn new(
        client: &Client,
        group: &str,
        mut topics: Vec<PushTopic>,
        mut config: PushConfig,
    ) -> Result<Self, ClientError> {
        config.check()?;
        let namespace = client.namespace();
        let group: &str = &namespace.wrap(group);
        for topic in &mut topics {
            topic.subscription.topic = namespace.wrap(&topic.subscription.topic).into_owned();
        }
        let delivery = Delivery::Push { ordered: config.ordered, broadcast: config.broadcast };
        config.consumer.auto_commit = Some(COMMIT_INTERVAL);
        config.consumer.retry_topic = !config.broadcast;
        let offsets = match &config.offsets_folder {
            Some(folder) if config.broadcast => {
                Some(LocalOffsets::open(&folder.join(client.client_id()).join(group)).await?)
            }
            _ => None,
        };
        let subscriptions = topics.iter().map(|topic| topic.subscription.clone()).collect();
        let consumer =
            PullConsumer::join(client, group, subscriptions, config.consumer.clone(), delivery, offsets)
                .await?;
        let member = consumer.member();
        let engine = Engine::new(member.clone(), config, topics);
        let handlers: Arc<dyn DirectHandlers> = engine.clone();
        assert!(member.handlers.set(Arc::downgrade(&handlers)).is_ok(), "a member gets its handlers once");
        let watched = engine.clone();
        member.spawn(|_| watched.watch());
        if delivery.needs_locks() {
            member.spawn(orderly::renew);
        }
        Ok(Self { consumer, engine })
    }

    /// The consumer group, with its namespace.
    pub fn group(&self) -> &str {
        self.consumer.group()
    }

    /// What this member reads, and which of its brokers answer.
    pub fn state(&self) -> ConsumerState {
        self.consumer.state()
    }

    /// Outcomes of the messages so far. Sends no request, and works after a stop.
    pub fn stats(&self) -> PushStats {
        self.engine.stats(self.consumer.stats().queues)
    }

    /// Number of handlers of a lane whose messages were taken from them because they did not return in time, and that still run.
    pub fn stuck(&self, lane: usize) -> usize {
        self.engine.stuck(lane)
    }

    /// Limits for decompressed bodies.
    pub fn body_limits(&self) -> DecompressLimits {
        self.consumer.body_limits()
    }

    /// The topic from which messages come again that were sent back.
    pub fn retry_topic(&self) -> String {
        system::retry_topic(self.group())
    }

    /// Takes messages of a topic of this lane for a handler; `None` when none came in time.
    ///
    /// # Errors
    /// [`ClientError::Closed`] once the consumer stops. Failures to pull are logged, and tried again.
    ///
    /// # Cancel safety
    /// Nothing is taken when the future is dropped before it is ready.
    pub async fn take(&self, lane: usize, max_wait: Duration) -> Result<Option<Work>, ClientError> {
        self.engine.take(lane, max_wait).await
    }

    /// Waits for a [change](PullConsumer::change) to tell the user of; `None` when there was none in time. One task may wait.
    ///
    /// Lost queues are told of when no handler works on their messages any more, or when they had to go.
    ///
    /// # Errors
    /// [`ClientError::Closed`].
    pub async fn next_change(&self, max_wait: Duration) -> Result<Option<QueueChange>, ClientError> {
        let member = &self.engine.member;
        let deadline = Instant::now() + max_wait;
        loop {
            member.check()?;
            if let Some(change) = member.state.lock().next_change() {
                return Ok(Some(change));
            }
            if timeout_at(deadline, member.signals.changed.notified()).await.is_err() {
                return Ok(None);
            }
        }
    }

    /// Notes that the user was told of a change.
    pub fn told(&self, change: &QueueChange) {
        self.consumer.told(change);
    }

    /// Waits until the user was told that all queues are lost.
    async fn told_of_leaving(&self) {
        self.consumer.begin_leaving();
        let member = &self.engine.member;
        loop {
            let mut told = pin!(member.signals.handover.notified());
            told.as_mut().enable();
            if member.is_closed() || member.state.lock().has_delivered_all() {
                return;
            }
            told.await;
        }
    }

    /// Hands out no more, waits up to `patience` for handlers and for messages that are being sent back, then as long until the user was
    /// told that the queues are lost, commits what is finished and leaves the group. Every call waits for that.
    ///
    /// # Errors
    /// The failure of the commit; the consumer is closed all the same.
    pub async fn stop(&self, patience: Duration) -> Result<(), ClientError> {
        self.engine.begin_stop();
        if tokio::time::timeout(patience, self.engine.quiet()).await.is_err() {
            let unfinished = self.engine.member.state.lock().unfinished();
            warn!(
                group = self.group(),
                unfinished, "consumer stops while handlers run, their messages will be redelivered"
            );
        }
        if tokio::time::timeout(patience, self.told_of_leaving()).await.is_err() {
            warn!(group = self.group(), "consumer stops while its rebalance callback runs");
        }
        self.consumer.close().await
    }
}

impl Drop for PushConsumer {
    fn drop(&mut self) {
        self.engine.begin_stop();
    }
}
