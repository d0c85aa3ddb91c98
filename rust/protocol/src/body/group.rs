use std::collections::BTreeMap;

use rocketpy_model::{DataVersion, GroupConfig};
use serde::{Deserialize, Serialize};

/// All groups of a broker (answer of code 201, and the file `config/subscriptionGroup.json`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubscriptionGroupWrapper {
    pub data_version: DataVersion,
    /// Group to topic to bits of what is forbidden.
    pub forbidden_table: BTreeMap<String, BTreeMap<String, i32>>,
    pub subscription_group_table: BTreeMap<String, GroupConfig>,
}

/// Groups to create or change together (code 225).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubscriptionGroupList {
    pub group_config_list: Vec<GroupConfig>,
}

/// The committed offsets of all groups (answer of code 43, and the file `config/consumerOffset.json`).
///
/// # Source
/// docs/reference/store-format.md 1.4, docs/reference/apache-5.5.0.md 1.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumerOffsetSerializeWrapper {
    pub data_version: DataVersion,
    /// Derived data; not read back.
    pub group_topic_map: BTreeMap<String, Vec<String>>,
    /// `topic@group` to queue id to the next offset to consume.
    pub offset_table: BTreeMap<String, BTreeMap<i32, i64>>,
    pub pull_offset_table: BTreeMap<String, BTreeMap<i32, i64>>,
}
