//! A store without threads: whoever drives it takes their steps one by one, so that a seed says in which order.

use std::sync::Arc;

use rocketpy_env::Disk;

use crate::config::StoreConfig;
use crate::error::{FlushError, StoreError};
use crate::retention::Cleaned;
use crate::store::Store;

impl<D: Disk> Store<D> {
    /// [`Store::open_on`] without threads. Nothing is flushed, dispatched or written down but by a step; an append that needs
    /// the next file makes it.
    pub fn open_stepped(disk: D, config: StoreConfig) -> Result<Arc<Self>, StoreError> {
        let store = Self::open_idle(disk, config)?;
        store.core().allocator.set_stepped();
        Ok(store)
    }

    /// What the flush thread does at an interval.
    pub fn step_flush(&self) -> Result<(), FlushError> {
        self.core().flush_all()
    }

    /// A round of the dispatch thread. Says whether there was anything to do.
    pub fn step_dispatch(&self) -> Result<bool, StoreError> {
        let core = self.core();
        core.dispatch_round().map_err(|error| {
            core.set_queue_fault(Some(error.clone()));
            error.into()
        })
    }

    /// What the dispatch thread does when nothing comes for a while: writes entries that were put off.
    pub fn step_write(&self) -> Result<(), StoreError> {
        let core = self.core();
        core.queue_files.write_some(&core.queues).map_err(|error| {
            core.set_queue_fault(Some(error.clone()));
            error.into()
        })
    }

    /// A round of the checkpoint thread.
    pub fn step_checkpoint(&self) -> Result<(), StoreError> {
        self.core().keep(false)
    }

    /// A round of the cleaning thread.
    pub fn step_clean(&self) -> Result<Cleaned, StoreError> {
        self.clean()
    }

    /// A round of the allocating thread.
    pub fn step_allocate(&self) {
        self.core().allocate_ahead();
    }
}
