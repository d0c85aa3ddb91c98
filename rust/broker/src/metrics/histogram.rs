//! A histogram with fixed bounds.

use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of bounds of one histogram.
pub(super) const MAX_BOUNDS: usize = 9;
/// Parts of a unit in which sums are kept: integers can be added without a loop.
const PARTS: f64 = 1000.0;

/// Counts of values by size: one more than there are bounds.
#[derive(Debug, Default)]
pub(super) struct Histogram {
    counts: [AtomicU64; MAX_BOUNDS + 1],
    sum: AtomicU64,
}

/// Values of a histogram at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Buckets {
    /// Not cumulative. The one after the last bound counts larger values.
    pub(crate) counts: [u64; MAX_BOUNDS + 1],
    pub(crate) sum: f64,
}

impl Histogram {
    #[inline]
    pub(super) fn observe(&self, bounds: &[f64], value: f64) {
        assert!(bounds.len() <= MAX_BOUNDS, "a histogram has at most {MAX_BOUNDS} bounds: {bounds:?}");
        let at = bounds.iter().position(|bound| value <= *bound).unwrap_or(bounds.len());
        self.counts[at].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add((value * PARTS) as u64, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> Buckets {
        let counts = std::array::from_fn(|at| self.counts[at].load(Ordering::Relaxed));
        Buckets { counts, sum: self.sum.load(Ordering::Relaxed) as f64 / PARTS }
    }
}

impl Buckets {
    /// Adds a value.
    #[inline]
    pub(super) fn observe(&mut self, bounds: &[f64], value: f64) {
        assert!(bounds.len() <= MAX_BOUNDS, "a histogram has at most {MAX_BOUNDS} bounds: {bounds:?}");
        let at = bounds.iter().position(|bound| value <= *bound).unwrap_or(bounds.len());
        self.counts[at] += 1;
        self.sum += value;
    }

    /// Adds the values of another part of the same histogram.
    pub(super) fn merge(&mut self, other: &Self) {
        self.counts.iter_mut().zip(other.counts).for_each(|(count, more)| *count += more);
        self.sum += other.sum;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_counts_up_to_its_bound() {
        let histogram = Histogram::default();
        for value in [0.5, 1.0, 1.5, 99.0] {
            histogram.observe(&[1.0, 3.0], value);
        }
        let Buckets { counts, sum } = histogram.read();
        assert_eq!((counts[..3].to_vec(), sum), (vec![2, 1, 1], 102.0));
    }
}
