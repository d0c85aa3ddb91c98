//! Decides what is removed and why. Reads neither disk nor clock.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use rocketpy_env::DiskUsage;
use rocketpy_env::planted::{self, Bug};
use rocketpy_model::{PhysicalOffset, QueueOffset};

use super::RetentionConfig;
use crate::error::FullDisk;

/// A file of the log as retention sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFile {
    /// Path of the file.
    pub path: PathBuf,
    /// Physical offset of its first byte.
    pub start: PhysicalOffset,
    /// Its length.
    pub size_bytes: u64,
    /// When it was last written: its modification time, or the time of its last record when that is later.
    pub written_at_ms: i64,
}

impl LogFile {
    /// Physical offset after its last byte.
    pub fn end(&self) -> PhysicalOffset {
        self.start + self.size_bytes
    }
}

/// A folder and the file system that it is on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderSpace {
    /// The folder.
    pub path: PathBuf,
    /// How full its file system is.
    pub usage: DiskUsage,
}

/// All that a decision depends on, besides the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Situation {
    /// The files of the log, oldest first.
    pub files: Vec<LogFile>,
    /// The folders of the log.
    pub log_folders: Vec<FolderSpace>,
    /// The folder of the consume queues.
    pub queue_folder: FolderSpace,
    /// The store's clock.
    pub now_ms: i64,
    /// Records from here on were appended less than the configured age ago by the monotonic clock.
    pub young_from: PhysicalOffset,
    /// Messages at or after it wait to be stored again: files that hold one do not go because of their age.
    pub waiting_from: PhysicalOffset,
    /// Hour of the local day.
    pub hour: u32,
    /// An administrator asked for files that are old enough to go now.
    pub is_asked: bool,
    /// Appends are refused at present because space is short.
    pub is_refusing: bool,
}

/// Why files that are old enough may be removed now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Occasion {
    /// It is one of the configured hours.
    Hour(u32),
    /// An administrator asked.
    Asked,
    /// The disk has little space left.
    Disk(FullDisk),
}

/// The rule by which a file is removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// It is old enough.
    Expired {
        /// Retention time of a file, in milliseconds.
        reserved_ms: i64,
        /// Why it is removed at this moment.
        occasion: Occasion,
    },
    /// The disk is so full that age does not count.
    Forced(FullDisk),
    /// The log is longer than it may be.
    TotalSize {
        /// Length of the log with this file.
        total_bytes: u64,
        /// How long it may be.
        limit_bytes: u64,
    },
}

impl Rule {
    /// A short name of the rule.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Expired { .. } => "expired",
            Self::Forced(_) => "disk full",
            Self::TotalSize { .. } => "total size",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired { reserved_ms, occasion } => {
                write!(f, "older than {} h, and ", hours(*reserved_ms))?;
                match occasion {
                    Occasion::Hour(hour) => write!(f, "it is the hour {hour:02} of deleteWhen"),
                    Occasion::Asked => write!(f, "an administrator asked for it"),
                    Occasion::Disk(full) => full.fmt(f),
                }
            }
            Self::Forced(full) => write!(f, "age does not count: {full}"),
            Self::TotalSize { total_bytes, limit_bytes } => {
                write!(f, "the log has {total_bytes} bytes, the limit is {limit_bytes}")
            }
        }
    }
}

/// Milliseconds as hours with one decimal.
fn hours(ms: i64) -> String {
    format!("{:.1}", ms as f64 / 3_600_000.0)
}

/// A file that is removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    /// Which file.
    pub file: LogFile,
    /// Time since its last write; 0 when that is in the future.
    pub age_ms: i64,
    /// Why it is removed.
    pub rule: Rule,
}

/// Why the first file that stays is not removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Keep {
    /// It is the last one.
    Last,
    /// It is not old enough, and nothing else asks for its space.
    Young {
        /// Since its last write.
        age_ms: i64,
        /// Retention time of a file.
        reserved_ms: i64,
    },
    /// It is old enough, but it is not the hour, and the disk has space.
    NotNow,
    /// It is old enough and may go now, but holds a message that still waits for its delivery.
    Waiting,
    /// One round removes no more.
    EnoughForNow,
}

impl fmt::Display for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Last => write!(f, "the last file always stays"),
            Self::Young { age_ms, reserved_ms } => {
                write!(f, "{} h old, files stay {} h", hours(*age_ms), hours(*reserved_ms))
            }
            Self::NotNow => {
                write!(f, "old enough, but the current hour is not in deleteWhen and the disk has space")
            }
            Self::Waiting => write!(f, "old enough, but it holds a message that waits for its delivery"),
            Self::EnoughForNow => {
                write!(f, "the maximum of files for one round is reached, the next round continues")
            }
        }
    }
}

