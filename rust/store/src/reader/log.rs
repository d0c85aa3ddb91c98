//! The commit log, read by position.

use std::path::PathBuf;
use std::sync::Arc;

use rocketpy_env::Disk;
use rocketpy_model::PhysicalOffset;
use rocketpy_protocol::record::{MAGIC_V1, RecordHead};

use super::condition::Condition;
use super::files::StreamFiles;
use super::{QueueEntry, ReadError};
use crate::folder::NumberedFile;

/// The commit log of a folder.
pub struct LogFiles<D: Disk> {
    /// Its files.
    pub files: StreamFiles<D>,
    /// Checkpoint and abort file, read before the files were listed.
    pub condition: Condition,
    known: Known,
}

/// Facts about the log before it is read.
#[derive(Debug, Clone, Copy)]
enum Known {
    /// It was durable before this offset.
    DurableTo(PhysicalOffset),
    /// It was closed in order by a program that noted no offset: the last record was stored at this time or later.
    StoredTo(i64),
}

/// Bytes that a walk over the log reads at once.
const WALK_BYTES: usize = 256 << 10;

impl<D: Disk> LogFiles<D> {
    /// Lists the files; `condition` was read before.
    pub(crate) fn list(disk: Arc<D>, dirs: Vec<PathBuf>, condition: Condition) -> Result<Self, ReadError> {
        let files = StreamFiles::list_all(disk, dirs)?;
        let mut log = Self { files, condition, known: Known::DurableTo(PhysicalOffset::ZERO) };
        log.known = match condition.mark {
            Some(mark) => Known::DurableTo(mark.log_to),
            None if !condition.is_dirty => Known::StoredTo(condition.timestamps.physic_msg_at_ms),
            None => Known::DurableTo(log.start_file(condition.timestamps.min_timestamp_ms())?),
        };
        Ok(log)
    }

    /// Whether a record must be there, because the log was durable beyond it. If it is not, it was damaged or lost.
    /// Behind that point a record may never have been written.
    ///
    /// # Source
    /// docs/durability.md R4.
    pub(crate) fn must_hold(&mut self, at: PhysicalOffset) -> Result<bool, ReadError> {
        if let Known::StoredTo(stored_to_ms) = self.known {
            let (end, last_stored_at_ms) = self.walk_to_end()?;
            let is_whole = last_stored_at_ms >= stored_to_ms;
            self.known = Known::DurableTo(if is_whole { end } else { PhysicalOffset::MAX });
        }
        Ok(matches!(self.known, Known::DurableTo(end) if at < end))
    }

    /// Start of the file from which another program's abnormal recovery would read: what is before it was durable.
    ///
    /// # Source
    /// docs/reference/store-format.md 5.8 step 2.
    fn start_file(&mut self, min_timestamp_ms: i64) -> Result<PhysicalOffset, ReadError> {
        let starts: Vec<_> = self.files.files().iter().map(|file| PhysicalOffset(file.start)).collect();
        for &start in starts.iter().skip(1).rev() {
            let mut bytes = [0; RecordHead::BYTES];
            let head = self.read(start, &mut bytes)?.then(|| head_at(&bytes, start)).flatten();
            if head.is_some_and(|head| (1..=min_timestamp_ms).contains(&head.stored_at_ms())) {
                return Ok(start);
            }
        }
        Ok(self.start())
    }

    /// End of the records that follow each other from the start of the last file that has one, and when the last of them was
    /// stored.
    fn walk_to_end(&mut self) -> Result<(PhysicalOffset, i64), ReadError> {
        let files = self.files.files().to_vec();
        let mut buffer = Vec::new();
        for file in files.iter().rev() {
            let (mut at, mut last_stored_at_ms) = (PhysicalOffset(file.start), None);
            let file_end = PhysicalOffset(file.end());
            while at < file_end {
                buffer.resize(WALK_BYTES.min((file_end - at) as usize), 0);
                if !self.read(at, &mut buffer)? {
                    break;
                }
                let from = at;
                let head = |at: PhysicalOffset| {
                    let head = buffer.get((at - from) as usize..).and_then(|bytes| head_at(bytes, at))?;
                    (u64::from(head.size_bytes()) <= file_end - at).then_some(head)
                };
                while let Some(head) = head(at) {
                    last_stored_at_ms = Some(head.stored_at_ms());
                    at += u64::from(head.size_bytes());
                }
                if at == from {
                    break;
                }
            }
            if let Some(last_stored_at_ms) = last_stored_at_ms {
                return Ok((at, last_stored_at_ms));
            }
        }
        Ok((self.start(), 0))
    }

