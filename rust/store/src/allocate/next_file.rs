//! The next file of the log: appends ask for it, one thread makes it, one append takes it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rocketpy_env::planted::{self, Bug};
use rocketpy_model::PhysicalOffset;

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use crate::wake::Wake;

/// How long a failure to make a file answers further appends before it is tried again.
const RETRY: Duration = Duration::from_millis(200);
/// For this long after a failure no file is asked for ahead.
const REST: Duration = Duration::from_secs(1);
/// Maximum sleep of the thread: whoever has work for it wakes it.
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);
/// Value of `look_at` that calls the thread. No log reaches this offset.
const NOW: u64 = u64::MAX;

/// Between the appends, which need the next file, and the thread that makes it.
pub(super) struct NextFile<F, E> {
    state: Mutex<State<F, E>>,
    /// Rung when the wanted file is made or could not be made.
    done: Condvar,
    wake: Wake,
    /// When the end of the log passes this offset, the thread looks ahead; [`NOW`] while it does.
    look_at: AtomicU64,
}

#[derive(Debug)]
struct State<F, E> {
    /// Start of a file that is to be made.
    wanted: Option<PhysicalOffset>,
    /// The next file, made and not yet part of the log.
    ready: Option<Arc<F>>,
    failed: Option<(Arc<E>, Instant)>,
    /// When the first append came that needs the wanted file.
    waited_since: Option<Instant>,
    /// Files that start before this were handed out.
    given_to: PhysicalOffset,
}

/// What an append gets that needs the next file.
#[derive(Debug)]
pub(super) enum Taken<F, E> {
    /// The file. Nobody else gets it.
    File(Arc<F>),
    /// The file could not be made a moment ago.
    Failed(Arc<E>),
    /// It is being made. The first append that needs it came at this time.
    Waits(Instant),
}

