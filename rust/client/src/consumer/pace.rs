//! How fast messages are pulled and consumed, for administrators.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rocketpy_protocol::body::ConsumeStatus;

/// Time between two samples.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(10);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
/// Samples of an hour, and one before it.
const MAX_SAMPLES: usize = 361;

/// What is counted of a topic since the start.
#[derive(Debug, Default)]
pub(super) struct Pace {
    consumed: AtomicU64,
    failed: AtomicU64,
    busy_us: AtomicU64,
    pulls: AtomicU64,
    pulled: AtomicU64,
    pull_us: AtomicU64,
    samples: Mutex<VecDeque<Sample>>,
}

/// The counts at some time.
#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Instant,
    consumed: u64,
    failed: u64,
    busy_us: u64,
    pulls: u64,
    pulled: u64,
    pull_us: u64,
}

impl Pace {
    /// Notes messages that a handler had for a time.
    pub(super) fn note(&self, consumed: usize, failed: usize, busy: Duration) {
        self.consumed.fetch_add(consumed as u64, Ordering::Relaxed);
        self.failed.fetch_add(failed as u64, Ordering::Relaxed);
        self.busy_us.fetch_add(busy.as_micros() as u64, Ordering::Relaxed);
    }

    /// Notes a pull that brought messages.
    pub(super) fn note_pull(&self, messages: usize, took: Duration) {
        self.pulls.fetch_add(1, Ordering::Relaxed);
        self.pulled.fetch_add(messages as u64, Ordering::Relaxed);
        self.pull_us.fetch_add(took.as_micros() as u64, Ordering::Relaxed);
    }

    fn sample_now(&self, at: Instant) -> Sample {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Sample {
            at,
            consumed: of(&self.consumed),
            failed: of(&self.failed),
            busy_us: of(&self.busy_us),
            pulls: of(&self.pulls),
            pulled: of(&self.pulled),
            pull_us: of(&self.pull_us),
        }
    }

    /// Takes a sample when one is due. Called more often than that.
    pub(super) fn sample(&self, now: Instant) {
        let mut samples = self.samples.lock();
        if samples.back().is_none_or(|last| now.duration_since(last.at) >= SAMPLE_INTERVAL) {
            if samples.len() == MAX_SAMPLES {
                samples.pop_front();
            }
            samples.push_back(self.sample_now(now));
        }
    }

    /// What handlers did lately.
    pub(super) fn status(&self, now: Instant) -> ConsumeStatus {
        // The lock first: a sample that is taken meanwhile would be newer than the latest counts.
        let samples = self.samples.lock();
        let latest = self.sample_now(now);
        let since = |span: Duration| {
            let is_before = |sample: &&Sample| now.duration_since(sample.at) >= span;
            // The last one before the span; else the first one of all.
            samples.iter().rev().find(is_before).or(samples.front()).copied().unwrap_or(latest)
        };
        let (minute, hour) = (since(MINUTE), since(HOUR));
        assert!(
            minute.consumed <= latest.consumed
                && minute.failed <= latest.failed
                && hour.failed <= latest.failed,
            "counts of consumed messages only grow"
        );
        assert!(minute.pulls <= latest.pulls && minute.pulled <= latest.pulled, "counts of pulls only grow");
        assert!(
            minute.busy_us <= latest.busy_us && minute.pull_us <= latest.pull_us,
            "times of handlers and pulls only grow"
        );
        let seconds = now.duration_since(minute.at).as_secs_f64().max(1.0);
        let (consumed, failed) = (latest.consumed - minute.consumed, latest.failed - minute.failed);
        let (pulls, pulled) = (latest.pulls - minute.pulls, latest.pulled - minute.pulled);
        let milliseconds = |us: u64| us as f64 / 1000.0;
        let busy_ms = milliseconds(latest.busy_us - minute.busy_us);
        ConsumeStatus {
            consume_failed_tps: failed as f64 / seconds,
            consume_failed_messages: i64::try_from(latest.failed - hour.failed).unwrap_or(i64::MAX),
            consume_ok_tps: consumed as f64 / seconds,
            consume_time_ms: busy_ms / (consumed + failed).max(1) as f64,
            pull_time_ms: milliseconds(latest.pull_us - minute.pull_us) / pulls.max(1) as f64,
            pull_tps: pulled as f64 / seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_the_last_minute_and_failures_those_of_the_last_hour() {
        let (pace, start) = (Pace::default(), Instant::now());
        for second in 0..7200 {
            pace.sample(start + Duration::from_secs(second));
            if second < 7000 {
                pace.note(3, 1, Duration::from_millis(8));
            }
        }
        assert_eq!(pace.samples.lock().len(), MAX_SAMPLES);
        let at = |second| pace.status(start + Duration::from_secs(second));
        let status = at(7200);
        assert_eq!(
            (status.consume_ok_tps, status.consume_failed_tps, status.consume_time_ms),
            (0.0, 0.0, 0.0)
        );
        assert_eq!(status.consume_failed_messages, 3400);
        pace.note(120, 0, Duration::from_millis(240));
        let status = at(7200);
        assert_eq!((status.consume_ok_tps, status.consume_time_ms), (2.0, 2.0));
    }

    #[test]
    fn a_young_consumer_has_rates_too() {
        let (pace, start) = (Pace::default(), Instant::now());
        assert_eq!(pace.status(start), ConsumeStatus::default());
        pace.sample(start);
        pace.note(30, 10, Duration::from_millis(40));
        pace.note_pull(40, Duration::from_millis(6));
        pace.note_pull(60, Duration::from_millis(2));
        let status = pace.status(start + Duration::from_secs(10));
        assert_eq!(
            (status.consume_ok_tps, status.consume_failed_tps, status.consume_time_ms),
            (3.0, 1.0, 1.0)
        );
        assert_eq!((status.consume_failed_messages, status.pull_time_ms, status.pull_tps), (10, 4.0, 10.0));
    }
}
