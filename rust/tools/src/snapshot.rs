//! Copies a store as it is at one moment, while a server writes it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rocketpy_env::{Disk, EnvError};
use rocketpy_model::{PhysicalOffset, QueueOffset};
use rocketpy_store::files::{
    CheckpointFile, Condition, FlushFailure, LOCK, LogFiles, Mark, NO_SUM, NOWHERE, QueueFiles, Timestamps,
    counts_in_queue, entry_at, file_name, position,
};
use rocketpy_store::reader::{ReadError, StoreReader};
use serde::Serialize;

use crate::folder_copy::{METADATA_BYTES, NewFolder};
use crate::walk::{Checks, LogWalk, Step};
use crate::{ToolError, Watch, check_log_files, tell};

/// How long a snapshot waits for the checkpoint of a server to follow the log.
const PATIENCE: Duration = Duration::from_secs(30);
const STEP: Duration = Duration::from_millis(50);

/// Metadata that a later message may change. It is copied after the cut, so that every topic in the log is known.
const NAMES: [&str; 2] = ["topics.json", "subscriptionGroup.json"];

/// What a command made of the broker, master or slave. Who starts on a copy is another broker.
const ROLE: &str = "role.json";

/// What a broker knows of the log's past. Which slaves have all that it acknowledged ([`WITNESSES`]) holds for it alone.
const PAST: &str = "replication.json";
const WITNESSES: &str = "witnesses";

/// A snapshot that was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Snapshot {
    /// The new folder.
    pub path: PathBuf,
    /// It has the log before this offset.
    pub log_end: PhysicalOffset,
    /// First byte of its log.
    pub log_start: PhysicalOffset,
    /// Log files that the store and the snapshot share.
    pub linked_files: u64,
    /// Log files that were copied: the current one, or all when the two folders lie on different file systems.
    pub copied_files: u64,
    /// Bytes of those.
    pub copied_bytes: u64,
    /// Consume queues.
    pub queues: u64,
    /// Entries of all queues.
    pub entries: u64,
    pub metadata_files: u64,
    /// Files and folders of the store that are not in the snapshot. The index is rebuilt from the log.
    pub left_out: Vec<String>,
}

/// Makes a snapshot of a store in a new folder. Everything that was readable when it began is in it.
///
/// Complete log files are shared by hard links, as they no longer change; everything else is copied.
///
/// # Errors
/// [`ToolError::TargetNotEmpty`], [`ToolError::TargetInside`]; [`rocketpy_store::StoreError::MissingFile`] where files of the log are
/// gone, [`ReadError::IncompleteQueues`] where files of consume queues are; [`ToolError::CheckpointBehind`] when the server's
/// checkpoint stands still. What was made of the folder is removed then.
///
/// # Durability
/// On return the snapshot is durable, and the store was durable up to where it was cut.
pub fn snapshot<D: Disk>(
    reader: &StoreReader<D>,
    target: &Path,
    watch: Watch<'_>,
) -> Result<Snapshot, ToolError> {
    let disk = &**reader.disk();
    let folder = NewFolder::make(disk, target, reader.root())?;
    let config = target.join("config");
    // Copied before the cut, so that no offset of a group lies ahead of the log.
    let is_name = |name: &str| NAMES.contains(&name);
    let is_other = |name: &str| !is_name(name) && name != ROLE;
    let mut metadata_files = folder.copy_metadata(&reader.root().join("config"), &config, is_other)?;
    forget_witnesses(disk, &config.join(PAST))?;
    let (mut log, cut) = wait_for_cut(reader, watch)?;
    check_log_files(reader, &log)?;
    metadata_files += folder.copy_metadata(&reader.root().join("config"), &config, is_name)?;
    let mut made = Snapshot {
        path: target.to_path_buf(),
        log_end: cut,
        log_start: PhysicalOffset::ZERO,
        linked_files: 0,
        copied_files: 0,
        copied_bytes: 0,
        queues: 0,
        entries: 0,
        metadata_files,
        left_out: left_out(reader)?,
    };
    copy_log(&folder, &log, cut, &mut made, watch)?;
    let firsts = copy_queues(reader, &folder, &mut log, cut, &mut made, watch)?;
    check_entries(reader, log.condition.mark, &made)?;
    write_checkpoint(reader, &folder, &log.condition, firsts, &made)?;
    folder.keep()?;
    Ok(made)
}

