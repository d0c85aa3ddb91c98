//! The topics, and the file that keeps them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use rocketpy_env::now_ms;
use rocketpy_model::{DataVersion, Permission, TopicConfig, name, perm, system};
use rocketpy_protocol::body::TopicConfigFile;
use tracing::warn;

use crate::config_file::ConfigFile;
use crate::refusal::Refusal;
use crate::{BrokerConfig, BrokerError};

/// Most queues of one topic.
pub(crate) const MAX_QUEUES: u32 = 16_384;

/// The topics of this broker, kept in `config/topics.json`.
///
/// Reads take a short shared lock. Changes happen one at a time and are seen once they are on disk.
#[doc(alias = "TopicConfigManager")]
#[derive(Debug)]
pub(crate) struct TopicTable {
    topics: RwLock<HashMap<Arc<str>, Arc<TopicConfig>>>,
    /// Held during a change: version and file change together.
    version: Mutex<DataVersion>,
    file: ConfigFile,
    max_topics: usize,
}

/// Topics that were created or changed.
pub(crate) struct TopicChange {
    pub(crate) topics: Vec<Arc<TopicConfig>>,
}

impl TopicTable {
    /// Loads the file and adds the system topics that are missing.
    pub(crate) fn open(config: &BrokerConfig) -> Result<Self, BrokerError> {
        let file = ConfigFile::new(&config.store.root, "topics.json");
        let loaded = file.load::<TopicConfigFile>()?.unwrap_or_default();
        let mut topics: HashMap<Arc<str>, Arc<TopicConfig>> = HashMap::new();
        for (name, mut topic) in loaded.topic_config_table {
            // A name becomes a folder, even one from a file.
            if let Err(error) = name::check_topic(&name) {
                warn!(%error, "topic left out of the topic table");
                continue;
            }
            topic.name.clone_from(&name);
            bound_queues(&mut topic);
            topics.insert(name.into(), Arc::new(topic));
        }
        add_system_topics(&mut topics, config);
        // A start counts as a change, so that name servers which outlived the former process take the table again.
        let version = Mutex::new(loaded.data_version.next(now_ms()));
        Ok(Self { topics: RwLock::new(topics), version, file, max_topics: config.max_topics })
    }

    pub(crate) fn get(&self, name: &str) -> Option<Arc<TopicConfig>> {
        self.topics.read().get(name).cloned()
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.topics.read().contains_key(name)
    }

    pub(crate) fn version(&self) -> DataVersion {
        *self.version.lock()
    }

    /// All topics by name, with their version.
    pub(crate) fn all(&self) -> (DataVersion, ByName) {
        let version = self.version.lock();
        (*version, by_name(&self.topics.read()))
    }

    /// The named topics, or all, with their version. When that is still `spent`, the version is moved first.
    pub(crate) fn snapshot(
        &self,
        names: Option<&BTreeSet<String>>,
        spent: Option<DataVersion>,
    ) -> (DataVersion, ByName) {
        let mut version = self.version.lock();
        if spent == Some(*version) {
            *version = version.next(now_ms());
        }
        let topics = self.topics.read();
        let table = match names {
            Some(names) => names
                .iter()
                .filter_map(|name| Some((name.clone(), (**topics.get(name.as_str())?).clone())))
                .collect(),
            None => by_name(&topics),
        };
        (*version, table)
    }

    /// Creates the missing ones among the topics. Of two callers with the same topic the first wins.
    ///
    /// # Durability
    /// A created topic is on disk before it is seen.
    pub(crate) fn create(&self, wanted: Vec<TopicConfig>) -> Result<Option<TopicChange>, Refusal> {
        self.change(|topics| {
            wanted
                .into_iter()
                .filter(|topic| !topics.contains_key(topic.name.as_str()))
                .map(Arc::new)
                .collect()
        })
    }

    /// Creates the topic or changes its configuration.
    pub(crate) fn put(&self, topic: TopicConfig) -> Result<Option<TopicChange>, Refusal> {
        self.change(|topics| match topics.get(topic.name.as_str()) {
            Some(old) if **old == topic => Vec::new(),
            _ => vec![Arc::new(topic)],
        })
    }

