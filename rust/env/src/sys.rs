//! Calls of the operating system that the standard library does not have.
#![allow(clippy::disallowed_types, reason = "this crate is the door")]

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

#[cfg(target_os = "linux")]
use memmap2::MmapRaw;

use crate::disk::DiskUsage;

/// How many files this process may have open.
pub fn open_file_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: getrlimit writes one rlimit, and the pointer is to one.
    let status = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    if status == 0 { limit.rlim_cur } else { 256 }
}

/// Allocates the blocks of a file and sets its length. Where the file system cannot, zeros are written for as long as the
/// file `is_wanted`.
///
/// # Errors
/// [`io::ErrorKind::Interrupted`] when it was not wanted any more.
pub(crate) fn allocate(file: &File, len: u64, is_wanted: &dyn Fn() -> bool) -> io::Result<()> {
    match fallocate(file, 0, 0..len) {
        Err(error) if is_unsupported(&error) => write_zeros(file, 0..len, is_wanted),
        other => other,
    }
}

/// Allocates the holes in a range. Where the file system cannot, a file that has holes is written again in place.
pub(crate) fn allocate_range(file: &File, range: Range<u64>) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    match fallocate(file, 0, range.clone()) {
        Err(error) if is_unsupported(&error) => {
            let metadata = file.metadata()?;
            if metadata.blocks() * 512 >= metadata.len() { Ok(()) } else { write_again(file, range) }
        }
        other => other,
    }
}

fn write_again(file: &File, range: Range<u64>) -> io::Result<()> {
    use std::os::unix::fs::FileExt;
    let mut bytes = vec![0; 1 << 20];
    let mut at = range.start;
    while at < range.end {
        let count = (range.end - at).min(bytes.len() as u64);
        let bytes = &mut bytes[..count as usize];
        file.read_exact_at(bytes, at)?;
        file.write_all_at(bytes, at)?;
        at += count;
    }
    Ok(())
}

fn is_unsupported(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL))
}

