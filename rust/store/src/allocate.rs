//! Makes the next commit log file before it is needed, and brings pages into memory ahead of the appends.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rocketpy_env::{Disk, EnvError, Region};
use rocketpy_model::PhysicalOffset;

use crate::config::FlushMode;
use crate::core::Core;
use crate::error::AppendError;
use crate::mapped::MappedFile;
use crate::wake::Wake;

/// How long a failure to make a file answers further appends before it is tried again.
const RETRY: Duration = Duration::from_millis(200);
/// First look ahead after a rest; it doubles with every call while there is traffic.
const FIRST_WINDOW: u64 = 256 << 10;
/// Faulted in at a time; a wanted file comes first between two of these.
const STEP: u64 = 1 << 20;
/// After this time without a call the window is small again.
const REST: Duration = Duration::from_secs(1);

/// What appends and the allocating thread share.
#[doc(alias = "AllocateMappedFileService")]
#[derive(Debug)]
pub(crate) struct Allocator<R> {
    state: Mutex<State<R>>,
    done: Condvar,
    pub wake: Wake,
    /// When the end of the log passes this the thread looks ahead; `u64::MAX` while it does.
    look_at: AtomicU64,
    /// Largest window, 0 for none.
    limit: u64,
    /// There is no thread: whoever needs a file makes it.
    #[cfg(feature = "sim")]
    stepped: std::sync::atomic::AtomicBool,
}

#[derive(Debug)]
struct State<R> {
    /// Start of a file that is to be made.
    wanted: Option<u64>,
    /// The next file, made and not yet part of the log.
    ready: Option<Arc<MappedFile<R>>>,
    failed: Option<(Arc<EnvError>, Instant)>,
    /// When the first append came that needs the wanted file.
    waited_since: Option<Instant>,
    /// Files that start before this were handed out.
    given_to: u64,
}

/// How far pages were brought in; the thread's own.
#[derive(Debug)]
struct Ahead {
    faulted_to: u64,
    window: u64,
    last_call: Instant,
}

impl<R> Allocator<R> {
    pub(crate) fn new(end: u64, limit: u64) -> Self {
        Self {
            state: Mutex::new(State {
                wanted: None,
                ready: None,
                failed: None,
                waited_since: None,
                given_to: 0,
            }),
            done: Condvar::new(),
            wake: Wake::default(),
            look_at: AtomicU64::new(end),
            limit,
            #[cfg(feature = "sim")]
            stepped: std::sync::atomic::AtomicBool::new(false),
        }
    }

    #[cfg(feature = "sim")]
    pub(crate) fn set_stepped(&self) {
        self.stepped.store(true, Ordering::Relaxed);
    }

    /// Calls the thread when an append has come far enough.
    pub(crate) fn look_ahead(&self, end: u64) {
        if end >= self.look_at.load(Ordering::Relaxed)
            && self.look_at.swap(u64::MAX, Ordering::AcqRel) != u64::MAX
        {
            self.wake.wake();
        }
    }

    fn has_work(&self) -> bool {
        self.look_at.load(Ordering::Acquire) == u64::MAX || self.state.lock().wanted.is_some()
    }

    /// Asks for a file, unless there is one, or one has just failed, or an append has taken it since the caller looked.
    fn want_ahead(&self, start: u64) {
        let mut state = self.state.lock();
        let fresh_failure = state.failed.as_ref().is_some_and(|(_, at)| at.elapsed() < REST);
        let is_free = state.ready.is_none() && state.wanted.is_none() && start >= state.given_to;
        if is_free && !fresh_failure {
            state.wanted = Some(start);
        }
    }

    /// Lets everybody who waits look again.
    pub(crate) fn notify(&self) {
        drop(self.state.lock());
        self.done.notify_all();
    }

    /// Takes the file that was made and is not used.
    pub(crate) fn take_unused(&self) -> Option<Arc<MappedFile<R>>> {
        self.state.lock().ready.take()
    }
}

