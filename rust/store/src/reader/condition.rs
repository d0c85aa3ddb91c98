//! What the last process that wrote a store noted in its checkpoint and abort file.

use std::ops::Range;
use std::path::Path;

use rocketpy_env::{Disk, OpenMode};
use rocketpy_model::PhysicalOffset;

use super::ReadError;
use crate::checkpoint::{Checkpoint, Mark, NOWHERE, Timestamps};

/// Checkpoint and abort file of a store.
#[derive(Debug, Clone, Copy)]
pub struct Condition {
    /// The timestamps of the format.
    pub timestamps: Timestamps,
    /// The durable mark, if RocketPy wrote the checkpoint last.
    pub mark: Option<Mark>,
    /// A process has the store open, or did not close it.
    pub is_dirty: bool,
}

impl Condition {
    /// Reads both. Call this before queues and log are listed: then what it says stays true while a server writes.
    pub fn read<D: Disk>(disk: &D, root: &Path) -> Result<Self, ReadError> {
        let is_dirty = match disk.open_file(&root.join("abort"), OpenMode::Read) {
            Ok(_) => true,
            Err(error) if error.is_not_found() => false,
            Err(error) => return Err(error.into()),
        };
        let path = root.join("checkpoint");
        let checkpoint = Checkpoint::read(disk, &path)?;
        checkpoint.check_version(&path).map_err(|error| ReadError::Refused(Box::new(error)))?;
        // The mark of a slave's log that has no record yet says where it begins, and promises nothing.
        let mark =
            checkpoint.mark.filter(|mark| mark.log_to == PhysicalOffset::ZERO || !mark.is_of_empty_log());
        Ok(Self { timestamps: checkpoint.timestamps, mark, is_dirty })
    }

    /// The part of the log in which every record has a checksum of its own.
    pub fn checked(&self) -> Range<PhysicalOffset> {
        self.mark.map_or(NOWHERE, |mark| mark.checked(self.is_dirty))
    }

    /// The mark with which the store was closed in order; `None` while a process has it open.
    pub(crate) fn closing_mark(&self) -> Option<Mark> {
        self.mark.filter(|mark| mark.closed && !self.is_dirty)
    }
}
