//! Reads: bounds, limits, filters, times.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rocketpy_filter::MessageFilter;
use rocketpy_model::QueueOffset;
use rocketpy_store::reader::{
    Missing, QueueRange, RangeOptions, ReadError, ScanOptions, SliceOptions, StoreReader,
};
use rocketpy_store::{
    Boundary, FetchStatus, FlushMode, NewRecord, ReadLimits, Store, StoreConfig, StoreError,
};

use crate::faulty::FaultyDisk;
use crate::support::{
    ALL, eventually, overwrite, quiet, record, settle, settle_in_files, small, views, while_repeated,
};

/// As [`ALL`], without copies.
const MAPPED: ReadLimits = ReadLimits { copies: false, ..ALL };

#[test]
fn offsets_outside_a_queue_get_the_status_of_the_table() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(small(dir.path())).unwrap();
    let status = |offset| {
        let fetch = store.get("t", 0, offset, &ALL, &MessageFilter::All).unwrap();
        (fetch.status, fetch.next_offset.get(), fetch.count)
    };
    assert_eq!(status(0), (FetchStatus::NoMessageInQueue, 0, 0), "a queue that does not exist");
    for _ in 0..3 {
        store.append(&record("t", 0, b"x")).unwrap();
    }
    settle(&store);
    assert_eq!(status(-1), (FetchStatus::OffsetTooSmall, 0, 0));
    assert_eq!(status(0), (FetchStatus::Found, 3, 3));
    assert_eq!(status(3), (FetchStatus::OffsetOverflowOne, 3, 0));
    assert_eq!(status(4), (FetchStatus::OffsetOverflowBadly, 3, 0));
    assert_eq!(status(i64::MAX), (FetchStatus::OffsetOverflowBadly, 3, 0));
    assert_eq!(store.queue_bounds("t", 9).max.get(), 0);
}

#[test]
fn a_read_stops_at_its_limits_but_gives_at_least_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(small(dir.path())).unwrap();
    let body = vec![1; 1000];
    let size = store.append(&record("t", 0, &body)).unwrap().size_bytes;
    for _ in 0..9 {
        store.append(&record("t", 0, &body)).unwrap();
    }
    settle(&store);
    let count = |max_messages, max_bytes| {
        let limits = ReadLimits { max_messages, max_bytes, copies: true };
        let fetch = store.get("t", 0, 0, &limits, &MessageFilter::All).unwrap();
        assert_eq!(fetch.next_offset.get(), u64::from(fetch.count));
        assert_eq!(fetch.size_bytes, fetch.records.iter().map(|bytes| bytes.len() as u64).sum::<u64>());
        fetch.count
    };
    assert_eq!(count(4, 1 << 20), 4);
    assert_eq!(count(100, u64::from(size) * 3), 3);
    assert_eq!(count(100, u64::from(size) * 3 - 1), 2);
    assert_eq!(count(100, 1), 1, "one message, whatever its size");
    assert_eq!(count(0, 0), 1);
}

#[test]
fn short_records_that_lie_apart_are_copied_together_where_that_is_allowed() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(small(dir.path())).unwrap();
    let long = vec![9; 3000];
    for number in 0..60u8 {
        for queue_id in 0..2 {
            let body = if number == 30 { long.as_slice() } else { &[number] };
            store.append(&record("t", queue_id, body)).unwrap();
        }
    }
    settle(&store);
    let read = |copies| {
        let limits = ReadLimits { copies, ..ALL };
        store.get("t", 1, 0, &limits, &MessageFilter::All).unwrap()
    };
    let (copied, mapped) = (read(true), read(false));
    assert_eq!(copied.records.concat(), mapped.records.concat());
    assert_eq!((mapped.records.len(), mapped.mapped_bytes as u64), (60, mapped.size_bytes));
    assert!((3000..3400).contains(&copied.mapped_bytes), "{} bytes are mapped", copied.mapped_bytes);
    assert!(copied.records.len() < 20, "{} parts", copied.records.len());
}

