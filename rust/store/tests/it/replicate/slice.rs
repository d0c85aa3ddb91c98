//! What a master gives away of its log, and how it waits for more.

use std::time::Duration;

use rocketpy_env::{Disk as _, DiskFile as _, OpenMode, RealDisk};
use rocketpy_store::{FlushMode, Store, StoreError};

use super::{fill, log_from};
use crate::support::{PATIENCE, quiet, record, retire_first_log_file, small};

#[test]
fn a_slice_ends_with_its_file_and_with_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(small(dir.path())).unwrap();
    let slice = |from: u64, most| store.log_slice(from.into(), most).unwrap();
    assert_eq!((slice(0, 10).as_deref(), slice(1, 10)), (Some(&b""[..]), None), "the log is empty");
    fill(&store, 30);
    let end = store.max_physical_offset().get();
    let file_end = 64 << 10;
    assert!(end > 2 * file_end);
    assert_eq!(slice(100, 1 << 30).unwrap().len() as u64, file_end - 100);
    assert_eq!(slice(file_end, usize::MAX).unwrap().len() as u64, file_end);
    assert_eq!(slice(file_end - 1, 10).unwrap().len(), 1);
    assert_eq!(slice(200, 70).unwrap(), slice(100, 170).unwrap()[100..]);
    assert_eq!(slice(100, 0).as_deref(), Some(&b""[..]));
    assert_eq!(
        (slice(end, 10).as_deref(), slice(end - 5, 10).map(|rest| rest.len())),
        (Some(&b""[..]), Some(5))
    );
    for outside in [end + 1, 1 << 40, u64::MAX] {
        assert_eq!(slice(outside, 10), None);
    }
    assert_eq!(log_from(&store, 0).len() as u64, end);
}

#[test]
fn a_slice_before_the_start_of_the_log_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    let store = Store::open(config.clone()).unwrap();
    fill(&store, 30);
    store.shutdown().unwrap();
    drop(store);
    retire_first_log_file(&config);
    let store = Store::open(config).unwrap();
    assert_eq!(store.log_slice(100.into(), 10).unwrap(), None);
    assert_eq!(store.log_slice((64 << 10).into(), 10).unwrap().unwrap().len(), 10);
}

#[test]
fn under_synchronous_flush_a_slice_does_not_wait_for_the_flush() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(quiet(dir.path(), FlushMode::Sync)).unwrap();
    let appended = store.append(&record("t", 0, b"x")).unwrap();
    assert_eq!(store.flushed_offset().get(), 0);
    let slice = store.log_slice(0.into(), 1000).unwrap().unwrap();
    assert_eq!(slice.len() as u32, appended.size_bytes);
}

#[test]
fn what_cannot_be_read_is_an_error_and_not_zeros() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(small(dir.path())).unwrap();
    fill(&store, 30);
    let file = dir.path().join("commitlog").join(format!("{:020}", 0));
    RealDisk.open_file(&file, OpenMode::Write).unwrap().set_len(8192).unwrap();
    assert_eq!(store.log_slice(4096.into(), 4096).unwrap().unwrap().len(), 4096);
    let error = store.log_slice(4096.into(), 5000).unwrap_err();
    let StoreError::DamagedLog { path, physical_offset, .. } = error else { panic!("{error}") };
    assert_eq!((path, physical_offset.get()), (file, 8192));
}

#[test]
fn several_threads_wait_for_an_append_and_all_go_on_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(quiet(dir.path(), FlushMode::Sync)).unwrap();
    for _ in 0..50 {
        let before = store.max_physical_offset();
        let ends: Vec<_> = std::thread::scope(|scope| {
            let wait = || scope.spawn(|| store.wait_for_append(before, PATIENCE));
            let waiting = [wait(), wait(), wait()];
            store.append(&record("t", 0, b"x")).unwrap();
            waiting.map(|thread| thread.join().unwrap()).into()
        });
        assert_eq!(ends, [store.max_physical_offset(); 3]);
    }
    let end = store.max_physical_offset();
    assert_eq!(store.wait_for_append(end, Duration::ZERO), end);
}

#[test]
fn a_wait_ends_when_it_is_told_to_and_when_the_store_closes() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(small(dir.path())).unwrap();
    let end = store.append(&record("t", 0, b"x")).unwrap().end;
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| store.wait_for_append(end, Duration::MAX));
        while !waiting.is_finished() {
            store.wake_waiting(); // again: the thread may not have begun to wait
            std::thread::yield_now();
        }
        assert_eq!(waiting.join().unwrap(), end);
        let waiting = scope.spawn(|| store.wait_for_append(end, Duration::MAX));
        store.shutdown().unwrap();
        assert_eq!(waiting.join().unwrap(), end);
    });
    assert_eq!(store.wait_for_append(end, Duration::MAX), end);
}
