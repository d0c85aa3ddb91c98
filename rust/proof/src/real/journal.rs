//! Writes the history in the harness's own process, which outlives the server's.

use std::path::Path;

use rocketpy_client::Receipt;
use rocketpy_env::{Disk, DiskFile, OpenMode, RealDisk, RealFile};
use rocketpy_protocol::message_id::OffsetMessageId;

use crate::checker::{Rule, Violation};
use crate::history::{self, Call, Event, Reply};
use crate::journal::Sink;

/// Lines that wait for the file.
const BUFFER_BYTES: usize = 1 << 20;

/// The history of one real store.
pub(super) type Journal = crate::journal::Journal<Recorded>;

/// What the harness of a real store keeps of its history.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    /// What the harness itself found.
    wrongs: Vec<Violation>,
    /// The log reached this far at the last start.
    pub found_to: u64,
    /// Retention may have removed the log before this.
    pub may_start: u64,
    /// The log has reached this far since, as acknowledgements say.
    pub log_end: u64,
    file: Option<Lines>,
}

/// A file of JSON lines.
#[derive(Debug)]
struct Lines {
    file: RealFile,
    written: u64,
    buffer: Vec<u8>,
}

impl Sink for Recorded {
    fn take(&mut self, event: Event) {
        if let Some(lines) = &mut self.file {
            let _ = history::write(&[event], &mut lines.buffer);
            if lines.buffer.len() >= BUFFER_BYTES {
                lines.flush();
            }
        }
    }
}

impl Journal {
    /// Makes a journal that is also written to a file.
    ///
    /// # Errors
    /// The file cannot be made.
    pub(super) fn to_file(path: &Path) -> Result<Self, String> {
        let file = RealDisk.open_file(path, OpenMode::CreateOrWrite);
        let file = file.and_then(|file| file.set_len(0).map(|()| file)).map_err(|error| error.to_string())?;
        let file = Some(Lines { file, written: 0, buffer: Vec::new() });
        Ok(Self::keeping(Recorded { file, ..Recorded::default() }))
    }

    pub(super) fn ok(&mut self, op: u64, reply: Reply) {
        self.push(Event::Ok { op, reply });
    }

    /// Notes a call together with its result.
    pub(super) fn done(&mut self, call: Call, reply: Reply) {
        let op = self.invoke(call);
        self.ok(op, reply);
    }

    /// Notes how far the log has come by an acknowledgement. Returns where its record starts.
    pub(super) fn note_end(&mut self, receipt: &Receipt) -> Option<u64> {
        let id = receipt.offset_msg_id.parse::<OffsetMessageId>().ok()?;
        let start = id.physical_offset.get();
        self.kept.log_end = self.kept.log_end.max(start + 1);
        Some(start)
    }

    pub(super) fn wrong(&mut self, rule: Rule, text: impl Into<String>) {
        self.kept.wrongs.push(Violation { rule, text: text.into() });
    }

    pub(super) fn is_broken(&self) -> bool {
        !self.kept.wrongs.is_empty() || !self.checker.violations().is_empty()
    }

    pub(super) fn violations(&self) -> Vec<Violation> {
        self.kept.wrongs.iter().chain(self.checker.violations()).cloned().collect()
    }
}

impl Lines {
    fn flush(&mut self) {
        if self.file.write_all_at(self.written, &self.buffer).is_ok() {
            self.written += self.buffer.len() as u64;
            self.buffer.clear();
        }
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.flush();
    }
}
