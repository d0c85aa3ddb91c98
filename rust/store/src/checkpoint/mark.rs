//! The durable mark: what is known to be durable, by offsets.

use std::ops::Range;

use rocketpy_model::PhysicalOffset;

use super::Timestamps;
use crate::index::{Geometry, IndexMark};

/// Where our two marks lie. Each has a disk sector of its own, so that a torn write damages one at most.
pub(super) const MARK_AT: [u64; 2] = [1024, 1536];
pub(super) const MARK_BYTES: usize = 156;
const MARK_NAME: [u8; 7] = *b"RPYMARK";
/// The version that [`Mark::encode`] writes.
pub(super) const MARK_VERSION: u8 = 4;
/// An older version without `log_from`.
pub(super) const FORMER_VERSION: u8 = 3;
/// Marks of this version and later ones say that files of the store have a format that older programs cannot read. A mark between
/// [`MARK_VERSION`] and this one only has more fields, behind those of version 4 and with a checksum of their own.
pub(super) const CHANGED_FORMAT: u8 = 128;
/// Where the part of the index, the copy of the timestamps, the start of the log and the checksum lie in a mark.
const INDEX_AT: usize = 68;
const TIMES_AT: usize = 104;
pub(super) const LOG_FROM_AT: usize = TIMES_AT + Timestamps::BYTES;
const CHECK_AT: usize = LOG_FROM_AT + 8;

/// What is known to be durable, by offsets.
///
/// # Layout
/// 156 bytes, big-endian, twice, at 1024 and 1536 of the checkpoint; the valid one with the higher generation counts.
///
/// | bytes | field |
/// |---|---|
/// | 0..8 | `RPYMARK`, version 4 |
/// | 8..16 | `generation`, one more at every write |
/// | 16..24 | `verify_from`: start of a record, recovery checks from here |
/// | 24..32 | `queues_to`: the consume queues are durable for all records before |
/// | 32..40 | `entries`: sum of the maximum offsets of all queues at `queues_to` |
/// | 40..48 | `log_to`: the log is durable before this |
/// | 48..56 | `checked_from` |
/// | 56..64 | `firsts`: sum of the first entries that the queues' files have room for |
/// | 64..68 | flags: 1 for `checked_from` counts, 2 for `closed`, 4 for an index is kept |
/// | 68..76 | `index.to`: the index is durable for all keys of records before |
/// | 76..84 | `index.file`: the name of its last file as a number |
/// | 84..88 | `index.next_entry`: number of the next entry in it |
/// | 88..96 | `index.keys`: keys in all its files |
/// | 96..104 | slots and entry numbers of its files |
/// | 104..144 | the 40 bytes of [`Timestamps`] that were written with it |
/// | 144..152 | `log_from`: the log starts here or before |
/// | 152..156 | CRC-32 of bytes 0..152 |
///
/// Version 3 has no `log_from`, and its CRC at 144. Versions 5 to 127 keep these 156 bytes, and may have fields behind them. When the
/// newest mark has another version, the store is not opened.
///
/// A mark whose copy of the timestamps differs from the file's is void: another program has written the file since.
///
/// # Source
/// docs/durability.md R4 and R5.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mark {
    /// Grows by one at every write.
    pub generation: u64,
    /// Start of a record: recovery checks from here.
    pub verify_from: PhysicalOffset,
    /// The consume queues are durable for all records before this.
    pub queues_to: PhysicalOffset,
    /// Sum of the maximum offsets of all queues at `queues_to`.
    pub entries: u64,
    /// Sum of the first entries of the first files of all queues. It grows when a first file is lost.
    pub firsts: u64,
    /// The log is durable before this.
    pub log_to: PhysicalOffset,
    /// From here on every record has a checksum of its own, and one without is damaged. `None` when some records have
    /// none.
    pub checked_from: Option<PhysicalOffset>,
    /// The store was closed with this mark: what is behind `log_to` was written by another program.
    pub closed: bool,
    /// `None` when no index is kept, or its files are not to be trusted.
    pub index: Option<IndexMark>,
    /// No log file that starts here or later was removed; `None` when that is not known.
    pub log_from: Option<PhysicalOffset>,
}

/// In place of the sum of all entries: no queue counts.
pub const NO_SUM: u64 = u64::MAX;

