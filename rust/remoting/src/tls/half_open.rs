//! Handshakes that have not ended, bounded in number.
use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Handshakes under way. Beyond the maximum the oldest one makes room: who only begins handshakes displaces others of the kind, and a client
/// that ends its own needs milliseconds.
#[derive(Debug)]
pub(super) struct HalfOpen {
    max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// By order of arrival. A sender that is dropped ends its handshake.
    under_way: BTreeMap<u64, oneshot::Sender<()>>,
}

/// Place of a handshake; free again when dropped.
#[derive(Debug)]
pub(super) struct Place {
    half_open: Arc<HalfOpen>,
    id: u64,
    displaced: oneshot::Receiver<()>,
}

impl HalfOpen {
    pub(super) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max: max.max(1), state: Mutex::default() })
    }

    pub(super) fn enter(self: &Arc<Self>) -> Place {
        let (sender, displaced) = oneshot::channel();
        let mut state = self.state.lock();
        let id = state.next;
        state.next += 1;
        state.under_way.insert(id, sender);
        if state.under_way.len() > self.max {
            state.under_way.pop_first();
        }
        assert!(state.under_way.len() <= self.max, "handshakes are bounded");
        drop(state);
        Place { half_open: self.clone(), id, displaced }
    }

    pub(super) fn count(&self) -> usize {
        self.state.lock().under_way.len()
    }
}

impl Place {
    /// Resolves when a later handshake took the place.
    pub(super) async fn displaced(&mut self) {
        let _ = (&mut self.displaced).await; // its sender is only ever dropped
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.half_open.state.lock().under_way.remove(&self.id);
    }
}
