//! Compares consume queues with the log.

use std::collections::{BTreeMap, HashMap};

use rocketpy_env::Disk;
use rocketpy_model::{PhysicalOffset, QueueOffset, system};
use rocketpy_protocol::disk::ConsumeQueueEntry;
use rocketpy_protocol::record::RecordView;
use rocketpy_store::files::{
    DelayTables, Keys, LogFiles, NumberedFile, QueueFiles, counts_in_queue, position, tags_code,
};
use rocketpy_store::reader::{QueueEntry, ReadError, StoreReader};
use rocketpy_store::{DelayLevels, StoreError};

use crate::report::{Problem, ProblemKind, VerifyReport};

/// Maximum number of entries that all queues read ahead together, and the minimum for one queue.
const ENTRIES_AHEAD: u64 = 1 << 18;
const FEWEST_ENTRIES: u64 = 64;
const ENTRY_BYTES: u64 = ConsumeQueueEntry::BYTES as u64;

/// One queue, read in step with the log.
pub(crate) struct Cursor<D: Disk> {
    pub queue: QueueFiles<D>,
    /// Next entry to load.
    next: QueueOffset,
    entries: Vec<QueueEntry>,
    taken: usize,
    at_once: u64,
    /// An entry led to its record.
    has_matched: bool,
}

impl<D: Disk> Cursor<D> {
    /// The next entry that is no filler.
    fn peek(
        &mut self,
        bytes: &mut Vec<u8>,
        report: &mut VerifyReport,
    ) -> Result<Option<QueueEntry>, ReadError> {
        loop {
            if let Some(&entry) = self.entries.get(self.taken) {
                if !entry.is_filler() {
                    return Ok(Some(entry));
                }
                report.filler_entries += 1;
                self.taken += 1;
                continue;
            }
            let max = self.queue.bounds.max;
            if self.next >= max {
                return Ok(None);
            }
            self.entries.clear();
            self.taken = 0;
            let count = self.at_once.min(max - self.next);
            let loaded = self.queue.entries(self.next, count, bytes, &mut self.entries)?;
            self.next = match loaded {
                0 => self.queue.next_file(self.next)?.unwrap_or(max),
                loaded => self.next + loaded,
            };
            self.queue.files.close(); // a store may have more queues than a process may have files
        }
    }

    fn problem(
        &mut self,
        kind: ProblemKind,
        number: QueueOffset,
        found: String,
        expected: String,
    ) -> Result<Problem, ReadError> {
        let position = position(number);
        let start = self.queue.files.find(position)?.map_or(0, |file| file.start);
        let path = self.queue.files.path_at(position)?;
        let problem = Problem::new(kind, path, position - start, found, expected);
        Ok(problem.of_queue(&self.queue.topic, self.queue.queue_id, number))
    }
}

/// All queues of a store.
pub(crate) struct Queues<D: Disk> {
    cursors: Vec<Cursor<D>>,
    by_name: HashMap<String, BTreeMap<u32, usize>>,
    bytes: Vec<u8>,
    delays: DelayTables,
    /// Records before this must have their entries.
    pub entered_to: PhysicalOffset,
}

