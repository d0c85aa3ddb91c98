use rocketpy_model::system;
use rocketpy_protocol::Command;
use rocketpy_protocol::code::request;

use crate::support::{Fixture, Send, batch_body, create_topic};

/// Sends what must be refused, and checks code and remark, and that nothing was stored.
async fn is_refused(fixture: &Fixture, send: Send<'_>, code: i32, named: &str) {
    let answer = fixture.send(send).await;
    let remark = answer.remark.unwrap_or_default();
    assert_eq!(answer.code, code, "{remark}");
    assert!(remark.contains(named), "{named:?} in {remark:?}");
    assert_eq!(fixture.max_offset(send.topic, 0).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_topics_and_queues_are_named() {
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 4).await;
    let long = "a".repeat(300);
    for topic in ["a/b", "../../etc/passwd", "a b", "", long.as_str(), "ü"] {
        is_refused(&fixture, Send::new(topic, "x"), 29, "topic name").await;
    }
    for topic in system::SEND_DENIED_TOPICS {
        is_refused(&fixture, Send::new(topic, "x"), 16, topic).await;
    }
    for topic in
        ["rmq_sys_wheel_timer", "rmq_sys_REVIVE_LOG_DefaultCluster", "rmq_sys_SYNC_BROKER_MEMBER_broker-a"]
    {
        is_refused(&fixture, Send::new(topic, "x"), 16, topic).await;
    }
    for queue_id in [4, 1_000_000, i32::MAX] {
        is_refused(&fixture, Send { queue_id, ..Send::new("orders", "x") }, 29, "queues 0 to 3").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_and_properties_have_limits() {
    let fixture = Fixture::start_with(|config| config.max_message_size = 1000).await;
    is_refused(&fixture, Send::new("orders", ""), 13, "no body").await;
    let body = "x".repeat(1001);
    is_refused(&fixture, Send::new("orders", &body), 13, "maxMessageSize 1000").await;
    assert_eq!(fixture.send(Send::new("other", &body[..1000])).await.code, 0);
    let properties = format!("name\u{1}{}\u{2}", "v".repeat(32_760));
    is_refused(&fixture, Send { properties: &properties, ..Send::new("orders", "x") }, 13, "32767").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_over_four_mebibytes_is_refused_by_default() {
    let fixture = Fixture::start().await;
    let body = "x".repeat((4 << 20) + 1);
    is_refused(&fixture, Send::new("orders", &body), 13, "4194304").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_message_can_be_is_refused_by_name_and_never_stored_as_plain() {
    let fixture = Fixture::start().await;
    for (properties, named) in [
        ("DELAY\u{1}soon\u{2}", "property DELAY must be"),
        ("TIMER_DELAY_SEC\u{1}three\u{2}", "property TIMER_DELAY_SEC must be"),
        ("TIMER_DELAY_MS\u{1}-3\u{2}", "property TIMER_DELAY_MS must be"),
        ("TIMER_DELIVER_MS\u{1}4102444800000\u{2}", "timerMaxDelaySec"),
    ] {
        is_refused(&fixture, Send { properties, ..Send::new("orders", "x") }, 13, named).await;
        let body = batch_body(&[("plain", ""), ("not plain", properties)]);
        let batch = Send { batch: true, body: &body, ..Send::new("orders", "") };
        is_refused(&fixture, batch, 13, "a batch cannot be delayed").await;
    }
    for sys_flag in [0x4, 0x8, 0xC] {
        is_refused(&fixture, Send { sys_flag, ..Send::new("orders", "x") }, 13, "transaction").await;
    }
    is_refused(&fixture, Send { sys_flag: 0xC0, ..Send::new("orders", "x") }, 13, "inner batch").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_batches_are_refused_whole() {
    let fixture = Fixture::start().await;
    let mut body = batch_body(&[("one", ""), ("two", "")]);
    body.truncate(body.len() - 1);
    let batch = Send { batch: true, body: &body, ..Send::new("orders", "") };
    is_refused(&fixture, batch, 13, "batch").await;
    is_refused(&fixture, Send { body: b"no batch at all", ..batch }, 13, "batch").await;
    let body = batch_body(&[("one", "")]);
    let topic = system::retry_topic("group");
    is_refused(&fixture, Send { topic: &topic, body: &body, ..batch }, 13, "retry topic").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_without_write_permission_takes_no_message() {
    let fixture = Fixture::start_with(|config| config.broker_permission = 4).await;
    is_refused(&fixture, Send::new("orders", "x"), 16, "brokerPermission 4").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_header_without_a_field_or_with_a_bad_number_is_named() {
    let fixture = Fixture::start().await;
    let mut missing = Send::new("orders", "x").command();
    missing.ext.remove("b");
    let answer = fixture.call(missing).await;
    assert_eq!(answer.code, 29);
    assert!(answer.remark.unwrap().contains("has no field b"));
    let mut bad = Send::new("orders", "x").command();
    bad.ext.push("e", "three");
    let answer = fixture.call(bad).await;
    assert_eq!(answer.code, 29);
    assert!(answer.remark.unwrap().contains("three"));
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_topics_are_refused() {
    // The broker's own topics count.
    let fixture = Fixture::start_with(|config| config.max_topics = 14).await;
    let mut refused = None;
    for number in 0..20 {
        let answer = fixture.send(Send::new(&format!("topic-{number}"), "x")).await;
        if answer.code != 0 {
            refused = Some(answer);
            break;
        }
    }
    let refused = refused.expect("the limit was never reached");
    assert_eq!(refused.code, 1);
    assert!(refused.remark.unwrap().contains("maxTopics"));
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_and_missing_request_codes_are_named() {
    let fixture = Fixture::start().await;
    for (code, named) in [
        (request::UPDATE_AND_CREATE_STATIC_TOPIC, "UPDATE_AND_CREATE_STATIC_TOPIC"),
        (request::POP_MESSAGE, "POP_MESSAGE"),
        (request::QUERY_ASSIGNMENT, "QUERY_ASSIGNMENT"),
        (200_050, "200050"),
        (31_999, "31999"),
    ] {
        let answer = fixture.call(Command::bare_request(code)).await;
        assert_eq!(answer.code, 3, "{code}");
        let remark = answer.remark.unwrap();
        assert!(remark.contains(named), "{remark}");
    }
    // A one-way request of an unknown code gets no answer and does no harm.
    fixture
        .client
        .call_oneway(&fixture.address, Command::bare_request(31_999), crate::support::TIMEOUT)
        .await
        .unwrap();
    assert_eq!(fixture.call(create_topic("orders", 1, 6)).await.code, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn traces_are_taken_though_their_topics_belong_to_the_system() {
    let fixture = Fixture::start_with(|config| {
        config.trace_topic = true;
        config.trace_topic_name = "rmq_sys_own_trace".to_owned();
    })
    .await;
    for topic in ["rmq_sys_own_trace", "rmq_sys_TRACE_DATA_region", system::TRACE_TOPIC] {
        let answer = fixture.send(Send::new(topic, "x")).await;
        assert_eq!(answer.code, 0, "{topic}: {:?}", answer.remark);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn half_messages_that_could_never_end_are_rejected() {
    const GROUP: &str = "PGROUP\u{1}payers\u{2}";
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 1).await;
    let of_group = |more: &str| format!("{GROUP}{more}");
    for (more, code, named) in [
        (of_group("DELAY\u{1}1x\u{2}"), 13, "property DELAY must be a delay level or a delivery time"),
        (
            of_group("TIMER_DELAY_MS\u{1}1x\u{2}"),
            13,
            "property TIMER_DELAY_MS must be a delay level or a delivery time",
        ),
        (String::new(), 13, "PGROUP"),
        ("PGROUP\u{1}no group\u{2}".to_owned(), 29, "group name"),
        (of_group("CHECK_IMMUNITY_TIME_IN_SECONDS\u{1}9223372036854775807\u{2}"), 13, "timerMaxDelaySec"),
        (of_group("TIMER_DEL_UNIQKEY\u{1}k\u{2}TIMER_DELAY_SEC\u{1}60\u{2}"), 13, "recall"),
    ] {
        let properties = format!("TRAN_MSG\u{1}true\u{2}{more}");
        let half = Send { sys_flag: 0x4, properties: &properties, ..Send::new("orders", "x") };
        is_refused(&fixture, half, code, named).await;
    }
    let properties = format!("TRAN_MSG\u{1}true\u{2}{GROUP}CHECK_IMMUNITY_TIME_IN_SECONDS\u{1}3600\u{2}");
    let half = Send { sys_flag: 0x4, properties: &properties, ..Send::new("orders", "x") };
    assert_eq!(fixture.send(half).await.code, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_items_without_body_or_without_room_for_copies_are_rejected() {
    let fixture = Fixture::start().await;
    let long = format!("name\u{1}{}\u{2}", "v".repeat(32_000));
    for (item, named) in [
        (("", ""), "message at index 1 of the batch: the message has no body"),
        (("x", long.as_str()), "message at index 1 of the batch: message properties of 32006 bytes"),
        (("x", "DELAY\u{1}1\u{2}"), "message at index 1 of the batch: a batch cannot be delayed"),
    ] {
        let body = batch_body(&[("one", ""), item]);
        let batch = Send { batch: true, body: &body, ..Send::new("orders", "") };
        is_refused(&fixture, batch, 13, named).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_whose_copy_exceeds_a_log_file_is_rejected() {
    let fixture = Fixture::start_with(|config| config.max_message_size = (1 << 20) - 128).await;
    let body = "x".repeat((1 << 20) - 1000);
    is_refused(&fixture, Send::new("orders", &body), 13, "mappedFileSizeCommitLog").await;
    assert_eq!(fixture.send(Send::new("orders", &body[..(1 << 20) - 4000])).await.code, 0);
}
