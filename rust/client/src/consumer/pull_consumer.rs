//! The consumer as its user sees it.

use std::sync::Arc;
use std::time::Duration;

use rocketpy_model::{MessageQueue, QueueOffset};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::info;

use super::batch::PulledBatch;
use super::contact::BrokerContact;
use super::delivery::Delivery;
use super::member::Member;
use super::push::LocalOffsets;
use super::state::{CommitScope, OffsetMove, QueueChange};
use super::stats::{ConsumerStats, Counts, QueueProgress};
use super::subscription::TopicSubscription;
use super::{commit, conflict, rebalance, subscription};
use crate::client::Client;
use crate::config::{ConsumerConfig, Start, Subscription};
use crate::error::ClientError;
use crate::members::{Consumer, Role, check_group};
use crate::namespace::Namespace;

/// Where to continue reading a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    Offset(QueueOffset),
    /// The oldest stored message.
    Begin,
    /// Messages that arrive from now on.
    End,
    /// The first message stored at or after this time (milliseconds since 1970).
    Timestamp(i64),
}

/// What a member reads, and which of its brokers answer.
#[derive(Debug, Clone)]
pub struct ConsumerState {
    /// Queues assigned to this member now, sorted.
    pub assigned: Vec<MessageQueue>,
    /// Brokers that were called, sorted by name.
    pub brokers: Vec<BrokerContact>,
    /// Why users and policies deny the subscription, as last known.
    pub denied: Option<ClientError>,
}

/// A member of a consumer group that pulls messages ahead and hands them out when polled.
///
/// Clones are one member; dropping the last one leaves the group. Other members may use any language's client, if they subscribe to
/// the same topics with the same tags and share queues by the same [`Balance`](crate::Balance).
#[derive(Clone)]
#[doc(alias = "DefaultLitePullConsumer")]
pub struct PullConsumer {
    owner: Arc<Owner>,
}

/// Leaves the group when the last clone is dropped.
struct Owner(Arc<Member>);

impl PullConsumer {
    /// Joins the group and starts pulling. With [`Balance::Assigned`](crate::Balance::Assigned) it joins no group.
    ///
    /// With [`Start::Latest`] it also waits until the member has its queues and they have their starts, for the client's
    /// `api_timeout` at most: once the constructors of all members have returned, the group misses no message that is sent after that.
    /// A longer wait, for example for a member that still works on a queue, is logged.
    ///
    /// # Errors
    /// [`ClientError::InvalidGroup`], [`ClientError::InvalidTopic`], [`ClientError::InvalidExpression`],
    /// [`ClientError::InvalidSql`], [`ClientError::NoSqlFilter`], [`ClientError::InvalidConfig`], [`ClientError::GroupInUse`], [`ClientError::OtherSubscriptions`]; [`ClientError::NoRoute`] for
    /// a topic that does not exist, [`ClientError::NoBrokers`] (unless [`ConsumerConfig::allow_missing_topic`]); [`ClientError::Denied`]
    /// where users and policies deny what it subscribes to; those of reaching a name server.
    pub async fn new(
        client: &Client,
        group: &str,
        subscriptions: Vec<Subscription>,
        config: ConsumerConfig,
    ) -> Result<Self, ClientError> {
        Self::join(client, group, subscriptions, config, Delivery::Pull, None).await
    }

