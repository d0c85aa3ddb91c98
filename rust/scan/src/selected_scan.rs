//! Chosen records of a store as record batches.

use std::collections::VecDeque;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use rocketpy_protocol::compression::DecompressLimits;
use rocketpy_tools::Selected;

use crate::{BatchLimits, Columns, RecordBatchBuilder, ScanError, Step};

/// Record batches of the records that a selection chooses. An error ends it.
pub struct SelectedScan {
    selected: Selected,
    builder: RecordBatchBuilder,
    ready: VecDeque<RecordBatch>,
    broker_name: Option<String>,
    /// Records that were left out because their body does not decompress.
    unreadable: u64,
    has_ended: bool,
}

impl SelectedScan {
    /// Batches of what is left of a selection; a store folder does not know its broker's name.
    #[must_use]
    pub fn new(
        selected: Selected,
        columns: Columns,
        limits: BatchLimits,
        broker_name: Option<String>,
    ) -> Self {
        let builder = RecordBatchBuilder::new(columns, limits);
        Self { selected, builder, ready: VecDeque::new(), broker_name, unreadable: 0, has_ended: false }
    }

    /// The same, with another limit for bodies that are decompressed.
    #[must_use]
    pub fn with_body_limits(mut self, limits: DecompressLimits) -> Self {
        self.builder = self.builder.with_body_limits(limits);
        self
    }

    /// Schema of the batches.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        self.builder.schema()
    }

    /// What is read.
    #[must_use]
    pub const fn selected(&self) -> &Selected {
        &self.selected
    }

    /// Damaged records, and those whose body does not decompress, that were left out so far.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        assert!(
            self.unreadable == 0 || self.selected.skips_damage(),
            "bodies are left out only where damage may be skipped"
        );
        self.selected.left_out() + self.unreadable
    }

    /// Reads a little further, for callers that have to look up now and then.
    ///
    /// # Errors
    /// A damaged record or a body that does not decompress, unless damage is to be left out; or the store cannot be read.
    pub fn step(&mut self) -> Result<Step, ScanError> {
        if let Some(batch) = self.ready.pop_front() {
            return Ok(Step::Batch(batch));
        }
        if self.has_ended {
            return if self.builder.is_empty() {
                Ok(Step::End)
            } else {
                self.builder.finish().map(Step::Batch)
            };
        }
        let Self { selected, builder, ready, broker_name, unreadable, .. } = self;
        let skips_damage = selected.skips_damage();
        let has_more = selected.step(|view| {
            if builder.is_full_before(view) {
                ready.push_back(builder.finish()?);
            }
            match builder.push(view, broker_name.as_deref()) {
                Err(ScanError::Body { .. }) if skips_damage => {
                    *unreadable += 1;
                    Ok(())
                }
                pushed => pushed,
            }
        });
        self.has_ended = !matches!(has_more, Ok(true));
        if has_more.is_err() {
            self.builder = RecordBatchBuilder::new(Columns::default(), BatchLimits::default()); // nothing follows
            self.ready.clear();
        }
        has_more.map(|_| Step::More)
    }

    /// Reads a little further and appends the bytes of the chosen records; false at the end.
    ///
    /// # Errors
    /// As [`SelectedScan::step`].
    pub fn step_raw(&mut self, bytes: &mut Vec<u8>) -> Result<bool, ScanError> {
        self.selected.step(|view| {
            bytes.extend_from_slice(view.bytes);
            Ok(())
        })
    }

    /// What is left to read.
    #[must_use]
    pub fn into_selected(self) -> Selected {
        self.selected
    }
}
