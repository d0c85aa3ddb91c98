//! What the table of keys says about each.

use super::ServerConfig;
use super::kind::{Shape, Value, Wanted};

/// A key that is used.
#[derive(Debug)]
pub struct Key {
    /// Apache's name of it, where Apache has it.
    pub name: &'static str,
    /// Where the page of keys lists it.
    pub section: Section,
    /// What Apache does about it.
    pub apache: Apache,
    /// The key that sets the same value.
    pub alias_of: Option<&'static str>,
    /// Whether it may change while a server runs.
    pub is_changeable: bool,
    pub(super) description: &'static str,
    pub(super) shape: fn() -> Shape,
    pub(super) get: fn(&ServerConfig) -> Value,
    pub(super) set: fn(&mut ServerConfig, &str) -> Result<(), Wanted>,
}

impl Key {
    /// What it does.
    pub fn description(&self) -> &'static str {
        self.description.trim_start()
    }

    /// Which values it takes.
    pub fn shape(&self) -> Shape {
        (self.shape)()
    }

    /// The value that a configuration gives it.
    pub fn value(&self, config: &ServerConfig) -> Value {
        (self.get)(config)
    }

    /// The value without a configuration.
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
    /// Who the broker is and how it is reached.
    Network,
    /// Slaves, and what a master does for them.
    Replication,
    /// Topics, consumer groups and their offsets.
    Topics,
    /// Half messages and the questions for their end.
    Transactions,
    /// Messages that wait for their time.
    Timers,
    /// What a pull gets.
    Reading,
    /// Files, flushes and the index.
    Store,
    /// When messages are removed.
    Retention,
    NameServer,
    /// Keys that Apache does not have.
    Ours,
}

impl Section {
    /// All of them, in the order of the page.
    pub const ALL: [Self; 10] = [
        Self::Network,
        Self::Replication,
        Self::Topics,
        Self::Transactions,
        Self::Timers,
        Self::Reading,
        Self::Store,
        Self::Retention,
        Self::NameServer,
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
            Self::Ours => "Keys of RocketPy",
        }
    }
}

/// What Apache 5.5.0 does about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Apache {
    /// It has the key, with this default.
    Same,
    /// It has the key, with another default.
    Default(&'static str),
    /// It does not have the key.
    Unknown,
}
