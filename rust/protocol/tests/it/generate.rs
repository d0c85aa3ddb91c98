//! Deterministic samples and damage: every run sees the same bytes, and a failure names its case.

use bytes::{Bytes, BytesMut};
use rocketpy_model::{PhysicalOffset, QueueOffset};
use rocketpy_protocol::batch::BatchItem;
use rocketpy_protocol::header::{
    PullMessageRequestHeader, SendMessageRequestHeader, SendMessageRequestHeaderV2,
};
use rocketpy_protocol::record::RecordFields;
use rocketpy_protocol::{Command, SerializeType, code};

/// SplitMix64: small, good enough, and the same everywhere.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }
}

/// Damages `bytes` in one place, or sometimes in up to four.
pub(crate) fn damage(dice: &mut Dice, bytes: &mut Vec<u8>) {
    for _ in 0..*dice.pick(&[1, 1, 1, 2, 4]) {
        if bytes.is_empty() {
            bytes.push(dice.next() as u8);
            continue;
        }
        let at = dice.below(bytes.len());
        match dice.below(8) {
            0 => bytes[at] ^= 1 << dice.below(8),
            1 => bytes[at] = *dice.pick(b"\x00\x01\x02\x7f\x80\xff\"\\{}[]:,-0n"),
            2 => bytes.truncate(at),
            3 => bytes.insert(at, dice.next() as u8),
            4 => {
                bytes.remove(at);
            }
            5 => {
                // A lying length: 32 bits anywhere.
                let lie = *dice.pick(&[
                    0u32,
                    1,
                    3,
                    0xff,
                    0x7fff,
                    0xffff,
                    0x00ff_ffff,
                    0x7fff_ffff,
                    0x8000_0000,
                    u32::MAX,
                ]);
                for (place, byte) in bytes[at..].iter_mut().zip(lie.to_be_bytes()) {
                    *place = byte;
                }
            }
            6 => {
                let end = at + dice.below(bytes.len() - at + 1);
                let piece = bytes[at..end].to_vec();
                let to = dice.below(bytes.len());
                bytes.splice(to..to, piece);
            }
            _ => {
                let noise = dice.below(9);
                bytes.splice(at..at, dice.bytes(noise));
            }
        }
    }
}

pub(crate) fn send_command(serialize: SerializeType) -> Command {
    let header = SendMessageRequestHeader {
        producer_group: "PG1",
        topic: "TopicTest",
        default_topic: "TBW102",
        default_topic_queue_nums: 4,
        queue_id: 2,
        sys_flag: 0,
        born_timestamp: 1_700_000_000_000,
        flag: 0,
        properties: Some(
            "UNIQ_KEY\u{1}0A000001123418B4AAC2000003E80001\u{2}WAIT\u{1}true\u{2}KEYS\u{1}π \u{1f600}\u{2}",
        ),
        reconsume_times: Some(0),
        unit_mode: Some(false),
        max_reconsume_times: None,
        batch: Some(false),
        broker_name: Some("b-a"),
    };
    let mut command = Command::request(code::request::SEND_MESSAGE_V2, &SendMessageRequestHeaderV2(header))
        .with_body(Bytes::from_static(b"hello"));
    command.serialize = serialize;
    command.opaque = 77;
    command
}

pub(crate) fn pull_command(serialize: SerializeType) -> Command {
    let header = PullMessageRequestHeader {
        consumer_group: "CG1",
        topic: "TopicTest",
        queue_id: 3,
        queue_offset: 1 << 40,
        max_msg_nums: 32,
        sys_flag: 7,
        commit_offset: 12,
        suspend_timeout_millis: 15_000,
        subscription: Some("TagA || TagB"),
        sub_version: 1_700_000_000_000,
        expression_type: Some("TAG"),
        max_msg_bytes: None,
        request_source: Some(-1),
        proxy_froward_client_id: None,
        broker_name: Some("b-a"),
    };
    let mut command =
        Command::request(code::request::PULL_MESSAGE, &header).with_remark("a \"remark\"\nin two lines");
    command.serialize = serialize;
    command
}

pub(crate) fn frame(command: &Command) -> Vec<u8> {
    let mut out = BytesMut::new();
    command.encode(&mut out).unwrap();
    out.to_vec()
}

/// A frame with sound lengths around any header.
pub(crate) fn frame_around(header: &[u8], serialize: SerializeType, body: &[u8]) -> Vec<u8> {
    let length = (4 + header.len() + body.len()) as u32;
    let word = (serialize as u32) << 24 | header.len() as u32;
    [&length.to_be_bytes()[..], &word.to_be_bytes(), header, body].concat()
}

/// Three records one behind the other, with and without their own checksum, one of them with IPv6 hosts.
pub(crate) fn records() -> Vec<u8> {
    let mut out = Vec::new();
    for number in 0..3u32 {
        let fields = RecordFields {
            topic: if number == 2 { "%RETRY%a_group_with_a_long_name" } else { "TopicTest" },
            queue_id: number,
            flag: 7,
            sys_flag: 0,
            born_at_ms: 1_700_000_000_000,
            born_host: if number == 1 { "[2001:db8::1]:50000" } else { "10.0.0.1:50000" }.parse().unwrap(),
            store_host: "10.0.0.2:10911".parse().unwrap(),
            reconsume_times: 0,
            prepared_transaction_offset: PhysicalOffset::ZERO,
            body: &b"0123456789".repeat(number as usize * 7),
            properties: b"TAGS\x01TagA\x02KEYS\x01k1 k2\x02CLUSTER\x01c1",
            may_have_crc: true,
        };
        let start = out.len();
        let plan = fields.encode(number != 0, &mut out).unwrap();
        plan.finish(
            &mut out[start..],
            QueueOffset(u64::from(number)),
            PhysicalOffset(start as u64),
            1_700_000_000_123,
        );
    }
    out
}

pub(crate) fn batch() -> Vec<u8> {
    let mut out = Vec::new();
    for number in 0..4usize {
        let item =
            BatchItem { flag: number as i32, body: &vec![b'x'; number * 5], properties: b"TAGS\x01a\x02" };
        item.encode(&mut out).unwrap();
    }
    out
}
