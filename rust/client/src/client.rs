//! The client.

use std::fmt;
use std::sync::Arc;

use tokio::runtime::Handle;

use crate::config::ClientConfig;
use crate::error::ClientError;
use crate::instance::Instance;

/// Connections, routes, heartbeats and group membership shared by producers, consumers and administration.
///
/// Clones share one instance. One instance has one client id: it may hold several producer groups and several consumer
/// groups, each once. Two members of one consumer group in one process are two clients.
#[derive(Clone)]
#[doc(alias = "MQClientInstance")]
pub struct Client {
    instance: Arc<Instance>,
}

impl Client {
    /// Makes a client whose tasks run on `runtime`. No connection is opened yet.
    ///
    /// # Errors
    /// [`ClientError::NoNameServer`], [`ClientError::InvalidAddress`].
    pub fn new(config: ClientConfig, runtime: Handle) -> Result<Self, ClientError> {
        Ok(Self { instance: Instance::start(config, runtime)? })
    }

    /// `<ip>@<instance name>`: what other members of a group and the brokers know this client by.
    pub fn client_id(&self) -> &str {
        &self.instance.client_id
    }

    /// The runtime that this client runs on.
    pub fn runtime(&self) -> &Handle {
        &self.instance.runtime
    }

    /// Refuses to work in a forked child, where neither the runtime's threads nor the connections are the child's.
    ///
    /// Cheap; every operation does it. A binding calls it before it touches the runtime: in the child nothing would ever answer.
    ///
    /// # Errors
    /// [`ClientError::Forked`].
    pub fn check_process(&self) -> Result<(), ClientError> {
        self.instance.check_process()
    }

    /// Stops the consumers, unregisters all groups and closes the connections. Idempotent.
    pub async fn close(&self) {
        if self.check_process().is_ok() {
            self.instance.close().await;
        }
    }

    pub(crate) fn instance(&self) -> &Arc<Instance> {
        &self.instance
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("client_id", &self.client_id()).finish_non_exhaustive()
    }
}
