//! Receiving messages.

mod allocate;
mod batch;
mod bodies;
mod commit;
pub(crate) mod decode;
mod pull;
mod range;
mod rebalance;
mod state;
#[cfg(test)]
mod state_tests;
mod subscription;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rocketpy_model::{MessageQueue, QueueOffset};
use rocketpy_protocol::body::{ConsumeFromWhere, ConsumeType, ConsumerData, MessageModel};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{error, info};

pub use self::batch::{PulledBatch, PulledMessage, PulledPart, RecordSpan};
pub use self::range::RangeReader;
use self::state::{CommitScope, State};
use self::subscription::TopicSubscription;
use crate::client::Client;
use crate::config::{ConsumerConfig, Subscription};
use crate::error::ClientError;
use crate::{members, producer, wire};

/// Where to go in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// This offset.
    Offset(QueueOffset),
    /// The oldest message that is there.
    Begin,
    /// What arrives from now on.
    End,
    /// First message stored at or after this time (milliseconds since 1970).
    Timestamp(i64),
}

/// The broker moved the reader of a queue: the offset asked for is not, or no longer, there.
///
/// Messages between `from` and `to` were not read when `to` is the greater one: they are gone. When it is the smaller one the queue has
/// become shorter, and what follows was read before under the same offsets or is new.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OffsetMove {
    pub queue: MessageQueue,
    pub from: QueueOffset,
    pub to: QueueOffset,
}

/// A member of a consumer group that pulls messages ahead and hands them out when polled.
///
/// Clones share it; when the last one is dropped it leaves the group. Other members of the group may be of any language, if they
/// subscribe to the same topics with the same tags and share queues out by the average strategy.
#[derive(Clone)]
#[doc(alias = "DefaultLitePullConsumer")]
pub struct PullConsumer {
    owner: Arc<Owner>,
}

/// Stops the tasks when the last clone goes.
struct Owner(Arc<Shared>);

pub(crate) struct Shared {
    client: Client,
    group: Arc<str>,
    subscriptions: Vec<TopicSubscription>,
    config: ConsumerConfig,
    state: Mutex<State>,
    /// Something can be handed out, or there is an error to tell.
    arrived: Notify,
    /// Asks for a rebalance.
    wake: Notify,
    /// A broker was connected to, which may have forgotten commits. They are repeated after the next rebalance: queues may
    /// have gone to other members while it was away.
    reconnected: AtomicBool,
    /// Commits take turns, so that an older one cannot overtake.
    committing: tokio::sync::Mutex<()>,
    tasks: Mutex<JoinSet<()>>,
    closed: AtomicBool,
    /// For the tasks, which own a share of this.
    myself: Weak<Self>,
}

impl PullConsumer {
    /// Joins the group and starts pulling.
    ///
    /// # Errors
    /// [`ClientError::InvalidGroup`], [`ClientError::InvalidTopic`], [`ClientError::InvalidExpression`],
    /// [`ClientError::InvalidConfig`], [`ClientError::GroupInUse`]; [`ClientError::NoRoute`] for a topic that does not exist
    /// (unless [`ConsumerConfig::allow_missing_topic`]); those of reaching a name server.
    pub async fn new(
        client: &Client,
        group: &str,
        subscriptions: Vec<Subscription>,
        config: ConsumerConfig,
    ) -> Result<Self, ClientError> {
        let instance = client.instance();
        instance.check()?;
        producer::validate::check_group(group)?;
        config.check()?;
        let subscriptions = subscription::of(group, &subscriptions, config.retry_topic)?;
        for subscription in &subscriptions {
            match instance.route(&subscription.topic).await {
                Err(ClientError::NoRoute { .. }) if config.allow_missing_topic || subscription.is_retry => {}
                route => drop(route?),
            }
        }
        let shared = Arc::new_cyclic(|myself| Shared {
            client: client.clone(),
            group: group.into(),
            subscriptions,
            config,
            state: Mutex::default(),
            arrived: Notify::new(),
            wake: Notify::new(),
            reconnected: AtomicBool::new(false),
            committing: tokio::sync::Mutex::default(),
            tasks: Mutex::default(),
            closed: AtomicBool::new(false),
            myself: myself.clone(),
        });
        let consumer: Arc<dyn members::Consumer> = shared.clone();
        instance.members.add_consumer(group, Arc::downgrade(&consumer))?;
        let owner = Arc::new(Owner(shared));
        instance.heartbeat().await;
        owner.0.spawn(rebalance::run);
        if let Some(interval) = owner.0.config.auto_commit {
            owner.0.spawn(|shared| commit::run(shared, interval));
        }
        info!(group, client_id = client.client_id(), "consumer started");
        Ok(Self { owner })
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.owner.0
    }

    /// The consumer group.
    pub fn group(&self) -> &str {
        &self.shared().group
    }

    /// The client that it pulls by.
    pub fn client(&self) -> &Client {
        &self.shared().client
    }

