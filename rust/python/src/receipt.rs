//! Receipts, as the frozen dataclass `rocketpy.Receipt`.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use rocketpy_client::{Receipt, SendStatus};

use crate::convert::ToPython;
use crate::error::raise;

static RECEIPT: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static STATUS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static SEND_OK: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// The member of `rocketpy.SendStatus`.
fn status(py: Python<'_>, status: SendStatus) -> PyResult<Bound<'_, PyAny>> {
    let member = || STATUS.import(py, "rocketpy.config", "SendStatus")?.call1((status.as_str(),));
    match status {
        SendStatus::SendOk => {
            Ok(SEND_OK.get_or_try_init(py, || member().map(Bound::unbind))?.bind(py).clone())
        }
        _ => member(),
    }
}

impl ToPython for Receipt {
    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let status = status(py, self.status)?;
        let queue = self.queue.to_python(py)?;
        let class = RECEIPT.import(py, "rocketpy.message", "Receipt")?;
        class.call1((status, &self.msg_id, &self.offset_msg_id, queue, self.queue_offset.get()))
    }
}

/// The outcome of `send_many`: receipts are made when asked for.
#[pyclass(module = "rocketpy._rocketpy", frozen)]
pub(crate) struct SentMany {
    sent: rocketpy_client::SentMany,
}

impl SentMany {
    pub(crate) fn new(sent: rocketpy_client::SentMany) -> Self {
        Self { sent }
    }
}

#[pymethods]
impl SentMany {
    fn __len__(&self) -> usize {
        self.sent.len()
    }

    /// Messages that were acknowledged.
    #[getter]
    fn acknowledged(&self) -> usize {
        self.sent.acknowledged()
    }

    /// The receipt of one message; raises the error of a message that has none.
    fn receipt<'py>(&self, py: Python<'py>, index: usize) -> PyResult<Bound<'py, PyAny>> {
        if index >= self.sent.len() {
            return Err(pyo3::exceptions::PyIndexError::new_err("receipt index out of range"));
        }
        self.sent.receipt(index).map_err(raise)?.to_python(py)
    }

    /// Raises `PartlySentError` unless every message was acknowledged.
    fn check(&self) -> PyResult<()> {
        self.sent.check().map_err(raise)
    }
}
