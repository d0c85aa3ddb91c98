//! Counts what a producer sends, request by request.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use parking_lot::{Mutex, MutexGuard};
use rocketpy_model::Message;

use super::pack::Outgoing;
use crate::send_error::SendError;
use crate::traffic::Traffic;

/// Longest latency that is told apart from longer ones.
const MAX_LATENCY: Duration = Duration::from_secs(60);
/// Significant digits of a latency: an error of 1 % at most, and some 18 KiB a histogram.
const DIGITS: u8 = 2;
/// Percentiles are those of the current span of this length and the one before.
const SPAN: Duration = Duration::from_secs(60);

/// Counts for one producer. The lock is taken once or twice for each request, and for no message.
#[derive(Debug)]
pub(crate) struct Recorder(Mutex<Counts>);

#[derive(Debug)]
pub(super) struct Counts {
    pub(super) sent: Traffic,
    pub(super) failed: Traffic,
    pub(super) retried: Traffic,
    pub(super) unknown: Traffic,
    pub(super) oneway: Traffic,
    pub(super) total: Duration,
    pub(super) recent: Recent,
}

/// The times of two spans.
#[derive(Debug)]
pub(super) struct Recent {
    since: Instant,
    current: Histogram<u64>,
    before: Histogram<u64>,
}

/// A request under way. Dropped before its end, its outcome is unknown.
pub(crate) struct UnderWay<'a> {
    recorder: &'a Recorder,
    traffic: Traffic,
    started: Instant,
    has_ended: bool,
}

impl Recorder {
    pub(crate) fn new() -> Self {
        let (sent, failed, retried, unknown, oneway, total) = Default::default();
        let recent = Recent { since: Instant::now(), current: histogram(), before: histogram() };
        Self(Mutex::new(Counts { sent, failed, retried, unknown, oneway, total, recent }))
    }

    pub(super) fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock()
    }

    pub(crate) fn begin(&self, outgoing: &Outgoing) -> UnderWay<'_> {
        let traffic = Traffic::request(outgoing.keys.len(), outgoing.message_bytes);
        UnderWay { recorder: self, traffic, started: Instant::now(), has_ended: false }
    }

    pub(crate) fn oneway(&self, outgoing: &Outgoing) {
        self.0.lock().oneway += Traffic::request(outgoing.keys.len(), outgoing.message_bytes);
    }

    /// Counts messages that are not sent because of a failure.
    pub(crate) fn unsent<'a>(&self, messages: impl IntoIterator<Item = &'a Message>) {
        let (mut count, mut bytes) = (0, 0);
        for message in messages {
            (count, bytes) = (count + 1, bytes + message.body.len());
        }
        if count > 0 {
            self.0.lock().failed += Traffic::unsent(count, bytes);
        }
    }
}

impl UnderWay<'_> {
    /// Another attempt follows.
    pub(crate) fn retried(&self) {
        self.recorder.0.lock().retried += self.traffic;
    }

    pub(crate) fn end<T>(mut self, result: &Result<T, SendError>) {
        self.has_ended = true;
        let now = Instant::now();
        let mut counts = self.recorder.0.lock();
        if result.is_err() {
            counts.failed += self.traffic;
            return;
        }
        let took = now.saturating_duration_since(self.started);
        counts.sent += self.traffic;
        counts.total += took;
        counts.recent.record(took, now);
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.recorder.0.lock().unknown += self.traffic;
        }
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
    pub(super) fn merged(&mut self, now: Instant) -> Histogram<u64> {
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
    fn a_longer_time_than_the_longest_counts_as_that() {
        let start = Instant::now();
        let mut recent = Recent { since: start, current: histogram(), before: histogram() };
        recent.record(2 * MAX_LATENCY, start);
        assert!(recent.merged(start).max() >= MAX_LATENCY.as_micros() as u64);
    }
}
