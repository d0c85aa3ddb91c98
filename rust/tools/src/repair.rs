//! Repairs a damaged store so that a server opens it, and keeps a copy of what it takes away.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use rocketpy_env::{Disk, DiskFile, EnvError, OpenMode};
use rocketpy_model::{PhysicalOffset, QueueOffset, sys_flag};
use rocketpy_protocol::disk::ConsumeQueueEntry;
use rocketpy_protocol::record::{
    BLANK_HEAD_BYTES, CRC_PROPERTY_BYTES, FIXED_BYTES_V1, RecordFields, blank_head,
};
use rocketpy_store::files::{LOCK, LogFiles, NOWHERE, file_name, lock_logs, lock_root};
use rocketpy_store::reader::StoreReader;
use rocketpy_store::timer::timer_files;
use serde::Serialize;

use crate::action::RepairAction;
use crate::damage::{Hole, HoleKind};
use crate::manifest::SideFolder;
use crate::report::{Problem, ProblemKind};
use crate::verify::{Examined, examine};
use crate::{ToolError, Watch};

/// The topic of a record that replaces damaged bytes. Such a record gets no queue entry, because its type is that of a
/// rolled back message.
pub(crate) const FILLER_TOPIC: &str = "RMQ_SYS_REPAIRED_LOG";

/// What a repair does, or has done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Repair {
    /// The store's folder.
    pub path: PathBuf,
    /// The steps in order; none when nothing is wrong.
    pub actions: Vec<RepairAction>,
    /// The folder that keeps what was taken away; `None` for a preview.
    pub kept_in: Option<PathBuf>,
}

/// Returns what [`repair`] would do. Takes no lock and changes nothing.
///
/// # Errors
/// When the store cannot be read.
pub fn plan_repair<D: Disk>(reader: &StoreReader<D>, watch: Watch<'_>) -> Result<Repair, ToolError> {
    let is_live = reader.disk().lock_holder(&reader.root().join(LOCK))?.is_some();
    let actions = plan(reader, &examine(reader, is_live, watch)?)?;
    Ok(preview(reader, actions))
}

/// Steps that nobody has done.
pub(crate) fn preview<D: Disk>(reader: &StoreReader<D>, actions: Vec<RepairAction>) -> Repair {
    Repair { path: reader.root().to_path_buf(), actions, kept_in: None }
}

/// Takes the lock of a store and repairs it so that a server opens it. Every sound record stays at its place.
///
/// When a repair was interrupted, the next call finishes it.
///
/// # Errors
/// [`ToolError::Store`] when somebody has the store open; [`ToolError::HoleTooShort`]; or a file operation failed.
///
/// # Durability
/// Everything that is overwritten or moved is durable in the side folder before.
pub fn repair<D: Disk>(reader: &StoreReader<D>, watch: Watch<'_>) -> Result<Repair, ToolError> {
    carry_out(reader, |reader| plan(reader, &examine(reader, false, watch)?))
}

/// Takes the lock of a store, and does what is planned then.
pub(crate) fn carry_out<D: Disk>(
    reader: &StoreReader<D>,
    plan: impl FnOnce(&StoreReader<D>) -> Result<Vec<RepairAction>, ToolError>,
) -> Result<Repair, ToolError> {
    let disk = &**reader.disk();
    let locks = (lock_root(disk, reader.root())?, lock_logs(disk, reader.log_dirs())?);
    let actions = plan(reader)?;
    let mut kept_in = None;
    if !actions.is_empty() {
        let mut side = SideFolder::make(disk, reader.root(), &actions)?;
        for action in &actions {
            apply(reader, &mut side, action)?;
        }
        side.write(true)?;
        kept_in = Some(side.dir);
    }
    drop(locks);
    Ok(Repair { path: reader.root().to_path_buf(), actions, kept_in })
}

