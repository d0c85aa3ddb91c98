//! What a start says when the tables of a store are gone, or when there is nothing to say.

use std::path::Path;

use rocketpy_env::{Disk, RealDisk};

use crate::binary::{Process, server};
use crate::support::{Caller, wait_until};

const TOPICS: &str = "config/topics.json is missing";
const OFFSETS: &str = "config/consumerOffset.json is missing";
const UNKNOWN: &str = "topics that are missing from config/topics.json";

fn remove(store: &Path, name: &str) {
    for name in [name.to_owned(), format!("{name}.bak")] {
        let _ = RealDisk.remove_file(&store.join("config").join(name));
    }
}

/// Starts and stops; returns what was logged.
fn log_of_a_start(store: &Path, ready: &Path) -> String {
    Process::start(server(store), ready).stop()
}

#[test]
fn a_start_without_its_tables_says_what_is_gone_and_the_topic_made_again_has_its_messages() {
    let folder = tempfile::tempdir().unwrap();
    let (store, ready) = (folder.path().join("store"), folder.path().join("ready"));
    let caller = Caller::new();
    let process = Process::start(server(&store), &ready);
    assert_eq!(caller.send(&process.broker, "orders", "x").code, 0);
    let log = process.stop();
    assert!(!log.contains("is missing") && !log.contains(UNKNOWN), "a new store lacks nothing: {log}");
    let log = log_of_a_start(&store, &ready);
    assert!(!log.contains("is missing") && !log.contains(UNKNOWN), "no group has ever read: {log}");

    remove(&store, "topics.json");
    remove(&store, "consumerOffset.json");
    let process = Process::start(server(&store), &ready);
    caller.create_topic(&process.broker, "orders");
    wait_until("it is readable again", || caller.read_all(&process.broker, "orders") == ["x"]);
    let log = process.stop();
    assert!(log.contains(TOPICS) && log.contains(OFFSETS), "{log}");
    let unknown: Vec<&str> = log.lines().filter(|line| line.contains(UNKNOWN)).collect();
    assert!(unknown.len() == 1 && unknown[0].contains("topics=1") && unknown[0].contains("orders"), "{log}");
    let log = log_of_a_start(&store, &ready);
    assert!(!log.contains("is missing") && !log.contains(UNKNOWN), "everything is there again: {log}");
}

#[test]
fn a_start_after_a_kill_without_a_message_warns_of_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (store, ready) = (folder.path().join("store"), folder.path().join("ready"));
    Process::start(server(&store), &ready).kill();
    let log = log_of_a_start(&store, &ready);
    assert!(!log.contains(" WARN rocketpy_store"), "{log}");
    assert!(!log.contains("is missing"), "{log}");
}
