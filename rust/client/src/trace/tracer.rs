//! Trace records that wait to be sent, and the messages made of them.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rocketpy_model::{Message, Properties, property};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout_at;
use tracing::warn;

use super::record::TraceRecord;
use crate::client::Client;
use crate::log_throttle::LogThrottle;

/// Most bytes of records that wait: some 30,000 records. What comes when they are full is dropped.
const MAX_WAITING_BYTES: usize = 8 << 20;
/// Most bytes of the records of one trace message. Apache's brokers and clients take 128,000.
const MAX_BODY_BYTES: usize = 118_000;
/// Most bytes of the keys of one trace message: properties have 32,767 at most.
const MAX_KEYS_BYTES: usize = 24_000;
/// Longest wait of a record for others to share its message.
const LINGER: Duration = Duration::from_secs(1);
/// Time for one trace message, and for what waits when the client is closed.
pub(super) const SEND_TIMEOUT: Duration = Duration::from_secs(5);

/// Traces the messages of one producer or consumer. Whatever becomes of the traces, it holds up no caller and fails none.
#[doc(alias = "AsyncTraceDispatcher")]
pub(crate) struct Tracer {
    pub(super) client: Client,
    pub(super) group: Arc<str>,
    shared: Arc<Shared>,
    task: Mutex<Option<JoinHandle<()>>>,
}

/// What the tracer and its task share.
pub(super) struct Shared {
    pub(super) group: Arc<str>,
    pub(super) topic: String,
    waiting: Mutex<Waiting>,
    /// For the task: a record waits, a message is full, or the tracer closes.
    wake: Notify,
    dropped: AtomicU64,
    full: Mutex<LogThrottle>,
}

#[derive(Default)]
struct Waiting {
    pieces: VecDeque<Piece>,
    bytes: usize,
    /// Since when the oldest waits.
    since: Option<Instant>,
    /// What is not sent by then is dropped.
    close_by: Option<Instant>,
}

/// A record, and the keys by which it is found.
struct Piece {
    text: String,
    /// The id of the message, then its keys, with blanks between.
    keys: String,
}

impl Piece {
    fn size_bytes(&self) -> usize {
        self.text.len() + self.keys.len() + size_of::<Self>()
    }
}

impl Tracer {
    /// A tracer whose records wait in `shared` for `task`.
    pub(super) fn new(client: &Client, group: &str, shared: Arc<Shared>, task: JoinHandle<()>) -> Arc<Self> {
        let (client, group) = (client.clone(), client.namespace().strip(group).into());
        Arc::new(Self { client, group, shared, task: Mutex::new(Some(task)) })
    }

    /// Whether messages of a topic are traced: all but traces.
    pub(super) fn traces(&self, topic: &str) -> bool {
        topic != self.shared.topic
    }

    /// Queues records, each with the keys of its message.
    pub(super) fn offer<'a>(&self, records: impl IntoIterator<Item = (TraceRecord<'a>, Option<&'a str>)>) {
        let pieces = records
            .into_iter()
            .map(|(record, keys)| Piece { text: record.to_string(), keys: keys_of(record.msg_id(), keys) });
        self.shared.push(pieces.collect());
    }

    /// Notes records that are not made.
    pub(super) fn drop_records(&self, count: usize) {
        self.shared.count_dropped(count, "too many messages wait for a commit");
    }

    /// Records that were not sent.
    pub(crate) fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }

    /// Sends what waits, within [`SEND_TIMEOUT`], and ends. A later call does not wait for the first.
    pub(crate) async fn close(&self) {
        self.shared.begin_close();
        let task = self.task.lock().take();
        if let Some(task) = task {
            // A panic is reported by the runtime. Its end takes the records along.
            drop(task.await);
        }
    }
}

/// What waits is sent all the same.
impl Drop for Tracer {
    fn drop(&mut self) {
        if self.client.check_process().is_ok() {
            self.shared.begin_close();
        }
    }
}

