//! A disk without room, played by the limit of a process's file sizes: every new commit log file is refused.

use std::process::Command;

use crate::binary::{BINARY, Process};
use crate::support::Caller;

#[test]
fn a_full_disk_refuses_sends_by_name_and_reads_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let ready = folder.path().join("ready");
    // The limit is in blocks of 512 bytes; without the trap the system would end the process.
    let script = "trap '' XFSZ; ulimit -f 1024; exec \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh", BINARY, "server"]).arg(&store).args([
        "--port",
        "0",
        "--name-server-port",
        "0",
    ]);
    command.args(["--set", "mappedFileSizeCommitLog=4194304", "--set", "mappedFileSizeConsumeQueue=2000"]);
    let process = Process::start(command, &ready);
    let caller = Caller::new();
    caller.create_topic(&process.broker, "orders");
    for _ in 0..3 {
        let answer = caller.send(&process.broker, "orders", "x");
        let remark = answer.remark.unwrap_or_default();
        assert_eq!(answer.code, 14, "{remark}");
        assert!(remark.contains("no space") && remark.contains("free disk space"), "{remark}");
    }
    assert!(caller.read_all(&process.broker, "orders").is_empty());
    assert!(caller.route(&process.name_server, "orders").is_some(), "the rest is served on");
}
