//! Small stores, and a check of a folder that shares no code with the store.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use rocketpy_env::{Disk, EntryKind, OpenMode, RealDisk};
use rocketpy_filter::MessageFilter;
use rocketpy_model::{PhysicalOffset, sys_flag};
use rocketpy_protocol::properties_text;
use rocketpy_protocol::record::{CheckMode, RecordCheck, RecordView, check_record, records};
use rocketpy_store::reader::{RangeOptions, StoreReader};
use rocketpy_store::{
    Arrival, Fetch, FlushMode, NewRecord, ReadLimits, Store, StoreConfig, StoreError, StoreListener,
    mark_page,
};

use crate::index_oracle::assert_index_equals_log;

/// Longest a test waits for something that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A store whose files are so small that they roll every few dozen messages, on a disk that may stall.
pub(crate) fn small(root: &Path) -> StoreConfig {
    StoreConfig {
        busy_timeout: PATIENCE,
        commit_log_file_size: 64 << 10,
        consume_queue_file_size: 2000,
        index_slots: 61,
        index_entries: 300,
        ..StoreConfig::new(root)
    }
}

/// The same, but nothing is flushed unless a test asks for it.
pub(crate) fn quiet(root: &Path, flush: FlushMode) -> StoreConfig {
    let hour = Duration::from_secs(3600);
    StoreConfig { flush, flush_interval: hour, checkpoint_interval: hour, ..small(root) }
}

pub(crate) fn record<'a>(topic: &'a str, queue_id: u32, body: &'a [u8]) -> NewRecord<'a> {
    NewRecord {
        topic,
        queue_id,
        flag: 0,
        sys_flag: 0,
        born_at_ms: 1_700_000_000_000,
        born_host: "127.0.0.1:50000".parse().unwrap(),
        reconsume_times: 0,
        prepared_transaction_offset: PhysicalOffset::ZERO,
        body,
        properties: b"TAGS\x01TagA\x02",
        may_have_crc: true,
    }
}

/// Whether a file or folder is there.
pub(crate) fn is_there(path: &Path) -> bool {
    let entries = RealDisk.list(path.parent().unwrap()).unwrap_or_default();
    entries.iter().any(|entry| Some(&*entry.name) == path.file_name())
}

/// Waits until everything that was appended is readable.
pub(crate) fn settle<D: Disk>(store: &Store<D>) {
    let end = store.max_physical_offset();
    store.wait_flushed(end, PATIENCE).unwrap();
    eventually("everything is dispatched", || store.dispatched_offset() >= end);
}

/// Waits until a program that reads the folder beside the store finds everything that was appended.
pub(crate) fn settle_in_files<D: Disk>(store: &Store<D>) {
    settle(store);
    let config = store.config();
    eventually("the entries are in the files of their queues", || {
        let reader = StoreReader::open_with_log(&config.root, config.commit_log_dir()).unwrap();
        store.queues().iter().all(|queue| {
            let ranges = reader.ranges(&queue.topic, &RangeOptions::default()).unwrap_or_default();
            ranges.iter().any(|range| range.queue_id == queue.queue_id && range.end == queue.bounds.max)
                || queue.bounds.min == queue.bounds.max
        })
    });
}

/// Waits until something is so, giving way to the threads that make it so.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "never came true: {what}");
        std::thread::yield_now();
    }
}

/// Does some work while another thread repeats a call.
pub(crate) fn while_repeated<R>(call: impl Fn() + Sync, work: impl FnOnce() -> R) -> R {
    /// Ends the other thread, also where the work panics.
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                call();
                std::thread::yield_now();
            }
        });
        let _stop = Stop(&stop);
        work()
    })
}

pub(crate) const ALL: ReadLimits = ReadLimits { max_messages: 1000, max_bytes: 1 << 20, copies: true };

