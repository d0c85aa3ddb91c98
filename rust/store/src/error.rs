//! Errors of a store, with the facts, whether a retry helps and whether the call may have been applied.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rocketpy_env::{EnvError, LockHolder};
use rocketpy_model::name::NameError;
use rocketpy_model::{PhysicalOffset, QueueOffset};

/// A store could not be opened, or stopped working.
#[derive(Debug, Clone, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum StoreError {
    /// A file operation failed.
    #[error(transparent)]
    Env(#[from] EnvError),
    /// A configuration value is out of its bounds.
    #[error("store configuration {field} must be {allowed}: {value}")]
    BadConfig { field: &'static str, value: u64, allowed: &'static str },
    /// The folder holds something else than a store.
    #[error("folder is not a store but contains {found}: {}", path.display())]
    ForeignFolder { path: PathBuf, found: String },
    /// A folder of the log that is only read is not there.
    #[error("read-only commit log folder is missing: {}", path.display())]
    MissingFolder { path: PathBuf },
    /// Another process, or another store of this process, has the folder.
    #[error("the store folder is in use by {holder}: {}", path.display())]
    Locked { path: PathBuf, holder: LockHolder },
    /// A file in a folder of numbered files has another name.
    #[error("unexpected file in a folder of numbered files: {}", path.display())]
    UnexpectedFile { path: PathBuf },
    /// A file has another size than the configured one.
    #[error("file size {found_bytes} differs from the configured {expected_bytes}: {}", path.display())]
    WrongFileSize {
        path: PathBuf,
        found_bytes: u64,
        expected_bytes: u64,
        /// Whether another file next to it has the configured size.
        others_fit: bool,
    },
    /// The log is damaged before the point up to which it was known to be durable.
    #[error(
        "the log is damaged at physical offset {physical_offset}, before the durable end {durable_to} ({reason}): {}",
        path.display()
    )]
    InteriorDamage {
        path: PathBuf,
        physical_offset: PhysicalOffset,
        durable_to: PhysicalOffset,
        reason: String,
    },
    /// The log is damaged where no process that was killed can have left it so: sound records lie behind, and what is written stays
    /// in memory until the machine stops.
    #[error(
        "the log is damaged at physical offset {physical_offset} ({reason}), followed by sound records: {records}: {}",
        path.display()
    )]
    DamageAmongRecords { path: PathBuf, physical_offset: PhysicalOffset, records: u64, reason: String },
    /// The checkpoint states a time that no program can have written.
    #[error("the checkpoint is damaged, its time of {found_ms} ms is impossible: {}", path.display())]
    BadCheckpoint { path: PathBuf, found_ms: i64 },
    /// The tables of delay levels cannot be read.
    #[error("cannot use the tables of delay levels ({reason}): {}", path.display())]
    BadDelayLevels { path: PathBuf, reason: String },
    /// Another version of RocketPy wrote the store in a format that this one cannot read.
    #[error("the store has format {found} and this RocketPy supports format {known}: {}", path.display())]
    UnknownVersion { path: PathBuf, found: u8, known: u8 },
    /// A commit log file is missing: between two others, or at an end of the log.
    #[error("commit log files are missing, expected the file that starts at {expected}: {}", path.display())]
    MissingFile { path: PathBuf, expected: PhysicalOffset },
    /// A flush failed once. No later flush is trusted.
    #[error("the store refuses writes because a flush failed: {cause}")]
    Poisoned { cause: Arc<EnvError> },
    /// An assertion in the write path failed: a defect of the store. It refuses writes from then on.
    #[error("the store refuses writes because one of its assertions failed: {text}")]
    AssertionFailed { text: Arc<str> },
    /// The store was shut down.
    #[error("the store is shut down")]
    ShutDown,
    /// The log could not be flushed before a change that depends on it.
    #[error("nothing was changed: {0}")]
    NotFlushed(FlushError),
    /// A key was looked up in a store that keeps no index.
    #[error("the store has no key index")]
    NoIndex,
    /// A consume queue entry leads to bytes that are not its record.
    #[error(
        "consume queue entry {queue_offset} of {topic}-{queue_id} does not point to its record: {physical_offset}"
    )]
    BrokenEntry { topic: Arc<str>, queue_id: u32, queue_offset: QueueOffset, physical_offset: PhysicalOffset },
    /// A record was met that is not what was written, or cannot be read.
    #[error("the log is damaged at physical offset {physical_offset} ({reason}): {}", path.display())]
    DamagedLog { path: PathBuf, physical_offset: PhysicalOffset, reason: String },
}

