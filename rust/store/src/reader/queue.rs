//! One consume queue, read by position.

use std::path::PathBuf;
use std::sync::Arc;

use rocketpy_env::Disk;
use rocketpy_model::QueueOffset;
use rocketpy_protocol::disk::ConsumeQueueEntry;

use super::files::StreamFiles;
use super::log::LogFiles;
use super::{QueueEntry, ReadError};
use crate::fetch::QueueBounds;

const ENTRY_BYTES: u64 = ConsumeQueueEntry::BYTES as u64;

/// A consume queue with the bounds that it had when it was opened.
pub(crate) struct QueueFiles<D: Disk> {
    pub files: StreamFiles<D>,
    pub topic: Arc<str>,
    pub queue_id: u32,
    pub bounds: QueueBounds,
}

impl<D: Disk> QueueFiles<D> {
    pub fn open(
        disk: Arc<D>,
        dir: PathBuf,
        topic: Arc<str>,
        queue_id: u32,
        log: &mut LogFiles<D>,
    ) -> Result<Self, ReadError> {
        let files = StreamFiles::list(disk, dir)?;
        let bounds = QueueBounds { min: QueueOffset(0), max: QueueOffset(0) };
        let mut queue = Self { files, topic, queue_id, bounds };
        queue.find_bounds(log)?;
        Ok(queue)
    }

    fn find_bounds(&mut self, log: &mut LogFiles<D>) -> Result<(), ReadError> {
        let (Some(first), Some(last)) =
            (self.files.files().first().copied(), self.files.files().last().copied())
        else {
            return Ok(());
        };
        let from = first.start / ENTRY_BYTES;
        let file_from = last.start / ENTRY_BYTES;
        let file_to = file_from + last.size_bytes / ENTRY_BYTES;
        let mut max = self.partition_point(file_from, file_to, |entry| Ok(Some(entry.is_some())))?;
        // Entries may have reached the disk before a crash without their records: those are not there. What was durable is
        // not given up like that, it is missed when it is read.
        while max > from && !self.has_record(max - 1, log)? {
            max -= 1;
        }
        let log_start = log.start();
        let min = self.partition_point(from, max, |entry| {
            Ok(entry.filter(|entry| !entry.is_filler()).map(|entry| entry.physical_offset < log_start))
        })?;
        self.bounds = QueueBounds { min: QueueOffset(min), max: QueueOffset(max) };
        Ok(())
    }

    fn has_record(&mut self, number: u64, log: &mut LogFiles<D>) -> Result<bool, ReadError> {
        let Some(entry) = self.entry(QueueOffset(number))? else {
            return Ok(false);
        };
        // What retention took away was there once, and counts as the former end of the queue.
        let is_removed = entry.physical_offset < log.start();
        Ok(entry.is_filler()
            || is_removed
            || log.stored_at_ms(&entry, self.queue_id)?.is_some()
            || log.must_hold(entry.physical_offset)?)
    }

    /// First entry that the first file has room for; 0 without any file.
    pub fn first(&self) -> u64 {
        self.files.start().unwrap_or(0) / ENTRY_BYTES
    }

    /// The first entry of the bounds whose record was stored at or after a time; their end when there is none.
    ///
    /// # Source
    /// spec/store.md 11.6, boundary `lower`.
    pub fn at_time(&mut self, at_ms: i64, log: &mut LogFiles<D>) -> Result<QueueOffset, ReadError> {
        let (min, max) = (self.bounds.min.get(), self.bounds.max.get());
        let queue_id = self.queue_id;
        let found = self.partition_point(min, max, |entry| match entry {
            Some(entry) => Ok(log.stored_at_ms(&entry, queue_id)?.map(|stored_at| stored_at < at_ms)),
            None => Ok(None),
        })?;
        Ok(QueueOffset(found))
    }

    /// The first number in `from..to` whose entry is not "before"; `to` when all are.
    ///
    /// `is_before` gives `None` for an entry that says nothing; then the nearest one to the left speaks for it, so that a
    /// hole hides nothing but itself.
    fn partition_point(
        &mut self,
        from: u64,
        to: u64,
        mut is_before: impl FnMut(Option<QueueEntry>) -> Result<Option<bool>, ReadError>,
    ) -> Result<u64, ReadError> {
        let (mut low, mut high) = (from, to);
        while low < high {
            let middle = low + (high - low) / 2;
            let mut probe = middle;
            let answer = loop {
                let entry = self.entry(QueueOffset(probe))?;
                let answer = is_before(entry)?;
                if answer.is_some() || probe == low {
                    break answer;
                }
                probe -= 1;
            };
            match answer {
                Some(false) => high = probe,
                Some(true) | None => low = middle + 1,
            }
        }
        Ok(low)
    }

