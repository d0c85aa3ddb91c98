//! What the operating system grants this process.

use std::io;
use std::path::Path;

use crate::{Disk, RealDisk};

/// Maximum size of a file of the kernel that is read.
const MAX_FILE_BYTES: u64 = 1 << 16;

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

/// Memory that this process may use, in bytes: that of the machine, or less where a control group (v1 or v2) of this process or one above
/// it has a limit. `None` where the system does not tell.
pub fn memory_limit() -> Option<u64> {
    let machine = read("/proc/meminfo".as_ref()).and_then(|text| machine_memory(&text));
    let groups =
        read("/proc/self/cgroup".as_ref()).and_then(|own| group_limit("/sys/fs/cgroup".as_ref(), &own));
    [machine, groups].into_iter().flatten().min()
}

fn read(path: &Path) -> Option<String> {
    String::from_utf8(RealDisk.read(path, MAX_FILE_BYTES).ok()?).ok()
}

/// `meminfo`: text of `/proc/meminfo`.
fn machine_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The lowest limit of the groups in `own`, the text of `/proc/self/cgroup`, and of all groups above them. A container may see its own
/// group as the root.
fn group_limit(mount: &Path, own: &str) -> Option<u64> {
    let limits = own.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, group) = (parts.next()?, parts.next()?);
        match controllers {
            "" => lowest(mount, group, &["memory.max", "memory.high"]),
            _ if controllers.split(',').any(|name| name == "memory") => {
                lowest(&mount.join("memory"), group, &["memory.limit_in_bytes"])
            }
            _ => None,
        }
    });
    limits.min()
}

/// The lowest number in files of these names, in the folder of a group and those above it. Version 1 shows no limit as a number beyond any memory.
fn lowest(mount: &Path, group: &str, names: &[&str]) -> Option<u64> {
    let group = Path::new(group.trim_start_matches('/'));
    // A group outside the view of a container has a path of `..`.
    let group = if group.components().all(|part| matches!(part, std::path::Component::Normal(_))) {
        group
    } else {
        Path::new("")
    };
    let files =
        group.ancestors().flat_map(|folder| names.iter().map(move |name| mount.join(folder).join(name)));
    files.filter_map(|file| read(&file)?.trim().parse().ok()).min()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "a test makes its own files")]

    use std::fs;

    use super::*;

    #[test]
    fn the_lowest_limit_of_a_group_and_those_above_it_counts() {
        let folder = tempfile::tempdir().unwrap();
        let set = |path: &str, text: &str| {
            let file = folder.path().join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        let limit = |own: &str| group_limit(folder.path(), own);
        assert_eq!(limit("0::/\n"), None, "no group has a file");
        set("a/b/memory.max", "max\n");
        set("a/memory.max", "3000\n");
        set("a/b/memory.high", "2500\n");
        assert_eq!(limit("0::/a/b\n"), Some(2500));
        assert_eq!(limit("0::/a\n"), Some(3000));
        set("memory/c/memory.limit_in_bytes", "9223372036854771712\n");
        set("memory/memory.limit_in_bytes", "700\n");
        assert_eq!(limit("4:cpu,memory:/c\n1:cpu:/c\n0::/\n"), Some(700), "version 1");
        assert_eq!(limit("4:memory:/of/the/host\n"), Some(700), "a container sees its group as the root");
        assert_eq!(limit("0::/../../c\n"), None);
        assert_eq!(limit("0::/a\n4:memory:/c\n"), Some(700), "the lowest of both versions");
        assert_eq!(limit("no lines of groups"), None);
    }

    #[test]
    fn memory_of_the_machine_is_read_in_kib() {
        assert_eq!(machine_memory("MemFree: 1 kB\nMemTotal:       16384 kB\n"), Some(16 << 20));
        assert_eq!(machine_memory("MemTotal: many kB"), None);
        assert!(memory_limit().is_some_and(|bytes| bytes > 1 << 20));
    }

    #[test]
    fn the_limit_that_is_returned_is_in_force() {
        let raised = raise_open_file_limit().unwrap();
        assert_eq!(crate::open_file_limit(), raised);
    }
}
