//! Reads the consume queues on disk, and cuts them back to what is known to be right.

use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Arc;

use rocketpy_env::planted::{self, Bug};
use rocketpy_env::{Disk, DiskFile, EntryKind, EnvError};
use rocketpy_model::name::check_topic;
use rocketpy_model::{PhysicalOffset, QueueOffset};

use super::scan::record_in;
use crate::error::StoreError;
use crate::fetch::QueueBounds;
use crate::folder::{file_name, numbered_files};
use crate::mapped::MappedFile;
use crate::queue::Queue;
use crate::queue::entry::{self, ENTRY_BYTES, Entry, Window, entry_at, position, record_end};
use crate::queue::files::QueueFiles;
use crate::queue::table::QueueTable;

/// With at least this many queues, several threads read them.
const MANY_QUEUES: usize = 4096;
const MOST_THREADS: usize = 8;

/// Entries of a file that are read at once: those of a page of memory.
const ENTRIES_A_PAGE: u64 = 4096 / ENTRY_BYTES;

/// A queue as it is on disk.
#[derive(Debug)]
pub(crate) struct FoundQueue {
    /// Not yet in the table; its bounds are not set.
    pub queue: Arc<Queue>,
    /// Starts of its files.
    pub files: Vec<u64>,
    /// Starts of empty files, whose making was cut short.
    unfinished: Vec<u64>,
    /// Queue offset after the last trusted entry, once it is known.
    pub end: QueueOffset,
    /// The first entry of the first file, if it was read together with the end.
    first_entry: Option<Entry>,
}

/// Which entries of a queue are trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trust {
    /// Entries of records before the limit were durable. A binary search finds the last of them.
    Durable,
    /// Another program wrote last. Entries are checked one by one from the start of the last file, and trusted while
    /// they make sense.
    Walk,
}

/// Lists the queues below a folder. Changes nothing. Names that are no queue are ignored.
///
/// # Errors
/// [`StoreError::WrongFileSize`], [`StoreError::UnexpectedFile`].
///
/// # Source
/// docs/reference/store-format.md 1.1: an entry of a topic folder that is not a number is not a queue.
pub(crate) fn find<D: Disk>(
    disk: &D,
    dir: &Path,
    file_size: u64,
    table: &QueueTable,
) -> Result<Vec<FoundQueue>, StoreError> {
    let mut found = Vec::new();
    for topic_entry in folders(disk, dir)? {
        if check_topic(&topic_entry).is_err() {
            tracing::warn!(
                name = topic_entry,
                "folder without a topic's name ignored among the consume queues"
            );
            continue;
        }
        let topic: Arc<str> = topic_entry.into();
        let topic_dir = dir.join(&*topic);
        for name in folders(disk, &topic_dir)? {
            let Ok(queue_id) = name.parse::<u32>() else { continue };
            if name != queue_id.to_string() {
                tracing::warn!(%topic, name, "folder without a queue's name ignored in the folder of a topic");
                continue;
            }
            let empty = QueueBounds { min: QueueOffset::ZERO, max: QueueOffset::ZERO };
            let queue = Queue::new(Arc::clone(&topic), queue_id, table.next_uid(), empty);
            found.push(FoundQueue {
                queue: Arc::new(queue),
                files: Vec::new(),
                unfinished: Vec::new(),
                end: QueueOffset::ZERO,
                first_entry: None,
            });
        }
    }
    for_each(&mut found, |found| {
        let dir = dir.join(&*found.queue.topic).join(found.queue.queue_id.to_string());
        (found.files, found.unfinished) = queue_file_starts(disk, &dir, file_size)?;
        Ok::<_, StoreError>(())
    })?;
    Ok(found)
}

