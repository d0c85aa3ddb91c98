//! Start and stop of a name server, and its search for silent brokers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rocketpy_remoting::{MemoryBudget, RequestCheck, Server, ServerConfig};
use tokio::task::JoinHandle;
use tracing::info;

use crate::config::NameServerConfig;
use crate::error::NameServerError;
use crate::processor::Processor;

/// A running name server.
///
/// Dropping it stops it at once. [`shutdown`](Self::shutdown) first lets answers leave.
#[doc(alias = "NamesrvController")]
#[derive(Debug)]
pub struct NameServer {
    server: Arc<Server>,
    scanning: JoinHandle<()>,
    shutdown_deadline: Duration,
}

impl NameServer {
    /// Starts on the current tokio runtime. Returns when the address accepts connections.
    ///
    /// # Errors
    /// [`NameServerError::Listen`] when the address cannot be listened on; the others when the key-value configuration cannot be read.
    pub async fn start(config: NameServerConfig) -> Result<Self, NameServerError> {
        let memory = config.memory.clone().unwrap_or_else(|| MemoryBudget::new(config.max_peer_bytes));
        let remoting = ServerConfig {
            memory: Arc::clone(&memory),
            max_connections: config.max_connections,
            idle_timeout: config.idle_timeout,
            tls: config.tls.clone(),
            check: config.guard.clone().map(|guard| guard as Arc<dyn RequestCheck>),
            ..ServerConfig::new(config.listen)
        };
        let shutdown_deadline = config.shutdown_deadline;
        let processor = Arc::new(Processor::new(config, &memory)?);
        let server = Arc::new(Server::bind(remoting, Arc::clone(&processor) as _)?);
        processor.listens_on(server.local_addr());
        let scanning = tokio::spawn(scan(processor, Arc::clone(&server)));
        info!(local_addr = %server.local_addr(), "name server started");
        Ok(Self { server, scanning, shutdown_deadline })
    }

    /// The address that it listens on, with the real port.
    pub fn local_addr(&self) -> SocketAddr {
        self.server.local_addr()
    }

    /// Stops: lets answers leave, then closes the connections. All registrations are forgotten.
    pub async fn shutdown(&self) {
        self.scanning.abort();
        self.server.shutdown(self.shutdown_deadline).await;
        info!(local_addr = %self.local_addr(), "name server stopped");
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.scanning.abort();
    }
}

/// Removes brokers that fell silent, and closes their connections, until aborted.
async fn scan(processor: Arc<Processor>, server: Arc<Server>) {
    loop {
        processor.scan_is_due().await;
        let silent = processor.remove_silent_brokers(Instant::now());
        if !silent.is_empty() {
            server
                .connections()
                .iter()
                .filter(|connection| silent.contains(&connection.id()))
                .for_each(|it| it.close());
        }
    }
}
