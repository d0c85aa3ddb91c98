//! Reads queues and the log. No lock is held across a read, and no reader waits for a writer.

pub(crate) mod first;
mod gather;
mod slice;

use std::cell::RefCell;
use std::sync::Arc;

use bytes::Bytes;
use first::FirstReads;
use gather::{Gathering, Lead, Lost, check, record_head};
use rocketpy_env::{Disk, DiskFile, OpenMode, Region};
use rocketpy_filter::MessageFilter;
use rocketpy_model::{PhysicalOffset, QueueOffset};
use rocketpy_protocol::record::{CheckMode, RecordHead, RecordView, check_record};

use crate::derived::Derived;
use crate::error::StoreError;
use crate::fetch::{Boundary, Fetch, FetchStatus, QueueBounds, QueueEntry, ReadLimits};
use crate::index::{KeyKind, QueryResult, Wanted};
use crate::log::Log;
use crate::queue::Queue;
use crate::queue::entry::{self, ENTRY_BYTES, Entry, Window, entry_at};

/// A read with a filter examines at least this many entries.
///
/// # Source
/// docs/reference/store-format.md 11.2: `maxFilterMessageSize` 16000 bytes of entries.
const FILTER_WINDOW: u64 = 16_000 / ENTRY_BYTES;
/// No read examines more entries than this, even if a client asks for them or all are fillers.
const MOST_ENTRIES: u64 = 65_536;

/// Distance of the prefetch, in entries.
const RECORDS_AHEAD: usize = 8;

/// A read of entries alone takes at least this many at once. Otherwise it would take fillers one by one.
const ENTRIES_WINDOW: u64 = 512;

/// So much of the log's end was written a moment ago: it is not asked whether it is in memory.
const RECENT: u64 = 16 << 20;
/// How much of a record is looked for first: most are no longer.
const FIRST_LOOK: u64 = 4096;
const NO_BOUNDS: QueueBounds = QueueBounds { min: QueueOffset::ZERO, max: QueueOffset::ZERO };

thread_local! {
    static ENTRIES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Whether a read may wait for the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// It may: it reads from the disk what is not in memory.
    Disk,
    /// It may not: it ends before what is not in memory.
    Memory,
}

/// Reads, on the threads of the callers.
pub(crate) struct Reads<D: Disk> {
    log: Arc<Log<D>>,
    derived: Arc<Derived<D>>,
    first_reads: FirstReads,
}

impl<D: Disk> Reads<D> {
    pub(crate) fn new(log: &Arc<Log<D>>, derived: &Arc<Derived<D>>, first_reads: FirstReads) -> Self {
        Self { log: Arc::clone(log), derived: Arc::clone(derived), first_reads }
    }

    /// `None` when it would have to read beyond its reach to find anything.
    pub(crate) fn get(
        &self,
        topic: &str,
        queue_id: u32,
        offset: i64,
        limits: &ReadLimits,
        filter: &MessageFilter,
        reach: Reach,
    ) -> Result<Option<Fetch>, StoreError> {
        let Some(queue) = self.derived.queues().get(topic, queue_id) else {
            return Ok(Some(nothing(FetchStatus::NoMessageInQueue, QueueOffset::ZERO, NO_BOUNDS)));
        };
        let bounds = queue.bounds();
        let offset = match within(offset, bounds) {
            Ok(offset) => offset,
            Err(outside) => return Ok(Some(outside)),
        };
        let gathering = Gathering::new(&self.log, &self.first_reads, limits, filter, reach);
        let read = ENTRIES.with_borrow_mut(|buffer| self.scan(&queue, offset, bounds, gathering, buffer));
        match read {
            Err(StoreError::Env(error)) if error.is_not_found() => {
                if queue.is_deleted() {
                    return Ok(Some(nothing(FetchStatus::NoMessageInQueue, QueueOffset::ZERO, NO_BOUNDS)));
                }
                let next = self.next_file(offset).min(bounds.max);
                Ok(Some(nothing(FetchStatus::OffsetFoundNull, next, bounds)))
            }
            other => other,
        }
    }

    /// First entry of the next file after the one that holds an entry.
    fn next_file(&self, offset: QueueOffset) -> QueueOffset {
        let files = self.derived.files();
        entry_at(files.file_start(offset)) + files.entries_a_file()
    }

