use std::path::PathBuf;

use rocketpy_broker::BrokerConfig;

/// Where configuration comes from; later layers win: defaults, file, environment, settings.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// TOML, or Apache's `broker.conf` properties, by its ending (`.toml`) or content.
    pub file: Option<PathBuf>,
    /// `ROCKETPY_*` variables; [`Sources::from_environment`] takes those of the process.
    pub environment: Vec<(String, String)>,
    /// `KEY`, `VALUE` pairs of the command line; any key of Apache's configuration or ours.
    pub settings: Vec<(String, String)>,
}

/// Configuration of one process: a name server, a broker or both.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Host or address that both parts bind (`bindAddress`), default `127.0.0.1`.
    pub host: String,
    /// Port of the broker (`listenPort`), default 10911; 0 takes a free one.
    pub port: u16,
    /// Port of the name server (`nameServerPort`), default 9876; 0 takes a free one.
    pub name_server_port: u16,
    /// Where `{"pid", "name_server", "broker"}` is written once both accept (`readyFile`).
    pub ready_file: Option<PathBuf>,
    /// Everything about the broker; its `listen` and, standalone, its `name_servers` are filled at start.
    pub broker: BrokerConfig,
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// No such key.
    #[error("unknown configuration key {key:?} in {origin}; did you mean {nearest:?}")]
    UnknownKey {
        /// The key as written.
        key: String,
        /// The known key that looks most like it.
        nearest: String,
        /// The layer it came from.
        origin: String,
    },
}

impl ServerConfig {
    /// Defaults, then the layers of `sources` in order.
    ///
    /// # Errors
    /// An unknown key, a value out of range, a file that cannot be read, a key that asks for what is not there yet.
    pub fn load(_sources: &Sources) -> Result<ServerConfig, ConfigError> {
        Err(ConfigError::UnknownKey { key: String::new(), nearest: String::new(), origin: String::new() })
    }

    /// Sets one key by its Apache name or ours, as the command line's `--set KEY=VALUE` does.
    ///
    /// # Errors
    /// As [`ServerConfig::load`].
    pub fn set(&mut self, _key: &str, _value: &str) -> Result<(), ConfigError> {
        Ok(())
    }
}
