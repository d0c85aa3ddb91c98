//! `send_many`: wire batches, order, partial failure.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rocketpy_client::{ClientError, Producer, ProducerConfig, SendOptions};
use rocketpy_model::Message;
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::{Command, batch, properties_text};

use crate::peer::{Act, Peer, client, header_of, sent, single, status};

async fn producer(peer: &Peer, config: ProducerConfig) -> Producer {
    Producer::new(&client(&[peer]), "ingest", config).await.unwrap()
}

fn keyed(number: usize, key: &str) -> Message {
    let mut message = Message::new("t", number.to_string());
    message.set_order_key(key).unwrap();
    message
}

/// Bodies of a send request, in order.
fn bodies(send: &Command) -> Vec<String> {
    let text = |body: &[u8]| String::from_utf8(body.to_vec()).unwrap();
    if !header_of(send).is_batch() {
        return vec![text(&send.body)];
    }
    batch::items(&send.body).map(|item| text(item.unwrap().body)).collect()
}

fn sends(peer: &Peer) -> Vec<Command> {
    let mut sends = peer.seen(request::SEND_BATCH_MESSAGE);
    sends.extend(peer.seen(request::SEND_MESSAGE_V2));
    sends
}

#[tokio::test]
async fn many_messages_take_few_requests_and_every_one_gets_its_receipt() {
    let peer = single(4);
    let producer = producer(&peer, ProducerConfig::default()).await;
    let messages: Vec<Message> = (0..5000).map(|number| Message::new("t", number.to_string())).collect();
    let outcome = producer.send_many(messages, SendOptions::default()).await.unwrap();
    outcome.check().unwrap();
    assert_eq!((outcome.len(), outcome.acknowledged()), (5000, 5000));
    assert!(outcome.requests() <= 8, "{}", outcome.requests());
    // Key and body of every message, as the broker saw them.
    let mut stored = HashMap::new();
    for send in sends(&peer) {
        for item in batch::items(&send.body) {
            let item = item.unwrap();
            let key = properties_text::get(item.properties, "UNIQ_KEY").unwrap().to_owned();
            stored.insert(key, String::from_utf8(item.body.to_vec()).unwrap());
        }
    }
    assert_eq!(stored.len(), 5000, "every message has a key of its own");
    let mut offsets = std::collections::BTreeSet::new();
    for (index, receipt) in outcome.receipts().enumerate() {
        let receipt = receipt.unwrap();
        assert_eq!(stored[&receipt.msg_id], index.to_string(), "receipts stand in the order of the messages");
        assert_eq!(receipt.offset_msg_id, format!("{:032X}", receipt.queue_offset.get()));
        offsets.insert(receipt.queue_offset);
    }
    assert_eq!(offsets.len(), 5000);
}

#[tokio::test]
async fn one_request_per_queue_is_under_way_and_each_key_keeps_its_order() {
    let peer = single(4);
    let under_way: Arc<Mutex<BTreeMap<i32, usize>>> = Arc::default();
    let (seen, count) = (under_way.clone(), Arc::new(Mutex::new(0)));
    let most = count.clone();
    peer.script(move |command| {
        if command.code != request::SEND_BATCH_MESSAGE {
            return Act::Default;
        }
        let mut seen = seen.lock();
        let queue = seen.entry(header_of(command).queue_id).or_default();
        *queue += 1;
        let mut most = most.lock();
        *most = (*most).max(*queue);
        Act::Hold
    });
    let config = ProducerConfig { batch_messages: 50, ..ProducerConfig::default() };
    let producer = producer(&peer, config).await;
    let messages: Vec<Message> =
        (0..1000).map(|number| keyed(number, &format!("key-{}", number % 37))).collect();
    let sending = tokio::spawn(async move { producer.send_many(messages, SendOptions::default()).await });
    let (mut answered, mut arrived) = (0, BTreeMap::<i32, Vec<usize>>::new());
    while answered < 1000 {
        let (send, reply) = peer.held(request::SEND_BATCH_MESSAGE).await;
        let queue = header_of(&send).queue_id;
        let numbers = bodies(&send).iter().map(|body| body.parse::<usize>().unwrap()).collect::<Vec<_>>();
        answered += numbers.len();
        arrived.entry(queue).or_default().extend(numbers);
        *under_way.lock().get_mut(&queue).unwrap() -= 1;
        reply.send(sent(&send, 0));
    }
    sending.await.unwrap().unwrap().check().unwrap();
    assert_eq!(*count.lock(), 1, "a queue's next request waits for the answer to the last");
    for numbers in arrived.values() {
        let mut last = BTreeMap::new();
        for number in numbers {
            if let Some(before) = last.insert(number % 37, *number) {
                assert!(before < *number, "key {} came out of order", number % 37);
            }
        }
    }
}

