//! Start, run and stop of a broker.

mod shown;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs, UdpSocket};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rocketpy_env::{RealDisk, random_u64};
use rocketpy_model::{PhysicalOffset, name, system};
use rocketpy_protocol::message_id::UniqueKeys;
use rocketpy_remoting::{AnswerObserver, MemoryBudget, RequestCheck, Reserved, Server, ServerConfig};
use rocketpy_store::{AT_OPEN, Arrival, Store, StoreConfig, StoreError, StoreListener};
use tokio::runtime::Handle;
use tokio::sync::{OnceCell, Semaphore, watch};
use tracing::{error, info, warn};

use crate::advertised::Advertised;
use crate::blocking::{aside, blocking, on_disk};
use crate::config_file::make_config_folder;
use crate::delay::{self, DelayDelivery};
use crate::desk::{Desk, Endpoints};
use crate::exposition::Exposition;
use crate::ground::{Ground, hot_bytes};
use crate::ha::{
    BrokerRole, MasterSearch, Past, Peers, Replication, SlaveProgress, begin_life, where_to_begin,
};
use crate::members::Members;
use crate::metrics::{Metric, RequestTimes};
use crate::parts::{Foundation, Parts};
use crate::process::{self, Processor};
use crate::refusal::Refusal;
use crate::registration::{Identity, Registrar};
use crate::role::{OwnLog, Role, RoleCell};
use crate::role_change::{RoleChanges, Succession};
use crate::service::Services;
use crate::service::background::{
    ClientExpiry, HeldRequestWatch, HeldSendWatch, OffsetPersistence, QuotaWatch, Sampling,
};
use crate::slave::MasterMetadata;
use crate::timer::{self, TimerDelivery, TimerProgress};
use crate::transaction::{TransactionCheck, settle_at_stop};
use crate::{BrokerConfig, BrokerError, RoleOrder, lost, role_change};

/// Most sends that wait for the disk or for dispatch at a time, each on a thread. Tokio has 512 threads for work that blocks and for
/// the connections of threads that do: with all of them taken, nobody is served before a wait is over.
pub(crate) const MAX_WAITING_SENDS: usize = 256;
/// How long connections get to take their last answers.
const DRAIN: Duration = Duration::from_millis(150);
/// How long the rounds of services that are under way get to end.
const SERVICES_END: Duration = Duration::from_millis(150);
/// How long the slaves get to take what is written.
const SLAVES_END: Duration = Duration::from_secs(2);
/// How long the work that requests left behind gets to end.
const TASKS_END: Duration = Duration::from_millis(150);

/// A running broker.
#[doc(alias = "BrokerController")]
pub struct Broker {
    desk: Arc<Desk>,
    registrar: Option<Arc<Registrar>>,
    server: Server,
    /// On `port - 2`, when asked for and free.
    vip_server: Option<Server>,
    services: Services,
    exposition: Exposition,
    /// Set once everything has stopped.
    stopped: OnceCell<()>,
    failed: watch::Receiver<Option<StoreError>>,
    local_addr: SocketAddr,
    advertised: String,
}

impl Broker {
    /// Opens the store, listens, and registers at the name servers in the background.
    ///
    /// # Errors
    /// The store cannot be opened, a configuration file cannot be read, the address cannot be listened on.
    pub async fn start(mut config: BrokerConfig) -> Result<Self, BrokerError> {
        let configured = RoleOrder::of(&config);
        role_change::adopt_kept(&mut config)?;
        role_change::give_way(&mut config, configured).await?;
        check(&config)?;
        let host = resolve(&config).await?;
        let memory = config.memory.take().unwrap_or_else(|| MemoryBudget::new(config.max_peer_bytes));
        config.memory = Some(memory);
        // Before the store: a failed start leaves no folder behind.
        let address = Reserved::new(config.listen)?;
        let local_addr = address.local_addr()?;
        let slave_listener = config.replication.reserve_port(config.listen)?;
        let endpoints = endpoints(host, local_addr, slave_listener.as_ref())?;
        let is_demoted = configured.role != BrokerRole::Slave;
        if let Some(begin) = where_to_begin(&config, is_demoted).await? {
            config.store.begin_at = Some(begin);
        }
        let role = Arc::new(RoleCell::new(Role::of_id(config.broker_id)));
        let registrar = registrar(&config, &endpoints, role.clone())?;
        let (parts, past) = open(config, role, registrar.clone(), &endpoints.advertised).await?;
        let started = start_serving(&parts, past, registrar.clone(), endpoints, (address, slave_listener));
        let (desk, server, vip_server, failed) = started.inspect_err(|_| close(parts.ground.store()))?;
        let services = start_services(&desk, &parts, registrar.as_ref());
        let (config, advertised) = (desk.ground.config(), desk.endpoints.advertised.address());
        info!(%local_addr, advertised, broker = config.broker_name, cluster = config.cluster_name, "broker started");
        drop(config);
        let (stopped, exposition) = (OnceCell::new(), Exposition::new(desk.clone()));
        Ok(Self {
            desk,
            registrar,
            server,
            vip_server,
            services,
            exposition,
            stopped,
            failed,
            local_addr,
            advertised,
        })
    }

