//! Checks the bytes after the end of the log before they are cut off.

use std::path::PathBuf;

use rocketpy_env::planted::{self, Bug};
use rocketpy_env::{Disk, DiskFile, EnvError, OpenMode, Region};
use rocketpy_model::PhysicalOffset;
use rocketpy_protocol::record::{
    CheckMode, FIXED_BYTES_V1, MAGIC_V1, MAGIC_V2, RecordCheck, RecordHead, RecordView, check_record,
};

use super::scan::{Scan, damage};
use super::{Plan, Recovery};
use crate::error::StoreError;
use crate::folder::file_name;
use crate::mapped::{MappedFile, nonzero_end};

/// Bytes that are searched or copied at a time.
const STEP: usize = 1 << 20;
/// Bytes of a record before its magic number.
const ZEROS_BEFORE: u64 = 4;

/// Sound records after the end of the log: they are at the offset that they contain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Behind {
    pub records: u64,
    /// Where the first of them is.
    pub first: PhysicalOffset,
    /// The end of the last one that is not older than the end of the log, if there is one.
    pub end_of_newer: Option<PhysicalOffset>,
}

impl Behind {
    fn add(&mut self, view: &RecordView<'_>, at: PhysicalOffset, last_stored_at: i64) {
        if self.records == 0 {
            self.first = at;
        }
        self.records += 1;
        if view.stored_at_ms >= last_stored_at {
            self.end_of_newer = Some(at + view.size() as u64);
        }
    }
}

/// Finds sound records behind `end`, where none begins, by their magic number. Holes of the files are not read.
///
/// # Source
/// docs/reference/store-format.md 5.8: what is behind a damaged record may have been acknowledged.
pub(super) fn look_behind<D: Disk>(
    disk: &D,
    files: &[MappedFile<D::Region>],
    end: PhysicalOffset,
    last_stored_at: i64,
) -> Result<Behind, EnvError> {
    let mut behind = Behind::default();
    for file in files.iter().filter(|file| file.end() > end) {
        let bytes = file.region.view(0..file.region.len());
        let from = (end + 1).saturating_sub(file.start);
        for_each_data(disk, file, from, |mut at, step_end| {
            while let Some(start) = next_magic(bytes, at, step_end) {
                let stated = |view: &RecordView<'_>| view.physical_offset == file.start + start as u64;
                match check_record(&bytes[start..], CheckMode::Body) {
                    Ok(RecordCheck::Record(view)) if stated(&view) => {
                        behind.add(&view, file.start + start as u64, last_stored_at);
                        at = start + view.size();
                    }
                    _ => at = start + 1,
                }
            }
            Ok(at.max(step_end))
        })?;
    }
    Ok(behind)
}

/// Start of the first record, by its magic number, in `from..to`.
pub fn next_magic(bytes: &[u8], from: usize, to: usize) -> Option<usize> {
    let first = MAGIC_V1.to_be_bytes()[0];
    let mut at = from + 4;
    let end = bytes.len().min(to + 4);
    while at < end {
        at += bytes[at..end].iter().position(|&byte| byte == first)?;
        let magic = bytes[at..].first_chunk().map_or(0, |magic| u32::from_be_bytes(*magic));
        if magic == MAGIC_V1 || magic == MAGIC_V2 {
            assert!((from..to).contains(&(at - 4)), "a record begins where it is looked for");
            return Some(at - 4);
        }
        at += 1;
    }
    None
}

/// Calls `act` for the parts of a file that are not all zero. `act` returns how far it has looked.
fn for_each_data<D: Disk>(
    disk: &D,
    file: &MappedFile<D::Region>,
    from: u64,
    mut act: impl FnMut(usize, usize) -> Result<usize, EnvError>,
) -> Result<(), EnvError> {
    let mut at = from;
    for data in data_steps(disk, file, from)? {
        let step_end = file.region.len().min(data + STEP as u64);
        // A record may begin with zeros that lie in a hole.
        let start = data.saturating_sub(ZEROS_BEFORE).max(at);
        if start < step_end && nonzero_end(file.region.view(start..step_end)) > 0 {
            at = act(start as usize, step_end as usize)? as u64;
            assert!(at >= step_end, "a step is looked at as a whole");
        }
    }
    Ok(())
}

