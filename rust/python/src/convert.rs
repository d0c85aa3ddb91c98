//! From values of the crates below to Python's.
//!
//! Apart from waiting, so that a value becomes the same Python object whoever waited for it: a blocked call
//! ([`crate::wait`]) or a future ([`crate::completion`]).

use pyo3::prelude::*;

/// A value that has a Python object.
pub(crate) trait ToPython {
    /// Makes the object.
    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>>;
}