    /// The address that listens, with the real port.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// The address that listens for slaves, when one does.
    pub fn slave_addr(&self) -> Option<SocketAddr> {
        self.desk.role_changes.replication().slave_addr()
    }

    /// `host:port` as announced to the name servers.
    pub fn advertised(&self) -> &str {
        &self.advertised
    }

    /// Waits until every name server took the first registration; false when the time is up.
    pub async fn registered(&self, within: Duration) -> bool {
        match &self.registrar {
            Some(registrar) => registrar.registered(within).await,
            None => true,
        }
    }

    /// Says where the master is, `host:port`, of whose log this broker's is a beginning, and from which it takes topics, groups, offsets and
    /// progress while it is a slave; `None`: that is not known.
    pub fn set_master_address(&self, address: Option<&str>) {
        self.desk.peers.master().set(address);
        self.desk.ground.role().set_log(if address.is_some() { OwnLog::Followed } else { OwnLog::Unchecked });
    }

    /// The configuration as it is now.
    pub fn config(&self) -> Arc<BrokerConfig> {
        self.desk.ground.config().clone()
    }

    /// Waits until a command wants another role of this broker. Whoever started it is to stop it then, and to start it in that role.
    pub async fn role_ordered(&self) -> RoleOrder {
        self.desk.role_changes.ordered().await
    }

    /// Does one round of a background service now, whenever its next one is due; false when there is no such service,
    /// or when the round panics, which the log says.
    ///
    /// The services are `client expiry`, `confirm offset`, `delay delivery`, `held requests`, `held sends`, `metadata of the master`, `offset persistence`, `progress of
    /// slaves`, `quotas`, `sampling`, `search for the master`, `succession`, `timer delivery`, `timer progress`, `transaction check`, and `registration at
    /// ADDRESS` for each name server.
    pub async fn step(&self, service: &str) -> bool {
        self.services.step(service).await
    }

