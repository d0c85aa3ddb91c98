//! The files of timer messages: the wheel of seconds, the log of its units, and how far both are.
//!
//! # Source
//! docs/reference/store-format.md 8.4 to 8.6.

use std::array;

use rocketpy_model::PhysicalOffset;

use crate::wire::Reader;

/// A slot of the wheel: the messages that are due in one second, as the ends of a chain in the log.
///
/// # Layout
/// 32 bytes, big-endian.
///
/// | bytes | field | meaning |
/// |---|---|---|
/// | 0..8 | `second` | Unix time in slots; a slot that says another one is empty |
/// | 8..16 | `first` | position of the first unit, -1 for none |
/// | 16..24 | `last` | position of the last unit |
/// | 24..28 | `messages` | units without the recalls |
/// | 28..32 | | 0 |
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[doc(alias = "Slot")]
pub struct TimerSlot {
    /// The time of the slot, in slots since 1970.
    pub second: i64,
    /// Where the chain begins.
    pub first: i64,
    /// Where the chain ends; each unit names the one before.
    pub last: i64,
    /// Units of the chain; a recall takes one off.
    pub messages: i32,
}

impl TimerSlot {
    /// Bytes of a slot.
    pub const BYTES: usize = 32;
    /// Slots of a wheel.
    pub const COUNT: u64 = 2 * 7 * 24 * 3600;
    /// Bytes of the wheel's file.
    pub const FILE_BYTES: u64 = Self::COUNT * Self::BYTES as u64;

    /// The slot as it stands in the wheel.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        for (place, number) in bytes.chunks_exact_mut(8).zip([self.second, self.first, self.last]) {
            place.copy_from_slice(&number.to_be_bytes());
        }
        bytes[24..28].copy_from_slice(&self.messages.to_be_bytes());
        bytes
    }

    /// Reads a slot. Any bytes give one.
    #[must_use]
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        let mut reader = Reader::new(bytes);
        let mut number = || reader.i64().unwrap_or_default();
        let (second, first, last) = (number(), number(), number());
        Self { second, first, last, messages: reader.i32().unwrap_or_default() }
    }
}

/// A message that waits, or that recalls one, in the log of timers.
///
/// # Layout
/// 52 bytes, big-endian, never split across files.
///
/// | bytes | field | meaning |
/// |---|---|---|
/// | 0..4 | | 52 |
/// | 4..12 | `previous` | position of the unit before in the slot, -1 for none |
/// | 12..16 | `flags` | 1, with 2 to be rolled, with 4 for a recall |
/// | 16..24 | `written_at_ms` | time of writing, a multiple of the slot's length |
/// | 24..28 | | slot time less time of writing |
/// | 28..36 | `physical_offset` | record in the commit log |
/// | 36..40 | `size_bytes` | its length |
/// | 40..44 | `topic_hash` | of the topic that the message goes to |
/// | 44..52 | | 0 |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(alias = "TimerRequest")]
pub struct TimerUnit {
    /// Position of the unit before in the same slot, -1 for none.
    pub previous: i64,
    /// [`Self::DEFAULT`], with [`Self::ROLL`] and [`Self::RECALL`].
    pub flags: i32,
    /// When it was written, rounded down.
    pub written_at_ms: i64,
    /// The slot that it is in.
    pub slot_ms: i64,
    /// Its record.
    pub physical_offset: PhysicalOffset,
    /// Length of the record.
    pub size_bytes: i32,
    /// Java's hash of the topic that it goes to.
    pub topic_hash: i32,
}

impl TimerUnit {
    /// Bytes of a unit.
    pub const BYTES: usize = 52;
    /// Every unit has this flag.
    pub const DEFAULT: i32 = 1;
    /// The slot is not that of its time yet: it is stored again then.
    pub const ROLL: i32 = 2;
    /// It recalls another message.
    pub const RECALL: i32 = 4;
    /// A file has no unit behind its last one with less room than a unit and these bytes.
    pub const BLANK_BYTES: usize = 16;

