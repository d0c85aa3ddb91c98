//! Answers to GET_BROKER_CONFIG and GET_NAMESRV_CONFIG, and changes by requests.

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};

use rocketpy_broker::{
    BrokerConfig, ConfigChange, ConfigData, ConfigEntries, ConfigEntry, ConfigText, Endpoint, SettingError,
    TakesEffect,
};
use rocketpy_namesrv::NameServerConfig;

use super::apache::{FIXED, NAME_SERVER_KEYS, REMOTING_KEYS, TABLE};
use super::key::{Key, Section};
use super::keys::KEYS;
use super::kind::Value;
use super::live::LiveLayer;
use super::{Origin, ServerConfig, folded};

/// Apache's version whose keys are listed.
const LISTED_VERSION: &str = "5.5.0";

/// The configuration of a process, but for the broker's: that is as it is now.
#[derive(Debug)]
pub(crate) struct BrokerKeys {
    live: Arc<LiveLayer>,
    started: ServerConfig,
}

impl BrokerKeys {
    pub(crate) fn new(live: Arc<LiveLayer>, started: &ServerConfig) -> Self {
        Self { live, started: started.clone() }
    }

    fn with(&self, broker: &BrokerConfig) -> ServerConfig {
        ServerConfig { broker: broker.clone(), ..self.started.clone() }
    }
}

impl ConfigText for BrokerKeys {
    fn lines(&self, config: &BrokerConfig, endpoint: &Endpoint<'_>) -> Vec<(&'static str, String)> {
        properties(self.with(config), endpoint)
    }

    fn entries(&self, config: &BrokerConfig, endpoint: &Endpoint<'_>) -> ConfigEntries {
        let config = as_reached(self.with(config), endpoint);
        let mut keys: Vec<ConfigEntry> =
            of_broker().map(|key| entry(key, &config, &self.started, &self.live)).collect();
        for (entry, value) in keys.iter_mut().filter_map(|entry| {
            let value = of_role(&entry.key, endpoint.broker_id)?;
            Some((entry, value))
        }) {
            entry.value = data(value);
        }
        keys.extend(FIXED.iter().map(|fixed| unset_entry(fixed.name, fixed.only, true)));
        keys.extend(unused_of_broker(endpoint).map(|(name, value)| unset_entry(name, &value, false)));
        sorted(keys)
    }

    fn changed(&self, config: &BrokerConfig, change: &ConfigChange) -> Result<BrokerConfig, SettingError> {
        Ok(self.live.changed(self.with(config), change)?.broker)
    }

    fn keep(&self, change: &ConfigChange) -> Result<Option<String>, SettingError> {
        self.live.keep(change)
    }
}

/// The configuration of a process, but for the name server's: that is as it is now.
#[derive(Debug)]
pub(crate) struct NameServerKeys {
    live: Arc<LiveLayer>,
    started: ServerConfig,
}

impl NameServerKeys {
    pub(crate) fn new(live: Arc<LiveLayer>, started: &ServerConfig) -> Self {
        Self { live, started: started.clone() }
    }

    fn with(&self, name_server: &NameServerConfig, local_addr: SocketAddr) -> ServerConfig {
        let mut config = ServerConfig { name_server: name_server.clone(), ..self.started.clone() };
        config.host = local_addr.ip().to_string();
        (config.port, config.name_server_port) = (Some(local_addr.port()), Some(local_addr.port()));
        config
    }
}

impl rocketpy_namesrv::ConfigText for NameServerKeys {
    fn lines(&self, config: &NameServerConfig, local_addr: SocketAddr) -> Vec<(&'static str, String)> {
        let config = self.with(config, local_addr);
        let used = of_name_server().map(|key| (key.name, key.value(&config)));
        let used = used.filter(|(_, value)| *value != Value::Nothing);
        let used = used.map(|(name, value)| (name, value.to_string()));
        let fixed = fixed_of_name_server().map(|(name, only)| (name, only.to_owned()));
        let mut all: Vec<_> = used.chain(fixed).chain(unused_of_name_server()).collect();
        all.sort();
        all
    }

