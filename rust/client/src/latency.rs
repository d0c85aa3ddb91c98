//! Durations of requests and handlers: all counted and summed, the recent ones in a histogram.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

/// Maximum latency of the histogram; longer ones count as this.
const MAX_LATENCY: Duration = Duration::from_secs(60);
/// Significant digits of a latency: an error of 1 % at most, and some 18 KiB a histogram.
const DIGITS: u8 = 2;
/// Percentiles are those of the current span of this length and the one before.
const SPAN: Duration = Duration::from_secs(60);

/// Times of requests, each from its first attempt to its acknowledgement, or of calls of handlers.
#[derive(Debug, Clone)]
pub struct LatencyStats {
    /// Number of all times.
    pub count: u64,
    /// Sum of all times.
    pub total: Duration,
    /// The times of the last one to two minutes.
    pub recent_us: Histogram<u64>,
}

/// Records times; of older ones only the number and the sum remain.
#[derive(Debug)]
pub(crate) struct Latency {
    count: u64,
    total: Duration,
    recent: Recent,
}

/// The times of two spans.
#[derive(Debug)]
struct Recent {
    since: Instant,
    current: Histogram<u64>,
    before: Histogram<u64>,
}

impl Latency {
    pub(crate) fn new() -> Self {
        let recent = Recent { since: Instant::now(), current: histogram(), before: histogram() };
        Self { count: 0, total: Duration::ZERO, recent }
    }

    pub(crate) fn record(&mut self, took: Duration, now: Instant) {
        self.count += 1;
        self.total += took;
        self.recent.record(took, now);
    }

    pub(crate) fn stats(&mut self, now: Instant) -> LatencyStats {
        LatencyStats { count: self.count, total: self.total, recent_us: self.recent.merged(now) }
    }
}

impl Recent {
    fn record(&mut self, took: Duration, now: Instant) {
        self.turn(now);
        self.current.saturating_record(took.as_micros() as u64);
    }

    /// Begins another span if the current one is over.
    fn turn(&mut self, now: Instant) {
        let age = now.saturating_duration_since(self.since);
        if age < SPAN {
            return;
        }
        std::mem::swap(&mut self.current, &mut self.before);
        self.current.reset();
        if age >= 2 * SPAN {
            self.before.reset();
        }
        self.since = now;
    }

    /// The times of both spans.
    fn merged(&mut self, now: Instant) -> Histogram<u64> {
        self.turn(now);
        let mut merged = self.current.clone();
        merged.add(&self.before).expect("both have the same bounds");
        merged
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, MAX_LATENCY.as_micros() as u64, DIGITS).expect("the bounds are sound")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_times_are_those_of_the_current_span_and_the_one_before() {
        let start = Instant::now();
        let mut recent = Recent { since: start, current: histogram(), before: histogram() };
        recent.record(Duration::from_millis(1), start);
        let later = start + SPAN;
        recent.record(Duration::from_millis(9), later);
        assert_eq!(recent.merged(later).len(), 2);
        let last = later + SPAN;
        let merged = recent.merged(last);
        assert_eq!((merged.len(), merged.max() / 1000), (1, 9), "the first is forgotten");
        assert_eq!(recent.merged(last + 2 * SPAN).len(), 0, "a long silence forgets all");
    }

    #[test]
    fn count_and_total_keep_times_that_the_spans_forget() {
        let start = Instant::now();
        let mut latency = Latency::new();
        latency.record(Duration::from_millis(2), start);
        latency.record(Duration::from_millis(3), start);
        let LatencyStats { count, total, recent_us } = latency.stats(start + 3 * SPAN);
        assert_eq!((count, total, recent_us.len()), (2, Duration::from_millis(5), 0));
    }

    #[test]
    fn a_longer_time_than_the_longest_counts_as_that() {
        let start = Instant::now();
        let mut recent = Recent { since: start, current: histogram(), before: histogram() };
        recent.record(2 * MAX_LATENCY, start);
        assert!(recent.merged(start).max() >= MAX_LATENCY.as_micros() as u64);
    }
}
