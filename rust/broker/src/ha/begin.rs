//! How a slave finds its master, and where its log begins.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rocketpy_env::{Disk, RealDisk};
use rocketpy_ha::{FrameHead, HEAD_BYTES, encode_report};
use rocketpy_model::{PhysicalOffset, system};
use rocketpy_protocol::body::ClusterInfo;
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::header::{ExchangeHaInfoHeader, Header};
use rocketpy_protocol::{Command, json};
use rocketpy_remoting::{Client, ClientTls, Socket};
use tokio::time::Instant;
use tracing::{debug, info};

use super::Replication;
use super::config::port_above;
use crate::ground::Ground;
use crate::registration::Registrar;
use crate::service::{Pace, Service, Work};
use crate::slave::MasterAddress;
use crate::{BrokerConfig, BrokerError};

/// Maximum wait for one answer.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Pause before the next search for the master.
const SEARCH_EVERY: Duration = Duration::from_secs(3);
/// Timeout for the search of a master by a slave without a log; then its start fails.
const SEARCH_LIMIT: Duration = Duration::from_secs(10);
/// Maximum wait for the first frame of a master: Apache's send nothing but a heartbeat every 5 s when they have nothing.
const FIRST_FRAME: Duration = Duration::from_secs(15);

/// A master that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundMaster {
    /// `host:port` for requests.
    pub(super) address: String,
    /// `host:port` for slaves.
    pub(super) slave_address: String,
    /// Where its log begins, if it gives a slave all of it; Apache's give no more than their last file.
    pub(super) log_start: Option<PhysicalOffset>,
    /// How far its log is flushed, if it says so.
    pub(super) flushed: Option<i64>,
}

/// Asks the name servers for the master of this broker's name, and the master where slaves connect.
///
/// # Errors
/// Why there is none: for the log.
async fn find_master(client: &Client, config: &BrokerConfig) -> Result<FoundMaster, String> {
    let name = &config.broker_name;
    let mut reason = "there is no name server (namesrvAddr)".to_owned();
    for name_server in &config.name_servers {
        match brokers_of(client, config, name_server, TIMEOUT).await {
            Ok(mut brokers) => match brokers.remove(&system::MASTER_ID) {
                Some(address) => return ask_master(client, config, address).await,
                None => {
                    reason = format!(
                        "name server {name_server} has no master {name} in cluster {}",
                        config.cluster_name
                    )
                }
            },
            Err(cause) => reason = cause,
        }
    }
    Err(reason)
}

/// The brokers of this broker's name that a name server knows, by their ids.
///
/// # Errors
/// Why it tells none: for the log.
pub(crate) async fn brokers_of(
    client: &Client,
    config: &BrokerConfig,
    name_server: &str,
    timeout: Duration,
) -> Result<BTreeMap<u64, String>, String> {
    let asked = Command::bare_request(request::GET_BROKER_CLUSTER_INFO);
    let answer = client.call(name_server, asked, timeout).await.map_err(|error| error.to_string())?;
    let mut info = json::from_answer::<ClusterInfo>(&answer.body)
        .map_err(|error| format!("cannot decode the answer of name server {name_server}: {error}"))?;
    let found = info.broker_addr_table.remove(&config.broker_name);
    let found = found.filter(|found| found.cluster == config.cluster_name);
    Ok(found.map(|found| found.broker_addrs.into_iter().collect()).unwrap_or_default())
}

