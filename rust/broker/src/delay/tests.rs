//! Delivery against a real store, with the time as an argument.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rocketpy_env::{DiskFile, OpenMode};
use rocketpy_model::TopicConfig;
use rocketpy_protocol::record::RecordView;
use tokio::runtime::Handle;

use super::deliver::deliver;
use super::*;
use crate::blocking::aside;
use crate::clock_steps::Now;
use crate::put::{NewMessage, Origin, StoredAgain, put, put_and_make};
use crate::testing::{
    MOST_OF_A_MINUTE, TestBroker, add_topic, does_not_wait, message, poll_due, until, with_small_files,
};

async fn open() -> TestBroker {
    let broker = TestBroker::open(|_| {});
    add_topic(&broker, TopicConfig::new("orders", 2)).await;
    broker
}

/// Puts a message of a client, waits until it can be read, and returns when it was stored.
async fn wait_with(broker: &TestBroker, message: NewMessage<'_>) -> i64 {
    let stored = put(&broker.intake, Origin::Client, &message).unwrap();
    let bytes = broker.ground.store().record_at(stored.places.as_slice()[0]).unwrap().unwrap();
    dispatched(broker).await;
    RecordView::parse(&bytes).unwrap().stored_at_ms
}

async fn dispatched(broker: &TestBroker) {
    let end = broker.ground.store().max_physical_offset();
    until("it can be read", || broker.ground.store().dispatched_offset() >= end).await;
}

/// Delivers what is due at a time, and waits until it can be read.
async fn at(broker: &TestBroker, at_ms: i64) -> Option<i64> {
    let (owner, runtime) = (Arc::clone(broker), Handle::current());
    let next = aside(move || deliver(&owner.delays, at_ms, &runtime)).await;
    dispatched(broker).await;
    next
}

fn count(broker: &TestBroker, topic: &str, queue_id: u32) -> u64 {
    broker.ground.store().queue_bounds(topic, queue_id).max.get()
}

#[tokio::test]
async fn a_message_comes_when_its_time_is_there_and_once() {
    let broker = open().await;
    let message =
        NewMessage { queue_id: 1, ..message("orders", "TAGS\u{1}a\u{2}DELAY\u{1}3\u{2}K\u{1}v\u{2}") };
    let stored_at_ms = wait_with(&broker, message).await;
    assert_eq!(count(&broker, system::SCHEDULE_TOPIC, 2), 1);
    let due_at_ms = stored_at_ms + 10_000;
    for early in [due_at_ms - 1, stored_at_ms, stored_at_ms - 60_000] {
        assert_eq!(at(&broker, early).await, Some(due_at_ms), "the clock says {early}");
    }
    assert_eq!(count(&broker, "orders", 1), 0);
    let waiting_from = || broker.delays.state.lock().waiting_from();
    assert_eq!(waiting_from(), Some(PhysicalOffset::ZERO), "its record, which retention leaves alone");
    for _ in 0..2 {
        at(&broker, due_at_ms).await;
    }
    assert_eq!(at(&broker, due_at_ms).await, None, "nothing waits any more");
    assert_eq!(waiting_from(), Some(PhysicalOffset::ZERO), "a power cut may take the copy");
    broker.delays.write(broker.ground.store().max_physical_offset());
    assert_eq!(waiting_from(), None);
    let bytes = broker.only_record("orders", 1);
    let record = RecordView::parse(&bytes).unwrap();
    assert_eq!((record.body, record.flag, record.tag()), (b"body".as_slice(), 7, Some("a")));
    assert_eq!((record.property("K"), record.property("REAL_TOPIC")), (Some("v"), Some("orders")));
    assert_eq!((record.property("REAL_QID"), record.property("DELAY")), (Some("1"), Some("3")));
    assert_eq!((broker.delays.delivered(), broker.delays.dropped()), (1, 0));
}

