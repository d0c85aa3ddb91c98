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
    untrack(&object);
    Ok(object)
}

/// Hides an object from the cycle collector until [`track`].
pub(crate) fn untrack<T: PyClass>(object: &Bound<'_, T>) {
    // SAFETY: a live object of a class with a collector's head, as every class of PyO3 has; untracking it twice, as
    // its deallocation does, is allowed.
    unsafe { ffi::PyObject_GC_UnTrack(object.as_ptr().cast()) }
}

/// Shows an object to the cycle collector: from now on a cycle may go through it.
pub(crate) fn track<T: PyClass>(object: &Bound<'_, T>) {
    // SAFETY: a live object as above, whose fields are all valid; it is not tracked twice, for the interpreter lock is held.
    unsafe {
        if ffi::PyObject_GC_IsTracked(object.as_ptr()) == 0 {
            ffi::PyObject_GC_Track(object.as_ptr().cast());
        }
    }
}
