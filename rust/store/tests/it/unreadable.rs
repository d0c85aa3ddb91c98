//! Files that are cut short, and bytes that change, under a store that has them mapped.

use std::path::{Path, PathBuf};
use std::process::Command;

use rocketpy_env::{Disk, DiskFile as _, EnvError, OpenMode, RealDisk};
use rocketpy_filter::MessageFilter;
use rocketpy_model::PhysicalOffset;
use rocketpy_store::{
    AppendError, FlushMode, KeyKind, NewRecord, ReadLimits, Store, StoreConfig, StoreError,
};

use crate::disk_full::mount_image;
use crate::faulty::FaultyDisk;
use crate::support::{
    ALL, contents, killed_copy, listener, overwrite, quiet, read_all, record, settle, settle_in_files, small,
    views,
};

fn log_file(root: &Path, start: u64) -> PathBuf {
    root.join("commitlog").join(format!("{start:020}"))
}

fn cut_short(path: &Path, len: u64) {
    RealDisk.open_file(path, OpenMode::Write).unwrap().set_len(len).unwrap();
}

/// The place that a read of the log failed at.
fn damaged_place<T: std::fmt::Debug>(result: Result<T, StoreError>) -> (PathBuf, u64) {
    match result.unwrap_err() {
        error @ StoreError::DamagedLog { .. } if !error.is_damage() => panic!("{error} is damage"),
        StoreError::DamagedLog { path, physical_offset, .. } => (path, physical_offset.get()),
        other => panic!("{other}"),
    }
}

#[test]
fn a_log_file_that_is_cut_short_is_named_and_everything_else_is_served() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(small(dir.path())).unwrap();
    let body = vec![7; 1000];
    let properties = b"KEYS\x01k\x02";
    let places: Vec<_> = (0..100)
        .map(|_| store.append(&NewRecord { properties, ..record("t", 0, &body) }).unwrap().physical_offset)
        .collect();
    store.append(&record("other", 0, b"hello")).unwrap();
    settle(&store);
    cut_short(&log_file(dir.path(), 0), 4096);
    let get = |offset| store.get("t", 0, offset, &ALL, &MessageFilter::All);
    let first = get(0).unwrap();
    let (whole, broken) = (first.count as usize, first.next_offset.get() as usize);
    assert_eq!(broken, places.iter().take_while(|place| place.get() + 1024 < 4096).count());
    assert!(views(&first).iter().all(|view| view.body == body), "those before are whole");
    let named = (log_file(dir.path(), 0), 4096);
    assert_eq!(damaged_place(get(whole as i64)), named);
    let place = places[whole].get();
    assert_eq!(damaged_place(store.record_at(place.into())), named, "the record at {place}");
    let one = ReadLimits { max_messages: 1, ..ALL };
    let keyed = |limits| store.query_by_key("t", "k", KeyKind::Any, limits, 0, i64::MAX);
    assert_eq!(keyed(&one).unwrap().records.len(), 1, "the newest is elsewhere");
    assert!(matches!(keyed(&ALL), Err(StoreError::DamagedLog { .. })));
    assert!(matches!(store.stored_at("t", 0, 40.into()), Err(StoreError::DamagedLog { .. })));
    let behind = places.iter().position(|place| place.get() >= 64 << 10).unwrap();
    assert_eq!(get(behind as i64).unwrap().count as usize, 100 - behind);
    store.append(&record("other", 0, b"again")).unwrap();
    settle(&store);
    assert_eq!(read_all(&store, "other", 0), [b"hello", b"again"]);
}

#[test]
fn a_record_that_can_be_read_again_is_found_in_its_file_though_not_in_its_map() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(small(dir.path())).unwrap();
    let body = vec![7; 1000];
    let places: Vec<_> =
        (0..100).map(|_| store.append(&record("t", 0, &body)).unwrap().physical_offset).collect();
    settle(&store);
    let at = places[10];
    let whole = store.record_at(at).unwrap().unwrap().to_vec();
    assert_eq!(store.record_from_file(at).unwrap().unwrap(), whole);
    assert!(store.record_from_file(at + 1).unwrap().is_none());
    assert!(store.record_from_file(store.max_physical_offset()).unwrap().is_none());
    let bytes = RealDisk.read(&log_file(dir.path(), 0), 1 << 20).unwrap();
    cut_short(&log_file(dir.path(), 0), 4096);
    assert!(matches!(store.record_at(at), Err(StoreError::DamagedLog { .. })));
    let error = store.record_from_file(at).unwrap_err();
    assert!(matches!(error, StoreError::Env(EnvError::UnexpectedEnd { .. })), "{error}");
    overwrite(&log_file(dir.path(), 0), 0, &bytes);
    assert!(matches!(store.record_at(at), Err(StoreError::DamagedLog { .. })), "its map has zeros");
    assert_eq!(store.record_from_file(at).unwrap().unwrap(), whole);
    overwrite(&log_file(dir.path(), 0), at.get() + 200, b"x");
    assert!(matches!(store.record_from_file(at), Err(StoreError::DamagedLog { .. })), "its body changed");
}