impl<D: Disk> Queues<D> {
    /// Opens the queues of a store as they are now.
    pub(crate) fn open(reader: &StoreReader<D>, log: &mut LogFiles<D>) -> Result<Self, ReadError> {
        let mut queues = Self {
            cursors: Vec::new(),
            by_name: HashMap::new(),
            bytes: Vec::new(),
            delays: DelayTables::read(&**reader.disk(), reader.root(), &DelayLevels::default()).map_err(
                |error| match error {
                    StoreError::Env(error) => ReadError::Env(error),
                    error => ReadError::BadFile {
                        path: reader.root().join("config/delayLevels.json"),
                        reason: error.to_string(),
                    },
                },
            )?,
            entered_to: PhysicalOffset::MAX,
        };
        for topic in reader.topic_names()? {
            let mut ids = BTreeMap::new();
            for queue_id in reader.queue_ids(&topic)? {
                let mut queue = reader.open_queue(&topic, queue_id, log)?;
                queue.files.close();
                ids.insert(queue_id, queues.cursors.len());
                queues.cursors.push(Cursor {
                    next: queue.bounds.min,
                    queue,
                    entries: Vec::new(),
                    taken: 0,
                    at_once: FEWEST_ENTRIES,
                    has_matched: false,
                });
            }
            queues.by_name.insert(topic, ids);
        }
        let at_once = (ENTRIES_AHEAD / (queues.cursors.len() as u64).max(1)).max(FEWEST_ENTRIES);
        queues.cursors.iter_mut().for_each(|cursor| cursor.at_once = at_once);
        Ok(queues)
    }

