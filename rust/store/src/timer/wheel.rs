//! The wheel: a file of slots, one for each second of two weeks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rocketpy_env::{Disk, DiskFile, EnvError, OpenMode};
use rocketpy_protocol::disk::TimerSlot;

use super::SLOT_MS;

const SLOT_BYTES: u64 = TimerSlot::BYTES as u64;
/// Slots that one look reads.
const LOOK_SLOTS: u64 = 128;

/// The file `timerwheel`. It is rebuilt at each start and never flushed: it holds nothing that the log of timers does not.
pub(super) struct Wheel<D: Disk> {
    file: D::File,
    /// Slots that are not written yet, by their seconds.
    unwritten: BTreeMap<i64, TimerSlot>,
}

impl<D: Disk> Wheel<D> {
    /// Replaces what the file held by these slots, by their seconds.
    pub(super) fn with(disk: &D, root: &Path, slots: &BTreeMap<i64, TimerSlot>) -> Result<Self, EnvError> {
        let file = disk.open_file(&path(root), OpenMode::CreateOrWrite)?;
        file.set_len(0)?;
        file.set_len(TimerSlot::FILE_BYTES)?;
        let mut wheel = Self { file, unwritten: slots.clone() };
        wheel.write()?;
        Ok(wheel)
    }

    /// The wheel as it is, to be read.
    pub(super) fn open(disk: &D, root: &Path) -> Result<Self, EnvError> {
        Ok(Self { file: disk.open_file(&path(root), OpenMode::Read)?, unwritten: BTreeMap::new() })
    }

    /// Whether the file has a place for each slot.
    pub(super) fn is_whole(&self) -> Result<bool, EnvError> {
        Ok(self.file.len()? == TimerSlot::FILE_BYTES)
    }

    /// The slot of a time; an empty one where the wheel has another time in that place.
    pub(super) fn slot(&self, slot_ms: i64) -> Result<Option<TimerSlot>, EnvError> {
        let second = slot_ms / SLOT_MS;
        if let Some(slot) = self.unwritten.get(&second) {
            return Ok(Some(*slot));
        }
        let mut bytes = [0; TimerSlot::BYTES];
        self.file.read_exact_at(place(second) * SLOT_BYTES, &mut bytes)?;
        let slot = TimerSlot::decode(&bytes);
        Ok((slot.second == second).then_some(slot))
    }

    /// Replaces a slot, in the file by [`Self::write`].
    pub(super) fn set(&mut self, slot: TimerSlot) {
        self.unwritten.insert(slot.second, slot);
    }

    /// Writes the slots that were replaced.
    ///
    /// # Errors
    /// Those that are not written are written by a later call.
    pub(super) fn write(&mut self) -> Result<(), EnvError> {
        while let Some(slot) = self.unwritten.first_entry() {
            self.file.write_all_at(place(*slot.key()) * SLOT_BYTES, &slot.get().encode())?;
            slot.remove();
        }
        Ok(())
    }

    /// The first slot that is not empty, of those from `from_ms` up to and without `until_ms`. Slots that are not written count as empty.
    ///
    /// Looks at each place of the wheel once at most, however long the time is: a clock may be set ahead by years.
    pub(super) fn next_used(&self, from_ms: i64, until_ms: i64) -> Result<Option<i64>, EnvError> {
        let (mut second, until) = (from_ms / SLOT_MS, until_ms / SLOT_MS);
        let end = until.min(second.saturating_add(TimerSlot::COUNT as i64));
        let mut later = None; // of the slots behind a turn of the wheel
        let mut bytes = vec![0; (LOOK_SLOTS * SLOT_BYTES) as usize];
        while second < end {
            let first = place(second);
            let count = LOOK_SLOTS.min(TimerSlot::COUNT - first).min(end.abs_diff(second));
            let looked = &mut bytes[..(count * SLOT_BYTES) as usize];
            self.file.read_exact_at(first * SLOT_BYTES, looked)?;
            let (slots, _) = looked.as_chunks();
            for (second, slot) in (second..).zip(slots.iter().map(TimerSlot::decode)) {
                if slot.second == second && slot != TimerSlot::default() {
                    return Ok(Some(second * SLOT_MS));
                }
                if (end..until).contains(&slot.second) {
                    later = Some(later.map_or(slot.second, |later: i64| later.min(slot.second)));
                }
            }
            second += count as i64;
        }
        Ok(later.map(|second| second * SLOT_MS))
    }
}

pub(super) fn path(root: &Path) -> PathBuf {
    root.join("timerwheel")
}

/// The number of a second's slot.
fn place(second: i64) -> u64 {
    second.rem_euclid(TimerSlot::COUNT as i64) as u64
}
