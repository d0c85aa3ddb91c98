//! Tools on folders of real stores: what they say of sound, damaged and live ones, what a repair leaves, what a snapshot shares.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rocketpy_env::{Disk, RealDisk};
use rocketpy_filter::TagFilter;
use rocketpy_model::sys_flag;
use rocketpy_store::reader::{RangeOptions, StoreReader};
use rocketpy_store::tools::{
    self, Problem, ProblemKind, Progress, RepairAction, Selected, Selection, ToolError, Transfer,
    VerifyReport,
};
use rocketpy_store::{NewRecord, Store, StoreConfig, StoreError};

use crate::support::{ALL, contents, killed_copy, overwrite, read_all, record, settle, small, views};

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

#[test]
fn a_server_that_writes_meanwhile_does_not_disturb_a_check() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(small(dir.path())).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                fill(&store, 20);
                std::thread::yield_now();
            }
        });
        for _ in 0..30 {
            let report = verify(dir.path());
            if !report.is_sound() {
                stop.store(true, Ordering::Relaxed);
                panic!("{:#?}", report.problems);
            }
        }
        stop.store(true, Ordering::Relaxed);
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
    let end = assert_sound(dir.path()).log_end;
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
    assert_eq!((missing.physical_offset, missing.size_bytes), (Some(second), Some(second)));
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
    assert!(!target.exists(), "nothing of it is left");
}

#[test]
fn facts_say_what_there_is() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(small(dir.path())).unwrap();
    fill(&store, 300);
    settle(&store);
    let reader = StoreReader::open(dir.path()).unwrap();
    let facts = tools::facts(&reader).unwrap();
    assert!(facts.is_locked && facts.has_abort_file);
    assert_eq!(facts.locked_by, None, "it is this process");
    store.append(&record("a", 0, b"x")).unwrap(); // a look at the lock does not give it up
    assert!(matches!(Store::open(small(dir.path())), Err(StoreError::Locked { .. })));
    store.shutdown().unwrap();
    let facts = tools::facts(&reader).unwrap();
    assert!(!facts.is_locked && !facts.has_abort_file && facts.mark.unwrap().closed);
    assert_eq!(facts.topics.iter().map(|topic| topic.topic.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    let queue = &facts.topics[0].queues[0];
    assert_eq!((queue.min_offset, queue.max_offset), (0, 101));
    assert!(queue.first_stored_at_ms.unwrap() <= queue.last_stored_at_ms.unwrap());
    assert!(queue.estimated_bytes > 10_000 && facts.log.holes.is_empty());
}

/// Repairs a store and opens it, and checks that every record outside the damage is where it was. Returns what was done.
fn repaired(config: &StoreConfig, before: &Placed, damaged: &[(u64, u64)]) -> Vec<RepairAction> {
    let root = &config.root;
    let reader = StoreReader::open(root).unwrap();
    let bytes_before = contents(root);
    let preview = tools::plan_repair(&reader, &mut go_on).unwrap();
    assert_eq!(contents(root), bytes_before, "a preview changes nothing");
    let repair = tools::repair(&reader, &mut go_on).unwrap();
    assert_eq!(repair.actions, preview.actions, "it does what it said");
    assert_eq!(repair.kept_in.is_some(), !repair.actions.is_empty());
    assert_sound(root);
    let is_damaged = |at: &u64, size: u64| damaged.iter().any(|&(from, to)| from < at + size && *at < to);
    let store = Store::open(config.clone()).unwrap();
    for (at, (size, topic, queue_id, queue_offset, body)) in before {
        if is_damaged(at, *size) {
            continue;
        }
        let fetch = store.get(topic, *queue_id, *queue_offset as i64, &ALL, &TagFilter::All).unwrap();
        let view = views(&fetch)[0];
        assert_eq!((view.physical_offset.get(), view.body), (*at, &body[..]), "{topic}-{queue_id}");
        assert_eq!(view.queue_offset.get(), *queue_offset);
    }
    fill(&store, 20);
    store.shutdown().unwrap();
    assert_sound(root);
    repair.actions
}

#[test]
fn nothing_is_repaired_where_nothing_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let config = closed(dir.path(), 50);
    let before = records(dir.path());
    let bytes = contents(dir.path());
    let repair = tools::repair(&StoreReader::open(dir.path()).unwrap(), &mut go_on).unwrap();
    assert_eq!((repair.actions, repair.kept_in), (vec![], None));
    assert_eq!(contents(dir.path()), bytes);
    assert_eq!(repaired(&config, &before, &[]), []);
}

