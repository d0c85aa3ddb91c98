//! Vectors of docs/reference/protocol.md 10.12 and docs/reference/store-format.md 15.1: small values.

use std::net::SocketAddr;

use rocketpy_filter::{hash_code, key_hash_code};
use rocketpy_model::PhysicalOffset;
use rocketpy_protocol::compression::{self, CompressionType, DecompressLimits};
use rocketpy_protocol::disk::{IndexEntry, IndexHeader, index};
use rocketpy_protocol::handle::{PopCheckPoint, PopTopic, RecallHandle, decode_bit_set, encode_bit_set};
use rocketpy_protocol::message_id::{OffsetMessageId, UniqueKeys};
use rocketpy_protocol::record::body_crc;
use rocketpy_protocol::{Command, code, signature};

use crate::golden::vector;

#[test]
fn body_checksums_10_12() {
    assert_eq!(body_crc(b"hello"), 0x3610_A686);
    assert_eq!(body_crc(b"123456789"), 1_274_296_614);
    assert_eq!(body_crc(b""), 0);
}

#[test]
fn hashes_15_1() {
    for (text, hash) in [
        ("TagA", 2_598_919),
        ("order-created", -392_709_271),
        ("topicA", -868_034_318),
        ("topicA#key1", -1_026_010_461),
        ("polygenelubricants", i32::MIN),
        ("topicA#\u{4e2d}\u{6587}", 388_401_707),
    ] {
        assert_eq!(hash_code(text), hash, "{text}");
        if let Some((topic, key)) = text.split_once('#') {
            assert_eq!(key_hash_code(topic, key), hash, "{text}");
        }
    }
}

#[test]
fn index_slot_15_1() {
    let key_hash = index::key_hash(key_hash_code("topicA", "key1"));
    assert_eq!(key_hash, 0x3d27_ad5d);
    let slot = index::slot_of(key_hash, index::SLOTS);
    assert_eq!((slot, index::slot_position(slot)), (1_010_461, 4_041_884));
    assert_eq!(index::key_hash(hash_code("polygenelubricants")), 0, "the number without an absolute value");
    assert_eq!(index::key_hash(i32::MAX), 0x7fff_ffff);
}

/// Puts a key as a file of the format does; returns its entry.
fn put(header: &mut IndexHeader, physical_offset: u64, stored_at_ms: i64, previous: u32) -> IndexEntry {
    let physical_offset = PhysicalOffset(physical_offset);
    let key_hash = index::key_hash(key_hash_code("topicA", "key1"));
    let seconds = header.seconds_since_begin(stored_at_ms);
    header.count(physical_offset, stored_at_ms, previous == 0);
    IndexEntry { key_hash, physical_offset, seconds, previous }
}

#[test]
fn index_file_15_3() {
    const T: i64 = 1_700_000_000_123;
    assert_eq!(index::file_bytes(index::SLOTS, index::ENTRIES), 420_000_040);
    assert_eq!(
        (index::entry_position(1, index::SLOTS), index::entry_position(2, index::SLOTS)),
        (20_000_060, 20_000_080)
    );
    let mut header = IndexHeader::default();
    let first = put(&mut header, 123_456_789, T, 0);
    assert_eq!(first.encode(), *vector!("store-15.3-index-entry-first"));
    assert_eq!(header.encode(), *vector!("store-15.3-index-header-first"));
    let second = put(&mut header, 123_457_020, T + 5500, 1);
    assert_eq!(second.encode(), *vector!("store-15.3-index-entry-second"));
    assert_eq!(header.encode(), *vector!("store-15.3-index-header-second"));
    for entry in [first, second] {
        assert_eq!(IndexEntry::decode(&entry.encode()), entry);
    }
    assert_eq!(IndexHeader::decode(&header.encode()), header);
}

#[test]
fn index_file_after_a_full_one_15_3() {
    const FULL_AT: i64 = 1_700_000_000_000;
    let mut header = IndexHeader {
        begin_stored_at_ms: FULL_AT,
        end_stored_at_ms: FULL_AT,
        begin_physical_offset: PhysicalOffset(777),
        end_physical_offset: PhysicalOffset(777),
        ..IndexHeader::default()
    };
    assert_eq!(header.encode(), *vector!("store-15.3-index-header-follower"));
    let first = put(&mut header, 888, 1_700_000_009_000, 0);
    assert_eq!(first.encode(), *vector!("store-15.3-index-entry-follower-first"));
    assert_eq!(header.encode(), *vector!("store-15.3-index-header-follower-first"));
}

