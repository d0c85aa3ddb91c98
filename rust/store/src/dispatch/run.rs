//! Entries of one round, gathered by queue so that each queue is written once.

use std::sync::Arc;

use rocketpy_env::planted::{self, Bug};
use rocketpy_model::QueueOffset;

use super::fact::Fact;
#[cfg(test)]
use super::fact::NO_QUEUE;
use crate::queue::Queue;
use crate::queue::entry::{ENTRY_BYTES, Entry};
use crate::queue::table::QueueTable;

/// New entries of one queue that follow each other.
#[derive(Debug)]
pub(super) struct Run {
    pub queue: Arc<Queue>,
    /// Queue offset of the first entry in `bytes`.
    pub first: QueueOffset,
    pub bytes: Vec<u8>,
    /// The queue starts again at `first`: its former entries belong to a deleted topic of the same name.
    pub restart: bool,
    /// The files hold entries of other records from `first` on. They are removed before this is written.
    pub cut: bool,
    /// New first readable entry, when it changes.
    pub min: Option<QueueOffset>,
    /// It belongs to this round.
    is_open: bool,
}

impl Run {
    fn closed(queue: Arc<Queue>) -> Self {
        let first = QueueOffset::ZERO;
        Self { queue, first, bytes: Vec::new(), restart: false, cut: false, min: None, is_open: false }
    }

    fn close(&mut self, kept_bytes: usize) {
        self.bytes.clear();
        if self.bytes.capacity() > kept_bytes {
            self.bytes = Vec::new();
        }
        (self.restart, self.cut, self.min, self.is_open) = (false, false, None, false);
    }

    /// Queue offset after the last entry.
    pub(super) fn next(&self) -> QueueOffset {
        self.first + self.bytes.len() as u64 / ENTRY_BYTES
    }

    /// Checks, before the run is written, that it leaves no hole after the queue's entries.
    ///
    /// # Panics
    /// When it does, or its bytes are not whole entries.
    pub(super) fn check(&self) {
        let max = self.queue.max();
        assert_eq!(self.bytes.len() as u64 % ENTRY_BYTES, 0, "entries are whole");
        assert!(
            self.restart || max == QueueOffset::ZERO || self.first == max || (self.cut && self.first < max),
            "entries from {} on, the queue ends at {max}",
            self.first
        );
    }

    /// Goes back to a number that the queue already has. The later record in the log counts.
    fn step_back(&mut self, queue_offset: QueueOffset) {
        if queue_offset == QueueOffset::ZERO {
            self.bytes.clear();
            self.first = queue_offset;
            self.restart = true;
            self.min = Some(queue_offset);
            return;
        }
        tracing::warn!(
            topic = %self.queue.topic, queue_id = self.queue.queue_id, had = %self.next(), %queue_offset,
            "duplicate queue offsets in the log, keeping the later records"
        );
        match queue_offset.checked_sub(self.first) {
            Some(kept) => self.bytes.truncate((kept * ENTRY_BYTES) as usize),
            None => {
                self.bytes.clear();
                self.first = queue_offset;
                self.cut = !self.restart;
            }
        }
        self.min = Some(self.min.unwrap_or(self.queue.min()).min(queue_offset));
    }

    /// Adds the entry of a fact, with blanks before it. Returns the bytes that were added.
    ///
    /// # Panics
    /// When the entry does not get the place of its number.
    fn push(&mut self, fact: &Fact) -> usize {
        let before = self.bytes.len();
        self.fill_to(fact.queue_offset + u64::from(planted::has(Bug::EntryMisplaced)));
        assert_eq!(self.next(), fact.queue_offset, "an entry lies where its number says");
        let Fact { physical_offset, size_bytes, tags_code, .. } = *fact;
        self.bytes.extend_from_slice(&Entry { physical_offset, size_bytes, tags_code }.encode());
        self.bytes.len() - before
    }

    fn fill_to(&mut self, queue_offset: QueueOffset) {
        let missing = queue_offset.saturating_sub(self.next()) as usize;
        let blank = Entry::PRE_BLANK.encode();
        self.bytes.reserve((missing + 1) * blank.len()); // the entry as well
        for _ in 0..missing {
            self.bytes.extend_from_slice(&blank);
        }
    }
}

/// Result for a fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Added {
    /// It will be written.
    New,
    /// The queue has it already.
    Covered,
    /// Its queue offset leads nowhere.
    Refused,
    /// It gets no entry, or its topic was deleted.
    NoQueue,
}

