//! Configurations of topics and consumer groups, and the versions of their tables.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Permission;

/// The version of a table that brokers and name servers compare.
///
/// Two versions are equal when all three members are; the order is by state version, counter, time.
///
/// # Source
/// docs/reference/store-format.md 1.3.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DataVersion {
    /// Counts the changes.
    pub counter: i64,
    /// Rises with each change of the master.
    pub state_version: i64,
    /// When the table changed, in milliseconds since 1970.
    #[serde(rename = "timestamp")]
    pub changed_at_ms: i64,
}

impl DataVersion {
    /// The version after a change at `now_ms`.
    #[must_use]
    #[doc(alias = "nextVersion")]
    pub const fn next(self, now_ms: i64) -> Self {
        Self { counter: self.counter + 1, state_version: self.state_version, changed_at_ms: now_ms }
    }

    /// The version of a slave that became the master at `now_ms`. A name server takes it from now on, whatever the former master says.
    #[must_use]
    pub const fn of_next_master(self, now_ms: i64) -> Self {
        Self { state_version: self.state_version + 1, ..self.next(now_ms) }
    }
}

impl Ord for DataVersion {
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |version: &Self| (version.state_version, version.counter, version.changed_at_ms);
        key(self).cmp(&key(other))
    }
}

impl PartialOrd for DataVersion {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Whether a message of the topic carries one tag or several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TopicFilterType {
    /// One tag.
    #[default]
    SingleTag,
    /// Several tags.
    MultiTag,
}

impl TopicFilterType {
    /// The name on the wire and in files.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SingleTag => "SINGLE_TAG",
            Self::MultiTag => "MULTI_TAG",
        }
    }
}

/// The configuration of one topic on one broker.
///
/// # Source
/// docs/reference/protocol.md 2.0, docs/reference/store-format.md 1.4 (`config/topics.json`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicConfig {
    /// Attributes by name, as `retention.hours`.
    pub attributes: BTreeMap<String, String>,
    /// Whether the order of the topic is kept when a broker goes away.
    pub order: bool,
    /// What clients may do.
    pub perm: Permission,
    /// Queues that consumers read.
    #[serde(rename = "readQueueNums")]
    pub read_queues: u32,
    /// One tag or several.
    #[serde(rename = "topicFilterType")]
    pub filter_type: TopicFilterType,
    /// Name of the topic.
    #[serde(rename = "topicName")]
    pub name: String,
    /// Bits of the system; 0 for ordinary topics.
    #[serde(rename = "topicSysFlag")]
    pub sys_flag: i32,
    /// Queues that producers write.
    #[serde(rename = "writeQueueNums")]
    pub write_queues: u32,
}

impl TopicConfig {
    /// Queue count of the class default, which a JSON object without the member means.
    pub const DEFAULT_QUEUES: u32 = 16;

    /// Makes a readable and writable topic with `queues` queues for both.
    pub fn new(name: impl Into<String>, queues: u32) -> Self {
        Self { name: name.into(), read_queues: queues, write_queues: queues, ..Self::default() }
    }

    /// The same topic with other permission bits.
    #[must_use]
    pub fn with_perm(mut self, perm: Permission) -> Self {
        self.perm = perm;
        self
    }

    /// How many queues exist: the greater of both counts.
    #[must_use]
    pub fn queues(&self) -> u32 {
        self.read_queues.max(self.write_queues)
    }
}

impl Default for TopicConfig {
    fn default() -> Self {
        Self {
            attributes: BTreeMap::new(),
            order: false,
            perm: Permission::READ_WRITE,
            read_queues: Self::DEFAULT_QUEUES,
            filter_type: TopicFilterType::SingleTag,
            name: String::new(),
            sys_flag: 0,
            write_queues: Self::DEFAULT_QUEUES,
        }
    }
}

/// Which of a group's retry policies is in force.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum RetryPolicyKind {
    /// Delays by attempt.
    #[default]
    Customized,
    /// Delays that grow.
    Exponential,
}

