//! Records that are encoded except for their offsets and store time.

use rocketpy_model::{PhysicalOffset, QueueOffset};
use rocketpy_protocol::record::{RecordEncodeError, RecordFields, RecordPlan};

use crate::error::AppendError;

/// An encode buffer that grew past this is given back after the append.
const KEPT_BUFFER_BYTES: usize = 1 << 20;

/// The records of one append, encoded outside the writer lock. A thread keeps one for all its appends.
#[derive(Default)]
pub(super) struct Encoded {
    bytes: Vec<u8>,
    /// Where the body belongs when `bytes` leaves it out. A single record with a long body does.
    body_at: Option<usize>,
    /// Length of all records, with their bodies.
    size_bytes: usize,
    plans: Vec<RecordPlan>,
    /// Set before the records are copied. The caller reads its result from here, field by field, after the copy: a
    /// result moved as a whole would wait in the processor until the copied bytes have left it.
    place: Place,
}

/// Where records lie, and when they were stored.
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

    /// Encodes a single record. Its body, unless it is short, is copied into the log straight from the caller.
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

    /// Offset after the last record, once it has its place.
    #[inline]
    pub(super) fn end(&self) -> PhysicalOffset {
        self.place.physical_offset + self.size_bytes as u64
    }

    /// Calls `copy` with what goes into the log, in order. `body` is the body of a single record.
    ///
    /// Each record of several is a part of its own. Copied as one, the middle of them could be there without their start when the
    /// process is killed, and recovery would find sound records behind a damaged one.
    pub(super) fn with_parts<T>(&self, body: &[u8], copy: impl FnOnce(&[&[u8]]) -> T) -> T {
        if let Some(at) = self.body_at {
            return copy(&[&self.bytes[..at], body, &self.bytes[at..]]);
        }
        let [_, _, ..] = self.plans[..] else { return copy(&[&self.bytes]) };
        let mut rest = &self.bytes[..];
        let next = |plan: &RecordPlan| rest.split_off(..plan.encoded_size()).unwrap_or_default();
        let parts: Vec<_> = self.plans.iter().map(next).collect();
        copy(&parts)
    }

    /// Patches the late fields of every record.
    ///
    /// # Panics
    /// When the total length differs from the plan: the next record would not lie where it says.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_record_of_several_is_a_part_of_its_own() {
        let host = "127.0.0.1:1".parse().unwrap();
        let mut encoded = Encoded::default();
        for body in [b"a".as_slice(), b"bb", b"ccc"] {
            let fields = RecordFields {
                topic: "t",
                queue_id: 0,
                flag: 0,
                sys_flag: 0,
                born_at_ms: 0,
                born_host: host,
                store_host: host,
                reconsume_times: 0,
                prepared_transaction_offset: PhysicalOffset::ZERO,
                body,
                properties: b"",
                may_have_crc: true,
            };
            encoded.push(&fields, true).unwrap();
        }
        let sizes: Vec<_> = encoded.plans().iter().map(RecordPlan::size).collect();
        encoded.with_parts(b"", |parts| {
            assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), sizes);
            assert_eq!(parts.concat(), encoded.bytes);
        });
    }
}
