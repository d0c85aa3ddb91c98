//! Checks bytes that were copied from another store's log before they go into this one.

use std::collections::HashMap;

use rocketpy_model::{PhysicalOffset, QueueOffset};
use rocketpy_protocol::record::{
    BLANK_HEAD_BYTES, CRC_PROPERTY_BYTES, CheckMode, FIXED_BYTES_V1, MAGIC_BLANK, MAGIC_V1, MAGIC_V2,
    RecordCheck, RecordError, RecordHead, RecordView, check_record,
};

use crate::checkpoint::is_possible_ms;
use crate::error::ReplicateError;
use crate::queue::entry::ENTRY_BYTES;
use crate::queue::table::QueueTable;
use crate::record::counts_in_queue;

/// No record is longer: the largest `maxMessageSize` of a broker, and room for topic and properties.
const LONGEST_RECORD: usize = (1 << 30) + (128 << 10);

/// Copied bytes of one file of the log.
#[derive(Debug)]
pub(super) struct Piece<'a> {
    /// Where they lie.
    pub at: PhysicalOffset,
    pub records: Vec<RecordView<'a>>,
    /// The rest of the file, when they reach to its end.
    pub blank: &'a [u8],
}

/// What is at the start of bytes, by their first fields.
enum Head {
    /// A record or a blank record, all of which is there.
    Whole(usize),
    /// Its end is not there yet.
    Partial,
    /// No record begins like this.
    Nonsense,
}

fn head_of(bytes: &[u8]) -> Head {
    let Some((&[a, b, c, d, magic @ ..], _)) = bytes.split_first_chunk::<BLANK_HEAD_BYTES>() else {
        return Head::Partial;
    };
    let size = u32::from_be_bytes([a, b, c, d]) as usize;
    let least = match u32::from_be_bytes(magic) {
        MAGIC_BLANK => BLANK_HEAD_BYTES,
        MAGIC_V1 | MAGIC_V2 => FIXED_BYTES_V1,
        _ => return Head::Nonsense,
    };
    if !(least..=LONGEST_RECORD).contains(&size) {
        return Head::Nonsense;
    }
    if size <= bytes.len() {
        return Head::Whole(size);
    }
    let is_record = least == FIXED_BYTES_V1;
    if is_record && states_another_size(bytes, size) { Head::Nonsense } else { Head::Partial }
}

/// Whether the length of a record's body, if it is there, contradicts the length of the record.
fn states_another_size(bytes: &[u8], size: usize) -> bool {
    /// Maximum length of topic and properties after the body.
    const MOST_TEXTS: usize = 2 * (2 + i16::MAX as usize);
    let length_at = RecordHead::of(bytes).map(|head| head.body_length_at());
    let length = length_at.and_then(|at| Some((at, bytes.get(at..)?.first_chunk()?)));
    length.is_some_and(|(at, length)| {
        let body_end = (at + 4).saturating_add(u32::from_be_bytes(*length) as usize);
        !(body_end..=body_end.saturating_add(MOST_TEXTS)).contains(&size)
    })
}

/// How many of the bytes, which begin with a record of a log or with a blank record, are whole ones. The rest is the start of a
/// record whose end is still to come: keep it, and put what comes after it.
///
/// Where no record can begin, or one that is longer than any may be, all bytes count: [`crate::Store::append_replicated`] says what is
/// wrong with them.
#[must_use]
pub fn whole_records(bytes: &[u8]) -> usize {
    let mut at = 0;
    loop {
        match head_of(&bytes[at..]) {
            Head::Whole(size) => at += size,
            Head::Nonsense if at == 0 => return bytes.len(),
            Head::Partial | Head::Nonsense => return at,
        }
    }
}

/// Checks copied bytes that begin at `at` and cuts them at the ends of files. `file_end` is the end of the file that holds `at`.
/// `has_checks` says that all records so far had a checksum of their own, and is taken back at the first that has none.
///
/// # Errors
/// [`ReplicateError::PartialRecord`], [`ReplicateError::Damage`].
///
/// # Source
/// docs/durability.md R3; docs/reference/store-format.md 2.4, 2.8.
pub(super) fn pieces<'a>(
    bytes: &'a [u8],
    mut at: PhysicalOffset,
    mut file_end: PhysicalOffset,
    file_size: u64,
    has_checks: &mut bool,
) -> Result<Vec<Piece<'a>>, ReplicateError> {
    let mut pieces = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let mut piece = Piece { at, records: Vec::new(), blank: &[] };
        while !rest.is_empty() && at < file_end {
            let size = match next(rest, at, file_end - at, has_checks)? {
                Next::Record(view) => {
                    piece.records.push(view);
                    view.size()
                }
                Next::FileEnd(blank) => {
                    piece.blank = blank;
                    blank.len()
                }
            };
            at += size as u64;
            rest = &rest[size..];
        }
        pieces.push(piece);
        file_end += file_size;
    }
    Ok(pieces)
}

