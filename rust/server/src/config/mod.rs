//! One typed struct per process; layers, last wins: defaults, file, environment, command line.

mod apache;
mod error;
mod file;
mod keys;
mod nearest;
mod value;

use std::path::PathBuf;

pub use error::ConfigError;
use rocketpy_broker::BrokerConfig;
use rocketpy_namesrv::NameServerConfig;

/// Where configuration comes from; later layers win: defaults, file, environment, settings.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// TOML when it ends in `.toml`, else Apache's `broker.conf` properties.
    pub file: Option<PathBuf>,
    /// `ROCKETPY_*` variables; [`Sources::environment_of_process`] has those of the process.
    pub environment: Vec<(String, String)>,
    /// `KEY`, `VALUE` pairs of the command line; any key of Apache's configuration or ours.
    pub settings: Vec<(String, String)>,
}

/// Starts the variables of ours.
const PREFIX: &str = "ROCKETPY_";
/// The variable in which Apache's broker looks for its name servers.
const NAME_SERVERS: &str = "NAMESRV_ADDR";
/// Variables of ours that are not configuration keys: the log filter, and switches of tests and benches.
const OTHER_VARIABLES: [&str; 3] = ["ROCKETPY_LOG", "ROCKETPY_TEST_", "ROCKETPY_BENCH_"];

impl Sources {
    /// The variables of this process that name configuration keys: `NAMESRV_ADDR`, as Apache's broker takes it, and
    /// `ROCKETPY_*`, which win.
    pub fn environment_of_process() -> Vec<(String, String)> {
        let is_ours = |name: &str| {
            name.starts_with(PREFIX) && !OTHER_VARIABLES.iter().any(|other| name.starts_with(other))
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
    /// Port of the broker (`listenPort`); 0 takes a free one, `None` is 10911.
    pub port: Option<u16>,
    /// Port of the name server (`nameServerPort`); 0 takes a free one, `None` is 9876.
    pub name_server_port: Option<u16>,
    /// Where `{"pid", "name_server", "broker"}` is written once all parts accept (`readyFile`).
    pub ready_file: Option<PathBuf>,
    /// Everything about the broker; its `listen` and, standalone, its `name_servers` are filled at start.
    pub broker: BrokerConfig,
    /// About the name server; its `listen` is filled at start.
    pub name_server: NameServerConfig,
    /// Whether `mappedFileSizeCommitLog` was given: without it, a store that has log files keeps their size.
    pub is_log_file_size_given: bool,
    /// Apache keys that were given and have no meaning here; reported in one warning at start.
    pub ignored: Vec<&'static str>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port: None,
            name_server_port: None,
            ready_file: None,
            broker: BrokerConfig::default(),
            name_server: NameServerConfig::default(),
            is_log_file_size_given: false,
            ignored: Vec::new(),
        }
    }
}

impl ServerConfig {
    /// Defaults, then the layers of `sources` in order.
    ///
    /// # Errors
    /// An unknown key, a value out of range, a file that cannot be read, a key that asks for what is not there yet.
    pub fn load(sources: &Sources) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        if let Some(path) = &sources.file {
            let origin = path.display().to_string();
            for (key, value) in file::read(path)? {
                config.set_from(&key, &value, &origin)?;
            }
        }
        for (name, value) in &sources.environment {
            let key = name.strip_prefix(PREFIX).unwrap_or(name);
            config.set_from(key, value, &format!("environment variable {name}"))?;
        }
        for (key, value) in &sources.settings {
            config.set(key, value)?;
        }
        Ok(config)
    }

    /// Sets one key by its Apache name or ours, as the command line's `--set KEY=VALUE` does.
    ///
    /// Case and underscores do not matter: `brokerIP1`, `broker_ip1` and `BROKER_IP1` are one key.
    ///
    /// # Errors
    /// As [`ServerConfig::load`].
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), ConfigError> {
        self.set_from(key, value, "the command line")
    }

    fn set_from(&mut self, key: &str, value: &str, origin: &str) -> Result<(), ConfigError> {
        let wanted = folded(key);
        if let Some(known) = keys::KEYS.iter().find(|known| folded(known.name) == wanted) {
            return (known.set)(self, value.trim()).map_err(|wanted| ConfigError::Value {
                key: known.name,
                value: value.to_owned(),
                wanted,
                origin: origin.to_owned(),
            });
        }
        if let Some(fixed) = apache::FIXED.iter().find(|fixed| folded(fixed.name) == wanted) {
            return fixed_value(fixed, value.trim(), origin);
        }
        if let Some(name) = apache::MEANINGLESS.iter().find(|name| folded(name) == wanted) {
            if !self.ignored.contains(name) {
                self.ignored.push(name);
            }
            return Ok(());
        }
        Err(ConfigError::UnknownKey {
            key: key.to_owned(),
            near: nearest::nearest(key, known_names()),
            origin: origin.to_owned(),
        })
    }
}

