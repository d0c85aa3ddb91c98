//! Timers against a real store, with the time as an argument.

use std::sync::Arc;

use rocketpy_env::{Disk, DiskFile, OpenMode, RealDisk, now_ms};
use rocketpy_model::{TopicConfig, property};
use rocketpy_protocol::code::response;
use rocketpy_store::timer::{ROLL_MS, read_checkpoint};
use tokio::runtime::Handle;

use super::deliver::turn;
use super::pending::MAX_PENDING;
use super::recalled::READ_AHEAD_RECALLS;
use super::settle::settle;
use super::*;
use crate::call::aside;
use crate::put::{NewMessage, NotPut, Origin, put};
use crate::testing::{TestShared, add_topic, does_not_wait, message, poll_due, until, with_small_files};

const HOUR_MS: i64 = 3_600_000;

async fn open() -> TestShared {
    let shared = TestShared::open(|config| config.max_timer_delay = Duration::from_secs(864_000));
    add_topic(&shared, TopicConfig::new("orders", 2)).await;
    shared
}

/// Text of the properties of a message that is due at a time.
fn due(at_ms: i64, key: &str) -> String {
    format!("TIMER_DELIVER_MS\u{1}{at_ms}\u{2}UNIQ_KEY\u{1}{key}\u{2}")
}

async fn wait_with(shared: &TestShared, message: NewMessage<'_>) {
    put(shared, Origin::Client, &message).unwrap();
    dispatched(shared).await;
}

async fn dispatched(shared: &TestShared) {
    let end = shared.store.max_physical_offset();
    until("it can be read", || shared.store.dispatched_offset() >= end).await;
}

/// Does all there is to do at a time, and waits until it can be read.
async fn at(shared: &TestShared, at_ms: i64) {
    let (owner, runtime) = (Arc::clone(shared), Handle::current());
    aside(move || while turn(&owner, at_ms, &runtime) {}).await;
    dispatched(shared).await;
}

/// Writes the progress.
async fn settled(shared: &TestShared) {
    let owner = Arc::clone(shared);
    aside(move || {
        let end = owner.store.max_physical_offset();
        owner.store.wait_flushed(end, Duration::from_secs(60)).unwrap();
        settle(&owner, end);
    })
    .await;
}

/// As a start of the broker finds the timers.
fn opened_again(shared: &TestShared) -> Timers {
    Timers::open(&shared.store).unwrap()
}

/// A start of the broker: its timers take the place of those of the last run.
fn restart(shared: &TestShared) {
    let again = opened_again(shared);
    shared.timers.waiting.store(again.waiting(), Ordering::Relaxed);
    *shared.timers.written.lock() = again.checkpoint();
    let state = again.state.into_inner();
    *shared.timers.seen.lock() = state.seen();
    *shared.timers.state.lock() = state;
}

/// The unique keys of a topic's messages, of all its queues.
fn keys(shared: &TestShared, topic: &str) -> Vec<String> {
    let mut keys = Vec::new();
    for queue_id in 0..2 {
        let entries = shared.store.entries(topic, queue_id, QueueOffset::ZERO, 1000).unwrap();
        for entry in entries {
            let bytes = shared.store.record_at(entry.physical_offset).unwrap().unwrap();
            let record = RecordView::parse(&bytes).unwrap();
            keys.push(record.property(property::UNIQUE_KEY).unwrap().to_owned());
        }
    }
    keys
}

/// A second in the future, and what is sent for it.
async fn second(shared: &TestShared, after_ms: i64) -> i64 {
    let base_ms = slot_of(now_ms() + after_ms) + SLOT_MS;
    for (offset_ms, key) in [(700, "c"), (1, "a"), (350, "b"), (1000, "d")] {
        wait_with(shared, message("orders", &due(base_ms + offset_ms, key))).await;
    }
    base_ms
}

