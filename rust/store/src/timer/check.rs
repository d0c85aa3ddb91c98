//! Reads wheel and log as they lie there, without a change, for a check of the store.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rocketpy_env::{Disk, EnvError, OpenMode};
use rocketpy_model::PhysicalOffset;

use super::{SLOT_MS, Wheel, log, wheel};

/// What a start makes anew.
pub(crate) fn timer_files(root: &Path) -> [PathBuf; 2] {
    [log::folder(root), wheel::path(root)]
}

/// The units of slots that are not done.
#[derive(Debug, Default)]
pub(crate) struct HeldUnits {
    pub(crate) dir: PathBuf,
    /// Places and sizes of their records, in the order of the log.
    pub(crate) records: Vec<(PhysicalOffset, i32)>,
    /// Position of the last unit of each slot.
    last_of: BTreeMap<i64, i64>,
}

/// Reads the units of slots from `read_ms` on; `None` where there is no log, as in a copy.
///
/// # Errors
/// A file cannot be read.
pub(crate) fn held_units<D: Disk>(
    disk: &D,
    root: &Path,
    read_ms: i64,
) -> Result<Option<HeldUnits>, EnvError> {
    let dir = log::folder(root);
    let (mut files, _) = match log::list(disk, &dir, OpenMode::Read) {
        Err(error) if error.is_not_found() => return Ok(None),
        listed => listed?,
    };
    if files.is_empty() {
        return Ok(None);
    }
    let mut held = HeldUnits { dir, ..HeldUnits::default() };
    log::scan(&mut files, |position, unit| {
        if unit.slot_ms >= read_ms {
            held.records.push((unit.physical_offset, unit.size_bytes));
            held.last_of.insert(unit.slot_ms, position as i64);
        }
        true
    })?;
    Ok(Some(held))
}

/// The wheel, and the first slot in which it disagrees with the log; `None` where it does not, or there is no wheel.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn difference_of_wheel<D: Disk>(
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
    for (&slot_ms, &last) in &held.last_of {
        let found = wheel.slot(slot_ms)?.map_or(-1, |slot| slot.last);
        if found != last {
            let second = slot_ms / SLOT_MS;
            let found = format!("second {second} ends with the unit at {found}, the log has it at {last}");
            return Ok(Some((wheel::path(root), found)));
        }
    }
    Ok(None)
}
