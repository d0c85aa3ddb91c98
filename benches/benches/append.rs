//! Appending to the commit log, beside a bare copy of the same bytes into the same kind of mapping.
//!
//! Both write into files that are allocated and faulted in before the clock starts, so that neither waits for a page. The
//! store's appends include everything that `append` does: checks, encoding, checksums, the lock, offsets, the copy, and
//! the hand-over to dispatch, which works on its own thread meanwhile. Timed flushes are off: they are another kernel.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{
    BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime,
};
use rocketpy_env::{Disk, RealDisk, Region};
use rocketpy_store::{NewRecord, Store, StoreConfig};

/// One file; runs of appends that pass it go on in a new store.
const FILE_BYTES: u64 = 512 << 20;
const PROPERTIES: &[u8] = b"UNIQ_KEY\x017F00000100002A9F0000000000000001\x02TAGS\x01TagA\x02";

fn record(body: &[u8]) -> NewRecord<'_> {
    NewRecord {
        topic: "bench",
        queue_id: 3,
        flag: 0,
        sys_flag: 0,
        born_at_ms: 1_700_000_000_000,
        born_host: "127.0.0.1:50000".parse().unwrap(),
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body,
        properties: PROPERTIES,
    }
}

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
    store.append(&record(b"first")).unwrap(); // makes and warms the file
    store
}

/// Times `iterations` calls of `append`, in runs that fit a file.
fn in_runs(iterations: u64, size: u64, mut run: impl FnMut(u64) -> Duration) -> Duration {
    let most = FILE_BYTES / size - 100;
    let mut left = iterations;
    let mut took = Duration::ZERO;
    while left > 0 {
        let now = left.min(most);
        took += run(now);
        left -= now;
    }
    took
}

fn append_store(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    body: &[u8],
    size: u64,
    record_check: bool,
) {
    group.bench_function(name, |bencher| {
        bencher.iter_custom(|iterations| {
            in_runs(iterations, size, |count| {
                let dir = tempfile::tempdir().unwrap();
                let store = open(record_check, dir.path());
                let started = Instant::now();
                for _ in 0..count {
                    black_box(store.append(&record(black_box(body))).unwrap());
                }
                started.elapsed()
            })
        });
    });
}

fn copy_bare(group: &mut BenchmarkGroup<'_, WallTime>, size: u64) {
    let bytes = vec![7; size as usize];
    group.bench_function("bare copy", |bencher| {
        bencher.iter_custom(|iterations| {
            in_runs(iterations, size, |count| {
                let dir = tempfile::tempdir().unwrap();
                let region = RealDisk.create_region(&dir.path().join("log"), FILE_BYTES).unwrap();
                region.fault_in(0..FILE_BYTES);
                let started = Instant::now();
                for _ in 0..count {
                    region.append(black_box(&bytes), size);
                }
                started.elapsed()
            })
        });
    });
}

fn append(criterion: &mut Criterion) {
    for body_bytes in [128, 1024] {
        let body = vec![7; body_bytes];
        let size = {
            let dir = tempfile::tempdir().unwrap();
            u64::from(open(false, dir.path()).append(&record(&body)).unwrap().size_bytes)
        };
        let mut group = criterion.benchmark_group(format!("append {body_bytes} B"));
        group.sample_size(20).throughput(Throughput::Bytes(size));
        copy_bare(&mut group, size);
        append_store(&mut group, "store, record check off", &body, size, false);
        append_store(&mut group, "store, record check on", &body, size + 20, true);
        group.finish();
    }
}

criterion_group!(benches, append);
criterion_main!(benches);