    /// The unit as it stands in the log.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let delay_ms = self.slot_ms.saturating_sub(self.written_at_ms) as i32;
        bytes[..4].copy_from_slice(&(Self::BYTES as u32).to_be_bytes());
        bytes[4..12].copy_from_slice(&self.previous.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.flags.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.written_at_ms.to_be_bytes());
        bytes[24..28].copy_from_slice(&delay_ms.to_be_bytes());
        bytes[28..36].copy_from_slice(&self.physical_offset.get().to_be_bytes());
        bytes[36..40].copy_from_slice(&self.size_bytes.to_be_bytes());
        bytes[40..44].copy_from_slice(&self.topic_hash.to_be_bytes());
        bytes
    }

    /// Reads a unit; `None` where there is none.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes.get(..Self::BYTES)?);
        if reader.u32()? != Self::BYTES as u32 {
            return None;
        }
        let previous = reader.i64()?;
        let flags = reader.i32()?;
        let written_at_ms = reader.i64()?;
        let delay_ms = reader.i32()?;
        let unit = Self {
            previous,
            flags,
            written_at_ms,
            slot_ms: written_at_ms.checked_add(delay_ms.into())?,
            physical_offset: PhysicalOffset(reader.u64()?),
            size_bytes: reader.i32()?,
            topic_hash: reader.i32()?,
        };
        let is_known = flags & !(Self::ROLL | Self::RECALL) == Self::DEFAULT;
        (is_known && unit.size_bytes > 0).then_some(unit)
    }

    /// What stands behind the last unit of a file that has room for no other.
    #[must_use]
    pub fn blank(room_bytes: u32) -> [u8; Self::BLANK_BYTES] {
        let mut bytes = [0; Self::BLANK_BYTES];
        bytes[..4].copy_from_slice(&room_bytes.to_be_bytes());
        bytes[12..].copy_from_slice(&0xCBD4_3194_u32.to_be_bytes());
        bytes
    }
}

/// How far the timers are: the file `timercheck`.
///
/// # Layout
/// Seven big-endian numbers of 8 bytes in the order of the fields, then zeros up to 4096 bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TimerCheckpoint {
    /// Everything in slots before this time is delivered.
    pub read_ms: i64,
    /// The log of timers is durable before this position.
    pub log_flushed: i64,
    /// Everything of the timer topic before this queue offset is in the log.
    pub queue_offset: i64,
    /// The same of the master.
    pub master_queue_offset: i64,
    /// Moves with each change: state version, time in Unix milliseconds, counter.
    pub data_version: [i64; 3],
    /// What is delivered of later slots. It is in the file alone, and is gone where another broker has written the numbers since.
    pub cut: Option<TimerCut>,
    /// What was delivered beyond that, before the clock was set back. In the file as [`Self::cut`] is.
    pub earlier_cuts: [Option<TimerCut>; Self::MAX_EARLIER_CUTS],
}

/// Of the messages that lie up to a place of the log, those before a time are delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimerCut {
    /// The time, in Unix milliseconds,
    pub due_at_ms: i64,
    /// and of the messages of exactly this time, those before this place.
    pub at: PhysicalOffset,
    /// Messages behind this place are not meant.
    pub taken: PhysicalOffset,
    /// Slots before this time were whole in memory. For messages of later ones the time of the slot counts if it is later than their own.
    /// 0 where it is not known.
    pub whole_ms: i64,
}

impl TimerCut {
    /// Size in the file, without [`Self::whole_ms`].
    const BYTES: usize = 24;

    /// Whether it says all that another one says.
    pub fn covers(&self, other: &Self) -> bool {
        self.taken >= other.taken && self.order() >= other.order() && self.whole_ms >= other.whole_ms
    }

    /// Up to where it reaches: of two with the same messages the greater one says more.
    pub const fn order(&self) -> (i64, PhysicalOffset) {
        (self.due_at_ms, self.at)
    }
}