#[test]
fn whatever_is_damaged_every_record_outside_stays_at_its_place_and_a_server_opens_the_store() {
    let clean = tempfile::tempdir().unwrap();
    closed(clean.path(), 900);
    let before = records(clean.path());
    let end = assert_sound(clean.path()).log_end;
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for round in 0..16 {
        let dir = tempfile::tempdir().unwrap();
        let config = small(dir.path());
        killed_copy(clean.path(), dir.path());
        let mut damaged = Vec::new();
        for _ in 0..1 + random(4) {
            let from = random(end);
            let size = [1, 4, 40, 400, 5000][random(5) as usize];
            for at in from..(from + size).min(end) {
                let (path, place) = log_file(&config, at);
                overwrite(&path, place, &[random(256) as u8]);
            }
            damaged.push((from, from + size));
        }
        if round % 3 == 0 {
            let entry = random(30) * 20 + random(20);
            overwrite(
                &dir.path().join("consumequeue/a/0/00000000000000000000"),
                entry,
                &[random(255) as u8 + 1],
            );
        }
        let actions = repaired(&config, &before, &damaged);
        for action in &actions {
            assert!(!matches!(action, RepairAction::MakeFile { .. }), "round {round}: {actions:#?}");
        }
    }
}

#[test]
fn what_a_repair_writes_over_is_kept_byte_by_byte_with_a_list() {
    let dir = tempfile::tempdir().unwrap();
    let config = closed(dir.path(), 60);
    let before = records(dir.path());
    let (at, (size, ..)) = before.iter().nth(20).unwrap();
    let (path, place) = log_file(&config, *at);
    overwrite(&path, place + 50, b"damaged");
    let damaged = RealDisk.read(&path, 1 << 30).unwrap()[place as usize..(place + size) as usize].to_vec();
    let repair = tools::repair(&StoreReader::open(dir.path()).unwrap(), &mut go_on).unwrap();
    assert!(matches!(repair.actions[0], RepairAction::FillWithRecord { .. }), "{:#?}", repair.actions);
    assert!(matches!(repair.actions[1], RepairAction::BlankEntry { .. }), "{:#?}", repair.actions);
    assert!(matches!(repair.actions[2..], [RepairAction::RebuildIndex { .. }]), "{:#?}", repair.actions);
    let side = contents(&repair.kept_in.unwrap());
    assert!(side.values().any(|bytes| *bytes == damaged), "the damaged record is kept");
    let manifest = side.iter().find(|(name, _)| name.ends_with("manifest.json")).unwrap().1;
    let manifest: serde_json::Value = serde_json::from_slice(manifest).unwrap();
    assert_eq!(manifest["done"], true);
    assert_eq!(manifest["kept"].as_array().unwrap().len(), 3);
    assert_eq!(manifest["actions"][0]["action"], "fill_with_record");
    let after = records(dir.path());
    assert_eq!(after.len(), before.len() - 1);
}

