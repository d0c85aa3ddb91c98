//! Makes the log durable: one flush at a time, each for all that arrived before it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rocketpy_env::failpoint::{self, Point};
use rocketpy_env::planted::{self, Bug};
use rocketpy_env::{Disk, EnvError, Region};
use rocketpy_model::PhysicalOffset;

use crate::config::FlushMode;
use crate::core::Core;
use crate::error::FlushError;
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
    /// Where somebody wants the flush thread to get to.
    requested: AtomicU64,
    turn: Mutex<Turn>,
    /// Rung after every flush.
    done: Condvar,
    /// The flush thread sleeps here.
    pub wake: Wake,
}

#[derive(Debug, Default)]
struct Turn {
    /// Whether some thread is flushing.
    taken: bool,
}

impl Flusher {
    pub fn new(end: u64, stored_at_ms: i64) -> Self {
        Self {
            flushed: AtomicU64::new(end),
            flushed_stored_at: AtomicI64::new(stored_at_ms),
            requested: AtomicU64::new(end),
            turn: Mutex::default(),
            done: Condvar::new(),
            wake: Wake::default(),
        }
    }

    pub fn flushed(&self) -> u64 {
        self.flushed.load(Ordering::Acquire)
    }

    /// When the last durable record was stored.
    pub fn flushed_stored_at(&self) -> i64 {
        self.flushed_stored_at.load(Ordering::Acquire)
    }

    /// Lets everybody who waits look again.
    pub fn notify(&self) {
        drop(self.turn.lock());
        self.done.notify_all();
    }
}

/// The turn to flush; given back when dropped, also by a panic, which poisons: others wait for this thread.
struct HeldTurn<'a, D: Disk>(&'a Core<D>);

impl<D: Disk> Drop for HeldTurn<'_, D> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.poison_by_panic("flush");
        }
        self.0.flusher.turn.lock().taken = false;
        self.0.flusher.done.notify_all();
    }
}

impl<D: Disk> Core<D> {
    /// Asks the flush thread to get to `end`.
    pub fn request_flush(&self, end: u64) {
        if self.flusher.requested.fetch_max(end, Ordering::AcqRel) < end {
            self.flusher.wake.wake();
        }
    }

    /// Returns once the log is durable before `end`, flushing on this thread if no other does.
    ///
    /// A flush covers all that was appended before it starts; whoever arrives while it runs shares the next one.
    pub fn wait_flushed(&self, end: u64, timeout: Duration) -> Result<(), FlushError> {
        let started = Instant::now();
        let mut turn = self.flusher.turn.lock();
        loop {
            if self.flusher.flushed() >= end {
                return Ok(());
            }
            if let Some(cause) = self.poison_cause() {
                return Err(FlushError::Poisoned { cause });
            }
            if turn.taken {
                if self.flusher.done.wait_until(&mut turn, started + timeout).timed_out()
                    && self.flusher.flushed() < end
                {
                    let flushed = PhysicalOffset(self.flusher.flushed());
                    return Err(FlushError::TimedOut { end: PhysicalOffset(end), flushed, waited: timeout });
                }
                continue;
            }
            turn.taken = true;
            drop(turn);
            let before = self.flusher.flushed();
            let result = {
                let _held = HeldTurn(self);
                self.flush_now()
            };
            turn = self.flusher.turn.lock();
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

    /// Flushes what is written, as one of the turns.
    pub fn flush_all(&self) -> Result<(), FlushError> {
        self.wait_flushed(self.wrote(), Duration::from_secs(3600))
    }

    /// Flushes everything written before this call. The caller has the turn.
    fn flush_now(&self) -> Result<(), Arc<EnvError>> {
        if let Some(cause) = self.poison_cause() {
            return Err(cause);
        }
        let started = Instant::now();
        let stored_at_ms = self.last_stored_at(); // read before the end: it never claims a record that is not covered
        let target = self.wrote();
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
            let file = self.log.find(at).expect("the log reaches from the flushed to the written offset");
            let stop = target.min(file.end());
            let mut flushed = file.region.flush(at - file.start..stop - file.start);
            if planted::has(Bug::BelieveRetriedFlush) && flushed.is_err() {
                flushed = file.region.flush(at - file.start..stop - file.start);
            }
            if let Err(error) = flushed {
                return Err(self.poison(error));
            }
            at = stop;
        }
        failpoint::reach(Point::AfterFlush);
        self.flusher.flushed_stored_at.store(stored_at_ms, Ordering::Release);
        self.flusher.flushed.store(target, Ordering::Release);
        let took_us = started.elapsed().as_micros() as u64;
        self.counters.flushes.fetch_add(1, Ordering::Relaxed);
        self.counters.longest_flush_us.fetch_max(took_us, Ordering::Relaxed);
        if self.config.flush == FlushMode::Sync {
            self.dispatch_wake.wake();
        }
        self.listener().flushed(PhysicalOffset(target));
        Ok(())
    }

    /// The life of the flush thread: what was asked for at once, the rest at every interval.
    pub fn run_flush(&self) {
        let mut last_thorough = Instant::now();
        let mut next_tick = Instant::now() + self.config.flush_interval;
        while !self.is_stopping() && self.poison_cause().is_none() {
            let asked = self.flusher.requested.load(Ordering::Acquire).min(self.wrote());
            let now = Instant::now();
            if asked > self.flusher.flushed() {
                let _ = self.wait_flushed(asked, self.config.flush_interval); // a failure poisons, a time-out is tried again
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
