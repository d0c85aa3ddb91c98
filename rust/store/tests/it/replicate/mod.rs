//! A log that is copied into another store: byte for byte, its queues and its index too, and nothing that is not the master's.

mod begin;
mod refused;
mod slice;
mod unchecked;

use std::path::Path;
use std::sync::Arc;

use rocketpy_env::Disk;
use rocketpy_model::sys_flag;
use rocketpy_protocol::batch::BatchItem;
use rocketpy_store::{KeyKind, NewRecord, ReplicateError, Store, StoreConfig, whole_records};

use crate::faulty::FaultyDisk;
use crate::support::{
    ALL, PATIENCE, assert_queues_equal_log, contents, killed_copy, listener, read_all, record, settle,
    settle_in_files, small,
};

/// Copies what the origin has and the copy has not, `step` bytes at a time, as a slave does.
pub(crate) fn copy_all<A: Disk, B: Disk>(origin: &Store<A>, copy: &Store<B>, step: usize) {
    let mut kept = Vec::new();
    loop {
        let at = copy.max_physical_offset();
        let slice = origin.log_slice(at + kept.len() as u64, step).unwrap().expect("it lies in the log");
        if slice.is_empty() {
            assert!(kept.is_empty(), "a record has no end: {at}");
            return;
        }
        kept.extend_from_slice(&slice);
        let whole = whole_records(&kept);
        let end = copy.append_replicated(at, &kept[..whole]).unwrap();
        assert_eq!(end, at + whole as u64);
        kept.drain(..whole);
    }
}

/// What is written of a log from `from` on.
pub(crate) fn log_from<D: Disk>(store: &Store<D>, from: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let slice = store.log_slice((from + bytes.len() as u64).into(), 1 << 20).unwrap().unwrap();
        if slice.is_empty() {
            return bytes;
        }
        bytes.extend_from_slice(&slice);
    }
}

/// Appends records of every kind to queues of two topics.
pub(crate) fn fill(store: &Store, rounds: u64) {
    for round in 0..rounds {
        let keys = format!("TAGS\x01TagA\x02KEYS\x01key{}\x02", round % 7);
        let keyed =
            |topic, queue| NewRecord { properties: keys.as_bytes(), ..record(topic, queue, b"a body") };
        store.append(&keyed("orders", (round % 3) as u32)).unwrap();
        store.append(&record("orders", 0, &vec![round as u8; (round * 977 % 9000) as usize])).unwrap();
        let host = "[::1]:7".parse().unwrap();
        store.append(&NewRecord { born_host: host, ..keyed("bills", 1) }).unwrap();
        let half = NewRecord { sys_flag: sys_flag::TRANSACTION_PREPARED, ..keyed("bills", 1) };
        store.append(&half).unwrap();
        let mut items = Vec::new();
        for body in [&b"one"[..], b"two", b"three"] {
            BatchItem { flag: 5, body, properties: b"KEYS\x01k" }.encode(&mut items).unwrap();
        }
        store.append_batch(&record("bills", 0, &items)).unwrap();
    }
}

/// The log of both is the same, and so is what readers get.
fn assert_same(origin: &Store, copy: &Store) {
    assert_eq!(copy.max_physical_offset(), origin.max_physical_offset());
    assert!(log_from(origin, 0) == log_from(copy, 0), "the logs differ");
    settle(origin);
    settle(copy);
    assert_eq!(copy.queues(), origin.queues());
    for queue in origin.queues() {
        let (topic, id) = (&queue.topic, queue.queue_id);
        assert_eq!(read_all(copy, topic, id), read_all(origin, topic, id), "{topic}-{id}");
        assert_eq!(copy.next_queue_offset(topic, id), queue.bounds.max);
    }
    for key in ["key0", "key6", "k", "no such key"] {
        let found = |store: &Store| {
            store.query_by_key("bills", key, KeyKind::Any, &ALL, 0, i64::MAX).unwrap().records.concat()
        };
        assert!(found(copy) == found(origin), "records of {key}");
    }
}

fn pair(step: usize) -> (tempfile::TempDir, Arc<Store>, tempfile::TempDir, Arc<Store>) {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let origin = Store::open(small(first.path())).unwrap();
    let copy = Store::open(small(second.path())).unwrap();
    fill(&origin, 60);
    assert!(origin.max_physical_offset().get() > 4 * (64 << 10), "the log has rolled");
    copy_all(&origin, &copy, step);
    (first, origin, second, copy)
}

