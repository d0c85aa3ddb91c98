//! The offsets of consumer groups, and the file that keeps them.
#![cfg_attr(
    not(feature = "sim"),
    expect(unreachable_pub, reason = "the simulator uses the table from outside")
)]

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use parking_lot::Mutex;
use rocketpy_env::planted::{self, Bug};
use rocketpy_env::{Disk, EnvError, RealDisk};
use rocketpy_model::DataVersion;
use rocketpy_protocol::body::ConsumerOffsetSerializeWrapper;
use tracing::warn;

use crate::BrokerError;
use crate::config_file::ConfigFile;

/// The version moves once in this many commits (`consumerOffsetUpdateVersionStep`).
const COMMITS_PER_VERSION: u64 = 500;

/// How far every group has consumed every queue, kept in `config/consumerOffset.json`.
///
/// # Durability
/// Written every few seconds and at the stop: a kill may set offsets back by that much, never forward. A change that sets offsets
/// back or removes them is written at once.
#[doc(alias = "ConsumerOffsetManager")]
#[derive(Debug)]
pub struct OffsetTable<D: Disk = RealDisk> {
    state: Mutex<State>,
    file: ConfigFile<D>,
    /// Held while the file is written.
    writing: Mutex<()>,
}

/// By group, then topic, then queue: the next offset to consume. Of a longer key (`topic@group@broadcast`) everything after the
/// first `@` counts as group.
type Offsets = HashMap<String, HashMap<String, BTreeMap<u32, i64>>>;

#[derive(Debug, Default)]
struct State {
    offsets: Offsets,
    /// Where the last pull ended, for consumption statistics only.
    pulled: Offsets,
    version: DataVersion,
    commits: u64,
    changed: bool,
}

impl<D: Disk> OffsetTable<D> {
    /// Reads the file of a store.
    ///
    /// # Errors
    /// The file cannot be read, or not be decoded while it has no good backup.
    pub fn open(disk: D, store_root: &Path) -> Result<Self, BrokerError> {
        let file = ConfigFile::on(disk, store_root, "consumerOffset.json");
        let loaded = file.load::<ConsumerOffsetSerializeWrapper>()?.unwrap_or_default();
        let (offsets, pulled) = (by_group(loaded.offset_table), by_group(loaded.pull_offset_table));
        let state = State { offsets, pulled, version: loaded.data_version, ..State::default() };
        Ok(Self { state: Mutex::new(state), file, writing: Mutex::new(()) })
    }

    /// Sets offsets beyond the end of their queue back to that end. After a truncation queue offsets are used again, and a consumer
    /// ahead of them would skip messages (docs/durability.md R7).
    ///
    /// # Durability
    /// On disk on return, before the first request is served: once the queue has grown again, no later start can tell.
    pub fn clamp(&self, max_offset: impl Fn(&str, u32) -> i64) -> Result<(), EnvError> {
        if planted::has(Bug::OffsetClampMissing) {
            return Ok(());
        }
        if self.set_back(max_offset) { self.persist() } else { Ok(()) }
    }

    fn set_back(&self, max_offset: impl Fn(&str, u32) -> i64) -> bool {
        let mut state = self.state.lock();
        let mut changed = false;
        let State { offsets, pulled, .. } = &mut *state;
        for (group, topics) in offsets.iter_mut().chain(pulled) {
            for (topic, queues) in topics {
                for (queue_id, offset) in queues {
                    let max = max_offset(topic, *queue_id);
                    if *offset > max {
                        warn!(
                            group,
                            topic,
                            queue_id,
                            stored = *offset,
                            max_offset = max,
                            "consumer offset beyond the end of its queue, set back"
                        );
                        *offset = max;
                        changed = true;
                    }
                }
            }
        }
        state.changed |= changed;
        changed
    }

    /// The offset that a group has committed.
    pub fn get(&self, group: &str, topic: &str, queue_id: u32) -> Option<i64> {
        self.state.lock().offsets.get(group)?.get(topic)?.get(&queue_id).copied()
    }

    /// Stores the offset as given; it may go backwards.
    pub fn commit(&self, group: &str, topic: &str, queue_id: u32, offset: i64) {
        let mut state = self.state.lock();
        state.changed |= put(&mut state.offsets, group, topic, queue_id, offset);
        state.commits += 1;
        if state.commits.is_multiple_of(COMMITS_PER_VERSION) {
            state.version = state.version.next(self.file.disk().now_ms());
        }
    }

    /// Notes where a pull ended.
    pub(crate) fn pulled(&self, group: &str, topic: &str, queue_id: u32, offset: i64) {
        put(&mut self.state.lock().pulled, group, topic, queue_id, offset);
    }

    pub(crate) fn last_pulled(&self, group: &str, topic: &str, queue_id: u32) -> Option<i64> {
        self.state.lock().pulled.get(group)?.get(topic)?.get(&queue_id).copied()
    }