#[test]
fn an_append_that_the_file_does_not_take_poisons_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(quiet(dir.path(), FlushMode::Async)).unwrap();
    let (told, heard) = listener();
    store.add_listener(told);
    store.append(&record("t", 0, b"kept")).unwrap();
    settle(&store);
    cut_short(&log_file(dir.path(), 0), 4096);
    let (refused, placed) = loop {
        match store.append(&record("t", 0, &[7; 1000])) {
            Ok(appended) => assert!(appended.end <= PhysicalOffset(4096), "{appended:?} is not in the file"),
            Err(refused) => break (refused, store.max_physical_offset()),
        }
    };
    let AppendError::Poisoned { cause } = refused else { panic!("{refused}") };
    assert!(cause.is_failed_flush() && cause.path() == log_file(dir.path(), 0), "{cause}");
    assert!(placed <= PhysicalOffset(4096), "nobody reads what the file did not take");
    assert_eq!(heard.poisoned.try_iter().count(), 1);
    assert!(matches!(store.append(&record("t", 0, b"x")), Err(AppendError::Poisoned { .. })));
    let first = store.get("t", 0, 0, &ALL, &MessageFilter::All).unwrap();
    assert_eq!(views(&first)[0].body, b"kept");
}

#[test]
fn a_start_that_cannot_read_the_log_names_file_and_place_and_changes_nothing() {
    let (dir, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = Store::open(quiet(dir.path(), FlushMode::Async)).unwrap();
    for _ in 0..100 {
        store.append(&record("t", 0, &[7; 1000])).unwrap();
    }
    settle(&store);
    killed_copy(dir.path(), killed.path());
    let config = quiet(killed.path(), FlushMode::Async);
    let before = contents(killed.path());
    let whole = RealDisk.read(&log_file(killed.path(), 0), 1 << 20).unwrap();
    let disk = FaultyDisk::default();
    *disk.faults.cut_opened.lock() = Some((log_file(killed.path(), 0), 8192));
    let error = Store::open_on(disk, config.clone()).unwrap_err();
    let StoreError::Env(EnvError::Unreadable { path, offset: 8192, .. }) = &error else { panic!("{error}") };
    assert_eq!(*path, log_file(killed.path(), 0));
    assert!(error.is_damage() && error.hint().unwrap().contains("repair"));
    RealDisk.replace(path, &whole).unwrap(); // the disk is back
    assert!(before == contents(killed.path()), "nothing else was changed");
    assert_eq!(read_all(&Store::open(config).unwrap(), "t", 0).len(), 100);
}

#[test]
fn a_queue_file_that_is_cut_short_is_named_and_other_queues_are_served() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(small(dir.path())).unwrap();
    for queue_id in [0, 1] {
        for _ in 0..30 {
            store.append(&record("t", queue_id, b"x")).unwrap();
        }
    }
    settle_in_files(&store);
    let path = dir.path().join(format!("consumequeue/t/0/{:020}", 0));
    cut_short(&path, 100);
    let error = store.get("t", 0, 0, &ALL, &MessageFilter::All).unwrap_err();
    assert!(matches!(&error, StoreError::Env(cause) if cause.path() == path), "{error}");
    assert_eq!(read_all(&store, "t", 1).len(), 30);
}

/// Messages of 1 MiB: so many that a start does not check the first of them.
fn large(root: &Path) -> StoreConfig {
    let config = quiet(root, FlushMode::Async);
    StoreConfig { commit_log_file_size: 16 << 20, ..config }
}

