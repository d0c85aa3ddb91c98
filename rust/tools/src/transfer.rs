//! Appends messages of one store, or of any source, to another store.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rocketpy_env::{Disk, EnvError, RealDisk};
use rocketpy_model::{PhysicalOffset, name, system};
use rocketpy_protocol::record::RecordView;
use rocketpy_store::files::{DelayTables, StreamFiles, counts_in_queue, log_dirs};
use rocketpy_store::reader::{ReadError, StoreReader};
use rocketpy_store::{AppendError, DelayLevels, NewRecord, Store, StoreConfig};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::config_file::{ConfigFile, Main, beside, parse};
use crate::queues::usual_file_size;
use crate::repair::FILLER_TOPIC;
use crate::{Selected, ToolError, WaitingCounts, Watch};

/// A JSON object.
type Table = Map<String, Value>;
/// Its member with the topics.
const TOPICS: &str = "topicConfigTable";
/// Largest table of topics.
const TABLE_BYTES: u64 = 1 << 30;
/// A topic has no more queues.
const MOST_QUEUES: u32 = 16_384;
/// Rejected messages that a report names.
const MOST_REJECTIONS: usize = 100;
/// How long an append waits for a log file that is being made, at most.
const PATIENCE: Duration = Duration::from_secs(60);

/// What went into a store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TransferReport {
    /// Messages that were stored.
    pub messages: u64,
    /// Length of their bodies.
    pub body_bytes: u64,
    /// Messages of each topic.
    pub topics: BTreeMap<String, u64>,
    /// Messages that wait, beside those; stored where they wait again.
    pub waiting: WaitingCounts,
    /// Records that are not messages of users: those of system topics, and prepared and rolled back ones.
    pub passed_over: u64,
    /// Damaged records that were left out.
    pub left_out: u64,
    /// Topics that were added to the table of topics.
    pub new_topics: Vec<String>,
    /// Messages that the store cannot take, for their size, topic or queue, and that were skipped.
    pub rejected: u64,
    /// The first 100 of them by name, each with the reason.
    pub rejections: Vec<String>,
}

/// A store that receives messages. No server has it open.
pub struct Transfer {
    store: Arc<Store>,
    /// Queues of each topic.
    queues: BTreeMap<String, u32>,
    report: TransferReport,
}

impl Transfer {
    /// Opens the store, or makes it. Its new files have the sizes of its own files, or of those of `like` if it has
    /// none; then it has the delay levels of `like` as well. Its log lies in `commitlog` below the root, or in the given folders, separated by commas.
    ///
    /// # Errors
    /// [`ReadError::NotAStore`] and [`ReadError::LogElsewhere`] when there are queues but no log;
    /// [`rocketpy_store::StoreError::Locked`] and the other errors of a start.
    pub fn open(root: &Path, log_dir: Option<&Path>, like: Option<&StoreReader>) -> Result<Self, ToolError> {
        let own = match StoreReader::open_on(RealDisk, root, log_dir) {
            Err(ReadError::NotAStore { .. }) if !has_queues(root)? => None,
            other => Some(other?),
        };
        let mut dirs = log_dirs(&RealDisk, root, log_dir)?.into_iter();
        let mut config = StoreConfig {
            commit_log_dir: dirs.next(),
            more_commit_log_dirs: dirs.collect(),
            ..StoreConfig::new(root)
        };
        for reader in [own.as_ref(), like].into_iter().flatten() {
            if take_file_sizes(&mut config, reader)? {
                break;
            }
        }
        let levels = match (&own, like) {
            (None, Some(like)) => levels_of(like)?,
            _ => None,
        };
        let store = Store::open(config)?;
        if let Some(levels) = levels {
            store.set_delay_levels(levels, PhysicalOffset::ZERO)?;
        }
        Ok(Self { store, queues: BTreeMap::new(), report: TransferReport::default() })
    }

