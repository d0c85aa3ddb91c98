//! What producers and consumers count.

use std::time::Duration;

use rocketpy_client::{ConsumerConfig, ProducerConfig, SendOptions, Traffic};
use rocketpy_model::Message;
use rocketpy_protocol::code::{request, response};

use crate::consume::{join, records};
use crate::peer::{Act, PATIENCE, begun, client, pull_answer, single, status};
use crate::submitting::{hold_sends, keyed, producer};

fn traffic(requests: u64, messages: u64, bytes: u64) -> Traffic {
    Traffic { requests, messages, bytes }
}

fn messages(count: usize) -> Vec<Message> {
    (0..count).map(|_| Message::new("t", "1234567890")).collect()
}

#[tokio::test]
async fn every_message_given_is_counted_once_by_its_outcome_in_bytes_before_compression() {
    let peer = single(1);
    let producer = producer(&peer, ProducerConfig::default()).await;
    producer.send(&Message::new("t", vec![b'x'; 100_000]), SendOptions::default()).await.unwrap();
    producer.send_many(messages(50), SendOptions::default()).await.unwrap().check().unwrap();
    producer.submit(Message::new("t", "abc"), SendOptions::default()).await.unwrap().await.unwrap();
    producer.send_oneway(&Message::new("t", "gone"), SendOptions::default()).await.unwrap();
    let stats = producer.stats();
    assert_eq!(stats.sent, traffic(3, 52, 100_503));
    assert_eq!(stats.oneway, traffic(1, 1, 4));
    assert_eq!([stats.failed, stats.retried, stats.unknown], [Traffic::default(); 3]);
    assert_eq!(stats.latency.recent_us.len(), 3, "one time a request");
    assert!(stats.latency.total > Duration::ZERO);
}

#[tokio::test]
async fn a_retried_send_counts_once_as_sent_and_a_refused_one_as_failed() {
    let peer = single(1);
    let mut left = [response::SYSTEM_BUSY, response::MESSAGE_ILLEGAL].into_iter();
    let mut seen = 0;
    peer.script(move |command| {
        if command.code != request::SEND_MESSAGE_V2 {
            return Act::Default;
        }
        seen += 1;
        if seen == 2 {
            Act::Default
        } else {
            left.next().map_or(Act::Default, |code| Act::Answer(status(code, "no")))
        }
    });
    let producer = producer(&peer, ProducerConfig::default()).await;
    producer.send(&Message::new("t", "12345"), SendOptions::default()).await.unwrap();
    let stats = producer.stats();
    assert_eq!((stats.sent, stats.retried), (traffic(1, 1, 5), traffic(1, 1, 5)));
    producer.send(&Message::new("t", "123"), SendOptions::default()).await.unwrap_err();
    let stats = producer.stats();
    assert_eq!((stats.sent, stats.failed), (traffic(1, 1, 5), traffic(1, 1, 3)));
    assert_eq!(stats.latency.recent_us.len(), 1, "the time of a failure is none of an acknowledgement");
}

#[tokio::test]
async fn messages_behind_a_failure_count_as_failed_without_a_request() {
    let peer = single(1);
    peer.script(|command| match command.code {
        request::SEND_BATCH_MESSAGE => Act::Answer(status(response::MESSAGE_ILLEGAL, "no")),
        _ => Act::Default,
    });
    let config = ProducerConfig { batch_messages: 10, ..ProducerConfig::default() };
    let producer = producer(&peer, config).await;
    let outcome = producer.send_many(messages(50), keyed()).await.unwrap();
    assert_eq!(outcome.acknowledged(), 0);
    assert_eq!(producer.stats().failed, traffic(1, 50, 500));
}

