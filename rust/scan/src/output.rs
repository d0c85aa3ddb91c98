//! What a scan makes of its records.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use rocketpy_protocol::record::RecordView;

use crate::{RecordBatchBuilder, ScanError, Sums};

/// What a scan makes of its records.
pub enum Output {
    /// A row of each.
    Rows(Box<RecordBatchBuilder>),
    /// Sums by group.
    Sums(Sums),
}

impl Output {
    /// Schema of every batch.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        match self {
            Self::Rows(builder) => builder.schema(),
            Self::Sums(sums) => sums.schema(),
        }
    }

    /// True when nothing was pushed since the last batch.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        match self {
            Self::Rows(builder) => builder.is_empty(),
            Self::Sums(sums) => sums.is_empty(),
        }
    }

    /// True when the batch should be finished before this record is pushed.
    #[must_use]
    pub fn is_full_before(&self, record: &RecordView<'_>) -> bool {
        match self {
            Self::Rows(builder) => builder.is_full_before(record),
            Self::Sums(sums) => sums.is_full(),
        }
    }

    /// Takes one record in.
    ///
    /// # Errors
    /// As [`RecordBatchBuilder::push`].
    pub fn push(&mut self, record: &RecordView<'_>, broker_name: Option<&str>) -> Result<(), ScanError> {
        match self {
            Self::Rows(builder) => builder.push(record, broker_name)?,
            Self::Sums(sums) => sums.push(record, broker_name),
        }
        Ok(())
    }

    /// Closes what was pushed so far into a batch and starts over.
    ///
    /// # Errors
    /// [`ScanError::Arrow`], which would be a fault of this crate itself.
    pub fn finish(&mut self) -> Result<RecordBatch, ScanError> {
        match self {
            Self::Rows(builder) => builder.finish(),
            Self::Sums(sums) => sums.finish(),
        }
    }
}
