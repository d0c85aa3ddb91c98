//! Locks against other processes and this one: of a lock file, and of a whole folder.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "this crate is the door")]

use std::collections::HashSet;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{io, thread};

use crate::disk::LockHolder;
use crate::error::EnvError;
use crate::fork::NotInChildren;

/// What Apache writes into its lock file. The process id behind it is ours.
const CONTENT: &str = "lock";
/// Longest lock file whose process id is read.
const MAX_CONTENT_BYTES: usize = 64;

/// Tries to take a lock; with [`PAUSE`] between two of them half a second passes before a lock is refused. An exec takes milliseconds.
const TRIES: u32 = 26;
/// Pause between two tries.
const PAUSE: Duration = Duration::from_millis(20);

/// Device and inode of every file and folder that this process has locked, to tell it from other processes. Where there are no
/// open file description locks, it also keeps the process from itself.
static HELD: Mutex<Option<HashSet<Identity>>> = Mutex::new(None);

/// Device and inode.
type Identity = (u64, u64);

fn held() -> MutexGuard<'static, Option<HashSet<Identity>>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An exclusive lock on a lock file or a folder. It is given back when it is dropped or when the process ends: children of a fork do
/// not keep it.
#[derive(Debug)]
pub struct RealLock {
    /// `None` once it is given back. Dropped in this order: the number of a closed file may be another file's.
    file: Option<(NotInChildren, File)>,
    identity: Identity,
}

impl RealLock {
    /// Opens the file, locks its first byte, and writes `lock` and the process id into it.
    ///
    /// The lock belongs to the open file (`F_OFD_SETLK`), so that nothing else in the process can give it up by closing the file. It
    /// excludes the POSIX lock that Apache takes.
    ///
    /// # Source
    /// docs/reference/store-format.md 5.3.
    pub(crate) fn take(path: &Path) -> Result<Self, EnvError> {
        tried(|| Self::try_take(path), || thread::sleep(PAUSE))
    }

    fn try_take(path: &Path) -> Result<Self, EnvError> {
        let failed = |operation| move |source| EnvError::from_io(operation, path, source);
        let mut table = held();
        let table = table.get_or_insert_default();
        // Looked up before the file is opened: closing any handle of it would give up a POSIX lock of this process.
        if fs::metadata(path).is_ok_and(|metadata| table.contains(&identity(&metadata))) {
            return Err(EnvError::Locked { path: path.to_path_buf(), holder: LockHolder::ThisProcess });
        }
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(0o644);
        let file = options.open(path).map_err(failed("open"))?;
        set_lock(&file).map_err(|source| match source.raw_os_error() {
            Some(libc::EACCES | libc::EAGAIN) => {
                let holder = lock_holder(&file).unwrap_or(LockHolder::Unknown);
                EnvError::Locked { path: path.to_path_buf(), holder }
            }
            _ => failed("lock")(source),
        })?;
        let content = format!("{CONTENT} {}\n", std::process::id());
        file.set_len(content.len() as u64).map_err(failed("write"))?;
        file.write_all_at(content.as_bytes(), 0).map_err(failed("write"))?;
        Self::new(file, table).map_err(failed("look at"))
    }

    /// Locks a folder, and makes no file in it. It excludes only who takes the same lock.
    ///
    /// # Errors
    /// [`EnvError::Unsupported`] where the file system locks no folders, as NFS.
    pub(crate) fn take_folder(path: &Path) -> Result<Self, EnvError> {
        tried(|| Self::try_take_folder(path), || thread::sleep(PAUSE))
    }

    fn try_take_folder(path: &Path) -> Result<Self, EnvError> {
        let failed = |operation| move |source| EnvError::from_io(operation, path, source);
        let mut table = held();
        let table = table.get_or_insert_default();
        let folder = File::open(path).map_err(failed(EnvError::OPEN))?;
        // SAFETY: plain system call on an open file descriptor.
        if unsafe { libc::flock(folder.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
            let source = io::Error::last_os_error();
            return Err(match source.raw_os_error() {
                Some(libc::EWOULDBLOCK) => {
                    let identity = identity(&folder.metadata().map_err(failed("look at"))?);
                    let is_ours = table.contains(&identity);
                    let holder = if is_ours { LockHolder::ThisProcess } else { LockHolder::Unknown };
                    EnvError::Locked { path: path.to_path_buf(), holder }
                }
                Some(libc::EBADF | libc::EOPNOTSUPP | libc::ENOLCK | libc::EINVAL | libc::ENOSYS) => {
                    EnvError::Unsupported { operation: "lock", path: path.to_path_buf() }
                }
                _ => failed("lock")(source),
            });
        }
        Self::new(folder, table).map_err(failed("look at"))
    }

    fn new(file: File, table: &mut HashSet<Identity>) -> io::Result<Self> {
        let identity = identity(&file.metadata()?);
        let not_in_children = NotInChildren::new(&file)?;
        table.insert(identity);
        Ok(Self { file: Some((not_in_children, file)), identity })
    }
}

/// Tries again while another process has the lock.
///
/// A process that gives a lock back while one of its threads starts a program keeps the lock a little longer: between fork and exec the
/// child has a copy of the descriptor, and a program that is started without [`NotInChildren`] (`posix_spawn`) closes it with exec.
fn tried(
    mut take: impl FnMut() -> Result<RealLock, EnvError>,
    mut pause: impl FnMut(),
) -> Result<RealLock, EnvError> {
    for _ in 1..TRIES {
        match take() {
            Err(EnvError::Locked { holder: LockHolder::Process(_) | LockHolder::Unknown, .. }) => pause(),
            other => return other,
        }
    }
    take()
}

/// Who has the lock on a file.
pub(crate) fn holder(path: &Path) -> Result<Option<LockHolder>, EnvError> {
    let mut table = held(); // no thread takes the lock while the file is open here: closing could give it up
    let identity = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => identity(&other.map_err(|source| EnvError::from_io("look at", path, source))?),
    };
    if table.get_or_insert_default().contains(&identity) {
        return Ok(Some(LockHolder::ThisProcess));
    }
    let file = File::open(path).map_err(|source| EnvError::from_io(EnvError::OPEN, path, source))?;
    Ok(lock_holder(&file))
}

