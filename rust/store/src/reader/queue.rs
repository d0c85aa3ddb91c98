//! One consume queue, read by position.

use std::path::PathBuf;
use std::sync::Arc;

use rocketpy_env::Disk;
use rocketpy_model::{PhysicalOffset, QueueOffset};
use rocketpy_protocol::disk::ConsumeQueueEntry;

use super::files::StreamFiles;
use super::log::LogFiles;
use super::{QueueEntry, ReadError};
use crate::fetch::QueueBounds;
use crate::queue::entry::{self, ENTRY_BYTES, Window, entry_at, partition_point};

/// A consume queue with the bounds that it had when it was opened.
pub struct QueueFiles<D: Disk> {
    /// Its files.
    pub files: StreamFiles<D>,
    window: Window,
    /// Topic of the queue.
    pub topic: Arc<str>,
    /// Queue within the topic.
    pub queue_id: u32,
    /// Its first and next offset when it was opened.
    pub bounds: QueueBounds,
}

impl<D: Disk> QueueFiles<D> {
    pub(crate) fn open(
        disk: Arc<D>,
        dir: PathBuf,
        topic: Arc<str>,
        queue_id: u32,
        log: &mut LogFiles<D>,
    ) -> Result<Self, ReadError> {
        let files = StreamFiles::list(disk, dir)?;
        let bounds = QueueBounds { min: QueueOffset(0), max: QueueOffset(0) };
        let mut queue = Self { files, window: Window::default(), topic, queue_id, bounds };
        queue.find_bounds(log)?;
        Ok(queue)
    }

    fn find_bounds(&mut self, log: &mut LogFiles<D>) -> Result<(), ReadError> {
        let (Some(first), Some(last)) =
            (self.files.files().first().copied(), self.files.files().last().copied())
        else {
            return Ok(());
        };
        let from = entry_at(first.start);
        let file_from = entry_at(last.start);
        let file_to = file_from + last.size_bytes / ENTRY_BYTES;
        let mut max = partition_point(file_from, file_to, |number| {
            Ok::<_, ReadError>(Some(self.entry(number)?.is_some()))
        })?;
        // Before a crash entries may have reached the disk without their records. They are dropped here. A record that
        // was durable is not dropped: the read reports it as missing.
        while max > from && !self.has_record(max - 1, log)? {
            max = max - 1;
        }
        let log_start = log.start();
        let min = self.at_place(log_start, from, max)?;
        self.bounds = QueueBounds { min, max };
        Ok(())
    }

    fn has_record(&mut self, number: QueueOffset, log: &mut LogFiles<D>) -> Result<bool, ReadError> {
        let Some(entry) = self.entry(number)? else {
            return Ok(false);
        };
        // Retention removed what was there: that is the former end of the queue.
        let is_removed = entry.physical_offset < log.start();
        Ok(entry.is_filler()
            || is_removed
            || log.stored_at_ms(&entry, self.queue_id)?.is_some()
            || log.must_hold(entry.physical_offset)?)
    }

    /// The end of the record that the last entry leads to; 0 when there is none.
    pub fn end_of_last(&mut self) -> Result<PhysicalOffset, ReadError> {
        let QueueBounds { min, max } = self.bounds;
        let last = if max > min { self.entry(max - 1)? } else { None };
        Ok(last.filter(|entry| !entry.is_filler()).map_or(PhysicalOffset::ZERO, |entry| entry.end()))
    }

    /// First entry that the first file has room for; 0 without any file.
    pub fn first(&self) -> QueueOffset {
        entry_at(self.files.start().unwrap_or(0))
    }

    /// The first entry of the bounds whose record was stored at or after a time; their end when there is none.
    ///
    /// # Source
    /// docs/reference/store-format.md 11.6, boundary `lower`.
    pub(crate) fn at_time(&mut self, at_ms: i64, log: &mut LogFiles<D>) -> Result<QueueOffset, ReadError> {
        let QueueBounds { min, max } = self.bounds;
        partition_point(min, max, |number| match self.entry(number)? {
            Some(entry) => Ok(log.stored_at_ms(&entry, self.queue_id)?.map(|stored_at| stored_at < at_ms)),
            None => Ok(None),
        })
    }

    /// The first number in `from..to` whose record is at or behind a place of the log.
    pub fn at_place(
        &mut self,
        place: PhysicalOffset,
        from: QueueOffset,
        to: QueueOffset,
    ) -> Result<QueueOffset, ReadError> {
        partition_point(from, to, |number| {
            let entry = self.entry(number)?.filter(|entry| !entry.is_filler());
            Ok(entry.map(|entry| entry.physical_offset < place))
        })
    }

    /// One entry; `None` when nothing is written there.
    pub fn entry(&mut self, offset: QueueOffset) -> Result<Option<QueueEntry>, ReadError> {
        let Some(position) = position(offset) else {
            return Ok(None);
        };
        let Some(file) = self.files.find(position)? else {
            return Ok(None);
        };
        let entry = self.window.entry(offset, entry_at(file.start), |first, count, bytes| {
            bytes.resize((count * ENTRY_BYTES) as usize, 0);
            self.files.read(entry::position(first), bytes)
        })?;
        Ok(entry.map(|entry| QueueEntry::new(offset, entry)))
    }

    /// Reads up to `count` entries from `from` on, not past the end of a file, and appends them. A filler replaces an
    /// entry that is not written. Returns how many; 0 when their file is gone.
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
            QueueEntry::new(QueueOffset(number), entry::decode(bytes).unwrap_or(ConsumeQueueEntry::PRE_BLANK))
        }));
        Ok(count)
    }

    /// First number behind `from` that is in a file that is still there.
    pub fn next_file(&mut self, from: QueueOffset) -> Result<Option<QueueOffset>, ReadError> {
        self.files.relist()?;
        let starts = self.files.files().iter().map(|file| entry_at(file.start));
        Ok(starts.filter(|&start| start > from).min())
    }
}

/// Where an entry is in its queue; `None` for a number that no queue reaches.
fn position(offset: QueueOffset) -> Option<u64> {
    offset.get().checked_mul(ENTRY_BYTES).filter(|&position| i64::try_from(position).is_ok())
}

impl QueueEntry {
    const fn new(queue_offset: QueueOffset, entry: ConsumeQueueEntry) -> Self {
        let ConsumeQueueEntry { physical_offset, size_bytes, tags_code } = entry;
        Self { queue_offset, physical_offset, size_bytes, tags_code }
    }

    /// The end of its record. An entry may hold any bytes: this does not overflow.
    pub const fn end(&self) -> PhysicalOffset {
        PhysicalOffset(self.physical_offset.get().saturating_add(self.size_bytes as u64))
    }

    /// Whether it is a filler: an entry before the first one of a queue that does not start at 0.
    pub const fn is_filler(&self) -> bool {
        self.physical_offset.get() == 0 && self.size_bytes == ConsumeQueueEntry::PRE_BLANK.size_bytes
    }
}