    pub(super) async fn join(
        client: &Client,
        group: &str,
        mut subscriptions: Vec<Subscription>,
        mut config: ConsumerConfig,
        delivery: Delivery,
        local_offsets: Option<LocalOffsets>,
    ) -> Result<Self, ClientError> {
        client.check()?;
        let namespace = client.namespace();
        let group: &str = &namespace.wrap(group);
        check_group(group)?;
        config.check()?;
        for subscription in &mut subscriptions {
            subscription.topic = namespace.wrap(&subscription.topic).into_owned();
        }
        config.balance.wrap(namespace);
        let subscriptions = subscription::of(group, &subscriptions, config.retry_topic)?;
        let is_read = |topic: &str| subscriptions.iter().any(|subscription| subscription.topic == *topic);
        config.balance.check_topics(is_read)?;
        check_topics(client, group, &subscriptions, &config)
            .await
            .map_err(|error| error.needing(|| subscription::needs(group, &subscriptions)))?;
        let member = Member::new(client, group, subscriptions, config, delivery, local_offsets)?;
        let is_member = member.config.balance.is_of_members();
        if is_member {
            conflict::join(&member)?;
            let consumer: Arc<dyn Consumer> = member.clone();
            client.join_as_consumer(group, Arc::downgrade(&consumer))?;
        }
        let owner = Arc::new(Owner(member));
        if is_member {
            client.heartbeat().await;
            if let Some(denial) = owner.0.denial() {
                return Err(denial);
            }
        }
        owner.0.spawn(rebalance::run);
        if let Some(interval) = owner.0.config.auto_commit {
            owner.0.spawn(|member| commit::run(member, interval));
        }
        if owner.0.config.start == Start::Latest || !is_member {
            owner.0.joined().await;
        }
        info!(group, client_id = client.client_id(), "consumer started");
        Ok(Self { owner })
    }

    pub(super) fn member(&self) -> &Arc<Member> {
        &self.owner.0
    }

    fn namespace(&self) -> &Namespace {
        self.member().client.namespace()
    }

    /// The consumer group, with its namespace.
    pub fn group(&self) -> &str {
        &self.member().group
    }

    /// The client whose connections it uses.
    pub fn client(&self) -> &Client {
        &self.member().client
    }

    /// Hands out up to `max_messages` pulled messages; waits up to `max_wait` for the first. Empty if none arrived, or if there is a
    /// [`change`](Self::change) to tell the user of first.
    ///
    /// # Errors
    /// Failures to pull that waiting does not resolve, once each time they happen: a refusal of the broker, a deleted topic,
    /// [`ClientError::NoStoredOffset`], [`ClientError::BadAnswer`]; [`ClientError::OtherSubscriptions`] after each heartbeat that told of
    /// such a member, unless [`ConsumerConfig::allow_other_subscriptions`]. An unreachable broker is waited for; when none answers
    /// for [`ConsumerConfig::unreachable_timeout`], [`ClientError::Unreachable`]. The consumer keeps trying.
    ///
    /// # Cancel safety
    /// Nothing is handed out when the future is dropped before it is ready.
    pub async fn poll(&self, max_messages: usize, max_wait: Duration) -> Result<PulledBatch, ClientError> {
        let member = self.member();
        member.check()?;
        if member.config.auto_commit.is_some() {
            let is_any_kept = member.state.lock().settle();
            if is_any_kept {
                member.signals.handover.notify_waiters();
            }
        }
        let (max_messages, deadline) = (max_messages.max(1), Instant::now() + max_wait);
        loop {
            let arrived = member.signals.arrived.notified();
            tokio::pin!(arrived);
            // From here on no arrival is missed.
            arrived.as_mut().enable();
            if let Some(error) = member.take_failure() {
                return Err(error);
            }
            let tell_at = {
                let mut state = member.state.lock();
                if state.change().is_some() {
                    return Ok(PulledBatch::default());
                }
                let batch = state.take(max_messages, &member.config);
                if !batch.is_empty() {
                    drop(state);
                    if let Some(trace) = &member.trace {
                        trace.handed_out(&batch);
                    }
                    return Ok(batch);
                }
                if let Some(error) = state.contacts.tell_if_due(member.config.unreachable_timeout) {
                    return Err(error);
                }
                state.contacts.tell_at(member.config.unreachable_timeout)
            };
            member.check()?;
            let until = tell_at.map_or(deadline, |at| at.min(deadline));
            if tokio::time::timeout_at(until, arrived).await.is_err() && until == deadline {
                return Ok(PulledBatch::default());
            }
        }
    }

