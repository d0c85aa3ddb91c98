//! What a snapshot holds, and what it shares with its store.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rocketpy_env::{Disk, RealDisk};
use rocketpy_store::reader::{ReadError, StoreReader};
use rocketpy_store::{Store, StoreError};
use rocketpy_tools::{self as tools, Selected, Selection, ToolError};

use crate::support::{erase_mark, is_there, overwrite, read_all, settle, small};
use crate::{assert_sound, closed, fill, go_on, kinds, log_file, records, verify};

/// Path, inode, bytes and time of change of each file of the log.
fn log_files(root: &Path) -> BTreeMap<String, (u64, i64, i64, Vec<u8>)> {
    let dir = root.join("commitlog");
    let files = RealDisk.list(&dir).unwrap();
    let look = |name: String| {
        let path = dir.join(&name);
        #[allow(clippy::disallowed_methods, reason = "inode and times are what this is about")]
        let metadata = std::fs::metadata(&path).unwrap();
        let facts = (metadata.ino(), metadata.mtime(), metadata.mtime_nsec());
        (name, (facts.0, facts.1, facts.2, RealDisk.read(&path, 1 << 30).unwrap()))
    };
    files.into_iter().map(|file| look(file.name.into_string().unwrap())).collect()
}

#[test]
fn a_snapshot_holds_what_was_readable_shares_complete_files_and_a_server_on_it_leaves_the_store_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (root, target) = (dir.path().join("store"), dir.path().join("snapshot"));
    let store = Store::open(small(&root)).unwrap();
    RealDisk.create_dir_all(&root.join("config")).unwrap();
    RealDisk.replace(&root.join("config/topics.json"), b"{}").unwrap();
    fill(&store, 900);
    settle(&store);
    let reader = StoreReader::open(&root).unwrap();
    let snapshot = tools::snapshot(&reader, &target, &mut go_on).unwrap();
    assert_eq!(snapshot.log_end, store.max_physical_offset());
    assert!(snapshot.linked_files >= 2 && snapshot.copied_files == 1, "{snapshot:?}");
    assert_eq!(snapshot.metadata_files, 1);
    let report = assert_sound(&target);
    assert!(report.is_closed && report.has_mark && report.records == 1080);
    assert_eq!(report.records_with_own_check, report.records, "every record still has to have its checksum");
    let before = records(&target);
    assert_eq!(before, records(&root));
    let complete = |root: &Path| {
        let mut files = log_files(root);
        files.retain(|_, file| log_files(&target).values().any(|other| other.0 == file.0));
        files
    };
    let shared = complete(&root);
    assert_eq!(shared.len() as u64, snapshot.linked_files);
    // As a server: opened, written, killed, recovered.
    let copy = Store::open(small(&target)).unwrap();
    assert!(!copy.recovery().rebuilt_queues && copy.recovery().clean_exit);
    assert_eq!(read_all(&copy, "b", 0), read_all(&store, "b", 0));
    fill(&copy, 300);
    settle(&copy);
    let killed = dir.path().join("killed");
    std::process::Command::new("cp").arg("-al").arg(&target).arg(&killed).status().unwrap();
    RealDisk.remove_file(&killed.join("lock")).unwrap(); // the copy shares the lock's file as well
    let recovered = Store::open(small(&killed)).unwrap();
    assert!(!recovered.recovery().clean_exit);
    recovered.shutdown().unwrap();
    copy.shutdown().unwrap();
    assert_sound(&target);
    assert_eq!(complete(&root), shared, "bytes, inodes and times of the store's complete files");
    fill(&store, 10);
    store.shutdown().unwrap();
    assert_sound(&root);
}

#[test]
fn a_store_that_lost_consume_queues_is_not_taken_for_a_whole_one() {
    for has_mark in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let (root, target) = (dir.path().join("store"), dir.path().join("snapshot"));
        let config = closed(&root, 300);
        if !has_mark {
            erase_mark(&root);
        }
        RealDisk.remove_dir_all(&root.join("consumequeue")).unwrap();
        RealDisk.create_dir_all(&root.join("consumequeue")).unwrap();
        let error = tools::snapshot(&StoreReader::open(&root).unwrap(), &target, &mut go_on).unwrap_err();
        assert!(
            matches!(&error, ToolError::Read(ReadError::IncompleteQueues { found: 0, expected: 300.., .. })),
            "{error}"
        );
        assert!(!is_there(&target), "nothing is left behind");
        Store::open(config).unwrap().shutdown().unwrap(); // rebuilds them
        tools::snapshot(&StoreReader::open(&root).unwrap(), &target, &mut go_on).unwrap();
        assert_eq!(records(&target), records(&root));
    }
}

