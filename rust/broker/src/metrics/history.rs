//! Samples of the counters: rates over the last minutes, and values of midnight.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::{Metric, Totals};

/// Spans over which rates are computed; the tools expect these three.
const WINDOWS: [Duration; 3] = [Duration::from_secs(10), Duration::from_secs(60), Duration::from_secs(600)];
/// Samples kept: enough for a rate over ten minutes.
const SAMPLES: usize = 61;
pub(super) const DAY_MS: i64 = 86_400_000;

/// A rate for each window.
pub(crate) type Rates = [(Duration, f64); 3];

#[derive(Debug)]
pub(super) struct History {
    samples: VecDeque<(Instant, Totals)>,
    day: i64,
    today_morning: Totals,
    yesterday_morning: Totals,
}

impl History {
    pub(super) fn new(now_ms: i64) -> Self {
        Self {
            samples: VecDeque::with_capacity(SAMPLES),
            day: now_ms.div_euclid(DAY_MS),
            today_morning: Totals::default(),
            yesterday_morning: Totals::default(),
        }
    }

    /// Adds a sample; days begin at midnight UTC.
    pub(super) fn sample(&mut self, now: Instant, now_ms: i64, totals: Totals) {
        let day = now_ms.div_euclid(DAY_MS);
        if day != self.day {
            self.day = day;
            self.yesterday_morning = self.today_morning;
            self.today_morning = totals;
        }
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        let last = self.samples.back().map_or(now, |(at, _)| *at);
        assert!(last <= now, "samples are in the order of their times");
        self.samples.push_back((now, totals));
    }

    /// Counters at the last two midnights: (yesterday's, today's).
    pub(super) fn mornings(&self) -> (Totals, Totals) {
        (self.yesterday_morning, self.today_morning)
    }

    /// Rates per second over each of the [`WINDOWS`] of the sum of some counters, given their sum now and at the start.
    pub(super) fn rates(&self, now: (Instant, u64), start: (Instant, u64), metrics: &[Metric]) -> Rates {
        let (now, current) = now;
        WINDOWS.map(|window| {
            // The newest sample that is old enough; before there is one, the start.
            let is_old_enough = |at: &Instant| now.saturating_duration_since(*at) >= window;
            let (at, before) = self
                .samples
                .iter()
                .rev()
                .find(|(at, _)| is_old_enough(at))
                .map_or(start, |(at, totals)| (*at, totals.sum(metrics)));
            let elapsed = now.saturating_duration_since(at).as_secs_f64();
            (window, if elapsed > 0.0 { current.saturating_sub(before) as f64 / elapsed } else { 0.0 })
        })
    }
}
