//! Reads and writes the files of consume queues by position.

use std::path::PathBuf;
use std::sync::Arc;

use rocketpy_env::failpoint::{self, Point};
use rocketpy_env::{Disk, DiskFile, EnvError, OpenMode};
use rocketpy_model::QueueOffset;

use super::entry::{self, ENTRY_BYTES, Entry, Window, entry_at, position};
use super::line::Line;
use super::pool::FilePool;
use super::{Dirty, Queue};
use crate::folder::file_name;

/// Why a queue, or the checkpoint, is not durable.
#[derive(Debug)]
pub enum FlushFailure {
    /// A file could not be opened or written. Nothing is lost, and a retry is safe.
    NotTried(EnvError),
    /// The flush itself failed: no later flush is trusted.
    Failed(EnvError),
}

impl FlushFailure {
    /// Classifies the error of a call that opens and flushes.
    pub(crate) fn of(error: EnvError) -> Self {
        if error.is_of_opening() { Self::NotTried(error) } else { Self::Failed(error) }
    }

    /// The error of the disk.
    pub fn into_error(self) -> EnvError {
        match self {
            Self::NotTried(error) | Self::Failed(error) => error,
        }
    }
}

/// The files of all queues of a store.
#[derive(Debug)]
pub(crate) struct QueueFiles<D: Disk> {
    disk: Arc<D>,
    dir: PathBuf,
    file_size: u64,
    pool: FilePool<D::File>,
    pub(super) line: Line,
}

impl<D: Disk> QueueFiles<D> {
    /// `open_files` bounds the files that are kept open, `tail_bytes` the entries that are put off.
    pub(crate) fn new(
        disk: Arc<D>,
        dir: PathBuf,
        file_size: u64,
        open_files: usize,
        tail_bytes: usize,
    ) -> Self {
        assert!(file_size > 0 && file_size.is_multiple_of(ENTRY_BYTES), "a file holds whole entries");
        Self { disk, dir, file_size, pool: FilePool::new(open_files), line: Line::new(tail_bytes) }
    }

    pub(crate) fn file_size(&self) -> u64 {
        self.file_size
    }

    pub(crate) fn entries_a_file(&self) -> u64 {
        self.file_size / ENTRY_BYTES
    }

    pub(crate) fn topic_dir(&self, topic: &str) -> PathBuf {
        self.dir.join(topic)
    }

    pub(crate) fn queue_dir(&self, queue: &Queue) -> PathBuf {
        self.topic_dir(&queue.topic).join(queue.queue_id.to_string())
    }

    /// Start of the file that holds an entry.
    pub(crate) fn file_start(&self, queue_offset: QueueOffset) -> u64 {
        let position = position(queue_offset);
        position - position % self.file_size
    }

    fn path(&self, queue: &Queue, file_start: u64) -> PathBuf {
        self.queue_dir(queue).join(file_name(file_start))
    }

    /// An existing file, from the pool or opened.
    pub(crate) fn open(&self, queue: &Queue, file_start: u64) -> Result<Arc<D::File>, EnvError> {
        let key = (queue.uid, file_start);
        if let Some(file) = self.pool.get(key) {
            return Ok(file);
        }
        let file = Arc::new(self.disk.open_file(&self.path(queue, file_start), OpenMode::Write)?);
        self.pool.put(key, Arc::clone(&file));
        Ok(file)
    }

    /// An existing file for one read. It does not enter the pool, where it would displace one that is read more often.
    pub(crate) fn open_once(&self, queue: &Queue, file_start: u64) -> Result<D::File, EnvError> {
        self.disk.open_file(&self.path(queue, file_start), OpenMode::Write)
    }

    /// The file for an entry, made in its full length when missing. Returns also whether it was made.
    fn open_or_create(&self, queue: &Queue, file_start: u64) -> Result<(Arc<D::File>, bool), EnvError> {
        match self.open(queue, file_start) {
            Err(error) if error.is_not_found() => {}
            other => return Ok((other?, false)),
        }
        self.disk.create_dir_all(&self.queue_dir(queue))?;
        let file = self.disk.open_file(&self.path(queue, file_start), OpenMode::CreateOrWrite)?;
        if let Err(error) = file.set_len(self.file_size) {
            // Sparse, so this rarely fails. An empty file would count as an existing one.
            let _ = self.disk.remove_file(&self.path(queue, file_start));
            return Err(error);
        }
        let file = Arc::new(file);
        self.pool.put((queue.uid, file_start), Arc::clone(&file));
        Ok((file, true))
    }

