//! The seam between the store and what holds its bytes.

use std::ffi::OsString;
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;

use crate::clock::LastReading;
use crate::error::EnvError;

/// What a store may do with a disk. Static dispatch: production pays nothing for the seam.
///
/// Paths are absolute or relative to the process; implementations take them as they are. A clone is the same disk.
pub trait Disk: Clone + Send + Sync + 'static {
    /// A mapped file of the commit log.
    type Region: Region;
    /// A file that is read and written by position.
    type File: DiskFile;
    /// A whole file system.
    type FileSystem: FileSystem;
    /// Held as long as the lock on a file is.
    type Lock: Send + Sync + 'static;

    /// Allocates a file of zeros, flushes it, gives it its name, flushes the folder, and maps it.
    ///
    /// # Errors
    /// [`EnvError::NoSpace`] leaves nothing behind; a retry is safe after every error.
    ///
    /// # Durability
    /// On return the file survives a power loss with its whole length allocated: writing into the map cannot meet a
    /// full disk.
    fn create_region(&self, path: &Path, len: u64) -> Result<Self::Region, EnvError> {
        self.create_region_while(path, len, &|| true)
    }

    /// [`Disk::create_region`], given up when the file is not wanted any more: zeros that have to be written take a while.
    ///
    /// # Errors
    /// Those of [`Disk::create_region`]; [`EnvError::Io`] of kind [`std::io::ErrorKind::Interrupted`] when it was given up.
    fn create_region_while(
        &self,
        path: &Path,
        len: u64,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<Self::Region, EnvError>;

    /// Maps an existing file; all of it counts as written.
    fn open_region(&self, path: &Path) -> Result<Self::Region, EnvError>;

    /// Opens a file for access by position.
    fn open_file(&self, path: &Path, mode: OpenMode) -> Result<Self::File, EnvError>;

    /// Replaces a file by temporary file, flush, rename and flush of the folder: it holds the old or the new bytes.
    fn replace(&self, path: &Path, bytes: &[u8]) -> Result<(), EnvError>;

    /// Like [`Disk::replace`], for a file that only its owner may read. A simulated disk has one owner.
    fn replace_privately(&self, path: &Path, bytes: &[u8]) -> Result<(), EnvError> {
        self.replace(path, bytes)
    }

    /// Like [`Disk::replace`]; the former content stays as `NAME.bak`, and an older backup stays if there is no file. There is a readable
    /// file at every moment. Callers must not replace a damaged file so: it would become the backup.
    fn replace_keeping_backup(&self, path: &Path, bytes: &[u8]) -> Result<(), EnvError>;

    /// Reads a whole file of at most `limit_bytes`.
    fn read(&self, path: &Path, limit_bytes: u64) -> Result<Vec<u8>, EnvError>;

    /// Gives a file or a folder another name on the same file system. The folders are not flushed.
    fn rename(&self, from: &Path, to: &Path) -> Result<(), EnvError>;

    /// Gives a file a second name on the same file system. The folder is not flushed.
    ///
    /// # Errors
    /// After every error but [`EnvError::NotFound`] and [`EnvError::AlreadyExists`] a copy serves as well.
    fn hard_link(&self, from: &Path, to: &Path) -> Result<(), EnvError>;

    /// Removes a file. The folder is not flushed.
    fn remove_file(&self, path: &Path) -> Result<(), EnvError>;

    /// Removes a folder with all it holds. The folder above is not flushed.
    fn remove_dir_all(&self, path: &Path) -> Result<(), EnvError>;

    /// Makes a folder with its parents. The folders above are not flushed.
    fn create_dir_all(&self, path: &Path) -> Result<(), EnvError>;

    /// Makes the names in a folder durable.
    ///
    /// # Errors
    /// The caller poisons, unless [`EnvError::is_of_opening`].
    fn sync_dir(&self, path: &Path) -> Result<(), EnvError>;

    /// Opens the file system of a folder, to make all of it durable at once.
    ///
    /// # Errors
    /// [`EnvError::Unsupported`] where such a flush would not report all errors: flush file by file then.
    fn open_file_system(&self, dir: &Path) -> Result<Self::FileSystem, EnvError>;

    /// The entries of a folder, sorted by name.
    fn list(&self, dir: &Path) -> Result<Vec<DirEntry>, EnvError>;

    /// Takes the lock on byte 0 of a file, made when missing, against other processes (Apache's POSIX lock too) and this one.
    ///
    /// # Errors
    /// [`EnvError::Locked`] at once when somebody has it.
    fn lock(&self, path: &Path) -> Result<Self::Lock, EnvError>;

    /// Takes a lock on a folder that exists, against other processes that take it and this one. It leaves no file in the folder.
    ///
    /// # Errors
    /// [`EnvError::Locked`] at once when somebody has it, [`EnvError::Unsupported`] where there is none, as on NFS.
    fn lock_folder(&self, path: &Path) -> Result<Self::Lock, EnvError>;

    /// Who has the lock of [`Disk::lock`] on a file, without taking it; `None` when nobody has, or there is no such file.
    fn lock_holder(&self, path: &Path) -> Result<Option<LockHolder>, EnvError>;

    /// Names the page cache that holds the files of a folder; `None` where that is not known. While the name stays the same, a
    /// process sees whatever earlier ones wrote, flushed or not, unless the disk fails. It changes with a power cut, with another
    /// mount, and for a copy of the folder.
    fn page_cache(&self, dir: &Path) -> Option<String>;

    /// Space of the file system that holds the path.
    fn usage(&self, path: &Path) -> Result<DiskUsage, EnvError>;

    /// The wall clock in milliseconds since 1970.
    fn now_ms(&self) -> i64;

    /// Time since a moment that stays the same while the process lives. It never steps, whatever is done to the wall clock.
    fn monotonic(&self) -> Duration;

    /// For frequent calls: may reuse a reading that is a fraction of a millisecond old.
    fn now_ms_near(&self, last: &mut LastReading) -> i64 {
        let _ = last;
        self.now_ms()
    }
}

