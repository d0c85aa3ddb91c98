//! The lock file: a POSIX lock against other processes, a table against this one.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "this crate is the door")]

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::disk::LockHolder;
use crate::error::EnvError;

/// Device and inode of every file that this process has locked: a POSIX lock does not exclude its own process.
static HELD: Mutex<Option<HashSet<(u64, u64)>>> = Mutex::new(None);

fn held() -> MutexGuard<'static, Option<HashSet<(u64, u64)>>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An exclusive lock on byte 0 of a file, given back when dropped or when the process ends.
#[derive(Debug)]
pub struct RealLock {
    /// `None` once it is given back.
    file: Option<File>,
    identity: (u64, u64),
}

impl RealLock {
    /// Opens and locks the file and writes the four bytes `lock` into it.
    ///
    /// # Source
    /// docs/reference/store-format.md 5.3: the same lock as Apache takes (fcntl, not flock).
    pub(crate) fn take(path: &Path) -> Result<Self, EnvError> {
        let failed = |operation| move |source| EnvError::from_io(operation, path, source);
        let mut table = held();
        let table = table.get_or_insert_default();
        // Looked up before the file is opened: closing any handle of it would give up this process's POSIX lock.
        if fs::metadata(path).is_ok_and(|metadata| table.contains(&identity(&metadata))) {
            return Err(EnvError::Locked { path: path.to_path_buf(), pid: None });
        }
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(0o644);
        let file = options.open(path).map_err(failed("open"))?;
        let identity = identity(&file.metadata().map_err(failed("look at"))?);
        set_lock(&file, libc::F_WRLCK).map_err(|source| match source.raw_os_error() {
            Some(libc::EACCES | libc::EAGAIN) => {
                EnvError::Locked { path: path.to_path_buf(), pid: lock_holder(&file) }
            }
            _ => failed("lock")(source),
        })?;
        file.write_all_at(b"lock", 0).map_err(failed("write"))?;
        table.insert(identity);
        Ok(Self { file: Some(file), identity })
    }
}

/// Who has the lock on a file.
pub(crate) fn holder(path: &Path) -> Result<Option<LockHolder>, EnvError> {
    let mut table = held(); // no thread takes the lock while the file is open here: closing would give it up
    let identity = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => identity(&other.map_err(|source| EnvError::from_io("look at", path, source))?),
    };
    if table.get_or_insert_default().contains(&identity) {
        return Ok(Some(LockHolder { pid: None }));
    }
    let file = File::open(path).map_err(|source| EnvError::from_io(EnvError::OPEN, path, source))?;
    Ok(lock_holder(&file).map(|pid| LockHolder { pid: Some(pid) }))
}

fn identity(metadata: &fs::Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

impl Drop for RealLock {
    fn drop(&mut self) {
        let mut table = held();
        // Closing gives the lock back. Close while the table is held: later, it would give up the lock of whoever came in between.
        drop(self.file.take());
        if let Some(table) = table.as_mut() {
            table.remove(&self.identity);
        }
    }
}

fn region(kind: libc::c_int) -> libc::flock {
    // SAFETY: all zeros is a valid flock, a struct of plain integers.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_len = 1;
    lock
}

fn set_lock(file: &File, kind: libc::c_int) -> io::Result<()> {
    let lock = region(kind);
    // SAFETY: the descriptor is open and F_SETLK reads one flock.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw const lock) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn lock_holder(file: &File) -> Option<u32> {
    let mut lock = region(libc::F_WRLCK);
    // SAFETY: the descriptor is open and F_GETLK reads and writes one flock.
    let status = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &raw mut lock) };
    (status == 0 && libc::c_int::from(lock.l_type) != libc::F_UNLCK).then_some(lock.l_pid as u32)
}
