//! Single sends: retries, error model, automatic topics.

use std::time::Duration;

use rocketpy_client::{
    Admin, Client, ClientConfig, ClientError, Producer, ProducerConfig, Selector, SendOptions, SendStatus,
};
use rocketpy_model::{Later, Message, MessageQueue};
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::{Command, properties_text};
use tokio::runtime::Handle;

use crate::peer::{Act, Peer, client, header_of, sent, single, status};

async fn producer(client: &Client) -> Producer {
    Producer::new(client, "ingest", ProducerConfig::default()).await.unwrap()
}

/// A name server and brokers `a` and `b`, each with two queues of topic `t`.
fn two_brokers() -> (Peer, Peer, Peer) {
    let (names, a, b) = (Peer::start(), Peer::start(), Peer::start());
    names.route("t", &[("a", &a, 2), ("b", &b, 2)]);
    (names, a, b)
}

#[tokio::test]
async fn a_receipt_tells_where_the_message_is() {
    let peer = single(4);
    peer.script(|command| match command.code {
        request::SEND_MESSAGE_V2 => Act::Answer(sent(command, 41)),
        _ => Act::Default,
    });
    let producer = producer(&client(&[&peer])).await;
    let mut message = Message::new("t", "body");
    message.set_tag("UA").unwrap();
    let receipt = producer.send(&message, SendOptions::default()).await.unwrap();
    let request = &peer.seen(request::SEND_MESSAGE_V2)[0];
    let header = header_of(request);
    assert_eq!(receipt.status, SendStatus::SendOk);
    assert_eq!(receipt.queue, MessageQueue::new("t", "b", header.queue_id as u32));
    assert_eq!(
        (receipt.queue_offset.get(), receipt.offset_msg_id.as_str()),
        (41, format!("{:032X}", 41).as_str())
    );
    assert_eq!((header.producer_group, header.topic, header.broker_name), ("ingest", "t", Some("b")));
    assert_eq!(
        (header.default_topic, header.default_topic_queue_nums, header.batch),
        ("TBW102", 4, Some(false))
    );
    let properties = header.properties.unwrap().as_bytes();
    assert_eq!(properties_text::get(properties, "UNIQ_KEY"), Some(receipt.msg_id.as_str()));
    assert_eq!(properties_text::get(properties, "WAIT"), Some("true"));
    assert_eq!(properties_text::get(properties, "TAGS"), Some("UA"));
    assert_eq!(request.body, "body");
}

#[tokio::test]
async fn a_busy_broker_makes_the_send_go_to_another_with_the_same_unique_key() {
    let (names, a, b) = two_brokers();
    for peer in [&a, &b] {
        let mut first = true;
        peer.script(move |command| match command.code {
            request::SEND_MESSAGE_V2 if std::mem::take(&mut first) => {
                Act::Answer(status(response::SYSTEM_BUSY, "too much"))
            }
            _ => Act::Default,
        });
    }
    let producer = producer(&client(&[&names])).await;
    producer.send(&Message::new("t", "x"), SendOptions::default()).await.unwrap();
    let (at_a, at_b) = (a.seen(request::SEND_MESSAGE_V2), b.seen(request::SEND_MESSAGE_V2));
    assert_eq!(at_a.len() + at_b.len(), 3, "both refuse once");
    assert!(!at_a.is_empty() && !at_b.is_empty(), "never the same broker twice in a row");
    let keys: std::collections::BTreeSet<&str> = at_a
        .iter()
        .chain(&at_b)
        .filter_map(|send| properties_text::get(header_of(send).properties.unwrap().as_bytes(), "UNIQ_KEY"))
        .collect();
    assert_eq!(keys.len(), 1);
    assert!(at_a.iter().all(|send| header_of(send).broker_name == Some("a")), "the header names its broker");
    assert!(at_b.iter().all(|send| header_of(send).broker_name == Some("b")));
}

