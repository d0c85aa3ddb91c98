//! Changes of the queues that a member has.

use pyo3::prelude::*;
use rocketpy_client::{Namespace, QueueChange};

use crate::convert::ToPython;

/// Queues that a member gained or lost.
#[pyclass(name = "Change", module = "rocketpy._rocketpy", frozen)]
pub(crate) struct PyChange {
    pub(crate) change: QueueChange,
    pub(crate) namespace: Namespace,
}

#[pymethods]
impl PyChange {
    #[getter]
    fn is_gain(&self) -> bool {
        self.change.is_gain()
    }

    /// The queues, sorted; a new list each time.
    #[getter]
    fn queues<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        self.change.queues().map(|queue| self.namespace.strip_queue(queue).to_python(py)).collect()
    }
}
