//! What GET_BROKER_CONFIG answers, and what UPDATE_BROKER_CONFIG changes.

use rocketpy_broker::{BrokerConfig, ConfigText, Endpoint, SettingError};

use super::apache::FIXED;
use super::key::Section;
use super::keys::KEYS;
use super::kind::Value;
use super::{ConfigError, ServerConfig};

/// The configuration of the process, but for the broker's: that is as it is now.
#[derive(Debug)]
pub(crate) struct Keys(ServerConfig);

impl Keys {
    pub(crate) fn of(config: &ServerConfig) -> Self {
        Self(config.clone())
    }

    fn with(&self, broker: &BrokerConfig) -> ServerConfig {
        ServerConfig { broker: broker.clone(), ..self.0.clone() }
    }
}

impl ConfigText for Keys {
    fn lines(&self, config: &BrokerConfig, endpoint: &Endpoint<'_>) -> Vec<(&'static str, String)> {
        properties(self.with(config), endpoint)
    }

    fn changed(&self, config: &BrokerConfig, text: &str) -> Result<BrokerConfig, SettingError> {
        let changed = self.with(config).changed(text).map_err(|error| match error {
            ConfigError::Value { .. } | ConfigError::Text(_) => SettingError::Value(error.to_string()),
            _ => SettingError::Fixed(error.to_string()),
        })?;
        Ok(changed.broker)
    }
}

/// Every key of the broker that has a value, sorted by name; addresses and folders as they turned out at start.
fn properties(mut config: ServerConfig, endpoint: &Endpoint<'_>) -> Vec<(&'static str, String)> {
    config.host = endpoint.listen_ip.to_string();
    config.port = Some(endpoint.port);
    config.broker.advertised_host = Some(endpoint.advertised_host.to_owned());
    let mut log_dirs = config.broker.store.commit_log_dirs().into_iter();
    config.broker.store.commit_log_dir = log_dirs.next();
    config.broker.store.more_commit_log_dirs = log_dirs.collect();
    let used = KEYS.iter().filter(|key| key.section != Section::NameServer);
    let used = used.map(|key| (key.name, key.value(&config))).filter(|(_, value)| *value != Value::Nothing);
    let fixed = FIXED.iter().map(|fixed| (fixed.name, of_role(fixed.name, endpoint.broker_id, fixed.only)));
    let used = used.map(|(name, value)| (name, of_role(name, endpoint.broker_id, &value.to_string())));
    let mut all: Vec<_> = used.chain(fixed).collect();
    all.sort();
    all
}

/// The value of a key. What the role decides is as it is now.
fn of_role(name: &str, broker_id: u64, configured: &str) -> String {
    match name {
        "brokerId" => broker_id.to_string(),
        "brokerRole" if broker_id != 0 => "SLAVE".to_owned(),
        _ => configured.to_owned(),
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
