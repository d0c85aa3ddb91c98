//! Where a group begins in a queue.

use std::time::Duration;

use rocketpy_client::{Admin, Client, ClientConfig, ConsumerConfig, PullConsumer, Start};
use rocketpy_protocol::Command;
use rocketpy_protocol::code::request;
use tokio::runtime::Handle;

use crate::commits::{by_the_hour, committed_offsets};
use crate::consume::{join, queue};
use crate::late_commits::store;
use crate::peer::{Act, PATIENCE, Peer, client, ok, single, with};

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