#[tokio::test]
async fn levels_above_the_last_one_wait_as_long_as_it_and_the_shorter_one_comes_first() {
    let broker = open().await;
    let long = wait_with(&broker, message("orders", "DELAY\u{1}99\u{2}")).await;
    let short = wait_with(&broker, message("orders", "TIMER_DELAY_MS\u{1}5\u{2}DELAY\u{1}1\u{2}")).await;
    assert_eq!(at(&broker, short).await, Some(short + 1000));
    at(&broker, short + 1000).await;
    assert_eq!(at(&broker, short + 1000).await, Some(long + 7_200_000));
    let bytes = broker.only_record("orders", 0);
    assert_eq!(RecordView::parse(&bytes).unwrap().property("TIMER_DELAY_MS"), None);
    at(&broker, long + 7_200_000).await;
    assert_eq!(count(&broker, "orders", 0), 2);
}

#[tokio::test]
async fn progress_is_written_once_the_copies_are_durable_and_the_next_start_continues_there() {
    let broker = open().await;
    let stored_at_ms = wait_with(&broker, message("orders", "DELAY\u{1}1\u{2}")).await;
    let before = broker.ground.store().max_physical_offset();
    at(&broker, stored_at_ms + 1000).await;
    let next = || super::open(broker.ground.store(), &DelayLevels::default()).unwrap().progress.next(0).get();
    broker.delays.write(before);
    assert_eq!(next(), 0, "a power cut may take the copy");
    aside({
        let broker = Arc::clone(&broker);
        move || write_at_stop(&broker.delays)
    })
    .await;
    assert_eq!(next(), 1);
}

#[tokio::test]
async fn a_message_without_a_topic_is_counted_and_keeps_nothing_back() {
    let broker = open().await;
    add_topic(&broker, TopicConfig::new("gone", 1)).await;
    wait_with(&broker, message("gone", "DELAY\u{1}1\u{2}")).await;
    let lost_queue = NewMessage { queue_id: 1, ..message("orders", "DELAY\u{1}1\u{2}") };
    let stored_at_ms = wait_with(&broker, lost_queue).await;
    if let Some(written) = broker.ground.topics().remove("gone").unwrap() {
        written.done().await.unwrap();
    }
    let fewer = |_: Option<&TopicConfig>| Ok(TopicConfig::new("orders", 1));
    let changed = broker.ground.topics().update("orders", |_| fewer(None)).unwrap();
    changed.written.unwrap().done().await.unwrap();
    at(&broker, stored_at_ms + 1000).await;
    assert_eq!((broker.delays.delivered(), broker.delays.dropped()), (1, 1));
    assert_eq!(count(&broker, "orders", 0), 1, "its queue is gone, its topic is not");
}

#[tokio::test]
async fn a_batch_is_not_delayed() {
    let broker = open().await;
    let mut body = Vec::new();
    let item = rocketpy_protocol::batch::BatchItem { flag: 0, body: b"x", properties: b"DELAY\x013\x02" };
    item.encode(&mut body).unwrap();
    for properties in ["", "DELAY\u{1}3\u{2}"] {
        let batch = NewMessage { is_batch: true, body: &body, ..message("orders", properties) };
        let refused = put_and_make(&broker.intake, Origin::Client, &batch).await.unwrap_err();
        assert!(refused.to_string().contains("a batch cannot be delayed"), "{refused}");
    }
}

#[tokio::test]
async fn a_retry_waits_and_then_comes_to_the_topic_of_its_group() {
    let broker = open().await;
    put(&broker.intake, Origin::Client, &message("orders", "DELAY\u{1}0\u{2}")).unwrap();
    let bytes = broker.only_record("orders", 0);
    let record = RecordView::parse(&bytes).unwrap();
    let again = StoredAgain::of(&record).to("%RETRY%group", -1).delayed(4).unwrap();
    drop(again.put(&broker.intake).await.unwrap());
    dispatched(&broker).await;
    assert_eq!(count(&broker, system::SCHEDULE_TOPIC, 3), 1);
    at(&broker, i64::MAX).await;
    let bytes = broker.only_record("%RETRY%group", 0);
    assert_eq!(RecordView::parse(&bytes).unwrap().body, b"body");
}

