//! Makes the log durable: one flush at a time, each for all that arrived before it.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rocketpy_env::failpoint::{self, Point};
use rocketpy_env::planted::{self, Bug};
use rocketpy_env::{Disk, EnvError, Region};
use rocketpy_model::PhysicalOffset;
use rocketpy_protocol::record::BLANK_HEAD_BYTES;

use crate::config::FlushMode;
use crate::core::Core;
use crate::error::{AppendError, FlushError};
use crate::mapped::MappedFile;
use crate::wake::Wake;

const PAGE_BYTES: u64 = 4096;

/// What flushing threads and those who wait for them share.
#[doc(alias = "GroupCommitService")]
#[doc(alias = "FlushRealTimeService")]
#[derive(Debug)]
pub(crate) struct Flusher {
    /// The log is durable before this.
    flushed: AtomicU64,
    /// When the last record before `flushed` was stored.
    flushed_stored_at: AtomicI64,
    /// What lies before this and is not flushed was found by the start, and has to be written again first.
    found_to: u64,
    /// Where somebody wants the flush thread to get to.
    requested: AtomicU64,
    turn: Mutex<Turn>,
    /// Those who wait for the flush that runs, and those who wait for the next one, in turns: see [`Turn::running`].
    done: [Condvar; 2],
    /// Whether appends waited, since the last step, because too much is not flushed.
    is_behind: AtomicBool,
    /// Rung for them after every step.
    room: Condvar,
    /// The flush thread sleeps here.
    pub wake: Wake,
}

/// Who flushes, and for whom.
///
/// Nobody is woken whom a flush did not cover, but one of them, who flushes next: with dozens of writers their wake-ups cost
/// more than the disk.
#[derive(Debug, Default)]
struct Turn {
    /// Whether some thread is flushing.
    taken: bool,
    /// How far that flush gets.
    to: u64,
    /// Which bell is rung for all when that flush is through; the other one for the first of the next.
    running: usize,
    /// When the first append began to wait for the step that runs.
    behind_since: Option<Instant>,
}

impl Flusher {
    pub(crate) fn new(flushed: u64, stored_at_ms: i64, found_to: u64) -> Self {
        Self {
            flushed: AtomicU64::new(flushed),
            flushed_stored_at: AtomicI64::new(stored_at_ms),
            found_to,
            requested: AtomicU64::new(flushed),
            turn: Mutex::default(),
            done: Default::default(),
            is_behind: AtomicBool::new(false),
            room: Condvar::new(),
            wake: Wake::default(),
        }
    }

    pub(crate) fn flushed(&self) -> u64 {
        self.flushed.load(Ordering::Acquire)
    }

    /// When the last durable record was stored.
    pub(crate) fn flushed_stored_at(&self) -> i64 {
        self.flushed_stored_at.load(Ordering::Acquire)
    }

    /// Lets everybody who waits look again.
    pub(crate) fn notify(&self) {
        drop(self.lock());
        self.done.iter().chain([&self.room]).for_each(Condvar::notify_all);
    }

    /// Lets those look whom the running flush covers: it has come some way.
    fn ring_for_running(&self) {
        let running = self.lock().running;
        self.done[running].notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The turn to flush; given back when dropped, also by a panic, which poisons: others wait for this thread.
struct HeldTurn<'a, D: Disk>(&'a Core<D>);

impl<D: Disk> Drop for HeldTurn<'_, D> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.poison_by_panic("flush");
        }
        let mut turn = self.0.flusher.lock();
        turn.taken = false;
        let running = turn.running;
        drop(turn);
        self.0.flusher.done[running].notify_all();
        self.0.flusher.done[1 - running].notify_one();
    }
}

impl<D: Disk> Core<D> {
    /// Asks the flush thread to get to `end`.
    pub(crate) fn request_flush(&self, end: u64) {
        if self.flusher.requested.fetch_max(end, Ordering::AcqRel) < end {
            self.flusher.wake.wake();
        }
    }

    /// Returns once the log is durable before `end`, flushing on this thread if no other does.
    ///
    /// A flush covers all that was appended before it starts; whoever arrives while it runs shares the next one.
    pub(crate) fn wait_flushed(&self, end: u64, timeout: Duration) -> Result<(), FlushError> {
        self.wait_and_then(end, timeout, Self::wake_dispatch)
    }