#[tokio::test]
async fn a_broker_that_failed_gets_no_messages_and_is_asked_whether_it_answers_again() {
    let (names, a, b) = two_brokers();
    a.script(|command| match command.code {
        request::SEND_MESSAGE_V2 => Act::Answer(status(response::SYSTEM_BUSY, "too much")),
        _ => Act::Default,
    });
    let config = ProducerConfig { selector: Selector::LeastLatency, ..ProducerConfig::default() };
    let producer = Producer::new(&client(&[&names]), "ingest", config).await.unwrap();
    let message = Message::new("t", "x");
    for _ in 0..20 {
        producer.send(&message, SendOptions::default()).await.unwrap();
        let pending = producer.submit(message.clone(), SendOptions::default()).await.unwrap();
        pending.await.unwrap();
    }
    producer.send_many(vec![message.clone(); 600], SendOptions::default()).await.unwrap().check().unwrap();
    assert_eq!(a.seen(request::SEND_MESSAGE_V2).len(), 1, "the first showed that it is busy");
    assert!(a.seen(request::SEND_BATCH_MESSAGE).is_empty());
    assert!(b.seen(request::SEND_MESSAGE_V2).len() >= 40);
    a.wait_for(request::GET_MAX_OFFSET, 1).await;
}

#[tokio::test]
async fn a_send_without_retries_that_fails_makes_the_next_one_find_the_new_master() {
    let (names, former, next) = (Peer::start(), Peer::start(), Peer::start());
    names.route("t", &[("b", &former, 2)]);
    let config = ProducerConfig { retries: Some(0), ..ProducerConfig::default() };
    let producer = Producer::new(&client(&[&names]), "ingest", config).await.unwrap();
    producer.send(&Message::new("t", "x"), SendOptions::default()).await.unwrap();
    former.stop().await;
    names.route("t", &[("b", &next, 2)]);
    let asked = names.seen(request::GET_ROUTEINFO_BY_TOPIC).len();
    producer.send(&Message::new("t", "x"), SendOptions::default()).await.unwrap_err();
    names.wait_for(request::GET_ROUTEINFO_BY_TOPIC, asked + 1).await;
    while producer.send(&Message::new("t", "x"), SendOptions::default()).await.is_err() {} // the answer is on its way
    assert_eq!(next.seen(request::SEND_MESSAGE_V2).len(), 1);
}

#[tokio::test]
async fn retries_end_and_the_error_names_what_was_tried() {
    let (names, a, b) = two_brokers();
    for peer in [&a, &b] {
        peer.script(|command| match command.code {
            request::SEND_MESSAGE_V2 => Act::Answer(status(response::SERVICE_NOT_AVAILABLE, "disk full")),
            _ => Act::Default,
        });
    }
    let producer = producer(&client(&[&names])).await;
    let error = producer.send(&Message::new("t", "x"), SendOptions::default()).await.unwrap_err();
    let ClientError::SendFailed { attempts, brokers, may_have_been_applied, .. } = &*error else {
        panic!("{error:?}")
    };
    assert_eq!((*attempts, *may_have_been_applied), (3, false));
    assert!(brokers == "a,b" || brokers == "b,a", "each once: {brokers}");
    assert_eq!(error.broker.as_deref(), brokers.split(',').next(), "that of the last attempt");
    assert_eq!((error.code(), error.retryable()), (Some(response::SERVICE_NOT_AVAILABLE), true));
    assert!(error.hint().is_some());
    assert!(error.to_string().contains("disk full"), "{error}");
}

#[tokio::test]
async fn an_illegal_message_is_refused_once() {
    let (names, a, b) = two_brokers();
    for peer in [&a, &b] {
        peer.script(|command| match command.code {
            request::SEND_MESSAGE_V2 => Act::Answer(status(response::MESSAGE_ILLEGAL, "too large")),
            _ => Act::Default,
        });
    }
    let producer = producer(&client(&[&names])).await;
    let error = producer.send(&Message::new("t", "x"), SendOptions::default()).await.unwrap_err();
    let ClientError::Refused { code, name, .. } = &*error else { panic!("{error:?}") };
    assert_eq!((*code, *name, error.retryable()), (13, "MESSAGE_ILLEGAL", false));
    assert_eq!(a.seen(request::SEND_MESSAGE_V2).len() + b.seen(request::SEND_MESSAGE_V2).len(), 1);
}

