//! Where the master of a slave is.

use std::pin::pin;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Where the master of this broker is, and whether it answers.
#[derive(Debug, Default)]
pub(crate) struct MasterAddress {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    address: Option<Arc<str>>,
    answers: bool,
}

impl MasterAddress {
    /// Sets `host:port`; `None`: it is not known.
    pub(crate) fn set(&self, address: Option<&str>) {
        let mut state = self.state.lock();
        if state.address.as_deref() != address {
            *state = State { address: address.map(Arc::from), answers: false };
            self.changed.notify_waiters();
        }
    }

    pub(crate) fn get(&self) -> Option<Arc<str>> {
        self.state.lock().address.clone()
    }

    /// Whether the master answered when it was asked last.
    pub(crate) fn answers(&self) -> bool {
        self.state.lock().answers
    }

    /// Notes whether the broker at an address answered, unless the master is another one by now.
    pub(crate) fn note(&self, address: &Arc<str>, answers: bool) {
        let mut state = self.state.lock();
        if state.address.as_ref() == Some(address) {
            state.answers = answers;
        }
    }

    /// Waits until an address is known.
    pub(super) async fn known(&self) {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable(); // before the look: a change in between counts
            if self.get().is_some() {
                return;
            }
            changed.await;
        }
    }
}
