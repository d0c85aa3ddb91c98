//! Bounds of what requests keep while they wait for clients, or for topics that are made.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use rocketpy_protocol::Command;
use rocketpy_remoting::Reply;

use crate::refusal::Refusal;
use crate::shares::{Bounds, Shares};
use crate::waiting::header_bytes;

/// Maximum number of replies whose clients have not answered yet. Each is a task that holds its message.
pub(super) const MAX_PUSHES: usize = 4096;
/// Replies that may wait for one client: 256, and no more than an eighth of the free places, so that silent clients leave room for others.
const PUSHES_OF_A_CLIENT: Bounds = Bounds { most: 256, part: 8 };
/// Maximum number of questions whose members have not answered yet: a tool asks for one at a time.
pub(super) const MAX_FORWARDED: usize = 64;
/// Questions that may wait for one member.
const FORWARDED_TO_A_MEMBER: Bounds = Bounds { most: 8, part: 4 };
/// Maximum number of requests that wait for their quotas.
const MAX_QUOTA_WAITS: usize = 8192;
/// Requests of one connection that may wait for their quotas.
const QUOTA_WAITS_OF_A_CLIENT: Bounds = Bounds { most: 1024, part: 4 };

/// Room for requests that wait for others than the disk.
#[derive(Debug)]
pub(crate) struct Rooms {
    pub(super) sends_to_new_topics: SendsToNewTopics,
    /// Questions that wait for members of groups.
    pub(super) forwarded: Arc<Shares>,
    /// Replies that wait for their clients.
    pub(super) reply_pushes: Arc<Shares>,
    /// Requests that wait for their quotas.
    pub(super) quota_waits: Arc<Shares>,
}

impl Rooms {
    /// A connection has ended.
    pub(super) fn disconnected(&self, connection_id: u64) {
        self.forwarded.forget(connection_id);
        self.reply_pushes.forget(connection_id);
        self.quota_waits.forget(connection_id);
    }
}

impl Default for Rooms {
    fn default() -> Self {
        Self {
            sends_to_new_topics: SendsToNewTopics::default(),
            forwarded: Shares::new(MAX_FORWARDED, FORWARDED_TO_A_MEMBER),
            reply_pushes: Shares::new(MAX_PUSHES, PUSHES_OF_A_CLIENT),
            quota_waits: Shares::new(MAX_QUOTA_WAITS, QUOTA_WAITS_OF_A_CLIENT),
        }
    }
}

/// Maximum number of bytes of all sends that wait for their topics, with their headers.
const MAX_BYTES: usize = 64 << 20;
/// Bytes that a send takes besides its header and its body.
const SEND_BYTES: usize = 2048;

/// The sends that wait for their topics.
#[derive(Debug, Default)]
pub(super) struct SendsToNewTopics {
    pub(super) state: Mutex<State>,
    /// Number of topics with waiting sends. Every send reads it, and takes the lock only when it is not 0.
    topics: AtomicUsize,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// A topic stays as long as one of its sends waits or is being put.
    by_topic: HashMap<String, VecDeque<Send>>,
    /// Of all that wait, and of those that are being put.
    pub(super) bytes: usize,
}

#[derive(Debug)]
pub(super) struct Send {
    pub(super) request: Command,
    pub(super) reply: Reply,
}

impl Send {
    pub(super) fn bytes(&self) -> usize {
        SEND_BYTES + header_bytes(&self.request) + self.request.body.len()
    }
}

impl SendsToNewTopics {
    /// Whether sends to the topic wait.
    pub(super) fn has(&self, topic: &str) -> bool {
        self.topics.load(Ordering::Acquire) > 0 && self.state.lock().by_topic.contains_key(topic)
    }

    /// Adds a send. True when it is the first one of its topic: then the caller puts all of them.
    pub(super) fn add(&self, topic: &str, send: Send) -> Result<bool, Box<(Send, Refusal)>> {
        let mut state = self.state.lock();
        let bytes = state.bytes;
        assert!(!state.by_topic.is_empty() || bytes == 0, "no bytes are counted when no send waits: {bytes}");
        assert!(bytes <= MAX_BYTES, "the bytes of sends that wait for their topics have a bound: {bytes}");
        let (shown, topics) = (self.topics.load(Ordering::Relaxed), state.by_topic.len());
        assert_eq!(shown, topics, "each topic with waiting sends is counted once");
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
    pub(super) fn next(&self, topic: &str, done: usize) -> Option<Send> {
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
