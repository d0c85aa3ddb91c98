//! The task of one assigned queue: finds the start offset, then pulls ahead of the user.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rocketpy_model::{MessageQueue, QueueOffset};
use rocketpy_protocol::Command;
use rocketpy_protocol::code::response;
use tracing::{debug, info, warn};

use super::assigned::Gained;
use super::decode::{self, Answer, Kind};
use super::epoch::Epoch;
use super::member::Member;
use super::push::orderly;
use super::state::Task;
use super::subscription::TopicSubscription;
use crate::config::Start;
use crate::error::ClientError;
use crate::log_throttle::LogThrottle;
use crate::outcome;
use crate::wire::Pull;

const OPERATION: &str = "pull";
/// Pause after a pull that failed.
const ERROR_PAUSE: Duration = Duration::from_secs(1);
/// Pause after the broker asked the client to slow down.
const FLOW_CONTROL_PAUSE: Duration = Duration::from_millis(20);
/// Shortest time between pulls at a broker that does not hold them, or whose answers make no progress.
const IDLE_PAUSE: Duration = Duration::from_millis(100);
/// How long a topic may have no route before the user gets an error.
const ROUTE_PATIENCE: Duration = Duration::from_secs(30);
/// How far the clocks of a member and its brokers may be apart.
const CLOCKS_DIFFER_MS: i64 = 60_000;
/// Smallest number of bytes asked for, even when many queues share the total.
const LEAST_PULL_BYTES: usize = 64 << 10;

/// Pulls until the queue is assigned to another member.
pub(super) async fn run(member: Arc<Member>, gained: Gained, delay: Duration) {
    // Gives the member that had the queue before time to commit.
    tokio::time::sleep(delay).await;
    let mut puller = Puller {
        member,
        begins_now: gained.is_first,
        gained,
        broker_id: 0,
        no_route_since: None,
        failure: LogThrottle::default(),
    };
    loop {
        let Puller { member, gained, .. } = &puller;
        let task = member.state.lock().task(&gained.queue, gained.id, &member.config);
        let pause = match task {
            Task::End => return,
            Task::Wait => {
                gained.changed.notified().await;
                continue;
            }
            Task::Lock => orderly::lock_one(member, &gained.queue).await,
            Task::FindStart { epoch } => puller.find_start(epoch).await,
            Task::Pull { epoch, offset } => puller.pull(epoch, offset).await,
        };
        if let Some(pause) = pause {
            puller.pause(pause).await;
        }
    }
}

struct Puller {
    member: Arc<Member>,
    gained: Gained,
    /// The queue was assigned in the first round, and its start was not asked for yet: LATEST uses its current end.
    begins_now: bool,
    /// Broker id that the last answer suggested.
    broker_id: u64,
    /// Since when no name server knows the topic.
    no_route_since: Option<Instant>,
    /// What the log says of failures, which are repeated every second.
    failure: LogThrottle,
}

impl Puller {
    fn queue(&self) -> &Arc<MessageQueue> {
        &self.gained.queue
    }

    /// Waits for a time, or until something about the queue changes.
    async fn pause(&self, pause: Duration) {
        drop(tokio::time::timeout(pause, self.gained.changed.notified()).await);
    }

    /// # Source
    /// docs/reference/client.md 7.4, without the broker's special answer for young topics.
    async fn find_start(&mut self, epoch: Epoch) -> Option<Duration> {
        let start = self.start_offset().await;
        self.member.note_contact(&self.queue().broker_name, start.as_ref().err());
        match start {
            Ok((offset, stored)) => {
                debug!(queue = %self.queue(), queue_offset = offset.get(), stored, "start offset of the queue found");
                self.begins_now = false;
                self.member.state.lock().start(self.queue(), epoch, offset, stored);
                self.member.signals.progress.notify_waiters();
                None
            }
            Err(error) => {
                self.begins_now = false;
                if self.failure.failed(Instant::now()) {
                    warn!(queue = %self.queue(), %error, "cannot find the start offset of the queue");
                }
                self.tell(&error);
                Some(ERROR_PAUSE)
            }
        }
    }

