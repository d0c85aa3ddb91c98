//! Which records are chosen, and messages from store to store.

use std::collections::BTreeMap;
use std::path::Path;

use rocketpy_env::{Disk, RealDisk};
use rocketpy_model::{PhysicalOffset, QueueOffset};
use rocketpy_protocol::record::RecordView;
use rocketpy_store::reader::{RangeOptions, ReadError, StoreReader};
use rocketpy_store::{Store, StoreError};
use rocketpy_tools::{Selected, Selection, ToolError, Transfer};

use crate::faulty::FaultyDisk;
use crate::support::{killed_copy, overwrite, settle, settle_in_files, small};
use crate::{Seen, assert_sound, closed, fill, go_on, log_file, records, selected, while_it_is_filled};

#[test]
fn records_are_chosen_by_place_queue_time_and_key() {
    let dir = tempfile::tempdir().unwrap();
    closed(dir.path(), 300);
    let all = selected(dir.path(), Selection::default());
    assert_eq!(all.len(), 300);
    let place = all[100].0;
    let by_place = Selection {
        physical_from: Some(PhysicalOffset(place)),
        physical_before: Some(PhysicalOffset(place + 1)),
        ..Selection::default()
    };
    assert_eq!(selected(dir.path(), by_place), [all[100].clone()]);
    let key = Selection { key: Some("k7".to_owned()), ..Selection::default() };
    assert_eq!(selected(dir.path(), key), [all[7].clone()]);
    let unique =
        Selection { key: Some("u7".to_owned()), topics: vec!["a".to_owned()], ..Selection::default() };
    assert_eq!(selected(dir.path(), unique), [all[7].clone()]);
    let queue = Selection {
        topics: vec!["a".to_owned()],
        queues: Some(vec![1]),
        queue_from: Some(QueueOffset(3)),
        queue_before: Some(QueueOffset(5)),
        ..Selection::default()
    };
    let offsets: Vec<u64> = selected(dir.path(), queue).into_iter().map(|(_, record)| record.3).collect();
    assert_eq!(offsets, [3, 4]);
    let before = Selection { stored_before_ms: Some(1), ..Selection::default() };
    assert_eq!(selected(dir.path(), before), []);
    let unknown = Selection { topics: vec!["x".to_owned()], ..Selection::default() };
    assert!(Selected::new(&StoreReader::open(dir.path()).unwrap(), unknown).is_err());
}

#[test]
fn a_record_that_is_none_is_named_with_its_file_where_checksums_are_not_compared() {
    let dir = tempfile::tempdir().unwrap();
    let config = closed(dir.path(), 40);
    let (&place, _) = records(dir.path()).iter().find(|(_, seen)| seen.1 == "a").unwrap();
    let (path, at) = log_file(&config, place);
    overwrite(&path, at + 84, &[0x7f; 4]); // the length of its body; its head stays
    let reader = StoreReader::open(dir.path()).unwrap();
    let selection =
        Selection { topics: vec!["a".to_owned()], trusts_checksums: true, ..Selection::default() };
    let mut selected = Selected::new(&reader, selection).unwrap();
    let error = loop {
        match selected.step(|_| Ok::<_, ToolError>(())) {
            Ok(true) => {}
            Ok(false) => panic!("the damage is not seen"),
            Err(error) => break error,
        }
    };
    let ToolError::Read(read) = &error else { panic!("{error}") };
    assert!(
        matches!(read, ReadError::BrokenRecord { path: named, physical_offset, .. }
            if *named == path && physical_offset.get() == place),
        "{error}"
    );
    assert!(read.is_damage() && !error.retryable() && !read.may_have_been_applied());
}

#[test]
fn what_a_server_writes_meanwhile_is_no_damage() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(small(dir.path())).unwrap();
    fill(&store, 20);
    settle(&store);
    while_it_is_filled(&store, 100, || {
        let reader = StoreReader::open(dir.path()).unwrap();
        let by_place = Selection { physical_from: Some(PhysicalOffset::ZERO), ..Selection::default() };
        let mut selected = Selected::new(&reader, by_place).map_err(|error| error.to_string())?;
        while selected.step(|_| Ok::<_, ToolError>(())).map_err(|error| error.to_string())? {}
        Ok(())
    });
}

#[test]
fn a_file_that_one_listing_leaves_out_is_not_missing() {
    let dir = tempfile::tempdir().unwrap();
    let config = closed(dir.path(), 500);
    let second = log_file(&config, config.commit_log_file_size).0;
    let disk = FaultyDisk::default();
    let reader = StoreReader::open_on(disk.clone(), dir.path(), None).unwrap();
    *disk.faults.left_out_of_listing.lock() = Some(second);
    let mut selected = Selected::new(&reader, Selection::default()).unwrap();
    let mut count = 0;
    let mut take = |_: &RecordView<'_>| {
        count += 1;
        Ok::<_, ToolError>(())
    };
    while selected.step(&mut take).unwrap() {}
    assert_eq!((count, selected.left_out()), (600, 0));
    assert!(disk.faults.left_out_of_listing.lock().is_none(), "a listing left it out");
}

/// Choices by key of every shape.
fn keyed_selections(all: &[(u64, Seen)]) -> Vec<Selection> {
    let middle = Some(PhysicalOffset(all[all.len() / 2].0));
    let mut selections = Vec::new();
    for key in ["k7", "u8", "all", "none"] {
        let any = Selection { key: Some(key.to_owned()), ..Selection::default() };
        let of_topic = Selection { topics: vec!["a".to_owned()], ..any.clone() };
        selections.extend([
            Selection { physical_from: middle, ..any.clone() },
            Selection { physical_before: middle, topics: vec!["b".to_owned()], ..any.clone() },
            Selection {
                queue_from: Some(QueueOffset(3)),
                queue_before: Some(QueueOffset(70)),
                ..of_topic.clone()
            },
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
    settle_in_files(&store);
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
fn records_of_a_deleted_topic_are_found_by_key_when_the_topic_is_named() {
    let dir = tempfile::tempdir().unwrap();
    closed(dir.path(), 100);
    let of_a = selected(dir.path(), Selection { key: Some("k7".to_owned()), ..Selection::default() });
    let (topic, other) = (of_a[0].1.1.clone(), if of_a[0].1.1 == "a" { "b" } else { "a" });
    let store = Store::open(small(dir.path())).unwrap();
    store.delete_topic(&topic).unwrap();
    store.shutdown().unwrap();
    let by_key = |topics: &[&str], key: &str, scans_log| Selection {
        key: Some(key.to_owned()),
        topics: topics.iter().map(|&topic| topic.to_owned()).collect(),
        scans_log,
        ..Selection::default()
    };
    for scans_log in [false, true] {
        assert_eq!(selected(dir.path(), by_key(&[&topic], "k7", scans_log)), of_a);
        assert_eq!(selected(dir.path(), by_key(&[other, &topic], "k7", scans_log)), of_a);
        let reader = StoreReader::open(dir.path()).unwrap();
        let mut unknown = Selected::new(&reader, by_key(&["never"], "k7", scans_log)).unwrap();
        let mut step = || unknown.step(|_| Ok::<_, ToolError>(()));
        let end = std::iter::repeat_with(&mut step).find(|step| !matches!(step, Ok(true))).unwrap();
        assert!(matches!(end, Err(ToolError::Read(ReadError::UnknownTopic { .. }))), "{end:?}");
    }
    assert_eq!(selected(dir.path(), by_key(&[], "k7", false)), [], "the index knows a key by its topic");
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
        let mut transfer = Transfer::open(&to, None, Some(&reader)).unwrap();
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
