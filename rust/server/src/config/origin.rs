//! Which layer a value came from.

use std::fmt;
use std::path::PathBuf;

/// A layer of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// No layer set the key.
    Default,
    /// A file of Apache's properties does not set the key, so Apache's default counts.
    ApacheDefault(PathBuf),
    /// The configuration file.
    File(PathBuf),
    /// The environment variable of this name.
    Environment(String),
    /// A flag, or `--set`.
    CommandLine,
    /// A request to the running server (UPDATE_BROKER_CONFIG).
    Request,
}

impl Origin {
    /// The layer in a word or two.
    pub fn layer(&self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::ApacheDefault(_) => "Apache's default",
            Self::File(_) => "file",
            Self::Environment(_) => "environment",
            Self::CommandLine => "command line",
            Self::Request => "request",
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("the defaults"),
            Self::File(path) | Self::ApacheDefault(path) => path.display().fmt(f),
            Self::Environment(name) => write!(f, "environment variable {name}"),
            Self::CommandLine => f.write_str("the flags or settings"),
            Self::Request => f.write_str("the request"),
        }
    }
}
