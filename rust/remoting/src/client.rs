//! The calling side: one connection per address, opened by the first call and again after its end.
use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use std::{fmt, io};

use parking_lot::{Mutex, RwLock};
use rocketpy_protocol::Command;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::debug;

use crate::calls::{Patience, PendingCall};
use crate::config::ClientConfig;
use crate::connection::Connection;
use crate::driver::Driver;
use crate::error::CallError;
use crate::handler::{Handler, NoHandler, Reply, Service};
use crate::shared_driver::SharedDriver;
use crate::tls::ClientTls;

/// A remoting client. Cheap to clone; all clones share their connections.
///
/// Its calls must be made within a tokio runtime, whose tasks then serve the connections.
#[doc(alias = "NettyRemotingClient")]
#[derive(Debug, Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    config: ClientConfig,
    pushes: Arc<Pushes>,
    endpoints: RwLock<HashMap<Box<str>, Arc<Endpoint>>>,
    closed: AtomicBool,
    spawned: Mutex<Spawned>,
}

/// Everything that runs for a client.
#[derive(Debug, Default)]
struct Spawned {
    tasks: JoinSet<()>,
    /// The connections of the tasks. One that its server retired is in no endpoint any more, and lives until its last call is answered.
    connections: Vec<Weak<Connection>>,
}

/// One address.
#[derive(Debug, Default)]
struct Endpoint {
    current: Mutex<Option<Arc<Connection>>>,
    /// Held while connecting, so that calls that come together open one connection. Holds the last failure.
    connecting: tokio::sync::Mutex<Option<(Instant, CallError)>>,
    /// Held while the server is asked whether it speaks TLS, so that calls that failed together ask once. Holds the last answer.
    speaks_tls: tokio::sync::Mutex<Option<(Instant, bool)>>,
}

/// Passes requests of servers to the handler that is set at the time.
struct Pushes(RwLock<Arc<dyn Handler>>);

impl fmt::Debug for Pushes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pushes")
    }
}

impl Pushes {
    fn handler(&self) -> Arc<dyn Handler> {
        Arc::clone(&self.0.read())
    }
}

impl Handler for Pushes {
    fn handle(&self, connection: &Arc<Connection>, request: Command, reply: Reply) {
        self.handler().handle(connection, request, reply);
    }

    fn connected(&self, connection: &Arc<Connection>) {
        self.handler().connected(connection);
    }

    fn disconnected(&self, connection: &Arc<Connection>) {
        self.handler().disconnected(connection);
    }
}

