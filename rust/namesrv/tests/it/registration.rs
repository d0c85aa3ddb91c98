//! What brokers send, in all its forms, right and wrong.
use rocketpy_protocol::body::RegisterBrokerBody;
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::{Command, SerializeType, header, json};

use crate::support::*;

#[tokio::test]
async fn a_compressed_registration_is_read_and_its_checksum_checked() {
    let bench = Bench::start().await;
    let compressed = body(&["TopicTest", "TBW102"], 1).encode_compressed().expect("deflates");
    let checksum = i32::try_from(RegisterBrokerBody::checksum(&compressed)).expect("31 bits");
    let request = |checksum| {
        let header = header::RegisterBrokerRequestHeader {
            compressed: Some(true),
            body_crc32: Some(checksum),
            ..register_header(MASTER)
        };
        Command::request(request::REGISTER_BROKER, &header).with_body(compressed.clone())
    };
    let refused = bench.call(request(checksum ^ 1)).await;
    assert_eq!(refused.code, response::SYSTEM_ERROR);
    assert!(refused.remark.expect("a remark").contains("checksum"));
    assert_eq!(bench.route("TopicTest").await.code, response::TOPIC_NOT_EXIST);
    assert_eq!(bench.call(request(checksum)).await.code, response::SUCCESS);
    assert_eq!(bench.route("TopicTest").await.code, response::SUCCESS);
}

#[tokio::test]
async fn a_binary_header_registers_as_well() {
    let bench = Bench::start().await;
    let request =
        Command { serialize: SerializeType::Binary, ..registration(MASTER, &["TopicTest", "TBW102"], 1) };
    assert_eq!(bench.call(request).await.code, response::SUCCESS);
    assert_eq!(bench.route("TopicTest").await.code, response::SUCCESS);
}

#[tokio::test]
async fn malformed_bodies_are_refused_and_leave_nothing() {
    let bench = Bench::start().await;
    let bombs = vec![0_u8; 80 << 20];
    let bomb = rocketpy_protocol::compression::compress(rocketpy_model::CompressionType::Zlib, 9, &bombs)
        .expect("deflates");
    for (compressed, body) in
        [(false, b"not json".to_vec()), (false, b"[1]".to_vec()), (true, b"not zlib".to_vec()), (true, bomb)]
    {
        let header =
            header::RegisterBrokerRequestHeader { compressed: Some(compressed), ..register_header(MASTER) };
        let answer = bench.call(Command::request(request::REGISTER_BROKER, &header).with_body(body)).await;
        assert_eq!(answer.code, response::SYSTEM_ERROR);
        assert!(!answer.remark.expect("a remark").is_empty());
    }
    assert_eq!(
        bench.text_of(request::GET_BROKER_CLUSTER_INFO).await,
        r#"{"brokerAddrTable":{},"clusterAddrTable":{}}"#
    );
}

#[tokio::test]
async fn headers_that_lack_or_garble_a_field_are_refused_by_its_name() {
    let bench = Bench::start().await;
    let whole = registration(MASTER, &["TopicTest", "TBW102"], 1);
    for (field, value) in [
        ("brokerName", None),
        ("brokerId", Some("master")),
        ("brokerId", Some("-1")),
        ("brokerAddr", Some("")),
    ] {
        let mut request = whole.clone();
        request.ext.remove(field);
        if let Some(value) = value {
            request.ext.push(field, value);
        }
        let answer = bench.call(request).await;
        assert_eq!(answer.code, response::INVALID_PARAMETER, "{field}");
        let remark = answer.remark.expect("a remark");
        assert!(remark.contains(field) || remark.contains("broker id"), "{remark}");
    }
}

#[tokio::test]
async fn a_first_registration_of_one_topic_is_refused() {
    let bench = Bench::start().await;
    let refused = bench.register(MASTER, &["TopicTest"]).await;
    assert_eq!(refused.code, response::SYSTEM_ERROR);
    assert!(refused.remark.expect("a remark").contains("b-a"));
    assert_eq!(bench.register(MASTER, &["TopicTest", "TBW102"]).await.code, response::SUCCESS);
    assert_eq!(bench.call(registration(MASTER, &["New"], 2)).await.code, response::SUCCESS);
    assert_eq!(bench.route("New").await.code, response::SUCCESS);
    assert_eq!(bench.route("TopicTest").await.code, response::SUCCESS, "registrations add");
}

#[tokio::test]
async fn a_topic_with_a_bad_name_counts_among_those_that_a_first_registration_states() {
    let bench = Bench::start().await;
    let refused = bench.register(MASTER, &["../bad"]).await;
    assert!(refused.remark.expect("a remark").contains("b-a"), "one topic is an increment");
    assert_eq!(bench.register(MASTER, &["TopicTest", "../bad"]).await.code, response::SUCCESS);
    assert_eq!(bench.route("TopicTest").await.code, response::SUCCESS);
}

