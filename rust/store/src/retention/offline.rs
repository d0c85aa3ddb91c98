//! Files that a running store would remove from a folder. Nothing is changed.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rocketpy_env::{Disk, DiskFile, EnvError, OpenMode, RealDisk, local_hour};
use rocketpy_model::{PhysicalOffset, QueueOffset};
use rocketpy_protocol::record::RecordHead;

use super::RetentionConfig;
use super::plan::{Aged, FolderSpace, LogFile, OldPart, RetentionPlan, Situation, plan};
use super::run::stored_at_in;
use crate::config::StoreConfig;
use crate::error::StoreError;
use crate::fetch::QueueBounds;
use crate::folder::{file_name, numbered_files};
use crate::reader::{ReadError, StoreReader};

/// Files of the folder, and those that would be removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderPlan {
    /// The files, the space and the time.
    pub situation: Situation,
    /// Files that would be removed.
    pub plan: RetentionPlan,
    /// The rules, their percentages in bounds.
    pub rules: RetentionConfig,
}

/// Returns what the store of this configuration would remove from its folder now, and why. A server may run on it.
///
/// `is_asked` says that somebody asked to remove what is old enough at any hour.
///
/// # Errors
/// [`StoreError::BadConfig`], [`StoreError::UnexpectedFile`], [`StoreError::Env`] also when there is no store.
pub fn plan_folder(config: &StoreConfig, is_asked: bool) -> Result<FolderPlan, StoreError> {
    plan_on(&RealDisk, config, is_asked)
}

pub(crate) fn plan_on<D: Disk>(
    disk: &D,
    config: &StoreConfig,
    is_asked: bool,
) -> Result<FolderPlan, StoreError> {
    let rules = config.retention.clone().checked()?;
    let now_ms = disk.now_ms();
    let files = log_files(disk, &config.commit_log_dirs())?;
    let space = |path: PathBuf| disk.usage(&path).map(|usage| FolderSpace { path, usage });
    let writable = config.writable_commit_log_dirs();
    let situation = Situation {
        files: without_spare(disk, files)?,
        log_folders: writable.into_iter().map(space).collect::<Result<_, EnvError>>()?,
        queue_folder: space(config.root.join("consumequeue"))?,
        now_ms,
        young_from: PhysicalOffset(u64::MAX),
        waiting_from: PhysicalOffset(u64::MAX), // the server knows
        hour: local_hour(now_ms),
        is_asked,
        is_refusing: false,
    };
    let plan = plan(&situation, &rules);
    Ok(FolderPlan { situation, plan, rules })
}

/// The files of a log with their ages, one made ahead among them.
fn log_files<D: Disk>(disk: &D, dirs: &[PathBuf]) -> Result<Vec<LogFile>, StoreError> {
    let mut found = Vec::new();
    for dir in dirs {
        found.extend(numbered_files(disk, dir)?.into_iter().map(|file| (file, dir)));
    }
    found.sort_by_key(|(file, _)| file.start);
    let mut files = Vec::with_capacity(found.len());
    for (index, (file, dir)) in found.iter().enumerate() {
        let path = dir.join(file_name(file.start));
        let next_stored = match found.get(index + 1) {
            Some((next, dir)) => {
                first_stored_at(disk, &dir.join(file_name(next.start)), PhysicalOffset(next.start))?
            }
            None => None,
        };
        let written_at_ms = file.modified_at_ms.max(next_stored.unwrap_or_default());
        files.push(LogFile {
            path,
            start: PhysicalOffset(file.start),
            size_bytes: file.size_bytes,
            written_at_ms,
        });
    }
    Ok(files)
}

/// A queue with messages that are older than their topic keeps them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgedQueue {
    /// Topic of the queue.
    pub topic: String,
    /// Queue within the topic.
    pub queue_id: u32,
    /// Its first message that the log has. An open store may start the queue later; nothing on disk says so.
    pub former_min: QueueOffset,
    /// Its first message that is young enough, or its end.
    pub min: QueueOffset,
    /// Retention time of the topic's messages.
    pub kept: Duration,
}

/// Returns the queues that start later than the log because their topic keeps messages for a shorter time, as
/// [`crate::Store::set_topic_retention`] makes them start; by topic and queue id.
///
/// # Errors
/// When a file operation fails, or a file of a queue is damaged.
pub fn plan_topics<D: Disk>(
    reader: &StoreReader<D>,
    topics: &HashMap<Arc<str>, Duration>,
) -> Result<Vec<AgedQueue>, ReadError> {
    let mut log = reader.open_log()?;
    let files = log_files(&*reader.disk, reader.log_dirs()).map_err(|error| match error {
        StoreError::Env(error) => ReadError::Env(error),
        error => ReadError::Refused(Box::new(error)),
    })?;
    let mut aged = Vec::new();
    for topic in reader.topic_names()? {
        let Some(&kept) = topics.get(topic.as_str()) else { continue };
        let old = OldPart::of(&files, reader.disk.now_ms(), kept, PhysicalOffset(u64::MAX));
        for queue_id in reader.queue_ids(&topic)? {
            let mut queue = reader.open_queue(&topic, queue_id, &mut log)?;
            let QueueBounds { min: former_min, max } = queue.bounds;
            let first = queue.at_place(old.all_before, former_min, max)?;
            let end = queue.at_place(old.none_from, first, max)?;
            let min = old.first_kept(first..end, |offset| match queue.entry(offset)? {
                Some(entry) => log.stored_at_ms(&entry, queue_id).map(Aged::from),
                None => Ok::<_, ReadError>(Aged::Gone),
            })?;
            if min > former_min {
                aged.push(AgedQueue { topic: topic.clone(), queue_id, former_min, min, kept });
            }
        }
    }
    Ok(aged)
}

/// Leaves out the last file if it was made ahead and holds no record: for a store the one before it is the last.
fn without_spare<D: Disk>(disk: &D, mut files: Vec<LogFile>) -> Result<Vec<LogFile>, EnvError> {
    if files.len() > 1
        && let Some(last) = files.last()
        && first_stored_at(disk, &last.path, last.start)?.is_none()
    {
        files.pop();
    }
    Ok(files)
}

/// When the first record of a file was stored, if one is there. A file that is gone meanwhile has none.
fn first_stored_at<D: Disk>(disk: &D, path: &Path, start: PhysicalOffset) -> Result<Option<i64>, EnvError> {
    let file = match disk.open_file(path, OpenMode::Read) {
        Err(error) if error.is_not_found() => return Ok(None),
        other => other?,
    };
    let mut head = [0; RecordHead::BYTES];
    let count = file.read_at(0, &mut head)?;
    Ok(stored_at_in(&head[..count], start))
}
