//! Vectors of spec/remoting.md 10.12 and spec/store.md 15.1: small values.

use std::net::SocketAddr;

use rocketpy_model::PhysicalOffset;
use rocketpy_protocol::compression::{self, CompressionType, DecompressLimits};
use rocketpy_protocol::message_id::{OffsetMessageId, UniqueKeys};
use rocketpy_protocol::record::body_crc;

use crate::golden::vector;

#[test]
fn body_checksums_10_12() {
    assert_eq!(body_crc(b"hello"), 0x3610_A686);
    assert_eq!(body_crc(b"123456789"), 1_274_296_614);
    assert_eq!(body_crc(b""), 0);
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