    pub(crate) fn count(&self) -> u64 {
        self.cursors.len() as u64
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut QueueFiles<D>> {
        self.cursors.iter_mut().map(|cursor| &mut cursor.queue)
    }

    /// Notes files that prevent a start of a server.
    pub(crate) fn note_bad_files(&self, report: &mut VerifyReport) {
        let queues = || self.cursors.iter().map(|cursor| &cursor.queue);
        let usual =
            usual_file_size(queues().flat_map(|queue| queue.files.files()).map(|file| file.size_bytes));
        for queue in queues() {
            for file in queue.files.files() {
                let Some((found, expected)) = bad_file(file, usual) else { continue };
                let path = queue.files.path_of(file.start);
                let problem = Problem::new(ProblemKind::BadFile, path, file.size_bytes, found, expected);
                let first = QueueOffset(file.start / ENTRY_BYTES);
                report.note(problem.of_queue(&queue.topic, queue.queue_id, first));
            }
        }
    }

    /// Compares the entry of a record; records come in the order of the log.
    pub(crate) fn check(
        &mut self,
        view: &RecordView<'_>,
        report: &mut VerifyReport,
    ) -> Result<(), ReadError> {
        if !counts_in_queue(view.sys_flag) {
            report.records_without_entry += 1;
            return Ok(());
        }
        let index = self.by_name.get(view.topic).and_then(|ids| ids.get(&view.queue_id));
        let Some(&index) = index else {
            report.records_without_queue += 1;
            return Ok(());
        };
        let at = view.physical_offset;
        let cursor = &mut self.cursors[index];
        while let Some(entry) = cursor.peek(&mut self.bytes, report)? {
            if entry.physical_offset > at {
                break;
            }
            cursor.taken += 1;
            if entry.physical_offset == at {
                cursor.has_matched = true;
                return compare(cursor, &entry, view, &self.delays, report);
            }
            report.note(without_record(cursor, &entry)?);
        }
        if at >= self.entered_to {
            report.records_to_dispatch += 1;
        } else if !cursor.has_matched
            && cursor.queue.first() == QueueOffset::ZERO
            && cursor.queue.bounds.min == QueueOffset::ZERO
        {
            report.records_without_queue += 1; // of a former topic of the name
        } else {
            let number = view.queue_offset;
            let expected = format!("an entry that leads to {at}");
            let missing =
                cursor.problem(ProblemKind::RecordWithoutEntry, number, "none".to_owned(), expected)?;
            report.note(missing.in_log(at));
        }
        Ok(())
    }

    /// Notes the entries that lead behind the last record. While a server runs, their records may still be on their
    /// way.
    pub(crate) fn finish(
        &mut self,
        log_end: PhysicalOffset,
        is_complete: bool,
        report: &mut VerifyReport,
    ) -> Result<(), ReadError> {
        for cursor in &mut self.cursors {
            while let Some(entry) = cursor.peek(&mut self.bytes, report)? {
                if entry.physical_offset >= log_end && !is_complete {
                    break;
                }
                cursor.taken += 1;
                report.note(without_record(cursor, &entry)?);
            }
        }
        Ok(())
    }
}

/// The size that most queue files have, the larger of two with the same number of files: a truncated file is smaller. `None` if
/// no file consists of whole entries.
pub(crate) fn usual_file_size(sizes: impl IntoIterator<Item = u64>) -> Option<u64> {
    let mut counts = BTreeMap::<u64, u64>::new();
    for size in sizes.into_iter().filter(|&size| size > 0 && size.is_multiple_of(ENTRY_BYTES)) {
        *counts.entry(size).or_default() += 1;
    }
    counts.into_iter().max_by_key(|&(size, files)| (files, size)).map(|(size, _)| size)
}

/// Invalid size or start of a queue file, with the expected one.
fn bad_file(file: &NumberedFile, usual: Option<u64>) -> Option<(String, String)> {
    let found = format!("{} bytes", file.size_bytes);
    match usual {
        _ if file.size_bytes == 0 => None, // its creation was interrupted: the next start removes it
        None => Some((found, format!("a multiple of {ENTRY_BYTES} bytes"))),
        Some(usual) if file.size_bytes != usual => {
            Some((found, format!("{usual} bytes, as most queue files")))
        }
        Some(usual) if !file.start.is_multiple_of(usual) => {
            Some((format!("a file that starts at {}", file.start), format!("a multiple of {usual}")))
        }
        Some(_) => None,
    }
}

fn without_record<D: Disk>(cursor: &mut Cursor<D>, entry: &QueueEntry) -> Result<Problem, ReadError> {
    let at = entry.physical_offset;
    let found = format!("it leads to {at}, where no sound record of the queue begins");
    let expected = "the place of a record".to_owned();
    let number = entry.queue_offset;
    Ok(cursor.problem(ProblemKind::EntryWithoutRecord, number, found, expected)?.in_log(at))
}

fn compare<D: Disk>(
    cursor: &mut Cursor<D>,
    entry: &QueueEntry,
    view: &RecordView<'_>,
    delays: &DelayTables,
    report: &mut VerifyReport,
) -> Result<(), ReadError> {
    let mut tags_code = tags_code(view, &Keys::of(view.properties), delays);
    if view.topic == system::SCHEDULE_TOPIC && !delays.is_stored() && entry.tags_code > view.stored_at_ms {
        tags_code = entry.tags_code; // another broker stored it, with levels of its own
    }
    let found = (entry.queue_offset, entry.size_bytes, entry.tags_code);
    let expected = (view.queue_offset, view.size() as u32, tags_code);
    if found == expected {
        report.entries += 1;
        return Ok(());
    }
    let text = |(number, size, code): (QueueOffset, u32, i64)| {
        format!("queue offset {number}, size {size}, tag code {code}")
    };
    let number = entry.queue_offset;
    let differs = cursor.problem(ProblemKind::EntryDiffers, number, text(found), text(expected))?;
    report.note(differs.in_log(view.physical_offset));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_file_size_is_the_most_frequent_one_and_the_larger_of_two() {
        assert_eq!(usual_file_size([]), None);
        assert_eq!(usual_file_size([0, 1_888_803]), None, "unfinished and truncated");
        assert_eq!(usual_file_size([2_000_000, 6_000_000]), Some(6_000_000));
        assert_eq!(usual_file_size([2000, 6_000_000, 2000, 1_888_803, 1_888_803, 1_888_803]), Some(2000));
    }

    #[test]
    fn queue_files_start_at_multiples_of_their_size() {
        let file = |start, size_bytes| NumberedFile { start, size_bytes, modified_at_ms: 0 };
        assert_eq!(bad_file(&file(4000, 2000), Some(2000)), None);
        assert_eq!(bad_file(&file(4000, 0), Some(2000)), None);
        assert!(bad_file(&file(20, 2000), Some(2000)).is_some());
        assert!(bad_file(&file(0, 1_888_803), None).is_some());
    }
}