    async fn start_offset(&self) -> Result<(QueueOffset, bool), ClientError> {
        let (member, queue) = (&self.member, self.queue());
        let api = member.client.api();
        // This member may have had the queue before and still be committing for it.
        member.after_commits().await;
        if let Some(stored) = member.stored_offset(queue).await? {
            return Ok((stored, true));
        }
        // What was sent back before the queue was known here must not be passed over.
        let is_retry = member.subscriptions[self.gained.subscription].is_retry;
        let start = match member.config.start {
            _ if is_retry => Start::Earliest,
            Start::Latest if member.group_view.is_new(queue) => Start::Earliest,
            // The stored offset is lost, for example with the broker's store: messages sent since the member joined must arrive.
            Start::Latest if !self.begins_now => {
                Start::Timestamp(member.activity.started_at_ms - CLOCKS_DIFFER_MS)
            }
            start => start,
        };
        let offset = match start {
            Start::Earliest => api.min_offset(queue).await?,
            Start::Latest => api.max_offset(queue).await?,
            Start::Timestamp(at_ms) => api.search_offset(queue, at_ms).await?,
            Start::Stored => {
                let (group, queue) = (member.group.to_string(), (**queue).clone());
                return Err(ClientError::NoStoredOffset { group, queue });
            }
        };
        if !member.config.balance.is_of_members() {
            return Ok((offset, false)); // nobody takes the queue over
        }
        Ok((member.store_start(queue, offset).await?, true))
    }

    /// Pulls once; returns how long to wait before the next pull.
    async fn pull(&mut self, epoch: Epoch, offset: QueueOffset) -> Option<Duration> {
        let started = Instant::now();
        let result = {
            let mut request = pin!(self.ask(offset));
            loop {
                tokio::select! {
                    biased;
                    result = &mut request => break result,
                    () = self.gained.changed.notified() => {
                        // Only a seek makes the answer useless; room or a resume does not.
                        if !self.member.state.lock().is_current(&self.gained.queue, self.gained.id, epoch) {
                            return None;
                        }
                    }
                }
            }
        };
        self.member.note_contact(&self.queue().broker_name, result.as_ref().err());
        match result {
            Ok(answer) => {
                if answer.kind == Kind::Moved && self.member.delivery.needs_locks() {
                    // A broker that has lost its store has lost the lock too. If another member holds it now, the answer is dropped.
                    orderly::lock_one(&self.member, self.queue()).await;
                }
                self.broker_id = answer.suggested_broker_id;
                self.no_route_since = None;
                self.member.note_allowed_pull();
                if self.failure.worked() {
                    info!(queue = %self.queue(), "pulls recovered");
                }
                let took = started.elapsed();
                if let Some(part) = &answer.pulled.part {
                    self.member.activity.paces[self.gained.subscription].note_pull(part.len(), took);
                }
                if answer.kind == Kind::Moved {
                    self.go_where_sent(epoch, offset, answer, took).await
                } else {
                    self.take(epoch, offset, answer, took)
                }
            }
            Err(error) => Some(self.failed(error).await),
        }
    }

    async fn ask(&self, offset: QueueOffset) -> Result<Answer, ClientError> {
        let (member, config) = (&self.member, &self.member.config);
        let subscription = &member.subscriptions[self.gained.subscription];
        let asked = Asked {
            offset,
            broker_id: self.broker_id,
            max_messages: config.pull_messages,
            max_bytes: member.pull_bytes(),
            suspend_ms: Some(config.suspend.as_millis() as i64),
            timeout: config.pull_timeout,
        };
        let queue = self.queue();
        let (address, answer) = ask(member, subscription, queue, asked).await?;
        let answer = decode::read_answer(OPERATION, &address, queue, offset, &subscription.filter, answer);
        answer.map_err(|error| if subscription.is_sql() { outcome::of_sql(error) } else { error })
    }

