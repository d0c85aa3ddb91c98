//! The offline reader distinguishes an end that is damaged or lost from one that was never written.

use std::path::Path;
use std::time::Duration;

use rocketpy_env::{Disk, RealDisk};
use rocketpy_filter::tag_code;
use rocketpy_model::QueueOffset;
use rocketpy_protocol::disk::{Checkpoint, ConsumeQueueEntry};
use rocketpy_store::reader::{Missing, RangeOptions, ReadError, ScanOptions, StoreReader};
use rocketpy_store::{Appended, FlushMode, Store, StoreConfig};

use crate::support::{erase_mark, killed_copy, overwrite, record, settle_in_files, small};

/// Fills one queue over several files, the last record at least a millisecond behind the others.
fn fill(store: &Store) -> Vec<Appended> {
    let mut appended: Vec<Appended> = Vec::new();
    let mut is_later = false;
    while appended.len() < 350 || !is_later {
        let one = store.append(&record("t", 0, &[b'x'; 500])).unwrap();
        is_later = appended.last().is_some_and(|last| last.stored_at_ms < one.stored_at_ms);
        appended.push(one);
    }
    appended
}

/// How many messages a strict read of the topic gives.
fn read(root: &Path) -> Result<u64, ReadError> {
    let reader = StoreReader::open(root).unwrap();
    let ranges = reader.ranges("t", &RangeOptions::default())?;
    let mut scan = reader.scan(&ranges, ScanOptions::default())?;
    let mut messages = 0;
    while scan.advance()? {
        messages += scan.block().records.len() as u64;
    }
    Ok(messages)
}

/// How many messages a read returns that continues behind loss, and how many it counts as lost.
fn read_what_is_left(root: &Path) -> (u64, u64) {
    let reader = StoreReader::open(root).unwrap();
    let options = RangeOptions { missing: Missing::Skip, ..RangeOptions::default() };
    let ranges = reader.ranges("t", &options).unwrap();
    let mut scan =
        reader.scan(&ranges, ScanOptions { missing: Missing::Skip, ..ScanOptions::default() }).unwrap();
    let (mut messages, mut lost) = (0, 0);
    while scan.advance().unwrap() {
        messages += scan.block().records.len() as u64;
        lost += scan.take_missing().iter().map(|range| range.end - range.start).sum::<u64>();
    }
    lost += scan.take_missing().iter().map(|range| range.end - range.start).sum::<u64>();
    (messages, lost)
}

fn log_file_of(root: &Path, at: u64) -> (std::path::PathBuf, u64) {
    let size = small(root).commit_log_file_size;
    (root.join("commitlog").join(format!("{:020}", at - at % size)), at % size)
}

fn zero(root: &Path, one: &Appended) {
    let (file, at) = log_file_of(root, one.physical_offset.get());
    overwrite(&file, at, &vec![0; one.size_bytes as usize]);
}

fn closed(root: &Path) -> Vec<Appended> {
    let store = Store::open(small(root)).unwrap();
    let appended = fill(&store);
    store.shutdown().unwrap();
    assert_eq!(read(root).unwrap(), appended.len() as u64);
    appended
}

/// The strict read ends at this message.
fn is_broken_at(root: &Path, queue_offset: usize) -> String {
    let error = read(root).unwrap_err();
    let expected = QueueOffset(queue_offset as u64);
    assert!(
        matches!(&error, ReadError::BrokenRecord { queue_offset, .. } if *queue_offset == expected),
        "{error}"
    );
    error.to_string()
}

#[test]
fn a_damaged_last_record_of_a_closed_store_is_an_error() {
    for has_mark in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let appended = closed(dir.path());
        if !has_mark {
            erase_mark(dir.path());
            assert_eq!(read(dir.path()).unwrap(), appended.len() as u64);
        }
        let last = appended.len() - 1;
        let (file, at) = log_file_of(dir.path(), appended[last].physical_offset.get());
        overwrite(&file, at + 4, b"?"); // the magic
        let error = is_broken_at(dir.path(), last);
        assert!(error.contains(file.to_str().unwrap()), "{error}");
        assert_eq!(read_what_is_left(dir.path()), (last as u64, 1));
    }
}

