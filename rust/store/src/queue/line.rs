//! The queues whose entries wait to be written.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use parking_lot::{Mutex, MutexGuard};

use super::Queue;

/// The queues with entries that are only in memory.
#[derive(Debug)]
pub(crate) struct Line {
    /// In the order in which their entries came.
    pub(super) waiting: Mutex<VecDeque<Arc<Queue>>>,
    /// Length of all tails.
    pub(super) size_bytes: AtomicUsize,
    pub(super) most_bytes: usize,
    /// Held while tails are written, with a copy of the current one, so that readers do not wait.
    pub(super) writing: Mutex<Vec<u8>>,
    /// The last write failed.
    pub(super) failed: AtomicBool,
}

impl Line {
    pub(crate) fn new(most_bytes: usize) -> Self {
        Self {
            waiting: Mutex::default(),
            size_bytes: AtomicUsize::new(0),
            most_bytes,
            writing: Mutex::default(),
            failed: AtomicBool::new(false),
        }
    }

    /// Keeps tails from being written.
    pub(crate) fn hold(&self) -> MutexGuard<'_, Vec<u8>> {
        self.writing.lock()
    }
}
