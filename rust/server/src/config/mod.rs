//! The configuration of a process: one typed struct, filled from layers by one table of keys.
//!
//! Layers, the last wins: defaults, file, environment, live values, command line. [`KEYS`] is the table; parsing, GET_BROKER_CONFIG,
//! docs/configuration.md and `rocketpy config` are made from it.

mod apache;
mod auth;
pub(crate) mod describe;
mod error;
mod exporter;
mod file;
mod key;
mod keys;
mod kind;
pub mod live;
mod live_place;
mod origin;
#[cfg(test)]
mod tests;
mod tls;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use apache::OLD_SPELLINGS;
pub use apache::{FIXED, Fixed, STORE_PATHS, StorePath};
pub use auth::{AuthConfig, FirstUsers, NamedSecret};
pub use error::ConfigError;
pub use exporter::{ExporterConfig, ExporterType};
pub use key::{Apache, Key, Section};
pub use keys::KEYS;
pub use kind::{Shape, Value};
pub use origin::Origin;
use rocketpy_broker::BrokerConfig;
use rocketpy_env::RealDisk;
use rocketpy_model::printable::beginning;
use rocketpy_namesrv::NameServerConfig;
pub use tls::TlsConfig;

/// Sources of the configuration, lowest priority first: defaults, file, environment, settings.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// TOML when it ends in `.toml`, else Apache's `broker.conf` properties.
    pub file: Option<PathBuf>,
    /// `ROCKETPY_*` variables; [`Sources::environment_of_process`] has those of the process.
    pub environment: Vec<(String, String)>,
    /// `KEY`, `VALUE` pairs of the command line; any key of Apache's configuration or ours.
    pub settings: Vec<(String, String)>,
}

/// What our variables start with.
const PREFIX: &str = "ROCKETPY_";
/// The variable in which Apache's broker looks for its name servers.
pub(crate) const NAME_SERVERS: &str = "NAMESRV_ADDR";
/// Size of a commit log file.
pub(crate) const LOG_FILE_BYTES: &str = "mappedFileSizeCommitLog";
/// Apache's default of [`LOG_FILE_BYTES`].
pub(crate) const APACHE_LOG_FILE_BYTES: u64 = 1 << 30;
/// Variables of ours that are not configuration keys: the log filter, switches of tests and benches, TLS and credentials of commands that are
/// clients.
const OTHER_VARIABLES: [&str; 10] = [
    "ROCKETPY_LOG",
    "ROCKETPY_TEST_",
    "ROCKETPY_BENCH_",
    "ROCKETPY_TLS_CA",
    "ROCKETPY_TLS_CERT",
    "ROCKETPY_TLS_KEY",
    "ROCKETPY_CREDENTIALS",
    "ROCKETPY_ACCESS_KEY",
    "ROCKETPY_SECRET_KEY",
    "ROCKETPY_SECURITY_TOKEN",
];
/// Switch of TLS for commands that are clients.
const TLS_OF_COMMANDS: &str = "ROCKETPY_TLS";

impl Sources {
    /// The variables of this process that name configuration keys: `NAMESRV_ADDR`, as Apache's broker takes it, and
    /// `ROCKETPY_*`, which win.
    pub fn environment_of_process() -> Vec<(String, String)> {
        let is_ours = |name: &str| {
            name.starts_with(PREFIX)
                && name != TLS_OF_COMMANDS
                && !OTHER_VARIABLES.iter().any(|other| name.starts_with(other))
        };
        let mut found: Vec<(String, String)> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .filter(|(name, _)| name == NAME_SERVERS || is_ours(name))
            .collect();
        found.sort_by_key(|(name, _)| name != NAME_SERVERS);
        found
    }
}

/// Configuration of one process: a name server, a broker or both.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Host or address that every part binds (`bindAddress`); default `127.0.0.1` (Apache: `0.0.0.0`).
    pub host: String,
    /// Port of the broker (`listenPort`); 0 selects a free one, `None` is 10911.
    pub port: Option<u16>,
    /// Port of the name server (`nameServerPort`); 0 selects a free one, `None` is 9876.
    pub name_server_port: Option<u16>,
    /// File for `{"pid", "name_server", "broker"}`, written once all ports accept connections (`readyFile`).
    pub ready_file: Option<PathBuf>,
    /// How the metrics of the broker leave the process.
    pub exporter: ExporterConfig,
    /// Certificates and keys of TLS; the start reads them.
    pub tls: TlsConfig,
    /// Users and policies; the start opens them.
    pub auth: AuthConfig,
    /// Whether the start makes certificates and users where they are missing (`secure`).
    pub is_secure: bool,
    /// Whether the start refuses to be open to other machines without TLS and users (`requireSecure`).
    pub requires_secure: bool,
    /// The broker; the start fills in `listen`, `describe` and, standalone, `name_servers`.
    pub broker: BrokerConfig,
    /// The name server; the start fills in `listen`.
    pub name_server: NameServerConfig,
    /// The layer of each key that was set.
    pub origins: BTreeMap<&'static str, Origin>,
    /// Ignored Apache keys of the configuration; reported in one warning at the start.
    pub ignored: Vec<&'static str>,
    /// Folders of the store that any layer named; paths of [`STORE_PATHS`] are in one of them.
    pub store_roots: Vec<PathBuf>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port: None,
            name_server_port: None,
            ready_file: None,
            exporter: ExporterConfig::default(),
            tls: TlsConfig::default(),
            auth: AuthConfig::default(),
            is_secure: false,
            requires_secure: false,
            broker: BrokerConfig::default(),
            name_server: NameServerConfig::default(),
            origins: BTreeMap::new(),
            ignored: Vec::new(),
            store_roots: Vec::new(),
        }
    }
}

