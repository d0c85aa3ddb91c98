//! What the last process left: a torn tail is cut, damage before the durable mark refuses to start.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rocketpy_env::{Disk, RealDisk};
use rocketpy_store::reader::StoreReader;
use rocketpy_store::{Store, StoreConfig, StoreError, mark_page};
use rocketpy_tools::{self as tools, ProblemKind, RepairAction};

use crate::faulty::FaultyDisk;
use crate::support::{
    assert_queues_equal_log, contents, edit_checkpoint, erase_mark, eventually, killed_copy, overwrite,
    read_all, record, settle, small,
};

fn log_file(root: &Path, start: u64) -> PathBuf {
    root.join("commitlog").join(format!("{start:020}"))
}

/// Makes a folder look as if its process was killed.
fn mark_dirty(root: &Path) {
    RealDisk.replace(&root.join("abort"), b"1").unwrap();
}

/// Makes a closed store of `count` messages in three queues. Returns where each record starts, and the end.
fn closed_store(config: &StoreConfig, count: u32) -> Vec<u64> {
    let store = Store::open(config.clone()).unwrap();
    let body = |number: u32| [number.to_be_bytes().as_slice(), &[9; 200]].concat();
    let mut starts: Vec<u64> = (0..count)
        .map(|number| store.append(&record("t", number % 3, &body(number))).unwrap().physical_offset.get())
        .collect();
    starts.push(store.max_physical_offset().get());
    store.shutdown().unwrap();
    starts
}

fn numbers(store: &Store) -> Vec<u32> {
    let bodies = (0..3).flat_map(|queue| read_all(store, "t", queue));
    let mut numbers: Vec<u32> = bodies.map(|body| u32::from_be_bytes(*body.first_chunk().unwrap())).collect();
    numbers.sort_unstable();
    numbers
}

#[test]
fn recovery_cuts_a_torn_tail_and_keeps_what_is_before() {
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    let starts = closed_store(&config, 50);
    let end = *starts.last().unwrap();
    let file = RealDisk.read(&log_file(dir.path(), 0), 1 << 20).unwrap();
    for torn in [4, 91, 200] {
        // A record that was on its way: its first bytes have come, the rest has not.
        overwrite(&log_file(dir.path(), 0), end, &file[starts[7] as usize..starts[7] as usize + torn]);
        mark_dirty(dir.path());
        let store = Store::open(config.clone()).unwrap();
        let report = store.recovery().clone();
        assert!(!report.clean_exit && report.had_mark);
        assert_eq!(report.end.get(), end);
        assert!(report.truncated_bytes > 0 && report.truncated_bytes <= torn as u64);
        assert_eq!(numbers(&store), (0..50).collect::<Vec<_>>());
        store.shutdown().unwrap();
        assert_queues_equal_log(&config);
    }
}

#[test]
fn records_behind_a_torn_one_do_not_come_back_when_the_gap_is_filled() {
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    let starts = closed_store(&config, 30);
    // Of what was written before a power loss, record 25 did not reach the disk, and what lies behind it did.
    erase_mark(dir.path());
    mark_dirty(dir.path());
    overwrite(&log_file(dir.path(), 0), starts[25], &vec![0; (starts[26] - starts[25]) as usize]);
    let store = Store::open(config.clone()).unwrap();
    assert_eq!(store.max_physical_offset().get(), starts[25]);
    assert_eq!(numbers(&store), (0..25).collect::<Vec<_>>());
    let body = [25u32.to_be_bytes().as_slice(), &[9; 200]].concat();
    let again = store.append(&record("t", 1, &body)).unwrap();
    assert_eq!(
        (again.physical_offset.get(), again.end.get()),
        (starts[25], starts[26]),
        "it fills the gap exactly"
    );
    drop(store);
    mark_dirty(dir.path());
    erase_mark(dir.path());
    let store = Store::open(config.clone()).unwrap();
    assert_eq!(numbers(&store), (0..26).collect::<Vec<_>>());
    drop(store);
    assert_queues_equal_log(&config);
}

