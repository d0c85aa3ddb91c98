//! Steps of the wall clock: an administrator or a time server sets it, and ages that are differences of stored times become wrong.
//!
//! A record carries the wall time of its storing and nothing else. The steps since then, seen on the monotonic clock, correct its age.

use std::collections::VecDeque;

use parking_lot::Mutex;
use rocketpy_env::planted::{self, Bug};
use rocketpy_env::{Disk, moved_ms};
use rocketpy_model::PhysicalOffset;
use rocketpy_store::Store;
use tracing::warn;

/// Minimum difference of the two clocks that is a step: a clock that is adjusted slowly drifts by less between two readings.
const STEP_MS: i64 = 1000;
/// Maximum number of steps that are remembered. Records before a forgotten one have the age that the wall clock says.
const MAX_STEPS: usize = 64;
/// By so much at the most the stored time of a record is later than the clock: after a smaller step back the store repeats the time of the
/// record before it, until the clock has caught up. What waits may wait longer by this.
pub(crate) const HELD_MS: i64 = 60_000;

/// A reading of both clocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    /// In Unix milliseconds.
    pub(crate) wall_ms: i64,
    /// In milliseconds of the monotonic clock.
    pub(crate) steady_ms: i64,
}

impl Now {
    pub(crate) fn of(store: &Store<impl Disk>) -> Self {
        let steady_ms = i64::try_from(store.monotonic().as_millis()).unwrap_or(i64::MAX);
        // A test that moves the clock of its process on means that time passes.
        Self { wall_ms: store.now_ms(), steady_ms: steady_ms.saturating_add(moved_ms()) }
    }

    /// The same time on both clocks.
    #[cfg(test)]
    pub(crate) fn at(ms: i64) -> Self {
        Self { wall_ms: ms, steady_ms: ms }
    }
}

/// The steps since the start.
#[derive(Debug, Default)]
pub(crate) struct ClockSteps(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The wall clock minus the monotonic one, at the latest reading.
    difference_ms: Option<i64>,
    /// End of the log before that reading.
    end: PhysicalOffset,
    steps: VecDeque<Step>,
    total_ms: i64,
}

#[derive(Debug)]
struct Step {
    /// End of the log before the reading that preceded the step. Records before it were stored before the step.
    sure_end: PhysicalOffset,
    /// Where the log ended when the step was noticed. Records before it were stored before the step, or a moment after.
    end: PhysicalOffset,
    by_ms: i64,
    /// When it was noticed, by the wall clock after it.
    seen_at_ms: i64,
}

impl State {
    /// Notes a look at the clocks, between two at the end of the log.
    fn observe(&mut self, before: PhysicalOffset, now: Now, end: PhysicalOffset) {
        let next = before.max(self.end);
        let sure_end = std::mem::replace(&mut self.end, next);
        let difference_ms = now.wall_ms - now.steady_ms;
        let by_ms = difference_ms - self.difference_ms.replace(difference_ms).unwrap_or(difference_ms);
        if by_ms.abs() < STEP_MS || planted::has(Bug::ClockStepMissed) {
            return;
        }
        warn!(by_ms, "wall clock stepped: delays and open transactions keep their age");
        self.total_ms = self.total_ms.saturating_add(by_ms);
        self.steps.push_back(Step { sure_end, end, by_ms, seen_at_ms: now.wall_ms });
        if self.steps.len() > MAX_STEPS {
            self.steps.pop_front();
        }
        let steps = self.steps.len();
        assert!(steps <= MAX_STEPS, "as many steps of the clock are kept as the limit allows: {steps}");
    }
}

impl ClockSteps {
    /// Compares the clocks, one look after the other: the end of the log, the clocks, and the end of the log again.
    pub(crate) fn observe(&self, look: impl FnOnce() -> (PhysicalOffset, Now, PhysicalOffset)) -> Now {
        let mut state = self.0.lock();
        let (before, now, end) = look();
        state.observe(before, now, end);
        now
    }

    /// When the record at a place was stored, by the wall clock as it is set now. In the future where the clock was ahead at the time and was
    /// set back unseen, or little in the future where the store repeated the time of the record before it.
    ///
    /// A record that was stored between two looks, of which the later one noticed a step, counts from that look on: its time may be one
    /// before the step, one after it, or that of an earlier record, and an age that is too short does less harm.
    pub(crate) fn stored_at_ms(&self, at: PhysicalOffset, stored_at_ms: i64) -> i64 {
        let state = self.0.lock();
        let correct = |at_ms: i64, step: &Step| {
            if at < step.sure_end { at_ms.saturating_add(step.by_ms) } else { step.seen_at_ms }
        };
        state.steps.iter().filter(|step| at < step.end).fold(stored_at_ms, correct)
    }

