use std::collections::BTreeMap;

use rocketpy_model::{DataVersion, MessageQueue, TopicConfig};
use serde::{Deserialize, Serialize};

use super::EmptyMap;

/// A list of topics (answer of codes 206, 224, 304, 305 and 343).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicList {
    pub broker_addr: Option<String>,
    pub topic_list: Vec<String>,
}

/// Names and values (answer of codes 28, 103 and 219).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[doc(alias = "KVTable")]
pub struct KvTable {
    pub table: BTreeMap<String, String>,
}

/// All topics of a broker (inside a registration, and answer of code 21).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[doc(alias = "TopicConfigAndMappingSerializeWrapper")]
pub struct TopicConfigSerializeWrapper {
    pub data_version: DataVersion,
    pub mapping_data_version: DataVersion,
    pub topic_config_table: BTreeMap<String, TopicConfig>,
    pub topic_queue_mapping_detail_map: EmptyMap,
    pub topic_queue_mapping_info_map: EmptyMap,
}

/// The file `config/topics.json`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicConfigFile {
    pub data_version: DataVersion,
    pub topic_config_table: BTreeMap<String, TopicConfig>,
}

/// Topics to create or change together (code 18).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CreateTopicListRequestBody {
    pub topic_config_list: Vec<TopicConfig>,
}

/// The bounds of one queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicOffset {
    #[serde(rename = "lastUpdateTimestamp")]
    pub last_update_at_ms: i64,
    pub max_offset: i64,
    pub min_offset: i64,
}

/// The bounds of a topic's queues (answer of code 202).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicStatsTable {
    pub offset_table: BTreeMap<MessageQueue, TopicOffset>,
    pub topic_put_tps: f64,
}

/// Names of groups (answer of code 300).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupList {
    pub group_list: Vec<String>,
}
