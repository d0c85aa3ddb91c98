//! Records that are encoded but for their place.

use rocketpy_model::{PhysicalOffset, QueueOffset};
use rocketpy_protocol::record::{RecordEncodeError, RecordFields, RecordPlan};

use crate::error::AppendError;

/// An encode buffer that grew past this is given back after the append.
const KEPT_BUFFER_BYTES: usize = 1 << 20;

/// What one append brings, encoded outside of the writer lock. A thread keeps one for all its appends.
#[derive(Default)]
pub(super) struct Encoded {
    bytes: Vec<u8>,
    /// Where in the bytes the body belongs that is not among them: that of a record that is alone.
    body_at: Option<usize>,
    /// Length of all records, with their bodies.
    size_bytes: usize,
    plans: Vec<RecordPlan>,
    /// Set before the records are copied. What is returned after a copy is read from here, piece by piece: a result that is
    /// moved as a whole would wait in the processor until the copied bytes have left it.
    place: Place,
}

/// The place that records got.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Place {
    pub physical_offset: PhysicalOffset,
    pub queue_offset: QueueOffset,
    pub stored_at_ms: i64,
}

impl Encoded {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.body_at = None;
        self.size_bytes = 0;
        self.plans.clear();
    }

    /// Encodes the one record; its body, unless it is short, goes into the log from where it is.
    pub(super) fn set(&mut self, fields: &RecordFields<'_>, record_check: bool) -> Result<(), AppendError> {
        let plan = fields.encode_apart(record_check, &mut self.bytes).map_err(encode_error)?;
        self.body_at = plan.left_out_at();
        self.note(plan);
        Ok(())
    }

    /// Encodes one of several records.
    pub(super) fn push(&mut self, fields: &RecordFields<'_>, record_check: bool) -> Result<(), AppendError> {
        let plan = fields.encode(record_check, &mut self.bytes).map_err(encode_error)?;
        self.note(plan);
        Ok(())
    }

    fn note(&mut self, plan: RecordPlan) {
        self.size_bytes += plan.size();
        self.plans.push(plan);
    }

    pub(super) fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    pub(super) fn plans(&self) -> &[RecordPlan] {
        &self.plans
    }

    #[inline]
    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// Offset behind the last record, once it has its place.
    #[inline]
    pub(super) fn end(&self) -> PhysicalOffset {
        self.place.physical_offset + self.size_bytes as u64
    }

    /// What goes into the log, in order; `body` is that of the record that is alone.
    pub(super) fn parts<'a>(&'a self, body: &'a [u8]) -> [&'a [u8]; 3] {
        match self.body_at {
            Some(at) => [&self.bytes[..at], body, &self.bytes[at..]],
            None => [&self.bytes, &[], &[]],
        }
    }

    /// Patches the late fields of every record.
    ///
    /// # Panics
    /// When the records are not as long together as was planned: the next record would lie elsewhere than it says.
    pub(super) fn finish(&mut self, place: Place, counted: bool) {
        self.place = place;
        let mut rest = &mut self.bytes[..];
        let mut physical_offset = place.physical_offset;
        let mut queue_offset = place.queue_offset;
        for plan in &self.plans {
            let (record, later) = rest.split_at_mut(plan.encoded_size());
            rest = later;
            plan.finish(record, queue_offset, physical_offset, place.stored_at_ms);
            physical_offset += plan.size() as u64;
            queue_offset += u64::from(counted);
        }
        assert!(rest.is_empty(), "bytes that belong to no record: {}", rest.len());
        assert_eq!(
            physical_offset,
            place.physical_offset + self.size_bytes as u64,
            "records as long as planned"
        );
    }

    pub(super) fn give_back(&mut self) {
        self.clear();
        if self.bytes.capacity() > KEPT_BUFFER_BYTES {
            self.bytes.shrink_to(KEPT_BUFFER_BYTES);
        }
    }
}

fn encode_error(error: RecordEncodeError) -> AppendError {
    match error {
        RecordEncodeError::TopicTooLong { length, limit } => {
            AppendError::TopicLength { size_bytes: length, limit_bytes: limit }
        }
        RecordEncodeError::PropertiesTooLong { length, limit } => {
            AppendError::PropertiesTooLong { size_bytes: length, limit_bytes: limit }
        }
        RecordEncodeError::BodyTooLong { length, limit } => {
            AppendError::BodyTooLong { size_bytes: length, limit_bytes: limit }
        }
    }
}
