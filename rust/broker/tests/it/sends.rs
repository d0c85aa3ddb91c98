use rocketpy_model::system;
use rocketpy_protocol::code::request;
use rocketpy_protocol::header::{Header, SendMessageResponseHeader};
use rocketpy_protocol::message_id::OffsetMessageId;

use crate::support::{Fixture, Pull, Send, batch_body};

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_stored_with_all_its_fields_and_the_brokers_properties() {
    let fixture = Fixture::start().await;
    for (code, offset) in [(request::SEND_MESSAGE, 0), (request::SEND_MESSAGE_V2, 1)] {
        let properties = "TAGS\u{1}a\u{2}UNIQ_KEY\u{1}KEY\u{2}";
        let send = Send { code, queue_id: 2, properties, sys_flag: 0x30, ..Send::new("orders", "hello") };
        let answer = fixture.send(send).await;
        assert_eq!(answer.code, 0, "{:?}", answer.remark);
        let header = SendMessageResponseHeader::read(&answer.ext).unwrap();
        assert_eq!((header.queue_id, header.queue_offset), (2, offset));
        assert_eq!(header.transaction_id, Some("KEY"));
        assert_eq!((header.region, header.trace_on), (Some("DefaultRegion"), Some("true")));
        let id: OffsetMessageId = header.msg_id.parse().unwrap();
        assert_eq!(id.host, fixture.broker.local_addr());
    }
    fixture.wait_for_end("orders", 2, 2).await;
    let pulled = fixture.pull(Pull { queue_id: 2, ..Pull::new("orders", 0) }).await;
    let records = pulled.records();
    assert_eq!(records.len(), 2);
    for (offset, record) in records.iter().enumerate() {
        assert_eq!((record.topic, record.queue_id, record.flag), ("orders", 2, 7));
        assert_eq!(record.queue_offset.get(), offset as u64);
        assert_eq!(record.body, b"hello");
        assert_eq!(record.born_at_ms, 1_700_000_000_000);
        assert_eq!(record.sys_flag & 0x30, 0, "address bits are the broker's to set");
        assert_eq!(record.store_host, fixture.broker.local_addr());
        assert!(record.born_host.ip().is_loopback());
        assert_eq!(record.tag(), Some("a"));
        assert_eq!(record.unique_key(), Some("KEY"));
        for (name, value) in
            [("MSG_REGION", "DefaultRegion"), ("TRACE_ON", "true"), ("CLUSTER", "DefaultCluster")]
        {
            assert_eq!(record.property(name), Some(value), "{name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_without_a_unique_key_gets_one() {
    let fixture = Fixture::start().await;
    let answer = fixture.send(Send::new("orders", "x")).await;
    let key = SendMessageResponseHeader::read(&answer.ext).unwrap().transaction_id.unwrap().to_owned();
    assert_eq!(key.len(), 32);
    fixture.wait_for_end("orders", 0, 1).await;
    let pulled = fixture.pull(Pull::new("orders", 0)).await;
    assert_eq!(pulled.records()[0].unique_key(), Some(key.as_str()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_becomes_one_record_for_each_item_whatever_its_code() {
    let fixture = Fixture::start().await;
    let body = batch_body(&[
        ("one", "TAGS\u{1}a\u{2}UNIQ_KEY\u{1}K1\u{2}"),
        ("two", "UNIQ_KEY\u{1}K2\u{2}"),
        ("three", ""),
    ]);
    // The C++ client sends batches with the code of single messages.
    for (code, first) in [(request::SEND_BATCH_MESSAGE, 0), (request::SEND_MESSAGE_V2, 3)] {
        let properties = "UNIQ_KEY\u{1}BATCH\u{2}WAIT\u{1}true\u{2}";
        let send = Send { code, batch: true, body: &body, properties, ..Send::new("orders", "") };
        let answer = fixture.send(send).await;
        assert_eq!(answer.code, 0, "{:?}", answer.remark);
        let header = SendMessageResponseHeader::read(&answer.ext).unwrap();
        assert_eq!(header.queue_offset, first);
        assert_eq!(header.batch_uniq_id, None, "a client then names every message by its own id");
        assert_eq!(header.msg_id.split(',').count(), 3);
        assert!(header.msg_id.split(',').all(|id| id.parse::<OffsetMessageId>().is_ok()));
    }
    fixture.wait_for_end("orders", 0, 6).await;
    let pulled = fixture.pull(Pull::new("orders", 0)).await;
    assert_eq!(pulled.bodies(), ["one", "two", "three", "one", "two", "three"]);
    let records = pulled.records();
    assert_eq!(records[0].unique_key(), Some("K1"));
    assert_eq!(records[0].tag(), Some("a"));
    assert_eq!(records[0].flag, 3, "the item's own");
    assert_eq!(records[0].property("CLUSTER"), None, "items get no properties but their own");
    assert_eq!(records[2].unique_key(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_topic_is_made_from_its_template() {
    let fixture = Fixture::start().await;
    for (topic, wanted, made) in [("four", 4, 4), ("many", 100, 8), ("none", 0, 1)] {
        let answer = fixture.send(Send { default_queues: wanted, ..Send::new(topic, "x") }).await;
        assert_eq!(answer.code, 0, "{:?}", answer.remark);
        let too_far = fixture.send(Send { queue_id: made, ..Send::new(topic, "x") }).await;
        assert_eq!(too_far.code, 29, "{topic} has {made} queues");
    }
    let unknown = fixture.send(Send { default_topic: "no-template", ..Send::new("missing", "x") }).await;
    assert_eq!(unknown.code, 17);
    assert!(unknown.remark.unwrap().contains("rocketpy topic create missing"));
    let not_inherited = fixture.send(Send { default_topic: "four", ..Send::new("missing", "x") }).await;
    assert_eq!(not_inherited.code, 17);

    let closed = Fixture::start_with(|config| config.topics.auto_create = false).await;
    assert_eq!(closed.send(Send::new("missing", "x")).await.code, 17);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_negative_queue_id_lets_the_broker_choose() {
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 4).await;
    for _ in 0..20 {
        let answer = fixture.send(Send { queue_id: -1, ..Send::new("orders", "x") }).await;
        let queue_id = SendMessageResponseHeader::read(&answer.ext).unwrap().queue_id;
        assert!((0..4).contains(&queue_id), "{queue_id}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_that_was_tried_too_often_goes_to_the_dead_letters() {
    let fixture = Fixture::start().await;
    let topic = system::retry_topic("group");
    let retry = Send { default_topic: "none", max_reconsume_times: Some(2), ..Send::new(&topic, "x") };
    let once_more = fixture.send(Send { reconsume_times: Some(2), ..retry }).await;
    assert_eq!(once_more.code, 0, "{:?}", once_more.remark);
    assert_eq!(fixture.send(Send { reconsume_times: Some(3), ..retry }).await.code, 0);
    fixture.wait_for_end(&topic, 0, 1).await;
    fixture.wait_for_end(&system::dlq_topic("group"), 0, 1).await;
    let dead = fixture.pull(Pull::new(&system::dlq_topic("group"), 0)).await;
    assert_eq!(dead.records()[0].reconsume_times, 3);

    let delayed = Send { properties: "DELAY\u{1}5\u{2}", ..retry };
    let alive = fixture.send(Send { reconsume_times: Some(1), ..delayed }).await;
    assert_eq!(alive.code, 0, "{:?}", alive.remark);
    fixture.wait_for_end(system::SCHEDULE_TOPIC, 4, 1).await;
    let answer = fixture.send(Send { reconsume_times: Some(3), ..delayed }).await;
    assert_eq!(answer.code, 0, "{:?}", answer.remark);
    fixture.wait_for_end(&system::dlq_topic("group"), 0, 2).await;
    let dead = fixture.pull(Pull::new(&system::dlq_topic("group"), 1)).await;
    assert_eq!(dead.records()[0].property("DELAY"), None);

    let closed = Fixture::start_with(|config| config.auto_create_group = false).await;
    assert_eq!(closed.send(Send { default_topic: "none", ..Send::new(&topic, "x") }).await.code, 26);
}

#[tokio::test(flavor = "multi_thread")]
async fn pipelined_sends_of_one_connection_keep_their_order() {
    let fixture = Fixture::start().await;
    let mut calls = Vec::new();
    for number in 0..500 {
        let send = Send::new("orders", "x");
        let body = number.to_string();
        let command = Send { body: body.as_bytes(), ..send }.command();
        calls.push(
            fixture.client.start_call(&fixture.address, command, crate::support::TIMEOUT).await.unwrap(),
        );
    }
    for (number, call) in calls.into_iter().enumerate() {
        let answer = call.await.unwrap();
        assert_eq!(answer.code, 0, "{:?}", answer.remark);
        assert_eq!(SendMessageResponseHeader::read(&answer.ext).unwrap().queue_offset, number as i64);
    }
}
