//! The checkpoint file: Apache's timestamps, and our durable mark in the part that Apache leaves alone.

mod mark;
mod writer;

use std::path::{Path, PathBuf};

#[cfg(feature = "mark-page")]
pub use mark::mark_page;
use mark::{CHANGED_FORMAT, FORMER_VERSION, MARK_AT, MARK_VERSION, array, mark_version};
pub use mark::{Mark, NO_SUM, NOWHERE};
use rocketpy_env::failpoint::{self, Point};
use rocketpy_env::{Disk, DiskFile, EnvError, OpenMode};
pub use rocketpy_protocol::disk::Checkpoint as Timestamps;
pub(crate) use writer::MarkWriter;

use crate::error::StoreError;
use crate::queue::files::FlushFailure;

/// What a checkpoint file says. A missing file says nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Checkpoint {
    pub timestamps: Timestamps,
    /// `None` when there is no mark, or another program wrote the file after it.
    pub mark: Option<Mark>,
    /// The version of the newest mark, if it says that this code cannot read the store.
    pub unknown_version: Option<u8>,
}

/// The last millisecond of the year 9999. A larger number is not a time.
const LAST_MS: i64 = 253_402_300_799_999;

/// Whether a clock can have shown a time.
pub(crate) fn is_possible_ms(at_ms: i64) -> bool {
    (0..=LAST_MS).contains(&at_ms)
}

/// One of the times of a checkpoint that no program can have written.
pub fn impossible_ms(timestamps: &Timestamps) -> Option<i64> {
    let &Timestamps { physic_msg_at_ms, logics_msg_at_ms, index_msg_at_ms, .. } = timestamps;
    let times = [physic_msg_at_ms, logics_msg_at_ms, index_msg_at_ms];
    times.into_iter().find(|&at_ms| !is_possible_ms(at_ms))
}

impl Checkpoint {
    /// Refuses the checkpoint of a store in another format.
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
            (!(FORMER_VERSION..CHANGED_FORMAT).contains(&version) && is_newer).then_some(version)
        });
        Self { timestamps: Timestamps::decode(&array(page)), mark, unknown_version }
    }
}

/// Writes the checkpoint file.
#[derive(Debug)]
pub struct CheckpointFile<D: Disk> {
    file: D::File,
    last: Checkpoint,
    generation: u64,
    /// Which of the two places holds the last mark.
    last_at: usize,
}

impl<D: Disk> CheckpointFile<D> {
    /// Opens the file, made in its full length when missing.
    pub fn open(disk: &D, path: &Path) -> Result<Self, EnvError> {
        let last = Checkpoint::read(disk, path)?;
        let file = disk.open_file(path, OpenMode::CreateOrWrite)?;
        if file.len()? < Timestamps::FILE_BYTES as u64 {
            let mut page = vec![0; Timestamps::FILE_BYTES];
            page[..Timestamps::BYTES].copy_from_slice(&last.timestamps.encode());
            file.write_all_at(0, &page)?; // real blocks: a full disk can not hit later writes
            file.sync()?;
            disk.sync_dir(path.parent().unwrap_or(&PathBuf::from(".")))?;
        }
        // A void mark counts too: a generation is never used twice.
        let page = disk.read(path, 1 << 20)?;
        let generation = MARK_AT.map(|at| u64::from_be_bytes(array(&page[at as usize + 8..])));
        let known = last.mark.map_or(0, |mark| mark.generation);
        let generation = (generation[0].max(generation[1]) % (u64::MAX / 2)).max(known); // of a void mark any bytes
        let is_first = last.mark.is_some() && Mark::decode(&page[MARK_AT[0] as usize..], &page) == last.mark;
        Ok(Self { file, last, generation, last_at: usize::from(!is_first) })
    }

