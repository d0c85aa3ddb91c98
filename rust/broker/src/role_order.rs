//! Role that a command, or another broker's log, orders for this broker.

use std::fmt;
use std::path::Path;

use rocketpy_model::{PhysicalOffset, system};
use serde::{Deserialize, Serialize};

use crate::config_file::ConfigFile;
use crate::{BrokerConfig, BrokerError, BrokerRole};

/// Name of the file in the `config` folder of the store. Apache has none of it.
pub(crate) const FILE: &str = "role.json";

/// Ordered role of a broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RoleOrder {
    /// Master or slave.
    pub role: BrokerRole,
    /// 0 for a master.
    pub broker_id: u64,
    /// Its log is cut here before it starts: what follows was acknowledged to nobody, and its master does not have it.
    #[serde(skip)]
    pub cut_at: Option<PhysicalOffset>,
}

impl fmt::Display for RoleOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.role {
            BrokerRole::AsyncMaster => "ASYNC_MASTER",
            BrokerRole::SyncMaster => "SYNC_MASTER",
            BrokerRole::Slave => return write!(f, "SLAVE {}", self.broker_id),
        })
    }
}

impl RoleOrder {
    /// What a configuration says.
    #[must_use]
    pub fn of(config: &BrokerConfig) -> Self {
        Self { role: config.replication.role, broker_id: config.broker_id, cut_at: None }
    }

    /// Whether the broker id is one of the role: another one would keep the broker from its next start.
    pub(crate) fn has_id_of_role(self) -> bool {
        (self.role == BrokerRole::Slave) == (self.broker_id != system::MASTER_ID)
    }

    /// Puts it into a configuration. A master has a port for slaves, also where a slave's configuration names none.
    pub(crate) fn apply(self, config: &mut BrokerConfig) {
        (config.replication.role, config.broker_id) = (self.role, self.broker_id);
        config.replication.is_promoted = self.role != BrokerRole::Slave;
    }

    /// Keeps it for the next starts on this store whose configuration says `instead_of`.
    ///
    /// # Durability
    /// On return it survives a power loss.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn keep(self, store_root: &Path, instead_of: Self) -> Result<(), BrokerError> {
        Ok(ConfigFile::new(store_root, FILE).save(&Kept { role: self, instead_of })?)
    }
}

/// Content of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Kept {
    pub(crate) role: RoleOrder,
    pub(crate) instead_of: RoleOrder,
}
