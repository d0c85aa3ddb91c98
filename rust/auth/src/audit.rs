//! The audit log: who was denied what, what administrators changed, and who got secrets, as JSON lines.
//!
//! A flood does not fill the disk: each address has a number of denials per interval, each user that is not a super user a number of changes,
//! and one line counts those that were left out.
//! A thread writes, so that no request waits for the disk.

mod limit;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rocketpy_env::{Disk, EnvError, RealDisk, RotatedFile, RotatedFileConfig, now_ms};
use rocketpy_model::printable::beginning;
use rocketpy_protocol::code::request;
use rocketpy_protocol::json;
use serde::Serialize;
use tracing::warn;

use self::limit::{LeftOut, Limiter};
use crate::policy::subject;

/// Denials of an address, and changes of a user that is not a super user, that are written in an interval of 10 s.
const MAX_DENIALS: u32 = 20;
const MAX_CHANGES: u32 = 100;
/// The address of lines about changes that no request made.
const LOCAL: &str = "local";
/// Lines that wait for the disk; those beyond are counted, not written.
const MAX_WAITING: usize = 1024;
/// Time between two searches for lines that were left out.
const SEARCH_EVERY: Duration = Duration::from_secs(limit::INTERVAL_MS as u64 / 1000);

/// Where the audit log is, and when it is rotated.
#[derive(Debug, Clone)]
pub struct AuditConfig {
    /// The file; only its owner may read it.
    pub path: PathBuf,
    /// Maximum size of the file.
    pub max_bytes: u64,
    /// Maximum number of older files, `PATH.1` and so on.
    pub kept_files: u32,
}

impl AuditConfig {
    /// A log of up to 11 files of 64 MiB.
    pub const fn new(path: PathBuf) -> Self {
        Self { path, max_bytes: 64 << 20, kept_files: 10 }
    }
}

/// What a line says besides time and address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Audited {
    /// The user that the request names; a denied request need not be of that user.
    pub user: Option<String>,
    /// The request code.
    pub code: i32,
    /// What it was about.
    pub resource: String,
    /// What it needed.
    pub action: String,
    /// `admitted`, or why it was denied: a denial begins with `denied: `, which tools look for.
    pub result: String,
}

impl Audited {
    /// A line about a user that no request made: `how` says what did.
    pub fn local_user(name: &str, how: String) -> Self {
        Self {
            user: None,
            code: request::AUTH_CREATE_USER,
            resource: subject(&beginning(name)),
            action: "Update".to_owned(),
            result: how,
        }
    }
}

/// A line of the log.
#[derive(Debug, Serialize)]
struct Line<'a> {
    time: String,
    user: Option<&'a str>,
    from: String,
    code: i32,
    request: &'a str,
    resource: &'a str,
    action: &'a str,
    result: &'a str,
}

#[derive(Debug)]
struct Entry {
    at_ms: i64,
    /// `None`: no request.
    from: Option<SocketAddr>,
    audited: Audited,
}

/// Writes the audit log. Dropped, it writes what waits.
#[derive(Debug)]
pub struct Audit {
    /// `None` while it is dropped.
    lines: Option<SyncSender<Entry>>,
    writer: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    denials: Limiter<IpAddr>,
    /// By user.
    changes: Limiter<String>,
    /// Lines that found no room while the disk was slow.
    lost: AtomicU64,
    /// Lines since the start that were not written, for either reason.
    not_written: AtomicU64,
}

