//! Flushes: who waits for whom, and what happens after the first that fails.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use rocketpy_env::{Disk as _, RealDisk};
use rocketpy_filter::MessageFilter;
use rocketpy_model::PhysicalOffset;
use rocketpy_store::{
    AppendError, Arrival, FetchStatus, FlushError, FlushMode, Store, StoreConfig, StoreError, StoreListener,
};

use crate::faulty::FaultyDisk;
use crate::support::{
    ALL, PATIENCE, assert_queues_equal_log, eventually, listener, quiet, read_all, record, settle,
};

#[test]
fn all_who_arrive_during_a_flush_share_the_next_one() {
    const WRITERS: u64 = 8;
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let store = Store::open_on(disk.clone(), quiet(dir.path(), FlushMode::Sync)).unwrap();
    let append_and_wait = || {
        let appended = store.append(&record("t", 0, b"x")).unwrap();
        store.wait_flushed(appended.end, PATIENCE).unwrap();
        assert!(store.flushed_offset() >= appended.end);
    };
    append_and_wait();
    let before = disk.faults.log_flushes.load(Ordering::SeqCst);
    disk.shut_gate();
    std::thread::scope(|scope| {
        scope.spawn(append_and_wait);
        eventually("the first flush has started", || disk.held_back() == 1);
        for _ in 0..WRITERS {
            scope.spawn(append_and_wait);
        }
        eventually("all have appended", || store.next_queue_offset("t", 0).get() == WRITERS + 2);
        disk.open_gate();
    });
    let flushes = disk.faults.log_flushes.load(Ordering::SeqCst) - before;
    assert_eq!(flushes, 2, "one for the first, one for all the others");
}

#[test]
fn nobody_is_left_waiting_when_all_wait_for_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(quiet(dir.path(), FlushMode::Sync)).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let appended = store.append(&record("t", 0, b"x")).unwrap();
                    store.wait_flushed(appended.end, PATIENCE).unwrap(); // a time-out: somebody was forgotten
                }
            });
        }
    });
    assert_eq!(store.next_queue_offset("t", 0).get(), 3200);
}

#[test]
fn under_sync_flush_nobody_reads_what_is_not_durable() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open_on(FaultyDisk::default(), quiet(dir.path(), FlushMode::Sync)).unwrap();
    let appended = store.append(&record("t", 0, b"x")).unwrap();
    assert_eq!(store.record_at(appended.physical_offset).unwrap(), None);
    let fetch = store.get("t", 0, 0, &ALL, &MessageFilter::All).unwrap();
    assert_eq!(fetch.status, FetchStatus::NoMessageInQueue);
    settle(&store);
    assert_eq!(read_all(&store, "t", 0), [b"x"]);
    assert!(store.record_at(appended.physical_offset).unwrap().is_some());
}

#[test]
fn the_flush_thread_serves_those_who_ask_and_tells_the_listener() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(quiet(dir.path(), FlushMode::Sync)).unwrap();
    let (told, heard) = listener();
    store.add_listener(told);
    let appended = store.append(&record("t", 0, b"x")).unwrap();
    store.request_flush(appended.end);
    let flushed = heard.flushed.recv_timeout(PATIENCE).unwrap();
    assert!(flushed >= appended.end.get());
    let arrival = heard.arrivals.recv_timeout(PATIENCE).unwrap();
    assert_eq!((&*arrival.topic, arrival.queue_id, arrival.next_offset.get()), ("t", 0, 1));
    assert_eq!((arrival.tags_code, arrival.stored_at_ms), (2_598_919, appended.stored_at_ms));
}

#[test]
fn several_listen_and_a_store_that_is_shut_down_lets_go_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(quiet(dir.path(), FlushMode::Sync)).unwrap();
    let ((first, first_heard), (second, second_heard)) = (listener(), listener());
    store.add_listener(first.clone());
    store.add_listener(second.clone());
    let appended = store.append(&record("t", 0, b"x")).unwrap();
    store.wait_flushed(appended.end, PATIENCE).unwrap();
    for heard in [&first_heard, &second_heard] {
        assert!(heard.flushed.recv_timeout(PATIENCE).unwrap() >= appended.end.get());
        assert_eq!(heard.arrivals.recv_timeout(PATIENCE).unwrap().next_offset.get(), 1);
    }
    store.shutdown().unwrap();
    assert_eq!((Arc::strong_count(&first), Arc::strong_count(&second)), (1, 1));
}

