//! What a store is opened with.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rocketpy_model::{PhysicalOffset, port};

use crate::delay::DelayLevels;
use crate::error::StoreError;
use crate::retention::RetentionConfig;

/// When an acknowledged record is durable.
#[doc(alias = "FlushDiskType")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FlushMode {
    /// Acknowledge after the copy into the mapped file; a flush follows within `flush_interval`.
    #[default]
    Async,
    /// Acknowledge after the flush that covers the record; readers see nothing earlier.
    Sync,
}

impl FlushMode {
    /// The value of `flushDiskType` that asks for it.
    pub const fn apache_name(self) -> &'static str {
        match self {
            Self::Async => "ASYNC_FLUSH",
            Self::Sync => "SYNC_FLUSH",
        }
    }
}

/// What the owner of the process does after the first failed flush. The store itself refuses from then on either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnFailedFlush {
    /// Stop the process: the usual choice, because a restart on good hardware is the only way back.
    #[default]
    Stop,
    /// Stay up, serve reads, refuse every append.
    Refuse,
}

/// Who keeps all files at an open, as of [`crate::Store::set_waiting_from`].
pub const AT_OPEN: &str = "open";

/// The configuration of a store. All fields but the root have defaults.
#[doc(alias = "MessageStoreConfig")]
#[derive(Debug, Clone)]
pub struct StoreConfig {
    /// Root folder of the store; created when it does not exist.
    pub root: PathBuf,
    /// Folder of the commit log; default `root/commitlog`.
    pub commit_log_dir: Option<PathBuf>,
    /// More folders of the commit log, on other disks. New files take turns among all folders.
    pub more_commit_log_dirs: Vec<PathBuf>,
    /// Folders of the commit log that get no new file; their files are read, and removed when they are old.
    #[doc(alias = "readOnlyCommitLogStorePaths")]
    pub read_only_commit_log_dirs: Vec<PathBuf>,
    /// Size of one commit log file, 64 MiB; 16 KiB to 2 GiB - 1. The same at every start of a folder.
    pub commit_log_file_size: u64,
    /// Where the log of a store without any log file begins: a slave's where its master's copy begins. A multiple of
    /// `commit_log_file_size`; default: 0, or where an earlier start with it began. A store that has a log ignores it.
    pub begin_at: Option<PhysicalOffset>,
    /// No file goes for its age until the caller knows what waits in it, and says so: [`crate::Store::set_waiting_from`] with [`AT_OPEN`] and
    /// `None`.
    pub keeps_files_at_open: bool,
    /// Size of one consume queue file, 6,000,000; rounded up to a multiple of 20; 20 bytes to 1 GiB.
    pub consume_queue_file_size: u64,
    /// When a record is durable.
    pub flush: FlushMode,
    /// Time between two flushes of the commit log under [`FlushMode::Async`], 500 ms.
    pub flush_interval: Duration,
    /// With fewer dirty pages of 4 KiB than this, an interval passes without a flush. 0: every interval flushes what is
    /// dirty.
    pub flush_least_pages: u64,
    /// After this time a flush ignores `flush_least_pages`, 10 s.
    pub flush_thorough_interval: Duration,
    /// Whether messages can be looked up by key; default on.
    #[doc(alias = "messageIndexEnable")]
    pub index: bool,
    /// Hash slots of an index file, 5,000,000; 1 to 100,000,000. The file that is being written holds them in memory, 4
    /// bytes for each that is used. After a change the next start builds the index again.
    #[doc(alias = "maxHashSlotNum")]
    pub index_slots: u32,
    /// Entries of an index file, 20,000,000, the first of which stays unused; 2 to 2,000,000,000.
    #[doc(alias = "maxIndexNum")]
    pub index_entries: u32,
    /// Maximum number of bytes that are appended and not flushed, 256 MiB; beyond it appends wait for the disk. 0: no
    /// bound.
    pub max_unflushed_bytes: u64,
    /// Maximum number of bytes of the log that readers may see and that have no consume queue entries yet, 256 MiB; beyond it appends wait for
    /// dispatch. 0: no bound.
    pub max_undispatched_bytes: u64,
    /// The delay levels of a store that says nothing of its own: another broker's. Default: Apache's.
    #[doc(alias = "messageDelayLevel")]
    pub delay_levels: DelayLevels,
    /// How long an append waits, 1 s: for the next file, for room below `max_unflushed_bytes`, or for room below
    /// `max_undispatched_bytes` while dispatch makes no progress. After that it is refused with [`crate::AppendError::Busy`],
    /// [`crate::AppendError::Behind`] or [`crate::AppendError::DispatchBehind`].
    #[doc(alias = "osPageCacheBusyTimeOutMills")]
    pub busy_timeout: Duration,
    /// Maximum number of bytes in one flush, 64 MiB, so that the flushed offset moves even on a slow disk. Once this
    /// many are dirty, a flush starts before its interval ends.
    pub flush_step_bytes: u64,
    /// A start flushes what it finds after the durable mark itself, up to this many bytes, 64 MiB. Under
    /// [`FlushMode::Async`] it leaves more than that to the flush thread.
    pub flush_at_start_bytes: u64,
    /// Time between two checkpoints, each with a flush of consume queues and index, 1 s.
    pub checkpoint_interval: Duration,
    /// Bytes of the log after which a checkpoint comes early, 128 MiB: a start reads everything after the last checkpoint.
    pub checkpoint_bytes: u64,
    /// Whether every record gets the `__CRC32#` property, a check of the whole record; default on.
    pub record_check: bool,
    /// Address that goes into every record and into offset message ids; [`crate::Store::set_store_host`] changes it.
    pub store_host: SocketAddr,
    /// What the owner of the process does after the first failed flush.
    pub on_failed_flush: OnFailedFlush,
    /// Bytes that are faulted in ahead of the write position under traffic, at most 64 MiB. Under [`FlushMode::Sync`], where
    /// they are written out as well, at most 8 MiB count.
    pub fault_in_ahead: u64,
    /// Whether the next commit log file is allocated before it is needed.
    pub allocate_ahead: bool,
    /// Whether a new commit log file is brought into memory whole before it is used; default off. For measurements: no
    /// configuration key sets it.
    pub warm_files: bool,
    /// When old files are removed, and when the disk is too full for appends.
    pub retention: RetentionConfig,
    /// Consume queue files that are kept open; default a quarter of the process's limit of open files, at most 20,000.
    /// A server keeps fewer where the memory limit is small.
    pub open_queue_files: usize,
    /// Maximum number of queues whose entries are written 20 ms after they came, 64. Those of more wait in memory, where
    /// readers find them, until no record comes or a checkpoint does, so that one write covers many.
    pub queues_at_once: usize,
    /// Maximum number of bytes of entries that wait in memory, 64 MiB. Beyond it dispatch writes the oldest ones.
    pub queue_tail_bytes: usize,
}

