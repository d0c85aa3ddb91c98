use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, RecordBatch};
use rocketpy_filter::MessageFilter;
use rocketpy_model::{PhysicalOffset, QueueOffset};
use rocketpy_protocol::record::{RecordFields, RecordView};
use rocketpy_scan::{Group, ScanError, StoreScanOptions, Sums};

use crate::folder::{FIRST_STORED_AT_MS, Folder, Sent, scan_all};

/// What there is to say about a record.
struct Stored<'a> {
    queue_id: u32,
    properties: &'a [u8],
    body_bytes: usize,
    at_ms: i64,
}

fn push(sums: &mut Sums, stored: &Stored<'_>) -> usize {
    let fields = RecordFields {
        topic: "flights",
        queue_id: stored.queue_id,
        flag: 0,
        sys_flag: 0,
        born_at_ms: 0,
        born_host: "10.0.0.1:77".parse().unwrap(),
        store_host: "127.0.0.1:10911".parse().unwrap(),
        reconsume_times: 2,
        prepared_transaction_offset: PhysicalOffset(0),
        body: &vec![b'x'; stored.body_bytes],
        properties: stored.properties,
        may_have_crc: true,
    };
    let mut record = Vec::new();
    fields.encode(false, &mut record).unwrap().finish(
        &mut record,
        QueueOffset(0),
        PhysicalOffset(0),
        stored.at_ms,
    );
    sums.push(&RecordView::parse(&record).unwrap(), Some("broker-a"));
    record.len()
}

fn with_properties(sums: &mut Sums, properties: &[u8]) -> usize {
    push(sums, &Stored { queue_id: 1, properties, body_bytes: 10, at_ms: 0 })
}

fn sums(groupings: &[&[&str]]) -> Sums {
    Sums::new(groupings.iter().map(|names| Group::parse(*names).unwrap()).collect(), usize::MAX)
}

fn text(batch: &RecordBatch, name: &str, row: usize) -> Option<String> {
    let column = batch.column_by_name(name).unwrap().as_string::<i32>();
    column.is_valid(row).then(|| column.value(row).to_owned())
}

fn count(batch: &RecordBatch, name: &str, row: usize) -> i64 {
    batch.column_by_name(name).unwrap().as_primitive::<Int64Type>().value(row)
}

/// Text and number of messages of each group, in order.
fn counts(batch: &RecordBatch, name: &str) -> Vec<(Option<String>, i64)> {
    let mut rows: Vec<_> =
        (0..batch.num_rows()).map(|row| (text(batch, name, row), count(batch, "messages", row))).collect();
    rows.sort();
    rows
}

#[test]
fn a_group_that_is_named_twice_counts_once() {
    let mut sums = sums(&[&["tag", "queue_id", "tag"], &["tag"]]);
    with_properties(&mut sums, b"TAGS\x01t\x02");
    let batch = sums.finish().unwrap();
    assert_eq!(counts(&batch, "tag"), [(Some("t".to_owned()), 1), (Some("t".to_owned()), 1)]);
    assert_eq!(batch.schema().fields().len(), 3 + 5, "the place of the choice, two groups, five measures");
}

#[test]
fn every_group_comes_from_its_place_in_the_record() {
    let all: [&str; 14] = [
        "topic",
        "broker_name",
        "queue_id",
        "tag",
        "key",
        "order_key",
        "origin_topic",
        "born_host",
        "store_host",
        "reconsume_times",
        "size",
        "minute",
        "hour",
        "day",
    ];
    let mut sums = sums(&[&all]);
    let properties =
        b"KEYS\x01k\x02__SHARDINGKEY\x01o\x02TAGS\x01old\x02rocketpyOriginTopic\x01from\x02TAGS\x01t\x02";
    let at_ms = 1_704_164_645_678;
    let size = push(&mut sums, &Stored { queue_id: 3, properties, body_bytes: 10, at_ms });
    let batch = sums.finish().unwrap();
    assert_eq!(batch.num_rows(), 1);
    let texts =
        ["topic", "broker_name", "tag", "key", "order_key", "origin_topic", "born_host", "store_host"];
    let expected = ["flights", "broker-a", "t", "k", "o", "from", "10.0.0.1:77", "127.0.0.1:10911"];
    assert_eq!(texts.map(|name| text(&batch, name, 0).unwrap()), expected);
    let int32 = |name: &str| batch.column_by_name(name).unwrap().as_primitive::<Int32Type>().value(0);
    assert_eq!(["grouping", "queue_id", "reconsume_times"].map(int32), [0, 3, 2]);
    let time =
        |name: &str| batch.column_by_name(name).unwrap().as_primitive::<TimestampMicrosecondType>().value(0);
    assert_eq!(
        ["minute", "hour", "day"].map(time),
        [1_704_164_640, 1_704_164_400, 1_704_153_600].map(|s| s * 1_000_000)
    );
    assert_eq!(["first_stored_at", "last_stored_at"].map(time), [at_ms * 1000; 2]);
    assert!(size > 128 && size <= 256);
    assert_eq!(
        ["size", "messages", "bytes", "largest_bytes"].map(|name| count(&batch, name, 0)),
        [256, 1, size as i64, size as i64]
    );
}

