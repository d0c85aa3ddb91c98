//! Requests of administrators beside those of topics and groups: lists, entries of queues, cold reads, engines.

use rocketpy_model::{GroupConfig, TopicConfig};
use rocketpy_protocol::body::{
    ColdDataFlowCtrInfo, CreateTopicListRequestBody, QueryConsumeQueueResponseBody,
    SetMessageRequestModeRequestBody, SubscriptionGroupList,
};
use rocketpy_protocol::code::request;
use rocketpy_protocol::header::{
    GetSubscriptionGroupConfigRequestHeader, QueryConsumeQueueRequestHeader, ResetMasterFlushOffsetHeader,
};
use rocketpy_protocol::{Command, json};

use crate::support::{Fixture, heartbeat};
use crate::topics::get;

async fn put_topics(fixture: &Fixture, topics: &[TopicConfig]) -> Command {
    let list = CreateTopicListRequestBody { topic_config_list: topics.to_vec() };
    let request = Command::bare_request(request::UPDATE_AND_CREATE_TOPIC_LIST);
    fixture.call(request.with_body(json::to_vec(&list))).await
}

async fn put_groups(fixture: &Fixture, groups: &[GroupConfig]) -> Command {
    let list = SubscriptionGroupList { group_config_list: groups.to_vec() };
    let request = Command::bare_request(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST);
    fixture.call(request.with_body(json::to_vec(&list))).await
}

