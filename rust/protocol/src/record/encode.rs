//! Messages into records.

use std::net::{IpAddr, SocketAddr};

use rocketpy_model::{PhysicalOffset, QueueOffset, property, sys_flag};

use super::crc::{self, CRC_PROPERTY_BYTES, Shift};
use super::{
    FIXED_BYTES_V1, MAGIC_V1, MAGIC_V2, PHYSICAL_OFFSET_AT, QUEUE_OFFSET_AT, RecordEncodeError,
    STORED_AT_AT_V4, STORED_AT_AT_V6, TOPIC_MAX_BYTES, TOPIC_MAX_BYTES_V1,
};
use crate::properties_text;

/// What a record is made of, but for the three fields that only the writer lock knows.
#[derive(Debug, Clone, Copy)]
pub struct RecordFields<'a> {
    /// Topic of the message.
    pub topic: &'a str,
    /// The queue that it goes to.
    pub queue_id: u32,
    /// The user's own flag; no part of RocketMQ reads it.
    pub flag: i32,
    /// The sender's bits; the two host bits are set by the encoder from the hosts.
    pub sys_flag: i32,
    /// When the producer made it, by its clock.
    pub born_at_ms: i64,
    /// Address of the producer.
    pub born_host: SocketAddr,
    /// Address that the broker announces.
    pub store_host: SocketAddr,
    /// How often it was retried.
    pub reconsume_times: i32,
    /// Where its half message lies, when it commits one; else 0.
    pub prepared_transaction_offset: PhysicalOffset,
    /// The body as it is to be stored, that is possibly compressed.
    pub body: &'a [u8],
    /// Properties as text.
    pub properties: &'a [u8],
    /// Whether the properties may hold a `__CRC32#`, which is left out then: only the encoder knows the record's. `false` saves a pass
    /// over the text.
    pub may_have_crc: bool,
}

/// How an encoded record is finished once the writer lock has given it its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordPlan {
    size: usize,
    /// Where the body stands.
    body_at: usize,
    /// Length of the body when it is not among the encoded bytes, else 0.
    apart: usize,
    stored_at_at: usize,
    crc: Option<CrcPlan>,
}

/// How the whole-record checksum is made once the late fields are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CrcPlan {
    /// By one hash of the record, which is short.
    Whole,
    /// From the head and what is known of the rest.
    Parts {
        /// Checksum of the body and what is behind it, without the property at the end.
        tail: u32,
        /// The factor of those bytes.
        shift: Shift,
    },
}

/// Records up to about this length are hashed as a whole: the hash takes about as long as that of the head and the
/// multiplication, and what is known of the rest need not be computed.
const HASHED_WHOLE_BYTES: usize = 384;

