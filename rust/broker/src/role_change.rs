//! A slave becomes the master, or a master a slave, by a command: whether it may, and that the choice is kept.
//!
//! The change itself is an orderly stop of the broker and a start in its new role, which the process does
//! ([`crate::Broker::role_ordered`]).
//!
//! # Source
//! docs/decisions/role-change-by-restart.md.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rocketpy_env::RealDisk;
use rocketpy_ha::{Epoch, Epochs};
use rocketpy_model::{PhysicalOffset, perm, system};
use rocketpy_protocol::body::{EpochInfo, HaRuntimeInfo};
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::{Command, json, signature};
use rocketpy_remoting::{CallError, Client, ClientConfig};
use rocketpy_store::StoreConfig;
use rocketpy_store::reader::StoreReader;
use rocketpy_tools::{self as tools, ToolError};
use tokio::sync::watch;
use tracing::{error, info, warn};

use crate::advertised::Advertised;
use crate::blocking::aside;
use crate::challenge::Challenge;
use crate::config_file::ConfigFile;
use crate::error::DivergedMaster;
use crate::ground::Ground;
use crate::ha::{
    CHALLENGE, EPOCHS, LEAVE, NONCE, PROOF, Past, Peers, Replication, STATUS, SharedSecret, brokers_of,
};
use crate::nonce::random_text;
use crate::refusal::Refusal;
use crate::role_order::{FILE, Kept, RoleOrder};
use crate::service::{Pace, Service, Work};
use crate::slave::{Finished, MasterMetadata, end_of_log};
use crate::{BrokerConfig, BrokerError, BrokerRole};

/// Maximum wait for an answer of another broker.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Pause between two looks for a slave that was promoted.
const LOOK_EVERY: Duration = Duration::from_secs(3);
/// Timeout of a demotion: the master stops accepting messages and waits until a slave has its whole log.
const SLAVE_HAS_ALL: Duration = Duration::from_secs(10);

/// Cuts the end of the log of a stopped broker off.
///
/// # Durability
/// What is cut off is in a folder `repair-...` of the store before.
///
/// # Errors
/// The log cannot be read or written, or somebody has the store open.
pub async fn cut_log(config: StoreConfig, at: PhysicalOffset) -> Result<(), BrokerError> {
    let cut = aside(move || {
        let reader = StoreReader::open_in(&config.root, log_dirs(&config)).map_err(ToolError::from)?;
        tools::cut(&reader, at, &mut |_| true)
    })
    .await?;
    let kept_in = cut.kept_in.unwrap_or_default();
    warn!(%at, kept_in = %kept_in.display(), "unacknowledged end of the log cut off, backup kept");
    Ok(())
}

/// Whether a slave of this master was promoted: it continues from this log, or from an earlier place of it.
/// No name server knows this broker as the master then: of two masters, not each gives way to the other. `is_empty`: this log has no record.
async fn succession(
    client: &Client,
    config: &BrokerConfig,
    own: Option<&Advertised>,
    past: &Past<RealDisk>,
    is_empty: bool,
) -> Option<Other> {
    let masters = masters(client, config).await.ok()?;
    if own.is_some_and(|own| masters.contains(&own.address())) {
        return None;
    }
    for master in masters {
        let Some((epochs, gives_way)) = master_log(client, &master, past).await else { continue };
        if past.gives_way_to(&epochs, is_empty) {
            let mut slaves = past.addresses();
            slaves.retain(|_, address| *address != master); // it was promoted
            let broker_id = free_id(client, config, slaves.into_keys().collect()).await;
            let order = RoleOrder { role: BrokerRole::Slave, broker_id, cut_at: None };
            assert!(order.has_id_of_role(), "a master gives way with the broker id of a slave: {order:?}");
            return Some(Other::Successor { master, order });
        }
        if let Some(at) = past.diverges_at(&master, &epochs).filter(|_| !gives_way) {
            return Some(Other::Diverged(DivergedMaster { master, at }));
        }
    }
    None
}

/// Whether the log of a broker that has not started has no record. A log that cannot be read counts as one with records.
async fn is_log_empty(config: &BrokerConfig) -> bool {
    let (root, dirs) = (config.store.root.clone(), log_dirs(&config.store));
    let look = move || StoreReader::open_in(&root, dirs)?.open_log()?.is_empty();
    aside(look).await.unwrap_or(false)
}

