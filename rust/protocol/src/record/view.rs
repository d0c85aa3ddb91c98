use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rocketpy_model::{CompressionType, PhysicalOffset, QueueOffset, property, sys_flag};

use super::{MAGIC_V1, MAGIC_V2, PHYSICAL_OFFSET_AT, QUEUE_OFFSET_AT, RecordError, SYS_FLAG_AT};
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
    pub version: RecordVersion,
    /// As stored; [`super::check_record`] compares it with the body.
    pub body_crc: u32,
    pub queue_id: u32,
    pub flag: i32,
    pub queue_offset: QueueOffset,
    pub physical_offset: PhysicalOffset,
    pub sys_flag: i32,
    pub born_at_ms: i64,
    pub born_host: SocketAddr,
    pub stored_at_ms: i64,
    pub store_host: SocketAddr,
    pub reconsume_times: i32,
    pub prepared_transaction_offset: PhysicalOffset,
    /// As stored, that is possibly compressed.
    pub body: &'a [u8],
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
    pub fn parse(bytes: &'a [u8]) -> Result<Self, RecordError> {
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
        let flags = i32::from_be_bytes(part(&head, SYS_FLAG_AT));
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
            body_crc: u32::from_be_bytes(part(&head, 8)),
            queue_id: u32::from_be_bytes(part(&head, 12)),
            flag: i32::from_be_bytes(part(&head, 16)),
            queue_offset: QueueOffset(u64::from_be_bytes(part(&head, QUEUE_OFFSET_AT))),
            physical_offset: PhysicalOffset(u64::from_be_bytes(part(&head, PHYSICAL_OFFSET_AT))),
            sys_flag: flags,
            born_at_ms: i64::from_be_bytes(part(&head, 40)),
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

/// Bytes from the body checksum to the born time, which stand at fixed places behind size and magic.
const HEAD_BYTES: usize = 40;

/// `N` bytes at `offset` of the record, out of its head.
#[inline]
fn part<const N: usize>(head: &[u8; HEAD_BYTES], offset: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&head[offset - 8..offset - 8 + N]);
    bytes
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
