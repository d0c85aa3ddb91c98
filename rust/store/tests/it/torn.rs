//! What a power loss or a failed flush leaves behind the durable mark.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rocketpy_env::{Disk, DiskFile as _, EnvError, OpenMode, RealDisk};
use rocketpy_model::{PhysicalOffset, QueueOffset};
use rocketpy_protocol::record::records;
use rocketpy_store::reader::{RangeOptions, ReadError, ScanOptions, StoreReader};
use rocketpy_store::{FlushError, FlushMode, Store, StoreConfig, StoreError};
use rocketpy_tools as tools;

use crate::faulty::FaultyDisk;
use crate::support::{
    self, assert_queues_equal_log, contents, erase_mark, killed_copy, overwrite, read_all, record,
};

/// No mark is written but at the start and at the end.
fn quiet(root: &Path) -> StoreConfig {
    support::quiet(root, FlushMode::Async)
}

fn log_file(root: &Path) -> std::path::PathBuf {
    root.join("commitlog").join(format!("{:020}", 0))
}

#[test]
fn a_record_that_lost_its_last_bytes_is_no_record_wherever_it_was_cut() {
    let (dir, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = Store::open(quiet(dir.path())).unwrap();
    store.append(&record("t", 0, b"kept")).unwrap();
    let last = store.append(&record("t", 0, b"torn")).unwrap();
    killed_copy(dir.path(), killed.path());
    let before = contents(killed.path());
    let (start, size) = (last.physical_offset.get(), u64::from(last.size_bytes));
    let config = quiet(killed.path());
    for lost in 1..=size {
        overwrite(&log_file(killed.path()), start + size - lost, &vec![0; lost as usize]);
        let store = Store::open(config.clone()).unwrap();
        assert_eq!(store.max_physical_offset(), last.physical_offset, "the last {lost} bytes are lost");
        assert_eq!(read_all(&store, "t", 0), [b"kept"]);
        drop(store);
        for (path, bytes) in &before {
            RealDisk.replace(Path::new(path), bytes).unwrap();
        }
    }
    assert_eq!(read_all(&Store::open(config).unwrap(), "t", 0), [b"kept", b"torn"], "the whole one is sound");
}

#[test]
fn a_checksum_that_nobody_of_this_store_wrote_does_not_make_a_record_unsound() {
    let dir = tempfile::tempdir().unwrap();
    let config = quiet(dir.path());
    let store = Store::open(config.clone()).unwrap();
    let last = store.append(&record("t", 0, b"body")).unwrap();
    drop(store);
    let digits = last.end.get() - 11;
    overwrite(&log_file(dir.path()), digits, b"1234567890");
    assert!(
        matches!(Store::open(config.clone()), Err(StoreError::InteriorDamage { .. })),
        "ours must be right"
    );
    erase_mark(dir.path()); // as if another program had written the log
    let store = Store::open(config.clone()).unwrap();
    assert_eq!(read_all(&store, "t", 0), [b"body"]);
    // From here on records need a right checksum again. The old record stays as it is.
    store.append(&record("t", 0, b"more")).unwrap();
    drop(store);
    assert_eq!(read_all(&Store::open(config).unwrap(), "t", 0), [b"body", b"more"]);
}

#[test]
fn an_offline_scan_asks_for_checksums_where_the_mark_says_that_all_records_have_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(quiet(dir.path())).unwrap();
    store.append(&record("t", 0, b"one")).unwrap();
    let last = store.append(&record("t", 0, b"two")).unwrap();
    drop(store);
    let verified = || {
        let reader = StoreReader::open(dir.path()).unwrap();
        let ranges = reader.ranges("t", &RangeOptions::default()).unwrap();
        let options = ScanOptions { verify: true, ..ScanOptions::default() };
        let mut scan = reader.scan(&ranges, options).unwrap();
        scan.advance().map(|_| scan.block().records.len())
    };
    assert_eq!(verified().unwrap(), 2);
    overwrite(&log_file(dir.path()), last.end.get() - 20, b"?"); // its name: the record is one without
    let damaged = verified().unwrap_err();
    assert!(matches!(damaged, ReadError::BrokenRecord { queue_offset: QueueOffset(1), .. }), "{damaged}");
    RealDisk.replace(&dir.path().join("abort"), b"1").unwrap(); // as while another program has the store open
    assert!(verified().is_err(), "it lies before the mark");
    erase_mark(dir.path()); // as if another program had written the log
    assert_eq!(verified().unwrap(), 2, "its body is whole");
}

