//! Processes by their numbers.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Number of this process; 0 while it is not known, as in a forked child.
static PROCESS_ID: AtomicU32 = AtomicU32::new(0);

/// Number of this process, which differs in a forked child. Only the first call of a process asks the system.
pub fn process_id() -> u32 {
    match PROCESS_ID.load(Ordering::Relaxed) {
        0 => ask(),
        id => id,
    }
}

#[cold]
fn ask() -> u32 {
    static FORGOTTEN_IN_CHILDREN: AtomicBool = AtomicBool::new(false);
    let id = std::process::id();
    // No lock: another thread may fork meanwhile. Two threads may both come here: forgetting twice is harmless.
    if !FORGOTTEN_IN_CHILDREN.load(Ordering::Acquire) {
        // SAFETY: the function only writes an atomic, which is allowed in the child of a fork.
        let status = unsafe { libc::pthread_atfork(None, None, Some(forget)) };
        FORGOTTEN_IN_CHILDREN.store(status == 0, Ordering::Release);
    }
    if FORGOTTEN_IN_CHILDREN.load(Ordering::Acquire) {
        PROCESS_ID.store(id, Ordering::Relaxed);
    }
    id
}

/// Runs in every child of a fork.
extern "C" fn forget() {
    PROCESS_ID.store(0, Ordering::Relaxed);
}

/// Steps by which [`give_way`] lowers the priority: such a thread gets about a tenth of a processor that another one wants too.
#[cfg(target_os = "linux")]
const NICE_STEPS: libc::c_int = 10;

/// Lowers the priority of the calling thread for good: it gets a smaller share where threads want more than there are processors.
/// Where the system has priorities of processes alone, this does nothing.
pub fn give_way() {
    // SAFETY: plain system calls; 0 is the calling thread.
    #[cfg(target_os = "linux")]
    unsafe {
        let nice = libc::getpriority(libc::PRIO_PROCESS, 0);
        libc::setpriority(libc::PRIO_PROCESS, 0, nice.saturating_add(NICE_STEPS));
    }
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

    #[cfg(target_os = "linux")]
    #[test]
    fn a_thread_that_gives_way_lowers_its_own_priority_alone() {
        // SAFETY: plain system call; 0 is the calling thread.
        let nice = || unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        let before = nice();
        let lowered = std::thread::spawn(move || {
            give_way();
            nice()
        });
        assert_eq!(lowered.join().unwrap(), (before + NICE_STEPS).min(19));
        assert_eq!(nice(), before);
    }

    #[test]
    fn a_forked_child_knows_its_own_number() {
        assert_eq!(process_id(), std::process::id());
        // SAFETY: the child makes only calls that the child of a fork may make.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let knows = process_id() == std::process::id();
            // SAFETY: as above.
            unsafe { libc::_exit(i32::from(!knows)) };
        }
        let mut status = -1;
        // SAFETY: waits for the child made above.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(status, 0);
        assert_eq!(process_id(), std::process::id());
    }

    #[test]
    fn this_process_is_alive_and_no_process_is_not() {
        assert!(is_process_alive(std::process::id()));
        assert!(!is_process_alive(0) && !is_process_alive(u32::MAX) && !is_process_alive(i32::MAX as u32));
    }
}
