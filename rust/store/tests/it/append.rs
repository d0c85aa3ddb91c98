//! Appends: offsets, limits, batches, file roll, many writers.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rocketpy_env::now_ms;
use rocketpy_filter::MessageFilter;
use rocketpy_model::sys_flag;
use rocketpy_protocol::batch::BatchItem;
use rocketpy_protocol::record::records;
use rocketpy_store::{AppendError, FetchStatus, NewRecord, Store, StoreConfig};

use crate::faulty::FaultyDisk;
use crate::support::{
    ALL, PATIENCE, assert_queues_equal_log, eventually, killed_copy, listener, read_all, record, settle,
    small, views,
};

#[test]
fn appended_messages_are_read_back_in_order_and_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    let store = Store::open(config.clone()).unwrap();
    for number in 0..500u64 {
        let body = format!("message {number}");
        let appended = store.append(&record("orders", (number % 4) as u32, body.as_bytes())).unwrap();
        assert_eq!(appended.queue_offset.get(), number / 4);
    }
    settle(&store);
    let expected =
        |queue: u64| (0..125).map(|n| format!("message {}", n * 4 + queue).into_bytes()).collect::<Vec<_>>();
    for queue in 0..4 {
        assert_eq!(read_all(&store, "orders", queue as u32), expected(queue));
    }
    store.shutdown().unwrap();
    assert_queues_equal_log(&config);

    let store = Store::open(config).unwrap();
    assert!(store.recovery().clean_exit);
    for queue in 0..4 {
        assert_eq!(read_all(&store, "orders", queue as u32), expected(queue));
    }
    let appended = store.append(&record("orders", 2, b"next")).unwrap();
    assert_eq!(appended.queue_offset.get(), 125, "numbers go on");
}

#[test]
fn the_receipt_says_where_the_record_lies() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(small(dir.path())).unwrap();
    store.append(&record("t", 0, b"first")).unwrap();
    let appended = store.append(&record("t", 0, b"second")).unwrap();
    settle(&store);
    let bytes = store.record_at(appended.physical_offset).unwrap().unwrap();
    let view = records(&bytes).next().unwrap().unwrap();
    assert_eq!((view.body, view.queue_offset), (&b"second"[..], appended.queue_offset));
    assert_eq!((view.physical_offset, view.stored_at_ms), (appended.physical_offset, appended.stored_at_ms));
    assert_eq!(bytes.len() as u32, appended.size_bytes);
    assert_eq!(appended.end, store.max_physical_offset());
    assert!(appended.end <= store.flushed_offset());
    for nowhere in [appended.physical_offset.get() + 1, appended.end.get(), 1 << 40, u64::MAX] {
        assert_eq!(store.record_at(nowhere.into()).unwrap(), None);
    }
}

#[test]
fn no_message_is_stored_before_it_was_born_by_the_same_clock() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(small(dir.path())).unwrap();
    let until = Instant::now() + Duration::from_millis(100);
    while Instant::now() < until {
        let born_at_ms = now_ms();
        let appended = store.append(&NewRecord { born_at_ms, ..record("t", 0, b"x") }).unwrap();
        assert!(appended.stored_at_ms >= born_at_ms, "{} before {born_at_ms}", appended.stored_at_ms);
    }
}

#[test]
fn a_full_file_ends_with_a_blank_record_and_the_log_goes_on_in_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    let store = Store::open(config.clone()).unwrap();
    let body = vec![7; 10_000];
    let starts: Vec<u64> =
        (0..40).map(|_| store.append(&record("t", 0, &body)).unwrap().physical_offset.get()).collect();
    assert!(starts.windows(2).all(|pair| pair[0] < pair[1]));
    for start in &starts {
        assert!(start % (64 << 10) + 10_000 + 8 < 64 << 10, "no record passes the end of its file");
    }
    settle(&store);
    assert_eq!(read_all(&store, "t", 0), vec![body; 40]);
    store.shutdown().unwrap();
    assert_queues_equal_log(&config);
}

