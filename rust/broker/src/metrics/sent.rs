//! Counters of what clients send, by topic and kind of message.
//!
//! A thread keeps the counters of the topics that it served last: a send finds them by the address of its topic's configuration. Per message
//! two cells change, both in one cache line.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::RwLock;
use rocketpy_model::TopicConfig;

use super::histogram::{Buckets, MAX_BOUNDS};
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

/// Counters of one topic; by kind, made with the first message.
#[derive(Debug, Default)]
struct OfTopic([OnceLock<Box<Sends>>; 4]);

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
#[derive(Debug, Default)]
pub(crate) struct SentMessages(RwLock<HashMap<String, Arc<OfTopic>>>);

impl SentMessages {
    /// Counts a send.
    #[inline]
    pub(crate) fn count(&self, topic: &Arc<TopicConfig>, kind: MessageType, messages: u64, bytes: u64) {
        let slot = Arc::as_ptr(topic) as usize / size_of::<TopicConfig>() % SLOTS;
        LAST.with_borrow_mut(|last| {
            let slot = &mut last[slot];
            match slot {
                Some((known, counters)) if Arc::ptr_eq(known, topic) => counters.count(kind, messages, bytes),
                _ => {
                    let counters = self.of(&topic.name);
                    counters.count(kind, messages, bytes);
                    *slot = Some((topic.clone(), counters));
                }
            }
        });
    }

    fn of(&self, topic: &str) -> Arc<OfTopic> {
        if let Some(known) = self.0.read().get(topic) {
            return known.clone();
        }
        self.0.write().entry(topic.to_owned()).or_default().clone()
    }

    /// Topics with their figures by kind.
    pub(crate) fn read(&self) -> Vec<(String, MessageType, Sent)> {
        let mut read = Vec::new();
        for (topic, counters) in &*self.0.read() {
            for kind in MessageType::ALL {
                if let Some(sends) = counters.0[kind as usize].get() {
                    read.push((topic.clone(), kind, sends.read()));
                }
            }
        }
        read
    }

    pub(super) fn retain(&self, is_topic: &impl Fn(&str) -> bool) {
        if !self.0.read().keys().all(|topic| is_topic(topic)) {
            self.0.write().retain(|topic, _| is_topic(topic));
        }
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
    #[inline]
    fn count(&self, kind: MessageType, messages: u64, bytes: u64) {
        self.0[kind as usize].get_or_init(Box::default).count(messages, bytes);
    }
}

impl Sends {
    #[inline]
    fn count(&self, messages: u64, bytes: u64) {
        assert!(messages > 0, "a send stores a message");
        let mean = if messages == 1 { bytes } else { bytes / messages };
        let at = bounds().iter().position(|bound| mean as f64 <= *bound).unwrap_or(bounds().len());
        self.by_size[at].fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if messages > 1 {
            self.more_messages.fetch_add(messages - 1, Ordering::Relaxed);
            self.more_bytes.fetch_add(bytes - mean, Ordering::Relaxed);
        }
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
    use super::*;

    #[test]
    fn sends_of_all_threads_count_for_their_topic_whatever_its_configuration() {
        let sent = SentMessages::default();
        let topic = |queues| Arc::new(TopicConfig::new("orders", queues));
        let (one, two) = (topic(1), topic(2));
        std::thread::scope(|scope| {
            for topic in [&one, &two] {
                scope.spawn(|| {
                    for _ in 0..100 {
                        sent.count(topic, MessageType::Normal, 1, 1000);
                    }
                });
            }
        });
        sent.count(&one, MessageType::Normal, 4, 8000);
        sent.count(&one, MessageType::Fifo, 1, 10);
        let read = sent.read();
        assert_eq!(read.len(), 2);
        let (_, _, normal) = read.iter().find(|(_, kind, _)| *kind == MessageType::Normal).unwrap();
        assert_eq!((normal.messages, normal.bytes), (204, 208_000));
        assert_eq!((normal.sizes.counts[..2].to_vec(), normal.sizes.sum), (vec![200, 1], 202_000.0));
        sent.retain(&|_: &str| false);
        assert!(sent.read().is_empty());
    }
}
