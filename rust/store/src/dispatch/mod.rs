//! From the log to the consume queues: what was appended becomes readable.

mod backlog;
mod fact;
mod index;
mod progress;
mod round;
mod run;

use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) use backlog::Backlog;
pub use fact::tags_code;
use parking_lot::{Mutex, MutexGuard};
pub(crate) use progress::{Progress, Trail};
use rocketpy_env::{Disk, EnvError};
use rocketpy_model::PhysicalOffset;
use round::State;

use crate::admission::Admission;
use crate::append::Gather;
use crate::checkpoint_call::CheckpointCall;
use crate::config::FlushMode;
use crate::derived::Derived;
use crate::error::{DispatchError, StoreError};
use crate::flush::Flusher;
use crate::listener::Listeners;
use crate::log::Log;
use crate::queue::Queue;
use crate::wake::Wake;

const ROUND_RECORDS: usize = 8192;
/// A round with this many keys takes no more records.
const ROUND_KEYS: usize = 65_536;
/// Time between two rounds while records come for which nobody waits: one round serves many appends.
const TICK: Duration = Duration::from_millis(2);
/// Run the next round without a pause when a round leaves this many bytes undispatched.
const BUSY_BYTES: u64 = 1 << 20;
/// Up to this many bytes the flush thread itself dispatches what it made durable.
const INLINE_DISPATCH_BYTES: u64 = 128 << 10;
/// Maximum sleep under synchronous flush, and while readers are held. The thread that flushes or confirms wakes dispatch for what it
/// leaves; this interval finds what was missed.
const LONGEST_SLEEP_OF_SYNC: Duration = Duration::from_secs(1);
/// Maximum sleep otherwise: every append that finds dispatch asleep wakes it.
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);
/// Pause after consume queues could not be written.
const RETRY: Duration = Duration::from_millis(200);
/// How long entries wait in memory before they are written, when few queues have any.
const PUT_OFF: Duration = Duration::from_millis(20);
/// After this time without a record everything is written that was put off.
const QUIET: Duration = Duration::from_millis(100);

/// Writes the entries of what was appended, and calls the listeners.
#[doc(alias = "ReputMessageService")]
pub(crate) struct Dispatcher<D: Disk> {
    log: Arc<Log<D>>,
    admission: Arc<Admission>,
    listeners: Arc<Listeners>,
    flusher: Arc<Flusher<D>>,
    derived: Arc<Derived<D>>,
    call: Arc<CheckpointCall>,
    /// The dispatch thread sleeps here.
    wake: Arc<Wake>,
    backlog: Arc<Backlog>,
    /// Held for one round.
    state: Mutex<State>,
}

/// No round of dispatch runs while this exists. Only its holder changes the files of queues.
pub(crate) struct Paused<'a>(MutexGuard<'a, State>);

impl Paused<'_> {
    pub(crate) fn progress(&self) -> Progress {
        self.0.progress
    }

    /// Notes that a queue's files start later, by this many entries.
    pub(crate) fn move_firsts(&mut self, entries: u64) {
        self.0.progress.firsts += entries;
    }

    /// Takes deleted queues out of the sums.
    pub(crate) fn forget_queues(&mut self, queues: &[Arc<Queue>]) {
        self.0.forget_queues(queues);
    }
}

impl<D: Disk> Dispatcher<D> {
    pub(crate) fn new(
        log: &Arc<Log<D>>,
        admission: &Arc<Admission>,
        flusher: &Arc<Flusher<D>>,
        derived: &Arc<Derived<D>>,
        call: &Arc<CheckpointCall>,
        wake: &Arc<Wake>,
        progress: Progress,
    ) -> Self {
        Self {
            log: Arc::clone(log),
            admission: Arc::clone(admission),
            listeners: Arc::clone(admission.listeners()),
            flusher: Arc::clone(flusher),
            derived: Arc::clone(derived),
            call: Arc::clone(call),
            wake: Arc::clone(wake),
            backlog: Arc::new(Backlog::new(progress.dispatched)),
            state: Mutex::new(State::new(progress)),
        }
    }

    /// Consume queues cover the log before this.
    pub(crate) fn dispatched(&self) -> PhysicalOffset {
        self.backlog.dispatched()
    }

    /// Where appends wait that are too far ahead.
    pub(crate) fn backlog(&self) -> &Arc<Backlog> {
        &self.backlog
    }

