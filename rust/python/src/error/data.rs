//! Errors of servers, stores, scans and records.

use std::error::Error;
use std::io;

use rocketpy_auth::AccountsError;
use rocketpy_env::EnvError;
use rocketpy_protocol::compression::CompressionError;
use rocketpy_protocol::record::RecordError;
use rocketpy_scan::ScanError;
use rocketpy_server::{BrokerError, ConfigError, ServerError};
use rocketpy_store::StoreError;
use rocketpy_store::reader::ReadError;
use rocketpy_tools::ToolError;

use super::{Facts, Raise};

impl Raise for ConfigError {
    fn facts(&self) -> Facts {
        let facts = Facts { hint: self.hint(), ..Facts::new("ConfigError", self.to_string()) };
        match self {
            // A line for each setting; the line of a TOML file that has the error.
            Self::Several(_) | Self::File { .. } => facts.printable_lines(),
            _ => facts.printable(),
        }
    }
}

impl Raise for AccountsError {
    fn facts(&self) -> Facts {
        match self {
            Self::File(error @ EnvError::Locked { .. }) => error
                .facts()
                .hint("a server uses the store: run the command without --offline, or stop the server"),
            Self::File(error) => error.facts(),
            Self::OpenToOthers { .. } => Facts::new("ConfigError", self.to_string()).printable(),
            Self::Damaged { .. } => Facts::new("DamagedDataError", self.to_string()).printable(),
            _ => Facts::new("InvalidArgumentError", self.to_string()).printable(),
        }
    }
}

impl Raise for ServerError {
    fn facts(&self) -> Facts {
        let class = match self {
            Self::Config(error) => return error.facts(),
            Self::WithLiveValues { source, .. } => {
                let facts = Facts { message: self.to_string(), hint: self.hint(), ..source.facts() };
                return facts.printable();
            }
            Self::Host { .. }
            | Self::NoNameServer
            | Self::NoCollector
            | Self::NotAReadyFile { .. }
            | Self::Tls(_)
            | Self::Auth(_)
            | Self::Secure(_) => "ConfigError",
            Self::Broker(BrokerError::Store(error)) => error.facts().class,
            Self::Broker(BrokerError::Env(error)) | Self::ReadyFile(error) | Self::LogFile(error) => {
                error.facts().class
            }
            Self::Broker(BrokerError::Cut(error)) => error.facts().class,
            Self::Broker(BrokerError::ConfigFile { .. }) => "DamagedDataError",
            Self::Broker(
                BrokerError::Name(_)
                | BrokerError::AdvertisedHost { .. }
                | BrokerError::DelayLevels { .. }
                | BrokerError::LogFileBytes { .. }
                | BrokerError::RoleAndId(_)
                | BrokerError::NoToken { .. },
            ) => "ConfigError",
            Self::Broker(BrokerError::Listen(_) | BrokerError::ListenForSlaves { .. })
            | Self::NameServer(_)
            | Self::Metrics { .. }
                if is_address_in_use(self) =>
            {
                "PortInUseError"
            }
            Self::Broker(BrokerError::NoMaster { .. }) => "BrokerNotFoundError",
            Self::Failed(error) => error.facts().class,
            Self::Broker(
                BrokerError::Listen(_)
                | BrokerError::ListenForSlaves { .. }
                | BrokerError::SlaveHasMore { .. }
                | BrokerError::DivergedMaster(_),
            )
            | Self::NameServer(_)
            | Self::Metrics { .. }
            | Self::Threads(_)
            | Self::CutOff { .. } => "ServerError",
        };
        let names_its_key =
            matches!(self, Self::Broker(BrokerError::ListenForSlaves { .. }) | Self::Metrics { .. });
        let hint =
            if class == "PortInUseError" && !names_its_key { Some(port_in_use(self)) } else { self.hint() };
        Facts { retryable: self.retryable(), hint, ..Facts::new(class, self.to_string()) }.printable()
    }
}

/// The options that choose the port that is taken.
fn port_in_use(error: &ServerError) -> String {
    let (whose, options) = match error {
        ServerError::NameServer(_) => (
            "name server",
            "--name-server-port N (`rocketpy namesrv`: --port N), Server(name_server_port=N), NameServer(port=N)",
        ),
        _ => ("broker", "--port N, Server(port=N)"),
    };
    format!("stop what listens there, or give the {whose} another port, 0 for a free one: {options}")
}

