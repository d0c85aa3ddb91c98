//! What a store does for replication: it gives its log away in pieces, and takes those of another store.

use std::time::Duration;

use bytes::Bytes;
use rocketpy_env::Disk;
use rocketpy_model::PhysicalOffset;

use super::Store;
use crate::error::{AppendError, ReplicateError, StoreError};

impl<D: Disk> Store<D> {
    /// Bytes of the log from `from` on: at most `max_bytes`, and no further than the end of the file that holds `from`. All written bytes
    /// count, durable or not, and also the rest of a file after its last record. `None` before the
    /// start and after the end of the log; no bytes at the end.
    ///
    /// # Errors
    /// [`StoreError::DamagedLog`] when a page of it cannot be read, [`StoreError::Env`].
    ///
    /// # Source
    /// docs/reference/store-format.md 12.3.
    #[doc(alias = "getCommitLogData")]
    pub fn log_slice(&self, from: PhysicalOffset, max_bytes: usize) -> Result<Option<Bytes>, StoreError> {
        self.core.reads.log_slice(from, max_bytes)
    }

    /// Waits until the log goes beyond `end`, and returns its end then. Returns also after `timeout`, when [`Store::wake_waiting`] is
    /// called, and at once while the store closes or is poisoned. Any number of threads may wait.
    pub fn wait_for_append(&self, end: PhysicalOffset, timeout: Duration) -> PhysicalOffset {
        let (log, admission) = (&self.core.log, &self.core.admission);
        let is_over = || log.end() > end || admission.poison_cause().is_some();
        if !is_over() {
            admission.append_bell().wait(timeout, is_over);
        }
        log.end()
    }

    /// Ends all calls of [`Store::wait_for_append`] that wait now.
    pub fn wake_waiting(&self) {
        self.core.admission.append_bell().end_waits();
    }

    /// Lets readers see the records of now, and later ones only once [`Store::confirm`] covers them: pulls, queue offsets and key look-ups.
    /// [`Store::record_at`] finds a record by its place all the same. A deleted topic confirms the log before its deletion.
    #[doc(alias = "setConfirmOffset")]
    pub fn hold_readers(&self) {
        self.core.log.hold_readers();
        self.core.dispatcher.hurry();
    }

    /// While readers are held, lets them see the log before `end`. [`Store::dispatch_confirmed`] is to follow.
    ///
    /// # Panics
    /// When the log ends before that.
    pub fn confirm(&self, end: PhysicalOffset) {
        self.core.log.confirm(end);
    }

    /// Makes confirmed records readable: a few on this thread, many on the dispatch thread.
    pub fn dispatch_confirmed(&self) {
        self.core.dispatcher.round_of_few();
    }

    /// Readers see again all that is in the log, or under [`crate::FlushMode::Sync`] what is durable.
    pub fn release_readers(&self) {
        self.core.log.release_readers();
        self.core.dispatcher.hurry();
    }

    /// Up to where readers see the log while they are held; `None` while they are not.
    #[doc(alias = "getConfirmOffset")]
    pub fn confirmed_offset(&self) -> Option<PhysicalOffset> {
        self.core.log.confirmed()
    }

    /// Appends records that were copied from the log of another store, its master, to their places in this one. `at` is where `bytes`
    /// begin, and is to be the end of this log; `bytes` are whole records ([`crate::whole_records`]) and whole blank records. Returns the
    /// end of the log: `at` behind all of `bytes`.
    ///
    /// Their queues continue behind them. A record whose number its queue has already starts the queue again: the master deleted its
    /// topic and made it anew.
    ///
    /// # Errors
    /// After each of them, and a look at [`Store::max_physical_offset`], the call may be repeated with what is not in the log.
    /// [`ReplicateError::WrongPlace`], [`ReplicateError::PartialRecord`], [`ReplicateError::Damage`] and [`ReplicateError::QueueOffset`]
    /// are found before anything is changed. After the others, records before the end of a file, or before one that starts its queue
    /// again, may be in the log.
    ///
    /// # Durability
    /// As that of [`Store::append`].
    ///
    /// # Source
    /// docs/reference/store-format.md 12.4; docs/durability.md R3.
    #[doc(alias = "appendToCommitLog")]
    pub fn append_replicated(
        &self,
        at: PhysicalOffset,
        bytes: &[u8],
    ) -> Result<PhysicalOffset, ReplicateError> {
        let refuse = |cause| ReplicateError::Refused(AppendError::Poisoned { cause });
        self.core.admission.guarded("append to", || self.core.replica.append(at, bytes), refuse)
    }
}
