//! Records without a checksum of their own, as Apache's masters write them.

use std::path::Path;

use rocketpy_store::{NewRecord, Store, StoreConfig};

use super::{copy_all, log_from};
use crate::support::{killed_copy, overwrite, read_all, record, settle, small};

fn unchecked(root: &Path) -> StoreConfig {
    StoreConfig { record_check: false, ..small(root) }
}

#[test]
fn they_survive_a_close_and_a_kill_at_any_time() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let origin = Store::open(unchecked(dirs[0].path())).unwrap();
    let mut numbers = 0..;
    let mut append = |count| {
        for number in numbers.by_ref().take(count) {
            let number: u64 = number;
            origin.append(&record("t", 0, &number.to_be_bytes())).unwrap();
        }
    };
    let mut copy = Store::open(small(dirs[1].path())).unwrap();
    for round in 0..6 {
        append(100);
        copy_all(&origin, &copy, 2000);
        if round % 2 == 0 {
            settle(&copy); // every other kill comes before the next checkpoint
        }
        let killed = tempfile::tempdir().unwrap();
        killed_copy(dirs[1].path(), killed.path());
        let again = Store::open(small(killed.path())).unwrap();
        assert_eq!(again.recovery().truncated_bytes, 0, "{:?}", again.recovery());
        assert!(log_from(&again, 0) == log_from(&origin, 0));
        append(100);
        copy_all(&origin, &again, 2000);
        settle(&again);
        settle(&origin);
        assert_eq!(read_all(&again, "t", 0), read_all(&origin, "t", 0));
        copy.shutdown().unwrap();
        drop(copy);
        copy = Store::open(small(dirs[1].path())).unwrap();
        assert_eq!(copy.recovery().truncated_bytes, 0);
    }
}

#[test]
fn they_may_lie_between_records_that_have_one() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let copy = Store::open(small(dirs[1].path())).unwrap();
    let append = |store: &Store| {
        for _ in 0..100 {
            store.append(&record("t", 0, b"x")).unwrap();
        }
    };
    for config in [small(dirs[0].path()), unchecked(dirs[0].path()), small(dirs[0].path())] {
        let origin = Store::open(config).unwrap();
        append(&origin);
        copy_all(&origin, &copy, 2000);
    }
    append(&copy);
    settle(&copy);
    let end = copy.max_physical_offset();
    let killed = tempfile::tempdir().unwrap();
    killed_copy(dirs[1].path(), killed.path());
    copy.shutdown().unwrap();
    drop(copy);
    for root in [dirs[1].path(), killed.path()] {
        let copy = Store::open(small(root)).unwrap();
        assert_eq!((copy.max_physical_offset(), copy.recovery().truncated_bytes), (end, 0));
        assert_eq!(copy.queue_bounds("t", 0).max.get(), 400);
    }
}

#[test]
fn a_start_asks_again_for_checks_of_what_comes_behind_it() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let origin = Store::open(unchecked(dirs[0].path())).unwrap();
    origin.append(&record("t", 0, b"x")).unwrap();
    let copy = Store::open(small(dirs[1].path())).unwrap();
    copy_all(&origin, &copy, 2000);
    copy.shutdown().unwrap();
    drop(copy);
    let copy = Store::open(small(dirs[1].path())).unwrap();
    copy.append(&record("t", 0, b"sound")).unwrap();
    let last = copy.append(&record("t", 0, b"last")).unwrap();
    let killed = tempfile::tempdir().unwrap();
    killed_copy(dirs[1].path(), killed.path());
    let file = killed.path().join("commitlog").join(format!("{:020}", 0));
    overwrite(&file, last.physical_offset.get() + 16, b"flag"); // no body's checksum tells
    let again = Store::open(small(killed.path()));
    let end = again.map(|again| again.max_physical_offset());
    assert!(end.as_ref().map_or(true, |&end| end == last.physical_offset), "{end:?}");
}

#[test]
fn what_a_sender_put_in_the_place_of_the_check_does_not_stop_the_copy() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let origin = Store::open(unchecked(dirs[0].path())).unwrap();
    let copy = Store::open(small(dirs[1].path())).unwrap();
    let forged = NewRecord { properties: b"a\x01b\x02__CRC32#\x010123456789\x02", ..record("t", 0, b"x") };
    origin.append(&record("t", 0, b"x")).unwrap();
    origin.append(&forged).unwrap();
    copy_all(&origin, &copy, 2000);
    assert!(log_from(&copy, 0) == log_from(&origin, 0));
}
