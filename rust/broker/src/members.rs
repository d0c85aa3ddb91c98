//! The members of groups: who is there, how far each group is, and who holds which queue.

use std::time::Instant;

use rocketpy_env::{Disk, RealDisk};
use rocketpy_model::PhysicalOffset;
use rocketpy_protocol::body::Creation;
use tokio::runtime::Handle;

use crate::BrokerError;
use crate::ground::Ground;
use crate::slave::OwnCommits;
use crate::table::client::ClientTable;
use crate::table::offset::OffsetTable;
use crate::table::queue_lock::QueueLocks;

/// Live clients, offsets of groups, and locks of queues.
#[derive(Debug)]
pub(crate) struct Members<D: Disk = RealDisk> {
    clients: ClientTable,
    offsets: OffsetTable<D>,
    queue_locks: QueueLocks<D>,
    /// What consumers committed at a slave.
    own_commits: OwnCommits,
    /// Where the log ended at the start, if it may have been longer before.
    in_doubt_to: Option<PhysicalOffset>,
}

impl<D: Disk> Members<D> {
    /// Loads offsets and locks. Called on a runtime, they are written on its threads, else by whoever changes something. Whether members
    /// of groups may have seen a longer log than this one decides how they continue (`is_in_doubt`).
    ///
    /// # Errors
    /// A table cannot be read.
    pub(crate) fn open(ground: &Ground<D>, is_in_doubt: bool) -> Result<Self, BrokerError> {
        let (store, config) = (ground.store(), ground.config());
        let (disk, root) = (store.disk().clone(), &config.store.root);
        let offsets = OffsetTable::open_with(disk.clone(), root, Handle::try_current().ok())?;
        let max_offset = |topic: &str, queue_id| store.queue_bounds(topic, queue_id).max.to_wire();
        offsets.clamp(max_offset, is_in_doubt)?;
        let queue_locks = QueueLocks::open(disk, root, Instant::now(), Handle::try_current().ok())?;
        let (clients, own_commits) = (ClientTable::default(), OwnCommits::default());
        let in_doubt_to = is_in_doubt.then(|| store.max_physical_offset());
        Ok(Self { clients, offsets, queue_locks, own_commits, in_doubt_to })
    }

    pub(crate) fn clients(&self) -> &ClientTable {
        &self.clients
    }

    pub(crate) fn offsets(&self) -> &OffsetTable<D> {
        &self.offsets
    }

    pub(crate) fn queue_locks(&self) -> &QueueLocks<D> {
        &self.queue_locks
    }

    pub(crate) fn own_commits(&self) -> &OwnCommits {
        &self.own_commits
    }

    /// Whether a queue of this creation was there before a start that may have lost the end of the log: then it may have become shorter.
    pub(crate) fn may_have_become_shorter(&self, queue: Creation) -> bool {
        self.in_doubt_to.is_some_and(|end| queue.from < end)
    }
}
