//! Meaning of a consume queue entry.

use rocketpy_model::{PhysicalOffset, QueueOffset};
pub(crate) use rocketpy_protocol::disk::ConsumeQueueEntry as Entry;

pub(crate) const ENTRY_BYTES: u64 = Entry::BYTES as u64;

/// Where an entry is in its queue, in bytes from the place of the first entry.
pub const fn position(queue_offset: QueueOffset) -> u64 {
    queue_offset.get() * ENTRY_BYTES
}

/// The entry whose place begins at a position: the first one of a file that starts there.
pub const fn entry_at(position: u64) -> QueueOffset {
    QueueOffset(position / ENTRY_BYTES)
}

/// Reads the entry at the start of `bytes`; `None` when they hold none. An entry that was not written is all zero.
///
/// # Source
/// docs/reference/store-format.md 3.1.
pub(crate) fn decode(bytes: &[u8]) -> Option<Entry> {
    let entry = Entry::decode(bytes.first_chunk()?);
    let size = entry.size_bytes as i32;
    (entry.physical_offset.to_wire() >= 0 && size > 0).then_some(entry)
}

/// Whether the entry is a filler: one before the first entry of a queue that does not start at 0.
pub(crate) fn is_preblank(entry: &Entry) -> bool {
    entry.physical_offset == PhysicalOffset::ZERO && entry.size_bytes == Entry::PRE_BLANK.size_bytes
}

/// Offset after the record; 0 for a filler.
pub(crate) fn record_end(entry: &Entry) -> PhysicalOffset {
    match is_preblank(entry) {
        true => PhysicalOffset::ZERO,
        false => entry.physical_offset + u64::from(entry.size_bytes),
    }
}

/// Entries of a queue that were read together with the one asked for. A walk to the left then rarely reads.
#[derive(Debug, Default)]
pub(crate) struct Window {
    /// Number of the first entry in `bytes`.
    first: QueueOffset,
    bytes: Vec<u8>,
}

impl Window {
    /// Entries read at once.
    const ENTRIES: u64 = 512;

    /// One entry; `None` when there is none. If it was not read before, calls `read` with the number of the first entry
    /// wanted, how many, and a buffer: also those before this one, down to `floor`, where its file begins. `read`
    /// returns whether they are there.
    pub(crate) fn entry<E>(
        &mut self,
        number: QueueOffset,
        floor: QueueOffset,
        read: impl FnOnce(QueueOffset, u64, &mut Vec<u8>) -> Result<bool, E>,
    ) -> Result<Option<Entry>, E> {
        let read_to = self.first + self.bytes.len() as u64 / ENTRY_BYTES;
        if !(self.first..read_to).contains(&number) {
            assert!(number >= floor, "an entry lies in its file");
            let first = floor.max(QueueOffset((number.get() + 1).saturating_sub(Self::ENTRIES)));
            let is_there = read(first, number - first + 1, &mut self.bytes);
            self.first = first;
            if !matches!(is_there, Ok(true)) {
                self.bytes.clear();
                return is_there.map(|_| None);
            }
            assert_eq!(self.bytes.len() as u64, (number - first + 1) * ENTRY_BYTES, "all that was asked for");
        }
        Ok(decode(&self.bytes[((number - self.first) * ENTRY_BYTES) as usize..]))
    }
}

/// First number in `low..high` whose entry is not before what is looked for; all entries before that come first. For a
/// hole the nearest entry to its left counts, so that a hole hides only itself.
pub(crate) fn partition_point<E>(
    mut low: QueueOffset,
    mut high: QueueOffset,
    mut is_before: impl FnMut(QueueOffset) -> Result<Option<bool>, E>,
) -> Result<QueueOffset, E> {
    while low < high {
        let middle = low + (high - low) / 2;
        let mut probe = middle;
        let mut answer = is_before(probe)?;
        while answer.is_none() && probe > low {
            probe = probe - 1;
            answer = is_before(probe)?;
        }
        match answer {
            Some(false) => high = probe,
            Some(true) | None => low = middle + 1,
        }
    }
    Ok(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entries from 1000 on: some fillers, then records, with holes between.
    fn queue() -> Vec<Option<Entry>> {
        let entry = |number: u64| match number {
            ..9_000 => Some(Entry::PRE_BLANK),
            11_000..11_700 => None,
            _ => Some(Entry { physical_offset: (number * 100).into(), size_bytes: 100, tags_code: 0 }),
        };
        (1000..12_000).map(entry).collect()
    }

    #[test]
    fn a_walk_to_the_left_reads_many_entries_at_once_and_none_of_another_file() {
        let queue = queue();
        let mut window = Window::default();
        let mut reads = 0;
        let mut entry = |number: u64| {
            window.entry(QueueOffset(number), QueueOffset(6000), |QueueOffset(first), count, bytes| {
                assert!(first >= 6000 && first + count - 1 == number, "{first} {count}");
                reads += 1;
                bytes.clear();
                for at in first..first + count {
                    bytes.extend_from_slice(
                        &queue[at as usize - 1000].map_or([0; 20], |entry| entry.encode()),
                    );
                }
                Ok::<_, ()>(true)
            })
        };
        for number in (6000..12_000).rev() {
            assert_eq!(entry(number), Ok(queue[number as usize - 1000]), "{number}");
        }
        assert_eq!(reads, 6000_u64.div_ceil(512));
        assert_eq!(
            Window::default().entry(QueueOffset(5), QueueOffset(0), |_, _, _| Ok::<_, ()>(false)),
            Ok(None)
        );
        assert_eq!(Window::default().entry(QueueOffset(5), QueueOffset(0), |_, _, _| Err(())), Err(()));
    }

    #[test]
    fn a_hole_hides_nothing_but_itself() {
        let queue = queue();
        for wanted in [0, 9_000, 9_001, 10_999, 11_000, 11_500, 11_699, 11_700, 11_999, 12_000] {
            let found = partition_point(QueueOffset(1000), QueueOffset(12_000), |QueueOffset(number)| {
                let entry = queue[number as usize - 1000].filter(|entry| !is_preblank(entry));
                Ok::<_, ()>(entry.map(|entry| entry.physical_offset.get() < wanted * 100))
            });
            let (before, behind) = queue.split_at(found.unwrap().get() as usize - 1000);
            let mut records = before.iter().flatten().filter(|entry| !is_preblank(entry));
            assert!(records.all(|entry| entry.physical_offset.get() < wanted * 100), "{wanted}");
            assert!(
                behind.iter().flatten().all(|entry| entry.physical_offset.get() >= wanted * 100),
                "{wanted}"
            );
        }
    }

    #[test]
    fn bytes_that_are_no_entry_are_told() {
        assert_eq!(decode(&[0; 20]), None);
        assert_eq!(decode(&[0xff; 20]), None, "a negative offset");
        assert_eq!(decode(&[1; 19]), None);
        assert!(decode(&Entry::PRE_BLANK.encode()).is_some_and(|entry| is_preblank(&entry)));
    }
}
