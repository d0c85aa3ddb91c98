//! The groups, and the processes of their members.

use std::io::PipeWriter;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fastrand::Rng;
use rocketpy_env::{Disk, EntryKind, RealDisk, planted};
use rocketpy_protocol::body::ResetOffsetBody;
use rocketpy_protocol::json;

use super::super::message::queue_name;
use super::member::Member;
use crate::history::{Group, Handlers, QueueName};

pub(super) const MAX_RETRIES: u32 = 2;
/// A member that takes longer to stop is killed; it gives up by itself earlier.
const STOP_WITHIN: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// More than the offsets of a few queues take.
const OFFSETS_BYTES: u64 = 1 << 20;

/// A group and how its members get messages.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) ordered: bool,
    pub(super) broadcast: bool,
    /// Starts at LATEST. Its members are never killed: every message sent after they have joined must arrive.
    pub(super) latest: bool,
    pub(super) members: u32,
}

pub(super) const GROUPS: [Kind; 4] = [
    Kind { name: "side-by-side", ordered: false, broadcast: false, latest: false, members: 3 },
    Kind { name: "in-turn", ordered: true, broadcast: false, latest: false, members: 3 },
    Kind { name: "everybody", ordered: false, broadcast: true, latest: false, members: 2 },
    Kind { name: "from-now-on", ordered: false, broadcast: false, latest: true, members: 2 },
];

impl Kind {
    pub(super) fn contract(&self) -> Group {
        Group {
            name: self.name.to_owned(),
            broadcasting: self.broadcast,
            members: (0..self.members).collect(),
            handlers: Some(Handlers { ordered: self.ordered, max_retries: MAX_RETRIES }),
            ..Group::default()
        }
    }

    pub(super) fn index(&self) -> usize {
        GROUPS.iter().position(|kind| kind == self).unwrap_or_default()
    }
}

/// A member of a group, and its process while there is one; killed when it is dropped.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) kind: &'static Kind,
    pub(super) number: u32,
    child: Option<Child>,
    name: String,
}

/// The groups of a store. With renewals there is no broadcasting group: only its members know their offsets, which may be of an earlier
/// topic. Without renewals there is no group at LATEST.
pub(super) fn groups(has_renewals: bool) -> impl Iterator<Item = &'static Kind> {
    static KINDS: [Kind; 4] = GROUPS;
    KINDS.iter().filter(move |kind| if has_renewals { !kind.broadcast } else { !kind.latest })
}

/// All members of groups, without their processes.
pub(super) fn seats(groups: impl Iterator<Item = &'static Kind>) -> impl Iterator<Item = Seat> {
    let seat = |kind, number| Seat { kind, number, child: None, name: format!("member{number}") };
    groups.flat_map(move |kind| (0..kind.members).map(move |number| seat(kind, number)))
}

impl Seat {
    pub(super) const fn is_empty(&self) -> bool {
        self.child.is_none()
    }

    /// The name under which its next process comes. One that reads in order finds its locks under its old name; under another it has to
    /// wait for them.
    pub(super) fn draw_name(&mut self, rng: &mut Rng, process: u64, waits_for_locks: bool) -> String {
        let is_new = match (self.kind.broadcast, self.kind.ordered) {
            (true, _) => false,
            (_, true) => waits_for_locks && rng.u8(0..4) == 0,
            _ => rng.bool(),
        };
        if is_new {
            self.name = format!("process{process}");
        }
        format!("{}-{}", self.kind.name, self.name)
    }

    pub(super) fn offsets(&self, folder: &Path) -> PathBuf {
        folder.join(format!("offsets{}", self.number))
    }

    pub(super) fn start(
        &mut self,
        binary: &Path,
        member: &Member,
        pipe: PipeWriter,
        planted: Option<&str>,
    ) -> Result<(), String> {
        let member = serde_json::to_string(member).map_err(|error| error.to_string())?;
        let mut command = Command::new(binary);
        command.args(["member", &member]).stdin(Stdio::piped()).stdout(pipe).env_remove(planted::VARIABLE);
        if let Some(bug) = planted {
            command.env(planted::VARIABLE, bug);
        }
        self.child = Some(command.spawn().map_err(|error| format!("{}: {error}", binary.display()))?);
        Ok(())
    }

    pub(super) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Ends its input, and waits until it has stopped. With `is_healed` its last commit may not fail.
    pub(super) fn stop(&mut self, is_healed: bool) -> Result<(), String> {
        let Some(child) = &mut self.child else { return Ok(()) };
        drop(child.stdin.take());
        let started = Instant::now();
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break Ok(status),
                Ok(None) if started.elapsed() < STOP_WITHIN => std::thread::sleep(POLL_INTERVAL),
                Ok(None) => break Err(format!("a member does not stop within {STOP_WITHIN:?}")),
                Err(error) => break Err(error.to_string()),
            }
        };
        self.kill();
        let status = status?;
        let is_well = status.success() || !is_healed && status.code() == Some(1);
        if is_well { Ok(()) } else { Err(format!("a member of {} ended: {status}", self.kind.name)) }
    }

    /// The offsets in the files of a member that gets everything.
    pub(super) fn local_offsets(&self, folder: &Path) -> Result<Vec<(QueueName, u64)>, String> {
        let mut offsets = Vec::new();
        let folder = self.offsets(folder);
        for client in RealDisk.list(&folder).unwrap_or_default() {
            if client.kind != EntryKind::Folder {
                continue;
            }
            let file = folder.join(&client.name).join(self.kind.name).join("offsets.json");
            let Ok(bytes) = RealDisk.read(&file, OFFSETS_BYTES) else { continue }; // not written yet
            let body: ResetOffsetBody =
                json::from_slice(&bytes).map_err(|error| format!("{file:?}: {error}"))?;
            offsets.extend(
                body.offset_table.iter().map(|(queue, offset)| (queue_name(queue), offset.cast_unsigned())),
            );
        }
        Ok(offsets)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.kill();
    }
}
