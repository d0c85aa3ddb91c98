//! The checkpoint file: Apache's timestamps, and our durable mark in the part that Apache leaves alone.

use std::ops::Range;
use std::path::{Path, PathBuf};

use rocketpy_env::failpoint::{self, Point};
use rocketpy_env::{Disk, DiskFile, EnvError, OpenMode};
use rocketpy_model::PhysicalOffset;
pub(crate) use rocketpy_protocol::disk::Checkpoint as Timestamps;

use crate::error::StoreError;
use crate::index::{Geometry, IndexMark};
use crate::queue::files::FlushFailure;

/// Where our two marks lie: each in a disk sector of its own, so that a torn write spoils one at most.
const MARK_AT: [u64; 2] = [1024, 1536];
const MARK_BYTES: usize = 156;
const MARK_NAME: [u8; 7] = *b"RPYMARK";
/// What [`Mark::encode`] writes.
const MARK_VERSION: u8 = 4;
/// Without the start of the log.
const FORMER_VERSION: u8 = 3;
/// Where the part of the index, the copy of the timestamps, the start of the log and the checksum lie in a mark.
const INDEX_AT: usize = 68;
const TIMES_AT: usize = 104;
const LOG_FROM_AT: usize = TIMES_AT + Timestamps::BYTES;
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
/// Version 3 has no `log_from`, and its CRC at 144. When the newest mark has another version, the store is
/// not opened.
///
/// A mark whose copy of the timestamps differs from the file's is void: another writer was there since.
///
/// # Source
/// docs/durability.md R4 and R5.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Mark {
    pub generation: u64,
    pub verify_from: PhysicalOffset,
    pub queues_to: PhysicalOffset,
    pub entries: u64,
    /// Sum of the first entries of the first files of all queues: a first file that is lost makes it larger.
    pub firsts: u64,
    pub log_to: PhysicalOffset,
    /// Every record from here on has a checksum of its own: one without is damaged. `None` when not all have.
    pub checked_from: Option<PhysicalOffset>,
    /// The store was closed with this mark: what lies behind `log_to` was written by another program.
    pub closed: bool,
    /// `None` when no index is kept, or what there is does not count.
    pub index: Option<IndexMark>,
    /// No file of the log that starts here or later was removed; `None` when that is not known.
    pub log_from: Option<PhysicalOffset>,
}

/// No part of the log.
pub(crate) const NOWHERE: Range<PhysicalOffset> = PhysicalOffset::ZERO..PhysicalOffset::ZERO;

const HAS_CHECKED_FROM: u32 = 1;
const IS_CLOSED: u32 = 2;
const HAS_INDEX: u32 = 4;

impl Mark {
    /// The part of the log in which a record without a checksum of its own is damaged; `dirty` when the last process did
    /// not close the store.
    pub(crate) fn checked(&self, dirty: bool) -> Range<PhysicalOffset> {
        let Some(from) = self.checked_from else { return NOWHERE };
        from..if self.closed && dirty { self.log_to } else { PhysicalOffset::MAX }
    }

    fn encode(&self, timestamps: &[u8; Timestamps::BYTES]) -> [u8; MARK_BYTES] {
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

    fn decode(bytes: &[u8], timestamps: &[u8]) -> Option<Self> {
        let check_at = match mark_version(bytes)? {
            MARK_VERSION => CHECK_AT,
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
        let index_fits = mark.index.is_none_or(|index| index.to <= mark.log_to);
        (mark.verify_from <= mark.queues_to && mark.queues_to <= mark.log_to && index_fits).then_some(mark)
    }
}

/// The version of a mark; `None` where no mark was ever written.
fn mark_version(bytes: &[u8]) -> Option<u8> {
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

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[..N]);
    array
}

/// What a checkpoint file says. A missing file says nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Checkpoint {
    pub timestamps: Timestamps,
    /// `None` when there is no mark or another writer came after it.
    pub mark: Option<Mark>,
    /// The version of a mark that this code cannot read, when it reads none that is newer.
    pub unknown_version: Option<u8>,
}

/// The last millisecond of the year 9999: what lies behind it is no time.
const LAST_MS: i64 = 253_402_300_799_999;