impl Audit {
    /// Opens the log and begins to write.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(config: AuditConfig) -> Result<Arc<Self>, EnvError> {
        let AuditConfig { path, max_bytes, kept_files } = config;
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            RealDisk.create_dir_all(folder)?;
        }
        let file = RotatedFile::open(RotatedFileConfig { path, max_bytes, kept_files, is_private: true })?;
        let (lines, waiting) = sync_channel(MAX_WAITING);
        let shared = Arc::new(Shared {
            denials: Limiter::new(MAX_DENIALS),
            changes: Limiter::new(MAX_CHANGES),
            lost: AtomicU64::new(0),
            not_written: AtomicU64::new(0),
        });
        let of_writer = shared.clone();
        let writer = thread::Builder::new().name("audit".to_owned()).spawn(move || {
            Writer { file, shared: of_writer, is_failing: false }.run(&waiting);
        });
        let writer = writer
            .map_err(|source| EnvError::from_io("start the thread of", "audit log".as_ref(), source))?;
        Ok(Arc::new(Self { lines: Some(lines), writer: Some(writer), shared }))
    }

    /// Notes a denied request, unless its address had enough lines.
    pub(crate) fn denied(&self, from: SocketAddr, mut audited: Audited) {
        audited.result.insert_str(0, "denied: ");
        let at_ms = now_ms();
        if self.shared.denials.takes_from(from.ip(), at_ms) {
            self.push(Entry { at_ms, from: Some(from), audited });
        } else {
            self.shared.not_written.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes an admitted request of a super user.
    pub(crate) fn admitted(&self, from: SocketAddr, audited: Audited) {
        self.push(Entry { at_ms: now_ms(), from: Some(from), audited });
    }

    /// Notes an admitted request of another user, unless it had enough lines.
    pub(crate) fn admitted_normal(&self, from: SocketAddr, audited: Audited) {
        let at_ms = now_ms();
        if self.shared.changes.takes(audited.user.clone().unwrap_or_default(), at_ms) {
            self.push(Entry { at_ms, from: Some(from), audited });
        } else {
            self.shared.not_written.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes a change of the process itself, or of a command on its files.
    pub fn local(&self, audited: Audited) {
        self.push(Entry { at_ms: now_ms(), from: None, audited });
    }

    fn push(&self, entry: Entry) {
        let is_taken = self.lines.as_ref().is_some_and(|lines| lines.try_send(entry).is_ok());
        if !is_taken {
            self.shared.lost.fetch_add(1, Ordering::Relaxed);
            self.shared.not_written.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Lines since the start that were not written: beyond a limit, or because the disk was slow.
    pub(crate) fn not_written(&self) -> u64 {
        self.shared.not_written.load(Ordering::Relaxed)
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        self.lines = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join(); // a panic of the writer was logged
        }
    }
}

struct Writer {
    file: RotatedFile,
    shared: Arc<Shared>,
    /// The last line was not written.
    is_failing: bool,
}

impl Writer {
    fn run(mut self, waiting: &Receiver<Entry>) {
        let mut searched_at_ms = now_ms();
        loop {
            let entry = waiting.recv_timeout(SEARCH_EVERY);
            if let Ok(Entry { at_ms, from, audited }) = &entry {
                let from = from.map_or_else(|| LOCAL.to_owned(), |from| from.to_string());
                self.write(*at_ms, &from, audited);
            }
            let is_over = matches!(entry, Err(RecvTimeoutError::Disconnected));
            let now_ms = now_ms();
            if is_over || now_ms.abs_diff(searched_at_ms) >= limit::INTERVAL_MS as u64 {
                searched_at_ms = now_ms;
                self.write_left_out(now_ms, is_over);
            }
            if is_over {
                return;
            }
        }
    }

    /// One line for each address whose denials and each user whose changes were left out, and one for what found no room.
    fn write_left_out(&mut self, now_ms: i64, is_over: bool) {
        for LeftOut { key, lines } in self.shared.denials.left_out(now_ms, is_over) {
            let from = key.map_or_else(|| "*".to_owned(), |from| from.to_string());
            let result = format!("{lines} denied requests of this address left out");
            self.write(now_ms, &from, &Audited { result, ..Audited::default() });
        }
        for LeftOut { key: user, lines } in self.shared.changes.left_out(now_ms, is_over) {
            let result = format!("{lines} admitted changes of this user left out");
            self.write(now_ms, "*", &Audited { user, result, ..Audited::default() });
        }
        let lost = self.shared.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let result = format!("{lost} lines left out, the disk is slow");
            self.write(now_ms, "*", &Audited { result, ..Audited::default() });
        }
    }

    fn write(&mut self, at_ms: i64, from: &str, audited: &Audited) {
        let Audited { user, code, resource, action, result } = audited;
        let line = Line {
            time: utc(at_ms),
            user: user.as_deref(),
            from: from.to_owned(),
            code: *code,
            request: request::name_of(*code).unwrap_or_default(),
            resource,
            action,
            result,
        };
        let mut bytes = json::to_vec(&line);
        bytes.push(b'\n');
        let written = self.file.append(&bytes);
        if let Err(error) = &written
            && !self.is_failing
        {
            warn!(%error, "audit log not written; further failures are not logged until a line is written");
        }
        self.is_failing = written.is_err();
    }
}

/// A time as `2026-01-02T03:04:05.678Z`.
fn utc(at_ms: i64) -> String {
    const DAY_MS: i64 = 86_400_000;
    let (days, ms) = (at_ms.div_euclid(DAY_MS), at_ms.rem_euclid(DAY_MS));
    // Days since the first of March of the year 0, in eras of 400 years.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) =
        (year + era * 400 + i64::from(month >= 10), if month < 10 { month + 3 } else { month - 9 });
    let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", ms % 1000)
}

#[cfg(test)]
mod tests;
