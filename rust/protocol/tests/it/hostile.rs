//! Damaged bytes: nothing panics, and nothing reserves memory because a length said so.
//!
//! Every decoder gets sound samples with one to four places damaged. The memory it holds at any time must stay in proportion to
//! the bytes that it was given; a decoder that believes a 32-bit length passes the bound by far.

use std::cell::Cell;

use bytes::BytesMut;
use rocketpy_protocol::body::*;
use rocketpy_protocol::compression::{CompressionType, DecompressLimits, compress, decompress};
use rocketpy_protocol::header::{PullMessageRequestHeader, SendMessageRequestHeader};
use rocketpy_protocol::message_id::{OffsetMessageId, UniqueKey};
use rocketpy_protocol::record::{CheckMode, check_record, records};
use rocketpy_protocol::{
    Command, FrameError, Header, SerializeType, batch, decode_frame, json, properties_text,
};

use crate::generate::{self, Dice, damage};

/// Runs `decode` on `count` damaged copies of the samples and holds it to its bound of memory.
fn assault(
    seed: u64,
    count: usize,
    samples: &[Vec<u8>],
    allowed: impl Fn(usize) -> u64,
    decode: impl Fn(&[u8]),
) {
    let mut dice = Dice::new(seed);
    for case in 0..count {
        let mut bytes = dice.pick(samples).clone();
        damage(&mut dice, &mut bytes);
        let used = allocation_counter::measure(|| decode(&bytes));
        let limit = allowed(bytes.len());
        assert!(
            used.bytes_max <= limit,
            "case {case}: {} bytes held, {limit} allowed: {bytes:02x?}",
            used.bytes_max
        );
    }
}

const fn in_proportion(bytes: usize) -> u64 {
    64 * bytes as u64 + 16 * 1024
}

fn decode_commands(bytes: &[u8]) {
    let mut buffer = BytesMut::from(bytes);
    while let Ok(Some(frame)) = decode_frame(&mut buffer, 1 << 24) {
        let Ok(command) = Command::decode(frame) else {
            return;
        };
        let _ = SendMessageRequestHeader::of(&command);
        let _ = PullMessageRequestHeader::read(&command.ext);
        let mut again = BytesMut::new();
        command.encode(&mut again).unwrap();
        let frame = decode_frame(&mut again, usize::MAX).unwrap().expect("a whole frame");
        assert_eq!(Command::decode(frame).as_ref(), Ok(&command), "what was decoded encodes to itself");
    }
}

#[test]
fn a_hundred_thousand_damaged_frames() {
    let mut samples = Vec::new();
    for serialize in [SerializeType::Json, SerializeType::Binary] {
        let (send, pull) = (generate::send_command(serialize), generate::pull_command(serialize));
        samples.push(generate::frame(&send));
        samples.push([generate::frame(&pull), generate::frame(&send)].concat());
        samples.push(generate::frame(&Command::response(&pull, 19).with_remark("OFFSET_OVERFLOW_ONE")));
    }
    samples.push(crate::golden::vector!("remoting-10.01-json-request"));
    assault(1, 50_000, &samples, in_proportion, decode_commands);

    // Damage anywhere mostly ends at the frame's lengths. With those sound again it reaches the headers.
    let decoded = Cell::new(0);
    for (seed, serialize) in [(11, SerializeType::Json), (12, SerializeType::Binary)] {
        let commands = [generate::send_command(serialize), generate::pull_command(serialize)];
        let headers = commands.map(|command| generate::frame(&command.with_body(&b""[..]))[8..].to_vec());
        assault(seed, 25_000, &headers, in_proportion, |header| {
            let frame = generate::frame_around(header, serialize, b"body");
            decode_commands(&frame);
            let frame =
                decode_frame(&mut BytesMut::from(&frame[..]), 1 << 24).unwrap().expect("a whole frame");
            decoded.set(decoded.get() + usize::from(Command::decode(frame).is_ok()));
        });
    }
    assert!(
        decoded.get() > 5_000,
        "damage that never passes the first check tests little: {}",
        decoded.get()
    );
}

#[test]
fn a_hundred_thousand_damaged_records_and_batches() {
    let samples = [
        generate::records(),
        crate::golden::vector!("remoting-10.07-record-v2-ipv6"),
        crate::golden::vector!("store-15.5-record-r2-crc"),
        crate::golden::vector!("store-15.5-blank-100"),
    ];
    assault(2, 60_000, &samples, in_proportion, |bytes| {
        for view in records(bytes).map_while(Result::ok) {
            let _ = (view.tag(), view.keys(), view.offset_message_id().to_string());
            let mut pairs = properties_text::iter(view.properties);
            assert!(pairs.all(|(name, _)| properties_text::get_bytes(view.properties, name).is_some()));
        }
        for mode in [CheckMode::Layout, CheckMode::Body, CheckMode::Record, CheckMode::RecordRequired] {
            let _ = check_record(bytes, mode);
        }
    });
    assault(3, 40_000, &[generate::batch()], in_proportion, |bytes| {
        let total: usize = batch::items(bytes).map_while(Result::ok).map(|item| item.size()).sum();
        assert!(total <= bytes.len());
    });
}

