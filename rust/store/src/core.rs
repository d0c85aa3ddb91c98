//! What the threads of a store share.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};
use rocketpy_env::{Disk, EnvError, LastLook, Region};
use rocketpy_model::PhysicalOffset;
use spin::mutex::SpinMutex;

use crate::allocate::Allocator;
use crate::config::{FlushMode, StoreConfig};
use crate::dispatch::Dispatcher;
use crate::error::{AppendError, StoreError};
use crate::flush::Flusher;
use crate::folder::Folder;
use crate::index::Index;
use crate::keeper::Keeper;
use crate::listener::{NoListener, StoreListener};
use crate::mapped::{MappedFile, MappedFileQueue};
use crate::queue::files::QueueFiles;
use crate::queue::table::QueueTable;
use crate::recovery::Recovered;
use crate::retention::{FullDisk, Retention};
use crate::wake::Wake;

/// The state of an open store. Threads and callers hold it together.
pub(crate) struct Core<D: Disk> {
    pub disk: Arc<D>,
    pub config: StoreConfig,
    pub folder: Folder,
    pub log: MappedFileQueue<D>,
    /// Held while a record gets its place and is copied. Its release is a plain store: one that parks its waiters needs an
    /// atomic exchange, which waits until the copied bytes have left the processor, as long as the copy itself took.
    pub writer: SpinMutex<Writer<D::Region>, spin::Yield>,
    pub allocator: Allocator<D::Region>,
    pub flusher: Flusher,
    pub queues: QueueTable,
    pub queue_files: QueueFiles<D>,
    /// `None` when the store keeps none.
    pub index: Option<Index<D>>,
    /// Held for one round of dispatch.
    pub dispatcher: Mutex<Dispatcher>,
    pub keeper: Mutex<Keeper<D>>,
    pub retention: Retention,
    /// End of the log: every byte before it is final and readable.
    wrote: AtomicU64,
    /// When the last record before `wrote` was stored; never ahead of `wrote`.
    last_stored_at: AtomicI64,
    /// Consume queues cover the log before this.
    dispatched: AtomicU64,
    pub dispatch_wake: Wake,
    pub keeper_wake: Wake,
    /// When dispatch passes this, a checkpoint is due; `u64::MAX` once it has called for one.
    pub keep_at: AtomicU64,
    /// Why appends are refused at the moment, bits of [`refused`]; 0 while they are not.
    refusing: AtomicU8,
    /// Set when no append is on its way any more: threads end.
    stopping: AtomicBool,
    poison: OnceLock<Arc<EnvError>>,
    /// Why consume queues can not be written at the moment.
    queue_fault: Mutex<Option<Arc<EnvError>>>,
    /// The disk that is fuller than it may be.
    full_disk: Mutex<Option<FullDisk>>,
    listener: RwLock<Arc<dyn StoreListener>>,
    store_host: HostCell,
}

/// Reasons to refuse appends. One word holds them all: none is lost when another comes or goes at the same time.
mod refused {
    /// The store closes.
    pub(super) const CLOSING: u8 = 1;
    /// A flush failed.
    pub(super) const POISONED: u8 = 2;
    /// Consume queues can not be written.
    pub(super) const QUEUES: u8 = 4;
    /// The disk is fuller than it may be.
    pub(super) const SPACE: u8 = 8;
}

/// What the append lock guards.
pub(crate) struct Writer<R> {
    /// The file that is written; `None` before the first record, and when the last file is full.
    pub active: Option<Arc<MappedFile<R>>>,
    /// Where the next file starts when there is no active one.
    pub next_start: u64,
    pub last_stored_at: i64,
    pub last_look: LastLook,
    /// Set by dispatch before it sleeps: the next append wakes it.
    pub dispatch_sleeps: bool,
}

impl<R> Writer<R> {
    pub(crate) fn new(active: Option<Arc<MappedFile<R>>>, next_start: u64, last_stored_at: i64) -> Self {
        Self { active, next_start, last_stored_at, last_look: LastLook::default(), dispatch_sleeps: false }
    }
}

/// The address that goes into records: read at every append, hardly ever changed.
#[derive(Debug)]
struct HostCell {
    /// An IPv4 address: address, port and a set bit above; 0 for another one.
    packed: AtomicU64,
    address: RwLock<SocketAddr>,
}

impl HostCell {
    fn new(address: SocketAddr) -> Self {
        Self { packed: AtomicU64::new(Self::pack(address)), address: RwLock::new(address) }
    }