/// A topic with an attribute as mqadmin writes it.
fn with(topic: &str, attribute: (&str, &str)) -> TopicConfig {
    let attributes = [(attribute.0.to_owned(), attribute.1.to_owned())].into();
    TopicConfig { attributes, ..TopicConfig::new(topic, 2) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_topics_is_made_whole_or_not_at_all() {
    let fixture = Fixture::start().await;
    for (bad, says) in [
        (TopicConfig::new("a/b", 1), "a/b"),
        (TopicConfig::new("TBW102", 1), "TBW102"),
        (TopicConfig::new("bills", 0), "readQueueNums"),
        (TopicConfig::new("orders", 1), "orders is in the list twice"),
        (with("bills", ("+queue.type", "BatchCQ")), "+queue.type rejected: batch"),
    ] {
        let answer = put_topics(&fixture, &[TopicConfig::new("orders", 1), bad]).await;
        let remark = answer.remark.unwrap();
        assert!(answer.code == 29 && remark.contains(says), "{remark}");
        assert!(get(&fixture, "orders").await.is_err(), "nothing is made");
    }
    fixture.create_topic("bills", 1).await;
    let list =
        [with("orders", ("+message.type", "FIFO")), TopicConfig::new("bills", 1), TopicConfig::new("new", 3)];
    assert_eq!(put_topics(&fixture, &list).await.code, 0);
    let orders = get(&fixture, "orders").await.unwrap();
    assert_eq!((orders.attributes["message.type"].as_str(), orders.queues()), ("FIFO", 2));
    assert_eq!(get(&fixture, "new").await.unwrap().queues(), 3, "after one that was there already");
    assert_eq!(put_topics(&fixture, &[with("orders", ("-message.type", ""))]).await.code, 0);
    assert!(get(&fixture, "orders").await.unwrap().attributes.is_empty());
    let fixture = fixture.restart().await;
    assert_eq!(get(&fixture, "new").await.unwrap().queues(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_groups_is_made_whole_or_not_at_all_and_each_gets_its_retry_topic() {
    let fixture = Fixture::start().await;
    let one = async |group: &str| {
        let header = GetSubscriptionGroupConfigRequestHeader { group };
        fixture.call(Command::request(request::GET_SUBSCRIPTIONGROUP_CONFIG, &header)).await
    };
    for bad in [
        GroupConfig::new("a/b"),
        GroupConfig::new("readers"),
        GroupConfig { retry_queues: -1, ..GroupConfig::new("others") },
    ] {
        let answer = put_groups(&fixture, &[GroupConfig::new("readers"), bad]).await;
        assert_eq!(answer.code, 29, "{:?}", answer.remark);
        let missing = one("readers").await;
        assert!(missing.code == 26 && missing.remark.unwrap().contains("readers"), "nothing is made");
    }
    let groups = [
        GroupConfig { retry_queues: 3, ..GroupConfig::new("readers") },
        GroupConfig { retry_queues: 0, ..GroupConfig::new("others") },
    ];
    assert_eq!(put_groups(&fixture, &groups).await.code, 0);
    assert_eq!(json::from_slice::<GroupConfig>(&one("readers").await.body).unwrap(), groups[0]);
    assert_eq!(get(&fixture, "%RETRY%readers").await.unwrap().queues(), 3);
    assert!(get(&fixture, "%RETRY%others").await.is_err(), "it allows no retries");
    assert!(get(&fixture, "%RETRY%unknown").await.is_err() && one("unknown").await.code == 26);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_entries_of_a_queue_say_where_its_messages_are_and_whether_a_group_wants_them() {
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 1).await;
    for tag in ["a", "b", "a"] {
        fixture.put_tagged("orders", 0, "x", tag).await;
    }
    let client = fixture.other_client();
    fixture.heartbeat(&client, &heartbeat("one", "readers", &[("orders", "b", 1)])).await;
    let ask = async |queue_id, index, count, consumer_group| {
        let header =
            QueryConsumeQueueRequestHeader { topic: "orders", queue_id, index, count, consumer_group };
        fixture.call(Command::request(request::QUERY_CONSUME_QUEUE, &header)).await
    };
    let body = |answer: &Command| json::from_slice::<QueryConsumeQueueResponseBody>(&answer.body).unwrap();
    let two = body(&ask(0, 1, 2, Some("readers")).await);
    assert_eq!((two.min_queue_index, two.max_queue_index), (0, 3));
    let data = two.queue_data.unwrap();
    assert_eq!(data.iter().map(|entry| entry.eval).collect::<Vec<_>>(), [true, false]);
    assert_eq!(data[1].physic_offset, data[0].physic_offset + i64::from(data[0].physic_size));
    assert_eq!(
        (two.filter_data.as_deref(), two.subscription_data.unwrap().sub_string.as_str()),
        (Some("b"), "b")
    );
    let offline = body(&ask(0, 0, 1, Some("nobody")).await);
    assert_eq!(offline.filter_data.as_deref(), Some("nobody@orders is not online!"));
    for index in [3, -1] {
        let answer = ask(0, index, 1, None).await;
        assert!(answer.code == 0 && body(&answer).queue_data.is_none());
        assert!(answer.remark.unwrap().starts_with(&format!("Index {index} of 0@orders")));
    }
    assert_eq!((ask(1, 0, 1, None).await.code, ask(-1, 0, 1, None).await.code), (1, 1));
    assert_eq!((ask(0, 0, -1, None).await.code, ask(0, 0, 10_001, None).await.code), (29, 29));
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_of_cold_reads_are_kept_and_a_bad_one_changes_none() {
    let fixture = Fixture::start().await;
    let set = async |fixture: &Fixture, code, text: &'static str| {
        fixture.call(Command::bare_request(code).with_body(text)).await.code
    };
    let info = async |fixture: &Fixture| {
        let answer = fixture.call(Command::bare_request(request::GET_COLD_DATA_FLOW_CTR_INFO)).await;
        json::from_slice::<ColdDataFlowCtrInfo>(&answer.body).unwrap()
    };
    let (update, remove) =
        (request::UPDATE_COLD_DATA_FLOW_CTR_CONFIG, request::REMOVE_COLD_DATA_FLOW_CTR_CONFIG);
    assert_eq!(set(&fixture, update, "readers=4096\nothers=1\n").await, 0);
    for bad in ["readers=1\nothers=many", "readers=0", "a/b=1", "readers", "readers=1\nreaders=2", "\u{1}=1"]
    {
        assert_eq!(set(&fixture, update, bad).await, 29, "{bad}");
    }
    assert_eq!((set(&fixture, remove, "a/b").await, set(&fixture, remove, "unknown").await), (29, 0));
    assert_eq!(set(&fixture, remove, "others").await, 0);
    let fixture = fixture.restart().await;
    let info = info(&fixture).await;
    assert_eq!(info.config_table, [("readers".to_owned(), 4096)].into());
    assert!(info.runtime_table.is_empty() && info.global_acc == 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn modes_and_engines_that_are_not_there_are_refused() {
    let fixture = Fixture::start().await;
    for (code, field, value, wanted) in [
        (request::SET_COMMITLOG_READ_MODE, "READ_AHEAD_MODE", "0", 0),
        (request::SET_COMMITLOG_READ_MODE, "READ_AHEAD_MODE", "1", 29),
        (request::SET_COMMITLOG_READ_MODE, "READ_AHEAD_MODE", "x", 29),
        (request::SET_COMMITLOG_READ_MODE, "other", "0", 29),
        (request::SWITCH_TIMER_ENGINE, "E_T", "F", 0),
        (request::SWITCH_TIMER_ENGINE, "E_T", "R", 29),
        (request::SWITCH_TIMER_ENGINE, "other", "F", 29),
    ] {
        let mut request = Command::bare_request(code);
        request.ext.push(field, value);
        let answer = fixture.call(request).await;
        assert_eq!(answer.code, wanted, "{code} {value}: {:?}", answer.remark);
        assert!(answer.remark.is_some());
    }
    let header = ResetMasterFlushOffsetHeader { master_flush_offset: 7 };
    let reset = Command::request(request::RESET_MASTER_FLUSH_OFFSET, &header);
    assert_eq!(fixture.call(reset).await.code, 0, "a master has nothing to reset");
    let bare = Command::bare_request(request::RESET_MASTER_FLUSH_OFFSET);
    assert_eq!(fixture.call(bare).await.code, 29);
    let off = fixture.call(Command::bare_request(request::AUTH_CREATE_USER)).await;
    assert!(off.code == 1 && off.remark.as_ref().unwrap().contains("authenticationEnabled"), "{off:?}");
    for (code, says) in [
        (request::POP_MESSAGE, "POP consumption"),
        (request::UPDATE_AND_CREATE_STATIC_TOPIC, "static topics"),
        (request::GET_BROKER_LITE_INFO, "lite topics"),
        (request::EXPORT_ROCKSDB_CONFIG_TO_JSON, "RocksDB"),
    ] {
        let answer = fixture.call(Command::bare_request(code)).await;
        assert!(answer.code == 3 && answer.remark.as_ref().unwrap().contains(says), "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_pull_and_do_not_pop() {
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 1).await;
    assert_eq!(put_groups(&fixture, &[GroupConfig::new("readers")]).await.code, 0);
    for (topic, group, mode, code) in [
        ("orders", "readers", "PULL", 0),
        ("orders", "readers", "POP", 3),
        ("orders", "readers", "PUSH", 29),
        ("unknown", "readers", "PULL", 17),
        ("orders", "unknown", "PULL", 26),
    ] {
        let body = SetMessageRequestModeRequestBody {
            topic: topic.to_owned(),
            consumer_group: group.to_owned(),
            mode: mode.to_owned(),
            pop_share_queue_num: 0,
        };
        let request = Command::bare_request(request::SET_MESSAGE_REQUEST_MODE);
        let answer = fixture.call(request.with_body(json::to_vec(&body))).await;
        assert_eq!(answer.code, code, "{topic} {group} {mode}: {:?}", answer.remark);
    }
    assert_eq!(fixture.call(Command::bare_request(request::POP_ROLLBACK)).await.code, 0);
}
