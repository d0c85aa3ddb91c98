//! Messages go into stores whose logs lie elsewhere, and whose files have sizes of their own.

use rocketpy_env::{DiskFile, OpenMode};
use rocketpy_model::system;
use rocketpy_store::reader::ReadError;
use rocketpy_tools::{Transfer, facts};

use crate::support::is_there;
use crate::*;

/// A store whose log lies in two folders, and these as a person writes them.
fn in_two_folders(dir: &Path) -> (StoreConfig, PathBuf) {
    let (a, b) = (dir.join("disk-a"), dir.join("disk-b"));
    let named = format!("{}, {}", a.display(), b.display());
    let config =
        StoreConfig { commit_log_dir: Some(a), more_commit_log_dirs: vec![b], ..small(&dir.join("store")) };
    (config, named.into())
}

fn put(transfer: &mut Transfer, messages: u64) {
    for _ in 0..messages {
        transfer.append(&record("a", 0, &[b'x'; 1000]), || unreachable!("it is stored")).unwrap();
    }
}

fn files_in(dir: &Path) -> u64 {
    RealDisk.list(dir).unwrap().len() as u64
}

#[test]
fn facts_name_all_folders_of_the_log_and_count_the_files_of_all() {
    let dir = tempfile::tempdir().unwrap();
    let (config, named) = in_two_folders(dir.path());
    let store = Store::open(config.clone()).unwrap();
    fill(&store, 900);
    store.shutdown().unwrap();
    let log = facts(&StoreReader::open_with_log(&config.root, named).unwrap(), &mut |_| true).unwrap().log;
    let dirs = config.commit_log_dirs();
    assert_eq!(log.folders, dirs);
    let counts: Vec<u64> = dirs.iter().map(|dir| files_in(dir)).collect();
    assert!(counts.iter().all(|&count| count > 0), "both have some: {counts:?}");
    assert_eq!(log.files, counts.iter().sum::<u64>());
}

#[test]
fn a_message_that_the_store_cannot_take_is_named_counted_and_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let mut transfer = Transfer::make(&dir.path().join("store"), None, None).unwrap();
    put(&mut transfer, 1);
    let properties = vec![b'x'; 40_000];
    let long = NewRecord { properties: &properties, ..record("a", 0, b"x") };
    transfer.append(&long, || "row 2".to_owned()).unwrap();
    put(&mut transfer, 1);
    let report = transfer.finish(None).unwrap();
    assert_eq!((report.messages, report.rejected), (2, 1));
    let [rejection] = &report.rejections[..] else { panic!("{report:?}") };
    assert!(rejection.starts_with("row 2: properties exceed "), "{rejection}");
}

#[test]
fn a_log_in_several_folders_goes_on_where_it_lies() {
    let dir = tempfile::tempdir().unwrap();
    let (config, named) = in_two_folders(dir.path());
    let store = Store::open(config.clone()).unwrap();
    fill(&store, 300);
    store.shutdown().unwrap();
    let files = || config.commit_log_dirs().iter().map(|dir| files_in(dir)).collect::<Vec<_>>();
    let before = files();
    let mut transfer = Transfer::open(&config.root, Some(&named), None).unwrap();
    put(&mut transfer, 300);
    assert_eq!(transfer.finish(None).unwrap().messages, 300);
    assert!(files().iter().zip(&before).all(|(now, before)| now > before), "they take turns: {:?}", files());
    assert!(!is_there(&config.root.join("commitlog")));
    let reader = StoreReader::open_with_log(&config.root, &named).unwrap();
    let report = tools::verify(&reader, &mut go_on).unwrap();
    assert!(report.is_sound(), "{:#?}", report.problems);
    assert_eq!(report.entries, 600);
}

#[test]
fn a_log_that_is_not_where_it_is_looked_for_is_no_empty_log() {
    let dir = tempfile::tempdir().unwrap();
    let (config, named) = in_two_folders(dir.path());
    Store::open(config.clone()).map(|store| fill(&store, 10)).unwrap();
    let error = Transfer::open(&config.root, None, None).err().unwrap();
    assert!(matches!(error, ToolError::Read(ReadError::LogElsewhere { .. })), "{error}");
    let missing = dir.path().join("missing");
    let error = Transfer::open(&config.root, Some(&missing), None).err().unwrap();
    assert!(matches!(error, ToolError::Read(ReadError::NotAStore { .. })), "{error}");
    assert!(!is_there(&missing) && !is_there(&config.root.join("commitlog")));
    let error = Transfer::make(&dir.path().join("new"), Some(&named), None).err().unwrap();
    assert!(matches!(error, ToolError::TargetNotEmpty { .. }), "the log of another store: {error}");
}

