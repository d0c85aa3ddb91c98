//! The ROCKETMQ form of a header.
//!
//! # Source
//! docs/reference/protocol.md 1.3.2.

use bytes::{BufMut, Bytes, BytesMut};

use super::Command;
use crate::frame::{FrameError, SerializeType};
use crate::wire::Reader;
use crate::{ExtFields, Language};

pub(super) fn decode(header: &[u8]) -> Result<Command, FrameError> {
    let mut reader = Reader::new(header);
    let code = reader.i16().ok_or(truncated("code"))?;
    let language = reader.u8().ok_or(truncated("language"))?;
    let version = reader.i16().ok_or(truncated("version"))?;
    let opaque = reader.i32().ok_or(truncated("opaque"))?;
    let flag = reader.i32().ok_or(truncated("flag"))?;
    let remark = block(&mut reader, "remark")?;
    let remark = if remark.is_empty() { None } else { Some(text(header, remark)?.to_owned()) };
    let ext = block(&mut reader, "extFields")?;
    let ext = decode_fields(header, ext)?;
    if !reader.rest().is_empty() {
        return Err(FrameError::BinaryTrailing { extra: reader.rest().len() });
    }
    Ok(Command {
        code: i32::from(code),
        language: Language::from_code(language),
        version: i32::from(version),
        opaque,
        flag,
        remark,
        ext,
        body: Bytes::new(),
        serialize: SerializeType::Binary,
    })
}

const fn truncated(field: &'static str) -> FrameError {
    FrameError::BinaryTruncated { field }
}

/// A 32-bit length and that many bytes.
fn block<'a>(reader: &mut Reader<'a>, field: &'static str) -> Result<&'a [u8], FrameError> {
    let length = reader.i32().ok_or(truncated(field))?;
    let bytes = usize::try_from(length).map_err(|_| FrameError::BinaryLength { field, length })?;
    reader.take(bytes).ok_or(truncated(field))
}

/// `part` as text; the error tells its place in the whole header.
fn text<'a>(header: &[u8], part: &'a [u8]) -> Result<&'a str, FrameError> {
    std::str::from_utf8(part).map_err(|error| {
        let part_at = part.as_ptr() as usize - header.as_ptr() as usize;
        FrameError::Utf8 { at: part_at + error.valid_up_to() }
    })
}

fn decode_fields(header: &[u8], block: &[u8]) -> Result<ExtFields, FrameError> {
    if block.is_empty() {
        return Ok(ExtFields::new());
    }
    let mut fields = ExtFields::with_capacity(16, block.len());
    let mut reader = Reader::new(block);
    let mut count = 0;
    while !reader.rest().is_empty() {
        let (field, length) = ("extFields name", reader.i16().ok_or(truncated("extFields name"))?);
        let bytes = usize::try_from(length)
            .map_err(|_| FrameError::BinaryLength { field, length: i32::from(length) })?;
        let name = reader.take(bytes).ok_or(truncated(field))?;
        let value = self::block(&mut reader, "extFields value")?;
        count += 1;
        if count > ExtFields::MAX_FIELDS {
            return Err(FrameError::TooManyFields { limit: ExtFields::MAX_FIELDS });
        }
        // Empty means null in this form: the field is as good as absent.
        let name = text(header, name)?;
        let value = text(header, value)?;
        if name.is_empty() {
            continue;
        }
        if value.is_empty() {
            fields.remove(name);
        } else {
            fields.push(name, value);
        }
    }
    Ok(fields)
}

/// Says whether this form can carry the command as it is.
pub(super) fn can_encode(command: &Command) -> bool {
    i16::try_from(command.code).is_ok()
        && i16::try_from(command.version).is_ok()
        && command.ext.iter().all(|(name, _)| !name.is_empty() && name.len() <= i16::MAX as usize)
}

pub(super) fn encode(command: &Command, out: &mut BytesMut) {
    let remark = command.remark.as_deref().unwrap_or_default();
    out.reserve(21 + remark.len() + command.ext.text_bytes() + 6 * command.ext.len());
    out.put_i16(command.code as i16);
    out.put_u8(command.language.code());
    out.put_i16(command.version as i16);
    out.put_i32(command.opaque);
    out.put_i32(command.flag);
    out.put_u32(remark.len() as u32);
    out.put_slice(remark.as_bytes());
    let length_at = out.len();
    out.put_u32(0);
    for (name, value) in command.ext.iter().filter(|(_, value)| !value.is_empty()) {
        out.put_u16(name.len() as u16);
        out.put_slice(name.as_bytes());
        out.put_u32(value.len() as u32);
        out.put_slice(value.as_bytes());
    }
    let length = (out.len() - length_at - 4) as u32;
    out[length_at..length_at + 4].copy_from_slice(&length.to_be_bytes());
}
