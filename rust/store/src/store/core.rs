//! The parts of an open store, put together.

use std::sync::Arc;

use rocketpy_env::Disk;

use crate::admission::Admission;
use crate::allocate::Allocator;
use crate::append::Appender;
use crate::checkpoint_call::CheckpointCall;
use crate::config::StoreConfig;
use crate::delay::DelayTables;
use crate::derived::Derived;
use crate::dispatch::Dispatcher;
use crate::flush::Flusher;
use crate::flush::turn::Turns;
use crate::folder::Folder;
use crate::keeper::Keeper;
use crate::log::{FoundLog, Log};
use crate::read::Reads;
use crate::recovery::Recovered;
use crate::replica::Replica;
use crate::retention::Retention;

/// All parts of an open store. Each owns its state; this only holds them together.
///
/// Which part may know which, and in which order their locks are taken: docs/decisions/store-parts.md.
pub(crate) struct Core<D: Disk> {
    pub(super) log: Arc<Log<D>>,
    pub(super) admission: Arc<Admission>,
    pub(super) derived: Arc<Derived<D>>,
    pub(super) flusher: Arc<Flusher<D>>,
    pub(super) allocator: Arc<Allocator<D>>,
    pub(super) dispatcher: Arc<Dispatcher<D>>,
    pub(super) keeper: Arc<Keeper<D>>,
    pub(super) reads: Arc<Reads<D>>,
    pub(super) appender: Arc<Appender<D>>,
    pub(super) replica: Replica<D>,
    pub(super) retention: Retention<D>,
}

/// A thread of a store: its name, and its loop.
type Thread<D> = (&'static str, fn(&Core<D>));

impl<D: Disk> Core<D> {
    /// Puts the parts together after the recovery of the log and before dispatch.
    pub(crate) fn new(
        disk: Arc<D>,
        config: StoreConfig,
        folder: Folder,
        recovered: Recovered<D>,
        delays: DelayTables,
    ) -> Self {
        let Recovered {
            files,
            queues,
            queue_files,
            end,
            progress,
            last_stored_at,
            durable_to,
            durable_stored_at,
            mark_writer,
            index,
            first_reads,
        } = recovered;
        let root = folder.root.clone();
        let found = FoundLog { files, end, last_stored_at, durable_to };
        let log = Arc::new(Log::new(disk, config, folder, found));
        let turns = Arc::new(Turns::default());
        let admission = Arc::new(Admission::new(Arc::clone(&turns), root));
        let derived = Arc::new(Derived::new(queues, queue_files, index, delays));
        let wake = Arc::default();
        let first_call = progress.dispatched + log.config().checkpoint_bytes;
        let call = Arc::new(CheckpointCall::new(first_call));
        let own_checks = first_reads.own_checks().clone();
        let flusher = Flusher::new(&log, &admission, &turns, &wake, durable_stored_at, own_checks);
        let flusher = Arc::new(flusher);
        let allocator = Arc::new(Allocator::new(&log, &admission));
        let dispatcher = Dispatcher::new(&log, &admission, &flusher, &derived, &call, &wake, progress);
        let dispatcher = Arc::new(dispatcher);
        let keeper = Keeper::new(&log, &admission, &flusher, &dispatcher, &derived, &call, mark_writer);
        let keeper = Arc::new(keeper);
        let reads = Arc::new(Reads::new(&log, &derived, first_reads));
        let backlog = dispatcher.backlog();
        let appender = Appender::new(&log, &admission, &flusher, &allocator, &derived, &wake, backlog);
        let appender = Arc::new(appender);
        Self {
            replica: Replica::new(&log, &admission, &derived, &appender, &dispatcher, &keeper),
            retention: Retention::new(&log, &admission, &dispatcher, &keeper, &derived, &reads),
            log,
            admission,
            derived,
            flusher,
            allocator,
            dispatcher,
            keeper,
            reads,
            appender,
        }
    }

    pub(super) fn threads() -> [Thread<D>; 5] {
        [
            ("rocketpy-flush", |core| core.flusher.run(|| core.dispatcher.round_inline())),
            ("rocketpy-dispatch", |core| core.dispatcher.run()),
            ("rocketpy-allocate", |core| core.allocator.run()),
            ("rocketpy-checkpoint", |core| core.keeper.run()),
            ("rocketpy-clean", |core| core.retention.run()),
        ]
    }

    /// Refuses appends from now on, and waits for those that were let in. Returns whether this call was the first.
    pub(super) fn close(&self) -> bool {
        let was_open = self.admission.close();
        drop(self.log.write());
        was_open
    }

    /// Lets the threads end. The caller does what they leave undone.
    pub(super) fn stop_threads(&self) {
        self.admission.append_bell().stop();
        self.dispatcher.stop();
        self.keeper.stop();
        self.flusher.stop();
        self.allocator.stop();
        self.retention.stop();
    }
}
