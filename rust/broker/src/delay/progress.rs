//! Delivery progress of each delay level, and the part of it that may be written.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use rocketpy_model::{PhysicalOffset, QueueOffset};
use rocketpy_protocol::body::DelayOffsetSerializeWrapper;
use rocketpy_store::QueueBounds;
use tracing::warn;

use super::LEVELS;
use crate::put::MAX_UNREADABLE_MESSAGES;

/// Maximum number of deliveries of a level of which it is known by themselves whether they are durable; more of them count as one.
const MAX_PENDING: usize = 1024;

/// Delivery progress of each level.
#[derive(Debug)]
pub(super) struct Progress {
    levels: Vec<Level>,
    /// Content of the file.
    file: Arc<DelayOffsetSerializeWrapper>,
}

#[derive(Debug, Default)]
struct Level {
    /// The first message that is not delivered.
    next: QueueOffset,
    /// The first message of which no durable copy is known.
    durable: QueueOffset,
    /// Later values of `durable`.
    pending: VecDeque<Pending>,
    /// Messages before `next` that could not be read when they were due. Nothing behind the first one is written as done.
    passed: BTreeMap<QueueOffset, Passed>,
}

/// A message that others were delivered before.
#[derive(Debug)]
struct Passed {
    /// Physical offset of its record.
    at: PhysicalOffset,
    /// The log has to be flushed up to here; `None` until it is delivered.
    end: Option<PhysicalOffset>,
}

impl Level {
    /// The first message that is not durably done.
    fn written_to(&self) -> QueueOffset {
        self.passed.keys().next().map_or(self.durable, |first| self.durable.min(*first))
    }
}

/// Deliveries whose copies are not known to be durable.
#[derive(Debug)]
struct Pending {
    /// The first message that is not among them.
    next: QueueOffset,
    /// Physical offset of the first record.
    from: PhysicalOffset,
    /// The log has to be flushed up to here.
    end: PhysicalOffset,
}

impl Progress {
    /// Continues where the file says, or at the nearest message that there is: a power cut may have taken the last ones,
    /// retention the first ones.
    pub(super) fn new(file: DelayOffsetSerializeWrapper, bounds: impl Fn(u32) -> QueueBounds) -> Self {
        let level = |level: u32| {
            let bounds = bounds(level);
            let offset = file.offset_table.get(&(level as i32)).copied().unwrap_or(0);
            let written = QueueOffset(u64::try_from(offset).unwrap_or(0));
            if written > bounds.max {
                warn!(level, progress = %written, end = %bounds.max, "config/delayOffset.json is past the end of its queue, continuing at the end");
            }
            let next = written.clamp(bounds.min, bounds.max);
            Level { next, durable: next, pending: VecDeque::new(), passed: BTreeMap::new() }
        };
        Self { levels: (1..=LEVELS).map(level).collect(), file: Arc::new(file) }
    }

    /// The first message of a level that is not delivered; levels count from 0 here.
    pub(super) fn next(&self, level: usize) -> QueueOffset {
        self.levels[level].next
    }

    /// Everything of a level before `next` is done: the records lie at `from` and behind it, their copies before `end` in the log.
    pub(super) fn advance(
        &mut self,
        level: usize,
        next: QueueOffset,
        from: PhysicalOffset,
        end: PhysicalOffset,
    ) {
        let level = &mut self.levels[level];
        assert!(level.next <= next, "a delay level never goes back: {next} after {}", level.next);
        let last_end = level.pending.back().map_or(PhysicalOffset::ZERO, |last| last.end);
        assert!(
            last_end <= end,
            "copies of a delay level are in the order of the log: {end} after {last_end}"
        );
        let last_passed = level.passed.keys().next_back();
        assert!(
            last_passed.is_none_or(|passed| *passed < next),
            "a message that was passed over is before the next one: {last_passed:?}, {next}"
        );
        level.next = next;
        let last = level.pending.len().checked_sub(MAX_PENDING).and_then(|_| level.pending.pop_back());
        let from = last.map_or(from, |last| last.from.min(from));
        level.pending.push_back(Pending { next, from, end });
    }

    /// A message cannot be read: others are delivered before it. Returns whether there is room for that.
    pub(super) fn pass_over(&mut self, level: usize, queue_offset: QueueOffset, at: PhysicalOffset) -> bool {
        let has_room =
            self.levels.iter().map(|level| level.passed.len()).sum::<usize>() < MAX_UNREADABLE_MESSAGES;
        if has_room {
            let before = self.levels[level].passed.insert(queue_offset, Passed { at, end: None });
            assert!(before.is_none(), "a delayed message is passed over once: {queue_offset}");
        }
        has_room
    }

    /// Whether messages that were passed over are still to be delivered.
    pub(super) fn has_unreadable(&self) -> bool {
        self.levels.iter().flat_map(|level| level.passed.values()).any(|passed| passed.end.is_none())
    }

    /// Unreadable messages: level, queue offset, and physical offset of the record.
    pub(super) fn unreadable(&self) -> Vec<(usize, QueueOffset, PhysicalOffset)> {
        let of_level = |(number, level): (usize, &Level)| -> Vec<_> {
            let waiting = level.passed.iter().filter(|(_, passed)| passed.end.is_none());
            waiting.map(|(queue_offset, passed)| (number, *queue_offset, passed.at)).collect()
        };
        self.levels.iter().enumerate().flat_map(of_level).collect()
    }

    /// Marks a message that was passed over as delivered or dropped. Once the log is flushed up to `end`, that is durable.
    pub(super) fn is_done(&mut self, level: usize, queue_offset: QueueOffset, end: PhysicalOffset) {
        let passed = self.levels[level].passed.get_mut(&queue_offset);
        let is_waiting = passed.as_ref().is_some_and(|passed| passed.end.is_none());
        assert!(is_waiting, "a message that was passed over is done once: {queue_offset}");
        if let Some(passed) = passed {
            passed.end = Some(end);
        }
    }

