//! What the operating system grants this process.

use std::io;

/// Raises the limit of open files of this process as far as the system lets it. Returns the limit then in force.
///
/// # Errors
/// The system does not tell its limit. A limit that cannot be raised is no error.
pub fn raise_open_file_limit() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: getrlimit writes one rlimit, and the pointer is to one.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let raised = libc::rlimit { rlim_cur: limit.rlim_max, rlim_max: limit.rlim_max };
    // SAFETY: setrlimit reads one rlimit, and the pointer is to one.
    let status = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) };
    Ok(if status == 0 { raised.rlim_cur } else { limit.rlim_cur })
}

/// Whether a process with this number runs.
pub fn is_process_alive(pid: u32) -> bool {
    // 0 and negative numbers name groups of processes.
    let Some(pid) = libc::pid_t::try_from(pid).ok().filter(|pid| *pid > 0) else { return false };
    // SAFETY: plain system call; signal 0 only asks.
    let status = unsafe { libc::kill(pid, 0) };
    status == 0 || io::Error::last_os_error().raw_os_error() == Some(libc::EPERM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_that_is_returned_is_in_force() {
        let raised = raise_open_file_limit().unwrap();
        assert_eq!(crate::open_file_limit(), raised);
    }

    #[test]
    fn this_process_is_alive_and_no_process_is_not() {
        assert!(is_process_alive(std::process::id()));
        assert!(!is_process_alive(0) && !is_process_alive(u32::MAX) && !is_process_alive(i32::MAX as u32));
    }
}
