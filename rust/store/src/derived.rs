//! Files derived from the log: consume queues and key index.

use rocketpy_env::{Disk, EnvError};

use crate::delay::DelayTables;
use crate::index::Index;
use crate::queue::files::QueueFiles;
use crate::queue::table::QueueTable;

/// The consume queues in memory and on disk, and the index.
pub(crate) struct Derived<D: Disk> {
    queues: QueueTable,
    files: QueueFiles<D>,
    /// `None` when the store keeps none.
    index: Option<Index<D>>,
    delays: DelayTables,
}

impl<D: Disk> Derived<D> {
    pub(crate) fn new(
        queues: QueueTable,
        files: QueueFiles<D>,
        index: Option<Index<D>>,
        delays: DelayTables,
    ) -> Self {
        Self { queues, files, index, delays }
    }

    pub(crate) fn delays(&self) -> &DelayTables {
        &self.delays
    }

    #[inline]
    pub(crate) fn queues(&self) -> &QueueTable {
        &self.queues
    }

    pub(crate) fn files(&self) -> &QueueFiles<D> {
        &self.files
    }

    pub(crate) fn index(&self) -> Option<&Index<D>> {
        self.index.as_ref()
    }

    /// Whether entries or slots are in memory alone, and are written when there is time.
    pub(crate) fn owes_writes(&self) -> bool {
        self.files.waiting() > 0 || self.index().is_some_and(Index::is_unsettled)
    }

    /// Whether no other thread works on the index.
    pub(crate) fn is_index_free(&self) -> bool {
        self.index().is_none_or(Index::is_free)
    }

    /// Writes entries that were put off, those of the longest waiting queues first.
    ///
    /// # Errors
    /// Nothing is lost: readers find in memory what was not written, and the next call tries again.
    pub(crate) fn write_some(&self) -> Result<(), EnvError> {
        self.files.write_some(&self.queues)
    }

    /// Writes all entries that were put off before this call.
    ///
    /// # Errors
    /// As [`Derived::write_some`].
    pub(crate) fn write_waiting(&self) -> Result<(), EnvError> {
        self.files.write_waiting(&self.queues)
    }

    /// Writes the slots of the index that are in memory alone, while there is nothing else to do.
    pub(crate) fn settle_index(&self) {
        if let Some(index) = self.index()
            && let Err(error) = index.settle()
        {
            tracing::warn!(%error, "slots of an index file not written, retrying later");
        }
    }
}