    fn entries(&self, config: &NameServerConfig, local_addr: SocketAddr) -> ConfigEntries {
        let config = self.with(config, local_addr);
        let used = of_name_server().map(|key| entry(key, &config, &self.started, &self.live));
        let fixed = fixed_of_name_server().map(|(name, only)| unset_entry(name, only, true));
        let unused = unused_of_name_server().map(|(name, value)| unset_entry(name, &value, false));
        sorted(used.chain(fixed).chain(unused).collect())
    }

    fn changed(
        &self,
        config: &NameServerConfig,
        change: &ConfigChange,
    ) -> Result<NameServerConfig, SettingError> {
        let running = ServerConfig { name_server: config.clone(), ..self.started.clone() };
        Ok(self.live.changed(running, change)?.name_server)
    }

    fn keep(&self, change: &ConfigChange) -> Result<Option<String>, SettingError> {
        self.live.keep(change)
    }
}

fn of_broker() -> impl Iterator<Item = &'static Key> {
    KEYS.iter().filter(|key| key.section != Section::NameServer)
}

/// The keys that a name server reads: its own, and those of its port.
fn of_name_server() -> impl Iterator<Item = &'static Key> {
    let is_read = |key: &&Key| {
        matches!(key.section, Section::NameServer | Section::Tls | Section::Auth)
            || REMOTING_KEYS.contains(&key.name)
            || ["maxConnections", "maxPeerBytes"].contains(&key.name)
    };
    KEYS.iter().filter(is_read)
}

fn fixed_of_name_server() -> impl Iterator<Item = (&'static str, &'static str)> {
    let of_name_server = FIXED.iter().filter(|fixed| NAME_SERVER_KEYS.contains(&fixed.name));
    of_name_server.map(|fixed| (fixed.name, fixed.only))
}

/// Apache's keys without a meaning here, with Apache's defaults. Those of its folders are empty.
static UNUSED: LazyLock<Vec<(&'static str, &'static str)>> = LazyLock::new(|| {
    let known: Vec<String> =
        KEYS.iter().map(|key| key.name).chain(FIXED.iter().map(|fixed| fixed.name)).map(folded).collect();
    let rows = TABLE.lines().skip(1).map(|line| line.split('\t').collect::<Vec<_>>());
    rows.filter_map(|row| {
        let [key, _, default, versions] = row[..] else { return None };
        let is_listed = versions.split(' ').any(|version| version == LISTED_VERSION);
        let is_unused = !known.contains(&folded(key));
        (is_listed && is_unused).then_some((key, if default.starts_with('/') { "" } else { default }))
    })
    .collect()
});

fn unused_of_broker<'a>(endpoint: &'a Endpoint<'_>) -> impl Iterator<Item = (&'static str, String)> + 'a {
    let shared = ["rocketmqHome", "configBlackList"];
    let of_broker =
        UNUSED.iter().filter(move |(name, _)| shared.contains(name) || !NAME_SERVER_KEYS.contains(name));
    of_broker.map(|(name, default)| match *name {
        // Of the machine on which the table was made.
        "brokerIP2" => (*name, endpoint.advertised_host.to_owned()),
        _ => (*name, (*default).to_owned()),
    })
}

fn unused_of_name_server() -> impl Iterator<Item = (&'static str, String)> {
    let is_read = |name: &str| NAME_SERVER_KEYS.contains(&name) || REMOTING_KEYS.contains(&name);
    UNUSED.iter().filter(move |(name, _)| is_read(name)).map(|(name, default)| (*name, (*default).to_owned()))
}

/// A used key with the layer of its value.
fn entry(key: &'static Key, running: &ServerConfig, started: &ServerConfig, live: &LiveLayer) -> ConfigEntry {
    let live_value = live.value(key);
    let below = live.base().origin(key.name);
    let is_in_force = live_value.is_some() && *below != Origin::CommandLine;
    let origin = match (key.is_changeable, is_in_force) {
        (true, true) => live.origin(),
        (true, false) => below.clone(),
        (false, _) => started.origin(key.name).clone(),
    };
    let takes_effect = match (live.allows(key), key.is_changeable) {
        (false, _) => TakesEffect::Never,
        (true, true) => TakesEffect::AtOnce,
        (true, false) => TakesEffect::AtRestart,
    };
    ConfigEntry {
        default_value: data(key.default_value()),
        is_used: true,
        key: key.name.to_owned(),
        live: live_value,
        origin: origin.layer().to_owned(),
        source: origin.source(),
        takes_effect,
        value: data(key.value(running)),
    }
}