impl Checkpoint {
    /// A time in it that nobody can have written.
    pub(crate) fn impossible_ms(&self) -> Option<i64> {
        let Timestamps { physic_msg_at_ms, logics_msg_at_ms, index_msg_at_ms, .. } = self.timestamps;
        let times = [physic_msg_at_ms, logics_msg_at_ms, index_msg_at_ms];
        times.into_iter().find(|at_ms| !(0..=LAST_MS).contains(at_ms))
    }

    /// Refuses what another version of this code wrote last.
    pub(crate) fn check_version(&self, path: &Path) -> Result<(), StoreError> {
        match self.unknown_version {
            Some(found) => {
                Err(StoreError::UnknownVersion { path: path.to_path_buf(), found, known: MARK_VERSION })
            }
            None => Ok(()),
        }
    }

    /// Reads the file; a missing or empty one counts as all zero.
    pub(crate) fn read<D: Disk>(disk: &D, path: &Path) -> Result<Self, EnvError> {
        let mut page = match disk.read(path, 1 << 20) {
            Err(error) if error.is_not_found() => Vec::new(),
            other => other?,
        };
        page.resize(Timestamps::FILE_BYTES, 0);
        Ok(Self::decode(&page))
    }

    fn decode(page: &[u8]) -> Self {
        let marks = MARK_AT.map(|at| Mark::decode(&page[at as usize..], page));
        let mark = marks.into_iter().flatten().max_by_key(|mark| mark.generation);
        let unknown_version = MARK_AT.into_iter().find_map(|at| {
            let bytes = &page[at as usize..];
            let version = mark_version(bytes)?;
            let is_newer = mark.is_none_or(|mark| mark.generation < u64::from_be_bytes(array(&bytes[8..])));
            (!(FORMER_VERSION..=MARK_VERSION).contains(&version) && is_newer).then_some(version)
        });
        Self { timestamps: Timestamps::decode(&array(page)), mark, unknown_version }
    }
}

/// Writes the checkpoint file.
#[derive(Debug)]
pub(crate) struct CheckpointFile<D: Disk> {
    file: D::File,
    last: Checkpoint,
    generation: u64,
    /// Which of the two places holds the mark of `last`.
    last_at: usize,
}

impl<D: Disk> CheckpointFile<D> {
    /// Opens the file, made in its full length when missing.
    pub(crate) fn open(disk: &D, path: &Path) -> Result<Self, EnvError> {
        let last = Checkpoint::read(disk, path)?;
        let file = disk.open_file(path, OpenMode::CreateOrWrite)?;
        if file.len()? < Timestamps::FILE_BYTES as u64 {
            let mut page = vec![0; Timestamps::FILE_BYTES];
            page[..Timestamps::BYTES].copy_from_slice(&last.timestamps.encode());
            file.write_all_at(0, &page)?; // real blocks: a full disk can not hit later writes
            file.sync()?;
            disk.sync_dir(path.parent().unwrap_or(&PathBuf::from(".")))?;
        }
        // A void mark keeps its place in the count: a generation is never used twice.
        let page = disk.read(path, 1 << 20)?;
        let generation = MARK_AT.map(|at| u64::from_be_bytes(array(&page[at as usize + 8..])));
        let last_at = usize::from(last.mark.is_none_or(|mark| mark.generation == generation[1]));
        Ok(Self { file, last, generation: generation[0].max(generation[1]) % (u64::MAX / 2), last_at })
    }

    /// Writes the file in place as it is, durably: what the last process left in memory may never have got to the disk, and
    /// the flush that failed was told to nobody else.
    ///
    /// A power cut in the midst of it leaves a pair whole: at most one sector is not yet as it is in memory.
    ///
    /// # Source
    /// docs/durability.md R1.
    pub(crate) fn write_again(&self) -> Result<(), EnvError> {
        let mut page = vec![0; Timestamps::FILE_BYTES];
        self.file.read_exact_at(0, &mut page)?;
        self.file.write_all_at(0, &page)?;
        self.file.sync()
    }

    /// The mark that counts.
    pub(crate) fn mark(&self) -> Option<&Mark> {
        self.last.mark.as_ref()
    }

    /// The timestamps as they were last read or written.
    pub(crate) fn timestamps(&self) -> Timestamps {
        self.last.timestamps
    }

