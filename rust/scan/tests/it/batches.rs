use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, MapArray, RecordBatch};
use arrow_schema::{DataType, TimeUnit};
use rocketpy_filter::MessageFilter;
use rocketpy_model::{CompressionType, sys_flag};
use rocketpy_protocol::compression::compress;
use rocketpy_protocol::disk::extension_address;
use rocketpy_protocol::record::records as records_of;
use rocketpy_scan::{BatchLimits, Columns, RecordBatchBuilder, ScanError, StoreScanOptions};

use crate::folder::{FIRST_STORED_AT_MS, Folder, Sent, bodies, scan_all};

#[test]
fn every_column_says_what_was_stored() {
    let mut folder = Folder::new();
    folder.push(&Sent { queue_id: 3, body: b"first", tag: Some("UA"), ..Sent::default() });
    folder.push(&Sent { queue_id: 3, body: b"second", ..Sent::default() });
    let reader = folder.write(0, 0);
    let options = StoreScanOptions {
        columns: Columns::all(),
        broker_name: Some("broker-a".to_owned()),
        ..StoreScanOptions::default()
    };
    let batches = scan_all(&reader, options).unwrap();
    let [batch] = batches.as_slice() else { panic!("one batch") };
    let text = |name: &str, row: usize| {
        let column = batch.column_by_name(name).unwrap().as_string::<i32>();
        column.is_valid(row).then(|| column.value(row).to_owned())
    };
    let second = folder.place(3, 1);
    assert_eq!(text("topic", 1).unwrap(), "flights");
    assert_eq!(text("broker_name", 1).unwrap(), "broker-a");
    assert_eq!((text("tag", 0).as_deref(), text("tag", 1)), (Some("UA"), None));
    assert_eq!(text("keys", 0), None);
    assert_eq!(text("msg_id", 1).unwrap(), format!("ID{}", FIRST_STORED_AT_MS + 10));
    assert_eq!(text("offset_msg_id", 1).unwrap(), format!("7F00000100002A9F{second:016X}"));
    assert_eq!(text("born_host", 0).unwrap(), "127.0.0.1:10911");
    assert_eq!(text("store_host", 0).unwrap(), "127.0.0.1:10911");
    let stored_at = batch.column_by_name("stored_at").unwrap().as_primitive::<TimestampMicrosecondType>();
    let born_at = batch.column_by_name("born_at").unwrap().as_primitive::<TimestampMicrosecondType>();
    assert_eq!(stored_at.value(1), (FIRST_STORED_AT_MS + 10) * 1000);
    assert_eq!(born_at.value(1), (FIRST_STORED_AT_MS + 9) * 1000);
    let number = |name: &str| batch.column_by_name(name).unwrap().as_primitive::<Int32Type>().value(1);
    assert_eq!(
        (number("queue_id"), number("flag"), number("sys_flag"), number("reconsume_times")),
        (3, 7, 0, 0)
    );
    assert_eq!(number("body_crc") as u32, crc31(b"second"));
    assert_eq!(number("size_bytes") as usize, folder.log.len() - second);
    let maps: &MapArray = batch.column_by_name("properties").unwrap().as_map();
    assert_eq!((maps.value_length(0), maps.value_length(1)), (2, 1));
}

/// Milliseconds of times that no calendar has: before 1970, microseconds by mistake, and the largest number.
const NOT_TIMES: [i64; 4] = [i64::MIN, -1, 1_700_000_000_000_000, i64::MAX];

#[test]
fn a_time_out_of_range_is_null_and_its_number_is_kept() {
    let mut folder = Folder::new();
    for _ in 0..=NOT_TIMES.len() {
        folder.push(&Sent { body: b"a", ..Sent::default() });
    }
    for (row, at_ms) in NOT_TIMES.into_iter().enumerate() {
        let at = folder.place(0, row);
        folder.log[at + 40..at + 48].copy_from_slice(&at_ms.to_be_bytes());
        folder.log[at + 56..at + 64].copy_from_slice(&at_ms.to_be_bytes());
    }
    let options = StoreScanOptions { columns: Columns::all(), ..StoreScanOptions::default() };
    let batches = scan_all(&folder.write(0, 0), options).unwrap();
    let [batch] = batches.as_slice() else { panic!("one batch") };
    let column = |name: &str| batch.column_by_name(name).unwrap();
    for name in ["born_at", "stored_at"] {
        let times = column(name).as_primitive::<TimestampMicrosecondType>();
        let valid: Vec<bool> = (0..batch.num_rows()).map(|row| times.is_valid(row)).collect();
        assert_eq!(valid, [false, false, false, false, true], "{name}");
    }
    for name in ["born_at_ms", "stored_at_ms"] {
        let numbers = column(name).as_primitive::<Int64Type>();
        assert_eq!(numbers.null_count(), 0);
        assert_eq!(numbers.values()[..NOT_TIMES.len()], NOT_TIMES, "{name}");
    }
}