/// When a message that failed is delivered again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[doc(alias = "GroupRetryPolicy")]
pub struct RetryPolicy {
    /// Delays by attempt, when the group has its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub customized_retry_policy: Option<CustomizedRetry>,
    /// Delays that grow, when the group has its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exponential_retry_policy: Option<ExponentialRetry>,
    /// The one in force.
    #[serde(rename = "type")]
    pub kind: RetryPolicyKind,
}

/// Delays by attempt.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CustomizedRetry {
    /// Milliseconds before each next attempt.
    pub next: Vec<i64>,
}

/// Delays that grow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExponentialRetry {
    /// Milliseconds before the first attempt.
    pub initial: i64,
    /// Most milliseconds before any attempt.
    pub max: i64,
    /// Factor from one delay to the next.
    pub multiplier: i64,
}

impl Default for ExponentialRetry {
    fn default() -> Self {
        Self { initial: 5_000, max: 7_200_000, multiplier: 2 }
    }
}

/// A subscription that is part of a group's configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[doc(alias = "SimpleSubscriptionData")]
pub struct GroupSubscription {
    /// Which messages of the topic.
    pub expression: String,
    /// The language of `expression`: `TAG` or `SQL92`.
    pub expression_type: String,
    /// The topic.
    pub topic: String,
    /// Rises with each change.
    pub version: i64,
}

/// The configuration of one consumer group on one broker.
///
/// # Source
/// docs/reference/protocol.md 2.6.2, docs/reference/store-format.md 1.4 (`config/subscriptionGroup.json`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[doc(alias = "SubscriptionGroupConfig")]
pub struct GroupConfig {
    /// Attributes by name.
    pub attributes: BTreeMap<String, String>,
    /// Broker that the group reads from.
    pub broker_id: u64,
    /// Whether each member may read all messages.
    pub consume_broadcast_enable: bool,
    /// Whether the group may read.
    pub consume_enable: bool,
    /// Whether a new group may start at the minimum offset.
    pub consume_from_min_enable: bool,
    /// Whether the group reads in order.
    pub consume_message_orderly: bool,
    /// Minutes after which a message counts as not consumed.
    pub consume_timeout_minute: i32,
    /// Name of the group.
    #[serde(rename = "groupName")]
    pub name: String,
    /// When a message that failed is delivered again.
    #[serde(rename = "groupRetryPolicy")]
    pub retry_policy: RetryPolicy,
    /// Bits of the system; 0 for ordinary groups.
    #[serde(rename = "groupSysFlag")]
    pub sys_flag: i32,
    /// Whether members hear at once that one joined or left.
    pub notify_consumer_ids_changed_enable: bool,
    /// Deliveries after which a message goes to the dead-letter topic.
    pub retry_max_times: i32,
    /// Queues of the retry topic.
    #[serde(rename = "retryQueueNums")]
    pub retry_queues: i32,
    /// Subscriptions that the group is bound to, when there are any.
    #[serde(rename = "subscriptionDataSet", skip_serializing_if = "Option::is_none")]
    pub subscriptions: Option<Vec<GroupSubscription>>,
    /// Broker that a slow consumer reads from.
    pub which_broker_when_consume_slowly: u64,
}

impl GroupConfig {
    /// Makes a group with the class defaults.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }
}

impl Default for GroupConfig {
    fn default() -> Self {
        Self {
            attributes: BTreeMap::new(),
            broker_id: 0,
            consume_broadcast_enable: true,
            consume_enable: true,
            consume_from_min_enable: true,
            consume_message_orderly: false,
            consume_timeout_minute: 15,
            name: String::new(),
            retry_policy: RetryPolicy::default(),
            sys_flag: 0,
            notify_consumer_ids_changed_enable: true,
            retry_max_times: 16,
            retry_queues: 1,
            subscriptions: None,
            which_broker_when_consume_slowly: 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_order_by_state_version_then_counter_then_time() {
        let version =
            |state_version, counter, changed_at_ms| DataVersion { counter, state_version, changed_at_ms };
        assert!(version(1, 0, 0) > version(0, 9, 9));
        assert!(version(0, 2, 0) > version(0, 1, 9));
        assert!(version(0, 1, 2) > version(0, 1, 1));
        assert_eq!(version(0, 1, 2).next(7), version(0, 2, 7));
    }
}
