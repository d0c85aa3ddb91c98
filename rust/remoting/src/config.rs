//! What may be set for a server and for a client, with the defaults in one place.
use std::net::SocketAddr;
use std::time::Duration;

use rocketpy_protocol::SerializeType;

/// Largest frame that is read or written, with its length field.
pub(crate) const MAX_FRAME_BYTES: usize = 16 * 1024 * 1024;
/// Neither read nor written for so long: closed.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(120);
/// Answers wait for a peer that takes none for so long: closed.
pub(crate) const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// The settings of a [`Server`](crate::Server).
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Address to listen on; port 0 takes a free one.
    pub addr: SocketAddr,
    /// Largest frame with its length field; a longer one closes its connection. Default 16 MiB.
    pub max_frame_bytes: usize,
    /// Connections open at a time; one more is accepted and closed at once, with a log line. Default 10,000.
    pub max_connections: usize,
    /// Bytes of answers that may wait for one peer before nothing more is read from it. Default 16 MiB.
    pub max_queued_bytes: usize,
    /// Requests of one connection that may be unanswered before nothing more is read from it. Default 32,768.
    pub max_unanswered: usize,
    /// Neither read nor written for so long: the connection is closed. Default 120 s.
    pub idle_timeout: Duration,
    /// Answers wait and the peer takes none for so long: the connection is closed. Default 30 s.
    pub stall_timeout: Duration,
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
        }
    }
}

/// The settings of a [`Client`](crate::Client).
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// How the headers of requests are written. Default JSON, which every server reads.
    pub serialize: SerializeType,
    /// Time for a connection to come about; a call's own timeout may end it sooner. Default 3 s.
    pub connect_timeout: Duration,
    /// Largest frame with its length field, either way. Default 16 MiB.
    pub max_frame_bytes: usize,
    /// Calls of one connection that may be unanswered; the next one waits for room. Default 16,384.
    pub max_outstanding_calls: usize,
    /// Bytes of the unanswered calls of one connection; a call beyond them waits for room. Default 64 MiB.
    pub max_outstanding_bytes: usize,
    /// Bytes of answers to the server's own requests that may wait before nothing more is read. Default 16 MiB.
    pub max_queued_bytes: usize,
    /// Neither read nor written for so long: the connection is closed; the next call opens another. Default 120 s.
    pub idle_timeout: Duration,
    /// Requests wait and the server takes none for so long: the connection is closed. Default 30 s.
    pub stall_timeout: Duration,
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
        }
    }
}
