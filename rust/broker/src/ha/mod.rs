//! Replication of the log: a master's port for slaves, and a slave's connection to its master.
//!
//! # Source
//! docs/reference/store-format.md 12; what is sent when is decided in `rocketpy-ha`.

mod begin;
mod config;
mod confirm;
mod follow_figures;
mod master;
mod past;
mod peers;
mod progress;
mod shared_secret;
mod slave;
mod slaves;
#[cfg(feature = "sim")]
mod stepped;
mod sync_back;

use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use begin::FoundMaster;
pub(crate) use begin::{MasterSearch, brokers_of, where_to_begin};
use config::MAX_BODY_BYTES;
pub use config::{BrokerRole, ReplicationConfig};
pub(crate) use confirm::ConfirmOffset;
pub(crate) use follow_figures::Followed;
use master::Master;
pub(crate) use past::Past;
pub(crate) use peers::Peers;
pub(crate) use progress::SlaveProgress;
use rocketpy_env::planted::{self, Bug};
use rocketpy_env::{Disk, EnvError, RealDisk};
use rocketpy_model::{PhysicalOffset, system};
pub(crate) use rocketpy_protocol::header::key::{CHALLENGE, NONCE, PROOF};
pub(crate) use rocketpy_protocol::signature::STATUS;
use rocketpy_store::{FlushMode, Store};
pub(crate) use shared_secret::SharedSecret;
use slave::{Cutting, Own, Slaving};
pub(crate) use slaves::{Slave, Slaves};
#[cfg(feature = "sim")]
pub use stepped::{Refused, SteppedLink, SteppedReplica};
pub(crate) use sync_back::give_back;
use sync_back::take_back;
use tokio::sync::watch;
use tracing::warn;

use crate::advertised::Advertised;
use crate::ground::Ground;
use crate::role::OwnLog;
use crate::{BrokerConfig, BrokerError, RoleOrder};

/// Uses of the secret: a greeting, a request for the end of a log, its answer, and an answer about the state. No proof of one serves
/// for another.
const MASTER: &[u8] = b"master";
const SLAVE: &[u8] = b"slave";
const COPY_ASKED: &[u8] = b"copy asked";
const COPY_GIVEN: &[u8] = b"copy given";
pub(crate) const LEAVE: &[u8] = b"leave master";
/// The field of a request or an answer that holds the epochs of the sender's log, as JSON.
pub(crate) const EPOCHS: &str = "epochs";
/// Length of a proof: 20 bytes as Base64.
const PROOF_BYTES: usize = 28;

/// The threads of one broker that copy the log.
#[derive(Debug, Clone, Default)]
pub(crate) struct Replication {
    master: Option<Arc<Master<RealDisk>>>,
    slave: Option<Arc<Slaving<RealDisk>>>,
    /// How far readers of a SYNC_MASTER see.
    confirm: Option<Arc<ConfirmOffset<RealDisk>>>,
}

/// Reads what is known of the past of the log, and begins the life that the role of the broker wants: a slave's, or a master's, which
/// first takes from its slaves what a sudden end cost it.
///
/// # Errors
/// The file cannot be read or written; a slave of Apache's has more than this master.
pub(crate) async fn begin_life(
    config: &BrokerConfig,
    store: &Arc<Store>,
) -> Result<Option<Arc<Past<RealDisk>>>, BrokerError> {
    let is_master = config.broker_id == system::MASTER_ID;
    let is_wanted = !is_master || config.replication.serves_slaves();
    let (disk, names) = (*store.disk(), (&*config.broker_name, config.broker_id));
    let secret = SharedSecret::of(config)?;
    let Some(past) = Past::load(disk, &config.store.root, names, secret, is_wanted)? else { return Ok(None) };
    if is_master {
        take_back(config, store, &past).await?;
        past.begin_life(store, config.replication.slaves_waited_for())?;
    } else {
        past.begin_following(store)?;
    }
    Ok(Some(Arc::new(past)))
}

