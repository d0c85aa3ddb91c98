//! Index files: from a key to the records that have it.
//!
//! The rounds of dispatch derive it from the log, like the consume queues. Entries are written in every round. The
//! slots of the current file are kept in memory and written in runs when there is time, the head last. The mark of the
//! checkpoint says what is durable; a start continues from there.

mod file;
mod key;
mod load;
mod lookup;
mod writer;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use file::{Chain, More, read_slot};
pub use file::{Geometry, NamedFile, list as list_files, path_of, read_header};
pub(crate) use key::Wanted;
pub use key::{KeyKind, Keys};
pub(crate) use load::{Known, Log};
pub use lookup::QueryResult;
use parking_lot::RwLock;
use rocketpy_env::{Disk, DiskFile, EnvError, local_digits};
use rocketpy_model::PhysicalOffset;
use rocketpy_protocol::disk::IndexHeader;
pub(crate) use writer::Key;
use writer::Writer;

use crate::queue::files::FlushFailure;

/// Interval at which slots are written while keys arrive. They lie all over the file, so many rounds share one write.
const SLOTS_EVERY: Duration = Duration::from_millis(200);

/// After a failed write of slots, an idle store waits this long before it tries again.
const SETTLE_RETRY: Duration = Duration::from_secs(10);

/// The part of the index that is known to be durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexMark {
    /// The index has all keys of records before this.
    pub to: PhysicalOffset,
    /// Name of the last file, 0 for none.
    pub file: u64,
    /// Number of the next entry in it.
    pub next_entry: u32,
    /// Keys in all files.
    pub keys: u64,
    /// Slots and entry numbers of its files.
    pub geometry: Geometry,
}

/// A file that is full.
#[derive(Debug)]
struct Sealed {
    name: u64,
    header: IndexHeader,
    next_entry: u32,
}

impl Sealed {
    fn keys(&self) -> u64 {
        u64::from(self.next_entry.max(1) - 1)
    }
}

#[doc(alias = "IndexService")]
pub(crate) struct Index<D: Disk> {
    disk: Arc<D>,
    dir: PathBuf,
    geometry: Geometry,
    state: RwLock<State<D>>,
}

struct State<D: Disk> {
    sealed: Vec<Arc<Sealed>>,
    current: Option<Writer<D>>,
    /// The first key that the index does not have: the offset of its record, and its number among the record's keys.
    next: (PhysicalOffset, usize),
    /// Full files that were written since the last flush.
    unsynced: Vec<Arc<D::File>>,
    /// Whether a file was made since: its name is not durable yet.
    new_file: bool,
    /// When slots were last written, by [`Disk::monotonic`], as the next.
    slots_at: Duration,
    /// When to try again after a failed write of slots.
    settle_from: Duration,
}

/// What one flush makes durable.
pub(crate) struct Unsynced<D: Disk> {
    files: Vec<Arc<D::File>>,
    new_file: bool,
    /// What the mark may say once the flush has ended.
    pub mark: IndexMark,
    /// The index has some keys of the record at `mark.to`, but not all: a file could not be made.
    pub has_part: bool,
    /// Store time of the last record in the newest full file.
    pub full_to_ms: Option<i64>,
}

impl<D: Disk> State<D> {
    /// The head of the newest file.
    fn last_header(&self) -> IndexHeader {
        match &self.current {
            Some(writer) => writer.header,
            None => self.sealed.last().map_or_else(IndexHeader::default, |sealed| sealed.header),
        }
    }

    fn last_name(&self) -> u64 {
        let sealed = self.sealed.last().map_or(0, |sealed| sealed.name);
        self.current.as_ref().map_or(sealed, |writer| writer.name)
    }

    /// Adds the current file to the full ones.
    fn seal(&mut self) -> Result<(), EnvError> {
        let Some(writer) = &mut self.current else { return Ok(()) };
        writer.write_slots()?;
        self.unsynced.extend(writer.take_unsynced());
        let (name, header) = (writer.name, writer.header);
        self.sealed.push(Arc::new(Sealed { name, header, next_entry: header.next_entry }));
        self.current = None;
        tracing::info!(name, keys = header.next_entry - 1, "index file full");
        Ok(())
    }
}

impl<D: Disk> Index<D> {
    /// Offset of the first record whose keys are missing.
    pub(crate) fn next(&self) -> PhysicalOffset {
        self.state.read().next.0
    }

