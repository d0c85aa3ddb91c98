//! Replication settings of masters and slaves.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use rocketpy_env::{Disk, RealDisk};
use rocketpy_ha::{FeedConfig, FollowConfig, MAX_APACHE_BODY_BYTES};
use rocketpy_protocol::signature;
use rocketpy_remoting::{Reserved, ServerError};
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::BrokerError;

/// Maximum length of the body of a frame that a slave takes: what a master of Apache's may send at most, as its slaves have a buffer of 4 MiB.
pub(super) const MAX_BODY_BYTES: u32 = 4 << 20;
/// Maximum length of the body of a frame for a slave of RocketPy: fewer calls for the same bytes, and still small compared with a socket buffer.
pub(super) const OWN_BODY_BYTES: u32 = 256 << 10;

/// First part of the proof that a broker registers with.
const MEMBER: &[u8] = b"member";
/// Maximum size of a token file.
const MAX_TOKEN_BYTES: u64 = 4096;

/// Master or slave, and whether sends wait for slaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum BrokerRole {
    /// A master whose sends do not.
    AsyncMaster,
    /// A master whose sends are answered once slaves have them.
    SyncMaster,
    /// A broker that copies a master's log.
    Slave,
}

/// Shared secret of RocketPy's masters and slaves.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token(pub(crate) String);