#[tokio::test]
async fn messages_after_a_failed_request_of_a_queue_are_not_sent() {
    let peer = single(1);
    let mut requests = 0;
    peer.script(move |command| {
        if command.code != request::SEND_BATCH_MESSAGE {
            return Act::Default;
        }
        requests += 1;
        if requests == 2 { Act::Answer(status(response::MESSAGE_ILLEGAL, "no")) } else { Act::Default }
    });
    let config = ProducerConfig { batch_messages: 10, ..ProducerConfig::default() };
    let producer = producer(&peer, config).await;
    let messages: Vec<Message> = (0..50).map(|number| keyed(number, "k")).collect();
    let outcome = producer.send_many(messages, SendOptions::default()).await.unwrap();
    assert_eq!(outcome.acknowledged(), 10);
    assert!(outcome.receipt(9).is_ok());
    let failed = outcome.receipt(10).unwrap_err();
    assert!(matches!(*failed, ClientError::Refused { code: 13, .. }), "{failed:?}");
    let id = failed.msg_id.unwrap();
    let tried = sends(&peer)
        .iter()
        .flat_map(|send| {
            batch::items(&send.body)
                .map(|item| properties_text::get(item.unwrap().properties, "UNIQ_KEY").unwrap().to_owned())
                .collect::<Vec<_>>()
        })
        .nth(10);
    assert_eq!((Some(id), failed.broker.as_deref()), (tried, Some("b")), "it names what was tried");
    for index in 20..50 {
        let error = outcome.receipt(index).unwrap_err();
        assert!(matches!(*error, ClientError::NotSent { .. }), "{error:?}");
        assert_eq!((&error.msg_id, &error.broker), (&None, &None), "it was not tried");
        assert!(!error.may_have_been_applied());
    }
    let error = outcome.check().unwrap_err();
    assert!(matches!(error, ClientError::PartlySent { failed: 40, total: 50, .. }), "{error:?}");
    assert!(!error.may_have_been_applied(), "the broker refused the one, and the rest was not sent");
    assert_eq!(sends(&peer).len(), 2);
}

#[tokio::test]
async fn a_batch_without_keys_goes_to_another_broker_when_one_is_gone() {
    let (names, a, b) = (Peer::start(), Peer::start(), Peer::start());
    names.route("t", &[("a", &a, 1), ("b", &b, 1)]);
    a.stop().await;
    let producer = Producer::new(&client(&[&names]), "ingest", ProducerConfig::default()).await.unwrap();
    for _ in 0..2 {
        let messages: Vec<Message> = (0..10).map(|number| Message::new("t", number.to_string())).collect();
        let outcome = producer.send_many(messages, SendOptions::default()).await.unwrap();
        outcome.check().unwrap();
        assert_eq!(&*outcome.receipt(0).unwrap().queue.broker_name, "b");
    }
    let sends = sends(&b);
    assert!(sends.iter().all(|send| header_of(send).broker_name == Some("b")), "the header was made anew");
}

