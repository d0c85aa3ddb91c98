//! The folder of a store: what is where, and whether it may be opened.

use std::path::{Path, PathBuf};

use rocketpy_env::{Disk, DiskFile as _, EntryKind, EnvError, OpenMode};

use crate::config::StoreConfig;
use crate::error::StoreError;

/// The lock file in the root of a store.
pub const LOCK: &str = "lock";

/// Maximum number of bytes that are read of the file `abort`: it names each folder of the log.
const LONGEST_ABORT: u64 = 1 << 20;

/// Names that make a folder a store; one of them is enough.
const STORE_NAMES: [&str; 2] = ["commitlog", "checkpoint"];

/// Names that are allowed in a folder, but do not make it a store: many programs have a `config` or a `lock`.
const OWN_NAMES: [&str; 12] = [
    "consumequeue",
    "index",
    "config",
    "abort",
    LOCK,
    "timerwheel",
    "timerlog",
    "compaction",
    "epochFileCheckpoint",
    "brokerIdentity",
    // Of the audit log.
    "log",
    // Certificates and users of a closed server.
    "secure",
];

/// Paths below the root of a store.
///
/// # Source
/// docs/reference/store-format.md 1.1.
#[derive(Debug, Clone)]
pub(crate) struct Folder {
    pub root: PathBuf,
    /// The first folder of the log; error messages name it for all of them.
    pub commit_log: PathBuf,
    /// All folders of the log, sorted.
    pub commit_logs: Vec<PathBuf>,
    /// Those of them that are made when they are missing.
    writable: Vec<PathBuf>,
    pub consume_queue: PathBuf,
    /// `None` when no index is kept.
    pub index: Option<PathBuf>,
    pub checkpoint: PathBuf,
    pub abort: PathBuf,
}

impl Folder {
    pub(crate) fn new(config: &StoreConfig) -> Self {
        let root = config.root.clone();
        Self {
            commit_log: config.commit_log_dir(),
            commit_logs: config.commit_log_dirs(),
            writable: config.writable_commit_log_dirs(),
            consume_queue: root.join("consumequeue"),
            index: config.index.then(|| root.join("index")),
            checkpoint: root.join("checkpoint"),
            abort: root.join("abort"),
            root,
        }
    }

    /// Takes the locks and makes the folders that are missing, once it is clear that the root is a store or empty.
    ///
    /// # Errors
    /// [`StoreError::ForeignFolder`] and [`StoreError::MissingFolder`] before anything is made; [`StoreError::Locked`].
    pub(crate) fn claim<D: Disk>(&self, disk: &D) -> Result<Vec<D::Lock>, StoreError> {
        if let Some(found) = foreign_name(disk, &self.root)? {
            return Err(StoreError::ForeignFolder { path: self.root.clone(), found });
        }
        for dir in self.commit_logs.iter().filter(|dir| !self.writable.contains(dir)) {
            if !exists(disk, dir)? {
                return Err(StoreError::MissingFolder { path: dir.clone() });
            }
        }
        make_folder(disk, &self.root)?;
        let mut locks = vec![lock_root(disk, &self.root)?];
        if !exists(disk, &self.checkpoint)? {
            sync_name(disk, &self.root)?; // whoever made the folder may have died before its name was durable
        }
        self.writable.iter().try_for_each(|dir| make_folder(disk, dir))?;
        locks.extend(lock_logs(disk, &self.commit_logs)?);
        make_folder(disk, &self.consume_queue)?;
        if let Some(index) = &self.index {
            make_folder(disk, index)?;
        }
        Ok(locks)
    }

    /// Whether the last process that had the store ended without closing it.
    pub(crate) fn is_dirty<D: Disk>(&self, disk: &D) -> Result<bool, StoreError> {
        exists(disk, &self.abort)
    }

    /// Marks the store as open; the mark survives a power loss. What a former process noted in it stays.
    ///
    /// # Source
    /// docs/reference/store-format.md 5.2.
    pub(crate) fn mark_open<D: Disk>(&self, disk: &D) -> Result<(), StoreError> {
        let file = disk.open_file(&self.abort, OpenMode::CreateOrWrite)?;
        if file.is_empty()? {
            file.write_all_at(0, std::process::id().to_string().as_bytes())?;
        }
        file.sync()?;
        Ok(disk.sync_dir(&self.root)?)
    }

    /// Notes in which page cache this process writes the log. From here on the log has no hole that a power loss has left.
    ///
    /// # Durability
    /// It need not survive a power loss: then it is void.
    pub(crate) fn note_page_cache<D: Disk>(&self, disk: &D) -> Result<(), StoreError> {
        let note = self.page_cache(disk).unwrap_or_default();
        let text = format!("{}\n{note}\n", std::process::id());
        let file = disk.open_file(&self.abort, OpenMode::CreateOrWrite)?;
        file.write_all_at(0, text.as_bytes())?;
        Ok(file.set_len(text.len() as u64)?)
    }

    /// Whether the last process, which did not close the store, wrote the log in the page cache that is there now.
    pub(crate) fn is_in_same_page_cache<D: Disk>(&self, disk: &D) -> Result<bool, StoreError> {
        let text = disk.read(&self.abort, LONGEST_ABORT)?;
        let noted = text.split(|&byte| byte == b'\n').nth(1).filter(|note| !note.is_empty());
        Ok(noted.is_some() && noted == self.page_cache(disk).as_deref().map(str::as_bytes))
    }

    /// Names the page cache of all folders of the log.
    fn page_cache<D: Disk>(&self, disk: &D) -> Option<String> {
        let names: Option<Vec<_>> = self.commit_logs.iter().map(|dir| disk.page_cache(dir)).collect();
        Some(names?.join(", "))
    }

