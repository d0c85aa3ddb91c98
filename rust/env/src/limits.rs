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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_that_is_returned_is_in_force() {
        let raised = raise_open_file_limit().unwrap();
        assert_eq!(crate::open_file_limit(), raised);
    }
}
