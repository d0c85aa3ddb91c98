//! A disk that fills up: appends are refused by name, reads continue, and appends are accepted again once there is
//! space.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;

use rocketpy_env::{Disk, RealDisk};
use rocketpy_store::{AppendError, FlushMode, Store, StoreConfig};

use crate::faulty::FaultyDisk;
use crate::support::{assert_queues_equal_log, eventually, is_there, read_all, record, settle, small};

/// Appends until it is refused. Returns how many went in, and the refusal.
pub(crate) fn fill<D: Disk>(store: &Store<D>, most: usize) -> (usize, AppendError) {
    let body = vec![5; 10_000];
    for count in 0..most {
        if let Err(error) = store.append(&record("t", 0, &body)) {
            return (count, error);
        }
    }
    panic!("never refused");
}

#[test]
fn no_space_for_a_log_file_refuses_until_there_is_space() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let config = small(dir.path());
    let store = Store::open_on(disk.clone(), config.clone()).unwrap();
    disk.faults.no_space_for_log.store(true, Ordering::SeqCst);
    assert!(matches!(
        store.append(&record("t", 0, b"x")),
        Err(AppendError::DiskFull { needed_bytes: 65_536, .. })
    ));
    disk.faults.no_space_for_log.store(false, Ordering::SeqCst);
    eventually("appends go on", || store.append(&record("t", 0, b"first")).is_ok());
    disk.faults.no_space_for_log.store(true, Ordering::SeqCst);
    // One file may have been made ahead before the disk was full.
    let (count, error) = fill(&store, 13);
    assert!(matches!(error, AppendError::DiskFull { .. }), "{error}");
    let hint = error.hint().unwrap();
    assert!(
        error.retryable() && hint.contains("free disk space") && hint.contains("mappedFileSizeCommitLog")
    );
    settle(&store);
    assert_eq!(read_all(&store, "t", 0).len(), count + 1, "reads go on");
    let small_one = store.append(&record("t", 0, b"small")).unwrap();
    assert_eq!(
        small_one.queue_offset.get(),
        count as u64 + 1,
        "what still fits goes in, and no number was lost"
    );
    disk.faults.no_space_for_log.store(false, Ordering::SeqCst);
    let body = vec![6; 20_000];
    eventually("appends go on", || store.append(&record("t", 0, &body)).is_ok());
    store.shutdown().unwrap();
    assert_queues_equal_log(&config);
}

#[test]
fn consume_queues_that_cannot_be_written_stop_appends_and_lose_nothing() {
    queues_without_space(FlushMode::Async);
}

/// There the flush thread writes them, too.
#[test]
fn under_synchronous_flush_consume_queues_that_cannot_be_written_stop_appends_as_well() {
    queues_without_space(FlushMode::Sync);
}

fn queues_without_space(flush: FlushMode) {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let config = StoreConfig { flush, ..small(dir.path()) };
    let store = Store::open_on(disk.clone(), config.clone()).unwrap();
    store.append(&record("t", 0, b"before")).unwrap();
    settle(&store);
    disk.faults.no_space_for_files.store(true, Ordering::SeqCst);
    let mut accepted = 1;
    eventually("appends are refused", || match store.append(&record("t", 0, b"during")) {
        Ok(appended) => {
            accepted += 1;
            store.request_flush(appended.end);
            false
        }
        Err(error) => {
            assert!(matches!(error, AppendError::QueueNotWriteable { .. }), "{error}");
            true
        }
    });
    assert_eq!(read_all(&store, "t", 0), [b"before"]);
    disk.faults.no_space_for_files.store(false, Ordering::SeqCst);
    eventually("appends go on", || store.append(&record("t", 0, b"after")).is_ok());
    settle(&store);
    assert_eq!(read_all(&store, "t", 0).len(), accepted + 1);
    store.shutdown().unwrap();
    assert_queues_equal_log(&config);
}

#[test]
fn a_checkpoint_that_finds_no_space_is_written_later() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let config = StoreConfig {
        checkpoint_interval: std::time::Duration::from_millis(5),
        index: false, // else it is the first that finds no space
        ..small(dir.path())
    };
    let store = Store::open_on(disk.clone(), config.clone()).unwrap();
    store.append(&record("t", 0, b"before")).unwrap();
    settle(&store);
    disk.faults.no_space_for_checkpoint.store(true, Ordering::SeqCst);
    store.append(&record("t", 0, b"during")).unwrap();
    settle(&store);
    eventually("a checkpoint is refused", || {
        disk.faults.refused_checkpoints.load(Ordering::SeqCst) > 1 || store.poisoned().is_some()
    });
    assert!(store.poisoned().is_none(), "nothing was flushed that is not to be believed");
    store.append(&record("t", 0, b"without a checkpoint")).unwrap();
    disk.faults.no_space_for_checkpoint.store(false, Ordering::SeqCst);
    store.shutdown().unwrap();
    assert_queues_equal_log(&config);
    assert!(!Store::open(config).unwrap().recovery().rebuilt_queues);
}

