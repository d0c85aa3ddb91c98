//! The pull consumer against a scripted broker: what it sends, and how it takes unusual answers.

use std::net::SocketAddr;
use std::time::Duration;

use rocketpy_client::{Client, ClientError, ConsumerConfig, Position, PullConsumer, Start, Subscription};
use rocketpy_model::{MessageQueue, PhysicalOffset, QueueOffset};
use rocketpy_protocol::body::{ConsumeType, HeartbeatData};
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::header::PullMessageRequestHeader;
use rocketpy_protocol::record::RecordFields;
use rocketpy_protocol::{Command, Header, json, properties_text};

use crate::peer::{Act, PATIENCE, Peer, begun, client, ok, pull_answer, single, status, with};

/// A stored message of topic `t`.
pub(crate) fn record(offset: u64, body: &str, tag: &str) -> Vec<u8> {
    stored(offset, body.as_bytes(), tag, 0)
}

pub(crate) fn stored(offset: u64, body: &[u8], tag: &str, sys_flag: i32) -> Vec<u8> {
    encoded("t", offset, body, tag, sys_flag, false)
}

/// The same with a checksum of the whole record.
pub(crate) fn stored_with_check(offset: u64, body: &[u8], tag: &str, sys_flag: i32) -> Vec<u8> {
    encoded("t", offset, body, tag, sys_flag, true)
}

/// A record of another topic.
pub(crate) fn stored_in(topic: &str, offset: u64) -> Vec<u8> {
    encoded(topic, offset, b"0", "a", 0, false)
}

fn encoded(topic: &str, offset: u64, body: &[u8], tag: &str, sys_flag: i32, has_check: bool) -> Vec<u8> {
    let host: SocketAddr = "127.0.0.1:10911".parse().unwrap();
    let mut properties = Vec::new();
    properties_text::push(&mut properties, "TAGS", tag);
    let fields = RecordFields {
        topic,
        queue_id: 0,
        flag: 0,
        sys_flag,
        born_at_ms: 1,
        born_host: host,
        store_host: host,
        reconsume_times: 0,
        prepared_transaction_offset: PhysicalOffset(0),
        body,
        properties: &properties,
        may_have_crc: true,
    };
    let mut bytes = Vec::new();
    let plan = fields.encode(has_check, &mut bytes).unwrap();
    plan.finish(&mut bytes, QueueOffset(offset), PhysicalOffset(offset * 1000), 2);
    bytes
}

pub(crate) fn records(offsets: std::ops::Range<u64>) -> Vec<u8> {
    offsets.flat_map(|offset| record(offset, &offset.to_string(), "a")).collect()
}

pub(crate) async fn join(client: &Client, config: ConsumerConfig) -> Result<PullConsumer, ClientError> {
    PullConsumer::new(client, "report", vec![Subscription::new("t", "*")], config).await
}

pub(crate) async fn consumer(peer: &Peer) -> PullConsumer {
    join(&client(&[peer]), ConsumerConfig { start: Start::Earliest, ..ConsumerConfig::default() })
        .await
        .unwrap()
}

pub(crate) fn pull_header(pull: &Command) -> PullMessageRequestHeader<'_> {
    PullMessageRequestHeader::read(&pull.ext).unwrap()
}

pub(crate) fn queue() -> MessageQueue {
    MessageQueue::new("t", "b", 0)
}

pub(crate) async fn poll_offsets(consumer: &PullConsumer, max: usize) -> Vec<u64> {
    let batch = consumer.poll(max, PATIENCE).await.unwrap();
    batch.iter().map(|message| message.queue_offset().get()).collect()
}

