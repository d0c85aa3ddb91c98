//! Vectors of docs/reference/protocol.md 10.6 to 10.8 and 10.10, and of docs/reference/store-format.md 15.2, 15.4 and 15.5: records, batches, small files.

use rocketpy_model::{PhysicalOffset, QueueOffset};
use rocketpy_protocol::batch::{self, BatchItem};
use rocketpy_protocol::compression::DecompressLimits;
use rocketpy_protocol::disk::{
    Checkpoint, ConsumeQueueEntry, ExtensionUnit, extension_address, extension_offset,
};
use rocketpy_protocol::record::{
    CheckMode, RecordCheck, RecordError, RecordFields, RecordHead, RecordVersion, RecordView, blank_head,
    check_record, ends_in_its_crc,
};

use crate::golden::vector;

const BORN_AT: i64 = 1_700_000_000_000;
const T: i64 = 1_700_000_000_123;

/// Encodes what `view` says and checks that the same bytes come out.
fn encodes_to_itself(view: &RecordView<'_>, properties: &[u8], record_crc: bool) {
    let fields = RecordFields {
        topic: view.topic,
        queue_id: view.queue_id,
        flag: view.flag,
        sys_flag: view.sys_flag,
        born_at_ms: view.born_at_ms,
        born_host: view.born_host,
        store_host: view.store_host,
        reconsume_times: view.reconsume_times,
        prepared_transaction_offset: view.prepared_transaction_offset,
        body: view.body,
        properties,
        may_have_crc: true,
    };
    let mut out = b"before".to_vec();
    let plan = fields.encode(record_crc, &mut out).unwrap();
    assert_eq!(plan.size(), view.size());
    plan.finish(&mut out[6..], view.queue_offset, view.physical_offset, view.stored_at_ms);
    assert_eq!(&out[6..], view.bytes);
}

#[test]
fn record_v1_10_6() {
    let bytes = vector!("remoting-10.06-record-v1");
    let view = RecordView::parse(&bytes).unwrap();
    assert_eq!((view.size(), view.version), (157, RecordVersion::V1));
    assert_eq!((view.queue_id, view.flag, view.sys_flag), (2, 0, 0));
    assert_eq!((view.queue_offset, view.physical_offset), (QueueOffset(41), PhysicalOffset(123_456)));
    assert_eq!((view.born_at_ms, view.stored_at_ms), (BORN_AT, T));
    let head = RecordHead::of(&bytes).unwrap();
    assert!(head.is_record() && RecordHead::of(&bytes[..RecordHead::BYTES - 1]).is_none());
    assert_eq!((head.size_bytes(), head.queue_id(), head.stored_at_ms()), (157, 2, T));
    assert_eq!((head.queue_offset(), head.physical_offset()), (view.queue_offset, view.physical_offset));
    assert_eq!(view.born_host, "10.0.0.1:50000".parse().unwrap());
    assert_eq!(view.store_host, "10.0.0.2:10911".parse().unwrap());
    assert_eq!((view.reconsume_times, view.prepared_transaction_offset), (0, PhysicalOffset::ZERO));
    assert_eq!((view.body, view.topic), (&b"hello"[..], "TopicTest"));
    assert_eq!((view.tag(), view.unique_key()), (Some("TagA"), Some("0A000001123418B4AAC2000003E80001")));
    assert_eq!(view.body_crc, 907_060_870);
    assert_eq!(view.offset_message_id().to_string(), "0A00000200002A9F000000000001E240");
    assert_eq!(check_record(&bytes, CheckMode::Record), Ok(RecordCheck::Record(view)));
    assert_eq!(check_record(&bytes, CheckMode::RecordRequired), Err(RecordError::NoRecordCrc));
    encodes_to_itself(&view, view.properties, false);
}

