//! Hashes of tags and parts of message ids, a column at a time.

use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, Int32Array, Int64Array, StringArray, StructArray, TimestampMicrosecondArray,
};
use arrow_schema::{ArrowError, Field, Fields};
use rocketpy_filter::hash_code;
use rocketpy_protocol::message_id::{OffsetMessageId, UniqueKey};

use crate::vectors::Spans;

/// The hash of each tag, by which brokers filter; null for null.
///
/// # Source
/// docs/reference/store-format.md 2.8.
#[must_use]
pub fn tag_hashes(tags: &StringArray) -> Int32Array {
    tags.iter().map(|tag| tag.map(hash_code)).collect()
}

/// The parts of each offset message id: `host`, `port` and `physical_offset`; null for what is no such id.
///
/// # Errors
/// [`ArrowError`], which would be a fault of this function itself.
pub fn offset_message_id_parts(ids: &StringArray) -> Result<StructArray, ArrowError> {
    let ids: Vec<Option<OffsetMessageId>> = ids.iter().map(|id| id?.parse().ok()).collect();
    let ports: Int32Array = ids.iter().map(|id| id.map(|id| i32::from(id.host.port()))).collect();
    let offsets: Int64Array = ids.iter().map(|id| id.map(|id| id.physical_offset.get() as i64)).collect();
    let parts: [(&str, ArrayRef); 3] = [
        ("host", texts(&ids, |id| id.host.ip())?),
        ("port", Arc::new(ports)),
        ("physical_offset", Arc::new(offsets)),
    ];
    of_parts(&ids, parts)
}

/// The parts of each unique key: `host`, `process_id`, `process_hash`, `made_at` and `counter`; null for what is no such key.
///
/// A key counts from the start of its sender's month and does not say which month that is: `made_at` is the time nearest to `near`, in the
/// month of `near` or in one of its neighbours. `month_starts` are those of the sender's time zone in microseconds since 1970, in order and
/// without a gap. `made_at` is null where `near` is null, and where these months do not have both neighbours of its own.
///
/// # Errors
/// [`ArrowError`], when there are not as many times as keys.
pub fn unique_key_parts(
    keys: &StringArray,
    near: &TimestampMicrosecondArray,
    month_starts: &[i64],
) -> Result<StructArray, ArrowError> {
    let keys: Vec<Option<UniqueKey>> = keys.iter().map(|key| key?.parse().ok()).collect();
    let process_ids: Int32Array = keys.iter().map(|key| key.map(|key| i32::from(key.process_id))).collect();
    let hashes: Int64Array = keys.iter().map(|key| key.map(|key| i64::from(key.hash))).collect();
    let times: TimestampMicrosecondArray =
        keys.iter().zip(near).map(|(key, near)| made_at(key.as_ref()?, near?, month_starts)).collect();
    let counters: Int32Array = keys.iter().map(|key| key.map(|key| i32::from(key.counter))).collect();
    let parts: [(&str, ArrayRef); 5] = [
        ("host", texts(&keys, |key| key.address)?),
        ("process_id", Arc::new(process_ids)),
        ("process_hash", Arc::new(hashes)),
        ("made_at", Arc::new(times.with_timezone("UTC"))),
        ("counter", Arc::new(counters)),
    ];
    of_parts(&keys, parts)
}

/// The time nearest to `near` at which the key can have been made, all in microseconds since 1970.
fn made_at(key: &UniqueKey, near: i64, month_starts: &[i64]) -> Option<i64> {
    // The month before that of `near`, that month, and the one after it; the fourth start is the end of the last.
    let next = month_starts.partition_point(|&start| start <= near);
    let around = month_starts.get(next.checked_sub(2)?..next + 2)?;
    let in_month = |month: &[i64]| {
        let at = month[0] + i64::from(key.month_ms) * 1000;
        (at < month[1]).then_some(at)
    };
    around.windows(2).filter_map(in_month).min_by_key(|at| at.abs_diff(near))
}

fn texts<T, D: std::fmt::Display>(
    values: &[Option<T>],
    part: impl Fn(&T) -> D,
) -> Result<ArrayRef, ArrowError> {
    let mut texts = Spans::with_capacity(values.len(), values.len() * "192.168.100.100".len());
    for value in values {
        match value {
            Some(value) => texts.push_display(part(value)),
            None => texts.push_null(),
        }
    }
    texts.into_text()
}

