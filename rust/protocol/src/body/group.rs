//! Bodies and files about subscription groups and their offsets.

use std::collections::BTreeMap;

use rocketpy_model::{DataVersion, GroupConfig};
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
}
