//! Recalls, and what is stored again while they have no room.

use rocketpy_protocol::code::response;

use super::*;
use crate::put::NotPut;
use crate::timer::pending::MAX_PENDING;
use crate::timer::recalled::READ_AHEAD_RECALLS;

#[tokio::test(flavor = "multi_thread")]
async fn a_recalled_message_does_not_come_and_others_do() {
    for (after_ms, early) in [(0, true), (HOUR_MS, true), (HOUR_MS, false)] {
        let (broker, base_ms) = second_in_time(after_ms).await;
        if early {
            at(&broker, base_ms - 3000).await; // else message and recall are taken together
        }
        let name = if early { "orders+b" } else { "b" }; // with its topic until Apache 5.3
        let recall = format!("TIMER_DEL_UNIQKEY\u{1}{name}\u{2}{}", due(base_ms + 350, "b"));
        wait_with(&broker, message("orders", &recall)).await;
        at(&broker, base_ms + 2000).await;
        let mut came = keys(&broker, "orders");
        came.sort();
        assert_eq!(came, ["a", "c", "d"], "{after_ms} {early}");
        assert_eq!(broker.timers.recalled(), 1);
        at(&broker, base_ms + 9000).await;
        assert_eq!(broker.timers.state.lock().recalled.len(), 0, "a recall does not stay in memory");
        settled(&broker).await;
        assert_eq!(broker.timers.waiting(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recall_that_comes_late_is_refused_and_no_message() {
    let broker = open().await;
    let recall = format!("TIMER_DEL_UNIQKEY\u{1}orders+k\u{2}{}", due(now_ms() - 5, "k"));
    assert!(put(&broker.intake, Origin::Client, &message("orders", &recall)).is_err());
    assert_eq!(keys(&broker, "orders").len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recall_without_room_is_refused_before_it_is_stored() {
    let broker = open().await;
    let base_ms = second(&broker, HOUR_MS).await;
    at(&broker, base_ms - 3000).await;
    let pending = Arc::clone(broker.intake.recalls());
    let far = QueueOffset(1 << 40);
    (0..MAX_PENDING as u64).for_each(|number| pending.add(far + number, base_ms));
    let recall = format!("TIMER_DEL_UNIQKEY\u{1}b\u{2}{}", due(base_ms + 350, "b"));
    let end = broker.ground.store().max_physical_offset();
    let refused = put(&broker.intake, Origin::Client, &message("orders", &recall)).unwrap_err();
    let NotPut::Refused(refused) = refused else { panic!("{refused:?}") };
    assert_eq!(refused.code(), response::SYSTEM_BUSY, "{refused}");
    assert_eq!(broker.ground.store().max_physical_offset(), end);
    put(&broker.intake, Origin::Client, &message("orders", "")).unwrap();
    pending.taken(far + MAX_PENDING as u64);
    wait_with(&broker, message("orders", &recall)).await;
    at(&broker, base_ms + 2000).await;
    assert_eq!(broker.timers.recalled(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_stored_again_waits_for_room_and_then_goes_on() {
    let broker = open().await;
    let start_ms = now_ms();
    wait_with(&broker, message("orders", &due(start_ms + 7 * 24 * HOUR_MS, "far"))).await;
    at(&broker, start_ms).await;
    let (pending, far) = (Arc::clone(broker.intake.recalls()), QueueOffset(1 << 40));
    (0..MAX_PENDING as u64).for_each(|number| pending.add(far + number, i64::MAX));
    at(&broker, start_ms + ROLL_MS + 2000).await;
    assert_eq!(keys(&broker, system::TIMER_TOPIC).len(), 1);
    pending.taken(far + 1);
    while keys(&broker, system::TIMER_TOPIC).len() < 2 {
        let (owner, runtime) = (Arc::clone(&broker), Handle::current());
        aside(move || turn(&owner.timers, start_ms + ROLL_MS + 2000, &runtime)).await;
        dispatched(&broker).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_many_recalls_in_memory_slots_are_read_one_after_the_other() {
    let broker = open().await;
    let first_ms = second(&broker, HOUR_MS).await;
    let second_ms = first_ms + SLOT_MS;
    wait_with(&broker, message("orders", &due(second_ms + 1, "e"))).await;
    at(&broker, first_ms - 1000).await; // the first one is read
    for number in 0..=READ_AHEAD_RECALLS {
        broker.timers.state.lock().recalled.insert("orders", &format!("none{number}"), first_ms);
    }
    at(&broker, first_ms + 500).await;
    assert_eq!(broker.timers.state.lock().due.until_ms(), second_ms, "the second one waits");
    at(&broker, second_ms + 1000).await;
    assert_eq!(keys(&broker, "orders").len(), 5);
    assert_eq!(broker.timers.state.lock().recalled.len(), 0);
}