#[tokio::test]
async fn a_consumer_tells_brokers_of_its_group_before_it_pulls() {
    let peer = single(1);
    let subscriptions = vec![Subscription::new("t", "UA || AA")];
    let config = ConsumerConfig { start: Start::Earliest, ..ConsumerConfig::default() };
    let consumer = PullConsumer::new(&client(&[&peer]), "report", subscriptions, config).await.unwrap();
    let (pull, _reply) = peer.held(request::LITE_PULL_MESSAGE).await;
    let data: HeartbeatData = json::from_slice(&peer.seen(request::HEART_BEAT)[0].body).unwrap();
    assert_eq!(data.client_id, consumer.client().client_id());
    let group = &data.consumer_data_set[0];
    assert_eq!((group.group_name.as_str(), group.consume_type), ("report", ConsumeType::ConsumeActively));
    let topics: Vec<&str> = group.subscription_data_set.iter().map(|one| one.topic.as_str()).collect();
    assert_eq!(topics, ["t"], "as Apache's pull consumers: without the retry topic");
    assert_eq!(group.subscription_data_set[0].sub_string, "UA || AA");
    let header = pull_header(&pull);
    assert_eq!((header.consumer_group, header.topic, header.queue_id), ("report", "t", 0));
    assert_eq!((header.sys_flag, header.commit_offset), (2 | 4 | 16, 0), "suspend, subscription, lite");
    assert_eq!((header.subscription, header.expression_type), (Some("UA || AA"), Some("TAG")));
    assert_eq!((header.queue_offset, header.suspend_timeout_millis), (0, 15_000));
}

#[tokio::test]
async fn messages_are_handed_out_in_order_and_committed_up_to_there() {
    let peer = begun(1);
    let consumer = consumer(&peer).await;
    let (_, reply) = peer.held(request::LITE_PULL_MESSAGE).await;
    reply.send(pull_answer(response::SUCCESS, 12, 20, records(0..10)));
    assert_eq!(poll_offsets(&consumer, 4).await, [0, 1, 2, 3]);
    consumer.commit().await.unwrap();
    let commits = peer.seen(request::UPDATE_CONSUMER_OFFSET);
    assert_eq!(commits.len(), 1);
    assert_eq!(commits[0].ext.get("commitOffset"), Some("4"), "not what was only pulled");
    assert!(!commits[0].is_oneway());
    consumer.commit().await.unwrap();
    assert_eq!(peer.seen(request::UPDATE_CONSUMER_OFFSET).len(), 1, "nothing new to commit");
    assert_eq!(poll_offsets(&consumer, 100).await, [4, 5, 6, 7, 8, 9]);
    assert_eq!(consumer.positions(), [(queue(), QueueOffset(12))], "behind what the broker filtered out");
    let (pull, _reply) = peer.held(request::LITE_PULL_MESSAGE).await;
    assert_eq!(pull_header(&pull).queue_offset, 12);
    consumer.commit_offsets(&[(queue(), QueueOffset(7))]).await.unwrap();
    let error = consumer.commit_offsets(&[(queue(), QueueOffset(13))]).await.unwrap_err();
    assert!(matches!(error, ClientError::OffsetOutOfRange { .. }), "ahead of what was handed out: {error:?}");
    let error =
        consumer.commit_offsets(&[(MessageQueue::new("t", "b", 9), QueueOffset(0))]).await.unwrap_err();
    assert!(matches!(error, ClientError::NotAssigned { .. }));
}

#[tokio::test]
async fn closing_commits_nothing_and_leaves_the_group() {
    let peer = begun(1);
    let consumer = consumer(&peer).await;
    let (_, reply) = peer.held(request::LITE_PULL_MESSAGE).await;
    reply.send(pull_answer(response::SUCCESS, 3, 3, records(0..3)));
    assert_eq!(poll_offsets(&consumer, 10).await.len(), 3);
    consumer.close().await.unwrap();
    consumer.close().await.unwrap();
    assert!(peer.seen(request::UPDATE_CONSUMER_OFFSET).is_empty());
    assert_eq!(peer.seen(request::UNREGISTER_CLIENT)[0].ext.get("consumerGroup"), Some("report"));
    let error = consumer.poll(1, Duration::ZERO).await.unwrap_err();
    assert_eq!(error, ClientError::Closed { what: "consumer" });
}

