use std::time::{Duration, Instant};

use rocketpy_model::PhysicalOffset;
use rocketpy_scan::{StoreScanOptions, plan};
use rocketpy_store::reader::{QueueRange, StoreReader};
use rocketpy_store::{NewRecord, Store, StoreConfig};

use crate::folder::{TOPIC, bodies, everything, ranges, scan_all};

const PATIENCE: Duration = Duration::from_secs(60);

fn append(store: &Store, number: u32) {
    let body = format!("message {number}");
    let host = "127.0.0.1:10911".parse().unwrap();
    let record = NewRecord {
        topic: TOPIC,
        queue_id: number % 4,
        flag: 0,
        sys_flag: 0,
        born_at_ms: 1,
        born_host: host,
        reconsume_times: 0,
        prepared_transaction_offset: PhysicalOffset::ZERO,
        body: body.as_bytes(),
        properties: b"",
        may_have_crc: true,
    };
    store.append(&record).unwrap();
}

/// Waits until the queue files hold the entries of this many messages.
fn wait_for_files(reader: &StoreReader, messages: u64) {
    let started = Instant::now();
    let count = |range: QueueRange| range.end - range.start;
    while plan(reader, TOPIC, &everything()).map_or(0, |planned| ranges(planned).into_iter().map(count).sum())
        < messages
    {
        assert!(started.elapsed() < PATIENCE, "the entries are not written");
        std::thread::yield_now();
    }
}

/// Shows that a reader sees what a live store of another thread has dispatched, and that a plan stays what it was. Says
/// nothing about another process, which the tests of the Python package cover.
#[test]
fn a_live_store_is_read_without_disturbing_it_and_a_plan_is_a_snapshot() {
    let root = tempfile::tempdir().unwrap();
    let mut config = StoreConfig::new(root.path());
    config.commit_log_file_size = 64 << 10;
    config.consume_queue_file_size = 20 * 100;
    config.busy_timeout = PATIENCE;
    let store = Store::open(config).unwrap();
    (0..1000).for_each(|number| append(&store, number));
    let reader = StoreReader::open(root.path()).unwrap();
    wait_for_files(&reader, 1000);
    let planned = ranges(plan(&reader, TOPIC, &everything()).unwrap());
    (1000..1500).for_each(|number| append(&store, number));
    wait_for_files(&reader, 1500);

    let scan = rocketpy_scan::StoreScan::new(&reader, planned, StoreScanOptions::default()).unwrap();
    let (batches, lost) = crate::folder::collect(scan).unwrap();
    let expected: Vec<String> = (0..1000).map(|number| format!("message {number}")).collect();
    assert_eq!((bodies(&batches), lost), (expected, 0));
    assert_eq!(bodies(&scan_all(&reader, StoreScanOptions::default()).unwrap()).len(), 1500);
}