#[test]
fn async_flush_comes_by_itself_at_every_interval() {
    let dir = tempfile::tempdir().unwrap();
    let config =
        StoreConfig { flush_interval: Duration::from_millis(5), ..quiet(dir.path(), FlushMode::Async) };
    let store = Store::open(config).unwrap();
    for _ in 0..3 {
        let appended = store.append(&record("t", 0, b"x")).unwrap();
        eventually("the flush has covered it", || store.flushed_offset() >= appended.end);
    }
}

#[test]
fn few_dirty_pages_are_let_pass_at_an_interval() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let every = |least, root| StoreConfig {
        flush_interval: Duration::from_millis(1),
        flush_least_pages: least,
        flush_thorough_interval: Duration::from_secs(3600),
        ..quiet(root, FlushMode::Async)
    };
    let store = Store::open(every(4, dir.path())).unwrap();
    let clock = Store::open(every(0, other.path())).unwrap();
    store.append(&record("t", 0, b"x")).unwrap();
    for _ in 0..30 {
        let appended = clock.append(&record("t", 0, b"x")).unwrap();
        eventually("an interval is over", || clock.flushed_offset() >= appended.end);
    }
    assert_eq!(store.flushed_offset(), PhysicalOffset(0), "one page does not count");
    let appended = store.append(&record("t", 0, &vec![0; 20_000])).unwrap();
    eventually("five pages count", || store.flushed_offset() >= appended.end);
}

#[test]
fn the_thorough_flush_takes_what_the_others_let_pass() {
    let dir = tempfile::tempdir().unwrap();
    let config = StoreConfig {
        flush_interval: Duration::from_millis(1),
        flush_least_pages: 1000,
        flush_thorough_interval: Duration::from_millis(20),
        ..quiet(dir.path(), FlushMode::Async)
    };
    let store = Store::open(config).unwrap();
    let appended = store.append(&record("t", 0, b"x")).unwrap();
    eventually("it is flushed", || store.flushed_offset() >= appended.end);
}

#[test]
fn a_wait_ends_with_its_time_and_the_record_may_be_stored() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let store = Store::open_on(disk.clone(), quiet(dir.path(), FlushMode::Sync)).unwrap();
    let first = store.append(&record("t", 0, b"x")).unwrap();
    disk.shut_gate();
    std::thread::scope(|scope| {
        scope.spawn(|| store.wait_flushed(first.end, PATIENCE).unwrap());
        eventually("a flush has started", || disk.held_back() == 1);
        assert_eq!(store.queue_bounds("t", 0).max.get(), 0, "what is not durable cannot be read");
        assert_eq!(store.next_queue_offset("t", 0).get(), 1);
        let error = store.wait_flushed(first.end, Duration::from_millis(10)).unwrap_err();
        assert!(matches!(error, FlushError::TimedOut { end, .. } if end == first.end), "{error}");
        disk.open_gate();
    });
    store.wait_flushed(first.end, PATIENCE).unwrap();
    let beyond = first.end + 1;
    assert!(matches!(store.wait_flushed(beyond, PATIENCE), Err(FlushError::PastEnd { .. })));
}

#[test]
fn appends_wait_for_the_disk_when_too_much_is_not_flushed() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let config = StoreConfig {
        max_unflushed_bytes: 4000,
        flush_step_bytes: 500,
        busy_timeout: Duration::from_millis(500),
        ..quiet(dir.path(), FlushMode::Async)
    };
    let store = Store::open_on(disk.clone(), config.clone()).unwrap();
    let (told, heard) = listener();
    store.add_listener(told);
    disk.shut_gate();
    let mut ends = Vec::new();
    eventually("there is a log file", || match store.append(&record("t", 0, &[0; 1000])) {
        Ok(appended) => {
            ends.push(appended.end.get());
            true
        }
        Err(error) => {
            assert!(matches!(error, AppendError::Busy { .. }), "{error}");
            false
        }
    });
    let error = loop {
        match store.append(&record("t", 0, &[0; 1000])) {
            Ok(appended) => ends.push(appended.end.get()),
            Err(error) => break error,
        }
    };
    assert_eq!(ends.len(), 4, "the next finds more than 4000 bytes");
    assert!(matches!(error, AppendError::Behind { limit_bytes: 4000, .. }), "{error}");
    assert!(error.retryable() && error.hint().is_some());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| store.append(&record("t", 0, b"it waited")));
        eventually("the flush has begun", || disk.held_back() == 1);
        disk.open_gate();
        eventually("there is room", || store.append(&record("t", 0, b"x")).is_ok());
        drop(waiting.join().unwrap()); // it may have waited too long before the gate was opened
    });
    let end = store.max_physical_offset();
    store.wait_flushed(end, PATIENCE).unwrap();
    let flushed: Vec<_> = heard.flushed.try_iter().collect();
    assert!(flushed.starts_with(&ends), "in steps, each up to the end of a record: {flushed:?}");
    store.shutdown().unwrap();
    assert_queues_equal_log(&config);
}

