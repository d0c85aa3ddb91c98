//! What the threads of a store share.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};
use rocketpy_env::{Disk, EnvError, Region};

use crate::allocate::Allocator;
use crate::config::{FlushMode, StoreConfig};
use crate::dispatch::{Dispatcher, Handover};
use crate::error::{AppendError, StoreError};
use crate::flush::Flusher;
use crate::folder::Folder;
use crate::keeper::Keeper;
use crate::listener::{NoListener, StoreListener};
use crate::mapped::{MappedFile, MappedFileQueue};
use crate::queue::files::QueueFiles;
use crate::queue::table::QueueTable;
use crate::recovery::Recovered;
use crate::wake::Wake;

/// The state of an open store. Threads and callers hold it together.
pub(crate) struct Core<D: Disk> {
    pub disk: Arc<D>,
    pub config: StoreConfig,
    pub folder: Folder,
    pub log: MappedFileQueue<D>,
    /// Held while a record gets its place and is copied.
    pub writer: Mutex<Writer<D::Region>>,
    pub allocator: Allocator<D::Region>,
    pub flusher: Flusher,
    pub queues: QueueTable,
    pub queue_files: QueueFiles<D>,
    pub handover: Handover,
    /// Held for one round of dispatch.
    pub dispatcher: Mutex<Dispatcher>,
    pub keeper: Mutex<Keeper<D>>,
    /// End of the log: every byte before it is final and readable.
    wrote: AtomicU64,
    /// When the last record before `wrote` was stored; never ahead of `wrote`.
    last_stored_at: AtomicI64,
    /// Consume queues cover the log before this.
    dispatched: AtomicU64,
    pub dispatch_wake: Wake,
    pub keeper_wake: Wake,
    /// Set when the store closes: appends are refused.
    closing: AtomicBool,
    /// Set when no append is on its way any more: threads end.
    stopping: AtomicBool,
    poison: OnceLock<Arc<EnvError>>,
    /// Why consume queues can not be written at the moment.
    queue_fault: Mutex<Option<Arc<EnvError>>>,
    queues_blocked: AtomicBool,
    listener: RwLock<Arc<dyn StoreListener>>,
    store_host: RwLock<SocketAddr>,
    pub counters: Counters,
}

/// What the append lock guards.
pub(crate) struct Writer<R> {
    /// The file that is written; `None` before the first record, and when the last file is full.
    pub active: Option<Arc<MappedFile<R>>>,
    /// Where the next file starts when there is no active one.
    pub next_start: u64,
    pub last_stored_at: i64,
}

/// Counts since the store was opened.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub appended_records: AtomicU64,
    pub appended_bytes: AtomicU64,
    pub flushes: AtomicU64,
    pub longest_flush_us: AtomicU64,
    pub dispatch_fell_back: AtomicU64,
}

impl<D: Disk> Core<D> {
    /// Puts the parts together after the log was recovered and before dispatch goes on.
    pub fn new(disk: Arc<D>, config: StoreConfig, folder: Folder, recovered: Recovered<D>) -> Self {
        let Recovered { files, queues, queue_files, end, queues_to, entries, last_stored_at, keeper } = recovered;
        let log =
            MappedFileQueue::new(Arc::clone(&disk), folder.commit_log.clone(), config.commit_log_file_size, files);
        let active = log.last().filter(|file| file.region.written() < file.region.len());
        Self {
            allocator: Allocator::new(end, config.fault_in_ahead),
            flusher: Flusher::new(end, last_stored_at),
            handover: Handover::new(config.handover_limit),
            dispatcher: Mutex::new(Dispatcher::new(queues_to, entries, last_stored_at)),
            writer: Mutex::new(Writer { active, next_start: end, last_stored_at }),
            keeper: Mutex::new(keeper),
            wrote: AtomicU64::new(end),
            last_stored_at: AtomicI64::new(last_stored_at),
            dispatched: AtomicU64::new(queues_to),
            dispatch_wake: Wake::default(),
            keeper_wake: Wake::default(),
            closing: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            poison: OnceLock::new(),
            queue_fault: Mutex::new(None),
            queues_blocked: AtomicBool::new(false),
            listener: RwLock::new(Arc::new(NoListener)),
            store_host: RwLock::new(config.store_host),
            counters: Counters::default(),
            disk,
            config,
            folder,
            log,
            queues,
            queue_files,
        }
    }

