//! Entries of many queues are written later: until then they are read from memory, and a kill loses none.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rocketpy_env::{Disk, RealDisk};
use rocketpy_store::reader::StoreReader;
use rocketpy_store::{AppendError, Boundary, Store, StoreConfig};
use rocketpy_tools as tools;

use crate::faulty::FaultyDisk;
use crate::support::{
    assert_queues_equal_log, eventually, is_there, killed_copy, read_all, record, settle, small,
};

const HOUR: Duration = Duration::from_secs(3600);

/// Every round puts off entries, up to the given number of bytes. No checkpoint comes by itself.
fn config(root: &Path, queue_tail_bytes: usize) -> StoreConfig {
    StoreConfig { queues_at_once: 0, queue_tail_bytes, checkpoint_interval: HOUR, ..small(root) }
}

fn append_all<D: Disk>(store: &Store<D>, queues: u32, numbers: std::ops::Range<u32>) {
    for number in numbers {
        store.append(&record("t", number % queues, &number.to_be_bytes())).unwrap();
    }
}

fn files_of(root: &Path, topic: &str) -> usize {
    let dir = root.join("consumequeue").join(topic);
    let Ok(queues) = RealDisk.list(&dir) else { return 0 };
    queues.iter().map(|queue| RealDisk.list(&dir.join(&queue.name)).unwrap().len()).sum()
}

#[test]
fn what_is_put_off_is_read_from_memory_and_refuses_appends_while_it_cannot_be_written() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let config = config(dir.path(), 1 << 20);
    let store = Store::open_on(disk.clone(), config.clone()).unwrap();
    disk.faults.queue_writes_left.store(0, Ordering::SeqCst);
    append_all(&store, 3, 0..330); // a file holds 100 entries
    settle(&store);
    for queue_id in 0..3 {
        let numbers: Vec<_> = (0..330).filter(|number| number % 3 == queue_id).collect();
        let read: Vec<_> = read_all(&store, "t", queue_id)
            .iter()
            .map(|body| u32::from_be_bytes(*body.first_chunk().unwrap()))
            .collect();
        assert_eq!(read, numbers);
        assert_eq!(store.offset_by_time("t", queue_id, 0, Boundary::Lower).unwrap().get(), 0);
        assert_eq!(store.offset_by_time("t", queue_id, i64::MAX, Boundary::Lower).unwrap().get(), 110);
    }
    let written = RealDisk.read(&dir.path().join(format!("consumequeue/t/0/{:020}", 0)), 1 << 20);
    assert!(written.is_err() || written.unwrap().iter().all(|&byte| byte == 0), "it is in memory alone");
    eventually("appends are refused", || store.refusal().is_some());
    let refusal = store.append(&record("t", 0, b"x")).unwrap_err();
    assert!(matches!(refusal, AppendError::QueueNotWriteable { .. }), "{refusal}");
    disk.faults.queue_writes_left.store(u64::MAX, Ordering::SeqCst);
    eventually("appends go on", || store.refusal().is_none());
    append_all(&store, 3, 330..360);
    settle(&store);
    assert_eq!(read_all(&store, "t", 1).len(), 120, "of files and of memory");
    eventually("all is written", || files_of(dir.path(), "t") == 6);
    store.shutdown().unwrap();
    assert_queues_equal_log(&config);
}

#[test]
fn more_than_may_be_put_off_is_written_before_dispatch_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let config = config(dir.path(), 400);
    let store = Store::open_on(disk.clone(), config.clone()).unwrap();
    disk.faults.queue_writes_left.store(0, Ordering::SeqCst);
    let mut accepted = 0;
    eventually("appends are refused", || match store.append(&record("t", accepted % 50, b"more")) {
        Ok(_) => {
            accepted += 1;
            false
        }
        Err(error) => matches!(error, AppendError::QueueNotWriteable { .. }),
    });
    disk.faults.queue_writes_left.store(u64::MAX, Ordering::SeqCst);
    eventually("appends go on", || store.refusal().is_none());
    append_all(&store, 50, accepted..accepted + 1000);
    settle(&store);
    let count: usize = (0..50).map(|queue_id| read_all(&store, "t", queue_id).len()).sum();
    assert_eq!(count, accepted as usize + 1000);
    store.shutdown().unwrap();
    assert_queues_equal_log(&config);
    assert!(!Store::open(config).unwrap().recovery().rebuilt_queues);
}

