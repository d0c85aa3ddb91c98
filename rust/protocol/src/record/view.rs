//! A record read in place.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rocketpy_model::{CompressionType, PhysicalOffset, QueueOffset, property, sys_flag};

use super::{
    MAGIC_V1, MAGIC_V2, PHYSICAL_OFFSET_AT, QUEUE_OFFSET_AT, RecordError, STORED_AT_AT_V4, SYS_FLAG_AT,
};
use crate::compression::{self, CompressionError, DecompressLimits};
use crate::message_id::OffsetMessageId;
use crate::properties_text;
use crate::wire::Reader;

/// How wide the topic length of a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[doc(alias = "MessageVersion")]
pub enum RecordVersion {
    /// One signed byte; every client reads this.
    V1,
    /// Two bytes; for retry topics longer than 127 bytes, which Java 5.x clients read.
    V2,
}

/// One record, its texts and body borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(alias = "MessageExt")]
pub struct RecordView<'a> {
    /// The record's bytes, no more and no less.
    pub bytes: &'a [u8],
    /// Version of the layout.
    pub version: RecordVersion,
    /// As stored; [`super::check_record`] compares it with the body.
    pub body_crc: u32,
    /// The queue.
    pub queue_id: u32,
    /// The user's own flag; no part of RocketMQ reads it.
    pub flag: i32,
    /// Offset in the queue.
    pub queue_offset: QueueOffset,
    /// Where the record says that it lies in the log.
    pub physical_offset: PhysicalOffset,
    /// Bits of [`rocketpy_model::sys_flag`].
    pub sys_flag: i32,
    /// When the producer made it, by its clock.
    pub born_at_ms: i64,
    /// Address of the producer.
    pub born_host: SocketAddr,
    /// When the broker stored it.
    pub stored_at_ms: i64,
    /// Address that the broker announced.
    pub store_host: SocketAddr,
    /// How often it was retried.
    pub reconsume_times: i32,
    /// Where its half message lies, when it commits one; else 0.
    pub prepared_transaction_offset: PhysicalOffset,
    /// As stored, that is possibly compressed.
    pub body: &'a [u8],
    /// Topic of the message.
    pub topic: &'a str,
    /// The properties as text ([`properties_text`]).
    pub properties: &'a [u8],
}

