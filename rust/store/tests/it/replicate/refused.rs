//! Copied bytes that are not taken, and leave the store as it was.

use rocketpy_protocol::record::{QUEUE_OFFSET_AT, STORED_AT_AT_V4, records};
use rocketpy_store::{AppendError, NewRecord, ReplicateError, Store, StoreConfig, whole_records};

use super::{copy_all, log_from};
use crate::support::{PATIENCE, contents, record, settle, settle_in_files, small};

/// A store with three records, and the bytes of three more that may follow.
fn store_and_bytes(root: &std::path::Path) -> (std::sync::Arc<Store>, u64, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    let origin = Store::open(small(dir.path())).unwrap();
    let append = |body: &[u8]| origin.append(&record("topic", 0, body)).unwrap();
    let store = Store::open(small(root)).unwrap();
    for _ in 0..3 {
        append(b"known");
    }
    copy_all(&origin, &store, 1000);
    settle_in_files(&store);
    let end = store.max_physical_offset().get();
    append(b"first");
    append(&[7; 300]);
    append(b"third");
    (store, end, log_from(&origin, end))
}

/// Says what a change of the bytes leads to, and that nothing of them was taken.
fn refusal(store: &Store, at: u64, bytes: &[u8]) -> ReplicateError {
    let before = (store.max_physical_offset(), store.queues(), contents(&store.config().commit_log_dir()));
    let error = store.append_replicated(at.into(), bytes).unwrap_err();
    settle(store);
    let after = (store.max_physical_offset(), store.queues(), contents(&store.config().commit_log_dir()));
    assert!(before == after, "after {error}");
    assert!(!error.retryable() && !error.to_string().is_empty());
    error
}

#[test]
fn copied_bytes_that_do_not_continue_the_log_are_refused_with_both_offsets() {
    let dir = tempfile::tempdir().unwrap();
    let (store, end, bytes) = store_and_bytes(dir.path());
    for wrong in [0, end - 1, end + 1, 64 << 10, u64::MAX] {
        let error = refusal(&store, wrong, &bytes);
        let ReplicateError::WrongPlace { at, end: found } = error else { panic!("{error}") };
        assert_eq!((at.get(), found.get()), (wrong, end));
        assert!(!error.may_have_been_applied() && error.hint().is_some());
    }
    assert_eq!(store.append_replicated(end.into(), &[]).unwrap().get(), end);
    store.append_replicated(end.into(), &bytes).unwrap();
}

#[test]
fn a_changed_bit_anywhere_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (store, end, bytes) = store_and_bytes(dir.path());
    let first = records(&bytes).next().unwrap().unwrap().size();
    for at in first..bytes.len() - first {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        let error = store.append_replicated(end.into(), &changed).unwrap_err();
        let place = match error {
            ReplicateError::Damage { physical_offset, .. } => physical_offset,
            // A longer record may not be there as a whole.
            ReplicateError::PartialRecord { physical_offset, .. } if at < first + 4 => physical_offset,
            other => panic!("{at}: {other}"),
        };
        assert_eq!(place.get(), end + first as u64, "the record before is sound");
    }
    let mut changed = bytes.clone();
    changed[first + 100] ^= 1;
    refusal(&store, end, &changed);
    store.append_replicated(end.into(), &bytes).unwrap();
    settle(&store);
    assert_eq!(store.queue_bounds("topic", 0).max.get(), 6);
}

#[test]
fn a_part_of_a_record_is_refused_and_kept_back_by_whoever_counts_whole_ones() {
    let dir = tempfile::tempdir().unwrap();
    let (store, end, bytes) = store_and_bytes(dir.path());
    let sizes: Vec<_> = records(&bytes).map(|view| view.unwrap().size()).collect();
    for len in 1..bytes.len() {
        let whole = whole_records(&bytes[..len]);
        let (mut expected, mut left) = (0, len);
        for &size in
            sizes.iter().take_while(|&&size| left.checked_sub(size).inspect(|_| left -= size).is_some())
        {
            expected += size;
        }
        assert_eq!(whole, expected, "of {len}");
        if whole < len {
            let error = store.append_replicated(end.into(), &bytes[..len]).unwrap_err();
            let ReplicateError::PartialRecord { physical_offset, size_bytes } = error else {
                panic!("{len}: {error}")
            };
            assert_eq!((physical_offset.get(), size_bytes), (end + whole as u64, len - whole));
        }
    }
    refusal(&store, end, &bytes[..bytes.len() - 1]);
    assert_eq!(whole_records(&bytes), bytes.len());
}

