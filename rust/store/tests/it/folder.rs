//! Folders that are no store, are taken, or may not be used; files of the wrong size or name.

use std::os::unix::process::CommandExt;
use std::process::Command;

use rocketpy_env::{Disk, DiskFile, EnvError, LockHolder, OpenMode, RealDisk};
use rocketpy_store::reader::{ReadError, StoreReader};
use rocketpy_store::{Store, StoreConfig, StoreError};
use rocketpy_tools as tools;

use crate::faulty::FaultyDisk;
use crate::support::{contents, overwrite, record, small};

#[test]
fn a_folder_of_other_things_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    RealDisk.replace(&dir.path().join("thesis.txt"), b"precious").unwrap();
    let before = contents(dir.path());
    let error = Store::open(small(dir.path())).unwrap_err();
    assert!(matches!(&error, StoreError::ForeignFolder { found, .. } if found == "thesis.txt"), "{error}");
    assert!(error.hint().unwrap().contains("empty"));
    assert_eq!(contents(dir.path()), before);
}

#[test]
fn a_new_an_empty_and_a_freshly_mounted_folder_become_stores() {
    let dir = tempfile::tempdir().unwrap();
    Store::open(small(dir.path())).unwrap();
    Store::open(small(&dir.path().join("a/b/c"))).unwrap();
    let mounted = dir.path().join("mounted");
    RealDisk.create_dir_all(&mounted.join("lost+found")).unwrap();
    RealDisk.replace(&mounted.join("server.log"), b"starting").unwrap();
    Store::open(small(&mounted)).unwrap();
}

#[test]
fn a_path_that_is_a_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    RealDisk.replace(&file, b"x").unwrap();
    let error = Store::open(small(&file)).unwrap_err();
    assert!(matches!(error, StoreError::Env(EnvError::NotAFolder { .. })), "{error}");
    assert!(matches!(StoreReader::open(&file), Err(ReadError::NotAStore { .. })));
}

#[test]
fn a_folder_in_use_is_refused_until_its_store_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(small(dir.path())).unwrap();
    let error = Store::open(small(dir.path())).unwrap_err();
    assert!(matches!(error, StoreError::Locked { holder: LockHolder::ThisProcess, .. }), "{error}");
    assert!(error.retryable());
    store.append(&record("t", 0, b"x")).unwrap();
    store.shutdown().unwrap();
    store.shutdown().unwrap();
    assert!(store.append(&record("t", 0, b"x")).is_err());
    Store::open(small(dir.path())).unwrap();
}

#[test]
fn two_stores_cannot_share_a_folder_of_the_log() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = Store::open(small(one.path())).unwrap();
    store.append(&record("t", 0, b"x")).unwrap();
    let shared = one.path().join("commitlog");
    let config = || StoreConfig { commit_log_dir: Some(shared.clone()), ..small(other.path()) };
    let before = contents(&shared);
    match Store::open(config()).unwrap_err() {
        StoreError::Locked { path, .. } => assert_eq!(path, shared),
        error => panic!("{error}"),
    }
    assert_eq!(contents(&shared), before);
    store.shutdown().unwrap();
    drop(Store::open(small(one.path())).unwrap());
}

#[test]
fn a_closed_store_leaves_lock_and_checkpoint_and_no_abort_and_no_unused_file() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(small(dir.path())).unwrap();
    let body = vec![0; 30_000];
    for _ in 0..2 {
        store.append(&record("t", 0, &body)).unwrap(); // more than half of a file: the next one is made ahead
    }
    let names = |dir: &std::path::Path| {
        RealDisk
            .list(dir)
            .unwrap()
            .into_iter()
            .map(|entry| entry.name.into_string().unwrap())
            .collect::<Vec<_>>()
    };
    crate::support::eventually("the next file is made ahead", || {
        names(&dir.path().join("commitlog")).len() == 2
    });
    assert_eq!(names(dir.path()), ["abort", "checkpoint", "commitlog", "consumequeue", "index", "lock"]);
    store.shutdown().unwrap();
    assert_eq!(names(dir.path()), ["checkpoint", "commitlog", "consumequeue", "index", "lock"]);
    assert_eq!(names(&dir.path().join("commitlog")), ["00000000000000000000"]);
}

#[test]
fn an_empty_store_allocates_no_log_file() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(StoreConfig::new(dir.path())).unwrap();
    assert_eq!(store.max_physical_offset().get(), 0);
    assert_eq!(RealDisk.list(&dir.path().join("commitlog")).unwrap(), []);
}

