//! What can go wrong between a call and its answer, and at the start of a server.
use std::io;
use std::net::SocketAddr;

/// Why a call has no answer.
///
/// Each error answers two questions: may a retry help ([`retryable`](Self::retryable)), and may the peer have carried out the
/// request ([`may_have_been_applied`](Self::may_have_been_applied)).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// Connecting failed: wrong address, nobody listens, no route.
    #[error("cannot connect to {addr}: {reason}")]
    Connect { addr: String, kind: io::ErrorKind, reason: String },
    #[error("no connection to {addr} within {timeout_ms} ms")]
    ConnectTimeout { addr: String, timeout_ms: u64 },
    /// The server offers no TLS, or one side did not accept the certificate of the other.
    #[error("cannot connect to {addr} by TLS: {reason}")]
    Tls {
        addr: String,
        reason: String,
        /// Whether the server closed the connection: one that stops does so too.
        is_closed: bool,
    },
    /// The server closed a plain connection without any answer, and answers TLS. One that accepts both and crashed looks the same, so
    /// that it means for the request what [`Closed`](Self::Closed) means.
    #[error("{addr} closed the plain connection before request {code} was answered, and speaks TLS")]
    TlsOnly { addr: String, code: i32, queued: bool },
    /// The answer did not arrive in time.
    #[error("no answer from {addr} to request {code} within {timeout_ms} ms")]
    Timeout { addr: String, code: i32, timeout_ms: u64 },
    /// Earlier calls took all the room of the connection for the whole timeout.
    #[error("no room for request {code} on the connection to {addr} within {timeout_ms} ms")]
    WindowFull {
        addr: String,
        code: i32,
        /// Timeout in milliseconds; 0 for a call that does not wait.
        timeout_ms: u64,
    },
    /// The connection ended before the answer arrived.
    #[error("connection to {addr} closed before request {code} was answered")]
    Closed {
        addr: String,
        code: i32,
        /// Whether the request had been queued for sending; if not, the peer cannot have seen it.
        queued: bool,
    },
    /// The peer shuts down and refused the request (response code 1500), on the second connection too.
    #[error("{addr} is shutting down and did not accept request {code}")]
    GoAway { addr: String, code: i32 },
    /// The frame is larger than a peer may take.
    #[error("request {code} has {size_bytes} bytes, more than the frame limit of {max_bytes}")]
    FrameTooLarge { code: i32, size_bytes: usize, max_bytes: usize },
    /// The command cannot be written in its serialization.
    #[error("request {code} cannot be encoded: {reason}")]
    Encode { code: i32, reason: String },
    #[error("the remoting client is closed")]
    ClientClosed,
}

impl CallError {
    /// Whether the same call may succeed later or at another address.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Connect { .. }
            | Self::ConnectTimeout { .. }
            | Self::Timeout { .. }
            | Self::WindowFull { .. }
            | Self::Closed { .. }
            | Self::TlsOnly { .. }
            | Self::GoAway { .. } => true,
            Self::Tls { is_closed, .. } => *is_closed,
            Self::FrameTooLarge { .. } | Self::Encode { .. } | Self::ClientClosed => false,
        }
    }

    /// Whether the peer may have carried out the request although no answer arrived.
    pub fn may_have_been_applied(&self) -> bool {
        match self {
            Self::Timeout { .. } => true,
            Self::Closed { queued, .. } | Self::TlsOnly { queued, .. } => *queued,
            Self::Connect { .. }
            | Self::ConnectTimeout { .. }
            | Self::Tls { .. }
            | Self::WindowFull { .. }
            | Self::GoAway { .. }
            | Self::FrameTooLarge { .. }
            | Self::Encode { .. }
            | Self::ClientClosed => false,
        }
    }
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address cannot be listened on.
    #[error("cannot listen on {addr}: {source}; {hint}", hint = bind_hint(source.kind()))]
    Bind { addr: SocketAddr, source: io::Error },
}

fn bind_hint(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::AddrInUse => {
            "another process listens on that address: stop it, or choose another port (0 uses a free one)"
        }
        io::ErrorKind::AddrNotAvailable => "no interface of this machine has that address",
        io::ErrorKind::PermissionDenied => "ports below 1024 need a privilege: choose a higher one",
        _ => "check the address",
    }
}
