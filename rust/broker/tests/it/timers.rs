use rocketpy_env::now_ms;
use rocketpy_model::property;
use rocketpy_protocol::body::TimerMetrics;
use rocketpy_protocol::code::request;
use rocketpy_protocol::disk::TimerCheckpoint;
use rocketpy_protocol::handle::RecallHandle;
use rocketpy_protocol::header::{Header, RecallMessageRequestHeader, SendMessageResponseHeader};
use rocketpy_protocol::{Command, json};

use crate::state::runtime_value;
use crate::support::{Fixture, Pull, Send, TIMEOUT, wait_until};

/// Sends a message that is due at a time; returns its recall handle, unless that was over already.
async fn send(fixture: &Fixture, body: &str, due_ms: i64) -> Option<String> {
    let properties = format!("TIMER_DELIVER_MS\u{1}{due_ms}\u{2}");
    let sent = fixture.send(Send { properties: &properties, ..Send::new("orders", body) }).await;
    assert_eq!(sent.code, 0, "{:?}", sent.remark);
    SendMessageResponseHeader::read(&sent.ext).unwrap().recall_handle.map(str::to_owned)
}

async fn recall(fixture: &Fixture, topic: &str, recall_handle: &str) -> Command {
    let header =
        RecallMessageRequestHeader { producer_group: Some("g"), topic, recall_handle, broker_name: None };
    fixture.call(Command::request(request::RECALL_MESSAGE, &header)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_come_in_the_order_of_their_times_and_none_early() {
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 1).await;
    let start_ms = now_ms();
    for (body, after_ms) in [("third", 1500), ("first", 20), ("second", 700)] {
        send(&fixture, body, start_ms + after_ms).await;
    }
    let mut waited = 0;
    for (offset, (body, after_ms)) in
        [("first", 20), ("second", 700), ("third", 1500)].into_iter().enumerate()
    {
        let held = Pull::new("orders", offset as i64).held(TIMEOUT.as_millis() as i64);
        let pulled = fixture.pull(held).await;
        assert_eq!(pulled.bodies(), [body]);
        let records = pulled.records();
        assert!(records[0].stored_at_ms >= start_ms + after_ms, "{body}");
        // A message that is sent after its delivery time, by a busy machine, is stored at once and is not a timer.
        waited += u32::from(records[0].property(property::TIMER_ENQUEUE_MS).is_some());
    }
    // It is counted once it is stored, which is after it can be read.
    let waited = waited.to_string();
    wait_until("all are counted", async || runtime_value(&fixture, "timersDelivered").await == waited).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_wait_through_a_restart_and_come_once() {
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 1).await;
    let due_ms = now_ms() + 1000;
    send(&fixture, "one", due_ms).await;
    let fixture = fixture.restart().await;
    let held = Pull::new("orders", 0).held(TIMEOUT.as_millis() as i64);
    assert_eq!(fixture.pull(held).await.bodies(), ["one"]);
    let fixture = fixture.restart().await;
    assert!(fixture.broker.step("timer delivery").await);
    send(&fixture, "two", now_ms() + 10).await;
    let next = Pull::new("orders", 1).held(TIMEOUT.as_millis() as i64);
    assert_eq!(fixture.pull(next).await.bodies(), ["two"], "the first is not delivered again");
    let fixture = fixture.restart().await;
    let answer = fixture.call(Command::bare_request(request::GET_TIMER_CHECK_POINT)).await;
    let checkpoint = TimerCheckpoint::decode(&answer.body).unwrap();
    assert_eq!((checkpoint.queue_offset, checkpoint.log_flushed), (2, 104));
    assert!(checkpoint.read_ms > due_ms);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_told_how_many_wait_for_each_topic() {
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 1).await;
    fixture.create_topic("others", 1).await;
    for _ in 0..2 {
        send(&fixture, "in an hour", now_ms() + 3_600_000).await;
    }
    let counts = async |fixture: &Fixture| {
        let answer = fixture.call(Command::bare_request(request::GET_TIMER_METRICS)).await;
        json::from_slice::<TimerMetrics>(&answer.body).unwrap().timing_count
    };
    let both_wait = async |fixture: &Fixture| {
        while counts(fixture).await.get("orders").map(|waits| waits.count) != Some(2) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, both_wait(&fixture)).await.expect("both are taken into the wheel");
    let fixture = fixture.restart().await;
    let counts = counts(&fixture).await;
    assert_eq!((counts["orders"].count, counts.len()), (2, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recalled_message_does_not_come() {
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 1).await;
    let due_ms = now_ms() + 6000; // a busy machine takes its time for the next two requests
    let handle = send(&fixture, "recalled", due_ms).await.unwrap();
    send(&fixture, "stays", due_ms).await;
    let parsed: RecallHandle = handle.parse().unwrap();
    assert_eq!((&*parsed.topic, parsed.deliver_at_ms), ("orders", due_ms));
    let answer = recall(&fixture, "orders", &handle).await;
    assert_eq!((answer.code, answer.ext.get("msgId")), (0, Some(&*parsed.unique_key)), "{:?}", answer.remark);
    assert_eq!(answer.ext.get("MSG_REGION"), Some("DefaultRegion"));
    let held = Pull::new("orders", 0).held(TIMEOUT.as_millis() as i64);
    assert_eq!(fixture.pull(held).await.bodies(), ["stays"]);
    send(&fixture, "next", now_ms() + 1).await;
    let held = Pull::new("orders", 1).held(TIMEOUT.as_millis() as i64);
    assert_eq!(fixture.pull(held).await.bodies(), ["next"]);
    assert_eq!(runtime_value(&fixture, "timersRecalled").await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_recalled_is_refused_by_its_reason() {
    let fixture = Fixture::start().await;
    fixture.create_topic("orders", 1).await;
    let handle = |topic: &str, broker_name: &str, deliver_at_ms| {
        let (topic, broker_name) = (topic.to_owned(), broker_name.to_owned());
        RecallHandle { topic, broker_name, deliver_at_ms, unique_key: "k".to_owned() }.to_string()
    };
    let soon_ms = now_ms() + 60_000;
    let broker = send(&fixture, "x", soon_ms).await.unwrap().parse::<RecallHandle>().unwrap().broker_name;
    for (topic, handle, named) in [
        ("orders", "no handle".to_owned(), "invalid recall handle"),
        ("orders", handle("other", &broker, soon_ms), "it belongs to topic other"),
        ("orders", handle("orders", "elsewhere", soon_ms), "it belongs to broker elsewhere"),
        ("orders", handle("orders", &broker, now_ms() - 1), "its delivery time has passed"),
        ("orders", handle("orders", &broker, now_ms() + 1_000_000_000), "timerMaxDelaySec"),
        ("%RETRY%g", handle("%RETRY%g", &broker, soon_ms), "its topic does not accept messages"),
    ] {
        let answer = recall(&fixture, topic, &handle).await;
        let remark = answer.remark.unwrap();
        assert!(answer.code == 604 && remark.contains(named), "{} {remark}", answer.code);
    }
    let off = Fixture::start_with(|config| config.recalls = false).await;
    assert_eq!(recall(&off, "orders", "x").await.code, 16);
    let properties = format!("TIMER_DELIVER_MS\u{1}{soon_ms}\u{2}");
    let sent = off.send(Send { properties: &properties, ..Send::new("orders", "x") }).await;
    assert_eq!(SendMessageResponseHeader::read(&sent.ext).unwrap().recall_handle, None);
}
