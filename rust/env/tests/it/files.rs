//! Files by position, replaced files, folders, errors that name path and operation.

use std::os::unix::fs::symlink;

use rocketpy_env::{Disk, DiskFile, EntryKind, EnvError, OpenMode, RealDisk};

#[test]
fn a_replaced_file_has_the_new_bytes_and_leaves_no_temporary() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("topics.json");
    RealDisk.replace(&path, b"one").unwrap();
    RealDisk.replace(&path, b"two").unwrap();
    assert_eq!(RealDisk.read(&path, 10).unwrap(), b"two");
    let names: Vec<_> = RealDisk.list(dir.path()).unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["topics.json"]);
}

#[test]
fn a_backup_keeps_the_content_before_the_last_replacement() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("topics.json");
    for content in [b"one", b"two", b"six"] {
        RealDisk.replace_keeping_backup(&path, content).unwrap();
    }
    assert_eq!(RealDisk.read(&path, 10).unwrap(), b"six");
    let backup = dir.path().join("topics.json.bak");
    assert_eq!(RealDisk.read(&backup, 10).unwrap(), b"two");
    RealDisk.remove_file(&path).unwrap();
    RealDisk.replace_keeping_backup(&path, b"new").unwrap();
    assert_eq!(RealDisk.read(&backup, 10).unwrap(), b"two", "there was no file to take its place");
}

#[test]
fn errors_name_the_operation_and_the_path() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("nothing");
    let error = RealDisk.read(&missing, 10).unwrap_err();
    assert!(error.is_not_found());
    assert_eq!(error.path(), missing);
    assert_eq!(error.to_string(), format!("no such file or folder, cannot open: {}", missing.display()));

    let file = dir.path().join("file");
    RealDisk.replace(&file, b"12345").unwrap();
    assert!(matches!(RealDisk.read(&file, 4), Err(EnvError::TooLong { limit_bytes: 4, .. })));
    assert!(matches!(RealDisk.create_dir_all(&file), Err(EnvError::NotAFolder { .. })));
    assert!(matches!(RealDisk.create_dir_all(&file.join("below")), Err(EnvError::NotAFolder { .. })));
    assert!(matches!(RealDisk.list(&file), Err(EnvError::NotAFolder { .. })));
    let open = RealDisk.open_file(&file, OpenMode::Read).unwrap();
    assert!(matches!(open.read_exact_at(3, &mut [0; 3]), Err(EnvError::UnexpectedEnd { wanted_end: 6, .. })));
}

#[test]
fn a_fault_of_the_device_sends_to_the_disk() {
    let fault = || std::io::Error::from_raw_os_error(5);
    for error in [
        EnvError::from_io("read", "/f".as_ref(), fault()),
        EnvError::from_flush("flush", "/f".as_ref(), fault()),
    ] {
        assert!(error.hint().unwrap().contains("check the disk"), "{error}");
    }
}

#[test]
fn a_sparse_file_reads_as_zeros_and_says_where_data_begins() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("queue");
    let file = RealDisk.open_file(&path, OpenMode::CreateOrWrite).unwrap();
    file.set_len(6_000_000).unwrap();
    assert_eq!(file.next_data(0).unwrap(), None);
    file.write_all_at(4_000_000, b"entry").unwrap();
    let data = file.next_data(0).unwrap().unwrap();
    assert!((3_900_000..=4_000_000).contains(&data), "{data}");
    let mut bytes = [1; 20];
    file.read_exact_at(100, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 20]);
    assert_eq!(file.len().unwrap(), 6_000_000);
    assert_eq!(file.read_at(5_999_990, &mut [0; 100]).unwrap(), 10);
}

#[test]
fn folders_are_listed_by_name_with_kind_and_length() {
    let dir = tempfile::tempdir().unwrap();
    RealDisk.create_dir_all(&dir.path().join("b/c")).unwrap();
    RealDisk.replace(&dir.path().join("a"), b"12").unwrap();
    let entries = RealDisk.list(dir.path()).unwrap();
    let listed: Vec<_> =
        entries.iter().map(|entry| (entry.name.to_str().unwrap(), entry.kind, entry.size_bytes)).collect();
    assert_eq!(listed, [("a", EntryKind::File, 2), ("b", EntryKind::Folder, 0)]);
    for (from, to) in [("to-a", "a"), ("to-b", "b"), ("to-nothing", "missing")] {
        symlink(to, dir.path().join(from)).unwrap();
    }
    let entries = RealDisk.list(dir.path()).unwrap();
    let links: Vec<_> = entries[2..]
        .iter()
        .map(|entry| (entry.name.to_str().unwrap(), entry.kind, entry.size_bytes))
        .collect();
    assert_eq!(
        links,
        [("to-a", EntryKind::File, 2), ("to-b", EntryKind::Folder, 0)],
        "as what they point to"
    );
    for name in ["to-a", "to-b", "to-nothing"] {
        RealDisk.remove_file(&dir.path().join(name)).unwrap();
    }
    RealDisk.remove_dir_all(&dir.path().join("b")).unwrap();
    RealDisk.remove_file(&dir.path().join("a")).unwrap();
    assert_eq!(RealDisk.list(dir.path()).unwrap(), []);
}

#[test]
fn a_disk_reports_its_space() {
    let dir = tempfile::tempdir().unwrap();
    let usage = RealDisk.usage(dir.path()).unwrap();
    assert!(usage.total_bytes >= usage.available_bytes && usage.total_bytes > 0);
    assert!(RealDisk.usage(&dir.path().join("nothing")).unwrap_err().is_not_found());
}

