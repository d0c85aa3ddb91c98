//! Walks the log and finds where it ends.

use std::ops::Range;

use rocketpy_env::Region;
use rocketpy_env::planted::{self, Bug};
use rocketpy_model::PhysicalOffset;
use rocketpy_protocol::record::{BLANK_HEAD_BYTES, CheckMode, RecordCheck, RecordView, check_record};

use crate::error::StoreError;
use crate::keeper::step_trail;
use crate::mapped::MappedFile;

/// What a walk over the log found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scan {
    /// Behind the last sound record.
    pub end: u64,
    /// Sound records that were seen.
    pub records: u64,
    /// When the last of them was stored.
    pub last_stored_at: Option<i64>,
    /// Why the walk ended where it did; `None` at the end of the last file.
    pub reason: Option<String>,
    /// Two starts of records near the end: where the next recovery may begin to check.
    pub trail: [u64; 2],
}

/// Checks every record from `from` on. Those in `checked` must have a checksum of their own; elsewhere only the body's
/// counts, because what stands in the place of a record's own may be a sender's.
///
/// # Errors
/// [`StoreError::InteriorDamage`] when a record before `durable_to` is not sound: it was acknowledged once.
///
/// # Source
/// durability.md R3, R4; spec/store.md 2.8, 5.8.
pub(crate) fn scan<R: Region>(
    files: &[MappedFile<R>],
    from: u64,
    durable_to: u64,
    checked: &Range<u64>,
) -> Result<Scan, StoreError> {
    let mut scan = Scan { end: from, records: 0, last_stored_at: None, reason: None, trail: [from; 2] };
    for file in files.iter().filter(|file| file.end() > from) {
        scan_file(file, &mut scan, checked);
        if scan.reason.is_some() {
            break;
        }
    }
    if scan.end < durable_to && !planted::has(Bug::TruncateInteriorDamage) {
        let reason = scan.reason.unwrap_or_else(|| "the log ends".to_owned());
        return Err(damage(files, scan.end, durable_to, reason));
    }
    Ok(scan)
}

/// The error that names the file and the place.
pub(super) fn damage<R: Region>(
    files: &[MappedFile<R>],
    at: u64,
    durable_to: u64,
    reason: String,
) -> StoreError {
    let file = files.iter().find(|file| (file.start..file.end()).contains(&at)).or(files.last());
    StoreError::InteriorDamage {
        path: file.map(|file| file.path.clone()).unwrap_or_default(),
        physical_offset: PhysicalOffset(at),
        durable_to: PhysicalOffset(durable_to),
        reason,
    }
}

fn scan_file<R: Region>(file: &MappedFile<R>, scan: &mut Scan, checked: &Range<u64>) {
    while scan.end < file.end() {
        let mode = match checked.contains(&scan.end) {
            _ if planted::has(Bug::SkipRecordCheck) => CheckMode::Layout,
            true => CheckMode::RecordRequired,
            false => CheckMode::Body,
        };
        let rest = file.region.view(scan.end - file.start..file.region.len());
        match check_record(rest, mode) {
            // No file ends without a blank record; one that is too short for it is over all the same.
            Err(_) if rest.len() < BLANK_HEAD_BYTES => scan.end = file.end(),
            Err(error) => {
                scan.reason = Some(error.to_string());
                return;
            }
            Ok(RecordCheck::Blank { remaining }) if remaining as usize == rest.len() => scan.end = file.end(),
            Ok(RecordCheck::Blank { remaining }) => {
                scan.reason = Some(format!("a blank record says {remaining} of {} bytes", rest.len()));
                return;
            }
            Ok(RecordCheck::Record(view)) if view.physical_offset.get() != scan.end => {
                scan.reason = Some(format!("the record says that it lies at {}", view.physical_offset));
                return;
            }
            Ok(RecordCheck::Record(view)) => {
                step_trail(&mut scan.trail, scan.end);
                scan.end += view.size() as u64;
                scan.records += 1;
                scan.last_stored_at = Some(view.stored_at_ms);
            }
        }
    }
}

/// The record at the start of a file, if one is there.
pub(crate) fn first_record<R: Region>(file: &MappedFile<R>) -> Option<RecordView<'_>> {
    record_in(file, file.start)
}

/// The record at an offset of a file, if one is there. Its layout is checked, its checksums are not.
pub(crate) fn record_in<R: Region>(file: &MappedFile<R>, offset: u64) -> Option<RecordView<'_>> {
    let bytes = file.region.view(offset - file.start..file.region.written());
    let view = RecordView::parse(bytes).ok()?;
    (view.physical_offset.get() == offset).then_some(view)
}
