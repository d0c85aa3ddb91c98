//! The settings of a server and of a client, with their defaults.
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rocketpy_protocol::SerializeType;

use crate::budget::MemoryBudget;
use crate::connection::Limits;
use crate::handler::{ConnectionCheck, RequestCheck};
use crate::hook::RequestHook;
use crate::observer::AnswerObserver;
use crate::tls::{ClientTls, ServerTls};

/// Largest frame that is read or written, with its length field.
const MAX_FRAME_BYTES: usize = 16 * 1024 * 1024;
/// A connection is closed when nothing was read or written for this time.
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);
/// A connection is closed when frames wait and the peer takes too little of them in this time.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Address to listen on; port 0 takes a free one.
    pub addr: SocketAddr,
    /// Largest frame with its length field; a longer one closes its connection. Default 16 MiB.
    pub max_frame_bytes: usize,
    /// Most open connections. One more is accepted and closed at once, with a log line. Default 10,000.
    pub max_connections: usize,
    /// Most bytes of answers that wait for one peer; beyond them nothing more is read from it. Default 16 MiB.
    pub max_queued_bytes: usize,
    /// Most unanswered requests of one connection; beyond them nothing more is read from it. Default 32,768.
    pub max_unanswered: usize,
    /// Closes a connection on which nothing was read or written for this time. Default 120 s.
    pub idle_timeout: Duration,
    /// Closes a connection whose peer takes less than 1/32 of the waiting answers, or less than 64 KiB of them, in this time.
    /// Default 30 s.
    pub stall_timeout: Duration,
    /// Bounds the memory of all connections together; several servers may share one. Default one of its own, of
    /// [`MemoryBudget::DEFAULT_BYTES`].
    pub memory: Arc<MemoryBudget>,
    /// Sees every request before the handler and may refuse it. Default `None`: all are admitted.
    pub check: Option<Arc<dyn RequestCheck>>,
    /// Counts connections by address and may refuse one. Default `None`: all are admitted.
    pub connections: Option<Arc<dyn ConnectionCheck>>,
    /// Takes notice of each answer. Default `None`: requests are not timed.
    pub observer: Option<Arc<dyn AnswerObserver>>,
    /// Serves TLS on the same port. Default `None`: connections are plain.
    pub tls: Option<Arc<ServerTls>>,
}

impl ServerConfig {
    /// The defaults, listening on `addr`.
    pub fn new(addr: SocketAddr) -> Self {
        Self {
            addr,
            max_frame_bytes: MAX_FRAME_BYTES,
            max_connections: 10_000,
            max_queued_bytes: 16 * 1024 * 1024,
            max_unanswered: 32_768,
            idle_timeout: IDLE_TIMEOUT,
            stall_timeout: STALL_TIMEOUT,
            memory: MemoryBudget::new(MemoryBudget::DEFAULT_BYTES),
            check: None,
            connections: None,
            observer: None,
            tls: None,
        }
    }

    pub(crate) fn limits(&self) -> Limits {
        Limits {
            max_frame_bytes: self.max_frame_bytes,
            max_queued_bytes: self.max_queued_bytes,
            max_unanswered: self.max_unanswered.max(1),
            max_outstanding_calls: self.max_unanswered,
            max_outstanding_bytes: self.max_queued_bytes,
            idle_timeout: self.idle_timeout,
            stall_timeout: self.stall_timeout,
            retires_when_silent: false,
            memory: Some(Arc::clone(&self.memory)),
            observer: self.observer.clone(),
        }
    }
}

#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// How the headers of requests are written. Default JSON, which every server reads.
    pub serialize: SerializeType,
    /// Time to connect; a call's own timeout may end it sooner. Default 3 s.
    pub connect_timeout: Duration,
    /// Largest frame with its length field, in both directions. Default 16 MiB.
    pub max_frame_bytes: usize,
    /// Most unanswered calls of one connection; the next one waits for room. Default 16,384.
    pub max_outstanding_calls: usize,
    /// Most bytes of the unanswered calls of one connection; the next call waits for room. Default 64 MiB.
    pub max_outstanding_bytes: usize,
    /// Most bytes of answers to the server's own requests that wait; beyond them nothing more is read. Default 16 MiB.
    pub max_queued_bytes: usize,
    /// Closes a connection on which nothing was read or written for this time; the next call opens another. Default 120 s.
    pub idle_timeout: Duration,
    /// Closes a connection whose server takes less than 1/32 of the waiting requests, or less than 64 KiB of them, in this time.
    /// Default 30 s.
    pub stall_timeout: Duration,
    /// Completes every request before it is encoded, for example with a signature. Default `None`.
    pub hook: Option<Arc<dyn RequestHook>>,
    /// Encrypts every connection. Default `None`: connections are plain.
    pub tls: Option<Arc<ClientTls>>,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            serialize: SerializeType::Json,
            connect_timeout: Duration::from_secs(3),
            max_frame_bytes: MAX_FRAME_BYTES,
            max_outstanding_calls: 16_384,
            max_outstanding_bytes: 64 * 1024 * 1024,
            max_queued_bytes: 16 * 1024 * 1024,
            idle_timeout: IDLE_TIMEOUT,
            stall_timeout: STALL_TIMEOUT,
            hook: None,
            tls: None,
        }
    }
}

impl ClientConfig {
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            max_frame_bytes: self.max_frame_bytes,
            max_queued_bytes: self.max_queued_bytes,
            max_unanswered: usize::MAX,
            max_outstanding_calls: self.max_outstanding_calls,
            max_outstanding_bytes: self.max_outstanding_bytes,
            idle_timeout: self.idle_timeout,
            stall_timeout: self.stall_timeout,
            retires_when_silent: true,
            memory: None,
            observer: None,
        }
    }
}