#[tokio::test]
async fn a_keyed_send_that_may_be_stored_is_not_sent_again() {
    let peer = single(4);
    peer.script(|command| match command.code {
        request::SEND_MESSAGE_V2 => Act::Hold,
        _ => Act::Default,
    });
    let producer = producer(&client(&[&peer])).await;
    let options = SendOptions {
        order_key: Some("N14228".into()),
        timeout: Some(Duration::from_secs(1)),
        ..SendOptions::default()
    };
    let error = producer.send(&Message::new("t", "x"), options).await.unwrap_err();
    assert!(matches!(*error, ClientError::Timeout { .. }), "{error:?}");
    assert!(error.may_have_been_applied() && error.retryable());
    assert_eq!(peer.seen(request::SEND_MESSAGE_V2).len(), 1);
    let header = peer.seen(request::SEND_MESSAGE_V2);
    let properties = header_of(&header[0]).properties.unwrap().to_owned();
    assert_eq!(properties_text::get(properties.as_bytes(), "__SHARDINGKEY"), Some("N14228"));
}

/// The unique key that a send request carries.
fn unique_key(send: &Command) -> String {
    let header = header_of(send);
    properties_text::get(header.properties.unwrap().as_bytes(), "UNIQ_KEY").unwrap().to_owned()
}

#[tokio::test]
async fn a_repeat_under_the_id_of_the_error_is_the_same_message() {
    let peer = single(1);
    peer.script(|command| match command.code {
        request::SEND_MESSAGE_V2 => Act::Hold,
        _ => Act::Default,
    });
    let producer = producer(&client(&[&peer])).await;
    let message = Message::new("t", "x");
    let keyed = SendOptions { order_key: Some("k".into()), ..SendOptions::default() };
    let lost = tokio::join!(producer.send(&message, keyed), async {
        let held = peer.held(request::SEND_MESSAGE_V2).await;
        peer.cut();
        held
    });
    let error = lost.0.unwrap_err();
    assert!(error.may_have_been_applied(), "{error:?}");
    assert_eq!(error.broker.as_deref(), Some("b"));
    let given = SendOptions { msg_id: error.msg_id.clone(), ..SendOptions::default() };
    peer.script(|_| Act::Default);
    let receipt = producer.send(&message, given.clone()).await.unwrap();
    assert_eq!(Some(&receipt.msg_id), error.msg_id.as_ref());
    assert_eq!(
        producer.submit(message.clone(), given.clone()).await.unwrap().await.unwrap().msg_id,
        receipt.msg_id
    );
    producer.send_oneway(&message, given.clone()).await.unwrap();
    let sends = peer.wait_for(request::SEND_MESSAGE_V2, 4).await;
    assert!(sends.iter().all(|send| unique_key(send) == receipt.msg_id), "the broker sees one id");
    let many = producer.send_many(vec![message], given).await.unwrap_err();
    assert!(matches!(many, ClientError::InvalidProperty { .. }), "{many:?}");
}

#[tokio::test]
async fn an_error_before_the_first_attempt_has_the_id_but_no_broker() {
    let peer = single(1);
    let producer = producer(&client(&[&peer])).await;
    let given = SendOptions { msg_id: Some("mine".into()), ..SendOptions::default() };
    for (topic, body, options, id) in [
        ("t", "", given.clone(), Some("mine")),
        ("t", "", SendOptions::default(), None),
        ("nowhere", "x", given.clone(), Some("mine")),
        ("t", "x", SendOptions { msg_id: Some("a\u{1}b".into()), ..given.clone() }, Some("a\u{1}b")),
    ] {
        let message = Message::new(topic, body);
        let sent = producer.send(&message, options.clone()).await.unwrap_err();
        let submitted = producer.submit(message, options).await.unwrap_err();
        for error in [sent, submitted] {
            assert_eq!((error.msg_id.as_deref(), &error.broker), (id, &None), "{error:?}");
        }
    }
    assert!(peer.seen(request::SEND_MESSAGE_V2).is_empty());
}

#[tokio::test]
async fn messages_of_one_key_go_to_one_queue() {
    let peer = single(8);
    let producer = producer(&client(&[&peer])).await;
    for (key, queue_id) in [("order-1", 6), ("order-2", 5), ("user-42", 0), ("order-1", 6)] {
        let options = SendOptions { order_key: Some(key.into()), ..SendOptions::default() };
        let receipt = producer.send(&Message::new("t", "x"), options).await.unwrap();
        assert_eq!(receipt.queue.queue_id, queue_id, "{key}");
    }
}

