//! One round of dispatch: gathers the entries of many records, makes them readable, calls the listeners.

use std::collections::HashMap;
use std::sync::Arc;

use rocketpy_env::planted::{self, Bug};
use rocketpy_env::{Disk, EnvError};
use rocketpy_model::{PhysicalOffset, QueueOffset};
use rocketpy_protocol::record::RecordView;

use super::fact::{Fact, NO_QUEUE, tags_code};
use super::index::entries;
use super::run::{Added, Run, Runs};
use super::{Dispatcher, Progress, ROUND_KEYS, ROUND_RECORDS};
use crate::config::FlushMode;
use crate::error::DispatchError;
use crate::index::{Key, Keys};
use crate::listener::Arrival;
use crate::queue::Queue;
use crate::queue::entry::entry_at;
use crate::record::counts_in_queue;

#[derive(Debug)]
pub(super) struct State {
    keys: Vec<Key>,
    /// The queues of one round: their uids by topic and queue id. No queue is deleted during a round. It neither counts
    /// references nor reads a queue for each record, because append uses that memory on another core.
    uids: HashMap<Arc<str>, HashMap<u32, u64, ahash::RandomState>, ahash::RandomState>,
    runs: Runs,
    arrivals: Vec<Arrival>,
    pub progress: Progress,
    /// Set during recovery: numbers of a queue may start again.
    pub rebuilding: bool,
    /// A record of the log did not follow on the end of its queue.
    pub numbers_are_missing: bool,
}

impl State {
    pub(super) fn new(progress: Progress) -> Self {
        Self {
            keys: Vec::new(),
            uids: HashMap::default(),
            runs: Runs::default(),
            arrivals: Vec::new(),
            progress,
            rebuilding: false,
            numbers_are_missing: false,
        }
    }

    /// # Panics
    /// When these queues hold more entries than the sum of all queues.
    pub(super) fn forget_queues(&mut self, queues: &[Arc<Queue>]) {
        let entries = queues.iter().map(|queue| queue.max().get()).sum::<u64>();
        let firsts = queues.iter().map(|queue| queue.first().get()).sum::<u64>();
        let progress = &mut self.progress;
        assert!(progress.entries >= entries, "{entries} of {} entries are forgotten", progress.entries);
        assert!(progress.firsts >= firsts, "{firsts} of {} first entries are forgotten", progress.firsts);
        progress.entries -= entries;
        progress.firsts -= firsts;
        queues.iter().for_each(|queue| self.runs.forget(queue));
    }

    fn begin_round(&mut self) {
        self.runs.clear();
        self.arrivals.clear();
        self.keys.clear();
        self.uids.clear();
    }
}

impl<D: Disk> Dispatcher<D> {
    pub(super) fn run_round(&self, state: &mut State) -> Result<bool, DispatchError> {
        while self.derived.files().must_write() {
            self.derived.write_some()?;
        }
        let limit = self.log.readable_end();
        let from = state.progress.dispatched;
        if from >= limit {
            return Ok(false);
        }
        state.begin_round();
        let mut progress = state.progress;
        let gathered = self.gather(state, &mut progress, limit);
        assert!(
            (from..=limit).contains(&progress.dispatched),
            "dispatch from {from} to {}, nobody may read behind {limit}",
            progress.dispatched
        );
        if let Some(index) = self.derived.index() {
            index.put(&state.keys, progress.dispatched)?;
        }
        self.put_off_runs(&state.runs, &mut progress)?;
        progress.trail.step(progress.dispatched);
        state.progress = progress;
        self.call_for_checkpoint(progress.dispatched);
        let goes_back = planted::has(Bug::DispatchGoesBack) && from > PhysicalOffset::ZERO;
        let end = if goes_back { PhysicalOffset(from.get() - 1) } else { progress.dispatched };
        let arrivals = &state.arrivals;
        let tell_arrivals = || {
            if !arrivals.is_empty() {
                self.listeners.arrived(arrivals);
            }
        };
        self.backlog.publish(end, tell_arrivals, || self.listeners.dispatched(end));
        gathered?;
        Ok(true)
    }

    /// Asks for a checkpoint, and for a flush, when dispatch has come far since the last one.
    fn call_for_checkpoint(&self, dispatched: PhysicalOffset) {
        self.call.passed(dispatched);
        let config = self.log.config();
        if config.flush == FlushMode::Async
            && dispatched.saturating_sub(self.log.flushed()) >= config.flush_step_bytes
        {
            self.flusher.request(dispatched);
        }
    }

    /// Gathers the entries of records up to `limit` and moves the progress behind them.
    fn gather(
        &self,
        state: &mut State,
        progress: &mut Progress,
        limit: PhysicalOffset,
    ) -> Result<(), DispatchError> {
        let Progress { dispatched, stored_at_ms, .. } = progress;
        let has_index = self.derived.index().is_some();
        let mut records = 0;
        self.log.walk(dispatched, limit, |view| {
            let keys = Keys::of(view.properties);
            if has_index {
                state.keys.extend(entries(view, keys));
            }
            *stored_at_ms = view.stored_at_ms;
            let is_counted = counts_in_queue(view.sys_flag);
            let fact = Fact {
                queue: if is_counted { self.queue_of(view, state) } else { NO_QUEUE },
                physical_offset: view.physical_offset,
                size_bytes: view.size() as u32,
                queue_offset: view.queue_offset,
                tags_code: tags_code(view, &keys, self.derived.delays()),
                stored_at_ms: view.stored_at_ms,
            };
            self.add(state, &fact)?;
            records += 1;
            let has_room = state.keys.len() < ROUND_KEYS && !state.runs.is_full();
            Ok(records < ROUND_RECORDS && has_room)
        })
    }