    /// Waits for the failed flush after which this broker acknowledges nothing more.
    pub async fn failed(&self) -> StoreError {
        let mut failed = self.failed.clone();
        loop {
            if let Some(error) = failed.borrow_and_update().clone() {
                return error;
            }
            if failed.changed().await.is_err() {
                // The store is gone, and cannot fail any more.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Stops in order: ends the services, unregisters, answers what is held, closes the connections, writes the tables,
    /// closes the store. Every further call waits until that is done.
    ///
    /// # Durability
    /// On return everything acknowledged is durable.
    ///
    /// # Cancel safety
    /// When the future is dropped before it is ready, the next call does what is left.
    pub async fn shutdown(&self) {
        self.stopped.get_or_init(|| self.stop()).await;
    }

    async fn stop(&self) {
        self.desk.watched.is_stopping.store(true, Ordering::Release);
        let Desk { ground, acks, held, .. } = &*self.desk;
        self.services.stop_all(SERVICES_END).await;
        if let Some(registrar) = &self.registrar {
            registrar.unregister().await;
        }
        // Questions wait on: before dispatch has reached them, an answer would leave out acknowledged messages.
        process::quota::give_up(&self.desk);
        process::held::resume_all(&self.desk, |held| held.for_messages()).await;
        ground.tasks().join(TASKS_END).await;
        ground.store().request_flush(ground.store().max_physical_offset());
        match &self.vip_server {
            Some(vip) => drop(tokio::join!(self.server.shutdown(DRAIN), vip.shutdown(DRAIN))),
            None => self.server.shutdown(DRAIN).await,
        }
        // Dispatch did not come in time: their senders get an error.
        drop(held.all());
        ground.tasks().join(TASKS_END).await;
        let [for_flush, for_slaves] = acks.held();
        for_flush.give_up_all("the broker stopped before the flush; the message may be stored");
        for_slaves.give_up_all("the broker stopped before slaves had the message; it is stored here");
        // What a slave keeps of these came from its master, and is written already.
        let is_master = ground.role().is_master();
        if is_master {
            let transactions = self.desk.transactions.clone();
            aside(move || settle_at_stop(&transactions)).await;
        }
        write_tables(ground, &self.desk.members).await;
        if is_master {
            let (delays, timers) = (self.desk.delays.clone(), self.desk.timers.clone());
            let runtime = Handle::current();
            aside(move || {
                timer::deliver_at_stop(&timers, &runtime);
                delay::write_at_stop(&delays);
                timer::settle_at_stop(&timers);
            })
            .await;
        }
        let desk = self.desk.clone();
        aside(move || {
            desk.role_changes.replication().stop(SLAVES_END);
            if let Some(Err(error)) = desk.peers.past().map(|past| past.settle()) {
                warn!(%error, "replication.json not written");
            }
            close(desk.ground.store());
        })
        .await;
        info!(local_addr = %self.local_addr, "broker stopped");
    }
}

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broker").field("local_addr", &self.local_addr).finish_non_exhaustive()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.services.abort();
        self.desk.role_changes.replication().stop(Duration::ZERO);
        close(self.desk.ground.store());
    }
}

/// The address that goes into records, and the name that goes into routes.
#[derive(Debug, Clone)]
struct Host {
    ip: IpAddr,
    name: String,
}

/// # Errors
/// A name is not one of a cluster or broker, or role and id contradict each other.
fn check(config: &BrokerConfig) -> Result<(), BrokerError> {
    name::check_cluster(&config.cluster_name)?;
    name::check_broker(&config.broker_name)?;
    if (config.replication.role == BrokerRole::Slave) != (config.broker_id != system::MASTER_ID) {
        return Err(BrokerError::RoleAndId(config.broker_id));
    }
    Ok(())
}

/// How clients and slaves reach a broker whose addresses are bound.
fn endpoints(
    host: Host,
    local_addr: SocketAddr,
    slave_listener: Option<&TcpListener>,
) -> Result<Endpoints, BrokerError> {
    let store_host = SocketAddr::new(host.ip, local_addr.port());
    let advertised = Advertised { store_host, host: host.name, port: local_addr.port() };
    let port = slave_listener.map(TcpListener::local_addr).transpose();
    let port = port.map_err(|source| BrokerError::ListenForSlaves { addr: local_addr, source })?;
    let slaves = port.map(|addr| advertised.with_port(addr.port()));
    Ok(Endpoints { advertised, slaves })
}

/// The name servers of the broker, if it has any.
///
/// # Errors
/// The token cannot be read.
fn registrar(
    config: &BrokerConfig,
    endpoints: &Endpoints,
    role: Arc<RoleCell>,
) -> Result<Option<Arc<Registrar>>, BrokerError> {
    if config.name_servers.is_empty() {
        return Ok(None);
    }
    let token = config.replication.token()?;
    let identity = Identity {
        cluster_name: config.cluster_name.clone(),
        broker_name: config.broker_name.clone(),
        broker_addr: endpoints.advertised.address(),
        ha_addr: endpoints.slaves.clone().unwrap_or_default(),
        member_proof: token.map(|token| token.of_member(&config.broker_name)),
        period: config.register_period.clamp(Duration::from_secs(10), Duration::from_secs(60)),
        timeout: config.register_timeout,
    };
    let client = config.new_client();
    Ok(Some(Arc::new(Registrar::new(client, &config.name_servers, identity, role))))
}

/// Opens the store and the parts over it, on threads that serve no connections.
///
/// # Errors
/// A file cannot be read or written; a slave has more of the log than this master.
async fn open(
    config: BrokerConfig,
    role: Arc<RoleCell>,
    registrar: Option<Arc<Registrar>>,
    advertised: &Advertised,
) -> Result<(Parts, Option<Arc<Past<RealDisk>>>), BrokerError> {
    let (opening, store_host, runtime) = (config.clone(), advertised.store_host, Handle::current());
    let store = opened(move || open_store(&opening, store_host)).await?;
    // Before the tables are read, which follow from the log.
    let past = begin_life(&config, &store).await.inspect_err(|_| close(&store))?;
    // The log of who becomes a master may end before that of the one before it did, though it was stopped in order.
    let was_slave = past.as_ref().is_some_and(|past| past.was_slave());
    let is_promoted = config.broker_id == system::MASTER_ID && was_slave;
    let is_in_doubt = !store.recovery().clean_exit || is_promoted;
    let opening = move || {
        let _runtime = runtime.enter();
        let unique_keys = UniqueKeys::new(store_host.ip(), std::process::id(), random_u64() as u32);
        let (runtime, hot_bytes) = (Handle::current(), hot_bytes());
        Parts::open(Foundation {
            config,
            store,
            role,
            registrar,
            unique_keys,
            runtime,
            is_in_doubt,
            hot_bytes,
        })
    };
    let parts = opened(opening).await?;
    // Each of the tables has said by now which messages wait.
    parts.ground.store().set_waiting_from(AT_OPEN, None);
    if let Some(past) = past.as_ref().filter(|_| is_promoted) {
        parts.ground.topics().begin_as_master();
        begin_as_master(&parts.ground, past).await;
    }
    parts.ground.sample(Instant::now());
    Ok((parts, past))
}

/// What a broker serves with: its parts, its servers, and the failed flush that its listener is told of.
type Serving = (Arc<Desk>, Server, Option<Server>, watch::Receiver<Option<StoreError>>);

/// Copies the log and serves requests.
///
/// # Errors
/// An address cannot be listened on.
fn start_serving(
    parts: &Parts,
    past: Option<Arc<Past<RealDisk>>>,
    registrar: Option<Arc<Registrar>>,
    endpoints: Endpoints,
    (address, slave_listener): (Reserved, Option<TcpListener>),
) -> Result<Serving, BrokerError> {
    let (ground, advertised) = (&parts.ground, endpoints.advertised.clone());
    let peers = Peers::new(parts.slaves.clone(), past);
    let orders = watch::Sender::default();
    let replication = Replication::start(ground, &peers, &advertised, slave_listener, &orders)?;
    let metadata = Arc::new(MasterMetadata::new(parts, peers.master().clone(), peers.secret_of_master()));
    let role_changes = Arc::new(RoleChanges::new(
        ground.clone(),
        advertised,
        peers.clone(),
        replication.clone(),
        metadata,
        orders,
    ));
    let desk = Arc::new(Desk::new(parts, registrar, peers, role_changes, endpoints));
    let processor = Arc::new(Processor(desk.clone()));
    // Before the first request: one may wait for what only the listener hears of.
    let (listener, failed) = Listener::new(&desk);
    ground.store().add_listener(Arc::new(listener));
    let config = ground.config();
    let observer =
        (config.metrics.are_exported && config.metrics.remoting).then(|| desk.watched.request_times.clone());
    let server = address.serve(server_config(ground, config.listen, observer.clone()), processor.clone())?;
    let vip_server = bind_vip(ground, server.local_addr(), &processor, observer);
    replication.follow_without_names(&config);
    Ok((desk, server, vip_server, failed))
}

/// Finds how clients reach this broker.
async fn resolve(config: &BrokerConfig) -> Result<Host, BrokerError> {
    let listens_on = config.listen.ip();
    let Some(name) = config.advertised_host.clone() else {
        let ip = if listens_on.is_unspecified() { outward_ip() } else { listens_on };
        return Ok(Host { ip, name: ip.to_string() });
    };
    let lookup = name.clone();
    let found = tokio::task::spawn_blocking(move || (lookup.as_str(), 0).to_socket_addrs()).await;
    let found = match found {
        Ok(found) => found.map_err(|error| error.to_string()),
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    };
    let addresses: Vec<IpAddr> = match found {
        Ok(addresses) => addresses.map(|address| address.ip()).collect(),
        Err(reason) => return Err(BrokerError::AdvertisedHost { host: name, reason }),
    };
    // Clients of some languages read IPv4 addresses in records only.
    let ip = addresses.iter().find(|ip| ip.is_ipv4()).or(addresses.first());
    match ip {
        Some(ip) => Ok(Host { ip: *ip, name }),
        None => Err(BrokerError::AdvertisedHost { host: name, reason: "no address found".to_owned() }),
    }
}

/// The address that other machines see; loopback when there is no network.
#[must_use]
pub fn outward_ip() -> IpAddr {
    // Connecting a datagram socket sends nothing: it only chooses a route. The target is an address reserved for documents.
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0));
    let chosen = socket.and_then(|socket| {
        socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9))?;
        socket.local_addr()
    });
    match chosen {
        Ok(address) if !address.ip().is_unspecified() => address.ip(),
        _ => {
            warn!(
                "no network address found, advertising loopback; set brokerIP1 to an address that clients can reach"
            );
            IpAddr::V4(Ipv4Addr::LOCALHOST)
        }
    }
}