fn forget_witnesses<D: Disk>(disk: &D, file: &Path) -> Result<(), EnvError> {
    let bytes = match disk.read(file, METADATA_BYTES) {
        Err(error) if error.is_not_found() => return Ok(()),
        other => other?,
    };
    let past = serde_json::from_slice::<serde_json::Map<_, _>>(&bytes);
    match past.map(|mut past| past.remove(WITNESSES).map(|_| serde_json::Value::Object(past))) {
        Ok(Some(rest)) => disk.replace(file, rest.to_string().as_bytes()),
        _ => Ok(()), // a file that cannot be read is copied as it is: the start says so
    }
}

/// Files and folders that are not copied.
fn left_out<D: Disk>(reader: &StoreReader<D>) -> Result<Vec<String>, EnvError> {
    const COPIED: [&str; 6] = ["commitlog", "consumequeue", "config", "checkpoint", "abort", LOCK];
    let names =
        reader.disk().list(reader.root())?.into_iter().filter_map(|entry| entry.name.into_string().ok());
    Ok(names.filter(|name| !COPIED.contains(&name.as_str()) && !name.starts_with('.')).collect())
}

/// Where the snapshot ends: behind everything that was readable when it was asked for, and that is durable.
fn wait_for_cut<D: Disk>(
    reader: &StoreReader<D>,
    watch: Watch<'_>,
) -> Result<(LogFiles<D>, PhysicalOffset), ToolError> {
    let mut log = reader.open_log()?;
    let wanted = match log.condition.mark {
        Some(mark) => end_of_log(reader, mark.queues_to)?,
        None => {
            let end = dispatched(reader, &mut log)?;
            check_no_queues(reader, &log)?;
            end
        }
    };
    reader.check_queues(&mut log)?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let Some(mark) = log.condition.mark else { return Ok((log, wanted)) };
        if mark.queues_to >= wanted {
            return Ok((log, mark.queues_to));
        }
        if reader.disk().lock_holder(&reader.root().join(LOCK))?.is_none() {
            // Nobody writes any more. What the checkpoint does not cover was lost, or must be recovered.
            return Ok((log, if mark.closed { mark.log_to } else { mark.queues_to }));
        }
        if Instant::now() >= deadline {
            return Err(ToolError::CheckpointBehind { found: mark.queues_to, wanted });
        }
        tell(watch, 0, 1)?;
        std::thread::sleep(STEP);
        log = reader.open_log()?;
    }
}

/// Fails when there are records that belong into queues, and no queue at all: the snapshot would have none of them.
///
/// # Errors
/// [`ReadError::IncompleteQueues`].
fn check_no_queues<D: Disk>(reader: &StoreReader<D>, log: &LogFiles<D>) -> Result<(), ReadError> {
    if !reader.topic_names()?.is_empty() {
        return Ok(());
    }
    let mut walk = LogWalk::new(reader, NOWHERE, Checks::Layout)?;
    walk.go_to(log.start());
    let mut expected = 0;
    while let Step::Record(view) = walk.step()? {
        expected += u64::from(counts_in_queue(view.sys_flag));
    }
    match expected {
        0 => Ok(()),
        _ => Err(ReadError::IncompleteQueues { path: reader.queues_dir(), found: 0, expected }),
    }
}

/// The end of the last record of the log, searched from a place on. The server may keep queue entries only in memory,
/// but their records are in the log.
fn end_of_log<D: Disk>(reader: &StoreReader<D>, from: PhysicalOffset) -> Result<PhysicalOffset, ReadError> {
    let mut walk = LogWalk::new(reader, NOWHERE, Checks::Layout)?;
    walk.go_to(from.max(walk.start()));
    while let Step::Record(_) = walk.step()? {}
    Ok(walk.at())
}

