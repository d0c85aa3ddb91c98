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
    /// A request to the running server that is checked (UPDATE_BROKER_CONFIG).
    Request,
    /// The live values in this file, which requests to a running server wrote.
    Live(PathBuf),
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
            Self::Live(_) => "live",
        }
    }

    /// The file or the variable of the layer.
    pub fn source(&self) -> Option<String> {
        match self {
            Self::File(path) | Self::ApacheDefault(path) | Self::Live(path) => {
                Some(path.display().to_string())
            }
            Self::Environment(name) => Some(name.clone()),
            Self::Default | Self::CommandLine | Self::Request => None,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("the defaults"),
            Self::File(path) | Self::ApacheDefault(path) | Self::Live(path) => path.display().fmt(f),
            Self::Environment(name) => write!(f, "environment variable {name}"),
            Self::CommandLine => f.write_str("the flags or settings"),
            Self::Request => f.write_str("the request"),
        }
    }
}