#[test]
fn a_kill_loses_no_entry_that_was_in_memory_alone() {
    let (dir, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let disk = FaultyDisk::default();
    let store = Store::open_on(disk.clone(), config(dir.path(), 1 << 20)).unwrap();
    append_all(&store, 40, 0..500);
    settle(&store);
    eventually("all is written", || files_of(dir.path(), "t") == 40);
    disk.faults.queue_writes_left.store(7, Ordering::SeqCst);
    append_all(&store, 40, 500..1000);
    settle(&store);
    killed_copy(dir.path(), killed.path());
    let config = config(killed.path(), 100);
    let store = Store::open(config.clone()).unwrap();
    assert!(!store.recovery().clean_exit && !store.recovery().rebuilt_queues);
    let count: usize = (0..40).map(|queue_id| read_all(&store, "t", queue_id).len()).sum();
    assert_eq!(count, 1000);
    store.shutdown().unwrap();
    assert_queues_equal_log(&config);
}

#[test]
fn the_checkpoint_counts_no_entry_that_is_in_memory_alone() {
    let (dir, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let often =
        |root: &Path| StoreConfig { checkpoint_interval: Duration::from_millis(1), ..config(root, 1 << 20) };
    let store = Store::open(often(dir.path())).unwrap();
    for round in 0..10 {
        append_all(&store, 60, round * 600..round * 600 + 600);
        // The checkpoint first: the queues of the copy are as old or younger.
        let copy = killed.path().join(round.to_string());
        RealDisk.create_dir_all(&copy).unwrap();
        let checkpoint = RealDisk.read(&dir.path().join("checkpoint"), 1 << 20).unwrap();
        settle(&store);
        killed_copy(dir.path(), &copy);
        RealDisk.replace(&copy.join("checkpoint"), &checkpoint).unwrap();
        let config = often(&copy);
        let opened = Store::open(config.clone()).unwrap();
        assert!(!opened.recovery().rebuilt_queues, "entries that the mark counts are not there");
        opened.shutdown().unwrap();
        assert_queues_equal_log(&config);
    }
}

#[test]
fn a_snapshot_holds_what_was_readable_from_memory_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (root, target) = (dir.path().join("store"), dir.path().join("snapshot"));
    let disk = FaultyDisk::default();
    let checkpoint_interval = Duration::from_millis(20);
    let config = |root| StoreConfig { checkpoint_interval, ..config(root, 1 << 20) };
    let store = Store::open_on(disk.clone(), config(&root)).unwrap();
    disk.faults.queue_writes_left.store(0, Ordering::SeqCst);
    append_all(&store, 20, 0..100);
    settle(&store);
    let mut looks = 0;
    let made = tools::snapshot(&StoreReader::open(&root).unwrap(), &target, &mut |_| {
        looks += 1;
        if looks == 2 {
            disk.faults.queue_writes_left.store(u64::MAX, Ordering::SeqCst);
        }
        true
    });
    assert_eq!(made.unwrap().entries, 100);
    let opened = Store::open(config(&target)).unwrap();
    assert!(opened.recovery().clean_exit);
    let count: usize = (0..20).map(|queue_id| read_all(&opened, "t", queue_id).len()).sum();
    assert_eq!(count, 100);
}

#[test]
fn a_deleted_topic_is_not_written_afterwards() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let config = config(dir.path(), 1 << 20);
    let store = Store::open_on(disk.clone(), config.clone()).unwrap();
    disk.faults.queue_writes_left.store(0, Ordering::SeqCst);
    append_all(&store, 10, 0..100);
    store.append(&record("kept", 0, b"x")).unwrap();
    settle(&store);
    disk.faults.queue_writes_left.store(u64::MAX, Ordering::SeqCst);
    store.delete_topic("t").unwrap(); // with a checkpoint
    eventually("the other topic is written", || files_of(dir.path(), "kept") == 1);
    assert!(!is_there(&dir.path().join("consumequeue/t")));
    assert!(read_all(&store, "t", 0).is_empty());
    assert_eq!(store.append(&record("t", 0, b"new")).unwrap().queue_offset.get(), 0);
    settle(&store);
    assert_eq!(read_all(&store, "t", 0), [b"new"]);
    store.shutdown().unwrap();
    let store = Store::open(config).unwrap();
    assert!(!store.recovery().rebuilt_queues);
    assert_eq!((read_all(&store, "t", 0).len(), read_all(&store, "kept", 0).len()), (1, 1));
}

#[test]
fn a_flush_of_many_queues_that_fails_poisons() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let config = config(dir.path(), 1 << 20);
    let store = Store::open_on(disk.clone(), StoreConfig { index: false, ..config }).unwrap();
    append_all(&store, 100, 0..300);
    settle(&store);
    disk.faults.fail_next_file_flush.store(true, Ordering::SeqCst);
    assert!(store.shutdown().is_err());
    assert!(store.poisoned().is_some());
    assert!(is_there(&dir.path().join("abort")), "the next start recovers");
}

#[test]
fn a_start_with_thousands_of_queues_leaves_their_first_checkpoint_for_later_and_loses_nothing() {
    const QUEUES: u32 = 4200;
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let config = StoreConfig { index: false, ..config(dir.path(), 1 << 20) };
    let checkpoint = || RealDisk.read(&dir.path().join("checkpoint"), 1 << 20).unwrap();
    let mut before = None;
    for life in 0..3 {
        let store = Store::open_on(disk.clone(), config.clone()).unwrap();
        assert_eq!((store.recovery().clean_exit, store.recovery().rebuilt_queues), (life == 0, false));
        assert!(before.is_none_or(|before| before == checkpoint()), "the mark is that of the life before");
        before = Some(checkpoint());
        append_all(&store, QUEUES, life * QUEUES..(life + 1) * QUEUES);
        settle(&store);
        for queue_id in [0, 1, 999, QUEUES - 1] {
            assert_eq!(read_all(&store, "t", queue_id).len(), life as usize + 1);
        }
        disk.faults.fail_next_file_flush.store(true, Ordering::SeqCst);
        store.shutdown().unwrap_err(); // as a kill leaves it, in the midst of a checkpoint
    }
    let store = Store::open_on(disk, config.clone()).unwrap();
    store.shutdown().unwrap();
    assert_eq!(assert_queues_equal_log(&config).values().map(Vec::len).sum::<usize>(), 3 * QUEUES as usize);
    let store = Store::open(config).unwrap();
    assert!(store.recovery().clean_exit);
    assert_eq!(store.queues().iter().map(|queue| queue.bounds.max.get()).sum::<u64>(), 3 * u64::from(QUEUES));
}
