//! A server process: its parts, their threads, their start and their stop.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rocketpy_auth::UsersLock;
use rocketpy_broker::{
    Broker, BrokerConfig, BrokerError, MemoryBudget, OnFailedFlush, RoleOrder, StoreError, cut_log, lock_root,
};
use rocketpy_env::{Disk, RealDisk, RealLock};
use rocketpy_namesrv::{NameServer, NameServerError};
use tokio::runtime::Runtime;
use tracing::{debug, error, info, warn};

use crate::config::describe::{BrokerKeys, NameServerKeys};
use crate::config::live::{KV_CONFIG, LiveLayer, LiveLayers};
use crate::config::{ExporterType, NAME_SERVERS, Origin};
use crate::monitor::{Monitor, NameServerFigures, Watched};
use crate::role::Role;
use crate::{ServerConfig, ServerError, address, auth, limits, log_files, ready_file, secure, tls};

/// How long a start waits for the name servers; one that is down must not keep the broker from starting.
const REGISTER_WAIT: Duration = Duration::from_secs(2);
/// Most threads that serve connections; more only help with more cores.
const MAX_THREADS: usize = 4;
/// How long a stop may take that nobody waits for.
const DROP_WITHIN: Duration = Duration::from_secs(10);
/// How long a broker may take to start again after a change of its role, and the pause before the next try.
const START_AGAIN: Duration = Duration::from_secs(30);
const START_PAUSE: Duration = Duration::from_millis(100);
/// How long a broker may take to stop after its store has failed.
const FAILED_STOP_WITHIN: Duration = Duration::from_secs(60);
/// How often a broker that only refuses messages is asked whether an assertion failed since.
const FAILURE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Where a running process accepts connections, as `host:port` that a client can use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// The name server, when this process has one (standalone, name server only).
    pub name_server: Option<String>,
    /// The broker, when this process has one.
    pub broker: Option<String>,
    /// The HTTP server for metrics and health, when this process has one.
    pub metrics: Option<String>,
}

/// A name server, a broker or both, on threads of their own.
///
/// Its functions block and must not be called from within an async runtime. Dropping it stops it.
#[derive(Debug)]
pub struct Process {
    /// Taken by the thread that stops the process, which holds the lock until the end of the stop: a second stop waits for it.
    runtime: Mutex<Option<Runtime>>,
    name_server: Option<NameServer>,
    /// The broker as it is now, which [`supervise`] replaces when its role changes. Locked while it does.
    broker: Running,
    addresses: Addresses,
    /// Set when other machines can reach it.
    warning: Option<&'static str>,
    /// Set once this process owns the file and has to remove it.
    ready_file: Option<PathBuf>,
    /// Whether the stop ran out of time.
    is_cut_off: AtomicBool,
    /// Set once the broker has stopped by itself.
    failure: Failure,
    /// The broker as [`Monitor`] shows it.
    watched: Watched,
    /// Ends last: it answers while the process stops.
    monitor: Option<Monitor>,
    /// Until the end of the stop, which has written what is to be written.
    users: Mutex<Option<UsersLock>>,
}

/// The broker that runs; `None` before its start and after its stop.
type Running = Arc<tokio::sync::Mutex<Option<Arc<Broker>>>>;
/// Why there is none any more.
type Failure = Arc<Mutex<Option<ServerError>>>;

impl Process {
    /// Starts the parts of the role and returns once everything accepts.
    ///
    /// # Errors
    /// A broker without a name server, an address that is taken or unknown, a store that cannot be opened, a ready file
    /// that cannot be written, or that no server wrote.
    pub fn start(role: Role, mut config: ServerConfig) -> Result<Self, ServerError> {
        if role == Role::Standalone && config.name_server.kv_config_path.is_none() {
            config.name_server.kv_config_path = Some(config.broker.store.root.join("config").join(KV_CONFIG));
        }
        let live = LiveLayers::take(&mut config, role.parts())?;
        Self::start_with(role, config, &live).map_err(|error| match live.at_start() {
            Some((keys, command)) => ServerError::WithLiveValues { source: Box::new(error), keys, command },
            None => error,
        })
    }

