//! Where threads wait for appends. While nobody waits, an append pays one load for it.

use std::time::{Duration, Instant};

use rocketpy_env::planted::{self, Bug};

use crate::sync::atomic::{AtomicBool, Ordering, fence};
use crate::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Several threads wait here; every append wakes all of them. Its lock and bell are the standard library's, for the reason in
/// [`crate::wake::Wake`].
#[derive(Debug, Default)]
pub(crate) struct AppendBell {
    /// Somebody waits, or is about to.
    is_awaited: AtomicBool,
    state: Mutex<State>,
    bell: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Number of times that all waits were ended.
    ended: u64,
    /// From now on every wait ends at once.
    is_stopped: bool,
}

impl AppendBell {
    /// Waits until `is_over`, until the time is up, or until somebody ends all waits.
    pub(crate) fn wait(&self, at_most: Duration, is_over: impl Fn() -> bool) {
        let began = Instant::now();
        let mut state = self.lock();
        let ended_before = state.ended;
        loop {
            // Before the check: an append that the check does not see rings the bell.
            let is_late = planted::has(Bug::SleepNotedLate);
            self.is_awaited.store(!is_late, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            let left = at_most.saturating_sub(began.elapsed());
            if is_over() || state.is_stopped || state.ended != ended_before || left.is_zero() {
                return;
            }
            if is_late {
                self.is_awaited.store(true, Ordering::Relaxed);
            }
            state = self.bell.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Wakes those who wait, if there are any. The caller has published an append, and orders the two by a fence.
    #[inline]
    pub(crate) fn ring_if_awaited(&self) {
        if self.is_awaited.load(Ordering::Relaxed) {
            self.ring();
        }
    }

    #[cold]
    fn ring(&self) {
        let state = self.lock();
        self.is_awaited.store(false, Ordering::Relaxed); // whoever goes on waiting sets it again
        drop(state);
        self.bell.notify_all();
    }

    /// Ends all waits.
    pub(crate) fn end_waits(&self) {
        self.lock().ended += 1;
        self.bell.notify_all();
    }

    /// Ends all waits, also those that begin later.
    pub(crate) fn stop(&self) {
        self.lock().is_stopped = true;
        self.bell.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;
    use std::thread::JoinHandle;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    /// A thread that waits for a number to pass another.
    fn waiting(bell: &Arc<AppendBell>, number: &Arc<AtomicU64>, beyond: u64) -> JoinHandle<u64> {
        let (bell, number) = (Arc::clone(bell), Arc::clone(number));
        std::thread::spawn(move || {
            bell.wait(HOUR, || number.load(Ordering::Relaxed) > beyond);
            number.load(Ordering::Relaxed)
        })
    }

    /// Until a thread waits, or has seen the last append.
    fn until_awaited(bell: &AppendBell) {
        while !bell.is_awaited.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn every_append_wakes_all_who_wait_and_each_waits_for_its_own_end() {
        let (bell, number) = (Arc::<AppendBell>::default(), Arc::<AtomicU64>::default());
        let threads: Vec<_> = (0..3).map(|beyond| waiting(&bell, &number, beyond)).collect();
        for next in 1..=3 {
            until_awaited(&bell);
            number.store(next, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            bell.ring_if_awaited();
        }
        for (beyond, thread) in threads.into_iter().enumerate() {
            assert!(thread.join().unwrap() > beyond as u64);
        }
    }

    #[test]
    fn a_wait_ends_with_its_time_with_all_waits_and_with_the_store() {
        let (bell, number) = (Arc::<AppendBell>::default(), Arc::<AtomicU64>::default());
        bell.wait(Duration::ZERO, || false);
        bell.is_awaited.store(false, Ordering::Relaxed);
        let thread = waiting(&bell, &number, 0);
        until_awaited(&bell);
        while !thread.is_finished() {
            bell.end_waits(); // again: the thread may not have begun when it was first called
            std::thread::yield_now();
        }
        assert_eq!(thread.join().unwrap(), 0);
        bell.stop();
        bell.wait(HOUR, || false);
    }
}