fn log_files(root: &Path) -> Vec<(String, Vec<u8>)> {
    let dir = root.join("commitlog");
    let name = |path: String| path.rsplit_once('/').unwrap().1.to_owned();
    contents(&dir).into_iter().map(|(path, bytes)| (name(path), bytes)).collect()
}

#[test]
fn a_copy_has_the_bytes_the_queues_and_the_index_of_its_origin() {
    for step in [100, 4096, 32 << 10, 1 << 20] {
        let (first, origin, second, copy) = pair(step);
        assert_same(&origin, &copy);
        for store in [origin, copy] {
            store.shutdown().unwrap();
        }
        assert!(log_files(first.path()) == log_files(second.path()), "files of the log, steps of {step}");
        let queues = assert_queues_equal_log(&small(second.path()));
        assert_eq!(queues, assert_queues_equal_log(&small(first.path())));
    }
}

#[test]
fn a_copy_goes_on_after_a_close_and_after_a_kill() {
    let (_first, origin, second, copy) = pair(10_000);
    settle(&copy);
    let killed = tempfile::tempdir().unwrap();
    killed_copy(second.path(), killed.path());
    copy.shutdown().unwrap();
    drop(copy);
    fill(&origin, 20);
    for (root, clean_exit) in [(second.path(), true), (killed.path(), false)] {
        let copy = Store::open(small(root)).unwrap();
        let report = copy.recovery();
        assert_eq!((report.clean_exit, report.truncated_bytes), (clean_exit, 0));
        copy_all(&origin, &copy, 10_000);
        assert_same(&origin, &copy);
        copy.shutdown().unwrap();
        assert_queues_equal_log(&small(root));
    }
}

#[test]
fn a_copy_that_was_promoted_continues_log_and_queues() {
    let (_first, origin, second, copy) = pair(10_000);
    let next = copy.max_physical_offset();
    for queue in origin.queues() {
        let appended = copy.append(&record(&queue.topic, queue.queue_id, b"mine")).unwrap();
        assert_eq!(appended.queue_offset, origin.next_queue_offset(&queue.topic, queue.queue_id));
        assert!(appended.physical_offset >= next);
    }
    let end = copy.max_physical_offset();
    settle(&copy);
    copy.shutdown().unwrap();
    assert_queues_equal_log(&small(second.path()));
    let copy = Store::open(small(second.path())).unwrap();
    assert_eq!(copy.max_physical_offset(), end);
}

#[test]
fn an_append_follows_a_copied_blank_record_in_the_next_file() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let origin = Store::open(small(dirs[0].path())).unwrap();
    let copy = Store::open(small(dirs[1].path())).unwrap();
    while origin.max_physical_offset().get() < 64 << 10 {
        origin.append(&record("t", 0, &[7; 5000])).unwrap();
    }
    let file = origin.log_slice(0.into(), 1 << 20).unwrap().unwrap();
    assert_eq!(file.len(), 64 << 10, "with the rest behind the blank record");
    assert_eq!(copy.append_replicated(0.into(), &file).unwrap().get(), 64 << 10);
    settle(&copy);
    let killed = tempfile::tempdir().unwrap();
    killed_copy(dirs[1].path(), killed.path());
    let again = Store::open(small(killed.path())).unwrap();
    assert_eq!(again.max_physical_offset().get(), 64 << 10);
    for store in [copy, again] {
        let count = store.next_queue_offset("t", 0).get();
        let appended = store.append(&record("t", 0, b"mine")).unwrap();
        assert_eq!((appended.physical_offset.get(), appended.queue_offset.get()), (64 << 10, count));
        settle(&store);
        let config = store.config().clone();
        store.shutdown().unwrap();
        assert_queues_equal_log(&config);
    }
}

