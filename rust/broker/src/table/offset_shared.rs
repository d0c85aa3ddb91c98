//! Offsets of all groups at one moment, for whoever reads many of them.

use std::sync::Arc;

use super::offset_content::Snapshot;

/// Offsets of all groups at one moment.
#[derive(Debug)]
pub(crate) struct SharedOffsets(Snapshot);

/// Offsets of a group in a queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueOffsets {
    pub(crate) queue_id: u32,
    pub(crate) committed: i64,
    /// Where the last pull ended, or the committed offset if that is later.
    pub(crate) pulled: i64,
}

impl SharedOffsets {
    pub(super) fn new(snapshot: Snapshot) -> Self {
        Self(snapshot)
    }

    pub(crate) fn groups(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.offsets.keys()
    }

    /// Topics in which a group has offsets, with those of their queues.
    pub(crate) fn of(&self, group: &str) -> impl Iterator<Item = (&Arc<str>, Vec<QueueOffsets>)> {
        let pulled = self.0.pulled.get(group);
        let topics = self.0.offsets.get(group);
        topics.into_iter().flat_map(|topics| topics.iter()).map(move |(topic, queues)| {
            let pulled = pulled.and_then(|topics| topics.get(topic));
            let offsets = queues.iter().map(|(&queue_id, entry)| {
                let last = pulled.and_then(|queues| queues.get(&queue_id)).copied().unwrap_or(0);
                QueueOffsets { queue_id, committed: entry.offset, pulled: last.max(entry.offset) }
            });
            (topic, offsets.collect())
        })
    }
}
