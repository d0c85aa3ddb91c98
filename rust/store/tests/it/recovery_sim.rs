//! Recovery on a simulated disk: what a start leaves behind is whole for the next one, whenever either ends.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use rocketpy_env::sim::{SimDisk, SimOptions, Stopped};
use rocketpy_store::{KeyKind, NewRecord, RetentionConfig, Store, StoreConfig};

use crate::support::{ALL, record};

const MESSAGES: u64 = 40;

fn config() -> StoreConfig {
    StoreConfig {
        commit_log_file_size: 16 << 10,
        consume_queue_file_size: 100,
        index: false,
        ..StoreConfig::new(Path::new("/store"))
    }
}

fn open(disk: &SimDisk) -> Arc<Store<SimDisk>> {
    Store::open_stepped(disk.clone(), config()).unwrap()
}

/// A process that was killed: its messages are flushed and in a queue that no checkpoint knows of.
fn killed(seed: u64) -> SimDisk {
    let disk = SimDisk::new(SimOptions { seed, ..SimOptions::default() });
    let store = open(&disk);
    for number in 0..MESSAGES {
        store.append(&record("t", 0, number.to_string().as_bytes())).unwrap();
    }
    store.step_flush().unwrap();
    while store.step_dispatch().unwrap() {}
    disk.kill()
}

#[test]
fn the_name_of_a_queue_that_a_killed_process_made_is_durable_after_the_next_start() {
    for seed in 0..100 {
        let disk = killed(seed);
        assert_eq!(open(&disk).queue_bounds("t", 0).max.get(), MESSAGES);
        let disk = disk.cut_power();
        let store = open(&disk);
        assert!(!store.recovery().rebuilt_queues, "seed {seed}: {:?}", store.recovery());
        assert_eq!(store.queue_bounds("t", 0).max.get(), MESSAGES);
    }
}

#[test]
fn a_start_that_ends_while_it_cuts_queues_leaves_no_hole_in_them() {
    let mut ends = 0;
    for stop in 1.. {
        let disk = killed(stop);
        disk.stop_at(Some(disk.operations() + stop));
        let opened = catch_unwind(AssertUnwindSafe(|| open(&disk)));
        let is_whole = opened.is_ok();
        if let Err(panic) = opened {
            assert!(Stopped::is(&*panic), "a start that was not stopped failed");
            ends += 1;
        }
        let store = open(&disk.kill());
        assert!(!store.recovery().rebuilt_queues, "stopped at {stop}: {:?}", store.recovery());
        assert_eq!(store.queue_bounds("t", 0).max.get(), MESSAGES);
        if is_whole {
            break;
        }
    }
    assert!(ends > 30, "{ends} ends are few for a start that cuts eight files and writes them again");
}

#[test]
fn what_a_start_cuts_off_is_told_when_it_makes_the_queues_anew_as_well() {
    let disk = SimDisk::new(SimOptions::default());
    let config = StoreConfig { consume_queue_file_size: 1000, ..config() };
    let store = Store::open_stepped(disk.clone(), config.clone()).unwrap();
    let append = |topic| store.append(&record(topic, 0, b"body")).unwrap();
    for _ in 0..10 {
        append("a");
        append("b");
    }
    store.step_flush().unwrap();
    while store.step_dispatch().unwrap() {}
    store.step_checkpoint().unwrap();
    append("a");
    let last = append("b").physical_offset.get() as usize;
    while store.step_dispatch().unwrap() {}
    let disk = disk.kill();
    drop(store);
    // The queues have as many entries as the mark says, but of "a" one is missing, and "b" has one too many.
    let file = |name: &str| Path::new("/store").join(name).join("00000000000000000000");
    disk.damage(&file("consumequeue/a/0"), |bytes| bytes[180..].fill(0)).unwrap();
    disk.damage(&file("consumequeue/b/0"), |bytes| bytes.copy_within(180..200, 200)).unwrap();
    disk.damage(&file("commitlog"), |bytes| bytes[last + 90] ^= 1).unwrap();
    let store = Store::open_stepped(disk, config).unwrap();
    let report = store.recovery();
    assert!(report.rebuilt_queues && report.truncated_bytes > 0, "{report:?}");
    assert_eq!(report.end.get() as usize, last);
    assert_eq!((store.queue_bounds("a", 0).max.get(), store.queue_bounds("b", 0).max.get()), (11, 10));
}

