//! What is encoded reads back, for values nobody thought of.

use std::net::{IpAddr, SocketAddr};

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use rocketpy_model::{MessageQueue, PhysicalOffset, Properties, QueueOffset};
use rocketpy_protocol::batch::{self, BatchItem};
use rocketpy_protocol::body::{TopicOffset, TopicStatsTable};
use rocketpy_protocol::header::{SendMessageRequestHeader, SendMessageRequestHeaderV2};
use rocketpy_protocol::message_id::{OffsetMessageId, UniqueKey};
use rocketpy_protocol::record::{CheckMode, RecordCheck, RecordFields, check_record, records};
use rocketpy_protocol::{
    Command, ExtFields, Header, Language, SerializeType, decode_frame, json, properties_text,
};

fn host() -> impl Strategy<Value = SocketAddr> {
    (any::<IpAddr>(), any::<u16>()).prop_map(|(address, port)| SocketAddr::new(address, port))
}

fn bytes(limit: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..limit)
}

fn properties() -> impl Strategy<Value = Properties> {
    let text = || "[^\u{1}\u{2}]{1,12}";
    prop::collection::vec((text(), text()), 0..8).prop_map(|pairs| {
        let mut properties = Properties::new();
        for (name, value) in pairs {
            properties.set(name, value).unwrap();
        }
        properties
    })
}

fn command() -> impl Strategy<Value = Command> {
    let ext = prop::collection::vec((".{1,12}", ".{1,40}"), 0..24);
    let remark = prop::option::of(".{1,60}");
    (any::<i32>(), any::<i32>(), any::<i16>(), 0..4, 0..14u8, remark, ext, bytes(200), any::<bool>())
        .prop_map(|(code, opaque, version, flag, language, remark, ext, body, binary)| Command {
            code,
            language: Language::from_code(language),
            version: i32::from(version),
            opaque,
            flag,
            remark,
            ext: ext.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect(),
            body: Bytes::from(body),
            serialize: if binary { SerializeType::Binary } else { SerializeType::Json },
        })
}