/// A key that no layer sets.
fn unset_entry(name: &str, value: &str, is_used: bool) -> ConfigEntry {
    let value = match value {
        "" => None,
        "true" | "false" => Some(ConfigData::Switch(value == "true")),
        text => Some(text.parse().map_or_else(|_| ConfigData::Text(text.to_owned()), ConfigData::Number)),
    };
    let origin = Origin::Default.layer().to_owned();
    ConfigEntry {
        default_value: value.clone(),
        is_used,
        key: name.to_owned(),
        origin,
        value,
        ..ConfigEntry::default()
    }
}

fn data(value: Value) -> Option<ConfigData> {
    Some(match value {
        Value::Switch(value) => ConfigData::Switch(value),
        Value::Number(value) => ConfigData::Number(value),
        Value::Text(text) => ConfigData::Text(text),
        Value::List(texts, _) => ConfigData::List(texts),
        Value::Nothing => return None,
    })
}

fn sorted(mut keys: Vec<ConfigEntry>) -> ConfigEntries {
    keys.sort_by(|one, other| one.key.cmp(&other.key));
    ConfigEntries { keys }
}

/// Addresses and folders as they turned out at start.
fn as_reached(mut config: ServerConfig, endpoint: &Endpoint<'_>) -> ServerConfig {
    config.host = endpoint.listen_ip.to_string();
    config.port = Some(endpoint.port);
    config.broker.advertised_host = Some(endpoint.advertised_host.to_owned());
    let mut log_dirs = config.broker.store.commit_log_dirs().into_iter();
    config.broker.store.commit_log_dir = log_dirs.next();
    config.broker.store.more_commit_log_dirs = log_dirs.collect();
    config
}

/// Every key of the broker that has a value, and Apache's keys, sorted by name.
fn properties(config: ServerConfig, endpoint: &Endpoint<'_>) -> Vec<(&'static str, String)> {
    let config = as_reached(config, endpoint);
    let used = of_broker().map(|key| {
        let value = of_role(key.name, endpoint.broker_id);
        (key.name, value.unwrap_or_else(|| key.value(&config)))
    });
    let used = used.filter(|(_, value)| *value != Value::Nothing);
    let used = used.map(|(name, value)| (name, value.to_string()));
    let fixed = FIXED.iter().map(|fixed| (fixed.name, fixed.only.to_owned()));
    let mut all: Vec<_> = used.chain(fixed).chain(unused_of_broker(endpoint)).collect();
    all.sort();
    all
}

/// The value of a key that the role decides, as it is now.
fn of_role(name: &str, broker_id: u64) -> Option<Value> {
    match name {
        "brokerId" => Some(Value::Number(i64::try_from(broker_id).unwrap_or(i64::MAX))),
        "brokerRole" if broker_id != 0 => Some(Value::Text("SLAVE".to_owned())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use rocketpy_broker::StoreConfig;

    use super::*;

    /// The whole answer of a broker with the defaults on the folder `DIR`, before the table of keys answered it.
    const BEFORE: &str = include_str!("../../tests/golden/broker-config.properties");

    #[test]
    fn the_answer_to_get_broker_config_still_says_all_that_it_said() {
        let mut config = ServerConfig::default();
        config.broker.store = StoreConfig::new("DIR");
        let endpoint = Endpoint {
            listen_ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
            advertised_host: "broker.example",
            port: rocketpy_broker::DEFAULT_PORT,
            broker_id: 0,
        };
        let lines: Vec<String> = properties(config.clone(), &endpoint)
            .into_iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        let missing: Vec<&str> =
            BEFORE.lines().filter(|line| !lines.iter().any(|found| found == line)).collect();
        assert_eq!(missing, [""; 0]);
        assert!(BEFORE.lines().count() == 60, "{}", BEFORE.lines().count());
        assert!(
            lines.contains(&"maxTopics=100000".to_owned()) && lines.contains(&"aclEnable=false".to_owned())
        );
        assert!(!lines.iter().any(|line| line.starts_with("readyFile")), "it has no value");

        let slave = properties(config, &Endpoint { broker_id: 2, ..endpoint });
        for line in [("brokerId", "2".to_owned()), ("brokerRole", "SLAVE".to_owned())] {
            assert!(slave.contains(&line), "{line:?}");
        }
    }
}
