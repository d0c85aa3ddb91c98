//! The lenient JSON of bodies, case by case, and heartbeats as the clients of other languages write them.

use rocketpy_protocol::body::*;
use rocketpy_protocol::json::{self, JsonError};

#[test]
fn a_heartbeat_of_the_go_client_is_read() {
    let text = r#"{"clientID":"10.0.0.1@123","consumerDataSet":[{"groupName":"g","consumeType":"CONSUME_PASSIVELY",
        "messageModel":"Clustering","consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","subscriptionDataSet":[
        {"classFilterMode":false,"topic":"t","subString":"A || B","tagsSet":["A","B"],"codeSet":["65","66"],
        "subVersion":1700000000000000000,"expressionType":"TAG"}],"unitMode":false}],"producerDataSet":[]}"#;
    let heartbeat: HeartbeatData = json::from_str(text).unwrap();
    let group = &heartbeat.consumer_data_set[0];
    assert_eq!(group.message_model, MessageModel::Clustering);
    assert_eq!(group.consume_from_where, ConsumeFromWhere::ConsumeFromFirstOffset);
    let subscription = &group.subscription_data_set[0];
    assert_eq!(subscription.code_set.iter().copied().collect::<Vec<_>>(), [65, 66]);
    assert_eq!(subscription.sub_version, 1_700_000_000_000_000_000);
    assert!(subscription.is_tag_type());
}

#[test]
fn a_heartbeat_of_the_cpp_client_is_read() {
    let text = r#"{"clientID":"c","consumerDataSet":[{"consumeFromWhere":0,"consumeType":1,"groupName":"g","messageModel":1,
        "subscriptionDataSet":[{"codeSet":[],"subString":"*","subVersion":"1700000000000","tagsSet":[],"topic":"t"}]}]}
"#;
    let heartbeat: HeartbeatData = json::from_str(text).unwrap();
    assert!(heartbeat.producer_data_set.is_empty());
    let group = &heartbeat.consumer_data_set[0];
    assert_eq!(
        (group.consume_type, group.message_model),
        (ConsumeType::ConsumePassively, MessageModel::Clustering)
    );
    assert_eq!(group.subscription_data_set[0].sub_version, 1_700_000_000_000);
    assert!(group.subscription_data_set[0].is_tag_type(), "an absent type means TAG");
}

#[test]
fn unknown_spellings_do_not_fail_a_heartbeat() {
    let text = r#"{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeType":"CONSUME_BY_MAGIC","messageModel":null,
        "consumeFromWhere":99,"subscriptionDataSet":null,"unitMode":null}],"future":{"x":[1]}}"#;
    let heartbeat: HeartbeatData = json::from_str(text).unwrap();
    let group = &heartbeat.consumer_data_set[0];
    assert_eq!((group.consume_type, group.message_model), (ConsumeType::Unknown, MessageModel::Clustering));
    assert_eq!(group.consume_from_where, ConsumeFromWhere::Unknown);
}

#[test]
fn enums_are_written_by_their_wire_names() {
    let text = String::from_utf8(json::to_vec(&ConsumerData::default())).unwrap();
    assert!(text.contains(r#""consumeFromWhere":"CONSUME_FROM_LAST_OFFSET""#), "{text}");
    assert!(
        text.contains(r#""consumeType":"CONSUME_PASSIVELY""#)
            && text.contains(r#""messageModel":"CLUSTERING""#)
    );
    assert_eq!(
        json::to_vec(&ConsumeFromWhere::ConsumeFromLastOffsetAndFromMinWhenBootFirst),
        b"\"CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST\""
    );
}

#[test]
fn members_that_come_twice_count_by_their_last_value() {
    let list: TopicList =
        json::from_str(r#"{"topicList":["a"],"topicList":["b"],"brokerAddr":"x","brokerAddr":null}"#)
            .unwrap();
    assert_eq!((list.topic_list, list.broker_addr), (vec!["b".to_owned()], None));
}

#[test]
fn null_members_are_left_out() {
    assert_eq!(json::to_vec(&TopicList::default()), br#"{"topicList":[]}"#);
    let table: KvTable = json::from_str(r#"{"table":{"a":null,"b":"1","c":2,"d":true}}"#).unwrap();
    let expected = [("b", "1"), ("c", "2"), ("d", "true")];
    assert!(table.table.iter().map(|(name, value)| (name.as_str(), value.as_str())).eq(expected));
}

#[test]
fn errors_tell_what_was_expected_where() {
    let error = |text: &str| json::from_str::<TopicList>(text).unwrap_err();
    assert_eq!(
        error("{\"topicList\":[\"a\"}"),
        JsonError::Syntax { expected: "a comma or the end of the list", at: 17 }
    );
    assert_eq!(error("{} x"), JsonError::Trailing { at: 3 });
    assert_eq!(error("[]"), JsonError::Syntax { expected: "an object", at: 0 });
    assert_eq!(json::from_slice::<TopicList>(b"{\xff}"), Err(JsonError::Utf8 { at: 1 }));
    let wrong = json::from_str::<QueueData>(r#"{"perm":"six"}"#).unwrap_err().to_string();
    assert!(wrong.contains("six"), "{wrong}");
}

#[test]
fn an_answer_has_a_bounded_number_of_items() {
    const MOST: usize = json::MAX_ANSWER_ITEMS;
    let list = |items: usize| format!("{{\"topicList\":[{}\"\"]}}", "\"\",".repeat(items - 1));
    let answer =
        |text: &str| json::from_answer::<TopicList>(text.as_bytes()).map(|list| list.topic_list.len());
    assert_eq!(answer(&list(MOST)), Ok(MOST));
    assert_eq!(answer(&list(MOST + 1)), Err(JsonError::TooMany { limit: MOST }));
    assert!(json::from_str::<TopicList>(&list(MOST + 1)).is_ok(), "a file of our own has no such bound");
}