    fn change(
        &self,
        select: impl FnOnce(&HashMap<Arc<str>, Arc<TopicConfig>>) -> Vec<Arc<TopicConfig>>,
    ) -> Result<Option<TopicChange>, Refusal> {
        let mut version = self.version.lock();
        let next = version.next(now_ms());
        let changed = {
            let topics = self.topics.read();
            let changed = select(&topics);
            if changed.is_empty() {
                return Ok(None);
            }
            let added = changed.iter().filter(|topic| !topics.contains_key(topic.name.as_str())).count();
            if topics.len() + added > self.max_topics {
                return Err(Refusal::TooManyTopics { limit: self.max_topics });
            }
            let mut table = by_name(&topics);
            table.extend(changed.iter().map(|topic| (topic.name.clone(), (**topic).clone())));
            self.save(next, table)?;
            changed
        };
        let mut topics = self.topics.write();
        for topic in &changed {
            topics.insert(topic.name.as_str().into(), topic.clone());
        }
        *version = next;
        Ok(Some(TopicChange { topics: changed }))
    }

    /// Removes the topic. False when there is none.
    pub(crate) fn remove(&self, name: &str) -> Result<bool, Refusal> {
        let mut version = self.version.lock();
        let next = version.next(now_ms());
        {
            let topics = self.topics.read();
            let mut table = by_name(&topics);
            if table.remove(name).is_none() {
                return Ok(false);
            }
            self.save(next, table)?;
        }
        self.topics.write().remove(name);
        *version = next;
        Ok(true)
    }

    /// Writes the file.
    pub(crate) fn persist(&self) -> Result<(), Refusal> {
        let version = self.version.lock();
        self.save(*version, by_name(&self.topics.read()))
    }

    fn save(&self, data_version: DataVersion, topic_config_table: ByName) -> Result<(), Refusal> {
        self.file.save(&TopicConfigFile { data_version, topic_config_table }).map_err(Refusal::from)
    }
}

/// A copy of the table, for files and answers.
pub(crate) type ByName = BTreeMap<String, TopicConfig>;

fn by_name(topics: &HashMap<Arc<str>, Arc<TopicConfig>>) -> ByName {
    topics.iter().map(|(name, topic)| (name.to_string(), (**topic).clone())).collect()
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
        TopicConfig::new(cluster, 16).with_perm(inherited(config.cluster_topic)),
        TopicConfig::new(broker, 1).with_perm(inherited(config.broker_topic)),
        TopicConfig::new(format!("{cluster}{}", system::REPLY_TOPIC_SUFFIX), 1),
        TopicConfig::new(system::SCHEDULE_TOPIC, 18),
        TopicConfig::new(system::HALF_TOPIC, 1),
        TopicConfig::new(system::OP_HALF_TOPIC, 1),
        TopicConfig::new(system::TIMER_TOPIC, 1),
        TopicConfig::new(format!("{}{cluster}", system::REVIVE_TOPIC_PREFIX), 8),
        TopicConfig::new(format!("{}{broker}", system::SYNC_MEMBER_TOPIC_PREFIX), 1)
            .with_perm(Permission(perm::INHERIT)),
    ];
    if config.auto_create_topic {
        topics.push(
            TopicConfig::new(system::TEMPLATE_TOPIC, config.default_topic_queues)
                .with_perm(Permission::READ_WRITE_INHERIT),
        );
    }
    if config.trace_topic {
        topics.push(TopicConfig::new(&config.trace_topic_name, 1));
    }
    topics
}

/// Adds the missing system topics. Which topics others inherit from follows this start's configuration, not the file.
fn add_system_topics(topics: &mut HashMap<Arc<str>, Arc<TopicConfig>>, config: &BrokerConfig) {
    // The name of a cluster or broker may hold dots. Such a name cannot be a topic.
    for topic in system_topics(config).into_iter().filter(|topic| name::check_topic(&topic.name).is_ok()) {
        let topic = match topics.get(topic.name.as_str()) {
            None => topic,
            Some(_) if topic.name == system::TEMPLATE_TOPIC => topic,
            Some(known) if topic.name == config.cluster_name || topic.name == config.broker_name => {
                (**known).clone().with_perm(topic.perm)
            }
            Some(_) => continue,
        };
        topics.insert(topic.name.as_str().into(), Arc::new(topic));
    }
    if !config.auto_create_topic && topics.contains_key(system::TEMPLATE_TOPIC) {
        // It stays as a plain topic, because name servers and clients know it.
        let topic = TopicConfig::new(system::TEMPLATE_TOPIC, config.default_topic_queues);
        topics.insert(system::TEMPLATE_TOPIC.into(), Arc::new(topic));
    }
}

fn bound_queues(topic: &mut TopicConfig) {
    let queues = topic.queues();
    if queues > MAX_QUEUES {
        warn!(topic = topic.name, queues, limit = MAX_QUEUES, "topic with too many queues cut down");
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
