//! Sends while brokers are away, silent or on dead machines.

use std::net::SocketAddr;
use std::time::Duration;

use rocketpy_client::{
    Client, ClientConfig, ClientError, Producer, ProducerConfig, SendOptions, TopicSpec, TransactionEnd,
};
use rocketpy_model::{Message, MessageQueue};
use rocketpy_protocol::code::{request, response};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Handle;

use crate::cluster::{Cluster, eventually};
use crate::peer::{Act, PATIENCE, Peer, client, single, status};

/// An address at which connects are never answered, as of a dead machine: its queue of connections is full.
struct DeadMachine {
    address: SocketAddr,
    _listener: TcpListener,
    _queued: Vec<TcpStream>,
}

impl DeadMachine {
    async fn start() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let (address, mut queued) = (listener.local_addr().unwrap(), Vec::new());
        let connect = || tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(address));
        while let Ok(Ok(stream)) = connect().await {
            queued.push(stream);
        }
        Self { address, _listener: listener, _queued: queued }
    }
}

/// A producer with short attempts, whose connects alone would wait as long as a send.
async fn impatient(names: &Peer) -> Producer {
    let config = ClientConfig { connect_timeout: PATIENCE, ..ClientConfig::new([names.address.clone()]) };
    let client = Client::new(config, Handle::current()).unwrap();
    let attempt_timeout = Duration::from_millis(200);
    let config = ProducerConfig { attempt_timeout, send_timeout: PATIENCE, ..ProducerConfig::default() };
    Producer::new(&client, "ingest", config).await.unwrap()
}

/// Sends in every way, and checks that only broker `b` stored something.
async fn send_to_b(producer: &Producer) {
    let message = Message::new("t", "x");
    for _ in 0..10 {
        let receipt = producer.send(&message, SendOptions::default()).await.unwrap();
        assert_eq!(&*receipt.queue.broker_name, "b");
        producer.submit(message.clone(), SendOptions::default()).await.unwrap().await.unwrap();
    }
    let many = vec![message.clone(); 600];
    producer.send_many(many, SendOptions::default()).await.unwrap().check().unwrap();
    let retried = producer.stats().retried.messages;
    assert_eq!(retried, 1, "messages after the first go to the other broker at once");
}

#[tokio::test]
async fn dead_machine_costs_one_attempt_of_one_send() {
    let (names, mut dead, living) = (Peer::start(), Peer::start(), Peer::start());
    let machine = DeadMachine::start().await;
    dead.address = machine.address.to_string();
    names.route("t", &[("a", &dead, 2), ("b", &living, 2)]);
    send_to_b(&impatient(&names).await).await;
}

#[tokio::test]
async fn silent_broker_costs_one_attempt_of_one_send() {
    let (names, silent, living) = (Peer::start(), Peer::start(), Peer::start());
    silent.script(|_| Act::Hold);
    names.route("t", &[("a", &silent, 2), ("b", &living, 2)]);
    send_to_b(&impatient(&names).await).await;
    assert_eq!(silent.seen(request::SEND_MESSAGE_V2).len(), 1);
}

#[tokio::test]
async fn busy_broker_is_tried_until_it_accepts_and_other_refusals_end_the_send() {
    let peer = single(1);
    let mut refusals = 4;
    peer.script(move |command| match command.code {
        request::SEND_MESSAGE_V2 if refusals > 0 => {
            refusals -= 1;
            Act::Answer(status(response::SYSTEM_BUSY, "too much"))
        }
        _ => Act::Default,
    });
    let producer = Producer::new(&client(&[&peer]), "ingest", ProducerConfig::default()).await.unwrap();
    producer.send(&Message::new("t", "x"), SendOptions::default()).await.unwrap();
    assert_eq!(peer.seen(request::SEND_MESSAGE_V2).len(), 5);
    peer.script(|command| match command.code {
        request::SEND_MESSAGE_V2 => Act::Answer(status(response::SERVICE_NOT_AVAILABLE, "disk full")),
        _ => Act::Default,
    });
    producer.send(&Message::new("t", "x"), SendOptions::default()).await.unwrap_err();
    assert_eq!(peer.seen(request::SEND_MESSAGE_V2).len(), 8);
}

#[tokio::test]
async fn errors_that_no_wait_heals_are_raised_at_once() {
    let peer = single(1);
    let forever = ProducerConfig { send_timeout: 100 * PATIENCE, ..ProducerConfig::default() };
    let producer = Producer::new(&client(&[&peer]), "ingest", forever.clone()).await.unwrap();
    let unknown = MessageQueue::new("t", "unknown", 0);
    let unknown = SendOptions { queue: Some(unknown), ..SendOptions::default() };
    let gone = Peer::start();
    gone.stop().await;
    let lost = Producer::new(&client(&[&gone]), "ingest", forever).await.unwrap();
    let all = async {
        let error = producer.send(&Message::new("t", "x"), unknown).await.unwrap_err();
        assert!(matches!(&*error, ClientError::SendFailed { attempts: 3, .. }), "{error:?}");
        let error = producer.send(&Message::new("nowhere", "x"), SendOptions::default()).await.unwrap_err();
        assert!(matches!(&*error, ClientError::NoRoute { .. }), "{error:?}");
        let error = lost.send(&Message::new("t", "x"), SendOptions::default()).await.unwrap_err();
        assert!(matches!(&*error, ClientError::Connect { .. }), "no name server ever answered: {error:?}");
    };
    tokio::time::timeout(PATIENCE, all).await.expect("no error waits for the send timeout");
}

