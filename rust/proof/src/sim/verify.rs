//! Looks at the files themselves, with no code of the store: do the consume queues equal a rebuild from the log?

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rocketpy_env::sim::SimDisk;
use rocketpy_protocol::properties_text;
use rocketpy_protocol::record::{CheckMode, RecordCheck, RecordView, check_record};

use super::plan::{Plan, ROOT};
use crate::checker::{Rule, Violation};
use crate::history::LogRange;

/// Bytes of the blank record at the end of a log file.
const BLANK_HEAD: usize = 8;
const ENTRY: usize = 20;

/// Entries of each queue: physical offset, size, tag code.
type Queues = BTreeMap<PathBuf, Vec<(u64, u32, i64)>>;

/// What lies in the log.
#[derive(Default)]
struct Log {
    end: u64,
    queues: Queues,
}

fn wrong(rule: Rule, text: impl Into<String>) -> Violation {
    Violation { rule, text: text.into() }
}

/// Checks the files of a store in which everything is dispatched, whose log ends at `end`.
///
/// Files made ahead may follow, all zeros. INDEX: when the store has index files, they are compared with the log here.
pub fn check_files(disk: &SimDisk, plan: &Plan, end: u64) -> Result<(), Violation> {
    let files = disk.files();
    let log = read_log(disk, plan, &files)?;
    if log.end != end {
        return Err(wrong(
            Rule::R6,
            format!("the store says that its log ends at {end}, its files at {}", log.end),
        ));
    }
    let stored = read_queues(disk, plan, &files)?;
    for (queue, entries) in &log.queues {
        let found = stored.get(queue).map_or(&[][..], |found| found);
        if found != entries {
            let at = found.iter().zip(entries).take_while(|(a, b)| a == b).count();
            let text = format!(
                "{} has {} entries, the log {}; entry {at} is {:?}, in the log {:?}",
                queue.display(),
                found.len(),
                entries.len(),
                found.get(at),
                entries.get(at)
            );
            return Err(wrong(Rule::R6, text));
        }
    }
    match stored.iter().find(|(queue, entries)| !entries.is_empty() && !log.queues.contains_key(*queue)) {
        Some((queue, _)) => {
            Err(wrong(Rule::R6, format!("{} has entries, the log has no record of it", queue.display())))
        }
        None => Ok(()),
    }
}

fn number(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.parse().ok()
}

fn read_log(disk: &SimDisk, plan: &Plan, files: &[(PathBuf, u64)]) -> Result<Log, Violation> {
    let dir = Path::new(ROOT).join("commitlog");
    let mut log = Log::default();
    let mut ended = false;
    for (path, _) in files.iter().filter(|(path, _)| path.parent() == Some(&dir)) {
        let bytes = disk.peek(path).unwrap_or_default();
        let start = number(path).unwrap_or(u64::MAX);
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
                add(&mut log.queues, &view)?;
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

fn add(queues: &mut Queues, view: &RecordView<'_>) -> Result<(), Violation> {
    let path = Path::new(ROOT).join("consumequeue").join(view.topic).join(view.queue_id.to_string());
    let tags_code = properties_text::get(view.properties, "TAGS").map_or(0, rocketpy_filter::tag_code);
    let queue = queues.entry(path).or_default();
    if view.queue_offset.get() != queue.len() as u64 {
        let (topic, id) = (view.topic, view.queue_id);
        let text = format!(
            "the record at {} is number {} of {topic}-{id}, expected {}",
            view.physical_offset,
            view.queue_offset,
            queue.len()
        );
        return Err(wrong(Rule::C4, text));
    }
    queue.push((view.physical_offset.get(), view.size() as u32, tags_code));
    Ok(())
}

fn read_queues(disk: &SimDisk, plan: &Plan, files: &[(PathBuf, u64)]) -> Result<Queues, Violation> {
    let root = Path::new(ROOT).join("consumequeue");
    let mut contents: BTreeMap<PathBuf, Vec<u8>> = BTreeMap::new();
    for (path, len) in files.iter().filter(|(path, _)| path.starts_with(&root)) {
        let queue = contents.entry(path.parent().unwrap_or(&root).to_path_buf()).or_default();
        if *len != plan.queue_file || number(path) != Some(queue.len() as u64) {
            return Err(wrong(
                Rule::R6,
                format!("{} has {len} bytes, expected at {}", path.display(), queue.len()),
            ));
        }
        queue.extend(disk.peek(path).unwrap_or_default());
    }
    let mut queues = Queues::new();
    for (path, bytes) in contents {
        let mut entries: Vec<_> = bytes.as_chunks::<ENTRY>().0.iter().map(entry).collect();
        while entries.last() == Some(&(0, 0, 0)) {
            entries.pop();
        }
        queues.insert(path, entries);
    }
    Ok(queues)
}

fn entry(bytes: &[u8; ENTRY]) -> (u64, u32, i64) {
    let physical_offset = bytes.first_chunk().map_or(0, |field| u64::from_be_bytes(*field));
    let size = bytes[8..].first_chunk().map_or(0, |field| u32::from_be_bytes(*field));
    let tags_code = bytes.last_chunk().map_or(0, |field| i64::from_be_bytes(*field));
    (physical_offset, size, tags_code)
}

/// The sound records of the log in order, from its start.
pub fn records(disk: &SimDisk, plan: &Plan) -> Vec<LogRange> {
    let dir = Path::new(ROOT).join("commitlog");
    let mut found = Vec::new();
    for (path, _) in disk.files().iter().filter(|(path, _)| path.parent() == Some(&dir)) {
        let bytes = disk.peek(path).unwrap_or_default();
        let start = number(path).unwrap_or_default();
        let mut at = 0;
        while let Ok(RecordCheck::Record(view)) = check_record(&bytes[at..], mode(plan)) {
            let end = at + view.size();
            found.push(LogRange { start: start + at as u64, end: start + end as u64 });
            at = end;
        }
    }
    found
}

fn mode(plan: &Plan) -> CheckMode {
    if plan.record_check { CheckMode::RecordRequired } else { CheckMode::Body }
}
