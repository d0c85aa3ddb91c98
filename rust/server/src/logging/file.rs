//! Log file of a process.

use std::io::{self, Write};
use std::sync::Arc;

use parking_lot::Mutex;
use rocketpy_env::{EnvError, RotatedFile, RotatedFileConfig};

/// Log file, and when it is rotated.
pub type LogFileConfig = RotatedFileConfig;

/// Writes lines to the log file. Clones write to the same one.
#[derive(Debug, Clone)]
pub(super) struct LogFile(Arc<Mutex<RotatedFile>>);

impl LogFile {
    /// Opens the file and appends to it; made if missing.
    pub(super) fn open(config: LogFileConfig) -> Result<Self, EnvError> {
        Ok(Self(Arc::new(Mutex::new(RotatedFile::open(config)?))))
    }

    /// Opens the path again. If that fails, the lines still go to the file that is open.
    pub(super) fn reopen(&self) -> Result<(), EnvError> {
        self.0.lock().reopen()
    }
}

impl Write for LogFile {
    /// Writes a whole line, which a formatter gives in one piece. A line that the disk does not take goes to standard error.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.0.lock().append(line).is_err() {
            let _ = io::stderr().write_all(line); // its reader may be gone
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::path::{Path, PathBuf};

    use rocketpy_env::{Disk, DiskFile, OpenMode, RealDisk};

    use super::*;

    fn numbered(path: &Path, number: u32) -> PathBuf {
        let mut name = OsString::from(path);
        name.push(format!(".{number}"));
        name.into()
    }

    fn text(path: &Path) -> String {
        String::from_utf8(RealDisk.read(path, 1 << 20).unwrap_or_default()).unwrap()
    }

    #[test]
    fn full_files_are_renamed_and_the_oldest_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("server.log");
        let config = LogFileConfig { path: path.clone(), max_bytes: 6, kept_files: 2, is_private: false };
        for number in 0..8 {
            // Each one is another process: what is there is continued.
            let mut log = LogFile::open(config.clone()).unwrap();
            assert_eq!(log.write(format!("{number}\n").as_bytes()).unwrap(), 2);
        }
        assert_eq!(text(&path), "6\n7\n");
        assert_eq!(text(&numbered(&path, 1)), "3\n4\n5\n");
        assert_eq!(text(&numbered(&path, 2)), "0\n1\n2\n");
        let mut log = LogFile::open(config).unwrap();
        log.write_all(b"a line that is longer than a file\n").unwrap();
        log.write_all(b"z\n").unwrap();
        assert_eq!(text(&path), "z\n");
        assert_eq!(text(&numbered(&path, 1)), "a line that is longer than a file\n");
        assert_eq!(text(&numbered(&path, 2)), "6\n7\n");
        assert_eq!(RealDisk.list(folder.path()).unwrap().len(), 3);
    }

    #[test]
    fn a_file_that_was_moved_away_gets_lines_until_the_path_is_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let (path, moved) = (folder.path().join("server.log"), folder.path().join("yesterday"));
        let config = LogFileConfig { path: path.clone(), max_bytes: 1000, kept_files: 2, is_private: false };
        let mut log = LogFile::open(config).unwrap();
        log.write_all(b"1\n").unwrap();
        RealDisk.rename(&path, &moved).unwrap();
        log.write_all(b"2\n").unwrap();
        log.reopen().unwrap();
        log.write_all(b"3\n").unwrap();
        assert_eq!((text(&moved), text(&path)), ("1\n2\n".to_owned(), "3\n".to_owned()));
        // copytruncate of logrotate
        RealDisk.open_file(&path, OpenMode::Write).unwrap().set_len(0).unwrap();
        log.write_all(b"4\n").unwrap();
        assert_eq!(text(&path), "4\n");
    }

    #[test]
    fn lines_continue_where_the_file_cannot_be_renamed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("server.log");
        RealDisk.create_dir_all(&numbered(&path, 1)).unwrap(); // a file cannot take the name of a folder
        let config = LogFileConfig { path: path.clone(), max_bytes: 3, kept_files: 1, is_private: false };
        let mut log = LogFile::open(config).unwrap();
        for line in ["1\n", "2\n", "3\n"] {
            log.write_all(line.as_bytes()).unwrap();
        }
        assert_eq!(text(&path), "1\n2\n3\n");
        let full =
            LogFileConfig { path: "/dev/full".into(), max_bytes: 1000, kept_files: 1, is_private: false };
        LogFile::open(full).unwrap().write_all(b"goes to standard error\n").unwrap();
    }
}