#[test]
fn what_is_cut_off_with_sound_records_in_it_is_kept_as_a_copy() {
    for marked in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let config = small(dir.path());
        let starts = closed_store(&config, 700);
        let file = RealDisk.read(&log_file(dir.path(), 0), 1 << 20).unwrap();
        let next = RealDisk.read(&log_file(dir.path(), 64 << 10), 1 << 20).unwrap();
        // The mark of a start at which the log was empty, and no word of another program.
        RealDisk.replace(&dir.path().join("checkpoint"), &[0; 4096]).unwrap();
        if marked {
            let fresh = tempfile::tempdir().unwrap();
            drop(Store::open(small(fresh.path())).unwrap());
            let mark = RealDisk.read(&fresh.path().join("checkpoint"), 1 << 20).unwrap();
            RealDisk.replace(&dir.path().join("checkpoint"), &mark).unwrap();
            RealDisk.remove_dir_all(&dir.path().join("consumequeue")).unwrap();
        }
        mark_dirty(dir.path());
        overwrite(&log_file(dir.path(), 0), starts[100] + 100, &[0xff; 8]);
        let store = Store::open(config.clone()).unwrap();
        assert_eq!(numbers(&store), (0..100).collect::<Vec<_>>());
        let report = store.recovery().clone();
        assert_eq!((report.had_mark, report.end.get(), report.cut_records), (marked, starts[100], 599));
        let copy = report.cut_off_to.expect("it says where the copy is");
        assert!(copy.starts_with(dir.path().join("cut-off")), "{}", copy.display());
        let kept = |start: u64| RealDisk.read(&copy.join(format!("{start:020}")), 1 << 20).unwrap();
        let (from, behind) = (starts[100] as usize, starts[101] as usize);
        assert!(kept(0)[..from].iter().all(|&byte| byte == 0) && kept(0)[behind..] == file[behind..]);
        assert!(kept(64 << 10) == next, "byte for byte at its place");
        store.shutdown().unwrap();
        assert_queues_equal_log(&config);
    }
}

/// What the refused start of a folder says; nothing in it may change.
fn refusal(config: &StoreConfig) -> StoreError {
    let before = contents(&config.root);
    let error = Store::open(config.clone()).unwrap_err();
    assert!(contents(&config.root) == before, "something was changed: {error}");
    error
}

#[test]
fn without_a_mark_damage_after_a_clean_exit_refuses_to_start_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    let starts = closed_store(&config, 150);
    erase_mark(dir.path());
    let path = log_file(dir.path(), 0);
    let sound = RealDisk.read(&path, 1 << 20).unwrap();
    for (number, at) in [(10, 100), (10, 0), (10, 4), (0, 100), (148, 210), (149, 100), (149, 4)] {
        overwrite(&path, starts[number] + at, &[sound[(starts[number] + at) as usize] ^ 0x10]);
        let error = refusal(&config);
        match &error {
            StoreError::InteriorDamage { path: named, physical_offset, durable_to, .. } => {
                assert_eq!((named, physical_offset.get()), (&path, starts[number]));
                assert_eq!(durable_to.get(), starts[150], "{number} {at}: {error}");
            }
            other => panic!("{other:?}"),
        }
        assert!(error.hint().unwrap().contains("rocketpy store repair"));
        overwrite(&path, 0, &sound);
    }
    assert_eq!(numbers(&Store::open(config).unwrap()).len(), 150);
}

#[test]
fn without_a_mark_a_log_that_ends_early_after_a_clean_exit_refuses_to_start() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let config = small(dir.path());
    let store = Store::open_on(disk.clone(), config.clone()).unwrap();
    let mut starts = Vec::new();
    for number in 0..50 {
        disk.set_clock(1_700_000_000_000 + number * 10_000);
        starts.push(store.append(&record("t", 0, b"x")).unwrap().physical_offset.get());
    }
    drop(store);
    erase_mark(dir.path());
    overwrite(&log_file(dir.path(), 0), starts[45], &[0; 2000]); // as an incomplete copy leaves it
    for without_queues in [false, true] {
        if without_queues {
            RealDisk.remove_dir_all(&dir.path().join("consumequeue")).unwrap();
            RealDisk.create_dir_all(&dir.path().join("consumequeue")).unwrap();
        }
        let error = refusal(&config);
        assert!(
            matches!(error, StoreError::InteriorDamage { physical_offset, .. } if physical_offset.get() == starts[45]),
            "{error}"
        );
    }
}