#[test]
fn a_lost_end_lost_queues_and_a_lost_log_file_are_repaired() {
    // The last record was durable and is damaged.
    let dir = tempfile::tempdir().unwrap();
    let config = closed(dir.path(), 60);
    let before = records(dir.path());
    let (at, (size, ..)) = before.last_key_value().unwrap();
    let (path, place) = log_file(&config, *at);
    overwrite(&path, place + 30, b"damaged");
    assert!(matches!(Store::open(config.clone()), Err(StoreError::InteriorDamage { .. })));
    let actions = repaired(&config, &before, &[(*at, at + size)]);
    assert!(
        actions.iter().any(|action| matches!(action, RepairAction::DropCheckpoint { .. })),
        "{actions:#?}"
    );
    // A whole topic's queues are lost.
    let dir = tempfile::tempdir().unwrap();
    let config = closed(dir.path(), 60);
    let before = records(dir.path());
    RealDisk.remove_dir_all(&dir.path().join("consumequeue/b")).unwrap();
    let actions = repaired(&config, &before, &[]);
    assert!(
        actions.iter().any(|action| matches!(action, RepairAction::RebuildQueues { .. })),
        "{actions:#?}"
    );
    // A log file is lost.
    let dir = tempfile::tempdir().unwrap();
    let config = closed(dir.path(), 900);
    let before = records(dir.path());
    let size = config.commit_log_file_size;
    RealDisk.remove_file(&log_file(&config, size).0).unwrap();
    assert!(matches!(Store::open(config.clone()), Err(StoreError::MissingFile { .. })));
    let actions = repaired(&config, &before, &[(size, 2 * size)]);
    assert!(actions.iter().any(|action| matches!(action, RepairAction::MakeFile { .. })), "{actions:#?}");
    // The index is damaged.
    let dir = tempfile::tempdir().unwrap();
    let config = closed(dir.path(), 60);
    let before = records(dir.path());
    let index = dir.path().join("index");
    let path = index.join(&RealDisk.list(&index).unwrap()[0].name);
    overwrite(&path, 40 + 4 * u64::from(config.index_slots) + 24, b"damaged");
    let actions = repaired(&config, &before, &[]);
    assert!(matches!(actions[..], [RepairAction::RebuildIndex { .. }]), "{actions:#?}");
}

#[test]
fn a_torn_tail_of_a_killed_store_is_cut_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    let config = small(&dir.path().join("killed"));
    let store = Store::open(small(&root)).unwrap();
    fill(&store, 60);
    settle(&store);
    killed_copy(&root, &config.root);
    let before = records(&config.root);
    let end = store.max_physical_offset().get();
    let (path, place) = log_file(&config, end);
    overwrite(&path, place, &[7; 300]);
    let report = assert_sound(&config.root);
    assert_eq!(report.tail_bytes, 300, "it is no problem: the next start cuts it off");
    let actions = repaired(&config, &before, &[]);
    assert!(matches!(actions[..], [RepairAction::CutTail { size_bytes: 300, .. }]), "{actions:#?}");
}

#[test]
fn a_store_in_use_is_not_repaired() {
    let dir = tempfile::tempdir().unwrap();
    let _store = Store::open(small(dir.path())).unwrap();
    let reader = StoreReader::open(dir.path()).unwrap();
    let error = tools::repair(&reader, &mut go_on).unwrap_err();
    assert!(matches!(error, ToolError::Store(StoreError::Locked { .. })), "{error}");
}

/// Path, inode, bytes and time of change of each file of the log.
fn log_files(root: &Path) -> BTreeMap<String, (u64, i64, i64, Vec<u8>)> {
    let dir = root.join("commitlog");
    let files = RealDisk.list(&dir).unwrap();
    let look = |name: String| {
        let path = dir.join(&name);
        #[allow(clippy::disallowed_methods, reason = "inode and times are what this is about")]
        let metadata = std::fs::metadata(&path).unwrap();
        let facts = (metadata.ino(), metadata.mtime(), metadata.mtime_nsec());
        (name, (facts.0, facts.1, facts.2, RealDisk.read(&path, 1 << 30).unwrap()))
    };
    files.into_iter().map(|file| look(file.name.into_string().unwrap())).collect()
}

#[test]
fn a_snapshot_holds_what_was_readable_shares_complete_files_and_a_server_on_it_leaves_the_store_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (root, target) = (dir.path().join("store"), dir.path().join("snapshot"));
    let store = Store::open(small(&root)).unwrap();
    RealDisk.create_dir_all(&root.join("config")).unwrap();
    RealDisk.replace(&root.join("config/topics.json"), b"{}").unwrap();
    fill(&store, 900);
    settle(&store);
    let reader = StoreReader::open(&root).unwrap();
    let snapshot = tools::snapshot(&reader, &target, &mut go_on).unwrap();
    assert_eq!(snapshot.log_end, store.max_physical_offset().get());
    assert!(snapshot.linked_files >= 2 && snapshot.copied_files == 1, "{snapshot:?}");
    assert_eq!(snapshot.metadata_files, 1);
    let report = assert_sound(&target);
    assert!(report.is_closed && report.has_mark && report.records == 1080);
    assert_eq!(report.records_with_own_check, report.records, "every record still has to have its checksum");
    let before = records(&target);
    assert_eq!(before, records(&root));
    let complete = |root: &Path| {
        let mut files = log_files(root);
        files.retain(|_, file| log_files(&target).values().any(|other| other.0 == file.0));
        files
    };
    let shared = complete(&root);
    assert_eq!(shared.len() as u64, snapshot.linked_files);
    // As a server: opened, written, killed, recovered.
    let copy = Store::open(small(&target)).unwrap();
    assert!(!copy.recovery().rebuilt_queues && copy.recovery().clean_exit);
    assert_eq!(read_all(&copy, "b", 0), read_all(&store, "b", 0));
    fill(&copy, 300);
    settle(&copy);
    let killed = dir.path().join("killed");
    std::process::Command::new("cp").arg("-al").arg(&target).arg(&killed).status().unwrap();
    RealDisk.remove_file(&killed.join("lock")).unwrap(); // the copy shares the lock's file as well
    let recovered = Store::open(small(&killed)).unwrap();
    assert!(!recovered.recovery().clean_exit);
    recovered.shutdown().unwrap();
    copy.shutdown().unwrap();
    assert_sound(&target);
    assert_eq!(complete(&root), shared, "bytes, inodes and times of the store's complete files");
    fill(&store, 10);
    store.shutdown().unwrap();
    assert_sound(&root);
}

