//! Reads queues and the log. No lock is held across a read, and no reader waits for a writer.

use std::cell::RefCell;
use std::sync::Arc;

use bytes::Bytes;
use rocketpy_env::{Disk, Region};
use rocketpy_filter::MessageFilter;
use rocketpy_model::{PhysicalOffset, QueueOffset};
use rocketpy_protocol::record::{RecordHead, RecordView};

use crate::core::Core;
use crate::error::StoreError;
use crate::fetch::{Boundary, Fetch, FetchStatus, QueueBounds, ReadLimits};
use crate::mapped::MappedFile;
use crate::queue::Queue;
use crate::queue::entry::{self, ENTRY_BYTES, Entry, Window};

/// Entries that one read with a tag filter looks at, at least.
///
/// # Source
/// docs/reference/store-format.md 11.2: `maxFilterMessageSize` 16000 bytes of entries.
const FILTER_WINDOW: u64 = 16_000 / ENTRY_BYTES;
/// No read looks at more entries, whatever a client asks for.
const MOST_ENTRIES: u64 = 65_536;

thread_local! {
    static ENTRIES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Records of one read as they come together.
struct Gathering<'a, D: Disk> {
    core: &'a Core<D>,
    limits: &'a ReadLimits,
    records: Vec<Bytes>,
    count: u32,
    size_bytes: u64,
    /// Records that follow each other, not yet in `records`.
    run: Option<LogRun<D::Region>>,
}

/// Records of one file that follow each other: `start..end` of the log.
struct LogRun<R> {
    file: Arc<MappedFile<R>>,
    start: u64,
    end: u64,
}

/// What an entry leads to.
enum Lead {
    Added,
    /// The record is no longer in the log.
    Gone,
    /// The record is there, and the filter does not want it.
    Unwanted,
    /// Other bytes are there.
    Broken,
}

impl<D: Disk> Gathering<'_, D> {
    fn is_full(&self, size_bytes: u32) -> bool {
        self.count > 0
            && (self.count >= self.limits.max_messages
                || self.size_bytes + u64::from(size_bytes) > self.limits.max_bytes)
    }

    fn add(&mut self, entry: &Entry, queue_offset: u64, filter: &MessageFilter) -> Lead {
        let start = entry.physical_offset.get();
        let end = start + u64::from(entry.size_bytes);
        let file = match self.run.as_ref().filter(|run| run.file.holds(entry.physical_offset)) {
            Some(run) => Arc::clone(&run.file),
            None => match self.core.log.find(entry.physical_offset) {
                Some(file) => file,
                None if start < self.core.min() => return Lead::Gone,
                None => return Lead::Broken,
            },
        };
        if record_head(&file, entry, queue_offset).is_none() {
            return Lead::Broken;
        }
        if filter.needs_record() {
            match RecordView::parse(file.region.view(start - file.start.get()..end - file.start.get())) {
                Ok(record) if filter.matches_record(|name| record.property(name)) => {}
                Ok(_) => return Lead::Unwanted,
                Err(_) => return Lead::Broken,
            }
        }
        match &mut self.run {
            // The first record of a file follows the last one of another, so it never joins.
            Some(run) if run.end == start && run.file.start == file.start => run.end = end,
            _ => {
                self.end_run();
                self.run = Some(LogRun { file, start, end });
            }
        }
        self.count += 1;
        self.size_bytes += u64::from(entry.size_bytes);
        Lead::Added
    }

    fn end_run(&mut self) {
        if let Some(LogRun { file, start, end }) = self.run.take() {
            let file_start = file.start.get();
            self.records.push(file.region.slice(start - file_start..end - file_start));
        }
    }
}

/// The head of the entry's own record, if that lies where it says: its size, magic and both offsets are there.
fn record_head<'a, R: Region>(
    file: &'a MappedFile<R>,
    entry: &Entry,
    queue_offset: u64,
) -> Option<RecordHead<'a>> {
    let start = entry.physical_offset.get();
    let size = u64::from(entry.size_bytes);
    if size < RecordHead::BYTES as u64 || start + size > file.wrote().get() {
        return None;
    }
    let at = start - file.start.get();
    RecordHead::of(file.region.view(at..at + RecordHead::BYTES as u64)).filter(|head| {
        head.is_record()
            && head.size_bytes() == entry.size_bytes
            && head.queue_offset().get() == queue_offset
            && head.physical_offset() == entry.physical_offset
    })
}