#[tokio::test]
async fn dropping_the_last_handle_leaves_the_group_too() {
    let peer = single(1);
    drop(consumer(&peer).await);
    let left = peer.wait_for(request::UNREGISTER_CLIENT, 1).await;
    assert_eq!(left[0].ext.get("consumerGroup"), Some("report"));
}

#[tokio::test]
async fn tags_are_compared_again_by_text() {
    let peer = single(1);
    let config = ConsumerConfig { start: Start::Earliest, ..ConsumerConfig::default() };
    let subscriptions = vec![Subscription::new("t", "Aa")];
    let consumer = PullConsumer::new(&client(&[&peer]), "report", subscriptions, config).await.unwrap();
    let (_, reply) = peer.held(request::LITE_PULL_MESSAGE).await;
    // The hashes of Aa and BB are equal: the broker lets both through.
    let body = [record(0, "x", "BB"), record(1, "y", "Aa"), record(2, "z", "BB")].concat();
    reply.send(pull_answer(response::SUCCESS, 3, 3, body));
    assert_eq!(poll_offsets(&consumer, 10).await, [1]);
    assert_eq!(consumer.positions(), [(queue(), QueueOffset(3))]);
    let (_, reply) = peer.held(request::LITE_PULL_MESSAGE).await;
    reply.send(pull_answer(response::SUCCESS, 5, 5, [record(3, "x", "BB"), record(4, "y", "BB")].concat()));
    peer.wait_for(request::LITE_PULL_MESSAGE, 3).await;
    assert_eq!(
        consumer.positions(),
        [(queue(), QueueOffset(5))],
        "a batch filtered to nothing holds nothing back"
    );
}

#[tokio::test]
async fn a_moved_offset_is_reported_and_read_on_from_there() {
    let peer = single(1);
    let consumer = consumer(&peer).await;
    let (_, reply) = peer.held(request::LITE_PULL_MESSAGE).await;
    reply.send(pull_answer(response::PULL_OFFSET_MOVED, 500, 600, Vec::new()));
    let (pull, reply) = peer.held(request::LITE_PULL_MESSAGE).await;
    assert_eq!(pull_header(&pull).queue_offset, 500);
    reply.send(pull_answer(response::SUCCESS, 501, 600, records(500..501)));
    assert_eq!(poll_offsets(&consumer, 10).await, [500]);
    let moves = consumer.take_offset_moves();
    assert_eq!(moves.len(), 1);
    assert_eq!((&moves[0].queue, moves[0].from, moves[0].to), (&queue(), QueueOffset(0), QueueOffset(500)));
    assert!(consumer.take_offset_moves().is_empty());
}

#[tokio::test]
async fn a_stored_offset_wins_over_the_start_and_stored_alone_needs_one() {
    let peer = single(1);
    peer.script(|command| match command.code {
        request::QUERY_CONSUMER_OFFSET => {
            assert_eq!(command.ext.get("setZeroIfNotFound"), Some("false"));
            Act::Answer(with(ok(), "offset", "77"))
        }
        _ => Act::Default,
    });
    let _consumer = consumer(&peer).await;
    let pulls = peer.wait_for(request::LITE_PULL_MESSAGE, 1).await;
    assert_eq!(pull_header(&pulls[0]).queue_offset, 77);

    let peer = single(1);
    let stored = ConsumerConfig { start: Start::Stored, ..ConsumerConfig::default() };
    let consumer = join(&client(&[&peer]), stored).await.unwrap();
    let error = consumer.poll(1, PATIENCE).await.unwrap_err();
    assert_eq!(error, ClientError::NoStoredOffset { group: "report".into(), queue: queue() });
}

