//! The bytes of a simulated file, shared by its handles and maps.

use std::ops::Range;
use std::ptr::NonNull;

/// A fixed number of bytes that are written and read through pointers, as those of a memory map are.
pub(super) struct Memory {
    bytes: NonNull<u8>,
    len: usize,
}

// SAFETY: the bytes belong to this alone. Copies in and out happen under the lock of the disk (`World`). What is borrowed as
// a slice lies below the published end of a region, and by the contract of `Region` such bytes are not written while anybody
// reads them.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    pub(super) fn zeros(len: usize) -> Self {
        Self::take(vec![0; len])
    }

    pub(super) fn of(bytes: &[u8]) -> Self {
        Self::take(bytes.to_vec())
    }

    fn take(bytes: Vec<u8>) -> Self {
        let bytes = Box::leak(bytes.into_boxed_slice());
        Self { len: bytes.len(), bytes: NonNull::from(bytes).cast() }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Borrows a range that no thread writes meanwhile.
    pub(super) fn slice(&self, range: Range<usize>) -> &[u8] {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} passes the {} bytes", self.len);
        // SAFETY: the range lies inside; the callers borrow published bytes, or hold the lock of the disk (see `Send`).
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr().add(range.start), range.len()) }
    }

    /// Copies bytes in; the caller holds the lock of the disk.
    pub(super) fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.len, "{} bytes at {at} pass the {} bytes", bytes.len(), self.len);
        // SAFETY: the target lies inside and is other memory than the source; nobody borrows it (see `Send`).
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.bytes.as_ptr().add(at), bytes.len()) };
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let bytes = std::ptr::slice_from_raw_parts_mut(self.bytes.as_ptr(), self.len);
        // SAFETY: pointer and length are those of the box that `take` leaked.
        drop(unsafe { Box::from_raw(bytes) });
    }
}