/// The structs of these parts, null where there is no value.
fn of_parts<T, const N: usize>(
    values: &[Option<T>],
    parts: [(&str, ArrayRef); N],
) -> Result<StructArray, ArrowError> {
    let fields: Fields =
        parts.iter().map(|(name, part)| Field::new(*name, part.data_type().clone(), true)).collect();
    let nulls = values.iter().map(Option::is_some).collect();
    StructArray::try_new(fields, parts.map(|(_, part)| part).into(), Some(nulls))
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Int32Type, Int64Type, TimestampMicrosecondType};

    use super::*;

    const DAY: i64 = 86_400_000_000;
    /// Months of 2024 and 2025, in UTC.
    const MONTHS: [u32; 24] =
        [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

    fn month_starts() -> Vec<i64> {
        let mut start = 19_723 * DAY;
        let month = |days: u32| {
            start += i64::from(days) * DAY;
            start - i64::from(days) * DAY
        };
        MONTHS.map(month).to_vec()
    }

    fn key(month_ms: i64) -> String {
        format!("0A000001123418B4AAC2{month_ms:08X}0001")
    }

    #[test]
    fn hashes_are_those_of_java() {
        let tags = [Some("TagA"), Some(""), None, Some("polygenelubricants"), Some("\u{6807}\u{7b7e}")];
        let hashes = [Some(2_598_919), Some(0), None, Some(i32::MIN), Some(857_175)];
        assert_eq!(tag_hashes(&StringArray::from(tags.to_vec())).iter().collect::<Vec<_>>(), hashes);
    }

    #[test]
    fn an_offset_message_id_is_taken_apart_and_what_is_none_is_null() {
        let ids = StringArray::from(vec![
            Some("0A00000500002A9F000000000012D687"),
            None,
            Some("20010DB800000000000000000000000200002A9F0000000102030405"),
            Some("0a00000500002a9f000000000012d687"),
            Some("0A00000500002A9F000000000012D68"),
            Some("0A00000500012A9F000000000012D687"), // port 76,447
            Some("0A00000500002A9FFFFFFFFFFFFFFFFF"), // offset -1
            Some("xA00000500002A9F000000000012D687"),
        ]);
        let parts = offset_message_id_parts(&ids).unwrap();
        let given: Vec<bool> = (0..ids.len()).map(|row| parts.is_valid(row)).collect();
        assert_eq!(given, [true, false, true, true, false, false, false, false]);
        let hosts = parts.column(0).as_string::<i32>();
        assert_eq!((hosts.value(0), hosts.value(2)), ("10.0.0.5", "2001:db8::2"));
        assert_eq!(parts.column(1).as_primitive::<Int32Type>().value(3), 10_911);
        let offsets = parts.column(2).as_primitive::<Int64Type>();
        assert_eq!((offsets.value(0), offsets.value(2)), (1_234_567, 0x1_0203_0405));
    }

    #[test]
    fn a_unique_key_is_taken_apart() {
        let starts = month_starts();
        let (month, after) = (starts[4], (3 * 86_400_000 + 4 * 3_600_000 + 5) * 1000);
        let keys = StringArray::from(vec![Some("C0A80102303918B4AAC2104ECE050007"), Some("x"), None]);
        let near = TimestampMicrosecondArray::from(vec![month + 10 * DAY; 3]);
        let parts = unique_key_parts(&keys, &near, &starts).unwrap();
        assert_eq!((parts.is_null(0), parts.null_count()), (false, 2));
        assert_eq!(parts.column(0).as_string::<i32>().value(0), "192.168.1.2");
        assert_eq!(parts.column(1).as_primitive::<Int32Type>().value(0), 12_345);
        assert_eq!(parts.column(2).as_primitive::<Int64Type>().value(0), 0x18B4_AAC2);
        assert_eq!(parts.column(3).as_primitive::<TimestampMicrosecondType>().value(0), month + after);
        assert_eq!(parts.column(4).as_primitive::<Int32Type>().value(0), 7);
    }

    #[test]
    fn the_month_of_a_key_is_that_with_the_nearest_time() {
        let starts = month_starts();
        let at = |month_days: i64, near: i64| {
            let keys = StringArray::from(vec![key(month_days * 86_400_000)]);
            let near = TimestampMicrosecondArray::from(vec![near]);
            let parts = unique_key_parts(&keys, &near, &starts).unwrap();
            let times = parts.column(3).as_primitive::<TimestampMicrosecondType>();
            times.is_valid(0).then(|| times.value(0))
        };
        assert_eq!(at(30, starts[5]), Some(starts[4] + 30 * DAY), "made in May, stored in June");
        assert_eq!(at(0, starts[5] - 1), Some(starts[5]), "a clock that is behind");
        assert_eq!(at(30, starts[13] + 10 * DAY), Some(starts[12] + 30 * DAY), "February has no 31st");
        assert_eq!(at(49, starts[5]), None, "no month has a 50th");
        assert_eq!(at(1, starts[0] - 1), None);
        assert_eq!(at(1, starts[1]), Some(starts[1] + DAY));
        assert_eq!(at(1, starts[22]), None);
        assert_eq!(at(1, i64::MAX).or(at(1, i64::MIN)), None);
    }

    #[test]
    fn without_a_time_only_the_time_of_a_key_is_null() {
        let near = TimestampMicrosecondArray::from(vec![None]);
        let parts = unique_key_parts(&StringArray::from(vec![key(0)]), &near, &month_starts()).unwrap();
        assert!(parts.is_valid(0) && parts.column(3).is_null(0) && parts.column(4).is_valid(0));
        assert!(unique_key_parts(&StringArray::from(vec![key(0); 2]), &near, &[]).is_err());
    }
}