/// Whether the system said that the address is taken.
fn is_address_in_use(error: &(dyn Error + 'static)) -> bool {
    let taken = |cause: &io::Error| cause.kind() == io::ErrorKind::AddrInUse;
    error.downcast_ref().is_some_and(taken) || error.source().is_some_and(is_address_in_use)
}

impl Raise for RecordError {
    fn facts(&self) -> Facts {
        Facts::new("DamagedDataError", format!("not a record: {self}")).printable()
    }
}

impl Raise for CompressionError {
    fn facts(&self) -> Facts {
        let text = format!("the body does not decompress: {self}");
        match self {
            Self::TooLarge { .. } => {
                Facts::new("MessageTooLargeError", text).hint("read it with a greater max_body_bytes")
            }
            _ => Facts::new("DamagedDataError", text),
        }
    }
}

impl Raise for EnvError {
    fn facts(&self) -> Facts {
        let class = match self {
            Self::NoSpace { .. } => "DiskFullError",
            Self::Locked { .. } => "StoreLockedError",
            Self::Unreadable { .. } => "DamagedDataError",
            _ => "StoreError",
        };
        let facts = Facts::new(class, self.to_string());
        Facts { retryable: self.retryable(), hint: self.hint().map(str::to_owned), ..facts }.printable()
    }
}

impl Raise for StoreError {
    fn facts(&self) -> Facts {
        let class = match self {
            Self::Env(error) => error.facts().class,
            _ if self.is_damage() => "DamagedDataError",
            Self::BadConfig { .. } | Self::WrongFileSize { .. } => "ConfigError",
            Self::ForeignFolder { .. } | Self::UnexpectedFile { .. } => "NotAStoreError",
            Self::Locked { .. } => "StoreLockedError",
            Self::ShutDown => "ClosedError",
            Self::AssertionFailed { .. } => "AssertionFailedError",
            _ => "StoreError",
        };
        let facts = Facts::new(class, self.to_string());
        Facts { retryable: self.retryable(), hint: self.hint(), ..facts }.printable()
    }
}

/// Every way to say where the log is: Python, the command line, Spark.
const LOG_ELSEWHERE: &str = "its broker keeps the log elsewhere (storePathCommitLog)? name that folder: \
                             StoreReader(path, commit_log=...), --commit-log DIR (of the store that messages go to: \
                             --target-commit-log DIR), or the Spark option commitLogPath";

impl Raise for ReadError {
    fn facts(&self) -> Facts {
        let class = match self {
            Self::Env(error) => return error.facts(),
            Self::Refused(error) => return error.facts(),
            Self::NotAStore { .. } | Self::LogElsewhere { .. } | Self::NoIndex { .. } => "NotAStoreError",
            Self::UnknownTopic { .. } => "TopicNotFoundError",
            Self::UnknownQueue { .. } | Self::InvertedRange { .. } | Self::Missing { .. } => "OffsetError",
            Self::BadFile { .. } | Self::BrokenRecord { .. } | Self::IncompleteQueues { .. } => {
                "DamagedDataError"
            }
        };
        let hint = match self {
            Self::LogElsewhere { .. } => LOG_ELSEWHERE,
            Self::NotAStore { .. } => {
                "check the path: a store is the folder that `rocketpy server DIR` was started on"
            }
            Self::NoIndex { .. } => "start its server once: it builds the index",
            Self::UnknownTopic { .. } => {
                "check the name: `rocketpy store stat DIR` lists the topics of a store"
            }
            Self::UnknownQueue { .. } | Self::InvertedRange { .. } => {
                "`rocketpy store stat DIR` shows the queues of each topic and their offsets"
            }
            _ => return Facts::new(class, self.to_string()).printable(),
        };
        Facts::new(class, self.to_string()).hint(hint).printable()
    }
}

impl Raise for ToolError {
    fn facts(&self) -> Facts {
        let class = match self {
            Self::Read(error) => return error.facts(),
            Self::Env(error) => return error.facts(),
            Self::Store(error) => return error.facts(),
            Self::Interrupted { cause, .. } => cause.facts().class,
            Self::Refused { .. } | Self::CheckpointBehind { .. } => "StoreError",
            Self::TargetNotEmpty { .. }
            | Self::TargetInside { .. }
            | Self::OutsideLog { .. }
            | Self::NoRecordAt { .. } => "InvalidArgumentError",
            Self::HoleTooShort { .. } | Self::BadTopics { .. } | Self::BadProgress { .. } => {
                "DamagedDataError"
            }
            Self::Stopped => "RocketPyError",
        };
        let facts = Facts::new(class, self.to_string());
        Facts { retryable: self.retryable(), hint: self.hint(), ..facts }.printable()
    }
}

impl Raise for ScanError {
    fn facts(&self) -> Facts {
        let class = match self {
            Self::UnknownColumn { .. }
            | Self::UnknownGroup { .. }
            | Self::JsonType { .. }
            | Self::JsonFields { .. } => "InvalidArgumentError",
            Self::Body { limit_bytes: Some(_), .. } => "MessageTooLargeError",
            Self::Damaged { .. } | Self::Body { .. } => "DamagedDataError",
            Self::Store(error) => {
                return Facts { hint: self.hint().or(error.facts().hint), ..error.facts() }.printable();
            }
            Self::Tool(error) => error.facts().class,
            Self::Arrow(_) => "RocketPyError",
        };
        Facts { hint: self.hint(), ..Facts::new(class, self.to_string()) }.printable()
    }
}