    /// Commits everything handed out so far, for every assigned queue, and waits for the brokers' answers.
    ///
    /// A queue from which nothing was handed out commits its start offset, so that the next start continues there. A queue that went
    /// to another member and is kept for the user ([`ConsumerConfig::handover_timeout`]) is committed too, and then given up.
    ///
    /// # Errors
    /// The first failure; the other queues are committed all the same. Committing again is safe.
    ///
    /// # Durability
    /// A broker writes offsets to disk every few seconds. A crash may undo the last commits; it never advances an offset.
    pub async fn commit(&self) -> Result<(), ClientError> {
        self.member().check()?;
        self.member().commit(CommitScope::HandedOut).await
    }

    /// Commits the given offsets, each the next to read. A kept queue is given up when all that was handed out of it is committed.
    ///
    /// # Errors
    /// [`ClientError::NotAssigned`]; [`ClientError::OffsetOutOfRange`] for an offset above what was handed out. In both cases nothing
    /// is committed. Otherwise as [`commit`](Self::commit).
    pub async fn commit_offsets(&self, offsets: &[(MessageQueue, QueueOffset)]) -> Result<(), ClientError> {
        let member = self.member();
        member.check()?;
        member.commit_all(&self.wrapped(offsets)).await
    }

    /// As [`commit`](Self::commit), without waiting: it covers what was handed out before the call. A failure is logged, and the next
    /// commit repeats it; [`close`](Self::close) waits for it.
    ///
    /// # Errors
    /// [`ClientError::Closed`].
    pub fn commit_soon(&self) -> Result<(), ClientError> {
        self.member().check()?;
        self.member().commit_soon();
        Ok(())
    }

    /// As [`commit_offsets`](Self::commit_offsets), without waiting, and [`commit_soon`](Self::commit_soon).
    ///
    /// # Errors
    /// [`ClientError::NotAssigned`], [`ClientError::OffsetOutOfRange`]; nothing is committed then.
    pub fn commit_offsets_soon(&self, offsets: &[(MessageQueue, QueueOffset)]) -> Result<(), ClientError> {
        self.member().check()?;
        self.member().commit_all_soon(&self.wrapped(offsets))
    }

    /// The offset stored for the group at the broker.
    ///
    /// # Errors
    /// Those of reaching the broker.
    pub async fn committed(&self, queue: &MessageQueue) -> Result<Option<QueueOffset>, ClientError> {
        self.member().check()?;
        self.member().stored_offset(&self.namespace().wrap_queue(queue)).await
    }

    /// For each assigned queue, the offset after the last message handed out. Queues whose start is not known yet are left out.
    pub fn positions(&self) -> Vec<(MessageQueue, QueueOffset)> {
        self.stripped(self.member().state.lock().positions())
    }

    /// Places in queues as brokers know them.
    fn wrapped(&self, places: &[(MessageQueue, QueueOffset)]) -> Vec<(MessageQueue, QueueOffset)> {
        let wrap =
            |(queue, offset): &(MessageQueue, _)| (self.namespace().wrap_queue(queue).into_owned(), *offset);
        places.iter().map(wrap).collect()
    }

    /// Places in queues as the user knows them.
    fn stripped<T>(&self, places: Vec<(MessageQueue, T)>) -> Vec<(MessageQueue, T)> {
        let strip =
            |(queue, place): (MessageQueue, _)| (self.namespace().strip_queue(&queue).into_owned(), place);
        places.into_iter().map(strip).collect()
    }

    /// For each assigned queue whose start is known, the number of messages between the last one handed out and the queue's end.
    /// Messages that the tags leave out count until they were pulled.
    ///
    /// # Errors
    /// Those of reaching the brokers.
    pub async fn lag(&self) -> Result<Vec<(MessageQueue, u64)>, ClientError> {
        let member = self.member();
        member.check()?;
        let ask = |(queue, position): (MessageQueue, QueueOffset)| {
            let member = member.clone();
            async move {
                let end = member.client.api().max_offset(&queue).await?;
                Ok((queue, end.get().saturating_sub(position.get())))
            }
        };
        let positions = member.state.lock().positions();
        let calls: JoinSet<_> = positions.into_iter().map(ask).collect();
        let mut lags: Vec<_> = calls.join_all().await.into_iter().collect::<Result<_, ClientError>>()?;
        lags.sort();
        Ok(self.stripped(lags))
    }

