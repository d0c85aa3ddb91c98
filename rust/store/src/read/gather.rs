//! Gathers the records of one read.

use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use rocketpy_env::{Disk, Region};
use rocketpy_filter::MessageFilter;
use rocketpy_model::{PhysicalOffset, QueueOffset};
use rocketpy_protocol::record::{RecordHead, RecordView};

use super::Reach;
use super::first::FirstReads;
use crate::error::DispatchError;
use crate::fetch::ReadLimits;
use crate::log::Log;
use crate::mapped::MappedFile;
use crate::queue::entry::Entry;

/// Ask the system about this many bytes of the log at once whether they are in memory. A system call for each record would cost as
/// much as reading it.
const LOOK_AHEAD: u64 = 64 << 10;
/// Bytes that one read looks at for its filter: properties, expressions, and records that are read for the first time. One or two
/// milliseconds; somebody else waits for the thread.
const MOST_WORK: usize = 2 << 20;

/// Neighbours in the log that have fewer bytes than this together are copied: that costs less than keeping the map for them, and
/// than giving the system one more slice to write.
const COPY_BELOW: u64 = 2048;
/// They are copied into chunks that grow up to this size.
const CHUNK_BYTES: usize = 64 << 10;

/// The records of one read.
pub(super) struct Gathering<'a, D: Disk> {
    log: &'a Log<D>,
    first_reads: &'a FirstReads,
    pub(super) limits: &'a ReadLimits,
    pub(super) filter: &'a MessageFilter,
    pub(super) reach: Reach,
    /// A part of the log that is in memory.
    in_memory: Range<PhysicalOffset>,
    records: Vec<Bytes>,
    /// Bytes of `records` that are slices of the map.
    mapped_bytes: usize,
    /// Copied records behind those in `records`.
    copied: BytesMut,
    /// Bytes that were copied in all.
    copied_bytes: usize,
    count: u32,
    size_bytes: u64,
    /// Bytes that were looked at for the filter.
    worked_bytes: usize,
    /// The last neighbours, not yet in `records`.
    run: Option<LogRun<D::Region>>,
}

/// Records of one file that follow each other: `start..end` of the log.
struct LogRun<R> {
    file: Arc<MappedFile<R>>,
    start: PhysicalOffset,
    end: PhysicalOffset,
    /// Queue offset of the first one.
    first: QueueOffset,
    count: u32,
}

/// A run could not be copied: it was added before, and is no part of the read any more.
#[derive(Debug)]
pub(super) struct Lost {
    /// Where the read ends.
    pub(super) at: QueueOffset,
    pub(super) error: DispatchError,
}

/// Record that an entry points to.
pub(super) enum Lead {
    /// A record that is wanted: it was added.
    Added,
    /// The record is no longer in the log.
    Gone,
    /// The record is there, but the filter does not want it.
    Unwanted,
    /// Other bytes are there.
    Broken,
    /// The record is there and cannot be read, or is not what was written.
    Damaged(DispatchError),
    /// The record is out of reach.
    Cold,
}

