//! The two kinds of message id. Both are upper-case hex of 32 or 56 digits: only decoding shows which one it is.
//!
//! # Source
//! docs/reference/protocol.md 4.7, docs/reference/client.md 4.4.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::sync::atomic::{AtomicU16, Ordering};

use rocketpy_model::PhysicalOffset;

use crate::wire::Reader;

/// Hex digits of an id with an IPv4 address.
pub const V4_DIGITS: usize = 32;
/// Hex digits of an id with an IPv6 address.
pub const V6_DIGITS: usize = 56;

/// Why a text is no message id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum MessageIdError {
    #[error("message id must have 32 or 56 hex digits: {length}")]
    Length { length: usize },
    #[error("message id must have hex digits only: {character:?}")]
    Digit { character: char },
    #[error("invalid port in the message id: {port}")]
    Port { port: u32 },
    #[error("negative offset in the message id: {offset}")]
    Offset { offset: i64 },
}

/// The id of a stored message by its place: who stored it and where in the commit log.
///
/// # Layout
/// Address (4 or 16 bytes), port (4 bytes), physical offset (8 bytes), as upper-case hex.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[doc(alias = "MessageId")]
pub struct OffsetMessageId {
    /// Address of the broker that stored the message.
    pub host: SocketAddr,
    /// Where the record begins in its log.
    pub physical_offset: PhysicalOffset,
}

impl OffsetMessageId {
    /// Appends the id's text to `out`, for lists of many.
    pub fn write(&self, out: &mut String) {
        let (bytes, length) = self.to_bytes();
        push_hex(out, &bytes[..length]);
    }

    fn to_bytes(self) -> ([u8; 28], usize) {
        let mut bytes = [0; 28];
        let at = put_address(&mut bytes, self.host.ip());
        bytes[at..at + 4].copy_from_slice(&u32::from(self.host.port()).to_be_bytes());
        bytes[at + 4..at + 12].copy_from_slice(&self.physical_offset.get().to_be_bytes());
        (bytes, at + 12)
    }
}

impl fmt::Display for OffsetMessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::with_capacity(V6_DIGITS);
        self.write(&mut text);
        f.write_str(&text)
    }
}

impl FromStr for OffsetMessageId {
    type Err = MessageIdError;

    fn from_str(text: &str) -> Result<Self, MessageIdError> {
        let (bytes, length) = from_hex(text)?;
        let (address, mut rest) = split_address(&bytes[..length]);
        let port = rest.u32().unwrap_or_default();
        let port = u16::try_from(port).map_err(|_| MessageIdError::Port { port })?;
        let offset = rest.i64().unwrap_or_default();
        let physical_offset = u64::try_from(offset).map_err(|_| MessageIdError::Offset { offset })?;
        Ok(Self { host: SocketAddr::new(address, port), physical_offset: PhysicalOffset(physical_offset) })
    }
}

/// The id that a client gives a message, stored as property `UNIQ_KEY`, taken apart.
///
/// # Layout
/// Address (4 or 16 bytes), process id (2), process hash (4), milliseconds since the start of the month (4), counter (2), as
/// upper-case hex.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UniqueKey {
    /// Address of the client.
    pub address: IpAddr,
    /// The process id's low 16 bits.
    pub process_id: u16,
    /// A number that stays the same in a process and differs between processes.
    pub hash: u32,
    /// Milliseconds since the first day of the month, local time of the sender.
    pub month_ms: u32,
    /// One more for each id.
    pub counter: u16,
}

impl UniqueKey {
    /// Appends the key's text to `out`.
    pub fn write(&self, out: &mut String) {
        let mut bytes = [0; 28];
        let at = put_address(&mut bytes, self.address);
        bytes[at..at + 2].copy_from_slice(&self.process_id.to_be_bytes());
        bytes[at + 2..at + 6].copy_from_slice(&self.hash.to_be_bytes());
        bytes[at + 6..at + 10].copy_from_slice(&self.month_ms.to_be_bytes());
        bytes[at + 10..at + 12].copy_from_slice(&self.counter.to_be_bytes());
        push_hex(out, &bytes[..at + 12]);
    }
}

impl fmt::Display for UniqueKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::with_capacity(V6_DIGITS);
        self.write(&mut text);
        f.write_str(&text)
    }
}

impl FromStr for UniqueKey {
    type Err = MessageIdError;

    fn from_str(text: &str) -> Result<Self, MessageIdError> {
        let (bytes, length) = from_hex(text)?;
        let (address, mut rest) = split_address(&bytes[..length]);
        let process_id = rest.u16().unwrap_or_default();
        let hash = rest.u32().unwrap_or_default();
        let month_ms = rest.u32().unwrap_or_default();
        let counter = rest.u16().unwrap_or_default();
        Ok(Self { address, process_id, hash, month_ms, counter })
    }
}

/// Makes unique keys for one process. Shared by all its producers; a forked child makes its own, or both make the same keys.
#[derive(Debug)]
#[doc(alias = "MessageClientIDSetter")]
pub struct UniqueKeys {
    address: IpAddr,
    process_id: u16,
    hash: u32,
    counter: AtomicU16,
}

/// How far before the start of the month the clock may be and still count as set back: about 17 minutes.
const CLOCK_STEP_MS: i64 = 1_000_000;

impl UniqueKeys {
    /// `hash` is any number that stays the same in this process and differs between processes.
    #[must_use]
    pub const fn new(address: IpAddr, process_id: u32, hash: u32) -> Self {
        Self { address, process_id: process_id as u16, hash, counter: AtomicU16::new(0) }
    }

