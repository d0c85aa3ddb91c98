//! Sending messages.

mod attempts;
mod faults;
mod lane;
mod lanes;
#[cfg(test)]
mod lanes_tests;
mod many;
mod outcomes;
mod pack;
#[cfg(test)]
mod pack_tests;
mod plan;
mod receipts;
mod recorder;
mod request;
mod retry;
mod select;
mod send;
mod stats;
mod submit;
mod transaction;
mod unread;
mod validate;
mod window;
mod worker;

use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use rocketpy_model::{Message, MessageQueue};
use rocketpy_protocol::handle::RecallHandle;
use rocketpy_protocol::header::key;
use tokio::sync::Semaphore;
use tracing::{debug, info};

use self::lanes::Lanes;
use self::many::Job;
pub use self::many::SentMany;
pub use self::outcomes::{Outcome, OutcomeSink, Outcomes, PendingSend};
pub(crate) use self::pack::{Given, KeyList, Outgoing, Retried, single};
use self::plan::Choice;
use self::receipts::receipt_of;
pub(crate) use self::receipts::{Stored, nth_id};
pub(crate) use self::recorder::Recorder;
pub(crate) use self::select::Selection;
pub(crate) use self::send::{Sender, Target};
pub use self::stats::{LatencyStats, ProducerStats};
pub use self::transaction::HalfMessage;
pub use self::unread::{Failure, UnreadFailures};
pub(crate) use self::validate::check_topic as check_send_topic;
pub use self::validate::{check_tag, unsupported_feature};
use self::window::Window;
use crate::client::Client;
use crate::close_once::CloseOnce;
use crate::config::{ProducerConfig, SendOptions};
use crate::error::ClientError;
use crate::members::{Role, check_group};
use crate::namespace::Namespace;
use crate::receipt::Receipt;
use crate::route::TopicRoute;
use crate::send_error::SendError;
use crate::trace::dispatch;
use crate::wire;

/// Sends messages for one producer group. Clones are one producer; dropping the last one leaves the group.
#[derive(Clone)]
#[doc(alias = "DefaultMQProducer")]
pub struct Producer {
    shared: Arc<Shared>,
}

struct Shared {
    sender: Sender,
    lanes: Arc<Lanes>,
    window: Arc<Window>,
    /// Topics whose brokers know this producer since its first request there.
    asked_topics: Mutex<HashSet<String>>,
    closed: AtomicBool,
    ending: CloseOnce<Result<(), ClientError>>,
}

impl Producer {
    /// Joins the group and tells the brokers that are known so far.
    ///
    /// # Errors
    /// [`ClientError::InvalidGroup`], [`ClientError::InvalidConfig`], [`ClientError::GroupInUse`], [`ClientError::Closed`],
    /// [`ClientError::Forked`]; [`ClientError::InvalidTopic`] and [`ClientError::ReservedTopic`] of a trace topic.
    pub async fn new(client: &Client, group: &str, config: ProducerConfig) -> Result<Self, ClientError> {
        client.check()?;
        let group: Arc<str> = client.namespace().wrap(group).into();
        check_group(&group)?;
        config.check()?;
        let trace = |topic: &String| dispatch::start(client, &group, "PRODUCE", topic);
        let tracer = config.trace_topic.as_ref().map(trace).transpose()?;
        client.join_as_producer(&group)?;
        let sender = Sender {
            client: client.clone(),
            group: group.clone(),
            selection: Arc::new(Selection::new(config.selector)),
            recorder: Arc::new(Recorder::new()),
            config: Arc::new(config),
            tracer,
        };
        let window = Arc::new(Window::new(&sender.config));
        let lanes = Arc::new(Lanes::new(sender.clone(), window.clone()));
        let (asked_topics, closed, ending) = Default::default();
        let shared = Shared { sender, lanes, window, asked_topics, closed, ending };
        let producer = Self { shared: Arc::new(shared) };
        client.heartbeat().await;
        info!(group = &*group, client_id = client.client_id(), "producer started");
        Ok(producer)
    }

    /// The producer group, with its namespace.
    pub fn group(&self) -> &str {
        &self.shared.sender.group
    }

    /// The client whose connections it uses.
    pub fn client(&self) -> &Client {
        &self.shared.sender.client
    }

