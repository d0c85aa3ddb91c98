//! Dates and times from texts as ISO 8601 writes them.

use std::ops::RangeInclusive;

use arrow_schema::TimeUnit;
use chrono::NaiveDate;

const SECONDS_OF_DAY: i64 = 86_400;
/// The years 0001 to 9999 in days since 1970: those that Spark can write, and Python can hold.
const DAYS: RangeInclusive<i32> = -719_162..=2_932_896;

/// The same days since 1970, if they are of these years.
pub(super) fn in_years(days: i32) -> Option<i32> {
    DAYS.contains(&days).then_some(days)
}

/// Days since 1970 of a date such as `2024-01-02`.
pub(super) fn date(text: &str) -> Option<i32> {
    const EPOCH: i32 = 719_163; // 1970-01-01 in days since the first of the year 1
    let (year, rest) = text.split_once('-')?;
    let (month, day) = rest.split_once('-')?;
    let date =
        NaiveDate::from_ymd_opt(digits(year, 4)?.try_into().ok()?, digits(month, 2)?, digits(day, 2)?)?;
    in_years(chrono::Datelike::num_days_from_ce(&date) - EPOCH)
}

/// Units since 1970 of a time such as `2024-01-02T03:04:05.123456+01:00`. A space may stand for the `T`; the time of day, its minutes,
/// its seconds and their fraction, and the zone may be left out. Without a zone it is UTC. `None` too for a fraction that the unit cannot hold,
/// and outside of the years 0001 to 9999 in UTC.
pub(super) fn timestamp(text: &str, unit: TimeUnit) -> Option<i64> {
    let (day, rest) = text.split_at_checked("2024-01-02".len())?;
    let midnight = i64::from(date(day)?) * SECONDS_OF_DAY;
    let (seconds, fraction) = match rest.strip_prefix(['T', ' ']) {
        Some(rest) => {
            let (clock, zone) = rest.split_at(rest.find(['Z', '+', '-']).unwrap_or(rest.len()));
            let (clock, fraction) = match clock.split_once('.') {
                // Only seconds have a fraction, of one digit or more.
                Some((clock, fraction)) if clock.len() == "03:04:05".len() && !fraction.is_empty() => {
                    (clock, fraction)
                }
                Some(_) => return None,
                None => (clock, ""),
            };
            (midnight + time_of_day(clock)? - offset(zone)?, fraction)
        }
        None if rest.is_empty() => (midnight, ""),
        None => return None,
    };
    in_years(i32::try_from(seconds.div_euclid(SECONDS_OF_DAY)).ok()?)?;
    let places = match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond => 6,
        TimeUnit::Nanosecond => 9,
    };
    let missing = u32::try_from(usize::checked_sub(places, fraction.len())?).ok()?;
    let fraction = if fraction.is_empty() { 0 } else { i64::from(digits(fraction, fraction.len())?) };
    seconds.checked_mul(10_i64.pow(places as u32))?.checked_add(fraction * 10_i64.pow(missing))
}

/// Seconds of `03`, `03:04` or `03:04:05`.
fn time_of_day(clock: &str) -> Option<i64> {
    let mut parts = clock.split(':');
    let hours = below(digits(parts.next()?, 2)?, 24)?;
    let mut sixtieth = || parts.next().map_or(Some(0), |part| below(digits(part, 2)?, 60));
    let (minutes, seconds) = (sixtieth()?, sixtieth()?);
    parts.next().is_none().then_some(hours * 3600 + minutes * 60 + seconds)
}

/// Seconds east of Greenwich: nothing, `Z`, `+01`, `+0100` or `+01:00`.
fn offset(zone: &str) -> Option<i64> {
    if zone.is_empty() || zone == "Z" {
        return Some(0);
    }
    let (hours, minutes) = zone.get(1..)?.split_at_checked(2)?;
    let minutes = match minutes.strip_prefix(':').unwrap_or(minutes) {
        "" if minutes.is_empty() => 0,
        minutes => below(digits(minutes, 2)?, 60)?,
    };
    let seconds = below(digits(hours, 2)?, 24)? * 3600 + minutes * 60;
    match zone.as_bytes()[0] {
        b'+' => Some(seconds),
        b'-' => Some(-seconds),
        _ => None,
    }
}

