//! The tables of topics and groups on any disk, for the simulator.

use std::path::Path;

use rocketpy_env::Disk;
use rocketpy_model::{GroupConfig, TopicConfig};

use super::group::GroupTable;
use super::group_commit::Written;
use super::named::Changed;
use super::topic::TopicTable;
use crate::refusal::Refusal;
use crate::{BrokerConfig, BrokerError, StoreConfig};

/// The topics and groups of a store. Whoever changes something writes.
#[derive(Debug)]
pub struct NamedTables {
    topics: TopicTable,
    groups: GroupTable,
}

impl NamedTables {
    /// Reads the files of a store.
    ///
    /// # Errors
    /// A file cannot be read, or not be decoded while it has no good backup.
    pub fn open<D: Disk + Clone>(disk: &D, store_root: &Path) -> Result<Self, BrokerError> {
        let config = BrokerConfig { store: StoreConfig::new(store_root), ..BrokerConfig::default() };
        let topics = TopicTable::open(disk.clone(), &config)?;
        let groups = GroupTable::open(disk.clone(), &config)?;
        Ok(Self { topics, groups })
    }

    /// The topic as readers see it.
    pub fn topic(&self, name: &str) -> Option<TopicConfig> {
        self.topics.get(name).map(|topic| (*topic).clone())
    }

    /// The group as readers see it.
    pub fn group(&self, name: &str) -> Option<GroupConfig> {
        self.groups.get(name).map(|group| (*group).clone())
    }

    /// Makes the topic or changes it; answered on return.
    ///
    /// # Errors
    /// Why it is refused, or not written.
    pub fn put_topic(&self, topic: TopicConfig) -> Result<(), String> {
        let name = topic.name.clone();
        answered(self.topics.update(&name, |_| Ok(topic)).map(written))
    }

    /// Makes the group or changes it; answered on return.
    ///
    /// # Errors
    /// Those of [`Self::put_topic`].
    pub fn put_group(&self, group: GroupConfig) -> Result<(), String> {
        answered(self.groups.put(group).map(written))
    }

    /// Deletes the topic; answered on return.
    ///
    /// # Errors
    /// Those of [`Self::put_topic`].
    pub fn remove_topic(&self, name: &str) -> Result<(), String> {
        answered(self.topics.remove(name))
    }

    /// Deletes the group; answered on return.
    ///
    /// # Errors
    /// Those of [`Self::put_topic`].
    pub fn remove_group(&self, name: &str) -> Result<(), String> {
        answered(self.groups.remove(name))
    }
}

fn written<V>(changed: Changed<V>) -> Option<Written> {
    changed.written
}

fn answered(begun: Result<Option<Written>, Refusal>) -> Result<(), String> {
    let written = begun.map_err(|refusal| refusal.to_string())?;
    written.map_or(Ok(()), |written| written.now().map_err(|error| error.to_string()))
}