#[tokio::test]
async fn a_slave_is_told_its_master_and_everyone_the_order_configuration() {
    let bench = Bench::start().await;
    let answer = bench.register(MASTER, &["TopicTest", "TBW102"]).await;
    assert_eq!((answer.ext.len(), answer.body.len()), (0, 0));
    let slave = Broker { addr: "10.0.0.3:10911", id: 1, ..MASTER };
    let answer = bench.register(slave, &["TopicTest", "TBW102"]).await;
    assert_eq!(answer.ext.get("masterAddr"), Some("10.0.0.2:10911"));
    assert_eq!(answer.ext.get("haServerAddr"), Some("10.0.0.2:10912"));
    let put = header::PutKVConfigRequestHeader {
        namespace: "ORDER_TOPIC_CONFIG",
        key: "TopicTest",
        value: "b-a:4",
    };
    bench.ask(request::PUT_KV_CONFIG, &put).await;
    let answer = bench.register(MASTER, &["TopicTest", "TBW102"]).await;
    assert_eq!(text(&answer), r#"{"table":{"TopicTest":"b-a:4"}}"#);
}

#[tokio::test]
async fn a_data_version_is_compared_and_handed_out() {
    let bench = Bench::start().await;
    let query = |counter| {
        let header = header::QueryDataVersionRequestHeader {
            broker_name: MASTER.name,
            broker_addr: MASTER.addr,
            cluster_name: MASTER.cluster,
            broker_id: MASTER.id,
        };
        Command::request(request::QUERY_DATA_VERSION, &header).with_body(json::to_vec(&version(counter)))
    };
    let unknown = bench.call(query(1)).await;
    assert_eq!((unknown.code, unknown.ext.get("changed"), unknown.body.len()), (0, Some("true"), 0));
    bench.register(MASTER, &["TopicTest", "TBW102"]).await;
    for (counter, changed) in [(1, "false"), (2, "true")] {
        let answer = bench.call(query(counter)).await;
        assert_eq!((answer.code, answer.ext.get("changed")), (0, Some(changed)));
        assert_eq!(text(&answer), r#"{"counter":1,"stateVersion":0,"timestamp":1700000000000}"#);
    }
    let header = Command::request(request::QUERY_DATA_VERSION, &header::NoHeader);
    assert_eq!(bench.call(header).await.code, response::INVALID_PARAMETER);
}

#[tokio::test]
async fn bad_names_of_brokers_clusters_and_addresses_refuse_the_registration() {
    let bench = Bench::start().await;
    for (field, value) in [
        ("brokerName", "../up"),
        ("brokerName", "red\u{1b}[31m"),
        ("brokerName", "b\0"),
        ("clusterName", "two\nlines"),
        ("clusterName", "x/y"),
        ("brokerAddr", "nowhere"),
        ("brokerAddr", "a\nb:10911"),
        ("haServerAddr", "\u{1b}]0;title\u{7}:1"),
    ] {
        let mut request = registration(MASTER, &["TopicTest", "TBW102"], 1);
        request.ext.remove(field);
        request.ext.push(field, value);
        let answer = bench.call(request).await;
        assert_eq!(answer.code, response::INVALID_PARAMETER, "{field} {value:?}");
        let remark = answer.remark.expect("a remark");
        assert!(!remark.chars().any(char::is_control), "{remark:?}");
    }
    let long: &'static str = "n".repeat(300).leak();
    let answer = bench.register(Broker { name: long, ..MASTER }, &["TopicTest", "TBW102"]).await;
    assert_eq!(answer.code, response::INVALID_PARAMETER);
    assert_eq!(
        bench.text_of(request::GET_BROKER_CLUSTER_INFO).await,
        r#"{"brokerAddrTable":{},"clusterAddrTable":{}}"#
    );
}

#[tokio::test]
async fn topics_with_bad_names_are_left_out_of_a_registration() {
    let bench = Bench::start().await;
    let long = "t".repeat(300);
    let topics = ["TopicTest", "%RETRY%group", "b-a", "../up", "red\u{1b}[31m", "a\0", "two\nlines", &long];
    assert_eq!(bench.register(MASTER, &topics).await.code, response::SUCCESS);
    assert_eq!(
        bench.text_of(request::GET_ALL_TOPIC_LIST_FROM_NAMESERVER).await,
        r#"{"topicList":["%RETRY%group","TopicTest","b-a"]}"#
    );
    let register = |topic| {
        Command::request(request::REGISTER_TOPIC_IN_NAMESRV, &header::RegisterTopicRequestHeader { topic })
            .with_body(r#"{"queueDatas":[{"brokerName":"b-a"}]}"#)
    };
    assert_eq!(bench.call(register("../up")).await.code, response::INVALID_PARAMETER);
    assert_eq!(bench.call(register("by-hand")).await.code, response::SUCCESS);
}