#[test]
fn a_changed_byte_of_what_a_former_life_wrote_is_found_by_the_first_read() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(large(dir.path())).unwrap();
    let body = vec![7; 1 << 20];
    let first = store.append(&record("t", 0, &body)).unwrap();
    let second = store.append(&record("t", 0, &body)).unwrap();
    store.append(&record("t", 0, b"third")).unwrap();
    for _ in 0..80 {
        store.append(&record("other", 0, &body)).unwrap();
    }
    drop(store);
    let born_at = first.physical_offset.get() + 45;
    overwrite(&log_file(dir.path(), 0), born_at, b"x");
    let tag = second.end.get() - 22; // before the checksum, the last property
    overwrite(&log_file(dir.path(), 0), tag, b"B");
    let store = Store::open(large(dir.path())).unwrap();
    assert!(store.recovery().verified_from > second.end, "the start did not look there");
    let one = ReadLimits { max_messages: 1, max_bytes: 1, copies: true };
    let get = |offset| store.get("t", 0, offset, &one, &MessageFilter::All);
    for _ in 0..2 {
        let named = |place: PhysicalOffset| (log_file(dir.path(), 0), place.get());
        assert_eq!(damaged_place(get(0)), named(first.physical_offset));
        assert_eq!(damaged_place(get(1)), named(second.physical_offset));
        assert_eq!(damaged_place(store.record_at(first.physical_offset)), named(first.physical_offset));
        assert_eq!(views(&get(2).unwrap())[0].body, b"third");
    }
    assert_eq!(read_all(&store, "other", 0).len(), 80);
    // What this life writes is not read again to be checked: the memory of the file is what was written.
    let own = store.append(&record("t", 0, b"own")).unwrap();
    settle(&store);
    assert_eq!(store.record_at(own.physical_offset).unwrap().unwrap().len() as u32, own.size_bytes);
}

fn run(program: &mut Command) -> String {
    let output = program.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Where a page of a file lies on its disk, in pages.
fn page_on_disk(path: &Path, page: u64) -> u64 {
    let extents = run(Command::new("filefrag").args(["-v", "-b4096"]).arg(path));
    // `   0:        0..      15:       1234..      1249:     16:  ...`
    let numbers = |line: &str| -> Vec<u64> {
        let parts = line.split(|letter: char| !letter.is_ascii_digit()).filter(|part| !part.is_empty());
        parts.map_while(|part| part.parse().ok()).collect()
    };
    let lines = extents.lines().filter(|line| line.contains("..")).map(numbers);
    let extent = lines.filter(|extent| extent.len() >= 5).find(|it| (it[1]..=it[2]).contains(&page));
    let extent = extent.unwrap_or_else(|| panic!("no page {page}: {extents}"));
    extent[3] + (page - extent[1])
}

#[test]
fn sectors_that_cannot_be_read_are_named_by_reads_and_by_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let (image, mounted) = (dir.path().join("image"), dir.path().join("mounted"));
    RealDisk.create_dir_all(&mounted).unwrap();
    RealDisk.open_file(&image, OpenMode::CreateOrWrite).unwrap().set_len(16 << 20).unwrap();
    run(Command::new("mkfs.ext4").args(["-q", "-b", "4096", "-O", "^has_journal"]).arg(&image));
    let Some(disk) = mount_image(&mounted, &image) else { return };
    let root = dir.path().join("store");
    let config = StoreConfig {
        commit_log_dir: Some(mounted.join("commitlog")),
        allocate_ahead: false,
        ..quiet(&root, FlushMode::Async)
    };
    let store = Store::open(config.clone()).unwrap();
    let places: Vec<_> =
        (0..150).map(|_| store.append(&record("t", 0, &[7; 1000])).unwrap().physical_offset.get()).collect();
    settle(&store);
    let second = mounted.join("commitlog").join(format!("{:020}", 64 << 10));
    // Past the memory of the system, which forgets what it has of the file.
    let copy = dir.path().join("copy");
    RealDisk.replace(&copy, &RealDisk.read(&second, 1 << 20).unwrap()).unwrap();
    let from = format!("if={}", copy.display());
    let to = format!("of={}", second.display());
    run(Command::new("dd").args([&*from, &*to, "bs=4096", "oflag=direct", "conv=notrunc"]));
    let lost_from = page_on_disk(&second, 2);
    run(&mut Command::new("sync"));
    cut_short(&image, lost_from * 4096); // nothing is written from here on: that would make the image longer again
    let bad = (64 << 10) + 2 * 4096;
    let first_bad = places.iter().position(|&place| place + 1200 > bad).unwrap();
    let found = store.get("t", 0, first_bad as i64 + 1, &ALL, &MessageFilter::All);
    let (path, place) = damaged_place(found);
    assert!(path == second && place >= bad, "{path:?} {place}");
    let first = ReadLimits { max_messages: 50, ..ALL };
    assert_eq!(store.get("t", 0, 0, &first, &MessageFilter::All).unwrap().count, 50);
    store.shutdown().unwrap();
    drop(store);
    let error = Store::open(config).unwrap_err();
    let StoreError::Env(EnvError::Unreadable { path, offset, .. }) = &error else { panic!("{error}") };
    assert!(*path == second && *offset >= 2 * 4096, "{error}");
    drop(disk);
}
