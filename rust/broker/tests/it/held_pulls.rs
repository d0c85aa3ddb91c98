//! Pulls that wait for a message.

use std::time::{Duration, Instant};

use rocketpy_model::GroupConfig;
use rocketpy_protocol::Command;
use rocketpy_protocol::body::MessageModel;
use rocketpy_protocol::code::request;
use rocketpy_protocol::header::UpdateGroupForbiddenRequestHeader;

use crate::groups::put_request;
use crate::support::{Fixture, Pull, Pulled, TIMEOUT, create_topic, heartbeat, wait_until};

/// How long a pull is held that must be answered by something else.
const LONG: i64 = 60_000;

async fn held(fixture: &Fixture) -> u64 {
    crate::state::runtime_value(fixture, "heldPulls").await.parse().unwrap()
}

async fn wait_for_held(fixture: &Fixture, count: u64) {
    wait_until("pulls are held", async || held(fixture).await == count).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_answers_the_pulls_of_its_queue_only() {
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 2).await;
    let pull = |queue_id| Pull { queue_id, ..Pull::new("orders", 0) }.held(LONG).command();
    let first = fixture.client.start_call(&fixture.address, pull(0), TIMEOUT).await.unwrap();
    let second = fixture.client.start_call(&fixture.address, pull(1), TIMEOUT).await.unwrap();
    wait_for_held(&fixture, 2).await;
    fixture.put("orders", 1, "for the second").await;
    assert_eq!(Pulled::of(second.await.unwrap()).bodies(), ["for the second"]);
    assert_eq!(held(&fixture).await, 1);
    fixture.put("orders", 0, "for the first").await;
    assert_eq!(Pulled::of(first.await.unwrap()).bodies(), ["for the first"]);
    assert_eq!(held(&fixture).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_another_tag_does_not_wake_but_the_scan_moves_the_offset() {
    let fixture =
        Fixture::start_with(|config| config.intervals.scan_held_pulls = Duration::from_millis(300)).await;
    fixture.create_topic("orders", 1).await;
    let pull = Pull { subscription: "wanted", ..Pull::new("orders", 0) }.held(LONG).command();
    let call = fixture.client.start_call(&fixture.address, pull, TIMEOUT).await.unwrap();
    wait_for_held(&fixture, 1).await;
    fixture.put_tagged("orders", 0, "x", "other").await;
    let pulled = Pulled::of(call.await.unwrap());
    assert_eq!((pulled.code, pulled.next), (20, 1));

    let pull = Pull { subscription: "wanted", ..Pull::new("orders", 1) }.held(LONG).command();
    let call = fixture.client.start_call(&fixture.address, pull, TIMEOUT).await.unwrap();
    fixture.put_tagged("orders", 0, "y", "wanted").await;
    assert_eq!(Pulled::of(call.await.unwrap()).bodies(), ["y"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_pull_with_an_expression_gets_only_what_it_is_true_for() {
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 1).await;
    let sql = |offset| Pull {
        subscription: "TAGS IN ('wanted') AND missing IS NULL",
        expression_type: Some("SQL92"),
        ..Pull::new("orders", offset)
    };
    for (offset, tag, code, bodies) in [(0, "other", 20, vec![]), (1, "wanted", 0, vec!["wanted"])] {
        let pull = sql(offset).held(LONG).command();
        let call = fixture.client.start_call(&fixture.address, pull, TIMEOUT).await.unwrap();
        wait_for_held(&fixture, 1).await;
        fixture.put_tagged("orders", 0, tag, tag).await;
        let pulled = Pulled::of(call.await.unwrap());
        assert_eq!(
            (pulled.code, pulled.next, pulled.bodies()),
            (code, offset + 1, bodies.iter().map(|it| (*it).to_owned()).collect())
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_ends_with_its_time_and_not_before() {
    let never = Duration::from_secs(3600);
    let fixture = Fixture::start_with(|config| config.intervals.scan_held_pulls = never).await;
    fixture.create_topic("orders", 1).await;
    let started = Instant::now();
    // The scan would come after the call's own time-out: the deadline ends the wait.
    let pulled = fixture.pull(Pull::new("orders", 0).held(150)).await;
    assert_eq!((pulled.code, pulled.next), (19, 0));
    assert!(started.elapsed() >= Duration::from_millis(150));
    assert_eq!(fixture.pull(Pull::new("orders", 0)).await.code, 19, "at once without the flag");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_long_polling_a_pull_is_held_for_a_short_time() {
    let fixture = Fixture::start_with(|config| {
        config.long_polling = false;
        config.short_polling = Duration::from_millis(50);
    })
    .await;
    fixture.create_topic("orders", 1).await;
    assert_eq!(fixture.pull(Pull::new("orders", 0).held(LONG)).await.code, 19);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pulls_of_an_ended_connection_are_forgotten() {
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 1).await;
    let other = fixture.other_client();
    let calls: Vec<_> = futures(&other, &fixture, 5).await;
    wait_for_held(&fixture, 5).await;
    other.close();
    wait_for_held(&fixture, 0).await;
    drop(calls);
    fixture.put("orders", 0, "nobody waits").await;
    fixture.wait_for_end("orders", 0, 1).await;
}

async fn futures(
    client: &rocketpy_remoting::Client,
    fixture: &Fixture,
    count: usize,
) -> Vec<rocketpy_remoting::PendingCall> {
    let mut calls = Vec::new();
    for _ in 0..count {
        let pull = Pull::new("orders", 0).held(LONG).command();
        calls.push(client.start_call(&fixture.address, pull, TIMEOUT).await.unwrap());
    }
    calls
}

/// Holds more pulls than are taken out together, in a broker that does not look at them by itself.
async fn many_held_pulls() -> (Fixture, Vec<rocketpy_remoting::PendingCall>) {
    const PULLS: usize = 2500;
    let never = Duration::from_secs(3600);
    let fixture = Fixture::start_with(|config| config.intervals.scan_held_pulls = never).await;
    fixture.create_topic("orders", 1).await;
    let calls = futures(&fixture.client, &fixture, PULLS).await;
    wait_for_held(&fixture, PULLS as u64).await;
    (fixture, calls)
}

#[tokio::test(flavor = "multi_thread")]
async fn one_message_answers_thousands_of_pulls() {
    let (fixture, calls) = many_held_pulls().await;
    fixture.put("orders", 0, "x").await;
    for call in calls {
        assert_eq!(Pulled::of(call.await.unwrap()).bodies(), ["x"]);
    }
    assert_eq!(held(&fixture).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_topic_answers_thousands_of_pulls() {
    let (fixture, calls) = many_held_pulls().await;
    assert_eq!(crate::topics::delete(&fixture, "orders").await.code, 0);
    for call in calls {
        assert_eq!(call.await.unwrap().code, 17);
    }
    assert_eq!(held(&fixture).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_pull_too_many_is_told_that_the_broker_is_busy() {
    let fixture = Fixture::start_with(|config| config.max_held_pulls = 3).await;
    fixture.create_topic("orders", 1).await;
    let calls = futures(&fixture.client, &fixture, 3).await;
    wait_for_held(&fixture, 3).await;
    let refused = fixture.pull(Pull::new("orders", 0).held(LONG)).await;
    assert_eq!(refused.code, 2);
    assert!(refused.remark.contains("maxHeldPulls"), "{}", refused.remark);
    fixture.put("orders", 0, "x").await;
    for call in calls {
        assert_eq!(Pulled::of(call.await.unwrap()).bodies(), ["x"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_byte_too_many_is_told_that_the_broker_is_busy() {
    let fixture = Fixture::start_with(|config| config.max_held_bytes = 8 << 10).await;
    fixture.create_topic("orders", 1).await;
    let calls = futures(&fixture.client, &fixture, 3).await;
    wait_for_held(&fixture, 3).await;
    let tags = (0..1000).map(|number| format!("tag{number}")).collect::<Vec<_>>();
    let subscription = tags.join("||");
    let refused =
        fixture.pull(Pull { subscription: &subscription, ..Pull::new("orders", 0) }.held(LONG)).await;
    assert_eq!(refused.code, 2);
    assert!(refused.remark.contains("maxHeldBytes"), "{}", refused.remark);
    fixture.put("orders", 0, "x").await;
    for call in calls {
        assert_eq!(Pulled::of(call.await.unwrap()).bodies(), ["x"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_offset_is_committed_once_even_when_the_pull_is_held() {
    use rocketpy_model::sys_flag::pull as flag;
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 1).await;
    fixture.put("orders", 0, "0").await;
    fixture.wait_for_end("orders", 0, 1).await;
    let flags = flag::SUBSCRIPTION | flag::COMMIT_OFFSET;
    let pull = Pull { group: "group", flags, commit_offset: 1, ..Pull::new("orders", 1) }.held(LONG);
    let call = fixture.client.start_call(&fixture.address, pull.command(), TIMEOUT).await.unwrap();
    wait_for_held(&fixture, 1).await;
    assert_eq!(crate::offsets::stored(&fixture, "group", "orders", 0).await, Some(1));
    crate::offsets::commit(&fixture, "group", "orders", 0, 0).await;
    fixture.put("orders", 0, "1").await;
    call.await.unwrap();
    assert_eq!(crate::offsets::stored(&fixture, "group", "orders", 0).await, Some(0), "not committed again");
}

#[tokio::test(flavor = "multi_thread")]
async fn deleting_the_topic_answers_its_held_pulls() {
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 1).await;
    let calls = futures(&fixture.client, &fixture, 1).await;
    wait_for_held(&fixture, 1).await;
    assert_eq!(crate::topics::delete(&fixture, "orders").await.code, 0);
    for call in calls {
        assert_eq!(call.await.unwrap().code, 17);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_pull_gets_nothing_that_it_may_not_read_any_more() {
    let group = || GroupConfig::new("group");
    let forbidden =
        UpdateGroupForbiddenRequestHeader { group: "group", topic: "orders", readable: Some(false) };
    for (change, code) in [
        (create_topic("orders", 2, 2), 16),
        (create_topic("orders", 1, 6), 29),
        (put_request(&GroupConfig { consume_enable: false, ..group() }), 16),
        (put_request(&GroupConfig { consume_broadcast_enable: false, ..group() }), 16),
        (Command::request(request::UPDATE_AND_GET_GROUP_FORBIDDEN, &forbidden), 16),
    ] {
        let fixture = Fixture::start().await;
        fixture.create_topic("orders", 2).await;
        assert_eq!(fixture.call(put_request(&group())).await.code, 0);
        let mut member = heartbeat("c", "group", &[("orders", "*", 1)]);
        member.consumer_data_set[0].message_model = MessageModel::Broadcasting;
        fixture.heartbeat(&fixture.client, &member).await;
        let pull = Pull { group: "group", queue_id: 1, ..Pull::new("orders", 0) }.held(LONG).command();
        let call = fixture.client.start_call(&fixture.address, pull, TIMEOUT).await.unwrap();
        wait_for_held(&fixture, 1).await;
        assert_eq!(fixture.call(change).await.code, 0);
        fixture.broker.shutdown().await; // whatever ends the wait looks again at what may be read
        let pulled = Pulled::of(call.await.unwrap());
        assert_eq!(pulled.code, code, "{}", pulled.remark);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_orderly_stop_answers_held_pulls() {
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 1).await;
    let calls = futures(&fixture.client, &fixture, 2).await;
    wait_for_held(&fixture, 2).await;
    fixture.broker.shutdown().await;
    for call in calls {
        assert_eq!(call.await.unwrap().code, 19);
    }
}
