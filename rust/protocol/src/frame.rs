//! Cutting frames off a byte stream.
//!
//! # Layout
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | length: bytes that follow this field |
//! | 4 | 1 | serialize type of the header |
//! | 5 | 3 | header length |
//! | 8 | | header, then the body to the end |
//!
//! # Source
//! docs/reference/protocol.md 1.1.

use bytes::{Bytes, BytesMut};

/// Bytes before the header.
pub const PREFIX_BYTES: usize = 8;
/// Longest header: its length has 24 bits.
pub const MAX_HEADER_BYTES: usize = (1 << 24) - 1;

/// How the header of a frame is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum SerializeType {
    /// A JSON object: type 0.
    #[default]
    Json = 0,
    /// Fixed fields, then a map: type 1.
    #[doc(alias = "ROCKETMQ")]
    Binary = 1,
}

/// One frame, cut from the receive buffer without copying.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The header's bytes.
    pub header: Bytes,
    /// The body's bytes; empty when there is none.
    pub body: Bytes,
    /// How the header is written.
    pub serialize: SerializeType,
}

/// Why bytes are not a frame of this protocol, or a command cannot become one.
///
/// A receiver closes the connection: where the next frame begins is not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum FrameError {
    #[error("frame length is less than the frame's fixed part: {length}")]
    TooShort { length: u32 },
    #[error("frame exceeds {limit} bytes: {bytes}")]
    TooLong { bytes: u64, limit: usize },
    #[error("header declares {header} bytes, the frame has left: {available}")]
    HeaderLength { header: usize, available: usize },
    #[error("unknown serialize type of the header: {serialize}")]
    SerializeType { serialize: u8 },
    #[error("header is not UTF-8 at byte {at}")]
    Utf8 { at: usize },
    #[error("header does not match its JSON format: {reason}")]
    Json { reason: String },
    #[error("binary header is truncated in field {field}")]
    BinaryTruncated { field: &'static str },
    #[error("length of field {field} in the binary header is negative: {length}")]
    BinaryLength { field: &'static str, length: i32 },
    #[error("{extra} trailing bytes after the fields of the binary header")]
    BinaryTrailing { extra: usize },
    #[error("number of header fields exceeds the limit: {limit}")]
    TooManyFields { limit: usize },
    #[error("header to send exceeds {limit} bytes: {bytes}")]
    HeaderTooLong { bytes: usize, limit: usize },
}

/// Cuts the first frame off `buffer`. `Ok(None)` means that more bytes are needed; nothing is consumed then.
///
/// The head is checked as soon as it is there, so a false length never makes a receiver wait or reserve memory: a frame over
/// `max_bytes` (the length field included) is refused at its fourth byte.
///
/// # Errors
/// When the bytes are not a frame. `buffer` is left as it is, and the stream cannot be used any more.
pub fn decode_frame(buffer: &mut BytesMut, max_bytes: usize) -> Result<Option<Frame>, FrameError> {
    let Some(length) = buffer.first_chunk::<4>().map(|bytes| u32::from_be_bytes(*bytes)) else {
        return Ok(None);
    };
    let total = u64::from(length) + 4;
    if total > max_bytes as u64 {
        return Err(FrameError::TooLong { bytes: total, limit: max_bytes });
    }
    if length < 4 {
        return Err(FrameError::TooShort { length });
    }
    let Some(&[_, _, _, _, serialize, high, middle, low]) = buffer.first_chunk::<PREFIX_BYTES>() else {
        return Ok(None);
    };
    let serialize = match serialize {
        0 => SerializeType::Json,
        1 => SerializeType::Binary,
        serialize => return Err(FrameError::SerializeType { serialize }),
    };
    let header = u32::from_be_bytes([0, high, middle, low]) as usize;
    let total = total as usize;
    let available = total - PREFIX_BYTES;
    if header > available {
        return Err(FrameError::HeaderLength { header, available });
    }
    if buffer.len() < total {
        return Ok(None);
    }
    let frame = buffer.split_to(total).freeze();
    let body_at = PREFIX_BYTES + header;
    let body = if body_at == total { Bytes::new() } else { frame.slice(body_at..) };
    Ok(Some(Frame { header: frame.slice(PREFIX_BYTES..body_at), body, serialize }))
}

/// The length of the frame that begins `buffer`, when its length field is there: what a receiver still has to read.
#[must_use]
pub fn frame_bytes(buffer: &[u8]) -> Option<u64> {
    buffer.first_chunk::<4>().map(|bytes| u64::from(u32::from_be_bytes(*bytes)) + 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(header: &[u8], body: &[u8]) -> Vec<u8> {
        let length = (4 + header.len() + body.len()) as u32;
        [&length.to_be_bytes()[..], &(header.len() as u32).to_be_bytes(), header, body].concat()
    }

    #[test]
    fn a_frame_is_cut_once_all_of_it_is_there() {
        let bytes = [frame(b"{}", b"body"), frame(b"{1}", b"")].concat();
        let mut buffer = BytesMut::new();
        let mut frames = Vec::new();
        for &byte in &bytes {
            buffer.extend_from_slice(&[byte]);
            frames.extend(decode_frame(&mut buffer, 100).unwrap());
        }
        assert_eq!(frames.len(), 2);
        assert_eq!((&frames[0].header[..], &frames[0].body[..]), (&b"{}"[..], &b"body"[..]));
        assert_eq!((&frames[1].header[..], &frames[1].body[..]), (&b"{1}"[..], &b""[..]));
        assert!(buffer.is_empty());
    }

    #[test]
    fn a_frame_shares_the_memory_of_the_buffer() {
        let mut buffer = BytesMut::from(&frame(b"{}", b"body")[..]);
        let start = buffer.as_ptr() as usize;
        let frame = decode_frame(&mut buffer, 100).unwrap().unwrap();
        assert_eq!(frame.body.as_ptr() as usize, start + 10);
    }

    #[test]
    fn lying_heads_are_refused_before_the_rest_arrives() {
        let refused = |bytes: &[u8]| decode_frame(&mut BytesMut::from(bytes), 1000).unwrap_err();
        assert_eq!(refused(&[0xff; 4]), FrameError::TooLong { bytes: 0x1_0000_0003, limit: 1000 });
        assert_eq!(refused(&[0, 0, 0, 3]), FrameError::TooShort { length: 3 });
        assert_eq!(refused(&[0, 0, 0, 9, 2, 0, 0, 0]), FrameError::SerializeType { serialize: 2 });
        assert_eq!(refused(&[0, 0, 0, 9, 0, 0, 0, 6]), FrameError::HeaderLength { header: 6, available: 5 });
        let mut largest = BytesMut::from(&[0, 0, 3, 0xe4][..]);
        assert_eq!(decode_frame(&mut largest, 1000), Ok(None), "1000 bytes are allowed");
    }
}
