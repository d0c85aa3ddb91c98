//! Puts records that were copied from another store's log into this one, as they are.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use rocketpy_env::Disk;
use rocketpy_env::failpoint::{self, Point};
use rocketpy_model::{PhysicalOffset, QueueOffset};
use rocketpy_protocol::record::RecordView;

use super::Appender;
use crate::config::FlushMode;
use crate::error::{AppendError, ReplicateError};
use crate::log::LogWriter;
use crate::queue::Queue;
use crate::record::counts_in_queue;

/// Records of one file of the log with their queues; `None` for one that gets no entry.
struct Copied<'a> {
    at: PhysicalOffset,
    records: &'a [RecordView<'a>],
    queues: &'a [Option<Arc<Queue>>],
    /// The bytes of each record, then the rest of the file when the records are its last.
    ///
    /// Each is a part of its own: a process that is killed leaves whole ones, and a piece of the next.
    parts: &'a [&'a [u8]],
}

/// What became of copied records under the writer lock.
enum Outcome {
    /// This many are in the log. The next one begins its queue anew, if there is one.
    Placed { records: usize, wakes: bool },
    /// The next file is not there yet.
    LacksFile,
    /// A topic was deleted since its queue was looked up.
    QueueGone,
}

impl<D: Disk> Appender<D> {
    /// Puts records, which were checked, and the blank record that ends their file at the end of the log, which is to be `at`. Stops
    /// before a record whose queue has its number already. Returns how many records are in the log.
    ///
    /// # Errors
    /// As [`Appender::append`], and [`ReplicateError::WrongPlace`]. Nothing of it is in the log then.
    pub(crate) fn place_copied(
        &self,
        at: PhysicalOffset,
        records: &[RecordView<'_>],
        blank: &[u8],
    ) -> Result<usize, ReplicateError> {
        self.flusher.wait_for_room()?;
        self.wait_for_dispatch()?;
        let blank = Some(blank).filter(|blank| !blank.is_empty());
        let parts: Vec<_> = records.iter().map(|view| view.bytes).chain(blank).collect();
        loop {
            let queues = self.queues_of(records);
            let mut writer = self.log.write();
            let placed = self.copy_in(&mut writer, &Copied { at, records, queues: &queues, parts: &parts });
            drop(writer);
            fence(Ordering::SeqCst); // pairs with `Queue::set_awaited` and `AppendBell::wait`
            let placed = placed.inspect_err(|error| {
                if matches!(error, ReplicateError::Refused(AppendError::Poisoned { .. })) {
                    self.admission.tell_poisoned(); // without the writer lock: listeners are called
                }
            });
            match placed? {
                Outcome::Placed { records, wakes } => {
                    self.tell(queues.iter().flatten().any(|queue| queue.is_awaited()), wakes);
                    self.allocator.look_ahead(self.log.end());
                    return Ok(records);
                }
                Outcome::LacksFile => self.listeners.waiting(|| self.allocator.wait_for_file())?,
                Outcome::QueueGone => {}
            }
        }
    }

    /// The queue of each record, made when it is missing.
    fn queues_of(&self, records: &[RecordView<'_>]) -> Vec<Option<Arc<Queue>>> {
        let mut last: Option<Arc<Queue>> = None;
        let queue_of = |view: &RecordView<'_>| {
            if !counts_in_queue(view.sys_flag) {
                return None;
            }
            let is_it = |queue: &&Arc<Queue>| queue.queue_id == view.queue_id && *queue.topic == *view.topic;
            if let Some(queue) = last.as_ref().filter(is_it) {
                return Some(Arc::clone(queue));
            }
            let found = self.derived.queues().get_or_create(view.topic, view.queue_id);
            last = found
                .inspect_err(|error| {
                    let at = view.physical_offset;
                    tracing::error!(%error, physical_offset = %at, "copied record has no consume queue entry");
                })
                .ok();
            last.clone()
        };
        records.iter().map(queue_of).collect()
    }

    /// The part under the writer lock.
    fn copy_in(&self, writer: &mut LogWriter<'_, D>, copied: &Copied<'_>) -> Result<Outcome, ReplicateError> {
        self.admission.check()?; // closed or poisoned while this waited
        let (at, end) = (copied.at, self.log.end());
        if at != end {
            return Err(ReplicateError::WrongPlace { at, end });
        }
        if copied.queues.iter().flatten().any(|queue| queue.is_deleted()) {
            return Ok(Outcome::QueueGone);
        }
        if let Some(start) = writer.lacks_any_room() {
            let Some(next) = self.allocator.next_file(start)? else { return Ok(Outcome::LacksFile) };
            writer.roll(next);
        }
        assert_eq!(writer.place(), at, "copied records keep their place");
        let records = take_numbers(copied);
        let is_whole = records == copied.records.len();
        let parts = if is_whole { copied.parts } else { &copied.parts[..records] };
        if parts.is_empty() {
            return Ok(Outcome::Placed { records, wakes: false });
        }
        failpoint::reach(Point::BeforeAppend);
        let size_bytes = parts.iter().map(|part| part.len() as u64).sum::<u64>();
        writer
            .copy(parts, size_bytes)
            .map_err(|error| AppendError::Poisoned { cause: self.admission.mark_poisoned(error) })?;
        match copied.records[..records].last() {
            Some(last) => writer.publish_copied(at + size_bytes, last.stored_at_ms),
            None => writer.publish(at + size_bytes, self.log.last_stored_at()),
        }
        failpoint::reach(Point::AfterAppend);
        let is_async = self.log.config().flush == FlushMode::Async; // else the flush wakes it
        Ok(Outcome::Placed { records, wakes: is_async && writer.take_wake() })
    }
}

/// Moves the numbers of the queues after the records. Returns how many records there are before the first whose number its queue has
/// already.
fn take_numbers(copied: &Copied<'_>) -> usize {
    let mut at = copied.at;
    for (index, (view, queue)) in copied.records.iter().zip(copied.queues).enumerate() {
        if let Some(queue) = queue {
            let next = queue.next();
            if view.queue_offset < next {
                return index;
            }
            if next == QueueOffset::ZERO {
                queue.set_born(at);
            }
            queue.set_next(view.queue_offset + 1);
        }
        at += view.size() as u64;
    }
    copied.records.len()
}
