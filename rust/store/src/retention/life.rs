//! What this process has appended, and when, by a clock that does not step.

use std::collections::VecDeque;
use std::time::Duration;

use rocketpy_model::PhysicalOffset;

/// Maximum number of marks that are kept. With one more every second one is dropped; what is between two marks counts as written at the later
/// one.
const MAX_MARKS: usize = 1024;

/// Marks in the log of one process. When the wall clock was set ahead, everything looks old; the marks say what cannot be.
#[derive(Debug)]
pub(super) struct Life {
    /// The first mark is the end of the log at the start of the process.
    marks: VecDeque<Mark>,
}

#[derive(Debug, Clone, Copy)]
struct Mark {
    /// By the monotonic clock.
    at: Duration,
    /// Everything before it was appended by then.
    end: PhysicalOffset,
}

impl Life {
    /// # Arguments
    /// `end`: what is before it was written by an earlier process.
    pub(super) fn new(at: Duration, end: PhysicalOffset) -> Self {
        Self { marks: VecDeque::from([Mark { at, end }]) }
    }

    /// Notes how far the log has come.
    pub(super) fn note(&mut self, at: Duration, end: PhysicalOffset) {
        if self.marks.back().is_some_and(|last| last.end >= end) {
            return;
        }
        if self.marks.len() == MAX_MARKS {
            let mut index = 0;
            self.marks.retain(|_| {
                index += 1;
                index % 2 == 1
            });
        }
        self.marks.push_back(Mark { at, end });
    }

    /// Everything at or after this offset was appended less than `period` ago.
    pub(super) fn young_from(&self, now: Duration, period: Duration) -> PhysicalOffset {
        let old = self.marks.partition_point(|mark| mark.at + period <= now);
        self.marks[old.saturating_sub(1)].end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn what_a_life_appended_is_young_until_its_period_is_over() {
        let mut life = Life::new(HOUR, PhysicalOffset(100));
        assert_eq!(life.young_from(HOUR, 2 * HOUR).get(), 100, "what was there may be of any age");
        life.note(2 * HOUR, PhysicalOffset(200));
        life.note(3 * HOUR, PhysicalOffset(200));
        life.note(4 * HOUR, PhysicalOffset(300));
        for (now, young_from) in [(2, 100), (3, 100), (4, 200), (5, 200), (6, 300), (100, 300)] {
            assert_eq!(life.young_from(HOUR * now, 2 * HOUR).get(), young_from, "at {now} h");
        }
    }

    #[test]
    fn many_marks_are_thinned_out_and_nothing_grows_older_by_it() {
        let mut life = Life::new(Duration::ZERO, PhysicalOffset(0));
        let hours = 5000;
        for hour in 1..=hours {
            life.note(HOUR * hour, PhysicalOffset(u64::from(hour)));
        }
        assert!(life.marks.len() <= MAX_MARKS);
        for now in [10, 1000, hours] {
            let young_from = life.young_from(HOUR * now, HOUR).get();
            assert!(young_from < u64::from(now), "{young_from} at {now} h");
        }
        assert!(life.young_from(HOUR * hours, HOUR).get() > u64::from(hours) - 20);
    }
}