impl<'a, D: Disk> Gathering<'a, D> {
    pub(super) fn new(
        log: &'a Log<D>,
        first_reads: &'a FirstReads,
        limits: &'a ReadLimits,
        filter: &'a MessageFilter,
        reach: Reach,
    ) -> Self {
        let in_memory = PhysicalOffset::ZERO..PhysicalOffset::ZERO;
        Self {
            log,
            first_reads,
            limits,
            filter,
            reach,
            in_memory,
            records: Vec::new(),
            mapped_bytes: 0,
            copied: BytesMut::new(),
            copied_bytes: 0,
            count: 0,
            size_bytes: 0,
            worked_bytes: 0,
            run: None,
        }
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    pub(super) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Whether the filter has had enough work for one read.
    pub(super) fn is_tired(&self) -> bool {
        self.worked_bytes > MOST_WORK
    }

    /// Whether one more record would exceed the limits.
    pub(super) fn is_full(&self, size_bytes: u32) -> bool {
        self.count > 0
            && (self.count >= self.limits.max_messages
                || self.size_bytes + u64::from(size_bytes) > self.limits.max_bytes)
    }

    /// Prefetches the record of an entry that is soon to be added, if it is in the file of the one that was added last.
    pub(super) fn expect(&self, entry: &Entry) {
        if let Some(LogRun { file, .. }) = &self.run
            && file.holds(entry.physical_offset)
        {
            let at = entry.physical_offset - file.start;
            file.region.expect_read(at..at + u64::from(entry.size_bytes));
        }
    }

    /// Adds the record of an entry whose tags code matches.
    ///
    /// # Errors
    /// Records that were added before can no longer be read: the read ends before them.
    pub(super) fn add(&mut self, entry: &Entry, queue_offset: QueueOffset) -> Result<Lead, Lost> {
        let start = entry.physical_offset;
        let file = match self.run.as_ref().filter(|run| run.file.holds(start)) {
            Some(run) => Arc::clone(&run.file),
            None => match self.log.find(start) {
                Some(file) => file,
                None if start < self.log.start() => return Ok(Lead::Gone),
                None => return Ok(Lead::Broken),
            },
        };
        let end = start + u64::from(entry.size_bytes);
        if self.reach == Reach::Memory && !self.is_in_memory(&file, start, end) {
            return Ok(Lead::Cold);
        }
        match record_head(&file, entry, queue_offset) {
            Ok(Some(_)) => {}
            Ok(None) => return Ok(Lead::Broken),
            Err(error) => return Ok(self.unreadable(start, error)),
        }
        let is_checked = self.first_reads.is_checked(start);
        if let Err(error) = check(&file, start, end, self.first_reads) {
            return Ok(self.unreadable(start, error));
        }
        if self.filter.needs_record() {
            self.worked_bytes += if is_checked { 0 } else { entry.size_bytes as usize };
            let Ok(record) = RecordView::parse(file.region.view(start - file.start..end - file.start)) else {
                return Ok(Lead::Broken);
            };
            self.worked_bytes += self.filter.work(record.properties.len());
            if !self.filter.matches_record(|name| record.property(name)) {
                return Ok(Lead::Unwanted);
            }
        }
        match &mut self.run {
            // The first record of a file follows the last one of another, so it never joins.
            Some(run) if run.end == start && run.file.start == file.start => {
                run.end = end;
                run.count += 1;
            }
            _ => {
                self.end_run()?;
                self.run = Some(LogRun { file, start, end, first: queue_offset, count: 1 });
            }
        }
        self.count += 1;
        self.size_bytes += u64::from(entry.size_bytes);
        Ok(Lead::Added)
    }

    /// Whether a record is in memory, or no record can be there.
    fn is_in_memory(
        &mut self,
        file: &MappedFile<D::Region>,
        start: PhysicalOffset,
        end: PhysicalOffset,
    ) -> bool {
        let is_known = self.in_memory.contains(&start) && end <= self.in_memory.end;
        if is_known || end > file.wrote() {
            return true;
        }
        let look_to = end.max(start + LOOK_AHEAD).min(file.wrote());
        let found = file.region.resident(start - file.start..look_to - file.start);
        self.in_memory = start..start + found;
        end <= self.in_memory.end
    }

    /// What an error of a record says of it. Its file may have been removed meanwhile.
    fn unreadable(&self, start: PhysicalOffset, error: DispatchError) -> Lead {
        match error {
            DispatchError::Env(error) if error.is_not_found() && start < self.log.start() => Lead::Gone,
            error => Lead::Damaged(self.named(start, error)),
        }
    }

    /// The error, and damage for a file of the log that is gone: the missing files of queues are no errors of a read.
    fn named(&self, start: PhysicalOffset, error: DispatchError) -> DispatchError {
        match error {
            DispatchError::Env(error) if error.is_not_found() => self.log.damage(start, &error.to_string()),
            error => error,
        }
    }

    /// Ends the last run. To be called before [`Gathering::into_records`].
    ///
    /// # Errors
    /// As [`Gathering::add`].
    pub(super) fn end_run(&mut self) -> Result<(), Lost> {
        let Some(LogRun { file, start, end, first, count }) = self.run.take() else { return Ok(()) };
        let range = start - file.start..end - file.start;
        if end - start >= COPY_BELOW || !self.limits.copies {
            self.end_copied();
            self.mapped_bytes += (end - start) as usize;
            self.records.push(file.region.slice(range));
            return Ok(());
        }
        let bytes = file.region.view(range);
        if self.copied.capacity() - self.copied.len() < bytes.len() {
            self.end_copied();
            self.copied.reserve(CHUNK_BYTES.min(self.copied_bytes).max(bytes.len()));
        }
        self.copied_bytes += bytes.len();
        let before = self.copied.len();
        self.copied.extend_from_slice(bytes);
        file.check(start, end).map_err(|error| {
            self.copied.truncate(before);
            self.count -= count;
            self.size_bytes -= end - start;
            Lost { at: first, error: self.named(start, error) }
        })
    }

    /// A chunk that is mostly empty is given up: its memory would wait with the answer, and nobody counts it.
    fn end_copied(&mut self) {
        if self.copied.capacity() > 2 * self.copied.len() {
            self.copied = BytesMut::from(&self.copied[..]);
        }
        if !self.copied.is_empty() {
            self.records.push(self.copied.split().freeze());
        }
    }

    /// The records, in queue order, and how many bytes of them are slices of the map.
    pub(super) fn into_records(mut self) -> (Vec<Bytes>, usize) {
        self.end_copied();
        (self.records, self.mapped_bytes)
    }
}

/// Says whether a record can be read, and, where a former process wrote it and nobody read it before, whether it is sound.
///
/// # Errors
/// [`DispatchError::Damage`] names file and place.
pub(super) fn check<R: Region>(
    file: &MappedFile<R>,
    start: PhysicalOffset,
    end: PhysicalOffset,
    first_reads: &FirstReads,
) -> Result<(), DispatchError> {
    if first_reads.is_checked(start) {
        return file.check(start, end);
    }
    let checked = first_reads.check(start, file.region.view(start - file.start..end - file.start));
    file.check(start, end)?;
    checked.map_err(|reason| DispatchError::Damage {
        path: file.path.clone(),
        physical_offset: start,
        reason,
    })
}

/// The head of the entry's own record, if it is where the entry says: size, magic and both offsets are compared.
///
/// # Errors
/// [`DispatchError::Damage`] when what is there cannot be read.
pub(super) fn record_head<'a, R: Region>(
    file: &'a MappedFile<R>,
    entry: &Entry,
    queue_offset: QueueOffset,
) -> Result<Option<RecordHead<'a>>, DispatchError> {
    let start = entry.physical_offset;
    let size_bytes = u64::from(entry.size_bytes);
    if size_bytes < RecordHead::BYTES as u64 || start + size_bytes > file.wrote() {
        return Ok(None);
    }
    let at = start - file.start;
    let head = RecordHead::of(file.region.view(at..at + RecordHead::BYTES as u64)).filter(|head| {
        head.is_record()
            && head.size_bytes() == entry.size_bytes
            && head.queue_offset() == queue_offset
            && head.physical_offset() == start
    });
    file.check(start, start + RecordHead::BYTES as u64)?;
    Ok(head)
}