/// Minimum size of a commit log file, which consists of whole pages.
const LEAST_LOG_FILE: u64 = 16 << 10;
const PAGE: u64 = 4096;

fn is_of_queue(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "consumequeue")
}

/// Whether a file of this size was cut off rather than made so.
fn is_cut_off(path: &Path, found_bytes: u64, others_fit: bool) -> bool {
    others_fit
        || match is_of_queue(path) {
            true => !found_bytes.is_multiple_of(20) || found_bytes == 0,
            false => found_bytes < LEAST_LOG_FILE || !found_bytes.is_multiple_of(PAGE),
        }
}

/// Which key says the size, and what to do with a file that cannot have been made so.
fn wrong_file_size_hint(path: &Path, found_bytes: u64, others_fit: bool) -> String {
    let is_of_queue = is_of_queue(path);
    let key = if is_of_queue { "mappedFileSizeConsumeQueue" } else { "mappedFileSizeCommitLog" };
    let set = format!(
        "the file size of a store cannot be changed: set {key}={found_bytes} if its files were created with that size"
    );
    match (is_cut_off(path, found_bytes, others_fit), is_of_queue) {
        (true, true) => "the file was truncated: remove the folder consumequeue, the next start rebuilds it from the log".to_owned(),
        (true, false) => "the file was truncated: restore it from a backup or from a slave; `rocketpy store dump` shows the remaining messages".to_owned(),
        (false, true) => format!("{set}; if this file was truncated, remove the folder consumequeue: the next start rebuilds it"),
        (false, false) => format!("{set}; if this file was truncated, restore it from a backup, or give up the missing part with `rocketpy store repair`, then set the key"),
    }
}

