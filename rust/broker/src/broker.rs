//! Start, run and stop of a broker.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rocketpy_env::{RealDisk, random_u64};
use rocketpy_model::{PhysicalOffset, name, system};
use rocketpy_protocol::message_id::UniqueKeys;
use rocketpy_remoting::{Client, ClientConfig, MemoryBudget, Reserved, Server, ServerConfig};
use rocketpy_store::{AT_OPEN, Arrival, Store, StoreConfig, StoreError, StoreListener};
use tokio::runtime::Handle;
use tokio::sync::{OnceCell, Semaphore, watch};
use tracing::{error, info, warn};

use crate::blocking::blocking;
use crate::call::{aside, on_disk};
use crate::config_file::make_config_folder;
use crate::delay::{self, DelayDelivery};
use crate::ha::{BrokerRole, MasterSearch, Past, Replication, SlaveProgress, begin_life, where_to_begin};
use crate::process::{self, Processor};
use crate::refusal::Refusal;
use crate::registration::{Identity, Registrar};
use crate::role::OwnLog;
use crate::role_change::Succession;
use crate::service::{ClientExpiry, HeldRequestWatch, HeldSendWatch, OffsetPersistence, Sampling, Services};
use crate::shared::{Advertised, Shared};
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
    shared: Arc<Shared>,
    server: Server,
    /// On `port - 2`, when asked for and free.
    vip_server: Option<Server>,
    replication: Replication,
    services: Services,
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
        name::check_cluster(&config.cluster_name)?;
        name::check_broker(&config.broker_name)?;
        if (config.replication.role == BrokerRole::Slave) != (config.broker_id != system::MASTER_ID) {
            return Err(BrokerError::RoleAndId(config.broker_id));
        }
        let host = resolve(&config).await?;
        let memory = config.memory.take().unwrap_or_else(|| MemoryBudget::new(config.max_peer_bytes));
        config.memory = Some(memory.clone());
        // Before the store: a failed start leaves no folder behind.
        let address = Reserved::new(config.listen)?;
        let slave_port = config.replication.reserve_port(config.listen)?;
        if let Some(begin) = where_to_begin(&config).await? {
            config.store.begin_at = Some(begin);
        }
        let (runtime, ip) = (Handle::current(), host.ip);
        // Recovery reads files: not on a thread that serves connections.
        let opening = config.clone();
        let store = opened(move || open_store(&opening, ip)).await?;
        // Before the tables are read, which follow from the log.
        let past = begin_life(&config, &store).await.inspect_err(|_| close(&store))?;
        // The log of who becomes a master may end before that of the one before it did, though it was stopped in order.
        let is_promoted =
            config.broker_id == system::MASTER_ID && past.as_ref().is_some_and(|past| past.was_slave());
        let is_in_doubt = !store.recovery().clean_exit || is_promoted;
        let opening = move || {
            let _runtime = runtime.enter();
            let unique_keys = UniqueKeys::new(ip, std::process::id(), random_u64() as u32);
            Shared::open(config, store, unique_keys, Handle::current(), is_in_doubt)
        };
        let shared = Arc::new(opened(opening).await?);
        // Each of the tables has said by now which messages wait.
        shared.store.set_waiting_from(AT_OPEN, None);
        if let Some(past) = past {
            if shared.role.is_master() && past.was_slave() {
                shared.topics.begin_as_master();
                begin_as_master(&shared, &past).await;
            }
            shared.set_past(past);
        }
        shared.sample(Instant::now());
        let config = &shared.config();
        let processor = Arc::new(Processor(shared.clone()));
        // Before the first request: one may wait for what only the listener hears of.
        let (listener, failed) = Listener::new(&shared);
        shared.store.add_listener(Arc::new(listener));
        let server = address
            .serve(server_config(config, config.listen, &memory), processor.clone())
            .inspect_err(|_| close_store(&shared))?;
        let local_addr = server.local_addr();
        let store_host = SocketAddr::new(ip, local_addr.port());
        shared.set_advertised(Advertised { store_host, host: host.name, port: local_addr.port() });
        let vip_server = bind_vip(config, local_addr, &memory, &processor);
        let replication =
            Replication::start(&shared, local_addr, slave_port).inspect_err(|_| close_store(&shared))?;
        let _ = shared.replication.set(replication.clone()); // it is set once
        let services = start_services(&shared);
        services.start(Arc::new(MasterSearch::new(shared.clone(), replication.clone())));
        let advertised = register(&shared, &services);
        info!(%local_addr, advertised, broker = config.broker_name, cluster = config.cluster_name, "broker started");
        let stopped = OnceCell::new();
        Ok(Self {
            shared,
            server,
            vip_server,
            replication,
            services,
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
        self.replication.slave_addr()
    }

    /// `host:port` as announced to the name servers.
    pub fn advertised(&self) -> &str {
        &self.advertised
    }

    /// Waits until every name server took the first registration; false when the time is up.
    pub async fn registered(&self, within: Duration) -> bool {
        match self.shared.registrar() {
            Some(registrar) => registrar.registered(within).await,
            None => true,
        }
    }

    /// Says where the master is, `host:port`, of whose log this broker's is a beginning, and from which it takes topics, groups, offsets and
    /// progress while it is a slave; `None`: that is not known.
    pub fn set_master_address(&self, address: Option<&str>) {
        self.shared.master.set(address);
        self.shared.role.set_log(if address.is_some() { OwnLog::Followed } else { OwnLog::Unchecked });
    }

    /// The configuration as it is now.
    pub fn config(&self) -> Arc<BrokerConfig> {
        self.shared.config().clone()
    }

    /// Waits until a command wants another role of this broker. Whoever started it is to stop it then, and to start it in that role.
    pub async fn role_ordered(&self) -> RoleOrder {
        let mut orders = self.shared.role_orders.subscribe();
        match orders.wait_for(Option::is_some).await.map(|order| *order) {
            Ok(Some(order)) => order,
            _ => std::future::pending().await,
        }
    }

    /// Does one round of a background service now, whenever its next one is due; false when there is no such service,
    /// or when the round panics, which the log says.
    ///
    /// The services are `client expiry`, `delay delivery`, `held requests`, `held sends`, `metadata of the master`, `offset persistence`, `progress of
    /// slaves`, `sampling`, `search for the master`, `succession`, `timer delivery`, `timer progress`, `transaction check`, and `registration at
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
        self.services.stop_all(SERVICES_END).await;
        if let Some(registrar) = self.shared.registrar() {
            registrar.unregister().await;
        }
        // Questions wait on: before dispatch has reached them, an answer would leave out acknowledged messages.
        process::held::resume_all(&self.shared, |held| held.for_messages()).await;
        self.shared.tasks.join(TASKS_END).await;
        self.shared.store.request_flush(self.shared.store.max_physical_offset());
        match &self.vip_server {
            Some(vip) => drop(tokio::join!(self.server.shutdown(DRAIN), vip.shutdown(DRAIN))),
            None => self.server.shutdown(DRAIN).await,
        }
        // Dispatch did not come in time: their senders get an error.
        drop(self.shared.held.all());
        self.shared.tasks.join(TASKS_END).await;
        self.shared.held_sends.give_up_all("the broker stopped before the flush; the message may be stored");
        self.shared
            .held_for_slaves
            .give_up_all("the broker stopped before slaves had the message; it is stored here");
        // What a slave keeps of these came from its master, and is written already.
        let is_master = self.shared.role.is_master();
        if is_master {
            let shared = self.shared.clone();
            aside(move || settle_at_stop(&shared)).await;
        }
        write_tables(&self.shared).await;
        if is_master {
            let shared = self.shared.clone();
            let runtime = Handle::current();
            aside(move || {
                timer::deliver_at_stop(&shared, &runtime);
                delay::write_at_stop(&shared);
                timer::settle_at_stop(&shared);
            })
            .await;
        }
        let (shared, replication) = (self.shared.clone(), self.replication.clone());
        aside(move || {
            replication.stop(SLAVES_END);
            if let Some(Err(error)) = shared.past().map(|past| past.settle()) {
                warn!(%error, "what is known of the past of the log is not written");
            }
            close_store(&shared);
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
        self.replication.stop(Duration::ZERO);
        close_store(&self.shared);
    }
}

/// The address that goes into records, and the name that goes into routes.
#[derive(Debug, Clone)]
struct Host {
    ip: IpAddr,
    name: String,
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
fn outward_ip() -> IpAddr {
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
                "no address of this machine found, announcing loopback; set brokerIP1 to what clients can reach"
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

fn open_store(config: &BrokerConfig, ip: IpAddr) -> Result<Arc<Store>, BrokerError> {
    let store_host = SocketAddr::new(ip, config.listen.port());
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
            "the largest messages that clients may send do not fit into a commit log file"
        );
    }
}

fn server_config(config: &BrokerConfig, addr: SocketAddr, memory: &Arc<MemoryBudget>) -> ServerConfig {
    ServerConfig {
        memory: memory.clone(),
        max_frame_bytes: config.max_frame_bytes,
        max_connections: config.max_connections,
        idle_timeout: config.idle_timeout,
        ..ServerConfig::new(addr)
    }
}

fn bind_vip(
    config: &BrokerConfig,
    local_addr: SocketAddr,
    memory: &Arc<MemoryBudget>,
    processor: &Arc<Processor>,
) -> Option<Server> {
    // Apache's slaves ask for topics there.
    if !config.vip_channel && !config.replication.serves_slaves() {
        return None;
    }
    let addr = SocketAddr::new(local_addr.ip(), local_addr.port().checked_sub(2)?);
    match Server::bind(server_config(config, addr, memory), processor.clone()) {
        Ok(server) => Some(server),
        Err(error) => {
            warn!(%addr, %error, "the second port is not served");
            None
        }
    }
}

/// A slave's folder is a master's from now on. Where that cannot be written, the next start begins as a promoted slave's again.
async fn begin_as_master(shared: &Shared, past: &Past<RealDisk>) {
    let written = async { on_disk(shared.topics.persist()?).await }.await.map_err(|cause| cause.to_string());
    let noted = written.and_then(|()| past.end_following().map_err(|cause| cause.to_string()));
    if let Err(cause) = noted {
        warn!(cause, "it cannot be written that this folder is a master's by now");
    }
}

/// Starts the background work that needs no name server.
fn start_services(shared: &Arc<Shared>) -> Services {
    let services = Services::default();
    services.start(Arc::new(HeldRequestWatch::new(shared.clone())));
    services.start(Arc::new(HeldSendWatch::new(&shared.held_sends)));
    services.start(Arc::new(HeldSendWatch::new(&shared.held_for_slaves)));
    services.start(Arc::new(ClientExpiry::new(shared.clone())));
    services.start(Arc::new(Sampling::new(shared.clone())));
    services.start(Arc::new(OffsetPersistence::new(shared.clone())));
    services.start(Arc::new(DelayDelivery::new(shared.clone())));
    services.start(Arc::new(TimerDelivery::new(shared.clone())));
    services.start(Arc::new(TimerProgress::new(shared.clone())));
    services.start(Arc::new(TransactionCheck::new(shared.clone())));
    if let Some(past) = shared.past() {
        services.start(Arc::new(SlaveProgress::new(past.clone())));
        services.start(Arc::new(Succession::new(shared.clone(), past.clone())));
    }
    let metadata = Arc::new(MasterMetadata::new(shared.clone()));
    shared.set_master_metadata(&metadata);
    services.start(metadata);
    services
}

/// Starts the registration; returns the announced address.
fn register(shared: &Arc<Shared>, services: &Services) -> String {
    let config = &shared.config();
    let Some(advertised) = shared.advertised() else { return String::new() };
    let broker_addr = advertised.address();
    if !config.name_servers.is_empty() {
        let identity = Identity {
            cluster_name: config.cluster_name.clone(),
            broker_name: config.broker_name.clone(),
            broker_addr: broker_addr.clone(),
            ha_addr: shared.slave_address().unwrap_or_default(),
            period: config.register_period.clamp(Duration::from_secs(10), Duration::from_secs(60)),
            timeout: config.register_timeout,
        };
        let client = Client::new(ClientConfig::default());
        let registrar = Registrar::new(client, &config.name_servers, identity, shared.role.clone());
        registrar.services(&shared.topics).for_each(|service| services.start(service));
        shared.set_registrar(registrar);
    }
    broker_addr
}

/// Takes the store's events. All but the wait of an append and the loss of waiting messages only lock and answer: they do not block.
pub(crate) struct Listener {
    shared: Arc<Shared>,
    failed: watch::Sender<Option<StoreError>>,
    /// One permit for each send that waits on its thread.
    pub(crate) wait_permits: Semaphore,
}

impl Listener {
    /// The listener, and the failed flush that it is told of.
    pub(crate) fn new(shared: &Arc<Shared>) -> (Self, watch::Receiver<Option<StoreError>>) {
        let (sender, failed) = watch::channel(None);
        (
            Self { shared: shared.clone(), failed: sender, wait_permits: Semaphore::new(MAX_WAITING_SENDS) },
            failed,
        )
    }
}

impl StoreListener for Listener {
    fn flushed(&self, offset: PhysicalOffset) {
        self.shared.held_sends.reached(offset);
    }

    fn arrived(&self, arrivals: &[Arrival]) {
        process::held::arrived(&self.shared, arrivals);
        self.shared.delays.arrived(arrivals);
        self.shared.timers.arrived(arrivals);
        self.shared.transactions.arrived(arrivals);
    }

    fn dispatched(&self, offset: PhysicalOffset) {
        process::held::dispatched(&self.shared, offset);
    }

    fn waits(&self, wait: &mut dyn FnMut()) {
        if let Ok(_permit) = self.wait_permits.try_acquire() {
            blocking(wait);
        }
    }

    fn removes_waiting(&self, file: &Range<PhysicalOffset>) {
        lost::tell(&self.shared, file);
    }

    fn poisoned(&self, failure: &StoreError) {
        error!(%failure, "a flush failed, nothing more is acknowledged");
        let remark = "a flush failed on the broker; the message may be stored";
        self.shared.held_sends.give_up_all(remark);
        self.shared.held_for_slaves.give_up_all(remark);
        self.failed.send_replace(Some(failure.clone()));
    }
}

/// Writes what is still in memory.
pub(crate) async fn write_tables(shared: &Shared) {
    let begun = [
        ("consumer offsets", shared.offsets.persist().map_err(Refusal::from)),
        ("topics", shared.topics.persist()),
        ("consumer groups", shared.groups.persist()),
    ];
    for (table, written) in begun {
        let written = match written {
            Ok(written) => on_disk(written).await,
            Err(refusal) => Err(refusal),
        };
        if let Err(refusal) = written {
            error!(table, %refusal, "table not written at the stop");
        }
    }
}

/// Closes the store. Blocks.
///
/// Store and listener hold each other. The shutdown ends the store's threads and lets go of the listener: then none of these
/// threads is the last to drop the store.
fn close_store(shared: &Shared) {
    close(&shared.store);
}

fn close(store: &Store) {
    if let Err(failure) = store.shutdown() {
        error!(%failure, "the store did not close in order");
    }
}
