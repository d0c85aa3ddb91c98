//! The disk of the machine.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "this crate is the door")]

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::clock::{self, LastReading};
use crate::disk::{DirEntry, Disk, DiskUsage, EntryKind, FileSystem, LockHolder, OpenMode};
use crate::error::EnvError;
use crate::failpoint::{self, Point};
use crate::file::RealFile;
use crate::lock::{self, RealLock};
use crate::mapped::MappedRegion;
use crate::planted::{self, Bug};
use crate::{page_cache, sys};

/// Files, maps and locks of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealDisk;

/// Mode of a file that only its owner may read.
const PRIVATE: u32 = 0o600;
/// Mode of other files and folders that are made: whatever the umask is, only the owner may change them.
const OF_OWNER: u32 = 0o644;
const FOLDER_OF_OWNER: u32 = 0o755;
/// Mode of log files: they name topics, groups, users and addresses.
const LOG: u32 = 0o640;
const PRIVATE_FOLDER: u32 = 0o700;

/// Turns the operating system's error into a typed one.
trait At<T> {
    fn at(self, operation: &'static str, path: &Path) -> Result<T, EnvError>;

    /// The same for a flush.
    fn flushed(self, operation: &'static str, path: &Path) -> Result<T, EnvError>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, operation: &'static str, path: &Path) -> Result<T, EnvError> {
        self.map_err(|source| EnvError::from_io(operation, path, source))
    }

    fn flushed(self, operation: &'static str, path: &Path) -> Result<T, EnvError> {
        self.map_err(|source| EnvError::from_flush(operation, path, source))
    }
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    }
}

/// The path with something added to its file name.
fn sibling(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(suffix);
    path.with_file_name(name)
}

/// Makes the names in an open folder durable.
fn sync_names(handle: &File, dir: &Path) -> Result<(), EnvError> {
    if planted::has(Bug::NoDirectoryFsync) { Ok(()) } else { handle.sync_all().flushed("flush", dir) }
}

/// Allocates and flushes a file, then gives it its name. Where possible, an unfinished file never has a name.
fn create_allocated(path: &Path, len: u64, is_wanted: &dyn Fn() -> bool) -> Result<File, EnvError> {
    let dir = parent(path);
    if let Some(file) = sys::open_unnamed(dir).at("create a file in", dir)? {
        sys::allocate(&file, len, is_wanted).at("allocate", path)?;
        file.sync_all().flushed("flush", path)?;
        if sys::link_unnamed(&file, path).at("name", path)? {
            return Ok(file);
        }
    }
    let file =
        File::options().read(true).write(true).create_new(true).mode(0o644).open(path).at("create", path)?;
    let filled = sys::allocate(&file, len, is_wanted)
        .at("allocate", path)
        .and_then(|()| file.sync_all().flushed("flush", path));
    if let Err(error) = filled {
        let _ = fs::remove_file(path); // an unfinished file must not stay under a log's name
        return Err(error);
    }
    Ok(file)
}

fn write_private(path: &Path, bytes: &[u8]) -> Result<PathBuf, EnvError> {
    let temporary = sibling(path, ".tmp");
    // A former process may have left one with another mode.
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error).at("remove", &temporary),
        _ => {}
    }
    write_new(temporary, File::options().create_new(true).mode(PRIVATE), bytes)
}

fn write_temporary(path: &Path, bytes: &[u8]) -> Result<PathBuf, EnvError> {
    write_new(sibling(path, ".tmp"), File::options().create(true).truncate(true).mode(OF_OWNER), bytes)
}

fn write_new(temporary: PathBuf, options: &mut OpenOptions, bytes: &[u8]) -> Result<PathBuf, EnvError> {
    let mut written = || -> io::Result<()> {
        let mut file = options.write(true).open(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    if let Err(source) = written() {
        let _ = fs::remove_file(&temporary);
        return Err(EnvError::from_io("write", &temporary, source));
    }
    Ok(temporary)
}

/// Makes a file its own backup, in place of an older one.
fn keep_as_backup(path: &Path) -> Result<(), EnvError> {
    let backup = sibling(path, ".bak");
    match fs::remove_file(&backup) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error).at("remove", &backup),
        _ => {}
    }
    match fs::hard_link(path, &backup) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // A file system without hard links: a copy serves as well.
        Err(_) => fs::copy(path, &backup).map(drop).at("copy to", &backup),
        Ok(()) => Ok(()),
    }
}

/// Gives a complete file the name of the one that it replaces.
fn take_name(temporary: &Path, path: &Path) -> Result<(), EnvError> {
    failpoint::reach(Point::Rename);
    fs::rename(temporary, path).at("replace", path)?;
    failpoint::reach(Point::AfterRename);
    Ok(())
}

