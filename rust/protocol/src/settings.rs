//! Changes of the configuration of a running server, and its values by layer.
//!
//! UPDATE_BROKER_CONFIG and UPDATE_NAMESRV_CONFIG carry `key=value` lines as at Apache's servers. RocketPy's tools add fields
//! ([`UpdateConfigHeader`]), and ask for JSON in place of lines ([`GetConfigHeader`]). Apache's servers ignore both.

use serde::{Deserialize, Serialize};

use crate::code::response;
use crate::header::{GetConfigHeader, Header, HeaderError, UpdateConfigHeader};
use crate::{Command, json};

/// Changes of live values; a server makes all of them, or none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfigChange {
    /// `key=value` lines.
    pub text: String,
    /// Keys whose live value is removed.
    pub unset: Vec<String>,
    /// Whether keys are accepted that take effect at the next start.
    pub at_restart: bool,
    /// Whether the change is only checked.
    pub is_dry_run: bool,
}

/// Why a request names no change.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The body is not UTF-8.
    #[error("the body must be UTF-8 lines of key=value")]
    NotText,
    /// A field is malformed.
    #[error(transparent)]
    Header(#[from] HeaderError),
}

impl ConfigChange {
    /// Reads a request.
    ///
    /// # Errors
    /// The body is not UTF-8, or a field is malformed.
    pub fn read(request: &Command) -> Result<Self, ChangeError> {
        let text = std::str::from_utf8(&request.body).map_err(|_| ChangeError::NotText)?;
        let header = UpdateConfigHeader::read(&request.ext)?;
        let unset = header.unset.unwrap_or_default().split(';').filter(|key| !key.is_empty());
        Ok(Self {
            text: text.to_owned(),
            unset: unset.map(str::to_owned).collect(),
            at_restart: header.at_restart.unwrap_or_default(),
            is_dry_run: header.dry_run.unwrap_or_default(),
        })
    }

    /// The request with this code.
    pub fn request(&self, code: i32) -> Command {
        let unset = self.unset.join(";");
        let header = UpdateConfigHeader {
            unset: Some(unset.as_str()).filter(|keys| !keys.is_empty()),
            at_restart: self.at_restart.then_some(true),
            dry_run: self.is_dry_run.then_some(true),
        };
        Command::request(code, &header).with_body(self.text.clone())
    }
}

/// Why a running server keeps its configuration.
#[derive(Debug, thiserror::Error)]
pub enum SettingError {
    /// The key is unknown, or cannot change.
    #[error("{0}")]
    Fixed(String),
    /// The value is invalid, or the text is malformed.
    #[error("{0}")]
    Value(String),
    /// The live values cannot be saved.
    #[error("{0}")]
    NotKept(String),
}

impl SettingError {
    /// The response code.
    pub fn code(&self) -> i32 {
        match self {
            Self::Fixed(_) => response::NO_PERMISSION,
            Self::Value(_) => response::INVALID_PARAMETER,
            Self::NotKept(_) => response::SYSTEM_ERROR,
        }
    }
}

/// A typed value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ConfigData {
    /// `true` or `false`.
    Switch(bool),
    /// A number, in the unit of the key.
    Number(i64),
    /// A text.
    Text(String),
    /// Texts of a list.
    List(Vec<String>),
}

/// When a changed value takes effect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TakesEffect {
    /// At once.
    AtOnce,
    /// At the next start.
    AtRestart,
    /// The key has no live value.
    #[default]
    Never,
}

/// A key with its value and layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigEntry {
    /// Default value.
    pub default_value: Option<ConfigData>,
    /// Whether the key has a meaning here: false for Apache's keys without one.
    pub is_used: bool,
    /// Name of the key.
    pub key: String,
    /// Live value, as text; it may wait for the next start.
    pub live: Option<String>,
    /// Layer of the value.
    pub origin: String,
    /// File or variable of the layer.
    pub source: Option<String>,
    /// When a change takes effect.
    pub takes_effect: TakesEffect,
    /// Value in force.
    pub value: Option<ConfigData>,
}

impl Default for ConfigEntry {
    fn default() -> Self {
        Self {
            default_value: None,
            is_used: true,
            key: String::new(),
            live: None,
            origin: String::new(),
            source: None,
            takes_effect: TakesEffect::Never,
            value: None,
        }
    }
}

/// Keys of a server, sorted by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConfigEntries {
    /// The keys.
    pub keys: Vec<ConfigEntry>,
}

impl ConfigEntries {
    /// Whether a request wants JSON in place of `key=value` lines.
    ///
    /// # Errors
    /// The field is malformed.
    pub fn are_asked_for(request: &Command) -> Result<bool, HeaderError> {
        Ok(GetConfigHeader::read(&request.ext)?.layers.is_some_and(|layers| layers == "true"))
    }

    /// The body of the answer.
    pub fn to_body(&self) -> Vec<u8> {
        json::to_vec(self)
    }
}

/// Live keys of a broker or a name server as `key=value` lines.
pub fn lines<'a>(pairs: impl IntoIterator<Item = (&'a str, String)>) -> String {
    pairs.into_iter().map(|(key, value)| format!("{key}={value}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::request;

    #[test]
    fn change_survives_the_wire_and_apache_reads_its_lines() {
        let change = ConfigChange {
            text: "a=b\n".to_owned(),
            unset: vec!["c".to_owned(), "d".to_owned()],
            at_restart: true,
            is_dry_run: true,
        };
        let command = change.request(request::UPDATE_BROKER_CONFIG);
        assert_eq!(ConfigChange::read(&command).unwrap(), change);
        let plain = ConfigChange { text: "a=b\n".to_owned(), ..ConfigChange::default() };
        let command = plain.request(request::UPDATE_BROKER_CONFIG);
        assert!(command.ext.is_empty(), "as mqadmin's");
        assert_eq!(ConfigChange::read(&command).unwrap(), plain);
        let not_text = Command::bare_request(request::UPDATE_BROKER_CONFIG).with_body(b"\xff".as_slice());
        assert!(matches!(ConfigChange::read(&not_text), Err(ChangeError::NotText)));
    }

    #[test]
    fn entries_keep_the_types_of_their_values() {
        let entry = |key: &str, value| ConfigEntry { key: key.to_owned(), value, ..ConfigEntry::default() };
        let keys = vec![
            entry("switch", Some(ConfigData::Switch(true))),
            entry("number", Some(ConfigData::Number(-5))),
            entry("text", Some(ConfigData::Text("7".to_owned()))),
            entry("list", Some(ConfigData::List(vec!["a".to_owned()]))),
            entry("nothing", None),
        ];
        let entries = ConfigEntries { keys };
        assert_eq!(json::from_slice::<ConfigEntries>(&entries.to_body()).unwrap(), entries);
    }
}
