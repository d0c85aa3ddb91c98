//! Finds the records of a key.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use rocketpy_env::{Disk, EnvError, OpenMode};
use rocketpy_model::PhysicalOffset;
use rocketpy_protocol::disk::index::slot_of;
use rocketpy_protocol::record::RecordView;

use super::file::{Chain, More, path_of, read_slot};
use super::key::Wanted;
use super::{Index, Sealed};
use crate::error::StoreError;
use crate::fetch::ReadLimits;

/// The records of a key.
#[doc(alias = "QueryMessageResult")]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueryResult {
    /// In the order of the log. If there are more than were wanted, the newest.
    pub records: Vec<Bytes>,
    /// Store time of the last record in the index; 0 when it is empty.
    pub last_stored_at_ms: i64,
    /// Physical offset of that record.
    pub last_physical_offset: PhysicalOffset,
}

impl<D: Disk> Index<D> {
    /// Store time and physical offset of the last record in the index.
    pub(crate) fn last_update(&self) -> (i64, PhysicalOffset) {
        let header = self.state.read().last_header();
        (header.end_stored_at_ms, header.end_physical_offset)
    }

    /// Calls `visit` with the physical offset of each entry that may match, newest first. Dispatch does not wait for
    /// it.
    pub(crate) fn find<E: From<EnvError>>(
        &self,
        wanted: &Wanted<'_>,
        mut visit: impl FnMut(PhysicalOffset) -> Result<More, E>,
    ) -> Result<(), E> {
        let slot = slot_of(wanted.hash, self.geometry.slots);
        let (current, sealed) = {
            let state = self.state.read();
            let current = state.current.as_ref().map(|writer| {
                let chain =
                    Chain { geometry: self.geometry, header: writer.header, first: writer.newest(slot) };
                (chain, Arc::clone(&writer.file))
            });
            (current, state.sealed.clone())
        };
        if let Some((chain, file)) = current {
            if chain.may_hold(wanted) && chain.walk(&*file, wanted, &mut visit)? == More::No {
                return Ok(());
            }
            if chain.is_last(wanted) {
                return Ok(());
            }
        }
        for sealed in sealed.iter().rev() {
            if self.find_in(sealed, slot, wanted, &mut visit)? == More::No {
                break;
            }
        }
        Ok(())
    }

    /// The newest matching records, within the limits. `record_at` returns the record at a physical offset.
    ///
    /// # Source
    /// docs/reference/store-format.md 4.5. Unlike there a record of another key with the same hash is left out.
    pub(crate) fn query(
        &self,
        wanted: &Wanted<'_>,
        limits: &ReadLimits,
        record_at: impl Fn(PhysicalOffset) -> Result<Option<Bytes>, StoreError>,
    ) -> Result<QueryResult, StoreError> {
        let mut found = BTreeMap::new();
        let mut size_bytes = 0;
        let (last_stored_at_ms, last_physical_offset) = self.last_update();
        let wants_any = limits.max_messages > 0 && !wanted.key.is_empty();
        self.find(wanted, |offset| {
            if !wants_any {
                return Ok(More::No);
            }
            if found.contains_key(&offset) {
                return Ok(More::Yes); // the same key twice
            }
            let record = record_at(offset)?
                .filter(|record| RecordView::parse(record).is_ok_and(|view| wanted.is(&view)));
            let Some(record) = record else {
                return Ok::<_, StoreError>(More::Yes); // another key, or gone from the log
            };
            size_bytes += record.len() as u64;
            if !found.is_empty() && size_bytes > limits.max_bytes {
                return Ok(More::No);
            }
            found.insert(offset, record);
            Ok(if found.len() < limits.max_messages as usize { More::Yes } else { More::No })
        })?;
        Ok(QueryResult { records: found.into_values().collect(), last_stored_at_ms, last_physical_offset })
    }

    fn find_in<E: From<EnvError>>(
        &self,
        sealed: &Sealed,
        slot: u32,
        wanted: &Wanted<'_>,
        visit: impl FnMut(PhysicalOffset) -> Result<More, E>,
    ) -> Result<More, E> {
        let mut chain = Chain { geometry: self.geometry, header: sealed.header, first: 0 };
        if chain.may_hold(wanted) {
            let file = match self.disk.open_file(&path_of(&self.dir, sealed.name), OpenMode::Write) {
                Err(error) if error.is_not_found() => return Ok(More::Yes),
                other => other?,
            };
            chain.first = read_slot(&file, slot)?;
            if chain.walk(&file, wanted, visit)? == More::No {
                return Ok(More::No);
            }
        }
        Ok(if chain.is_last(wanted) { More::No } else { More::Yes })
    }
}