    /// Under synchronous flush there is something to dispatch once it is durable.
    fn wake_dispatch(&self) {
        if self.config.flush == FlushMode::Sync {
            self.dispatch_wake.wake();
        }
    }

    /// [`Core::wait_flushed`]; `then` follows each flush on this thread.
    fn wait_and_then(&self, end: u64, timeout: Duration, then: fn(&Self)) -> Result<(), FlushError> {
        let started = Instant::now();
        let mut turn = self.flusher.lock();
        loop {
            if self.flusher.flushed() >= end {
                return Ok(());
            }
            if let Some(cause) = self.poison_cause() {
                return Err(FlushError::Poisoned { cause });
            }
            if turn.taken {
                let bell = if end <= turn.to { turn.running } else { 1 - turn.running };
                let left = timeout.saturating_sub(started.elapsed());
                if left.is_zero() {
                    let flushed = PhysicalOffset(self.flusher.flushed());
                    return Err(FlushError::TimedOut { end: PhysicalOffset(end), flushed, waited: timeout });
                }
                let waited = self.flusher.done[bell].wait_timeout(turn, left);
                turn = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            let before = self.flusher.flushed();
            let stored_at_ms = self.last_stored_at(); // read before the end: it never claims a record that is not covered
            let to = self.wrote();
            (turn.taken, turn.to, turn.running) = (true, to, 1 - turn.running);
            drop(turn);
            let result = {
                let _held = HeldTurn(self);
                self.flush_now(to, stored_at_ms)
            };
            then(self);
            turn = self.flusher.lock();
            if let Err(cause) = result {
                return Err(FlushError::Poisoned { cause });
            }
            if self.flusher.flushed() == before {
                return Err(FlushError::PastEnd {
                    end: PhysicalOffset(end),
                    wrote: PhysicalOffset(self.wrote()),
                });
            }
        }
    }

    /// Bytes that were appended since the start and are not flushed.
    fn unflushed(&self) -> u64 {
        let from = self.flusher.flushed.load(Ordering::SeqCst).max(self.flusher.found_to);
        self.wrote().saturating_sub(from)
    }

    /// Waits until less is not flushed than the configuration allows.
    ///
    /// # Errors
    /// [`AppendError::Behind`] when the first who waits has waited long enough for a step of the flush: a disk that stalls
    /// holds up each thread once, not once for every append.
    #[inline]
    pub(crate) fn wait_for_room(&self) -> Result<(), AppendError> {
        let limit = self.config.max_unflushed_bytes;
        if limit == 0 || self.unflushed() <= limit {
            Ok(())
        } else {
            self.waiting(|| self.wait_behind(limit))
        }
    }

    fn wait_behind(&self, limit: u64) -> Result<(), AppendError> {
        self.request_flush(self.wrote());
        let mut turn = self.flusher.lock();
        loop {
            self.flusher.is_behind.store(true, Ordering::SeqCst);
            let unflushed_bytes = self.unflushed();
            if unflushed_bytes <= limit || self.is_stopping() || self.poison_cause().is_some() {
                return Ok(());
            }
            let since = *turn.behind_since.get_or_insert_with(Instant::now);
            let left = self.config.busy_timeout.saturating_sub(since.elapsed());
            if left.is_zero() {
                let path = self.folder.commit_log.clone();
                return Err(AppendError::Behind { path, unflushed_bytes, limit_bytes: limit });
            }
            turn = self.flusher.room.wait_timeout(turn, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Flushes what is written, as one of the turns.
    pub(crate) fn flush_all(&self) -> Result<(), FlushError> {
        self.wait_flushed(self.wrote(), Duration::from_secs(3600))
    }

    /// Flushes up to `target`, neither less nor more: nobody else is woken. The caller has the turn; `stored_at_ms` is when a
    /// record before `target` was stored.
    fn flush_now(&self, target: u64, stored_at_ms: i64) -> Result<(), Arc<EnvError>> {
        if let Some(cause) = self.poison_cause() {
            return Err(cause);
        }
        let mut at = self.flusher.flushed();
        if at >= target {
            return Ok(());
        }
        if planted::has(Bug::AckBeforeFlush) {
            self.flusher.flushed.store(target, Ordering::Release);
            self.listener().flushed(PhysicalOffset(target));
            std::thread::sleep(Duration::from_millis(5)); // as a flush by the clock; else the window is too short to be hit
        }
        failpoint::reach(Point::BeforeFlush);
        while at < target {
            at = at.max(self.min()); // what was removed meanwhile needs no flush
            if at >= target {
                break;
            }
            let file = self
                .log
                .find(PhysicalOffset(at))
                .expect("the log reaches from its start to the written offset");
            let start = file.start.get();
            let stop = self.end_of_step(&file, at, target.min(file.end().get()));
            let found = at.min(self.flusher.found_to)..stop.min(self.flusher.found_to);
            if !found.is_empty() {
                self.write_again(&file, found.start - start..found.end - start)
                    .map_err(|error| self.poison(error))?;
            }
            let mut flushed = file.region.flush(at - start..stop - start);
            if planted::has(Bug::BelieveRetriedFlush) && flushed.is_err() {
                flushed = file.region.flush(at - start..stop - start);
            }
            if let Err(error) = flushed {
                return Err(self.poison(error));
            }
            at = stop;
            if at < target {
                self.flushed_to(at);
                self.wake_dispatch();
                self.flusher.ring_for_running();
            }
        }
        failpoint::reach(Point::AfterFlush);
        self.flusher.flushed_stored_at.store(stored_at_ms, Ordering::Release);
        self.flushed_to(target);
        Ok(())
    }

    /// [`MappedFile::write_again`], which waits for a file handle for a while where there is none.
    fn write_again(&self, file: &MappedFile<D::Region>, range: Range<u64>) -> Result<(), EnvError> {
        let mut tries = 50;
        loop {
            match file.write_again(&*self.disk, range.clone()) {
                Err(error) if error.is_of_opening() && tries > 0 && !self.is_stopping() => {
                    tracing::warn!(%error, "what the start found is flushed later");
                    tries -= 1;
                    std::thread::sleep(Duration::from_millis(100));
                }
                other => return other,
            }
        }
    }

    /// How far a step gets that begins with the record at `at`: to the start of a record, or to `target`.
    fn end_of_step(&self, file: &MappedFile<D::Region>, at: u64, target: u64) -> u64 {
        let step_end = at + self.config.flush_step_bytes;
        if target <= step_end {
            return target;
        }
        let start = file.start.get();
        let mut end = at;
        while end < step_end {
            let head = file.region.view(end - start..(end + BLANK_HEAD_BYTES as u64).min(target) - start);
            end = match head.first_chunk().map(|size| u64::from(u32::from_be_bytes(*size))) {
                Some(size) if size > 0 && end + size <= target => end + size,
                _ => target,
            };
        }
        end
    }

    /// Tells that the log is durable before `end`.
    fn flushed_to(&self, end: u64) {
        self.flusher.flushed.store(end, Ordering::SeqCst);
        if self.flusher.is_behind.swap(false, Ordering::SeqCst) {
            self.flusher.lock().behind_since = None;
            self.flusher.room.notify_all();
        }
        self.listener().flushed(PhysicalOffset(end));
    }

    /// The life of the flush thread: what was asked for at once, the rest at every interval.
    pub(crate) fn run_flush(&self) {
        let mut last_thorough = Instant::now();
        let mut next_tick = Instant::now() + self.config.flush_interval;
        while !self.is_stopping() && self.poison_cause().is_none() {
            let asked = self.flusher.requested.load(Ordering::Acquire).min(self.wrote());
            let now = Instant::now();
            if asked > self.flusher.flushed() {
                // A failure poisons, a time-out is tried again.
                let _ = self.wait_and_then(asked, self.config.flush_interval, Self::dispatch_here);
            } else if now >= next_tick {
                next_tick = now + self.config.flush_interval;
                let thorough = last_thorough.elapsed() >= self.config.flush_thorough_interval;
                if thorough || self.dirty_pages() >= self.config.flush_least_pages {
                    last_thorough = now;
                    let _ = self.flush_all();
                }
            } else {
                let has_work = || {
                    let asked = self.flusher.requested.load(Ordering::Acquire).min(self.wrote());
                    asked > self.flusher.flushed() || self.is_stopping()
                };
                self.flusher.wake.sleep(next_tick - now, has_work);
            }
        }
    }

    fn dirty_pages(&self) -> u64 {
        (self.wrote() / PAGE_BYTES).saturating_sub(self.flusher.flushed() / PAGE_BYTES)
    }
}
