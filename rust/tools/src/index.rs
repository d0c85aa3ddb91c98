//! Compares index files with the log.

use std::path::PathBuf;
use std::sync::Arc;

use rocketpy_env::{Disk, DiskFile, EnvError, OpenMode};
use rocketpy_model::PhysicalOffset;
use rocketpy_protocol::disk::index::{ENTRIES, SLOTS, entry_position, slot_of, slot_position};
use rocketpy_protocol::disk::{IndexEntry, IndexHeader};
use rocketpy_protocol::record::RecordView;
use rocketpy_store::files::{
    Condition, Geometry, Keys, NamedFile, index_file_path, list_index_files, read_index_header,
};
use rocketpy_store::reader::StoreReader;

use crate::report::{Problem, ProblemKind, VerifyReport};

/// Entries that are read at once.
const ENTRIES_AT_ONCE: u32 = 4096;

/// An entry with its place.
#[derive(Debug, Clone, Copy)]
struct Numbered {
    number: u32,
    entry: IndexEntry,
}

/// The index files of a store, read in step with the log: their entries are in the same order.
pub(crate) struct IndexCheck<D: Disk> {
    disk: Arc<D>,
    dir: PathBuf,
    geometry: Geometry,
    /// Files that are still to be read, the next one last.
    files: Vec<(NamedFile, u32)>,
    current: Option<Current<D>>,
    /// Keys of records before this must be there.
    entered_to: PhysicalOffset,
    /// No server writes the last file: its slots lead to its last entries.
    is_settled: bool,
    /// Every entry must be there. Otherwise only the entries that are there are checked.
    is_ours: bool,
    log_start: PhysicalOffset,
    hashes: Vec<u32>,
}

struct Current<D: Disk> {
    name: u64,
    file: D::File,
    header: IndexHeader,
    /// One more than the number of the last entry that is checked.
    end: u32,
    next: u32,
    entries: Vec<Numbered>,
    taken: usize,
    /// The newest entry of each slot so far.
    slots: Vec<u32>,
    is_last: bool,
}

impl<D: Disk> IndexCheck<D> {
    /// Lists the files. While a server runs, and after a kill, only what the checkpoint covers is checked.
    pub(crate) fn open(
        reader: &StoreReader<D>,
        condition: &Condition,
        report: &mut VerifyReport,
    ) -> Result<Self, EnvError> {
        let dir = reader.root().join("index");
        let mark = condition.mark.and_then(|mark| mark.index);
        let geometry = mark.map_or(Geometry { slots: SLOTS, entries: ENTRIES }, |mark| mark.geometry);
        let listed = match list_index_files(&**reader.disk(), &dir) {
            Err(error) if error.is_not_found() => None, // the next start rebuilds it
            other => Some(other?),
        };
        let (has_folder, listed) = (listed.is_some(), listed.unwrap_or_default());
        let mut files = Vec::new();
        for file in listed {
            let is_behind = mark.is_some_and(|mark| file.name > mark.file);
            if is_behind && condition.is_dirty {
                continue;
            }
            if file.size_bytes != geometry.file_bytes() && mark.is_none() {
                continue; // made with other numbers of slots and entries, which are not noted anywhere
            }
            if file.size_bytes != geometry.file_bytes() {
                let found = format!("{} bytes", file.size_bytes);
                let expected = format!("{} bytes", geometry.file_bytes());
                let path = index_file_path(&dir, file.name);
                report.note(Problem::new(ProblemKind::BadFile, path, file.size_bytes, found, expected));
                continue;
            }
            let end = mark.filter(|mark| mark.file == file.name).map_or(0, |mark| mark.next_entry);
            files.push((file, end));
        }
        files.reverse();
        Ok(Self {
            disk: Arc::clone(reader.disk()),
            dir,
            geometry,
            files,
            current: None,
            entered_to: mark.map_or(PhysicalOffset::ZERO, |mark| mark.to),
            is_settled: !condition.is_dirty,
            is_ours: has_folder && mark.is_some(),
            log_start: reader.open_log().map_or(PhysicalOffset::ZERO, |log| log.start()),
            hashes: Vec::new(),
        })
    }

    /// Compares the entries of a record; records come in the order of the log.
    pub(crate) fn check(&mut self, view: &RecordView<'_>, report: &mut VerifyReport) -> Result<(), EnvError> {
        let at = view.physical_offset;
        let mut hashes = std::mem::take(&mut self.hashes);
        hashes.clear();
        hashes.extend(Keys::of(view.properties).hashes(view.topic, view.sys_flag));
        while let Some(found) = self.peek(report)?.filter(|found| found.entry.physical_offset <= at) {
            self.take();
            let is_its = found.entry.physical_offset == at
                && match hashes.iter().position(|&hash| hash == found.entry.key_hash) {
                    Some(index) => {
                        hashes.remove(index);
                        true
                    }
                    // Apache, and RocketPy before it had a limit, index more.
                    None => {
                        let mut every = Keys::of(view.properties).every_hash(view.topic, view.sys_flag);
                        every.any(|hash| hash == found.entry.key_hash)
                    }
                };
            match is_its {
                true => report.index_entries += 1,
                false => self.note_without_record(&found, report),
            }
        }
        if self.is_ours && at < self.entered_to {
            for hash in &hashes {
                let expected = format!("an entry of the key hash {hash} that leads to {at}");
                let kind = ProblemKind::KeyWithoutIndexEntry;
                report.note(Problem::new(kind, self.dir.clone(), 0, "none", expected).in_log(at));
            }
        }
        self.hashes = hashes;
        Ok(())
    }