#[test]
fn sums_extremes_and_counts_are_kept_by_group_and_start_over_after_a_batch() {
    let mut sums = sums(&[&["queue_id"]]);
    let (mut sizes, mut largest) = ([0, 0], [0, 0]);
    for (number, at_ms) in [50, 10, 30, 20].into_iter().enumerate() {
        let queue_id = number as u32 % 2;
        let stored = Stored { queue_id, properties: b"", body_bytes: number * 100, at_ms };
        let size = push(&mut sums, &stored) as i64;
        sizes[number % 2] += size;
        largest[number % 2] = size; // they grow
    }
    let batch = sums.finish().unwrap();
    let queue = |row| batch.column_by_name("queue_id").unwrap().as_primitive::<Int32Type>().value(row);
    let time = |name: &str, row| {
        batch.column_by_name(name).unwrap().as_primitive::<TimestampMicrosecondType>().value(row)
    };
    for row in 0..2 {
        let id = queue(row) as usize;
        let found = ["messages", "bytes", "largest_bytes"].map(|name| count(&batch, name, row));
        assert_eq!(found, [2, sizes[id], largest[id]]);
        let times = (time("first_stored_at", row), time("last_stored_at", row));
        assert_eq!(times, if id == 0 { (30_000, 50_000) } else { (10_000, 20_000) });
    }
    assert!(sums.is_empty());
    assert_eq!(sums.finish().unwrap().num_rows(), 0);
}

#[test]
fn a_message_counts_for_each_of_its_keys_and_without_any_for_none() {
    let mut sums = sums(&[&["key"]]);
    for properties in [&b""[..], b"KEYS\x01 \x02", b"KEYS\x01 a  b \x02", b"KEYS\x01a", b"KEYS\x01\xff\x02"] {
        with_properties(&mut sums, properties);
    }
    let counted = counts(&sums.finish().unwrap(), "key");
    let expected = [(None, 2), (Some("a"), 2), (Some("b"), 1), (Some("\u{fffd}"), 1)];
    assert_eq!(counted, expected.map(|(key, count)| (key.map(str::to_owned), count)));
}

#[test]
fn several_choices_of_groups_are_added_up_in_one_pass() {
    let mut sums = sums(&[&["tag"], &["queue_id", "tag"], &["order_key"]]);
    with_properties(&mut sums, b"TAGS\x01a\x02");
    with_properties(&mut sums, b"__SHARDINGKEY\x01a\x02");
    let batch = sums.finish().unwrap();
    let names: Vec<_> = batch.schema().fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!(names[..4], ["grouping", "tag", "queue_id", "order_key"]);
    let numbers = batch.column_by_name("grouping").unwrap().as_primitive::<Int32Type>();
    let queues = batch.column_by_name("queue_id").unwrap();
    let mut rows: Vec<_> = (0..batch.num_rows())
        .map(|row| {
            (
                numbers.value(row),
                text(&batch, "tag", row),
                text(&batch, "order_key", row),
                queues.is_valid(row),
            )
        })
        .collect();
    rows.sort();
    let a = || Some("a".to_owned());
    assert_eq!(
        rows,
        [
            (0, None, None, false),
            (0, a(), None, false),
            (1, None, None, true),
            (1, a(), None, true),
            (2, None, None, false),
            (2, None, a(), false)
        ]
    );
}