#[test]
fn the_first_failed_flush_poisons_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let config = quiet(dir.path(), FlushMode::Sync);
    let store = Store::open_on(disk.clone(), config.clone()).unwrap();
    let (told, heard) = listener();
    store.add_listener(told);
    let durable = store.append(&record("t", 0, b"durable")).unwrap();
    store.wait_flushed(durable.end, PATIENCE).unwrap();
    settle(&store);

    let lost = store.append(&record("t", 0, b"lost")).unwrap();
    disk.faults.fail_next_log_flush.store(true, Ordering::SeqCst);
    let flushes = |disk: &FaultyDisk| disk.faults.log_flushes.load(Ordering::SeqCst);
    for _ in 0..3 {
        // On Linux the second flush of the same pages succeeds although they are gone: it must not be tried.
        assert!(matches!(store.wait_flushed(lost.end, PATIENCE), Err(FlushError::Poisoned { .. })));
    }
    let tried = flushes(&disk);
    assert!(matches!(store.append(&record("t", 0, b"y")), Err(AppendError::Poisoned { .. })));
    assert!(matches!(store.poisoned(), Some(StoreError::Poisoned { .. })));
    assert!(store.flushed_offset() < lost.end);
    let told = heard.poisoned.recv_timeout(PATIENCE).unwrap();
    assert!(told.contains("a flush failed"), "{told}");
    assert_eq!(heard.poisoned.try_iter().count(), 0, "told once");
    assert_eq!(read_all(&store, "t", 0), [b"durable"], "reads go on");
    assert!(matches!(store.shutdown(), Err(StoreError::Poisoned { .. })));
    assert_eq!(flushes(&disk), tried, "no flush after the failed one");
    drop(store);

    let store = Store::open(config.clone()).unwrap();
    assert!(!store.recovery().clean_exit, "a poisoned store is recovered at the next start");
    assert_eq!(read_all(&store, "t", 0)[0], b"durable");
    store.shutdown().unwrap();
    assert_queues_equal_log(&config);
}

#[test]
fn a_failed_flush_of_a_consume_queue_poisons_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let config =
        StoreConfig { checkpoint_interval: Duration::from_millis(5), ..quiet(dir.path(), FlushMode::Async) };
    let store = Store::open_on(disk.clone(), config).unwrap();
    let (told, heard) = listener();
    store.add_listener(told);
    let checkpoint = || RealDisk.read(&dir.path().join("checkpoint"), 1 << 20).unwrap();
    let before = checkpoint();
    disk.faults.fail_next_file_flush.store(true, Ordering::SeqCst);
    store.append(&record("t", 0, b"x")).unwrap();
    heard.poisoned.recv_timeout(PATIENCE).unwrap();
    assert!(matches!(store.append(&record("t", 0, b"y")), Err(AppendError::Poisoned { .. })));
    // It is not closed as if nothing were: what was not flushed is not claimed, and the next start looks.
    assert!(matches!(store.shutdown(), Err(StoreError::Poisoned { .. })));
    assert_eq!(checkpoint(), before);
    assert!(RealDisk.read(&dir.path().join("abort"), 1 << 20).is_ok());
}

#[test]
fn a_flush_reaches_over_the_end_of_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(quiet(dir.path(), FlushMode::Async)).unwrap();
    let body = vec![0; 30_000];
    for _ in 0..7 {
        store.append(&record("t", 0, &body)).unwrap();
    }
    assert_eq!(store.flushed_offset(), PhysicalOffset(0));
    let end = store.max_physical_offset();
    assert!(end.get() > 3 * (64 << 10));
    store.wait_flushed(end, PATIENCE).unwrap();
    assert_eq!(store.flushed_offset(), end);
}

#[test]
fn a_folder_that_cannot_be_opened_is_no_failed_flush() {
    for queues in [1, 40] {
        let dir = tempfile::tempdir().unwrap();
        let disk = FaultyDisk::default();
        let config = StoreConfig {
            checkpoint_interval: Duration::from_millis(1),
            ..quiet(dir.path(), FlushMode::Async)
        };
        let store = Store::open_on(disk.clone(), config.clone()).unwrap();
        disk.faults.no_handle_for_folders.store(true, Ordering::SeqCst);
        for queue_id in 0..queues {
            store.append(&record("t", queue_id, b"x")).unwrap();
        }
        settle(&store);
        let tried = disk.faults.refused_folders.load(Ordering::SeqCst);
        eventually("the queues were to be flushed twice", || {
            disk.faults.refused_folders.load(Ordering::SeqCst) >= tried + 2
        });
        assert!(store.poisoned().is_none(), "nothing was tried, nothing is lost");
        store.append(&record("t", 0, b"y")).unwrap();
        disk.faults.no_handle_for_folders.store(false, Ordering::SeqCst);
        store.shutdown().unwrap();
        drop(store);
        let store = Store::open(config).unwrap();
        assert!(store.recovery().clean_exit && !store.recovery().rebuilt_queues);
        assert_eq!(read_all(&store, "t", 0), [b"x", b"y"]);
    }
}

