//! Where to begin: the dataclass `rocketpy.Start`, or a queue offset.

use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyType};
use rocketpy_client::Start;
use rocketpy_model::QueueOffset;

use crate::error;

static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// A `rocketpy.Start`.
pub(crate) struct StartArgument(pub(crate) Start);

impl<'py> FromPyObject<'_, 'py> for StartArgument {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let py = value.py();
        if !value.is_instance(CLASS.import(py, "rocketpy.config", "Start")?.as_any())? {
            return Err(error::wrong_type("start", "a rocketpy.Start", &value));
        }
        let kind: String = value.getattr("kind")?.extract()?;
        let at_ms: Option<i64> = value.getattr("at_ms")?.extract()?;
        match (kind.as_str(), at_ms) {
            ("earliest", None) => Ok(Self(Start::Earliest)),
            ("latest", None) => Ok(Self(Start::Latest)),
            ("stored", None) => Ok(Self(Start::Stored)),
            ("timestamp", Some(at_ms)) => Ok(Self(Start::Timestamp(at_ms))),
            _ => Err(error::invalid(format!(
                "not one of Start.EARLIEST, LATEST, STORED and Start.at(...): {}", *value
            ))),
        }
    }
}

/// A queue offset given by Python.
///
/// # Errors
/// `TypeError` for anything but an int, `InvalidArgumentError` for a negative one.
pub(crate) fn offset(value: &Bound<'_, PyAny>) -> PyResult<QueueOffset> {
    if value.is_instance_of::<PyBool>() {
        return Err(error::wrong_type("a queue offset", "an int", value));
    }
    let out_of_range = || error::invalid(format!("a queue offset is between 0 and 2**63-1, given: {value}"));
    match value.extract::<i64>() {
        Ok(offset) => u64::try_from(offset).map(QueueOffset).map_err(|_negative| out_of_range()),
        Err(error) if error.is_instance_of::<PyOverflowError>(value.py()) => Err(out_of_range()),
        Err(error) if error.is_instance_of::<PyTypeError>(value.py()) => {
            Err(error::wrong_type("a queue offset", "an int", value))
        }
        Err(error) => Err(error),
    }
}