    fn start_with(role: Role, mut config: ServerConfig, live: &LiveLayers) -> Result<Self, ServerError> {
        match role {
            Role::NameServer => config.name_server_port = config.name_server_port.or(config.port),
            Role::Broker if config.broker.name_servers.is_empty() => return Err(ServerError::NoNameServer),
            Role::Broker | Role::Standalone => {}
        }
        if let Some(path) = &config.ready_file {
            ready_file::remove_stale(path)?;
        }
        limits::fit(&mut config, role);
        limits::fit_memory(&mut config);
        if role.has_broker() {
            log_files::adopt_size(&mut config);
        }
        for path in config.open_files_with_secrets() {
            let path = path.display();
            warn!(%path, "configuration file with secrets is readable by others, run `chmod 600 {path}`");
        }
        // Before the files of `--secure` and those of users: a broker that runs may be about to write them.
        let is_guarded = role.has_broker() && (config.is_secure || config.auth.authenticates);
        let store_lock = is_guarded.then(|| lock_store(&config.broker.store.root)).transpose()?;
        secure::prepare(role, &mut config)?;
        let tls = tls::load(&config.tls, role == Role::Standalone)?;
        config.name_server.tls = tls.server.clone();
        config.broker.tls = tls.clone();
        let (auth, users) = auth::open(role.has_broker(), &config)?;
        drop(store_lock); // the store takes it
        config.name_server.guard = auth.guard.clone();
        config.broker.auth = auth;
        let memory = MemoryBudget::new(config.broker.max_peer_bytes);
        config.broker.memory = Some(memory.clone());
        config.name_server.memory = Some(memory);
        if !config.ignored.is_empty() {
            warn!(keys = config.ignored.join(" "), "configuration keys ignored, RocketPy does not use them");
        }
        let runtime = runtime()?;
        let mut process = Self {
            name_server: None,
            broker: Running::default(),
            addresses: Addresses::default(),
            warning: None,
            ready_file: None,
            is_cut_off: AtomicBool::new(false),
            failure: Arc::default(),
            watched: Watched::default(),
            monitor: None,
            users: Mutex::new(users),
            runtime: Mutex::new(None),
        };
        runtime.spawn(tls::watch(tls));
        let started = runtime.block_on(process.start_parts(role, config, live));
        *process.runtime.get_mut() = Some(runtime);
        // On an error, the drop stops what runs already.
        started?;
        if let Some(path) = &process.ready_file {
            ready_file::write(path, &process.addresses)?;
        }
        Ok(process)
    }

    async fn start_parts(
        &mut self,
        role: Role,
        mut config: ServerConfig,
        live: &LiveLayers,
    ) -> Result<(), ServerError> {
        let is_open = address::listen(&config.host, 0).is_ok_and(address::is_beyond_loopback);
        secure::check(&config, is_open)?;
        self.warning = secure::danger(&config).filter(|_| is_open);
        if let Some(warning) = self.warning {
            warn!(host = config.host, "{warning}");
        }
        if role.has_name_server() {
            config.name_server.text = Arc::new(NameServerKeys::new(live.name_server.clone(), &config));
            self.start_name_server(role, &mut config).await?;
        }
        if !role.has_broker() {
            self.monitor_name_server(&config);
            return self.take_ready_file(config.ready_file);
        }
        config.broker.listen =
            address::listen(&config.host, config.port.unwrap_or(rocketpy_broker::DEFAULT_PORT))?;
        self.watched.clear("the broker is starting");
        self.monitor = Monitor::start(&config.exporter, config.broker.tls.server.clone(), &self.watched)?;
        self.addresses.metrics = self.monitor.as_ref().and_then(Monitor::address);
        config.broker.metrics.are_exported = self.monitor.is_some();
        config.broker.text = Arc::new(BrokerKeys::new(live.broker.clone(), &config));
        let broker = Arc::new(Broker::start(config.broker.clone()).await?);
        self.watched.set(&broker);
        self.take_ready_file(config.ready_file.take())?;
        self.addresses.broker = Some(broker.advertised().to_owned());
        *self.broker.lock().await = Some(broker.clone());
        let outcome = Outcome { failure: self.failure.clone(), watched: self.watched.clone() };
        let live = live.broker.clone();
        tokio::spawn(supervise(self.broker.clone(), broker.clone(), config, live, outcome));
        if !broker.registered(REGISTER_WAIT).await {
            warn!("broker is not registered at every name server yet, clients cannot find it there");
        }
        Ok(())
    }

    /// Serves the metrics of a name server alone. It runs without them: a broker of the same machine may have the same configuration, and the
    /// address.
    fn monitor_name_server(&mut self, config: &ServerConfig) {
        match config.exporter.kind {
            ExporterType::Disabled => return,
            ExporterType::Prometheus => {}
            ExporterType::Otlp | ExporterType::Log => {
                return warn!(
                    "metrics not exported: a name server without a broker has metricsExporterType=PROM alone"
                );
            }
        }
        let (tls, guard) = (config.name_server.tls.clone(), config.name_server.guard.clone());
        self.watched.set_name_server(NameServerFigures { tls: tls.clone(), guard });
        match Monitor::start(&config.exporter, tls, &self.watched) {
            Ok(monitor) => self.monitor = monitor,
            Err(error) => warn!(%error, "metrics not served"),
        }
        self.addresses.metrics = self.monitor.as_ref().and_then(Monitor::address);
    }

