//! Lanes of submitted messages when something goes wrong, or must go fast.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

use rocketpy_client::{
    Client, ClientConfig, ClientError, PendingSend, Producer, ProducerConfig, SendOptions,
};
use rocketpy_model::Message;
use rocketpy_protocol::code::{request, response};

use crate::peer::{PATIENCE, sent, single, status};
use crate::submitting::{hold_sends, keyed, producer};

/// Panics in whoever tells an outcome.
struct Panicking;

impl Wake for Panicking {
    fn wake(self: Arc<Self>) {
        panic!("in a waker");
    }
}

/// The worker that tells this message its outcome panics.
fn panic_at(pending: &mut PendingSend) {
    let waker = Waker::from(Arc::new(Panicking));
    assert!(Pin::new(pending).poll(&mut Context::from_waker(&waker)).is_pending());
}

#[tokio::test]
async fn the_shared_lane_goes_on_when_a_worker_panics() {
    let peer = single(1);
    hold_sends(&peer);
    let producer = producer(&peer, ProducerConfig::default()).await;
    let submit = async |body| producer.submit(Message::new("t", body), SendOptions::default()).await.unwrap();
    for round in 0..2 {
        let mut first = submit("0").await;
        panic_at(&mut first);
        let (send, reply) = peer.held(request::SEND_MESSAGE_V2).await;
        let behind = [submit("1").await, submit("2").await];
        reply.send(sent(&send, round));
        let (rest, reply) = peer.held(request::SEND_BATCH_MESSAGE).await;
        reply.send(sent(&rest, round + 1));
        for pending in behind {
            pending.await.unwrap();
        }
        producer.flush(PATIENCE).await.unwrap();
        assert_eq!(producer.in_flight(), 0);
    }
}

#[tokio::test]
async fn what_waits_behind_a_panic_in_the_lane_of_a_queue_is_not_sent_and_the_next_is() {
    let peer = single(4);
    hold_sends(&peer);
    let producer = producer(&peer, ProducerConfig::default()).await;
    let submit = async |body| producer.submit(Message::new("t", body), keyed()).await.unwrap();
    let mut first = submit("0").await;
    panic_at(&mut first);
    let (send, reply) = peer.held(request::SEND_MESSAGE_V2).await;
    let behind = submit("1").await;
    reply.send(sent(&send, 0));
    producer.flush(PATIENCE).await.unwrap();
    let error = behind.await.unwrap_err();
    assert!(matches!(*error, ClientError::NotSent { .. }), "{error:?}");
    let next = submit("2").await;
    let (send, reply) = peer.held(request::SEND_MESSAGE_V2).await;
    assert_eq!(&*send.body, b"2");
    reply.send(sent(&send, 1));
    next.await.unwrap();
    producer.flush(PATIENCE).await.unwrap();
}

#[tokio::test]
async fn messages_that_wait_when_the_runtime_ends_have_an_outcome() {
    let peer = single(1);
    hold_sends(&peer);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(1).build().unwrap();
    let client = Client::new(ClientConfig::new([peer.address.clone()]), runtime.handle().clone()).unwrap();
    let producer = Producer::new(&client, "ingest", ProducerConfig::default()).await.unwrap();
    let (mut all, mut held, mut in_doubt) = (Vec::new(), Vec::new(), Vec::new());
    for options in [SendOptions::default(), keyed()] {
        all.push(producer.submit(Message::new("t", "sent"), options.clone()).await.unwrap());
        held.push(peer.held(request::SEND_MESSAGE_V2).await);
        all.push(producer.submit(Message::new("t", "waits"), options).await.unwrap());
    }
    runtime.shutdown_background();
    for pending in all {
        let outcome = tokio::time::timeout(PATIENCE, pending).await.expect("an outcome");
        in_doubt.push(outcome.unwrap_err().may_have_been_applied());
    }
    assert_eq!(in_doubt, [true, false, true, false], "those that were under way");
    let late = producer.submit(Message::new("t", "late"), keyed()).await.unwrap();
    let outcome = tokio::time::timeout(PATIENCE, late).await.expect("an outcome");
    assert_eq!(
        outcome.unwrap_err(),
        ClientError::NotSent { first: Arc::new(ClientError::Closed { what: "runtime" }) }
    );
}

#[tokio::test]
async fn messages_to_a_topic_that_takes_no_batches_go_one_by_one_and_share_no_failure() {
    let peer = single(1);
    hold_sends(&peer);
    let long = format!("%DLQ%{}", "x".repeat(123));
    for topic in ["%RETRY%g", &long] {
        peer.route(topic, &[("b", &peer, 1)]);
        let producer = producer(&peer, ProducerConfig::default()).await;
        let submit = async |options| producer.submit(Message::new(topic, "x"), options).await.unwrap();
        let mut pending = Vec::new();
        for _ in 0..3 {
            pending.push(submit(SendOptions::default()).await);
        }
        // All three are under way at the same time.
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(peer.held(request::SEND_MESSAGE_V2).await);
        }
        for (index, (send, reply)) in held.into_iter().enumerate() {
            let no = || status(response::MESSAGE_ILLEGAL, "no");
            reply.send(if index == 0 { no() } else { sent(&send, index as i64) });
        }
        let mut failed = 0;
        for pending in pending {
            failed += usize::from(pending.await.is_err());
        }
        assert_eq!(failed, 1);
        let bound = [submit(keyed()).await, submit(keyed()).await];
        for (offset, pending) in bound.into_iter().enumerate() {
            let (send, reply) = peer.held(request::SEND_MESSAGE_V2).await;
            reply.send(sent(&send, offset as i64));
            pending.await.unwrap();
        }
        producer.close().await.unwrap();
    }
}