    /// [`Transfer::open`] for a store that is not there yet.
    ///
    /// # Errors
    /// [`ToolError::TargetNotEmpty`]: a folder is not empty.
    pub fn make(root: &Path, log_dir: Option<&Path>, like: Option<&StoreReader>) -> Result<Self, ToolError> {
        for dir in [root.to_path_buf()].into_iter().chain(log_dirs(&RealDisk, root, log_dir)?) {
            if !is_empty(&dir)? {
                return Err(ToolError::TargetNotEmpty { path: dir });
            }
        }
        Self::open(root, log_dir, like)
    }

    /// Appends one message. Topic, queue, body, properties, flag and the producer's fields are kept. Its offsets and
    /// store time are new. Skips records that are not messages of users, and counts them. A message that the store cannot
    /// take is skipped, and reported by its name.
    ///
    /// # Errors
    /// [`ToolError::Refused`].
    pub fn append(&mut self, record: &NewRecord<'_>, name: impl FnOnce() -> String) -> Result<(), ToolError> {
        // A message that waited in a system topic may have been delivered, and marks of transactions name offsets of their own store.
        if !counts_in_queue(record.sys_flag)
            || system::is_system_topic(record.topic)
            || record.topic == FILLER_TOPIC
        {
            self.report.passed_over += 1;
            return Ok(());
        }
        if record.queue_id >= MOST_QUEUES {
            let cause = format!("queue_id exceeds the maximum {}: {}", MOST_QUEUES - 1, record.queue_id);
            self.reject(&name(), &cause);
            return Ok(());
        }
        if !self.store(record, name)? {
            return Ok(());
        }
        self.report.messages += 1;
        self.report.body_bytes += record.body.len() as u64;
        match self.report.topics.get_mut(record.topic) {
            Some(count) => *count += 1,
            None => drop(self.report.topics.insert(record.topic.to_owned(), 1)),
        }
        self.needs(record.topic, record.queue_id);
        Ok(())
    }

    /// Whether the message was stored; otherwise it was rejected.
    fn store(&mut self, record: &NewRecord<'_>, name: impl FnOnce() -> String) -> Result<bool, ToolError> {
        let number = self.report.messages;
        let refused = |cause| ToolError::Refused { number, cause };
        let started = std::time::Instant::now();
        loop {
            match self.store.append(record) {
                Ok(_) => return Ok(true),
                Err(
                    AppendError::Busy { .. }
                    | AppendError::Behind { .. }
                    | AppendError::DispatchBehind { .. },
                ) if started.elapsed() < PATIENCE => {}
                Err(cause) if cause.rejects_message() => {
                    self.reject(&name(), &cause.to_string());
                    return Ok(false);
                }
                Err(cause) => return Err(refused(cause)),
            }
        }
    }

    fn reject(&mut self, name: &str, cause: &str) {
        self.report.rejected += 1;
        if self.report.rejections.len() < MOST_REJECTIONS {
            self.report.rejections.push(format!("{name}: {cause}"));
        }
    }

    /// Notes that the topic has to have the queue.
    fn needs(&mut self, topic: &str, queue_id: u32) {
        match self.queues.get_mut(topic) {
            Some(queues) => *queues = (*queues).max(queue_id + 1),
            None => drop(self.queues.insert(topic.to_owned(), queue_id + 1)),
        }
    }

    /// Appends the messages of another store, in the order of its log.
    ///
    /// # Errors
    /// Those of reading, [`ToolError::Refused`], and [`ToolError::Interrupted`] once a message was stored.
    pub fn append_all<D: Disk>(&mut self, mut from: Selected<D>, watch: Watch<'_>) -> Result<(), ToolError> {
        let (waiting, behind) = from.take_waiting();
        self.append_each(&mut from, watch, |transfer, view| match waiting.destination(view) {
            Some(destination) => transfer.append_waiting(view, destination),
            None => transfer.append(&as_new(view), || name_of(view)),
        })?;
        let Some(mut behind) = behind else { return Ok(()) };
        self.append_each(&mut behind, watch, |transfer, view| {
            let wanted =
                waiting.destination(view).filter(|(topic, queue_id)| from.wants_for(topic, *queue_id));
            wanted.map_or(Ok(()), |destination| transfer.append_waiting(view, destination))
        })
    }