    fn pack(address: SocketAddr) -> u64 {
        match address {
            SocketAddr::V4(v4) => 1 << 48 | u64::from(v4.ip().to_bits()) << 16 | u64::from(v4.port()),
            SocketAddr::V6(_) => 0,
        }
    }

    fn get(&self) -> SocketAddr {
        match self.packed.load(Ordering::Relaxed) {
            0 => *self.address.read(),
            packed => SocketAddr::from((Ipv4Addr::from_bits((packed >> 16) as u32), packed as u16)),
        }
    }

    fn set(&self, address: SocketAddr) {
        let mut slot = self.address.write();
        *slot = address;
        self.packed.store(Self::pack(address), Ordering::Relaxed);
    }
}

impl<D: Disk> Core<D> {
    /// Puts the parts together after the log was recovered and before dispatch goes on.
    pub(crate) fn new(disk: Arc<D>, config: StoreConfig, folder: Folder, recovered: Recovered<D>) -> Self {
        let Recovered {
            files,
            queues,
            queue_files,
            end,
            progress,
            last_stored_at,
            durable_to,
            durable_stored_at,
            keeper,
            index,
        } = recovered;
        let log = MappedFileQueue::new(
            Arc::clone(&disk),
            config.writable_commit_log_dirs(),
            config.commit_log_file_size,
            files,
        );
        let active = log.last().filter(|file| file.region.written() < file.region.len());
        Self {
            allocator: Allocator::new(end.get(), config.bytes_ahead()),
            flusher: Flusher::new(durable_to.get(), durable_stored_at, end.get()),
            dispatcher: Mutex::new(Dispatcher::new(progress)),
            writer: SpinMutex::new(Writer::new(active, end.get(), last_stored_at)),
            keeper: Mutex::new(keeper),
            retention: Retention::new(),
            wrote: AtomicU64::new(end.get()),
            last_stored_at: AtomicI64::new(last_stored_at),
            dispatched: AtomicU64::new(progress.dispatched),
            dispatch_wake: Wake::default(),
            keeper_wake: Wake::default(),
            keep_at: AtomicU64::new(progress.dispatched + config.checkpoint_bytes),
            refusing: AtomicU8::new(0),
            stopping: AtomicBool::new(false),
            poison: OnceLock::new(),
            queue_fault: Mutex::new(None),
            full_disk: Mutex::new(None),
            listener: RwLock::new(Arc::new(NoListener)),
            store_host: HostCell::new(config.store_host),
            disk,
            config,
            folder,
            log,
            queues,
            queue_files,
            index,
        }
    }

    /// End of the log.
    pub(crate) fn wrote(&self) -> u64 {
        self.wrote.load(Ordering::Acquire)
    }

    /// Makes everything before `end` visible; the caller holds the append lock.
    pub(crate) fn publish(&self, end: u64, stored_at_ms: Option<i64>) {
        self.wrote.store(end, Ordering::Release);
        if let Some(stored_at_ms) = stored_at_ms {
            self.last_stored_at.store(stored_at_ms, Ordering::Release); // after the end: a flush reads it first
        }
    }

    /// When a record before [`Core::wrote`] was stored, as late as is known.
    pub(crate) fn last_stored_at(&self) -> i64 {
        self.last_stored_at.load(Ordering::Acquire)
    }

    pub(crate) fn dispatched(&self) -> u64 {
        self.dispatched.load(Ordering::Acquire)
    }

    pub(crate) fn set_dispatched(&self, offset: u64) {
        self.dispatched.store(offset, Ordering::Release);
    }

    /// How far readers and dispatch may look: under synchronous flush nobody sees what a power loss may take back.
    ///
    /// # Source
    /// docs/reference/store-format.md 5.9.
    #[doc(alias = "confirmOffset")]
    pub(crate) fn confirm(&self) -> u64 {
        match self.config.flush {
            FlushMode::Sync => self.flusher.flushed(),
            FlushMode::Async => self.wrote(),
        }
    }

    /// Start of the log.
    pub(crate) fn min(&self) -> u64 {
        self.log.min().map_or_else(|| self.wrote(), PhysicalOffset::get)
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.refusing.load(Ordering::Acquire) & refused::CLOSING != 0
    }

    /// Refuses appends from now on. Says whether this call was the one that closed.
    pub(crate) fn close(&self) -> bool {
        let was_open = self.refusing.fetch_or(refused::CLOSING, Ordering::AcqRel) & refused::CLOSING == 0;
        drop(self.writer.lock()); // appends that were let in are done
        was_open
    }

