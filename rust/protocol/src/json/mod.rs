//! The JSON of bodies and configuration files: what fastjson writes and reads, which is not quite JSON.
//!
//! | deviation | read | written |
//! |---|---|---|
//! | J1: maps by integer have unquoted keys | both forms | [`to_vec`]: quoted; [`to_config_vec`]: unquoted |
//! | J2: maps by queue have objects as keys, unquoted | inline, and as a text that holds the object | inline |
//! | null members | as if absent | left out |
//! | a number where a text is expected, or the reverse | accepted | never |
//! | enums by name in any case, or by ordinal | both | by name |
//! | unknown members, members in any order, a member twice | ignored, accepted, the last counts | - |
//!
//! # Source
//! docs/reference/protocol.md 2.0, docs/reference/store-format.md 1.3.

pub(crate) mod lex;
mod read;
mod scan;
mod write;

use serde::Serialize;
use serde::de::DeserializeOwned;
pub(crate) use write::{push_inner_text, push_text};

/// Why a text is not the JSON that was expected. A retry does not help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum JsonError {
    #[error("not UTF-8 at byte {at}")]
    Utf8 { at: usize },
    #[error("expected {expected} at byte {at}")]
    Syntax { expected: &'static str, at: usize },
    #[error("nesting exceeds {limit} levels at byte {at}")]
    TooDeep { limit: usize, at: usize },
    #[error("trailing bytes after the JSON value at byte {at}")]
    Trailing { at: usize },
    #[error("the JSON value has more than {limit} items in lists and maps")]
    TooMany { limit: usize },
    #[error("{message}")]
    Value { message: String },
}

/// Reads a value, leniently.
///
/// # Errors
/// When the text is malformed beyond the deviations above, or a member has a value of the wrong kind.
pub fn from_slice<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, JsonError> {
    let text = std::str::from_utf8(bytes).map_err(|error| JsonError::Utf8 { at: error.valid_up_to() })?;
    from_str(text)
}

/// Maximum number of items in all lists and maps of an answer. An item of few bytes becomes up to two hundred bytes of memory, so that
/// the size of a frame alone bounds too little; names of the usual length do not reach it within one frame.
pub const MAX_ANSWER_ITEMS: usize = 1 << 20;

/// Reads the answer of a server, leniently, with at most [`MAX_ANSWER_ITEMS`].
///
/// # Errors
/// As [`from_slice`], and [`JsonError::TooMany`].
pub fn from_answer<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, JsonError> {
    from_bounded(bytes, MAX_ANSWER_ITEMS)
}

/// Reads a value, leniently, with a maximum number of items in all lists and maps.
///
/// # Errors
/// As [`from_slice`], and [`JsonError::TooMany`].
pub fn from_bounded<T: DeserializeOwned>(bytes: &[u8], max_items: usize) -> Result<T, JsonError> {
    let text = std::str::from_utf8(bytes).map_err(|error| JsonError::Utf8 { at: error.valid_up_to() })?;
    read_whole(read::Reader::with_items(text, max_items))
}

/// Reads a value, leniently.
///
/// # Errors
/// As [`from_slice`].
pub fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, JsonError> {
    read_whole(read::Reader::new(text))
}

fn read_whole<T: DeserializeOwned>(mut reader: read::Reader<'_>) -> Result<T, JsonError> {
    let value = T::deserialize(&mut reader)?;
    reader.finish()?;
    Ok(value)
}

/// Writes a value for the wire: one line, integer keys quoted, keys of maps by queue inline.
#[must_use]
pub fn to_vec<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
    write::write(value, write::Style::Wire)
}

/// Writes a value as the configuration files have it: indented by tabs, integer keys unquoted.
#[must_use]
pub fn to_config_vec<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
    write::write(value, write::Style::Config)
}
