//! The parts of a broker over an open store, in the order in which they are built.

use std::sync::Arc;

use rocketpy_env::{Disk, RealDisk};
use rocketpy_protocol::message_id::UniqueKeys;
use rocketpy_store::Store;
use tokio::runtime::Handle;

use crate::cold_read::ColdReads;
use crate::delay::Delays;
use crate::disk_read::DiskReads;
use crate::ground::Ground;
use crate::ha::Slaves;
use crate::held_send::HeldSends;
use crate::members::Members;
use crate::put::Intake;
use crate::registration::Registrar;
use crate::role::RoleCell;
use crate::table::missing::MissingTables;
use crate::timer::Timers;
use crate::timer::pending::PendingRecords;
use crate::transaction::Transactions;
use crate::{BrokerConfig, BrokerError};

/// Inputs from which the parts are built.
#[derive(Debug)]
pub(crate) struct Foundation<D: Disk = RealDisk> {
    pub(crate) config: BrokerConfig,
    pub(crate) store: Arc<Store<D>>,
    pub(crate) role: Arc<RoleCell>,
    /// The name servers of the broker, if it has any.
    pub(crate) registrar: Option<Arc<Registrar>>,
    pub(crate) unique_keys: UniqueKeys,
    pub(crate) runtime: Handle,
    /// Whether members of groups may have seen a longer log than this one.
    pub(crate) is_in_doubt: bool,
    /// See [`Ground::hot_bytes`].
    pub(crate) hot_bytes: u64,
}

/// The parts that need no connections.
#[derive(Debug)]
pub(crate) struct Parts<D: Disk = RealDisk> {
    pub(crate) ground: Arc<Ground<D>>,
    pub(crate) members: Arc<Members<D>>,
    /// Sends that wait for the flush.
    pub(crate) held_sends: Arc<HeldSends>,
    /// Sends that wait for slaves.
    pub(crate) held_for_slaves: Arc<HeldSends>,
    /// The slaves that are connected; none unless this is a master that has a port for them.
    pub(crate) slaves: Arc<Slaves>,
    pub(crate) intake: Arc<Intake<D>>,
    /// Messages that wait for a delay level.
    pub(crate) delays: Arc<Delays<D>>,
    /// Messages that wait for their time.
    pub(crate) timers: Arc<Timers<D>>,
    /// Messages that wait for the end of their transaction.
    pub(crate) transactions: Arc<Transactions<D>>,
    /// Reads that look a message or an offset up.
    pub(crate) look_ups: Arc<DiskReads>,
    pub(crate) cold_reads: Arc<ColdReads>,
}

impl<D: Disk> Parts<D> {
    /// Loads the tables of an open store. Called on a runtime, they are written on its threads, else by whoever changes something.
    ///
    /// # Errors
    /// A table cannot be read or written.
    pub(crate) fn open(foundation: Foundation<D>) -> Result<Self, BrokerError> {
        let Foundation { config, store, role, registrar, unique_keys, runtime, is_in_doubt, hot_bytes } =
            foundation;
        let missing = MissingTables::replace(store.disk(), &config.store.root);
        let ground = Arc::new(Ground::open(config, store, role, unique_keys, runtime, hot_bytes)?);
        let members = Arc::new(Members::open(&ground, is_in_doubt)?);
        missing.warn(ground.store(), ground.topics());
        let held_for_slaves = Arc::new(HeldSends::for_slaves());
        let held_sends = Arc::new(HeldSends::for_flush(held_for_slaves.clone()));
        let slaves = Arc::new(Slaves::new(&ground.config().replication, held_for_slaves.clone()));
        let intake = Arc::new(Intake::new(
            ground.clone(),
            members.clone(),
            slaves.clone(),
            Arc::new(PendingRecords::default()),
            registrar,
        ));
        let delays = Arc::new(Delays::open(intake.clone())?);
        let timers = Arc::new(Timers::open(intake.clone())?);
        let transactions = Arc::new(Transactions::open(intake.clone())?);
        ground.set_topic_retention()?;
        let look_ups = Arc::new(DiskReads::new());
        let cold_reads = Arc::new(ColdReads::open(ground.store().disk().clone(), &ground.config())?);
        Ok(Self {
            ground,
            members,
            held_sends,
            held_for_slaves,
            slaves,
            intake,
            delays,
            timers,
            transactions,
            look_ups,
            cold_reads,
        })
    }
}