impl StoreConfig {
    /// The defaults on a root folder.
    pub fn new(root: impl AsRef<Path>) -> Self {
        Self {
            root: root.as_ref().to_path_buf(),
            commit_log_dir: None,
            more_commit_log_dirs: Vec::new(),
            read_only_commit_log_dirs: Vec::new(),
            commit_log_file_size: 64 << 20,
            begin_at: None,
            keeps_files_at_open: false,
            consume_queue_file_size: 6_000_000,
            flush: FlushMode::Async,
            flush_interval: Duration::from_millis(500),
            flush_least_pages: 0,
            flush_thorough_interval: Duration::from_secs(10),
            max_unflushed_bytes: 256 << 20,
            max_undispatched_bytes: 256 << 20,
            delay_levels: DelayLevels::default(),
            busy_timeout: Duration::from_secs(1),
            flush_step_bytes: 64 << 20,
            flush_at_start_bytes: 64 << 20,
            index: true,
            index_slots: rocketpy_protocol::disk::index::SLOTS,
            index_entries: rocketpy_protocol::disk::index::ENTRIES,
            checkpoint_interval: Duration::from_secs(1),
            checkpoint_bytes: 128 << 20,
            record_check: true,
            store_host: SocketAddr::from((Ipv4Addr::LOCALHOST, port::BROKER)),
            on_failed_flush: OnFailedFlush::Stop,
            fault_in_ahead: 64 << 20,
            allocate_ahead: true,
            warm_files: false,
            retention: RetentionConfig::default(),
            open_queue_files: Self::open_queue_files_of(rocketpy_env::open_file_limit()),
            queues_at_once: 64,
            queue_tail_bytes: 64 << 20,
        }
    }

