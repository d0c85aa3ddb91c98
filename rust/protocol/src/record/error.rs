//! Why bytes are no record, or a message cannot become one.

/// Why bytes are not a whole and sound record. A retry does not help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum RecordError {
    #[error("the record ends in its field {field}, bytes there: {available}")]
    Truncated { field: &'static str, available: usize },
    #[error("this is no record, its magic is: {magic:#010x}")]
    Magic { magic: u32 },
    #[error("the record states {stated} bytes, its fields need: {computed}")]
    Size { stated: u32, computed: usize },
    #[error("the record's field {field} is negative: {value}")]
    Negative { field: &'static str, value: i64 },
    #[error("the record's field {field} is no port: {value}")]
    Port { field: &'static str, value: i32 },
    #[error("the record's topic is not UTF-8")]
    Topic,
    #[error("the body's checksum is stored as {stored:#010x} and is: {computed:#010x}")]
    BodyCrc { stored: u32, computed: u32 },
    #[error("the record's checksum is stored as {stored:#010x} and is: {computed:#010x}")]
    RecordCrc { stored: u32, computed: u32 },
    #[error("the record has no checksum of its own (property __CRC32# at the end)")]
    NoRecordCrc,
}

/// Why a message cannot become a record. A retry does not help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum RecordEncodeError {
    #[error("the topic has {length} bytes, a record holds at most: {limit}")]
    TopicTooLong { length: usize, limit: usize },
    #[error("the properties have {length} bytes, a record holds at most: {limit}")]
    PropertiesTooLong { length: usize, limit: usize },
    #[error("the body has {length} bytes, a record holds at most: {limit}")]
    BodyTooLong { length: usize, limit: usize },
}