    /// Notes the entries that lead behind the last record.
    pub(crate) fn finish(
        &mut self,
        log_end: PhysicalOffset,
        report: &mut VerifyReport,
    ) -> Result<(), EnvError> {
        while let Some(found) = self.peek(report)? {
            self.take();
            if found.entry.physical_offset < log_end || self.is_settled {
                self.note_without_record(&found, report);
            }
        }
        Ok(())
    }

    fn note_without_record(&self, found: &Numbered, report: &mut VerifyReport) {
        let (at, hash) = (found.entry.physical_offset, found.entry.key_hash);
        if at < self.log_start {
            return; // retention took the record away
        }
        let name = self.current.as_ref().map_or(0, |current| current.name);
        let place = entry_position(found.number, self.geometry.slots);
        let text = format!("entry {} of the key hash {hash} leads to {at}", found.number);
        let kind = ProblemKind::IndexEntryWithoutRecord;
        let problem = Problem::new(
            kind,
            index_file_path(&self.dir, name),
            place,
            text,
            "a record with such a key there",
        );
        report.note(problem.in_log(at));
    }

    fn take(&mut self) {
        if let Some(current) = &mut self.current {
            current.taken += 1;
        }
    }

    /// The next entry.
    fn peek(&mut self, report: &mut VerifyReport) -> Result<Option<Numbered>, EnvError> {
        loop {
            if let Some(current) = &mut self.current {
                if let Some(&found) = current.entries.get(current.taken) {
                    return Ok(Some(found));
                }
                if current.next < current.end {
                    current.load(self.geometry, &self.dir, report)?;
                    continue;
                }
                let is_settled = self.is_settled || !current.is_last;
                current.close(self.geometry, &self.dir, is_settled, report)?;
                self.current = None;
            }
            let Some((file, end)) = self.files.pop() else { return Ok(None) };
            let is_last = self.files.is_empty();
            self.current = Some(self.begin(file.name, end, is_last)?);
            report.index_files += 1;
        }
    }

    fn begin(&self, name: u64, end: u32, is_last: bool) -> Result<Current<D>, EnvError> {
        let file = self.disk.open_file(&index_file_path(&self.dir, name), OpenMode::Read)?;
        let header = read_index_header(&file)?;
        let end = if end > 0 { end } else { header.next_entry }.min(self.geometry.entries);
        Ok(Current {
            name,
            file,
            header,
            end,
            next: 1,
            entries: Vec::new(),
            taken: 0,
            slots: vec![0; self.geometry.slots as usize],
            is_last,
        })
    }
}

impl<D: Disk> Current<D> {
    /// Reads the next entries and follows their chains.
    fn load(
        &mut self,
        geometry: Geometry,
        dir: &std::path::Path,
        report: &mut VerifyReport,
    ) -> Result<(), EnvError> {
        let count = ENTRIES_AT_ONCE.min(self.end - self.next);
        let mut bytes = vec![0; count as usize * IndexEntry::BYTES];
        self.file.read_exact_at(entry_position(self.next, geometry.slots), &mut bytes)?;
        self.entries.clear();
        self.taken = 0;
        for bytes in bytes.as_chunks::<{ IndexEntry::BYTES }>().0 {
            let entry = IndexEntry::decode(bytes);
            let number = self.next;
            self.next += 1;
            let newest = &mut self.slots[slot_of(entry.key_hash, geometry.slots) as usize];
            if entry.previous != *newest {
                let place = entry_position(number, geometry.slots);
                let found = format!("entry {number} follows entry {}", entry.previous);
                let expected = format!("entry {newest}");
                let path = index_file_path(dir, self.name);
                report.note(Problem::new(ProblemKind::IndexDiffers, path, place, found, expected));
            }
            *newest = number;
            self.entries.push(Numbered { number, entry });
        }
        Ok(())
    }

    /// Compares head and slots with what the entries say, unless a server writes the file.
    fn close(
        &self,
        geometry: Geometry,
        dir: &std::path::Path,
        is_settled: bool,
        report: &mut VerifyReport,
    ) -> Result<(), EnvError> {
        if !is_settled {
            return Ok(());
        }
        let path = index_file_path(dir, self.name);
        let used = self.slots.iter().filter(|&&number| number > 0).count() as u32;
        let found = (self.header.next_entry.max(1), self.header.used_slots);
        if found != (self.end.max(1), used) {
            let text = |(next, used): (u32, u32)| format!("next entry {next}, used slots {used}");
            let (found, expected) = (text(found), text((self.end.max(1), used)));
            report.note(Problem::new(ProblemKind::IndexDiffers, path.clone(), 32, found, expected));
        }
        let mut bytes = vec![0; (geometry.slots as usize) * 4];
        self.file.read_exact_at(slot_position(0), &mut bytes)?;
        let on_disk = bytes.as_chunks::<4>().0.iter().map(|slot| u32::from_be_bytes(*slot));
        for (slot, (found, &expected)) in (0..).zip(on_disk.zip(&self.slots)).filter(|(_, (a, b))| a != *b) {
            let (found, expected) =
                (format!("slot {slot} leads to entry {found}"), format!("entry {expected}"));
            let place = slot_position(slot);
            report.note(Problem::new(ProblemKind::IndexDiffers, path.clone(), place, found, expected));
        }
        Ok(())
    }
}
