//! Whole numbers given by Python, with errors that name what they are for.

use std::ops::RangeInclusive;

use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyBool;
use rocketpy_model::QueueOffset;
use rocketpy_protocol::compression::DecompressLimits;

use crate::error;

/// An int within a range.
///
/// # Errors
/// `TypeError` for anything but an int (True and False are not ints), `InvalidArgumentError` for one outside the range.
pub(crate) fn within(what: &str, value: &Bound<'_, PyAny>, range: RangeInclusive<i64>) -> PyResult<i64> {
    let out_of_range = || {
        let (least, most) = (range.start(), range.end());
        error::invalid(format!("{what} must be between {least} and {most}, given: {value}"))
    };
    if value.is_instance_of::<PyBool>() {
        return Err(error::wrong_type(what, "an int", value));
    }
    match value.extract::<i64>() {
        Ok(number) if range.contains(&number) => Ok(number),
        Ok(_) => Err(out_of_range()),
        Err(error) if error.is_instance_of::<PyOverflowError>(value.py()) => Err(out_of_range()),
        Err(error) if error.is_instance_of::<PyTypeError>(value.py()) => {
            Err(error::wrong_type(what, "an int", value))
        }
        Err(error) => Err(error),
    }
}

/// A count, from 1.
pub(crate) fn count(what: &str, value: &Bound<'_, PyAny>) -> PyResult<usize> {
    within(what, value, 1..=i64::from(i32::MAX)).map(|count| count as usize)
}

/// Limits of decompressed bodies: `max_body_bytes` if given, or the default.
pub(crate) fn body_limits(max_body_bytes: Option<&Bound<'_, PyAny>>) -> PyResult<DecompressLimits> {
    max_body_bytes.map_or(Ok(DecompressLimits::MESSAGE), |most| {
        count("max_body_bytes", most).map(DecompressLimits::up_to)
    })
}

/// A queue offset.
pub(crate) fn offset(value: &Bound<'_, PyAny>) -> PyResult<QueueOffset> {
    within("a queue offset", value, 0..=i64::MAX).map(|offset| QueueOffset(offset.unsigned_abs()))
}