async fn ask_master(client: &Client, config: &BrokerConfig, address: String) -> Result<FoundMaster, String> {
    let asked = ExchangeHaInfoHeader {
        master_ha_address: None,
        master_flush_offset: None,
        master_address: None,
        log_start: None,
    };
    let asked = Command::request(request::EXCHANGE_BROKER_HA_INFO, &asked);
    let answer = client.call(&address, asked, TIMEOUT).await.map_err(|error| error.to_string())?;
    let told = ExchangeHaInfoHeader::read(&answer.ext).ok().filter(|_| answer.code == response::SUCCESS);
    let told_address = told.and_then(|told| told.master_ha_address).filter(|told| !told.is_empty());
    let slave_address = match (&config.replication.master_address, told_address) {
        (Some(configured), _) => configured.clone(),
        (None, Some(told)) => told.to_owned(),
        // Apache's before 5.0 know no such question, and a master without a port for slaves has no address.
        (None, None) if told.is_some() => {
            return Err(format!("{address} has no port for slaves (haListenPort)"));
        }
        (None, None) => address_above(&address).ok_or_else(|| format!("{address} is not host:port"))?,
    };
    let log_start = told.and_then(|told| told.log_start).and_then(PhysicalOffset::from_wire);
    let flushed = told.and_then(|told| told.master_flush_offset);
    Ok(FoundMaster { address, slave_address, log_start, flushed })
}

/// Where a master has its port for slaves that tells none.
fn address_above(address: &str) -> Option<String> {
    let (host, port) = address.rsplit_once(':')?;
    Some(format!("{host}:{}", port_above(port.parse().ok()?)?))
}

/// Size of the commit log files of a broker, Apache's or RocketPy's; `None` if it does not say.
async fn log_file_bytes(client: &Client, address: &str) -> Option<u64> {
    let asked = Command::bare_request(request::GET_BROKER_CONFIG);
    let answer =
        client.call(address, asked, TIMEOUT).await.ok().filter(|answer| answer.code == response::SUCCESS)?;
    let text = String::from_utf8_lossy(&answer.body);
    text.lines().find_map(|line| line.trim().strip_prefix("mappedFileSizeCommitLog=")?.parse().ok())
}

/// Where the log of a slave begins that has none: at the start of its master's, or where Apache's masters begin. `None` for every other
/// broker, and for a demoted master while there is no other one: its log was empty from the first offset.
///
/// # Errors
/// No master was found in time; its log files have another size than this slave's would have.
pub(crate) async fn where_to_begin(
    config: &BrokerConfig,
    is_demoted: bool,
) -> Result<Option<PhysicalOffset>, BrokerError> {
    let may_find = !config.name_servers.is_empty() || config.replication.master_address.is_some();
    if config.broker_id == system::MASTER_ID || !may_find || has_log(config)? {
        return Ok(None);
    }
    info!(broker = config.broker_name, "slave has no log yet, searching for its master");
    let (client, deadline) = (config.new_client(), Instant::now() + SEARCH_LIMIT);
    loop {
        let found = find_master(&client, config).await;
        if let Ok(FoundMaster { address, .. }) = &found {
            let own = config.store.commit_log_file_size;
            if let Some(master) = log_file_bytes(&client, address).await.filter(|master| *master != own) {
                return Err(BrokerError::LogFileBytes { address: address.clone(), master, own });
            }
        }
        let found = match found {
            Ok(FoundMaster { log_start: Some(start), .. }) => Ok(start),
            Ok(found) => first_frame(found.slave_address, config.tls_to_master()).await,
            Err(reason) => match &config.replication.master_address {
                Some(configured) => first_frame(configured.clone(), config.tls_to_master()).await,
                None => Err(reason),
            },
        };
        let reason = match found {
            Ok(begin) => {
                info!(%begin, "start of this slave's log chosen");
                return Ok(Some(begin));
            }
            Err(reason) => reason,
        };
        debug!(reason, "master not found yet");
        if is_demoted {
            return Ok(None);
        }
        if Instant::now() + SEARCH_EVERY > deadline {
            return Err(BrokerError::NoMaster { broker: config.broker_name.clone(), reason });
        }
        tokio::time::sleep(SEARCH_EVERY).await;
    }
}

