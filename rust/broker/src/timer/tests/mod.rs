//! Timers against a real store, with the time as an argument.

use std::sync::Arc;

use rocketpy_env::{Disk, RealDisk, now_ms};
use rocketpy_model::{TopicConfig, property};
use rocketpy_store::timer::{ROLL_MS, read_checkpoint};
use tokio::runtime::Handle;

use super::deliver::turn;
use super::open::{Reopened, reopen};
use super::pending::slot_of;
use super::settle::settle;
use super::*;
use crate::blocking::aside;
use crate::put::{NewMessage, Origin, put};
use crate::testing::{TestBroker, add_topic, does_not_wait, message, poll_due, until, with_small_files};

mod files;
mod recall;
mod unreadable;

const HOUR_MS: i64 = 3_600_000;

async fn open() -> TestBroker {
    let broker = TestBroker::open(|config| config.max_timer_delay = Duration::from_secs(864_000));
    add_topic(&broker, TopicConfig::new("orders", 2)).await;
    broker
}

/// Text of the properties of a message that is due at a time.
fn due(at_ms: i64, key: &str) -> String {
    format!("TIMER_DELIVER_MS\u{1}{at_ms}\u{2}UNIQ_KEY\u{1}{key}\u{2}")
}

async fn wait_with(broker: &TestBroker, message: NewMessage<'_>) {
    put(&broker.intake, Origin::Client, &message).unwrap();
    dispatched(broker).await;
}

async fn dispatched(broker: &TestBroker) {
    let end = broker.ground.store().max_physical_offset();
    until("it can be read", || broker.ground.store().dispatched_offset() >= end).await;
}

/// Does all there is to do at a time, and waits until it can be read.
async fn at(broker: &TestBroker, at_ms: i64) {
    let (owner, runtime) = (Arc::clone(broker), Handle::current());
    aside(move || while turn(&owner.timers, at_ms, &runtime) {}).await;
    dispatched(broker).await;
}

/// Writes the progress.
async fn settled(broker: &TestBroker) {
    let owner = Arc::clone(broker);
    aside(move || {
        let end = owner.ground.store().max_physical_offset();
        owner.ground.store().wait_flushed(end, Duration::from_secs(60)).unwrap();
        settle(&owner.timers, end);
    })
    .await;
}

/// A start of the broker: its timers take the place of those of the last run.
fn restart(broker: &TestBroker) {
    let Reopened { state, written, .. } = reopen(broker.ground.store(), broker.intake.recalls()).unwrap();
    broker.timers.waiting.store(state.retained.count(), Ordering::Relaxed);
    *broker.timers.written.lock() = written;
    *broker.timers.seen.lock() = state.seen();
    *broker.timers.state.lock() = state;
}

/// The unique keys of a topic's messages, of all its queues.
fn keys(broker: &TestBroker, topic: &str) -> Vec<String> {
    let mut keys = Vec::new();
    for queue_id in 0..2 {
        let entries = broker.ground.store().entries(topic, queue_id, QueueOffset::ZERO, 1000).unwrap();
        for entry in entries {
            let bytes = broker.ground.store().record_at(entry.physical_offset).unwrap().unwrap();
            let record = RecordView::parse(&bytes).unwrap();
            keys.push(record.property(property::UNIQUE_KEY).unwrap().to_owned());
        }
    }
    keys
}

/// A second in the future, and what is sent for it.
async fn second(broker: &TestBroker, after_ms: i64) -> i64 {
    let base_ms = slot_of(now_ms() + after_ms) + SLOT_MS;
    for (offset_ms, key) in [(700, "c"), (1, "a"), (350, "b"), (1000, "d")] {
        wait_with(broker, message("orders", &due(base_ms + offset_ms, key))).await;
    }
    base_ms
}

/// A store, and [`second`] in it, all of which was stored before it began: a busy machine may take longer than a second for that.
async fn second_in_time(after_ms: i64) -> (TestBroker, i64) {
    loop {
        let broker = open().await;
        let base_ms = second(&broker, after_ms).await;
        if now_ms() < base_ms {
            return (broker, base_ms);
        }
    }
}

