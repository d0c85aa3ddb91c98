//! Gives records their place in the log.

mod copied;
mod encoded;
mod gather;

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use encoded::{Encoded, Place};
pub use gather::Gather;
use rocketpy_env::Disk;
use rocketpy_env::failpoint::{self, Point};
use rocketpy_env::planted::{self, Bug};
use rocketpy_model::{PhysicalOffset, QueueOffset};
use rocketpy_protocol::batch;
use rocketpy_protocol::record::{BLANK_HEAD_BYTES, RecordFields, RecordPlan};

use crate::admission::Admission;
use crate::allocate::Allocator;
use crate::append_bell::AppendBell;
use crate::config::FlushMode;
use crate::derived::Derived;
use crate::dispatch::Backlog;
use crate::error::AppendError;
use crate::flush::Flusher;
use crate::listener::Listeners;
use crate::log::{Log, LogWriter};
use crate::queue::Queue;
use crate::record::{Appended, AppendedBatch, NewRecord, counts_in_queue};
use crate::wake::Wake;

thread_local! {
    static BUFFER: RefCell<Encoded> = RefCell::default();
}

/// Appends, on the threads of the callers.
pub(crate) struct Appender<D: Disk> {
    log: Arc<Log<D>>,
    admission: Arc<Admission>,
    listeners: Arc<Listeners>,
    append_bell: Arc<AppendBell>,
    flusher: Arc<Flusher<D>>,
    allocator: Arc<Allocator<D>>,
    derived: Arc<Derived<D>>,
    dispatch_wake: Arc<Wake>,
    backlog: Arc<Backlog>,
}

impl<D: Disk> Appender<D> {
    pub(crate) fn new(
        log: &Arc<Log<D>>,
        admission: &Arc<Admission>,
        flusher: &Arc<Flusher<D>>,
        allocator: &Arc<Allocator<D>>,
        derived: &Arc<Derived<D>>,
        dispatch_wake: &Arc<Wake>,
        backlog: &Arc<Backlog>,
    ) -> Self {
        Self {
            log: Arc::clone(log),
            admission: Arc::clone(admission),
            listeners: Arc::clone(admission.listeners()),
            append_bell: Arc::clone(admission.append_bell()),
            flusher: Arc::clone(flusher),
            allocator: Arc::clone(allocator),
            derived: Arc::clone(derived),
            dispatch_wake: Arc::clone(dispatch_wake),
            backlog: Arc::clone(backlog),
        }
    }

    pub(crate) fn append(&self, record: &NewRecord<'_>) -> Result<Appended, AppendError> {
        self.admission.check()?;
        self.guarded(|| self.append_one(record))
    }

    /// Fails the call and poisons the store when an assertion fails in it.
    #[inline]
    fn guarded<T>(&self, append: impl FnOnce() -> Result<T, AppendError>) -> Result<T, AppendError> {
        self.admission.guarded("append to", append, |cause| AppendError::Poisoned { cause })
    }

    #[inline]
    fn append_one(&self, record: &NewRecord<'_>) -> Result<Appended, AppendError> {
        BUFFER.with_borrow_mut(|encoded| {
            encoded.clear();
            encoded.set(&self.fields(record), self.log.config().record_check)?;
            let size_bytes = encoded.size_bytes() as u32;
            self.place(record, encoded)?;
            encoded.give_back();
            let place = encoded.place();
            let physical_offset = place.physical_offset;
            Ok(Appended {
                physical_offset,
                queue_offset: place.queue_offset,
                size_bytes,
                stored_at_ms: place.stored_at_ms,
                end: physical_offset + u64::from(size_bytes),
            })
        })
    }

    pub(crate) fn append_batch(&self, batch: &NewRecord<'_>) -> Result<AppendedBatch, AppendError> {
        self.admission.check()?;
        self.guarded(|| self.append_items(batch))
    }

