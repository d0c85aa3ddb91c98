//! A second broker of one name and id.

use std::time::{Duration, Instant};

use tracing::warn;

use super::{BrokerAddr, Registration, Tables};

/// A broker that registered within this time is alive: twice the default of `registerNameServerPeriod`.
pub(super) const ALIVE: Duration = Duration::from_secs(60);

/// Refuses the name of a broker that is there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "broker {name} with id {id} is already registered from {live}, refused: {addr}; set another brokerId or brokerName for one of them"
)]
pub(crate) struct NameTaken {
    pub(crate) name: String,
    pub(crate) id: u64,
    pub(crate) live: String,
    pub(crate) addr: String,
}

impl Tables {
    /// Refuses a second broker of a name and id while the first is alive. Apache's name server takes both in turns, and messages split
    /// between them. A broker that restarts elsewhere has closed its former connection, which ended its entry; one whose machine died
    /// leaves it open, and is taken for gone after [`ALIVE`]. A later state is that of a promoted slave.
    ///
    /// # Source
    /// docs/decisions/one-broker-of-a-name.md.
    pub(super) fn check_name(&self, new: &Registration, now: Instant) -> Result<(), NameTaken> {
        let Some(group) = self.brokers.get(&new.name) else { return Ok(()) };
        let Some(addr) = group.addrs.get(&new.id).filter(|addr| **addr != new.broker.addr) else {
            return Ok(());
        };
        let old = BrokerAddr { cluster: group.cluster.clone(), addr: addr.clone() };
        let Some(live) = self.live.get(&old).filter(|live| live.connection_id != new.connection_id) else {
            return Ok(());
        };
        let (name, id, live_addr, addr) = (&new.name, new.id, &old.addr, &new.broker.addr);
        if now.saturating_duration_since(live.seen_at) < ALIVE
            && live.data_version.state_version == new.data_version.state_version
        {
            return Err(NameTaken { name: name.clone(), id, live: live_addr.clone(), addr: addr.clone() });
        }
        warn!(name, id, former = live_addr, addr, "broker address replaced without an unregistration");
        Ok(())
    }
}
