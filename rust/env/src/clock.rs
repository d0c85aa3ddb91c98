//! The wall clock and the one source of randomness.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The wall clock.
///
/// # Units
/// Milliseconds since 1970 in UTC; 0 when the clock shows an earlier time.
#[allow(clippy::disallowed_methods, reason = "this crate is the door")]
pub fn now_ms() -> i64 {
    ms_of(Ok(SystemTime::now())) + MOVED_MS.load(Ordering::Relaxed)
}

/// How far the clock of this process is ahead of that of the system.
static MOVED_MS: AtomicI64 = AtomicI64::new(0);

/// Moves the clock of this process, so that tests need not wait. Nothing that comes over a network does this.
///
/// What waits for a time looks at the clock each second at the latest, because an administrator may set it too. Times that pass on a
/// monotonic clock, such as those of locks and connections, do not move.
pub fn move_clock(by_ms: i64) {
    MOVED_MS.fetch_add(by_ms, Ordering::Relaxed);
}

/// How far [`move_clock`] has moved the clock of this process, in milliseconds.
pub fn moved_ms() -> i64 {
    MOVED_MS.load(Ordering::Relaxed)
}

/// Time since the first call. A suspended machine may not count.
pub(crate) fn monotonic() -> Duration {
    static FIRST_CALL: OnceLock<Instant> = OnceLock::new();
    FIRST_CALL.get_or_init(Instant::now).elapsed()
}

/// A time in milliseconds since 1970; 0 when it is earlier or not known.
pub(crate) fn ms_of(time: io::Result<SystemTime>) -> i64 {
    let since = time.ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    since.map_or(0, |since| since.as_millis() as i64)
}

/// The hour of the local day, 0 to 23, at a time in milliseconds since 1970. In UTC when the system has no calendar.
pub fn local_hour(at_ms: i64) -> u32 {
    let seconds: libc::time_t = at_ms.div_euclid(1000);
    // SAFETY: `tm` is plain data for which all zeros are valid; the call reads one and writes the other of two live locals.
    let hour = unsafe {
        let mut tm: libc::tm = std::mem::zeroed();
        (!libc::localtime_r(&seconds, &mut tm).is_null()).then_some(tm.tm_hour)
    };
    hour.and_then(|hour| u32::try_from(hour).ok())
        .unwrap_or_else(|| (seconds.div_euclid(3600).rem_euclid(24)) as u32)
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

/// A time of the local calendar as the number that the digits `yyyyMMddHHmmssSSS` make; in UTC when the system has no calendar.
///
/// # Units
/// `at_ms` in milliseconds since 1970 in UTC.
pub fn local_digits(at_ms: i64) -> u64 {
    let seconds: libc::time_t = at_ms.div_euclid(1000);
    // SAFETY: `tm` is plain data for which all zeros are valid; the calls read one live local and write the other.
    let tm = unsafe {
        let mut tm: libc::tm = std::mem::zeroed();
        if libc::localtime_r(&seconds, &mut tm).is_null() {
            libc::gmtime_r(&seconds, &mut tm);
        }
        tm
    };
    let parts = [tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec];
    let minutes = parts.iter().fold(i64::from(tm.tm_year) + 1900, |sum, part| sum * 100 + i64::from(*part));
    (minutes * 1000 + at_ms.rem_euclid(1000)).unsigned_abs()
}

/// The last reading of the clock, for `now_ms_near`.
#[derive(Debug, Clone, Copy, Default)]
pub struct LastReading {
    ticks: u64,
    now_ms: i64,
}

/// Reuse the last clock reading for this many ticks of the processor: at most 0.2 ms on any machine with such a counter.
#[cfg(target_arch = "x86_64")]
const FRESH_TICKS: u64 = 1 << 17;

/// The wall clock, at most a fraction of a millisecond late. It reuses a reading that was just taken, because reading the
/// clock costs more than the rest of what is done with it.
#[cfg(target_arch = "x86_64")]
pub(crate) fn now_ms_near(last: &mut LastReading) -> i64 {
    // SAFETY: every processor of this architecture has the instruction; it reads a counter and nothing else.
    let ticks = unsafe { std::arch::x86_64::_rdtsc() };
    // A counter that differs between processors gives a large difference, and so a new reading.
    if last.now_ms == 0 || ticks.wrapping_sub(last.ticks) > FRESH_TICKS {
        *last = LastReading { ticks, now_ms: now_ms() };
    }
    last.now_ms
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn now_ms_near(_last: &mut LastReading) -> i64 {
    now_ms()
}

/// An unpredictable number, for identities and jitter; not for secrets.
#[allow(clippy::disallowed_methods, reason = "this crate is the door")]
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
    fn a_time_has_seventeen_digits_that_begin_with_its_month() {
        let month = local_month_ms(1_700_000_000_123);
        assert_eq!(local_digits(month.start).to_string(), "20231101000000000");
        assert_eq!(local_digits(month.end - 1).to_string(), "20231130235959999");
    }

    #[test]
    fn hours_of_the_local_day_follow_each_other() {
        let month = local_month_ms(now_ms());
        assert_eq!(local_hour(month.start), 0);
        assert_eq!(local_hour(month.end - 1), 23);
        assert_eq!(local_hour(month.start + 3_599_999), 0);
        assert!(local_hour(i64::MIN) < 24 && local_hour(i64::MAX) < 24);
    }

    #[test]
    fn the_clock_shows_a_time_after_2020_and_random_numbers_differ() {
        assert!(now_ms() > 1_577_836_800_000);
        assert_ne!(random_u64(), random_u64());
    }

    #[test]
    fn a_reused_reading_is_at_most_a_millisecond_late() {
        let mut last = LastReading::default();
        let end = now_ms() + 20;
        loop {
            let before = now_ms();
            let near = now_ms_near(&mut last);
            assert!((before - 1..=now_ms()).contains(&near), "{near} at {before}");
            if before >= end {
                break;
            }
        }
    }
}
