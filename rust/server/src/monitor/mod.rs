//! Metrics of the broker, or of a name server alone, over HTTP with its health, to a collector, or in the log.
//!
//! The exporter has a thread of its own: it answers while the threads that serve clients are busy or stuck. It knows the broker that runs, which
//! another one replaces when the role changes.

mod http;
mod name_server;
mod otlp;
mod prometheus;

use std::borrow::Cow;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use rocketpy_broker::{Broker, Declared, FailedCheck, Group, ServerTls};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tracing::{error, info, warn};

pub(crate) use self::name_server::NameServerFigures;
use crate::config::{ExporterConfig, ExporterType};
use crate::{ServerError, address};

/// The broker that runs; `None` before its start, while its role changes and after its stop.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watched(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    broker: Option<Arc<Broker>>,
    /// Why there is none.
    absence: &'static str,
    /// Of a process that has a name server alone.
    name_server: Option<NameServerFigures>,
}

/// What metrics are read from.
pub(crate) enum Source {
    Broker(Arc<Broker>),
    NameServer(NameServerFigures),
}

impl Watched {
    /// Shows a broker that has started.
    pub(crate) fn set(&self, broker: &Arc<Broker>) {
        self.0.lock().broker = Some(broker.clone());
    }

    /// Notes that the broker is being started, stopped or replaced.
    pub(crate) fn clear(&self, absence: &'static str) {
        *self.0.lock() = State { broker: None, absence, name_server: None };
    }

    /// Shows a name server that has no broker beside it.
    pub(crate) fn set_name_server(&self, figures: NameServerFigures) {
        self.0.lock().name_server = Some(figures);
    }

    fn source(&self) -> Option<Source> {
        let state = self.0.lock();
        let of_name_server = || state.name_server.clone().map(Source::NameServer);
        state.broker.clone().map(Source::Broker).or_else(of_name_server)
    }

    fn broker(&self) -> Option<Arc<Broker>> {
        self.0.lock().broker.clone()
    }

    /// Whether clients should use the broker.
    fn ready(&self) -> Result<(), Vec<FailedCheck>> {
        let (broker, absence, is_name_server) = {
            let state = self.0.lock();
            (state.broker.clone(), state.absence, state.name_server.is_some())
        };
        match broker {
            Some(broker) => broker.ready(),
            None if is_name_server => Ok(()),
            None => Err(vec![FailedCheck { check: "store", cause: absence.to_owned() }]),
        }
    }

    /// Whether the broker makes progress. One that is not there yet does: a start may take long.
    fn alive(&self) -> Result<(), Vec<FailedCheck>> {
        self.broker().map_or(Ok(()), |broker| broker.alive())
    }
}

/// A label with its value.
type Label = (Cow<'static, str>, Cow<'static, str>);

/// Labels of every series.
///
/// # Source
/// docs/reference/metrics.md 2.
fn labels(broker: &Broker) -> Vec<Label> {
    let config = broker.config();
    let own = [
        ("node_type", "broker"),
        ("cluster", &config.cluster_name),
        ("node_id", &config.broker_name),
        ("otel_scope_name", "broker-meter"),
    ];
    let own = own.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
    let all = own.chain(config.metrics.labels.iter().cloned());
    all.map(|(name, value)| (Cow::Owned(name), Cow::Owned(value))).collect()
}

/// Further labels of the series of a metric.
fn of_store(declared: &Declared) -> &'static [(&'static str, &'static str)] {
    match declared.group {
        Some(Group::MessageStore) => &[("storage_type", "local"), ("storage_medium", "disk")],
        _ => &[],
    }
}

/// The exporter of a process. Dropping it stops it.
#[derive(Debug)]
pub(crate) struct Monitor {
    /// Of the HTTP server, if it is one.
    address: Option<SocketAddr>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Monitor {
    /// Starts the exporter, if the configuration wants one.
    ///
    /// # Errors
    /// The address cannot be listened on, there is no collector, or there are no threads.
    pub(crate) fn start(
        config: &ExporterConfig,
        tls: Option<Arc<ServerTls>>,
        watched: &Watched,
    ) -> Result<Option<Self>, ServerError> {
        let (stop, stopped) = oneshot::channel();
        let (watched, mut address) = (watched.clone(), None);
        let work: Pin<Box<dyn Future<Output = ()> + Send>> = match config.kind {
            ExporterType::Disabled => return Ok(None),
            ExporterType::Prometheus => {
                let listener = listen(config)?;
                address = listener.local_addr().ok();
                Box::pin(http::serve(listener, tls, watched, stopped))
            }
            ExporterType::Otlp if config.grpc_target.is_none() => return Err(ServerError::NoCollector),
            ExporterType::Otlp | ExporterType::Log => {
                info!(kind = ?config.kind, "metrics are exported");
                Box::pin(otlp::export(config.clone(), watched, stopped))
            }
        };
        let run = || match runtime() {
            Ok(runtime) => runtime.block_on(work),
            Err(error) => error!(%error, "metrics and health not served"),
        };
        let thread = std::thread::Builder::new().name("rocketpy-metrics".to_owned()).spawn(run);
        let thread = Some(thread.map_err(ServerError::Threads)?);
        Ok(Some(Self { address, stop: Some(stop), thread }))
    }

    /// `host:port` that a client on this machine can use, of an HTTP server.
    pub(crate) fn address(&self) -> Option<String> {
        self.address.map(address::reachable)
    }
}

/// Threads of an exporter: one for connections, and one that reads the metrics.
fn runtime() -> std::io::Result<Runtime> {
    Builder::new_current_thread().thread_name("rocketpy-metrics").max_blocking_threads(1).enable_all().build()
}

/// Listens for HTTP.
///
/// # Errors
/// The address cannot be listened on.
fn listen(config: &ExporterConfig) -> Result<std::net::TcpListener, ServerError> {
    let wanted = address::listen(&config.host, config.port)?;
    let failed = |source| ServerError::Metrics { addr: wanted, source };
    let listener = std::net::TcpListener::bind(wanted).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    if address::is_beyond_loopback(address) {
        warn!(%address, "metrics have no login: every host that reaches this address reads the names of all topics and groups");
    }
    info!(%address, "metrics and health served over HTTP");
    Ok(listener)
}

impl Drop for Monitor {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(()); // it may have ended by itself
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // its panic is in the log
        }
    }
}
