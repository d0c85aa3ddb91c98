//! The background work that asks for open transactions.

use std::sync::Arc;
use std::time::Duration;

use rocketpy_env::Disk;
use tokio::runtime::Handle;
use tracing::error;

use super::check;
use crate::call::aside;
use crate::service::{Pace, Service, Work};
use crate::shared::Shared;

/// Longest wait while a half message is open: the clock may have been set meanwhile.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// Pause while progress waits for a flush.
const SETTLE_AFTER: Duration = Duration::from_millis(500);
/// Shortest time between two rounds, each of which looks at all half messages that are open: those that become due one after the other
/// are asked for together.
const SHORTEST_WAIT: Duration = Duration::from_millis(20);
/// Pause after the half queue, or a half message, could not be read.
pub(super) const RETRY_MS: i64 = 1000;

/// Asks producers for the end of their transactions, and writes how far it is.
#[doc(alias = "TransactionalMessageCheckService")]
pub(crate) struct TransactionCheck {
    shared: Arc<Shared>,
    pace: Pace,
}

impl TransactionCheck {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, pace: Pace::new(Duration::ZERO, SHORTEST_WAIT) }
    }

    /// How long nothing is to be done, unless a half message arrives; `None` for ever.
    fn rest(&self) -> Option<Duration> {
        let transactions = &self.shared.transactions;
        let until_due = |due_at_ms: i64| {
            let rest = u64::try_from(due_at_ms.saturating_sub(self.shared.store.now_ms())).unwrap_or(0);
            Duration::from_millis(rest).min(LONGEST_WAIT)
        };
        let due = transactions.state.lock().due_at_ms.map(until_due);
        let settle = transactions.is_behind().then_some(SETTLE_AFTER);
        due.into_iter().chain(settle).min()
    }
}

impl Service for TransactionCheck {
    fn name(&self) -> &str {
        "transaction check"
    }

    fn due(&self) -> Work<'_> {
        Box::pin(async {
            let arrived = self.shared.transactions.arrived.notified();
            match self.rest() {
                Some(Duration::ZERO) => {}
                Some(rest) => drop(tokio::time::timeout(rest, arrived).await),
                None => arrived.await,
            }
            self.pace.due().await;
        })
    }

    fn round(&self) -> Work<'_> {
        let (shared, runtime) = (self.shared.clone(), Handle::current());
        Box::pin(aside(move || round(&shared, shared.store.now_ms(), &runtime)))
    }
}

/// One round at a time of the clock. Blocks; puts wait on the runtime.
pub(crate) fn round(shared: &Arc<Shared<impl Disk>>, at_ms: i64, runtime: &Handle) {
    let due_at_ms = check::round(shared, at_ms, runtime).unwrap_or_else(|error| {
        error!(%error, "open transactions cannot be read, trying again");
        Some(at_ms.saturating_add(RETRY_MS))
    });
    shared.transactions.state.lock().due_at_ms = due_at_ms;
    shared.transactions.settle(shared);
}

/// Writes the progress when nothing is ended any more. Blocks until the log is flushed.
pub(crate) fn settle_at_stop(shared: &Shared<impl Disk>) {
    let store = &shared.store;
    if shared.transactions.is_behind()
        && let Err(error) =
            store.wait_flushed(store.max_physical_offset(), shared.config().sync_flush_timeout)
    {
        error!(%error, "marks of transactions are not durable at the stop, they may be asked for again");
    }
    shared.transactions.settle(shared); // notes what is to be written
    shared.transactions.settle(shared);
}
