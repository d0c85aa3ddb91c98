//! Bodies and files about subscription groups and their offsets.

use std::collections::BTreeMap;

use rocketpy_model::{DataVersion, GroupConfig, PhysicalOffset};
use serde::{Deserialize, Serialize};

/// All groups of a broker (answer of code 201, and the file `config/subscriptionGroup.json`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubscriptionGroupWrapper {
    /// Version of the table.
    pub data_version: DataVersion,
    /// Group to topic to bits of what is forbidden.
    pub forbidden_table: BTreeMap<String, BTreeMap<String, i32>>,
    /// Groups by name.
    pub subscription_group_table: BTreeMap<String, GroupConfig>,
}

/// Groups to create or change together (code 225).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubscriptionGroupList {
    /// The groups, whole.
    pub group_config_list: Vec<GroupConfig>,
}

/// How far the delay levels are (answer of code 45, and the file `config/delayOffset.json`).
///
/// # Source
/// docs/reference/store-format.md 1.4.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DelayOffsetSerializeWrapper {
    /// Version of the table.
    pub data_version: DataVersion,
    /// By level, from 1 on: the queue offset of the first message that is not delivered.
    pub offset_table: BTreeMap<i32, i64>,
}

/// Whether a group may read a topic (answer of code 353).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupForbidden {
    /// The group.
    pub group: String,
    /// The topic.
    pub topic: String,
    /// Whether the group may read it.
    pub readable: bool,
}

/// The committed offsets of all groups (answer of code 43, and the file `config/consumerOffset.json`).
///
/// # Source
/// docs/reference/store-format.md 1.4, docs/reference/apache-5.5.0.md 1.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumerOffsetSerializeWrapper {
    /// Version of the table.
    pub data_version: DataVersion,
    /// Derived data; not read back.
    pub group_topic_map: BTreeMap<String, Vec<String>>,
    /// `topic@group` to queue id to the next offset to consume.
    pub offset_table: BTreeMap<String, BTreeMap<i32, i64>>,
    /// Where each group has pulled to, by `topic@group` and queue id; Apache writes it since 5.5.
    pub pull_offset_table: BTreeMap<String, BTreeMap<i32, i64>>,
    /// RocketPy's own: where a queue ended at a start that may have lost messages, by `topic@group` and queue id, until the group has
    /// pulled there. Others leave it out.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub guard_table: BTreeMap<String, BTreeMap<i32, i64>>,
    /// RocketPy's own: by group, the topics that were deleted while it had offsets in them, with their creation numbers.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub former_table: BTreeMap<String, BTreeMap<String, u64>>,
    /// RocketPy's own, for its slaves and in no file: the creation numbers of the topics that these offsets are of.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub creation_table: BTreeMap<String, TopicCreation>,
}

/// Which creation of its name a topic or a queue is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Creation {
    /// Higher for a later creation; 0 for what is older than these numbers.
    pub number: u64,
    /// Where the log ended then: what was stored for an earlier creation is before that.
    pub from: PhysicalOffset,
}

/// Which creation of its name a topic is, and each of its queues.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicCreation {
    /// Higher for a later creation.
    pub number: u64,
    /// Where the log ended then.
    pub from: PhysicalOffset,
    /// Number of queues.
    pub queue_count: u32,
    /// Those that the topic did not have at its creation, by queue id.
    pub queues: BTreeMap<i32, Creation>,
}

impl TopicCreation {
    /// The highest number in it.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.queues.values().map(|queue| queue.number).max().unwrap_or(0).max(self.number)
    }
}