#[derive(Debug, Default)]
pub(super) struct Runs {
    /// One for each queue that ever had entries, by its uid: kept from round to round, so that nobody counts references.
    runs: Vec<Option<Run>>,
    /// The uids of those that belong to this round.
    open: Vec<usize>,
    last: Option<usize>,
    /// Whether numbers were missing before some entry of this round.
    has_filled: bool,
    /// Length of the entries of this round, including those that were taken back.
    size_bytes: usize,
}

/// A round ends with this many bytes of entries. One entry may add the blanks of a whole file before it.
const ROUND_BYTES: usize = 4 << 20;

/// How much memory a run keeps for the next round: much in a store of few queues, very little where there may be
/// thousands.
const FEW: usize = 64;
const KEPT_BYTES_OF_FEW: usize = 1 << 20;
const KEPT_BYTES: usize = 64;

impl Runs {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Run> {
        self.open.iter().filter_map(|&uid| self.runs[uid].as_ref())
    }

    pub(super) fn clear(&mut self) {
        self.last = None;
        self.has_filled = false;
        self.size_bytes = 0;
        let kept_bytes = if self.runs.len() <= FEW { KEPT_BYTES_OF_FEW } else { KEPT_BYTES };
        for uid in self.open.drain(..) {
            if let Some(run) = &mut self.runs[uid] {
                run.close(kept_bytes);
            }
        }
    }

    /// Lets go of a queue that was deleted.
    pub(super) fn forget(&mut self, queue: &Queue) {
        if let Some(run) = self.runs.get_mut(queue.uid as usize) {
            *run = None;
            self.last = None;
        }
    }

    /// Adds the entry of a fact. `entries_a_file` bounds how many missing entries are filled with blanks.
    ///
    /// # Source
    /// docs/reference/store-format.md 3.2. A hole is filled. Numbers that start again belong to a topic that was
    /// deleted and created again.
    pub(super) fn add(
        &mut self,
        fact: &Fact,
        queues: &QueueTable,
        entries_a_file: u64,
        rebuilding: bool,
    ) -> Added {
        let Some(run) = self.run(fact.queue, queues) else {
            return Added::NoQueue;
        };
        if fact.queue_offset.get() > i64::MAX as u64 / ENTRY_BYTES - entries_a_file {
            return Added::Refused;
        }
        let expected = run.next();
        if fact.queue_offset < expected {
            if !rebuilding {
                return Added::Covered;
            }
            run.step_back(fact.queue_offset);
        }
        let expected = run.next();
        // Nothing of the queue can be read. What came before is gone, and that is more than its files say.
        run.restart |= rebuilding
            && run.bytes.is_empty()
            && fact.queue_offset > expected
            && expected > QueueOffset::ZERO
            && run.queue.min() == run.queue.max();
        if run.bytes.is_empty()
            && (run.restart || expected == QueueOffset::ZERO)
            && fact.queue_offset != expected
        {
            run.first = fact.queue_offset.block_start(entries_a_file);
            run.min = Some(fact.queue_offset);
        } else if fact.queue_offset > expected {
            if fact.queue_offset - expected > entries_a_file {
                return Added::Refused;
            }
            tracing::warn!(
                topic = %run.queue.topic, queue_id = run.queue.queue_id, %expected, queue_offset = %fact.queue_offset,
                "queue offsets missing in the log, filling the gap"
            );
        }
        let has_filled = fact.queue_offset > expected;
        let added_bytes = run.push(fact);
        self.has_filled |= has_filled;
        self.size_bytes += added_bytes;
        Added::New
    }

    /// Whether the round is to be written before more is added.
    pub(super) fn is_full(&self) -> bool {
        self.size_bytes >= ROUND_BYTES
    }

    /// Whether queue offsets were missing before some entry of this round.
    pub(super) fn has_filled(&self) -> bool {
        self.has_filled
    }

    /// The queue of the fact that was added last.
    pub(super) fn last_queue(&self) -> Option<&Arc<Queue>> {
        self.runs[self.last?].as_ref().map(|run| &run.queue)
    }

