//! The settings of a name server.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rocketpy_auth::Guard;
use rocketpy_protocol::settings::{ConfigChange, ConfigEntries, SettingError};
use rocketpy_remoting::{MemoryBudget, ServerTls};

/// The port of a name server, as with Apache.
pub const DEFAULT_PORT: u16 = rocketpy_model::port::NAME_SERVER;

/// The settings as text by key, in the words of the process that read them.
pub trait ConfigText: fmt::Debug + Send + Sync {
    /// Keys and values of a name server that listens there.
    fn lines(&self, config: &NameServerConfig, local_addr: SocketAddr) -> Vec<(&'static str, String)>;

    /// The keys of [`ConfigText::lines`] with type and layer of each value.
    fn entries(&self, config: &NameServerConfig, local_addr: SocketAddr) -> ConfigEntries;

    /// The settings with a change of live values. Nothing is saved.
    ///
    /// # Errors
    /// A part of the change is not allowed; then none of it is.
    fn changed(
        &self,
        config: &NameServerConfig,
        change: &ConfigChange,
    ) -> Result<NameServerConfig, SettingError>;

    /// Saves an allowed change. Returns a note for the operator.
    ///
    /// # Errors
    /// [`SettingError::NotKept`].
    fn keep(&self, change: &ConfigChange) -> Result<Option<String>, SettingError>;
}

/// The text of a name server that was started without one: no key can change.
#[derive(Debug)]
struct NoText;

impl ConfigText for NoText {
    fn lines(&self, config: &NameServerConfig, local_addr: SocketAddr) -> Vec<(&'static str, String)> {
        let path = config.kv_config_path.iter().map(|path| ("kvConfigPath", path.display().to_string()));
        let lines = [
            ("bindAddress", local_addr.ip().to_string()),
            ("listenPort", local_addr.port().to_string()),
            ("orderMessageEnable", config.order_message_enabled.to_string()),
            ("scanNotActiveBrokerInterval", config.scan_interval.as_millis().to_string()),
            ("serverChannelMaxIdleTimeSeconds", config.idle_timeout.as_secs().to_string()),
        ];
        lines.into_iter().chain(path).collect()
    }

    fn entries(&self, _config: &NameServerConfig, _local_addr: SocketAddr) -> ConfigEntries {
        ConfigEntries::default()
    }

    fn changed(
        &self,
        _config: &NameServerConfig,
        _change: &ConfigChange,
    ) -> Result<NameServerConfig, SettingError> {
        Err(SettingError::Fixed("this name server was started without keys".to_owned()))
    }

    fn keep(&self, _change: &ConfigChange) -> Result<Option<String>, SettingError> {
        Ok(None)
    }
}

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
    /// Checks every request; `None`: users are off.
    pub guard: Option<Arc<Guard>>,
    /// Timeout of the stop for answers that are being written. Default 200 ms.
    pub shutdown_deadline: Duration,
    /// Writes the answer to GET_NAMESRV_CONFIG, and makes the changes of UPDATE_NAMESRV_CONFIG; default: no key can change.
    pub text: Arc<dyn ConfigText>,
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
            guard: None,
            shutdown_deadline: Duration::from_millis(200),
            text: Arc::new(NoText),
        }
    }
}

impl Default for NameServerConfig {
    fn default() -> Self {
        Self::new(SocketAddr::from((Ipv4Addr::LOCALHOST, DEFAULT_PORT)))
    }
}
