//! The log of timers: units one behind the other, in files of one length.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rocketpy_env::{Disk, DiskFile, EntryKind, EnvError, OpenMode};
use rocketpy_model::PhysicalOffset;
use rocketpy_protocol::disk::TimerUnit;

use super::Unflushed;
use crate::folder::file_name;

const FILE_BYTES: u64 = 100 << 20;
const UNIT_BYTES: u64 = TimerUnit::BYTES as u64;
/// A unit needs this much room in its file.
const ROOM_BYTES: u64 = UNIT_BYTES + TimerUnit::BLANK_BYTES as u64;
/// Units that a scan reads at a time.
const SCAN_UNITS: usize = 16_384;
/// Units that are read with one that is wanted, and before it: those of a slot often lie together, and are read from the last one back.
const BEFORE_UNITS: u64 = 127;

/// The folder `timerlog`.
pub(super) struct TimerLog<D: Disk> {
    disk: Arc<D>,
    dir: PathBuf,
    files: Vec<LogFile<D>>,
    /// Behind the last unit.
    end: u64,
    /// The last bytes before `end`, which are not written yet; all of one file.
    unwritten: Vec<u8>,
    /// Written since the last flush.
    dirty: Vec<Arc<D::File>>,
    /// Units that were read together, and where they begin.
    read: (u64, Vec<u8>),
}

pub(super) struct LogFile<D: Disk> {
    start: u64,
    file: Arc<D::File>,
    /// The latest slot of its units.
    last_slot_ms: i64,
    last_record: PhysicalOffset,
}

impl<D: Disk> TimerLog<D> {
    /// Opens the files that follow each other without a gap, and removes the others.
    pub(super) fn open(disk: Arc<D>, root: &Path) -> Result<Self, EnvError> {
        let dir = folder(root);
        disk.create_dir_all(&dir)?;
        disk.sync_dir(root)?;
        let (files, others) = list(&*disk, &dir, OpenMode::Write)?;
        others.iter().try_for_each(|path| disk.remove_file(path))?;
        let mut log = Self {
            disk,
            dir,
            files,
            end: 0,
            unwritten: Vec::new(),
            dirty: Vec::new(),
            read: (0, Vec::new()),
        };
        log.end = log.start();
        Ok(log)
    }

    /// Position of the first unit that there may be.
    pub(super) fn start(&self) -> u64 {
        start(&self.files)
    }

    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Keeps the units up to the first that is not wanted, and removes what is behind.
    pub(super) fn recover(&mut self, is_wanted: impl FnMut(u64, &TimerUnit) -> bool) -> Result<(), EnvError> {
        self.end = scan(&mut self.files, is_wanted)?;
        self.cut()
    }

    /// Removes what is after the end.
    fn cut(&mut self) -> Result<(), EnvError> {
        let kept = self.files.partition_point(|file| file.start <= self.end);
        for file in self.files.drain(kept..) {
            self.disk.remove_file(&self.dir.join(file_name(file.start)))?;
        }
        if let Some(file) = self.files.last().filter(|file| self.end < file.start + FILE_BYTES) {
            file.file.zero_range(self.end - file.start..FILE_BYTES, false)?;
        }
        Ok(())
    }

    /// Adds a unit, which is not written before [`Self::write`]; returns its position.
    ///
    /// # Errors
    /// It is not added.
    pub(super) fn append(&mut self, unit: &TimerUnit) -> Result<u64, EnvError> {
        let room = self.files.last().map_or(0, |file| file.start + FILE_BYTES - self.end);
        if room < ROOM_BYTES {
            self.begin_file(room as u32)?;
        }
        let position = self.end;
        self.unwritten.extend_from_slice(&unit.encode());
        self.end += UNIT_BYTES;
        if let Some(file) = self.files.last_mut() {
            file.last_slot_ms = file.last_slot_ms.max(unit.slot_ms);
            file.last_record = unit.physical_offset;
        }
        Ok(position)
    }

    fn begin_file(&mut self, room: u32) -> Result<(), EnvError> {
        self.write()?;
        let start = match self.files.last() {
            Some(last) => {
                if room > 0 {
                    last.file.write_all_at(self.end - last.start, &TimerUnit::blank(room))?;
                }
                last.start + FILE_BYTES
            }
            None => 0,
        };
        let file = self.disk.open_file(&self.dir.join(file_name(start)), OpenMode::CreateOrWrite)?;
        file.set_len(FILE_BYTES)?;
        let file = Arc::new(file);
        self.files.push(LogFile { start, file, last_slot_ms: 0, last_record: PhysicalOffset::ZERO });
        self.end = start;
        Ok(())
    }

    /// Writes what was added.
    ///
    /// # Errors
    /// It is written by a later call.
    pub(super) fn write(&mut self) -> Result<(), EnvError> {
        let Some(file) = self.files.last().filter(|_| !self.unwritten.is_empty()) else { return Ok(()) };
        let from = self.end - self.unwritten.len() as u64;
        file.file.write_all_at(from - file.start, &self.unwritten)?;
        self.unwritten.clear();
        if !self.dirty.iter().any(|dirty| Arc::ptr_eq(dirty, &file.file)) {
            self.dirty.push(Arc::clone(&file.file));
        }
        Ok(())
    }

    /// Takes the files that were written since the last call.
    pub(super) fn take_unflushed(&mut self) -> Unflushed<D> {
        let files = std::mem::take(&mut self.dirty);
        Unflushed { disk: Arc::clone(&self.disk), dir: self.dir.clone(), files }
    }