    fn append_each<D: Disk>(
        &mut self,
        from: &mut Selected<D>,
        watch: Watch<'_>,
        append: impl Fn(&mut Self, &RecordView<'_>) -> Result<(), ToolError>,
    ) -> Result<(), ToolError> {
        let left_out = self.report.left_out;
        loop {
            let has_more = from
                .step(|view| append(self, view))
                .map_err(|cause| interrupted(self.report.messages, cause))?;
            self.report.left_out = left_out + from.left_out();
            if !has_more {
                return Ok(());
            }
            watch(from.progress()).then_some(()).ok_or(ToolError::Stopped)?;
        }
    }

    /// Appends a message that waits, where it waits. It goes to another queue in the end, which has to be there then.
    fn append_waiting(
        &mut self,
        view: &RecordView<'_>,
        (topic, queue_id): (&str, u32),
    ) -> Result<(), ToolError> {
        if !self.store(&as_new(view), || name_of(view))? {
            return Ok(());
        }
        self.report.waiting.add(view);
        if name::check_topic(topic).is_ok() && queue_id < MOST_QUEUES {
            self.needs(topic, queue_id);
        }
        Ok(())
    }

    /// Closes the store and enters its topics into the table of topics, with the settings that `like` has for them. On
    /// return what was appended is durable.
    ///
    /// # Errors
    /// The messages are stored; the next start recovers them.
    pub fn finish(mut self, like: Option<&Path>) -> Result<TransferReport, ToolError> {
        let closed = self.close(like);
        closed.map_err(|cause| interrupted(self.report.messages, cause))?;
        Ok(self.report)
    }

    fn close(&mut self, like: Option<&Path>) -> Result<(), ToolError> {
        let root = self.store.config().root.clone();
        self.store.shutdown()?;
        self.report.new_topics = add_topics(&root, like, &self.queues)?;
        Ok(())
    }
}

fn name_of(view: &RecordView<'_>) -> String {
    format!("topic {}, queue {}, offset {}", view.topic, view.queue_id, view.queue_offset)
}

/// The record with new offsets and a new store time.
fn as_new<'a>(view: &RecordView<'a>) -> NewRecord<'a> {
    NewRecord {
        topic: view.topic,
        queue_id: view.queue_id,
        flag: view.flag,
        sys_flag: view.sys_flag,
        born_at_ms: view.born_at_ms,
        born_host: view.born_host,
        reconsume_times: view.reconsume_times,
        prepared_transaction_offset: PhysicalOffset::ZERO,
        body: view.body,
        properties: view.properties,
        may_have_crc: true,
    }
}

/// Turns an error after the first message into [`ToolError::Interrupted`]. Keeps one that states the progress itself,
/// and a stop by the caller.
fn interrupted(messages: u64, cause: ToolError) -> ToolError {
    match cause {
        ToolError::Refused { .. } | ToolError::Stopped => cause,
        _ if messages == 0 => cause,
        _ => ToolError::Interrupted { messages, cause: Box::new(cause) },
    }
}

/// The delay levels by which messages wait in a store, if it says so.
fn levels_of(reader: &StoreReader) -> Result<Option<DelayLevels>, ToolError> {
    let tables = DelayTables::read(&**reader.disk(), reader.root(), &DelayLevels::default())?;
    Ok(tables.is_stored().then(|| tables.latest()))
}

/// Whether a folder is missing or empty.
fn is_empty(dir: &Path) -> Result<bool, EnvError> {
    match RealDisk.list(dir) {
        Err(error) if error.is_not_found() => Ok(true),
        other => Ok(other?.is_empty()),
    }
}

/// Whether there are consume queues. If so, their log must be somewhere.
fn has_queues(root: &Path) -> Result<bool, EnvError> {
    Ok(!is_empty(&root.join("consumequeue"))?)
}

