//! What a cut leaves of a log, and what it keeps.

use rocketpy_env::{Disk, RealDisk};
use rocketpy_filter::MessageFilter;
use rocketpy_model::PhysicalOffset;
use rocketpy_store::reader::StoreReader;
use rocketpy_store::{Store, StoreConfig, StoreError};
use rocketpy_tools::{self as tools, RepairAction, ToolError};

use crate::support::{ALL, contents, killed_copy, views};
use crate::{Placed, assert_sound, closed, fill, go_on, records};

/// Cuts a copy of a store at a place, and checks that it has what lies before, that the rest is kept, and that it goes on.
fn cut_copy(clean: &StoreConfig, before: &Placed, at: u64) {
    let dir = tempfile::tempdir().unwrap();
    let config = StoreConfig { root: dir.path().to_owned(), ..clean.clone() };
    killed_copy(&clean.root, dir.path());
    let reader = StoreReader::open(dir.path()).unwrap();
    let untouched = contents(dir.path());
    let preview = tools::plan_cut(&reader, PhysicalOffset(at), &mut go_on).unwrap();
    assert_eq!(contents(dir.path()), untouched, "a preview changes nothing");
    let done = tools::cut(&reader, PhysicalOffset(at), &mut go_on).unwrap();
    assert_eq!(done.actions, preview.actions, "it does what it said");
    let kept = done.kept_in.unwrap();
    for action in &done.actions {
        let RepairAction::CutTail { path, file_offset, size_bytes, .. } = action else { continue };
        let name = path.strip_prefix(dir.path()).unwrap();
        let copy = kept.join(name).join(format!("{file_offset}-{size_bytes}"));
        let (from, to) = (*file_offset as usize, (file_offset + size_bytes) as usize);
        let was = RealDisk.read(&clean.root.join(name), 1 << 30).unwrap();
        assert!(RealDisk.read(&copy, 1 << 30).unwrap() == was[from..to], "{name:?} from {from}");
    }

    let store = Store::open(config).unwrap();
    assert_eq!(store.max_physical_offset().get(), at);
    assert!(!store.recovery().clean_exit);
    for (place, (size, topic, queue_id, queue_offset, body)) in before {
        let end = store.next_queue_offset(topic, *queue_id).get();
        if *place >= at {
            assert!(end <= *queue_offset, "{topic}-{queue_id} goes no further than the log");
            continue;
        }
        assert!(place + size <= at && *queue_offset < end);
        let fetch = store.get(topic, *queue_id, *queue_offset as i64, &ALL, &MessageFilter::All).unwrap();
        assert_eq!((views(&fetch)[0].physical_offset.get(), views(&fetch)[0].body), (*place, &body[..]));
    }
    fill(&store, 20);
    store.shutdown().unwrap();
    assert_sound(dir.path());
}

#[test]
fn a_log_that_is_cut_ends_there_and_the_rest_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let config = closed(dir.path(), 900);
    let before = records(dir.path());
    let places: Vec<u64> = before.keys().copied().collect();
    let in_second_file = places.iter().position(|at| *at >= config.commit_log_file_size).unwrap();
    let (last_of_first, first_of_second) = (places[in_second_file - 1], places[in_second_file]);
    assert!(first_of_second < *places.last().unwrap(), "there are several files");
    for at in [0, places[1], last_of_first, first_of_second, *places.last().unwrap()] {
        cut_copy(&config, &before, at);
    }
    let behind_the_last_of_a_file = last_of_first + before[&last_of_first].0;
    if behind_the_last_of_a_file < config.commit_log_file_size {
        cut_copy(&config, &before, behind_the_last_of_a_file);
    }
}

#[test]
fn a_log_is_cut_only_where_a_record_begins_and_nobody_has_it_open() {
    let dir = tempfile::tempdir().unwrap();
    let config = closed(dir.path(), 50);
    let reader = StoreReader::open(dir.path()).unwrap();
    let end = assert_sound(dir.path()).log_end.get();
    let untouched = contents(dir.path());
    let cut = |at| tools::cut(&reader, PhysicalOffset(at), &mut go_on);
    let done = cut(end).unwrap();
    assert_eq!((done.actions, done.kept_in), (vec![], None), "nothing lies behind the end");
    let places: Vec<u64> = records(dir.path()).into_keys().collect();
    let refused = cut(places[7] + 1).unwrap_err();
    let last = match refused {
        ToolError::NoRecordAt { last, .. } => last.get(),
        other => panic!("{other}"),
    };
    assert_eq!(last, places[7]);
    assert!(matches!(cut(end + 1), Err(ToolError::NoRecordAt { .. })), "behind the end are zeros");
    match cut(u64::MAX) {
        Err(ToolError::OutsideLog { at, start, end: end_of_files }) => {
            assert_eq!(
                (at.get(), start.get(), end_of_files.get()),
                (u64::MAX, 0, config.commit_log_file_size)
            );
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(contents(dir.path()), untouched);

    let store = Store::open(config).unwrap();
    assert!(matches!(cut(places[7]), Err(ToolError::Store(StoreError::Locked { .. }))));
    store.shutdown().unwrap();
}