#[test]
fn what_is_too_long_is_refused_by_name_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(small(dir.path())).unwrap();
    let long = vec![0; 65_500];
    let body = store.append(&record("t", 0, &long)).unwrap_err();
    assert!(matches!(body, AppendError::LongerThanFile { file_bytes: 65_536, .. }), "{body}");
    assert!(body.hint().unwrap().contains("mappedFileSizeCommitLog"), "{body}");
    let properties = vec![b'x'; 32_760];
    let refused = store.append(&NewRecord { properties: &properties, ..record("t", 0, b"") }).unwrap_err();
    assert!(matches!(refused, AppendError::PropertiesTooLong { limit_bytes: 32_747, .. }), "{refused}");
    for topic in ["", "a/b", "..", "../../etc", "a\0b"] {
        let refused = store.append(&record(topic, 0, b"")).unwrap_err();
        assert!(matches!(refused, AppendError::BadTopic(_)), "{topic:?}: {refused}");
    }
    assert!(matches!(store.append(&record(&"a".repeat(128), 0, b"")), Err(AppendError::BadTopic(_))));
    assert_eq!(store.max_physical_offset().get(), 0);
    assert_eq!(store.queues(), []);
}

#[test]
fn long_retry_topics_get_the_wide_layout_and_are_recovered() {
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    let topic = format!("%RETRY%{}", "g".repeat(200));
    let store = Store::open(config.clone()).unwrap();
    store.append(&record(&topic, 0, b"again")).unwrap();
    store.shutdown().unwrap();
    assert_queues_equal_log(&config);
    let store = Store::open(config).unwrap();
    assert_eq!(read_all(&store, &topic, 0), [b"again"]);
}

fn batch(bodies: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for body in bodies {
        BatchItem { flag: 5, body, properties: b"KEYS\x01k" }.encode(&mut bytes).unwrap();
    }
    bytes
}

#[test]
fn a_batch_becomes_records_that_follow_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    let store = Store::open(config.clone()).unwrap();
    store.append(&record("t", 1, b"before")).unwrap();
    let body = batch(&[b"one", b"two", b"three"]);
    let appended = store.append_batch(&record("t", 1, &body)).unwrap();
    assert_eq!((appended.first_queue_offset.get(), appended.physical_offsets.len()), (1, 3));
    assert_eq!(store.append(&record("t", 1, b"after")).unwrap().queue_offset.get(), 4);
    settle(&store);
    let fetch = store.get("t", 1, 1, &ALL, &MessageFilter::All).unwrap();
    let read = views(&fetch);
    assert_eq!(
        read.iter().map(|view| view.body).collect::<Vec<_>>(),
        [&b"one"[..], b"two", b"three", b"after"]
    );
    assert_eq!(fetch.records.len(), 1, "neighbours in the log share one slice");
    for (view, at) in read.iter().zip(&appended.physical_offsets) {
        assert_eq!((view.physical_offset, view.flag), (*at, 5));
        assert_eq!(view.stored_at_ms, appended.stored_at_ms);
        assert_eq!(
            (view.keys(), view.tag()),
            (Some("k"), None),
            "an item has its own properties and no other"
        );
    }
    store.shutdown().unwrap();
    assert_queues_equal_log(&config);
}

#[test]
fn a_batch_that_does_not_fit_moves_to_the_next_file_as_a_whole() {
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    let store = Store::open(config.clone()).unwrap();
    let filler = vec![1; 30_000];
    store.append(&record("t", 0, &filler)).unwrap();
    store.append(&record("t", 0, &filler)).unwrap();
    let item = vec![2; 2000];
    let body = batch(&[&item, &item, &item]);
    let appended = store.append_batch(&record("t", 0, &body)).unwrap();
    assert_eq!(appended.physical_offsets[0].get(), 64 << 10);
    settle(&store);
    assert_eq!(read_all(&store, "t", 0).len(), 5);
    store.shutdown().unwrap();
    assert_queues_equal_log(&config);
}

#[test]
fn a_bad_batch_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(small(dir.path())).unwrap();
    let mut body = batch(&[b"one", b"two"]);
    body.truncate(body.len() - 1);
    assert!(matches!(store.append_batch(&record("t", 0, &body)), Err(AppendError::BadBatch { .. })));
    assert!(matches!(store.append_batch(&record("t", 0, b"")), Err(AppendError::BadBatch { .. })));
    assert_eq!(store.max_physical_offset().get(), 0);
    assert_eq!(store.append(&record("t", 0, b"x")).unwrap().queue_offset.get(), 0);
}

