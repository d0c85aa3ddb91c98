//! A store folder laid out by hand, so that a test can leave out or damage any part of it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{RecordBatch, RecordBatchReader};
use rocketpy_env::{Disk, DiskFile, OpenMode, RealDisk};
use rocketpy_filter::tag_code;
use rocketpy_model::{PhysicalOffset, QueueOffset};
use rocketpy_protocol::disk::ConsumeQueueEntry;
use rocketpy_protocol::record::{BLANK_HEAD_BYTES, RecordFields, blank_head};
use rocketpy_scan::{PlanOptions, ScanError, Slice, StoreScan, StoreScanOptions, plan};
use rocketpy_store::reader::{QueueRange, StoreReader};
use tempfile::TempDir;

pub(crate) const LOG_FILE_BYTES: u64 = 8192;
pub(crate) const QUEUE_FILE_BYTES: u64 = 20 * 16;
pub(crate) const FIRST_STORED_AT_MS: i64 = 1_700_000_000_000;

/// What there is to say about a message; the rest is the same for all.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sent<'a> {
    pub queue_id: u32,
    pub body: &'a [u8],
    pub tag: Option<&'a str>,
    pub sys_flag: i32,
}

pub(crate) struct Folder {
    root: TempDir,
    pub log: Vec<u8>,
    pub queues: BTreeMap<(String, u32), Vec<ConsumeQueueEntry>>,
    clock_ms: i64,
}

pub(crate) const TOPIC: &str = "flights";

impl Folder {
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        Self { root, log: Vec::new(), queues: BTreeMap::new(), clock_ms: FIRST_STORED_AT_MS }
    }

    pub(crate) fn path(&self) -> &Path {
        self.root.path()
    }

    /// Appends a message to [`TOPIC`], 10 ms after the one before.
    pub(crate) fn push(&mut self, sent: &Sent<'_>) {
        self.push_to(TOPIC, sent);
    }

    pub(crate) fn push_to(&mut self, topic: &str, sent: &Sent<'_>) {
        let host: SocketAddr = "127.0.0.1:10911".parse().unwrap();
        let mut properties = format!("UNIQ_KEY\x01ID{}\x02", self.clock_ms);
        if let Some(tag) = sent.tag {
            properties += &format!("TAGS\x01{tag}\x02");
        }
        let fields = RecordFields {
            topic,
            queue_id: sent.queue_id,
            flag: 7,
            sys_flag: sent.sys_flag,
            born_at_ms: self.clock_ms - 1,
            born_host: host,
            store_host: host,
            reconsume_times: 0,
            prepared_transaction_offset: PhysicalOffset(0),
            body: sent.body,
            properties: properties.as_bytes(),
            may_have_crc: true,
        };
        let mut record = Vec::new();
        let plan = fields.encode(false, &mut record).unwrap();
        self.fill_up_file(plan.size());
        let physical_offset = PhysicalOffset(self.log.len() as u64);
        let entries = self.queues.entry((topic.to_owned(), sent.queue_id)).or_default();
        plan.finish(&mut record, QueueOffset(entries.len() as u64), physical_offset, self.clock_ms);
        let tags_code = sent.tag.map_or(0, tag_code);
        entries.push(ConsumeQueueEntry { physical_offset, size_bytes: plan.size() as u32, tags_code });
        self.log.extend_from_slice(&record);
        self.clock_ms += 10;
    }

    /// Closes the file with a filler when the record does not fit.
    fn fill_up_file(&mut self, size: usize) {
        let used = self.log.len() as u64 % LOG_FILE_BYTES;
        let left = (LOG_FILE_BYTES - used) as usize;
        if size + BLANK_HEAD_BYTES > left {
            self.log.extend_from_slice(&blank_head(left as u32));
            self.log.resize(self.log.len() + left - BLANK_HEAD_BYTES, 0);
        }
    }

    /// Where a message lies in the log.
    pub(crate) fn place(&self, queue_id: u32, number: usize) -> usize {
        self.queues[&(TOPIC.to_owned(), queue_id)][number].physical_offset.get() as usize
    }

    /// Writes all files. The first `removed_log_files` and `removed_queue_files` of each queue are left out.
    pub(crate) fn write(&self, removed_log_files: usize, removed_queue_files: usize) -> StoreReader {
        let log = self.path().join("commitlog");
        write_files(&log, &self.log, LOG_FILE_BYTES, removed_log_files);
        for ((topic, queue_id), entries) in &self.queues {
            let bytes: Vec<u8> = entries.iter().flat_map(ConsumeQueueEntry::encode).collect();
            let dir = self.path().join("consumequeue").join(topic).join(queue_id.to_string());
            write_files(&dir, &bytes, QUEUE_FILE_BYTES, removed_queue_files);
        }
        StoreReader::open(self.path()).unwrap()
    }
}

fn write_files(dir: &Path, bytes: &[u8], file_bytes: u64, removed: usize) {
    RealDisk.create_dir_all(dir).unwrap();
    for (index, part) in bytes.chunks(file_bytes as usize).enumerate().skip(removed) {
        let path = dir.join(format!("{:020}", index as u64 * file_bytes));
        let file = RealDisk.open_file(&path, OpenMode::CreateOrWrite).unwrap();
        file.set_len(file_bytes).unwrap();
        file.write_all_at(0, part).unwrap();
    }
}

/// Everything, in one slice, strictly.
pub(crate) fn everything() -> PlanOptions {
    PlanOptions {
        queues: None,
        stored_from_ms: None,
        stored_before_ms: None,
        starts: Vec::new(),
        ends: Vec::new(),
        slice_bytes: 1 << 30,
        min_slices: 1,
        fail_on_data_loss: true,
    }
}

pub(crate) fn ranges(slices: Vec<Slice>) -> Vec<QueueRange> {
    slices.into_iter().flat_map(|slice| slice.ranges).collect()
}

/// Plans all of [`TOPIC`] and scans it.
pub(crate) fn scan_all(
    reader: &StoreReader,
    options: StoreScanOptions,
) -> Result<Vec<RecordBatch>, ScanError> {
    let planned = plan(reader, TOPIC, &everything())?;
    collect(StoreScan::new(reader, ranges(planned), options)?).map(|(batches, _)| batches)
}

/// All batches, and how many messages were left out.
pub(crate) fn collect(mut scan: StoreScan) -> Result<(Vec<RecordBatch>, u64), ScanError> {
    let mut batches = Vec::new();
    while let Some(batch) = scan.next_batch()? {
        assert!(batch.num_rows() > 0, "a batch is never empty");
        assert_eq!(batch.schema(), scan.schema());
        batches.push(batch);
    }
    let lost = scan.lost().iter().map(|lost| lost.end - lost.start).sum();
    Ok((batches, lost))
}

/// Queue id, queue offset and body of every row.
pub(crate) fn rows(batches: &[RecordBatch]) -> Vec<(i32, i64, String)> {
    let mut rows = Vec::new();
    for batch in batches {
        let queue_ids = batch.column_by_name("queue_id").unwrap().as_primitive::<Int32Type>();
        let offsets = batch.column_by_name("queue_offset").unwrap().as_primitive::<Int64Type>();
        let bodies = batch.column_by_name("body").unwrap().as_binary::<i32>();
        for row in 0..batch.num_rows() {
            let body = String::from_utf8_lossy(bodies.value(row)).into_owned();
            rows.push((queue_ids.value(row), offsets.value(row), body));
        }
    }
    rows
}

pub(crate) fn bodies(batches: &[RecordBatch]) -> Vec<String> {
    rows(batches).into_iter().map(|(_, _, body)| body).collect()
}
