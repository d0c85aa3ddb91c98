//! Retention on a simulated disk: it is cut short at every operation, by a kill and by a power cut, and the next start
//! continues.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use rocketpy_env::sim::{SimDisk, SimOptions, Stopped};
use rocketpy_filter::MessageFilter;
use rocketpy_store::{RetentionConfig, Store, StoreConfig};

use crate::support::{ALL, record, views};

const MESSAGES: u64 = 900;

fn config() -> StoreConfig {
    let retention =
        RetentionConfig { max_bytes: Some(3 * (16 << 10)), files_a_round: 4, ..RetentionConfig::default() };
    StoreConfig {
        commit_log_file_size: 16 << 10,
        consume_queue_file_size: 2000,
        index: false,
        retention,
        ..StoreConfig::new(Path::new("/store"))
    }
}

fn open(disk: &SimDisk) -> Arc<Store<SimDisk>> {
    Store::open_stepped(disk.clone(), config()).unwrap()
}

/// Everything that was appended is dispatched and durable.
fn settle(store: &Store<SimDisk>) {
    store.step_flush().unwrap();
    while store.step_dispatch().unwrap() {}
    store.step_checkpoint().unwrap();
}

/// The numbers that can be read, each with its own message.
fn readable(store: &Store<SimDisk>, topic: &str) -> std::ops::Range<u64> {
    let bounds = store.queue_bounds(topic, 0);
    let mut next = bounds.min.get();
    while next < bounds.max.get() {
        let fetch = store.get(topic, 0, next as i64, &ALL, &MessageFilter::All).unwrap();
        assert!(fetch.count > 0, "{topic} {next}: {:?}", fetch.status);
        for view in views(&fetch) {
            assert_eq!(view.body, next.to_string().as_bytes());
            next += 1;
        }
    }
    bounds.min.get()..bounds.max.get()
}

/// A store that has much to remove.
fn filled(seed: u64) -> SimDisk {
    let disk = SimDisk::new(SimOptions { seed, write_back_per_mille: 20, ..SimOptions::default() });
    let store = open(&disk);
    for number in 0..7 {
        store.append(&record("quiet", 0, number.to_string().as_bytes())).unwrap();
    }
    for number in 0..MESSAGES {
        store.append(&record("t", 0, number.to_string().as_bytes())).unwrap();
    }
    settle(&store);
    store.shutdown().unwrap();
    drop(store);
    disk.settle();
    disk
}

#[test]
fn a_round_may_end_at_any_operation() {
    let mut ends = 0;
    for cuts_power in [false, true] {
        for stop in 1.. {
            let disk = filled(stop).kill();
            let store = open(&disk);
            disk.stop_at(Some(disk.operations() + stop));
            let round = catch_unwind(AssertUnwindSafe(|| while store.step_clean().unwrap().has_more {}));
            let is_whole = round.is_ok();
            if let Err(panic) = round {
                assert!(Stopped::is(&*panic), "a round that was not stopped failed");
                ends += 1;
            }
            let _ = catch_unwind(AssertUnwindSafe(|| drop(store)));
            let next = if cuts_power { disk.cut_power() } else { disk.kill() };
            let store = open(&next);
            assert!(!store.recovery().rebuilt_queues, "stopped at {stop}");
            assert_eq!((readable(&store, "t").end, readable(&store, "quiet").end), (MESSAGES, 7));
            while store.step_clean().unwrap().has_more {}
            let left = readable(&store, "t");
            assert!(left.start > MESSAGES / 2 && left.end == MESSAGES, "{left:?}");
            assert_eq!(readable(&store, "quiet"), 7..7);
            if is_whole {
                break;
            }
        }
    }
    assert!(ends > 40, "{ends} ends are few for a round that removes a dozen files");
}