#[test]
fn a_repair_of_a_snapshot_leaves_the_store_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (root, target) = (dir.path().join("store"), dir.path().join("snapshot"));
    let config = closed(&root, 900);
    tools::snapshot(&StoreReader::open(&root).unwrap(), &target, &mut go_on).unwrap();
    let (path, place) = log_file(&config, 5000);
    overwrite(&path, place, &[9; 30]);
    let damaged = log_files(&root);
    assert!(kinds(&verify(&target)).contains("DamagedRecord"), "they share the file");
    tools::repair(&StoreReader::open(&target).unwrap(), &mut go_on).unwrap();
    assert_sound(&target);
    assert_eq!(log_files(&root), damaged);
    assert!(!verify(&root).is_sound());
}

#[test]
fn snapshots_of_a_store_that_is_written_are_prefixes_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    let store = Store::open(small(&root)).unwrap();
    let (stop, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let snapshots = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // So many for each snapshot: a writer without a bound fills the folder while a slow machine verifies.
            while !stop.load(Ordering::Relaxed) {
                if sent.load(Ordering::Relaxed) >= (snapshots.load(Ordering::Relaxed) + 1) * 24 * 100 {
                    std::thread::yield_now();
                    continue;
                }
                fill(&store, 20);
                settle(&store);
                sent.fetch_add(24, Ordering::Relaxed);
            }
        });
        for number in 0..5 {
            let acknowledged = sent.load(Ordering::Relaxed);
            let target = dir.path().join(format!("snapshot-{number}"));
            let made = tools::snapshot(&StoreReader::open(&root).unwrap(), &target, &mut go_on);
            let report = made.map(|_| verify(&target));
            let is_good =
                report.as_ref().is_ok_and(|report| report.is_sound() && report.records >= acknowledged);
            if !is_good {
                stop.store(true, Ordering::Relaxed);
                panic!("{acknowledged}: {report:#?}");
            }
            Store::open(small(&target)).unwrap().shutdown().unwrap();
            snapshots.fetch_add(1, Ordering::Relaxed);
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_log_of_which_files_are_gone_is_not_copied_for_a_whole_one() {
    let dir = tempfile::tempdir().unwrap();
    let (root, target) = (dir.path().join("store"), dir.path().join("snapshot"));
    let config = closed(&root, 900);
    let files: Vec<u64> = log_files(&root)
        .keys()
        .map(|name| name.parse().unwrap())
        .take_while(|&start: &u64| start < 256 << 10)
        .collect();
    assert!(files.len() >= 3, "{files:?}");
    for &start in &files {
        let (path, _) = log_file(&config, start);
        let bytes = RealDisk.read(&path, 1 << 30).unwrap();
        RealDisk.remove_file(&path).unwrap();
        let reader = StoreReader::open(&root).unwrap();
        let is_missing = |error: &ToolError| matches!(error, ToolError::Store(StoreError::MissingFile { expected, .. }) if expected.get() == start);
        let error = tools::snapshot(&reader, &target, &mut go_on).unwrap_err();
        assert!(is_missing(&error), "{start}: {error}");
        assert!(RealDisk.list(&target).unwrap_err().is_not_found(), "something of it is left");
        let error = Selected::new(&reader, Selection::default()).err().unwrap();
        assert!(is_missing(&error), "{start}: {error}");
        assert!(!records(&root).is_empty(), "damage may be left out");
        RealDisk.replace(&path, &bytes).unwrap();
    }
    tools::snapshot(&StoreReader::open(&root).unwrap(), &target, &mut go_on).unwrap();
}

#[test]
fn a_snapshot_wants_a_new_or_empty_folder_outside_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    closed(&root, 10);
    let reader = StoreReader::open(&root).unwrap();
    let inside = tools::snapshot(&reader, &root.join("snapshot"), &mut go_on).unwrap_err();
    assert!(matches!(inside, ToolError::TargetInside { .. }), "{inside}");
    let target = dir.path().join("taken");
    RealDisk.create_dir_all(&target).unwrap();
    RealDisk.replace(&target.join("thesis.txt"), b"precious").unwrap();
    let taken = tools::snapshot(&reader, &target, &mut go_on).unwrap_err();
    assert!(matches!(taken, ToolError::TargetNotEmpty { .. }), "{taken}");
    assert_eq!(RealDisk.read(&target.join("thesis.txt"), 100).unwrap(), b"precious");
}
