//! A name server and broker whose answers would make a client allocate without bounds.

use std::fmt::Write;

use rocketpy_client::{
    Admin, ClientError, ConsumerConfig, Producer, ProducerConfig, PullConsumer, SendOptions, Subscription,
};
use rocketpy_model::Message;
use rocketpy_protocol::code::request;

use crate::peer::{self, Act, Peer, client, ok};

/// A peer that answers one request with this body.
fn lying(code: i32, body: &str) -> Peer {
    let peer = peer::single(4);
    let body = body.as_bytes().to_vec();
    peer.script(move |asked| match asked.code == code {
        true => Act::Answer(ok().with_body(body.clone())),
        false => Act::Default,
    });
    peer
}

/// The error names the server and the bound.
fn check(peer: &Peer, error: &ClientError, bound: &str) {
    assert!(matches!(error, ClientError::BadAnswer { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.starts_with(&peer.address) && text.contains(bound), "{text}");
}

async fn refused_route(route: &str) {
    const BOUND: &str = "at most 262144 are accepted";
    let peer = lying(request::GET_ROUTEINFO_BY_TOPIC, route);
    let client = client(&[&peer]);
    let producer = Producer::new(&client, "ingest", ProducerConfig::default()).await.unwrap();
    let sent = producer.send(&Message::new("t", "x"), SendOptions::default()).await;
    check(&peer, &sent.unwrap_err().error, BOUND);
    let subscriptions = vec![Subscription::new("t", "*")];
    let consumer = PullConsumer::new(&client, "g", subscriptions, ConsumerConfig::default()).await;
    check(&peer, &consumer.err().unwrap(), BOUND);
    check(&peer, &Admin::new(&client).queues("t").await.unwrap_err(), BOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_configuration_of_32_kb_does_not_become_millions_of_queues() {
    let order = "b:65536;".repeat(4096);
    refused_route(&format!("{{\"orderTopicConf\":\"{order}\",\"queueDatas\":[],\"brokerDatas\":[]}}")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_route_of_5000_brokers_with_16384_queues_each_is_refused() {
    let (mut queues, mut brokers) = (String::new(), String::new());
    for number in 0..5000 {
        let comma = if number == 0 { "" } else { "," };
        let _ = write!(
            queues,
            "{comma}{{\"brokerName\":\"b{number}\",\"perm\":6,\"readQueueNums\":16384,\"writeQueueNums\":16384}}"
        );
        let _ = write!(
            brokers,
            "{comma}{{\"brokerName\":\"b{number}\",\"brokerAddrs\":{{0:\"127.0.0.1:1\"}},\"cluster\":\"c\"}}"
        );
    }
    refused_route(&format!("{{\"queueDatas\":[{queues}],\"brokerDatas\":[{brokers}]}}")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_millions_of_tiny_items_are_refused() {
    const BOUND: &str = "more than 1048576 items";
    let items = "{},".repeat(1 << 21);
    let peer = lying(request::GET_ROUTEINFO_BY_TOPIC, &format!("{{\"brokerDatas\":[{items}{{}}]}}"));
    check(&peer, &Admin::new(&client(&[&peer])).queues("t").await.unwrap_err(), BOUND);

    let names = "\"\",".repeat(1 << 21);
    let peer =
        lying(request::GET_ALL_TOPIC_LIST_FROM_NAMESERVER, &format!("{{\"topicList\":[{names}\"\"]}}"));
    check(&peer, &Admin::new(&client(&[&peer])).topics().await.unwrap_err(), BOUND);

    let mut brokers = String::new();
    for number in 0..=1 << 20 {
        let _ = write!(brokers, "{number}:{{}},");
    }
    brokers.pop();
    let peer = lying(request::GET_BROKER_CLUSTER_INFO, &format!("{{\"brokerAddrTable\":{{{brokers}}}}}"));
    check(&peer, &Admin::new(&client(&[&peer])).cluster().await.unwrap_err(), BOUND);
}