#[test]
fn only_a_space_separates_keys_and_a_time_out_of_range_has_no_group() {
    let mut sums = sums(&[&["key"], &["day"]]);
    let properties = "KEYS\x01a\tb  c\u{a0}d\u{3000}e\nf\x02".as_bytes();
    for at_ms in [i64::MAX, -1, FIRST_STORED_AT_MS] {
        push(&mut sums, &Stored { queue_id: 1, properties, body_bytes: 1, at_ms });
    }
    let batch = sums.finish().unwrap();
    let mut keys: Vec<_> = (0..batch.num_rows()).filter_map(|row| text(&batch, "key", row)).collect();
    keys.sort();
    assert_eq!(keys, ["a\tb", "c\u{a0}d\u{3000}e\nf"]);
    let times = |name: &str| batch.column_by_name(name).unwrap().as_primitive::<TimestampMicrosecondType>();
    let (days, first, last) = (times("day"), times("first_stored_at"), times("last_stored_at"));
    for row in 0..batch.num_rows() {
        let known = if text(&batch, "key", row).is_some() || days.is_valid(row) { 1 } else { 0 };
        assert_eq!([first, last].map(|times| usize::from(times.is_valid(row))), [known; 2], "row {row}");
    }
    let counts = batch.column_by_name("messages").unwrap().as_primitive::<Int64Type>();
    let unknown = |row: &usize| text(&batch, "key", *row).is_none() && days.is_null(*row);
    assert_eq!((0..batch.num_rows()).filter(unknown).map(|row| counts.value(row)).collect::<Vec<_>>(), [2]);
}

#[test]
fn sizes_are_rounded_up_to_powers_of_two() {
    let mut sums = sums(&[&["size"]]);
    let head = with_properties(&mut sums, b"") - 10;
    for size in [1024, 1025] {
        push(&mut sums, &Stored { queue_id: 0, properties: b"", body_bytes: size - head, at_ms: 0 });
    }
    let batch = sums.finish().unwrap();
    let mut sizes: Vec<_> = (0..3).map(|row| count(&batch, "size", row)).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [128, 1024, 2048]);
}

#[test]
fn a_batch_is_full_after_its_messages_its_groups_or_their_bytes() {
    let mut few = Sums::new(vec![vec![Group::Topic]], 2);
    with_properties(&mut few, b"");
    assert!(!few.is_full());
    with_properties(&mut few, b"");
    assert!(few.is_full());
    let mut many = sums(&[&["key"]]);
    for number in 0..Sums::MOST_GROUPS {
        assert!(!many.is_full());
        with_properties(&mut many, format!("KEYS\x01{number}\x02").as_bytes());
    }
    assert!(many.is_full());
    assert_eq!(many.finish().unwrap().num_rows(), Sums::MOST_GROUPS);
    assert!(!many.is_full());
    let mut long = sums(&[&["key"]]);
    let key = "k".repeat(30_000);
    let fit = Sums::MOST_BYTES / key.len();
    for number in 0..fit {
        assert!(!long.is_full());
        with_properties(&mut long, format!("KEYS\x01{key}{number}\x02").as_bytes());
    }
    assert!(long.is_full());
    assert_eq!(long.finish().unwrap().num_rows(), fit);
    assert!(!long.is_full());
}

#[test]
fn an_unknown_group_is_named() {
    let error = Group::parse(["tag", "tags"]).unwrap_err();
    assert!(matches!(&error, ScanError::UnknownGroup { group } if group == "tags"));
    assert!(!error.retryable());
}

#[test]
fn a_scan_adds_up_what_its_filter_leaves() {
    let mut folder = Folder::new();
    for number in 0..50 {
        let tag = Some(["a", "b", "c"][number % 3]);
        folder.push(&Sent { queue_id: number as u32 % 2, body: b"body", tag, ..Sent::default() });
    }
    let reader = folder.write(0, 0);
    let options = StoreScanOptions {
        groupings: vec![Group::parse(["tag"]).unwrap()],
        filter: MessageFilter::tags("a || b"),
        ..StoreScanOptions::default()
    };
    let batches = scan_all(&reader, options).unwrap();
    let [batch] = batches.as_slice() else { panic!("one batch") };
    assert_eq!(counts(batch, "tag"), [(Some("a".to_owned()), 17), (Some("b".to_owned()), 17)]);
    let row = (0..2).find(|&row| text(batch, "tag", row).as_deref() == Some("a")).unwrap();
    let first = batch.column_by_name("first_stored_at").unwrap().as_primitive::<TimestampMicrosecondType>();
    assert_eq!(first.value(row), FIRST_STORED_AT_MS * 1000);
}