    pub(super) fn add_dirty(&mut self, files: Vec<Arc<D::File>>) {
        self.dirty.extend(files);
    }

    /// The unit at a position; `None` where there is none, no more, or none that is written.
    pub(super) fn unit(&mut self, position: i64) -> Result<Option<TimerUnit>, EnvError> {
        let Ok(position) = u64::try_from(position) else { return Ok(None) };
        if position < self.start() || position + UNIT_BYTES > self.end - self.unwritten.len() as u64 {
            return Ok(None);
        }
        let (from, bytes) = &self.read;
        if position < *from || position + UNIT_BYTES > from + bytes.len() as u64 {
            self.read_up_to(position)?;
        }
        let (from, bytes) = &self.read;
        let at = (position - from) as usize;
        Ok(TimerUnit::decode(&bytes[at..at + TimerUnit::BYTES]))
    }

    /// Reads the unit at a position and some before it; it alone where these cannot be read.
    fn read_up_to(&mut self, position: u64) -> Result<(), EnvError> {
        let file = &self.files[((position - self.start()) / FILE_BYTES) as usize];
        let wide = position.saturating_sub(BEFORE_UNITS * UNIT_BYTES).max(file.start);
        let (from, bytes) = &mut self.read;
        let mut read = |start: u64| {
            *from = start;
            bytes.resize((position + UNIT_BYTES - start) as usize, 0);
            file.file.read_exact_at(start - file.start, bytes).inspect_err(|_| bytes.clear())
        };
        read(wide).or_else(|_| read(position))
    }

    /// Removes the first files while all their units are in slots before `read_ms`, and their records before `from`.
    pub(super) fn remove_before(&mut self, read_ms: i64, from: PhysicalOffset) -> Result<(), EnvError> {
        while let [first, _, ..] = &self.files[..]
            && first.last_slot_ms < read_ms
            && first.last_record < from
        {
            self.disk.remove_file(&self.dir.join(file_name(first.start)))?;
            self.files.remove(0);
        }
        Ok(())
    }
}

pub(super) fn folder(root: &Path) -> PathBuf {
    root.join("timerlog")
}

/// Opens the files that follow each other without a gap, and names the others.
pub(super) fn list<D: Disk>(
    disk: &D,
    dir: &Path,
    mode: OpenMode,
) -> Result<(Vec<LogFile<D>>, Vec<PathBuf>), EnvError> {
    let (mut files, mut others) = (Vec::<LogFile<D>>::new(), Vec::new());
    for entry in disk.list(dir)?.iter().filter(|entry| entry.kind == EntryKind::File) {
        let path = dir.join(&entry.name);
        let start = entry.name.to_str().and_then(|name| name.parse::<u64>().ok());
        let next = files.last().map(|last| last.start + FILE_BYTES);
        match start {
            Some(start)
                if entry.size_bytes == FILE_BYTES
                    && start.is_multiple_of(FILE_BYTES)
                    && next.is_none_or(|next| next == start) =>
            {
                let file = Arc::new(disk.open_file(&path, mode)?);
                let last_record = PhysicalOffset::ZERO;
                files.push(LogFile { start, file, last_slot_ms: 0, last_record });
            }
            _ => others.push(path),
        }
    }
    Ok((files, others))
}

/// Where the first of the files begins.
pub(super) fn start<D: Disk>(files: &[LogFile<D>]) -> u64 {
    files.first().map_or(0, |file| file.start)
}

/// Gives each unit with its position until one is not wanted, and returns where the units end. Their records lie one behind the other;
/// where that ends, the units end.
pub(super) fn scan<D: Disk>(
    files: &mut [LogFile<D>],
    mut is_wanted: impl FnMut(u64, &TimerUnit) -> bool,
) -> Result<u64, EnvError> {
    let (mut end, mut last_record) = (0, None);
    for file in files {
        end = file.start;
        let is_full = file.scan(|position, unit| {
            let goes_on = last_record.is_none_or(|last| unit.physical_offset > last);
            if !goes_on || !is_wanted(position, unit) {
                return false;
            }
            last_record = Some(unit.physical_offset);
            end = position + UNIT_BYTES;
            true
        })?;
        if !is_full {
            break;
        }
    }
    Ok(end)
}

impl<D: Disk> LogFile<D> {
    /// Gives each unit with its position until `next` says no or there is none; whether the file is full of them.
    fn scan(&mut self, mut next: impl FnMut(u64, &TimerUnit) -> bool) -> Result<bool, EnvError> {
        let mut bytes = vec![0; SCAN_UNITS * TimerUnit::BYTES];
        let mut at = 0;
        while at + ROOM_BYTES <= FILE_BYTES {
            let read = self.file.read_at(at, &mut bytes)?;
            let (units, _) = bytes[..read].as_chunks::<{ TimerUnit::BYTES }>();
            for bytes in units {
                if at + ROOM_BYTES > FILE_BYTES {
                    return Ok(true);
                }
                let Some(unit) = TimerUnit::decode(bytes) else { return Ok(false) };
                if !next(self.start + at, &unit) {
                    return Ok(false);
                }
                self.last_slot_ms = self.last_slot_ms.max(unit.slot_ms);
                self.last_record = unit.physical_offset;
                at += UNIT_BYTES;
            }
        }
        Ok(true)
    }
}
