//! What can go wrong in a scan.

use arrow_schema::ArrowError;

use crate::Column;

/// Error of a scan. Nothing is changed by a scan, so a retry is always safe.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// A column was asked for that no scan has.
    #[error("unknown column: {column}")]
    UnknownColumn { column: String },
    /// A topic is not in the store.
    #[error("no topic in the store: {topic}")]
    UnknownTopic { topic: String },
    /// A start or end names a queue that the topic does not have.
    #[error("topic {topic} has no queue: {queue_id}")]
    UnknownQueue { topic: String, queue_id: u32 },
    /// A start lies behind its end.
    #[error("queue {queue_id} of topic {topic} ends at {end}, before its start: {start}")]
    InvertedRange { topic: String, queue_id: u32, start: u64, end: u64 },
    /// Messages that were asked for are not there any more.
    #[error(
        "{count} messages of topic {topic}, queue {queue_id} are gone, from queue offset {start} to {end}"
    )]
    Lost { topic: String, queue_id: u32, start: u64, end: u64, count: u64 },
    /// A record is not what its queue entry says, or cannot be decoded.
    #[error(
        "record of topic {topic}, queue {queue_id}, queue offset {queue_offset} is damaged ({reason}) at physical offset: {physical_offset}"
    )]
    Damaged { topic: String, queue_id: u32, queue_offset: u64, physical_offset: u64, reason: String },
    /// A compressed body does not give back a body within the bounds.
    #[error("body of the record does not decompress ({reason}) at physical offset: {physical_offset}")]
    Body { physical_offset: u64, reason: String },
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] rocketpy_store::reader::ReadError),
    /// A batch could not be put together.
    #[error("record batch: {0}")]
    Arrow(#[from] ArrowError),
}

impl ScanError {
    /// The way out, when there is one to tell.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::UnknownColumn { .. } => {
                let names: Vec<_> = Column::ALL.iter().map(|column| column.name()).collect();
                Some(format!("columns are {}", names.join(", ")))
            }
            Self::UnknownTopic { .. } => Some("list them with `rocketpy store stat`".to_owned()),
            Self::Lost { .. } | Self::Damaged { .. } | Self::Body { .. } => Some(
                "read with failOnDataLoss=false to go on without them; they are counted and logged"
                    .to_owned(),
            ),
            Self::UnknownQueue { .. } | Self::InvertedRange { .. } | Self::Store(_) | Self::Arrow(_) => None,
        }
    }
}

impl From<ScanError> for ArrowError {
    fn from(error: ScanError) -> Self {
        Self::ExternalError(Box::new(error))
    }
}
