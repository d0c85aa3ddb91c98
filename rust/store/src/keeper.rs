//! Keeps consume queues durable and the checkpoint up to date.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rocketpy_env::{Disk, EnvError};
use rocketpy_model::PhysicalOffset;

use crate::checkpoint::{CheckpointFile, Mark, Timestamps};
use crate::config::FlushMode;
use crate::core::Core;
use crate::error::{FlushError, StoreError};
use crate::index::{Index, Unsynced};
use crate::queue::files::FlushFailure;

/// Up to so many queues are flushed one by one; beyond it the file system is flushed as a whole.
const FEW_QUEUES: usize = 32;
/// The same under much traffic: each single flush waits behind what the log has at the disk.
const FEW_QUEUES_IN_A_HURRY: usize = 4;

/// No sum of the entries of all queues.
const NO_SUM: u64 = u64::MAX;

/// The checkpoint and what it needs from round to round.
pub(crate) struct Keeper<D: Disk> {
    file: CheckpointFile<D>,
    /// See [`Mark::checked_from`].
    checked_from: Option<PhysicalOffset>,
    /// Retention removes files of the log that end here or before.
    removed_to: PhysicalOffset,
    /// What the last round took for queues and index.
    took: Duration,
}

impl<D: Disk> Keeper<D> {
    pub(crate) fn new(file: CheckpointFile<D>, checked_from: Option<PhysicalOffset>) -> Self {
        Self { file, checked_from, removed_to: PhysicalOffset::ZERO, took: Duration::ZERO }
    }

    /// Writes down that no consume queue is to be believed, and what is known of the log, before the queues are made anew:
    /// however that ends, the next start does not take a part for the whole. What is known of the index stays so.
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

    /// Writes down that records need no checksum of their own any more, before the first without one is appended.
    pub(crate) fn forget_checks(&mut self) -> Result<(), EnvError> {
        match self.file.mark() {
            Some(&mark) if mark.checked_from.is_some() => {
                self.write(mark, self.file.timestamps()).map_err(FlushFailure::into_error)
            }
            _ => Ok(()),
        }
    }

    /// Writes down how far retention removes the log, before it does: a start takes a log that begins later for damaged.
    pub(crate) fn remove_log_to(&mut self, end: PhysicalOffset) -> Result<(), FlushFailure> {
        self.removed_to = self.removed_to.max(end);
        match self.file.mark() {
            Some(&mark) if mark.log_from.is_some_and(|from| from < end) => {
                self.write(Mark { log_from: Some(end), ..mark }, self.file.timestamps())
            }
            _ => Ok(()),
        }
    }

    /// Consume queues are durable for all records before this.
    pub(crate) fn queues_to(&self) -> PhysicalOffset {
        self.file.mark().map_or(PhysicalOffset::ZERO, |mark| mark.queues_to)
    }

    /// Writes down that no index file is to be believed, before all are made anew.
    pub(crate) fn distrust_index(&mut self) -> Result<(), EnvError> {
        self.file.forget_index().map_err(FlushFailure::into_error)
    }

    fn write(&mut self, mut mark: Mark, timestamps: Timestamps) -> Result<(), FlushFailure> {
        mark.verify_from = mark.verify_from.min(mark.queues_to);
        mark.checked_from = self.checked_from;
        self.file.write(timestamps, mark)
    }
}

impl<D: Disk> Core<D> {
    /// The life of the checkpoint thread. Rounds that take long come seldom, but for the time that they wait for the log; much
    /// traffic brings them earlier.
    pub(crate) fn run_keeper(&self) {
        let (mut pause, mut least) = (self.config.checkpoint_interval, Duration::ZERO);
        loop {
            let began = Instant::now();
            let due = || began + if self.is_called_to_keep() { least.min(pause) } else { pause };
            while !self.is_stopping() && Instant::now() < due() {
                let until = due();
                let is_called = || self.is_stopping() || due() < until;
                self.keeper_wake.sleep(until.saturating_duration_since(Instant::now()), is_called);
            }
            if self.is_stopping() || self.poison_cause().is_some() {
                return;
            }
            let kept = self.keep(false);
            let took = self.keeper.lock().took;
            pause = self.config.checkpoint_interval.max(took * 4).min(Duration::from_secs(60));
            least = took * 2;
            if let Err(error) = kept {
                tracing::error!(%error, "the checkpoint was not written");
                least = pause;
            }
        }
    }

    fn is_called_to_keep(&self) -> bool {
        self.keep_at.load(Ordering::Relaxed) == u64::MAX
    }

    /// Calls for a checkpoint, and for a flush, when dispatch has come far since the last one.
    pub(crate) fn call_for_checkpoint(&self, dispatched: u64) {
        if dispatched >= self.keep_at.load(Ordering::Relaxed) {
            self.keep_at.store(u64::MAX, Ordering::Relaxed);
            self.keeper_wake.wake();
        }
        if self.config.flush == FlushMode::Async
            && dispatched.saturating_sub(self.flusher.flushed()) >= self.config.flush_step_bytes
        {
            self.request_flush(dispatched);
        }
    }

