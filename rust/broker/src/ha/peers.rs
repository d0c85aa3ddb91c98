//! Knowledge of a broker about the other brokers of its name.

use std::sync::Arc;

use parking_lot::Mutex;
use rocketpy_env::RealDisk;

use super::past::Past;
use super::slaves::Slaves;
use crate::slave::{MasterAddress, SecretOfMaster};

/// The other brokers of this one's name: slaves, a master, and what is known of the past of the log that they share.
#[derive(Debug, Clone)]
pub(crate) struct Peers {
    slaves: Arc<Slaves>,
    past: Option<Arc<Past<RealDisk>>>,
    master: Arc<MasterAddress>,
    not_followed: Arc<Mutex<Option<String>>>,
}

impl Peers {
    pub(crate) fn new(slaves: Arc<Slaves>, past: Option<Arc<Past<RealDisk>>>) -> Self {
        Self { slaves, past, master: Arc::default(), not_followed: Arc::default() }
    }

    /// The slaves that are connected; none unless this is a master that has a port for them.
    pub(crate) fn slaves(&self) -> &Arc<Slaves> {
        &self.slaves
    }

    /// What is known of the past of the log; `None` for a broker that never was a master with slaves, or a slave.
    pub(crate) fn past(&self) -> Option<&Arc<Past<RealDisk>>> {
        self.past.as_ref()
    }

    /// The secret that the master has to prove, if there is one.
    pub(crate) fn secret_of_master(&self) -> Option<Arc<dyn SecretOfMaster>> {
        let past = self.past.clone().filter(|past| past.has_secret())?;
        Some(past)
    }

    /// Where the master is, of a slave.
    pub(crate) fn master(&self) -> &Arc<MasterAddress> {
        &self.master
    }

    /// Why a slave does not follow its master, though it reaches it; or why a master is not the only one.
    pub(crate) fn not_followed(&self) -> &Arc<Mutex<Option<String>>> {
        &self.not_followed
    }
}

impl SecretOfMaster for Past<RealDisk> {
    fn is_proved(&self, parts: &[&[u8]], proof: Option<&str>) -> bool {
        Self::is_proved(self, parts, proof)
    }
}
