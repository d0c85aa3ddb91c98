//! Files that a forked child must not keep open.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "this crate is the door")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

/// Most files of a process that are kept from its children.
const MAX_FILES: usize = 1024;
/// A place of [`FILES`] that is free.
const FREE: i32 = -1;

/// The descriptors. A plain table of atomics, because the child of a fork may take no lock.
static FILES: [AtomicI32; MAX_FILES] = [const { AtomicI32::new(FREE) }; MAX_FILES];

/// Open on `/dev/null`, set once before the first file is entered.
static NOWHERE: OnceLock<Option<File>> = OnceLock::new();

/// While this lives, a child of a fork has `/dev/null` in place of the file: what depends on the last close of the open file, such as a
/// lock, does not wait for the child. (`exec` closes it anyway.)
#[derive(Debug)]
pub(crate) struct NotInChildren {
    place: &'static AtomicI32,
}

impl NotInChildren {
    /// Must be dropped before the file's descriptor is used for another file.
    ///
    /// # Errors
    /// `/dev/null` cannot be opened, or the process has too many such files.
    pub(crate) fn new(file: &File) -> io::Result<Self> {
        NOWHERE.get_or_init(|| {
            let file = File::open("/dev/null").ok()?;
            // SAFETY: the function only reads atomics and makes one system call that is allowed in the child of a fork.
            (unsafe { libc::pthread_atfork(None, None, Some(leave_files)) } == 0).then_some(file)
        });
        if !matches!(NOWHERE.get(), Some(Some(_))) {
            return Err(io::Error::other("no forked child can be kept from the file"));
        }
        let is_taken = |place: &&AtomicI32| {
            place.compare_exchange(FREE, file.as_raw_fd(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let place = FILES.iter().find(is_taken).ok_or_else(|| io::Error::other("too many locks"))?;
        Ok(Self { place })
    }
}

impl Drop for NotInChildren {
    fn drop(&mut self) {
        self.place.store(FREE, Ordering::Release);
    }
}

/// Runs in every child of a fork.
extern "C" fn leave_files() {
    let Some(Some(nowhere)) = NOWHERE.get() else { return };
    for file in &FILES {
        let file = file.load(Ordering::Acquire);
        if file != FREE {
            // SAFETY: plain system call on open descriptors. The child's copy of the `File` goes on to own the number.
            unsafe { libc::dup2(nowhere.as_raw_fd(), file) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::{Disk, RealDisk};

    #[test]
    fn a_forked_child_does_not_keep_a_lock_alive() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let locks = (RealDisk.lock(&path).unwrap(), RealDisk.lock_folder(dir.path()).unwrap());
        let (mut told, tell) = io::pipe().unwrap();
        // SAFETY: the child makes only system calls that the child of a fork may make.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above; `tell` is open.
            unsafe {
                libc::write(tell.as_raw_fd(), [1_u8].as_ptr().cast(), 1);
                loop {
                    libc::pause();
                }
            }
        }
        told.read_exact(&mut [0]).unwrap();
        drop(locks);
        let again = (RealDisk.lock(&path), RealDisk.lock_folder(dir.path()));
        // SAFETY: plain system calls on the child made above.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
        assert!(again.0.is_ok() && again.1.is_ok(), "{again:?}");
    }
}
