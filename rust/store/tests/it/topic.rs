//! Deleted topics: their queues go, their numbers start again, and no ordinary start brings them back.

use rocketpy_env::Disk as _;
use rocketpy_filter::MessageFilter;
use rocketpy_store::{FetchStatus, FlushMode, Store, StoreConfig};

use crate::faulty::FaultyDisk;
use crate::support::{
    ALL, eventually, is_there, killed_copy, overwrite, quiet, read_all, record, settle, settle_in_files,
    small,
};

#[test]
fn a_deleted_topic_is_gone_and_a_new_one_of_its_name_starts_at_zero() {
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    let store = Store::open(config.clone()).unwrap();
    for number in 0..250u32 {
        store.append(&record("old", number % 2, b"old")).unwrap();
        store.append(&record("kept", 0, &number.to_be_bytes())).unwrap();
    }
    settle(&store);
    assert_eq!(store.delete_topic("old").unwrap(), 2);
    assert_eq!(store.delete_topic("old").unwrap(), 0);
    assert_eq!(
        store.get("old", 0, 0, &ALL, &MessageFilter::All).unwrap().status,
        FetchStatus::NoMessageInQueue
    );
    assert_eq!(store.append(&record("old", 1, b"new")).unwrap().queue_offset.get(), 0);
    settle(&store);
    assert_eq!(read_all(&store, "old", 1), [b"new"]);
    drop(store);

    let store = Store::open(config.clone()).unwrap();
    assert!(!store.recovery().rebuilt_queues);
    let named: Vec<_> =
        store.queues().iter().map(|queue| (queue.topic.to_string(), queue.queue_id)).collect();
    assert_eq!(named, [("kept".to_owned(), 0), ("old".to_owned(), 1)]);
    assert_eq!(read_all(&store, "old", 1), [b"new"]);
    assert_eq!(read_all(&store, "kept", 0).len(), 250);
}

#[test]
fn a_rebuild_of_queues_ends_with_the_newer_topic_of_a_name() {
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    let store = Store::open(config.clone()).unwrap();
    for _ in 0..250 {
        store.append(&record("t", 0, b"old")).unwrap();
    }
    settle(&store);
    store.delete_topic("t").unwrap();
    for number in 0..120u32 {
        store.append(&record("t", 0, &number.to_be_bytes())).unwrap();
    }
    let expected: Vec<_> = (0..120u32).map(|number| number.to_be_bytes().to_vec()).collect();
    settle(&store);
    assert_eq!(read_all(&store, "t", 0), expected);
    drop(store);
    rocketpy_env::RealDisk.remove_dir_all(&dir.path().join("consumequeue")).unwrap();
    let store = Store::open(config).unwrap();
    assert!(store.recovery().rebuilt_queues);
    assert_eq!(read_all(&store, "t", 0), expected);
    assert_eq!(store.append(&record("t", 0, b"x")).unwrap().queue_offset.get(), 120);
}

#[test]
fn a_rebuild_in_several_rounds_forgets_the_files_of_the_older_topic() {
    let dir = tempfile::tempdir().unwrap();
    let config = StoreConfig { commit_log_file_size: 8 << 20, ..small(dir.path()) };
    let store = Store::open(config.clone()).unwrap();
    for _ in 0..8_500 {
        store.append(&record("t", 0, b"old")).unwrap(); // more than one round of dispatch
    }
    store.delete_topic("t").unwrap();
    store.append(&record("t", 0, b"new")).unwrap();
    drop(store);
    rocketpy_env::RealDisk.remove_dir_all(&dir.path().join("consumequeue")).unwrap();
    let store = Store::open(config.clone()).unwrap();
    assert_eq!(read_all(&store, "t", 0), [b"new"]);
    drop(store);
    assert!(!Store::open(config).unwrap().recovery().rebuilt_queues);
}