#[test]
fn remains_of_a_former_life_behind_the_end_are_no_damage() {
    let (dir, former) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = small(dir.path());
    let life = |root: &Path, count: usize, at_ms: i64| {
        let disk = FaultyDisk::default();
        disk.set_clock(at_ms);
        let store = Store::open_on(disk, small(root)).unwrap();
        let place = |_| store.append(&record("t", 0, &[5; 200])).unwrap().physical_offset.get();
        (0..count).map(place).collect::<Vec<u64>>()
    };
    let starts = life(former.path(), 30, 1_700_000_000_000);
    life(dir.path(), 20, 1_700_000_100_000);
    // Another program cuts a torn tail off by forgetting it, and writes over its start later.
    let bytes = RealDisk.read(&log_file(former.path(), 0), 1 << 20).unwrap();
    overwrite(&log_file(dir.path(), 0), starts[20] + 60, &bytes[starts[20] as usize + 60..]);
    erase_mark(dir.path());
    let store = Store::open(config.clone()).unwrap();
    assert_eq!(read_all(&store, "t", 0).len(), 20);
    assert_eq!((store.recovery().end.get(), store.recovery().cut_records), (starts[20], 9));
    assert!(store.recovery().cut_off_to.is_some());
    drop(store);
    assert_queues_equal_log(&config);
}

#[test]
fn a_checkpoint_that_nobody_can_have_written_refuses_by_name_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    let starts = closed_store(&config, 50);
    let path = dir.path().join("checkpoint");
    for (at, bytes) in [(0, b"garbage!"), (8, b"\xff\xff\xff\xff\xff\xff\xff\xff")] {
        let kept = RealDisk.read(&path, 1 << 20).unwrap();
        overwrite(&path, at, bytes);
        assert!(matches!(refusal(&config), StoreError::BadCheckpoint { path: named, .. } if named == path));
        overwrite(&path, 0, &kept);
    }
    assert_eq!(Store::open(config).unwrap().recovery().end.get(), starts[50]);
}

#[test]
fn a_refused_start_removes_no_unfinished_file() {
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    let starts = closed_store(&config, 50);
    RealDisk.replace(&log_file(dir.path(), 64 << 10), &[0; 4096]).unwrap();
    RealDisk.replace(&dir.path().join("consumequeue/t/0").join(format!("{:020}", 2000)), b"").unwrap();
    let larger = StoreConfig { commit_log_file_size: 128 << 10, ..config.clone() };
    assert!(matches!(refusal(&larger), StoreError::WrongFileSize { .. }));
    overwrite(&log_file(dir.path(), 0), starts[10] + 100, &[0xff]);
    assert!(matches!(refusal(&config), StoreError::InteriorDamage { .. }));
}

#[test]
fn damage_before_the_durable_mark_refuses_to_start_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    let starts = closed_store(&config, 700);
    for dirty in [false, true] {
        for (number, at) in [(3, 30), (100, 0), (100, 120), (699, 210)] {
            let file = starts[number] / (64 << 10) * (64 << 10);
            let place = starts[number] - file + at;
            let path = log_file(dir.path(), file);
            let byte = RealDisk.read(&path, 1 << 20).unwrap()[place as usize];
            overwrite(&path, place, &[byte ^ 0x10]);
            if dirty {
                mark_dirty(dir.path());
            }
            let before = contents(dir.path());
            let error = Store::open(config.clone()).unwrap_err();
            match &error {
                StoreError::InteriorDamage { path: named, physical_offset, durable_to, .. } => {
                    assert_eq!((named, physical_offset.get()), (&path, starts[number]));
                    assert_eq!(durable_to.get(), *starts.last().unwrap());
                }
                other => panic!("{other:?}"),
            }
            assert!(error.hint().unwrap().contains("nothing was changed"));
            assert_eq!(contents(dir.path()), before);
            overwrite(&path, place, &[byte]);
        }
    }
    let store = Store::open(config.clone()).unwrap();
    assert_eq!(numbers(&store).len(), 700);
    drop(store);
    assert_queues_equal_log(&config);
}

