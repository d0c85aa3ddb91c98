//! What a consumer commits by itself, and when.

use std::time::Duration;

use rocketpy_client::{ConsumerConfig, Position, Start};
use rocketpy_model::QueueOffset;
use rocketpy_protocol::{
    Command,
    code::{request, response},
};

use crate::{
    consume::{join, poll_offsets, queue, rebalance, records},
    peer::{Act, PATIENCE, Peer, client, ok, pull_answer, single, with},
};

/// No commit by the clock comes within a test.
fn by_the_hour() -> ConsumerConfig {
    ConsumerConfig {
        start: Start::Earliest,
        auto_commit: Some(Duration::from_secs(3600)),
        rebalance_min_gap: Duration::from_millis(1),
        ..ConsumerConfig::default()
    }
}

fn committed_offsets(peer: &Peer) -> Vec<String> {
    let commits = peer.seen(request::UPDATE_CONSUMER_OFFSET);
    commits.iter().map(|commit| commit.ext.get("commitOffset").unwrap().to_owned()).collect()
}

#[tokio::test]
async fn auto_commit_covers_earlier_polls_only() {
    let peer = single(1);
    let config = ConsumerConfig {
        start: Start::Earliest,
        auto_commit: Some(Duration::from_millis(20)),
        ..ConsumerConfig::default()
    };
    let consumer = join(&client(&[&peer]), config).await.unwrap();
    let (_, reply) = peer.held(request::LITE_PULL_MESSAGE).await;
    reply.send(pull_answer(response::SUCCESS, 10, 10, records(0..10)));
    assert_eq!(poll_offsets(&consumer, 4).await.len(), 4);
    assert_eq!(poll_offsets(&consumer, 3).await.len(), 3);
    let four = || committed_offsets(&peer).contains(&"4".to_owned());
    while !four() {
        let count = peer.seen(request::UPDATE_CONSUMER_OFFSET).len();
        peer.wait_for(request::UPDATE_CONSUMER_OFFSET, count + 1).await;
    }
    consumer.close().await.unwrap();
    let offsets = committed_offsets(&peer);
    assert!(
        !offsets.contains(&"7".to_owned()),
        "the last poll's messages may still be worked on: {offsets:?}"
    );
}

#[tokio::test]
async fn an_automatic_commit_never_takes_one_on_demand_back() {
    let peer = single(1);
    let config = by_the_hour();
    let consumer = join(&client(&[&peer]), config).await.unwrap();
    let (_, reply) = peer.held(request::LITE_PULL_MESSAGE).await;
    reply.send(pull_answer(response::SUCCESS, 10, 10, records(0..10)));
    assert_eq!(poll_offsets(&consumer, 4).await.len(), 4);
    assert_eq!(poll_offsets(&consumer, 3).await.len(), 3);
    consumer.commit().await.unwrap();
    consumer.commit_offsets(&[(queue(), QueueOffset(5))]).await.unwrap();
    consumer.close().await.unwrap();
    assert_eq!(committed_offsets(&peer), ["7", "5"], "closing has nothing to add");
}

#[tokio::test]
async fn a_seek_backwards_is_what_takes_a_commit_back() {
    let peer = single(1);
    peer.script(|command| match command.code {
        request::GET_MAX_OFFSET => Act::Answer(with(ok(), "offset", "10")),
        _ => Act::Default,
    });
    let config = by_the_hour();
    let consumer = join(&client(&[&peer]), config).await.unwrap();
    let (_, reply) = peer.held(request::LITE_PULL_MESSAGE).await;
    reply.send(pull_answer(response::SUCCESS, 10, 10, records(0..10)));
    assert_eq!(poll_offsets(&consumer, 7).await.len(), 7);
    consumer.commit().await.unwrap();
    consumer.seek(&queue(), Position::Offset(QueueOffset(2))).await.unwrap();
    assert!(consumer.poll(1, Duration::ZERO).await.unwrap().is_empty());
    consumer.close().await.unwrap();
    assert_eq!(committed_offsets(&peer), ["7", "2"]);
}

