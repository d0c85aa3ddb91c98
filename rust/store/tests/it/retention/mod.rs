//! Old files go, with all that leads into them, and nothing else does.

mod ages;
mod folders;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rocketpy_env::{Disk, RealDisk, local_hour, now_ms};
use rocketpy_filter::MessageFilter;
use rocketpy_model::QueueOffset;
use rocketpy_store::reader::{RangeOptions, ReadError, ScanOptions, StoreReader};
use rocketpy_store::{
    AgedQueue, AppendError, DeleteHours, FetchStatus, Keep, RetentionConfig, Store, StoreConfig, StoreError,
    plan_folder, plan_topics,
};

use crate::faulty::FaultyDisk;
use crate::support::{
    ALL, PATIENCE, eventually, killed_copy, overwrite, read_all, record, settle, settle_in_files, small,
    views,
};

const HOUR_MS: i64 = 3_600_000;
/// About how many messages a log file holds.
const A_FILE: usize = 57;

/// Small files, no rounds of the cleaning thread, and no hour for removals.
fn config(root: &Path) -> StoreConfig {
    let retention = RetentionConfig {
        delete_hours: DeleteHours::default(),
        first_after: Duration::from_secs(3600),
        ..RetentionConfig::default()
    };
    StoreConfig { retention, allocate_ahead: false, ..small(root) }
}

/// The same, with messages that may go after an hour, at any hour.
fn hourly(root: &Path) -> StoreConfig {
    let hours: Vec<u32> = (0..24).collect();
    let retention = RetentionConfig {
        reserved_time: Duration::from_secs(3600),
        delete_hours: DeleteHours::of(&hours),
        ..config(root).retention
    };
    StoreConfig { retention, ..config(root) }
}

/// Opens on a disk that is not full, however full the machine's is.
fn open(config: StoreConfig) -> Result<Arc<Store<FaultyDisk>>, StoreError> {
    Store::open_on(FaultyDisk::default(), config)
}

fn body(number: usize) -> Vec<u8> {
    let mut body = vec![b'.'; 1000];
    body[..20].copy_from_slice(format!("{number:020}").as_bytes());
    body
}

/// Appends messages `from..to` of a topic's queue 0, and waits until they can be read.
fn fill<D: Disk>(store: &Store<D>, topic: &str, numbers: std::ops::Range<usize>) {
    for number in numbers {
        store.append(&record(topic, 0, &body(number))).unwrap();
    }
    settle(store);
}

/// The numbers of the messages that can be read, which are those from the minimum on.
fn readable<D: Disk>(store: &Store<D>, topic: &str) -> std::ops::Range<usize> {
    let bounds = store.queue_bounds(topic, 0);
    let (min, max) = (bounds.min.get() as usize, bounds.max.get() as usize);
    let expected: Vec<_> = (min..max).map(body).collect();
    assert_eq!(read_all(store, topic, 0), expected);
    min..max
}

/// Names of the files of a folder.
fn names(dir: &Path) -> Vec<u64> {
    RealDisk.list(dir).unwrap().iter().map(|entry| entry.name.to_str().unwrap().parse().unwrap()).collect()
}

fn log_files(config: &StoreConfig) -> usize {
    config.commit_log_dirs().iter().map(|dir| names(dir).len()).sum()
}

/// Lets time pass, as the rounds of retention see it.
fn pass_hours(disk: &FaultyDisk, store: &Store<FaultyDisk>, hours: i64) {
    store.clean().unwrap();
    disk.set_clock(disk.now_ms() + hours * HOUR_MS);
}

