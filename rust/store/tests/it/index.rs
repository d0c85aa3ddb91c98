//! Messages are found by their keys, beside appends and without a server.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rocketpy_env::{Disk, RealDisk};
use rocketpy_model::sys_flag;
use rocketpy_protocol::batch::BatchItem;
use rocketpy_protocol::record::{RecordView, records};
use rocketpy_store::reader::{KeyQuery, KeyedRecord, ReadError, StoreReader};
use rocketpy_store::{KeyKind, NewRecord, QueryResult, ReadLimits, Store, StoreConfig};

use crate::faulty::FaultyDisk;
use crate::index_oracle::{assert_index_equals_log, key_hash, paths};
use crate::support::{ALL, PATIENCE, assert_queues_equal_log, eventually, record, settle, small};

pub(crate) const FIRST_MS: i64 = 1_700_000_000_123;
const ALWAYS: (i64, i64) = (0, i64::MAX);

pub(crate) fn keyed<'a>(body: &'a [u8], properties: &'a [u8]) -> NewRecord<'a> {
    NewRecord { properties, ..record("t", 0, body) }
}

pub(crate) fn properties(number: u32) -> Vec<u8> {
    let (order, customer) = (number, number % 7);
    format!("KEYS\x01order-{order} customer-{customer}\x02UNIQ_KEY\x01U{number:08}\x02").into_bytes()
}

pub(crate) fn append_numbers<D: Disk>(store: &Store<D>, numbers: std::ops::Range<u32>) {
    for number in numbers {
        store.append(&keyed(&number.to_be_bytes(), &properties(number))).unwrap();
    }
}

fn bodies(result: &QueryResult) -> Vec<Vec<u8>> {
    result.records.iter().map(|bytes| RecordView::parse(bytes).unwrap().body.to_vec()).collect()
}

pub(crate) fn numbers(result: &QueryResult) -> Vec<u32> {
    bodies(result).iter().map(|body| u32::from_be_bytes(*body.first_chunk().unwrap())).collect()
}

pub(crate) fn find<D: Disk>(store: &Store<D>, key: &str) -> QueryResult {
    store.query_by_key("t", key, KeyKind::Any, &ALL, ALWAYS.0, ALWAYS.1).unwrap()
}

fn find_between<D: Disk>(store: &Store<D>, key: &str, begin_ms: i64, end_ms: i64) -> Vec<u32> {
    numbers(&store.query_by_key("t", key, KeyKind::Any, &ALL, begin_ms, end_ms).unwrap())
}

pub(crate) fn closed_store(config: &StoreConfig, count: u32) {
    let store = Store::open(config.clone()).unwrap();
    append_numbers(&store, 0..count);
    store.shutdown().unwrap();
    assert_eq!(assert_index_equals_log(config), count as usize * 3);
}

/// Opens the store, looks for a few messages, appends one more, closes it, and compares the index with the log.
pub(crate) fn assert_whole(config: &StoreConfig, count: u32, rebuilt: bool) {
    let store = Store::open(config.clone()).unwrap();
    assert_eq!(store.recovery().rebuilt_index, rebuilt);
    for number in [0, 1, count / 2, count - 1] {
        assert_eq!(numbers(&find(&store, &format!("order-{number}"))), [number]);
    }
    append_numbers(&store, count..count + 1);
    store.shutdown().unwrap();
    assert_queues_equal_log(config);
}