fn below(number: u32, limit: u32) -> Option<i64> {
    (number < limit).then_some(i64::from(number))
}

/// A number of exactly `count` digits.
fn digits(text: &str, count: usize) -> Option<u32> {
    let is_number = text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(text: &str) -> Option<i64> {
        timestamp(text, TimeUnit::Microsecond)
    }

    #[test]
    fn times_are_read_in_every_form_of_iso_8601_that_is_allowed() {
        const AT: i64 = 1_704_164_645_000_000;
        for (text, expected) in [
            ("2024-01-02T03:04:05Z", AT),
            ("2024-01-02T03:04:05", AT),
            ("2024-01-02 03:04:05", AT),
            ("2024-01-02T03:04:05.5", AT + 500_000),
            ("2024-01-02T03:04:05.123456Z", AT + 123_456),
            ("2024-01-02T04:04:05+01:00", AT),
            ("2024-01-02T04:04:05+0100", AT),
            ("2024-01-02T04:04:05+01", AT),
            ("2024-01-01T21:34:05-05:30", AT),
            ("2024-01-02T03:04", AT - 5_000_000),
            ("2024-01-02T03:04Z", AT - 5_000_000),
            ("2024-01-02T03", AT - 245_000_000),
            ("2024-01-02", AT - 11_045_000_000),
            ("1970-01-01", 0),
            ("1969-12-31T23:59:59.999999Z", -1),
            ("0001-01-01", -62_135_596_800_000_000),
            ("0001-01-01T00:01:00+00:01", -62_135_596_800_000_000),
            ("9999-12-31T23:59:59.999999Z", 253_402_300_799_999_999),
        ] {
            assert_eq!(micros(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in [
            "",
            "x",
            "2024-1-2",
            "2024-02-30",
            "2024-13-01",
            " 2024-01-02",
            "20240102",
            "10000-01-01",
            "-001-01-01",
            "0000-12-31",
            "0001-01-01T00:00:00+00:01",
            "9999-12-31T23:59:59-00:01",
            "2024-01-02Z",
            "2024-01-02T",
            "2024-01-02T3:04:05",
            "2024-01-02T24:00:00",
            "2024-01-02T23:60:00",
            "2024-01-02T23:59:60",
            "2024-01-02t03:04:05",
            "2024-01-02T03:04:05z",
            "2024-01-02T03:04:05 Z",
            "2024-01-02T03:04:05.",
            "2024-01-02T03:04:05,5",
            "2024-01-02T03:04.5",
            "2024-01-02T03:04:05.1234567",
            "2024-01-02T03:04:05:06",
            "2024-01-02T030405Z",
            "2024-01-02T03:04:05+",
            "2024-01-02T03:04:05+1",
            "2024-01-02T03:04:05+01:",
            "2024-01-02T03:04:05+24:00",
            "2024-01-02T03:04:05+00:60",
            "2024-01-02T03:04:05+01:00Z",
            "2024-01-02T0\u{661}:04:05",
            "2024-01-0\u{662}",
            "\u{662}024-01-02",
        ] {
            assert_eq!(micros(text), None, "{text}");
        }
    }

    #[test]
    fn days_are_of_the_years_1_to_9999() {
        for (text, days) in [("0001-01-01", -719_162), ("9999-12-31", 2_932_896)] {
            assert_eq!((date(text), in_years(days)), (Some(days), Some(days)));
        }
        assert_eq!((date("0000-12-31"), in_years(-719_163), in_years(2_932_897)), (None, None, None));
    }

    #[test]
    fn a_unit_takes_the_fractions_and_the_years_that_it_can_hold() {
        let text = "2024-01-02T03:04:05.123";
        assert_eq!(timestamp(text, TimeUnit::Second), None);
        assert_eq!(timestamp(text, TimeUnit::Millisecond), Some(1_704_164_645_123));
        assert_eq!(timestamp(text, TimeUnit::Nanosecond), Some(1_704_164_645_123_000_000));
        assert_eq!(timestamp("2300-01-01", TimeUnit::Nanosecond), None);
        assert_eq!(timestamp("1970-01-01T00:00:00.000000001", TimeUnit::Nanosecond), Some(1));
    }
}