#[test]
fn the_seconds_of_an_index_entry_stay_in_their_bounds() {
    let header = IndexHeader { begin_stored_at_ms: 10_000, ..IndexHeader::default() };
    assert_eq!(header.seconds_since_begin(11_999), 1, "whole seconds");
    assert_eq!(header.seconds_since_begin(0), 0, "a clock that stepped back");
    assert_eq!(header.seconds_since_begin(i64::MAX), i32::MAX as u32);
    assert_eq!(IndexHeader::default().seconds_since_begin(5_000_000), 0, "a file without a first key");
}

#[test]
fn message_ids_10_12() {
    let host: SocketAddr = "10.0.0.2:10911".parse().unwrap();
    let id = OffsetMessageId { host, physical_offset: PhysicalOffset(123_456) };
    assert_eq!(id.to_string(), "0A00000200002A9F000000000001E240");
    assert_eq!(id.to_string().parse(), Ok(id));

    let keys = UniqueKeys::new("10.0.0.1".parse().unwrap(), 0x1234, 0x18B4_AAC2);
    keys.next(0, 0);
    assert_eq!(keys.next(1000, 0).to_string(), "0A000001123418B4AAC2000003E80001");
}

#[test]
fn zlib_level_5_10_12() {
    let packed = vector!("remoting-10.12-zlib");
    let plain =
        compression::decompress(CompressionType::Zlib, &packed, &DecompressLimits::default()).unwrap();
    assert_eq!(plain, b"hello hello hello");
    assert_eq!(compression::compress(CompressionType::Zlib, 5, &plain).unwrap(), packed);
}

#[test]
fn signatures_10_12() {
    let signed = |fields: &[(&str, &str)], body: &'static [u8]| {
        let mut command = Command::bare_request(code::request::SEND_MESSAGE_V2).with_body(body);
        command.ext = fields.iter().copied().collect();
        signature::add(&mut command, "RocketMQ", "12345678");
        assert!(signature::is_signed(&command, "12345678"));
        assert!(!signature::is_signed(&command, "another"));
        let signature = command.ext.get("Signature").unwrap().to_owned();
        command.ext.push("added", "later");
        assert!(!signature::is_signed(&command, "12345678"), "a field more is another content");
        signature
    };
    assert_eq!(signed(&[("topic", "TopicTest")], b""), "0jiwhsaYp5ObE5GObbZH1I8/FT4=");
    let fields = [("m", "false"), ("a", "PG1"), ("b", "TopicTest"), ("SecurityToken", "tok")];
    assert_eq!(signed(&fields, b"hello"), "zuzL0CpwOuKZoxeAwcrRgmclis4=");
    let fields = [("topic", "TopicTest"), ("queueId", "0"), ("consumerGroup", "CG1")];
    assert_eq!(signed(&fields, b""), "HtUjItjAgU9jz8EBcVcdoR2NAXw=");
}

#[test]
fn a_field_added_after_signing_counts_from_4_9_4_on() {
    let mut command = Command::bare_request(code::request::QUERY_MESSAGE);
    signature::add(&mut command, "key", "secret");
    command.ext.push("_UNIQUE_KEY_QUERY", "true");
    command.version = 399;
    assert!(signature::is_signed(&command, "secret"));
    command.version = 401;
    assert!(!signature::is_signed(&command, "secret"));
}

#[test]
fn handles_10_12() {
    assert_eq!(encode_bit_set(&[0, 9]), "AQI=");
    assert_eq!(decode_bit_set("AQI="), Ok(vec![0, 9]));
    assert!(decode_bit_set("A").is_err());

    let handle = RecallHandle {
        topic: "TopicTest".to_owned(),
        broker_name: "b-a".to_owned(),
        deliver_at_ms: 1_700_000_060_000,
        unique_key: "0A000001123418B4AAC2000003E80001".to_owned(),
    };
    let text = "djEgVG9waWNUZXN0IGItYSAxNzAwMDAwMDYwMDAwIDBBMDAwMDAxMTIzNDE4QjRBQUMyMDAwMDAzRTgwMDAx";
    assert_eq!(handle.to_string(), text);
    assert_eq!(text.parse(), Ok(handle));
    assert!("djI=".parse::<RecallHandle>().is_err());

    let check_point = PopCheckPoint {
        start_offset: 100,
        popped_at_ms: 1_700_000_000_000,
        invisible_ms: 60_000,
        revive_queue_id: 3,
        topic: PopTopic::Normal,
        broker_name: "b-a".to_owned(),
        queue_id: 1,
        queue_offset: Some(105),
    };
    let text = "100 1700000000000 60000 3 0 b-a 1 105";
    assert_eq!(check_point.to_string(), text);
    assert_eq!(text.parse(), Ok(check_point.clone()));
    assert_eq!(
        "100 1700000000000 60000 3 0 b-a 1".parse(),
        Ok(PopCheckPoint { queue_offset: None, ..check_point })
    );
    assert!("100 1700000000000 60000 3 7 b-a 1".parse::<PopCheckPoint>().is_err());
}