/// Keys beyond the bound of a message are left out.
fn keys_of(msg_id: &str, keys: Option<&str>) -> String {
    // Stored messages may have separators of properties in their values.
    let is_storable = |key: &&str| Properties::new().set(property::KEYS, key).is_ok();
    let keys = std::iter::once(msg_id).chain(property::split_keys(keys.unwrap_or_default()));
    let mut all = String::new();
    for key in keys.filter(is_storable) {
        if all.len() + 1 + key.len() > MAX_KEYS_BYTES {
            break;
        }
        all.push_str(if all.is_empty() { "" } else { property::KEY_SEPARATOR });
        all.push_str(key);
    }
    all
}

impl Shared {
    pub(super) fn new(group: &Arc<str>, topic: &str) -> Self {
        Self {
            group: group.clone(),
            topic: topic.to_owned(),
            waiting: Mutex::default(),
            wake: Notify::new(),
            dropped: AtomicU64::new(0),
            full: Mutex::default(),
        }
    }

    fn push(&self, pieces: Vec<Piece>) {
        let mut dropped = 0;
        let wakes = {
            let mut waiting = self.waiting.lock();
            let (was_empty, had) = (waiting.pieces.is_empty(), waiting.bytes);
            for piece in pieces {
                if waiting.close_by.is_some() || waiting.bytes + piece.size_bytes() > MAX_WAITING_BYTES {
                    dropped += 1;
                    continue;
                }
                waiting.bytes += piece.size_bytes();
                waiting.pieces.push_back(piece);
            }
            assert!(waiting.bytes <= MAX_WAITING_BYTES, "the bytes of trace records that wait have a bound");
            if was_empty {
                waiting.since = Some(Instant::now());
            }
            was_empty || had < MAX_BODY_BYTES && waiting.bytes >= MAX_BODY_BYTES
        };
        if wakes {
            self.wake.notify_one();
        }
        self.count_dropped(dropped, "they come faster than they are sent");
    }

    fn count_dropped(&self, count: usize, reason: &str) {
        if count == 0 {
            return;
        }
        let dropped = self.count_unsent(count);
        if self.full.lock().failed(Instant::now()) {
            warn!(group = %self.group, trace_topic = self.topic, dropped, reason, "trace records dropped");
        }
    }

    /// Counts the records of a message that was not sent. Returns all that were not sent so far.
    pub(super) fn count_unsent(&self, records: usize) -> u64 {
        self.dropped.fetch_add(records as u64, Ordering::Relaxed) + records as u64
    }

    fn begin_close(&self) {
        self.waiting.lock().close_by.get_or_insert_with(|| Instant::now() + SEND_TIMEOUT);
        self.wake.notify_one();
    }

    /// The records of the next message, once they are due, and the time for it. `None` at the end.
    pub(super) async fn next(&self) -> Option<(Message, usize, Duration)> {
        loop {
            let until = {
                let mut waiting = self.waiting.lock();
                let now = Instant::now();
                let close_by = waiting.close_by;
                if waiting.pieces.is_empty() && close_by.is_some() {
                    return None;
                }
                let timeout = close_by.map_or(SEND_TIMEOUT, |by| by.saturating_duration_since(now));
                if timeout.is_zero() {
                    let late = std::mem::take(&mut waiting.pieces).len();
                    waiting.bytes = 0;
                    drop(waiting);
                    self.count_dropped(late, "the client was closed");
                    return None;
                }
                let until = waiting.since.map(|since| since + LINGER);
                let is_due = close_by.is_some() || until.is_some_and(|until| until <= now);
                if !waiting.pieces.is_empty() && (is_due || waiting.bytes >= MAX_BODY_BYTES) {
                    let (message, count) = waiting.cut(&self.topic);
                    return Some((message, count, timeout));
                }
                until
            };
            match until {
                Some(until) => drop(timeout_at(until.into(), self.wake.notified()).await),
                None => self.wake.notified().await,
            }
        }
    }
}

