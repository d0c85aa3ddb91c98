//! Tools on folders of real stores: what they say of sound, damaged and live ones.

mod cut;
#[cfg(feature = "sim")]
mod cut_sim;
#[allow(dead_code, reason = "the tests of the store use the rest")]
#[path = "../../../store/tests/it/faulty.rs"]
mod faulty;
#[path = "../../../store/tests/it/index_oracle.rs"]
mod index_oracle;
mod repair;
mod select;
mod snapshot;
#[allow(dead_code, reason = "the tests of the store use the rest")]
#[path = "../../../store/tests/it/support.rs"]
mod support;
mod transfer;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rocketpy_env::{Disk, RealDisk};
use rocketpy_model::{PhysicalOffset, sys_flag};
use rocketpy_store::reader::StoreReader;
use rocketpy_store::{NewRecord, Store, StoreConfig, StoreError};
use rocketpy_tools::{
    self as tools, Problem, ProblemKind, Progress, Selected, Selection, ToolError, VerifyReport,
};

use crate::support::{is_there, killed_copy, overwrite, record, settle, small, while_repeated};

fn go_on(_: Progress) -> bool {
    true
}

fn verify(root: &Path) -> VerifyReport {
    tools::verify(&StoreReader::open(root).unwrap(), &mut go_on).unwrap()
}

fn assert_sound(root: &Path) -> VerifyReport {
    let report = verify(root);
    assert!(report.is_sound(), "{:#?}", report.problems);
    report
}

fn kinds(report: &VerifyReport) -> BTreeSet<String> {
    report.problems.iter().map(|problem| format!("{:?}", problem.kind)).collect()
}

/// Fills a store with messages of three queues, with keys, and with transaction messages among them.
fn fill(store: &Store, messages: u64) {
    for number in 0..messages {
        let body = vec![number as u8; 20 + (number * 37 % 300) as usize];
        let properties =
            format!("TAGS\x01Tag{}\x02KEYS\x01k{number} all\x02UNIQ_KEY\x01u{number}\x02", number % 3);
        let (topic, queue_id) = if number % 3 == 2 { ("b", 0) } else { ("a", (number % 3) as u32) };
        let new = NewRecord { properties: properties.as_bytes(), ..record(topic, queue_id, &body) };
        store.append(&new).unwrap();
        if number % 10 == 0 {
            store.append(&NewRecord { sys_flag: sys_flag::TRANSACTION_PREPARED, ..new.clone() }).unwrap();
            store.append(&NewRecord { sys_flag: sys_flag::TRANSACTION_ROLLBACK, ..new }).unwrap();
        }
    }
}

fn closed(root: &Path, messages: u64) -> StoreConfig {
    let config = small(root);
    let store = Store::open(config.clone()).unwrap();
    fill(&store, messages);
    store.shutdown().unwrap();
    config
}

fn log_file(config: &StoreConfig, physical_offset: u64) -> (PathBuf, u64) {
    let start = physical_offset - physical_offset % config.commit_log_file_size;
    (config.commit_log_dir().join(format!("{start:020}")), physical_offset - start)
}

/// Length, topic, queue, queue offset and body of a record.
type Seen = (u64, String, u32, u64, Vec<u8>);
/// Every record that gets a queue entry, by its place.
type Placed = BTreeMap<u64, Seen>;

fn records(root: &Path) -> Placed {
    let mut found = Placed::new();
    for (at, view) in selected(root, Selection { skips_damage: true, ..Selection::default() }) {
        found.insert(at, view);
    }
    found
}

fn selected(root: &Path, selection: Selection) -> Vec<(u64, Seen)> {
    let mut selected = Selected::new(&StoreReader::open(root).unwrap(), selection).unwrap();
    let mut found = Vec::new();
    let take = |found: &mut Vec<_>, view: &rocketpy_protocol::record::RecordView<'_>| {
        if matches!(view.sys_flag & sys_flag::TRANSACTION_MASK, 0 | sys_flag::TRANSACTION_COMMIT) {
            let (size, offset) = (view.size() as u64, view.queue_offset.get());
            let fields = (size, view.topic.to_owned(), view.queue_id, offset, view.body.to_vec());
            found.push((view.physical_offset.get(), fields));
        }
    };
    while selected
        .step(|view| {
            take(&mut found, view);
            Ok::<_, ToolError>(())
        })
        .unwrap()
    {}
    found
}

