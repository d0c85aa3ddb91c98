//! The record's own checksum: put together from parts it equals a hash of the whole, and it catches every damaged byte.

use std::net::SocketAddr;

use rocketpy_model::{PhysicalOffset, QueueOffset};
use rocketpy_protocol::record::{
    CRC_PROPERTY_BYTES, CheckMode, RecordEncodeError, RecordFields, RecordVersion, RecordView, check_record,
    crc31,
};

const V4: &str = "10.0.0.1:50000";
const V6: &str = "[2001:db8::1]:50000";

fn fields<'a>(topic: &'a str, body: &'a [u8], properties: &'a [u8], born_host: &str) -> RecordFields<'a> {
    RecordFields {
        topic,
        queue_id: 3,
        flag: -1,
        sys_flag: 0x30,
        born_at_ms: 1_700_000_000_000,
        born_host: born_host.parse().unwrap(),
        store_host: "10.0.0.2:10911".parse().unwrap(),
        reconsume_times: 2,
        prepared_transaction_offset: PhysicalOffset(9),
        body,
        properties,
        may_have_crc: true,
    }
}

fn encode(fields: &RecordFields<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    let plan = fields.encode(true, &mut out).unwrap();
    plan.finish(&mut out, QueueOffset(42), PhysicalOffset(1 << 40), 1_700_000_000_123);
    out
}

/// The ten digits of a record, read back by the rule of the specification: least significant first.
fn stated(record: &[u8]) -> u32 {
    let digits = &record[record.len() - 11..record.len() - 1];
    let text: String = digits.iter().rev().map(|&digit| char::from(digit)).collect();
    text.parse().unwrap()
}

