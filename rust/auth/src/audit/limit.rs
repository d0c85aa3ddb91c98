//! How many denials of an address are written.

use std::collections::HashMap;
use std::net::IpAddr;

use parking_lot::Mutex;
use rocketpy_model::network::host_of;

/// Denials are counted in intervals of this length.
pub(super) const INTERVAL_MS: i64 = 10_000;
/// Denials of an address that are written in an interval.
const MAX_LINES: u32 = 20;
/// Maximum number of addresses that are counted; those beyond share one count.
const MAX_ADDRESSES: usize = 4_096;

/// Counts denials by address; hosts with IPv6 by their network of 64 bits.
#[derive(Debug, Default)]
pub(super) struct Limiter {
    counts: Mutex<HashMap<Option<IpAddr>, Count>>,
}

#[derive(Debug, Clone, Copy)]
struct Count {
    since_ms: i64,
    denied: u32,
    left_out: u64,
}

/// Denials of an address that were not written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LeftOut {
    pub(super) from: String,
    pub(super) lines: u64,
}

impl Limiter {
    /// Counts a denial, and says whether it is written.
    pub(super) fn takes(&self, from: IpAddr, now_ms: i64) -> bool {
        let mut counts = self.counts.lock();
        let host = Some(host_of(from));
        let has_room = counts.len() < MAX_ADDRESSES || counts.contains_key(&host);
        let new = Count { since_ms: now_ms, denied: 0, left_out: 0 };
        let count = counts.entry(if has_room { host } else { None }).or_insert(new);
        if is_over(count, now_ms) {
            (count.since_ms, count.denied) = (now_ms, 0);
        }
        count.denied = count.denied.saturating_add(1);
        let is_taken = count.denied <= MAX_LINES;
        count.left_out += u64::from(!is_taken);
        is_taken
    }

    /// What was left out in intervals that are over, or in all; forgets those addresses.
    pub(super) fn left_out(&self, now_ms: i64, all: bool) -> Vec<LeftOut> {
        let mut left_out = Vec::new();
        self.counts.lock().retain(|from, count| {
            if !all && !is_over(count, now_ms) {
                return true;
            }
            if count.left_out > 0 {
                let from = from.map_or_else(|| "*".to_owned(), |from| from.to_string());
                left_out.push(LeftOut { from, lines: count.left_out });
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

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn address_gets_its_lines_of_an_interval_and_a_count_of_the_rest() {
        let limiter = Limiter::default();
        let taken = |from, now_ms| (0..100).filter(|_| limiter.takes(ip(from), now_ms)).count();
        assert_eq!(taken("10.0.0.1", 0), MAX_LINES as usize);
        assert_eq!(taken("10.0.0.2", 5_000), MAX_LINES as usize, "another address");
        assert_eq!(taken("::ffff:10.0.0.1", 9_999), 0, "the same address");
        assert_eq!(limiter.left_out(10_000, false), [LeftOut { from: "10.0.0.1".to_owned(), lines: 180 }]);
        assert_eq!(taken("10.0.0.1", 10_000), MAX_LINES as usize, "the next interval");
        assert_eq!(limiter.left_out(10_001, true).len(), 2, "the end");
        assert_eq!(limiter.left_out(10_001, true), []);
    }

    #[test]
    fn hosts_of_one_ipv6_network_and_addresses_beyond_the_limit_share_a_count() {
        let limiter = Limiter::default();
        let lines = (0..100).filter(|n| limiter.takes(ip(&format!("2001:db8::{n:x}")), 0)).count();
        assert_eq!(lines, MAX_LINES as usize);
        let flood = (0..20_000_u32).filter(|n| limiter.takes(IpAddr::from(n.to_be_bytes()), 0)).count();
        assert_eq!(flood, MAX_ADDRESSES - 1 + MAX_LINES as usize);
        assert!(limiter.counts.lock().len() <= MAX_ADDRESSES + 1);
    }
}
