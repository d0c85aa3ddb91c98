//! One send request: chooses the queue, tries, tries again, returns the acknowledgement.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rocketpy_model::MessageQueue;
use rocketpy_protocol::Command;
use rocketpy_protocol::code::response;
use rocketpy_protocol::header::SendMessageResponseHeader;
use tracing::{debug, warn};

use super::faults::Faults;
use super::pack::Outgoing;
use super::receipts::Stored;
use super::recorder::{Recorder, UnderWay};
use super::retry::{self, Next};
use super::select::Selection;
use crate::client::Client;
use crate::config::ProducerConfig;
use crate::error::ClientError;
use crate::receipt::SendStatus;
use crate::route::TopicRoute;
use crate::send_error::SendError;
use crate::trace::{Acknowledged, Tracer};
use crate::{outcome, wire};

const OPERATION: &str = "send";

/// Which queue a request goes to.
#[derive(Debug, Clone)]
pub(crate) enum Target {
    /// The one that the selector picks; another after a failure.
    Any,
    /// This one first; another after a failure.
    First(MessageQueue),
    /// This one and no other.
    Only(MessageQueue),
}

/// What all sends of a producer share.
#[derive(Clone)]
pub(crate) struct Sender {
    pub(crate) client: Client,
    pub(crate) group: Arc<str>,
    pub(crate) config: Arc<ProducerConfig>,
    pub(crate) selection: Arc<Selection>,
    pub(crate) recorder: Arc<Recorder>,
    /// Traces acknowledged sends, where that was asked for.
    pub(crate) tracer: Option<Arc<Tracer>>,
}

/// The attempts of one request so far.
struct Attempts {
    started: Instant,
    timeout: Duration,
    made: u32,
    brokers: Vec<Arc<str>>,
    may_have_been_applied: bool,
}

impl Sender {
    /// The route to publish `topic` by, with at least one queue.
    pub(crate) async fn route(&self, topic: &str) -> Result<Arc<TopicRoute>, ClientError> {
        let route = self.client.api().publish_route(topic, self.config.default_topic_queues).await?;
        if route.publish.is_empty() {
            return Err(ClientError::NoQueue { topic: topic.to_owned(), wanted: "writable" });
        }
        Ok(route)
    }

    /// The route to publish `topic` by, if it is known.
    pub(crate) fn known_route(&self, topic: &str) -> Option<Arc<TopicRoute>> {
        self.client.api().known_publish_route(topic).filter(|route| !route.publish.is_empty())
    }

    /// As [`route`](Self::route), within a timeout.
    pub(crate) async fn route_within(
        &self,
        topic: &str,
        timeout: Duration,
    ) -> Result<Arc<TopicRoute>, ClientError> {
        let late = |_| ClientError::Timeout {
            operation: "route query",
            address: "all name servers".to_owned(),
            timeout_ms: timeout.as_millis() as u64,
            may_have_been_applied: false,
        };
        let route = tokio::time::timeout(timeout, self.route(topic)).await;
        let route = route.unwrap_or_else(|elapsed| Err(late(elapsed)));
        route.inspect_err(|error| self.recorder.note_failure(error))
    }

    /// Sends until acknowledged, or until no further attempt is allowed.
    ///
    /// # Errors
    /// The error of the only attempt, or [`ClientError::SendFailed`] around that of the last one, with the broker of the last attempt.
    pub(crate) async fn deliver(
        &self,
        outgoing: &Outgoing,
        target: Target,
        timeout: Duration,
    ) -> Result<Stored, SendError> {
        let under_way = self.recorder.begin(outgoing);
        let result = self.deliver_counted(outgoing, target, timeout, &under_way).await;
        under_way.end(&result);
        result
    }

    async fn deliver_counted(
        &self,
        outgoing: &Outgoing,
        mut target: Target,
        timeout: Duration,
        under_way: &UnderWay<'_>,
    ) -> Result<Stored, SendError> {
        let mut attempts = Attempts::new(timeout);
        loop {
            let route = self.route_within(&outgoing.topic, attempts.left()).await;
            let mut route = route.map_err(|error| attempts.give_up(&outgoing.topic, error, false))?;
            let (queue, bound) = self.choose(&route, &target, attempts.brokers.last())?;
            let began = Instant::now();
            let result = self.attempt(outgoing, &mut route, &queue, attempts.left()).await;
            self.note(&queue, began, &result);
            let error = match result {
                Ok(stored) => return Ok(stored),
                Err(error) => error,
            };
            attempts.failed(&queue, &error);
            assert!(
                attempts.made <= self.config.retries.saturating_add(1),
                "a send makes no more attempts than allowed"
            );
            // A second half message would be asked for, and committed, as a transaction of its own.
            let may_be_a_second = outgoing.is_half() && error.may_have_been_applied();
            // A broker that could not push a reply has stored it, and will not find the requester the next time either.
            let is_undeliverable = outgoing.is_reply && error.is_refused_with(response::SYSTEM_ERROR);
            let next = match may_be_a_second || is_undeliverable {
                true => Next::GiveUp,
                false => retry::after_failure(&error, bound),
            };
            if next == Next::GiveUp || attempts.made > self.config.retries || attempts.left().is_zero() {
                if error.retryable() {
                    self.refresh_aside(route);
                }
                return Err(attempts.give_up(&outgoing.topic, error, true));
            }
            if self.client.api().sends_again() {
                warn!(topic = outgoing.topic, broker_name = %queue.broker_name, %error, "send failed, retrying");
            }
            if next == Next::Elsewhere {
                target = Target::Any;
            }
            self.prepare_next(&route, &queue, next, &attempts).await;
            under_way.retried();
        }
    }

