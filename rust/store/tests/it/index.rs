//! Messages are found by key, and after every end of a process the index files are those that the log makes.
//!
//! Cannot show what a power loss leaves: the simulator does. Here its traces are written by hand.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rocketpy_env::{Disk, RealDisk};
use rocketpy_model::sys_flag;
use rocketpy_protocol::batch::BatchItem;
use rocketpy_protocol::disk::IndexHeader;
use rocketpy_protocol::record::{RecordView, records};
use rocketpy_store::reader::{KeyQuery, KeyedRecord, ReadError, StoreReader};
use rocketpy_store::{
    KeyKind, NewRecord, QueryResult, ReadLimits, RetentionConfig, Store, StoreConfig, StoreError,
};

use crate::faulty::FaultyDisk;
use crate::index_oracle::{assert_index_equals_log, key_hash, paths};
use crate::support::{
    ALL, PATIENCE, assert_queues_equal_log, contents, eventually, killed_copy, overwrite, record,
    retire_first_log_file, settle, small,
};

const FIRST_MS: i64 = 1_700_000_000_123;
const ALWAYS: (i64, i64) = (0, i64::MAX);

fn keyed<'a>(body: &'a [u8], properties: &'a [u8]) -> NewRecord<'a> {
    NewRecord { properties, ..record("t", 0, body) }
}

fn properties(number: u32) -> Vec<u8> {
    let (order, customer) = (number, number % 7);
    format!("KEYS\x01order-{order} customer-{customer}\x02UNIQ_KEY\x01U{number:08}\x02").into_bytes()
}

fn append_numbers<D: Disk>(store: &Store<D>, numbers: std::ops::Range<u32>) {
    for number in numbers {
        store.append(&keyed(&number.to_be_bytes(), &properties(number))).unwrap();
    }
}

fn bodies(result: &QueryResult) -> Vec<Vec<u8>> {
    result.records.iter().map(|bytes| RecordView::parse(bytes).unwrap().body.to_vec()).collect()
}

fn numbers(result: &QueryResult) -> Vec<u32> {
    bodies(result).iter().map(|body| u32::from_be_bytes(*body.first_chunk().unwrap())).collect()
}

fn find<D: Disk>(store: &Store<D>, key: &str) -> QueryResult {
    store.query_by_key("t", key, KeyKind::Any, &ALL, ALWAYS.0, ALWAYS.1).unwrap()
}

fn find_between<D: Disk>(store: &Store<D>, key: &str, begin_ms: i64, end_ms: i64) -> Vec<u32> {
    numbers(&store.query_by_key("t", key, KeyKind::Any, &ALL, begin_ms, end_ms).unwrap())
}

/// The marked start of the index: its last file and the number of its next entry.
fn marked(root: &Path) -> (u64, u32) {
    let page = RealDisk.read(&root.join("checkpoint"), 4096).unwrap();
    let long = |at: usize| u64::from_be_bytes(page[at..at + 8].try_into().unwrap());
    let mark = if long(1024 + 8) > long(1536 + 8) { 1024 } else { 1536 };
    (long(mark + 76), (long(mark + 84) >> 32) as u32)
}

fn closed_store(config: &StoreConfig, count: u32) {
    let store = Store::open(config.clone()).unwrap();
    append_numbers(&store, 0..count);
    store.shutdown().unwrap();
    assert_eq!(assert_index_equals_log(config), count as usize * 3);
}