impl TimerCheckpoint {
    /// Size of the file.
    pub const FILE_BYTES: usize = 4096;
    /// Bytes that the numbers take.
    pub const BYTES: usize = 56;
    /// Most cuts that the file keeps beside the present one.
    pub const MAX_EARLIER_CUTS: usize = 4;
    /// Where [`TimerCut`] begins in the file; without one there are zeros.
    const CUT_AT: usize = 64;
    /// Where the numbers stand again: a copy that differs shows that another broker has written since, or damage.
    const COPY_AT: usize = 88;
    /// Where the earlier cuts stand, one behind the other.
    const EARLIER_CUTS_AT: usize = Self::COPY_AT + Self::BYTES;
    /// Where the CRC32 of everything in front of it stands. Where it differs the cuts are not believed: they are damaged, or another broker has
    /// written since.
    const CHECK_AT: usize = Self::EARLIER_CUTS_AT + Self::MAX_EARLIER_CUTS * TimerCut::BYTES;
    /// Where [`TimerCut::whole_ms`] of each cut begins, of the present one first. Earlier versions write zeros from here on.
    const WHOLE_AT: usize = Self::CHECK_AT + 4;
    /// Where the CRC32 of everything in front of it stands. Where it differs [`TimerCut::whole_ms`] is not known.
    const WHOLE_CHECK_AT: usize = Self::WHOLE_AT + (1 + Self::MAX_EARLIER_CUTS) * 8;

    /// The numbers, as they stand in the file and go over the wire.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let [state, at_ms, counter] = self.data_version;
        let numbers = [
            self.read_ms,
            self.log_flushed,
            self.queue_offset,
            self.master_queue_offset,
            state,
            at_ms,
            counter,
        ];
        for (place, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_be_bytes());
        }
        bytes
    }

    /// The file.
    #[must_use]
    pub fn encode_file(&self) -> Vec<u8> {
        let numbers = self.encode();
        let mut page = numbers.to_vec();
        page.resize(Self::CUT_AT, 0);
        page.extend(encode_cut(self.cut));
        page.resize(Self::COPY_AT, 0);
        page.extend(numbers);
        page.extend(self.earlier_cuts.into_iter().flat_map(encode_cut));
        page.extend(crc32fast::hash(&page).to_be_bytes());
        let cuts = [self.cut].into_iter().chain(self.earlier_cuts);
        page.extend(cuts.flat_map(|cut| cut.map_or(0, |cut| cut.whole_ms).to_be_bytes()));
        page.extend(crc32fast::hash(&page).to_be_bytes());
        page.resize(Self::FILE_BYTES, 0);
        page
    }

    /// Reads the file; `None` where it is damaged: what [`Self::decode`] refuses, another length than every broker writes, or a time
    /// that is no multiple of a slot.
    #[must_use]
    pub fn decode_file(bytes: &[u8]) -> Option<Self> {
        const SLOT_MS: i64 = 1000;
        let checkpoint = Self::decode(bytes).filter(|_| bytes.len() == Self::FILE_BYTES)?;
        (checkpoint.read_ms % SLOT_MS == 0).then_some(checkpoint)
    }

    /// Reads the numbers, of the file or off the wire; `None` when there are fewer than four, one of the first four is negative, or they are
    /// damaged: another broker that changes them changes the data version too. Of older versions the last three are missing, and 0.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let mut number = || reader.i64();
        let [cut, earlier_cuts @ ..] = decode_cuts(bytes);
        let checkpoint = Self {
            read_ms: number()?,
            log_flushed: number()?,
            queue_offset: number()?,
            master_queue_offset: number()?,
            data_version: [number(), number(), number()].map(Option::unwrap_or_default),
            cut,
            earlier_cuts,
        };
        let Self { read_ms, log_flushed, queue_offset, master_queue_offset, .. } = checkpoint;
        let are_positive =
            [read_ms, log_flushed, queue_offset, master_queue_offset].iter().all(|number| *number >= 0);
        (are_positive && !is_damaged(bytes)).then_some(checkpoint)
    }
}

/// Whether numbers of the file and their copy differ though their data versions are the same.
fn is_damaged(bytes: &[u8]) -> bool {
    const VERSION_AT: usize = 32;
    let numbers = bytes.get(..TimerCheckpoint::BYTES);
    let copy = bytes.get(TimerCheckpoint::COPY_AT..TimerCheckpoint::COPY_AT + TimerCheckpoint::BYTES);
    let Some((numbers, copy)) = numbers.zip(copy) else { return false };
    let has_copy = copy.iter().any(|byte| *byte != 0); // a file that only another broker has written has none
    has_copy && numbers != copy && numbers[VERSION_AT..] == copy[VERSION_AT..]
}

fn encode_cut(cut: Option<TimerCut>) -> [u8; TimerCut::BYTES] {
    let mut bytes = [0; TimerCut::BYTES];
    if let Some(TimerCut { due_at_ms, at, taken, .. }) = cut {
        let numbers = [due_at_ms, at.to_wire(), taken.to_wire()];
        for (place, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_be_bytes());
        }
    }
    bytes
}

