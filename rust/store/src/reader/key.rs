//! Records by key, from the index files of a folder.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use rocketpy_env::{Disk, OpenMode};
use rocketpy_model::PhysicalOffset;
use rocketpy_protocol::disk::index::{ENTRIES, SLOTS, slot_of};
use rocketpy_protocol::record::{CheckMode, FIXED_BYTES_V1, RecordCheck, check_record};

use super::log::LogFiles;
use super::{ReadError, StoreReader};
use crate::checkpoint::Checkpoint;
use crate::index::{
    Chain, Geometry, IndexMark, KeyKind, More, NamedFile, Wanted, list_files, path_of, read_header, read_slot,
};

/// Which records of a key are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyQuery {
    /// Kind of the key.
    pub kind: KeyKind,
    /// Maximum number of records; if there are more, the newest.
    pub max_records: usize,
    /// Stored at or after this time, in milliseconds.
    pub begin_ms: i64,
    /// Stored at or before this time.
    pub end_ms: i64,
    /// Hash slots and entry numbers of the index files, if another program wrote them with other numbers than the
    /// defaults. Our own stores state theirs.
    pub slots_and_entries: Option<(u32, u32)>,
}

impl Default for KeyQuery {
    fn default() -> Self {
        Self {
            kind: KeyKind::Any,
            max_records: usize::MAX,
            begin_ms: i64::MIN,
            end_ms: i64::MAX,
            slots_and_entries: None,
        }
    }
}

/// Index entries for a key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyPlaces {
    /// Physical offsets of records that may have it.
    pub offsets: BTreeSet<PhysicalOffset>,
    /// The index covers all records before this.
    pub covered_to: PhysicalOffset,
}

/// A record that was found by its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyedRecord {
    /// First byte of the record in the log.
    pub physical_offset: PhysicalOffset,
    /// The whole record.
    pub bytes: Vec<u8>,
}

impl<D: Disk> StoreReader<D> {
    /// The records of a key, in the order of the log.
    ///
    /// While a server writes, records of the last second may not be found yet.
    ///
    /// # Errors
    /// [`ReadError::NoIndex`] when the folder has none; [`ReadError::BadFile`] for an index file of another size, and for a
    /// record that is damaged.
    pub fn query(&self, topic: &str, key: &str, query: &KeyQuery) -> Result<Vec<KeyedRecord>, ReadError> {
        let wanted = Wanted::new(topic, key, query.kind, query.begin_ms, query.end_ms);
        let dir = self.root.join("index");
        let files = match list_files(&*self.disk, &dir) {
            Err(error) if error.is_not_found() => return Err(ReadError::NoIndex { path: dir }),
            other => other?,
        };
        let geometry = self.index_geometry(query)?;
        let mut log = self.open_log()?;
        let mut found = BTreeMap::new();
        self.walk_index(&files, geometry, &wanted, |offset| {
            if found.len() >= query.max_records {
                return Ok(More::No);
            }
            if let Some(bytes) = read_wanted(&mut log, offset, &wanted)? {
                found.insert(offset, bytes);
            }
            Ok(More::Yes)
        })?;
        let record = |(physical_offset, bytes)| KeyedRecord { physical_offset, bytes };
        Ok(found.into_iter().map(record).collect())
    }

    /// Where records with a key may be, in any of some topics, as far as the index is known to have them. `None` when
    /// the index is not known to be complete: another program wrote last, a file is missing, or no index is kept.
    ///
    /// # Errors
    /// When a file operation fails.
    pub fn key_places(&self, topics: &[String], key: &str) -> Result<Option<KeyPlaces>, ReadError> {
        let Some(mark) = self.index_mark()? else { return Ok(None) };
        let files = match list_files(&*self.disk, &self.root.join("index")) {
            Err(error) if error.is_not_found() => return Ok(None),
            other => other?,
        };
        if !self.has_all_keys(&files, &mark)? {
            return Ok(None);
        }
        let mut offsets = BTreeSet::new();
        for topic in topics {
            let wanted = Wanted::new(topic, key, KeyKind::Any, i64::MIN, i64::MAX);
            self.walk_index(&files, mark.geometry, &wanted, |offset| {
                if offset < mark.to {
                    offsets.insert(offset);
                }
                Ok(More::Yes)
            })?;
        }
        Ok(Some(KeyPlaces { offsets, covered_to: mark.to }))
    }