#[test]
fn parts_put_together_equal_a_hash_of_the_whole() {
    let bytes: Vec<u8> =
        (0..70_000u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for born_host in [V4, V6] {
        for length in (0..512).chain([1024, 4095, 65_536, 70_000]) {
            let record = encode(&fields("TopicTest", &bytes[..length], b"TAGS\x01a\x02", born_host));
            let whole = crc31(&record[..record.len() - CRC_PROPERTY_BYTES]);
            assert_eq!(stated(&record), whole, "{born_host} {length}");
            assert!(check_record(&record, CheckMode::RecordRequired).is_ok());
        }
    }
}

#[test]
fn a_body_that_may_be_left_out_gives_the_same_record() {
    let cases =
        [(V4, true, 0, false), (V4, true, 100, false), (V4, true, 1000, true), (V6, true, 70_000, true)];
    for (born_host, check, length, left_out) in cases.into_iter().chain([(V6, false, 7, true)]) {
        let body = vec![b'b'; length];
        let fields = fields("TopicTest", &body, b"TAGS\x01a\x02", born_host);
        let (mut whole, mut apart) = (Vec::new(), b"before".to_vec());
        let plan = fields.encode(check, &mut whole).unwrap();
        plan.finish(&mut whole, QueueOffset(7), PhysicalOffset(8), 9);
        let plan = fields.encode_apart(check, &mut apart).unwrap();
        assert_eq!((plan.size(), plan.encoded_size()), (whole.len(), apart.len() - 6));
        plan.finish(&mut apart[6..], QueueOffset(7), PhysicalOffset(8), 9);
        assert_eq!(plan.left_out_at().is_some(), left_out, "{born_host} {check} {length}");
        if let Some(at) = plan.left_out_at() {
            apart.splice(6 + at..6 + at, body.iter().copied());
        }
        assert_eq!(apart[6..], whole, "{born_host} {check} {length}");
    }
}

#[test]
fn a_record_can_be_finished_again_for_another_place() {
    let fields = fields("TopicTest", b"body", b"", V4);
    let mut record = Vec::new();
    let plan = fields.encode(true, &mut record).unwrap();
    for place in [0, 1, u64::from(u32::MAX), 1 << 62] {
        plan.finish(&mut record, QueueOffset(place), PhysicalOffset(place), place as i64);
        let view = RecordView::parse(&record).unwrap();
        assert_eq!(
            (view.queue_offset.get(), view.physical_offset.get(), view.stored_at_ms),
            (place, place, place as i64)
        );
        assert!(check_record(&record, CheckMode::RecordRequired).is_ok());
    }
}

#[test]
fn every_damaged_byte_is_found() {
    let record = encode(&fields("TopicTest", b"a body", b"TAGS\x01TagA\x02", V4));
    for at in 0..record.len() {
        for bit in 0..8 {
            let mut damaged = record.clone();
            damaged[at] ^= 1 << bit;
            assert!(check_record(&damaged, CheckMode::RecordRequired).is_err(), "byte {at} bit {bit}");
        }
    }
    let mut damaged = record;
    damaged[20] ^= 1;
    assert!(check_record(&damaged, CheckMode::Body).is_ok(), "the body's checksum does not see the head");
}

#[test]
fn a_checksum_that_came_with_the_message_is_replaced() {
    let record = encode(&fields("T", b"b", b"__CRC32#\x011234567890\x02TAGS\x01a\x02", V4));
    let view = RecordView::parse(&record).unwrap();
    assert_eq!(view.properties.len(), b"TAGS\x01a\x02".len() + CRC_PROPERTY_BYTES);
    assert!(check_record(&record, CheckMode::RecordRequired).is_ok());
}

#[test]
fn a_checksum_follows_the_properties_after_one_separator() {
    let text_of = |properties: &[u8], crc: bool| {
        let mut record = Vec::new();
        fields("T", b"b", properties, V4).encode(crc, &mut record).unwrap();
        RecordView::parse(&record).unwrap().properties.to_vec()
    };
    assert_eq!(text_of(b"a\x011", false), b"a\x011");
    assert_eq!(text_of(b"a\x011", true), b"a\x011\x02__CRC32#\x010000000000\x02");
    assert_eq!(text_of(b"a\x011\x02", true), b"a\x011\x02__CRC32#\x010000000000\x02");
    assert_eq!(text_of(b"", true), b"__CRC32#\x010000000000\x02");
}

#[test]
fn host_bits_follow_the_hosts_and_long_topics_take_the_wide_layout() {
    let long = format!("%RETRY%{}", "g".repeat(121));
    let record = encode(&fields(&long, b"b", b"", V6));
    let view = RecordView::parse(&record).unwrap();
    assert_eq!((view.sys_flag, view.version, view.topic), (0x10, RecordVersion::V2, long.as_str()));
    assert_eq!(view.born_host, V6.parse::<SocketAddr>().unwrap());
    let record = encode(&fields(&long[..127], b"b", b"", V4));
    let view = RecordView::parse(&record).unwrap();
    assert_eq!((view.sys_flag, view.version), (0, RecordVersion::V1));
}

#[test]
fn what_does_not_fit_is_refused_and_leaves_the_buffer_alone() {
    let mut out = b"kept".to_vec();
    let topic = "t".repeat(256);
    let refused = fields(&topic, b"", b"", V4).encode(false, &mut out);
    assert_eq!(refused, Err(RecordEncodeError::TopicTooLong { length: 256, limit: 255 }));
    let properties = [b"a\x01".as_slice(), &vec![b'v'; 32_765]].concat();
    assert!(fields("t", b"", &properties, V4).encode(false, &mut out).is_ok(), "32,767 bytes fit");
    out.truncate(4);
    let refused = fields("t", b"", &properties, V4).encode(true, &mut out);
    assert_eq!(refused, Err(RecordEncodeError::PropertiesTooLong { length: 32_768, limit: 32_747 }));
    assert_eq!(out, b"kept");
}

#[test]
fn a_checksum_that_a_sender_made_up_is_dropped_from_records_without_one_too() {
    let forged = b"TAGS\x01a\x02__CRC32#\x011234567890\x02";
    let mut record = Vec::new();
    let plan = fields("T", b"b", forged, V4).encode(false, &mut record).unwrap();
    plan.finish(&mut record, QueueOffset(0), PhysicalOffset(0), 1);
    assert_eq!(RecordView::parse(&record).unwrap().properties, b"TAGS\x01a\x02");
    check_record(&record, CheckMode::Record).unwrap();
}