#[test]
fn whoever_writes_the_queues_again_ends_the_refusal() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let hour = std::time::Duration::from_secs(3600);
    let config = StoreConfig { checkpoint_interval: hour, ..small(dir.path()) };
    let store = Store::open_on(disk.clone(), config).unwrap();
    store.append(&record("t", 0, b"x")).unwrap();
    store.append(&record("other", 0, b"x")).unwrap();
    settle(&store);
    disk.faults.no_space_for_files.store(true, Ordering::SeqCst);
    eventually("appends are refused", || store.append(&record("t", 0, b"x")).is_err());
    disk.faults.no_space_for_files.store(false, Ordering::SeqCst);
    store.delete_topic("other").unwrap(); // dispatches what is behind, before the thread that failed tries again
    assert!(store.refusal().is_none(), "nothing is left to dispatch: nobody else would end it");
    store.append(&record("t", 0, b"x")).unwrap();
}

#[test]
fn a_topic_is_deleted_while_queues_cannot_be_written() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let config = small(dir.path());
    let store = Store::open_on(disk.clone(), config.clone()).unwrap();
    store.append(&record("t", 0, b"x")).unwrap();
    store.append(&record("kept", 0, b"x")).unwrap();
    settle(&store);
    disk.faults.no_space_for_files.store(true, Ordering::SeqCst);
    let mut appended = 1;
    eventually("appends are refused", || {
        let is_refused = store.append(&record("kept", 0, b"x")).is_err();
        appended += usize::from(!is_refused);
        is_refused
    });
    assert_eq!(store.delete_topic("t").unwrap(), 1);
    assert!(!is_there(&dir.path().join("consumequeue/t")));
    disk.faults.no_space_for_files.store(false, Ordering::SeqCst);
    eventually("the queues are written again", || store.refusal().is_none());
    settle(&store);
    assert_eq!(read_all(&store, "kept", 0).len(), appended);
    store.shutdown().unwrap();
    drop(store);
    let store = Store::open(config).unwrap();
    assert!(!store.recovery().rebuilt_queues);
    assert_eq!(store.queues().iter().map(|queue| queue.topic.to_string()).collect::<Vec<_>>(), ["kept"]);
}

/// A file system of its own, unmounted at the end.
pub(crate) struct Mounted<'a>(&'a Path);

/// Mounts a file system of a size, in memory. `None` when the rights for it are missing; under `CI` that is a failure.
pub(crate) fn mount<'a>(dir: &'a Path, size: &str) -> Option<Mounted<'a>> {
    let size_option = format!("size={size}");
    mount_with(dir, &["-t", "tmpfs", "-o", &size_option, "tmpfs"])
}

/// From now on the folder lies on a file system that is mounted read-only. `None` as for [`mount`].
pub(crate) fn mount_read_only(dir: &Path) -> Option<Mounted<'_>> {
    let mounted = mount_with(dir, &["--bind", dir.to_str()?])?;
    let changed = Command::new("mount").args(["-o", "remount,bind,ro"]).arg(dir).status().unwrap();
    assert!(changed.success());
    Some(mounted)
}

/// Mounts a file that holds a file system. `None` as for [`mount`].
pub(crate) fn mount_image<'a>(dir: &'a Path, image: &Path) -> Option<Mounted<'a>> {
    mount_with(dir, &["-o", "loop", image.to_str()?])
}

fn mount_with<'a>(dir: &'a Path, arguments: &[&str]) -> Option<Mounted<'a>> {
    let mount = Command::new("mount").args(arguments).arg(dir).output();
    if mount.as_ref().is_ok_and(|output| output.status.success()) {
        return Some(Mounted(dir));
    }
    let reason = format!("root is needed to mount a file system, {arguments:?}: {mount:?}");
    assert!(std::env::var_os("CI").is_none(), "{reason}");
    eprintln!("skipped: {reason}");
    None
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

#[test]
fn a_real_file_system_that_is_full() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mounted) = mount(dir.path(), "1m") else { return };
    let root = dir.path().join("store");
    let ballast = dir.path().join("ballast");
    RealDisk.replace(&ballast, &vec![1; 600 << 10]).unwrap();
    let config = StoreConfig { allocate_ahead: false, ..small(&root) };
    let store = Store::open(config.clone()).unwrap();
    let (count, error) = fill(&store, 60);
    assert!(matches!(error, AppendError::DiskFull { .. } | AppendError::QueueNotWriteable { .. }), "{error}");
    settle_when_possible(&store, count);
    RealDisk.remove_file(&ballast).unwrap();
    let body = vec![6; 10_000];
    eventually("appends go on", || store.append(&record("t", 0, &body)).is_ok());
    settle(&store);
    assert_eq!(read_all(&store, "t", 0).len(), count + 1);
    store.shutdown().unwrap();
    assert_queues_equal_log(&config);
    drop(store);
    drop(mounted);
}

/// Reads continue while the disk is full: everything that has an entry is there.
fn settle_when_possible(store: &Store, count: usize) {
    let readable = store.queue_bounds("t", 0).max.get() as usize;
    assert!(readable <= count);
    assert!(read_all(store, "t", 0).len() >= readable);
}
