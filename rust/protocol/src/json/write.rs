//! A serde serializer that writes what fastjson writes.

use std::fmt;

use bytes::BufMut;
use serde::ser::{self, Impossible, Serialize, SerializeMap, SerializeSeq, SerializeStruct, Serializer};

use super::scan::find_escaped;

/// Which form is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// One line, integer keys quoted.
    Wire,
    /// Indented by tabs, integer keys unquoted.
    Config,
}

pub(super) fn write<T: Serialize + ?Sized>(value: &T, style: Style) -> Vec<u8> {
    let mut writer = Writer { out: Vec::with_capacity(256), style, level: 0 };
    value.serialize(&mut writer).expect("the types of this protocol have nothing that JSON cannot hold");
    writer.out
}

/// The error that serde asks for; no type of the protocol causes one.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unwritable(String);

impl ser::Error for Unwritable {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

/// Appends `text` in quotes, escaped as Java escapes it.
#[inline]
pub(crate) fn push_text(out: &mut impl BufMut, text: &str) {
    out.put_u8(b'"');
    push_inner_text(out, text);
    out.put_u8(b'"');
}

/// Appends `text` without the quotes around it.
#[inline]
pub(crate) fn push_inner_text(out: &mut impl BufMut, text: &str) {
    let mut rest = text.as_bytes();
    while let Some(at) = find_escaped(rest) {
        out.put_slice(&rest[..at]);
        push_escape(out, rest[at]);
        rest = &rest[at + 1..];
    }
    out.put_slice(rest);
}

fn push_escape(out: &mut impl BufMut, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let short = match byte {
        b'"' | b'\\' => byte,
        0x08 => b'b',
        0x0c => b'f',
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        _ => {
            let low = DIGITS[usize::from(byte & 15)];
            out.put_slice(&[b'\\', b'u', b'0', b'0', DIGITS[usize::from(byte >> 4)], low]);
            return;
        }
    };
    out.put_slice(&[b'\\', short]);
}

/// Writes one value after the other; `level` is the nesting.
struct Writer {
    out: Vec<u8>,
    style: Style,
    level: usize,
}

impl Writer {
    fn new_line(&mut self) {
        if self.style == Style::Config {
            self.out.push(b'\n');
            self.out.resize(self.out.len() + self.level, b'\t');
        }
    }

    fn open(&mut self, bracket: u8) -> Members<'_> {
        self.out.push(bracket);
        self.level += 1;
        Members { writer: self, is_empty: true, close: if bracket == b'[' { b']' } else { b'}' } }
    }
}

/// The members of a list or an object that is being written.
struct Members<'w> {
    writer: &'w mut Writer,
    is_empty: bool,
    close: u8,
}

impl Members<'_> {
    /// Starts a member and returns the place to go back to if its value is null.
    fn start(&mut self) -> usize {
        let place = self.writer.out.len();
        if !self.is_empty {
            self.writer.out.push(b',');
        }
        self.writer.new_line();
        place
    }

    /// Writes the value of a member that began at `place`; a null member is removed again.
    fn value<T: Serialize + ?Sized>(&mut self, place: usize, value: &T) -> Result<(), Unwritable> {
        let value_at = self.writer.out.len();
        value.serialize(&mut *self.writer)?;
        if &self.writer.out[value_at..] == b"null" {
            self.writer.out.truncate(place);
        } else {
            self.is_empty = false;
        }
        Ok(())
    }

    fn finish(self) -> Result<(), Unwritable> {
        self.writer.level -= 1;
        if !self.is_empty {
            self.writer.new_line();
        }
        self.writer.out.push(self.close);
        Ok(())
    }
}

macro_rules! integers {
    ($($method:ident: $type:ty,)+) => {$(
        fn $method(self, value: $type) -> Result<(), Unwritable> {
            self.out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
            Ok(())
        }
    )+};
}

type No = Impossible<(), Unwritable>;

fn no<T>() -> Result<T, Unwritable> {
    Err(ser::Error::custom("this kind of value has no place in the protocol"))
}

impl<'w> Serializer for &'w mut Writer {
    type Ok = ();
    type Error = Unwritable;
    type SerializeSeq = Members<'w>;
    type SerializeTuple = No;
    type SerializeTupleStruct = No;
    type SerializeTupleVariant = No;
    type SerializeMap = Map<'w>;
    type SerializeStruct = Members<'w>;
    type SerializeStructVariant = No;

