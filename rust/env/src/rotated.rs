//! A file of lines that is rotated by its size, and opened again when another program has moved it away.
//!
//! Written here because `tracing-appender` rotates by time only, and crates that rotate by size bring time zones and compression for it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::disk::{Disk, DiskFile};
use crate::error::EnvError;
use crate::file::RealFile;
use crate::real::RealDisk;

/// File of lines, and when it is rotated.
#[derive(Debug, Clone)]
pub struct RotatedFileConfig {
    /// The file.
    pub path: PathBuf,
    /// Maximum size of the file. Before a line that exceeds it, the file is renamed to `PATH.1`, and `PATH.1` to `PATH.2`.
    pub max_bytes: u64,
    /// Maximum number of renamed files.
    pub kept_files: u32,
    /// Whether only its owner may read it; else its group may, too.
    pub is_private: bool,
}

/// A file to which whole lines are appended.
#[derive(Debug)]
pub struct RotatedFile {
    config: RotatedFileConfig,
    file: RealFile,
}

impl RotatedFile {
    /// Opens the file and appends to it; made if missing.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(config: RotatedFileConfig) -> Result<Self, EnvError> {
        assert!(config.max_bytes > 0, "a file has room for a line: {}", config.path.display());
        let file = open(&config)?;
        Ok(Self { config, file })
    }

    /// Opens the path again. If that fails, the lines still go to the file that is open.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn reopen(&mut self) -> Result<(), EnvError> {
        self.file = open(&self.config)?;
        Ok(())
    }

    /// Appends a whole line.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn append(&mut self, line: &[u8]) -> Result<(), EnvError> {
        debug_assert!(line.ends_with(b"\n"), "lines are whole");
        let len = self.file.len()?; // another program may have cut it
        if len == 0 || len + line.len() as u64 <= self.config.max_bytes {
            return self.file.write_all_at(len, line);
        }
        match self.rotate() {
            Ok(()) => self.file.write_all_at(0, line),
            // A file that is too long is better than a lost line.
            Err(_) => self.file.write_all_at(len, line),
        }
    }

    /// Renames the file and those before it, and begins another one.
    fn rotate(&mut self) -> Result<(), EnvError> {
        let RotatedFileConfig { path, kept_files, .. } = &self.config;
        for number in (1..*kept_files).rev() {
            match RealDisk.rename(&numbered(path, number), &numbered(path, number + 1)) {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
        RealDisk.rename(path, &numbered(path, 1))?;
        self.reopen()
    }
}

fn open(config: &RotatedFileConfig) -> Result<RealFile, EnvError> {
    match config.is_private {
        true => RealDisk.open_private(&config.path),
        false => RealDisk.open_log(&config.path),
    }
}

fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(format!(".{number}"));
    name.into()
}
