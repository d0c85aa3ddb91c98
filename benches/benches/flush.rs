//! Acknowledged records under synchronous flush, beside bare loops of write and flush on the same kind of file.
//!
//! Writers wait in two ways: threads that block, and as sends wait in the broker, where the flush calls back and nobody blocks.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

use criterion::{Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use rocketpy_benches::{PLAIN, record};
use rocketpy_env::{Disk, DiskFile, OpenMode, RealDisk};
use rocketpy_model::PhysicalOffset;
use rocketpy_store::{FlushMode, Store, StoreConfig, StoreListener};

const FILE_BYTES: u64 = 1 << 30;
/// Records of one run of one writer; a run is what criterion sees as one iteration. Long enough that with many writers what
/// is made ready ahead of the log is paid for in the run.
const RUN: u64 = 1024;

/// Writes `group` records before each flush.
fn bare(size: usize, group: u64) -> Duration {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    drop(RealDisk.create_region(&path, FILE_BYTES).unwrap());
    let file = RealDisk.open_file(&path, OpenMode::Write).unwrap();
    let bytes = vec![7; size];
    let started = Instant::now();
    for round in 0..RUN {
        for number in 0..group {
            file.write_all_at((round * group + number) * size as u64, black_box(&bytes)).unwrap();
        }
        file.sync().unwrap();
    }
    started.elapsed()
}

/// A store whose file is made.
fn open(dir: &std::path::Path, body: &[u8]) -> Arc<Store> {
    let config = StoreConfig {
        commit_log_file_size: FILE_BYTES,
        flush: FlushMode::Sync,
        allocate_ahead: false,
        checkpoint_interval: Duration::from_secs(3600),
        ..StoreConfig::new(dir)
    };
    let store = Store::open(config).unwrap();
    send(&store, body);
    store
}

fn send(store: &Store, body: &[u8]) {
    let appended = store.append(&record(body, PLAIN)).unwrap();
    store.wait_flushed(appended.end, Duration::from_secs(60)).unwrap();
}

fn threads(body: &[u8], writers: u64) -> Duration {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), body);
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..writers {
            scope.spawn(|| (0..RUN).for_each(|_| send(&store, body)));
        }
    });
    started.elapsed()
}

/// Passes on how far the log is durable.
struct Ear {
    flushed: AtomicU64,
    driver: Thread,
}

impl StoreListener for Ear {
    fn flushed(&self, offset: PhysicalOffset) {
        self.flushed.fetch_max(offset.get(), Ordering::AcqRel);
        self.driver.unpark();
    }
}

/// Each writer sends its next record when the flush has called back for the one before.
fn held(body: &[u8], writers: usize) -> Duration {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), body);
    let ear = Arc::new(Ear { flushed: AtomicU64::new(0), driver: std::thread::current() });
    store.add_listener(Arc::clone(&ear) as Arc<dyn StoreListener>);
    let started = Instant::now();
    let mut waits_for = vec![0; writers];
    let mut left = RUN * writers as u64;
    while left > 0 || ear.flushed.load(Ordering::Acquire) < store.max_physical_offset().get() {
        let flushed = ear.flushed.load(Ordering::Acquire);
        let mut end = None;
        for waits_for in waits_for.iter_mut().filter(|end| **end <= flushed).take(left as usize) {
            let appended = store.append(&record(body, PLAIN)).unwrap();
            *waits_for = appended.end.get();
            end = Some(appended.end);
            left -= 1;
        }
        match end {
            Some(end) => store.request_flush(end),
            None => std::thread::park_timeout(Duration::from_millis(100)),
        }
    }
    started.elapsed()
}

fn flush(criterion: &mut Criterion) {
    for body_bytes in [128, 1024] {
        let body = vec![7; body_bytes];
        let size = {
            let dir = tempfile::tempdir().unwrap();
            let config = StoreConfig { commit_log_file_size: FILE_BYTES, ..StoreConfig::new(dir.path()) };
            Store::open(config).unwrap().append(&record(&body, PLAIN)).unwrap().size_bytes as usize
        };
        let mut group = criterion.benchmark_group(format!("synchronous flush {body_bytes} B"));
        group.sample_size(10).sampling_mode(SamplingMode::Flat).warm_up_time(Duration::from_secs(1));
        let mut measure = |name: String, records: u64, run: &dyn Fn() -> Duration| {
            group.throughput(Throughput::Elements(records * RUN));
            group.bench_function(name, |bencher| {
                bencher.iter_custom(|runs| (0..runs).map(|_| run()).sum());
            });
        };
        measure("bare, flush after 1 record".to_owned(), 1, &|| bare(size, 1));
        measure("bare, flush after 64 records".to_owned(), 64, &|| bare(size, 64));
        for writers in [1, 8, 64] {
            measure(format!("{writers} threads"), writers, &|| threads(&body, writers));
        }
        for writers in [8, 64] {
            measure(format!("{writers} held"), writers as u64, &|| held(&body, writers));
        }
        group.finish();
    }
}

criterion_group!(benches, flush);
criterion_main!(benches);
