use std::collections::BTreeMap;

use rocketpy_model::MessageQueue;
use serde::{Deserialize, Serialize};

use super::{ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData};

/// The live members of a group (answer of code 38).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GetConsumerListByGroupResponseBody {
    pub consumer_id_list: Vec<String>,
}

/// Queues that a member locks or unlocks (codes 41 and 42).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[doc(alias = "UnlockBatchRequestBody")]
pub struct LockBatchRequestBody {
    pub client_id: String,
    pub consumer_group: String,
    pub mq_set: Vec<MessageQueue>,
    pub only_this_broker: bool,
}

/// Queues that a member holds now (answer of code 41).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LockBatchResponseBody {
    #[serde(rename = "lockOKMQSet")]
    pub lock_ok_mq_set: Vec<MessageQueue>,
}

/// How far a group is in one queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OffsetWrapper {
    pub broker_offset: i64,
    pub consumer_offset: i64,
    /// Store time of the last consumed message, 0 when there is none.
    #[serde(rename = "lastTimestamp")]
    pub last_at_ms: i64,
    pub pull_offset: i64,
}

/// How far a group is (answer of code 208).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumeStats {
    pub consume_tps: f64,
    pub offset_table: BTreeMap<MessageQueue, OffsetWrapper>,
}

/// Offsets by queue (body of codes 220 and 222).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResetOffsetBody {
    pub offset_table: BTreeMap<MessageQueue, i64>,
}

/// Offsets by queue as a member sees them (answer of code 221).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GetConsumerStatusBody {
    pub consumer_table: BTreeMap<String, BTreeMap<MessageQueue, i64>>,
    pub message_queue_table: BTreeMap<MessageQueue, i64>,
}

/// One live client.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[doc(alias = "Connection")]
pub struct ClientConnection {
    pub client_addr: String,
    pub client_id: String,
    /// A language name ([`crate::Language::name`]).
    pub language: String,
    pub version: i32,
}

/// The members of a consumer group (answer of code 203).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumerConnection {
    pub connection_set: Vec<ClientConnection>,
    pub consume_from_where: ConsumeFromWhere,
    pub consume_type: ConsumeType,
    pub message_model: MessageModel,
    pub subscription_table: BTreeMap<String, SubscriptionData>,
}

/// The members of a producer group (answer of code 204).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProducerConnection {
    pub connection_set: Vec<ClientConnection>,
}
