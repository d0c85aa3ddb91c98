//! `submit`: window, gathering, order, flush.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rocketpy_client::{ClientError, Producer, ProducerConfig, SendError, SendOptions};
use rocketpy_model::Message;
use rocketpy_protocol::batch;
use rocketpy_protocol::code::{request, response};
use tokio::sync::oneshot;

use crate::peer::{Act, PATIENCE, Peer, client, sent, single, status};

async fn producer(peer: &Peer, config: ProducerConfig) -> Producer {
    Producer::new(&client(&[peer]), "ingest", config).await.unwrap()
}

fn hold_sends(peer: &Peer) {
    peer.script(|command| match command.code {
        request::SEND_MESSAGE_V2 | request::SEND_BATCH_MESSAGE => Act::Hold,
        _ => Act::Default,
    });
}

fn keyed() -> SendOptions {
    SendOptions { order_key: Some("k".into()), ..SendOptions::default() }
}

#[tokio::test]
async fn messages_that_gather_during_a_request_are_sent_together_in_order() {
    let peer = single(4);
    hold_sends(&peer);
    let producer = producer(&peer, ProducerConfig::default()).await;
    let mut pending = vec![producer.submit(Message::new("t", "0"), keyed()).await.unwrap()];
    let (first, reply) = peer.held(request::SEND_MESSAGE_V2).await;
    for number in 1..100 {
        pending.push(producer.submit(Message::new("t", number.to_string()), keyed()).await.unwrap());
    }
    assert_eq!(producer.in_flight(), 100);
    reply.send(sent(&first, 0));
    let (rest, reply) = peer.held(request::SEND_BATCH_MESSAGE).await;
    let bodies: Vec<String> = batch::items(&rest.body)
        .map(|item| String::from_utf8(item.unwrap().body.to_vec()).unwrap())
        .collect();
    assert_eq!(bodies, (1..100).map(|number| number.to_string()).collect::<Vec<_>>());
    reply.send(sent(&rest, 1));
    for (offset, pending) in pending.into_iter().enumerate() {
        assert_eq!(pending.await.unwrap().queue_offset.get(), offset as u64);
    }
    producer.flush(PATIENCE).await.unwrap();
    assert_eq!(producer.in_flight(), 0);
}

#[tokio::test]
async fn a_full_window_makes_submit_wait_and_then_fail() {
    let peer = single(1);
    hold_sends(&peer);
    let config = ProducerConfig { window_messages: 2, ..ProducerConfig::default() };
    let producer = producer(&peer, config).await;
    let first = producer.submit(Message::new("t", "0"), SendOptions::default()).await.unwrap();
    let (send, reply) = peer.held(request::SEND_MESSAGE_V2).await;
    let _second = producer.submit(Message::new("t", "1"), SendOptions::default()).await.unwrap();
    let short = SendOptions { timeout: Some(Duration::from_millis(50)), ..SendOptions::default() };
    let error = producer.submit(Message::new("t", "2"), short).await.unwrap_err();
    assert_eq!(error, ClientError::WindowFull { in_flight: 2, timeout_ms: 50 });
    assert!(error.retryable() && !error.may_have_been_applied());
    let error = producer.flush(Duration::from_millis(50)).await.unwrap_err();
    assert!(matches!(error, ClientError::FlushTimeout { .. }), "{error:?}");
    reply.send(sent(&send, 0));
    first.await.unwrap();
    let _third = producer.submit(Message::new("t", "2"), SendOptions::default()).await.unwrap();
}

#[tokio::test]
async fn the_window_counts_bytes_too() {
    let peer = single(1);
    hold_sends(&peer);
    let config = ProducerConfig { window_bytes: 10 << 10, ..ProducerConfig::default() };
    let producer = producer(&peer, config).await;
    let _large = producer.submit(Message::new("t", vec![1; 20 << 10]), SendOptions::default()).await.unwrap();
    let short = SendOptions { timeout: Some(Duration::from_millis(50)), ..SendOptions::default() };
    let error = producer.submit(Message::new("t", "1"), short).await.unwrap_err();
    assert!(
        matches!(*error, ClientError::WindowFull { .. }),
        "a body larger than the window takes all of it"
    );
}

#[tokio::test]
async fn every_message_gets_its_own_failure() {
    let peer = single(1);
    peer.script(|command| match command.code {
        request::SEND_MESSAGE_V2 | request::SEND_BATCH_MESSAGE => {
            Act::Answer(status(response::MESSAGE_ILLEGAL, "no"))
        }
        _ => Act::Default,
    });
    let producer = producer(&peer, ProducerConfig::default()).await;
    let mut pending = Vec::new();
    for number in 0..10 {
        pending.push(
            producer.submit(Message::new("t", number.to_string()), SendOptions::default()).await.unwrap(),
        );
    }
    for pending in pending {
        let error = pending.await.unwrap_err();
        assert!(matches!(*error, ClientError::Refused { code: 13, .. }), "{error:?}");
        assert!(error.msg_id.is_some() && error.broker.as_deref() == Some("b"), "{error:?}");
    }
    producer.flush(PATIENCE).await.unwrap();
}

#[tokio::test]
async fn a_callback_is_called_once_and_its_panic_harms_nobody() {
    let peer = single(1);
    let producer = producer(&peer, ProducerConfig::default()).await;
    let outcomes = Arc::new(Mutex::new(Vec::new()));
    producer.submit_with(Message::new("t", "x"), keyed(), |_| panic!("in a callback")).await.unwrap();
    for _ in 0..3 {
        let outcomes = outcomes.clone();
        let done =
            move |outcome: Result<rocketpy_client::Receipt, SendError>| outcomes.lock().push(outcome.is_ok());
        producer.submit_with(Message::new("t", "x"), keyed(), done).await.unwrap();
    }
    producer.flush(PATIENCE).await.unwrap();
    assert_eq!(*outcomes.lock(), [true; 3], "told before flush returns");
    let (called, call) = oneshot::channel::<()>();
    let refused =
        producer.submit_with(Message::new("t", ""), keyed(), move |_| called.send(()).unwrap()).await;
    assert!(refused.is_err());
    assert!(call.await.is_err(), "a message that was not taken has no outcome to tell");
}

#[tokio::test]
async fn closing_waits_for_what_was_submitted() {
    let peer = single(1);
    hold_sends(&peer);
    let producer = producer(&peer, ProducerConfig::default()).await;
    let pending = producer.submit(Message::new("t", "x"), SendOptions::default()).await.unwrap();
    let closing = tokio::spawn({
        let producer = producer.clone();
        async move { producer.close().await }
    });
    let (send, reply) = peer.held(request::SEND_MESSAGE_V2).await;
    assert!(!closing.is_finished());
    reply.send(sent(&send, 0));
    closing.await.unwrap().unwrap();
    pending.await.unwrap();
}
