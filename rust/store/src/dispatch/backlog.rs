//! How far dispatch has come, and where appends wait while it is too far behind.

use std::time::{Duration, Instant};

use rocketpy_env::planted::{self, Bug};
use rocketpy_model::PhysicalOffset;

use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use crate::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Shared by the dispatcher, which moves on, and the appender, which waits for it. Its lock and bell are the standard library's, for
/// the reason in [`crate::wake::Wake`].
pub(crate) struct Backlog {
    /// Consume queues cover the log before this.
    dispatched: AtomicU64,
    /// Somebody waits, or is about to.
    is_behind: AtomicBool,
    /// When the first append that still waits began to wait. `None` after each step of dispatch: the time starts again.
    behind_since: Mutex<Option<Instant>>,
    bell: Condvar,
}

impl Backlog {
    pub(crate) fn new(dispatched: PhysicalOffset) -> Self {
        Self {
            dispatched: AtomicU64::new(dispatched.get()),
            is_behind: AtomicBool::new(false),
            behind_since: Mutex::new(None),
            bell: Condvar::new(),
        }
    }

    /// Consume queues cover the log before this.
    #[inline]
    pub(crate) fn dispatched(&self) -> PhysicalOffset {
        PhysicalOffset(self.dispatched.load(Ordering::Acquire))
    }

    /// Ends a round that made the log readable up to `end`: `tell_arrivals` runs before that is published, `tell_end` after it.
    /// Whoever is told of `end` and looks finds it; whoever looked before and does not see it is told.
    pub(super) fn publish(&self, end: PhysicalOffset, tell_arrivals: impl FnOnce(), tell_end: impl FnOnce()) {
        let before = self.dispatched();
        assert!(end >= before, "dispatch never goes back: from {before} to {end}");
        let published = Published(self, end);
        if planted::has(Bug::DispatchToldEarly) {
            tell_end();
            return tell_arrivals();
        }
        tell_arrivals();
        drop(published);
        tell_end();
    }

    /// Notes how far dispatch has come, and wakes the appends that wait.
    fn set_dispatched(&self, end: PhysicalOffset) {
        self.dispatched.store(end.get(), Ordering::SeqCst);
        self.ring();
    }

    /// Wakes all appends that wait; each checks whether it still has to.
    pub(super) fn ring(&self) {
        if self.is_behind.swap(false, Ordering::SeqCst) {
            *self.lock() = None;
            self.bell.notify_all();
        }
    }

    /// Waits until `is_over`. `false` when dispatch has made no progress for `at_most` since the first append began to wait. That
    /// time is common to all: while dispatch stands still, later appends fail at once.
    pub(crate) fn wait(&self, at_most: Duration, is_over: impl Fn() -> bool) -> bool {
        let mut behind_since = self.lock();
        loop {
            // Before the check: a step of dispatch that the check does not see rings the bell.
            let is_late = planted::has(Bug::BehindNotedLate);
            self.is_behind.store(!is_late, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            if is_over() {
                return true;
            }
            if is_late {
                self.is_behind.store(true, Ordering::SeqCst);
            }
            let since = *behind_since.get_or_insert_with(Instant::now);
            let left = at_most.saturating_sub(since.elapsed());
            if left.is_zero() {
                return false;
            }
            let waited = self.bell.wait_timeout(behind_since, left);
            behind_since = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.behind_since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Publishes, when it is dropped, how far dispatch has come. This also happens after the panic of a listener: the next round starts
/// there, and no listener is told of this round's records again.
struct Published<'a>(&'a Backlog, PhysicalOffset);

impl Drop for Published<'_> {
    fn drop(&mut self) {
        self.0.set_dispatched(self.1);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn whoever_waits_goes_on_when_dispatch_has_come_far_enough() {
        let backlog = Arc::new(Backlog::new(PhysicalOffset(10)));
        let waiting = {
            let backlog = Arc::clone(&backlog);
            std::thread::spawn(move || backlog.wait(HOUR, || backlog.dispatched().get() >= 30))
        };
        while !backlog.is_behind.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        backlog.set_dispatched(PhysicalOffset(20));
        backlog.set_dispatched(PhysicalOffset(30));
        assert!(waiting.join().unwrap());
    }

    #[test]
    fn all_who_wait_give_up_together_and_a_step_starts_their_time_anew() {
        let backlog = Backlog::new(PhysicalOffset(10));
        assert!(!backlog.wait(Duration::ZERO, || false));
        let since = *backlog.lock();
        assert!(since.is_some() && !backlog.wait(Duration::ZERO, || false));
        assert_eq!(*backlog.lock(), since);
        backlog.set_dispatched(PhysicalOffset(11));
        assert_eq!(*backlog.lock(), None);
    }
}
