//! Reads a store folder without a server: no lock, no map, safe beside a server that writes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use rocketpy_env::{Disk, EnvError, RealDisk};
use rocketpy_filter::TagFilter;
use rocketpy_model::{PhysicalOffset, QueueOffset};
use serde::{Deserialize, Serialize};

use crate::fetch::QueueBounds;

/// A store could not be read.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReadError {
    /// A file operation failed.
    #[error(transparent)]
    Env(#[from] EnvError),
    /// The folder holds no store.
    #[error("not a store folder: {}", path.display())]
    NotAStore { path: PathBuf },
    /// The store has no queue of the topic.
    #[error("the store holds no message of topic {topic}: {}", path.display())]
    UnknownTopic { topic: String, path: PathBuf },
    /// A file of numbered files has an impossible name or length.
    #[error("unusable file ({reason}): {}", path.display())]
    BadFile { path: PathBuf, reason: String },
    /// A record is damaged, or the entry that leads to it is.
    #[error("entry {queue_offset} of {topic}-{queue_id} leads to a broken record at {physical_offset}: {reason}")]
    BrokenRecord {
        topic: Arc<str>,
        queue_id: u32,
        queue_offset: QueueOffset,
        physical_offset: PhysicalOffset,
        reason: String,
    },
    /// The records of a range were removed by retention since the range was made.
    #[error("entries {start} to {available} of {topic}-{queue_id} are no longer in the store")]
    Removed { topic: Arc<str>, queue_id: u32, start: QueueOffset, available: QueueOffset },
}

/// A part of one queue: `start..end`, both queue offsets. Plain data, made to travel to a worker.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct QueueRange {
    pub topic: String,
    pub queue_id: u32,
    pub start: QueueOffset,
    pub end: QueueOffset,
    /// Length of its records as far as it is known without reading them all.
    pub estimated_bytes: u64,
}

/// Which parts of a topic are wanted. The default is all of it, a queue in one piece.
#[derive(Debug, Clone, Default)]
pub struct RangeOptions {
    /// Only these queues.
    pub queues: Option<Vec<u32>>,
    /// First queue offset, for every queue.
    pub start: Option<QueueOffset>,
    /// Queue offset to stop before, for every queue.
    pub end: Option<QueueOffset>,
    /// Stored at or after this time, in milliseconds.
    pub stored_from_ms: Option<i64>,
    /// Stored before this time, in milliseconds.
    pub stored_before_ms: Option<i64>,
    /// Cut queues into ranges of about this many bytes of records.
    pub target_bytes: Option<u64>,
}

/// How a range is read.
#[derive(Debug, Clone)]
pub struct ScanOptions {
    /// Only records whose queue entry passes; the tag text itself is the caller's to compare.
    pub tags: TagFilter,
    /// Whether each record's checks are verified.
    pub verify: bool,
    /// About how many bytes of the log one block holds.
    pub block_bytes: usize,
}

/// Some records of a range, in queue order.
#[derive(Debug, Clone)]
pub struct RecordBlock {
    /// Bytes of the log that hold the records.
    pub bytes: Bytes,
    /// Where each record lies in `bytes`.
    pub records: Vec<BlockRecord>,
}

/// Where a record lies in its block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockRecord {
    pub queue_offset: QueueOffset,
    pub start: u32,
    pub size_bytes: u32,
}

/// A topic of a store with its queues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicSummary {
    pub topic: Arc<str>,
    /// Queue id and bounds, by queue id.
    pub queues: Vec<(u32, QueueBounds)>,
}

/// Reads a store folder without a server.
#[derive(Debug)]
pub struct StoreReader<D: Disk = RealDisk> {
    disk: D,
    root: PathBuf,
}

/// The records of one range, block by block.
#[derive(Debug)]
pub struct RangeScan<'a, D: Disk = RealDisk> {
    reader: &'a StoreReader<D>,
}

impl StoreReader {
    /// Opens a folder: `commitlog` and `consumequeue` below it.
    ///
    /// # Errors
    /// [`ReadError::NotAStore`] when neither is there.
    pub fn open(root: impl AsRef<Path>) -> Result<Self, ReadError> {
        let _ = root;
        unimplemented!()
    }
}

impl<D: Disk> StoreReader<D> {
    /// The topics with their queues, by name.
    pub fn topics(&self) -> Result<Vec<TopicSummary>, ReadError> {
        unimplemented!()
    }

    /// Parts of a topic, cut so that they can be read side by side.
    ///
    /// # Errors
    /// [`ReadError::UnknownTopic`].
    pub fn ranges(&self, topic: &str, options: &RangeOptions) -> Result<Vec<QueueRange>, ReadError> {
        let _ = (topic, options);
        unimplemented!()
    }

    /// Reads one range.
    pub fn scan(&self, range: &QueueRange, options: ScanOptions) -> Result<RangeScan<'_, D>, ReadError> {
        let _ = (range, options);
        unimplemented!()
    }
}

impl<D: Disk> RangeScan<'_, D> {
    /// The next records, or `None` at the end of the range.
    pub fn next_block(&mut self) -> Result<Option<RecordBlock>, ReadError> {
        let _ = (&self.reader.disk, &self.reader.root);
        unimplemented!()
    }
}
