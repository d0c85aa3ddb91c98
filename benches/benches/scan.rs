//! A store's messages as Arrow record batches, on one core, beside the bare reading and gathering of the same bytes.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rocketpy_env::{Disk, DiskFile, OpenMode, RealDisk};
use rocketpy_model::PhysicalOffset;
use rocketpy_scan::{BatchLimits, Columns, PlanOptions, StoreScan, StoreScanOptions, plan};
use rocketpy_store::reader::{QueueRange, ScanOptions, StoreReader};
use rocketpy_store::{Arrival, NewRecord, Store, StoreConfig, StoreListener};

const TOPIC: &str = "bench";
const QUEUES: u32 = 4;
const MESSAGES: u64 = 200_000;
const BODY_BYTES: u64 = 1024;

/// Time that this thread ran on a core: on a shared machine the clock on the wall tells little.
struct CoreTime;

impl CoreTime {
    fn now_ns() -> u64 {
        let line = RealDisk.read(Path::new("/proc/thread-self/schedstat"), 100).unwrap();
        String::from_utf8_lossy(&line).split(' ').next().unwrap().parse().unwrap()
    }
}

impl Measurement for CoreTime {
    type Intermediate = u64;
    type Value = Duration;

    fn start(&self) -> u64 {
        Self::now_ns()
    }

    fn end(&self, start: u64) -> Duration {
        Duration::from_nanos(Self::now_ns() - start)
    }

    fn add(&self, one: &Duration, other: &Duration) -> Duration {
        *one + *other
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    fn to_f64(&self, value: &Duration) -> f64 {
        value.as_nanos() as f64
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        WallTime.formatter()
    }
}

struct Arrivals(Sender<usize>);

impl StoreListener for Arrivals {
    fn arrived(&self, arrivals: &[Arrival]) {
        let _ = self.0.send(arrivals.len());
    }
}

/// Fills a store with 1 KiB bodies over a few queues, each message with the properties that a client and a broker give it.
fn fill(root: &Path) {
    let store = Store::open(StoreConfig::new(root)).unwrap();
    let (sender, arrivals) = channel();
    store.add_listener(Arc::new(Arrivals(sender)));
    let born_host: SocketAddr = "127.0.0.1:50000".parse().unwrap();
    let body = [0x5a; BODY_BYTES as usize];
    for number in 0..MESSAGES {
        let properties = format!(
            "UNIQ_KEY\x017F0000010000000000000000{number:08X}\x02KEYS\x01N14228 UA{number}\x02TAGS\x01UA\x02WAIT\x01true\x02\
             CLUSTER\x01DefaultCluster\x02MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02"
        );
        let record = NewRecord {
            topic: TOPIC,
            queue_id: number as u32 % QUEUES,
            flag: 0,
            sys_flag: 0,
            born_at_ms: 1_700_000_000_000,
            born_host,
            reconsume_times: 0,
            prepared_transaction_offset: PhysicalOffset::ZERO,
            body: &body,
            properties: properties.as_bytes(),
            may_have_crc: false,
        };
        store.append(&record).unwrap();
    }
    let mut arrived = 0;
    while arrived < MESSAGES as usize {
        arrived += arrivals.recv_timeout(Duration::from_secs(60)).unwrap();
    }
    store.shutdown().unwrap();
}

fn ranges(reader: &StoreReader, queues: Option<Vec<u32>>) -> Vec<QueueRange> {
    let options = PlanOptions {
        queues,
        stored_from_ms: None,
        stored_before_ms: None,
        starts: Vec::new(),
        ends: Vec::new(),
        slice_bytes: u64::MAX,
        min_slices: 1,
        fail_on_data_loss: true,
    };
    plan(reader, TOPIC, &options).unwrap().into_iter().flat_map(|slice| slice.ranges).collect()
}

fn scan(reader: &StoreReader, ranges: Vec<QueueRange>, columns: Columns, verify: bool) -> usize {
    let limits = BatchLimits::default();
    let options = StoreScanOptions { columns, limits, verify, ..StoreScanOptions::default() };
    let mut scan = StoreScan::new(reader, ranges, options).unwrap();
    let mut rows = 0;
    while let Some(batch) = scan.next_batch().unwrap() {
        rows += batch.num_rows();
    }
    rows
}

/// Reads the log file by file in regions of 2 MiB.
fn read_log(root: &Path, buffer: &mut [u8]) -> u64 {
    let mut total = 0;
    for entry in RealDisk.list(&root.join("commitlog")).unwrap() {
        let file = RealDisk.open_file(&root.join("commitlog").join(entry.name), OpenMode::Read).unwrap();
        let mut at = 0;
        while at < MESSAGES * (BODY_BYTES + 300) {
            let count = file.read_at(at, buffer).unwrap() as u64;
            at += count;
            total += count;
        }
    }
    total
}

fn gather(reader: &StoreReader, ranges: &[QueueRange]) -> usize {
    let mut scan = reader.scan(ranges, ScanOptions::default()).unwrap();
    let mut bytes = 0;
    while scan.advance().unwrap() {
        bytes += scan.block().records.len();
    }
    bytes
}

fn benches(criterion: &mut Criterion<CoreTime>) {
    let root = tempfile::tempdir().unwrap();
    fill(root.path());
    let reader = StoreReader::open(root.path()).unwrap();
    let all = ranges(&reader, None);
    let one = ranges(&reader, Some(vec![0]));
    let mut group = criterion.benchmark_group("scan of 1 KiB bodies");
    group.sample_size(20).throughput(Throughput::Bytes(MESSAGES * BODY_BYTES));
    let mut buffer = vec![0; 2 << 20];
    group.bench_function("baseline: read the log", |bencher| {
        bencher.iter(|| read_log(root.path(), &mut buffer))
    });
    group.bench_function("find and check the records", |bencher| bencher.iter(|| gather(&reader, &all)));
    group.bench_function("twelve columns", |bencher| {
        bencher.iter(|| scan(&reader, all.clone(), Columns::default(), true));
    });
    group.bench_function("twelve columns, checksums not compared", |bencher| {
        bencher.iter(|| scan(&reader, all.clone(), Columns::default(), false));
    });
    for (name, columns) in [
        ("body alone", "body"),
        (
            "all but properties",
            "topic queue_id queue_offset broker_name tag keys body born_at stored_at msg_id reconsume_times",
        ),
        (
            "all but body and properties",
            "topic queue_id queue_offset tag keys born_at stored_at msg_id reconsume_times",
        ),
    ] {
        let columns = Columns::parse(columns.split(' ')).unwrap();
        group.bench_function(name, |bencher| {
            bencher.iter(|| scan(&reader, all.clone(), columns.clone(), true))
        });
    }
    group.throughput(Throughput::Bytes(MESSAGES * BODY_BYTES / u64::from(QUEUES)));
    group.bench_function("twelve columns, one queue of four", |bencher| {
        bencher.iter(|| scan(&reader, one.clone(), Columns::default(), true));
    });
    group.finish();
}

criterion_group!(name = scans; config = Criterion::default().with_measurement(CoreTime); targets = benches);
criterion_main!(scans);