impl RecordFields<'_> {
    /// Appends the record to `out`, its three late fields and the checksum's digits zero.
    ///
    /// With `record_crc` the record ends in a `__CRC32#` property. The body is read once unless it is short: its checksum stands
    /// in the record and is also the largest part of the record's.
    ///
    /// # Errors
    /// When topic, properties or body are longer than the layout can hold; nothing is appended then.
    #[doc(alias = "MessageExtEncoder")]
    pub fn encode(&self, record_crc: bool, out: &mut Vec<u8>) -> Result<RecordPlan, RecordEncodeError> {
        self.encode_or_leave(record_crc, true, out)
    }

    /// Like [`RecordFields::encode`], but may leave the body out: [`RecordPlan::left_out_at`] says where it belongs then.
    ///
    /// # Errors
    /// As [`RecordFields::encode`].
    pub fn encode_apart(&self, record_crc: bool, out: &mut Vec<u8>) -> Result<RecordPlan, RecordEncodeError> {
        self.encode_or_leave(record_crc, false, out)
    }

    fn encode_or_leave(
        &self,
        record_crc: bool,
        with_body: bool,
        out: &mut Vec<u8>,
    ) -> Result<RecordPlan, RecordEncodeError> {
        let start = out.len();
        self.try_encode(record_crc, with_body, out).inspect_err(|_| out.truncate(start))
    }

    fn try_encode(
        &self,
        record_crc: bool,
        with_body: bool,
        out: &mut Vec<u8>,
    ) -> Result<RecordPlan, RecordEncodeError> {
        let start = out.len();
        if self.topic.len() > TOPIC_MAX_BYTES {
            return Err(RecordEncodeError::TopicTooLong { length: self.topic.len(), limit: TOPIC_MAX_BYTES });
        }
        let body_limit = i32::MAX as usize - 128 * 1024;
        if self.body.len() > body_limit {
            return Err(RecordEncodeError::BodyTooLong { length: self.body.len(), limit: body_limit });
        }
        let hashed_whole = record_crc && self.size_hint() <= HASHED_WHOLE_BYTES; // which takes its body too
        let with_body = with_body || hashed_whole;
        let apart = if with_body { 0 } else { self.body.len() };
        out.reserve(self.size_hint() - apart);
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(self.body);
        let body_crc = hasher.clone().finalize();
        let body_at = self.push_head(body_crc, out);
        if with_body {
            out.extend_from_slice(self.body);
        }
        let topic_at = out.len();
        self.push_topic(out);
        self.push_properties(record_crc, out)?;
        let size = out.len() - start + apart;
        assert!(size <= self.size_hint(), "a record is no longer than its parts");
        out[start..start + 4].copy_from_slice(&(size as u32).to_be_bytes());
        let crc = record_crc.then(|| {
            if hashed_whole {
                return CrcPlan::Whole;
            }
            let behind_body = &out[topic_at..out.len() - CRC_PROPERTY_BYTES];
            hasher.update(behind_body);
            CrcPlan::Parts { tail: hasher.finalize(), shift: Shift::of(self.body.len() + behind_body.len()) }
        });
        Ok(RecordPlan { size, body_at, apart, stored_at_at: self.stored_at_at(), crc })
    }

    /// Appends what stands before the body, its late fields and the size zero. Says how long it is.
    fn push_head(&self, body_crc: u32, out: &mut Vec<u8>) -> usize {
        let magic = if self.topic.len() > TOPIC_MAX_BYTES_V1 { MAGIC_V2 } else { MAGIC_V1 };
        let mut flags = self.sys_flag & !(sys_flag::BORN_HOST_V6 | sys_flag::STORE_HOST_V6);
        if self.born_host.is_ipv6() {
            flags |= sys_flag::BORN_HOST_V6;
        }
        if self.store_host.is_ipv6() {
            flags |= sys_flag::STORE_HOST_V6;
        }
        let start = out.len();
        out.extend_from_slice(&[0; HEAD_MAX_BYTES]);
        let Some(bytes) = out.last_chunk_mut() else { unreachable!("they were just appended") };
        let mut head = Head { bytes, end: 4 };
        head.push(&magic.to_be_bytes());
        head.push(&(body_crc & 0x7FFF_FFFF).to_be_bytes());
        head.push(&self.queue_id.to_be_bytes());
        head.push(&self.flag.to_be_bytes());
        head.push(&[0; 16]);
        head.push(&flags.to_be_bytes());
        head.push(&self.born_at_ms.to_be_bytes());
        head.push_host(self.born_host);
        head.push(&[0; 8]);
        head.push_host(self.store_host);
        head.push(&self.reconsume_times.to_be_bytes());
        head.push(&self.prepared_transaction_offset.get().to_be_bytes());
        head.push(&(self.body.len() as u32).to_be_bytes());
        let end = head.end;
        out.truncate(start + end);
        end
    }

    fn push_topic(&self, out: &mut Vec<u8>) {
        let length = self.topic.len();
        if length > TOPIC_MAX_BYTES_V1 {
            out.extend_from_slice(&(length as u16).to_be_bytes());
        } else {
            out.push(length as u8);
        }
        out.extend_from_slice(self.topic.as_bytes());
    }

    fn push_properties(&self, record_crc: bool, out: &mut Vec<u8>) -> Result<(), RecordEncodeError> {
        let length_at = out.len();
        out.extend_from_slice(&[0; 2]);
        debug_assert!(
            self.may_have_crc || properties_text::pairs(self.properties).all(|(name, _)| name != b"__CRC32#"),
            "a caller that says so has left the checksum out"
        );
        if self.may_have_crc && has_crc(self.properties) {
            properties_text::copy_without(self.properties, property::CRC32, out);
        } else {
            out.extend_from_slice(self.properties);
        }
        let mut limit = properties_text::MAX_BYTES;
        if record_crc {
            limit -= CRC_PROPERTY_BYTES;
            if out.len() > length_at + 2 && out.last() != Some(&property::PROPERTY_SEPARATOR) {
                out.push(property::PROPERTY_SEPARATOR);
            }
        }
        let length = out.len() - length_at - 2;
        if length > limit {
            return Err(RecordEncodeError::PropertiesTooLong { length, limit });
        }
        if record_crc {
            out.extend_from_slice(&crc::EMPTY_PROPERTY);
        }
        let length = (out.len() - length_at - 2) as u16;
        out[length_at..length_at + 2].copy_from_slice(&length.to_be_bytes());
        Ok(())
    }

    fn stored_at_at(&self) -> usize {
        if self.born_host.is_ipv6() { STORED_AT_AT_V6 } else { STORED_AT_AT_V4 }
    }

    /// An upper bound of the record's length, so that one reservation serves.
    fn size_hint(&self) -> usize {
        let texts = self.topic.len() + self.properties.len() + 2;
        FIXED_BYTES_V1 + 1 + 24 + self.body.len() + texts + CRC_PROPERTY_BYTES
    }
}