    /// Hands out up to `max_messages` that are there, waiting up to `max_wait` for the first. Empty when none came.
    ///
    /// # Errors
    /// What kept the consumer from pulling and does not mend itself, once each time it happens: a refusal of the broker, a
    /// deleted topic, [`ClientError::NoStoredOffset`], [`ClientError::BadAnswer`]. The consumer goes on trying. Unreachable
    /// brokers are no error: they are waited for, and logged.
    ///
    /// # Cancel safety
    /// Nothing is handed out when the future is dropped before it is ready.
    pub async fn poll(&self, max_messages: usize, max_wait: Duration) -> Result<PulledBatch, ClientError> {
        let shared = self.shared();
        shared.check()?;
        if shared.config.auto_commit.is_some() {
            shared.state.lock().settle();
        }
        let (max_messages, deadline) = (max_messages.max(1), Instant::now() + max_wait);
        loop {
            let arrived = shared.arrived.notified();
            tokio::pin!(arrived);
            // From here on an arrival is not missed.
            arrived.as_mut().enable();
            {
                let mut state = shared.state.lock();
                if let Some(error) = state.take_failure() {
                    return Err(error);
                }
                let batch = state.take(max_messages, &shared.config);
                if !batch.is_empty() {
                    return Ok(batch);
                }
            }
            shared.check()?;
            if tokio::time::timeout_at(deadline, arrived).await.is_err() {
                return Ok(PulledBatch::default());
            }
        }
    }

    /// Commits, for every assigned queue, everything handed out so far, and waits for the brokers' answers.
    ///
    /// A queue from which nothing was handed out commits where it started, so that the next start goes on from there.
    ///
    /// # Errors
    /// The first failure; the other queues are committed nevertheless. Committing again is safe.
    ///
    /// # Durability
    /// A broker writes offsets to disk every few seconds: a crash may take the last commits back, never forward.
    pub async fn commit(&self) -> Result<(), ClientError> {
        self.shared().check()?;
        self.shared().commit(CommitScope::HandedOut).await
    }

    /// Commits given offsets (each the next to read).
    ///
    /// # Errors
    /// [`ClientError::NotAssigned`]; [`ClientError::OffsetOutOfRange`] for an offset above what was handed out. Nothing is
    /// committed then. Otherwise as [`commit`](Self::commit).
    pub async fn commit_offsets(&self, offsets: &[(MessageQueue, QueueOffset)]) -> Result<(), ClientError> {
        let shared = self.shared();
        shared.check()?;
        shared.commit_all(offsets).await
    }

    /// The offset stored for the group at the broker.
    ///
    /// # Errors
    /// Those of reaching the broker.
    pub async fn committed(&self, queue: &MessageQueue) -> Result<Option<QueueOffset>, ClientError> {
        self.shared().check()?;
        self.client().instance().stored_offset(self.group(), queue).await
    }

    /// Per assigned queue, the offset behind the last message handed out; queues whose start is not known yet are left out.
    pub fn positions(&self) -> Vec<(MessageQueue, QueueOffset)> {
        self.shared().state.lock().positions()
    }

    /// Goes on reading an assigned queue from elsewhere; what was pulled ahead is dropped. Returns the offset.
    ///
    /// # Errors
    /// [`ClientError::NotAssigned`], [`ClientError::OffsetOutOfRange`], those of reaching the broker.
    pub async fn seek(&self, queue: &MessageQueue, position: Position) -> Result<QueueOffset, ClientError> {
        let shared = self.shared();
        shared.check()?;
        let not_assigned = || ClientError::NotAssigned { queue: queue.clone() };
        if !shared.state.lock().contains(queue) {
            return Err(not_assigned());
        }
        let instance = shared.client.instance();
        let offset = match position {
            Position::Begin => instance.min_offset(queue).await?,
            Position::End => instance.max_offset(queue).await?,
            Position::Timestamp(at_ms) => instance.search_offset(queue, at_ms).await?,
            Position::Offset(offset) => {
                let (min, max) = (instance.min_offset(queue).await?, instance.max_offset(queue).await?);
                if offset < min || offset > max {
                    return Err(ClientError::OffsetOutOfRange { queue: queue.clone(), offset, min, max });
                }
                offset
            }
        };
        // It may have gone to another member meanwhile.
        if shared.state.lock().seek(queue, offset) { Ok(offset) } else { Err(not_assigned()) }
    }

    /// Takes back what was handed out of these queues from an offset on, so that it is handed out again. Asks no broker.
    ///
    /// A queue that is no longer assigned is left out: who has it now begins behind the last commit. What another thread was
    /// handed out after it comes again, too.
    pub fn take_back(&self, offsets: &[(MessageQueue, QueueOffset)]) {
        let mut state = self.shared().state.lock();
        offsets.iter().for_each(|(queue, offset)| state.take_back(queue, *offset));
    }

