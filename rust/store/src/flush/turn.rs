//! Who flushes, and who waits for it: group commit.

use std::time::{Duration, Instant};

use rocketpy_env::planted::{self, Bug};
use rocketpy_model::PhysicalOffset;

use crate::error::FlushError;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// What threads flush in turns.
pub(super) trait Flushing {
    /// Everything before this is durable.
    fn flushed(&self) -> PhysicalOffset;

    /// End of what is written.
    fn end(&self) -> PhysicalOffset;

    /// End of a flush that starts now.
    fn target(&self) -> Target;

    /// Refuses when a flush has failed.
    fn check(&self) -> Result<(), FlushError>;

    /// Flushes up to a target. The caller has the turn.
    fn flush(&self, target: Target) -> Result<(), FlushError>;

    /// A panic ended the flush of this thread.
    fn panicked(&self);
}

/// End of a flush.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target {
    pub(super) to: PhysicalOffset,
    /// When a record before `to` was stored.
    pub(super) stored_at_ms: i64,
}

/// The turn to flush; given back when dropped. After a panic others still wait for this thread, so that it poisons.
struct HeldTurn<'a, F: Flushing>(&'a Turns, &'a F);

impl<F: Flushing> Drop for HeldTurn<'_, F> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.1.panicked();
        }
        self.0.give_back();
    }
}

/// The turn to flush, and the bells of those who wait.
///
/// A flush wakes the threads that it covered, and one more, which flushes next. With dozens of writers, waking all
/// would cost more than the disk.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    turn: Mutex<Turn>,
    /// One for threads that wait for the running flush, one for those that wait for the next. They swap: see
    /// [`Turn::running`].
    done: [Condvar; 2],
    /// Whether appends waited, since the last step, because too much is not flushed.
    is_behind: AtomicBool,
    /// Rung for them after every step.
    room: Condvar,
}

/// Whose turn it is.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    /// Whether some thread is flushing.
    is_taken: bool,
    /// End of that flush.
    to: PhysicalOffset,
    /// Which bell wakes all when that flush ends. The other one then wakes the first thread of the next flush.
    running: usize,
    /// When the first append began to wait for the step that runs.
    behind_since: Option<Instant>,
}

impl Turn {
    /// Takes the turn for a flush up to `to`. Those who waited for the next flush wait for this one now.
    ///
    /// # Panics
    /// When somebody else has it.
    fn take(&mut self, to: PhysicalOffset) {
        assert!(!self.is_taken, "two threads flush at once");
        (self.is_taken, self.to, self.running) = (true, to, 1 - self.running);
    }

    /// When the first append began to wait for the step that runs: now, if nobody waits yet.
    pub(super) fn behind_since(&mut self) -> Instant {
        *self.behind_since.get_or_insert_with(Instant::now)
    }
}

impl Turns {
    pub(super) fn lock(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns once everything before `end` is durable, flushing on this thread if no other does. `then` follows each flush
    /// on this thread.
    pub(super) fn flush_to<F: Flushing>(
        &self,
        end: PhysicalOffset,
        timeout: Duration,
        log: &F,
        then: &impl Fn(),
    ) -> Result<(), FlushError> {
        let started = Instant::now();
        let mut turn = self.lock();
        loop {
            let flushed = log.flushed();
            if flushed >= end {
                return Ok(());
            }
            log.check()?;
            if turn.is_taken {
                let left = timeout.saturating_sub(started.elapsed());
                if left.is_zero() {
                    return Err(FlushError::TimedOut { end, flushed, waited: timeout });
                }
                turn = self.wait(turn, end, left);
            } else {
                let result = self.take_turn(turn, log);
                then();
                result?;
                turn = self.lock();
                if log.flushed() == flushed {
                    return Err(FlushError::PastEnd { end, wrote: log.end() });
                }
            }
        }
    }

    /// Flushes all that is written.
    fn take_turn<F: Flushing>(&self, mut turn: MutexGuard<'_, Turn>, log: &F) -> Result<(), FlushError> {
        let target = log.target();
        turn.take(target.to);
        drop(turn);
        let _held = HeldTurn(self, log);
        log.flush(target)
    }

    /// Lets all waiting threads check again.
    pub(crate) fn notify(&self) {
        drop(self.lock());
        self.done.iter().chain([&self.room]).for_each(Condvar::notify_all);
    }

    /// Lets the threads that the running flush covers check how far it is.
    pub(super) fn ring_for_running(&self) {
        let running = self.lock().running;
        self.done[running].notify_all();
    }

    /// Gives the turn back. The threads that the flush covered continue, and one of the others flushes next.
    fn give_back(&self) {
        let mut turn = self.lock();
        turn.is_taken = false;
        let running = turn.running;
        drop(turn);
        self.done[running].notify_all();
        if !planted::has(Bug::NextFlushNotRung) {
            self.done[1 - running].notify_one();
        }
    }

    /// Waits for the flush that covers `end`: the running one or the next.
    fn wait<'a>(
        &self,
        turn: MutexGuard<'a, Turn>,
        end: PhysicalOffset,
        at_most: Duration,
    ) -> MutexGuard<'a, Turn> {
        let bell = if end <= turn.to { turn.running } else { 1 - turn.running };
        self.done[bell].wait_timeout(turn, at_most).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Announces that the caller is about to wait for room. Call it before the last check.
    pub(super) fn note_behind(&self) {
        self.is_behind.store(true, Ordering::SeqCst);
    }

    /// Waits until a step of the flush is through.
    pub(super) fn wait_for_room<'a>(
        &self,
        turn: MutexGuard<'a, Turn>,
        at_most: Duration,
    ) -> MutexGuard<'a, Turn> {
        self.room.wait_timeout(turn, at_most).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Lets appends check whether there is room; called after the flushed offset has moved.
    pub(super) fn ring_for_room(&self) {
        if self.is_behind.swap(false, Ordering::SeqCst) {
            self.lock().behind_since = None;
            self.room.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_flush_has_the_other_bell() {
        let turns = Turns::default();
        let mut turn = turns.lock();
        turn.take(PhysicalOffset(10));
        let first = turn.running;
        drop(turn);
        turns.give_back();
        let mut turn = turns.lock();
        assert!(!turn.is_taken);
        turn.take(PhysicalOffset(20));
        assert_eq!(turn.running, 1 - first);
    }

    #[test]
    #[should_panic(expected = "two threads flush at once")]
    fn the_turn_is_taken_once() {
        let turns = Turns::default();
        let mut turn = turns.lock();
        turn.take(PhysicalOffset(10));
        turn.take(PhysicalOffset(20));
    }

    #[test]
    fn a_step_starts_the_clock_of_those_who_wait_for_room_anew() {
        let turns = Turns::default();
        let since = turns.lock().behind_since();
        assert_eq!(turns.lock().behind_since(), since);
        turns.ring_for_room();
        assert_eq!(turns.lock().behind_since, Some(since), "nobody said that he waits");
        turns.note_behind();
        turns.ring_for_room();
        assert_eq!(turns.lock().behind_since, None);
    }
}
