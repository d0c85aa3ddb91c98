//! Topics with an age of their own, and clocks that are set.

use super::*;

#[test]
fn a_topic_may_forget_earlier_than_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let config = config(dir.path());
    let start = now_ms();
    disk.set_clock(start);
    let store = Store::open_on(disk.clone(), config.clone()).unwrap();
    fill(&store, "short", 0..10);
    fill(&store, "long", 0..10);
    pass_hours(&disk, &store, 3);
    fill(&store, "short", 10..15);
    settle_in_files(&store);
    let hours = |hours: u64| {
        std::collections::HashMap::from([(Arc::from("short"), Duration::from_secs(hours * 3600))])
    };
    let planned = |kept| {
        let reader = StoreReader::open_on(disk.clone(), dir.path(), None).unwrap();
        let aged = plan_topics(&reader, &hours(kept)).unwrap().into_iter();
        let bounds = |one: AgedQueue| (one.topic, one.queue_id, one.former_min.get(), one.min.get());
        aged.map(bounds).collect::<Vec<_>>()
    };
    assert_eq!(planned(4), []);
    store.set_topic_retention(hours(4)).unwrap();
    assert_eq!(readable(&store, "short"), 0..15);
    assert_eq!(planned(2), [("short".to_owned(), 0, 0, 10)], "what the store then does");
    store.set_topic_retention(hours(2)).unwrap();
    assert_eq!((readable(&store, "short"), readable(&store, "long")), (10..15, 0..10));
    pass_hours(&disk, &store, 3);
    assert_eq!(planned(2), [("short".to_owned(), 0, 0, 15)]);
    store.clean().unwrap();
    assert_eq!(readable(&store, "short"), 15..15, "the rounds go on with it");
    fill(&store, "short", 15..17);
    assert_eq!(readable(&store, "short"), 15..17);
    store.set_topic_retention(hours(100)).unwrap();
    assert_eq!(readable(&store, "short"), 15..17, "what is forgotten stays so");
    assert_eq!(store.min_physical_offset().get(), 0, "the log is shared");
    store.shutdown().unwrap();
    drop(store);
    let store = open(config).unwrap();
    assert!(!store.recovery().rebuilt_queues);
    assert_eq!(readable(&store, "short"), 0..17, "until it is said again");
}

#[test]
fn a_stepped_clock_hides_no_message_of_a_topic_early() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let start = now_ms();
    let store = Store::open_on(disk.clone(), config(dir.path())).unwrap();
    let kept = std::collections::HashMap::from([(Arc::from("t"), Duration::from_secs(2 * 3600))]);
    // Old ones, then one hour in which the clock is a day behind, then fresh ones.
    disk.set_clock(start);
    fill(&store, "t", 0..10);
    pass_hours(&disk, &store, 3);
    fill(&store, "t", 10..20);
    disk.step_clock(start - 24 * HOUR_MS);
    fill(&store, "t", 20..30);
    disk.step_clock(start + 3 * HOUR_MS);
    fill(&store, "t", 30..40);
    store.set_topic_retention(kept.clone()).unwrap();
    assert_eq!(readable(&store, "t"), 10..40, "stored times that do not rise hide nothing");
    // The clock is set ahead: nothing of this life grows older by it.
    disk.step_clock(start + 1000 * HOUR_MS);
    store.clean().unwrap();
    assert_eq!(readable(&store, "t"), 10..40);
    pass_hours(&disk, &store, 3);
    store.clean().unwrap();
    assert_eq!(readable(&store, "t"), 40..40, "their time is over by both clocks");
}

#[test]
fn a_damaged_message_keeps_neither_others_of_its_topic_nor_the_log_from_going() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let start = now_ms();
    disk.set_clock(start);
    let config = hourly(dir.path());
    let store = Store::open_on(disk.clone(), config.clone()).unwrap();
    fill(&store, "short", 0..3);
    fill(&store, "other", 0..5 * A_FILE);
    let damaged = store.entries("short", 0, QueueOffset(1), 1).unwrap()[0].physical_offset.get();
    // Its magic number: no head can be read there.
    overwrite(&config.commit_log_dir().join(format!("{:020}", 0)), damaged + 4, b"xxxx");
    assert!(store.stored_at("short", 0, QueueOffset(1)).is_err());
    let kept = std::collections::HashMap::from([(Arc::from("short"), Duration::from_secs(1800))]);
    store.set_topic_retention(kept).unwrap();
    fill(&store, "short", 3..5);
    pass_hours(&disk, &store, 2);
    fill(&store, "other", 5 * A_FILE..6 * A_FILE);
    let cleaned = store.clean().unwrap();
    assert!(cleaned.log_files > 0, "{cleaned:?}");
    assert_eq!(store.queue_bounds("short", 0).min.get(), 5, "all of it is old");
}

#[test]
fn a_clock_that_was_set_ahead_removes_no_file_of_this_life() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    disk.set_clock(now_ms());
    let store = Store::open_on(disk.clone(), hourly(dir.path())).unwrap();
    fill(&store, "t", 0..1000);
    let log = dir.path().join("commitlog");
    let before = names(&log);
    assert!(before.len() > 3);
    disk.step_clock(now_ms() + 1000 * HOUR_MS);
    assert_eq!(store.clean().unwrap().log_files, 0);
    assert_eq!(names(&log), before);
    pass_hours(&disk, &store, 2);
    assert!(store.clean().unwrap().log_files > 0, "their time is over by both clocks");
}
