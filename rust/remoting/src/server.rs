//! The listening side: accepts, counts, and ends connections in order.
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rocketpy_protocol::SerializeType;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tracing::{debug, info, warn};

use crate::config::ServerConfig;
use crate::connection::{Connection, Phase};
use crate::driver::Driver;
use crate::error::ServerError;
use crate::handler::{Handler, Service};
use crate::stream::Stream;
use crate::tls::{Accepted, Refused, ServerTls};

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1024;
/// Maximum wait for a connection before the accepting task shows that it runs.
const ACCEPT_TURN: Duration = Duration::from_secs(5);
/// Pause after a failed accept: most often the process has no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A remoting server: a listening socket and the connections accepted from it.
///
/// Dropping it closes the socket and aborts the connections; [`shutdown`](Self::shutdown) ends them gracefully.
#[doc(alias = "NettyRemotingServer")]
#[derive(Debug)]
pub struct Server {
    local_addr: SocketAddr,
    shared: Arc<Shared>,
    accepting: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    /// When the accepting task ran last, in milliseconds since `began`.
    seen_at_ms: AtomicU64,
    began: Instant,
    config: ServerConfig,
    handler: Arc<dyn Handler>,
    open: Mutex<Open>,
    /// Notified when the last connection is gone.
    emptied: Notify,
    /// Notified at the stop: undecided connections end.
    stopped: Notify,
}

#[derive(Debug, Default)]
struct Open {
    by_id: HashMap<u64, Arc<Connection>>,
    /// Connections of which it is not known yet whether they are encrypted, or whose handshake has not ended.
    undecided: usize,
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
        let (seen_at_ms, began) = (AtomicU64::new(0), Instant::now());
        let (open, emptied, stopped) = (Mutex::default(), Notify::new(), Notify::new());
        let shared = Arc::new(Shared { seen_at_ms, began, config, handler, open, emptied, stopped });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        info!(%local_addr, "remoting server listening");
        Self { local_addr, shared, accepting: Mutex::new(Some(accepting)) }
    }

    /// The address it listens on, with its real port.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Time since the task that accepts connections ran last. It runs at least once in a few seconds, also when nobody connects.
    pub fn accept_silence(&self) -> Duration {
        let seen_at = Duration::from_millis(self.shared.seen_at_ms.load(Ordering::Relaxed));
        self.shared.began.elapsed().saturating_sub(seen_at)
    }

    pub fn connections(&self) -> Vec<Arc<Connection>> {
        self.shared.open.lock().by_id.values().cloned().collect()
    }

    /// Ends gracefully: accepts no more, answers the requests it has, refuses new ones with GO_AWAY (to peers that know it), closes.
    /// Connections that have not ended after `deadline` are aborted.
    ///
    /// The layer above should first answer the requests whose replies it keeps, such as held pulls.
    pub async fn shutdown(&self, deadline: Duration) {
        self.shared.stop();
        let accepting = self.accepting.lock().take();
        if let Some(accepting) = accepting {
            accepting.abort();
            // The address is free once that task has ended.
            drop(accepting.await);
        }
        self.enter(Phase::Draining);
        if tokio::time::timeout(deadline, self.emptied()).await.is_err() {
            let left = self.enter(Phase::Aborted);
            warn!(local_addr = %self.local_addr, left, "connections closed forcibly at the end of the shutdown");
            // Each task ends at its next poll, whatever its peer does.
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
        self.shared.stop();
        if let Some(accepting) = self.accepting.get_mut().take() {
            accepting.abort();
        }
        self.enter(Phase::Aborted);
    }
}

/// An address that is bound and not served yet: connections are refused.
///
/// For a start that has work to do before it can serve, and should not begin that work when the address is in use.
#[derive(Debug)]
pub struct Reserved {
    addr: SocketAddr,
    socket: TcpSocket,
}