fn crc31(bytes: &[u8]) -> u32 {
    rocketpy_protocol::record::body_crc(bytes)
}

#[test]
fn the_types_are_those_that_spark_takes_without_a_cast() {
    let schema = Columns::all().schema();
    let of = |name: &str| schema.field_with_name(name).unwrap().data_type().clone();
    assert_eq!(of("body"), DataType::Binary);
    assert_eq!(of("topic"), DataType::Utf8);
    assert_eq!(of("stored_at"), DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())));
    let DataType::Map(entries, false) = of("properties") else { panic!("a map") };
    let DataType::Struct(fields) = entries.data_type() else { panic!("of structs") };
    let fields: Vec<_> = fields.iter().map(|field| (field.name().as_str(), field.is_nullable())).collect();
    assert_eq!(fields, [("key", false), ("value", true)]);
    assert!(schema.fields().iter().all(|field| field.is_nullable()));
}

#[test]
fn tags_select_by_code_and_then_by_text() {
    let mut folder = Folder::new();
    for tag in ["Aa", "BB", "UA", "Aa"] {
        folder.push(&Sent { body: tag.as_bytes(), tag: Some(tag), ..Sent::default() });
    }
    folder.push(&Sent { body: b"none", ..Sent::default() });
    let reader = folder.write(0, 0);
    let with = |tags: &str| {
        let options = StoreScanOptions { filter: MessageFilter::tags(tags), ..StoreScanOptions::default() };
        bodies(&scan_all(&reader, options).unwrap())
    };
    assert_eq!(with("Aa"), ["Aa", "Aa"], "BB has the same code");
    assert_eq!(with("UA || BB"), ["BB", "UA"]);
    assert_eq!(with("*").len(), 5);
    assert_eq!(with("DL"), Vec::<String>::new());
}

#[test]
fn tags_select_by_text_where_a_queue_of_apache_has_its_codes_elsewhere() {
    let mut folder = Folder::new();
    for tag in ["UA", "AA", "UA"] {
        folder.push(&Sent { body: tag.as_bytes(), tag: Some(tag), ..Sent::default() });
    }
    let entries = folder.queues.values_mut().next().unwrap();
    for (number, entry) in entries.iter_mut().enumerate() {
        entry.tags_code = extension_address(34 * number as u64);
    }
    let options = StoreScanOptions { filter: MessageFilter::tags("UA"), ..StoreScanOptions::default() };
    assert_eq!(bodies(&scan_all(&folder.write(0, 0), options).unwrap()), ["UA", "UA"]);
}

#[test]
fn a_batch_without_bodies_ends_at_its_bytes_of_text() {
    let mut folder = Folder::new();
    for _ in 0..6 {
        folder.push(&Sent { tag: Some(&"t".repeat(300)), ..Sent::default() });
    }
    let reader = folder.write(0, 0);
    let options = StoreScanOptions {
        columns: Columns::parse(["tag"]).unwrap(),
        limits: BatchLimits { rows: 100, bytes: 500 },
        ..StoreScanOptions::default()
    };
    let rows = |batches: Vec<RecordBatch>| batches.iter().map(RecordBatch::num_rows).collect::<Vec<_>>();
    assert_eq!(rows(scan_all(&reader, options).unwrap()), [2, 2, 2], "a batch is full once it has 500 bytes");
}

#[test]
fn a_limit_that_no_batch_reaches_takes_no_memory() {
    let mut folder = Folder::new();
    folder.push(&Sent { body: b"one", ..Sent::default() });
    let limits = BatchLimits { rows: usize::MAX, bytes: usize::MAX };
    let options = StoreScanOptions { limits, ..StoreScanOptions::default() };
    assert_eq!(bodies(&scan_all(&folder.write(0, 0), options).unwrap()), ["one"]);
}

