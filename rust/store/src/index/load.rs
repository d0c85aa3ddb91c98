//! Opens the index files of a folder, and cuts the last one back to what is known to be right.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use rocketpy_env::planted::{self, Bug};
use rocketpy_env::{Disk, DiskFile, EnvError, OpenMode};
use rocketpy_model::PhysicalOffset;
use rocketpy_protocol::disk::index::{entry_position, slot_of};
use rocketpy_protocol::disk::{IndexEntry, IndexHeader};
use rocketpy_protocol::record::{CheckMode, RecordCheck, RecordView, check_record};

use super::file::{Geometry, NamedFile, list, path_of, read_header};
use super::key::is_keyed;
use super::writer::{Slots, Writer};
use super::{Index, IndexMark, Sealed, State};
use crate::mapped::MappedFile;

/// The log that the index is of.
pub(crate) struct Log<'a, R> {
    pub files: &'a [MappedFile<R>],
    /// The end of its last record.
    pub end: PhysicalOffset,
}

/// What is known before a file is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known {
    /// What our own mark says; `None` when it is not valid.
    pub mark: Option<IndexMark>,
    /// The last process closed the store, and nothing was added since.
    pub is_clean: bool,
    /// Store time of the last record in the files that are durable as a whole.
    pub full_to_ms: i64,
}

/// State of the index files.
enum Verdict<D: Disk> {
    Sound(Box<State<D>>),
    /// All files must be rebuilt, for this reason.
    Lost(&'static str),
}
use Verdict::{Lost, Sound};

struct Loader<'a, D: Disk> {
    disk: &'a Arc<D>,
    dir: &'a Path,
    geometry: Geometry,
    known: Known,
    log: Log<'a, D::Region>,
}

impl<D: Disk> Index<D> {
    /// Opens the files of a folder, and rebuilds what is not known to be right. Returns whether all files must be
    /// rebuilt. If so, `on_loss` notes it before they are removed; otherwise the next start would take new files for
    /// the known ones.
    ///
    /// # Source
    /// docs/reference/store-format.md 5.5; docs/durability.md R6.
    pub(crate) fn open(
        disk: &Arc<D>,
        dir: PathBuf,
        geometry: Geometry,
        known: Known,
        log: Log<'_, D::Region>,
        on_loss: impl FnOnce() -> Result<(), EnvError>,
    ) -> Result<(Self, bool), EnvError> {
        let loader = Loader { disk, dir: &dir, geometry, known, log };
        let files = list(&**disk, &dir)?;
        let verdict = match known.mark {
            Some(mark) if mark.geometry == geometry => loader.by_mark(files, mark)?,
            Some(_) => Lost("its files have another size"),
            None => loader.adopt(files)?,
        };
        let (state, rebuilt) = match verdict {
            Sound(state) => (*state, false),
            Lost(reason) => {
                tracing::warn!(reason, "rebuilding the key index from the log");
                on_loss()?;
                (loader.start_anew()?, true)
            }
        };
        Ok((Self { disk: Arc::clone(disk), geometry, state: RwLock::new(state), dir }, rebuilt))
    }
}