#[test]
fn a_message_is_found_by_each_of_its_keys_by_its_unique_key_and_by_its_tag() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(small(dir.path())).unwrap();
    store.append(&keyed(b"tagged", b"TAGS\x01TagA\x02KEYS\x01a b\x02UNIQ_KEY\x01one\x02")).unwrap();
    store.append(&keyed(b"tag-less", b"KEYS\x01b  c \x02UNIQ_KEY\x01two\x02")).unwrap();
    store.append(&keyed(b"without", b"")).unwrap();
    store.append(&NewRecord { topic: "other", ..keyed(b"other", b"KEYS\x01a\x02") }).unwrap();
    settle(&store);
    let by = |key: &str, kind| {
        let found = store.query_by_key("t", key, kind, &ALL, ALWAYS.0, ALWAYS.1).unwrap();
        bodies(&found).iter().map(|body| String::from_utf8_lossy(body).into_owned()).collect::<Vec<_>>()
    };
    assert_eq!(by("a", KeyKind::Any), ["tagged"], "not that of the other topic");
    assert_eq!(by("b", KeyKind::Any), ["tagged", "tag-less"], "in the order of the log");
    assert_eq!(by("c", KeyKind::Any), ["tag-less"]);
    assert_eq!(by("two", KeyKind::Any), ["tag-less"]);
    assert_eq!(by("two", KeyKind::Unique), ["tag-less"]);
    assert_eq!(by("b", KeyKind::Unique), Vec::<String>::new());
    assert_eq!(by("TagA", KeyKind::Tag), ["tagged"]);
    assert_eq!(by("TagA", KeyKind::Any), Vec::<String>::new());
    assert_eq!(
        by("T#TagA", KeyKind::Any),
        Vec::<String>::new(),
        "the text under which a tag stands is no key"
    );
    assert_eq!(by("", KeyKind::Any), Vec::<String>::new());
    assert_eq!(by("a b", KeyKind::Any), Vec::<String>::new());
    let found = find(&store, "nothing");
    assert_eq!(found.last_physical_offset.get(), record_start(&store, "other"));
    assert!(found.last_stored_at_ms > 0);
}

fn record_start(store: &Store, topic: &str) -> u64 {
    let fetch = store.get(topic, 0, 0, &ALL, &rocketpy_filter::MessageFilter::All).unwrap();
    records(&fetch.records[0]).next().unwrap().unwrap().physical_offset.get()
}

#[test]
fn keys_with_the_same_hash_do_not_find_each_other() {
    assert_eq!(key_hash("t#Aa"), key_hash("t#BB"));
    let dir = tempfile::tempdir().unwrap();
    let config = StoreConfig { index_slots: 1, ..small(dir.path()) };
    let store = Store::open(config.clone()).unwrap();
    for (body, keys) in [(b"1", "Aa"), (b"2", "BB"), (b"3", "Aa"), (b"4", "c")] {
        store.append(&keyed(body, format!("KEYS\x01{keys}\x02").as_bytes())).unwrap();
    }
    settle(&store);
    assert_eq!(bodies(&find(&store, "Aa")), [b"1", b"3"]);
    assert_eq!(bodies(&find(&store, "BB")), [b"2"]);
    assert_eq!(bodies(&find(&store, "c")), [b"4"], "all share the one slot");
    let newest = ReadLimits { max_messages: 1, ..ALL };
    let found = store.query_by_key("t", "Aa", KeyKind::Any, &newest, ALWAYS.0, ALWAYS.1).unwrap();
    assert_eq!(bodies(&found), [b"3"], "a record of another key does not count");
    store.append(&NewRecord { topic: "Aa", ..keyed(b"5", b"KEYS\x01k\x02") }).unwrap();
    store.append(&NewRecord { topic: "BB", ..keyed(b"6", b"KEYS\x01k\x02") }).unwrap();
    settle(&store);
    let found = store.query_by_key("Aa", "k", KeyKind::Any, &ALL, ALWAYS.0, ALWAYS.1).unwrap();
    assert_eq!(bodies(&found), [b"5"], "nor do keys of topics with the same hash");
    store.shutdown().unwrap();
    assert_queues_equal_log(&config);
}

#[test]
fn items_of_a_batch_are_found_by_their_own_keys() {
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    let store = Store::open(config.clone()).unwrap();
    let texts: Vec<_> = (0..3).map(properties).collect();
    let items: Vec<_> = texts
        .iter()
        .zip([b"0", b"1", b"2"])
        .map(|(properties, body)| BatchItem { flag: 0, body, properties })
        .collect();
    let mut body = Vec::new();
    for item in &items {
        item.encode(&mut body).unwrap();
    }
    store.append_batch(&NewRecord { body: &body, properties: b"", ..record("t", 0, b"") }).unwrap();
    append_numbers(&store, 3..4);
    settle(&store);
    assert_eq!(bodies(&find(&store, "U00000001")), [b"1"]);
    assert_eq!(bodies(&find(&store, "order-2")), [b"2"]);
    assert_eq!(numbers(&find(&store, "order-3")), [3]);
    store.shutdown().unwrap();
    assert_eq!(assert_index_equals_log(&config), 12);
}

