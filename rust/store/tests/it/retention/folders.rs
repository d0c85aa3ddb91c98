//! A log in several folders.

use super::*;

/// Two folders of the log beside the root.
fn two_folders(root: &Path) -> (StoreConfig, [PathBuf; 2]) {
    let dirs = [root.join("disk-a/log"), root.join("disk-b/log")];
    let config = hourly(&root.join("store"));
    let config = StoreConfig {
        commit_log_dir: Some(dirs[1].clone()),
        more_commit_log_dirs: vec![dirs[0].clone()],
        ..config
    };
    (config, dirs)
}

#[test]
fn several_folders_of_the_log_take_turns_and_are_one_log() {
    let dir = tempfile::tempdir().unwrap();
    let (config, [a, b]) = two_folders(dir.path());
    let disk = FaultyDisk::default();
    let store = Store::open_on(disk.clone(), config.clone()).unwrap();
    fill(&store, "t", 0..6 * A_FILE);
    let size = config.commit_log_file_size;
    let numbers = |dir: &Path| names(dir).iter().map(|start| start / size).collect::<Vec<_>>();
    assert_eq!((numbers(&a), numbers(&b)), (vec![0, 2, 4], vec![1, 3, 5]));
    store.shutdown().unwrap();
    drop(store);
    let store = Store::open_on(disk.clone(), config.clone()).unwrap();
    assert!(!store.recovery().rebuilt_queues);
    assert_eq!(readable(&store, "t"), 0..6 * A_FILE);
    let both = [a.to_str().unwrap(), b.to_str().unwrap()].join(", ");
    let scanned = |log: &Path| {
        let reader = StoreReader::open_with_log(&config.root, log)?;
        let ranges = reader.ranges("t", &RangeOptions::default())?;
        let mut scan = reader.scan(&ranges, ScanOptions::default())?;
        let mut count = 0;
        while scan.advance()? {
            count += scan.block().records.len();
        }
        Ok::<_, ReadError>(count)
    };
    assert_eq!(scanned(Path::new(&both)).unwrap(), 6 * A_FILE, "also to who reads the files");
    assert!(scanned(&a).is_err(), "one of the two is not the log");
    assert!(scanned(&a.join(",x")).is_err());
    disk.set_clock(now_ms() + 2 * HOUR_MS);
    fill(&store, "t", 6 * A_FILE..7 * A_FILE);
    assert!(store.clean().unwrap().log_files >= 4);
    let copy = tempfile::tempdir().unwrap();
    killed_copy(dir.path(), copy.path());
    let (copied, _) = two_folders(copy.path());
    let left = readable(&store, "t");
    assert_eq!(readable(&open(copied).unwrap(), "t"), left);
    drop(store);
    RealDisk.create_dir_all(&a).unwrap();
    let twice = names(&b)[0];
    RealDisk.replace(&a.join(format!("{twice:020}")), &vec![0; size as usize]).unwrap();
    assert!(matches!(open(config), Err(StoreError::UnexpectedFile { .. })), "a file is there twice");
}

#[test]
fn a_folder_that_is_full_or_read_only_gets_no_new_file() {
    let dir = tempfile::tempdir().unwrap();
    let (config, [a, b]) = two_folders(dir.path());
    let disk = FaultyDisk::default();
    disk.set_used_percent(&dir.path().join("disk-a"), 86);
    let store = Store::open_on(disk.clone(), config.clone()).unwrap();
    fill(&store, "t", 0..3 * A_FILE);
    assert_eq!((names(&a).len(), names(&b).len()), (0, 3));
    assert!(store.refusal().is_none());
    disk.set_used_percent(&dir.path().join("disk-a"), 20);
    store.clean().unwrap();
    fill(&store, "t", 3 * A_FILE..5 * A_FILE);
    let before = names(&a).len();
    assert!(before > 0, "it has space again");
    store.shutdown().unwrap();
    drop(store);
    let read_only = StoreConfig { read_only_commit_log_dirs: vec![a.clone()], ..config.clone() };
    let store = Store::open_on(disk.clone(), read_only).unwrap();
    fill(&store, "t", 5 * A_FILE..8 * A_FILE);
    assert_eq!(names(&a).len(), before);
    assert_eq!(readable(&store, "t"), 0..8 * A_FILE);
    drop(store);
    let gone = dir.path().join("gone");
    let unmounted =
        StoreConfig { read_only_commit_log_dirs: vec![a.clone(), gone.clone()], ..config.clone() };
    let error = open(unmounted).unwrap_err();
    assert!(matches!(&error, StoreError::MissingFolder { path } if *path == gone), "{error}");
    assert!(error.hint().unwrap().contains("readOnlyCommitLogStorePaths"));
    assert!(RealDisk.list(&gone).unwrap_err().is_not_found(), "it was made");
    let none = StoreConfig { read_only_commit_log_dirs: vec![a, b], ..config };
    assert!(matches!(open(none), Err(StoreError::BadConfig { .. })));
}

#[test]
fn a_folder_without_space_passes_its_turn_to_another() {
    let dir = tempfile::tempdir().unwrap();
    let (config, [a, b]) = two_folders(dir.path());
    let disk = FaultyDisk::default();
    disk.no_space_below(&dir.path().join("disk-a"));
    let store = Store::open_on(disk.clone(), config).unwrap();
    fill(&store, "t", 0..4 * A_FILE);
    assert_eq!((names(&a).len(), names(&b).len()), (0, 4));
    readable(&store, "t");
}