#[test]
fn files_of_another_size_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(small(dir.path())).unwrap();
    store.append(&record("t", 0, b"x")).unwrap();
    drop(store);
    let other = StoreConfig { commit_log_file_size: 128 << 10, ..small(dir.path()) };
    let error = Store::open(other).unwrap_err();
    assert!(
        matches!(error, StoreError::WrongFileSize { found_bytes: 65_536, expected_bytes: 131_072, .. }),
        "{error}"
    );
    let hint = error.hint().unwrap();
    assert!(
        hint.contains("mappedFileSizeCommitLog=65536") && hint.contains("rocketpy store repair"),
        "{hint}"
    );
    let other = StoreConfig { consume_queue_file_size: 4000, ..small(dir.path()) };
    let error = Store::open(other).unwrap_err();
    assert!(
        matches!(error, StoreError::WrongFileSize { found_bytes: 2000, expected_bytes: 4000, .. }),
        "{error}"
    );
    assert!(error.hint().unwrap().contains("mappedFileSizeConsumeQueue=2000"), "{error}");
    assert!(!error.is_damage(), "the configuration is at fault");
    Store::open(small(dir.path())).unwrap();
    for (file, left_bytes) in [("commitlog", 1000), ("commitlog", 30_000), ("consumequeue/t/0", 1990)] {
        let dir = tempfile::tempdir().unwrap();
        Store::open(small(dir.path())).unwrap().append(&record("t", 0, b"x")).unwrap();
        let path = dir.path().join(file).join(format!("{:020}", 0));
        RealDisk.open_file(&path, OpenMode::Write).unwrap().set_len(left_bytes).unwrap();
        let error = Store::open(small(dir.path())).unwrap_err();
        assert!(error.is_damage() && error.hint().unwrap().contains("truncated"), "{error}");
    }
}

#[test]
fn a_log_whose_only_file_was_cut_off_opens_with_that_size_after_a_repair() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(small(dir.path())).unwrap();
    while store.max_physical_offset().get() < 40 << 10 {
        store.append(&record("t", 0, &[7; 1000])).unwrap();
    }
    store.shutdown().unwrap();
    drop(store);
    let path = dir.path().join("commitlog").join(format!("{:020}", 0));
    RealDisk.open_file(&path, OpenMode::Write).unwrap().set_len(32 << 10).unwrap();
    let hint = Store::open(small(dir.path())).unwrap_err().hint().unwrap();
    assert!(
        hint.contains("mappedFileSizeCommitLog=32768") && hint.contains("rocketpy store repair"),
        "{hint}"
    );
    tools::repair(&StoreReader::open(dir.path()).unwrap(), &mut |_| true).unwrap();
    let store = Store::open(StoreConfig { commit_log_file_size: 32 << 10, ..small(dir.path()) }).unwrap();
    assert!(store.max_physical_offset().get() > 30 << 10, "everything before the cut is there");
}

#[test]
fn a_file_that_is_shorter_than_the_others_was_cut_off_and_no_key_makes_it_fit() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(small(dir.path())).unwrap();
    while store.max_physical_offset().get() < 2 * (64 << 10) {
        store.append(&record("t", 0, &[7; 1000])).unwrap();
    }
    drop(store);
    let path = dir.path().join("commitlog").join(format!("{:020}", 0));
    RealDisk.open_file(&path, OpenMode::Write).unwrap().set_len(32 << 10).unwrap();
    let error = Store::open(small(dir.path())).unwrap_err();
    let hint = error.hint().unwrap();
    assert!(
        error.is_damage() && hint.contains("truncated") && !hint.contains("set mapped"),
        "{error}: {hint}"
    );
}

#[test]
fn a_file_with_another_name_in_the_log_folder_is_named() {
    let dir = tempfile::tempdir().unwrap();
    drop(Store::open(small(dir.path())).unwrap());
    RealDisk.replace(&dir.path().join("commitlog/notes.txt"), b"x").unwrap();
    let error = Store::open(small(dir.path())).unwrap_err();
    assert!(matches!(&error, StoreError::UnexpectedFile { path } if path.ends_with("notes.txt")), "{error}");
}

#[test]
fn a_name_without_its_zeros_is_no_file_of_the_log_or_of_a_queue() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(small(dir.path())).unwrap();
    store.append(&record("t", 0, b"x")).unwrap();
    drop(store);
    for name in ["commitlog/65536", "commitlog/000000000000000065536", "consumequeue/t/0/2000"] {
        let path = dir.path().join(name);
        RealDisk.replace(&path, &[0; 2000]).unwrap();
        let error = Store::open(small(dir.path())).unwrap_err();
        assert!(matches!(&error, StoreError::UnexpectedFile { path: named } if *named == path), "{error}");
        RealDisk.remove_file(&path).unwrap();
    }
    Store::open(small(dir.path())).unwrap();
}

