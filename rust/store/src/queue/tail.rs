//! Entries that are dispatched and not yet in the files of their queue.

use rocketpy_model::QueueOffset;

use super::entry::{self, ENTRY_BYTES, Entry};

/// The end of one queue, as far as it is only in memory.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    /// Queue offset of the first entry in `bytes`. All before it are in files.
    first: QueueOffset,
    bytes: Vec<u8>,
    /// The queue is in the line of queues to be written.
    pub is_waiting: bool,
}

impl Tail {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn push(&mut self, first: QueueOffset, entries: &[u8]) {
        if self.bytes.is_empty() {
            self.first = first;
        }
        let end = self.first + self.bytes.len() as u64 / ENTRY_BYTES;
        assert_eq!(first, end, "entries follow each other");
        assert_eq!(entries.len() as u64 % ENTRY_BYTES, 0, "entries are whole");
        self.bytes.extend_from_slice(entries);
    }

    /// Copies what is to be written, and returns the first queue offset.
    pub(crate) fn copy_to(&self, bytes: &mut Vec<u8>) -> QueueOffset {
        bytes.clear();
        bytes.extend_from_slice(&self.bytes);
        self.first
    }

    /// Drops the first `size_bytes`, which are in files now.
    pub(crate) fn forget_first(&mut self, size_bytes: usize) {
        assert!(size_bytes <= self.bytes.len(), "what was written was here");
        if size_bytes == self.bytes.len() {
            self.bytes = Vec::new(); // of thousands of queues most get nothing for a while
        } else {
            self.bytes.drain(..size_bytes);
            self.first += size_bytes as u64 / ENTRY_BYTES;
        }
    }

    /// Drops everything. Returns how many bytes there were.
    pub(crate) fn clear(&mut self) -> usize {
        std::mem::take(&mut self.bytes).len()
    }

    /// The entry of a number; `None` when it is not here, but in a file.
    pub(crate) fn entry(&self, queue_offset: QueueOffset) -> Option<Option<Entry>> {
        let index = queue_offset.checked_sub(self.first).filter(|_| !self.is_empty())?;
        let at = index.saturating_mul(ENTRY_BYTES).min(self.bytes.len() as u64);
        Some(entry::decode(&self.bytes[at as usize..]))
    }

    /// Copies the entries from `first` on that are here to their places, and returns how many places come before them.
    pub(crate) fn fill(&self, first: QueueOffset, places: &mut [u8]) -> u64 {
        let count = places.len() as u64 / ENTRY_BYTES;
        assert_eq!(places.len() as u64 % ENTRY_BYTES, 0, "places are whole");
        if self.is_empty() || first + count <= self.first {
            return count;
        }
        let before = self.first.saturating_sub(first);
        let here = &mut places[(before * ENTRY_BYTES) as usize..];
        let from = ((first + before - self.first) * ENTRY_BYTES).min(self.bytes.len() as u64) as usize;
        let known = here.len().min(self.bytes.len() - from);
        here[..known].copy_from_slice(&self.bytes[from..from + known]);
        here[known..].fill(0); // nothing is written there
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(numbers: std::ops::Range<u64>) -> Vec<u8> {
        let entry = |number: u64| Entry { physical_offset: number.into(), size_bytes: 1, tags_code: 0 };
        numbers.flat_map(|number| entry(number).encode()).collect()
    }

    fn at(number: u64) -> QueueOffset {
        QueueOffset(number)
    }

    fn number(entry: Option<Entry>) -> Option<u64> {
        entry.map(|entry| entry.physical_offset.get())
    }

    #[test]
    fn entries_are_found_in_the_tail_or_said_to_be_in_a_file() {
        let mut tail = Tail::default();
        assert!(tail.entry(at(0)).is_none());
        assert_eq!(tail.fill(at(0), &mut [7; 60]), 3);
        tail.push(at(5), &entries(5..8));
        tail.push(at(8), &entries(8..10));
        assert!(tail.entry(at(4)).is_none());
        assert_eq!(tail.entry(at(5)).map(number), Some(Some(5)));
        assert_eq!(tail.entry(at(9)).map(number), Some(Some(9)));
        assert_eq!(tail.entry(at(10)).map(number), Some(None), "nothing is there yet, in no file either");
        for (first, count) in [(0, 5), (0, 6), (3, 7), (5, 5), (7, 2), (9, 1), (9, 4), (12, 2)] {
            let mut places = vec![7; count as usize * 20];
            let before = tail.fill(at(first), &mut places);
            assert_eq!(before, 5_u64.saturating_sub(first).min(count), "{first} {count}");
            let in_tail = (first + before).min(10)..(first + count).min(10);
            let known = in_tail.end.saturating_sub(in_tail.start);
            let mut expected = vec![7; before as usize * 20];
            if known > 0 {
                expected.extend(entries(in_tail));
            }
            expected.resize(places.len(), 0);
            assert_eq!(places, expected, "{first} {count}");
        }
    }

    #[test]
    fn what_was_written_goes_and_what_came_meanwhile_stays() {
        let mut tail = Tail::default();
        tail.push(at(5), &entries(5..8));
        let mut bytes = vec![1];
        assert_eq!(tail.copy_to(&mut bytes), at(5));
        assert_eq!(bytes, entries(5..8));
        tail.push(at(8), &entries(8..9));
        tail.forget_first(bytes.len());
        assert_eq!(tail.copy_to(&mut bytes), at(8));
        assert_eq!(bytes, entries(8..9));
        tail.forget_first(20);
        assert!(tail.is_empty());
        tail.push(at(9), &entries(9..10));
        assert_eq!(tail.clear(), 20);
    }
}