#[test]
fn a_sound_store_has_no_problem_closed_open_or_killed_and_everything_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    let config = small(&root);
    let store = Store::open(config.clone()).unwrap();
    fill(&store, 500);
    settle(&store);
    let report = assert_sound(&root);
    assert!(report.is_live && !report.is_closed);
    killed_copy(&root, &dir.path().join("killed"));
    let killed = assert_sound(&dir.path().join("killed"));
    assert_eq!((killed.is_live, killed.records), (false, 600));
    store.shutdown().unwrap();
    let report = assert_sound(&root);
    assert!(!report.is_live && report.is_closed && report.has_mark);
    assert_eq!((report.records, report.entries, report.records_without_entry), (600, 500, 100));
    assert_eq!(report.records_with_own_check, 600);
    assert_eq!((report.queues, report.filler_entries, report.records_without_queue), (3, 0, 0));
    assert_eq!(report.index_entries, 550 * 4, "unique key, two keys and tag; none of what is rolled back");
    assert!(report.log_files > 1, "it rolled");
    assert_eq!((report.tail_bytes, report.records_to_dispatch), (0, 0));
}

#[test]
fn a_topic_that_was_deleted_and_made_anew_is_no_problem() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(small(dir.path())).unwrap();
    fill(&store, 90);
    settle(&store);
    store.delete_topic("a").unwrap();
    fill(&store, 3);
    store.shutdown().unwrap();
    let report = assert_sound(dir.path());
    assert_eq!(report.records_without_queue, 60);
}

/// Reads a store `times` times while another thread fills it, by 80 messages a read: as fast as it can it would take all open files.
fn while_it_is_filled(store: &Store, times: u32, mut read: impl FnMut() -> Result<(), String>) {
    let (fills, reads) = (AtomicU32::new(0), AtomicU32::new(0));
    let fill_on = || {
        if fills.load(Ordering::Relaxed) < 4 * (reads.load(Ordering::Relaxed) + 1) {
            fill(store, 20);
            fills.fetch_add(1, Ordering::Relaxed);
        }
    };
    let mut read_on = |_| {
        reads.fetch_add(1, Ordering::Relaxed);
        read()
    };
    while_repeated(fill_on, || (0..times).try_for_each(&mut read_on)).unwrap();
}

#[test]
fn a_server_that_writes_meanwhile_does_not_disturb_a_check() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(small(dir.path())).unwrap();
    while_it_is_filled(&store, 30, || match verify(dir.path()) {
        report if report.is_sound() => Ok(()),
        report => Err(format!("{:#?}", report.problems)),
    });
}

/// Flips one byte after the other and looks at what a check says of it.
fn each_byte(path: &Path, range: std::ops::Range<u64>, step: usize, mut look: impl FnMut(u64)) {
    let before = RealDisk.read(path, 1 << 30).unwrap();
    for at in range.step_by(step) {
        let byte = before[at as usize];
        overwrite(path, at, &[byte ^ (1 << (at % 8))]);
        look(at);
        overwrite(path, at, &[byte]);
    }
    assert_eq!(RealDisk.read(path, 1 << 30).unwrap(), before);
}

#[test]
fn every_damaged_byte_of_a_record_is_found_with_its_file_and_place() {
    let dir = tempfile::tempdir().unwrap();
    let config = closed(dir.path(), 12);
    let mut places: Vec<u64> = records(dir.path()).into_keys().collect();
    let end = assert_sound(dir.path()).log_end.get();
    let (path, _) = log_file(&config, 0);
    places.extend(selected_all(dir.path()));
    each_byte(&path, 0..end, 3, |at| {
        let report = verify(dir.path());
        let record = places.iter().filter(|&&place| place <= at).max().unwrap();
        let damage: Vec<&Problem> = report
            .problems
            .iter()
            .filter(|problem| matches!(problem.kind, ProblemKind::DamagedRecord | ProblemKind::LogEndsEarly))
            .collect();
        assert!(!damage.is_empty(), "byte {at}: {:#?}", report.problems);
        assert_eq!((&damage[0].path, damage[0].file_offset), (&path, *record), "byte {at}");
        assert!(!damage[0].found.is_empty() && !damage[0].expected.is_empty());
    });
}

/// Places of all records.
fn selected_all(root: &Path) -> Vec<u64> {
    let mut places = Vec::new();
    let mut selected = Selected::new(&StoreReader::open(root).unwrap(), Selection::default()).unwrap();
    while selected
        .step(|view| {
            places.push(view.physical_offset.get());
            Ok::<_, ToolError>(())
        })
        .unwrap()
    {}
    places
}