impl<'a> RecordView<'a> {
    /// Reads the record at the start of `bytes`, which may go on behind it.
    ///
    /// Checksums are not looked at.
    ///
    /// # Errors
    /// When the magic is another one (the filler's too), or a length does not fit the record's size, or the record is not there
    /// as a whole.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, RecordError> {
        Self::parse_plain(bytes).map_or_else(|| Self::parse_any(bytes), Ok)
    }

    /// Reads a sound record with both hosts in IPv4, whose fields up to the body stand at fixed places: what nearly every record
    /// is. `None` for any other.
    #[inline]
    fn parse_plain(bytes: &'a [u8]) -> Option<Self> {
        let head: &[u8; BODY_AT_V4] = bytes.first_chunk()?;
        let version = match u32::from_be_bytes(part(head, 4)) {
            MAGIC_V1 => RecordVersion::V1,
            MAGIC_V2 => RecordVersion::V2,
            _ => return None,
        };
        let sys_flag = i32::from_be_bytes(part(head, SYS_FLAG_AT));
        if sys_flag & (sys_flag::BORN_HOST_V6 | sys_flag::STORE_HOST_V6) != 0 {
            return None;
        }
        let size = i32::from_be_bytes(part(head, 0));
        let record = bytes.get(..usize::try_from(size).ok()?)?;
        let body_bytes = i32::from_be_bytes(part(head, BODY_AT_V4 - 4));
        let (body, rest) = record.get(BODY_AT_V4..)?.split_at_checked(usize::try_from(body_bytes).ok()?)?;
        let (topic_bytes, rest) = match version {
            RecordVersion::V1 => rest.split_first().map(|(&length, rest)| (i16::from(length as i8), rest))?,
            RecordVersion::V2 => {
                rest.split_first_chunk().map(|(length, rest)| (i16::from_be_bytes(*length), rest))?
            }
        };
        let (topic, rest) = rest.split_at_checked(usize::try_from(topic_bytes).ok()?)?;
        let (properties_bytes, properties) = rest.split_first_chunk()?;
        if usize::try_from(i16::from_be_bytes(*properties_bytes)).ok()? != properties.len() {
            return None;
        }
        Some(Self {
            bytes: record,
            version,
            body_crc: u32::from_be_bytes(part(head, 8)),
            queue_id: u32::from_be_bytes(part(head, 12)),
            flag: i32::from_be_bytes(part(head, 16)),
            queue_offset: QueueOffset(u64::from_be_bytes(part(head, QUEUE_OFFSET_AT))),
            physical_offset: PhysicalOffset(u64::from_be_bytes(part(head, PHYSICAL_OFFSET_AT))),
            sys_flag,
            born_at_ms: i64::from_be_bytes(part(head, 40)),
            born_host: host_v4(head, 48)?,
            stored_at_ms: i64::from_be_bytes(part(head, STORED_AT_AT_V4)),
            store_host: host_v4(head, STORED_AT_AT_V4 + 8)?,
            reconsume_times: i32::from_be_bytes(part(head, 72)),
            prepared_transaction_offset: PhysicalOffset(u64::from_be_bytes(part(head, 76))),
            body,
            topic: std::str::from_utf8(topic).ok()?,
            properties,
        })
    }

    fn parse_any(bytes: &'a [u8]) -> Result<Self, RecordError> {
        let mut head = Reader::new(bytes);
        let stated = read(&mut head, "total_size", Reader::u32)?;
        let magic = read(&mut head, "magic", Reader::u32)?;
        let version = match magic {
            MAGIC_V1 => RecordVersion::V1,
            MAGIC_V2 => RecordVersion::V2,
            _ => return Err(RecordError::Magic { magic }),
        };
        if stated > i32::MAX as u32 {
            return Err(RecordError::Negative { field: "total_size", value: i64::from(stated as i32) });
        }
        let record = bytes
            .get(..stated as usize)
            .ok_or(RecordError::Truncated { field: "total_size", available: bytes.len() })?;
        let rest = record.get(8..).ok_or(RecordError::Size { stated, computed: 8 })?;
        let mut reader = Reader::new(rest);
        let view = Self::parse_fields(record, version, &mut reader)?;
        if !reader.rest().is_empty() {
            return Err(RecordError::Size { stated, computed: record.len() - reader.rest().len() });
        }
        Ok(view)
    }

    fn parse_fields(
        bytes: &'a [u8],
        version: RecordVersion,
        reader: &mut Reader<'a>,
    ) -> Result<Self, RecordError> {
        let head = read(reader, "head", Reader::array::<HEAD_BYTES>)?;
        let flags = i32::from_be_bytes(part(&head, SYS_FLAG_AT - HEAD_AT));
        let born_host = read_host(reader, "born_host", flags & sys_flag::BORN_HOST_V6 != 0)?;
        let stored_at_ms = read(reader, "stored_at_ms", Reader::i64)?;
        let store_host = read_host(reader, "store_host", flags & sys_flag::STORE_HOST_V6 != 0)?;
        let reconsume_times = read(reader, "reconsume_times", Reader::i32)?;
        let prepared = read(reader, "prepared_transaction_offset", Reader::u64)?;
        let body_length = read(reader, "body_length", Reader::i32)?;
        let body = take(reader, "body", i64::from(body_length))?;
        let topic_length = match version {
            RecordVersion::V1 => i64::from(read(reader, "topic_length", Reader::u8)? as i8),
            RecordVersion::V2 => i64::from(read(reader, "topic_length", Reader::i16)?),
        };
        let topic = take(reader, "topic", topic_length)?;
        let properties_length = read(reader, "properties_length", Reader::i16)?;
        let properties = take(reader, "properties", i64::from(properties_length))?;
        Ok(Self {
            bytes,
            version,
            body_crc: u32::from_be_bytes(part(&head, 8 - HEAD_AT)),
            queue_id: u32::from_be_bytes(part(&head, 12 - HEAD_AT)),
            flag: i32::from_be_bytes(part(&head, 16 - HEAD_AT)),
            queue_offset: QueueOffset(u64::from_be_bytes(part(&head, QUEUE_OFFSET_AT - HEAD_AT))),
            physical_offset: PhysicalOffset(u64::from_be_bytes(part(&head, PHYSICAL_OFFSET_AT - HEAD_AT))),
            sys_flag: flags,
            born_at_ms: i64::from_be_bytes(part(&head, 40 - HEAD_AT)),
            born_host,
            stored_at_ms,
            store_host,
            reconsume_times,
            prepared_transaction_offset: PhysicalOffset(prepared),
            body,
            topic: std::str::from_utf8(topic).map_err(|_| RecordError::Topic)?,
            properties,
        })
    }

    /// The record's whole length.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.bytes.len()
    }

    /// The value of one property.
    #[must_use]
    pub fn property(&self, name: &str) -> Option<&'a str> {
        properties_text::get(self.properties, name)
    }

    /// The value of one property as readers show it: bytes that are not UTF-8 become replacement characters, as in Apache's clients.
    #[must_use]
    pub fn property_lossy(&self, name: &str) -> Option<Cow<'a, str>> {
        properties_text::get_lossy(self.properties, name)
    }

    /// The tag.
    #[must_use]
    pub fn tag(&self) -> Option<&'a str> {
        self.property(property::TAGS)
    }

    /// The keys, as one text with spaces between.
    #[must_use]
    pub fn keys(&self) -> Option<&'a str> {
        self.property(property::KEYS)
    }

    /// The sender's unique key, which is what clients show as the message's id.
    #[must_use]
    pub fn unique_key(&self) -> Option<&'a str> {
        self.property(property::UNIQUE_KEY)
    }

    /// The id that names the record by broker and place.
    #[must_use]
    pub const fn offset_message_id(&self) -> OffsetMessageId {
        OffsetMessageId { host: self.store_host, physical_offset: self.physical_offset }
    }

    /// How the body is compressed.
    ///
    /// # Errors
    /// When the type bits are unknown.
    pub fn compression(&self) -> Result<Option<CompressionType>, CompressionError> {
        CompressionType::of_sys_flag(self.sys_flag).map_err(|bits| CompressionError::UnknownType { bits })
    }

    /// The body as the sender gave it: borrowed when it was not compressed.
    ///
    /// # Errors
    /// When the body is not what its type says, or would grow past `limits`.
    pub fn plain_body(&self, limits: &DecompressLimits) -> Result<Cow<'a, [u8]>, CompressionError> {
        match self.compression()? {
            None => Ok(Cow::Borrowed(self.body)),
            Some(kind) => compression::decompress(kind, self.body, limits).map(Cow::Owned),
        }
    }
}

