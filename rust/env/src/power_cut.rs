//! The power cut of one file system, for the proof.

use std::path::Path;

use crate::error::EnvError;

/// The shutdown call of ext4 and XFS, and its flag to write nothing more, not even the journal.
#[cfg(target_os = "linux")]
const SHUTDOWN: u32 = 0x8004_587D;
#[cfg(target_os = "linux")]
const NO_LOG_FLUSH: u32 = 2;

/// Shuts down the file system of a folder. What was not flushed is lost, as when a machine loses its power and the disk keeps
/// its cache. Every later call on the file system fails until it is unmounted and mounted again.
///
/// # Errors
/// Not root, or a file system without such a call.
#[cfg(target_os = "linux")]
#[allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "this crate is the door")]
pub fn cut_power(dir: &Path) -> Result<(), EnvError> {
    use std::os::fd::AsRawFd;
    let failed = |source| EnvError::from_io("shut down the file system of", dir, source);
    let handle = std::fs::File::open(dir).map_err(failed)?;
    let order = NO_LOG_FLUSH;
    // SAFETY: the descriptor is open, and the call reads one u32 from the pointer, which is to one.
    let status = unsafe { libc::ioctl(handle.as_raw_fd(), SHUTDOWN as _, &raw const order) };
    if status == 0 { Ok(()) } else { Err(failed(std::io::Error::last_os_error())) }
}

/// No such call here.
///
/// # Errors
/// Always.
#[cfg(not(target_os = "linux"))]
pub fn cut_power(dir: &Path) -> Result<(), EnvError> {
    Err(EnvError::Unsupported { operation: "shut down the file system of", path: dir.to_path_buf() })
}

/// Stops all threads of a process. System calls that are under way may still end, but no code of the process runs any more. So
/// it cannot report to anybody what happens after the power cut, as a machine without power cannot.
///
/// # Errors
/// There is no such process, or it is another user's.
pub fn freeze_process(id: u32) -> Result<(), std::io::Error> {
    // SAFETY: plain system call.
    let status = unsafe { libc::kill(id as libc::pid_t, libc::SIGSTOP) };
    if status == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}