#[test]
fn a_repair_of_a_snapshot_leaves_the_store_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (root, target) = (dir.path().join("store"), dir.path().join("snapshot"));
    let config = closed(&root, 900);
    tools::snapshot(&StoreReader::open(&root).unwrap(), &target, &mut go_on).unwrap();
    let (path, place) = log_file(&config, 5000);
    overwrite(&path, place, &[9; 30]);
    let damaged = log_files(&root);
    assert!(kinds(&verify(&target)).contains("DamagedRecord"), "they share the file");
    tools::repair(&StoreReader::open(&target).unwrap(), &mut go_on).unwrap();
    assert_sound(&target);
    assert_eq!(log_files(&root), damaged);
    assert!(!verify(&root).is_sound());
}

#[test]
fn snapshots_of_a_store_that_is_written_are_prefixes_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    let store = Store::open(small(&root)).unwrap();
    let (stop, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let snapshots = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // So many for each snapshot: a writer without a bound fills the folder while a slow machine verifies.
            while !stop.load(Ordering::Relaxed) {
                if sent.load(Ordering::Relaxed) >= (snapshots.load(Ordering::Relaxed) + 1) * 24 * 100 {
                    std::thread::yield_now();
                    continue;
                }
                fill(&store, 20);
                settle(&store);
                sent.fetch_add(24, Ordering::Relaxed);
            }
        });
        for number in 0..5 {
            let acknowledged = sent.load(Ordering::Relaxed);
            let target = dir.path().join(format!("snapshot-{number}"));
            let made = tools::snapshot(&StoreReader::open(&root).unwrap(), &target, &mut go_on);
            let report = made.map(|_| verify(&target));
            let is_good =
                report.as_ref().is_ok_and(|report| report.is_sound() && report.records >= acknowledged);
            if !is_good {
                stop.store(true, Ordering::Relaxed);
                panic!("{acknowledged}: {report:#?}");
            }
            Store::open(small(&target)).unwrap().shutdown().unwrap();
            snapshots.fetch_add(1, Ordering::Relaxed);
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_snapshot_wants_a_new_or_empty_folder_outside_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    closed(&root, 10);
    let reader = StoreReader::open(&root).unwrap();
    let inside = tools::snapshot(&reader, &root.join("snapshot"), &mut go_on).unwrap_err();
    assert!(matches!(inside, ToolError::TargetInside { .. }), "{inside}");
    let target = dir.path().join("taken");
    RealDisk.create_dir_all(&target).unwrap();
    RealDisk.replace(&target.join("thesis.txt"), b"precious").unwrap();
    let taken = tools::snapshot(&reader, &target, &mut go_on).unwrap_err();
    assert!(matches!(taken, ToolError::TargetNotEmpty { .. }), "{taken}");
    assert_eq!(RealDisk.read(&target.join("thesis.txt"), 100).unwrap(), b"precious");
}

