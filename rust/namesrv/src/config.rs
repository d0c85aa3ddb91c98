//! The settings of a name server.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rocketpy_remoting::{MemoryBudget, ServerTls};

/// The port of a name server, as with Apache.
pub const DEFAULT_PORT: u16 = rocketpy_model::port::NAME_SERVER;

/// The settings of a [`NameServer`](crate::NameServer).
#[derive(Debug, Clone)]
#[doc(alias = "NamesrvConfig")]
pub struct NameServerConfig {
    /// Address to listen on; port 0 selects a free one. Default 127.0.0.1:9876.
    #[doc(alias = "listenPort")]
    pub listen: SocketAddr,
    /// Interval between checks for brokers that timed out. Default 5 s.
    #[doc(alias = "scanNotActiveBrokerInterval")]
    pub scan_interval: Duration,
    /// Whether routes contain the order configuration of KV namespace `ORDER_TOPIC_CONFIG`. Default no.
    #[doc(alias = "orderMessageEnable")]
    pub order_message_enabled: bool,
    /// File of the key-value configuration; its folder is created with the first entry. Default none: memory only.
    #[doc(alias = "kvConfigPath")]
    pub kv_config_path: Option<PathBuf>,
    /// Maximum number of open connections. Default 10,000.
    pub max_connections: usize,
    /// Idle time after which a connection is closed and its brokers are unregistered. Default 120 s.
    #[doc(alias = "serverChannelMaxIdleTimeSeconds")]
    pub idle_timeout: Duration,
    /// Maximum memory that all connections together may make the name server hold. Default 512 MiB.
    pub max_peer_bytes: usize,
    /// Memory budget shared by the parts of a process; `None`: a separate budget of `max_peer_bytes`.
    pub memory: Option<Arc<MemoryBudget>>,
    /// TLS of the port; `None`: connections are plain.
    pub tls: Option<Arc<ServerTls>>,
    /// Timeout of the stop for answers that are being written. Default 200 ms.
    pub shutdown_deadline: Duration,
}

impl NameServerConfig {
    /// The defaults, listening on `listen`.
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            scan_interval: Duration::from_secs(5),
            order_message_enabled: false,
            kv_config_path: None,
            max_connections: 10_000,
            idle_timeout: Duration::from_secs(120),
            max_peer_bytes: MemoryBudget::DEFAULT_BYTES,
            memory: None,
            tls: None,
            shutdown_deadline: Duration::from_millis(200),
        }
    }
}

impl NameServerConfig {
    /// The settings under Apache's names, as `key=value` lines, with the address that was bound.
    pub(crate) fn to_properties(&self, local_addr: SocketAddr) -> String {
        let path = self.kv_config_path.iter().map(|path| format!("kvConfigPath={}\n", path.display()));
        let lines = [
            format!("bindAddress={}", local_addr.ip()),
            format!("listenPort={}", local_addr.port()),
            format!("orderMessageEnable={}", self.order_message_enabled),
            format!("scanNotActiveBrokerInterval={}", self.scan_interval.as_millis()),
            format!("serverChannelMaxIdleTimeSeconds={}", self.idle_timeout.as_secs()),
        ];
        lines.into_iter().map(|line| line + "\n").chain(path).collect()
    }
}

impl Default for NameServerConfig {
    fn default() -> Self {
        Self::new(SocketAddr::from((Ipv4Addr::LOCALHOST, DEFAULT_PORT)))
    }
}