/// Reads a whole queue, message by message in queue order.
pub(crate) fn read_all<D: Disk>(store: &Store<D>, topic: &str, queue_id: u32) -> Vec<Vec<u8>> {
    let mut bodies = Vec::new();
    let mut next = store.queue_bounds(topic, queue_id).min;
    loop {
        let fetch = store.get(topic, queue_id, next.get() as i64, &ALL, &MessageFilter::All).unwrap();
        let views = views(&fetch);
        for (view, queue_offset) in views.iter().zip(next.get()..) {
            assert_eq!((view.topic, view.queue_id), (topic, queue_id));
            assert_eq!(view.queue_offset.get(), queue_offset);
            bodies.push(view.body.to_vec());
        }
        if views.is_empty() {
            assert_eq!(next, fetch.max_offset);
            return bodies;
        }
        next = fetch.next_offset;
    }
}

/// The records of a read.
pub(crate) fn views(fetch: &Fetch) -> Vec<RecordView<'_>> {
    let views: Vec<_> = fetch.records.iter().flat_map(|bytes| records(bytes)).map(Result::unwrap).collect();
    assert_eq!(views.len(), fetch.count as usize);
    views
}

/// Entries of each queue: physical offset, size, tag code.
pub(crate) type Queues = BTreeMap<(String, u32), Vec<(u64, u32, i64)>>;

/// Checks that every consume queue of a closed folder, and its key index, equals a rebuild from the log, entry by entry, and
/// that nothing lies behind. Returns the queues.
pub(crate) fn assert_queues_equal_log(config: &StoreConfig) -> Queues {
    let rebuilt = queues_of_log(config);
    let stored = queues_on_disk(config);
    let names = |queues: &Queues| queues.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&stored), names(&rebuilt), "queues on disk and in the log");
    for (name, entries) in &rebuilt {
        assert_eq!(&stored[name], entries, "queue {name:?}");
    }
    if config.index {
        assert_index_equals_log(config);
    }
    rebuilt
}

fn queues_of_log(config: &StoreConfig) -> Queues {
    let mut queues = Queues::new();
    let dir = config.commit_log_dir();
    'files: for file in RealDisk.list(&dir).unwrap() {
        let start: u64 = file.name.to_str().unwrap().parse().unwrap();
        let bytes = RealDisk.read(&dir.join(&file.name), 1 << 31).unwrap();
        let mut at = 0;
        while at < bytes.len() {
            match check_record(&bytes[at..], CheckMode::RecordRequired) {
                Ok(RecordCheck::Blank { remaining }) => {
                    assert_eq!(remaining as usize, bytes.len() - at, "the blank record covers the rest");
                    continue 'files;
                }
                Ok(RecordCheck::Record(view)) => {
                    assert_eq!(view.physical_offset.get(), start + at as u64);
                    add(&mut queues, &view);
                    at += view.size();
                }
                Err(_) => {
                    assert!(bytes[at..].iter().all(|&byte| byte == 0), "bytes behind the end of the log");
                    break 'files;
                }
            }
        }
    }
    queues
}

fn add(queues: &mut Queues, view: &RecordView<'_>) {
    if matches!(view.sys_flag & sys_flag::TRANSACTION_MASK, 0 | sys_flag::TRANSACTION_COMMIT) {
        let tags_code = properties_text::get(view.properties, "TAGS").map_or(0, rocketpy_filter::tag_code);
        let queue = queues.entry((view.topic.to_owned(), view.queue_id)).or_default();
        assert_eq!(view.queue_offset.get(), queue.len() as u64, "queue offsets have no gap and no repeat");
        queue.push((view.physical_offset.get(), view.size() as u32, tags_code));
    }
}

fn queues_on_disk(config: &StoreConfig) -> Queues {
    let mut queues = Queues::new();
    let root = config.root.join("consumequeue");
    for topic in RealDisk.list(&root).unwrap() {
        for queue in RealDisk.list(&root.join(&topic.name)).unwrap() {
            let dir = root.join(&topic.name).join(&queue.name);
            let name =
                (topic.name.to_str().unwrap().to_owned(), queue.name.to_str().unwrap().parse().unwrap());
            let mut bytes = Vec::new();
            for file in RealDisk.list(&dir).unwrap() {
                assert_eq!((file.kind, file.size_bytes), (EntryKind::File, config.consume_queue_file_size));
                assert_eq!(file.name.to_str().unwrap(), format!("{:020}", bytes.len()));
                bytes.extend(RealDisk.read(&dir.join(file.name), 1 << 31).unwrap());
            }
            let mut entries: Vec<_> = bytes.as_chunks::<20>().0.iter().map(entry).collect();
            while entries.last() == Some(&(0, 0, 0)) {
                entries.pop();
            }
            queues.insert(name, entries);
        }
    }
    queues
}

