//! The reasons why a name server does not start, and why it refuses a request.

use std::path::PathBuf;

use rocketpy_auth::AdministerError;
use rocketpy_env::EnvError;
use rocketpy_model::{NameError, system};
use rocketpy_protocol::body::RegistrationError;
use rocketpy_protocol::code::request::name_of;
use rocketpy_protocol::code::response;
use rocketpy_protocol::settings::{ChangeError, SettingError};
use rocketpy_protocol::{HeaderError, json};
use rocketpy_remoting::{NoMemory, ServerError};

use crate::route::{AddressTaken, MemberNotProved, NameTaken, NotRegistered};

/// Why a name server does not start.
#[derive(Debug, thiserror::Error)]
pub enum NameServerError {
    /// Its address cannot be listened on.
    #[error("name server: {0}")]
    Listen(#[from] ServerError),
    /// The file of the key-value configuration cannot be read.
    #[error("name server: {0}")]
    Disk(#[from] EnvError),
    /// The file of the key-value configuration cannot be decoded.
    #[error("cannot decode the key-value configuration ({reason}): {}", path.display())]
    KvConfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The entries of the file take more memory than there is for them.
    #[error("key-value configuration is too large ({reason}): {}", path.display())]
    KvTooLarge {
        /// The file.
        path: PathBuf,
        /// Which limit.
        reason: NoMemory,
    },
}

impl NameServerError {
    /// The way out, for a person; `None` when the message says it all.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Listen(_) | Self::KvTooLarge { .. } => None,
            Self::Disk(error) => error.hint().map(str::to_owned),
            Self::KvConfig { path, .. } => Some(format!(
                "move the file away; the next start then reads {}.bak, the version before the last change",
                path.display()
            )),
        }
    }

    /// Whether the same start may succeed later without a change.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Listen(_) => true,
            Self::Disk(error) => error.retryable(),
            Self::KvConfig { .. } | Self::KvTooLarge { .. } => false,
        }
    }
}

/// Why a request is refused. The text is the remark of the answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error(transparent)]
    Header(#[from] HeaderError),
    #[error("request body: {0}")]
    Body(#[from] json::JsonError),
    #[error("{}", with_source(.0))]
    Registration(#[from] RegistrationError),
    #[error("broker id must not be negative: {id}")]
    BrokerId { id: i64 },
    #[error(transparent)]
    NotRegistered(#[from] NotRegistered),
    #[error(transparent)]
    NameTaken(#[from] NameTaken),
    #[error(transparent)]
    AddressTaken(#[from] AddressTaken),
    #[error(transparent)]
    MemberNotProved(#[from] MemberNotProved),
    #[error("no route for topic {topic}; {}", system::missing_topic_hint(topic))]
    NoRoute { topic: String },
    #[error("no key {key} in namespace {namespace}")]
    NoKey { namespace: String, key: String },
    #[error("namespace {namespace} has no keys")]
    NoNamespace { namespace: String },
    #[error("field {field} must not be empty")]
    Empty { field: &'static str },
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("field {field} exceeds {limit_bytes} bytes: {size_bytes}")]
    TooLong { field: &'static str, size_bytes: usize, limit_bytes: usize },
    #[error("field {field} must not contain control characters: {value:?}")]
    Control { field: &'static str, value: String },
    #[error("field {field} must be an address, host:port: {}", head(.value))]
    Address { field: &'static str, value: String },
    #[error(transparent)]
    Memory(#[from] NoMemory),
    #[error("key-value configuration exceeds {limit_bytes} bytes; delete keys")]
    KvFull { limit_bytes: usize },
    #[error("the body must be UTF-8 lines of key=value")]
    Properties,
    #[error(transparent)]
    Setting(#[from] SettingError),
    #[error("pending changes of the key-value configuration exceed the limit: {limit}")]
    KvBusy { limit: usize },
    #[error("cannot save the key-value configuration, the change may or may not be on disk: {0}")]
    KvWrite(#[from] EnvError),
    #[error(transparent)]
    Accounts(#[from] AdministerError),
    #[error("broker name {name} belongs to another cluster: {denial}")]
    OfOtherCluster { name: String, denial: String },
    #[error("users are off on this name server, set authenticationEnabled=true")]
    UsersOff,
    #[error("no broker of topic {topic} is registered: {names}")]
    UnknownBrokers { topic: String, names: String },
    #[error("request code {code} ({}) is not supported here: {why}", name_of(*.code).unwrap_or("unknown"))]
    NotSupported { code: i32, why: &'static str },
}

impl Refusal {
    /// The response code.
    pub(crate) fn code(&self) -> i32 {
        match self {
            Self::Header(_)
            | Self::Empty { .. }
            | Self::Name(_)
            | Self::TooLong { .. }
            | Self::Control { .. }
            | Self::Address { .. }
            | Self::BrokerId { .. } => response::INVALID_PARAMETER,
            Self::Setting(error) => error.code(),
            Self::Accounts(error) => error.code(),
            Self::Memory(_) | Self::KvBusy { .. } => response::SYSTEM_BUSY,
            Self::Body(_)
            | Self::Registration(_)
            | Self::NotRegistered(_)
            | Self::NameTaken(_)
            | Self::AddressTaken(_)
            | Self::MemberNotProved(_)
            | Self::Properties
            | Self::UsersOff
            | Self::KvFull { .. }
            | Self::KvWrite(_)
            | Self::UnknownBrokers { .. } => response::SYSTEM_ERROR,
            Self::OfOtherCluster { .. } => response::NO_PERMISSION,
            Self::NoRoute { .. } => response::TOPIC_NOT_EXIST,
            Self::NoKey { .. } | Self::NoNamespace { .. } => response::QUERY_NOT_FOUND,
            Self::NotSupported { .. } => response::REQUEST_CODE_NOT_SUPPORTED,
        }
    }
}

impl From<ChangeError> for Refusal {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::NotText => Self::Properties,
            ChangeError::Header(error) => Self::Header(error),
        }
    }
}

/// The beginning of a text, printable: it came from outside and may be anything.
pub(crate) fn head(text: &str) -> String {
    format!("{:?}", text.chars().take(64).collect::<String>())
}

/// An error and its cause, since a remark is one line.
fn with_source(error: &RegistrationError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
