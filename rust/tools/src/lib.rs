//! Tools for the folder of a store: facts, checks, repair, snapshots, and messages from one store to another.
//!
//! All of them read by position and without a lock, so that they work while a server runs. A tool that changes a folder
//! takes its lock.

mod action;
mod config_file;
mod cut;
mod damage;
mod diff;
mod facts;
mod folder_copy;
mod index;
mod keyed;
mod manifest;
mod queues;
mod repair;
mod report;
mod select;
mod selection;
mod snapshot;
mod transfer;
mod verify;
mod waiting;
mod waiting_check;
mod walk;

use std::path::PathBuf;

pub use action::RepairAction;
pub use cut::{cut, plan_cut};
pub use diff::{DiffLog, DiffRecord, LogDiff, Relation, diff};
pub use facts::{LogFacts, MarkFacts, QueueFacts, StoreFacts, TopicFacts, facts};
pub use repair::{Repair, plan_repair, repair};
pub use report::{Problem, ProblemKind, VerifyReport};
use rocketpy_env::{Disk, EnvError};
use rocketpy_model::PhysicalOffset;
use rocketpy_store::files::{Condition, LogFiles, file_name};
use rocketpy_store::reader::{ReadError, StoreReader};
use rocketpy_store::{AppendError, StoreError};
pub use select::Selected;
pub use selection::Selection;
pub use snapshot::{Snapshot, snapshot};
pub use transfer::{Transfer, TransferReport};
pub use verify::verify;
pub use waiting::WaitingCounts;

/// A tool could not do its work.
#[derive(Debug, Clone, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum ToolError {
    /// The store could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A file operation failed.
    #[error(transparent)]
    Env(#[from] EnvError),
    /// The store could not be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file that says how far the broker is cannot be read.
    #[error("{} does not say how far the broker is: {reason}", path.display())]
    BadProgress { path: PathBuf, reason: String },
    /// The target store refused a record. The records before it are stored.
    #[error("record {number} is refused: {cause}")]
    Refused { number: u64, cause: AppendError },
    /// A transfer ended early. The messages before are stored.
    #[error("the transfer ended after {messages} messages: {cause}")]
    Interrupted { messages: u64, cause: Box<Self> },
    /// The folder that a tool should make exists and is not empty.
    #[error("the folder is not empty: {}", path.display())]
    TargetNotEmpty { path: PathBuf },
    /// The folder that a tool should make lies inside the store.
    #[error("folder is inside the store: {}", path.display())]
    TargetInside { path: PathBuf },
    /// The checkpoint did not follow the log within the time that a snapshot waits.
    #[error("checkpoint is at {found}, but the log was dispatched to {wanted} when the snapshot began")]
    CheckpointBehind { found: PhysicalOffset, wanted: PhysicalOffset },
    /// A damaged part of the log is too short to hold a record in its place.
    #[error("{size_bytes} damaged bytes at {physical_offset} are too few for a record in their place: {}", path.display())]
    HoleTooShort { path: PathBuf, physical_offset: PhysicalOffset, size_bytes: u64 },
    /// A log cannot be cut where it has nothing.
    #[error("{at} is outside the log, which spans {start} to {end}")]
    OutsideLog { at: PhysicalOffset, start: PhysicalOffset, end: PhysicalOffset },
    /// A log can be cut where a record begins.
    #[error("no record begins at {at}; the last record boundary before it is {last}")]
    NoRecordAt { at: PhysicalOffset, last: PhysicalOffset },
    /// The file is not a topic table of a store.
    #[error("not a table of topics ({reason}): {}", path.display())]
    BadTopics { path: PathBuf, reason: String },
    /// The caller stopped the tool.
    #[error("stopped before the end")]
    Stopped,
}

impl ToolError {
    /// Whether the same call may succeed later without a change of its arguments or of the folders. A transfer that has
    /// stored messages is not retried: it would store them again.
    #[must_use]
    pub fn retryable(&self) -> bool {
        match self {
            Self::Read(error) => error.retryable(),
            Self::Env(error) => error.retryable(),
            Self::Store(error) => error.retryable(),
            Self::CheckpointBehind { .. } => true,
            Self::Refused { .. }
            | Self::Interrupted { .. }
            | Self::TargetNotEmpty { .. }
            | Self::TargetInside { .. }
            | Self::HoleTooShort { .. }
            | Self::OutsideLog { .. }
            | Self::NoRecordAt { .. }
            | Self::BadTopics { .. }
            | Self::BadProgress { .. }
            | Self::Stopped => false,
        }
    }