    integers! {
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64,
    }

    fn serialize_bool(self, value: bool) -> Result<(), Unwritable> {
        self.out.extend_from_slice(if value { b"true" } else { b"false" });
        Ok(())
    }

    fn serialize_f32(self, value: f32) -> Result<(), Unwritable> {
        self.serialize_f64(f64::from(value))
    }

    fn serialize_f64(self, value: f64) -> Result<(), Unwritable> {
        let text = if value.is_finite() { format!("{value:?}") } else { "null".to_owned() };
        self.out.extend_from_slice(text.as_bytes());
        Ok(())
    }

    fn serialize_char(self, value: char) -> Result<(), Unwritable> {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Result<(), Unwritable> {
        push_text(&mut self.out, value);
        Ok(())
    }

    fn serialize_bytes(self, _value: &[u8]) -> Result<(), Unwritable> {
        no()
    }

    fn serialize_none(self) -> Result<(), Unwritable> {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Unwritable> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Unwritable> {
        self.out.extend_from_slice(b"null");
        Ok(())
    }

    fn serialize_unit_struct(self, _name: &'static str) -> Result<(), Unwritable> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
    ) -> Result<(), Unwritable> {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        value: &T,
    ) -> Result<(), Unwritable> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        _index: u32,
        _variant: &'static str,
        _value: &T,
    ) -> Result<(), Unwritable> {
        no()
    }

    fn serialize_seq(self, _length: Option<usize>) -> Result<Members<'w>, Unwritable> {
        Ok(self.open(b'['))
    }

    fn serialize_tuple(self, _length: usize) -> Result<No, Unwritable> {
        no()
    }

    fn serialize_tuple_struct(self, _name: &'static str, _length: usize) -> Result<No, Unwritable> {
        no()
    }

    fn serialize_tuple_variant(
        self,
        _name: &'static str,
        _index: u32,
        _variant: &'static str,
        _length: usize,
    ) -> Result<No, Unwritable> {
        no()
    }

    fn serialize_map(self, _length: Option<usize>) -> Result<Map<'w>, Unwritable> {
        Ok(Map { members: self.open(b'{'), place: 0 })
    }

    fn serialize_struct(self, _name: &'static str, _length: usize) -> Result<Members<'w>, Unwritable> {
        Ok(self.open(b'{'))
    }

    fn serialize_struct_variant(
        self,
        _name: &'static str,
        _index: u32,
        _variant: &'static str,
        _length: usize,
    ) -> Result<No, Unwritable> {
        no()
    }
}

impl SerializeSeq for Members<'_> {
    type Ok = ();
    type Error = Unwritable;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unwritable> {
        let place = self.start();
        self.value(place, value)
    }

    fn end(self) -> Result<(), Unwritable> {
        self.finish()
    }
}

impl SerializeStruct for Members<'_> {
    type Ok = ();
    type Error = Unwritable;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), Unwritable> {
        let place = self.start();
        push_text(&mut self.writer.out, name);
        self.writer.out.push(b':');
        self.value(place, value)
    }

    fn end(self) -> Result<(), Unwritable> {
        self.finish()
    }
}

/// A map that is being written.
struct Map<'w> {
    members: Members<'w>,
    /// Where the current entry began.
    place: usize,
}

impl SerializeMap for Map<'_> {
    type Ok = ();
    type Error = Unwritable;

    /// A key of any kind is written like a value: an object stays an object (J2). Only an integer may get quotes.
    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Unwritable> {
        self.place = self.members.start();
        let writer = &mut *self.members.writer;
        let key_at = writer.out.len();
        let level = std::mem::replace(&mut writer.level, 0);
        let style = std::mem::replace(&mut writer.style, Style::Wire);
        key.serialize(&mut *writer)?;
        (writer.level, writer.style) = (level, style);
        let is_number =
            writer.out[key_at..].first().is_some_and(|&byte| byte == b'-' || byte.is_ascii_digit());
        if is_number && style == Style::Wire {
            writer.out.insert(key_at, b'"');
            writer.out.push(b'"');
        }
        writer.out.push(b':');
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unwritable> {
        self.members.value(self.place, value)
    }

    fn end(self) -> Result<(), Unwritable> {
        self.members.finish()
    }
}