    /// Reads the entries from `offset` on, in one file of the queue, and the records of those that match.
    ///
    /// # Source
    /// docs/reference/store-format.md 11.2.
    fn scan(
        &self,
        queue: &Queue,
        offset: QueueOffset,
        bounds: QueueBounds,
        mut gathering: Gathering<'_, D>,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<Fetch>, StoreError> {
        let filter = gathering.filter;
        assert!(bounds.min <= offset && offset < bounds.max, "a read at {offset} of what the queue has");
        let window = window_of(&gathering).min(bounds.max - offset);
        if !self.read_entries(queue, offset, window, gathering.reach, buffer)? {
            return Ok(None);
        }
        let mut status = FetchStatus::NoMatchedMessage;
        let mut next = offset;
        let entries = buffer.chunks_exact(ENTRY_BYTES as usize);
        let mut ahead = entries.clone().skip(RECORDS_AHEAD);
        let may_match = |entry: &Entry| !entry::is_preblank(entry) && filter.matches_code(entry.tags_code);
        let mut lost = None;
        for bytes in entries {
            let Some(entry) = entry::decode(bytes) else {
                if gathering.count() > 0 {
                    break; // what was found before is given first
                }
                return Err(broken_entry(queue, next, PhysicalOffset::ZERO));
            };
            if gathering.is_full(entry.size_bytes) || gathering.is_tired() {
                break;
            }
            if let Some(ahead) = ahead.next().and_then(entry::decode).filter(may_match) {
                gathering.expect(&ahead);
            }
            let lead = match may_match(&entry).then(|| gathering.add(&entry, next)).transpose() {
                Ok(lead) => lead,
                Err(it) => {
                    lost = Some(it);
                    break;
                }
            };
            match lead {
                Some(Lead::Added) => status = FetchStatus::Found,
                Some(Lead::Gone) if gathering.count() == 0 => status = FetchStatus::MessageWasRemoving,
                Some(Lead::Broken | Lead::Damaged(_) | Lead::Cold) if gathering.count() > 0 => break,
                Some(Lead::Cold) => return Ok(None),
                Some(Lead::Damaged(error)) => return Err(told(error.into(), queue, next)),
                Some(Lead::Broken) => {
                    return Err(told(broken_entry(queue, next, entry.physical_offset), queue, next));
                }
                Some(Lead::Gone | Lead::Unwanted) | None => {}
            }
            next += 1;
        }
        assert!(next <= bounds.max, "the next read begins at {next}, behind the end of the queue");
        fetch_of(queue, gathering, lost, nothing(status, next, bounds)).map(Some)
    }

    /// Reads entries of one file of a queue; `false` when they are out of reach.
    fn read_entries(
        &self,
        queue: &Queue,
        offset: QueueOffset,
        count: u64,
        reach: Reach,
        buffer: &mut Vec<u8>,
    ) -> Result<bool, StoreError> {
        let files = self.derived.files();
        match reach {
            Reach::Disk => Ok(files.read(queue, offset, count, buffer).map(|_| true)?),
            Reach::Memory => Ok(files.read_in_memory(queue, offset, count, buffer)?),
        }
    }

    /// Entries from `from` on, at most `most` of them and none after the end of the queue. It skips fillers and files that
    /// retention removed, and ends once it has examined [`MOST_ENTRIES`].
    pub(crate) fn entries(
        &self,
        topic: &str,
        queue_id: u32,
        from: QueueOffset,
        most: usize,
    ) -> Result<Vec<QueueEntry>, StoreError> {
        let mut found = Vec::new();
        let Some(queue) = self.derived.queues().get(topic, queue_id) else { return Ok(found) };
        let QueueBounds { min, max } = queue.bounds();
        let mut next = from.max(min);
        let mut examined = 0;
        let mut buffer = Vec::new();
        while next < max && found.len() < most && examined < MOST_ENTRIES {
            let window = ENTRIES_WINDOW.max((most - found.len()) as u64);
            let window = window.min(MOST_ENTRIES - examined).min(max - next);
            match self.derived.files().read(&queue, next, window, &mut buffer) {
                Err(error) if error.is_not_found() => next = self.next_file(next), // retention was faster
                other => {
                    other?;
                    for (bytes, queue_offset) in buffer.chunks_exact(ENTRY_BYTES as usize).zip(next.get()..) {
                        found.extend(record_entry(bytes, QueueOffset(queue_offset)));
                    }
                    let read = buffer.len() as u64 / ENTRY_BYTES;
                    next += read;
                    examined += read;
                }
            }
        }
        found.truncate(most);
        Ok(found)
    }

