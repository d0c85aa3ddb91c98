//! A cut of a log on a simulated disk ends at any operation, by a kill or a power cut.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use rocketpy_env::sim::{SimDisk, SimOptions, Stopped};
use rocketpy_model::PhysicalOffset;
use rocketpy_store::reader::StoreReader;
use rocketpy_store::{RetentionConfig, Store, StoreConfig, StoreError};
use rocketpy_tools::{self as tools, Progress, RepairAction, ToolError};

use crate::support::{record, small};

fn go_on(_: Progress) -> bool {
    true
}

/// A closed store on a simulated disk, whose log does not begin at 0 and has lost the messages of a quiet queue; and places of its log.
fn closed_on(disk: &SimDisk) -> (StoreConfig, Vec<u64>) {
    let retention = RetentionConfig { max_bytes: Some(1), files_a_round: 100, ..RetentionConfig::default() };
    let config = StoreConfig { commit_log_file_size: 16 << 10, retention, ..small(Path::new("/store")) };
    let store = Store::open_stepped(disk.clone(), config.clone()).unwrap();
    let append =
        |topic, length| store.append(&record(topic, 0, &vec![7; length])).unwrap().physical_offset.get();
    append("quiet", 1);
    for _ in 0..40 {
        append("t", 500);
    }
    store.step_flush().unwrap();
    while store.step_dispatch().unwrap() {}
    assert!(store.step_clean().unwrap().log_files > 0);
    let places = (0..80).map(|_| append("t", 500)).collect();
    while store.step_dispatch().unwrap() {}
    store.shutdown().unwrap();
    assert_eq!(store.queue_bounds("quiet", 0).max.get(), 1);
    (config, places)
}

#[test]
fn a_cut_that_was_interrupted_anywhere_leaves_a_store_that_opens_and_is_finished_by_the_next_one() {
    for stop in 1.. {
        let disk = SimDisk::new(SimOptions { seed: stop, ..SimOptions::default() });
        let (config, places) = closed_on(&disk);
        let disk = disk.kill();
        let at = places[10];
        let cut = |disk: &SimDisk| {
            let reader = StoreReader::open_on(disk.clone(), &config.root, None).unwrap();
            tools::cut(&reader, PhysicalOffset(at), &mut go_on).unwrap()
        };
        disk.stop_at(Some(disk.operations() + stop));
        let is_through = match catch_unwind(AssertUnwindSafe(|| cut(&disk))) {
            Ok(done) => {
                let is_tail = |action: &&RepairAction| matches!(action, RepairAction::CutTail { .. });
                assert!(done.actions.iter().filter(is_tail).count() > 2, "several files");
                true
            }
            Err(panic) => {
                assert!(Stopped::is(&*panic), "a cut that was not stopped failed");
                false
            }
        };
        let mut disk = if stop % 2 == 0 { disk.cut_power() } else { disk.kill() };
        let is_opened_between = stop % 3 == 0;
        if is_opened_between {
            let store = Store::open_stepped(disk.clone(), config.clone()).unwrap();
            assert!(
                store.max_physical_offset().get() >= at,
                "stopped at {stop}: no more is gone than what is cut"
            );
            store.shutdown().unwrap();
            disk = disk.kill();
        }
        let done = cut(&disk);
        assert!(done.actions.is_empty() || !is_through, "what is cut is not cut again");
        let disk = disk.cut_power();
        let store = Store::open_stepped(disk, config).unwrap();
        assert_eq!(store.max_physical_offset().get(), at, "stopped at {stop}");
        // But for one that the start in between found already cut.
        let may_be_clean = is_opened_between && done.actions.is_empty();
        assert!(!store.recovery().clean_exit || may_be_clean, "stopped at {stop}: a cut is no orderly end");
        let ends = ["t", "quiet"].map(|topic| store.queue_bounds(topic, 0).max.get());
        assert_eq!(ends, [50, 1], "the queues go as far as the log; a number that was used stays used");
        if is_through && is_opened_between {
            assert!(stop > 30, "{stop} operations are few for a cut of several files");
            break;
        }
    }
}

#[test]
fn a_cut_of_a_store_without_a_checkpoint_is_no_orderly_end_either() {
    let disk = SimDisk::new(SimOptions::default());
    let (config, places) = closed_on(&disk);
    let disk = disk.kill();
    disk.hide(&config.root.join("checkpoint")).unwrap();
    let reader = StoreReader::open_on(disk.clone(), &config.root, None).unwrap();
    tools::cut(&reader, PhysicalOffset(places[30]), &mut go_on).unwrap();
    let store = Store::open_stepped(disk.kill(), config).unwrap();
    assert_eq!(store.max_physical_offset().get(), places[30]);
    assert!(!store.recovery().clean_exit);
}

#[test]
fn a_log_with_a_missing_file_is_not_cut() {
    let disk = SimDisk::new(SimOptions::default());
    let (config, places) = closed_on(&disk);
    let disk = disk.kill();
    let missing = places[40] - places[40] % config.commit_log_file_size;
    disk.hide(&config.root.join(format!("commitlog/{missing:020}"))).unwrap();
    let reader = StoreReader::open_on(disk.clone(), &config.root, None).unwrap();
    for at in [places[1], places[79]] {
        match tools::cut(&reader, PhysicalOffset(at), &mut go_on) {
            Err(ToolError::Store(StoreError::MissingFile { expected, .. })) => {
                assert_eq!(expected.get(), missing)
            }
            other => panic!("{other:?}"),
        }
    }
}
