//! One send request: chooses the queue, tries, tries again, returns the acknowledgement.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rocketpy_model::MessageQueue;
use rocketpy_protocol::Command;
use rocketpy_protocol::code::response;
use rocketpy_protocol::header::SendMessageResponseHeader;
use tracing::warn;

use super::attempts::Attempts;
use super::faults::Faults;
use super::pack::Outgoing;
use super::receipts::Stored;
use super::recorder::{Recorder, UnderWay};
use super::retry::{self, Next};
use super::select::Selection;
use crate::client::Client;
use crate::config::ProducerConfig;
use crate::error::{ClientError, Grant};
use crate::receipt::SendStatus;
use crate::route::TopicRoute;
use crate::send_error::SendError;
use crate::trace::{Acknowledged, Tracer};
use crate::{outcome, wire};

const OPERATION: &str = "send";
/// A broker that failed after so long, or after half an attempt, did not refuse: it was silent.
const SILENCE: Duration = Duration::from_secs(1);

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

impl Sender {
    /// The route to publish `topic` by, with at least one queue.
    pub(crate) async fn route(&self, topic: &str) -> Result<Arc<TopicRoute>, ClientError> {
        let route = self.client.api().publish_route(topic, self.config.default_topic_queues).await;
        let route = route.map_err(|error| error.needing(|| vec![Grant::publish(topic)]))?;
        if route.publish.is_empty() {
            return Err(ClientError::NoQueue { topic: topic.to_owned(), wanted: "writable" });
        }
        Ok(route)
    }

    /// The route to publish `topic` by, if it is known.
    pub(crate) fn known_route(&self, topic: &str) -> Option<Arc<TopicRoute>> {
        self.client.api().known_publish_route(topic).filter(|route| !route.publish.is_empty())
    }

    /// As [`route`](Self::route), within a timeout. Where the number of retries is not limited, it waits for servers that are away.
    pub(crate) async fn route_within(
        &self,
        topic: &str,
        timeout: Duration,
    ) -> Result<Arc<TopicRoute>, ClientError> {
        let query = |left| async move {
            tokio::time::timeout(left, self.route(topic)).await.map_err(|_| late(timeout))?
        };
        self.while_away(topic, timeout, query).await
    }

    /// Repeats a call that certainly changed nothing while its server is away, until the timeout. `call` has the time that is left.
    ///
    /// # Errors
    /// That of the last call.
    pub(super) async fn while_away<T, F: Future<Output = Result<T, ClientError>>>(
        &self,
        topic: &str,
        timeout: Duration,
        call: impl Fn(Duration) -> F,
    ) -> Result<T, ClientError> {
        let (started, mut calls) = (Instant::now(), 0);
        let left = || timeout.saturating_sub(started.elapsed());
        loop {
            let error = match call(left()).await {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            self.recorder.note_failure(&error);
            let may_recover = self.client.api().may_recover(topic, &error) && !error.may_have_been_applied();
            if self.config.retries.is_some() || !may_recover || left().is_zero() {
                return Err(error);
            }
            if self.client.api().sends_again() {
                warn!(topic, %error, "server away, retrying");
            }
            calls += 1;
            tokio::time::sleep(self.config.backoff.pause(calls).min(left())).await;
            if left().is_zero() {
                return Err(error);
            }
        }
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
            let (queue, bound) = self.choose(&route, &target, &attempts)?;
            let is_only_chance = bound || outgoing.is_half();
            let limit = attempts.limit(&self.config, &route, &queue.broker_name, is_only_chance);
            let began = Instant::now();
            let result = self.attempt(outgoing, &mut route, &queue, limit).await;
            self.note(&queue, began, &result);
            let error = match result {
                Ok(stored) => return Ok(stored),
                Err(error) => error,
            };
            attempts.failed(&queue.broker_name, &error, self.may_recover(&outgoing.topic, &error));
            self.recorder.note_failure(&error);
            let next = next_after(outgoing, &error, bound);
            if next != Next::GiveUp && attempts.may_continue(self.config.retries) {
                if self.client.api().sends_again() {
                    warn!(topic = outgoing.topic, broker_name = %queue.broker_name, %error, "send failed, retrying");
                }
                self.prepare_next(&route, next, &mut attempts).await;
                if !attempts.left().is_zero() {
                    if next == Next::Elsewhere {
                        target = Target::Any;
                    }
                    under_way.retried();
                    continue;
                }
            }
            if error.retryable() {
                self.refresh_aside(route);
            }
            return Err(attempts.give_up(&outgoing.topic, error, true));
        }
    }

