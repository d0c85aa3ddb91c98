//! What a check of a store found.

use std::path::PathBuf;

use rocketpy_model::{PhysicalOffset, QueueOffset};
use serde::Serialize;

use crate::waiting::WaitingCounts;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    /// Bytes of the log that are no sound record.
    DamagedRecord,
    /// Files of the log are missing between two others.
    MissingLogFiles,
    /// The log starts behind the start that the checkpoint states.
    LogStartsLate,
    /// The log ends before what was durable according to the checkpoint.
    LogEndsEarly,
    /// The checkpoint has a time that no clock shows.
    BadCheckpoint,
    /// Consume queues differ from the checkpoint.
    IncompleteQueues,
    /// A consume queue entry leads to where no record begins.
    EntryWithoutRecord,
    /// A consume queue entry differs from its record.
    EntryDiffers,
    /// A record has no consume queue entry.
    RecordWithoutEntry,
    /// A file has an impossible name or length.
    BadFile,
    /// An index entry leads to where no record with its key begins.
    IndexEntryWithoutRecord,
    /// A key of a record is not in the index.
    KeyWithoutIndexEntry,
    /// The head of an index file, or a chain of its entries, contradicts its entries.
    IndexDiffers,
    /// A file that says how far the broker is with waiting messages cannot be decoded.
    BadProgress,
    /// Such a file names a place behind the end of its queue.
    ProgressAhead,
    /// A mark of a transaction names no half message.
    BadMark,
    /// Wheel or log of the timers disagrees with the timer topic, or with each other.
    TimersDiffer,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// What is wrong.
    pub kind: ProblemKind,
    /// The file, or the folder if there is no file.
    pub path: PathBuf,
    /// Where in the file, in bytes.
    pub file_offset: u64,
    /// The place in the log.
    pub physical_offset: Option<PhysicalOffset>,
    /// Damaged or missing bytes.
    pub size_bytes: Option<u64>,
    /// The topic concerned.
    pub topic: Option<String>,
    /// The queue of that topic.
    pub queue_id: Option<u32>,
    /// The entry of that queue.
    pub queue_offset: Option<QueueOffset>,
    /// What is there, for a person.
    pub found: String,
    /// What should be there, for a person.
    pub expected: String,
}

impl Problem {
    pub(crate) fn new(
        kind: ProblemKind,
        path: PathBuf,
        file_offset: u64,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            path,
            file_offset,
            physical_offset: None,
            size_bytes: None,
            topic: None,
            queue_id: None,
            queue_offset: None,
            found: found.into(),
            expected: expected.into(),
        }
    }

    pub(crate) fn in_log(self, physical_offset: PhysicalOffset) -> Self {
        Self { physical_offset: Some(physical_offset), ..self }
    }

    pub(crate) fn of_queue(self, topic: &str, queue_id: u32, queue_offset: QueueOffset) -> Self {
        Self {
            topic: Some(topic.to_owned()),
            queue_id: Some(queue_id),
            queue_offset: Some(queue_offset),
            ..self
        }
    }
}

/// What a check of a store covered and found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// The store's folder.
    pub path: PathBuf,
    /// A process has the store open.
    pub is_live: bool,
    /// The last process closed the store.
    pub is_closed: bool,
    /// The checkpoint has a valid mark of ours.
    pub has_mark: bool,
    /// First byte of the log.
    pub log_start: PhysicalOffset,
    /// Where the check ended: the end of the log, or how far a server had dispatched when the check began.
    pub log_end: PhysicalOffset,
    /// Bytes behind the end of the log that are not zero: a torn tail, which the next start cuts off.
    pub tail_bytes: u64,
    pub log_files: u64,
    /// Sound records.
    pub records: u64,
    /// Those of them that need a checksum of the whole record, and have it.
    pub records_with_own_check: u64,
    /// Consume queues.
    pub queues: u64,
    /// Consume queue entries that lead to their record.
    pub entries: u64,
    /// Consume queue entries that are fillers.
    pub filler_entries: u64,
    /// Records of a queue that does not exist, or that started again later: their topic was deleted.
    pub records_without_queue: u64,
    /// Records that the next start, or a running server, still has to enter into consume queues.
    pub records_to_dispatch: u64,
    /// Records that get no consume queue entry, as prepared and rolled back transaction messages do.
    pub records_without_entry: u64,
    pub index_files: u64,
    /// Index entries that lead to their record.
    pub index_entries: u64,
    /// Messages that wait, by what was read.
    pub waiting: WaitingCounts,
    /// All problems, also those that are not listed.
    pub problem_count: u64,
    /// The first problems, in the order in which they were found.
    pub problems: Vec<Problem>,
}

impl VerifyReport {
    /// Maximum number of problems that are listed.
    pub const LISTED: usize = 10_000;

    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.problem_count == 0
    }

    pub(crate) fn note(&mut self, problem: Problem) {
        self.problem_count += 1;
        if self.problems.len() < Self::LISTED {
            self.problems.push(problem);
        }
    }
}