    /// Whether a tool that changes a folder may have done a part of its work. Facts, checks and selections change nothing.
    #[must_use]
    pub fn may_have_been_applied(&self) -> bool {
        match self {
            Self::Refused { number, .. } => *number > 0,
            Self::Store(error) => error.may_have_been_applied(),
            Self::Read(_)
            | Self::Env(_)
            | Self::Interrupted { .. }
            | Self::BadTopics { .. }
            | Self::BadProgress { .. }
            | Self::Stopped => true,
            Self::TargetNotEmpty { .. }
            | Self::TargetInside { .. }
            | Self::CheckpointBehind { .. }
            | Self::OutsideLog { .. }
            | Self::NoRecordAt { .. }
            | Self::HoleTooShort { .. } => false,
        }
    }

    /// The way out, for a person.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Env(error) | Self::Read(ReadError::Env(error)) => error.hint().map(str::to_owned),
            Self::Store(error) => error.hint(),
            Self::Refused { cause, .. } => cause.hint().map(str::to_owned),
            Self::Interrupted { cause, .. } => cause.hint(),
            Self::TargetNotEmpty { .. } => Some("name a folder that is new or empty".to_owned()),
            Self::TargetInside { .. } => Some("name a folder outside the store".to_owned()),
            Self::CheckpointBehind { .. } => {
                Some("the server writes it every second: try again when the disk is less busy".to_owned())
            }
            Self::HoleTooShort { .. } => Some("restore the file from a copy or from a slave".to_owned()),
            Self::OutsideLog { .. } | Self::NoRecordAt { .. } => {
                Some("`rocketpy store diff` shows where two logs diverge".to_owned())
            }
            Self::BadTopics { .. } | Self::BadProgress { .. } => Some(
                "restore the file from a copy, such as a snapshot: its backup, .bak, is not usable"
                    .to_owned(),
            ),
            Self::Read(_) | Self::Stopped => None,
        }
    }
}

/// How far a tool has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    pub done_bytes: u64,
    /// Bytes in all, as far as it is known.
    pub total_bytes: u64,
}

/// Receives the progress of a tool many times a second, and returns whether the tool continues.
pub type Watch<'a> = &'a mut dyn FnMut(Progress) -> bool;

/// Where the log started before its first files were lost; `start` is where it starts now. The mark is read after the
/// files were listed, because retention writes it before it removes a file.
fn lost_start<D: Disk>(
    reader: &StoreReader<D>,
    start: PhysicalOffset,
) -> Result<Option<PhysicalOffset>, ReadError> {
    let mark = Condition::read(&**reader.disk(), reader.root())?.mark;
    Ok(mark.and_then(|mark| mark.log_from).filter(|&from| from < start))
}

/// Refuses a log with missing files, as a server would.
///
/// # Errors
/// [`StoreError::MissingFile`].
fn check_log_files<D: Disk>(reader: &StoreReader<D>, log: &LogFiles<D>) -> Result<(), ToolError> {
    let end = log.end_of_files();
    let lost = lost_start(reader, log.start())?
        .or_else(|| log.holes().first().map(|hole| hole.0))
        .or_else(|| log.condition.mark.filter(|mark| mark.log_to > end).map(|_| end));
    match lost {
        Some(from) => Err(StoreError::MissingFile {
            path: reader.log_dirs()[0].join(file_name(from.get())),
            expected: from,
        }
        .into()),
        None => Ok(()),
    }
}

/// Reports how far a tool has come.
///
/// # Errors
/// [`ToolError::Stopped`] when the watcher stops the tool.
fn tell(watch: Watch<'_>, done_bytes: u64, total_bytes: u64) -> Result<(), ToolError> {
    watch(Progress { done_bytes, total_bytes }).then_some(()).ok_or(ToolError::Stopped)
}