    /// Writes the file again as it is, durably. What the last process left in memory may never have reached the disk,
    /// and only that process saw that the flush failed.
    ///
    /// A power cut during this call leaves one pair of timestamps and mark whole: at most one sector differs from
    /// memory.
    ///
    /// # Source
    /// docs/durability.md R1.
    pub(crate) fn write_again(&self) -> Result<(), EnvError> {
        let mut page = vec![0; Timestamps::FILE_BYTES];
        self.file.read_exact_at(0, &mut page)?;
        self.file.write_all_at(0, &page)?;
        self.file.sync()
    }

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
    /// On return both survive a power loss. A power loss during the call leaves the former pair whole: the new mark is
    /// durable before the timestamps that make it valid are written. A failure leaves the former pair too, and the next
    /// try uses the same place.
    pub fn write(&mut self, timestamps: Timestamps, mark: Mark) -> Result<(), FlushFailure> {
        use FlushFailure::{Failed, NotTried};
        let mark = Mark { generation: self.last.mark.map_or(0, |last| last.generation), ..mark };
        if self.last == (Checkpoint { timestamps, mark: Some(mark), unknown_version: None }) {
            return Ok(());
        }
        let generation = self.generation + 1;
        assert!(generation > mark.generation, "a generation is used once");
        let mark = Mark { generation, ..mark };
        let bytes = timestamps.encode();
        let encoded = mark.encode(&bytes);
        // A mark that cannot be read back would be void, and the next start would know nothing.
        assert_eq!(Mark::decode(&encoded, &bytes), Some(mark), "a mark out of order");
        // Never write over the valid mark. A void mark next to it may have any generation.
        let to = 1 - self.last_at;
        self.file.write_all_at(MARK_AT[to], &encoded).map_err(NotTried)?;
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

    /// Notes, for other programs too, that nothing of the index is known to be durable.
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
    use rocketpy_model::PhysicalOffset;

    use super::mark::{LOG_FROM_AT, MARK_BYTES};
    use super::*;
    use crate::index::{Geometry, IndexMark};

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
    fn marks_of_former_and_later_versions_are_read_and_one_of_a_changed_format_is_told() {
        let mut bytes = page(&sample(), [Some(mark(4)), None]);
        let at = MARK_AT[0] as usize;
        bytes[at + 7] = FORMER_VERSION;
        assert_eq!(Checkpoint::decode(&bytes).mark, None, "its checksum lies elsewhere");
        let check = crc32fast::hash(&bytes[at..at + LOG_FROM_AT]);
        bytes[at + LOG_FROM_AT..][..4].copy_from_slice(&check.to_be_bytes());
        let read = Checkpoint::decode(&bytes);
        assert_eq!((read.mark, read.unknown_version), (Some(Mark { log_from: None, ..mark(4) }), None));
        let later = |version: u8| {
            let mut bytes = page(&sample(), [Some(mark(4)), None]);
            mark_page::set_version(&mut bytes, version);
            bytes[at + MARK_BYTES..][..8].fill(7); // fields that this version does not know
            bytes
        };
        for version in [MARK_VERSION + 1, CHANGED_FORMAT - 1] {
            let read = Checkpoint::decode(&later(version));
            assert_eq!((read.mark, read.unknown_version), (Some(mark(4)), None));
        }
        let mut bytes = later(CHANGED_FORMAT);
        let read = Checkpoint::decode(&bytes);
        assert_eq!((read.mark, read.unknown_version), (None, Some(CHANGED_FORMAT)));
        let two = page(&sample(), [None, Some(mark(6))]);
        bytes[MARK_AT[1] as usize..][..MARK_BYTES].copy_from_slice(&two[MARK_AT[1] as usize..][..MARK_BYTES]);
        let read = Checkpoint::decode(&bytes);
        assert_eq!((read.mark, read.unknown_version), (Some(mark(6)), None));
        bytes[at + 8..at + 16].copy_from_slice(&7u64.to_be_bytes());
        assert_eq!(Checkpoint::decode(&bytes).unknown_version, Some(CHANGED_FORMAT), "it was written later");
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
    fn a_void_mark_of_any_generation_lets_the_next_one_be_written() {
        use rocketpy_env::RealDisk;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("checkpoint");
        for generation in [u64::MAX, u64::MAX / 2, 4, 0] {
            for place in [0, 1] {
                let mut marks = [None; 2];
                marks[place] = Some(mark(4));
                let mut bytes = page(&sample(), marks);
                let void_at = MARK_AT[1 - place] as usize;
                bytes[void_at..void_at + MARK_BYTES].fill(0xFF);
                bytes[void_at + 8..void_at + 16].copy_from_slice(&generation.to_be_bytes());
                RealDisk.replace(&path, &bytes).unwrap();
                let mut file = CheckpointFile::open(&RealDisk, &path).unwrap();
                file.write(sample(), Mark { entries: 9, ..mark(0) }).unwrap();
                let mut bytes = RealDisk.read(&path, 1 << 20).unwrap();
                assert_eq!(
                    Checkpoint::decode(&bytes).mark.unwrap().entries,
                    9,
                    "{generation} beside {place}"
                );
                bytes[void_at..void_at + MARK_BYTES].fill(0xFF);
                assert_eq!(Checkpoint::decode(&bytes).mark, Some(mark(4)), "{generation} beside {place}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "a mark out of order")]
    fn a_mark_out_of_order_is_not_written() {
        use rocketpy_env::RealDisk;
        let dir = tempfile::tempdir().unwrap();
        let mut file = CheckpointFile::open(&RealDisk, &dir.path().join("checkpoint")).unwrap();
        let _ = file.write(sample(), Mark { verify_from: PhysicalOffset(21), ..mark(0) });
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