fn log_dirs(config: &StoreConfig) -> Vec<PathBuf> {
    let mut dirs = vec![config.commit_log_dir()];
    dirs.extend(config.more_commit_log_dirs.iter().cloned());
    dirs.extend(config.read_only_commit_log_dirs.iter().cloned());
    dirs
}

/// Another master of this broker's name.
enum Other {
    /// It continues from this log.
    Successor {
        master: String,
        /// That makes this broker its slave.
        order: RoleOrder,
    },
    Diverged(DivergedMaster),
}

/// The epochs of the log of a master that proves the secret, if there is one, and whether it would become the slave of this broker.
async fn master_log(client: &Client, address: &str, past: &Past<RealDisk>) -> Option<(Epochs, bool)> {
    let mut asked = Command::bare_request(request::GET_BROKER_HA_STATUS);
    let nonce = random_text();
    asked.ext.push(NONCE, &nonce);
    asked.ext.push(EPOCHS, &past.epochs().to_json());
    let answer = client.call(address, asked, TIMEOUT).await.ok()?;
    let is_proved = past.is_proved(&[STATUS, nonce.as_bytes(), &answer.body], answer.ext.get(PROOF));
    if answer.code != response::SUCCESS || !is_proved {
        return None;
    }
    let info = json::from_answer::<HaRuntimeInfo>(&answer.body).ok().filter(|info| info.master)?;
    log_of(&answer).map(|(_, epochs)| (epochs, info.gives_way))
}

/// A master whose slave was promoted becomes the slave of that one, before it serves anybody.
///
/// # Errors
/// The order cannot be kept, or a file cannot be read; another master has a history of its own.
pub(crate) async fn give_way(config: &mut BrokerConfig, configured: RoleOrder) -> Result<(), BrokerError> {
    if config.replication.role == BrokerRole::Slave || config.name_servers.is_empty() {
        return Ok(());
    }
    let names = (&*config.broker_name, config.broker_id);
    let secret = SharedSecret::of(config)?;
    let Some(past) = Past::look(RealDisk, &config.store.root, names, secret)? else { return Ok(()) };
    let client = config.new_client();
    let (master, order) = match succession(&client, config, None, &past, is_log_empty(config).await).await {
        None => return Ok(()),
        Some(Other::Diverged(master)) => return Err(master.into()),
        Some(Other::Successor { master, order }) => (master, order),
    };
    warn!(
        master,
        id = order.broker_id,
        "a slave of this broker was promoted and continues its log: this broker starts as its slave"
    );
    order.keep(&config.store.root, configured)?;
    order.apply(config);
    Ok(())
}

/// Looks whether a slave of a running master was promoted, as it may be while the master is cut off from the others or stands still.
pub(crate) struct Succession {
    changes: Arc<RoleChanges>,
    past: Arc<Past<RealDisk>>,
    client: Client,
    pace: Pace,
}

impl Succession {
    pub(crate) fn new(changes: Arc<RoleChanges>, past: Arc<Past<RealDisk>>) -> Self {
        let client = changes.ground.config().new_client();
        Self { changes, past, client, pace: Pace::new(LOOK_EVERY, LOOK_EVERY) }
    }
}

impl Service for Succession {
    fn name(&self) -> &str {
        "succession"
    }

    fn due(&self) -> Work<'_> {
        Box::pin(async {
            self.changes.ground.role().wait_for_master().await;
            self.pace.due().await;
        })
    }

    fn round(&self) -> Work<'_> {
        Box::pin(async {
            let changes = &self.changes;
            let (config, own) = (changes.ground.config(), &changes.advertised);
            let is_empty = changes.ground.store().max_physical_offset() == PhysicalOffset::ZERO;
            let found = succession(&self.client, &config, Some(own), &self.past, is_empty).await;
            let diverged = match &found {
                Some(Other::Diverged(master)) => Some(master.to_string()),
                _ => None,
            };
            let before = std::mem::replace(&mut *changes.peers.not_followed().lock(), diverged.clone());
            if let Some(rival) = diverged.filter(|diverged| before.as_ref() != Some(diverged)) {
                error!(rival, "two masters with diverged logs");
            }
            let Some(Other::Successor { master, order }) = found else { return };
            error!(
                master,
                "a slave of this broker was promoted and continues its log: this broker stops accepting messages and becomes its slave"
            );
            changes.ground.set_permission(perm::READ);
            changes.orders.send_replace(Some(order));
        })
    }
}