#[test]
fn records_are_chosen_by_place_queue_time_and_key() {
    let dir = tempfile::tempdir().unwrap();
    closed(dir.path(), 300);
    let all = selected(dir.path(), Selection::default());
    assert_eq!(all.len(), 300);
    let place = all[100].0;
    let by_place =
        Selection { physical_from: Some(place), physical_before: Some(place + 1), ..Selection::default() };
    assert_eq!(selected(dir.path(), by_place), [all[100].clone()]);
    let key = Selection { key: Some("k7".to_owned()), ..Selection::default() };
    assert_eq!(selected(dir.path(), key), [all[7].clone()]);
    let unique =
        Selection { key: Some("u7".to_owned()), topics: vec!["a".to_owned()], ..Selection::default() };
    assert_eq!(selected(dir.path(), unique), [all[7].clone()]);
    let queue = Selection {
        topics: vec!["a".to_owned()],
        queues: Some(vec![1]),
        queue_from: Some(3),
        queue_before: Some(5),
        ..Selection::default()
    };
    let offsets: Vec<u64> = selected(dir.path(), queue).into_iter().map(|(_, record)| record.3).collect();
    assert_eq!(offsets, [3, 4]);
    let before = Selection { stored_before_ms: Some(1), ..Selection::default() };
    assert_eq!(selected(dir.path(), before), []);
    let unknown = Selection { topics: vec!["x".to_owned()], ..Selection::default() };
    assert!(Selected::new(&StoreReader::open(dir.path()).unwrap(), unknown).is_err());
}

/// Choices by key of every shape.
fn keyed_selections(all: &[(u64, Seen)]) -> Vec<Selection> {
    let middle = Some(all[all.len() / 2].0);
    let mut selections = Vec::new();
    for key in ["k7", "u8", "all", "none"] {
        let any = Selection { key: Some(key.to_owned()), ..Selection::default() };
        let of_topic = Selection { topics: vec!["a".to_owned()], ..any.clone() };
        selections.extend([
            Selection { physical_from: middle, ..any.clone() },
            Selection { physical_before: middle, topics: vec!["b".to_owned()], ..any.clone() },
            Selection { queue_from: Some(3), queue_before: Some(70), ..of_topic.clone() },
            Selection {
                queues: Some(vec![1]),
                topics: vec!["a".to_owned(), "b".to_owned()],
                ..of_topic.clone()
            },
            Selection { stored_from_ms: Some(1), stored_before_ms: Some(i64::MAX), ..of_topic.clone() },
            of_topic,
            any,
        ]);
    }
    selections
}

/// Compares what the index and a scan of the log choose; returns how many records.
fn assert_same_by_key(root: &Path) -> usize {
    let all = selected(root, Selection::default());
    let mut chosen = 0;
    for selection in keyed_selections(&all) {
        let found = selected(root, selection.clone());
        let scanned = selected(root, Selection { scans_log: true, ..selection.clone() });
        assert_eq!(found, scanned, "{selection:?}");
        chosen += found.len();
    }
    chosen
}

#[test]
fn the_index_chooses_what_a_scan_chooses_also_behind_what_it_covers() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    closed(&root, 300);
    assert!(assert_same_by_key(&root) > 300);
    let store = Store::open(small(&root)).unwrap();
    store.delete_topic("a").unwrap();
    fill(&store, 100);
    settle(&store);
    assert!(same_by_key_in_topics(&root), "the index does not cover the end of the log yet");
    let killed = dir.path().join("killed");
    killed_copy(&root, &killed);
    assert!(same_by_key_in_topics(&killed));
    store.shutdown().unwrap();
    let index = root.join("index");
    for entry in RealDisk.list(&index).unwrap() {
        RealDisk.remove_file(&index.join(entry.name)).unwrap();
    }
    assert!(assert_same_by_key(&root) > 400, "without the index the log is scanned");
}

/// As [`assert_same_by_key`], where a topic was deleted and made again: its former records are in the log and the index,
/// and no queue leads to them.
fn same_by_key_in_topics(root: &Path) -> bool {
    let all = selected(root, Selection::default());
    let named = keyed_selections(&all).into_iter().filter(|selection| !selection.topics.is_empty());
    named.into_iter().all(|selection| {
        selected(root, selection.clone()) == selected(root, Selection { scans_log: true, ..selection })
    })
}

