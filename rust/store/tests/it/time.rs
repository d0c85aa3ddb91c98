//! Offsets by time, where times repeat and where messages are gone.

use std::time::Duration;

use rocketpy_filter::MessageFilter;
use rocketpy_model::QueueOffset;
use rocketpy_store::{Boundary, DeleteHours, FetchStatus, RetentionConfig, Store, StoreConfig};

use crate::faulty::FaultyDisk;
use crate::support::{ALL, record, settle, small};

/// What a look-up must give, by looking at every message. `times` are those of all messages that there ever were.
fn expected(times: &[i64], living: u64, time: i64, boundary: Boundary) -> u64 {
    let numbered = || (0..).zip(times).skip(living as usize);
    match boundary {
        Boundary::Lower => numbered().find(|(_, stored)| **stored >= time).map(|(number, _)| number),
        Boundary::Upper => numbered().filter(|(_, stored)| **stored <= time).last().map(|(number, _)| number),
    }
    .unwrap_or(if boundary == Boundary::Lower { times.len() as u64 } else { living })
}

fn assert_found(store: &Store<FaultyDisk>, times: &[i64], living: u64) {
    let (first, last) = (times[0], times[times.len() - 1]);
    for time in [i64::MIN, 0, i64::MAX].into_iter().chain(first - 3..last + 3) {
        for boundary in [Boundary::Lower, Boundary::Upper] {
            let found = store.offset_by_time("t", 0, time, boundary).unwrap().get();
            assert_eq!(found, expected(times, living, time, boundary), "{boundary:?} {time}");
        }
    }
}

/// Appends a message of each time.
fn append(store: &Store<FaultyDisk>, disk: &FaultyDisk, times: &[i64]) {
    for time in times {
        disk.set_clock(*time);
        store.append(&record("t", 0, &[b'x'; 900])).unwrap();
    }
    settle(store);
}

#[test]
fn many_messages_of_one_time_are_one_step() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let store = Store::open_on(disk.clone(), small(dir.path())).unwrap();
    // Each time fills more than a consume queue file of 100 entries, or ends with one, or is alone.
    let counts = [1, 99, 100, 250, 1, 1, 148, 3];
    let times: Vec<i64> =
        (0..).zip(counts).flat_map(|(step, count)| std::iter::repeat_n(50_000 + step * 4, count)).collect();
    append(&store, &disk, &times);
    assert_found(&store, &times, 0);
}

#[test]
fn what_is_gone_is_not_found_while_files_go_after_it_and_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let retention = RetentionConfig {
        max_bytes: Some(2 * (64 << 10)),
        delete_hours: DeleteHours::default(),
        first_after: Duration::from_secs(3600),
        ..RetentionConfig::default()
    };
    let config = StoreConfig { retention, allocate_ahead: false, ..small(dir.path()) };
    let store = Store::open_on(disk.clone(), config.clone()).unwrap();
    let times: Vec<i64> = (0..500).map(|number| 70_000 + number / 3 * 2).collect();
    append(&store, &disk, &times);
    assert_found(&store, &times, 0);
    // The round ends after two files of the log: the minimum does not know of them yet.
    disk.faults.removals_left.store(2, std::sync::atomic::Ordering::SeqCst);
    assert!(store.clean().is_err());
    assert_eq!(store.queue_bounds("t", 0).min, QueueOffset(0));
    let living =
        (0..500).find(|number| store.stored_at("t", 0, QueueOffset(*number)).unwrap().is_some()).unwrap();
    assert!(living > 100, "{living}");
    let lower = |time| store.offset_by_time("t", 0, time, Boundary::Lower).unwrap().get();
    assert_eq!(
        lower(times[living as usize + 30]),
        expected(&times, living, times[living as usize + 30], Boundary::Lower)
    );
    assert!((0..=living).contains(&lower(0)));
    let removed = store.get("t", 0, 0, &ALL, &MessageFilter::All).unwrap();
    assert_eq!((removed.status, removed.count), (FetchStatus::MessageWasRemoving, 0));
    let mut next = removed.next_offset.get() as i64;
    while store.get("t", 0, next, &ALL, &MessageFilter::All).unwrap().count == 0 {
        next = store.get("t", 0, next, &ALL, &MessageFilter::All).unwrap().next_offset.get() as i64;
    }
    assert!(next as u64 <= living, "a reader gets to the first message that is left");
    disk.faults.removals_left.store(u64::MAX, std::sync::atomic::Ordering::SeqCst);
    store.clean().unwrap();
    let living = store.queue_bounds("t", 0).min.get();
    assert!(living > 250);
    assert_found(&store, &times, living);
    assert_eq!(store.earliest_stored_at("t", 0).unwrap(), Some(times[living as usize]));
    store.shutdown().unwrap();
    drop(store);
    assert_found(&Store::open_on(disk, config).unwrap(), &times, living);
}
