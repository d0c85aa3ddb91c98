//! Readers that see confirmed records only.

use rocketpy_store::{FlushMode, Store, StoreConfig};

use crate::support::{killed_copy, read_all, record, settle, small};

#[test]
fn records_become_readable_once_they_are_confirmed_and_durable() {
    for flush in [FlushMode::Async, FlushMode::Sync] {
        let dir = tempfile::tempdir().unwrap();
        let config = StoreConfig { flush, ..small(dir.path()) };
        let store = Store::open(config.clone()).unwrap();
        store.append(&record("t", 0, b"before")).unwrap();
        store.hold_readers();
        settle(&store); // earlier records

        let second = store.append(&record("t", 0, b"second")).unwrap();
        let third = store.append(&record("t", 0, b"third")).unwrap();
        assert_eq!(store.confirmed_offset(), Some(second.physical_offset));
        store.wait_flushed(third.end, crate::support::PATIENCE).unwrap();
        store.dispatch_confirmed();
        assert_eq!(
            (store.readable_end(), store.dispatched_offset()),
            (second.physical_offset, second.physical_offset)
        );
        assert!(store.record_at(second.physical_offset).unwrap().is_some(), "found by its place");
        store.confirm(second.end);
        store.dispatch_confirmed();
        crate::support::eventually("it is readable", || store.dispatched_offset() == second.end);
        assert_eq!(read_all(&store, "t", 0), [&b"before"[..], b"second"]);

        store.release_readers();
        settle(&store);
        store.hold_readers();
        store.append(&record("t", 0, b"fourth")).unwrap();
        drop(store); // an orderly end, with a record that nobody confirmed
        let store = Store::open(config).unwrap();
        assert!(store.recovery().clean_exit);
        assert_eq!(read_all(&store, "t", 0), [&b"before"[..], b"second", b"third", b"fourth"]);
    }
}

#[test]
fn a_topic_that_is_deleted_while_readers_are_held_does_not_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(small(dir.path())).unwrap();
    store.hold_readers();
    let last = store.append(&record("old", 0, b"unconfirmed")).unwrap();
    store.delete_topic("old").unwrap();
    assert_eq!(store.confirmed_offset(), Some(last.end));
    let copy = tempfile::tempdir().unwrap();
    killed_copy(dir.path(), copy.path());
    let store = Store::open(small(copy.path())).unwrap();
    assert!(store.queues().is_empty(), "{:?}", store.queues());
}