#[test]
fn a_batch_ends_at_its_rows_or_its_bytes_and_a_large_message_is_one_by_itself() {
    let mut folder = Folder::new();
    for size in [100, 100, 100, 4000, 100, 100, 100, 100] {
        folder.push(&Sent { body: &vec![b'x'; size], ..Sent::default() });
    }
    let reader = folder.write(0, 0);
    let sizes = |limits: BatchLimits| {
        let options = StoreScanOptions { limits, ..StoreScanOptions::default() };
        let batches = scan_all(&reader, options).unwrap();
        batches.iter().map(RecordBatch::num_rows).collect::<Vec<_>>()
    };
    assert_eq!(sizes(BatchLimits { rows: 3, bytes: 1 << 20 }), [3, 3, 2]);
    assert_eq!(sizes(BatchLimits { rows: 8192, bytes: 450 }), [3, 1, 3, 1]);
    assert_eq!(sizes(BatchLimits::default()), [8]);
}

#[test]
fn compressed_bodies_come_back_plain_and_stay_closed_when_nobody_asks() {
    let plain = b"the same again and again ".repeat(100);
    let mut folder = Folder::new();
    for kind in [CompressionType::Zlib, CompressionType::Lz4, CompressionType::Zstd] {
        let body = compress(kind, 5, &plain).unwrap();
        folder.push(&Sent { body: &body, sys_flag: kind.mark(0), ..Sent::default() });
    }
    let reader = folder.write(0, 0);
    let batches = scan_all(&reader, StoreScanOptions::default()).unwrap();
    assert_eq!(bodies(&batches), vec![String::from_utf8(plain).unwrap(); 3]);

    folder.push(&Sent { body: b"not zlib", sys_flag: sys_flag::COMPRESSED, ..Sent::default() });
    let reader = folder.write(0, 0);
    let error = scan_all(&reader, StoreScanOptions::default()).unwrap_err();
    assert!(matches!(error, ScanError::Body { .. }), "{error}");
    let null = StoreScanOptions { null_unreadable_bodies: true, ..StoreScanOptions::default() };
    let bodies = Arc::clone(scan_all(&reader, null).unwrap()[0].column_by_name("body").unwrap());
    assert_eq!((bodies.len(), bodies.null_count(), bodies.is_null(3)), (4, 1, true));
    let columns = Columns::parse(["queue_offset", "tag"]).unwrap();
    let batches = scan_all(&reader, StoreScanOptions { columns, ..StoreScanOptions::default() }).unwrap();
    assert_eq!(batches[0].num_rows(), 4);
}

#[test]
fn a_body_that_would_grow_without_bound_is_an_error_not_an_allocation() {
    let bomb = compress(CompressionType::Zstd, 5, &vec![0; 65 << 20]).unwrap();
    assert!(bomb.len() < 8000, "it fits the small log files: {}", bomb.len());
    let mut folder = Folder::new();
    folder.push(&Sent { body: &bomb, sys_flag: CompressionType::Zstd.mark(0), ..Sent::default() });
    let reader = folder.write(0, 0);
    let error = scan_all(&reader, StoreScanOptions::default()).unwrap_err();
    assert!(matches!(error, ScanError::Body { .. }), "{error}");
}

#[test]
fn a_batch_in_the_memory_of_another_says_what_one_in_new_memory_does_and_leaves_what_is_read_alone() {
    let mut folder = Folder::new();
    for number in 0..50_u8 {
        let tag = (number % 3 == 0).then_some("UA");
        folder.push(&Sent { body: &[number; 20], tag, ..Sent::default() });
    }
    let batch = |records: Range<usize>, spent: Option<RecordBatch>| {
        let (columns, limits) = (Columns::all(), BatchLimits::default());
        let mut builder = match spent {
            Some(spent) => RecordBatchBuilder::with_room_of(spent, columns, limits, 25, 1000),
            None => RecordBatchBuilder::with_room(columns, limits, 25, 1000),
        };
        for record in records_of(&folder.log).skip(records.start).take(records.len()) {
            builder.push(&record.unwrap(), Some("broker-a")).unwrap();
        }
        builder.into_batch().unwrap()
    };
    let first = batch(0..25, None);
    let body_at =
        |batch: &RecordBatch| batch.column_by_name("body").unwrap().as_binary::<i32>().values().as_ptr();
    let place = body_at(&first);
    let second = batch(25..50, Some(first));
    assert_eq!(body_at(&second), place);
    assert_eq!(second, batch(25..50, None));
    let third = batch(0..25, Some(second.clone()));
    assert_eq!(third, batch(0..25, None));
    assert_eq!(second, batch(25..50, None));
}