#[test]
fn a_checkpoint_in_the_midst_of_a_records_keys_leaves_no_index_entry_ahead_of_the_log() {
    let config = StoreConfig { index: true, index_slots: 3, index_entries: 2, ..config() };
    let mut parts = 0;
    for seed in 0..200 {
        let options = SimOptions { seed, ..SimOptions::default() };
        let disk = SimDisk::new(options);
        let store = Store::open_stepped(disk.clone(), config.clone()).unwrap();
        // Two keys, each of which fills a file.
        let keyed = NewRecord { properties: b"TAGS\x01TagA\x02KEYS\x01key\x02", ..record("t", 0, b"body") };
        store.append(&keyed).unwrap();
        disk.set_options(SimOptions { no_space_per_mille: 400, ..options });
        let dispatched = store.step_dispatch();
        disk.set_options(options);
        parts += u64::from(dispatched.is_err());
        store.step_checkpoint().unwrap();
        let disk = disk.cut_power();
        drop(store);
        let store = Store::open_stepped(disk, config.clone()).unwrap();
        assert!(!store.recovery().rebuilt_index, "seed {seed}: {:?}", store.recovery());
    }
    assert!(parts > 50, "{parts}");
}

#[test]
fn a_queue_keeps_its_numbers_when_only_its_entries_survived_the_end_of_the_log() {
    let retention = RetentionConfig { max_bytes: Some(1), files_a_round: 100, ..RetentionConfig::default() };
    let config = StoreConfig { retention, ..config() };
    let disk = SimDisk::new(SimOptions::default());
    let store = Store::open_stepped(disk.clone(), config.clone()).unwrap();
    store.append(&record("quiet", 0, b"gone with its file")).unwrap();
    for _ in 0..3 * MESSAGES {
        store.append(&record("t", 0, &[7; 500])).unwrap();
    }
    store.step_flush().unwrap();
    while store.step_dispatch().unwrap() {}
    assert!(store.step_clean().unwrap().log_files > 0);
    let last = store.append(&record("quiet", 0, b"torn")).unwrap().physical_offset.get();
    while store.step_dispatch().unwrap() {}
    let disk = disk.kill();
    drop(store);
    let (file, at) = (last - last % (16 << 10), (last % (16 << 10)) as usize);
    let log = format!("/store/commitlog/{file:020}");
    disk.damage(Path::new(&log), |bytes| bytes[at + 90] ^= 1).unwrap();
    // Another queue lost its last file: all are rebuilt from the log, which has nothing of the quiet one.
    let queue = Path::new("/store/consumequeue/t/0");
    let mut files = disk.files().into_iter().filter(|(path, _)| path.starts_with(queue));
    disk.hide(&files.next_back().unwrap().0).unwrap();
    let store = Store::open_stepped(disk, config).unwrap();
    assert!(
        store.recovery().rebuilt_queues && store.recovery().truncated_bytes > 0,
        "{:?}",
        store.recovery()
    );
    assert_eq!(store.queue_bounds("t", 0).max.get(), 3 * MESSAGES);
    assert_eq!(store.queue_bounds("quiet", 0).max.get(), 1, "its only number is used");
}

#[test]
fn an_index_file_whose_head_was_lost_takes_those_behind_it_along() {
    let config = StoreConfig { index: true, index_slots: 3, index_entries: 2, ..config() };
    let disk = SimDisk::new(SimOptions::default());
    let store = Store::open_stepped(disk.clone(), config.clone()).unwrap();
    // Two keys, each of which fills a file.
    let keyed = NewRecord { properties: b"TAGS\x01TagA\x02KEYS\x01key\x02", ..record("t", 0, b"body") };
    store.append(&keyed).unwrap();
    store.shutdown().unwrap();
    let disk = disk.kill();
    let mut files = disk.files().into_iter().filter(|(path, _)| path.starts_with("/store/index"));
    disk.damage(&files.next().unwrap().0, |bytes| bytes[..40].fill(0)).unwrap();
    disk.hide(Path::new("/store/checkpoint")).unwrap();
    let store = Store::open_stepped(disk, config).unwrap();
    let found = store.query_by_key("t", "key", KeyKind::Any, &ALL, 0, i64::MAX).unwrap();
    assert_eq!(found.records.len(), 1);
}

#[test]
fn a_start_that_is_killed_before_it_has_cut_what_a_power_cut_left_does_not_refuse_the_next_one() {
    for stop in 1.. {
        let disk = SimDisk::new(SimOptions { seed: stop, ..SimOptions::default() });
        let store = open(&disk);
        let places: Vec<_> = (0..20)
            .map(|_| store.append(&record("t", 0, &[9; 100])).unwrap().physical_offset.get())
            .collect();
        let disk = disk.kill();
        disk.settle();
        drop(store);
        let disk = disk.cut_power();
        let log = Path::new("/store/commitlog").join(format!("{:020}", 0));
        disk.damage(&log, |bytes| bytes[places[5] as usize + 100] ^= 1).unwrap();
        disk.stop_at(Some(disk.operations() + stop));
        let opened = catch_unwind(AssertUnwindSafe(|| open(&disk)));
        let is_through = opened.is_ok();
        let store = open(&disk.kill());
        assert_eq!(store.max_physical_offset().get(), places[5], "stopped at {stop}");
        if is_through {
            assert!(stop > 20, "{stop} operations are few for a start that cuts the log");
            break;
        }
    }
}
