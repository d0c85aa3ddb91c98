//! What a broker says about its slaves.

use serde::{Deserialize, Serialize};

use super::EmptyMap;

/// The slaves of a master (answer of code 907).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[doc(alias = "HARuntimeInfo")]
pub struct HaRuntimeInfo {
    /// Whether the broker is a master.
    pub master: bool,
    /// Where its log ends, in bytes.
    pub master_commit_log_max_offset: i64,
    /// How many slaves are near the end of the log.
    pub in_sync_slave_nums: i32,
    /// Each slave that is connected.
    pub ha_connection_info: Vec<HaConnectionInfo>,
    /// Slaves that are not fed. Not Apache's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused_slaves: Vec<RefusedSlave>,
    /// How a slave follows its master.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ha_client_runtime_info: Option<HaClientRuntimeInfo>,
    /// Which lives of masters wrote its log, oldest first. Not Apache's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub epochs: Vec<EpochInfo>,
    /// Why a slave does not follow its master, though it reaches it. Not Apache's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_followed: Option<String>,
    /// Whether this master would become the slave of the asker, who said of which epochs its log is. Not Apache's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gives_way: bool,
}

/// Connection of a slave to its master.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[doc(alias = "HAClientRuntimeInfo")]
pub struct HaClientRuntimeInfo {
    /// Whether it is connected and gets the log.
    pub is_activated: bool,
    /// When bytes came last, in Unix milliseconds; 0: never.
    pub last_read_timestamp: i64,
    /// When it reported last, in Unix milliseconds; 0: never.
    pub last_write_timestamp: i64,
    /// `host:port` of the master's port for slaves.
    pub master_addr: String,
    /// How far the master's log was flushed when the slave looked for it last, in bytes.
    pub master_flush_offset: i64,
    /// Where the slave's log ends, in bytes.
    pub max_offset: i64,
    /// Bytes a second that came since it connected.
    pub transferred_byte_in_second: i64,
}

/// A slave of RocketPy that a master does not feed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RefusedSlave {
    /// Where it answers requests, as it says.
    pub addr: String,
    /// Its broker id, as it says.
    pub broker_id: u64,
    /// Why.
    pub why: String,
}

/// A life of a master.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EpochInfo {
    /// In hexadecimal: JSON of other languages has no number of 64 bits.
    pub id: String,
    /// Where the log ended when it began, in bytes.
    pub start: i64,
    /// Its writer may have lost bytes that it had told a master of.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub after_loss: bool,
}

/// A slave that is connected.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[doc(alias = "HAConnectionRuntimeInfo")]
pub struct HaConnectionInfo {
    /// `host:port` that it connects from.
    pub addr: String,
    /// How far its log reaches, in bytes.
    pub slave_ack_offset: i64,
    /// How many bytes it is behind.
    pub diff: i64,
    /// Whether that is near enough to wait for it.
    pub in_sync: bool,
    /// Bytes a second that it was sent since it connected.
    pub transferred_byte_in_second: i64,
    /// Where the next bytes for it begin.
    pub transfer_from_where: i64,
    /// The broker id of a slave of RocketPy. Not Apache's, as all below.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broker_id: Option<u64>,
    /// How many records it is behind; an estimate where they are more than 4 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_records: Option<i64>,
    /// How long ago the first record was stored that it does not have, in milliseconds; 0 when it has all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_ms: Option<i64>,
}

/// How a group takes the messages of a topic (code 401).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SetMessageRequestModeRequestBody {
    /// The group.
    pub consumer_group: String,
    /// `PULL` or `POP`.
    pub mode: String,
    /// Queues that members of a group share which pops.
    pub pop_share_queue_num: i32,
    /// The topic.
    pub topic: String,
}

/// How groups take messages, by topic and group (answer of code 402). Without an entry they pull.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[doc(alias = "MessageRequestModeSerializeWrapper")]
pub struct MessageRequestModes {
    /// Always empty here: all groups pull.
    pub message_request_mode_map: EmptyMap,
}