/// Whether the store of a configuration has a log.
fn has_log(config: &BrokerConfig) -> Result<bool, BrokerError> {
    for folder in config.store.commit_log_dirs() {
        match RealDisk.list(&folder) {
            Ok(files) if !files.is_empty() => return Ok(true),
            Ok(_) => {}
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(false)
}

/// Offset at which a master starts to send after the report of an empty log.
async fn first_frame(master: String, tls: Option<Arc<ClientTls>>) -> Result<PhysicalOffset, String> {
    let ask = move || -> std::io::Result<Option<FrameHead>> {
        let address = master.to_socket_addrs()?.next().ok_or(std::io::ErrorKind::NotFound)?;
        let socket = TcpStream::connect_timeout(&address, TIMEOUT)?;
        let socket = match &tls {
            Some(tls) => Socket::connect(socket, tls, &master, TIMEOUT)?,
            None => Socket::plain(socket),
        };
        (&socket).write_all(&encode_report(PhysicalOffset::ZERO))?;
        let (mut head, mut filled, began) = ([0; HEAD_BYTES], 0, std::time::Instant::now());
        while filled < HEAD_BYTES {
            let left = FIRST_FRAME.saturating_sub(began.elapsed());
            if left.is_zero() {
                return Err(std::io::ErrorKind::TimedOut.into());
            }
            socket.set_read_timeout(Some(left))?;
            match (&socket).read(&mut head[filled..])? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                count => filled += count,
            }
        }
        Ok(FrameHead::decode(&head))
    };
    match tokio::task::spawn_blocking(ask).await {
        Ok(Ok(Some(head))) => Ok(head.at),
        Ok(Ok(None)) => Err("the master sends no frames: another program may listen there".to_owned()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}

/// Keeps the address of a slave's master.
pub(crate) struct MasterSearch {
    ground: Arc<Ground>,
    registrar: Option<Arc<Registrar>>,
    master: Arc<MasterAddress>,
    replication: Replication,
    client: Client,
    pace: Pace,
    /// Whether this slave is withdrawn from the name servers.
    is_withdrawn: AtomicBool,
    /// Master of Apache's, and the size of its log files.
    apache_master: Mutex<Option<(String, u64)>>,
}

impl MasterSearch {
    pub(crate) fn new(
        ground: Arc<Ground>,
        registrar: Option<Arc<Registrar>>,
        master: Arc<MasterAddress>,
        replication: Replication,
    ) -> Self {
        let pace = Pace::new(Duration::ZERO, SEARCH_EVERY);
        let (client, is_withdrawn) = (ground.config().new_client(), AtomicBool::default());
        Self {
            ground,
            registrar,
            master,
            replication,
            client,
            pace,
            is_withdrawn,
            apache_master: Mutex::default(),
        }
    }

    /// Size of the log files of a master of Apache's that are not as long as this slave's. RocketPy's masters say it in their greeting.
    async fn other_file_bytes(&self, found: &FoundMaster) -> Option<u64> {
        if found.log_start.is_some() {
            return None;
        }
        let known = self.apache_master.lock().clone().filter(|(address, _)| *address == found.address);
        let file_bytes = match known {
            Some((_, file_bytes)) => file_bytes,
            None => log_file_bytes(&self.client, &found.address).await?,
        };
        *self.apache_master.lock() = Some((found.address.clone(), file_bytes));
        (file_bytes != self.ground.config().store.commit_log_file_size).then_some(file_bytes)
    }
}

impl Service for MasterSearch {
    fn name(&self) -> &str {
        "search for the master"
    }

    fn due(&self) -> Work<'_> {
        Box::pin(async {
            self.ground.role().wait_for_slave().await;
            self.pace.due().await;
        })
    }

    fn round(&self) -> Work<'_> {
        Box::pin(async {
            let config = self.ground.config().clone();
            let has_diverged = self.ground.role().has_diverged();
            if self.is_withdrawn.swap(has_diverged, Ordering::AcqRel) != has_diverged
                && let Some(registrar) = &self.registrar
            {
                registrar.register_again();
            }
            match find_master(&self.client, &config).await {
                Ok(found) => {
                    self.master.set(Some(&found.address));
                    match self.other_file_bytes(&found).await {
                        None => self.replication.follow(&found),
                        Some(file_bytes) => self.replication.reject(&found, file_bytes),
                    }
                }
                // The last known one counts until there is another.
                Err(reason) => {
                    debug!(reason, "master not found");
                    self.replication.follow_configured(&config);
                }
            }
        })
    }
}