#[test]
fn old_files_go_and_minimum_offsets_follow_also_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let config = hourly(dir.path());
    let store = Store::open_on(disk.clone(), config.clone()).unwrap();
    fill(&store, "t", 0..5 * A_FILE);
    assert_eq!(store.clean().unwrap().log_files, 0, "nothing is old");
    pass_hours(&disk, &store, 2);
    fill(&store, "t", 5 * A_FILE..6 * A_FILE); // its file is written now
    let cleaned = store.clean().unwrap();
    assert!(cleaned.log_files >= 3, "{cleaned:?}");
    let left = readable(&store, "t");
    assert!(left.start > 3 * A_FILE && left.end == 6 * A_FILE, "{left:?}");
    assert_eq!(store.min_physical_offset().get(), names(&config.commit_log_dir())[0]);
    assert!(cleaned.queue_files > 0 && names(&dir.path().join("consumequeue/t/0"))[0] > 0, "{cleaned:?}");
    assert_eq!(store.clean().unwrap().log_files, 0, "what is left is young");
    let too_small = store.get("t", 0, 0, &ALL, &MessageFilter::All).unwrap();
    assert_eq!(too_small.status, FetchStatus::OffsetTooSmall);
    assert_eq!(
        (too_small.next_offset, too_small.min_offset.get() as usize),
        (too_small.min_offset, left.start)
    );
    store.shutdown().unwrap();
    drop(store);
    let store = open(config).unwrap();
    assert!(!store.recovery().rebuilt_queues);
    assert_eq!(readable(&store, "t"), left);
    fill(&store, "t", left.end..left.end + 3);
    assert_eq!(readable(&store, "t"), left.start..left.end + 3, "numbers go on");
}

#[test]
fn a_queue_whose_messages_are_all_gone_keeps_its_numbers_whatever_happens() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let config = hourly(dir.path());
    let store = Store::open_on(disk.clone(), config.clone()).unwrap();
    fill(&store, "quiet", 0..7);
    fill(&store, "t", 0..3 * A_FILE);
    pass_hours(&disk, &store, 2);
    fill(&store, "t", 3 * A_FILE..4 * A_FILE);
    assert!(store.clean().unwrap().log_files > 0);
    assert_eq!(readable(&store, "quiet"), 7..7);
    assert_eq!(store.earliest_stored_at("quiet", 0).unwrap(), None);
    let end = store.get("quiet", 0, 7, &ALL, &MessageFilter::All).unwrap();
    assert_eq!(end.status, FetchStatus::OffsetOverflowOne);
    let left = readable(&store, "t");
    store.shutdown().unwrap();
    drop(store);
    // The queues are rebuilt from the log, which knows nothing of the quiet one.
    RealDisk.remove_dir_all(&dir.path().join("consumequeue/t")).unwrap();
    let store = open(config.clone()).unwrap();
    assert!(store.recovery().rebuilt_queues);
    assert_eq!(readable(&store, "t"), left);
    assert_eq!(readable(&store, "quiet"), 7..7);
    fill(&store, "quiet", 7..9);
    assert_eq!(readable(&store, "quiet"), 7..9);
    store.shutdown().unwrap();
    drop(store);
    assert!(!open(config).unwrap().recovery().rebuilt_queues);
}

#[test]
fn whoever_holds_messages_of_a_file_keeps_them() {
    let dir = tempfile::tempdir().unwrap();
    let config = hourly(dir.path());
    let disk = FaultyDisk::default();
    let store = Store::open_on(disk.clone(), config.clone()).unwrap();
    fill(&store, "t", 0..3 * A_FILE);
    let held = store.get("t", 0, 0, &ALL, &MessageFilter::All).unwrap();
    assert!(held.count > 3);
    pass_hours(&disk, &store, 2);
    assert!(store.clean().unwrap().log_files > 0);
    assert_ne!(names(&config.commit_log_dir())[0], 0);
    store.shutdown().unwrap();
    drop(store);
    for (number, view) in views(&held).iter().enumerate() {
        assert_eq!(view.body, body(number));
    }
}

#[test]
fn a_log_that_is_too_long_loses_its_oldest_files() {
    let dir = tempfile::tempdir().unwrap();
    let retention =
        RetentionConfig { max_bytes: Some(3 * (64 << 10)), files_a_round: 2, ..config(dir.path()).retention };
    let config = StoreConfig { retention, ..config(dir.path()) };
    let store = open(config.clone()).unwrap();
    fill(&store, "t", 0..6 * A_FILE);
    let before = log_files(&config);
    assert!(before >= 6, "{before}");
    let first = store.clean().unwrap();
    assert_eq!((first.log_files, first.has_more), (2, true));
    assert_eq!(log_files(&config), before - 2);
    while store.clean().unwrap().has_more {}
    assert_eq!(log_files(&config), 3);
    readable(&store, "t");
}

