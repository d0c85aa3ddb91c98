//! A disk in memory that loses power, fails and fills up, as a seed says.
//!
//! # The model
//! Each file has two images: what readers see (the page cache) and what is on the medium; changes of names and lengths are
//! pending for a while. A flush moves the dirty pages of 4 KiB that it covers to the medium; between flushes the system
//! writes pages back in any order. What is not written back is lost with the power:
//!
//! * each dirty page is kept, lost or torn by itself; a fresh extent reads as zeros. A sector of 512 bytes is torn only when the
//!   options say so, and never one of the file `checkpoint`, whose two marks rely on it;
//! * whole pages that become zeros at once do so with the journal, as names and lengths do, and never in part;
//! * changes of names and lengths survive as a prefix of their order, as a journal keeps them. The flush of a file makes its
//!   length durable, not its name; the flush of a folder makes its names durable;
//! * a flush that fails marks its pages as written, as Linux does. Readers still see the new bytes, the next flush
//!   succeeds, and the bytes are gone with the power, unless they are written again. A write-back that fails by itself is reported
//!   by the next flush of the file, or by none when the process ends before.
//!
//! The end of a process alone loses nothing of that: the page cache stays. Only a page whose bytes never reached the medium,
//! and which counts as written, may be evicted then and read again as the medium has it ([`SimDisk::has_evicted`]). A machine may
//! do so at any time; here no map changes under a running process.
//!
//! Nothing here reads a clock or draws a number that the seed does not give.
//!
//! # Source
//! docs/durability.md 3.

mod disk;
mod file;
mod inode;
mod memory;
mod region;
mod world;

use std::any::Any;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use disk::SimLock;
pub use file::SimFile;
pub use region::SimRegion;
use world::{Node, World};

use crate::disk::DiskUsage;
use crate::error::EnvError;

/// How a simulated machine misbehaves. Chances are per mille of the operations that they concern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SimOptions {
    /// Everything is drawn from it.
    pub seed: u64,
    /// That the system writes a dirty page back before an operation.
    pub write_back_per_mille: u32,
    /// That such a page does not get to the medium.
    pub write_back_fails_per_mille: u32,
    /// That a flush fails, after which the next one of the same pages succeeds and does nothing.
    pub flush_fails_per_mille: u32,
    /// That there is no space for a new file, or for bytes written into one.
    pub no_space_per_mille: u32,
    /// That a file or folder cannot be opened because too many are open.
    pub no_handle_per_mille: u32,
    /// That the clock steps by up to 100 s, either way.
    pub clock_steps_per_mille: u32,
    /// That bytes cannot be read from a file. Maps are read all the same.
    pub read_fails_per_mille: u32,
    /// Whether a power cut tears sectors.
    pub tears_sectors: bool,
    /// Whether the end of a process evicts falsely clean pages.
    pub evicts: bool,
}

impl SimOptions {
    /// A disk on which nothing fails any more, and whose clock does not step. Pages are written back as before.
    #[must_use]
    pub fn without_faults(self) -> Self {
        Self { write_back_per_mille: self.write_back_per_mille, seed: self.seed, ..Self::default() }
    }
}

/// The end of a simulated process at the operation that was asked for: unwinds through the code under test.
#[derive(Debug, Clone, Copy)]
pub struct Stopped;

impl Stopped {
    /// Whether a panic is one.
    pub fn is(panic: &(dyn Any + Send)) -> bool {
        panic.is::<Self>()
    }
}

/// A simulated [`crate::Disk`] as one process sees it.
#[derive(Clone)]
pub struct SimDisk {
    world: Arc<Mutex<World>>,
    boot: u64,
}

/// A file that [`SimDisk::hide`] took away.
#[derive(Debug)]
pub struct Hidden {
    path: PathBuf,
    node: Node,
}

impl SimDisk {
    /// An empty disk with the folder `/`.
    pub fn new(options: SimOptions) -> Self {
        Self { world: Arc::new(Mutex::new(World::new(options))), boot: 0 }
    }

    fn lock_world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How it misbehaves.
    pub fn options(&self) -> SimOptions {
        self.lock_world().options
    }

    /// Changes what goes wrong from now on; the seed stays.
    pub fn set_options(&self, options: SimOptions) {
        let mut world = self.lock_world();
        world.options = SimOptions { seed: world.options.seed, ..options };
    }

    /// Draws everything that follows from another seed: the same past, another future.
    pub fn reseed(&self, seed: u64) {
        self.lock_world().rng = fastrand::Rng::with_seed(seed);
    }

    /// What the file system says of its space from now on.
    pub fn set_usage(&self, usage: DiskUsage) {
        self.lock_world().usage = usage;
    }

    /// Lets time pass.
    pub fn pass_time(&self, by_ms: i64) {
        let mut world = self.lock_world();
        world.clock.at_ms += by_ms;
        world.clock.passed_ms += u64::try_from(by_ms).unwrap_or(0);
    }