    /// Continues reading an assigned queue at another position and drops what was pulled ahead. Returns the offset.
    ///
    /// # Errors
    /// [`ClientError::NotAssigned`], [`ClientError::OffsetOutOfRange`], those of reaching the broker.
    pub async fn seek(&self, queue: &MessageQueue, position: Position) -> Result<QueueOffset, ClientError> {
        let member = self.member();
        member.check()?;
        let queue: &MessageQueue = &self.namespace().wrap_queue(queue);
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
        // The queue may have gone to another member during the calls.
        if member.state.lock().seek(queue, offset) { Ok(offset) } else { Err(not_assigned()) }
    }

    /// Takes back the messages handed out from these offsets on, so that they are handed out again. Asks no broker.
    ///
    /// A queue that is no longer assigned is skipped: its new member begins after the last commit. Messages that another thread was
    /// handed out after the offset are handed out again too.
    pub fn take_back(&self, offsets: &[(MessageQueue, QueueOffset)]) {
        let (offsets, mut state) = (self.wrapped(offsets), self.member().state.lock());
        offsets.iter().for_each(|(queue, offset)| state.take_back(queue, *offset));
    }

    /// Stops pulling from and handing out these queues until [`resume`](Self::resume). What was pulled ahead is kept.
    ///
    /// A queue that goes to another member and comes back is still paused.
    ///
    /// # Errors
    /// [`ClientError::NotAssigned`] for the first queue that is neither assigned nor was paused before it was lost. The others are
    /// paused.
    pub fn pause(&self, queues: &[MessageQueue]) -> Result<(), ClientError> {
        self.set_paused(queues, true)
    }

    /// Resumes these queues.
    ///
    /// # Errors
    /// As [`pause`](Self::pause).
    pub fn resume(&self, queues: &[MessageQueue]) -> Result<(), ClientError> {
        self.set_paused(queues, false)
    }

    /// Resumes all paused queues, even those that are assigned to another member.
    ///
    /// # Errors
    /// [`ClientError::Closed`].
    pub fn resume_all(&self) -> Result<(), ClientError> {
        let member = self.member();
        member.check()?;
        member.state.lock().resume_all();
        member.signals.arrived.notify_waiters();
        Ok(())
    }

    fn set_paused(&self, queues: &[MessageQueue], paused: bool) -> Result<(), ClientError> {
        let member = self.member();
        member.check()?;
        let mut queues = queues.to_vec();
        self.namespace().wrap_queues(&mut queues);
        let mut state = member.state.lock();
        let others: Vec<_> = queues.iter().filter(|queue| !state.set_paused(queue, paused)).collect();
        drop(state);
        member.signals.arrived.notify_waiters();
        match others.first() {
            None => Ok(()),
            Some(queue) => Err(ClientError::NotAssigned { queue: (*queue).clone() }),
        }
    }

    /// The queues that this member gained or lost since its user was told, with [`ConsumerConfig::tell_changes`]; losses first. It
    /// returns the same again until [`told`](Self::told).
    ///
    /// A lost queue is kept until then, and its offset can be committed, but at most for [`ConsumerConfig::handover_timeout`]. A closed
    /// consumer has nothing to tell.
    pub fn change(&self) -> Option<QueueChange> {
        let member = self.member();
        if member.is_closed() { None } else { member.state.lock().change() }
    }

    /// Notes that the user was told of a change.
    pub fn told(&self, change: &QueueChange) {
        self.member().told(change);
    }

