//! Makes the next commit log file before it is needed, and brings pages into memory ahead of the appends.

mod next_file;

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use next_file::{NextFile, Taken};
use rocketpy_env::{Disk, EnvError, Region};
use rocketpy_model::PhysicalOffset;

use crate::admission::Admission;
use crate::config::FlushMode;
use crate::error::AppendError;
use crate::log::Log;
use crate::mapped::MappedFile;

/// First window after a rest; it doubles with every call while there is traffic.
const FIRST_WINDOW_BYTES: u64 = 256 << 10;
/// What [`Allocator::step`] brings in: always the same, because a window that depends on time would make runs differ.
#[cfg(feature = "sim")]
const STEPPED_AHEAD_BYTES: u64 = 8 << 10;
/// Bytes that are faulted in at a time. Between two steps a wanted file is made first.
const STEP_BYTES: u64 = 256 << 10;
/// After this time without a call the window is small again.
const REST: Duration = Duration::from_secs(1);
/// A failure that lasts is logged again after this time.
const TELL_AGAIN_AFTER: Duration = Duration::from_secs(10);

/// Makes files for the log, on a thread of its own.
#[doc(alias = "AllocateMappedFileService")]
pub(crate) struct Allocator<D: Disk> {
    log: Arc<Log<D>>,
    admission: Arc<Admission>,
    next: NextFile<MappedFile<D::Region>, EnvError>,
    /// Maximum window, 0 for none.
    limit_bytes: u64,
    /// There is no thread: whoever needs a file makes it.
    #[cfg(feature = "sim")]
    stepped: std::sync::atomic::AtomicBool,
}

/// How far pages were brought in. Only the thread itself uses it.
#[derive(Debug)]
struct Ahead {
    faulted_to: PhysicalOffset,
    window_bytes: u64,
    last_call: Instant,
}

impl<D: Disk> Allocator<D> {
    pub(crate) fn new(log: &Arc<Log<D>>, admission: &Arc<Admission>) -> Self {
        Self {
            log: Arc::clone(log),
            admission: Arc::clone(admission),
            next: NextFile::new(log.end()),
            limit_bytes: log.config().bytes_ahead(),
            #[cfg(feature = "sim")]
            stepped: std::sync::atomic::AtomicBool::new(false),
        }
    }

