//! Objects that the cycle collector need not look at.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::pyclass::PyClass;
use pyo3::pyclass_init::PyClassInitializer;

/// Makes an object of a class that holds no Python object, so that no cycle can go through it, and takes it off the
/// collector's list: a million messages would be walked over again and again.
pub(crate) fn new<'py, T>(py: Python<'py>, value: T) -> PyResult<Bound<'py, T>>
where
    T: PyClass + Into<PyClassInitializer<T>>,
{
    let object = Bound::new(py, value)?;
    // SAFETY: a live object of a class with a collector's head, as every class of PyO3 has; taking it off the list twice, as
    // its end does again, is allowed.
    unsafe { ffi::PyObject_GC_UnTrack(object.as_ptr().cast()) }
    Ok(object)
}