impl<D: Disk> Core<D> {
    pub(crate) fn get(
        &self,
        topic: &str,
        queue_id: u32,
        offset: i64,
        limits: &ReadLimits,
        filter: &MessageFilter,
    ) -> Result<Fetch, StoreError> {
        let none = QueueBounds { min: QueueOffset::ZERO, max: QueueOffset::ZERO };
        let Some(queue) = self.queues.get(topic, queue_id) else {
            return Ok(nothing(FetchStatus::NoMessageInQueue, QueueOffset::ZERO, none));
        };
        let bounds = queue.bounds();
        let offset = match within(offset, bounds) {
            Ok(offset) => offset,
            Err(outside) => return Ok(outside),
        };
        let read =
            ENTRIES.with_borrow_mut(|buffer| self.scan(&queue, offset, bounds, limits, filter, buffer));
        match read {
            Err(StoreError::Env(error)) if error.is_not_found() => {
                if queue.is_deleted() {
                    return Ok(nothing(FetchStatus::NoMessageInQueue, QueueOffset::ZERO, none));
                }
                let next = (self.queue_files.file_start(QueueOffset(offset)) + self.queue_files.file_size())
                    / ENTRY_BYTES;
                Ok(nothing(FetchStatus::OffsetFoundNull, QueueOffset(next.min(bounds.max.get())), bounds))
            }
            other => other,
        }
    }

    /// Looks at the entries from `offset` on, in one file of the queue.
    ///
    /// # Source
    /// docs/reference/store-format.md 11.2.
    fn scan(
        &self,
        queue: &Queue,
        offset: u64,
        bounds: QueueBounds,
        limits: &ReadLimits,
        filter: &MessageFilter,
        buffer: &mut Vec<u8>,
    ) -> Result<Fetch, StoreError> {
        let wanted = u64::from(limits.max_messages.max(1));
        let window = if filter.is_all() { wanted } else { wanted.max(FILTER_WINDOW) };
        let window = window.min(MOST_ENTRIES).min(bounds.max.get() - offset);
        self.queue_files.read(queue, QueueOffset(offset), window, buffer)?;
        let mut gathering =
            Gathering { core: self, limits, records: Vec::new(), count: 0, size_bytes: 0, run: None };
        let mut status = FetchStatus::NoMatchedMessage;
        let mut next = offset;
        for bytes in buffer.chunks_exact(ENTRY_BYTES as usize) {
            let queue_offset = next;
            let Some(entry) = entry::decode(bytes) else {
                if gathering.count > 0 {
                    break; // what was found before is given first
                }
                return Err(broken_entry(queue, queue_offset, 0));
            };
            if gathering.is_full(entry.size_bytes) {
                break;
            }
            let wanted = !entry::is_preblank(&entry) && filter.matches_code(entry.tags_code);
            match wanted.then(|| gathering.add(&entry, queue_offset, filter)) {
                Some(Lead::Added) => status = FetchStatus::Found,
                Some(Lead::Gone) if gathering.count == 0 => status = FetchStatus::MessageWasRemoving,
                Some(Lead::Broken) if gathering.count > 0 => break,
                Some(Lead::Broken) => {
                    let error = broken_entry(queue, queue_offset, entry.physical_offset.get());
                    tracing::error!(%error, "a consume queue entry is broken");
                    return Err(error);
                }
                Some(Lead::Gone | Lead::Unwanted) | None => {}
            }
            next += 1;
        }
        gathering.end_run();
        Ok(Fetch {
            status,
            next_offset: QueueOffset(next),
            min_offset: bounds.min,
            max_offset: bounds.max,
            count: gathering.count,
            size_bytes: gathering.size_bytes,
            records: gathering.records,
        })
    }

    pub(crate) fn queue_bounds(&self, topic: &str, queue_id: u32) -> QueueBounds {
        let none = QueueBounds { min: QueueOffset::ZERO, max: QueueOffset::ZERO };
        self.queues.get(topic, queue_id).map_or(none, |queue| queue.bounds())
    }

    pub(crate) fn next_queue_offset(&self, topic: &str, queue_id: u32) -> QueueOffset {
        self.queues.get(topic, queue_id).map_or(QueueOffset::ZERO, |queue| queue.next())
    }

    /// # Source
    /// docs/reference/store-format.md 11.6.
    pub(crate) fn offset_by_time(
        &self,
        topic: &str,
        queue_id: u32,
        time_ms: i64,
        boundary: Boundary,
    ) -> Result<QueueOffset, StoreError> {
        let Some(queue) = self.queues.get(topic, queue_id) else {
            return Ok(QueueOffset::ZERO);
        };
        let bounds = queue.bounds();
        let mut window = Window::default();
        let low = entry::partition_point(bounds.min, bounds.max, |number| {
            let entry = self.queue_files.entry_in(&mut window, &queue, number)?;
            let stored_at_ms = self.entry_stored_at(&queue, number.get(), entry)?;
            Ok::<_, StoreError>(stored_at_ms.map(|stored_at_ms| match boundary {
                Boundary::Lower => stored_at_ms < time_ms,
                Boundary::Upper => stored_at_ms <= time_ms,
            }))
        })?;
        let found = match boundary {
            Boundary::Lower => low,
            Boundary::Upper => QueueOffset(low.get().saturating_sub(1)),
        };
        Ok(found.clamp(bounds.min, bounds.max))
    }

