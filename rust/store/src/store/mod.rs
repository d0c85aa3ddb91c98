//! The store as its owner sees it.

mod core;
mod life;
mod replication;
#[cfg(feature = "sim")]
mod stepped;

use std::fmt;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use rocketpy_env::{Disk, EnvError, RealDisk};
use rocketpy_filter::MessageFilter;
use rocketpy_model::{PhysicalOffset, QueueOffset};
use rocketpy_protocol::record::RecordView;

use self::core::Core;
use crate::admission::panic_text;
use crate::append::Gather;
use crate::config::StoreConfig;
use crate::delay::{DelayLevels, DelayTables};
use crate::dispatch::tags_code;
use crate::error::{AppendError, FlushError, StoreError};
use crate::fetch::{Boundary, Fetch, QueueBounds, QueueEntry, QueueSummary, ReadLimits};
use crate::folder::Folder;
use crate::index::{KeyKind, Keys, QueryResult};
use crate::listener::StoreListener;
use crate::read::Reach;
use crate::record::{Appended, AppendedBatch, NewRecord};
use crate::recovery::{RecoveryReport, recover};
use crate::retention::{Cleaned, RetentionConfig};

/// Maximum wait for a flush before other delay levels are written.
const FLUSH_PATIENCE: Duration = Duration::from_secs(60);

/// An open store: commit log, consume queues, and the threads that keep them.
///
/// All methods take `&self` and may be called from any thread. None needs a runtime. Dropping the store closes it. A
/// listener must not hold the last reference to it: shut the store down first, which drops the listeners.
#[doc(alias = "DefaultMessageStore")]
pub struct Store<D: Disk = RealDisk> {
    core: Arc<Core<D>>,
    /// Flush, dispatch, allocate, checkpoint, clean; empty once the store is closed.
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Given back when the store is closed.
    locks: Mutex<Vec<D::Lock>>,
    report: RecoveryReport,
}

impl Store {
    /// Opens a folder: makes what is missing, takes the lock, recovers, starts the threads.
    ///
    /// # Errors
    /// See [`StoreError`]. After each of them a second try is safe.
    pub fn open(config: StoreConfig) -> Result<Arc<Self>, StoreError> {
        Self::open_on(RealDisk, config)
    }
}

impl<D: Disk> Store<D> {
    /// [`Store::open`] on a given disk.
    pub fn open_on(disk: D, config: StoreConfig) -> Result<Arc<Self>, StoreError> {
        let store = Self::open_idle(disk, config)?;
        store.start_threads()?;
        Ok(store)
    }

    /// The disk that it is on.
    pub fn disk(&self) -> &D {
        self.core.log.disk()
    }

    /// The time of its clock, in milliseconds since 1970.
    pub fn now_ms(&self) -> i64 {
        self.disk().now_ms()
    }

    /// The time of a clock that nobody sets.
    pub fn monotonic(&self) -> Duration {
        self.disk().monotonic()
    }

    /// An open store without its threads.
    pub(crate) fn open_idle(disk: D, config: StoreConfig) -> Result<Arc<Self>, StoreError> {
        let config = config.checked()?;
        let disk = Arc::new(disk);
        let folder = Folder::new(&config);
        let locks = folder.claim(&*disk)?;
        let (core, report) = Self::recovered(&disk, &config, &folder)?;
        core.retention.check_space()?;
        tracing::info!(
            root = %core.log.folder().root.display(), clean_exit = report.clean_exit, end = %report.end,
            truncated_bytes = report.truncated_bytes, rebuilt_queues = report.rebuilt_queues,
            queues = core.derived.queues().count(), "store opened"
        );
        Ok(Arc::new(Self { core, threads: Mutex::default(), locks: Mutex::new(locks), report }))
    }