#[test]
fn record_v2_with_ipv6_hosts_10_7() {
    let bytes = vector!("remoting-10.07-record-v2-ipv6");
    let view = RecordView::parse(&bytes).unwrap();
    assert_eq!((view.size(), view.version), (146, RecordVersion::V2));
    assert_eq!((view.queue_id, view.flag, view.sys_flag), (3, 7, 0x30));
    assert_eq!(RecordHead::of(&bytes).unwrap().stored_at_ms(), T);
    assert_eq!((view.queue_offset, view.physical_offset), (QueueOffset(42), PhysicalOffset(0x01_0203_0405)));
    assert_eq!(view.born_host, "[2001:db8::1]:50000".parse().unwrap());
    assert_eq!(view.store_host, "[2001:db8::2]:10911".parse().unwrap());
    assert_eq!((view.born_at_ms, view.stored_at_ms, view.reconsume_times), (BORN_AT, T, 1));
    assert_eq!((view.topic, view.keys()), ("%RETRY%group_a", Some("k1 k2")));
    assert_eq!(
        view.offset_message_id().to_string(),
        "20010DB800000000000000000000000200002A9F0000000102030405"
    );
    assert!(check_record(&bytes, CheckMode::Body).is_ok());
}

#[test]
fn compressed_record_10_8() {
    let bytes = vector!("remoting-10.08-record-compressed");
    let view = RecordView::parse(&bytes).unwrap();
    assert_eq!((view.size(), view.sys_flag, view.topic), (108, 0x301, "T"));
    assert_eq!((view.body.len(), view.body_crc), (16, 0x6AAB_DE33));
    assert_eq!(&*view.plain_body(&DecompressLimits::default()).unwrap(), b"hello hello hello");
    assert!(check_record(&bytes, CheckMode::Body).is_ok());
    encodes_to_itself(&view, b"", false);
}

#[test]
fn batch_10_10() {
    let bytes = vector!("remoting-10.10-batch");
    let expected = [
        BatchItem { flag: 0, body: b"m1", properties: b"TAGS\x01a\x02" },
        BatchItem { flag: 5, body: b"m22", properties: b"" },
    ];
    assert_eq!(batch::items(&bytes).collect::<Result<Vec<_>, _>>().unwrap(), expected);
    let mut out = Vec::new();
    for item in expected {
        item.encode(&mut out).unwrap();
    }
    assert_eq!(out, bytes);
    assert_eq!(out.len(), 56);
}

#[test]
fn consume_queue_entries_15_2() {
    let entry = |tags_code| ConsumeQueueEntry {
        physical_offset: PhysicalOffset(123_456_789),
        size_bytes: 231,
        tags_code,
    };
    for (bytes, expected) in [
        (vector!("store-15.2-queue-entry-tag"), entry(2_598_919)),
        (vector!("store-15.2-queue-entry-no-tag"), entry(0)),
        (vector!("store-15.2-queue-entry-negative-tag"), entry(-392_709_271)),
        (vector!("store-15.2-queue-entry-schedule"), entry(T + 10_000)),
        (vector!("store-15.2-queue-entry-preblank"), ConsumeQueueEntry::PRE_BLANK),
    ] {
        assert_eq!(&expected.encode()[..], bytes);
        assert_eq!(ConsumeQueueEntry::decode(bytes.as_slice().try_into().unwrap()), expected);
    }
}

#[test]
fn extension_unit_15_2() {
    let bytes = vector!("store-15.2-extension-unit");
    let unit = ExtensionUnit { tags_code: 2_598_919, stored_at_ms: T, bitmap: &[0; 14] };
    assert_eq!(unit.encode().as_ref(), Some(&bytes));
    assert_eq!(ExtensionUnit::decode(&bytes), Some(unit));
    let longer = [&bytes[..], b"next"].concat();
    assert_eq!(ExtensionUnit::decode(&longer), Some(unit));
    assert_eq!(ExtensionUnit::decode(&bytes[..33]), None, "cut");
    assert_eq!(ExtensionUnit::decode(&[0xff; 40]), None, "the end of a file");
    assert_eq!(ExtensionUnit::decode(&[0; 40]), None, "nothing written");
    let [most, more] = [32_747, 32_748].map(|length| vec![0; length]);
    assert!(ExtensionUnit { bitmap: &most, ..unit }.encode().is_some_and(|bytes| bytes.len() == 32_767));
    assert_eq!(ExtensionUnit { bitmap: &more, ..unit }.encode(), None);
}

