//! Looks at the files themselves, with no code of the store: do queues and index equal a rebuild from the log?

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rocketpy_env::sim::SimDisk;

use super::log_files::{Entry, Log, Record, folder_of, number, read_log, wrong};
use super::plan::{Plan, ROOT};
use super::removals::Removals;
use super::verify_index::check_index;
use crate::checker::{Rule, Violation};
use crate::history::QueueName;

const ENTRY_BYTES: usize = 20;
/// Takes the place of entries before the first one of a queue.
const PRE_BLANK: Entry = (0, i32::MAX as u32, 0);

/// Entries of a queue that follow each other.
#[derive(Default)]
struct Entries {
    /// Queue offset of the first one.
    first: u64,
    list: Vec<Entry>,
}

impl Entries {
    fn end(&self) -> u64 {
        self.first + self.list.len() as u64
    }

    fn get(&self, number: u64) -> Option<Entry> {
        self.list.get(number.checked_sub(self.first)? as usize).copied()
    }
}

/// Checks the files of a store in which everything is dispatched, whose log ends at `end`.
///
/// Files made ahead may follow, all zeros. Entries that point before the start of the log may be there or not. The same goes for
/// entries before the place up to which retention may have removed the log: a log file whose removal was not durable comes back
/// without the files of queues and index that were removed after it.
pub(super) fn check_files(
    disk: &SimDisk,
    plan: &Plan,
    removals: &Removals,
    end: u64,
) -> Result<(), Violation> {
    let files = disk.files();
    let log = read_log(disk, plan, &files)?;
    if log.end != end {
        return Err(wrong(
            Rule::R6,
            format!("the store says that its log ends at {end}, its files end at {}", log.end),
        ));
    }
    let mut stored = read_queues(disk, plan, &files)?;
    let mut queues: BTreeMap<&QueueName, Vec<&Record>> = BTreeMap::new();
    for record in &log.records {
        queues.entry(&record.queue).or_default().push(record);
    }
    for (queue, records) in &queues {
        let path = folder_of(queue);
        let found = stored.remove(&path).unwrap_or_default();
        check_queue(&path, &found, records, &log, removals)?;
    }
    for (queue, found) in &stored {
        check_queue(queue, found, &[], &log, removals)?;
    }
    check_index(disk, plan, &log, removals.may_start)
}

/// Compares a queue with its records in the log: all of them, or those that came after its topic was deleted.
fn check_queue(
    queue: &Path,
    found: &Entries,
    records: &[&Record],
    log: &Log,
    removals: &Removals,
) -> Result<(), Violation> {
    let topic = records.first().map_or("", |record| &record.queue.topic);
    let deleted_at = removals.deleted_at.get(topic).map_or(&[][..], |places| places);
    let mut differs = None;
    for &from in [0].iter().chain(deleted_at) {
        let living = records.iter().filter(|record| record.at >= from);
        let expected = replay(living, !deleted_at.is_empty())?;
        match compare(found, &expected, log.start, removals.may_start) {
            None => return Ok(()),
            other => differs = differs.or(other),
        }
    }
    let differs = differs.unwrap_or_default();
    Err(wrong(Rule::R6, format!("{} differs from the log: {differs}", queue.display())))
}

/// The entries that records make, in the order of the log. Numbers may start again where the topic was deleted.
fn replay<'a>(
    records: impl Iterator<Item = &'a &'a Record>,
    may_start_again: bool,
) -> Result<Entries, Violation> {
    let mut entries = Entries::default();
    for record in records {
        let number = record.queue_offset;
        if entries.list.is_empty() || (number == 0 && may_start_again) {
            entries = Entries { first: number, list: Vec::new() };
        }
        if number != entries.end() {
            let Record { at, queue, .. } = record;
            let expected = entries.end();
            let text = format!("the record at {at} is number {number} of {queue}, expected {expected}");
            return Err(wrong(Rule::C4, text));
        }
        entries.list.push(record.entry);
    }
    Ok(entries)
}

/// Describes the first difference.
fn compare(found: &Entries, expected: &Entries, log_start: u64, may_start: u64) -> Option<String> {
    if !expected.list.is_empty() && found.end() != expected.end() {
        let (first, end) = (expected.first, expected.end());
        return Some(format!("it ends at {}, in the log it goes from {first} to {end}", found.end()));
    }
    let first = if expected.list.is_empty() { found.end() } else { expected.first };
    let is_gone = |entry: Entry| entry == PRE_BLANK || entry.0 < log_start;
    if let Some(number) = (found.first..first).find(|&number| !found.get(number).is_none_or(is_gone)) {
        return Some(format!("entry {number} is {:?}, the log has no such record", found.get(number)));
    }
    for (number, &entry) in (first..).zip(&expected.list) {
        let is_cut_off = number < found.first && entry.0 < may_start;
        if !is_cut_off && found.get(number) != Some(entry) {
            return Some(format!("entry {number} is {:?}, in the log {entry:?}", found.get(number)));
        }
    }
    None
}

fn read_queues(
    disk: &SimDisk,
    plan: &Plan,
    files: &[(PathBuf, u64)],
) -> Result<BTreeMap<PathBuf, Entries>, Violation> {
    let root = Path::new(ROOT).join("consumequeue");
    let mut queues: BTreeMap<PathBuf, Entries> = BTreeMap::new();
    for (path, len) in files.iter().filter(|(path, _)| path.starts_with(&root)) {
        let start = number(path).unwrap_or(u64::MAX);
        let queue = path.parent().unwrap_or(&root).to_path_buf();
        let first = start / ENTRY_BYTES as u64;
        let queue = queues.entry(queue).or_insert_with(|| Entries { first, list: Vec::new() });
        if *len != plan.queue_file || start != queue.end() * ENTRY_BYTES as u64 {
            let (path, expected) = (path.display(), queue.end() * ENTRY_BYTES as u64);
            return Err(wrong(Rule::R6, format!("{path} has {len} bytes, expected at {expected}")));
        }
        let bytes = disk.peek(path).unwrap_or_default();
        queue.list.extend(bytes.as_chunks::<ENTRY_BYTES>().0.iter().map(entry));
    }
    for entries in queues.values_mut() {
        while entries.list.last() == Some(&(0, 0, 0)) {
            entries.list.pop();
        }
    }
    Ok(queues)
}

fn entry(bytes: &[u8; ENTRY_BYTES]) -> Entry {
    let physical_offset = bytes.first_chunk().map_or(0, |field| u64::from_be_bytes(*field));
    let size = bytes[8..].first_chunk().map_or(0, |field| u32::from_be_bytes(*field));
    let tags_code = bytes.last_chunk().map_or(0, |field| i64::from_be_bytes(*field));
    (physical_offset, size, tags_code)
}