    /// Recovers log and queues.
    fn recovered(
        disk: &Arc<D>,
        config: &StoreConfig,
        folder: &Folder,
    ) -> Result<(Arc<Core<D>>, RecoveryReport), StoreError> {
        let clean_exit = !folder.is_dirty(&**disk)?;
        let delays = || DelayTables::read(&**disk, &folder.root, &config.delay_levels);
        drop(delays()?); // before anything is changed
        let mut first: Option<RecoveryReport> = None;
        loop {
            let (recovered, mut report) = recover(disk, config, folder, clean_exit, first.is_some())?;
            if let Some(first) = first.take() {
                report.add_cut(first); // the second time nothing was left to cut
            }
            let core = Core::new(Arc::clone(disk), config.clone(), folder.clone(), recovered, delays()?);
            if core.dispatcher.catch_up(report.rebuilt_queues)? {
                core.settle(report.rebuilt_queues || !report.had_mark)?;
                return Ok((Arc::new(core), report));
            }
            first = Some(report);
        }
    }

    fn start_threads(&self) -> Result<(), StoreError> {
        Core::threads().into_iter().try_for_each(|(name, life)| self.start_thread(name, life))
    }

    fn start_thread(&self, name: &str, life: fn(&Core<D>)) -> Result<(), StoreError> {
        let core = Arc::clone(&self.core);
        let thread = Builder::new().name(name.to_owned()).spawn(move || {
            let life = AssertUnwindSafe(|| life(&core)); // poisoned below: nobody relies on what it left
            if let Err(panic) = catch_unwind(life) {
                core.admission.poison_by_panic("run a thread of", panic_text(&*panic));
                resume_unwind(panic);
            }
        });
        let failed = |source| EnvError::from_io("start a thread for", &self.core.log.folder().root, source);
        self.threads.lock().push(thread.map_err(failed)?);
        Ok(())
    }

    /// Appends one record. Dispatch adds the consume queue entry.
    ///
    /// # Errors
    /// Nothing of the record is stored after any of them.
    ///
    /// # Durability
    /// See [`Appended`]. Under [`crate::FlushMode::Sync`] the caller acknowledges after [`Store::wait_flushed`], or asks
    /// with [`Store::request_flush`] and waits for [`StoreListener::flushed`].
    pub fn append(&self, record: &NewRecord<'_>) -> Result<Appended, AppendError> {
        self.core.appender.append(record)
    }

    /// Appends the items of a wire batch as records that follow each other, all of them or none.
    ///
    /// # Errors
    /// As [`Store::append`].
    pub fn append_batch(&self, batch: &NewRecord<'_>) -> Result<AppendedBatch, AppendError> {
        self.core.appender.append_batch(batch)
    }

    /// The log is durable before this offset.
    pub fn flushed_offset(&self) -> PhysicalOffset {
        self.core.log.flushed()
    }

    /// End of the log.
    pub fn max_physical_offset(&self) -> PhysicalOffset {
        self.core.log.end()
    }

    /// Start of the log.
    pub fn min_physical_offset(&self) -> PhysicalOffset {
        self.core.log.start()
    }

    /// Consume queues cover the log before this offset.
    pub fn dispatched_offset(&self) -> PhysicalOffset {
        self.core.dispatcher.dispatched()
    }

    /// End of what readers may see: under [`crate::FlushMode::Sync`] what is durable, else the end of the log; while readers are held no more
    /// than is confirmed.
    pub fn readable_end(&self) -> PhysicalOffset {
        self.core.log.readable_end()
    }

    /// Waits until the log is durable before `end`; flushes on this thread when no other does.
    ///
    /// # Errors
    /// The record is stored, and may or may not survive a power loss.
    pub fn wait_flushed(&self, end: PhysicalOffset, timeout: Duration) -> Result<(), FlushError> {
        self.core.flusher.wait(end, timeout)
    }

    /// Asks the flush thread to reach `end` soon. [`StoreListener::flushed`] reports it.
    pub fn request_flush(&self, end: PhysicalOffset) {
        self.core.flusher.request(end);
    }

    /// Adds a listener to flushes, arrivals and a failed flush. It is called after those that were added before.
    ///
    /// The store holds its listeners until it is shut down. After that none of its threads is left to drop one.
    pub fn add_listener(&self, listener: Arc<dyn StoreListener>) {
        self.core.admission.listeners().add(listener);
    }

    /// Changes the address that goes into every record from now on.
    pub fn set_store_host(&self, host: SocketAddr) {
        self.core.log.set_host(host);
    }

