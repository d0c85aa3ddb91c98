//! What can go wrong in a scan.

use arrow_schema::ArrowError;
use rocketpy_model::{PhysicalOffset, QueueOffset};
use rocketpy_store::reader::ReadError;
use rocketpy_tools::ToolError;

use crate::Column;

/// Error of a scan. Nothing is changed by a scan, so a retry is always safe.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum ScanError {
    /// A column was asked for that no scan has.
    #[error("unknown column: {column}")]
    UnknownColumn { column: String },
    /// A group was asked for that messages cannot be added up by.
    #[error("cannot group messages by {group}")]
    UnknownGroup { group: String },
    /// A field has a type that no JSON value becomes.
    #[error("field {field} has a type that JSON bodies do not support: {data_type}")]
    JsonType { field: String, data_type: String },
    /// Bodies whose lists and maps have too many items for the fields of each.
    #[error("fields of the JSON items in this batch, missing ones included, exceed the limit: {limit}")]
    JsonFields { limit: usize },
    /// A record is not of the topic that its queue entry stands in, or cannot be parsed.
    #[error("record of topic {topic}, queue {queue_id}, queue offset {queue_offset} is damaged: {reason}")]
    Damaged { topic: String, queue_id: u32, queue_offset: QueueOffset, reason: String },
    /// A compressed body does not give back a body within the bounds.
    #[error(
        "cannot decompress the body of message {queue_offset} of {topic}-{queue_id} ({reason}) at physical offset: {physical_offset}"
    )]
    Body {
        topic: String,
        queue_id: u32,
        queue_offset: QueueOffset,
        physical_offset: PhysicalOffset,
        reason: String,
        /// The limit, when the body goes past it.
        limit_bytes: Option<usize>,
    },
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] ReadError),
    /// A choice of records of a store cannot be read.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// A batch could not be put together.
    #[error("record batch: {0}")]
    Arrow(#[from] ArrowError),
}

impl ScanError {
    /// Whether the same scan may succeed later without a change of its arguments or of the store.
    #[must_use]
    pub fn retryable(&self) -> bool {
        match self {
            Self::Store(error) => error.retryable(),
            Self::Tool(error) => error.retryable(),
            Self::UnknownColumn { .. }
            | Self::UnknownGroup { .. }
            | Self::JsonType { .. }
            | Self::JsonFields { .. }
            | Self::Damaged { .. }
            | Self::Body { .. }
            | Self::Arrow(_) => false,
        }
    }

    /// Whether the scan may have changed something although it failed: never.
    #[must_use]
    pub const fn may_have_been_applied(&self) -> bool {
        false
    }

    /// The way out, when there is one to tell.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::UnknownColumn { .. } => {
                let names: Vec<_> = Column::ALL.iter().map(|column| column.name()).collect();
                Some(format!("available columns: {}", names.join(", ")))
            }
            Self::Body { limit_bytes: Some(limit), .. } => Some(format!(
                "raise the limit of {limit} bytes with max_body_bytes (on the command line --max-body-bytes)"
            )),
            Self::Damaged { .. }
            | Self::Body { .. }
            | Self::Store(ReadError::Missing { .. } | ReadError::BrokenRecord { .. }) => Some(
                "read without failing on data loss to skip it; skipped messages are counted"
                    .to_owned(),
            ),
            Self::Store(ReadError::IncompleteQueues { .. }) => Some(
                "start a server on the folder to rebuild them, or read the remaining messages without failing on data loss"
                    .to_owned(),
            ),
            Self::JsonType { .. } => Some(
                "supported types: boolean, integers up to 64 bits, float, double, decimal, string, binary, date, timestamp, array, struct \
                and map<string, ...>"
                    .to_owned(),
            ),
            Self::JsonFields { .. } => Some(
                "decode fewer bodies at once (Spark: spark.sql.execution.arrow.maxRecordsPerBatch)"
                    .to_owned(),
            ),
            Self::Tool(error) => error.hint(),
            Self::UnknownGroup { .. } | Self::Store(_) | Self::Arrow(_) => None,
        }
    }
}

impl From<ScanError> for ArrowError {
    fn from(error: ScanError) -> Self {
        match error {
            ScanError::Arrow(error) => error,
            error => Self::ExternalError(Box::new(error)),
        }
    }
}
