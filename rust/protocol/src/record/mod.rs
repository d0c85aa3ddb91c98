//! The stored message: the record of the commit log, which is also what a pull response carries.
//!
//! # Layout
//! All integers big-endian. Offsets hold for IPv4 hosts; an IPv6 host has 20 bytes instead of 8 and moves what follows by 12.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | `total_size`, these 4 bytes included |
//! | 4 | 4 | magic: [`MAGIC_V1`], [`MAGIC_V2`] or [`MAGIC_BLANK`] |
//! | 8 | 4 | CRC-32 of the body as stored, top bit cleared |
//! | 12 | 4 | `queue_id` |
//! | 16 | 4 | `flag` |
//! | 20 | 8 | `queue_offset` |
//! | 28 | 8 | `physical_offset` |
//! | 36 | 4 | `sys_flag` |
//! | 40 | 8 | `born_at_ms` |
//! | 48 | 8 | `born_host`: address, then port in 4 bytes |
//! | 56 | 8 | `stored_at_ms` |
//! | 64 | 8 | `store_host` |
//! | 72 | 4 | `reconsume_times` |
//! | 76 | 8 | `prepared_transaction_offset` |
//! | 84 | 4 | body length, then the body |
//! | | 1 or 2 | topic length (V1 one byte, V2 two), then the topic |
//! | | 2 | properties length, then the properties |
//!
//! # Source
//! docs/reference/protocol.md 4.1, docs/reference/store-format.md 2.

mod check;
mod crc;
mod encode;
mod error;
mod head;
mod mark;
mod view;

pub use check::{CheckMode, RecordCheck, check_record, ends_in_its_crc};
pub use crc::{CRC_PROPERTY_BYTES, body_crc, crc31};
pub use encode::{RecordFields, RecordPlan};
pub use error::{RecordEncodeError, RecordError};
pub use head::RecordHead;
pub use mark::{MARK_TAG, marked_halves};
pub use view::{RecordVersion, RecordView, Records, records};

/// Magic of a record whose topic length has one byte.
pub const MAGIC_V1: u32 = 0xDAA3_20A7;
/// Magic of a record whose topic length has two bytes.
pub const MAGIC_V2: u32 = 0xDAA3_20AB;
/// Magic of the filler at the end of a commit log file; never on the wire.
pub const MAGIC_BLANK: u32 = 0xCBD4_3194;

/// Bytes of a V1 record with IPv4 hosts and neither body, topic nor properties.
pub const FIXED_BYTES_V1: usize = 91;
/// Bytes that must stay free behind a record in its file: room for the filler's head.
pub const BLANK_HEAD_BYTES: usize = 8;
/// Longest topic that a V1 record can hold: its length is one signed byte.
pub const TOPIC_MAX_BYTES_V1: usize = i8::MAX as usize;
/// Longest topic at all.
pub const TOPIC_MAX_BYTES: usize = 255;

/// Where `queue_offset` stands.
pub const QUEUE_OFFSET_AT: usize = 20;
/// Where `physical_offset` stands.
pub const PHYSICAL_OFFSET_AT: usize = 28;
/// Where `sys_flag` stands.
pub const SYS_FLAG_AT: usize = 36;
/// Where `stored_at_ms` stands when the born host is IPv4.
pub const STORED_AT_AT_V4: usize = 56;
/// Where `stored_at_ms` stands when the born host is IPv6.
pub const STORED_AT_AT_V6: usize = 68;

/// The head of the filler that covers the last `remaining` bytes of a commit log file.
///
/// # Source
/// docs/reference/store-format.md 2.4.
#[must_use]
pub const fn blank_head(remaining: u32) -> [u8; BLANK_HEAD_BYTES] {
    let size = remaining.to_be_bytes();
    let magic = MAGIC_BLANK.to_be_bytes();
    [size[0], size[1], size[2], size[3], magic[0], magic[1], magic[2], magic[3]]
}