#[tokio::test]
async fn a_refused_pull_is_an_error_and_pulling_continues() {
    let peer = single(1);
    let mut refusals = [response::SUBSCRIPTION_GROUP_NOT_EXIST, response::SYSTEM_BUSY].into_iter();
    peer.script(move |command| match command.code {
        request::LITE_PULL_MESSAGE => {
            refusals.next().map_or(Act::Default, |code| Act::Answer(status(code, "not now")))
        }
        _ => Act::Default,
    });
    let consumer = consumer(&peer).await;
    let error = consumer.poll(1, PATIENCE).await.unwrap_err();
    assert!(matches!(error, ClientError::Refused { code: 26, .. }), "{error:?}");
    let (_, reply) = peer.held(request::LITE_PULL_MESSAGE).await;
    reply.send(pull_answer(response::SUCCESS, 1, 1, records(0..1)));
    assert_eq!(poll_offsets(&consumer, 1).await, [0], "a busy broker is waited for without an error");
}

#[tokio::test]
async fn a_broker_without_lite_pull_is_asked_once_and_gets_plain_pulls() {
    let peer = single(1);
    peer.script(|command| match command.code {
        request::LITE_PULL_MESSAGE => {
            Act::Answer(status(response::REQUEST_CODE_NOT_SUPPORTED, " request type 361 not supported"))
        }
        request::PULL_MESSAGE => Act::Hold,
        _ => Act::Default,
    });
    let consumer = consumer(&peer).await;
    for offset in 0..3 {
        let (pull, reply) = peer.held(request::PULL_MESSAGE).await;
        assert_eq!(pull.ext.get("queueOffset"), Some(offset.to_string().as_str()));
        assert_eq!(pull.ext.get("subscription"), Some("*"), "the broker needs to know nothing else");
        reply.send(pull_answer(
            response::SUCCESS,
            offset + 1,
            offset + 1,
            records(offset as u64..offset as u64 + 1),
        ));
        assert_eq!(poll_offsets(&consumer, 1).await, [offset as u64]);
    }
    assert_eq!(peer.seen(request::LITE_PULL_MESSAGE).len(), 1);
}

#[tokio::test]
async fn a_seek_gives_up_the_pull_under_way_and_what_was_pulled_ahead() {
    let peer = single(1);
    peer.script(|command| match command.code {
        request::GET_MAX_OFFSET => Act::Answer(with(ok(), "offset", "100")),
        request::SEARCH_OFFSET_BY_TIMESTAMP => Act::Answer(with(ok(), "offset", "60")),
        _ => Act::Default,
    });
    let consumer = consumer(&peer).await;
    let (_, reply) = peer.held(request::LITE_PULL_MESSAGE).await;
    reply.send(pull_answer(response::SUCCESS, 10, 100, records(0..10)));
    assert_eq!(poll_offsets(&consumer, 2).await, [0, 1]);
    let (_, late) = peer.held(request::LITE_PULL_MESSAGE).await;
    assert_eq!(consumer.seek(&queue(), Position::Offset(QueueOffset(50))).await.unwrap(), QueueOffset(50));
    late.send(pull_answer(response::SUCCESS, 20, 100, records(10..20)));
    let (pull, reply) = peer.held(request::LITE_PULL_MESSAGE).await;
    assert_eq!(pull_header(&pull).queue_offset, 50);
    reply.send(pull_answer(response::SUCCESS, 52, 100, records(50..52)));
    assert_eq!(poll_offsets(&consumer, 10).await, [50, 51]);
    assert_eq!(consumer.seek(&queue(), Position::End).await.unwrap(), QueueOffset(100));
    assert_eq!(consumer.seek(&queue(), Position::Begin).await.unwrap(), QueueOffset(0));
    assert_eq!(consumer.seek(&queue(), Position::Timestamp(5)).await.unwrap(), QueueOffset(60));
    let beyond = consumer.seek(&queue(), Position::Offset(QueueOffset(101))).await.unwrap_err();
    assert!(matches!(beyond, ClientError::OffsetOutOfRange { .. }), "{beyond:?}");
    let stranger = consumer.seek(&MessageQueue::new("t", "b", 7), Position::Begin).await.unwrap_err();
    assert!(matches!(stranger, ClientError::NotAssigned { .. }));
}

