//! The index file that is written.

use std::path::Path;
use std::sync::Arc;

use rocketpy_env::{Disk, DiskFile, EnvError, OpenMode};
use rocketpy_model::PhysicalOffset;
use rocketpy_protocol::disk::index::{ENTRY_BYTES, entry_position, slot_of, slot_position};
use rocketpy_protocol::disk::{IndexEntry, IndexHeader};

use super::file::{Geometry, path_of};

/// Slots in one unit of writing: 256 bytes.
const UNIT: usize = 64;
/// With at most this many clean units between two dirty ones, one write covers them all.
const BRIDGE: usize = 16;

/// One record's key as it goes into the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    pub hash: u32,
    pub physical_offset: PhysicalOffset,
    pub stored_at_ms: i64,
}

/// The slots of a file, kept in memory in the file's format: they are read and written at random, a million times a
/// second.
///
/// They are written to the file in runs, later than the entries. The entries alone determine them.
#[derive(Debug)]
pub(crate) struct Slots {
    slots: Vec<[u8; 4]>,
    /// One bit for each unit that differs from the file.
    dirty: Vec<u64>,
}

impl Slots {
    pub(super) fn new(count: u32) -> Self {
        let units = (count as usize).div_ceil(UNIT);
        Self { slots: vec![[0; 4]; count as usize], dirty: vec![0; units.div_ceil(64)] }
    }

    pub(super) fn get(&self, slot: u32) -> u32 {
        u32::from_be_bytes(self.slots[slot as usize])
    }

    pub(super) fn set(&mut self, slot: u32, number: u32) {
        assert!(number > 0, "a slot that leads nowhere is free");
        self.slots[slot as usize] = number.to_be_bytes();
        self.mark(slot as usize / UNIT);
    }

    fn mark(&mut self, unit: usize) {
        self.dirty[unit / 64] |= 1 << (unit % 64);
    }

    pub(super) fn is_dirty(&self) -> bool {
        self.dirty.iter().any(|&word| word != 0)
    }

    /// Marks all units as written.
    pub(super) fn forget_changes(&mut self) {
        self.dirty.fill(0);
    }

    /// Slots that lead to an entry.
    pub(super) fn used(&self) -> u32 {
        self.slots.iter().filter(|slot| **slot != [0; 4]).count() as u32
    }

    /// Reads the slots of a file, except its holes.
    pub(super) fn read<F: DiskFile>(file: &F, count: u32) -> Result<Self, EnvError> {
        let mut slots = Self::new(count);
        let start = slot_position(0);
        let bytes = slots.slots.as_flattened_mut();
        let mut at = 0;
        while let Some(data) = file.next_data(start + at as u64)? {
            let from = at.max(data.saturating_sub(start) as usize);
            if from >= bytes.len() {
                break;
            }
            at = bytes.len().min(from + (256 << 10));
            file.read_exact_at(start + from as u64, &mut bytes[from..at])?;
        }
        Ok(slots)
    }

    /// Marks the units that differ from a file.
    pub(super) fn compare<F: DiskFile>(&mut self, file: &F) -> Result<(), EnvError> {
        let on_disk = Self::read(file, self.slots.len() as u32)?;
        for unit in 0..self.slots.len().div_ceil(UNIT) {
            let range = unit * UNIT..self.slots.len().min((unit + 1) * UNIT);
            if self.slots[range.clone()] != on_disk.slots[range] {
                self.mark(unit);
            }
        }
        Ok(())
    }

    /// Writes the units that differ, in few runs.
    pub(super) fn write<F: DiskFile>(&mut self, file: &F) -> Result<(), EnvError> {
        let mut run: Option<(usize, usize)> = None; // first and last unit
        for (index, word) in self.dirty.iter().enumerate() {
            let mut bits = *word;
            while bits != 0 {
                let unit = index * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                run = match run {
                    Some((first, last)) if unit - last <= BRIDGE => Some((first, unit)),
                    former => {
                        if let Some((first, last)) = former {
                            self.write_run(file, first, last)?;
                        }
                        Some((unit, unit))
                    }
                };
            }
        }
        if let Some((first, last)) = run {
            self.write_run(file, first, last)?;
        }
        self.forget_changes();
        Ok(())
    }

    fn write_run<F: DiskFile>(&self, file: &F, first: usize, last: usize) -> Result<(), EnvError> {
        let range = first * UNIT..self.slots.len().min((last + 1) * UNIT);
        assert!(!range.is_empty(), "a run has a slot");
        file.write_all_at(slot_position(range.start as u32), self.slots[range].as_flattened())
    }
}

