//! A slave that becomes the master.

use rocketpy_env::Disk;

use crate::BrokerError;
use crate::shared::Shared;

/// Makes delayed messages, timers and transactions go on where the master was, as far as this broker knows. Called before the role changes,
/// when the log does not grow any more and is dispatched. Blocks.
///
/// # Errors
/// A file cannot be read, or not be written: the broker stays a slave.
#[cfg_attr(not(test), expect(dead_code, reason = "promotion will call it"))]
pub(crate) fn prepare_promotion(shared: &Shared<impl Disk>) -> Result<(), BrokerError> {
    shared.delays.start_again(&shared.store);
    shared.timers.start_again(&shared.store)?;
    shared.transactions.start_again(&shared.store, &shared.offsets)
}
