//! The rules of the door by table, against a real store.

use rocketpy_model::{TopicConfig, TopicFilterType, property, sys_flag};
use rocketpy_protocol::batch::BatchItem;
use rocketpy_protocol::properties_text;
use rocketpy_protocol::record::{RecordView, ends_in_its_crc};

use super::stored_again::StoredAgain;
use super::*;
use crate::metrics::Metric;
use crate::testing::{PRODUCER, TestBroker, add_topic, message};

/// Where the rules lead, in words: topic and queue, or the refusal.
async fn outcome(broker: &TestBroker, origin: Origin, message: &NewMessage<'_>) -> String {
    match put_and_make(&broker.intake, origin, message).await {
        Err(refusal) => refusal.to_string(),
        Ok(stored) => {
            let place = stored.places.as_slice()[0];
            let bytes = broker.ground.store().record_at(place).unwrap().expect("it was stored");
            let record = RecordView::parse(&bytes).unwrap();
            if ![system::SCHEDULE_TOPIC, system::TIMER_TOPIC, system::HALF_TOPIC].contains(&record.topic) {
                assert_eq!(stored.queue_id, record.queue_id);
            }
            format!("{} {}", record.topic, record.queue_id)
        }
    }
}

#[tokio::test]
async fn a_topic_and_its_queue_are_found_by_the_rules() {
    use Origin::{Broker, Client};
    let broker = TestBroker::open(|config| config.default_topic_queues = 3);
    add_topic(&broker, TopicConfig::new("known", 2)).await;
    let plain = message("known", "");
    let system_topic = message(system::SCHEDULE_TOPIC, "");
    let made = NewMessage { queue_id: 2, ..message("made", "") };
    let too_many = NewMessage { queue_id: 3, ..message("made-too", "") };
    let no_template = NewMessage { template: None, ..message("missing", "") };
    let retry = NewMessage { template: None, ..message("%RETRY%group", "") };
    let dead = NewMessage { template: None, ..message("%DLQ%other", "") };
    let transaction = message("known", "TRAN_MSG\u{1}true\u{2}PGROUP\u{1}g\u{2}");
    let delayed = message("known", "DELAY\u{1}3\u{2}");
    let waited = NewMessage { delay: Delay::Over, ..delayed };
    for (origin, message, wanted) in [
        (Client, plain, "known 0"),
        (Client, NewMessage { queue_id: 1, ..plain }, "known 1"),
        (Client, NewMessage { queue_id: 2, ..plain }, "queue id 2 is out of range"),
        (Broker, NewMessage { queue_id: 2, ..plain }, "queue id 2 is out of range"),
        (Client, system_topic, "messages cannot be sent to it"),
        (Broker, system_topic, "SCHEDULE_TOPIC_XXXX 0"),
        (Client, message("bad name", ""), "topic name"),
        (Broker, message("bad name", ""), "topic name"),
        (Client, made, "made 2"),
        (Client, too_many, "queue id 3 is out of range"),
        (Client, no_template, "topic missing does not exist"),
        (Broker, no_template, "topic missing does not exist"),
        (Client, retry, "%RETRY%group 0"),
        (Client, dead, "topic %DLQ%other does not exist"),
        (Broker, dead, "%DLQ%other 0"),
        (Client, transaction, "RMQ_SYS_TRANS_HALF_TOPIC 0"),
        (Client, NewMessage { sys_flag: 0x4, ..plain }, "sysFlag 0x4 marks a transaction"),
        (Broker, NewMessage { sys_flag: 0x8, ..plain }, "known 0"),
        (Broker, transaction, "known 0"),
        (Client, delayed, "SCHEDULE_TOPIC_XXXX 2"),
        (Broker, delayed, "SCHEDULE_TOPIC_XXXX 2"),
        (Client, message("known", "DELAY\u{1}soon\u{2}"), "property DELAY must be"),
        (Client, message("known", "TIMER_DELAY_SEC\u{1}60\u{2}"), "rmq_sys_wheel_timer 0"),
        (Broker, message("known", "TIMER_DELAY_MS\u{1}60000\u{2}"), "rmq_sys_wheel_timer 0"),
        (Client, message("known", "TIMER_DELIVER_MS\u{1}5\u{2}"), "known 0"),
        (
            Client,
            message("known", "TIMER_DELAY_SEC\u{1}259201\u{2}"),
            "exceeds timerMaxDelaySec (259200000 ms)",
        ),
        (Client, message("known", "TIMER_DELAY_MS\u{1}1.5\u{2}"), "property TIMER_DELAY_MS must be"),
        (Broker, waited, "known 0"),
        (Client, NewMessage { body: b"", ..plain }, "no body"),
        (Client, NewMessage { is_batch: true, ..plain }, "cannot decode the batch"),
    ] {
        let found = outcome(&broker, origin, &message).await;
        assert!(found.contains(wanted), "{origin:?} {message:?}: {found}");
    }
    let total = |metric| broker.ground.metrics().total(metric);
    assert_eq!((total(Metric::MessagesIn), total(Metric::PutsFailed)), (15, 15));
}

