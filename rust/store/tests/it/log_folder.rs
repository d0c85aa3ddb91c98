//! A commit log folder disappears or becomes read-only under a running store: appends are refused by name, reads
//! continue, and appends are accepted again once the folder is back.

use std::path::Path;
use std::sync::Arc;

use rocketpy_env::{Disk, EnvError, RealDisk};
use rocketpy_store::{AppendError, Store, StoreConfig, StoreError};

use crate::disk_full::{fill, mount_read_only};
use crate::support::{assert_queues_equal_log, eventually, read_all, record, settle, small};

/// More appends of [`fill`] than a file of the log holds.
const MORE_THAN_A_FILE: usize = 10;

/// A store with one record, which makes no file before it needs it.
fn store_at(root: &Path) -> (StoreConfig, Arc<Store>) {
    let config = StoreConfig { allocate_ahead: false, ..small(root) };
    let store = Store::open(config.clone()).unwrap();
    store.append(&record("t", 0, b"before")).unwrap();
    (config, store)
}

/// Appends until there is no next file, and checks the error. Returns the cause, and how many records there are.
fn refused(store: &Store) -> (EnvError, usize) {
    let (count, error) = fill(store, MORE_THAN_A_FILE);
    assert!(error.retryable());
    let hint = error.hint().unwrap();
    assert!(
        hint.contains("check the commit log folder") && hint.contains("continue automatically"),
        "{hint}"
    );
    assert!(error.to_string().starts_with("cannot create a commit log file: "), "{error}");
    let AppendError::NoFile { cause } = error else { panic!("{error}") };
    settle(store);
    assert_eq!(read_all(store, "t", 0).len(), count + 1, "reads go on");
    ((*cause).clone(), count + 1)
}

/// The folder is back.
fn goes_on(config: &StoreConfig, store: &Store, count: usize) {
    let body = vec![6; 10_000];
    eventually("appends go on", || store.append(&record("t", 0, &body)).is_ok());
    settle(store);
    assert_eq!(read_all(store, "t", 0).len(), count + 1);
    store.shutdown().unwrap();
    assert_queues_equal_log(config);
}

#[test]
fn a_log_folder_that_is_gone_refuses_appends_until_it_is_back() {
    let dir = tempfile::tempdir().unwrap();
    let (config, store) = store_at(dir.path());
    let (folder, elsewhere) = (dir.path().join("commitlog"), dir.path().join("elsewhere"));
    RealDisk.rename(&folder, &elsewhere).unwrap();
    let (cause, count) = refused(&store);
    assert!(cause.is_not_found() && cause.path() == folder, "{cause}");
    assert!(cause.to_string().contains("no such file or folder"), "{cause}");
    RealDisk.rename(&elsewhere, &folder).unwrap();
    goes_on(&config, &store, count);
}

#[test]
fn a_log_folder_that_is_read_only_refuses_appends_until_it_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let (config, store) = store_at(dir.path());
    let folder = dir.path().join("commitlog");
    let Some(mounted) = mount_read_only(&folder) else { return };
    let (cause, count) = refused(&store);
    assert!(matches!(&cause, EnvError::ReadOnly { .. }), "{cause}");
    assert_eq!(cause.path(), folder);
    assert!(cause.hint().unwrap().contains("mounted for writing"));
    drop(mounted);
    goes_on(&config, &store, count);
}

#[test]
fn a_folder_on_a_read_only_file_system_becomes_no_store() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mounted) = mount_read_only(dir.path()) else { return };
    let error = Store::open(small(dir.path())).unwrap_err();
    assert!(matches!(&error, StoreError::Env(EnvError::ReadOnly { .. })), "{error}");
    assert!(error.hint().unwrap().contains("mounted for writing"));
    assert!(error.to_string().contains("the file system is read-only"), "{error}");
    drop(mounted);
    Store::open(small(dir.path())).unwrap();
}
