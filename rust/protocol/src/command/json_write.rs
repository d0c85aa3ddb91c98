//! The JSON form of a header, written as the reference does: keys in order, no spaces, values of extFields always texts.
//!
//! # Source
//! docs/reference/protocol.md 1.3.1.

use bytes::{BufMut, BytesMut};

use super::Command;
use crate::json::{push_inner_text, push_text};

pub(super) fn encode(command: &Command, out: &mut BytesMut) {
    let remark = command.remark.as_deref().filter(|remark| !remark.is_empty());
    out.reserve(128 + remark.map_or(0, str::len) + command.ext.text_bytes() * 2 + command.ext.len() * 6);
    push_number(out, "{\"code\":", command.code);
    if !command.ext.is_empty() {
        let mut before: &[u8] = b",\"extFields\":{\"";
        for (name, value) in command.ext.iter() {
            out.put_slice(before);
            push_inner_text(out, name);
            out.put_slice(b"\":\"");
            push_inner_text(out, value);
            before = b"\",\"";
        }
        out.put_slice(b"\"}");
    }
    push_number(out, ",\"flag\":", command.flag);
    out.put_slice(b",\"language\":\"");
    out.put_slice(command.language.name().as_bytes());
    push_number(out, "\",\"opaque\":", command.opaque);
    if let Some(remark) = remark {
        out.put_slice(b",\"remark\":");
        push_text(out, remark);
    }
    push_number(out, ",\"version\":", command.version);
    out.put_u8(b'}');
}

fn push_number(out: &mut BytesMut, key: &str, number: i32) {
    out.put_slice(key.as_bytes());
    out.put_slice(itoa::Buffer::new().format(number).as_bytes());
}
