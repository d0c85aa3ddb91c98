//! Why a broker could not start.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use rocketpy_env::EnvError;
use rocketpy_model::{NameError, PhysicalOffset};
use rocketpy_remoting::ServerError;
use rocketpy_store::StoreError;
use rocketpy_tools::ToolError;

/// Another master of this broker's name, and both have acknowledged messages that the other one does not have.
#[derive(Debug, thiserror::Error)]
#[error(
    "{master} is also a master of this broker name, and the two logs diverge at {at}: each may have acknowledged messages that the other does not have"
)]
pub struct DivergedMaster {
    /// Address of the other master.
    pub master: String,
    /// Offset at which the logs diverge.
    pub at: PhysicalOffset,
}

/// Why a broker could not start. Nothing that was acknowledged is lost by any of them.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file operation outside the store's own failed.
    #[error(transparent)]
    Env(#[from] EnvError),
    /// The end of the log cannot be cut off.
    #[error(transparent)]
    Cut(#[from] ToolError),
    /// A JSON file of the store's `config` folder cannot be decoded, and there is no good backup.
    #[error("cannot decode the configuration file ({reason}): {}", path.display())]
    ConfigFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Other delay levels are configured than those by which messages wait.
    #[error(
        "messageDelayLevel is {wanted:?}, but {waiting} delayed messages were stored with other levels, for example level {level}"
    )]
    DelayLevels {
        /// The levels of the store, if it says them.
        stored: Option<String>,
        /// The configured ones.
        wanted: String,
        /// Messages that wait by the former.
        waiting: u64,
        /// A level of theirs.
        level: u32,
    },
    /// The address cannot be listened on.
    #[error(transparent)]
    Listen(#[from] ServerError),
    /// The address for slaves cannot be listened on.
    #[error("cannot listen on {addr} for slaves: {source}")]
    ListenForSlaves {
        /// The address.
        addr: SocketAddr,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Another master of the name serves, with a history of its own.
    #[error(transparent)]
    DivergedMaster(#[from] DivergedMaster),
    /// A slave that has no log yet found no master.
    #[error("cannot find a master of broker {broker}: {reason}")]
    NoMaster {
        /// The name that both have.
        broker: String,
        /// What was found instead.
        reason: String,
    },
    /// The log files of a slave without a log would not have the size of its master's.
    #[error(
        "commit log files have {master} bytes at the master {address}, but mappedFileSizeCommitLog of this slave is {own}"
    )]
    LogFileBytes {
        /// Where the master answers requests.
        address: String,
        /// Size at the master.
        master: u64,
        /// Size at this slave.
        own: u64,
    },
    /// A slave has more of the log than this master, which lost its end, and cannot give it back.
    #[error(
        "after a sudden end the log of this master ends at {end}, but slave {address} has it up to {slave_end}: if this master continues, \
         acknowledged messages are lost"
    )]
    SlaveHasMore {
        /// Where the slave answers requests.
        address: String,
        /// End of its log.
        slave_end: PhysicalOffset,
        /// End of this broker's log.
        end: PhysicalOffset,
    },
    /// The file of the token for slaves is empty, or cannot be read.
    #[error("cannot read a token from {} (haTokenFile): {reason}", path.display())]
    NoToken {
        /// `haTokenFile`.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Role and id contradict each other.
    #[error("brokerId must be above 0 for brokerRole=SLAVE and 0 for a master: {0}")]
    RoleAndId(u64),
    /// The cluster or broker name cannot be one.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The advertised host has no address.
    #[error("cannot resolve the advertised host (brokerIP1) ({reason}): {host}")]
    AdvertisedHost {
        /// The host as configured.
        host: String,
        /// What the resolver said.
        reason: String,
    },
}

impl BrokerError {
    /// Advice for an operator.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Store(error) | Self::Cut(ToolError::Store(error)) => error.hint(),
            Self::Cut(_) => None,
            Self::Env(error) => error.hint().map(str::to_owned),
            Self::ConfigFile { path, .. } => {
                Some(format!("restore {} from a backup, or move it away to start without it", path.display()))
            }
            Self::DelayLevels { stored: Some(stored), .. } => Some(format!(
                "start with messageDelayLevel={stored:?} until these messages are delivered, then change it"
            )),
            Self::DelayLevels { stored: None, .. } => {
                Some("start with the messageDelayLevel of the broker that wrote the store".to_owned())
            }
            // The message of this one carries its hint.
            Self::Listen(_) => None,
            Self::ListenForSlaves { .. } => {
                Some("set haListenPort to a free port, or stop the process that uses this port".to_owned())
            }
            Self::DivergedMaster(_) => Some(
                "compare the two logs (`rocketpy store diff`); if no message that only this broker has is needed, start it as a slave \
                 (--role slave), else stop the other master"
                    .to_owned(),
            ),
            Self::NoMaster { .. } => Some(
                "start the master first, with the same brokerName and brokerClusterName and a port for slaves (haListenPort), or set \
                 haMasterAddress"
                    .to_owned(),
            ),
            Self::LogFileBytes { master, .. } => {
                Some(format!("set mappedFileSizeCommitLog={master} at this slave"))
            }
            Self::SlaveHasMore { .. } => Some(
                "make the slave the master, or stop it and copy its store folder to this broker; to continue without its messages, set \
                 haSyncBackTimeout=0"
                    .to_owned(),
            ),
            Self::NoToken { .. } => {
                Some("write a random text to the file, the same for the master and its slaves (haTokenFile)".to_owned())
            }
            Self::RoleAndId(_) => Some(
                "for a slave set brokerRole=SLAVE and a brokerId of 1 or more (--role slave --broker-id 1), for a master omit the id".to_owned(),
            ),
            Self::Name(_) => Some("choose another brokerName or brokerClusterName".to_owned()),
            Self::AdvertisedHost { .. } => {
                Some("set brokerIP1 to an address or name that clients can reach".to_owned())
            }
        }
    }

    /// Whether the same start may succeed later without a change.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Store(error) => error.retryable(),
            Self::Cut(error) => error.retryable(),
            Self::Env(error) => error.retryable(),
            Self::Listen(_) | Self::ListenForSlaves { .. } | Self::NoMaster { .. } => true,
            Self::DelayLevels { .. }
            | Self::ConfigFile { .. }
            | Self::LogFileBytes { .. }
            | Self::SlaveHasMore { .. }
            | Self::DivergedMaster(_)
            | Self::NoToken { .. }
            | Self::RoleAndId(_)
            | Self::Name(_)
            | Self::AdvertisedHost { .. } => false,
        }
    }
}
