//! Rows in, record batches out.

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;
use rocketpy_protocol::compression::{CompressionError, DecompressLimits};
use rocketpy_protocol::properties_text;
use rocketpy_protocol::record::{RecordView, TOPIC_MAX_BYTES};

use crate::rows::Rows;
use crate::spent::Spent;
use crate::{Column, Columns, ScanError};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchLimits {
    /// Maximum rows of a batch; larger values count as [`MOST_ROWS`](Self::MOST_ROWS).
    pub rows: usize,
    /// Bytes of bodies and properties after which a batch is full; a larger message is a batch by itself. More than
    /// [`MOST_BYTES`](Self::MOST_BYTES) count as that.
    pub bytes: usize,
}

impl BatchLimits {
    /// Upper limit of the rows of a batch.
    pub const MOST_ROWS: usize = 1 << 20;
    /// Upper limit of the bytes after which a batch is full.
    ///
    /// An Arrow column of these types holds less than 2 GiB. Text that is not UTF-8 may become three times as long, and the last
    /// body is known only when it is decompressed.
    pub const MOST_BYTES: usize = 512 << 20;

    fn bounded(self) -> Self {
        Self { rows: self.rows.min(Self::MOST_ROWS), bytes: self.bytes.min(Self::MOST_BYTES) }
    }
}

// No column reaches 2 GiB with the row that made the batch full.
const _: () = {
    const MOST: usize = i32::MAX as usize;
    assert!(3 * (BatchLimits::MOST_BYTES + properties_text::MAX_BYTES) < MOST);
    assert!(2 * BatchLimits::MOST_BYTES < MOST);
    assert!(BatchLimits::MOST_ROWS * TOPIC_MAX_BYTES < MOST);
};

impl Default for BatchLimits {
    /// 1 MiB: the JVM takes batches of 256 KiB to 4 MiB at the same rate, and smaller or larger ones slower.
    fn default() -> Self {
        Self { rows: 8192, bytes: 1 << 20 }
    }
}

/// Builds record batches from stored or pulled records.
///
/// Only the wanted columns are read: without the body nothing is decompressed, and without tag, keys, message
/// id and properties the property text is not read.
pub struct RecordBatchBuilder {
    columns: Columns,
    schema: SchemaRef,
    limits: BatchLimits,
    decompress: DecompressLimits,
    /// Whether a body that does not decompress is null, not an error.
    null_unreadable_bodies: bool,
    rows: Rows,
}

impl RecordBatchBuilder {
    /// Makes an empty builder.
    #[must_use]
    pub fn new(columns: Columns, limits: BatchLimits) -> Self {
        let (schema, limits) = (columns.schema(), limits.bounded());
        let rows = Rows::new(&columns, limits);
        Self::of(columns, schema, limits, rows)
    }

    /// Makes an empty builder for one batch whose size is known: `rows` records with `body_bytes` of bodies. Memory is taken
    /// once; `limits` still say when the batch is full.
    #[must_use]
    pub fn with_room(columns: Columns, limits: BatchLimits, rows: usize, body_bytes: usize) -> Self {
        let (schema, limits) = (columns.schema(), limits.bounded());
        let (rows, body_bytes) = (rows.min(limits.rows), body_bytes.min(limits.bytes));
        let rows = Rows::within(&columns, rows, body_bytes, Spent::default());
        Self::of(columns, schema, limits, rows)
    }

    /// As [`with_room`](Self::with_room), in the memory of an earlier batch of the same columns as far as nobody reads that any
    /// more and its size will do.
    #[must_use]
    pub fn with_room_of(
        spent: RecordBatch,
        columns: Columns,
        limits: BatchLimits,
        rows: usize,
        body_bytes: usize,
    ) -> Self {
        let (schema, limits) = (columns.schema(), limits.bounded());
        let (rows, body_bytes) = (rows.min(limits.rows), body_bytes.min(limits.bytes));
        let rows = Rows::within(&columns, rows, body_bytes, Spent::new(&columns, spent));
        Self::of(columns, schema, limits, rows)
    }

    const fn of(columns: Columns, schema: SchemaRef, limits: BatchLimits, rows: Rows) -> Self {
        let decompress = DecompressLimits::MESSAGE;
        Self { columns, schema, limits, decompress, null_unreadable_bodies: false, rows }
    }

    /// The same, with other limits for bodies that are decompressed. More than 512 MiB counts as that.
    #[must_use]
    pub fn with_body_limits(mut self, limits: DecompressLimits) -> Self {
        self.decompress =
            DecompressLimits { max_bytes: limits.max_bytes.min(BatchLimits::MOST_BYTES), ..limits };
        self
    }

    /// The same, where a body that does not decompress within the limits is null if `is_null`, and else an error.
    #[must_use]
    pub const fn with_null_unreadable_bodies(mut self, is_null: bool) -> Self {
        self.null_unreadable_bodies = is_null;
        self
    }

    /// Schema of every batch.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// Rows pushed since the last batch.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.rows.len()
    }

    /// True when nothing was pushed since the last batch.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rows.len() == 0
    }

    /// True when the batch should be finished before this record is pushed.
    #[must_use]
    pub fn is_full_before(&self, record: &RecordView<'_>) -> bool {
        let more = if self.columns.has(Column::Body) { record.body.len() } else { 0 };
        self.rows.len() >= self.limits.rows
            || (self.rows.len() > 0 && self.rows.bytes() + more > self.limits.bytes)
    }

    /// Appends one record as a row.
    ///
    /// # Errors
    /// [`ScanError::Body`] when the body is wanted and does not decompress, unless it is to be null. No row is appended then.
    pub fn push(&mut self, record: &RecordView<'_>, broker_name: Option<&str>) -> Result<(), ScanError> {
        let body = if self.columns.has(Column::Body) {
            let failed = |error: CompressionError| ScanError::Body {
                topic: record.topic.to_owned(),
                queue_id: record.queue_id,
                queue_offset: record.queue_offset,
                physical_offset: record.physical_offset,
                limit_bytes: match &error {
                    CompressionError::TooLarge { limit, .. } => Some(*limit),
                    _ => None,
                },
                reason: error.to_string(),
            };
            match record.plain_body(&self.decompress) {
                Err(_) if self.null_unreadable_bodies => None,
                body => Some(body.map_err(failed)?),
            }
        } else {
            None
        };
        self.rows.push(&self.columns, record, body.as_deref(), broker_name);
        Ok(())
    }

    /// Closes the rows pushed so far into a batch and starts over.
    ///
    /// # Errors
    /// [`ScanError::Arrow`], which would be a fault of the builder itself.
    pub fn finish(&mut self) -> Result<RecordBatch, ScanError> {
        let rows = std::mem::replace(&mut self.rows, Rows::new(&self.columns, self.limits));
        self.batch(rows)
    }

    /// Closes the rows pushed so far into the last batch.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    pub fn into_batch(mut self) -> Result<RecordBatch, ScanError> {
        let rows = std::mem::replace(&mut self.rows, Rows::within(&Columns::of(&[]), 0, 0, Spent::default()));
        self.batch(rows)
    }

    fn batch(&self, mut rows: Rows) -> Result<RecordBatch, ScanError> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        let arrays: Result<Vec<_>, _> =
            self.columns.order().iter().map(|&column| rows.take(column)).collect();
        Ok(RecordBatch::try_new_with_options(self.schema(), arrays?, &options)?)
    }
}
