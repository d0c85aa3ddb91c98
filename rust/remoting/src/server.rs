//! The listening side: accepts, counts, and ends connections in order.
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rocketpy_protocol::SerializeType;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tracing::{debug, info, warn};

use crate::config::ServerConfig;
use crate::connection::{Connection, Limits, Phase};
use crate::driver::Driver;
use crate::error::ServerError;
use crate::handler::Handler;

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1024;
/// Pause after a failed accept, most often for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A remoting server: a listening socket and the connections that came by it.
///
/// Dropping it closes the socket and aborts the connections; [`shutdown`](Self::shutdown) ends them in order.
#[doc(alias = "NettyRemotingServer")]
#[derive(Debug)]
pub struct Server {
    local_addr: SocketAddr,
    shared: Arc<Shared>,
    accepting: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    config: ServerConfig,
    handler: Arc<dyn Handler>,
    open: Mutex<Open>,
    /// Told when the last connection is gone.
    emptied: Notify,
}

/// The connections that are open.
#[derive(Debug, Default)]
struct Open {
    by_id: HashMap<u64, Arc<Connection>>,
    stopping: bool,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Server {
    /// Listens and serves every connection with `handler`, on the current tokio runtime.
    ///
    /// # Errors
    /// [`ServerError::Bind`] when the address cannot be listened on.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn bind(config: ServerConfig, handler: Arc<dyn Handler>) -> Result<Self, ServerError> {
        Reserved::new(config.addr)?.serve(config, handler)
    }

    fn start(
        (listener, local_addr): (TcpListener, SocketAddr),
        config: ServerConfig,
        handler: Arc<dyn Handler>,
    ) -> Self {
        let shared = Arc::new(Shared { config, handler, open: Mutex::default(), emptied: Notify::new() });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        info!(%local_addr, "remoting server listens");
        Self { local_addr, shared, accepting: Mutex::new(Some(accepting)) }
    }

    /// The address that is listened on, its port never 0.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// The connections that are open now.
    pub fn connections(&self) -> Vec<Arc<Connection>> {
        self.shared.open.lock().by_id.values().cloned().collect()
    }

    /// Ends in order: accepts no more, answers what was taken, refuses what still comes with GO_AWAY (peers that know it), closes.
    /// What has not ended after `deadline` is cut off.
    ///
    /// Requests whose replies are kept, such as held pulls, should be answered by the layer above first.
    pub async fn shutdown(&self, deadline: Duration) {
        self.shared.open.lock().stopping = true;
        let accepting = self.accepting.lock().take();
        if let Some(accepting) = accepting {
            accepting.abort();
            // Once it has ended the address is free.
            drop(accepting.await);
        }
        self.enter(Phase::Draining);
        if tokio::time::timeout(deadline, self.emptied()).await.is_err() {
            let left = self.enter(Phase::Aborted);
            warn!(local_addr = %self.local_addr, left, "connections cut off at the end of the shutdown");
            // Each task ends at its next poll; that needs no peer.
            drop(tokio::time::timeout(deadline, self.emptied()).await);
        }
        debug!(local_addr = %self.local_addr, "remoting server stopped");
    }

    async fn emptied(&self) {
        loop {
            let emptied = self.shared.emptied.notified();
            if self.shared.open.lock().by_id.is_empty() {
                return;
            }
            emptied.await;
        }
    }

    fn enter(&self, phase: Phase) -> usize {
        let connections = self.connections();
        for connection in &connections {
            connection.enter(phase);
        }
        connections.len()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.open.lock().stopping = true;
        if let Some(accepting) = self.accepting.get_mut().take() {
            accepting.abort();
        }
        self.enter(Phase::Aborted);
    }
}

/// An address that is taken and not served yet: connections are refused.
///
/// For a start that has work to do before it can serve, and should not begin it when the address is in use.
#[derive(Debug)]
pub struct Reserved {
    addr: SocketAddr,
    socket: TcpSocket,
}

impl Reserved {
    /// Takes an address; port 0 takes a free one.
    ///
    /// # Errors
    /// [`ServerError::Bind`] when somebody else serves the address, or it is none of this machine's.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new(addr: SocketAddr) -> Result<Self, ServerError> {
        match bind(addr) {
            Ok(socket) => Ok(Self { addr, socket }),
            Err(source) => Err(ServerError::Bind { addr, source }),
        }
    }

    /// Serves the address that was taken; the one in `config` does not matter.
    ///
    /// # Errors
    /// [`ServerError::Bind`] when another process that took the address at the same time serves it already.
    pub fn serve(self, config: ServerConfig, handler: Arc<dyn Handler>) -> Result<Server, ServerError> {
        let addr = self.addr;
        let listen = || {
            let listener = self.socket.listen(BACKLOG)?;
            let local_addr = listener.local_addr()?;
            Ok((listener, local_addr))
        };
        Ok(Server::start(listen().map_err(|source| ServerError::Bind { addr, source })?, config, handler))
    }
}

fn bind(addr: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A restart must not wait for the connections of the process before it.
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    Ok(socket)
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // IPv4 clients of a socket that serves both are IPv4 clients, in records too.
                let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
                if let Err(error) = shared.open(stream, peer) {
                    debug!(%peer, %error, "connection was gone before it was served");
                }
            }
            Err(error) => {
                warn!(%error, "cannot accept a connection, trying again");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

impl Shared {
    fn open(self: &Arc<Self>, stream: TcpStream, peer: SocketAddr) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let ends = (peer, stream.local_addr()?);
        let mut open = self.open.lock();
        if open.stopping {
            return Ok(());
        }
        if open.by_id.len() >= self.config.max_connections {
            drop(open);
            warn!(%peer, max_connections = self.config.max_connections, "too many connections, this one is closed");
            return Ok(());
        }
        let handler = Arc::clone(&self.handler);
        let name = peer.to_string().into();
        let connection = Arc::new(Connection::new(ends, name, SerializeType::Json, self.limits(), handler));
        open.by_id.insert(connection.id(), Arc::clone(&connection));
        drop(open);
        let slot = Slot { shared: Arc::clone(self), id: connection.id() };
        tokio::spawn(Driver::new(stream, connection, slot));
        Ok(())
    }

    fn limits(&self) -> Limits {
        let config = &self.config;
        Limits {
            max_frame_bytes: config.max_frame_bytes,
            max_queued_bytes: config.max_queued_bytes,
            max_unanswered: config.max_unanswered.max(1),
            max_outstanding_calls: config.max_unanswered,
            max_outstanding_bytes: config.max_queued_bytes,
            idle_timeout: config.idle_timeout,
            stall_timeout: config.stall_timeout,
        }
    }
}

/// The place of a connection in its server.
struct Slot {
    shared: Arc<Shared>,
    id: u64,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut open = self.shared.open.lock();
        open.by_id.remove(&self.id);
        if open.by_id.is_empty() {
            self.shared.emptied.notify_waiters();
        }
    }
}
