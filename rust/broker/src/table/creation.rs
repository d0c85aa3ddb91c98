//! Which creation of its name a topic is, and each of its queues.
//!
//! The numbers of a queue start again when its topic is deleted and created again. Whoever remembers a place in a queue (a group, a held
//! pull, a lock, a message that waits) remembers it for one creation.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Weak;

use parking_lot::RwLock;
use rocketpy_env::{Disk, EnvError, RealDisk};
use rocketpy_model::{PhysicalOffset, QueueOffset, TopicConfig};
use rocketpy_protocol::body::{Creation, TopicCreation};
use rocketpy_store::Store;
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use crate::config_file::ConfigFile;
use crate::table::topic::ByName;

/// The creation numbers of all topics, kept in `config/topicCreations.json`, a file of ours beside Apache's `topics.json`.
///
/// # Durability
/// The number of a new topic is on disk before the topic is. A topic without a number is one of an older store: its number is 0.
pub(crate) struct Creations<D: Disk = RealDisk> {
    file: ConfigFile<D>,
    log: Box<dyn Log>,
    /// A slave has the numbers of its master.
    is_master: bool,
    content: RwLock<Content>,
}

/// View of the store that the creation numbers need.
pub(crate) trait Log: Send + Sync + 'static {
    /// Where the log ends now.
    fn end(&self) -> PhysicalOffset;

    /// Whether a queue holds messages, or did.
    fn has_queue(&self, topic: &str, queue_id: u32) -> bool;
}

impl<D: Disk> Log for Weak<Store<D>> {
    fn end(&self) -> PhysicalOffset {
        self.upgrade().map_or(PhysicalOffset::ZERO, |store| store.max_physical_offset())
    }