    /// Waits until no round runs, and keeps the next one from running.
    pub(crate) fn pause(&self) -> Paused<'_> {
        Paused(self.state.lock())
    }

    /// Has the appends of this thread dispatched together.
    pub(crate) fn gather_appends(&self) -> Gather<'_> {
        Gather::new(&self.wake)
    }

    /// Lets the dispatch thread check for work at once.
    pub(crate) fn hurry(&self) {
        self.wake.hurry();
    }

    /// Lets the dispatch thread end.
    pub(crate) fn stop(&self) {
        self.wake.stop();
        self.backlog.ring();
    }

    pub(crate) fn run(&self) {
        let mut write_at = None;
        loop {
            self.wake.forget_hurry(); // before the round looks for records
            let worked = self.round();
            if self.wake.is_stopped() {
                return;
            }
            let written = worked.and_then(|worked| self.write_in_time(&mut write_at).map(|()| worked));
            let rested = match written {
                Ok(true) => {
                    self.wake.sleep_unless_hurried(TICK, || self.undispatched_bytes() >= BUSY_BYTES);
                    Ok(())
                }
                Ok(false) => self.wait_for_work(),
                Err(error) => Err(error),
            };
            if let Err(error) = rested {
                self.admission.set_queue_fault(Some(error));
                self.backlog.ring(); // appends are refused now
                self.wake.sleep(RETRY, || false);
            }
        }
    }

    /// Writes what is put off for some queues, and not for many, [`PUT_OFF`] after this first saw it.
    ///
    /// # Errors
    /// Consume queues could not be written.
    fn write_in_time(&self, write_at: &mut Option<Instant>) -> Result<(), DispatchError> {
        if self.derived.files().waiting() == 0 {
            *write_at = None;
            return Ok(());
        }
        let now = Instant::now();
        if now >= *write_at.get_or_insert(now + PUT_OFF) {
            self.write_if_few()?;
            *write_at = None;
        }
        Ok(())
    }

    /// Writes the entries that were put off, unless too many queues have some.
    fn write_if_few(&self) -> Result<(), EnvError> {
        if self.derived.files().waiting() > self.log.config().queues_at_once {
            return Ok(());
        }
        self.derived.write_waiting()
    }

    /// Sleeps until there is work. When none comes for a while, writes what was put off for queues and index.
    ///
    /// # Errors
    /// Consume queues could not be written.
    fn wait_for_work(&self) -> Result<(), DispatchError> {
        let has_work = || self.undispatched_bytes() > 0 || self.admission.has_queue_fault();
        let is_of_few = (1..=self.log.config().queues_at_once).contains(&self.derived.files().waiting());
        let owes_writes = self.derived.owes_writes();
        let before = self.dispatched();
        let at_most = match self.log.config().flush {
            _ if is_of_few => PUT_OFF,
            _ if owes_writes => QUIET,
            FlushMode::Sync => LONGEST_SLEEP_OF_SYNC,
            FlushMode::Async if self.log.holds_readers() => LONGEST_SLEEP_OF_SYNC,
            FlushMode::Async => LONGEST_SLEEP,
        };
        // Set under the writer lock: the next append sees it, and the check below sees the earlier ones.
        self.log.write().ask_for_wake();
        self.wake.sleep(at_most, has_work);
        let is_quiet = || self.dispatched() == before && !has_work() && !self.wake.is_stopped();
        if owes_writes && !is_of_few && is_quiet() {
            self.derived.settle_index();
        }
        while is_quiet() && self.derived.files().waiting() > 0 {
            self.derived.write_some()?;
        }
        Ok(())
    }

    fn undispatched_bytes(&self) -> u64 {
        self.log.readable_end().saturating_sub(self.dispatched())
    }

    /// Dispatches some records. Returns whether there were any. Success ends the refusal of appends.
    ///
    /// # Errors
    /// Consume queues could not be written, or the log is damaged. The next round does the same again.
    pub(crate) fn round(&self) -> Result<bool, DispatchError> {
        let worked = self.run_round(&mut self.state.lock())?;
        if self.admission.has_queue_fault() {
            self.admission.set_queue_fault(None);
        }
        Ok(worked)
    }

    /// Dispatches on the flush thread what it made durable under synchronous flush, if that is a few records and nobody
    /// else works on the index: waking a thread for them costs more. Leaves everything else to the dispatch thread.
    pub(crate) fn round_inline(&self) {
        if self.log.config().flush == FlushMode::Sync {
            self.round_of_few();
        }
    }

    /// The same on the thread that confirmed records for readers.
    pub(crate) fn round_of_few(&self) {
        let owed_writes = self.derived.files().waiting() > 0;
        if self.undispatched_bytes() <= INLINE_DISPATCH_BYTES
            && !self.admission.has_queue_fault()
            && self.derived.is_index_free()
            && let Some(mut state) = self.state.try_lock()
        {
            let _ = self.run_round(&mut state); // the dispatch thread finds the error as well
        }
        if self.undispatched_bytes() > 0 || !owed_writes && self.derived.files().waiting() > 0 {
            self.wake.hurry();
        }
    }

    /// Dispatches what recovery left behind.
    ///
    /// Returns false when a record does not continue its queue: entries were lost, and only the whole log shows which.
    /// Nothing is noted then. With `from_start` queues are rebuilt from the start of the log, and this does not happen.
    pub(crate) fn catch_up(&self, from_start: bool) -> Result<bool, StoreError> {
        self.catch_up_index()?;
        self.state.lock().rebuilding = true;
        loop {
            let worked = self.round();
            if self.state.lock().numbers_are_missing && !from_start {
                tracing::warn!("consume queue entries missing, rebuilding all consume queues");
                return Ok(false);
            }
            if !worked? {
                break;
            }
            self.write_if_few()?;
        }
        self.state.lock().rebuilding = false;
        for queue in self.derived.queues().all() {
            queue.set_next(queue.max());
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use rocketpy_env::{DiskFile as _, OpenMode, RealDisk};

    use super::*;
    use crate::alone;

    #[test]
    fn a_round_makes_readable_what_was_appended_and_calls_for_a_checkpoint() {
        let dir = tempfile::tempdir().unwrap();
        let store = alone::pipeline(dir.path(), FlushMode::Async);
        assert!(!store.dispatcher.round().unwrap(), "there is nothing to do");
        for _ in 0..3 {
            store.appender.append(&alone::record(b"hello")).unwrap();
        }
        let queue = store.derived.queues().get("t", 0).unwrap();
        assert_eq!((queue.next().get(), queue.max().get()), (3, 0), "nobody reads them yet");
        assert!(store.dispatcher.round().unwrap());
        assert_eq!((queue.max().get(), store.dispatcher.dispatched()), (3, store.log.end()));
        assert_eq!(store.dispatcher.pause().progress().entries, 3);
        assert!(store.call.is_called());
    }

    #[test]
    fn an_append_hurries_dispatch_when_somebody_waits_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = alone::pipeline(dir.path(), FlushMode::Async);
        let append = || store.appender.append(&alone::record(b"hello")).unwrap();
        let is_hurried = || store.dispatcher.wake.forget_hurry();
        append();
        assert!(!is_hurried(), "nobody waits");
        let queue = store.derived.queues().get("t", 0).unwrap();
        assert!(queue.set_awaited(true), "a record is on its way");
        assert!(store.dispatcher.round().unwrap());
        assert!(!queue.set_awaited(true), "what is readable is not waited for");
        append();
        assert!(is_hurried());
        queue.set_awaited(false);
        append();
        assert!(!is_hurried());
    }

    #[test]
    fn under_synchronous_flush_dispatch_stops_at_what_is_durable() {
        let dir = tempfile::tempdir().unwrap();
        let store = alone::pipeline(dir.path(), FlushMode::Sync);
        store.appender.append(&alone::record(b"hello")).unwrap();
        assert!(!store.dispatcher.round().unwrap());
        store.flusher.flush_all().unwrap();
        store.dispatcher.round_inline();
        assert_eq!(store.dispatcher.dispatched(), store.log.end());
    }

    #[test]
    fn a_log_that_cannot_be_read_stops_dispatch_and_names_the_place() {
        let dir = tempfile::tempdir().unwrap();
        let store = alone::pipeline(dir.path(), FlushMode::Async);
        store.appender.append(&alone::record(b"hello")).unwrap();
        let path = store.log.find(PhysicalOffset::ZERO).unwrap().path.clone();
        RealDisk.open_file(&path, OpenMode::Write).unwrap().set_len(0).unwrap();
        let error = store.dispatcher.round().unwrap_err();
        let DispatchError::Damage { path: of, physical_offset, reason } = error else { panic!("{error}") };
        assert_eq!((of, physical_offset), (path, PhysicalOffset::ZERO));
        assert!(reason.contains("cannot be read"), "{reason}");
        assert_eq!(store.derived.queues().get("t", 0).unwrap().max().get(), 0);
    }

    #[test]
    fn no_round_runs_while_somebody_pauses_dispatch() {
        let dir = tempfile::tempdir().unwrap();
        let store = alone::pipeline(dir.path(), FlushMode::Sync);
        store.appender.append(&alone::record(b"hello")).unwrap();
        store.flusher.flush_all().unwrap();
        let paused = store.dispatcher.pause();
        store.dispatcher.round_inline();
        assert_eq!(store.dispatcher.dispatched(), PhysicalOffset::ZERO);
        drop(paused);
        assert!(store.dispatcher.round().unwrap());
    }

    #[test]
    fn damage_stays_where_it_is_found_and_appends_learn_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = alone::pipeline(dir.path(), FlushMode::Async);
        store.appender.append(&alone::record(b"hello")).unwrap();
        let sound_to = store.log.end();
        alone::append(&store.log, &[7; 100]);
        for _ in 0..2 {
            let error = store.dispatcher.round().unwrap_err();
            assert!(
                matches!(error, DispatchError::Damage { physical_offset, .. } if physical_offset == sound_to)
            );
            store.admission.set_queue_fault(Some(error));
        }
        assert_eq!(store.dispatcher.dispatched(), sound_to, "what comes before it is readable");
        assert!(store.appender.append(&alone::record(b"x")).is_err());
    }
}
