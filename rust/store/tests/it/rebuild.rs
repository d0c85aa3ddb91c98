//! Consume queues are derived: after any loss of theirs they equal the log again.

use rocketpy_env::{Disk, RealDisk};
use rocketpy_store::{Boundary, Store, StoreConfig};

use crate::faulty::FaultyDisk;
use crate::support::{
    Queues, assert_queues_equal_log, erase_mark, overwrite, read_all, record, retire_first_log_file, small,
};

const FIRST_MS: i64 = 1_700_000_000_000;

fn closed_store(config: &StoreConfig) -> Queues {
    let store = Store::open(config.clone()).unwrap();
    for number in 0..910u32 {
        store.append(&record("a", number % 2, &number.to_be_bytes())).unwrap();
        store.append(&record("b", 0, &number.to_be_bytes())).unwrap();
    }
    store.shutdown().unwrap();
    assert_queues_equal_log(config)
}

fn reopen_equal(config: &StoreConfig, before: &Queues, rebuilt: bool) {
    let store = Store::open(config.clone()).unwrap();
    assert_eq!(store.recovery().rebuilt_queues, rebuilt);
    assert_eq!(read_all(&store, "a", 1).len(), 455);
    assert_eq!(store.queue_bounds("b", 0).max.get(), 910);
    store.shutdown().unwrap();
    assert_eq!(&assert_queues_equal_log(config), before);
}

#[test]
fn all_queues_removed() {
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    let before = closed_store(&config);
    RealDisk.remove_dir_all(&dir.path().join("consumequeue")).unwrap();
    reopen_equal(&config, &before, true);
    reopen_equal(&config, &before, false);
}

#[test]
fn one_queue_removed() {
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    let before = closed_store(&config);
    RealDisk.remove_dir_all(&dir.path().join("consumequeue/a/1")).unwrap();
    reopen_equal(&config, &before, true);
}

#[test]
fn the_last_file_of_a_queue_removed() {
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    let before = closed_store(&config);
    let queue = dir.path().join("consumequeue/b/0");
    let last = RealDisk.list(&queue).unwrap().pop().unwrap();
    RealDisk.remove_file(&queue.join(last.name)).unwrap();
    reopen_equal(&config, &before, true);
}

#[test]
fn any_file_of_a_queue_that_is_missing_is_found_and_all_are_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    let before = closed_store(&config);
    let queue = dir.path().join("consumequeue/b/0");
    for (marked, dirty) in [(true, false), (true, true), (false, false), (false, true)] {
        for lost in [0, 1, 4, 9] {
            RealDisk.remove_file(&queue.join(format!("{:020}", lost * 2000))).unwrap();
            if !marked {
                erase_mark(&config.root);
            }
            if dirty {
                RealDisk.replace(&dir.path().join("abort"), b"1").unwrap();
            }
            reopen_equal(&config, &before, true);
            reopen_equal(&config, &before, false);
        }
    }
}

#[test]
fn a_queue_without_any_file_is_found_also_without_a_mark() {
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    let before = closed_store(&config);
    for only_files in [true, false] {
        let queue = dir.path().join("consumequeue/a/1");
        RealDisk.remove_dir_all(&queue).unwrap();
        if only_files {
            RealDisk.create_dir_all(&queue).unwrap();
        }
        erase_mark(&config.root);
        reopen_equal(&config, &before, true);
    }
}