    /// Takes an answer that moves this member, in the turn of a commit, then asks whether the group was reset ([`look_for_reset`]).
    async fn go_where_sent(
        &self,
        epoch: Epoch,
        offset: QueueOffset,
        answer: Answer,
        took: Duration,
    ) -> Option<Duration> {
        let _turn = self.member.commits.turn.lock().await;
        let (next, exists) = (answer.pulled.next, answer.exists);
        let pause = self.take(epoch, offset, answer, took);
        if exists && self.member.state.lock().is_current(self.queue(), self.gained.id, epoch) {
            look_for_reset(&self.member, self.queue(), epoch, next).await;
        }
        pause
    }

    fn take(&self, epoch: Epoch, offset: QueueOffset, answer: Answer, took: Duration) -> Option<Duration> {
        let (next, kind) = (answer.pulled.next, answer.kind);
        if kind == Kind::Moved {
            warn!(
                queue = %self.queue(),
                queue_offset = offset.get(),
                next_queue_offset = next.get(),
                "pull offset moved by the broker: queue offset does not exist, or the group was reset"
            );
        }
        if self.member.state.lock().pulled(self.queue(), epoch, answer.pulled) {
            self.member.signals.messages_arrived();
        }
        match kind {
            Kind::Found => (next == offset).then_some(IDLE_PAUSE),
            Kind::NoMatch => (next == offset).then_some(IDLE_PAUSE),
            Kind::NothingNew => (took < IDLE_PAUSE).then_some(IDLE_PAUSE),
            Kind::Moved => (next == offset).then_some(ERROR_PAUSE),
        }
    }

    async fn failed(&mut self, error: ClientError) -> Duration {
        self.broker_id = 0;
        self.member.state.lock().counts.failed_pulls += 1;
        if let ClientError::Refused { code: response::FLOW_CONTROL, .. } = error {
            return FLOW_CONTROL_PAUSE;
        }
        let is_closing = matches!(error, ClientError::Closed { .. });
        if !is_closing && self.failure.failed(Instant::now()) {
            warn!(queue = %self.queue(), %error, "pull failed, retrying");
        }
        if self.is_elsewhere(&error).await {
            self.member.signals.wake.notify_one(); // a rebalance takes the queue away
            return ERROR_PAUSE;
        }
        self.tell(&error);
        if error.retryable()
            && let Err(error) = self.member.client.api().refresh_route(&self.queue().topic).await
        {
            debug!(queue = %self.queue(), %error, "route refresh after a failed pull failed");
            self.tell(&error);
        }
        ERROR_PAUSE
    }

    /// Whether the broker has no such topic while another one has it, as after a move of the topic.
    async fn is_elsewhere(&mut self, error: &ClientError) -> bool {
        if !matches!(error, ClientError::Refused { code: response::TOPIC_NOT_EXIST, .. }) {
            return false;
        }
        let queue = self.queue().clone();
        let Ok(route) = self.member.client.api().refresh_route(&queue.topic).await else { return false };
        let is_elsewhere = route.subscribe.iter().any(|other| other.broker_name != queue.broker_name);
        is_elsewhere && self.no_route_since.get_or_insert_with(Instant::now).elapsed() < ROUTE_PATIENCE
    }

    /// Returns an error with the user's next poll, unless waiting will resolve it.
    ///
    /// A missing route is waited for first: no name server knows a topic while its only broker restarts.
    fn tell(&mut self, error: &ClientError) {
        let resolves_itself = match error {
            ClientError::NoRoute { .. } | ClientError::NoBrokers { .. } => {
                self.no_route_since.get_or_insert_with(Instant::now).elapsed() < ROUTE_PATIENCE
            }
            ClientError::Refused { code, .. } => {
                matches!(*code, response::SYSTEM_BUSY | response::SERVICE_NOT_AVAILABLE | response::GO_AWAY)
            }
            error => error.retryable(),
        };
        if !resolves_itself {
            self.no_route_since = None;
            self.member.fail(error.clone());
        }
    }
}