#[tokio::test]
async fn a_queue_that_comes_back_starts_behind_the_commit_of_its_loss() {
    let peer = single(1);
    let config = by_the_hour();
    let consumer = join(&client(&[&peer]), config).await.unwrap();
    let (_, reply) = peer.held(request::LITE_PULL_MESSAGE).await;
    reply.send(pull_answer(response::SUCCESS, 10, 10, records(0..10)));
    assert_eq!(poll_offsets(&consumer, 4).await.len(), 4);
    assert!(!poll_offsets(&consumer, 1).await.is_empty());
    let asked = peer.seen(request::QUERY_CONSUMER_OFFSET).len();
    peer.script(|command| match command.code {
        request::UPDATE_CONSUMER_OFFSET => Act::Hold,
        _ => Act::Default,
    });
    let me = consumer.client().client_id().to_owned();
    rebalance(&peer, &consumer, &["0.0.0.0@before", &me], 0).await;
    let (commit, reply) = peer.held(request::UPDATE_CONSUMER_OFFSET).await;
    assert_eq!(commit.ext.get("commitOffset"), Some("4"));
    peer.set_members("report", &[&me]);
    peer.push(&with(Command::bare_request(request::NOTIFY_CONSUMER_IDS_CHANGED), "consumerGroup", "report"));
    let early = tokio::time::timeout(
        Duration::from_millis(300),
        peer.wait_for(request::QUERY_CONSUMER_OFFSET, asked + 1),
    );
    assert!(early.await.is_err(), "its start is asked for while the commit is under way");
    reply.send(ok());
    peer.wait_for(request::QUERY_CONSUMER_OFFSET, asked + 1).await;
}

#[tokio::test]
async fn a_close_lets_the_commit_of_a_lost_queue_come_to_its_end() {
    let peer = single(1);
    let config = by_the_hour();
    let consumer = join(&client(&[&peer]), config).await.unwrap();
    let (_, reply) = peer.held(request::LITE_PULL_MESSAGE).await;
    reply.send(pull_answer(response::SUCCESS, 10, 10, records(0..10)));
    assert_eq!(poll_offsets(&consumer, 4).await.len(), 4);
    assert!(!poll_offsets(&consumer, 1).await.is_empty());
    peer.script(|command| match command.code {
        request::UPDATE_CONSUMER_OFFSET => Act::Hold,
        _ => Act::Default,
    });
    let me = consumer.client().client_id().to_owned();
    rebalance(&peer, &consumer, &["0.0.0.0@before", &me], 0).await;
    let (_commit, reply) = peer.held(request::UPDATE_CONSUMER_OFFSET).await;
    let closing = consumer.close();
    tokio::pin!(closing);
    assert!(tokio::time::timeout(Duration::from_millis(100), &mut closing).await.is_err());
    reply.send(ok());
    tokio::time::timeout(PATIENCE, closing).await.unwrap().unwrap();
    assert_eq!(committed_offsets(&peer), ["4"]);
}

/// Apache's broker loses offsets when the first commits of a group and topic arrive together.
#[tokio::test]
async fn one_commit_per_broker_and_topic_goes_first() {
    let (b, c) = (Peer::start(), Peer::start());
    b.route("t", &[("b", &b, 3), ("c", &c, 3)]);
    let consumer = join(&client(&[&b]), by_the_hour()).await.unwrap();
    for peer in [&b, &c] {
        peer.wait_for(request::LITE_PULL_MESSAGE, 3).await;
        peer.script(|command| match command.code {
            request::UPDATE_CONSUMER_OFFSET => Act::Hold,
            _ => Act::Default,
        });
    }
    let committing = consumer.commit();
    tokio::pin!(committing);
    let none_but_the_first = async || {
        let (_, at_b) = b.held(request::UPDATE_CONSUMER_OFFSET).await;
        let (_, at_c) = c.held(request::UPDATE_CONSUMER_OFFSET).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!((committed_offsets(&b).len(), committed_offsets(&c).len()), (1, 1));
        at_b.send(ok());
        let others = b.wait_for(request::UPDATE_CONSUMER_OFFSET, 3).await;
        assert_eq!(
            committed_offsets(&c).len(),
            1,
            "another broker's answer says nothing of this one's table"
        );
        at_c.send(ok());
        c.wait_for(request::UPDATE_CONSUMER_OFFSET, 3).await;
        others
    };
    let commits = tokio::select! {
        outcome = &mut committing => panic!("it ended before its answers: {outcome:?}"),
        commits = none_but_the_first() => commits,
    };
    let mut queues: Vec<_> = commits.iter().map(|commit| commit.ext.get("queueId").unwrap()).collect();
    queues.sort_unstable();
    assert_eq!(queues, ["0", "1", "2"]);
    for peer in [&b, &b, &c, &c] {
        peer.held(request::UPDATE_CONSUMER_OFFSET).await.1.send(ok());
    }
    committing.await.unwrap();
}