#[test]
fn a_queue_that_lost_its_first_files_with_the_start_of_the_log_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    let before = closed_store(&config);
    // As retention of another program does it: the log file, and the queue file whose entries all lead into it.
    let first = format!("{:020}", 0);
    assert!(before[&("b".to_owned(), 0)][100].0 < 64 << 10);
    RealDisk.remove_file(&config.commit_log_dir().join(&first)).unwrap();
    RealDisk.remove_file(&dir.path().join("consumequeue/b/0").join(&first)).unwrap();
    erase_mark(&config.root);
    let living = |name: (&str, u32)| {
        let entries = &before[&(name.0.to_owned(), name.1)];
        entries.iter().filter(|entry| entry.0 >= 64 << 10).count()
    };
    for _ in 0..2 {
        let store = Store::open(config.clone()).unwrap();
        assert!(!store.recovery().rebuilt_queues);
        for name in [("a", 0), ("a", 1), ("b", 0)] {
            assert_eq!(read_all(&store, name.0, name.1).len(), living(name));
        }
        store.shutdown().unwrap();
    }
    let entries = &before[&("b".to_owned(), 0)];
    assert!(entries[200].0 < 64 << 10 && entries[299].0 >= 64 << 10);
    // The second file leads nowhere either, as the first entry behind it shows. The third one does.
    for (start, is_rebuilt) in [(2000, false), (4000, true)] {
        let file = dir.path().join("consumequeue/b/0").join(format!("{start:020}"));
        RealDisk.remove_file(&file).unwrap();
        let store = Store::open(config.clone()).unwrap();
        assert_eq!(store.recovery().rebuilt_queues, is_rebuilt, "{start}");
        assert_eq!(read_all(&store, "b", 0).len(), living(("b", 0)));
        store.shutdown().unwrap();
    }
}

#[test]
fn a_rebuild_that_was_cut_short_begins_again() {
    for marked in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let config = small(dir.path());
        let before = closed_store(&config);
        RealDisk.remove_file(&dir.path().join("consumequeue/a/0").join(format!("{:020}", 2000))).unwrap();
        if !marked {
            erase_mark(&config.root);
        }
        let disk = FaultyDisk::default();
        disk.faults.queue_writes_left.store(7, std::sync::atomic::Ordering::SeqCst);
        Store::open_on(disk, config.clone()).unwrap_err();
        reopen_equal(&config, &before, true);
        reopen_equal(&config, &before, false);
    }
}

#[test]
fn without_a_mark_entries_that_lead_nowhere_are_not_believed() {
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    let before = closed_store(&config);
    erase_mark(dir.path());
    // The last entry before the file from which the log is read leads into the middle of a record.
    let queue = dir.path().join("consumequeue/a/0");
    for file in RealDisk.list(&queue).unwrap() {
        let path = queue.join(file.name);
        let mut bytes = RealDisk.read(&path, 1 << 20).unwrap();
        for entry in bytes.as_chunks_mut::<20>().0.iter_mut().filter(|entry| entry[11] != 0) {
            entry[7] ^= 1;
        }
        overwrite(&path, 0, &bytes);
    }
    reopen_equal(&config, &before, true);
}

#[test]
fn stale_entries_behind_the_end_do_not_come_back() {
    for marked in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let config = small(dir.path());
        let before = closed_store(&config);
        RealDisk.replace(&dir.path().join("abort"), b"1").unwrap();
        // Entries of a former life, pointing into the log: 455 entries of 20 bytes end 1100 bytes into the last file.
        let path = dir.path().join("consumequeue/a/0").join(format!("{:020}", 8000));
        let bytes = RealDisk.read(&path, 1 << 20).unwrap();
        assert_eq!(bytes[1100..1120], [0; 20]);
        overwrite(&path, 1100, &bytes[..500]);
        if !marked {
            erase_mark(dir.path());
        }
        // Nobody but another program leaves such entries; with a mark of our own they only show that it was there.
        reopen_equal(&config, &before, marked);
    }
}

#[test]
fn a_new_file_that_was_never_filled_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    let before = closed_store(&config);
    RealDisk.replace(&dir.path().join("consumequeue/a/0").join(format!("{:020}", 10_000)), b"").unwrap();
    reopen_equal(&config, &before, false);
}

/// A log of 250 records of one queue whose queue offsets from a number on are others, as another program may leave it.
/// Record `n` is stored `n` ms after [`FIRST_MS`]. Returns where each record lies.
fn log_with_numbers(config: &StoreConfig, from: u64, number_of: impl Fn(u64) -> u64) -> Vec<u64> {
    let disk = FaultyDisk::default();
    let store = Store::open_on(disk.clone(), config.clone()).unwrap();
    let numbered = |number: u64| {
        disk.set_clock(FIRST_MS + number as i64);
        let body = [number.to_be_bytes().as_slice(), &[0; 400]].concat();
        store.append(&record("t", 0, &body)).unwrap().physical_offset.get()
    };
    let places: Vec<u64> = (0..250).map(numbered).collect();
    store.shutdown().unwrap();
    for number in from..250 {
        let place = places[number as usize];
        let file = config.commit_log_dir().join(format!("{:020}", place / (64 << 10) * (64 << 10)));
        overwrite(&file, place % (64 << 10) + 20, &number_of(number).to_be_bytes());
    }
    erase_mark(&config.root);
    RealDisk.remove_dir_all(&config.root.join("consumequeue")).unwrap();
    places
}

