//! Vectors of docs/reference/protocol.md 10.1 to 10.5 and 10.9: frames.

use bytes::{Bytes, BytesMut};
use rocketpy_protocol::body::TopicRouteData;
use rocketpy_protocol::header::{
    GetRouteInfoRequestHeader, PullMessageResponseHeader, SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
};
use rocketpy_protocol::record::records;
use rocketpy_protocol::{Command, Header, Language, SerializeType, code, decode_frame, flag, json};

use crate::golden::vector;

fn decode(bytes: &[u8]) -> Command {
    let mut buffer = BytesMut::from(bytes);
    let frame = decode_frame(&mut buffer, 1 << 24).unwrap().expect("a whole frame");
    assert!(buffer.is_empty(), "the vector is one frame");
    Command::decode(frame).unwrap()
}

fn encode(command: &Command) -> Vec<u8> {
    let mut out = BytesMut::new();
    command.encode(&mut out).unwrap();
    out.to_vec()
}

/// The vector without the member that only the Java client writes, lengths corrected.
fn without_current_rpc(frame: &[u8]) -> Vec<u8> {
    let header_bytes = u32::from_be_bytes(frame[4..8].try_into().unwrap()) as usize;
    let header = std::str::from_utf8(&frame[8..8 + header_bytes]).unwrap();
    let header = header.replace("\"serializeTypeCurrentRPC\":\"JSON\",", "");
    let body = &frame[8 + header_bytes..];
    let length = (4 + header.len() + body.len()) as u32;
    [&length.to_be_bytes()[..], &(header.len() as u32).to_be_bytes(), header.as_bytes(), body].concat()
}

fn route_request() -> Command {
    let header = GetRouteInfoRequestHeader { topic: "TopicTest", accept_standard_json_only: None };
    let mut command = Command::request(code::request::GET_ROUTEINFO_BY_TOPIC, &header);
    command.opaque = 7;
    command.language = Language::Java;
    command
}

#[test]
fn json_request_10_1() {
    let bytes = vector!("remoting-10.01-json-request");
    assert_eq!(decode(&bytes), route_request());
    assert_eq!(encode(&route_request()), without_current_rpc(&bytes));
}

#[test]
fn binary_request_10_2() {
    let bytes = vector!("remoting-10.02-binary-request");
    let mut expected = route_request();
    expected.serialize = SerializeType::Binary;
    assert_eq!(decode(&bytes), expected);
    assert_eq!(encode(&expected), bytes);
}

#[test]
fn json_response_with_an_unquoted_broker_id_10_3() {
    let bytes = vector!("remoting-10.03-json-response");
    let command = decode(&bytes);
    assert!(command.is_response() && !command.is_oneway());
    assert_eq!((command.code, command.opaque, command.language), (0, 7, Language::Rust));
    assert!(command.ext.is_empty() && command.remark.is_none());
    assert_eq!(encode(&command), bytes);

    let route: TopicRouteData = json::from_slice(&command.body).unwrap();
    assert_eq!(route.broker_datas[0].master_address(), Some("10.0.0.2:10911"));
    assert_eq!(
        (route.broker_datas[0].broker_name.as_str(), route.broker_datas[0].cluster.as_str()),
        ("b-a", "c1")
    );
    assert!(!route.broker_datas[0].enable_acting_master);
    let queues = &route.queue_datas[0];
    assert_eq!((queues.perm, queues.read_queues, queues.write_queues, queues.sys_flag), (6, 4, 4, 0));
}

#[test]
fn binary_responses_10_4() {
    let bytes = vector!("remoting-10.04-binary-response-remark");
    let command = decode(&bytes);
    assert_eq!((command.code, command.language, command.opaque), (17, Language::Rust, 7));
    assert_eq!((command.remark.as_deref(), command.flag), (Some("no route"), flag::RESPONSE));
    assert_eq!(encode(&command), bytes);

    let bytes = vector!("remoting-10.04-binary-response-fields");
    let command = decode(&bytes);
    assert_eq!((command.code, command.language, command.opaque), (0, Language::Other, 10));
    assert_eq!(
        command.ext.iter().collect::<Vec<_>>(),
        [("IS_SUPPORT_HEART_BEAT_V2", "false"), ("IS_SUB_CHANGE", "true")]
    );
    assert_eq!(encode(&command), bytes);
}

#[test]
fn send_request_10_5() {
    let bytes = vector!("remoting-10.05-send-request");
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
            "UNIQ_KEY\u{1}0A000001123418B4AAC2000003E80001\u{2}WAIT\u{1}true\u{2}TAGS\u{1}TagA\u{2}",
        ),
        reconsume_times: Some(0),
        unit_mode: Some(false),
        max_reconsume_times: None,
        batch: Some(false),
        broker_name: Some("b-a"),
    };
    let command = decode(&bytes);
    assert_eq!((command.code, command.opaque), (code::request::SEND_MESSAGE_V2, 8));
    assert_eq!(command.body, &b"hello"[..]);
    assert_eq!(SendMessageRequestHeader::of(&command), Ok(header));

    let mut made = Command::request(code::request::SEND_MESSAGE_V2, &SendMessageRequestHeaderV2(header))
        .with_body(Bytes::from_static(b"hello"));
    made.opaque = 8;
    made.language = Language::Java;
    assert_eq!(encode(&made), without_current_rpc(&bytes));
}

#[test]
fn pull_response_10_9() {
    let bytes = vector!("remoting-10.09-pull-response");
    let command = decode(&bytes);
    let header = PullMessageResponseHeader::read(&command.ext).unwrap();
    assert_eq!(
        (header.suggest_which_broker_id, header.next_begin_offset, header.min_offset, header.max_offset),
        (0, 42, 0, 42)
    );
    assert_eq!(command.remark.as_deref(), Some("FOUND"));
    let found: Vec<_> = records(&command.body).map(Result::unwrap).collect();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].bytes, vector!("remoting-10.06-record-v1"));
    assert_eq!(encode(&command), bytes, "our own encoder writes the same frame");
}