#[tokio::test]
async fn a_missing_topic_is_sent_by_the_template_route() {
    let peer = Peer::start();
    peer.route("TBW102", &[("b", &peer, 8)]);
    let producer = producer(&client(&[&peer])).await;
    let receipt = producer.send(&Message::new("new", "x"), SendOptions::default()).await.unwrap();
    assert!(receipt.queue.queue_id < 4, "at most the default number of queues");
    let sends = peer.seen(request::SEND_MESSAGE_V2);
    let header = header_of(&sends[0]);
    assert_eq!((header.topic, header.default_topic, header.default_topic_queue_nums), ("new", "TBW102", 4));
}

#[tokio::test]
async fn a_missing_topic_without_a_template_is_an_error_with_a_hint() {
    let peer = Peer::start();
    let producer = producer(&client(&[&peer])).await;
    let error = producer.send(&Message::new("new", "x"), SendOptions::default()).await.unwrap_err();
    assert_eq!(error, ClientError::NoRoute { topic: "new".into() });
    assert_eq!(error.code(), Some(10005));
    assert!(error.hint().unwrap().contains("rocketpy topic create new"));
}

#[tokio::test]
async fn a_wrong_name_server_address_is_named() {
    let gone = Peer::start();
    gone.stop().await;
    let producer = producer(&client(&[&gone])).await;
    let error = producer.send(&Message::new("t", "x"), SendOptions::default()).await.unwrap_err();
    let ClientError::Connect { address, .. } = &*error else { panic!("{error:?}") };
    assert_eq!(*address, gone.address);
    assert!(error.retryable() && !error.may_have_been_applied() && error.hint().is_some());
}

#[tokio::test]
async fn the_next_name_server_is_asked_when_one_is_gone() {
    let (gone, peer) = (Peer::start(), single(1));
    gone.stop().await;
    for _ in 0..4 {
        // The client chooses at random which one it asks first.
        let producer = producer(&client(&[&gone, &peer])).await;
        producer.send(&Message::new("t", "x"), SendOptions::default()).await.unwrap();
    }
}

#[tokio::test]
async fn a_broker_that_is_gone_makes_the_send_go_elsewhere() {
    let (names, a, b) = two_brokers();
    a.stop().await;
    let producer = producer(&client(&[&names])).await;
    for _ in 0..4 {
        let receipt = producer.send(&Message::new("t", "x"), SendOptions::default()).await.unwrap();
        assert_eq!(&*receipt.queue.broker_name, "b");
    }
    assert_eq!(b.seen(request::SEND_MESSAGE_V2).len(), 4);
}

#[tokio::test]
async fn stored_but_not_flushed_is_a_status_and_no_error() {
    for (code, expected) in [
        (response::FLUSH_DISK_TIMEOUT, SendStatus::FlushDiskTimeout),
        (response::FLUSH_SLAVE_TIMEOUT, SendStatus::FlushSlaveTimeout),
        (response::SLAVE_NOT_AVAILABLE, SendStatus::SlaveNotAvailable),
    ] {
        let peer = single(1);
        peer.script(move |command| match command.code {
            request::SEND_MESSAGE_V2 => {
                let mut answer = sent(command, 7);
                answer.code = code;
                Act::Answer(answer)
            }
            _ => Act::Default,
        });
        let producer = producer(&client(&[&peer])).await;
        let receipt = producer.send(&Message::new("t", "x"), SendOptions::default()).await.unwrap();
        assert_eq!((receipt.status, receipt.queue_offset.get()), (expected, 7));
        assert_eq!(peer.seen(request::SEND_MESSAGE_V2).len(), 1);
    }
}

#[tokio::test]
async fn an_answer_without_its_fields_is_an_error_that_may_have_been_applied() {
    let peer = single(1);
    peer.script(|command| match command.code {
        request::SEND_MESSAGE_V2 => Act::Answer(crate::peer::ok()),
        _ => Act::Default,
    });
    let producer = producer(&client(&[&peer])).await;
    let error = producer.send(&Message::new("t", "x"), SendOptions::default()).await.unwrap_err();
    assert!(matches!(*error, ClientError::BadAnswer { .. }), "{error:?}");
    assert!(error.may_have_been_applied());
}

