//! A real file that is read and written by position.
#![allow(clippy::disallowed_types, reason = "this crate is the door")]

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::disk::DiskFile;
use crate::error::EnvError;
use crate::sys;

/// A file of the operating system with its path for error texts.
#[derive(Debug)]
pub struct RealFile {
    file: File,
    path: PathBuf,
}

impl RealFile {
    pub(crate) fn new(file: File, path: &Path) -> Self {
        Self { file, path: path.to_path_buf() }
    }

    fn error(&self, operation: &'static str) -> impl FnOnce(std::io::Error) -> EnvError + '_ {
        move |source| EnvError::from_io(operation, &self.path, source)
    }
}

impl DiskFile for RealFile {
    fn len(&self) -> Result<u64, EnvError> {
        Ok(self.file.metadata().map_err(self.error("look at"))?.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, EnvError> {
        let mut done = 0;
        while done < buffer.len() {
            match self.file.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(EnvError::from_io("read", &self.path, error)),
            }
        }
        Ok(done)
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), EnvError> {
        if self.read_at(offset, buffer)? == buffer.len() {
            return Ok(());
        }
        Err(EnvError::UnexpectedEnd { path: self.path.clone(), wanted_end: offset + buffer.len() as u64 })
    }

    #[cfg(target_os = "linux")]
    fn read_in_memory_at(&self, offset: u64, buffer: &mut [u8]) -> Result<bool, EnvError> {
        match sys::read_in_memory(&self.file, offset, buffer) {
            Ok(count) if count == buffer.len() => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(false),
            // A part of it, or no such call here: at the end of a file the error names it.
            _ if self.len()? < offset + buffer.len() as u64 => {
                self.read_exact_at(offset, buffer).map(|()| true)
            }
            Ok(_) => Ok(false),
            Err(_) => self.read_exact_at(offset, buffer).map(|()| true),
        }
    }

    fn write_all_at(&self, offset: u64, bytes: &[u8]) -> Result<(), EnvError> {
        self.file.write_all_at(bytes, offset).map_err(self.error("write"))
    }

    fn set_len(&self, len: u64) -> Result<(), EnvError> {
        self.file.set_len(len).map_err(self.error("set the length of"))
    }

    fn sync(&self) -> Result<(), EnvError> {
        self.file.sync_data().map_err(|source| EnvError::from_flush("flush", &self.path, source))
    }

    fn zero_range(&self, range: Range<u64>, keep_allocated: bool) -> Result<(), EnvError> {
        sys::zero_range(&self.file, range, keep_allocated).map_err(self.error("write zeros into"))
    }

    fn allocate(&self, range: Range<u64>) -> Result<(), EnvError> {
        sys::allocate_range(&self.file, range).map_err(self.error("allocate"))
    }

    fn link_count(&self) -> Result<u64, EnvError> {
        Ok(self.file.metadata().map_err(self.error("look at"))?.nlink())
    }

    fn next_data(&self, offset: u64) -> Result<Option<u64>, EnvError> {
        sys::seek_data(&self.file, offset).map_err(self.error("seek in"))
    }
}
