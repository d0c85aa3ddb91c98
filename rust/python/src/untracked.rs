//! Objects that the cycle collector does not track.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::pyclass::PyClass;
use pyo3::pyclass_init::PyClassInitializer;

/// Makes an object that the cycle collector does not track. Its class holds no Python object, so no cycle can go through
/// it, and the collector would walk over millions of messages again and again.
pub(crate) fn new<'py, T>(py: Python<'py>, value: T) -> PyResult<Bound<'py, T>>
where
    T: PyClass + Into<PyClassInitializer<T>>,
{
    let object = Bound::new(py, value)?;
    // SAFETY: a live object of a class with a collector's head, as every class of PyO3 has; untracking it twice, as
    // its deallocation does, is allowed.
    unsafe { ffi::PyObject_GC_UnTrack(object.as_ptr().cast()) }
    Ok(object)
}