impl ServerConfig {
    /// Defaults, then the layers of `sources` in order.
    ///
    /// # Errors
    /// Unknown keys, values out of range and keys that need an unsupported feature, all reported at once; or an unreadable file.
    pub fn load(sources: &Sources) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        let mut refused = Vec::new();
        let mut given: Vec<(String, String, Origin)> = Vec::new();
        if let Some(path) = &sources.file {
            let of_file = |(key, value)| (key, value, Origin::File(path.clone()));
            given.extend(file::read(path)?.into_iter().map(of_file));
            if !file::is_toml(path) {
                config.take_apache_defaults(path);
            }
        }
        for (name, value) in &sources.environment {
            let key = name.strip_prefix(PREFIX).unwrap_or(name);
            given.push((key.to_owned(), value.clone(), Origin::Environment(name.clone())));
        }
        let settings = sources.settings.iter().cloned();
        given.extend(settings.map(|(key, value)| (key, value, Origin::CommandLine)));
        // Paths in the store are compared with its folder, which a later line or layer may set.
        given.sort_by_key(|(key, ..)| matches!(find(key), Ok(Known::Path(_))));
        for (key, value, origin) in given {
            refused.extend(config.set_from(&key, &value, &origin).err());
        }
        if let Some(path) = config.tls.config_file.clone() {
            // As with Apache, its values win, and an empty one sets nothing.
            for (key, value) in file::read(&path)?.into_iter().filter(|(_, value)| !value.is_empty()) {
                refused.extend(config.set_from(&key, &value, &Origin::File(path.clone())).err());
            }
        }
        match refused.len() {
            0 => Ok(config),
            1 => Err(refused.remove(0)),
            _ => Err(ConfigError::Several(refused)),
        }
    }

    /// Takes what a broker.conf leaves to Apache's defaults, and what the files of a store depend on.
    fn take_apache_defaults(&mut self, path: &Path) {
        self.broker.store.commit_log_file_size = APACHE_LOG_FILE_BYTES;
        self.origins.insert(LOG_FILE_BYTES, Origin::ApacheDefault(path.to_owned()));
    }

    /// Sets one key by its Apache name or ours, as the command line's `--set KEY=VALUE` does.
    ///
    /// Case, underscores and dots do not matter: `brokerIP1`, `broker_ip1` and `BROKER_IP1` are one key, and so are
    /// `tlsServerMode` and `tls.server.mode`. Older spellings of Apache's are
    /// accepted too.
    ///
    /// # Errors
    /// As [`ServerConfig::load`].
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), ConfigError> {
        self.set_from(key, value, &Origin::CommandLine)
    }

    /// The layer that set a key of the table; [`Origin::Default`] when none did.
    pub fn origin(&self, key: &str) -> &Origin {
        self.origins.get(key).unwrap_or(&Origin::Default)
    }

    /// Configuration files with a secret that every user of the machine may read.
    pub fn open_files_with_secrets(&self) -> BTreeSet<&Path> {
        let secrets = KEYS.iter().filter(|key| key.shape().is_secret);
        let files = secrets.filter_map(|key| match self.origin(key.name) {
            Origin::File(path) => Some(path.as_path()),
            _ => None,
        });
        files.filter(|path| RealDisk.is_open_to_all(path).unwrap_or_default()).collect()
    }

    fn set_from(&mut self, key: &str, value: &str, origin: &Origin) -> Result<(), ConfigError> {
        match find(key).map_err(|near| ConfigError::UnknownKey {
            key: beginning(key).into_owned(),
            near,
            origin: origin.clone(),
        })? {
            Known::Used(known) => {
                let shown = || if known.shape().is_secret { auth::MASK.into() } else { beginning(value) };
                (known.set)(self, value.trim()).map_err(|wanted| ConfigError::Value {
                    key: known.name,
                    value: shown().into_owned(),
                    wanted,
                    origin: origin.clone(),
                })?;
                if known.name == "storePathRootDir" {
                    self.store_roots.push(self.broker.store.root.clone());
                }
                let names = KEYS.iter().filter(|other| other.name == known.name || other.is_alias_of(known));
                self.origins.extend(names.map(|key| (key.name, origin.clone())));
            }
            Known::Fixed(fixed) => check_fixed(fixed, value.trim(), origin)?,
            Known::Path(path) => self.check_path(path, value.trim(), origin)?,
            Known::Meaningless(name) if self.ignored.contains(&name) => {}
            Known::Meaningless(name) => self.ignored.push(name),
        }
        Ok(())
    }

    /// Accepts a path that is the place of its part in the folder of the store, or in one that a lower layer named.
    fn check_path(&self, path: &'static StorePath, value: &str, origin: &Origin) -> Result<(), ConfigError> {
        // As `check_fixed`.
        if value.is_empty() {
            return Ok(());
        }
        let given = Path::new(value);
        let root = &self.broker.store.root;
        if self.store_roots.iter().chain([root]).any(|root| root.join(path.place) == given) {
            return Ok(());
        }
        let of_place = given.parent().filter(|_| given.ends_with(path.place));
        Err(ConfigError::StorePath {
            key: path.name,
            value: beginning(value).into_owned(),
            place: root.join(path.place),
            root: of_place.map(Path::to_owned),
            origin: origin.clone(),
        })
    }
}

