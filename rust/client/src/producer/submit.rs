//! `submit` and `flush`: the producer's side of the lanes.

use std::sync::Arc;
use std::time::Duration;

use rocketpy_model::Message;

use super::lane::Submitted;
use super::lanes::Way;
use super::outcomes::{Listener, OutcomeSink, PendingSend};
use super::window::Place;
use super::{Producer, select};
use crate::config::SendOptions;
use crate::error::ClientError;
use crate::route::TopicRoute;
use crate::send_error::SendError;

impl Producer {
    /// Hands over one message. Waits while the window is full, up to [`SendOptions::wait`], and before that for the route of a topic
    /// that is not known yet, up to the timeout.
    ///
    /// Messages of one order key, or of one given queue, keep their order: when one of them fails, those that wait behind it for
    /// the same queue fail with [`ClientError::NotSent`]. Messages that gather while a request is under way are sent together as a
    /// batch, uncompressed; delayed ones, and those to a topic that takes no batches, such as a retry topic, one by one. The timeout begins when the
    /// message's request is made; a batch has the longest one of its messages.
    ///
    /// # Errors
    /// Those of an illegal message and of the route, and [`ClientError::WindowFull`]: the message was not taken.
    ///
    /// # Cancel safety
    /// If the future is dropped before it is ready, the message was not taken.
    pub async fn submit(
        &self,
        message: impl Into<Arc<Message>>,
        options: SendOptions,
    ) -> Result<PendingSend, SendError> {
        let (listener, pending) = Listener::waiter();
        self.enter_lane(message.into(), options, listener).await?;
        Ok(pending)
    }

    /// As [`submit`](Self::submit). The sink is told the outcome once, together with those of the other messages of its request.
    /// `ticket` is what it knows the message by.
    ///
    /// # Errors
    /// As [`submit`](Self::submit). The sink is not told then.
    pub async fn submit_ticket(
        &self,
        message: impl Into<Arc<Message>>,
        options: SendOptions,
        sink: &Arc<dyn OutcomeSink>,
        ticket: u64,
    ) -> Result<(), SendError> {
        self.enter_lane(message.into(), options, Listener::Ticket(sink.clone(), ticket)).await
    }

    /// As [`submit_ticket`](Self::submit_ticket), where that need not wait. Gives the options back where it has to, for the route or for
    /// room in the window: the message was not taken.
    ///
    /// # Errors
    /// As [`submit`](Self::submit), but for those of waits.
    pub fn submit_at_once(
        &self,
        message: &Arc<Message>,
        options: SendOptions,
        sink: &Arc<dyn OutcomeSink>,
        ticket: u64,
    ) -> Result<Option<SendOptions>, SendError> {
        let (message, options) = self.wrapped(message.clone(), options);
        self.check_submitted(&message, &options)?;
        let Some(route) = self.shared.sender.known_route(&message.topic) else { return Ok(Some(options)) };
        let place = self.shared.window.enter_at_once(message.body.len());
        match place.transpose().map_err(|error| self.unsubmitted(&message, &options, error))? {
            Some(place) => {
                let listener = Listener::Ticket(sink.clone(), ticket);
                self.push(message, options, listener, (route, place));
                Ok(None)
            }
            None => Ok(Some(options)),
        }
    }

    async fn enter_lane(
        &self,
        message: Arc<Message>,
        options: SendOptions,
        listener: Listener,
    ) -> Result<(), SendError> {
        let (message, options) = self.wrapped(message, options);
        self.check_submitted(&message, &options)?;
        match self.find_place(&message, &options).await {
            Ok(found) => {
                self.push(message, options, listener, found);
                Ok(())
            }
            Err(error) => Err(self.unsubmitted(&message, &options, error)),
        }
    }

    /// As brokers know them. What is wrapped already stays as it is.
    fn wrapped(&self, message: Arc<Message>, options: SendOptions) -> (Arc<Message>, SendOptions) {
        let namespace = self.namespace();
        if namespace.is_none() {
            return (message, options);
        }
        (Arc::new(namespace.wrap_message(&message).into_owned()), namespace.wrap_options(options))
    }

    fn check_submitted(&self, message: &Message, options: &SendOptions) -> Result<(), SendError> {
        let checked = self.check().and_then(|()| self.check_one(message, options));
        checked.map_err(|error| SendError::untried(error, options.msg_id.as_deref()))
    }

    fn unsubmitted(&self, message: &Message, options: &SendOptions, error: ClientError) -> SendError {
        self.shared.sender.recorder.unsent([message]);
        SendError::untried(error, options.msg_id.as_deref())
    }

    async fn find_place(
        &self,
        message: &Message,
        options: &SendOptions,
    ) -> Result<(Arc<TopicRoute>, Place), ClientError> {
        let shared = &self.shared;
        let route = match shared.sender.known_route(&message.topic) {
            Some(route) => route,
            None => shared.sender.route_within(&message.topic, self.timeout_of(options)).await?,
        };
        let wait = options.wait.unwrap_or(shared.sender.config.send_timeout);
        // What lingers would keep the message out.
        let hurry = || shared.lanes.hurry();
        Ok((route, shared.window.enter(message.body.len(), wait, hurry).await?))
    }

    fn timeout_of(&self, options: &SendOptions) -> Duration {
        options.timeout.unwrap_or(self.shared.sender.config.send_timeout)
    }

    /// Puts a message that has a place in the window in its lane.
    fn push(
        &self,
        message: Arc<Message>,
        options: SendOptions,
        listener: Listener,
        (route, place): (Arc<TopicRoute>, Place),
    ) {
        let key = options.order_key.as_deref().or_else(|| message.order_key());
        let way = match (&options.queue, key) {
            (Some(queue), _) => {
                Way::Queue(queue.clone(), route.publish.iter().position(|other| other == queue))
            }
            (None, Some(key)) => {
                let index = select::by_key(key, route.publish.len());
                Way::Queue(route.publish[index].clone(), Some(index))
            }
            (None, None) => Way::Any,
        };
        let timeout = self.timeout_of(&options);
        self.shared.lanes.push(&route, way, Submitted::new(message, options, timeout, listener, place));
    }

    /// Waits until every message submitted before this call has its outcome. Holds up no submit meanwhile.
    ///
    /// # Errors
    /// [`ClientError::FlushTimeout`]. The failure of a message is reported to its submitter only.
    pub async fn flush(&self, timeout: Duration) -> Result<(), ClientError> {
        self.client().check_process()?;
        let round = self.shared.window.begin_round();
        let _hurry = self.shared.lanes.hurry();
        self.shared.window.ended_before(round, timeout).await
    }

    /// Submitted messages without an outcome.
    pub fn in_flight(&self) -> usize {
        self.shared.window.in_flight()
    }
}