#[tokio::test]
async fn nothing_is_sent_when_one_message_is_illegal() {
    let peer = single(1);
    let producer = producer(&peer, ProducerConfig::default()).await;
    let messages = vec![Message::new("t", "fine"), Message::new("t", "")];
    let error = producer.send_many(messages, SendOptions::default()).await.unwrap_err();
    assert!(matches!(error, ClientError::EmptyBody { .. }));
    let error =
        producer.send_many(vec![Message::new("%RETRY%g", "x")], SendOptions::default()).await.unwrap_err();
    assert!(matches!(error, ClientError::InvalidTopic { .. }));
    let none: Vec<Message> = Vec::new();
    assert!(producer.send_many(none, SendOptions::default()).await.unwrap().is_empty());
    assert!(sends(&peer).is_empty());
}

#[tokio::test]
async fn a_lone_message_and_one_too_large_for_a_batch_go_as_plain_messages() {
    let peer = single(1);
    let producer = producer(&peer, ProducerConfig::default()).await;
    let outcome = producer.send_many(vec![Message::new("t", "alone")], SendOptions::default()).await.unwrap();
    outcome.check().unwrap();
    let large = Message::new("t", vec![7; 600 << 10]);
    let messages = vec![keyed(0, "k"), keyed(1, "k"), large, keyed(2, "k"), keyed(3, "k")];
    let options = SendOptions { order_key: Some("k".into()), ..SendOptions::default() };
    producer.send_many(messages, options).await.unwrap().check().unwrap();
    let plain = peer.seen(request::SEND_MESSAGE_V2);
    assert_eq!(plain.len(), 2);
    assert_eq!(header_of(&plain[1]).sys_flag, 0x301, "plain messages are compressed");
    let batches = peer.seen(request::SEND_BATCH_MESSAGE);
    assert_eq!(batches.iter().map(bodies).collect::<Vec<_>>(), [["0", "1"], ["2", "3"]]);
    assert!(batches.iter().all(|send| header_of(send).batch == Some(true) && header_of(send).sys_flag == 0));
}

#[tokio::test]
async fn messages_are_given_back_before_the_call_returns() {
    let peer = single(2);
    let producer = producer(&peer, ProducerConfig::default()).await;
    let message = Arc::new(Message::new("t", "x"));
    let messages: Vec<Arc<Message>> = vec![message.clone(); 500];
    producer.send_many(messages, SendOptions::default()).await.unwrap().check().unwrap();
    assert_eq!(Arc::strong_count(&message), 1);
}

#[tokio::test]
async fn a_queue_that_hangs_fails_alone() {
    let peer = single(2);
    peer.script(|command| match command.code {
        request::SEND_BATCH_MESSAGE if header_of(command).queue_id == 0 => Act::Hold,
        _ => Act::Default,
    });
    let config = ProducerConfig { send_timeout: Duration::from_secs(1), ..ProducerConfig::default() };
    let producer = producer(&peer, config).await;
    // "TagA" hashes to queue 1 of 2, "user-42" to queue 0.
    let messages: Vec<Message> = (0..20).map(|n| keyed(n, if n < 10 { "TagA" } else { "user-42" })).collect();
    let outcome = producer.send_many(messages, SendOptions::default()).await.unwrap();
    assert_eq!(outcome.acknowledged(), 10);
    assert!((0..10).all(|index| outcome.receipt(index).is_ok()));
    assert!(outcome.receipt(10).unwrap_err().may_have_been_applied());
}

#[tokio::test]
async fn an_illegal_message_is_refused_before_any_route_is_asked_for() {
    let peer = single(1);
    let producer = producer(&peer, ProducerConfig::default()).await;
    let before = peer.seen(request::GET_ROUTEINFO_BY_TOPIC).len();
    let messages = [Message::new("t", "x"), Message::new("t", "")];
    let error = producer.send_many(messages, SendOptions::default()).await.unwrap_err();
    assert!(matches!(error, ClientError::EmptyBody { .. }), "{error:?}");
    assert_eq!(peer.seen(request::GET_ROUTEINFO_BY_TOPIC).len(), before);
}
