//! Reads ranges of a store folder into record batches.

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use rocketpy_filter::MessageFilter;
use rocketpy_protocol::compression::DecompressLimits;
use rocketpy_protocol::record::RecordView;
use rocketpy_store::reader::{
    BlockRecord, Missing, MissingRange, QueueRange, RangeScan, ScanOptions, StoreReader,
};

use crate::{BatchLimits, Columns, Group, Output, RecordBatchBuilder, ScanError, Sums};

/// How ranges become batches.
#[derive(Debug, Clone)]
pub struct StoreScanOptions {
    /// What is read, unless messages are added up.
    pub columns: Columns,
    /// What messages are added up by, with [`Sums`], in place of rows; none for rows.
    pub groupings: Vec<Vec<Group>>,
    /// How large a batch may be.
    pub limits: BatchLimits,
    /// Which messages are wanted.
    pub filter: MessageFilter,
    /// What to show as broker name; a store folder does not know its own.
    pub broker_name: Option<String>,
    /// Whether messages that are gone or damaged end the scan with an error, or are left out and listed.
    pub fail_on_data_loss: bool,
    /// Whether each record's checksum is compared: its own, or its body's where it has none.
    pub verify: bool,
    /// How far bodies may grow when they are decompressed.
    pub body_limits: DecompressLimits,
    /// Whether a body that does not decompress is null, and its message counts as read.
    pub null_unreadable_bodies: bool,
}

impl Default for StoreScanOptions {
    fn default() -> Self {
        Self {
            columns: Columns::default(),
            groupings: Vec::new(),
            limits: BatchLimits::default(),
            filter: MessageFilter::All,
            broker_name: None,
            fail_on_data_loss: true,
            verify: true,
            body_limits: DecompressLimits::MESSAGE,
            null_unreadable_bodies: false,
        }
    }
}

/// Bytes of the log that are read at once: what was read is still in the core's own cache when columns are made of it.
const BLOCK_BYTES: usize = 256 << 10;

/// Messages of a queue that were asked for and could not be given.
pub type LostRange = MissingRange;

/// Record batches of some queue ranges, in the order of the commit log: within a queue, in queue order.
///
/// An error ends the scan.
pub struct StoreScan {
    scan: RangeScan,
    ranges: Vec<QueueRange>,
    /// Next record of the scan's block.
    at: usize,
    output: Output,
    options: StoreScanOptions,
    lost: Vec<LostRange>,
    is_done: bool,
    has_failed: bool,
}

impl StoreScan {
    /// Starts to read. Ranges may be of several topics and queues; they should not overlap.
    ///
    /// # Errors
    /// When the store cannot be read, or messages are missing and that is to be an error.
    pub fn new(
        reader: &StoreReader,
        ranges: Vec<QueueRange>,
        options: StoreScanOptions,
    ) -> Result<Self, ScanError> {
        let scan_options = ScanOptions {
            filter: options.filter.clone(),
            verify: options.verify,
            missing: missing(options.fail_on_data_loss),
            block_bytes: BLOCK_BYTES,
        };
        let mut scan = reader.scan(&ranges, scan_options)?;
        let lost = scan.take_missing();
        let output = if options.groupings.is_empty() {
            let builder = RecordBatchBuilder::new(options.columns.clone(), options.limits)
                .with_body_limits(options.body_limits)
                .with_null_unreadable_bodies(options.null_unreadable_bodies);
            Output::Rows(Box::new(builder))
        } else {
            Output::Sums(Sums::new(options.groupings.clone(), usize::MAX))
        };
        Ok(Self { scan, ranges, at: 0, output, options, lost, is_done: false, has_failed: false })
    }

