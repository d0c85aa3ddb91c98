use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// How a consumer gets its messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ConsumeType {
    ConsumeActively,
    #[default]
    ConsumePassively,
    ConsumePop,
    /// A name that this version does not know.
    #[serde(other)]
    Unknown,
}

/// Whether members of a group share messages or all get each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum MessageModel {
    Broadcasting,
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
    #[default]
    ConsumeFromLastOffset,
    ConsumeFromLastOffsetAndFromMinWhenBootFirst,
    ConsumeFromMinOffset,
    ConsumeFromMaxOffset,
    ConsumeFromFirstOffset,
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
    pub class_filter_mode: bool,
    /// Hashes of `tags_set` as the client computed them.
    pub code_set: BTreeSet<i32>,
    /// `TAG` or `SQL92`; absent means `TAG`.
    pub expression_type: Option<String>,
    pub sub_string: String,
    pub sub_version: i64,
    pub tags_set: BTreeSet<String>,
    pub topic: String,
}

impl SubscriptionData {
    pub const TAG: &'static str = "TAG";
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
    pub consume_from_where: ConsumeFromWhere,
    pub consume_type: ConsumeType,
    pub group_name: String,
    pub message_model: MessageModel,
    pub subscription_data_set: Vec<SubscriptionData>,
    pub unit_mode: bool,
}

/// A producer group of a client.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProducerData {
    pub group_name: String,
}

/// What a client tells each broker every 30 seconds (code 34).
///
/// # Source
/// docs/reference/protocol.md 2.3.10.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HeartbeatData {
    #[serde(rename = "clientID")]
    pub client_id: String,
    pub consumer_data_set: Vec<ConsumerData>,
    /// 0 for the classic heartbeat.
    pub heartbeat_fingerprint: i32,
    pub producer_data_set: Vec<ProducerData>,
    pub without_sub: bool,
}

/// Asks whether a broker can filter by an expression (code 46).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CheckClientRequestBody {
    pub client_id: String,
    pub group: String,
    pub namespace: Option<String>,
    pub subscription_data: SubscriptionData,
}