    /// Writable queues of the topic, in the order in which order keys are hashed to them.
    ///
    /// # Errors
    /// [`ClientError::NoRoute`], [`ClientError::NoQueue`], and those of reaching a name server.
    pub async fn queues(&self, topic: &str) -> Result<Vec<MessageQueue>, ClientError> {
        self.check()?;
        let (sender, namespace) = (&self.shared.sender, self.namespace());
        let topic = namespace.wrap(topic);
        validate::check_topic(&topic)?;
        let mut queues = sender.route_within(&topic, sender.config.send_timeout).await?.publish.clone();
        namespace.strip_queues(&mut queues);
        Ok(queues)
    }

    /// Sends one message and waits for its acknowledgement, trying another broker when one fails.
    ///
    /// # Errors
    /// Those of an illegal message; [`ClientError::NoRoute`]; the error of the only attempt, or [`ClientError::SendFailed`] after
    /// several. [`ClientError::may_have_been_applied`] tells whether the message may be stored. Sending it again may then store
    /// it twice; under the [`msg_id`](SendOptions::msg_id) of the error, both have one id.
    ///
    /// # Durability
    /// On return the message is stored according to the broker's flush and replication policy; see [`Receipt::status`].
    pub async fn send(&self, message: &Message, options: SendOptions) -> Result<Receipt, SendError> {
        let started = Instant::now();
        let message: &Message = &self.namespace().wrap_message(message);
        let options = self.namespace().wrap_options(options);
        let outgoing = self.pack(message, &options)?;
        let of = |error: SendError| error.of(outgoing.keys.get(0));
        let target = self.target(message, &options).await.map_err(|error| of(error.into()))?;
        let timeout = options.timeout.unwrap_or(self.shared.sender.config.send_timeout);
        let left = timeout.saturating_sub(started.elapsed());
        let stored = self.shared.sender.deliver(&outgoing, target, left).await.map_err(of)?;
        Ok(receipt_of(&stored, &outgoing.keys, 0))
    }

    /// Sends many messages in few requests; a delayed one has a request of its own. Messages of one queue keep their order.
    ///
    /// `M` is anything that borrows as a [`Message`]: a `Message`, an `Arc<Message>`, a binding's own handle. The messages are
    /// dropped before the call returns, unless the caller keeps a clone of the `Arc`. The timeout applies to each request.
    ///
    /// # Errors
    /// An illegal message, or a topic without a route: nothing was sent. Later failures are in the result, message by message.
    pub async fn send_many<M>(
        &self,
        messages: impl Into<Arc<[M]>>,
        options: SendOptions,
    ) -> Result<SentMany, ClientError>
    where
        M: Borrow<Message> + Send + Sync + 'static,
    {
        let queues = options.queue.clone().into_iter().collect();
        self.send_many_wrapped(messages.into(), queues, options).await
    }

    /// The same, with a queue for each message.
    ///
    /// # Errors
    /// As [`send_many`](Self::send_many), and [`ClientError::WrongQueue`].
    ///
    /// # Panics
    /// Unless there are as many queues as messages.
    pub async fn send_many_to<M>(
        &self,
        messages: impl Into<Arc<[M]>>,
        queues: Vec<MessageQueue>,
        options: SendOptions,
    ) -> Result<SentMany, ClientError>
    where
        M: Borrow<Message> + Send + Sync + 'static,
    {
        let messages = messages.into();
        assert_eq!(messages.len(), queues.len(), "a queue for each message");
        self.send_many_wrapped(messages, queues, options).await
    }

    /// Sends many messages as brokers are to know them: with the namespace.
    async fn send_many_wrapped<M>(
        &self,
        messages: Arc<[M]>,
        mut queues: Vec<MessageQueue>,
        options: SendOptions,
    ) -> Result<SentMany, ClientError>
    where
        M: Borrow<Message> + Send + Sync + 'static,
    {
        let namespace = self.namespace();
        if namespace.is_none() {
            return self.send_all(messages, queues, options).await;
        }
        namespace.wrap_queues(&mut queues);
        let wrap = |message: &M| namespace.wrap_message(message.borrow()).into_owned();
        let wrapped: Arc<[Message]> = messages.iter().map(wrap).collect();
        drop(messages);
        self.send_all(wrapped, queues, namespace.wrap_options(options)).await
    }

