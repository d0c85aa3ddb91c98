//! Transactions of a slave: nobody ends them there, and what its master knows of them is in log and consumer offsets.

use rocketpy_env::Disk;
use rocketpy_model::{QueueOffset, system};

use super::{HOLDER, QUEUE, Transactions, first_at};

impl<D: Disk> Transactions<D> {
    /// Keeps the log files of half messages that were open when the master wrote its progress.
    pub(crate) fn keep_open_ones(&self) {
        let (store, offsets) = (self.store(), self.intake.members().offsets());
        let stored = offsets.get(system::TRANSACTION_GROUP, system::HALF_TOPIC, QUEUE).unwrap_or(0);
        let from = QueueOffset(u64::try_from(stored).unwrap_or(0));
        store.set_waiting_from(HOLDER, first_at(store, from));
    }
}
