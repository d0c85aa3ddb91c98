//! A process that appends is killed with SIGKILL at any moment, many times on one store.
//!
//! Shows: nothing acknowledged is lost, in either flush mode, and queues equal a rebuild of the log after every kill.
//! Cannot show a missing flush: the page cache outlives the process.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rocketpy_store::{FlushMode, Store, StoreConfig};

use crate::support::{PATIENCE, assert_queues_equal_log, read_all, record, settle, small};

const QUEUES: u32 = 3;

/// Acknowledged messages: queue and queue offset, and the body.
type Acknowledged = BTreeMap<(u32, u64), u64>;

fn config(root: &Path, flush: FlushMode) -> StoreConfig {
    let mut config = StoreConfig { flush, ..small(root) };
    if flush == FlushMode::Async {
        (config.queues_at_once, config.queue_tail_bytes) = (1, 2000);
    }
    config.checkpoint_interval = std::time::Duration::from_millis(20);
    config
}

/// Appends from two threads and says on its standard output what was acknowledged.
///
/// Without the variable that names a store it does so for a moment and checks itself.
#[test]
fn child_appends_and_acknowledges() {
    let variable = |name| std::env::var(name).ok();
    let Some(root) = variable("ROCKETPY_CRASH_STORE") else {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(config(dir.path(), FlushMode::Sync)).unwrap();
        append_numbers(&store, FlushMode::Sync, 0, 0..20);
        settle(&store);
        assert_eq!((0..QUEUES).map(|queue| read_all(&store, "t", queue).len()).sum::<usize>(), 20);
        return;
    };
    let flush = if variable("ROCKETPY_CRASH_SYNC").is_some() { FlushMode::Sync } else { FlushMode::Async };
    let first: u64 = variable("ROCKETPY_CRASH_FIRST").unwrap().parse().unwrap();
    let store = Store::open(config(Path::new(&root), flush)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let store = &store;
            scope.spawn(move || append_numbers(store, flush, thread, first..u64::MAX));
        }
    });
}

fn append_numbers(store: &Store, flush: FlushMode, thread: u64, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let number = number * 2 + thread;
        let body = [number.to_be_bytes().as_slice(), &vec![number as u8; (number % 700) as usize]].concat();
        let appended = store.append(&record("t", (number % u64::from(QUEUES)) as u32, &body)).unwrap();
        if flush == FlushMode::Sync {
            store.wait_flushed(appended.end, PATIENCE).unwrap();
        }
        let line = format!("ack {} {} {number}\n", number % u64::from(QUEUES), appended.queue_offset);
        std::io::stdout().write_all(line.as_bytes()).unwrap();
    }
}

fn start_child(root: &Path, flush: FlushMode, first: u64) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "crash::child_appends_and_acknowledges", "--nocapture"]);
    command.env("ROCKETPY_CRASH_STORE", root).env("ROCKETPY_CRASH_FIRST", first.to_string());
    if flush == FlushMode::Sync {
        command.env("ROCKETPY_CRASH_SYNC", "1");
    }
    command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

/// Lets a child append until it acknowledged a number of messages, kills it, and notes all that it acknowledged.
fn kill_after(root: &Path, flush: FlushMode, count: usize, acknowledged: &mut Acknowledged) {
    let first = acknowledged.values().max().map_or(0, |number| number / 2 + 1);
    let mut child = start_child(root, flush, first);
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut seen = 0;
    let mut line = String::new();
    loop {
        line.clear();
        // After the kill the pipe still gives what was written; a line that was cut is no acknowledgement.
        if output.read_line(&mut line).unwrap() == 0 || !line.ends_with('\n') {
            break;
        }
        // The test harness prints lines of its own, and one of them precedes our first on the same line.
        let Some(at) = line.find("ack ") else { continue };
        let fields: Vec<u64> =
            line[at + 4..].split_whitespace().map(|field| field.parse().unwrap()).collect();
        let former = acknowledged.insert((fields[0] as u32, fields[1]), fields[2]);
        assert_eq!(former, None, "a queue offset is acknowledged once");
        seen += 1;
        if seen == count {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert!(seen >= count, "the child ended by itself after {seen}");
}

fn assert_all_there(config: &StoreConfig, acknowledged: &Acknowledged) {
    let store = Store::open(config.clone()).unwrap();
    assert!(!store.recovery().clean_exit);
    for queue_id in 0..QUEUES {
        let bodies = read_all(&store, "t", queue_id);
        let numbers: Vec<u64> =
            bodies.iter().map(|body| u64::from_be_bytes(*body.first_chunk().unwrap())).collect();
        for (body, number) in bodies.iter().zip(&numbers) {
            assert_eq!(body[8..], vec![*number as u8; (number % 700) as usize]);
        }
        for ((_, queue_offset), number) in acknowledged.range((queue_id, 0)..(queue_id + 1, 0)) {
            let found = numbers.get(*queue_offset as usize);
            assert_eq!(found, Some(number), "acknowledged at {queue_offset} of queue {queue_id}");
        }
    }
    store.shutdown().unwrap();
    assert_queues_equal_log(config);
}

fn kill_again_and_again(flush: FlushMode) {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path(), flush);
    let mut acknowledged = Acknowledged::new();
    for round in 0..6 {
        kill_after(dir.path(), flush, 1 + round * 97, &mut acknowledged);
        if round % 2 == 1 {
            assert_all_there(&config, &acknowledged); // every other time the next child recovers by itself
        }
    }
}

#[test]
fn kill_minus_nine_loses_nothing_acknowledged_under_async_flush() {
    kill_again_and_again(FlushMode::Async);
}

#[test]
fn kill_minus_nine_loses_nothing_acknowledged_under_sync_flush() {
    kill_again_and_again(FlushMode::Sync);
}
