//! Walks the log and finds where it ends.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use rocketpy_env::planted::{self, Bug};
use rocketpy_env::{EnvError, Region};
use rocketpy_model::PhysicalOffset;
use rocketpy_protocol::record::{
    BLANK_HEAD_BYTES, CheckMode, MAGIC_BLANK, RecordCheck, RecordView, check_record,
};

use crate::dispatch::Trail;
use crate::error::StoreError;
use crate::mapped::MappedFile;

/// What a walk over the log found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scan {
    /// The end of the last sound record.
    pub end: PhysicalOffset,
    /// Sound records that were seen.
    pub records: u64,
    /// Store time of the last of them.
    pub last_stored_at: Option<i64>,
    /// Why the walk ended where it did; `None` at the end of the last file.
    pub reason: Option<String>,
    /// Two starts of records near the end: where the next recovery may begin to check.
    pub trail: Trail,
}

/// Checks every record from `from` on. Those in `checked` must have a checksum of their own. Elsewhere only the body's
/// checksum is compared, because a property in the place of the record's own may come from a sender.
///
/// # Errors
/// [`StoreError::InteriorDamage`] when a record before `durable_to` is not sound: it was acknowledged once.
///
/// # Source
/// docs/durability.md R3, R4; docs/reference/store-format.md 2.8, 5.8.
pub(crate) fn scan<R: Region>(
    files: &[MappedFile<R>],
    from: PhysicalOffset,
    durable_to: PhysicalOffset,
    checked: &Range<PhysicalOffset>,
) -> Result<Scan, StoreError> {
    let mut scan =
        Scan { end: from, records: 0, last_stored_at: None, reason: None, trail: Trail::new(from) };
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
    assert!(scan.end >= from, "a walk goes forward");
    Ok(scan)
}

/// The error that names the file and the place.
pub(super) fn damage<R: Region>(
    files: &[MappedFile<R>],
    at: PhysicalOffset,
    durable_to: PhysicalOffset,
    reason: String,
) -> StoreError {
    let file = files.iter().find(|file| file.holds(at)).or(files.last());
    StoreError::InteriorDamage {
        path: file.map(|file| file.path.clone()).unwrap_or_default(),
        physical_offset: at,
        durable_to,
        reason,
    }
}

fn scan_file<R: Region>(file: &MappedFile<R>, scan: &mut Scan, checked: &Range<PhysicalOffset>) {
    while scan.end < file.end() {
        let rest = file.region.view(scan.end - file.start..file.region.len());
        match look(rest, scan.end, rest.len() as u64, mode_at(scan.end, checked)) {
            Ok(Look::FileEnd) => scan.end = file.end(),
            Ok(Look::Record(view)) => {
                scan.trail.step(scan.end);
                scan.end += view.size() as u64;
                assert!(scan.end <= file.end(), "a record lies in one file");
                scan.records += 1;
                scan.last_stored_at = Some(view.stored_at_ms);
            }
            Err(reason) => {
                scan.reason = Some(reason);
                return;
            }
        }
    }
}

/// How the record at a place is checked.
fn mode_at(at: PhysicalOffset, checked: &Range<PhysicalOffset>) -> CheckMode {
    match checked.contains(&at) {
        _ if planted::has(Bug::SkipRecordCheck) => CheckMode::Layout,
        true => CheckMode::RecordRequired,
        false => CheckMode::Body,
    }
}

/// Checks records of a file that were sound and have just been written again: a page that was falsely clean may have left the memory
/// between the first check and the write, and then old bytes were written. What is dirty stays in memory until the flush.
///
/// # Errors
/// [`EnvError::Unreadable`] with the first record that is not what it was.
///
/// # Source
/// docs/durability.md R1.
pub(crate) fn check_again<R: Region>(
    file: &MappedFile<R>,
    range: Range<u64>,
    checked: &Range<PhysicalOffset>,
) -> Result<(), EnvError> {
    let mut at = range.start;
    while at < range.end {
        let place = file.start + at;
        let bytes = file.region.view(at..file.region.written());
        match look(bytes, place, file.region.len() - at, mode_at(place, checked)) {
            Ok(Look::FileEnd) => break,
            Ok(Look::Record(view)) => at += view.size() as u64,
            Err(reason) => {
                let source = io::Error::other(format!("the record changed after it was checked: {reason}"));
                return Err(EnvError::Unreadable {
                    path: file.path.clone(),
                    offset: at,
                    source: Arc::new(source),
                });
            }
        }
    }
    Ok(())
}

/// Content of the log at a physical offset.
#[derive(Debug)]
pub enum Look<'a> {
    /// A sound record that says that it is there.
    Record(RecordView<'a>),
    /// The filler at the end of a file: the log continues in the next one.
    FileEnd,
}

/// Checks the place `at` of the log, `left` bytes before the end of its file. `bytes` begin there and hold the record whole.
///
/// # Errors
/// Why it is neither a sound record nor the end of a file.
///
/// # Source
/// docs/reference/store-format.md 2.4, 2.8.
pub fn look(bytes: &[u8], at: PhysicalOffset, left: u64, mode: CheckMode) -> Result<Look<'_>, String> {
    // Every file ends with a blank record. A rest that is too short for one ends the file too.
    if left < BLANK_HEAD_BYTES as u64 {
        return Ok(Look::FileEnd);
    }
    if let Some(remaining) = blank_remaining(bytes) {
        return match u64::from(remaining) == left {
            true => Ok(Look::FileEnd),
            false => {
                Err(format!("a blank record has the length {remaining}, {left} bytes are left in its file"))
            }
        };
    }
    match check_record(bytes, mode) {
        Ok(RecordCheck::Record(view)) if view.physical_offset == at => Ok(Look::Record(view)),
        Ok(RecordCheck::Record(view)) => {
            Err(format!("the record contains another physical offset: {}", view.physical_offset))
        }
        Ok(RecordCheck::Blank { .. }) => unreachable!("a blank record was told above"),
        Err(error) => Err(error.to_string()),
    }
}

/// How many bytes the blank record at the start of `bytes` covers, if one is there.
fn blank_remaining(bytes: &[u8]) -> Option<u32> {
    let (remaining, magic) = bytes.get(..BLANK_HEAD_BYTES)?.split_first_chunk()?;
    (*magic == MAGIC_BLANK.to_be_bytes()).then(|| u32::from_be_bytes(*remaining))
}

/// The record at the start of a file, if one is there.
pub(crate) fn first_record<R: Region>(file: &MappedFile<R>) -> Option<RecordView<'_>> {
    record_in(file, file.start)
}

/// The record at an offset of a file, if one is there. Its layout is checked, its checksums are not.
pub(crate) fn record_in<R: Region>(file: &MappedFile<R>, offset: PhysicalOffset) -> Option<RecordView<'_>> {
    let view = RecordView::parse(file.written_from(offset)).ok()?;
    (view.physical_offset == offset).then_some(view)
}
