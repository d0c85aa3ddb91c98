//! Values that belong to the process that made them.

use std::mem::ManuallyDrop;

use pyo3::PyResult;
use rocketpy_env::process_id;

use crate::error;

/// A value that owns threads or sockets. A forked child does not have those, so there a use raises `ForkedError` and the
/// drop does nothing: otherwise they would wait for a thread that does not exist.
pub(crate) struct Owned<T> {
    made_by: u32,
    value: ManuallyDrop<T>,
}

impl<T> Owned<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { made_by: process_id(), value: ManuallyDrop::new(value) }
    }

    /// The value.
    ///
    /// # Errors
    /// `ForkedError` in a forked child.
    pub(crate) fn get(&self) -> PyResult<&T> {
        let current = process_id();
        if current == self.made_by { Ok(&self.value) } else { Err(error::forked(self.made_by, current)) }
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if process_id() == self.made_by {
            // SAFETY: dropped once, here, and never used again.
            unsafe { ManuallyDrop::drop(&mut self.value) }
        }
    }
}
