//! Receipts, as the frozen dataclass `rocketpy.Receipt`.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyString, PyType};
use pyo3::{ffi, intern};
use rocketpy_client::{Outcome, Receipt, SendStatus};

use crate::convert::ToPython;
use crate::error::raise;
use crate::untracked;

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
        let receipt = blank(py)?;
        fill(&receipt, self)?;
        Ok(receipt)
    }
}

/// The receipt of an outcome. All but its status is made when first asked for: most receipts are looked at no further.
///
/// # Errors
/// The message was not acknowledged.
pub(crate) fn unread(py: Python<'_>, outcome: Outcome) -> PyResult<Bound<'_, PyAny>> {
    let Some(status_now) = outcome.status() else {
        return outcome.receipt().map_err(raise)?.to_python(py);
    };
    let receipt = blank(py)?;
    set(&receipt, intern!(py, "status"), &status(py, status_now)?)?;
    set(&receipt, intern!(py, "_outcome"), untracked::new(py, UnreadReceipt { outcome })?.as_any())?;
    Ok(receipt)
}

/// Outcome from which a `rocketpy.Receipt` creates its values at the first access.
#[pyclass(module = "rocketpy._rocketpy", frozen)]
pub(crate) struct UnreadReceipt {
    outcome: Outcome,
}

#[pymethods]
impl UnreadReceipt {
    /// Gives a receipt its values.
    fn fill(&self, receipt: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = receipt.py();
        fill(receipt, &self.outcome.receipt().map_err(raise)?)?;
        // At last: another thread that still sees it makes the same values again.
        set(receipt, intern!(py, "_outcome"), py.None().bind(py))
    }
}

fn fill(receipt: &Bound<'_, PyAny>, values: &Receipt) -> PyResult<()> {
    let py = receipt.py();
    set(receipt, intern!(py, "status"), &status(py, values.status)?)?;
    set(receipt, intern!(py, "msg_id"), PyString::new(py, &values.msg_id).as_any())?;
    set(receipt, intern!(py, "offset_msg_id"), PyString::new(py, &values.offset_msg_id).as_any())?;
    set(receipt, intern!(py, "queue"), &values.queue.to_python(py)?)?;
    set(receipt, intern!(py, "queue_offset"), values.queue_offset.get().into_pyobject(py)?.as_any())?;
    let recall_handle = values.recall_handle.as_deref().into_pyobject(py)?;
    set(receipt, intern!(py, "recall_handle"), recall_handle.as_any())
}

/// A receipt without values. The dataclass is frozen, so its `__init__` would set each by a call of Python's own
/// `object.__setattr__`: slow where millions are made.
fn blank(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let class = RECEIPT.import(py, "rocketpy.message", "Receipt")?;
    // SAFETY: a class of slots alone, below `object`, whose instances are made just so; and the interpreter lock is held.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyType_GenericAlloc(class.as_type_ptr(), 0)) }
}

/// Sets a slot of a frozen dataclass, as `object.__setattr__` does.
fn set(receipt: &Bound<'_, PyAny>, name: &Bound<'_, PyString>, value: &Bound<'_, PyAny>) -> PyResult<()> {
    // SAFETY: three live objects, and the interpreter lock is held.
    match unsafe { ffi::PyObject_GenericSetAttr(receipt.as_ptr(), name.as_ptr(), value.as_ptr()) } {
        0 => Ok(()),
        _ => Err(PyErr::fetch(receipt.py())),
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
