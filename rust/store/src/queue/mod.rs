//! Consume queues: for each queue of a topic the list of its records in the log.

pub(crate) mod entry;
pub(crate) mod files;
pub(crate) mod line;
pub(crate) mod pool;
pub(crate) mod put_off;
pub(crate) mod table;
pub(crate) mod tail;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use parking_lot::{Mutex, MutexGuard};
use rocketpy_model::{AtomicPhysicalOffset, AtomicQueueOffset, PhysicalOffset, QueueOffset};

use self::tail::Tail;
use crate::fetch::QueueBounds;

/// One queue in memory: its bounds, and the entries that are not in its files yet. An idle queue takes a few hundred
/// bytes.
#[doc(alias = "ConsumeQueue")]
#[derive(Debug)]
pub(crate) struct Queue {
    pub topic: Arc<str>,
    pub queue_id: u32,
    /// Distinguishes this queue from a former one of the same name, whose files may still be open.
    pub uid: u64,
    /// Queue offset that the next record gets. Changed under the writer lock alone.
    next: AtomicQueueOffset,
    /// Records of the log before this belong to a former queue of the name.
    born: AtomicPhysicalOffset,
    /// First entry that the first file has room for; 0 without any file.
    first: AtomicQueueOffset,
    /// First entry that leads to a record.
    min: AtomicQueueOffset,
    /// Entries before this are readable. Changed by dispatch alone.
    max: AtomicQueueOffset,
    /// Set when the topic was deleted: records on their way get no entry.
    deleted: AtomicBool,
    /// Somebody waits for the next record: it is dispatched at once.
    awaited: AtomicBool,
    /// Bytes written since the last flush.
    dirty: Mutex<Dirty>,
    /// Entries that are dispatched and not written yet.
    tail: Mutex<Tail>,
}

/// The part of a queue that is not durable yet.
#[derive(Debug, Default)]
pub(crate) struct Dirty {
    /// Starts of the files that were written.
    pub files: Vec<u64>,
    /// Whether a file was made: its name is not durable yet.
    pub new_file: bool,
}

impl Queue {
    pub(crate) fn new(topic: Arc<str>, queue_id: u32, uid: u64, bounds: QueueBounds) -> Self {
        assert!(bounds.min <= bounds.max, "a queue's bounds are in order");
        Self {
            topic,
            queue_id,
            uid,
            next: AtomicQueueOffset::new(bounds.max),
            born: AtomicPhysicalOffset::default(),
            first: AtomicQueueOffset::default(),
            min: AtomicQueueOffset::new(bounds.min),
            max: AtomicQueueOffset::new(bounds.max),
            deleted: AtomicBool::new(false),
            awaited: AtomicBool::new(false),
            dirty: Mutex::default(),
            tail: Mutex::default(),
        }
    }

    /// The entries that are only in memory. Do not hold this across a read or a write.
    pub(crate) fn tail(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock()
    }

    pub(crate) fn min(&self) -> QueueOffset {
        self.min.load(Ordering::Acquire)
    }

    pub(crate) fn max(&self) -> QueueOffset {
        self.max.load(Ordering::Acquire)
    }

    pub(crate) fn bounds(&self) -> QueueBounds {
        // The minimum first: it never passes a maximum that is read later.
        let min = self.min();
        QueueBounds { min, max: self.max().max(min) }
    }

    /// Queue offset of the next record. It is certain only while the caller holds the writer lock.
    pub(crate) fn next(&self) -> QueueOffset {
        self.next.load(Ordering::Relaxed)
    }

    /// Moves the next queue offset; the caller holds the writer lock, or recovers.
    pub(crate) fn set_next(&self, next: QueueOffset) {
        self.next.store(next, Ordering::Relaxed);
    }

    /// Whether a record at this place of the log may be one of this queue.
    pub(crate) fn may_hold(&self, physical_offset: PhysicalOffset) -> bool {
        physical_offset >= self.born.load(Ordering::Relaxed)
    }

    /// Sets where the queue's first record is, before that record is published.
    pub(crate) fn set_born(&self, physical_offset: PhysicalOffset) {
        self.born.store(physical_offset, Ordering::Relaxed);
    }

    /// Makes entries readable.
    pub(crate) fn publish(&self, max: QueueOffset) {
        self.max.store(max, Ordering::Release);
    }

    pub(crate) fn set_min(&self, min: QueueOffset) {
        self.min.store(min, Ordering::Release);
    }

    /// First entry that the first file has room for. Changed by dispatch alone.
    pub(crate) fn first(&self) -> QueueOffset {
        self.first.load(Ordering::Relaxed)
    }

    pub(crate) fn set_first(&self, first: QueueOffset) {
        self.first.store(first, Ordering::Relaxed);
    }

    pub(crate) fn is_deleted(&self) -> bool {
        self.deleted.load(Ordering::Acquire)
    }

    pub(crate) fn mark_deleted(&self) {
        self.deleted.store(true, Ordering::Release);
    }

    /// Whether somebody waits for the next record. The caller has published one, and orders the two by a fence.
    #[inline]
    pub(crate) fn is_awaited(&self) -> bool {
        self.awaited.load(Ordering::Relaxed)
    }

    /// Notes whether somebody waits for the next record. Returns whether records are on their way already.
    pub(crate) fn set_awaited(&self, is_awaited: bool) -> bool {
        self.awaited.store(is_awaited, Ordering::Relaxed);
        // Either the append of a record sees the note, or this sees the record.
        fence(Ordering::SeqCst);
        self.next() > self.max()
    }

    /// Notes that a file was written. Says whether the queue was clean before.
    pub(crate) fn mark_dirty(&self, file_start: u64, new_file: bool) -> bool {
        let mut dirty = self.dirty.lock();
        let was_clean = dirty.files.is_empty();
        if !dirty.files.contains(&file_start) {
            dirty.files.push(file_start);
        }
        dirty.new_file |= new_file;
        was_clean
    }

    /// Drops the notes of removed files, which start at `from` or after it. The change of names must still be flushed.
    pub(crate) fn forget_dirty_files(&self, from: u64) {
        let mut dirty = self.dirty.lock();
        dirty.new_file |= !dirty.files.is_empty();
        dirty.files.retain(|&start| start < from);
    }

    /// Drops the note of a file that was removed.
    pub(crate) fn forget_dirty_file(&self, file_start: u64) {
        self.dirty.lock().files.retain(|&start| start != file_start);
    }

    /// Takes the notes of what to flush. Later writes are noted again.
    pub(crate) fn take_dirty(&self) -> Dirty {
        std::mem::take(&mut *self.dirty.lock())
    }

    /// Gives back notes of what was not flushed after all.
    pub(crate) fn give_back_dirty(&self, former: Dirty) {
        let mut dirty = self.dirty.lock();
        dirty.new_file |= former.new_file;
        for start in former.files {
            if !dirty.files.contains(&start) {
                dirty.files.push(start);
            }
        }
    }
}