#[tokio::test]
async fn a_question_without_an_answer_was_not_applied() {
    let peer = single(1);
    peer.script(|command| match command.code {
        request::GET_ROUTEINFO_BY_TOPIC | request::GET_BROKER_CLUSTER_INFO => Act::Hold,
        _ => Act::Default,
    });
    let config =
        ClientConfig { api_timeout: Duration::from_secs(1), ..ClientConfig::new([peer.address.clone()]) };
    let client = Client::new(config, Handle::current()).unwrap();
    let admin = Admin::new(&client);
    let lost = tokio::join!(admin.cluster(), async {
        let held = peer.held(request::GET_BROKER_CLUSTER_INFO).await;
        peer.cut();
        held
    });
    let error = lost.0.unwrap_err();
    assert!(matches!(error, ClientError::ConnectionLost { .. }), "{error:?}");
    assert!(!error.may_have_been_applied() && error.retryable());
    let error = admin.describe_topic("t").await.unwrap_err();
    assert!(matches!(error, ClientError::Timeout { .. }), "{error:?}");
    assert!(!error.may_have_been_applied() && error.retryable());
}

#[tokio::test]
async fn a_oneway_send_asks_for_no_answer() {
    let peer = single(1);
    let producer = producer(&client(&[&peer])).await;
    producer.send_oneway(&Message::new("t", "x"), SendOptions::default()).await.unwrap();
    let sends = peer.wait_for(request::SEND_MESSAGE_V2, 1).await;
    assert!(sends[0].is_oneway());
}

#[tokio::test]
async fn an_unsupported_message_never_reaches_the_broker() {
    let peer = single(1);
    let producer = producer(&client(&[&peer])).await;
    for (name, value) in [("TRAN_MSG", "true"), ("INNER_MULTI_DISPATCH", "%LMQ%a")] {
        let mut message = Message::new("t", "x");
        message.properties.set(name, value).unwrap();
        let one = producer.send(&message, SendOptions::default()).await.unwrap_err();
        let many = producer.send_many(vec![message.clone()], SendOptions::default()).await.unwrap_err();
        let submitted = producer.submit(message.clone(), SendOptions::default()).await.unwrap_err();
        let oneway = producer.send_oneway(&message, SendOptions::default()).await.unwrap_err();
        for error in [one.into(), many, submitted.into(), oneway.into()] {
            assert!(matches!(error, ClientError::Unsupported { .. }), "{name}: {error:?}");
        }
    }
    assert!(peer.seen(request::SEND_MESSAGE_V2).is_empty());
}

#[tokio::test]
async fn a_delayed_message_is_in_no_batch_however_it_is_sent() {
    let peer = single(1);
    let producer = producer(&client(&[&peer])).await;
    let mut later = Message::new("t", "later");
    later.set_later(Later::AtMs(1_700_000_000_000));
    let now = Message::new("t", "now");
    let messages = vec![now.clone(), now.clone(), later.clone(), later.clone(), now.clone(), now.clone()];
    let sent = producer.send_many(messages.clone(), SendOptions::default()).await.unwrap();
    assert_eq!((sent.acknowledged(), sent.requests()), (6, 4));
    let sends = || peer.seen(request::SEND_BATCH_MESSAGE).len();
    assert_eq!((sends(), peer.seen(request::SEND_MESSAGE_V2).len()), (2, 2));
    for request in peer.seen(request::SEND_MESSAGE_V2) {
        assert!(request.ext.get("i").unwrap().contains("TIMER_DELIVER_MS\u{1}1700000000000\u{2}"));
    }
    let hold = SendOptions::default;
    let mut pending = Vec::new();
    for message in [later.clone(), later.clone(), later.clone()] {
        pending.push(producer.submit(message, hold()).await.unwrap());
    }
    for one in pending {
        one.await.unwrap();
    }
    producer.send(&later, SendOptions::default()).await.unwrap();
    assert_eq!((sends(), peer.seen(request::SEND_MESSAGE_V2).len()), (2, 6));
}

