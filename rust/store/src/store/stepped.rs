//! A store without threads. Its caller takes their steps one by one, so that a seed determines the order.

use std::sync::Arc;

use rocketpy_env::Disk;

use super::Store;
use crate::config::StoreConfig;
use crate::error::{DispatchError, FlushError, StoreError};
use crate::retention::Cleaned;

impl<D: Disk> Store<D> {
    /// [`Store::open_on`] without threads. Only steps flush, dispatch and write checkpoints. An append that needs the
    /// next file makes it.
    ///
    /// # Errors
    /// As [`Store::open_on`].
    pub fn open_stepped(disk: D, config: StoreConfig) -> Result<Arc<Self>, StoreError> {
        let store = Self::open_idle(disk, config)?;
        store.core.allocator.set_stepped();
        store.core.admission.set_stepped();
        Ok(store)
    }

    /// What the flush thread does at an interval.
    ///
    /// # Errors
    /// As [`Store::wait_flushed`].
    pub fn step_flush(&self) -> Result<(), FlushError> {
        self.core.flusher.flush_all()
    }

    /// A round of the dispatch thread. Returns whether there was anything to do.
    ///
    /// # Errors
    /// Consume queues could not be written, or the log is damaged.
    pub fn step_dispatch(&self) -> Result<bool, StoreError> {
        self.noting_fault(self.core.dispatcher.round())
    }

    /// What the dispatch thread does when nothing comes for a while: writes entries that were put off.
    ///
    /// # Errors
    /// Consume queues could not be written.
    pub fn step_write(&self) -> Result<(), StoreError> {
        self.noting_fault(self.core.derived.write_some().map_err(DispatchError::from))
    }

    fn noting_fault<T>(&self, result: Result<T, DispatchError>) -> Result<T, StoreError> {
        result.map_err(|error| {
            self.core.admission.set_queue_fault(Some(error.clone()));
            error.into()
        })
    }

    /// A round of the checkpoint thread.
    ///
    /// # Errors
    /// What is not written is left to the next round; a failed flush poisons.
    pub fn step_checkpoint(&self) -> Result<(), StoreError> {
        self.core.keeper.keep(false)
    }

    /// A round of the cleaning thread.
    ///
    /// # Errors
    /// As [`Store::clean`].
    pub fn step_clean(&self) -> Result<Cleaned, StoreError> {
        self.clean()
    }

    /// A round of the allocating thread.
    pub fn step_allocate(&self) {
        self.core.allocator.step();
    }
}