impl Waiting {
    /// Takes as many records as fit into a message, at least one.
    fn cut(&mut self, topic: &str) -> (Message, usize) {
        let (mut body, mut keys, mut known, mut count) = (String::new(), String::new(), HashSet::new(), 0);
        while let Some(piece) = self.pieces.front() {
            let is_full = body.len() + piece.text.len() > MAX_BODY_BYTES
                || keys.len() + 1 + piece.keys.len() > MAX_KEYS_BYTES;
            if is_full && count > 0 {
                break;
            }
            let Some(piece) = self.pieces.pop_front() else { break };
            assert!(piece.size_bytes() <= self.bytes, "trace records that are sent were counted");
            self.bytes -= piece.size_bytes();
            body.push_str(&piece.text);
            for key in property::split_keys(&piece.keys) {
                if known.insert(key.to_owned()) {
                    keys.push_str(if keys.is_empty() { "" } else { property::KEY_SEPARATOR });
                    keys.push_str(key);
                }
            }
            count += 1;
        }
        assert!(count > 0, "a trace message has a record");
        assert!(
            !self.pieces.is_empty() || self.bytes == 0,
            "no bytes are counted when no trace record waits"
        );
        self.since = (!self.pieces.is_empty()).then(Instant::now);
        let mut message = Message::new(topic, body);
        if !keys.is_empty() {
            message.set_keys([keys.as_str()]).expect("keys with a separator of properties are left out");
        }
        (message, count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(text: &str, keys: &str) -> Piece {
        Piece { text: text.to_owned(), keys: keys.to_owned() }
    }

    fn shared() -> Shared {
        Shared::new(&"shop".into(), "traces")
    }

    #[tokio::test]
    async fn records_share_a_message_whose_keys_are_those_of_all() {
        let shared = shared();
        shared.push(vec![piece("a;", "A k"), piece("b;", "B k")]);
        shared.begin_close();
        let (message, count, _) = shared.next().await.unwrap();
        assert_eq!((count, &message.body[..], message.topic.as_str()), (2, &b"a;b;"[..], "traces"));
        assert_eq!(message.keys().collect::<Vec<_>>(), ["A", "k", "B"]);
        assert!(shared.next().await.is_none());
    }

    #[tokio::test]
    async fn a_full_message_does_not_linger_and_none_is_larger_than_brokers_take() {
        let shared = shared();
        let long = "x".repeat(MAX_BODY_BYTES / 2 - 10);
        shared.push((0..3).map(|number| piece(&long, &format!("M{number}"))).collect());
        let (message, count, _) = shared.next().await.unwrap();
        assert_eq!((count, message.body.len()), (2, 2 * long.len()));
        let huge_keys = "k".repeat(MAX_KEYS_BYTES - 100);
        shared.push(vec![piece("c;", &huge_keys)]);
        shared.begin_close();
        let counts = [shared.next().await.unwrap().1, shared.next().await.map_or(0, |(_, count, _)| count)];
        assert_eq!(counts.iter().sum::<usize>(), 2);
    }

    #[tokio::test]
    async fn what_does_not_fit_is_dropped_and_counted_and_nobody_waits() {
        let shared = shared();
        let long = "x".repeat(1 << 20);
        shared.push((0..10).map(|_| piece(&long, "M")).collect());
        let waiting = shared.waiting.lock().pieces.len();
        assert_eq!((waiting, shared.dropped.load(Ordering::Relaxed)), (7, 3));
        assert!(shared.waiting.lock().bytes <= MAX_WAITING_BYTES);
        shared.begin_close();
        shared.push(vec![piece("late", "M")]);
        assert_eq!(shared.dropped.load(Ordering::Relaxed), 4, "nothing comes behind the close");
    }

    #[test]
    fn keys_of_one_record_have_a_bound_and_begin_with_the_id() {
        assert_eq!(keys_of("M", Some("a b")), "M a b");
        assert_eq!(keys_of("M", None), "M");
        assert_eq!(keys_of("M\u{1}N", Some("a\u{1}b c")), "c", "no property holds the others");
        let many = vec!["k".repeat(100); 1000].join(" ");
        let keys = keys_of("M", Some(&many));
        assert!(keys.starts_with("M k") && keys.len() <= MAX_KEYS_BYTES);
    }
}
