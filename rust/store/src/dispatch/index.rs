//! From the log to the key index.

use rocketpy_env::Disk;
use rocketpy_protocol::record::RecordView;

use super::{Dispatcher, ROUND_KEYS, ROUND_RECORDS};
use crate::error::DispatchError;
use crate::index::{Key, Keys};

/// The index entries of a record with these keys.
pub(super) fn entries<'a>(view: &RecordView<'a>, keys: Keys<'a>) -> impl Iterator<Item = Key> + use<'a> {
    let (physical_offset, stored_at_ms) = (view.physical_offset, view.stored_at_ms);
    keys.hashes(view.topic, view.sys_flag).map(move |hash| Key { hash, physical_offset, stored_at_ms })
}

impl<D: Disk> Dispatcher<D> {
    /// Adds the keys of the records that the consume queues cover and the index does not.
    pub(super) fn catch_up_index(&self) -> Result<(), DispatchError> {
        let Some(index) = self.derived.index() else { return Ok(()) };
        let limit = self.dispatched();
        let mut at = index.next();
        let mut keys = Vec::new();
        while at < limit {
            keys.clear();
            let mut records = 0;
            self.log.walk(&mut at, limit, |view| {
                keys.extend(entries(view, Keys::of(view.properties)));
                records += 1;
                Ok(records < ROUND_RECORDS && keys.len() < ROUND_KEYS)
            })?;
            index.put(&keys, at)?;
        }
        Ok(())
    }
}
