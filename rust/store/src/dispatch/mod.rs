//! From the log to the consume queues: what was appended becomes readable.

mod fact;
mod index;
mod run;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use fact::tags_code;
use fact::{Fact, NO_QUEUE};
use rocketpy_env::{Disk, EnvError, Region};
use rocketpy_model::{PhysicalOffset, QueueOffset};
use rocketpy_protocol::record::{BLANK_HEAD_BYTES, CheckMode, RecordCheck, RecordView, check_record};
use run::{Added, Run, Runs};

use crate::append::counts_in_queue;
use crate::config::FlushMode;
use crate::core::Core;
use crate::index::{Index, Key, Keys};
use crate::listener::Arrival;
use crate::queue::Queue;
use crate::queue::entry::{ENTRY_BYTES, entry_at};

/// Most records of one round.
const ROUND_RECORDS: usize = 8192;
/// A round with so many keys takes no further record.
const ROUND_KEYS: usize = 65_536;
/// How long dispatch lies still after work before it asks to be woken: under load one wake-up serves many appends.
const NAP: Duration = Duration::from_micros(50);
/// With no more bytes than this the flush thread dispatches by itself what it made durable.
const MOST_HERE: u64 = 128 << 10;
/// What it put off is found after so long.
const LONGEST_SLEEP_OF_SYNC: Duration = Duration::from_secs(1);
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);
/// How long dispatch waits after consume queues could not be written.
const RETRY: Duration = Duration::from_millis(200);
/// When nothing comes for so long, what was put off is written.
const QUIET: Duration = Duration::from_millis(100);

/// The state of dispatch between rounds.
#[doc(alias = "ReputMessageService")]
#[derive(Debug)]
pub(crate) struct Dispatcher {
    /// The keys of one round.
    keys: Vec<Key>,
    /// The queues of one round, during which none is deleted: their uids by topic and queue id. No counted references, and no
    /// look at a queue for each record: append uses the same memory on another core.
    uids: HashMap<Arc<str>, HashMap<u32, u64, ahash::RandomState>, ahash::RandomState>,
    runs: Runs,
    arrivals: Vec<Arrival>,
    progress: Progress,
    /// Set during recovery: numbers of a queue may start again.
    pub rebuilding: bool,
    /// A record of the log did not follow on the end of its queue.
    pub numbers_are_missing: bool,
}

/// How far consume queues have come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Consume queues cover the log before this.
    pub dispatched: u64,
    /// Sum of the maximum offsets of all queues.
    pub entries: u64,
    /// Sum of the first entries of the first files of all queues.
    pub firsts: u64,
    /// When the last dispatched record was stored.
    pub stored_at_ms: i64,
    pub trail: Trail,
}

/// Two starts of records, at least [`Trail::BYTES`] apart: recovery checks the log from the earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Trail([u64; 2]);

impl Trail {
    /// Recovery checks at least this much of the log before the mark.
    const BYTES: u64 = 32 << 20;

    pub(crate) fn new(at: u64) -> Self {
        Self([at; 2])
    }

    /// Moves on when the start of a record at `at` is far enough behind the later one.
    pub(crate) fn step(&mut self, at: u64) {
        if at.saturating_sub(self.0[1]) >= Self::BYTES {
            self.0 = [self.0[1], at];
        }
    }

    pub(crate) fn start(&self) -> u64 {
        self.0[0]
    }
}

impl Dispatcher {
    pub(crate) fn new(progress: Progress) -> Self {
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

    pub(crate) fn progress(&self) -> Progress {
        self.progress
    }

    /// Notes that a queue's files start later.
    pub(crate) fn move_firsts(&mut self, by: u64) {
        self.progress.firsts += by;
    }

    /// Takes deleted queues out of the sums.
    pub(crate) fn forget_queues(&mut self, queues: &[Arc<Queue>]) {
        self.progress.entries -= queues.iter().map(|queue| queue.max().get()).sum::<u64>();
        self.progress.firsts -= queues.iter().map(|queue| queue.first().get()).sum::<u64>();
        queues.iter().for_each(|queue| self.runs.forget(queue));
    }
}

/// Tells how far dispatch has come when it is dropped: last, whoever waits for it finds everything done; and also after a
/// panic of the listener, as the next round goes on behind it.
struct Done<'a, D: Disk>(&'a Core<D>, u64);