#[test]
fn half_messages_are_found_and_those_that_roll_back_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    let store = Store::open(config.clone()).unwrap();
    for (sys_flag, body) in [
        (sys_flag::TRANSACTION_PREPARED, b"half"),
        (sys_flag::TRANSACTION_ROLLBACK, b"back"),
        (sys_flag::TRANSACTION_COMMIT, b"done"),
    ] {
        store.append(&NewRecord { sys_flag, ..keyed(body, b"KEYS\x01k\x02") }).unwrap();
    }
    settle(&store);
    assert_eq!(bodies(&find(&store, "k")), [b"half", b"done"]);
    store.shutdown().unwrap();
    assert_eq!(assert_index_equals_log(&config), 2);
}

#[test]
fn records_of_a_place_are_found_though_the_clock_was_set_back_before_they_were_stored() {
    const HOUR_MS: i64 = 3_600_000;
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let config = small(dir.path());
    let store = Store::open_on(disk.clone(), config.clone()).unwrap();
    let ahead_ms = FIRST_MS + 24 * HOUR_MS;
    let mut places = Vec::new();
    for number in 0..400_u32 {
        disk.set_clock(if number < 200 { ahead_ms } else { FIRST_MS } + i64::from(number));
        let record = store.append(&keyed(&number.to_be_bytes(), b"UNIQ_KEY\x01same\x02")).unwrap();
        places.push(record.physical_offset);
        append_numbers(&store, number..number + 1);
    }
    settle(&store);
    assert!(paths(&config).len() >= 4, "some files are older than the place");
    let since = |begin_ms, from: usize| {
        numbers(&store.query_since("t", "same", &ALL, begin_ms, places[from]).unwrap())
    };
    assert_eq!(since(ahead_ms - HOUR_MS, 199), (0..400).collect::<Vec<_>>(), "in time, or from the place on");
    assert_eq!(since(i64::MAX, 199), (199..400).collect::<Vec<_>>());
    assert_eq!(since(i64::MAX, 399), [399]);
    store.shutdown().unwrap();
}

#[test]
fn only_records_of_the_time_that_is_asked_for_are_found_and_the_newest_of_too_many() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let config = small(dir.path());
    let store = Store::open_on(disk.clone(), config.clone()).unwrap();
    for number in 0..400 {
        disk.set_clock(FIRST_MS + i64::from(number) * 700);
        append_numbers(&store, number..number + 1);
    }
    settle(&store);
    assert!(paths(&config).len() >= 4, "time ranges pass over files");
    let at = |number: i64| FIRST_MS + number * 700;
    let customer = |from: u32, to: u32| (from..to).filter(|number| number % 7 == 3).collect::<Vec<_>>();
    assert_eq!(find_between(&store, "customer-3", 0, i64::MAX), customer(0, 400));
    for (from, to) in [(0, 1), (3, 4), (99, 102), (3, 395), (200, 200), (101, 310), (395, 396), (0, 400)] {
        let expected = customer(from as u32, to as u32);
        assert_eq!(find_between(&store, "customer-3", at(from), at(to) - 1), expected, "{from} to {to}");
        assert_eq!(find_between(&store, "customer-3", at(from), at(to - 1)), expected, "both ends count");
    }
    assert_eq!(find_between(&store, "order-0", i64::MIN, at(0) - 1), [0; 0]);
    assert_eq!(find_between(&store, "order-3", at(3), at(3)), [3]);
    assert_eq!(
        find_between(&store, "order-3", at(3) + 1, i64::MAX),
        [0; 0],
        "an entry knows its time to a second only"
    );
    assert_eq!(find_between(&store, "order-3", 0, at(3) - 1), [0; 0]);
    let limits = ReadLimits { max_messages: 3, ..ALL };
    let found = store.query_by_key("t", "customer-3", KeyKind::Any, &limits, 0, at(300)).unwrap();
    assert_eq!(numbers(&found), [283, 290, 297], "the newest three, the oldest first");
    let limits = ReadLimits { max_bytes: found.records[0].len() as u64 * 2, ..ALL };
    let found = store.query_by_key("t", "customer-3", KeyKind::Any, &limits, 0, at(300)).unwrap();
    assert_eq!(numbers(&found), [290, 297]);
    let limits = ReadLimits { max_bytes: 0, ..ALL };
    let found = store.query_by_key("t", "order-5", KeyKind::Any, &limits, 0, i64::MAX).unwrap();
    assert_eq!(numbers(&found), [5], "one is given whatever its length");
}

