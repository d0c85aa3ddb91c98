//! Wakes a thread that waits for work, at the price of a fence when it does not wait.

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// One thread sleeps here; any thread wakes it.
///
/// With the standard library's condition variable: `parking_lot` keeps sleepers in one table of the process, and in a
/// forked child, where these threads do not exist, whoever passes that table writes into memory that was freed.
#[derive(Debug, Default)]
pub(crate) struct Wake {
    asleep: AtomicBool,
    called: Mutex<bool>,
    bell: Condvar,
}

impl Wake {
    /// Wakes the sleeper, if it sleeps. What was stored before the call is visible to its next look.
    pub(crate) fn wake(&self) {
        // Pairs with the fence in `sleep`: either this sees `asleep`, or the sleeper sees what was stored before.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) {
            *self.called() = true;
            self.bell.notify_one();
        }
    }

    /// Sleeps until woken or the time is up, unless `ready` says that there is work.
    pub(crate) fn sleep(&self, at_most: Duration, ready: impl FnOnce() -> bool) {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !ready() {
            let called = self.called();
            if !*called {
                drop(self.bell.wait_timeout(called, at_most));
            }
        }
        self.asleep.store(false, Ordering::Relaxed);
        *self.called() = false;
    }

    fn called(&self) -> MutexGuard<'_, bool> {
        self.called.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
