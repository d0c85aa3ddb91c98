//! What a consumer commits automatically, and when.

use std::time::Duration;

use rocketpy_client::{ClientError, ConsumerConfig, Position, PullConsumer, Start};
use rocketpy_model::{MessageQueue, QueueOffset};
use rocketpy_protocol::body::{GetConsumerStatusBody, ResetOffsetBody};
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::header::GetConsumerStatusRequestHeader;
use rocketpy_protocol::{Command, json};

use crate::consume::{join, poll_offsets, queue, rebalance, records};
use crate::peer::{Act, PATIENCE, Peer, begun, client, ok, pull_answer, single, status, with};

/// No automatic commit happens within a test.
pub(crate) fn by_the_hour() -> ConsumerConfig {
    ConsumerConfig {
        start: Start::Earliest,
        auto_commit: Some(Duration::from_secs(3600)),
        handover_timeout: Duration::ZERO,
        rebalance_min_gap: Duration::from_millis(1),
        ..ConsumerConfig::default()
    }
}

pub(crate) fn committed_offsets(peer: &Peer) -> Vec<String> {
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
async fn an_automatic_commit_never_undoes_one_on_demand() {
    let peer = begun(1);
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
async fn commits_in_the_background_become_few_requests_and_cover_what_was_handed_out_before_each() {
    let peer = begun(1);
    peer.script(|command| match command.code {
        request::UPDATE_CONSUMER_OFFSET => Act::Hold,
        _ => Act::Default,
    });
    let config = ConsumerConfig { auto_commit: None, ..by_the_hour() };
    let consumer = join(&client(&[&peer]), config).await.unwrap();
    let (_, reply) = peer.held(request::LITE_PULL_MESSAGE).await;
    reply.send(pull_answer(response::SUCCESS, 10, 10, records(0..10)));
    let commit = || consumer.commit_soon().unwrap();
    assert_eq!(poll_offsets(&consumer, 1).await, [0]);
    (0..100).for_each(|_| commit());
    let (_, first) = peer.held(request::UPDATE_CONSUMER_OFFSET).await;
    for _ in 0..3 {
        poll_offsets(&consumer, 1).await;
        commit();
    }
    consumer.commit_offsets_soon(&[(queue(), QueueOffset(3))]).unwrap();
    let above = consumer.commit_offsets_soon(&[(queue(), QueueOffset(9))]);
    assert!(matches!(above, Err(ClientError::OffsetOutOfRange { .. })));
    assert_eq!(poll_offsets(&consumer, 3).await.len(), 3);
    let closing = consumer.clone();
    let closed = tokio::spawn(async move { closing.close().await });
    first.send(ok());
    peer.held(request::UPDATE_CONSUMER_OFFSET).await.1.send(ok());
    closed.await.unwrap().unwrap();
    assert_eq!(committed_offsets(&peer), ["1", "3"], "the close waits for it, and adds nothing");
    assert_eq!(consumer.commit_soon(), Err(ClientError::Closed { what: "consumer" }));
}

#[tokio::test]
async fn what_a_commit_in_the_background_could_not_store_is_in_the_next_one() {
    let peer = begun(1);
    let mut refusals = 1;
    peer.script(move |command| match command.code {
        request::UPDATE_CONSUMER_OFFSET if refusals > 0 => {
            refusals -= 1;
            Act::Answer(status(response::SYSTEM_ERROR, "no"))
        }
        _ => Act::Default,
    });
    let config = ConsumerConfig { auto_commit: None, ..by_the_hour() };
    let consumer = join(&client(&[&peer]), config).await.unwrap();
    let (_, reply) = peer.held(request::LITE_PULL_MESSAGE).await;
    reply.send(pull_answer(response::SUCCESS, 10, 10, records(0..10)));
    assert_eq!(poll_offsets(&consumer, 4).await.len(), 4);
    consumer.commit_soon().unwrap();
    peer.wait_for(request::UPDATE_CONSUMER_OFFSET, 1).await;
    consumer.commit_soon().unwrap();
    consumer.close().await.unwrap();
    assert_eq!(committed_offsets(&peer), ["4", "4"]);
}

#[tokio::test]
async fn only_a_seek_backwards_lowers_a_commit() {
    let peer = begun(1);
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
async fn a_member_goes_where_its_group_is_set_and_commits_that() {
    let peer = begun(1);
    let consumer = join(&client(&[&peer]), by_the_hour()).await.unwrap();
    let (_, reply) = peer.held(request::LITE_PULL_MESSAGE).await;
    reply.send(pull_answer(response::SUCCESS, 10, 10, records(0..10)));
    assert_eq!(poll_offsets(&consumer, 4).await.len(), 4);
    let _never_answered = peer.held(request::LITE_PULL_MESSAGE).await; // at 10

    let body = ResetOffsetBody { offset_table: [(queue(), 2), (MessageQueue::new("t", "b", 7), 1)].into() };
    let order = with(Command::bare_request(request::RESET_CONSUMER_CLIENT_OFFSET), "group", "report");
    peer.push(&order.with_body(json::to_vec(&body)));
    let (pull, reply) = peer.held(request::LITE_PULL_MESSAGE).await;
    assert_eq!(pull.ext.get("queueOffset"), Some("2"));
    peer.wait_for(request::UPDATE_CONSUMER_OFFSET, 1).await;
    assert_eq!(committed_offsets(&peer), ["2"], "only for queues of its own");
    reply.send(pull_answer(response::SUCCESS, 10, 10, records(2..10)));
    assert_eq!(poll_offsets(&consumer, 3).await, [2, 3, 4]);
    let moves = consumer.take_offset_moves();
    assert_eq!((moves[0].from, moves[0].to, moves.len()), (QueueOffset(4), QueueOffset(2), 1));

    consumer.commit().await.unwrap();
    for (group, standing) in [("report", vec![(queue(), 5)]), ("other", vec![])] {
        let header = GetConsumerStatusRequestHeader { topic: "t", group, client_addr: None };
        let answer = peer.ask(Command::request(request::GET_CONSUMER_STATUS_FROM_CLIENT, &header)).await;
        assert_eq!(answer.code, response::SUCCESS, "{:?}", answer.remark);
        let status: GetConsumerStatusBody = json::from_slice(&answer.body).unwrap();
        assert_eq!(status.message_queue_table, standing.into_iter().collect(), "{group}");
    }
}

#[tokio::test]
async fn a_queue_that_comes_back_starts_after_the_commit_of_its_loss() {
    let peer = single(1);
    let consumer = read_ten(&peer, 4).await;
    peer.script(|command| match command.code {
        request::UPDATE_CONSUMER_OFFSET => Act::Hold,
        _ => Act::Default,
    });
    let me = consumer.client().client_id().to_owned();
    rebalance(&peer, &consumer, &["0.0.0.0@before", &me], 0).await;
    let (commit, reply) = peer.held(request::UPDATE_CONSUMER_OFFSET).await;
    let asked = peer.seen(request::QUERY_CONSUMER_OFFSET).len();
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
async fn a_close_lets_the_commit_of_a_lost_queue_finish() {
    let peer = begun(1);
    let consumer = read_ten(&peer, 4).await;
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

/// Asks a broker and waits for its answer. Requests that the consumer's tasks sent earlier have arrived by then.
pub(crate) async fn round_trip(consumer: &PullConsumer, broker_name: &str) {
    consumer.committed(&MessageQueue::new("t", broker_name, 0)).await.unwrap();
}

/// Apache's broker loses offsets when the first commits of a group and topic arrive together.
#[tokio::test]
async fn one_commit_per_broker_and_topic_goes_first() {
    let (b, c) = (Peer::start(), Peer::start());
    b.route("t", &[("b", &b, 3), ("c", &c, 3)]);
    for peer in [&b, &c] {
        peer.script(|command| match command.code {
            request::GET_MIN_OFFSET => Act::Answer(with(ok(), "offset", "5")),
            _ => Act::Default,
        });
    }
    let consumer = join(&client(&[&b]), by_the_hour()).await.unwrap();
    for peer in [&b, &c] {
        // The places where the group begins are stored by then.
        peer.wait_for(request::LITE_PULL_MESSAGE, 3).await;
        peer.script(|command| match command.code {
            request::UPDATE_CONSUMER_OFFSET => Act::Hold,
            _ => Act::Default,
        });
    }
    for queue in consumer.assignment() {
        consumer.seek(&queue, Position::Begin).await.unwrap();
    }
    let committing = consumer.commit();
    tokio::pin!(committing);
    let none_but_the_first = async || {
        let (_, at_b) = b.held(request::UPDATE_CONSUMER_OFFSET).await;
        let (_, at_c) = c.held(request::UPDATE_CONSUMER_OFFSET).await;
        round_trip(&consumer, "b").await;
        round_trip(&consumer, "c").await;
        assert_eq!((committed_offsets(&b).len(), committed_offsets(&c).len()), (4, 4));
        at_b.send(ok());
        let others = b.wait_for(request::UPDATE_CONSUMER_OFFSET, 6).await;
        assert_eq!(
            committed_offsets(&c).len(),
            4,
            "another broker's answer says nothing of this one's table"
        );
        at_c.send(ok());
        c.wait_for(request::UPDATE_CONSUMER_OFFSET, 6).await;
        others
    };
    let commits = tokio::select! {
        outcome = &mut committing => panic!("it ended before its answers: {outcome:?}"),
        commits = none_but_the_first() => commits,
    };
    let mut queues: Vec<_> = commits[3..].iter().map(|commit| commit.ext.get("queueId").unwrap()).collect();
    queues.sort_unstable();
    assert_eq!(queues, ["0", "1", "2"]);
    for peer in [&b, &b, &c, &c] {
        peer.held(request::UPDATE_CONSUMER_OFFSET).await.1.send(ok());
    }
    committing.await.unwrap();
}

/// Reads ten messages from 0, of which `done` are done with.
pub(crate) async fn read_ten(peer: &Peer, done: usize) -> PullConsumer {
    let consumer = join(&client(&[peer]), by_the_hour()).await.unwrap();
    let (_, reply) = peer.held(request::LITE_PULL_MESSAGE).await;
    reply.send(pull_answer(response::SUCCESS, 10, 10, records(0..10)));
    assert_eq!(poll_offsets(&consumer, done).await.len(), done);
    assert!(!poll_offsets(&consumer, 1).await.is_empty());
    consumer
}