fn fixed_value(fixed: &'static apache::Fixed, value: &str, origin: &str) -> Result<(), ConfigError> {
    if value.eq_ignore_ascii_case(fixed.only) {
        return Ok(());
    }
    Err(ConfigError::NotThereYet {
        key: fixed.name,
        value: value.to_owned(),
        only: fixed.only,
        feature: fixed.feature,
        origin: origin.to_owned(),
    })
}

fn known_names() -> impl Iterator<Item = &'static str> {
    let used = keys::KEYS.iter().map(|key| key.name);
    let fixed = apache::FIXED.iter().map(|fixed| fixed.name);
    used.chain(fixed).chain(apache::MEANINGLESS.iter().copied())
}

/// A key without what its spellings differ in.
fn folded(key: &str) -> String {
    key.chars().filter(|c| !matches!(c, '_' | '-')).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::time::Duration;

    use rocketpy_env::{Disk, RealDisk};

    use super::*;

    #[test]
    fn no_two_keys_fold_to_the_same_spelling() {
        let mut seen = HashSet::new();
        for name in known_names() {
            assert!(seen.insert(folded(name)), "{name}");
        }
        assert!(seen.len() > 490, "the list of Apache's keys is there");
    }

    #[test]
    fn layers_win_in_order_and_spellings_are_one_key() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("broker.conf");
        RealDisk.replace(&file, b"brokerName=from-file\nlistenPort=1\nregionId=r1\n").unwrap();
        let config = ServerConfig::load(&Sources {
            file: Some(file),
            environment: vec![
                ("ROCKETPY_LISTEN_PORT".to_owned(), "2".to_owned()),
                ("ROCKETPY_BROKER_NAME".to_owned(), "from-environment".to_owned()),
            ],
            settings: vec![("brokerName".to_owned(), "from-command-line".to_owned())],
        })
        .unwrap();
        assert_eq!(config.broker.region_id, "r1");
        assert_eq!(config.port, Some(2));
        assert_eq!(config.broker.broker_name, "from-command-line");
    }

    #[test]
    fn one_key_bounds_the_connections_of_every_port() {
        let mut config = ServerConfig::default();
        let of = |config: &ServerConfig| (config.broker.max_connections, config.name_server.max_connections);
        assert_eq!(of(&config), (65_536, 10_000), "as docs/operations.md says");
        config.set("maxConnections", "77").unwrap();
        assert_eq!(of(&config), (77, 77));
    }

    #[test]
    fn an_unknown_key_names_the_nearest() {
        let error = ServerConfig::default().set("flushDiskTyp", "SYNC_FLUSH").unwrap_err();
        assert_eq!(error.hint().unwrap(), "write flushDiskType, or leave the key out");
        let error = ServerConfig::default().set("foo", "1").unwrap_err();
        assert!(error.to_string().ends_with("the command line: foo"), "{error}");
        assert!(error.hint().unwrap().contains("docs/operations.md"), "nothing looks like it");
    }

    #[test]
    fn what_is_not_there_yet_is_refused_and_what_means_nothing_is_listed() {
        let mut config = ServerConfig::default();
        let error = config.set("aclEnable", "true").unwrap_err();
        assert!(error.to_string().contains("access control"), "{error}");
        config.set("aclEnable", "false").unwrap();
        config.set("brokerRole", "ASYNC_MASTER").unwrap();
        assert!(config.set("brokerRole", "SLAVE").is_err());
        config.set("redeleteHangedFileInterval", "04").unwrap();
        config.set("redeleteHangedFileInterval", "05").unwrap();
        assert_eq!(config.ignored, ["redeleteHangedFileInterval"]);
    }

    #[test]
    fn keys_of_retention_have_the_units_of_apache() {
        let mut config = ServerConfig::default();
        for (key, value) in [
            ("storePathCommitLog", "/a/log, /b/log"),
            ("readOnlyCommitLogStorePaths", "/c/log"),
            ("fileReservedTime", "48"),
            ("deleteWhen", "03;15"),
            ("diskMaxUsedSpaceRatio", "70"),
            ("diskSpaceCleanForciblyRatio", "80"),
            ("diskSpaceWarningLevelRatio", "88"),
            ("cleanFileForciblyEnable", "false"),
            ("cleanResourceInterval", "5000"),
            ("deleteFileBatchMax", "3"),
            ("deleteCommitLogFilesInterval", "50"),
            ("deleteConsumeQueueFilesInterval", "0"),
            ("retentionMaxBytes", "1000000000000"),
        ] {
            config.set(key, value).unwrap();
        }
        let store = &config.broker.store;
        let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(store.commit_log_dirs(), paths(&["/a/log", "/b/log", "/c/log"]));
        assert_eq!(store.writable_commit_log_dirs(), paths(&["/a/log", "/b/log"]));
        let millis = Duration::from_millis;
        let expected = rocketpy_broker::RetentionConfig {
            reserved_time: Duration::from_secs(48 * 3600),
            delete_hours: rocketpy_broker::DeleteHours::of(&[3, 15]),
            max_used_percent: 70,
            force_used_percent: 80,
            refuse_used_percent: 88,
            clean_forcibly: false,
            max_bytes: Some(1_000_000_000_000),
            files_a_round: 3,
            log_file_pause: millis(50),
            queue_file_pause: millis(0),
            interval: millis(5000),
            first_after: Duration::from_secs(60),
        };
        assert_eq!(store.retention, expected);
        config.set("retentionMaxBytes", "0").unwrap();
        config.set("readOnlyCommitLogStorePaths", "").unwrap();
        assert_eq!(config.broker.store.retention.max_bytes, None);
        assert_eq!(config.broker.store.read_only_commit_log_dirs, paths(&[]));
    }

    #[test]
    fn keys_of_flush_reach_the_store() {
        let mut config = ServerConfig::default();
        for (key, value) in [
            ("flushCommitLogLeastPages", "4"),
            ("flushCommitLogThoroughInterval", "20000"),
            ("flushIntervalCommitLog", "100"),
            ("flushIntervalConsumeQueue", "2000"),
            ("osPageCacheBusyTimeOutMills", "3000"),
        ] {
            config.set(key, value).unwrap();
        }
        let store = &config.broker.store;
        assert_eq!((store.flush_least_pages, store.flush_thorough_interval.as_secs()), (4, 20));
        assert_eq!((store.flush_interval.as_millis(), store.checkpoint_interval.as_secs()), (100, 2));
        assert_eq!(store.busy_timeout.as_secs(), 3);
        assert!(config.set("autoMessageVersionOnTopicLen", "false").is_err());
        assert!(config.ignored.is_empty());
    }

    #[test]
    fn a_bad_value_says_what_is_wanted() {
        let mut config = ServerConfig::default();
        for (key, value, wanted) in [
            ("listenPort", "x", "port"),
            ("flushDiskType", "sometimes", "SYNC_FLUSH"),
            ("brokerName", "a/b", "name"),
            ("namesrvAddr", "localhost", "by a semicolon, not \"localhost\""),
            ("mappedFileSizeCommitLog", "4096", "16384"),
            ("mappedFileSizeCommitLog", "2147483648", "2147483647"),
            ("brokerPermission", "3", "read"),
            ("syncFlushTimeout", "-1", "milliseconds"),
            ("osPageCacheBusyTimeOutMills", "0", "milliseconds"),
            ("brokerIP1", "10.0.0.1:10911", "without a port"),
            ("deleteWhen", "24", "23"),
            ("fileReservedTime", "-1", "hours"),
            ("diskMaxUsedSpaceRatio", "101", "100"),
            ("storePathCommitLog", " , ", "commas"),
        ] {
            let error = config.set(key, value).unwrap_err().to_string();
            assert!(error.contains(wanted) && error.contains(key), "{error}");
        }
    }
}
