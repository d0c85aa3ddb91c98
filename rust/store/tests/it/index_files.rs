//! However a process ended, the next start makes the index files match the log, whoever wrote, lost or damaged them.
//!
//! Cannot show what a power loss leaves: the simulator does. Here its traces are written by hand.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rocketpy_env::{Disk, RealDisk};
use rocketpy_protocol::disk::IndexHeader;
use rocketpy_store::{KeyKind, RetentionConfig, Store, StoreConfig, StoreError, mark_page};

use crate::faulty::FaultyDisk;
use crate::index::{FIRST_MS, append_numbers, assert_whole, closed_store, find, keyed, numbers, properties};
use crate::index_oracle::{assert_index_equals_log, paths};
use crate::support::{
    ALL, assert_queues_equal_log, contents, erase_mark, killed_copy, overwrite, retire_first_log_file,
    settle, small,
};

/// The marked start of the index: its last file and the number of its next entry.
fn marked(root: &Path) -> (u64, u32) {
    mark_page::index_end(&RealDisk.read(&root.join("checkpoint"), 4096).unwrap())
}

#[test]
fn a_store_that_was_closed_goes_on_with_its_files() {
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    closed_store(&config, 350);
    let before = contents(&dir.path().join("index"));
    drop(Store::open(config.clone()).unwrap());
    assert_eq!(contents(&dir.path().join("index")), before, "nothing changes without a message");
    assert_whole(&config, 350, false);
}

