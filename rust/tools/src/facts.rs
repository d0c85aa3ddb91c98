//! What a store holds, found without reading every record.

use std::path::PathBuf;

use rocketpy_env::{Disk, LockHolder};
use rocketpy_model::{PhysicalOffset, QueueOffset};
use rocketpy_store::QueueBounds;
use rocketpy_store::files::{LOCK, LogFiles, Mark, QueueFiles, entry_at, estimated_bytes};
use rocketpy_store::reader::{ReadError, StoreReader};
use serde::Serialize;

use crate::{ToolError, Watch, tell};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StoreFacts {
    /// The store's folder.
    pub path: PathBuf,
    /// A process has the store open.
    pub is_locked: bool,
    /// The id of that process; `None` when the store is not open, or open in this process.
    pub locked_by: Option<u32>,
    /// The store was not closed: a process has it open, or was killed.
    pub has_abort_file: bool,
    /// The commit log.
    pub log: LogFacts,
    /// The durable mark; `None` when another program wrote the checkpoint last, or there is none.
    pub mark: Option<MarkFacts>,
    /// Messages stored before this time were durable in the log, in milliseconds since 1970. `None` when the checkpoint has no time.
    pub log_durable_at_ms: Option<i64>,
    /// Entries of messages stored before this time were durable in the consume queues, in milliseconds since 1970.
    /// `None` when the checkpoint has no time.
    pub queues_durable_at_ms: Option<i64>,
    /// The topics that have queues, by name.
    pub topics: Vec<TopicFacts>,
}

/// Facts of the commit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LogFacts {
    /// The folders that it lies in.
    pub folders: Vec<PathBuf>,
    /// Number of files in all of them.
    pub files: u64,
    /// Length of one file.
    pub file_size_bytes: u64,
    /// First byte that is still there.
    pub start: PhysicalOffset,
    /// The end of the last file.
    pub end_of_files: PhysicalOffset,
    /// Missing files between others, as `(from, to)`.
    pub holes: Vec<(PhysicalOffset, PhysicalOffset)>,
}

/// The durable mark of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename = "Mark")]
pub struct MarkFacts {
    /// How often a mark was written.
    pub generation: u64,
    /// The log was durable before this.
    pub log_to: PhysicalOffset,
    /// Consume queues were durable for the records before this.
    pub queues_to: PhysicalOffset,
    /// Recovery checks from here.
    pub verify_from: PhysicalOffset,
    /// Every record from here on has a checksum of its own.
    pub checked_from: Option<PhysicalOffset>,
    /// The index was durable for the records before this.
    pub index_to: Option<PhysicalOffset>,
    /// The store was closed with it.
    pub closed: bool,
}

impl From<Mark> for MarkFacts {
    fn from(mark: Mark) -> Self {
        Self {
            generation: mark.generation,
            log_to: mark.log_to,
            queues_to: mark.queues_to,
            verify_from: mark.verify_from,
            checked_from: mark.checked_from,
            index_to: mark.index.map(|index| index.to),
            closed: mark.closed,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TopicFacts {
    /// Name of the topic.
    pub topic: String,
    /// Its queues, by id.
    pub queues: Vec<QueueFacts>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct QueueFacts {
    /// Number of the queue within its topic.
    pub queue_id: u32,
    /// Offset of the oldest message that is still there.
    pub min_offset: QueueOffset,
    /// Offset behind the newest message.
    pub max_offset: QueueOffset,
    /// When the oldest message was stored, in milliseconds since 1970.
    pub first_stored_at_ms: Option<i64>,
    /// When the newest message was stored, in milliseconds since 1970.
    pub last_stored_at_ms: Option<i64>,
    /// Length of its records in bytes, estimated from a sample.
    pub estimated_bytes: u64,
    /// Its consume queue files.
    pub files: u64,
    /// Missing files between others, as queue offsets `(from, to)`.
    pub holes: Vec<(QueueOffset, QueueOffset)>,
}

/// Gathers the facts of a store; no record is checked.
///
/// # Errors
/// When a file operation fails, or the watcher stops it.
pub fn facts<D: Disk>(reader: &StoreReader<D>, watch: Watch<'_>) -> Result<StoreFacts, ToolError> {
    let holder = reader.disk().lock_holder(&reader.root().join(LOCK))?;
    let mut log = reader.open_log()?;
    let condition = log.condition;
    let mut topics = Vec::new();
    for topic in reader.topic_names()? {
        let mut queues = Vec::new();
        for queue_id in reader.queue_ids(&topic)? {
            tell(watch, 0, 0)?; // how much there is to read is not known before the end
            let queue = reader.open_queue(&topic, queue_id, &mut log)?;
            queues.push(queue_facts(queue, &mut log)?);
        }
        topics.push(TopicFacts { topic, queues });
    }
    Ok(StoreFacts {
        path: reader.root().to_path_buf(),
        is_locked: holder.is_some(),
        locked_by: holder.and_then(LockHolder::pid),
        has_abort_file: condition.is_dirty,
        log: log_facts(reader, &log),
        mark: condition.mark.map(MarkFacts::from),
        log_durable_at_ms: time(condition.timestamps.physic_msg_at_ms),
        queues_durable_at_ms: time(condition.timestamps.logics_msg_at_ms),
        topics,
    })
}

/// A time of the checkpoint; 0 there means none.
fn time(at_ms: i64) -> Option<i64> {
    (at_ms != 0).then_some(at_ms)
}

fn log_facts<D: Disk>(reader: &StoreReader<D>, log: &LogFiles<D>) -> LogFacts {
    let files = log.files.files();
    LogFacts {
        folders: reader.log_dirs().to_vec(),
        files: files.len() as u64,
        file_size_bytes: files.first().map_or(0, |file| file.size_bytes),
        start: log.start(),
        end_of_files: log.end_of_files(),
        holes: log.holes(),
    }
}

fn queue_facts<D: Disk>(mut queue: QueueFiles<D>, log: &mut LogFiles<D>) -> Result<QueueFacts, ReadError> {
    let (QueueBounds { min, max }, queue_id) = (queue.bounds, queue.queue_id);
    let mut stored_at_ms = |number: QueueOffset| match queue.entry(number)? {
        Some(entry) if (min..max).contains(&number) => log.stored_at_ms(&entry, queue_id),
        _ => Ok(None),
    };
    let first_stored_at_ms = stored_at_ms(min)?;
    let last_stored_at_ms = stored_at_ms(QueueOffset(max.get().saturating_sub(1)))?;
    Ok(QueueFacts {
        queue_id,
        min_offset: min,
        max_offset: max,
        first_stored_at_ms,
        last_stored_at_ms,
        estimated_bytes: estimated_bytes(&mut queue, min, max)?,
        files: queue.files.files().len() as u64,
        holes: queue.files.holes().into_iter().map(|(from, to)| (entry_at(from), entry_at(to))).collect(),
    })
}
