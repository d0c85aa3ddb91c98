//! Replication of the log: a master's port for slaves, and a slave's connection to its master.
//!
//! # Source
//! docs/reference/store-format.md 12; what is sent when is decided in `rocketpy-ha`.

mod begin;
mod config;
mod master;
mod past;
mod slave;
mod slaves;

use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use begin::FoundMaster;
pub(crate) use begin::{MasterSearch, where_to_begin};
pub use config::{BrokerRole, ReplicationConfig};
use master::Master;
use past::Past;
use rocketpy_env::RealDisk;
use slave::Slaving;
pub(crate) use slaves::{Slave, Slaves};
use tracing::warn;

use crate::BrokerError;
use crate::shared::Shared;

/// The threads of one broker that copy the log.
#[derive(Debug, Clone, Default)]
pub(crate) struct Replication {
    master: Option<Arc<Master<RealDisk>>>,
    slave: Option<Arc<Slaving<RealDisk>>>,
}

impl Replication {
    /// Listens for slaves, or follows a master, as the configuration says.
    ///
    /// # Errors
    /// The address for slaves cannot be listened on; what the master knows of its past cannot be read or written.
    pub(crate) fn start(shared: &Arc<Shared>, local_addr: SocketAddr) -> Result<Self, BrokerError> {
        let config = shared.config();
        let replication = &config.replication;
        let failed = |addr| move |source| BrokerError::ListenForSlaves { addr, source };
        let store = shared.store.clone();
        if !shared.role.is_master() {
            Past::of_slave(&store, &config.store.root)?;
            let flush = (config.store.flush, config.sync_flush_timeout);
            let slave = Slaving::start(store, flush, replication.follow()).map_err(failed(local_addr))?;
            if let Some(address) = &replication.master_address {
                slave.set_master(address, false);
            }
            return Ok(Self { master: None, slave: Some(Arc::new(slave)) });
        }
        if replication.role == BrokerRole::SyncMaster && !shared.slaves.are_waited_for() {
            warn!("inSyncReplicas is 1: this SYNC_MASTER waits for no slave, and a lost disk loses messages");
        }
        let port = replication.listen_port(config.listen.port());
        let past = Past::begin(&store, &config.store.root, port.is_some())?;
        let Some((port, past)) = port.zip(past) else { return Ok(Self::default()) };
        let addr = SocketAddr::new(local_addr.ip(), port);
        let (slaves, file_bytes) = (shared.slaves.clone(), config.store.commit_log_file_size);
        let master =
            Master::start(addr, store, slaves, past, file_bytes, replication).map_err(failed(addr))?;
        shared.set_slave_port(master.local_addr().port());
        Ok(Self { master: Some(Arc::new(master)), slave: None })
    }

    /// The address that listens for slaves.
    pub(crate) fn slave_addr(&self) -> Option<SocketAddr> {
        self.master.as_ref().map(|master| master.local_addr())
    }

    /// Follows the log of a master that was found.
    fn follow(&self, found: &FoundMaster) {
        if let Some(slave) = &self.slave {
            slave.set_master(&found.slave_address, found.log_start.is_some());
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

/// Whether a read or a write only ran out of its time.
fn is_time_out(error: &std::io::Error) -> bool {
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}