    /// Before a [`close`](Self::close): from now on [`change`](Self::change) tells of all queues as lost.
    pub fn begin_leaving(&self) {
        self.member().state.lock().begin_leaving();
        self.member().tell_of_change();
    }

    /// Queues assigned to this member now, sorted; without those that it only keeps for the user.
    pub fn assignment(&self) -> Vec<MessageQueue> {
        let strip = |queue: &Arc<MessageQueue>| self.namespace().strip_queue(queue).into_owned();
        self.member().state.lock().queues().map(strip).collect()
    }

    /// What this member reads, and which of its brokers answer.
    pub fn state(&self) -> ConsumerState {
        let state = self.member().state.lock();
        let strip = |queue: &Arc<MessageQueue>| self.namespace().strip_queue(queue).into_owned();
        let assigned = state.queues().map(strip).collect();
        ConsumerState { assigned, brokers: state.contacts.brokers(), denied: self.member().denial() }
    }

    /// Returns the moves that brokers ordered since the last call.
    pub fn take_offset_moves(&self) -> Vec<OffsetMove> {
        let mut moves = self.member().state.lock().take_moves();
        for one in &mut moves {
            self.namespace().strip_queues(std::slice::from_mut(&mut one.queue));
        }
        moves
    }

    /// What was received so far. Asks no broker, and works after a close too.
    pub fn stats(&self) -> ConsumerStats {
        let state = self.member().state.lock();
        let progress = state.own().map(|assigned| QueueProgress {
            queue: self.client().namespace().strip_queue(&assigned.queue).into_owned(),
            position: assigned.done_before(),
            end: assigned.at.end,
            prefetched_messages: assigned.prefetched.messages(),
            prefetched_bytes: assigned.prefetched.bytes(),
            is_paused: assigned.paused,
        });
        let queues = progress.collect();
        let Counts { received, pulled, failed_pulls } = &state.counts;
        ConsumerStats { received: *received, pulled: *pulled, failed_pulls: *failed_pulls, queues }
    }

    /// Trace records that were not sent: they came too fast, no broker took them, or too many messages wait for a commit.
    pub fn dropped_traces(&self) -> u64 {
        self.member().trace.as_ref().map_or(0, |trace| trace.tracer.dropped())
    }

    /// Leaves the group. With `auto_commit`, first commits what it covers; otherwise commits nothing. Every call waits for that and has
    /// the same outcome.
    ///
    /// # Errors
    /// The failure of that commit; the consumer is closed all the same.
    ///
    /// # Cancel safety
    /// It goes on if the future is dropped.
    pub async fn close(&self) -> Result<(), ClientError> {
        let member = self.member().clone();
        member.client.check_process()?;
        let close = || {
            let is_first = member.begin_close();
            let member = member.clone();
            async move { if is_first { member.end().await } else { Ok(()) } }
        };
        let closed = self.member().tasks.ending.run(member.client.runtime(), close).await;
        closed.unwrap_or(Err(ClientError::Closed { what: "runtime" }))
    }
}

/// Checks that each topic exists and has what is wanted of it.
async fn check_topics(
    client: &Client,
    group: &str,
    subscriptions: &[TopicSubscription],
    config: &ConsumerConfig,
) -> Result<(), ClientError> {
    for subscription in subscriptions {
        match client.api().route(&subscription.topic).await {
            Err(ClientError::NoRoute { .. } | ClientError::NoBrokers { .. })
                if config.allow_missing_topic || subscription.is_retry => {}
            route => {
                let route = route?;
                config.balance.check_assigned(&route)?;
                subscription::check_at_brokers(client, group, subscription, &route).await?;
            }
        }
    }
    Ok(())
}

impl Drop for Owner {
    fn drop(&mut self) {
        let member = &self.0;
        let is_first = member.client.check_process().is_ok() && member.begin_close();
        if is_first && member.config.balance.is_of_members() {
            member.client.start_leaving(Role::Consumer, &member.group);
        }
    }
}
