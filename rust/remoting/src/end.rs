//! Why a connection ended.
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rocketpy_protocol::frame::FrameError;
use tracing::{debug, info, warn};

/// Kind of an end that neither side asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadEnd {
    /// No bytes were read or written for too long.
    Idle,
    /// The connection broke, or the peer broke the protocol.
    Failed,
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum End {
    #[error("closed by the peer")]
    Peer,
    #[error("closed by the peer in the middle of a frame")]
    PeerMidFrame,
    #[error("closed here")]
    Here,
    #[error("no bytes read or written for {} s", .0.as_secs_f32())]
    Idle(Duration),
    #[error("the peer read too little within {} s, {waiting_bytes} bytes wait for it", .timeout.as_secs_f32())]
    Stalled { timeout: Duration, waiting_bytes: usize },
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl End {
    pub(crate) fn bad(&self) -> Option<BadEnd> {
        match self {
            Self::Peer | Self::Here => None,
            Self::Idle(_) => Some(BadEnd::Idle),
            Self::PeerMidFrame | Self::Stalled { .. } | Self::Frame(_) | Self::Io(_) => Some(BadEnd::Failed),
        }
    }

    /// Logs the end: as a warning when the peer broke the protocol or stopped reading.
    pub(crate) fn log(&self, peer: SocketAddr, id: u64) {
        match self {
            Self::Peer | Self::Here | Self::Io(_) => debug!(%peer, id, reason = %self, "connection ended"),
            Self::Idle(_) => info!(%peer, id, reason = %self, "idle connection closed"),
            Self::PeerMidFrame | Self::Stalled { .. } | Self::Frame(_) => {
                warn!(%peer, id, reason = %self, "connection closed");
            }
        }
    }
}