impl Client {
    /// A client without connections; nothing happens before the first call.
    pub fn new(config: ClientConfig) -> Self {
        let pushes = Arc::new(Pushes(RwLock::new(Arc::new(NoHandler))));
        let inner = Inner {
            config,
            pushes,
            endpoints: RwLock::default(),
            closed: AtomicBool::new(false),
            spawned: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Sets the handler of servers' requests, on open connections too. Until then they are refused by code.
    pub fn set_request_handler(&self, handler: Arc<dyn Handler>) {
        *self.inner.pushes.0.write() = handler;
    }

    /// Sends a request to `addr` (`host:port`) and waits for its answer, all within `timeout`.
    ///
    /// A request that a server refuses because it shuts down (GO_AWAY) is sent once more over a new connection.
    ///
    /// # Errors
    /// Any [`CallError`]. The response codes of the peer are not errors, except GO_AWAY.
    ///
    /// # Cancel safety
    /// Dropped after its first poll, the request may have been sent.
    pub async fn call(
        &self,
        addr: &str,
        mut request: Command,
        timeout: Duration,
    ) -> Result<Command, CallError> {
        let patience = Patience::from_now(timeout);
        match self.try_call(addr, &mut request, patience).await {
            // The server did not take it, or the connection ended before it was sent: sending it again is safe.
            Err(
                error @ (CallError::GoAway { .. }
                | CallError::Closed { queued: false, .. }
                | CallError::TlsOnly { queued: false, .. }),
            ) => {
                debug!(addr, code = request.code, reason = %error, "request sent again over a new connection");
                self.try_call(addr, &mut request, patience).await
            }
            result => result,
        }
    }

    /// Queues a request and returns a future of its answer; waits only for the connection and for room.
    ///
    /// # Errors
    /// Those of connecting, [`CallError::WindowFull`], [`CallError::Closed`] (not queued), [`CallError::FrameTooLarge`],
    /// [`CallError::Encode`]: the peer has not seen the request.
    pub async fn start_call(
        &self,
        addr: &str,
        mut request: Command,
        timeout: Duration,
    ) -> Result<PendingCall, CallError> {
        let patience = Patience::from_now(timeout);
        self.connected(addr, patience).await?.begin(&mut request, patience).await
    }

    /// Queues a request that is not answered; waits for the connection only.
    ///
    /// # Errors
    /// As [`start_call`](Self::start_call).
    pub async fn call_oneway(
        &self,
        addr: &str,
        request: Command,
        timeout: Duration,
    ) -> Result<(), CallError> {
        self.connection(addr, timeout).await?.send_oneway(request)
    }

    /// The connection to `addr`, opened when there is none that takes calls.
    ///
    /// # Errors
    /// [`CallError::Connect`], [`CallError::ConnectTimeout`], [`CallError::ClientClosed`].
    pub async fn connection(&self, addr: &str, timeout: Duration) -> Result<Arc<Connection>, CallError> {
        self.connected(addr, Patience::from_now(timeout)).await
    }

    pub fn connections(&self) -> Vec<Arc<Connection>> {
        self.inner.connections()
    }

    /// Closes all connections, also those that a server has told to go away; later calls end with [`CallError::ClientClosed`].
    pub fn close(&self) {
        self.inner.close();
    }

    /// As [`close`](Self::close), and waits until every connection has ended.
    pub async fn shutdown(&self) {
        self.close();
        let mut tasks = std::mem::take(&mut self.inner.spawned.lock().tasks);
        while tasks.join_next().await.is_some() {}
    }

    async fn try_call(
        &self,
        addr: &str,
        request: &mut Command,
        patience: Patience,
    ) -> Result<Command, CallError> {
        let connection = self.connected(addr, patience).await?;
        let result = match connection.begin(request, patience).await {
            Ok(pending) => pending.await,
            Err(error) => Err(error),
        };
        match result {
            Err(CallError::Closed { code, queued, .. })
                if self.inner.config.tls.is_none()
                    && !connection.has_received()
                    && self.speaks_tls(addr, patience).await =>
            {
                Err(CallError::TlsOnly { addr: addr.to_owned(), code, queued })
            }
            result => result,
        }
    }

    /// Whether the server, which closed a plain connection without an answer, speaks TLS. `false` if that is not known in time.
    async fn speaks_tls(&self, addr: &str, patience: Patience) -> bool {
        let endpoint = self.endpoint(addr);
        tokio::time::timeout_at(patience.deadline, endpoint.speaks_tls(addr)).await.unwrap_or(false)
    }

    async fn connected(&self, addr: &str, patience: Patience) -> Result<Arc<Connection>, CallError> {
        let endpoint = self.endpoint(addr);
        if let Some(connection) = endpoint.usable() {
            return Ok(connection);
        }
        let limit = Patience::from_now(self.inner.config.connect_timeout);
        let patience = if limit.deadline < patience.deadline { limit } else { patience };
        match tokio::time::timeout_at(patience.deadline, self.connect_once(&endpoint, addr)).await {
            Ok(result) => result,
            Err(_) => {
                Err(CallError::ConnectTimeout { addr: addr.to_owned(), timeout_ms: patience.timeout_ms() })
            }
        }
    }

    fn endpoint(&self, addr: &str) -> Arc<Endpoint> {
        if let Some(endpoint) = self.inner.endpoints.read().get(addr) {
            return Arc::clone(endpoint);
        }
        Arc::clone(self.inner.endpoints.write().entry(addr.into()).or_default())
    }

    /// Connects, or shares the outcome of an attempt that was under way when this one began.
    async fn connect_once(&self, endpoint: &Endpoint, addr: &str) -> Result<Arc<Connection>, CallError> {
        let started = Instant::now();
        let mut last_failure = endpoint.connecting.lock().await;
        if let Some(connection) = endpoint.usable() {
            return Ok(connection);
        }
        if let Some((failed_at, error)) = &*last_failure
            && *failed_at >= started
        {
            return Err(error.clone());
        }
        let result = self.connect(addr).await;
        match &result {
            Ok(connection) => *endpoint.current.lock() = Some(Arc::clone(connection)),
            Err(error) => *last_failure = Some((Instant::now(), error.clone())),
        }
        // A close during the attempt did not see this connection.
        if self.inner.closed.load(Ordering::Acquire) {
            self.inner.close();
            return Err(CallError::ClientClosed);
        }
        result
    }

    async fn connect(&self, addr: &str) -> Result<Arc<Connection>, CallError> {
        if self.inner.closed.load(Ordering::Acquire) {
            return Err(CallError::ClientClosed);
        }
        let failed = |error: io::Error| CallError::Connect {
            addr: addr.to_owned(),
            kind: error.kind(),
            reason: error.to_string(),
        };
        let stream = TcpStream::connect(addr).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let ends = (stream.peer_addr().map_err(failed)?, stream.local_addr().map_err(failed)?);
        let config = &self.inner.config;
        let (limits, hook) = (config.limits(), config.hook.clone());
        let connection = Arc::new(Connection::new(ends, addr.into(), config.serialize, limits, hook));
        let service = Service { handler: Arc::clone(&self.inner.pushes) as Arc<dyn Handler>, check: None };
        let Some(tls) = &config.tls else {
            let driver = |stream| Driver::new(stream, Arc::clone(&connection), service, ());
            let driver = SharedDriver::new(stream, driver).map_err(failed)?;
            self.inner.spawn(&connection, driver);
            return Ok(connection);
        };
        let stream = tls.connect(addr, stream).await.map_err(|error| no_tls(addr, &error))?;
        self.inner.spawn(&connection, Driver::new(stream, Arc::clone(&connection), service, ()));
        Ok(connection)
    }
}

/// Error of a handshake. A peer that closed instead of answering speaks no TLS, wants a certificate, or stops.
fn no_tls(addr: &str, error: &io::Error) -> CallError {
    let addr = addr.to_owned();
    match error.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => {
            CallError::Tls { addr, reason: error.to_string(), is_closed: false }
        }
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            CallError::Tls {
                addr,
                reason: "the server closed the connection during the handshake".to_owned(),
                is_closed: true,
            }
        }
        kind => CallError::Connect { addr, kind, reason: error.to_string() },
    }
}