/// Takes the sizes of the files of a store; false when it has no log file yet.
///
/// The size of an index file does not determine how many slots and entries it has. Our checkpoint states them. If
/// another program wrote last with other numbers than the defaults, the index is rebuilt.
fn take_file_sizes(config: &mut StoreConfig, reader: &StoreReader) -> Result<bool, ToolError> {
    let log = reader.open_log()?;
    let Some(log_file) = log.files.files().first() else { return Ok(false) };
    config.commit_log_file_size = log_file.size_bytes;
    if let Some(index) = log.condition.mark.and_then(|mark| mark.index) {
        (config.index_slots, config.index_entries) = (index.geometry.slots, index.geometry.entries);
    }
    let mut sizes = Vec::new();
    for topic in reader.topic_names()? {
        for queue_id in reader.queue_ids(&topic)? {
            let dir = reader.queues_dir().join(&topic).join(queue_id.to_string());
            let files = StreamFiles::list_all(Arc::clone(reader.disk()), vec![dir])?;
            sizes.extend(files.files().iter().map(|file| file.size_bytes));
        }
    }
    if let Some(size_bytes) = usual_file_size(sizes) {
        config.consume_queue_file_size = size_bytes;
    }
    Ok(true)
}

/// Enters topics that a table of topics lacks, and raises their number of queues where it is too low. Returns the new
/// ones.
fn add_topics(
    root: &Path,
    like: Option<&Path>,
    queues: &BTreeMap<String, u32>,
) -> Result<Vec<String>, ToolError> {
    let path = root.join("config/topics.json");
    let ConfigFile { content, main } = read_topics(&path)?;
    let is_new = content.is_none();
    let mut table = content.unwrap_or_default();
    let like = match like {
        Some(like) => read_topics(&like.join("config/topics.json"))?.content,
        None => None,
    };
    let topics = table.entry(TOPICS).or_insert_with(|| json!({}));
    let topics = topics.as_object_mut().expect("a table is read with its topics");
    let mut added = Vec::new();
    let mut has_changed = false;
    for (topic, &count) in queues {
        if !topics.contains_key(topic) {
            let known = like.as_ref().and_then(|table| table.get(TOPICS)?.get(topic));
            topics.insert(topic.clone(), known.cloned().unwrap_or_else(|| plain_topic(topic)));
            added.push(topic.clone());
            has_changed = true;
        }
        if let Some(config) = topics.get_mut(topic).and_then(Value::as_object_mut) {
            has_changed |= raise(config, "readQueueNums", count) | raise(config, "writeQueueNums", count);
        }
    }
    if has_changed {
        RealDisk.create_dir_all(&root.join("config"))?;
        let text = serde_json::to_vec_pretty(&table).expect("what was JSON becomes JSON");
        // Only a good file becomes the backup.
        if let Main::Damaged(bytes) = &main {
            RealDisk.replace(&beside(&path, "damaged"), bytes)?;
        }
        match main {
            Main::Good => RealDisk.replace_keeping_backup(&path, &text)?,
            Main::Empty | Main::Damaged(_) => RealDisk.replace(&path, &text)?,
        }
        let offsets = root.join("config/consumerOffset.json");
        if is_new && read_object(&offsets, |_| Ok(()))?.content.is_none() {
            // A broker takes offsets that are missing for lost ones.
            RealDisk.replace(&offsets, br#"{"offsetTable":{}}"#)?;
        }
    }
    Ok(added)
}

/// # Source
/// docs/reference/store-format.md 1.4.
fn plain_topic(topic: &str) -> Value {
    json!({
        "attributes": {}, "order": false, "perm": 6, "readQueueNums": 1, "topicFilterType": "SINGLE_TAG",
        "topicName": topic, "topicSysFlag": 0, "writeQueueNums": 1,
    })
}

/// Raises a number of queues to the needed one.
fn raise(config: &mut Map<String, Value>, name: &str, needed: u32) -> bool {
    let is_enough =
        config.get(name).and_then(Value::as_u64).is_some_and(|queues| queues >= u64::from(needed));
    if !is_enough {
        config.insert(name.to_owned(), json!(needed));
    }
    !is_enough
}

fn read_topics(path: &Path) -> Result<ConfigFile<Table>, ToolError> {
    read_object(path, |table| match table.get(TOPICS) {
        Some(Value::Object(_)) => Ok(()),
        _ => Err(format!("no {TOPICS}")),
    })
}

/// A file, or its backup, that passes the check.
fn read_object(
    path: &Path,
    check: impl Fn(&Table) -> Result<(), String>,
) -> Result<ConfigFile<Table>, ToolError> {
    let parse = |bytes: &[u8]| {
        let table: Table = parse(bytes)?;
        check(&table).map(|()| table)
    };
    let bad = |path, reason| ToolError::BadTopics { path, reason };
    ConfigFile::read(&RealDisk, path, TABLE_BYTES, parse, bad)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    const BEFORE: &[u8] = br#"{"topicConfigTable":{"old":{"readQueueNums":1}}}"#;

    /// A store with a table of topics, if there is one, and with its backup.
    fn with_topics(main: Option<&[u8]>) -> (tempfile::TempDir, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        RealDisk.create_dir_all(&root.path().join("config")).unwrap();
        let path = root.path().join("config/topics.json");
        RealDisk.replace(&beside(&path, "bak"), BEFORE).unwrap();
        if let Some(main) = main {
            RealDisk.replace(&path, main).unwrap();
        }
        (root, path)
    }

    fn add_new(root: &Path, like: Option<&Path>) -> Vec<String> {
        add_topics(root, like, &[("new".to_owned(), 2)].into()).unwrap()
    }

    #[test]
    fn a_missing_blank_or_damaged_table_is_read_from_its_backup() {
        let bad: [&[u8]; 4] = [b"{", b"\xff\xff", b"[]", b"{\"dataVersion\":{}}"];
        for main in [None, Some(b"".as_slice()), Some(b" \n")].into_iter().chain(bad.map(Some)) {
            let (root, path) = with_topics(main);
            assert_eq!(add_new(root.path(), None), ["new"]);
            let table = read_topics(&path).unwrap().content.unwrap();
            assert_eq!(table[TOPICS].as_object().unwrap().len(), 2, "{table:?}");
            assert_eq!(RealDisk.read(&beside(&path, "bak"), 1000).unwrap(), BEFORE, "the backup stays");
            let kept = RealDisk.read(&beside(&path, "damaged"), 1000).ok();
            assert_eq!(kept.as_deref(), main.filter(|main| bad.contains(main)), "a damaged file is kept");
        }
    }

    #[test]
    fn a_damaged_table_of_the_source_is_read_from_its_backup_and_stays_as_it_is() {
        let (like, path) = with_topics(Some(b"{"));
        let target = tempfile::tempdir().unwrap();
        assert_eq!(add_new(target.path(), Some(like.path())), ["new"]);
        assert_eq!(RealDisk.read(&path, 1000).unwrap(), b"{");
    }

    #[test]
    fn a_damaged_table_without_a_good_backup_is_an_error_that_names_it() {
        for (main, backup, named) in
            [("{", "{", "topics.json"), ("{", " ", "topics.json"), ("", "{", "topics.json.bak")]
        {
            let (root, path) = with_topics(Some(main.as_bytes()));
            RealDisk.replace(&beside(&path, "bak"), backup.as_bytes()).unwrap();
            let error = add_topics(root.path(), None, &BTreeMap::new()).unwrap_err();
            assert!(matches!(&error, ToolError::BadTopics { path, .. } if path.ends_with(named)), "{error}");
            let names_both = error.to_string().contains("; its backup: ");
            assert_eq!(names_both, main == "{" && backup == "{", "{error}");
        }
    }

    #[test]
    fn a_transfer_is_retried_only_before_its_first_message() {
        let path = Path::new("/store/commitlog").to_path_buf();
        let cause =
            || ToolError::Read(EnvError::TooManyOpenFiles { operation: "open", path: path.clone() }.into());
        assert!(interrupted(0, cause()).retryable());
        let late = interrupted(7, cause());
        assert!(!late.retryable() && late.may_have_been_applied(), "{late}");
        assert_eq!(late.hint(), cause().hint());
        assert!(late.to_string().starts_with("the transfer ended after 7 messages: "), "{late}");
        assert!(matches!(interrupted(7, ToolError::Stopped), ToolError::Stopped));
    }
}
