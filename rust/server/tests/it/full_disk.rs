//! A disk without room, played by the limit of a process's file sizes: from a moment on every new commit log file is refused.

use std::path::Path;
use std::process::Command;

use crate::binary::{BINARY, Process};
use crate::pair::Pair;
use crate::support::{Caller, TIMEOUT, wait_until};

const LOG_FILE_BYTES: usize = 256 << 10;
/// Room for one file of the log and none of the size of another.
const LIMIT_BYTES: usize = 64 << 10;
const NO_SPACE: i32 = 14;

/// The binary as a process that the system does not end at its limit.
fn outliving_the_limit(part: &str, store: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; exec \"$@\"", "sh", BINARY, part]).arg(store);
    command
}

#[test]
fn a_full_disk_refuses_sends_by_name_and_reads_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let ready = folder.path().join("ready");
    let mut command = outliving_the_limit("server", &store);
    command.args(["--port", "0", "--name-server-port", "0"]);
    let log_file = format!("mappedFileSizeCommitLog={LOG_FILE_BYTES}");
    for setting in [&log_file, "mappedFileSizeConsumeQueue=2000", "maxHashSlotNum=100", "maxIndexNum=200"] {
        command.args(["--set", setting]);
    }
    let process = Process::start(command, &ready);
    let caller = Caller::new();
    caller.create_topic(&process.broker, "orders");
    let mut stored = Vec::new();
    let mut store_one = |body: String| {
        let answer = caller.send(&process.broker, "orders", &body);
        if answer.code == 0 {
            stored.push(body);
        }
        answer
    };
    for number in 0..5 {
        assert_eq!(store_one(format!("before {number}")).code, 0);
    }
    process.limit_file_size(LIMIT_BYTES);
    // Those that still fit go in; the file after the first may be made ahead already.
    let body = "x".repeat(10_000);
    let refused = (0..3 * LOG_FILE_BYTES / body.len()).find_map(|_| {
        let answer = store_one(body.clone());
        (answer.code != 0).then_some(answer)
    });
    assert_eq!(refused.expect("the log outgrew the disk").code, NO_SPACE);
    for _ in 0..3 {
        let answer = store_one(body.clone());
        let remark = answer.remark.unwrap_or_default();
        assert_eq!(answer.code, NO_SPACE, "{remark}");
        assert!(remark.contains("no space") && remark.contains("free disk space"), "{remark}");
    }
    wait_until("all that was stored is read", || {
        caller.read_all(&process.broker, "orders").len() == stored.len()
    });
    assert_eq!(caller.read_all(&process.broker, "orders"), stored);
    assert!(caller.route(&process.name_server, "orders").is_some(), "the rest is served on");
}

#[test]
fn a_slave_on_a_full_disk_says_so_and_goes_on_once_there_is_space() {
    let mut pair = Pair::start();
    pair.slave.take().unwrap().stop(TIMEOUT).unwrap();
    let mut command = outliving_the_limit("broker", &pair.path("slave"));
    command.args(["--name-server", pair.names.addresses().name_server.as_deref().unwrap(), "--port", "0"]);
    for setting in ["brokerName=pair", "brokerRole=SLAVE", "brokerId=1", "mappedFileSizeCommitLog=1048576"] {
        command.args(["--set", setting]);
    }
    let slave = Process::start(command, &pair.path("ready"));
    pair.send(0..10);
    pair.wait_for_slave();

    slave.limit_file_size(LIMIT_BYTES);
    let bodies: Vec<_> = (0..30).map(|number| format!("{number} {}", "x".repeat(100_000))).collect();
    let send = |body: &String| assert_eq!(pair.caller.send(&pair.master(), "orders", body).code, 0);
    bodies.iter().for_each(send);
    let mut cause = None;
    wait_until("the slave says why it stays behind", || {
        cause = pair.try_status(&slave.broker).unwrap().not_followed;
        cause.is_some()
    });
    assert!(cause.as_ref().unwrap().contains("no space"), "{cause:?}");
    let status = pair.try_status(&pair.master()).unwrap();
    let [connected] = &status.ha_connection_info[..] else { panic!("{status:?}") };
    assert!(connected.slave_ack_offset < status.master_commit_log_max_offset, "it reports what it has");

    slave.limit_file_size(usize::MAX);
    pair.wait_for_slave();
    wait_until("it says that it follows", || pair.try_status(&slave.broker).unwrap().not_followed.is_none());
    let end = pair.end(&pair.master());
    assert!(pair.log("master", end) == pair.log("slave", end), "byte for byte");
}
