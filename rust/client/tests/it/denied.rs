//! Clients whose user may not do what they ask: the error comes at once, and names all that is missing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rocketpy_client::{
    Client, ClientConfig, ClientError, ConsumerConfig, ErrorClass, Producer, ProducerConfig, PushConfig,
    PushConsumer, PushTopic, SendOptions, Subscription,
};
use rocketpy_model::Message;
use rocketpy_protocol::code::{request, response};
use tokio::runtime::Handle;

use crate::consume::{join, poll_offsets, records};
use crate::peer::{Act, PATIENCE, Peer, begun, client, pull_answer, single, status};

const NO_GROUP: &str = "User:a has no permission to access Group:report from 127.0.0.1, no matched policies. (action Sub, request HEART_BEAT)";
const NO_TOPIC: &str = "User:a has no permission to access Topic:t from 127.0.0.1, no matched policies. (action Pub,Sub,Get, request GET_ROUTEINFO_BY_TOPIC)";

/// Has a broker deny these requests while the switch is on.
fn deny(peer: &Peer, codes: &'static [i32], remark: &'static str) -> Arc<AtomicBool> {
    let is_on = Arc::new(AtomicBool::new(true));
    let switch = is_on.clone();
    peer.script(move |request| match request.code {
        code if codes.contains(&code) && switch.load(Ordering::Relaxed) => {
            Act::Answer(status(response::NO_PERMISSION, remark))
        }
        _ => Act::Default,
    });
    is_on
}

fn assert_names_both(error: &ClientError) {
    assert_eq!(error.meaning().class, ErrorClass::AccessDenied, "{error:?}");
    assert!(error.is_denial() && !error.retryable());
    let hint = error.hint().unwrap();
    for command in ["`rocketpy acl grant a Topic:t Sub`", "`rocketpy acl grant a Group:report Sub`"] {
        assert!(hint.contains(command), "{hint}");
    }
}

#[tokio::test]
async fn denied_heartbeat_ends_the_start_of_a_pull_consumer_and_of_a_push_consumer() {
    let peer = begun(1);
    deny(&peer, &[request::HEART_BEAT], NO_GROUP);
    assert_names_both(&join(&client(&[&peer]), ConsumerConfig::default()).await.err().unwrap());
    let subscription = Subscription::new("t", "*");
    let topics = vec![PushTopic { subscription, lane: 0, batch: 1 }];
    let started = PushConsumer::new(&client(&[&peer]), "report", topics, PushConfig::default()).await;
    assert_names_both(&started.err().unwrap());
}

#[tokio::test]
async fn denied_route_ends_the_start_and_the_hint_is_of_a_reader() {
    let peer = begun(1);
    deny(&peer, &[request::GET_ROUTEINFO_BY_TOPIC], NO_TOPIC);
    assert_names_both(&join(&client(&[&peer]), ConsumerConfig::default()).await.err().unwrap());
}

#[tokio::test]
async fn revoked_right_is_an_error_of_each_poll_and_of_the_state_until_it_is_granted_again() {
    let peer = begun(1);
    let is_denied = deny(&peer, &[request::HEART_BEAT, request::LITE_PULL_MESSAGE], NO_GROUP);
    is_denied.store(false, Ordering::Relaxed);
    let heartbeat_interval = Duration::from_millis(5);
    let config = ClientConfig { heartbeat_interval, ..ClientConfig::new([peer.address.clone()]) };
    let client = Client::new(config, Handle::current()).unwrap();
    let consumer = join(&client, ConsumerConfig::default()).await.unwrap();
    assert_eq!(consumer.state().denied, None);
    is_denied.store(true, Ordering::Relaxed);
    for _ in 0..2 {
        assert_names_both(&consumer.poll(1, PATIENCE).await.unwrap_err());
    }
    assert_names_both(&consumer.state().denied.unwrap());
    is_denied.store(false, Ordering::Relaxed);
    let seen = peer.seen(request::HEART_BEAT).len();
    peer.wait_for(request::HEART_BEAT, seen + 3).await;
    assert_eq!(consumer.state().denied, None);
}

#[tokio::test]
async fn denied_commit_names_what_a_reader_needs() {
    const NO_COMMIT: &str = "User:a has no permission to access Topic:t from ::1, no matched policies. (action Sub,Update, request 15)";
    let peer = begun(1);
    deny(&peer, &[request::UPDATE_CONSUMER_OFFSET], NO_COMMIT);
    let consumer = join(&client(&[&peer]), ConsumerConfig::default()).await.unwrap();
    let (_, reply) = peer.held(request::LITE_PULL_MESSAGE).await;
    reply.send(pull_answer(response::SUCCESS, 10, 10, records(0..10)));
    assert_eq!(poll_offsets(&consumer, 4).await.len(), 4);
    assert_names_both(&consumer.commit().await.unwrap_err());
}

#[tokio::test]
async fn denied_send_is_sent_once_and_the_hint_is_of_a_sender() {
    let peer = single(1);
    deny(&peer, &[request::SEND_MESSAGE_V2], "User:a is disabled.");
    let producer = Producer::new(&client(&[&peer]), "p", ProducerConfig::default()).await.unwrap();
    let error = producer.send(&Message::new("t", "x"), SendOptions::default()).await.unwrap_err().error;
    assert!(error.is_denial() && matches!(*error, ClientError::Refused { .. }), "{error:?}");
    assert_eq!(peer.seen(request::SEND_MESSAGE_V2).len(), 1);

    let other = single(1);
    deny(&other, &[request::GET_ROUTEINFO_BY_TOPIC], NO_TOPIC);
    let producer = Producer::new(&client(&[&other]), "p", ProducerConfig::default()).await.unwrap();
    let error = producer.send(&Message::new("t", "x"), SendOptions::default()).await.unwrap_err().error;
    assert!(error.hint().unwrap().contains("`rocketpy acl grant a Topic:t Pub`"), "{:?}", error.hint());
    assert_eq!(other.seen(request::GET_ROUTEINFO_BY_TOPIC).len(), 1);
}

#[tokio::test]
async fn template_topic_that_is_denied_leaves_the_topic_missing() {
    let peer = single(1);
    peer.script(|request| match (request.code, request.ext.get("topic")) {
        (request::GET_ROUTEINFO_BY_TOPIC, Some("TBW102")) => {
            let remark = "User:a has no permission to access Topic:TBW102 from ::1, no matched policies.";
            Act::Answer(status(response::NO_PERMISSION, remark))
        }
        _ => Act::Default,
    });
    let producer = Producer::new(&client(&[&peer]), "p", ProducerConfig::default()).await.unwrap();
    let error = producer.send(&Message::new("missing", "x"), SendOptions::default()).await.unwrap_err().error;
    assert_eq!(error.meaning().class, ErrorClass::TopicNotFound, "{error:?}");
}
