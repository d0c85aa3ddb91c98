//! Reads the log from its files, with no code of the store.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rocketpy_env::sim::SimDisk;
use rocketpy_filter::hash_code_on;
use rocketpy_protocol::properties_text;
use rocketpy_protocol::record::{CheckMode, RecordCheck, RecordView, check_record};

use super::plan::{Plan, ROOT};
use crate::checker::{Rule, Violation};
use crate::history::{LogRange, QueueName};

/// Bytes of the blank record at the end of a log file.
const BLANK_HEAD: usize = 8;

/// Physical offset, size, tag code.
pub(super) type Entry = (u64, u32, i64);

/// The log as its files show it.
#[derive(Default)]
pub(super) struct Log {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) records: Vec<Record>,
}

/// A record of the log, with what queues and index must say of it.
pub(super) struct Record {
    pub(super) entry: Entry,
    pub(super) at: u64,
    pub(super) stored_at_ms: i64,
    /// Hashes of its key and of its tag.
    pub(super) key_hashes: [Option<u32>; 2],
    pub(super) queue: QueueName,
    pub(super) queue_offset: u64,
}

pub(super) fn wrong(rule: Rule, text: impl Into<String>) -> Violation {
    Violation { rule, text: text.into() }
}

/// The number that is a file's name.
pub(super) fn number(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.parse().ok()
}

pub(super) fn read_log(disk: &SimDisk, plan: &Plan, files: &[(PathBuf, u64)]) -> Result<Log, Violation> {
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
                    "{} holds data at {} behind the end of the log at {}",
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

/// Reads the records of a file. Returns how many bytes are used: all of them when the log continues in the next file.
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

/// Whether a record with a sound body lies at a place of the log.
pub(super) fn has_body_at(disk: &SimDisk, plan: &Plan, at: u64) -> bool {
    let path = Path::new(ROOT).join("commitlog").join(format!("{:020}", at - at % plan.log_file));
    let bytes = disk.peek(&path).unwrap_or_default();
    let rest = bytes.get((at % plan.log_file) as usize..).unwrap_or_default();
    match check_record(rest, CheckMode::Body) {
        Ok(RecordCheck::Record(view)) => view.physical_offset.get() == at,
        _ => false,
    }
}

pub(super) fn folder_of(queue: &QueueName) -> PathBuf {
    Path::new(ROOT).join("consumequeue").join(&queue.topic).join(queue.queue_id.to_string())
}

fn record_of(view: &RecordView<'_>) -> Record {
    let tags_code = properties_text::get(view.properties, "TAGS").map_or(0, rocketpy_filter::tag_code);
    Record {
        entry: (view.physical_offset.get(), view.size() as u32, tags_code),
        at: view.physical_offset.get(),
        stored_at_ms: view.stored_at_ms,
        key_hashes: hashes_of(view),
        queue: QueueName { topic: view.topic.to_owned(), queue_id: view.queue_id },
        queue_offset: view.queue_offset.get(),
    }
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

/// Where the first record of a queue lies, from a place of the log on, that was stored at a time or later; the end of the log when there
/// is none.
pub(super) fn first_stored_from(
    disk: &SimDisk,
    plan: &Plan,
    queue: &QueueName,
    from: u64,
    time_ms: i64,
) -> u64 {
    let (mut found, mut end) = (None, 0);
    for_each_record(disk, plan, |start, view| {
        end = start + view.size() as u64;
        let is_in_queue = view.topic == queue.topic && view.queue_id == queue.queue_id;
        if start >= from && is_in_queue && view.stored_at_ms >= time_ms {
            found.get_or_insert(start);
        }
    });
    found.unwrap_or(end)
}

fn mode(plan: &Plan) -> CheckMode {
    if plan.record_check { CheckMode::RecordRequired } else { CheckMode::Body }
}

/// The hashes under which a record is found: those of its key and of its tag.
fn hashes_of(view: &RecordView<'_>) -> [Option<u32>; 2] {
    let of_topic = hash_code_on(hash_code_on(0, view.topic), "#");
    let hash = |name, before: &str| {
        let value = properties_text::get(view.properties, name)?;
        Some(hash_code_on(hash_code_on(of_topic, before), value).checked_abs().unwrap_or(0) as u32)
    };
    [hash("KEYS", ""), hash("TAGS", "T#")]
}
