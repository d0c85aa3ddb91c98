//! What the whole-record check costs beside one checksum of the same bytes.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
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
        more_properties: &[],
    }
}

fn encode(fields: &RecordFields<'_>, check: bool, buffer: &mut Vec<u8>) {
    buffer.clear();
    let plan = fields.encode_apart(check, buffer).unwrap();
    plan.finish(buffer, QueueOffset(1), PhysicalOffset(2), 3);
    black_box(&*buffer);
}

fn checks(criterion: &mut Criterion) {
    for body_bytes in [128, 1024, 16 << 10] {
        let body = vec![7; body_bytes];
        let fields = fields(&body);
        let mut whole = Vec::new();
        let plan = fields.encode(true, &mut whole).unwrap();
        plan.finish(&mut whole, QueueOffset(1), PhysicalOffset(2), 3);
        let mut group = criterion.benchmark_group(format!("record check {body_bytes} B"));
        group.throughput(Throughput::Bytes(whole.len() as u64));
        group.bench_function("checksum alone", |bencher| bencher.iter(|| crc31(black_box(&whole))));
        let mut buffer = Vec::new();
        group.bench_function("encode without", |bencher| {
            bencher.iter(|| encode(black_box(&fields), false, &mut buffer))
        });
        group.bench_function("encode with", |bencher| {
            bencher.iter(|| encode(black_box(&fields), true, &mut buffer))
        });
        group.bench_function("layout at recovery", |bencher| {
            bencher.iter(|| check_record(black_box(&whole), CheckMode::Layout).unwrap());
        });
        group.bench_function("check at recovery", |bencher| {
            bencher.iter(|| check_record(black_box(&whole), CheckMode::RecordRequired).unwrap());
        });
        group.finish();
    }
}

criterion_group!(benches, checks);
criterion_main!(benches);
