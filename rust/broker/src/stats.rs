//! Counters of messages and requests, and rates over the last minutes.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Interval of the samples from which rates are computed.
pub(crate) const SAMPLE_EVERY: Duration = Duration::from_secs(10);
/// Spans over which rates are computed; the tools expect these three.
const WINDOWS: [Duration; 3] = [Duration::from_secs(10), Duration::from_secs(60), Duration::from_secs(600)];
/// Samples kept: enough for a rate over ten minutes.
const SAMPLES: usize = 61;
const DAY_MS: i64 = 86_400_000;

/// A rate for each window.
pub(crate) type Rates = [(Duration, f64); 3];

/// Counters of what was put and got since the start.
#[doc(alias("BrokerStats", "StoreStatsService"))]
#[derive(Debug)]
pub(crate) struct Stats {
    started: Instant,
    put_messages: AtomicU64,
    put_bytes: AtomicU64,
    put_failures: AtomicU64,
    pulls_found: AtomicU64,
    pulls_missed: AtomicU64,
    got_messages: AtomicU64,
    history: Mutex<History>,
}

#[derive(Debug)]
struct History {
    samples: VecDeque<(Instant, Totals)>,
    day: i64,
    today_morning: Totals,
    yesterday_morning: Totals,
}

/// All counters at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) put_messages: u64,
    pub(crate) put_bytes: u64,
    pub(crate) put_failures: u64,
    pub(crate) pulls_found: u64,
    pub(crate) pulls_missed: u64,
    pub(crate) got_messages: u64,
}

impl Stats {
    pub(crate) fn new(now_ms: i64) -> Self {
        let history = History {
            samples: VecDeque::with_capacity(SAMPLES),
            day: now_ms.div_euclid(DAY_MS),
            today_morning: Totals::default(),
            yesterday_morning: Totals::default(),
        };
        Self {
            started: Instant::now(),
            put_messages: AtomicU64::new(0),
            put_bytes: AtomicU64::new(0),
            put_failures: AtomicU64::new(0),
            pulls_found: AtomicU64::new(0),
            pulls_missed: AtomicU64::new(0),
            got_messages: AtomicU64::new(0),
            history: Mutex::new(history),
        }
    }

    pub(crate) fn put(&self, messages: u64, bytes: u64) {
        self.put_messages.fetch_add(messages, Ordering::Relaxed);
        self.put_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn put_failed(&self) {
        self.put_failures.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn pulled(&self, messages: u64) {
        if messages == 0 {
            self.pulls_missed.fetch_add(1, Ordering::Relaxed);
        } else {
            self.pulls_found.fetch_add(1, Ordering::Relaxed);
            self.got_messages.fetch_add(messages, Ordering::Relaxed);
        }
    }

    pub(crate) fn totals(&self) -> Totals {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Totals {
            put_messages: read(&self.put_messages),
            put_bytes: read(&self.put_bytes),
            put_failures: read(&self.put_failures),
            pulls_found: read(&self.pulls_found),
            pulls_missed: read(&self.pulls_missed),
            got_messages: read(&self.got_messages),
        }
    }

    pub(crate) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// Takes a sample; days begin at midnight UTC.
    pub(crate) fn sample(&self, now: Instant, now_ms: i64) {
        let totals = self.totals();
        let mut history = self.history.lock();
        let day = now_ms.div_euclid(DAY_MS);
        if day != history.day {
            history.day = day;
            history.yesterday_morning = history.today_morning;
            history.today_morning = totals;
        }
        if history.samples.len() == SAMPLES {
            history.samples.pop_front();
        }
        let last = history.samples.back().map_or(now, |(at, _)| *at);
        assert!(last <= now, "samples are in the order of their times");
        history.samples.push_back((now, totals));
    }

    /// Counters at the last two midnights: (yesterday's, today's).
    pub(crate) fn mornings(&self) -> (Totals, Totals) {
        let history = self.history.lock();
        (history.yesterday_morning, history.today_morning)
    }

    /// Rates per second over each of the [`WINDOWS`].
    pub(crate) fn rates(&self, now: Instant, counter: impl Fn(&Totals) -> u64) -> Rates {
        let current = counter(&self.totals());
        let history = self.history.lock();
        WINDOWS.map(|window| {
            // The newest sample that is old enough; before there is one, the start.
            let is_old_enough = |at: &Instant| now.saturating_duration_since(*at) >= window;
            let (at, before) = history
                .samples
                .iter()
                .rev()
                .find(|(at, _)| is_old_enough(at))
                .map_or((self.started, 0), |(at, totals)| (*at, counter(totals)));
            let elapsed = now.saturating_duration_since(at).as_secs_f64();
            (window, if elapsed > 0.0 { current.saturating_sub(before) as f64 / elapsed } else { 0.0 })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_three_numbers_over_growing_spans() {
        let stats = Stats::new(0);
        let start = stats.started;
        stats.put(100, 1000);
        stats.sample(start + Duration::from_secs(10), 10_000);
        stats.put(100, 1000);
        let rates = stats.rates(start + Duration::from_secs(20), |totals| totals.put_messages);
        assert_eq!(rates.map(|(_, rate)| rate), [10.0, 10.0, 10.0]);
        let later = stats.rates(start + Duration::from_secs(100), |totals| totals.put_messages);
        assert_eq!(later[0], (Duration::from_secs(10), 1.111_111_111_111_111_2));
    }

    #[test]
    fn a_new_day_moves_the_mornings() {
        let stats = Stats::new(DAY_MS - 1);
        stats.put(5, 0);
        stats.sample(Instant::now(), DAY_MS);
        let (yesterday, today) = stats.mornings();
        assert_eq!((yesterday.put_messages, today.put_messages), (0, 5));
    }
}
