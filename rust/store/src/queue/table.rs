//! All queues of a store by name.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use rocketpy_model::name::{NameError, check_topic};
use rocketpy_model::{PhysicalOffset, QueueOffset};

use super::Queue;
use crate::fetch::{QueueBounds, QueueSummary};

/// Finds queues by topic and queue id, and makes them.
#[doc(alias = "consumeQueueTable")]
#[derive(Debug)]
pub(crate) struct QueueTable {
    /// Distinguishes the tables of a process.
    id: u64,
    topics: RwLock<HashMap<Arc<str>, Vec<Arc<Queue>>, ahash::RandomState>>,
    /// The queue of each uid; `None` for one that was deleted, or never entered the table.
    by_uid: RwLock<Vec<Option<Arc<Queue>>>>,
    next_uid: AtomicU64,
    /// Queues that were written since the last flush.
    dirty: Mutex<Vec<Arc<Queue>>>,
}

/// Last number given to a table of any store of this process.
static LAST_ID: AtomicU64 = AtomicU64::new(0);

/// Queues that a thread used lately. Most appends find theirs here and need no lock.
const RECENT: usize = 64;
/// Admit one in this many uncached queues. With thousands of busy queues, caching each would only cause churn.
const ADMIT_ONE_IN: u8 = 8;

thread_local! {
    static RECENT_QUEUES: RefCell<RecentQueues> =
        const { RefCell::new(RecentQueues { queues: [const { None }; RECENT], missed: 0 }) };
}

struct RecentQueues {
    queues: [Option<Recent>; RECENT],
    /// How often the queue that was asked for was not here.
    missed: u8,
}

/// A queue and the table it belongs to.
struct Recent {
    table: u64,
    queue: Arc<Queue>,
}

impl Recent {
    fn is(&self, table: u64, topic: &str, queue_id: u32) -> bool {
        let queue = &self.queue;
        self.table == table && queue.queue_id == queue_id && &*queue.topic == topic && !queue.is_deleted()
    }
}

/// The slot of a queue among the recent ones.
fn slot(topic: &str, queue_id: u32) -> usize {
    let last = topic.as_bytes().last().copied().unwrap_or_default();
    (queue_id as usize).wrapping_add(topic.len()).wrapping_add(usize::from(last) << 3) % RECENT
}

impl Default for QueueTable {
    fn default() -> Self {
        Self {
            id: LAST_ID.fetch_add(1, Ordering::Relaxed) + 1,
            topics: RwLock::default(),
            by_uid: RwLock::default(),
            next_uid: AtomicU64::new(0),
            dirty: Mutex::default(),
        }
    }
}

impl QueueTable {
    /// A number that no other queue of this table has; they are given one after the other.
    pub(crate) fn next_uid(&self) -> u64 {
        self.next_uid.fetch_add(1, Ordering::Relaxed)
    }

    /// Calls a function with the queue, which is made empty when missing. Takes no lock and counts no reference when
    /// this thread used the queue lately.
    ///
    /// # Errors
    /// As [`QueueTable::get_or_create`].
    pub(crate) fn with<T>(
        &self,
        topic: &str,
        queue_id: u32,
        act: impl FnOnce(&Arc<Queue>) -> T,
    ) -> Result<T, NameError> {
        RECENT_QUEUES.with_borrow_mut(|recent| {
            let slot = &mut recent.queues[slot(topic, queue_id)];
            if let Some(recent) = slot.as_ref().filter(|recent| recent.is(self.id, topic, queue_id)) {
                return Ok(act(&recent.queue));
            }
            let queue = self.get_or_create(topic, queue_id)?;
            let done = act(&queue);
            recent.missed = recent.missed.wrapping_add(1);
            if recent.missed.is_multiple_of(ADMIT_ONE_IN) || slot.is_none() {
                *slot = Some(Recent { table: self.id, queue });
            }
            Ok(done)
        })
    }

    /// The queue of a uid, unless it was deleted.
    pub(crate) fn by_uid(&self, uid: u64) -> Option<Arc<Queue>> {
        self.by_uid.read().get(usize::try_from(uid).ok()?)?.as_ref().map(Arc::clone)
    }

    fn enter(&self, queue: &Arc<Queue>) {
        let mut by_uid = self.by_uid.write();
        let index = queue.uid as usize;
        if by_uid.len() <= index {
            by_uid.resize(index + 1, None);
        }
        assert!(by_uid[index].is_none(), "a uid is given once");
        by_uid[index] = Some(Arc::clone(queue));
    }

    pub(crate) fn get(&self, topic: &str, queue_id: u32) -> Option<Arc<Queue>> {
        let topics = self.topics.read();
        let queues = topics.get(topic)?;
        // Nearly all topics have all their queues. Then each is at the index of its number, and no search is needed.
        let guess = queues.get(queue_id as usize).filter(|queue| queue.queue_id == queue_id);
        let found = guess.or_else(|| {
            let index = queues.binary_search_by_key(&queue_id, |queue| queue.queue_id).ok()?;
            Some(&queues[index])
        });
        found.map(Arc::clone)
    }