    /// The first number in `from..to` whose record lies at or behind a place of the log.
    pub fn at_place(
        &mut self,
        place: u64,
        from: QueueOffset,
        to: QueueOffset,
    ) -> Result<QueueOffset, ReadError> {
        let found = self.partition_point(from.get(), to.get(), |entry| {
            Ok(entry.filter(|entry| !entry.is_filler()).map(|entry| entry.physical_offset.get() < place))
        })?;
        Ok(QueueOffset(found))
    }

    /// One entry; `None` when nothing is written there.
    pub fn entry(&mut self, offset: QueueOffset) -> Result<Option<QueueEntry>, ReadError> {
        let mut bytes = [0; ConsumeQueueEntry::BYTES];
        let Some(position) = position(offset) else {
            return Ok(None);
        };
        if !self.files.read(position, &mut bytes)? {
            return Ok(None);
        }
        Ok(QueueEntry::decode(offset, &bytes))
    }

    /// Appends entries from `from` on, at most `count` and not past the end of a file; a filler stands for one that is
    /// not written. Returns how many, none when their file is gone.
    pub fn entries(
        &mut self,
        from: QueueOffset,
        count: u64,
        buffer: &mut Vec<u8>,
        out: &mut Vec<QueueEntry>,
    ) -> Result<u64, ReadError> {
        let Some(position) = position(from) else {
            return Ok(0);
        };
        let Some(file) = self.files.find(position)? else {
            return Ok(0);
        };
        let room = (file.start + file.size_bytes - position) / ENTRY_BYTES;
        let count = count.min(room);
        buffer.resize((count * ENTRY_BYTES) as usize, 0);
        if !self.files.read(position, buffer)? {
            return Ok(0);
        }
        let numbered = buffer.as_chunks::<{ ConsumeQueueEntry::BYTES }>().0.iter().zip(from.get()..);
        out.extend(numbered.map(|(bytes, number)| {
            let offset = QueueOffset(number);
            QueueEntry::decode(offset, bytes).unwrap_or(QueueEntry::filler(offset))
        }));
        Ok(count)
    }

    /// First number behind `from` that lies in a file that is still there.
    pub fn next_file(&mut self, from: QueueOffset) -> Result<Option<QueueOffset>, ReadError> {
        self.files.relist()?;
        let starts = self.files.files().iter().map(|file| file.start / ENTRY_BYTES);
        Ok(starts.filter(|&start| start > from.get()).min().map(QueueOffset))
    }
}

/// Where an entry lies in its queue; `None` for a number that no queue reaches.
fn position(offset: QueueOffset) -> Option<u64> {
    offset.get().checked_mul(ENTRY_BYTES).filter(|&position| i64::try_from(position).is_ok())
}

impl QueueEntry {
    /// `None` when the bytes are no entry: one that was not written is all zero.
    fn decode(queue_offset: QueueOffset, bytes: &[u8; ConsumeQueueEntry::BYTES]) -> Option<Self> {
        let ConsumeQueueEntry { physical_offset, size_bytes, tags_code } = ConsumeQueueEntry::decode(bytes);
        let is_entry = physical_offset.to_wire() >= 0 && size_bytes.cast_signed() > 0;
        is_entry.then_some(Self { queue_offset, physical_offset, size_bytes, tags_code })
    }

    const fn filler(queue_offset: QueueOffset) -> Self {
        let ConsumeQueueEntry { physical_offset, size_bytes, tags_code } = ConsumeQueueEntry::PRE_BLANK;
        Self { queue_offset, physical_offset, size_bytes, tags_code }
    }

    /// Whether it only fills a place: before the first entry of a queue that does not start at 0.
    pub(crate) const fn is_filler(&self) -> bool {
        self.physical_offset.get() == 0 && self.size_bytes == ConsumeQueueEntry::PRE_BLANK.size_bytes
    }
}