    /// Writes timestamps and mark; does nothing when both are as before.
    ///
    /// # Durability
    /// On return both survive a power loss. A power loss before leaves the former pair whole: the new mark is durable
    /// before the timestamps that make it valid are written. A failure leaves the former pair as well, and the next try
    /// takes the same place.
    pub(crate) fn write(&mut self, timestamps: Timestamps, mark: Mark) -> Result<(), FlushFailure> {
        use FlushFailure::{Failed, NotTried};
        let mark = Mark { generation: self.last.mark.map_or(0, |last| last.generation), ..mark };
        if self.last == (Checkpoint { timestamps, mark: Some(mark), unknown_version: None }) {
            return Ok(());
        }
        let generation = self.generation + 1;
        let mark = Mark { generation, ..mark };
        let bytes = timestamps.encode();
        // Never over the mark that counts, whatever generation a void one beside it has.
        let to = 1 - self.last_at;
        self.file.write_all_at(MARK_AT[to], &mark.encode(&bytes)).map_err(NotTried)?;
        self.file.sync().map_err(Failed)?;
        if timestamps != self.last.timestamps {
            failpoint::reach(Point::Checkpoint);
            self.file.write_all_at(0, &bytes).map_err(NotTried)?;
            self.file.sync().map_err(Failed)?;
        }
        (self.generation, self.last_at) = (generation, to);
        self.last = Checkpoint { timestamps, mark: Some(mark), unknown_version: None };
        Ok(())
    }

