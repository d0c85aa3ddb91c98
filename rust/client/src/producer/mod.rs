//! Sending messages.

mod many;
mod options;
mod pack;
#[cfg(test)]
mod pack_tests;
mod plan;
mod receipts;
mod retry;
mod select;
mod send;
mod submit;
mod validate;

use std::borrow::Borrow;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rocketpy_env::random_u64;
use rocketpy_model::{Message, MessageQueue};
use tokio::sync::Semaphore;
use tracing::{debug, info};

use self::many::Job;
pub use self::many::SentMany;
pub use self::options::SendOptions;
use self::pack::Outgoing;
use self::plan::Choice;
use self::receipts::receipt_of;
use self::select::Rotation;
use self::send::{Sender, Target};
pub use self::submit::PendingSend;
use self::submit::{Done, Lanes, Submitted, Window};
pub use self::validate::unsupported_feature;
use crate::client::Client;
use crate::config::ProducerConfig;
use crate::error::ClientError;
use crate::members::{Role, check_group};
use crate::receipt::Receipt;
use crate::route::TopicRoute;
use crate::send_error::SendError;

/// Sends messages for one producer group. Clones are one producer; dropping the last one leaves the group.
#[derive(Clone)]
#[doc(alias = "DefaultMQProducer")]
pub struct Producer {
    shared: Arc<Shared>,
}

struct Shared {
    sender: Sender,
    lanes: Arc<Lanes>,
    window: Window,
    closed: AtomicBool,
}

impl Producer {
    /// Joins the group and tells the brokers that are known so far.
    ///
    /// # Errors
    /// [`ClientError::InvalidGroup`], [`ClientError::InvalidConfig`], [`ClientError::GroupInUse`], [`ClientError::Closed`],
    /// [`ClientError::Forked`].
    pub async fn new(client: &Client, group: &str, config: ProducerConfig) -> Result<Self, ClientError> {
        client.check()?;
        check_group(group)?;
        config.check()?;
        client.join_as_producer(group)?;
        let sender = Sender {
            client: client.clone(),
            group: group.into(),
            rotation: Arc::new(Rotation::new(random_u64() as u32)),
            config: Arc::new(config),
        };
        let window = Window::new(&sender.config);
        let shared = Shared { sender, lanes: Arc::default(), window, closed: AtomicBool::new(false) };
        let producer = Self { shared: Arc::new(shared) };
        client.heartbeat().await;
        info!(group, client_id = client.client_id(), "producer started");
        Ok(producer)
    }