    /// Topics for which the group has stored offsets.
    pub(crate) fn topics_of(&self, group: &str) -> Vec<String> {
        let state = self.state.lock();
        let mut topics: Vec<String> =
            state.offsets.get(group).map(|topics| topics.keys().cloned().collect()).unwrap_or_default();
        topics.sort_unstable();
        topics
    }

    /// Groups that have stored offsets for the topic.
    pub(crate) fn groups_of(&self, topic: &str) -> Vec<String> {
        let state = self.state.lock();
        let with_topic = state.offsets.iter().filter(|(_, topics)| topics.contains_key(topic));
        let mut groups: Vec<String> = with_topic.map(|(group, _)| group.clone()).collect();
        groups.sort_unstable();
        groups
    }

    /// Removes a topic: a later one of the same name starts without offsets.
    ///
    /// # Durability
    /// On disk on return: offsets that a crash brought back would be ahead of the later topic's messages.
    pub fn remove_topic(&self, topic: &str) -> Result<(), EnvError> {
        {
            let mut state = self.state.lock();
            let State { offsets, pulled, .. } = &mut *state;
            for table in [offsets, pulled] {
                for topics in table.values_mut() {
                    topics.remove(topic);
                }
                table.retain(|_, topics| !topics.is_empty());
            }
            state.changed = true;
        }
        self.persist()
    }

    /// Removes a group, as [`OffsetTable::remove_topic`] does a topic.
    pub(crate) fn remove_group(&self, group: &str) -> Result<(), EnvError> {
        {
            let mut state = self.state.lock();
            state.offsets.remove(group);
            state.pulled.remove(group);
            state.changed = true;
        }
        self.persist()
    }

    /// Whether there is something to write.
    pub(crate) fn is_changed(&self) -> bool {
        self.state.lock().changed
    }

    /// Writes the file when something changed since the last time. Blocks.
    pub fn persist(&self) -> Result<(), EnvError> {
        let _writing = self.writing.lock();
        let saved = {
            let mut state = self.state.lock();
            if !state.changed {
                return Ok(());
            }
            state.changed = false;
            ConsumerOffsetSerializeWrapper {
                data_version: state.version,
                group_topic_map: group_topics(&state.offsets),
                offset_table: by_key(&state.offsets),
                pull_offset_table: by_key(&state.pulled),
            }
        };
        self.file.save(&saved).inspect_err(|_| self.state.lock().changed = true)
    }
}

/// Sets the offset. Allocates no text for an entry that exists. True when it changed.
fn put(table: &mut Offsets, group: &str, topic: &str, queue_id: u32, offset: i64) -> bool {
    if let Some(queues) = table.get_mut(group).and_then(|topics| topics.get_mut(topic)) {
        return queues.insert(queue_id, offset) != Some(offset);
    }
    let topics = table.entry(group.to_owned()).or_default();
    topics.entry(topic.to_owned()).or_default().insert(queue_id, offset);
    true
}

/// The opposite of [`by_key`].
fn by_group(table: BTreeMap<String, BTreeMap<i32, i64>>) -> Offsets {
    let mut all = Offsets::new();
    for (key, queues) in table {
        match key.split_once('@') {
            Some((topic, group)) => {
                let queues =
                    queues.into_iter().filter_map(|(id, offset)| Some((u32::try_from(id).ok()?, offset)));
                all.entry(group.to_owned()).or_default().insert(topic.to_owned(), queues.collect());
            }
            None => warn!(key, "consumer offset without a group left out"),
        }
    }
    all
}

fn by_key(table: &Offsets) -> BTreeMap<String, BTreeMap<i32, i64>> {
    let mut all = BTreeMap::new();
    for (group, topics) in table {
        for (topic, queues) in topics {
            let queues = queues.iter().filter_map(|(id, offset)| Some((i32::try_from(*id).ok()?, *offset)));
            all.insert(format!("{topic}@{group}"), queues.collect());
        }
    }
    all
}

fn group_topics(table: &Offsets) -> BTreeMap<String, Vec<String>> {
    let sorted = |topics: &HashMap<String, _>| {
        let mut names: Vec<String> = topics.keys().cloned().collect();
        names.sort_unstable();
        names
    };
    table.iter().map(|(group, topics)| (group.clone(), sorted(topics))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_that_was_set_back_stays_so_after_a_kill() {
        let root = tempfile::tempdir().unwrap();
        let open = || {
            RealDisk.create_dir_all(&root.path().join("config")).unwrap();
            OffsetTable::open(RealDisk, root.path()).unwrap()
        };
        let table = open();
        table.commit("g", "t", 0, 10);
        table.commit("g", "t", 1, 10);
        table.persist().unwrap();
        let table = open();
        table.clamp(|_, queue_id| if queue_id == 0 { 4 } else { 10 }).unwrap();
        assert_eq!((table.get("g", "t", 0), table.get("g", "t", 1)), (Some(4), Some(10)));
        // Nothing else was written; meanwhile the queue has grown behind the old offset.
        let table = open();
        table.clamp(|_, _| 20).unwrap();
        assert_eq!((table.get("g", "t", 0), table.get("g", "t", 1)), (Some(4), Some(10)));
    }
}
