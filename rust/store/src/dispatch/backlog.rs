//! How far dispatch has come, and where appends wait while it is too far behind.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rocketpy_model::{AtomicPhysicalOffset, PhysicalOffset};

/// Shared by the dispatcher, which moves on, and the appender, which waits for it.
pub(crate) struct Backlog {
    /// Consume queues cover the log before this.
    dispatched: AtomicPhysicalOffset,
    /// Somebody waits, or is about to.
    is_behind: AtomicBool,
    /// When the first of those who wait began to, or dispatch last came some way.
    behind_since: Mutex<Option<Instant>>,
    bell: Condvar,
}

impl Backlog {
    pub(crate) fn new(dispatched: PhysicalOffset) -> Self {
        Self {
            dispatched: AtomicPhysicalOffset::new(dispatched),
            is_behind: AtomicBool::new(false),
            behind_since: Mutex::new(None),
            bell: Condvar::new(),
        }
    }

    /// Consume queues cover the log before this.
    #[inline]
    pub(crate) fn dispatched(&self) -> PhysicalOffset {
        self.dispatched.load(Ordering::Acquire)
    }

    /// Notes how far dispatch has come, and lets those who wait look.
    pub(super) fn set_dispatched(&self, end: PhysicalOffset) {
        self.dispatched.store(end, Ordering::SeqCst);
        self.ring();
    }

    /// Lets those who wait look whether they still have to.
    pub(super) fn ring(&self) {
        if self.is_behind.swap(false, Ordering::SeqCst) {
            *self.behind_since.lock() = None;
            self.bell.notify_all();
        }
    }

    /// Waits until `is_over`. `false` when the first who waits has waited this long while dispatch came no further: one that
    /// stalls holds up each thread once, not once for every append.
    pub(crate) fn wait(&self, at_most: Duration, is_over: impl Fn() -> bool) -> bool {
        let mut behind_since = self.behind_since.lock();
        loop {
            self.is_behind.store(true, Ordering::SeqCst); // before the check: a step that comes behind it rings
            if is_over() {
                return true;
            }
            let since = *behind_since.get_or_insert_with(Instant::now);
            let left = at_most.saturating_sub(since.elapsed());
            if left.is_zero() {
                return false;
            }
            self.bell.wait_for(&mut behind_since, left);
        }
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
        let since = *backlog.behind_since.lock();
        assert!(since.is_some() && !backlog.wait(Duration::ZERO, || false));
        assert_eq!(*backlog.behind_since.lock(), since);
        backlog.set_dispatched(PhysicalOffset(11));
        assert_eq!(*backlog.behind_since.lock(), None);
    }
}