/// Takes the role that a command chose earlier, which wins over the configuration of then. Where the configuration says something else by now,
/// it counts, and the choice is forgotten.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn adopt_kept(config: &mut BrokerConfig) -> Result<(), BrokerError> {
    let (file, configured) = (ConfigFile::new(&config.store.root, FILE), RoleOrder::of(config));
    let Some(Kept { role, instead_of }) = file.load()? else { return Ok(()) };
    if configured != instead_of || configured == role {
        return Ok(file.remove()?);
    }
    warn!(
        %configured,
        %role,
        "role of the configuration replaced by that of the last `rocketpy ha promote` or `demote`; change the configured role to end this"
    );
    role.apply(config);
    Ok(())
}

/// Changes of the role of a running broker, one at a time.
pub(crate) struct RoleChanges {
    ground: Arc<Ground>,
    advertised: Advertised,
    peers: Peers,
    replication: Replication,
    /// What a slave takes over from its master.
    metadata: Arc<MasterMetadata>,
    /// Whoever started the broker is to stop it, and to start it in the role that is ordered here.
    orders: watch::Sender<Option<RoleOrder>>,
    /// Held by a command that is about to change the role.
    alone: tokio::sync::Mutex<()>,
    /// What the next request for a change proves.
    challenge: Challenge,
}

impl RoleChanges {
    pub(crate) fn new(
        ground: Arc<Ground>,
        advertised: Advertised,
        peers: Peers,
        replication: Replication,
        metadata: Arc<MasterMetadata>,
        orders: watch::Sender<Option<RoleOrder>>,
    ) -> Self {
        let (alone, challenge) = Default::default();
        Self { ground, advertised, peers, replication, metadata, orders, alone, challenge }
    }

    /// The text that the next request for a change has to prove; `None` without a secret.
    pub(crate) fn challenge(&self) -> Option<String> {
        self.peers.past().filter(|past| past.has_secret()).map(|_| self.challenge.text())
    }

    /// Checks that a role change comes from this machine, or from somebody who knows the token. Without a token, the user
    /// of the request decides while users are on. The addresses are both ends of its connection.
    ///
    /// # Errors
    /// It comes from another machine, without a proof.
    pub(crate) fn check_command(
        &self,
        (peer, own): (IpAddr, IpAddr),
        wanted: &WantedRole,
        proof: Option<&str>,
    ) -> Result<(), Refusal> {
        let asked = wanted.text();
        let is_proved = match self.peers.past().filter(|past| past.has_token()) {
            Some(past) => self.challenge.is_token_proved(past, &[asked.as_bytes()], proof),
            None => self.ground.config().auth.guard.is_some(),
        };
        if peer.is_loopback() || peer == own || is_proved {
            return Ok(());
        }
        Err(Refusal::RoleNotProved { peer })
    }

    /// The threads that copy the log.
    pub(crate) fn replication(&self) -> &Replication {
        &self.replication
    }

    /// The service that asks the master.
    pub(crate) fn metadata(&self) -> &Arc<MasterMetadata> {
        &self.metadata
    }

    /// Waits until another role is ordered. A broker that was just started may be ordered one before anybody waits.
    pub(crate) async fn ordered(&self) -> RoleOrder {
        let mut orders = self.orders.subscribe();
        match orders.wait_for(Option::is_some).await.map(|order| *order) {
            Ok(Some(order)) => order,
            _ => std::future::pending().await,
        }
    }

    /// Orders another role of this broker, if it may have it. The change begins soon.
    ///
    /// # Errors
    /// It may not.
    pub(crate) async fn change(&self, wanted: WantedRole) -> Result<(), Refusal> {
        let WantedRole { role, broker_id, is_forced } = wanted;
        let Ok(_alone) = self.alone.try_lock() else {
            return Err(refused("another role change is in progress".to_owned()));
        };
        let order = match (self.ground.role().is_master(), role) {
            (false, BrokerRole::Slave) => return Err(refused("this broker is already a slave".to_owned())),
            (true, BrokerRole::Slave) => demotion(self, broker_id, is_forced).await?,
            (true, _) => return Err(refused("this broker is already a master".to_owned())),
            (false, role) => promotion(self, role, is_forced).await?,
        };
        assert!(order.has_id_of_role(), "a role is ordered with a broker id of that role: {order:?}");
        info!(%order, "role change ordered by a command");
        self.orders.send_replace(Some(order));
        Ok(())
    }

