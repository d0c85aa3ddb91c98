//! The JSON form of a header, read in two ways: a straight scan of the form that all known clients write, and behind it the
//! lenient reader for everything else (spaces, escaped names, numbers in quotes, nulls, unknown members).
//!
//! # Source
//! docs/reference/protocol.md 1.3.1 and its table of tolerances.

use std::fmt;

use bytes::Bytes;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};

use super::Command;
use crate::frame::{FrameError, SerializeType};
use crate::json::lex::Lexer;
use crate::json::{self, JsonError};
use crate::{ExtFields, Language};

pub(super) fn decode(header: &[u8]) -> Result<Command, FrameError> {
    let text = std::str::from_utf8(header).map_err(|error| FrameError::Utf8 { at: error.valid_up_to() })?;
    match scan(text) {
        Some(command) => Ok(command),
        None => decode_leniently(text),
    }
}

fn blank() -> Command {
    Command {
        code: 0,
        language: Language::Other,
        version: 0,
        opaque: 0,
        flag: 0,
        remark: None,
        ext: ExtFields::new(),
        body: Bytes::new(),
        serialize: SerializeType::Json,
    }
}

/// Reads the form that all known clients write. `None` means that the text is unusual in some way, not that it is wrong.
fn scan(text: &str) -> Option<Command> {
    let mut lexer = Lexer::new(text);
    let mut command = blank();
    expect(&mut lexer, b'{')?;
    loop {
        let name = plain_text(&mut lexer)?;
        expect(&mut lexer, b':')?;
        match name {
            "code" => command.code = integer(&mut lexer)?,
            "flag" => command.flag = integer(&mut lexer)?,
            "opaque" => command.opaque = integer(&mut lexer)?,
            "version" => command.version = integer(&mut lexer)?,
            "language" => command.language = Language::from_name(plain_text(&mut lexer)?),
            "serializeTypeCurrentRPC" => {
                plain_text(&mut lexer)?;
            }
            "remark" => {
                expect(&mut lexer, b'"')?;
                let mut remark = String::new();
                lexer.string_tail(&mut remark).ok()?;
                command.remark = Some(remark).filter(|remark| !remark.is_empty());
            }
            "extFields" => command.ext = scan_fields(&mut lexer, text.len())?,
            _ => return None,
        }
        match next(&mut lexer)? {
            b',' => {}
            b'}' => break,
            _ => return None,
        }
    }
    lexer.peek().is_none().then_some(command)
}

fn scan_fields(lexer: &mut Lexer<'_>, header_bytes: usize) -> Option<ExtFields> {
    expect(lexer, b'{')?;
    let mut fields = ExtFields::with_capacity(16, header_bytes);
    // Members are counted, not names: the same name again and again costs a search each time.
    for _ in 0..ExtFields::MAX_FIELDS {
        let name = plain_text(lexer)?;
        expect(lexer, b':')?;
        match lexer.byte()? {
            b'"' => {
                lexer.at += 1;
                let mut sound = Ok(());
                fields.push_with(name, |text| sound = lexer.string_tail(text));
                sound.ok()?;
            }
            b'0'..=b'9' | b'-' => fields.push(name, number(lexer)?),
            _ => return None,
        }
        match next(lexer)? {
            b',' => {}
            b'}' => return Some(fields),
            _ => return None,
        }
    }
    None
}

#[inline]
fn next(lexer: &mut Lexer<'_>) -> Option<u8> {
    let byte = lexer.byte()?;
    lexer.at += 1;
    Some(byte)
}

#[inline]
fn expect(lexer: &mut Lexer<'_>, byte: u8) -> Option<()> {
    (next(lexer)? == byte).then_some(())
}

/// A text without escapes.
#[inline]
fn plain_text<'a>(lexer: &mut Lexer<'a>) -> Option<&'a str> {
    expect(lexer, b'"')?;
    let text = lexer.plain_tail()?;
    Some(text)
}

/// A number as JSON allows it, without fraction and exponent.
#[inline]
fn number<'a>(lexer: &mut Lexer<'a>) -> Option<&'a str> {
    let word = lexer.word().ok()?;
    let digits = word.strip_prefix('-').unwrap_or(word);
    let sound = digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.is_empty();
    let leading_zero = digits.len() > 1 && digits.starts_with('0');
    (sound && !leading_zero).then_some(word)
}

#[inline]
fn integer(lexer: &mut Lexer<'_>) -> Option<i32> {
    number(lexer)?.parse().ok()
}

/// The header as the lenient reader sees it.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Members {
    code: i32,
    ext_fields: Fields,
    flag: i32,
    language: String,
    opaque: i32,
    remark: String,
    version: i32,
}

impl Default for Members {
    fn default() -> Self {
        Self {
            code: 0,
            ext_fields: Fields(ExtFields::new()),
            flag: 0,
            language: String::new(),
            opaque: 0,
            remark: String::new(),
            version: 0,
        }
    }
}

fn decode_leniently(text: &str) -> Result<Command, FrameError> {
    let members: Members = json::from_str(text).map_err(|error| match error {
        JsonError::Value { message } if message == TOO_MANY => {
            FrameError::TooManyFields { limit: ExtFields::MAX_FIELDS }
        }
        error => FrameError::Json { reason: error.to_string() },
    })?;
    Ok(Command {
        code: members.code,
        language: Language::from_name(&members.language),
        version: members.version,
        opaque: members.opaque,
        flag: members.flag,
        remark: Some(members.remark).filter(|remark| !remark.is_empty()),
        ext: members.ext_fields.0,
        ..blank()
    })
}

const TOO_MANY: &str = "too many extFields";

/// `extFields` with numbers and truth values turned to text and nulls left out.
struct Fields(ExtFields);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;

        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of texts")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Fields, A::Error> {
                let mut fields = ExtFields::new();
                let mut count = 0;
                while let Some((name, value)) = entries.next_entry::<String, String>()? {
                    fields.push(&name, &value);
                    count += 1;
                    if count > ExtFields::MAX_FIELDS {
                        return Err(de::Error::custom(TOO_MANY));
                    }
                }
                Ok(Fields(fields))
            }
        }

        deserializer.deserialize_map(FieldsVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lenient reader would read these too, at several times the cost.
    #[test]
    fn headers_of_all_known_clients_are_scanned() {
        for text in [
            // Java, Go and C++.
            r#"{"code":310,"extFields":{"a":"PG1","b":"T","i":"TAGS\u0001TagA\u0002","m":"false"},"flag":0,"language":"JAVA","opaque":8,"serializeTypeCurrentRPC":"JSON","version":479}"#,
            r#"{"code":10,"language":"GO","version":317,"opaque":1,"flag":0,"remark":"","extFields":{"topic":"T","queueId":"0"}}"#,
            "{\"code\":310,\"extFields\":{\"d\":4,\"e\":-1,\"j\":\"0\"},\"flag\":0,\"language\":\"CPP\",\"opaque\":3,\"version\":333}\n",
            r#"{"code":0,"flag":1,"language":"OTHER","opaque":9,"remark":"FOUND \"it\"","version":479}"#,
        ] {
            let scanned = scan(text).unwrap_or_else(|| panic!("not scanned: {text}"));
            assert_eq!(decode_leniently(text), Ok(scanned), "both readers agree");
        }
    }
}
