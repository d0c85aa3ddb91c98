//! A store whose files hold any bytes: a start, reads, tools and repair end with an answer or with a typed error.
//!
//! The first byte of an input says what kind of store it is in; the rest takes the place of the first bytes of one file.

use rocketpy_env::sim::{SimDisk, SimOptions};
use rocketpy_filter::MessageFilter;
use rocketpy_model::PhysicalOffset;
use rocketpy_protocol::disk::Checkpoint;
use rocketpy_protocol::record::records;
use rocketpy_store::reader::StoreReader;
use rocketpy_store::{KeyKind, NewRecord, ReadLimits, Store, StoreConfig, StoreError, mark_page};
use rocketpy_tools as tools;

use super::store_sample::{ROOT, append, config, disk_with};

/// Bits of the first byte: the store was closed in order; checksums are made right; the file ends with the input; records need
/// no check of their own.
pub(super) const CLOSED: u8 = 1;
const RIGHT_SUMS: u8 = 2;
const SHORT: u8 = 4;
const NO_RECORD_CHECK: u8 = 8;

/// Most reads of a queue.
const READS: u32 = 100;

/// Runs a store in which the first file of a part holds the input; `mend` makes its checksums right.
fn run(bytes: &[u8], part: &str, mend: fn(&mut [u8])) {
    let Some((&options, content)) = bytes.split_first() else { return };
    let is = |bit| options & bit != 0;
    let disk = disk_with(is(CLOSED), part, |before| {
        let mut file = content[..content.len().min(before.len())].to_vec();
        if !is(SHORT) {
            file.resize(before.len(), 0);
        }
        if is(RIGHT_SUMS) {
            mend(&mut file);
        }
        file
    });
    let config = StoreConfig { record_check: !is(NO_RECORD_CHECK), ..config() };
    inspect(&disk);
    let opened = live(&disk, &config);
    let disk = disk.kill();
    inspect(&disk);
    if opened.is_err() {
        repair(&disk, &config);
    }
}

/// Opens, reads, appends and closes.
fn live(disk: &SimDisk, config: &StoreConfig) -> Result<(), StoreError> {
    let store = Store::open_stepped(disk.clone(), config.clone())?;
    read(&store);
    append(&store, 100);
    let _ = (store.step_flush(), store.step_dispatch(), store.step_checkpoint(), store.step_clean());
    read(&store);
    let _ = store.shutdown();
    Ok(())
}

fn read(store: &Store<SimDisk>) {
    let mut limits = ReadLimits { max_messages: 32, max_bytes: 1 << 20, copies: false };
    for queue in store.queues() {
        limits.copies = queue.queue_id.is_multiple_of(2);
        let mut next = queue.bounds.min;
        for _ in 0..READS {
            let offset = next.get() as i64;
            let Ok(fetch) = store.get(&queue.topic, queue.queue_id, offset, &limits, &MessageFilter::All)
            else {
                break;
            };
            for bytes in &fetch.records {
                assert!(records(bytes).all(|record| record.is_ok()), "what is read are records");
            }
            if fetch.next_offset <= next {
                break;
            }
            next = fetch.next_offset;
        }
        let _ = store.earliest_stored_at(&queue.topic, queue.queue_id);
    }
    for key in ["key1", "key7"] {
        let _ = store.query_by_key("topic", key, KeyKind::Any, &limits, 0, i64::MAX);
    }
    for at in [0, 1, 200, 20_000] {
        let _ = store.record_at(PhysicalOffset(at));
    }
}

/// Reads the folder without a server.
fn inspect(disk: &SimDisk) {
    let Ok(reader) = StoreReader::open_on(disk.clone(), ROOT.as_ref(), None) else { return };
    let _ = reader.topics();
    let _ = tools::facts(&reader, &mut |_| true);
    let _ = tools::verify(&reader, &mut |_| true);
    let _ = tools::plan_repair(&reader, &mut |_| true);
}

/// Repairs a store that did not open, and opens it again. Only a log file of another size may still be refused.
fn repair(disk: &SimDisk, config: &StoreConfig) {
    let Ok(reader) = StoreReader::open_on(disk.clone(), ROOT.as_ref(), None) else { return };
    if tools::repair(&reader, &mut |_| true).is_ok() {
        drop(reader);
        let opened = live(disk, config);
        let may_be_refused =
            |error: &StoreError| !error.is_damage() || matches!(error, StoreError::WrongFileSize { .. });
        assert!(opened.as_ref().err().is_none_or(may_be_refused), "after a repair: {opened:?}");
    }
}

pub(super) fn checkpoint(bytes: &[u8]) {
    run(bytes, "checkpoint", |page| {
        for place in mark_page::places() {
            if let (true, Some(times)) = (place.end <= page.len(), page.first_chunk().copied()) {
                mend_mark(&mut page[place], &times);
            }
        }
    });
}

/// Gives a mark the timestamps of its page and its checksum, as the last 44 bytes but 8 say (`Mark` in rust/store).
fn mend_mark(mark: &mut [u8], times: &[u8; Checkpoint::BYTES]) {
    let (log_from_at, check_at) = (mark.len() - 12, mark.len() - 4);
    mark[log_from_at - times.len()..log_from_at].copy_from_slice(times);
    let check = crc32fast::hash(&mark[..check_at]);
    mark[check_at..].copy_from_slice(&check.to_be_bytes());
}

pub(super) fn index(bytes: &[u8]) {
    run(bytes, "index", |_| ());
}

pub(super) fn queue(bytes: &[u8]) {
    run(bytes, "consumequeue", |_| ());
}

pub(super) fn log(bytes: &[u8]) {
    run(bytes, "commitlog", |_| ());
}

/// A record as `rocketpy store import` gives it to a store: a topic, a line of properties, and the body behind it.
pub(super) fn import(bytes: &[u8]) {
    let mut parts = bytes.splitn(3, |&byte| byte == b'\n');
    let mut part = || parts.next().unwrap_or_default();
    let (Ok(topic), properties, body) = (str::from_utf8(part()), part(), part()) else { return };
    if rocketpy_model::name::check_topic(topic).is_err() {
        return;
    }
    let disk = SimDisk::new(SimOptions::default());
    let store = Store::open_stepped(disk.clone(), config()).expect("an empty disk");
    let record = NewRecord {
        topic,
        queue_id: body.len() as u32 % 5,
        flag: 1,
        sys_flag: body.first().map_or(0, |&byte| i32::from(byte)),
        born_at_ms: i64::from_be_bytes(body.first_chunk().copied().unwrap_or_default()),
        born_host: ([127, 0, 0, 1], 50_000).into(),
        reconsume_times: -1,
        prepared_transaction_offset: PhysicalOffset::ZERO,
        body,
        properties,
        may_have_crc: true,
    };
    let stored = store.append(&record).is_ok();
    let _ = store.append_batch(&record);
    let opened = store.step_flush().is_ok() && store.step_dispatch().is_ok();
    assert!(opened, "a store dispatches what it has taken");
    if stored {
        let found = store.record_at(PhysicalOffset::ZERO).expect("it can be read").expect("it is stored");
        let view = records(&found).next().expect("one record").expect("a sound record");
        assert!((view.topic, view.body) == (topic, body), "a record is read as it was written");
    }
    read(&store);
    drop(store);
    assert!(live(&disk.kill(), &config()).is_ok(), "a store opens again, whatever it has taken");
    inspect(&disk);
}
