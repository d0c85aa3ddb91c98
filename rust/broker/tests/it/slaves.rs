//! A slave beside its master, both real brokers. The log of the slave is empty, or a copy of the master's from a moment ago: what copies it
//! while they run is not part of these tests.

use std::path::Path;
use std::process::Command as Program;
use std::time::Duration;

use rocketpy_broker::{BrokerConfig, BrokerRole};
use rocketpy_env::{Disk, RealDisk};
use rocketpy_model::GroupConfig;
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::disk::TimerCheckpoint;
use rocketpy_protocol::header::{ConsumerSendMsgBackRequestHeader, EndTransactionRequestHeader};
use rocketpy_protocol::{Command, json};
use tempfile::TempDir;

use crate::support::{Fixture, Pull, Send, TIMEOUT, config, create_topic, heartbeat, wait_until};

/// The first message of the first delay level is delivered.
const DELIVERED: &str = r#""offsetTable":{"1":1}"#;
const METADATA: &str = "metadata of the master";
/// What a slave takes over, by the codes that ask for it.
const TABLES: [i32; 4] = [
    request::GET_ALL_TOPIC_CONFIG,
    request::GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    request::GET_ALL_CONSUMER_OFFSET,
    request::GET_ALL_DELAY_OFFSET,
];

/// A configuration whose rounds come when a test asks for them.
fn of_slave(config: &mut BrokerConfig) {
    config.broker_id = 1;
    config.replication.role = BrokerRole::Slave;
    config.intervals.ask_master = Duration::from_secs(3600);
}

async fn start_slave(folder: TempDir, change: impl FnOnce(&mut BrokerConfig)) -> Fixture {
    let mut config = config(&folder);
    of_slave(&mut config);
    change(&mut config);
    Fixture::start_on(folder, config).await
}

async fn follow(slave: &Fixture, master: &Fixture) {
    slave.broker.set_master_address(Some(&master.address));
    ask(slave).await;
}

async fn ask(slave: &Fixture) {
    assert!(slave.broker.step(METADATA).await);
}

/// The body of each of the tables.
async fn tables(fixture: &Fixture) -> Vec<String> {
    let mut bodies = Vec::new();
    for code in TABLES {
        let answer = fixture.call(Command::bare_request(code)).await;
        assert_eq!(answer.code, response::SUCCESS);
        bodies.push(String::from_utf8(answer.body.to_vec()).unwrap());
    }
    bodies
}

async fn timers(fixture: &Fixture) -> TimerCheckpoint {
    let answer = fixture.call(Command::bare_request(request::GET_TIMER_CHECK_POINT)).await;
    TimerCheckpoint::decode(&answer.body).unwrap()
}

fn file(fixture: &Fixture, name: &str) -> Vec<u8> {
    RealDisk.read(&fixture.config.store.root.join("config").join(name), 1 << 20).unwrap()
}

/// Copies the log, its queues and its index, without the tables.
fn copy_log(from: &Path, to: &Path) {
    RealDisk.create_dir_all(to).unwrap();
    let parts = ["commitlog", "consumequeue", "index", "checkpoint"].map(|name| from.join(name));
    let copied = Program::new("cp").arg("-r").args(parts).arg(to).output().unwrap();
    assert!(copied.status.success(), "{copied:?}");
}