#[tokio::test]
async fn a_paused_queue_hands_nothing_out_until_it_is_resumed() {
    let peer = single(1);
    let consumer = consumer(&peer).await;
    let (_, reply) = peer.held(request::LITE_PULL_MESSAGE).await;
    consumer.pause(&[queue()]).unwrap();
    reply.send(pull_answer(response::SUCCESS, 3, 3, records(0..3)));
    assert!(consumer.poll(10, Duration::from_millis(100)).await.unwrap().is_empty());
    assert_eq!(peer.seen(request::LITE_PULL_MESSAGE).len(), 1, "nothing more is pulled");
    consumer.resume(&[queue()]).unwrap();
    assert_eq!(poll_offsets(&consumer, 10).await, [0, 1, 2]);
    assert!(matches!(
        consumer.pause(&[MessageQueue::new("t", "b", 7)]),
        Err(ClientError::NotAssigned { .. })
    ));
}

#[tokio::test]
async fn a_group_that_the_broker_neither_has_nor_makes_is_an_error_of_the_poll() {
    let peer = single(1);
    peer.script(|command| match command.code {
        request::HEART_BEAT => Act::Answer(ok()),
        request::LITE_PULL_MESSAGE => {
            Act::Answer(status(response::SUBSCRIPTION_GROUP_NOT_EXIST, "no such group"))
        }
        _ => Act::Default,
    });
    let consumer = consumer(&peer).await;
    let error = consumer.poll(10, PATIENCE).await.unwrap_err();
    assert_eq!(error.code(), Some(response::SUBSCRIPTION_GROUP_NOT_EXIST), "{error:?}");
    assert!(error.hint().unwrap().contains("rocketpy group create"));
}