#[tokio::test]
async fn a_retry_of_a_client_is_dead_when_it_was_tried_too_often_or_its_group_consumes_in_order() {
    use Origin::{Broker, Client};
    let broker = TestBroker::open(|_| {});
    let retry = |reconsume_times, max_reconsume_times| NewMessage {
        reconsume_times,
        max_reconsume_times,
        ..message("%RETRY%group", "DELAY\u{1}0\u{2}")
    };
    for (origin, message, wanted) in [
        (Client, retry(16, None), "%RETRY%group 0"),
        (Client, retry(17, None), "%DLQ%group 0"),
        (Client, retry(2, Some(2)), "%RETRY%group 0"),
        (Client, retry(3, Some(2)), "%DLQ%group 0"),
        (Broker, retry(17, None), "%RETRY%group 0"),
        (Client, NewMessage { is_batch: true, ..retry(0, None) }, "a batch cannot be sent to retry topic"),
    ] {
        let found = outcome(&broker, origin, &message).await;
        assert!(found.contains(wanted), "{origin:?} {message:?}: {found}");
    }
    let queue = rocketpy_model::MessageQueue {
        topic: "orders".into(),
        broker_name: broker.ground.config().broker_name.as_str().into(),
        queue_id: 0,
    };
    drop(
        broker.members.queue_locks().lock("group", "client", vec![queue], std::time::Instant::now()).unwrap(),
    );
    assert_eq!(outcome(&broker, Client, &retry(0, None)).await, "%DLQ%group 0");

    let delayed = NewMessage { properties: b"DELAY\x013\x02a\x01b\x02", ..retry(17, None) };
    let stored = put(&broker.intake, Client, &delayed).unwrap();
    let bytes = broker.ground.store().record_at(stored.places.as_slice()[0]).unwrap().unwrap();
    let record = RecordView::parse(&bytes).unwrap();
    assert_eq!((record.property("DELAY"), record.property("a")), (None, Some("b")));
    assert_eq!(record.reconsume_times, 17);
}

#[tokio::test]
async fn a_broker_without_write_permission_still_stores_what_it_owes() {
    let broker = TestBroker::open(|config| config.broker_permission = 4);
    add_topic(&broker, TopicConfig::new("known", 1)).await;
    assert!(
        outcome(&broker, Origin::Client, &message("known", "")).await.contains("does not accept messages")
    );
    assert_eq!(outcome(&broker, Origin::Broker, &message("known", "")).await, "known 0");
}

#[tokio::test]
async fn the_limit_of_bodies_binds_clients_and_not_what_is_stored_again() {
    let broker = TestBroker::open(|config| config.max_message_size = 1000);
    add_topic(&broker, TopicConfig::new("orders", 1)).await;
    let long = NewMessage { body: &[7; 2000], ..message("orders", "") };
    let refused = put_and_make(&broker.intake, Origin::Client, &long).await.unwrap_err();
    assert!(matches!(refused, Refusal::BodyTooLong { size_bytes: 2000, limit_bytes: 1000 }), "{refused}");
    put_and_make(&broker.intake, Origin::Broker, &long).await.unwrap(); // as it was accepted when the limit was higher

    let bytes = broker.only_record("orders", 0);
    let old = RecordView::parse(&bytes).unwrap();
    StoredAgain::of(&old).to("%RETRY%group", -1).put(&broker.intake).await.unwrap();
    let bytes = broker.only_record("%RETRY%group", 0);
    assert_eq!(RecordView::parse(&bytes).unwrap().body, old.body);
}