#[tokio::test]
async fn other_levels_are_taken_once_nothing_waits_by_the_old_ones() {
    let broker = open().await;
    let levels = |text: &str| text.parse::<DelayLevels>().unwrap();
    let start = |text: &str| super::open(broker.ground.store(), &levels(text));
    let stored_at_ms = wait_with(&broker, message("orders", "DELAY\u{1}2\u{2}")).await;
    let refused = start("1s 7s").unwrap_err();
    assert!(matches!(refused, BrokerError::DelayLevels { waiting: 1, level: 2, .. }), "{refused}");
    assert!(matches!(start("5s"), Err(BrokerError::DelayLevels { level: 2, .. })), "level 2 is gone");
    assert_eq!(broker.ground.store().delay_levels(), DelayLevels::default());
    start("9s 5s").unwrap();
    start("1s 5s 10s").unwrap(); // the waiting message waits as long by both
    at(&broker, stored_at_ms + 5000).await;
    let owner = Arc::clone(&broker);
    aside(move || write_at_stop(&owner.delays)).await;
    start("1s 7s").unwrap();
    let stored_at_ms = wait_with(&broker, message("orders", "DELAY\u{1}2\u{2}")).await;
    let entries = broker.ground.store().entries(system::SCHEDULE_TOPIC, 1, 0.into(), 9).unwrap();
    let waits_ms: Vec<i64> = entries.iter().map(|entry| entry.tags_code - stored_at_ms).collect();
    assert_eq!(waits_ms[1], 7000);
    assert!(matches!(start("1s 5s"), Err(BrokerError::DelayLevels { waiting: 1, .. })));
}

#[tokio::test]
async fn a_store_of_another_broker_is_taken_with_its_levels_alone() {
    let broker = open().await;
    wait_with(&broker, message("orders", "DELAY\u{1}2\u{2}")).await;
    let root = broker.ground.store().config().root.clone();
    RealDisk.remove_file(&root.join("config/delayLevels.json")).unwrap();
    let config = broker.ground.store().config().clone();
    let open = |levels: &str| {
        let store = Store::open(rocketpy_store::StoreConfig {
            delay_levels: levels.parse().unwrap(),
            ..config.clone()
        });
        let store = store.unwrap();
        let opened = super::open(&store, &levels.parse().unwrap()).map(drop);
        let known = store.knows_its_delay_levels();
        store.shutdown().unwrap();
        (opened, known)
    };
    broker.ground.store().shutdown().unwrap();
    let (refused, known) = open("1s 7s");
    let error = refused.unwrap_err();
    assert!(matches!(error, BrokerError::DelayLevels { stored: None, level: 2, .. }) && !known, "{error}");
    let (taken, known) = open("2h 5s");
    assert!(taken.is_ok() && known, "the message waits 5 s");
    assert!(matches!(open("2h 6s").0, Err(BrokerError::DelayLevels { stored: Some(_), .. })));
}

#[tokio::test]
async fn a_damaged_time_in_the_queue_makes_nothing_early_and_blocks_nothing() {
    for bit in [0, 7, 10, 13, 20, 30, 40, 50, 62, 63] {
        let broker = open().await;
        let first = wait_with(&broker, message("orders", "DELAY\u{1}3\u{2}")).await;
        let second = wait_with(&broker, message("orders", "DELAY\u{1}3\u{2}")).await;
        flip_delivery_time(&broker, 2, 0, bit);
        assert_eq!(at(&broker, first).await, Some(first + 10_000), "bit {bit}");
        at(&broker, first + 9999).await;
        assert_eq!(count(&broker, "orders", 0), 0, "bit {bit} makes it early");
        at(&broker, second + 10_000).await;
        assert_eq!(count(&broker, "orders", 0), 2, "bit {bit} blocks the level");
        assert_eq!(broker.delays.damaged_levels.load(Ordering::Relaxed), 4);
    }
}

