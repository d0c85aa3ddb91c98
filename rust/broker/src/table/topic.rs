//! The topics, and the file that keeps them.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use rocketpy_env::{Disk, now_ms};
use rocketpy_model::{DataVersion, Permission, TopicConfig, name, perm, system};
use rocketpy_protocol::body::TopicConfigFile;
use tracing::{debug, warn};

use crate::config_file::ConfigFile;
use crate::refusal::Refusal;
use crate::role::Role;
use crate::table::creation::Creations;
use crate::table::group_commit::Written;
use crate::table::named::{self, Changed, Limits, Named, NamedTable};
use crate::{BrokerConfig, BrokerError};

/// Maximum number of queues of one topic.
pub(crate) const MAX_QUEUES: u32 = 16_384;

/// The topics of this broker, kept in `config/topics.json`.
///
/// A change is seen once it is on disk ([`NamedTable`]).
#[doc(alias = "TopicConfigManager")]
#[derive(Debug)]
pub(crate) struct TopicTable {
    table: NamedTable<TopicConfig>,
    /// Names of topics whose queues are being removed. The lock is held while a topic is created, so that none comes in between.
    leaving: Arc<Mutex<HashSet<String>>>,
    /// Those of this broker, which it keeps where its master has none.
    system_topics: Vec<TopicConfig>,
    #[cfg(test)]
    pub(crate) gate: Arc<crate::testing::Gate>,
}

/// Topics that were created or changed.
#[derive(Debug)]
pub(crate) struct TopicChange {
    pub(crate) topics: Vec<Arc<TopicConfig>>,
}

/// Result of copying a table from the master.
#[derive(Debug)]
#[must_use = "it is not on disk before `written` has ended"]
pub(crate) struct Adopted {
    /// Names that the master does not have.
    pub(crate) removed: Vec<Arc<str>>,
    /// `None`: the version was the same, and nothing changed.
    pub(crate) written: Option<Written>,
}

/// A topic that is being removed. Until the end of this value no topic of its name can be created.
#[derive(Debug)]
pub(crate) struct Leaving {
    names: Arc<Mutex<HashSet<String>>>,
    name: String,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        assert!(
            self.names.lock().remove(&self.name),
            "a topic is removed by one request at a time: {}",
            self.name
        );
    }
}

/// A copy of the table, for files and answers.
pub(crate) type ByName = named::ByName<TopicConfig>;

impl Named for TopicConfig {
    fn name(&self) -> &str {
        &self.name
    }
}

impl TopicTable {
    /// Loads the file and adds the system topics that are missing. Topics get no creation numbers.
    #[cfg(feature = "sim")]
    pub(crate) fn open(disk: impl Disk, config: &BrokerConfig) -> Result<Self, BrokerError> {
        Self::open_with(disk, config, None::<Arc<Creations>>)
    }

    /// Loads the file and adds the system topics that are missing.
    pub(crate) fn open_with(
        disk: impl Disk,
        config: &BrokerConfig,
        creations: Option<Arc<Creations<impl Disk>>>,
    ) -> Result<Self, BrokerError> {
        let file = ConfigFile::on(disk, &config.store.root, "topics.json");
        let loaded = file.load::<TopicConfigFile>()?.unwrap_or_default();
        let mut topics: HashMap<Arc<str>, Arc<TopicConfig>> = HashMap::new();
        for (name, topic) in loaded.topic_config_table {
            // A name becomes a folder, even one from a file.
            match name::check_topic(&name) {
                Ok(()) => drop(topics.insert(name.as_str().into(), checked(name, topic))),
                Err(error) => warn!(%error, "topic ignored in the topic table"),
            }
        }
        // The name of a cluster or broker may hold dots. Such a name cannot be a topic.
        let mut system_topics = system_topics(config);
        system_topics.retain(|topic| name::check_topic(&topic.name).is_ok());
        let version = if Role::of_id(config.broker_id) == Role::Master {
            add_system_topics(&mut topics, &system_topics, config);
            // A start counts as a change, so that name servers which outlived the former process take the table again.
            loaded.data_version.next(now_ms())
        } else {
            // The table is the master's, and so is its version.
            add_missing(&mut topics, &system_topics);
            loaded.data_version
        };
        let limits = Limits { entries: config.max_topics, refusal: |limit| Refusal::TooManyTopics { limit } };
        #[cfg(test)]
        let gate = file.gate.clone();
        if let Some(creations) = &creations {
            creations.begin(topics.values().map(|topic| &**topic));
        }
        let save = move |data_version, topic_config_table: ByName| match &creations {
            None => file.save(&TopicConfigFile { data_version, topic_config_table }),
            Some(creations) => {
                let content = TopicConfigFile { data_version, topic_config_table };
                creations.follow(&content.topic_config_table, || file.save(&content))
            }
        };
        Ok(Self {
            table: NamedTable::new(version, topics, limits, save),
            leaving: Arc::default(),
            system_topics,
            #[cfg(test)]
            gate,
        })
    }

