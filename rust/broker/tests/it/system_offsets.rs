//! Offsets by which the broker itself finds its way: no request moves them, and a start does not trust them.

use rocketpy_broker::BrokerRole;
use rocketpy_env::{Disk, RealDisk};
use rocketpy_model::sys_flag::pull as flag;
use rocketpy_model::{GroupConfig, system};
use rocketpy_protocol::Command;
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::header::{
    CheckTransactionStateRequestHeader, CloneGroupOffsetRequestHeader, DeleteSubscriptionGroupRequestHeader,
    Header, ResetOffsetRequestHeader, UpdateConsumerOffsetRequestHeader,
};

use crate::offsets::{commit, stored};
use crate::support::{Fixture, Pull, heartbeat};
use crate::transactions::{COMMIT, ROLLBACK, end, next, prepare, producer, start};

const GROUP: &str = system::TRANSACTION_GROUP;
const TOPICS: [&str; 2] = [system::HALF_TOPIC, system::OP_HALF_TOPIC];

#[track_caller]
fn assert_refused(way: &str, answer: &Command, names: &str) {
    let remark = answer.remark.as_deref().unwrap_or_default();
    assert!(
        answer.code == response::NO_PERMISSION && remark.contains(names),
        "{way}: {} {remark}",
        answer.code
    );
}

/// Two half messages: one that stays open, and one that is rolled back.
async fn open_and_rolled_back(fixture: &Fixture) -> [(i64, i64); 2] {
    let places = [prepare(fixture, "open").await, prepare(fixture, "rolled back").await];
    assert_eq!(fixture.call(end(places[1], ROLLBACK, false)).await.code, 0);
    fixture.wait_for_end(system::OP_HALF_TOPIC, 0, 1).await;
    places
}

/// The producer is asked for the open one and commits it; the other one cannot be committed.
async fn both_end_as_they_should(fixture: &Fixture, places: [(i64, i64); 2]) {
    let (_client, mut questions) = producer(fixture).await;
    for _ in 0..3 {
        let question = next(&mut questions).await;
        let header = CheckTransactionStateRequestHeader::read(&question.ext).unwrap();
        assert_eq!(header.msg_id, Some("open"));
    }
    for (place, code) in places.into_iter().zip([0, 604]) {
        let answer = fixture.call(end(place, COMMIT, true)).await;
        assert_eq!(answer.code, code, "{:?}", answer.remark);
    }
    fixture.put("orders", 0, "after").await;
    fixture.wait_for_end("orders", 0, 2).await;
    assert_eq!(fixture.pull(Pull::new("orders", 0)).await.bodies(), ["open", "after"]);
}

async fn assert_not_moved(fixture: &Fixture, way: &str) {
    for topic in TOPICS {
        let offset = stored(fixture, GROUP, topic, 0).await;
        assert!(offset.is_none_or(|offset| offset == 0), "{way} moved {topic} to {offset:?}");
        for group in ["group", "TOOLS_CONSUMER"] {
            assert_eq!(stored(fixture, group, topic, 0).await, None, "{way}: {group} in {topic}");
        }
    }
}

async fn refuses_commits(fixture: &Fixture, topic: &str, end: i64) {
    assert_refused("commit", &commit(fixture, GROUP, topic, 0, end).await, GROUP);
    assert_refused("commit", &commit(fixture, "group", topic, 0, end).await, topic);
    let header = UpdateConsumerOffsetRequestHeader {
        consumer_group: GROUP,
        topic,
        queue_id: 0,
        commit_offset: end,
        broker_name: None,
    };
    let mut reset = Command::request(request::UPDATE_CONSUMER_OFFSET, &header);
    reset.ext.push("isReset", "true");
    assert_refused("commit of a reset", &fixture.call(reset).await, GROUP);
    assert_not_moved(fixture, "a commit").await;
}

async fn refuses_resets(fixture: &Fixture, topic: &str, end: i64) {
    let header = ResetOffsetRequestHeader {
        topic,
        group: GROUP,
        timestamp: -1,
        is_force: Some(true),
        queue_id: None,
        offset: None,
    };
    let to_end = ResetOffsetRequestHeader { queue_id: Some(0), offset: Some(end), ..header };
    let of_group = ResetOffsetRequestHeader { group: "group", ..header };
    for (header, names) in [(header, GROUP), (to_end, GROUP), (of_group, topic)] {
        let answer = fixture.call(Command::request(request::INVOKE_BROKER_TO_RESET_OFFSET, &header)).await;
        assert_refused("reset", &answer, names);
    }
    assert_not_moved(fixture, "a reset").await;
}

async fn refuses_copies(fixture: &Fixture, topic: &str) {
    for (src_group, dest_group) in [("group", GROUP), (GROUP, "group")] {
        for topic in [None, Some(topic)] {
            let header = CloneGroupOffsetRequestHeader { src_group, dest_group, topic, offline: None };
            let answer = fixture.call(Command::request(request::CLONE_GROUP_OFFSET, &header)).await;
            assert_refused("clone", &answer, GROUP);
        }
    }
    let (src_group, dest_group) = ("TOOLS_CONSUMER", "group");
    let header = CloneGroupOffsetRequestHeader { src_group, dest_group, topic: Some(topic), offline: None };
    let answer = fixture.call(Command::request(request::CLONE_GROUP_OFFSET, &header)).await;
    assert_refused("clone", &answer, topic);
    assert_not_moved(fixture, "a clone").await;
}