#[test]
fn an_end_of_the_log_that_was_not_copied_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let appended = closed(dir.path());
    appended[250..].iter().for_each(|one| zero(dir.path(), one));
    is_broken_at(dir.path(), 250);
    assert_eq!(read_what_is_left(dir.path()), (250, appended.len() as u64 - 250));

    let dir = tempfile::tempdir().unwrap();
    let appended = closed(dir.path());
    let (file, _) = log_file_of(dir.path(), appended[appended.len() - 1].physical_offset.get());
    RealDisk.remove_file(&file).unwrap();
    let error = read(dir.path()).unwrap_err();
    assert!(error.to_string().contains("no log file contains the record"), "{error}");
}

#[test]
fn what_a_killed_store_had_not_made_durable_is_not_there_and_what_it_had_is_missed() {
    let (dir, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let appended = closed(dir.path());
    let hour = Duration::from_secs(3600);
    let quiet = StoreConfig {
        flush: FlushMode::Async,
        flush_interval: hour,
        checkpoint_interval: hour,
        ..small(dir.path())
    };
    let store = Store::open(quiet).unwrap();
    let torn = store.append(&record("t", 0, b"torn")).unwrap();
    settle_in_files(&store);
    killed_copy(dir.path(), killed.path());
    assert_eq!(read(killed.path()).unwrap(), appended.len() as u64 + 1);
    zero(killed.path(), &torn);
    assert_eq!(read(killed.path()).unwrap(), appended.len() as u64);
    let last = appended.len() - 1;
    zero(killed.path(), &appended[last]);
    is_broken_at(killed.path(), last);
}

#[test]
fn without_a_mark_a_killed_store_had_made_durable_what_lies_before_the_file_that_recovery_begins_with() {
    let (dir, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = Store::open(small(dir.path())).unwrap();
    let early = store.append(&record("t", 0, b"early")).unwrap();
    for _ in 0..300 {
        store.append(&record("other", 0, &[b'x'; 500])).unwrap();
    }
    settle_in_files(&store);
    killed_copy(dir.path(), killed.path());
    let later =
        Checkpoint { physic_msg_at_ms: i64::MAX, logics_msg_at_ms: i64::MAX, ..Checkpoint::default() };
    overwrite(&killed.path().join("checkpoint"), 0, &later.encode()); // which voids the mark
    assert_eq!(read(killed.path()).unwrap(), 1);
    zero(killed.path(), &early);
    is_broken_at(killed.path(), 0);
    overwrite(&killed.path().join("checkpoint"), 0, &Checkpoint::default().encode());
    assert_eq!(read(killed.path()).unwrap(), 0, "nothing is known of it");
}

#[test]
fn entries_that_another_program_cut_off_by_forgetting_them_are_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let appended = closed(dir.path());
    let last = appended[appended.len() - 1];
    erase_mark(dir.path());
    let file_bytes = small(dir.path()).consume_queue_file_size;
    let at = appended.len() as u64 * ConsumeQueueEntry::BYTES as u64;
    let stale = ConsumeQueueEntry { physical_offset: last.end, size_bytes: 200, tags_code: tag_code("TagA") };
    let file = dir.path().join("consumequeue/t/0").join(format!("{:020}", at - at % file_bytes));
    overwrite(&file, at % file_bytes, &stale.encode());
    assert_eq!(read(dir.path()).unwrap(), appended.len() as u64);
}

#[test]
fn lost_files_of_consume_queues_of_a_closed_store_are_an_error() {
    let file_bytes = small(Path::new("")).consume_queue_file_size;
    for is_first in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let messages = closed(dir.path()).len() as u64;
        let entries_a_file = file_bytes / ConsumeQueueEntry::BYTES as u64;
        let number = if is_first { 0 } else { (messages - 1) / entries_a_file };
        let file = dir.path().join("consumequeue/t/0").join(format!("{:020}", number * file_bytes));
        RealDisk.remove_file(&file).unwrap();
        let error = read(dir.path()).unwrap_err();
        let left = if is_first { messages - entries_a_file } else { number * entries_a_file };
        assert!(
            matches!(error, ReadError::IncompleteQueues { found, expected, .. } if (found, expected) == (left, messages)),
            "{error}"
        );
        assert_eq!(read_what_is_left(dir.path()).0, left);
    }
}