#[test]
fn zeroing_a_range_shows_in_the_map_and_changes_no_other_byte() {
    use rocketpy_env::Region;
    let dir = tempfile::tempdir().unwrap();
    for keep_allocated in [true, false] {
        let path = dir.path().join(format!("file-{keep_allocated}"));
        let region = RealDisk.create_region(&path, 64 << 10).unwrap();
        region.append(&vec![7; 64 << 10], 64 << 10);
        let file = RealDisk.open_file(&path, OpenMode::Write).unwrap();
        file.zero_range(5000..40_000, keep_allocated).unwrap();
        file.sync().unwrap();
        let bytes = region.view(0..64 << 10);
        assert!(bytes[..5000].iter().chain(&bytes[40_000..]).all(|&byte| byte == 7));
        assert!(bytes[5000..40_000].iter().all(|&byte| byte == 0));
        assert_eq!(file.len().unwrap(), 64 << 10);
        file.zero_range(100..100, keep_allocated).unwrap();
    }
}

#[test]
fn an_allocated_range_keeps_its_bytes_and_has_space() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let file = RealDisk.open_file(&path, OpenMode::CreateOrWrite).unwrap();
    file.set_len(1 << 20).unwrap();
    file.write_all_at(300_000, b"record").unwrap();
    assert!(std::fs::metadata(&path).unwrap().blocks() * 512 < 1 << 19, "a sparse file");
    file.allocate(0..1 << 20).unwrap();
    assert!(std::fs::metadata(&path).unwrap().blocks() * 512 >= 1 << 20);
    let mut bytes = [0; 6];
    file.read_exact_at(300_000, &mut bytes).unwrap();
    assert_eq!((&bytes, file.len().unwrap()), (b"record", 1 << 20));
}

#[test]
fn what_cannot_be_opened_is_told_from_a_failed_flush() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("nothing");
    assert!(RealDisk.sync_dir(&missing).unwrap_err().is_of_opening());
    assert!(RealDisk.open_file_system(&missing).unwrap_err().is_of_opening());
    let failed = EnvError::from_flush("flush", &missing, std::io::Error::from_raw_os_error(5));
    assert!(!failed.is_of_opening() && failed.is_failed_flush());
    let all =
        EnvError::from_flush("flush the file system of", &missing, std::io::Error::from_raw_os_error(30));
    assert!(all.is_failed_flush(), "{all}");
    let full = EnvError::from_flush("flush", &missing, std::io::Error::from_raw_os_error(28));
    assert!(!full.is_failed_flush() && matches!(full, EnvError::NoSpace { .. }));
    assert!(!RealDisk.sync_dir(&missing).unwrap_err().is_failed_flush());
}

/// Makes a file that does not fit into the memory that it may map. Run without its variable it makes a small one.
#[test]
fn child_makes_a_region() {
    let Some(path) = std::env::var_os("ROCKETPY_MAKE_REGION") else {
        let dir = tempfile::tempdir().unwrap();
        RealDisk.create_region(&dir.path().join("small"), 4096).unwrap();
        return;
    };
    panic!("refused: {:?}", RealDisk.create_region(path.as_ref(), 2 << 30).map(drop).unwrap_err());
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_that_cannot_be_mapped_leaves_no_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "ulimit -v 2000000; exec \"$0\" --exact files::child_makes_a_region --nocapture"]);
    command.arg(std::env::current_exe().unwrap()).env("ROCKETPY_MAKE_REGION", &path);
    let output = command.output().unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("refused: Io { operation: \"map\""), "{text}");
    assert!(!path.exists(), "the next try finds the name free");
}

#[cfg(target_os = "linux")]
#[test]
fn bytes_that_are_not_in_memory_are_not_waited_for() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap(); // a disk: memory is what a tmpfs has
    let path = dir.path().join("queue");
    let file = RealDisk.open_file(&path, OpenMode::CreateOrWrite).unwrap();
    file.write_all_at(0, &[7; 3 * 4096]).unwrap();
    file.sync().unwrap();
    let mut bytes = [0; 100];
    assert!(file.read_in_memory_at(5000, &mut bytes).unwrap());
    assert_eq!(bytes, [7; 100]);
    // The question itself makes the kernel read ahead; a disk that is fast enough has the bytes before the question ends.
    let is_answered_at_once = || {
        crate::region::forget(&path);
        !file.read_in_memory_at(5000, &mut [0; 100]).unwrap()
    };
    assert!((0..100).any(|_| is_answered_at_once()), "each of 100 reads waited for the disk");
    file.read_exact_at(5000, &mut bytes).unwrap();
    assert!(file.read_in_memory_at(5000, &mut bytes).unwrap());
    assert_eq!(file.read_at(3 * 4096 - 10, &mut bytes).unwrap(), 10);
    let beyond = file.read_in_memory_at(3 * 4096 - 10, &mut bytes);
    assert!(matches!(beyond, Err(EnvError::UnexpectedEnd { .. })), "{beyond:?}");
}

#[test]
fn a_folder_keeps_the_name_of_its_page_cache_and_another_folder_has_another() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let name = RealDisk.page_cache(dir.path());
    assert_eq!(RealDisk.page_cache(&dir.path().join(".")), name);
    assert!(name.is_none() || RealDisk.page_cache(other.path()) != name, "{name:?}");
    assert_eq!(RealDisk.page_cache(&dir.path().join("missing")), None);
}
