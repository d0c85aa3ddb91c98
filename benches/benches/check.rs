//! What the whole-record check costs beside one checksum of the same bytes.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use rocketpy_benches::{PLAIN, record};
use rocketpy_model::{PhysicalOffset, QueueOffset};
use rocketpy_protocol::record::{CheckMode, RecordFields, check_record, crc31};

fn fields(body: &[u8]) -> RecordFields<'_> {
    let record = record(body, PLAIN);
    RecordFields {
        topic: record.topic,
        queue_id: record.queue_id,
        flag: record.flag,
        sys_flag: record.sys_flag,
        born_at_ms: record.born_at_ms,
        born_host: record.born_host,
        store_host: record.born_host,
        reconsume_times: 0,
        prepared_transaction_offset: PhysicalOffset::ZERO,
        body,
        properties: record.properties,
        may_have_crc: false,
    }
}

fn encode(fields: &RecordFields<'_>, check: bool, buffer: &mut Vec<u8>) {
    buffer.clear();
    let plan = fields.encode_apart(check, buffer).unwrap();
    plan.finish(buffer, QueueOffset(1), PhysicalOffset(2), 3);
    black_box(&*buffer);
}

/// Calls of one kernel before it is the next one's turn.
const TURN: u64 = 1000;

/// Times each kernel while all of them take short turns: what slows the machine for a while slows all alike.
fn compare(group: &mut BenchmarkGroup<'_, WallTime>, kernels: &mut [(&str, &mut dyn FnMut())]) {
    for this in 0..kernels.len() {
        group.bench_function(kernels[this].0, |bencher| {
            bencher.iter_custom(|calls| {
                let mut took = Duration::ZERO;
                for done in (0..calls).step_by(TURN as usize) {
                    for (index, (_, kernel)) in kernels.iter_mut().enumerate() {
                        let started = Instant::now();
                        (0..TURN.min(calls - done)).for_each(|_| kernel());
                        if index == this {
                            took += started.elapsed();
                        }
                    }
                }
                took
            });
        });
    }
}

fn checks(criterion: &mut Criterion) {
    for body_bytes in [128, 1024, 16 << 10] {
        let body = vec![7; body_bytes];
        let fields = fields(&body);
        let mut whole = Vec::new();
        let plan = fields.encode(true, &mut whole).unwrap();
        plan.finish(&mut whole, QueueOffset(1), PhysicalOffset(2), 3);
        let (mut without, mut with) = (Vec::new(), Vec::new());
        let check = |mode| {
            black_box(check_record(black_box(&whole), mode).unwrap());
        };
        let checksum = || {
            black_box(crc31(black_box(&whole)));
        };
        let mut group = criterion.benchmark_group(format!("record check {body_bytes} B"));
        group.throughput(Throughput::Bytes(whole.len() as u64));
        compare(
            &mut group,
            &mut [
                ("checksum alone", &mut &checksum),
                ("encode without", &mut || encode(black_box(&fields), false, &mut without)),
                ("encode with", &mut || encode(black_box(&fields), true, &mut with)),
                ("layout at recovery", &mut || check(CheckMode::Layout)),
                ("check at recovery", &mut || check(CheckMode::RecordRequired)),
            ],
        );
        group.finish();
    }
}

criterion_group!(benches, checks);
criterion_main!(benches);