impl<D: Disk> Drop for Done<'_, D> {
    fn drop(&mut self) {
        self.0.set_dispatched(self.1);
    }
}

impl<D: Disk> Core<D> {
    /// The life of the dispatch thread.
    pub(crate) fn run_dispatch(&self) {
        loop {
            let worked = self.dispatch_round();
            if self.is_stopping() {
                return;
            }
            let rested = match worked {
                Ok(true) => {
                    std::thread::sleep(NAP);
                    Ok(())
                }
                Ok(false) => self.lie_still(),
                Err(error) => Err(error),
            };
            if let Err(error) = rested {
                self.set_queue_fault(Some(error));
                self.dispatch_wake.sleep(RETRY, || self.is_stopping());
            }
        }
    }

    /// Sleeps until there is work. When none comes for a while, what was put off of queues and index is written.
    ///
    /// # Errors
    /// Consume queues could not be written.
    fn lie_still(&self) -> Result<(), EnvError> {
        let has_work = || self.confirm() > self.dispatched() || self.is_stopping() || self.queues_blocked();
        let is_owing = self.queue_files.waiting() > 0 || self.index.as_ref().is_some_and(Index::is_unsettled);
        let before = self.dispatched();
        let at_most = match self.config.flush {
            _ if is_owing => QUIET,
            FlushMode::Sync => LONGEST_SLEEP_OF_SYNC,
            FlushMode::Async => LONGEST_SLEEP,
        };
        // Set under the append lock: the next append sees it, the former ones are seen by the look below.
        self.writer.lock().dispatch_sleeps = true;
        self.dispatch_wake.sleep(at_most, has_work);
        let is_quiet = || self.dispatched() == before && !has_work();
        if is_owing && is_quiet() {
            self.settle_index();
        }
        while is_quiet() && self.queue_files.waiting() > 0 {
            self.queue_files.write_some(&self.queues)?;
        }
        Ok(())
    }

    /// Dispatches some records. Says whether there were any. Whoever succeeds ends the refusal of appends.
    ///
    /// # Errors
    /// Consume queues could not be written. Nothing is lost; the next round does the same again.
    pub(crate) fn dispatch_round(&self) -> Result<bool, EnvError> {
        let worked = self.try_round()?;
        if self.queues_blocked() {
            self.set_queue_fault(None);
        }
        Ok(worked)
    }

    /// Dispatches on the flush thread what it made durable under synchronous flush, where that is a few records of a few queues
    /// and nobody else works on queues or index: to wake a thread for them costs more. Everything else is left to the dispatch
    /// thread.
    pub(crate) fn dispatch_here(&self) {
        if self.config.flush == FlushMode::Async {
            return;
        }
        let left = || self.confirm().saturating_sub(self.dispatched());
        if left() <= MOST_HERE
            && self.queue_files.waiting() == 0
            && !self.queues_blocked()
            && self.index.as_ref().is_none_or(Index::is_free)
            && let Some(mut dispatcher) = self.dispatcher.try_lock()
        {
            let _ = self.round(&mut dispatcher); // the dispatch thread finds the error as well
        }
        if left() > 0 {
            self.dispatch_wake.wake();
        }
    }

    fn try_round(&self) -> Result<bool, EnvError> {
        self.round(&mut self.dispatcher.lock())
    }

    fn round(&self, dispatcher: &mut Dispatcher) -> Result<bool, EnvError> {
        while self.queue_files.must_write() {
            self.queue_files.write_some(&self.queues)?;
        }
        let limit = self.confirm();
        let from = dispatcher.progress.dispatched;
        if from >= limit {
            return Ok(false);
        }
        dispatcher.runs.clear();
        dispatcher.arrivals.clear();
        dispatcher.keys.clear();
        dispatcher.uids.clear();
        let mut progress = dispatcher.progress;
        let gathered = self.gather(dispatcher, &mut progress, limit);
        if let Some(index) = &self.index {
            index.put(&dispatcher.keys, PhysicalOffset(progress.dispatched))?;
        }
        self.write_runs(&dispatcher.runs, &mut progress)?;
        progress.trail.step(progress.dispatched);
        dispatcher.progress = progress;
        self.call_for_checkpoint(progress.dispatched);
        let done = Done(self, progress.dispatched);
        let listener = self.listener();
        if !dispatcher.arrivals.is_empty() {
            listener.arrived(&dispatcher.arrivals);
        }
        drop(done);
        listener.dispatched(PhysicalOffset(progress.dispatched));
        gathered?;
        Ok(true)
    }

