//! Quotas over real connections. What passes when is decided by a clock of its own in the tests of the limiter; here a debt of hours
//! keeps a request waiting, and a change lets it pass.

use std::time::Duration;

use rocketpy_broker::BrokerRole;
use rocketpy_env::{Disk, RealDisk};
use rocketpy_model::GroupConfig;
use rocketpy_protocol::body::{Quota, QuotaList, QuotaUse};
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::header::{RemoveQuotaRequestHeader, ViewMessageRequestHeader};
use rocketpy_protocol::message_id::OffsetMessageId;
use rocketpy_protocol::{Command, json};
use rocketpy_remoting::PendingCall;
use tempfile::tempdir;

use crate::support::{Fixture, Pull, Pulled, Send, TIMEOUT, batch_body, config, heartbeat, wait_until};

const BODY: &str = "0123456789";

fn quota(scope: &str, name: &str) -> Quota {
    Quota { scope: scope.to_owned(), name: name.to_owned(), ..Quota::default() }
}

async fn set(fixture: &Fixture, quota: &Quota) -> Command {
    let request = Command::bare_request(request::SET_QUOTA).with_body(json::to_vec(quota));
    fixture.call(request).await
}

async fn remove(fixture: &Fixture, scope: &str, name: &str) -> Command {
    fixture.call(Command::request(request::REMOVE_QUOTA, &RemoveQuotaRequestHeader { scope, name })).await
}

async fn all(fixture: &Fixture) -> Vec<QuotaUse> {
    let answer = fixture.call(Command::bare_request(request::GET_QUOTAS)).await;
    json::from_slice::<QuotaList>(&answer.body).unwrap().quotas
}

/// The use of the only quota.
async fn only(fixture: &Fixture) -> QuotaUse {
    let mut all = all(fixture).await;
    assert_eq!(all.len(), 1);
    all.remove(0)
}

async fn start(fixture: &Fixture, request: Command) -> PendingCall {
    fixture.client.start_call(&fixture.address, request, TIMEOUT).await.unwrap()
}

/// A broker with topic `orders` and one message.
async fn with_topic() -> Fixture {
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 1).await;
    fixture.put("orders", 0, BODY).await;
    fixture.wait_for_end("orders", 0, 1).await;
    fixture
}