#[test]
fn a_deletion_that_failed_half_way_goes_on_when_it_is_asked_for_again() {
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    let disk = FaultyDisk::default();
    let store = Store::open_on(disk.clone(), config.clone()).unwrap();
    store.append(&record("t", 0, b"x")).unwrap();
    store.append(&record("kept", 0, b"x")).unwrap();
    settle_in_files(&store);
    disk.faults.fail_next_folder_removal.store(true, std::sync::atomic::Ordering::SeqCst);
    store.delete_topic("t").unwrap_err();
    assert!(is_there(&dir.path().join("consumequeue/t")));
    store.delete_topic("t").unwrap();
    assert!(!is_there(&dir.path().join("consumequeue/t")));
    assert_eq!(store.delete_topic("../consumequeue").unwrap(), 0, "no topic has this name");
    drop(store);
    let store = Store::open(config).unwrap();
    assert!(!store.recovery().rebuilt_queues);
    assert_eq!(store.queues().iter().map(|queue| queue.topic.to_string()).collect::<Vec<_>>(), ["kept"]);
}

#[test]
fn a_kill_after_the_deletion_does_not_bring_a_topic_back() {
    let (dir, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let hour = std::time::Duration::from_secs(3600);
    let config = |root| StoreConfig {
        flush: FlushMode::Sync,
        flush_interval: hour,
        checkpoint_interval: hour,
        ..small(root)
    };
    let store = Store::open(config(dir.path())).unwrap();
    for _ in 0..5 {
        store.append(&record("t", 0, b"old")).unwrap(); // on their way: not flushed, hence not in the queue
        store.append(&record("kept", 0, b"x")).unwrap();
    }
    store.delete_topic("t").unwrap();
    killed_copy(dir.path(), killed.path());
    let store = Store::open(config(killed.path())).unwrap();
    assert!(!store.recovery().clean_exit);
    assert_eq!(store.queues().iter().map(|queue| queue.topic.to_string()).collect::<Vec<_>>(), ["kept"]);
    assert_eq!(read_all(&store, "kept", 0).len(), 5);
    assert_eq!(store.append(&record("t", 0, b"new")).unwrap().queue_offset.get(), 0);
}

#[test]
fn records_that_were_on_their_way_do_not_bring_a_deleted_topic_back() {
    let dir = tempfile::tempdir().unwrap();
    let config = quiet(dir.path(), FlushMode::Sync);
    for again in [false, true] {
        let store = Store::open(config.clone()).unwrap();
        for _ in 0..5 {
            store.append(&record("t", 0, b"old")).unwrap(); // not flushed, hence not in the queue
        }
        store.delete_topic("t").unwrap();
        if again {
            assert_eq!(store.append(&record("t", 0, b"new")).unwrap().queue_offset.get(), 0);
        }
        settle(&store);
        assert_eq!(read_all(&store, "t", 0), vec![b"new"; usize::from(again)]);
        assert_eq!(store.queues().len(), usize::from(again));
    }
}

#[test]
fn a_topic_that_is_made_anew_while_it_is_deleted_has_new_records_alone() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let config = quiet(dir.path(), FlushMode::Sync);
    let store = Store::open_on(disk.clone(), config.clone()).unwrap();
    disk.shut_gate();
    for _ in 0..5 {
        store.append(&record("t", 0, b"old")).unwrap();
    }
    std::thread::scope(|scope| {
        let deleting = scope.spawn(|| store.delete_topic("t").unwrap());
        eventually("the queue is gone, and the log is flushed", || disk.held_back() == 1);
        let appended = store.append(&record("t", 0, b"new"));
        disk.open_gate(); // only now dispatch comes to the old records
        assert_eq!(appended.unwrap().queue_offset.get(), 0);
        assert_eq!(deleting.join().unwrap(), 1);
    });
    settle(&store);
    assert_eq!(read_all(&store, "t", 0), [b"new"]);
    store.shutdown().unwrap();
    let store = Store::open(config).unwrap();
    assert_eq!(read_all(&store, "t", 0), [b"new"]);
}

#[test]
fn damage_that_dispatch_meets_does_not_undo_a_deletion() {
    let dir = tempfile::tempdir().unwrap();
    let config = quiet(dir.path(), FlushMode::Sync);
    let log_file = dir.path().join("commitlog").join(format!("{:020}", 0));
    let store = Store::open(config).unwrap();
    let first = store.append(&record("t", 0, b"x")).unwrap();
    store.append(&record("kept", 0, b"x")).unwrap();
    overwrite(&log_file, first.end.get() + 4, b"bad!");
    assert_eq!(store.delete_topic("t").unwrap(), 1, "the damage is another record's");
    assert!(store.queues().iter().all(|queue| &*queue.topic != "t"));
}