impl StoreError {
    /// Advice for an operator.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Env(error) => error.hint().map(str::to_owned),
            Self::NoIndex => Some("set messageIndexEnable=true; the next start builds the index from the log".to_owned()),
            Self::BadConfig { field, allowed, .. } => Some(format!("set {field} to {allowed}")),
            Self::ForeignFolder { .. } => {
                Some("choose an empty or a new folder, or the folder of a store".to_owned())
            }
            Self::MissingFolder { .. } => Some(
                "mount it, or remove it from readOnlyCommitLogStorePaths if it no longer holds a file of the log".to_owned(),
            ),
            Self::Locked { holder: LockHolder::ThisProcess, .. } => {
                Some("close the other store first, or choose another folder".to_owned())
            }
            Self::Locked { holder, .. } => Some(format!("stop {holder}, or choose another folder")),
            Self::UnexpectedFile { .. } => Some("move that file out of the store".to_owned()),
            Self::WrongFileSize { path, found_bytes, others_fit, .. } => {
                Some(wrong_file_size_hint(path, *found_bytes, *others_fit))
            }
            Self::BadCheckpoint { .. } => Some(
                "nothing was changed; restore it from a backup, or move it away after `rocketpy store verify` has found the log sound: \
                 without it the start reads the whole log and treats the first damaged record as its end"
                    .to_owned(),
            ),
            Self::BadDelayLevels { .. } => Some(
                "nothing was changed; restore it from a backup, or remove it if `messageDelayLevel` was never set".to_owned(),
            ),
            Self::UnknownVersion { .. } => Some(
                "nothing was changed; open the folder with the version of RocketPy that wrote it; to convert it, write its messages as JSON \
                 lines with that version (`rocketpy store dump FOLDER --format jsonl`), and read them with this one (`rocketpy store import \
                 FILE NEW-FOLDER`)"
                    .to_owned(),
            ),
            Self::MissingFile { .. } => Some(
                "nothing was changed; mount the missing folder or restore the missing files from a backup or a slave; otherwise, also if \
                 another program removed old files, preview the changes of `rocketpy store repair`"
                    .to_owned(),
            ),
            Self::DamagedLog { .. } => {
                Some("stop the server and preview the changes of `rocketpy store repair`, or restore the file".to_owned())
            }
            Self::InteriorDamage { .. } | Self::DamageAmongRecords { .. } => {
                Some("nothing was changed; restore the file from a backup or from a slave, or preview the changes of `rocketpy store repair`".to_owned())
            }
            Self::Poisoned { .. } | Self::NotFlushed(_) => {
                Some("check the disk, then start again: recovery keeps all durable records".to_owned())
            }
            Self::AssertionFailed { .. } => Some(
                "report this defect with the log of the server; the next start recovers all durable records".to_owned(),
            ),
            Self::BrokenEntry { .. } => Some(
                "stop the server and run `rocketpy store verify DIR`, which reports whether the record or the entry is damaged; then preview \
                 the changes of `rocketpy store repair DIR`"
                    .to_owned(),
            ),
            Self::ShutDown => None,
        }
    }

    /// Whether bytes of the store are not what was written there; else the configuration or the folder is at fault.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        match self {
            Self::WrongFileSize { path, found_bytes, others_fit, .. } => {
                is_cut_off(path, *found_bytes, *others_fit)
            }
            Self::Env(EnvError::Unreadable { .. })
            | Self::BadCheckpoint { .. }
            | Self::InteriorDamage { .. }
            | Self::DamageAmongRecords { .. }
            | Self::DamagedLog { .. }
            | Self::MissingFile { .. }
            | Self::BrokenEntry { .. } => true,
            _ => false,
        }
    }

    /// Whether the same call may succeed later without a change of the folder or the configuration.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Env(error) => error.retryable(),
            Self::Locked { .. } => true,
            _ => false,
        }
    }

    /// Whether the call may have changed something on disk although this error came back. A change of many files may have
    /// done a part of them before it met a file that could not be opened.
    pub fn may_have_been_applied(&self) -> bool {
        matches!(
            self,
            Self::Env(_)
                | Self::Poisoned { .. }
                | Self::AssertionFailed { .. }
                | Self::DamagedLog { .. }
                | Self::ShutDown
        )
    }
}

/// Appended records did not reach the consume queues. Dispatch retries by itself.
#[derive(Debug, Clone, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum DispatchError {
    /// A file operation on queues or index failed.
    #[error(transparent)]
    Env(#[from] EnvError),
    /// No record at the offset of the next record.
    #[error("the log is damaged at physical offset {physical_offset} ({reason}): {}", path.display())]
    Damage { path: PathBuf, physical_offset: PhysicalOffset, reason: String },
}

impl From<DispatchError> for StoreError {
    fn from(error: DispatchError) -> Self {
        match error {
            DispatchError::Env(error) => Self::Env(error),
            DispatchError::Damage { path, physical_offset, reason } => {
                Self::DamagedLog { path, physical_offset, reason }
            }
        }
    }
}

/// A file system that is fuller than it may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FullDisk {
    /// A folder on it.
    pub path: PathBuf,
    /// How full it is.
    pub used_percent: u64,
    /// How full it may be.
    pub limit_percent: u64,
}

impl fmt::Display for FullDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, used_percent, limit_percent } = self;
        write!(f, "the disk is {used_percent} % full, the limit is {limit_percent} %: {}", path.display())
    }
}

