//! Turns a page of a mapped file that cannot be read into an error: without this the signal SIGBUS ends the process.
//!
//! A page cannot be read when its sector is bad, or when the file was cut short after it was mapped. The handler of the signal
//! puts a page of zeros in its place and notes where; whoever read the page asks [`Guard::fault`] before it uses what it saw.
//! Signals for other addresses go to the handler that was there before.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, compiler_fence, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{io, ptr};

use crate::sys;

/// No page of the map has failed.
const NO_FAULT: u64 = u64::MAX;

/// One guarded map. Slots are never freed, so that the handler may walk their list at any time; one that is not used has start 0.
///
/// Each has a cache line of its own: all readers of a map look at its slot, and nothing else is written beside it.
#[repr(align(64))]
struct Slot {
    start: AtomicUsize,
    end: AtomicUsize,
    /// Offset in the map of the first page that failed, or [`NO_FAULT`].
    fault_at: AtomicU64,
    /// Set before the slot is published.
    next: *const Self,
}

// SAFETY: `next` points to a slot that is never freed, and does not change once the slot is published.
unsafe impl Sync for Slot {}

/// The first of all slots.
static SLOTS: AtomicPtr<Slot> = AtomicPtr::new(ptr::null_mut());
/// Slots that guard nothing. Whoever changes the list or the handler holds it.
static UNUSED: Mutex<Vec<&'static Slot>> = Mutex::new(Vec::new());
/// What handled the signal before; never freed.
static FORMER: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());
static PAGE_BYTES: AtomicUsize = AtomicUsize::new(4096);
/// Set while the former handler runs: one that raises the signal again ends the process.
static IS_PASSED_ON: AtomicBool = AtomicBool::new(false);

fn unused() -> MutexGuard<'static, Vec<&'static Slot>> {
    UNUSED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Guards a map for as long as it lives. To be dropped before the map is.
pub(crate) struct Guard(&'static Slot);

impl Guard {
    /// Guards `len` bytes from `start` on.
    ///
    /// # Errors
    /// The system does not take the handler.
    ///
    /// # Safety
    /// A map of this process begins at `start` and has this length, until the guard is dropped. The handler replaces its
    /// pages that cannot be read.
    pub(crate) unsafe fn new(start: *const u8, len: usize) -> io::Result<Self> {
        let mut unused = unused();
        install()?;
        let slot = unused.pop().unwrap_or_else(publish);
        slot.fault_at.store(NO_FAULT, Ordering::Relaxed);
        slot.end.store(start as usize + len, Ordering::Relaxed);
        slot.start.store(start as usize, Ordering::Release);
        Ok(Self(slot))
    }

    /// Where the first page of the map begins that could not be read, if there is one. What was read before this call, and is no
    /// later page than that, may be zeros in place of it.
    #[inline]
    pub(crate) fn fault(&self) -> Option<u64> {
        // The reads come first: on this thread, whose handler may just have run, and as other threads see it.
        compiler_fence(Ordering::SeqCst);
        fence(Ordering::Acquire);
        Some(self.0.fault_at.load(Ordering::Relaxed)).filter(|&at| at != NO_FAULT)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.start.store(0, Ordering::Release);
        unused().push(self.0);
    }
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard").field("fault", &self.fault()).finish_non_exhaustive()
    }
}

/// Adds a slot to the list.
fn publish() -> &'static Slot {
    let slot = Box::leak(Box::new(Slot {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        fault_at: AtomicU64::new(NO_FAULT),
        next: SLOTS.load(Ordering::Acquire),
    }));
    SLOTS.store(slot, Ordering::Release); // the list changes under the lock alone
    slot
}

