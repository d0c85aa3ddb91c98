//! How many lines about one address or one user are written.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;

use parking_lot::Mutex;
use rocketpy_model::network::host_of;

/// Lines are counted in intervals of this length.
pub(super) const INTERVAL_MS: i64 = 10_000;
/// Maximum number of keys that are counted; those beyond share one count.
const MAX_KEYS: usize = 4_096;

/// Counts lines by a key, an address or a user, and limits their number in an interval.
#[derive(Debug)]
pub(super) struct Limiter<K> {
    max_lines: u32,
    counts: Mutex<HashMap<Option<K>, Count>>,
}

#[derive(Debug, Clone, Copy)]
struct Count {
    since_ms: i64,
    lines: u32,
    left_out: u64,
}

/// Lines about a key that were not written; without a key those about all that were not counted each.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LeftOut<K> {
    pub(super) key: Option<K>,
    pub(super) lines: u64,
}

impl Limiter<IpAddr> {
    /// [`Limiter::takes`] of an address; hosts with IPv6 are counted by their network of 64 bits.
    pub(super) fn takes_from(&self, from: IpAddr, now_ms: i64) -> bool {
        self.takes(host_of(from), now_ms)
    }
}

impl<K: Hash + Eq + Clone> Limiter<K> {
    pub(super) fn new(max_lines: u32) -> Self {
        Self { max_lines, counts: Mutex::default() }
    }

    /// Counts a line, and says whether it is written.
    pub(super) fn takes(&self, key: K, now_ms: i64) -> bool {
        let mut counts = self.counts.lock();
        let key = Some(key);
        let has_room = counts.len() < MAX_KEYS || counts.contains_key(&key);
        let new = Count { since_ms: now_ms, lines: 0, left_out: 0 };
        let count = counts.entry(if has_room { key } else { None }).or_insert(new);
        if is_over(count, now_ms) {
            (count.since_ms, count.lines) = (now_ms, 0);
        }
        count.lines = count.lines.saturating_add(1);
        let is_taken = count.lines <= self.max_lines;
        count.left_out += u64::from(!is_taken);
        is_taken
    }

    /// What was left out in intervals that are over, or in all; forgets those keys.
    pub(super) fn left_out(&self, now_ms: i64, all: bool) -> Vec<LeftOut<K>> {
        let mut left_out = Vec::new();
        self.counts.lock().retain(|key, count| {
            if !all && !is_over(count, now_ms) {
                return true;
            }
            if count.left_out > 0 {
                left_out.push(LeftOut { key: key.clone(), lines: count.left_out });
            }
            false
        });
        left_out
    }
}

const fn is_over(count: &Count, now_ms: i64) -> bool {
    now_ms.abs_diff(count.since_ms) >= INTERVAL_MS as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_LINES: u32 = 20;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn address_gets_its_lines_of_an_interval_and_a_count_of_the_rest() {
        let limiter = Limiter::new(MAX_LINES);
        let taken = |from, now_ms| (0..100).filter(|_| limiter.takes_from(ip(from), now_ms)).count();
        assert_eq!(taken("10.0.0.1", 0), MAX_LINES as usize);
        assert_eq!(taken("10.0.0.2", 5_000), MAX_LINES as usize, "another address");
        assert_eq!(taken("::ffff:10.0.0.1", 9_999), 0, "the same address");
        assert_eq!(limiter.left_out(10_000, false), [LeftOut { key: Some(ip("10.0.0.1")), lines: 180 }]);
        assert_eq!(taken("10.0.0.1", 10_000), MAX_LINES as usize, "the next interval");
        assert_eq!(limiter.left_out(10_001, true).len(), 2, "the end");
        assert!(limiter.left_out(10_001, true).is_empty());
    }

    #[test]
    fn hosts_of_one_ipv6_network_and_addresses_beyond_the_limit_share_a_count() {
        let limiter = Limiter::new(MAX_LINES);
        let lines = (0..100).filter(|n| limiter.takes_from(ip(&format!("2001:db8::{n:x}")), 0)).count();
        assert_eq!(lines, MAX_LINES as usize);
        let flood = (0..20_000_u32).filter(|n| limiter.takes_from(IpAddr::from(n.to_be_bytes()), 0)).count();
        assert_eq!(flood, MAX_KEYS - 1 + MAX_LINES as usize);
        assert!(limiter.counts.lock().len() <= MAX_KEYS + 1);
    }
}