#[test]
fn a_topic_that_was_deleted_and_made_anew_starts_again_in_the_copy() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let origin = Store::open(small(dirs[0].path())).unwrap();
    let copy = Store::open(small(dirs[1].path())).unwrap();
    let append = |queue, count: u32| {
        for number in 0..count {
            origin.append(&record("t", queue, &number.to_be_bytes())).unwrap();
            origin.append(&record("kept", 0, &number.to_be_bytes())).unwrap();
        }
    };
    append(0, 250);
    append(1, 30);
    copy_all(&origin, &copy, 20_000);
    settle_in_files(&copy); // the next round finds entries in files, the one after it in memory
    for step in [1 << 20, 1000] {
        append(0, 150);
        origin.delete_topic("t").unwrap();
        append(0, 120);
        append(1, 10);
        origin.delete_topic("t").unwrap();
        append(0, 7);
        append(1, 110);
        copy_all(&origin, &copy, step);
        settle(&origin);
        settle(&copy);
        assert_eq!(copy.queues(), origin.queues());
        let killed = tempfile::tempdir().unwrap();
        killed_copy(dirs[1].path(), killed.path());
        let again = Store::open(small(killed.path())).unwrap();
        for queue in origin.queues() {
            let (topic, id) = (&queue.topic, queue.queue_id);
            assert_eq!(read_all(&copy, topic, id), read_all(&origin, topic, id), "{topic}-{id}");
            assert_eq!(read_all(&again, topic, id), read_all(&origin, topic, id), "{topic}-{id}");
        }
    }
    settle_in_files(&origin);
    settle_in_files(&copy);
    for store in [origin, copy] {
        store.shutdown().unwrap();
    }
    let queues = |root: &Path| {
        let root = root.join("consumequeue");
        let name = |path: String| path.strip_prefix(root.to_str().unwrap()).unwrap().to_owned();
        contents(&root).into_iter().map(|(path, bytes)| (name(path), bytes)).collect::<Vec<_>>()
    };
    assert!(queues(dirs[0].path()) == queues(dirs[1].path()), "files of the queues");
}

#[test]
fn a_queue_that_could_not_be_removed_is_removed_before_anything_is_written_to_its_successor() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let origin = Store::open(small(dirs[0].path())).unwrap();
    let disk = FaultyDisk::default();
    let copy = Store::open_on(disk.clone(), small(dirs[1].path())).unwrap();
    for _ in 0..250 {
        origin.append(&record("t", 0, b"old")).unwrap();
    }
    copy_all(&origin, &copy, 1 << 20);
    settle_in_files(&copy);
    origin.delete_topic("t").unwrap();
    origin.append(&record("t", 0, b"new")).unwrap();
    let at = copy.max_physical_offset();
    let bytes = log_from(&origin, at.get());
    disk.faults.fail_next_folder_removal.store(true, std::sync::atomic::Ordering::SeqCst);
    let error = copy.append_replicated(at, &bytes).unwrap_err();
    assert!(matches!(error, ReplicateError::Store(_)) && error.may_have_been_applied(), "{error}");
    assert_eq!(copy.max_physical_offset(), at);
    copy.append_replicated(at, &bytes).unwrap();
    settle(&copy);
    assert_eq!(read_all(&copy, "t", 0), [b"new"]);
    copy.shutdown().unwrap();
    let copy = Store::open(small(dirs[1].path())).unwrap();
    assert!(!copy.recovery().rebuilt_queues);
    assert_eq!(read_all(&copy, "t", 0), [b"new"]);
}

#[test]
fn listeners_and_whoever_holds_a_pull_hear_of_copied_records() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let origin = Store::open(small(dirs[0].path())).unwrap();
    let copy = Store::open(small(dirs[1].path())).unwrap();
    let (told, heard) = listener();
    copy.add_listener(told);
    for number in 0..3 {
        origin.append(&record("t", 0, b"x")).unwrap();
        copy_all(&origin, &copy, 1000);
        copy.set_awaited("t", 0, true);
        let arrival = heard.arrivals.recv_timeout(PATIENCE).unwrap();
        assert_eq!((&*arrival.topic, arrival.next_offset.get()), ("t", number + 1));
    }
}

#[test]
fn a_store_without_a_key_index_is_copied_as_well() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let config = |dir: &tempfile::TempDir| StoreConfig { index: false, ..small(dir.path()) };
    let origin = Store::open(config(&dirs[0])).unwrap();
    let copy = Store::open(config(&dirs[1])).unwrap();
    fill(&origin, 5);
    copy_all(&origin, &copy, 5000);
    settle(&copy);
    copy.shutdown().unwrap();
    assert_queues_equal_log(&config(&dirs[1]));
}