    fn has_queue(&self, topic: &str, queue_id: u32) -> bool {
        self.upgrade().is_some_and(|store| store.queue_bounds(topic, queue_id).max > QueueOffset::ZERO)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Content {
    /// The last number that was given.
    last: u64,
    topics: BTreeMap<String, TopicCreation>,
}

impl<D: Disk> Creations<D> {
    /// Reads the file of a store. Without a readable one the numbers start again, for no reader is moved by a number alone.
    pub(crate) fn open(disk: D, store_root: &Path, is_master: bool, log: impl Log) -> Self {
        let file = ConfigFile::on(disk, store_root, "topicCreations.json");
        let content = file.load::<Content>().unwrap_or_else(|error| {
            warn!(%error, "topicCreations.json not readable, numbers of topic creations restart at 1");
            None
        });
        let content = RwLock::new(content.unwrap_or_default());
        Self { file, log: Box::new(log), is_master, content }
    }

    /// Takes the topics that a start finds. Those that have no number existed before there were any. No creation is later than the end of
    /// the log: another log may have taken the place of the one that it was counted in.
    pub(crate) fn begin<'t>(&self, topics: impl Iterator<Item = &'t TopicConfig>) {
        if !self.is_master {
            return; // they are its master's
        }
        let log_end = self.log.end();
        let mut content = self.content.write();
        let mut known = std::mem::take(&mut content.topics);
        for topic in topics {
            let mut creation = known.remove(&topic.name).unwrap_or_default();
            creation.queue_count = topic.queues();
            let queues = creation.queues.values_mut().map(|queue| &mut queue.from);
            for from in queues.chain([&mut creation.from]) {
                *from = log_end.min(*from);
            }
            content.topics.insert(topic.name.clone(), creation);
        }
    }

    /// Gives numbers to what a new table of topics has more than the one before, and writes them; then `save` writes the table.
    ///
    /// # Errors
    /// A file cannot be written: the numbers are as they were.
    pub(crate) fn follow(
        &self,
        topics: &ByName,
        save: impl FnOnce() -> Result<(), EnvError>,
    ) -> Result<(), EnvError> {
        let before = self.content.read().clone();
        let after = if self.is_master { self.raised(&before, topics) } else { left(&before, topics) };
        if after == before {
            return save();
        }
        self.file.save(&after)?;
        *self.content.write() = after;
        save().inspect_err(|_| *self.content.write() = before)
    }

    fn raised(&self, before: &Content, topics: &ByName) -> Content {
        let mut after = Content { last: before.last, topics: BTreeMap::new() };
        let mut next = || {
            after.last += 1;
            Creation { number: after.last, from: self.log.end() }
        };
        for (name, topic) in topics {
            let creation = match before.topics.get(name) {
                None => {
                    let Creation { number, mut from } = next();
                    // The table of topics was lost, not the topic: what waits for it is its own.
                    if (0..topic.queues()).any(|queue_id| self.log.has_queue(name, queue_id)) {
                        from = PhysicalOffset::ZERO;
                    }
                    TopicCreation { number, from, queue_count: topic.queues(), queues: BTreeMap::new() }
                }
                Some(known) => {
                    let mut creation = known.clone();
                    for queue_id in known.queue_count..topic.queues() {
                        creation.queues.insert(queue_id as i32, next());
                    }
                    creation.queues.retain(|queue_id, _| *queue_id < topic.queues() as i32);
                    creation.queue_count = topic.queues();
                    creation
                }
            };
            after.topics.insert(name.clone(), creation);
        }
        after
    }

    /// The last number that was given.
    pub(crate) fn last(&self) -> u64 {
        self.content.read().last
    }

    /// Which creation a queue is of.
    pub(crate) fn of(&self, topic: &str, queue_id: u32) -> Creation {
        let content = self.content.read();
        let Some(creation) = content.topics.get(topic) else { return Creation::default() };
        let of_queue = creation.queues.get(&(queue_id as i32)).copied();
        of_queue.unwrap_or(Creation { number: creation.number, from: creation.from })
    }

    /// Which creation of its name a topic is.
    pub(crate) fn of_topic(&self, topic: &str) -> Creation {
        let content = self.content.read();
        let of_topic = |creation: &TopicCreation| Creation { number: creation.number, from: creation.from };
        content.topics.get(topic).map(of_topic).unwrap_or_default()
    }

    /// Whether a record that names a topic was stored for an earlier topic of that name.
    pub(crate) fn is_earlier(&self, topic: &str, record_at: PhysicalOffset) -> bool {
        record_at < self.of_topic(topic).from
    }

    /// All numbers but those that are 0, for slaves.
    pub(crate) fn all(&self) -> BTreeMap<String, TopicCreation> {
        let content = self.content.read();
        let numbered = content.topics.iter().filter(|(_, creation)| creation.last() > 0);
        numbered.map(|(name, creation)| (name.clone(), creation.clone())).collect()
    }

    /// Takes the numbers of a master. Returns the topics that it has created again since.
    ///
    /// # Errors
    /// The file cannot be written: the numbers are as they were.
    pub(crate) fn adopt(&self, topics: &BTreeMap<String, TopicCreation>) -> Result<Vec<String>, EnvError> {
        // A master of Apache's, or of an earlier version, has none.
        if self.is_master || topics.is_empty() {
            return Ok(Vec::new());
        }
        let before = self.content.read().clone();
        let last = topics.values().map(TopicCreation::last).max().unwrap_or(0).max(before.last);
        let after = Content { last, topics: topics.clone() };
        if after == before {
            return Ok(Vec::new());
        }
        self.file.save(&after)?;
        let is_again = |(name, creation): &(&String, &TopicCreation)| {
            before.topics.get(*name).is_some_and(|known| known.number < creation.number)
        };
        let again: Vec<String> = topics.iter().filter(is_again).map(|(name, _)| name.clone()).collect();
        *self.content.write() = after;
        for topic in &again {
            info!(topic, "topic created again at the master");
        }
        Ok(again)
    }
}

/// Creation numbers that a slave keeps until its master sends newer ones.
fn left(before: &Content, topics: &ByName) -> Content {
    let mut after = before.clone();
    after.topics.retain(|name, _| topics.contains_key(name));
    after
}

impl<D: Disk> fmt::Debug for Creations<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Creations").field("last", &self.content.read().last).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    fn topics(topics: &[(&str, u32)]) -> ByName {
        topics.iter().map(|(name, queues)| ((*name).to_owned(), TopicConfig::new(*name, *queues))).collect()
    }

    impl Log for Arc<AtomicU64> {
        fn end(&self) -> PhysicalOffset {
            PhysicalOffset(self.load(Ordering::Relaxed))
        }

        fn has_queue(&self, topic: &str, _queue_id: u32) -> bool {
            topic == "lost"
        }
    }

    fn open(root: &Path, end: &Arc<AtomicU64>, is_master: bool) -> Creations {
        RealDisk.create_dir_all(&root.join("config")).unwrap();
        Creations::open(RealDisk, root, is_master, Arc::clone(end))
    }

    #[test]
    fn a_topic_that_is_created_again_has_a_higher_number_over_restarts() {
        let (root, end) = (tempfile::tempdir().unwrap(), Arc::new(AtomicU64::new(100)));
        let creations = open(root.path(), &end, true);
        creations.begin([&TopicConfig::new("old", 1)].into_iter());
        creations.follow(&topics(&[("old", 1), ("new", 2)]), || Ok(())).unwrap();
        assert_eq!(creations.of("old", 0), Creation::default(), "it was there before");
        let first = creations.of("new", 1);
        assert_eq!(first, Creation { number: 1, from: PhysicalOffset(100) });
        end.store(200, Ordering::Relaxed);
        creations.follow(&topics(&[("old", 1)]), || Ok(())).unwrap();
        let creations = open(root.path(), &end, true);
        creations.begin([&TopicConfig::new("old", 1)].into_iter());
        assert_eq!(creations.of("new", 0), Creation::default());
        creations.follow(&topics(&[("old", 1), ("new", 2)]), || Ok(())).unwrap();
        let creations = open(root.path(), &end, true);
        creations.begin(topics(&[("old", 1), ("new", 2)]).values());
        assert_eq!(creations.of("new", 1), Creation { number: 2, from: PhysicalOffset(200) });
        assert!(creations.is_earlier("new", PhysicalOffset(199)));
        assert!(!creations.is_earlier("new", PhysicalOffset(200)) && !creations.is_earlier("old", 0.into()));
    }

    #[test]
    fn a_topic_whose_messages_are_there_is_not_a_later_one() {
        let (root, end) = (tempfile::tempdir().unwrap(), Arc::new(AtomicU64::new(100)));
        let creations = open(root.path(), &end, true);
        creations.follow(&topics(&[("lost", 1)]), || Ok(())).unwrap();
        assert_eq!(creations.of("lost", 0), Creation { number: 1, from: PhysicalOffset::ZERO });
    }

    #[test]
    fn a_queue_that_was_removed_and_grown_again_has_a_number_of_its_own() {
        let (root, end) = (tempfile::tempdir().unwrap(), Arc::new(AtomicU64::new(0)));
        let creations = open(root.path(), &end, true);
        for queues in [4, 2, 3] {
            creations.follow(&topics(&[("t", queues)]), || Ok(())).unwrap();
        }
        let numbers: Vec<u64> = (0..4).map(|id| creations.of("t", id).number).collect();
        assert_eq!(numbers, [1, 1, 2, 1]);
        let creations = open(root.path(), &end, true);
        assert_eq!(creations.of("t", 2).number, 2);
    }

    #[test]
    fn a_slave_takes_the_numbers_of_its_master_and_gives_none() {
        let (root, end) = (tempfile::tempdir().unwrap(), Arc::new(AtomicU64::new(7)));
        let master = open(&root.path().join("master"), &end, true);
        let slave = open(&root.path().join("slave"), &end, false);
        master.follow(&topics(&[("t", 1)]), || Ok(())).unwrap();
        slave.follow(&topics(&[("t", 1)]), || Ok(())).unwrap();
        assert_eq!(slave.of("t", 0).number, 0);
        assert!(slave.adopt(&master.all()).unwrap().is_empty());
        master.follow(&topics(&[]), || Ok(())).unwrap();
        master.follow(&topics(&[("t", 1)]), || Ok(())).unwrap();
        assert_eq!(slave.adopt(&master.all()).unwrap(), ["t"]);
        assert!(slave.adopt(&master.all()).unwrap().is_empty());
        assert!(slave.adopt(&BTreeMap::new()).unwrap().is_empty(), "a master of Apache's has none");
        let promoted = open(&root.path().join("slave"), &end, true);
        promoted.begin(topics(&[("t", 1)]).values());
        assert_eq!(promoted.of("t", 0), master.of("t", 0));
        promoted.follow(&topics(&[("t", 1), ("u", 1)]), || Ok(())).unwrap();
        assert_eq!(promoted.of("u", 0).number, 3);
    }
}
