//! Why a configuration cannot be used.

use std::fmt::Write;
use std::path::PathBuf;

use rocketpy_model::printable::printable;

use super::live_place::unset_command;
use super::origin::Origin;

/// Why a configuration cannot be used. A retry without a change does not help.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// No such key.
    #[error("unknown configuration key in {origin}: {key}")]
    UnknownKey {
        /// The key as written.
        key: String,
        /// The known keys that look like it, best first.
        near: Vec<&'static str>,
        /// The layer it came from.
        origin: Origin,
    },
    /// The key is known, the value is not one of its values.
    #[error("{key} in {origin} must be {wanted}, not {value:?}")]
    Value {
        /// The key's proper name.
        key: &'static str,
        /// The value as written.
        value: String,
        /// What it must be.
        wanted: String,
        /// The layer it came from.
        origin: Origin,
    },
    /// The value asks for a feature that is not there yet.
    #[error("{key}={value} in {origin} requires {feature}, which is not supported yet")]
    NotThereYet {
        /// The key's proper name.
        key: &'static str,
        /// The value as written.
        value: String,
        /// The one value that can be served.
        only: &'static str,
        /// What is missing.
        feature: &'static str,
        /// The layer it came from.
        origin: Origin,
    },
    /// The path is not the place that the store uses.
    #[error("{key} in {origin} must be {}, not {value:?}: only `storePathRootDir` and `storePathCommitLog` move files", place.display())]
    StorePath {
        /// The key's proper name.
        key: &'static str,
        /// The value as written.
        value: String,
        /// The place that the store uses.
        place: PathBuf,
        /// The folder of the store for which the value would be right.
        root: Option<PathBuf>,
        /// The layer it came from.
        origin: Origin,
    },
    /// A running server was to change what it has read at its start.
    #[error("{key} cannot change while the server runs; set it in the configuration and restart")]
    ReadAtStart {
        /// The key's proper name.
        key: &'static str,
    },
    /// A running server was to change a key of Apache's that means nothing here.
    #[error("{key} is not used by RocketPy; remove it")]
    Meaningless {
        /// The key's proper name.
        key: &'static str,
    },
    /// A running server was to change a key that takes effect at the next start.
    #[error(
        "{key} takes effect at the next start; add --at-restart to `rocketpy config set`, or set it in the configuration"
    )]
    NeedsRestart {
        /// The key's proper name.
        key: &'static str,
    },
    /// A running server was to change a key that its command line sets.
    #[error(
        "{key} is set by the flags or settings of the server, which override live values; remove it there and restart"
    )]
    Overridden {
        /// The key's proper name.
        key: &'static str,
    },
    /// A broker was to change a key of name servers, or the other way round.
    #[error("{key} is a key of the {owner}, not of this {asked}")]
    OfOtherServer {
        /// The key's proper name.
        key: &'static str,
        /// The server that has it.
        owner: &'static str,
        /// The server that was asked.
        asked: &'static str,
    },
    /// The value of a key is a secret, and other users of the machine read command lines.
    #[error("{key} is a secret and cannot be set on the command line")]
    SecretOnCommandLine {
        /// The key's proper name.
        key: &'static str,
    },
    /// A file of live values has a key without a live value.
    #[error("{key} in {origin} cannot have a live value")]
    NotLive {
        /// The key as written.
        key: String,
        /// The file.
        origin: Origin,
    },
    /// The live values to change belong to a running server.
    #[error("cannot change the live values in {} here, a server uses the store: {reason}", path.display())]
    InUse {
        /// Folder of the store.
        path: PathBuf,
        /// Who uses it.
        reason: String,
    },
    /// A live value to remove does not exist.
    #[error("{key} has no live value in {}", path.display())]
    NoLiveValue {
        /// The key as written.
        key: String,
        /// Folder of the store, or the file.
        path: PathBuf,
    },
    /// A text is not in its format.
    #[error("expected `key=value` lines: {0}")]
    Text(String),
    /// Several settings cannot be used.
    #[error("{} settings are invalid:{}", .0.len(), lines(.0))]
    Several(Vec<Self>),
    /// The file cannot be read or is not in its format.
    #[error("cannot read the configuration file {}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

impl ConfigError {
    /// The way out, for a person; `None` when the message says it all.
    pub fn hint(&self) -> Option<String> {
        if let Some(command) = self.unset_command() {
            return Some(format!("remove the live value: `{command}`"));
        }
        match self {
            Self::UnknownKey { near, .. } if near.is_empty() => {
                Some("remove it; `rocketpy config show` lists the keys".to_owned())
            }
            Self::UnknownKey { near, .. } => Some(format!(
                "write {}, or remove the key; `rocketpy config explain {}` describes it",
                near.join(" or "),
                near[0]
            )),
            Self::File { .. } => Some("name a readable file of KEY=VALUE lines, or a TOML file".to_owned()),
            Self::Value { key, .. } => Some(format!("`rocketpy config explain {key}` lists its values")),
            Self::NotThereYet { key, only, .. } => Some(format!("write {key}={only}, or remove the key")),
            Self::StorePath { root: Some(root), .. } => Some(format!(
                "remove the key (Apache's brokers since 3.2.6 ignore it), or move the whole store: storePathRootDir={}",
                root.display()
            )),
            Self::StorePath { .. } => Some(
                "remove the key: Apache's brokers since 3.2.6 ignore it, and the path stays the same"
                    .to_owned(),
            ),
            Self::Several(_) => {
                Some("correct each of them; `rocketpy config explain KEY` describes a key".to_owned())
            }
            Self::SecretOnCommandLine { key } => Some(format!(
                "set {} in the environment, or {key} in a file with mode 0600 (--config)",
                super::variable(key)
            )),
            Self::InUse { .. } => {
                Some("write `rocketpy config unset BROKER KEY`, which changes a running broker".to_owned())
            }
            Self::NoLiveValue { .. } => {
                Some("`rocketpy config list BROKER --origin` shows the layer of each value".to_owned())
            }
            Self::ReadAtStart { .. }
            | Self::NeedsRestart { .. }
            | Self::Overridden { .. }
            | Self::OfOtherServer { .. }
            | Self::NotLive { .. }
            | Self::Meaningless { .. }
            | Self::Text(_) => None,
        }
    }

    /// Command that removes the live value that cannot be used.
    fn unset_command(&self) -> Option<String> {
        let (key, origin) = match self {
            Self::UnknownKey { key, origin, .. } | Self::NotLive { key, origin } => (key.as_str(), origin),
            Self::Value { key, origin, .. }
            | Self::NotThereYet { key, origin, .. }
            | Self::StorePath { key, origin, .. } => (*key, origin),
            _ => return None,
        };
        let Origin::Live(path) = origin else { return None };
        Some(unset_command(path, key))
    }
}

/// Each error on a line of its own, its hint below.
fn lines(errors: &[ConfigError]) -> String {
    let mut text = String::new();
    for error in errors {
        // A line of a value would look like another error.
        let _ = write!(text, "\n  {}", printable(&error.to_string()));
        if let Some(hint) = error.hint() {
            let _ = write!(text, "\n    hint: {}", printable(&hint));
        }
    }
    text
}