/// No part of the log.
pub const NOWHERE: Range<PhysicalOffset> = PhysicalOffset::ZERO..PhysicalOffset::ZERO;

const HAS_CHECKED_FROM: u32 = 1;
const IS_CLOSED: u32 = 2;
const HAS_INDEX: u32 = 4;

impl Mark {
    /// The part of the log in which a record without a checksum of its own is damaged. `dirty` says that the last
    /// process did not close the store.
    pub fn checked(&self, dirty: bool) -> Range<PhysicalOffset> {
        let Some(from) = self.checked_from else { return NOWHERE };
        from..if self.closed && dirty { self.log_to } else { PhysicalOffset::MAX }
    }

    pub(super) fn encode(&self, timestamps: &[u8; Timestamps::BYTES]) -> [u8; MARK_BYTES] {
        let mut bytes = [0; MARK_BYTES];
        bytes[..7].copy_from_slice(&MARK_NAME);
        bytes[7] = MARK_VERSION;
        let fields =
            [self.generation, self.verify_from.get(), self.queues_to.get(), self.entries, self.log_to.get()];
        for (slot, field) in bytes[8..48].chunks_exact_mut(8).zip(fields) {
            slot.copy_from_slice(&field.to_be_bytes());
        }
        bytes[48..56].copy_from_slice(&self.checked_from.unwrap_or_default().get().to_be_bytes());
        bytes[56..64].copy_from_slice(&self.firsts.to_be_bytes());
        let flags = u32::from(self.checked_from.is_some()) * HAS_CHECKED_FROM
            + u32::from(self.closed) * IS_CLOSED
            + u32::from(self.index.is_some()) * HAS_INDEX;
        bytes[64..INDEX_AT].copy_from_slice(&flags.to_be_bytes());
        if let Some(index) = &self.index {
            bytes[INDEX_AT..TIMES_AT].copy_from_slice(&encode_index(index));
        }
        bytes[TIMES_AT..LOG_FROM_AT].copy_from_slice(timestamps);
        let log_from = self.log_from.unwrap_or(PhysicalOffset::MAX);
        bytes[LOG_FROM_AT..CHECK_AT].copy_from_slice(&log_from.get().to_be_bytes());
        let check = crc32fast::hash(&bytes[..CHECK_AT]);
        bytes[CHECK_AT..].copy_from_slice(&check.to_be_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8], timestamps: &[u8]) -> Option<Self> {
        let check_at = match mark_version(bytes)? {
            MARK_VERSION..CHANGED_FORMAT => CHECK_AT,
            FORMER_VERSION => LOG_FROM_AT,
            _ => return None,
        };
        let check = u32::from_be_bytes(array(&bytes[check_at..]));
        let is_whole = crc32fast::hash(&bytes[..check_at]) == check;
        if !is_whole || bytes[TIMES_AT..LOG_FROM_AT] != timestamps[..Timestamps::BYTES] {
            return None;
        }
        let number = |at: usize| u64::from_be_bytes(array(&bytes[at..]));
        let offset = |at: usize| PhysicalOffset(number(at));
        let log_from = (check_at == CHECK_AT).then(|| offset(LOG_FROM_AT));
        let flags = u32::from_be_bytes(array(&bytes[64..]));
        let mark = Self {
            generation: number(8),
            verify_from: offset(16),
            queues_to: offset(24),
            entries: number(32),
            firsts: number(56),
            log_to: offset(40),
            checked_from: (flags & HAS_CHECKED_FROM != 0).then(|| offset(48)),
            closed: flags & IS_CLOSED != 0,
            index: (flags & HAS_INDEX != 0).then(|| decode_index(&bytes[INDEX_AT..])),
            log_from: log_from.filter(|&from| from != PhysicalOffset::MAX),
        };
        mark.is_in_order().then_some(mark)
    }

    /// Whether the log had no record and no file, wherever it was to begin: retention leaves the last file of a log.
    pub(crate) fn is_of_empty_log(&self) -> bool {
        self.log_from.unwrap_or_default() == self.log_to
    }

