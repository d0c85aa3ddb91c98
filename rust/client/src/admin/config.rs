//! The settings of brokers and name servers: Java properties on the wire, or JSON with layers.

use std::collections::BTreeMap;
use std::fmt::Write;

use rocketpy_protocol::Command;
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::header::GetConfigHeader;
use rocketpy_protocol::settings::{ConfigChange, ConfigData, ConfigEntries, ConfigEntry, TakesEffect};

use super::Admin;
use crate::error::{CONFIGURATION_CHANGE, ClientError};
use crate::{outcome, wire};

const QUERY: &str = "configuration query";

impl Admin {
    /// The settings of a broker, by Apache's names, as text.
    ///
    /// # Errors
    /// Those of reaching the broker.
    #[doc(alias = "getBrokerConfig")]
    pub async fn broker_config(&self, broker: &str) -> Result<BTreeMap<String, String>, ClientError> {
        let address = &self.address_of(broker, false).await?;
        let answer = self.client.api().call_ok(address, QUERY, wire::broker_config()).await?;
        Ok(pairs(&String::from_utf8_lossy(&answer.body)))
    }

    /// Changes settings of a broker while it runs.
    ///
    /// RocketPy's brokers keep them as live values, and refuse all of them where one is unknown or may not change. Apache's
    /// write them to their file, and ignore unknown keys.
    ///
    /// # Errors
    /// [`ClientError::Refused`]; those of reaching the broker. A change may be made again.
    #[doc(alias = "updateBrokerConfig")]
    pub async fn update_broker_config(
        &self,
        broker: &str,
        changes: &BTreeMap<String, String>,
    ) -> Result<(), ClientError> {
        let address = &self.address_of(broker, false).await?;
        let request = wire::update_broker_config(text(changes));
        self.client.api().call_ok(address, CONFIGURATION_CHANGE, request).await.map(drop)
    }

    /// Every key of a broker or a name server, with the layer of its value. An Apache server names no layer.
    ///
    /// # Errors
    /// Those of reaching the server.
    pub async fn config(&self, server: &str) -> Result<ConfigEntries, ClientError> {
        let address = &self.address_of(server, false).await?;
        let header = GetConfigHeader { layers: Some("true") };
        let codes = [request::GET_BROKER_CONFIG, request::GET_NAMESRV_CONFIG];
        let answer = self.either(address, QUERY, codes.map(|code| Command::request(code, &header))).await?;
        if answer.body.first() == Some(&b'{') {
            return wire::json(QUERY, address, &answer.body);
        }
        let entry = |(key, value)| ConfigEntry {
            key,
            value: Some(ConfigData::Text(value)),
            takes_effect: TakesEffect::AtOnce,
            ..ConfigEntry::default()
        };
        let keys = pairs(&String::from_utf8_lossy(&answer.body)).into_iter().map(entry).collect();
        Ok(ConfigEntries { keys })
    }

    /// Changes live values of a broker or a name server, all or none. Returns a note for the operator.
    ///
    /// # Errors
    /// [`ClientError::NoLiveValues`] at an Apache server, unless keys are only set; [`ClientError::Refused`]; those of reaching the
    /// server. A change may be made again.
    pub async fn change_config(
        &self,
        server: &str,
        set: &BTreeMap<String, String>,
        mut change: ConfigChange,
    ) -> Result<Option<String>, ClientError> {
        change.text = text(set);
        let address = &self.address_of(server, false).await?;
        let needs_layers = change.is_dry_run || change.at_restart || !change.unset.is_empty();
        if needs_layers && self.config(address).await?.keys.iter().all(|entry| entry.origin.is_empty()) {
            return Err(ClientError::NoLiveValues { address: address.clone() });
        }
        let codes = [request::UPDATE_BROKER_CONFIG, request::UPDATE_NAMESRV_CONFIG];
        let requests = codes.map(|code| change.request(code));
        let answer = self.either(address, CONFIGURATION_CHANGE, requests).await?;
        Ok(answer.remark.filter(|note| !note.is_empty()))
    }

    /// The answer of a broker, or that of a name server, which does not know the first request.
    async fn either(
        &self,
        address: &str,
        operation: &'static str,
        [of_broker, of_name_server]: [Command; 2],
    ) -> Result<Command, ClientError> {
        let api = self.client.api();
        let answer = api.call(address, operation, of_broker, api.timeout()).await?;
        if answer.code == response::REQUEST_CODE_NOT_SUPPORTED {
            return api.call_ok(address, operation, of_name_server).await;
        }
        outcome::success(operation, address, answer)
    }
}

/// Reads the configuration of a broker: one line per setting, without escapes.
fn pairs(text: &str) -> BTreeMap<String, String> {
    let pair = |line: &str| line.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
    text.lines().filter_map(pair).collect()
}

/// Writes changes. Brokers read them as Java reads a properties file, so special characters are escaped.
fn text(changes: &BTreeMap<String, String>) -> String {
    let mut text = String::new();
    for (key, value) in changes {
        escape(key, &mut text);
        text.push('=');
        escape(value, &mut text);
        text.push('\n');
    }
    text
}

fn escape(from: &str, to: &mut String) {
    for unit in from.encode_utf16() {
        match char::from_u32(u32::from(unit)) {
            Some(c) if c.is_ascii_alphanumeric() || "_-.;,/@%|".contains(c) => to.push(c),
            // Writing to a text does not fail.
            _ => {
                let _written = write!(to, "\\u{unit:04x}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_lines_with_an_equals_sign() {
        let read = pairs("brokerName=a\nmessageDelayLevel=1s 5s\nodd=x=y\nnothing\nempty=\n");
        let expected = [("brokerName", "a"), ("empty", ""), ("messageDelayLevel", "1s 5s"), ("odd", "x=y")];
        assert_eq!(read, expected.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
    }

    #[test]
    fn what_java_would_read_otherwise_is_escaped() {
        let changes = [("a b", "c:\\d\n\u{1F600}"), ("flushDiskType", "SYNC_FLUSH")];
        let text = text(&changes.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
        assert_eq!(text, "a\\u0020b=c\\u003a\\u005cd\\u000a\\ud83d\\ude00\nflushDiskType=SYNC_FLUSH\n");
    }
}