fn has_crc(text: &[u8]) -> bool {
    properties_text::count_walk();
    // The name ends in a character that properties hardly have: one pass of a byte search settles most texts.
    let last = property::CRC32.as_bytes()[property::CRC32.len() - 1];
    memchr::memchr(last, text).is_some() && memchr::memmem::find(text, property::CRC32.as_bytes()).is_some()
}

/// Everything before the body, with two IPv6 hosts.
const HEAD_MAX_BYTES: usize = FIXED_BYTES_V1 - 3 + 24;

/// The head of a record while it is put together, in its place: fields that were just stored one by one and are then copied as
/// a whole would hold up the processor.
struct Head<'a> {
    bytes: &'a mut [u8; HEAD_MAX_BYTES],
    end: usize,
}

impl Head<'_> {
    #[inline]
    fn push<const N: usize>(&mut self, field: &[u8; N]) {
        self.bytes[self.end..self.end + N].copy_from_slice(field);
        self.end += N;
    }

    #[inline]
    fn push_host(&mut self, host: SocketAddr) {
        match host.ip() {
            IpAddr::V4(address) => self.push(&address.octets()),
            IpAddr::V6(address) => self.push(&address.octets()),
        }
        self.push(&u32::from(host.port()).to_be_bytes());
    }
}

impl RecordPlan {
    /// The record's whole length.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.size
    }

    /// Where the body belongs when it is not among the encoded bytes.
    #[must_use]
    pub const fn left_out_at(&self) -> Option<usize> {
        if self.apart == 0 { None } else { Some(self.body_at) }
    }

    /// Length of what was encoded: the record's, less a body that is apart.
    #[must_use]
    pub const fn encoded_size(&self) -> usize {
        self.size - self.apart
    }

    /// Writes the three late fields and the checksum into an encoded record, whose body may be apart.
    ///
    /// This is what runs under the writer lock: three stores and, with a record checksum, ten digits and a hash of the record
    /// when it is short, else of the head (88 bytes with IPv4 hosts) and one multiplication: no cost grows with the body.
    /// May be called again with other values (the record moved to the next file).
    ///
    /// # Panics
    /// When `record` is not as long as what was encoded with this plan.
    pub fn finish(
        &self,
        record: &mut [u8],
        queue_offset: QueueOffset,
        physical_offset: PhysicalOffset,
        stored_at_ms: i64,
    ) {
        assert_eq!(record.len(), self.encoded_size(), "the plan belongs to another record");
        assert!(
            queue_offset.to_wire() >= 0 && physical_offset.to_wire() >= 0,
            "an offset has 63 bits: a reader takes a greater one for damage"
        );
        put(record, QUEUE_OFFSET_AT, queue_offset.get());
        put(record, PHYSICAL_OFFSET_AT, physical_offset.get());
        put(record, self.stored_at_at, stored_at_ms as u64);
        if let Some(plan) = &self.crc {
            let value = match plan {
                CrcPlan::Whole => crc32fast::hash(&record[..record.len() - CRC_PROPERTY_BYTES]),
                CrcPlan::Parts { tail, shift } => {
                    shift.combine(crc32fast::hash(&record[..self.body_at]), *tail)
                }
            };
            let value = value & 0x7FFF_FFFF;
            let at = record.len() - crc::DIGITS_FROM_END;
            crc::put_digits(value, &mut record[at..]);
        }
    }
}

fn put(record: &mut [u8], at: usize, value: u64) {
    record[at..at + 8].copy_from_slice(&value.to_be_bytes());
}
