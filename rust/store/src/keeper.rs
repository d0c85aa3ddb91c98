//! Keeps consume queues durable and the checkpoint up to date.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rocketpy_env::planted::{self, Bug};
use rocketpy_env::{Disk, FileSystem as _};
use rocketpy_model::PhysicalOffset;

use crate::admission::Admission;
use crate::checkpoint::{Mark, MarkWriter, Timestamps};
use crate::checkpoint_call::CheckpointCall;
use crate::derived::Derived;
use crate::dispatch::{Dispatcher, Progress};
use crate::error::StoreError;
use crate::flush::Flusher;
use crate::index::{Index, Unsynced};
use crate::log::Log;
use crate::queue::Queue;
use crate::queue::files::FlushFailure;

/// Up to this many queues are flushed one by one; beyond it the file system is flushed as a whole.
const FEW_QUEUES: usize = 32;
/// The same under much traffic: each flush of a queue waits behind the log's writes.
const FEW_QUEUES_IN_A_HURRY: usize = 4;
/// Maximum pause between two checkpoints, however long they take.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Writes checkpoints, on a thread of its own.
pub(crate) struct Keeper<D: Disk> {
    log: Arc<Log<D>>,
    admission: Arc<Admission>,
    flusher: Arc<Flusher<D>>,
    dispatcher: Arc<Dispatcher<D>>,
    derived: Arc<Derived<D>>,
    call: Arc<CheckpointCall>,
    /// The file system of the consume queues, open since the start. `None` where it does not report all errors.
    file_system: Option<D::FileSystem>,
    /// Held for one checkpoint.
    state: Mutex<State<D>>,
}

struct State<D: Disk> {
    mark: MarkWriter<D>,
    /// How long the last round took for queues and index.
    took: Duration,
}

impl<D: Disk> Keeper<D> {
    pub(crate) fn new(
        log: &Arc<Log<D>>,
        admission: &Arc<Admission>,
        flusher: &Arc<Flusher<D>>,
        dispatcher: &Arc<Dispatcher<D>>,
        derived: &Arc<Derived<D>>,
        call: &Arc<CheckpointCall>,
        mark: MarkWriter<D>,
    ) -> Self {
        let file_system = log.disk().open_file_system(&log.folder().consume_queue);
        Self {
            log: Arc::clone(log),
            admission: Arc::clone(admission),
            flusher: Arc::clone(flusher),
            dispatcher: Arc::clone(dispatcher),
            derived: Arc::clone(derived),
            call: Arc::clone(call),
            file_system: file_system
                .inspect_err(|error| tracing::info!(%error, "file system cannot be flushed at once, flushing consume queues file by file"))
                .ok(),
            state: Mutex::new(State { mark, took: Duration::ZERO }),
        }
    }

    /// Lets the checkpoint thread end.
    pub(crate) fn stop(&self) {
        self.call.wake().stop();
    }

    /// The loop of the checkpoint thread. The longer a round takes for queues and index, the longer the pause after it.
    /// Much traffic brings the next round earlier.
    pub(crate) fn run(&self) {
        let (interval, wake) = (self.log.config().checkpoint_interval, self.call.wake());
        let (mut pause, mut least) = (interval, Duration::ZERO);
        loop {
            let began = Instant::now();
            let due = || began + if self.call.is_called() { least.min(pause) } else { pause };
            while !wake.is_stopped() && Instant::now() < due() {
                let until = due();
                wake.sleep(until.saturating_duration_since(Instant::now()), || due() < until);
            }
            if wake.is_stopped() || self.admission.poison_cause().is_some() {
                return;
            }
            let kept = self.keep(false);
            let took = self.state.lock().took;
            pause = interval.max(took * 4).min(LONGEST_PAUSE);
            least = took * 2;
            if let Err(error) = kept {
                tracing::error!(%error, "checkpoint not written");
                least = pause;
            }
        }
    }