/// What a pull asks for.
struct Asked {
    offset: QueueOffset,
    broker_id: u64,
    max_messages: u32,
    max_bytes: u32,
    suspend_ms: Option<i64>,
    timeout: Duration,
}

/// Pulls. Returns the broker's address and its answer.
async fn ask(
    member: &Member,
    subscription: &TopicSubscription,
    queue: &MessageQueue,
    asked: Asked,
) -> Result<(String, Command), ClientError> {
    let Asked { offset, broker_id, max_messages, max_bytes, suspend_ms, timeout } = asked;
    let route = member.client.api().route(&queue.topic).await?;
    let address = route.reading_address(&queue.broker_name, broker_id);
    let address = address.ok_or_else(|| ClientError::broker_not_found(queue))?;
    let pull = Pull {
        group: &member.group,
        queue,
        offset,
        max_messages,
        max_bytes,
        suspend_ms,
        subscription: &subscription.expression,
        expression_type: subscription.expression_type,
    };
    let answer = member.client.api().pull(address, OPERATION, &pull, timeout).await?;
    Ok((address.to_owned(), answer))
}

/// Whether the broker moves this member away from `offset`, the furthest that it has of the queue: an earlier one would tell the broker
/// that the member has gone back. A member that is moved goes there: of a reset of the group the broker reports only once.
pub(super) async fn is_moved(
    member: &Member,
    queue: &Arc<MessageQueue>,
    offset: QueueOffset,
) -> Result<bool, ClientError> {
    let mut subscriptions = member.subscriptions.iter();
    let subscription = subscriptions.find(|subscription| *subscription.topic == *queue.topic);
    let Some(subscription) = subscription else { return Ok(false) };
    let timeout = member.client.api().timeout();
    let asked = Asked { offset, broker_id: 0, max_messages: 1, max_bytes: 1, suspend_ms: None, timeout };
    let (address, answer) = ask(member, subscription, queue, asked).await?;
    match answer.code {
        response::PULL_OFFSET_MOVED => {}
        response::SUCCESS | response::PULL_NOT_FOUND | response::PULL_RETRY_IMMEDIATELY => return Ok(false),
        // Says nothing of the offset: the topic may be gone for a moment, or the group may not read it.
        _ => return Err(outcome::refused(OPERATION, &address, &answer)),
    }
    let answer = decode::read_answer(OPERATION, &address, queue, offset, &subscription.filter, answer)?;
    // Not at the next pull: the queue may be longer by then.
    let (next, exists) = (answer.pulled.next, answer.exists);
    let sent = member.state.lock().sent_to(queue, answer.pulled);
    if let Some(epoch) = sent.filter(|_| exists) {
        look_for_reset(member, queue, epoch, next).await;
    }
    Ok(true)
}

/// A member that must leave an offset that its queue has was sent to where its group was set, or to where a broker's crash left it. The
/// former is what the broker has stored for the group.
///
/// The member moves there first, in the turn of a commit: after this request the broker takes the member for one that knows the later
/// topic, where an offset of the earlier topic would count.
async fn look_for_reset(member: &Member, queue: &MessageQueue, epoch: Epoch, sent_to: QueueOffset) {
    let stored = member.stored_offset(queue).await;
    if stored.is_ok_and(|stored| stored == Some(sent_to)) {
        member.state.lock().was_reset(queue, epoch, sent_to);
    }
}

impl Member {
    /// Bytes to ask for: fewer when many queues share the total.
    fn pull_bytes(&self) -> u32 {
        let queues = self.state.lock().queue_count().max(1);
        let share = (self.config.prefetch_total_bytes / queues).max(LEAST_PULL_BYTES);
        self.config.pull_bytes.min(u32::try_from(share).unwrap_or(u32::MAX))
    }
}