    /// Notes how an attempt ended, for the choice of later queues.
    fn note<T>(&self, queue: &MessageQueue, began: Instant, result: &Result<T, ClientError>) {
        let now = Instant::now();
        match result {
            Ok(_) => self.selection.answered(queue, now.saturating_duration_since(began), now),
            // No broker failed here.
            Err(ClientError::BrokerNotFound { .. }) => {}
            Err(error) if retry::after_failure(error, false) == Next::Elsewhere => {
                if let Some(faults) = self.selection.failed(queue, now) {
                    let asking = Faults::ask_until_reachable(Arc::downgrade(faults), self.client.clone());
                    self.client.runtime().spawn(asking);
                }
            }
            Err(_) => {}
        }
    }

    /// Fetches the route again, without a wait: the next send finds a master that has changed.
    fn refresh_aside(&self, route: Arc<TopicRoute>) {
        let (client, default_queues) = (self.client.clone(), self.config.default_topic_queues);
        self.client
            .runtime()
            .spawn(async move { client.api().refresh_failed_route(&route, default_queues).await });
    }

    /// Fetches the route again; pauses when the next attempt goes to the same broker.
    async fn prepare_next(
        &self,
        route: &Arc<TopicRoute>,
        failed: &MessageQueue,
        next: Next,
        attempts: &Attempts,
    ) {
        let refresh = self.client.api().refresh_publish_route(route, self.config.default_topic_queues);
        if let Ok(Err(error)) = tokio::time::timeout(attempts.left(), refresh).await {
            debug!(topic = %route.topic, %error, "route refresh after a failed send failed");
        }
        let others = route.publish.iter().any(|queue| queue.broker_name != failed.broker_name);
        if next == Next::SameQueue || !others {
            tokio::time::sleep(self.config.backoff.pause(attempts.made).min(attempts.left())).await;
        }
    }

    /// The queue of the next attempt, and whether the message is bound to it.
    fn choose(
        &self,
        route: &TopicRoute,
        target: &Target,
        failed: Option<&Arc<str>>,
    ) -> Result<(MessageQueue, bool), ClientError> {
        match target {
            Target::Only(queue) => Ok((queue.clone(), true)),
            Target::First(queue) => Ok((queue.clone(), false)),
            Target::Any => {
                let has_not_failed = |queue: &MessageQueue| failed != Some(&queue.broker_name);
                let picked = self.selection.pick(&route.topic, &route.publish, has_not_failed);
                let none = || ClientError::NoQueue { topic: route.topic.to_string(), wanted: "writable" };
                Ok((route.publish[picked.ok_or_else(none)?].clone(), false))
            }
        }
    }

    async fn attempt(
        &self,
        outgoing: &Outgoing,
        route: &mut Arc<TopicRoute>,
        queue: &MessageQueue,
        timeout: Duration,
    ) -> Result<Stored, ClientError> {
        let started = Instant::now();
        let address = match tokio::time::timeout(timeout, self.address(route, queue)).await {
            Ok(address) => address?,
            Err(_) => return Err(ClientError::broker_not_found(queue)),
        };
        let request = self.request(outgoing, queue);
        let timeout = timeout.saturating_sub(started.elapsed());
        let began = Instant::now();
        let answer = self.client.api().call(&address, OPERATION, request, timeout).await;
        let answer = answer.map_err(|error| naming_the_topic(error, &outgoing.topic))?;
        let (mut stored, header) = read_answer(&address, queue, &answer)?;
        self.client.namespace().strip_queues(std::slice::from_mut(&mut stored.queue));
        if let Some(tracer) = &self.tracer {
            tracer.sent(&Acknowledged {
                outgoing,
                stored: &stored,
                answer: &header,
                address: &address,
                began,
            });
        }
        Ok(stored)
    }

    /// Address of the master of the queue's broker. Fetches the route once more when it does not name one.
    async fn address(
        &self,
        route: &mut Arc<TopicRoute>,
        queue: &MessageQueue,
    ) -> Result<String, ClientError> {
        if let Some(address) = route.master(&queue.broker_name) {
            return Ok(address.to_owned());
        }
        *route = self.client.api().refresh_publish_route(route, self.config.default_topic_queues).await?;
        route
            .master(&queue.broker_name)
            .map(str::to_owned)
            .ok_or_else(|| ClientError::broker_not_found(queue))
    }