    /// Whether a failed attempt may succeed later without a change by the user.
    fn may_recover(&self, topic: &str, error: &ClientError) -> bool {
        match error {
            ClientError::Refused { .. } | ClientError::BrokerNotFound { .. } => {
                self.client.api().may_recover(topic, error)
            }
            _ => true,
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
                let took = now.saturating_duration_since(began);
                let is_silent = took >= SILENCE.min(self.config.attempt_timeout / 2);
                if let Some(faults) = self.selection.failed(queue, is_silent, now) {
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

    /// Fetches the route again, and pauses unless another broker has its turn: that one is tried at once. A name server on the same dead
    /// machine delays the next attempt by one attempt at most.
    async fn prepare_next(&self, route: &Arc<TopicRoute>, next: Next, attempts: &mut Attempts) {
        let Some(pause) = attempts.pause(&self.config, route, next) else {
            return self.refresh_aside(route.clone());
        };
        let refresh = self.client.api().refresh_failed_route(route, self.config.default_topic_queues);
        let patience = self.config.attempt_timeout.min(attempts.left());
        drop(tokio::time::timeout(patience, refresh).await); // an error is logged there
        tokio::time::sleep(pause.min(attempts.left())).await;
    }

    /// The queue of the next attempt, and whether the message is bound to it.
    fn choose(
        &self,
        route: &TopicRoute,
        target: &Target,
        attempts: &Attempts,
    ) -> Result<(MessageQueue, bool), ClientError> {
        match target {
            Target::Only(queue) => Ok((queue.clone(), true)),
            Target::First(queue) => Ok((queue.clone(), false)),
            Target::Any => {
                let has_turn = |queue: &MessageQueue| !attempts.is_spent(&queue.broker_name);
                let picked = self.selection.pick(&route.topic, &route.publish, has_turn);
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

    /// Sends once, without waiting for an answer. It waits for the route and the connection, as long as for one attempt of a send.
    pub(crate) async fn fire(&self, outgoing: &Outgoing, target: Target) -> Result<(), SendError> {
        let timeout = self.config.attempt_timeout.min(self.config.send_timeout);
        let mut route = self.route_within(&outgoing.topic, timeout).await?;
        let (queue, _) = self.choose(&route, &target, &Attempts::new(timeout))?;
        let began = Instant::now();
        let sent = async {
            let address = self.address(&mut route, &queue).await?;
            let request = self.request(outgoing, &queue);
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

/// What follows a failed attempt of a message.
fn next_after(outgoing: &Outgoing, error: &ClientError, bound: bool) -> Next {
    // A second half message would be asked for, and committed, as a transaction of its own.
    let may_be_a_second = outgoing.is_half() && error.may_have_been_applied();
    // A broker that could not push a reply has stored it, and will not find the requester the next time either.
    let is_undeliverable = outgoing.is_reply && error.is_refused_with(response::SYSTEM_ERROR);
    match may_be_a_second || is_undeliverable {
        true => Next::GiveUp,
        false => retry::after_failure(error, bound),
    }
}

/// The error of a route query that did not end in time.
fn late(timeout: Duration) -> ClientError {
    ClientError::Timeout {
        operation: "route query",
        address: "all name servers".to_owned(),
        timeout_ms: timeout.as_millis() as u64,
        may_have_been_applied: false,
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
