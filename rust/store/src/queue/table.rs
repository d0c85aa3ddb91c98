//! All queues of a store by name.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use rocketpy_model::name::{NameError, check_topic};

use super::Queue;
use crate::fetch::{QueueBounds, QueueSummary};

/// Finds queues by topic and queue id, and makes them.
#[doc(alias = "consumeQueueTable")]
#[derive(Debug, Default)]
pub(crate) struct QueueTable {
    topics: RwLock<HashMap<Arc<str>, Vec<Arc<Queue>>>>,
    /// Queues that were written since the last flush.
    dirty: Mutex<Vec<Arc<Queue>>>,
    next_uid: AtomicU64,
}

impl QueueTable {
    /// A number no other queue has.
    pub fn next_uid(&self) -> u64 {
        self.next_uid.fetch_add(1, Ordering::Relaxed)
    }

    pub fn get(&self, topic: &str, queue_id: u32) -> Option<Arc<Queue>> {
        let topics = self.topics.read();
        let queues = topics.get(topic)?;
        let index = queues.binary_search_by_key(&queue_id, |queue| queue.queue_id).ok()?;
        Some(Arc::clone(&queues[index]))
    }

    /// The queue, made empty when missing.
    ///
    /// # Errors
    /// When the topic may not become the name of a folder, whoever it comes from: a client, a batch, a damaged log.
    pub fn get_or_create(&self, topic: &str, queue_id: u32) -> Result<Arc<Queue>, NameError> {
        if let Some(queue) = self.get(topic, queue_id) {
            return Ok(queue);
        }
        check_topic(topic)?;
        let mut topics = self.topics.write();
        let topic: Arc<str> = topics.get_key_value(topic).map_or_else(|| topic.into(), |(name, _)| Arc::clone(name));
        let queues = topics.entry(Arc::clone(&topic)).or_default();
        match queues.binary_search_by_key(&queue_id, |queue| queue.queue_id) {
            Ok(index) => Ok(Arc::clone(&queues[index])),
            Err(index) => {
                let empty = QueueBounds { min: 0.into(), max: 0.into() };
                let queue = Arc::new(Queue::new(topic, queue_id, self.next_uid(), empty));
                queues.insert(index, Arc::clone(&queue));
                Ok(queue)
            }
        }
    }

    /// Adds a queue that was found on disk.
    ///
    /// # Panics
    /// When there is one of that name.
    pub fn insert(&self, queue: Arc<Queue>) {
        let mut topics = self.topics.write();
        let queues = topics.entry(Arc::clone(&queue.topic)).or_default();
        match queues.binary_search_by_key(&queue.queue_id, |other| other.queue_id) {
            Ok(_) => panic!("queue {}-{} is there twice", queue.topic, queue.queue_id),
            Err(index) => queues.insert(index, queue),
        }
    }

    /// Takes a topic out; its queues are marked as deleted.
    pub fn remove_topic(&self, topic: &str) -> Vec<Arc<Queue>> {
        let queues = self.topics.write().remove(topic).unwrap_or_default();
        for queue in &queues {
            queue.mark_deleted();
        }
        queues
    }

    /// All queues, in no order.
    pub fn all(&self) -> Vec<Arc<Queue>> {
        self.topics.read().values().flatten().map(Arc::clone).collect()
    }

    pub fn count(&self) -> usize {
        self.topics.read().values().map(Vec::len).sum()
    }

    /// All queues that ever held a message with their bounds, by topic and queue id.
    pub fn summaries(&self) -> Vec<QueueSummary> {
        let summary = |queue: Arc<Queue>| QueueSummary {
            topic: Arc::clone(&queue.topic),
            queue_id: queue.queue_id,
            bounds: queue.bounds(),
        };
        let used = self.all().into_iter().filter(|queue| queue.max() > 0);
        let mut summaries: Vec<_> = used.map(summary).collect();
        summaries.sort_by(|a, b| (&a.topic, a.queue_id).cmp(&(&b.topic, b.queue_id)));
        summaries
    }

    /// Notes a queue that was clean and now is not.
    pub fn note_dirty(&self, queue: &Arc<Queue>) {
        self.dirty.lock().push(Arc::clone(queue));
    }

    /// Takes the queues that were written since the last call.
    pub fn take_dirty(&self) -> Vec<Arc<Queue>> {
        std::mem::take(&mut *self.dirty.lock())
    }
}