#[test]
fn half_messages_take_no_queue_offset() {
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    let store = Store::open(config.clone()).unwrap();
    for kind in [sys_flag::TRANSACTION_PREPARED, sys_flag::TRANSACTION_ROLLBACK, sys_flag::TRANSACTION_COMMIT]
    {
        let appended = store.append(&NewRecord { sys_flag: kind, ..record("t", 0, b"x") }).unwrap();
        assert_eq!(appended.queue_offset.get(), 0);
    }
    assert_eq!(store.append(&record("t", 0, b"y")).unwrap().queue_offset.get(), 1);
    settle(&store);
    let fetch = store.get("t", 0, 0, &ALL, &MessageFilter::All).unwrap();
    assert_eq!((fetch.status, fetch.count), (FetchStatus::Found, 2));
    store.shutdown().unwrap();
    assert_queues_equal_log(&config);
}

#[test]
fn many_writers_and_readers_see_every_message_once_in_order() {
    const WRITERS: u32 = 4;
    const EACH: u64 = 3000;
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    let store = Store::open(config.clone()).unwrap();
    let (told, heard) = listener();
    store.add_listener(told);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let store = &store;
            scope.spawn(move || {
                for number in 0..EACH {
                    let body = [writer.to_be_bytes().as_slice(), &number.to_be_bytes(), &[0; 60]].concat();
                    store.append(&record("t", (number % 3) as u32, &body)).unwrap();
                }
            });
        }
        for queue_id in 0..3 {
            let store = &store;
            scope.spawn(move || {
                let mut next = 0;
                let mut last = [None; WRITERS as usize];
                while next < u64::from(WRITERS) * EACH / 3 {
                    let fetch = store.get("t", queue_id, next as i64, &ALL, &MessageFilter::All).unwrap();
                    for view in views(&fetch) {
                        assert_eq!(view.queue_offset.get(), next);
                        let writer = u32::from_be_bytes(*view.body.first_chunk().unwrap()) as usize;
                        let number = u64::from_be_bytes(*view.body[4..].first_chunk().unwrap());
                        assert!(last[writer] < Some(number), "a writer's messages keep their order");
                        last[writer] = Some(number);
                        next += 1;
                    }
                }
            });
        }
    });
    settle(&store);
    let mut next = [0; 3];
    for arrival in heard.arrivals.try_iter() {
        let queue = &mut next[arrival.queue_id as usize];
        *queue += 1;
        assert_eq!(arrival.next_offset.get(), *queue, "arrivals come in order, each once");
    }
    assert_eq!(next.iter().sum::<u64>(), u64::from(WRITERS) * EACH);
    store.shutdown().unwrap();
    assert_queues_equal_log(&config);
}

#[test]
fn a_stop_does_not_wait_for_the_zeros_of_a_file_ahead() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let store = Store::open_on(disk.clone(), small(dir.path())).unwrap();
    let body = vec![7; 20_000];
    store.append(&record("t", 0, &body)).unwrap();
    disk.faults.endless_zeros.store(true, Ordering::SeqCst);
    store.append(&record("t", 0, &body)).unwrap();
    eventually("the next file is asked for", || disk.faults.zeros_begun.load(Ordering::SeqCst));
    let (stopped, heard) = std::sync::mpsc::channel();
    std::thread::spawn(move || stopped.send(store.shutdown().is_ok()));
    assert!(heard.recv_timeout(PATIENCE).expect("the stop comes to an end"));
    let store = Store::open(small(dir.path())).unwrap();
    assert_eq!(read_all(&store, "t", 0).len(), 2);
}

#[test]
fn a_log_file_that_takes_long_holds_up_those_who_need_it_and_nobody_else() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let config = StoreConfig { busy_timeout: PATIENCE, ..without_room(dir.path()) };
    let store = Store::open_on(disk.clone(), config.clone()).unwrap();
    fill_a_file(&store);
    disk.faults.endless_zeros.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| store.append(&record("t", 0, &LARGE)));
        eventually("the file is being made", || disk.faults.zeros_begun.load(Ordering::SeqCst));
        assert_eq!(store.append(&record("t", 0, b"it still fits")).unwrap().queue_offset.get(), 2);
        assert!(!waiting.is_finished());
        disk.faults.endless_zeros.store(false, Ordering::SeqCst);
        assert_eq!(waiting.join().unwrap().unwrap().queue_offset.get(), 3);
    });
    store.shutdown().unwrap();
    assert_queues_equal_log(&config);
}

