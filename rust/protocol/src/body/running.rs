//! Bodies by which a member of a group tells an administrator of itself.

use std::collections::BTreeMap;

use rocketpy_model::MessageQueue;
use serde::{Deserialize, Serialize};

use super::SubscriptionData;

/// What a member says of itself (answer of code 307).
///
/// # Source
/// docs/reference/protocol.md 2.4.3, docs/reference/client.md 15.2.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumerRunningInfo {
    /// The queues that it reads.
    pub mq_table: BTreeMap<MessageQueue, ProcessQueueInfo>,
    /// Facts by the names of [`running_property`].
    pub properties: BTreeMap<String, String>,
    /// How fast handlers are, by topic.
    pub status_table: BTreeMap<String, ConsumeStatus>,
    /// What it subscribes to.
    pub subscription_set: Vec<SubscriptionData>,
    /// What its program adds.
    pub user_consumer_info: BTreeMap<String, String>,
    /// The stacks of its threads, if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jstack: Option<String>,
}

/// Names among the properties of a [`ConsumerRunningInfo`].
pub mod running_property {
    /// Whether handlers get messages in order: `true` or `false`.
    pub const CONSUME_ORDERLY: &str = "PROP_CONSUMEORDERLY";
    /// `CONSUME_ACTIVELY` or `CONSUME_PASSIVELY`.
    pub const CONSUME_TYPE: &str = "PROP_CONSUME_TYPE";
    /// When it started, in Unix milliseconds.
    pub const CONSUMER_START_TIMESTAMP: &str = "PROP_CONSUMER_START_TIMESTAMP";
    /// Version of its client.
    pub const CLIENT_VERSION: &str = "PROP_CLIENT_VERSION";
    /// Its name servers, each with `;` behind it.
    pub const NAMESERVER_ADDR: &str = "PROP_NAMESERVER_ADDR";
}

/// One queue of a member. Times are in Unix milliseconds; 0 for never.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProcessQueueInfo {
    /// Number of messages that were pulled and are not consumed.
    pub cached_msg_count: i32,
    /// The offset of the last of them.
    pub cached_msg_max_offset: i64,
    /// The offset of the first of them.
    pub cached_msg_min_offset: i64,
    /// Their size in MiB.
    #[serde(rename = "cachedMsgSizeInMiB")]
    pub cached_msg_size_mib: i32,
    /// The next offset that is committed.
    pub commit_offset: i64,
    /// Whether it is lost. The misspelling is the protocol's.
    #[serde(rename = "droped")]
    pub is_dropped: bool,
    /// When a message of it was last consumed.
    #[serde(rename = "lastConsumeTimestamp")]
    pub last_consumed_at_ms: i64,
    /// When its lock was last got.
    #[serde(rename = "lastLockTimestamp")]
    pub last_locked_at_ms: i64,
    /// When it was last pulled.
    #[serde(rename = "lastPullTimestamp")]
    pub last_pulled_at_ms: i64,
    /// Whether its lock is held, for a member that reads in order.
    #[serde(rename = "locked")]
    pub is_locked: bool,
    /// Number of messages that an orderly handler has.
    pub transaction_msg_count: i32,
    /// The offset of the last of them.
    pub transaction_msg_max_offset: i64,
    /// The offset of the first of them.
    pub transaction_msg_min_offset: i64,
    /// How many times its lock was not given back because a handler ran.
    pub try_unlock_times: i64,
}

/// How fast a topic's messages are pulled and consumed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ConsumeStatus {
    /// Messages a second whose handlers failed, in the last minute.
    #[serde(rename = "consumeFailedTPS")]
    pub consume_failed_tps: f64,
    /// Messages whose handlers failed, in the last hour.
    #[serde(rename = "consumeFailedMsgs")]
    pub consume_failed_messages: i64,
    /// Messages a second whose handlers returned, in the last minute.
    #[serde(rename = "consumeOKTPS")]
    pub consume_ok_tps: f64,
    /// Milliseconds that a handler took, in the last minute.
    #[serde(rename = "consumeRT")]
    pub consume_time_ms: f64,
    /// Milliseconds that a pull took, in the last minute.
    #[serde(rename = "pullRT")]
    pub pull_time_ms: f64,
    /// Messages a second that were pulled, in the last minute.
    #[serde(rename = "pullTPS")]
    pub pull_tps: f64,
}

/// What became of a message that a member consumed because it was asked to (answer of code 309).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConsumeMessageDirectlyResult {
    /// Whether an orderly handler ends by returning.
    pub auto_commit: bool,
    /// How the handler ended.
    pub consume_result: ConsumeResult,
    /// Whether the handler is orderly.
    #[serde(rename = "order")]
    pub is_ordered: bool,
    /// The error of a handler that failed.
    pub remark: Option<String>,
    /// Milliseconds that it took. The misspelling is the protocol's.
    #[serde(rename = "spentTimeMills")]
    pub spent_ms: i64,
}

/// How a handler ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[doc(alias = "CMResult")]
pub enum ConsumeResult {
    /// It returned.
    #[serde(rename = "CR_SUCCESS")]
    Success,
    /// It wants the message later.
    #[serde(rename = "CR_LATER")]
    Later,
    /// It failed with an error.
    #[serde(rename = "CR_THROW_EXCEPTION")]
    Threw,
}
