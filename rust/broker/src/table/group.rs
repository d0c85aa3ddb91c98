//! The consumer groups, and the file that keeps them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use rocketpy_env::now_ms;
use rocketpy_model::{DataVersion, GroupConfig, name, system};
use rocketpy_protocol::body::SubscriptionGroupWrapper;
use tracing::warn;

use crate::config_file::ConfigFile;
use crate::refusal::Refusal;
use crate::table::topic::MAX_QUEUES;
use crate::{BrokerConfig, BrokerError};

/// The consumer groups of this broker, kept in `config/subscriptionGroup.json`.
#[doc(alias = "SubscriptionGroupManager")]
#[derive(Debug)]
pub(crate) struct GroupTable {
    groups: RwLock<HashMap<Arc<str>, Arc<GroupConfig>>>,
    version: Mutex<DataVersion>,
    file: ConfigFile,
    /// Kept as it was read: only Apache's broker forbids topics to groups, and it may open this folder again.
    forbidden: BTreeMap<String, BTreeMap<String, i32>>,
    auto_create: bool,
    max_groups: usize,
}

impl GroupTable {
    /// Loads the file and adds the system groups that are missing.
    pub(crate) fn open(config: &BrokerConfig) -> Result<Self, BrokerError> {
        let file = ConfigFile::new(&config.store.root, "subscriptionGroup.json");
        let loaded = file.load::<SubscriptionGroupWrapper>()?.unwrap_or_default();
        let mut groups: HashMap<Arc<str>, Arc<GroupConfig>> = HashMap::new();
        for (name, mut group) in loaded.subscription_group_table {
            if let Err(error) = name::check_stored_group(&name) {
                warn!(%error, "group left out of the group table");
                continue;
            }
            group.name.clone_from(&name);
            bound(&mut group);
            groups.insert(name.into(), Arc::new(group));
        }
        for group in SYSTEM_GROUPS.iter().chain(&system::ONS_GROUPS) {
            groups.entry((*group).into()).or_insert_with(|| Arc::new(GroupConfig::new(*group)));
        }
        Ok(Self {
            groups: RwLock::new(groups),
            version: Mutex::new(loaded.data_version),
            file,
            forbidden: loaded.forbidden_table,
            auto_create: config.auto_create_group,
            max_groups: config.max_groups,
        })
    }

    pub(crate) fn get(&self, name: &str) -> Option<Arc<GroupConfig>> {
        self.groups.read().get(name).cloned()
    }

    /// The group's configuration. A missing group is created when the broker may do so (`autoCreateSubscriptionGroup`).
    ///
    /// # Errors
    /// The name is not a group name, the group is missing and may not be created, or the file cannot be written.
    pub(crate) fn get_or_create(&self, group: &str) -> Result<Arc<GroupConfig>, Refusal> {
        if let Some(found) = self.get(group) {
            return Ok(found);
        }
        name::check_group(group)?;
        if !self.auto_create && !system::is_system_group(group) {
            return Err(Refusal::NoGroup { group: group.to_owned() });
        }
        self.put(GroupConfig::new(group))
    }

    /// Creates or replaces the group. Others see it once it is on disk.
    pub(crate) fn put(&self, group: GroupConfig) -> Result<Arc<GroupConfig>, Refusal> {
        let mut version = self.version.lock();
        let group = Arc::new(group);
        let next = version.next(now_ms());
        {
            let groups = self.groups.read();
            if groups.get(group.name.as_str()) == Some(&group) {
                return Ok(group);
            }
            if groups.len() >= self.max_groups && !groups.contains_key(group.name.as_str()) {
                return Err(Refusal::TooManyGroups { limit: self.max_groups });
            }
            let mut table = by_name(&groups);
            table.insert(group.name.clone(), (*group).clone());
            self.save(next, table)?;
        }
        self.groups.write().insert(group.name.as_str().into(), group.clone());
        *version = next;
        Ok(group)
    }

    /// Removes the group. False when there is none.
    pub(crate) fn remove(&self, name: &str) -> Result<bool, Refusal> {
        let mut version = self.version.lock();
        let next = version.next(now_ms());
        {
            let groups = self.groups.read();
            let mut table = by_name(&groups);
            if table.remove(name).is_none() {
                return Ok(false);
            }
            self.save(next, table)?;
        }
        self.groups.write().remove(name);
        *version = next;
        Ok(true)
    }

    /// The whole table, in the form of the file and of the answer to GET_ALL_SUBSCRIPTIONGROUP_CONFIG.
    pub(crate) fn all(&self) -> SubscriptionGroupWrapper {
        let version = self.version.lock();
        self.wrapper(*version, by_name(&self.groups.read()))
    }

    /// Writes the file.
    pub(crate) fn persist(&self) -> Result<(), Refusal> {
        let version = self.version.lock();
        self.save(*version, by_name(&self.groups.read()))
    }

    fn save(&self, version: DataVersion, table: BTreeMap<String, GroupConfig>) -> Result<(), Refusal> {
        self.file.save(&self.wrapper(version, table)).map_err(Refusal::from)
    }

    fn wrapper(
        &self,
        data_version: DataVersion,
        subscription_group_table: BTreeMap<String, GroupConfig>,
    ) -> SubscriptionGroupWrapper {
        let forbidden_table = self.forbidden.clone();
        SubscriptionGroupWrapper { data_version, forbidden_table, subscription_group_table }
    }
}

fn bound(group: &mut GroupConfig) {
    let limit = MAX_QUEUES as i32;
    for (field, value) in
        [("retryQueueNums", &mut group.retry_queues), ("retryMaxTimes", &mut group.retry_max_times)]
    {
        if !(0..=limit).contains(value) {
            warn!(
                group = group.name,
                field, value, limit, "value of a group out of range brought back into it"
            );
            *value = (*value).clamp(0, limit);
        }
    }
}

fn by_name(groups: &HashMap<Arc<str>, Arc<GroupConfig>>) -> BTreeMap<String, GroupConfig> {
    groups.iter().map(|(name, group)| (name.to_string(), (**group).clone())).collect()
}

/// # Source
/// docs/reference/protocol.md 2.3.1 (end), docs/reference/store-format.md 1.4.
const SYSTEM_GROUPS: [&str; 7] = [
    system::TOOLS_GROUP,
    system::DEFAULT_CONSUMER_GROUP,
    system::SCHEDULE_GROUP,
    system::FILTER_SERVER_GROUP,
    system::MONITOR_GROUP,
    system::SELF_TEST_CONSUMER_GROUP,
    system::TRANSACTION_GROUP,
];
