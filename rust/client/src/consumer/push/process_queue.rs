//! The messages of a queue that handlers work on. No I/O.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rocketpy_model::QueueOffset;

use crate::consumer::batch::RecordSpan;
use crate::consumer::epoch::Epoch;

/// What was handed out from one queue and is not finished, and what was finished above such a message.
///
/// The offset of the first unfinished message is the one to commit: everything below it is done.
///
/// # Source
/// docs/reference/client.md 10.
#[derive(Debug)]
pub(crate) struct ProcessQueue {
    /// Ascending; the first one is not finished.
    entries: VecDeque<Entry>,
    /// Where order counts: what the queue does not have any more, or has as another message, and a handler may still have. Not finished, in
    /// no order.
    cut_off: Vec<Entry>,
    unfinished: usize,
    unfinished_bytes: usize,
    /// True once nothing of it is wanted any more.
    over: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Entry {
    offset: QueueOffset,
    size_bytes: u32,
    is_finished: bool,
    /// When it was handed out: the same offset may be handed out again, as another message or for a second time.
    life: Epoch,
}

impl ProcessQueue {
    pub(crate) fn new() -> Self {
        let over = Arc::new(AtomicBool::new(false));
        Self { entries: VecDeque::new(), cut_off: Vec::new(), unfinished: 0, unfinished_bytes: 0, over }
    }

    /// Becomes true when the queue goes to another member or is read from another offset.
    pub(crate) fn over(&self) -> &Arc<AtomicBool> {
        &self.over
    }

    /// Adds messages that are handed out, each above all before it.
    pub(crate) fn put(&mut self, spans: &[RecordSpan], life: Epoch) {
        for span in spans {
            let (offset, size_bytes) = (span.queue_offset, span.size_bytes);
            debug_assert!(self.entries.back().is_none_or(|last| last.offset < offset), "handed out in order");
            self.entries.push_back(Entry { offset, size_bytes, is_finished: false, life });
            self.unfinished_bytes += size_bytes as usize;
        }
        self.unfinished += spans.len();
    }

    /// Notes that messages are done. Those that are not here any more are passed over.
    pub(crate) fn finish(&mut self, spans: &[RecordSpan], life: Epoch) {
        let Some(first) = spans.first() else { return };
        self.finish_cut_off(spans, life);
        let mut at = self.entries.partition_point(|entry| entry.offset < first.queue_offset);
        for span in spans {
            while self.entries.get(at).is_some_and(|entry| entry.offset < span.queue_offset) {
                at += 1;
            }
            let Some(entry) = self.entries.get_mut(at) else { break };
            if entry.offset == span.queue_offset && entry.life == life && !entry.is_finished {
                entry.is_finished = true;
                assert!(
                    self.unfinished > 0 && self.unfinished_bytes >= entry.size_bytes as usize,
                    "a message that ends was counted as unfinished"
                );
                self.unfinished -= 1;
                self.unfinished_bytes -= entry.size_bytes as usize;
            }
        }
        while self.entries.front().is_some_and(|entry| entry.is_finished) {
            self.entries.pop_front();
        }
        self.check();
    }

    fn finish_cut_off(&mut self, spans: &[RecordSpan], life: Epoch) {
        let (unfinished, unfinished_bytes) = (&mut self.unfinished, &mut self.unfinished_bytes);
        self.cut_off.retain(|entry| {
            let is_it = |span: &RecordSpan| entry.offset == span.queue_offset;
            let ends = entry.life == life && spans.iter().any(is_it);
            if ends {
                *unfinished -= 1;
                *unfinished_bytes -= entry.size_bytes as usize;
            }
            !ends
        });
    }

    fn check(&self) {
        let in_work = self.entries.len() + self.cut_off.len();
        assert!(
            self.cut_off.len() <= self.unfinished && self.unfinished <= in_work,
            "unfinished messages are messages in work"
        );
        assert!(
            in_work > 0 || (self.unfinished, self.unfinished_bytes) == (0, 0),
            "a queue without messages in work counts none"
        );
    }

    /// Offset of the first message that is not finished.
    pub(crate) fn first_unfinished(&self) -> Option<QueueOffset> {
        let first = self.entries.front();
        assert!(
            first.is_none_or(|first| !first.is_finished),
            "a finished message does not hold commits back"
        );
        first.map(|first| first.offset)
    }

    /// Offset of the last message that was handed out, as long as one before it is not finished.
    pub(crate) fn last(&self) -> Option<QueueOffset> {
        self.entries.back().map(|entry| entry.offset)
    }

    /// Number of messages from the first unfinished one on: so many come again after a crash.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Number of messages that handlers have, or that are being sent back.
    pub(crate) fn unfinished(&self) -> usize {
        self.unfinished
    }

    /// Their bytes.
    pub(crate) fn unfinished_bytes(&self) -> usize {
        self.unfinished_bytes
    }