async fn refuses_pulls(fixture: &Fixture, topic: &str, end: i64) {
    for code in [request::PULL_MESSAGE, request::LITE_PULL_MESSAGE] {
        let pull = Pull { code, group: GROUP, ..Pull::new(topic, end) };
        let with_commit =
            Pull { flags: flag::SUBSCRIPTION | flag::COMMIT_OFFSET, commit_offset: end, ..pull };
        let of_tools = Pull { group: "TOOLS_CONSUMER", ..with_commit };
        for (pull, names) in [(pull, GROUP), (with_commit, GROUP), (of_tools, topic)] {
            assert_refused("pull", &fixture.pull(pull).await.command, names);
        }
    }
    assert_not_moved(fixture, "a pull").await;
}

/// Members of another group may look, but none stores where it begins.
async fn lets_others_look(fixture: &Fixture, topic: &str, end: i64) {
    let client = fixture.other_client();
    for group in [GROUP, "group"] {
        let data = heartbeat("member", group, &[(topic, "*", 1)]);
        let answer = fixture.heartbeat(&client, &data).await;
        match group == GROUP {
            true => assert_refused("heartbeat", &answer, GROUP),
            false => assert_eq!(answer.code, 0, "{:?}", answer.remark),
        }
    }
    let pulled = fixture.pull(Pull { group: "group", ..Pull::new(topic, 0) }).await;
    assert_eq!((pulled.code, pulled.records().len() as i64), (0, end), "{}", pulled.remark);
    assert_not_moved(fixture, "the first pull of a member").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_moves_offsets_of_the_broker_and_transactions_go_on_after_a_restart() {
    let fixture = start().await;
    crate::groups::put(&fixture, &GroupConfig::new("group")).await;
    let places = open_and_rolled_back(&fixture).await;
    for (topic, end) in TOPICS.into_iter().zip([2, 1]) {
        refuses_commits(&fixture, topic, end).await;
        refuses_resets(&fixture, topic, end).await;
        refuses_copies(&fixture, topic).await;
        refuses_pulls(&fixture, topic, end).await;
        lets_others_look(&fixture, topic, end).await;
    }
    let header = DeleteSubscriptionGroupRequestHeader { group_name: GROUP, clean_offset: Some(true) };
    let answer = fixture.call(Command::request(request::DELETE_SUBSCRIPTIONGROUP, &header)).await;
    assert_refused("delete", &answer, GROUP);
    assert_not_moved(&fixture, "the end of a group").await;

    let fixture = fixture.restart().await;
    both_end_as_they_should(&fixture, places).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn offsets_that_a_client_has_moved_at_an_earlier_broker_lose_no_transaction() {
    for (half, op) in [(2, 1), (2, 0), (0, 1)] {
        let fixture = start().await;
        let places = open_and_rolled_back(&fixture).await;
        fixture.broker.shutdown().await;
        let Fixture { broker, folder, config, .. } = fixture;
        drop(broker);
        let table = config.store.root.join("config/consumerOffset.json");
        let moved = format!(
            "{{\"offsetTable\":{{\"{}@{GROUP}\":{{0:{half}}},\"{}@{GROUP}\":{{0:{op}}}}}}}",
            TOPICS[0], TOPICS[1]
        );
        RealDisk.replace(&table, moved.as_bytes()).unwrap();
        let fixture = Fixture::start_on(folder, config).await;
        both_end_as_they_should(&fixture, places).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_at_a_slave_moves_no_offset_of_the_broker() {
    let fixture = Fixture::start_with(|config| {
        config.broker_id = 1;
        config.replication.role = BrokerRole::Slave;
    })
    .await;
    for topic in TOPICS {
        assert_refused("commit", &commit(&fixture, GROUP, topic, 0, 0).await, GROUP);
        assert_refused("commit", &commit(&fixture, "TOOLS_CONSUMER", topic, 0, 0).await, topic);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_and_clients_keep_offsets_in_topics_that_are_for_them() {
    let fixture = Fixture::start().await;
    for (group, topic) in [
        (system::MONITOR_GROUP, system::OFFSET_MOVED_TOPIC),
        (system::TOOLS_GROUP, system::SELF_TEST_TOPIC),
        ("tracers", system::TRACE_TOPIC),
    ] {
        if topic == system::TRACE_TOPIC {
            fixture.send(crate::support::Send::new(topic, "x")).await;
        }
        let client = fixture.other_client();
        let answer = fixture.heartbeat(&client, &heartbeat(group, group, &[(topic, "*", 1)])).await;
        assert_eq!(answer.code, 0, "{:?}", answer.remark);
        let answer = commit(&fixture, group, topic, 0, 0).await;
        assert_eq!(answer.code, 0, "{group} {topic}: {:?}", answer.remark);
        assert_eq!(stored(&fixture, group, topic, 0).await, Some(0));
    }
    let pulled = fixture.pull(Pull::new(system::SCHEDULE_TOPIC, 0)).await;
    assert_eq!(pulled.code, 19, "{}", pulled.remark);
}
