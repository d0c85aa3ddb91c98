//! Gives records their place in the log.

use std::cell::RefCell;
use std::sync::Arc;

use rocketpy_env::failpoint::{self, Point};
use rocketpy_env::planted::{self, Bug};
use rocketpy_env::{Disk, Region};
use rocketpy_model::{PhysicalOffset, QueueOffset, sys_flag};
use rocketpy_protocol::batch;
use rocketpy_protocol::record::{BLANK_HEAD_BYTES, RecordEncodeError, RecordFields, RecordPlan, blank_head};

use crate::config::FlushMode;
use crate::core::{Core, Writer};
use crate::error::AppendError;
use crate::queue::Queue;
use crate::record::{Appended, AppendedBatch, NewRecord};

/// What a record may be longer than its body.
const RECORD_EXTRA_BYTES: usize = 64 << 10;
/// An encode buffer that grew past this is given back after the append.
const KEPT_BUFFER_BYTES: usize = 1 << 20;
/// A clock that steps back by no more than this does not take the stored times with it.
const CLOCK_STEP_MS: i64 = 60_000;

thread_local! {
    static BUFFER: RefCell<Encoded> = RefCell::default();
}

/// Records that are encoded but for their place.
#[derive(Default)]
struct Encoded {
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
struct Place {
    physical_offset: u64,
    queue_offset: u64,
    stored_at_ms: i64,
}

impl Encoded {
    fn clear(&mut self) {
        self.bytes.clear();
        self.body_at = None;
        self.size_bytes = 0;
        self.plans.clear();
    }

    /// Encodes the one record; its body, unless it is short, goes into the log from where it is.
    fn set(&mut self, fields: &RecordFields<'_>, record_check: bool) -> Result<(), AppendError> {
        let plan = fields.encode_apart(record_check, &mut self.bytes).map_err(encode_error)?;
        self.body_at = plan.left_out_at();
        self.note(plan);
        Ok(())
    }

    /// Encodes one of several records.
    fn push(&mut self, fields: &RecordFields<'_>, record_check: bool) -> Result<(), AppendError> {
        let plan = fields.encode(record_check, &mut self.bytes).map_err(encode_error)?;
        self.note(plan);
        Ok(())
    }

    fn note(&mut self, plan: RecordPlan) {
        self.size_bytes += plan.size();
        self.plans.push(plan);
    }

    /// What goes into the log, in order; `body` is that of the record that is alone.
    fn parts<'a>(&'a self, body: &'a [u8]) -> [&'a [u8]; 3] {
        match self.body_at {
            Some(at) => [&self.bytes[..at], body, &self.bytes[at..]],
            None => [&self.bytes, &[], &[]],
        }
    }

    /// Patches the late fields of every record.
    fn finish(&mut self, place: Place, counted: bool) {
        self.place = place;
        let mut rest = &mut self.bytes[..];
        let mut physical_offset = place.physical_offset;
        let mut queue_offset = place.queue_offset;
        for plan in &self.plans {
            let (record, later) = rest.split_at_mut(plan.encoded_size());
            rest = later;
            plan.finish(
                record,
                QueueOffset(queue_offset),
                PhysicalOffset(physical_offset),
                place.stored_at_ms,
            );
            physical_offset += plan.size() as u64;
            queue_offset += u64::from(counted);
        }
    }

