//! Points in time that every reader can represent.

use std::ops::Range;

/// Times that readers return as a point in time, in milliseconds since 1970 UTC: from 1970 to the last day of the year 9999.
///
/// Producers and brokers write any 64-bit number as a time. Python's `datetime` ends with the year 9999, and so does Spark's
/// conversion to it, in local time: the last day is left out for time zones ahead of UTC. No clock writes a time before 1970.
pub const CALENDAR_MS: Range<i64> = 0..253_402_214_400_000;

/// The time, if it is one that readers can represent.
#[must_use]
pub fn in_calendar(at_ms: i64) -> Option<i64> {
    CALENDAR_MS.contains(&at_ms).then_some(at_ms)
}