    /// The uid of a record's queue. During recovery a queue is made when it is missing; later a missing one was deleted.
    fn queue_of(&self, view: &RecordView<'_>, state: &mut State) -> u64 {
        let known = state.uids.get(view.topic).and_then(|uids| uids.get(&view.queue_id));
        if let Some(&uid) = known {
            return uid;
        }
        let (queues, at) = (self.derived.queues(), view.physical_offset);
        let queue = if state.rebuilding {
            let made = queues.get_or_create(view.topic, view.queue_id);
            made.inspect(|queue| queue.set_born(PhysicalOffset::ZERO))
                .inspect_err(|error| {
                    tracing::error!(%error, physical_offset = %at, "record has no consume queue entry");
                })
                .ok()
        } else {
            queues.get(view.topic, view.queue_id).filter(|queue| queue.may_hold(at))
        };
        let Some(queue) = queue else { return NO_QUEUE };
        state.uids.entry(Arc::clone(&queue.topic)).or_default().insert(queue.queue_id, queue.uid);
        queue.uid
    }

    /// Adds the entry of a record to its run.
    ///
    /// # Errors
    /// During recovery a number that leads nowhere: the next append would use it again.
    fn add(&self, state: &mut State, fact: &Fact) -> Result<(), DispatchError> {
        let entries_a_file = self.derived.files().entries_a_file();
        let added = state.runs.add(fact, self.derived.queues(), entries_a_file, state.rebuilding);
        state.numbers_are_missing |= added == Added::Refused || state.runs.has_filled();
        let Some(queue) = state.runs.last_queue() else { return Ok(()) };
        match added {
            Added::Refused if state.rebuilding => {
                let (topic, queue_id) = (&queue.topic, queue.queue_id);
                let reason = format!(
                    "the record of {topic}-{queue_id} has the impossible queue offset {}",
                    fact.queue_offset
                );
                return Err(self.log.damage(fact.physical_offset, &reason));
            }
            Added::Refused => tracing::error!(
                topic = %queue.topic, queue_id = queue.queue_id, queue_offset = %fact.queue_offset,
                physical_offset = %fact.physical_offset, "record has an impossible queue offset"
            ),
            Added::New if !state.rebuilding => state.arrivals.push(Arrival {
                topic: Arc::clone(&queue.topic),
                queue_id: queue.queue_id,
                next_offset: fact.queue_offset + 1,
                tags_code: fact.tags_code,
                stored_at_ms: fact.stored_at_ms,
            }),
            Added::New | Added::Covered | Added::NoQueue => {}
        }
        Ok(())
    }

    /// First entry that a queue's first file has room for once the run is written.
    fn first_entry(&self, run: &Run) -> QueueOffset {
        let first = entry_at(self.derived.files().file_start(run.first));
        let is_only_file = run.restart || run.queue.max() == QueueOffset::ZERO;
        if is_only_file { first } else { first.min(run.queue.first()) }
    }

    /// Makes the entries of a round readable from memory. They are written later: see [`Dispatcher::write_in_time`].
    fn put_off_runs(&self, runs: &Runs, progress: &mut Progress) -> Result<(), EnvError> {
        for run in runs.iter().filter(|run| !run.bytes.is_empty()) {
            run.check();
            self.make_place(run)?;
        }
        for run in runs.iter().filter(|run| !run.bytes.is_empty()) {
            self.derived.files().put_off(&run.queue, run.first, &run.bytes);
            self.publish(run, progress);
        }
        Ok(())
    }

    /// Takes away what a run replaces.
    fn make_place(&self, run: &Run) -> Result<(), EnvError> {
        let (queue, files) = (&run.queue, self.derived.files());
        if run.restart {
            files.remove(queue)?;
            queue.forget_dirty_files(0);
        } else if run.cut {
            files.write_tail_of(queue, self.derived.queues())?;
            files.cut(queue, run.first)?;
        }
        Ok(())
    }

    /// Makes the entries of a run readable, and counts them.
    fn publish(&self, run: &Run, progress: &mut Progress) {
        let (queue, next) = (&run.queue, run.next());
        let first = self.first_entry(run);
        assert!(
            first <= run.first,
            "entries from {} on, before the first file of their queue: {first}",
            run.first
        );
        assert!(progress.entries >= queue.max().get(), "the sum of all queues covers each of them");
        progress.entries = progress.entries - queue.max().get() + next.get();
        progress.firsts = progress.firsts - queue.first().get() + first.get();
        queue.set_first(first);
        if let Some(min) = run.min.or(run.restart.then_some(run.first)) {
            queue.set_min(min);
        }
        assert!(queue.min() <= next, "a queue that starts at {} and ends at {next}", queue.min());
        queue.publish(next);
    }
}