#[test]
fn old_files_go_as_far_as_the_last_checkpoint_allows_when_no_new_one_can_be_written() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let retention = RetentionConfig { max_bytes: Some(1), ..config(dir.path()).retention };
    let hour = Duration::from_secs(3600);
    let config = StoreConfig { retention, checkpoint_interval: hour, ..config(dir.path()) };
    Store::open_on(disk.clone(), config.clone()).unwrap().shutdown().unwrap();
    let store = Store::open_on(disk.clone(), config.clone()).unwrap();
    fill(&store, "t", 0..5 * A_FILE);
    store.shutdown().unwrap(); // with a checkpoint
    let store = Store::open_on(disk.clone(), config.clone()).unwrap();
    fill(&store, "t", 5 * A_FILE..8 * A_FILE);
    disk.faults.no_space_for_checkpoint.store(true, Ordering::SeqCst);
    let before = log_files(&config);
    let mut left = before;
    for round in 1.. {
        drop(store.clean()); // its last word, the checkpoint, fails as well
        if log_files(&config) == left {
            break;
        }
        left = log_files(&config);
        assert_eq!(left, before - round, "each may be enough for the checkpoint");
    }
    assert!(
        (3..=before - 4).contains(&left),
        "{left} of {before}: those that the checkpoint covers are gone"
    );
    disk.faults.no_space_for_checkpoint.store(false, Ordering::SeqCst);
    store.clean().unwrap();
    assert_eq!(log_files(&config), 1);
    assert_eq!(readable(&store, "t").end, 8 * A_FILE);
}

#[test]
fn the_store_cleans_by_itself_in_its_hour_and_when_somebody_asks() {
    for asks in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let disk = FaultyDisk::default();
        disk.set_used_percent(dir.path(), 50); // beyond 75 % no hour is waited for
        let later = now_ms() + 100 * HOUR_MS;
        let hours = if asks { [(local_hour(later) + 12) % 24] } else { [local_hour(later)] };
        let retention = RetentionConfig {
            delete_hours: DeleteHours::of(&hours),
            interval: Duration::from_millis(5),
            first_after: Duration::ZERO,
            log_file_pause: Duration::ZERO,
            queue_file_pause: Duration::ZERO,
            ..RetentionConfig::default()
        };
        let config = StoreConfig { retention, ..config(dir.path()) };
        let store = Store::open_on(disk.clone(), config.clone()).unwrap();
        fill(&store, "t", 0..4 * A_FILE);
        store.clean().unwrap(); // notes how far the log has come by now
        disk.set_clock(later);
        if asks {
            assert_eq!(store.clean().unwrap().log_files, 0, "not the hour for it");
            store.delete_expired();
        }
        eventually("old files go", || log_files(&config) == 1);
        eventually("the minimum follows", || store.queue_bounds("t", 0).min.get() > 100);
        readable(&store, "t");
        store.shutdown().unwrap();
    }
}

#[test]
fn a_nearly_full_disk_takes_files_and_appends_until_it_has_space() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let retention = RetentionConfig {
        interval: Duration::from_millis(5),
        first_after: Duration::from_secs(3600),
        ..config(dir.path()).retention
    };
    let config = StoreConfig { retention, ..config(dir.path()) };
    let store = Store::open_on(disk.clone(), config.clone()).unwrap();
    fill(&store, "t", 0..4 * A_FILE);
    disk.set_used_percent(dir.path(), 91);
    let mut refusal = None;
    eventually("appends are refused", || {
        refusal = store.refusal();
        refusal.is_some()
    });
    let error = store.append(&record("t", 0, b"x")).unwrap_err();
    let AppendError::DiskNearlyFull { used_percent: 91, limit_percent: 90, .. } = &error else {
        panic!("{error}")
    };
    assert!(error.retryable() && error.hint().unwrap().contains("free disk space"));
    let before = log_files(&config);
    readable(&store, "t");
    assert!(store.clean().unwrap().log_files > 0, "age does not count");
    assert!(log_files(&config) < before);
    disk.set_used_percent(dir.path(), 88);
    assert!(store.clean().is_ok());
    assert!(store.refusal().is_some(), "it keeps its state between the limits");
    disk.set_used_percent(dir.path(), 60);
    eventually("appends go on", || store.append(&record("other", 0, b"x")).is_ok());
    readable(&store, "t");
    store.shutdown().unwrap();
}

