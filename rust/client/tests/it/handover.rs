//! A queue that goes from one member to another while a user works on its messages.

use std::time::Duration;

use rocketpy_client::{ClientError, ConsumerConfig, PullConsumer, Start};
use rocketpy_protocol::body::{LockBatchRequestBody, LockBatchResponseBody};
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::{Command, json};

use crate::consume::{join, poll_offsets, pull_header, queue, rebalance, records};
use crate::peer::{Act, PATIENCE, Peer, begun, client, ok, pull_answer, status};

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

fn lock_body(command: &Command) -> LockBatchRequestBody {
    json::from_slice(&command.body).unwrap()
}

/// Gives each lock that is asked for, or none.
pub(crate) fn locks(command: &Command, is_free: bool) -> Act {
    let lock_ok_mq_set = if is_free { lock_body(command).mq_set } else { Vec::new() };
    Act::Answer(ok().with_body(json::to_vec(&LockBatchResponseBody { lock_ok_mq_set })))
}

pub(crate) fn script_locks(peer: &Peer, is_free: bool) {
    peer.script(move |command| match command.code {
        request::LOCK_BATCH_MQ => locks(command, is_free),
        _ => Act::Default,
    });
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

/// Waits until the only queue is given up.
async fn given_up(peer: &Peer) {
    let unlocked = peer.wait_for(request::UNLOCK_BATCH_MQ, 1).await;
    assert_eq!(lock_body(&unlocked[0]), lock_body(&peer.seen(request::LOCK_BATCH_MQ)[0]));
}

#[tokio::test]
async fn a_lost_queue_is_kept_until_its_messages_are_committed() {
    let peer = begun(1);
    script_locks(&peer, true);
    let consumer = loses_its_queue(&peer, config(None, PATIENCE)).await;
    assert!(consumer.poll(10, Duration::ZERO).await.unwrap().is_empty(), "nothing more is handed out");
    assert!(consumer.positions().is_empty(), "it belongs to the other member");
    assert!(committed_offsets(&peer).is_empty() && peer.seen(request::UNLOCK_BATCH_MQ).is_empty());
    consumer.commit().await.unwrap();
    assert_eq!(committed_offsets(&peer), ["5"], "stored before the commit returns");
    given_up(&peer).await;
    let error = consumer.commit_offsets(&[(queue(), 5.into())]).await.unwrap_err();
    assert!(matches!(error, ClientError::NotAssigned { .. }), "it is given up");
}

/// A broker sends the retries of a group that holds locks to its dead letters.
#[tokio::test]
async fn the_group_itself_holds_no_lock() {
    let peer = begun(1);
    script_locks(&peer, true);
    let consumer = loses_its_queue(&peer, config(None, PATIENCE)).await;
    let locked = lock_body(&peer.seen(request::LOCK_BATCH_MQ)[0]);
    assert_eq!((locked.consumer_group.as_str(), locked.mq_set), ("%HANDOVER%report", vec![queue()]));
    assert_eq!(locked.client_id, consumer.client().client_id());
}

#[tokio::test]
async fn with_automatic_commits_it_is_kept_until_the_next_poll() {
    let peer = begun(1);
    script_locks(&peer, true);
    let consumer = loses_its_queue(&peer, config(BY_THE_HOUR, PATIENCE)).await;
    peer.wait_for(request::UPDATE_CONSUMER_OFFSET, 1).await;
    assert_eq!(committed_offsets(&peer), ["4"], "what is done already, for members that do not wait");
    // By its answer the handover has seen that of the commit, and waits.
    consumer.committed(&queue()).await.unwrap();
    assert!(peer.seen(request::UNLOCK_BATCH_MQ).is_empty());
    assert!(consumer.poll(10, Duration::ZERO).await.unwrap().is_empty());
    given_up(&peer).await;
    assert_eq!(committed_offsets(&peer), ["4", "5"]);
    assert_eq!(peer.seen(request::LOCK_BATCH_MQ).len(), 1, "the lock was not renewed first");
}

#[tokio::test]
async fn a_commit_of_a_part_is_stored_at_once_and_does_not_give_the_queue_up() {
    let peer = begun(1);
    script_locks(&peer, true);
    let consumer = loses_its_queue(&peer, config(None, PATIENCE)).await;
    consumer.commit_offsets(&[(queue(), 3.into())]).await.unwrap();
    assert_eq!(committed_offsets(&peer), ["3"]);
    consumer.commit_offsets(&[(queue(), 4.into())]).await.unwrap();
    assert!(peer.seen(request::UNLOCK_BATCH_MQ).is_empty());
    consumer.commit_offsets(&[(queue(), 5.into())]).await.unwrap();
    given_up(&peer).await;
    assert_eq!(committed_offsets(&peer), ["3", "4", "5"]);
}

#[tokio::test]
async fn a_commit_for_a_kept_queue_returns_its_failure() {
    let peer = begun(1);
    script_locks(&peer, true);
    let consumer = loses_its_queue(&peer, config(None, PATIENCE)).await;
    for refused in [request::UPDATE_CONSUMER_OFFSET, request::QUERY_CONSUMER_OFFSET] {
        peer.script(move |command| match command.code {
            code if code == refused => Act::Answer(status(response::SYSTEM_ERROR, "refused")),
            _ => Act::Default,
        });
        let error = consumer.commit_offsets(&[(queue(), 2.into())]).await.unwrap_err();
        assert!(matches!(error, ClientError::Refused { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn a_user_who_does_not_come_back_holds_nobody_up() {
    let peer = begun(1);
    script_locks(&peer, true);
    let _consumer = loses_its_queue(&peer, config(BY_THE_HOUR, Duration::from_millis(1))).await;
    given_up(&peer).await;
    assert_eq!(committed_offsets(&peer), ["4"], "what the last poll was done with");
}

#[tokio::test]
async fn a_broker_that_locks_nothing_gets_the_commit_at_once() {
    let peer = begun(1);
    peer.script(|command| match command.code {
        request::LOCK_BATCH_MQ => Act::Answer(status(response::REQUEST_CODE_NOT_SUPPORTED, "no locks")),
        _ => Act::Default,
    });
    let _consumer = loses_its_queue(&peer, config(BY_THE_HOUR, PATIENCE)).await;
    given_up(&peer).await;
    assert_eq!(committed_offsets(&peer), ["4"]);
}

#[tokio::test]
async fn closing_leaves_no_lock_behind() {
    let peer = begun(1);
    script_locks(&peer, true);
    let consumer = loses_its_queue(&peer, config(BY_THE_HOUR, PATIENCE)).await;
    consumer.close().await.unwrap();
    assert_eq!(peer.seen(request::UNLOCK_BATCH_MQ).len(), 1);
    assert_eq!(committed_offsets(&peer), ["4"]);
}

#[tokio::test]
async fn a_queue_that_comes_back_is_read_on_from_where_its_user_is() {
    let peer = begun(1);
    script_locks(&peer, true);
    let consumer = loses_its_queue(&peer, config(None, PATIENCE)).await;
    let me = consumer.client().client_id().to_owned();
    rebalance(&peer, &consumer, &[&me], 1).await;
    given_up(&peer).await;
    let reply = loop {
        let (pull, reply) = peer.held(request::LITE_PULL_MESSAGE).await;
        if pull_header(&pull).queue_offset == 5 {
            break reply; // not that of before the loss
        }
    };
    reply.send(pull_answer(response::SUCCESS, 10, 10, records(5..10)));
    assert_eq!(poll_offsets(&consumer, 10).await, [5, 6, 7, 8, 9]);
}

#[tokio::test]
async fn the_end_of_one_handover_does_not_unlock_the_queue_for_the_next() {
    let peer = begun(1);
    peer.script(|command| match command.code {
        request::LOCK_BATCH_MQ => Act::Hold,
        _ => Act::Default,
    });
    let consumer = loses_its_queue(&peer, config(None, PATIENCE)).await;
    let me = consumer.client().client_id().to_owned();
    rebalance(&peer, &consumer, &[&me], 1).await;
    rebalance(&peer, &consumer, &["0.0.0.0@before", &me], 0).await;
    for _handover in 0..2 {
        let (command, reply) = peer.held(request::LOCK_BATCH_MQ).await;
        let Act::Answer(answer) = locks(&command, true) else { unreachable!() };
        reply.send(answer);
    }
    consumer.commit().await.unwrap();
    consumer.close().await.unwrap();
    assert_eq!(peer.seen(request::UNLOCK_BATCH_MQ).len(), 1);
}

#[tokio::test]
async fn a_gained_queue_is_read_when_the_other_member_has_given_it_up() {
    let peer = begun(1);
    peer.set_members("report", &["255.255.255.255@after"]);
    script_locks(&peer, false);
    let _consumer = join(&client(&[&peer]), config(None, PATIENCE)).await.unwrap();
    peer.wait_for(request::LOCK_BATCH_MQ, 3).await;
    assert!(peer.seen(request::QUERY_CONSUMER_OFFSET).is_empty(), "its place is not asked for before");
    assert!(peer.seen(request::UNLOCK_BATCH_MQ).is_empty(), "there is no lock to give back");
    script_locks(&peer, true);
    peer.wait_for(request::LITE_PULL_MESSAGE, 1).await;
    assert_eq!(peer.seen(request::UNLOCK_BATCH_MQ).len(), 1);
}

#[tokio::test]
async fn a_lock_that_is_never_given_back_holds_a_gained_queue_up_for_a_bounded_time() {
    let peer = begun(1);
    peer.set_members("report", &["255.255.255.255@after"]);
    script_locks(&peer, false);
    let _consumer = join(&client(&[&peer]), config(None, Duration::from_millis(1))).await.unwrap();
    peer.wait_for(request::LITE_PULL_MESSAGE, 1).await;
}

#[tokio::test]
async fn a_member_that_waits_for_a_lock_ends_with_its_consumer() {
    let peer = begun(1);
    peer.set_members("report", &["255.255.255.255@after"]);
    script_locks(&peer, false);
    let consumer = join(&client(&[&peer]), config(None, Duration::from_secs(3600))).await.unwrap();
    peer.wait_for(request::LOCK_BATCH_MQ, 1).await;
    tokio::time::timeout(PATIENCE, consumer.close()).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_group_with_one_member_asks_for_no_lock() {
    let peer = begun(1);
    let consumer = join(&client(&[&peer]), config(None, PATIENCE)).await.unwrap();
    peer.wait_for(request::LITE_PULL_MESSAGE, 1).await;
    consumer.close().await.unwrap();
    assert!(peer.seen(request::LOCK_BATCH_MQ).is_empty());
}

#[tokio::test]
async fn a_handover_of_days_is_refused() {
    let peer = begun(1);
    let error = join(&client(&[&peer]), config(None, Duration::from_secs(5000))).await.err().unwrap();
    assert!(matches!(error, ClientError::InvalidConfig { field: "handover_timeout", .. }), "{error:?}");
}
