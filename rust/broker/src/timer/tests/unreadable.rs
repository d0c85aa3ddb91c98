//! Records and units that cannot be read.

use rocketpy_env::{DiskFile, OpenMode};

use super::*;
use crate::testing::MOST_OF_A_MINUTE;

/// The first step for which the record of a message cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnreadableFrom {
    Taking,
    Reading,
    Delivery,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_cannot_be_read_keeps_no_other_back_and_is_tried_for_a_minute() {
    for cut in [UnreadableFrom::Taking, UnreadableFrom::Reading, UnreadableFrom::Delivery] {
        for is_restored in [true, false] {
            one_unreadable_message(cut, is_restored).await;
        }
    }
}

async fn one_unreadable_message(cut: UnreadableFrom, is_restored: bool) {
    let broker = TestBroker::open(with_small_files);
    for topic in ["orders", "filler"] {
        add_topic(&broker, TopicConfig::new(topic, 2)).await;
    }
    let base_ms = second(&broker, HOUR_MS).await; // a, b, c, d
    broker.fill();
    at(&broker, now_ms()).await;
    let unreadable = broker.ground.store().max_physical_offset();
    wait_with(&broker, message("orders", &due(base_ms + 500, "bad"))).await;
    broker.fill();
    wait_with(&broker, message("orders", &due(base_ms + 600, "behind"))).await;
    let taken_at_ms = match cut {
        UnreadableFrom::Taking => None,
        UnreadableFrom::Reading => Some(now_ms()),
        UnreadableFrom::Delivery => Some(base_ms),
    };
    if let Some(taken_at_ms) = taken_at_ms {
        at(&broker, taken_at_ms).await;
    }
    let log = broker.cut_log(unreadable);
    let came = || {
        let mut came = keys(&broker, "orders");
        came.sort();
        came.concat()
    };
    at(&broker, base_ms + 350).await;
    assert_eq!(came(), "ab", "{cut:?}");
    at(&broker, base_ms + 2000).await;
    let others = if cut == UnreadableFrom::Taking { "abcd" } else { "abbehindcd" };
    assert_eq!((came(), broker.timers.dropped()), (others.to_owned(), 0), "{cut:?}");
    settled(&broker).await;
    let checkpoint = broker.timers.checkpoint();
    let holds_it = match cut {
        UnreadableFrom::Taking => checkpoint.queue_offset == 4,
        _ => checkpoint.read_ms == base_ms && checkpoint.cut.unwrap().due_at_ms <= base_ms + 500,
    };
    assert!(holds_it, "a start tries it again: {cut:?} {checkpoint:?}");
    let tries = if is_restored { 1 } else { 60 };
    if is_restored {
        log.restore();
    }
    for second in 0..tries {
        assert!(second > MOST_OF_A_MINUTE || broker.timers.dropped() == 0, "{cut:?}");
        broker.skip_time(Duration::from_secs(1));
        broker.timers.state.lock().pauses = Pauses::default();
        at(&broker, base_ms + 2000).await;
    }
    let (all, dropped) = if is_restored { ("abbadbehindcd", 0) } else { ("abbehindcd", 1) };
    assert_eq!((came(), broker.timers.dropped()), (all.to_owned(), dropped), "{cut:?}");
    settled(&broker).await;
    assert_eq!(broker.timers.waiting(), 0, "{cut:?}");
    assert!(broker.timers.checkpoint().read_ms > base_ms);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_whose_time_could_not_be_read_does_not_come_early_once_it_can() {
    let broker = TestBroker::open(with_small_files);
    for topic in ["orders", "filler"] {
        add_topic(&broker, TopicConfig::new(topic, 2)).await;
    }
    let base_ms = slot_of(now_ms() + HOUR_MS) + SLOT_MS;
    broker.fill();
    let unreadable = broker.ground.store().max_physical_offset();
    wait_with(&broker, message("orders", &due(base_ms + 500, "bad"))).await;
    broker.fill();
    at(&broker, now_ms()).await;
    let log = broker.cut_log(unreadable);
    at(&broker, base_ms + 100).await;
    log.restore();
    for (offset_ms, expected) in [(499, 0), (500, 1)] {
        broker.skip_time(Duration::from_secs(1));
        at(&broker, base_ms + offset_ms).await;
        assert_eq!(keys(&broker, "orders").len(), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_taken_late_whose_record_cannot_be_read_is_delivered_once_it_can() {
    let broker = TestBroker::open(with_small_files);
    for topic in ["orders", "filler"] {
        add_topic(&broker, TopicConfig::new(topic, 2)).await;
    }
    let base_ms = second_of_a_clock_that_was_ahead(&broker, 6000).await;
    broker.fill();
    let unreadable = broker.ground.store().max_physical_offset();
    wait_with(&broker, message("orders", &due(base_ms + 1200, "late"))).await;
    broker.fill();
    taken_at(&broker, base_ms + 6000).await;
    settled(&broker).await;
    restart(&broker);
    let log = broker.cut_log(unreadable);
    at(&broker, base_ms + 3000).await; // its slot is read: it is due at that time or later, as far as is known
    settled(&broker).await;
    log.restore();
    restart(&broker);
    at(&broker, base_ms + 6000).await;
    assert_eq!(keys(&broker, "orders").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recall_that_cannot_be_read_holds_back_its_slot_until_it_can() {
    let broker = TestBroker::open(with_small_files);
    for topic in ["orders", "filler"] {
        add_topic(&broker, TopicConfig::new(topic, 2)).await;
    }
    let base_ms = second(&broker, HOUR_MS).await;
    broker.fill();
    let unreadable = broker.ground.store().max_physical_offset();
    let recall = format!("TIMER_DEL_UNIQKEY\u{1}orders+b\u{2}{}", due(base_ms + 350, "b"));
    wait_with(&broker, message("orders", &recall)).await;
    broker.fill();
    at(&broker, now_ms()).await;
    let log = broker.cut_log(unreadable);
    at(&broker, base_ms + 2000).await;
    assert_eq!(keys(&broker, "orders").len(), 0);
    log.restore();
    broker.skip_time(Duration::from_secs(1));
    at(&broker, base_ms + 2000).await;
    assert_eq!((keys(&broker, "orders").len(), broker.timers.recalled()), (3, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn units_that_cannot_be_read_are_dropped_after_a_minute_and_later_slots_come() {
    let broker = open().await;
    let base_ms = second(&broker, HOUR_MS).await;
    let later_ms = second(&broker, HOUR_MS + 10_000).await;
    at(&broker, now_ms()).await;
    let log = broker.ground.store().config().root.join("timerlog").join("00000000000000000000");
    let file = RealDisk.open_file(&log, OpenMode::Write).unwrap();
    let units = RealDisk.read(&log, 1 << 30).unwrap();
    file.set_len(0).unwrap();
    for second in 0..61 {
        assert!(second > MOST_OF_A_MINUTE || broker.timers.dropped() == 0);
        broker.skip_time(Duration::from_secs(1));
        broker.timers.state.lock().pauses = Pauses::default();
        at(&broker, base_ms + 2000).await;
    }
    assert_eq!(
        (keys(&broker, "orders").len(), broker.timers.dropped()),
        (0, 1),
        "the first slot is given up"
    );
    file.write_all_at(0, &units).unwrap();
    broker.timers.state.lock().pauses = Pauses::default();
    at(&broker, later_ms + 2000).await;
    assert_eq!(keys(&broker, "orders").len(), 4);
}