    /// Lets the threads end; what they leave undone is the caller's.
    pub(crate) fn stop_threads(&self) {
        self.stopping.store(true, Ordering::Release);
        self.dispatch_wake.wake();
        self.keeper_wake.wake();
        self.flusher.wake.wake();
        self.allocator.wake.wake();
        self.retention.wake.wake();
        self.allocator.notify();
        self.flusher.notify();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Whether an append may go on.
    pub(crate) fn check_open(&self) -> Result<(), AppendError> {
        if self.refusing.load(Ordering::Acquire) == 0 { Ok(()) } else { self.refusal() }
    }

    #[cold]
    fn refusal(&self) -> Result<(), AppendError> {
        if self.is_closing() {
            return Err(AppendError::ShutDown);
        }
        if let Some(cause) = self.poison_cause() {
            return Err(AppendError::Poisoned { cause });
        }
        if let Some(cause) = self.queue_fault.lock().clone() {
            return Err(AppendError::QueueNotWriteable { cause });
        }
        match self.full_disk.lock().clone() {
            Some(FullDisk { path, used_percent, limit_percent }) => {
                Err(AppendError::DiskNearlyFull { path, used_percent, limit_percent })
            }
            None => Ok(()), // it went away since the look
        }
    }

    /// The failed flush, once there was one.
    pub(crate) fn poison_cause(&self) -> Option<Arc<EnvError>> {
        self.poison.get().map(Arc::clone)
    }

    /// Notes a failed flush: nothing is acknowledged from now on. The listener is told once.
    pub(crate) fn poison(&self, error: EnvError) -> Arc<EnvError> {
        let error = Arc::new(error);
        let cause = Arc::clone(self.poison.get_or_init(|| Arc::clone(&error)));
        self.refusing.fetch_or(refused::POISONED, Ordering::AcqRel);
        if Arc::ptr_eq(&cause, &error) {
            tracing::error!(%error, "a flush failed, the store refuses writes from now on");
            self.listener().poisoned(&StoreError::Poisoned { cause: Arc::clone(&cause) });
        }
        self.flusher.notify();
        cause
    }

    /// An error of the disk as the caller gets it: a failed flush poisons.
    pub(crate) fn noted(&self, error: EnvError) -> StoreError {
        match error.is_failed_flush() {
            true => StoreError::Poisoned { cause: self.poison(error) },
            false => error.into(),
        }
    }

    /// Notes that a thread of the store ended in the midst of its work: what it left is not known.
    pub(crate) fn poison_by_panic(&self, operation: &'static str) {
        let source = Arc::new(std::io::Error::other("a thread panicked, its message went to standard error"));
        self.poison(EnvError::Io { operation, path: self.folder.root.clone(), source });
    }

    /// Notes whether consume queues can be written.
    pub(crate) fn set_queue_fault(&self, fault: Option<EnvError>) {
        let mut state = self.queue_fault.lock();
        match (&*state, &fault) {
            (None, Some(error)) => {
                tracing::error!(%error, "consume queues can not be written, appends are refused until they can");
            }
            (Some(_), None) => tracing::info!("consume queues can be written again"),
            _ => {}
        }
        *state = fault.map(Arc::new);
        match &*state {
            Some(_) => self.refusing.fetch_or(refused::QUEUES, Ordering::AcqRel),
            None => self.refusing.fetch_and(!refused::QUEUES, Ordering::AcqRel),
        };
    }

    /// Whether consume queues can be written as far as is known.
    pub(crate) fn queues_blocked(&self) -> bool {
        self.refusing.load(Ordering::Acquire) & refused::QUEUES != 0
    }

    /// Notes whether the disk is too full for appends.
    pub(crate) fn set_full_disk(&self, full: Option<FullDisk>) {
        let mut state = self.full_disk.lock();
        *state = full;
        match &*state {
            Some(_) => self.refusing.fetch_or(refused::SPACE, Ordering::AcqRel),
            None => self.refusing.fetch_and(!refused::SPACE, Ordering::AcqRel),
        };
    }

    /// Whether appends are refused because the disk is too full.
    pub(crate) fn is_refusing_for_space(&self) -> bool {
        self.refusing.load(Ordering::Acquire) & refused::SPACE != 0
    }

    pub(crate) fn listener(&self) -> Arc<dyn StoreListener> {
        Arc::clone(&self.listener.read())
    }

    pub(crate) fn set_listener(&self, listener: Arc<dyn StoreListener>) {
        *self.listener.write() = listener;
    }

    pub(crate) fn store_host(&self) -> SocketAddr {
        self.store_host.get()
    }

    pub(crate) fn set_store_host(&self, host: SocketAddr) {
        self.store_host.set(host);
    }
}