/// Whether the CRC32 of everything in front of a place stands there.
fn is_checked(bytes: &[u8], place: usize) -> bool {
    let check = bytes.get(place..).and_then(<[u8]>::first_chunk).map(|check| u32::from_be_bytes(*check));
    bytes.get(..place).map(crc32fast::hash) == check
}

/// The present cut, then the earlier ones.
fn decode_cuts(bytes: &[u8]) -> [Option<TimerCut>; 1 + TimerCheckpoint::MAX_EARLIER_CUTS] {
    let are_sound = is_checked(bytes, TimerCheckpoint::CHECK_AT);
    let wholes = bytes
        .get(TimerCheckpoint::WHOLE_AT..)
        .filter(|_| is_checked(bytes, TimerCheckpoint::WHOLE_CHECK_AT))
        .unwrap_or_default();
    let mut wholes = Reader::new(wholes);
    let earlier_at = |number| TimerCheckpoint::EARLIER_CUTS_AT + number * TimerCut::BYTES;
    array::from_fn(|number| {
        let whole_ms = wholes.i64().unwrap_or(0);
        let place = number.checked_sub(1).map_or(TimerCheckpoint::CUT_AT, earlier_at);
        let cut = decode_cut(bytes.get(place..).filter(|_| are_sound)?)?;
        Some(TimerCut { whole_ms, ..cut })
    })
}

