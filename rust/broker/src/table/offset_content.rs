//! The offsets of consumer groups as their file has them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use rocketpy_model::DataVersion;
use rocketpy_protocol::body::ConsumerOffsetSerializeWrapper;
use tracing::warn;

use super::offset_state::{ByQueue, ByTopic, Entry, NO_GUARD};

/// Maximum number of pairs of a group and a deleted topic that are kept. Beyond it those of the earliest creations go.
const MAX_FORMERS: usize = 10_000;

/// Content of one write.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) number: u64,
    pub(super) version: DataVersion,
    pub(super) offsets: ByQueue<Entry>,
    pub(super) pulled: ByQueue<i64>,
    pub(super) formers: Arc<Formers>,
}

/// By group and topic, the number of a topic that was deleted while the group had offsets in it.
pub(super) type Formers = HashMap<Arc<str>, HashMap<Arc<str>, u64>>;

impl Snapshot {
    /// The content of the file.
    pub(super) fn content(&self) -> ConsumerOffsetSerializeWrapper {
        ConsumerOffsetSerializeWrapper {
            data_version: self.version,
            group_topic_map: group_topics(&self.offsets),
            offset_table: by_key(&self.offsets, |entry| Some(entry.offset)),
            pull_offset_table: by_key(&self.pulled, |offset| Some(*offset)),
            guard_table: by_key(&self.offsets, |entry| Some(entry.guard).filter(|guard| *guard != NO_GUARD)),
            former_table: former_table(&self.formers),
            creation_table: BTreeMap::new(),
        }
    }
}

fn former_table(formers: &Formers) -> BTreeMap<String, BTreeMap<String, u64>> {
    let of_group = |topics: &HashMap<Arc<str>, u64>| {
        topics.iter().map(|(topic, number)| (topic.to_string(), *number)).collect()
    };
    formers.iter().map(|(group, topics)| (group.to_string(), of_group(topics))).collect()
}

/// The opposite of [`former_table`], bounded.
pub(super) fn formers_of(table: BTreeMap<String, BTreeMap<String, u64>>) -> Formers {
    let mut formers = Formers::new();
    for (group, topics) in table {
        let topics = topics.into_iter().map(|(topic, number)| (topic.into(), number));
        formers.insert(group.into(), topics.collect());
    }
    bound_formers(&mut formers);
    formers
}

/// Lets those of the earliest creations go where there are too many.
pub(super) fn bound_formers(formers: &mut Formers) {
    let mut numbers: Vec<u64> = formers.values().flat_map(|topics| topics.values().copied()).collect();
    if numbers.len() <= MAX_FORMERS {
        return;
    }
    numbers.sort_unstable();
    let first_kept = numbers[numbers.len() - MAX_FORMERS];
    let mut left = MAX_FORMERS;
    formers.retain(|_, topics| {
        topics.retain(|_, number| {
            let is_kept = *number >= first_kept && left > 0;
            left -= usize::from(is_kept);
            is_kept
        });
        !topics.is_empty()
    });
    assert_eq!(left, 0, "as many former readers are kept as the limit allows");
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
            None => warn!(key, "consumer offset without a group ignored"),
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