#[test]
fn of_queue_offsets_that_are_there_twice_the_later_records_count_and_the_former_stay_before() {
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    log_with_numbers(&config, 200, |number| number - 20);
    let store = Store::open(config.clone()).unwrap();
    let numbers: Vec<u64> = read_all(&store, "t", 0)
        .iter()
        .map(|body| u64::from_be_bytes(*body.first_chunk().unwrap()))
        .collect();
    assert_eq!(numbers, (0..180).chain(200..250).collect::<Vec<_>>());
    assert_eq!(store.append(&record("t", 0, b"x")).unwrap().queue_offset.get(), 230);
}

#[test]
fn a_queue_offset_that_leads_nowhere_refuses_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    log_with_numbers(&config, 200, |number| number + 1_000_000);
    let error = Store::open(config).unwrap_err().to_string();
    assert!(error.contains("t-0 has the impossible queue offset 1000200"), "{error}");
}

#[test]
fn a_hole_in_a_queue_hides_nothing_but_itself() {
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    let places = log_with_numbers(&config, 140, |number| number + 50);
    let store = Store::open(config.clone()).unwrap();
    assert_eq!(store.queue_bounds("t", 0).max.get(), 300);
    let at = |number| store.offset_by_time("t", 0, FIRST_MS + number, Boundary::Lower).unwrap().get();
    assert_eq!([at(0), at(130), at(139), at(140), at(249)], [0, 130, 139, 190, 299]);
    drop(store);
    // The start of the log is taken away: what is left of the queue starts before the hole.
    retire_first_log_file(&config);
    let store = Store::open(config).unwrap();
    let left = places.iter().position(|&place| place >= 64 << 10).unwrap() as u64;
    assert!(left < 140);
    assert_eq!(store.queue_bounds("t", 0).min.get(), left);
}

const LATE_QUEUES: u32 = 12;
const LATE: u64 = 299_990;

/// Rebuilds the queues of a store that starts late, in little memory. Run without a parent test, it rebuilds those of
/// an empty store.
#[test]
fn child_rebuilds() {
    let Some(root) = std::env::var_os("ROCKETPY_REBUILD_STORE") else {
        let dir = tempfile::tempdir().unwrap();
        assert!(!Store::open(small(dir.path())).unwrap().recovery().rebuilt_queues);
        return;
    };
    let store = Store::open(late(std::path::Path::new(&root))).unwrap();
    for queue_id in 0..LATE_QUEUES {
        assert_eq!(store.queue_bounds("t", queue_id).min.get(), LATE);
        assert_eq!(read_all(&store, "t", queue_id), [b"x"]);
    }
}

/// Queue files of the usual size: what lies before a late start fills one with blanks.
fn late(root: &std::path::Path) -> StoreConfig {
    StoreConfig { consume_queue_file_size: 6_000_000, ..small(root) }
}

#[cfg(target_os = "linux")]
#[test]
fn queues_that_start_late_are_made_anew_in_little_memory() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(late(dir.path())).unwrap();
    for queue_id in 0..LATE_QUEUES {
        let place = store.append(&record("t", queue_id, b"x")).unwrap().physical_offset.get();
        overwrite(&dir.path().join("commitlog").join(format!("{:020}", 0)), place + 20, &LATE.to_be_bytes());
    }
    store.wait_flushed(store.max_physical_offset(), crate::support::PATIENCE).unwrap();
    drop(store);
    erase_mark(dir.path());
    RealDisk.remove_dir_all(&dir.path().join("consumequeue")).unwrap();
    // All blanks together are 72 MB.
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "ulimit -d 45000; exec \"$0\" --exact rebuild::child_rebuilds --nocapture"]);
    command.arg(std::env::current_exe().unwrap()).env("ROCKETPY_REBUILD_STORE", dir.path());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
}
