//! Reads wheel and log as they lie there, without a change, for a check of the store.

use std::path::{Path, PathBuf};

use rocketpy_env::{Disk, EnvError, OpenMode};
use rocketpy_model::PhysicalOffset;

use super::chain::Chains;
use super::{SLOT_MS, Wheel, log, wheel};

/// What a start makes anew.
pub fn timer_files(root: &Path) -> [PathBuf; 2] {
    [log::folder(root), wheel::path(root)]
}

/// The units of slots that are not done.
#[derive(Debug)]
pub struct HeldUnits {
    /// The folder of the log of timers.
    pub dir: PathBuf,
    /// Places and sizes of their records, in the order of the log.
    pub records: Vec<(PhysicalOffset, i32)>,
    chains: Chains,
    /// Position of the first unit that does not lead to the one before it in its slot, and where it leads.
    pub broken: Option<(u64, i64)>,
}

/// Reads the units of slots from `read_ms` on; `None` where there is no log, as in a copy.
///
/// # Errors
/// A file cannot be read.
pub fn held_units<D: Disk>(disk: &D, root: &Path, read_ms: i64) -> Result<Option<HeldUnits>, EnvError> {
    let dir = log::folder(root);
    let (mut files, _) = match log::list(disk, &dir, OpenMode::Read) {
        Err(error) if error.is_not_found() => return Ok(None),
        listed => listed?,
    };
    if files.is_empty() {
        return Ok(None);
    }
    let chains = Chains::new(log::start(&files));
    let mut held = HeldUnits { dir, records: Vec::new(), chains, broken: None };
    log::scan(&mut files, |position, unit| {
        if unit.slot_ms >= read_ms {
            if held.broken.is_none() && !held.chains.has_place_for(unit) {
                held.broken = Some((position, unit.previous));
            }
            held.records.push((unit.physical_offset, unit.size_bytes));
            held.chains.add(position, unit);
        }
        true
    })?;
    Ok(Some(held))
}

/// The wheel, and the first slot in which it disagrees with the log; `None` where it does not, or there is no wheel.
///
/// # Errors
/// The file cannot be read.
pub fn difference_of_wheel<D: Disk>(
    disk: &D,
    root: &Path,
    held: &HeldUnits,
) -> Result<Option<(PathBuf, String)>, EnvError> {
    let wheel = match Wheel::open(disk, root) {
        Err(error) if error.is_not_found() => return Ok(None),
        opened => opened?,
    };
    if !wheel.is_whole()? {
        return Ok(Some((wheel::path(root), "another length".to_owned())));
    }
    for (&second, slot) in held.chains.slots() {
        let (found, last) = (wheel.slot(second * SLOT_MS)?.map_or(-1, |slot| slot.last), slot.last);
        if found != last {
            let found = format!("second {second} ends with the unit at {found}, the log has it at {last}");
            return Ok(Some((wheel::path(root), found)));
        }
    }
    Ok(None)
}