#[test]
fn a_store_on_a_disk_that_is_too_full_opens_and_refuses_from_its_first_append() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    disk.set_used_percent(dir.path(), 99);
    let store = Store::open_on(disk.clone(), config(dir.path())).unwrap();
    assert!(matches!(store.append(&record("t", 0, b"x")), Err(AppendError::DiskNearlyFull { .. })));
    disk.set_used_percent(dir.path(), 10);
    store.clean().unwrap();
    store.append(&record("t", 0, b"x")).unwrap();
}

#[test]
fn wherever_a_round_ends_the_next_start_finds_no_hole_and_makes_nothing_anew() {
    let mut was_cut_short = 0;
    for removals in 0..12 {
        let dir = tempfile::tempdir().unwrap();
        let disk = FaultyDisk::default();
        let config = hourly(dir.path());
        let store = Store::open_on(disk.clone(), config.clone()).unwrap();
        fill(&store, "quiet", 0..7);
        fill(&store, "t", 0..6 * A_FILE);
        pass_hours(&disk, &store, 2);
        disk.faults.removals_left.store(removals, Ordering::SeqCst);
        was_cut_short += usize::from(store.clean().is_err());
        let copy = tempfile::tempdir().unwrap();
        killed_copy(dir.path(), copy.path());
        let copied = StoreConfig { root: copy.path().to_path_buf(), ..config };
        let recovered = open(copied).unwrap();
        assert!(!recovered.recovery().rebuilt_queues, "after {removals} removals");
        let left = readable(&recovered, "t");
        let log_min = recovered.min_physical_offset().get() as usize;
        assert_eq!(left.end, 6 * A_FILE);
        assert_eq!(left.start > 0, log_min > 0);
        assert_eq!(readable(&recovered, "quiet").end, 7);
        // The same store continues where it was interrupted.
        disk.faults.removals_left.store(u64::MAX, Ordering::SeqCst);
        store.clean().unwrap();
        assert!(readable(&store, "t").start > 4 * A_FILE);
        assert_eq!(readable(&store, "quiet"), 7..7);
    }
    assert!((5..12).contains(&was_cut_short), "{was_cut_short}");
}

#[test]
fn a_removal_that_is_not_durable_is_made_so_before_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let retention = RetentionConfig { files_a_round: 1, ..hourly(dir.path()).retention };
    let config = StoreConfig { retention, ..hourly(dir.path()) };
    let store = Store::open_on(disk.clone(), config.clone()).unwrap();
    fill(&store, "t", 0..5 * A_FILE);
    let before = log_files(&config);
    pass_hours(&disk, &store, 2);
    store.clean().unwrap();
    assert_eq!(log_files(&config), before - 1, "with it everything else is durable");
    disk.faults.no_handle_for_folders.store(true, Ordering::SeqCst);
    assert!(matches!(store.clean(), Err(StoreError::Env(_))));
    assert_eq!(log_files(&config), before - 2);
    assert!(store.clean().is_err());
    assert_eq!(log_files(&config), before - 2, "no second name goes");
    disk.faults.no_handle_for_folders.store(false, Ordering::SeqCst);
    disk.faults.synced_folders.lock().clear();
    store.clean().unwrap();
    assert_eq!(log_files(&config), before - 3);
    let folder = dir.path().join("commitlog");
    let synced = disk.faults.synced_folders.lock().iter().filter(|path| **path == folder).count();
    assert_eq!(synced, 2, "each by itself");
    readable(&store, "t");
}

