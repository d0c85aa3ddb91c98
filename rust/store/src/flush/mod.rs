//! Makes the log durable: one flush at a time, each for all that arrived before it.

pub(crate) mod turn;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rocketpy_env::failpoint::{self, Point};
use rocketpy_env::planted::{self, Bug};
use rocketpy_env::{Disk, EnvError, Region};
use rocketpy_model::{AtomicPhysicalOffset, PhysicalOffset};
use rocketpy_protocol::record::BLANK_HEAD_BYTES;
use turn::{Flushing, Target, Turns};

use crate::admission::Admission;
use crate::config::FlushMode;
use crate::error::{AppendError, FlushError, StoreError};
use crate::listener::Listeners;
use crate::log::Log;
use crate::mapped::MappedFile;
use crate::recovery::scan::check_again;
use crate::wake::Wake;

const PAGE_BYTES: u64 = 4096;
/// Maximum wait for a flush that the store itself asks for. A stalled disk delays it; a broken one fails sooner.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);
/// Maximum sleep of the flush thread: it shows that it runs.
const LONGEST_SLEEP: Duration = Duration::from_secs(5);
/// How long to wait for a free file handle before what the start found is written again.
const HANDLE_TRIES: u32 = 50;
const HANDLE_PAUSE: Duration = Duration::from_millis(100);

/// Moves the flushed offset of the log, on the flush thread or on a thread that waits for it.
#[doc(alias = "GroupCommitService")]
#[doc(alias = "FlushRealTimeService")]
pub(crate) struct Flusher<D: Disk> {
    log: Arc<Log<D>>,
    admission: Arc<Admission>,
    listeners: Arc<Listeners>,
    turns: Arc<Turns>,
    /// Under synchronous flush dispatch waits for what becomes durable.
    dispatch_wake: Arc<Wake>,
    /// When the last record before the flushed offset was stored.
    flushed_stored_at: AtomicI64,
    /// The start found what is before this offset. Whatever of it is not flushed must be written again before its
    /// flush.
    found_to: PhysicalOffset,
    /// Where records of it have a checksum of their own.
    own_checks: Range<PhysicalOffset>,
    /// Where somebody wants the flush thread to get to.
    requested: AtomicPhysicalOffset,
    /// The flush thread sleeps here.
    wake: Wake,
    began: Instant,
    /// When the flush thread last had nothing to flush or had flushed it, in milliseconds since `began`.
    seen_at_ms: AtomicU64,
}

impl<D: Disk> Flushing for Flusher<D> {
    fn flushed(&self) -> PhysicalOffset {
        self.log.flushed()
    }

    fn end(&self) -> PhysicalOffset {
        self.log.end()
    }

    fn target(&self) -> Target {
        let stored_at_ms = self.log.last_stored_at(); // read before the end: it never claims a record that is not covered
        Target { to: self.log.end(), stored_at_ms }
    }

    fn check(&self) -> Result<(), FlushError> {
        self.admission.poison_cause().map_or(Ok(()), |cause| Err(FlushError::Poisoned { cause }))
    }

    fn flush(&self, target: Target) -> Result<(), FlushError> {
        let refuse = |cause| FlushError::Poisoned { cause };
        self.admission.guarded("flush", || self.flush_now(target).map_err(refuse), refuse)
    }

    fn panicked(&self) {
        self.admission.poison_by_panic("flush", "panic of the thread that flushes");
    }
}

impl<D: Disk> Flusher<D> {
    /// `stored_at_ms` is when the last record before the flushed offset was stored; in `own_checks` the records that the start found have a
    /// checksum of their own.
    pub(crate) fn new(
        log: &Arc<Log<D>>,
        admission: &Arc<Admission>,
        turns: &Arc<Turns>,
        dispatch_wake: &Arc<Wake>,
        stored_at_ms: i64,
        own_checks: Range<PhysicalOffset>,
    ) -> Self {
        Self {
            log: Arc::clone(log),
            admission: Arc::clone(admission),
            listeners: Arc::clone(admission.listeners()),
            turns: Arc::clone(turns),
            dispatch_wake: Arc::clone(dispatch_wake),
            flushed_stored_at: AtomicI64::new(stored_at_ms),
            found_to: log.end(),
            own_checks,
            requested: AtomicPhysicalOffset::new(log.flushed()),
            wake: Wake::default(),
            began: Instant::now(),
            seen_at_ms: AtomicU64::new(0),
        }
    }

