//! What a run knows of removals, and what retention may remove by the rules as they are written.

use std::collections::BTreeMap;

use super::plan::Retention;

/// Percentages of the disk, by Apache's defaults: beyond the first what is old enough goes, beyond the second anything, and
/// beyond the third nothing is appended until it is below the second.
pub(super) const LIMITS: [u64; 3] = [75, 85, 90];

/// What is known of removals, over all lives of the process.
#[derive(Debug, Default)]
pub(super) struct Removals {
    /// Retention may have removed the log before this.
    pub(super) may_start: u64,
    /// Its removal of the log before this was durable.
    pub(super) must_start: u64,
    /// Where the log ended when a topic was deleted.
    pub(super) deleted_at: BTreeMap<String, Vec<u64>>,
    /// Of the disk, in percent: what others put there.
    pub(super) used_percent: u64,
    /// Whether appends are refused for want of space; `None` when a round failed.
    pub(super) refuses: Option<bool>,
    /// Somebody asked for what is old enough.
    pub(super) is_asked: bool,
    /// What there was when the round began that has not come back.
    pub(super) round: Option<Round>,
    /// A topic is half deleted: its queues do not add up to what the mark says.
    pub(super) is_deleting: bool,
    /// Rounds that came back removed so many files of the log.
    pub(super) removed_files: u64,
    /// Deletions that came back.
    pub(super) deleted_topics: u64,
}

/// A file of the log.
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
    /// Where the log starts at most after the round, by the rules as they are written: files go from the oldest on, the last
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