#[test]
fn a_log_file_that_takes_too_long_refuses_those_who_need_it_until_it_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let timeout = Duration::from_millis(500);
    let config = StoreConfig { busy_timeout: timeout, ..without_room(dir.path()) };
    let store = Store::open_on(disk.clone(), config.clone()).unwrap();
    fill_a_file(&store);
    disk.faults.endless_zeros.store(true, Ordering::SeqCst);
    let mut waits = Vec::new();
    for _ in 0..20 {
        let started = Instant::now();
        let error = store.append(&record("t", 0, &LARGE)).unwrap_err();
        assert!(matches!(error, AppendError::Busy { waited, .. } if waited == timeout), "{error}");
        assert!(error.retryable() && error.hint().is_some());
        waits.push(started.elapsed());
    }
    assert!(waits[0] >= timeout, "the first did not wait");
    // On a machine that stalls some of the others may take as long, but hardly all of them.
    assert!(waits[1..].iter().any(|&wait| wait < timeout), "each waited anew");
    disk.faults.endless_zeros.store(false, Ordering::SeqCst);
    eventually("appends go on", || store.append(&record("t", 0, &LARGE)).is_ok());
    assert_eq!(store.append(&record("t", 0, b"x")).unwrap().queue_offset.get(), 3, "no number was lost");
    store.shutdown().unwrap();
    assert_queues_equal_log(&config);
}

/// The body of a record, two of which go into a file.
static LARGE: [u8; 30_000] = [1; 30_000];

/// A new file is made when an append needs it, not ahead.
fn without_room(root: &Path) -> StoreConfig {
    StoreConfig { allocate_ahead: false, ..small(root) }
}

fn fill_a_file(store: &Store<FaultyDisk>) {
    eventually("there is a log file", || store.append(&record("t", 0, &LARGE)).is_ok());
    assert_eq!(store.append(&record("t", 0, &LARGE)).unwrap().queue_offset.get(), 1);
}

#[test]
fn those_who_wait_for_a_log_file_are_sent_away_by_a_stop() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let store = Store::open_on(disk.clone(), small(dir.path())).unwrap();
    disk.faults.endless_zeros.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| store.append(&record("t", 0, b"x")).unwrap_err());
        eventually("the file is being made", || disk.faults.zeros_begun.load(Ordering::SeqCst));
        store.shutdown().unwrap();
        assert!(matches!(waiting.join().unwrap(), AppendError::ShutDown));
    });
}

#[test]
fn a_batch_of_many_small_items_is_refused_before_it_fills_the_memory() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(small(dir.path())).unwrap();
    let body = batch(&[b"".as_slice(); 1000]);
    match store.append_batch(&record("t", 0, &body)).unwrap_err() {
        AppendError::LongerThanFile { size_bytes, file_bytes } => {
            assert!(
                size_bytes < file_bytes as usize + 200,
                "{size_bytes}: it stops at the first item too many"
            );
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(store.append(&record("t", 0, b"x")).unwrap().queue_offset.get(), 0);
}

#[test]
fn only_the_log_file_limits_a_record_and_the_longest_is_recovered_and_read() {
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    let store = Store::open(config.clone()).unwrap();
    let around = store.append(&record("t", 0, b"")).unwrap().size_bytes as usize;
    let longest = vec![7; (64 << 10) - 8 - around]; // 8 bytes for the blank record that ends the file
    let refused = store.append(&record("t", 0, &[longest.as_slice(), b"x"].concat())).unwrap_err();
    assert!(matches!(refused, AppendError::LongerThanFile { size_bytes: 65_529, .. }), "{refused}");
    let items = batch(&[[0; 900].as_slice(); 70]);
    let refused = store.append_batch(&record("t", 0, &items)).unwrap_err();
    assert!(matches!(refused, AppendError::LongerThanFile { .. }) && !refused.retryable(), "{refused}");
    for _ in 0..2 {
        store.append(&record("t", 0, &longest)).unwrap();
    }
    settle(&store);
    let bodies = [&b""[..], &longest, &longest];
    assert_eq!(read_all(&store, "t", 0), bodies);

    let killed = tempfile::tempdir().unwrap();
    killed_copy(dir.path(), killed.path());
    let copy = StoreConfig { root: killed.path().to_path_buf(), ..config };
    let store = Store::open(copy.clone()).unwrap();
    let report = store.recovery();
    assert_eq!((report.clean_exit, report.truncated_bytes), (false, 0));
    assert_eq!(read_all(&store, "t", 0), bodies);
    store.shutdown().unwrap();
    assert_queues_equal_log(&copy);
}