    pub(crate) fn stored_at(
        &self,
        topic: &str,
        queue_id: u32,
        offset: u64,
    ) -> Result<Option<i64>, StoreError> {
        match self.queues.get(topic, queue_id) {
            Some(queue) if (queue.min()..queue.max()).contains(&QueueOffset(offset)) => {
                self.entry_stored_at(&queue, offset, self.queue_files.entry(&queue, QueueOffset(offset))?)
            }
            _ => Ok(None),
        }
    }

    /// When the record of an entry was stored; `None` when it is gone.
    fn entry_stored_at(
        &self,
        queue: &Queue,
        queue_offset: u64,
        entry: Option<Entry>,
    ) -> Result<Option<i64>, StoreError> {
        let Some(entry) = entry.filter(|entry| !entry::is_preblank(entry)) else {
            return Ok(None);
        };
        let start = entry.physical_offset.get();
        let Some(file) = self.log.find(entry.physical_offset) else {
            return Ok(None);
        };
        match record_head(&file, &entry, queue_offset) {
            Some(head) => Ok(Some(head.stored_at_ms())),
            None => Err(broken_entry(queue, queue_offset, start)),
        }
    }

    pub(crate) fn record_at(&self, offset: PhysicalOffset) -> Option<Bytes> {
        let file = self.log.find(offset)?;
        let end = file.wrote().min(PhysicalOffset(self.confirm()));
        if offset >= end {
            return None;
        }
        let view = RecordView::parse(file.region.view(offset - file.start..end - file.start)).ok()?;
        (view.physical_offset == offset).then(|| {
            let at = offset - file.start;
            file.region.slice(at..at + view.size() as u64)
        })
    }
}

fn broken_entry(queue: &Queue, queue_offset: u64, physical_offset: u64) -> StoreError {
    StoreError::BrokenEntry {
        topic: Arc::clone(&queue.topic),
        queue_id: queue.queue_id,
        queue_offset,
        physical_offset,
    }
}

/// The offset if the queue has an entry there, else the answer.
///
/// # Source
/// docs/reference/store-format.md 11.1.
fn within(offset: i64, bounds: QueueBounds) -> Result<u64, Fetch> {
    let (min, max) = (bounds.min, bounds.max);
    if max == QueueOffset::ZERO {
        return Err(nothing(FetchStatus::NoMessageInQueue, QueueOffset::ZERO, bounds));
    }
    let Ok(asked) = u64::try_from(offset) else {
        return Err(nothing(FetchStatus::OffsetTooSmall, min, bounds));
    };
    let asked = QueueOffset(asked);
    if asked < min {
        Err(nothing(FetchStatus::OffsetTooSmall, min, bounds))
    } else if asked == max {
        Err(nothing(FetchStatus::OffsetOverflowOne, asked, bounds))
    } else if asked > max {
        Err(nothing(FetchStatus::OffsetOverflowBadly, max, bounds))
    } else {
        Ok(asked.get())
    }
}

fn nothing(status: FetchStatus, next_offset: QueueOffset, bounds: QueueBounds) -> Fetch {
    Fetch {
        status,
        next_offset,
        min_offset: bounds.min,
        max_offset: bounds.max,
        count: 0,
        size_bytes: 0,
        records: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_outside_a_queue_are_answered_in_the_order_of_the_table() {
        let bounds = |min: u64, max: u64| QueueBounds { min: min.into(), max: max.into() };
        let answer =
            |offset, bounds| within(offset, bounds).map_err(|fetch| (fetch.status, fetch.next_offset.get()));
        assert_eq!(answer(0, bounds(0, 0)), Err((FetchStatus::NoMessageInQueue, 0)));
        assert_eq!(answer(7, bounds(0, 0)), Err((FetchStatus::NoMessageInQueue, 0)));
        assert_eq!(answer(4, bounds(5, 9)), Err((FetchStatus::OffsetTooSmall, 5)));
        assert_eq!(answer(-1, bounds(0, 9)), Err((FetchStatus::OffsetTooSmall, 0)));
        assert_eq!(answer(9, bounds(5, 9)), Err((FetchStatus::OffsetOverflowOne, 9)));
        assert_eq!(answer(10, bounds(5, 9)), Err((FetchStatus::OffsetOverflowBadly, 9)));
        assert_eq!(answer(5, bounds(5, 9)), Ok(5));
    }
}
