//! Counters of what clients send, by topic and kind of message.
//!
//! A thread keeps the counters of the topics that it served last: a send finds them by the address of its topic's configuration. Per message
//! two cells change, both in one cache line, and three of its queue.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use rocketpy_model::{TopicConfig, system};

use super::histogram::{Buckets, MAX_BOUNDS};
use super::put_times::PutTimes;
use super::queues::{QueueItem, Queues, Room, TIMED_OF};
use super::windows::{Shown, Tick, Windows, Windows3};
use super::{Kind, Metric};

/// Kind of a message, as Apache's label `message_type` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MessageType {
    Normal,
    Fifo,
    Delay,
    Transaction,
}

impl MessageType {
    const ALL: [Self; 4] = [Self::Normal, Self::Fifo, Self::Delay, Self::Transaction];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Fifo => "fifo",
            Self::Delay => "delay",
            Self::Transaction => "transaction",
        }
    }
}

/// Topics that a thread remembers.
const SLOTS: usize = 16;

type Slot = Option<(Arc<TopicConfig>, Arc<OfTopic>)>;

thread_local! {
    static LAST: RefCell<[Slot; SLOTS]> = const { RefCell::new([const { None }; SLOTS]) };
}

/// Counters of one topic.
#[derive(Debug, Default)]
struct OfTopic {
    /// By kind, made with the first message.
    kinds: [OnceLock<Box<Sends>>; 4],
    queues: Queues,
    windows: Mutex<Windows<3>>,
}

/// Counters of one kind of messages.
#[derive(Debug, Default)]
struct Sends {
    /// Sends by the size of their record; of a batch the mean.
    by_size: [AtomicU64; MAX_BOUNDS],
    bytes: AtomicU64,
    /// Messages of batches beyond the first of each, and bytes beyond the mean.
    more_messages: AtomicU64,
    more_bytes: AtomicU64,
}

/// Figures of the sends of one kind to one topic.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sent {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    pub(crate) sizes: Buckets,
}

/// Counters of all topics.
#[derive(Debug)]
pub(crate) struct SentMessages {
    topics: RwLock<HashMap<String, Arc<OfTopic>>>,
    room: Room,
    times: Arc<PutTimes>,
    /// Messages of clients' topics that are gone.
    gone: AtomicU64,
}

/// A send whose time is taken.
#[derive(Debug, Clone)]
pub(crate) struct TimedSend {
    queue: Option<Arc<QueueItem>>,
    times: Arc<PutTimes>,
}

impl TimedSend {
    pub(crate) fn took(&self, took: Duration) {
        self.times.took(took);
        self.queue.iter().for_each(|queue| queue.took(took));
    }
}

impl SentMessages {
    pub(super) fn new(room: Room) -> Self {
        Self { topics: RwLock::default(), room, times: Arc::default(), gone: AtomicU64::new(0) }
    }

    /// Counts a send. Returns how to take its time, where that is wanted.
    #[inline]
    pub(crate) fn count(
        &self,
        (topic, queue_id): (&Arc<TopicConfig>, u32),
        kind: MessageType,
        messages: u64,
        bytes: u64,
    ) -> Option<TimedSend> {
        let slot = Arc::as_ptr(topic) as usize / size_of::<TopicConfig>() % SLOTS;
        LAST.with_borrow_mut(|last| {
            let slot = &mut last[slot];
            if !slot.as_ref().is_some_and(|(known, _)| Arc::ptr_eq(known, topic)) {
                *slot = Some((topic.clone(), self.of(&topic.name)));
            }
            let (_, counters) = slot.as_ref()?;
            let is_first = counters.count(kind, messages, bytes);
            let queue = counters
                .queues
                .with(queue_id, &self.room, |queue| queue.count(messages, bytes).then(|| queue.clone()));
            let queue = match queue {
                Some(None) => return None,
                Some(queue) => queue,
                None if is_first => None,
                None => return None,
            };
            Some(TimedSend { queue, times: self.times.clone() })
        })
    }

    fn of(&self, topic: &str) -> Arc<OfTopic> {
        if let Some(known) = self.topics.read().get(topic) {
            return known.clone();
        }
        self.topics.write().entry(topic.to_owned()).or_default().clone()
    }

    /// Topics with their figures by kind.
    pub(crate) fn read(&self) -> Vec<(String, MessageType, Sent)> {
        let mut read = Vec::new();
        for (topic, counters) in &*self.topics.read() {
            for kind in MessageType::ALL {
                if let Some(sends) = counters.kinds[kind as usize].get() {
                    read.push((topic.clone(), kind, sends.read()));
                }
            }
        }
        read
    }

    /// Messages of clients to other topics than the system's.
    pub(super) fn to_clients_topics(&self) -> u64 {
        let topics = self.topics.read();
        let of_clients = topics.iter().filter(|(topic, _)| !system::is_system_topic(topic));
        self.gone.load(Ordering::Relaxed) + of_clients.map(|(_, counters)| counters.counts()[1]).sum::<u64>()
    }

    pub(super) fn sample(&self, tick: &Tick) {
        let topics: Vec<_> = self.topics.read().values().cloned().collect();
        let mut queues = 0;
        for topic in topics {
            topic.windows.lock().sample(tick, topic.counts());
            queues += topic.queues.sample(tick);
        }
        self.room.set_known(queues);
    }

