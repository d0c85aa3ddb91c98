//! One index file on disk.

use std::path::{Path, PathBuf};

use rocketpy_env::{Disk, DiskFile, EntryKind, EnvError};
use rocketpy_model::PhysicalOffset;
use rocketpy_protocol::disk::index::{entry_position, file_bytes, slot_position};
use rocketpy_protocol::disk::{IndexEntry, IndexHeader};

use super::key::Wanted;

/// Digits of a file's name: the local time at which it was made.
const NAME_DIGITS: usize = 17;

/// Number of slots and entry numbers of each file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Number of hash slots.
    #[doc(alias = "maxHashSlotNum")]
    pub slots: u32,
    /// Numbers of entries, of which the first is not used.
    #[doc(alias = "maxIndexNum")]
    pub entries: u32,
}

impl Geometry {
    /// Length of such a file.
    pub fn file_bytes(self) -> u64 {
        file_bytes(self.slots, self.entries)
    }
}

/// The name of a file made at a time.
///
/// # Source
/// docs/reference/store-format.md 4.4.
pub(crate) fn file_name(made_at: u64) -> String {
    format!("{made_at:0NAME_DIGITS$}")
}

/// A file of the folder of index files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedFile {
    /// The local time at which it was made, as 17 digits.
    pub name: u64,
    /// Length of the file.
    pub size_bytes: u64,
}

/// The index files of a folder, oldest first. Other names are ignored.
pub fn list<D: Disk>(disk: &D, dir: &Path) -> Result<Vec<NamedFile>, EnvError> {
    let mut files = Vec::new();
    for entry in disk.list(dir)?.into_iter().filter(|entry| entry.kind == EntryKind::File) {
        let name = entry.name.to_str().and_then(|text| {
            let name = text.parse::<u64>().ok()?;
            (file_name(name) == text).then_some(name)
        });
        match name {
            Some(name) => files.push(NamedFile { name, size_bytes: entry.size_bytes }),
            None => {
                tracing::warn!(name = ?entry.name, "file without an index file's name ignored in the index folder")
            }
        }
    }
    files.sort_by_key(|file| file.name);
    Ok(files)
}

/// Path of an index file.
pub fn path_of(dir: &Path, name: u64) -> PathBuf {
    dir.join(file_name(name))
}

/// Reads the header of an index file.
///
/// # Errors
/// The file cannot be read, or is shorter than a header.
pub fn read_header<F: DiskFile>(file: &F) -> Result<IndexHeader, EnvError> {
    let mut bytes = [0; IndexHeader::BYTES];
    file.read_exact_at(0, &mut bytes)?;
    Ok(IndexHeader::decode(&bytes))
}

/// The number that a slot leads to.
pub(crate) fn read_slot<F: DiskFile>(file: &F, slot: u32) -> Result<u32, EnvError> {
    let mut bytes = [0; 4];
    file.read_exact_at(slot_position(slot), &mut bytes)?;
    Ok(u32::from_be_bytes(bytes))
}

/// A chain of entries to search.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chain {
    pub geometry: Geometry,
    pub header: IndexHeader,
    /// Number of its newest entry, 0 for none.
    pub first: u32,
}

/// Whether more is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum More {
    Yes,
    No,
}

impl Chain {
    /// Whether records of the time or the place that is wanted may be in the file.
    pub(crate) fn may_hold(&self, wanted: &Wanted<'_>) -> bool {
        let IndexHeader { begin_stored_at_ms, end_stored_at_ms, end_physical_offset, .. } = self.header;
        let is_in_time = begin_stored_at_ms <= wanted.end_ms && end_stored_at_ms >= wanted.begin_ms;
        is_in_time || wanted.reaches(end_physical_offset)
    }

    /// Whether no earlier file can hold records of the time or the place that is wanted.
    pub(crate) fn is_last(&self, wanted: &Wanted<'_>) -> bool {
        self.header.begin_stored_at_ms < wanted.begin_ms && !wanted.reaches(self.header.begin_physical_offset)
    }

    /// Calls `visit` with the physical offset of each entry whose hash and time, or place, fit, the newest first.
    ///
    /// # Source
    /// docs/reference/store-format.md 4.5. An entry has its time in seconds, and the time of a file's first key may be
    /// too late. Compare what is visited with its record.
    pub(crate) fn walk<F: DiskFile, E: From<EnvError>>(
        &self,
        file: &F,
        wanted: &Wanted<'_>,
        mut visit: impl FnMut(PhysicalOffset) -> Result<More, E>,
    ) -> Result<More, E> {
        let mut number = self.first;
        while (1..self.geometry.entries).contains(&number) {
            let mut bytes = [0; IndexEntry::BYTES];
            file.read_exact_at(entry_position(number, self.geometry.slots), &mut bytes)?;
            let entry = IndexEntry::decode(&bytes);
            let from_ms = self.header.begin_stored_at_ms.saturating_add(i64::from(entry.seconds) * 1000);
            let is_first = number == 1;
            let is_reached = is_first || wanted.reaches(entry.physical_offset);
            if !is_reached && from_ms.saturating_add(999) < wanted.begin_ms {
                break;
            }
            let fits = entry.key_hash == wanted.hash && (is_reached || from_ms <= wanted.end_ms);
            if fits && visit(entry.physical_offset)? == More::No {
                return Ok(More::No);
            }
            if entry.previous >= number {
                break; // no writer makes this: a chain leads back
            }
            number = entry.previous;
        }
        Ok(More::Yes)
    }
}
