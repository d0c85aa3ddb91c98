//! The single steps of a repair, or of a cut.

use std::path::PathBuf;

use rocketpy_env::{Disk, OpenMode};
use rocketpy_model::{PhysicalOffset, QueueOffset};
use serde::Serialize;

/// One step of a repair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "action")]
pub enum RepairAction {
    /// Writes one record over damaged bytes that sound records follow. No queue leads to it.
    FillWithRecord {
        path: PathBuf,
        file_offset: u64,
        physical_offset: PhysicalOffset,
        size_bytes: u64,
        reason: String,
    },
    /// Ends a file of the log where its damage begins; the log continues in the next one.
    EndFile {
        path: PathBuf,
        file_offset: u64,
        physical_offset: PhysicalOffset,
        size_bytes: u64,
        reason: String,
    },
    /// Makes a file of the log that is missing between two others, without any record.
    MakeFile { path: PathBuf, physical_offset: PhysicalOffset, size_bytes: u64 },
    /// Ends the log: writes zeros over what follows its last sound record, or the one before a cut.
    CutTail {
        path: PathBuf,
        file_offset: u64,
        physical_offset: PhysicalOffset,
        size_bytes: u64,
        reason: String,
    },
    /// Turns a consume queue entry that leads into damage into a filler.
    BlankEntry {
        path: PathBuf,
        file_offset: u64,
        topic: String,
        queue_id: u32,
        queue_offset: QueueOffset,
        physical_offset: PhysicalOffset,
    },
    /// Puts all consume queues aside; the next start rebuilds them from the log.
    RebuildQueues { path: PathBuf, reason: String },
    /// Puts the index files aside; the next start rebuilds them from the log.
    RebuildIndex { path: PathBuf, reason: String },
    /// Puts the wheel or the log of the timers aside; the next start makes them anew.
    RebuildTimers { path: PathBuf, reason: String },
    /// Puts the checkpoint aside, if there is one, and marks the store as not closed; the next start reads the whole log.
    DropCheckpoint { path: PathBuf, reason: String },
}

impl RepairAction {
    /// Whether what it changes exists.
    pub(crate) fn is_needed<D: Disk>(&self, disk: &D) -> bool {
        match self {
            Self::DropCheckpoint { path, .. } => disk.open_file(path, OpenMode::Read).is_ok(),
            Self::RebuildQueues { path, .. } | Self::RebuildIndex { path, .. } => disk.list(path).is_ok(),
            Self::RebuildTimers { path, .. } => {
                disk.list(path).is_ok() || disk.open_file(path, OpenMode::Read).is_ok()
            }
            _ => true,
        }
    }
}