enum Next<'a> {
    Record(RecordView<'a>),
    FileEnd(&'a [u8]),
}

/// The record at the start of `bytes`, `left` bytes before the end of its file, or the end of the file.
fn next<'a>(
    bytes: &'a [u8],
    at: PhysicalOffset,
    left: u64,
    has_checks: &mut bool,
) -> Result<Next<'a>, ReplicateError> {
    let damage = |reason: String| ReplicateError::Damage { physical_offset: at, reason };
    let partial = || ReplicateError::PartialRecord { physical_offset: at, size_bytes: bytes.len() };
    if left < BLANK_HEAD_BYTES as u64 {
        return bytes.get(..left as usize).map(Next::FileEnd).ok_or_else(partial);
    }
    let size = match head_of(bytes) {
        Head::Whole(size) => size,
        Head::Partial => return Err(partial()),
        Head::Nonsense => return Err(damage("no record starts there".to_owned())),
    };
    let record = &bytes[..size];
    let checked = match check_record(record, CheckMode::RecordRequired) {
        Err(RecordError::NoRecordCrc) if *has_checks && ends_nearly_in_a_check(record) => {
            return Err(damage("its record checksum is wrong".to_owned()));
        }
        Err(RecordError::NoRecordCrc) => {
            *has_checks = false;
            check_record(record, CheckMode::Body)
        }
        // Among records without a checksum of their own, a sender may have put something in its place.
        Err(RecordError::RecordCrc { .. }) if !*has_checks => check_record(record, CheckMode::Body),
        other => other,
    };
    match checked.map_err(|error| damage(error.to_string()))? {
        RecordCheck::Blank { .. } if size as u64 == left => Ok(Next::FileEnd(record)),
        RecordCheck::Blank { .. } => {
            Err(damage(format!("a blank record has the length {size}, {left} bytes are left in its file")))
        }
        RecordCheck::Record(_) if size as u64 > left => {
            Err(damage(format!("the record exceeds its file, which has {left} bytes left")))
        }
        RecordCheck::Record(view) if view.physical_offset != at => {
            Err(damage(format!("the record contains another physical offset: {}", view.physical_offset)))
        }
        RecordCheck::Record(view) if !is_possible_ms(view.stored_at_ms) => {
            Err(damage(format!("its store time is impossible: {}", view.stored_at_ms)))
        }
        RecordCheck::Record(view) => Ok(Next::Record(view)),
    }
}

/// Whether a record ends in what was its checksum before some bytes of it changed: a record that never had one ends otherwise.
fn ends_nearly_in_a_check(record: &[u8]) -> bool {
    /// At least this many bytes are as they have to be.
    const LEAST: usize = CRC_PROPERTY_BYTES * 3 / 4;
    const DIGIT: u8 = b'0';
    const SHAPE: &[u8; CRC_PROPERTY_BYTES] = b"__CRC32#\x010000000000\x02";
    let Some((_, end)) = record.split_last_chunk::<CRC_PROPERTY_BYTES>() else { return false };
    let fits = |&(&found, &shape): &(&u8, &u8)| found == shape || shape == DIGIT && found.is_ascii_digit();
    end.iter().zip(SHAPE).filter(fits).count() >= LEAST
}

/// Checks that dispatch finds a place for each record in its queue, also when all queues are rebuilt from the log.
///
/// # Errors
/// [`ReplicateError::QueueOffset`].
///
/// # Source
/// docs/reference/store-format.md 3.2.
pub(super) fn check_queue_offsets(
    pieces: &[Piece<'_>],
    queues: &QueueTable,
    entries_a_file: u64,
) -> Result<(), ReplicateError> {
    let highest = i64::MAX as u64 / ENTRY_BYTES - entries_a_file;
    let mut nexts: HashMap<(&str, u32), QueueOffset, ahash::RandomState> = HashMap::default();
    let records = pieces.iter().flat_map(|piece| &piece.records);
    for view in records.filter(|view| counts_in_queue(view.sys_flag)) {
        let known = || queues.get(view.topic, view.queue_id).map_or(QueueOffset::ZERO, |queue| queue.next());
        let next = nexts.entry((view.topic, view.queue_id)).or_insert_with(known);
        let leaves_hole =
            *next > QueueOffset::ZERO && view.queue_offset.saturating_sub(*next) > entries_a_file;
        if view.queue_offset.get() > highest || leaves_hole {
            return Err(ReplicateError::QueueOffset {
                topic: view.topic.into(),
                queue_id: view.queue_id,
                queue_offset: view.queue_offset,
                expected: *next,
                physical_offset: view.physical_offset,
            });
        }
        *next = view.queue_offset + 1; // a lower one starts the queue again
    }
    Ok(())
}