#[test]
fn a_full_file_is_followed_by_the_next_and_a_record_may_lie_in_both() {
    let dir = tempfile::tempdir().unwrap();
    let config = StoreConfig { index_entries: 8, ..small(dir.path()) };
    closed_store(&config, 500);
    assert_eq!(paths(&config).len(), 1500_usize.div_ceil(7));
    let names: Vec<_> = paths(&config);
    assert!(names.is_sorted() && names.iter().all(|name| name.file_name().unwrap().len() == 17));
    for round in 0..3 {
        assert_whole(&config, 500 + round, false);
    }
    // A record with more keys than two files have room for.
    let store = Store::open(config.clone()).unwrap();
    let many: Vec<_> = (0..20).map(|number| format!("many-{number}")).collect();
    store.append(&keyed(b"many", format!("KEYS\x01{}\x02", many.join(" ")).as_bytes())).unwrap();
    settle(&store);
    for key in &many {
        assert_eq!(bodies(&find(&store, key)), [b"many"]);
    }
    drop(store);
    assert_queues_equal_log(&config);
}

#[test]
fn files_have_the_size_and_the_places_of_the_format() {
    let dir = tempfile::tempdir().unwrap();
    let config =
        StoreConfig { commit_log_file_size: 1 << 20, busy_timeout: PATIENCE, ..StoreConfig::new(dir.path()) };
    let store = Store::open(config.clone()).unwrap();
    store.append(&NewRecord { topic: "topicA", ..keyed(b"x", b"KEYS\x01key1\x02") }).unwrap();
    store.append(&NewRecord { topic: "topicA", ..keyed(b"y", b"KEYS\x01key1\x02") }).unwrap();
    settle(&store);
    let second = store.query_by_key("topicA", "key1", KeyKind::Any, &ALL, 0, i64::MAX).unwrap();
    assert_eq!(second.records.len(), 2);
    store.shutdown().unwrap();
    let [path] = &paths(&config)[..] else { panic!("one file") };
    use rocketpy_env::{DiskFile as _, OpenMode};
    let file = RealDisk.open_file(path, OpenMode::Read).unwrap();
    assert_eq!(file.len().unwrap(), 420_000_040);
    let read = |at, length| {
        let mut bytes = vec![0; length];
        file.read_exact_at(at, &mut bytes).unwrap();
        bytes
    };
    assert_eq!(
        read(4_041_884, 4),
        [0, 0, 0, 2],
        "docs/reference/store-format.md 15.3: the slot of topicA#key1"
    );
    assert_eq!(read(20_000_060, 4), [0x3d, 0x27, 0xad, 0x5d]);
    assert_eq!(read(20_000_080, 20)[..4], [0x3d, 0x27, 0xad, 0x5d]);
    assert_eq!(read(20_000_080 + 16, 4), [0, 0, 0, 1]);
    assert_eq!(read(32, 8), [0, 0, 0, 1, 0, 0, 0, 3]);
    // Nothing but what was written takes space.
    assert!(file.next_data(30_000_000).unwrap().is_none());
}

#[test]
fn a_disk_without_space_stops_appends_and_loses_no_key() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let config = StoreConfig { index_entries: 10, ..small(dir.path()) };
    let store = Store::open_on(disk.clone(), config.clone()).unwrap();
    append_numbers(&store, 0..20);
    settle(&store);
    let mut count = 20;
    for _ in 0..5 {
        disk.faults.no_space_for_files.store(true, Ordering::SeqCst);
        eventually("appends are refused", || {
            let body = u32::to_be_bytes(count);
            let refused = store.append(&keyed(&body, &properties(count))).is_err();
            count += u32::from(!refused);
            refused
        });
        assert_eq!(numbers(&find(&store, "order-3")), [3], "what was found is found");
        disk.faults.no_space_for_files.store(false, Ordering::SeqCst);
        eventually("appends go on", || {
            let body = u32::to_be_bytes(count);
            store.append(&keyed(&body, &properties(count))).is_ok()
        });
        count += 1;
        settle(&store);
        assert_eq!(numbers(&find(&store, &format!("order-{}", count - 1))), [count - 1]);
    }
    store.shutdown().unwrap();
    assert_eq!(assert_index_equals_log(&config), count as usize * 3);
}

