//! Beginning and end of an open store, and changes to it as a whole.

use rocketpy_env::Disk;
use rocketpy_model::name::check_topic;
use rocketpy_model::{PhysicalOffset, QueueOffset};

use super::core::Core;
use crate::error::{FlushError, StoreError};
use crate::fetch::QueueBounds;
use crate::folder::folder_of;

/// With this many queues or more, their entries are written after the store has opened.
const MANY_QUEUES: usize = 4096;

impl<D: Disk> Core<D> {
    /// Completes queues and index on disk and writes the checkpoint. Leaves this to the threads if much of the log is
    /// not durable yet and there is a checkpoint (`must_keep` is not set), or if entries of thousands of queues must be
    /// written. A start before the threads have done it begins where this one did.
    pub(super) fn settle(&self, must_keep: bool) -> Result<(), StoreError> {
        if self.derived.files().waiting() >= MANY_QUEUES {
            return Ok(());
        }
        if must_keep || self.log.flushed() == self.log.end() {
            return self.keeper.keep(false);
        }
        self.keeper.write_queues()?;
        self.derived.settle_index();
        Ok(())
    }

    /// Flushes and dispatches everything, writes the checkpoint and removes the mark of an open store. The threads have
    /// ended before.
    ///
    /// # Errors
    /// A poisoned store is not closed: the mark of an open store stays, so that the next start recovers.
    ///
    /// # Source
    /// docs/reference/store-format.md 5.11, and 16 check 4.
    pub(super) fn finish(&self) -> Result<(), StoreError> {
        self.log.release_readers(); // there are none
        self.admission.check_sound()?; // else nothing below may be believed, and the next start has to check
        self.flusher.flush_all().map_err(|error| match error {
            FlushError::Poisoned { cause } => StoreError::Poisoned { cause },
            FlushError::TimedOut { .. } | FlushError::PastEnd { .. } => StoreError::ShutDown,
        })?;
        while self.dispatcher.round()? {}
        self.keeper.keep(true)?;
        let disk = self.log.disk();
        if let Some(unused) = self.allocator.take_unused() {
            disk.remove_file(&unused.path)?;
            disk.sync_dir(folder_of(&unused.path)).map_err(|error| self.admission.noted(error))?;
        }
        self.log.folder().mark_closed(disk)
    }

    /// Drops the queues of a topic with their files. Returns how many there were.
    ///
    /// An unknown name has no queues. With `before` nothing happens if a queue has a record at that place of the log or after it. After a failure the same call removes what is left.
    ///
    /// # Durability
    /// On return the queues are gone, and an ordinary start or recovery does not bring them back. After a crash during
    /// the call, or while the disk is too full to note the removal, they may all be back. Their records stay in the
    /// log: a rebuild of all consume queues (their files are lost or damaged, or another program wrote last) rebuilds
    /// these too.
    pub(super) fn delete_topic(
        &self,
        topic: &str,
        before: Option<PhysicalOffset>,
    ) -> Result<usize, StoreError> {
        if check_topic(topic).is_err() {
            return Ok(0);
        }
        let mut paused = self.dispatcher.pause();
        if let Some(before) = before
            && self.has_entry_from(topic, before)?
        {
            return Ok(0);
        }
        let (queues, deleted_at) = {
            let _no_append = self.log.write();
            (self.derived.queues().remove_topic(topic), self.log.end())
        };
        paused.forget_queues(&queues);
        let files = self.derived.files();
        for queue in &queues {
            files.forget(queue);
        }
        // Also without queues: an earlier call may have stopped here.
        let had_files = files.remove_topic_dir(topic).map_err(|error| self.admission.noted(error))?;
        drop(paused);
        if queues.is_empty() && !had_files {
            return Ok(0);
        }
        match self.pass(deleted_at) {
            Err(error @ (StoreError::Env(_) | StoreError::DamagedLog { .. })) => {
                tracing::warn!(%error, topic, "topic deleted, checkpoint not written yet");
            }
            other => other?,
        }
        tracing::info!(topic, queues = queues.len(), "topic deleted");
        Ok(queues.len())
    }

    /// Whether a queue of a topic has an entry of a record at a place of the log or after it.
    fn has_entry_from(&self, topic: &str, from: PhysicalOffset) -> Result<bool, StoreError> {
        for queue in self.derived.queues().of_topic(topic) {
            let QueueBounds { min, max, .. } = queue.bounds();
            assert!(min <= max, "a queue begins before it ends: {min}, {max}");
            let Some(last) = max.get().checked_sub(1).filter(|last| *last >= min.get()) else { continue };
            let entry = self.derived.files().entry(&queue, QueueOffset(last));
            let entry = entry.map_err(|error| self.admission.noted(error))?;
            if entry.is_none_or(|entry| entry.physical_offset >= from) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Brings dispatch and the checkpoint past a place of the log, so that no recovery reads the records before it.
    fn pass(&self, end: PhysicalOffset) -> Result<(), StoreError> {
        self.flusher.flush_to(end)?; // under synchronous flush dispatch goes no further
        self.log.confirm(end); // nor does it while readers are held
        while self.dispatcher.dispatched() < end && self.dispatcher.round()? {}
        self.keeper.keep(false)
    }
}