#[test]
fn a_read_ends_before_records_that_become_unreadable_while_they_are_copied() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let store = Store::open_on(disk.clone(), quiet(dir.path(), FlushMode::Async)).unwrap();
    for number in 0..3u8 {
        store.append(&record("t", 0, &[number])).unwrap();
        store.append(&record("t", 1, b"between")).unwrap();
    }
    settle(&store);
    let get_after = |checks| {
        disk.faults.log_checks_left.store(checks, Ordering::SeqCst);
        store.get("t", 0, 0, &ALL, &MessageFilter::All)
    };
    // Two checks when a record is added, one more when it was copied, before the next one is added.
    for checks in 0..5 {
        assert!(matches!(get_after(checks), Err(StoreError::DamagedLog { .. })), "{checks} checks");
    }
    for (checks, count) in [(5, 1), (6, 1), (7, 1), (8, 2), (9, 3)] {
        let fetch = get_after(checks).unwrap();
        assert_eq!((fetch.count, fetch.next_offset.get()), (count, u64::from(count)), "{checks} checks");
        assert_eq!(fetch.size_bytes as usize, fetch.records.concat().len());
        let bodies: Vec<_> = views(&fetch).iter().map(|view| view.body[0]).collect();
        assert_eq!(bodies, (0..count as u8).collect::<Vec<_>>());
    }
}

#[test]
fn a_tag_filter_passes_over_the_rest_and_says_where_to_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(small(dir.path())).unwrap();
    for number in 0..90u8 {
        let properties = format!("TAGS\x01{}\x02", ["a", "b", "c"][usize::from(number % 3)]);
        store.append(&NewRecord { properties: properties.as_bytes(), ..record("t", 0, &[number]) }).unwrap();
    }
    settle(&store);
    let fetch = store.get("t", 0, 0, &ALL, &MessageFilter::tag_codes("a || c")).unwrap();
    let numbers: Vec<u8> = views(&fetch).iter().map(|view| view.body[0]).collect();
    assert_eq!(numbers, (0..90).filter(|number| number % 3 != 1).collect::<Vec<u8>>());
    let none = store.get("t", 0, 10, &ALL, &MessageFilter::tag_codes("z")).unwrap();
    assert_eq!((none.status, none.next_offset.get(), none.count), (FetchStatus::NoMatchedMessage, 90, 0));
}

#[test]
fn a_filter_that_has_had_much_to_do_ends_the_read_and_says_where_to_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(small(dir.path())).unwrap();
    let properties = format!("a\x01{}\x02", "x".repeat(8000));
    for number in 0..100u8 {
        store.append(&NewRecord { properties: properties.as_bytes(), ..record("t", 0, &[number]) }).unwrap();
    }
    settle(&store);
    let names: Vec<String> = (0..64).map(|number| format!("n{number} = 'y'")).collect();
    let filter = MessageFilter::sql(&names.join(" OR ")).unwrap();
    let (mut next, mut reads) = (0, 0);
    while next < 100 {
        let fetch = store.get("t", 0, next, &ALL, &filter).unwrap();
        assert_eq!((fetch.status, fetch.count), (FetchStatus::NoMatchedMessage, 0));
        assert!(fetch.next_offset.to_wire() > next);
        (next, reads) = (fetch.next_offset.to_wire(), reads + 1);
    }
    assert_eq!(reads, 34, "64 names, each looked for and read in 8 KB");
}

#[test]
fn tags_whose_hashes_are_equal_are_told_apart_by_their_records_when_the_filter_asks_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(small(dir.path())).unwrap();
    for tag in ["Aa", "BB", "Aa", "b", "BB"] {
        let properties = format!("TAGS\x01{tag}\x02");
        store.append(&NewRecord { properties: properties.as_bytes(), ..record("t", 0, b"x") }).unwrap();
    }
    settle(&store);
    let offsets = |filter| {
        let fetch = store.get("t", 0, 0, &ALL, &filter).unwrap();
        assert_eq!((fetch.status, fetch.next_offset.get()), (FetchStatus::Found, 5));
        views(&fetch).iter().map(|view| view.queue_offset.get()).collect::<Vec<_>>()
    };
    assert_eq!(offsets(MessageFilter::tag_codes("Aa")), [0, 1, 2, 4]);
    assert_eq!(offsets(MessageFilter::tags("Aa")), [0, 2]);
    assert_eq!(offsets(MessageFilter::All), [0, 1, 2, 3, 4]);
}

#[test]
fn entries_are_read_without_their_records_across_files_and_from_memory() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(small(dir.path())).unwrap();
    let appended: Vec<_> = (0..250).map(|_| store.append(&record("t", 0, b"x")).unwrap()).collect();
    settle(&store);
    let entries = store.entries("t", 0, QueueOffset(7), 1000).unwrap();
    assert_eq!(entries.len(), 243, "files have 100 entries each");
    for (entry, appended) in entries.iter().zip(&appended[7..]) {
        assert_eq!(entry.queue_offset, appended.queue_offset);
        assert_eq!(
            (entry.physical_offset, entry.size_bytes),
            (appended.physical_offset, appended.size_bytes)
        );
        assert_eq!(entry.tags_code, rocketpy_filter::tag_code("TagA"));
    }
    let few = store.entries("t", 0, QueueOffset(99), 2).unwrap();
    assert_eq!(few.iter().map(|entry| entry.queue_offset.get()).collect::<Vec<_>>(), [99, 100]);
    assert_eq!(store.entries("t", 0, QueueOffset(250), 10).unwrap(), [], "the end of the queue");
    assert_eq!(store.entries("t", 1, QueueOffset::ZERO, 10).unwrap(), [], "a queue that is not there");
}

