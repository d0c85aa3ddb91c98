//! Sends that wait until their topic is made.
//!
//! The sends to one topic keep their order: while one of them waits, later ones wait behind it, even if the topic is there by
//! then.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use rocketpy_protocol::Command;
use rocketpy_remoting::Reply;

use super::send;
use crate::refusal::Refusal;
use crate::shared::Shared;
use crate::waiting::header_bytes;

/// Most bytes of all sends that wait for their topics, with their headers.
const MAX_BYTES: usize = 64 << 20;
/// Bytes that a send takes besides its header and its body.
const SEND_BYTES: usize = 2048;

/// The sends that wait for their topics.
#[derive(Debug, Default)]
pub(crate) struct SendsToNewTopics {
    state: Mutex<State>,
    /// Number of topics with waiting sends. Every send reads it, and takes the lock only when it is not 0.
    topics: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    /// A topic stays as long as one of its sends waits or is being put.
    by_topic: HashMap<String, VecDeque<Send>>,
    /// Of all that wait, and of those that are being put.
    bytes: usize,
}

#[derive(Debug)]
struct Send {
    request: Command,
    reply: Reply,
}

impl Send {
    fn bytes(&self) -> usize {
        SEND_BYTES + header_bytes(&self.request) + self.request.body.len()
    }
}

impl SendsToNewTopics {
    /// Whether sends to the topic wait.
    pub(super) fn has(&self, topic: &str) -> bool {
        self.topics.load(Ordering::Acquire) > 0 && self.state.lock().by_topic.contains_key(topic)
    }

    /// Adds a send. True when it is the first one of its topic: then the caller puts all of them.
    fn add(&self, topic: &str, send: Send) -> Result<bool, Box<(Send, Refusal)>> {
        let mut state = self.state.lock();
        if state.bytes + send.bytes() > MAX_BYTES {
            let refusal = Refusal::TooManyWaitForTopics { bytes: state.bytes };
            return Err(Box::new((send, refusal)));
        }
        state.bytes += send.bytes();
        if let Some(sends) = state.by_topic.get_mut(topic) {
            sends.push_back(send);
            return Ok(false);
        }
        state.by_topic.insert(topic.to_owned(), VecDeque::from([send]));
        self.topics.store(state.by_topic.len(), Ordering::Release);
        Ok(true)
    }

    /// Takes the next send to the topic, after one of `done` bytes was put. Without a next one nobody waits for the topic any more.
    fn next(&self, topic: &str, done: usize) -> Option<Send> {
        let mut state = self.state.lock();
        state.bytes -= done;
        let next = state.by_topic.get_mut(topic)?.pop_front();
        if next.is_none() {
            state.by_topic.remove(topic);
            self.topics.store(state.by_topic.len(), Ordering::Release);
        }
        next
    }
}

/// Puts the message once its topic is made.
pub(super) fn wait(shared: &Arc<Shared>, topic: &str, request: &Command, reply: Reply) {
    // A copy: the body is a part of the whole block that was read from the connection, and would keep it in memory.
    let body = Bytes::copy_from_slice(&request.body);
    let send = Send { request: Command { body, ..request.clone() }, reply };
    match shared.sends_to_new_topics.add(topic, send) {
        Ok(false) => {}
        Ok(true) => {
            let turn = Turn::new(shared.clone(), topic);
            shared.tasks.spawn(turn.put_all());
        }
        Err(refused) => {
            let (send, refusal) = *refused;
            shared.stats.put_failed();
            send.reply.send(refusal.response());
        }
    }
}

/// The right to put the sends to a topic, one after the other. However it ends, no send is left behind.
struct Turn {
    shared: Arc<Shared>,
    topic: String,
    /// Of the send that is being put.
    bytes: usize,
    /// None was left. Sends that come later belong to another turn.
    is_over: bool,
}

impl Turn {
    fn new(shared: Arc<Shared>, topic: &str) -> Self {
        Self { shared, topic: topic.to_owned(), bytes: 0, is_over: false }
    }

    async fn put_all(mut self) {
        while let Some(Send { request, reply }) = self.next() {
            send::put_and_answer(&self.shared, &request, reply).await;
        }
    }

    fn next(&mut self) -> Option<Send> {
        let next = self.shared.sends_to_new_topics.next(&self.topic, std::mem::take(&mut self.bytes));
        self.bytes = next.as_ref().map_or(0, Send::bytes);
        self.is_over = next.is_none();
        next
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Nothing is left, unless the broker stops or the turn panicked. Then their senders get an error.
        while !self.is_over {
            drop(self.next());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rocketpy_protocol::code::request;
    use rocketpy_remoting::{Client, ClientConfig, Connection, Handler, Server, ServerConfig};
    use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

    use super::*;
    use crate::testing::TestShared;

    /// Passes on the right to answer.
    struct Answers(UnboundedSender<Reply>);

    impl Handler for Answers {
        fn handle(&self, _connection: &Arc<Connection>, _request: Command, reply: Reply) {
            self.0.send(reply).unwrap();
        }
    }

    #[tokio::test]
    async fn a_turn_that_is_over_leaves_later_sends_alone() {
        let shared = TestShared::open(|_| {});
        let (sender, mut replies) = unbounded_channel();
        let config = ServerConfig::new("127.0.0.1:0".parse().unwrap());
        let server = Server::bind(config, Arc::new(Answers(sender))).unwrap();
        let client = Client::new(ClientConfig::default());
        let address = server.local_addr().to_string();
        let request = Command::bare_request(request::SEND_MESSAGE);
        let _call = client.start_call(&address, request.clone(), Duration::from_secs(60)).await.unwrap();
        let reply = replies.recv().await.unwrap();

        let mut over = Turn::new(Arc::clone(&shared), "orders");
        assert!(over.next().is_none());
        assert!(shared.sends_to_new_topics.add("orders", Send { request, reply }).unwrap());
        drop(over);
        assert!(shared.sends_to_new_topics.has("orders"));
        let mut later = Turn::new(Arc::clone(&shared), "orders");
        assert!(later.next().is_some(), "it is there for its own turn");
        drop(later);
        assert!(!shared.sends_to_new_topics.has("orders"));
        assert_eq!(shared.sends_to_new_topics.state.lock().bytes, 0);
    }
}
