//! Reads a store folder without a server. It takes no lock and maps no file, and is safe while a server writes.

pub(crate) mod condition;
pub(crate) mod files;
mod key;
pub(crate) mod log;
pub(crate) mod queue;
pub(crate) mod range;
mod scan;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rocketpy_env::{Disk, EntryKind, EnvError, RealDisk};
use rocketpy_filter::MessageFilter;
use rocketpy_model::name::check_topic;
use rocketpy_model::{PhysicalOffset, QueueOffset};
use rocketpy_protocol::body::TopicConfigFile;
use rocketpy_protocol::json;
use serde::{Deserialize, Serialize};

use self::condition::Condition;
pub use self::key::{KeyPlaces, KeyQuery, KeyedRecord};
use self::log::LogFiles;
use self::queue::QueueFiles;
pub use self::scan::RangeScan;
use crate::error::StoreError;
use crate::fetch::QueueBounds;
pub use crate::fetch::QueueEntry;

/// Maximum length of `config/topics.json`: the one up to which a broker reads it.
const MAX_TABLE_BYTES: u64 = 256 << 20;

/// A store could not be read.
#[derive(Debug, Clone, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum ReadError {
    /// A file operation failed.
    #[error(transparent)]
    Env(#[from] EnvError),
    /// The folder holds no store.
    #[error("not a store folder: {}", path.display())]
    NotAStore { path: PathBuf },
    /// The folder has consume queues, and no commit log next to them.
    #[error("the store has no commit log: {}", path.display())]
    LogElsewhere { path: PathBuf },
    /// A server would refuse to open the store.
    #[error(transparent)]
    Refused(Box<StoreError>),
    /// The folder holds no index files.
    #[error("the store has no key index: {}", path.display())]
    NoIndex { path: PathBuf },
    /// The store has no queue of the topic, and its broker's table of topics does not name it.
    #[error("the store holds no message of topic {topic}: {}", path.display())]
    UnknownTopic { topic: String, path: PathBuf },
    /// A file of numbered files has an impossible name or length.
    #[error("file is not usable ({reason}): {}", path.display())]
    BadFile { path: PathBuf, reason: String },
    /// A record is damaged, or the entry that leads to it is.
    #[error(
        "entry {queue_offset} of {topic}-{queue_id} points to a broken record at {physical_offset} ({reason}): {}",
        path.display()
    )]
    BrokenRecord {
        topic: Arc<str>,
        queue_id: u32,
        queue_offset: QueueOffset,
        physical_offset: PhysicalOffset,
        /// The file of the log that should hold the record.
        path: PathBuf,
        reason: String,
    },
    /// Files of consume queues are missing or damaged: they differ from what the store was closed with.
    #[error("consume queues have {found} entries, the store was closed with {expected}: {}", path.display())]
    IncompleteQueues { path: PathBuf, found: u64, expected: u64 },
    /// A start or an end names a queue that the topic does not have.
    #[error("topic {topic} has no queue: {queue_id}")]
    UnknownQueue { topic: Arc<str>, queue_id: u32 },
    /// A range starts after its end.
    #[error("queue {queue_id} of topic {topic} ends at {end}, before its start: {start}")]
    InvertedRange { topic: Arc<str>, queue_id: u32, start: QueueOffset, end: QueueOffset },
    /// Messages of a range are not there (any more).
    #[error("messages {} to {} of {}-{} are missing: {}", range.start, range.end, range.topic, range.queue_id, range.reason)]
    Missing { range: MissingRange },
}

impl ReadError {
    /// Whether the same read may succeed later without a change of the folder or of what was asked for.
    #[must_use]
    pub fn retryable(&self) -> bool {
        match self {
            Self::Env(error) => error.retryable(),
            Self::Refused(error) => error.retryable(),
            _ => false,
        }
    }

    /// Whether the read may have changed something although it failed: never.
    #[must_use]
    pub const fn may_have_been_applied(&self) -> bool {
        false
    }

    /// Whether bytes of the store are not what was written there.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        match self {
            Self::BadFile { .. } | Self::BrokenRecord { .. } | Self::IncompleteQueues { .. } => true,
            Self::Refused(error) => error.is_damage(),
            _ => false,
        }
    }
}

/// Messages `start..end` of a queue that were asked for and are not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingRange {
    /// Topic of the queue.
    pub topic: Arc<str>,
    /// Queue within the topic.
    pub queue_id: u32,
    /// First message that is not there.
    pub start: QueueOffset,
    /// Offset after the last one.
    pub end: QueueOffset,
    /// Why they are not there, for a person.
    pub reason: String,
}