    /// Adds the keys of a round, in the order of the log, and skips those that it has. Afterwards it has all keys of
    /// records before `to`.
    ///
    /// # Errors
    /// A second call with the same round continues where this one ended.
    pub(crate) fn put(&self, keys: &[Key], to: PhysicalOffset) -> Result<(), EnvError> {
        let mut state = self.state.write();
        let state = &mut *state;
        let mut number = 0;
        let mut last = None;
        for key in keys {
            assert!(last.is_none_or(|last| last <= key.physical_offset), "keys come in the order of the log");
            number = if last == Some(key.physical_offset) { number + 1 } else { 0 };
            last = Some(key.physical_offset);
            if (key.physical_offset, number) < state.next {
                continue;
            }
            let writer = match &mut state.current {
                Some(writer) if !writer.is_full() => writer,
                _ => self.roll(state)?,
            };
            writer.put(key);
            state.next = (key.physical_offset, number + 1);
        }
        if let Some(writer) = &mut state.current {
            writer.write_entries()?;
            let now = self.disk.monotonic();
            if now.saturating_sub(state.slots_at) >= SLOTS_EVERY {
                state.slots_at = now;
                writer.write_slots()?;
            }
        }
        assert!(last.is_none_or(|last| last < to), "a round ends behind its last key");
        state.next = state.next.max((to, 0));
        Ok(())
    }

    /// Makes the next file.
    fn roll<'a>(&self, state: &'a mut State<D>) -> Result<&'a mut Writer<D>, EnvError> {
        state.seal()?;
        let name = local_digits(self.disk.now_ms()).max(state.last_name() + 1);
        let writer = Writer::create(&*self.disk, &self.dir, name, self.geometry, &state.last_header())?;
        assert!(state.last_name() < name, "files are named in the order of their making");
        state.new_file = true;
        Ok(state.current.insert(writer))
    }

    /// Removes full files whose records are all before `log_min`, the oldest first. Returns how many.
    ///
    /// # Durability
    /// The next flush makes the removal durable. After a crash before it, some of the files may be back. That does no
    /// harm.
    #[doc(alias = "deleteExpiredFile")]
    pub(crate) fn expire(&self, log_min: PhysicalOffset) -> Result<usize, EnvError> {
        let mut state = self.state.write();
        let mut removed = 0;
        while let Some(oldest) = state.sealed.first()
            && oldest.header.end_physical_offset < log_min
        {
            let name = oldest.name;
            match self.disk.remove_file(&path_of(&self.dir, name)) {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
            state.sealed.remove(0);
            state.new_file = true;
            removed += 1;
            tracing::info!(name, %log_min, "index file removed after its records");
        }
        Ok(removed)
    }

    /// Whether no thread is reading or changing the index.
    pub(crate) fn is_free(&self) -> bool {
        self.state.try_write().is_some()
    }

    /// Whether memory holds what the files do not have yet, and writing it has not just failed.
    pub(crate) fn is_unsettled(&self) -> bool {
        let state = self.state.read();
        self.disk.monotonic() >= state.settle_from && state.current.as_ref().is_some_and(Writer::is_unsettled)
    }

    /// Writes what the files do not have yet. For idle times.
    pub(crate) fn settle(&self) -> Result<(), EnvError> {
        let mut state = self.state.write();
        let written = state.current.as_mut().map_or(Ok(()), Writer::write_slots);
        if written.is_err() {
            state.settle_from = self.disk.monotonic() + SETTLE_RETRY;
        }
        written
    }

    /// Writes everything, and returns what to flush. Called while no round runs, because the mark says what rounds have
    /// done.
    pub(crate) fn take_unsynced(&self) -> Result<Unsynced<D>, EnvError> {
        let mut state = self.state.write();
        let state = &mut *state;
        if let Some(writer) = &mut state.current {
            writer.write_slots()?;
            state.unsynced.extend(writer.take_unsynced());
        }
        assert!(state.current.as_ref().is_none_or(|writer| !writer.is_unsettled()), "all is written");
        let sealed_keys: u64 = state.sealed.iter().map(|sealed| sealed.keys()).sum();
        let next_entry = match (&state.current, state.sealed.last()) {
            (Some(writer), _) => writer.header.next_entry,
            (None, Some(sealed)) => sealed.next_entry,
            (None, None) => 0,
        };
        let mark = IndexMark {
            to: state.next.0,
            file: state.last_name(),
            next_entry,
            keys: sealed_keys + state.current.as_ref().map_or(0, Writer::keys),
            geometry: self.geometry,
        };
        Ok(Unsynced {
            files: std::mem::take(&mut state.unsynced),
            new_file: std::mem::take(&mut state.new_file),
            mark,
            has_part: state.next.1 > 0,
            full_to_ms: state.sealed.last().map(|sealed| sealed.header.end_stored_at_ms),
        })
    }

    /// Makes durable what was taken, the names of new files as well.
    ///
    /// # Errors
    /// After [`FlushFailure::NotTried`] the next call takes the same again; a failed flush poisons.
    pub(crate) fn flush(&self, mut unsynced: Unsynced<D>) -> Result<(), FlushFailure> {
        for file in &unsynced.files {
            file.sync().map_err(FlushFailure::Failed)?;
        }
        if !unsynced.new_file {
            return Ok(());
        }
        self.disk.sync_dir(&self.dir).map_err(FlushFailure::of).inspect_err(|_| {
            let mut state = self.state.write();
            state.unsynced.append(&mut unsynced.files);
            state.new_file = true;
        })
    }
}
