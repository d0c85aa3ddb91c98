//! Pauses between attempts.

use std::time::Duration;

use rocketpy_env::random_u64;

use crate::error::ClientError;

/// The pause before another attempt at the broker that failed last. Another broker is tried at once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backoff {
    /// The first pause. Default 50 ms.
    pub first: Duration,
    /// How many times longer each pause is than the one before. Default 2.
    pub factor: f64,
    /// No pause is longer, apart from its jitter. Default 1 s.
    pub longest: Duration,
    /// By which part of itself a pause is longer or shorter at random, so that clients that failed together do not come back together. Default
    /// 0.2.
    pub jitter: f64,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_millis(50), factor: 2.0, longest: Duration::from_secs(1), jitter: 0.2 }
    }
}

impl Backoff {
    /// # Errors
    /// [`ClientError::InvalidConfig`].
    pub(crate) fn check(&self) -> Result<(), ClientError> {
        let invalid = |reason: String| Err(ClientError::InvalidConfig { field: "backoff", reason });
        if !(self.factor >= 1.0 && self.factor.is_finite()) {
            return invalid(format!("factor at least 1, given: {}", self.factor));
        }
        if !(0.0..=1.0).contains(&self.jitter) {
            return invalid(format!("jitter from 0 to 1, given: {}", self.jitter));
        }
        if self.first > self.longest {
            return invalid(format!("first at most longest: {:?}, given: {:?}", self.longest, self.first));
        }
        Ok(())
    }

    /// The pause after so many attempts, at least one.
    pub(crate) fn pause(&self, attempts: u32) -> Duration {
        self.pause_at(attempts, random_u64() as f64 / u64::MAX as f64)
    }

    /// `chance`: from 0, for the shortest pause, to 1.
    fn pause_at(&self, attempts: u32, chance: f64) -> Duration {
        if self.first.is_zero() {
            return Duration::ZERO; // zero times an endless factor would be no number
        }
        let exponent = i32::try_from(attempts.saturating_sub(1)).unwrap_or(i32::MAX);
        let pause = (self.first.as_secs_f64() * self.factor.powi(exponent)).min(self.longest.as_secs_f64());
        let pause = pause * (1.0 + self.jitter * (2.0 * chance - 1.0));
        let most = self.longest.as_secs_f64() * (1.0 + self.jitter);
        assert!((0.0..=most).contains(&pause), "a pause between two attempts is at most {most} s: {pause} s");
        Duration::try_from_secs_f64(pause).unwrap_or(self.longest) // the longest of all, and a rounding more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_the_longest_and_vary_by_the_jitter() {
        let backoff = Backoff::default();
        let ms = |attempts, chance| backoff.pause_at(attempts, chance).as_millis();
        assert_eq!(
            [1, 2, 3, 6, 100, u32::MAX].map(|attempts| ms(attempts, 0.5)),
            [50, 100, 200, 1000, 1000, 1000]
        );
        assert_eq!([0.0, 1.0].map(|chance| ms(2, chance)), [80, 120]);
        let none = Backoff { first: Duration::ZERO, ..backoff };
        assert_eq!(none.pause(u32::MAX), Duration::ZERO);
        let endless = Backoff { first: Duration::MAX, longest: Duration::MAX, ..backoff };
        assert_eq!(endless.pause_at(1, 1.0), Duration::MAX);
        let pauses: Vec<_> = (0..100).map(|_| backoff.pause(1)).collect();
        assert!(pauses.iter().all(|pause| (40..=60).contains(&pause.as_millis())));
        assert!(pauses.iter().any(|pause| *pause != pauses[0]), "they vary");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let backoff = Backoff::default();
        assert_eq!(backoff.check(), Ok(()));
        for wrong in [
            Backoff { factor: 0.5, ..backoff },
            Backoff { factor: f64::NAN, ..backoff },
            Backoff { factor: f64::INFINITY, ..backoff },
            Backoff { jitter: 1.1, ..backoff },
            Backoff { jitter: f64::NAN, ..backoff },
            Backoff { first: Duration::from_secs(2), ..backoff },
        ] {
            assert!(matches!(wrong.check(), Err(ClientError::InvalidConfig { .. })), "{wrong:?}");
        }
    }
}