    /// Writes consecutive entries from `first` on. Calls `note` for every file with its start and whether it is new,
    /// after the write, even a failed one: a note before the write could be taken by a flush that misses the bytes.
    ///
    /// # Errors
    /// A part may be written; writing the same again is safe.
    pub(crate) fn write(
        &self,
        queue: &Queue,
        first: QueueOffset,
        entries: &[u8],
        mut note: impl FnMut(u64, bool),
    ) -> Result<(), EnvError> {
        assert_eq!(entries.len() as u64 % ENTRY_BYTES, 0, "entries are whole");
        let mut position = position(first);
        let mut rest = entries;
        while !rest.is_empty() {
            let start = position - position % self.file_size;
            let room = (start + self.file_size - position) as usize;
            let (now, later) = rest.split_at(rest.len().min(room));
            assert!(
                (now.len() as u64).is_multiple_of(ENTRY_BYTES) && !now.is_empty(),
                "no entry lies across two files"
            );
            let (file, is_new) = self.open_or_create(queue, start)?;
            let written = file.write_all_at(position - start, now);
            note(start, is_new);
            written?;
            position += now.len() as u64;
            rest = later;
        }
        Ok(())
    }

    /// Reads entries from `first` on into `buffer`, up to the end of the file that holds `first` and at most `count`.
    /// Returns how many were read.
    pub(crate) fn read(
        &self,
        queue: &Queue,
        first: QueueOffset,
        count: u64,
        buffer: &mut Vec<u8>,
    ) -> Result<u64, EnvError> {
        self.read_by(queue, first, count, buffer, |file, at, bytes| file.read_exact_at(at, bytes))
    }

    /// Reads entries from memory, and the others from their file with `read`.
    fn read_by(
        &self,
        queue: &Queue,
        first: QueueOffset,
        count: u64,
        buffer: &mut Vec<u8>,
        mut read: impl FnMut(&D::File, u64, &mut [u8]) -> Result<(), EnvError>,
    ) -> Result<u64, EnvError> {
        let position = position(first);
        let start = position - position % self.file_size;
        let count = count.min((start + self.file_size - position) / ENTRY_BYTES);
        buffer.resize((count * ENTRY_BYTES) as usize, 0);
        // Memory first: entries move from memory to the file, never back.
        let in_file = queue.tail().fill(first, buffer);
        assert!(in_file <= count, "what is in the file was asked for");
        if in_file > 0 {
            let bytes = &mut buffer[..(in_file * ENTRY_BYTES) as usize];
            read(&*self.open(queue, start)?, position - start, bytes)?;
        }
        Ok(count)
    }

    /// [`QueueFiles::read`] that waits for no disk. `false` when it would have to.
    pub(crate) fn read_in_memory(
        &self,
        queue: &Queue,
        first: QueueOffset,
        count: u64,
        buffer: &mut Vec<u8>,
    ) -> Result<bool, EnvError> {
        let mut is_there = true;
        self.read_by(queue, first, count, buffer, |file, at, bytes| {
            is_there = file.read_in_memory_at(at, bytes)?;
            Ok(())
        })?;
        Ok(is_there)
    }

    /// Reads one entry; `None` when nothing is written there.
    pub(crate) fn entry(&self, queue: &Queue, queue_offset: QueueOffset) -> Result<Option<Entry>, EnvError> {
        if let Some(entry) = queue.tail().entry(queue_offset) {
            return Ok(entry);
        }
        let mut bytes = [0; ENTRY_BYTES as usize];
        let start = self.file_start(queue_offset);
        self.open(queue, start)?.read_exact_at(position(queue_offset) - start, &mut bytes)?;
        Ok(entry::decode(&bytes))
    }

    /// Reads one entry, with those before it; `None` when nothing is written there.
    pub(crate) fn entry_in(
        &self,
        window: &mut Window,
        queue: &Queue,
        queue_offset: QueueOffset,
    ) -> Result<Option<Entry>, EnvError> {
        let floor = entry_at(self.file_start(queue_offset));
        window.entry(queue_offset, floor, |first, count, bytes| {
            self.read(queue, first, count, bytes).map(|read| read == count)
        })
    }

    /// Makes durable what was written to a queue since the last call, and the names of new files.
    ///
    /// # Errors
    /// After [`FlushFailure::NotTried`] the same may be tried again; a failed flush poisons.
    pub(crate) fn flush(&self, queue: &Queue) -> Result<(), FlushFailure> {
        let dirty = queue.take_dirty();
        let result = self.flush_files(queue, &dirty);
        match result {
            Err(FlushFailure::NotTried(_)) if queue.is_deleted() => Ok(()), // its files are gone
            Err(FlushFailure::NotTried(_)) => {
                queue.give_back_dirty(dirty);
                result
            }
            other => other,
        }
    }

    fn flush_files(&self, queue: &Queue, dirty: &Dirty) -> Result<(), FlushFailure> {
        for &start in &dirty.files {
            let file = self.open(queue, start).map_err(FlushFailure::NotTried)?;
            file.sync().map_err(FlushFailure::Failed)?;
        }
        if dirty.new_file {
            for dir in [self.queue_dir(queue), self.topic_dir(&queue.topic), self.dir.clone()] {
                self.disk.sync_dir(&dir).map_err(FlushFailure::of)?;
            }
        }
        Ok(())
    }