#[test]
fn a_failed_flush_of_an_index_file_poisons() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let config = StoreConfig { checkpoint_interval: Duration::from_secs(3600), ..small(dir.path()) };
    let store = Store::open_on(disk.clone(), config).unwrap();
    append_numbers(&store, 0..20);
    settle(&store);
    disk.faults.fail_next_file_flush.store(true, Ordering::SeqCst); // the index is flushed first
    store.shutdown().unwrap_err();
    assert!(store.poisoned().is_some());
    drop(store);
    let config = small(dir.path());
    assert_whole(&config, 20, false);
}

#[test]
fn queries_beside_appends_find_what_is_dispatched() {
    let dir = tempfile::tempdir().unwrap();
    let config = StoreConfig { index_entries: 50, ..small(dir.path()) };
    let store = Store::open(config.clone()).unwrap();
    std::thread::scope(|scope| {
        let appending = scope.spawn(|| append_numbers(&store, 0..3000));
        let mut known = 0;
        while !appending.is_finished() {
            let end = store.dispatched_offset();
            let newest = find(&store, "customer-0");
            if let Some(last) = numbers(&newest).last() {
                assert!(*last >= known, "what was found once is found");
                known = *last;
            }
            assert!(
                newest.last_physical_offset <= store.max_physical_offset()
                    && end <= store.max_physical_offset()
            );
        }
    });
    settle(&store);
    for number in (0..3000).step_by(97) {
        assert_eq!(numbers(&find(&store, &format!("order-{number}"))), [number]);
    }
    store.shutdown().unwrap();
    assert_queues_equal_log(&config);
}

#[test]
fn the_offline_reader_finds_the_same_beside_a_store_that_is_open_and_without_one() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let config = small(dir.path());
    let store = Store::open_on(disk.clone(), config.clone()).unwrap();
    for number in 0..300 {
        disk.set_clock(FIRST_MS + i64::from(number) * 700);
        append_numbers(&store, number..number + 1);
    }
    settle(&store);
    let reader = StoreReader::open(dir.path()).unwrap();
    let offline = |key: &str, query: &KeyQuery| {
        let found = reader.query("t", key, query).unwrap();
        let number = |record: &KeyedRecord| {
            let view = RecordView::parse(&record.bytes).unwrap();
            assert_eq!(view.physical_offset, record.physical_offset);
            u32::from_be_bytes(*view.body.first_chunk().unwrap())
        };
        found.iter().map(number).collect::<Vec<_>>()
    };
    let all = KeyQuery::default();
    eventually("slots are written", || offline("order-299", &all) == [299]);
    let check = || {
        for key in ["order-0", "order-150", "customer-3", "U00000042", "nothing"] {
            assert_eq!(offline(key, &all), numbers(&find(&store, key)), "{key}");
        }
        let at = |number: i64| FIRST_MS + number * 700;
        let some = KeyQuery { begin_ms: at(100), end_ms: at(200), ..all };
        assert_eq!(offline("customer-3", &some), find_between(&store, "customer-3", at(100), at(200)));
        assert_eq!(offline("customer-3", &KeyQuery { max_records: 2, ..some }), [192, 199]);
        assert_eq!(offline("order-5", &KeyQuery { kind: KeyKind::Unique, ..all }), [0; 0]);
        assert_eq!(offline("U00000005", &KeyQuery { kind: KeyKind::Unique, ..all }), [5]);
    };
    check();
    // The sizes of the files are those of the checkpoint, or those that are given.
    let error =
        reader.query("t", "order-5", &KeyQuery { slots_and_entries: Some((10, 10)), ..all }).unwrap_err();
    assert!(matches!(&error, ReadError::BadFile { reason, .. } if reason.contains("10 slots")), "{error}");
    let given = KeyQuery { slots_and_entries: Some((61, 300)), ..all };
    assert_eq!(offline("order-5", &given), [5]);
    store.shutdown().unwrap();
    assert_eq!(offline("customer-3", &all).len(), 43);
    RealDisk.remove_dir_all(&dir.path().join("index")).unwrap();
    assert!(matches!(reader.query("t", "order-5", &all), Err(ReadError::NoIndex { .. })));
}
