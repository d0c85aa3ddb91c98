//! What can go wrong between a call and its answer, and at the start of a server.
use std::io;
use std::net::SocketAddr;

/// Why a call has no answer.
///
/// Two questions are answered for each: may another try help ([`retryable`](Self::retryable)), and may the peer have done what was
/// asked ([`may_have_been_applied`](Self::may_have_been_applied)).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// No connection came about: wrong address, nobody listens, no route.
    #[error("cannot connect to {addr}: {reason}")]
    Connect {
        /// `host:port` as it was given.
        addr: String,
        /// Kind of the error of the operating system.
        kind: io::ErrorKind,
        /// Text of the error of the operating system.
        reason: String,
    },
    /// No connection came about in time.
    #[error("no connection to {addr} within {timeout_ms} ms")]
    ConnectTimeout {
        /// `host:port` as it was given.
        addr: String,
        /// Time given, in milliseconds.
        timeout_ms: u64,
    },
    /// The answer did not come in time.
    #[error("no answer from {addr} to request {code} within {timeout_ms} ms")]
    Timeout {
        /// The peer.
        addr: String,
        /// Request code.
        code: i32,
        /// Time given, in milliseconds.
        timeout_ms: u64,
    },
    /// The calls before this one took all the room of the connection for the whole time given.
    #[error("no room for request {code} on the connection to {addr} within {timeout_ms} ms")]
    WindowFull {
        /// The peer.
        addr: String,
        /// Request code.
        code: i32,
        /// Time given, in milliseconds; 0 when the call was not to wait.
        timeout_ms: u64,
    },
    /// The connection ended before the answer came.
    #[error("connection to {addr} closed before request {code} was answered")]
    Closed {
        /// The peer.
        addr: String,
        /// Request code.
        code: i32,
        /// Whether the request had been queued for sending; if not, the peer cannot have seen it.
        queued: bool,
    },
    /// The peer shuts down and did not take the request (response code 1500), also on the second connection.
    #[error("{addr} is shutting down and did not take request {code}")]
    GoAway {
        /// The peer.
        addr: String,
        /// Request code.
        code: i32,
    },
    /// The frame is larger than a peer may take.
    #[error("request {code} has {size_bytes} bytes, more than the frame limit of {max_bytes}")]
    FrameTooLarge {
        /// Request code.
        code: i32,
        /// Size of the frame.
        size_bytes: usize,
        /// The limit.
        max_bytes: usize,
    },
    /// The command cannot be written in its serialization.
    #[error("request {code} cannot be encoded: {reason}")]
    Encode {
        /// Request code.
        code: i32,
        /// What of it does not fit.
        reason: String,
    },
    /// The client was closed.
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
            | Self::GoAway { .. } => true,
            Self::FrameTooLarge { .. } | Self::Encode { .. } | Self::ClientClosed => false,
        }
    }

    /// Whether the peer may have done what was asked, although nobody heard of it.
    pub fn may_have_been_applied(&self) -> bool {
        match self {
            Self::Timeout { .. } => true,
            Self::Closed { queued, .. } => *queued,
            Self::Connect { .. }
            | Self::ConnectTimeout { .. }
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
    Bind {
        /// The address.
        addr: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
}

fn bind_hint(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::AddrInUse => {
            "another process listens there: stop it, or choose another port (0 takes a free one)"
        }
        io::ErrorKind::AddrNotAvailable => "no interface of this machine has that address",
        io::ErrorKind::PermissionDenied => "ports below 1024 need a privilege: choose a higher one",
        _ => "check the address",
    }
}