#[test]
fn neighbours_in_the_log_come_as_one_slice_and_others_apart() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(small(dir.path())).unwrap();
    for queue_id in [0, 0, 0, 1, 0, 0] {
        store.append(&record("t", queue_id, b"x")).unwrap();
    }
    settle(&store);
    let fetch = store.get("t", 0, 0, &MAPPED, &MessageFilter::All).unwrap();
    let lengths: Vec<_> =
        fetch.records.iter().map(|bytes| rocketpy_protocol::record::records(bytes).count()).collect();
    assert_eq!(lengths, [3, 2]);
}

#[test]
fn slices_outlive_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(small(dir.path())).unwrap();
    store.append(&record("t", 0, b"kept")).unwrap();
    settle(&store);
    let fetch = store.get("t", 0, 0, &MAPPED, &MessageFilter::All).unwrap();
    drop(store);
    drop(dir);
    assert_eq!(views(&fetch)[0].body, b"kept");
}

#[test]
fn offsets_are_found_by_time_both_ways() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let store = Store::open_on(disk.clone(), small(dir.path())).unwrap();
    // Times 1000, 1010, 1010, 1010, 1020, ... over several consume queue files.
    let times: Vec<i64> =
        [1000, 1010, 1010, 1010].into_iter().chain((102..400).map(|time| time * 10)).collect();
    for time in &times {
        disk.set_clock(*time);
        store.append(&record("t", 0, b"x")).unwrap();
    }
    settle(&store);
    let max = times.len() as u64;
    let offset = |time, boundary| store.offset_by_time("t", 0, time, boundary).unwrap().get();
    for time in (990..1100).chain(3900..4020) {
        let lower = times.iter().position(|&stored| stored >= time).map_or(max, |index| index as u64);
        let upper = times.iter().rposition(|&stored| stored <= time).map_or(0, |index| index as u64);
        assert_eq!(offset(time, Boundary::Lower), lower, "lower {time}");
        assert_eq!(offset(time, Boundary::Upper), upper, "upper {time}");
    }
    assert_eq!(store.earliest_stored_at("t", 0).unwrap(), Some(1000));
    assert_eq!(store.stored_at("t", 0, QueueOffset(4)).unwrap(), Some(1020));
    assert_eq!(store.stored_at("t", 0, QueueOffset(max)).unwrap(), None);
    assert_eq!(store.earliest_stored_at("nothing", 0).unwrap(), None);
    assert_eq!(store.offset_by_time("nothing", 0, 5, Boundary::Lower).unwrap().get(), 0);
}

#[test]
fn the_offline_reader_reads_a_live_store() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(small(dir.path())).unwrap();
    for number in 0..1000u32 {
        store.append(&record("t", number % 2, &number.to_be_bytes())).unwrap();
    }
    settle_in_files(&store);
    let reader = StoreReader::open(dir.path()).unwrap();
    let ranges = reader.ranges("t", &RangeOptions::default()).unwrap();
    assert_eq!(ranges.iter().map(|range| range.end.get()).collect::<Vec<_>>(), [500, 500]);
    let mut scan = reader.scan(&ranges, ScanOptions { verify: true, ..ScanOptions::default() }).unwrap();
    let mut numbers = Vec::new();
    while scan.advance().unwrap() {
        for (_, bytes) in scan.block().iter() {
            let view = rocketpy_protocol::record::RecordView::parse(bytes).unwrap();
            numbers.push(u32::from_be_bytes(*view.body.first_chunk().unwrap()));
        }
    }
    assert_eq!(numbers, (0..1000).collect::<Vec<_>>(), "in the order of the log");
}

#[test]
fn the_offline_reader_sees_what_comes_into_a_store_that_is_never_quiet() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(quiet(dir.path(), FlushMode::Async)).unwrap();
    // So slow that what comes calls for no checkpoint, which would write all entries.
    let keep_busy = || {
        store.append(&record("busy", 0, b"x")).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    };
    while_repeated(keep_busy, || {
        store.append(&record("t", 0, b"one")).unwrap();
        let reader = StoreReader::open(dir.path()).unwrap();
        eventually("the message is in the file of its queue", || {
            let ranges = reader.ranges("t", &RangeOptions::default());
            // The folder of a queue is there before its first file.
            ranges.is_ok_and(|ranges| ranges.first().is_some_and(|range| range.end.get() == 1))
        });
    });
}

