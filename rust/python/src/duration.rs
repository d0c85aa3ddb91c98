//! Durations given by Python.

use std::time::Duration;

use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::PyBool;

use crate::error;

/// Maximum duration: 100 years. Nothing waits without an end.
const MAX_SECONDS: f64 = 3.2e9;

/// A duration as Python gives it: seconds (int or float) or a `datetime.timedelta`.
#[derive(Clone, Copy)]
pub(crate) struct Seconds(pub(crate) Duration);

impl<'py> FromPyObject<'_, 'py> for Seconds {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if value.is_instance_of::<PyBool>() {
            return Err(error::not_a_duration(&value));
        }
        let seconds = match value.extract::<f64>() {
            Ok(seconds) => seconds,
            Err(error) if error.is_instance_of::<PyOverflowError>(value.py()) => {
                return Err(error::bad_duration(&value));
            }
            Err(_) if value.hasattr("total_seconds")? => value.call_method0("total_seconds")?.extract()?,
            Err(_) => return Err(error::not_a_duration(&value)),
        };
        if !(0.0..=MAX_SECONDS).contains(&seconds) {
            return Err(error::bad_duration(&value));
        }
        Ok(Self(Duration::from_secs_f64(seconds)))
    }
}
