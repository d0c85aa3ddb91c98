//! Dispatch of records of 128 bytes with two keys: consume queue entries and index, beside the append alone.
//!
//! The clock stops when the last record is dispatched. Keys are new for every record, as unique keys are: each goes to a slot
//! of its own somewhere in 20 MB. Timed flushes are off: they are another kernel.

use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use rocketpy_benches::{append_patiently, record};
use rocketpy_store::{Store, StoreConfig};

/// Records of one run, which criterion sees as one iteration.
const RUN: u64 = 500_000;

fn dispatch(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, index: bool, wait: bool) {
    let body = [7; 128];
    let texts: Vec<Vec<u8>> = (0..RUN)
        .map(|number| {
            format!("UNIQ_KEY\x017F00000100002A9F{number:016X}\x02KEYS\x01order-{number:010}\x02")
                .into_bytes()
        })
        .collect();
    group.bench_function(name, |bencher| {
        bencher.iter_custom(|runs| {
            let timed = || {
                let dir = tempfile::tempdir().unwrap();
                let hour = Duration::from_secs(3600);
                let config = StoreConfig {
                    commit_log_file_size: 512 << 20,
                    warm_files: true,
                    allocate_ahead: false,
                    flush_interval: hour,
                    checkpoint_interval: hour,
                    index,
                    ..StoreConfig::new(dir.path())
                };
                let store = Store::open(config).unwrap();
                append_patiently(&store, &record(b"first", b""));
                let started = Instant::now();
                for properties in &texts {
                    store.append(&record(&body, properties)).unwrap();
                }
                while wait && store.dispatched_offset() < store.max_physical_offset() {
                    std::thread::yield_now();
                }
                started.elapsed()
            };
            (0..runs).map(|_| timed()).sum()
        });
    });
}

fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("dispatch-128-two-keys");
    group.throughput(Throughput::Elements(RUN)).sample_size(10).sampling_mode(SamplingMode::Flat);
    dispatch(&mut group, "append alone", false, false);
    dispatch(&mut group, "queue", false, true);
    dispatch(&mut group, "queue and index", true, true);
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
