//! Pulled messages: the bodies of pull answers as they came, with an index of their records.

use std::sync::Arc;

use bytes::Bytes;
use rocketpy_model::{MessageQueue, QueueOffset};
use rocketpy_protocol::record::RecordView;

/// Where a record lies in the body of a pull answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordSpan {
    pub start: u32,
    pub size_bytes: u32,
}

/// Messages of one queue, in order, that lie in one pull answer.
#[derive(Clone)]
pub struct PulledPart {
    queue: Arc<MessageQueue>,
    body: Bytes,
    spans: Arc<[RecordSpan]>,
    first: usize,
    end: usize,
    max_offset: QueueOffset,
}

/// What one `poll` handed out.
#[derive(Clone, Default)]
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
    pub fn queue(&self) -> &Arc<MessageQueue> {
        &self.queue
    }
    pub fn len(&self) -> usize {
        self.end - self.first
    }
    pub fn is_empty(&self) -> bool {
        self.end == self.first
    }
    /// End of the queue (exclusive) when the broker answered: for the lag.
    pub fn max_offset(&self) -> QueueOffset {
        self.max_offset
    }
    /// The body of the pull answer; [`spans`](Self::spans) point into it.
    pub fn body(&self) -> &Bytes {
        &self.body
    }
    pub fn spans(&self) -> &[RecordSpan] {
        &self.spans[self.first..self.end]
    }
    /// The bytes of one record, sharing the body.
    pub fn record_bytes(&self, index: usize) -> Bytes {
        let span = self.spans()[index];
        self.body.slice(span.start as usize..(span.start + span.size_bytes) as usize)
    }
    /// One record, parsed. It was checked when it arrived.
    pub fn record(&self, _index: usize) -> RecordView<'_> {
        unimplemented!()
    }
    pub fn iter(&self) -> impl Iterator<Item = RecordView<'_>> {
        (0..self.len()).map(|index| self.record(index))
    }
}

impl PulledBatch {
    pub fn parts(&self) -> &[PulledPart] {
        &self.parts
    }
    pub fn into_parts(self) -> Vec<PulledPart> {
        self.parts
    }
    pub fn len(&self) -> usize {
        self.parts.iter().map(PulledPart::len).sum()
    }
    pub fn is_empty(&self) -> bool {
        self.parts.iter().all(PulledPart::is_empty)
    }
    pub fn iter(&self) -> impl Iterator<Item = PulledMessage<'_>> {
        self.parts.iter().flat_map(|part| (0..part.len()).map(move |index| PulledMessage { part, index }))
    }
}

impl<'a> PulledMessage<'a> {
    pub fn queue(&self) -> &'a Arc<MessageQueue> {
        &self.part.queue
    }
    pub fn record(&self) -> RecordView<'a> {
        self.part.record(self.index)
    }
}