/// Does a part of a start that waits for the disk.
async fn opened<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, BrokerError> + Send + 'static,
) -> Result<T, BrokerError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(opened) => opened,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}

fn open_store(config: &BrokerConfig, store_host: SocketAddr) -> Result<Arc<Store>, BrokerError> {
    warn_of_messages_that_fit_no_file(config);
    let store = Store::open(StoreConfig {
        store_host,
        delay_levels: config.delay_levels.clone(),
        keeps_files_at_open: true,
        ..config.store.clone()
    })?;
    make_config_folder(&RealDisk, &config.store.root)?;
    Ok(store)
}

/// Does not refuse: smaller messages are stored, and each one that is too large is refused by name.
fn warn_of_messages_that_fit_no_file(config: &BrokerConfig) {
    let (max_message_size, commit_log_file_size) =
        (config.max_message_size, config.store.commit_log_file_size);
    if u64::from(max_message_size) + 128 > commit_log_file_size {
        warn!(
            max_message_size,
            commit_log_file_size,
            "maxMessageSize exceeds a commit log file (mappedFileSizeCommitLog); the largest messages will be refused"
        );
    }
}

fn server_config(ground: &Ground, addr: SocketAddr, observer: Option<Arc<RequestTimes>>) -> ServerConfig {
    let config = ground.config();
    let own = || MemoryBudget::new(config.max_peer_bytes);
    ServerConfig {
        memory: config.memory.clone().unwrap_or_else(own),
        max_frame_bytes: config.max_frame_bytes,
        max_connections: config.max_connections,
        idle_timeout: config.idle_timeout,
        observer: observer.map(|times| times as Arc<dyn AnswerObserver>),
        tls: config.tls.server.clone(),
        check: config.auth.guard.clone().map(|guard| guard as Arc<dyn RequestCheck>),
        connections: Some(ground.quotas().clone()),
        ..ServerConfig::new(addr)
    }
}

