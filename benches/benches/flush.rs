//! Acknowledged records under synchronous flush, beside a bare loop of write and flush on the same kind of file.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use rocketpy_benches::{PLAIN, record};
use rocketpy_env::{Disk, DiskFile, OpenMode, RealDisk};
use rocketpy_store::{FlushMode, Store, StoreConfig};

const FILE_BYTES: u64 = 64 << 20;
/// Records of one run of one writer; a run is what criterion sees as one iteration.
const RUN: u64 = 256;
const BODY: [u8; 1024] = [7; 1024];

fn bare(size: usize) -> Duration {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    drop(RealDisk.create_region(&path, FILE_BYTES).unwrap());
    let file = RealDisk.open_file(&path, OpenMode::Write).unwrap();
    let bytes = vec![7; size];
    let started = Instant::now();
    for number in 0..RUN {
        file.write_all_at(number * size as u64, black_box(&bytes)).unwrap();
        file.sync().unwrap();
    }
    started.elapsed()
}

fn store(writers: u64) -> Duration {
    let dir = tempfile::tempdir().unwrap();
    let config = StoreConfig {
        commit_log_file_size: FILE_BYTES,
        flush: FlushMode::Sync,
        allocate_ahead: false,
        checkpoint_interval: Duration::from_secs(3600),
        ..StoreConfig::new(dir.path())
    };
    let store = Store::open(config).unwrap();
    let send = || {
        let appended = store.append(&record(&BODY, PLAIN)).unwrap();
        store.wait_flushed(appended.end, Duration::from_secs(60)).unwrap();
    };
    send(); // makes the file
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..writers {
            scope.spawn(|| (0..RUN).for_each(|_| send()));
        }
    });
    started.elapsed()
}

fn flush(criterion: &mut Criterion) {
    let size = {
        let dir = tempfile::tempdir().unwrap();
        Store::open(StoreConfig::new(dir.path())).unwrap().append(&record(&BODY, PLAIN)).unwrap().size_bytes
    };
    let mut group = criterion.benchmark_group("synchronous flush");
    group.sample_size(10).sampling_mode(SamplingMode::Flat).warm_up_time(Duration::from_secs(1));
    group.throughput(Throughput::Elements(RUN));
    group.bench_function("bare write and flush", |bencher| {
        bencher.iter_custom(|runs| (0..runs).map(|_| bare(size as usize)).sum());
    });
    for writers in [1, 8, 64] {
        group.throughput(Throughput::Elements(RUN * writers));
        group.bench_function(format!("store, {writers} writers"), |bencher| {
            bencher.iter_custom(|runs| (0..runs).map(|_| store(writers)).sum());
        });
    }
    group.finish();
}

criterion_group!(benches, flush);
criterion_main!(benches);