    /// Sets the wall clock, as somebody may at any moment: no time passes.
    pub fn step_clock(&self, by_ms: i64) {
        let mut world = self.lock_world();
        world.clock.latest_ms = world.clock.latest_ms.max(world.clock.at_ms);
        world.clock.at_ms += by_ms;
    }

    /// The latest time that the clock has shown.
    pub fn latest_ms(&self) -> i64 {
        let world = self.lock_world();
        world.clock.latest_ms.max(world.clock.at_ms)
    }

    /// Operations so far.
    pub fn operations(&self) -> u64 {
        self.lock_world().process.operations
    }

    /// Flushes that failed so far. Those of a new file and of one that is replaced do not count: nobody relies on the bytes,
    /// the next try writes all of them anew.
    pub fn failed_flushes(&self) -> u64 {
        self.lock_world().failed_flushes
    }

    /// Ends the process by [`Stopped`] at the operation of this number.
    pub fn stop_at(&self, operation: Option<u64>) {
        self.lock_world().process.stop_at = operation;
    }

    /// Kills the process: its handles do nothing any more; the page cache stays. Returns the disk of the next process.
    #[must_use]
    pub fn kill(&self) -> Self {
        self.restart(World::lose_process)
    }

    /// Cuts the power. Returns the disk of the next process.
    #[must_use]
    pub fn cut_power(&self) -> Self {
        self.restart(World::lose_power)
    }

    fn restart(&self, end: impl FnOnce(&mut World)) -> Self {
        let mut world = self.lock_world();
        world.has_evicted = false;
        end(&mut world);
        world.process.boot += 1;
        world.process.is_down = false;
        world.process.stop_at = None;
        world.process.locked.clear();
        Self { world: Arc::clone(&self.world), boot: world.process.boot }
    }

    /// Whether the last end of a process took pages away that counted as written: what nobody had flushed may be lost, as
    /// with the power.
    pub fn has_evicted(&self) -> bool {
        self.lock_world().has_evicted
    }

    /// All files with their lengths.
    pub fn files(&self) -> Vec<(PathBuf, u64)> {
        let world = self.lock_world();
        let files = world.names.iter().filter_map(|(path, node)| match node {
            Node::File(id) => Some((path.clone(), world.len_of(*id))),
            Node::Folder => None,
        });
        files.collect()
    }

    /// The bytes of a file as readers see them; no operation.
    pub fn peek(&self, path: &Path) -> Option<Vec<u8>> {
        let mut world = self.lock_world();
        let id = world.file("look at", path).ok()?;
        Some(world.inode(id).bytes().to_vec())
    }

    /// Makes everything durable, as an orderly stop of the machine does; no operation, and it does not fail.
    pub fn settle(&self) {
        self.lock_world().settle(false);
    }

    /// Lets the system forget the failed write-backs that no flush has reported.
    pub fn forget_errors(&self) {
        self.lock_world().forget_errors();
    }

    /// Changes a file at rest as a failing medium does: flips bits, or cuts it.
    ///
    /// # Errors
    /// [`EnvError::NotFound`].
    pub fn damage(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) -> Result<(), EnvError> {
        let mut world = self.lock_world();
        world.settle(false);
        let id = world.file("damage", path)?;
        let mut bytes = world.inode(id).bytes().to_vec();
        change(&mut bytes);
        world.inode(id).set_bytes(bytes);
        Ok(())
    }

    /// Takes a file at rest away.
    ///
    /// # Errors
    /// [`EnvError::NotFound`].
    pub fn hide(&self, path: &Path) -> Result<Hidden, EnvError> {
        let mut world = self.lock_world();
        world.settle(false);
        let node = world.hide(path)?;
        Ok(Hidden { path: path.to_path_buf(), node })
    }

    /// Puts a hidden file back.
    pub fn unhide(&self, hidden: Hidden) {
        self.lock_world().unhide(&hidden.path, hidden.node);
    }

    /// Starts an operation: counts it, and ends the process if it is the last one. Time passes and pages are written back.
    fn begin(&self, operation: &'static str, path: &Path) -> Result<MutexGuard<'_, World>, EnvError> {
        self.start().map_err(|down| EnvError::from_io(operation, path, down))
    }

    /// The same for a flush.
    fn begin_flush(&self, operation: &'static str, path: &Path) -> Result<MutexGuard<'_, World>, EnvError> {
        self.start().map_err(|down| EnvError::from_flush(operation, path, down))
    }

    fn start(&self) -> std::io::Result<MutexGuard<'_, World>> {
        let mut world = self.lock_world();
        if world.process.boot != self.boot || world.process.is_down {
            return Err(std::io::Error::other("the simulated machine is down"));
        }
        world.process.operations += 1;
        if world.process.stop_at == Some(world.process.operations) {
            world.process.is_down = true;
            drop(world);
            resume_unwind(Box::new(Stopped)); // without the panic hook: this is no fault
        }
        world.pass();
        Ok(world)
    }
}

fn no_space(operation: &'static str, path: &Path) -> EnvError {
    EnvError::NoSpace { operation, path: path.to_path_buf() }
}
