//! A queue that goes from one member to another while a user works on its messages.

use std::time::Duration;

use rocketpy_client::{ConsumerConfig, PullConsumer, Start};
use rocketpy_protocol::body::LockBatchResponseBody;
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::json;

use crate::consume::{join, poll_offsets, pull_header, queue, rebalance, records};
use crate::peer::{Act, PATIENCE, Peer, begun, client, ok, pull_answer};

const BY_THE_HOUR: Option<Duration> = Some(Duration::from_secs(3600));

fn config(auto_commit: Option<Duration>, handover_timeout: Duration) -> ConsumerConfig {
    let rebalance_min_gap = Duration::from_millis(1);
    ConsumerConfig {
        start: Start::Earliest,
        auto_commit,
        handover_timeout,
        rebalance_min_gap,
        ..ConsumerConfig::default()
    }
}

/// A consumer that got 4 messages, then 1, and loses their queue to another member.
async fn loses_its_queue(peer: &Peer, config: ConsumerConfig) -> PullConsumer {
    let consumer = join(&client(&[peer]), config).await.unwrap();
    let (_, reply) = peer.held(request::LITE_PULL_MESSAGE).await;
    reply.send(pull_answer(response::SUCCESS, 10, 10, records(0..10)));
    assert_eq!(poll_offsets(&consumer, 4).await, [0, 1, 2, 3]);
    assert_eq!(poll_offsets(&consumer, 1).await, [4]);
    let me = consumer.client().client_id().to_owned();
    rebalance(peer, &consumer, &["0.0.0.0@before", &me], 0).await;
    peer.wait_for(request::LOCK_BATCH_MQ, 1).await;
    consumer
}

fn committed_offsets(peer: &Peer) -> Vec<String> {
    let commits = peer.seen(request::UPDATE_CONSUMER_OFFSET);
    commits.iter().map(|commit| commit.ext.get("commitOffset").unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_lost_queue_is_kept_until_its_messages_are_committed() {
    let peer = begun(1);
    let consumer = loses_its_queue(&peer, config(None, PATIENCE)).await;
    assert!(consumer.poll(10, Duration::ZERO).await.unwrap().is_empty(), "nothing more is handed out");
    assert!(committed_offsets(&peer).is_empty() && peer.seen(request::UNLOCK_BATCH_MQ).is_empty());
    consumer.commit().await.unwrap();
    assert_eq!(committed_offsets(&peer), ["5"], "stored before the commit returns");
    assert_eq!(peer.seen(request::UNLOCK_BATCH_MQ).len(), 1, "and then the next member may begin");
    assert!(consumer.commit_offsets(&[(queue(), 5.into())]).await.is_err(), "it is given up");
}

#[tokio::test]
async fn with_automatic_commits_it_is_kept_until_the_next_poll() {
    let peer = begun(1);
    let consumer = loses_its_queue(&peer, config(BY_THE_HOUR, PATIENCE)).await;
    assert!(peer.seen(request::UNLOCK_BATCH_MQ).is_empty());
    assert!(consumer.poll(10, Duration::ZERO).await.unwrap().is_empty());
    peer.wait_for(request::UNLOCK_BATCH_MQ, 1).await;
    assert_eq!(committed_offsets(&peer), ["5"]);
}

#[tokio::test]
async fn a_user_who_does_not_come_back_holds_nobody_up() {
    let peer = begun(1);
    let _consumer = loses_its_queue(&peer, config(BY_THE_HOUR, Duration::from_millis(1))).await;
    peer.wait_for(request::UNLOCK_BATCH_MQ, 1).await;
    assert_eq!(committed_offsets(&peer), ["4"], "what the last poll was done with");
}

#[tokio::test]
async fn a_queue_that_comes_back_is_read_on_from_where_its_user_is() {
    let peer = begun(1);
    let consumer = loses_its_queue(&peer, config(None, PATIENCE)).await;
    let me = consumer.client().client_id().to_owned();
    rebalance(&peer, &consumer, &[&me], 1).await;
    peer.wait_for(request::UNLOCK_BATCH_MQ, 1).await;
    let reply = loop {
        let (pull, reply) = peer.held(request::LITE_PULL_MESSAGE).await;
        if pull_header(&pull).queue_offset == 5 {
            break reply; // not that of before the loss
        }
    };
    reply.send(pull_answer(response::SUCCESS, 10, 10, records(5..10)));
    assert_eq!(poll_offsets(&consumer, 10).await, [5, 6, 7, 8, 9]);
}

/// Answers questions for locks: the queue is free or not.
fn locks(peer: &Peer, is_free: bool) {
    peer.script(move |command| match command.code {
        request::LOCK_BATCH_MQ => {
            let lock_ok_mq_set = if is_free { vec![queue()] } else { Vec::new() };
            Act::Answer(ok().with_body(json::to_vec(&LockBatchResponseBody { lock_ok_mq_set })))
        }
        _ => Act::Default,
    });
}

#[tokio::test]
async fn a_gained_queue_is_read_when_the_other_member_has_given_it_up() {
    let peer = begun(1);
    peer.set_members("report", &["255.255.255.255@after"]);
    locks(&peer, false);
    let _consumer = join(&client(&[&peer]), config(None, PATIENCE)).await.unwrap();
    peer.wait_for(request::LOCK_BATCH_MQ, 3).await;
    assert!(peer.seen(request::QUERY_CONSUMER_OFFSET).is_empty(), "its place is not asked for before");
    locks(&peer, true);
    peer.wait_for(request::LITE_PULL_MESSAGE, 1).await;
    assert_eq!(peer.seen(request::UNLOCK_BATCH_MQ).len(), 1);
}

#[tokio::test]
async fn a_lock_that_is_never_given_back_holds_a_gained_queue_up_for_a_bounded_time() {
    let peer = begun(1);
    peer.set_members("report", &["255.255.255.255@after"]);
    locks(&peer, false);
    let _consumer = join(&client(&[&peer]), config(None, Duration::from_millis(1))).await.unwrap();
    peer.wait_for(request::LITE_PULL_MESSAGE, 1).await;
}
