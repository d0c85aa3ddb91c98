//! Looks at the files themselves, with no code of the store: do queues and index equal a rebuild from the log?

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rocketpy_env::sim::SimDisk;
use rocketpy_protocol::properties_text;
use rocketpy_protocol::record::{CheckMode, RecordCheck, RecordView, check_record};

use super::plan::{Plan, ROOT};
use super::removal::Removals;
use super::verify_index::{self, check_index};
use crate::checker::{Rule, Violation};
use crate::history::{LogRange, QueueName};

/// Bytes of the blank record at the end of a log file.
const BLANK_HEAD: usize = 8;
const ENTRY_BYTES: usize = 20;
/// Fills the place of an entry before the first one of a queue.
const PRE_BLANK: Entry = (0, i32::MAX as u32, 0);

/// Physical offset, size, tag code.
type Entry = (u64, u32, i64);

/// What lies in the log.
#[derive(Default)]
pub(super) struct Log {
    pub start: u64,
    pub end: u64,
    pub records: Vec<Record>,
}

/// What queues and index say of a record.
pub(super) struct Record {
    entry: Entry,
    pub at: u64,
    pub stored_at_ms: i64,
    /// Those of its key and of its tag.
    pub key_hashes: [Option<u32>; 2],
    queue: QueueName,
    queue_offset: u64,
}

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

pub(super) fn wrong(rule: Rule, text: impl Into<String>) -> Violation {
    Violation { rule, text: text.into() }
}

/// Checks the files of a store in which everything is dispatched, whose log ends at `end`.
///
/// Files made ahead may follow, all zeros. What leads before the start of the log may be there or not; and so may what
/// leads before the place up to which retention may have removed it: a file of the log whose removal was not durable comes
/// back without the files of queues and index that went after it.
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
            format!("the store says that its log ends at {end}, its files at {}", log.end),
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

/// Compares a queue with the records that the log has of it: all of them, or those that came after its topic was deleted.
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

/// What differs.
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

/// The number that a file has as its name.
pub(super) fn number(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.parse().ok()
}

fn read_log(disk: &SimDisk, plan: &Plan, files: &[(PathBuf, u64)]) -> Result<Log, Violation> {
    let dir = Path::new(ROOT).join("commitlog");
    let mut log = Log::default();
    let mut ended = false;
    for (index, (path, _)) in files.iter().filter(|(path, _)| path.parent() == Some(&dir)).enumerate() {
        let bytes = disk.peek(path).unwrap_or_default();
        let start = number(path).unwrap_or(u64::MAX);
        if index == 0 {
            (log.start, log.end) = (start, start);
        }
        if bytes.len() as u64 != plan.log_file || (!ended && start != log.end) {
            let text = format!(
                "{} has {} bytes, the log before it ends at {}",
                path.display(),
                bytes.len(),
                log.end
            );
            return Err(wrong(Rule::R6, text));
        }
        let used = if ended { 0 } else { read_file(&bytes, start, plan, &mut log)? };
        if used < bytes.len() {
            ended = true;
            if let Some(at) = bytes[used..].iter().position(|&byte| byte != 0) {
                let text = format!(
                    "{} holds something at {} behind the end of the log at {}",
                    path.display(),
                    used + at,
                    log.end
                );
                return Err(wrong(Rule::R6, text));
            }
        }
    }
    Ok(log)
}