    /// Another slave becomes the master: this one stops to count for the master of before. That may only stand still, and would continue to
    /// acknowledge with it what the new one does not have.
    ///
    /// # Errors
    /// The sender does not prove the secret; this broker is a master, or its role is about to change; it cannot be kept over a
    /// restart.
    pub(crate) fn leave_master(&self, proof: Option<&str>) -> Result<(), Refusal> {
        let past = self.peers.past().filter(|past| past.has_secret());
        if past.is_some_and(|past| !self.challenge.is_proved(past, &[LEAVE], proof)) {
            return Err(refused(
                "the sender did not prove the secret of haTokenFile or innerClientAuthenticationCredentials"
                    .to_owned(),
            ));
        }
        if self.ground.role().is_master() {
            return Err(refused("this broker is a master".to_owned()));
        }
        let Ok(_alone) = self.alone.try_lock() else {
            return Err(refused("another role change is in progress".to_owned()));
        };
        Ok(self.replication.leave_master()?)
    }
}

/// Role that a command orders for this broker.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WantedRole {
    pub(crate) role: BrokerRole,
    pub(crate) broker_id: Option<i64>,
    pub(crate) is_forced: bool,
}

impl WantedRole {
    /// What a command proves.
    fn text(&self) -> String {
        let role = json::to_vec(&self.role);
        signature::role_change(
            String::from_utf8_lossy(&role).trim_matches('"'),
            self.broker_id,
            self.is_forced,
        )
    }
}

/// The role of this name.
///
/// # Errors
/// There is no such role.
pub(crate) fn role(text: &str) -> Result<BrokerRole, Refusal> {
    let wanted = "ASYNC_MASTER, SYNC_MASTER or SLAVE";
    json::from_slice(format!("\"{text}\"").as_bytes()).map_err(|_| Refusal::Value {
        field: "brokerRole",
        wanted,
        value: text.to_owned(),
    })
}

fn refused(why: String) -> Refusal {
    Refusal::NoRoleChange { why }
}

/// Takes over for a last time what the former master has, where that still answers: it may have been demoted a moment ago.
///
/// # Errors
/// The master answers, or nobody knows whether it does.
async fn promotion(changes: &RoleChanges, role: BrokerRole, is_forced: bool) -> Result<RoleOrder, Refusal> {
    let order = RoleOrder { role, broker_id: system::MASTER_ID, cut_at: None };
    let client = changes.ground.config().new_client();
    if !is_forced {
        if changes.ground.role().has_diverged() {
            let why = changes.peers.not_followed().lock().clone();
            let why = why.unwrap_or_else(|| "the logs diverge".to_owned());
            return Err(refused(format!(
                "the log of this slave differs from the last master that it reached, which may have acknowledged messages that are missing \
                 here: {why}; force the promotion if no other broker has more"
            )));
        }
        if changes.replication.has_left_master() {
            return Err(refused(
                "this slave left its master less than 30 s ago, because another one was being promoted: check `rocketpy ha status` and try again, or force the promotion".to_owned(),
            ));
        }
        match living_master(&client, &changes.ground.config(), &changes.advertised).await {
            Ok(None) => {}
            Ok(Some(address)) => {
                return Err(refused(format!(
                    "the master at {address} answers: demote it first (`rocketpy ha demote`), or stop it"
                )));
            }
            Err(cause) => {
                return Err(refused(format!(
                    "cannot find out whether a master is running: {cause}; force the promotion if none is"
                )));
            }
        }
    }
    let has_all = changes.metadata.finish(TIMEOUT).await == Finished::All;
    let own_end = changes.ground.store().max_physical_offset();
    let heard = changes.peers.past().map(|past| past.master_end());
    let missing = changes.metadata.missing_end();
    if !is_forced && let Some(end) = missing.max(heard).filter(|end| *end > own_end) {
        return Err(refused(format!(
            "the master had the log up to {end}, this slave only up to {own_end}: start the master again, promote a slave that has more, or \
             force the promotion and lose the missing messages"
        )));
    }
    // The first look is before anything changes, the second one once no other slave gets more of the former master.
    for code in [request::GET_BROKER_HA_STATUS, request::LEAVE_MASTER] {
        let standing = check_other_slaves(&client, changes, code).await;
        if !is_forced {
            standing?;
        }
    }
    if !has_all {
        warn!(
            "former master did not answer completely: its last changes of topics, groups, offsets and progress may be missing"
        );
    }
    Ok(order)
}