impl Token {
    /// What a broker registers with: name servers compare it for the brokers of a name, and tell it to nobody.
    pub(crate) fn of_member(&self, broker_name: &str) -> String {
        signature::prove(&self.0, &[MEMBER, broker_name.as_bytes()])
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Replication settings of masters and slaves.
#[derive(Debug, Clone)]
pub struct ReplicationConfig {
    /// `brokerRole`, default ASYNC_MASTER.
    pub role: BrokerRole,
    /// `haListenPort`: where slaves connect, at the address that clients do; 0 takes a free one. Without it nobody listens for
    /// slaves, but for a SYNC_MASTER and a slave that was promoted, which take the port above the broker's, or a free one where
    /// that is taken.
    pub port: Option<u16>,
    /// Whether a command made this slave the master.
    pub is_promoted: bool,
    /// A slave keeps what its master does not have: a cut of that failed in this process.
    pub keeps_tail: bool,
    /// `haMasterAddress`: where a slave connects, `host:port`; `None`: as the name servers and the master say.
    pub master_address: Option<String>,
    /// `haAllowedSlaves`: the addresses that slaves may connect from; empty: from all.
    pub allowed: Vec<IpAddr>,
    /// `haTokenFile`: a file with the token that both ends have to know; Apache's slaves know none. The start reads it.
    pub token_file: Option<PathBuf>,
    /// `haUseTLS`, default false: a slave connects to its master's port for slaves by TLS.
    pub uses_tls: bool,
    /// `inSyncReplicas`: how many brokers have a message before a SYNC_MASTER answers, itself among them; default 2.
    pub in_sync_replicas: Option<u32>,
    /// `slaveTimeout`, default 3 s: how long a send waits for slaves.
    pub slave_timeout: Duration,
    /// `haSlaveFallbehindMax`, default 256 MiB: a slave that is further behind counts as not there.
    pub max_behind_bytes: u64,
    /// `haMaxTimeSlaveNotCatchup`, default 15 s: a SYNC_MASTER whose slaves confirm nothing for that long shows readers what it alone has;
    /// 0: always.
    pub max_not_caught_up: Duration,
    /// `haSendHeartbeatInterval`, default 5 s.
    pub heartbeat_every: Duration,
    /// `haHousekeepingInterval`, default 20 s: the connection of a slave that is silent for longer is closed.
    pub silence_limit: Duration,
    /// `haSyncBackTimeout`, default 5 s: how long a master waits after a sudden end for slaves that may have more of its log; 0: not at all.
    pub sync_back_timeout: Duration,
    /// `haTransferBatchSize`, default 32 KiB: most bytes of the log in a frame.
    pub frame_bytes: usize,
    /// `haFlowControlEnable`, default false: whether `max_bytes_per_second` counts.
    pub is_bounded: bool,
    /// `maxHaTransferByteInSecond`, default 100 MiB: maximum number of log bytes that one slave gets per second.
    pub max_bytes_per_second: u64,
}

impl ReplicationConfig {
    /// Number of slaves that must have a message before its send is answered.
    pub(super) fn slaves_waited_for(&self) -> usize {
        match self.role {
            BrokerRole::AsyncMaster | BrokerRole::Slave => 0,
            BrokerRole::SyncMaster => self.in_sync_replicas.unwrap_or(2).saturating_sub(1) as usize,
        }
    }

    /// Whether a master of this configuration has a port for slaves.
    pub(crate) fn serves_slaves(&self) -> bool {
        self.port.is_some() || self.is_promoted || self.role == BrokerRole::SyncMaster
    }

    /// Listens on the port for slaves, so that a start does not begin its work when it cannot be had. Who connects waits until slaves are
    /// served. `None`: the broker has none.
    ///
    /// # Errors
    /// The configured address cannot be listened on.
    pub(crate) fn reserve_port(&self, broker: SocketAddr) -> Result<Option<TcpListener>, BrokerError> {
        if self.role == BrokerRole::Slave || !self.serves_slaves() {
            return Ok(None);
        }
        let above = if broker.port() == 0 { 0 } else { port_above(broker.port()).unwrap_or(0) };
        let addr = SocketAddr::new(broker.ip(), self.port.unwrap_or(above));
        let listen = |addr| Reserved::new(addr)?.listen();
        let listener = listen(addr).or_else(|error| match self.port {
            Some(_) => Err(error),
            None => {
                warn!(%error, "port above the broker's is in use, listening for slaves on a free one (set haListenPort to choose it)");
                listen(SocketAddr::new(addr.ip(), 0))
            }
        });
        let taken = |ServerError::Bind { addr, source }| BrokerError::ListenForSlaves { addr, source };
        Ok(Some(listener.map_err(taken)?))
    }

    /// Reads the token.
    ///
    /// # Errors
    /// The file cannot be read, or holds nothing.
    pub(crate) fn token(&self) -> Result<Option<Token>, BrokerError> {
        let Some(path) = &self.token_file else { return Ok(None) };
        let none = |reason: String| BrokerError::NoToken { path: path.clone(), reason };
        let bytes = RealDisk.read(path, MAX_TOKEN_BYTES).map_err(|error| none(error.to_string()))?;
        match String::from_utf8_lossy(&bytes).trim() {
            "" => Err(none("the file is empty".to_owned())),
            token => Ok(Some(Token(token.to_owned()))),
        }
    }

    pub(super) fn follow(&self) -> FollowConfig {
        FollowConfig {
            report_every: self.heartbeat_every,
            silence_limit: self.silence_limit,
            max_body_bytes: MAX_BODY_BYTES,
        }
    }

    pub(super) fn feed(&self) -> FeedConfig {
        FeedConfig {
            heartbeat_every: self.heartbeat_every,
            silence_limit: self.silence_limit,
            max_body_bytes: self.frame_bytes,
            max_bytes_per_second: self.is_bounded.then_some(self.max_bytes_per_second),
        }
    }
}

/// The port for slaves of a broker whose configuration names none, as Apache's brokers have it.
pub(super) const fn port_above(broker_port: u16) -> Option<u16> {
    broker_port.checked_add(1)
}

impl Default for ReplicationConfig {
    fn default() -> Self {
        Self {
            role: BrokerRole::AsyncMaster,
            port: None,
            is_promoted: false,
            keeps_tail: false,
            master_address: None,
            allowed: Vec::new(),
            token_file: None,
            uses_tls: false,
            in_sync_replicas: None,
            slave_timeout: Duration::from_secs(3),
            max_behind_bytes: 256 << 20,
            max_not_caught_up: Duration::from_secs(15),
            heartbeat_every: Duration::from_secs(5),
            silence_limit: Duration::from_secs(20),
            sync_back_timeout: Duration::from_secs(5),
            frame_bytes: MAX_APACHE_BODY_BYTES,
            is_bounded: false,
            max_bytes_per_second: 100 << 20,
        }
    }
}
