//! The vectors of the format, in files that the store wrote.

use std::path::Path;

use rocketpy_env::{Disk, RealDisk};
use rocketpy_store::{NewRecord, Store, StoreConfig};

use crate::faulty::FaultyDisk;
use crate::support::{record, settle, small};

const T: i64 = 1_700_000_000_123;
/// Physical offset of the vectors; a log may start anywhere.
const START: u64 = 123_456_789;

/// A folder whose log starts at the vectors' physical offset and whose queue 3 of topicA is at queue offset 42.
fn prepared(root: &Path, record_check: bool) -> StoreConfig {
    let config = StoreConfig { record_check, store_host: "10.0.0.5:10911".parse().unwrap(), ..small(root) };
    RealDisk.create_dir_all(&root.join("commitlog")).unwrap();
    RealDisk.replace(&log_path(root), &vec![0; 64 << 10]).unwrap();
    let queue = root.join("consumequeue/topicA/3");
    RealDisk.create_dir_all(&queue).unwrap();
    let blank = hex("00000000000000007fffffff0000000000000000");
    let mut entries = blank.repeat(42);
    entries.resize(2000, 0);
    RealDisk.replace(&queue.join(format!("{:020}", 0)), &entries).unwrap();
    config
}

fn log_path(root: &Path) -> std::path::PathBuf {
    root.join("commitlog").join(format!("{START:020}"))
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn open(config: &StoreConfig) -> std::sync::Arc<Store<FaultyDisk>> {
    let disk = FaultyDisk::default();
    disk.set_clock(T);
    Store::open_on(disk, config.clone()).unwrap()
}

fn log_bytes(root: &Path, len: usize) -> Vec<u8> {
    let mut bytes = RealDisk.read(&log_path(root), 1 << 20).unwrap();
    bytes.truncate(len);
    bytes
}

#[test]
fn the_log_holds_record_r1_of_vector_15_5() {
    let dir = tempfile::tempdir().unwrap();
    let config = prepared(dir.path(), false);
    let store = open(&config);
    let properties = b"UNIQ_KEY\x017F00000100002A9F0000000000000001\x02TAGS\x01TagA\x02";
    let appended = store.append(&NewRecord { properties, ..record("topicA", 3, b"hello") }).unwrap();
    assert_eq!((appended.physical_offset.get(), appended.queue_offset.get()), (START, 42));
    store.shutdown().unwrap();
    let expected = hex(
        "0000009adaa320a73610a6860000000300000000000000000000002a00000000075bcd15000000000000018bcfe568007f0000010000c350
         0000018bcfe5687b0a00000500002a9f0000000000000000000000000000000568656c6c6f06746f70696341
         0034554e49515f4b4559013746303030303031303030303241394630303030303030303030303030303031
         0254414753015461674102",
    );
    assert_eq!(log_bytes(dir.path(), 154), expected);
}

#[test]
fn the_log_holds_record_r2_with_its_check_of_vector_15_5() {
    let dir = tempfile::tempdir().unwrap();
    let config = prepared(dir.path(), true);
    let store = open(&config);
    store.append(&record("topicA", 3, b"hello")).unwrap();
    store.shutdown().unwrap();
    let expected = hex(
        "00000084daa320a73610a6860000000300000000000000000000002a00000000075bcd15000000000000018bcfe568007f0000010000c350
         0000018bcfe5687b0a00000500002a9f0000000000000000000000000000000568656c6c6f06746f70696341
         001e544147530154616741025f5f435243333223013532333732363433343102",
    );
    assert_eq!(log_bytes(dir.path(), 132), expected);
}

#[test]
fn the_consume_queue_holds_the_entries_of_vector_15_2() {
    for (properties, expected) in [
        (&b"TAGS\x01TagA\x02"[..], "00000000075bcd15000000e7000000000027a807"),
        (b"", "00000000075bcd15000000e70000000000000000"),
        (b"TAGS\x01order-created\x02", "00000000075bcd15000000e7ffffffffe897bb69"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let config = prepared(dir.path(), false);
        let store = open(&config);
        let body = vec![b'x'; 231 - 91 - 6 - properties.len()];
        let appended = store.append(&NewRecord { properties, ..record("topicA", 3, &body) }).unwrap();
        assert_eq!(appended.size_bytes, 231);
        store.shutdown().unwrap();
        let file = dir.path().join("consumequeue/topicA/3").join(format!("{:020}", 0));
        let entries = RealDisk.read(&file, 1 << 20).unwrap();
        assert_eq!(entries[42 * 20..43 * 20], hex(expected));
        assert_eq!(
            entries[41 * 20..42 * 20],
            hex("00000000000000007fffffff0000000000000000"),
            "filler before it"
        );
        assert_eq!(entries[43 * 20..], vec![0; 2000 - 43 * 20]);
        let store = open(&config);
        let bounds = store.queue_bounds("topicA", 3);
        assert_eq!((bounds.min.get(), bounds.max.get()), (42, 43), "fillers are not messages");
    }
}

#[test]
fn a_schedule_message_has_its_delivery_time_in_the_entry() {
    let dir = tempfile::tempdir().unwrap();
    let config = prepared(dir.path(), false);
    let store = open(&config);
    let properties = b"DELAY\x013\x02";
    let body = vec![b'x'; 231 - 91 - 19 - properties.len()];
    store.append(&NewRecord { properties, ..record("SCHEDULE_TOPIC_XXXX", 2, &body) }).unwrap();
    store.shutdown().unwrap();
    let file = dir.path().join("consumequeue/SCHEDULE_TOPIC_XXXX/2").join(format!("{:020}", 0));
    let entries = RealDisk.read(&file, 1 << 20).unwrap();
    assert_eq!(entries[..20], hex("00000000075bcd15000000e70000018bcfe58f8b"));
}

#[test]
fn the_checkpoint_begins_with_the_times_of_vector_15_4() {
    let dir = tempfile::tempdir().unwrap();
    let config = prepared(dir.path(), true);
    let store = open(&config);
    store.append(&record("topicA", 3, b"hello")).unwrap();
    store.shutdown().unwrap();
    let page = RealDisk.read(&dir.path().join("checkpoint"), 1 << 20).unwrap();
    assert_eq!(page.len(), 4096);
    assert_eq!(page[..16], hex("0000018bcfe5687b 0000018bcfe5687b"));
    assert_eq!(page[16..40], [0; 24]);
    assert_eq!(page[40..1024], [0; 984], "our mark stays away from the format's fields");
}

#[test]
fn a_file_ends_with_the_blank_records_of_vector_15_5() {
    for (left, expected) in [(100, "00000064cbd43194"), (8, "00000008cbd43194")] {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(small(dir.path())).unwrap();
        let mut size = store.append(&record("t", 0, &vec![1; 30_000])).unwrap().size_bytes as usize;
        let rest = (64 << 10) - size - left;
        size -= 30_000;
        store.append(&record("t", 0, &vec![2; rest - size])).unwrap();
        let next = store.append(&record("t", 0, b"next")).unwrap();
        assert_eq!(next.physical_offset.get(), 64 << 10);
        settle(&store);
        drop(store);
        let bytes = RealDisk.read(&dir.path().join("commitlog").join(format!("{:020}", 0)), 1 << 20).unwrap();
        let blank = &bytes[(64 << 10) - left..];
        assert_eq!(blank[..8], hex(expected));
    }
}
