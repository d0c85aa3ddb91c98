use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rocketpy_broker::{Broker, OnFailedFlush, StoreError};
use rocketpy_env::{Disk, RealDisk, is_process_alive};
use rocketpy_namesrv::{NameServer, NameServerConfig};
use serde::Serialize;
use tokio::runtime::Runtime;
use tracing::{error, info, warn};

use crate::{ServerConfig, ServerError, address, limits, log_files};

/// How long a start waits for the name servers; one that is down must not keep the broker from starting.
const REGISTER_WAIT: Duration = Duration::from_secs(2);
/// Apache's port of name servers.
const NAME_SERVER_PORT: u16 = 9876;
/// Apache's port of brokers.
const BROKER_PORT: u16 = 10911;
/// Most threads that serve connections; more only help with more cores.
const MAX_THREADS: usize = 4;

/// A ready file is not longer.
const MAX_READY_FILE_BYTES: u64 = 1 << 16;

/// Where a running process accepts connections, as `host:port` that a client can use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// The name server, when this process has one (standalone, name server only).
    pub name_server: Option<String>,
    /// The broker, when this process has one.
    pub broker: Option<String>,
}

/// The content of the ready file.
#[derive(Serialize)]
struct Ready<'a> {
    pid: u32,
    name_server: Option<&'a str>,
    broker: Option<&'a str>,
}

/// The parts of a process and the threads they run on.
#[derive(Debug)]
struct Process {
    /// Taken by the one that stops it.
    runtime: Mutex<Option<Runtime>>,
    name_server: Option<NameServer>,
    broker: Option<Arc<Broker>>,
    addresses: Addresses,
    /// Absent until it is this process's to remove.
    ready_file: Option<PathBuf>,
    /// The last stop had not enough time.
    is_cut_off: AtomicBool,
    /// Set once the broker has stopped by itself.
    failure: Arc<Mutex<Option<StoreError>>>,
}

impl Process {
    fn start(config: ServerConfig, has_name_server: bool, has_broker: bool) -> Result<Self, ServerError> {
        let mut config = config;
        if let Some(path) = &config.ready_file {
            remove_stale_ready_file(path)?;
        }
        limits::fit(&mut config, has_name_server, has_broker);
        if has_broker {
            log_files::adopt_size(&mut config);
        }
        if !config.ignored.is_empty() {
            warn!(keys = config.ignored.join(" "), "configuration keys without a meaning here");
        }
        let runtime = runtime()?;
        let mut process = Self {
            name_server: None,
            broker: None,
            addresses: Addresses::default(),
            ready_file: None,
            is_cut_off: AtomicBool::new(false),
            failure: Arc::default(),
            runtime: Mutex::new(None),
        };
        let started = runtime.block_on(process.start_parts(config, has_name_server, has_broker));
        *process.runtime.get_mut() = Some(runtime);
        // On an error, what runs already is stopped by the drop.
        started?;
        process.write_ready_file()?;
        Ok(process)
    }

    async fn start_parts(
        &mut self,
        config: ServerConfig,
        has_name_server: bool,
        has_broker: bool,
    ) -> Result<(), ServerError> {
        let mut broker = config.broker;
        if has_name_server {
            let listen = address::listen(&config.host, config.name_server_port.unwrap_or(NAME_SERVER_PORT))?;
            let started = NameServer::start(NameServerConfig { listen, ..config.name_server }).await?;
            let name_server = address::reachable(started.local_addr());
            if has_broker && !broker.name_servers.is_empty() {
                let given = broker.name_servers.join(";");
                warn!(
                    given,
                    used = name_server,
                    "namesrvAddr is not used: this process has a name server of its own"
                );
            }
            broker.name_servers = vec![name_server.clone()];
            self.addresses.name_server = Some(name_server);
            self.name_server = Some(started);
        }
        if has_broker {
            broker.listen = address::listen(&config.host, config.port.unwrap_or(BROKER_PORT))?;
            let policy = broker.store.on_failed_flush;
            let started = Arc::new(Broker::start(broker).await?);
            self.take_ready_file(config.ready_file)?;
            self.addresses.broker = Some(started.advertised().to_owned());
            self.broker = Some(started.clone());
            tokio::spawn(watch(started.clone(), policy, self.failure.clone()));
            if !started.registered(REGISTER_WAIT).await {
                warn!("not registered at every name server yet; clients find this broker once it is");
            }
        } else {
            self.take_ready_file(config.ready_file)?;
        }
        Ok(())
    }

    /// Called once the ports and the store belong to this process: then the file is not another running one's.
    fn take_ready_file(&mut self, path: Option<PathBuf>) -> Result<(), ServerError> {
        self.ready_file = path;
        self.ready_file.as_deref().map_or(Ok(()), remove_ready_file)
    }