    /// Writes down that nothing of an index is known to be durable, in no program's words.
    pub(crate) fn forget_index(&mut self) -> Result<(), FlushFailure> {
        let timestamps = Timestamps { index_msg_at_ms: 0, ..self.last.timestamps };
        match self.last.mark {
            Some(mark) => self.write(timestamps, Mark { index: None, ..mark }),
            None if timestamps == self.last.timestamps => Ok(()),
            None => {
                self.file.write_all_at(0, &timestamps.encode()).map_err(FlushFailure::NotTried)?;
                self.file.sync().map_err(FlushFailure::Failed)?;
                self.last.timestamps = timestamps;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: i64 = 1_700_000_000_123;

    fn sample() -> Timestamps {
        Timestamps {
            physic_msg_at_ms: T,
            logics_msg_at_ms: T - 500,
            confirm_offset: PhysicalOffset(1),
            ..Timestamps::default()
        }
    }

    fn page(timestamps: &Timestamps, marks: [Option<Mark>; 2]) -> Vec<u8> {
        let mut page = vec![0; Timestamps::FILE_BYTES];
        page[..40].copy_from_slice(&timestamps.encode());
        for (at, mark) in MARK_AT.into_iter().zip(marks) {
            if let Some(mark) = mark {
                page[at as usize..at as usize + MARK_BYTES]
                    .copy_from_slice(&mark.encode(&timestamps.encode()));
            }
        }
        page
    }

    fn mark(generation: u64) -> Mark {
        Mark {
            generation,
            verify_from: PhysicalOffset(10),
            queues_to: PhysicalOffset(20),
            entries: 3,
            firsts: 1,
            log_to: PhysicalOffset(30),
            checked_from: Some(PhysicalOffset(5)),
            closed: false,
            index: Some(IndexMark {
                to: PhysicalOffset(29),
                file: 20_261_121_143_315_001,
                next_entry: 7,
                keys: 9_000_000_000,
                geometry: Geometry { slots: 5, entries: 8 },
            }),
            log_from: Some(PhysicalOffset(7)),
        }
    }

    #[test]
    fn the_newest_mark_counts_and_damage_leaves_the_other() {
        let mut bytes = page(&sample(), [Some(mark(4)), Some(mark(5))]);
        assert_eq!(Checkpoint::decode(&bytes).mark, Some(mark(5)));
        bytes[MARK_AT[1] as usize + 41] ^= 1;
        assert_eq!(Checkpoint::decode(&bytes).mark, Some(mark(4)));
    }

    #[test]
    fn a_mark_of_the_former_version_is_read_and_one_of_an_unknown_version_is_told() {
        let mut bytes = page(&sample(), [Some(mark(4)), None]);
        let at = MARK_AT[0] as usize;
        bytes[at + 7] = FORMER_VERSION;
        assert_eq!(Checkpoint::decode(&bytes).mark, None, "its checksum lies elsewhere");
        let check = crc32fast::hash(&bytes[at..at + LOG_FROM_AT]);
        bytes[at + LOG_FROM_AT..][..4].copy_from_slice(&check.to_be_bytes());
        let read = Checkpoint::decode(&bytes);
        assert_eq!((read.mark, read.unknown_version), (Some(Mark { log_from: None, ..mark(4) }), None));
        bytes[at + 7] = 5;
        let read = Checkpoint::decode(&bytes);
        assert_eq!((read.mark, read.unknown_version), (None, Some(5)));
        let two = page(&sample(), [None, Some(mark(6))]);
        bytes[MARK_AT[1] as usize..][..MARK_BYTES].copy_from_slice(&two[MARK_AT[1] as usize..][..MARK_BYTES]);
        let read = Checkpoint::decode(&bytes);
        assert_eq!((read.mark, read.unknown_version), (Some(mark(6)), None));
        bytes[at + 8..at + 16].copy_from_slice(&7u64.to_be_bytes());
        assert_eq!(Checkpoint::decode(&bytes).unknown_version, Some(5), "it was written later");
        assert_eq!(Checkpoint::decode(&page(&sample(), [None, None])).unknown_version, None);
    }

    #[test]
    fn a_mark_is_void_once_another_writer_changed_the_timestamps() {
        let mut bytes = page(&sample(), [Some(mark(4)), None]);
        assert!(Checkpoint::decode(&bytes).mark.is_some());
        bytes[7] ^= 1;
        assert_eq!(Checkpoint::decode(&bytes).mark, None);
    }

    #[test]
    fn what_must_have_a_checksum_ends_where_another_program_may_have_written() {
        let from_five_to = |end: u64| PhysicalOffset(5)..PhysicalOffset(end);
        assert_eq!(mark(1).checked(true), from_five_to(u64::MAX));
        let closed = Mark { closed: true, ..mark(1) };
        assert_eq!(Checkpoint::decode(&page(&sample(), [Some(closed), None])).mark, Some(closed));
        assert_eq!((closed.checked(false), closed.checked(true)), (from_five_to(u64::MAX), from_five_to(30)));
        assert!(Mark { checked_from: None, ..mark(1) }.checked(false).is_empty());
    }

    #[test]
    fn the_mark_that_counts_is_not_written_over_while_a_void_one_lies_beside_it() {
        use rocketpy_env::RealDisk;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("checkpoint");
        // A crash came between the newer mark and the timestamps that make it valid.
        for place in [0, 1] {
            let mut marks = [Some(mark(4)); 2];
            marks[1 - place] = None;
            let mut bytes = page(&sample(), marks);
            let later = Timestamps { physic_msg_at_ms: T + 1, ..sample() };
            let void = Mark { generation: 5, ..mark(5) }.encode(&later.encode());
            let void_at = MARK_AT[1 - place] as usize;
            bytes[void_at..void_at + MARK_BYTES].copy_from_slice(&void);
            RealDisk.replace(&path, &bytes).unwrap();

            let mut file = CheckpointFile::open(&RealDisk, &path).unwrap();
            file.write(Timestamps { physic_msg_at_ms: T + 2, ..sample() }, mark(0)).unwrap();
            // The same crash again: the old timestamps are there.
            let mut bytes = RealDisk.read(&path, 1 << 20).unwrap();
            bytes[..Timestamps::BYTES].copy_from_slice(&sample().encode());
            assert_eq!(Checkpoint::decode(&bytes).mark, Some(mark(4)), "in place {place}");
        }
    }

    #[test]
    fn a_mark_out_of_order_is_void() {
        let wrong = Mark { verify_from: PhysicalOffset(21), ..mark(1) };
        assert_eq!(Checkpoint::decode(&page(&sample(), [Some(wrong), None])).mark, None);
        let ahead = mark(1).index.map(|index| IndexMark { to: PhysicalOffset(31), ..index });
        let wrong = Mark { index: ahead, ..mark(1) };
        assert_eq!(
            Checkpoint::decode(&page(&sample(), [Some(wrong), None])).mark,
            None,
            "an index ahead of the log"
        );
    }
}
