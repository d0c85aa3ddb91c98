//! The server in its own process, which ends when the harness or a named point says so.

use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rocketpy_env::failpoint::{self, Point};
use rocketpy_env::{Disk, RealDisk, freeze_process, planted};

/// A start that takes longer counts as one that never ends.
const START_WITHIN: Duration = Duration::from_secs(60);
/// A server that takes longer to stop is killed; it gives up by itself earlier.
const STOP_WITHIN: Duration = Duration::from_secs(90);
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// How much of the server's output is kept, from its end.
const LOG_BYTES: usize = 32 << 10;
const SIGKILL: i32 = 9;

/// How a server is started.
#[derive(Debug)]
pub(super) struct Launch<'a> {
    pub binary: &'a Path,
    pub store: &'a Path,
    pub ready: &'a Path,
    pub part: Part<'a>,
    pub settings: &'a [String],
    /// The point at which it ends itself.
    pub kill_at: Option<(Point, u64)>,
    /// Its disk hangs with the first flush after this many appends.
    pub hang_after: Option<u64>,
    /// The title of a planted bug.
    pub planted: Option<&'a str>,
    /// It is killed after this time if it is not ready before.
    pub kill_after: Option<Duration>,
}

/// What a process is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Part<'a> {
    /// A broker and its name server, and where they listen.
    Server { broker: u16, name_server: u16 },
    /// A broker alone.
    Broker { port: u16, name_server: &'a str },
}

/// A running server; killed when it is dropped.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    log: Option<JoinHandle<String>>,
    pub name_server: String,
    pub broker: String,
}

/// A server that has ended.
#[derive(Debug)]
pub(super) struct Death {
    pub status: ExitStatus,
    /// The end of its output.
    pub log: String,
}

impl Death {
    pub(super) fn was_killed(&self) -> bool {
        self.status.signal() == Some(SIGKILL)
    }
}

#[derive(Debug)]
pub(super) enum Started {
    Ready(Server),
    Ended(Death),
}

impl Launch<'_> {
    fn command(&self) -> Command {
        let mut command = Command::new(self.binary);
        match self.part {
            Part::Server { broker, name_server } => {
                let (broker, name_server) = (broker.to_string(), name_server.to_string());
                command.arg("server").arg(self.store);
                command.args(["--port", &broker, "--name-server-port", &name_server]);
            }
            Part::Broker { port, name_server } => {
                let port = port.to_string();
                command.arg("broker").arg(self.store).args(["--port", &port, "--name-server", name_server]);
            }
        }
        for setting in self.settings {
            command.arg("--set").arg(setting);
        }
        command.arg("--ready-file").arg(self.ready);
        // Signals of the terminal go to the harness, which ends the server itself.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.env("ROCKETPY_LOG", "info").env_remove(planted::VARIABLE);
        command.env_remove(failpoint::VARIABLE).env_remove(failpoint::HANG_VARIABLE);
        if let Some((point, times)) = self.kill_at {
            command.env(failpoint::VARIABLE, format!("{}:{times}", point.name()));
        }
        if let Some(appends) = self.hang_after {
            command.env(failpoint::HANG_VARIABLE, appends.to_string());
        }
        if let Some(bug) = self.planted {
            command.env(planted::VARIABLE, bug);
        }
        command
    }

    /// Starts it and waits until it accepts or has ended.
    ///
    /// # Errors
    /// There is no such program, or it neither accepts nor ends.
    pub(super) fn start(&self) -> Result<Started, String> {
        let _ = RealDisk.remove_file(self.ready);
        let mut child =
            self.command().spawn().map_err(|error| format!("{}: {error}", self.binary.display()))?;
        let mut stderr = child.stderr.take().ok_or("no standard error")?;
        let log = std::thread::spawn(move || read_end(&mut stderr));
        let mut server = Server { child, log: Some(log), name_server: String::new(), broker: String::new() };
        let started = Instant::now();
        loop {
            if let Some(status) = server.child.try_wait().map_err(|error| error.to_string())? {
                return Ok(Started::Ended(server.death(status)));
            }
            if let Ok(bytes) = RealDisk.read(self.ready, 1 << 16)
                && let Ok(ready) = serde_json::from_slice::<serde_json::Value>(&bytes)
            {
                let text = |key: &str| ready[key].as_str().unwrap_or_default().to_owned();
                (server.name_server, server.broker) = (text("name_server"), text("broker"));
                return Ok(Started::Ready(server));
            }
            if self.kill_after.is_some_and(|after| started.elapsed() >= after) {
                return Ok(Started::Ended(server.kill()));
            }
            if started.elapsed() > START_WITHIN {
                return Err(format!("neither ready nor ended after {START_WITHIN:?}: {}", server.kill().log));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Reads to the end and keeps the last part.
fn read_end(from: &mut impl Read) -> String {
    let (mut kept, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        kept.extend_from_slice(&buffer[..count]);
        if kept.len() > 2 * LOG_BYTES {
            kept.drain(..kept.len() - LOG_BYTES);
        }
    }
    String::from_utf8_lossy(&kept).into_owned()
}

/// Whether the first thread of a process is stopped, or gone.
fn is_stopped(id: u32) -> bool {
    let stat = RealDisk.read(Path::new(&format!("/proc/{id}/stat")), 1 << 12);
    // The state follows the name, which is in parentheses and may hold any character.
    let state = stat.ok().and_then(|stat| {
        let name_end = stat.iter().rposition(|&byte| byte == b')')?;
        stat.get(name_end + 2).copied()
    });
    matches!(state, None | Some(b'T' | b't' | b'Z' | b'X'))
}

impl Server {
    fn death(&mut self, status: ExitStatus) -> Death {
        let log = self.log.take().and_then(|log| log.join().ok()).unwrap_or_default();
        Death { status, log }
    }

    pub(super) fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    /// Waits for a time until it ends by itself.
    pub(super) fn wait_for_end(&mut self, within: Duration) -> bool {
        self.wait_for_end_or(within, || false)
    }

    /// Waits until it ends, `is_enough` returns true, or the time is over; true if it ended.
    pub(super) fn wait_for_end_or(&mut self, within: Duration, is_enough: impl Fn() -> bool) -> bool {
        let started = Instant::now();
        while !self.has_ended() {
            if is_enough() || started.elapsed() >= within {
                return false;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        true
    }

    /// Stops all of its threads. On return it sends nothing more, but system calls may still be running; see [`freeze_process`].
    pub(super) fn freeze(&self) -> Result<(), String> {
        let id = self.child.id();
        freeze_process(id).map_err(|error| error.to_string())?;
        // The first thread takes the signal and stops all others before itself.
        let started = Instant::now();
        while !is_stopped(id) {
            if started.elapsed() > STOP_WITHIN {
                return Err(format!("process {id} does not stop"));
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Kills it, if it still runs, and waits for its end.
    pub(super) fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Kills it, if it still runs.
    pub(super) fn kill(mut self) -> Death {
        let _ = self.child.kill();
        let status = self.child.wait().unwrap_or_default();
        self.death(status)
    }

    /// Asks it to stop, and kills it when it does not stop in time.
    pub(super) fn stop(mut self) -> Death {
        let _ = Command::new("kill").arg("-TERM").arg(self.child.id().to_string()).status();
        self.wait_for_end(STOP_WITHIN);
        self.kill()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}