    /// First byte that is still there.
    pub fn start(&self) -> PhysicalOffset {
        PhysicalOffset(self.files.start().unwrap_or(0))
    }

    /// Whether the log never had a record: its first file is missing, or begins with zeros.
    ///
    /// # Errors
    /// When a file operation fails.
    pub fn is_empty(&mut self) -> Result<bool, ReadError> {
        let mut bytes = [0; 8];
        Ok(self.start() == PhysicalOffset::ZERO
            && (!self.read(PhysicalOffset::ZERO, &mut bytes)? || bytes == [0; 8]))
    }

    /// The end of the last file.
    pub fn end_of_files(&self) -> PhysicalOffset {
        PhysicalOffset(self.files.files().last().map_or(0, NumberedFile::end))
    }

    /// Where files are missing between two others: from and to.
    pub fn holes(&self) -> Vec<(PhysicalOffset, PhysicalOffset)> {
        self.files.holes().into_iter().map(|(from, to)| (PhysicalOffset(from), PhysicalOffset(to))).collect()
    }

    pub(crate) fn relist(&mut self) -> Result<(), ReadError> {
        self.files.relist()
    }

    /// Position behind the file that holds an offset; `None` when no file does.
    pub fn file_end(&mut self, at: PhysicalOffset) -> Result<Option<PhysicalOffset>, ReadError> {
        Ok(self.files.find(at.get())?.map(|file| PhysicalOffset(file.end())))
    }

    /// How far an offset is from the start of its file; 0 when no file holds it.
    pub fn file_offset(&mut self, at: PhysicalOffset) -> Result<u64, ReadError> {
        Ok(self.files.find(at.get())?.map_or(0, |file| at.get() - file.start))
    }

    /// The file that holds an offset; the log's folder when none does.
    pub fn path_at(&mut self, at: PhysicalOffset) -> Result<PathBuf, ReadError> {
        self.files.path_at(at.get())
    }

    /// Fills the buffer; false when the bytes are not there.
    pub(crate) fn read(&mut self, at: PhysicalOffset, buffer: &mut [u8]) -> Result<bool, ReadError> {
        self.files.read(at.get(), buffer)
    }

    /// When the record of an entry was stored, in milliseconds; `None` when it is not there.
    pub fn stored_at_ms(&mut self, entry: &QueueEntry, queue_id: u32) -> Result<Option<i64>, ReadError> {
        let mut bytes = [0; RecordHead::BYTES];
        if entry.is_filler() || !self.read(entry.physical_offset, &mut bytes)? {
            return Ok(None);
        }
        Ok(check_head(&bytes, entry, queue_id).ok().map(|head| head.stored_at_ms()))
    }
}

/// The head of the record at an offset, if one is there.
fn head_at(bytes: &[u8], at: PhysicalOffset) -> Option<RecordHead<'_>> {
    RecordHead::of(bytes).filter(|head| {
        head.is_record()
            && head.physical_offset() == at
            && head.size_bytes() as usize >= RecordHead::BYTES
            && i32::try_from(head.size_bytes()).is_ok()
    })
}

/// Checks that bytes begin like the record that an entry names. Every read makes this cheap check.
///
/// # Errors
/// The difference: what was found, and what was expected.
pub(crate) fn check_head<'a>(
    bytes: &'a [u8],
    entry: &QueueEntry,
    queue_id: u32,
) -> Result<RecordHead<'a>, String> {
    let QueueEntry { queue_offset, physical_offset, size_bytes, .. } = *entry;
    let head = RecordHead::of(bytes).filter(|_| size_bytes as usize >= RecordHead::BYTES);
    let Some(head) = head else {
        return Err(format!("it has {size_bytes} bytes, a record at least: {}", RecordHead::BYTES));
    };
    if !head.is_record() {
        return Err(format!("its magic is {:#010x}, a record's: {MAGIC_V1:#010x}", head.magic()));
    }
    let expect = |what: &str, found: u64, expected: u64| match found == expected {
        true => Ok(()),
        false => Err(format!("its {what} is {found}, expected: {expected}")),
    };
    expect("size", head.size_bytes().into(), size_bytes.into())?;
    expect("physical offset", head.physical_offset().get(), physical_offset.get())?;
    expect("queue id", head.queue_id().into(), queue_id.into())?;
    expect("queue offset", head.queue_offset().get(), queue_offset.get())?;
    Ok(head)
}
