//! Takes what a slave receives of its master's log: byte for byte, each record checked, at the place that it states.

mod check;

use std::sync::Arc;

pub use check::whole_records;
use check::{Piece, check_queue_offsets, pieces};
use parking_lot::Mutex;
use rocketpy_env::Disk;
use rocketpy_model::PhysicalOffset;
use rocketpy_protocol::record::RecordView;

use crate::admission::Admission;
use crate::append::Appender;
use crate::derived::Derived;
use crate::dispatch::Dispatcher;
use crate::error::{ReplicateError, StoreError};
use crate::keeper::Keeper;
use crate::log::Log;
use crate::queue::Queue;

/// Appends copied records, on the threads of its callers.
pub(crate) struct Replica<D: Disk> {
    log: Arc<Log<D>>,
    admission: Arc<Admission>,
    derived: Arc<Derived<D>>,
    appender: Arc<Appender<D>>,
    dispatcher: Arc<Dispatcher<D>>,
    keeper: Arc<Keeper<D>>,
    /// Held for one call: copies come one after the other.
    state: Mutex<State>,
}

struct State {
    /// Every record that was copied since the start had a checksum of its own.
    has_checks: bool,
    /// Former queues whose folders are still there, because their removal failed.
    unremoved: Vec<Arc<Queue>>,
}

impl<D: Disk> Replica<D> {
    pub(crate) fn new(
        log: &Arc<Log<D>>,
        admission: &Arc<Admission>,
        derived: &Arc<Derived<D>>,
        appender: &Arc<Appender<D>>,
        dispatcher: &Arc<Dispatcher<D>>,
        keeper: &Arc<Keeper<D>>,
    ) -> Self {
        Self {
            log: Arc::clone(log),
            admission: Arc::clone(admission),
            derived: Arc::clone(derived),
            appender: Arc::clone(appender),
            dispatcher: Arc::clone(dispatcher),
            keeper: Arc::clone(keeper),
            state: Mutex::new(State { has_checks: true, unremoved: Vec::new() }),
        }
    }

    /// Appends whole records that were copied from another store's log. Returns the end of the log.
    pub(crate) fn append(&self, at: PhysicalOffset, bytes: &[u8]) -> Result<PhysicalOffset, ReplicateError> {
        let mut state = self.state.lock();
        self.admission.check()?;
        let end = self.log.end();
        if at != end {
            return Err(ReplicateError::WrongPlace { at, end });
        }
        let file_size = self.log.config().commit_log_file_size;
        let file_end = self.log.find(end).map_or(end, |file| file.start) + file_size;
        let mut has_checks = state.has_checks;
        let pieces = pieces(bytes, at, file_end, file_size, &mut has_checks)?;
        let entries_a_file = self.derived.files().entries_a_file();
        check_queue_offsets(&pieces, self.derived.queues(), entries_a_file)?;
        if state.has_checks && !has_checks {
            self.keeper.forget_checks()?;
            state.has_checks = false;
        }
        self.remove_former(&mut state)?;
        pieces.iter().try_for_each(|piece| self.place(&mut state, piece))?;
        Ok(self.log.end())
    }

    /// Copies what is in one file. A record whose number its queue has already begins the queue anew.
    fn place(&self, state: &mut State, piece: &Piece<'_>) -> Result<(), ReplicateError> {
        let (mut at, mut records) = (piece.at, &piece.records[..]);
        loop {
            let placed = self.appender.place_copied(at, records, piece.blank)?;
            let (done, rest) = records.split_at(placed);
            at += done.iter().map(|view| view.size() as u64).sum::<u64>();
            let Some(first) = rest.first() else { return Ok(()) };
            self.restart_queue(state, first)?;
            records = rest;
        }
    }

    /// Drops a queue before the first record of a later one of its name: the master has deleted the topic and made it again.
    ///
    /// No recovery needs to know: one that reads the former records again comes to the later ones too, and does the same.
    fn restart_queue(&self, state: &mut State, first: &RecordView<'_>) -> Result<(), StoreError> {
        let mut paused = self.dispatcher.pause();
        let removed = {
            let _no_append = self.log.write();
            self.derived.queues().remove(first.topic, first.queue_id)
        };
        let Some(queue) = removed else { return Ok(()) };
        paused.forget_queues(std::slice::from_ref(&queue));
        tracing::warn!(
            topic = %queue.topic, queue_id = queue.queue_id, had = %queue.next(), queue_offset = %first.queue_offset,
            physical_offset = %first.physical_offset, "queue offsets of a copied queue start again, removing its former entries"
        );
        state.unremoved.push(queue);
        self.remove_former(state)
    }

    /// Removes the folders of former queues. After a failure the next call does what is left, before anything is written there.
    fn remove_former(&self, state: &mut State) -> Result<(), StoreError> {
        while let Some(queue) = state.unremoved.last() {
            let removed = self.derived.files().remove_folder(queue);
            removed.map_err(|error| self.admission.noted(error))?;
            state.unremoved.pop();
        }
        Ok(())
    }
}