    /// Makes log and consume queues durable as far as they have come, and writes the mark. `closed` says that this is
    /// the last one.
    ///
    /// # Errors
    /// A failed flush poisons the store. A poisoned store writes no mark, because nobody knows whether it would be
    /// true.
    ///
    /// # Source
    /// docs/reference/store-format.md 5.1; docs/durability.md R4.
    pub(crate) fn keep(&self, closed: bool) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        self.admission.check_sound()?;
        let few_queues = if self.call.is_called() { FEW_QUEUES_IN_A_HURRY } else { FEW_QUEUES };
        let (progress, unsynced) = {
            let paused = self.dispatcher.pause();
            (paused.progress(), self.derived.index().map(Index::take_unsynced).transpose()?)
        };
        self.call.answer(progress.dispatched + self.log.config().checkpoint_bytes);
        let index = unsynced.as_ref().map(|unsynced| unsynced.mark);
        let full_to_ms = unsynced.as_ref().and_then(|unsynced| unsynced.full_to_ms);
        // Before the index: no durable entry points past the log.
        let needed = match &unsynced {
            Some(unsynced) if unsynced.has_part => self.log.end(),
            _ => index.map_or(progress.dispatched, |index| index.to.max(progress.dispatched)),
        };
        if !planted::has(Bug::MarkBeforeLog) {
            self.flusher.flush_to(needed)?;
        }
        let started = Instant::now();
        self.flush_index(unsynced)?;
        self.write_queues()?; // everything before `progress` was put off before it was counted, or noted as dirty
        self.flush_queues(few_queues)?;
        state.took = started.elapsed();
        let former = state.mark.timestamps();
        let timestamps = Timestamps {
            physic_msg_at_ms: self.flusher.flushed_stored_at(),
            logics_msg_at_ms: progress.stored_at_ms,
            index_msg_at_ms: full_to_ms.unwrap_or(former.index_msg_at_ms),
            ..former
        };
        let mark = self.mark(progress, closed, state.mark.removed_to());
        self.admission.check_sound()?; // the last word is the mark's
        let written = state.mark.write(Mark { index, ..mark }, timestamps);
        written.map_err(|failure| self.admission.noted_failure(failure))
    }

    /// Progress that is durable now.
    ///
    /// # Panics
    /// When the queues point past the durable log: a start would believe entries without records.
    fn mark(&self, progress: Progress, closed: bool, removed_to: PhysicalOffset) -> Mark {
        let (queues_to, log_to) = (progress.dispatched, self.log.flushed());
        assert!(
            queues_to <= log_to,
            "progress never passes durable data: queues to {queues_to}, the log to {log_to}"
        );
        Mark {
            verify_from: progress.trail.start(),
            queues_to,
            entries: progress.entries,
            firsts: progress.firsts,
            log_to,
            closed,
            log_from: Some(self.log.start().max(removed_to)),
            ..Mark::default()
        }
    }

    /// Writes into the mark how far retention is about to remove the log.
    pub(crate) fn remove_log_to(&self, end: PhysicalOffset) -> Result<(), StoreError> {
        let written = self.state.lock().mark.remove_log_to(end);
        written.map_err(|failure| self.admission.noted_failure(failure))
    }

    /// Writes into the mark that records without a checksum of their own come, before the first of them is appended.
    ///
    /// From which place on all records will have one again is not known, so the mark names none: recovery then compares only bodies,
    /// which is right for records of both kinds, after a crash and after an orderly close. The next start begins at its end.
    pub(crate) fn forget_checks(&self) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        self.admission.check_sound()?;
        state.mark.forget_checks().map_err(|failure| self.admission.noted_failure(failure))
    }

    /// The last mark says that consume queues are durable for all records before this.
    pub(crate) fn queues_to(&self) -> PhysicalOffset {
        self.state.lock().mark.queues_to()
    }

    /// Makes durable what was written to index files.
    fn flush_index(&self, unsynced: Option<Unsynced<D>>) -> Result<(), StoreError> {
        let (Some(index), Some(unsynced)) = (self.derived.index(), unsynced) else { return Ok(()) };
        if planted::has(Bug::MarkBeforeIndex) {
            return Ok(());
        }
        index.flush(unsynced).map_err(|failure| self.admission.noted_failure(failure))
    }

    /// Writes the entries of consume queues that were put off.
    pub(crate) fn write_queues(&self) -> Result<(), StoreError> {
        if planted::has(Bug::PutOffDropped) {
            return Ok(());
        }
        self.derived.write_waiting().map_err(|error| {
            self.admission.set_queue_fault(Some(error.clone().into()));
            self.dispatcher.hurry(); // it tries again, and takes the fault back
            error.into()
        })
    }

    /// Makes all consume queues durable: one by one, or with their file system when more than `few` have changed.
    fn flush_queues(&self, few: usize) -> Result<(), StoreError> {
        let dirty = self.derived.queues().take_dirty();
        if planted::has(Bug::MarkBeforeQueues) {
            return Ok(());
        }
        if dirty.len() > few
            && let Some(file_system) = &self.file_system
        {
            return self.flush_queues_together(file_system, &dirty);
        }
        let mut dirty = dirty.into_iter();
        while let Some(queue) = dirty.next() {
            if let Err(failure) = self.derived.files().flush(&queue) {
                if let FlushFailure::NotTried(_) = failure {
                    self.derived.queues().note_dirty(&queue);
                    dirty.for_each(|rest| self.derived.queues().note_dirty(&rest));
                }
                return Err(self.admission.noted_failure(failure));
            }
        }
        Ok(())
    }

    /// Flushes the file system of the queues.
    fn flush_queues_together(
        &self,
        file_system: &D::FileSystem,
        dirty: &[Arc<Queue>],
    ) -> Result<(), StoreError> {
        for queue in dirty {
            queue.take_dirty(); // what is written after this is noted again, and flushed twice
        }
        file_system.sync().map_err(|error| StoreError::Poisoned { cause: self.admission.poison(error) })
    }
}