fn plan<D: Disk>(reader: &StoreReader<D>, examined: &Examined) -> Result<Vec<RepairAction>, ToolError> {
    let mut actions = Vec::new();
    for hole in &examined.holes {
        plan_hole(reader, hole, &mut actions)?;
    }
    let mut entries = Vec::new();
    let queue_reason = queue_reason(examined, &mut entries);
    let void_checkpoint = lost_start(examined).or_else(|| bad_checkpoint(examined));
    let root = reader.root();
    if let Some(reason) = lost_end(examined).or_else(|| mark_in_hole(examined)).or(queue_reason) {
        actions.push(RepairAction::DropCheckpoint { path: root.join("checkpoint"), reason: reason.clone() });
        actions.push(RepairAction::RebuildQueues { path: root.join("consumequeue"), reason });
    } else {
        actions.append(&mut entries);
        if let Some(reason) = void_checkpoint {
            actions.push(RepairAction::DropCheckpoint { path: root.join("checkpoint"), reason });
        }
    }
    let index = examined.report.problems.iter().find(|problem| is_of_index(problem));
    if let Some(problem) = index {
        let reason =
            format!("{}: found {}, expected {}", problem.path.display(), problem.found, problem.expected);
        actions.push(RepairAction::RebuildIndex { path: root.join("index"), reason });
    }
    let differs = |problem: &&Problem| problem.kind == ProblemKind::TimersDiffer;
    if let Some(problem) = examined.report.problems.iter().find(differs) {
        let reason = format!("found {}, expected {}", problem.found, problem.expected);
        for path in timer_files(root) {
            actions.push(RepairAction::RebuildTimers { path, reason: reason.clone() });
        }
    }
    actions.retain(|action| action.is_needed(&**reader.disk()));
    Ok(actions)
}

fn is_of_index(problem: &Problem) -> bool {
    match problem.kind {
        ProblemKind::IndexDiffers
        | ProblemKind::KeyWithoutIndexEntry
        | ProblemKind::IndexEntryWithoutRecord => true,
        ProblemKind::BadFile => problem.path.parent().is_some_and(|dir| dir.ends_with("index")),
        _ => false,
    }
}

/// Reason when the log ends before what the checkpoint states.
fn lost_end(examined: &Examined) -> Option<String> {
    let problem = examined.report.problems.iter().find(|one| one.kind == ProblemKind::LogEndsEarly)?;
    Some(format!("the log ends at {}, expected: {}", examined.report.log_end, problem.expected))
}

/// Reason when the log starts behind what the checkpoint states.
fn lost_start(examined: &Examined) -> Option<String> {
    let problem = examined.report.problems.iter().find(|one| one.kind == ProblemKind::LogStartsLate)?;
    Some(format!("{}, expected: {}", problem.found, problem.expected))
}

/// Reason when no program can have written the checkpoint.
fn bad_checkpoint(examined: &Examined) -> Option<String> {
    let problem = examined.report.problems.iter().find(|one| one.kind == ProblemKind::BadCheckpoint)?;
    Some(format!("found {}, expected {}", problem.found, problem.expected))
}

/// Reason when the mark names a place within damage. After the repair no record begins there, and recovery could not start from
/// it.
fn mark_in_hole(examined: &Examined) -> Option<String> {
    let mark = examined.mark?;
    let index_to = mark.index.map_or(mark.log_to, |index| index.to);
    let places = [mark.verify_from, mark.queues_to, mark.log_to, index_to];
    let is_within = |hole: &Hole, at: PhysicalOffset| hole.from < at && at < hole.to;
    let hole = examined.holes.iter().find(|hole| places.iter().any(|&at| is_within(hole, at)))?;
    Some(format!("the mark of the checkpoint lies within damage from {} to {}", hole.from, hole.to))
}

/// Returns why the consume queues must be rebuilt, if they must. Otherwise gathers the entries that lead into damage.
fn queue_reason(examined: &Examined, entries: &mut Vec<RepairAction>) -> Option<String> {
    let queues_to = examined.mark.map_or(PhysicalOffset::MAX, |mark| mark.queues_to);
    for problem in &examined.report.problems {
        match problem.kind {
            ProblemKind::EntryWithoutRecord => {}
            ProblemKind::IncompleteQueues | ProblemKind::EntryDiffers | ProblemKind::RecordWithoutEntry => {
                return Some(format!("found {}, expected {}", problem.found, problem.expected));
            }
            ProblemKind::BadFile if problem.topic.is_some() => {
                return Some(format!("found {}, expected {}", problem.found, problem.expected));
            }
            _ => continue,
        }
        let at = problem.physical_offset.unwrap_or_default();
        let in_hole = examined.holes.iter().any(|hole| hole.contains(at) && hole.kind != HoleKind::Tail);
        if !in_hole {
            return Some(format!("found {}, expected {}", problem.found, problem.expected));
        }
        if at >= queues_to {
            continue; // the next start writes it again
        }
        entries.push(RepairAction::BlankEntry {
            path: problem.path.clone(),
            file_offset: problem.file_offset,
            topic: problem.topic.clone().unwrap_or_default(),
            queue_id: problem.queue_id.unwrap_or(0),
            queue_offset: problem.queue_offset.unwrap_or_default(),
            physical_offset: at,
        });
    }
    let is_listed = examined.report.problem_count == examined.report.problems.len() as u64;
    (!is_listed).then(|| "there is more damage than is listed".to_owned())
}

