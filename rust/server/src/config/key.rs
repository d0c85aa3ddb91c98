//! What the table of keys says about each.

use super::ServerConfig;
use super::kind::{Shape, Value, Wanted};

/// A key that is used.
#[derive(Debug)]
pub struct Key {
    /// Apache's name of the key, if Apache has the key.
    pub name: &'static str,
    /// Section on the page of keys.
    pub section: Section,
    /// Apache's counterpart of the key.
    pub apache: Apache,
    /// Key that sets the same value.
    pub alias_of: Option<&'static str>,
    /// Whether the key may change while a server runs.
    pub is_changeable: bool,
    pub(super) description: &'static str,
    pub(super) shape: fn() -> Shape,
    pub(super) get: fn(&ServerConfig) -> Value,
    pub(super) set: fn(&mut ServerConfig, &str) -> Result<(), Wanted>,
}

impl Key {
    /// Description of the key.
    pub fn description(&self) -> &'static str {
        self.description.trim_start()
    }

    /// Accepted values.
    pub fn shape(&self) -> Shape {
        (self.shape)()
    }

    /// Value of the key in a configuration.
    pub fn value(&self, config: &ServerConfig) -> Value {
        (self.get)(config)
    }

    pub fn default_value(&self) -> Value {
        self.value(&ServerConfig::default())
    }

    /// Whether both are names of one value.
    pub(super) fn is_alias_of(&self, other: &Self) -> bool {
        self.alias_of == Some(other.name) || other.alias_of == Some(self.name)
    }
}

/// A part of the page of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Identity and address of the broker.
    Network,
    /// Replication between a master and its slaves.
    Replication,
    /// Topics, consumer groups and their offsets.
    Topics,
    /// Half messages and check-backs.
    Transactions,
    /// Delayed messages and timer messages.
    Timers,
    /// Answers to pulls.
    Reading,
    /// Files, flushes and the index.
    Store,
    /// Removal of old files.
    Retention,
    NameServer,
    /// Encryption of connections.
    Tls,
    /// Authentication and authorization.
    Auth,
    /// Metrics of the broker, and who may read them.
    Metrics,
    /// Keys that Apache does not have.
    Ours,
}

impl Section {
    /// All of them, in the order of the page.
    pub const ALL: [Self; 13] = [
        Self::Network,
        Self::Replication,
        Self::Topics,
        Self::Transactions,
        Self::Timers,
        Self::Reading,
        Self::Store,
        Self::Retention,
        Self::NameServer,
        Self::Tls,
        Self::Auth,
        Self::Metrics,
        Self::Ours,
    ];

    /// The heading.
    pub fn title(self) -> &'static str {
        match self {
            Self::Network => "Identity and network",
            Self::Replication => "Replication",
            Self::Topics => "Topics and groups",
            Self::Transactions => "Transactions",
            Self::Timers => "Timers",
            Self::Reading => "Reading",
            Self::Store => "Store",
            Self::Retention => "Retention",
            Self::NameServer => "Name server",
            Self::Tls => "TLS",
            Self::Auth => "Users and policies",
            Self::Metrics => "Metrics",
            Self::Ours => "Keys of RocketPy",
        }
    }
}

/// Apache 5.5.0's counterpart of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Apache {
    /// It has the key, with this default.
    Same,
    /// It has the key, with another default.
    Default(&'static str),
    /// It does not have the key.
    Unknown,
}