/// The address of another broker than this one that is registered as master of this one's name, and answers.
///
/// # Errors
/// No name server answers.
async fn living_master(
    client: &Client,
    config: &BrokerConfig,
    own: &Advertised,
) -> Result<Option<String>, String> {
    let mut masters = masters(client, config).await?;
    masters.remove(&own.address());
    for address in masters {
        // Whatever it answers: it is there.
        if client.call(&address, Command::bare_request(request::GET_BROKER_HA_STATUS), TIMEOUT).await.is_ok()
        {
            return Ok(Some(address));
        }
    }
    Ok(None)
}

/// Where the masters of this broker's name answer, as the name servers know them, which may not be the same.
///
/// # Errors
/// No name server answers.
async fn masters(client: &Client, config: &BrokerConfig) -> Result<BTreeSet<String>, String> {
    let mut heard: Option<BTreeSet<_>> = None;
    for name_server in &config.name_servers {
        if let Ok(mut brokers) = brokers_of(client, config, name_server, TIMEOUT).await {
            heard.get_or_insert_default().extend(brokers.remove(&system::MASTER_ID));
        }
    }
    heard.ok_or_else(|| "no name server answers (namesrvAddr)".to_owned())
}

/// Asks all other slaves of this name for their logs, by GET_BROKER_HA_STATUS or LEAVE_MASTER.
///
/// # Errors
/// One has more, or may: it does not answer and may only stand still. All are asked nevertheless.
async fn check_other_slaves(client: &Client, changes: &RoleChanges, code: i32) -> Result<(), Refusal> {
    let config = changes.ground.config();
    let own = changes.advertised.address();
    let mut slaves = BTreeSet::new();
    for name_server in &config.name_servers {
        let mut brokers = brokers_of(client, &config, name_server, TIMEOUT).await.unwrap_or_default();
        brokers.remove(&system::MASTER_ID);
        slaves.extend(brokers.into_values().filter(|address| *address != own));
    }
    let mut standing = Ok(());
    for address in slaves {
        let found = match ask_slave(client, changes.peers.past(), &address, code).await {
            Ok(answer)
                if [response::SUCCESS, response::REQUEST_CODE_NOT_SUPPORTED].contains(&answer.code) =>
            {
                match log_of(&answer).filter(|(_, epochs)| !epochs.list().is_empty()) {
                    Some((end, epochs)) => compare(changes, &address, end, &epochs),
                    // One of Apache's tells no epochs, and not its own end there.
                    None => match tokio::time::timeout(TIMEOUT, end_of_log(client, &address)).await {
                        Ok(Ok(end)) => compare(changes, &address, end, &Epochs::default()),
                        _ => {
                            Err(refused(format!("the slave at {address} did not report the end of its log")))
                        }
                    },
                }
            }
            Ok(answer) => {
                Err(refused(format!("the slave at {address}: {}", answer.remark.unwrap_or_default())))
            }
            Err(CallError::Connect { kind: ErrorKind::ConnectionRefused, .. }) => Ok(()), // it does not run
            Err(error) => Err(refused(format!(
                "the slave at {address} does not answer ({error}). If it is only suspended, or cut off together with the former master, both \
                 may continue to acknowledge messages: stop it, or force the promotion if it no longer runs"
            ))),
        };
        standing = standing.and(found);
    }
    standing
}

/// Sends GET_BROKER_HA_STATUS or LEAVE_MASTER to a slave, the latter with the proof that it wants.
async fn ask_slave(
    client: &Client,
    past: Option<&Arc<Past<RealDisk>>>,
    address: &str,
    code: i32,
) -> Result<Command, CallError> {
    let mut asked = Command::bare_request(code);
    if let Some(past) = past.filter(|past| past.has_secret() && code == request::LEAVE_MASTER) {
        let status =
            client.call(address, Command::bare_request(request::GET_BROKER_HA_STATUS), TIMEOUT).await?;
        let challenge = status.ext.get(CHALLENGE).unwrap_or_default();
        let proof = past.prove(&[challenge.as_bytes(), LEAVE]).unwrap_or_default();
        asked.ext.push(PROOF, &proof);
    }
    client.call(address, asked, TIMEOUT).await
}