#[test]
fn a_removal_whose_flush_fails_poisons() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let retention = RetentionConfig { files_a_round: 1, ..hourly(dir.path()).retention };
    let store = Store::open_on(disk.clone(), StoreConfig { retention, ..hourly(dir.path()) }).unwrap();
    fill(&store, "t", 0..5 * A_FILE);
    pass_hours(&disk, &store, 2);
    store.clean().unwrap();
    let before = names(&dir.path().join("commitlog"));
    // Everything else is durable: the next folder that is flushed is that of the log.
    disk.faults.fail_next_folder_sync.store(true, Ordering::SeqCst);
    assert!(matches!(store.clean(), Err(StoreError::Poisoned { .. })));
    assert!(matches!(store.append(&record("t", 0, b"x")), Err(AppendError::Poisoned { .. })));
    let left = names(&dir.path().join("commitlog"));
    assert_eq!(left, before[1..], "the name is gone, and nobody knows for how long");
    assert!(matches!(store.clean(), Err(StoreError::Poisoned { .. })));
    assert_eq!(names(&dir.path().join("commitlog")), left, "nothing more goes");
}

#[test]
fn a_dry_run_says_what_a_round_then_does_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let retention = RetentionConfig { max_bytes: Some(2 * (64 << 10)), ..config(dir.path()).retention };
    let config = StoreConfig { retention, allocate_ahead: true, ..config(dir.path()) };
    let store = open(config.clone()).unwrap();
    fill(&store, "t", 0..5 * A_FILE);
    // The store's own threads still write for a moment: the next file, slots of the index.
    eventually("a dry run that nothing was written beside changes nothing", || {
        let before = crate::support::contents(dir.path());
        plan_folder(&config, false).unwrap();
        crate::support::contents(dir.path()) == before
    });
    let planned = plan_folder(&config, false).unwrap();
    let starts: Vec<_> = planned.plan.removals.iter().map(|removal| removal.file.start).collect();
    assert!(
        !starts.is_empty() && planned.plan.removals.iter().all(|removal| removal.rule.name() == "total size")
    );
    assert!(matches!(planned.plan.kept, Some((_, Keep::Young { .. }))));
    assert!(planned.situation.files.iter().all(|file| (now_ms() - file.written_at_ms).abs() < 600_000));
    let cleaned = store.clean().unwrap();
    assert_eq!(cleaned.log_files, starts.len());
    assert_eq!(store.min_physical_offset(), planned.plan.kept.unwrap().0.start);
    let elsewhere = StoreConfig { root: dir.path().join("nothing"), ..config };
    assert!(plan_folder(&elsewhere, false).is_err());
}

#[test]
fn a_real_file_system_that_fills_up_is_cleaned_and_refuses_beyond_its_limit() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mounted) = crate::disk_full::mount(dir.path(), "4m") else { return };
    let root = dir.path().join("store");
    let retention = RetentionConfig {
        max_used_percent: 40,
        force_used_percent: 60,
        refuse_used_percent: 80,
        ..config(dir.path()).retention
    };
    let config = StoreConfig { retention, ..config(&root) };
    let store = Store::open(config.clone()).unwrap();
    let mut number = 0;
    while RealDisk.usage(&root).unwrap().used_percent() <= 60 {
        fill(&store, "t", number..number + A_FILE);
        settle_in_files(&store);
        number += A_FILE;
    }
    let planned = plan_folder(&config, false).unwrap();
    assert!(planned.plan.refusal.is_none());
    let cleaned = store.clean().unwrap();
    assert_eq!(cleaned.log_files, planned.plan.removals.len());
    assert!((1..4).contains(&cleaned.log_files), "no more than it takes: {cleaned:?}");
    assert!(RealDisk.usage(&root).unwrap().used_percent() <= 60);
    let left = readable(&store, "t");
    assert!(left.start > 0);
    let ballast = dir.path().join("ballast");
    RealDisk.replace(&ballast, &vec![1; 1 << 20]).unwrap();
    assert!(RealDisk.usage(&root).unwrap().used_percent() > 80);
    store.clean().unwrap();
    assert!(matches!(store.append(&record("t", 0, b"x")), Err(AppendError::DiskNearlyFull { .. })));
    readable(&store, "t");
    RealDisk.remove_file(&ballast).unwrap();
    store.clean().unwrap();
    let appended = store.append(&record("other", 0, b"x")).unwrap();
    store.wait_flushed(appended.end, PATIENCE).unwrap();
    store.shutdown().unwrap();
    drop(store);
    drop(mounted);
}