#[test]
fn a_missing_log_file_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    closed_store(&config, 1000);
    let count = RealDisk.list(&dir.path().join("commitlog")).unwrap().len() as u64;
    assert!(count > 3);
    for start in [64 << 10, (count - 1) * (64 << 10)] {
        let path = log_file(dir.path(), start);
        let bytes = RealDisk.read(&path, 1 << 20).unwrap();
        RealDisk.remove_file(&path).unwrap();
        let error = Store::open(config.clone()).unwrap_err();
        assert!(
            matches!(error, StoreError::MissingFile { expected, .. } if expected.get() == start),
            "{start}: {error}"
        );
        RealDisk.replace(&path, &bytes).unwrap();
    }
    assert_eq!(numbers(&Store::open(config).unwrap()).len(), 1000);
}

#[test]
fn a_log_whose_first_file_is_gone_is_refused_until_a_repair_and_queues_then_start_with_what_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    let starts = closed_store(&config, 1000);
    let first = log_file(dir.path(), 0);
    RealDisk.remove_file(&first).unwrap();
    let error = Store::open(config.clone()).unwrap_err();
    assert!(
        matches!(&error, StoreError::MissingFile { path, expected } if *path == first && expected.get() == 0),
        "{error}"
    );
    assert!(error.hint().unwrap().contains("store repair"));
    let reader = StoreReader::open(dir.path()).unwrap();
    let report = tools::verify(&reader, &mut |_| true).unwrap();
    let problems: Vec<_> = report.problems.iter().map(|one| (one.kind, &one.path, one.size_bytes)).collect();
    assert_eq!(problems, [(ProblemKind::LogStartsLate, &first, Some(64 << 10))]);
    let done = tools::repair(&reader, &mut |_| true).unwrap();
    assert!(matches!(&done.actions[..], [RepairAction::DropCheckpoint { .. }]), "{done:?}");
    let left = starts.iter().position(|&start| start >= 64 << 10).unwrap() as u32;
    let store = Store::open(config.clone()).unwrap();
    assert_eq!(store.min_physical_offset().get(), 64 << 10);
    assert_eq!(numbers(&store), (left..1000).collect::<Vec<_>>());
    let min = store.queue_bounds("t", 0).min;
    assert_eq!(min.get(), u64::from(left.div_ceil(3)));
    drop(store);
    // The same from the log alone.
    RealDisk.remove_dir_all(&dir.path().join("consumequeue")).unwrap();
    let store = Store::open(config).unwrap();
    assert!(store.recovery().rebuilt_queues);
    assert_eq!(numbers(&store), (left..1000).collect::<Vec<_>>());
    assert_eq!(store.queue_bounds("t", 0).min, min);
    assert_eq!(store.append(&record("t", 0, b"x")).unwrap().queue_offset.get(), 334);
}

#[test]
fn much_traffic_brings_flush_and_checkpoint_before_their_time() {
    let dir = tempfile::tempdir().unwrap();
    let hour = Duration::from_secs(3600);
    let config = StoreConfig {
        flush_interval: hour,
        checkpoint_interval: hour,
        flush_step_bytes: 20_000,
        checkpoint_bytes: 50_000,
        ..small(dir.path())
    };
    let store = Store::open(config.clone()).unwrap();
    for number in 0..10 {
        store.append(&record("t", number, &[0; 3000])).unwrap();
    }
    eventually("it is flushed", || store.flushed_offset().get() >= 20_000);
    let marked_to = || {
        let killed = tempfile::tempdir().unwrap();
        killed_copy(dir.path(), killed.path());
        Store::open(small(killed.path())).unwrap().recovery().dispatched_from.get()
    };
    assert_eq!(marked_to(), 0, "there was not much yet");
    for number in 0..10 {
        store.append(&record("t", number, &[0; 3000])).unwrap();
    }
    eventually("a checkpoint is written", || marked_to() >= 50_000);
}

#[test]
fn store_of_a_later_version_opens_with_its_mark() {
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    closed_store(&config, 10);
    edit_checkpoint(dir.path(), |page| mark_page::set_version(page, 99));
    assert!(tools::verify(&StoreReader::open(dir.path()).unwrap(), &mut |_| true).unwrap().is_sound());
    let store = Store::open(config.clone()).unwrap();
    assert!(store.recovery().had_mark);
    store.append(&record("t", 0, &10u32.to_be_bytes())).unwrap();
    store.shutdown().unwrap();
    drop(store);
    assert_eq!(numbers(&Store::open(config).unwrap()), (0..11).collect::<Vec<_>>());
}