    /// The next batch, never empty; `None` at the end.
    ///
    /// # Errors
    /// When a message is gone or damaged and that is to be an error, or the store cannot be read.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>, ScanError> {
        loop {
            match self.step()? {
                Step::Batch(batch) => return Ok(Some(batch)),
                Step::More => {}
                Step::End => return Ok(None),
            }
        }
    }

    /// Reads at most one block of the log on, for callers that have to look up now and then: a filter may leave nothing of
    /// a large store.
    ///
    /// # Errors
    /// As [`next_batch`](Self::next_batch). There is nothing more behind one, not even the rows of the batch under way.
    pub fn step(&mut self) -> Result<Step, ScanError> {
        if self.has_failed {
            return Ok(Step::End);
        }
        let step = self.read_block();
        self.has_failed = step.is_err();
        step
    }

    fn read_block(&mut self) -> Result<Step, ScanError> {
        if self.is_done {
            return if self.output.is_empty() {
                Ok(Step::End)
            } else {
                self.output.finish().map(Step::Batch)
            };
        }
        let block = self.scan.block();
        for (record, bytes) in block.iter().skip(self.at) {
            let range = &self.ranges[record.range];
            match self.output.take_in(record, bytes, range, &self.options) {
                Ok(Taken::Full) => return self.output.finish().map(Step::Batch),
                Ok(Taken::Row | Taken::Unwanted) => {}
                Err(error) => leave_out(&mut self.lost, &self.options, range, record, error)?,
            }
            self.at += 1;
        }
        self.at = 0;
        self.is_done = !self.scan.advance()?;
        self.lost.append(&mut self.scan.take_missing());
        Ok(Step::More)
    }

    /// What was asked for and left out so far.
    #[must_use]
    pub fn lost(&self) -> &[LostRange] {
        &self.lost
    }
}

/// What one step of a scan came to.
#[derive(Debug)]
pub enum Step {
    /// A batch, never empty.
    Batch(RecordBatch),
    /// There is more to read.
    More,
    /// There is nothing more.
    End,
}

/// What the store's reader does about messages that are not there.
pub(crate) const fn missing(fail_on_data_loss: bool) -> Missing {
    if fail_on_data_loss { Missing::Fail } else { Missing::Skip }
}

/// What became of a record.
enum Taken {
    Row,
    /// Its tag is another one with the same code.
    Unwanted,
    /// Nothing yet: the batch is to be finished first.
    Full,
}

impl Output {
    fn take_in(
        &mut self,
        record: &BlockRecord,
        bytes: &[u8],
        range: &QueueRange,
        options: &StoreScanOptions,
    ) -> Result<Taken, ScanError> {
        let damaged = |reason: String| ScanError::Damaged {
            topic: range.topic.clone(),
            queue_id: range.queue_id,
            queue_offset: record.queue_offset,
            reason,
        };
        let view = RecordView::parse(bytes).map_err(|error| damaged(error.to_string()))?;
        if view.topic != range.topic {
            return Err(damaged(format!("it states another topic: {}", view.topic)));
        }
        if !options.filter.matches_record(|name| view.property(name)) {
            return Ok(Taken::Unwanted);
        }
        if self.is_full_before(&view) {
            return Ok(Taken::Full);
        }
        self.push(&view, options.broker_name.as_deref())?;
        Ok(Taken::Row)
    }
}

/// Notes a record that does not decode, or gives the error back when that is to end the scan.
fn leave_out(
    lost: &mut Vec<LostRange>,
    options: &StoreScanOptions,
    range: &QueueRange,
    record: &BlockRecord,
    error: ScanError,
) -> Result<(), ScanError> {
    if options.fail_on_data_loss {
        return Err(error);
    }
    lost.push(LostRange {
        topic: Arc::from(range.topic.as_str()),
        queue_id: range.queue_id,
        start: record.queue_offset,
        end: record.queue_offset + 1,
        reason: error.to_string(),
    });
    Ok(())
}

impl Iterator for StoreScan {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch().map_err(ArrowError::from).transpose()
    }
}

impl RecordBatchReader for StoreScan {
    fn schema(&self) -> SchemaRef {
        self.output.schema()
    }
}
