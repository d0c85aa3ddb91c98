//! How long the delay levels are: the queue entry of a delayed message holds the time of its delivery.
//!
//! The table may change between two starts. Entries that are rebuilt must hold the time that they had, so the file
//! `config/delayLevels.json` keeps each table with the place of the log from which on it holds.
//!
//! # Source
//! docs/reference/store-format.md 8.1. The file is RocketPy's own; without it the table is Apache's.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;
use rocketpy_env::{Disk, EnvError};
use rocketpy_model::PhysicalOffset;
use serde::{Deserialize, Serialize};

use crate::error::StoreError;

/// Maximum delay of a level: ten years.
const MAX_SECONDS: i64 = 10 * 366 * 86_400;
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The delay levels (`messageDelayLevel`): level 1 is the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelayLevels {
    text: String,
    ms: Vec<i64>,
}

impl DelayLevels {
    /// Maximum number of levels of a table.
    pub const MAX_COUNT: u32 = 64;
    /// Apache's table: 18 levels, 1 s to 2 h.
    pub const APACHE: &'static str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h";

    /// Number of levels.
    pub fn count(&self) -> u32 {
        self.ms.len() as u32
    }

    /// How long a level is, in milliseconds. A higher level than the last one counts as that.
    pub fn ms(&self, level: i64) -> i64 {
        self.ms[(level.clamp(1, self.ms.len() as i64) - 1) as usize]
    }
}

impl Default for DelayLevels {
    fn default() -> Self {
        Self::APACHE.parse().expect("Apache's table is one")
    }
}

impl fmt::Display for DelayLevels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for DelayLevels {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let ms = text.split_ascii_whitespace().map(level_ms).collect::<Result<Vec<_>, _>>()?;
        if ms.is_empty() || ms.len() > Self::MAX_COUNT as usize {
            return Err(format!("1 to {} levels like 30s or 5m, not {}", Self::MAX_COUNT, ms.len()));
        }
        Ok(Self { text: text.split_ascii_whitespace().collect::<Vec<_>>().join(" "), ms })
    }
}

fn level_ms(word: &str) -> Result<i64, String> {
    let number = word.trim_end_matches(|unit: char| !unit.is_ascii_digit());
    let unit_seconds = match &word[number.len()..] {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(format!("a level is a number and one of s, m, h, d, not {word:?}")),
    };
    let seconds = number.parse::<i64>().ok().and_then(|number| number.checked_mul(unit_seconds));
    match seconds {
        Some(seconds @ 1..=MAX_SECONDS) => Ok(seconds * 1000),
        _ => Err(format!("a level is 1 s to 3660 days, not {word:?}")),
    }
}

/// A table, and from where on in the log it holds.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Range {
    from: u64,
    levels: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Content {
    tables: Vec<Range>,
}

/// The tables of one store.
#[derive(Debug)]
pub struct DelayTables {
    /// The latest at the end.
    tables: RwLock<Vec<(PhysicalOffset, DelayLevels)>>,
    is_stored: AtomicBool,
}

impl Default for DelayTables {
    fn default() -> Self {
        Self::new(vec![(PhysicalOffset::ZERO, DelayLevels::default())], false)
    }
}

impl DelayTables {
    fn new(tables: Vec<(PhysicalOffset, DelayLevels)>, is_stored: bool) -> Self {
        Self { tables: RwLock::new(tables), is_stored: AtomicBool::new(is_stored) }
    }

    /// Reads the tables of a store. One that has none yet is another broker's, with these levels.
    ///
    /// # Errors
    /// [`StoreError::BadDelayLevels`], [`StoreError::Env`].
    pub fn read(disk: &impl Disk, root: &Path, others: &DelayLevels) -> Result<Self, StoreError> {
        let path = path(root);
        let bad = |reason: String| StoreError::BadDelayLevels { path: path.clone(), reason };
        let bytes = match disk.read(&path, MAX_FILE_BYTES) {
            Ok(bytes) => bytes,
            Err(error) if error.is_not_found() => {
                return Ok(Self::new(vec![(PhysicalOffset::ZERO, others.clone())], false));
            }
            Err(error) => return Err(error.into()),
        };
        let content: Content = serde_json::from_slice(&bytes).map_err(|error| bad(error.to_string()))?;
        let mut tables = Vec::new();
        for Range { from, levels } in content.tables {
            tables.push((PhysicalOffset(from), levels.parse().map_err(bad)?));
        }
        if tables.is_empty() || !tables.is_sorted_by_key(|(from, _)| *from) {
            return Err(bad("it names no table, or not in their order".to_owned()));
        }
        Ok(Self::new(tables, true))
    }