/// A mapped file that only grows: what is written is published once and never changes.
///
/// Readers and the one writer need no lock between them, because readers see only published bytes.
pub trait Region: Send + Sync + 'static {
    /// Length of the file.
    fn len(&self) -> u64;

    /// Whether the file has no byte at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes published so far, from the start of the file.
    fn written(&self) -> u64;

    /// Copies the parts, one after the other, behind the written bytes. Then publishes `advance` bytes, at least as many as
    /// were copied, all at once. A process that is killed in the middle leaves whole parts, a piece of the next one in any order of
    /// its bytes, and nothing behind that.
    ///
    /// The bytes between the copied and the published ones keep what the file held.
    ///
    /// # Panics
    /// When `advance` is shorter than the parts or passes the end of the file, or when two threads append at once.
    fn append_parts(&self, parts: &[&[u8]], advance: u64);

    /// Prefetches about the next `bytes` behind the written ones into the processor's cache, so that an append does not wait
    /// for memory. Changes nothing.
    fn expect(&self, _bytes: u64) {}

    /// Prefetches published bytes into the processor's cache: they are about to be read. Changes nothing, and waits for nothing.
    fn expect_read(&self, _range: Range<u64>) {}

    /// [`Region::append_parts`] of one part.
    fn append(&self, bytes: &[u8], advance: u64) {
        self.append_parts(&[bytes], advance);
    }

    /// A view of published bytes for as long as the region is borrowed. What cannot be read is zero: see [`Region::check`].
    ///
    /// # Panics
    /// When the range is not published.
    fn view(&self, range: Range<u64>) -> &[u8];

    /// A reference-counted view: the file stays mapped until the last one is dropped. To be taken after [`Region::check`] of the
    /// range.
    ///
    /// # Panics
    /// When the range is not published.
    fn slice(&self, range: Range<u64>) -> Bytes;

    /// Reads one byte of each page of a published range, and says whether all bytes of the range that were read through a view
    /// are the file's. To be called after the bytes were read and before anything is done with them.
    ///
    /// # Errors
    /// [`EnvError::Unreadable`] names the first byte that is not; [`EnvError::NotFound`] when the file is gone and its map has
    /// bytes that cannot be read.
    fn check(&self, _range: Range<u64>) -> Result<(), EnvError> {
        Ok(())
    }

    /// The first byte that could not be read since the region was opened, as [`EnvError::Unreadable`].
    fn fault(&self) -> Option<EnvError> {
        None
    }

    /// How many bytes from the start of a range are in memory: reading them waits for no disk.
    fn resident(&self, range: Range<u64>) -> u64 {
        range.end - range.start
    }

    /// Takes back what was published behind `end`; recovery does this before anybody else reads.
    ///
    /// # Panics
    /// When a slice of the region is still held, or `end` is not published.
    fn rewind(&mut self, end: u64);

    /// Makes the range durable.
    ///
    /// # Errors
    /// The caller poisons: no later flush of these bytes may be believed.
    fn flush(&self, range: Range<u64>) -> Result<(), EnvError>;

    /// Brings pages of the range into memory for writing, so that an append does not wait for them. Best effort.
    fn fault_in(&self, range: Range<u64>);

    /// [`Region::fault_in`] for bytes that are flushed in small pieces. Brings the pages in one by one: pages that come in
    /// together are written together, up to a MiB for a small record. Writes their zeros out once: the first flush of
    /// allocated space takes a second write, by which the file system notes that the space is in use.
    ///
    /// # Errors
    /// A page could not be written; it may hold records that came meanwhile. The caller poisons, as after a flush.
    fn fault_in_written(&self, range: Range<u64>) -> Result<(), EnvError> {
        self.fault_in(range);
        Ok(())
    }
}

