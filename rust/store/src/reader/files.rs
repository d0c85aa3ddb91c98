//! Numbered files of one stream, read by position.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rocketpy_env::{Disk, DiskFile, EnvError, OpenMode};

use super::ReadError;
use crate::error::StoreError;
use crate::folder::{NumberedFile, file_name, numbered_files};

/// Files that are held open at once. A scan goes forward, so that it uses few at a time.
const OPEN_FILES: usize = 4;

/// The files of a commit log or of one consume queue, as they were listed last.
pub struct StreamFiles<D: Disk> {
    disk: Arc<D>,
    dirs: Vec<PathBuf>,
    files: Vec<NumberedFile>,
    /// The folder of each file, by number.
    places: Vec<usize>,
    /// Start and handle of the open files, the one used last at the end.
    open: Vec<(u64, D::File)>,
}

impl<D: Disk> StreamFiles<D> {
    /// Lists a folder. A missing folder holds no file.
    pub(crate) fn list(disk: Arc<D>, dir: PathBuf) -> Result<Self, ReadError> {
        Self::list_all(disk, vec![dir])
    }

    /// Lists several folders that hold one stream together; at least one.
    pub fn list_all(disk: Arc<D>, dirs: Vec<PathBuf>) -> Result<Self, ReadError> {
        let mut listed = Self { disk, dirs, files: Vec::new(), places: Vec::new(), open: Vec::new() };
        listed.relist()?;
        Ok(listed)
    }

    /// Path of a file; in the first folder when it is not there.
    pub fn path_of(&self, start: u64) -> PathBuf {
        let found = self.files.binary_search_by_key(&start, |file| file.start);
        self.dirs[found.map_or(0, |index| self.places[index])].join(file_name(start))
    }

    /// The files, in the order of their positions.
    pub fn files(&self) -> &[NumberedFile] {
        &self.files
    }

    /// Where files are missing between two others: from and to.
    pub fn holes(&self) -> Vec<(u64, u64)> {
        let gaps = self.files.windows(2).map(|pair| (pair[0].end(), pair[1].start));
        gaps.filter(|(from, to)| from != to).collect()
    }

    /// Position of the first byte, `None` without any file.
    pub fn start(&self) -> Option<u64> {
        self.files.first().map(|file| file.start)
    }

    /// The file that holds a position. Lists the folder again when the position is behind all files.
    pub fn find(&mut self, position: u64) -> Result<Option<NumberedFile>, ReadError> {
        if self.files.last().is_none_or(|last| position >= last.end()) {
            self.relist()?;
        }
        let at = self.files.partition_point(|file| file.start <= position);
        Ok(at.checked_sub(1).map(|at| self.files[at]).filter(|file| position < file.end()))
    }

    /// The file that holds a position; the folder when none does.
    pub fn path_at(&mut self, position: u64) -> Result<PathBuf, ReadError> {
        let file = self.find(position)?;
        Ok(file.map_or_else(|| self.dirs[0].clone(), |file| self.path_of(file.start)))
    }

    /// Lists the folders again. A listing during which files are made or removed may leave out one and have a later one: one
    /// with holes counts when the next has the same.
    pub(crate) fn relist(&mut self) -> Result<(), ReadError> {
        self.list_once()?;
        let mut holes = self.holes();
        while !holes.is_empty() {
            self.list_once()?;
            let before = std::mem::replace(&mut holes, self.holes());
            if holes == before {
                break;
            }
        }
        Ok(())
    }

    fn list_once(&mut self) -> Result<(), ReadError> {
        let mut found = Vec::new();
        for (place, dir) in self.dirs.iter().enumerate() {
            found.extend(list(&*self.disk, dir)?.into_iter().map(|file| (file, place)));
        }
        found.sort_by_key(|(file, _)| file.start);
        (self.files, self.places) = found.into_iter().unzip();
        Ok(())
    }

    /// Fills the buffer from a position on, within one file. False when the bytes are not there: before the first file,
    /// after the last, or in a file that was removed meanwhile.
    pub fn read(&mut self, position: u64, buffer: &mut [u8]) -> Result<bool, ReadError> {
        let Some(file) = self.find(position)? else {
            return Ok(false);
        };
        if file.end() - position < buffer.len() as u64 {
            return Ok(false);
        }
        match self.handle(file.start).and_then(|handle| handle.read_exact_at(position - file.start, buffer)) {
            Ok(()) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(EnvError::UnexpectedEnd { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The first position at or behind one, in the same file, that may hold something else than zeros; `None` when
    /// there is none.
    pub fn next_data(&mut self, position: u64) -> Result<Option<u64>, ReadError> {
        let Some(file) = self.find(position)? else { return Ok(None) };
        let found = self.handle(file.start)?.next_data(position - file.start)?;
        Ok(found.map(|offset| file.start + offset).filter(|&found| found < file.end()))
    }

    /// Closes all files. The next read opens them again.
    pub fn close(&mut self) {
        self.open.clear();
    }

    fn handle(&mut self, start: u64) -> Result<&D::File, EnvError> {
        match self.open.iter().position(|(open, _)| *open == start) {
            Some(at) => {
                let used = self.open.remove(at);
                self.open.push(used);
            }
            None => {
                let file = self.disk.open_file(&self.path_of(start), OpenMode::Read)?;
                if self.open.len() == OPEN_FILES {
                    self.open.remove(0);
                }
                self.open.push((start, file));
            }
        }
        let (_, file) = self.open.last().expect("one was just put there");
        Ok(file)
    }
}

fn list<D: Disk>(disk: &D, dir: &Path) -> Result<Vec<NumberedFile>, ReadError> {
    match numbered_files(disk, dir) {
        Ok(files) => Ok(files),
        Err(StoreError::Env(error)) if error.is_not_found() => Ok(Vec::new()),
        Err(StoreError::Env(error)) => Err(error.into()),
        Err(error) => Err(ReadError::BadFile { path: dir.to_path_buf(), reason: error.to_string() }),
    }
}