/// A master with messages, a group with an offset, and a message that was delayed and one that had a time. Nothing waits.
async fn master_with_progress() -> Fixture {
    let master = Fixture::start().await;
    master.create_topic("orders", 2).await;
    crate::groups::put(&master, &GroupConfig { retry_max_times: 5, ..GroupConfig::new("readers") }).await;
    let soon = format!("TIMER_DELIVER_MS\u{1}{}\u{2}", rocketpy_env::now_ms() + 100);
    for (number, properties) in ["", "DELAY\u{1}1\u{2}", &soon].into_iter().enumerate() {
        let body = number.to_string();
        assert_eq!(master.send(Send { properties, ..Send::new("orders", &body) }).await.code, 0);
    }
    master.wait_for_end("orders", 0, 3).await;
    crate::offsets::commit(&master, "readers", "orders", 0, 2).await;
    let is_written =
        async || tables(&master).await[3].contains(DELIVERED) && timers(&master).await.queue_offset == 1;
    wait_until("the progress is written", is_written).await;
    master
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_and_groups_arrive_with_their_versions_and_offsets_wait_for_the_log() {
    let master = master_with_progress().await;
    let slave = start_slave(tempfile::tempdir().unwrap(), |_| {}).await;
    follow(&slave, &master).await;
    ask(&slave).await;
    let (of_master, of_slave) = (tables(&master).await, tables(&slave).await);
    assert_eq!(of_slave[..2], of_master[..2]);
    assert!(of_master[2].contains("orders@readers") && !of_slave[2].contains("orders@readers"));
    assert!(of_master[3].contains(DELIVERED) && !of_slave[3].contains(DELIVERED));

    let written = || ["topics.json", "subscriptionGroup.json"].map(|name| file(&slave, name));
    let before = written();
    ask(&slave).await;
    assert_eq!(written(), before);
    master.create_topic("bills", 1).await;
    crate::groups::put(&master, &GroupConfig::new("others")).await;
    ask(&slave).await;
    assert_eq!(tables(&slave).await[..2], tables(&master).await[..2]);

    let before = tables(&slave).await;
    let slave = slave.restart().await;
    assert_eq!(tables(&slave).await, before, "a start of a slave changes nothing");
    let bytes = file(&slave, "topics.json");
    follow(&slave, &master).await;
    assert_eq!(file(&slave, "topics.json"), bytes);
    slave.broker.shutdown().await;
    master.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn offsets_and_progress_arrive_where_the_log_is_and_survive_a_restart_of_the_slave() {
    let master = master_with_progress().await;
    let folder = tempfile::tempdir().unwrap();
    let root = master.config.store.root.clone();
    let master = master.restart_with(|_| copy_log(&root, &folder.path().join("store"))).await;
    let slave = start_slave(folder, |_| {}).await;
    follow(&slave, &master).await;
    let of_master = tables(&master).await;
    assert!(of_master[2].contains(r#""orders@readers":{"0":2}"#) && of_master[3].contains(DELIVERED));
    assert_eq!(tables(&slave).await, of_master);
    let (at_master, at_slave) = (timers(&master).await, timers(&slave).await);
    assert_eq!(at_slave.queue_offset, 1);
    assert_eq!(
        (at_slave.read_ms, at_slave.queue_offset, at_slave.data_version),
        (at_master.read_ms, at_master.queue_offset, at_master.data_version)
    );

    let slave = slave.restart().await;
    assert_eq!(tables(&slave).await, of_master);
    assert_eq!(timers(&slave).await, at_slave);

    // The master goes on, and the copy does not.
    master.put("orders", 0, "3").await;
    master.wait_for_end("orders", 0, 4).await;
    crate::offsets::commit(&master, "readers", "orders", 0, 4).await;
    follow(&slave, &master).await;
    ask(&slave).await;
    assert_eq!(crate::offsets::stored(&slave, "readers", "orders", 0).await, Some(2), "the log is not there");
    slave.broker.shutdown().await;
    master.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slave_whose_master_goes_away_keeps_what_it_has() {
    let master = Fixture::start().await;
    master.create_topic("orders", 2).await;
    let slave = start_slave(tempfile::tempdir().unwrap(), |config| {
        config.intervals.ask_master = Duration::from_millis(10);
    })
    .await;
    slave.broker.set_master_address(Some(&master.address));
    let has_orders = async || crate::topics::get(&slave, "orders").await.is_ok();
    wait_until("the topics arrive by themselves", has_orders).await;
    master.broker.shutdown().await;
    ask(&slave).await;
    assert!(crate::topics::get(&slave, "orders").await.is_ok());
    slave.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_for_the_master_to_do_is_refused_and_members_are_heard() {
    let master = Fixture::start().await;
    master.create_topic("orders", 1).await;
    crate::groups::put(&master, &GroupConfig::new("readers")).await;
    let slave = start_slave(tempfile::tempdir().unwrap(), |_| {}).await;
    follow(&slave, &master).await;
    let before = tables(&slave).await;

    let sent = slave.send(Send::new("orders", "x")).await;
    assert_eq!(sent.code, response::SERVICE_NOT_AVAILABLE);
    let remark = sent.remark.unwrap();
    assert!(remark.contains("is a slave (broker id 1)") && remark.contains("send to the master"), "{remark}");
    assert_eq!(slave.send(Send::new("unknown", "x")).await.code, response::SERVICE_NOT_AVAILABLE);
    let end = EndTransactionRequestHeader {
        topic: None,
        producer_group: "producers",
        tran_state_table_offset: 0,
        commit_log_offset: 0,
        commit_or_rollback: 8,
        from_transaction_check: None,
        msg_id: "",
        transaction_id: None,
        broker_name: None,
    };
    let ended = slave.call(Command::request(request::END_TRANSACTION, &end)).await;
    assert_eq!(ended.code, response::SLAVE_NOT_AVAILABLE);
    let back = ConsumerSendMsgBackRequestHeader {
        offset: 0,
        group: "readers",
        delay_level: 0,
        origin_msg_id: None,
        origin_topic: None,
        unit_mode: None,
        max_reconsume_times: None,
        broker_name: None,
    };
    let taken_back = slave.call(Command::request(request::CONSUMER_SEND_MSG_BACK, &back)).await;
    assert_eq!(taken_back.code, response::SYSTEM_ERROR);
    assert!(taken_back.remark.unwrap().contains("is a slave"));
    assert_eq!(slave.call(create_topic("bills", 1, 6)).await.code, response::SYSTEM_ERROR);
    let group = Command::bare_request(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
        .with_body(json::to_vec(&GroupConfig::new("others")));
    assert_eq!(slave.call(group).await.code, response::SYSTEM_ERROR);
    assert_eq!(slave.pull(Pull::new("orders", 0)).await.code, response::SYSTEM_BUSY);

    for group in ["readers", "unknown"] {
        let data = heartbeat("c1", group, &[("orders", "*", 1)]);
        assert_eq!(slave.heartbeat(&slave.client, &data).await.code, response::SUCCESS);
    }
    crate::offsets::commit(&slave, "readers", "orders", 0, 0).await;
    let after = tables(&slave).await;
    assert_eq!(after[..2], before[..2], "nothing is made");
    assert!(after[2].contains("orders@readers"));
    ask(&slave).await;
    assert_eq!(crate::offsets::stored(&slave, "readers", "orders", 0).await, Some(0), "the master has none");
    slave.broker.shutdown().await;
    master.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slave_that_may_be_read_holds_pulls_while_its_master_is_away() {
    let master = master_with_progress().await;
    let folder = tempfile::tempdir().unwrap();
    let root = master.config.store.root.clone();
    let master = master.restart_with(|_| copy_log(&root, &folder.path().join("store"))).await;
    let slave = start_slave(folder, |config| config.slave_read = true).await;
    follow(&slave, &master).await;
    let pulled = slave.pull(Pull::new("orders", 0)).await;
    assert_eq!(pulled.bodies().len(), 3);
    let held = Pull::new("orders", 3).held(TIMEOUT.as_millis() as i64);
    assert_eq!(slave.pull(held).await.code, response::PULL_RETRY_IMMEDIATELY, "back to the master");
    master.broker.shutdown().await;
    ask(&slave).await;
    assert_eq!(slave.pull(Pull::new("orders", 3)).await.code, response::PULL_NOT_FOUND);
    slave.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_consumers_committed_at_the_slave_goes_back_to_the_master_first() {
    let master = master_with_progress().await;
    let folder = tempfile::tempdir().unwrap();
    let root = master.config.store.root.clone();
    let master = master.restart_with(|_| copy_log(&root, &folder.path().join("store"))).await;
    let slave = start_slave(folder, |config| config.slave_read = true).await;
    follow(&slave, &master).await;
    let stored = async |fixture: &Fixture| crate::offsets::stored(fixture, "readers", "orders", 0).await;
    assert_eq!((stored(&master).await, stored(&slave).await), (Some(2), Some(2)));
    // The master goes away, the group goes on at the slave.
    let (folder, config) = (master.folder, master.config);
    master.broker.shutdown().await;
    drop(master.broker);
    ask(&slave).await;
    crate::offsets::commit(&slave, "readers", "orders", 0, 3).await;
    ask(&slave).await;
    assert_eq!(stored(&slave).await, Some(3));
    let master = Fixture::start_on(folder, config).await;
    follow(&slave, &master).await;
    assert_eq!((stored(&master).await, stored(&slave).await), (Some(3), Some(3)));
    // It is given once: who sets the group back at the master is not overruled.
    crate::offsets::commit(&master, "readers", "orders", 0, 1).await;
    ask(&slave).await;
    assert_eq!((stored(&master).await, stored(&slave).await), (Some(1), Some(1)));
    // What another master has not got is not skipped there.
    let shorter = Fixture::start().await;
    shorter.create_topic("orders", 2).await;
    crate::groups::put(&shorter, &GroupConfig::new("readers")).await;
    shorter.put("orders", 0, "x").await;
    shorter.wait_for_end("orders", 0, 1).await;
    assert_eq!(crate::offsets::commit(&slave, "readers", "orders", 0, 3).await.code, response::SUCCESS);
    follow(&slave, &shorter).await;
    assert_eq!(stored(&shorter).await, Some(1));
    for broker in [slave, master, shorter] {
        broker.broker.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slave_forgets_offsets_of_a_topic_that_its_master_created_again_and_moves_their_members_once_promoted()
 {
    let master = master_with_progress().await;
    let folder = tempfile::tempdir().unwrap();
    let root = master.config.store.root.clone();
    let master = master.restart_with(|_| copy_log(&root, &folder.path().join("store"))).await;
    let slave = start_slave(folder, |_| {}).await;
    follow(&slave, &master).await;
    assert_eq!(crate::offsets::stored(&slave, "readers", "orders", 0).await, Some(2));
    assert_eq!(crate::topics::delete(&master, "orders").await.code, 0);
    master.create_topic("orders", 2).await;
    ask(&slave).await;
    assert_eq!(crate::offsets::stored(&slave, "readers", "orders", 0).await, None);
    assert_eq!(tables(&slave).await[2], tables(&master).await[2], "with the numbers of the topics");
    let slave = slave
        .restart_with(|config| {
            config.broker_id = 0;
            config.replication.role = BrokerRole::AsyncMaster;
        })
        .await;
    let member = heartbeat("member", "readers", &[("orders", "*", 1)]);
    assert_eq!(slave.heartbeat(&slave.client, &member).await.code, 0);
    let pull = Pull { group: "readers", flags: 0, sub_version: 1, ..Pull::new("orders", 2) };
    let moved = slave.pull(pull).await;
    assert_eq!((moved.code, moved.next), (21, 0), "{}", moved.remark);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slave_accepts_what_changes_nothing_and_leaves_deletions_to_its_master() {
    let master = master_with_progress().await;
    let slave = start_slave(tempfile::tempdir().unwrap(), |_| {}).await;
    follow(&slave, &master).await;
    let before = tables(&slave).await;
    assert_eq!(slave.call(create_topic("orders", 2, 6)).await.code, response::SUCCESS);
    let known = GroupConfig { retry_max_times: 5, ..GroupConfig::new("readers") };
    assert_eq!(crate::groups::put(&slave, &known).await.code, response::SUCCESS);
    for answer in
        [crate::topics::delete(&slave, "orders").await, crate::groups::delete(&slave, "readers").await]
    {
        assert_eq!(answer.code, response::SUCCESS);
        assert!(answer.remark.unwrap().contains("when its master has deleted it"));
    }
    assert_eq!(slave.call(Command::bare_request(request::CLEAN_UNUSED_TOPIC)).await.code, response::SUCCESS);
    assert_eq!(tables(&slave).await, before);
    assert_eq!(crate::topics::delete(&master, "orders").await.code, response::SUCCESS);
    ask(&slave).await;
    assert!(crate::topics::get(&slave, "orders").await.is_err());
    slave.broker.shutdown().await;
    master.broker.shutdown().await;
}
