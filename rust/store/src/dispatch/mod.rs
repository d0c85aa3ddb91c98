//! From the log to the consume queues: what was appended becomes readable.

mod fact;
mod index;
mod run;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rocketpy_env::{Disk, EnvError, Region};
use rocketpy_model::QueueOffset;
use rocketpy_protocol::record::{CheckMode, RecordCheck, RecordView, check_record};

pub(crate) use fact::{Fact, Handover, NO_QUEUE, TagSource};
use run::{Added, Run, Runs};

use crate::append::counts_in_queue;
use crate::core::Core;
use crate::index::Key;
use crate::listener::Arrival;
use crate::queue::Queue;
use crate::queue::entry::ENTRY_BYTES;

/// Most records of one round.
const ROUND_RECORDS: usize = 8192;
/// A round with so many keys takes no further record.
const ROUND_KEYS: usize = 65_536;
/// How long dispatch lies still after work before it asks to be woken: under load one wake-up serves many appends.
const NAP: Duration = Duration::from_micros(50);
/// How long dispatch waits after consume queues could not be written.
const RETRY: Duration = Duration::from_millis(200);
/// When nothing comes for so long, entries that were put off are written.
const QUIET: Duration = Duration::from_millis(100);

/// The state of dispatch between rounds.
#[doc(alias = "ReputMessageService")]
#[derive(Debug)]
pub(crate) struct Dispatcher {
    /// Facts taken from the hand-over, not yet dispatched.
    pending: VecDeque<Fact>,
    taken: Vec<Fact>,
    /// The key hashes of `pending` and of `taken`.
    pending_keys: VecDeque<u32>,
    taken_keys: Vec<u32>,
    /// The keys of one round.
    keys: Vec<Key>,
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
}

/// What stands in the log at a place.
enum Found {
    Record(Fact),
    /// The rest of the file is blank; the log goes on here.
    NextFile(u64),
}

impl Dispatcher {
    pub fn new(progress: Progress) -> Self {
        Self {
            pending: VecDeque::new(),
            taken: Vec::new(),
            pending_keys: VecDeque::new(),
            taken_keys: Vec::new(),
            keys: Vec::new(),
            runs: Runs::default(),
            arrivals: Vec::new(),
            progress,
            rebuilding: false,
            numbers_are_missing: false,
        }
    }

    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// Notes that a queue's files start later.
    pub fn move_firsts(&mut self, by: u64) {
        self.progress.firsts += by;
    }

    /// Takes deleted queues out of the sums.
    pub fn forget_queues(&mut self, queues: &[Arc<Queue>]) {
        self.progress.entries -= queues.iter().map(|queue| queue.max()).sum::<u64>();
        self.progress.firsts -= queues.iter().map(|queue| queue.first()).sum::<u64>();
        queues.iter().for_each(|queue| self.runs.forget(queue));
    }
}