/// A record was not appended.
#[derive(Debug, Clone, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum AppendError {
    /// The topic may not become the name of a folder.
    #[error(transparent)]
    BadTopic(#[from] NameError),
    /// The topic is longer than a record can hold.
    #[error("topic length must be 1 to {limit_bytes} bytes: {size_bytes}")]
    TopicLength { size_bytes: usize, limit_bytes: usize },
    /// The properties text is longer than a record can hold.
    #[error("properties exceed {limit_bytes} bytes: {size_bytes}")]
    PropertiesTooLong { size_bytes: usize, limit_bytes: usize },
    /// The body is longer than a record can hold.
    #[error("message body exceeds {limit_bytes} bytes: {size_bytes}")]
    BodyTooLong { size_bytes: usize, limit_bytes: usize },
    /// The record, or the records of a batch, which stay together, are longer than a commit log file.
    #[error("record or batch of {size_bytes} bytes exceeds a commit log file of {file_bytes} bytes")]
    LongerThanFile { size_bytes: usize, file_bytes: u64 },
    /// The body of a batch is not a batch.
    #[error("cannot decode the batch: {reason}")]
    BadBatch { reason: String },
    /// The disk is full: no new commit log file could be made. Appends are accepted again once there is space.
    #[error("no space left for a commit log file of {needed_bytes} bytes: {}", path.display())]
    DiskFull { path: PathBuf, needed_bytes: u64 },
    /// The disk is fuller than it may be. Appends are accepted again once there is space.
    #[error("the disk is {used_percent} % full, messages are refused above {limit_percent} %: {}", path.display())]
    DiskNearlyFull { path: PathBuf, used_percent: u64, limit_percent: u64 },
    /// The next commit log file is being made, and this takes longer than a sender can wait.
    #[error("the disk is busy: the next commit log file is still being created after {} ms: {}", waited.as_millis(), path.display())]
    Busy { path: PathBuf, waited: Duration },
    /// Appends came faster than the disk takes them, and the wait for it was too long.
    #[error("the disk is busy: {unflushed_bytes} bytes of the log are not flushed, the limit is {limit_bytes}: {}", path.display())]
    Behind { path: PathBuf, unflushed_bytes: u64, limit_bytes: u64 },
    /// Appends came faster than their consume queue entries are written, and the wait for them was too long.
    #[error("the store is busy: {undispatched_bytes} bytes of the log are not in consume queues, the limit is {limit_bytes}: {}", path.display())]
    DispatchBehind { path: PathBuf, undispatched_bytes: u64, limit_bytes: u64 },
    /// A listener lets no more appends wait for the disk or for dispatch.
    #[error("the store is busy: too many appends already wait for the disk")]
    TooManyWait,
    /// No new commit log file could be made for another reason.
    #[error("cannot create a commit log file: {cause}")]
    NoFile { cause: Arc<EnvError> },
    /// A flush failed once.
    #[error("the store refuses writes because a flush failed: {cause}")]
    Poisoned { cause: Arc<EnvError> },
    /// A consume queue could not be written. Appends are accepted again once it can.
    #[error("the store refuses writes because consume queues are not writable: {cause}")]
    QueueNotWriteable { cause: Arc<DispatchError> },
    /// The store was shut down.
    #[error("the store is shut down")]
    ShutDown,
}

impl AppendError {
    /// Whether this store can never take the message, while it takes others: for its size or its topic.
    pub const fn rejects_message(&self) -> bool {
        matches!(
            self,
            Self::BadTopic(_)
                | Self::TopicLength { .. }
                | Self::PropertiesTooLong { .. }
                | Self::BodyTooLong { .. }
                | Self::LongerThanFile { .. }
        )
    }

    /// Whether the same append may succeed later. None of these errors leaves anything of the record behind.
    pub fn retryable(&self) -> bool {
        matches!(
            self,
            Self::DiskFull { .. }
                | Self::DiskNearlyFull { .. }
                | Self::Busy { .. }
                | Self::Behind { .. }
                | Self::DispatchBehind { .. }
                | Self::TooManyWait
                | Self::NoFile { .. }
                | Self::QueueNotWriteable { .. }
        )
    }

