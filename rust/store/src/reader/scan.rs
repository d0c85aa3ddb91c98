//! Gathers the records of some queue ranges, in the order of the commit log.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::Arc;

use rocketpy_env::{Disk, RealDisk};
use rocketpy_model::{PhysicalOffset, QueueOffset};
use rocketpy_protocol::record::{CheckMode, check_record, ends_in_its_crc};

use super::log::{LogFiles, check_head};
use super::queue::QueueFiles;
use super::{
    BlockRecord, Missing, MissingRange, QueueEntry, QueueRange, ReadError, RecordBlock, ScanOptions,
    StoreReader,
};

/// Bytes between two wanted records up to which they are read in one go: copying as much costs less than a call.
const LARGEST_GAP_BYTES: u64 = 8 << 10;
/// Maximum number of entries that all ranges of a scan read ahead together.
const ENTRIES_AHEAD: u64 = 1 << 16;
/// Minimum and maximum number of entries read at once for one range.
const ENTRIES_AT_ONCE: (u64, u64) = (64, 4096);
/// Why a message is missing that was there once.
const REMOVED: &str = "removed by retention";
const BLOCK_RECORDS: usize = 8192;

/// The records of some ranges, block by block.
///
/// Blocks follow the order of the commit log, so that one pass reads queues that grew at the same time. Within a range
/// this is queue order.
pub struct RangeScan<D: Disk = RealDisk> {
    log: LogFiles<D>,
    options: ScanOptions,
    /// Where a record without a checksum of its own is damaged.
    checked: Range<PhysicalOffset>,
    cursors: Vec<Cursor<D>>,
    /// Entries that are loaded at once.
    at_once: u64,
    /// Place of the next record of each range that has one, the earliest on top.
    next: BinaryHeap<Reverse<(PhysicalOffset, usize)>>,
    block: Block,
    missing: Vec<MissingRange>,
    entry_bytes: Vec<u8>,
}

/// Progress within a range.
struct Cursor<D: Disk> {
    queue: QueueFiles<D>,
    /// Next entry to load, and where to stop.
    from: QueueOffset,
    to: QueueOffset,
    /// Loaded entries; those before `taken` are used up.
    entries: Vec<QueueEntry>,
    taken: usize,
}

#[derive(Debug, Default)]
struct Block {
    bytes: Vec<u8>,
    /// Number of the range, entry, and where the record starts in the bytes.
    wanted: Vec<(usize, QueueEntry, u32)>,
    stretches: Vec<Stretch>,
    records: Vec<BlockRecord>,
}

/// A stretch of the log that is read in one go.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    at: PhysicalOffset,
    /// Where it goes in the block's bytes.
    start: usize,
    size_bytes: usize,
    /// End of the file that holds it.
    file_end: PhysicalOffset,
}

impl<D: Disk> RangeScan<D> {
    pub(super) fn new(
        reader: &StoreReader<D>,
        ranges: &[QueueRange],
        options: ScanOptions,
    ) -> Result<Self, ReadError> {
        let ahead = ENTRIES_AHEAD / (ranges.len() as u64).max(1);
        let log = reader.open_log()?;
        let mut scan = Self {
            checked: log.condition.checked(),
            log,
            options,
            cursors: Vec::with_capacity(ranges.len()),
            at_once: ahead.clamp(ENTRIES_AT_ONCE.0, ENTRIES_AT_ONCE.1),
            next: BinaryHeap::with_capacity(ranges.len()),
            block: Block::default(),
            missing: Vec::new(),
            entry_bytes: Vec::new(),
        };
        for range in ranges {
            scan.add(reader, range)?;
        }
        Ok(scan)
    }

    /// Adds a range. What is no longer there is noted as missing.
    fn add(&mut self, reader: &StoreReader<D>, range: &QueueRange) -> Result<(), ReadError> {
        let queue = reader.open_queue(&range.topic, range.queue_id, &mut self.log)?;
        let from = range.start.max(queue.bounds.min).min(range.end);
        let to = range.end.min(queue.bounds.max).max(from);
        let index = self.cursors.len();
        self.cursors.push(Cursor { queue, from, to, entries: Vec::new(), taken: 0 });
        self.note_missing(index, range.start, from, REMOVED)?;
        self.note_missing(index, to, range.end, "past the end of the queue")?;
        self.load(index)
    }

    /// Takes the list of messages that were left out since the last call.
    pub fn take_missing(&mut self) -> Vec<MissingRange> {
        std::mem::take(&mut self.missing)
    }

