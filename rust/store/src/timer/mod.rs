//! The files of timer messages: which waits for which second.
//!
//! Wheel and log hold nothing that the timer topic does not: what of them is missing or damaged is made again from it, by whoever
//! reads that topic. The checkpoint alone says what was delivered.
//!
//! # Source
//! docs/reference/store-format.md 8.4 to 8.6.

mod chain;
mod check;
mod log;
mod message;
#[cfg(test)]
mod tests;
mod wheel;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use chain::SlotChain;
use chain::{Chains, empty, with};
pub use check::{HeldUnits, difference_of_wheel, held_units, timer_files};
use log::TimerLog;
pub use message::{ROLL_MS, TimerMessage};
use rocketpy_env::planted::{self, Bug};
use rocketpy_env::{Disk, DiskFile, EnvError, RealDisk};
use rocketpy_model::PhysicalOffset;
pub use rocketpy_protocol::disk::{TimerCheckpoint, TimerCut, TimerSlot, TimerUnit};
use tracing::warn;
use wheel::Wheel;

/// Length of a slot in milliseconds (`timerPrecisionMs`).
pub const SLOT_MS: i64 = 1000;
/// Slots that may be in use at a time, as a time in milliseconds: a message further ahead has no slot of its own.
pub const WHEEL_MS: i64 = (TimerSlot::COUNT as i64 - 60) * SLOT_MS;

/// Wheel and log of one store.
pub struct TimerFiles<D: Disk = RealDisk> {
    wheel: Wheel<D>,
    log: TimerLog<D>,
}

/// What is to be flushed before a checkpoint may say so.
pub struct Unflushed<D: Disk = RealDisk> {
    disk: Arc<D>,
    dir: PathBuf,
    files: Vec<Arc<D::File>>,
}

impl<D: Disk> TimerFiles<D> {
    /// Opens the files of a store, made where they are missing. The log is kept as far as its units are whole, name records one
    /// behind the other, lead to the unit before them in their slot, and `is_kept` wants them; the wheel is rebuilt of those in slots
    /// from `read_ms` on.
    ///
    /// # Errors
    /// A file cannot be read, or not be written.
    pub fn open(
        disk: Arc<D>,
        root: &Path,
        read_ms: i64,
        mut is_kept: impl FnMut(&TimerUnit) -> bool,
    ) -> Result<Self, EnvError> {
        let mut log = TimerLog::open(Arc::clone(&disk), root)?;
        let mut chains = Chains::new(log.start());
        log.recover(|position, unit| {
            let is_left_out = planted::has(Bug::SlotNotRebuilt) && unit.slot_ms % (7 * SLOT_MS) == 0;
            let is_in_wheel = unit.slot_ms >= read_ms && !is_left_out;
            if is_in_wheel && !chains.has_place_for(unit) {
                warn!(position, "timer log damaged, restoring missing messages from the timer topic");
                return false;
            }
            let is_kept = is_kept(unit);
            if is_kept && is_in_wheel {
                chains.add(position, unit);
            }
            is_kept
        })?;
        Ok(Self { wheel: Wheel::with(&*disk, root, chains.slots())?, log })
    }

    /// Adds a unit to its slot; its `previous` is set here. [`Self::unit`] and [`Self::next_used`] find it after [`Self::write`].
    ///
    /// # Errors
    /// It is not added.
    pub fn add(&mut self, unit: TimerUnit) -> Result<(), EnvError> {
        let slot = self.wheel.slot(unit.slot_ms)?.unwrap_or(empty(unit.slot_ms / SLOT_MS));
        let unit = TimerUnit { previous: slot.last, ..unit };
        let position = self.log.append(&unit)?;
        self.wheel.set(with(&slot, position, &unit));
        Ok(())
    }

    /// Writes the units that were added.
    ///
    /// # Errors
    /// A later call writes them.
    pub fn write(&mut self) -> Result<(), EnvError> {
        self.log.write()?;
        self.wheel.write()
    }

