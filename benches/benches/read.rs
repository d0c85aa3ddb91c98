//! Reading messages that a former process wrote: the first time, when each is checked, beside the second time, when none is. All of
//! it is in memory; the time of a disk comes on top of both.

use std::path::Path;
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use rocketpy_benches::{append_patiently, record};
use rocketpy_filter::MessageFilter;
use rocketpy_store::{ReadLimits, Store, StoreConfig};

/// More than a start checks by itself, so that something is left for the first read.
const LOG_BYTES: usize = 512 << 20;
/// How much of it is read.
const READ_BYTES: usize = 256 << 20;
const PROPERTIES: &[u8] = b"UNIQ_KEY\x017F0000010000000000000000000000AA\x02TAGS\x01UA\x02";

/// Fills a store and closes it.
fn fill(root: &Path, body: &[u8]) {
    let store = Store::open(StoreConfig::new(root)).unwrap();
    for _ in 0..LOG_BYTES / body.len() {
        append_patiently(&store, &record(body, PROPERTIES));
    }
    store.shutdown().unwrap();
}

/// Reads the first messages of the store, as a pull does; the time that it took.
fn read(store: &Store, bodies: usize) -> Duration {
    let limits = ReadLimits { max_messages: 256, max_bytes: 256 << 10, copies: true };
    let started = Instant::now();
    let queue = record(b"", b"");
    let (mut next, mut count) = (0, 0);
    while count < bodies {
        let fetch = store.get(queue.topic, queue.queue_id, next, &limits, &MessageFilter::All).unwrap();
        assert!(fetch.count > 0, "no message at {next}");
        count += fetch.count as usize;
        next = fetch.next_offset.to_wire();
    }
    started.elapsed()
}

fn kernels(group: &mut BenchmarkGroup<'_, WallTime>, body_bytes: usize) {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path(), &vec![7; body_bytes]);
    let bodies = READ_BYTES / body_bytes;
    group.throughput(Throughput::Elements(bodies as u64)).sample_size(10).sampling_mode(SamplingMode::Flat);
    for (name, is_first) in [("first", true), ("again", false)] {
        group.bench_function(format!("{name}-{body_bytes}"), |bencher| {
            bencher.iter_custom(|runs| {
                let timed = || {
                    let store = Store::open(StoreConfig::new(dir.path())).unwrap();
                    assert!(store.recovery().verified_from.get() > READ_BYTES as u64);
                    let first = read(&store, bodies);
                    if is_first { first } else { read(&store, bodies) }
                };
                (0..runs).map(|_| timed()).sum()
            });
        });
    }
}

fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("read-old");
    for body_bytes in [128, 1024] {
        kernels(&mut group, body_bytes);
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
