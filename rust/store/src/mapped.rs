//! The mapped files of the commit log.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::RwLock;
use rocketpy_env::planted::{self, Bug};
use rocketpy_env::{Disk, DiskFile, EnvError, OpenMode, Region};
use rocketpy_model::PhysicalOffset;

use crate::error::{DispatchError, StoreError};
use crate::folder::{NumberedFile, file_name, numbered_files};

/// One file of the commit log, mapped whole.
#[doc(alias = "DefaultMappedFile")]
#[derive(Debug)]
pub(crate) struct MappedFile<R> {
    /// Offset of its first byte: its name.
    pub start: PhysicalOffset,
    pub region: R,
    pub path: PathBuf,
}

impl<R: Region> MappedFile<R> {
    /// Offset after its last byte.
    pub(crate) fn end(&self) -> PhysicalOffset {
        self.start + self.region.len()
    }

    /// Offset after the last byte that is written.
    pub(crate) fn wrote(&self) -> PhysicalOffset {
        self.start + self.region.written()
    }

    pub(crate) fn holds(&self, offset: PhysicalOffset) -> bool {
        (self.start..self.end()).contains(&offset)
    }

    /// What is written of the file from an offset on.
    pub(crate) fn written_from(&self, offset: PhysicalOffset) -> &[u8] {
        self.region.view(offset - self.start..self.region.written())
    }

    /// Says whether bytes that were seen of a part of the file are what the file holds: see [`Region::check`].
    ///
    /// # Errors
    /// [`DispatchError::Damage`] with the first place that cannot be read.
    #[inline]
    pub(crate) fn check(&self, from: PhysicalOffset, to: PhysicalOffset) -> Result<(), DispatchError> {
        self.region.check(from - self.start..to - self.start).map_err(|error| self.unreadable(error))
    }

    #[cold]
    fn unreadable(&self, error: EnvError) -> DispatchError {
        match error {
            EnvError::Unreadable { path, offset, source } => DispatchError::Damage {
                path,
                physical_offset: self.start + offset,
                reason: format!("the file cannot be read: {source}"),
            },
            other => DispatchError::Env(other),
        }
    }

    /// Writes bytes in place as they are.
    ///
    /// After a flush that failed, Linux counts the pages as written although the disk does not have them: a flush of
    /// such pages succeeds and does nothing. Whether the last process saw that is not known.
    ///
    /// # Source
    /// docs/durability.md R1.
    pub(crate) fn write_again<D: Disk<Region = R>>(
        &self,
        disk: &D,
        range: Range<u64>,
    ) -> Result<(), EnvError> {
        if planted::has(Bug::NotWrittenAgain) {
            return Ok(());
        }
        let handle = disk.open_file(&self.path, OpenMode::Write)?;
        let mut copy = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let end = range.end.min(at + (1 << 20));
            copy.clear();
            copy.extend_from_slice(self.region.view(at..end));
            self.region.check(at..end)?; // else zeros would be written over what cannot be read
            handle.write_all_at(at, &copy)?;
            at = end;
        }
        Ok(())
    }
}

/// Fails when a file has a page that somebody looked at and that cannot be read: zeros were seen in its place.
///
/// # Errors
/// [`EnvError::Unreadable`].
pub(crate) fn check_readable<R: Region>(files: &[MappedFile<R>]) -> Result<(), EnvError> {
    files.iter().find_map(|file| file.region.fault()).map_or(Ok(()), Err)
}

/// The files of the commit log in order, each of the same size.
#[derive(Debug)]
pub(crate) struct MappedFileQueue<D: Disk> {
    pub disk: Arc<D>,
    /// Folders that get new files, sorted.
    writable: Vec<PathBuf>,
    /// Those of them that get no new file while another folder may.
    full: RwLock<Vec<PathBuf>>,
    pub file_size: u64,
    files: RwLock<Vec<Arc<MappedFile<D::Region>>>>,
}

impl<D: Disk> MappedFileQueue<D> {
    pub(crate) fn new(
        disk: Arc<D>,
        writable: Vec<PathBuf>,
        file_size: u64,
        files: Vec<MappedFile<D::Region>>,
    ) -> Self {
        let files = files.into_iter().map(Arc::new).collect();
        Self { disk, writable, full: RwLock::default(), file_size, files: RwLock::new(files) }
    }