    /// Takes the mark back: everything is flushed and dispatched.
    pub(crate) fn mark_closed<D: Disk>(&self, disk: &D) -> Result<(), StoreError> {
        match disk.remove_file(&self.abort) {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(disk.sync_dir(&self.root)?),
        }
    }
}

/// Takes the lock that Apache's broker takes on the folder of a store.
///
/// # Errors
/// [`StoreError::Locked`].
pub fn lock_root<D: Disk>(disk: &D, root: &Path) -> Result<D::Lock, StoreError> {
    disk.lock(&root.join(LOCK)).map_err(|error| locked_or_else(error, root))
}

/// Locks the folders of a log: a store with another root may be configured to one of them.
///
/// # Errors
/// [`StoreError::Locked`].
pub fn lock_logs<D: Disk>(disk: &D, dirs: &[PathBuf]) -> Result<Vec<D::Lock>, StoreError> {
    let mut locks = Vec::with_capacity(dirs.len());
    for dir in dirs {
        match disk.lock_folder(dir) {
            Ok(lock) => locks.push(lock),
            Err(EnvError::Unsupported { .. }) => {
                tracing::warn!(path = %dir.display(), "file system does not support locks, another broker could open this folder too");
            }
            Err(error) => return Err(locked_or_else(error, dir)),
        }
    }
    Ok(locks)
}

fn locked_or_else(error: EnvError, folder: &Path) -> StoreError {
    match error {
        EnvError::Locked { holder, .. } => StoreError::Locked { path: folder.to_path_buf(), holder },
        other => other.into(),
    }
}

/// Makes a folder and its missing parents, and makes their names durable.
fn make_folder<D: Disk>(disk: &D, path: &Path) -> Result<(), StoreError> {
    let mut made = Vec::new();
    for folder in path.ancestors().take_while(|folder| !folder.as_os_str().is_empty()) {
        match disk.open_file(folder, OpenMode::Read) {
            Err(error) if error.is_not_found() => made.push(folder),
            _ => break,
        }
    }
    disk.create_dir_all(path)?;
    made.into_iter().rev().try_for_each(|folder| sync_name(disk, folder))
}

/// Makes the name of a folder durable. A parent that this user may not open was not made here.
fn sync_name<D: Disk>(disk: &D, path: &Path) -> Result<(), StoreError> {
    let above = match path.parent() {
        Some(above) if above.as_os_str().is_empty() => Path::new("."),
        Some(above) => above,
        None => return Ok(()),
    };
    match disk.sync_dir(above) {
        Err(EnvError::PermissionDenied { .. }) => Ok(()),
        other => Ok(other?),
    }
}

fn exists<D: Disk>(disk: &D, path: &Path) -> Result<bool, StoreError> {
    match disk.open_file(path, OpenMode::Read) {
        Ok(_) => Ok(true),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// A name that shows that the folder is no store; `None` for a store and for an empty folder.
fn foreign_name<D: Disk>(disk: &D, root: &Path) -> Result<Option<String>, StoreError> {
    let entries = match disk.list(root) {
        Err(error) if error.is_not_found() => return Ok(None),
        other => other?,
    };
    let mut foreign = None;
    for entry in &entries {
        let name = entry.name.to_string_lossy();
        if STORE_NAMES.contains(&name.as_ref()) {
            return Ok(None);
        }
        // A fresh mount has `lost+found`, and the folder may also hold the server's own output.
        let harmless = OWN_NAMES.contains(&name.as_ref())
            || name.starts_with('.')
            || name == "lost+found"
            || name.ends_with(".log");
        if !harmless && foreign.is_none() {
            foreign = Some(name.into_owned());
        }
    }
    Ok(foreign)
}

pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("."))
}

/// The name of a file that starts at an offset of its stream.
///
/// # Source
/// docs/reference/store-format.md 1.2: the offset in 20 decimal digits.
pub fn file_name(start: u64) -> String {
    format!("{start:020}")
}

/// A file of a folder of numbered files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NumberedFile {
    /// Offset of its first byte in its stream: its name.
    pub start: u64,
    /// Length of the file.
    pub size_bytes: u64,
    /// When it was last written, in milliseconds since 1970.
    pub modified_at_ms: i64,
}

impl NumberedFile {
    /// Position after its last byte. The name may be any number: this does not overflow.
    pub const fn end(&self) -> u64 {
        self.start.saturating_add(self.size_bytes)
    }
}

/// The numbered files of a folder, sorted, without subfolders.
///
/// # Errors
/// [`StoreError::UnexpectedFile`] for a file whose name is not a number in 20 digits.
pub(crate) fn numbered_files<D: Disk>(disk: &D, dir: &Path) -> Result<Vec<NumberedFile>, StoreError> {
    let mut files = Vec::new();
    for entry in disk.list(dir)? {
        if entry.kind != EntryKind::File {
            continue;
        }
        let named = entry.name.to_str().and_then(|name| Some((name, name.parse::<u64>().ok()?)));
        let fits = |&(name, start): &(&str, u64)| i64::try_from(start).is_ok() && name == file_name(start);
        let Some((_, start)) = named.filter(fits) else {
            return Err(StoreError::UnexpectedFile { path: dir.join(&entry.name) });
        };
        files.push(NumberedFile {
            start,
            size_bytes: entry.size_bytes,
            modified_at_ms: entry.modified_at_ms,
        });
    }
    files.sort_by_key(|file| file.start);
    Ok(files)
}
