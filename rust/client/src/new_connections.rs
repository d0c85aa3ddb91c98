//! Connections that were opened since the last heartbeat.

use std::collections::HashSet;
use std::net::SocketAddr;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The peers that were connected to and do not know this client yet.
#[derive(Debug, Default)]
pub(crate) struct NewConnections {
    peers: Mutex<HashSet<SocketAddr>>,
    greet: Notify,
}

impl NewConnections {
    /// Notes a new connection: if the peer is a broker, it needs a heartbeat.
    pub(crate) fn connected(&self, peer: SocketAddr) {
        self.peers.lock().insert(peer);
        self.greet.notify_one();
    }

    /// A new route may show that a peer, connected to before, is a broker.
    pub(crate) fn route_learned(&self) {
        if !self.peers.lock().is_empty() {
            self.greet.notify_one();
        }
    }

    /// Waits until there is a reason to greet.
    pub(crate) async fn wait(&self) {
        self.greet.notified().await;
    }

    /// Takes the peers that were not greeted yet.
    pub(crate) fn take(&self) -> HashSet<SocketAddr> {
        std::mem::take(&mut self.peers.lock())
    }
}
