//! Clients of one instance name share its connections, routes and heartbeats.

use std::time::{Duration, Instant};

use rocketpy_client::{
    Admin, Client, ClientConfig, ClientError, ConsumerConfig, Producer, ProducerConfig, PullConsumer,
    SendOptions, Subscription,
};
use rocketpy_model::Message;
use rocketpy_protocol::Command;
use rocketpy_protocol::body::HeartbeatData;
use rocketpy_protocol::code::request;
use tokio::runtime::Handle;

use crate::peer::{Act, Peer, client};

/// A name server and a broker `b` with topic `t`.
fn two_peers() -> (Peer, Peer) {
    let (names, broker) = (Peer::start(), Peer::start());
    names.route("t", &[("b", &broker, 1)]);
    (names, broker)
}

fn config(names: &Peer, instance: &str) -> ClientConfig {
    ClientConfig { instance_name: Some(instance.to_owned()), ..ClientConfig::new([names.address.clone()]) }
}

fn named(names: &Peer, instance: &str) -> Client {
    Client::new(config(names, instance), Handle::current()).unwrap()
}

async fn producer(client: &Client, group: &str) -> Producer {
    Producer::new(client, group, ProducerConfig::default()).await.unwrap()
}

async fn consumer(client: &Client, group: &str) -> Result<PullConsumer, ClientError> {
    PullConsumer::new(client, group, vec![Subscription::new("t", "*")], ConsumerConfig::default()).await
}

async fn send(producer: &Producer) -> Result<(), ClientError> {
    producer.send(&Message::new("t", "x"), SendOptions::default()).await.map(drop).map_err(ClientError::from)
}

fn groups(heartbeat: &Command) -> (Vec<String>, Vec<String>) {
    let data: HeartbeatData = rocketpy_protocol::json::from_slice(&heartbeat.body).unwrap();
    (
        data.producer_data_set.into_iter().map(|producer| producer.group_name).collect(),
        data.consumer_data_set.into_iter().map(|consumer| consumer.group_name).collect(),
    )
}

#[tokio::test]
async fn clients_of_one_name_open_one_connection_per_server_and_send_one_heartbeat() {
    let (names, broker) = two_peers();
    let clients = [(); 3].map(|()| named(&names, "worker"));
    let (a, b) = (producer(&clients[0], "a").await, producer(&clients[1], "b").await);
    let member = consumer(&clients[2], "g").await.unwrap();
    send(&a).await.unwrap();
    send(&b).await.unwrap();
    broker.wait_for(request::LITE_PULL_MESSAGE, 1).await;
    assert_eq!((names.connections(), broker.connections()), ((1, 1), (1, 1)));
    assert_eq!(names.seen(request::GET_ROUTEINFO_BY_TOPIC).len(), 1, "one route for all");
    assert_eq!(a.client().client_id(), member.client().client_id());

    // One at the consumer's start, one to the broker just connected to. One more member makes one more, with all groups.
    broker.wait_for(request::HEART_BEAT, 2).await;
    let fourth = named(&names, "worker");
    let before = broker.seen(request::HEART_BEAT).len();
    let _c = producer(&fourth, "c").await;
    let heartbeats = broker.seen(request::HEART_BEAT);
    let expected = (["a", "b", "c"].map(str::to_owned).to_vec(), vec!["g".to_owned()]);
    assert_eq!(heartbeats.len(), before + 1);
    assert_eq!(groups(heartbeats.last().unwrap()), expected);
}

#[tokio::test]
async fn a_closed_client_leaves_the_others_working_and_the_last_one_closes_the_connections() {
    let (names, broker) = two_peers();
    let (first, second) = (named(&names, "closing"), named(&names, "closing"));
    let (a, b) = (producer(&first, "a").await, producer(&second, "b").await);
    let member = consumer(&first, "g").await.unwrap();
    send(&a).await.unwrap();
    broker.wait_for(request::LITE_PULL_MESSAGE, 1).await;
    first.close().await;
    assert_eq!(send(&a).await, Err(ClientError::Closed { what: "client" }));
    let polled = member.poll(1, Duration::ZERO).await;
    assert!(matches!(polled, Err(ClientError::Closed { .. })), "{polled:?}");
    let left = broker.seen(request::UNREGISTER_CLIENT);
    assert_eq!(left.len(), 2, "both of its groups, not the other client's");
    drop((a, member, first));
    send(&b).await.unwrap();
    assert_eq!(broker.connections(), (1, 1));
    // The groups are free for others of the name.
    let third = named(&names, "closing");
    let _a = producer(&third, "a").await;
    assert_eq!(groups(broker.seen(request::HEART_BEAT).last().unwrap()).0, ["a", "b"]);
    second.close().await;
    assert_eq!(broker.connections(), (1, 1), "the third is open");
    third.close().await;
    tokio::join!(names.abandoned(), broker.abandoned());
    send(&producer(&named(&names, "closing"), "a").await).await.unwrap();
    assert_eq!(broker.connections(), (2, 1), "a name may be used again");
}

/// A client that sends heartbeats all the time; without a name it has an instance of its own.
fn beating(names: &Peer, instance: Option<&str>) -> Client {
    let config = ClientConfig {
        instance_name: instance.map(str::to_owned),
        heartbeat_interval: Duration::from_millis(20),
        ..ClientConfig::new([names.address.clone()])
    };
    Client::new(config, Handle::current()).unwrap()
}

