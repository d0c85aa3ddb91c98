//! The consumer groups, and the file that keeps them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::RwLock;
use rocketpy_env::Disk;
use rocketpy_model::{DataVersion, GroupConfig, name, system};
use rocketpy_protocol::body::SubscriptionGroupWrapper;
use tracing::warn;

use crate::config_file::ConfigFile;
use crate::refusal::Refusal;
use crate::table::group_commit::Written;
use crate::table::named::{Changed, Limits, Named, NamedTable};
use crate::table::topic::{Adopted, MAX_QUEUES};
use crate::{BrokerConfig, BrokerError};

/// The consumer groups of this broker, kept in `config/subscriptionGroup.json`.
///
/// A change is seen once it is on disk ([`NamedTable`]).
#[doc(alias = "SubscriptionGroupManager")]
#[derive(Debug)]
pub(crate) struct GroupTable {
    table: NamedTable<GroupConfig>,
    /// Seen at once, and on disk with the next write of the table.
    forbidden: Arc<RwLock<Forbidden>>,
    #[cfg(test)]
    pub(crate) gate: Arc<crate::testing::Gate>,
}

/// The bit of what a group may not read.
const READ_FORBIDDEN: i32 = 1 << 2;
/// Maximum number of topics that are forbidden to groups, all groups together.
const MAX_FORBIDDEN: usize = 10_000;

type Forbidden = BTreeMap<String, BTreeMap<String, i32>>;

/// A group, and the end of its creation when it was missing.
#[derive(Debug)]
pub(crate) struct FoundGroup {
    pub(crate) group: Arc<GroupConfig>,
    pub(crate) written: Option<Written>,
}

impl Named for GroupConfig {
    fn name(&self) -> &str {
        &self.name
    }
}