#[test]
fn a_killed_store_finds_all_that_was_dispatched_and_what_came_after_the_mark() {
    let hour = Duration::from_secs(3600);
    let (dir, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = StoreConfig { checkpoint_interval: hour, ..small(dir.path()) };
    closed_store(&config, 250);
    let store = Store::open(config).unwrap();
    append_numbers(&store, 250..600); // the mark lies files behind
    settle(&store);
    killed_copy(dir.path(), killed.path());
    let config = small(killed.path());
    assert_whole(&config, 600, false);
    assert_whole(&config, 601, false);
}

#[test]
fn what_a_power_loss_leaves_behind_the_mark_does_not_count() {
    let hour = Duration::from_secs(3600);
    let dir = tempfile::tempdir().unwrap();
    let config = StoreConfig { checkpoint_interval: hour, ..small(dir.path()) };
    closed_store(&config, 250);
    let store = Store::open(config.clone()).unwrap();
    append_numbers(&store, 250..600);
    settle(&store);
    let (name, next_entry) = marked(dir.path());
    type Trace = (&'static str, fn(&Path, u64));
    let traces: [Trace; 4] = [
        ("entries are lost", |path, behind| overwrite(path, behind, &[0; 100])),
        ("entries are torn", |path, behind| overwrite(path, behind + 7, &[0xee; 40])),
        ("the head is ahead", |path, _| overwrite(path, 36, &9999_u32.to_be_bytes())),
        ("slots lead to what is lost", |path, behind| {
            overwrite(path, behind, &[0; 300]);
            overwrite(path, 40, &[0, 0, 1, 41].repeat(61));
        }),
    ];
    for (what, damage) in traces {
        let killed = tempfile::tempdir().unwrap();
        killed_copy(dir.path(), killed.path());
        let path = killed.path().join("index").join(format!("{name:017}"));
        damage(&path, 40 + 61 * 4 + u64::from(next_entry) * 20);
        for newer in paths(&small(killed.path())).into_iter().filter(|newer| *newer > path) {
            overwrite(&newer, 0, &[0xee; 64]);
        }
        eprintln!("{what}");
        assert_whole(&small(killed.path()), 600, false);
    }
}

#[test]
fn keys_of_records_that_the_log_lost_are_gone() {
    let hour = Duration::from_secs(3600);
    let (dir, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let sizes = |config| StoreConfig { index_slots: 200_000, index_entries: 4000, ..config }; // units far apart
    let config = sizes(StoreConfig { checkpoint_interval: hour, ..small(dir.path()) });
    closed_store(&config, 250);
    let store = Store::open(config).unwrap();
    append_numbers(&store, 250..255);
    let lost = store.append(&keyed(&255_u32.to_be_bytes(), &properties(255))).unwrap().physical_offset.get();
    append_numbers(&store, 256..260);
    settle(&store);
    killed_copy(dir.path(), killed.path());
    let config = sizes(small(killed.path()));
    overwrite(&config.commit_log_dir().join(format!("{:020}", 0)), lost, &[0; 2000]);
    let store = Store::open(config.clone()).unwrap();
    assert_eq!(store.max_physical_offset().get(), lost);
    assert_eq!(numbers(&find(&store, "order-254")), [254]);
    assert!(find(&store, "order-255").records.is_empty());
    store.shutdown().unwrap();
    assert_eq!(assert_index_equals_log(&config), 255 * 3, "nor is anything of them left in the files");
}

#[test]
fn index_files_that_are_lost_or_damaged_are_rebuilt() {
    type Damage = (&'static str, fn(&StoreConfig));
    let damages: [Damage; 6] = [
        ("all are gone", |config| RealDisk.remove_dir_all(&config.root.join("index")).unwrap()),
        ("the first is gone", |config| RealDisk.remove_file(&paths(config)[0]).unwrap()),
        ("one in between is gone", |config| RealDisk.remove_file(&paths(config)[1]).unwrap()),
        ("the last is gone", |config| RealDisk.remove_file(paths(config).last().unwrap()).unwrap()),
        ("one is cut", |config| RealDisk.replace(&paths(config)[0], &[0; 500]).unwrap()),
        ("a head is damaged", |config| overwrite(&paths(config)[1], 16, &[0xff; 24])),
    ];
    for (what, damage) in damages {
        let dir = tempfile::tempdir().unwrap();
        let config = small(dir.path());
        closed_store(&config, 350);
        damage(&config);
        eprintln!("{what}");
        assert_whole(&config, 350, true);
        assert_whole(&config, 351, false);
    }
}

#[test]
fn damage_before_the_mark_shows_after_a_crash() {
    let (dir, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = small(dir.path());
    closed_store(&config, 350);
    let store = Store::open(config).unwrap();
    killed_copy(dir.path(), killed.path());
    drop(store);
    let config = small(killed.path());
    let last = paths(&config).pop().unwrap();
    overwrite(&last, 40 + 61 * 4 + 20 * 5, &[0; 20]);
    assert_whole(&config, 350, true);
}

#[test]
fn files_of_another_size_are_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    closed_store(&config, 350);
    assert_whole(&StoreConfig { index_entries: 200, ..config.clone() }, 350, true);
    assert_whole(&StoreConfig { index_slots: 100, index_entries: 200, ..config.clone() }, 351, true);
    assert_whole(&StoreConfig { index_slots: 100, index_entries: 200, ..config.clone() }, 352, false);
    let (small_dir, few) = (tempfile::tempdir().unwrap(), 20);
    let config_of_few = small(small_dir.path());
    closed_store(&config_of_few, few);
    assert_whole(&StoreConfig { index_slots: 66, index_entries: 299, ..config_of_few }, few, true);
    let of_same_length = StoreConfig { index_slots: 105, index_entries: 199, ..config };
    assert_whole(&of_same_length, 353, true);
}

#[test]
fn without_an_index_nothing_is_found_and_one_that_is_switched_on_again_has_all() {
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    closed_store(&config, 350);
    let off = StoreConfig { index: false, ..config.clone() };
    let store = Store::open(off).unwrap();
    append_numbers(&store, 350..700);
    settle(&store);
    let error = store.query_by_key("t", "order-1", KeyKind::Any, &ALL, 0, i64::MAX).unwrap_err();
    assert!(matches!(error, StoreError::NoIndex), "{error}");
    assert!(error.hint().unwrap().contains("messageIndexEnable"));
    drop(store);
    assert_whole(&config, 700, false);
}

#[test]
fn files_of_another_program_are_taken_over_after_a_clean_exit() {
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    closed_store(&config, 350);
    erase_mark(&config.root);
    let before = contents(&dir.path().join("index"));
    drop(Store::open(config.clone()).unwrap());
    assert_eq!(contents(&dir.path().join("index")), before);
    erase_mark(&config.root);
    assert_whole(&config, 350, false);
}

#[test]
fn files_that_another_program_lost_in_a_crash_leave_a_hole_that_is_seen() {
    for lost in [0, 1] {
        let dir = tempfile::tempdir().unwrap();
        let config = small(dir.path());
        closed_store(&config, 350);
        erase_mark(&config.root);
        RealDisk.remove_file(&paths(&config)[lost]).unwrap();
        assert_whole(&config, 350, true);
    }
    // The last file was lost, and what came later went into a new one.
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    closed_store(&config, 150);
    erase_mark(&config.root);
    let last = paths(&config).pop().unwrap();
    RealDisk.remove_file(&last).unwrap();
    assert_whole(&config, 150, false);
}

#[test]
fn after_a_crash_of_another_program_only_files_count_that_it_knew_to_be_durable() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let config = small(dir.path());
    let store = Store::open_on(disk.clone(), config.clone()).unwrap();
    for number in 0..350 {
        disk.set_clock(FIRST_MS + i64::from(number) * 1000);
        append_numbers(&store, number..number + 1);
    }
    store.shutdown().unwrap();
    let page = RealDisk.read(&dir.path().join("checkpoint"), 4096).unwrap();
    let index_msg = i64::from_be_bytes(page[16..24].try_into().unwrap());
    let full: Vec<_> = paths(&config);
    let full = crate::index_oracle::read(&full[full.len() - 2], &config);
    assert_eq!(index_msg, full.end_ms, "docs/reference/store-format.md 5.1: of the newest file that is full");
    erase_mark(&config.root);
    RealDisk.replace(&dir.path().join("abort"), b"1").unwrap();
    // What the last file says is not believed, however sound it looks.
    let last = paths(&config).pop().unwrap();
    overwrite(&last, 40 + 61 * 4 + 20 * 5 + 4, &[0; 7]);
    let store = Store::open(config.clone()).unwrap();
    assert!(!store.recovery().rebuilt_index, "those that were full stay");
    assert_eq!(numbers(&find(&store, "order-349")), [349]);
    store.shutdown().unwrap();
    assert_queues_equal_log(&config);
    assert_eq!(paths(&config).len(), 4);
}

#[test]
fn of_files_that_end_in_the_same_millisecond_one_is_known_to_be_durable() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    disk.set_clock(FIRST_MS);
    let config = small(dir.path());
    let store = Store::open_on(disk.clone(), config.clone()).unwrap();
    append_numbers(&store, 0..350);
    store.shutdown().unwrap();
    erase_mark(&config.root);
    RealDisk.replace(&dir.path().join("abort"), b"1").unwrap();
    // What a power loss leaves of the second full file, which was not flushed.
    overwrite(&paths(&config)[1], 40 + 61 * 4 + 20 * 17, &[0; 4096]);
    let store = Store::open(config.clone()).unwrap();
    assert!(!store.recovery().rebuilt_index, "the first stays");
    store.shutdown().unwrap();
    assert_queues_equal_log(&config);
}

#[test]
fn a_start_that_did_not_get_through_says_no_more_of_the_index_than_is_so() {
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    closed_store(&config, 350);
    let known = marked(dir.path());
    // A rebuild of the queues keeps what is known of the index.
    RealDisk.remove_dir_all(&dir.path().join("consumequeue").join("t")).unwrap();
    let disk = FaultyDisk::default();
    disk.faults.queue_writes_left.store(0, Ordering::SeqCst);
    assert!(Store::open_on(disk, config.clone()).is_err());
    assert_eq!(marked(dir.path()), known);
    // An index that is rebuilt is not known at all.
    overwrite(&paths(&config)[0], 36, &9999_u32.to_be_bytes());
    let disk = FaultyDisk::default();
    disk.faults.removals_left.store(0, Ordering::SeqCst);
    assert!(Store::open_on(disk, config.clone()).is_err());
    assert_eq!(marked(dir.path()), (0, 0));
    let page = RealDisk.read(&dir.path().join("checkpoint"), 4096).unwrap();
    assert_eq!(page[16..24], [0; 8], "to another program as well");
    assert_whole(&config, 350, true);
}

fn head_of(index_file: &Path) -> IndexHeader {
    let bytes = RealDisk.read(index_file, 1 << 20).unwrap();
    IndexHeader::decode(bytes.first_chunk().unwrap())
}

#[test]
fn index_files_whose_records_are_gone_can_be_removed_at_any_time() {
    let dir = tempfile::tempdir().unwrap();
    let retention = RetentionConfig { clean_forcibly: false, ..RetentionConfig::default() };
    let config = StoreConfig { retention, ..small(dir.path()) };
    closed_store(&config, 1500);
    let count = paths(&config).len();
    retire_first_log_file(&config);
    let store = Store::open(config.clone()).unwrap();
    assert!(!store.recovery().rebuilt_index);
    let log_min = store.min_physical_offset();
    let copy = tempfile::tempdir().unwrap();
    killed_copy(dir.path(), copy.path());
    let killed = small(copy.path());
    let gone: Vec<_> =
        paths(&killed).into_iter().filter(|path| head_of(path).end_physical_offset < log_min).collect();
    assert!(!gone.is_empty());
    gone.iter().for_each(|path| RealDisk.remove_file(path).unwrap()); // the mark still counts their keys
    assert_eq!(store.clean().unwrap().index_files, gone.len());
    assert_eq!(paths(&config).len(), count - gone.len());
    assert_eq!(store.clean().unwrap().index_files, 0);
    assert!(find(&store, "order-0").records.is_empty());
    store.shutdown().unwrap();
    for config in [config, killed] {
        let store = Store::open(config.clone()).unwrap();
        assert!(!store.recovery().rebuilt_index);
        assert_eq!(numbers(&find(&store, "order-1499")), [1499]);
        drop(store);
        RealDisk.remove_file(&paths(&config)[0]).unwrap();
        assert!(Store::open(config).unwrap().recovery().rebuilt_index, "its records are still there");
    }
}