    /// Reads records of a queue. Waits for nobody but the disk.
    ///
    /// # Errors
    /// [`StoreError::BrokenEntry`] when the entry at `offset` leads to other bytes than its record; [`StoreError::DamagedLog`] when
    /// its record cannot be read, or is not what was written; [`StoreError::Env`].
    #[doc(alias = "getMessage")]
    pub fn get(
        &self,
        topic: &str,
        queue_id: u32,
        offset: i64,
        limits: &ReadLimits,
        filter: &MessageFilter,
    ) -> Result<Fetch, StoreError> {
        let read = self.core.reads.get(topic, queue_id, offset, limits, filter, Reach::Disk)?;
        Ok(read.expect("everything is within reach"))
    }

    /// [`Store::get`] of what is in memory: it waits for no disk. `None` when nothing is and the disk has more; else what is there
    /// up to the first record that is not.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn get_in_memory(
        &self,
        topic: &str,
        queue_id: u32,
        offset: i64,
        limits: &ReadLimits,
        filter: &MessageFilter,
    ) -> Result<Option<Fetch>, StoreError> {
        self.core.reads.get(topic, queue_id, offset, limits, filter, Reach::Memory)
    }

    /// Reads entries of a queue without their records: where each is, its size and its tags code. At most `most` entries from
    /// `from` on, in queue order; none whose record is gone for good.
    ///
    /// # Errors
    /// [`StoreError::Env`].
    pub fn entries(
        &self,
        topic: &str,
        queue_id: u32,
        from: QueueOffset,
        most: usize,
    ) -> Result<Vec<QueueEntry>, StoreError> {
        self.core.reads.entries(topic, queue_id, from, most)
    }

    /// First and next queue offset; both 0 for a queue that does not exist.
    pub fn queue_bounds(&self, topic: &str, queue_id: u32) -> QueueBounds {
        self.core.reads.queue_bounds(topic, queue_id)
    }

    /// Notes whether somebody waits for the next record of a queue. Such records are dispatched at once, others within 2 ms.
    pub fn set_awaited(&self, topic: &str, queue_id: u32, is_awaited: bool) {
        if self.core.reads.set_awaited(topic, queue_id, is_awaited) {
            self.hurry_dispatch();
        }
    }

    /// Has what this thread appends from now on dispatched together, when the result is dropped or within 2 ms.
    pub fn gather(&self) -> Gather<'_> {
        self.core.dispatcher.gather_appends()
    }

    /// Has everything dispatched at once that readers may see.
    pub fn hurry_dispatch(&self) {
        self.core.dispatcher.hurry();
    }

    /// Queue offset that the next record gets: no less than the end of [`Store::queue_bounds`], which dispatch moves.
    pub fn next_queue_offset(&self, topic: &str, queue_id: u32) -> QueueOffset {
        self.core.reads.next_queue_offset(topic, queue_id)
    }

    /// Queue offset of a time, in the queue's bounds; 0 for a queue that does not exist.
    #[doc(alias = "getOffsetInQueueByTime")]
    pub fn offset_by_time(
        &self,
        topic: &str,
        queue_id: u32,
        time_ms: i64,
        boundary: Boundary,
    ) -> Result<QueueOffset, StoreError> {
        self.core.reads.offset_by_time(topic, queue_id, time_ms, boundary)
    }

    /// When the first message of a queue was stored; `None` when there is none.
    #[doc(alias = "getEarliestMessageTime")]
    pub fn earliest_stored_at(&self, topic: &str, queue_id: u32) -> Result<Option<i64>, StoreError> {
        self.stored_at(topic, queue_id, self.queue_bounds(topic, queue_id).min)
    }

    /// When the message of a queue offset was stored; `None` when there is none.
    pub fn stored_at(
        &self,
        topic: &str,
        queue_id: u32,
        offset: QueueOffset,
    ) -> Result<Option<i64>, StoreError> {
        self.core.reads.stored_at(topic, queue_id, offset)
    }

    /// The record that starts at an offset, or `None` when no record starts there. Safe for offsets from outside.
    ///
    /// # Errors
    /// [`StoreError::DamagedLog`] when it cannot be read, or is not what was written.
    #[doc(alias = "lookMessageByOffset")]
    pub fn record_at(&self, offset: PhysicalOffset) -> Result<Option<Bytes>, StoreError> {
        self.core.reads.record_at(offset)
    }

    /// As [`Self::record_at`], read from the file and not from its map: finds what could not be read when it was mapped, and says of
    /// [`StoreError::DamagedLog`] whether the disk or the record is at fault.
    ///
    /// # Errors
    /// [`StoreError::Env`] when the file cannot be read; [`StoreError::DamagedLog`] when it does not hold what was written.
    pub fn record_from_file(&self, offset: PhysicalOffset) -> Result<Option<Bytes>, StoreError> {
        self.core.reads.record_from_file(offset)
    }

    /// Whether [`Self::record_at`] of this offset would not wait for the disk.
    pub fn is_record_in_memory(&self, offset: PhysicalOffset) -> bool {
        self.core.reads.is_in_memory(offset)
    }

    /// Records of a key that were stored from `begin_ms` to `end_ms`, both included; if there are more than the limits
    /// allow, the newest.
    ///
    /// # Errors
    /// [`StoreError::NoIndex`] when the store keeps no index; [`StoreError::DamagedLog`] when a record that may have the key
    /// cannot be read, or is not what was written; [`StoreError::Env`].
    #[doc(alias = "queryMessage")]
    pub fn query_by_key(
        &self,
        topic: &str,
        key: &str,
        kind: KeyKind,
        limits: &ReadLimits,
        begin_ms: i64,
        end_ms: i64,
    ) -> Result<QueryResult, StoreError> {
        self.core.reads.query(topic, key, kind, limits, begin_ms, end_ms)
    }

    /// Records of a unique key that were stored from `begin_ms` on, and all that lie from a place on: where the clock was set in between,
    /// these have earlier times.
    ///
    /// # Errors
    /// As [`Self::query_by_key`].
    pub fn query_since(
        &self,
        topic: &str,
        unique_key: &str,
        limits: &ReadLimits,
        begin_ms: i64,
        from: PhysicalOffset,
    ) -> Result<QueryResult, StoreError> {
        self.core.reads.query_since(topic, unique_key, limits, begin_ms, from)
    }

    /// All queues that ever held a message, by topic and queue id.
    pub fn queues(&self) -> Vec<QueueSummary> {
        self.core.derived.queues().summaries()
    }

    /// Drops the queues of a topic. Returns how many there were.
    ///
    /// # Durability
    /// Its records stay in the log until retention. An ordinary start does not bring the queues back, but a start that
    /// rebuilds all consume queues from the log does.
    pub fn delete_topic(&self, topic: &str) -> Result<usize, StoreError> {
        self.core.admission.guarded_change("delete a topic of", || self.core.delete_topic(topic, None))
    }

    /// [`Self::delete_topic`], unless a queue of the topic has a record at a place of the log or after it: then 0.
    pub fn delete_topic_before(&self, topic: &str, before: PhysicalOffset) -> Result<usize, StoreError> {
        let delete = || self.core.delete_topic(topic, Some(before));
        self.core.admission.guarded_change("delete a topic of", delete)
    }

    /// Runs one round of retention now, as the cleaning thread does, but without its pauses.
    ///
    /// # Errors
    /// What is not done yet is left to the next round.
    ///
    /// # Durability
    /// On return the removals survive a power loss.
    pub fn clean(&self) -> Result<Cleaned, StoreError> {
        self.core.admission.guarded_change("clean", || self.core.retention.clean(&|_| ()))
    }

    /// The tags code that a record has in its queue: for a delayed message the time of its delivery, by the levels of its place in the log.
    pub fn tags_code(&self, record: &RecordView<'_>) -> i64 {
        tags_code(record, &Keys::of(record.properties), self.core.derived.delays())
    }

    /// The delay levels of messages that are stored from now on.
    pub fn delay_levels(&self) -> DelayLevels {
        self.core.derived.delays().latest()
    }

    /// Whether the store says which delay levels it has; else it is another broker's, and they are those of the configuration.
    pub fn knows_its_delay_levels(&self) -> bool {
        self.core.derived.delays().is_stored()
    }

    /// Changes the delay levels of the records from a place of the log on. If queue entries of those records are rebuilt, they get the
    /// times of the new levels.
    ///
    /// # Errors
    /// The old levels hold.
    ///
    /// # Durability
    /// On return the levels survive a power loss.
    #[doc(alias = "messageDelayLevel")]
    pub fn set_delay_levels(&self, levels: DelayLevels, from: PhysicalOffset) -> Result<(), StoreError> {
        // A power cut must not take the records before `from`: others would lie there, by the old levels.
        self.wait_flushed(self.max_physical_offset(), FLUSH_PATIENCE).map_err(StoreError::NotFlushed)?;
        let (delays, log) = (self.core.derived.delays(), &self.core.log);
        let root = &log.folder().root;
        Ok(delays.change(log.disk(), root, levels, from, self.min_physical_offset())?)
    }

    /// Has log files that are old enough removed soon, whatever the hour.
    #[doc(alias = "executeDeleteFilesManually")]
    pub fn delete_expired(&self) {
        self.core.retention.ask();
    }

    /// Has old files removed by other rules from now on, until the store is closed. A round comes soon.
    ///
    /// # Errors
    /// [`StoreError::BadConfig`]: the rules of before hold.
    pub fn set_retention(&self, rules: RetentionConfig) -> Result<(), StoreError> {
        self.core.retention.set_config(rules.checked()?);
        Ok(())
    }

    /// Notes where the first message is that waits to be stored again by `holder`, as delayed ones do; `None`: none waits. A log
    /// file that holds one is not removed because of its age, only for want of space. This is not stored.
    pub fn set_waiting_from(&self, holder: &'static str, from: Option<PhysicalOffset>) {
        self.core.retention.set_waiting_from(holder, from);
    }

    /// Sets how long messages of each topic stay readable, and replaces what was set before. The minimum offsets of its
    /// queues move, at once and later on; the log keeps the records until their file is removed. A topic without an
    /// entry keeps what the log has. This is not stored: set it again after each start.
    ///
    /// # Errors
    /// [`StoreError::Env`]. The cleaning thread does what is left.
    pub fn set_topic_retention(
        &self,
        topics: std::collections::HashMap<Arc<str>, Duration>,
    ) -> Result<(), StoreError> {
        self.core.admission.guarded_change("clean", || self.core.retention.set_topics(topics))
    }

    /// What recovery found and did when the store was opened.
    pub fn recovery(&self) -> &RecoveryReport {
        &self.report
    }

    /// The configuration that the store was opened with, rounded.
    pub fn config(&self) -> &StoreConfig {
        self.core.log.config()
    }

    /// Why the store refuses writes for good: a flush failed, or an assertion ([`StoreError::AssertionFailed`]).
    pub fn poisoned(&self) -> Option<StoreError> {
        self.core.admission.check_sound().err()
    }

    /// Why the store refuses appends at the moment, if it does.
    pub fn refusal(&self) -> Option<AppendError> {
        self.core.admission.check().err()
    }

    /// Time since the flush thread last had nothing to flush, or had flushed it. A long one means that the disk does not answer.
    pub fn flush_silence(&self) -> Duration {
        self.core.flusher.silence()
    }

    /// Flushes, dispatches, closes and drops the listeners. A later call does nothing. Dropping the store does the
    /// same.
    ///
    /// # Errors
    /// The folder is then left as after a crash: the next start recovers.
    pub fn shutdown(&self) -> Result<(), StoreError> {
        let mut threads = self.threads.lock(); // a second caller waits here until the first is through
        if !self.core.close() {
            return Ok(());
        }
        self.core.stop_threads();
        for thread in threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("thread of the store panicked");
            }
        }
        let result = self.core.admission.guarded_change("close", || self.core.finish());
        self.core.admission.listeners().clear();
        self.locks.lock().clear();
        if result.is_ok() {
            tracing::info!(root = %self.core.log.folder().root.display(), end = %self.core.log.end(), "store closed");
        }
        result
    }
}

impl<D: Disk> Drop for Store<D> {
    fn drop(&mut self) {
        if let Err(error) = self.shutdown() {
            tracing::error!(%error, "store not closed cleanly");
        }
    }
}

impl<D: Disk> fmt::Debug for Store<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("root", &self.core.log.folder().root).finish_non_exhaustive()
    }
}
