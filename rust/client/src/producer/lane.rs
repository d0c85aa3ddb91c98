//! A lane: submitted messages that wait to be sent together.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rocketpy_model::Message;

use super::outcomes::{Done, EndedRequest, Listener, tell};
use super::pack::{Given, KeyList};
use super::receipts::Stored;
use super::window::{Place, Window};
use crate::config::{ProducerConfig, SendOptions};
use crate::send_error::SendError;

/// Bytes that a message takes in a batch besides body and properties: the fields of the record and a unique key.
const ITEM_BYTES: usize = 80;

/// A message in a lane.
#[derive(Debug)]
pub(crate) struct Submitted {
    pub(crate) message: Arc<Message>,
    order_key: Option<Box<str>>,
    msg_id: Option<Box<str>>,
    pub(crate) timeout: Duration,
    done: Done,
    place: Place,
}

impl Submitted {
    pub(crate) fn new(
        message: Arc<Message>,
        options: SendOptions,
        timeout: Duration,
        listener: Listener,
        place: Place,
    ) -> Self {
        let [order_key, msg_id] = [options.order_key, options.msg_id].map(|text| text.map(Into::into));
        Self { message, order_key, msg_id, timeout, done: Done::new(listener), place }
    }

    /// What the options of the submit add to the message.
    pub(crate) fn given(&self) -> Given<'_> {
        Given { order_key: self.order_key.as_deref(), msg_id: self.msg_id.as_deref() }
    }

    fn size_bytes(&self) -> usize {
        self.message.body.len() + self.message.properties.text().len() + ITEM_BYTES
    }
}

/// What fills a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    messages: usize,
    bytes: usize,
}

impl Limits {
    pub(crate) fn new(config: &ProducerConfig) -> Self {
        Self { messages: config.batch_messages, bytes: config.batch_bytes.min(config.max_message_size) }
    }

    /// Those of a topic that takes no batches.
    pub(crate) fn without_batches(self) -> Self {
        Self { messages: 1, ..self }
    }
}

/// Messages that wait, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    waiting: VecDeque<Submitted>,
    bytes: usize,
    /// Since when the oldest waits; kept only for a linger.
    since: Option<Instant>,
    /// Some of the messages do not linger, and take the others along.
    hurry: bool,
}

impl Lane {
    pub(crate) fn push(&mut self, submitted: Submitted, lingers: bool) {
        if !lingers {
            self.hurry = true;
        } else if self.waiting.is_empty() {
            self.since = Some(Instant::now());
        }
        self.bytes += submitted.size_bytes();
        self.waiting.push_back(submitted);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether the messages fill as many requests.
    pub(crate) fn fills(&self, requests: usize, limits: Limits) -> bool {
        self.waiting.len() >= requests * limits.messages || self.bytes >= requests * limits.bytes
    }

    /// Ends the linger of the messages that wait now.
    pub(crate) fn hurry(&mut self) {
        self.hurry = !self.is_empty();
    }

    /// Until when the messages linger; `None` when a request is to be made now.
    pub(crate) fn lingers_until(&self, linger: Duration, limits: Limits) -> Option<Instant> {
        let until = self.since? + linger;
        (!self.is_empty() && !self.is_due(limits)).then_some(until)
    }

    /// Whether the messages need not linger, if there are any.
    pub(crate) fn is_due(&self, limits: Limits) -> bool {
        self.hurry || self.fills(1, limits)
    }

    /// Takes about as many of the oldest as fill a request.
    pub(crate) fn cut(&mut self, limits: Limits) -> VecDeque<Submitted> {
        if self.waiting.len() <= limits.messages && self.bytes <= limits.bytes {
            return self.take_all();
        }
        let (mut count, mut bytes) = (0, 0);
        for submitted in &self.waiting {
            let more = bytes + submitted.size_bytes();
            if count == limits.messages || (count > 0 && more > limits.bytes) {
                break;
            }
            (count, bytes) = (count + 1, more);
        }
        assert!(count > 0, "a request has a message");
        assert!(
            count <= limits.messages && (bytes <= limits.bytes || count == 1),
            "a request keeps the limits of a batch, unless one message exceeds them: {count} messages, {bytes} bytes"
        );
        assert!(bytes <= self.bytes, "the messages of a request were counted in their lane");
        self.bytes -= bytes;
        let taken = self.waiting.drain(..count).collect();
        assert!(!self.waiting.is_empty() || self.bytes == 0, "an empty lane counts no bytes");
        taken
    }

    pub(crate) fn take_all(&mut self) -> VecDeque<Submitted> {
        let empty = Self { waiting: VecDeque::with_capacity(self.waiting.len()), ..Self::default() };
        std::mem::replace(self, empty).waiting
    }

    /// Puts messages back in front of those that arrived since. They do not linger again.
    pub(crate) fn put_back(&mut self, mut rest: VecDeque<Submitted>) {
        self.hurry = true;
        self.bytes += rest.iter().map(Submitted::size_bytes).sum::<usize>();
        rest.append(&mut self.waiting);
        self.waiting = rest;
        assert!(!self.waiting.is_empty() || self.bytes == 0, "an empty lane counts no bytes");
    }
}

/// Messages on their way. If it is dropped before it is told, as at the end of the runtime, their outcome is an error.
#[derive(Debug)]
pub(crate) struct Taken<'a> {
    messages: VecDeque<Submitted>,
    window: &'a Window,
}

impl<'a> Taken<'a> {
    pub(crate) fn new(messages: VecDeque<Submitted>, window: &'a Window) -> Self {
        Self { messages, window }
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &Submitted> {
        self.messages.iter()
    }

    /// Leaves the first `count`, and returns the others.
    pub(crate) fn split_off(&mut self, count: usize) -> VecDeque<Submitted> {
        self.messages.split_off(count)
    }

    /// Tells the outcome of the request with these messages.
    pub(crate) fn tell(mut self, result: Result<Stored, SendError>, keys: KeyList) {
        tell(self.messages.iter_mut().map(|submitted| &mut submitted.done), EndedRequest { result, keys });
    }

    /// Tells why the messages were not sent.
    pub(crate) fn tell_untried(self, error: SendError) {
        let mut keys = KeyList::default();
        self.iter().for_each(|submitted| keys.push(submitted.given().msg_id.unwrap_or_default()));
        self.tell(Err(error), keys);
    }
}

/// Outcomes are told before the places are free, so that a flush returns after them.
impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let places: Vec<Place> = self.messages.drain(..).map(|submitted| submitted.place).collect();
        self.window.leave(places.into_iter());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn messages_that_are_put_back_do_not_linger_again() {
        let config = ProducerConfig::default();
        let (window, limits) = (Window::new(&config), Limits::new(&config));
        let (mut lane, linger) = (Lane::default(), Duration::from_secs(60));
        for cut_first in [false, true] {
            let place = window.enter(1, linger, || ()).await.unwrap();
            let (listener, _pending) = Listener::waiter();
            let message = Arc::new(Message::new("t", "x"));
            let submitted = Submitted::new(message, SendOptions::default(), linger, listener, place);
            // The second comes while the first is packed.
            let cut = if cut_first { lane.cut(limits) } else { VecDeque::new() };
            lane.push(submitted, true);
            assert!(lane.lingers_until(linger, limits).is_some());
            if cut_first {
                lane.put_back(cut);
            }
        }
        assert_eq!(lane.lingers_until(linger, limits), None);
        assert_eq!(lane.take_all().len(), 2);
    }
}
