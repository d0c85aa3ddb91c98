//! Completes a future.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use rocketpy_client::{Receipt, SendError};

use crate::convert::ToPython;
use crate::error::raise;

static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// Makes a `rocketpy.futures.SendFuture`.
pub(crate) fn make(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    CLASS.import(py, "rocketpy.futures", "SendFuture")?.call0()
}

/// Gives a future its outcome. Its callbacks run here; Python logs what they raise.
pub(crate) fn complete(future: &Bound<'_, PyAny>, outcome: Result<Receipt, SendError>) {
    let py = future.py();
    let set = match outcome.map_err(raise).and_then(|receipt| receipt.to_python(py)) {
        Ok(receipt) => set_result(future, receipt),
        Err(error) => future.call_method1(intern!(py, "set_exception"), (error.into_value(py),)).map(drop),
    };
    if let Err(error) = set {
        error.write_unraisable(py, Some(future));
    }
}

/// A future that nobody waits for needs neither its lock nor a wake-up. No other thread can begin to wait between the question
/// and the answer: nothing there lets go of the interpreter lock. See `rocketpy.futures`.
fn set_result(future: &Bound<'_, PyAny>, receipt: Bound<'_, PyAny>) -> PyResult<()> {
    let py = future.py();
    // Before the question: making a name may let go of the lock.
    let (result, state, finished) = (intern!(py, "_result"), intern!(py, "_state"), intern!(py, "FINISHED"));
    if future.getattr(intern!(py, "_watched"))?.is_truthy()? {
        return future.call_method1(intern!(py, "set_result"), (receipt,)).map(drop);
    }
    future.setattr(result, receipt)?;
    future.setattr(state, finished)?;
    if future.getattr(intern!(py, "_callbacks"))?.is_none() {
        return Ok(());
    }
    future.call_method0(intern!(py, "_invoke_callbacks")).map(drop)
}