    /// Makes log and consume queues durable as far as they have come, and writes it down; `closed` says that nothing
    /// follows.
    ///
    /// # Errors
    /// A failed flush poisons. A poisoned store writes nothing: what it would say is not known to be so.
    ///
    /// # Source
    /// docs/reference/store-format.md 5.1; docs/durability.md R4.
    pub(crate) fn keep(&self, closed: bool) -> Result<(), StoreError> {
        let mut keeper = self.keeper.lock();
        self.check_sound()?;
        let few_queues = if self.is_called_to_keep() { FEW_QUEUES_IN_A_HURRY } else { FEW_QUEUES };
        let (progress, unsynced) = {
            let dispatcher = self.dispatcher.lock();
            (dispatcher.progress(), self.index.as_ref().map(Index::take_unsynced).transpose()?)
        };
        self.keep_at.store(progress.dispatched + self.config.checkpoint_bytes, Ordering::Relaxed);
        let index = unsynced.as_ref().map(|unsynced| unsynced.mark);
        let full_to_ms = unsynced.as_ref().and_then(|unsynced| unsynced.full_to_ms);
        // Before the index: no durable entry leads behind the log.
        self.flush_to(match &unsynced {
            Some(unsynced) if unsynced.has_part => self.wrote(),
            _ => progress.dispatched.max(index.map_or(0, |index| index.to.get())),
        })?;
        let started = Instant::now();
        self.flush_index(unsynced)?;
        self.write_queues()?; // everything before `progress` was put off before it was counted, or noted as dirty
        self.flush_queues(few_queues)?;
        keeper.took = started.elapsed();
        let mark = Mark {
            verify_from: PhysicalOffset(progress.trail.start()),
            queues_to: PhysicalOffset(progress.dispatched),
            entries: progress.entries,
            firsts: progress.firsts,
            log_to: PhysicalOffset(self.flusher.flushed()),
            closed,
            index,
            log_from: Some(PhysicalOffset(self.min()).max(keeper.removed_to)),
            ..Mark::default()
        };
        let former = keeper.file.timestamps();
        let timestamps = Timestamps {
            physic_msg_at_ms: self.flusher.flushed_stored_at(),
            logics_msg_at_ms: progress.stored_at_ms,
            index_msg_at_ms: full_to_ms.unwrap_or(former.index_msg_at_ms),
            ..former
        };
        self.check_sound()?; // the last word is the mark's
        keeper.write(mark, timestamps).map_err(|failure| self.noted_failure(failure))
    }

    /// A flush that failed poisons; what was not tried, as on a full disk, the next round tries again.
    fn noted_failure(&self, failure: FlushFailure) -> StoreError {
        match failure {
            FlushFailure::NotTried(error) => error.into(),
            FlushFailure::Failed(error) => StoreError::Poisoned { cause: self.poison(error) },
        }
    }

    /// See [`Keeper::remove_log_to`].
    pub(crate) fn remove_log_to(&self, end: PhysicalOffset) -> Result<(), StoreError> {
        self.keeper.lock().remove_log_to(end).map_err(|failure| self.noted_failure(failure))
    }

    /// Makes durable what was written to index files.
    fn flush_index(&self, unsynced: Option<Unsynced<D>>) -> Result<(), StoreError> {
        let (Some(index), Some(unsynced)) = (&self.index, unsynced) else { return Ok(()) };
        index.flush(unsynced).map_err(|failure| self.noted_failure(failure))
    }

    /// Writes the entries of consume queues that were put off.
    pub(crate) fn write_queues(&self) -> Result<(), StoreError> {
        self.queue_files.write_waiting(&self.queues).map_err(|error| {
            self.set_queue_fault(Some(error.clone()));
            self.dispatch_wake.wake(); // it tries again, and takes the fault back
            error.into()
        })
    }

    /// Makes all consume queues durable: one by one, or with their file system when more than `few` have changed.
    fn flush_queues(&self, few: usize) -> Result<(), StoreError> {
        let dirty = self.queues.take_dirty();
        if dirty.len() > few {
            // What is written after this is noted anew, and flushed twice.
            let notes: Vec<_> = dirty.iter().map(|queue| (queue, queue.take_dirty())).collect();
            match self.disk.sync_file_system(&self.folder.consume_queue) {
                Err(EnvError::Unsupported { .. }) => {
                    for (queue, former) in notes {
                        queue.give_back_dirty(former);
                    }
                }
                Err(error) if error.is_of_opening() => {
                    for (queue, former) in notes {
                        queue.give_back_dirty(former);
                        self.queues.note_dirty(queue);
                    }
                    return Err(error.into());
                }
                other => return other.map_err(|error| StoreError::Poisoned { cause: self.poison(error) }),
            }
        }
        let mut dirty = dirty.into_iter();
        while let Some(queue) = dirty.next() {
            match self.queue_files.flush(&queue) {
                Ok(()) => {}
                Err(FlushFailure::Failed(error)) => {
                    return Err(StoreError::Poisoned { cause: self.poison(error) });
                }
                Err(FlushFailure::NotTried(error)) => {
                    self.queues.note_dirty(&queue);
                    dirty.for_each(|rest| self.queues.note_dirty(&rest));
                    return Err(error.into());
                }
            }
        }
        Ok(())
    }

    /// Fails once a flush has failed.
    pub(crate) fn check_sound(&self) -> Result<(), StoreError> {
        self.poison_cause().map_or(Ok(()), |cause| Err(StoreError::Poisoned { cause }))
    }

    /// Makes the log durable before an offset that is written.
    pub(crate) fn flush_to(&self, end: u64) -> Result<(), StoreError> {
        self.wait_flushed(end, Duration::from_secs(3600)).map_err(|error| match error {
            FlushError::Poisoned { cause } => StoreError::Poisoned { cause },
            FlushError::TimedOut { .. } | FlushError::PastEnd { .. } => {
                unreachable!("what is dispatched is written")
            }
        })
    }
}
