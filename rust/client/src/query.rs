//! What a look-up of messages asks for.

/// What a key is looked up as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum QueryKind {
    /// One of the message's keys.
    #[default]
    Key,
    /// The unique key that the producer gave the message: its message id.
    UniqueKey,
    /// The message's tag. Apache's brokers before 5.4 have no such index.
    Tag,
}

/// Which messages of a key are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageQuery {
    /// What the key is looked up as.
    pub kind: QueryKind,
    /// Most messages; the newest when there are more. A broker gives at most 64 unless it is set to give more.
    pub max_messages: u32,
    /// Stored at or after this time (milliseconds since 1970).
    pub begin_ms: i64,
    /// Stored at or before this time.
    pub end_ms: i64,
}

impl Default for MessageQuery {
    fn default() -> Self {
        Self { kind: QueryKind::Key, max_messages: 64, begin_ms: 0, end_ms: i64::MAX }
    }
}