impl<D: Disk> Core<D> {
    /// The next file of the log, or `None` while it is being made: [`Core::wait_for_file`] then, without the append lock. The
    /// caller holds that lock; this never waits.
    ///
    /// # Errors
    /// [`AppendError::DiskFull`] or [`AppendError::NoFile`] while a failure is fresh, [`AppendError::Busy`] when others have
    /// waited long enough.
    pub(crate) fn next_file(&self, start: u64) -> Result<Option<Arc<MappedFile<D::Region>>>, AppendError> {
        let mut state = self.allocator.state.lock();
        if state.ready.is_none() {
            if let Some((error, at)) = &state.failed
                && at.elapsed() < RETRY
            {
                return Err(self.no_file(Arc::clone(error)));
            }
            state.wanted = Some(start);
            #[cfg(feature = "sim")]
            if self.allocator.stepped.load(Ordering::Relaxed) {
                drop(state);
                self.make_wanted_file();
                state = self.allocator.state.lock();
                if let Some((error, _)) = state.failed.take() {
                    return Err(self.no_file(error));
                }
            }
        }
        if let Some(file) = state.ready.take() {
            assert_eq!(file.start.get(), start, "the allocated file is another one");
            state.given_to = start + 1;
            return Ok(Some(file));
        }
        self.allocator.wake.wake();
        let since = *state.waited_since.get_or_insert_with(Instant::now);
        if since.elapsed() < self.config.busy_timeout { Ok(None) } else { Err(self.busy()) }
    }

    /// Waits until the file that an append needs is made, or could not be made, or the store stops; the caller tries again
    /// and holds no lock, so that others append what still fits.
    ///
    /// # Errors
    /// [`AppendError::Busy`] when the first who needs the file has waited long enough: a disk that stalls holds up each
    /// thread once, not once for every append.
    pub(crate) fn wait_for_file(&self) -> Result<(), AppendError> {
        let mut state = self.allocator.state.lock();
        while let (Some(_), Some(since)) = (state.wanted, state.waited_since) {
            if self.is_stopping() {
                break;
            }
            if self.allocator.done.wait_until(&mut state, since + self.config.busy_timeout).timed_out() {
                return if state.wanted.is_some() { Err(self.busy()) } else { Ok(()) };
            }
        }
        Ok(())
    }

    fn busy(&self) -> AppendError {
        AppendError::Busy { path: self.folder.commit_log.clone(), waited: self.config.busy_timeout }
    }

    /// Makes the next file when the last one is half full: what the thread does, in one step.
    #[cfg(feature = "sim")]
    pub(crate) fn allocate_ahead(&self) {
        let Some(file) = self.log.last() else { return };
        if self.wrote() >= file.start.get() + file.region.len() / 2 {
            self.want_ahead(file.end().get());
            self.make_wanted_file();
            self.allocator.state.lock().failed = None;
        }
    }

    fn no_file(&self, cause: Arc<EnvError>) -> AppendError {
        if let Some(cause) = self.poison_cause() {
            return AppendError::Poisoned { cause };
        }
        match &*cause {
            EnvError::NoSpace { .. } => AppendError::DiskFull {
                path: self.folder.commit_log.clone(),
                needed_bytes: self.config.commit_log_file_size,
            },
            _ => AppendError::NoFile { cause },
        }
    }

    /// The life of the allocating thread.
    pub(crate) fn run_allocator(&self) {
        let mut ahead = Ahead { faulted_to: 0, window: FIRST_WINDOW, last_call: Instant::now() };
        while !self.is_stopping() {
            self.make_wanted_file();
            if self.allocator.look_at.load(Ordering::Acquire) == u64::MAX {
                self.look_ahead(&mut ahead);
            }
            let has_work = || self.allocator.has_work() || self.is_stopping();
            self.allocator.wake.sleep(Duration::from_secs(3600), has_work);
        }
    }

