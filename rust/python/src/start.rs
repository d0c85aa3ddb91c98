//! Where to begin: the dataclass `rocketpy.Start`.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use rocketpy_client::Start;

use crate::error;

static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// A `rocketpy.Start`, or what `Start.of` takes.
pub(crate) struct StartArgument(pub(crate) Start);

impl<'py> FromPyObject<'_, 'py> for StartArgument {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let py = value.py();
        let class = CLASS.import(py, "rocketpy.config", "Start")?;
        let start = class.call_method1("of", (value,))?;
        let value = start.as_borrowed();
        let kind: String = value.getattr("kind")?.extract()?;
        let at_ms: Option<i64> = value.getattr("at_ms")?.extract()?;
        match (kind.as_str(), at_ms) {
            ("earliest", None) => Ok(Self(Start::Earliest)),
            ("latest", None) => Ok(Self(Start::Latest)),
            ("stored", None) => Ok(Self(Start::Stored)),
            ("timestamp", Some(at_ms)) => Ok(Self(Start::Timestamp(at_ms))),
            _ => Err(error::invalid(format!(
                "not one of Start.EARLIEST, LATEST, STORED and Start.at(...): {}",
                *value
            ))),
        }
    }
}