    fn give_back(&mut self) {
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

impl<D: Disk> Core<D> {
    pub(crate) fn append(&self, record: &NewRecord<'_>) -> Result<Appended, AppendError> {
        self.check_open()?;
        self.check_body(record)?;
        BUFFER.with_borrow_mut(|encoded| {
            encoded.clear();
            let fields = self.fields(record);
            encoded.set(&fields, self.config.record_check)?;
            let limit_bytes = self.config.max_message_size as usize + RECORD_EXTRA_BYTES;
            if encoded.size_bytes > limit_bytes {
                return Err(AppendError::RecordTooLong { size_bytes: encoded.size_bytes, limit_bytes });
            }
            let size_bytes = encoded.size_bytes as u32;
            self.place(record, encoded)?;
            encoded.give_back();
            let place = &encoded.place;
            let physical_offset = PhysicalOffset(place.physical_offset);
            Ok(Appended {
                physical_offset,
                queue_offset: QueueOffset(place.queue_offset),
                size_bytes,
                stored_at_ms: place.stored_at_ms,
                end: physical_offset + u64::from(size_bytes),
            })
        })
    }

    pub(crate) fn append_batch(&self, batch: &NewRecord<'_>) -> Result<AppendedBatch, AppendError> {
        self.check_open()?;
        self.check_body(batch)?;
        BUFFER.with_borrow_mut(|encoded| {
            encoded.clear();
            for item in batch::items(batch.body) {
                let item = item.map_err(|error| AppendError::BadBatch { reason: error.to_string() })?;
                let fields = RecordFields {
                    flag: item.flag,
                    prepared_transaction_offset: PhysicalOffset::ZERO,
                    body: item.body,
                    properties: item.properties,
                    ..self.fields(batch)
                };
                encoded.push(&fields, self.config.record_check)?;
                self.check_fits(encoded)?; // at every step: items may be short and many, and a record is longer than its item
            }
            if encoded.plans.is_empty() {
                return Err(AppendError::BadBatch { reason: "it holds no message".to_owned() });
            }
            let size_bytes = encoded.size_bytes as u32;
            self.place(batch, encoded)?;
            let place = encoded.place;
            let mut next = PhysicalOffset(place.physical_offset);
            let mut step = |plan: &RecordPlan| {
                let this = next;
                next += plan.size() as u64;
                this
            };
            let physical_offsets = encoded.plans.iter().map(&mut step).collect();
            encoded.give_back();
            Ok(AppendedBatch {
                physical_offsets,
                first_queue_offset: QueueOffset(place.queue_offset),
                size_bytes,
                stored_at_ms: place.stored_at_ms,
                end: next,
            })
        })
    }

    fn check_body(&self, record: &NewRecord<'_>) -> Result<(), AppendError> {
        let limit_bytes = self.config.max_message_size as usize;
        if record.body.len() > limit_bytes {
            return Err(AppendError::BodyTooLong { size_bytes: record.body.len(), limit_bytes });
        }
        Ok(())
    }

    /// Whether the records fit into one file.
    fn check_fits(&self, encoded: &mut Encoded) -> Result<(), AppendError> {
        let file_bytes = self.config.commit_log_file_size;
        let size_bytes = encoded.size_bytes;
        if size_bytes > file_bytes as usize - BLANK_HEAD_BYTES {
            encoded.give_back();
            return Err(AppendError::LongerThanFile { size_bytes, file_bytes });
        }
        Ok(())
    }

    fn fields<'a>(&self, record: &NewRecord<'a>) -> RecordFields<'a> {
        RecordFields {
            topic: record.topic,
            queue_id: record.queue_id,
            flag: record.flag,
            sys_flag: record.sys_flag,
            born_at_ms: record.born_at_ms,
            born_host: record.born_host,
            store_host: self.store_host(),
            reconsume_times: record.reconsume_times,
            prepared_transaction_offset: record.prepared_transaction_offset,
            body: record.body,
            properties: record.properties,
            more_properties: &[],
        }
    }

    /// Waits for the disk as the store's owner wants it.
    pub(crate) fn waiting<T>(&self, wait: impl FnOnce() -> T) -> T {
        let (mut wait, mut result) = (Some(wait), None);
        self.listener().waits(&mut || result = wait.take().map(|wait| wait()));
        result.expect("a listener lets appends wait")
    }

    /// Gives the records their offsets and copies them into the log, all or none.
    fn place(&self, record: &NewRecord<'_>, encoded: &mut Encoded) -> Result<(), AppendError> {
        self.check_fits(encoded)?;
        self.wait_for_room()?;
        let counted = counts_in_queue(record.sys_flag);
        loop {
            let placed = self.queues.with(record.topic, record.queue_id, |queue| {
                let mut writer = self.writer.lock();
                (!queue.is_deleted())
                    .then(|| self.place_in(&mut writer, queue, counted, record.body, encoded))
            });
            let Some(placed) = placed? else { continue }; // the topic was deleted and may be made anew
            let Some(wakes) = placed? else {
                self.waiting(|| self.wait_for_file())?;
                continue;
            };
            if wakes {
                self.dispatch_wake.wake();
            }
            self.allocator.look_ahead(encoded.place.physical_offset + encoded.size_bytes as u64);
            return Ok(());
        }
    }