/// The steps of a file that have data. All are found before the first is read: once read, a hole counts as data, and so
/// does what is read ahead. Otherwise an allocated file would be read to its end.
fn data_steps<D: Disk>(disk: &D, file: &MappedFile<D::Region>, from: u64) -> Result<Vec<u64>, EnvError> {
    let handle = disk.open_file(&file.path, OpenMode::Read)?;
    let mut steps = Vec::new();
    let mut at = from;
    while let Some(data) = handle.next_data(at)?.filter(|&data| data < file.region.len()) {
        steps.push(data);
        at = data + STEP as u64;
    }
    Ok(steps)
}

/// Where the body of the record at `at` ends as its first bytes say, if they say that it is there. Of the two lengths that they state the
/// smaller one counts: one of them may be what is damaged.
fn stated_body_end<R: Region>(files: &[MappedFile<R>], at: PhysicalOffset) -> Option<PhysicalOffset> {
    let file = files.iter().find(|file| file.holds(at))?;
    let bytes = file.region.view(at - file.start..file.region.len());
    let head = RecordHead::of(bytes)?;
    let length_at = head.body_length_at();
    let body_length = u32::from_be_bytes(*bytes.get(length_at..)?.first_chunk()?);
    let end = at + u64::from(head.size_bytes()).min(length_at as u64 + 4 + u64::from(body_length));
    (head.is_record() && head.physical_offset() == at && end <= file.end()).then_some(end)
}

/// The error for damage that no kill can have left.
fn among_records<R: Region>(files: &[MappedFile<R>], scan: &Scan, behind: &Behind) -> StoreError {
    let file = files.iter().find(|file| file.holds(scan.end)).or(files.last());
    StoreError::DamageAmongRecords {
        path: file.map(|file| file.path.clone()).unwrap_or_default(),
        physical_offset: scan.end,
        records: behind.records,
        reason: scan.reason.clone().unwrap_or_else(|| "the log ends".to_owned()),
    }
}