impl Inner {
    /// Starts the task of a connection and forgets those that have ended.
    fn spawn(&self, connection: &Arc<Connection>, task: impl Future<Output = ()> + Send + 'static) {
        let mut spawned = self.spawned.lock();
        while spawned.tasks.try_join_next().is_some() {}
        spawned.connections.retain(|connection| connection.strong_count() > 0);
        spawned.connections.push(Arc::downgrade(connection));
        spawned.tasks.spawn(task);
    }

    fn connections(&self) -> Vec<Arc<Connection>> {
        self.endpoints.read().values().filter_map(|endpoint| endpoint.current.lock().clone()).collect()
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Release);
        let connections: Vec<_> = self.spawned.lock().connections.iter().filter_map(Weak::upgrade).collect();
        for connection in connections {
            connection.close();
        }
    }
}

/// The last clone closes the connections; their tasks write what is queued and end by themselves.
impl Drop for Inner {
    fn drop(&mut self) {
        self.close();
        self.spawned.get_mut().tasks.detach_all();
    }
}

impl Endpoint {
    fn usable(&self) -> Option<Arc<Connection>> {
        self.current.lock().as_ref().filter(|connection| connection.takes_calls()).cloned()
    }

    /// Whether the server, which closed a plain connection without an answer, speaks TLS.
    async fn speaks_tls(&self, addr: &str) -> bool {
        let failed_at = Instant::now();
        let mut last = self.speaks_tls.lock().await;
        match *last {
            Some((asked_at, answer)) if asked_at >= failed_at => answer,
            _ => {
                let answer = ClientTls::is_spoken_at(addr).await;
                *last = Some((Instant::now(), answer));
                answer
            }
        }
    }
}