#[test]
fn by_the_index_only_records_of_the_key_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let config = closed(dir.path(), 300);
    let all = selected(dir.path(), Selection::default());
    let (path, place) = log_file(&config, all[100].0);
    overwrite(&path, place + 60, &[0xff; 8]);
    let reader = StoreReader::open(dir.path()).unwrap();
    for (topics, number) in [(vec![], 7), (vec!["a".to_owned()], 150)] {
        let selection = Selection { key: Some(format!("k{number}")), topics, ..Selection::default() };
        assert_eq!(selected(dir.path(), selection.clone()), [all[number].clone()]);
        let scan = Selection { scans_log: true, ..selection };
        let mut scan = Selected::new(&reader, scan).unwrap();
        let mut step = || scan.step(|_| Ok::<_, ToolError>(()));
        assert!(std::iter::repeat_with(&mut step).find(|step| !matches!(step, Ok(true))).unwrap().is_err());
    }
    let damaged = Selection { key: Some("k100".to_owned()), ..Selection::default() };
    let mut strict = Selected::new(&reader, damaged.clone()).unwrap();
    let error = strict.step(|_| Ok::<_, ToolError>(())).unwrap_err().to_string();
    assert!(error.contains(&all[100].0.to_string()), "{error}");
    let mut lenient = Selected::new(&reader, Selection { skips_damage: true, ..damaged }).unwrap();
    while lenient.step(|_| Ok::<_, ToolError>(())).unwrap() {}
    assert_eq!(lenient.left_out(), 1);
}

#[test]
fn a_damaged_record_ends_a_choice_or_is_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let config = closed(dir.path(), 30);
    let (at, _) = records(dir.path()).into_iter().nth(9).unwrap();
    let (path, place) = log_file(&config, at);
    overwrite(&path, place + 90, b"damaged");
    for topics in [vec![], vec!["a".to_owned(), "b".to_owned()]] {
        let selection = Selection { topics, ..Selection::default() };
        let mut strict = Selected::new(&StoreReader::open(dir.path()).unwrap(), selection.clone()).unwrap();
        let error = loop {
            match strict.step(|_| Ok::<_, ToolError>(())) {
                Ok(true) => {}
                Ok(false) => panic!("it ended without an error"),
                Err(error) => break error,
            }
        };
        assert!(error.to_string().contains(&at.to_string()), "{error}");
        let lenient = Selection { skips_damage: true, ..selection };
        assert_eq!(selected(dir.path(), lenient).len(), 29);
    }
}

#[test]
fn messages_go_from_store_to_store_with_all_that_their_producer_stated() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    closed(&from, 300);
    let reader = StoreReader::open(&from).unwrap();
    for round in 1..=2 {
        let mut transfer = Transfer::open(&to, None, Some(&from)).unwrap();
        let chosen = Selected::new(&reader, Selection::default()).unwrap();
        transfer.append_all(chosen, &mut go_on).unwrap();
        let report = transfer.finish(Some(&from)).unwrap();
        assert_eq!((report.messages, report.passed_over), (300, 60));
        assert_eq!(report.topics, BTreeMap::from([("a".to_owned(), 200), ("b".to_owned(), 100)]));
        assert_eq!(report.new_topics.len(), if round == 1 { 2 } else { 0 });
    }
    assert_sound(&to);
    let content = |root: &Path| {
        let mut found: BTreeMap<(String, u32), Vec<Vec<u8>>> = BTreeMap::new();
        for (_, (_, topic, queue_id, _, body)) in selected(root, Selection::default()) {
            found.entry((topic, queue_id)).or_default().push(body);
        }
        found
    };
    let twice: BTreeMap<_, _> = content(&from)
        .into_iter()
        .map(|(queue, bodies)| (queue, [bodies.clone(), bodies].concat()))
        .collect();
    assert_eq!(content(&to), twice);
    let ranges = StoreReader::open(&to).unwrap().ranges("a", &RangeOptions::default()).unwrap();
    assert_eq!(ranges.len(), 2);
    let topics: serde_json::Value =
        serde_json::from_slice(&RealDisk.read(&to.join("config/topics.json"), 1 << 20).unwrap()).unwrap();
    assert_eq!(topics["topicConfigTable"]["a"]["writeQueueNums"], 2);
    let _in_use = Store::open(small(&to)).unwrap();
    let error = Transfer::open(&to, None, None).err().unwrap();
    assert!(matches!(error, ToolError::Store(StoreError::Locked { .. })), "{error}");
}