    /// Never: all of these errors come before the first byte of the record is in the log.
    pub fn may_have_been_applied(&self) -> bool {
        false
    }

    /// Advice for an operator.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::QueueNotWriteable { cause } if matches!(**cause, DispatchError::Damage { .. }) => {
                Some("stop the server and preview the changes of `rocketpy store repair`")
            }
            Self::DiskFull { .. } => Some(
                "free disk space, then writes continue automatically; only a new store folder can have smaller files (mappedFileSizeCommitLog)",
            ),
            Self::DiskNearlyFull { .. } | Self::QueueNotWriteable { .. } => {
                Some("free disk space; writes then continue automatically")
            }
            Self::Busy { .. } | Self::Behind { .. } | Self::DispatchBehind { .. } | Self::TooManyWait => {
                Some("send again later; writes continue automatically")
            }
            Self::NoFile { .. } => {
                Some("check the commit log folder and its permissions; writes then continue automatically")
            }
            Self::Poisoned { .. } => Some("check the disk, then start the server again"),
            Self::BodyTooLong { .. } => Some("send a smaller message"),
            Self::LongerThanFile { .. } => Some(
                "send a smaller message or fewer messages in one batch; only a new store folder can have larger files (mappedFileSizeCommitLog)",
            ),
            _ => None,
        }
    }
}

/// Records that were copied from another store's log were not appended, or not all of them.
#[derive(Debug, Clone, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum ReplicateError {
    /// The copied bytes do not continue this log.
    #[error("copied records must start at the end of the log, {end}: {at}")]
    WrongPlace { at: PhysicalOffset, end: PhysicalOffset },
    /// The copied bytes end inside a record. What was kept back belongs before the next bytes.
    #[error(
        "the copied record at physical offset {physical_offset} is incomplete, bytes received: {size_bytes}"
    )]
    PartialRecord { physical_offset: PhysicalOffset, size_bytes: usize },
    /// The copied bytes are not what the other store wrote, or hold what no store writes.
    #[error("the copied record at physical offset {physical_offset} is damaged: {reason}")]
    Damage { physical_offset: PhysicalOffset, reason: String },
    /// The copied record leaves a hole in its queue that is longer than a file of the queue, or has a number beyond all files.
    #[error(
        "queue offset of the copied record at physical offset {physical_offset} leaves a hole after {expected} in {topic}-{queue_id}: {queue_offset}"
    )]
    QueueOffset {
        topic: Arc<str>,
        queue_id: u32,
        queue_offset: QueueOffset,
        expected: QueueOffset,
        physical_offset: PhysicalOffset,
    },
    /// The store takes no appends at the moment.
    #[error(transparent)]
    Refused(#[from] AppendError),
    /// The checkpoint could not be written, or the folder of a former queue could not be removed, before the records that need it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ReplicateError {
    /// Whether the same bytes may be taken later.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Refused(error) => error.retryable(),
            Self::Store(error) => error.retryable(),
            _ => false,
        }
    }

    /// Whether some of the records may be in the log. Its end says which.
    pub fn may_have_been_applied(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::Store(_))
    }

    /// Advice for an operator.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::WrongPlace { .. } => Some(
                "the slave copies from the end of its own log; if the master's log does not contain that offset, copy the store of the master again"
                    .to_owned(),
            ),
            Self::PartialRecord { .. } => None,
            Self::Damage { .. } => Some(
                "nothing was changed; connect again, and if the error persists, run `rocketpy store verify` on the store of the master, and \
                 compare mappedFileSizeCommitLog of both"
                    .to_owned(),
            ),
            Self::QueueOffset { .. } => Some(
                "nothing was changed; run `rocketpy store verify` on the store of the master, or copy its store again".to_owned(),
            ),
            Self::Refused(error) => error.hint().map(str::to_owned),
            Self::Store(error) => error.hint(),
        }
    }
}

