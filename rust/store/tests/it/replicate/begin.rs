//! A slave that begins where its master's copy begins.

use std::path::Path;

use rocketpy_env::{Disk as _, RealDisk};
use rocketpy_model::PhysicalOffset;
use rocketpy_store::reader::StoreReader;
use rocketpy_store::{Store, StoreConfig, StoreError};
use rocketpy_tools as tools;

use super::{copy_all, fill, log_from};
use crate::support::{is_there, killed_copy, read_all, record, settle, small};

const BEGIN: u64 = 2 * (64 << 10);

fn beginning(root: &Path) -> StoreConfig {
    StoreConfig { begin_at: Some(PhysicalOffset(BEGIN)), ..small(root) }
}

/// What the store knows of its log.
fn places(store: &Store) -> [u64; 4] {
    let (min, max) = (store.min_physical_offset(), store.max_physical_offset());
    [min, max, store.flushed_offset(), store.dispatched_offset()].map(PhysicalOffset::get)
}

/// Checks a copy from [`BEGIN`] on against its origin.
fn assert_copied(origin: &Store, copy: &Store) {
    settle(copy);
    assert_eq!(copy.min_physical_offset().get(), BEGIN);
    assert!(log_from(origin, BEGIN) == log_from(copy, BEGIN), "the logs differ");
    for queue in copy.queues() {
        let (topic, id) = (&queue.topic, queue.queue_id);
        let bounds = origin.queue_bounds(topic, id);
        assert_eq!(queue.bounds.max, bounds.max, "{topic}-{id}");
        let (all, copied) = (read_all(origin, topic, id), read_all(copy, topic, id));
        assert!(!copied.is_empty() && copied.len() as u64 == queue.bounds.max - queue.bounds.min);
        assert!(all.ends_with(&copied), "{topic}-{id}");
        assert_eq!(copy.next_queue_offset(topic, id), origin.next_queue_offset(topic, id));
    }
    assert_eq!(copy.queues().len(), origin.queues().len());
}

#[test]
fn an_empty_store_begins_where_it_is_told_and_keeps_to_it() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let origin = Store::open(small(dirs[0].path())).unwrap();
    fill(&origin, 60);
    settle(&origin);
    let copy = Store::open(beginning(dirs[1].path())).unwrap();
    assert_eq!(places(&copy), [BEGIN; 4]);
    assert_eq!(copy.log_slice(BEGIN.into(), 10).unwrap().as_deref(), Some(&b""[..]));
    copy_all(&origin, &copy, 3000);
    assert_copied(&origin, &copy);
    killed_copy(dirs[1].path(), dirs[2].path());
    copy.shutdown().unwrap();
    drop(copy);
    fill(&origin, 10);
    settle(&origin);
    for root in [dirs[1].path(), dirs[2].path()] {
        assert!(!is_there(&root.join("commitlog").join(format!("{:020}", 0))));
        for begin_at in [None, Some(PhysicalOffset(64 << 10))] {
            let copy = Store::open(StoreConfig { begin_at, ..small(root) }).unwrap();
            copy_all(&origin, &copy, 3000); // it has a log: what it is told does not count
            assert_copied(&origin, &copy);
        }
    }
}

#[test]
fn a_store_that_ends_before_its_first_record_begins_again_at_the_same_place() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let origin = Store::open(small(dirs[0].path())).unwrap();
    fill(&origin, 60);
    settle(&origin);
    let copy = Store::open(beginning(dirs[1].path())).unwrap();
    killed_copy(dirs[1].path(), dirs[2].path());
    copy.shutdown().unwrap();
    drop(copy);
    for root in [dirs[1].path(), dirs[2].path()] {
        for (begin_at, expected) in [
            (None, BEGIN),
            (Some(BEGIN), BEGIN),
            (Some(0), 0),
            (Some(64 << 10), 64 << 10),
            (Some(BEGIN), BEGIN),
        ] {
            let config = StoreConfig { begin_at: begin_at.map(PhysicalOffset), ..small(root) };
            let copy = Store::open(config.clone()).unwrap();
            assert_eq!(places(&copy), [expected; 4], "{begin_at:?}");
            let killed = tempfile::tempdir().unwrap();
            killed_copy(root, killed.path());
            let killed = Store::open(StoreConfig { begin_at: None, ..small(killed.path()) }).unwrap();
            assert_eq!(places(&killed), [expected; 4], "{begin_at:?}");
        }
        let copy = Store::open(small(root)).unwrap();
        copy_all(&origin, &copy, 3000);
        assert_copied(&origin, &copy);
    }
}

#[test]
fn a_first_file_without_a_record_is_used() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let origin = Store::open(small(dirs[0].path())).unwrap();
    fill(&origin, 60);
    settle(&origin);
    let store = Store::open(beginning(dirs[1].path())).unwrap();
    for size_bytes in [0, 4096, 64 << 10] {
        let killed = tempfile::tempdir().unwrap();
        killed_copy(dirs[1].path(), killed.path());
        let file = killed.path().join("commitlog").join(format!("{BEGIN:020}"));
        RealDisk.create_dir_all(file.parent().unwrap()).unwrap();
        RealDisk.replace(&file, &vec![0; size_bytes]).unwrap();
        let copy = Store::open(beginning(killed.path())).unwrap();
        assert_eq!(places(&copy), [BEGIN; 4], "{size_bytes}");
        copy_all(&origin, &copy, 3000);
        assert_copied(&origin, &copy);
    }
    drop(store);
}

#[test]
fn a_store_whose_log_is_gone_is_refused_and_not_begun_anew() {
    let dir = tempfile::tempdir().unwrap();
    for config in [small(dir.path()), beginning(dir.path())] {
        let store = Store::open(config.clone()).unwrap();
        store.append(&record("t", 0, b"x")).unwrap();
        store.shutdown().unwrap();
        drop(store);
        RealDisk.remove_dir_all(&dir.path().join("commitlog")).unwrap();
        for config in [config, beginning(dir.path())] {
            let error = Store::open(config).unwrap_err();
            assert!(matches!(error, StoreError::MissingFile { .. }), "{error}");
        }
        RealDisk.remove_dir_all(dir.path()).unwrap();
    }
}

#[test]
fn tools_find_a_store_sound_that_begins_elsewhere() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let origin = Store::open(small(dirs[0].path())).unwrap();
    fill(&origin, 60);
    let verify = |what: &str| {
        let reader = StoreReader::open(dirs[1].path()).unwrap();
        let report = tools::verify(&reader, &mut |_| true).unwrap();
        assert!(report.is_sound(), "{what}: {:#?}", report.problems);
    };
    let copy = Store::open(beginning(dirs[1].path())).unwrap();
    verify("open and empty");
    copy.shutdown().unwrap();
    drop(copy);
    verify("closed and empty");
    let copy = Store::open(beginning(dirs[1].path())).unwrap();
    copy_all(&origin, &copy, 3000);
    settle(&copy);
    copy.shutdown().unwrap();
    verify("closed");
}

#[test]
fn a_beginning_that_is_no_start_of_a_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for begin_at in [1, BEGIN + 4096, u64::MAX, 1 << 63] {
        let config = StoreConfig { begin_at: Some(PhysicalOffset(begin_at)), ..small(dir.path()) };
        let error = Store::open(config).unwrap_err();
        assert!(matches!(error, StoreError::BadConfig { field: "begin_at", .. }), "{error}");
    }
}