    /// Loads entries of a range until one is wanted, and queues the range by the place of its record.
    fn load(&mut self, index: usize) -> Result<(), ReadError> {
        let mut entries = std::mem::take(&mut self.cursors[index].entries);
        entries.clear();
        loop {
            let cursor = &mut self.cursors[index];
            if !entries.is_empty() || cursor.from >= cursor.to {
                break;
            }
            let start = cursor.from;
            let count = self.at_once.min(cursor.to - start);
            let loaded = cursor.queue.entries(start, count, &mut self.entry_bytes, &mut entries)?;
            if loaded == 0 {
                let next = cursor.queue.next_file(start)?.unwrap_or(cursor.to).min(cursor.to);
                cursor.from = next;
                let is_removed = start < cursor.queue.first();
                let reason = if is_removed { REMOVED } else { "their consume queue file is missing" };
                self.note_missing(index, start, next, reason)?;
                continue;
            }
            cursor.from += loaded;
            self.drop_fillers(index, &mut entries)?;
            let filter = &self.options.filter;
            entries.retain(|entry| filter.matches_code(entry.tags_code));
        }
        if let Some(first) = entries.first() {
            self.next.push(Reverse((first.physical_offset, index)));
        }
        let cursor = &mut self.cursors[index];
        cursor.entries = entries;
        cursor.taken = 0;
        Ok(())
    }

    fn drop_fillers(&mut self, index: usize, entries: &mut Vec<QueueEntry>) -> Result<(), ReadError> {
        if entries.iter().any(QueueEntry::is_filler) {
            for entry in entries.iter().filter(|entry| entry.is_filler()) {
                self.note_missing(index, entry.queue_offset, entry.queue_offset + 1, "never written")?;
            }
            entries.retain(|entry| !entry.is_filler());
        }
        Ok(())
    }

    /// Takes the next entry in the order of the log, with the number of its range.
    fn take(&mut self) -> Result<Option<(usize, QueueEntry)>, ReadError> {
        let Some(Reverse((_, index))) = self.next.pop() else {
            return Ok(None);
        };
        let cursor = &mut self.cursors[index];
        let entry = cursor.entries[cursor.taken];
        cursor.taken += 1;
        match cursor.entries.get(cursor.taken) {
            Some(next) => self.next.push(Reverse((next.physical_offset, index))),
            None => self.load(index)?,
        }
        Ok(Some((index, entry)))
    }

    /// Reads the next records into the block; false at the end. A block may turn out empty when all its records are
    /// missing.
    ///
    /// # Errors
    /// [`ReadError::Missing`] and [`ReadError::BrokenRecord`] under [`Missing::Fail`]; or a file operation failed. The
    /// scan is at its end then.
    pub fn advance(&mut self) -> Result<bool, ReadError> {
        let done = self.choose().and_then(|()| self.read_stretches()).and_then(|()| self.check_records());
        if done.is_err() {
            self.next.clear();
        }
        done.map(|()| !self.block.wanted.is_empty())
    }