    pub(crate) fn queue_bounds(&self, topic: &str, queue_id: u32) -> QueueBounds {
        self.derived.queues().get(topic, queue_id).map_or(NO_BOUNDS, |queue| queue.bounds())
    }

    /// Notes whether somebody waits for the next record of a queue. Returns whether records of it are on their way.
    pub(crate) fn set_awaited(&self, topic: &str, queue_id: u32, is_awaited: bool) -> bool {
        self.derived.queues().get(topic, queue_id).is_some_and(|queue| queue.set_awaited(is_awaited))
    }

    pub(crate) fn next_queue_offset(&self, topic: &str, queue_id: u32) -> QueueOffset {
        self.derived.queues().get(topic, queue_id).map_or(QueueOffset::ZERO, |queue| queue.next())
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
        let Some(queue) = self.derived.queues().get(topic, queue_id) else {
            return Ok(QueueOffset::ZERO);
        };
        let QueueBounds { min, max } = queue.bounds();
        let mut window = Window::default();
        let low = entry::partition_point(min, max, |number| {
            let entry = self.derived.files().entry_in(&mut window, &queue, number)?;
            let stored_at_ms = self.entry_stored_at(&queue, number, entry)?;
            Ok::<_, StoreError>(stored_at_ms.map(|stored_at_ms| match boundary {
                Boundary::Lower => stored_at_ms < time_ms,
                Boundary::Upper => stored_at_ms <= time_ms,
            }))
        })?;
        let found = match boundary {
            Boundary::Lower => low,
            Boundary::Upper => QueueOffset(low.get().saturating_sub(1)),
        };
        Ok(found.clamp(min, max))
    }

    pub(crate) fn stored_at(
        &self,
        topic: &str,
        queue_id: u32,
        offset: QueueOffset,
    ) -> Result<Option<i64>, StoreError> {
        match self.derived.queues().get(topic, queue_id) {
            Some(queue) if (queue.min()..queue.max()).contains(&offset) => self.stored_at_in(&queue, offset),
            _ => Ok(None),
        }
    }

    /// When a message of a queue was stored; `None` when it is gone.
    pub(crate) fn stored_at_in(&self, queue: &Queue, offset: QueueOffset) -> Result<Option<i64>, StoreError> {
        let entry = self.derived.files().entry(queue, offset)?;
        self.entry_stored_at(queue, offset, entry)
    }

    /// When the record of an entry was stored; `None` when it is gone.
    fn entry_stored_at(
        &self,
        queue: &Queue,
        queue_offset: QueueOffset,
        entry: Option<Entry>,
    ) -> Result<Option<i64>, StoreError> {
        let Some(entry) = entry.filter(|entry| !entry::is_preblank(entry)) else {
            return Ok(None);
        };
        let Some(file) = self.log.find(entry.physical_offset) else {
            return Ok(None);
        };
        match record_head(&file, &entry, queue_offset)? {
            Some(head) => Ok(Some(head.stored_at_ms())),
            None => Err(broken_entry(queue, queue_offset, entry.physical_offset)),
        }
    }

    /// # Errors
    /// [`StoreError::DamagedLog`] when the record cannot be read, or is not what was written.
    pub(crate) fn record_at(&self, offset: PhysicalOffset) -> Result<Option<Bytes>, StoreError> {
        let Some(file) = self.log.find(offset) else { return Ok(None) };
        let end = file.wrote().min(self.log.safe_end());
        if offset >= end {
            return Ok(None);
        }
        let at = offset - file.start;
        let bytes = file.region.view(at..end - file.start);
        let head = RecordHead::of(bytes).filter(|head| head.is_record() && head.physical_offset() == offset);
        file.check(offset, end.min(offset + RecordHead::BYTES as u64))?;
        let Some(head) = head else { return Ok(None) };
        match RecordView::parse(bytes).map(|view| offset + view.size() as u64) {
            Ok(record_end) => {
                check(&file, offset, record_end, &self.first_reads)?;
                Ok(Some(file.region.slice(at..record_end - file.start)))
            }
            Err(error) => {
                file.check(offset, end.min(offset + u64::from(head.size_bytes())))?;
                Err(self.log.damage(offset, &error.to_string()).into())
            }
        }
    }