    fn append_items(&self, batch: &NewRecord<'_>) -> Result<AppendedBatch, AppendError> {
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
                encoded.push(&fields, self.log.config().record_check)?;
                self.check_fits(encoded)?; // at every step: items may be short and many, and a record is longer than its item
            }
            if encoded.plans().is_empty() {
                return Err(AppendError::BadBatch { reason: "it has no message".to_owned() });
            }
            let size_bytes = encoded.size_bytes() as u32;
            self.place(batch, encoded)?;
            let place = *encoded.place();
            let mut next = place.physical_offset;
            let mut step = |plan: &RecordPlan| {
                let this = next;
                next += plan.size() as u64;
                this
            };
            let physical_offsets: Vec<_> = encoded.plans().iter().map(&mut step).collect();
            assert_eq!(next, encoded.end(), "the records of a batch follow each other");
            encoded.give_back();
            Ok(AppendedBatch {
                physical_offsets,
                first_queue_offset: place.queue_offset,
                size_bytes,
                stored_at_ms: place.stored_at_ms,
                end: next,
            })
        })
    }

    /// Refuses records that do not fit into one file. There is no other limit: `maxMessageSize` is a rule for clients, which the
    /// broker checks.
    fn check_fits(&self, encoded: &mut Encoded) -> Result<(), AppendError> {
        let file_bytes = self.log.config().commit_log_file_size;
        let size_bytes = encoded.size_bytes();
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
            store_host: self.log.host(),
            reconsume_times: record.reconsume_times,
            prepared_transaction_offset: record.prepared_transaction_offset,
            body: record.body,
            properties: record.properties,
            may_have_crc: record.may_have_crc,
        }
    }

    /// Gives the records their offsets and copies them into the log, all or none.
    fn place(&self, record: &NewRecord<'_>, encoded: &mut Encoded) -> Result<(), AppendError> {
        self.check_fits(encoded)?;
        self.flusher.wait_for_room()?;
        self.wait_for_dispatch()?;
        let counted = counts_in_queue(record.sys_flag);
        loop {
            let placed = self.derived.queues().with(record.topic, record.queue_id, |queue| {
                let mut writer = self.log.write();
                if queue.is_deleted() {
                    return None;
                }
                let placed = self.place_in(&mut writer, queue, counted, record, encoded);
                drop(writer);
                fence(Ordering::SeqCst); // pairs with `Queue::set_awaited` and `AppendBell::wait`
                Some((placed, queue.is_awaited()))
            });
            let Some((placed, is_awaited)) = placed? else { continue }; // the topic was deleted and may be created again
            let placed = placed.inspect_err(|error| {
                if matches!(error, AppendError::Poisoned { .. }) {
                    self.admission.tell_poisoned(); // without the writer lock: listeners are called
                }
            });
            let Some(wakes) = placed? else {
                self.listeners.waiting(|| self.allocator.wait_for_file())?;
                continue;
            };
            self.tell(is_awaited, wakes);
            self.allocator.look_ahead(encoded.end());
            return Ok(());
        }
    }

    /// Wakes those who wait for an append that was just published, with a fence after it. `is_awaited` says that somebody waits for its
    /// queue, `wakes` that dispatch asked to be woken.
    #[inline]
    fn tell(&self, is_awaited: bool, wakes: bool) {
        self.append_bell.ring_if_awaited();
        let hurries = is_awaited && self.wakes_dispatch();
        if !gather::note(hurries || wakes) {
            match (hurries, wakes) {
                (true, _) => self.dispatch_wake.hurry(),
                (false, true) => self.dispatch_wake.wake(),
                (false, false) => {}
            }
        }
    }

    /// Whether an append makes its record readable at once, so that it wakes dispatch. Else the flush or the confirmation does.
    #[inline]
    fn wakes_dispatch(&self) -> bool {
        self.log.config().flush == FlushMode::Async && !self.log.holds_readers()
    }

    /// Bytes of the log that dispatch may see and has not: under synchronous flush those that are not durable do not count, and
    /// have a bound of their own. Nor do those that are not confirmed.
    #[inline]
    fn undispatched_bytes(&self) -> u64 {
        self.log.readable_end().saturating_sub(self.backlog.dispatched())
    }

    /// Waits until dispatch is no further behind than the configuration allows.
    ///
    /// # Errors
    /// [`AppendError::DispatchBehind`] when dispatch came no further for as long as an append waits.
    #[inline]
    fn wait_for_dispatch(&self) -> Result<(), AppendError> {
        let limit_bytes = self.log.config().max_undispatched_bytes;
        if limit_bytes == 0 || self.undispatched_bytes() <= limit_bytes {
            Ok(())
        } else {
            self.listeners.waiting(|| self.wait_behind(limit_bytes))
        }
    }

    fn wait_behind(&self, limit_bytes: u64) -> Result<(), AppendError> {
        self.dispatch_wake.hurry();
        // What refuses appends is told by the next check of the admission.
        let is_over = || self.undispatched_bytes() <= limit_bytes || self.admission.check().is_err();
        if self.backlog.wait(self.log.config().busy_timeout, is_over) {
            return Ok(());
        }
        let path = self.log.folder().consume_queue.clone();
        Err(AppendError::DispatchBehind { path, undispatched_bytes: self.undispatched_bytes(), limit_bytes })
    }

    /// The part under the writer lock. Returns whether to wake dispatch; `None` when the next file is not there yet and
    /// nothing has changed.
    ///
    /// # Source
    /// docs/reference/store-format.md 2.7 steps 6 to 9. One lock gives physical and queue offsets: within a queue both grow together.
    fn place_in(
        &self,
        writer: &mut LogWriter<'_, D>,
        queue: &Queue,
        counted: bool,
        record: &NewRecord<'_>,
        encoded: &mut Encoded,
    ) -> Result<Option<bool>, AppendError> {
        self.admission.check()?; // closed or poisoned while this waited
        let size_bytes = encoded.size_bytes() as u64;
        let stored_at_ms = writer.stored_at(record.born_at_ms);
        if !self.make_room(writer, size_bytes)? {
            return Ok(None);
        }
        let queue_offset = if counted { queue.next() } else { QueueOffset::ZERO };
        let physical_offset = writer.place();
        if counted && queue_offset == QueueOffset::ZERO {
            queue.set_born(physical_offset);
        }
        failpoint::reach(Point::BeforeAppend);
        encoded.finish(Place { physical_offset, queue_offset, stored_at_ms }, counted);
        encoded
            .with_parts(record.body, |parts| writer.copy(parts, size_bytes))
            .map_err(|error| AppendError::Poisoned { cause: self.admission.mark_poisoned(error) })?;
        if counted {
            queue.set_next(queue_offset + encoded.plans().len() as u64);
        }
        let ahead = u64::from(planted::has(Bug::PublishedAhead));
        writer.publish(physical_offset + size_bytes + ahead, stored_at_ms);
        failpoint::reach(Point::AfterAppend);
        Ok(Some(self.wakes_dispatch() && writer.take_wake()))
    }

    /// Makes sure that the active file has room for records, and rolls to the next one when it has not. Returns false
    /// while there is no next one yet.
    ///
    /// # Errors
    /// When there is no next file. Nothing has changed then: a shorter record may still fit.
    #[inline]
    fn make_room(&self, writer: &mut LogWriter<'_, D>, size_bytes: u64) -> Result<bool, AppendError> {
        let Some(start) = writer.lacks_file(size_bytes) else { return Ok(true) };
        let Some(next) = self.allocator.next_file(start)? else { return Ok(false) };
        writer.roll(next);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use rocketpy_model::system;
    use rocketpy_protocol::properties_text;

    use super::*;
    use crate::alone;

    #[test]
    fn offsets_of_log_and_queue_grow_together() {
        let dir = tempfile::tempdir().unwrap();
        let store = alone::pipeline(dir.path(), FlushMode::Async);
        let mut end = store.log.end();
        for number in 0..3 {
            let appended = store.appender.append(&alone::record(b"hello")).unwrap();
            assert_eq!((appended.physical_offset, appended.queue_offset.get()), (end, number));
            end = appended.end;
            assert_eq!(store.log.end(), end);
        }
    }

    #[cfg(debug_assertions)]
    #[test]
    fn an_append_reads_no_properties_and_dispatch_reads_them_once() {
        let dir = tempfile::tempdir().unwrap();
        let store = alone::pipeline(dir.path(), FlushMode::Async);
        let before = properties_text::walks();
        for topic in ["t", system::SCHEDULE_TOPIC] {
            let properties = b"TAGS\x01a#b\x02KEYS\x01k\x02UNIQ_KEY\x01u\x02DELAY\x013\x02";
            let record = NewRecord { topic, properties, may_have_crc: false, ..alone::record(b"hello") };
            store.appender.append(&record).unwrap();
        }
        assert_eq!(properties_text::walks() - before, 0);
        assert!(store.dispatcher.round().unwrap());
        assert_eq!(properties_text::walks() - before, 2, "one for each record");
    }

    #[test]
    fn an_append_waits_while_dispatch_is_too_far_behind() {
        let dir = tempfile::tempdir().unwrap();
        let store = alone::pipeline(dir.path(), FlushMode::Async);
        let limit = alone::UNDISPATCHED_BYTES;
        while store.log.end().get() <= limit {
            store.appender.append(&alone::record(&[7; 1000])).unwrap();
        }
        let refused = store.appender.append(&alone::record(b"too early")).unwrap_err();
        let AppendError::DispatchBehind { undispatched_bytes, limit_bytes, .. } = &refused else {
            panic!("{refused}")
        };
        assert_eq!((*undispatched_bytes, *limit_bytes), (store.log.end().get(), limit));
        assert!(refused.retryable() && refused.hint().is_some());
        assert!(store.dispatcher.round().unwrap());
        store.appender.append(&alone::record(b"there is room")).unwrap();
    }

    #[test]
    fn under_synchronous_flush_nobody_waits_for_what_dispatch_may_not_see() {
        let dir = tempfile::tempdir().unwrap();
        let store = alone::pipeline(dir.path(), FlushMode::Sync);
        while store.log.end().get() <= 2 * alone::UNDISPATCHED_BYTES {
            store.appender.append(&alone::record(&[7; 1000])).unwrap();
        }
        store.flusher.flush_all().unwrap();
        let refused = store.appender.append(&alone::record(b"too early")).unwrap_err();
        assert!(matches!(refused, AppendError::DispatchBehind { .. }), "{refused}");
    }

    #[test]
    fn a_store_that_closes_takes_nothing_and_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let store = alone::pipeline(dir.path(), FlushMode::Async);
        store.admission.close();
        let refused = store.appender.append(&alone::record(b"hello"));
        assert!(matches!(refused, Err(AppendError::ShutDown)));
        assert_eq!((store.log.end().get(), store.derived.queues().count()), (0, 0));
    }
}