    /// The records that [`advance`](Self::advance) read.
    #[must_use]
    pub fn block(&self) -> RecordBlock<'_> {
        RecordBlock { bytes: &self.block.bytes, records: &self.block.records }
    }

    /// Chooses the records of the next block and lays them out in stretches.
    fn choose(&mut self) -> Result<(), ReadError> {
        self.block.wanted.clear();
        self.block.stretches.clear();
        self.block.records.clear();
        let mut filled = 0;
        while let Some(&Reverse((place, index))) = self.next.peek() {
            let cursor = &self.cursors[index];
            let size_bytes = u64::from(cursor.entries[cursor.taken].size_bytes);
            let end = cursor.entries[cursor.taken].end();
            let joined = self.block.stretches.last().filter(|stretch| stretch.joins(place, end)).copied();
            let more = joined.map_or(size_bytes, |stretch| end - stretch.end()) as usize;
            let is_full =
                self.block.wanted.len() == BLOCK_RECORDS || filled + more > self.options.block_bytes;
            if is_full && !self.block.wanted.is_empty() {
                break;
            }
            let Some((index, entry)) = self.take()? else { break };
            let file_end = match joined {
                Some(stretch) => Some(stretch.file_end),
                None => self.log.file_end(place)?,
            };
            let Some(file_end) = file_end.filter(|&file_end| end <= file_end) else {
                self.miss(index, &entry, "no log file contains the record")?;
                continue;
            };
            // Check before memory is allocated: a damaged entry may state any length.
            if entry.size_bytes as usize > self.options.block_bytes && !self.has_its_size(&entry)? {
                self.miss(index, &entry, "the record has another length")?;
                continue;
            }
            self.block.want(
                index,
                entry,
                joined.is_some(),
                Stretch { at: place, start: filled, size_bytes: more, file_end },
            );
            filled += more;
        }
        Ok(())
    }

    /// Whether the record has the length that its entry states.
    fn has_its_size(&mut self, entry: &QueueEntry) -> Result<bool, ReadError> {
        let mut size = [0; 4];
        Ok(self.log.read(entry.physical_offset, &mut size)? && u32::from_be_bytes(size) == entry.size_bytes)
    }

    fn read_stretches(&mut self) -> Result<(), ReadError> {
        let block = &mut self.block;
        let filled = block.stretches.last().map_or(0, |last| last.start + last.size_bytes);
        if block.bytes.len() < filled {
            block.bytes.resize(filled.max(self.options.block_bytes), 0);
        }
        for stretch in &block.stretches {
            let into = &mut block.bytes[stretch.start..stretch.start + stretch.size_bytes];
            if !self.log.read(stretch.at, into)? {
                into.fill(0); // no record passes the check
                self.log.relist()?; // and those that retention took away are known as such
            }
        }
        Ok(())
    }

    fn check_records(&mut self) -> Result<(), ReadError> {
        let wanted = std::mem::take(&mut self.block.wanted);
        for &(index, entry, start) in &wanted {
            let end = start as usize + entry.size_bytes as usize;
            let bytes = &self.block.bytes[start as usize..end];
            let queue_id = self.cursors[index].queue.queue_id;
            let checked = check_head(bytes, &entry, queue_id).and_then(|_| self.verify(bytes, &entry));
            match checked {
                Ok(()) => self.block.records.push(BlockRecord {
                    range: index,
                    queue_offset: entry.queue_offset,
                    start,
                    size_bytes: entry.size_bytes,
                }),
                Err(reason) => self.miss(index, &entry, &reason)?,
            }
        }
        self.block.wanted = wanted;
        Ok(())
    }

    fn verify(&self, bytes: &[u8], entry: &QueueEntry) -> Result<(), String> {
        if !self.options.verify || ends_in_its_crc(bytes) {
            return Ok(());
        }
        let has_own = self.checked.contains(&entry.physical_offset);
        let mode = if has_own { CheckMode::RecordRequired } else { CheckMode::Record };
        check_record(bytes, mode).map(|_| ()).map_err(|error| error.to_string())
    }

    /// The error of a record of the block that the caller found damaged.
    ///
    /// # Errors
    /// When the log's folder cannot be read.
    ///
    /// # Panics
    /// When the record is not of this block.
    pub fn damaged(&mut self, record: &BlockRecord, reason: &str) -> Result<ReadError, ReadError> {
        let is_it = |(index, entry, _): &&(usize, QueueEntry, u32)| {
            (*index, entry.queue_offset) == (record.range, record.queue_offset)
        };
        let (index, entry, _) = *self.block.wanted.iter().find(is_it).expect("the record is of this block");
        self.broken(index, &entry, reason)
    }

    fn broken(&mut self, index: usize, entry: &QueueEntry, reason: &str) -> Result<ReadError, ReadError> {
        let path = self.log.path_at(entry.physical_offset)?;
        let queue = &self.cursors[index].queue;
        Ok(ReadError::BrokenRecord {
            topic: Arc::clone(&queue.topic),
            queue_id: queue.queue_id,
            queue_offset: entry.queue_offset,
            physical_offset: entry.physical_offset,
            path,
            reason: reason.to_owned(),
        })
    }

    /// A record that its entry leads to is not there, or is not that record.
    fn miss(&mut self, index: usize, entry: &QueueEntry, reason: &str) -> Result<(), ReadError> {
        let is_removed = entry.physical_offset < self.log.start();
        if !is_removed && self.options.missing == Missing::Fail {
            return Err(self.broken(index, entry, reason)?);
        }
        let reason = if is_removed { REMOVED } else { reason };
        self.note_missing(index, entry.queue_offset, entry.queue_offset + 1, reason)
    }

    fn note_missing(
        &mut self,
        index: usize,
        start: QueueOffset,
        end: QueueOffset,
        reason: &str,
    ) -> Result<(), ReadError> {
        if start >= end {
            return Ok(());
        }
        let queue = &self.cursors[index].queue;
        let (topic, queue_id) = (Arc::clone(&queue.topic), queue.queue_id);
        let range = MissingRange { topic, queue_id, start, end, reason: reason.to_owned() };
        if self.options.missing == Missing::Fail {
            return Err(ReadError::Missing { range });
        }
        match self.missing.last_mut() {
            Some(last) if last.is_continued_by(&range) => last.end = range.end,
            _ => self.missing.push(range),
        }
        Ok(())
    }
}

impl Stretch {
    fn end(&self) -> PhysicalOffset {
        self.at + self.size_bytes as u64
    }

    /// Whether a record is read along with the stretch: in the same file, after it and close.
    fn joins(&self, place: PhysicalOffset, end: PhysicalOffset) -> bool {
        place.checked_sub(self.end()).is_some_and(|gap| gap <= LARGEST_GAP_BYTES) && end <= self.file_end
    }
}

impl Block {
    /// Adds a record: at the end of the last stretch, or as a new one. `stretch` is what is read for it.
    fn want(&mut self, range: usize, entry: QueueEntry, joins: bool, stretch: Stretch) {
        let end = stretch.start + stretch.size_bytes;
        let start = end - entry.size_bytes as usize;
        match self.stretches.last_mut().filter(|_| joins) {
            Some(last) => last.size_bytes += stretch.size_bytes,
            None => self.stretches.push(stretch),
        }
        self.wanted.push((range, entry, u32::try_from(start).expect("a block is smaller than 4 GiB")));
    }
}
