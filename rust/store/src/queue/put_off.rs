//! Puts off the writing of entries. When many queues get one entry each, a write for each costs more than all other
//! work.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;
use rocketpy_env::{Disk, EnvError};
use rocketpy_model::QueueOffset;

use super::Queue;
use super::files::QueueFiles;
use super::table::QueueTable;

/// Queues that are written before the lock is released for others.
const AT_A_TIME: usize = 64;
/// A copy buffer that grew past this is shrunk.
const KEPT_COPY_BYTES: usize = 1 << 20;

impl<D: Disk> QueueFiles<D> {
    /// Adds entries to a queue. They are written later, and read from memory until then.
    pub(crate) fn put_off(&self, queue: &Arc<Queue>, first: QueueOffset, entries: &[u8]) {
        self.line.size_bytes.fetch_add(entries.len(), Ordering::Relaxed);
        let mut tail = queue.tail();
        tail.push(first, entries);
        if !std::mem::replace(&mut tail.is_waiting, true) {
            self.line.waiting.lock().push_back(Arc::clone(queue));
        }
    }

    /// Number of queues with unwritten entries.
    pub(crate) fn waiting(&self) -> usize {
        self.line.waiting.lock().len()
    }

    /// Whether entries are to be written before there are more of them.
    pub(crate) fn must_write(&self) -> bool {
        self.line.size_bytes.load(Ordering::Relaxed) > self.line.most_bytes
            || self.line.failed.load(Ordering::Relaxed)
    }

    /// Writes entries that were put off, those of the longest waiting queues first.
    ///
    /// # Errors
    /// Nothing is lost: readers find in memory what was not written, and the next call tries again.
    pub(crate) fn write_some(&self, table: &QueueTable) -> Result<(), EnvError> {
        self.write_first(AT_A_TIME, &mut self.line.hold(), table)
    }

    /// Writes all entries that were put off before this call.
    ///
    /// # Errors
    /// As [`QueueFiles::write_some`].
    pub(crate) fn write_waiting(&self, table: &QueueTable) -> Result<(), EnvError> {
        let mut copy = self.line.hold(); // no other thread writes a queue now, so all are in the line
        let mut left = self.waiting();
        loop {
            self.write_first(left.min(AT_A_TIME), &mut copy, table)?;
            left = left.saturating_sub(AT_A_TIME);
            if left == 0 {
                return Ok(());
            }
            MutexGuard::bump(&mut copy);
        }
    }

    /// Writes the entries of one queue that were put off. The caller makes sure that no more are put off meanwhile.
    ///
    /// # Errors
    /// As [`QueueFiles::write_some`].
    pub(crate) fn write_tail_of(&self, queue: &Arc<Queue>, table: &QueueTable) -> Result<(), EnvError> {
        if queue.tail().is_empty() { Ok(()) } else { self.write_tail(queue, &mut self.line.hold(), table) }
    }

    fn write_first(&self, most: usize, copy: &mut Vec<u8>, table: &QueueTable) -> Result<(), EnvError> {
        for _ in 0..most {
            // It stays in the line until it is written, even if the write fails.
            let Some(queue) = self.line.waiting.lock().front().cloned() else { break };
            let written = self.write_tail(&queue, copy, table);
            self.line.failed.store(written.is_err(), Ordering::Relaxed);
            written?;
            let mut tail = queue.tail();
            tail.is_waiting = !tail.is_empty();
            let mut waiting = self.line.waiting.lock();
            waiting.pop_front();
            if tail.is_waiting {
                waiting.push_back(Arc::clone(&queue));
            }
        }
        Ok(())
    }

    fn write_tail(&self, queue: &Arc<Queue>, copy: &mut Vec<u8>, table: &QueueTable) -> Result<(), EnvError> {
        if queue.is_deleted() {
            self.drop_tail(queue); // its folder is gone, or goes
            return Ok(());
        }
        let first = queue.tail().copy_to(copy);
        self.write(queue, first, copy, |start, is_new| table.note_written(queue, start, is_new))?;
        queue.tail().forget_first(copy.len());
        let owed = self.line.size_bytes.fetch_sub(copy.len(), Ordering::Relaxed);
        assert!(owed >= copy.len(), "what was put off was counted");
        copy.clear();
        copy.shrink_to(KEPT_COPY_BYTES);
        Ok(())
    }

    /// Drops the entries of a queue that were put off.
    pub(super) fn drop_tail(&self, queue: &Queue) {
        let dropped = queue.tail().clear();
        let owed = self.line.size_bytes.fetch_sub(dropped, Ordering::Relaxed);
        assert!(owed >= dropped, "what was put off was counted");
    }
}
