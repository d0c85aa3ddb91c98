use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use rocketpy_model::PhysicalOffset;
use rocketpy_scan::{StoreScanOptions, plan};
use rocketpy_store::reader::StoreReader;
use rocketpy_store::{Arrival, NewRecord, Store, StoreConfig, StoreListener};

use crate::folder::{TOPIC, bodies, everything, ranges, scan_all};

const PATIENCE: Duration = Duration::from_secs(60);

/// Hands out how many messages became readable.
struct Arrivals(Sender<usize>);

impl StoreListener for Arrivals {
    fn arrived(&self, arrivals: &[Arrival]) {
        let _ = self.0.send(arrivals.len());
    }
}

fn wait_for(arrivals: &Receiver<usize>, messages: usize) {
    let mut seen = 0;
    while seen < messages {
        seen += arrivals.recv_timeout(PATIENCE).unwrap();
    }
}

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
    };
    store.append(&record).unwrap();
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
    let (sender, arrivals) = channel();
    store.add_listener(Arc::new(Arrivals(sender)));
    (0..1000).for_each(|number| append(&store, number));
    wait_for(&arrivals, 1000);

    let reader = StoreReader::open(root.path()).unwrap();
    let planned = ranges(plan(&reader, TOPIC, &everything()).unwrap());
    (1000..1500).for_each(|number| append(&store, number));
    wait_for(&arrivals, 500);

    let scan = rocketpy_scan::StoreScan::new(&reader, planned, StoreScanOptions::default()).unwrap();
    let (batches, lost) = crate::folder::collect(scan).unwrap();
    let expected: Vec<String> = (0..1000).map(|number| format!("message {number}")).collect();
    assert_eq!((bodies(&batches), lost), (expected, 0));
    assert_eq!(bodies(&scan_all(&reader, StoreScanOptions::default()).unwrap()).len(), 1500);
}
