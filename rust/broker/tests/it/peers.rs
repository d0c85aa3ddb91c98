//! What clients make the broker hold: bounded for each request and for all together, and others are served meanwhile.

use bytes::BytesMut;
use rocketpy_broker::MemoryBudget;
use rocketpy_env::{Disk, RealDisk};
use rocketpy_model::TopicConfig;
use rocketpy_protocol::body::{CheckClientRequestBody, SubscriptionData, TopicConfigSerializeWrapper};
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::{Command, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::support::{Fixture, Pull, TIMEOUT, config, heartbeat, wait_until};

const MIB: usize = 1 << 20;
/// How long a pull is held that must not end by itself.
const LONG: i64 = 60_000;

/// A filter expression of about this many bytes.
fn expression(size_bytes: usize) -> String {
    (0..size_bytes / 10).map(|number| format!("tag{number:05}")).collect::<Vec<_>>().join("||")
}

/// Asserts that the request is refused because of its filter, with the bound in the text.
fn assert_too_long(answer: &Command) {
    let remark = answer.remark.as_deref().unwrap_or_default();
    assert_eq!(answer.code, response::SUBSCRIPTION_PARSE_FAILED, "{remark}");
    assert!(remark.contains("65536") && remark.contains("maxFilterBytes"), "{remark}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_longer_than_allowed_is_refused_at_every_door() {
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 1).await;
    let long = expression(80_000);
    let answer = fixture.call(Pull { subscription: &long, ..Pull::new("orders", 0) }.command()).await;
    assert_too_long(&answer);
    let body = CheckClientRequestBody {
        subscription_data: SubscriptionData { sub_string: long.clone(), ..SubscriptionData::default() },
        ..CheckClientRequestBody::default()
    };
    let check = Command::bare_request(request::CHECK_CLIENT_CONFIG).with_body(json::to_vec(&body));
    assert_too_long(&fixture.call(check).await);

    let mut data = heartbeat("one", "long", &[("orders", &long, 1)]);
    data.consumer_data_set
        .push(heartbeat("one", "short", &[("orders", "a||b", 1)]).consumer_data_set.remove(0));
    assert_too_long(&fixture.heartbeat(&fixture.client, &data).await);
    let of_short = Pull { group: "short", flags: 0, sub_version: 1, ..Pull::new("orders", 0) };
    assert_eq!(fixture.pull(of_short).await.code, response::PULL_NOT_FOUND, "the other group has entered");

    let fitting = expression(60_000);
    let pulled = fixture.pull(Pull { subscription: &fitting, ..Pull::new("orders", 0) }).await;
    assert_eq!(pulled.code, response::PULL_NOT_FOUND, "{}", pulled.remark);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bound_of_filters_is_a_key() {
    let fixture = Fixture::start_with(|config| config.max_filter_bytes = 300).await;
    fixture.create_topic("orders", 1).await;
    for (size_bytes, code) in [(290, response::PULL_NOT_FOUND), (400, response::SUBSCRIPTION_PARSE_FAILED)] {
        let pull = Pull { subscription: &expression(size_bytes), ..Pull::new("orders", 0) };
        assert_eq!(fixture.pull(pull).await.code, code);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn held_pulls_and_subscriptions_count_until_their_client_goes() {
    let budget = MemoryBudget::new(64 * MIB);
    let fixture = Fixture::start_with(|config| config.memory = Some(budget.clone())).await;
    fixture.create_topic("orders", 1).await;
    let nothing = budget.used_bytes();
    let client = fixture.other_client();
    let filter = expression(60_000);
    fixture.heartbeat(&client, &heartbeat("one", "group", &[("orders", &filter, 1)])).await;
    let subscribed = budget.used_bytes();
    assert!(subscribed > nothing + 2 * filter.len(), "{subscribed}");
    fixture.heartbeat(&client, &heartbeat("one", "group", &[("orders", &filter, 1)])).await;
    wait_until("the same again takes nothing", async || budget.used_bytes() <= subscribed).await;

    let pull = Pull { subscription: &filter, ..Pull::new("orders", 0) }.held(LONG).command();
    let mut calls = Vec::new();
    for _ in 0..5 {
        calls.push(client.start_call(&fixture.address, pull.clone(), TIMEOUT).await.unwrap());
    }
    let held = |count: usize| subscribed + count * filter.len();
    wait_until("pulls are held", async || budget.used_bytes() > held(5)).await;
    client.connection(&fixture.address, TIMEOUT).await.unwrap().close();
    wait_until("everything is given back", async || budget.used_bytes() == nothing).await;
    drop(calls);
}

#[tokio::test(flavor = "multi_thread")]
async fn pulls_beyond_the_budget_close_who_holds_most_and_others_wait_on() {
    let budget = MemoryBudget::new(16 * MIB);
    let fixture = Fixture::start_with(|config| config.memory = Some(budget.clone())).await;
    fixture.create_topic("orders", 1).await;
    let small = fixture
        .client
        .start_call(&fixture.address, Pull::new("orders", 0).held(LONG).command(), TIMEOUT)
        .await;
    let filter = expression(60_000);
    let pull = Pull { subscription: &filter, ..Pull::new("orders", 0) }.held(LONG).command();
    let hostile = fixture.other_client();
    let mut calls = Vec::new();
    for _ in 0..300 {
        calls.push(hostile.start_call(&fixture.address, pull.clone(), TIMEOUT).await.unwrap());
    }
    // Over the same connection: all of them have come by then.
    let busy = hostile.call(&fixture.address, pull.clone(), TIMEOUT).await.unwrap();
    assert_eq!(busy.code, response::SYSTEM_BUSY, "it holds most, and gets no more: {:?}", busy.remark);
    assert!(budget.used_bytes() <= 16 * MIB);
    assert_eq!(budget.closed_connections(), 0);

    let other = fixture.other_client();
    let _held = other.start_call(&fixture.address, pull, TIMEOUT).await.unwrap();
    wait_until("who holds most is closed", async || budget.closed_connections() == 1).await;
    let mut closed = 0;
    for call in calls {
        match call.await {
            Ok(answer) => assert_eq!(answer.code, response::SYSTEM_BUSY, "{:?}", answer.remark),
            Err(_) => closed += 1,
        }
    }
    assert!(closed > 0, "it held pulls");
    fixture.put("orders", 0, "for the small one").await;
    assert_eq!(small.unwrap().await.unwrap().code, response::SUCCESS, "its connection was not closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_ask_for_all_topics_and_read_nothing_are_closed() {
    let folder = tempfile::tempdir().unwrap();
    let budget = MemoryBudget::new(64 * MIB);
    let mut config = config(&folder);
    config.memory = Some(budget.clone());
    let topics = (0..3000).map(|number| format!("a-topic-with-a-long-name-{number:0100}"));
    let wrapper = TopicConfigSerializeWrapper {
        topic_config_table: topics.map(|name| (name.clone(), TopicConfig::new(name, 4))).collect(),
        ..TopicConfigSerializeWrapper::default()
    };
    let folder_of_tables = config.store.root.join("config");
    RealDisk.create_dir_all(&folder_of_tables).unwrap();
    RealDisk.replace(&folder_of_tables.join("topics.json"), &json::to_vec(&wrapper)).unwrap();
    let fixture = Fixture::start_on(folder, config).await;

    let ask = Command::bare_request(request::GET_ALL_TOPIC_CONFIG);
    let answer_bytes = fixture.call(ask.clone()).await.body.len();
    assert!(answer_bytes > MIB / 2, "{answer_bytes}");
    let mut frame = BytesMut::new();
    ask.encode(&mut frame).unwrap();
    let mut hostile = Vec::new();
    for _ in 0..12 {
        let mut peer = TcpStream::connect(&fixture.address).await.unwrap();
        // It may be closed during this write.
        let _ = peer.write_all(&frame.repeat(40)).await;
        hostile.push(peer);
        assert_eq!(fixture.put("orders", 0, "served meanwhile").await, hostile.len() as i64 - 1);
    }
    wait_until("the worst are closed", async || budget.closed_connections() > 0).await;
    wait_until("their memory is free", async || budget.used_bytes() <= 32 * MIB).await;
    assert!(fixture.call(ask).await.body.len() > MIB / 2);
    drop(hostile);
    wait_until("everything is given back", async || budget.used_bytes() == 0).await;
}