    /// Starts the name server; a broker beside it registers there and nowhere else.
    async fn start_name_server(&mut self, role: Role, config: &mut ServerConfig) -> Result<(), ServerError> {
        let listen =
            address::listen(&config.host, config.name_server_port.unwrap_or(rocketpy_namesrv::DEFAULT_PORT))?;
        let name_server = &mut config.name_server;
        name_server.listen = listen;
        let started = NameServer::start(name_server.clone()).await.map_err(|error| match error {
            // Its file lies in the store: what is wrong with the folder is said as the broker would.
            NameServerError::Disk(error) if role.has_broker() => BrokerError::Env(error).into(),
            other => ServerError::NameServer(other),
        })?;
        let address = address::reachable(started.local_addr());
        let is_own = |given: &String| address::is_same(given, started.local_addr());
        if role.has_broker() && !config.broker.name_servers.iter().all(is_own) {
            let given = config.broker.name_servers.join(";");
            // The variable is there for clients. Only who names other name servers for this server may want a broker alone.
            if *config.origin("namesrvAddr") == Origin::Environment(NAME_SERVERS.to_owned()) {
                debug!(
                    given,
                    used = address,
                    "NAMESRV_ADDR ignored, this process has a name server of its own"
                );
            } else {
                warn!(
                    given,
                    used = address,
                    "namesrvAddr ignored, this process has a name server of its own"
                );
            }
        }
        config.broker.name_servers = vec![address.clone()];
        self.addresses.name_server = Some(address);
        self.name_server = Some(started);
        Ok(())
    }

    /// Where it accepts.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// The danger of serving more than this machine, when it does.
    pub fn warning(&self) -> Option<&'static str> {
        self.warning
    }

    /// Whether the broker stopped by itself: its disk failed, and the configuration wants a stop then, or it could not start again after a
    /// change of its role.
    pub fn has_failed(&self) -> bool {
        self.failure.lock().is_some()
    }

    /// Why the broker stopped by itself; once.
    pub fn take_failure(&self) -> Option<ServerError> {
        self.failure.lock().take()
    }

    /// Stops in order within the time given. A further call waits for the end of the stop and tells how it ended.
    ///
    /// # Errors
    /// [`ServerError::CutOff`]: the time was too short. The next start recovers what was not closed.
    ///
    /// # Durability
    /// On return without an error everything acknowledged is durable.
    pub fn stop(&self, within: Duration) -> Result<(), ServerError> {
        let ended = self.stop_once(within);
        if ended && !self.is_cut_off.load(Ordering::Acquire) {
            Ok(())
        } else {
            Err(ServerError::CutOff { within })
        }
    }

    /// Called once this process holds the ports and the store, so that the file belongs to no other running process.
    fn take_ready_file(&mut self, path: Option<PathBuf>) -> Result<(), ServerError> {
        self.ready_file = path;
        self.ready_file.as_deref().map_or(Ok(()), ready_file::remove)
    }

    /// Whether the process has stopped, by this call or another; false when another one still stops it after `within`.
    fn stop_once(&self, within: Duration) -> bool {
        let Some(mut runtime) = self.runtime.try_lock_for(within) else { return false };
        let Some(runtime) = runtime.take() else { return true };
        let started = Instant::now();
        let stopped = runtime.block_on(async {
            // Inside the runtime, which owns the timer.
            tokio::time::timeout(within, self.stop_parts()).await
        });
        if stopped.is_err() {
            self.is_cut_off.store(true, Ordering::Release);
            warn!(within_ms = within.as_millis() as u64, "server stop timed out");
        }
        runtime.shutdown_timeout(within.saturating_sub(started.elapsed()));
        *self.users.lock() = None;
        if let Some(path) = &self.ready_file
            && let Err(failure) = ready_file::remove(path)
        {
            warn!(%failure, "ready file not removed");
        }
        info!(took_ms = started.elapsed().as_millis() as u64, "server stopped");
        true
    }

    async fn stop_parts(&self) {
        // Nothing starts it again: `supervise` finds no broker.
        if let Some(broker) = self.broker.lock().await.take() {
            broker.shutdown().await;
            self.watched.clear("the broker has stopped");
        }
        if let Some(name_server) = &self.name_server {
            name_server.shutdown().await;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop_once(DROP_WITHIN);
    }
}

/// Takes the lock of a store before the broker does.
///
/// # Errors
/// Another broker has it, or the folder cannot be made.
fn lock_store(root: &Path) -> Result<RealLock, ServerError> {
    RealDisk.create_dir_all(root).map_err(BrokerError::from)?;
    Ok(lock_root(&RealDisk, root).map_err(BrokerError::from)?)
}

