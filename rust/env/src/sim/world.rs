//! What a simulated machine has: files, names, a clock, and what goes wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use fastrand::Rng;

use super::SimOptions;
use super::inode::Inode;
use crate::disk::{DiskUsage, LockHolder};
use crate::error::EnvError;

pub(super) type InodeId = u64;

/// What a name points to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Node {
    Folder,
    File(InodeId),
}

/// What may go wrong with an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    Flush,
    WriteBack,
    NoSpace,
    NoHandle,
    Read,
}

/// A change of names or lengths that is not durable yet.
#[derive(Debug, Clone)]
enum Change {
    Put(PathBuf, Node),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf),
    Length(InodeId, usize),
    Zero(InodeId, Vec<usize>),
}

impl Change {
    /// The folder whose flush makes it durable.
    fn folder(&self) -> Option<&Path> {
        match self {
            Self::Put(path, _) | Self::Remove(path) | Self::Rename(_, path) => path.parent(),
            Self::Length(..) | Self::Zero(..) => None,
        }
    }

    /// Whether the flush of a file makes it durable.
    fn is_of(&self, id: InodeId) -> bool {
        matches!(self, Self::Length(of, _) | Self::Zero(of, _) if *of == id)
    }
}

type Names = BTreeMap<PathBuf, Node>;

/// The clock of the machine.
#[derive(Default)]
pub(super) struct Clock {
    pub(super) at_ms: i64,
    /// Time that has passed, without the steps of the clock.
    pub(super) passed_ms: u64,
    /// The latest time before a step back.
    pub(super) latest_ms: i64,
}

/// The process that runs on the machine.
#[derive(Default)]
pub(super) struct Process {
    /// Processes that ran before; handles of those do nothing.
    pub(super) boot: u64,
    /// Set between the end of a process and the start of the next.
    pub(super) is_down: bool,
    /// Operations on the disk so far, of all processes.
    pub(super) operations: u64,
    /// The operation at which it ends.
    pub(super) stop_at: Option<u64>,
    /// Files that it has locked.
    pub(super) locked: Vec<PathBuf>,
}

/// The simulated machine.
pub(super) struct World {
    pub(super) options: SimOptions,
    pub(super) rng: Rng,
    pub(super) names: Names,
    inodes: BTreeMap<InodeId, Inode>,
    /// When each file was last written.
    modified_at_ms: BTreeMap<InodeId, i64>,
    /// What the file system says of its space.
    pub(super) usage: DiskUsage,
    durable_names: Names,
    /// In the order in which they were made, as a journal keeps them.
    pending: Vec<Change>,
    last_inode: InodeId,
    /// Files that were taken away and may come back.
    hidden: BTreeSet<InodeId>,
    pub(super) clock: Clock,
    pub(super) process: Process,
    /// Power cuts so far.
    pub(super) power_cuts: u64,
    /// Flushes that failed so far, except those of files that nobody relies on.
    pub(super) failed_flushes: u64,
    /// Whether the end of the last process took falsely clean pages away.
    pub(super) has_evicted: bool,
}

impl World {
    pub(super) fn new(options: SimOptions) -> Self {
        let names = Names::from([(PathBuf::from("/"), Node::Folder)]);
        Self {
            rng: Rng::with_seed(options.seed),
            options,
            durable_names: names.clone(),
            names,
            inodes: BTreeMap::new(),
            modified_at_ms: BTreeMap::new(),
            usage: DiskUsage {
                file_system: 1,
                total_bytes: 1 << 40,
                free_bytes: 1 << 39,
                available_bytes: 1 << 39,
            },
            pending: Vec::new(),
            last_inode: 0,
            hidden: BTreeSet::new(),
            clock: Clock { at_ms: 1_700_000_000_000, ..Clock::default() },
            process: Process::default(),
            power_cuts: 0,
            failed_flushes: 0,
            has_evicted: false,
        }
    }

    fn chance(&mut self, per_mille: u32) -> bool {
        per_mille > 0 && self.rng.u32(0..1000) < per_mille
    }

    /// Whether the fault strikes now.
    pub(super) fn strikes(&mut self, fault: Fault) -> bool {
        self.chance(match fault {
            Fault::Flush => self.options.flush_fails_per_mille,
            Fault::WriteBack => self.options.write_back_fails_per_mille,
            Fault::NoSpace => self.options.no_space_per_mille,
            Fault::NoHandle => self.options.no_handle_per_mille,
            Fault::Read => self.options.read_fails_per_mille,
        })
    }

