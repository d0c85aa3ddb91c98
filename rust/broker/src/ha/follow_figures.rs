//! Figures of a slave's connection to its master.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use rocketpy_env::now_ms;

/// Figures of a slave's thread, for operators only.
#[derive(Debug, Default)]
pub(super) struct FollowFigures {
    connected_at: Mutex<Option<Instant>>,
    /// Received since then.
    bytes: AtomicU64,
    read_at_ms: AtomicI64,
    reported_at_ms: AtomicI64,
    master_flushed: AtomicI64,
}

/// State of a slave's connection to its master.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Followed {
    /// `host:port` of the master's port for slaves; `None` while no master is known.
    pub(crate) master: Option<String>,
    /// Whether the log of the master arrives.
    pub(crate) is_active: bool,
    pub(crate) bytes_per_second: u64,
    /// Time of the last received bytes, in Unix milliseconds; 0: never.
    pub(crate) read_at_ms: i64,
    /// Time of the last report to the master, in Unix milliseconds; 0: never.
    pub(crate) reported_at_ms: i64,
    /// Flushed offset of the master when this slave last looked for its master.
    pub(crate) master_flushed: i64,
}

impl FollowFigures {
    pub(super) fn connected(&self) {
        *self.connected_at.lock() = Some(Instant::now());
        self.bytes.store(0, Ordering::Relaxed);
    }

    pub(super) fn disconnected(&self) {
        *self.connected_at.lock() = None;
    }

    pub(super) fn heard(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.read_at_ms.store(now_ms(), Ordering::Relaxed);
    }

    pub(super) fn reported(&self) {
        self.reported_at_ms.store(now_ms(), Ordering::Relaxed);
    }

    pub(super) fn set_master_flushed(&self, offset: i64) {
        self.master_flushed.store(offset, Ordering::Relaxed);
    }

    pub(super) fn get(&self, master: Option<String>, is_active: bool) -> Followed {
        let seconds = self.connected_at.lock().map(|since| since.elapsed().as_secs().max(1));
        Followed {
            master,
            is_active,
            bytes_per_second: seconds.map_or(0, |seconds| self.bytes.load(Ordering::Relaxed) / seconds),
            read_at_ms: self.read_at_ms.load(Ordering::Relaxed),
            reported_at_ms: self.reported_at_ms.load(Ordering::Relaxed),
            master_flushed: self.master_flushed.load(Ordering::Relaxed),
        }
    }
}