    /// The producer group.
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
        validate::check_topic(topic)?;
        let sender = &self.shared.sender;
        Ok(sender.route_within(topic, sender.config.send_timeout).await?.publish.clone())
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
        let outgoing = self.pack(message, &options)?;
        let of = |error: SendError| error.of(outgoing.keys.get(0));
        let target = self.target(message, &options).await.map_err(|error| of(error.into()))?;
        let timeout = options.timeout.unwrap_or(self.shared.sender.config.send_timeout);
        let left = timeout.saturating_sub(started.elapsed());
        let stored = self.shared.sender.deliver(&outgoing, target, left).await.map_err(of)?;
        Ok(receipt_of(&stored, &outgoing.keys, 0))
    }

    /// Sends many messages in few requests. Messages of one queue keep their order.
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
        self.check()?;
        validate::check_no_msg_id(&options)?;
        let (messages, sender) = (messages.into(), &self.shared.sender);
        let routes = self.check_many(&messages, &options).await?;
        if messages.is_empty() {
            return Ok(SentMany::none());
        }
        let choice = Choice {
            queue: options.queue.as_ref(),
            order_key: options.order_key.as_deref(),
            rotation: &sender.rotation,
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

    /// Hands over one message. Waits only while the window is full, up to the timeout.
    ///
    /// Messages submitted one after the other to one queue keep their order. Messages that gather while a request is under way
    /// are sent together as a batch, uncompressed.
    ///
    /// # Errors
    /// Those of an illegal message and of the route, and [`ClientError::WindowFull`]: the message was not taken.
    ///
    /// # Cancel safety
    /// If the future is dropped before it is ready, the message was not taken.
    pub async fn submit(&self, message: Message, options: SendOptions) -> Result<PendingSend, SendError> {
        let (done, pending) = Done::waiter();
        self.enter_lane(message, options, done).await?;
        Ok(pending)
    }

    /// As [`submit`](Self::submit). The callback runs once, on a runtime thread, when the outcome is known. It must not block.
    ///
    /// # Errors
    /// As [`submit`](Self::submit). The callback is not called then.
    pub async fn submit_with<F>(
        &self,
        message: Message,
        options: SendOptions,
        done: F,
    ) -> Result<(), SendError>
    where
        F: FnOnce(Result<Receipt, SendError>) + Send + 'static,
    {
        self.enter_lane(message, options, Done::callback(done)).await
    }

    async fn enter_lane(
        &self,
        message: Message,
        options: SendOptions,
        mut done: Done,
    ) -> Result<(), SendError> {
        let msg_id = options.msg_id.clone();
        let result = self.try_enter_lane(message, options, &mut done).await;
        result.map_err(|error| {
            done.forget();
            SendError::untried(error, msg_id.as_deref())
        })
    }

    async fn try_enter_lane(
        &self,
        message: Message,
        options: SendOptions,
        done: &mut Done,
    ) -> Result<(), ClientError> {
        self.check()?;
        self.check_one(&message, &options)?;
        let sender = &self.shared.sender;
        let timeout = options.timeout.unwrap_or(sender.config.send_timeout);
        let route = sender.route_within(&message.topic, timeout).await?;
        let place = self.shared.window.enter(message.body.len(), timeout).await?;
        let key = options.order_key.as_deref().or_else(|| message.order_key());
        let (queue, bound) = match (options.queue.clone(), key) {
            (Some(queue), _) => (queue, true),
            (None, Some(key)) => (route.publish[select::by_key(key, route.publish.len())].clone(), true),
            (None, None) => {
                let next = sender.rotation.next(&message.topic, route.publish.len(), 1);
                (route.publish[next].clone(), false)
            }
        };
        let submitted = Submitted { message, options, timeout, done: std::mem::take(done), place };
        self.shared.lanes.push(sender, queue, bound, submitted);
        Ok(())
    }

    /// Waits until every message submitted before this call has its outcome. Messages submitted during it wait until it returns.
    ///
    /// # Errors
    /// [`ClientError::FlushTimeout`]. The failure of a message is reported to its submitter only.
    pub async fn flush(&self, timeout: Duration) -> Result<(), ClientError> {
        self.client().check_process()?;
        self.shared.window.drained(timeout).await
    }

    /// Submitted messages without an outcome.
    pub fn in_flight(&self) -> usize {
        self.shared.window.in_flight()
    }

    /// Sends one message and asks for no answer.
    ///
    /// # Errors
    /// Local failures only: the message, the route, the connection. Whether the broker stores the message is not known.
    pub async fn send_oneway(&self, message: &Message, options: SendOptions) -> Result<(), SendError> {
        let outgoing = self.pack(message, &options)?;
        let of = |error: SendError| error.of(outgoing.keys.get(0));
        let target = self.target(message, &options).await.map_err(|error| of(error.into()))?;
        self.shared.sender.fire(&outgoing, target).await.map_err(of)
    }

    /// Flushes (up to the send timeout) and leaves the group. Idempotent.
    ///
    /// # Errors
    /// [`ClientError::FlushTimeout`]; the producer is closed all the same.
    pub async fn close(&self) -> Result<(), ClientError> {
        self.client().check_process()?;
        if self.shared.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let flushed = self.shared.window.drained(self.shared.sender.config.send_timeout).await;
        self.client().leave(Role::Producer, self.group()).await;
        debug!(group = self.group(), "producer closed");
        flushed
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

    /// Checks every message before any is sent, and fetches the routes.
    async fn check_many<M: Borrow<Message>>(
        &self,
        messages: &[M],
        options: &SendOptions,
    ) -> Result<HashMap<String, Arc<TopicRoute>>, ClientError> {
        let sender = &self.shared.sender;
        let (mut routes, mut last) = (HashMap::new(), String::new());
        for message in messages {
            let message = message.borrow();
            validate::check_content(message, options.given(), sender.config.max_message_size)?;
            if message.topic != last {
                validate::check_topic(&message.topic)?;
                validate::check_options(&message.topic, options)?;
                validate::check_batch_topic(&message.topic)?;
                last.clone_from(&message.topic);
                if !routes.contains_key(&last) {
                    let timeout = options.timeout.unwrap_or(sender.config.send_timeout);
                    routes.insert(last.clone(), sender.route_within(&last, timeout).await?);
                }
            }
        }
        Ok(routes)
    }

    /// Checks one message and makes its request.
    fn pack(&self, message: &Message, options: &SendOptions) -> Result<Outgoing, SendError> {
        let untried = |error| SendError::untried(error, options.msg_id.as_deref());
        self.check().and_then(|()| self.check_one(message, options)).map_err(untried)?;
        let sender = &self.shared.sender;
        let ids = sender.client.ids();
        Ok(pack::single(message, options.given(), &sender.config, ids, ids.moment()))
    }

    /// Where one message goes.
    async fn target(&self, message: &Message, options: &SendOptions) -> Result<Target, ClientError> {
        let (sender, key) = (&self.shared.sender, options.order_key.as_deref());
        let timeout = options.timeout.unwrap_or(sender.config.send_timeout);
        Ok(match (&options.queue, key.or_else(|| message.order_key())) {
            (Some(queue), _) => Target::Only(queue.clone()),
            (None, Some(key)) => {
                let route = sender.route_within(&message.topic, timeout).await?;
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