#[tokio::test]
async fn a_heartbeat_without_an_answer_delays_no_close() {
    for instance in [None, Some("silent")] {
        let (names, broker) = two_peers();
        let client = beating(&names, instance);
        let (first, _b, _c) =
            (producer(&client, "a").await, producer(&client, "b").await, producer(&client, "c").await);
        send(&first).await.unwrap();
        broker.script(|command| if command.code == request::HEART_BEAT { Act::Hold } else { Act::Default });
        let _held = broker.held(request::HEART_BEAT).await;
        let started = Instant::now();
        client.close().await;
        let took = started.elapsed();
        assert!(took < Duration::from_millis(900), "one wait for the heartbeat takes a second: {took:?}");
        assert_eq!(broker.seen(request::UNREGISTER_CLIENT).len(), 3, "every group");
    }
}

#[tokio::test]
async fn a_broker_without_answers_delays_a_close_once_for_all_groups() {
    let (names, broker) = two_peers();
    let client = beating(&names, None);
    let (first, _b, _c) =
        (producer(&client, "a").await, producer(&client, "b").await, producer(&client, "c").await);
    send(&first).await.unwrap();
    broker.script(|_| Act::Hold);
    let started = Instant::now();
    client.close().await;
    let took = started.elapsed();
    assert!(took < Duration::from_millis(1900), "a second for each group: {took:?}");
}

#[tokio::test]
async fn a_client_that_comes_while_the_last_one_closes_has_heartbeats() {
    let (names, broker) = two_peers();
    let first = beating(&names, Some("handover"));
    let a = producer(&first, "a").await;
    send(&a).await.unwrap();
    broker.script(
        |command| {
            if command.code == request::UNREGISTER_CLIENT { Act::Hold } else { Act::Default }
        },
    );
    let closing = tokio::spawn(async move { first.close().await });
    let (_, reply) = broker.held(request::UNREGISTER_CLIENT).await;
    let second = beating(&names, Some("handover"));
    let _b = producer(&second, "b").await;
    reply.send(crate::peer::ok());
    closing.await.unwrap();
    let before = broker.seen(request::HEART_BEAT).len();
    let beats = broker.wait_for(request::HEART_BEAT, before + 3).await;
    assert_eq!(groups(beats.last().unwrap()).0, ["b"]);
}

#[tokio::test]
async fn the_last_client_that_is_dropped_closes_the_connections() {
    let (names, broker) = two_peers();
    let (first, second) = (named(&names, "dropping"), named(&names, "dropping"));
    let a = producer(&first, "a").await;
    send(&a).await.unwrap();
    drop((a, first));
    broker.wait_for(request::UNREGISTER_CLIENT, 1).await;
    assert_eq!(broker.connections(), (1, 1));
    send(&producer(&second, "a").await).await.unwrap();
    drop(second);
    tokio::join!(names.abandoned(), broker.abandoned());
}

#[tokio::test]
async fn two_members_of_one_group_need_two_instances() {
    let (names, broker) = two_peers();
    let (first, second) = (named(&names, "members"), named(&names, "members"));
    let _member = consumer(&first, "g").await.unwrap();
    let refused = consumer(&second, "g").await.map(drop);
    assert!(matches!(refused, Err(ClientError::GroupInUse { role: "consumer", .. })), "{refused:?}");
    // Without a name every client is a member of its own, as before there was sharing.
    let unnamed = [client(&[&names]), client(&[&names])];
    assert_ne!(unnamed[0].client_id(), unnamed[1].client_id());
    for client in &unnamed {
        consumer(client, "g").await.unwrap();
    }
    broker.wait_for(request::HEART_BEAT, 3).await;
    assert_eq!(broker.connections().0, 3);
}

#[tokio::test]
async fn clients_share_only_with_equal_name_servers_and_settings() {
    let (names, other) = (Peer::start(), Peer::start());
    let first = named(&names, "settings");
    let differing = ClientConfig { heartbeat_interval: Duration::from_secs(7), ..config(&names, "settings") };
    let error = Client::new(differing.clone(), Handle::current()).unwrap_err();
    assert!(matches!(error, ClientError::InvalidConfig { field: "heartbeat_interval", .. }), "{error:?}");
    let elsewhere = named(&other, "settings");
    producer(&first, "a").await;
    producer(&elsewhere, "a").await;
    // The timeout of calls is each client's own.
    let patient = ClientConfig { api_timeout: Duration::from_secs(60), ..config(&names, "settings") };
    let hurried = ClientConfig { api_timeout: Duration::from_millis(20), ..config(&names, "settings") };
    names.script(|_| Act::Hold);
    let hurried = Admin::new(&Client::new(hurried, Handle::current()).unwrap());
    let patient = Admin::new(&Client::new(patient, Handle::current()).unwrap());
    let waiting = tokio::spawn(async move { patient.topics().await });
    let (_, reply) = names.held(request::GET_ALL_TOPIC_LIST_FROM_NAMESERVER).await;
    let error = hurried.topics().await.unwrap_err();
    assert!(matches!(error, ClientError::Timeout { timeout_ms: 20, .. }), "{error:?}");
    reply.send(crate::peer::ok().with_body(r#"{"topicList":["t"]}"#));
    assert_eq!(waiting.await.unwrap().unwrap(), ["t"]);
    drop((first, hurried));
    Client::new(differing, Handle::current()).unwrap();
}