    /// The queue became shorter: messages from an offset on hold no commit back any more. Where order counts, those that handlers have stay
    /// unfinished until these end; else they are forgotten.
    pub(crate) fn cut(&mut self, to: QueueOffset, is_ordered: bool) {
        let kept = self.entries.partition_point(|entry| entry.offset < to);
        for gone in self.entries.drain(kept..).filter(|entry| !entry.is_finished) {
            let size_bytes = gone.size_bytes as usize;
            assert!(
                self.unfinished > 0 && self.unfinished_bytes >= size_bytes,
                "a message that is forgotten was counted as unfinished: {}",
                gone.offset
            );
            if is_ordered {
                self.cut_off.push(gone);
            } else {
                self.unfinished -= 1;
                self.unfinished_bytes -= size_bytes;
            }
        }
        self.check();
    }

    /// Forgets everything: what handlers have is not wanted any more.
    pub(crate) fn clear(&mut self) {
        *self = Self::new(); // the old one says so
    }
}

impl Drop for ProcessQueue {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE: Epoch = Epoch(1);

    fn spans(offsets: &[u64]) -> Vec<RecordSpan> {
        let span = |offset: &u64| RecordSpan {
            queue_offset: QueueOffset(*offset),
            start: 0,
            size_bytes: 100,
            is_compressed: false,
        };
        offsets.iter().map(span).collect()
    }

    fn of(offsets: &[u64]) -> ProcessQueue {
        let mut queue = ProcessQueue::new();
        queue.put(&spans(offsets), LIFE);
        queue
    }

    /// First unfinished offset, number of messages from there on, unfinished ones, their bytes.
    fn figures(queue: &ProcessQueue) -> (Option<u64>, usize, usize, usize) {
        let first = queue.first_unfinished().map(QueueOffset::get);
        (first, queue.len(), queue.unfinished(), queue.unfinished_bytes())
    }

    #[test]
    fn the_first_unfinished_message_holds_the_offset_back() {
        let mut queue = of(&[3, 4, 7, 9]);
        queue.finish(&spans(&[4, 7]), LIFE);
        assert_eq!(figures(&queue), (Some(3), 4, 2, 200));
        queue.finish(&spans(&[3]), LIFE);
        assert_eq!(figures(&queue), (Some(9), 1, 1, 100));
        queue.put(&spans(&[12]), LIFE);
        queue.finish(&spans(&[9, 12]), LIFE);
        assert_eq!(figures(&queue), (None, 0, 0, 0));
    }

    #[test]
    fn messages_end_in_any_order_and_count_once() {
        let mut queue = of(&[0, 1, 2, 3, 4, 5]);
        for offset in [5, 2, 2, 0, 4, 1] {
            queue.finish(&spans(&[offset]), LIFE);
        }
        assert_eq!(figures(&queue), (Some(3), 3, 1, 100));
        queue.finish(&spans(&[0, 1, 2, 3, 4, 5, 6]), LIFE);
        assert_eq!(figures(&queue), (None, 0, 0, 0));
    }

    #[test]
    fn what_was_handed_out_before_the_queue_became_shorter_ends_nothing_that_came_after() {
        let mut queue = of(&[0, 1, 2, 3]);
        queue.finish(&spans(&[2]), LIFE);
        queue.cut(QueueOffset(1), true);
        assert_eq!(figures(&queue), (Some(0), 1, 3, 300), "1 and 3 are unfinished, and hold nothing back");
        assert!(!queue.over().load(Ordering::Acquire), "the first message is still wanted");
        queue.put(&spans(&[1, 2]), Epoch(2));
        queue.finish(&spans(&[0, 1, 2]), LIFE);
        assert_eq!(figures(&queue), (Some(1), 2, 3, 300), "they are other messages");
        queue.cut(QueueOffset(0), true);
        assert_eq!(figures(&queue), (None, 0, 3, 300));
        queue.finish(&spans(&[1, 2, 3]), LIFE);
        queue.finish(&spans(&[1, 2]), Epoch(2));
        assert_eq!(figures(&queue), (None, 0, 0, 0));
    }

    #[test]
    fn side_by_side_messages_beyond_the_end_of_their_queue_are_forgotten() {
        let mut queue = of(&[0, 1, 2, 3]);
        queue.cut(QueueOffset(1), false);
        assert_eq!(figures(&queue), (Some(0), 1, 1, 100));
        queue.finish(&spans(&[0, 1, 2, 3]), LIFE);
        assert_eq!(figures(&queue), (None, 0, 0, 0));
    }

    #[test]
    fn who_holds_messages_learns_that_they_are_not_wanted() {
        let mut queue = of(&[0]);
        let over = queue.over().clone();
        queue.clear();
        assert!(over.load(Ordering::Acquire) && !queue.over().load(Ordering::Acquire));
        assert_eq!(figures(&queue), (None, 0, 0, 0));
        let over = queue.over().clone();
        drop(queue);
        assert!(over.load(Ordering::Acquire));
    }
    #[test]
    #[should_panic(expected = "a message that ends was counted as unfinished")]
    fn a_message_in_work_that_was_not_counted_is_found() {
        let mut queue = of(&[0]);
        queue.unfinished = 0;
        queue.finish(&spans(&[0]), LIFE);
    }
}
