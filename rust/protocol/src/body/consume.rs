//! Bodies about consumers: members, locks, offsets, progress.

use std::collections::BTreeMap;
use std::fmt;

use rocketpy_model::MessageQueue;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::{ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData};

/// The live members of a group (answer of code 38).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GetConsumerListByGroupResponseBody {
    /// Client ids, in any order: each client sorts them.
    pub consumer_id_list: Vec<String>,
}

/// Queues that a member locks or unlocks (codes 41 and 42).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[doc(alias = "UnlockBatchRequestBody")]
pub struct LockBatchRequestBody {
    /// The member that asks.
    pub client_id: String,
    /// Its group.
    pub consumer_group: String,
    /// The queues.
    pub mq_set: Vec<MessageQueue>,
    /// Not also at the other brokers of the group's master.
    pub only_this_broker: bool,
}

/// Queues that a member holds now (answer of code 41).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LockBatchResponseBody {
    /// All queues that the member holds now, also from earlier requests.
    #[serde(rename = "lockOKMQSet")]
    pub lock_ok_mq_set: Vec<MessageQueue>,
}

/// How far a group is in one queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OffsetWrapper {
    /// The queue's maximum offset.
    pub broker_offset: i64,
    /// The next offset that the group has committed; 0 without one.
    pub consumer_offset: i64,
    /// Store time of the last consumed message, 0 when there is none.
    #[serde(rename = "lastTimestamp")]
    pub last_at_ms: i64,
    /// Where the group has pulled to; not before `consumer_offset`.
    pub pull_offset: i64,
}

/// How far a group is (answer of code 208).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumeStats {
    /// Messages a second that the group was given.
    pub consume_tps: f64,
    /// Every queue that the group reads.
    pub offset_table: BTreeMap<MessageQueue, OffsetWrapper>,
}

/// Offsets by queue (body of codes 220 and 222).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResetOffsetBody {
    /// The offset that each queue was set to. Read from a list too.
    #[serde(deserialize_with = "map_or_list")]
    pub offset_table: BTreeMap<MessageQueue, i64>,
}

/// The form of [`ResetOffsetBody`] for members whose tool says that it is written in C++.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[doc(alias = "ResetOffsetBodyForC")]
pub struct ResetOffsetListBody {
    /// The offset that each queue was set to.
    pub offset_table: Vec<MessageQueueOffset>,
}

/// A queue and an offset in it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[doc(alias = "MessageQueueForC")]
pub struct MessageQueueOffset {
    /// Name of the queue's broker.
    pub broker_name: String,
    /// The offset.
    pub offset: i64,
    /// Number of the queue.
    pub queue_id: u32,
    /// The queue's topic.
    pub topic: String,
}

impl From<ResetOffsetBody> for ResetOffsetListBody {
    fn from(body: ResetOffsetBody) -> Self {
        let of = |(queue, offset): (MessageQueue, i64)| MessageQueueOffset {
            broker_name: queue.broker_name.to_string(),
            offset,
            queue_id: queue.queue_id,
            topic: queue.topic.to_string(),
        };
        Self { offset_table: body.offset_table.into_iter().map(of).collect() }
    }
}

fn map_or_list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<MessageQueue, i64>, D::Error> {
    struct MapOrList;

    impl<'de> Visitor<'de> for MapOrList {
        type Value = BTreeMap<MessageQueue, i64>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("offsets by queue, or a list of them")
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
            Deserialize::deserialize(MapAccessDeserializer::new(map))
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut offsets = BTreeMap::new();
            while let Some(of) = list.next_element::<MessageQueueOffset>()? {
                offsets.insert(MessageQueue::new(of.topic, of.broker_name, of.queue_id), of.offset);
            }
            Ok(offsets)
        }
    }

    deserializer.deserialize_any(MapOrList)
}

/// Offsets by queue as a member sees them (answer of code 221).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GetConsumerStatusBody {
    /// Offsets by client id.
    pub consumer_table: BTreeMap<String, BTreeMap<MessageQueue, i64>>,
    /// Offsets of the client that answers.
    pub message_queue_table: BTreeMap<MessageQueue, i64>,
}

/// One live client.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[doc(alias = "Connection")]
pub struct ClientConnection {
    /// `ip:port` of the client's end of the connection.
    pub client_addr: String,
    /// The client's id, from its heartbeats.
    pub client_id: String,
    /// A language name ([`crate::Language::name`]).
    pub language: String,
    /// The version that the client announces, as an ordinal ([`rocketpy_model::system::VERSION`]).
    pub version: i32,
    /// RocketPy's own: what this member of a consumer group subscribes to, tags by topic. Others leave it out.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub subscriptions: BTreeMap<String, String>,
}

/// The members of a consumer group (answer of code 203).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumerConnection {
    /// One entry for each member.
    pub connection_set: Vec<ClientConnection>,
    /// Of the latest heartbeat.
    pub consume_from_where: ConsumeFromWhere,
    /// Of the latest heartbeat.
    pub consume_type: ConsumeType,
    /// Of the latest heartbeat.
    pub message_model: MessageModel,
    /// Subscriptions by topic.
    pub subscription_table: BTreeMap<String, SubscriptionData>,
}

/// The members of a producer group (answer of code 204).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProducerConnection {
    /// One entry for each member.
    pub connection_set: Vec<ClientConnection>,
}

/// A live producer, as an answer to GET_ALL_PRODUCER_INFO has it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
pub struct ProducerInfo {
    /// Its client id.
    pub client_id: String,
    /// Name of its language.
    pub language: String,
    /// When its last heartbeat came, in Unix milliseconds.
    pub last_update_timestamp: i64,
    /// Its address.
    #[serde(rename = "remoteIP")]
    pub remote_ip: String,
    /// Version of its client.
    pub version: i32,
}

/// All live producers (answer of code 328), by group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProducerTableInfo {
    /// By group.
    pub data: BTreeMap<String, Vec<ProducerInfo>>,
}

/// Offsets by queue id (answer of code 308).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueryCorrectionOffsetBody {
    /// The lowest offset of each queue; `i64::MAX` where the compared group is behind it.
    pub correction_offsets: BTreeMap<i32, i64>,
}

/// A group's subscription to a topic (answer of code 345).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QuerySubscriptionResponseBody {
    /// The group.
    pub group: String,
    /// What it subscribes to; absent: no live member subscribes.
    pub subscription_data: Option<SubscriptionData>,
    /// The topic.
    pub topic: String,
}

/// Entries of a consume queue (answer of code 321).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueryConsumeQueueResponseBody {
    /// The expression of the group that was named, or why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter_data: Option<String>,
    /// Next queue offset of the queue.
    pub max_queue_index: i64,
    /// First queue offset of the queue.
    pub min_queue_index: i64,
    /// The entries; absent: the queue has none at the index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_data: Option<Vec<ConsumeQueueData>>,
    /// Subscription of the group that was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscription_data: Option<SubscriptionData>,
}

/// An entry of a consume queue.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumeQueueData {
    /// Whether the named group may want the message, by its tags code.
    pub eval: bool,
    /// Where the record starts in the log.
    pub physic_offset: i64,
    /// Size of the record in bytes.
    pub physic_size: i32,
    /// Hash of the tag, or the time of a delayed message.
    pub tags_code: i64,
}