/// The end of the last record that a queue leads to.
fn dispatched<D: Disk>(reader: &StoreReader<D>, log: &mut LogFiles<D>) -> Result<PhysicalOffset, ReadError> {
    let mut end = log.start();
    for topic in reader.topic_names()? {
        for queue_id in reader.queue_ids(&topic)? {
            end = end.max(reader.open_queue(&topic, queue_id, log)?.end_of_last()?);
        }
    }
    Ok(end)
}

/// Links the files that end before the cut and copies the one that holds it.
fn copy_log<D: Disk>(
    folder: &NewFolder<'_, D>,
    log: &LogFiles<D>,
    cut: PhysicalOffset,
    made: &mut Snapshot,
    watch: Watch<'_>,
) -> Result<(), ToolError> {
    let dir = folder.path.join("commitlog");
    folder.disk.create_dir_all(&dir)?;
    let files = log.files.files().iter().filter(|file| file.start < cut.get());
    made.log_start = PhysicalOffset::MAX;
    for file in files {
        let (start, end) = (PhysicalOffset(file.start), PhysicalOffset(file.end()));
        let (from, to) = (log.files.path_of(file.start), dir.join(file_name(file.start)));
        let is_complete = end <= cut;
        match take_over(folder, &from, &to, is_complete, cut - start) {
            Ok(true) => made.linked_files += 1,
            Ok(false) => {
                made.copied_files += 1;
                made.copied_bytes += file.size_bytes.min(cut - start);
            }
            // Retention removed the oldest file meanwhile.
            Err(error) if error.is_not_found() && made.log_start == PhysicalOffset::MAX => continue,
            Err(error) => return Err(error.into()),
        }
        made.log_start = made.log_start.min(start);
        tell(watch, end.min(cut).get(), cut.get())?;
    }
    made.log_start = made.log_start.min(cut);
    Ok(())
}

/// Links or copies a log file. Returns whether it is linked.
fn take_over<D: Disk>(
    folder: &NewFolder<'_, D>,
    from: &Path,
    to: &Path,
    is_complete: bool,
    size_bytes: u64,
) -> Result<bool, EnvError> {
    if is_complete {
        match folder.disk.hard_link(from, to) {
            Ok(()) => return Ok(true),
            Err(error) if error.is_not_found() => return Err(error),
            Err(error) => tracing::debug!(%error, "a log file can not be linked, copying it"),
        }
    }
    folder.copy_file(from, to, size_bytes, true).map(|()| false)
}

/// Copies all queues up to the cut. Returns the sum of their first entries.
fn copy_queues<D: Disk>(
    reader: &StoreReader<D>,
    folder: &NewFolder<'_, D>,
    log: &mut LogFiles<D>,
    cut: PhysicalOffset,
    made: &mut Snapshot,
    watch: Watch<'_>,
) -> Result<u64, ToolError> {
    let mut firsts = 0;
    folder.disk.create_dir_all(&folder.path.join("consumequeue"))?;
    for topic in reader.topic_names()? {
        for queue_id in reader.queue_ids(&topic)? {
            let dir = PathBuf::from("consumequeue").join(&topic).join(queue_id.to_string());
            let mut queue = reader.open_queue(&topic, queue_id, log)?;
            let end = queue.at_place(cut, queue.first(), queue.bounds.max)?;
            if queue.files.files().is_empty() || (end == queue.first() && end == QueueOffset::ZERO) {
                continue; // made behind the cut
            }
            made.queues += 1;
            made.entries += end.get();
            firsts += copy_queue(folder, &mut queue, &reader.root().join(&dir), &dir, end)?.get();
            tell(watch, cut.get(), cut.get())?;
        }
    }
    Ok(firsts)
}

