//! A disk that fails under a running server: a file system on a disk image that has more blocks than room, so that a flush
//! meets an error of the device, in a file whose space was allocated.
//!
//! Shows what the senders are told, that nothing is acknowledged afterwards, and how the process ends. It cannot show what
//! is there after a restart: loop devices take a write that was cut short for a whole one.

use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use crate::binary::{Process, server};
use crate::support::Caller;

const FLUSH_DISK_TIMEOUT: i32 = 10;
const BODY_BYTES: usize = 100 << 10;
/// Sends that are under way at once.
const AT_ONCE: usize = 8;

/// A mounted ext4 of 256 MiB whose image has room for 16 MiB.
struct ThinDisk(TempDir);

impl ThinDisk {
    /// `None`, with the reason on standard error, where it cannot be made; under `CI` that is a failure.
    fn mount() -> Option<Self> {
        let disk = Self(tempfile::tempdir().unwrap());
        match disk.make() {
            Ok(()) => Some(disk),
            Err(reason) => {
                let reason = format!("root, loop devices and mkfs.ext4 are needed: {reason}");
                assert!(std::env::var_os("CI").is_none(), "{reason}");
                eprintln!("skipped: {reason}");
                None
            }
        }
    }

    fn make(&self) -> Result<(), String> {
        let (host, disk, image) = (self.host(), self.disk(), self.host().join("ext4"));
        run("mkdir", |command| command.args([&host, &disk]))?;
        run("mount", |command| command.args(["-t", "tmpfs", "-o", "size=16m", "tmpfs"]).arg(&host))?;
        run("truncate", |command| command.args(["-s", "256M"]).arg(&image))?;
        // Without a journal: one that cannot be written ends processes that write into maps (SIGBUS).
        run("mkfs.ext4", |command| command.args(["-q", "-O", "^has_journal"]).arg(&image))?;
        run("mount", |command| command.args(["-o", "loop"]).args([&image, &disk]))
    }

    /// The file system that holds the image.
    fn host(&self) -> PathBuf {
        self.0.path().join("host")
    }

    fn disk(&self) -> PathBuf {
        self.0.path().join("disk")
    }

    fn start_server(&self, on_failed_flush: &str) -> Process {
        let mut command = server(&self.disk().join("store"));
        command.args(["--set", "flushDiskType=SYNC_FLUSH", "--set", "mappedFileSizeCommitLog=67108864"]);
        command.arg("--set").arg(format!("onFailedFlush={on_failed_flush}"));
        Process::start(command, &self.0.path().join("ready"))
    }
}

impl Drop for ThinDisk {
    fn drop(&mut self) {
        let _ = run("umount", |command| command.arg(self.disk()));
        let _ = run("umount", |command| command.arg(self.host()));
    }
}

fn run(program: &str, arguments: impl FnOnce(&mut Command) -> &mut Command) -> Result<(), String> {
    match arguments(&mut Command::new(program)).output() {
        Ok(output) if output.status.success() => Ok(()),
        other => Err(format!("{program}: {other:?}")),
    }
}

/// A body that says its number.
fn body(number: usize) -> String {
    format!("{number:08}").repeat(BODY_BYTES / 8)
}

/// Sends until the disk fails, under sends that wait for a flush or between them, when pages are written ahead. Returns the
/// numbers that were acknowledged; all others may be stored. When the server `stops` then, what it has not read any more ends
/// with the connection.
fn send_until_it_fails(caller: &Caller, broker: &str, stops: bool) -> Vec<usize> {
    let mut acknowledged = Vec::new();
    for round in 0..100 {
        let numbers = round * AT_ONCE..(round + 1) * AT_ONCE;
        let answers = caller.send_all(broker, "orders", numbers.clone().map(body));
        let (mut held, mut refused) = (0, 0);
        for (number, answer) in numbers.zip(answers) {
            let answer = match answer {
                Ok(answer) => answer,
                Err(error) if stops => {
                    assert!(error.may_have_been_applied() || error.retryable(), "{error}");
                    refused += 1;
                    continue;
                }
                Err(error) => panic!("never answered: {error}"),
            };
            match answer.code {
                0 => {
                    assert_eq!(held + refused, 0, "acknowledged behind one that may be lost: {number}");
                    acknowledged.push(number);
                }
                FLUSH_DISK_TIMEOUT => {
                    let remark = answer.remark.unwrap_or_default();
                    assert!(
                        remark.contains("a flush failed") && remark.contains("may be stored"),
                        "{remark}"
                    );
                    held += 1;
                }
                // Came after the failure: refused before anything was stored.
                _ => {
                    assert!(answer.remark.unwrap_or_default().contains("a flush failed"));
                    refused += 1;
                }
            }
        }
        if held + refused > 0 {
            return acknowledged;
        }
    }
    panic!("the disk never failed");
}

#[test]
fn a_failed_flush_stops_the_server_with_a_clear_last_line() {
    let Some(disk) = ThinDisk::mount() else { return };
    let process = disk.start_server("STOP");
    let caller = Caller::new();
    caller.create_topic(&process.broker, "orders");
    let acknowledged = send_until_it_fails(&caller, &process.broker, true);
    assert!(!acknowledged.is_empty(), "the disk worked for a while");
    let broker = process.broker.clone();
    while let Ok(answer) = caller.try_call(&broker, crate::support::send("orders", "late")) {
        assert_ne!(answer.code, 0, "acknowledged by a store that cannot keep it");
    }
    let (code, log) = process.end();
    assert_eq!(code, Some(1), "{log}");
    let [.., error, hint] = log.lines().collect::<Vec<_>>()[..] else { panic!("{log}") };
    assert!(
        error.starts_with("error: server stopped after a failure: ") && error.contains("a flush failed"),
        "{error}"
    );
    assert!(hint.starts_with("hint: check the disk"), "{hint}");
}

#[test]
fn a_server_that_refuses_after_a_failed_flush_goes_on_serving_readers() {
    let Some(disk) = ThinDisk::mount() else { return };
    let process = disk.start_server("REFUSE");
    let caller = Caller::new();
    caller.create_topic(&process.broker, "orders");
    let acknowledged = send_until_it_fails(&caller, &process.broker, false);
    // Longer than the binary's look for a failure.
    let until = std::time::Instant::now() + std::time::Duration::from_millis(600);
    while std::time::Instant::now() < until {
        let answer = caller.send(&process.broker, "orders", "late");
        assert_ne!(answer.code, 0, "acknowledged by a store that cannot keep it");
        let remark = answer.remark.unwrap_or_default();
        assert!(remark.contains("a flush failed"), "{remark}");
    }
    let read = caller.read_all(&process.broker, "orders");
    for number in acknowledged {
        assert!(read.contains(&body(number)), "{number}");
    }
    process.kill();
}