impl<D: Disk> Loader<'_, D> {
    fn log_min(&self) -> PhysicalOffset {
        self.log.files.first().map_or(self.log.end, |file| file.start)
    }

    fn state(
        &self,
        sealed: Vec<Arc<Sealed>>,
        current: Option<Writer<D>>,
        next: (PhysicalOffset, usize),
    ) -> State<D> {
        let next = next.max((self.log_min(), 0));
        let now = self.disk.monotonic();
        State { sealed, current, next, unsynced: Vec::new(), new_file: true, slots_at: now, settle_from: now }
    }

    /// Removes all files.
    fn start_anew(&self) -> Result<State<D>, EnvError> {
        for file in list(&**self.disk, self.dir)? {
            self.disk.remove_file(&path_of(self.dir, file.name))?;
        }
        Ok(self.state(Vec::new(), None, (PhysicalOffset::ZERO, 0)))
    }

    fn open_file(&self, name: u64) -> Result<D::File, EnvError> {
        self.disk.open_file(&path_of(self.dir, name), OpenMode::Write)
    }

    fn has_right_sizes(&self, files: &[NamedFile]) -> bool {
        files.iter().all(|file| file.size_bytes == self.geometry.file_bytes())
    }

    /// A file as its head describes it; `None` when no writer leaves such a head.
    fn sealed(&self, name: u64) -> Result<Option<Sealed>, EnvError> {
        let header = read_header(&self.open_file(name)?)?;
        let next_entry = header.next_entry.max(1);
        let is_sound = next_entry <= self.geometry.entries
            && header.begin_physical_offset <= header.end_physical_offset
            && header.end_physical_offset.to_wire() >= 0;
        Ok(is_sound.then_some(Sealed { name, header, next_entry }))
    }

    /// Goes back to what our mark says was durable.
    fn by_mark(&self, mut files: Vec<NamedFile>, mark: IndexMark) -> Result<Verdict<D>, EnvError> {
        while let Some(newer) = files.pop_if(|file| file.name > mark.file) {
            self.disk.remove_file(&path_of(self.dir, newer.name))?;
        }
        if files.last().map_or(0, |file| file.name) != mark.file {
            return Ok(Lost("its last file is missing"));
        }
        if !self.has_right_sizes(&files) {
            return Ok(Lost("a file has another size"));
        }
        let Some(last) = files.pop() else {
            return Ok(Sound(Box::new(self.state(Vec::new(), None, (mark.to, 0)))));
        };
        let mut sealed = Vec::new();
        for file in files {
            match self.sealed(file.name)? {
                Some(file) => sealed.push(Arc::new(file)),
                None => return Ok(Lost("the head of a file is damaged")),
            }
        }
        let keys: u64 = sealed.iter().map(|file| file.keys()).sum();
        if keys + u64::from(mark.next_entry.max(1) - 1) != mark.keys {
            // Files whose records are gone from the log may have been removed since.
            let Some(header) = self.sealed(last.name)? else {
                return Ok(Lost("the head of its last file is damaged"));
            };
            if let Some(reason) = self.hole(sealed.iter().map(|file| &**file).chain([&header])) {
                return Ok(Lost(reason));
            }
        }
        let (mut to, mut next_entry, mut is_clean) = (mark.to, mark.next_entry, self.known.is_clean);
        if planted::has(Bug::IndexAheadOfLog) {
            let head = read_header(&self.open_file(last.name)?)?;
            (to, next_entry, is_clean) = (to.max(head.end_physical_offset), head.next_entry, true);
        }
        let Some(writer) = self.goes_on(last.name, next_entry, is_clean)? else {
            return Ok(Lost("its last file is damaged"));
        };
        let put = self.put_of(to, &sealed, Some(&writer))?;
        Ok(Sound(Box::new(self.state(sealed, Some(writer), (to, put)))))
    }

    /// Continues files that another program wrote last, or that were not kept up to date.
    ///
    /// # Source
    /// docs/reference/store-format.md 5.5: after a crash files count up to the time in the checkpoint. Files that were lost then leave a hole
    /// in the log that the index covers.
    fn adopt(&self, files: Vec<NamedFile>) -> Result<Verdict<D>, EnvError> {
        if !self.has_right_sizes(&files) {
            return Ok(Lost("a file has another size"));
        }
        let mut sealed = Vec::new();
        let mut counts = true;
        for file in files {
            let Some(found) = self.sealed(file.name)? else {
                return Ok(Lost("the head of a file is damaged"));
            };
            counts &= found.keys() > 0; // a file behind one without a key may begin in the middle of a record
            let end_ms = found.header.end_stored_at_ms;
            counts &= self.known.is_clean || end_ms <= self.known.full_to_ms;
            if counts {
                counts = self.known.is_clean || end_ms < self.known.full_to_ms; // one that ends in the same millisecond may be later
                sealed.push(Arc::new(found));
            } else {
                tracing::info!(name = found.name, "index file may be incomplete, rebuilding it");
                self.disk.remove_file(&path_of(self.dir, found.name))?;
            }
        }
        if let Some(reason) = self.hole(sealed.iter().map(|file| &**file)) {
            return Ok(Lost(reason));
        }
        if sealed.last().is_some_and(|last| last.header.end_physical_offset >= self.log.end) {
            return Ok(Lost("it continues past the end of the log"));
        }
        let mut current = None;
        if let Some(last) = sealed.last() {
            current = self.goes_on(last.name, last.next_entry, false)?;
            if current.is_none() {
                return Ok(Lost("its last file is damaged"));
            }
            sealed.pop();
        }
        let end = current.as_ref().map_or(PhysicalOffset::ZERO, |writer| writer.header.end_physical_offset);
        let put = self.put_of(end, &sealed, current.as_ref())?;
        Ok(Sound(Box::new(self.state(sealed, current, (end, put)))))
    }

    /// The reason to believe that the files leave out records that have keys; `None` when there is none.
    fn hole<'f>(&self, files: impl Iterator<Item = &'f Sealed>) -> Option<&'static str> {
        let mut covered = None;
        for file in files {
            let begin = file.header.begin_physical_offset;
            if covered.is_some_and(|end| begin < end) {
                return Some("its files are not in the order of the log");
            }
            if self.has_keys(covered, begin) {
                return Some("records are missing between its files");
            }
            covered = Some(file.header.end_physical_offset);
        }
        None
    }

    /// Whether a record behind the one at `from`, or behind the start of the log, and before `to` has keys.
    fn has_keys(&self, from: Option<PhysicalOffset>, to: PhysicalOffset) -> bool {
        let mut at = from.unwrap_or_default().max(self.log_min());
        while at < to.min(self.log.end) {
            let Some(file) = self.log.files.iter().find(|file| file.holds(at)) else {
                return true;
            };
            let rest = file.written_from(at);
            match check_record(rest, CheckMode::Layout) {
                Ok(RecordCheck::Record(view)) => {
                    if Some(at) != from && is_keyed(&view) {
                        return true;
                    }
                    at += view.size() as u64;
                }
                Ok(RecordCheck::Blank { .. }) => at = file.end(),
                Err(_) if rest.len() < 8 => at = file.end(),
                Err(_) => return true, // what cannot be read may have some
            }
        }
        false
    }

    /// How many keys of the record at an offset the index has. They are at the end of the files.
    fn put_of(
        &self,
        offset: PhysicalOffset,
        sealed: &[Arc<Sealed>],
        current: Option<&Writer<D>>,
    ) -> Result<usize, EnvError> {
        let mut put = 0;
        let current = current.map(|writer| (writer.name, writer.header.next_entry));
        let sealed = sealed.iter().rev().map(|file| (file.name, file.next_entry));
        for (name, next_entry) in current.into_iter().chain(sealed) {
            let file = self.open_file(name)?;
            for number in (1..next_entry).rev() {
                let mut bytes = [0; IndexEntry::BYTES];
                file.read_exact_at(entry_position(number, self.geometry.slots), &mut bytes)?;
                if IndexEntry::decode(&bytes).physical_offset != offset {
                    return Ok(put);
                }
                put += 1;
            }
        }
        Ok(put)
    }

    /// Continues writing a file behind the entries before `next_entry`; `None` when it is damaged.
    fn goes_on(&self, name: u64, next_entry: u32, is_clean: bool) -> Result<Option<Writer<D>>, EnvError> {
        let file = self.open_file(name)?;
        let header = read_header(&file)?;
        if is_clean && header.next_entry == next_entry {
            let slots = Slots::read(&file, self.geometry.slots)?;
            return Ok(Some(Writer::new(name, file, self.geometry, header, slots)));
        }
        let Some((header, mut slots)) = self.link(&file, header, next_entry)? else {
            return Ok(None);
        };
        assert_eq!(header.next_entry, next_entry, "the head counts the entries that stay");
        let behind = entry_position(next_entry, self.geometry.slots);
        if behind < self.geometry.file_bytes() {
            file.zero_range(behind..self.geometry.file_bytes(), false)?;
        }
        slots.compare(&file)?;
        let mut writer = Writer::new(name, file, self.geometry, header, slots);
        writer.write_slots()?;
        Ok(Some(writer))
    }

    /// Slots and head, worked out from the entries before `next_entry`; `None` when the entries contradict each other.
    ///
    /// After a power loss slots may lead anywhere, while flushed entries are whole. Each entry holds the former value
    /// of its slot, so that a wrong one is found.
    fn link(
        &self,
        file: &D::File,
        former: IndexHeader,
        next_entry: u32,
    ) -> Result<Option<(IndexHeader, Slots)>, EnvError> {
        const STEP: u32 = 1 << 14;
        if next_entry < 2 || next_entry > self.geometry.entries {
            return Ok(None);
        }
        let mut slots = Slots::new(self.geometry.slots);
        let mut last = IndexEntry { physical_offset: former.begin_physical_offset, ..IndexEntry::default() };
        let mut buffer = Vec::new();
        let mut number = 1;
        while number < next_entry {
            let count = STEP.min(next_entry - number);
            buffer.resize(count as usize * IndexEntry::BYTES, 0);
            file.read_exact_at(entry_position(number, self.geometry.slots), &mut buffer)?;
            for bytes in buffer.as_chunks::<{ IndexEntry::BYTES }>().0 {
                let entry = IndexEntry::decode(bytes);
                let slot = slot_of(entry.key_hash, self.geometry.slots);
                let goes_on = entry.previous == slots.get(slot)
                    && entry.physical_offset >= last.physical_offset
                    && entry.physical_offset < self.log.end
                    && (number > 1 || entry.physical_offset == former.begin_physical_offset);
                if !goes_on {
                    return Ok(None);
                }
                slots.set(slot, number);
                last = entry;
                number += 1;
            }
        }
        assert_eq!(number, next_entry, "every entry was looked at");
        slots.forget_changes();
        let header = IndexHeader {
            end_physical_offset: last.physical_offset,
            end_stored_at_ms: self.stored_at(&last, &former),
            used_slots: slots.used(),
            next_entry,
            ..former
        };
        Ok(Some((header, slots)))
    }

    /// When the record of an entry was stored. If the record is gone from the log, the time that the entry states.
    fn stored_at(&self, entry: &IndexEntry, header: &IndexHeader) -> i64 {
        let at = entry.physical_offset;
        let file = self.log.files.iter().find(|file| file.holds(at));
        let view = file.and_then(|file| RecordView::parse(file.written_from(at)).ok());
        view.map_or(header.begin_stored_at_ms + i64::from(entry.seconds) * 1000, |view| view.stored_at_ms)
    }
}