#[test]
fn values_out_of_bounds_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let config = StoreConfig { commit_log_file_size: 100, ..small(dir.path()) };
    let error = Store::open(config).unwrap_err();
    assert!(
        matches!(error, StoreError::BadConfig { field: "commit_log_file_size", value: 100, .. }),
        "{error}"
    );
    let config = StoreConfig { fault_in_ahead: (64 << 20) + 1, ..small(dir.path()) };
    let error = Store::open(config).unwrap_err();
    assert!(matches!(error, StoreError::BadConfig { field: "fault_in_ahead", .. }), "{error}");
    let odd = StoreConfig { consume_queue_file_size: 2001, ..small(dir.path()) };
    assert_eq!(
        Store::open(odd).unwrap().config().consume_queue_file_size,
        2020,
        "rounded up to whole entries"
    );
}

/// Opens a store as a user without rights and prints the result. Run without a parent test, it opens a store of its
/// own.
#[test]
fn child_opens_a_store() {
    let Some(root) = std::env::var_os("ROCKETPY_OPEN_STORE") else {
        let dir = tempfile::tempdir().unwrap();
        Store::open(small(dir.path())).unwrap();
        return;
    };
    let error = Store::open(small(root.as_ref())).unwrap_err();
    panic!("refused: {error:?}; hint: {:?}", error.hint());
}

#[test]
fn a_folder_without_write_permission_is_refused_with_a_hint() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    drop(Store::open(small(&root)).unwrap());
    let set_mode = |mode: &str| {
        assert!(Command::new("chmod").args(["-R", mode]).arg(dir.path()).status().unwrap().success())
    };
    set_mode("a+rX,a-w");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "folder::child_opens_a_store", "--nocapture"]).env("ROCKETPY_OPEN_STORE", &root);
    if Command::new("id").arg("-u").output().unwrap().stdout == b"0\n" {
        command.uid(65534); // root may write anywhere
    }
    let output = command.output();
    set_mode("u+w");
    let output = match output {
        // The user without rights may not even be allowed to run the test's own file, below a home folder.
        Err(error) => return assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied),
        Ok(output) => {
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
        }
    };
    assert!(output.contains("refused: Env(PermissionDenied"), "{output}");
    assert!(output.contains("give this user read and write permission"), "{output}");
}

#[test]
fn a_folder_of_another_program_is_refused_though_it_has_names_of_ours() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["config", "index", "src"] {
        RealDisk.create_dir_all(&dir.path().join(name)).unwrap();
    }
    RealDisk.replace(&dir.path().join("lock"), b"").unwrap();
    let error = Store::open(small(dir.path())).unwrap_err();
    assert!(matches!(&error, StoreError::ForeignFolder { found, .. } if found == "src"), "{error}");
    RealDisk.remove_dir_all(&dir.path().join("src")).unwrap();
    Store::open(small(dir.path())).unwrap(); // as a first start that was cut short leaves it
}

#[test]
fn names_of_new_folders_are_made_durable_in_the_folders_above() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("a/b");
    let disk = FaultyDisk::default();
    let config = StoreConfig { commit_log_dir: Some(dir.path().join("logs/of/store")), ..small(&root) };
    drop(Store::open_on(disk.clone(), config).unwrap());
    let synced = disk.faults.synced_folders.lock().clone();
    for folder in ["", "a", "a/b", "logs", "logs/of"] {
        assert!(synced.contains(&dir.path().join(folder)), "{folder}: {synced:?}");
    }
}

#[test]
fn names_and_numbers_that_no_store_wrote_do_not_end_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    let store = Store::open(config.clone()).unwrap();
    store.append(&record("t", 0, b"x")).unwrap();
    drop(store);
    let topic = dir.path().join("consumequeue/t");
    let file = format!("{:020}", 0);
    let entries = RealDisk.read(&topic.join("0").join(&file), 1 << 20).unwrap();
    for name in ["00", "+0"] {
        RealDisk.create_dir_all(&topic.join(name)).unwrap();
        RealDisk.replace(&topic.join(name).join(&file), &entries).unwrap();
    }
    let times = [i64::MIN.to_be_bytes(); 3].concat();
    let checkpoint = dir.path().join("checkpoint");
    overwrite(&checkpoint, 0, &times);
    assert!(matches!(Store::open(config.clone()), Err(StoreError::BadCheckpoint { .. })));
    RealDisk.remove_file(&checkpoint).unwrap();
    drop(Store::open(config.clone()).unwrap());
    let last = dir.path().join("commitlog").join(u64::MAX.to_string());
    RealDisk.replace(&last, &[0; 64 << 10]).unwrap();
    assert!(matches!(Store::open(config), Err(StoreError::UnexpectedFile { path }) if path == last));
}
