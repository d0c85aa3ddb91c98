//! Why bytes are no record, or a message cannot become one.

/// Why bytes are not a whole and sound record. A retry does not help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum RecordError {
    #[error("record is truncated in field {field}, available bytes: {available}")]
    Truncated { field: &'static str, available: usize },
    #[error("unknown record magic: {magic:#010x}")]
    Magic { magic: u32 },
    #[error("record declares {stated} bytes, its fields need: {computed}")]
    Size { stated: u32, computed: usize },
    #[error("record field {field} is negative: {value}")]
    Negative { field: &'static str, value: i64 },
    #[error("record field {field} is not a port: {value}")]
    Port { field: &'static str, value: i32 },
    #[error("record topic is not UTF-8")]
    Topic,
    #[error("body checksum mismatch: stored {stored:#010x}, computed {computed:#010x}")]
    BodyCrc { stored: u32, computed: u32 },
    #[error("record checksum mismatch: stored {stored:#010x}, computed {computed:#010x}")]
    RecordCrc { stored: u32, computed: u32 },
    #[error("record has no whole-record checksum (property __CRC32# at the end)")]
    NoRecordCrc,
}

/// Why a message cannot become a record. A retry does not help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum RecordEncodeError {
    #[error("record topic exceeds {limit} bytes: {length}")]
    TopicTooLong { length: usize, limit: usize },
    #[error("record properties exceed {limit} bytes: {length}")]
    PropertiesTooLong { length: usize, limit: usize },
    #[error("record body exceeds {limit} bytes: {length}")]
    BodyTooLong { length: usize, limit: usize },
}