    /// Gathers the entries of records up to `limit` and moves the progress behind them.
    fn gather(
        &self,
        dispatcher: &mut Dispatcher,
        progress: &mut Progress,
        limit: u64,
    ) -> Result<(), EnvError> {
        let Progress { dispatched, stored_at_ms, .. } = progress;
        let mut records = 0;
        self.walk(dispatched, limit, |view, at| {
            let keys = Keys::of(view.properties);
            if self.index.is_some() {
                dispatcher.keys.extend(index::entries(view, PhysicalOffset(at), keys));
            }
            *stored_at_ms = view.stored_at_ms;
            let fact = Fact {
                queue: if counts_in_queue(view.sys_flag) {
                    self.queue_of(view, at, dispatcher)
                } else {
                    NO_QUEUE
                },
                physical_offset: at,
                size_bytes: view.size() as u32,
                queue_offset: view.queue_offset.get(),
                tags_code: tags_code(view, keys.tag()),
                stored_at_ms: view.stored_at_ms,
            };
            self.add(dispatcher, &fact)?;
            records += 1;
            let has_room = dispatcher.keys.len() < ROUND_KEYS && !dispatcher.runs.is_full();
            Ok(records < ROUND_RECORDS && has_room)
        })
    }

    /// Calls `visit` with each record of the log from `at` up to `limit`, until it does not want another. Moves `at` behind what
    /// was visited.
    ///
    /// # Errors
    /// That of a visit, behind whose record `at` stands; or what stands at `at` is no record.
    fn walk(
        &self,
        at: &mut u64,
        limit: u64,
        mut visit: impl FnMut(&RecordView<'_>, u64) -> Result<bool, EnvError>,
    ) -> Result<(), EnvError> {
        while *at < limit {
            let file = self
                .log
                .find(PhysicalOffset(*at))
                .ok_or_else(|| self.broken(*at, "the file is not there"))?;
            // One look for all records: each look at how far the file is written would hold up the next append.
            let (start, end) = (file.start.get(), file.end().get());
            let bytes = file.region.view(0..limit.min(end) - start);
            while let Some(rest) = bytes.get((*at - start) as usize..).filter(|rest| !rest.is_empty()) {
                match check_record(rest, CheckMode::Layout) {
                    Ok(RecordCheck::Record(view)) => {
                        let here = *at;
                        *at += view.size() as u64;
                        if !visit(&view, here)? {
                            return Ok(());
                        }
                    }
                    Ok(RecordCheck::Blank { .. }) => *at = end,
                    Err(_) if end - *at < BLANK_HEAD_BYTES as u64 => *at = end,
                    Err(error) => return Err(self.broken(*at, &error.to_string())),
                }
            }
        }
        Ok(())
    }

    /// The uid of a record's queue. During recovery a queue is made when it is missing; later a missing one was deleted.
    fn queue_of(&self, view: &RecordView<'_>, at: u64, dispatcher: &mut Dispatcher) -> u64 {
        let known = dispatcher.uids.get(view.topic).and_then(|uids| uids.get(&view.queue_id));
        if let Some(&uid) = known {
            return uid;
        }
        let queue = if dispatcher.rebuilding {
            let made = self
                .queues
                .get_or_create(view.topic, view.queue_id)
                .inspect(|queue| queue.set_born(PhysicalOffset::ZERO));
            made.inspect_err(|error| {
                tracing::error!(%error, physical_offset = at, "a record of the log gets no queue entry");
            })
            .ok()
        } else {
            self.queues.get(view.topic, view.queue_id).filter(|queue| queue.may_hold(PhysicalOffset(at)))
        };
        let Some(queue) = queue else { return NO_QUEUE };
        dispatcher.uids.entry(Arc::clone(&queue.topic)).or_default().insert(queue.queue_id, queue.uid);
        queue.uid
    }

    fn broken(&self, at: u64, reason: &str) -> EnvError {
        let source = io::Error::new(io::ErrorKind::InvalidData, format!("physical offset {at}: {reason}"));
        EnvError::Io { operation: "dispatch", path: self.folder.commit_log.clone(), source: Arc::new(source) }
    }

    /// # Errors
    /// During recovery a number that leads nowhere: the next append would use it again.
    fn add(&self, dispatcher: &mut Dispatcher, fact: &Fact) -> Result<(), EnvError> {
        let entries_a_file = self.queue_files.file_size() / ENTRY_BYTES;
        let added = dispatcher.runs.add(fact, &self.queues, entries_a_file, dispatcher.rebuilding);
        dispatcher.numbers_are_missing |= added == Added::Refused || dispatcher.runs.has_filled();
        let Some(queue) = dispatcher.runs.last_queue() else { return Ok(()) };
        match added {
            Added::Refused if dispatcher.rebuilding => {
                let (topic, queue_id) = (&queue.topic, queue.queue_id);
                let reason = format!(
                    "the record of {topic}-{queue_id} has the impossible queue offset {}",
                    fact.queue_offset
                );
                return Err(self.broken(fact.physical_offset, &reason));
            }
            Added::Refused => tracing::error!(
                topic = %queue.topic, queue_id = queue.queue_id, queue_offset = fact.queue_offset,
                physical_offset = fact.physical_offset, "a record of the log has an impossible queue offset"
            ),
            Added::New if !dispatcher.rebuilding => dispatcher.arrivals.push(Arrival {
                topic: Arc::clone(&queue.topic),
                queue_id: queue.queue_id,
                next_offset: QueueOffset(fact.queue_offset + 1),
                tags_code: fact.tags_code,
                stored_at_ms: fact.stored_at_ms,
            }),
            Added::New | Added::Covered | Added::NoQueue => {}
        }
        Ok(())
    }

    /// First entry that a queue's first file has room for once the run is written.
    fn first_entry(&self, run: &Run) -> QueueOffset {
        let first = entry_at(self.queue_files.file_start(QueueOffset(run.first)));
        let is_only_file = run.restart || run.queue.max() == QueueOffset::ZERO;
        if is_only_file { first } else { first.min(run.queue.first()) }
    }

    /// Writes the entries of a round, or puts that off where they are of many queues; then makes all of them readable.
    fn write_runs(&self, runs: &Runs, progress: &mut Progress) -> Result<(), EnvError> {
        let is_of_few = runs.count() + self.queue_files.waiting() <= self.config.queues_at_once;
        for run in runs.iter().filter(|run| !run.bytes.is_empty()) {
            let queue = &run.queue;
            if run.restart {
                self.queue_files.remove(queue)?;
                queue.forget_dirty_files(0);
            } else if run.cut {
                self.queue_files.write_tail_of(queue, &self.queues)?;
                self.queue_files.cut(queue, QueueOffset(run.first))?;
            }
            if is_of_few {
                self.queue_files.write_tail_of(queue, &self.queues)?;
                let note = |start, is_new| self.queues.note_written(queue, start, is_new);
                self.queue_files.write(queue, QueueOffset(run.first), &run.bytes, note)?;
            }
        }
        if !is_of_few {
            for run in runs.iter().filter(|run| !run.bytes.is_empty()) {
                self.queue_files.put_off(&run.queue, QueueOffset(run.first), &run.bytes);
            }
        }
        for run in runs.iter().filter(|run| !run.bytes.is_empty()) {
            let first = self.first_entry(run);
            progress.entries = progress.entries - run.queue.max().get() + run.next();
            progress.firsts = progress.firsts - run.queue.first().get() + first.get();
            run.queue.set_first(first);
            if let Some(min) = run.min.or(run.restart.then_some(run.first)) {
                run.queue.set_min(QueueOffset(min));
            }
            run.queue.publish(QueueOffset(run.next()));
        }
        Ok(())
    }
}