/// Gives a complete file the name of the one that becomes its backup.
fn take_place(temporary: &Path, path: &Path) -> Result<(), EnvError> {
    if !matches!(fs::symlink_metadata(path), Err(error) if error.kind() == io::ErrorKind::NotFound) {
        keep_as_backup(path)?;
    }
    take_name(temporary, path)?;
    RealDisk.sync_dir(parent(path))
}

/// Files that only their owner may read: mode 0600.
impl RealDisk {
    /// [`Disk::replace_keeping_backup`] for a private file.
    pub fn replace_private(&self, path: &Path, bytes: &[u8]) -> Result<(), EnvError> {
        take_place(&write_private(path, bytes)?, path)
    }

    /// Opens a private file for reading and writing; made if missing. Of one that others may read, they lose the right.
    pub fn open_private(&self, path: &Path) -> Result<RealFile, EnvError> {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(PRIVATE);
        let file = options.open(path).at(EnvError::OPEN, path)?;
        file.set_permissions(Permissions::from_mode(PRIVATE)).at("restrict", path)?;
        Ok(RealFile::new(file, path))
    }

    /// Opens a log file for reading and writing; made if missing, for its owner and the group.
    pub fn open_log(&self, path: &Path) -> Result<RealFile, EnvError> {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(LOG);
        Ok(RealFile::new(options.open(path).at(EnvError::OPEN, path)?, path))
    }

    /// Whether only its owner may read or write a file, or enter a folder.
    pub fn is_private(&self, path: &Path) -> Result<bool, EnvError> {
        let metadata = fs::metadata(path).at("look at", path)?;
        Ok(metadata.permissions().mode() & 0o077 == 0)
    }

    /// Whether every user of the machine may read or write a file, as far as its folders allow it.
    pub fn is_open_to_all(&self, path: &Path) -> Result<bool, EnvError> {
        let metadata = fs::metadata(path).at("look at", path)?;
        Ok(metadata.permissions().mode() & 0o006 != 0)
    }

    /// Makes a folder that only its owner may list or enter; of one that others may, they lose the right. Its parents are made too.
    pub fn create_private_dir(&self, path: &Path) -> Result<(), EnvError> {
        self.create_dir_all(path)?;
        if self.is_private(path)? {
            return Ok(());
        }
        fs::set_permissions(path, Permissions::from_mode(PRIVATE_FOLDER)).at("restrict", path)
    }
}

/// An entry of a folder with its kind. The listing tells which entries are folders, so none is opened for it.
fn look_at(entry: &fs::DirEntry) -> Result<DirEntry, EnvError> {
    let of = |kind, size_bytes, modified_at_ms| DirEntry {
        name: entry.file_name(),
        kind,
        size_bytes,
        modified_at_ms,
    };
    let kind = entry.file_type();
    if kind.as_ref().is_ok_and(fs::FileType::is_dir) {
        return Ok(of(EntryKind::Folder, 0, 0));
    }
    let path = entry.path();
    let is_link = kind.is_ok_and(|kind| kind.is_symlink());
    let metadata = if is_link { fs::metadata(&path) } else { entry.metadata() }.at("look at", &path)?;
    Ok(match (metadata.is_file(), metadata.is_dir()) {
        (true, _) => of(EntryKind::File, metadata.len(), clock::ms_of(metadata.modified())),
        (_, true) => of(EntryKind::Folder, 0, 0),
        _ => of(EntryKind::Other, 0, 0),
    })
}

const SYNC_FILE_SYSTEM: &str = "flush the file system of";

/// The file system that holds a folder.
#[derive(Debug)]
pub struct RealFileSystem {
    /// The folder, open.
    file: File,
    dir: PathBuf,
}

impl FileSystem for RealFileSystem {
    fn sync(&self) -> Result<(), EnvError> {
        sys::sync_file_system(&self.file).flushed(SYNC_FILE_SYSTEM, &self.dir)
    }
}

impl Disk for RealDisk {
    type Region = MappedRegion;
    type File = RealFile;
    type FileSystem = RealFileSystem;
    type Lock = RealLock;