    /// By how much all steps together have set the wall clock ahead.
    pub(crate) fn total_ms(&self) -> i64 {
        self.0.lock().total_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_MS: i64 = 86_400_000;

    #[test]
    fn age_of_a_record_does_not_step_with_the_clock() {
        let steps = ClockSteps::default();
        let start_ms = 1_700_000_000_000;
        let observe = |later_ms, ahead_ms, end| {
            let now = Now { wall_ms: start_ms + later_ms + ahead_ms, steady_ms: later_ms };
            steps.observe(|| (PhysicalOffset(end), now, PhysicalOffset(end)));
        };
        let age_ms = |at, stored_at_ms: i64, later_ms| {
            start_ms + later_ms - steps.stored_at_ms(PhysicalOffset(at), start_ms + stored_at_ms)
        };
        observe(0, 0, 0);
        observe(1000, 0, 100);
        observe(2000, DAY_MS, 200); // 150 was stored after the step already, 50 before it
        assert_eq!(age_ms(50, 500, 2000 + DAY_MS), 1500);
        assert_eq!(
            age_ms(150, 1900 + DAY_MS, 2000 + DAY_MS),
            0,
            "it counts from the look that noticed the step"
        );
        observe(4000, 0, 400); // 250 was stored while the clock was ahead, 350 when it was right again
        assert_eq!(age_ms(50, 500, 5000), 4500);
        assert_eq!(age_ms(150, 1900 + DAY_MS, 5000), 3000);
        assert_eq!(age_ms(250, 3000 + DAY_MS, 5000), 1000);
        assert_eq!(age_ms(350, 3900, 5000), 1000);
        assert_eq!(age_ms(450, 4500, 5000), 500);
        assert_eq!(age_ms(450, 4500 + DAY_MS, 5000), 500 - DAY_MS, "both steps were between two looks");
    }

    #[test]
    fn a_step_back_by_less_than_the_age_is_corrected() {
        let (steps, hour_ms) = (ClockSteps::default(), 3_600_000);
        for (wall_ms, steady_ms, end) in [(0, 0, 100), (90, 90, 100), (30, 90, 100)] {
            let now = Now { wall_ms: wall_ms * hour_ms, steady_ms: steady_ms * hour_ms };
            steps.observe(|| (PhysicalOffset(end), now, PhysicalOffset(end)));
        }
        let stored_at_ms = steps.stored_at_ms(PhysicalOffset(50), 0);
        assert_eq!(stored_at_ms, -60 * hour_ms, "it is 90 hours old");
    }

    #[test]
    fn a_record_that_has_the_time_of_the_last_one_before_a_small_step_back_is_no_older_than_the_step() {
        let steps = ClockSteps::default();
        for (wall_ms, steady_ms, end) in [(100_000, 100_000, 100), (67_000, 102_000, 200)] {
            let end = PhysicalOffset(end);
            steps.observe(|| (end, Now { wall_ms, steady_ms }, end));
        }
        let stored_at_ms = steps.stored_at_ms(PhysicalOffset(150), 99_000);
        assert_eq!(stored_at_ms, 67_000, "it was stored after the step, or little before");
        let stored_at_ms = steps.stored_at_ms(PhysicalOffset(50), 99_000);
        assert_eq!(stored_at_ms, 64_000);
    }

    #[test]
    fn a_record_stored_between_two_looks_counts_from_the_one_that_noticed_a_step() {
        let stored_at_ms = |looks: &[(i64, i64)]| {
            let steps = ClockSteps::default();
            for (number, &(wall_ms, steady_ms)) in looks.iter().enumerate() {
                let end = PhysicalOffset(100 * (number as u64 + 1));
                steps.observe(|| (end, Now { wall_ms, steady_ms }, end));
            }
            let at = PhysicalOffset(100 * looks.len() as u64 - 50);
            steps.stored_at_ms(at, 80_000)
        };
        // The last record before the step was stored 20 s earlier: its time is repeated after a step back by 80 s, too.
        assert_eq!(stored_at_ms(&[(100_000, 100_000), (25_000, 105_000)]), 25_000);
        // It is repeated until the clock has caught up, so also when that is set ahead again.
        assert_eq!(stored_at_ms(&[(80_000, 80_000), (40_000, 81_000), (101_000, 82_000)]), 101_000);
    }

    #[test]
    fn a_slow_clock_makes_no_steps() {
        let steps = ClockSteps::default();
        for second in 0..100 {
            let now = Now { wall_ms: second * 1100, steady_ms: second * 1000 };
            steps.observe(|| (PhysicalOffset(1000), now, PhysicalOffset(1000)));
        }
        assert_eq!(steps.stored_at_ms(PhysicalOffset(1), 50_000), 50_000);
    }
}
