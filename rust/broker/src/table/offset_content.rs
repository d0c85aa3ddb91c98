//! The offsets of consumer groups as their file has them.

use std::collections::BTreeMap;
use std::sync::Arc;

use rocketpy_model::DataVersion;
use rocketpy_protocol::body::ConsumerOffsetSerializeWrapper;
use tracing::warn;

use super::offset_state::{ByQueue, ByTopic, Entry, NO_GUARD};

/// What one write saves.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) number: u64,
    pub(super) version: DataVersion,
    pub(super) offsets: ByQueue<Entry>,
    pub(super) pulled: ByQueue<i64>,
}

impl Snapshot {
    /// The content of the file.
    pub(super) fn content(&self) -> ConsumerOffsetSerializeWrapper {
        ConsumerOffsetSerializeWrapper {
            data_version: self.version,
            group_topic_map: group_topics(&self.offsets),
            offset_table: by_key(&self.offsets, |entry| Some(entry.offset)),
            pull_offset_table: by_key(&self.pulled, |offset| Some(*offset)),
            guard_table: by_key(&self.offsets, |entry| Some(entry.guard).filter(|guard| *guard != NO_GUARD)),
        }
    }
}

/// The opposite of [`by_key`].
pub(super) fn by_group<E>(
    table: BTreeMap<String, BTreeMap<i32, i64>>,
    entry: impl Fn(i64) -> E,
) -> ByQueue<E> {
    let mut all = ByQueue::new();
    for (key, queues) in table {
        match key.split_once('@') {
            Some((topic, group)) => {
                let queues = queues
                    .into_iter()
                    .filter_map(|(id, offset)| Some((u32::try_from(id).ok()?, entry(offset))));
                let topics = Arc::make_mut(all.entry(group.into()).or_default());
                topics.insert(topic.into(), Arc::new(queues.collect()));
            }
            None => warn!(key, "consumer offset without a group left out"),
        }
    }
    all
}

/// By `topic@group` and queue id; without those that have nothing.
fn by_key<E>(table: &ByQueue<E>, offset: impl Fn(&E) -> Option<i64>) -> BTreeMap<String, BTreeMap<i32, i64>> {
    let mut all = BTreeMap::new();
    for (group, topics) in table {
        for (topic, queues) in &**topics {
            let of_queue = |(id, entry): (&u32, &E)| Some((i32::try_from(*id).ok()?, offset(entry)?));
            let queues: BTreeMap<_, _> = queues.iter().filter_map(of_queue).collect();
            if !queues.is_empty() {
                all.insert(format!("{topic}@{group}"), queues);
            }
        }
    }
    all
}

fn group_topics<E>(table: &ByQueue<E>) -> BTreeMap<String, Vec<String>> {
    let sorted = |topics: &ByTopic<E>| {
        let mut names: Vec<String> = topics.keys().map(ToString::to_string).collect();
        names.sort_unstable();
        names
    };
    table.iter().map(|(group, topics)| (group.to_string(), sorted(topics))).collect()
}
