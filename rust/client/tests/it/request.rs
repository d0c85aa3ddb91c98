//! Requests and replies: against RocketPy's broker, and against peers that say what the test wants.

use std::time::Duration;

use rocketpy_client::{ClientError, Producer, ProducerConfig, SendOptions};
use rocketpy_model::{Message, property};
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::record::{RecordFields, RecordView};
use rocketpy_protocol::{Command, properties_text};

use crate::cluster::Cluster;
use crate::peer::{Act, PATIENCE, Peer, client, header_of, single, status, with};

async fn producer(peer: &Peer) -> Producer {
    Producer::new(&client(&[peer]), "askers", ProducerConfig::default()).await.unwrap()
}

fn within(timeout: Duration) -> SendOptions {
    SendOptions { timeout: Some(timeout), ..SendOptions::default() }
}

fn value_of<'a>(send: &'a Command, name: &str) -> Option<&'a str> {
    properties_text::get(header_of(send).properties.unwrap().as_bytes(), name)
}

/// The push of a reply to a request, as Apache's broker makes it.
fn push_to(asked: &Command, client_id: &str, body: &str) -> Command {
    let id = value_of(asked, property::CORRELATION_ID).unwrap();
    let fields = [
        ("producerGroup", "repliers"),
        ("topic", "c_REPLY_TOPIC"),
        ("defaultTopic", "TBW102"),
        ("defaultTopicQueueNums", "4"),
        ("queueId", "0"),
        ("sysFlag", "0"),
        ("bornTimestamp", "5"),
        ("flag", "3"),
        ("properties", &format!("CORRELATION_ID\u{1}{id}\u{2}REPLY_TO_CLIENT\u{1}{client_id}")),
        ("bornHost", "/10.0.0.2:40000"),
        ("storeHost", "/10.0.0.3:10911"),
        ("storeTimestamp", "7"),
    ];
    let command = Command::bare_request(request::PUSH_REPLY_MESSAGE_TO_CLIENT).with_body(body.to_owned());
    fields.iter().fold(command, |command, (name, value)| with(command, name, value))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_comes_back_to_its_request() {
    let cluster = Cluster::start().await;
    cluster.admin().create_topic(&rocketpy_client::TopicSpec::new("t", 1)).await.unwrap();
    let asker = cluster.producer().await;
    let replier = Producer::new(&cluster.client(), "repliers", ProducerConfig::default()).await.unwrap();
    let consumer = cluster.consumer("workers", "*").await;
    let work = async {
        let mut left = 3;
        while left > 0 {
            for message in consumer.poll(10, PATIENCE).await.unwrap().iter() {
                let record = message.record();
                let body = [record.body, b"!".repeat(10_000).as_slice()].concat();
                let broker = message.queue().broker_name.clone();
                replier.reply(&record, &broker, body, SendOptions::default()).await.unwrap();
                left -= 1;
            }
        }
    };
    let ask = async {
        for text in ["a", "b", "c"] {
            let reply = asker.request(&Message::new("t", text), SendOptions::default()).await.unwrap();
            let record = reply.record();
            let body = record.plain_body(&Default::default()).unwrap();
            assert_eq!((&body[..1], body.len()), (text.as_bytes(), 10_001), "compressed on its way");
            assert_eq!(record.topic, "DefaultCluster_REPLY_TOPIC");
            assert!(record.property(property::PUSH_REPLY_TIME).is_some());
            assert!(record.property(property::ARRIVE_TIME).is_some());
            assert_eq!(record.property(property::TTL), Some("60000"));
        }
    };
    let both = async { tokio::join!(work, ask) };
    tokio::time::timeout(PATIENCE, both).await.expect("every request has its reply");
}

#[tokio::test]
async fn a_request_carries_what_a_replier_needs_and_its_broker_knows_the_requester() {
    let peer = single(1);
    let producer = producer(&peer).await;
    let (message, options) = (Message::new("t", "x"), within(PATIENCE));
    let ask = producer.request(&message, options);
    let reply = async {
        let asked = peer.wait_for(request::SEND_MESSAGE_V2, 1).await.remove(0);
        assert!(!peer.seen(request::HEART_BEAT).is_empty(), "before the request");
        assert_eq!(value_of(&asked, "REPLY_TO_CLIENT"), Some(producer.client().client_id()));
        assert_eq!(value_of(&asked, "TTL"), Some("60000"));
        assert_eq!(value_of(&asked, "CORRELATION_ID").unwrap().len(), 36);
        peer.push(&push_to(&asked, producer.client().client_id(), "yes"));
    };
    let (reply, ()) = tokio::join!(ask, reply);
    let reply = reply.unwrap();
    let record = reply.record();
    assert_eq!((record.body, record.flag, record.born_at_ms, record.stored_at_ms), (&b"yes"[..], 3, 5, 7));
    assert_eq!(record.born_host, "10.0.0.2:40000".parse().unwrap());
}

#[tokio::test]
async fn a_request_without_a_reply_says_so_and_one_that_was_not_sent_says_that() {
    let peer = single(1);
    let producer = producer(&peer).await;
    let error =
        producer.request(&Message::new("t", "x"), within(Duration::from_millis(200))).await.unwrap_err();
    let ClientError::NoReply { topic, msg_id, timeout_ms: 200 } = &*error else { panic!("{error:?}") };
    assert_eq!((topic.as_str(), Some(msg_id)), ("t", error.msg_id.as_ref()));
    assert!(error.to_string().contains(msg_id.as_str()), "{error}");
    assert_eq!((error.code(), error.retryable(), error.may_have_been_applied()), (Some(10006), true, true));
    let asked = peer.seen(request::SEND_MESSAGE_V2).remove(0);
    peer.push(&push_to(&asked, producer.client().client_id(), "too late")); // nobody waits: ignored
    peer.script(|command| match command.code {
        request::SEND_MESSAGE_V2 => Act::Answer(status(response::MESSAGE_ILLEGAL, "no")),
        _ => Act::Default,
    });
    let error = producer.request(&Message::new("t", "x"), within(PATIENCE)).await.unwrap_err();
    assert!(matches!(&*error, ClientError::Refused { code: 13, .. }), "{error:?}");
}

#[tokio::test]
async fn a_producer_that_is_closed_fails_its_requests() {
    let peer = single(1);
    for close_client in [false, true] {
        let producer = producer(&peer).await;
        let before = peer.seen(request::SEND_MESSAGE_V2).len();
        let message = Message::new("t", "x");
        let close = async {
            peer.wait_for(request::SEND_MESSAGE_V2, before + 1).await;
            match close_client {
                true => producer.client().close().await,
                false => producer.close().await.unwrap(),
            }
        };
        let (asked, ()) = tokio::join!(producer.request(&message, within(PATIENCE)), close);
        let error = asked.unwrap_err();
        let ClientError::ClosedBeforeReply { topic, msg_id } = &*error else { panic!("{error:?}") };
        assert_eq!((topic.as_str(), Some(msg_id)), ("t", error.msg_id.as_ref()));
        assert!(error.may_have_been_applied(), "the broker has it");
        let error = producer.request(&message, within(PATIENCE)).await.unwrap_err();
        assert!(matches!(&*error, ClientError::Closed { .. }), "{error:?}");
        assert!(!error.may_have_been_applied(), "it was not sent");
    }
}

/// A record as a consumer gets it.
fn received(properties: &str) -> Vec<u8> {
    let host = "127.0.0.1:10911".parse().unwrap();
    let fields = RecordFields {
        topic: "t",
        queue_id: 0,
        flag: 0,
        sys_flag: 0,
        born_at_ms: 0,
        born_host: host,
        store_host: host,
        reconsume_times: 0,
        prepared_transaction_offset: 0.into(),
        body: b"x",
        properties: properties.as_bytes(),
        may_have_crc: true,
    };
    let mut record = Vec::new();
    let plan = fields.encode(false, &mut record).unwrap();
    plan.finish(&mut record, 0.into(), 0.into(), 0);
    record
}

#[tokio::test]
async fn a_reply_goes_to_the_broker_of_its_request_and_no_other_message_can_be_replied_to() {
    let (names, a, b) = (Peer::start(), Peer::start(), Peer::start());
    names.route("c_REPLY_TOPIC", &[("a", &a, 1), ("b", &b, 1)]);

    let producer = producer(&names).await;
    let record = received(
        "CORRELATION_ID\u{1}1\u{2}REPLY_TO_CLIENT\u{1}me\u{2}TTL\u{1}9\u{2}CLUSTER\u{1}c\u{2}UNIQ_KEY\u{1}k\u{2}",
    );
    let record = RecordView::parse(&record).unwrap();
    for peer in [&a, &b] {
        peer.script(|command| match command.code {
            request::SEND_REPLY_MESSAGE_V2 => Act::Answer(crate::peer::sent(command, 0)),
            _ => Act::Default,
        });
    }
    for _ in 0..3 {
        producer.reply(&record, "b", "yes", SendOptions::default()).await.unwrap();
    }
    assert!(a.seen(request::SEND_REPLY_MESSAGE_V2).is_empty());
    let sent = b.seen(request::SEND_REPLY_MESSAGE_V2).remove(0);
    for (name, value) in
        [("MSG_TYPE", "reply"), ("CORRELATION_ID", "1"), ("REPLY_TO_CLIENT", "me"), ("TTL", "9")]
    {
        assert_eq!(value_of(&sent, name), Some(value));
    }
    let other = received("UNIQ_KEY\u{1}k\u{2}CLUSTER\u{1}c\u{2}");
    let other = RecordView::parse(&other).unwrap();
    let error = producer.reply(&other, "b", "yes", SendOptions::default()).await.unwrap_err();
    let ClientError::NoRequest { msg_id, property: "CORRELATION_ID", .. } = &*error else {
        panic!("{error:?}")
    };
    assert_eq!((msg_id.as_str(), error.code()), ("k", Some(10007)));
}

#[tokio::test]
async fn a_reply_that_its_requester_did_not_take_is_not_sent_again() {
    let peer = single(1);
    peer.route("c_REPLY_TOPIC", &[("a", &peer, 1)]);
    let producer = producer(&peer).await;
    let record = received("CORRELATION_ID\u{1}1\u{2}REPLY_TO_CLIENT\u{1}me\u{2}CLUSTER\u{1}c\u{2}");
    let record = RecordView::parse(&record).unwrap();
    // SYSTEM_ERROR: the broker stored the reply but could not push it. SERVICE_NOT_AVAILABLE: it did nothing.
    for (code, sends) in [(response::SYSTEM_ERROR, 1), (response::SERVICE_NOT_AVAILABLE, 3)] {
        peer.script(move |command| match command.code {
            request::SEND_REPLY_MESSAGE_V2 => Act::Answer(status(code, "no")),
            _ => Act::Default,
        });
        let before = peer.seen(request::SEND_REPLY_MESSAGE_V2).len();
        producer.reply(&record, "a", "yes", SendOptions::default()).await.unwrap_err();
        assert_eq!(peer.seen(request::SEND_REPLY_MESSAGE_V2).len() - before, sends, "{code}");
    }
}
