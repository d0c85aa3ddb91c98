//! Vectors of docs/reference/protocol.md 10.11, and bodies whose text the specifications quote.

use std::collections::BTreeMap;

use rocketpy_model::{DataVersion, MessageQueue, Permission, TopicConfig};
use rocketpy_protocol::body::*;
use rocketpy_protocol::json;

use crate::golden::vector;

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

fn registration() -> RegisterBrokerBody {
    let mut body = RegisterBrokerBody::default();
    let wrapper = &mut body.topic_config_serialize_wrapper;
    wrapper.data_version = DataVersion { counter: 1, state_version: 0, changed_at_ms: 1_700_000_000_000 };
    for topic in [
        TopicConfig::new("TopicTest", 4),
        TopicConfig::new("TBW102", 8).with_perm(Permission::READ_WRITE_INHERIT),
    ] {
        wrapper.topic_config_table.insert(topic.name.clone(), topic);
    }
    body
}

#[test]
fn compressed_registration_10_11() {
    let inflated = vector!("remoting-10.11-register-inflated");
    let deflated = vector!("remoting-10.11-register-deflated");
    assert_eq!(RegisterBrokerBody::decode_sections(&inflated, 413).unwrap(), registration());
    assert_eq!(RegisterBrokerBody::checksum(&deflated), 1_148_936_363);
    let decoded = RegisterBrokerBody::decode(&deflated, true, Some(1_148_936_363), 479).unwrap();
    assert_eq!(decoded, registration());
    assert!(matches!(
        RegisterBrokerBody::decode(&deflated, true, Some(1), 479),
        Err(RegistrationError::Checksum { stated: 1, computed: 1_148_936_363 })
    ));
    // Ours sorts the topics by name; the vector does not.
    let again = registration().encode_compressed().unwrap();
    assert_eq!(RegisterBrokerBody::decode(&again, true, None, 479).unwrap(), registration());
    assert_eq!(registration().encode_sections().len(), inflated.len());
}

#[test]
fn a_registration_has_the_text_of_section_2_2_1() {
    let mut body = registration();
    let wrapper = &mut body.topic_config_serialize_wrapper;
    wrapper.mapping_data_version.changed_at_ms = 1_700_000_000_000;
    wrapper.topic_config_table.remove("TBW102");
    let expected = concat!(
        r#"{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":1,"stateVersion":0,"#,
        r#""timestamp":1700000000000},"mappingDataVersion":{"counter":0,"stateVersion":0,"#,
        r#""timestamp":1700000000000},"topicConfigTable":{"TopicTest":{"attributes":{},"order":false,"perm":6,"#,
        r#""readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"TopicTest","topicSysFlag":0,"#,
        r#""writeQueueNums":4}},"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{}}}"#
    );
    assert_eq!(text(json::to_vec(&body)), expected);
    let read = RegisterBrokerBody::decode(expected.as_bytes(), false, Some(0), 479).unwrap();
    assert_eq!(read, body);
    assert_eq!(RegisterBrokerBody::decode(b"", false, None, 479).unwrap(), RegisterBrokerBody::default());
}

#[test]
fn broker_addresses_are_quoted_and_compact() {
    let route = TopicRouteData {
        broker_datas: vec![BrokerData {
            broker_addrs: BTreeMap::from([
                (0, "10.0.0.2:10911".to_owned()),
                (1, "10.0.0.3:10911".to_owned()),
            ]),
            broker_name: "b-a".to_owned(),
            cluster: "c1".to_owned(),
            ..BrokerData::default()
        }],
        queue_datas: vec![QueueData {
            broker_name: "b-a".to_owned(),
            read_queues: 4,
            write_queues: 4,
            perm: 6,
            sys_flag: 0,
        }],
        ..TopicRouteData::default()
    };
    let expected = concat!(
        r#"{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.2:10911","1":"10.0.0.3:10911"},"brokerName":"b-a","#,
        r#""cluster":"c1","enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"b-a","#,
        r#""perm":6,"readQueueNums":4,"topicSynFlag":0,"topicSysFlag":0,"writeQueueNums":4}]}"#
    );
    assert_eq!(text(json::to_vec(&route)), expected);
    assert_eq!(json::from_str::<TopicRouteData>(expected).unwrap(), route);
}

