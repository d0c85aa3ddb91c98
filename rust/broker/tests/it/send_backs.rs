//! CONSUMER_SEND_MSG_BACK: what becomes of a message that its consumer could not handle.

use rocketpy_model::system;
use rocketpy_protocol::Command;
use rocketpy_protocol::code::request;
use rocketpy_protocol::header::{ConsumerSendMsgBackRequestHeader, Header, SendMessageResponseHeader, key};
use rocketpy_protocol::message_id::OffsetMessageId;

use crate::support::{Fixture, Pull, Pulled, Send, TIMEOUT};

const GROUP: &str = "workers";

pub(crate) fn send_back(offset: u64, delay_level: i32, max_reconsume_times: Option<i32>) -> Command {
    let header = ConsumerSendMsgBackRequestHeader {
        offset: offset as i64,
        group: GROUP,
        delay_level,
        origin_msg_id: None,
        origin_topic: Some("orders"),
        unit_mode: None,
        max_reconsume_times,
        broker_name: None,
    };
    Command::request(request::CONSUMER_SEND_MSG_BACK, &header)
}

async fn first_of(fixture: &Fixture, topic: &str) -> Pulled {
    fixture.pull(Pull::new(topic, 0).held(TIMEOUT.as_millis() as i64)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_retried_and_then_dead_and_keeps_its_origin() {
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 1).await;
    fixture.put_tagged("orders", 0, "order 1", "urgent").await;
    let pulled = first_of(&fixture, "orders").await;
    let failed = pulled.records()[0];
    let place = OffsetMessageId { host: failed.store_host, physical_offset: failed.physical_offset };
    let answer = fixture.call(send_back(failed.physical_offset.get(), 1, Some(1))).await;
    assert_eq!(answer.code, 0, "{:?}", answer.remark);

    let retry = system::retry_topic(GROUP);
    fixture.wait_for_end(&retry, 0, 1).await;
    let pulled = first_of(&fixture, &retry).await;
    let retried = pulled.records()[0];
    assert_eq!((retried.body, retried.tag(), retried.reconsume_times), (failed.body, Some("urgent"), 1));
    assert_eq!(retried.property("RETRY_TOPIC"), Some("orders"));
    assert_eq!(retried.property("ORIGIN_MESSAGE_ID"), Some(place.to_string().as_str()));
    assert!(retried.stored_at_ms >= failed.stored_at_ms + 1000, "it waited for its level");

    let answer = fixture.call(send_back(retried.physical_offset.get(), 1, Some(1))).await;
    assert_eq!(answer.code, 0, "{:?}", answer.remark);
    let pulled = first_of(&fixture, &system::dlq_topic(GROUP)).await;
    let dead = pulled.records()[0];
    assert_eq!((dead.body, dead.reconsume_times, dead.property("DELAY")), (failed.body, 2, Some("0")));
    let origin = [("RETRY_TOPIC", "orders"), ("DLQ_ORIGIN_TOPIC", "orders")];
    for (name, value) in origin.into_iter().chain([("DLQ_REASON", "RETRIES_EXHAUSTED")]) {
        assert_eq!(dead.property(name), Some(value), "{name}");
    }
    for name in ["ORIGIN_MESSAGE_ID", "DLQ_ORIGIN_MESSAGE_ID"] {
        assert_eq!(dead.property(name), Some(place.to_string().as_str()), "{name}");
    }
    assert_eq!((dead.born_at_ms, dead.unique_key()), (failed.born_at_ms, failed.unique_key()));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_level_is_the_third_and_a_negative_one_is_death() {
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 1).await;
    fixture.put("orders", 0, "x").await;
    let pulled = first_of(&fixture, "orders").await;
    let offset = pulled.records()[0].physical_offset.get();
    assert_eq!(fixture.call(send_back(offset, 0, None)).await.code, 0);
    fixture.wait_for_end(system::SCHEDULE_TOPIC, 2, 1).await;
    assert_eq!(fixture.call(send_back(offset, -1, None)).await.code, 0);
    let dead = first_of(&fixture, &system::dlq_topic(GROUP)).await;
    assert_eq!(dead.bodies(), ["x"]);
    assert_eq!(dead.records()[0].property("DLQ_REASON"), Some("GIVEN_UP"));
}

fn send_back_with(offset: u64, delay_level: i32, error: &str) -> Command {
    let mut command = send_back(offset, delay_level, Some(1));
    command.ext.push(key::SEND_BACK_ERROR, error);
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_has_the_error_of_its_consumer() {
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 1).await;
    fixture.put("orders", 0, "x").await;
    let offset = first_of(&fixture, "orders").await.records()[0].physical_offset.get();
    let long = "ä".repeat(40_000);
    let cases = [
        ("Reject: no such order", Some("Reject: no such order")),
        ("ValueError: a\u{1}b\u{2}\n\u{1b}[2J", Some(r"ValueError: a\u{1}b\u{2}\n\u{1b}[2J")),
        (&long, Some(&long[..512])),
        ("", None),
    ];
    for (error, _) in cases {
        assert_eq!(fixture.call(send_back_with(offset, -1, error)).await.code, 0, "{} bytes", error.len());
    }
    fixture.wait_for_end(&system::dlq_topic(GROUP), 0, cases.len() as i64).await;
    let dead = first_of(&fixture, &system::dlq_topic(GROUP)).await;
    let stored: Vec<_> = dead.records().iter().map(|record| record.property("DLQ_ERROR")).collect();
    assert_eq!(stored, cases.map(|(_, stored)| stored));
    assert!(dead.records().iter().all(|record| record.property("DLQ_REASON") == Some("GIVEN_UP")));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_last_error_of_a_message_is_stored() {
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 1).await;
    let properties = "DLQ_ERROR\u{1}of an earlier life\u{2}";
    fixture.send(Send { properties, ..Send::new("orders", "x") }).await;
    let offset = first_of(&fixture, "orders").await.records()[0].physical_offset.get();
    assert_eq!(fixture.call(send_back_with(offset, 1, "KeyError: 'first'")).await.code, 0);
    let retry = system::retry_topic(GROUP);
    fixture.wait_for_end(&retry, 0, 1).await;
    let pulled = first_of(&fixture, &retry).await;
    let retried = pulled.records()[0].physical_offset.get();
    assert_eq!(fixture.call(send_back_with(retried, 0, "KeyError: 'last'")).await.code, 0);
    assert_eq!(fixture.call(send_back(retried, -1, None)).await.code, 0);
    fixture.wait_for_end(&system::dlq_topic(GROUP), 0, 2).await;
    let dead = first_of(&fixture, &system::dlq_topic(GROUP)).await;
    let stored: Vec<_> = dead.records().iter().map(|record| record.property("DLQ_ERROR")).collect();
    assert_eq!(stored, [Some("KeyError: 'last'"), None]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_taken_back_is_refused() {
    let fixture = Fixture::start_with(|config| config.auto_create_group = false).await;
    let answer = fixture.call(send_back(0, 0, None)).await;
    assert_eq!(answer.code, 26, "no such group: {:?}", answer.remark);
    let fixture = fixture.restart_with(|config| config.auto_create_group = true).await;
    for offset in [0, 7, 1 << 40, u64::MAX] {
        let answer = fixture.call(send_back(offset, 0, None)).await;
        assert_eq!(answer.code, 1, "offset {offset}: {:?}", answer.remark);
    }
    let fixture = fixture.restart_with(|config| config.broker_permission = 4).await;
    let answer = fixture.call(send_back(0, 0, None)).await;
    assert_eq!(answer.code, 16, "{:?}", answer.remark);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_message_that_is_accepted_can_be_retried_and_become_a_dead_letter() {
    let fixture = Fixture::start().await;
    let topic = "t".repeat(127);
    fixture.create_topic(&topic, 1).await;
    let mut accepted = 0;
    for bytes in [1, 30_000, 30_050, 30_500, 30_700, 31_000, 32_000, 32_400, 32_650] {
        let properties = format!("name\u{1}{}\u{2}", "v".repeat(bytes));
        let answer = fixture.send(Send { properties: &properties, ..Send::new(&topic, "x") }).await;
        if answer.code != 0 {
            let remark = answer.remark.unwrap();
            assert!(remark.contains("30207") && remark.contains("2560"), "limit and reserve: {remark}");
            continue;
        }
        accepted += 1;
        let header = SendMessageResponseHeader::read(&answer.ext).unwrap();
        let place: OffsetMessageId = header.msg_id.parse().unwrap();
        for delay_level in [1, -1] {
            let error = "e".repeat(512);
            let answer = fixture.call(send_back_with(place.physical_offset.get(), delay_level, &error)).await;
            assert_eq!(answer.code, 0, "{bytes} bytes, level {delay_level}: {:?}", answer.remark);
        }
    }
    assert_eq!(accepted, 3);
    fixture.wait_for_end(&system::dlq_topic(GROUP), 0, accepted).await;
    let dead = first_of(&fixture, &system::dlq_topic(GROUP)).await;
    let errors: Vec<_> =
        dead.records().iter().map(|dead| dead.property("DLQ_ERROR").unwrap().len()).collect();
    assert_eq!(errors, [512; 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn properties_that_clients_forge_do_not_keep_a_message_from_its_retry() {
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 1).await;
    for properties in [
        format!("RETRY_TOPIC\u{1}{}\u{2}", "t".repeat(16_000)),
        "RETRY_TOPIC\u{1}a\u{1}b\u{2}ORIGIN_MESSAGE_ID\u{1}c\u{1}d\u{2}".to_owned(),
    ] {
        let answer = fixture.send(Send { properties: &properties, ..Send::new("orders", "x") }).await;
        assert_eq!(answer.code, 0, "{:?}", answer.remark);
        let header = SendMessageResponseHeader::read(&answer.ext).unwrap();
        let place: OffsetMessageId = header.msg_id.parse().unwrap();
        for delay_level in [1, -1] {
            let answer = fixture.call(send_back(place.physical_offset.get(), delay_level, None)).await;
            assert_eq!(answer.code, 0, "level {delay_level}: {:?}", answer.remark);
        }
    }
    let dead = first_of(&fixture, &system::dlq_topic(GROUP)).await;
    assert_eq!(dead.records()[0].property("DLQ_ORIGIN_TOPIC"), Some("orders"));
}
