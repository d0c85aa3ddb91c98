//! Starts: the files of the timers, whole, missing and damaged.

use rocketpy_env::{DiskFile, OpenMode};
use rocketpy_model::PhysicalOffset;
use rocketpy_store::timer::{TimerCheckpoint, TimerCut};

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_start_goes_on_where_the_progress_was_written() {
    let broker = open().await;
    let base_ms = second(&broker, HOUR_MS).await;
    at(&broker, now_ms()).await;
    settled(&broker).await;
    restart(&broker);
    assert_eq!(broker.timers.waiting(), 4);
    at(&broker, base_ms + 400).await;
    restart(&broker); // a kill: the slot is not done
    at(&broker, base_ms + 400).await;
    assert_eq!(keys(&broker, "orders").len(), 4, "a and b came twice");
    at(&broker, base_ms + 3000).await;
    settled(&broker).await;
    restart(&broker);
    at(&broker, base_ms + HOUR_MS).await;
    assert_eq!(keys(&broker, "orders").len(), 6, "nothing comes after it was written");
    assert_eq!(broker.timers.waiting(), 0);
    assert_eq!(broker.timers.state.lock().waiting_from(broker.ground.store()), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_of_the_files_is_made_from_the_topic() {
    let broker = open().await;
    let root = broker.ground.store().config().root.clone();
    let first_ms = second(&broker, 10_000).await;
    let second_ms = second(&broker, HOUR_MS).await;
    at(&broker, first_ms + 2000).await;
    settled(&broker).await;
    let slots = |timers: &Timers| {
        let mut state = timers.state.lock();
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
    let whole = slots(&broker.timers);
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
            "chain" => lead_past_the_unit_before(&broker, 3),
            _ => {}
        }
        restart(&broker);
        at(&broker, first_ms + 2000).await;
        assert_eq!(slots(&broker.timers), whole, "{damage}");
        assert_eq!(keys(&broker, "orders").len(), 4, "{damage}: what was delivered does not come again");
        settled(&broker).await;
    }
    at(&broker, second_ms + 1000).await;
    assert_eq!(keys(&broker, "orders").len(), 8);
}

/// Damages a unit of the log of timers: it names the unit before the one that it named.
fn lead_past_the_unit_before(broker: &TestBroker, number: u64) {
    let path = broker.ground.store().config().root.join("timerlog").join("00000000000000000000");
    let file = RealDisk.open_file(&path, OpenMode::Write).unwrap();
    let mut bytes = [0; TimerUnit::BYTES];
    file.read_exact_at(number * TimerUnit::BYTES as u64, &mut bytes).unwrap();
    let unit = TimerUnit::decode(&bytes).unwrap();
    let damaged = TimerUnit { previous: unit.previous - TimerUnit::BYTES as i64, ..unit };
    file.write_all_at(number * TimerUnit::BYTES as u64, &damaged.encode()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_that_is_damaged_while_the_broker_runs_is_made_anew_from_the_topic() {
    let broker = open().await;
    let first_ms = second(&broker, 10_000).await;
    let second_ms = second(&broker, HOUR_MS).await;
    at(&broker, first_ms + 2000).await;
    lead_past_the_unit_before(&broker, 6); // past message a of the second slot
    let recall = format!("TIMER_DEL_UNIQKEY\u{1}b\u{2}{}", due(second_ms + 350, "b"));
    wait_with(&broker, message("orders", &recall)).await;
    at(&broker, second_ms).await; // the slot is read
    settled(&broker).await;
    broker.timers.state.lock().pauses = Pauses::default();
    for (offset_ms, expected) in [(1, "aabcd"), (999, "aabccd"), (1000, "aabccdd")] {
        at(&broker, second_ms + offset_ms).await;
        let mut came = keys(&broker, "orders");
        came.sort();
        assert_eq!(came.concat(), expected);
    }
    assert_eq!((broker.timers.recalled(), broker.timers.dropped()), (1, 0));
    let hash = hash_code("orders");
    assert_eq!(broker.timers.counts.of(hash), None, "nothing waits any more");
    settled(&broker).await;
    assert_eq!(broker.timers.waiting(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_checkpoint_everything_comes_again_and_nothing_is_lost() {
    let broker = open().await;
    let base_ms = second(&broker, 10_000).await;
    at(&broker, base_ms + 2000).await;
    settled(&broker).await;
    let root = broker.ground.store().config().root.clone();
    for name in ["config/timercheck", "config/timercheck.bak"] {
        drop(RealDisk.remove_file(&root.join(name)));
    }
    restart(&broker);
    at(&broker, base_ms + 2000).await;
    assert_eq!(keys(&broker, "orders").len(), 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_checkpoint_is_not_believed() {
    let broker = open().await;
    let base_ms = second(&broker, HOUR_MS).await;
    for _ in 0..2 {
        wait_with(&broker, message("orders", &due(base_ms + 9000, "later"))).await; // so that there is progress
        at(&broker, now_ms()).await;
        settled(&broker).await; // the second time there is a backup
    }
    let path = broker.ground.store().config().root.join("config/timercheck");
    let mut bytes = RealDisk.read(&path, 1 << 20).unwrap();
    bytes[4] ^= 0x40; // twelve days later
    RealDisk.replace(&path, &bytes).unwrap();
    restart(&broker);
    for (offset_ms, count) in [(1000, 4), (9000, 6)] {
        at(&broker, base_ms + offset_ms).await;
        assert_eq!(keys(&broker, "orders").len(), count);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_goes_on_within_the_second() {
    let broker = open().await;
    let base_ms = second(&broker, 10_000).await;
    wait_with(&broker, message("orders", &due(base_ms + 2500, "e"))).await;
    let mut came = Vec::new();
    for (offset_ms, expected) in [(350, "ab"), (351, "ab"), (700, "abc"), (1000, "abcd"), (2500, "abcde")] {
        at(&broker, base_ms + offset_ms).await;
        settled(&broker).await;
        for _ in 0..2 {
            restart(&broker); // the second time before anything was read again
        }
        at(&broker, base_ms + offset_ms).await;
        came = keys(&broker, "orders");
        came.sort();
        assert_eq!(came.concat(), expected, "at {offset_ms}");
    }
    // Another broker that writes the checkpoint does not know where in the second it was.
    wait_with(&broker, message("orders", &due(base_ms + 4001, "f"))).await;
    wait_with(&broker, message("orders", &due(base_ms + 4002, "g"))).await;
    at(&broker, base_ms + 4001).await;
    settled(&broker).await;
    let root = broker.ground.store().config().root.clone();
    let checkpoint = read_checkpoint(&RealDisk, &root).unwrap().unwrap();
    assert!(checkpoint.cut.is_some());
    let theirs = TimerCheckpoint { cut: None, ..checkpoint };
    rocketpy_store::timer::write_checkpoint(&RealDisk, &root, &theirs).unwrap();
    restart(&broker);
    at(&broker, base_ms + 4002).await;
    assert_eq!(keys(&broker, "orders").len(), came.len() + 3, "f comes again");
}

#[tokio::test(flavor = "multi_thread")]
async fn places_behind_the_end_of_the_log_are_not_believed() {
    let broker = open().await;
    let base_ms = second(&broker, 10_000).await;
    at(&broker, base_ms + 2000).await;
    settled(&broker).await;
    let root = broker.ground.store().config().root.clone();
    let written = read_checkpoint(&RealDisk, &root).unwrap().unwrap();
    let cut = TimerCut {
        due_at_ms: base_ms + HOUR_MS,
        at: PhysicalOffset::ZERO,
        taken: broker.ground.store().max_physical_offset(),
        whole_ms: base_ms + HOUR_MS,
    };
    for stale in [
        TimerCheckpoint { cut: Some(cut), ..written },
        TimerCheckpoint { earlier_cuts: [None, Some(cut), None, None], ..written },
        TimerCheckpoint { queue_offset: written.queue_offset + 1, cut: Some(cut), ..written },
    ] {
        rocketpy_store::timer::write_checkpoint(&RealDisk, &root, &stale).unwrap();
        restart(&broker); // the log was cut off since
        wait_with(&broker, message("orders", &due(base_ms + 5000, "later"))).await;
        restart(&broker);
        let before = keys(&broker, "orders").len();
        at(&broker, base_ms + 5000).await;
        assert!(keys(&broker, "orders").len() > before, "{stale:?}");
        settled(&broker).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_while_the_wheel_is_made_anew_repeats_nothing() {
    let broker = open().await;
    let base_ms = slot_of(now_ms() + 10_000) + SLOT_MS;
    let count = 600; // more than a turn takes
    for number in 0..count {
        put(&broker.intake, Origin::Client, &message("orders", &due(base_ms + number % 900, "x"))).unwrap();
    }
    dispatched(&broker).await;
    at(&broker, base_ms + 1000).await;
    settled(&broker).await;
    let root = broker.ground.store().config().root.clone();
    RealDisk.remove_dir_all(&root.join("timerlog")).unwrap();
    let theirs = TimerCheckpoint { cut: None, ..read_checkpoint(&RealDisk, &root).unwrap().unwrap() };
    rocketpy_store::timer::write_checkpoint(&RealDisk, &root, &theirs).unwrap();
    for _ in 0..3 {
        restart(&broker);
        let (owner, runtime) = (Arc::clone(&broker), Handle::current());
        aside(move || turn(&owner.timers, base_ms + 1000, &runtime)).await;
        settled(&broker).await;
    }
    restart(&broker);
    at(&broker, base_ms + 1000).await;
    assert_eq!(keys(&broker, "orders").len() as i64, count);
}