#[test]
fn without_the_record_check_a_start_with_it_asks_for_checksums_from_there_on() {
    let dir = tempfile::tempdir().unwrap();
    let off = StoreConfig { record_check: false, ..quiet(dir.path()) };
    for (config, body) in
        [(quiet(dir.path()), b"a"), (off.clone(), b"b"), (quiet(dir.path()), b"c"), (off, b"d")]
    {
        let store = Store::open(config).unwrap();
        store.append(&record("t", 0, body)).unwrap();
    }
    let store = Store::open(quiet(dir.path())).unwrap();
    assert_eq!(read_all(&store, "t", 0), [b"a", b"b", b"c", b"d"]);
}

#[test]
fn what_was_not_known_to_be_durable_is_written_again_before_it_is_flushed() {
    let (dir, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = Store::open(quiet(dir.path())).unwrap();
    let first = store.append(&record("t", 0, b"x")).unwrap();
    let last = store.append(&record("t", 0, b"y")).unwrap();
    killed_copy(dir.path(), killed.path());
    let disk = FaultyDisk::default();
    let store = Store::open_on(disk.clone(), quiet(killed.path())).unwrap();
    assert_eq!(store.recovery().durable_to, first.physical_offset);
    let writes = disk.faults.log_writes.lock().clone();
    assert_eq!(writes, [(first.physical_offset.get(), last.end.get() - first.physical_offset.get())]);
    assert_eq!(read_all(&store, "t", 0), [b"x", b"y"]);
    drop(store);
    let disk = FaultyDisk::default();
    drop(Store::open_on(disk.clone(), quiet(killed.path())).unwrap());
    assert!(disk.faults.log_writes.lock().is_empty(), "a store that was closed is durable");
}

#[test]
fn much_that_was_not_known_to_be_durable_is_left_to_the_flush_after_the_start() {
    let (dir, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = Store::open(quiet(dir.path())).unwrap();
    let body = vec![7; 20_000];
    let ends: Vec<_> = (0..5).map(|_| store.append(&record("t", 0, &body)).unwrap().end).collect();
    killed_copy(dir.path(), killed.path());
    for flush in [FlushMode::Async, FlushMode::Sync] {
        let again = tempfile::tempdir().unwrap();
        killed_copy(killed.path(), again.path());
        let disk = FaultyDisk::default();
        let config = StoreConfig {
            flush,
            flush_at_start_bytes: 1000,
            max_unflushed_bytes: 1000, // of what is appended, not of what was found
            ..quiet(again.path())
        };
        let store = Store::open_on(disk.clone(), config.clone()).unwrap();
        assert_eq!(read_all(&store, "t", 0).len(), 5, "all are there at once");
        let written = || disk.faults.log_writes.lock().iter().map(|(_, size)| size).sum::<u64>();
        match flush {
            FlushMode::Async => assert_eq!((store.flushed_offset().get(), written()), (0, 0)),
            FlushMode::Sync => {
                assert_eq!(store.flushed_offset(), ends[4], "nobody reads what is not durable")
            }
        }
        store.append(&record("t", 0, b"new")).unwrap();
        store.shutdown().unwrap();
        assert_eq!(written(), ends[4].get(), "written again before it is flushed, and the new one is not");
        assert_queues_equal_log(&config);
        let store = Store::open(config).unwrap();
        assert!(store.recovery().clean_exit && store.recovery().durable_to > ends[4]);
    }
}

#[test]
fn records_without_checksums_count_also_when_the_start_before_them_wrote_no_checkpoint() {
    let (dir, killed, again) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = Store::open(quiet(dir.path())).unwrap();
    for _ in 0..5 {
        store.append(&record("t", 0, b"with")).unwrap();
    }
    killed_copy(dir.path(), killed.path());
    let without = StoreConfig { record_check: false, flush_at_start_bytes: 100, ..quiet(killed.path()) };
    let store = Store::open(without).unwrap();
    assert_eq!(store.flushed_offset().get(), 0);
    store.append(&record("t", 0, b"without")).unwrap();
    killed_copy(killed.path(), again.path());
    let store = Store::open(quiet(again.path())).unwrap();
    assert_eq!(store.recovery().truncated_bytes, 0);
    assert_eq!(read_all(&store, "t", 0).len(), 6);
}

#[test]
fn later_log_files_go_from_the_last_so_that_no_hole_is_left_between() {
    let dir = tempfile::tempdir().unwrap();
    let config = quiet(dir.path());
    let store = Store::open(config.clone()).unwrap();
    let body = vec![7; 30_000];
    let mut places = (0..8).map(|_| store.append(&record("t", 0, &body)).unwrap().physical_offset.get());
    let torn = places.nth(1).unwrap();
    assert_eq!(places.count(), 6);
    drop(store);
    erase_mark(dir.path());
    RealDisk.replace(&dir.path().join("checkpoint"), &[0; 4096]).unwrap();
    RealDisk.replace(&dir.path().join("abort"), b"1").unwrap();
    overwrite(&log_file(dir.path()), torn + 100, b"torn");
    let disk = FaultyDisk::default();
    disk.faults.removals_left.store(1, Ordering::SeqCst);
    Store::open_on(disk, config.clone()).unwrap_err();
    let store = Store::open(config.clone()).unwrap();
    assert_eq!(store.max_physical_offset().get(), torn);
    drop(store);
    assert_queues_equal_log(&config);
}

#[test]
fn the_file_that_is_written_gets_its_space_back_when_a_copy_lost_it() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let config = quiet(dir.path());
    let store = Store::open(config.clone()).unwrap();
    store.append(&record("t", 0, b"x")).unwrap();
    drop(store);
    let path = log_file(dir.path());
    let bytes = RealDisk.read(&path, 1 << 20).unwrap();
    let head = bytes.iter().rposition(|&byte| byte != 0).unwrap() + 1;
    RealDisk.replace(&path, &bytes[..head]).unwrap();
    let file = RealDisk.open_file(&path, OpenMode::Write).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
    #[allow(clippy::disallowed_methods, reason = "blocks of a file are no business of the store")]
    let allocated = || std::fs::metadata(&path).unwrap().blocks() * 512;
    assert!(allocated() < bytes.len() as u64, "a sparse copy");
    let store = Store::open(config).unwrap();
    assert!(allocated() >= bytes.len() as u64, "else a full disk would kill the process");
    assert_eq!(read_all(&store, "t", 0), [b"x"]);
}

#[test]
fn after_the_whole_log_was_checked_the_next_start_checks_its_end_alone() {
    let dir = tempfile::tempdir().unwrap();
    let config = StoreConfig { commit_log_file_size: 32 << 20, ..quiet(dir.path()) };
    let store = Store::open(config.clone()).unwrap();
    let body = vec![1; 4 << 20];
    for _ in 0..18 {
        store.append(&record("t", 0, &body)).unwrap();
    }
    drop(store);
    RealDisk.remove_dir_all(&dir.path().join("consumequeue")).unwrap();
    let store = Store::open(config.clone()).unwrap();
    assert_eq!(store.recovery().verified_from.get(), 0, "queues are rebuilt from the whole log");
    drop(store);
    let store = Store::open(config).unwrap();
    let (from, end) = (store.recovery().verified_from.get(), store.recovery().end.get());
    assert!(from > 0 && end - from >= 32 << 20, "{from} of {end}");
}

/// Leaves a folder as a process does that is killed after it has appended messages: its mark is before all of them.
fn killed_after<T>(root: &Path, append: impl FnOnce(&Store) -> T) -> T {
    let store = Store::open(quiet(root)).unwrap();
    let names = ["checkpoint", "abort"].map(|name| root.join(name));
    let while_open = names.clone().map(|path| RealDisk.read(&path, 1 << 20).unwrap());
    let appended = append(&store);
    store.shutdown().unwrap();
    for (path, bytes) in names.iter().zip(while_open) {
        RealDisk.replace(path, &bytes).unwrap();
    }
    appended
}

/// Appends `count` messages; returns where they start.
fn killed_in_place(root: &Path, count: u32) -> Vec<u64> {
    killed_after(root, |store| {
        let append = |number: u32| store.append(&record("t", 0, &number.to_be_bytes())).unwrap();
        (0..count).map(|number| append(number).physical_offset.get()).collect()
    })
}

#[test]
fn a_torn_record_whose_body_looks_like_records_is_cut_off_after_a_kill() {
    /// Bytes of a record before its body, between IPv4 addresses; and where it states its place.
    const BODY_AT: u64 = 88;
    const PLACE_AT: usize = 28;
    let dir = tempfile::tempdir().unwrap();
    let end = killed_after(dir.path(), |store| {
        let first = store.append(&record("t", 0, b"first")).unwrap();
        let mut image = store.record_at(first.physical_offset).unwrap().unwrap().to_vec();
        let place = first.end + BODY_AT;
        image[PLACE_AT..PLACE_AT + 8].copy_from_slice(&place.get().to_be_bytes());
        let body = [image, vec![7; 5000]].concat();
        let torn = store.append(&record("t", 0, &body)).unwrap();
        let kept = store.record_at(torn.physical_offset).unwrap().unwrap();
        assert_eq!(kept[BODY_AT as usize..][..100], body[..100], "the image lies where it says");
        torn
    });
    overwrite(&log_file(dir.path()), end.end.get() - 100, &[0; 100]);
    let store = Store::open(quiet(dir.path())).unwrap();
    assert_eq!(store.queue_bounds("t", 0).max.get(), 1);
    assert_eq!(store.max_physical_offset(), end.physical_offset);
}

#[test]
fn damage_among_records_that_a_killed_process_left_refuses_the_start_until_a_repair() {
    let dir = tempfile::tempdir().unwrap();
    let starts = killed_in_place(dir.path(), 20);
    if RealDisk.page_cache(dir.path()).is_none() {
        assert!(std::env::var_os("CI").is_none(), "Linux 6.8 or later is needed");
        return eprintln!("this system does not name its page caches");
    }
    overwrite(&log_file(dir.path()), starts[7] + 120, &[0xff]);
    let before = contents(dir.path());
    for _ in 0..2 {
        let error = Store::open(quiet(dir.path())).unwrap_err();
        let StoreError::DamageAmongRecords { path, physical_offset, records, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!((path, physical_offset.get(), *records), (&log_file(dir.path()), starts[7], 12));
        assert!(error.is_damage() && error.hint().unwrap().contains("rocketpy store repair"));
        assert!(contents(dir.path()) == before, "a refused start changes nothing");
    }
    let reader = StoreReader::open(dir.path()).unwrap();
    tools::repair(&reader, &mut |_| true).unwrap();
    let store = Store::open(quiet(dir.path())).unwrap();
    for (number, start) in (0..20u32).zip(starts) {
        let kept = store.record_at(PhysicalOffset(start)).unwrap().expect("every place is kept");
        let body = records(&kept).next().unwrap().unwrap().body.to_vec();
        assert_eq!(body == number.to_be_bytes(), number != 7, "{number}");
    }
    assert_eq!(store.queue_bounds("t", 0).max.get(), 20);
}

#[test]
fn without_the_page_cache_of_the_last_process_damage_among_its_records_is_a_torn_tail() {
    for (is_copy, note) in [(true, None), (false, Some("1")), (false, Some("1\nanother boot\n"))] {
        let (dir, copied) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let starts = killed_in_place(dir.path(), 20);
        overwrite(&log_file(dir.path()), starts[7] + 120, &[0xff]);
        if let Some(note) = note {
            RealDisk.replace(&dir.path().join("abort"), note.as_bytes()).unwrap();
        }
        killed_copy(dir.path(), copied.path());
        let store = Store::open(quiet(if is_copy { copied.path() } else { dir.path() })).unwrap();
        assert_eq!((store.recovery().end.get(), store.recovery().cut_records), (starts[7], 12), "{note:?}");
    }
}

#[test]
fn a_page_that_is_evicted_after_its_records_were_checked_does_not_become_durable_as_the_disk_has_it() {
    for flush in [FlushMode::Sync, FlushMode::Async] {
        let (dir, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let store = Store::open(support::quiet(dir.path(), FlushMode::Async)).unwrap();
        store.append(&record("t", 0, b"kept")).unwrap();
        let evicted = store.append(&record("t", 0, b"gone")).unwrap();
        store.append(&record("t", 0, b"more")).unwrap();
        killed_copy(dir.path(), killed.path());
        let disk = FaultyDisk::default();
        let old = vec![0; evicted.size_bytes as usize];
        let evict = || *disk.faults.evicted.lock() = Some((evicted.physical_offset.get(), old.clone()));
        let config = StoreConfig { flush_at_start_bytes: 0, ..support::quiet(killed.path(), flush) };
        if flush == FlushMode::Sync {
            evict();
            let opened = Store::open_on(disk.clone(), config);
            let is_named = matches!(&opened, Err(StoreError::Env(EnvError::Unreadable { offset, .. }))
                if *offset == evicted.physical_offset.get());
            assert!(is_named, "{:?}", opened.err());
        } else {
            let store = Store::open_on(disk.clone(), config).unwrap();
            evict();
            let flushed = store.wait_flushed(store.max_physical_offset(), Duration::from_secs(60));
            assert!(matches!(flushed, Err(FlushError::Poisoned { .. })), "{flushed:?}");
            assert!(store.flushed_offset() <= evicted.physical_offset, "nothing of it counts as durable");
        }
        assert!(disk.faults.evicted.lock().is_none(), "it was evicted");
    }
}
