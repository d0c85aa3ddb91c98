//! Commits that a member repeats after a restart of the broker, and those of queues that it has lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rocketpy_client::{ClientError, ConsumerConfig, Position};
use rocketpy_model::QueueOffset;
use rocketpy_protocol::Command;
use rocketpy_protocol::code::{request, response};

use crate::commits::{by_the_hour, committed_offsets, read_ten, round_trip};
use crate::consume::{join, poll_offsets, queue, rebalance, records};
use crate::peer::{Act, PATIENCE, Peer, begun, client, ok, pull_answer, single, status, with};

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
pub(crate) fn store(peer: &Peer, stored: impl Fn(u32) -> Option<u64> + Send + 'static) {
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

#[tokio::test]
async fn a_reconnected_member_goes_to_another_store_before_its_queues_are_longer() {
    let peer = single(1);
    store(&peer, |_| Some(100));
    let _consumer = join(&client(&[&peer]), by_the_hour()).await.unwrap();
    let pulls = peer.wait_for(request::LITE_PULL_MESSAGE, 1).await.len();
    // The queue ends at 3 while the member asks, and after 100 when it pulls again.
    peer.script(|command| match (command.code, command.ext.get("queueOffset")) {
        (request::LITE_PULL_MESSAGE, Some("100")) if command.ext.get("maxMsgNums") == Some("1") => {
            let moved = with(status(response::PULL_OFFSET_MOVED, "moved"), "nextBeginOffset", "0");
            let moved = with(with(moved, "minOffset", "0"), "maxOffset", "3");
            Act::Answer(with(moved, "suggestWhichBrokerId", "0"))
        }
        (request::LITE_PULL_MESSAGE, _) => Act::Hold,
        _ => Act::Default,
    });
    peer.cut();
    let mut seen = pulls;
    while !peer.seen(request::LITE_PULL_MESSAGE).iter().any(|pull| pull.ext.get("queueOffset") == Some("0")) {
        seen += 1;
        peer.wait_for(request::LITE_PULL_MESSAGE, seen).await;
    }
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
        // From this question on the broker takes the member for one that knows the later topic: the member has moved before. Questions
        // before it are those of a member that has just connected.
        let (_, mut answer) = peer.held(request::QUERY_CONSUMER_OFFSET).await;
        while consumer.positions() != [(queue(), QueueOffset(0))] {
            answer.send(with(ok(), "offset", stored));
            (_, answer) = peer.held(request::QUERY_CONSUMER_OFFSET).await;
        }
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