fn entry(bytes: &[u8; 20]) -> (u64, u32, i64) {
    let phy = u64::from_be_bytes(*bytes[..8].first_chunk().unwrap());
    let size = u32::from_be_bytes(*bytes[8..12].first_chunk().unwrap());
    (phy, size, i64::from_be_bytes(*bytes[12..].first_chunk().unwrap()))
}

/// Removes the first file of the log of a closed store as retention does: the marks know of it.
pub(crate) fn retire_first_log_file(config: &StoreConfig) {
    let log_from = PhysicalOffset(config.commit_log_file_size);
    edit_checkpoint(&config.root, |page| mark_page::set_log_from(page, log_from));
    RealDisk.remove_file(&config.commit_log_dir().join(format!("{:020}", 0))).unwrap();
}

/// Takes the durable marks away, as if another program had written the checkpoint.
pub(crate) fn erase_mark(root: &Path) {
    edit_checkpoint(root, mark_page::erase);
}

/// Changes bytes of the checkpoint.
pub(crate) fn edit_checkpoint(root: &Path, edit: impl FnOnce(&mut [u8])) {
    let path = root.join("checkpoint");
    let mut page = RealDisk.read(&path, 1 << 20).unwrap();
    edit(&mut page);
    overwrite(&path, 0, &page);
}

/// Overwrites bytes of a file, as damage does.
pub(crate) fn overwrite(path: &Path, at: u64, bytes: &[u8]) {
    use rocketpy_env::DiskFile as _;
    let file = RealDisk.open_file(path, OpenMode::Write).unwrap();
    file.write_all_at(at, bytes).unwrap();
    file.sync().unwrap();
}

/// Every file below a folder with its bytes, for a look at whether anything changed.
pub(crate) fn contents(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in RealDisk.list(dir).unwrap() {
        let path = dir.join(&entry.name);
        match entry.kind {
            EntryKind::Folder => found.extend(contents(&path)),
            _ => drop(found.insert(path.display().to_string(), RealDisk.read(&path, 1 << 31).unwrap())),
        }
    }
    found
}

/// Copies the folder of an open store, as a kill at this moment would leave it.
pub(crate) fn killed_copy(from: &Path, to: &Path) {
    for (path, bytes) in contents(from) {
        let path = to.join(Path::new(&path).strip_prefix(from).unwrap());
        RealDisk.create_dir_all(path.parent().unwrap()).unwrap();
        RealDisk.replace(&path, &bytes).unwrap();
    }
}

/// A listener that passes on what it receives.
pub(crate) struct Told {
    arrivals: Sender<Arrival>,
    pub flushed: Sender<u64>,
    pub poisoned: Sender<String>,
}

pub(crate) struct Heard {
    pub arrivals: Receiver<Arrival>,
    pub flushed: Receiver<u64>,
    pub poisoned: Receiver<String>,
}

pub(crate) fn listener() -> (Arc<Told>, Heard) {
    let (arrivals, heard_arrivals) = channel();
    let (flushed, heard_flushed) = channel();
    let (poisoned, heard_poisoned) = channel();
    let heard = Heard { arrivals: heard_arrivals, flushed: heard_flushed, poisoned: heard_poisoned };
    (Arc::new(Told { arrivals, flushed, poisoned }), heard)
}

impl StoreListener for Told {
    fn flushed(&self, offset: PhysicalOffset) {
        let _ = self.flushed.send(offset.get());
    }

    fn arrived(&self, arrivals: &[Arrival]) {
        for arrival in arrivals {
            let _ = self.arrivals.send(arrival.clone());
        }
    }

    fn poisoned(&self, error: &StoreError) {
        let _ = self.poisoned.send(error.to_string());
    }
}
