//! Heartbeats and subscriptions: what clients tell brokers about themselves.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// How a consumer gets its messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ConsumeType {
    /// The application pulls.
    ConsumeActively,
    /// A listener gets them: a push consumer.
    #[default]
    ConsumePassively,
    /// By POP_MESSAGE.
    ConsumePop,
    /// A name that this version does not know.
    #[serde(other)]
    Unknown,
}

/// Whether members of a group share messages or all get each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum MessageModel {
    /// Each member gets every message.
    Broadcasting,
    /// The members share the messages.
    #[default]
    Clustering,
    /// A name that this version does not know.
    #[serde(other)]
    Unknown,
}

/// Where a group starts in a queue that it has no offset for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ConsumeFromWhere {
    /// At the end.
    #[default]
    ConsumeFromLastOffset,
    /// Old name that counts as `ConsumeFromLastOffset`.
    ConsumeFromLastOffsetAndFromMinWhenBootFirst,
    /// Old name that counts as `ConsumeFromLastOffset`.
    ConsumeFromMinOffset,
    /// Old name that counts as `ConsumeFromLastOffset`.
    ConsumeFromMaxOffset,
    /// At the start.
    ConsumeFromFirstOffset,
    /// At the first message since a time that the client is set to.
    ConsumeFromTimestamp,
    /// A name that this version does not know.
    #[serde(other)]
    Unknown,
}

/// What a group wants of one topic.
///
/// # Source
/// docs/reference/protocol.md 2.0.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubscriptionData {
    /// Filter classes of 4.x: refused.
    pub class_filter_mode: bool,
    /// Hashes of `tags_set` as the client computed them.
    pub code_set: BTreeSet<i32>,
    /// `TAG` or `SQL92`; absent means `TAG`.
    pub expression_type: Option<String>,
    /// The expression, such as `TagA || TagB` or `*`.
    pub sub_string: String,
    /// Version of the subscription, by the client's own count: the larger is the later.
    pub sub_version: i64,
    /// The tags of the expression, as the client parsed them.
    pub tags_set: BTreeSet<String>,
    /// The topic.
    pub topic: String,
}

impl SubscriptionData {
    /// Type of an expression that names tags.
    pub const TAG: &'static str = "TAG";
    /// Type of an expression in SQL.
    pub const SQL92: &'static str = "SQL92";

    /// Says whether the expression names tags.
    #[must_use]
    #[doc(alias = "isTagType")]
    pub fn is_tag_type(&self) -> bool {
        self.expression_type.as_deref().is_none_or(|kind| kind.is_empty() || kind == Self::TAG)
    }
}

/// A consumer group of a client.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumerData {
    /// Where it starts in a queue without an offset.
    pub consume_from_where: ConsumeFromWhere,
    /// How it gets its messages.
    pub consume_type: ConsumeType,
    /// Name of the group.
    pub group_name: String,
    /// Whether members share messages.
    pub message_model: MessageModel,
    /// What it wants of each topic.
    pub subscription_data_set: Vec<SubscriptionData>,
    /// Whether the deployment is split into units.
    pub unit_mode: bool,
}

/// A producer group of a client.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProducerData {
    /// Name of the group.
    pub group_name: String,
}

/// What a client tells each broker every 30 seconds (code 34).
///
/// # Source
/// docs/reference/protocol.md 2.3.10.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HeartbeatData {
    /// `ip@instance`, unique for each client of the cluster.
    #[serde(rename = "clientID")]
    pub client_id: String,
    /// The consumer groups of the client.
    pub consumer_data_set: Vec<ConsumerData>,
    /// 0 for the classic heartbeat.
    pub heartbeat_fingerprint: i32,
    /// The producer groups of the client.
    pub producer_data_set: Vec<ProducerData>,
    /// Whether subscriptions are left out because they did not change (heartbeats of version 2).
    pub without_sub: bool,
}

/// A live member of a group that subscribes to other topics or tags than the client whose heartbeat is answered, or has the same
/// client id. RocketPy's own: a list of them is the field [`OTHER_SUBSCRIPTIONS`](crate::header::key::OTHER_SUBSCRIPTIONS) of the answer.
///
/// # Source
/// docs/reference/protocol.md 2.3.10.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OtherSubscription {
    /// The group.
    pub group: String,
    /// The other member.
    pub client_id: String,
    /// What it subscribes to, for people: `orders: TagA || TagB; payments: *`.
    pub subscriptions: String,
}

/// Asks whether a broker can filter by an expression (code 46).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CheckClientRequestBody {
    /// The client that asks.
    pub client_id: String,
    /// Its group.
    pub group: String,
    /// Its namespace.
    pub namespace: Option<String>,
    /// The subscription with the expression.
    pub subscription_data: SubscriptionData,
}
