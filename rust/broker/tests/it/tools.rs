//! What tools ask for as a whole, and what members answer them through the broker.

use std::sync::Arc;

use rocketpy_model::GroupConfig;
use rocketpy_protocol::body::{
    ConsumerOffsetSerializeWrapper, ProducerData, ProducerTableInfo, QueryCorrectionOffsetBody,
    QuerySubscriptionResponseBody, TopicList,
};
use rocketpy_protocol::code::request;
use rocketpy_protocol::header::{
    ConsumeMessageDirectlyResultRequestHeader, GetConsumerRunningInfoRequestHeader, Header,
    QueryCorrectionOffsetRequestHeader, QuerySubscriptionByConsumerRequestHeader,
    QueryTopicsByConsumerRequestHeader, SendMessageResponseHeader,
};
use rocketpy_protocol::record::RecordView;
use rocketpy_protocol::{Command, json};
use rocketpy_remoting::{Connection, Handler, Reply, Response};

use crate::offsets::commit;
use crate::support::{Fixture, Send, heartbeat, wait_until};

async fn ask<'a, T: serde::de::DeserializeOwned>(
    fixture: &Fixture,
    code: i32,
    header: &impl Header<'a>,
) -> T {
    let answer = fixture.call(Command::request(code, header)).await;
    assert_eq!(answer.code, 0, "{:?}", answer.remark);
    json::from_slice(&answer.body).unwrap()
}

