//! A token bucket on the monotonic clock.

use std::time::Duration;

/// Parts of a token: with a rate per second, one nanosecond adds as many parts as the rate.
const TOKEN: i128 = 1_000_000_000;

/// Tokens of one limit. It holds those of one second, and starts full.
///
/// A request passes while there is a token, and takes all that it needs: then the balance is a debt. So a message longer than a
/// second's bytes passes, and those after it wait until it is paid for.
#[derive(Debug)]
pub(super) struct Bucket {
    rate: u64,
    balance: i128,
    at: Duration,
}

impl Bucket {
    pub(super) fn full(rate: u64, now: Duration) -> Self {
        assert!(rate > 0, "a limit of nothing would never let a request pass");
        Self { rate, balance: capacity(rate), at: now }
    }

    pub(super) fn rate(&self) -> u64 {
        self.rate
    }

    /// Changes the rate. A debt stays.
    pub(super) fn set_rate(&mut self, rate: u64, now: Duration) {
        assert!(rate > 0, "a limit of nothing would never let a request pass");
        self.refill(now);
        self.rate = rate;
        self.balance = self.balance.min(capacity(rate));
    }

    /// Time until a request passes; zero: it passes now.
    pub(super) fn wait(&mut self, now: Duration) -> Duration {
        self.refill(now);
        let missing = (TOKEN - self.balance).max(0);
        let rate = i128::from(self.rate);
        Duration::from_nanos(u64::try_from((missing + rate - 1) / rate).unwrap_or(u64::MAX))
    }

    pub(super) fn take(&mut self, tokens: u64, now: Duration) {
        self.refill(now);
        self.balance = self.balance.saturating_sub(i128::from(tokens) * TOKEN);
    }

    /// Whether a new bucket would be the same.
    pub(super) fn is_full(&mut self, now: Duration) -> bool {
        self.refill(now);
        self.balance == capacity(self.rate)
    }

    fn refill(&mut self, now: Duration) {
        let elapsed = now.saturating_sub(self.at).as_nanos();
        let parts = i128::try_from(elapsed).unwrap_or(i128::MAX).saturating_mul(i128::from(self.rate));
        self.balance = self.balance.saturating_add(parts).min(capacity(self.rate));
        self.at = self.at.max(now);
        assert!(self.balance <= capacity(self.rate), "no more than a second is saved: {}", self.balance);
    }
}

fn capacity(rate: u64) -> i128 {
    i128::from(rate) * TOKEN
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn taken(bucket: &mut Bucket, now: Duration) -> u64 {
        let mut count = 0;
        while bucket.wait(now).is_zero() {
            bucket.take(1, now);
            count += 1;
        }
        count
    }

    #[test]
    fn a_bucket_gives_a_burst_of_one_second_and_then_its_rate() {
        let mut bucket = Bucket::full(10, SECOND);
        assert_eq!(taken(&mut bucket, SECOND), 10);
        assert_eq!(bucket.wait(SECOND), SECOND / 10);
        assert_eq!(taken(&mut bucket, SECOND * 3 / 2), 5);
        assert_eq!(taken(&mut bucket, SECOND * 100), 10, "no more than a second is saved");
        let mut second = SECOND * 100;
        let mut count = 0;
        for _ in 0..1000 {
            second += SECOND / 100;
            count += taken(&mut bucket, second);
        }
        assert_eq!(count, 100, "ten seconds");
    }

    #[test]
    fn a_large_request_passes_and_leaves_a_debt() {
        let mut bucket = Bucket::full(100, SECOND);
        bucket.take(450, SECOND);
        assert_eq!(bucket.wait(SECOND), Duration::from_millis(3510));
        bucket.set_rate(1000, SECOND);
        assert_eq!(bucket.wait(SECOND), Duration::from_millis(351));
        assert!(!bucket.is_full(SECOND * 2) && bucket.is_full(SECOND * 3));
    }

    #[test]
    fn a_clock_that_stands_still_or_goes_back_gives_nothing() {
        let mut bucket = Bucket::full(2, SECOND);
        assert_eq!(taken(&mut bucket, SECOND), 2);
        assert_eq!(taken(&mut bucket, Duration::ZERO), 0);
        assert_eq!(taken(&mut bucket, SECOND), 0);
    }
}