impl<F, E> NextFile<F, E> {
    /// The thread is called when the log passes `look_at`.
    pub(super) fn new(look_at: PhysicalOffset) -> Self {
        let given_to = PhysicalOffset::ZERO;
        let state = State { wanted: None, ready: None, failed: None, waited_since: None, given_to };
        Self {
            state: Mutex::new(state),
            done: Condvar::new(),
            wake: Wake::default(),
            look_at: AtomicU64::new(look_at.get()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<F, E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls the thread when an append has come far enough.
    #[inline]
    pub(super) fn look_ahead(&self, end: PhysicalOffset) {
        if end.get() >= self.look_at.load(Ordering::Relaxed)
            && self.look_at.swap(NOW, Ordering::AcqRel) != NOW
        {
            self.wake.wake();
        }
    }

    /// Says when the thread is to be called again. `end` is the end of the log.
    pub(super) fn set_look_at(&self, offset: PhysicalOffset, end: impl FnOnce() -> PhysicalOffset) {
        self.look_at.store(offset.get(), Ordering::SeqCst);
        self.look_ahead(end()); // appends that passed the mark before it was set called nobody
    }

    fn is_called(&self) -> bool {
        self.look_at.load(Ordering::Acquire) == NOW
    }

    /// The life of the thread: `make` makes the wanted file, `look` looks ahead.
    pub(super) fn run(&self, make: impl Fn(), mut look: impl FnMut()) {
        while !self.is_stopped() {
            make();
            if self.is_called() {
                look();
            }
            self.wake.sleep(LONGEST_SLEEP, || self.has_work());
        }
    }

    fn has_work(&self) -> bool {
        self.is_called() || self.lock().wanted.is_some()
    }

    /// Lets the thread end, and everybody who waits check again.
    pub(super) fn stop(&self) {
        self.wake.stop();
        drop(self.lock());
        self.done.notify_all();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.wake.is_stopped()
    }

    /// The file that was made and not taken.
    pub(super) fn ready(&self) -> Option<Arc<F>> {
        self.lock().ready.clone()
    }

    pub(super) fn take_unused(&self) -> Option<Arc<F>> {
        self.lock().ready.take()
    }

    /// Asks for a file, unless there is one, or one has just failed, or an append has taken it since the caller saw the last file
    /// of the log.
    pub(super) fn want_ahead(&self, start: PhysicalOffset) {
        let mut state = self.lock();
        let fresh_failure = state.failed.as_ref().is_some_and(|(_, at)| at.elapsed() < REST);
        let is_given = start < state.given_to && !planted::has(Bug::FileWantedTwice);
        if state.ready.is_none() && state.wanted.is_none() && !is_given && !fresh_failure {
            state.wanted = Some(start);
        }
    }

    /// Takes the file that starts at `start`, or asks for it. The caller is the only one who takes files, and waits without the
    /// lock that makes it so: [`NextFile::wait`].
    ///
    /// # Panics
    /// When that file was taken before.
    pub(super) fn take(&self, start: PhysicalOffset) -> Taken<F, E> {
        let mut state = self.lock();
        if let Some(file) = state.ready.take() {
            assert!(start >= state.given_to, "the file at {start} was handed out before");
            state.given_to = start + 1;
            return Taken::File(file);
        }
        if let Some((error, at)) = &state.failed
            && at.elapsed() < RETRY
        {
            return Taken::Failed(Arc::clone(error));
        }
        state.wanted = Some(start);
        let since = *state.waited_since.get_or_insert_with(Instant::now);
        drop(state);
        self.wake.wake();
        Taken::Waits(since)
    }

    /// Waits until the file that an append needs is made or could not be made, or until the store stops. `false` when that has
    /// not come `at_most` after the first append needed it.
    pub(super) fn wait(&self, at_most: Duration) -> bool {
        let mut state = self.lock();
        while let (Some(_), Some(since)) = (state.wanted, state.waited_since) {
            if self.is_stopped() {
                break;
            }
            let left = at_most.saturating_sub(since.elapsed());
            if left.is_zero() {
                return false;
            }
            state = self.done.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Makes the file that was asked for, if one was. `make` may take long: no lock is held. `note_failure` gets an error, and when
    /// the attempt before failed, if it did.
    pub(super) fn make(
        &self,
        make: impl FnOnce(PhysicalOffset) -> Result<F, E>,
        note_failure: impl FnOnce(&E, Option<Instant>),
    ) {
        let Some(start) = self.lock().wanted else { return };
        let made = make(start);
        let mut state = self.lock();
        state.wanted = None;
        state.waited_since = None;
        match made {
            Ok(file) => {
                state.ready = Some(Arc::new(file));
                state.failed = None;
            }
            Err(error) => {
                note_failure(&error, state.failed.as_ref().map(|(_, at)| *at));
                state.failed = Some((Arc::new(error), Instant::now()));
            }
        }
        drop(state);
        self.done.notify_all();
    }

    /// Asks for a file that no append waits for.
    #[cfg(feature = "sim")]
    pub(super) fn want(&self, start: PhysicalOffset) {
        let mut state = self.lock();
        if state.ready.is_none() {
            state.wanted = Some(start);
        }
    }

    #[cfg(feature = "sim")]
    pub(super) fn take_failure(&self) -> Option<Arc<E>> {
        self.lock().failed.take().map(|(error, _)| error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next_file() -> NextFile<u64, ()> {
        NextFile::new(PhysicalOffset(100))
    }

    #[test]
    fn the_thread_is_called_once_for_each_mark() {
        let next = next_file();
        next.look_ahead(PhysicalOffset(99));
        assert!(!next.has_work());
        next.look_ahead(PhysicalOffset(100));
        assert!(next.has_work());
    }

    #[test]
    fn a_file_that_was_handed_out_is_not_made_again() {
        let next = next_file();
        next.lock().given_to = PhysicalOffset(65_537);
        next.want_ahead(PhysicalOffset(65_536));
        assert_eq!(next.lock().wanted, None, "the name is taken: every append would be refused");
        next.want_ahead(PhysicalOffset(131_072));
        assert_eq!(next.lock().wanted, Some(PhysicalOffset(131_072)));
    }

    #[test]
    fn an_append_that_has_waited_as_long_as_it_may_goes_on_without_the_file() {
        let next = next_file();
        assert!(matches!(next.take(PhysicalOffset::ZERO), Taken::Waits(_)));
        assert!(!next.wait(Duration::ZERO));
        next.make(|start| Ok(start.get()), |_, _| panic!("it can be made"));
        assert!(next.wait(Duration::ZERO));
        assert!(matches!(next.take(PhysicalOffset::ZERO), Taken::File(_)));
    }
}