/// Checks that a command line may set a key: other users of the machine read it.
///
/// # Errors
/// The value of the key is a secret.
pub fn check_on_command_line(key: &str) -> Result<(), ConfigError> {
    match find(key) {
        // Headers of the exporter were there before.
        Ok(Known::Used(known)) if known.shape().is_secret && known.section != Section::Metrics => {
            Err(ConfigError::SecretOnCommandLine { key: known.name })
        }
        _ => Ok(()),
    }
}

/// The name of the environment variable of a key.
fn variable(key: &str) -> String {
    let mut name = PREFIX.to_owned();
    for c in key.chars() {
        if c.is_ascii_uppercase() {
            name.push('_');
        }
        name.push(c.to_ascii_uppercase());
    }
    name
}

/// The proper name of a key, found as [`ServerConfig::set`] finds it.
///
/// # Errors
/// [`ConfigError::UnknownKey`].
pub fn key_name(key: &str) -> Result<&'static str, ConfigError> {
    match find(key) {
        Ok(Known::Used(known)) => Ok(known.name),
        Ok(Known::Fixed(fixed)) => Ok(fixed.name),
        Ok(Known::Path(path)) => Ok(path.name),
        Ok(Known::Meaningless(name)) => Ok(name),
        Err(near) => Err(ConfigError::UnknownKey {
            key: beginning(key).into_owned(),
            near,
            origin: Origin::CommandLine,
        }),
    }
}

/// A name that the configuration knows.
enum Known {
    Used(&'static Key),
    Fixed(&'static Fixed),
    Path(&'static StorePath),
    Meaningless(&'static str),
}

/// Finds a key by any spelling; the names that look like it when there is none.
fn find(key: &str) -> Result<Known, Vec<&'static str>> {
    let wanted = folded(key);
    let current =
        OLD_SPELLINGS.iter().find(|(old, _)| folded(old) == wanted).map(|(_, current)| folded(current));
    let wanted = current.unwrap_or(wanted);
    let used = KEYS.iter().find(|known| folded(known.name) == wanted).map(Known::Used);
    let fixed = || FIXED.iter().find(|fixed| folded(fixed.name) == wanted).map(Known::Fixed);
    let path = || STORE_PATHS.iter().find(|path| folded(path.name) == wanted).map(Known::Path);
    let meaningless =
        || MEANINGLESS.iter().find(|name| folded(name) == wanted).map(|name| Known::Meaningless(name));
    used.or_else(fixed)
        .or_else(path)
        .or_else(meaningless)
        .ok_or_else(|| rocketpy_model::nearest(key, known_names()))
}

fn check_fixed(fixed: &'static Fixed, value: &str, origin: &Origin) -> Result<(), ConfigError> {
    // An empty value is what Apache's servers take for a key that is not set.
    if value.is_empty() || value.eq_ignore_ascii_case(fixed.only) {
        return Ok(());
    }
    Err(ConfigError::NotThereYet {
        key: fixed.name,
        value: beginning(value).into_owned(),
        only: fixed.only,
        feature: fixed.feature,
        origin: origin.clone(),
    })
}

fn known_names() -> impl Iterator<Item = &'static str> {
    let used = KEYS.iter().map(|key| key.name);
    let fixed = FIXED.iter().map(|fixed| fixed.name);
    let paths = STORE_PATHS.iter().map(|path| path.name);
    used.chain(fixed).chain(paths).chain(MEANINGLESS.iter().copied())
}

/// A key without what its spellings differ in.
fn folded(key: &str) -> String {
    key.chars().filter(|c| !matches!(c, '_' | '-' | '.')).flat_map(char::to_lowercase).collect()
}

/// Apache's keys that tune parts which do not exist here; one warning at start lists those that are set.
pub static MEANINGLESS: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let used = KEYS.iter().map(|key| key.name);
    let fixed = FIXED.iter().map(|fixed| fixed.name);
    let old = OLD_SPELLINGS.iter().map(|(old, _)| *old);
    let other: HashSet<String> = used.chain(fixed).chain(old).map(folded).collect();
    let of_apache = apache::TABLE.lines().skip(1).filter_map(|line| line.split('\t').next());
    let mut names: Vec<&str> = of_apache.filter(|name| !other.contains(&folded(name))).collect();
    names.extend(apache::KEYS_OF_GUIDES);
    names
});