impl MissingRange {
    fn is_continued_by(&self, next: &Self) -> bool {
        (&self.topic, self.queue_id, self.end, &self.reason)
            == (&next.topic, next.queue_id, next.start, &next.reason)
    }
}

/// A part of one queue: `start..end`, both queue offsets. Plain data, made to travel to a worker.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct QueueRange {
    /// Topic of the queue.
    pub topic: String,
    /// Queue within the topic.
    pub queue_id: u32,
    /// First offset of the part.
    pub start: QueueOffset,
    /// Offset behind its last one.
    pub end: QueueOffset,
    /// Length of its records as far as it is known without reading them all.
    pub estimated_bytes: u64,
}

/// The parts of a topic to read. The default is all of it.
#[derive(Debug, Clone, Default)]
pub struct RangeOptions {
    /// Only these queues.
    pub queues: Option<Vec<u32>>,
    /// First queue offset by queue id; a queue that is not named starts at its oldest message.
    pub starts: BTreeMap<u32, QueueOffset>,
    /// Queue offset to stop before, by queue id; a queue that is not named ends where it ends now.
    pub ends: BTreeMap<u32, QueueOffset>,
    /// Stored at or after this time, in milliseconds.
    pub stored_from_ms: Option<i64>,
    /// Stored before this time, in milliseconds.
    pub stored_before_ms: Option<i64>,
    /// Whether a start or an end outside the queue is an error or is moved to the queue's bounds.
    pub missing: Missing,
}

/// How finely ranges are cut for workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SliceOptions {
    /// Bytes of records that a slice should have.
    pub target_bytes: u64,
    /// Minimum number of slices, as long as each has 1 MiB to read.
    pub min_slices: u64,
}

/// Treatment of missing or broken messages in a scan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Missing {
    /// Ends with an error.
    #[default]
    Fail,
    /// Goes on behind them; [`RangeScan::take_missing`] lists them.
    Skip,
}

/// How ranges are read.
#[derive(Debug, Clone)]
pub struct ScanOptions {
    /// Only records whose queue entry passes. The caller applies the filter again to each record.
    pub filter: MessageFilter,
    /// Whether each record's checksum is compared. Where the checkpoint says that all records have one of their own, a record
    /// without it is damaged.
    pub verify: bool,
    /// Maximum number of bytes of the log in one block. A larger record is a block of its own.
    pub block_bytes: usize,
    /// Treatment of missing or broken messages.
    pub missing: Missing,
}

impl Default for ScanOptions {
    fn default() -> Self {
        Self { filter: MessageFilter::All, verify: true, block_bytes: 2 << 20, missing: Missing::Fail }
    }
}

/// Some records of a scan, in the order of the log.
#[derive(Debug, Clone, Copy)]
pub struct RecordBlock<'a> {
    /// Bytes of the log that hold the records, and some between them.
    pub bytes: &'a [u8],
    /// Where each record is in `bytes`.
    pub records: &'a [BlockRecord],
}

/// Where a record is in its block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockRecord {
    /// Which of the scan's ranges it belongs to.
    pub range: usize,
    /// Its entry in its queue.
    pub queue_offset: QueueOffset,
    /// Where it starts in the bytes of the block.
    pub start: u32,
    /// Its length.
    pub size_bytes: u32,
}

impl<'a> RecordBlock<'a> {
    /// The bytes of each record.
    pub fn iter(&self) -> impl Iterator<Item = (&'a BlockRecord, &'a [u8])> {
        let bytes = self.bytes;
        self.records.iter().map(move |record| {
            let start = record.start as usize;
            (record, &bytes[start..start + record.size_bytes as usize])
        })
    }
}

/// A topic of a store with its queues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicSummary {
    /// Name of the topic.
    pub topic: Arc<str>,
    /// Queue id and bounds, by queue id.
    pub queues: Vec<(u32, QueueBounds)>,
}

/// Reads a store folder without a server.
///
/// Everything is read by position. A file that is cut or removed meanwhile is an error or a missing message, and never
/// crashes the process. No file stays open between calls.
#[derive(Debug)]
pub struct StoreReader<D: Disk = RealDisk> {
    pub(crate) disk: Arc<D>,
    root: PathBuf,
    /// `commitlog` below the root, unless the configuration of the store's broker says otherwise; at least one.
    log_dirs: Vec<PathBuf>,
}

impl StoreReader {
    /// Opens a folder: `commitlog` and `consumequeue` below it.
    ///
    /// # Errors
    /// [`ReadError::NotAStore`], [`ReadError::LogElsewhere`] when there is no log.
    pub fn open(root: impl AsRef<Path>) -> Result<Self, ReadError> {
        Self::open_on(RealDisk, root.as_ref(), None)
    }