    /// Folders that get new files.
    pub(crate) fn writable(&self) -> &[PathBuf] {
        &self.writable
    }

    /// Sets the folders that get no new file while another one may.
    pub(crate) fn set_full_folders(&self, full: &[PathBuf]) {
        *self.full.write() = full.to_vec();
    }

    /// Makes the file that starts at an offset, durable and mapped; it is not part of the log yet. A folder without space
    /// is left out when there is another.
    pub(crate) fn create(
        &self,
        start: PhysicalOffset,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<MappedFile<D::Region>, EnvError> {
        let mut full = self.full.read().clone();
        loop {
            let dir =
                folder_for(start, self.file_size, &self.writable, &full).expect("some folder is writable");
            let path = dir.join(file_name(start.get()));
            match self.disk.create_region_while(&path, self.file_size, is_wanted) {
                Err(EnvError::NoSpace { .. })
                    if self.writable.iter().any(|other| other != dir && !full.contains(other)) =>
                {
                    tracing::warn!(path = %path.display(), "no space for a commit log file in this folder, trying another one");
                    full.push(dir.clone());
                }
                made => return made.map(|region| MappedFile { start, region, path }),
            }
        }
    }

    /// Takes the first file out of the log, if it starts there and is not the last. Who holds it keeps it mapped.
    pub(crate) fn forget_first(&self, start: PhysicalOffset) {
        let mut files = self.files.write();
        if files.len() > 1 && files[0].start == start {
            files.remove(0);
        }
    }

    pub(crate) fn all(&self) -> Vec<Arc<MappedFile<D::Region>>> {
        self.files.read().clone()
    }

    /// Adds the next file.
    ///
    /// # Panics
    /// When it does not follow the last one.
    pub(crate) fn push(&self, file: Arc<MappedFile<D::Region>>) {
        let mut files = self.files.write();
        assert!(files.last().is_none_or(|last| last.end() == file.start), "log file out of order");
        files.push(file);
    }

    /// The file that holds an offset.
    pub(crate) fn find(&self, offset: PhysicalOffset) -> Option<Arc<MappedFile<D::Region>>> {
        let files = self.files.read();
        let index = offset.checked_sub(files.first()?.start)? / self.file_size;
        files.get(usize::try_from(index).ok()?).map(Arc::clone)
    }

    pub(crate) fn last(&self) -> Option<Arc<MappedFile<D::Region>>> {
        self.files.read().last().map(Arc::clone)
    }

    /// Offset of the first byte of the log.
    pub(crate) fn min(&self) -> Option<PhysicalOffset> {
        self.files.read().first().map(|file| file.start)
    }
}

/// The folder of a new file: files take turns among the folders that may have one.
///
/// # Source
/// docs/reference/store-format.md 1.1: full folders are left out while there is another one.
fn folder_for<'a>(
    start: PhysicalOffset,
    file_size: u64,
    folders: &'a [PathBuf],
    full: &[PathBuf],
) -> Option<&'a PathBuf> {
    let open: Vec<_> = folders.iter().filter(|folder| !full.contains(folder)).collect();
    let among = if open.is_empty() { folders.iter().collect() } else { open };
    let count = among.len() as u64;
    (count > 0).then(|| among[(start.get() / file_size % count) as usize])
}

/// The files of a log folder, mapped.
#[derive(Debug)]
pub(crate) struct LoadedLog<R> {
    /// In order, all of them counting as written.
    pub files: Vec<MappedFile<R>>,
    /// A last file whose making was cut short. It is not among `files`, and is to be removed.
    pub unfinished: Option<PathBuf>,
}

