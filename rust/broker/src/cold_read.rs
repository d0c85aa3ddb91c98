//! Limits of cold reads: how much a consumer group may read from the disk.
//!
//! A read that memory does not answer is cold. The broker counts its bytes for the group in windows of time. A group that has reached its
//! limit waits for the next window.
//!
//! # Source
//! docs/reference/protocol.md 2.6.4.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rocketpy_env::{Disk, now_ms};
use rocketpy_model::{DataVersion, name};
use rocketpy_protocol::body::{ColdDataFlowCtrInfo, ColdReadFigures};
use serde::{Deserialize, Serialize};

use crate::config_file::ConfigFile;
use crate::refusal::{Refusal, check_group_of_clients};
use crate::table::group_commit::Written;
use crate::table::named::{ByName, Limits, Named, NamedTable};
use crate::{BrokerConfig, BrokerError};

/// Maximum number of groups whose cold reads are counted. Beyond it those that have read nothing in this window are forgotten.
const MAX_COUNTED: usize = 10_000;

/// Limits, stored in `config/coldDataFlowCtr.json`, and the bytes that groups have read.
#[derive(Debug)]
#[doc(alias = "ColdDataCgCtrService")]
pub(crate) struct ColdReads {
    limits: NamedTable<ColdLimit>,
    window: Duration,
    counted: Mutex<Counted>,
}

/// Limit of one group.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct ColdLimit {
    group: String,
    bytes: u64,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct File {
    data_version: DataVersion,
    /// Bytes of a window, by group.
    config_table: ByName<u64>,
}

/// Cold reads of groups in the current window.
#[derive(Debug, Default)]
struct Counted {
    began: Option<Instant>,
    /// Of all groups.
    bytes: u64,
    groups: HashMap<Arc<str>, Count>,
}

#[derive(Debug, Clone, Copy)]
struct Count {
    bytes: u64,
    last_at_ms: i64,
    first_at_ms: i64,
}

impl Named for ColdLimit {
    fn name(&self) -> &str {
        &self.group
    }
}

impl ColdReads {
    /// Loads the limits.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn open(disk: impl Disk, config: &BrokerConfig) -> Result<Self, BrokerError> {
        let file = ConfigFile::on(disk, &config.store.root, "coldDataFlowCtr.json");
        let loaded = file.load::<File>()?.unwrap_or_default();
        let entry = |(group, bytes): (String, u64)| {
            (Arc::from(group.as_str()), Arc::new(ColdLimit { group, bytes: bytes.max(1) }))
        };
        let limits = loaded.config_table.into_iter().map(entry).collect();
        let room = Limits { entries: config.max_groups, refusal: |limit| Refusal::TooManyGroups { limit } };
        let save = move |data_version, table: ByName<ColdLimit>| {
            let config_table = table.into_iter().map(|(group, limit)| (group, limit.bytes)).collect();
            file.save(&File { data_version, config_table })
        };
        Ok(Self {
            limits: NamedTable::new(loaded.data_version, limits, room, save),
            window: config.intervals.cold_reads,
            counted: Mutex::default(),
        })
    }

    /// Sets the limits of lines `GROUP=BYTES`, all or none.
    ///
    /// # Errors
    /// A line is malformed, a group name is invalid or repeated, or a number is not positive.
    pub(crate) fn set_limits(&self, text: &str) -> Result<Option<Written>, Refusal> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let mut limits = HashMap::new();
        for line in lines {
            let (group, bytes) = line.split_once('=').ok_or(Refusal::NotText)?;
            let (group, bytes) = (group.trim(), bytes.trim());
            name::check_group(group)?;
            check_group_of_clients(group)?;
            let number = bytes.parse::<i64>().ok().filter(|bytes| *bytes > 0);
            let number = number.ok_or_else(|| Refusal::Value {
                field: "threshold",
                wanted: "a number of bytes above 0",
                value: bytes.to_owned(),
            })?;
            let limit = ColdLimit { group: group.to_owned(), bytes: number.unsigned_abs() };
            if limits.insert(group.to_owned(), limit).is_some() {
                return Err(Refusal::NamedTwice { kind: "consumer group", name: group.to_owned() });
            }
        }
        let whole = |(group, limit): (String, ColdLimit)| (group, |_: Option<&ColdLimit>| Ok(limit));
        Ok(self.limits.update_all(limits.into_iter().map(whole).collect())?.written)
    }

    /// Removes the limit of a group, if it has one.
    ///
    /// # Errors
    /// The text is not a name of a group.
    pub(crate) fn remove_limit(&self, group: &str) -> Result<Option<Written>, Refusal> {
        name::check_group(group)?;
        self.limits.remove(group)
    }

    /// Whether a group may read from the disk now.
    ///
    /// # Errors
    /// It has reached its limit, until the end of the window.
    pub(crate) fn check(&self, group: &str) -> Result<(), Reached> {
        let Some(limit) = self.limits.get(group) else { return Ok(()) };
        let mut counted = self.counted.lock();
        let left = counted.turn(Instant::now(), self.window);
        match counted.groups.get(group) {
            Some(count) if count.bytes >= limit.bytes => {
                assert!(left <= self.window, "a window ends in time");
                Err(Reached { limit_bytes: limit.bytes, window: self.window, left })
            }
            _ => Ok(()),
        }
    }

    /// Counts a cold read.
    pub(crate) fn note(&self, group: &Arc<str>, bytes: u64) {
        let mut counted = self.counted.lock();
        counted.turn(Instant::now(), self.window);
        counted.bytes = counted.bytes.saturating_add(bytes);
        if counted.groups.len() >= MAX_COUNTED && !counted.groups.contains_key(group) {
            counted.groups.retain(|_, count| count.bytes > 0);
            if counted.groups.len() >= MAX_COUNTED {
                return; // a window of so many groups: the others are counted as a whole
            }
        }
        let now_ms = now_ms();
        let new = Count { bytes: 0, last_at_ms: now_ms, first_at_ms: now_ms };
        let count = counted.groups.entry(group.clone()).or_insert(new);
        count.bytes = count.bytes.saturating_add(bytes);
        count.last_at_ms = now_ms;
        assert!(counted.groups.len() <= MAX_COUNTED, "the counted groups are bounded");
    }

    /// Limits and reads, as tools ask for them.
    pub(crate) fn info(&self) -> ColdDataFlowCtrInfo {
        let mut counted = self.counted.lock();
        counted.turn(Instant::now(), self.window);
        let figures = |count: &Count| ColdReadFigures {
            cold_acc: count.bytes,
            create_time_mills: count.first_at_ms,
            last_cold_read_time_mills: count.last_at_ms,
        };
        let runtime_table =
            counted.groups.iter().map(|(group, count)| (group.to_string(), figures(count))).collect();
        let (_, limits) = self.limits.all();
        ColdDataFlowCtrInfo {
            runtime_table,
            config_table: limits.into_iter().map(|(group, limit)| (group, limit.bytes)).collect(),
            // Groups without a limit of their own have none.
            cg_cold_read_threshold: i64::MAX.unsigned_abs(),
            global_cold_read_threshold: i64::MAX.unsigned_abs(),
            global_acc: counted.bytes,
        }
    }
}

