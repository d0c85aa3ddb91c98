//! Pulled messages: the bodies of pull answers, each with an index of its records.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use rocketpy_model::{MessageQueue, QueueOffset};
use rocketpy_protocol::record::RecordView;

/// The position of a record in the body of a pull answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordSpan {
    /// The message's offset in its queue.
    pub queue_offset: QueueOffset,
    /// Index of the record's first byte.
    pub start: u32,
    /// Length of the record.
    pub size_bytes: u32,
    /// Its body has to be decompressed.
    pub is_compressed: bool,
}

impl RecordSpan {
    /// The record's bytes within the body.
    pub fn range(&self) -> Range<usize> {
        self.start as usize..self.start as usize + self.size_bytes as usize
    }
}

/// Messages of one queue from one pull answer, in order.
///
/// Cloning and splitting share body and index.
#[derive(Clone)]
pub struct PulledPart {
    queue: Arc<MessageQueue>,
    body: Bytes,
    spans: Arc<[RecordSpan]>,
    range: Range<usize>,
    max_offset: QueueOffset,
    /// Decompressed bodies, by index in `spans`.
    bodies: Option<Arc<HashMap<usize, Bytes>>>,
}

/// What one `poll` handed out.
#[derive(Debug, Clone, Default)]
pub struct PulledBatch {
    parts: Vec<PulledPart>,
}

/// One message of a batch, borrowed.
#[derive(Clone, Copy)]
pub struct PulledMessage<'a> {
    part: &'a PulledPart,
    index: usize,
}

impl PulledPart {
    /// Takes spans of records that were parsed once.
    pub(crate) fn new(
        queue: Arc<MessageQueue>,
        body: Bytes,
        spans: Arc<[RecordSpan]>,
        max_offset: QueueOffset,
    ) -> Self {
        assert!(
            spans.last().is_none_or(|last| last.range().end <= body.len()),
            "the records of an answer lie within its body"
        );
        let range = 0..spans.len();
        Self { queue, body, spans, range, max_offset, bodies: None }
    }

    /// The queue that was read.
    pub fn queue(&self) -> &Arc<MessageQueue> {
        &self.queue
    }

    /// Number of messages.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether there are no messages.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// End of the queue (exclusive) when the broker answered, from which the lag follows.
    pub fn max_offset(&self) -> QueueOffset {
        self.max_offset
    }

    /// The body of the pull answer; [`spans`](Self::spans) point into it.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// The position of each message, in order.
    pub fn spans(&self) -> &[RecordSpan] {
        &self.spans[self.range.clone()]
    }

    /// Bytes of the records of this part.
    pub fn size_bytes(&self) -> usize {
        self.spans().iter().map(|span| span.size_bytes as usize).sum()
    }

    /// The bytes of one record, sharing the body.
    ///
    /// # Panics
    /// When `index` is not below `len()`.
    pub fn record_bytes(&self, index: usize) -> Bytes {
        self.body.slice(self.spans()[index].range())
    }

    /// One record, parsed.
    ///
    /// # Panics
    /// When `index` is not below `len()`.
    pub fn record(&self, index: usize) -> RecordView<'_> {
        let bytes = &self.body[self.spans()[index].range()];
        RecordView::parse(bytes).expect("the record was parsed when it arrived and has not changed")
    }

    /// The decompressed body of a message, if it was kept by [`PullConsumer::read_bodies`](super::PullConsumer::read_bodies).
    pub fn decompressed(&self, index: usize) -> Option<&Bytes> {
        self.bodies.as_ref()?.get(&(self.range.start + index))
    }

    /// Keeps decompressed bodies, by index of the message.
    pub(crate) fn keep_bodies(&mut self, bodies: Vec<(usize, Bytes)>) {
        if !bodies.is_empty() {
            assert!(
                bodies.iter().all(|(index, _)| *index < self.len()),
                "a kept body belongs to a message of its part"
            );
            let at = self.range.start;
            self.bodies =
                Some(Arc::new(bodies.into_iter().map(|(index, body)| (at + index, body)).collect()));
        }
    }

    /// All records, each parsed when the iterator reaches it.
    pub fn iter(&self) -> impl Iterator<Item = RecordView<'_>> {
        (0..self.len()).map(|index| self.record(index))
    }

    /// Splits off the first `count` messages, or all if there are fewer.
    pub(crate) fn split_front(&mut self, count: usize) -> Self {
        let at = self.range.start + count.min(self.len());
        let front = Self { range: self.range.start..at, ..self.clone() };
        self.range.start = at;
        front
    }

    /// Some of the messages, by index.
    ///
    /// # Panics
    /// When the range ends above `len()`.
    pub(crate) fn slice(&self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len(), "messages {range:?} of {}", self.len());
        let at = self.range.start;
        Self { range: at + range.start..at + range.end, ..self.clone() }
    }

    /// Keeps only messages with offsets in `[from, to)`.
    pub(crate) fn clip(&mut self, from: QueueOffset, to: QueueOffset) {
        let spans = self.spans();
        let skip = spans.partition_point(|span| span.queue_offset < from);
        let keep = spans.partition_point(|span| span.queue_offset < to);
        self.range = self.range.start + skip..self.range.start + keep.max(skip);
        assert!(self.range.end <= self.spans.len(), "what is left of a part is part of it");
    }
}

impl fmt::Debug for PulledPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PulledPart")
            .field("queue", &self.queue)
            .field("messages", &self.len())
            .field("first", &self.spans().first().map(|span| span.queue_offset))
            .finish_non_exhaustive()
    }
}

impl PulledBatch {
    /// Adds a part unless it is empty.
    pub(crate) fn push(&mut self, part: PulledPart) {
        if !part.is_empty() {
            self.parts.push(part);
        }
    }

    /// The parts, each with messages of one queue in order.
    pub fn parts(&self) -> &[PulledPart] {
        &self.parts
    }

    /// The parts by value.
    pub fn into_parts(self) -> Vec<PulledPart> {
        self.parts
    }

    /// Number of messages.
    pub fn len(&self) -> usize {
        self.parts.iter().map(PulledPart::len).sum()
    }

    /// Whether there are no messages.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Whether a body has to be decompressed.
    pub fn has_compressed(&self) -> bool {
        self.parts.iter().any(|part| part.spans().iter().any(|span| span.is_compressed))
    }

    /// Bytes of all records.
    pub fn size_bytes(&self) -> usize {
        self.parts.iter().map(PulledPart::size_bytes).sum()
    }

    /// All messages, part by part.
    pub fn iter(&self) -> impl Iterator<Item = PulledMessage<'_>> {
        self.parts.iter().flat_map(|part| (0..part.len()).map(move |index| PulledMessage { part, index }))
    }
}

impl<'a> PulledMessage<'a> {
    /// The queue that was read.
    pub fn queue(&self) -> &'a Arc<MessageQueue> {
        &self.part.queue
    }

    /// The message's offset in its queue.
    pub fn queue_offset(&self) -> QueueOffset {
        self.part.spans()[self.index].queue_offset
    }

    /// The stored record.
    pub fn record(&self) -> RecordView<'a> {
        self.part.record(self.index)
    }
}