/// Sets the group's members and waits until the consumer has this many queues.
pub(crate) async fn rebalance(peer: &Peer, consumer: &PullConsumer, members: &[&str], queues: usize) {
    peer.set_members("report", members);
    peer.push(&with(Command::bare_request(request::NOTIFY_CONSUMER_IDS_CHANGED), "consumerGroup", "report"));
    let share = async {
        while consumer.assignment().len() != queues {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, share).await.unwrap();
}

#[tokio::test]
async fn members_share_the_queues_when_the_broker_tells_of_a_change() {
    let peer = single(4);
    let consumer = consumer(&peer).await;
    peer.wait_for(request::LITE_PULL_MESSAGE, 4).await;
    assert_eq!(consumer.assignment().len(), 4);
    let me = consumer.client().client_id().to_owned();
    rebalance(&peer, &consumer, &[&me, "0.0.0.0@before"], 2).await;
    let queues: Vec<u32> = consumer.assignment().iter().map(|queue| queue.queue_id).collect();
    assert_eq!(queues, [2, 3], "the other member sorts before this one");
}

#[tokio::test]
async fn the_retry_topic_is_part_of_the_group_when_asked_for() {
    let peer = single(1);
    peer.route("%RETRY%report", &[("b", &peer, 1)]);
    let config = ConsumerConfig { start: Start::Earliest, retry_topic: true, ..ConsumerConfig::default() };
    let consumer = join(&client(&[&peer]), config).await.unwrap();
    peer.wait_for(request::LITE_PULL_MESSAGE, 2).await;
    let data: HeartbeatData = json::from_slice(&peer.seen(request::HEART_BEAT)[0].body).unwrap();
    let retry = &data.consumer_data_set[0].subscription_data_set[1];
    assert_eq!((retry.topic.as_str(), retry.sub_string.as_str()), ("%RETRY%report", "*"));
    assert_eq!(consumer.assignment().len(), 2);
}

#[tokio::test]
async fn a_topic_that_does_not_exist_is_an_error_unless_it_may_come_later() {
    let peer = single(1);
    let subscriptions = vec![Subscription::new("missing", "*")];
    let refused =
        PullConsumer::new(&client(&[&peer]), "g", subscriptions.clone(), ConsumerConfig::default()).await;
    assert!(matches!(refused, Err(ClientError::NoRoute { topic }) if topic == "missing"));
    let config =
        ConsumerConfig { allow_missing_topic: true, start: Start::Earliest, ..ConsumerConfig::default() };
    let consumer = PullConsumer::new(&client(&[&peer]), "g", subscriptions, config).await.unwrap();
    assert!(consumer.assignment().is_empty());
    peer.route("missing", &[("b", &peer, 1)]);
    let pulls = peer.wait_for(request::LITE_PULL_MESSAGE, 1).await;
    assert_eq!(pull_header(&pulls[0]).topic, "missing");
}

#[tokio::test]
async fn one_client_holds_a_group_once() {
    let peer = single(1);
    let client = client(&[&peer]);
    let first = join(&client, ConsumerConfig::default()).await.unwrap();
    let second = join(&client, ConsumerConfig::default()).await;
    assert!(matches!(second, Err(ClientError::GroupInUse { role: "consumer", .. })));
    first.close().await.unwrap();
    join(&client, ConsumerConfig::default()).await.unwrap();
}

#[tokio::test]
async fn members_of_a_group_in_one_process_read_the_same() {
    let peer = single(1);
    let join = async |tags: &str, allow_other_subscriptions| {
        let config = ConsumerConfig { allow_other_subscriptions, ..ConsumerConfig::default() };
        let subscriptions = vec![Subscription::new("t", tags)];
        PullConsumer::new(&client(&[&peer]), "report", subscriptions, config).await
    };
    let first = join("UA || AA", false).await.unwrap();
    let _same = join("AA||UA", false).await.unwrap();
    let with_retries = ConsumerConfig { retry_topic: true, ..ConsumerConfig::default() };
    let wanted = vec![Subscription::new("t", "UA || AA")];
    let _retries = PullConsumer::new(&client(&[&peer]), "report", wanted, with_retries).await.unwrap();
    let error = join("*", false).await.err().unwrap();
    let expected = ClientError::OtherSubscriptions {
        group: "report".to_owned(),
        client_id: first.client().client_id().to_owned(),
        subscriptions: "t: UA || AA".to_owned(),
    };
    assert_eq!(error, expected);
    let _other = join("*", true).await.unwrap();
    let elsewhere = single(1);
    PullConsumer::new(
        &client(&[&elsewhere]),
        "report",
        vec![Subscription::new("t", "other")],
        ConsumerConfig::default(),
    )
    .await
    .unwrap();
    drop(first);
}

#[tokio::test]
async fn a_group_may_read_something_else_when_its_members_have_closed() {
    let peer = single(1);
    let join = async |tags: &str| {
        let subscriptions = vec![Subscription::new("t", tags)];
        PullConsumer::new(&client(&[&peer]), "report", subscriptions, ConsumerConfig::default()).await
    };
    join("UA").await.unwrap().close().await.unwrap();
    drop(join("AA").await.unwrap());
    join("*").await.unwrap();
}

#[tokio::test]
async fn the_lag_is_what_was_not_handed_out() {
    let peer = begun(1);
    peer.script(|command| match command.code {
        request::GET_MAX_OFFSET => Act::Answer(with(ok(), "offset", "100")),
        _ => Act::Default,
    });
    let consumer = consumer(&peer).await;
    let (_, reply) = peer.held(request::LITE_PULL_MESSAGE).await;
    reply.send(pull_answer(response::SUCCESS, 10, 10, records(0..10)));
    assert_eq!(poll_offsets(&consumer, 4).await.len(), 4);
    assert_eq!(consumer.lag().await.unwrap(), [(queue(), 96)]);
}

#[tokio::test]
async fn closing_the_client_ends_its_consumers() {
    let peer = single(1);
    let consumer = consumer(&peer).await;
    peer.wait_for(request::LITE_PULL_MESSAGE, 1).await;
    let polling = tokio::spawn({
        let consumer = consumer.clone();
        async move { consumer.poll(1, PATIENCE).await }
    });
    tokio::task::yield_now().await;
    consumer.client().close().await;
    assert!(matches!(polling.await.unwrap(), Err(ClientError::Closed { .. })));
    assert_eq!(peer.seen(request::UNREGISTER_CLIENT).len(), 1);
}