#[test]
fn every_damaged_byte_of_a_queue_entry_is_found() {
    let dir = tempfile::tempdir().unwrap();
    closed(dir.path(), 30);
    let path = dir.path().join("consumequeue/a/1/00000000000000000000");
    each_byte(&path, 0..200, 1, |at| {
        let report = verify(dir.path());
        let of_queue = report.problems.iter().find(|problem| problem.path == path);
        assert!(of_queue.is_some() || kinds(&report).contains("IncompleteQueues"), "byte {at}: {report:#?}");
        if let Some(problem) = of_queue {
            assert_eq!(problem.topic.as_deref(), Some("a"));
        }
    });
}

#[test]
fn every_damaged_byte_of_an_index_entry_a_slot_or_a_head_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let config = closed(dir.path(), 12);
    let index = dir.path().join("index");
    let path = index.join(&RealDisk.list(&index).unwrap()[0].name);
    let entries_at = 40 + 4 * u64::from(config.index_slots);
    let is_found = |at: u64| {
        let report = verify(dir.path());
        let index: BTreeSet<String> =
            kinds(&report).into_iter().filter(|kind| kind.contains("Index")).collect();
        assert!(!index.is_empty(), "byte {at}: {report:#?}");
    };
    // The seconds of an entry are a hint for look-ups; every other byte has to fit.
    each_byte(&path, entries_at + 20..entries_at + 20 * 30, 7, |at| {
        if !(12..16).contains(&((at - entries_at) % 20)) {
            is_found(at);
        }
    });
    each_byte(&path, 32..40, 1, is_found);
    each_byte(&path, 40..entries_at, 61, is_found);
}

#[test]
fn lost_files_of_log_and_queues_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let config = closed(dir.path(), 900);
    let second = config.commit_log_file_size;
    RealDisk.remove_file(&log_file(&config, second).0).unwrap();
    let report = verify(dir.path());
    let missing = report.problems.iter().find(|one| one.kind == ProblemKind::MissingLogFiles).unwrap();
    assert_eq!((missing.physical_offset, missing.size_bytes), (Some(PhysicalOffset(second)), Some(second)));
    let dir = tempfile::tempdir().unwrap();
    closed(dir.path(), 300);
    RealDisk.remove_dir_all(&dir.path().join("consumequeue/b")).unwrap();
    assert!(kinds(&verify(dir.path())).contains("IncompleteQueues"));
}

#[test]
fn a_tool_that_is_told_to_stop_stops() {
    let dir = tempfile::tempdir().unwrap();
    closed(dir.path(), 10);
    let reader = StoreReader::open(dir.path()).unwrap();
    assert!(matches!(tools::verify(&reader, &mut |_| false), Err(ToolError::Stopped)));
    let target = dir.path().with_extension("snapshot");
    assert!(matches!(tools::snapshot(&reader, &target, &mut |_| false), Err(ToolError::Stopped)));
    assert!(!is_there(&target), "nothing of it is left");
}

#[test]
fn facts_say_what_there_is() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(small(dir.path())).unwrap();
    fill(&store, 300);
    settle(&store);
    let reader = StoreReader::open(dir.path()).unwrap();
    let facts = tools::facts(&reader, &mut |_| true).unwrap();
    assert!(facts.is_locked && facts.has_abort_file);
    assert_eq!(facts.locked_by, None, "it is this process");
    store.append(&record("a", 0, b"x")).unwrap(); // a look at the lock does not give it up
    assert!(matches!(Store::open(small(dir.path())), Err(StoreError::Locked { .. })));
    store.shutdown().unwrap();
    let facts = tools::facts(&reader, &mut |_| true).unwrap();
    assert!(!facts.is_locked && !facts.has_abort_file && facts.mark.unwrap().closed);
    assert_eq!(facts.topics.iter().map(|topic| topic.topic.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    let queue = &facts.topics[0].queues[0];
    assert_eq!((queue.min_offset.get(), queue.max_offset.get()), (0, 101));
    assert!(queue.first_stored_at_ms.unwrap() <= queue.last_stored_at_ms.unwrap());
    assert!(queue.estimated_bytes > 10_000 && facts.log.holes.is_empty());
}

#[test]
fn a_store_of_another_broker_with_delay_levels_of_its_own_is_sound() {
    let dir = tempfile::tempdir().unwrap();
    let config = StoreConfig { delay_levels: "7s 9s".parse().unwrap(), ..small(dir.path()) };
    let store = Store::open(config).unwrap();
    for level in 1..=2u32 {
        let properties = format!("DELAY\x01{level}\x02");
        let delayed = record("SCHEDULE_TOPIC_XXXX", level - 1, b"later");
        store.append(&NewRecord { properties: properties.as_bytes(), ..delayed }).unwrap();
    }
    settle(&store);
    store.shutdown().unwrap();
    assert_sound(dir.path());
}