/// A group has reached its limit of cold reads in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reached {
    pub(crate) limit_bytes: u64,
    pub(crate) window: Duration,
    /// Until the next window.
    pub(crate) left: Duration,
}

impl Counted {
    /// Begins the next window if this one is over. Returns the remaining time of the window.
    fn turn(&mut self, now: Instant, window: Duration) -> Duration {
        if let Some(began) = self.began {
            let left = window.saturating_sub(now.saturating_duration_since(began));
            if !left.is_zero() {
                return left;
            }
        }
        self.began = Some(now);
        self.bytes = 0;
        self.groups.values_mut().for_each(|count| count.bytes = 0);
        assert!(!window.is_zero(), "a window has a length");
        window
    }
}

#[cfg(test)]
mod tests {
    use rocketpy_env::RealDisk;

    use super::*;

    #[test]
    fn a_group_reads_up_to_its_limit_in_each_window() {
        let mut counted = Counted::default();
        let began = Instant::now();
        let window = Duration::from_secs(5);
        counted.turn(began, window);
        let count = Count { bytes: 7, last_at_ms: 1, first_at_ms: 1 };
        counted.groups.insert("slow".into(), count);
        assert_eq!(counted.turn(began + Duration::from_secs(4), window), Duration::from_secs(1));
        assert_eq!(counted.groups["slow"].bytes, 7);
        assert_eq!(counted.turn(began + window, window), window);
        assert_eq!(counted.groups["slow"].bytes, 0);
    }

    #[test]
    fn limits_survive_a_restart_and_a_bad_line_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut config = BrokerConfig::default();
        config.store.root = folder.path().to_owned();
        config.intervals.cold_reads = Duration::from_secs(3600);
        crate::config_file::make_config_folder(&RealDisk, folder.path()).unwrap();
        let open = || ColdReads::open(RealDisk, &config).unwrap();
        let reads = open();
        reads.set_limits("slow=10\nother = 5\n").unwrap().unwrap().now().unwrap();
        for bad in ["slow=0", "slow=1\nother=x", "slow=1\nslow=2", "slow", "bad/name=1"] {
            assert!(reads.set_limits(bad).is_err(), "{bad}");
        }
        let table = |reads: &ColdReads| reads.info().config_table;
        assert_eq!(table(&reads), [("other".to_owned(), 5), ("slow".to_owned(), 10)].into());
        let reads = open();
        assert_eq!(table(&reads).len(), 2);
        let slow: Arc<str> = "slow".into();
        assert_eq!(reads.check(&slow), Ok(()));
        reads.note(&slow, 9);
        assert_eq!(reads.check(&slow), Ok(()));
        reads.note(&slow, 9);
        assert_eq!(reads.check(&slow).unwrap_err().limit_bytes, 10);
        assert_eq!((reads.info().runtime_table["slow"].cold_acc, reads.info().global_acc), (18, 18));
        reads.remove_limit("slow").unwrap().unwrap().now().unwrap();
        assert_eq!((reads.check(&slow), open().info().config_table.len()), (Ok(()), 1));
    }
}