    /// The first folder of the commit log files.
    pub fn commit_log_dir(&self) -> PathBuf {
        self.commit_log_dir.clone().unwrap_or_else(|| self.root.join("commitlog"))
    }

    /// All folders of the commit log files, sorted.
    pub fn commit_log_dirs(&self) -> Vec<PathBuf> {
        let all = [self.commit_log_dir()].into_iter().chain(self.more_commit_log_dirs.clone());
        let mut dirs: Vec<_> = all.chain(self.read_only_commit_log_dirs.clone()).collect();
        dirs.sort();
        dirs.dedup();
        dirs
    }

    /// The folders that get new commit log files, sorted.
    pub fn writable_commit_log_dirs(&self) -> Vec<PathBuf> {
        let mut dirs = self.commit_log_dirs();
        dirs.retain(|dir| !self.read_only_commit_log_dirs.contains(dir));
        dirs
    }

    /// Consume queue files that a store keeps open in a process that may open `limit` files: a quarter, at most 20,000.
    pub fn open_queue_files_of(limit: u64) -> usize {
        (limit / 4).clamp(16, 20_000) as usize
    }

    /// Maximum number of bytes that are faulted in ahead of the write position: few under [`FlushMode::Sync`], so that
    /// flushes find the disk free.
    pub(crate) fn bytes_ahead(&self) -> u64 {
        match self.flush {
            FlushMode::Sync => self.fault_in_ahead.min(8 << 20),
            FlushMode::Async => self.fault_in_ahead,
        }
    }

    /// Checks the bounds that the field docs name and rounds the queue file size up to whole entries.
    ///
    /// # Errors
    /// [`StoreError::BadConfig`] names the first field that is out of its bounds.
    pub(crate) fn checked(mut self) -> Result<Self, StoreError> {
        let bad = |field: &'static str, value: u64, allowed: &'static str| {
            Err(StoreError::BadConfig { field, value, allowed })
        };
        if !(16 << 10..1 << 31).contains(&self.commit_log_file_size) {
            return bad("commit_log_file_size", self.commit_log_file_size, "16384 to 2147483647");
        }
        if let Some(begin_at) = self.begin_at
            && (begin_at.get() >= 1 << 62 || !begin_at.get().is_multiple_of(self.commit_log_file_size))
        {
            return bad("begin_at", begin_at.get(), "a multiple of commit_log_file_size below 2^62");
        }
        if !(20..=1 << 30).contains(&self.consume_queue_file_size) {
            return bad("consume_queue_file_size", self.consume_queue_file_size, "20 to 1073741824");
        }
        if !(1..=100_000_000).contains(&self.index_slots) {
            return bad("index_slots", self.index_slots.into(), "1 to 100000000");
        }
        if !(2..=2_000_000_000).contains(&self.index_entries) {
            return bad("index_entries", self.index_entries.into(), "2 to 2000000000");
        }
        if self.fault_in_ahead > 64 << 20 {
            return bad("fault_in_ahead", self.fault_in_ahead, "at most 67108864");
        }
        if self.flush_step_bytes == 0 {
            return bad("flush_step_bytes", 0, "more than zero");
        }
        if !(1..=1 << 40).contains(&self.checkpoint_bytes) {
            return bad("checkpoint_bytes", self.checkpoint_bytes, "1 to 1099511627776");
        }
        if self.busy_timeout > Duration::from_secs(86_400) {
            return bad("busy_timeout", self.busy_timeout.as_secs(), "at most 86400 seconds");
        }
        if self.flush_interval.is_zero() || self.checkpoint_interval.is_zero() {
            return bad("flush_interval or checkpoint_interval", 0, "more than zero");
        }
        self.consume_queue_file_size = self.consume_queue_file_size.div_ceil(20) * 20;
        if self.writable_commit_log_dirs().is_empty() {
            return bad("commit log folders that are not read-only", 0, "one or more");
        }
        self.retention = self.retention.checked()?;
        self.open_queue_files = self.open_queue_files.max(1);
        Ok(self)
    }
}
