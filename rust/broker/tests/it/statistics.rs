//! Statistics: VIEW_BROKER_STATS_DATA, GET_BROKER_CONSUME_STATS and QUERY_CONSUME_TIME_SPAN.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use rocketpy_model::{GroupConfig, MessageQueue};
use rocketpy_protocol::body::{BrokerConsumeStats, ConsumeTimeSpans, QueueTimeSpan, Statistics};
use rocketpy_protocol::code::request;
use rocketpy_protocol::header::{
    DeleteTopicRequestHeader, GetBrokerConsumeStatsRequestHeader, QueryConsumeTimeSpanRequestHeader,
    ViewBrokerStatsDataRequestHeader,
};
use rocketpy_protocol::{Command, json};

use crate::groups::{delete, put};
use crate::offsets::commit;
use crate::send_backs::send_back;
use crate::support::{Fixture, Pull, Send, TIMEOUT, batch_body, create_topic, heartbeat, wait_until};

async fn ask(fixture: &Fixture, stats_name: &str, stats_key: &str) -> Command {
    let header = ViewBrokerStatsDataRequestHeader { stats_name, stats_key };
    fixture.call(Command::request(request::VIEW_BROKER_STATS_DATA, &header)).await
}

/// An item; `None` when the broker has none.
async fn item(fixture: &Fixture, name: &str, key: &str) -> Option<Statistics> {
    let answer = ask(fixture, name, key).await;
    match answer.code {
        0 => Some(json::from_slice(&answer.body).unwrap()),
        1 => None,
        code => panic!("{name} {key}: {code} {:?}", answer.remark),
    }
}

/// Sum of the minute; `None` without an item. The hour and the day have the same.
async fn sum(fixture: &Fixture, name: &str, key: &str) -> Option<i64> {
    let Statistics { stats_day, stats_hour, stats_minute } = item(fixture, name, key).await?;
    assert_eq!([stats_day.sum, stats_hour.sum], [stats_minute.sum; 2], "{name} {key}");
    Some(stats_minute.sum)
}

/// A topic with four messages in two queues, of which the group "workers" has read the three of queue 1.
async fn with_traffic() -> Fixture {
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 2).await;
    fixture.put("orders", 0, "x").await;
    fixture.put("orders", 1, "x").await;
    let body = batch_body(&[("a", ""), ("b", "")]);
    let send = Send { body: &body, batch: true, queue_id: 1, ..Send::new("orders", "") };
    assert_eq!(fixture.send(send).await.code, 0);
    fixture.wait_for_end("orders", 1, 3).await;
    put(&fixture, &GroupConfig::new("workers")).await;
    let pulled = fixture.pull(Pull { group: "workers", queue_id: 1, ..Pull::new("orders", 0) }).await;
    assert_eq!(pulled.bodies().len(), 3);
    fixture
}

