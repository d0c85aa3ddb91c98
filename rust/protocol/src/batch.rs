//! The body of a batch send: items one behind the other, each a message of the request's topic and queue.
//!
//! # Layout
//! All integers big-endian.
//!
//! | bytes | field |
//! |---|---|
//! | 4 | item length, these 4 bytes included |
//! | 4 | magic, 0 |
//! | 4 | body checksum, 0 |
//! | 4 | flag |
//! | 4 | body length, then the body |
//! | 2 | properties length, then the properties as text |
//!
//! # Source
//! docs/reference/protocol.md 4.6.1.

use crate::properties_text;
use crate::wire::Reader;

/// Bytes of an item with neither body nor properties.
pub const ITEM_FIXED_BYTES: usize = 22;

/// Why bytes are not a batch body, or a message cannot be an item of one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum BatchError {
    #[error("batch item {index} is truncated in field {field}")]
    Truncated { index: usize, field: &'static str },
    #[error("batch item {index} declares {stated} bytes, its fields need: {computed}")]
    Size { index: usize, stated: i64, computed: usize },
    #[error("{field} of batch item {index} is negative: {value}")]
    Negative { index: usize, field: &'static str, value: i64 },
    #[error("properties of a batch item exceed {limit} bytes: {length}")]
    PropertiesTooLong { length: usize, limit: usize },
    #[error("body of a batch item exceeds {limit} bytes: {length}")]
    BodyTooLong { length: usize, limit: usize },
}

/// One message of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchItem<'a> {
    /// The user's own flag; no part of RocketMQ reads it.
    pub flag: i32,
    /// The body, compressed or not, as the request's flags say.
    pub body: &'a [u8],
    /// The properties as text ([`properties_text`]).
    pub properties: &'a [u8],
}

impl BatchItem<'_> {
    /// The item's length in a batch body.
    #[must_use]
    pub const fn size(&self) -> usize {
        ITEM_FIXED_BYTES + self.body.len() + self.properties.len()
    }

    /// Appends the item to a batch body.
    ///
    /// # Errors
    /// When body or properties are longer than their length fields can say; nothing is appended then.
    #[doc(alias = "encodeMessage")]
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), BatchError> {
        let limit = properties_text::MAX_BYTES;
        if self.properties.len() > limit {
            return Err(BatchError::PropertiesTooLong { length: self.properties.len(), limit });
        }
        let limit = i32::MAX as usize - ITEM_FIXED_BYTES - properties_text::MAX_BYTES;
        if self.body.len() > limit {
            return Err(BatchError::BodyTooLong { length: self.body.len(), limit });
        }
        let start = out.len();
        out.reserve(self.size());
        out.extend_from_slice(&(self.size() as u32).to_be_bytes());
        out.extend_from_slice(&[0; 8]);
        out.extend_from_slice(&self.flag.to_be_bytes());
        out.extend_from_slice(&(self.body.len() as u32).to_be_bytes());
        out.extend_from_slice(self.body);
        out.extend_from_slice(&(self.properties.len() as u16).to_be_bytes());
        out.extend_from_slice(self.properties);
        assert_eq!(out.len() - start, self.size(), "an item is as long as it says");
        Ok(())
    }
}

/// Reads the items of a batch body in order. Ends at the end of the bytes, or after the first error.
#[must_use]
#[doc(alias = "decodeMessages")]
pub const fn items(body: &[u8]) -> Items<'_> {
    Items { rest: body, index: 0 }
}

/// The iterator of [`items`].
#[derive(Debug, Clone)]
pub struct Items<'a> {
    rest: &'a [u8],
    index: usize,
}

impl<'a> Items<'a> {
    fn item(&mut self) -> Result<BatchItem<'a>, BatchError> {
        let index = self.index;
        let truncated = |field| BatchError::Truncated { index, field };
        let negative = |field, value| BatchError::Negative { index, field, value };
        let mut reader = Reader::new(self.rest);
        let stated = reader.i32().ok_or(truncated("size"))?;
        reader.take(8).ok_or(truncated("magic"))?;
        let flag = reader.i32().ok_or(truncated("flag"))?;
        let length = reader.i32().ok_or(truncated("body length"))?;
        let length = usize::try_from(length).map_err(|_| negative("body length", i64::from(length)))?;
        let body = reader.take(length).ok_or(truncated("body"))?;
        let length = reader.i16().ok_or(truncated("properties length"))?;
        let length = usize::try_from(length).map_err(|_| negative("properties length", i64::from(length)))?;
        let properties = reader.take(length).ok_or(truncated("properties"))?;
        let item = BatchItem { flag, body, properties };
        if usize::try_from(stated) != Ok(item.size()) {
            return Err(BatchError::Size { index, stated: i64::from(stated), computed: item.size() });
        }
        self.rest = reader.rest();
        self.index += 1;
        Ok(item)
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Result<BatchItem<'a>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let result = self.item();
        if result.is_err() {
            self.rest = &[];
        }
        Some(result)
    }
}

impl std::iter::FusedIterator for Items<'_> {}
