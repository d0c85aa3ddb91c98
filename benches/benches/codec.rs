//! The codecs on the path of one message: header decode and encode in both forms, record encode and finish, record parse.

use std::hint::black_box;

use bytes::{Bytes, BytesMut};
use criterion::measurement::WallTime;
use criterion::{BatchSize, BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use rocketpy_model::{PhysicalOffset, QueueOffset};
use rocketpy_protocol::header::{
    PullMessageRequestHeader, PullMessageResponseHeader, SendMessageRequestHeader,
    SendMessageRequestHeaderV2, SendMessageResponseHeader,
};
use rocketpy_protocol::record::{CheckMode, RecordFields, RecordView, check_record, records};
use rocketpy_protocol::{Command, Frame, Header, SerializeType, code, decode_frame};

const PROPERTIES: &str = "UNIQ_KEY\u{1}0A000001123418B4AAC2000003E80001\u{2}WAIT\u{1}true\u{2}KEYS\u{1}N14228 UA1545\u{2}TAGS\u{1}UA\u{2}";

const STORED_PROPERTIES: &str = "UNIQ_KEY\u{1}0A000001123418B4AAC2000003E80001\u{2}WAIT\u{1}true\u{2}KEYS\u{1}N14228 UA1545\u{2}TAGS\u{1}UA\u{2}CLUSTER\u{1}DefaultCluster\u{2}MSG_REGION\u{1}DefaultRegion\u{2}TRACE_ON\u{1}true\u{2}";

fn send_header() -> SendMessageRequestHeader<'static> {
    SendMessageRequestHeader {
        producer_group: "ingest",
        topic: "flights",
        default_topic: "TBW102",
        default_topic_queue_nums: 4,
        queue_id: 2,
        sys_flag: 0,
        born_timestamp: 1_700_000_000_000,
        flag: 0,
        properties: Some(PROPERTIES),
        reconsume_times: Some(0),
        unit_mode: Some(false),
        max_reconsume_times: None,
        batch: Some(false),
        broker_name: Some("broker-a"),
    }
}

fn pull_header() -> PullMessageRequestHeader<'static> {
    PullMessageRequestHeader {
        consumer_group: "report",
        topic: "flights",
        queue_id: 2,
        queue_offset: 123_456,
        max_msg_nums: 32,
        sys_flag: 3,
        commit_offset: 123_400,
        suspend_timeout_millis: 15_000,
        subscription: Some("UA || AA"),
        sub_version: 1_700_000_000_000,
        expression_type: Some("TAG"),
        max_msg_bytes: None,
        request_source: None,
        proxy_froward_client_id: None,
        broker_name: Some("broker-a"),
    }
}

fn command(code: i32, serialize: SerializeType) -> Command {
    let mut command = match code {
        code::request::SEND_MESSAGE_V2 => Command::request(code, &SendMessageRequestHeaderV2(send_header())),
        _ => Command::request(code, &pull_header()),
    };
    command.serialize = serialize;
    command.with_body(Bytes::from_static(&[b'x'; 256]))
}

fn frame(command: &Command) -> Frame {
    let mut out = BytesMut::new();
    command.encode(&mut out).expect("a small header");
    decode_frame(&mut out, 1 << 24).expect("a sound frame").expect("a whole frame")
}

fn headers(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("header");
    group.throughput(Throughput::Elements(1));
    for serialize in [SerializeType::Json, SerializeType::Binary] {
        let send = frame(&command(code::request::SEND_MESSAGE_V2, serialize));
        group.bench_function(format!("decode send {serialize:?}"), |bencher| {
            bencher.iter(|| {
                let command = Command::decode(send.clone()).expect("a sound header");
                black_box(SendMessageRequestHeader::of(&command).expect("all fields").queue_id)
            });
        });
        let pull = frame(&command(code::request::PULL_MESSAGE, serialize));
        group.bench_function(format!("decode pull {serialize:?}"), |bencher| {
            bencher.iter(|| {
                let command = Command::decode(pull.clone()).expect("a sound header");
                black_box(PullMessageRequestHeader::read(&command.ext).expect("all fields").queue_offset)
            });
        });
        let mut out = BytesMut::with_capacity(4096);
        group.bench_function(format!("encode send {serialize:?}"), |bencher| {
            bencher.iter(|| {
                out.clear();
                let mut command = Command::request(
                    code::request::SEND_MESSAGE_V2,
                    &SendMessageRequestHeaderV2(send_header()),
                );
                command.serialize = serialize;
                command.encode_head(256, &mut out).expect("a small header");
                black_box(out.len())
            });
        });
        answers(&mut group, serialize);
    }
    cut_frames(&mut group);
    group.finish();
}

