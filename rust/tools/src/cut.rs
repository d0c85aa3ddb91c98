//! Cuts the end of a log off, which another log does not have, and keeps a copy of it.

use rocketpy_env::{Disk, DiskFile, OpenMode};
use rocketpy_model::PhysicalOffset;
use rocketpy_store::files::NOWHERE;
use rocketpy_store::reader::StoreReader;
use rocketpy_store::timer::timer_files;

use crate::action::RepairAction;
use crate::repair::{Repair, carry_out, preview};
use crate::walk::{Checks, LogWalk, Step};
use crate::{ToolError, Watch, check_log_files, tell};

/// Returns what [`cut`] would do. Takes no lock and changes nothing.
///
/// # Errors
/// As [`cut`], but for a store that is open.
pub fn plan_cut<D: Disk>(
    reader: &StoreReader<D>,
    at: PhysicalOffset,
    watch: Watch<'_>,
) -> Result<Repair, ToolError> {
    Ok(preview(reader, plan(reader, at, watch)?))
}

/// Ends the log of a store at a place where a record begins, as [`diff`](fn@crate::diff) names it: its readers no longer see what follows. The
/// next start makes index and timers anew from the log that is left, cuts the consume queues, and takes no offset of a group further than its queue.
///
/// The folder is then one for a slave. Its files still say how far delay levels, timers and transactions were, which may be further than what is
/// left: a slave takes that over from its master. A broker that starts on it as master does not deliver again what it had delivered behind the cut.
///
/// When a cut was interrupted, the next call finishes it. A server that starts before that has a longer log, or the whole one.
///
/// # Errors
/// [`ToolError::Store`] when somebody has the store open, or a file of the log is missing; [`ToolError::OutsideLog`],
/// [`ToolError::NoRecordAt`]; or a file operation failed.
///
/// # Durability
/// Everything that is cut off is durable in the side folder before.
pub fn cut<D: Disk>(
    reader: &StoreReader<D>,
    at: PhysicalOffset,
    watch: Watch<'_>,
) -> Result<Repair, ToolError> {
    carry_out(reader, |reader| {
        make_durable(reader, at)?;
        plan(reader, at, watch)
    })
}

/// Flushes the files of the log from a place on: what an interrupted cut has turned to zeros need not be cut again, but has to stay so.
fn make_durable<D: Disk>(reader: &StoreReader<D>, at: PhysicalOffset) -> Result<(), ToolError> {
    let mut walk = LogWalk::new(reader, NOWHERE, Checks::Layout)?;
    let mut from = at;
    while let Some(end) = walk.file_end(from)? {
        let (path, _) = walk.place(from)?;
        reader.disk().open_file(&path, OpenMode::Write)?.sync()?;
        from = end;
    }
    Ok(())
}

fn plan<D: Disk>(
    reader: &StoreReader<D>,
    at: PhysicalOffset,
    watch: Watch<'_>,
) -> Result<Vec<RepairAction>, ToolError> {
    check_log_files(reader, &reader.open_log()?)?;
    let mut walk = LogWalk::new(reader, NOWHERE, Checks::Layout)?;
    let (start, end_of_files) = (walk.start(), walk.end_of_files());
    if at < start || at > end_of_files {
        return Err(ToolError::OutsideLog { at, start, end: end_of_files });
    }
    check_place(&mut walk, at)?;
    let end = walk.end_of_data(at, &mut |done| tell(watch, done.get(), end_of_files.get()))?;
    if at == end {
        return Ok(Vec::new());
    }
    let (root, reason) = (reader.root(), format!("the log is cut at {at}"));
    // From the last file to the first, and the mark before them: however far a cut came, what is left is a log without a hole. The
    // consume queues stay: without a mark the next start cuts them to what the log has, and nothing else knows the end of one whose messages
    // have all expired.
    let mut actions =
        vec![RepairAction::DropCheckpoint { path: root.join("checkpoint"), reason: reason.clone() }];
    let mut anew = vec![RepairAction::RebuildIndex { path: root.join("index"), reason: reason.clone() }];
    let of_timers = |path| RepairAction::RebuildTimers { path, reason: reason.clone() };
    anew.extend(timer_files(root).into_iter().map(of_timers));
    anew.retain(|action| action.is_needed(&**reader.disk()));
    actions.append(&mut anew);
    let mut parts = Vec::new();
    let mut from = at;
    while from < end {
        let Some(file_end) = walk.file_end(from)? else { break };
        let (path, file_offset) = walk.place(from)?;
        let size_bytes = file_end.min(end) - from;
        let reason = reason.clone();
        parts.push(RepairAction::CutTail { path, file_offset, physical_offset: from, size_bytes, reason });
        from = file_end;
    }
    actions.extend(parts.into_iter().rev());
    Ok(actions)
}

/// # Errors
/// Neither a record nor a file begins at a place, and the log does not end there.
fn check_place<D: Disk>(walk: &mut LogWalk<D>, at: PhysicalOffset) -> Result<(), ToolError> {
    let Some(before) = at.get().checked_sub(1).map(PhysicalOffset).filter(|before| *before >= walk.start())
    else {
        return Ok(());
    };
    let (_, in_file) = walk.place(before)?;
    let mut last = before - in_file;
    walk.go_to(last);
    walk.stop_at(at);
    while let Step::Record(_) = walk.step()? {
        if walk.at() > at {
            break;
        }
        last = walk.at();
    }
    walk.stop_at(PhysicalOffset::MAX);
    if walk.at() == at { Ok(()) } else { Err(ToolError::NoRecordAt { at, last }) }
}
