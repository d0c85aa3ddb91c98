//! The binary: flags, signals, exit codes.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rocketpy_env::{Disk, RealDisk};

use crate::support::{Caller, TIMEOUT, wait_until};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_rocketpy-server");

/// A server in a process of its own; killed when it is dropped.
pub(crate) struct Process {
    child: Child,
    /// Takes what it writes to standard error.
    log: Option<JoinHandle<String>>,
    pub name_server: String,
    pub broker: String,
}

impl Process {
    /// Starts `command`, which ends in the flags of the server, and waits for its ready file.
    pub(crate) fn start(mut command: Command, ready_file: &Path) -> Self {
        command.arg("--ready-file").arg(ready_file);
        let _ = RealDisk.remove_file(ready_file);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = child.stderr.take().unwrap();
        let log = std::thread::spawn(move || {
            let mut log = Vec::new();
            stderr.read_to_end(&mut log).unwrap();
            String::from_utf8_lossy(&log).into_owned()
        });
        wait_until("the server is ready", || {
            if let Some(status) = child.try_wait().unwrap() {
                panic!("ended at once: {status}");
            }
            RealDisk.read(ready_file, 1000).is_ok()
        });
        let ready: serde_json::Value =
            serde_json::from_slice(&RealDisk.read(ready_file, 1000).unwrap()).unwrap();
        assert_eq!(ready["pid"], child.id());
        let text = |key: &str| ready[key].as_str().unwrap_or_default().to_owned();
        Self { name_server: text("name_server"), broker: text("broker"), child, log: Some(log) }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Stops it in order; returns what it wrote to standard error.
    pub(crate) fn stop(self) -> String {
        let sent = Command::new("kill").arg(self.child.id().to_string()).status().unwrap();
        assert!(sent.success());
        self.end().1
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits until it ends by itself; returns the exit code and what it wrote to standard error.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        wait_until("the server ends", || self.child.try_wait().unwrap().is_some());
        (self.child.wait().unwrap().code(), self.log.take().unwrap().join().unwrap())
    }

    /// From now on the system refuses to make a file longer than this; `usize::MAX`: none.
    pub(crate) fn limit_file_size(&self, size_bytes: usize) {
        let pid = self.child.id().to_string();
        let limited =
            Command::new("prlimit").args(["--pid", &pid, &format!("--fsize={size_bytes}:")]).status();
        assert!(limited.unwrap().success());
    }

    /// Sends a signal by its name; returns the exit code and how long the end took.
    pub(crate) fn signal(mut self, name: &str) -> (Option<i32>, Duration) {
        let started = Instant::now();
        let sent =
            Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status().unwrap();
        assert!(sent.success());
        let status = self.child.wait().unwrap();
        (status.code(), started.elapsed())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `rocketpy-server server` on a folder, with small files and free ports; a disk that stalls refuses nothing.
pub(crate) fn server(store: &Path) -> Command {
    let mut command = Command::new(BINARY);
    command.arg("server").arg(store).args(["--port", "0", "--name-server-port", "0"]);
    command.args(["--set", "mappedFileSizeCommitLog=1048576"]);
    let timeout_ms = TIMEOUT.as_millis();
    for key in ["osPageCacheBusyTimeOutMills", "syncFlushTimeout"] {
        command.arg("--set").arg(format!("{key}={timeout_ms}"));
    }
    command
}

#[test]
fn both_signals_stop_it_in_order_and_soon() {
    let folder = tempfile::tempdir().unwrap();
    let (store, ready): (PathBuf, PathBuf) = (folder.path().join("store"), folder.path().join("ready"));
    let caller = Caller::new();
    for (signal, count) in [("TERM", 1), ("INT", 2)] {
        let process = Process::start(server(&store), &ready);
        assert_eq!(caller.send(&process.broker, "orders", "x").code, 0);
        let (code, took) = process.signal(signal);
        assert_eq!(code, Some(0));
        // The bound is for a disk that stalls; the aim is half a second.
        assert!(took < TIMEOUT, "{took:?}");
        assert!(RealDisk.read(&ready, 1000).is_err(), "the ready file is gone");
        assert!(RealDisk.read(&store.join("abort"), 1000).is_err(), "an orderly stop");
        let process = Process::start(server(&store), &ready);
        wait_until("all are readable", || caller.read_all(&process.broker, "orders").len() == count);
        process.kill();
    }
}

#[test]
fn a_wrong_command_line_ends_with_an_error_and_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let store = store.to_str().unwrap();
    for (arguments, code, named) in [
        (vec!["server", store, "--set", "flushDiskTyp=SYNC_FLUSH"], 1, "flushDiskType"),
        (vec!["server", store, "--set", "aclEnable=true"], 1, "migrateAuthFromV1Enabled"),
        (vec!["server", store, "--set", "nonsense"], 2, "KEY=VALUE"),
        (vec!["server", store, "--config", "/no/such/file"], 1, "/no/such/file"),
        (vec!["server", store, "--host", "no.such.host.invalid"], 1, "no.such.host.invalid"),
        (vec!["broker", store, "--name-server", "localhost"], 1, "host:port"),
        (vec!["broker", store], 1, "--name-server"),
    ] {
        let output = Command::new(BINARY).args(&arguments).env_remove("NAMESRV_ADDR").output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
        assert!(text.contains(named), "{named:?} in {text:?}");
    }
}

#[test]
fn parts_run_apart_with_a_file_of_apaches_keys() {
    let folder = tempfile::tempdir().unwrap();
    let mut namesrv = Command::new(BINARY);
    namesrv.args(["namesrv", "--port", "0"]);
    let namesrv = Process::start(namesrv, &folder.path().join("ready-1"));
    let conf = folder.path().join("broker.conf");
    let lines = format!(
        "brokerClusterName = c1\nbrokerName=b1\nbrokerId=0\ndeleteWhen=04\nfileReservedTime=48\nbrokerRole=ASYNC_MASTER\n\
         flushDiskType=ASYNC_FLUSH\nlistenPort=0\nmappedFileSizeCommitLog=1048576\nnamesrvAddr={}\n",
        namesrv.name_server
    );
    RealDisk.replace(&conf, lines.as_bytes()).unwrap();
    let mut broker = Command::new(BINARY);
    broker.arg("broker").arg(folder.path().join("store")).arg("--config").arg(&conf);
    let broker = Process::start(broker, &folder.path().join("ready-2"));
    assert_eq!((namesrv.broker.as_str(), broker.name_server.as_str()), ("", ""));
    let caller = Caller::new();
    caller.create_topic(&broker.broker, "orders");
    let route = caller.route(&namesrv.name_server, "orders").unwrap();
    assert_eq!(
        (route.broker_datas[0].cluster.as_str(), route.broker_datas[0].broker_name.as_str()),
        ("c1", "b1")
    );
}