    /// Whether `verify_from`, the queues and the index lie within the durable log.
    pub(super) fn is_in_order(&self) -> bool {
        let index_fits = self.index.is_none_or(|index| index.to <= self.log_to);
        self.verify_from <= self.queues_to && self.queues_to <= self.log_to && index_fits
    }
}

/// The version of a mark; `None` where no mark was ever written.
pub(super) fn mark_version(bytes: &[u8]) -> Option<u8> {
    (bytes[..7] == MARK_NAME).then_some(bytes[7])
}

fn encode_index(index: &IndexMark) -> [u8; TIMES_AT - INDEX_AT] {
    let mut bytes = [0; TIMES_AT - INDEX_AT];
    bytes[..8].copy_from_slice(&index.to.get().to_be_bytes());
    bytes[8..16].copy_from_slice(&index.file.to_be_bytes());
    bytes[16..20].copy_from_slice(&index.next_entry.to_be_bytes());
    bytes[20..28].copy_from_slice(&index.keys.to_be_bytes());
    bytes[28..32].copy_from_slice(&index.geometry.slots.to_be_bytes());
    bytes[32..].copy_from_slice(&index.geometry.entries.to_be_bytes());
    bytes
}

fn decode_index(bytes: &[u8]) -> IndexMark {
    let long = |at: usize| u64::from_be_bytes(array(&bytes[at..]));
    let int = |at: usize| u32::from_be_bytes(array(&bytes[at..]));
    let geometry = Geometry { slots: int(28), entries: int(32) };
    IndexMark { to: PhysicalOffset(long(0)), file: long(8), next_entry: int(16), keys: long(20), geometry }
}

pub(super) fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[..N]);
    array
}

/// The marks of a checkpoint page, for tests that damage and forge them.
#[cfg(feature = "mark-page")]
pub mod mark_page {
    use std::ops::Range;

    use rocketpy_model::PhysicalOffset;

    use super::{CHECK_AT, INDEX_AT, LOG_FROM_AT, MARK_AT, MARK_BYTES, MARK_NAME, array, decode_index};

    /// Where the two marks lie.
    #[must_use]
    pub fn places() -> [Range<usize>; 2] {
        MARK_AT.map(|at| at as usize..at as usize + MARK_BYTES)
    }

    /// Where the version of a mark stands, from its start on.
    pub const VERSION_AT: usize = MARK_NAME.len();

    /// Takes both marks away, as if another program had made the file.
    pub fn erase(page: &mut [u8]) {
        for place in places() {
            page[place].fill(0);
        }
    }

    /// The highest `log_from` of the marks, sound or not; 0 without a mark.
    #[must_use]
    pub fn log_from(page: &[u8]) -> PhysicalOffset {
        let stated = places().into_iter().filter_map(|place| page.get(place.start + LOG_FROM_AT..place.end));
        stated.map(|bytes| PhysicalOffset(u64::from_be_bytes(array(bytes)))).max().unwrap_or_default()
    }

    /// Moves the start of the log in every mark that is there, as retention does.
    pub fn set_log_from(page: &mut [u8], log_from: PhysicalOffset) {
        edit_marks(page, |mark| {
            mark[LOG_FROM_AT..CHECK_AT].copy_from_slice(&log_from.get().to_be_bytes());
        });
    }

    /// Gives every mark another version, as another release of RocketPy writes them.
    pub fn set_version(page: &mut [u8], version: u8) {
        edit_marks(page, |mark| mark[VERSION_AT] = version);
    }

    fn edit_marks(page: &mut [u8], edit: impl Fn(&mut [u8])) {
        for place in places() {
            let mark = &mut page[place];
            if mark.starts_with(&MARK_NAME) {
                edit(mark);
                let check = crc32fast::hash(&mark[..CHECK_AT]);
                mark[CHECK_AT..].copy_from_slice(&check.to_be_bytes());
            }
        }
    }

    /// The last index file of the newer mark, by its name, and the number of the next entry in it.
    #[must_use]
    pub fn index_end(page: &[u8]) -> (u64, u32) {
        let generation = |place: &Range<usize>| u64::from_be_bytes(array(&page[place.start + 8..]));
        let newer = places().into_iter().max_by_key(generation).unwrap_or_default();
        let index = decode_index(&page[newer.start + INDEX_AT..]);
        (index.file, index.next_entry)
    }
}
