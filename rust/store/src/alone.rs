//! Parts of a store by themselves, for their tests.

use std::path::Path;
use std::sync::Arc;

use rocketpy_env::{Disk, RealDisk};
use rocketpy_model::PhysicalOffset;

use crate::admission::Admission;
use crate::allocate::Allocator;
use crate::append::Appender;
use crate::checkpoint::NOWHERE;
use crate::checkpoint_call::CheckpointCall;
use crate::config::{FlushMode, StoreConfig};
use crate::delay::DelayTables;
use crate::derived::Derived;
use crate::dispatch::{Dispatcher, Progress, Trail};
use crate::flush::Flusher;
use crate::folder::Folder;
use crate::log::{FoundLog, Log};
use crate::queue::files::QueueFiles;
use crate::queue::table::QueueTable;
use crate::record::NewRecord;

pub(crate) const FILE_BYTES: u64 = 64 << 10;
/// Bytes that are flushed at a time.
pub(crate) const STEP_BYTES: u64 = 1024;

/// Dispatch may be this far behind.
pub(crate) const UNDISPATCHED_BYTES: u64 = 16 << 10;

/// An empty log, its folder made.
pub(crate) fn log(root: &Path, flush: FlushMode) -> Arc<Log<RealDisk>> {
    let config = StoreConfig {
        flush,
        commit_log_file_size: FILE_BYTES,
        flush_step_bytes: STEP_BYTES,
        max_undispatched_bytes: UNDISPATCHED_BYTES,
        ..StoreConfig::new(root)
    };
    let folder = Folder::new(&config);
    RealDisk.create_dir_all(&folder.commit_log).unwrap();
    let zero = PhysicalOffset::ZERO;
    let found = FoundLog { files: Vec::new(), end: zero, last_stored_at: 0, durable_to: zero };
    Arc::new(Log::new(Arc::new(RealDisk), config, folder, found))
}

/// Lets every append in.
pub(crate) fn admission(root: &Path) -> Arc<Admission> {
    Arc::new(Admission::new(Arc::default(), root.to_path_buf()))
}

/// No queue and no index.
pub(crate) fn derived(log: &Log<RealDisk>) -> Arc<Derived<RealDisk>> {
    let dir = log.folder().consume_queue.clone();
    let files = QueueFiles::new(Arc::new(RealDisk), dir, 2000, 10, 1 << 20);
    Arc::new(Derived::new(QueueTable::default(), files, None, DelayTables::default()))
}

/// Makes the next file of the log and ends the active one.
pub(crate) fn roll(log: &Log<RealDisk>) {
    let mut writer = log.write();
    let start = writer.lacks_file(FILE_BYTES).expect("no file has room for a whole one");
    writer.roll(Arc::new(log.files().create(start, &|| true).unwrap()));
}

/// Appends bytes that need not be a record. Returns the end of the log.
pub(crate) fn append(log: &Log<RealDisk>, bytes: &[u8]) -> PhysicalOffset {
    let writer = log.write();
    let end = writer.place() + bytes.len() as u64;
    writer.copy(&[bytes], bytes.len() as u64).unwrap();
    writer.publish(end, 1000);
    end
}

/// The parts from the appender to dispatch, driven by hand.
pub(crate) struct Pipeline {
    pub log: Arc<Log<RealDisk>>,
    pub admission: Arc<Admission>,
    pub derived: Arc<Derived<RealDisk>>,
    pub call: Arc<CheckpointCall>,
    pub flusher: Arc<Flusher<RealDisk>>,
    pub dispatcher: Arc<Dispatcher<RealDisk>>,
    pub appender: Appender<RealDisk>,
}

/// An empty store without index, checkpoint and threads.
pub(crate) fn pipeline(root: &Path, flush: FlushMode) -> Pipeline {
    let log = log(root, flush);
    let (admission, derived, wake) = (admission(root), derived(&log), Arc::default());
    let call = Arc::new(CheckpointCall::new(PhysicalOffset(1)));
    let flusher = Arc::new(Flusher::new(&log, &admission, &Arc::default(), &wake, 0, NOWHERE));
    let allocator = Arc::new(Allocator::new(&log, &admission));
    let zero = PhysicalOffset::ZERO;
    let progress =
        Progress { dispatched: zero, entries: 0, firsts: 0, stored_at_ms: 0, trail: Trail::new(zero) };
    let dispatcher = Dispatcher::new(&log, &admission, &flusher, &derived, &call, &wake, progress);
    let backlog = dispatcher.backlog();
    let appender = Appender::new(&log, &admission, &flusher, &allocator, &derived, &wake, backlog);
    roll(&log);
    Pipeline { log, admission, derived, call, flusher, dispatcher: Arc::new(dispatcher), appender }
}

/// A message for queue 0 of topic `t`.
pub(crate) fn record(body: &[u8]) -> NewRecord<'_> {
    NewRecord {
        topic: "t",
        queue_id: 0,
        flag: 0,
        sys_flag: 0,
        born_at_ms: 0,
        born_host: "127.0.0.1:1".parse().unwrap(),
        reconsume_times: 0,
        prepared_transaction_offset: PhysicalOffset::ZERO,
        body,
        properties: b"",
        may_have_crc: true,
    }
}