/// Fails when the copied queues have another number of entries than the checkpoint at which the snapshot was cut: some of their files
/// were lost while the server ran.
///
/// # Errors
/// [`ReadError::IncompleteQueues`].
fn check_entries<D: Disk>(
    reader: &StoreReader<D>,
    mark: Option<Mark>,
    made: &Snapshot,
) -> Result<(), ReadError> {
    let Some(mark) =
        mark.filter(|mark| mark.queues_to == made.log_end && ![made.entries, NO_SUM].contains(&mark.entries))
    else {
        return Ok(());
    };
    // A topic that was deleted meanwhile has taken its entries along, and the mark with it.
    if reader.condition()?.mark != Some(mark) {
        return Ok(());
    }
    let (found, expected) = (made.entries, mark.entries);
    Err(ReadError::IncompleteQueues { path: reader.queues_dir(), found, expected })
}

/// Copies the files of a queue up to an entry. Returns its first entry.
fn copy_queue<D: Disk>(
    folder: &NewFolder<'_, D>,
    queue: &mut QueueFiles<D>,
    from: &Path,
    dir: &Path,
    end: QueueOffset,
) -> Result<QueueOffset, EnvError> {
    let to = folder.path.join(dir);
    folder.disk.create_dir_all(&to)?;
    let end = position(end);
    let mut first = None;
    for file in queue.files.files().iter().filter(|file| file.start < end || file.start == 0) {
        let name = file_name(file.start);
        match folder.copy_file(&from.join(&name), &to.join(&name), end.saturating_sub(file.start), false) {
            Err(error) if error.is_not_found() && first.is_none() => {} // retention took it away meanwhile
            Err(error) => return Err(error),
            Ok(()) => first = first.or(Some(entry_at(file.start))),
        }
    }
    Ok(first.unwrap_or_default())
}

/// Writes the checkpoint of a store that was closed at the cut. It comes last: an unfinished snapshot has none.
fn write_checkpoint<D: Disk>(
    reader: &StoreReader<D>,
    folder: &NewFolder<'_, D>,
    condition: &Condition,
    firsts: u64,
    made: &Snapshot,
) -> Result<(), ToolError> {
    let cut = made.log_end;
    let former = condition.mark.unwrap_or_default();
    let has_verify_from = condition.mark.is_some() && (made.log_start..=cut).contains(&former.verify_from);
    let verify_from = if has_verify_from { former.verify_from } else { made.log_start };
    let mark = Mark {
        generation: 0,
        verify_from,
        queues_to: cut,
        entries: made.entries,
        firsts,
        log_to: cut,
        checked_from: condition.mark.and_then(|mark| mark.checked_from).filter(|&from| from <= cut),
        closed: true,
        index: None,
        log_from: Some(made.log_start),
    };
    let last = last_stored_at(reader, verify_from, cut)?;
    let times = condition.timestamps;
    let timestamps = Timestamps {
        physic_msg_at_ms: times.physic_msg_at_ms.min(last),
        logics_msg_at_ms: times.logics_msg_at_ms.min(last),
        index_msg_at_ms: 0,
        ..times
    };
    let mut file = CheckpointFile::open(folder.disk, &folder.path.join("checkpoint"))?;
    Ok(file.write(timestamps, mark).map_err(FlushFailure::into_error)?)
}

/// When the last record before the cut was stored.
fn last_stored_at<D: Disk>(
    reader: &StoreReader<D>,
    from: PhysicalOffset,
    cut: PhysicalOffset,
) -> Result<i64, ReadError> {
    let mut walk = LogWalk::new(reader, NOWHERE, Checks::Layout)?;
    walk.go_to(from.max(walk.start()));
    walk.stop_at(cut);
    let mut stored_at_ms = 0;
    while let Step::Record(view) = walk.step()? {
        stored_at_ms = view.stored_at_ms;
    }
    Ok(stored_at_ms)
}

#[cfg(test)]
mod tests {
    use rocketpy_env::RealDisk;

    use super::*;

    #[test]
    fn a_copy_vouches_for_nothing_and_knows_the_rest() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(PAST);
        forget_witnesses(&RealDisk, &file).unwrap();
        RealDisk
            .replace(&file, br#"{"lives":[7],"witnesses":{"from":0,"needed":1,"slaves":["1"]}}"#)
            .unwrap();
        forget_witnesses(&RealDisk, &file).unwrap();
        assert_eq!(RealDisk.read(&file, 1 << 10).unwrap(), br#"{"lives":[7]}"#);
    }
}
