//! Writes the durable mark: what the next start may trust.

use rocketpy_env::{Disk, EnvError};
use rocketpy_model::PhysicalOffset;

use super::{CheckpointFile, Mark, NO_SUM, Timestamps};
use crate::queue::files::FlushFailure;

/// Writes the mark, and keeps what every mark of this store contains.
pub(crate) struct MarkWriter<D: Disk> {
    file: CheckpointFile<D>,
    /// See [`Mark::checked_from`].
    checked_from: Option<PhysicalOffset>,
    /// Retention removes files of the log that end here or before.
    removed_to: PhysicalOffset,
}

impl<D: Disk> MarkWriter<D> {
    pub(crate) fn new(file: CheckpointFile<D>, checked_from: Option<PhysicalOffset>) -> Self {
        Self { file, checked_from, removed_to: PhysicalOffset::ZERO }
    }

    /// Notes in the mark that no consume queue is to be trusted, before the queues are rebuilt. If the rebuild is cut
    /// short, the next start does not take a part for the whole. What is known of log and index is kept.
    pub(crate) fn distrust_queues(
        &mut self,
        log_from: PhysicalOffset,
        log_to: PhysicalOffset,
    ) -> Result<(), EnvError> {
        let index = self.file.mark().and_then(|mark| mark.index).filter(|index| index.to <= log_to);
        let mark = Mark {
            verify_from: log_from,
            queues_to: log_from,
            entries: NO_SUM,
            log_to,
            index,
            log_from: Some(log_from),
            ..Mark::default()
        };
        self.write(mark, self.file.timestamps()).map_err(FlushFailure::into_error)
    }

    /// Notes in the mark that records need no checksum of their own any more, before the first one without is appended.
    pub(crate) fn forget_checks(&mut self) -> Result<(), FlushFailure> {
        self.checked_from = None;
        match self.file.mark() {
            Some(&mark) if mark.checked_from.is_some() => self.write(mark, self.file.timestamps()),
            _ => Ok(()),
        }
    }

    /// Notes in the mark how far retention is about to remove the log. A start takes a log that begins later for
    /// damaged.
    pub(crate) fn remove_log_to(&mut self, end: PhysicalOffset) -> Result<(), FlushFailure> {
        self.removed_to = self.removed_to.max(end);
        match self.file.mark() {
            Some(&mark) if mark.log_from.is_some_and(|from| from < end) => {
                self.write(Mark { log_from: Some(end), ..mark }, self.file.timestamps())
            }
            _ => Ok(()),
        }
    }

    /// Retention removes files of the log that end here or before.
    pub(crate) fn removed_to(&self) -> PhysicalOffset {
        self.removed_to
    }

    /// Consume queues are durable for all records before this.
    pub(crate) fn queues_to(&self) -> PhysicalOffset {
        self.file.mark().map_or(PhysicalOffset::ZERO, |mark| mark.queues_to)
    }

    /// Notes in the mark that no index file is to be trusted, before all are rebuilt.
    pub(crate) fn distrust_index(&mut self) -> Result<(), EnvError> {
        self.file.forget_index().map_err(FlushFailure::into_error)
    }

    pub(crate) fn timestamps(&self) -> Timestamps {
        self.file.timestamps()
    }

    pub(crate) fn write(&mut self, mut mark: Mark, timestamps: Timestamps) -> Result<(), FlushFailure> {
        mark.verify_from = mark.verify_from.min(mark.queues_to);
        mark.checked_from = self.checked_from;
        self.file.write(timestamps, mark)
    }
}