    /// Makes the file that was asked for, if one was.
    fn make_wanted_file(&self) {
        let Some(start) = self.allocator.state.lock().wanted else {
            return;
        };
        let started = Instant::now();
        let made = self.log.create(PhysicalOffset(start), &|| !self.is_stopping()).inspect(|file| {
            let warm_to = if self.config.warm_files { file.region.len() } else { 0 };
            for at in (0..warm_to).step_by(STEP as usize).take_while(|_| !self.is_stopping()) {
                self.bring_in(&file.region, at..warm_to.min(at + STEP));
            }
        });
        let mut state = self.allocator.state.lock();
        state.wanted = None;
        state.waited_since = None;
        match made {
            Ok(file) => {
                tracing::info!(
                    path = %file.path.display(), took_us = started.elapsed().as_micros() as u64,
                    "made a commit log file"
                );
                state.ready = Some(Arc::new(file));
                state.failed = None;
            }
            Err(error) => {
                if error.is_failed_flush() {
                    self.poison(error.clone()); // names of files made earlier may be among what it lost
                }
                let is_told =
                    state.failed.as_ref().is_some_and(|(_, at)| at.elapsed() <= Duration::from_secs(10));
                if !is_told && !self.is_stopping() {
                    tracing::error!(%error, "can not make a commit log file, appends are refused until it can be made");
                }
                state.failed = Some((Arc::new(error), Instant::now()));
            }
        }
        drop(state);
        self.allocator.done.notify_all();
    }

    /// Brings pages behind the end of the log into memory, asks for the next file, and says when to be called again.
    fn look_ahead(&self, ahead: &mut Ahead) {
        let end = self.wrote();
        let Some(file) = self.log.last() else {
            self.allocator.look_at.store(end + 1, Ordering::Release);
            return;
        };
        let rested = ahead.last_call.elapsed() > REST;
        ahead.window = if rested { FIRST_WINDOW } else { ahead.window * 2 }.min(self.allocator.limit);
        ahead.last_call = Instant::now();
        let half = file.start.get() + file.region.len() / 2;
        if end >= half {
            self.want_ahead(file.end().get());
        }
        let target = (end + ahead.window).min(self.allocated_end(&file));
        let mut at = end.max(ahead.faulted_to);
        while at < target && !self.is_stopping() {
            let next = target.min(at + STEP);
            self.fault_in(at, next);
            self.make_wanted_file();
            at = next;
        }
        ahead.faulted_to = at;
        let soon = end + (ahead.window / 2).max(FIRST_WINDOW);
        let boundary = if end < half { half } else { file.end().get() };
        let next_look = soon.min(boundary.max(end + 1));
        self.allocator.look_at.store(next_look, Ordering::SeqCst);
        self.allocator.look_ahead(self.wrote()); // appends that passed the mark before it stood called nobody
    }

    /// Asks for the next file, unless it is there or has just failed.
    fn want_ahead(&self, start: u64) {
        if self.config.allocate_ahead {
            self.allocator.want_ahead(start);
        }
    }

    /// Offset up to which there are files, the one that waits included.
    fn allocated_end(&self, last: &MappedFile<D::Region>) -> u64 {
        self.allocator.state.lock().ready.as_ref().map_or(last.end(), |ready| ready.end()).get()
    }

    /// Brings the pages of a range of the log into memory, as far as there are files for it.
    fn fault_in(&self, start: u64, end: u64) {
        let ready = self.allocator.state.lock().ready.clone();
        for file in self.log.find(PhysicalOffset(start)).into_iter().chain(ready) {
            let file_start = file.start.get();
            let (from, to) = (start.max(file_start), end.min(file.end().get()));
            if from < to {
                self.bring_in(&file.region, from - file_start..to - file_start);
            }
        }
    }

    fn bring_in(&self, region: &D::Region, range: Range<u64>) {
        match self.config.flush {
            FlushMode::Sync => {
                if let Err(error) = region.fault_in_written(range) {
                    self.poison(error);
                }
            }
            FlushMode::Async => region.fault_in(range),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_is_called_once_for_each_mark() {
        let allocator = Allocator::<()>::new(100, 0);
        assert!(!allocator.has_work());
        allocator.look_ahead(99);
        assert!(!allocator.has_work());
        allocator.look_ahead(100);
        assert!(allocator.has_work());
    }

    #[test]
    fn a_file_that_was_handed_out_is_not_made_again() {
        let allocator = Allocator::<()>::new(0, 0);
        allocator.state.lock().given_to = 65_537;
        allocator.want_ahead(65_536);
        assert_eq!(allocator.state.lock().wanted, None, "the name is taken: every append would be refused");
        allocator.want_ahead(131_072);
        assert_eq!(allocator.state.lock().wanted, Some(131_072));
    }
}