#[tokio::test]
async fn an_answer_waits_for_the_flush_as_message_topic_and_broker_say() {
    for (by_broker, by_topic, properties, waits) in [
        (FlushMode::Async, None, "", false),
        (FlushMode::Async, Some("SYNC_FLUSH"), "", true),
        (FlushMode::Async, Some("SYNC_FLUSH"), "WAIT\u{1}false\u{2}", false),
        (FlushMode::Sync, None, "", true),
        (FlushMode::Sync, None, "WAIT\u{1}true\u{2}", true),
        (FlushMode::Sync, None, "WAIT\u{1}false\u{2}", false),
        (FlushMode::Sync, Some("ASYNC_FLUSH"), "", false),
    ] {
        let broker = TestBroker::open(|config| config.store.flush = by_broker);
        let mut topic = TopicConfig::new("known", 1);
        topic.attributes.extend(by_topic.map(|kind| ("flush.type".to_owned(), kind.to_owned())));
        add_topic(&broker, topic).await;
        let stored = put(&broker.intake, Origin::Client, &message("known", properties)).unwrap();
        let end = broker.ground.store().max_physical_offset();
        assert_eq!(
            stored.ack.flushed,
            waits.then_some(end),
            "{by_broker:?}, topic {by_topic:?}, {properties:?}"
        );
        assert!(stored.ack.announced.is_none(), "no name server is there to be told");
    }
}

#[tokio::test]
async fn a_stored_record_becomes_a_new_message() {
    let broker = TestBroker::open(|_| {});
    let mut orders = TopicConfig::new("orders", 4);
    orders.filter_type = TopicFilterType::MultiTag;
    add_topic(&broker, orders).await;
    let sent = NewMessage {
        queue_id: 3,
        sys_flag: 0x301,
        reconsume_times: 1,
        ..message("orders", "TAGS\u{1}a\u{2}KEYS\u{1}k\u{2}UNIQ_KEY\u{1}U\u{2}")
    };
    put(&broker.intake, Origin::Client, &sent).unwrap();
    let old = broker.only_record("orders", 3);
    let old = RecordView::parse(&old).unwrap();
    assert!(old.property(property::CRC32).is_some(), "the store checks whole records by default");

    let again = StoredAgain::of(&old)
        .to("%RETRY%group", -1)
        .with_reconsume_times(2)
        .with_property(property::RETRY_TOPIC, "orders")
        .and_then(|again| again.with_property(property::TAGS, "other"))
        .unwrap()
        .without_property(property::KEYS);
    let stored = again.put(&broker.intake).await.unwrap();
    assert_eq!(stored.unique_key.as_deref(), Some("U"));
    drop(stored);

    let bytes = broker.only_record("%RETRY%group", 0);
    let new = RecordView::parse(&bytes).unwrap();
    assert!(ends_in_its_crc(&bytes), "the checksum is that of the new record");
    assert_eq!((new.body, new.flag, new.sys_flag), (old.body, 7, old.sys_flag));
    assert_eq!(new.sys_flag, 0x301 | sys_flag::MULTI_TAGS, "as the record had it");
    assert_eq!((new.born_at_ms, new.born_host), (1_700_000_000_000, PRODUCER.parse().unwrap()));
    assert_eq!((new.reconsume_times, new.prepared_transaction_offset.get()), (2, 0));
    assert_eq!((new.tag(), new.keys(), new.property("RETRY_TOPIC")), (Some("other"), None, Some("orders")));
    assert_eq!(new.property("CLUSTER"), old.property("CLUSTER"));
    let of = |name: &[u8]| new.properties.windows(name.len()).filter(|text| *text == name).count();
    assert_eq!((of(b"MSG_REGION"), of(b"__CRC32#"), of(b"TAGS")), (1, 1, 1));
    assert!(new.physical_offset > old.physical_offset && new.stored_at_ms >= old.stored_at_ms);
}