#[test]
fn a_hundred_thousand_damaged_bodies() {
    let samples: Vec<Vec<u8>> = [
        r#"{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.2:10911","1":"h:1"},"brokerName":"b","cluster":"c1"}],"queueDatas":[]}"#,
        r#"{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:5,{"brokerName":"b","queueId":1,"topic":"T"}:6}}"#,
        r#"{"offsetTable":{"{\"brokerName\":\"b\",\"queueId\":0,\"topic\":\"T\"}":{"consumerOffset":"5"}},"consumeTps":0.5}"#,
        r#"{"clientID":"10.0.0.1@x","consumerDataSet":[{"groupName":"g","consumeType":"CONSUME_PASSIVELY","messageModel":1,
            "subscriptionDataSet":[{"topic":"t","subString":"A || B","tagsSet":["A","B"],"codeSet":["65",66],"subVersion":"17"}]}]}"#,
        r#"{"topicConfigSerializeWrapper":{"dataVersion":{"counter":1},"topicConfigTable":{"T":{"topicName":"T","perm":6,
            "attributes":{"+a":"\u0041\ud83d\ude00\n"},"topicFilterType":"MULTI_TAG"}}},"filterServerList":[null,"x"]}"#,
        r#"{"mqSet":[{"topic":"t","brokerName":"b","queueId":7}],"clientId":"c","nested":[[[[{"a":[1,2.5e3,true,null]}]]]]}"#,
    ]
    .map(|text| text.as_bytes().to_vec())
    .into();
    assault(4, 100_000, &samples, in_proportion, |bytes| {
        let _ = json::from_slice::<TopicRouteData>(bytes);
        let _ = json::from_slice::<HeartbeatData>(bytes);
        let _ = json::from_slice::<LockBatchRequestBody>(bytes);
        let _ = RegisterBrokerBody::decode(bytes, false, None, 479);
        if let Ok(stats) = json::from_slice::<ConsumeStats>(bytes) {
            let again = json::from_slice::<ConsumeStats>(&json::to_vec(&stats));
            assert_eq!(again, Ok(stats), "what was read writes to itself");
        }
    });
}

#[test]
fn damaged_registrations_and_ids() {
    let samples = [crate::golden::vector!("remoting-10.11-register-inflated")];
    assault(5, 10_000, &samples, in_proportion, |bytes| {
        let _ = RegisterBrokerBody::decode_sections(bytes, 479);
    });
    let samples = [b"0A00000200002A9F000000000001E240".to_vec(), vec![b'F'; 56]];
    assault(6, 10_000, &samples, in_proportion, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let _ = (text.parse::<OffsetMessageId>(), text.parse::<UniqueKey>());
    });
}

#[test]
fn damaged_compressed_bodies_stay_within_their_limit() {
    let limits = DecompressLimits { max_bytes: 1 << 20, max_ratio: 100, free_bytes: 1 << 16 };
    for kind in [CompressionType::Zlib, CompressionType::Lz4, CompressionType::Zstd] {
        let samples: Vec<Vec<u8>> = [&b"hello ".repeat(40)[..], &vec![0; 100_000], &Dice::new(9).bytes(3000)]
            .iter()
            .map(|plain| compress(kind, 5, plain).unwrap())
            .collect();
        // The LZ4 frame decoder holds two blocks of at most 4 MiB each, as the frame's head asks for.
        let allowed = |bytes| 2 * limits.allowed(bytes) as u64 + (9 << 20);
        assault(7, 1_500, &samples, allowed, |bytes| {
            if let Ok(plain) = decompress(kind, bytes, &limits) {
                assert!(plain.len() <= limits.allowed(bytes.len()));
            }
        });
    }
}

#[test]
fn nesting_has_a_bottom() {
    for open in ["[", "{\"a\":", "{{"] {
        let deep = open.repeat(100_000);
        assert!(json::from_str::<LockBatchRequestBody>(&format!("{{\"x\":{deep}")).is_err());
        assert!(json::from_str::<KvTable>(&format!("{{\"table\":{deep}")).is_err());
    }
}

#[test]
fn a_header_with_too_many_fields_is_refused() {
    let decode = |fields: &[String]| {
        let header = format!("{{\"code\":1,\"extFields\":{{{}}}}}", fields.join(","));
        let frame = generate::frame_around(header.as_bytes(), SerializeType::Json, b"");
        let frame = decode_frame(&mut BytesMut::from(&frame[..]), 1 << 24).unwrap().expect("a whole frame");
        Command::decode(frame)
    };
    let different = |count| (0..count).map(|number| format!("\"f{number}\":\"\"")).collect::<Vec<_>>();
    let refused = Err(FrameError::TooManyFields { limit: 1024 });
    assert_eq!(decode(&different(1024)).unwrap().ext.len(), 1024);
    assert_eq!(decode(&different(1025)), refused);
    assert_eq!(decode(&vec!["\"same\":1".to_owned(); 1025]), refused, "repeated names count too");
}