    /// Where the first record is whose copy is not known to be durable, of those that are delivered.
    pub(super) fn ahead_from(&self) -> Option<PhysicalOffset> {
        let pending =
            self.levels.iter().filter_map(|level| level.pending.front()).map(|pending| pending.from);
        let passed = self.levels.iter().flat_map(|level| level.passed.values()).map(|passed| passed.at);
        pending.chain(passed).min()
    }

    /// Whether more is delivered than the file says.
    pub(super) fn is_ahead(&self) -> bool {
        let is_written = |number: i32, level: &Level| {
            level.written_to() == QueueOffset(0)
                || self.file.offset_table.get(&number) == Some(&(level.written_to().get() as i64))
        };
        let is_pending = |level: &Level| {
            !level.pending.is_empty() || level.passed.values().any(|passed| passed.end.is_some())
        };
        (1..).zip(&self.levels).any(|(number, level)| is_pending(level) || !is_written(number, level))
    }

    /// New content of the file after the log is flushed up to an offset; `None` if it is unchanged.
    pub(super) fn durable(
        &mut self,
        flushed: PhysicalOffset,
        now_ms: i64,
    ) -> Option<DelayOffsetSerializeWrapper> {
        let mut offset_table = self.file.offset_table.clone();
        for (number, level) in (1..).zip(&mut self.levels) {
            while let Some(pending) = level.pending.front().filter(|pending| pending.end <= flushed) {
                let (before, next) = (level.durable, pending.next);
                assert!(
                    before <= next,
                    "durable progress of a delay level only grows: {next} after {before}"
                );
                level.durable = next;
                level.pending.pop_front();
            }
            let Level { durable, next, .. } = *level;
            assert!(
                durable <= next,
                "no more of a delay level is durable than is delivered: {durable}, {next}"
            );
            level.passed.retain(|_, passed| passed.end.is_none_or(|end| end > flushed));
            let offset = level.written_to().get() as i64;
            if offset > 0 {
                offset_table.insert(number, offset);
            }
        }
        let is_changed = offset_table != self.file.offset_table;
        is_changed.then(|| DelayOffsetSerializeWrapper {
            data_version: self.file.data_version.next(now_ms),
            offset_table,
        })
    }

    /// Content of the file.
    pub(super) fn file(&self) -> Arc<DelayOffsetSerializeWrapper> {
        Arc::clone(&self.file)
    }

    /// The file holds this now.
    pub(super) fn written(&mut self, content: DelayOffsetSerializeWrapper) {
        self.file = Arc::new(content);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(min: u64, max: u64) -> impl Fn(u32) -> QueueBounds {
        move |_| QueueBounds { min: QueueOffset(min), max: QueueOffset(max) }
    }

    fn file(offsets: &[(i32, i64)]) -> DelayOffsetSerializeWrapper {
        DelayOffsetSerializeWrapper {
            offset_table: offsets.iter().copied().collect(),
            ..DelayOffsetSerializeWrapper::default()
        }
    }

    #[test]
    fn progress_continues_at_a_message_that_is_there() {
        let progress = Progress::new(file(&[(1, 2), (2, 7), (3, 99), (4, -1)]), bounds(5, 9));
        let next: Vec<u64> = (0..5).map(|level| progress.next(level).get()).collect();
        assert_eq!(next, [5, 7, 9, 5, 5]);
    }

    #[test]
    fn progress_is_written_as_far_as_the_copies_are_durable() {
        let mut progress = Progress::new(file(&[(19, 4)]), bounds(0, 9));
        assert_eq!(progress.durable(PhysicalOffset(1000), 1), None, "nothing happened");
        progress.advance(0, QueueOffset(1), PhysicalOffset(10), PhysicalOffset(100));
        progress.advance(0, QueueOffset(3), PhysicalOffset(30), PhysicalOffset(300));
        assert_eq!((progress.next(0), progress.is_ahead()), (QueueOffset(3), true));
        assert_eq!(progress.ahead_from(), Some(PhysicalOffset(10)));
        assert_eq!(progress.durable(PhysicalOffset(99), 1), None);
        let content = progress.durable(PhysicalOffset(299), 7).unwrap();
        assert_eq!(content.offset_table, file(&[(1, 1), (19, 4)]).offset_table, "another level's is kept");
        assert_eq!((content.data_version.counter, content.data_version.changed_at_ms), (1, 7));
        progress.written(content);
        assert_eq!(progress.durable(PhysicalOffset(299), 8), None);
        assert_eq!(progress.ahead_from(), Some(PhysicalOffset(30)));
        let content = progress.durable(PhysicalOffset(300), 9).unwrap();
        assert_eq!(content.offset_table[&1], 3);
        assert_eq!((progress.is_ahead(), progress.ahead_from()), (true, None), "the file says 1");
        progress.written(content);
        assert!(!progress.is_ahead());
    }

    #[test]
    fn what_is_pending_has_a_bound() {
        let mut progress = Progress::new(file(&[]), bounds(0, 1 << 20));
        for number in 1..=2 * MAX_PENDING as u64 {
            progress.advance(0, QueueOffset(number), PhysicalOffset(number), PhysicalOffset(number * 100));
        }
        let pending = &progress.levels[0].pending;
        assert_eq!((pending.len(), pending.back().unwrap().from.get()), (MAX_PENDING, MAX_PENDING as u64));
        let end = 2 * MAX_PENDING as u64;
        assert_eq!(progress.durable(PhysicalOffset(end * 100), 1).unwrap().offset_table[&1], end as i64);
    }
}