#[test]
fn the_slot_is_the_last_whole_second_before_the_time() {
    assert_eq!([slot_of(5000), slot_of(5001), slot_of(5999), slot_of(6000)], [4000, 5000, 5000, 5000]);
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_come_at_their_millisecond_in_order_and_once() {
    for after_ms in [0, HOUR_MS] {
        let (broker, base_ms) = second_in_time(after_ms).await;
        at(&broker, base_ms).await;
        assert!(keys(&broker, "orders").is_empty(), "none is due");
        for (offset_ms, expected) in [(1, "a"), (349, "a"), (350, "ab"), (999, "abc"), (1000, "abcd")] {
            at(&broker, base_ms + offset_ms).await;
            let mut came = keys(&broker, "orders");
            came.sort();
            assert_eq!(came.concat(), expected, "{after_ms} {offset_ms}");
        }
        at(&broker, base_ms + HOUR_MS).await;
        assert_eq!(keys(&broker, "orders").len(), 4);
        assert_eq!((broker.timers.delivered(), broker.timers.dropped()), (4, 0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_messages_of_a_second_that_is_over_come_in_the_order_of_their_times() {
    let broker = open().await;
    let base_ms = slot_of(now_ms() + HOUR_MS);
    for number in 0..600 {
        let properties = due(base_ms + number, &format!("{number:04}"));
        put(&broker.intake, Origin::Client, &message("orders", &properties)).unwrap();
    }
    dispatched(&broker).await;
    at(&broker, base_ms + 2 * SLOT_MS).await;
    let came = keys(&broker, "orders");
    assert_eq!(came.len(), 600);
    assert!(came.is_sorted(), "{came:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_comes_with_what_it_was_sent_with_and_its_times() {
    let broker = open().await;
    let before_ms = now_ms();
    let properties = "TAGS\u{1}t\u{2}TIMER_DELAY_SEC\u{1}60\u{2}UNIQ_KEY\u{1}k\u{2}";
    wait_with(&broker, NewMessage { queue_id: 1, reconsume_times: 3, ..message("orders", properties) }).await;
    let after_ms = now_ms();
    at(&broker, before_ms + 59_999).await;
    assert!(keys(&broker, "orders").is_empty());
    at(&broker, after_ms + 60_000).await;
    let bytes = broker.only_record("orders", 1);
    let record = RecordView::parse(&bytes).unwrap();
    let number = |name: &str| record.property(name).unwrap().parse::<i64>().unwrap();
    assert_eq!((record.property("TAGS"), record.reconsume_times), (Some("t"), 3));
    assert!((before_ms + 60_000..=after_ms + 60_000).contains(&number("TIMER_DELIVER_MS")));
    assert_eq!(number("TIMER_OUT_MS"), slot_of(number("TIMER_DELIVER_MS")));
    assert_eq!(number("TIMER_DEQUEUE_MS"), after_ms + 60_000);
    assert!(number("TIMER_ENQUEUE_MS") <= number("TIMER_DEQUEUE_MS"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_due_already_or_has_waited_is_stored_at_once() {
    let broker = open().await;
    let past = due(now_ms() - 1, "past");
    let waited = format!("TIMER_OUT_MS\u{1}5\u{2}{}", due(now_ms() + HOUR_MS, "waited"));
    let none = "TIMER_DELAY_MS\u{1}0\u{2}UNIQ_KEY\u{1}none\u{2}";
    for properties in [&*past, &waited, none] {
        wait_with(&broker, message("orders", properties)).await;
    }
    assert_eq!(keys(&broker, "orders").len(), 3);
    assert_eq!(keys(&broker, system::TIMER_TOPIC).len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_stop_makes_nothing_late_for_ever() {
    let broker = open().await;
    let base_ms = second(&broker, 10_000).await;
    at(&broker, now_ms()).await;
    settled(&broker).await;
    // As if the broker had stood still for three weeks: the wheel has turned more than once.
    let root = broker.ground.store().config().root.clone();
    let mut checkpoint = read_checkpoint(&RealDisk, &root).unwrap().unwrap();
    checkpoint.read_ms -= 21 * 24 * HOUR_MS;
    rocketpy_store::timer::write_checkpoint(&RealDisk, &root, &checkpoint).unwrap();
    restart(&broker);
    at(&broker, base_ms + 2000).await;
    assert_eq!(keys(&broker, "orders").len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_next_week_is_stored_again_on_the_way() {
    let broker = open().await;
    let start_ms = now_ms();
    let due_ms = start_ms + 7 * 24 * HOUR_MS;
    wait_with(&broker, message("orders", &due(due_ms, "far"))).await;
    at(&broker, start_ms).await;
    assert_eq!(broker.timers.state.lock().waiting_from(broker.ground.store()), Some(PhysicalOffset::ZERO));
    // The store's clock stands still here: the copy would be stored again and again.
    while keys(&broker, system::TIMER_TOPIC).len() < 2 {
        let (owner, runtime) = (Arc::clone(&broker), Handle::current());
        aside(move || turn(&owner.timers, start_ms + ROLL_MS + 2000, &runtime)).await;
        dispatched(&broker).await;
    }
    assert_eq!(keys(&broker, "orders").len(), 0);
    let entries = broker.ground.store().entries(system::TIMER_TOPIC, 0, QueueOffset(1), 1).unwrap();
    let bytes = broker.ground.store().record_at(entries[0].physical_offset).unwrap().unwrap();
    let record = RecordView::parse(&bytes).unwrap();
    assert_eq!(record.property("TIMER_ROLL_TIMES"), Some("1"));
    assert_eq!(TimerMessage::of(&record).unwrap().due_at_ms, due_ms);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_leaves_no_room_for_further_properties_is_stored_again_and_comes() {
    let broker = open().await;
    let start_ms = now_ms();
    for (key, after_ms) in [("near", HOUR_MS), ("far", 7 * 24 * HOUR_MS)] {
        let text =
            |length: usize| format!("big\u{1}{}\u{2}{}", "x".repeat(length), due(start_ms + after_ms, key));
        let is_taken =
            |length: usize| put(&broker.intake, Origin::Broker, &message("orders", &text(length))).is_ok();
        assert!((32_000..32_767).rev().any(is_taken), "the longest that is taken");
    }
    dispatched(&broker).await;
    at(&broker, start_ms + HOUR_MS).await;
    assert_eq!(keys(&broker, "orders"), ["near"]);
    while keys(&broker, system::TIMER_TOPIC).len() < 3 {
        let (owner, runtime) = (Arc::clone(&broker), Handle::current());
        aside(move || turn(&owner.timers, start_ms + ROLL_MS + 2000, &runtime)).await;
        dispatched(&broker).await;
    }
    assert_eq!(broker.timers.dropped(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_comes_early_by_a_clock_that_is_set_back() {
    let broker = open().await;
    let start_ms = now_ms();
    let base_ms = second(&broker, 10_000).await;
    at(&broker, base_ms + 2000).await;
    assert_eq!(keys(&broker, "orders").len(), 4);
    let due_ms = start_ms + 5000; // before the slots that are done
    wait_with(&broker, message("orders", &due(due_ms, "back"))).await;
    at(&broker, start_ms).await;
    at(&broker, due_ms - 1).await;
    assert_eq!(keys(&broker, "orders").len(), 4);
    settled(&broker).await;
    restart(&broker);
    at(&broker, due_ms - 1).await;
    assert_eq!(keys(&broker, "orders").len(), 4);
    at(&broker, due_ms).await;
    assert_eq!(keys(&broker, "orders").len(), 5, "it waits over a start as well");
    wait_with(&broker, message("orders", &due(due_ms + 1, "due"))).await;
    at(&broker, due_ms + 2000).await;
    assert_eq!(keys(&broker, "orders").len(), 6);
    // What came before the clock was set back does not come again, however often the broker starts meanwhile.
    for offset_ms in [-9000, 0, 500, 2000] {
        settled(&broker).await;
        restart(&broker);
        at(&broker, base_ms + offset_ms).await;
        assert_eq!(keys(&broker, "orders").len(), 6, "{offset_ms}");
    }
    settled(&broker).await;
    assert_eq!(broker.timers.waiting(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn timers_that_are_due_soon_do_not_push_out_what_came_before_the_clock_was_set_back() {
    let broker = open().await;
    let start_ms = slot_of(now_ms()) + SLOT_MS;
    let base_ms = second(&broker, 30_000).await;
    at(&broker, base_ms + 2000).await;
    for number in (1..=6).rev() {
        // Each is due before what the ones before it have read of the wheel.
        wait_with(&broker, message("orders", &due(start_ms + number * 200, "soon"))).await;
        at(&broker, start_ms).await;
    }
    settled(&broker).await;
    restart(&broker);
    at(&broker, base_ms + 2000).await;
    assert_eq!(keys(&broker, "orders").len(), 4 + 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_set_back_again_and_again_repeats_nothing() {
    let broker = open().await;
    let base_ms = slot_of(now_ms() + 20_000) + SLOT_MS;
    for step in (1..=3).rev() {
        let back_ms = base_ms + step * 5000; // each time the clock is set back by more
        for (offset_ms, key) in [(1, "first"), (900, "second"), (3000, "waits")] {
            wait_with(&broker, message("orders", &due(back_ms + offset_ms, key))).await;
        }
        at(&broker, back_ms + 400).await;
        at(&broker, back_ms + 1000).await;
        settled(&broker).await;
        restart(&broker);
        at(&broker, back_ms + 1000).await;
        assert_eq!(keys(&broker, "orders").len() as i64, (4 - step) * 2, "{step}");
    }
    at(&broker, base_ms + 60_000).await;
    assert_eq!(keys(&broker, "orders").len(), 9);
}

/// One turn: it takes what was sent since the last one, and delivers nothing of that.
async fn taken_at(broker: &TestBroker, at_ms: i64) {
    let (owner, runtime) = (Arc::clone(broker), Handle::current());
    aside(move || turn(&owner.timers, at_ms, &runtime)).await;
}

/// A second in the future. Clocks are in use that are several seconds past it.
async fn second_of_a_clock_that_was_ahead(broker: &TestBroker, ahead_ms: i64) -> i64 {
    let base_ms = slot_of(now_ms() + 60_000) + SLOT_MS;
    at(broker, base_ms + ahead_ms).await;
    base_ms
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_taken_late_while_the_clock_was_ahead_are_delivered_once_over_a_restart() {
    let broker = open().await;
    let base_ms = second_of_a_clock_that_was_ahead(&broker, 6000).await;
    for (offset_ms, key) in [(1200, "b"), (0, "a")] {
        wait_with(&broker, message("orders", &due(base_ms + offset_ms, key))).await;
    }
    taken_at(&broker, base_ms + 6000).await;
    for (offset_ms, count) in [(0, 1), (1199, 1), (1200, 2), (9000, 2)] {
        at(&broker, base_ms + offset_ms).await;
        assert_eq!(keys(&broker, "orders").len(), count, "at {offset_ms}");
        settled(&broker).await;
        restart(&broker);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_taken_late_whose_slot_is_not_read_again_is_not_lost() {
    let broker = open().await;
    let base_ms = second_of_a_clock_that_was_ahead(&broker, 6000).await;
    wait_with(&broker, message("orders", &due(base_ms + 1200, "late"))).await;
    taken_at(&broker, base_ms + 6000).await;
    for (offset_ms, key) in [(500, "first"), (900, "second")] {
        wait_with(&broker, message("orders", &due(base_ms + offset_ms, key))).await;
    }
    for (offset_ms, count) in [(500, 1), (900, 2), (6000, 3), (9000, 3)] {
        at(&broker, base_ms + offset_ms).await;
        assert_eq!(keys(&broker, "orders").len(), count, "at {offset_ms}");
        settled(&broker).await;
        restart(&broker);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_taken_late_is_delivered_once_though_the_slots_before_it_are_read_first() {
    let broker = open().await;
    let base_ms = second_of_a_clock_that_was_ahead(&broker, 9000).await;
    wait_with(&broker, message("orders", &due(base_ms + 1200, "late"))).await;
    taken_at(&broker, base_ms + 9000).await;
    wait_with(&broker, message("orders", &due(base_ms + 1500, "soon"))).await;
    at(&broker, base_ms).await;
    for (offset_ms, count) in [(1200, 1), (1201, 1), (1202, 1), (1500, 2), (3000, 2), (9000, 2)] {
        at(&broker, base_ms + offset_ms).await;
        assert_eq!(keys(&broker, "orders").len(), count, "at {offset_ms}");
        settled(&broker).await;
        restart(&broker);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_whose_topic_is_gone_is_dropped_and_counted() {
    let broker = open().await;
    let base_ms = second(&broker, 10_000).await;
    broker.ground.topics().remove("orders").unwrap().unwrap().done().await.unwrap();
    at(&broker, base_ms + 2000).await;
    assert_eq!((broker.timers.delivered(), broker.timers.dropped()), (0, 4));
    settled(&broker).await;
    assert_eq!(broker.timers.waiting(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_on_the_runtime_waits_for_a_turn_that_waits_for_the_disk() {
    let broker = open().await;
    let base_ms = second(&broker, HOUR_MS).await;
    at(&broker, base_ms + 1).await; // one is delivered, three wait
    let entries = broker.ground.store().entries(system::TIMER_TOPIC, 0, QueueOffset::ZERO, 1).unwrap();
    let bytes = broker.ground.store().record_at(entries[0].physical_offset).unwrap().unwrap();
    let (owner, runtime) = (Arc::clone(&broker), Handle::current());
    let _turn = broker.timers.state.lock();
    does_not_wait(move || {
        let _on = runtime.enter();
        poll_due(&TimerDelivery::new(owner.timers.clone()));
        poll_due(&TimerProgress::new(owner.timers.clone()));
        assert!(owner.timers.is_waiting(&RecordView::parse(&bytes).unwrap()));
        assert_eq!(owner.timers.waiting(), 4);
    });
}
