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
        for second in 0..60 {
            assert!(second > MOST_OF_A_MINUTE || shared.timers.dropped() == 0, "{cut:?}");
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
    for second in 0..61 {
        assert!(second > MOST_OF_A_MINUTE || shared.timers.dropped() == 0);
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