#[tokio::test]
async fn a_group_is_registered_once_and_unregistered_at_the_end() {
    let peer = single(1);
    let client = client(&[&peer]);
    let first = producer(&client).await;
    let second = Producer::new(&client, "ingest", ProducerConfig::default()).await;
    assert!(matches!(second, Err(ClientError::GroupInUse { role: "producer", .. })));
    first.send(&Message::new("t", "x"), SendOptions::default()).await.unwrap();
    peer.wait_for(request::HEART_BEAT, 1).await;
    first.close().await.unwrap();
    first.close().await.unwrap();
    let unregistered = peer.seen(request::UNREGISTER_CLIENT);
    assert_eq!(unregistered.len(), 1);
    assert_eq!(unregistered[0].ext.get("producerGroup"), Some("ingest"));
    assert_eq!(unregistered[0].ext.get("clientID"), Some(client.client_id()));
    let error = first.send(&Message::new("t", "x"), SendOptions::default()).await.unwrap_err();
    assert_eq!(error, ClientError::Closed { what: "producer" });
    Producer::new(&client, "ingest", ProducerConfig::default()).await.unwrap();
}

#[tokio::test]
async fn a_broker_that_was_connected_to_gets_a_heartbeat_at_once() {
    let peer = single(1);
    let producer = producer(&client(&[&peer])).await;
    assert!(peer.seen(request::HEART_BEAT).is_empty(), "no broker is known before the first route");
    producer.send(&Message::new("t", "x"), SendOptions::default()).await.unwrap();
    let beats = peer.wait_for(request::HEART_BEAT, 1).await;
    let data: rocketpy_protocol::body::HeartbeatData =
        rocketpy_protocol::json::from_slice(&beats[0].body).unwrap();
    assert_eq!(data.producer_data_set[0].group_name, "ingest");
    assert_eq!(data.client_id, producer.client().client_id());
}

#[tokio::test]
async fn settings_and_names_are_checked_at_the_start() {
    let peer = single(1);
    let client = client(&[&peer]);
    let empty: [String; 0] = [];
    let error = Client::new(ClientConfig::new(empty), Handle::current()).unwrap_err();
    assert_eq!(error, ClientError::NoNameServer);
    for group in ["", "a b", "DEFAULT_PRODUCER"] {
        let refused = Producer::new(&client, group, ProducerConfig::default()).await;
        assert!(matches!(refused, Err(ClientError::InvalidGroup { .. })), "{group}");
    }
    let config = ProducerConfig { batch_messages: 0, ..ProducerConfig::default() };
    let refused = Producer::new(&client, "g", config).await;
    assert!(matches!(refused, Err(ClientError::InvalidConfig { field: "batch_messages", .. })));
    client.close().await;
    let refused = Producer::new(&client, "g", ProducerConfig::default()).await;
    assert!(matches!(refused, Err(ClientError::Closed { what: "client" })));
}

#[tokio::test]
async fn a_message_that_no_frame_holds_is_too_large_and_names_its_topic() {
    let peer = single(1);
    let config =
        ProducerConfig { max_message_size: 64 << 20, compression: None, ..ProducerConfig::default() };
    let producer = Producer::new(&client(&[&peer]), "ingest", config).await.unwrap();
    let large = Message::new("t", vec![7; 17 << 20]);
    for error in [
        producer.send(&large, SendOptions::default()).await.unwrap_err(),
        producer.send_oneway(&large, SendOptions::default()).await.unwrap_err(),
    ] {
        assert!(matches!(&*error, ClientError::MessageNotFramed { topic, .. } if topic == "t"), "{error:?}");
        assert!(!error.retryable() && !error.may_have_been_applied());
        assert!(error.hint().unwrap().contains("split"));
    }
    assert!(peer.seen(request::SEND_MESSAGE_V2).is_empty());
}

#[tokio::test]
async fn a_body_above_the_limit_of_the_broker_has_a_hint_that_names_it() {
    let peer = single(1);
    peer.script(|command| match command.code {
        request::SEND_MESSAGE_V2 => Act::Answer(status(
            response::MESSAGE_ILLEGAL,
            "message body of 5 bytes exceeds maxMessageSize 4; send less or raise the limit",
        )),
        _ => Act::Default,
    });
    let producer = producer(&client(&[&peer])).await;
    let error = producer.send(&Message::new("t", "x"), SendOptions::default()).await.unwrap_err();
    assert!(error.hint().unwrap().contains("maxMessageSize"), "{error:?}");
}