/// Planned removal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetentionPlan {
    /// Files to remove, oldest first: the log that stays has no hole.
    pub removals: Vec<Removal>,
    /// The first file that stays, and why; `None` without any file.
    pub kept: Option<(LogFile, Keep)>,
    /// Folders of the log that get no new file while another one may.
    pub full_folders: Vec<PathBuf>,
    /// Why appends are refused from now on.
    pub refusal: Option<FullDisk>,
}

/// Decides what to remove and whether to refuse appends.
///
/// If the log has several folders, the one with the most space counts, because new files go there.
///
/// On a full disk files of any age are removed, but only until the use is below the limit; Apache removes
/// `files_a_round`.
///
/// # Source
/// docs/reference/store-format.md 7.2, 7.3.
pub fn plan(situation: &Situation, config: &RetentionConfig) -> RetentionPlan {
    let mut disks = Disks::of(situation);
    let occasion = disks.occasion(situation, config);
    let mut total_bytes: u64 = situation.files.iter().map(|file| file.size_bytes).sum();
    let mut removals = Vec::new();
    let mut kept = None;
    let written_at_ms = written_in_order(&situation.files);
    for (index, (file, written_at_ms)) in situation.files.iter().zip(written_at_ms).enumerate() {
        let age_ms = situation.now_ms.saturating_sub(written_at_ms).max(0);
        let age_ms =
            if file.end() > situation.young_from { age_ms.min(config.reserved_ms() - 1) } else { age_ms };
        let is_last = index + 1 == situation.files.len();
        let decision = if is_last {
            Err(Keep::Last)
        } else {
            let one_more = if planted::has(Bug::RetentionTooEarly) { file.size_bytes } else { 0 };
            let holds_waiting = file.end() > situation.waiting_from;
            let may_expire = occasion.as_ref().filter(|_| !holds_waiting);
            let decision = decide(age_ms, total_bytes + one_more, &disks, may_expire, config);
            match decision {
                Err(Keep::NotNow) if holds_waiting && occasion.is_some() => Err(Keep::Waiting),
                other => other,
            }
        };
        match decision {
            Ok(_) if removals.len() == config.files_a_round => {
                kept = Some((file.clone(), Keep::EnoughForNow));
                break;
            }
            Ok(rule) => {
                total_bytes -= file.size_bytes;
                disks.free(file);
                removals.push(Removal { file: file.clone(), age_ms, rule });
            }
            Err(why) => {
                kept = Some((file.clone(), why));
                break;
            }
        }
    }
    assert!(removals.len() < situation.files.len().max(1), "the last file stays");
    let now = Disks::of(situation);
    RetentionPlan {
        removals,
        kept,
        full_folders: now.full_folders(config),
        refusal: now.refusal(situation.is_refusing, config),
    }
}

/// When each file was last written. The log is written from front to back: no file was written before the one in front of it, whatever
/// the clock said meanwhile.
pub(super) fn written_in_order(files: &[LogFile]) -> impl Iterator<Item = i64> {
    files.iter().scan(i64::MIN, |latest, file| {
        *latest = file.written_at_ms.max(*latest);
        Some(*latest)
    })
}

fn decide(
    age_ms: i64,
    total_bytes: u64,
    disks: &Disks<'_>,
    occasion: Option<&Occasion>,
    config: &RetentionConfig,
) -> Result<Rule, Keep> {
    let reserved_ms = config.reserved_ms();
    if age_ms >= reserved_ms
        && let Some(occasion) = occasion
    {
        return Ok(Rule::Expired { reserved_ms, occasion: occasion.clone() });
    }
    if let Some(limit_bytes) = config.max_bytes.filter(|limit| total_bytes > *limit) {
        return Ok(Rule::TotalSize { total_bytes, limit_bytes });
    }
    if config.clean_forcibly
        && let Some(full) = disks.beyond(config.force_used_percent)
    {
        return Ok(Rule::Forced(full));
    }
    Err(if age_ms >= reserved_ms { Keep::NotNow } else { Keep::Young { age_ms, reserved_ms } })
}