    /// Opens a folder whose log is elsewhere, as with the broker's key `storePathCommitLog`: in one folder, or in
    /// several separated by commas.
    ///
    /// # Errors
    /// [`ReadError::NotAStore`] when there is no such folder.
    pub fn open_with_log(root: impl AsRef<Path>, log_dir: impl AsRef<Path>) -> Result<Self, ReadError> {
        Self::open_on(RealDisk, root.as_ref(), Some(log_dir.as_ref()))
    }

    /// Opens a folder whose log is in these folders; at least one.
    ///
    /// # Errors
    /// [`ReadError::NotAStore`] names the first folder that is not there.
    pub fn open_in(root: impl AsRef<Path>, log_dirs: Vec<PathBuf>) -> Result<Self, ReadError> {
        let root = root.as_ref().to_path_buf();
        for path in [&root].into_iter().chain(&log_dirs) {
            if !is_folder(&RealDisk, path)? {
                return Err(ReadError::NotAStore { path: path.clone() });
            }
        }
        Ok(Self { disk: Arc::new(RealDisk), root, log_dirs })
    }
}

impl<D: Disk> StoreReader<D> {
    /// Opens a folder of any disk, with its log in `commitlog` below it or in the folder given.
    ///
    /// # Errors
    /// [`ReadError::NotAStore`], [`ReadError::LogElsewhere`] when there is no log.
    pub fn open_on(disk: D, root: &Path, log_dir: Option<&Path>) -> Result<Self, ReadError> {
        if !is_folder(&disk, root)? {
            return Err(ReadError::NotAStore { path: root.to_path_buf() });
        }
        let log_dirs = log_dirs(&disk, root, log_dir)?;
        if are_folders(&disk, &log_dirs)? {
            return Ok(Self { disk: Arc::new(disk), root: root.to_path_buf(), log_dirs });
        }
        if log_dir.is_none() && is_folder(&disk, &root.join("consumequeue"))? {
            return Err(ReadError::LogElsewhere { path: root.to_path_buf() });
        }
        Err(ReadError::NotAStore { path: log_dir.unwrap_or(root).to_path_buf() })
    }

    /// The folder.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The disk that the folder is on.
    #[must_use]
    pub fn disk(&self) -> &Arc<D> {
        &self.disk
    }

    /// The folders of the log, at least one.
    #[must_use]
    pub fn log_dirs(&self) -> &[PathBuf] {
        &self.log_dirs
    }

    /// The topics with their queues, by name.
    ///
    /// # Errors
    /// When a file operation fails.
    pub fn topics(&self) -> Result<Vec<TopicSummary>, ReadError> {
        let mut log = self.open_log()?;
        let names = self.folders(&self.queues_dir())?;
        names.into_iter().map(|topic| self.summary(&topic, &mut log)).collect()
    }

    /// One topic with its queues.
    ///
    /// # Errors
    /// [`ReadError::UnknownTopic`]; or a file operation failed.
    pub fn topic(&self, topic: &str) -> Result<TopicSummary, ReadError> {
        self.check_topic(topic)?;
        self.summary(topic, &mut self.open_log()?)
    }

    fn summary(&self, topic: &str, log: &mut LogFiles<D>) -> Result<TopicSummary, ReadError> {
        let mut queues = Vec::new();
        for queue_id in self.queue_ids(topic)? {
            queues.push((queue_id, self.open_queue(topic, queue_id, log)?.bounds));
        }
        Ok(TopicSummary { topic: topic.into(), queues })
    }

    /// Reads ranges of any topics and queues, in one pass over the log.
    ///
    /// # Errors
    /// When a file operation fails; [`ReadError::Missing`] for messages that are not there under [`Missing::Fail`].
    pub fn scan(&self, ranges: &[QueueRange], options: ScanOptions) -> Result<RangeScan<D>, ReadError> {
        RangeScan::new(self, ranges, options)
    }

    /// Lists the files of the log, after a look at checkpoint and abort file.
    ///
    /// # Errors
    /// When a file operation fails.
    pub fn open_log(&self) -> Result<LogFiles<D>, ReadError> {
        LogFiles::list(Arc::clone(&self.disk), self.log_dirs.clone(), self.condition()?)
    }

    /// Current content of the checkpoint and the abort file.
    pub fn condition(&self) -> Result<Condition, ReadError> {
        Condition::read(&*self.disk, &self.root)
    }

    /// Opens a queue with the bounds that it has now.
    ///
    /// # Errors
    /// [`ReadError::UnknownTopic`]; or a file operation failed.
    pub fn open_queue(
        &self,
        topic: &str,
        queue_id: u32,
        log: &mut LogFiles<D>,
    ) -> Result<QueueFiles<D>, ReadError> {
        self.check_topic(topic)?;
        let dir = self.queues_dir().join(topic).join(queue_id.to_string());
        QueueFiles::open(Arc::clone(&self.disk), dir, topic.into(), queue_id, log)
    }