proptest! {
    #[test]
    fn commands_read_back(command in command()) {
        let mut out = BytesMut::new();
        command.encode(&mut out).unwrap();
        let frame = decode_frame(&mut out, 1 << 24).unwrap().expect("a whole frame");
        prop_assert!(out.is_empty());
        let mut expected = command.clone();
        if i16::try_from(command.code).is_err() {
            expected.serialize = SerializeType::Json;
        }
        prop_assert_eq!(Command::decode(frame), Ok(expected));
    }

    #[test]
    fn send_headers_read_back_in_both_forms(
        texts in prop::array::uniform4(".{0,20}"),
        numbers in prop::array::uniform4(any::<i32>()),
        born in any::<i64>(),
        optional in prop::option::of((any::<i32>(), any::<bool>(), ".{0,20}")),
    ) {
        let [producer_group, topic, default_topic, broker] = &texts;
        let header = SendMessageRequestHeader {
            producer_group,
            topic,
            default_topic,
            default_topic_queue_nums: numbers[0],
            queue_id: numbers[1],
            sys_flag: numbers[2],
            born_timestamp: born,
            flag: numbers[3],
            properties: optional.as_ref().map(|(_, _, text)| text.as_str()),
            reconsume_times: optional.as_ref().map(|(number, _, _)| *number),
            unit_mode: optional.as_ref().map(|(_, truth, _)| *truth),
            max_reconsume_times: None,
            batch: optional.as_ref().map(|(_, truth, _)| !truth),
            broker_name: Some(broker),
        };
        let mut named = ExtFields::new();
        header.write(&mut named);
        prop_assert_eq!(SendMessageRequestHeader::read(&named), Ok(header));
        let mut lettered = ExtFields::new();
        SendMessageRequestHeaderV2(header).write(&mut lettered);
        prop_assert!(lettered.iter().all(|(name, _)| name.len() == 1));
        prop_assert_eq!(SendMessageRequestHeaderV2::read(&lettered), Ok(SendMessageRequestHeaderV2(header)));
    }

    #[test]
    fn records_read_back(
        topic in "[a-zA-Z0-9_%|-]{1,255}",
        born_host in host(),
        store_host in host(),
        body in bytes(3000),
        properties in properties(),
        numbers in prop::array::uniform4(any::<i32>()),
        longs in prop::array::uniform4(any::<i64>()),
        record_crc in any::<bool>(),
    ) {
        let mut text = Vec::new();
        properties_text::encode(&properties, &mut text);
        let fields = RecordFields {
            topic: &topic,
            queue_id: numbers[0] as u32,
            flag: numbers[1],
            sys_flag: numbers[2],
            born_at_ms: longs[0],
            born_host,
            store_host,
            reconsume_times: numbers[3],
            prepared_transaction_offset: PhysicalOffset(longs[1] as u64),
            body: &body,
            properties: &text,
            may_have_crc: true,
        };
        let mut out = Vec::new();
        let plan = fields.encode(record_crc, &mut out).unwrap();
        plan.finish(&mut out, QueueOffset(longs[2].unsigned_abs() >> 1), PhysicalOffset(7), longs[3]);
        let size = out.len();
        out.extend_from_slice(b"what stands behind");
        let mode = if record_crc { CheckMode::RecordRequired } else { CheckMode::Body };
        let RecordCheck::Record(view) = check_record(&out, mode).unwrap() else {
            panic!("a record, not a filler");
        };
        prop_assert_eq!((view.size(), view.topic, view.body), (size, topic.as_str(), body.as_slice()));
        prop_assert_eq!((view.born_host, view.store_host), (born_host, store_host));
        prop_assert_eq!((view.queue_id as i32, view.flag, view.reconsume_times), (numbers[0], numbers[1], numbers[3]));
        prop_assert_eq!(view.sys_flag & !0x30, numbers[2] & !0x30);
        prop_assert_eq!((view.born_at_ms, view.stored_at_ms), (longs[0], longs[3]));
        let mut read: Vec<_> = properties_text::iter(view.properties).collect();
        prop_assert_eq!(read.pop_if(|(name, _)| *name == "__CRC32#").is_some(), record_crc);
        prop_assert_eq!(read, properties.iter().collect::<Vec<_>>());
        for (name, value) in properties.iter() {
            prop_assert_eq!(view.property(name), Some(value));
        }
    }

    #[test]
    fn records_one_behind_the_other_read_back(bodies in prop::collection::vec(bytes(100), 0..10)) {
        let mut out = Vec::new();
        for body in &bodies {
            let fields = RecordFields {
                topic: "T", queue_id: 0, flag: 0, sys_flag: 0, born_at_ms: 1,
                born_host: "1.2.3.4:5".parse().unwrap(), store_host: "1.2.3.4:6".parse().unwrap(), reconsume_times: 0,
                prepared_transaction_offset: PhysicalOffset::ZERO, body, properties: b"", may_have_crc: true,
            };
            fields.encode(true, &mut out).unwrap();
        }
        let read: Vec<Vec<u8>> = records(&out).map(|view| view.unwrap().body.to_vec()).collect();
        prop_assert_eq!(&read, &bodies);
        if !out.is_empty() {
            out.pop();
            prop_assert_eq!(records(&out).filter(Result::is_err).count(), 1, "the last one is cut");
        }
    }

    #[test]
    fn batches_read_back(items in prop::collection::vec((any::<i32>(), bytes(60), bytes(30)), 0..12)) {
        let mut out = Vec::new();
        for (flag, body, properties) in &items {
            BatchItem { flag: *flag, body, properties }.encode(&mut out).unwrap();
        }
        let read: Vec<_> = batch::items(&out)
            .map(|item| item.map(|item| (item.flag, item.body.to_vec(), item.properties.to_vec())))
            .collect::<Result<_, _>>()
            .unwrap();
        prop_assert_eq!(read, items);
    }

    #[test]
    fn message_ids_read_back(host in host(), offset in 0..i64::MAX as u64, key in any::<(u16, u32, u32, u16)>()) {
        let id = OffsetMessageId { host, physical_offset: PhysicalOffset(offset) };
        prop_assert_eq!(id.to_string().parse(), Ok(id));
        let (process_id, hash, month_ms, counter) = key;
        let key = UniqueKey { address: host.ip(), process_id, hash, month_ms, counter };
        prop_assert_eq!(key.to_string().parse(), Ok(key));
    }

    #[test]
    fn bodies_read_back_from_both_writers(
        entries in prop::collection::btree_map((".{0,9}", ".{0,9}", any::<u32>()), any::<(i64, i64, i64)>(), 0..6),
        tps in -1e300..1e300f64,
    ) {
        let offset_table = entries
            .into_iter()
            .map(|((topic, broker, id), (last_update_at_ms, max_offset, min_offset))| {
                (MessageQueue::new(topic, broker, id), TopicOffset { last_update_at_ms, max_offset, min_offset })
            })
            .collect();
        let table = TopicStatsTable { offset_table, topic_put_tps: tps };
        for written in [json::to_vec(&table), json::to_config_vec(&table)] {
            prop_assert_eq!(json::from_slice::<TopicStatsTable>(&written).unwrap(), table.clone());
        }
    }
}