    /// As [`Self::record_at`], from the file and not from its map: a page of the map that could not be read once stays unreadable.
    ///
    /// # Errors
    /// [`StoreError::Env`] when the file cannot be read, [`StoreError::DamagedLog`] when it holds something else.
    pub(crate) fn record_from_file(&self, offset: PhysicalOffset) -> Result<Option<Bytes>, StoreError> {
        let Some(file) = self.log.find(offset) else { return Ok(None) };
        let end = file.wrote().min(self.log.safe_end());
        if offset + RecordHead::BYTES as u64 > end {
            return Ok(None);
        }
        let opened = self.log.disk().open_file(&file.path, OpenMode::Write)?;
        let at = offset - file.start;
        let mut head = [0; RecordHead::BYTES];
        opened.read_exact_at(at, &mut head)?;
        let head = RecordHead::of(&head).filter(|head| head.is_record() && head.physical_offset() == offset);
        let Some(head) = head else { return Ok(None) };
        let mut bytes = vec![0; u64::from(head.size_bytes()).min(end - offset) as usize];
        opened.read_exact_at(at, &mut bytes)?;
        match check_record(&bytes, CheckMode::Body) {
            Ok(_) => Ok(Some(bytes.into())),
            Err(error) => Err(self.log.damage(offset, &error.to_string()).into()),
        }
    }

    /// Whether the record at an offset, or that there is none, can be told without the disk.
    pub(crate) fn is_in_memory(&self, offset: PhysicalOffset) -> bool {
        let Some(file) = self.log.find(offset) else { return true };
        let end = file.wrote().min(self.log.safe_end());
        if offset >= end {
            return true;
        }
        if self.log.safe_end() - offset < RECENT {
            return true;
        }
        let (at, most) = (offset - file.start, end - offset);
        let resident = |bytes: u64| file.region.resident(at..at + bytes.min(most));
        let first = resident(FIRST_LOOK);
        let size = |head: RecordHead<'_>| u64::from(head.size_bytes()).min(most);
        match RecordHead::of(file.region.view(at..at + first)).map(size) {
            Some(size) => size <= first || size <= resident(size),
            None => first == most, // too short for a record
        }
    }

    /// Records of a key that were stored from `begin_ms` to `end_ms`, both included; at most what the limits say, the newest.
    ///
    /// # Errors
    /// [`StoreError::NoIndex`] when the store keeps none.
    pub(crate) fn query(
        &self,
        topic: &str,
        key: &str,
        kind: KeyKind,
        limits: &ReadLimits,
        begin_ms: i64,
        end_ms: i64,
    ) -> Result<QueryResult, StoreError> {
        let index = self.derived.index().ok_or(StoreError::NoIndex)?;
        let wanted = Wanted::new(topic, key, kind, begin_ms, end_ms);
        index.query(&wanted, limits, |offset| self.record_at(offset))
    }

    /// Records of a unique key that were stored from `begin_ms` on, or lie from a place on, whatever time they have.
    ///
    /// # Errors
    /// As [`Self::query`].
    pub(crate) fn query_since(
        &self,
        topic: &str,
        key: &str,
        limits: &ReadLimits,
        begin_ms: i64,
        from: PhysicalOffset,
    ) -> Result<QueryResult, StoreError> {
        let index = self.derived.index().ok_or(StoreError::NoIndex)?;
        let in_time = Wanted::new(topic, key, KeyKind::Unique, begin_ms, i64::MAX);
        let wanted = Wanted { or_from: Some(from), ..in_time };
        index.query(&wanted, limits, |offset| self.record_at(offset))
    }
}