    /// What happens under the append lock. Says whether dispatch is to be woken; `None` when the next file is not there yet
    /// and nothing has changed.
    ///
    /// # Source
    /// docs/reference/store-format.md 2.7 steps 6 to 9. One lock gives physical and queue offsets: within a queue both grow together.
    fn place_in(
        &self,
        writer: &mut Writer<D::Region>,
        queue: &Queue,
        counted: bool,
        body: &[u8],
        encoded: &mut Encoded,
    ) -> Result<Option<bool>, AppendError> {
        self.check_open()?; // closed or poisoned while this waited
        let size = encoded.size_bytes as u64;
        let now_ms = self.disk.now_ms_near(&mut writer.last_look);
        let stored_at_ms = writer.time(now_ms);
        if !self.make_room(writer, size)? {
            return Ok(None);
        }
        let Some(file) = &writer.active else { unreachable!("there is room in a file") };
        let queue_offset = if counted { queue.next().get() } else { 0 };
        let place = Place { physical_offset: file.wrote().get(), queue_offset, stored_at_ms };
        if counted && queue_offset == 0 {
            queue.set_born(PhysicalOffset(place.physical_offset));
        }
        failpoint::reach(Point::BeforeAppend);
        encoded.finish(place, counted);
        file.region.append_parts(&encoded.parts(body), size);
        file.region.expect(size); // the next record is probably as long
        if counted {
            queue.set_next(QueueOffset(queue_offset + encoded.plans.len() as u64));
        }
        let end = place.physical_offset + size;
        self.publish(end, Some(stored_at_ms));
        failpoint::reach(Point::AfterAppend);
        let is_async = self.config.flush == FlushMode::Async; // else the flush wakes it
        Ok(Some(is_async && std::mem::take(&mut writer.dispatch_sleeps)))
    }

    /// Makes sure that the active file has room for a record and the blank record behind it; rolls to the next one when
    /// it has not. Says no while there is no next one yet.
    ///
    /// # Errors
    /// When there is no next file. Nothing has changed then: a shorter record may still fit.
    ///
    /// # Source
    /// docs/reference/store-format.md 2.4.
    fn make_room(&self, writer: &mut Writer<D::Region>, size: u64) -> Result<bool, AppendError> {
        let mut next_start = writer.next_start;
        let mut left = 0;
        if let Some(file) = &writer.active {
            left = file.region.len() - file.region.written();
            let spared = u64::from(planted::has(Bug::OffByOneAtRoll));
            if size + BLANK_HEAD_BYTES as u64 <= left + spared {
                return Ok(true);
            }
            next_start = file.end().get();
        }
        let Some(next) = self.next_file(next_start)? else { return Ok(false) };
        if let Some(file) = &writer.active {
            let blank = blank_head(left as u32);
            file.region.append(&blank[..BLANK_HEAD_BYTES.min(left as usize)], left);
            failpoint::reach(Point::Roll);
        }
        self.log.push(Arc::clone(&next));
        self.publish(next.start.get(), None);
        writer.active = Some(next);
        Ok(true)
    }
}

/// Whether a record takes a queue offset: half and rolled back messages do not.
pub(crate) fn counts_in_queue(flags: i32) -> bool {
    matches!(sys_flag::transaction(flags), 0 | sys_flag::TRANSACTION_COMMIT)
}

impl<R> Writer<R> {
    /// The stored time of the next record: the clock, held back from small steps into the past.
    fn time(&mut self, now_ms: i64) -> i64 {
        let back = self.last_stored_at.saturating_sub(now_ms);
        if !(0..=CLOCK_STEP_MS).contains(&back) {
            self.last_stored_at = now_ms;
        }
        self.last_stored_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_times_do_not_follow_a_small_step_back_and_do_follow_a_large_one() {
        let mut writer = Writer::<()>::new(None, 0, 1_000_000);
        assert_eq!(writer.time(1_000_005), 1_000_005);
        assert_eq!(writer.time(990_000), 1_000_005);
        assert_eq!(writer.time(1_000_006), 1_000_006);
        assert_eq!(writer.time(500_000), 500_000);
    }
}