    /// End of the log.
    pub fn wrote(&self) -> u64 {
        self.wrote.load(Ordering::Acquire)
    }

    /// Makes everything before `end` visible; the caller holds the append lock.
    pub fn publish(&self, end: u64, stored_at_ms: Option<i64>) {
        self.wrote.store(end, Ordering::Release);
        if let Some(stored_at_ms) = stored_at_ms {
            self.last_stored_at.store(stored_at_ms, Ordering::Release); // after the end: a flush reads it first
        }
    }

    /// When a record before [`Core::wrote`] was stored, as late as is known.
    pub fn last_stored_at(&self) -> i64 {
        self.last_stored_at.load(Ordering::Acquire)
    }

    pub fn dispatched(&self) -> u64 {
        self.dispatched.load(Ordering::Acquire)
    }

    pub fn set_dispatched(&self, offset: u64) {
        self.dispatched.store(offset, Ordering::Release);
    }

    /// How far readers and dispatch may look: under synchronous flush nobody sees what a power loss may take back.
    ///
    /// # Source
    /// spec/store.md 5.9.
    #[doc(alias = "confirmOffset")]
    pub fn confirm(&self) -> u64 {
        match self.config.flush {
            FlushMode::Sync => self.flusher.flushed(),
            FlushMode::Async => self.wrote(),
        }
    }

    /// Start of the log.
    pub fn min(&self) -> u64 {
        self.log.min().unwrap_or_else(|| self.wrote())
    }

    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Refuses appends from now on. Says whether this call was the one that closed.
    pub fn close(&self) -> bool {
        let was_open = !self.closing.swap(true, Ordering::AcqRel);
        drop(self.writer.lock()); // appends that were let in are done
        was_open
    }

    /// Lets the threads end; what they leave undone is the caller's.
    pub fn stop_threads(&self) {
        self.stopping.store(true, Ordering::Release);
        self.dispatch_wake.wake();
        self.keeper_wake.wake();
        self.flusher.wake.wake();
        self.allocator.wake.wake();
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Whether an append may go on.
    pub fn check_open(&self) -> Result<(), AppendError> {
        if self.is_closing() {
            return Err(AppendError::ShutDown);
        }
        if let Some(cause) = self.poison.get() {
            return Err(AppendError::Poisoned { cause: Arc::clone(cause) });
        }
        if self.queues_blocked.load(Ordering::Acquire)
            && let Some(cause) = self.queue_fault.lock().clone()
        {
            return Err(AppendError::QueueNotWriteable { cause });
        }
        Ok(())
    }

    /// The failed flush, once there was one.
    pub fn poison_cause(&self) -> Option<Arc<EnvError>> {
        self.poison.get().map(Arc::clone)
    }

    /// Notes a failed flush: nothing is acknowledged from now on. The listener is told once.
    pub fn poison(&self, error: EnvError) -> Arc<EnvError> {
        let error = Arc::new(error);
        let cause = Arc::clone(self.poison.get_or_init(|| Arc::clone(&error)));
        if Arc::ptr_eq(&cause, &error) {
            tracing::error!(%error, "a flush failed, the store refuses writes from now on");
            self.listener().poisoned(&StoreError::Poisoned { cause: Arc::clone(&cause) });
        }
        self.flusher.notify();
        cause
    }

    /// Notes whether consume queues can be written.
    pub fn set_queue_fault(&self, fault: Option<EnvError>) {
        let mut state = self.queue_fault.lock();
        match (&*state, &fault) {
            (None, Some(error)) => {
                tracing::error!(%error, "consume queues can not be written, appends are refused until they can");
            }
            (Some(_), None) => tracing::info!("consume queues can be written again"),
            _ => {}
        }
        self.queues_blocked.store(fault.is_some(), Ordering::Release);
        *state = fault.map(Arc::new);
    }

    /// Whether consume queues can be written as far as is known.
    pub fn queues_blocked(&self) -> bool {
        self.queues_blocked.load(Ordering::Acquire)
    }

    pub fn listener(&self) -> Arc<dyn StoreListener> {
        Arc::clone(&self.listener.read())
    }

    pub fn set_listener(&self, listener: Arc<dyn StoreListener>) {
        *self.listener.write() = listener;
    }

    pub fn store_host(&self) -> SocketAddr {
        *self.store_host.read()
    }

    pub fn set_store_host(&self, host: SocketAddr) {
        *self.store_host.write() = host;
    }
}
