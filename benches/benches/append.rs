//! Appending to the commit log, beside a bare copy of the same bytes into the same kind of mapping.
//!
//! Both write into files that are allocated and faulted in before the clock starts, so that neither waits for a page. The
//! store's appends include everything that `append` does: checks, encoding, checksums, the lock, offsets and the copy.
//! Dispatch works on its own thread meanwhile, queue entries and index. Timed flushes are off: they are another kernel.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use rocketpy_benches::{PLAIN, append_patiently, record};
use rocketpy_env::{Disk, RealDisk, Region};
use rocketpy_store::{Store, StoreConfig};

/// One file holds one run of appends.
const FILE_BYTES: u64 = 256 << 20;
/// Appends of one run, which criterion sees as one iteration: setting up takes longer than they do.
const RUN: u64 = 200_000;
fn open(record_check: bool, dir: &std::path::Path) -> std::sync::Arc<Store> {
    let hour = Duration::from_secs(3600);
    let config = StoreConfig {
        commit_log_file_size: FILE_BYTES,
        record_check,
        warm_files: true,
        allocate_ahead: false,
        flush_interval: hour,
        checkpoint_interval: hour,
        ..StoreConfig::new(dir)
    };
    let store = Store::open(config).unwrap();
    append_patiently(&store, &record(b"first", PLAIN)); // makes and warms the file
    store
}

/// Appends from so many threads at once, as many in all.
fn append_store(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    body: &[u8],
    record_check: bool,
    threads: u64,
) {
    group.bench_function(name, |bencher| {
        bencher.iter_custom(|runs| {
            let timed = || {
                let dir = tempfile::tempdir().unwrap();
                let store = open(record_check, dir.path());
                let append = || {
                    for _ in 0..RUN / threads {
                        // One field: a result that is moved as a whole waits until the copied bytes have left the processor.
                        black_box(store.append(&record(black_box(body), PLAIN)).unwrap().end);
                    }
                };
                let started = Instant::now();
                std::thread::scope(|scope| {
                    (1..threads).for_each(|_| drop(scope.spawn(append)));
                    append();
                });
                started.elapsed()
            };
            (0..runs).map(|_| timed()).sum()
        });
    });
}

fn copy_bare(group: &mut BenchmarkGroup<'_, WallTime>, size: u64) {
    let bytes = vec![7; size as usize];
    group.bench_function("bare copy", |bencher| {
        bencher.iter_custom(|runs| {
            let timed = || {
                let dir = tempfile::tempdir().unwrap();
                let region = RealDisk.create_region(&dir.path().join("log"), FILE_BYTES).unwrap();
                region.fault_in(0..FILE_BYTES);
                let started = Instant::now();
                for _ in 0..RUN {
                    region.append(black_box(&bytes), size);
                }
                started.elapsed()
            };
            (0..runs).map(|_| timed()).sum()
        });
    });
}

fn append(criterion: &mut Criterion) {
    for body_bytes in [128, 1024] {
        let body = vec![7; body_bytes];
        let size = {
            let dir = tempfile::tempdir().unwrap();
            u64::from(open(false, dir.path()).append(&record(&body, PLAIN)).unwrap().size_bytes)
        };
        let mut group = criterion.benchmark_group(format!("append {body_bytes} B"));
        group.sample_size(10).sampling_mode(SamplingMode::Flat).warm_up_time(Duration::from_secs(1));
        group.throughput(Throughput::Bytes(RUN * size));
        copy_bare(&mut group, size);
        append_store(&mut group, "store, record check off", &body, false, 1);
        append_store(&mut group, "store, record check on", &body, true, 1);
        append_store(&mut group, "two threads, record check off", &body, false, 2);
        append_store(&mut group, "two threads, record check on", &body, true, 2);
        group.finish();
    }
}

criterion_group!(benches, append);
criterion_main!(benches);