/// Bytes of size and magic, before the head.
const HEAD_AT: usize = 8;
/// Bytes from the body checksum to the born time, which stand at fixed places.
const HEAD_BYTES: usize = 40;

/// Where the body of a record with both hosts in IPv4 begins.
const BODY_AT_V4: usize = 88;

/// `N` bytes at `offset`.
#[inline]
fn part<const N: usize>(head: &[u8], offset: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&head[offset..offset + N]);
    bytes
}

/// Address and port at `offset`; `None` when the port is none.
#[inline]
fn host_v4(head: &[u8; BODY_AT_V4], offset: usize) -> Option<SocketAddr> {
    let port = u16::try_from(u32::from_be_bytes(part(head, offset + 4))).ok()?;
    Some(SocketAddr::from((Ipv4Addr::from(part::<4>(head, offset)), port)))
}

#[inline]
fn read<'a, T>(
    reader: &mut Reader<'a>,
    field: &'static str,
    get: impl FnOnce(&mut Reader<'a>) -> Option<T>,
) -> Result<T, RecordError> {
    let available = reader.rest().len();
    get(reader).ok_or(RecordError::Truncated { field, available })
}

#[inline]
fn take<'a>(reader: &mut Reader<'a>, field: &'static str, length: i64) -> Result<&'a [u8], RecordError> {
    let length = usize::try_from(length).map_err(|_| RecordError::Negative { field, value: length })?;
    read(reader, field, |reader| reader.take(length))
}