    /// Fails when somebody has the lock on a file or folder.
    pub(super) fn check_unlocked(&self, path: &Path) -> Result<(), EnvError> {
        match self.process.locked.iter().any(|locked| locked == path) {
            true => Err(EnvError::Locked { path: path.to_path_buf(), holder: LockHolder::ThisProcess }),
            false => Ok(()),
        }
    }

    /// Fails when no file can be opened at the moment.
    pub(super) fn check_handles(&mut self, path: &Path) -> Result<(), EnvError> {
        match self.strikes(Fault::NoHandle) {
            true => Err(EnvError::TooManyOpenFiles { operation: EnvError::OPEN, path: path.to_path_buf() }),
            false => Ok(()),
        }
    }

    /// Fails when the medium cannot be read here.
    pub(super) fn check_readable(&mut self, path: &Path) -> Result<(), EnvError> {
        match self.strikes(Fault::Read) {
            true => Err(EnvError::from_io("read", path, io::Error::from_raw_os_error(libc::EIO))),
            false => Ok(()),
        }
    }

    /// What happens by itself before each operation: time passes, and the system writes pages back in any order.
    pub(super) fn pass(&mut self) {
        let passed_ms = self.rng.i64(0..3);
        self.clock.at_ms += passed_ms;
        self.clock.passed_ms += passed_ms.unsigned_abs();
        if self.chance(self.options.clock_steps_per_mille) {
            self.clock.latest_ms = self.clock.latest_ms.max(self.clock.at_ms);
            self.clock.at_ms += self.rng.i64(-100_000..100_000);
        }
        while self.chance(self.options.write_back_per_mille) {
            let dirty = self.inodes.iter().filter(|(_, inode)| inode.is_dirty());
            let dirty: Vec<_> = dirty.map(|(&id, _)| id).collect();
            let Some(&id) = self.rng.choice(&dirty) else { return };
            let fails = self.strikes(Fault::WriteBack);
            if let Some(inode) = self.inodes.get_mut(&id) {
                inode.write_back(&mut self.rng, fails);
            }
        }
    }

    // Names.

    pub(super) fn node(&self, operation: &'static str, path: &Path) -> Result<Node, EnvError> {
        let not_found = || EnvError::NotFound { operation, path: path.to_path_buf() };
        self.names.get(path).copied().ok_or_else(not_found)
    }

    pub(super) fn file(&self, operation: &'static str, path: &Path) -> Result<InodeId, EnvError> {
        match self.node(operation, path)? {
            Node::File(id) => Ok(id),
            Node::Folder => {
                Err(EnvError::from_io(operation, path, io::Error::from_raw_os_error(libc::EISDIR)))
            }
        }
    }

    pub(super) fn put(&mut self, path: &Path, node: Node) {
        self.names.insert(path.to_path_buf(), node);
        self.pending.push(Change::Put(path.to_path_buf(), node));
    }

    pub(super) fn remove(&mut self, path: &Path) {
        self.names.remove(path);
        self.pending.push(Change::Remove(path.to_path_buf()));
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) {
        if let Some(node) = self.names.remove(from) {
            self.names.insert(to.to_path_buf(), node);
            self.pending.push(Change::Rename(from.to_path_buf(), to.to_path_buf()));
        }
    }

    /// Names below a folder, the folder itself left out, deepest last.
    pub(super) fn below(&self, dir: &Path) -> Vec<PathBuf> {
        let behind = (std::ops::Bound::Excluded(dir.to_path_buf()), std::ops::Bound::Unbounded);
        self.names
            .range(behind)
            .map(|(path, _)| path)
            .take_while(|path| path.starts_with(dir))
            .cloned()
            .collect()
    }

    pub(super) fn check_folder(&self, operation: &'static str, path: &Path) -> Result<(), EnvError> {
        match path.parent().and_then(|dir| self.names.get(dir)) {
            Some(Node::Folder) => Ok(()),
            Some(Node::File(_)) => Err(EnvError::NotAFolder { operation, path: path.to_path_buf() }),
            None => Err(EnvError::NotFound { operation, path: path.to_path_buf() }),
        }
    }