pub(crate) struct Writer<D: Disk> {
    pub name: u64,
    pub file: Arc<D::File>,
    pub geometry: Geometry,
    pub header: IndexHeader,
    pub slots: Slots,
    /// Entries that are not in the file yet: those before `header.next_entry`.
    pending: Vec<u8>,
    /// Whether the head differs from the file.
    header_is_dirty: bool,
    /// Whether something was written since the last [`Writer::take_unsynced`].
    unsynced: bool,
}

impl<D: Disk> Writer<D> {
    /// Makes a sparse file that follows one whose head is `former`.
    pub(super) fn create(
        disk: &D,
        dir: &Path,
        name: u64,
        geometry: Geometry,
        former: &IndexHeader,
    ) -> Result<Self, EnvError> {
        let path = path_of(dir, name);
        let file = disk.open_file(&path, OpenMode::CreateOrWrite)?;
        if let Err(error) = file.set_len(geometry.file_bytes()) {
            let _ = disk.remove_file(&path); // a file of another length would count as damaged
            return Err(error);
        }
        let header = IndexHeader {
            begin_stored_at_ms: former.end_stored_at_ms,
            end_stored_at_ms: former.end_stored_at_ms,
            begin_physical_offset: former.end_physical_offset,
            end_physical_offset: former.end_physical_offset,
            used_slots: 0,
            next_entry: 1,
        };
        Ok(Self::new(name, file, geometry, header, Slots::new(geometry.slots)))
    }

    /// Continues a file, as found or repaired.
    pub(super) fn new(
        name: u64,
        file: D::File,
        geometry: Geometry,
        header: IndexHeader,
        slots: Slots,
    ) -> Self {
        let header_is_dirty = true; // the file may hold another one
        let file = Arc::new(file);
        Self { name, file, geometry, header, slots, pending: Vec::new(), header_is_dirty, unsynced: true }
    }

    pub(super) fn is_full(&self) -> bool {
        self.header.next_entry >= self.geometry.entries
    }

    pub(super) fn keys(&self) -> u64 {
        u64::from(self.header.next_entry - 1)
    }

    /// Adds a key, in memory.
    ///
    /// # Panics
    /// When the file is full.
    ///
    /// # Source
    /// docs/reference/store-format.md 4.3.
    #[inline]
    pub(super) fn put(&mut self, key: &Key) {
        assert!(!self.is_full(), "a full index file takes no key");
        let slot = slot_of(key.hash, self.geometry.slots);
        let previous = self.slots.get(slot);
        let entry = IndexEntry {
            key_hash: key.hash,
            physical_offset: key.physical_offset,
            seconds: self.header.seconds_since_begin(key.stored_at_ms),
            previous,
        };
        self.pending.extend_from_slice(&entry.encode());
        self.slots.set(slot, self.header.next_entry);
        self.header.count(key.physical_offset, key.stored_at_ms, previous == 0);
        self.header_is_dirty = true;
    }

    /// Writes the entries that are not in the file yet. After an error the caller may try again.
    pub(super) fn write_entries(&mut self) -> Result<(), EnvError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.unsynced = true;
        let position = entry_position(self.first_pending(), self.geometry.slots);
        assert!(self.pending.len().is_multiple_of(IndexEntry::BYTES), "entries are whole");
        assert!(
            position + self.pending.len() as u64 <= self.geometry.file_bytes(),
            "entries stay in their file"
        );
        self.file.write_all_at(position, &self.pending)?;
        self.pending.clear();
        Ok(())
    }

    /// Whether slots or head are to be written.
    pub(super) fn is_unsettled(&self) -> bool {
        self.header_is_dirty || self.slots.is_dirty()
    }

    /// Writes slots and head. The entries are in the file already, so that it is complete afterwards.
    pub(super) fn write_slots(&mut self) -> Result<(), EnvError> {
        self.write_entries()?;
        assert!(self.pending.is_empty(), "no slot leads to an entry that is not in the file");
        if self.is_unsettled() {
            self.unsynced = true;
            self.slots.write(&*self.file)?;
            self.file.write_all_at(0, &self.header.encode())?; // last: it counts what is there
            self.header_is_dirty = false;
        }
        Ok(())
    }

    fn first_pending(&self) -> u32 {
        self.header.next_entry - (self.pending.len() as u64 / ENTRY_BYTES) as u32
    }

    /// The newest entry of a slot that is in the file.
    pub(super) fn newest(&self, slot: u32) -> u32 {
        let first_pending = self.first_pending();
        let mut number = self.slots.get(slot);
        while number >= first_pending && number != 0 {
            let at = (number - first_pending) as usize * IndexEntry::BYTES;
            number = self.pending[at..].first_chunk().map_or(0, |bytes| IndexEntry::decode(bytes).previous);
        }
        number
    }

    /// The file, if it was written since the last call.
    pub(super) fn take_unsynced(&mut self) -> Option<Arc<D::File>> {
        std::mem::take(&mut self.unsynced).then(|| Arc::clone(&self.file))
    }
}