#[test]
fn the_slot_is_the_last_whole_second_before_the_time() {
    assert_eq!([slot_of(5000), slot_of(5001), slot_of(5999), slot_of(6000)], [4000, 5000, 5000, 5000]);
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_come_at_their_millisecond_in_order_and_once() {
    for after_ms in [0, HOUR_MS] {
        let shared = open().await;
        let base_ms = second(&shared, after_ms).await;
        at(&shared, base_ms).await;
        assert!(keys(&shared, "orders").is_empty(), "none is due");
        for (offset_ms, expected) in [(1, "a"), (349, "a"), (350, "ab"), (999, "abc"), (1000, "abcd")] {
            at(&shared, base_ms + offset_ms).await;
            let mut came = keys(&shared, "orders");
            came.sort();
            assert_eq!(came.concat(), expected, "{after_ms} {offset_ms}");
        }
        at(&shared, base_ms + HOUR_MS).await;
        assert_eq!(keys(&shared, "orders").len(), 4);
        assert_eq!((shared.timers.delivered(), shared.timers.dropped()), (4, 0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_comes_with_what_it_was_sent_with_and_its_times() {
    let shared = open().await;
    let before_ms = now_ms();
    let properties = "TAGS\u{1}t\u{2}TIMER_DELAY_SEC\u{1}60\u{2}UNIQ_KEY\u{1}k\u{2}";
    wait_with(&shared, NewMessage { queue_id: 1, reconsume_times: 3, ..message("orders", properties) }).await;
    let after_ms = now_ms();
    at(&shared, before_ms + 59_999).await;
    assert!(keys(&shared, "orders").is_empty());
    at(&shared, after_ms + 60_000).await;
    let bytes = shared.only_record("orders", 1);
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
    let shared = open().await;
    let past = due(now_ms() - 1, "past");
    let waited = format!("TIMER_OUT_MS\u{1}5\u{2}{}", due(now_ms() + HOUR_MS, "waited"));
    let none = "TIMER_DELAY_MS\u{1}0\u{2}UNIQ_KEY\u{1}none\u{2}";
    for properties in [&*past, &waited, none] {
        wait_with(&shared, message("orders", properties)).await;
    }
    assert_eq!(keys(&shared, "orders").len(), 3);
    assert_eq!(keys(&shared, system::TIMER_TOPIC).len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_goes_on_where_the_progress_was_written() {
    let shared = open().await;
    let base_ms = second(&shared, HOUR_MS).await;
    at(&shared, now_ms()).await;
    settled(&shared).await;
    restart(&shared);
    assert_eq!(shared.timers.waiting(), 4);
    at(&shared, base_ms + 400).await;
    restart(&shared); // a kill: the slot is not done
    at(&shared, base_ms + 400).await;
    assert_eq!(keys(&shared, "orders").len(), 4, "a and b came twice");
    at(&shared, base_ms + 3000).await;
    settled(&shared).await;
    restart(&shared);
    at(&shared, base_ms + HOUR_MS).await;
    assert_eq!(keys(&shared, "orders").len(), 6, "nothing comes after it was written");
    assert_eq!(shared.timers.waiting(), 0);
    assert_eq!(shared.timers.state.lock().waiting_from(&shared.store), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_of_the_files_is_made_from_the_topic() {
    let shared = open().await;
    let root = shared.store.config().root.clone();
    let first_ms = second(&shared, 10_000).await;
    let second_ms = second(&shared, HOUR_MS).await;
    at(&shared, first_ms + 2000).await;
    settled(&shared).await;
    let slots = |timers: &Timers| {
        let state = timers.state.lock();
        let mut found = Vec::new();
        let mut from_ms = state.read_ms();
        while let Some(slot_ms) = state.files.next_used(from_ms, second_ms + HOUR_MS).unwrap() {
            let mut position = state.files.chain(slot_ms).unwrap().position();
            while let Some(unit) = state.files.unit(position).unwrap() {
                found.push((slot_ms, unit.physical_offset));
                position = unit.previous;
            }
            from_ms = slot_ms + SLOT_MS;
        }
        found
    };
    let whole = slots(&shared.timers);
    assert_eq!(whole.len(), 4);
    let log = root.join("timerlog");
    for damage in ["wheel", "log", "unit", "chain", "nothing"] {
        match damage {
            "wheel" => RealDisk.remove_file(&root.join("timerwheel")).unwrap(),
            "log" => RealDisk.remove_dir_all(&log).unwrap(),
            "unit" => {
                let path = log.join("00000000000000000000");
                let mut bytes = RealDisk.read(&path, 1 << 30).unwrap();
                bytes[52] = 9;
                RealDisk.replace(&path, &bytes).unwrap();
            }
            "chain" => lead_past_the_unit_before(&shared, 3),
            _ => {}
        }
        restart(&shared);
        at(&shared, first_ms + 2000).await;
        assert_eq!(slots(&shared.timers), whole, "{damage}");
        assert_eq!(keys(&shared, "orders").len(), 4, "{damage}: what was delivered does not come again");
        settled(&shared).await;
    }
    at(&shared, second_ms + 1000).await;
    assert_eq!(keys(&shared, "orders").len(), 8);
}

/// Damages a unit of the log of timers: it names the unit before the one that it named.
fn lead_past_the_unit_before(shared: &TestShared, number: u64) {
    let path = shared.store.config().root.join("timerlog").join("00000000000000000000");
    let file = RealDisk.open_file(&path, OpenMode::Write).unwrap();
    let mut bytes = [0; TimerUnit::BYTES];
    file.read_exact_at(number * TimerUnit::BYTES as u64, &mut bytes).unwrap();
    let unit = TimerUnit::decode(&bytes).unwrap();
    let damaged = TimerUnit { previous: unit.previous - TimerUnit::BYTES as i64, ..unit };
    file.write_all_at(number * TimerUnit::BYTES as u64, &damaged.encode()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_that_is_damaged_while_the_broker_runs_is_made_anew_from_the_topic() {
    let shared = open().await;
    let first_ms = second(&shared, 10_000).await;
    let second_ms = second(&shared, HOUR_MS).await;
    at(&shared, first_ms + 2000).await;
    lead_past_the_unit_before(&shared, 6); // past message a of the second slot
    let recall = format!("TIMER_DEL_UNIQKEY\u{1}b\u{2}{}", due(second_ms + 350, "b"));
    wait_with(&shared, message("orders", &recall)).await;
    at(&shared, second_ms).await; // the slot is read
    settled(&shared).await;
    shared.timers.state.lock().pauses = Pauses::default();
    for (offset_ms, expected) in [(1, "aabcd"), (999, "aabccd"), (1000, "aabccdd")] {
        at(&shared, second_ms + offset_ms).await;
        let mut came = keys(&shared, "orders");
        came.sort();
        assert_eq!(came.concat(), expected);
    }
    assert_eq!((shared.timers.recalled(), shared.timers.dropped()), (1, 0));
    let hash = hash_code("orders");
    assert_eq!(shared.timers.counts.of(hash), None, "nothing waits any more");
    settled(&shared).await;
    assert_eq!(shared.timers.waiting(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_checkpoint_everything_comes_again_and_nothing_is_lost() {
    let shared = open().await;
    let base_ms = second(&shared, 10_000).await;
    at(&shared, base_ms + 2000).await;
    settled(&shared).await;
    let root = shared.store.config().root.clone();
    for name in ["config/timercheck", "config/timercheck.bak"] {
        drop(RealDisk.remove_file(&root.join(name)));
    }
    restart(&shared);
    at(&shared, base_ms + 2000).await;
    assert_eq!(keys(&shared, "orders").len(), 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_checkpoint_is_not_believed() {
    let shared = open().await;
    let base_ms = second(&shared, HOUR_MS).await;
    for _ in 0..2 {
        wait_with(&shared, message("orders", &due(base_ms + 9000, "later"))).await; // so that there is progress
        at(&shared, now_ms()).await;
        settled(&shared).await; // the second time there is a backup
    }
    let path = shared.store.config().root.join("config/timercheck");
    let mut bytes = RealDisk.read(&path, 1 << 20).unwrap();
    bytes[4] ^= 0x40; // twelve days later
    RealDisk.replace(&path, &bytes).unwrap();
    restart(&shared);
    for (offset_ms, count) in [(1000, 4), (9000, 6)] {
        at(&shared, base_ms + offset_ms).await;
        assert_eq!(keys(&shared, "orders").len(), count);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_goes_on_within_the_second() {
    let shared = open().await;
    let base_ms = second(&shared, 10_000).await;
    wait_with(&shared, message("orders", &due(base_ms + 2500, "e"))).await;
    let mut came = Vec::new();
    for (offset_ms, expected) in [(350, "ab"), (351, "ab"), (700, "abc"), (1000, "abcd"), (2500, "abcde")] {
        at(&shared, base_ms + offset_ms).await;
        settled(&shared).await;
        for _ in 0..2 {
            restart(&shared); // the second time before anything was read again
        }
        at(&shared, base_ms + offset_ms).await;
        came = keys(&shared, "orders");
        came.sort();
        assert_eq!(came.concat(), expected, "at {offset_ms}");
    }
    // Another broker that writes the checkpoint does not know where in the second it was.
    wait_with(&shared, message("orders", &due(base_ms + 4001, "f"))).await;
    wait_with(&shared, message("orders", &due(base_ms + 4002, "g"))).await;
    at(&shared, base_ms + 4001).await;
    settled(&shared).await;
    let root = shared.store.config().root.clone();
    let checkpoint = read_checkpoint(&RealDisk, &root).unwrap().unwrap();
    assert!(checkpoint.cut.is_some());
    let theirs = TimerCheckpoint { cut: None, ..checkpoint };
    rocketpy_store::timer::write_checkpoint(&RealDisk, &root, &theirs).unwrap();
    restart(&shared);
    at(&shared, base_ms + 4002).await;
    assert_eq!(keys(&shared, "orders").len(), came.len() + 3, "f comes again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_stop_makes_nothing_late_for_ever() {
    let shared = open().await;
    let base_ms = second(&shared, 10_000).await;
    at(&shared, now_ms()).await;
    settled(&shared).await;
    // As if the broker had stood still for three weeks: the wheel has turned more than once.
    let root = shared.store.config().root.clone();
    let mut checkpoint = read_checkpoint(&RealDisk, &root).unwrap().unwrap();
    checkpoint.read_ms -= 21 * 24 * HOUR_MS;
    rocketpy_store::timer::write_checkpoint(&RealDisk, &root, &checkpoint).unwrap();
    restart(&shared);
    at(&shared, base_ms + 2000).await;
    assert_eq!(keys(&shared, "orders").len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_next_week_is_stored_again_on_the_way() {
    let shared = open().await;
    let start_ms = now_ms();
    let due_ms = start_ms + 7 * 24 * HOUR_MS;
    wait_with(&shared, message("orders", &due(due_ms, "far"))).await;
    at(&shared, start_ms).await;
    assert_eq!(shared.timers.state.lock().waiting_from(&shared.store), Some(PhysicalOffset::ZERO));
    // The store's clock stands still here: the copy would be stored again and again.
    while keys(&shared, system::TIMER_TOPIC).len() < 2 {
        let (owner, runtime) = (Arc::clone(&shared), Handle::current());
        aside(move || turn(&owner, start_ms + ROLL_MS + 2000, &runtime)).await;
        dispatched(&shared).await;
    }
    assert_eq!(keys(&shared, "orders").len(), 0);
    let entries = shared.store.entries(system::TIMER_TOPIC, 0, QueueOffset(1), 1).unwrap();
    let bytes = shared.store.record_at(entries[0].physical_offset).unwrap().unwrap();
    let record = RecordView::parse(&bytes).unwrap();
    assert_eq!(record.property("TIMER_ROLL_TIMES"), Some("1"));
    assert_eq!(TimerMessage::of(&record).unwrap().due_at_ms, due_ms);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_leaves_no_room_for_further_properties_is_stored_again_and_comes() {
    let shared = open().await;
    let start_ms = now_ms();
    for (key, after_ms) in [("near", HOUR_MS), ("far", 7 * 24 * HOUR_MS)] {
        let text =
            |length: usize| format!("big\u{1}{}\u{2}{}", "x".repeat(length), due(start_ms + after_ms, key));
        let is_taken =
            |length: usize| put(&shared, Origin::Client, &message("orders", &text(length))).is_ok();
        assert!((32_000..32_767).rev().any(is_taken), "the longest that is taken");
    }
    dispatched(&shared).await;
    at(&shared, start_ms + HOUR_MS).await;
    assert_eq!(keys(&shared, "orders"), ["near"]);
    while keys(&shared, system::TIMER_TOPIC).len() < 3 {
        let (owner, runtime) = (Arc::clone(&shared), Handle::current());
        aside(move || turn(&owner, start_ms + ROLL_MS + 2000, &runtime)).await;
        dispatched(&shared).await;
    }
    assert_eq!(shared.timers.dropped(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recalled_message_does_not_come_and_others_do() {
    for (after_ms, early) in [(0, true), (HOUR_MS, true), (HOUR_MS, false)] {
        let shared = open().await;
        let base_ms = second(&shared, after_ms).await;
        if early {
            at(&shared, base_ms - 3000).await; // else message and recall are taken together
        }
        let name = if early { "orders+b" } else { "b" }; // with its topic until Apache 5.3
        let recall = format!("TIMER_DEL_UNIQKEY\u{1}{name}\u{2}{}", due(base_ms + 350, "b"));
        wait_with(&shared, message("orders", &recall)).await;
        at(&shared, base_ms + 2000).await;
        let mut came = keys(&shared, "orders");
        came.sort();
        assert_eq!(came, ["a", "c", "d"], "{after_ms} {early}");
        assert_eq!(shared.timers.recalled(), 1);
        at(&shared, base_ms + 9000).await;
        assert_eq!(shared.timers.state.lock().recalled.len(), 0, "a recall does not stay in memory");
        settled(&shared).await;
        assert_eq!(shared.timers.waiting(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recall_that_comes_late_is_refused_and_no_message() {
    let shared = open().await;
    let recall = format!("TIMER_DEL_UNIQKEY\u{1}orders+k\u{2}{}", due(now_ms() - 5, "k"));
    assert!(put(&shared, Origin::Client, &message("orders", &recall)).is_err());
    assert_eq!(keys(&shared, "orders").len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recall_without_room_is_refused_before_it_is_stored() {
    let shared = open().await;
    let base_ms = second(&shared, HOUR_MS).await;
    at(&shared, base_ms - 3000).await;
    let pending = Arc::clone(&shared.timers.pending);
    let far = QueueOffset(1 << 40);
    (0..MAX_PENDING as u64).for_each(|number| pending.add(far + number, base_ms));
    let recall = format!("TIMER_DEL_UNIQKEY\u{1}b\u{2}{}", due(base_ms + 350, "b"));
    let end = shared.store.max_physical_offset();
    let refused = put(&shared, Origin::Client, &message("orders", &recall)).unwrap_err();
    let NotPut::Refused(refused) = refused else { panic!("{refused:?}") };
    assert_eq!(refused.code(), response::SYSTEM_BUSY, "{refused}");
    assert_eq!(shared.store.max_physical_offset(), end);
    put(&shared, Origin::Client, &message("orders", "")).unwrap();
    pending.taken(far + MAX_PENDING as u64);
    wait_with(&shared, message("orders", &recall)).await;
    at(&shared, base_ms + 2000).await;
    assert_eq!(shared.timers.recalled(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_stored_again_waits_for_room_and_then_goes_on() {
    let shared = open().await;
    let start_ms = now_ms();
    wait_with(&shared, message("orders", &due(start_ms + 7 * 24 * HOUR_MS, "far"))).await;
    at(&shared, start_ms).await;
    let (pending, far) = (Arc::clone(&shared.timers.pending), QueueOffset(1 << 40));
    (0..MAX_PENDING as u64).for_each(|number| pending.add(far + number, i64::MAX));
    at(&shared, start_ms + ROLL_MS + 2000).await;
    assert_eq!(keys(&shared, system::TIMER_TOPIC).len(), 1);
    pending.taken(far + 1);
    while keys(&shared, system::TIMER_TOPIC).len() < 2 {
        let (owner, runtime) = (Arc::clone(&shared), Handle::current());
        aside(move || turn(&owner, start_ms + ROLL_MS + 2000, &runtime)).await;
        dispatched(&shared).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_many_recalls_in_memory_slots_are_read_one_after_the_other() {
    let shared = open().await;
    let first_ms = second(&shared, HOUR_MS).await;
    let second_ms = first_ms + SLOT_MS;
    wait_with(&shared, message("orders", &due(second_ms + 1, "e"))).await;
    at(&shared, first_ms - 1000).await; // the first one is read
    for number in 0..=READ_AHEAD_RECALLS {
        shared.timers.state.lock().recalled.insert("orders", &format!("none{number}"), first_ms);
    }
    at(&shared, first_ms + 500).await;
    assert_eq!(shared.timers.state.lock().due.until_ms(), second_ms, "the second one waits");
    at(&shared, second_ms + 1000).await;
    assert_eq!(keys(&shared, "orders").len(), 5);
    assert_eq!(shared.timers.state.lock().recalled.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_comes_early_by_a_clock_that_is_set_back() {
    let shared = open().await;
    let start_ms = now_ms();
    let base_ms = second(&shared, 10_000).await;
    at(&shared, base_ms + 2000).await;
    assert_eq!(keys(&shared, "orders").len(), 4);
    let due_ms = start_ms + 5000; // before the slots that are done
    wait_with(&shared, message("orders", &due(due_ms, "back"))).await;
    at(&shared, start_ms).await;
    at(&shared, due_ms - 1).await;
    assert_eq!(keys(&shared, "orders").len(), 4);
    settled(&shared).await;
    restart(&shared);
    at(&shared, due_ms - 1).await;
    assert_eq!(keys(&shared, "orders").len(), 4);
    at(&shared, due_ms).await;
    assert_eq!(keys(&shared, "orders").len(), 5, "it waits over a start as well");
    wait_with(&shared, message("orders", &due(due_ms + 1, "due"))).await;
    at(&shared, due_ms + 2000).await;
    assert_eq!(keys(&shared, "orders").len(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_whose_topic_is_gone_is_dropped_and_counted() {
    let shared = open().await;
    let base_ms = second(&shared, 10_000).await;
    shared.topics.remove("orders").unwrap().unwrap().done().await.unwrap();
    at(&shared, base_ms + 2000).await;
    assert_eq!((shared.timers.delivered(), shared.timers.dropped()), (0, 4));
    settled(&shared).await;
    assert_eq!(shared.timers.waiting(), 0);
}

/// The first step for which the record of a message cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnreadableFrom {
    Taking,
    Reading,
    Delivery,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_cannot_be_read_keeps_no_other_back_and_is_tried_for_a_minute() {
    for (cut, is_restored) in [
        (UnreadableFrom::Taking, true),
        (UnreadableFrom::Taking, false),
        (UnreadableFrom::Reading, true),
        (UnreadableFrom::Reading, false),
        (UnreadableFrom::Delivery, true),
        (UnreadableFrom::Delivery, false),
    ] {
        let shared = TestShared::open(with_small_files);
        for topic in ["orders", "filler"] {
            add_topic(&shared, TopicConfig::new(topic, 2)).await;
        }
        let base_ms = second(&shared, HOUR_MS).await; // a, b, c, d
        shared.fill();
        at(&shared, now_ms()).await;
        let unreadable = shared.store.max_physical_offset();
        wait_with(&shared, message("orders", &due(base_ms + 500, "bad"))).await;
        shared.fill();
        wait_with(&shared, message("orders", &due(base_ms + 600, "behind"))).await;
        let taken_at_ms = match cut {
            UnreadableFrom::Taking => None,
            UnreadableFrom::Reading => Some(now_ms()),
            UnreadableFrom::Delivery => Some(base_ms),
        };
        if let Some(taken_at_ms) = taken_at_ms {
            at(&shared, taken_at_ms).await;
        }
        let log = shared.cut_log(unreadable);
        let came = || {
            let mut came = keys(&shared, "orders");
            came.sort();
            came.concat()
        };
        at(&shared, base_ms + 350).await;
        assert_eq!(came(), "ab", "{cut:?}");
        at(&shared, base_ms + 2000).await;
        let others = if cut == UnreadableFrom::Taking { "abcd" } else { "abbehindcd" };
        assert_eq!((came(), shared.timers.dropped()), (others.to_owned(), 0), "{cut:?}");
        settled(&shared).await;
        let checkpoint = shared.timers.checkpoint();
        let holds_it = match cut {
            UnreadableFrom::Taking => checkpoint.queue_offset == 4,
            _ => checkpoint.read_ms == base_ms && checkpoint.cut.unwrap().due_at_ms <= base_ms + 500,
        };
        assert!(holds_it, "a start tries it again: {cut:?} {checkpoint:?}");
        if is_restored {
            log.restore();
        }
        for _ in 0..60 {
            assert_eq!(shared.timers.dropped(), 0, "{cut:?}");
            shared.skip_time(Duration::from_secs(1));
            shared.timers.state.lock().pauses = Pauses::default();
            at(&shared, base_ms + 2000).await;
            if is_restored {
                break;
            }
        }
        let (all, dropped) = if is_restored { ("abbadbehindcd", 0) } else { ("abbehindcd", 1) };
        assert_eq!((came(), shared.timers.dropped()), (all.to_owned(), dropped), "{cut:?}");
        settled(&shared).await;
        assert_eq!(shared.timers.waiting(), 0, "{cut:?}");
        assert!(shared.timers.checkpoint().read_ms > base_ms);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_whose_time_could_not_be_read_does_not_come_early_once_it_can() {
    let shared = TestShared::open(with_small_files);
    for topic in ["orders", "filler"] {
        add_topic(&shared, TopicConfig::new(topic, 2)).await;
    }
    let base_ms = slot_of(now_ms() + HOUR_MS) + SLOT_MS;
    shared.fill();
    let unreadable = shared.store.max_physical_offset();
    wait_with(&shared, message("orders", &due(base_ms + 500, "bad"))).await;
    shared.fill();
    at(&shared, now_ms()).await;
    let log = shared.cut_log(unreadable);
    at(&shared, base_ms + 100).await;
    log.restore();
    for (offset_ms, expected) in [(499, 0), (500, 1)] {
        shared.skip_time(Duration::from_secs(1));
        at(&shared, base_ms + offset_ms).await;
        assert_eq!(keys(&shared, "orders").len(), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recall_that_cannot_be_read_holds_back_its_slot_until_it_can() {
    let shared = TestShared::open(with_small_files);
    for topic in ["orders", "filler"] {
        add_topic(&shared, TopicConfig::new(topic, 2)).await;
    }
    let base_ms = second(&shared, HOUR_MS).await;
    shared.fill();
    let unreadable = shared.store.max_physical_offset();
    let recall = format!("TIMER_DEL_UNIQKEY\u{1}orders+b\u{2}{}", due(base_ms + 350, "b"));
    wait_with(&shared, message("orders", &recall)).await;
    shared.fill();
    at(&shared, now_ms()).await;
    let log = shared.cut_log(unreadable);
    at(&shared, base_ms + 2000).await;
    assert_eq!(keys(&shared, "orders").len(), 0);
    log.restore();
    shared.skip_time(Duration::from_secs(1));
    at(&shared, base_ms + 2000).await;
    assert_eq!((keys(&shared, "orders").len(), shared.timers.recalled()), (3, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn units_that_cannot_be_read_are_dropped_after_a_minute_and_later_slots_come() {
    let shared = open().await;
    let base_ms = second(&shared, HOUR_MS).await;
    let later_ms = second(&shared, HOUR_MS + 10_000).await;
    at(&shared, now_ms()).await;
    let log = shared.store.config().root.join("timerlog").join("00000000000000000000");
    let file = RealDisk.open_file(&log, OpenMode::Write).unwrap();
    let units = RealDisk.read(&log, 1 << 30).unwrap();
    file.set_len(0).unwrap();
    for _ in 0..61 {
        assert_eq!(shared.timers.dropped(), 0);
        shared.skip_time(Duration::from_secs(1));
        shared.timers.state.lock().pauses = Pauses::default();
        at(&shared, base_ms + 2000).await;
    }
    assert_eq!(
        (keys(&shared, "orders").len(), shared.timers.dropped()),
        (0, 1),
        "the first slot is given up"
    );
    file.write_all_at(0, &units).unwrap();
    shared.timers.state.lock().pauses = Pauses::default();
    at(&shared, later_ms + 2000).await;
    assert_eq!(keys(&shared, "orders").len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_on_the_runtime_waits_for_a_turn_that_waits_for_the_disk() {
    let shared = open().await;
    let base_ms = second(&shared, HOUR_MS).await;
    at(&shared, base_ms + 1).await; // one is delivered, three wait
    let entries = shared.store.entries(system::TIMER_TOPIC, 0, QueueOffset::ZERO, 1).unwrap();
    let bytes = shared.store.record_at(entries[0].physical_offset).unwrap().unwrap();
    let (owner, runtime) = (Arc::clone(&shared), Handle::current());
    let _turn = shared.timers.state.lock();
    does_not_wait(move || {
        let _on = runtime.enter();
        poll_due(&TimerDelivery::new(Arc::clone(&owner)));
        poll_due(&TimerProgress::new(Arc::clone(&owner)));
        assert!(owner.timers.is_waiting(&RecordView::parse(&bytes).unwrap()));
        assert_eq!(owner.timers.waiting(), 4);
    });
}