impl Replication {
    /// Listens for slaves, or follows a master once one is known, as the configuration says. `address` is where this broker answers
    /// requests; `orders` take a cut of the log's end.
    ///
    /// # Errors
    /// There are no threads; what is known of the past cannot be written.
    pub(crate) fn start(
        ground: &Ground,
        peers: &Peers,
        address: &Advertised,
        listener: Option<TcpListener>,
        orders: &watch::Sender<Option<RoleOrder>>,
    ) -> Result<Self, BrokerError> {
        let config = ground.config();
        let replication = &config.replication;
        let failed = |source| BrokerError::ListenForSlaves { addr: address.store_host, source };
        let Some(past) = peers.past().cloned() else { return Ok(Self::default()) };
        let (store, file_bytes) = (ground.store().clone(), config.store.commit_log_file_size);
        let address = address.address();
        if !ground.role().is_master() {
            let (flush, flush_timeout) = (config.store.flush, config.sync_flush_timeout);
            let not_followed = peers.not_followed().clone();
            let cutting = (!replication.keeps_tail)
                .then(|| Cutting { orders: orders.clone(), order: RoleOrder::of(&config) });
            let (role, stay_away) = (ground.role().clone(), config.intervals.stay_away);
            if past.is_diverged() {
                role.set_log(OwnLog::Diverged);
            }
            let tls = config.tls_to_master();
            let own = Own {
                address,
                file_bytes,
                flush,
                flush_timeout,
                not_followed,
                role,
                stay_away,
                tls,
                cutting,
            };
            let slave = Slaving::start(store, past, own, replication.follow()).map_err(failed)?;
            return Ok(Self { slave: Some(Arc::new(slave)), ..Self::default() });
        }
        let slaves = peers.slaves().clone();
        if replication.role == BrokerRole::SyncMaster && !slaves.are_waited_for() {
            warn!(
                "inSyncReplicas is 1: this SYNC_MASTER does not wait for a slave, so a lost disk loses messages"
            );
        }
        let Some(listener) = listener else { return Ok(Self::default()) };
        let confirm =
            slaves.are_waited_for().then(|| ConfirmOffset::begin(store.clone(), replication)).flatten();
        let of_slaves = (slaves, confirm.clone());
        let listening = (listener, config.tls.server.clone());
        let master = Master::start(listening, store, of_slaves, past, address, file_bytes, replication);
        Ok(Self { master: Some(Arc::new(master.map_err(failed)?)), slave: None, confirm })
    }

    /// What limits the readers of a SYNC_MASTER; `None`: they see all that this broker has.
    pub(crate) fn confirm(&self) -> Option<&Arc<ConfirmOffset<RealDisk>>> {
        self.confirm.as_ref()
    }

    /// The address that listens for slaves.
    pub(crate) fn slave_addr(&self) -> Option<SocketAddr> {
        self.master.as_ref().map(|master| master.local_addr())
    }

    /// A slave leaves its master: see [`Slaving::leave_master`].
    ///
    /// # Errors
    /// As [`Slaving::leave_master`].
    pub(crate) fn leave_master(&self) -> Result<(), EnvError> {
        self.slave.as_ref().map_or(Ok(()), |slave| slave.leave_master())
    }

    /// Whether a slave is connected to its master and gets its log.
    pub(crate) fn is_following(&self) -> bool {
        self.slave.as_ref().is_some_and(|slave| slave.is_following())
    }

    /// State of a slave's connection to its master; `None` at a master.
    pub(crate) fn followed(&self) -> Option<Followed> {
        self.slave.as_ref().map(|slave| slave.followed())
    }

    /// Notes how far the master of a slave has flushed its log.
    pub(crate) fn set_master_flushed(&self, offset: i64) {
        if let Some(slave) = &self.slave {
            slave.set_master_flushed(offset);
        }
    }

    /// Whether a slave left its master a moment ago, and knows no other.
    pub(crate) fn has_left_master(&self) -> bool {
        self.slave.as_ref().is_some_and(|slave| slave.has_left_master())
    }

    /// Follows the log of a master that was found.
    fn follow(&self, found: &FoundMaster) {
        if let Some(slave) = &self.slave {
            slave.set_master(&found.slave_address, found.log_start.is_some());
            if let Some(flushed) = found.flushed {
                slave.set_master_flushed(flushed);
            }
        }
    }

    /// Does not follow a master of Apache's, whose log files have another size.
    fn reject(&self, found: &FoundMaster, file_bytes: u64) {
        if let Some(slave) = &self.slave {
            slave.reject_master(&found.slave_address, file_bytes);
        }
    }

    /// Follows the master at `haMasterAddress` while no other is known. Who was the slave of a master of RocketPy waits for one, unless there are
    /// no name servers to tell it: what another one sends may be another log.
    fn follow_configured(&self, config: &BrokerConfig) {
        if let (Some(slave), Some(address)) = (&self.slave, &config.replication.master_address) {
            slave.set_first_master(address, config.name_servers.is_empty());
        }
    }

    /// Follows the master at `haMasterAddress` where there are no name servers to say another.
    pub(crate) fn follow_without_names(&self, config: &BrokerConfig) {
        if config.name_servers.is_empty() {
            self.follow_configured(config);
        }
    }

    /// Ends all threads. A master first waits at most `within` until its slaves have the whole log. Blocks.
    pub(crate) fn stop(&self, within: Duration) {
        if let Some(master) = &self.master {
            master.stop(within);
        }
        if let Some(slave) = &self.slave {
            slave.stop();
        }
    }
}

/// End of a slave's log that its master may rely on: the flushed offset under SYNC_FLUSH.
fn reportable_end<D: Disk>(store: &Store<D>, flush: FlushMode) -> PhysicalOffset {
    match flush {
        FlushMode::Sync if !planted::has(Bug::ReportBeforeFlush) => store.flushed_offset(),
        FlushMode::Sync | FlushMode::Async => store.max_physical_offset(),
    }
}

/// Whether a read or a write only ran out of its time.
fn is_time_out(error: &std::io::Error) -> bool {
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}
