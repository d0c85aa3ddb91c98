use rocketpy_model::sys_flag::pull as flag;
use rocketpy_model::{GroupConfig, GroupSubscription, MessageQueue};
use rocketpy_protocol::body::{
    ConsumeStats, GroupForbidden, GroupList, MessageModel, SubscriptionGroupWrapper,
};
use rocketpy_protocol::code::request;
use rocketpy_protocol::header::{
    DeleteSubscriptionGroupRequestHeader, GetConsumeStatsRequestHeader, QueryTopicConsumeByWhoRequestHeader,
    UpdateGroupForbiddenRequestHeader,
};
use rocketpy_protocol::{Command, json};

use crate::support::{Fixture, Pull, heartbeat};

pub(crate) async fn all(fixture: &Fixture) -> SubscriptionGroupWrapper {
    let answer = fixture.call(Command::bare_request(request::GET_ALL_SUBSCRIPTIONGROUP_CONFIG)).await;
    json::from_slice(&answer.body).unwrap()
}

pub(crate) fn put_request(group: &GroupConfig) -> Command {
    Command::bare_request(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP).with_body(json::to_vec(group))
}

pub(crate) async fn put(fixture: &Fixture, group: &GroupConfig) -> Command {
    fixture.call(put_request(group)).await
}

pub(crate) async fn delete(fixture: &Fixture, group: &str) -> Command {
    let header = DeleteSubscriptionGroupRequestHeader { group_name: group, clean_offset: Some(true) };
    fixture.call(Command::request(request::DELETE_SUBSCRIPTIONGROUP, &header)).await
}