impl<D: Disk> Core<D> {
    /// The life of the dispatch thread.
    pub fn run_dispatch(&self) {
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

    /// Sleeps until there is work. When none comes for a while, entries that were put off are written.
    ///
    /// # Errors
    /// Consume queues could not be written.
    fn lie_still(&self) -> Result<(), EnvError> {
        self.settle_index();
        let has_work = || self.confirm() > self.dispatched() || self.is_stopping() || self.queues_blocked();
        let at_most = if self.queue_files.waiting() > 0 { QUIET } else { Duration::from_secs(3600) };
        // Set under the append lock: the next append sees it, the former ones are seen by the look below.
        self.writer.lock().dispatch_sleeps = true;
        self.dispatch_wake.sleep(at_most, has_work);
        while !has_work() && self.queue_files.waiting() > 0 {
            self.queue_files.write_some(&self.queues)?;
        }
        Ok(())
    }

    /// Dispatches some records. Says whether there were any. Whoever succeeds ends the refusal of appends.
    ///
    /// # Errors
    /// Consume queues could not be written. Nothing is lost; the next round does the same again.
    pub fn dispatch_round(&self) -> Result<bool, EnvError> {
        let worked = self.try_round()?;
        if self.queues_blocked() {
            self.set_queue_fault(None);
        }
        Ok(worked)
    }

    fn try_round(&self) -> Result<bool, EnvError> {
        let mut guard = self.dispatcher.lock();
        let dispatcher = &mut *guard;
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
        let mut progress = dispatcher.progress;
        let gathered = self.gather(dispatcher, &mut progress, limit);
        if let Some(index) = &self.index {
            index.put(&dispatcher.keys, progress.dispatched)?;
        }
        self.write_runs(&dispatcher.runs, &mut progress)?;
        dispatcher.progress = progress;
        if !dispatcher.arrivals.is_empty() {
            self.listener().arrived(&dispatcher.arrivals);
        }
        self.set_dispatched(progress.dispatched); // last: whoever waits for it finds everything done
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
        let mut fell_back = false;
        for _ in 0..ROUND_RECORDS {
            let at = progress.dispatched;
            if at >= limit || dispatcher.keys.len() >= ROUND_KEYS || dispatcher.runs.is_full() {
                break;
            }
            let fact = match self.handed_over(dispatcher, at) {
                Some(fact) => fact,
                None => match self.find(at, dispatcher.rebuilding, &mut dispatcher.keys)? {
                    Found::NextFile(start) => {
                        progress.dispatched = start;
                        continue;
                    }
                    Found::Record(fact) => {
                        fell_back = true;
                        fact
                    }
                },
            };
            assert!(fact.end() <= limit, "a record passes the end of the log");
            progress.dispatched = fact.end();
            progress.stored_at_ms = fact.stored_at_ms;
            self.add(dispatcher, &fact)?;
        }
        if fell_back && !dispatcher.rebuilding {
            self.counters.dispatch_fell_back.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The fact of the record at an offset, if it was handed over.
    fn handed_over(&self, dispatcher: &mut Dispatcher, at: u64) -> Option<Fact> {
        if dispatcher.pending.is_empty() {
            self.writer.lock().handover.take(&mut dispatcher.taken, &mut dispatcher.taken_keys);
            dispatcher.pending.extend(dispatcher.taken.drain(..));
            dispatcher.pending_keys.extend(dispatcher.taken_keys.drain(..));
        }
        while dispatcher.pending.front().is_some_and(|fact| fact.physical_offset <= at) {
            let fact = dispatcher.pending.pop_front()?;
            let hashes = dispatcher.pending_keys.drain(..fact.keys as usize);
            if fact.physical_offset == at {
                dispatcher.keys.extend(hashes.map(|hash| fact.key(hash)));
                return Some(fact);
            } // else it was read from the log meanwhile
        }
        None
    }

    /// Reads what stands in the log at an offset before its end, and adds the keys of the record.
    fn find(&self, at: u64, rebuilding: bool, keys: &mut Vec<Key>) -> Result<Found, EnvError> {
        let file = self.log.find(at).ok_or_else(|| self.broken(at, "the file is not there"))?;
        let bytes = file.region.view(at - file.start..file.region.written());
        match check_record(bytes, CheckMode::Layout) {
            Ok(RecordCheck::Blank { .. }) => Ok(Found::NextFile(file.end())),
            Ok(RecordCheck::Record(view)) => {
                let before = keys.len();
                self.add_keys(&view, at, keys);
                let tags = TagSource::of(view.topic, view.properties);
                let queue = match counts_in_queue(view.sys_flag) {
                    true => self.queue_of(&view, at, rebuilding),
                    false => NO_QUEUE,
                };
                Ok(Found::Record(Fact {
                    queue,
                    physical_offset: at,
                    size_bytes: view.size() as u32,
                    keys: (keys.len() - before) as u32,
                    queue_offset: view.queue_offset.get(),
                    tags_code: tags.code(view.stored_at_ms),
                    stored_at_ms: view.stored_at_ms,
                }))
            }
            Err(_) if bytes.len() < 8 => Ok(Found::NextFile(file.end())),
            Err(error) => Err(self.broken(at, &error.to_string())),
        }
    }

    /// The uid of a record's queue. During recovery a queue is made when it is missing; later a missing one was deleted.
    fn queue_of(&self, view: &RecordView<'_>, at: u64, rebuilding: bool) -> u64 {
        if !rebuilding {
            let queue = self.queues.get(view.topic, view.queue_id).filter(|queue| queue.may_hold(at));
            return queue.map_or(NO_QUEUE, |queue| queue.uid);
        }
        match self.queues.get_or_create(view.topic, view.queue_id) {
            Ok(queue) => {
                queue.set_born(0);
                queue.uid
            }
            Err(error) => {
                tracing::error!(%error, physical_offset = at, "a record of the log gets no queue entry");
                NO_QUEUE
            }
        }
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
    fn first_entry(&self, run: &Run) -> u64 {
        let first = self.queue_files.file_start(run.first) / ENTRY_BYTES;
        let is_only_file = run.restart || run.queue.max() == 0;
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
                self.queue_files.cut(queue, run.first)?;
            }
            if is_of_few {
                self.queue_files.write_tail_of(queue, &self.queues)?;
                let note = |start, is_new| self.queues.note_written(queue, start, is_new);
                self.queue_files.write(queue, run.first, &run.bytes, note)?;
            }
        }
        if !is_of_few {
            for run in runs.iter().filter(|run| !run.bytes.is_empty()) {
                self.queue_files.put_off(&run.queue, run.first, &run.bytes);
            }
        }
        for run in runs.iter().filter(|run| !run.bytes.is_empty()) {
            let first = self.first_entry(run);
            progress.entries = progress.entries - run.queue.max() + run.next();
            progress.firsts = progress.firsts - run.queue.first() + first;
            run.queue.set_first(first);
            if let Some(min) = run.min.or(run.restart.then_some(run.first)) {
                run.queue.set_min(min);
            }
            run.queue.publish(run.next());
        }
        Ok(())
    }
}