    /// How long the level of a record is, in milliseconds.
    pub(crate) fn ms(&self, level: i64, at: PhysicalOffset) -> i64 {
        let tables = self.tables.read();
        let behind = tables.partition_point(|(from, _)| *from <= at);
        tables[behind.saturating_sub(1)].1.ms(level)
    }

    /// Whether the store says which levels it has.
    pub fn is_stored(&self) -> bool {
        self.is_stored.load(Ordering::Relaxed)
    }

    /// The table of what comes from now on.
    pub fn latest(&self) -> DelayLevels {
        let tables = self.tables.read();
        tables.last().map(|(_, levels)| levels.clone()).unwrap_or_default()
    }

    /// Another table holds from a place of the log on; those of records before `min` are forgotten.
    ///
    /// # Errors
    /// The old table holds.
    ///
    /// # Durability
    /// On return the table survives a power loss.
    pub(crate) fn change(
        &self,
        disk: &impl Disk,
        root: &Path,
        levels: DelayLevels,
        from: PhysicalOffset,
        min: PhysicalOffset,
    ) -> Result<(), EnvError> {
        let mut tables = self.tables.read().clone();
        tables.retain(|(known_from, _)| *known_from < from);
        tables.push((from, levels));
        let unused = tables.iter().skip(1).take_while(|(next_from, _)| *next_from <= min).count();
        tables.drain(..unused);
        let ranges =
            tables.iter().map(|(from, levels)| Range { from: from.get(), levels: levels.to_string() });
        let content = Content { tables: ranges.collect() };
        let bytes = serde_json::to_vec_pretty(&content).expect("text and numbers become JSON");
        disk.create_dir_all(&root.join("config"))?;
        disk.replace_keeping_backup(&path(root), &bytes)?;
        *self.tables.write() = tables;
        self.is_stored.store(true, Ordering::Relaxed);
        Ok(())
    }
}

fn path(root: &Path) -> PathBuf {
    root.join("config").join("delayLevels.json")
}

#[cfg(test)]
mod tests {
    use rocketpy_env::RealDisk;

    use super::*;

    #[test]
    fn a_table_is_numbers_with_units() {
        let levels: DelayLevels = " 1s  2m 3h 4d".parse().unwrap();
        assert_eq!((levels.to_string(), levels.count()), ("1s 2m 3h 4d".to_owned(), 4));
        assert_eq!(
            [0, 1, 2, 3, 4, 99].map(|level| levels.ms(level) / 1000),
            [1, 1, 120, 10_800, 345_600, 345_600]
        );
        assert_eq!(DelayLevels::default().ms(18), 7_200_000);
        for bad in ["", "1", "s", "0s", "-1s", "1.5s", "1w", "1ms", "99999999999999999999s", "9999d", "1s,2s"]
        {
            assert!(bad.parse::<DelayLevels>().is_err(), "{bad}");
        }
        assert!("1s ".repeat(65).parse::<DelayLevels>().is_err());
    }

    #[test]
    fn each_record_keeps_the_table_of_its_time() {
        let root = tempfile::tempdir().unwrap();
        let read = || DelayTables::read(&RealDisk, root.path(), &DelayLevels::default()).unwrap();
        let tables = read();
        assert_eq!((tables.ms(1, PhysicalOffset(5)), tables.is_stored()), (1000, false));
        let others = DelayTables::read(&RealDisk, root.path(), &"4s".parse().unwrap()).unwrap();
        assert_eq!(others.ms(1, PhysicalOffset(5)), 4000, "another broker's");
        let change = |levels: &str, from, min| {
            let (from, min) = (PhysicalOffset(from), PhysicalOffset(min));
            tables.change(&RealDisk, root.path(), levels.parse().unwrap(), from, min).unwrap();
        };
        change("7s", 100, 0);
        change("8s 9s", 200, 50);
        for tables in [&tables, &read()] {
            let of = |at| tables.ms(1, PhysicalOffset(at)) / 1000;
            assert_eq!([0, 99, 100, 199, 200, 5000].map(of), [1, 1, 7, 7, 8, 8]);
            assert_eq!(tables.latest().to_string(), "8s 9s");
        }
        change("3s", 300, 250);
        assert_eq!(read().ms(1, PhysicalOffset(0)), 8000, "what no record needs is forgotten");
        RealDisk.replace(&path(root.path()), b"{}").unwrap();
        let error = DelayTables::read(&RealDisk, root.path(), &DelayLevels::default()).unwrap_err();
        assert!(error.to_string().contains("missing field `tables`"), "{error}");
    }
}
