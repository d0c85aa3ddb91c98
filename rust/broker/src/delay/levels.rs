//! A change of the delay levels.

use rocketpy_env::Disk;
use rocketpy_model::{PhysicalOffset, QueueOffset, system};
use rocketpy_protocol::record::RecordView;
use rocketpy_store::{DelayLevels, QueueEntry, Store, StoreError};
use tracing::info;

use super::progress::Progress;
use crate::BrokerError;

/// Has the store take the configured levels. What waits must wait as long by them as it does: another broker may have stored it so.
///
/// # Errors
/// [`BrokerError::DelayLevels`]: messages wait by other levels. Nothing was changed.
pub(super) fn adopt(
    store: &Store<impl Disk>,
    progress: &Progress,
    wanted: &DelayLevels,
) -> Result<(), BrokerError> {
    let (stored, is_known) = (store.delay_levels(), store.knows_its_delay_levels());
    if is_known && stored == *wanted {
        return Ok(());
    }
    // The levels of a store that says nothing are those of all its records.
    let mut from = if is_known { store.max_physical_offset() } else { PhysicalOffset::ZERO };
    let (mut misfits, mut level_of_misfits) = (0, None);
    for level in 1..=DelayLevels::MAX_COUNT {
        let next = progress.next(level as usize - 1);
        let end = store.queue_bounds(system::SCHEDULE_TOPIC, level - 1).max;
        let Some(last) = end.checked_sub(next + 1).map(|before_last| next + before_last) else { continue };
        let ends = [entry_at(store, level, next)?, entry_at(store, level, last)?];
        for entry in ends.into_iter().flatten() {
            if !fits(store, &entry, level, &stored)? {
                from = from.min(entry.physical_offset); // it came by the wanted ones, from another broker
            }
            if !fits(store, &entry, level, wanted)? {
                misfits += end - next;
                level_of_misfits = Some(level);
                break;
            }
        }
    }
    if let Some(level) = level_of_misfits {
        let (wanted, stored) = (wanted.to_string(), is_known.then(|| stored.to_string()));
        return Err(BrokerError::DelayLevels { stored, wanted, waiting: misfits, level });
    }
    info!(%stored, %wanted, "delay levels written");
    Ok(store.set_delay_levels(wanted.clone(), from)?)
}

fn entry_at(
    store: &Store<impl Disk>,
    level: u32,
    offset: QueueOffset,
) -> Result<Option<QueueEntry>, StoreError> {
    Ok(store.entries(system::SCHEDULE_TOPIC, level - 1, offset, 1)?.first().copied())
}

/// Whether a message that waits would wait as long by these levels.
fn fits(
    store: &Store<impl Disk>,
    entry: &QueueEntry,
    level: u32,
    levels: &DelayLevels,
) -> Result<bool, StoreError> {
    let Some(bytes) = store.record_at(entry.physical_offset)? else { return Ok(true) };
    let Ok(record) = RecordView::parse(&bytes) else { return Ok(true) }; // its delivery says what is wrong
    let is_as_long = entry.tags_code == record.stored_at_ms.saturating_add(levels.ms(level.into()));
    Ok(level <= levels.count() && is_as_long)
}
