//! From the log to the key index, where the consume queues are further.

use rocketpy_env::{Disk, EnvError};
use rocketpy_model::PhysicalOffset;
use rocketpy_protocol::record::RecordView;

use super::{ROUND_KEYS, ROUND_RECORDS};
use crate::core::Core;
use crate::index::{Key, Keys};

/// What goes into the index of a record with these keys.
pub(super) fn entries<'a>(
    view: &RecordView<'a>,
    physical_offset: PhysicalOffset,
    keys: Keys<'a>,
) -> impl Iterator<Item = Key> + use<'a> {
    let stored_at_ms = view.stored_at_ms;
    keys.hashes(view.topic, view.sys_flag).map(move |hash| Key { hash, physical_offset, stored_at_ms })
}

impl<D: Disk> Core<D> {
    /// Puts the keys of what the consume queues have and the index has not.
    pub(crate) fn catch_up_index(&self) -> Result<(), EnvError> {
        let Some(index) = &self.index else { return Ok(()) };
        let limit = self.dispatched();
        let mut at = index.next().get();
        let mut keys = Vec::new();
        while at < limit {
            keys.clear();
            let mut records = 0;
            self.walk(&mut at, limit, |view, at| {
                keys.extend(entries(view, PhysicalOffset(at), Keys::of(view.properties)));
                records += 1;
                Ok(records < ROUND_RECORDS && keys.len() < ROUND_KEYS)
            })?;
            index.put(&keys, PhysicalOffset(at))?;
        }
        Ok(())
    }

    /// Lets the index files say by themselves what was put, while there is nothing else to do.
    pub(crate) fn settle_index(&self) {
        if let Some(index) = &self.index
            && let Err(error) = index.settle()
        {
            tracing::warn!(%error, "the slots of an index file are written later");
        }
    }
}
