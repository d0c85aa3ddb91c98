//! What a consumer commits automatically, and when.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rocketpy_client::{
    Admin, Client, ClientConfig, ClientError, ConsumerConfig, Position, PullConsumer, Start,
};
use rocketpy_model::{MessageQueue, QueueOffset};
use rocketpy_protocol::body::{GetConsumerStatusBody, ResetOffsetBody};
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::header::GetConsumerStatusRequestHeader;
use rocketpy_protocol::{Command, json};
use tokio::runtime::Handle;

use crate::consume::{join, poll_offsets, queue, rebalance, records};
use crate::peer::{Act, PATIENCE, Peer, begun, client, ok, pull_answer, single, status, with};

/// No automatic commit happens within a test.
fn by_the_hour() -> ConsumerConfig {
    ConsumerConfig {
        start: Start::Earliest,
        auto_commit: Some(Duration::from_secs(3600)),
        handover_timeout: Duration::ZERO,
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
async fn round_trip(consumer: &PullConsumer, broker_name: &str) {
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

/// Queue id and offset of each commit, sorted.
fn commits(peer: &Peer) -> Vec<(String, String)> {
    let commits = peer.seen(request::UPDATE_CONSUMER_OFFSET);
    let of = |commit: &Command, name: &str| commit.ext.get(name).unwrap().to_owned();
    let mut commits: Vec<_> =
        commits.iter().map(|commit| (of(commit, "queueId"), of(commit, "commitOffset"))).collect();
    commits.sort_unstable();
    commits
}

/// Answers queries of stored offsets by `stored`, which maps a queue to its offset.
fn store(peer: &Peer, stored: impl Fn(u32) -> Option<u64> + Send + 'static) {
    peer.script(move |command| match command.code {
        request::QUERY_CONSUMER_OFFSET => {
            match stored(command.ext.get("queueId").unwrap().parse().unwrap()) {
                Some(offset) => Act::Answer(with(ok(), "offset", &offset.to_string())),
                None => Act::Default,
            }
        }
        request::GET_MAX_OFFSET => Act::Answer(with(ok(), "offset", "1000")),
        _ => Act::Default,
    });
}

#[tokio::test]
async fn a_reconnected_member_repeats_commits_of_its_queues_that_the_broker_has_forgotten() {
    let peer = single(6);
    store(&peer, |_| Some(100));
    let consumer = join(&client(&[&peer]), by_the_hour()).await.unwrap();
    peer.wait_for(request::LITE_PULL_MESSAGE, 6).await;
    // While the broker is away another member takes three queues and commits more than 100 in one of the others.
    peer.set_members("report", &["0.0.0.0@before", consumer.client().client_id()]);
    store(&peer, |queue| [Some(0), Some(0), Some(0), Some(200), Some(40), None][queue as usize]);
    peer.cut();
    peer.wait_for(request::UPDATE_CONSUMER_OFFSET, 2).await;
    round_trip(&consumer, "b").await;
    assert_eq!(consumer.assignment().len(), 3);
    let expected = [("4", "100"), ("5", "100")];
    assert_eq!(commits(&peer), expected.map(|(queue, offset)| (queue.to_owned(), offset.to_owned())));
}

/// A member that has committed 100 in two queues reconnects to a broker with this script, and repeats the commit of queue 1 alone.
async fn assert_only_queue_1_is_repeated(script: impl FnMut(&Command) -> Act + Send + 'static) {
    let peer = single(2);
    store(&peer, |_| Some(100));
    let consumer = join(&client(&[&peer]), by_the_hour()).await.unwrap();
    peer.wait_for(request::LITE_PULL_MESSAGE, 2).await;
    peer.script(script);
    peer.cut();
    peer.wait_for(request::UPDATE_CONSUMER_OFFSET, 1).await;
    round_trip(&consumer, "b").await;
    assert_eq!(commits(&peer), [("1".to_owned(), "100".to_owned())]);
}

#[tokio::test]
async fn a_commit_beyond_the_end_of_its_queue_is_not_repeated() {
    // A power cut took the end of queue 0 back to 60, and the group with it.
    assert_only_queue_1_is_repeated(|command| match (command.code, command.ext.get("queueId")) {
        (request::QUERY_CONSUMER_OFFSET, _) => Act::Answer(with(ok(), "offset", "60")),
        (request::GET_MAX_OFFSET, Some("0")) => Act::Answer(with(ok(), "offset", "60")),
        (request::GET_MAX_OFFSET, _) => Act::Answer(with(ok(), "offset", "1000")),
        _ => Act::Default,
    })
    .await;
}

#[tokio::test]
async fn a_commit_of_an_earlier_topic_is_not_repeated() {
    // The topic of queue 0 was created again: the broker moves a reader at 100 to the first message, but only before this one has asked
    // for the stored offset. That is another by then: another member commits.
    let is_there_still = Arc::new(AtomicBool::new(false));
    let (of_script, mut is_asked) = (is_there_still.clone(), false);
    assert_only_queue_1_is_repeated(move |command| match (command.code, command.ext.get("queueId")) {
        (request::LITE_PULL_MESSAGE, Some("0")) if command.ext.get("queueOffset") == Some("100") => {
            if is_asked {
                of_script.store(true, Ordering::Relaxed);
                return Act::Default;
            }
            let moved = with(status(response::PULL_OFFSET_MOVED, "moved"), "nextBeginOffset", "0");
            let moved = with(with(moved, "minOffset", "0"), "maxOffset", "500");
            Act::Answer(with(moved, "suggestWhichBrokerId", "0"))
        }
        (request::QUERY_CONSUMER_OFFSET, queue) => {
            is_asked |= queue == Some("0");
            Act::Answer(with(ok(), "offset", "60"))
        }
        (request::GET_MAX_OFFSET, _) => Act::Answer(with(ok(), "offset", "1000")),
        _ => Act::Default,
    })
    .await;
    assert!(!is_there_still.load(Ordering::Relaxed), "it goes where it was sent");
}

#[tokio::test]
async fn a_commit_is_not_repeated_where_the_broker_does_not_say_whether_the_topic_is_an_earlier_one() {
    // The topic of queue 0 is gone when the member asks where it is, and there again when it would ask for the stored offset: the broker
    // would take it for a reader of the later topic.
    for code in [response::TOPIC_NOT_EXIST, response::INVALID_PARAMETER, response::NO_PERMISSION] {
        let is_asked = Arc::new(AtomicBool::new(false));
        let (of_script, mut is_repeated) = (is_asked.clone(), false);
        assert_only_queue_1_is_repeated(move |command| {
            is_repeated |= command.code == request::UPDATE_CONSUMER_OFFSET;
            match (command.code, command.ext.get("queueId")) {
                (request::LITE_PULL_MESSAGE, Some("0")) if command.ext.get("queueOffset") == Some("100") => {
                    Act::Answer(status(code, "gone"))
                }
                (request::QUERY_CONSUMER_OFFSET, queue) => {
                    of_script.fetch_or(queue == Some("0") && !is_repeated, Ordering::Relaxed);
                    Act::Answer(with(ok(), "offset", "60"))
                }
                (request::GET_MAX_OFFSET, _) => Act::Answer(with(ok(), "offset", "1000")),
                _ => Act::Default,
            }
        })
        .await;
        assert!(!is_asked.load(Ordering::Relaxed), "{code}");
    }
}

#[tokio::test]
async fn a_lost_queue_is_not_committed_beyond_what_the_broker_fell_back_to() {
    let peer = begun(1);
    let consumer = read_ten(&peer, 4).await;
    consumer.commit().await.unwrap();
    let asked = peer.seen(request::QUERY_CONSUMER_OFFSET).len();
    assert_eq!(poll_offsets(&consumer, 1).await.len(), 1);
    assert_eq!(poll_offsets(&consumer, 1).await.len(), 1);
    store(&peer, |_| Some(2));
    let me = consumer.client().client_id().to_owned();
    rebalance(&peer, &consumer, &["0.0.0.0@before", &me], 0).await;
    peer.wait_for(request::QUERY_CONSUMER_OFFSET, asked + 1).await;
    consumer.close().await.unwrap();
    // A connection that is noticed late repeats the commit of before, as long as the queue is this member's.
    let offsets = committed_offsets(&peer);
    assert!(offsets.iter().all(|offset| offset == "5"), "only the commit of before: {offsets:?}");
}

/// Reads ten messages from 0, of which `done` are done with.
async fn read_ten(peer: &Peer, done: usize) -> PullConsumer {
    let consumer = join(&client(&[peer]), by_the_hour()).await.unwrap();
    let (_, reply) = peer.held(request::LITE_PULL_MESSAGE).await;
    reply.send(pull_answer(response::SUCCESS, 10, 10, records(0..10)));
    assert_eq!(poll_offsets(&consumer, done).await.len(), done);
    assert!(!poll_offsets(&consumer, 1).await.is_empty());
    consumer
}

#[tokio::test]
async fn a_lost_queue_of_an_earlier_topic_is_not_committed() {
    let peer = begun(1);
    let consumer = read_ten(&peer, 4).await;
    let pulls = peer.seen(request::LITE_PULL_MESSAGE).len();
    peer.script(move |command| match command.code {
        request::LITE_PULL_MESSAGE => {
            let moved = with(status(response::PULL_OFFSET_MOVED, "moved"), "nextBeginOffset", "0");
            let moved = with(with(moved, "minOffset", "0"), "maxOffset", "500");
            Act::Answer(with(moved, "suggestWhichBrokerId", "0"))
        }
        request::QUERY_CONSUMER_OFFSET => Act::Answer(with(ok(), "offset", "0")),
        _ => Act::Default,
    });
    let me = consumer.client().client_id().to_owned();
    rebalance(&peer, &consumer, &["0.0.0.0@before", &me], 0).await;
    peer.wait_for(request::LITE_PULL_MESSAGE, pulls + 1).await;
    consumer.close().await.unwrap();
    assert!(committed_offsets(&peer).is_empty(), "{:?}", committed_offsets(&peer));
}

#[tokio::test]
async fn a_member_that_is_sent_back_commits_nothing_of_the_earlier_topic() {
    for stored in ["0", "3"] {
        let peer = begun(1);
        let consumer = read_ten(&peer, 4).await;
        let (_, pull) = peer.held(request::LITE_PULL_MESSAGE).await;
        peer.script(|command| match command.code {
            request::QUERY_CONSUMER_OFFSET => Act::Hold,
            _ => Act::Default,
        });
        let moved = with(status(response::PULL_OFFSET_MOVED, "moved"), "nextBeginOffset", "0");
        let moved = with(with(moved, "minOffset", "0"), "maxOffset", "500");
        pull.send(with(moved, "suggestWhichBrokerId", "0"));
        // From this question on the broker takes the member for one that knows the later topic.
        let (_, answer) = peer.held(request::QUERY_CONSUMER_OFFSET).await;
        let (committed, ()) = tokio::join!(consumer.commit(), async {
            answer.send(with(ok(), "offset", stored));
        });
        committed.unwrap();
        let offsets = committed_offsets(&peer);
        assert!(offsets.iter().all(|offset| offset == "0"), "{offsets:?}");
    }
}

#[tokio::test]
async fn a_loss_noticed_late_does_not_lower_the_next_members_commit() {
    let peer = begun(1);
    let consumer = read_ten(&peer, 4).await;
    let asked = peer.seen(request::QUERY_CONSUMER_OFFSET).len();
    store(&peer, |_| Some(9));
    let me = consumer.client().client_id().to_owned();
    rebalance(&peer, &consumer, &["0.0.0.0@before", &me], 0).await;
    peer.wait_for(request::QUERY_CONSUMER_OFFSET, asked + 1).await;
    consumer.close().await.unwrap();
    assert!(committed_offsets(&peer).is_empty(), "{:?}", committed_offsets(&peer));
}

#[tokio::test]
async fn a_seek_backwards_is_committed_when_its_queue_is_lost() {
    let peer = begun(1);
    let consumer = read_ten(&peer, 4).await;
    consumer.commit().await.unwrap();
    store(&peer, |_| Some(5));
    consumer.seek(&queue(), Position::Offset(QueueOffset(2))).await.unwrap();
    assert!(consumer.poll(1, Duration::ZERO).await.unwrap().is_empty());
    let me = consumer.client().client_id().to_owned();
    rebalance(&peer, &consumer, &["0.0.0.0@before", &me], 0).await;
    peer.wait_for(request::UPDATE_CONSUMER_OFFSET, 2).await;
    assert_eq!(committed_offsets(&peer), ["5", "2"], "nobody has committed since");
}

#[tokio::test]
async fn a_commit_that_waited_while_its_queue_was_lost_is_not_sent() {
    let peer = begun(1);
    let config = ConsumerConfig { auto_commit: None, ..by_the_hour() };
    let consumer = join(&client(&[&peer]), config).await.unwrap();
    let (_, reply) = peer.held(request::LITE_PULL_MESSAGE).await;
    reply.send(pull_answer(response::SUCCESS, 10, 10, records(0..10)));
    assert_eq!(poll_offsets(&consumer, 4).await.len(), 4);
    peer.script(|command| match command.code {
        request::UPDATE_CONSUMER_OFFSET => Act::Hold,
        _ => Act::Default,
    });
    let first = tokio::spawn({
        let consumer = consumer.clone();
        async move { consumer.commit().await }
    });
    let (_, reply) = peer.held(request::UPDATE_CONSUMER_OFFSET).await;
    let offsets = [(queue(), QueueOffset(3))];
    let waiting = consumer.commit_offsets(&offsets);
    tokio::pin!(waiting);
    assert!(tokio::time::timeout(Duration::from_millis(50), &mut waiting).await.is_err());
    let me = consumer.client().client_id().to_owned();
    rebalance(&peer, &consumer, &["0.0.0.0@before", &me], 0).await;
    reply.send(ok());
    first.await.unwrap().unwrap();
    let error = tokio::time::timeout(PATIENCE, waiting).await.unwrap().unwrap_err();
    assert_eq!(error, ClientError::NotAssigned { queue: queue() });
    assert_eq!(committed_offsets(&peer), ["4"]);
}

fn begin_at(start: Start) -> ConsumerConfig {
    ConsumerConfig { start, auto_commit: None, ..by_the_hour() }
}

/// Answers with 30 as the start and `max` as the end of every queue and `found` for every search.
fn ends(peer: &Peer, max: &'static str, found: &'static str, update: fn() -> Act) {
    peer.script(move |command| match command.code {
        request::GET_MIN_OFFSET => Act::Answer(with(ok(), "offset", "30")),
        request::GET_MAX_OFFSET => Act::Answer(with(ok(), "offset", max)),
        request::SEARCH_OFFSET_BY_TIMESTAMP => Act::Answer(with(ok(), "offset", found)),
        request::UPDATE_CONSUMER_OFFSET => update(),
        _ => Act::Default,
    });
}

fn pulled_from(pull: &Command) -> &str {
    pull.ext.get("queueOffset").unwrap()
}

#[tokio::test]
async fn where_a_group_begins_is_stored_before_the_first_pull() {
    for (start, begin) in [(Start::Earliest, "30"), (Start::Latest, "50"), (Start::Timestamp(5), "40")] {
        let peer = single(1);
        ends(&peer, "50", "40", || Act::Hold);
        let client = client(&[&peer]);
        let joining = tokio::spawn({
            let client = client.clone();
            async move { join(&client, begin_at(start)).await.unwrap() }
        });
        let (_, reply) = peer.held(request::UPDATE_CONSUMER_OFFSET).await;
        Admin::new(&client).committed_offset("report", &queue()).await.unwrap(); // what was sent before has arrived
        assert!(peer.seen(request::LITE_PULL_MESSAGE).is_empty(), "{start:?}");
        reply.send(ok());
        let first = joining.await.unwrap();
        let (pull, _reply) = peer.held(request::LITE_PULL_MESSAGE).await;
        assert_eq!((committed_offsets(&peer), pulled_from(&pull)), (vec![begin.to_owned()], begin));
        first.commit().await.unwrap();
        assert_eq!(committed_offsets(&peer).len(), 1, "nothing new to commit");
    }
}

#[tokio::test]
async fn what_arrives_between_two_owners_of_a_queue_is_read_by_the_second() {
    let peer = single(1);
    ends(&peer, "50", "40", || Act::Default);
    let first = join(&client(&[&peer]), begin_at(Start::Latest)).await.unwrap();
    let _its_pull = peer.held(request::LITE_PULL_MESSAGE).await;
    first.close().await.unwrap();
    peer.set_members("report", &[]);
    ends(&peer, "70", "60", || Act::Default);
    let _second = join(&client(&[&peer]), begin_at(Start::Latest)).await.unwrap();
    let (pull, _reply) = peer.held(request::LITE_PULL_MESSAGE).await;
    assert_eq!(pulled_from(&pull), "50");
}

#[tokio::test]
async fn a_queue_starts_at_the_offset_that_another_member_stored_first() {
    let peer = single(1);
    peer.script(|command| match command.code {
        request::GET_MAX_OFFSET => Act::Hold,
        _ => Act::Default,
    });
    let client = client(&[&peer]);
    let joining = join(&client, begin_at(Start::Latest));
    let end_is_asked_for = async {
        let (_, reply) = peer.held(request::GET_MAX_OFFSET).await;
        store(&peer, |_| Some(30));
        reply.send(with(ok(), "offset", "50"));
    };
    let (_consumer, ()) = tokio::join!(joining, end_is_asked_for);
    let (pull, _reply) = peer.held(request::LITE_PULL_MESSAGE).await;
    assert_eq!(pulled_from(&pull), "30");
    assert!(committed_offsets(&peer).is_empty());
}

#[tokio::test]
async fn a_new_group_that_begins_at_the_end_has_its_starts_when_it_has_joined() {
    let peer = single(4);
    ends(&peer, "50", "40", || Act::Default);
    let consumer = join(&client(&[&peer]), begin_at(Start::Latest)).await.unwrap();
    let offsets: Vec<u64> = consumer.positions().iter().map(|(_, offset)| offset.get()).collect();
    assert_eq!(offsets, [50; 4], "messages sent from now on are read");
}

#[tokio::test]
async fn a_member_beside_others_that_begin_at_the_end_has_the_starts_of_its_queues_when_it_has_joined() {
    let peer = single(4);
    ends(&peer, "50", "40", || Act::Default);
    let client = client(&[&peer]);
    peer.set_members("report", &[client.client_id(), "other@1"]);
    let consumer = join(&client, begin_at(Start::Latest)).await.unwrap();
    let offsets: Vec<u64> = consumer.positions().iter().map(|(_, offset)| offset.get()).collect();
    assert_eq!(offsets, [50; 2], "messages sent from now on are read");
}

/// A member that begins at the end and notices changes of routes at once.
async fn quick_member(peer: &Peer) -> PullConsumer {
    let config = ClientConfig {
        route_refresh_interval: Duration::from_millis(10),
        ..ClientConfig::new([peer.address.clone()])
    };
    let client = Client::new(config, Handle::current()).unwrap();
    let quick = ConsumerConfig {
        rebalance_interval: Duration::from_millis(10),
        allow_missing_topic: true,
        ..begin_at(Start::Latest)
    };
    join(&client, quick).await.unwrap()
}

#[tokio::test]
async fn a_queue_that_was_not_in_the_route_when_the_member_joined_starts_at_its_first_message() {
    let peer = single(1);
    ends(&peer, "50", "40", || Act::Default);
    let _consumer = quick_member(&peer).await;
    let (pull, _first) = peer.held(request::LITE_PULL_MESSAGE).await;
    assert_eq!(pulled_from(&pull), "50");
    peer.route("t", &[("b", &peer, 2)]);
    let (pull, _second) = peer.held(request::LITE_PULL_MESSAGE).await;
    assert_eq!((pull.ext.get("queueId"), pulled_from(&pull)), (Some("1"), "30"), "the topic has grown");
    // The peer keeps one offset for the queues of one number.
    peer.route("t", &[("b", &peer, 2), ("c", &peer, 3)]);
    let mut held = Vec::new();
    loop {
        let (pull, reply) = peer.held(request::LITE_PULL_MESSAGE).await;
        held.push(reply);
        if pull.ext.get("queueId") == Some("2") {
            assert_eq!(pulled_from(&pull), "30", "a broker has joined");
            return;
        }
    }
}

#[tokio::test]
async fn a_topic_without_a_route_when_the_member_joined_starts_at_its_first_message() {
    let peer = Peer::start();
    ends(&peer, "50", "40", || Act::Default);
    let _consumer = quick_member(&peer).await;
    peer.route("t", &[("b", &peer, 1)]);
    let (pull, _reply) = peer.held(request::LITE_PULL_MESSAGE).await;
    assert_eq!(pulled_from(&pull), "30", "its first send created it");
}

#[tokio::test]
async fn joining_waits_no_longer_than_a_call_for_a_start_that_does_not_come() {
    let peer = single(1);
    peer.script(|command| match command.code {
        request::GET_MAX_OFFSET => Act::Hold,
        _ => Act::Default,
    });
    let config =
        ClientConfig { api_timeout: Duration::from_millis(100), ..ClientConfig::new([peer.address.clone()]) };
    let client = Client::new(config, Handle::current()).unwrap();
    let consumer =
        tokio::time::timeout(PATIENCE, join(&client, begin_at(Start::Latest))).await.unwrap().unwrap();
    assert!(consumer.positions().is_empty());
}
