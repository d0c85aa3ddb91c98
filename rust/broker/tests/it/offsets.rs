use rocketpy_env::{Disk, RealDisk, now_ms};
use rocketpy_protocol::Command;
use rocketpy_protocol::body::{ConsumeType, MessageModel};
use rocketpy_protocol::code::request;
use rocketpy_protocol::header::{
    GetEarliestMsgStoretimeRequestHeader, GetMinOffsetRequestHeader, Header,
    QueryConsumerOffsetRequestHeader, QueryConsumerOffsetResponseHeader, SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader, ViewMessageRequestHeader,
};
use rocketpy_protocol::record::RecordView;

use crate::support::{Fixture, Pull, TIMEOUT, heartbeat, wait_until};

pub(crate) async fn query(
    fixture: &Fixture,
    group: &str,
    topic: &str,
    queue_id: i32,
    zero: Option<bool>,
) -> Command {
    let header = QueryConsumerOffsetRequestHeader {
        consumer_group: group,
        topic,
        queue_id,
        set_zero_if_not_found: zero,
        broker_name: None,
    };
    fixture.call(Command::request(request::QUERY_CONSUMER_OFFSET, &header)).await
}

/// The offset that a group has committed.
pub(crate) async fn stored(fixture: &Fixture, group: &str, topic: &str, queue_id: i32) -> Option<i64> {
    let answer = query(fixture, group, topic, queue_id, Some(false)).await;
    match answer.code {
        0 => Some(QueryConsumerOffsetResponseHeader::read(&answer.ext).unwrap().offset),
        22 => None,
        code => panic!("{code}: {:?}", answer.remark),
    }
}

pub(crate) async fn commit(
    fixture: &Fixture,
    group: &str,
    topic: &str,
    queue_id: i32,
    offset: i64,
) -> Command {
    let header = UpdateConsumerOffsetRequestHeader {
        consumer_group: group,
        topic,
        queue_id,
        commit_offset: offset,
        broker_name: None,
    };
    fixture.call(Command::request(request::UPDATE_CONSUMER_OFFSET, &header)).await
}

