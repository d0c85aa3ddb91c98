//! Bytes that Python reads without a copy.

use std::ffi::{c_int, c_void};
use std::ptr;

use bytes::Bytes;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;

/// Owner of the bytes of a memoryview. It keeps its part of a pull answer alive while a view of it exists.
#[pyclass(name = "Buffer", module = "rocketpy._rocketpy", frozen)]
struct Buffer {
    bytes: Bytes,
}

/// A read-only memoryview of the bytes.
pub(crate) fn view(py: Python<'_>, bytes: Bytes) -> PyResult<Bound<'_, PyAny>> {
    let owner = Bound::new(py, Buffer { bytes })?;
    Ok(PyMemoryView::from(owner.as_any())?.into_any())
}

#[pymethods]
impl Buffer {
    // SAFETY: Python calls this with a `view` to fill, or null, which PyBuffer_FillInfo refuses. The bytes do not
    // move while this object exists, and PyBuffer_FillInfo makes it the owner of the view.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no view to fill"));
        }
        let bytes = &slf.get().bytes;
        let length =
            ffi::Py_ssize_t::try_from(bytes.len()).map_err(|_| PyBufferError::new_err("too long"))?;
        let start = ptr::from_ref(bytes.as_ref()).cast::<c_void>().cast_mut();
        let read_only = 1;
        // SAFETY: see above; Python refuses writable views of a read-only buffer.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, length, read_only, flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}