#[test]
fn a_store_that_is_made_has_its_log_where_it_is_to_be_and_the_file_sizes_of_its_source() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("from");
    closed(&source, 30);
    let reader = StoreReader::open(&source).unwrap();
    let (config, named) = in_two_folders(dir.path());
    let mut transfer = Transfer::make(&config.root, Some(&named), Some(&reader)).unwrap();
    put(&mut transfer, 200);
    transfer.finish(None).unwrap();
    assert!(config.commit_log_dirs().iter().all(|dir| files_in(dir) > 0));
    let store = Store::open(config).unwrap();
    assert!(!store.recovery().rebuilt_index && !store.recovery().rebuilt_queues);
}

#[test]
fn an_index_of_other_sizes_than_the_usual_ones_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let config = closed(dir.path(), 300);
    let names = || {
        let files = RealDisk.list(&dir.path().join("index")).unwrap();
        files.into_iter().map(|file| file.name).collect::<BTreeSet<_>>()
    };
    let before = names();
    let mut transfer = Transfer::open(dir.path(), None, None).unwrap();
    put(&mut transfer, 10);
    transfer.finish(None).unwrap();
    assert!(before.is_subset(&names()), "none was rebuilt");
    assert_sound(dir.path());
    assert!(!Store::open(config).unwrap().recovery().rebuilt_index);
}

#[test]
fn records_that_are_not_messages_of_users_are_not_imported() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    let mut transfer = Transfer::make(&root, None, None).unwrap();
    put(&mut transfer, 1);
    let topics = [
        system::SCHEDULE_TOPIC,
        system::TIMER_TOPIC,
        system::HALF_TOPIC,
        system::OP_HALF_TOPIC,
        "RMQ_SYS_REPAIRED_LOG",
    ];
    for topic in topics {
        transfer.append(&record(topic, 0, b"x"), || unreachable!("it is passed over")).unwrap();
    }
    let rolled_back = NewRecord { sys_flag: sys_flag::TRANSACTION_ROLLBACK, ..record("a", 0, b"x") };
    transfer.append(&rolled_back, || unreachable!("it is passed over")).unwrap();
    let report = transfer.finish(None).unwrap();
    assert_eq!((report.messages, report.passed_over, report.rejected), (1, 6, 0));
    assert_eq!(report.new_topics, ["a"]);
    assert_eq!(StoreReader::open(&root).unwrap().topic_names().unwrap(), ["a"]);
}

#[test]
fn queue_ids_that_no_topic_can_have_are_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    let mut transfer = Transfer::make(&root, None, None).unwrap();
    for queue_id in [16_383, 16_384, u32::MAX] {
        transfer.append(&record("a", queue_id, b"x"), || format!("row of {queue_id}")).unwrap();
    }
    let report = transfer.finish(None).unwrap();
    assert_eq!((report.messages, report.rejected), (1, 2));
    let expected =
        [16_384, u32::MAX].map(|id| format!("row of {id}: queue_id exceeds the maximum 16383: {id}"));
    assert_eq!(report.rejections, expected);
    let table = RealDisk.read(&root.join("config/topics.json"), 10_000).unwrap();
    let table: serde_json::Value = serde_json::from_slice(&table).unwrap();
    assert_eq!(table["topicConfigTable"]["a"]["readQueueNums"], 16_384);
}

#[test]
fn import_into_a_store_with_a_truncated_queue_file_names_that_file() {
    let dir = tempfile::tempdir().unwrap();
    closed(dir.path(), 60);
    let cut = dir.path().join("consumequeue/a/0/00000000000000000000");
    RealDisk.open_file(&cut, OpenMode::Write).unwrap().set_len(1000).unwrap();
    let error = Transfer::open(dir.path(), None, None).err().unwrap();
    let ToolError::Store(StoreError::WrongFileSize { path, expected_bytes, .. }) = error else {
        panic!("{error}")
    };
    assert_eq!((path, expected_bytes), (cut, 2000));
}