/// Reads the records of a file. Returns the bytes that are used, all of them when the log goes on in the next one.
fn read_file(bytes: &[u8], start: u64, plan: &Plan, log: &mut Log) -> Result<usize, Violation> {
    let mut at = 0;
    while at < bytes.len() {
        match check_record(&bytes[at..], mode(plan)) {
            Ok(RecordCheck::Record(view)) if view.physical_offset.get() == start + at as u64 => {
                log.records.push(record_of(&view));
                at += view.size();
                log.end = start + at as u64;
            }
            Ok(RecordCheck::Record(view)) => {
                let text = format!(
                    "the record at {} says that it lies at {}",
                    start + at as u64,
                    view.physical_offset
                );
                return Err(wrong(Rule::R6, text));
            }
            Ok(RecordCheck::Blank { remaining }) if remaining as usize == bytes.len() - at => {
                log.end = start + bytes.len() as u64;
                return Ok(bytes.len());
            }
            Ok(RecordCheck::Blank { remaining }) => {
                let text = format!(
                    "the blank record at {} covers {remaining} of {} bytes",
                    start + at as u64,
                    bytes.len() - at
                );
                return Err(wrong(Rule::R6, text));
            }
            Err(_) => return Ok(at),
        }
        if bytes.len() - at < BLANK_HEAD {
            let text = format!("the file of {start} has no room for a blank record behind {}", log.end);
            return Err(wrong(Rule::R6, text));
        }
    }
    Ok(at)
}

fn folder_of(queue: &QueueName) -> PathBuf {
    Path::new(ROOT).join("consumequeue").join(&queue.topic).join(queue.queue_id.to_string())
}

fn record_of(view: &RecordView<'_>) -> Record {
    let tags_code = properties_text::get(view.properties, "TAGS").map_or(0, rocketpy_filter::tag_code);
    Record {
        entry: (view.physical_offset.get(), view.size() as u32, tags_code),
        at: view.physical_offset.get(),
        stored_at_ms: view.stored_at_ms,
        key_hashes: verify_index::hashes_of(view),
        queue: QueueName { topic: view.topic.to_owned(), queue_id: view.queue_id },
        queue_offset: view.queue_offset.get(),
    }
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

/// Calls `act` with the sound records of the log in order, from its start.
fn for_each_record(disk: &SimDisk, plan: &Plan, mut act: impl FnMut(u64, &RecordView<'_>)) {
    let dir = Path::new(ROOT).join("commitlog");
    for (path, _) in disk.files().iter().filter(|(path, _)| path.parent() == Some(&dir)) {
        let bytes = disk.peek(path).unwrap_or_default();
        let start = number(path).unwrap_or_default();
        let mut at = 0;
        while let Ok(RecordCheck::Record(view)) = check_record(&bytes[at..], mode(plan)) {
            act(start + at as u64, &view);
            at += view.size();
        }
    }
}

/// The sound records of the log in order, from its start.
pub(super) fn records(disk: &SimDisk, plan: &Plan) -> Vec<LogRange> {
    let mut found = Vec::new();
    for_each_record(disk, plan, |start, view| {
        found.push(LogRange { start, end: start + view.size() as u64 })
    });
    found
}

/// The queues of which the log has a record before `end`.
pub(super) fn living_queues(disk: &SimDisk, plan: &Plan, end: u64) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for_each_record(disk, plan, |start, view| {
        if start < end {
            found.push(folder_of(&record_of(view).queue));
        }
    });
    found
}

/// When the first record of each file of the log was stored, by the start of the file.
pub(super) fn first_stored(disk: &SimDisk, plan: &Plan) -> BTreeMap<u64, i64> {
    let mut found = BTreeMap::new();
    for_each_record(disk, plan, |start, view| {
        if start % plan.log_file == 0 {
            found.insert(start, view.stored_at_ms);
        }
    });
    found
}

/// Where the first record lies that was stored at a time or later; the end of the last one when there is none.
pub(super) fn first_stored_from(disk: &SimDisk, plan: &Plan, time_ms: i64) -> u64 {
    let (mut found, mut end) = (None, 0);
    for_each_record(disk, plan, |start, view| {
        end = start + view.size() as u64;
        if view.stored_at_ms >= time_ms {
            found.get_or_insert(start);
        }
    });
    found.unwrap_or(end)
}

fn mode(plan: &Plan) -> CheckMode {
    if plan.record_check { CheckMode::RecordRequired } else { CheckMode::Body }
}