fn plan_hole<D: Disk>(
    reader: &StoreReader<D>,
    hole: &Hole,
    actions: &mut Vec<RepairAction>,
) -> Result<(), ToolError> {
    let mut log = reader.open_log()?;
    let file_size = log.files.files().first().map_or(1, |file| file.size_bytes).max(1);
    let (physical_offset, size_bytes, reason) = (hole.from, hole.size_bytes(), hole.reason.clone());
    let path = log.path_at(physical_offset)?;
    let file_offset = log.file_offset(physical_offset)?;
    match hole.kind {
        HoleKind::Inside => {
            if size_bytes < smallest_filler(true) {
                return Err(ToolError::HoleTooShort { path, physical_offset, size_bytes });
            }
            actions.push(RepairAction::FillWithRecord {
                path,
                file_offset,
                physical_offset,
                size_bytes,
                reason,
            });
        }
        HoleKind::ToFileEnd => {
            actions.push(RepairAction::EndFile { path, file_offset, physical_offset, size_bytes, reason });
        }
        HoleKind::MissingFiles => {
            for start in (hole.from.get()..hole.to.get()).step_by(file_size as usize) {
                let path = reader.log_dirs()[0].join(file_name(start));
                let physical_offset = PhysicalOffset(start);
                actions.push(RepairAction::MakeFile { path, physical_offset, size_bytes: file_size });
            }
        }
        HoleKind::Tail => cut_tail(&mut log, hole, actions)?,
    }
    Ok(())
}

/// Cuts the tail off each file that holds a part of it.
fn cut_tail<D: Disk>(
    log: &mut LogFiles<D>,
    hole: &Hole,
    actions: &mut Vec<RepairAction>,
) -> Result<(), ToolError> {
    let mut at = hole.from;
    while at < hole.to {
        let Some(file_end) = log.file_end(at)? else { break };
        let end = hole.to.min(file_end);
        actions.push(RepairAction::CutTail {
            path: log.path_at(at)?,
            file_offset: log.file_offset(at)?,
            physical_offset: at,
            size_bytes: end - at,
            reason: hole.reason.clone(),
        });
        at = end;
    }
    Ok(())
}

fn apply<D: Disk>(
    reader: &StoreReader<D>,
    side: &mut SideFolder<'_, D>,
    action: &RepairAction,
) -> Result<(), ToolError> {
    let disk = &**reader.disk();
    match action {
        RepairAction::FillWithRecord { path, file_offset, physical_offset, size_bytes, .. } => {
            side.keep_bytes(path, *file_offset, *size_bytes)?;
            side.unshare(path)?;
            let stored_at_ms = stored_before(reader, *physical_offset)?;
            write(disk, path, *file_offset, &filler(*physical_offset, *size_bytes, stored_at_ms))?;
        }
        RepairAction::EndFile { path, file_offset, size_bytes, .. } => {
            side.keep_bytes(path, *file_offset, *size_bytes)?;
            side.unshare(path)?;
            let mut rest = vec![0; *size_bytes as usize];
            let head = BLANK_HEAD_BYTES.min(rest.len());
            rest[..head].copy_from_slice(&blank_head(*size_bytes as u32)[..head]);
            write(disk, path, *file_offset, &rest)?;
        }
        RepairAction::MakeFile { path, size_bytes, .. } => {
            use rocketpy_env::Region as _;
            let region = disk.create_region(path, *size_bytes)?;
            region.append(&blank_head(*size_bytes as u32), *size_bytes);
            region.flush(0..*size_bytes)?;
        }
        RepairAction::CutTail { path, file_offset, size_bytes, .. } => {
            side.keep_bytes(path, *file_offset, *size_bytes)?;
            side.unshare(path)?;
            let file = disk.open_file(path, OpenMode::Write)?;
            file.zero_range(*file_offset..file_offset + size_bytes, true)?;
            file.sync()?;
        }
        RepairAction::BlankEntry { path, file_offset, .. } => {
            side.keep_bytes(path, *file_offset, ConsumeQueueEntry::BYTES as u64)?;
            side.unshare(path)?;
            write(disk, path, *file_offset, &ConsumeQueueEntry::PRE_BLANK.encode())?;
        }
        RepairAction::RebuildQueues { path, .. }
        | RepairAction::RebuildIndex { path, .. }
        | RepairAction::RebuildTimers { path, .. } => side.take(path)?,
        RepairAction::DropCheckpoint { path, .. } => {
            mark_open(disk, reader.root())?; // else what follows counts as closed, and its end as known
            if action.is_needed(disk) {
                side.take(path)?;
            }
        }
    }
    Ok(())
}