#[test]
fn the_offline_reader_is_told_where_a_log_is_that_lies_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let (root, log) = (dir.path().join("store"), dir.path().join("log"));
    let store = Store::open(StoreConfig { commit_log_dir: Some(log.clone()), ..small(&root) }).unwrap();
    store.append(&record("t", 0, b"elsewhere")).unwrap();
    settle_in_files(&store);
    let error = StoreReader::open(&root).unwrap_err();
    assert!(matches!(error, ReadError::LogElsewhere { .. }), "{error}");
    for (root, log) in [(&root, dir.path().join("missing")), (&dir.path().join("missing"), log.clone())] {
        let error = StoreReader::open_with_log(root, log).unwrap_err();
        assert!(
            matches!(error, ReadError::NotAStore { .. }) && error.to_string().contains("missing"),
            "{error}"
        );
    }
    let reader = StoreReader::open_with_log(&root, &log).unwrap();
    let ranges = reader.ranges("t", &RangeOptions::default()).unwrap();
    let mut scan = reader.scan(&ranges, ScanOptions { verify: true, ..ScanOptions::default() }).unwrap();
    assert!(scan.advance().unwrap());
    assert_eq!(scan.block().iter().count(), 1);
}

#[test]
fn what_a_damaged_entry_or_a_made_up_range_says_takes_no_memory_and_ends_no_process() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(small(dir.path())).unwrap();
    for _ in 0..10 {
        store.append(&record("t", 0, b"x")).unwrap();
    }
    drop(store);
    let queue = dir.path().join("consumequeue/t/0").join(format!("{:020}", 0));
    overwrite(&queue, 3 * 20 + 8, &50_000u32.to_be_bytes());
    let reader = StoreReader::open(dir.path()).unwrap();
    let ranges = reader.ranges("t", &RangeOptions::default()).unwrap();
    let options = ScanOptions { block_bytes: 1000, missing: Missing::Skip, ..ScanOptions::default() };
    let mut scan = reader.scan(&ranges, options.clone()).unwrap();
    let mut found = 0;
    while scan.advance().unwrap() {
        assert!(scan.block().bytes.len() < 50_000, "no more than the block");
        found += scan.block().records.len();
    }
    assert_eq!((found, scan.take_missing().len()), (9, 1));

    let (start, end) = (QueueOffset(u64::MAX - 10), QueueOffset(u64::MAX));
    let beyond = [QueueRange { start, end, estimated_bytes: 1 << 30, ..ranges[0].clone() }];
    let _ = reader.slices(&beyond, SliceOptions { target_bytes: 1 << 20, min_slices: 4 });
    assert!(!reader.scan(&beyond, options).unwrap().advance().unwrap());

    let whole = |estimated_bytes| QueueRange { estimated_bytes, ..ranges[0].clone() };
    let everywhere = QueueRange { start: QueueOffset(0), end, ..whole(u64::MAX) };
    let inverted = QueueRange { start: end, end: QueueOffset(0), ..whole(u64::MAX) };
    let made_up = [whole(u64::MAX), everywhere, inverted, whole(u64::MAX)];
    let slices = reader.slices(&made_up, SliceOptions { target_bytes: 1, min_slices: u64::MAX }).unwrap();
    assert!(slices.len() <= 10, "one for each message at most");
    let covered = |start: QueueOffset| slices.iter().flatten().filter(|range| range.start == start).count();
    assert_eq!(covered(QueueOffset(0)), 3, "each range is there, but the one that is none");
}

#[test]
fn the_records_before_an_entry_that_is_none_are_given() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(small(dir.path())).unwrap();
    for number in 0..20u8 {
        store.append(&record("t", 0, &[number])).unwrap();
    }
    settle_in_files(&store);
    let queue = dir.path().join("consumequeue/t/0").join(format!("{:020}", 0));
    overwrite(&queue, 10 * 20, &[0; 20]);
    let fetch = store.get("t", 0, 3, &ALL, &MessageFilter::All).unwrap();
    assert_eq!((fetch.status, fetch.count, fetch.next_offset.get()), (FetchStatus::Found, 7, 10));
    let error = store.get("t", 0, 10, &ALL, &MessageFilter::All).unwrap_err();
    assert!(error.to_string().contains("entry 10 of t-0"), "{error}");
    assert_eq!(store.get("t", 0, 11, &ALL, &MessageFilter::All).unwrap().count, 9);
}