fn identity(metadata: &fs::Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

impl Drop for RealLock {
    fn drop(&mut self) {
        let mut table = held();
        // Closing gives the lock back. While the table is held: a later close could take the lock of whoever came between.
        drop(self.file.take());
        if let Some(table) = table.as_mut() {
            table.remove(&self.identity);
        }
    }
}

#[cfg(target_os = "linux")]
const SET_LOCK: libc::c_int = libc::F_OFD_SETLK;
#[cfg(target_os = "linux")]
const GET_LOCK: libc::c_int = libc::F_OFD_GETLK;
#[cfg(not(target_os = "linux"))]
const SET_LOCK: libc::c_int = libc::F_SETLK;
#[cfg(not(target_os = "linux"))]
const GET_LOCK: libc::c_int = libc::F_GETLK;

fn first_byte() -> libc::flock {
    // SAFETY: all zeros is a valid flock, a struct of plain integers.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_len = 1;
    lock
}

fn set_lock(file: &File) -> io::Result<()> {
    let lock = first_byte();
    // SAFETY: the descriptor is open and the call reads one flock.
    if unsafe { libc::fcntl(file.as_raw_fd(), SET_LOCK, &raw const lock) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Who has locked the first byte of a file. The system tells the process of a POSIX lock. The process of a lock like ours is
/// written in the file.
fn lock_holder(file: &File) -> Option<LockHolder> {
    let mut lock = first_byte();
    // SAFETY: the descriptor is open and the call reads and writes one flock.
    let status = unsafe { libc::fcntl(file.as_raw_fd(), GET_LOCK, &raw mut lock) };
    if status != 0 || libc::c_int::from(lock.l_type) == libc::F_UNLCK {
        return None;
    }
    let pid = u32::try_from(lock.l_pid).ok().filter(|pid| *pid > 0).or_else(|| written_pid(file));
    Some(pid.map_or(LockHolder::Unknown, LockHolder::Process))
}

fn written_pid(file: &File) -> Option<u32> {
    let mut content = [0; MAX_CONTENT_BYTES];
    let len = file.read_at(&mut content, 0).ok()?;
    str::from_utf8(&content[..len]).ok()?.strip_prefix(CONTENT)?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second descriptor of the locked file, as a child has it between fork and exec.
    fn of_child(lock: &RealLock) -> Option<File> {
        lock.file.as_ref().map(|(_, file)| file.try_clone().unwrap())
    }

    #[test]
    fn a_lock_that_a_child_still_has_is_taken_when_the_child_lets_go() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let (lock, of_folder) = (RealLock::take(&path).unwrap(), RealLock::take_folder(dir.path()).unwrap());
        let (mut file, mut folder) = (of_child(&lock), of_child(&of_folder));
        drop((lock, of_folder));
        let _lock = tried(|| RealLock::try_take(&path), || drop(file.take())).unwrap();
        let _of_folder = tried(|| RealLock::try_take_folder(dir.path()), || drop(folder.take())).unwrap();
        assert!(file.is_none() && folder.is_none(), "the first try was refused");
    }

    #[test]
    fn a_lock_that_nobody_gives_back_is_refused_after_the_last_try() {
        let dir = tempfile::tempdir().unwrap();
        let lock = RealLock::take_folder(dir.path()).unwrap();
        let child = of_child(&lock);
        drop(lock);
        let mut pauses = 0;
        let refused = tried(|| RealLock::try_take_folder(dir.path()), || pauses += 1);
        assert!(matches!(refused, Err(EnvError::Locked { holder: LockHolder::Unknown, .. })));
        assert_eq!(pauses, TRIES - 1);
        drop(child);
    }

    #[test]
    fn a_lock_of_this_process_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let _lock = RealLock::take_folder(dir.path()).unwrap();
        let refused = tried(|| RealLock::try_take_folder(dir.path()), || panic!("nobody else has it"));
        assert!(matches!(refused, Err(EnvError::Locked { holder: LockHolder::ThisProcess, .. })));
    }
}
