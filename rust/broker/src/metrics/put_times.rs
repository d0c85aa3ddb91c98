//! How long sends took: distribution, percentiles, maximum. Some of all sends are timed.

use std::array::from_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Upper bounds of the spans that the tools print, in milliseconds, and their names.
const SPANS: [(u64, &str); 13] = [
    (0, "[<=0ms]"),
    (10, "[0~10ms]"),
    (50, "[10~50ms]"),
    (100, "[50~100ms]"),
    (200, "[100~200ms]"),
    (500, "[200~500ms]"),
    (1000, "[500ms~1s]"),
    (2000, "[1~2s]"),
    (3000, "[2~3s]"),
    (4000, "[3~4s]"),
    (5000, "[4~5s]"),
    (10_000, "[5~10s]"),
    (u64::MAX, "[10s~]"),
];
/// Classes of an octave of microseconds, and octaves: up to two minutes.
const CLASSES: usize = 8;
const OCTAVES: usize = 27;
const COUNTS: usize = CLASSES * OCTAVES;
/// Percentiles are those of one to two such spans.
const SPAN: Duration = Duration::from_secs(60);

/// Times of sends.
#[derive(Debug)]
pub(crate) struct PutTimes {
    spans: [AtomicU64; SPANS.len()],
    max_micros: AtomicU64,
    counts: [AtomicU64; COUNTS],
    marks: Mutex<Marks>,
}

/// The counts at the last two ends of a span.
#[derive(Debug)]
struct Marks {
    older: [u64; COUNTS],
    newer: [u64; COUNTS],
    at: Option<Instant>,
}

impl Default for PutTimes {
    fn default() -> Self {
        let marks = Marks { older: [0; COUNTS], newer: [0; COUNTS], at: None };
        Self {
            spans: Default::default(),
            max_micros: AtomicU64::default(),
            counts: from_fn(|_| AtomicU64::default()),
            marks: Mutex::new(marks),
        }
    }
}

fn class_of(micros: u64) -> usize {
    let micros = micros.min((1 << OCTAVES) - 1);
    let octave = micros.checked_ilog2().unwrap_or(0) as usize;
    let within = ((micros - (1 << octave).min(micros)) as usize * CLASSES) >> octave;
    octave * CLASSES + within
}

/// Upper bound of a class, in milliseconds.
fn bound_ms(class: usize) -> f64 {
    assert!(class < COUNTS, "a class has counts: {class}");
    let (octave, within) = (class / CLASSES, class % CLASSES);
    (1_u64 << octave) as f64 * (1.0 + (within + 1) as f64 / CLASSES as f64) / 1000.0
}

impl PutTimes {
    pub(super) fn took(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let ms = micros / 1000;
        let span = SPANS.iter().position(|(bound, _)| ms <= *bound).unwrap_or(SPANS.len() - 1);
        self.spans[span].fetch_add(1, Ordering::Relaxed);
        self.max_micros.fetch_max(micros, Ordering::Relaxed);
        self.counts[class_of(micros)].fetch_add(1, Ordering::Relaxed);
    }

    fn counts(&self) -> [u64; COUNTS] {
        from_fn(|class| self.counts[class].load(Ordering::Relaxed))
    }

    pub(super) fn sample(&self, now: Instant) {
        let mut marks = self.marks.lock();
        if marks.at.is_none_or(|at| now.saturating_duration_since(at) >= SPAN) {
            (marks.older, marks.newer, marks.at) = (marks.newer, self.counts(), Some(now));
            let grew = marks.newer.iter().zip(&marks.older).all(|(newer, older)| newer >= older);
            assert!(grew, "numbers of sends only grow");
        }
    }

    /// Milliseconds within which a share of the sends of the last one to two minutes were answered.
    pub(crate) fn percentile_ms(&self, share: f64) -> f64 {
        assert!((0.0..=1.0).contains(&share), "a percentile is a share: {share}");
        let older = self.marks.lock().older;
        let counts = self.counts().into_iter().zip(older).map(|(now, before)| now - before);
        let total: u64 = counts.clone().sum();
        let wanted = (total as f64 * share).ceil() as u64;
        let mut seen = 0;
        let reached = counts.enumerate().find(|(_, count)| {
            seen += count;
            wanted > 0 && seen >= wanted
        });
        reached.map_or(0.0, |(class, _)| bound_ms(class))
    }

    /// The longest, in milliseconds.
    pub(crate) fn max_ms(&self) -> u64 {
        self.max_micros.load(Ordering::Relaxed) / 1000
    }

    /// Numbers by duration, as the tools print them.
    pub(crate) fn distribution(&self) -> String {
        let text = |((_, name), count): (&(u64, &str), &AtomicU64)| {
            format!("{name}:{} ", count.load(Ordering::Relaxed))
        };
        SPANS.iter().zip(&self.spans).map(text).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_distributed_over_the_spans_of_the_tools() {
        let times = PutTimes::default();
        for ms in [0, 3, 3, 120, 11_000] {
            times.took(Duration::from_millis(ms));
        }
        assert_eq!(
            times.distribution(),
            "[<=0ms]:1 [0~10ms]:2 [10~50ms]:0 [50~100ms]:0 [100~200ms]:1 [200~500ms]:0 [500ms~1s]:0 [1~2s]:0 \
             [2~3s]:0 [3~4s]:0 [4~5s]:0 [5~10s]:0 [10s~]:1 "
        );
        assert_eq!(times.max_ms(), 11_000);
    }

    #[test]
    fn percentiles_are_those_of_the_last_minutes() {
        let (times, start) = (PutTimes::default(), Instant::now());
        assert_eq!(times.percentile_ms(0.99), 0.0);
        for micros in [1000; 99].into_iter().chain([50_000]) {
            times.took(Duration::from_micros(micros));
        }
        for (share, ms) in [(0.99, 1.0), (0.999, 50.0)] {
            let is = times.percentile_ms(share);
            assert!(is >= ms && is <= ms * 1.2, "{share}: {is}");
        }
        (0..3).for_each(|minutes| times.sample(start + SPAN * minutes));
        assert_eq!(times.percentile_ms(0.999), 0.0, "they are too long ago");
    }

    #[test]
    fn classes_are_in_the_order_of_their_times() {
        let classes: Vec<usize> = (0..5000).map(class_of).collect();
        assert!(classes.is_sorted());
        assert!((1..5000).all(|micros| bound_ms(class_of(micros)) * 1000.0 > micros as f64));
        assert_eq!(class_of(u64::MAX), COUNTS - 1);
    }
}