/// Flips a bit of the delivery time in a queue entry of a level, which counts from 0.
fn flip_delivery_time(broker: &TestBroker, level: u32, number: u64, bit: u32) {
    let entry = broker.ground.store().entries(system::SCHEDULE_TOPIC, level, number.into(), 1).unwrap()[0];
    let queue = broker.ground.store().config().root.join("consumequeue").join(system::SCHEDULE_TOPIC);
    let path = queue.join(level.to_string()).join("00000000000000000000");
    let at = number * 20 + 12;
    let is_written = || {
        let queue = RealDisk.read(&path, 1 << 30).unwrap_or_default();
        queue.get(at as usize..).is_some_and(|rest| rest.starts_with(&entry.tags_code.to_be_bytes()))
    };
    let started = std::time::Instant::now();
    while !is_written() {
        assert!(started.elapsed() < Duration::from_secs(60), "the entry is not written");
        std::thread::yield_now(); // dispatch writes entries a moment after they are readable
    }
    let file = RealDisk.open_file(&path, OpenMode::Write).unwrap();
    let damaged = entry.tags_code ^ (1 << bit);
    file.write_all_at(at, &damaged.to_be_bytes()).unwrap();
}

#[tokio::test]
async fn a_message_that_cannot_be_read_keeps_nothing_back_and_is_tried_for_a_minute() {
    for is_restored in [true, false] {
        let broker = TestBroker::open(with_small_files);
        for topic in ["orders", "filler"] {
            add_topic(&broker, TopicConfig::new(topic, 1)).await;
        }
        broker.fill();
        let at_first = broker.ground.store().max_physical_offset();
        wait_with(&broker, message("orders", "DELAY\u{1}1\u{2}")).await;
        broker.fill();
        let stored_at_ms = wait_with(&broker, message("orders", "DELAY\u{1}1\u{2}")).await;
        let cut = broker.cut_log(at_first);
        let due_at_ms = stored_at_ms + 1000;
        at(&broker, due_at_ms).await;
        assert_eq!((broker.delays.delivered(), broker.delays.dropped()), (1, 0));
        let written = || {
            broker.delays.write(broker.ground.store().max_physical_offset());
            super::open(broker.ground.store(), &DelayLevels::default()).unwrap().progress.next(0).get()
        };
        assert_eq!(written(), 0, "a start tries it again");
        assert_eq!(broker.delays.state.lock().waiting_from(), Some(at_first));
        let next = at(&broker, due_at_ms).await;
        assert_eq!(next, Some(due_at_ms + 1000), "it is tried again");
        if is_restored {
            cut.restore();
            broker.skip_time(Duration::from_secs(1));
            at(&broker, due_at_ms).await;
            assert_eq!((broker.delays.delivered(), broker.delays.dropped()), (2, 0));
            broker.delays.write(at_first);
            assert_eq!(broker.delays.state.lock().waiting_from(), Some(at_first), "the copy is not durable");
        } else {
            for second in 0..60 {
                assert!(second > MOST_OF_A_MINUTE || broker.delays.dropped() == 0);
                broker.skip_time(Duration::from_secs(1));
                at(&broker, due_at_ms).await;
            }
            assert_eq!((broker.delays.delivered(), broker.delays.dropped()), (1, 1));
        }
        assert_eq!(written(), 2);
        assert_eq!(broker.delays.state.lock().waiting_from(), None);
        assert_eq!(at(&broker, due_at_ms).await, None, "nothing waits");
    }
}

#[tokio::test]
async fn nobody_on_the_runtime_waits_for_a_delivery_that_waits_for_the_disk() {
    let broker = open().await;
    wait_with(&broker, message("orders", "DELAY\u{1}3\u{2}")).await;
    at(&broker, 0).await;
    let (owner, runtime) = (Arc::clone(&broker), Handle::current());
    let _delivery = broker.delays.state.lock();
    does_not_wait(move || {
        let _on = runtime.enter();
        poll_due(&DelayDelivery::new(owner.delays.clone()));
        assert_eq!(owner.delays.waiting_from().len(), LEVELS as usize);
        assert!(owner.delays.content().offset_table.is_empty());
    });
}

const DAY_MS: i64 = 86_400_000;