/// The end of a log and its epochs, as a broker tells them.
fn log_of(answer: &Command) -> Option<(PhysicalOffset, Epochs)> {
    let info = json::from_answer::<HaRuntimeInfo>(&answer.body).ok()?;
    let epoch = |EpochInfo { id, start, after_loss }| {
        let id = u64::from_str_radix(&id, 16).ok()?;
        Some(Epoch { id, start: PhysicalOffset::from_wire(start)?, after_loss })
    };
    let epochs = info.epochs.into_iter().map(epoch).collect::<Option<_>>().and_then(Epochs::of)?;
    Some((PhysicalOffset::from_wire(info.master_commit_log_max_offset)?, epochs))
}

/// Whether this slave may be promoted although another slave has such a log.
///
/// # Errors
/// The other one has more of the log, or a later life of it.
fn compare(
    changes: &RoleChanges,
    address: &str,
    end: PhysicalOffset,
    epochs: &Epochs,
) -> Result<(), Refusal> {
    let (own_end, own) =
        (changes.ground.store().max_physical_offset(), changes.peers.past().map(|past| past.epochs()));
    let own = own.unwrap_or_default();
    let at = own.common_end(own_end, epochs, end).unwrap_or(own_end.min(end));
    if end <= at {
        return Ok(());
    }
    // A later life is of a master that was chosen since: what the other one has instead was given up then.
    match (own.continued_at(epochs).is_some(), epochs.continued_at(&own).is_some()) {
        (false, true) => Ok(()),
        _ if own_end <= at => Err(refused(format!(
            "the slave at {address} has the log up to {end}, this slave up to {own_end}: promote that slave, or force this promotion and \
             lose its additional messages"
        ))),
        (true, false) => Err(refused(format!(
            "the slave at {address} has a later epoch of the log, from {at} on, where this slave has different bytes: promote that slave"
        ))),
        _ => Err(refused(format!(
            "the logs of the slave at {address} and of this slave diverge at {at}, and their epochs do not show which one is valid: compare \
             them (`rocketpy store diff`), and force the promotion of the valid one"
        ))),
    }
}

/// Takes no messages any more, and waits until a slave has all.
///
/// # Errors
/// None has, or the id is taken. The broker takes messages again.
async fn demotion(
    changes: &RoleChanges,
    broker_id: Option<i64>,
    is_forced: bool,
) -> Result<RoleOrder, Refusal> {
    let broker_id = match broker_id.map(u64::try_from) {
        Some(Ok(id)) if id != system::MASTER_ID => id,
        Some(_) => {
            let (field, wanted) = ("brokerId", "1 or more");
            return Err(Refusal::Value { field, wanted, value: broker_id.unwrap_or_default().to_string() });
        }
        None => {
            let client = Client::new(ClientConfig::default());
            let slaves = changes.peers.past().map(|past| past.addresses()).unwrap_or_default();
            free_id(&client, &changes.ground.config(), slaves.into_keys().collect()).await
        }
    };
    let order = RoleOrder { role: BrokerRole::Slave, broker_id, cut_at: None };
    if !is_forced && changes.peers.slaves().all().is_empty() {
        return Err(refused("no slave is connected to this master: force the demotion and lose the messages that no slave has".to_owned()));
    }
    let before = changes.ground.set_permission(perm::READ);
    let (slaves, store) = (changes.peers.slaves().clone(), changes.ground.store().clone());
    let has_all = aside(move || {
        let within = if is_forced { Duration::ZERO } else { SLAVE_HAS_ALL };
        slaves.wait_until_one_has(|| store.max_physical_offset(), within)
    });
    if has_all.await || is_forced {
        return Ok(order);
    }
    changes.ground.set_permission(before);
    // Topics that were registered meanwhile have a read-only route: the next registration replaces it.
    changes.ground.topics().move_version();
    Err(refused(format!(
        "no slave had the whole log within {} s: check `rocketpy ha status`, or force the demotion and lose the messages that no slave has",
        SLAVE_HAS_ALL.as_secs()
    )))
}

/// The smallest id from 1 on that no broker of this name is registered with. Those of slaves that are away now are taken too.
async fn free_id(client: &Client, config: &BrokerConfig, mut taken: Vec<u64>) -> u64 {
    for name_server in &config.name_servers {
        taken.extend(brokers_of(client, config, name_server, TIMEOUT).await.unwrap_or_default().into_keys());
    }
    (1..).find(|id| !taken.contains(id)).unwrap_or(1)
}

#[cfg(test)]
mod tests;