    /// Closes and removes the files of a queue, and drops what was put off.
    pub(crate) fn remove(&self, queue: &Queue) -> Result<(), EnvError> {
        self.drop_tail(queue);
        self.pool.forget(queue.uid);
        match self.disk.remove_dir_all(&self.queue_dir(queue)) {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }

    /// Removes the folder of a deleted queue, durably. What was put off for it is dropped when its turn comes.
    pub(crate) fn remove_folder(&self, queue: &Queue) -> Result<(), EnvError> {
        assert!(queue.is_deleted(), "nobody writes to a queue whose folder goes");
        let _no_write = self.line.hold(); // else a write that has begun would make the folder again
        self.pool.forget(queue.uid);
        match self.disk.remove_dir_all(&self.queue_dir(queue)) {
            Err(error) if error.is_not_found() => Ok(()),
            other => other.and_then(|()| self.disk.sync_dir(&self.topic_dir(&queue.topic))),
        }
    }

    /// Removes the file that holds an entry. The folder is not flushed.
    pub(crate) fn remove_file(&self, queue: &Queue, queue_offset: QueueOffset) -> Result<(), EnvError> {
        let start = self.file_start(queue_offset);
        self.pool.forget_file((queue.uid, start));
        match self.disk.remove_file(&self.path(queue, start)) {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }

    /// Removes the entries from `first` on, all of which are in files. The file that held `first` stays for the next
    /// entries.
    pub(crate) fn cut(&self, queue: &Queue, first: QueueOffset) -> Result<(), EnvError> {
        assert!(first <= queue.max(), "what is cut off was readable");
        self.pool.forget(queue.uid);
        let kept = self.file_start(first);
        let mut start = self.file_start(queue.max());
        while start > kept {
            match self.disk.remove_file(&self.path(queue, start)) {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => start -= self.file_size,
            }
        }
        queue.forget_dirty_files(kept + 1);
        match self.open(queue, kept) {
            Err(error) if error.is_not_found() => Ok(()),
            file => file?.zero_range(position(first) - kept..self.file_size, false),
        }
    }

    /// Closes the files of a queue.
    pub(crate) fn forget(&self, queue: &Queue) {
        self.pool.forget(queue.uid);
    }

    /// Removes the folder of a topic, durably. Returns whether there was one.
    pub(crate) fn remove_topic_dir(&self, topic: &str) -> Result<bool, EnvError> {
        let _no_write = self.line.hold(); // else a queue of it would make its folder again
        match self.disk.remove_dir_all(&self.topic_dir(topic)) {
            Err(error) if error.is_not_found() => Ok(false),
            other => {
                failpoint::reach(Point::Delete);
                other.and_then(|()| self.disk.sync_dir(&self.dir)).map(|()| true)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rocketpy_env::RealDisk;

    use super::*;
    use crate::queue::table::QueueTable;

    #[cfg(feature = "sim")]
    #[test]
    fn a_folder_whose_flush_fails_is_told_also_by_a_queue_that_was_deleted() {
        use rocketpy_env::sim::{SimDisk, SimOptions};

        let disk = SimDisk::new(SimOptions::default());
        disk.create_dir_all("/queues".as_ref()).unwrap();
        let files = QueueFiles::new(Arc::new(disk.clone()), "/queues".into(), 100, 10, 0);
        let queue = QueueTable::default().get_or_create("t", 0).unwrap();
        let write = || {
            files.write(&queue, QueueOffset::ZERO, &[7; 20], |start, is_new| {
                queue.mark_dirty(start, is_new);
            })
        };
        write().unwrap();
        queue.mark_deleted();
        // A later topic of the name has the same folders, and others are next to them.
        disk.set_options(SimOptions { flush_fails_per_mille: 1000, ..SimOptions::default() });
        assert!(matches!(files.flush(&queue), Err(FlushFailure::Failed(_))));
        disk.set_options(SimOptions::default());
        write().unwrap();
        disk.remove_dir_all("/queues/t".as_ref()).unwrap();
        files.forget(&queue);
        assert!(files.flush(&queue).is_ok(), "what is gone needs no flush");
    }

    #[test]
    fn a_file_is_noted_for_flushing_once_its_bytes_are_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let files = QueueFiles::new(Arc::new(RealDisk), dir.path().to_owned(), 100, 10, 0);
        let queue = QueueTable::default().get_or_create("t", 0).unwrap();
        let mut noted = Vec::new();
        files
            .write(&queue, QueueOffset(4), &[7; 40], |start, is_new| {
                let bytes = RealDisk.read(&files.path(&queue, start), 1000).unwrap();
                noted.push((start, is_new, bytes.iter().filter(|&&byte| byte == 7).count()));
            })
            .unwrap();
        assert_eq!(
            noted,
            [(0, true, 20), (100, true, 20)],
            "a flush before the note would have had nothing to flush"
        );
    }
}