#[test]
fn store_in_a_changed_format_is_refused_and_the_way_to_convert_it_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    closed_store(&config, 10);
    let checkpoint = dir.path().join("checkpoint");
    edit_checkpoint(dir.path(), |page| mark_page::set_version(page, 199));
    let before = contents(dir.path());
    let error = Store::open(config.clone()).unwrap_err();
    assert!(
        matches!(&error, StoreError::UnknownVersion { path, found: 199, .. } if *path == checkpoint),
        "{error}"
    );
    assert!(!error.is_damage() && error.hint().unwrap().contains("rocketpy store import"));
    let reader = StoreReader::open(dir.path()).unwrap();
    let read = tools::verify(&reader, &mut |_| true).unwrap_err().to_string();
    assert!(read.contains("format 199"), "{read}");
    assert!(tools::repair(&reader, &mut |_| true).is_err(), "it would end the log at the first damage");
    assert_eq!(contents(dir.path()), before);
    RealDisk.remove_file(&checkpoint).unwrap();
    assert_eq!(numbers(&Store::open(config).unwrap()), (0..10).collect::<Vec<_>>());
}

#[test]
fn a_log_that_vanished_is_not_taken_for_an_empty_one() {
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    closed_store(&config, 10);
    RealDisk.remove_dir_all(&dir.path().join("commitlog")).unwrap();
    let error = Store::open(config).unwrap_err();
    assert!(matches!(error, StoreError::MissingFile { .. }), "{error}");
}

#[test]
fn an_unused_next_file_and_an_unfinished_one_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    closed_store(&config, 10);
    for leftover in [vec![0; 64 << 10], vec![0; 4096], Vec::new()] {
        RealDisk.replace(&log_file(dir.path(), 64 << 10), &leftover).unwrap();
        mark_dirty(dir.path());
        let store = Store::open(config.clone()).unwrap();
        assert_eq!((store.recovery().truncated_bytes, numbers(&store).len()), (0, 10));
        drop(store);
        assert_eq!(RealDisk.list(&dir.path().join("commitlog")).unwrap().len(), 1);
    }
}

#[test]
fn a_store_that_ends_exactly_with_a_file_goes_on_in_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    closed_store(&config, 200);
    let store = Store::open(config.clone()).unwrap();
    let body = vec![1; 32_000];
    let mut rolled = store.append(&record("t", 0, &body)).unwrap();
    while !rolled.physical_offset.get().is_multiple_of(64 << 10) {
        rolled = store.append(&record("t", 0, &body)).unwrap();
    }
    settle(&store);
    drop(store);
    // Take the only record of the last file away: the log then ends with the blank record of the file before.
    RealDisk.remove_file(&log_file(dir.path(), rolled.physical_offset.get())).unwrap();
    erase_mark(dir.path());
    mark_dirty(dir.path());
    let store = Store::open(config.clone()).unwrap();
    assert_eq!(store.max_physical_offset(), rolled.physical_offset);
    let again = store.append(&record("t", 0, b"x")).unwrap();
    assert_eq!((again.physical_offset, again.queue_offset), (rolled.physical_offset, rolled.queue_offset));
    drop(store);
    assert_queues_equal_log(&config);
}

#[test]
fn without_a_mark_the_timestamps_decide_as_the_format_says() {
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    let starts = closed_store(&config, 1000);
    erase_mark(dir.path());
    mark_dirty(dir.path());
    // The last record is torn: behind the place where reading starts that is a tail.
    let last = starts[999];
    let file = last / (64 << 10) * (64 << 10);
    overwrite(&log_file(dir.path(), file), last - file + 100, &[0xff; 8]);
    let store = Store::open(config.clone()).unwrap();
    assert!(!store.recovery().had_mark);
    assert_eq!(store.recovery().end.get(), last);
    assert_eq!((store.recovery().cut_records, &store.recovery().cut_off_to), (0, &None));
    assert_eq!(numbers(&store), (0..999).collect::<Vec<_>>());
    let again = store.append(&record("t", 0, b"x")).unwrap();
    assert_eq!(again.queue_offset.get(), 333, "the number is used again");
    drop(store);
    assert_queues_equal_log(&config);
}