fn read_host(reader: &mut Reader<'_>, field: &'static str, is_v6: bool) -> Result<SocketAddr, RecordError> {
    let address = if is_v6 {
        IpAddr::V6(Ipv6Addr::from(read(reader, field, Reader::array::<16>)?))
    } else {
        IpAddr::V4(Ipv4Addr::from(read(reader, field, Reader::array::<4>)?))
    };
    let port = read(reader, field, Reader::i32)?;
    let port = u16::try_from(port).map_err(|_| RecordError::Port { field, value: port })?;
    Ok(SocketAddr::new(address, port))
}

/// Reads records that stand one behind the other, as a pull response carries them.
///
/// Ends at the end of the bytes, or after the first error: where one record is damaged nobody knows where the next begins.
#[must_use]
pub const fn records(bytes: &[u8]) -> Records<'_> {
    Records { rest: bytes }
}

/// The iterator of [`records`].
#[derive(Debug, Clone)]
pub struct Records<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<RecordView<'a>, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let result = RecordView::parse(self.rest);
        self.rest = match &result {
            Ok(view) => &self.rest[view.size()..],
            Err(_) => &[],
        };
        Some(result)
    }
}

impl std::iter::FusedIterator for Records<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(version: u32, sys_flag: i32) -> Vec<u8> {
        let mut bytes = vec![0; 4];
        bytes.extend(version.to_be_bytes());
        bytes.extend((8..36).map(|at: u8| at));
        bytes.extend(sys_flag.to_be_bytes());
        bytes.extend(1_700_000_000_000_i64.to_be_bytes());
        for is_v6 in [sys_flag & sys_flag::BORN_HOST_V6 != 0, sys_flag & sys_flag::STORE_HOST_V6 != 0] {
            bytes.extend(std::iter::repeat_n(7, if is_v6 { 16 } else { 4 }));
            bytes.extend(10_911_u32.to_be_bytes());
            bytes.extend(1_700_000_000_001_i64.to_be_bytes()); // stored at; then reconsume times and half of the prepared offset
        }
        bytes.extend([0; 4]);
        bytes.extend(b"\0\0\0\x04body");
        bytes.extend_from_slice(if version == MAGIC_V1 { b"\x05topic" } else { b"\0\x05topic" });
        bytes.extend(b"\0\x04a\x011\x02");
        let size = bytes.len() as u32;
        bytes[..4].copy_from_slice(&size.to_be_bytes());
        bytes
    }

    #[test]
    fn the_short_way_of_plain_records_agrees_with_the_long_one_on_any_bytes() {
        for (version, sys_flag, is_plain) in [
            (MAGIC_V1, 0, true),
            (MAGIC_V2, 1, true),
            (MAGIC_V1, sys_flag::BORN_HOST_V6, false),
            (MAGIC_V2, sys_flag::STORE_HOST_V6, false),
        ] {
            let whole = [record(version, sys_flag), b"and more".to_vec()].concat();
            assert!(RecordView::parse_any(&whole).is_ok());
            assert_eq!(RecordView::parse_plain(&whole).is_some(), is_plain);
            for at in 0..whole.len() {
                assert_eq!(RecordView::parse(&whole[..at]), RecordView::parse_any(&whole[..at]));
                for value in [0, 1, 4, 5, 6, 0x7f, 0x80, 0xff, whole[at] ^ 1, whole[at].wrapping_add(1)] {
                    let mut bytes = whole.clone();
                    bytes[at] = value;
                    assert_eq!(RecordView::parse(&bytes), RecordView::parse_any(&bytes), "{value} at {at}");
                }
            }
        }
    }
}