    /// Time since the flush thread last had nothing to flush, or had flushed it.
    pub(crate) fn silence(&self) -> Duration {
        let seen_at = Duration::from_millis(self.seen_at_ms.load(Ordering::Relaxed));
        self.began.elapsed().saturating_sub(seen_at)
    }

    fn note_progress(&self) {
        let now_ms = self.began.elapsed().as_millis();
        self.seen_at_ms.store(u64::try_from(now_ms).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// When the last durable record was stored.
    pub(crate) fn flushed_stored_at(&self) -> i64 {
        self.flushed_stored_at.load(Ordering::Acquire)
    }

    /// Lets the flush thread end, and all waiting threads check again.
    pub(crate) fn stop(&self) {
        self.wake.stop();
        self.turns.notify();
    }

    /// Asks the flush thread to get to `end`.
    pub(crate) fn request(&self, end: PhysicalOffset) {
        if self.requested.fetch_max(end, Ordering::AcqRel) < end {
            self.wake.wake();
        }
    }

    /// Returns once the log is durable before `end`, flushing on this thread if no other does.
    ///
    /// A flush covers all that was appended before it starts; whoever arrives while it runs shares the next one.
    pub(crate) fn wait(&self, end: PhysicalOffset, timeout: Duration) -> Result<(), FlushError> {
        self.turns.flush_to(end, timeout, self, &|| self.wake_dispatch())
    }

    /// Flushes what is written, as one of the turns.
    pub(crate) fn flush_all(&self) -> Result<(), FlushError> {
        self.wait(self.log.end(), LONGEST_WAIT)
    }

    /// Makes the log durable before an offset that is written.
    pub(crate) fn flush_to(&self, end: PhysicalOffset) -> Result<(), StoreError> {
        loop {
            match self.wait(end, LONGEST_WAIT) {
                Ok(()) => return Ok(()),
                Err(FlushError::TimedOut { .. }) => {
                    tracing::warn!(%end, "disk stalled, still waiting for a flush");
                }
                Err(FlushError::Poisoned { cause }) => return Err(StoreError::Poisoned { cause }),
                Err(FlushError::PastEnd { .. }) => unreachable!("what is dispatched is written"),
            }
        }
    }

    /// Under synchronous flush there is something to dispatch once it is durable.
    fn wake_dispatch(&self) {
        if self.log.config().flush == FlushMode::Sync {
            self.dispatch_wake.wake();
        }
    }

    /// Bytes that were appended since the start and are not flushed.
    #[inline]
    fn unflushed_bytes(&self) -> u64 {
        let from = self.log.flushed().max(self.found_to);
        self.log.end().saturating_sub(from)
    }

    /// Waits until the unflushed bytes are within the configured limit.
    ///
    /// # Errors
    /// [`AppendError::Behind`] when the first append has waited `busy_timeout` for one step of the flush: a disk that
    /// stalls delays each thread once, not once for every append.
    #[inline]
    pub(crate) fn wait_for_room(&self) -> Result<(), AppendError> {
        let limit_bytes = self.log.config().max_unflushed_bytes;
        if limit_bytes == 0 || self.unflushed_bytes() <= limit_bytes {
            Ok(())
        } else {
            self.listeners.waiting(|| self.wait_behind(limit_bytes))
        }
    }

    fn wait_behind(&self, limit_bytes: u64) -> Result<(), AppendError> {
        self.request(self.log.end());
        let mut turn = self.turns.lock();
        loop {
            self.turns.note_behind();
            let unflushed_bytes = self.unflushed_bytes();
            if unflushed_bytes <= limit_bytes
                || self.wake.is_stopped()
                || self.admission.poison_cause().is_some()
            {
                return Ok(());
            }
            let left = self.log.config().busy_timeout.saturating_sub(turn.behind_since().elapsed());
            if left.is_zero() {
                let path = self.log.folder().commit_log.clone();
                return Err(AppendError::Behind { path, unflushed_bytes, limit_bytes });
            }
            turn = self.turns.wait_for_room(turn, left);
        }
    }

    /// Flushes exactly up to `target` and wakes nobody else. The caller has the turn.
    fn flush_now(&self, target: Target) -> Result<(), Arc<EnvError>> {
        let Target { to: target, stored_at_ms } = target;
        if let Some(cause) = self.admission.poison_cause() {
            return Err(cause);
        }
        let mut at = self.log.flushed();
        if at >= target {
            return Ok(());
        }
        if planted::has(Bug::AckBeforeFlush) {
            self.log.set_flushed(target);
            self.listeners.flushed(target);
            std::thread::sleep(Duration::from_millis(5)); // as a flush by the clock; else the window is too short to be hit
        }
        failpoint::reach(Point::BeforeFlush);
        let begun = Instant::now();
        while at < target {
            at = at.max(self.log.start()); // what was removed meanwhile needs no flush
            if at >= target {
                break;
            }
            at = self.flush_step(at, target).map_err(|error| self.admission.poison(error))?;
            if at < target {
                self.flushed_to(at);
                self.wake_dispatch();
                self.turns.ring_for_running();
            }
        }
        failpoint::reach(Point::AfterFlush);
        self.listeners.flush_took(begun.elapsed());
        self.flushed_stored_at.store(stored_at_ms, Ordering::Release);
        self.flushed_to(target);
        assert!(self.log.flushed() >= target, "the flush got to its target");
        Ok(())
    }

    /// Flushes from the record at `at` on, no further than `target` and the end of the file. Returns how far.
    fn flush_step(&self, at: PhysicalOffset, target: PhysicalOffset) -> Result<PhysicalOffset, EnvError> {
        let file = self.log.find(at).expect("the log reaches from its start to the written offset");
        let stop = self.end_of_step(&file, at, target.min(file.end()));
        let stop = if planted::has(Bug::FlushPastWritten) { file.wrote() + 1 } else { stop };
        assert!(
            at < stop && stop <= file.wrote(),
            "a flush never passes what is written: from {at} to {stop}"
        );
        let found = at.min(self.found_to)..stop.min(self.found_to);
        if !found.is_empty() {
            let found = found.start - file.start..found.end - file.start;
            self.write_again(&file, found.clone())?;
            check_again(&file, found, &self.own_checks)?;
        }
        let flushed_to = match planted::has(Bug::FlushOneRecordShort) {
            true => self.last_record(&file, at, stop),
            false => stop,
        };
        let range = at - file.start..flushed_to - file.start;
        let flushed = file.region.flush(range.clone());
        if planted::has(Bug::BelieveRetriedFlush) && flushed.is_err() {
            return file.region.flush(range).map(|()| stop);
        }
        flushed.map(|()| stop)
    }

    /// [`MappedFile::write_again`], which waits a while when no file handle is free.
    fn write_again(&self, file: &MappedFile<D::Region>, range: Range<u64>) -> Result<(), EnvError> {
        let mut tries = HANDLE_TRIES;
        loop {
            match file.write_again(self.log.disk(), range.clone()) {
                Err(error) if error.is_of_opening() && tries > 0 && !self.wake.is_stopped() => {
                    tracing::warn!(%error, "flush of the recovered log postponed, no file handle is free");
                    tries -= 1;
                    std::thread::sleep(HANDLE_PAUSE);
                }
                other => return other,
            }
        }
    }

    /// Where the last record begins of those that follow each other from `at` to `stop`.
    fn last_record(
        &self,
        file: &MappedFile<D::Region>,
        at: PhysicalOffset,
        stop: PhysicalOffset,
    ) -> PhysicalOffset {
        let (mut last, mut next) = (at, at);
        while next + BLANK_HEAD_BYTES as u64 <= stop {
            let head = file.region.view(next - file.start..next + BLANK_HEAD_BYTES as u64 - file.start);
            let size = head.first_chunk().map_or(0, |size| u32::from_be_bytes(*size));
            if size == 0 {
                break;
            }
            (last, next) = (next, next + u64::from(size));
        }
        last
    }

    /// How far a step gets that begins with the record at `at`: to the start of a record, or to `target`.
    fn end_of_step(
        &self,
        file: &MappedFile<D::Region>,
        at: PhysicalOffset,
        target: PhysicalOffset,
    ) -> PhysicalOffset {
        let step_end = at + self.log.config().flush_step_bytes;
        if target <= step_end {
            return target;
        }
        let mut end = at;
        while end < step_end {
            let head = end - file.start..(end + BLANK_HEAD_BYTES as u64).min(target) - file.start;
            let size = file.region.view(head).first_chunk().map(|size| u64::from(u32::from_be_bytes(*size)));
            end = match size {
                Some(size) if size > 0 && end + size <= target => end + size,
                _ => target,
            };
        }
        end
    }

    /// Tells that the log is durable before `end`.
    fn flushed_to(&self, end: PhysicalOffset) {
        let end = if planted::has(Bug::FlushedPastEnd) { self.log.end() + 1 } else { end };
        self.log.set_flushed(end);
        self.turns.ring_for_room();
        self.listeners.flushed(end);
    }

    /// The loop of the flush thread. It flushes requests at once and calls `dispatch` after them; the rest it flushes
    /// at every interval.
    pub(crate) fn run(&self, dispatch: impl Fn()) {
        let config = self.log.config();
        let mut last_thorough = Instant::now();
        let mut next_tick = Instant::now() + config.flush_interval;
        while !self.wake.is_stopped() && self.admission.poison_cause().is_none() {
            let asked = self.asked();
            let now = Instant::now();
            if asked > self.log.flushed() {
                // A failure poisons, a time-out is tried again.
                if self.turns.flush_to(asked, config.flush_interval, self, &dispatch).is_ok() {
                    self.note_progress();
                }
            } else if now >= next_tick {
                next_tick = now + config.flush_interval;
                let thorough = last_thorough.elapsed() >= config.flush_thorough_interval;
                if thorough || self.dirty_pages() >= config.flush_least_pages {
                    last_thorough = now;
                    let _ = self.flush_all();
                }
            } else {
                self.note_progress();
                let wait = (next_tick - now).min(LONGEST_SLEEP);
                self.wake.sleep(wait, || self.asked() > self.log.flushed());
            }
        }
    }

    /// How far the flush thread is asked to get, of what is written.
    fn asked(&self) -> PhysicalOffset {
        self.requested.load(Ordering::Acquire).min(self.log.end())
    }

    fn dirty_pages(&self) -> u64 {
        (self.log.end().get() / PAGE_BYTES).saturating_sub(self.log.flushed().get() / PAGE_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use rocketpy_env::RealDisk;

    use super::*;
    use crate::alone;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn flusher(log: &Arc<Log<RealDisk>>, admission: &Arc<Admission>) -> Flusher<RealDisk> {
        Flusher::new(log, admission, &Arc::default(), &Arc::default(), 0, crate::checkpoint::NOWHERE)
    }

    #[test]
    fn whoever_waits_flushes_for_all_who_came_before() {
        let dir = tempfile::tempdir().unwrap();
        let log = alone::log(dir.path(), FlushMode::Sync);
        let flusher = flusher(&log, &alone::admission(dir.path()));
        alone::roll(&log);
        let first = alone::append(&log, b"hello");
        let second = alone::append(&log, b"world");
        flusher.wait(first, PATIENCE).unwrap();
        assert_eq!((log.flushed(), flusher.flushed_stored_at()), (second, 1000));
        let beyond = flusher.wait(second + 1, PATIENCE);
        assert!(matches!(beyond, Err(FlushError::PastEnd { wrote, .. }) if wrote == second));
    }

    #[test]
    fn a_flush_goes_step_by_step_to_the_starts_of_records() {
        let dir = tempfile::tempdir().unwrap();
        let log = alone::log(dir.path(), FlushMode::Async);
        let flusher = flusher(&log, &alone::admission(dir.path()));
        alone::roll(&log);
        let mut record = [0; 100];
        record[..4].copy_from_slice(&100_u32.to_be_bytes());
        for _ in 0..20 {
            alone::append(&log, &record);
        }
        let file = log.find(PhysicalOffset::ZERO).unwrap();
        assert_eq!(alone::STEP_BYTES, 1024);
        let end = flusher.end_of_step(&file, PhysicalOffset::ZERO, log.end());
        assert_eq!(end, PhysicalOffset(1100), "the first start of a record behind the step");
        assert_eq!(flusher.end_of_step(&file, end, log.end()), log.end());
    }

    #[test]
    fn after_a_failed_flush_nobody_waits_and_nothing_is_flushed() {
        let dir = tempfile::tempdir().unwrap();
        let log = alone::log(dir.path(), FlushMode::Sync);
        let admission = alone::admission(dir.path());
        let flusher = flusher(&log, &admission);
        alone::roll(&log);
        let end = alone::append(&log, b"hello");
        admission.poison_by_panic("flush", "an assertion");
        assert!(matches!(flusher.wait(end, PATIENCE), Err(FlushError::Poisoned { .. })));
        assert_eq!(log.flushed(), PhysicalOffset::ZERO);
    }
}