    /// The run of a queue, begun when there is none; `None` for no queue and for one that is gone.
    fn run(&mut self, uid: u64, queues: &QueueTable) -> Option<&mut Run> {
        let index = usize::try_from(uid).ok()?;
        if self.runs.get(index).is_none_or(Option::is_none) {
            let queue = queues.by_uid(uid)?;
            if self.runs.len() <= index {
                self.runs.resize_with(index + 1, || None);
            }
            self.runs[index] = Some(Run::closed(queue));
        }
        let run = self.runs[index].as_mut()?;
        if !run.is_open {
            run.is_open = true;
            run.first = run.queue.max();
            self.open.push(index);
        }
        self.last = Some(index);
        Some(run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table with one queue of `max` entries, and the queue's uid.
    fn table(max: u64) -> (QueueTable, u64) {
        let table = QueueTable::default();
        let queue = table.get_or_create("t", 0).unwrap();
        queue.publish(QueueOffset(max));
        (table, queue.uid)
    }

    fn fact(queue: u64, queue_offset: u64) -> Fact {
        let (physical_offset, queue_offset) = (1000.into(), queue_offset.into());
        Fact { queue, physical_offset, size_bytes: 100, queue_offset, tags_code: 0, stored_at_ms: 0 }
    }

    fn only(runs: &Runs) -> &Run {
        let run = runs.iter().next().unwrap();
        run.check();
        run
    }

    /// First queue offset of the only run, and the one after it.
    fn place(runs: &Runs) -> (u64, u64) {
        (only(runs).first.get(), only(runs).next().get())
    }

    #[test]
    #[should_panic(expected = "entries from 8 on, the queue ends at 5")]
    fn a_run_that_leaves_a_hole_is_not_written() {
        let (table, queue) = table(5);
        let mut run = Run::closed(table.by_uid(queue).unwrap());
        run.first = QueueOffset(8);
        run.check();
    }

    #[test]
    fn entries_that_are_there_are_not_written_again() {
        let ((table, queue), mut runs) = (table(5), Runs::default());
        assert_eq!(runs.add(&fact(queue, 4), &table, 10, false), Added::Covered);
        assert_eq!(runs.add(&fact(queue, 5), &table, 10, false), Added::New);
        assert_eq!(place(&runs), (5, 6));
    }

    #[test]
    fn a_queue_that_starts_late_is_blank_before() {
        let ((table, queue), mut runs) = (table(0), Runs::default());
        assert_eq!(runs.add(&fact(queue, 23), &table, 10, true), Added::New);
        let run = only(&runs);
        assert_eq!((place(&runs), run.min), ((20, 24), Some(QueueOffset(23))));
        assert_eq!(run.bytes[..20], Entry::PRE_BLANK.encode());
    }

    #[test]
    fn numbers_that_start_again_replace_the_queue_only_when_rebuilding() {
        let ((table, queue), mut runs) = (table(5), Runs::default());
        runs.add(&fact(queue, 5), &table, 10, true);
        assert_eq!(runs.add(&fact(queue, 0), &table, 10, true), Added::New);
        assert!(only(&runs).restart);
        assert_eq!(place(&runs), (0, 1));
    }

    #[test]
    fn a_number_that_comes_twice_cuts_the_queue_there() {
        let ((table, queue), mut runs) = (table(5), Runs::default());
        runs.add(&fact(queue, 5), &table, 10, true);
        runs.add(&fact(queue, 6), &table, 10, true);
        assert_eq!(runs.add(&fact(queue, 6), &table, 10, true), Added::New);
        assert_eq!((place(&runs), only(&runs).cut), ((5, 7), false), "not written yet");
        assert_eq!(runs.add(&fact(queue, 3), &table, 10, true), Added::New);
        assert_eq!((place(&runs), only(&runs).cut), ((3, 4), true));
        assert!(!only(&runs).restart, "what came before stays");
    }

    #[test]
    fn a_hole_is_filled_and_an_absurd_one_is_refused() {
        let ((table, queue), mut runs) = (table(5), Runs::default());
        assert_eq!(runs.add(&fact(queue, 8), &table, 10, false), Added::New);
        assert_eq!(place(&runs), (5, 9));
        assert_eq!(runs.add(&fact(queue, 100), &table, 10, false), Added::Refused);
        assert_eq!(runs.add(&fact(queue, u64::MAX), &table, 10, false), Added::Refused);
    }

    #[test]
    fn records_of_no_queue_and_of_deleted_ones_get_no_entry() {
        let ((table, queue), mut runs) = (table(0), Runs::default());
        table.remove_topic("t");
        assert_eq!(runs.add(&fact(queue, 0), &table, 10, false), Added::NoQueue);
        assert_eq!(runs.add(&fact(NO_QUEUE, 0), &table, 10, false), Added::NoQueue);
        assert_eq!(runs.iter().count(), 0);
    }
}
