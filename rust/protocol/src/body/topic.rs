//! Bodies and files about topics.

use std::collections::BTreeMap;

use rocketpy_model::{DataVersion, MessageQueue, TopicConfig};
use serde::{Deserialize, Serialize};

use super::EmptyMap;

/// A list of topics (answer of codes 206, 224, 304, 305 and 343).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicList {
    /// The broker that can be asked for more; codes 304 and 305 only.
    pub broker_addr: Option<String>,
    /// Names of topics.
    pub topic_list: Vec<String>,
}

/// Names and values (answer of codes 28, 103 and 219).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[doc(alias = "KVTable")]
pub struct KvTable {
    /// Values by name.
    pub table: BTreeMap<String, String>,
}

/// All topics of a broker (inside a registration, and answer of code 21).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[doc(alias = "TopicConfigAndMappingSerializeWrapper")]
pub struct TopicConfigSerializeWrapper {
    /// Version of the topics.
    pub data_version: DataVersion,
    /// Version of the static topics' mapping.
    pub mapping_data_version: DataVersion,
    /// Topics by name.
    pub topic_config_table: BTreeMap<String, TopicConfig>,
    /// Static topics: not supported.
    pub topic_queue_mapping_detail_map: EmptyMap,
    /// Static topics: not supported.
    pub topic_queue_mapping_info_map: EmptyMap,
}

/// The file `config/topics.json`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicConfigFile {
    /// Version of the table.
    pub data_version: DataVersion,
    /// Topics by name.
    pub topic_config_table: BTreeMap<String, TopicConfig>,
}

/// Topics to create or change together (code 18).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CreateTopicListRequestBody {
    /// The topics, whole.
    pub topic_config_list: Vec<TopicConfig>,
}

/// The bounds of one queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicOffset {
    /// Store time of the last message; 0 without one.
    #[serde(rename = "lastUpdateTimestamp")]
    pub last_update_at_ms: i64,
    /// One more than the last offset.
    pub max_offset: i64,
    /// The first offset that can be read.
    pub min_offset: i64,
}

/// The bounds of a topic's queues (answer of code 202).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicStatsTable {
    /// Every queue of the topic.
    pub offset_table: BTreeMap<MessageQueue, TopicOffset>,
    /// Messages a second that are put.
    pub topic_put_tps: f64,
}

/// Names of groups (answer of code 300).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupList {
    /// Names of groups.
    pub group_list: Vec<String>,
}

/// Messages that wait for a time of their own, by topic (answer of code 61).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[doc(alias = "TimerMetricsSerializeWrapper")]
pub struct TimerMetrics {
    /// Moves with each change.
    pub data_version: DataVersion,
    /// Topics without any are left out.
    pub timing_count: BTreeMap<String, TimingCount>,
}

/// How many messages wait for a topic.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[doc(alias = "Metric")]
pub struct TimingCount {
    /// How many.
    pub count: i64,
    /// When this changed, in Unix milliseconds.
    pub time_stamp: i64,
}