/// Opens the store, looks for a few messages, appends one more, closes it, and compares the index with the log.
fn assert_whole(config: &StoreConfig, count: u32, rebuilt: bool) {
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
fn a_store_that_was_closed_goes_on_with_its_files() {
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    closed_store(&config, 350);
    let before = contents(&dir.path().join("index"));
    drop(Store::open(config.clone()).unwrap());
    assert_eq!(contents(&dir.path().join("index")), before, "nothing changes without a message");
    assert_whole(&config, 350, false);
}

#[test]
fn a_killed_store_finds_all_that_was_dispatched_and_what_came_after_the_mark() {
    let hour = Duration::from_secs(3600);
    let (dir, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = StoreConfig { checkpoint_interval: hour, ..small(dir.path()) };
    closed_store(&config, 250);
    let store = Store::open(config).unwrap();
    append_numbers(&store, 250..600); // the mark lies files behind
    settle(&store);
    killed_copy(dir.path(), killed.path());
    let config = small(killed.path());
    assert_whole(&config, 600, false);
    assert_whole(&config, 601, false);
}

#[test]
fn what_a_power_loss_leaves_behind_the_mark_does_not_count() {
    let hour = Duration::from_secs(3600);
    let dir = tempfile::tempdir().unwrap();
    let config = StoreConfig { checkpoint_interval: hour, ..small(dir.path()) };
    closed_store(&config, 250);
    let store = Store::open(config.clone()).unwrap();
    append_numbers(&store, 250..600);
    settle(&store);
    let (name, next_entry) = marked(dir.path());
    type Trace = (&'static str, fn(&Path, u64));
    let traces: [Trace; 4] = [
        ("entries are lost", |path, behind| overwrite(path, behind, &[0; 100])),
        ("entries are torn", |path, behind| overwrite(path, behind + 7, &[0xee; 40])),
        ("the head is ahead", |path, _| overwrite(path, 36, &9999_u32.to_be_bytes())),
        ("slots lead to what is lost", |path, behind| {
            overwrite(path, behind, &[0; 300]);
            overwrite(path, 40, &[0, 0, 1, 41].repeat(61));
        }),
    ];
    for (what, damage) in traces {
        let killed = tempfile::tempdir().unwrap();
        killed_copy(dir.path(), killed.path());
        let path = killed.path().join("index").join(format!("{name:017}"));
        damage(&path, 40 + 61 * 4 + u64::from(next_entry) * 20);
        for newer in paths(&small(killed.path())).into_iter().filter(|newer| *newer > path) {
            overwrite(&newer, 0, &[0xee; 64]);
        }
        eprintln!("{what}");
        assert_whole(&small(killed.path()), 600, false);
    }
}

#[test]
fn keys_of_records_that_the_log_lost_are_gone() {
    let hour = Duration::from_secs(3600);
    let (dir, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let sizes = |config| StoreConfig { index_slots: 200_000, index_entries: 4000, ..config }; // units far apart
    let config = sizes(StoreConfig { checkpoint_interval: hour, ..small(dir.path()) });
    closed_store(&config, 250);
    let store = Store::open(config).unwrap();
    append_numbers(&store, 250..255);
    let lost = store.append(&keyed(&255_u32.to_be_bytes(), &properties(255))).unwrap().physical_offset.get();
    append_numbers(&store, 256..260);
    settle(&store);
    killed_copy(dir.path(), killed.path());
    let config = sizes(small(killed.path()));
    overwrite(&config.commit_log_dir().join(format!("{:020}", 0)), lost, &[0; 2000]);
    let store = Store::open(config.clone()).unwrap();
    assert_eq!(store.max_physical_offset().get(), lost);
    assert_eq!(numbers(&find(&store, "order-254")), [254]);
    assert!(find(&store, "order-255").records.is_empty());
    store.shutdown().unwrap();
    assert_eq!(assert_index_equals_log(&config), 255 * 3, "nor is anything of them left in the files");
}

#[test]
fn index_files_that_are_lost_or_damaged_are_made_anew() {
    type Damage = (&'static str, fn(&StoreConfig));
    let damages: [Damage; 6] = [
        ("all are gone", |config| RealDisk.remove_dir_all(&config.root.join("index")).unwrap()),
        ("the first is gone", |config| RealDisk.remove_file(&paths(config)[0]).unwrap()),
        ("one in between is gone", |config| RealDisk.remove_file(&paths(config)[1]).unwrap()),
        ("the last is gone", |config| RealDisk.remove_file(paths(config).last().unwrap()).unwrap()),
        ("one is cut", |config| RealDisk.replace(&paths(config)[0], &[0; 500]).unwrap()),
        ("a head is damaged", |config| overwrite(&paths(config)[1], 16, &[0xff; 24])),
    ];
    for (what, damage) in damages {
        let dir = tempfile::tempdir().unwrap();
        let config = small(dir.path());
        closed_store(&config, 350);
        damage(&config);
        eprintln!("{what}");
        assert_whole(&config, 350, true);
        assert_whole(&config, 351, false);
    }
}

#[test]
fn damage_before_the_mark_shows_after_a_crash() {
    let (dir, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = small(dir.path());
    closed_store(&config, 350);
    let store = Store::open(config).unwrap();
    killed_copy(dir.path(), killed.path());
    drop(store);
    let config = small(killed.path());
    let last = paths(&config).pop().unwrap();
    overwrite(&last, 40 + 61 * 4 + 20 * 5, &[0; 20]);
    assert_whole(&config, 350, true);
}

#[test]
fn files_of_another_size_are_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    closed_store(&config, 350);
    assert_whole(&StoreConfig { index_entries: 200, ..config.clone() }, 350, true);
    assert_whole(&StoreConfig { index_slots: 100, index_entries: 200, ..config.clone() }, 351, true);
    assert_whole(&StoreConfig { index_slots: 100, index_entries: 200, ..config.clone() }, 352, false);
    let (small_dir, few) = (tempfile::tempdir().unwrap(), 20);
    let config_of_few = small(small_dir.path());
    closed_store(&config_of_few, few);
    assert_whole(&StoreConfig { index_slots: 66, index_entries: 299, ..config_of_few }, few, true);
    let of_same_length = StoreConfig { index_slots: 105, index_entries: 199, ..config };
    assert_whole(&of_same_length, 353, true);
}

#[test]
fn without_an_index_nothing_is_found_and_one_that_is_switched_on_again_has_all() {
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    closed_store(&config, 350);
    let off = StoreConfig { index: false, ..config.clone() };
    let store = Store::open(off).unwrap();
    append_numbers(&store, 350..700);
    settle(&store);
    let error = store.query_by_key("t", "order-1", KeyKind::Any, &ALL, 0, i64::MAX).unwrap_err();
    assert!(matches!(error, StoreError::NoIndex), "{error}");
    assert!(error.hint().unwrap().contains("messageIndexEnable"));
    drop(store);
    assert_whole(&config, 700, false);
}

/// As another program leaves it: without our mark.
fn forget_mark(config: &StoreConfig) {
    overwrite(&config.root.join("checkpoint"), 1024, &[0; 1024]);
}

#[test]
fn files_of_another_program_are_taken_over_after_a_clean_exit() {
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    closed_store(&config, 350);
    forget_mark(&config);
    let before = contents(&dir.path().join("index"));
    drop(Store::open(config.clone()).unwrap());
    assert_eq!(contents(&dir.path().join("index")), before);
    forget_mark(&config);
    assert_whole(&config, 350, false);
}

#[test]
fn files_that_another_program_lost_in_a_crash_leave_a_hole_that_is_seen() {
    for lost in [0, 1] {
        let dir = tempfile::tempdir().unwrap();
        let config = small(dir.path());
        closed_store(&config, 350);
        forget_mark(&config);
        RealDisk.remove_file(&paths(&config)[lost]).unwrap();
        assert_whole(&config, 350, true);
    }
    // The last file was lost, and what came later went into a new one.
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    closed_store(&config, 150);
    forget_mark(&config);
    let last = paths(&config).pop().unwrap();
    RealDisk.remove_file(&last).unwrap();
    assert_whole(&config, 150, false);
}

#[test]
fn after_a_crash_of_another_program_only_files_count_that_it_knew_to_be_durable() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let config = small(dir.path());
    let store = Store::open_on(disk.clone(), config.clone()).unwrap();
    for number in 0..350 {
        disk.set_clock(FIRST_MS + i64::from(number) * 1000);
        append_numbers(&store, number..number + 1);
    }
    store.shutdown().unwrap();
    let page = RealDisk.read(&dir.path().join("checkpoint"), 4096).unwrap();
    let index_msg = i64::from_be_bytes(page[16..24].try_into().unwrap());
    let full: Vec<_> = paths(&config);
    let full = crate::index_oracle::read(&full[full.len() - 2], &config);
    assert_eq!(index_msg, full.end_ms, "docs/reference/store-format.md 5.1: of the newest file that is full");
    forget_mark(&config);
    RealDisk.replace(&dir.path().join("abort"), b"1").unwrap();
    // What the last file says is not believed, however sound it looks.
    let last = paths(&config).pop().unwrap();
    overwrite(&last, 40 + 61 * 4 + 20 * 5 + 4, &[0; 7]);
    let store = Store::open(config.clone()).unwrap();
    assert!(!store.recovery().rebuilt_index, "those that were full stay");
    assert_eq!(numbers(&find(&store, "order-349")), [349]);
    store.shutdown().unwrap();
    assert_queues_equal_log(&config);
    assert_eq!(paths(&config).len(), 4);
}

#[test]
fn of_files_that_end_in_the_same_millisecond_one_is_known_to_be_durable() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    disk.set_clock(FIRST_MS);
    let config = small(dir.path());
    let store = Store::open_on(disk.clone(), config.clone()).unwrap();
    append_numbers(&store, 0..350);
    store.shutdown().unwrap();
    forget_mark(&config);
    RealDisk.replace(&dir.path().join("abort"), b"1").unwrap();
    // As a power loss leaves the second full file that nobody flushed.
    overwrite(&paths(&config)[1], 40 + 61 * 4 + 20 * 17, &[0; 4096]);
    let store = Store::open(config.clone()).unwrap();
    assert!(!store.recovery().rebuilt_index, "the first stays");
    store.shutdown().unwrap();
    assert_queues_equal_log(&config);
}

#[test]
fn a_start_that_did_not_get_through_says_no_more_of_the_index_than_is_so() {
    let dir = tempfile::tempdir().unwrap();
    let config = small(dir.path());
    closed_store(&config, 350);
    let known = marked(dir.path());
    // Queues that are made anew leave what is known of the index as it is.
    RealDisk.remove_dir_all(&dir.path().join("consumequeue").join("t")).unwrap();
    let disk = FaultyDisk::default();
    disk.faults.queue_writes_left.store(0, Ordering::SeqCst);
    assert!(Store::open_on(disk, config.clone()).is_err());
    assert_eq!(marked(dir.path()), known);
    // An index that is made anew is not known at all.
    overwrite(&paths(&config)[0], 36, &9999_u32.to_be_bytes());
    let disk = FaultyDisk::default();
    disk.faults.removals_left.store(0, Ordering::SeqCst);
    assert!(Store::open_on(disk, config.clone()).is_err());
    assert_eq!(marked(dir.path()), (0, 0));
    let page = RealDisk.read(&dir.path().join("checkpoint"), 4096).unwrap();
    assert_eq!(page[16..24], [0; 8], "to another program as well");
    assert_whole(&config, 350, true);
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

fn head_of(index_file: &Path) -> IndexHeader {
    let bytes = RealDisk.read(index_file, 1 << 20).unwrap();
    IndexHeader::decode(bytes.first_chunk().unwrap())
}

#[test]
fn index_files_whose_records_are_gone_can_be_removed_at_any_time() {
    let dir = tempfile::tempdir().unwrap();
    let retention = RetentionConfig { clean_forcibly: false, ..RetentionConfig::default() };
    let config = StoreConfig { retention, ..small(dir.path()) };
    closed_store(&config, 1500);
    let count = paths(&config).len();
    retire_first_log_file(&config);
    let store = Store::open(config.clone()).unwrap();
    assert!(!store.recovery().rebuilt_index);
    let log_min = store.min_physical_offset();
    let copy = tempfile::tempdir().unwrap();
    killed_copy(dir.path(), copy.path());
    let killed = small(copy.path());
    let gone: Vec<_> =
        paths(&killed).into_iter().filter(|path| head_of(path).end_physical_offset < log_min).collect();
    assert!(!gone.is_empty());
    gone.iter().for_each(|path| RealDisk.remove_file(path).unwrap()); // the mark still counts their keys
    assert_eq!(store.clean().unwrap().index_files, gone.len());
    assert_eq!(paths(&config).len(), count - gone.len());
    assert_eq!(store.clean().unwrap().index_files, 0);
    assert!(find(&store, "order-0").records.is_empty());
    store.shutdown().unwrap();
    for config in [config, killed] {
        let store = Store::open(config.clone()).unwrap();
        assert!(!store.recovery().rebuilt_index);
        assert_eq!(numbers(&find(&store, "order-1499")), [1499]);
        drop(store);
        RealDisk.remove_file(&paths(&config)[0]).unwrap();
        assert!(Store::open(config).unwrap().recovery().rebuilt_index, "its records are still there");
    }
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
