//! Stacks of the threads of this program, on request of an administrator.

use std::time::Duration;

use parking_lot::Mutex;
use pyo3::prelude::*;

/// Module with the function that makes the text.
const MODULE: &str = "rocketpy.base.stacks";
/// Longest wait for a text that is being made, at the end of Python: a thread in the middle of Python code makes it abort.
const END_TIMEOUT: Duration = Duration::from_secs(1);
const AT_THE_END: &str = "stacks unknown: the program ends\n";

/// Whether Python ends. Held while a text is made.
static ENDED: Mutex<bool> = Mutex::new(false);

/// Imports the module: later another thread may hold the lock of imports.
pub(crate) fn prepare(py: Python<'_>) -> PyResult<()> {
    py.import(MODULE).map(drop)
}

/// The stacks of all threads. Waits for the interpreter lock.
pub(crate) fn text() -> String {
    let ended = ENDED.lock();
    if *ended {
        return AT_THE_END.to_owned();
    }
    let made = Python::try_attach(|py| {
        let made = py.import(MODULE).and_then(|module| module.call_method0("stacks_of_threads")?.extract());
        made.unwrap_or_else(|error: PyErr| format!("stacks unknown: {error}\n"))
    });
    made.unwrap_or_else(|| AT_THE_END.to_owned())
}

/// Makes no further text.
pub(crate) fn end(py: Python<'_>) {
    py.detach(|| {
        if let Some(mut ended) = ENDED.try_lock_for(END_TIMEOUT) {
            *ended = true;
        }
    });
}