    fn request(&self, outgoing: &Outgoing, queue: &MessageQueue) -> Command {
        wire::send(&wire::Send {
            group: &self.group,
            queue,
            sys_flag: outgoing.sys_flag,
            born_at_ms: outgoing.born_at_ms,
            flag: outgoing.flag,
            properties: &outgoing.properties,
            batch: outgoing.batch,
            is_reply: outgoing.is_reply,
            reconsume_times: outgoing.retried.map_or(0, |retried| retried.times),
            max_reconsume_times: outgoing.retried.map(|retried| retried.limit),
            body: &outgoing.body,
            default_queues: self.config.default_topic_queues,
        })
    }

    /// Sends once, without waiting for an answer.
    pub(crate) async fn fire(&self, outgoing: &Outgoing, target: Target) -> Result<(), SendError> {
        let mut route = self.route_within(&outgoing.topic, self.config.send_timeout).await?;
        let (queue, _) = self.choose(&route, &target, None)?;
        let began = Instant::now();
        let sent = async {
            let address = self.address(&mut route, &queue).await?;
            let (request, timeout) = (self.request(outgoing, &queue), self.config.send_timeout);
            let sent = self.client.api().call_oneway(&address, "one-way send", request, timeout).await;
            sent.map_err(|error| naming_the_topic(error, &outgoing.topic))
        };
        let sent = sent.await;
        self.note(&queue, began, &sent);
        if sent.is_ok() {
            self.recorder.oneway(outgoing);
        }
        sent.map_err(|error| SendError { broker: Some(queue.broker_name.clone()), ..error.into() })
    }
}

impl Attempts {
    fn new(timeout: Duration) -> Self {
        Self { started: Instant::now(), timeout, made: 0, brokers: Vec::new(), may_have_been_applied: false }
    }

    fn left(&self) -> Duration {
        self.timeout.saturating_sub(self.started.elapsed())
    }

    fn failed(&mut self, queue: &MessageQueue, error: &ClientError) {
        self.made += 1;
        self.brokers.push(queue.broker_name.clone());
        assert!(self.made as usize == self.brokers.len(), "each attempt has its broker");
        self.may_have_been_applied |= error.may_have_been_applied();
    }

    /// The error to return: that of the only attempt, or the last one together with what was tried before.
    fn give_up(&self, topic: &str, last: ClientError, of_attempt: bool) -> SendError {
        let broker = self.brokers.last().cloned();
        if self.made <= u32::from(of_attempt) {
            return SendError { broker, ..last.into() };
        }
        let failed = ClientError::SendFailed {
            topic: topic.to_owned(),
            attempts: self.made,
            elapsed_ms: self.started.elapsed().as_millis() as u64,
            brokers: self.brokers.join(","),
            may_have_been_applied: self.may_have_been_applied,
            last: Arc::new(last),
        };
        SendError { broker, ..failed.into() }
    }
}

/// A request that is too large for a frame is a message that is too large.
fn naming_the_topic(error: ClientError, topic: &str) -> ClientError {
    match error {
        ClientError::FrameTooLarge { size_bytes, limit_bytes, .. } => {
            ClientError::MessageNotFramed { topic: topic.to_owned(), size_bytes, limit_bytes }
        }
        other => other,
    }
}

/// Reads the acknowledgement of a send.
///
/// # Source
/// docs/reference/client.md 5.4.
fn read_answer<'a>(
    address: &str,
    queue: &MessageQueue,
    answer: &'a Command,
) -> Result<(Stored, SendMessageResponseHeader<'a>), ClientError> {
    let status = match answer.code {
        response::SUCCESS => SendStatus::SendOk,
        response::FLUSH_DISK_TIMEOUT => SendStatus::FlushDiskTimeout,
        response::FLUSH_SLAVE_TIMEOUT => SendStatus::FlushSlaveTimeout,
        response::SLAVE_NOT_AVAILABLE => SendStatus::SlaveNotAvailable,
        _ => return Err(outcome::refused(OPERATION, address, answer)),
    };
    let header: SendMessageResponseHeader<'a> =
        wire::header(OPERATION, address, answer).map_err(outcome::bad_answer_to_change)?;
    let queue_id = u32::try_from(header.queue_id).unwrap_or(queue.queue_id);
    let queue_offset = wire::offset(OPERATION, address, header.queue_offset);
    let queue_offset = queue_offset.map_err(outcome::bad_answer_to_change)?;
    let stored = Stored {
        status,
        queue: MessageQueue { queue_id, ..queue.clone() },
        queue_offset,
        offset_msg_ids: header.msg_id.to_owned(),
        transaction_id: header.transaction_id.map(str::to_owned),
        recall_handle: header.recall_handle.map(str::to_owned),
    };
    Ok((stored, header))
}