#[tokio::test(flavor = "multi_thread")]
async fn items_count_messages_of_topics_queues_and_groups() {
    let fixture = with_traffic().await;
    fixture.heartbeat(&fixture.client, &heartbeat("c", "workers", &[("orders", "*", 1)])).await;
    let sent_back = fixture.call(send_back(0, -1, None)).await;
    assert_eq!(sent_back.code, 0, "{sent_back:?}");
    for (name, key, expected) in [
        ("TOPIC_PUT_NUMS", "orders", 4),
        ("QUEUE_PUT_NUMS", "orders@0", 1),
        ("QUEUE_PUT_NUMS", "orders@1", 3),
        ("GROUP_GET_NUMS", "orders@workers", 3),
        ("QUEUE_GET_NUMS", "orders@1@workers", 3),
        ("SNDBCK_PUT_NUMS", "orders@workers", 1),
        ("SNDBCK2DLQ_TIMES", "null@orders@workers@SEND_BACK_TO_DLQ", 1),
        ("BROKER_PUT_NUMS", "DefaultCluster", 5), // with the dead letter
        ("BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", "DefaultCluster", 4),
        ("BROKER_GET_NUMS", "DefaultCluster", 3),
        ("BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC", "DefaultCluster", 3),
        ("CHANNEL_ACTIVITY", "CONNECT", 1),
    ] {
        assert_eq!(sum(&fixture, name, key).await, Some(expected), "{name} {key}");
    }
    for (name, key) in [
        ("TOPIC_PUT_SIZE", "orders"),
        ("QUEUE_PUT_SIZE", "orders@1"),
        ("GROUP_GET_SIZE", "orders@workers"),
        ("QUEUE_GET_SIZE", "orders@1@workers"),
    ] {
        assert!(sum(&fixture, name, key).await > Some(300), "{name} {key}");
    }
    // Times may be below a millisecond.
    for (name, key) in [
        ("TOPIC_PUT_LATENCY", "0@orders"),
        ("GROUP_GET_LATENCY", "1@orders@workers"),
        ("GROUP_GET_LATENCY", "orders@workers"),
        ("CONSUMER_REGISTER_TIME", "DefaultCluster"),
        ("PRODUCER_REGISTER_TIME", "DefaultCluster"),
    ] {
        assert!(item(&fixture, name, key).await.is_some(), "{name} {key}");
    }
    let minute = item(&fixture, "TOPIC_PUT_NUMS", "orders").await.unwrap().stats_minute;
    assert_eq!(minute.avgpt, 4.0 / 3.0, "four messages in three requests");
    assert!(minute.tps > 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn question_about_an_item_that_is_not_there_is_answered_1() {
    let fixture = with_traffic().await;
    for (name, key) in [
        ("TOPIC_PUT_NUMS", "other"),
        ("TOPIC_PUT_NUMS", "orders@0"),
        ("QUEUE_PUT_NUMS", "orders"),
        ("QUEUE_PUT_NUMS", "orders@2"),
        ("QUEUE_PUT_NUMS", "orders@-1"),
        ("QUEUE_GET_NUMS", "orders@0@workers"),
        ("GROUP_GET_NUMS", "workers@orders"),
        ("GROUP_GET_LATENCY", "1@orders@workers@more"),
        ("SNDBCK_PUT_NUMS", "orders@workers"),
        ("SNDBCK2DLQ_TIMES", "orders@workers"),
        ("BROKER_PUT_NUMS", "OtherCluster"),
        ("CHANNEL_ACTIVITY", "OTHER"),
        // Of POP, of bills, and values that no window has.
        ("GROUP_ACK_NUMS", "orders@workers"),
        ("COMMERCIAL_SEND_TIMES", "Owner"),
        ("GROUP_GET_FALL_TIME", "1@orders@workers"),
        ("", ""),
        ("@", "@@@@"),
        ("TOPIC_PUT_NUMS", "\u{1}"),
    ] {
        let answer = ask(&fixture, name, key).await;
        assert_eq!(answer.code, 1, "{name} {key}");
        assert!(answer.remark.unwrap().contains(name), "{name} {key}");
    }
    let answer = fixture.call(Command::bare_request(request::VIEW_BROKER_STATS_DATA)).await;
    assert_eq!(answer.code, 29, "{:?}", answer.remark);
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_topic_or_group_has_no_items() {
    let fixture = with_traffic().await;
    assert_eq!(delete(&fixture, "workers").await.code, 0);
    for (name, key) in [("GROUP_GET_NUMS", "orders@workers"), ("QUEUE_GET_NUMS", "orders@1@workers")] {
        assert_eq!(item(&fixture, name, key).await, None, "{name}");
    }
    assert_eq!(sum(&fixture, "TOPIC_PUT_NUMS", "orders").await, Some(4));
    let header = DeleteTopicRequestHeader { topic: "orders" };
    assert_eq!(fixture.call(Command::request(request::DELETE_TOPIC_IN_BROKER, &header)).await.code, 0);
    for (name, key) in [("TOPIC_PUT_NUMS", "orders"), ("QUEUE_PUT_NUMS", "orders@1")] {
        assert_eq!(item(&fixture, name, key).await, None, "{name}");
    }
    let all = "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC";
    assert_eq!(sum(&fixture, all, "DefaultCluster").await, Some(4), "the broker's own stay");
    fixture.create_topic("orders", 1).await;
    fixture.put("orders", 0, "x").await;
    assert_eq!(sum(&fixture, "TOPIC_PUT_NUMS", "orders").await, Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_have_no_items_without_detail() {
    let fixture = Fixture::start_with(|config| config.metrics.detail = false).await;
    fixture.put("orders", 0, "x").await;
    fixture.wait_for_end("orders", 0, 1).await;
    fixture.pull(Pull::new("orders", 0)).await;
    for (name, key, expected) in [
        ("TOPIC_PUT_NUMS", "orders", true),
        ("QUEUE_PUT_NUMS", "orders@0", false),
        ("GROUP_GET_NUMS", "orders@TOOLS_CONSUMER", true),
        ("QUEUE_GET_NUMS", "orders@0@TOOLS_CONSUMER", false),
        ("GROUP_GET_LATENCY", "orders@TOOLS_CONSUMER", true),
        ("GROUP_GET_LATENCY", "0@orders@TOOLS_CONSUMER", false),
    ] {
        assert_eq!(item(&fixture, name, key).await.is_some(), expected, "{name} {key}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ends_of_connections_are_counted_by_their_kind() {
    let fixture = Fixture::start_with(|config| config.idle_timeout = Duration::from_millis(300)).await;
    fixture.put("orders", 0, "x").await;
    let activity = async |key| sum(&fixture, "CHANNEL_ACTIVITY", key).await;
    assert_eq!(activity("EXCEPTION").await, None);
    let mut broken = TcpStream::connect(&fixture.address).unwrap();
    broken.write_all(&[0, 0, 0, 9, 0, 0, 0, 99]).unwrap();
    wait_until("a frame that is none ends its connection", async || activity("EXCEPTION").await == Some(1))
        .await;
    let other = fixture.other_client();
    other.call(&fixture.address, create_topic("other", 1, 6), TIMEOUT).await.unwrap();
    wait_until("the connection is idle", async || activity("IDLE").await >= Some(1)).await;
    assert!(activity("CLOSE").await >= Some(2));
    assert!(activity("CONNECT").await >= activity("CLOSE").await);
}

async fn of_groups(fixture: &Fixture, is_order: bool) -> BrokerConsumeStats {
    let header = GetBrokerConsumeStatsRequestHeader { is_order };
    let answer = fixture.call(Command::request(request::GET_BROKER_CONSUME_STATS, &header)).await;
    assert_eq!(answer.code, 0, "{:?}", answer.remark);
    json::from_slice(&answer.body).unwrap()
}

/// Topics of each group that has some, with how far it is in queue 1.
fn topics_of(stats: &BrokerConsumeStats) -> BTreeMap<String, Vec<(String, i64, i64)>> {
    let mut topics: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (group, list) in stats.consume_stats_list.iter().flatten() {
        for (queue, progress) in list.iter().flat_map(|stats| &stats.offset_table) {
            assert!(progress.consumer_offset == 0 || progress.last_at_ms > 1_700_000_000_000);
            if queue.queue_id == 1 {
                let at = (queue.topic.to_string(), progress.broker_offset, progress.consumer_offset);
                topics.entry(group.clone()).or_default().push(at);
            }
        }
    }
    topics
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_of_all_groups_lists_configured_groups_and_topics_with_offsets() {
    let fixture = with_traffic().await;
    commit(&fixture, "workers", "orders", 1, 2).await;
    fixture.create_topic("gone", 2).await;
    fixture.put("gone", 1, "x").await;
    fixture.wait_for_end("gone", 1, 1).await;
    commit(&fixture, "workers", "gone", 1, 1).await;
    let stats = of_groups(&fixture, false).await;
    assert_eq!(stats.broker_addr, fixture.address);
    let groups: Vec<&String> = stats.consume_stats_list.iter().flat_map(BTreeMap::keys).collect();
    assert!(groups.contains(&&"TOOLS_CONSUMER".to_owned()), "groups without offsets are listed: {groups:?}");
    let of_workers = vec![("gone".to_owned(), 1, 1), ("orders".to_owned(), 3, 2)];
    assert_eq!(topics_of(&stats), BTreeMap::from([("workers".to_owned(), of_workers)]));
    assert_eq!((stats.total_diff, stats.total_inflight_diff), (2, 1), "one in each queue of orders");
    let rates: f64 = stats
        .consume_stats_list
        .iter()
        .flat_map(|group| group.values().flatten())
        .map(|stats| stats.consume_tps)
        .sum();
    assert!(rates > 0.0);
    assert!(topics_of(&of_groups(&fixture, true).await).is_empty(), "no topic is ordered");

    // Of a group with online members only their topics count.
    fixture.heartbeat(&fixture.client, &heartbeat("c", "workers", &[("orders", "*", 1)])).await;
    let orders = vec![("orders".to_owned(), 3, 2)];
    assert_eq!(topics_of(&of_groups(&fixture, false).await)["workers"], orders);
    let mut ordered = create_topic("orders", 2, 6);
    ordered.ext.remove("order");
    ordered.ext.push("order", "true");
    assert_eq!(fixture.call(ordered).await.code, 0);
    assert_eq!(topics_of(&of_groups(&fixture, true).await)["workers"], orders);
    assert_eq!(fixture.call(Command::bare_request(request::GET_BROKER_CONSUME_STATS)).await.code, 29);
}

async fn spans(fixture: &Fixture, topic: &str, group: &str) -> Command {
    let header = QueryConsumeTimeSpanRequestHeader { topic, group };
    fixture.call(Command::request(request::QUERY_CONSUME_TIME_SPAN, &header)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn time_spans_say_when_messages_were_stored_and_how_late_a_group_is() {
    let fixture = with_traffic().await;
    let of = async |group| {
        let answer = spans(&fixture, "orders", group).await;
        json::from_slice::<ConsumeTimeSpans>(&answer.body).unwrap().consume_time_span_set
    };
    let queue = |id| MessageQueue { topic: "orders".into(), broker_name: "broker-a".into(), queue_id: id };
    let [first, second] = &of("workers").await[..] else { panic!("two queues") };
    assert_eq!((&first.message_queue, &second.message_queue), (&queue(0), &queue(1)));
    assert_eq!(first.min_time_stamp, first.max_time_stamp, "one message");
    assert_eq!(second.consume_time_stamp, second.min_time_stamp, "nothing is committed");
    assert!(first.min_time_stamp > 1_700_000_000_000);
    assert!(second.min_time_stamp <= second.max_time_stamp);
    wait_until("the group is late", async || of("workers").await[1].delay_time > 0).await;
    commit(&fixture, "workers", "orders", 1, 3).await;
    let span: QueueTimeSpan = of("workers").await.remove(1);
    assert_eq!((span.delay_time, span.consume_time_stamp), (0, span.max_time_stamp), "all is consumed");
    fixture.create_topic("empty", 1).await;
    let answer = spans(&fixture, "empty", "workers").await;
    let empty = json::from_slice::<ConsumeTimeSpans>(&answer.body).unwrap().consume_time_span_set.remove(0);
    assert_eq!(
        (empty.min_time_stamp, empty.max_time_stamp, empty.consume_time_stamp, empty.delay_time),
        (-1, -1, -1, 0)
    );
    assert_eq!(spans(&fixture, "missing", "workers").await.code, 17);
}