/// Maps the files of the folders of a log. Nothing is changed.
///
/// # Errors
/// [`StoreError::WrongFileSize`], [`StoreError::UnexpectedFile`] also for a file that another folder has already,
/// [`StoreError::MissingFile`] for a hole between two.
///
/// # Source
/// docs/reference/store-format.md 1.2.
pub(crate) fn load<D: Disk>(
    disk: &D,
    dirs: &[PathBuf],
    file_size: u64,
) -> Result<LoadedLog<D::Region>, StoreError> {
    let mut found = Vec::new();
    for dir in dirs {
        found.extend(numbered_files(disk, dir)?.into_iter().map(|file| (file, dir)));
    }
    found.sort_by_key(|(file, _)| file.start);
    let unfinished = take_unfinished(disk, file_size, &mut found)?;
    let others_fit = found.iter().any(|(file, _)| file.size_bytes == file_size);
    let mut files: Vec<MappedFile<D::Region>> = Vec::with_capacity(found.len());
    for (NumberedFile { start, size_bytes, .. }, dir) in found {
        let path = dir.join(file_name(start));
        let start = PhysicalOffset(start);
        if files.last().is_some_and(|last| last.start == start) {
            return Err(StoreError::UnexpectedFile { path });
        }
        if size_bytes != file_size {
            return Err(StoreError::WrongFileSize {
                path,
                found_bytes: size_bytes,
                expected_bytes: file_size,
                others_fit,
            });
        }
        if let Some(last) = files.last()
            && last.end() != start
        {
            return Err(StoreError::MissingFile { path, expected: last.end() });
        }
        let region = disk.open_region(&path)?;
        files.push(MappedFile { start, region, path });
    }
    Ok(LoadedLog { files, unfinished })
}

/// Takes out a last file that is too short and holds only zeros: its making was cut short.
fn take_unfinished<D: Disk>(
    disk: &D,
    file_size: u64,
    found: &mut Vec<(NumberedFile, &PathBuf)>,
) -> Result<Option<PathBuf>, StoreError> {
    let Some((last, dir)) = found.last().filter(|(last, _)| last.size_bytes < file_size) else {
        return Ok(None);
    };
    let path = dir.join(file_name(last.start));
    if !is_zero(&disk.open_file(&path, OpenMode::Read)?)? {
        return Ok(None); // it holds something: the size check names it
    }
    found.pop();
    Ok(Some(path))
}

/// Whether a file holds nothing but zeros.
fn is_zero<F: DiskFile>(file: &F) -> Result<bool, StoreError> {
    let mut buffer = vec![0; 256 << 10];
    let mut at = 0;
    while let Some(data) = file.next_data(at)? {
        let count = file.read_at(data, &mut buffer)?;
        if nonzero_end(&buffer[..count]) > 0 {
            return Ok(false);
        }
        if count == 0 {
            break;
        }
        at = data + count as u64;
    }
    Ok(true)
}

/// Where the last byte that is not zero ends; 0 when all are zero.
pub fn nonzero_end(bytes: &[u8]) -> usize {
    let (words, rest) = bytes.as_chunks::<16>();
    if let Some(index) = rest.iter().rposition(|&byte| byte != 0) {
        return words.len() * 16 + index + 1;
    }
    let last = words.iter().rposition(|word| u128::from_ne_bytes(*word) != 0);
    last.map_or(0, |index| {
        index * 16 + words[index].iter().rposition(|&byte| byte != 0).map_or(0, |byte| byte + 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_what_is_not_zero_is_found() {
        for len in [0, 1, 15, 16, 17, 100] {
            assert_eq!(nonzero_end(&vec![0; len]), 0);
            for last in 0..len {
                let mut bytes = vec![0; len];
                bytes[0] = 1;
                bytes[last] = 2;
                assert_eq!(nonzero_end(&bytes), last + 1, "{last} of {len}");
            }
        }
    }

    const FILE_BYTES: u64 = 1 << 30;

    #[test]
    fn new_files_take_turns_among_the_folders_that_have_space() {
        let folders: Vec<PathBuf> = ["/a", "/b", "/c"].map(PathBuf::from).to_vec();
        let turn = |number: u64, full: &[PathBuf]| {
            folder_for(PhysicalOffset(number * FILE_BYTES), FILE_BYTES, &folders, full).unwrap().clone()
        };
        assert_eq!(
            (0..4).map(|number| turn(number, &[])).collect::<Vec<_>>(),
            ["/a", "/b", "/c", "/a"].map(PathBuf::from)
        );
        let full = ["/b".into()];
        assert_eq!(
            (0..3).map(|number| turn(number, &full)).collect::<Vec<_>>(),
            ["/a", "/c", "/a"].map(PathBuf::from)
        );
        assert_eq!(turn(1, &folders), std::path::Path::new("/b"), "full ones are better than none");
    }
}