#[tokio::test]
async fn a_message_stored_with_a_clock_ahead_waits_for_its_level_and_keeps_no_other_back() {
    let broker = open().await;
    let delayed = message("orders", "DELAY\u{1}3\u{2}");
    wait_with(&broker, delayed).await;
    let now_ms = wait_with(&broker, delayed).await - DAY_MS; // the clock was set back, and then the broker started
    for later_ms in [0, 5000, 9999] {
        assert_eq!(at(&broker, now_ms + later_ms).await, Some(now_ms + 10_000), "after {later_ms} ms");
    }
    assert_eq!(count(&broker, "orders", 0), 0);
    at(&broker, now_ms + 10_000).await;
    assert_eq!(count(&broker, "orders", 0), 2);
}

#[tokio::test]
async fn a_level_is_as_long_as_it_says_while_the_clock_steps_forth_and_back() {
    let broker = open().await;
    let stored_at_ms = wait_with(&broker, message("orders", "DELAY\u{1}3\u{2}")).await;
    let due_at_ms = stored_at_ms + 10_000;
    let observe = |later_ms, ahead_ms| {
        let now = Now { wall_ms: stored_at_ms + later_ms + ahead_ms, steady_ms: later_ms };
        let end = broker.store().max_physical_offset();
        broker.ground.clock_steps().observe(|| (end, now, end));
    };
    observe(0, 0);
    observe(1000, DAY_MS);
    assert_eq!(at(&broker, stored_at_ms + DAY_MS + 1000).await, Some(due_at_ms + DAY_MS));
    observe(4000, -DAY_MS);
    assert_eq!(at(&broker, stored_at_ms - DAY_MS + 4000).await, Some(due_at_ms - DAY_MS));
    observe(5000, 0);
    assert_eq!(at(&broker, stored_at_ms + 5000).await, Some(due_at_ms));
    assert_eq!(count(&broker, "orders", 0), 0);
    at(&broker, due_at_ms).await;
    assert_eq!(count(&broker, "orders", 0), 1);
}

#[tokio::test]
async fn a_message_with_the_time_of_an_earlier_one_does_not_come_early_when_the_clock_is_set_ahead() {
    let broker = open().await;
    let stored_at_ms = wait_with(&broker, message("orders", "DELAY\u{1}3\u{2}")).await;
    let observe = |wall_ms, steady_ms| {
        let end = broker.store().max_physical_offset();
        broker.ground.clock_steps().observe(|| (end, Now { wall_ms, steady_ms }, end));
    };
    let held_ms = 20_000; // the clock had been set back by that: the store repeats the time of the record before it
    observe(stored_at_ms - held_ms, 0);
    observe(stored_at_ms - held_ms + 30_100, 100);
    let due_at_ms = stored_at_ms + 30_000 + 10_000;
    assert_eq!(at(&broker, stored_at_ms - held_ms + 30_100).await, Some(due_at_ms));
    assert_eq!(count(&broker, "orders", 0), 0);
    at(&broker, due_at_ms).await;
    assert_eq!(count(&broker, "orders", 0), 1);
}

#[tokio::test]
async fn messages_stored_with_a_clock_ahead_wait_for_their_level_while_the_clock_is_set() {
    let broker = open().await;
    let delayed = message("orders", "DELAY\u{1}3\u{2}");
    let start_ms = wait_with(&broker, delayed).await - DAY_MS; // the clock was set back, and then the broker started
    let observe = |wall_ms, steady_ms| {
        let end = broker.store().max_physical_offset();
        broker.ground.clock_steps().observe(|| (end, Now { wall_ms, steady_ms }, end));
    };
    observe(start_ms, 0);
    assert_eq!(at(&broker, start_ms).await, Some(start_ms + 10_000));
    let start_ms = start_ms + 30_000; // it is set ahead
    observe(start_ms + 100, 100);
    assert_eq!(at(&broker, start_ms + 100).await, Some(start_ms + 10_000));
    wait_with(&broker, delayed).await; // a second message, between two steps that were not noticed
    assert_eq!(at(&broker, start_ms + 10_000).await, Some(start_ms + 20_000), "of the second one");
    assert_eq!(count(&broker, "orders", 0), 1);
    at(&broker, start_ms + 20_000).await;
    assert_eq!(count(&broker, "orders", 0), 2);
}