/// A file that is read and written by position; sparse files are fine.
pub trait DiskFile: Send + Sync + 'static {
    /// Length of the file.
    fn len(&self) -> Result<u64, EnvError>;

    /// Whether the file has no byte.
    fn is_empty(&self) -> Result<bool, EnvError> {
        Ok(self.len()? == 0)
    }

    /// Reads up to `buffer.len()` bytes; fewer only at the end of the file.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, EnvError>;

    /// Fills the buffer.
    ///
    /// # Errors
    /// [`EnvError::UnexpectedEnd`] when the file ends before.
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), EnvError>;

    /// Fills the buffer with bytes that are in memory; `false` when that would have to wait for the disk. Where the system does
    /// not tell, it waits.
    ///
    /// # Errors
    /// As [`DiskFile::read_exact_at`].
    fn read_in_memory_at(&self, offset: u64, buffer: &mut [u8]) -> Result<bool, EnvError> {
        self.read_exact_at(offset, buffer).map(|()| true)
    }

    /// Writes all bytes.
    fn write_all_at(&self, offset: u64, bytes: &[u8]) -> Result<(), EnvError>;

    /// Sets the length; new bytes are zeros that take no space.
    fn set_len(&self, len: u64) -> Result<(), EnvError>;

    /// Makes content and length durable.
    fn sync(&self) -> Result<(), EnvError>;

    /// Turns a range into zeros. With `keep_allocated` its space stays reserved, else it becomes a hole where that is
    /// possible. Bytes of a map of the file change as well.
    fn zero_range(&self, range: Range<u64>, keep_allocated: bool) -> Result<(), EnvError>;

    /// Gives a range space on the disk where it has none, and leaves its bytes as they are. After that, writing into a map of
    /// the file cannot meet a full disk.
    fn allocate(&self, range: Range<u64>) -> Result<(), EnvError>;

    /// How many names the file has; 1 where that is not known.
    fn link_count(&self) -> Result<u64, EnvError> {
        Ok(1)
    }

    /// First offset at or behind `offset` that may hold data, `None` when only a hole follows.
    fn next_data(&self, offset: u64) -> Result<Option<u64>, EnvError>;
}

/// How [`Disk::open_file`] opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// An existing file, for reading from front to back.
    Read,
    /// An existing file, for reading and writing here and there.
    Write,
    /// A file that is made when missing, for reading and writing.
    CreateOrWrite,
}

/// A file system, opened once and kept open. It reports every error of writing back since it was opened, even one that was already
/// reported to another program.
pub trait FileSystem: Send + Sync + 'static {
    /// Makes everything durable that was written so far: cheaper than many flushes of single files.
    ///
    /// # Errors
    /// The caller poisons.
    fn sync(&self) -> Result<(), EnvError>;
}

/// Who has a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockHolder {
    /// This process itself.
    ThisProcess,
    /// The process of this id.
    Process(u32),
    /// Another process whose id is not known.
    Unknown,
}

impl LockHolder {
    /// The id of the process, if it is another one whose id is known.
    pub fn pid(self) -> Option<u32> {
        match self {
            Self::Process(pid) => Some(pid),
            Self::ThisProcess | Self::Unknown => None,
        }
    }
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ThisProcess => f.write_str("this process"),
            Self::Process(pid) => write!(f, "process {pid}"),
            Self::Unknown => f.write_str("another process"),
        }
    }
}

/// One entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// Its name in the folder.
    pub name: OsString,
    /// What it is.
    pub kind: EntryKind,
    /// Length of a file, 0 for everything else.
    pub size_bytes: u64,
    /// When the content of a file last changed, in milliseconds since 1970; 0 for everything else, and where it is not known.
    pub modified_at_ms: i64,
}

/// What an entry of a folder is; symbolic links count as what they point to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// Anything else, such as a link.
    Other,
}

/// Space of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskUsage {
    /// The same number for the same file system, as far as the system tells.
    pub file_system: u64,
    /// Size of the file system in bytes.
    pub total_bytes: u64,
    /// Bytes that nobody has taken, including those that are reserved for the superuser.
    pub free_bytes: u64,
    /// Bytes that a process without privileges may still take.
    pub available_bytes: u64,
}

impl DiskUsage {
    /// Used space in percent of the space that this process may use, rounded up, as `df` counts it. 100 for a file system
    /// without any space.
    pub fn used_percent(&self) -> u64 {
        let used = self.total_bytes.saturating_sub(self.free_bytes);
        let whole = used.saturating_add(self.available_bytes);
        (u128::from(used) * 100).div_ceil(u128::from(whole).max(1)) as u64 + 100 * u64::from(whole == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_for_the_superuser_does_not_count() {
        let usage = |total_bytes, free_bytes, available_bytes| {
            DiskUsage { file_system: 1, total_bytes, free_bytes, available_bytes }.used_percent()
        };
        assert_eq!(usage(1000, 1000, 950), 0);
        assert_eq!(usage(1000, 505, 455), 53, "495 of 950, rounded up");
        assert_eq!(usage(1000, 50, 0), 100);
        assert_eq!(usage(u64::MAX, 1, 1), 100);
        assert_eq!(usage(0, 0, 0), 100);
    }
}