#[test]
fn nonsense_counts_as_whole_so_that_nobody_waits_for_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let (store, end, bytes) = store_and_bytes(dir.path());
    let mut changed = bytes.clone();
    changed[..4].copy_from_slice(&0x7fff_ffff_u32.to_be_bytes());
    for nonsense in [&[0; 8][..], &[0xff; 200], b"GET / HTTP/1.1", &changed] {
        assert_eq!(whole_records(nonsense), nonsense.len());
        assert!(matches!(refusal(&store, end, nonsense), ReplicateError::Damage { .. }));
        let behind = [&bytes[..], nonsense].concat();
        assert_eq!(whole_records(&behind), bytes.len(), "what comes before it is sound");
    }
    // A length that the body's length contradicts.
    let mut longer = bytes[..100].to_vec();
    longer[1] = 1;
    assert_eq!(whole_records(&longer), longer.len());
    assert_eq!(whole_records(&longer[..80]), 0, "the length of the body is still to come");
}

#[test]
fn a_record_that_lies_elsewhere_and_a_blank_record_in_the_wrong_place_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (store, end, bytes) = store_and_bytes(dir.path());
    let first = records(&bytes).next().unwrap().unwrap().size();
    let error = refusal(&store, end, &bytes[first..]);
    assert!(error.to_string().contains("contains another physical offset"), "{error}");
    let blank = rocketpy_protocol::record::blank_head(500);
    let error = refusal(&store, end, &[&blank[..], &[0; 492]].concat());
    assert!(error.to_string().contains("a blank record has the length 500"), "{error}");
}

#[test]
fn a_record_that_goes_beyond_the_end_of_its_file_is_refused() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let large = StoreConfig { commit_log_file_size: 128 << 10, ..small(dirs[0].path()) };
    let origin = Store::open(large).unwrap();
    let store = Store::open(small(dirs[1].path())).unwrap();
    for _ in 0..10 {
        origin.append(&record("t", 0, &[7; 10_000])).unwrap();
    }
    let bytes = log_from(&origin, 0);
    let error = store.append_replicated(0.into(), &bytes).unwrap_err();
    assert!(error.to_string().contains("exceeds its file"), "{error}");
    assert!(error.hint().unwrap().contains("mappedFileSizeCommitLog"), "{error}");
    assert_eq!(store.max_physical_offset().get(), 0);
}

/// A record without a checksum of its own, with another number in one of its fields.
fn forged(field_at: usize, value: u64) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let config = StoreConfig { record_check: false, ..small(dir.path()) };
    let origin = Store::open(config).unwrap();
    origin.append(&NewRecord { properties: b"", ..record("t", 0, b"x") }).unwrap();
    let mut bytes = log_from(&origin, 0);
    bytes[field_at..field_at + 8].copy_from_slice(&value.to_be_bytes());
    bytes
}

#[test]
fn numbers_that_no_start_could_work_with_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(small(dir.path())).unwrap();
    for (field_at, value) in [(STORED_AT_AT_V4, u64::MAX), (STORED_AT_AT_V4, 1 << 60)] {
        assert!(matches!(refusal(&store, 0, &forged(field_at, value)), ReplicateError::Damage { .. }));
    }
    for value in [u64::MAX, 1 << 60] {
        let error = refusal(&store, 0, &forged(QUEUE_OFFSET_AT, value));
        assert!(matches!(error, ReplicateError::QueueOffset { .. }), "{error}");
    }
    // A hole in the queue that is longer than one of its files: 100 entries.
    for number in 0..2 {
        store.append(&record("t", 0, &[number])).unwrap();
    }
    let end = store.max_physical_offset().get();
    for (queue_offset, is_taken) in [(103, false), (102, true)] {
        let mut bytes = forged(QUEUE_OFFSET_AT, queue_offset);
        bytes[28..36].copy_from_slice(&end.to_be_bytes());
        if is_taken {
            store.append_replicated(end.into(), &bytes).unwrap();
        } else {
            let error = refusal(&store, end, &bytes);
            assert!(matches!(error, ReplicateError::QueueOffset { .. }), "{error}");
        }
    }
    settle(&store);
    assert_eq!(store.queue_bounds("t", 0).max.get(), 103);
}

#[test]
fn a_store_that_takes_no_appends_takes_no_copies() {
    let dir = tempfile::tempdir().unwrap();
    let (store, end, bytes) = store_and_bytes(dir.path());
    store.shutdown().unwrap();
    let error = store.append_replicated(end.into(), &bytes).unwrap_err();
    assert!(matches!(error, ReplicateError::Refused(AppendError::ShutDown)), "{error}");
}

#[test]
fn copies_wait_for_the_disk_as_appends_do() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let origin = Store::open(small(dirs[0].path())).unwrap();
    super::fill(&origin, 40);
    let config =
        StoreConfig { max_unflushed_bytes: 5000, max_undispatched_bytes: 5000, ..small(dirs[1].path()) };
    let copy = Store::open(config).unwrap();
    copy_all(&origin, &copy, 8000);
    let end = copy.max_physical_offset();
    copy.wait_flushed(end, PATIENCE).unwrap();
    assert_eq!(end, origin.max_physical_offset());
}