/// A cluster whose broker is away, and a producer that has sent to it.
async fn without_broker() -> (Cluster, Producer) {
    let mut cluster = Cluster::start().await;
    cluster.admin().create_topic(&TopicSpec::new("t", 1)).await.unwrap();
    let producer = cluster.producer().await;
    producer.send(&Message::new("t", "0"), SendOptions::default()).await.unwrap();
    cluster.stop_broker().await;
    (cluster, producer)
}

/// Waits until so many further attempts were made.
async fn tried(producer: &Producer, attempts: u64) {
    eventually("sends are tried again", async || producer.stats().retried.messages >= attempts).await;
}

/// Bodies of topic `t`, as numbers.
async fn stored(cluster: &Cluster, count: usize) -> Vec<usize> {
    crate::cluster::receive(&[&cluster.consumer("report", "*").await], count).await
}

#[tokio::test(flavor = "multi_thread")]
async fn sends_wait_for_a_broker_that_restarts_and_keep_their_order() {
    let (mut cluster, producer) = without_broker().await;
    let plain = |number: usize| Message::new("t", number.to_string());
    let key = || SendOptions { order_key: Some("k".into()), ..SendOptions::default() };
    let mut pending = Vec::new();
    for number in 1..=100 {
        pending.push(producer.submit(plain(number), key()).await.unwrap());
    }
    let sending = {
        let producer = producer.clone();
        tokio::spawn(async move {
            let many = (102..=200).map(plain).collect::<Vec<_>>();
            let (message, keyed) = (plain(101), plain(201));
            let (one, keyed, many) = tokio::join!(
                producer.send(&message, SendOptions::default()),
                producer.send(&keyed, key()),
                producer.send_many(many, SendOptions::default()),
            );
            (one.unwrap(), keyed.unwrap(), many.unwrap().check().unwrap())
        })
    };
    tried(&producer, 200).await;
    cluster.start_broker().await;
    for one in pending {
        one.await.unwrap();
    }
    sending.await.unwrap();
    let numbers = stored(&cluster, 202).await;
    let submitted: Vec<_> = numbers.iter().copied().filter(|number| (1..=100).contains(number)).collect();
    assert_eq!(submitted, (1..=100).collect::<Vec<_>>());
    let mut all = numbers;
    all.sort_unstable();
    assert_eq!(all, (0..=201).collect::<Vec<_>>(), "a refused connection stores no copy");
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_begin_and_end_after_a_restart_of_the_broker() {
    let mut cluster = Cluster::start().await;
    cluster.admin().create_topic(&TopicSpec::new("t", 1)).await.unwrap();
    let producer = cluster.producer().await;
    let before = producer.prepare(&Message::new("t", "1"), SendOptions::default()).await.unwrap();
    cluster.stop_broker().await;
    let ending = {
        let producer = producer.clone();
        tokio::spawn(async move { producer.end_transaction(&before, TransactionEnd::Commit).await })
    };
    let during = {
        let producer = producer.clone();
        tokio::spawn(async move {
            let half = producer.prepare(&Message::new("t", "2"), SendOptions::default()).await.unwrap();
            producer.end_transaction(&half, TransactionEnd::Commit).await.unwrap();
        })
    };
    tried(&producer, 1).await;
    cluster.start_broker().await;
    ending.await.unwrap().unwrap();
    during.await.unwrap();
    let mut numbers = stored(&cluster, 2).await;
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn close_waits_for_submitted_messages_and_one_way_sends_wait_for_nobody() {
    let (mut cluster, producer) = without_broker().await;
    let error = producer.send_oneway(&Message::new("t", "9"), SendOptions::default()).await.unwrap_err();
    assert!(matches!(&*error, ClientError::Connect { .. }), "{error:?}");
    let pending = producer.submit(Message::new("t", "1"), SendOptions::default()).await.unwrap();
    tried(&producer, 1).await;
    let closing = {
        let producer = producer.clone();
        tokio::spawn(async move { producer.close().await })
    };
    eventually("the producer takes no more", async || {
        let refused = producer.submit(Message::new("t", "9"), SendOptions::default()).await;
        refused.is_err_and(|error| matches!(&*error, ClientError::Closed { .. }))
    })
    .await;
    cluster.start_broker().await;
    closing.await.unwrap().unwrap();
    pending.await.unwrap();
}
