//! The consumer as its user sees it.

use std::sync::Arc;
use std::time::Duration;

use rocketpy_model::{MessageQueue, QueueOffset};
use tokio::time::Instant;
use tracing::info;

use super::batch::PulledBatch;
use super::member::Member;
use super::state::{CommitScope, OffsetMove};
use super::{commit, rebalance, subscription};
use crate::client::Client;
use crate::config::{ConsumerConfig, Subscription};
use crate::error::ClientError;
use crate::members::{Consumer, Role, check_group};

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
struct Owner(Arc<Member>);

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
        client.check()?;
        check_group(group)?;
        config.check()?;
        let subscriptions = subscription::of(group, &subscriptions, config.retry_topic)?;
        for subscription in &subscriptions {
            match client.api().route(&subscription.topic).await {
                Err(ClientError::NoRoute { .. }) if config.allow_missing_topic || subscription.is_retry => {}
                route => drop(route?),
            }
        }
        let member = Member::new(client, group, subscriptions, config);
        let consumer: Arc<dyn Consumer> = member.clone();
        client.join_as_consumer(group, Arc::downgrade(&consumer))?;
        let owner = Arc::new(Owner(member));
        client.heartbeat().await;
        owner.0.spawn(rebalance::run);
        if let Some(interval) = owner.0.config.auto_commit {
            owner.0.spawn(|member| commit::run(member, interval));
        }
        info!(group, client_id = client.client_id(), "consumer started");
        Ok(Self { owner })
    }

    pub(super) fn member(&self) -> &Arc<Member> {
        &self.owner.0
    }

    /// The consumer group.
    pub fn group(&self) -> &str {
        &self.member().group
    }

    /// The client that it pulls by.
    pub fn client(&self) -> &Client {
        &self.member().client
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
        let member = self.member();
        member.check()?;
        if member.config.auto_commit.is_some() {
            member.state.lock().settle();
        }
        let (max_messages, deadline) = (max_messages.max(1), Instant::now() + max_wait);
        loop {
            let arrived = member.arrived.notified();
            tokio::pin!(arrived);
            // From here on an arrival is not missed.
            arrived.as_mut().enable();
            {
                let mut state = member.state.lock();
                if let Some(error) = state.take_failure() {
                    return Err(error);
                }
                let batch = state.take(max_messages, &member.config);
                if !batch.is_empty() {
                    return Ok(batch);
                }
            }
            member.check()?;
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
        self.member().check()?;
        self.member().commit(CommitScope::HandedOut).await
    }

    /// Commits given offsets (each the next to read).
    ///
    /// # Errors
    /// [`ClientError::NotAssigned`]; [`ClientError::OffsetOutOfRange`] for an offset above what was handed out. Nothing is
    /// committed then. Otherwise as [`commit`](Self::commit).
    pub async fn commit_offsets(&self, offsets: &[(MessageQueue, QueueOffset)]) -> Result<(), ClientError> {
        let member = self.member();
        member.check()?;
        member.commit_all(offsets).await
    }

    /// The offset stored for the group at the broker.
    ///
    /// # Errors
    /// Those of reaching the broker.
    pub async fn committed(&self, queue: &MessageQueue) -> Result<Option<QueueOffset>, ClientError> {
        self.member().check()?;
        self.client().api().stored_offset(self.group(), queue).await
    }

    /// Per assigned queue, the offset behind the last message handed out; queues whose start is not known yet are left out.
    pub fn positions(&self) -> Vec<(MessageQueue, QueueOffset)> {
        self.member().state.lock().positions()
    }

    /// Goes on reading an assigned queue from elsewhere; what was pulled ahead is dropped. Returns the offset.
    ///
    /// # Errors
    /// [`ClientError::NotAssigned`], [`ClientError::OffsetOutOfRange`], those of reaching the broker.
    pub async fn seek(&self, queue: &MessageQueue, position: Position) -> Result<QueueOffset, ClientError> {
        let member = self.member();
        member.check()?;
        let not_assigned = || ClientError::NotAssigned { queue: queue.clone() };
        if !member.state.lock().contains(queue) {
            return Err(not_assigned());
        }
        let api = member.client.api();
        let offset = match position {
            Position::Begin => api.min_offset(queue).await?,
            Position::End => api.max_offset(queue).await?,
            Position::Timestamp(at_ms) => api.search_offset(queue, at_ms).await?,
            Position::Offset(offset) => {
                let (min, max) = (api.min_offset(queue).await?, api.max_offset(queue).await?);
                if offset < min || offset > max {
                    return Err(ClientError::OffsetOutOfRange { queue: queue.clone(), offset, min, max });
                }
                offset
            }
        };
        // It may have gone to another member meanwhile.
        if member.state.lock().seek(queue, offset) { Ok(offset) } else { Err(not_assigned()) }
    }

    /// Takes back what was handed out of these queues from an offset on, so that it is handed out again. Asks no broker.
    ///
    /// A queue that is no longer assigned is left out: who has it now begins behind the last commit. What another thread was
    /// handed out after it comes again, too.
    pub fn take_back(&self, offsets: &[(MessageQueue, QueueOffset)]) {
        let mut state = self.member().state.lock();
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
        let member = self.member();
        member.check()?;
        member.state.lock().resume_all();
        member.arrived.notify_waiters();
        Ok(())
    }

    fn set_paused(&self, queues: &[MessageQueue], paused: bool) -> Result<(), ClientError> {
        let member = self.member();
        member.check()?;
        let mut state = member.state.lock();
        let strangers: Vec<_> = queues.iter().filter(|queue| !state.set_paused(queue, paused)).collect();
        drop(state);
        member.arrived.notify_waiters();
        match strangers.first() {
            None => Ok(()),
            Some(queue) => Err(ClientError::NotAssigned { queue: (*queue).clone() }),
        }
    }

    /// Queues assigned to this member now, sorted.
    pub fn assignment(&self) -> Vec<MessageQueue> {
        self.member().state.lock().queues().map(|queue| (**queue).clone()).collect()
    }

    /// Takes the moves that brokers ordered since the last call.
    pub fn take_offset_moves(&self) -> Vec<OffsetMove> {
        self.member().state.lock().take_moves()
    }

    /// Leaves the group. With `auto_commit`, first commits what it covers; else commits nothing. Idempotent.
    ///
    /// # Errors
    /// The failure of that commit; the consumer is closed nevertheless.
    pub async fn close(&self) -> Result<(), ClientError> {
        let member = self.member();
        member.client.check_process()?;
        if !member.begin_close() {
            return Ok(());
        }
        let committed = match member.config.auto_commit {
            Some(_) => member.commit(CommitScope::Settled).await,
            None => Ok(()),
        };
        member.leave().await;
        committed
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let member = &self.0;
        if member.client.check_process().is_ok() && member.begin_close() {
            member.client.start_leaving(Role::Consumer, &member.group);
        }
    }
}