fn write<D: Disk>(disk: &D, path: &Path, at: u64, bytes: &[u8]) -> Result<(), EnvError> {
    let file = disk.open_file(path, OpenMode::Write)?;
    file.write_all_at(at, bytes)?;
    file.sync()
}

/// Marks the store as not closed.
fn mark_open<D: Disk>(disk: &D, root: &Path) -> Result<(), EnvError> {
    let file = disk.open_file(&root.join("abort"), OpenMode::CreateOrWrite)?;
    file.sync()?;
    disk.sync_dir(root)
}

/// Store time of the last sound record before a place of the log; 1 when there is none. Recovery reads this time.
fn stored_before<D: Disk>(reader: &StoreReader<D>, at: PhysicalOffset) -> Result<i64, ToolError> {
    use crate::walk::{Checks, LogWalk, Step};
    let mut walk = LogWalk::new(reader, NOWHERE, Checks::Layout)?;
    if let Some(file_end) = walk.file_end(at)? {
        let file_size = reader.open_log()?.files.files().first().map_or(0, |file| file.size_bytes);
        walk.go_to((file_end - file_size).max(walk.start()));
    }
    walk.stop_at(at);
    let mut stored_at_ms = 1;
    while let Step::Record(view) = walk.step()? {
        stored_at_ms = view.stored_at_ms;
    }
    Ok(stored_at_ms)
}

/// Bytes of the shortest record that may replace damage.
const fn smallest_filler(record_check: bool) -> u64 {
    let check = if record_check { CRC_PROPERTY_BYTES } else { 0 };
    (FIXED_BYTES_V1 + 1 + check) as u64
}

/// A record of an exact length. It has the type of a rolled back message, so that no queue and no index leads to it.
///
/// # Source
/// docs/reference/store-format.md 3.1, 4.4.
fn filler(physical_offset: PhysicalOffset, size_bytes: u64, stored_at_ms: i64) -> Vec<u8> {
    let record_check = size_bytes >= smallest_filler(true);
    let room = (size_bytes - smallest_filler(record_check)) as usize;
    let topic = if room >= FILLER_TOPIC.len() - 1 { FILLER_TOPIC } else { &FILLER_TOPIC[..1] };
    let body = vec![0; room + 1 - topic.len()];
    let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let fields = RecordFields {
        topic,
        queue_id: 0,
        flag: 0,
        sys_flag: sys_flag::TRANSACTION_ROLLBACK,
        born_at_ms: stored_at_ms,
        born_host: nowhere,
        store_host: nowhere,
        reconsume_times: 0,
        prepared_transaction_offset: PhysicalOffset::ZERO,
        body: &body,
        properties: b"",
        may_have_crc: true,
    };
    let mut bytes = Vec::with_capacity(size_bytes as usize);
    let plan = fields.encode(record_check, &mut bytes).expect("a short topic and no properties fit");
    plan.finish(&mut bytes, QueueOffset::ZERO, physical_offset, stored_at_ms);
    assert_eq!(bytes.len() as u64, size_bytes, "it fills the damage");
    bytes
}

#[cfg(test)]
mod tests {
    use rocketpy_protocol::record::{CheckMode, RecordCheck, check_record};
    use rocketpy_store::files::counts_in_queue;

    use super::*;

    #[test]
    fn a_filler_has_every_length_from_the_shortest_record_on() {
        for size in smallest_filler(true)..400 {
            let bytes = filler(PhysicalOffset(1000), size, 7);
            match check_record(&bytes, CheckMode::RecordRequired) {
                Ok(RecordCheck::Record(view)) => {
                    assert_eq!(
                        (view.size() as u64, view.physical_offset.get(), view.stored_at_ms),
                        (size, 1000, 7)
                    );
                    assert!(!counts_in_queue(view.sys_flag));
                    rocketpy_model::name::check_topic(view.topic).unwrap();
                }
                other => panic!("{size}: {other:?}"),
            }
        }
    }
}