    fn write_ready_file(&self) -> Result<(), ServerError> {
        let Some(path) = &self.ready_file else { return Ok(()) };
        let Addresses { name_server, broker } = &self.addresses;
        let ready =
            Ready { pid: std::process::id(), name_server: name_server.as_deref(), broker: broker.as_deref() };
        let mut json = serde_json::to_vec(&ready).unwrap_or_default();
        json.push(b'\n');
        RealDisk.replace(path, &json).map_err(ServerError::ReadyFile)
    }

    fn failure(&self) -> Option<StoreError> {
        self.failure.lock().clone()
    }

    fn stop(&self, within: Duration) {
        let Some(runtime) = self.runtime.lock().take() else { return };
        let started = Instant::now();
        let stopped = runtime.block_on(async {
            // Within the runtime: the timer belongs to it.
            tokio::time::timeout(within, self.stop_parts()).await
        });
        if stopped.is_err() {
            self.is_cut_off.store(true, Ordering::Release);
            warn!(within_ms = within.as_millis() as u64, "not everything stopped in time");
        }
        runtime.shutdown_timeout(within.saturating_sub(started.elapsed()));
        if let Some(path) = &self.ready_file
            && let Err(failure) = remove_ready_file(path)
        {
            warn!(%failure, "ready file not removed");
        }
        info!(took_ms = started.elapsed().as_millis() as u64, "server stopped");
    }

    async fn stop_parts(&self) {
        if let Some(broker) = &self.broker {
            broker.shutdown().await;
        }
        if let Some(name_server) = &self.name_server {
            name_server.shutdown().await;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop(Duration::from_secs(10));
    }
}

/// Tells of a failed flush; stops the broker, and records why, where the configuration wants that.
async fn watch(broker: Arc<Broker>, policy: OnFailedFlush, failure: Arc<Mutex<Option<StoreError>>>) {
    let failed = broker.failed().await;
    error!(failure = %failed, "the disk failed; check it, then start again: recovery keeps what is durable");
    if policy == OnFailedFlush::Stop {
        broker.shutdown().await;
        *failure.lock() = Some(failed);
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

/// Removes what a process left behind that is no more. The file of one that runs is left alone.
fn remove_stale_ready_file(path: &Path) -> Result<(), ServerError> {
    let pid = RealDisk.read(path, MAX_READY_FILE_BYTES).ok().and_then(|bytes| {
        let ready: serde_json::Value = serde_json::from_slice(&bytes).ok()?;
        u32::try_from(ready.get("pid")?.as_u64()?).ok()
    });
    if pid.is_some_and(is_process_alive) { Ok(()) } else { remove_ready_file(path) }
}

fn remove_ready_file(path: &Path) -> Result<(), ServerError> {
    match RealDisk.remove_file(path) {
        Err(error) if !error.is_not_found() => Err(ServerError::ReadyFile(error)),
        _ => Ok(()),
    }
}

macro_rules! process {
    ($(#[$doc:meta])* $name:ident, $config:ident => $started:expr) => {
        $(#[$doc])*
        ///
        /// Its functions block and must not be called from within an async runtime. Dropping it stops it.
        #[derive(Debug)]
        pub struct $name(Process);

        impl $name {
            /// Starts and returns once everything accepts.
            ///
            /// # Errors
            /// An address is taken or unknown, the store cannot be opened, the ready file cannot be written.
            pub fn start(#[allow(unused_mut)] mut $config: ServerConfig) -> Result<Self, ServerError> {
                $started.map(Self)
            }

            /// Where it accepts.
            pub fn addresses(&self) -> &Addresses {
                &self.0.addresses
            }

            /// Why the broker stopped by itself: its disk failed, and the configuration wants a stop then.
            pub fn failure(&self) -> Option<StoreError> {
                self.0.failure()
            }

            /// Stops in order within the time given; a second call does nothing.
            ///
            /// # Durability
            /// On return everything acknowledged is durable, unless the time was too short.
            pub fn stop(&self, within: Duration) {
                self.0.stop(within);
            }

            /// Whether the stop had not enough time: what was not done then, the next start's recovery does. Its caller
            /// fails with [`ServerError::CutOff`].
            pub fn is_cut_off(&self) -> bool {
                self.0.is_cut_off.load(Ordering::Acquire)
            }
        }
    };
}

process!(
    /// A name server and a broker in one process.
    Standalone, config => Process::start(config, true, true)
);
process!(
    /// A name server alone. `listenPort` is its port, unless `nameServerPort` is set.
    NameServerOnly, config => {
        config.name_server_port = config.name_server_port.or(config.port);
        Process::start(config, true, false)
    }
);
process!(
    /// A broker alone.
    BrokerOnly, config => {
        if config.broker.name_servers.is_empty() {
            return Err(ServerError::NoNameServer);
        }
        Process::start(config, false, true)
    }
);