    /// The next key at `now_ms`, in the month that began (local time) at `month_start_ms`. The counter repeats after 65,536
    /// keys: no more may be made in one millisecond.
    pub fn next(&self, now_ms: i64, month_start_ms: i64) -> UniqueKey {
        let elapsed = now_ms - month_start_ms;
        let elapsed = if (-CLOCK_STEP_MS..0).contains(&elapsed) { 0 } else { elapsed };
        UniqueKey {
            address: self.address,
            process_id: self.process_id,
            hash: self.hash,
            month_ms: elapsed as u32,
            counter: self.counter.fetch_add(1, Ordering::Relaxed),
        }
    }
}

/// The start of the month that holds `now_ms`, for a clock that is `utc_offset_ms` ahead of UTC.
///
/// # Units
/// Unix milliseconds.
#[must_use]
pub const fn month_start_ms(now_ms: i64, utc_offset_ms: i64) -> i64 {
    const DAY_MS: i64 = 86_400_000;
    let local_day = (now_ms + utc_offset_ms).div_euclid(DAY_MS);
    (local_day - day_of_month(local_day)) * DAY_MS - utc_offset_ms
}

/// Days since the first of the month (0 for the first), of a day counted from 1970-01-01.
///
/// Counts from 1 March of year 0 in eras of 400 years, so that a leap day is always the last day of its year.
const fn day_of_month(day: i64) -> i64 {
    let day_of_era = (day + 719_468).rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    day_of_year - (153 * month + 2) / 5
}

fn put_address(bytes: &mut [u8; 28], address: IpAddr) -> usize {
    match address {
        IpAddr::V4(address) => {
            bytes[..4].copy_from_slice(&address.octets());
            4
        }
        IpAddr::V6(address) => {
            bytes[..16].copy_from_slice(&address.octets());
            16
        }
    }
}

/// Splits the address off an id of 16 or 28 bytes, which [`from_hex`] made sure of.
fn split_address(bytes: &[u8]) -> (IpAddr, Reader<'_>) {
    let mut reader = Reader::new(bytes);
    let address = if bytes.len() * 2 == V4_DIGITS {
        IpAddr::V4(Ipv4Addr::from(reader.array::<4>().unwrap_or_default()))
    } else {
        IpAddr::V6(Ipv6Addr::from(reader.array::<16>().unwrap_or_default()))
    };
    (address, reader)
}

fn push_hex(out: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.reserve(bytes.len() * 2);
    for &byte in bytes {
        out.push(char::from(DIGITS[usize::from(byte >> 4)]));
        out.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}

fn from_hex(text: &str) -> Result<([u8; 28], usize), MessageIdError> {
    let length = text.len();
    if length != V4_DIGITS && length != V6_DIGITS {
        return Err(MessageIdError::Length { length });
    }
    if let Some(character) = text.chars().find(|character| !character.is_ascii_hexdigit()) {
        return Err(MessageIdError::Digit { character });
    }
    let value = |digit: u8| char::from(digit).to_digit(16).map_or(0, |value| value as u8);
    let mut bytes = [0; 28];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = value(pair[0]) << 4 | value(pair[1]);
    }
    Ok((bytes, length / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_id_reads_back() {
        for text in [
            "0A00000200002A9F000000000001E240",
            "0A00000500002A9F000000000012D687",
            "20010DB800000000000000000000000200002A9F0000000102030405",
        ] {
            let id: OffsetMessageId = text.parse().unwrap();
            assert_eq!(id.to_string(), text);
            assert_eq!(id.host.port(), 10_911);
        }
    }

    #[test]
    fn texts_that_are_no_ids_are_refused() {
        let parse = |text: &str| text.parse::<OffsetMessageId>();
        assert_eq!(parse("0A"), Err(MessageIdError::Length { length: 2 }));
        assert_eq!(parse(&"é".repeat(16)), Err(MessageIdError::Digit { character: 'é' }));
        assert_eq!(parse(&"FF".repeat(16)), Err(MessageIdError::Port { port: u32::MAX }));
        let negative = "0A00000200002A9FFFFFFFFFFFFFFFFF";
        assert_eq!(parse(negative), Err(MessageIdError::Offset { offset: -1 }));
    }

    #[test]
    fn a_unique_key_reads_back() {
        let keys = UniqueKeys::new("192.168.1.2".parse().unwrap(), 12_345, 0x18B4_AAC2);
        let three_days = 3 * 86_400_000 + 4 * 3_600_000 + 5;
        let key = (0..8).map(|_| keys.next(three_days, 0)).last().unwrap();
        assert_eq!(key.to_string(), "C0A80102303918B4AAC2104ECE050007");
        assert_eq!("C0A80102303918B4AAC2104ECE050007".parse(), Ok(key));
        assert_eq!(keys.next(-5, 0).month_ms, 0, "a small step back counts as the start of the month");
    }

    #[test]
    fn months_start_at_local_midnight_of_their_first_day() {
        const HOUR: i64 = 3_600_000;
        // 2024-02-29T12:00Z, 2024-03-01T00:00Z, 1970-01-01, 2000-12-31T23:30Z in a zone an hour ahead.
        assert_eq!(month_start_ms(1_709_208_000_000, 0), 1_706_745_600_000);
        assert_eq!(month_start_ms(1_709_251_200_000, 0), 1_709_251_200_000);
        assert_eq!(month_start_ms(0, 0), 0);
        assert_eq!(month_start_ms(978_305_400_000, HOUR), 978_307_200_000 - HOUR);
        assert_eq!(month_start_ms(978_305_400_000, 0), 975_628_800_000);
    }
}