fn answers(group: &mut BenchmarkGroup<'_, WallTime>, serialize: SerializeType) {
    let mut out = BytesMut::with_capacity(4096);
    let request = command(code::request::PULL_MESSAGE, serialize);
    group.bench_function(format!("encode send answer {serialize:?}"), |bencher| {
        let header = SendMessageResponseHeader {
            msg_id: "0A00000200002A9F000000000001E240",
            queue_id: 2,
            queue_offset: 123_456,
            transaction_id: Some("0A000001123418B4AAC2000003E80001"),
            batch_uniq_id: None,
            recall_handle: None,
            region: Some("DefaultRegion"),
            trace_on: Some("true"),
        };
        bencher.iter(|| {
            out.clear();
            let answer = Command::response(&request, 0).with_header(&header);
            answer.encode_head(0, &mut out).expect("a small header");
            black_box(out.len())
        });
    });
    group.bench_function(format!("encode pull answer {serialize:?}"), |bencher| {
        let header = PullMessageResponseHeader {
            suggest_which_broker_id: 0,
            next_begin_offset: 123_456,
            min_offset: 0,
            max_offset: 234_567,
            offset_delta: None,
            topic_sys_flag: None,
            group_sys_flag: None,
            forbidden_type: None,
            region: None,
            trace_on: None,
        };
        bencher.iter(|| {
            out.clear();
            let answer = Command::response(&request, 0).with_header(&header);
            answer.encode_head(65_536, &mut out).expect("a small header");
            black_box(out.len())
        });
    });
}

fn cut_frames(group: &mut BenchmarkGroup<'_, WallTime>) {
    let mut wire = Vec::new();
    for _ in 0..100 {
        let mut out = BytesMut::new();
        command(code::request::SEND_MESSAGE_V2, SerializeType::Json)
            .encode(&mut out)
            .expect("a small header");
        wire.extend_from_slice(&out);
    }
    group.throughput(Throughput::Elements(100));
    group.bench_function("cut 100 frames", |bencher| {
        bencher.iter_batched_ref(
            || BytesMut::from(&wire[..]),
            |buffer| {
                while let Some(frame) = decode_frame(buffer, 1 << 24).expect("sound frames") {
                    black_box(frame.body.len());
                }
            },
            BatchSize::SmallInput,
        );
    });
}

fn fields(body: &[u8]) -> RecordFields<'_> {
    RecordFields {
        topic: "flights",
        queue_id: 2,
        flag: 0,
        sys_flag: 0,
        born_at_ms: 1_700_000_000_000,
        born_host: "127.0.0.1:50000".parse().expect("an address"),
        store_host: "127.0.0.1:10911".parse().expect("an address"),
        reconsume_times: 0,
        prepared_transaction_offset: PhysicalOffset::ZERO,
        body,
        properties: STORED_PROPERTIES.as_bytes(),
        may_have_crc: false,
    }
}

fn record(criterion: &mut Criterion) {
    let body: Vec<u8> = (0..1024u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let fields = fields(&body);
    let mut group = criterion.benchmark_group("record 1 KiB");
    group.throughput(Throughput::Elements(1));
    let mut out = Vec::with_capacity(4096);
    for crc in [false, true] {
        group.bench_function(format!("encode, own checksum {crc}"), |bencher| {
            bencher.iter(|| {
                out.clear();
                black_box(fields.encode(crc, &mut out).expect("a small record").size())
            });
        });
        out.clear();
        let plan = fields.encode(crc, &mut out).expect("a small record");
        let mut place = 0;
        group.bench_function(format!("finish under the lock, own checksum {crc}"), |bencher| {
            bencher.iter(|| {
                place += 1;
                plan.finish(&mut out, QueueOffset(place), PhysicalOffset(place * 1300), 1_700_000_000_000);
                black_box(out[60])
            });
        });
    }
    group.bench_function("parse", |bencher| {
        bencher.iter(|| black_box(RecordView::parse(black_box(&out)).expect("a sound record").body.len()));
    });
    group.bench_function("check, own checksum", |bencher| {
        bencher.iter(|| black_box(check_record(black_box(&out), CheckMode::Record).is_ok()));
    });
    group.bench_function("look up the tag", |bencher| {
        let view = RecordView::parse(&out).expect("a sound record");
        bencher.iter(|| black_box(black_box(&view).tag().map(str::len)));
    });
    let many = out.repeat(32);
    group.throughput(Throughput::Elements(32));
    group.bench_function("walk 32", |bencher| {
        bencher.iter(|| black_box(records(black_box(&many)).map_while(Result::ok).count()));
    });
    group.finish();
}

criterion_group!(benches, headers, record);
criterion_main!(benches);