    fn create_region_while(
        &self,
        path: &Path,
        len: u64,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<MappedRegion, EnvError> {
        let dir = parent(path);
        let handle = File::open(dir).at("open", dir)?; // before the file has a name: this fails when no handle is left
        let file = create_allocated(path, len, is_wanted)?;
        let made = MappedRegion::map(&file, path, len, 0)
            .and_then(|region| sync_names(&handle, dir).map(|()| region));
        if made.is_err() {
            let _ = fs::remove_file(path); // else every later try finds the name taken
        }
        made
    }

    fn open_region(&self, path: &Path) -> Result<MappedRegion, EnvError> {
        let file = File::options().read(true).write(true).open(path).at("open", path)?;
        let len = file.metadata().at("look at", path)?.len();
        MappedRegion::map(&file, path, len, len)
    }

    fn open_file(&self, path: &Path, mode: OpenMode) -> Result<RealFile, EnvError> {
        let mut options = File::options();
        options.read(true).write(mode != OpenMode::Read).create(mode == OpenMode::CreateOrWrite).mode(0o644);
        let file = options.open(path).at(EnvError::OPEN, path)?;
        if mode != OpenMode::Read {
            sys::expect_random_reads(&file);
        }
        Ok(RealFile::new(file, path))
    }

    fn replace(&self, path: &Path, bytes: &[u8]) -> Result<(), EnvError> {
        let temporary = write_temporary(path, bytes)?;
        take_name(&temporary, path)?;
        self.sync_dir(parent(path))
    }

    fn replace_privately(&self, path: &Path, bytes: &[u8]) -> Result<(), EnvError> {
        take_name(&write_private(path, bytes)?, path)?;
        self.sync_dir(parent(path))
    }

    fn replace_keeping_backup(&self, path: &Path, bytes: &[u8]) -> Result<(), EnvError> {
        if planted::has(Bug::TableNotWritten) {
            return Ok(());
        }
        take_place(&write_temporary(path, bytes)?, path)
    }

    fn read(&self, path: &Path, limit_bytes: u64) -> Result<Vec<u8>, EnvError> {
        let file = File::open(path).at("open", path)?;
        let mut bytes = Vec::new();
        file.take(limit_bytes + 1).read_to_end(&mut bytes).at("read", path)?;
        if bytes.len() as u64 > limit_bytes {
            return Err(EnvError::TooLong { path: path.to_path_buf(), limit_bytes });
        }
        Ok(bytes)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), EnvError> {
        fs::rename(from, to).at("rename", from)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<(), EnvError> {
        fs::hard_link(from, to).at("link", from)
    }

    fn remove_file(&self, path: &Path) -> Result<(), EnvError> {
        fs::remove_file(path).at("remove", path)
    }

    fn remove_dir_all(&self, path: &Path) -> Result<(), EnvError> {
        fs::remove_dir_all(path).at("remove", path)
    }

    fn create_dir_all(&self, path: &Path) -> Result<(), EnvError> {
        match DirBuilder::new().recursive(true).mode(FOLDER_OF_OWNER).create(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(EnvError::NotAFolder { operation: "create", path: path.to_path_buf() })
            }
            other => other.at("create", path),
        }
    }

    fn sync_dir(&self, path: &Path) -> Result<(), EnvError> {
        sync_names(&File::open(path).at(EnvError::OPEN, path)?, path)
    }

    fn open_file_system(&self, dir: &Path) -> Result<RealFileSystem, EnvError> {
        let file = File::open(dir).at(EnvError::OPEN, dir)?;
        let dir = dir.to_path_buf();
        match sys::reports_errors_of_file_system(&file) {
            true => Ok(RealFileSystem { file, dir }),
            false => Err(EnvError::Unsupported { operation: SYNC_FILE_SYSTEM, path: dir }),
        }
    }

    fn list(&self, dir: &Path) -> Result<Vec<DirEntry>, EnvError> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(dir).at("list", dir)? {
            match look_at(&entry.at("list", dir)?) {
                Err(EnvError::NotFound { .. }) => {} // removed meanwhile
                entry => entries.push(entry?),
            }
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn lock(&self, path: &Path) -> Result<RealLock, EnvError> {
        RealLock::take(path)
    }

    fn lock_folder(&self, path: &Path) -> Result<RealLock, EnvError> {
        RealLock::take_folder(path)
    }

    fn lock_holder(&self, path: &Path) -> Result<Option<LockHolder>, EnvError> {
        lock::holder(path)
    }

    fn page_cache(&self, dir: &Path) -> Option<String> {
        page_cache::page_cache(dir)
    }

    fn usage(&self, path: &Path) -> Result<DiskUsage, EnvError> {
        sys::usage(path).at("look at", path)
    }

    fn now_ms(&self) -> i64 {
        clock::now_ms()
    }

    fn monotonic(&self) -> Duration {
        clock::monotonic()
    }

    fn now_ms_near(&self, last: &mut LastReading) -> i64 {
        clock::now_ms_near(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_folders_are_writable_by_their_owner_alone_whatever_the_umask() {
        // SAFETY: the call changes the mask of this process alone, and each test is a process.
        let former = unsafe { libc::umask(0) };
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        RealDisk.create_dir_all(&path("a/b")).unwrap();
        RealDisk.create_private_dir(&path("secure")).unwrap();
        RealDisk.replace(&path("table.json"), b"{}").unwrap();
        RealDisk.replace_private(&path("users.json"), b"{}").unwrap();
        drop(RealDisk.open_log(&path("server.log")).unwrap());
        let mode = |name: &str| fs::metadata(path(name)).unwrap().permissions().mode() & 0o777;
        let modes = ["a", "a/b", "secure", "table.json", "users.json", "server.log"].map(mode);
        assert_eq!(modes, [0o755, 0o755, 0o700, 0o644, 0o600, 0o640], "{modes:?}");
        // SAFETY: as above.
        unsafe { libc::umask(former) };
    }
}