/// A record is not known to be durable. It may be stored.
#[derive(Debug, Clone, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum FlushError {
    /// The flush did not cover the record in time.
    #[error("the flush did not reach {end} within {} ms: {flushed}", waited.as_millis())]
    TimedOut { end: PhysicalOffset, flushed: PhysicalOffset, waited: Duration },
    /// A flush failed; the record may or may not survive.
    #[error("cannot flush the log: {cause}")]
    Poisoned { cause: Arc<EnvError> },
    /// Nothing is written up to there: the offset is not one that an append returned.
    #[error("offset to flush to must not exceed the end of the log, {wrote}: {end}")]
    PastEnd { end: PhysicalOffset, wrote: PhysicalOffset },
}

impl FlushError {
    /// Whether a second wait may succeed. The record is not to be appended again: it is there.
    pub fn retryable(&self) -> bool {
        matches!(self, Self::TimedOut { .. })
    }

    /// Whether the record may survive a power loss although this error came back.
    pub fn may_have_been_applied(&self) -> bool {
        match self {
            Self::TimedOut { .. } | Self::Poisoned { .. } => true,
            Self::PastEnd { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed_flush() -> Arc<EnvError> {
        let source = std::io::Error::from_raw_os_error(5);
        Arc::new(EnvError::from_flush("flush", Path::new("/store"), source))
    }

    #[test]
    fn a_wait_for_a_flush_may_be_repeated_and_a_failed_flush_may_not() {
        let (end, flushed) = (PhysicalOffset(9), PhysicalOffset(5));
        let late = FlushError::TimedOut { end, flushed, waited: Duration::from_secs(1) };
        assert!(late.retryable() && late.may_have_been_applied());
        let failed = FlushError::Poisoned { cause: failed_flush() };
        assert!(!failed.retryable() && failed.may_have_been_applied());
        let wrong = FlushError::PastEnd { end, wrote: flushed };
        assert!(!wrong.retryable() && !wrong.may_have_been_applied());
    }

    #[test]
    fn a_change_that_ends_in_a_file_that_does_not_open_may_be_half_done() {
        let source = std::io::Error::from_raw_os_error(24);
        let error = StoreError::from(EnvError::from_io("open", Path::new("/store/consumequeue"), source));
        assert!(error.retryable() && error.may_have_been_applied());
        assert!(StoreError::ShutDown.may_have_been_applied(), "a close that did not get to the end");
        assert!(!StoreError::NoIndex.may_have_been_applied());
    }

    #[test]
    fn an_entry_without_its_record_does_not_say_which_of_the_two_is_damaged() {
        let (queue_offset, physical_offset) = (QueueOffset(7), PhysicalOffset(700));
        let error = StoreError::BrokenEntry { topic: "t".into(), queue_id: 0, queue_offset, physical_offset };
        let hint = error.hint().unwrap();
        assert!(error.is_damage() && hint.contains("store verify") && !hint.contains("remove"), "{hint}");
    }

    #[test]
    fn damage_met_by_dispatch_is_damage_and_not_an_error_of_the_disk() {
        let (path, physical_offset) = (PathBuf::from("/store/commitlog/0"), PhysicalOffset(7));
        let damage = DispatchError::Damage { path, physical_offset, reason: "no magic".to_owned() };
        let error = StoreError::from(damage.clone());
        assert!(error.is_damage() && !error.retryable() && error.may_have_been_applied());
        assert_eq!(error.to_string(), damage.to_string());
        assert!(!StoreError::from(DispatchError::from((*failed_flush()).clone())).is_damage());
        let refused = AppendError::QueueNotWriteable { cause: Arc::new(damage) };
        assert!(refused.hint().unwrap().contains("repair") && !refused.may_have_been_applied());
    }
}