/// Where [`supervise`] shows what becomes of the broker.
struct Outcome {
    failure: Failure,
    watched: Watched,
}

/// Looks after the broker: changes its role when a command wants it, reports a failed flush, and under `Stop` stops it then and records why.
async fn supervise(
    running: Running,
    mut broker: Arc<Broker>,
    mut config: ServerConfig,
    live: Arc<LiveLayer>,
    outcome: Outcome,
) {
    let Outcome { failure, watched } = outcome;
    loop {
        let order = tokio::select! {
            failed = broker.failed() => {
                let failed = outlive(&broker, failed, config.broker.store.on_failed_flush).await;
                // A part of a store may wait for one whose thread an assertion has ended.
                if tokio::time::timeout(FAILED_STOP_WITHIN, broker.shutdown()).await.is_err() {
                    warn!("broker did not stop in time after a failure of its store");
                }
                *failure.lock() = Some(ServerError::Failed(failed));
                return;
            }
            order = broker.role_ordered() => order,
        };
        let mut held = running.lock().await;
        let Some(former) = held.take() else { return }; // the process stops
        drop(broker);
        watched.clear("the broker changes its role");
        config.broker.broker_permission = live.broker_permission();
        match change_role(former, &mut config, &order).await {
            Ok(started) => {
                watched.set(&started);
                *held = Some(started.clone());
                broker = started;
            }
            Err(error) => {
                error!(%error, "broker stopped, role change failed");
                *failure.lock() = Some(error);
                return;
            }
        }
    }
}

/// Reports a failure of the store, and returns it once the server has to stop: at once after a failed assertion and under
/// [`OnFailedFlush::Stop`], else when an assertion fails as well.
async fn outlive(broker: &Broker, mut failed: StoreError, on_failed_flush: OnFailedFlush) -> StoreError {
    let is_assertion = |failed: &StoreError| matches!(failed, StoreError::AssertionFailed { .. });
    if !is_assertion(&failed) {
        error!(failure = %failed, "disk failed; check it and restart: recovery keeps all durable messages");
        if on_failed_flush == OnFailedFlush::Stop {
            return failed;
        }
    }
    while !is_assertion(&failed) {
        tokio::time::sleep(FAILURE_CHECK_INTERVAL).await;
        failed = broker.failed().await;
    }
    error!(failure = %failed, "assertion of the store failed, server stops");
    failed
}

/// Stops a broker and starts it in another role, or in its former one if it cannot start in that.
async fn change_role(
    former: Arc<Broker>,
    config: &mut ServerConfig,
    order: &RoleOrder,
) -> Result<Arc<Broker>, ServerError> {
    let before = RoleOrder::of(&former.config());
    let (permission, configured) = (config.broker.broker_permission, RoleOrder::of(&config.broker));
    config.broker = BrokerConfig { broker_permission: permission, ..(*former.config()).clone() };
    // The start takes the role that is kept, and compares it with the one of the configuration.
    (config.broker.replication.role, config.broker.broker_id) = (configured.role, configured.broker_id);
    config.broker.replication.is_promoted = false;
    config.broker.listen = former.local_addr();
    config.broker.store.begin_at = None; // of an empty store
    former.shutdown().await;
    drop(former);
    match start_as(*order, config).await {
        Ok(broker) => Ok(broker),
        Err(error) => {
            error!(%error, ?order, "cannot start the broker in its new role, restoring the previous role");
            start_as(before, config).await
        }
    }
}

async fn start_as(order: RoleOrder, config: &mut ServerConfig) -> Result<Arc<Broker>, ServerError> {
    if let Some(at) = order.cut_at
        && let Err(error) = again(|| cut_log(config.broker.store.clone(), at)).await
    {
        error!(%error, %at, "cannot cut the unacknowledged end of the log, not following the master");
        config.broker.replication.keeps_tail = true;
    }
    order.keep(&config.broker.store.root, RoleOrder::of(&config.broker))?;
    Ok(Arc::new(again(|| Broker::start(config.broker.clone())).await?))
}

/// Does something with the store of a stopped broker. Whoever still reads from that one holds the store for a moment.
async fn again<T, F>(work: impl Fn() -> F) -> Result<T, BrokerError>
where
    F: Future<Output = Result<T, BrokerError>>,
{
    let deadline = Instant::now() + START_AGAIN;
    loop {
        match work().await {
            Err(error) if error.retryable() && Instant::now() < deadline => {
                debug!(%error, "cannot restart yet, retrying");
                tokio::time::sleep(START_PAUSE).await;
            }
            done => return done,
        }
    }
}

fn runtime() -> Result<Runtime, ServerError> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores.clamp(1, MAX_THREADS))
        .thread_name("rocketpy-net")
        .enable_all()
        .build()
        .map_err(ServerError::Threads)
}