/// Turns a range of a file into zeros: by a change of its block map where the file system can, else by writing.
#[cfg(target_os = "linux")]
pub(crate) fn zero_range(file: &File, range: Range<u64>, keep_allocated: bool) -> io::Result<()> {
    let kind = if keep_allocated { libc::FALLOC_FL_ZERO_RANGE } else { libc::FALLOC_FL_PUNCH_HOLE };
    match fallocate(file, kind | libc::FALLOC_FL_KEEP_SIZE, range.clone()) {
        Err(error) if is_unsupported(&error) => write_zeros(file, range, &|| true),
        other => other,
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn zero_range(file: &File, range: Range<u64>, _keep_allocated: bool) -> io::Result<()> {
    write_zeros(file, range, &|| true)
}

#[cfg(target_os = "linux")]
fn fallocate(file: &File, mode: libc::c_int, range: Range<u64>) -> io::Result<()> {
    let (start, len) = (range.start as libc::off_t, (range.end - range.start) as libc::off_t);
    if len == 0 {
        return Ok(());
    }
    loop {
        // SAFETY: plain system call on an open file descriptor.
        let status = unsafe { libc::fallocate(file.as_raw_fd(), mode, start, len) };
        if status == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINTR) {
            return Err(error);
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn fallocate(_file: &File, _mode: libc::c_int, _range: Range<u64>) -> io::Result<()> {
    Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
}

fn write_zeros(file: &File, range: Range<u64>, is_wanted: &dyn Fn() -> bool) -> io::Result<()> {
    use std::os::unix::fs::FileExt;
    let zeros = vec![0; 1 << 20];
    let mut at = range.start;
    while at < range.end {
        if !is_wanted() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let count = (range.end - at).min(zeros.len() as u64);
        file.write_all_at(&zeros[..count as usize], at)?;
        at += count;
    }
    Ok(())
}

/// Writes the pages of a range to the disk and waits for that, where the file system can. It flushes neither the cache of the
/// disk nor the metadata of the file, so it makes nothing durable.
///
/// # Errors
/// Pages may have been given up: no later flush of them may be believed. The next flush through another handle reports a
/// failed write as well, but not one that the file system did not begin.
#[cfg(target_os = "linux")]
pub(crate) fn write_out(file: &File, range: Range<u64>) -> io::Result<()> {
    let flags =
        libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    let (start, len) = (range.start as libc::off64_t, (range.end - range.start) as libc::off64_t);
    loop {
        // SAFETY: plain system call on an open file descriptor.
        let status = unsafe { libc::sync_file_range(file.as_raw_fd(), start, len, flags) };
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            _ if status == 0 => return Ok(()),
            Some(libc::EINTR) => {}
            Some(libc::EPERM | libc::ESPIPE) => return Ok(()), // not allowed here, or not for this kind of file
            _ if is_unsupported(&error) => return Ok(()),
            _ => return Err(error),
        }
    }
}

/// Reads what is in memory of a file, without waiting for the disk.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] when nothing is; others where the file system has no such call.
#[cfg(target_os = "linux")]
pub(crate) fn read_in_memory(file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // By its number: C libraries before glibc 2.26 have no function for it. The offset goes in two halves, the second of which
    // counts only where a register has 32 bits.
    // SAFETY: the call writes into the one buffer of the vector, and no more than its length.
    let count = unsafe {
        libc::syscall(
            libc::SYS_preadv2,
            file.as_raw_fd(),
            &raw const part,
            1,
            offset as libc::c_ulong,
            (offset >> 32) as libc::c_ulong,
            libc::RWF_NOWAIT,
        )
    };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

/// Bytes of a page of memory: 4 KiB, or more on other processors than x86.
pub(crate) fn page_bytes() -> usize {
    static PAGE_BYTES: OnceLock<usize> = OnceLock::new();
    // SAFETY: plain system call.
    *PAGE_BYTES.get_or_init(|| usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096))
}

/// Counts the pages of a map that are in memory, from the page at `start` to the first one that is not, among those that hold `len`
/// bytes. Where the system does not tell, all count.
#[cfg(target_os = "linux")]
pub(crate) fn resident_pages(map: &MmapRaw, start: usize, len: usize) -> usize {
    /// Most pages of one question: a byte of the stack for each.
    const MAX_AT_ONCE: usize = 256;
    let page = page_bytes();
    assert!(start.is_multiple_of(page) && start + len <= map.len(), "the pages lie inside the map");
    let pages = len.div_ceil(page);
    let mut states = [0; MAX_AT_ONCE];
    let mut found = 0;
    while found < pages {
        let count = (pages - found).min(MAX_AT_ONCE);
        // SAFETY: the range lies inside the map, and there is a byte for each of its pages.
        let status = unsafe {
            let first = map.as_mut_ptr().add(start + found * page);
            libc::mincore(first.cast(), count * page, states.as_mut_ptr())
        };
        if status != 0 {
            return pages;
        }
        match states[..count].iter().position(|state| state & 1 == 0) {
            Some(missing) => return found + missing,
            None => found += count,
        }
    }
    found
}

/// Whether pages of a shared map may be taken out of the page table while other threads write to them.
///
/// Before Linux 6.2 a page left the list of its maps before every processor had forgotten its address: it could be written out
/// and counted as clean before a last write to it, which no flush would find.
///
/// # Source
/// Linux, "mm: delay page_remove_rmap() until after the TLB has been flushed".
#[cfg(target_os = "linux")]
pub(crate) fn unmapping_keeps_writes() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    #[allow(clippy::disallowed_methods, reason = "this crate is the door")]
    *ANSWER.get_or_init(|| {
        std::fs::read_to_string("/proc/sys/kernel/osrelease").is_ok_and(|release| is_since(&release, (6, 2)))
    })
}

/// Whether a kernel's release, `6.18.44-generic`, is that version or a later one.
#[cfg(target_os = "linux")]
fn is_since(release: &str, version: (u32, u32)) -> bool {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit()).map(str::parse);
    matches!((numbers.next(), numbers.next()), (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= version)
}

/// Turns read-ahead off for a file. Advice only: a failure changes nothing but speed.
///
/// Consume queue files are read in small pieces here and there, and are mostly holes: reading ahead fills memory with zeros.
#[cfg(target_os = "linux")]
pub(crate) fn expect_random_reads(file: &File) {
    // SAFETY: plain system call on an open file descriptor.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM) };
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn expect_random_reads(_file: &File) {}

/// First offset at or behind `offset` that holds data.
pub(crate) fn seek_data(file: &File, offset: u64) -> io::Result<Option<u64>> {
    // SAFETY: plain system call on an open file descriptor.
    let found = unsafe { libc::lseek(file.as_raw_fd(), offset as libc::off_t, libc::SEEK_DATA) };
    if found >= 0 {
        return Ok(Some(found as u64));
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENXIO) => Ok(None),
        Some(libc::EINVAL | libc::EOPNOTSUPP) => {
            Ok((offset < file.metadata()?.len()).then_some(offset)) // no such call here: everything counts as data
        }
        _ => Err(error),
    }
}

/// Whether [`sync_file_system`] reports failed writes: since Linux 5.8, and not of what lies below an overlay.
#[cfg(target_os = "linux")]
pub(crate) fn reports_errors_of_file_system(file: &File) -> bool {
    // SAFETY: all zeros is a valid utsname, a struct of plain bytes.
    let mut system: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: uname writes one utsname.
    if unsafe { libc::uname(&raw mut system) } != 0 {
        return false;
    }
    let release = system.release.map(libc::c_char::cast_unsigned);
    is_at_least_5_8(&release) && !is_overlay(file)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn reports_errors_of_file_system(_file: &File) -> bool {
    false
}

/// Whether a release of Linux, such as `6.1.0-13-amd64`, is 5.8 or later.
#[cfg(target_os = "linux")]
fn is_at_least_5_8(release: &[u8]) -> bool {
    let mut numbers = release.split(|byte| !byte.is_ascii_digit());
    let mut next = || str::from_utf8(numbers.next()?).ok()?.parse::<u32>().ok();
    next().zip(next()).is_some_and(|version| version >= (5, 8))
}

#[cfg(target_os = "linux")]
fn is_overlay(file: &File) -> bool {
    // SAFETY: all zeros is a valid statfs, a struct of plain integers.
    let mut stat: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open and fstatfs writes one struct.
    let status = unsafe { libc::fstatfs(file.as_raw_fd(), &raw mut stat) };
    status != 0 || stat.f_type == libc::OVERLAYFS_SUPER_MAGIC
}

/// Flushes the file system that holds an open file. Reports an error once to each open file.
#[cfg(target_os = "linux")]
pub(crate) fn sync_file_system(file: &File) -> io::Result<()> {
    // SAFETY: plain system call on an open file descriptor.
    if unsafe { libc::syncfs(file.as_raw_fd()) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn sync_file_system(_file: &File) -> io::Result<()> {
    Err(io::Error::from(io::ErrorKind::Unsupported))
}

/// Space of the file system under a path.
pub(crate) fn usage(path: &Path) -> io::Result<DiskUsage> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: all zeros is a valid statvfs, a struct of plain integers.
    let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the name ends with a zero byte and statvfs writes one struct.
    if unsafe { libc::statvfs(name.as_ptr(), &raw mut stat) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let block = stat.f_frsize as u64;
    let bytes = |blocks: u64| blocks * block;
    Ok(DiskUsage {
        file_system: stat.f_fsid as u64,
        total_bytes: bytes(stat.f_blocks as u64),
        free_bytes: bytes(stat.f_bfree as u64),
        available_bytes: bytes(stat.f_bavail as u64),
    })
}

/// Opens a new file without a name in a folder; `None` where the file system cannot.
#[cfg(target_os = "linux")]
#[allow(clippy::disallowed_methods, reason = "this crate is the door")]
pub(crate) fn open_unnamed(dir: &Path) -> io::Result<Option<File>> {
    use std::os::unix::fs::OpenOptionsExt;
    let opened = File::options().read(true).write(true).mode(0o644).custom_flags(libc::O_TMPFILE).open(dir);
    match opened {
        Ok(file) => Ok(Some(file)),
        Err(error)
            if matches!(
                error.raw_os_error(),
                Some(libc::EOPNOTSUPP | libc::EISDIR | libc::ENOENT | libc::EINVAL)
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn open_unnamed(_dir: &Path) -> io::Result<Option<File>> {
    Ok(None)
}

/// Gives an unnamed file its name; `false` where this is not possible.
#[cfg(target_os = "linux")]
pub(crate) fn link_unnamed(file: &File, path: &Path) -> io::Result<bool> {
    let from = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let to = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: both names end with a zero byte.
    let status = unsafe {
        libc::linkat(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), libc::AT_SYMLINK_FOLLOW)
    };
    if status == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EEXIST | libc::ENOSPC | libc::EDQUOT | libc::EROFS) => Err(error),
        _ => Ok(false), // no /proc, or a file system without links
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn link_unnamed(_file: &File, _path: &Path) -> io::Result<bool> {
    Ok(false)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn releases_are_compared_by_number() {
        for (release, is_new) in [
            ("5.8", true),
            ("5.10.0-28-amd64", true),
            ("6.1\0\0", true),
            ("10.0.1", true),
            ("5.7.19", false),
            ("4.18.0-553.el8", false),
            ("", false),
            ("weird", false),
        ] {
            assert_eq!(is_at_least_5_8(release.as_bytes()), is_new, "{release}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_release_of_the_kernel_is_compared_by_its_first_two_numbers() {
        for release in ["6.2.0", "6.18.44-generic", "7.0-rc1\n", "10.1"] {
            assert!(is_since(release, (6, 2)), "{release}");
        }
        for release in ["6.1.170", "5.14.0-611.el9.x86_64", "4.18.0", "", "linux", "6"] {
            assert!(!is_since(release, (6, 2)), "{release}");
        }
    }

    #[test]
    fn zeros_are_written_for_as_long_as_they_are_wanted() {
        let file = tempfile::tempfile().unwrap();
        let left = Cell::new(3);
        let is_wanted = || left.replace(left.get() - 1) > 0;
        let given_up = write_zeros(&file, 0..1 << 30, &is_wanted).unwrap_err();
        assert_eq!(given_up.kind(), io::ErrorKind::Interrupted);
        assert_eq!(file.metadata().unwrap().len(), 3 << 20);
        write_zeros(&file, 0..5 << 20, &|| true).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 5 << 20);
    }
}