/// The entry in the bytes; `None` when they hold none or a filler.
fn record_entry(bytes: &[u8], queue_offset: QueueOffset) -> Option<QueueEntry> {
    let entry = entry::decode(bytes).filter(|entry| !entry::is_preblank(entry))?;
    let Entry { physical_offset, size_bytes, tags_code } = entry;
    Some(QueueEntry { queue_offset, physical_offset, size_bytes, tags_code })
}

/// Logs the error of a read, and returns it.
fn told(error: StoreError, queue: &Queue, queue_offset: QueueOffset) -> StoreError {
    let (topic, queue_id) = (&*queue.topic, queue.queue_id);
    tracing::error!(%error, topic, queue_id, %queue_offset, "message not readable");
    error
}

fn broken_entry(queue: &Queue, queue_offset: QueueOffset, physical_offset: PhysicalOffset) -> StoreError {
    StoreError::BrokenEntry {
        topic: Arc::clone(&queue.topic),
        queue_id: queue.queue_id,
        queue_offset,
        physical_offset,
    }
}

/// The offset if the queue has an entry there. Otherwise how the read ends.
///
/// # Source
/// docs/reference/store-format.md 11.1.
fn within(offset: i64, bounds: QueueBounds) -> Result<QueueOffset, Fetch> {
    let (min, max) = (bounds.min, bounds.max);
    if max == QueueOffset::ZERO {
        return Err(nothing(FetchStatus::NoMessageInQueue, QueueOffset::ZERO, bounds));
    }
    let Some(asked) = QueueOffset::from_wire(offset) else {
        return Err(nothing(FetchStatus::OffsetTooSmall, min, bounds));
    };
    if asked < min {
        Err(nothing(FetchStatus::OffsetTooSmall, min, bounds))
    } else if asked == max {
        Err(nothing(FetchStatus::OffsetOverflowOne, asked, bounds))
    } else if asked > max {
        Err(nothing(FetchStatus::OffsetOverflowBadly, max, bounds))
    } else {
        Ok(asked)
    }
}

/// Number of entries that a gathering reads at once.
fn window_of<D: Disk>(gathering: &Gathering<'_, D>) -> u64 {
    let wanted = u64::from(gathering.limits.max_messages.max(1));
    let window = if gathering.filter.is_all() { wanted } else { wanted.max(FILTER_WINDOW) };
    window.min(MOST_ENTRIES)
}

/// What was gathered, with the status and the bounds of `nothing`. The next read begins with a record that was lost.
fn fetch_of<D: Disk>(
    queue: &Queue,
    mut gathering: Gathering<'_, D>,
    lost: Option<Lost>,
    mut nothing: Fetch,
) -> Result<Fetch, StoreError> {
    if let Some(Lost { at, error }) = lost.or_else(|| gathering.end_run().err()) {
        if gathering.count() == 0 {
            return Err(told(error.into(), queue, at));
        }
        nothing.next_offset = at;
    }
    let (count, size_bytes) = (gathering.count(), gathering.size_bytes());
    let (records, mapped_bytes) = gathering.into_records();
    Ok(Fetch { count, size_bytes, records, mapped_bytes, ..nothing })
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
        mapped_bytes: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_outside_a_queue_are_answered_in_the_order_of_the_table() {
        let bounds = |min: u64, max: u64| QueueBounds { min: min.into(), max: max.into() };
        let answer = |offset, bounds| {
            let within = within(offset, bounds).map(QueueOffset::get);
            within.map_err(|fetch| (fetch.status, fetch.next_offset.get()))
        };
        assert_eq!(answer(0, bounds(0, 0)), Err((FetchStatus::NoMessageInQueue, 0)));
        assert_eq!(answer(7, bounds(0, 0)), Err((FetchStatus::NoMessageInQueue, 0)));
        assert_eq!(answer(4, bounds(5, 9)), Err((FetchStatus::OffsetTooSmall, 5)));
        assert_eq!(answer(-1, bounds(0, 9)), Err((FetchStatus::OffsetTooSmall, 0)));
        assert_eq!(answer(9, bounds(5, 9)), Err((FetchStatus::OffsetOverflowOne, 9)));
        assert_eq!(answer(10, bounds(5, 9)), Err((FetchStatus::OffsetOverflowBadly, 9)));
        assert_eq!(answer(5, bounds(5, 9)), Ok(5));
    }
}
