//! The simulated disk behind the seam.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::memory::Memory;
use super::world::{Fault, InodeId, Node};
use super::{SimDisk, SimFile, SimRegion, no_space};
use crate::disk::{DirEntry, Disk, DiskUsage, EntryKind, FileSystem, LockHolder, OpenMode};
use crate::error::EnvError;
use crate::planted::{self, Bug};

/// The lock of a simulated process. It is gone when the process ends.
pub struct SimLock {
    disk: SimDisk,
    path: PathBuf,
}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut world = self.disk.lock_world();
        if world.process.boot == self.disk.boot {
            world.process.locked.retain(|path| *path != self.path);
        }
    }
}

fn sibling(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(suffix);
    path.with_file_name(name)
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

impl SimDisk {
    fn write_temporary(&self, path: &Path, bytes: &[u8]) -> Result<PathBuf, EnvError> {
        let temporary = sibling(path, ".tmp");
        let id = {
            let mut world = self.begin("write", &temporary)?;
            world.check_folder("write", &temporary)?;
            if world.strikes(Fault::NoSpace) {
                return Err(no_space("write", &temporary));
            }
            let id = world.create(0);
            world.put(&temporary, Node::File(id));
            world.write(id, 0, bytes);
            id
        };
        let mut world = self.begin_flush("flush", &temporary)?;
        let before = world.failed_flushes;
        let flushed = world.flush(id, 0, bytes.len(), &temporary);
        world.failed_flushes = before;
        flushed.map(|()| temporary)
    }

    /// Makes the new name of a file that was replaced durable.
    fn sync_replaced(&self, path: &Path) -> Result<(), EnvError> {
        let before = self.failed_flushes();
        let synced = self.sync_dir(parent(path));
        self.lock_world().failed_flushes = before;
        synced
    }

    fn region(&self, path: &Path, id: InodeId, memory: Arc<Memory>, written: u64) -> SimRegion {
        SimRegion {
            disk: self.clone(),
            path: path.to_path_buf(),
            id,
            memory,
            written: AtomicU64::new(written),
        }
    }

    /// A file of zeros that is durable and has no name.
    fn create_unnamed(&self, path: &Path, len: u64) -> Result<InodeId, EnvError> {
        let id = {
            let mut world = self.begin("allocate", path)?;
            world.check_folder("create", path)?;
            world.check_handles(path)?;
            if world.strikes(Fault::NoSpace) {
                return Err(no_space("allocate", path));
            }
            let id = world.create(len as usize);
            world.inode(id).allocate(0, len as usize);
            id
        };
        let mut world = self.begin_flush("flush", path)?;
        let before = world.failed_flushes;
        let flushed = world.flush(id, 0, len as usize, path);
        world.failed_flushes = before;
        flushed.map(|()| id)
    }
}

/// The file system of a [`SimDisk`], opened through one of its folders.
pub struct SimFileSystem {
    disk: SimDisk,
    dir: PathBuf,
}

impl FileSystem for SimFileSystem {
    fn sync(&self) -> Result<(), EnvError> {
        let operation = "flush the file system of";
        self.disk.begin_flush(operation, &self.dir)?.flush_everything(operation, &self.dir)
    }
}

impl Disk for SimDisk {
    type Region = SimRegion;
    type File = SimFile;
    type FileSystem = SimFileSystem;
    type Lock = SimLock;

    fn create_region_while(
        &self,
        path: &Path,
        len: u64,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<SimRegion, EnvError> {
        if !is_wanted() {
            let source = io::Error::from(io::ErrorKind::Interrupted);
            return Err(EnvError::from_io("allocate", path, source));
        }
        let id = self.create_unnamed(path, len)?;
        {
            let mut world = self.begin("name", path)?;
            if world.names.contains_key(path) {
                return Err(EnvError::AlreadyExists { operation: "name", path: path.to_path_buf() });
            }
            world.put(path, Node::File(id));
        }
        if !planted::has(Bug::NoDirectoryFsync) {
            let mut world = self.begin_flush("flush", parent(path))?;
            let before = world.failed_flushes;
            let flushed = world.flush_names(parent(path));
            world.failed_flushes = before;
            if let Err(error) = flushed {
                world.remove(path); // else every later try finds the name taken
                return Err(error);
            }
        }
        let memory = Arc::clone(&self.lock_world().inode(id).cached);
        Ok(self.region(path, id, memory, 0))
    }

    fn open_region(&self, path: &Path) -> Result<SimRegion, EnvError> {
        let mut world = self.begin(EnvError::OPEN, path)?;
        world.check_handles(path)?;
        let id = world.file(EnvError::OPEN, path)?;
        let memory = Arc::clone(&world.inode(id).cached);
        drop(world);
        let len = memory.len() as u64;
        Ok(self.region(path, id, memory, len))
    }

    fn open_file(&self, path: &Path, mode: OpenMode) -> Result<SimFile, EnvError> {
        let mut world = self.begin(EnvError::OPEN, path)?;
        world.check_handles(path)?;
        let id = match world.file(EnvError::OPEN, path) {
            Err(EnvError::NotFound { .. }) if mode == OpenMode::CreateOrWrite => {
                world.check_folder(EnvError::OPEN, path)?;
                if world.strikes(Fault::NoSpace) {
                    return Err(no_space(EnvError::OPEN, path));
                }
                let id = world.create(0);
                world.put(path, Node::File(id));
                id
            }
            other => other?,
        };
        Ok(SimFile { disk: self.clone(), path: path.to_path_buf(), id })
    }

    fn replace(&self, path: &Path, bytes: &[u8]) -> Result<(), EnvError> {
        let temporary = self.write_temporary(path, bytes)?;
        self.begin("replace", path)?.rename(&temporary, path);
        self.sync_replaced(path)
    }

    fn replace_keeping_backup(&self, path: &Path, bytes: &[u8]) -> Result<(), EnvError> {
        let temporary = self.write_temporary(path, bytes)?;
        let backup = sibling(path, ".bak");
        {
            let mut world = self.begin("remove", &backup)?;
            if world.names.contains_key(&backup) && world.names.contains_key(path) {
                world.remove(&backup);
            }
        }
        {
            let mut world = self.begin("link", &backup)?;
            if let Some(&node) = world.names.get(path) {
                world.put(&backup, node);
            }
        }
        self.begin("replace", path)?.rename(&temporary, path);
        if planted::has(Bug::TableFolderNotFlushed) {
            return Ok(());
        }
        self.sync_replaced(path)
    }

    fn read(&self, path: &Path, limit_bytes: u64) -> Result<Vec<u8>, EnvError> {
        let mut world = self.begin("read", path)?;
        world.check_handles(path)?;
        world.check_readable(path)?;
        let id = world.file(EnvError::OPEN, path)?;
        if world.len_of(id) > limit_bytes {
            return Err(EnvError::TooLong { path: path.to_path_buf(), limit_bytes });
        }
        Ok(world.inode(id).bytes().to_vec())
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), EnvError> {
        let mut world = self.begin("rename", from)?;
        world.node("rename", from)?;
        let below = world.below(from);
        world.rename(from, to);
        for path in below {
            let inner = path.strip_prefix(from).expect("it lies below");
            world.rename(&path, &to.join(inner));
        }
        Ok(())
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<(), EnvError> {
        let mut world = self.begin("link", from)?;
        let id = world.file("link", from)?;
        if world.names.contains_key(to) {
            return Err(EnvError::AlreadyExists { operation: "link", path: to.to_path_buf() });
        }
        world.put(to, Node::File(id));
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> Result<(), EnvError> {
        let mut world = self.begin("remove", path)?;
        world.file("remove", path)?;
        world.remove(path);
        Ok(())
    }

    fn remove_dir_all(&self, path: &Path) -> Result<(), EnvError> {
        let below = {
            let world = self.begin("remove", path)?;
            world.node("remove", path)?;
            world.below(path)
        };
        for inner in below.iter().rev() {
            self.begin("remove", inner)?.remove(inner);
        }
        self.begin("remove", path)?.remove(path);
        Ok(())
    }

    fn create_dir_all(&self, path: &Path) -> Result<(), EnvError> {
        let mut missing: Vec<&Path> = Vec::new();
        for dir in path.ancestors() {
            match self.begin("create", path)?.names.get(dir) {
                Some(Node::Folder) => break,
                Some(Node::File(_)) => {
                    return Err(EnvError::NotAFolder { operation: "create", path: path.to_path_buf() });
                }
                None => missing.push(dir),
            }
        }
        for dir in missing.into_iter().rev() {
            let mut world = self.begin("create", dir)?;
            if world.strikes(Fault::NoSpace) {
                return Err(no_space("create", dir));
            }
            world.put(dir, Node::Folder);
        }
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> Result<(), EnvError> {
        let mut world = self.begin_flush("flush", path)?;
        world.check_handles(path)?;
        world.node(EnvError::OPEN, path)?;
        if planted::has(Bug::NoDirectoryFsync) { Ok(()) } else { world.flush_names(path) }
    }

    fn open_file_system(&self, dir: &Path) -> Result<SimFileSystem, EnvError> {
        let mut world = self.begin(EnvError::OPEN, dir)?;
        world.check_handles(dir)?;
        world.node(EnvError::OPEN, dir)?;
        Ok(SimFileSystem { disk: self.clone(), dir: dir.to_path_buf() })
    }

    fn list(&self, dir: &Path) -> Result<Vec<DirEntry>, EnvError> {
        let world = self.begin("list", dir)?;
        world.node("list", dir)?;
        let mut entries = Vec::new();
        for path in world.below(dir).into_iter().filter(|path| path.parent() == Some(dir)) {
            let (kind, size_bytes, modified_at_ms) = match world.names[&path] {
                Node::File(id) => (EntryKind::File, world.len_of(id), world.modified_at_ms(id)),
                Node::Folder => (EntryKind::Folder, 0, 0),
            };
            let name = path.file_name().unwrap_or_default().to_os_string();
            entries.push(DirEntry { name, kind, size_bytes, modified_at_ms });
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn lock(&self, path: &Path) -> Result<SimLock, EnvError> {
        let mut world = self.begin("lock", path)?;
        world.check_unlocked(path)?;
        if !world.names.contains_key(path) {
            world.check_folder(EnvError::OPEN, path)?;
            let id = world.create(0);
            world.put(path, Node::File(id));
            world.write(id, 0, b"lock");
        }
        world.process.locked.push(path.to_path_buf());
        Ok(SimLock { disk: self.clone(), path: path.to_path_buf() })
    }

    fn lock_folder(&self, path: &Path) -> Result<SimLock, EnvError> {
        let mut world = self.begin("lock", path)?;
        world.check_unlocked(path)?;
        world.process.locked.push(path.to_path_buf());
        Ok(SimLock { disk: self.clone(), path: path.to_path_buf() })
    }

    fn lock_holder(&self, path: &Path) -> Result<Option<LockHolder>, EnvError> {
        let world = self.begin("look at", path)?;
        Ok(world.process.locked.iter().any(|locked| locked == path).then_some(LockHolder::ThisProcess))
    }

    fn page_cache(&self, dir: &Path) -> Option<String> {
        Some(format!("{} {}", self.lock_world().power_cuts, dir.display()))
    }

    fn usage(&self, _path: &Path) -> Result<DiskUsage, EnvError> {
        Ok(self.lock_world().usage)
    }

    fn now_ms(&self) -> i64 {
        self.lock_world().clock.at_ms
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.lock_world().clock.passed_ms)
    }
}