    #[cfg(feature = "sim")]
    pub(crate) fn set_stepped(&self) {
        self.stepped.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    /// Calls the thread when an append has come far enough.
    #[inline]
    pub(crate) fn look_ahead(&self, end: PhysicalOffset) {
        self.next.look_ahead(end);
    }

    /// Lets the thread end, and everybody who waits check again.
    pub(crate) fn stop(&self) {
        self.next.stop();
    }

    /// Takes the file that was made and is not used.
    pub(crate) fn take_unused(&self) -> Option<Arc<MappedFile<D::Region>>> {
        self.next.take_unused()
    }

    /// The next file of the log, or `None` while it is being made: [`Allocator::wait_for_file`] then, without the writer lock.
    /// The caller holds that lock; this never waits.
    ///
    /// # Errors
    /// [`AppendError::DiskFull`] or [`AppendError::NoFile`] while a failure is fresh, [`AppendError::Busy`] when others have
    /// waited long enough.
    pub(crate) fn next_file(
        &self,
        start: PhysicalOffset,
    ) -> Result<Option<Arc<MappedFile<D::Region>>>, AppendError> {
        #[cfg(feature = "sim")]
        if self.stepped.load(std::sync::atomic::Ordering::Relaxed) {
            self.next.want(start);
            self.make_wanted_file();
            if let Some(error) = self.next.take_failure() {
                return Err(self.no_file(error));
            }
        }
        match self.next.take(start) {
            Taken::File(file) => {
                assert_eq!(file.start, start, "the allocated file is another one");
                assert_eq!(file.region.written(), 0, "the allocated file was written to");
                Ok(Some(file))
            }
            Taken::Failed(error) => Err(self.no_file(error)),
            Taken::Waits(since) if since.elapsed() < self.log.config().busy_timeout => Ok(None),
            Taken::Waits(_) => Err(self.busy()),
        }
    }

    /// Waits until the file that an append needs is made or could not be made, or until the store stops. The caller
    /// then tries again. It holds no lock meanwhile, so that others append what still fits.
    ///
    /// # Errors
    /// [`AppendError::Busy`] when the first append that needs the file has waited for `busy_timeout`: a disk that
    /// stalls delays each thread once, not once for every append.
    pub(crate) fn wait_for_file(&self) -> Result<(), AppendError> {
        if self.next.wait(self.log.config().busy_timeout) { Ok(()) } else { Err(self.busy()) }
    }

    fn busy(&self) -> AppendError {
        let path = self.log.folder().commit_log.clone();
        AppendError::Busy { path, waited: self.log.config().busy_timeout }
    }

    /// Makes the next file when the last one is half full: one step of the thread.
    #[cfg(feature = "sim")]
    pub(crate) fn step(&self) {
        let end = self.log.end();
        self.fault_in(end, end + STEPPED_AHEAD_BYTES);
        let Some(file) = self.log.files().last() else { return };
        if self.log.end() >= file.start + file.region.len() / 2 {
            self.want_ahead(file.end());
            self.make_wanted_file();
            self.next.take_failure();
        }
    }

    fn no_file(&self, cause: Arc<EnvError>) -> AppendError {
        if let Some(cause) = self.admission.poison_cause() {
            return AppendError::Poisoned { cause };
        }
        match &*cause {
            EnvError::NoSpace { .. } => AppendError::DiskFull {
                path: self.log.folder().commit_log.clone(),
                needed_bytes: self.log.config().commit_log_file_size,
            },
            _ => AppendError::NoFile { cause },
        }
    }

    /// The life of the allocating thread.
    pub(crate) fn run(&self) {
        let mut ahead = Ahead {
            faulted_to: PhysicalOffset::ZERO,
            window_bytes: FIRST_WINDOW_BYTES,
            last_call: Instant::now(),
        };
        self.next.run(|| self.make_wanted_file(), || self.bring_in_ahead(&mut ahead));
    }

    /// Makes the file that was asked for, if one was.
    fn make_wanted_file(&self) {
        let make = |start| {
            let started = Instant::now();
            let made = self.log.files().create(start, &|| !self.next.is_stopped());
            let file = made
                .inspect(|file| self.warm(&file.region))
                .inspect_err(|error| self.note_failed_flush(error))?;
            assert_eq!(file.start, start, "the file that was made is another one");
            tracing::info!(
                path = %file.path.display(), took_us = started.elapsed().as_micros() as u64,
                "commit log file created"
            );
            Ok(file)
        };
        self.next.make(make, |error, failed_before| {
            let is_told = failed_before.is_some_and(|at| at.elapsed() <= TELL_AGAIN_AFTER);
            if !is_told && !self.next.is_stopped() {
                tracing::error!(%error, "commit log file not created, appends are refused until it is");
            }
        });
    }

    /// A failed flush of a new file may have lost the names of files that were made earlier.
    fn note_failed_flush(&self, error: &EnvError) {
        if error.is_failed_flush() {
            self.admission.poison(error.clone());
        }
    }

    /// Brings a whole new file into memory, if the configuration says so.
    fn warm(&self, region: &D::Region) {
        let warm_to = if self.log.config().warm_files { region.len() } else { 0 };
        for at in (0..warm_to).step_by(STEP_BYTES as usize).take_while(|_| !self.next.is_stopped()) {
            self.bring_in(region, at..warm_to.min(at + STEP_BYTES));
        }
    }

    /// Brings pages after the end of the log into memory, asks for the next file, and says when to be called again.
    fn bring_in_ahead(&self, ahead: &mut Ahead) {
        let end = self.log.end();
        let Some(file) = self.log.files().last() else {
            return self.next.set_look_at(end + 1, || self.log.end());
        };
        let rested = ahead.last_call.elapsed() > REST;
        let window_bytes = if rested { FIRST_WINDOW_BYTES } else { ahead.window_bytes * 2 };
        ahead.window_bytes = window_bytes.min(self.limit_bytes);
        ahead.last_call = Instant::now();
        let half = file.start + file.region.len() / 2;
        if end >= half {
            self.want_ahead(file.end());
        }
        let target = (end + ahead.window_bytes).min(self.allocated_end(&file));
        let mut at = end.max(ahead.faulted_to);
        while at < target && !self.next.is_stopped() {
            let next = target.min(at + STEP_BYTES);
            self.fault_in(at, next);
            self.make_wanted_file();
            std::thread::yield_now(); // appends may wait for this processor
            at = next;
        }
        ahead.faulted_to = at;
        let soon = end + (ahead.window_bytes / 2).max(FIRST_WINDOW_BYTES);
        let boundary = if end < half { half } else { file.end() };
        let next_look = soon.min(boundary.max(end + 1));
        self.next.set_look_at(next_look, || self.log.end());
    }

    /// Asks for the next file, unless it is there or its making has just failed.
    fn want_ahead(&self, start: PhysicalOffset) {
        if self.log.config().allocate_ahead {
            self.next.want_ahead(start);
        }
    }

    /// Offset up to which there are files, the one that waits included.
    fn allocated_end(&self, last: &MappedFile<D::Region>) -> PhysicalOffset {
        self.next.ready().map_or(last.end(), |ready| ready.end())
    }

    /// Brings the pages of a range of the log into memory, as far as there are files for it.
    fn fault_in(&self, start: PhysicalOffset, end: PhysicalOffset) {
        let ready = self.next.ready();
        for file in self.log.find(start).into_iter().chain(ready) {
            let (from, to) = (start.max(file.start), end.min(file.end()));
            if from < to {
                self.bring_in(&file.region, from - file.start..to - file.start);
            }
        }
    }

    fn bring_in(&self, region: &D::Region, range: Range<u64>) {
        match self.log.config().flush {
            FlushMode::Sync => {
                if let Err(error) = region.fault_in_written(range) {
                    self.admission.poison(error);
                }
            }
            FlushMode::Async => region.fault_in(range),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rocketpy_env::RealDisk;

    use super::*;
    use crate::alone::{self, FILE_BYTES};

    fn allocator(root: &Path) -> Allocator<RealDisk> {
        Allocator::new(&alone::log(root, FlushMode::Async), &alone::admission(root))
    }

    #[test]
    fn a_file_is_asked_for_made_and_handed_out() {
        let dir = tempfile::tempdir().unwrap();
        let allocator = allocator(dir.path());
        assert!(allocator.next_file(PhysicalOffset::ZERO).unwrap().is_none(), "it is not made yet");
        allocator.make_wanted_file();
        allocator.wait_for_file().unwrap();
        let file = allocator.next_file(PhysicalOffset::ZERO).unwrap().unwrap();
        assert_eq!((file.start, file.end()), (PhysicalOffset::ZERO, PhysicalOffset(FILE_BYTES)));
        assert!(allocator.take_unused().is_none());
    }

    #[test]
    fn a_file_that_cannot_be_made_is_told_to_the_appends_that_need_it() {
        let dir = tempfile::tempdir().unwrap();
        let allocator = allocator(dir.path());
        RealDisk.remove_dir_all(&allocator.log.folder().commit_log).unwrap();
        assert!(allocator.next_file(PhysicalOffset::ZERO).unwrap().is_none());
        allocator.make_wanted_file();
        assert!(matches!(allocator.next_file(PhysicalOffset::ZERO), Err(AppendError::NoFile { .. })));
    }
}