    /// Removes a name at once and durably. Returns what it pointed to.
    pub(super) fn hide(&mut self, path: &Path) -> Result<Node, EnvError> {
        let node = self.node("hide", path)?;
        self.names.remove(path);
        self.durable_names.remove(path);
        if let Node::File(id) = node {
            self.hidden.insert(id);
        }
        Ok(node)
    }

    /// Takes [`World::hide`] back.
    pub(super) fn unhide(&mut self, path: &Path, node: Node) {
        self.names.insert(path.to_path_buf(), node);
        self.durable_names.insert(path.to_path_buf(), node);
    }

    // Files.

    pub(super) fn create(&mut self, len: usize) -> InodeId {
        self.last_inode += 1;
        self.inodes.insert(self.last_inode, Inode::new(len));
        self.modified_at_ms.insert(self.last_inode, self.clock.at_ms);
        if len > 0 {
            self.pending.push(Change::Length(self.last_inode, len));
        }
        self.last_inode
    }

    pub(super) fn inode(&mut self, id: InodeId) -> &mut Inode {
        self.inodes.get_mut(&id).expect("an inode lives as long as its handles")
    }

    pub(super) fn len_of(&self, id: InodeId) -> u64 {
        self.inodes.get(&id).map_or(0, |inode| inode.len() as u64)
    }

    pub(super) fn modified_at_ms(&self, id: InodeId) -> i64 {
        self.modified_at_ms.get(&id).copied().unwrap_or_default()
    }

    pub(super) fn write(&mut self, id: InodeId, at: usize, bytes: &[u8]) {
        self.modified_at_ms.insert(id, self.clock.at_ms);
        let before = self.inode(id).len();
        self.inode(id).write(at, bytes);
        let after = self.inode(id).len();
        if after != before {
            self.pending.push(Change::Length(id, after));
        }
    }

    pub(super) fn set_len(&mut self, id: InodeId, len: usize) {
        if self.inode(id).len() != len {
            self.modified_at_ms.insert(id, self.clock.at_ms);
            self.inode(id).set_len(len);
            self.pending.push(Change::Length(id, len));
        }
    }

    /// Turns a range of a file into zeros.
    pub(super) fn zero(&mut self, id: InodeId, from: usize, to: usize) {
        self.modified_at_ms.insert(id, self.clock.at_ms);
        let whole = self.inode(id).zero(from, to);
        if !whole.is_empty() {
            self.pending.push(Change::Zero(id, whole));
        }
    }

    /// Writes pages of a file out ahead of their use. It may fail, as a flush does.
    pub(super) fn write_out(
        &mut self,
        id: InodeId,
        from: usize,
        to: usize,
        path: &Path,
    ) -> Result<(), EnvError> {
        let fails = self.strikes(Fault::Flush);
        match self.inode(id).write_out(from, to, fails) {
            true => Ok(()),
            false => Err(self.failed_flush("flush ahead in", path)),
        }
    }

    /// A flush of a range of a file, and of its length. It may fail.
    pub(super) fn flush(&mut self, id: InodeId, from: usize, to: usize, path: &Path) -> Result<(), EnvError> {
        let fails = self.strikes(Fault::Flush);
        if !fails {
            self.commit(|change| change.is_of(id));
        }
        let inode = self.inodes.get_mut(&id).expect("an inode lives as long as its handles");
        match inode.flush(from, to, &mut self.rng, fails) {
            true => Ok(()),
            false => Err(self.failed_flush("flush", path)),
        }
    }

    fn failed_flush(&mut self, operation: &'static str, path: &Path) -> EnvError {
        self.failed_flushes += 1;
        EnvError::from_flush(operation, path, io::Error::from_raw_os_error(libc::EIO))
    }

    /// Makes the names in a folder durable. It may fail.
    pub(super) fn flush_names(&mut self, dir: &Path) -> Result<(), EnvError> {
        if self.strikes(Fault::Flush) {
            return Err(self.failed_flush("flush", dir));
        }
        self.commit(|change| change.folder() == Some(dir));
        Ok(())
    }

    /// Makes everything durable. It may fail.
    pub(super) fn flush_everything(&mut self, operation: &'static str, path: &Path) -> Result<(), EnvError> {
        let fails = self.strikes(Fault::Flush);
        if self.settle(fails) { Ok(()) } else { Err(self.failed_flush(operation, path)) }
    }