    /// Compares all queues with the mark with which the store was closed, if there is one.
    ///
    /// # Errors
    /// [`ReadError::IncompleteQueues`]: files of queues are missing or damaged. Messages of any topic may be missing.
    pub fn check_queues(&self, log: &mut LogFiles<D>) -> Result<(), ReadError> {
        let Some(mark) = log.condition.closing_mark() else {
            return Ok(());
        };
        let (mut entries, mut firsts) = (0, 0);
        for topic in self.topic_names()? {
            for queue_id in self.queue_ids(&topic)? {
                let queue = self.open_queue(&topic, queue_id, log)?;
                entries += queue.bounds.max.get();
                firsts += queue.first().get();
            }
        }
        // A server may have opened the store meanwhile. Then a difference is no loss.
        let is_closed = || Ok::<_, ReadError>(self.condition()?.closing_mark() == Some(mark));
        if (entries, firsts) == (mark.entries, mark.firsts) || !is_closed()? {
            return Ok(());
        }
        Err(ReadError::IncompleteQueues {
            path: self.queues_dir(),
            found: entries.saturating_sub(firsts),
            expected: mark.entries.saturating_sub(mark.firsts),
        })
    }

    /// Names of the topics that have queues.
    pub fn topic_names(&self) -> Result<Vec<String>, ReadError> {
        let mut names = self.folders(&self.queues_dir())?;
        names.retain(|name| check_topic(name).is_ok());
        Ok(names)
    }

    /// The queues of a topic.
    pub fn queue_ids(&self, topic: &str) -> Result<BTreeSet<u32>, ReadError> {
        let names = self.folders(&self.queues_dir().join(topic))?;
        Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
    }

    /// The folder of the consume queues.
    pub fn queues_dir(&self) -> PathBuf {
        self.root.join("consumequeue")
    }

    /// Refuses an invalid name before it becomes a path, and a name that has no folder and is not in the broker's table of topics.
    fn check_topic(&self, topic: &str) -> Result<(), ReadError> {
        let unknown = || ReadError::UnknownTopic { topic: topic.to_owned(), path: self.root.clone() };
        check_topic(topic).map_err(|_not_a_name| unknown())?;
        let is_known = is_folder(&*self.disk, &self.queues_dir().join(topic))? || self.is_in_table(topic)?;
        if is_known { Ok(()) } else { Err(unknown()) }
    }

    /// Whether the broker's table names the topic: then the topic is there and empty. A table that does not parse names none.
    fn is_in_table(&self, topic: &str) -> Result<bool, ReadError> {
        let path = self.root.join("config/topics.json");
        let text = match self.disk.read(&path, MAX_TABLE_BYTES) {
            Err(error) if error.is_not_found() => return Ok(false),
            other => other?,
        };
        let table = json::from_slice::<TopicConfigFile>(&text);
        Ok(table.is_ok_and(|table| table.topic_config_table.contains_key(topic)))
    }

    /// Names of the folders in a folder.
    pub(crate) fn folders(&self, dir: &Path) -> Result<Vec<String>, ReadError> {
        let entries = match self.disk.list(dir) {
            Err(error) if error.is_not_found() => return Ok(Vec::new()),
            other => other?,
        };
        let folders = entries.into_iter().filter(|entry| entry.kind == EntryKind::Folder);
        Ok(folders.filter_map(|entry| entry.name.into_string().ok()).collect())
    }
}

/// Whether a path is a folder. A missing path is not.
fn is_folder<D: Disk>(disk: &D, path: &Path) -> Result<bool, ReadError> {
    match disk.list(path) {
        Ok(_) => Ok(true),
        Err(EnvError::NotFound { .. } | EnvError::NotAFolder { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn are_folders<D: Disk>(disk: &D, paths: &[PathBuf]) -> Result<bool, ReadError> {
    for path in paths {
        if !is_folder(disk, path)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The folders of a log, at least one: `commitlog` below the root, or those that the user gave, separated by commas.
pub fn log_dirs<D: Disk>(disk: &D, root: &Path, named: Option<&Path>) -> Result<Vec<PathBuf>, ReadError> {
    let Some(named) = named else { return Ok(vec![root.join("commitlog")]) };
    let parts = named.to_str().into_iter().flat_map(|text| text.split(','));
    let dirs: Vec<_> = parts.map(str::trim).filter(|part| !part.is_empty()).map(PathBuf::from).collect();
    let is_one = dirs.len() < 2 || is_folder(disk, named)?; // a name may hold a comma
    Ok(if is_one { vec![named.to_path_buf()] } else { dirs })
}
