//! Wakes a thread that waits for work, and ends it. While the thread does not wait, a wake-up costs one fence.

use std::time::{Duration, Instant};

use rocketpy_env::planted::{self, Bug};

use crate::sync::atomic::{AtomicBool, Ordering, fence};
use crate::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// One thread sleeps here; any thread wakes it.
///
/// This uses the standard library's condition variable. `parking_lot` keeps sleepers in one table of the process. In a
/// forked child these threads do not exist, and a use of that table would write into freed memory.
#[derive(Debug, Default)]
pub(crate) struct Wake {
    asleep: AtomicBool,
    /// Somebody waits for what the thread does next.
    hurried: AtomicBool,
    /// The thread is to end.
    stopped: AtomicBool,
    called: Mutex<bool>,
    bell: Condvar,
}

impl Wake {
    /// Wakes the sleeper, if it sleeps. What was stored before the call is visible to its next check for work.
    pub(crate) fn wake(&self) {
        // Pairs with the fence in `sleep`: either this sees `asleep`, or the sleeper sees what was stored before.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) {
            *self.called() = true;
            self.bell.notify_one();
        }
    }

    /// Wakes the sleeper, if it sleeps; else its next [`Wake::sleep_unless_hurried`] returns at once. What was stored before the call is
    /// visible to its next check for work.
    pub(crate) fn hurry(&self) {
        self.hurried.store(true, Ordering::Release);
        self.wake();
    }

    /// Forgets calls of [`Wake::hurry`]: work is about to be done. Returns whether there were any.
    pub(crate) fn forget_hurry(&self) -> bool {
        self.hurried.swap(false, Ordering::AcqRel)
    }

    /// [`Wake::sleep`], and returns at once after a call of [`Wake::hurry`].
    pub(crate) fn sleep_unless_hurried(&self, at_most: Duration, ready: impl FnOnce() -> bool) {
        self.sleep(at_most, || self.hurried.load(Ordering::Acquire) || ready());
    }

    /// Tells the thread to end, and wakes it.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.wake();
    }

    /// Whether the thread is to end. Whoever stopped it does what it leaves undone.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Sleeps until it is woken or the time is up. Returns at once when `ready` says that there is work or the thread
    /// is to end.
    pub(crate) fn sleep(&self, at_most: Duration, ready: impl FnOnce() -> bool) {
        let is_late = planted::has(Bug::SleepNotedLate);
        self.asleep.store(!is_late, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !self.is_stopped() && !ready() {
            if is_late {
                self.asleep.store(true, Ordering::Relaxed);
            }
            let called = self.called();
            if !*called {
                drop(self.bell.wait_timeout(called, at_most));
            }
        }
        self.asleep.store(false, Ordering::Relaxed);
        *self.called() = false;
    }

    /// Sleeps for a time, or until the thread is stopped. A wake-up alone does not end it.
    pub(crate) fn rest(&self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end && !self.is_stopped() {
            self.sleep(end.saturating_duration_since(Instant::now()), || false);
        }
    }

    fn called(&self) -> MutexGuard<'_, bool> {
        self.called.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_stop_ends_a_rest_that_other_calls_do_not_end() {
        let wake = Arc::new(Wake::default());
        let sleeper = std::thread::spawn({
            let wake = Arc::clone(&wake);
            move || wake.rest(Duration::from_secs(3600))
        });
        // The sleeper takes a call after it has noted that it is awake: without a call it has gone to sleep since.
        let until_asleep = || {
            while *wake.called() || !wake.asleep.load(Ordering::Relaxed) {
                assert!(!sleeper.is_finished(), "the rest is over");
                std::thread::yield_now();
            }
        };
        until_asleep();
        wake.wake();
        until_asleep();
        wake.stop();
        sleeper.join().unwrap();
        wake.sleep(Duration::from_secs(3600), || panic!("nobody asks for work after the stop"));
    }
}
