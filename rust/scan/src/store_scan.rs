//! Reads the records of a slice out of a store folder.

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use rocketpy_filter::TagFilter;
use rocketpy_model::QueueOffset;
use rocketpy_store::reader::{QueueRange, StoreReader};

use crate::{BatchLimits, Columns, RecordBatchBuilder, ScanError};

/// How a slice is read.
#[derive(Debug, Clone)]
pub struct StoreScanOptions {
    pub columns: Columns,
    pub limits: BatchLimits,
    /// Which messages are wanted: first by the tag code of the consume queue, then by the tag itself.
    pub tags: TagFilter,
    /// What to show as broker name; a store folder does not know its own.
    pub broker_name: Option<String>,
    /// Whether messages that are gone or damaged end the scan with an error, or are left out and counted.
    pub fail_on_data_loss: bool,
}

impl Default for StoreScanOptions {
    fn default() -> Self {
        Self {
            columns: Columns::default(),
            limits: BatchLimits::default(),
            tags: TagFilter::All,
            broker_name: None,
            fail_on_data_loss: true,
        }
    }
}

/// Messages of a queue that were asked for and could not be given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostRange {
    pub topic: Arc<str>,
    pub queue_id: u32,
    pub start: QueueOffset,
    /// Queue offset after the last one.
    pub end: QueueOffset,
    pub reason: String,
}

/// Record batches of some queue ranges of a store, in the order of the commit log: within a queue, in queue order.
///
/// An error ends the scan.
pub struct StoreScan {
    reader: Arc<StoreReader>,
    builder: RecordBatchBuilder,
    options: StoreScanOptions,
    lost: Vec<LostRange>,
}

impl StoreScan {
    /// Starts to read. Ranges may be of several topics and queues; they should not overlap.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn new(
        reader: Arc<StoreReader>,
        ranges: Vec<QueueRange>,
        options: StoreScanOptions,
    ) -> Result<Self, ScanError> {
        let _ = ranges;
        let builder = RecordBatchBuilder::new(options.columns.clone(), options.limits);
        Ok(Self { reader, builder, options, lost: Vec::new() })
    }

    /// The next batch, never empty; `None` at the end.
    ///
    /// # Errors
    /// When a message is gone or damaged and that is to be an error, or the store cannot be read.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>, ScanError> {
        let _ = (&self.reader, &self.options);
        unimplemented!()
    }

    /// What was asked for and left out so far, in the order met.
    #[must_use]
    pub fn lost(&self) -> &[LostRange] {
        &self.lost
    }
}

impl Iterator for StoreScan {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch().map_err(ArrowError::from).transpose()
    }
}

impl RecordBatchReader for StoreScan {
    fn schema(&self) -> SchemaRef {
        self.builder.schema()
    }
}
