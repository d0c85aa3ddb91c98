//! The commit log, read by position.

use std::path::PathBuf;
use std::sync::Arc;

use rocketpy_env::Disk;
use rocketpy_model::{PhysicalOffset, sys_flag};
use rocketpy_protocol::record::{
    FIXED_BYTES_V1, MAGIC_V1, MAGIC_V2, PHYSICAL_OFFSET_AT, QUEUE_OFFSET_AT, STORED_AT_AT_V4,
    STORED_AT_AT_V6, SYS_FLAG_AT,
};

use super::files::StreamFiles;
use super::{QueueEntry, ReadError};

/// The commit log of a folder.
pub(super) struct LogFiles<D: Disk> {
    files: StreamFiles<D>,
}

/// Where a record's queue id stands.
const QUEUE_ID_AT: usize = 12;

impl<D: Disk> LogFiles<D> {
    pub fn list(disk: Arc<D>, dir: PathBuf) -> Result<Self, ReadError> {
        Ok(Self { files: StreamFiles::list(disk, dir)? })
    }

    /// First byte that is still there.
    pub fn start(&self) -> PhysicalOffset {
        PhysicalOffset(self.files.start().unwrap_or(0))
    }

    /// Looks at the folder again.
    pub fn relist(&mut self) -> Result<(), ReadError> {
        self.files.relist()
    }

    /// Position behind the file that holds an offset; `None` when no file does.
    pub fn file_end(&mut self, at: PhysicalOffset) -> Result<Option<u64>, ReadError> {
        Ok(self.files.find(at.get())?.map(|file| file.start.saturating_add(file.size_bytes)))
    }

    /// The file that holds an offset; the log's folder when none does.
    pub fn path_at(&mut self, at: PhysicalOffset) -> Result<PathBuf, ReadError> {
        self.files.path_at(at.get())
    }

    /// Fills the buffer; false when the bytes are not there.
    pub fn read(&mut self, at: PhysicalOffset, buffer: &mut [u8]) -> Result<bool, ReadError> {
        self.files.read(at.get(), buffer)
    }

    /// When the record of an entry was stored, in milliseconds; `None` when it is not there.
    pub fn stored_at_ms(&mut self, entry: &QueueEntry, queue_id: u32) -> Result<Option<i64>, ReadError> {
        let mut head = [0; FIXED_BYTES_V1];
        if entry.is_filler() || !self.read(entry.physical_offset, &mut head)? {
            return Ok(None);
        }
        if check_head(&head, entry, queue_id).is_err() {
            return Ok(None);
        }
        let flags = int32(&head, SYS_FLAG_AT).cast_signed();
        let at = if flags & sys_flag::BORN_HOST_V6 == 0 { STORED_AT_AT_V4 } else { STORED_AT_AT_V6 };
        Ok(Some(int64(&head, at).cast_signed()))
    }
}

/// Whether bytes begin like the record that an entry names: the cheap check that every read makes.
///
/// # Errors
/// What differs: what was found, what was expected.
pub(super) fn check_head(head: &[u8], entry: &QueueEntry, queue_id: u32) -> Result<(), String> {
    let QueueEntry { queue_offset, physical_offset, size_bytes, .. } = *entry;
    if head.len() < FIXED_BYTES_V1 || size_bytes < FIXED_BYTES_V1 as u32 {
        return Err(format!("it has {size_bytes} bytes, a record at least: {FIXED_BYTES_V1}"));
    }
    let magic = int32(head, 4);
    if !matches!(magic, MAGIC_V1 | MAGIC_V2) {
        return Err(format!("its magic is {magic:#010x}, a record's: {MAGIC_V1:#010x}"));
    }
    let expect = |what: &str, found: u64, expected: u64| match found == expected {
        true => Ok(()),
        false => Err(format!("its {what} is {found}, expected: {expected}")),
    };
    expect("size", int32(head, 0).into(), size_bytes.into())?;
    expect("physical offset", int64(head, PHYSICAL_OFFSET_AT), physical_offset.get())?;
    expect("queue id", int32(head, QUEUE_ID_AT).into(), queue_id.into())?;
    expect("queue offset", int64(head, QUEUE_OFFSET_AT), queue_offset.get())
}

#[inline]
fn int32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |chunk| u32::from_be_bytes(*chunk))
}

#[inline]
fn int64(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |chunk| u64::from_be_bytes(*chunk))
}