fn decode_cut(bytes: &[u8]) -> Option<TimerCut> {
    let mut reader = Reader::new(bytes);
    let mut number = || reader.i64();
    let (due_at_ms, at, taken) = (number()?, number()?, number()?);
    let offset = |number: i64| u64::try_from(number).ok().map(PhysicalOffset);
    let cut = TimerCut { due_at_ms, at: offset(at)?, taken: offset(taken)?, whole_ms: 0 };
    (due_at_ms > 0).then_some(cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_stands_as_in_the_wheel() {
        let slot = TimerSlot { second: 1_700_000_000, first: -1, last: 52, messages: 3 };
        let bytes = slot.encode();
        assert_eq!(bytes[..8], [0, 0, 0, 0, 0x65, 0x53, 0xF1, 0x00]);
        assert_eq!(bytes[8..16], [0xFF; 8]);
        assert_eq!(bytes[16..], [0, 0, 0, 0, 0, 0, 0, 52, 0, 0, 0, 3, 0, 0, 0, 0]);
        assert_eq!(TimerSlot::decode(&bytes), slot);
        assert_eq!(TimerSlot::FILE_BYTES, 38_707_200);
    }

    #[test]
    fn a_unit_stands_as_in_the_log_and_other_bytes_are_none() {
        let unit = TimerUnit {
            previous: -1,
            flags: TimerUnit::DEFAULT | TimerUnit::ROLL,
            written_at_ms: 1_700_000_000_000,
            slot_ms: 1_700_000_005_000,
            physical_offset: PhysicalOffset(1 << 40),
            size_bytes: 200,
            topic_hash: -7,
        };
        let bytes = unit.encode();
        assert_eq!(bytes[..4], [0, 0, 0, 52]);
        assert_eq!(bytes[12..16], [0, 0, 0, 3]);
        assert_eq!(bytes[24..28], 5000_u32.to_be_bytes());
        assert_eq!(bytes[36..44], [0, 0, 0, 200, 0xFF, 0xFF, 0xFF, 0xF9]);
        assert_eq!(TimerUnit::decode(&bytes), Some(unit));
        assert_eq!(TimerUnit::decode(&TimerUnit::blank(60)), None);
        assert_eq!(TimerUnit::decode(&[0; 52]), None);
        for (place, byte) in [(3, 51), (15, 8), (15, 0), (36, 0x80)] {
            let mut damaged = bytes;
            damaged[place] = byte;
            assert_eq!(TimerUnit::decode(&damaged), None, "byte {place}");
        }
        assert_eq!(TimerUnit::decode(&bytes[..51]), None);
    }

    const WITHOUT_CUTS: TimerCheckpoint = TimerCheckpoint {
        read_ms: 1_700_000_000_000,
        log_flushed: 520,
        queue_offset: 10,
        master_queue_offset: 10,
        data_version: [0, 5, 6],
        cut: None,
        earlier_cuts: [None; TimerCheckpoint::MAX_EARLIER_CUTS],
    };

    fn with_cuts() -> TimerCheckpoint {
        let cut = TimerCut {
            due_at_ms: 1_700_000_000_500,
            at: PhysicalOffset(7),
            taken: PhysicalOffset(900),
            whole_ms: 1_700_000_002_000,
        };
        let before = TimerCut { taken: PhysicalOffset(5), whole_ms: 1_700_000_001_000, ..cut };
        TimerCheckpoint {
            cut: Some(cut),
            earlier_cuts: [None, Some(before), None, Some(cut)],
            ..WITHOUT_CUTS
        }
    }

    #[test]
    fn the_checkpoint_of_an_older_version_has_four_numbers() {
        let checkpoint = WITHOUT_CUTS;
        let bytes = checkpoint.encode();
        assert_eq!(TimerCheckpoint::decode(&bytes), Some(checkpoint));
        let older = TimerCheckpoint { data_version: [0; 3], ..checkpoint };
        assert_eq!(TimerCheckpoint::decode(&bytes[..32]), Some(older));
        assert_eq!(TimerCheckpoint::decode(&bytes[..31]), None);
        assert_eq!(TimerCheckpoint::decode(&[0xFF; 56]), None);
        assert_eq!(TimerCheckpoint::decode(&checkpoint.encode_file()), Some(checkpoint));
    }

    #[test]
    fn cuts_of_a_checkpoint_count_only_if_they_are_whole() {
        let (checkpoint, with_cuts) = (WITHOUT_CUTS, with_cuts());
        let bytes = checkpoint.encode();
        let mut page = with_cuts.encode_file();
        assert_eq!((page.len(), &page[..56]), (TimerCheckpoint::FILE_BYTES, &bytes[..]));
        assert_eq!(TimerCheckpoint::decode(&page), Some(with_cuts));
        for damaged_at in [2, 5, 31, TimerCheckpoint::COPY_AT + 5] {
            page[damaged_at] ^= 0x20;
            assert_eq!(TimerCheckpoint::decode(&page), None, "byte {damaged_at}");
            page[damaged_at] ^= 0x20;
        }
        for damaged_at in [70, 150, 239, 241] {
            page[damaged_at] ^= 0x20;
            let numbers_alone = TimerCheckpoint::decode(&page);
            assert_eq!(
                numbers_alone,
                Some(checkpoint),
                "cuts that are damaged are not believed: byte {damaged_at}"
            );
            page[damaged_at] ^= 0x20;
        }
        let as_known = |cut: Option<TimerCut>| cut.map(|cut| TimerCut { whole_ms: 0, ..cut });
        let without_whole = TimerCheckpoint {
            cut: as_known(with_cuts.cut),
            earlier_cuts: with_cuts.earlier_cuts.map(as_known),
            ..with_cuts
        };
        for damaged_at in [244, 283, 285] {
            page[damaged_at] ^= 0x20;
            assert_eq!(TimerCheckpoint::decode(&page), Some(without_whole), "byte {damaged_at}");
            page[damaged_at] ^= 0x20;
        }
        page[244..].fill(0);
        assert_eq!(TimerCheckpoint::decode(&page), Some(without_whole), "an older version has written it");
        page[TimerCheckpoint::COPY_AT..].fill(0);
        assert!(TimerCheckpoint::decode(&page).is_some(), "there is nothing to compare with");
        assert_eq!(TimerCheckpoint::decode_file(&page[..4095]), None);
        let between_slots = TimerCheckpoint { read_ms: checkpoint.read_ms + 1, ..checkpoint };
        assert_eq!(TimerCheckpoint::decode_file(&between_slots.encode_file()), None);
        assert_eq!(TimerCheckpoint::decode_file(&with_cuts.encode_file()), Some(with_cuts));
        let mut page = with_cuts.encode_file();
        page[55] += 1;
        let since = TimerCheckpoint::decode(&page).unwrap();
        assert_eq!(
            (since.cut, since.earlier_cuts),
            (None, checkpoint.earlier_cuts),
            "another broker has written since"
        );
    }
}