fn bind_vip(
    ground: &Ground,
    local_addr: SocketAddr,
    processor: &Arc<Processor>,
    observer: Option<Arc<RequestTimes>>,
) -> Option<Server> {
    let config = ground.config();
    // Apache's slaves ask for topics there.
    if !config.vip_channel && !config.replication.serves_slaves() {
        return None;
    }
    let addr = SocketAddr::new(local_addr.ip(), local_addr.port().checked_sub(2)?);
    match Server::bind(server_config(ground, addr, observer), processor.clone()) {
        Ok(server) => Some(server),
        Err(error) => {
            warn!(%addr, %error, "second port (VIP channel) not served");
            None
        }
    }
}

/// A slave's folder is a master's from now on. Where that cannot be written, the next start begins as a promoted slave's again.
async fn begin_as_master(ground: &Ground, past: &Past<RealDisk>) {
    let written =
        async { on_disk(ground.topics().persist()?).await }.await.map_err(|cause| cause.to_string());
    let noted = written.and_then(|()| past.end_following().map_err(|cause| cause.to_string()));
    if let Err(cause) = noted {
        warn!(cause, "promotion to master not saved; the next start repeats it");
    }
}

/// Starts the background work.
fn start_services(desk: &Arc<Desk>, parts: &Parts, registrar: Option<&Arc<Registrar>>) -> Services {
    let (services, ground, changes) = (Services::default(), &parts.ground, &desk.role_changes);
    services.start(Arc::new(HeldRequestWatch::new(desk.clone())));
    services.start(Arc::new(HeldSendWatch::new(&parts.held_sends)));
    services.start(Arc::new(HeldSendWatch::new(&parts.held_for_slaves)));
    services.start(Arc::new(QuotaWatch::new(desk.clone())));
    services.start(Arc::new(ClientExpiry::new(desk.clone())));
    services.start(Arc::new(Sampling::new(ground.clone())));
    services.start(Arc::new(OffsetPersistence::new(ground, parts.members.clone())));
    services.start(Arc::new(DelayDelivery::new(parts.delays.clone())));
    services.start(Arc::new(TimerDelivery::new(parts.timers.clone())));
    services.start(Arc::new(TimerProgress::new(parts.timers.clone())));
    services.start(Arc::new(TransactionCheck::new(parts.transactions.clone())));
    if let Some(past) = desk.peers.past() {
        services.start(Arc::new(SlaveProgress::new(past.clone())));
        services.start(Arc::new(Succession::new(changes.clone(), past.clone())));
    }
    if let Some(confirm) = changes.replication().confirm() {
        services.start(confirm.clone());
    }
    services.start(changes.metadata().clone());
    let (master, replication) = (desk.peers.master().clone(), changes.replication().clone());
    services.start(Arc::new(MasterSearch::new(ground.clone(), registrar.cloned(), master, replication)));
    if let Some(registrar) = registrar {
        registrar.services(ground).for_each(|service| services.start(service));
    }
    services
}