    /// Position after the last unit.
    pub fn end(&self) -> u64 {
        self.log.end()
    }

    /// The units of a slot, none of them read yet.
    pub fn chain(&self, slot_ms: i64) -> Result<SlotChain, EnvError> {
        Ok(SlotChain::of(self.wheel.slot(slot_ms)?.unwrap_or(empty(slot_ms / SLOT_MS))))
    }

    /// The unit at a position; `None` where there is none.
    pub fn unit(&mut self, position: i64) -> Result<Option<TimerUnit>, EnvError> {
        self.log.unit(position)
    }

    /// The first slot with a unit, from one time up to and without another.
    pub fn next_used(&self, from_ms: i64, until_ms: i64) -> Result<Option<i64>, EnvError> {
        self.wheel.next_used(from_ms, until_ms)
    }

    /// Takes what has to be flushed, so that all units written so far are durable.
    pub fn unflushed(&mut self) -> Unflushed<D> {
        self.log.take_unflushed()
    }

    /// Takes back what could not be flushed.
    pub fn not_flushed(&mut self, unflushed: Unflushed<D>) {
        self.log.add_dirty(unflushed.files);
    }

    /// Removes log files whose slots all lie before `read_ms`, and whose records before `from`.
    pub fn remove_before(&mut self, read_ms: i64, from: PhysicalOffset) -> Result<(), EnvError> {
        self.log.remove_before(read_ms, from)
    }
}

impl<D: Disk> fmt::Debug for TimerFiles<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimerFiles").field("end", &self.end()).finish_non_exhaustive()
    }
}

impl<D: Disk> fmt::Debug for Unflushed<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unflushed").field("files", &self.files.len()).finish_non_exhaustive()
    }
}

impl<D: Disk> Unflushed<D> {
    /// Flushes.
    ///
    /// # Errors
    /// The checkpoint must not be written: it is not known what is durable.
    pub fn flush(&self) -> Result<(), EnvError> {
        if self.files.is_empty() {
            return Ok(());
        }
        self.files.iter().try_for_each(|file| file.sync())?;
        self.disk.sync_dir(&self.dir)
    }
}

/// Largest checkpoint file that is read.
const MAX_CHECKPOINT_BYTES: u64 = 1 << 20;

/// Reads the checkpoint, or its backup; `None` when neither says anything.
///
/// # Errors
/// A file cannot be read.
pub fn read_checkpoint(disk: &impl Disk, root: &Path) -> Result<Option<TimerCheckpoint>, EnvError> {
    let path = checkpoint_path(root);
    for path in [&path, &path.with_extension("bak")] {
        match disk.read(path, MAX_CHECKPOINT_BYTES) {
            Ok(bytes) => match TimerCheckpoint::decode_file(&bytes) {
                Some(checkpoint) if checkpoint != TimerCheckpoint::default() => return Ok(Some(checkpoint)),
                Some(_) => {}
                None => {
                    warn!(path = %path.display(), "progress file of the timers damaged, ignoring it")
                }
            },
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Replaces the checkpoint; the former one stays as backup, unless it is damaged or says nothing: then the older backup stays.
///
/// # Errors
/// The file holds the old or the new one.
///
/// # Durability
/// On return the checkpoint survives a power loss.
pub fn write_checkpoint(disk: &impl Disk, root: &Path, checkpoint: &TimerCheckpoint) -> Result<(), EnvError> {
    let (path, bytes) = (checkpoint_path(root), checkpoint.encode_file());
    let says_something = |former: &[u8]| {
        TimerCheckpoint::decode_file(former).is_some_and(|former| former != TimerCheckpoint::default())
    };
    match disk.read(&path, MAX_CHECKPOINT_BYTES) {
        Ok(former) if says_something(&former) => disk.replace_keeping_backup(&path, &bytes),
        _ => disk.replace(&path, &bytes),
    }
}

/// Path of the checkpoint of the timers.
pub fn checkpoint_path(root: &Path) -> PathBuf {
    root.join("config").join("timercheck")
}