#[test]
fn extension_addresses_15_2() {
    assert_eq!(extension_address(0).to_be_bytes(), 0x8000_0000_0000_0000_u64.to_be_bytes());
    assert_eq!(extension_address(34).to_be_bytes(), 0x8000_0000_0000_0022_u64.to_be_bytes());
    assert_eq!(extension_offset(i64::MIN), Some(0));
    assert_eq!(extension_offset(extension_address(34)), Some(34));
    assert_eq!(extension_offset(-2_147_483_649).map(extension_address), Some(-2_147_483_649));
    for tags_code in [i64::from(i32::MIN), -392_709_271, 0, T + 10_000] {
        assert_eq!(extension_offset(tags_code), None, "{tags_code}");
    }
}

#[test]
fn checkpoint_15_4() {
    let bytes = vector!("store-15.4-checkpoint");
    let checkpoint = Checkpoint {
        physic_msg_at_ms: T,
        logics_msg_at_ms: T - 500,
        index_msg_at_ms: T - 60_000,
        master_flushed_offset: PhysicalOffset(0),
        confirm_offset: PhysicalOffset(123_456_789),
    };
    assert_eq!(&checkpoint.encode()[..], bytes);
    assert_eq!(Checkpoint::decode(bytes.as_slice().try_into().unwrap()), checkpoint);
    assert_eq!(checkpoint.min_timestamp_ms(), 1_699_999_996_623);
}

#[test]
fn fillers_15_5() {
    assert_eq!(&blank_head(100)[..], vector!("store-15.5-blank-100"));
    assert_eq!(&blank_head(8)[..], vector!("store-15.5-blank-8"));
    assert_eq!(check_record(&blank_head(8), CheckMode::Record), Ok(RecordCheck::Blank { remaining: 8 }));
    assert!(check_record(&blank_head(100), CheckMode::Record).is_err(), "it covers more than there is");
}

#[test]
fn record_r1_15_5() {
    let bytes = vector!("store-15.5-record-r1");
    let view = RecordView::parse(&bytes).unwrap();
    assert_eq!((view.size(), view.queue_id, view.topic), (154, 3, "topicA"));
    assert_eq!((view.queue_offset, view.physical_offset), (QueueOffset(42), PhysicalOffset(123_456_789)));
    assert_eq!(view.born_host, "127.0.0.1:50000".parse().unwrap());
    assert_eq!(view.property("UNIQ_KEY"), Some("7F00000100002A9F0000000000000001"));
    assert_eq!(view.offset_message_id().to_string(), "0A00000500002A9F00000000075BCD15");
    encodes_to_itself(&view, view.properties, false);
}

#[test]
fn record_r2_with_its_own_checksum_15_5() {
    let bytes = vector!("store-15.5-record-r2-crc");
    let RecordCheck::Record(view) = check_record(&bytes, CheckMode::RecordRequired).unwrap() else {
        panic!("a record, not a filler");
    };
    assert_eq!((view.size(), view.property("__CRC32#")), (132, Some("5237264341")));
    assert!(ends_in_its_crc(&bytes));
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        assert!(!ends_in_its_crc(&damaged), "byte {at}");
    }
    assert!(!ends_in_its_crc(&vector!("store-15.5-record-r1")), "it has none");
    encodes_to_itself(&view, b"TAGS\x01TagA\x02", true);
    encodes_to_itself(&view, b"TAGS\x01TagA", true);
    encodes_to_itself(&view, view.properties, true);
}

#[test]
fn record_r3_in_v2_layout_15_5() {
    let bytes = vector!("store-15.5-record-r3-v2");
    let view = RecordView::parse(&bytes).unwrap();
    assert_eq!((view.size(), view.version, view.topic), (103, RecordVersion::V2, "topicA"));
    assert_eq!(view.properties, b"");
    assert!(check_record(&bytes, CheckMode::Record).is_ok());
}