    /// Whether the files hold as many keys as the mark says.
    fn has_all_keys(&self, files: &[NamedFile], mark: &IndexMark) -> Result<bool, ReadError> {
        let mut keys = u64::from(mark.next_entry.max(1) - 1);
        if mark.file > 0 && !files.iter().any(|file| file.name == mark.file) {
            return Ok(false);
        }
        for file in files {
            if file.size_bytes != mark.geometry.file_bytes() {
                return Ok(false);
            }
            if file.name < mark.file {
                let path = path_of(&self.root.join("index"), file.name);
                let handle = match self.disk.open_file(&path, OpenMode::Read) {
                    Err(error) if error.is_not_found() => return Ok(false),
                    other => other?,
                };
                keys += u64::from(read_header(&handle)?.next_entry.max(1) - 1);
            }
        }
        Ok(keys == mark.keys)
    }

    /// Calls `visit` with the physical offset of each entry that may match, newest first.
    fn walk_index(
        &self,
        files: &[NamedFile],
        geometry: Geometry,
        wanted: &Wanted<'_>,
        mut visit: impl FnMut(PhysicalOffset) -> Result<More, ReadError>,
    ) -> Result<(), ReadError> {
        for file in files.iter().rev() {
            let path = path_of(&self.root.join("index"), file.name);
            if file.size_bytes != geometry.file_bytes() {
                let Geometry { slots, entries } = geometry;
                let reason =
                    format!("{} bytes, not those of {slots} slots and {entries} entries", file.size_bytes);
                return Err(ReadError::BadFile { path, reason });
            }
            let handle = match self.disk.open_file(&path, OpenMode::Read) {
                Err(error) if error.is_not_found() => continue, // removed meanwhile
                other => other?,
            };
            let header = read_header(&handle)?;
            let first = read_slot(&handle, slot_of(wanted.hash, geometry.slots))?;
            let chain = Chain { geometry, header, first };
            // The head of the current file lags behind its entries: only its begin time is final.
            let may_be_written = Some(file) == files.last();
            if (may_be_written || chain.may_hold(wanted))
                && chain.walk(&handle, wanted, &mut visit)? == More::No
            {
                break;
            }
            if chain.is_last(wanted) {
                break;
            }
        }
        Ok(())
    }

    fn index_mark(&self) -> Result<Option<IndexMark>, ReadError> {
        let mark = Checkpoint::read(&*self.disk, &self.root.join("checkpoint"))?.mark;
        Ok(mark.and_then(|mark| mark.index))
    }

    fn index_geometry(&self, query: &KeyQuery) -> Result<Geometry, ReadError> {
        if let Some((slots, entries)) = query.slots_and_entries {
            return Ok(Geometry { slots: slots.max(1), entries });
        }
        let known = self.index_mark()?.map(|index| index.geometry);
        Ok(known.unwrap_or(Geometry { slots: SLOTS, entries: ENTRIES }))
    }
}

/// The record at an offset, if it is there and is what is wanted.
fn read_wanted<D: Disk>(
    log: &mut LogFiles<D>,
    offset: PhysicalOffset,
    wanted: &Wanted<'_>,
) -> Result<Option<Vec<u8>>, ReadError> {
    let Some(file_end) = log.file_end(offset)? else { return Ok(None) };
    let mut size = [0; 4];
    if !log.read(offset, &mut size)? {
        return Ok(None);
    }
    let size = u64::from(u32::from_be_bytes(size));
    if size < FIXED_BYTES_V1 as u64 || size > file_end - offset {
        return Ok(None); // an entry that leads to no record: it was cut off, or the file was removed
    }
    let mut bytes = vec![0; size as usize];
    if !log.read(offset, &mut bytes)? {
        return Ok(None);
    }
    match check_record(&bytes, CheckMode::Layout) {
        Ok(RecordCheck::Record(view)) if view.physical_offset == offset && wanted.is(&view) => {}
        _ => return Ok(None),
    }
    if let Err(error) = check_record(&bytes, CheckMode::Body) {
        let path: PathBuf = log.path_at(offset)?;
        return Err(ReadError::BadFile { path, reason: format!("the record at {offset}: {error}") });
    }
    Ok(Some(bytes))
}
