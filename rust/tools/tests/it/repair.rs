//! What a repair leaves, and what it keeps.

use std::ops::Range;

use rocketpy_env::{Disk, DiskFile, OpenMode, RealDisk};
use rocketpy_filter::MessageFilter;
use rocketpy_store::reader::StoreReader;
use rocketpy_store::{FlushMode, Store, StoreConfig, StoreError};
use rocketpy_tools::{self as tools, ProblemKind, RepairAction, ToolError};

use crate::support::{ALL, contents, killed_copy, overwrite, quiet, settle, small, views};
use crate::{Placed, assert_sound, closed, fill, go_on, log_file, records};

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
        let fetch = store.get(topic, *queue_id, *queue_offset as i64, &ALL, &MessageFilter::All).unwrap();
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

/// Damages copies of a store at random places, a copy in each round, and repairs them.
fn every_record_outside_stays_at_its_place(rounds: Range<u64>) {
    let clean = tempfile::tempdir().unwrap();
    closed(clean.path(), 900);
    let before = records(clean.path());
    let end = assert_sound(clean.path()).log_end.get();
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64 ^ rounds.start;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for round in rounds {
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
fn whatever_is_damaged_every_record_outside_stays_at_its_place_and_a_server_opens_the_store() {
    every_record_outside_stays_at_its_place(0..8);
}

#[test]
fn whatever_else_is_damaged_every_record_outside_stays_at_its_place_and_a_server_opens_the_store() {
    every_record_outside_stays_at_its_place(8..16);
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

#[test]
fn a_checkpoint_with_a_time_that_no_clock_shows_is_put_aside() {
    let dir = tempfile::tempdir().unwrap();
    let config = closed(dir.path(), 60);
    let before = records(dir.path());
    overwrite(&dir.path().join("checkpoint"), 0, &[0x7f; 8]);
    assert!(matches!(Store::open(config.clone()), Err(StoreError::BadCheckpoint { .. })));
    let report = tools::verify(&StoreReader::open(dir.path()).unwrap(), &mut go_on).unwrap();
    assert!(report.problems.iter().any(|one| one.kind == ProblemKind::BadCheckpoint), "{report:?}");
    let actions = repaired(&config, &before, &[]);
    assert!(matches!(actions[..], [RepairAction::DropCheckpoint { .. }]), "{actions:#?}");
}

#[test]
fn damage_over_the_durable_mark_is_mended_with_the_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let (root, config) = (dir.path().join("store"), small(&dir.path().join("killed")));
    let store = Store::open(quiet(&root, FlushMode::Async)).unwrap();
    fill(&store, 60);
    store.shutdown().unwrap();
    let store = Store::open(quiet(&root, FlushMode::Async)).unwrap();
    let marked = store.max_physical_offset().get(); // the start has written a mark
    fill(&store, 60);
    while store.dispatched_offset() < store.max_physical_offset() {
        std::thread::yield_now();
    }
    let before = records(&root);
    for (from, to) in [(marked - 400, marked + 400), (marked - 50, marked + 3000)] {
        killed_copy(&root, &config.root);
        for at in from..to {
            let (path, place) = log_file(&config, at);
            overwrite(&path, place, &[0xee]);
        }
        assert!(matches!(Store::open(config.clone()), Err(StoreError::InteriorDamage { .. })));
        let actions = repaired(&config, &before, &[(from, to)]);
        let is_put_aside = |action: &RepairAction| matches!(action, RepairAction::DropCheckpoint { .. });
        assert!(actions.iter().any(is_put_aside), "{actions:#?}");
        RealDisk.remove_dir_all(&config.root).unwrap();
    }
}

#[test]
fn queue_files_of_another_size_are_reported_and_the_queues_put_aside() {
    for size_bytes in [1000, 990, 2020] {
        let dir = tempfile::tempdir().unwrap();
        let config = closed(dir.path(), 60);
        let before = records(dir.path());
        let path = dir.path().join("consumequeue/a/0/00000000000000000000");
        RealDisk.open_file(&path, OpenMode::Write).unwrap().set_len(size_bytes).unwrap();
        assert!(matches!(Store::open(config.clone()), Err(StoreError::WrongFileSize { .. })));
        let report = tools::verify(&StoreReader::open(dir.path()).unwrap(), &mut go_on).unwrap();
        let [problem] = &report.problems[..] else { panic!("{report:#?}") };
        assert_eq!((problem.kind, &problem.path), (ProblemKind::BadFile, &path));
        let texts = (format!("{size_bytes} bytes"), "2000 bytes, as most queue files".to_owned());
        assert_eq!((&problem.found, &problem.expected), (&texts.0, &texts.1));
        let actions = repaired(&config, &before, &[]);
        let rebuilds = [RepairAction::RebuildQueues {
            path: dir.path().join("consumequeue"),
            reason: format!("found {}, expected {}", texts.0, texts.1),
        }];
        assert!(matches!(actions[0], RepairAction::DropCheckpoint { .. }), "{actions:#?}");
        assert_eq!(actions[1..], rebuilds);
    }
}
