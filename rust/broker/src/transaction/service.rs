//! The background work that asks for open transactions.

use std::sync::Arc;
use std::time::Duration;

use rocketpy_env::Disk;
use tokio::runtime::Handle;
use tracing::error;

use super::{Transactions, check};
use crate::blocking::aside;
use crate::clock_steps::Now;
use crate::service::{Pace, Service, Work, flush_at_stop, until_ms};

/// Pause while progress waits for a flush.
const SETTLE_AFTER: Duration = Duration::from_millis(500);
/// Minimum time between two rounds, each of which looks at all half messages that are open: those that become due one after the other
/// are asked for together.
const SHORTEST_WAIT: Duration = Duration::from_millis(20);
/// Pause after the half queue, or a half message, could not be read.
pub(super) const RETRY_MS: i64 = 1000;

/// Asks producers for the end of their transactions, and writes how far it is. A slave does neither.
#[doc(alias = "TransactionalMessageCheckService")]
pub(crate) struct TransactionCheck {
    transactions: Arc<Transactions>,
    pace: Pace,
}

impl TransactionCheck {
    pub(crate) fn new(transactions: Arc<Transactions>) -> Self {
        Self { transactions, pace: Pace::new(Duration::ZERO, SHORTEST_WAIT) }
    }

    /// How long nothing is to be done, unless a half message arrives; `None` for ever.
    fn rest(&self) -> Option<Duration> {
        let transactions = &self.transactions;
        let due_at_ms = transactions.state.lock().due_at_ms;
        let due = due_at_ms.map(|due_at_ms| until_ms(due_at_ms, Now::of(transactions.store()).steady_ms));
        let settle = (transactions.is_behind() || transactions.has_asked()).then_some(SETTLE_AFTER);
        due.into_iter().chain(settle).min()
    }
}

impl Service for TransactionCheck {
    fn name(&self) -> &str {
        "transaction check"
    }

    fn due(&self) -> Work<'_> {
        Box::pin(async {
            self.transactions.intake.ground().role().wait_for_master().await;
            self.pace.due_after(&self.transactions.arrived, self.rest()).await;
        })
    }

    fn round(&self) -> Work<'_> {
        let (transactions, runtime) = (self.transactions.clone(), Handle::current());
        Box::pin(aside(move || {
            if transactions.intake.ground().role().is_master() {
                round(&transactions, transactions.intake.ground().observe_clock(), &runtime);
            }
        }))
    }
}

/// One round at a time of the clocks. Blocks; puts wait on the runtime.
pub(crate) fn round(transactions: &Transactions<impl Disk>, now: Now, runtime: &Handle) {
    let due_at_ms = check::round(transactions, now, runtime).unwrap_or_else(|error| {
        error!(%error, "open transactions not readable, retrying");
        Some(now.steady_ms.saturating_add(RETRY_MS))
    });
    transactions.state.lock().due_at_ms = due_at_ms;
    transactions.settle();
    transactions.write_counts(false);
}

/// Writes the progress when nothing is ended any more. Blocks until the log is flushed.
pub(crate) fn settle_at_stop(transactions: &Transactions<impl Disk>) {
    if transactions.is_behind() {
        flush_at_stop(transactions.intake.ground(), "marks of transactions");
    }
    transactions.settle(); // notes what is to be written
    transactions.settle();
    transactions.write_counts(true);
}
