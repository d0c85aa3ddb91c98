//! The client instance.

use std::sync::Arc;

use tokio::runtime::Handle;

use crate::{config::ClientConfig, error::ClientError};

/// Connections, routes, heartbeats and group membership shared by producers, consumers and administration.
///
/// Clones share one instance. One instance has one client id: it may hold several producer groups and several consumer
/// groups, each once. Two members of one consumer group in one process are two clients.
#[derive(Clone)]
#[doc(alias = "MQClientInstance")]
pub struct Client {
    inner: Arc<()>,
}

impl Client {
    /// Makes a client. No connection is opened yet.
    ///
    /// # Errors
    /// [`ClientError::NoNameServer`].
    pub fn new(config: ClientConfig, runtime: Handle) -> Result<Self, ClientError> {
        unimplemented!("{config:?} {runtime:?}")
    }

    /// `<ip>@<instance name>`: what other members of a group and the brokers know this client by.
    pub fn client_id(&self) -> &str {
        unimplemented!("{:?}", self.inner)
    }

    /// The runtime that this client runs on.
    pub fn runtime(&self) -> &Handle {
        unimplemented!()
    }

    /// Refuses to work in a forked child, where neither the runtime's threads nor the sockets exist.
    ///
    /// # Errors
    /// [`ClientError::Forked`]. Cheap: call it at the start of every operation.
    pub fn check_process(&self) -> Result<(), ClientError> {
        unimplemented!()
    }

    /// Closes consumers and producers that are still open, unregisters and closes the connections. Idempotent.
    pub async fn close(&self) {
        unimplemented!()
    }
}