#[test]
fn maps_by_queue_are_written_inline() {
    let queue = |id| MessageQueue::new("T", "b", id);
    let body = ResetOffsetBody { offset_table: BTreeMap::from([(queue(0), 5), (queue(1), 6)]) };
    let expected = concat!(
        r#"{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:5,"#,
        r#"{"brokerName":"b","queueId":1,"topic":"T"}:6}}"#
    );
    assert_eq!(text(json::to_vec(&body)), expected);
    assert_eq!(json::from_str::<ResetOffsetBody>(expected).unwrap(), body);
    let in_a_text = r#"{"offsetTable":{"{\"brokerName\":\"b\",\"queueId\":0,\"topic\":\"T\"}":5}}"#;
    let one = json::from_str::<ResetOffsetBody>(in_a_text).unwrap();
    assert_eq!(one.offset_table, BTreeMap::from([(queue(0), 5)]));
    let list = r#"{"offsetTable":[{"brokerName":"b","offset":5,"queueId":0,"topic":"T"},{"brokerName":"b","offset":6,"queueId":1,"topic":"T"}]}"#;
    assert_eq!(json::from_str::<ResetOffsetBody>(list).unwrap(), body);
    assert_eq!(text(json::to_vec(&ResetOffsetListBody::from(body))), list);
    let stats = ConsumeStats {
        consume_tps: 0.0,
        offset_table: BTreeMap::from([(
            queue(2),
            OffsetWrapper { broker_offset: 1 << 60, ..Default::default() },
        )]),
    };
    let written = text(json::to_vec(&stats));
    assert!(
        written.starts_with(r#"{"consumeTps":0.0,"offsetTable":{{"brokerName":"b","queueId":2,"#),
        "{written}"
    );
    assert_eq!(json::from_str::<ConsumeStats>(&written).unwrap(), stats);
}

#[test]
fn statistics_have_the_members_of_apache() {
    let item = StatisticsItem { avgpt: 1.5, sum: 3, tps: 0.0 };
    let body = Statistics { stats_minute: item, ..Statistics::default() };
    let expected = concat!(
        r#"{"statsDay":{"avgpt":0.0,"sum":0,"tps":0.0},"statsHour":{"avgpt":0.0,"sum":0,"tps":0.0},"#,
        r#""statsMinute":{"avgpt":1.5,"sum":3,"tps":0.0}}"#
    );
    assert_eq!(text(json::to_vec(&body)), expected);
    assert_eq!(json::from_str::<Statistics>(expected).unwrap(), body);
    let body = BrokerConsumeStats {
        broker_addr: "h:1".to_owned(),
        consume_stats_list: vec![BTreeMap::from([("g".to_owned(), vec![ConsumeStats::default()])])],
        total_diff: 2,
        total_inflight_diff: 1,
    };
    let expected = concat!(
        r#"{"brokerAddr":"h:1","consumeStatsList":[{"g":[{"consumeTps":0.0,"offsetTable":{}}]}],"#,
        r#""totalDiff":2,"totalInflightDiff":1}"#
    );
    assert_eq!(text(json::to_vec(&body)), expected);
    assert_eq!(json::from_str::<BrokerConsumeStats>(expected).unwrap(), body);
    let span = QueueTimeSpan {
        consume_time_stamp: 3,
        delay_time: 4,
        max_time_stamp: 2,
        message_queue: MessageQueue::new("T", "b", 0),
        min_time_stamp: 1,
    };
    let body = ConsumeTimeSpans { consume_time_span_set: vec![span] };
    let expected = concat!(
        r#"{"consumeTimeSpanSet":[{"consumeTimeStamp":3,"delayTime":4,"maxTimeStamp":2,"#,
        r#""messageQueue":{"brokerName":"b","queueId":0,"topic":"T"},"minTimeStamp":1}]}"#
    );
    assert_eq!(text(json::to_vec(&body)), expected);
    assert_eq!(json::from_str::<ConsumeTimeSpans>(expected).unwrap(), body);
}

#[test]
fn configuration_files_have_tabs_and_bare_integer_keys() {
    let body = ConsumerOffsetSerializeWrapper {
        offset_table: BTreeMap::from([("TopicA@GroupA".to_owned(), BTreeMap::from([(0, 10), (1, 20)]))]),
        ..Default::default()
    };
    let expected = "{\n\t\"dataVersion\":{\n\t\t\"counter\":0,\n\t\t\"stateVersion\":0,\n\t\t\"timestamp\":0\n\t},\n\
                    \t\"groupTopicMap\":{},\n\t\"offsetTable\":{\n\t\t\"TopicA@GroupA\":{\n\t\t\t0:10,\n\t\t\t1:20\n\t\t}\n\
                    \t},\n\t\"pullOffsetTable\":{}\n}";
    assert_eq!(text(json::to_config_vec(&body)), expected);
    assert_eq!(json::from_str::<ConsumerOffsetSerializeWrapper>(expected).unwrap(), body);
    let quoted = r#"{"offsetTable":{"TopicA@GroupA":{"0":10,"1":20}}}"#;
    assert_eq!(json::from_str::<ConsumerOffsetSerializeWrapper>(quoted).unwrap(), body);
}

#[test]
fn a_group_file_reads_back_with_class_defaults() {
    let text = r#"{"dataVersion":{"counter":3,"timestamp":5},
        "forbiddenTable":{"g":{"t":1}},
        "subscriptionGroupTable":{"g":{"groupName":"g","retryMaxTimes":3,"brokerId":0,
            "groupRetryPolicy":{"type":"EXPONENTIAL","exponentialRetryPolicy":{"initial":1000}},
            "subscriptionDataSet":[{"topic":"t","expressionType":"TAG","expression":"*","version":7}],
            "somethingNew":{"a":[1,2,{"b":null}]}}}}"#;
    let table: SubscriptionGroupWrapper = json::from_str(text).unwrap();
    let group = &table.subscription_group_table["g"];
    assert_eq!((group.retry_max_times, group.retry_queues, group.consume_enable), (3, 1, true));
    assert_eq!(group.which_broker_when_consume_slowly, 1);
    let policy = group.retry_policy.exponential_retry_policy.as_ref().unwrap();
    assert_eq!((policy.initial, policy.max, policy.multiplier), (1000, 7_200_000, 2));
    assert_eq!(group.subscriptions.as_ref().unwrap()[0].version, 7);
    assert_eq!(table.forbidden_table["g"]["t"], 1);
    let again: SubscriptionGroupWrapper = json::from_slice(&json::to_config_vec(&table)).unwrap();
    assert_eq!(again, table);
}