    pub(crate) fn get(&self, name: &str) -> Option<Arc<TopicConfig>> {
        self.table.get(name)
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.table.contains(name)
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn version(&self) -> DataVersion {
        self.table.version()
    }

    /// All topics by name, with their version.
    pub(crate) fn all(&self) -> (DataVersion, ByName) {
        self.table.all()
    }

    /// Those of the named topics that are there.
    pub(crate) fn named(&self, names: BTreeSet<String>) -> ByName {
        names.into_iter().filter_map(|name| self.get(&name).map(|topic| (name, (*topic).clone()))).collect()
    }

    /// The version. When it is still `spent`, it is moved first.
    pub(crate) fn version_after(&self, spent: Option<DataVersion>) -> DataVersion {
        self.table.view(|version, _| {
            if spent == Some(*version) {
                *version = version.next(now_ms());
            }
            *version
        })
    }

    /// Creates the missing ones among the topics. Of two callers with the same topic the first wins.
    ///
    /// # Errors
    /// There would be too many topics, or one of that name is being deleted.
    ///
    /// # Durability
    /// A created topic is on disk before it is seen.
    pub(crate) fn create(&self, wanted: Vec<TopicConfig>) -> Result<Changed<TopicConfig>, Refusal> {
        let leaving = self.leaving.lock();
        wanted.iter().try_for_each(|topic| check_stays(&leaving, &topic.name))?;
        self.table.create(wanted)
    }

    /// Creates the topic or changes its configuration: `make` is given the newest one, written or about to be.
    pub(crate) fn update(
        &self,
        name: &str,
        make: impl FnOnce(Option<&TopicConfig>) -> Result<TopicConfig, Refusal>,
    ) -> Result<Changed<TopicConfig>, Refusal> {
        let leaving = self.leaving.lock();
        check_stays(&leaving, name)?;
        self.table.update(name, make)
    }

    /// [`Self::update`] of several topics, each named once: all or none.
    pub(crate) fn update_all(
        &self,
        items: Vec<(String, impl FnOnce(Option<&TopicConfig>) -> Result<TopicConfig, Refusal>)>,
    ) -> Result<Changed<TopicConfig>, Refusal> {
        let leaving = self.leaving.lock();
        items.iter().try_for_each(|(name, _)| check_stays(&leaving, name))?;
        self.table.update_all(items)
    }

    /// Makes new topics as the configuration says now.
    pub(crate) fn set_template(&self, config: &BrokerConfig) -> Result<Changed<TopicConfig>, Refusal> {
        self.update(system::TEMPLATE_TOPIC, |_| Ok(template(config)))
    }

    /// Makes the table its master's, with the master's version, unless it has that version. System topics that the master does not have
    /// stay.
    ///
    /// # Errors
    /// A name is none of a topic, or there are too many: nothing changes.
    ///
    /// # Durability
    /// As for [`Self::create`].
    pub(crate) fn adopt(&self, version: DataVersion, table: ByName) -> Result<Adopted, Refusal> {
        let mut topics = HashMap::new();
        for (name, topic) in table {
            match name::check_topic(&name) {
                Ok(()) => drop(topics.insert(name.as_str().into(), checked(name, topic))),
                // Apache makes topics of the names of cluster and broker, which may hold dots.
                Err(error) if name::check_cluster(&name).is_ok() => {
                    debug!(%error, "topic of the master ignored");
                }
                Err(error) => return Err(error.into()),
            }
        }
        add_missing(&mut topics, &self.system_topics);
        let (removed, written) = self.table.adopt(version, topics)?;
        Ok(Adopted { removed, written })
    }

    /// Notes a change of what clients may do with all topics.
    pub(crate) fn move_version(&self) {
        self.table.move_version();
    }

    /// Notes that this broker is the master now: name servers take its table again, which they ignored while it was a slave's.
    pub(crate) fn begin_as_master(&self) {
        self.table.begin_as_master();
    }

    /// Keeps topics of that name from being created until the queues of the one that is removed are gone.
    ///
    /// # Errors
    /// Another request is removing it.
    pub(crate) fn leave(&self, name: &str) -> Result<Leaving, Refusal> {
        let mut leaving = self.leaving.lock();
        check_stays(&leaving, name)?;
        leaving.insert(name.to_owned());
        Ok(Leaving { names: self.leaving.clone(), name: name.to_owned() })
    }

    /// [`Self::leave`] of a topic that is not in the table; `None` where it is, or is being removed.
    pub(crate) fn leave_unknown(&self, name: &str) -> Option<Leaving> {
        let mut leaving = self.leaving.lock();
        let is_free = !self.table.is_known(name) && leaving.insert(name.to_owned());
        is_free.then(|| Leaving { names: self.leaving.clone(), name: name.to_owned() })
    }

    /// Removes the topic; `None` when there is none.
    pub(crate) fn remove(&self, name: &str) -> Result<Option<Written>, Refusal> {
        self.table.remove(name)
    }

    /// Writes the file.
    pub(crate) fn persist(&self) -> Result<Option<Written>, Refusal> {
        self.table.persist()
    }
}

fn check_stays(leaving: &HashSet<String>, name: &str) -> Result<(), Refusal> {
    if leaving.contains(name) { Err(Refusal::TopicLeaving { topic: name.to_owned() }) } else { Ok(()) }
}

/// The topics that every broker has.
///
/// # Source
/// docs/reference/apache-5.5.0.md 1, docs/reference/protocol.md 2.3.1.
fn system_topics(config: &BrokerConfig) -> Vec<TopicConfig> {
    let (cluster, broker) = (&config.cluster_name, &config.broker_name);
    let inherited = |enabled: bool| {
        if enabled { Permission::READ_WRITE_INHERIT } else { Permission(perm::INHERIT) }
    };
    let mut topics = vec![
        TopicConfig::new(system::SELF_TEST_TOPIC, 1),
        TopicConfig::new(system::OFFSET_MOVED_TOPIC, 1),
        TopicConfig::new(cluster, 16).with_perm(inherited(config.topics.of_cluster)),
        TopicConfig::new(broker, 1).with_perm(inherited(config.topics.of_broker)),
        TopicConfig::new(format!("{cluster}{}", system::REPLY_TOPIC_SUFFIX), 1),
        TopicConfig::new(system::SCHEDULE_TOPIC, 18),
        TopicConfig::new(system::HALF_TOPIC, 1),
        TopicConfig::new(system::OP_HALF_TOPIC, 1),
        TopicConfig::new(system::TIMER_TOPIC, 1),
        TopicConfig::new(format!("{}{cluster}", system::REVIVE_TOPIC_PREFIX), 8),
        TopicConfig::new(format!("{}{broker}", system::SYNC_MEMBER_TOPIC_PREFIX), 1)
            .with_perm(Permission(perm::INHERIT)),
    ];
    if config.topics.auto_create {
        topics.push(template(config));
    }
    if config.trace_topic {
        topics.push(TopicConfig::new(&config.trace_topic_name, 1));
    }
    topics
}

/// The topic as this broker keeps it.
fn checked(name: String, mut topic: TopicConfig) -> Arc<TopicConfig> {
    topic.name = name;
    bound_queues(&mut topic);
    assert!(topic.queues() <= MAX_QUEUES, "the queues of a topic that is kept have a bound");
    Arc::new(topic)
}

fn add_missing(topics: &mut HashMap<Arc<str>, Arc<TopicConfig>>, system_topics: &[TopicConfig]) {
    for topic in system_topics {
        topics.entry(topic.name.as_str().into()).or_insert_with(|| Arc::new(topic.clone()));
    }
}

/// Adds the missing system topics. Which topics others inherit from follows this start's configuration, not the file.
fn add_system_topics(
    topics: &mut HashMap<Arc<str>, Arc<TopicConfig>>,
    system_topics: &[TopicConfig],
    config: &BrokerConfig,
) {
    for topic in system_topics {
        let topic = match topics.get(topic.name.as_str()) {
            None => topic.clone(),
            Some(_) if topic.name == system::TEMPLATE_TOPIC => topic.clone(),
            Some(known) if topic.name == config.cluster_name || topic.name == config.broker_name => {
                (**known).clone().with_perm(topic.perm)
            }
            Some(_) => continue,
        };
        topics.insert(topic.name.as_str().into(), Arc::new(topic));
    }
    if !config.topics.auto_create && topics.contains_key(system::TEMPLATE_TOPIC) {
        topics.insert(system::TEMPLATE_TOPIC.into(), Arc::new(template(config)));
    }
}

/// The topic that others are made from. Where none are, it stays as a plain topic, because name servers and clients know it.
fn template(config: &BrokerConfig) -> TopicConfig {
    let topic = TopicConfig::new(system::TEMPLATE_TOPIC, config.default_topic_queues);
    if config.topics.auto_create { topic.with_perm(Permission::READ_WRITE_INHERIT) } else { topic }
}

fn bound_queues(topic: &mut TopicConfig) {
    let queues = topic.queues();
    if queues > MAX_QUEUES {
        warn!(
            topic = topic.name,
            queues,
            limit = MAX_QUEUES,
            "number of queues of a topic reduced to the maximum"
        );
        topic.read_queues = topic.read_queues.min(MAX_QUEUES);
        topic.write_queues = topic.write_queues.min(MAX_QUEUES);
    }
}

/// Whether the topic may not be changed or deleted by a request.
pub(crate) fn is_system(name: &str, config: &BrokerConfig) -> bool {
    system::is_system_topic(name)
        || name == config.cluster_name
        || name == config.broker_name
        || name.strip_suffix(system::REPLY_TOPIC_SUFFIX) == Some(&config.cluster_name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestBroker;

    #[tokio::test]
    async fn a_topic_is_not_created_before_the_queues_of_its_name_are_gone() {
        let broker = TestBroker::open(|_| {});
        let topics = broker.ground.topics();
        let create = || topics.create(vec![TopicConfig::new("orders", 1), TopicConfig::new("other", 1)]);
        let update = || topics.update("orders", |_| Ok(TopicConfig::new("orders", 1)));
        let leaving = topics.leave("orders").unwrap();
        assert!(matches!(create(), Err(Refusal::TopicLeaving { .. })));
        assert!(matches!(update(), Err(Refusal::TopicLeaving { .. })));
        assert!(matches!(topics.leave("orders"), Err(Refusal::TopicLeaving { .. })), "by another request");
        let other = topics.create(vec![TopicConfig::new("other", 1)]).unwrap();
        other.written.unwrap().done().await.unwrap();
        drop(leaving);
        assert_eq!(update().unwrap().values.len(), 1);
        drop(topics.leave("orders").unwrap());
    }
}
