//! Cuts what is to be read into slices for workers.

use rocketpy_model::QueueOffset;
use rocketpy_store::reader::{QueueRange, RangeOptions, SliceOptions, StoreReader};

use crate::ScanError;
use crate::store_scan::missing;

/// What to read, and how finely to cut it.
#[derive(Debug, Clone)]
pub struct PlanOptions {
    /// Only these queues of the topic; all of them when `None`.
    pub queues: Option<Vec<u32>>,
    /// Messages stored at or after this time, in milliseconds since 1970.
    pub stored_from_ms: Option<i64>,
    /// Messages stored before this time, in milliseconds since 1970.
    pub stored_before_ms: Option<i64>,
    /// First queue offset by queue id; a queue that is not named starts at its oldest message.
    pub starts: Vec<(u32, QueueOffset)>,
    /// Queue offset after the last by queue id; a queue that is not named ends where it ends now.
    pub ends: Vec<(u32, QueueOffset)>,
    /// Bytes of the log that a slice should have.
    pub slice_bytes: u64,
    /// Fewest slices wanted, as far as each still has 1 MiB to read.
    pub min_slices: usize,
    /// Whether a start or an end outside its queue is an error, or is moved to the queue's bounds.
    pub fail_on_data_loss: bool,
}

/// A part of a topic for one worker: ranges of several queues that lie in one stretch of the commit log.
///
/// Plain data, made to travel. The bounds are fixed: reading a slice twice gives the same rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    /// At most one range per queue, none of them empty.
    pub ranges: Vec<QueueRange>,
}

impl Slice {
    /// About how many bytes of records there are to read.
    #[must_use]
    pub fn estimated_bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.estimated_bytes).fold(0, u64::saturating_add)
    }
}

/// Cuts a topic into slices, in the order of the commit log.
///
/// # Errors
/// An unknown topic or queue, a range that ends before it starts, a start or an end outside its queue when that is to
/// be an error; or the store cannot be read.
pub fn plan(reader: &StoreReader, topic: &str, options: &PlanOptions) -> Result<Vec<Slice>, ScanError> {
    let ranges = RangeOptions {
        queues: options.queues.clone(),
        starts: options.starts.iter().copied().collect(),
        ends: options.ends.iter().copied().collect(),
        stored_from_ms: options.stored_from_ms,
        stored_before_ms: options.stored_before_ms,
        missing: missing(options.fail_on_data_loss),
    };
    let ranges = reader.ranges(topic, &ranges)?;
    let slices = SliceOptions { target_bytes: options.slice_bytes, min_slices: options.min_slices as u64 };
    let slices = reader.slices(&ranges, slices)?;
    Ok(slices.into_iter().map(|ranges| Slice { ranges }).collect())
}