    /// Sends messages to one queue, to one for each, or without any to those that are chosen for them.
    async fn send_all<M>(
        &self,
        messages: Arc<[M]>,
        queues: Vec<MessageQueue>,
        options: SendOptions,
    ) -> Result<SentMany, ClientError>
    where
        M: Borrow<Message> + Send + Sync + 'static,
    {
        self.check()?;
        validate::check_no_msg_id(&options)?;
        let sender = &self.shared.sender;
        let routes = self.check_many(&messages, &options).await?;
        if messages.is_empty() {
            return Ok(SentMany::none());
        }
        if options.queue.is_none() {
            for (message, queue) in messages.iter().zip(&queues) {
                validate::check_queue(&message.borrow().topic, queue)?;
            }
        }
        let choice = Choice {
            queues: (!queues.is_empty()).then_some(queues.as_slice()),
            order_key: options.order_key.as_deref(),
            selection: &sender.selection,
            batch_messages: sender.config.batch_messages,
        };
        let groups = plan::by_queue(&messages, &routes, &choice);
        let job = Job {
            sender: sender.clone(),
            messages,
            order_key: options.order_key.map(Into::into),
            timeout: options.timeout.unwrap_or(sender.config.send_timeout),
            room: Arc::new(Semaphore::new(sender.config.requests_in_flight)),
        };
        Ok(job.run(groups).await)
    }

    /// Sends one message and asks for no answer.
    ///
    /// # Errors
    /// Local failures only: the message, the route, the connection. Whether the broker stores the message is not known.
    pub async fn send_oneway(&self, message: &Message, options: SendOptions) -> Result<(), SendError> {
        let message: &Message = &self.namespace().wrap_message(message);
        let options = self.namespace().wrap_options(options);
        let outgoing = self.pack(message, &options)?;
        let of = |error: SendError| error.of(outgoing.keys.get(0));
        let target = self.target(message, &options).await.map_err(|error| of(error.into()))?;
        self.shared.sender.fire(&outgoing, target).await.map_err(of)
    }

    /// Takes back a message that waits for its time, by the [`recall_handle`](Receipt::recall_handle) of its receipt.
    ///
    /// # Errors
    /// [`ClientError::InvalidRecallHandle`]; [`ClientError::Refused`] when its time is over, or the broker recalls nothing; those of
    /// reaching the broker. A recall may be made again.
    ///
    /// # Durability
    /// On return the message is not delivered, unless that was under way.
    pub async fn recall(&self, handle: &str) -> Result<(), ClientError> {
        self.check()?;
        let parsed: RecallHandle = handle
            .parse()
            .map_err(|_| ClientError::InvalidRecallHandle { handle: handle.chars().take(128).collect() })?;
        let queue = MessageQueue {
            topic: parsed.topic.as_str().into(),
            broker_name: parsed.broker_name.as_str().into(),
            queue_id: 0,
        };
        let call = |left| {
            let (api, queue) = (self.client().api().with_timeout(left), &queue);
            async move {
                let address = api.master_of(queue).await?;
                api.call_ok(&address, "recall", wire::recall(self.group(), queue, handle)).await
            }
        };
        let sender = &self.shared.sender;
        let recalled = sender.while_away(&queue.topic, sender.config.send_timeout, call).await;
        if let Some(tracer) = &self.shared.sender.tracer
            && matches!(recalled, Ok(_) | Err(ClientError::Refused { .. }))
        {
            let region = recalled.as_ref().ok().and_then(|answer| answer.ext.get(key::MSG_REGION));
            tracer.recalled(&parsed, region, recalled.is_ok());
        }
        recalled.map(drop)
    }