    /// Windows of a topic.
    pub(super) fn windows(&self, topic: &str, now_ms: i64, shown: Shown) -> Option<Windows3> {
        let topic = self.topics.read().get(topic)?.clone();
        topic.windows.lock().read(now_ms, topic.counts(), shown)
    }

    /// Windows of a queue.
    pub(super) fn queue_windows(
        &self,
        topic: &str,
        queue_id: u32,
        now_ms: i64,
        shown: Shown,
    ) -> Option<Windows3> {
        let topic = self.topics.read().get(topic)?.clone();
        topic.queues.get(queue_id)?.read(now_ms, shown)
    }

    /// Queues without counters.
    pub(crate) fn cut_queues(&self) -> u64 {
        self.topics.read().values().map(|topic| topic.queues.cut()).sum()
    }

    pub(crate) fn times(&self) -> &PutTimes {
        &self.times
    }

    pub(super) fn retain(&self, is_topic: &impl Fn(&str) -> bool) {
        if self.topics.read().keys().all(|topic| is_topic(topic)) {
            return;
        }
        self.topics.write().retain(|topic, counters| {
            let is_there = is_topic(topic);
            if !is_there && !system::is_system_topic(topic) {
                self.gone.fetch_add(counters.counts()[1], Ordering::Relaxed);
            }
            is_there
        });
    }
}

/// Bounds of the sizes.
fn bounds() -> &'static [f64] {
    match Metric::TopicMessageSize.declared().kind {
        Kind::Histogram(bounds) => bounds,
        Kind::Counter | Kind::Gauge => &[],
    }
}

impl OfTopic {
    /// Returns whether this is the first of some sends.
    #[inline]
    fn count(&self, kind: MessageType, messages: u64, bytes: u64) -> bool {
        self.kinds[kind as usize].get_or_init(Box::default).count(messages, bytes)
    }

    /// Sends, messages and bytes, of all kinds.
    fn counts(&self) -> [u64; 3] {
        let mut counts = [0; 3];
        for sent in self.kinds.iter().filter_map(OnceLock::get).map(|sends| sends.read()) {
            let sends = sent.sizes.counts.iter().sum();
            counts.iter_mut().zip([sends, sent.messages, sent.bytes]).for_each(|(sum, count)| *sum += count);
        }
        counts
    }
}

impl Sends {
    #[inline]
    fn count(&self, messages: u64, bytes: u64) -> bool {
        assert!(messages > 0, "a send stores a message");
        let mean = if messages == 1 { bytes } else { bytes / messages };
        let at = bounds().iter().position(|bound| mean as f64 <= *bound).unwrap_or(bounds().len());
        let before = self.by_size[at].fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if messages > 1 {
            self.more_messages.fetch_add(messages - 1, Ordering::Relaxed);
            self.more_bytes.fetch_add(bytes - mean, Ordering::Relaxed);
        }
        before.is_multiple_of(TIMED_OF)
    }

    fn read(&self) -> Sent {
        let load = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        // In this order: what is subtracted is never more than what was added before it.
        let (more_messages, more_bytes) = (load(&self.more_messages), load(&self.more_bytes));
        let bytes = load(&self.bytes);
        let mut sizes = Buckets { sum: bytes.saturating_sub(more_bytes) as f64, ..Buckets::default() };
        sizes.counts.iter_mut().zip(&self.by_size).for_each(|(count, cell)| *count = load(cell));
        Sent { messages: sizes.counts.iter().sum::<u64>() + more_messages, bytes, sizes }
    }
}

#[cfg(test)]
mod tests {
    use super::super::queues::NUMS;
    use super::*;

    #[test]
    fn sends_of_all_threads_count_for_their_topic_whatever_its_configuration() {
        let sent = SentMessages::new(Room::new(true, 10));
        let topic = |queues| Arc::new(TopicConfig::new("orders", queues));
        let (one, two) = (topic(1), topic(2));
        std::thread::scope(|scope| {
            for topic in [&one, &two] {
                scope.spawn(|| {
                    for _ in 0..100 {
                        sent.count((topic, 0), MessageType::Normal, 1, 1000);
                    }
                });
            }
        });
        sent.count((&one, 0), MessageType::Normal, 4, 8000);
        sent.count((&one, 1), MessageType::Fifo, 1, 10);
        let read = sent.read();
        assert_eq!(read.len(), 2);
        let (_, _, normal) = read.iter().find(|(_, kind, _)| *kind == MessageType::Normal).unwrap();
        assert_eq!((normal.messages, normal.bytes), (204, 208_000));
        assert_eq!((normal.sizes.counts[..2].to_vec(), normal.sizes.sum), (vec![200, 1], 202_000.0));
        let windows = sent.windows("orders", 0, NUMS).unwrap();
        assert_eq!((windows[0].sum, windows[0].mean), (205, 205.0 / 202.0), "messages of requests");
        assert_eq!(sent.queue_windows("orders", 1, 0, NUMS).unwrap()[0].sum, 1);
        sent.retain(&|_: &str| false);
        assert!(sent.read().is_empty());
        assert_eq!(sent.windows("orders", 0, NUMS), None);
        assert_eq!(sent.to_clients_topics(), 205, "what was counted stays counted");
    }
}
