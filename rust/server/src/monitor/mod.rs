//! Metrics and health of the broker over HTTP.
//!
//! The server has a thread of its own: it answers while the threads that serve clients are busy or stuck. It knows the broker that runs, which
//! another one replaces when the role changes.

mod http;
mod prometheus;

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use rocketpy_broker::{Broker, FailedCheck};
use tokio::sync::oneshot;
use tracing::{info, warn};

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
}

impl Watched {
    /// Shows a broker that has started.
    pub(crate) fn set(&self, broker: &Arc<Broker>) {
        self.0.lock().broker = Some(broker.clone());
    }

    /// Notes that the broker is being started, stopped or replaced.
    pub(crate) fn clear(&self, absence: &'static str) {
        *self.0.lock() = State { broker: None, absence };
    }

    fn broker(&self) -> Option<Arc<Broker>> {
        self.0.lock().broker.clone()
    }

    /// Whether clients should use the broker.
    fn ready(&self) -> Result<(), Vec<FailedCheck>> {
        let (broker, absence) = {
            let state = self.0.lock();
            (state.broker.clone(), state.absence)
        };
        match broker {
            Some(broker) => broker.ready(),
            None => Err(vec![FailedCheck { check: "store", cause: absence.to_owned() }]),
        }
    }

    /// Whether the broker makes progress. One that is not there yet does: a start may take long.
    fn alive(&self) -> Result<(), Vec<FailedCheck>> {
        self.broker().map_or(Ok(()), |broker| broker.alive())
    }
}

/// The HTTP server of a process. Dropping it stops it.
#[derive(Debug)]
pub(crate) struct Monitor {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Monitor {
    /// Listens, if the configuration wants that.
    ///
    /// # Errors
    /// The address cannot be listened on, or there are no threads.
    pub(crate) fn start(config: &ExporterConfig, watched: &Watched) -> Result<Option<Self>, ServerError> {
        if config.kind == ExporterType::Disabled {
            return Ok(None);
        }
        let wanted = address::listen(&config.host, config.port)?;
        let failed = |source| ServerError::Metrics { addr: wanted, source };
        let listener = std::net::TcpListener::bind(wanted).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        if address::danger(address).is_some() {
            warn!(%address, "metrics have no login: every host that reaches this address reads the names of all topics and groups");
        }
        let (stop, stopped) = oneshot::channel();
        let watched = watched.clone();
        let runtime = http::runtime().map_err(ServerError::Threads)?;
        let run = move || runtime.block_on(http::serve(listener, watched, stopped));
        let thread = std::thread::Builder::new().name("rocketpy-http".to_owned()).spawn(run);
        let thread = Some(thread.map_err(ServerError::Threads)?);
        info!(%address, "metrics and health served over HTTP");
        Ok(Some(Self { address, stop: Some(stop), thread }))
    }

    /// `host:port` that a client on this machine can use.
    pub(crate) fn address(&self) -> String {
        address::reachable(self.address)
    }
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