async fn search(fixture: &Fixture, timestamp: i64, boundary_type: Option<&str>) -> i64 {
    let header = SearchOffsetRequestHeader {
        topic: "orders",
        queue_id: 0,
        timestamp,
        boundary_type,
        broker_name: None,
    };
    let answer = fixture.call(Command::request(request::SEARCH_OFFSET_BY_TIMESTAMP, &header)).await;
    assert_eq!(answer.code, 0, "{:?}", answer.remark);
    answer.ext.get("offset").unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn offsets_are_committed_and_queried_and_may_go_back() {
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 2).await;
    fill(&fixture, 5).await;
    assert_eq!(stored(&fixture, "TOOLS_CONSUMER", "orders", 0).await, None);
    for offset in [5, 3] {
        assert_eq!(commit(&fixture, "TOOLS_CONSUMER", "orders", 0, offset).await.code, 0);
        assert_eq!(stored(&fixture, "TOOLS_CONSUMER", "orders", 0).await, Some(offset));
    }
    assert_eq!(stored(&fixture, "TOOLS_CONSUMER", "orders", 1).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_commits_are_refused_and_named() {
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 2).await;
    for (group, topic, queue_id, offset, code, named) in [
        ("unknown", "orders", 0, 1, 26, "unknown"),
        ("TOOLS_CONSUMER", "missing", 0, 1, 17, "missing"),
        ("TOOLS_CONSUMER", "orders", 2, 1, 29, "queues 0 to 1"),
        ("TOOLS_CONSUMER", "orders", -1, 1, 29, "queueId"),
        ("TOOLS_CONSUMER", "orders", 0, -1, 29, "commitOffset"),
        ("TOOLS_CONSUMER", "orders", 0, 1, 29, "exceeds the end of the queue, 0"),
    ] {
        let answer = commit(&fixture, group, topic, queue_id, offset).await;
        let remark = answer.remark.unwrap_or_default();
        assert_eq!(answer.code, code, "{remark}");
        assert!(remark.contains(named), "{remark}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_group_on_a_young_queue_starts_at_zero_unless_told_otherwise() {
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 2).await;
    fixture.put("orders", 0, "x").await;
    fixture.wait_for_end("orders", 0, 1).await;
    let young = query(&fixture, "group", "orders", 0, None).await;
    assert_eq!((young.code, young.ext.get("offset")), (0, Some("0")));
    assert_eq!(query(&fixture, "group", "orders", 0, Some(false)).await.code, 22);
    let empty = query(&fixture, "group", "orders", 1, None).await;
    assert_eq!((empty.code, empty.ext.get("offset")), (0, Some("0")), "so does one on an empty queue");
    assert_eq!(query(&fixture, "group", "orders", 1, Some(false)).await.code, 22);
    assert_eq!(query(&fixture, "group", "orders", 2, None).await.code, 22, "there is no such queue");
    assert_eq!(query(&fixture, "group", "missing", 0, None).await.code, 22);
}

/// Stores messages in queue 0 of topic `orders`.
async fn fill(fixture: &Fixture, count: i64) {
    for _ in 0..count {
        fixture.put("orders", 0, "x").await;
    }
    fixture.wait_for_end("orders", 0, count).await;
}

fn written(fixture: &Fixture) -> String {
    let file = fixture.config.store.root.join("config/consumerOffset.json");
    let bytes = RealDisk.read(&file, 1 << 20).unwrap_or_default();
    String::from_utf8(bytes).unwrap().replace(char::is_whitespace, "")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_commit_of_a_group_is_on_disk_when_it_is_answered() {
    let fixture = Fixture::start_with(|config| config.persist_offsets_every = TIMEOUT).await;
    fixture.create_topic("orders", 2).await;
    fill(&fixture, 5).await;
    assert_eq!(commit(&fixture, "TOOLS_CONSUMER", "orders", 0, 3).await.code, 0);
    assert!(written(&fixture).contains("\"orders@TOOLS_CONSUMER\":{0:3}"), "{}", written(&fixture));
    let pull = Pull { flags: 5, commit_offset: 0, queue_id: 1, ..Pull::new("orders", 0) };
    fixture.pull(pull).await;
    assert!(written(&fixture).contains("\"orders@TOOLS_CONSUMER\":{0:3,1:0}"), "{}", written(&fixture));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_stores_where_a_group_of_push_consumers_begins_before_it_is_answered() {
    let fixture = Fixture::start_with(|config| config.persist_offsets_every = TIMEOUT).await;
    fixture.create_topic("orders", 2).await;
    fill(&fixture, 5).await;
    let pull = |group| Pull { group, flags: 0, ..Pull::new("orders", 4) };
    let member = |group| heartbeat("c", group, &[("orders", "*", 0)]);
    let [pushed, mut pulled, mut broadcast] = ["pushed", "pulled", "broadcast"].map(member);
    pulled.consumer_data_set[0].consume_type = ConsumeType::ConsumeActively;
    broadcast.consumer_data_set[0].message_model = MessageModel::Broadcasting;
    for (group, data) in [("pushed", &pushed), ("pulled", &pulled), ("broadcast", &broadcast)] {
        fixture.heartbeat(&fixture.client, data).await;
        assert_eq!(fixture.pull(pull(group)).await.records().len(), 1, "{group}");
    }
    fixture.pull(Pull { group: "tool", ..Pull::new("orders", 4) }).await;
    assert!(written(&fixture).contains("\"offsetTable\":{\"orders@pushed\":{0:4}}"), "{}", written(&fixture));
    // Later pulls do not move it.
    fixture.pull(Pull { offset: 5, ..pull("pushed") }).await;
    assert_eq!(stored(&fixture, "pushed", "orders", 0).await, Some(4));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bounds_and_times_of_a_queue_are_told() {
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 1).await;
    let earliest = async || {
        let header = GetEarliestMsgStoretimeRequestHeader { topic: "orders", queue_id: 0 };
        let answer = fixture.call(Command::request(request::GET_EARLIEST_MSG_STORETIME, &header)).await;
        answer.ext.get("timestamp").unwrap().parse::<i64>().unwrap()
    };
    assert_eq!(earliest().await, -1);
    assert_eq!(fixture.max_offset("missing", 0).await, 0);
    for number in 0..3 {
        fixture.put("orders", 0, &number.to_string()).await;
        let stored_by = now_ms();
        wait_until("the clock has moved on, so that stored times differ by two", async || {
            now_ms() > stored_by + 2
        })
        .await;
    }
    fixture.wait_for_end("orders", 0, 3).await;
    let pulled = fixture.pull(Pull::new("orders", 0)).await;
    let times: Vec<i64> = pulled.records().iter().map(|record| record.stored_at_ms).collect();
    assert_eq!(earliest().await, times[0]);
    assert_eq!(search(&fixture, times[1], None).await, 1);
    assert_eq!(search(&fixture, times[1] + 1, None).await, 2);
    assert_eq!(search(&fixture, times[1] + 1, Some("UPPER")).await, 1);
    assert_eq!(search(&fixture, 0, None).await, 0);
    assert_eq!(search(&fixture, i64::MAX, None).await, 3);
    let header = GetMinOffsetRequestHeader { topic: "orders", queue_id: 0 };
    let answer = fixture.call(Command::request(request::GET_MIN_OFFSET, &header)).await;
    assert_eq!(answer.ext.get("offset"), Some("0"));
    let header = GetMinOffsetRequestHeader { topic: "orders", queue_id: -5 };
    assert_eq!(fixture.call(Command::request(request::GET_MIN_OFFSET, &header)).await.code, 29);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_viewed_by_its_place_and_nothing_else_is() {
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 1).await;
    fixture.put("orders", 0, "first").await;
    fixture.put("orders", 0, "second").await;
    fixture.wait_for_end("orders", 0, 2).await;
    let pulled = fixture.pull(Pull::new("orders", 1)).await;
    let place = pulled.records()[0].physical_offset.get() as i64;
    let view = async |offset| {
        let header = ViewMessageRequestHeader { topic: Some("orders"), offset };
        fixture.call(Command::request(request::VIEW_MESSAGE_BY_ID, &header)).await
    };
    let answer = view(place).await;
    assert_eq!(answer.code, 0);
    assert_eq!(RecordView::parse(&answer.body).unwrap().body, b"second");
    for offset in [place + 1, place - 1, -1, i64::MAX, i64::MIN, 1 << 40] {
        let answer = view(offset).await;
        assert_eq!(answer.code, 1, "{offset}");
        assert!(answer.remark.unwrap().contains(&offset.to_string()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_queue_covers_what_was_acknowledged_before_it_was_asked_for() {
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 1).await;
    for count in 1..=500 {
        fixture.put("orders", 0, "x").await;
        assert_eq!(fixture.next_offset("orders", 0).await, count);
        assert_eq!(fixture.max_offset("orders", 0).await, count);
    }
}