    /// Writes everything back, unless it `fails`. Says whether it was a success.
    pub(super) fn settle(&mut self, fails: bool) -> bool {
        if !fails {
            self.commit(|_| true);
        }
        let mut succeeds = true;
        for inode in self.inodes.values_mut() {
            let len = inode.len();
            succeeds &= inode.flush(0, len, &mut self.rng, fails);
        }
        succeeds
    }

    fn commit(&mut self, is_meant: impl Fn(&Change) -> bool) {
        let (mut meant, mut rest) = (Vec::new(), Vec::new());
        // Backwards: when a folder is durably removed, so are the earlier changes below it.
        let mut gone: Vec<PathBuf> = Vec::new();
        for change in std::mem::take(&mut self.pending).into_iter().rev() {
            let is_below = gone.iter().any(|dir| change.folder().is_some_and(|of| of.starts_with(dir)));
            if is_meant(&change) || is_below {
                if let Change::Remove(path) = &change {
                    gone.push(path.clone());
                }
                meant.push(change);
            } else {
                rest.push(change);
            }
        }
        rest.reverse();
        meant.reverse();
        self.pending = rest;
        self.apply(meant);
    }

    fn apply(&mut self, changes: Vec<Change>) {
        for change in changes {
            match change {
                Change::Put(path, node) => {
                    self.durable_names.insert(path, node);
                }
                Change::Remove(path) => {
                    self.durable_names.remove(&path);
                }
                Change::Rename(from, to) => {
                    // Both names are in one folder, so they become durable together.
                    if let Some(node) = self.durable_names.remove(&from) {
                        self.durable_names.insert(to, node);
                    }
                }
                Change::Length(id, len) => {
                    if let Some(inode) = self.inodes.get_mut(&id) {
                        inode.commit_len(len);
                    }
                }
                Change::Zero(id, pages) => {
                    if let Some(inode) = self.inodes.get_mut(&id) {
                        inode.commit_zeros(&pages);
                    }
                }
            }
        }
    }

    // The end of a process.

    pub(super) fn forget_errors(&mut self) {
        self.inodes.values_mut().for_each(Inode::forget_error);
    }

    /// The process is gone; the page cache stays, but for falsely clean pages that the system evicts.
    pub(super) fn lose_process(&mut self) {
        for inode in self.inodes.values_mut() {
            inode.may_forget_error(&mut self.rng);
            if self.options.evicts {
                self.has_evicted |= inode.evict(&mut self.rng);
            }
        }
    }

    /// The power is gone: what was not durable is kept, lost or torn, page by page. Changes of names and lengths survive
    /// up to some moment.
    pub(super) fn lose_power(&mut self) {
        self.power_cuts += 1;
        let kept = self.rng.usize(0..=self.pending.len());
        let mut changes = std::mem::take(&mut self.pending);
        changes.truncate(kept);
        self.apply(changes);
        let whole = self.files_with_whole_sectors();
        for (id, inode) in &mut self.inodes {
            let tears_sectors = self.options.tears_sectors && !whole.contains(id);
            inode.lose_power(&mut self.rng, tears_sectors);
        }
        self.names = std::mem::take(&mut self.durable_names);
        self.drop_orphans();
        self.durable_names = self.names.clone();
    }

    /// Files that are written in place by the sector, and rely on it: the checkpoint.
    fn files_with_whole_sectors(&self) -> BTreeSet<InodeId> {
        let is_one = |path: &Path| path.file_name().is_some_and(|name| name == "checkpoint");
        let nodes = self.names.iter().filter(|(path, _)| is_one(path)).map(|(_, node)| node);
        nodes.filter_map(|node| if let Node::File(id) = node { Some(*id) } else { None }).collect()
    }

    /// Drops names whose folder is gone, and files without a name.
    fn drop_orphans(&mut self) {
        let all = std::mem::take(&mut self.names);
        for (path, node) in all {
            let has_parent = path.parent().is_none_or(|dir| self.names.get(dir) == Some(&Node::Folder));
            if has_parent {
                self.names.insert(path, node);
            }
        }
        let id = |node: &Node| if let Node::File(id) = node { Some(*id) } else { None };
        let named: BTreeSet<_> = self.names.values().filter_map(id).collect();
        self.inodes.retain(|id, _| named.contains(id) || self.hidden.contains(id));
    }
}