/// Makes [`on_fault`] the handler of SIGBUS, again when another library has taken its place. The caller holds the lock.
fn install() -> io::Result<()> {
    // SAFETY: all zeros is a valid sigaction.
    let mut former: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: sigaction writes one struct, and changes nothing without a new one.
    if unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut former) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let handler = on_fault as extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
    if former.sa_sigaction == handler as usize {
        return Ok(());
    }
    PAGE_BYTES.store(sys::page_bytes(), Ordering::Relaxed);
    FORMER.store(Box::leak(Box::new(former)), Ordering::Release);
    // SAFETY: all zeros is a valid sigaction; the mask stays empty.
    let mut ours: libc::sigaction = unsafe { std::mem::zeroed() };
    ours.sa_sigaction = handler as usize;
    // NODEFER: a former handler that raises the signal again gets its end at once.
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
    // SAFETY: the handler only calls what may be called in a signal handler, and lives as long as the process.
    if unsafe { libc::sigaction(libc::SIGBUS, &raw const ours, ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// The handler: system calls and atomics alone.
extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the system hands a valid siginfo to a handler with SA_SIGINFO.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    // 0 and less: another process sent it, and there is no address.
    if code > 0 && replace_page(address) {
        return; // the access repeats, and reads zeros
    }
    pass_on(signal, code, info, context);
}

/// Puts zeros in place of the page of a guarded map; `false` when the address lies in none.
fn replace_page(address: usize) -> bool {
    let mut next = SLOTS.load(Ordering::Acquire).cast_const();
    // SAFETY: slots are never freed.
    while let Some(slot) = unsafe { next.as_ref() } {
        let start = slot.start.load(Ordering::Acquire);
        let is_inside = start != 0 && (start..slot.end.load(Ordering::Acquire)).contains(&address);
        // Another thread may have given the slot to another map between the two loads.
        if is_inside && slot.start.load(Ordering::Acquire) == start {
            let page_bytes = PAGE_BYTES.load(Ordering::Relaxed);
            let page = address / page_bytes * page_bytes;
            // Noted first: whoever sees the zeros sees the note.
            slot.fault_at.fetch_min((page - start) as u64, Ordering::SeqCst);
            return map_zeros(page, page_bytes);
        }
        next = slot.next;
    }
    false
}

fn map_zeros(page: usize, page_bytes: usize) -> bool {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let errno = errno_place();
    // SAFETY: errno's place is valid on every thread.
    let former_errno = unsafe { *errno };
    // SAFETY: the page is one of a guarded map, whose bytes are plain data that others only read or append to.
    let mapped = unsafe { libc::mmap(page as *mut c_void, page_bytes, protection, flags, -1, 0) };
    // SAFETY: as above.
    unsafe { *errno = former_errno };
    mapped as usize == page
}

#[cfg(target_os = "linux")]
fn errno_place() -> *mut c_int {
    // SAFETY: gives the place of this thread's errno.
    unsafe { libc::__errno_location() }
}

#[cfg(not(target_os = "linux"))]
fn errno_place() -> *mut c_int {
    // SAFETY: gives the place of this thread's errno.
    unsafe { libc::__error() }
}

/// Hands a signal that is not about a guarded map to the former handler, or lets it do what it does without any.
fn pass_on(signal: c_int, code: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: what was handled before is never freed.
    let former = unsafe { FORMER.load(Ordering::Acquire).as_ref() };
    let handler = former.map_or(libc::SIG_DFL, |former| former.sa_sigaction);
    match former {
        Some(_) if handler == libc::SIG_IGN && code <= 0 => {}
        Some(former)
            if ![libc::SIG_DFL, libc::SIG_IGN].contains(&handler)
                && !IS_PASSED_ON.swap(true, Ordering::SeqCst) =>
        {
            if former.sa_flags & libc::SA_SIGINFO != 0 {
                // SAFETY: whoever set this flag gave a function of this type.
                let call: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                    unsafe { std::mem::transmute(handler) };
                call(signal, info, context);
            } else {
                // SAFETY: without the flag it is a function of this type.
                let call: extern "C" fn(c_int) = unsafe { std::mem::transmute(handler) };
                call(signal);
            }
            IS_PASSED_ON.store(false, Ordering::SeqCst);
        }
        _ => {
            // SAFETY: plain system calls. Without a handler the access repeats and ends the process.
            unsafe {
                libc::signal(signal, libc::SIG_DFL);
                if code <= 0 {
                    libc::raise(signal);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "this crate is the door")]

    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, ExitStatus};

    use memmap2::MmapOptions;

    use super::*;
    use crate::{Disk, RealDisk, Region};

    const CHILD: &str = "ROCKETPY_TEST_OF_GUARD";

    /// Runs a test of this binary in a process of its own, which does what it must not do here.
    fn child(test: &str) -> ExitStatus {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let run = command.args(["--exact", &format!("guard::tests::{test}")]).env(CHILD, "1").output();
        run.unwrap().status
    }

    fn is_child() -> bool {
        std::env::var_os(CHILD).is_some()
    }

    /// Has a guarded map, and reads a page of another one that is not there.
    fn read_what_nobody_guards() {
        let dir = tempfile::tempdir().unwrap();
        let region = RealDisk.create_region(&dir.path().join("log"), 4096).unwrap();
        region.append(b"x", 1);
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        let map = MmapOptions::new().map_raw(&file).unwrap();
        file.set_len(0).unwrap();
        // SAFETY: the byte lies inside the map; that it cannot be read is what the test is about.
        unsafe { map.as_ptr().read_volatile() };
    }

    extern "C" fn leave(_signal: c_int) {
        // SAFETY: ends the process.
        unsafe { libc::_exit(42) };
    }

    #[test]
    fn a_fault_of_another_map_ends_the_process_as_before() {
        if is_child() {
            return read_what_nobody_guards();
        }
        let status = child("a_fault_of_another_map_ends_the_process_as_before");
        assert_eq!(status.signal(), Some(libc::SIGBUS), "{status}");
    }

    #[test]
    fn a_fault_of_another_map_goes_to_the_handler_that_was_there_before() {
        if is_child() {
            // SAFETY: the handler ends the process.
            unsafe { libc::signal(libc::SIGBUS, leave as extern "C" fn(c_int) as usize) };
            return read_what_nobody_guards();
        }
        let status = child("a_fault_of_another_map_goes_to_the_handler_that_was_there_before");
        assert_eq!(status.code(), Some(42), "{status}");
    }

    #[test]
    fn a_slot_is_used_again_and_knows_nothing_of_its_former_map() {
        let bytes = [0_u8; 16];
        // SAFETY: nothing faults in memory of the stack.
        let first = unsafe { Guard::new(bytes.as_ptr(), bytes.len()) }.unwrap();
        first.0.fault_at.store(8, Ordering::Relaxed);
        assert_eq!(first.fault(), Some(8));
        drop(first);
        // SAFETY: as above.
        let second = unsafe { Guard::new(bytes.as_ptr(), bytes.len()) }.unwrap();
        assert_eq!(second.fault(), None);
    }
}