async fn ask_bare<T: serde::de::DeserializeOwned>(fixture: &Fixture, code: i32) -> T {
    let answer = fixture.call(Command::bare_request(code)).await;
    assert_eq!(answer.code, 0, "{:?}", answer.remark);
    json::from_slice(&answer.body).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn offsets_and_topics_of_groups_are_told() {
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 2).await;
    for _ in 0..5 {
        fixture.put("orders", 0, "x").await;
    }
    fixture.wait_for_end("orders", 0, 5).await;
    for (group, offset) in [("fast", 5), ("slow", 2), ("slowest", 1)] {
        crate::groups::put(&fixture, &GroupConfig::new(group)).await;
        assert_eq!(commit(&fixture, group, "orders", 0, offset).await.code, 0);
    }
    let offsets: ConsumerOffsetSerializeWrapper = ask_bare(&fixture, request::GET_ALL_CONSUMER_OFFSET).await;
    assert_eq!(offsets.offset_table["orders@slow"], [(0, 2)].into());
    let delays = fixture.call(Command::bare_request(request::GET_ALL_DELAY_OFFSET)).await;
    assert!(delays.code == 0 && delays.body.ends_with(b"\"offsetTable\":{}}"), "{delays:?}");
    fixture.send(Send { properties: "DELAY\u{1}1\u{2}", ..Send::new("orders", "later") }).await;
    fixture.wait_for_end("orders", 0, 6).await;
    wait_until("the delivery is written", async || {
        let delays = fixture.call(Command::bare_request(request::GET_ALL_DELAY_OFFSET)).await;
        String::from_utf8_lossy(&delays.body).contains("\"offsetTable\":{\"1\":1}")
    })
    .await;
    let system: TopicList = ask_bare(&fixture, request::GET_SYSTEM_TOPIC_LIST_FROM_BROKER).await;
    assert!(system.topic_list.contains(&"SCHEDULE_TOPIC_XXXX".to_owned()));
    assert!(!system.topic_list.contains(&"orders".to_owned()));

    let header = QueryTopicsByConsumerRequestHeader { group: "slow" };
    let topics: TopicList = ask(&fixture, request::QUERY_TOPICS_BY_CONSUMER, &header).await;
    assert_eq!(topics.topic_list, ["orders"]);
    let header = |filter_groups, compare_group| QueryCorrectionOffsetRequestHeader {
        filter_groups,
        compare_group,
        topic: "orders",
    };
    for (filter, compare, lowest) in [
        (None, None, 1),
        (Some("slowest"), None, 2),
        (Some("slowest,slow"), Some("fast"), 5),
        (Some("slowest"), Some("slowest"), i64::MAX),
    ] {
        let body: QueryCorrectionOffsetBody =
            ask(&fixture, request::QUERY_CORRECTION_OFFSET, &header(filter, compare)).await;
        assert_eq!(body.correction_offsets, [(0, lowest)].into(), "{filter:?} {compare:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn members_of_groups_are_told() {
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 1).await;
    let client = fixture.other_client();
    let mut data = heartbeat("one", "group", &[("orders", "a || b", 1)]);
    data.producer_data_set.push(ProducerData { group_name: "ingest".to_owned() });
    fixture.heartbeat(&client, &data).await;
    let producers: ProducerTableInfo = ask_bare(&fixture, request::GET_ALL_PRODUCER_INFO).await;
    let info = &producers.data["ingest"][0];
    assert_eq!(info.client_id, "one");
    assert!(info.last_update_timestamp > 1_700_000_000_000 && info.remote_ip.starts_with("127.0.0.1:"));
    let subscription = async |topic| {
        let header = QuerySubscriptionByConsumerRequestHeader { group: "group", topic };
        let body: QuerySubscriptionResponseBody =
            ask(&fixture, request::QUERY_SUBSCRIPTION_BY_CONSUMER, &header).await;
        body.subscription_data.map(|data| data.sub_string)
    };
    assert_eq!(subscription("orders").await.as_deref(), Some("a || b"));
    assert_eq!(subscription("others").await, None);
}

/// Answers what is asked of a member with what it got.
struct Echo;

impl Handler for Echo {
    fn handle(&self, _connection: &Arc<Connection>, request: Command, reply: Reply) {
        let text = match request.code {
            request::GET_CONSUMER_RUNNING_INFO => request.ext.get("clientId").unwrap().as_bytes().to_vec(),
            _ => RecordView::parse(&request.body).unwrap().body.to_vec(),
        };
        reply.send(Response::success().with_body(text.into()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_answers_through_the_broker() {
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 1).await;
    let client = fixture.other_client();
    client.set_request_handler(Arc::new(Echo));
    fixture.heartbeat(&client, &heartbeat("one", "group", &[("orders", "*", 1)])).await;
    let info = |client_id| GetConsumerRunningInfoRequestHeader {
        consumer_group: "group",
        client_id,
        jstack_enable: None,
    };
    let answer = fixture.call(Command::request(request::GET_CONSUMER_RUNNING_INFO, &info("one"))).await;
    assert_eq!((answer.code, &answer.body[..]), (0, &b"one"[..]), "{:?}", answer.remark);
    let sent = fixture.send(Send::new("orders", "text")).await;
    let msg_id = SendMessageResponseHeader::read(&sent.ext).unwrap().msg_id.to_owned();
    let consume = |client_id, msg_id| ConsumeMessageDirectlyResultRequestHeader {
        consumer_group: "group",
        client_id: Some(client_id),
        msg_id: Some(msg_id),
        broker_name: None,
        topic: None,
        topic_sys_flag: None,
        group_sys_flag: None,
    };
    let consumed = async |client_id, msg_id| {
        let header = consume(client_id, msg_id);
        fixture.call(Command::request(request::CONSUME_MESSAGE_DIRECTLY, &header)).await
    };
    let answer = consumed("one", &msg_id).await;
    assert_eq!((answer.code, &answer.body[..]), (0, &b"text"[..]), "{:?}", answer.remark);
    let nowhere = format!("{}{:016X}", &msg_id[..16], 1 << 30);
    for (client_id, id, code, named) in [
        ("two", &*msg_id, 1, "client two is not a live member"),
        ("one", "no id", 29, "msgId"),
        ("one", &nowhere, 1, "no message starts at physical offset"),
    ] {
        let answer = consumed(client_id, id).await;
        let remark = answer.remark.unwrap();
        assert!(answer.code == code && remark.contains(named), "{} {remark}", answer.code);
    }
}
