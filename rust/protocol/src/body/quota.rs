//! Bodies about quotas, RocketPy's own, and the file `config/quotas.json`.

use std::collections::BTreeMap;

use rocketpy_model::DataVersion;
use serde::{Deserialize, Serialize};

/// Limits of one scope and name (codes 10920 to 10922). An absent limit does not limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Quota {
    /// Maximum number of open connections of an address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<u64>,
    /// A topic, a group, an address or a user; a beginning with `*`, or a network such as `10.0.0.0/8`; `*` for each one.
    pub name: String,
    /// Maximum number of bytes that pulls return per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull_bytes: Option<u64>,
    /// Maximum number of messages that pulls return per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull_messages: Option<u64>,
    /// `topic`, `group`, `address` or `user`.
    pub scope: String,
    /// Maximum number of bytes that sends store per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_bytes: Option<u64>,
    /// Maximum number of messages that sends store per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_messages: Option<u64>,
}

/// Use of a quota, of all its names together, since the start of the broker.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QuotaUse {
    /// Open connections of the addresses that the quota limits.
    pub connections: u64,
    /// Bytes returned by pulls in the last whole second.
    pub pull_bytes: u64,
    /// Messages returned by pulls in the last whole second.
    pub pull_messages: u64,
    /// The quota.
    pub quota: Quota,
    /// Requests and connections that were rejected.
    pub rejected: u64,
    /// Bytes stored by sends in the last whole second.
    pub send_bytes: u64,
    /// Messages stored by sends in the last whole second.
    pub send_messages: u64,
    /// Requests that had to wait.
    pub throttled: u64,
    /// Requests that wait.
    pub waiting: u64,
}

/// All quotas of a broker with their use (answer of code 10920).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QuotaList {
    /// Version of the table.
    pub data_version: DataVersion,
    /// By scope and name.
    pub quotas: Vec<QuotaUse>,
}

/// The file `config/quotas.json`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QuotaFile {
    /// Version of the table.
    pub data_version: DataVersion,
    /// Quotas by `scope:name`.
    pub quota_table: BTreeMap<String, Quota>,
}