    /// Ends the waits of requests, flushes (up to the send timeout), sends the traces that wait (up to 5 s) and leaves the group. Every call waits for that and has the same outcome.
    ///
    /// # Errors
    /// [`ClientError::FlushTimeout`]; the producer is closed all the same.
    ///
    /// # Cancel safety
    /// It goes on if the future is dropped.
    pub async fn close(&self) -> Result<(), ClientError> {
        self.client().check_process()?;
        let producer = self.clone();
        let close = move || {
            producer.shared.closed.store(true, Ordering::Release);
            producer.shared.window.close();
            producer.client().replies().give_up(producer.group());
            producer.client().checks().end(producer.group());
            async move {
                let flushed = producer.flush(producer.shared.sender.config.send_timeout).await;
                if let Some(tracer) = &producer.shared.sender.tracer {
                    tracer.close().await;
                }
                producer.client().leave(Role::Producer, producer.group()).await;
                debug!(group = producer.group(), "producer closed");
                flushed
            }
        };
        let closed = self.shared.ending.run(self.client().runtime(), close).await;
        closed.unwrap_or(Err(ClientError::Closed { what: "runtime" }))
    }

    /// Trace records that were not sent: they came too fast, or no broker took them.
    pub fn dropped_traces(&self) -> u64 {
        self.shared.sender.tracer.as_ref().map_or(0, |tracer| tracer.dropped())
    }

    fn namespace(&self) -> &Namespace {
        self.client().namespace()
    }

    fn check(&self) -> Result<(), ClientError> {
        self.client().check()?;
        if self.shared.closed.load(Ordering::Acquire) {
            return Err(ClientError::Closed { what: "producer" });
        }
        Ok(())
    }

    fn check_one(&self, message: &Message, options: &SendOptions) -> Result<(), ClientError> {
        validate::check_message(message, options.given(), self.shared.sender.config.max_message_size)?;
        validate::check_options(&message.topic, options)
    }

    /// Checks every message, and then fetches the routes: for a new topic that says that the send creates it.
    async fn check_many<M: Borrow<Message>>(
        &self,
        messages: &[M],
        options: &SendOptions,
    ) -> Result<HashMap<String, Arc<TopicRoute>>, ClientError> {
        let sender = &self.shared.sender;
        let (mut topics, mut last) = (HashSet::new(), String::new());
        for message in messages {
            let message = message.borrow();
            validate::check_content(message, options.given(), sender.config.max_message_size)?;
            if message.topic != last {
                validate::check_topic(&message.topic)?;
                validate::check_options(&message.topic, options)?;
                validate::check_batch_topic(&message.topic)?;
                last.clone_from(&message.topic);
                topics.insert(last.clone());
            }
        }
        let timeout = options.timeout.unwrap_or(sender.config.send_timeout);
        let mut routes = HashMap::with_capacity(topics.len());
        for topic in topics {
            let route = sender.route_within(&topic, timeout).await;
            let route = route.inspect_err(|_| sender.recorder.unsent(messages.iter().map(Borrow::borrow)))?;
            routes.insert(topic, route);
        }
        Ok(routes)
    }

    /// Checks one message and makes its request.
    fn pack(&self, message: &Message, options: &SendOptions) -> Result<Outgoing, SendError> {
        let untried = |error| SendError::untried(error, options.msg_id.as_deref());
        self.check().and_then(|()| self.check_one(message, options)).map_err(untried)?;
        let sender = &self.shared.sender;
        let ids = sender.client.ids();
        Ok(single(message, options.given(), &sender.config, ids, ids.moment()))
    }

    /// Where one message goes.
    async fn target(&self, message: &Message, options: &SendOptions) -> Result<Target, ClientError> {
        let (sender, key) = (&self.shared.sender, options.order_key.as_deref());
        let timeout = options.timeout.unwrap_or(sender.config.send_timeout);
        Ok(match (&options.queue, key.or_else(|| message.order_key())) {
            (Some(queue), _) => Target::Only(queue.clone()),
            (None, Some(key)) => {
                let route = sender.route_within(&message.topic, timeout).await;
                let route = route.inspect_err(|_| sender.recorder.unsent([message]))?;
                Target::Only(route.publish[select::by_key(key, route.publish.len())].clone())
            }
            (None, None) => Target::Any,
        })
    }
}

/// The last clone leaves the group. If the runtime is gone, the brokers notice the closed connection.
impl Drop for Shared {
    fn drop(&mut self) {
        let client = &self.sender.client;
        if client.check_process().is_ok() && !*self.closed.get_mut() {
            client.start_leaving(Role::Producer, &self.sender.group);
        }
    }
}
