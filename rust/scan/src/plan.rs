//! Cuts what is to be read into slices for workers.

use rocketpy_model::QueueOffset;
use rocketpy_store::reader::{QueueRange, StoreReader};

use crate::ScanError;

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
    /// Bytes of the log that a slice should cover.
    pub slice_bytes: u64,
    /// Fewest slices wanted, as far as there is enough to read.
    pub min_slices: usize,
    /// Whether a start before the oldest message is an error, or is moved up to it.
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
        self.ranges.iter().map(|range| range.estimated_bytes).sum()
    }
}

/// Cuts a topic into slices, in the order of the commit log.
///
/// # Errors
/// [`ScanError::UnknownTopic`], [`ScanError::UnknownQueue`], [`ScanError::InvertedRange`], [`ScanError::Lost`]
/// when a start lies before the oldest message and that is to be an error; or the store cannot be read.
pub fn plan(reader: &StoreReader, topic: &str, options: &PlanOptions) -> Result<Vec<Slice>, ScanError> {
    let _ = (reader, topic, options);
    unimplemented!()
}