    /// The queue, made empty when missing.
    ///
    /// # Errors
    /// When the topic may not become the name of a folder, whoever it comes from: a client, a batch, a damaged log.
    pub(crate) fn get_or_create(&self, topic: &str, queue_id: u32) -> Result<Arc<Queue>, NameError> {
        if let Some(queue) = self.get(topic, queue_id) {
            return Ok(queue);
        }
        check_topic(topic)?;
        let mut topics = self.topics.write();
        let topic: Arc<str> =
            topics.get_key_value(topic).map_or_else(|| topic.into(), |(name, _)| Arc::clone(name));
        let queues = topics.entry(Arc::clone(&topic)).or_default();
        match queues.binary_search_by_key(&queue_id, |queue| queue.queue_id) {
            Ok(index) => Ok(Arc::clone(&queues[index])),
            Err(index) => {
                let empty = QueueBounds { min: QueueOffset::ZERO, max: QueueOffset::ZERO };
                let queue = Arc::new(Queue::new(topic, queue_id, self.next_uid(), empty));
                queue.set_born(PhysicalOffset::MAX); // no record of the log is its own before its first append
                queues.insert(index, Arc::clone(&queue));
                self.enter(&queue);
                Ok(queue)
            }
        }
    }

    /// Adds a queue that was found on disk.
    ///
    /// # Panics
    /// When there is one of that name.
    pub(crate) fn insert(&self, queue: Arc<Queue>) {
        let mut topics = self.topics.write();
        self.enter(&queue);
        let queues = topics.entry(Arc::clone(&queue.topic)).or_default();
        match queues.binary_search_by_key(&queue.queue_id, |other| other.queue_id) {
            Ok(_) => panic!("queue {}-{} is there twice", queue.topic, queue.queue_id),
            Err(index) => queues.insert(index, queue),
        }
    }

    /// Takes a topic out; its queues are marked as deleted.
    pub(crate) fn remove_topic(&self, topic: &str) -> Vec<Arc<Queue>> {
        let queues = self.topics.write().remove(topic).unwrap_or_default();
        let mut by_uid = self.by_uid.write();
        for queue in &queues {
            queue.mark_deleted();
            by_uid[queue.uid as usize] = None;
        }
        queues
    }

    /// Takes one queue out; it is marked as deleted.
    pub(crate) fn remove(&self, topic: &str, queue_id: u32) -> Option<Arc<Queue>> {
        let mut topics = self.topics.write();
        let queues = topics.get_mut(topic)?;
        let index = queues.binary_search_by_key(&queue_id, |queue| queue.queue_id).ok()?;
        let queue = queues.remove(index);
        if queues.is_empty() {
            topics.remove(topic);
        }
        queue.mark_deleted();
        self.by_uid.write()[queue.uid as usize] = None;
        Some(queue)
    }

    /// All queues, in no order.
    pub(crate) fn all(&self) -> Vec<Arc<Queue>> {
        self.topics.read().values().flatten().map(Arc::clone).collect()
    }

    pub(crate) fn of_topic(&self, topic: &str) -> Vec<Arc<Queue>> {
        self.topics.read().get(topic).cloned().unwrap_or_default()
    }

    pub(crate) fn count(&self) -> usize {
        self.topics.read().values().map(Vec::len).sum()
    }

    /// All queues that ever held a message with their bounds, by topic and queue id.
    pub(crate) fn summaries(&self) -> Vec<QueueSummary> {
        let summary = |queue: Arc<Queue>| QueueSummary {
            topic: Arc::clone(&queue.topic),
            queue_id: queue.queue_id,
            bounds: queue.bounds(),
        };
        let used = self.all().into_iter().filter(|queue| queue.max() > QueueOffset::ZERO);
        let mut summaries: Vec<_> = used.map(summary).collect();
        summaries.sort_by(|a, b| (&a.topic, a.queue_id).cmp(&(&b.topic, b.queue_id)));
        summaries
    }

    /// Notes a queue that was clean and now is not.
    pub(crate) fn note_dirty(&self, queue: &Arc<Queue>) {
        self.dirty.lock().push(Arc::clone(queue));
    }

    /// Notes that a file of a queue was written.
    pub(crate) fn note_written(&self, queue: &Arc<Queue>, file_start: u64, is_new: bool) {
        if queue.mark_dirty(file_start, is_new) {
            self.note_dirty(queue);
        }
    }

    /// Takes the queues that were written since the last call.
    pub(crate) fn take_dirty(&self) -> Vec<Arc<Queue>> {
        std::mem::take(&mut *self.dirty.lock())
    }
}