#[tokio::test]
async fn a_record_stored_again_waits_only_when_it_is_asked_to() {
    let broker = TestBroker::open(|_| {});
    add_topic(&broker, TopicConfig::new("orders", 1)).await;
    let half = NewMessage {
        delay: Delay::Over,
        ..message("orders", "DELAY\u{1}3\u{2}TRAN_MSG\u{1}true\u{2}PGROUP\u{1}g\u{2}")
    };
    put(&broker.intake, Origin::Broker, &half).unwrap();
    let bytes = broker.only_record("orders", 0);
    let record = RecordView::parse(&bytes).unwrap();

    let committed = StoredAgain::of(&record).committed();
    let place = committed.put(&broker.intake).await.unwrap().places.as_slice()[0];
    let bytes = broker.ground.store().record_at(place).unwrap().unwrap();
    let new = RecordView::parse(&bytes).unwrap();
    assert_eq!(new.sys_flag, sys_flag::TRANSACTION_COMMIT);
    assert_eq!(new.prepared_transaction_offset, record.physical_offset);
    assert_eq!(
        (new.property("DELAY"), new.property("TRAN_MSG")),
        (Some("3"), Some("true")),
        "the text stays"
    );

    let delayed = StoredAgain::of(&record).delayed(4).unwrap();
    let place = delayed.put(&broker.intake).await.unwrap().places.as_slice()[0];
    let bytes = broker.ground.store().record_at(place).unwrap().unwrap();
    let new = RecordView::parse(&bytes).unwrap();
    assert_eq!((new.topic, new.queue_id, new.property("DELAY")), (system::SCHEDULE_TOPIC, 3, Some("4")));
    assert_eq!((new.property("REAL_TOPIC"), new.property("REAL_QID")), (Some("orders"), Some("0")));

    for value in ["", "a\u{1}b", "a\u{2}"] {
        let refused = StoredAgain::of(&record).with_property(property::ORIGIN_MESSAGE_ID, value);
        assert!(refused.unwrap_err().to_string().contains("ORIGIN_MESSAGE_ID"), "{value:?}");
    }
}

#[cfg(debug_assertions)]
#[tokio::test]
async fn a_text_that_no_record_can_hold_is_rejected_before_it_is_parsed() {
    let broker = TestBroker::open(|_| {});
    add_topic(&broker, TopicConfig::new("known", 1)).await;
    let text = "DELAY\u{1}0\u{2}\u{2}".repeat(properties_text::MAX_BYTES / 9 + 1);
    let before = properties_text::walks();
    let refused = put(&broker.intake, Origin::Client, &message("known", &text));
    assert!(matches!(refused, Err(NotPut::Refused(Refusal::NoRoomForCopies { .. }))));
    assert_eq!(properties_text::walks() - before, 0);
}

#[cfg(debug_assertions)]
#[tokio::test]
async fn the_properties_of_a_sent_message_are_read_once() {
    let broker = TestBroker::open(|_| {});
    add_topic(&broker, TopicConfig::new("known", 1)).await;
    let walks_of = |message: &NewMessage<'_>| {
        let before = properties_text::walks();
        put(&broker.intake, Origin::Client, message).unwrap();
        properties_text::walks() - before
    };
    for text in [
        "",
        "TAGS\u{1}a\u{2}KEYS\u{1}k\u{2}UNIQ_KEY\u{1}U\u{2}",
        "CLUSTER\u{1}forged\u{2}__CRC32#\u{1}1234567890\u{2}TAGS\u{1}a#b\u{2}",
        "DELAY\u{1}3\u{2}TAGS\u{1}a\u{2}",
        "TIMER_DELAY_SEC\u{1}60\u{2}",
        "TRAN_MSG\u{1}true\u{2}PGROUP\u{1}g\u{2}CHECK_IMMUNITY_TIME_IN_SECONDS\u{1}60\u{2}",
    ] {
        assert_eq!(walks_of(&message("known", text)), 1, "{text:?}");
    }
    let mut items = Vec::new();
    for properties in [b"TAGS\x01a#\x02".as_slice(), b"__CRC32#\x011234567890\x02"] {
        BatchItem { flag: 0, body: b"body", properties }.encode(&mut items).unwrap();
    }
    let batch = NewMessage { is_batch: true, body: &items, ..message("known", "UNIQ_KEY\u{1}U\u{2}") };
    let of_encoder = 2 + 1; // an item holds a forged checksum: the encoder looks for it in both
    assert_eq!(walks_of(&batch), 3 + of_encoder);
    items.clear();
    BatchItem { flag: 0, body: b"body", properties: b"TAGS\x01a#\x02" }.encode(&mut items).unwrap();
    let batch = NewMessage { is_batch: true, body: &items, ..message("known", "") };
    assert_eq!(walks_of(&batch), 2, "that of the batch, and that of its item");
}