    /// Stops pulling and handing out these queues until [`resume`](Self::resume). What was pulled ahead is kept.
    ///
    /// A queue that goes to another member and comes back is still paused. Others that come later are not.
    ///
    /// # Errors
    /// [`ClientError::NotAssigned`] for the first that is not, unless it was paused before it was lost; the others are paused.
    pub fn pause(&self, queues: &[MessageQueue]) -> Result<(), ClientError> {
        self.set_paused(queues, true)
    }

    /// Takes these queues up again.
    ///
    /// # Errors
    /// As [`pause`](Self::pause).
    pub fn resume(&self, queues: &[MessageQueue]) -> Result<(), ClientError> {
        self.set_paused(queues, false)
    }

    /// Takes all paused queues up again, also those that are with another member.
    ///
    /// # Errors
    /// [`ClientError::Closed`].
    pub fn resume_all(&self) -> Result<(), ClientError> {
        let shared = self.shared();
        shared.check()?;
        shared.state.lock().resume_all();
        shared.arrived.notify_waiters();
        Ok(())
    }

    fn set_paused(&self, queues: &[MessageQueue], paused: bool) -> Result<(), ClientError> {
        let shared = self.shared();
        shared.check()?;
        let mut state = shared.state.lock();
        let strangers: Vec<_> = queues.iter().filter(|queue| !state.set_paused(queue, paused)).collect();
        drop(state);
        shared.arrived.notify_waiters();
        match strangers.first() {
            None => Ok(()),
            Some(queue) => Err(ClientError::NotAssigned { queue: (*queue).clone() }),
        }
    }

    /// Queues assigned to this member now, sorted.
    pub fn assignment(&self) -> Vec<MessageQueue> {
        self.shared().state.lock().queues().map(|queue| (**queue).clone()).collect()
    }

    /// Takes the moves that brokers ordered since the last call.
    pub fn take_offset_moves(&self) -> Vec<OffsetMove> {
        self.shared().state.lock().take_moves()
    }

    /// Leaves the group. With `auto_commit`, first commits what it covers; else commits nothing. Idempotent.
    ///
    /// # Errors
    /// The failure of that commit; the consumer is closed nevertheless.
    pub async fn close(&self) -> Result<(), ClientError> {
        let shared = self.shared();
        shared.client.check_process()?;
        if !shared.begin_close() {
            return Ok(());
        }
        let committed = match shared.config.auto_commit {
            Some(_) => shared.commit(CommitScope::Settled).await,
            None => Ok(()),
        };
        shared.leave().await;
        committed
    }
}

impl Shared {
    fn check(&self) -> Result<(), ClientError> {
        self.client.instance().check()?;
        if self.closed.load(Ordering::Acquire) {
            return Err(ClientError::Closed { what: "consumer" });
        }
        Ok(())
    }

    /// Starts a task that ends with the consumer.
    fn spawn<F: Future<Output = ()> + Send + 'static>(&self, task: impl FnOnce(Arc<Self>) -> F) {
        let Some(shared) = self.myself.upgrade() else { return };
        let mut tasks = self.tasks.lock();
        while let Some(ended) = tasks.try_join_next() {
            if let Err(ended) = ended
                && ended.is_panic()
            {
                error!(group = %self.group, "a task of the consumer panicked");
            }
        }
        if !self.closed.load(Ordering::Acquire) {
            tasks.spawn_on(task(shared), self.client.runtime());
        }
    }

    /// Marks the consumer closed and ends its tasks. False when it was closed before.
    fn begin_close(&self) -> bool {
        if self.closed.swap(true, Ordering::AcqRel) {
            return false;
        }
        self.tasks.lock().abort_all();
        self.arrived.notify_waiters();
        true
    }

    async fn leave(&self) {
        let instance = self.client.instance();
        instance.members.remove_consumer(&self.group);
        instance.unregister(wire::unregister_consumer(&instance.client_id, &self.group)).await;
        info!(group = %self.group, "consumer closed");
    }
}

/// # Source
/// docs/reference/client.md 3.6: pull consumers always say "from last offset", and it only informs.
impl members::Consumer for Shared {
    fn heartbeat(&self) -> ConsumerData {
        ConsumerData {
            consume_from_where: ConsumeFromWhere::ConsumeFromLastOffset,
            consume_type: ConsumeType::ConsumeActively,
            group_name: self.group.to_string(),
            message_model: MessageModel::Clustering,
            subscription_data_set: self.subscriptions.iter().map(TopicSubscription::to_wire).collect(),
            unit_mode: false,
        }
    }

    fn rebalance_soon(&self) {
        self.wake.notify_one();
    }

    fn broker_connected(&self) {
        self.reconnected.store(true, Ordering::Release);
        self.rebalance_soon();
    }

    fn stop(&self) {
        self.begin_close();
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let shared = &self.0;
        if shared.client.check_process().is_err() || !shared.begin_close() {
            return;
        }
        let shared = shared.clone();
        shared.client.runtime().clone().spawn(async move { shared.leave().await });
    }
}