#[tokio::test]
async fn submitted_messages_behind_a_failure_count_as_failed() {
    let peer = single(1);
    hold_sends(&peer);
    let producer = producer(&peer, ProducerConfig::default()).await;
    let mut pending = vec![producer.submit(Message::new("t", "1234567890"), keyed()).await.unwrap()];
    let (_first, reply) = peer.held(request::SEND_MESSAGE_V2).await;
    for message in messages(4) {
        pending.push(producer.submit(message, keyed()).await.unwrap());
    }
    let stats = producer.stats();
    assert_eq!((stats.in_flight_messages, stats.in_flight_bytes), (5, 5 << 10), "a body counts as 1 KiB");
    assert_eq!((stats.window_messages, stats.window_bytes), (16_384, 64 << 20));
    reply.send(status(response::MESSAGE_ILLEGAL, "no"));
    for pending in pending {
        pending.await.unwrap_err();
    }
    producer.flush(PATIENCE).await.unwrap();
    let stats = producer.stats();
    assert_eq!((stats.failed, stats.in_flight_messages), (traffic(1, 5, 50), 0));
}

#[tokio::test]
async fn a_message_without_a_route_counts_as_failed() {
    let peer = single(1);
    let config = ProducerConfig { retries: Some(0), ..ProducerConfig::default() };
    let producer = producer(&peer, config).await;
    let lost = Message::new("unknown", "12");
    producer.send(&lost, SendOptions::default()).await.unwrap_err();
    producer.send(&lost, keyed()).await.unwrap_err();
    producer.submit(lost.clone(), SendOptions::default()).await.unwrap_err();
    producer.send_many(vec![lost.clone(), lost], SendOptions::default()).await.unwrap_err();
    let lost = Message::new("unknown", "12");
    producer.request(&lost, SendOptions::default()).await.unwrap_err();
    producer.prepare(&lost, SendOptions::default()).await.unwrap_err();
    let failed = producer.stats().failed;
    assert_eq!((failed.messages, failed.bytes), (7, 14));
}

#[tokio::test]
async fn a_send_that_is_given_up_has_an_unknown_outcome() {
    let peer = single(1);
    hold_sends(&peer);
    let producer = producer(&peer, ProducerConfig::default()).await;
    let message = Message::new("t", "1234");
    {
        let sending = producer.send(&message, SendOptions::default());
        tokio::select! {
            outcome = sending => panic!("{outcome:?}"),
            _held = peer.held(request::SEND_MESSAGE_V2) => {}
        }
    }
    let stats = producer.stats();
    assert_eq!(
        (stats.unknown, stats.sent, stats.failed),
        (traffic(1, 1, 4), traffic(0, 0, 0), traffic(0, 0, 0))
    );
}

#[tokio::test]
async fn a_consumer_counts_what_it_pulled_and_handed_out_and_knows_how_far_it_is_behind() {
    let peer = begun(1);
    let mut pulls = 0;
    peer.script(move |command| {
        if command.code != request::LITE_PULL_MESSAGE {
            return Act::Default;
        }
        pulls += 1;
        match pulls {
            1 => Act::Answer(pull_answer(response::SUCCESS, 10, 100, records(0..10))),
            2 => Act::Answer(status(response::FLOW_CONTROL, "slower")),
            _ => Act::Hold,
        }
    });
    let consumer = join(&client(&[&peer]), ConsumerConfig::default()).await.unwrap();
    let batch = consumer.poll(4, PATIENCE).await.unwrap();
    let bytes = records(0..10).len() as u64;
    assert_eq!(batch.len(), 4);
    peer.wait_for(request::LITE_PULL_MESSAGE, 3).await;
    let stats = consumer.stats();
    assert_eq!(stats.pulled, traffic(1, 10, bytes));
    assert_eq!(stats.received, traffic(1, 4, batch.size_bytes() as u64));
    assert_eq!(stats.failed_pulls, 1);
    let [queue] = &*stats.queues else { panic!("{stats:?}") };
    assert_eq!(queue.position.map(|offset| offset.get()), Some(4));
    assert_eq!(queue.end.map(|offset| offset.get()), Some(100), "as the broker said");
    assert_eq!((queue.prefetched_messages, queue.is_paused), (6, false));
    assert_eq!(queue.prefetched_bytes as u64, bytes - batch.size_bytes() as u64);
    consumer.poll(1, PATIENCE).await.unwrap();
    assert_eq!(consumer.stats().received.messages, 5);
}