impl Reserved {
    /// Binds an address; port 0 takes a free one.
    ///
    /// # Errors
    /// [`ServerError::Bind`] when the address is in use, or is not an address of this machine.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new(addr: SocketAddr) -> Result<Self, ServerError> {
        match bind(addr) {
            Ok(socket) => Ok(Self { addr, socket }),
            Err(source) => Err(ServerError::Bind { addr, source }),
        }
    }

    /// The bound address, with the real port.
    ///
    /// # Errors
    /// [`ServerError::Bind`] when the system does not tell.
    pub fn local_addr(&self) -> Result<SocketAddr, ServerError> {
        self.socket.local_addr().map_err(|source| ServerError::Bind { addr: self.addr, source })
    }

    /// Serves the bound address; the one in `config` is ignored.
    ///
    /// # Errors
    /// [`ServerError::Bind`] when another process bound the address at the same time and serves it already.
    pub fn serve(self, config: ServerConfig, handler: Arc<dyn Handler>) -> Result<Server, ServerError> {
        let addr = self.addr;
        let listen = || {
            let listener = self.socket.listen(BACKLOG)?;
            let local_addr = listener.local_addr()?;
            Ok((listener, local_addr))
        };
        Ok(Server::start(listen().map_err(|source| ServerError::Bind { addr, source })?, config, handler))
    }

    /// Listens, for a thread that accepts and blocks.
    ///
    /// # Errors
    /// As [`Self::serve`].
    pub fn listen(self) -> Result<std::net::TcpListener, ServerError> {
        let addr = self.addr;
        let listen = || {
            let listener = self.socket.listen(BACKLOG)?.into_std()?;
            listener.set_nonblocking(false)?;
            Ok(listener)
        };
        listen().map_err(|source| ServerError::Bind { addr, source })
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
        let now_ms = shared.began.elapsed().as_millis();
        shared.seen_at_ms.store(u64::try_from(now_ms).unwrap_or(u64::MAX), Ordering::Relaxed);
        // Nothing is lost when the time is up: the connection is accepted by the next turn.
        let Ok(accepted) = tokio::time::timeout(ACCEPT_TURN, listener.accept()).await else { continue };
        match accepted {
            Ok((stream, peer)) => {
                // A socket for both versions shows IPv4 clients as IPv6 addresses; stored records must show IPv4.
                let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
                if let Err(error) = shared.open(stream, peer) {
                    debug!(%peer, %error, "connection closed before it was served");
                }
            }
            Err(error) => {
                warn!(%error, "connection not accepted, retrying");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

impl Shared {
    /// Opens no connection from now on.
    fn stop(&self) {
        self.open.lock().stopping = true;
        self.stopped.notify_waiters();
    }

    fn open(self: &Arc<Self>, stream: TcpStream, peer: SocketAddr) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let ends = (peer, stream.local_addr()?);
        let Some(counted) = Counted::new(self, peer.ip()) else { return Ok(()) };
        let Some(tls) = &self.config.tls else {
            self.serve(stream, ends, counted, None);
            return Ok(());
        };
        let mut open = self.open.lock();
        if self.admit(peer, &open) {
            open.undecided += 1;
            let undecided = Undecided { shared: Some(Arc::clone(self)) };
            tokio::spawn(decide(Arc::clone(tls), stream, ends, counted, undecided));
        }
        Ok(())
    }

    /// Whether there is room for one more connection.
    fn admit(&self, peer: SocketAddr, open: &Open) -> bool {
        let max_connections = self.config.max_connections;
        let is_full = open.by_id.len() + open.undecided >= max_connections;
        if is_full && !open.stopping {
            warn!(%peer, max_connections, "too many connections, closing this one");
        }
        !is_full && !open.stopping
    }

    /// Serves a connection. One that was undecided has its room already.
    fn serve<S: Stream + Send + 'static>(
        self: &Arc<Self>,
        stream: S,
        (peer, local): (SocketAddr, SocketAddr),
        counted: Counted,
        undecided: Option<Undecided>,
    ) {
        let mut open = self.open.lock();
        let has_room = match undecided {
            Some(undecided) => undecided.decided(&mut open),
            None => self.admit(peer, &open),
        };
        if !has_room {
            return;
        }
        let name = peer.to_string().into();
        let limits = self.config.limits();
        let connection = Arc::new(Connection::new((peer, local), name, SerializeType::Json, limits, None));
        if stream.is_encrypted() {
            connection.note_encrypted();
        }
        open.by_id.insert(connection.id(), Arc::clone(&connection));
        drop(open);
        connection.register_in(&self.config.memory);
        let slot = Slot { id: connection.id(), counted };
        let service = Service { handler: Arc::clone(&self.handler), check: self.config.check.clone() };
        tokio::spawn(Driver::new(stream, connection, service, slot));
    }
}

/// Looks at the first byte of a connection, completes the handshake of an encrypted one, and serves it.
async fn decide(
    tls: Arc<ServerTls>,
    stream: TcpStream,
    ends: (SocketAddr, SocketAddr),
    counted: Counted,
    undecided: Undecided,
) {
    let shared = Arc::clone(&counted.shared);
    let stopped = shared.stopped.notified();
    if shared.open.lock().stopping {
        return;
    }
    let accepted = tokio::select! {
        accepted = tls.accept(stream, shared.config.idle_timeout) => accepted,
        () = stopped => return,
    };
    match accepted {
        Ok(Accepted::Plain(stream)) => shared.serve(stream, ends, counted, Some(undecided)),
        Ok(Accepted::Encrypted(stream)) => shared.serve(*stream, ends, counted, Some(undecided)),
        Err(refused @ (Refused::Silent | Refused::Socket(_))) => {
            debug!(peer = %ends.0, reason = %refused, "connection ended");
        }
        Err(refused) => info!(peer = %ends.0, reason = %refused, "connection refused"),
    }
}

/// Room of a connection that is not served yet; free again when dropped.
struct Undecided {
    shared: Option<Arc<Shared>>,
}

impl Undecided {
    /// Gives the room to the connection itself; false when the server stops.
    fn decided(mut self, open: &mut Open) -> bool {
        self.shared = None;
        open.undecided -= 1;
        !open.stopping
    }
}

impl Drop for Undecided {
    fn drop(&mut self) {
        if let Some(shared) = &self.shared {
            shared.open.lock().undecided -= 1;
        }
    }
}

/// A connection that counts for the address of its peer, from its first moment on, until dropped.
struct Counted {
    shared: Arc<Shared>,
    peer: IpAddr,
}

impl Counted {
    /// `None`: the address has too many.
    fn new(shared: &Arc<Shared>, peer: IpAddr) -> Option<Self> {
        if shared.config.connections.as_ref().is_some_and(|check| !check.opens(peer)) {
            debug!(%peer, "too many connections of one address, closing this one");
            return None;
        }
        Some(Self { shared: Arc::clone(shared), peer })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(check) = &self.shared.config.connections {
            check.closed(self.peer);
        }
    }
}

/// The place of a connection in its server, free again when dropped.
struct Slot {
    id: u64,
    counted: Counted,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let shared = &self.counted.shared;
        let mut open = shared.open.lock();
        open.by_id.remove(&self.id);
        if open.by_id.is_empty() {
            shared.emptied.notify_waiters();
        }
    }
}