/// The file systems as they will be after the removals.
struct Disks<'a> {
    log: Vec<(&'a PathBuf, DiskUsage)>,
    queues: (&'a PathBuf, DiskUsage),
}

impl<'a> Disks<'a> {
    fn of(situation: &'a Situation) -> Self {
        let of = |folder: &'a FolderSpace| (&folder.path, folder.usage);
        Self { log: situation.log_folders.iter().map(of).collect(), queues: of(&situation.queue_folder) }
    }

    /// Counts a file as gone.
    fn free(&mut self, file: &LogFile) {
        let holder = self.log.iter().find(|(path, _)| file.path.parent() == Some(path));
        let Some(place) = holder.map(|(_, usage)| *usage) else { return };
        let all = self.log.iter_mut().chain([&mut self.queues]).map(|(_, usage)| usage);
        for usage in all.filter(|usage| is_same(usage, &place)) {
            usage.free_bytes = (usage.free_bytes + file.size_bytes).min(usage.total_bytes);
            usage.available_bytes = (usage.available_bytes + file.size_bytes).min(usage.free_bytes);
        }
    }

    /// The folder of the log with the most space, and that of the consume queues.
    fn deciding(&self) -> impl Iterator<Item = (&'a PathBuf, u64)> {
        let percent = |(path, usage): &(&'a PathBuf, DiskUsage)| (*path, usage.used_percent());
        let emptiest = self.log.iter().map(percent).min_by_key(|(_, percent)| *percent);
        emptiest.into_iter().chain([percent(&self.queues)])
    }

    fn beyond(&self, limit_percent: u64) -> Option<FullDisk> {
        let (path, used_percent) = self.deciding().find(|(_, percent)| *percent > limit_percent)?;
        Some(FullDisk { path: path.clone(), used_percent, limit_percent })
    }

    fn occasion(&self, situation: &Situation, config: &RetentionConfig) -> Option<Occasion> {
        if config.delete_hours.contains(situation.hour) {
            return Some(Occasion::Hour(situation.hour));
        }
        if situation.is_asked {
            return Some(Occasion::Asked);
        }
        self.beyond(config.max_used_percent).map(Occasion::Disk)
    }

    fn full_folders(&self, config: &RetentionConfig) -> Vec<PathBuf> {
        let full = self.log.iter().filter(|(_, usage)| usage.used_percent() > config.force_used_percent);
        full.map(|(path, _)| (*path).clone()).collect()
    }

    fn refusal(&self, is_refusing: bool, config: &RetentionConfig) -> Option<FullDisk> {
        let still = || if is_refusing { self.beyond(config.force_used_percent) } else { None };
        self.beyond(config.refuse_used_percent).or_else(still)
    }
}

/// Whether two folders lie on one file system.
fn is_same(a: &DiskUsage, b: &DiskUsage) -> bool {
    (a.file_system, a.total_bytes) == (b.file_system, b.total_bytes)
}

/// Maximum number of messages of a queue that one round of retention reads one by one.
const MAX_MESSAGES_A_ROUND: u64 = 1 << 16;

/// A message of a queue, as [`OldPart`] sees it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Aged {
    /// When it was stored.
    StoredAt(i64),
    /// Its record is not there any more.
    Gone,
    /// Its record is damaged: nothing says when it was stored.
    Unreadable,
}

impl From<Option<i64>> for Aged {
    fn from(stored_at_ms: Option<i64>) -> Self {
        stored_at_ms.map_or(Self::Gone, Self::StoredAt)
    }
}

/// The part of the log whose messages are older than a topic keeps them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OldPart {
    /// Everything before it is old.
    pub(super) all_before: PhysicalOffset,
    /// Nothing from here on is. In between, each message says when it was stored.
    pub(super) none_from: PhysicalOffset,
    /// Messages that were stored from here on stay.
    pub(super) stored_from_ms: i64,
}

impl OldPart {
    /// # Arguments
    /// `young_from`: as in [`Situation`], for the age of the topic.
    pub(super) fn of(files: &[LogFile], now_ms: i64, kept: Duration, young_from: PhysicalOffset) -> Self {
        let stored_from_ms = now_ms.saturating_sub(i64::try_from(kept.as_millis()).unwrap_or(i64::MAX));
        let mut written = written_in_order(files).zip(files);
        let younger = written.find(|(written_at_ms, _)| *written_at_ms >= stored_from_ms);
        let start =
            younger.map(|(_, file)| file).or(files.last()).map_or(PhysicalOffset::ZERO, |file| file.start);
        Self { all_before: start.min(young_from), none_from: young_from, stored_from_ms }
    }

    /// The first message of a queue that stays, as far as one round goes. One by one: stored times need not rise where a clock was
    /// set. A message that cannot be read goes with an old one after it, and no earlier.
    ///
    /// # Arguments
    /// `queue`: what lies between [`OldPart::all_before`] and [`OldPart::none_from`].
    pub(super) fn first_kept<E>(
        &self,
        queue: Range<QueueOffset>,
        mut look_at: impl FnMut(QueueOffset) -> Result<Aged, E>,
    ) -> Result<QueueOffset, E> {
        let end = queue.end.min(queue.start + MAX_MESSAGES_A_ROUND);
        let (mut at, mut first_kept) = (queue.start, queue.start);
        while at < end {
            match look_at(at)? {
                Aged::StoredAt(stored_at_ms) if stored_at_ms >= self.stored_from_ms => break,
                Aged::StoredAt(_) | Aged::Gone => first_kept = at + 1,
                Aged::Unreadable => {}
            }
            at += 1;
        }
        Ok(first_kept)
    }
}
