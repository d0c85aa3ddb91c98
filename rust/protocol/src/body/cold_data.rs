//! Bodies about reads from the disk.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How much groups read from the disk, and may (answer of code 2003).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ColdDataFlowCtrInfo {
    /// Bytes of a window that a group may read which has no limit of its own.
    pub cg_cold_read_threshold: u64,
    /// Bytes of a window, by group.
    pub config_table: BTreeMap<String, u64>,
    /// Bytes that all groups have read in this window.
    pub global_acc: u64,
    /// Bytes of a window that all groups may read.
    pub global_cold_read_threshold: u64,
    /// Groups that have read from the disk.
    pub runtime_table: BTreeMap<String, ColdReadFigures>,
}

/// What a group has read from the disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[doc(alias = "AccAndTimeStamp")]
pub struct ColdReadFigures {
    /// Bytes in this window.
    pub cold_acc: u64,
    /// When the first of its reads came, in Unix milliseconds.
    pub create_time_mills: i64,
    /// When the last of its reads came, in Unix milliseconds.
    pub last_cold_read_time_mills: i64,
}