impl<D: Disk> Recovery<'_, D> {
    /// What is after the end of the log, unless our own mark says that it is the end.
    ///
    /// # Errors
    /// [`StoreError::InteriorDamage`] when the last process closed the store and the log must continue: no program
    /// leaves a torn tail when it closes a store. [`StoreError::DamageAmongRecords`] when it was killed and the page cache is still
    /// there: records are copied into the log one after the other, so that a kill leaves nothing behind a torn one.
    ///
    /// # Source
    /// docs/durability.md R4.
    pub(super) fn behind(
        &self,
        files: &[MappedFile<D::Region>],
        plan: &Plan,
        scan: &Scan,
    ) -> Result<Behind, StoreError> {
        if self.is_trusted() {
            return Ok(Behind::default());
        }
        let behind = look_behind(&**self.disk, files, scan.end, scan.last_stored_at.unwrap_or(i64::MIN))?;
        if self.dirty {
            if behind.records > 0 && self.was_only_killed()? {
                self.check_among_records(files, scan)?;
            }
            // Both are 0 without a message.
            let last_stored_at = scan.last_stored_at.unwrap_or(0);
            let durable_at = self.checkpoint.timestamps.physic_msg_at_ms;
            if last_stored_at < durable_at {
                tracing::warn!(
                    end = %scan.end,
                    last_stored_at,
                    durable_at,
                    "log ends before the last record of its checkpoint"
                );
            }
            return Ok(behind);
        }
        match self.loss_after_clean_exit(files, plan, scan, &behind) {
            Some((durable_to, reason)) => Err(damage(files, scan.end, durable_to, reason)),
            None => Ok(behind),
        }
    }

    /// Refuses damage that sound records follow. What is in the body of the damaged record does not count: a sender may put there what
    /// looks like records.
    fn check_among_records(&self, files: &[MappedFile<D::Region>], scan: &Scan) -> Result<(), StoreError> {
        let last_inside =
            stated_body_end(files, scan.end).map_or(scan.end, |end| PhysicalOffset(end.get() - 1));
        let behind = look_behind(&**self.disk, files, last_inside, i64::MIN)?;
        if behind.records > 0 { Err(among_records(files, scan, &behind)) } else { Ok(()) }
    }

    /// Whether the last process was one of ours, and what it wrote is still in memory.
    fn was_only_killed(&self) -> Result<bool, StoreError> {
        if planted::has(Bug::TruncateInteriorDamage) {
            return Ok(false);
        }
        Ok(self.checkpoint.mark.is_some() && self.folder.is_in_same_page_cache(&**self.disk)?)
    }

    /// Why the log must continue after the end that was found, and at least how far. `None` when it need not: other
    /// programs cut a tail off without erasing it, so that older records and entries may be after the end.
    fn loss_after_clean_exit(
        &self,
        files: &[MappedFile<D::Region>],
        plan: &Plan,
        scan: &Scan,
        behind: &Behind,
    ) -> Option<(PhysicalOffset, String)> {
        let found = scan.reason.as_deref().unwrap_or("the log ends");
        if let Some(end) = behind.end_of_newer {
            return Some((end, format!("{found}; sound records follow it")));
        }
        if behind.records > 0 && plan.covered > behind.first {
            return Some((plan.covered, format!("{found}; consume queues point to sound records after it")));
        }
        let durable_at = self.checkpoint.timestamps.physic_msg_at_ms;
        if scan.last_stored_at.unwrap_or(0) < durable_at {
            let reason = format!(
                "{found}; the checkpoint expects a record stored at {durable_at}, the last one here was stored at {}",
                scan.last_stored_at.unwrap_or(0)
            );
            return Some((plan.covered.max(scan.end + 1), reason));
        }
        let damaged = files.iter().find(|file| file.holds(scan.end));
        let is_blank = damaged.is_none_or(|file| {
            let at = scan.end - file.start;
            nonzero_end(file.region.view(at..file.region.len().min(at + FIXED_BYTES_V1 as u64))) == 0
        });
        (plan.covered > scan.end && !(is_blank && durable_at > 0))
            .then(|| (plan.covered, format!("{found}; consume queues point to records after it")))
    }

    /// Keeps a copy of what is about to be cut off, when sound records are among it.
    pub(super) fn copy_of(
        &self,
        files: &[MappedFile<D::Region>],
        scan: &Scan,
        behind: &Behind,
    ) -> Result<Option<PathBuf>, EnvError> {
        if behind.records == 0 {
            return Ok(None);
        }
        let copy = self.keep_copy(files, scan.end)?;
        tracing::warn!(
            end = %scan.end, records = behind.records, copy = %copy.display(),
            "sound records after a torn or damaged one cut off, backup kept"
        );
        Ok(Some(copy))
    }

    /// Copies what is after the end of the log, each byte at its place in files of the same names, durably. Returns the
    /// folder.
    fn keep_copy(&self, files: &[MappedFile<D::Region>], end: PhysicalOffset) -> Result<PathBuf, EnvError> {
        let above = self.folder.root.join("cut-off");
        let dir = above.join(format!("{}-{}", file_name(end.get()), self.disk.now_ms()));
        self.disk.create_dir_all(&dir)?;
        for file in files.iter().filter(|file| file.end() > end) {
            let copy =
                self.disk.open_file(&dir.join(file_name(file.start.get())), OpenMode::CreateOrWrite)?;
            copy.set_len(file.region.len())?;
            for_each_data(&**self.disk, file, end.saturating_sub(file.start), |from, to| {
                let range = from as u64..to as u64;
                let bytes = file.region.view(range.clone()).to_vec();
                file.region.check(range)?;
                copy.write_all_at(from as u64, &bytes)?;
                Ok(to)
            })?;
            copy.sync()?;
        }
        for folder in [&dir, &above, &self.folder.root] {
            self.disk.sync_dir(folder)?;
        }
        Ok(dir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_magic_number_is_found_wherever_the_record_may_start() {
        let mut bytes = vec![0xda; 40];
        bytes[20..24].copy_from_slice(&MAGIC_V2.to_be_bytes());
        for from in 0..=16 {
            assert_eq!(next_magic(&bytes, from, 40), Some(16), "{from}");
        }
        assert_eq!(next_magic(&bytes, 17, 40), None);
        assert_eq!((next_magic(&bytes, 0, 16), next_magic(&bytes, 0, 17)), (None, Some(16)));
        assert_eq!(next_magic(&bytes[..22], 0, 40), None, "it is not there as a whole");
        assert_eq!(next_magic(&[], 0, 0), None);
    }
}
