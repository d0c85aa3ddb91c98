//! Brings queues and index after the start of the log, and after the ages that topics set.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use rocketpy_env::Disk;
use rocketpy_model::PhysicalOffset;

use super::{Aged, LogFile, OldPart, Retention, Round};
use crate::error::StoreError;
use crate::queue::Queue;
use crate::recovery::queues::{first_living, leads_before};

impl<D: Disk> Retention<D> {
    /// Says how long messages of each topic stay readable, in place of what was said before; takes effect at once. What is
    /// out of reach comes back at no later call.
    pub(crate) fn set_topics(&self, topics: HashMap<Arc<str>, Duration>) -> Result<(), StoreError> {
        self.state.lock().topics = topics;
        self.age_topics(&self.log_files()?);
        Ok(())
    }

    /// Brings queues and index after the start of the log. Says how many files of each went.
    pub(super) fn correct(
        &self,
        round: &mut Round,
        pause: &dyn Fn(Duration),
    ) -> Result<(usize, usize), StoreError> {
        let log_min = self.log.start();
        if log_min <= round.corrected_to {
            return Ok((0, 0));
        }
        let mut queues = self.derived.queues().all();
        queues.sort_unstable_by(|a, b| (&a.topic, a.queue_id).cmp(&(&b.topic, b.queue_id))); // a seed gives one order
        for queue in &queues {
            self.correct_minimum(queue, log_min)?;
        }
        let mut removed = 0;
        for queue in &queues {
            while !self.wake.is_stopped() && self.remove_queue_file(queue, log_min)? {
                removed += 1;
                pause(self.log.config().retention.queue_file_pause);
            }
        }
        let index_files = self.derived.index().map_or(Ok(0), |index| index.expire(log_min))?;
        self.keeper.keep(false)?; // with where queues and index start now
        if !self.wake.is_stopped() {
            round.corrected_to = log_min;
        }
        Ok((removed, index_files))
    }

    /// Moves the minimum of a queue to its first record that is still there, or to its end.
    ///
    /// # Source
    /// docs/reference/store-format.md 3.4.
    fn correct_minimum(&self, queue: &Arc<Queue>, log_min: PhysicalOffset) -> Result<(), StoreError> {
        let _no_dispatch = self.dispatcher.pause();
        let former = queue.min();
        if queue.is_deleted() || former >= queue.max() {
            return Ok(());
        }
        let min = first_living(self.derived.files(), queue, former, log_min)?;
        if min > former {
            queue.set_min(min);
            tracing::debug!(topic = %queue.topic, queue_id = queue.queue_id, %former, %min, "queue starts later");
        }
        Ok(())
    }

    /// Removes the first file of a queue, unless it is the last, or the entry after it leads to a record that is still
    /// there: with that entry recovery sees that nothing is missing before. Says whether a file went.
    fn remove_queue_file(&self, queue: &Arc<Queue>, log_min: PhysicalOffset) -> Result<bool, StoreError> {
        let mut paused = self.dispatcher.pause();
        let files = self.derived.files();
        let first = queue.first();
        let next = first + files.entries_a_file();
        if queue.is_deleted() || next >= queue.max() || !leads_before(files, queue, next, log_min)? {
            return Ok(false);
        }
        files.remove_file(queue, first)?;
        queue.set_first(next);
        paused.move_firsts(next - first);
        queue.forget_dirty_file(files.file_start(first));
        // The name that is gone. The next file is there: a log file goes when the entries that lead into it are written.
        self.derived.queues().note_written(queue, files.file_start(next), true);
        tracing::info!(
            topic = %queue.topic, queue_id = queue.queue_id, first_entry = %first, %log_min,
            "consume queue file removed after its records"
        );
        Ok(true)
    }

    /// Moves the minimum of queues whose topics have an age of their own.
    pub(super) fn age_topics(&self, files: &[LogFile]) {
        let topics = self.state.lock().topics.clone();
        let now_ms = self.log.disk().now_ms();
        for (topic, kept) in topics {
            let old = OldPart::of(files, now_ms, kept, self.young_from(kept));
            for queue in self.derived.queues().of_topic(&topic) {
                // One queue that cannot be read keeps nothing else from going: neither files of the log nor other topics.
                if let Err(error) = self.age_queue(&queue, &old) {
                    tracing::error!(
                        topic = %queue.topic, queue_id = queue.queue_id, %error,
                        "minimum offset not moved past expired messages of a topic"
                    );
                }
            }
        }
    }

    fn age_queue(&self, queue: &Queue, old: &OldPart) -> Result<(), StoreError> {
        let former = queue.min();
        if queue.is_deleted() || former >= queue.max() {
            return Ok(());
        }
        let files = self.derived.files();
        let first = first_living(files, queue, former, old.all_before)?;
        let end = first_living(files, queue, first, old.none_from)?;
        let min = old.first_kept(first..end, |offset| match self.reads.stored_at_in(queue, offset) {
            Err(StoreError::DamagedLog { .. } | StoreError::BrokenEntry { .. }) => Ok(Aged::Unreadable),
            stored_at => stored_at.map(Aged::from),
        })?;
        // Dispatch continues while records are read; what it appends to the queue is behind them.
        let _no_dispatch = self.dispatcher.pause();
        if min > queue.min() && !queue.is_deleted() {
            let (topic, queue_id, stored_from_ms) = (&queue.topic, queue.queue_id, old.stored_from_ms);
            queue.set_min(min);
            tracing::info!(
                %topic, queue_id, %former, %min, stored_from_ms,
                "minimum offset moved past expired messages of a topic"
            );
        }
        Ok(())
    }
}