impl GroupTable {
    /// Loads the file and adds the system groups that are missing.
    pub(crate) fn open(disk: impl Disk, config: &BrokerConfig) -> Result<Self, BrokerError> {
        let file = ConfigFile::on(disk, &config.store.root, "subscriptionGroup.json");
        let loaded = file.load::<SubscriptionGroupWrapper>()?.unwrap_or_default();
        let mut groups: HashMap<Arc<str>, Arc<GroupConfig>> = HashMap::new();
        for (name, group) in loaded.subscription_group_table {
            match name::check_stored_group(&name) {
                Ok(()) => drop(groups.insert(name.as_str().into(), checked(name, group))),
                Err(error) => warn!(%error, "group ignored in the group table"),
            }
        }
        add_missing(&mut groups);
        let limits = Limits { entries: config.max_groups, refusal: |limit| Refusal::TooManyGroups { limit } };
        let forbidden = Arc::new(RwLock::new(loaded.forbidden_table));
        #[cfg(test)]
        let gate = file.gate.clone();
        let forbidden_of_file = forbidden.clone();
        let save = move |data_version, subscription_group_table| {
            let forbidden_table = forbidden_of_file.read().clone();
            file.save(&SubscriptionGroupWrapper { data_version, forbidden_table, subscription_group_table })
        };
        Ok(Self {
            table: NamedTable::new(loaded.data_version, groups, limits, save),
            forbidden,
            #[cfg(test)]
            gate,
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.table.contains(name)
    }

    pub(crate) fn get(&self, name: &str) -> Option<Arc<GroupConfig>> {
        self.table.get(name)
    }

    /// Whether the group may not read the topic.
    ///
    /// # Source
    /// docs/reference/store-format.md 1.4: the bits of `forbiddenTable`.
    pub(crate) fn is_read_forbidden(&self, group: &str, topic: &str) -> bool {
        let forbidden = self.forbidden.read();
        let bits = forbidden.get(group).and_then(|topics| topics.get(topic));
        bits.is_some_and(|bits| bits & READ_FORBIDDEN != 0)
    }

    /// Forbids the group to read the topic, or allows it again.
    ///
    /// # Errors
    /// Too much is forbidden, or the table cannot be written.
    pub(crate) fn set_readable(
        &self,
        group: &str,
        topic: &str,
        is_readable: bool,
    ) -> Result<Option<Written>, Refusal> {
        let mut forbidden = self.forbidden.write();
        if is_readable {
            let Some(topics) = forbidden.get_mut(group) else { return Ok(None) };
            if let Some(bits) = topics.get_mut(topic) {
                *bits &= !READ_FORBIDDEN;
            }
            topics.retain(|_, bits| *bits != 0);
            forbidden.retain(|_, topics| !topics.is_empty());
        } else {
            if forbidden.values().map(BTreeMap::len).sum::<usize>() >= MAX_FORBIDDEN {
                return Err(Refusal::TooMuchForbidden { limit: MAX_FORBIDDEN });
            }
            *forbidden.entry(group.to_owned()).or_default().entry(topic.to_owned()).or_default() |=
                READ_FORBIDDEN;
        }
        drop(forbidden);
        self.table.move_version(); // slaves take the table again
        self.persist()
    }

    /// The group's configuration. A missing group is created when the broker may do so now.
    ///
    /// # Errors
    /// The name is not a group name, the group is missing and may not be created, or there would be too many.
    pub(crate) fn get_or_create(&self, group: &str, config: &BrokerConfig) -> Result<FoundGroup, Refusal> {
        if let Some(group) = self.get(group) {
            return Ok(FoundGroup { group, written: None });
        }
        check_may_be_made(group, config)?;
        let created = self.table.create(vec![GroupConfig::new(group)])?;
        let made = created.values.into_iter().next();
        // Another request may be making it, with another configuration. Whoever waits for the write finds that.
        let group = made.or_else(|| self.get(group)).unwrap_or_else(|| Arc::new(GroupConfig::new(group)));
        Ok(FoundGroup { group, written: created.written })
    }

    /// The group's configuration, or for a missing one that may be created what it would be. Nothing is stored.
    ///
    /// # Errors
    /// As for [`Self::get_or_create`].
    pub(crate) fn get_or_default(&self, group: &str, config: &BrokerConfig) -> Result<FoundGroup, Refusal> {
        if let Some(group) = self.get(group) {
            return Ok(FoundGroup { group, written: None });
        }
        check_may_be_made(group, config)?;
        Ok(FoundGroup { group: Arc::new(GroupConfig::new(group)), written: None })
    }

    /// Creates or replaces the group. Others see it once it is on disk.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn put(&self, group: GroupConfig) -> Result<Changed<GroupConfig>, Refusal> {
        self.table.put(group)
    }

    /// Creates or replaces groups, each named once: all or none. Others see them once they are on disk.
    pub(crate) fn put_all(&self, groups: Vec<GroupConfig>) -> Result<Changed<GroupConfig>, Refusal> {
        let whole = |group: GroupConfig| (group.name.clone(), |_: Option<&GroupConfig>| Ok(group));
        self.table.update_all(groups.into_iter().map(whole).collect())
    }

    /// Makes the table its master's, with the master's version, unless it has that version. System groups that the master does not have
    /// stay.
    ///
    /// # Errors
    /// A name is none of a group, there are too many, or too much is forbidden: nothing changes.
    ///
    /// # Durability
    /// As for [`Self::put`].
    pub(crate) fn adopt(&self, table: SubscriptionGroupWrapper) -> Result<Adopted, Refusal> {
        let SubscriptionGroupWrapper { data_version, forbidden_table, subscription_group_table } = table;
        if self.table.version() == data_version {
            return Ok(Adopted { removed: Vec::new(), written: None });
        }
        if forbidden_table.values().map(BTreeMap::len).sum::<usize>() > MAX_FORBIDDEN {
            return Err(Refusal::TooMuchForbidden { limit: MAX_FORBIDDEN });
        }
        let mut groups = HashMap::new();
        for (name, group) in subscription_group_table {
            name::check_stored_group(&name)?;
            groups.insert(name.as_str().into(), checked(name, group));
        }
        add_missing(&mut groups);
        // Before the write, which takes it along.
        let mut forbidden = self.forbidden.write();
        let before = std::mem::replace(&mut *forbidden, forbidden_table);
        drop(forbidden);
        let adopted =
            self.table.adopt(data_version, groups).inspect_err(|_| *self.forbidden.write() = before);
        let (removed, written) = adopted?;
        Ok(Adopted { removed, written })
    }

    /// Removes the group, and what it is forbidden to read: the next group of that name may. `None` when there is nothing.
    pub(crate) fn remove(&self, name: &str) -> Result<Option<Written>, Refusal> {
        let was_limited = self.forbidden.write().remove(name).is_some();
        match self.table.remove(name)? {
            None if was_limited => {
                self.table.move_version(); // slaves take the table again
                self.persist()
            }
            written => Ok(written),
        }
    }

    pub(crate) fn version(&self) -> DataVersion {
        self.table.version()
    }

    /// The whole table, in the form of the file and of the answer to GET_ALL_SUBSCRIPTIONGROUP_CONFIG.
    pub(crate) fn all(&self) -> SubscriptionGroupWrapper {
        let (data_version, subscription_group_table) = self.table.all();
        let forbidden_table = self.forbidden.read().clone();
        SubscriptionGroupWrapper { data_version, forbidden_table, subscription_group_table }
    }

    /// Writes the file.
    pub(crate) fn persist(&self) -> Result<Option<Written>, Refusal> {
        self.table.persist()
    }
}

/// The group as this broker keeps it.
fn checked(name: String, mut group: GroupConfig) -> Arc<GroupConfig> {
    group.name = name;
    bound(&mut group);
    let (queues, times) = (group.retry_queues, group.retry_max_times);
    assert!(queues >= 0 && times >= 0, "a group that is kept has no negative numbers: {queues}, {times}");
    Arc::new(group)
}

fn add_missing(groups: &mut HashMap<Arc<str>, Arc<GroupConfig>>) {
    for group in SYSTEM_GROUPS.iter().chain(&system::ONS_GROUPS) {
        groups.entry((*group).into()).or_insert_with(|| Arc::new(GroupConfig::new(*group)));
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
                field, value, limit, "value of a consumer group out of range, nearest valid value used"
            );
            *value = (*value).clamp(0, limit);
        }
    }
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

/// Says whether the first consumer of a group may create it.
fn check_may_be_made(group: &str, config: &BrokerConfig) -> Result<(), Refusal> {
    name::check_group(group)?;
    if !config.auto_create_group && !system::is_system_group(group) {
        return Err(Refusal::NoGroup { group: group.to_owned() });
    }
    Ok(())
}