/// A listener that panics.
struct Panics {
    at_flush: bool,
}

impl StoreListener for Panics {
    fn flushed(&self, _offset: PhysicalOffset) {
        assert!(!self.at_flush, "a listener's fault");
    }

    fn arrived(&self, _arrivals: &[Arrival]) {
        assert!(self.at_flush, "a listener's fault");
    }
}

#[test]
fn a_panic_on_a_thread_of_the_store_refuses_what_follows_and_nobody_waits_for_ever() {
    for (mode, at_flush) in [
        (FlushMode::Async, false),
        (FlushMode::Async, true),
        (FlushMode::Sync, false),
        (FlushMode::Sync, true),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(quiet(dir.path(), mode)).unwrap();
        store.add_listener(Arc::new(Panics { at_flush }));
        let end = store.append(&record("t", 0, b"x")).unwrap().end;
        if at_flush || mode == FlushMode::Sync {
            store.request_flush(end);
        }
        eventually("the store knows", || store.poisoned().is_some());
        if !at_flush {
            eventually("nobody goes round in circles", || store.dispatched_offset() >= end);
        }
        assert!(matches!(store.append(&record("t", 0, b"y")), Err(AppendError::Poisoned { .. })));
        let _ = store.wait_flushed(end, PATIENCE);
        assert!(matches!(store.wait_flushed(end + 1, PATIENCE), Err(FlushError::Poisoned { .. })));
        let closed = store.shutdown();
        let is_told =
            matches!(&closed, Err(StoreError::AssertionFailed { text }) if **text == *"a listener's fault");
        assert!(is_told, "{closed:?}");
    }
}

/// Passes on which thread makes records readable.
struct Threads(Sender<String>);

impl StoreListener for Threads {
    fn arrived(&self, _arrivals: &[Arrival]) {
        let _ = self.0.send(std::thread::current().name().unwrap_or_default().to_owned());
    }
}

#[test]
fn the_flush_thread_dispatches_what_it_made_durable_under_synchronous_flush_alone() {
    for (mode, expected) in [(FlushMode::Sync, true), (FlushMode::Async, false)] {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(quiet(dir.path(), mode)).unwrap();
        let (threads, heard) = channel();
        store.add_listener(Arc::new(Threads(threads)));
        let mut of_flush = 0;
        for _ in 0..50 {
            store.request_flush(store.append(&record("t", 0, b"x")).unwrap().end);
            let thread = heard.recv_timeout(PATIENCE).unwrap();
            of_flush += usize::from(thread == "rocketpy-flush");
        }
        assert_eq!(of_flush > 25, expected, "{of_flush} of 50 in {mode:?}");
        assert_eq!(read_all(&store, "t", 0).len(), 50);
        store.shutdown().unwrap();
    }
}

#[test]
fn pages_that_cannot_be_written_ahead_poison_as_a_failed_flush_does() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let store = Store::open_on(disk.clone(), quiet(dir.path(), FlushMode::Sync)).unwrap();
    disk.faults.fail_next_write_ahead.store(true, Ordering::SeqCst);
    store.append(&record("t", 0, b"x")).unwrap();
    eventually("the store knows", || store.poisoned().is_some());
    let end = store.max_physical_offset();
    assert!(matches!(store.append(&record("t", 0, b"y")), Err(AppendError::Poisoned { .. })));
    assert!(matches!(store.wait_flushed(end + 1, PATIENCE), Err(FlushError::Poisoned { .. })));
    assert!(store.shutdown().is_err());
}

#[test]
fn a_failed_flush_of_the_log_folder_poisons_and_is_not_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let store = Store::open_on(disk.clone(), quiet(dir.path(), FlushMode::Async)).unwrap();
    disk.faults.fail_next_folder_flush.store(true, Ordering::SeqCst);
    store.append(&record("t", 0, b"x")).unwrap_err();
    assert!(matches!(store.append(&record("t", 0, b"x")), Err(AppendError::Poisoned { .. })));
    assert!(store.poisoned().is_some());
    assert_eq!(RealDisk.list(&dir.path().join("commitlog")).unwrap(), [], "no second try");
    assert!(store.shutdown().is_err());
}
