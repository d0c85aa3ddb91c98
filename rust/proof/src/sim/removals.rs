//! What a run knows of removals, and what retention may remove by its written rules.

use std::collections::BTreeMap;
use std::time::Duration;

use super::plan::Retention;

/// Percentages of the disk, Apache's defaults. Beyond the first, old files go at any hour; beyond the second, any file; beyond
/// the third, appends are refused until the disk is below the second.
pub(super) const LIMITS: [u64; 3] = [75, 85, 90];

/// What is known of removals, over all lives of the process.
#[derive(Debug, Default)]
pub(super) struct Removals {
    /// Retention may have removed the log before this.
    pub(super) may_start: u64,
    /// The removal of the log before this was durable.
    pub(super) must_start: u64,
    /// Records of each queue of the topic with an age of its own may be hidden before this.
    pub(super) hidden_before: BTreeMap<u32, u64>,
    /// Where the log ended when a topic was deleted.
    pub(super) deleted_at: BTreeMap<String, Vec<u64>>,
    /// Percentage of the disk that other programs use.
    pub(super) used_percent: u64,
    /// Whether appends are refused on a full disk; `None` when a round failed.
    pub(super) refuses: Option<bool>,
    /// An administrator asked to remove what is old enough.
    pub(super) is_asked: bool,
    /// What the round that has not returned found when it began.
    pub(super) round: Option<Round>,
    /// A topic is half deleted: its queues do not add up to what the mark says.
    pub(super) is_deleting: bool,
    /// Log files removed by rounds that returned.
    pub(super) removed_files: u64,
    /// Deletions that returned.
    pub(super) deleted_topics: u64,
    /// How far this run of the store had appended, and when at the latest the store noted it, by the monotonic clock. The first is
    /// the end of the log at the start.
    pub(super) noted: Vec<(Duration, u64)>,
}

impl Removals {
    /// What lies at or behind it may be younger than `period_ms`, as far as the store can tell: it stays whatever its stored times say.
    pub(super) fn young_from(&self, now: Duration, period_ms: u64) -> u64 {
        let period = Duration::from_millis(period_ms);
        let old = self.noted.partition_point(|(at, _)| *at + period <= now);
        self.noted.get(old.saturating_sub(1)).map_or(0, |(_, end)| *end)
    }
}

#[derive(Debug)]
pub(super) struct LogFile {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) written_at_ms: i64,
}

/// What a round of retention finds.
#[derive(Debug)]
pub(super) struct Round {
    /// The oldest first.
    pub(super) files: Vec<LogFile>,
    pub(super) used_percent: u64,
    pub(super) is_asked: bool,
}

impl Round {
    /// Start of the first file written at or after `time_ms`; of the last file when there is none.
    pub(super) fn start_of_younger(&self, time_ms: i64) -> u64 {
        let young = self.files.iter().find(|file| file.written_at_ms >= time_ms);
        young.or(self.files.last()).map_or(0, |file| file.start)
    }

    /// The same files, each as young as it may count: no older than one in front of it, and not old at all when it ends behind
    /// `young_from`.
    pub(super) fn with_young(&self, young_from: u64, now_ms: i64) -> Self {
        let of = |latest_ms: &mut i64, file: &LogFile| {
            *latest_ms = file.written_at_ms.max(*latest_ms);
            Some(LogFile { written_at_ms: if file.end > young_from { now_ms } else { *latest_ms }, ..*file })
        };
        Self { files: self.files.iter().scan(i64::MIN, of).collect(), ..*self }
    }

    /// The latest place at which the log may start after the round, by the written rules: files go from the oldest on, the last
    /// one never.
    pub(super) fn start_after(&self, rules: &Retention, log_file: u64, now_ms: i64) -> u64 {
        let Some((last, files)) = self.files.split_last() else { return 0 };
        for (gone, file) in files.iter().enumerate() {
            let used = self.used_percent.saturating_sub(gone as u64);
            let is_time = rules.at_any_hour || self.is_asked || self.used_percent > LIMITS[0];
            let is_old = now_ms.saturating_sub(file.written_at_ms).max(0) as u64 >= rules.reserved_ms;
            let left = (self.files.len() - gone) as u64 * log_file;
            let is_long = rules.max_files.is_some_and(|most| left > most * log_file);
            let is_forced = rules.clean_forcibly && used > LIMITS[1];
            if gone == rules.files_a_round || !(is_old && is_time || is_long || is_forced) {
                return file.start;
            }
        }
        last.start
    }
}