#[tokio::test(flavor = "multi_thread")]
async fn quotas_are_listed_survive_restarts_and_bad_ones_change_nothing() {
    let fixture = Fixture::start().await;
    assert_eq!(all(&fixture).await, []);
    let orders = Quota { send_messages: Some(7), pull_bytes: Some(9), ..quota("topic", "orders*") };
    let network = Quota { connections: Some(500), ..quota("address", "10.0.0.0/8") };
    for quota in [&orders, &network] {
        assert_eq!(set(&fixture, quota).await.code, 0);
    }
    for bad in [
        quota("topic", "orders*"),
        Quota { send_messages: Some(0), ..orders.clone() },
        Quota { connections: Some(1), ..orders.clone() },
        Quota { send_messages: Some(1), ..quota("client", "x") },
        Quota { send_messages: Some(1), ..quota("topic", "%RETRY%group") },
        Quota { send_messages: Some(1), ..quota("address", "10.0.0.0/33") },
    ] {
        assert_eq!(set(&fixture, &bad).await.code, response::INVALID_PARAMETER, "{bad:?}");
    }
    let text = Command::bare_request(request::SET_QUOTA).with_body(b"{\"scope\":1}".to_vec());
    assert_eq!(fixture.call(text).await.code, response::INVALID_PARAMETER);
    let unknown = remove(&fixture, "topic", "orders").await;
    assert_eq!(unknown.code, response::QUERY_NOT_FOUND);
    assert_eq!(unknown.remark.unwrap(), "no quota of topic orders is set");

    let quotas = async |fixture: &Fixture| -> Vec<Quota> {
        all(fixture).await.into_iter().map(|used| used.quota).collect()
    };
    assert_eq!(quotas(&fixture).await, [network.clone(), orders.clone()]);
    let path = fixture.config.store.root.join("config/quotas.json");
    let bytes = RealDisk.read(&path, 1 << 20).unwrap();
    let fixture = fixture.restart().await;
    assert_eq!(quotas(&fixture).await, [network.clone(), orders.clone()]);

    // What a change had written when it was answered, is what a kill leaves.
    let killed = tempdir().unwrap();
    let config = config(&killed);
    RealDisk.create_dir_all(&config.store.root.join("config")).unwrap();
    RealDisk.replace(&config.store.root.join("config/quotas.json"), &bytes).unwrap();
    assert_eq!(quotas(&Fixture::start_on(killed, config).await).await, [network, orders]);

    assert_eq!(remove(&fixture, "address", "10.9.9.9/8").await.code, 0, "the same network");
    let fixture = fixture.restart().await;
    assert_eq!(only(&fixture).await.quota.name, "orders*");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_send_over_quota_waits_a_second_and_is_rejected_with_limit_and_wait() {
    let fixture = with_topic().await;
    for (scope, name) in [("topic", "orders"), ("group", "producers"), ("address", "127.0.0.1")] {
        assert_eq!(set(&fixture, &Quota { send_bytes: Some(10), ..quota(scope, name) }).await.code, 0);
        // More than a second's bytes pass, and are paid for by those after it.
        fixture.put("orders", 0, &"x".repeat(100_000)).await;
        let rejected = fixture.send(Send::new("orders", BODY)).await;
        assert_eq!(rejected.code, response::SYSTEM_BUSY);
        let remark = rejected.remark.unwrap();
        let begin = format!("send quota of {scope} {name} exceeded: limit 10 bytes/s, try again in ");
        assert!(remark.starts_with(&begin) && remark.ends_with(" ms"), "{remark}");
        let used = only(&fixture).await;
        assert_eq!((used.throttled, used.rejected, used.waiting), (1, 1, 0));
        assert_eq!(remove(&fixture, scope, name).await.code, 0);
    }
    assert_eq!(fixture.next_offset("orders", 0).await, 4, "a rejected send is not stored");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_wakes_sends_and_they_are_stored_in_their_order() {
    let fixture = with_topic().await;
    fixture.create_topic("payments", 1).await;
    let limit = |limit| Quota { send_messages: Some(limit), ..quota("topic", "orders") };
    set(&fixture, &limit(1)).await;
    let items: Vec<(&str, &str)> = (0..50).map(|_| ("x", "")).collect();
    let batch = Send { batch: true, body: &batch_body(&items), ..Send::new("orders", "") };
    assert_eq!(fixture.send(batch).await.code, 0, "each message of a batch counts");
    for change in [Some(limit(1_000_000)), None] {
        fixture.put("payments", 0, "no quota limits it").await;
        let before = fixture.next_offset("orders", 0).await;
        let mut calls = Vec::new();
        for number in 0..5 {
            calls.push(start(&fixture, Send::new("orders", &format!("{before}-{number}")).command()).await);
        }
        wait_until("all wait", async || only(&fixture).await.waiting == 5).await;
        match change {
            Some(quota) => assert_eq!(set(&fixture, &quota).await.code, 0),
            None => assert_eq!(remove(&fixture, "topic", "orders").await.code, 0),
        }
        for call in calls {
            let answer = call.await.unwrap();
            assert_eq!(answer.code, 0, "{:?}", answer.remark);
        }
        fixture.wait_for_end("orders", 0, before + 5).await;
        let pulled = fixture.pull(Pull::new("orders", before)).await;
        let wanted: Vec<_> = (0..5).map(|number| format!("{before}-{number}")).collect();
        assert_eq!(pulled.bodies(), wanted);
        set(&fixture, &limit(1)).await;
        fixture.send(Send { batch: true, body: &batch_body(&items), ..Send::new("orders", "") }).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_over_quota_is_held_and_one_that_asks_for_no_wait_gets_flow_control() {
    let fixture = with_topic().await;
    crate::groups::put(&fixture, &GroupConfig::new("readers")).await;
    let pull = Pull { group: "readers", ..Pull::new("orders", 0) };
    for (scope, name) in [("topic", "orders"), ("group", "readers"), ("address", "*")] {
        set(&fixture, &Quota { pull_bytes: Some(1), ..quota(scope, name) }).await;
        assert_eq!(fixture.pull(pull).await.bodies(), [BODY], "the first one passes and leaves a debt");
        let held = start(&fixture, pull.held(30_000).command()).await;
        let at_once = fixture.pull(pull).await;
        assert_eq!(at_once.code, response::FLOW_CONTROL);
        let name = if scope == "address" { "127.0.0.1" } else { name };
        let begin = format!("pull quota of {scope} {name} exceeded: limit 1 bytes/s, try again in ");
        assert!(at_once.remark.starts_with(&begin), "{}", at_once.remark);
        if scope == "topic" {
            let again = Pulled::of(held.await.unwrap());
            assert_eq!((again.code, again.next), (response::PULL_RETRY_IMMEDIATELY, 0));
            assert_eq!((again.min, again.max), (0, 1));
            assert!(again.remark.starts_with(&begin), "{}", again.remark);
            assert_eq!(only(&fixture).await.rejected, 2);
            assert_eq!(remove(&fixture, scope, "orders").await.code, 0);
            continue;
        }
        assert_eq!(only(&fixture).await.waiting, 1);
        assert_eq!(remove(&fixture, scope, if scope == "address" { "*" } else { name }).await.code, 0);
        assert_eq!(Pulled::of(held.await.unwrap()).bodies(), [BODY]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_traffic_of_clients_is_not_limited() {
    let fixture = with_topic().await;
    for scope in ["topic", "group", "address"] {
        let limits = Quota { send_bytes: Some(1), pull_bytes: Some(1), ..quota(scope, "*") };
        assert_eq!(set(&fixture, &limits).await.code, 0);
    }
    fixture.put("orders", 0, BODY).await;
    let member = heartbeat("c", "group", &[("orders", "*", 1)]);
    for _ in 0..20 {
        assert_eq!(fixture.heartbeat(&fixture.client, &member).await.code, 0);
        assert_eq!(fixture.next_offset("orders", 0).await, 2);
        assert_eq!(fixture.call(Command::bare_request(request::GET_ALL_CONSUMER_OFFSET)).await.code, 0);
    }
    let used = all(&fixture).await;
    assert!(used.iter().all(|used| used.throttled == 0), "{used:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_are_looked_up_count_for_their_address() {
    let fixture = with_topic().await;
    let answer = fixture.send(Send::new("orders", BODY)).await;
    let id: OffsetMessageId = answer.ext.get("msgId").unwrap().parse().unwrap();
    let view = ViewMessageRequestHeader { topic: None, offset: id.physical_offset.to_wire() };
    let view = || Command::request(request::VIEW_MESSAGE_BY_ID, &view);
    set(&fixture, &Quota { pull_bytes: Some(1), ..quota("address", "*") }).await;
    assert_eq!(fixture.call(view()).await.code, 0);
    assert_eq!(fixture.call(view()).await.code, response::FLOW_CONTROL);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_one_way_send_is_counted() {
    let fixture = with_topic().await;
    set(&fixture, &Quota { send_bytes: Some(1), ..quota("topic", "orders") }).await;
    fixture.put("orders", 0, &"x".repeat(10_000)).await;
    let send = Send::new("orders", BODY).command();
    fixture.client.call_oneway(&fixture.address, send, TIMEOUT).await.unwrap();
    wait_until("the send is counted", async || only(&fixture).await.rejected == 1).await;
    assert_eq!(fixture.next_offset("orders", 0).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_address_opens_no_more_connections_than_its_quota() {
    let fixture = with_topic().await;
    set(&fixture, &Quota { connections: Some(2), ..quota("address", "127.0.0.1") }).await;
    let second = fixture.other_client();
    let ask = || Command::bare_request(request::GET_QUOTAS);
    assert_eq!(second.call(&fixture.address, ask(), TIMEOUT).await.unwrap().code, 0);
    let third = fixture.other_client();
    third.call(&fixture.address, ask(), Duration::from_secs(3)).await.expect_err("it is closed at once");
    let used = only(&fixture).await;
    assert_eq!(used.connections, 2);
    assert!(used.rejected >= 1, "{used:?}");
    second.close();
    wait_until("the place is free", async || {
        fixture.other_client().call(&fixture.address, ask(), TIMEOUT).await.is_ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_wait_are_answered_at_the_stop() {
    let fixture = with_topic().await;
    set(&fixture, &Quota { pull_bytes: Some(1), ..quota("topic", "orders") }).await;
    assert_eq!(fixture.pull(Pull::new("orders", 0)).await.bodies(), [BODY]);
    let held = start(&fixture, Pull::new("orders", 0).held(30_000).command()).await;
    wait_until("it waits", async || only(&fixture).await.waiting == 1).await;
    let (answer, ()) = tokio::join!(held, fixture.broker.shutdown());
    assert_eq!(answer.unwrap().code, response::SYSTEM_BUSY);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slave_has_the_quotas_of_its_master_and_changes_none() {
    let master = with_topic().await;
    let orders = Quota { pull_bytes: Some(1), ..quota("topic", "orders") };
    set(&master, &orders).await;
    let slave = Fixture::start_with(|config| {
        config.broker_id = 1;
        config.replication.role = BrokerRole::Slave;
        config.intervals.ask_master = Duration::from_secs(3600);
    })
    .await;
    slave.broker.set_master_address(Some(&master.address));
    assert!(slave.broker.step("metadata of the master").await);
    assert_eq!(only(&slave).await.quota, orders);
    assert_eq!(set(&slave, &orders).await.code, response::SYSTEM_ERROR);
    assert_eq!(remove(&slave, "topic", "orders").await.code, response::SYSTEM_ERROR);
    remove(&master, "topic", "orders").await;
    assert!(slave.broker.step("metadata of the master").await);
    assert_eq!(all(&slave).await, []);
}
