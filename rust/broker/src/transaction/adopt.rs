//! Transactions of a slave: nobody ends them there, and what its master knows of them is in log and consumer offsets.

use rocketpy_env::Disk;
use rocketpy_model::{QueueOffset, system};
use rocketpy_store::Store;

use super::{HOLDER, QUEUE, Transactions, first_at};
use crate::BrokerError;
use crate::table::offset::OffsetTable;

impl Transactions {
    /// Keeps the log files of half messages that were open when the master wrote its progress.
    pub(crate) fn keep_open_ones(&self, store: &Store<impl Disk>, offsets: &OffsetTable<impl Disk>) {
        let stored = offsets.get(system::TRANSACTION_GROUP, system::HALF_TOPIC, QUEUE).unwrap_or(0);
        let from = QueueOffset(u64::try_from(stored).unwrap_or(0));
        store.set_waiting_from(HOLDER, first_at(store, from));
    }

    /// Reads what is over from the marks that are there now: the broker becomes a master. Blocks.
    ///
    /// # Errors
    /// The marks cannot be read.
    pub(crate) fn start_again(
        &self,
        store: &Store<impl Disk>,
        offsets: &OffsetTable<impl Disk>,
    ) -> Result<(), BrokerError> {
        let opened = Self::open(store, offsets)?;
        *self.state.lock() = opened.state.into_inner();
        self.arrived.notify_one();
        Ok(())
    }
}