/// Takes the store's events. All but the wait of an append and the loss of waiting messages only lock and answer: they do not block.
pub(crate) struct Listener {
    desk: Arc<Desk>,
    failed: watch::Sender<Option<StoreError>>,
    /// One permit per send that waits on its thread.
    pub(crate) wait_permits: Semaphore,
}

impl Listener {
    /// The listener, and the slot for a failed flush that it fills.
    pub(crate) fn new(desk: &Arc<Desk>) -> (Self, watch::Receiver<Option<StoreError>>) {
        let (sender, failed) = watch::channel(None);
        (Self { desk: desk.clone(), failed: sender, wait_permits: Semaphore::new(MAX_WAITING_SENDS) }, failed)
    }
}

impl StoreListener for Listener {
    fn flushed(&self, offset: PhysicalOffset) {
        self.desk.acks.flushed(offset);
    }

    fn flush_took(&self, took: Duration) {
        let took_ms = took.as_secs_f64() * 1000.0;
        self.desk.ground.metrics().observe(Metric::FlushLatency, &[], took_ms);
    }

    fn arrived(&self, arrivals: &[Arrival]) {
        process::held::arrived(&self.desk, arrivals);
        self.desk.delays.arrived(arrivals);
        self.desk.timers.arrived(arrivals);
        self.desk.transactions.arrived(arrivals);
    }

    fn dispatched(&self, offset: PhysicalOffset) {
        process::held::dispatched(&self.desk, offset);
    }

    fn waits(&self, wait: &mut dyn FnMut()) {
        if let Ok(_permit) = self.wait_permits.try_acquire() {
            blocking(wait);
        }
    }

    fn removes_waiting(&self, file: &Range<PhysicalOffset>) {
        let Desk { ground, delays, timers, transactions, .. } = &*self.desk;
        lost::tell(lost::Waiting { store: ground.store(), delays, timers, transactions }, file);
    }

    fn poisoned(&self, failure: &StoreError) {
        error!(%failure, "flush failed, no more messages are acknowledged");
        let remark = "a flush failed on the broker; the message may be stored";
        self.desk.acks.held().into_iter().for_each(|held| held.give_up_all(remark));
        self.failed.send_replace(Some(failure.clone()));
    }
}

/// Writes what is still in memory.
pub(crate) async fn write_tables(ground: &Ground, members: &Members) {
    let begun = [
        ("consumer offsets", members.offsets().persist().map_err(Refusal::from)),
        ("topics", ground.topics().persist()),
        ("consumer groups", ground.groups().persist()),
    ];
    for (table, written) in begun {
        let written = match written {
            Ok(written) => on_disk(written).await,
            Err(refusal) => Err(refusal),
        };
        if let Err(refusal) = written {
            error!(table, %refusal, "table not written at shutdown");
        }
    }
}

/// Closes the store. Blocks.
///
/// Store and listener hold each other. The shutdown ends the store's threads and lets go of the listener: then none of these
/// threads is the last to drop the store.
fn close(store: &Store) {
    if let Err(failure) = store.shutdown() {
        error!(%failure, "store not closed cleanly");
    }
}
