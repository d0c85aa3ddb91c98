//! The store as its owner sees it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rocketpy_env::{Disk, RealDisk};
use rocketpy_filter::TagFilter;
use rocketpy_model::{PhysicalOffset, QueueOffset};

use crate::config::StoreConfig;
use crate::error::{AppendError, FlushError, StoreError};
use crate::fetch::{Boundary, Fetch, QueueBounds, QueueSummary, ReadLimits};
use crate::listener::StoreListener;
use crate::record::{Appended, AppendedBatch, NewRecord};

/// An open store: commit log, consume queues, and the threads that keep them.
#[doc(alias = "DefaultMessageStore")]
#[derive(Debug)]
pub struct Store<D: Disk = RealDisk> {
    disk: D,
    config: StoreConfig,
}

/// Figures of a store for `store stat` and the runtime information.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Records and bytes appended since the start.
    pub appended_records: u64,
    pub appended_bytes: u64,
    /// Flushes of the commit log since the start, and the longest of them.
    pub flushes: u64,
    pub longest_flush_us: u64,
    /// Bytes of the log that no consume queue covers yet.
    pub dispatch_behind_bytes: u64,
    /// Times that dispatch had to read the log because the hand-over was full.
    pub dispatch_fell_back: u64,
    pub commit_log_files: u64,
    pub queues: u64,
}

#[allow(unused_variables)]
impl Store {
    /// Opens a folder: makes what is missing, takes the lock, recovers, starts the threads.
    pub fn open(config: StoreConfig) -> Result<Arc<Self>, StoreError> {
        unimplemented!()
    }
}

#[allow(unused_variables)]
impl<D: Disk> Store<D> {
    /// [`Store::open`] on a given disk.
    pub fn open_on(disk: D, config: StoreConfig) -> Result<Arc<Self>, StoreError> {
        unimplemented!()
    }

    /// Appends one record; the consume queue entry follows by itself.
    pub fn append(&self, record: &NewRecord<'_>) -> Result<Appended, AppendError> {
        unimplemented!()
    }

    /// Appends the items of a wire batch as records that follow each other, all of them or none.
    pub fn append_batch(&self, batch: &NewRecord<'_>) -> Result<AppendedBatch, AppendError> {
        unimplemented!()
    }

    /// The log is durable before this offset.
    pub fn flushed_offset(&self) -> PhysicalOffset {
        unimplemented!()
    }

    /// End of the log.
    pub fn max_physical_offset(&self) -> PhysicalOffset {
        unimplemented!()
    }

    /// Start of the log.
    pub fn min_physical_offset(&self) -> PhysicalOffset {
        unimplemented!()
    }

    /// Waits until the log is durable before `end`; flushes on this thread when no other does.
    pub fn wait_flushed(&self, end: PhysicalOffset, timeout: Duration) -> Result<(), FlushError> {
        unimplemented!()
    }

    /// Asks the flush thread to reach `end` soon; [`StoreListener::flushed`] tells when.
    pub fn request_flush(&self, end: PhysicalOffset) {
        unimplemented!()
    }

    /// Sets who is told of flushes, arrivals and a failed flush.
    pub fn set_listener(&self, listener: Arc<dyn StoreListener>) {
        unimplemented!()
    }

    /// Changes the address that goes into every record from now on.
    pub fn set_store_host(&self, host: SocketAddr) {
        unimplemented!()
    }

    /// Reads records of a queue. Never waits.
    ///
    /// # Errors
    /// [`StoreError::BrokenEntry`] when an entry leads to other bytes than its record; [`StoreError::Env`].
    pub fn get(
        &self,
        topic: &str,
        queue_id: u32,
        offset: i64,
        limits: &ReadLimits,
        filter: &TagFilter,
    ) -> Result<Fetch, StoreError> {
        unimplemented!()
    }

    /// First and next queue offset; both 0 for a queue that does not exist.
    pub fn queue_bounds(&self, topic: &str, queue_id: u32) -> QueueBounds {
        unimplemented!()
    }

    /// Queue offset of a time, in the queue's bounds; 0 for a queue that does not exist.
    pub fn offset_by_time(
        &self,
        topic: &str,
        queue_id: u32,
        time_ms: i64,
        boundary: Boundary,
    ) -> Result<QueueOffset, StoreError> {
        unimplemented!()
    }

    /// When the first message of a queue was stored.
    pub fn earliest_stored_at(&self, topic: &str, queue_id: u32) -> Result<Option<i64>, StoreError> {
        unimplemented!()
    }

    /// When the message of a queue offset was stored.
    pub fn stored_at(&self, topic: &str, queue_id: u32, offset: QueueOffset) -> Result<Option<i64>, StoreError> {
        unimplemented!()
    }

    /// The record that starts at an offset, or `None` when no record starts there. Safe for offsets from outside.
    pub fn record_at(&self, offset: PhysicalOffset) -> Option<Bytes> {
        unimplemented!()
    }

    /// All queues, by topic and queue id.
    pub fn queues(&self) -> Vec<QueueSummary> {
        unimplemented!()
    }

    /// Drops the queues of a topic; its records stay in the log until retention. Returns how many queues there were.
    pub fn delete_topic(&self, topic: &str) -> Result<usize, StoreError> {
        unimplemented!()
    }

    pub fn stats(&self) -> StoreStats {
        unimplemented!()
    }

    /// The configuration as it was opened with, rounded.
    pub fn config(&self) -> &StoreConfig {
        let _ = &self.disk;
        &self.config
    }

    /// Why the store refuses writes, after a failed flush.
    pub fn poisoned(&self) -> Option<StoreError> {
        unimplemented!()
    }

    /// Flushes, dispatches and closes; the second call does nothing. Dropping the store does the same.
    pub fn shutdown(&self) -> Result<(), StoreError> {
        unimplemented!()
    }
}