async fn stats(fixture: &Fixture, group: &str, topic: Option<&str>) -> ConsumeStats {
    let header = GetConsumeStatsRequestHeader { consumer_group: group, topic, topic_list: None };
    let answer = fixture.call(Command::request(request::GET_CONSUME_STATS, &header)).await;
    json::from_slice(&answer.body).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_created_changed_and_deleted() {
    let fixture = Fixture::start_with(|config| config.auto_create_group = false).await;
    fixture.create_topic("orders", 1).await;
    let group = GroupConfig { retry_max_times: 3, ..GroupConfig::new("group") };
    assert_eq!(put(&fixture, &group).await.code, 0);
    let table = all(&fixture).await.subscription_group_table;
    assert_eq!(table["group"], group);
    assert!(table.contains_key("TOOLS_CONSUMER") && table.contains_key("CID_ONS-HTTP-PROXY"));
    let pull = Pull { group: "group", ..Pull::new("orders", 0) };
    assert_eq!(fixture.pull(pull).await.code, 19);

    assert_eq!(put(&fixture, &GroupConfig { consume_enable: false, ..group.clone() }).await.code, 0);
    let disabled = fixture.pull(pull).await;
    assert_eq!((disabled.code, disabled.command.ext.get("forbiddenType")), (16, Some("2")));

    put(&fixture, &group).await;
    crate::offsets::commit(&fixture, "group", "orders", 0, 0).await;
    assert_eq!(delete(&fixture, "group").await.code, 0);
    assert_eq!(fixture.pull(pull).await.code, 26);
    assert_eq!(crate::offsets::stored(&fixture, "group", "orders", 0).await, None);

    for (field, bad) in [
        ("retryQueueNums", GroupConfig { retry_queues: i32::MAX, ..group.clone() }),
        ("retryQueueNums", GroupConfig { retry_queues: -1, ..group.clone() }),
        ("retryMaxTimes", GroupConfig { retry_max_times: 16_385, ..group.clone() }),
    ] {
        let answer = put(&fixture, &bad).await;
        assert!(answer.code == 29 && answer.remark.as_ref().unwrap().contains(field), "{answer:?}");
    }

    let attribute = |name: &str, value: &str| GroupConfig {
        attributes: [(name.to_owned(), value.to_owned())].into(),
        ..group.clone()
    };
    let many = (0..65).map(|number| (number.to_string(), String::new())).collect();
    let subscription = GroupSubscription {
        topic: "orders".to_owned(),
        expression: "x".repeat(1025),
        ..GroupSubscription::default()
    };
    for bad in [
        attribute("name", &"x".repeat(1025)),
        attribute(&"x".repeat(1 << 20), ""),
        GroupConfig { attributes: many, ..group.clone() },
        GroupConfig { subscriptions: Some(vec![subscription]), ..group.clone() },
    ] {
        let answer = put(&fixture, &bad).await;
        assert_eq!(answer.code, 29, "{answer:?}");
    }
    assert_eq!(put(&fixture, &attribute("name", &"x".repeat(1024))).await.code, 0);

    for name in ["a/b", ""] {
        assert_eq!(put(&fixture, &GroupConfig::new(name)).await.code, 29);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_without_broadcast_gives_nothing_to_members_that_broadcast() {
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 1).await;
    let mut member = heartbeat("c", "group", &[("orders", "*", 1)]);
    member.consumer_data_set[0].message_model = MessageModel::Broadcasting;
    fixture.heartbeat(&fixture.client, &member).await;
    let pull = Pull { group: "group", flags: 0, sub_version: 1, ..Pull::new("orders", 0) };
    assert_eq!(fixture.pull(pull).await.code, 19);
    let group = GroupConfig { consume_broadcast_enable: false, ..GroupConfig::new("group") };
    assert_eq!(put(&fixture, &group).await.code, 0);
    for flags in [0, flag::SUBSCRIPTION] {
        let refused = fixture.pull(Pull { flags, ..pull }).await;
        assert_eq!((refused.code, refused.command.ext.get("forbiddenType")), (16, Some("4")));
    }
}

/// What the broker says about it, or its code.
async fn forbid(fixture: &Fixture, group: &str, topic: &str, readable: Option<bool>) -> Result<bool, i32> {
    let header = UpdateGroupForbiddenRequestHeader { group, topic, readable };
    let answer = fixture.call(Command::request(request::UPDATE_AND_GET_GROUP_FORBIDDEN, &header)).await;
    if answer.code != 0 {
        return Err(answer.code);
    }
    let forbidden: GroupForbidden = json::from_slice(&answer.body).unwrap();
    assert_eq!((forbidden.group.as_str(), forbidden.topic.as_str()), (group, topic));
    Ok(forbidden.readable)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_is_forbidden_to_a_group_stays_so_after_a_restart() {
    let fixture = Fixture::start().await;
    for topic in ["orders", "payments"] {
        fixture.create_topic(topic, 1).await;
    }
    put(&fixture, &GroupConfig::new("group")).await;
    assert_eq!(forbid(&fixture, "nobody", "orders", Some(false)).await, Err(26));
    assert_eq!(forbid(&fixture, "group", "nothing", Some(false)).await, Err(17));
    assert_eq!(forbid(&fixture, "group", "orders", None).await, Ok(true));
    assert_eq!(forbid(&fixture, "group", "orders", Some(false)).await, Ok(false));

    let fixture = fixture.restart().await;
    assert_eq!(forbid(&fixture, "group", "orders", None).await, Ok(false));
    let pull = Pull { group: "group", ..Pull::new("orders", 0) };
    let refused = fixture.pull(pull).await;
    assert_eq!((refused.code, refused.command.ext.get("forbiddenType")), (16, Some("5")));
    assert_eq!(fixture.pull(Pull { topic: "payments", ..pull }).await.code, 19);
    assert_eq!(fixture.pull(Pull { group: "TOOLS_CONSUMER", ..pull }).await.code, 19);
    assert_eq!(all(&fixture).await.forbidden_table["group"]["orders"], 4);

    assert_eq!(delete(&fixture, "group").await.code, 0);
    assert_eq!(all(&fixture).await.forbidden_table, [].into(), "the next group of that name may read");
    put(&fixture, &GroupConfig::new("group")).await;
    assert_eq!(fixture.pull(pull).await.code, 19);

    assert_eq!(forbid(&fixture, "group", "orders", Some(false)).await, Ok(false));
    assert_eq!(forbid(&fixture, "group", "orders", Some(true)).await, Ok(true));
    assert_eq!(fixture.pull(pull).await.code, 19);
    let fixture = fixture.restart().await;
    assert_eq!(all(&fixture).await.forbidden_table, [].into());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_groups_lag_is_told_for_every_queue() {
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 2).await;
    fixture.create_topic("other", 1).await;
    for _ in 0..5 {
        fixture.put("orders", 0, "x").await;
    }
    fixture.wait_for_end("orders", 0, 5).await;
    assert!(stats(&fixture, "TOOLS_CONSUMER", None).await.offset_table.is_empty());
    crate::offsets::commit(&fixture, "TOOLS_CONSUMER", "orders", 0, 2).await;
    crate::offsets::commit(&fixture, "TOOLS_CONSUMER", "other", 0, 0).await;
    let table = stats(&fixture, "TOOLS_CONSUMER", None).await.offset_table;
    assert_eq!(table.len(), 3);
    let queue = |id| MessageQueue { topic: "orders".into(), broker_name: "broker-a".into(), queue_id: id };
    let progress = &table[&queue(0)];
    assert_eq!((progress.broker_offset, progress.consumer_offset), (5, 2));
    assert!(progress.last_at_ms > 0);
    assert_eq!(stats(&fixture, "TOOLS_CONSUMER", Some("orders")).await.offset_table.len(), 2);

    fixture.heartbeat(&fixture.client, &heartbeat("c", "TOOLS_CONSUMER", &[("orders", "*", 1)])).await;
    let subscribed = stats(&fixture, "TOOLS_CONSUMER", None).await;
    assert_eq!(subscribed.offset_table.len(), 2, "topics that the live members do not read are left out");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_tells_who_reads_it() {
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 1).await;
    crate::offsets::commit(&fixture, "TOOLS_CONSUMER", "orders", 0, 0).await;
    fixture.heartbeat(&fixture.client, &heartbeat("c", "live", &[("orders", "*", 1)])).await;
    let header = QueryTopicConsumeByWhoRequestHeader { topic: "orders" };
    let answer = fixture.call(Command::request(request::QUERY_TOPIC_CONSUME_BY_WHO, &header)).await;
    let groups: GroupList = json::from_slice(&answer.body).unwrap();
    assert_eq!(groups.group_list, ["TOOLS_CONSUMER", "live"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_statistics_of_a_group_say_how_fast_it_reads() {
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 1).await;
    put(&fixture, &GroupConfig::new("group")).await;
    for _ in 0..3 {
        fixture.put("orders", 0, "x").await;
    }
    fixture.wait_for_end("orders", 0, 3).await;
    assert_eq!(stats(&fixture, "group", Some("orders")).await.consume_tps, 0.0);
    let pulled = fixture.pull(Pull { group: "group", ..Pull::new("orders", 0) }).await;
    assert_eq!(pulled.bodies().len(), 3);
    assert!(stats(&fixture, "group", Some("orders")).await.consume_tps > 0.0);
    assert_eq!(stats(&fixture, "TOOLS_CONSUMER", Some("orders")).await.consume_tps, 0.0, "another group");
}