/// Calls a function with each queue, on all processors if there are many queues.
pub(super) fn for_each<E: Send>(
    queues: &mut [FoundQueue],
    act: impl Fn(&mut FoundQueue) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
    if queues.len() < MANY_QUEUES {
        return queues.iter_mut().try_for_each(act);
    }
    let a_thread = queues.len().div_ceil(threads);
    let act = &act;
    std::thread::scope(|scope| {
        let parts = queues.chunks_mut(a_thread);
        let started: Vec<_> =
            parts.map(|part| scope.spawn(move || part.iter_mut().try_for_each(act))).collect();
        started.into_iter().try_for_each(|part| part.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })
}

fn folders<D: Disk>(disk: &D, dir: &Path) -> Result<Vec<String>, StoreError> {
    let entries = disk.list(dir)?.into_iter().filter(|entry| entry.kind == EntryKind::Folder);
    Ok(entries.filter_map(|entry| entry.name.into_string().ok()).collect())
}

/// Starts of the files of a queue, and of those whose making was cut short.
fn queue_file_starts<D: Disk>(
    disk: &D,
    dir: &Path,
    file_size: u64,
) -> Result<(Vec<u64>, Vec<u64>), StoreError> {
    let (mut starts, mut unfinished) = (Vec::new(), Vec::new());
    let files = numbered_files(disk, dir)?;
    for file in &files {
        let path = dir.join(file_name(file.start));
        if file.size_bytes == 0 {
            unfinished.push(file.start);
        } else if file.size_bytes != file_size || file.start % file_size != 0 {
            return Err(StoreError::WrongFileSize {
                path,
                found_bytes: file.size_bytes,
                expected_bytes: file_size,
                others_fit: files
                    .iter()
                    .any(|other| other.start != file.start && other.size_bytes == file_size),
            });
        } else {
            starts.push(file.start);
        }
    }
    Ok((starts, unfinished))
}

impl FoundQueue {
    /// First entry that the first file has room for; 0 without any file.
    pub(crate) fn first(&self) -> QueueOffset {
        self.files.first().map_or(QueueOffset::ZERO, |&start| entry_at(start))
    }

    /// Removes the files whose making was cut short.
    pub(crate) fn remove_unfinished<D: Disk>(&self, disk: &D, files: &QueueFiles<D>) -> Result<(), EnvError> {
        let dir = files.queue_dir(&self.queue);
        self.unfinished.iter().try_for_each(|&start| disk.remove_file(&dir.join(file_name(start))))
    }

    /// Start of the first file that is missing between two others.
    pub(crate) fn hole(&self, file_size: u64) -> Option<u64> {
        let pair = self.files.windows(2).find(|pair| pair[0] + file_size != pair[1])?;
        Some(pair[0] + file_size)
    }

    /// Whether files are missing, as far as the queue itself shows when there is no mark. Call it after the end was
    /// found.
    ///
    /// # Source
    /// docs/reference/store-format.md 3.4: files go from the first on, while their last entries lead before the log; the last one stays.
    pub(crate) fn misses_files<D: Disk>(
        &self,
        files: &QueueFiles<D>,
        log_min: PhysicalOffset,
    ) -> Result<bool, EnvError> {
        let (Some(&first), Some(&last)) = (self.files.first(), self.files.last()) else {
            self.warn_of_loss("it has no file", 0);
            return Ok(true);
        };
        if let Some(start) = self.hole(files.file_size()) {
            self.warn_of_loss("a file between two others is missing", start);
            return Ok(true);
        }
        if !self.starts_where_it_may(files, log_min)? {
            self.warn_of_loss("the files before its first may hold what the log still has", first);
            return Ok(true);
        }
        // A file is made for its first entry. So few queues end exactly with a file, and every queue that lost its last
        // file does.
        let ends_with_file = position(self.end) == last + files.file_size();
        if ends_with_file {
            self.warn_of_loss("its last file is full, the next may be lost", last + files.file_size());
        }
        Ok(ends_with_file)
    }

    /// Whether the first file begins no later than the log: nothing that the log still has is missing before it.
    pub(crate) fn starts_where_it_may<D: Disk>(
        &self,
        files: &QueueFiles<D>,
        log_min: PhysicalOffset,
    ) -> Result<bool, EnvError> {
        Ok(self.first() == QueueOffset::ZERO || leads_before(files, &self.queue, self.first(), log_min)?)
    }

    /// Whether all its records are gone from the log; finds the end of the entries that make sense. Entries of records
    /// that were lost with the end of the log are ignored.
    pub(crate) fn is_spent<D: Disk>(
        &mut self,
        files: &QueueFiles<D>,
        log_min: PhysicalOffset,
        log_end: PhysicalOffset,
    ) -> Result<bool, EnvError> {
        if log_min == PhysicalOffset::ZERO || self.hole(files.file_size()).is_some() {
            return Ok(false);
        }
        self.find_end(files, log_end, Trust::Walk)?;
        let last = self.last_entry(files)?;
        Ok(last.is_some_and(|last| !entry::is_preblank(&last) && record_end(&last) <= log_min))
    }

    /// Gives the queue the bounds that were found.
    pub(crate) fn set_bounds<D: Disk>(
        &self,
        files: &QueueFiles<D>,
        log_min: PhysicalOffset,
    ) -> Result<(), EnvError> {
        let (queue, first) = (&self.queue, self.first());
        assert!(first <= self.end, "a queue ends behind its first file's start");
        queue.set_first(first);
        queue.publish(self.end);
        queue.set_next(self.end);
        let first_is_living = self.end > first && self.first_entry.is_some_and(|it| is_living(&it, log_min));
        queue.set_min(if first_is_living { first } else { first_living(files, queue, first, log_min)? });
        assert!((first..=self.end).contains(&queue.min()), "a queue's minimum lies among its entries");
        Ok(())
    }

    /// Logs why the queues are rebuilt.
    pub(crate) fn warn_of_loss(&self, reason: &'static str, file_start: u64) {
        let (topic, queue_id) = (&*self.queue.topic, self.queue.queue_id);
        tracing::warn!(
            topic,
            queue_id,
            file_start,
            reason,
            "consume queue incomplete, rebuilding all consume queues"
        );
    }

    /// Finds the end of the entries that lead to records before `limit`. Nothing is changed.
    pub(crate) fn find_end<D: Disk>(
        &mut self,
        files: &QueueFiles<D>,
        limit: PhysicalOffset,
        trust: Trust,
    ) -> Result<(), EnvError> {
        let entries_a_file = files.file_size() / ENTRY_BYTES;
        for number in (0..self.files.len()).rev() {
            let first = entry_at(self.files[number]);
            let count = match trust {
                Trust::Durable => self.halve(files, first, entries_a_file, limit)?,
                Trust::Walk => walk(files, &self.queue, first, entries_a_file, limit)?,
            };
            assert!(count <= entries_a_file, "a file holds no more entries");
            if count > 0 {
                self.end = first + count;
                return Ok(());
            }
        }
        self.end = self.first();
        Ok(())
    }

    /// Number of trusted entries at the start of a file; all trusted entries come first. For most files one read is
    /// enough. In a longer one no place far behind the end is read, because that would take memory.
    fn halve<D: Disk>(
        &mut self,
        files: &QueueFiles<D>,
        first: QueueOffset,
        entries_a_file: u64,
        limit: PhysicalOffset,
    ) -> Result<u64, EnvError> {
        let file = files.open_once(&self.queue, position(first))?;
        let page = entries_a_file.min(ENTRIES_A_PAGE);
        let mut bytes = [0; (ENTRIES_A_PAGE * ENTRY_BYTES) as usize];
        let bytes = &mut bytes[..(page * ENTRY_BYTES) as usize];
        file.read_exact_at(0, bytes)?;
        if first == self.first() {
            self.first_entry = entry::decode(bytes);
        }
        let entries = bytes.chunks_exact(ENTRY_BYTES as usize);
        let mut low = entries.take_while(|bytes| counts(entry::decode(bytes).as_ref(), limit)).count() as u64;
        if low < page {
            return Ok(low);
        }
        let counts_at = |index: u64| {
            let mut bytes = [0; ENTRY_BYTES as usize];
            file.read_exact_at(index * ENTRY_BYTES, &mut bytes)?;
            Ok::<_, EnvError>(counts(entry::decode(&bytes).as_ref(), limit))
        };
        let mut high = low;
        while high < entries_a_file && counts_at(high)? {
            low = high + 1;
            high = entries_a_file.min(high * 2);
        }
        while low < high {
            let middle = low + (high - low) / 2;
            if counts_at(middle)? {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    pub(crate) fn last_entry<D: Disk>(&self, files: &QueueFiles<D>) -> Result<Option<Entry>, EnvError> {
        match self.files.first() {
            Some(_) if self.end > self.first() => files.entry(&self.queue, self.end - 1),
            _ => Ok(None),
        }
    }

    /// Whether the last trusted entry leads to its own record.
    pub(crate) fn leads_to_its_record<D: Disk>(
        &self,
        files: &QueueFiles<D>,
        log: &[MappedFile<D::Region>],
    ) -> Result<bool, EnvError> {
        let Some(last) = self.last_entry(files)? else {
            return Ok(true);
        };
        let offset = last.physical_offset;
        let log_min = log.first().map_or(PhysicalOffset::ZERO, |file| file.start);
        if entry::is_preblank(&last) || offset < log_min {
            return Ok(true); // nothing to compare with
        }
        let Some(file) = log.iter().find(|file| file.holds(offset)) else {
            return Ok(false);
        };
        Ok(record_in(file, offset).is_some_and(|view| {
            view.topic == &*self.queue.topic
                && view.queue_id == self.queue.queue_id
                && view.queue_offset == self.end - 1
                && view.size() as u32 == last.size_bytes
        }))
    }

    /// Removes what is after the end, and notes what is to be flushed.
    pub(crate) fn truncate<D: Disk>(&self, disk: &D, files: &QueueFiles<D>) -> Result<(), StoreError> {
        if planted::has(Bug::QueueNotTruncated) {
            return Ok(());
        }
        let dir = files.queue_dir(&self.queue);
        let position = position(self.end);
        // The last one first: a crash leaves no hole.
        for &start in self.files.iter().rev() {
            if start >= position && start != self.files[0] {
                files.forget(&self.queue); // it may be open
                disk.remove_file(&dir.join(file_name(start)))?;
                self.queue.mark_dirty(self.files[0], true);
            } else if start + files.file_size() > position {
                let file = files.open(&self.queue, start)?;
                file.zero_range(position.saturating_sub(start)..files.file_size(), false)?;
                self.queue.mark_dirty(start, true); // the last process may have made it and not flushed its name
            }
        }
        Ok(())
    }
}

/// Whether an entry leads to a record before the limit.
fn counts(entry: Option<&Entry>, limit: PhysicalOffset) -> bool {
    entry.is_some_and(|entry| entry::is_preblank(entry) || entry.physical_offset < limit)
}

/// Number of trusted entries at the start of a file, found one by one. They end at the first place without an entry, or
/// with one beyond the limit or earlier in the log than the one before.
fn walk<D: Disk>(
    files: &QueueFiles<D>,
    queue: &Queue,
    first: QueueOffset,
    entries_a_file: u64,
    limit: PhysicalOffset,
) -> Result<u64, EnvError> {
    let mut buffer = Vec::new();
    let mut counted = 0;
    let mut last_end = PhysicalOffset::ZERO;
    while counted < entries_a_file {
        files.read(queue, first + counted, (entries_a_file - counted).min(8192), &mut buffer)?;
        for bytes in buffer.chunks_exact(ENTRY_BYTES as usize) {
            let entry = entry::decode(bytes);
            let goes_on =
                entry.is_some_and(|entry| entry::is_preblank(&entry) || entry.physical_offset >= last_end);
            if !goes_on || !counts(entry.as_ref(), limit) {
                return Ok(counted);
            }
            last_end = entry.map_or(last_end, |entry| record_end(&entry).max(last_end));
            counted += 1;
        }
    }
    Ok(counted)
}

/// Whether what comes before an entry is gone from the log: when the entry's own record is, and when it is a filler.
pub(crate) fn leads_before<D: Disk>(
    files: &QueueFiles<D>,
    queue: &Queue,
    queue_offset: QueueOffset,
    log_min: PhysicalOffset,
) -> Result<bool, EnvError> {
    let entry = files.entry(queue, queue_offset)?;
    Ok(entry.is_some_and(|entry| entry::is_preblank(&entry) || entry.physical_offset < log_min))
}

/// Whether an entry leads to a record that the log still has.
fn is_living(entry: &Entry, log_min: PhysicalOffset) -> bool {
    !entry::is_preblank(entry) && entry.physical_offset >= log_min
}

/// First entry of a queue that leads to a record at or behind the start of the log.
///
/// # Source
/// docs/reference/store-format.md 3.4.
pub(crate) fn first_living<D: Disk>(
    files: &QueueFiles<D>,
    queue: &Queue,
    first: QueueOffset,
    log_min: PhysicalOffset,
) -> Result<QueueOffset, EnvError> {
    if first < queue.max() && files.entry(queue, first)?.is_some_and(|entry| is_living(&entry, log_min)) {
        return Ok(first); // nearly always; one entry is read, not twenty
    }
    let mut window = Window::default();
    entry::partition_point(first, queue.max(), |index| {
        let entry = files.entry_in(&mut window, queue, index)?.filter(|entry| !entry::is_preblank(entry));
        Ok(entry.map(|entry| entry.physical_offset < log_min))
    })
}

#[cfg(test)]
mod tests {
    use rocketpy_env::RealDisk;

    use super::*;

    const ENTRIES: u64 = 3000;

    #[test]
    fn the_end_of_a_queue_is_found_wherever_it_lies() {
        for count in [0, 1, 203, 204, 205, 407, 408, 409, 410, 815, 816, 817, 1632, 2447, 2448, 2999, ENTRIES]
        {
            let dir = tempfile::tempdir().unwrap();
            let disk = Arc::new(RealDisk);
            let table = QueueTable::default();
            let files =
                QueueFiles::new(Arc::clone(&disk), dir.path().to_owned(), ENTRIES * ENTRY_BYTES, 10, 0);
            let queue = table.get_or_create("t", 0).unwrap();
            let entry =
                |number: u64| Entry { physical_offset: (number * 10).into(), size_bytes: 10, tags_code: 0 };
            let bytes: Vec<u8> = (0..count.max(1)).flat_map(|number| entry(number).encode()).collect();
            files.write(&queue, QueueOffset::ZERO, &bytes, |_, _| ()).unwrap();
            let mut found = find(&*disk, dir.path(), files.file_size(), &table).unwrap();
            for limit in [0, 1, 10, 11, 2040, 2041, 2050, 8161, 16_321, count * 10, u64::MAX] {
                let limit = if count == 0 { 0 } else { limit };
                found[0].find_end(&files, limit.into(), Trust::Durable).unwrap();
                assert_eq!(found[0].end.get(), limit.div_ceil(10).min(count), "{count} {limit}");
            }
        }
    }
}
