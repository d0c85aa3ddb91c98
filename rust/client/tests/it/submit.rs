//! `submit`: window, gathering, order, flush.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rocketpy_client::{ClientError, OutcomeSink, Outcomes, ProducerConfig, SendOptions};
use rocketpy_model::Message;
use rocketpy_protocol::batch;
use rocketpy_protocol::code::{request, response};

use crate::peer::{Act, PATIENCE, header_of, sent, single, status};
use crate::submitting::{hold_sends, keyed, producer};

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
    let short = SendOptions { wait: Some(Duration::from_millis(50)), ..SendOptions::default() };
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
    let short = SendOptions { wait: Some(Duration::from_millis(50)), ..SendOptions::default() };
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

/// Panics at ticket 0, and notes of the others whether they were acknowledged.
#[derive(Default)]
struct Panicking(Mutex<Vec<bool>>);

impl OutcomeSink for Panicking {
    fn told(&self, outcomes: Outcomes) {
        assert!(outcomes.tickets().all(|ticket| ticket != 0), "in a sink");
        self.0.lock().extend(outcomes.into_outcomes().map(|outcome| outcome.status().is_some()));
    }
}

#[tokio::test]
async fn a_sink_is_told_once_and_its_panic_harms_nobody() {
    let peer = single(1);
    let producer = producer(&peer, ProducerConfig::default()).await;
    let outcomes = Arc::new(Panicking::default());
    let sink: Arc<dyn OutcomeSink> = outcomes.clone();
    producer.submit_ticket(Message::new("t", "x"), keyed(), &sink, 0).await.unwrap();
    producer.flush(PATIENCE).await.unwrap();
    for ticket in 1..4 {
        producer.submit_ticket(Message::new("t", "x"), keyed(), &sink, ticket).await.unwrap();
    }
    producer.flush(PATIENCE).await.unwrap();
    assert_eq!(*outcomes.0.lock(), [true; 3], "told before flush returns");
    let refused = producer.submit_ticket(Message::new("t", ""), keyed(), &sink, 4).await;
    assert!(refused.is_err());
    assert_eq!(outcomes.0.lock().len(), 3, "a message that was not taken has no outcome to tell");
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

fn keyed_by(key: &str) -> SendOptions {
    SendOptions { order_key: Some(key.into()), ..SendOptions::default() }
}

#[tokio::test]
async fn what_waits_behind_a_failure_of_its_queue_is_not_sent() {
    let peer = single(4);
    hold_sends(&peer);
    let producer = producer(&peer, ProducerConfig::default()).await;
    let first = producer.submit(Message::new("t", "0"), keyed()).await.unwrap();
    let (_, reply) = peer.held(request::SEND_MESSAGE_V2).await;
    let mut behind = Vec::new();
    for number in 1..10 {
        let options = SendOptions { msg_id: (number == 1).then(|| "mine".into()), ..keyed() };
        behind.push(producer.submit(Message::new("t", number.to_string()), options).await.unwrap());
    }
    reply.send(status(response::MESSAGE_ILLEGAL, "no"));
    let failed = first.await.unwrap_err();
    assert!(matches!(*failed, ClientError::Refused { .. }), "{failed:?}");
    // The caller knows of the failure: what it submits now is tried.
    let after = producer.submit(Message::new("t", "10"), keyed()).await.unwrap();
    for (index, pending) in behind.into_iter().enumerate() {
        let error = pending.await.unwrap_err();
        assert_eq!(error, ClientError::NotSent { first: failed.error.clone() });
        assert!(!error.may_have_been_applied() && error.broker.is_none());
        assert_eq!(error.msg_id.as_deref(), (index == 0).then_some("mine"));
    }
    let (send, reply) = peer.held(request::SEND_MESSAGE_V2).await;
    assert_eq!(&*send.body, b"10");
    reply.send(sent(&send, 0));
    after.await.unwrap();
}

#[tokio::test]
async fn messages_without_a_key_do_not_wait_for_a_request_that_hangs() {
    let peer = single(4);
    hold_sends(&peer);
    let producer = producer(&peer, ProducerConfig::default()).await;
    let _hangs = producer.submit(Message::new("t", "0"), SendOptions::default()).await.unwrap();
    let (first, _reply) = peer.held(request::SEND_MESSAGE_V2).await;
    let goes = producer.submit(Message::new("t", "1"), SendOptions::default()).await.unwrap();
    let (second, reply) = peer.held(request::SEND_MESSAGE_V2).await;
    assert_ne!(header_of(&first).queue_id, header_of(&second).queue_id);
    reply.send(sent(&second, 0));
    goes.await.unwrap();
}

#[tokio::test]
async fn the_requests_of_a_topic_that_are_under_way_are_bounded() {
    let peer = single(8);
    hold_sends(&peer);
    let config = ProducerConfig { requests_in_flight: 3, batch_messages: 1, ..ProducerConfig::default() };
    let producer = producer(&peer, config).await;
    let mut pending = Vec::new();
    for number in 0..30 {
        // "TagA" and "user-42" have lanes of their own.
        let options = match number % 3 {
            0 => SendOptions::default(),
            1 => keyed_by("TagA"),
            _ => keyed_by("user-42"),
        };
        pending.push(producer.submit(Message::new("t", number.to_string()), options).await.unwrap());
    }
    for answered in 0..30 {
        let (send, reply) = peer.held(request::SEND_MESSAGE_V2).await;
        let under_way = peer.seen(request::SEND_MESSAGE_V2).len() - answered;
        assert!(under_way <= 3, "{under_way} requests at a time");
        reply.send(sent(&send, answered as i64));
    }
    for pending in pending {
        pending.await.unwrap();
    }
}

#[tokio::test]
async fn a_flush_waits_for_what_came_before_it_and_holds_nobody_up() {
    let peer = single(4);
    hold_sends(&peer);
    let producer = producer(&peer, ProducerConfig::default()).await;
    let before = producer.submit(Message::new("t", "before"), keyed_by("TagA")).await.unwrap();
    let (send, reply) = peer.held(request::SEND_MESSAGE_V2).await;
    let mut flush = std::pin::pin!(producer.flush(PATIENCE));
    assert!(poll_once(flush.as_mut()).is_pending());
    let after = producer.submit(Message::new("t", "after"), keyed_by("user-42")).await.unwrap();
    let (other, other_reply) = peer.held(request::SEND_MESSAGE_V2).await;
    assert!(poll_once(flush.as_mut()).is_pending());
    reply.send(sent(&send, 0));
    flush.await.unwrap();
    before.await.unwrap();
    assert_eq!(producer.in_flight(), 1, "the one submitted during the flush");
    other_reply.send(sent(&other, 0));
    after.await.unwrap();
}

fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> std::task::Poll<F::Output> {
    future.poll(&mut std::task::Context::from_waker(std::task::Waker::noop()))
}

#[tokio::test]
async fn the_wait_for_room_is_not_the_budget_of_the_send() {
    let peer = single(1);
    hold_sends(&peer);
    let config = ProducerConfig { window_messages: 1, ..ProducerConfig::default() };
    let producer = producer(&peer, config).await;
    let long = SendOptions { timeout: Some(PATIENCE), wait: Some(Duration::ZERO), ..SendOptions::default() };
    let first = producer.submit(Message::new("t", "0"), long.clone()).await.unwrap();
    let (send, reply) = peer.held(request::SEND_MESSAGE_V2).await;
    let error = producer.submit(Message::new("t", "1"), long).await.unwrap_err();
    assert_eq!(error, ClientError::WindowFull { in_flight: 1, timeout_ms: 0 });
    let waits = SendOptions {
        timeout: Some(Duration::from_millis(1)),
        wait: Some(PATIENCE),
        ..SendOptions::default()
    };
    let mut second = std::pin::pin!(producer.submit(Message::new("t", "1"), waits));
    assert!(poll_once(second.as_mut()).is_pending());
    reply.send(sent(&send, 0));
    first.await.unwrap();
    assert!(second.await.is_ok(), "it got in although its send has a budget of a millisecond");
}

#[tokio::test]
async fn a_linger_gathers_messages_until_a_request_is_full_or_a_flush_comes() {
    let peer = single(4);
    let config = ProducerConfig { linger: PATIENCE, batch_messages: 10, ..ProducerConfig::default() };
    let producer = producer(&peer, config).await;
    for options in [SendOptions::default(), keyed()] {
        let mut full = Vec::new();
        for number in 0..10 {
            full.push(producer.submit(Message::new("t", number.to_string()), options.clone()).await.unwrap());
        }
        for pending in full {
            pending.await.unwrap();
        }
        for number in 0..5 {
            drop(producer.submit(Message::new("t", number.to_string()), options.clone()).await.unwrap());
        }
        producer.flush(PATIENCE).await.unwrap();
    }
    let sizes =
        peer.seen(request::SEND_BATCH_MESSAGE).into_iter().map(|send| batch::items(&send.body).count());
    assert_eq!(sizes.collect::<Vec<_>>(), [10, 5, 10, 5]);
    assert!(peer.seen(request::SEND_MESSAGE_V2).is_empty(), "none went alone");
}

#[tokio::test]
async fn a_full_window_ends_the_linger() {
    let peer = single(4);
    let config = ProducerConfig { linger: 2 * PATIENCE, window_messages: 5, ..ProducerConfig::default() };
    let producer = producer(&peer, config).await;
    let options = SendOptions { wait: Some(PATIENCE), ..SendOptions::default() };
    for number in 0..12 {
        drop(producer.submit(Message::new("t", number.to_string()), options.clone()).await.unwrap());
    }
    producer.flush(PATIENCE).await.unwrap();
}

#[tokio::test]
async fn messages_that_wait_for_room_end_the_linger_of_each_other() {
    let peer = single(4);
    let config = ProducerConfig { linger: 2 * PATIENCE, window_messages: 1, ..ProducerConfig::default() };
    let producer = producer(&peer, config).await;
    let submit = async || {
        let options = SendOptions { wait: Some(PATIENCE), ..SendOptions::default() };
        producer.submit(Message::new("t", "x"), options).await.map(drop)
    };
    let (first, second, third) = tokio::join!(submit(), submit(), submit());
    first.and(second).and(third).unwrap();
    producer.flush(PATIENCE).await.unwrap();
}

/// Notes what it is told: the offsets by ticket, request by request.
#[derive(Default)]
struct Notes(Mutex<Vec<Vec<(u64, u64)>>>);

impl OutcomeSink for Notes {
    fn told(&self, outcomes: Outcomes) {
        let tickets: Vec<u64> = outcomes.tickets().collect();
        let offsets = outcomes.into_outcomes().map(|outcome| outcome.receipt().unwrap().queue_offset.get());
        self.0.lock().push(tickets.into_iter().zip(offsets).collect());
    }
}

#[tokio::test]
async fn a_sink_is_told_request_by_request() {
    let peer = single(1);
    hold_sends(&peer);
    let config = ProducerConfig { window_messages: 4, ..ProducerConfig::default() };
    let producer = producer(&peer, config).await;
    let notes = Arc::new(Notes::default());
    let sink: Arc<dyn OutcomeSink> = notes.clone();
    producer.submit_ticket(Message::new("t", "x"), keyed(), &sink, 100).await.unwrap();
    let (first, reply) = peer.held(request::SEND_MESSAGE_V2).await;
    for ticket in 101..104 {
        producer.submit_ticket(Message::new("t", "x"), keyed(), &sink, ticket).await.unwrap();
    }
    let refused = producer.submit_ticket(Message::new("t", ""), keyed(), &sink, 104).await;
    assert!(refused.is_err());
    {
        let mut given_up =
            std::pin::pin!(producer.submit_ticket(Message::new("t", "x"), keyed(), &sink, 105));
        assert!(poll_once(given_up.as_mut()).is_pending(), "the window is full");
    }
    reply.send(sent(&first, 0));
    let (rest, reply) = peer.held(request::SEND_BATCH_MESSAGE).await;
    reply.send(sent(&rest, 1));
    producer.flush(PATIENCE).await.unwrap();
    assert_eq!(*notes.0.lock(), [vec![(100, 0)], vec![(101, 1), (102, 2), (103, 3)]]);
}

#[tokio::test]
async fn a_submit_that_waits_for_room_ends_with_the_producer() {
    let peer = single(1);
    hold_sends(&peer);
    let config = ProducerConfig { window_messages: 1, ..ProducerConfig::default() };
    let producer = producer(&peer, config).await;
    let first = producer.submit(Message::new("t", "0"), SendOptions::default()).await.unwrap();
    let (send, reply) = peer.held(request::SEND_MESSAGE_V2).await;
    let waits = SendOptions { wait: Some(PATIENCE), ..SendOptions::default() };
    let mut second = std::pin::pin!(producer.submit(Message::new("t", "1"), waits));
    assert!(poll_once(second.as_mut()).is_pending());
    let mut closing = std::pin::pin!(producer.close());
    assert!(poll_once(closing.as_mut()).is_pending());
    reply.send(sent(&send, 0));
    closing.await.unwrap();
    first.await.unwrap();
    assert_eq!(second.await.unwrap_err(), ClientError::Closed { what: "producer" });
}

#[tokio::test]
async fn a_close_whose_caller_is_gone_goes_on_and_the_next_one_waits_for_it() {
    let peer = single(1);
    hold_sends(&peer);
    let producer = producer(&peer, ProducerConfig::default()).await;
    let submitted = producer.submit(Message::new("t", "0"), SendOptions::default()).await.unwrap();
    let (send, reply) = peer.held(request::SEND_MESSAGE_V2).await;
    let interrupted = poll_once(std::pin::pin!(producer.close()).as_mut());
    assert!(interrupted.is_pending());
    let mut again = std::pin::pin!(producer.close());
    assert!(poll_once(again.as_mut()).is_pending());
    reply.send(sent(&send, 0));
    again.await.unwrap();
    submitted.await.unwrap();
    assert_eq!(peer.seen(request::UNREGISTER_CLIENT).len(), 1);
}
