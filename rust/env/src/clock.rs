//! The wall clock and the one source of randomness.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{SystemTime, UNIX_EPOCH};

/// The wall clock.
///
/// # Units
/// Milliseconds since 1970 in UTC; 0 when the clock stands before it.
#[allow(clippy::disallowed_methods, reason = "this crate is the door")]
pub fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}

/// The month of the local calendar that `at_ms` lies in: its first millisecond, and that of the next month.
///
/// # Units
/// Milliseconds since 1970 in UTC. Falls back to the epoch and the end of time when the system has no calendar.
pub fn local_month_ms(at_ms: i64) -> std::ops::Range<i64> {
    let seconds: libc::time_t = at_ms.div_euclid(1000);
    // SAFETY: `tm` is plain data for which all zeros are valid; the calls read one and write the other of two live locals.
    let bounds = unsafe {
        let mut tm: libc::tm = std::mem::zeroed();
        if libc::localtime_r(&seconds, &mut tm).is_null() {
            return 0..i64::MAX;
        }
        let month = tm.tm_mon;
        [month, month + 1].map(|month| {
            tm.tm_mon = month;
            tm.tm_mday = 1;
            (tm.tm_hour, tm.tm_min, tm.tm_sec, tm.tm_isdst) = (0, 0, 0, -1);
            let mut first = tm;
            libc::mktime(&mut first)
        })
    };
    bounds[0] * 1000..bounds[1] * 1000
}

/// A number nobody can foresee, for identities and jitter; not for secrets.
pub fn random_u64() -> u64 {
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u64(now_ms() as u64);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_month_holds_its_moment_and_the_next_begins_where_it_ends() {
        let month = local_month_ms(now_ms());
        assert!(month.contains(&now_ms()));
        let days = (month.end - month.start) as f64 / 86_400_000.0;
        assert!((27.9..31.1).contains(&days), "{days}");
        assert_eq!(local_month_ms(month.end).start, month.end);
        assert_eq!(local_month_ms(month.end - 1), month);
    }

    #[test]
    fn the_clock_stands_after_2020_and_numbers_differ() {
        assert!(now_ms() > 1_577_836_800_000);
        assert_ne!(random_u64(), random_u64());
    }
}
