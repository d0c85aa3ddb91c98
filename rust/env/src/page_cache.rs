//! Which page cache holds the files of a folder.
#![allow(clippy::disallowed_methods, reason = "this crate is the door")]

use std::path::Path;

/// Names this run of the machine, the mount of a folder and the folder itself. `None` where the system does not tell: without
/// `/proc`, and before Linux 6.8, which numbers a mount like a former one.
#[cfg(target_os = "linux")]
pub(crate) fn page_cache(dir: &Path) -> Option<String> {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let path = CString::new(dir.as_os_str().as_bytes()).ok()?;
    let wanted = libc::STATX_INO | libc::STATX_MNT_ID_UNIQUE;
    // SAFETY: all zeros is a valid statx, a struct of plain integers.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends with a zero byte, and statx writes one struct.
    let status = unsafe { libc::statx(libc::AT_FDCWD, path.as_ptr(), 0, wanted, &raw mut found) };
    let is_told = status == 0 && found.stx_mask & wanted == wanted;
    let libc::statx { stx_dev_major, stx_dev_minor, stx_mnt_id, stx_ino, .. } = found;
    is_told.then(|| format!("{} {stx_dev_major}:{stx_dev_minor} {stx_mnt_id} {stx_ino}", boot.trim()))
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn page_cache(_dir: &Path) -> Option<String> {
    None
}
