//! One request or response: the header of a frame in decoded form, and its body.

mod binary;
mod json_read;
mod json_write;

use std::borrow::Cow;

use bytes::{Bytes, BytesMut};
use rocketpy_model::printable::printable;
use rocketpy_model::system;

use crate::frame::{Frame, FrameError, MAX_HEADER_BYTES, PREFIX_BYTES, SerializeType};
use crate::{ExtFields, Header, Language};

/// Bits of a command's `flag`.
pub mod flag {
    /// The frame is a response.
    pub const RESPONSE: i32 = 1;
    /// The receiver must not answer.
    pub const ONEWAY: i32 = 2;
}

/// A request or a response.
///
/// # Source
/// docs/reference/protocol.md 1.2 to 1.4.
#[derive(Debug, Clone, PartialEq, Eq)]
#[doc(alias = "RemotingCommand")]
pub struct Command {
    /// A request code or a response code ([`crate::code`]).
    pub code: i32,
    /// The language that the sender is written in.
    pub language: Language,
    /// The sender's version ordinal.
    pub version: i32,
    /// The number by which a response finds its request.
    pub opaque: i32,
    /// Bits of [`flag`].
    pub flag: i32,
    /// A text for people, mostly on errors.
    pub remark: Option<String>,
    /// The custom header.
    pub ext: ExtFields,
    /// The body; empty when there is none.
    pub body: Bytes,
    /// How the header is written.
    pub serialize: SerializeType,
}

impl Command {
    /// Makes a request with a custom header. The sender of the frame sets `opaque`.
    pub fn request<'a>(code: i32, header: &impl Header<'a>) -> Self {
        Self::bare_request(code).with_header(header)
    }

    /// Makes a request without a custom header.
    #[must_use]
    pub const fn bare_request(code: i32) -> Self {
        Self {
            code,
            language: Language::Rust,
            version: system::VERSION,
            opaque: 0,
            flag: 0,
            remark: None,
            ext: ExtFields::new(),
            body: Bytes::new(),
            serialize: SerializeType::Json,
        }
    }

    /// Makes a response to `request`: same opaque, same serialization, response bit set.
    #[must_use]
    pub const fn response(request: &Self, code: i32) -> Self {
        let mut response = Self::bare_response(code);
        response.opaque = request.opaque;
        response.serialize = request.serialize;
        response
    }

    /// Makes a response before its request is known. The sender of the frame sets `opaque` and `serialize`.
    #[must_use]
    pub const fn bare_response(code: i32) -> Self {
        let mut response = Self::bare_request(code);
        // Only current Java clients know "RUST"; all know "OTHER".
        response.language = Language::Other;
        response.flag = flag::RESPONSE;
        response
    }

    /// The same command with a text for people. It may quote the request: control characters become escapes, because clients log and
    /// print it.
    #[must_use]
    pub fn with_remark(mut self, remark: impl Into<String>) -> Self {
        let remark = remark.into();
        let escaped = match printable(&remark) {
            Cow::Owned(escaped) => Some(escaped),
            Cow::Borrowed(_) => None,
        };
        self.remark = Some(escaped.unwrap_or(remark));
        self
    }

    /// The same command with the fields of a custom header added.
    #[must_use]
    pub fn with_header<'a>(mut self, header: &impl Header<'a>) -> Self {
        if self.ext.is_empty() {
            // Room for the answer to a send; growing to it step by step costs more than the fields do.
            self.ext = ExtFields::with_capacity(8, 160);
        }
        header.write(&mut self.ext);
        self
    }

    /// The same command with a body.
    #[must_use]
    pub fn with_body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// The same command, marked as one that must not be answered.
    #[must_use]
    pub const fn oneway(mut self) -> Self {
        self.flag |= flag::ONEWAY;
        self
    }

    /// Whether this is a response.
    #[must_use]
    #[doc(alias = "isResponseType")]
    pub const fn is_response(&self) -> bool {
        self.flag & flag::RESPONSE != 0
    }

    /// Whether the sender waits for no response.
    #[must_use]
    #[doc(alias = "isOnewayRPC")]
    pub const fn is_oneway(&self) -> bool {
        self.flag & flag::ONEWAY != 0
    }

    /// Reads the header of a frame; the body goes along as it is.
    ///
    /// # Errors
    /// When the header is malformed. The connection cannot be used further.
    pub fn decode(frame: Frame) -> Result<Self, FrameError> {
        let mut command = match frame.serialize {
            SerializeType::Json => json_read::decode(&frame.header)?,
            SerializeType::Binary => binary::decode(&frame.header)?,
        };
        command.body = frame.body;
        command.serialize = frame.serialize;
        Ok(command)
    }

    /// Appends the frame's head and header for a body of `body_bytes`, which the caller sends behind it.
    ///
    /// A command that asks for the binary form and does not fit it (a code or version outside 16 bits, a field name that is empty
    /// or longer than 32,767 bytes) is written as JSON.
    ///
    /// # Errors
    /// When the header does not fit its 24-bit length, or the frame its 32-bit one; `out` is left as it was.
    pub fn encode_head(&self, body_bytes: usize, out: &mut BytesMut) -> Result<(), FrameError> {
        let start = out.len();
        out.extend_from_slice(&[0; PREFIX_BYTES]);
        let binary = self.serialize == SerializeType::Binary && binary::can_encode(self);
        if binary {
            binary::encode(self, out);
        } else {
            json_write::encode(self, out);
        }
        let header = out.len() - start - PREFIX_BYTES;
        if header > MAX_HEADER_BYTES {
            out.truncate(start);
            return Err(FrameError::HeaderTooLong { bytes: header, limit: MAX_HEADER_BYTES });
        }
        let Ok(length) = u32::try_from(4 + header + body_bytes) else {
            out.truncate(start);
            return Err(FrameError::TooLong {
                bytes: (8 + header + body_bytes) as u64,
                limit: u32::MAX as usize,
            });
        };
        let serialize = if binary { SerializeType::Binary } else { SerializeType::Json };
        let word = (serialize as u32) << 24 | header as u32;
        out[start..start + 4].copy_from_slice(&length.to_be_bytes());
        out[start + 4..start + 8].copy_from_slice(&word.to_be_bytes());
        Ok(())
    }

    /// Appends the whole frame, body included.
    ///
    /// # Errors
    /// As [`Command::encode_head`].
    pub fn encode(&self, out: &mut BytesMut) -> Result<(), FrameError> {
        self.encode_head(self.body.len(), out)?;
        out.extend_from_slice(&self.body);
        Ok(())
    }
}
