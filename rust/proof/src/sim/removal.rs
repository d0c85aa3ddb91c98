//! Retention and the deletion of topics: what the store is asked to remove, and what may be gone because of it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rocketpy_env::sim::SimDisk;
use rocketpy_env::{Disk, DiskUsage};
use rocketpy_store::{Cleaned, Store, StoreError};

use super::log_files;
use super::plan::ROOT;
use super::removals::{LIMITS, LogFile, Removals, Round};
use super::run::Run;
use crate::checker::Rule;
use crate::history::{Call, Event, QueueName, Reply};

/// Files of the log that the disk has room for.
const DISK_FILES: u64 = 100;

impl Run {
    /// Removes something, or causes a removal: the disk fills up, time passes, an administrator asks. Appends when the plan
    /// removes nothing.
    pub(super) fn remove_something(&mut self, store: &Store<SimDisk>, dice: u8) {
        match (self.plan.retention, dice) {
            (Some(_), 0..=3) => self.clean(store),
            (Some(_), 4) if self.has_more_lives => self.fill_disk(),
            (Some(_), 5) => self.disk.pass_time(self.rng.i64(0..700)),
            (Some(_), 6) => {
                store.delete_expired();
                self.removals.is_asked = true;
            }
            (_, 7..) if self.plan.deletes => self.delete_topic(store),
            _ => self.append(store),
        }
    }

    /// Lets the process end during the next call more often than chance would.
    pub(super) fn may_end_soon(&mut self) {
        if self.stop.is_none() && self.has_more_lives && self.rng.u8(0..6) == 0 {
            self.stop = Some(self.disk.operations() + self.rng.u64(1..40));
            self.disk.stop_at(self.stop);
        }
    }

    /// Another program puts files on the disk, or removes them.
    fn fill_disk(&mut self) {
        self.removals.used_percent = *self.rng.choice(&[50, 75, 76, 80, 86, 90, 91, 97]).unwrap_or(&50);
        self.set_usage();
    }

    fn set_usage(&self) {
        let total_bytes = DISK_FILES * self.plan.log_file;
        let free_bytes = (100 - self.removals.used_percent) * self.plan.log_file;
        let usage = DiskUsage { file_system: 1, total_bytes, free_bytes, available_bytes: free_bytes };
        self.disk.set_usage(usage);
    }

    /// Prepares the disk for a start: the last one finds enough space.
    pub(super) fn prepare_disk(&mut self, is_last: bool) {
        if is_last || self.removals.used_percent == 0 {
            self.removals.used_percent = 50;
        }
        self.set_usage();
        let removals = &mut self.removals;
        removals.is_asked = false;
        removals.refuses = Some(removals.used_percent > LIMITS[2]);
    }

    /// Whether an append may be refused because the disk is too full, and whether it may be accepted.
    pub(super) fn may_refuse_for_space(&self) -> (bool, bool) {
        (self.removals.refuses != Some(false), self.removals.refuses != Some(true))
    }

    /// A round of retention.
    fn clean(&mut self, store: &Store<SimDisk>) {
        let Some(rules) = self.plan.retention else { return };
        let round = self.look(store);
        let before_ms = self.disk.now_ms();
        // A file stays until all of it is dispatched; and a flush of what the start found writes its file again, which is young then.
        let settled = store.dispatched_offset().min(store.flushed_offset()).get();
        let before = self.disk.monotonic();
        let young_from = self.removals.young_from(before, rules.reserved_ms);
        let certain = round.with_young(young_from, before_ms);
        let removable = settled.min(certain.start_after(&rules, self.plan.log_file, before_ms));
        let ends = round.files.iter().map(|file| file.end).filter(|&end| end <= removable);
        let must = ends.max().unwrap_or(0);
        self.removals.round = Some(round);
        self.may_end_soon();
        let cleaned = store.step_clean();
        self.end_round();
        let start = store.min_physical_offset().get();
        self.journal.lock().push(Event::Expired { topic: None, queue_id: None, before: start });
        self.note_age(store, before_ms, before, cleaned.is_ok());
        self.note_end(store);
        match cleaned {
            Ok(cleaned) => self.note_cleaned(store, start, must, &cleaned),
            Err(error) => {
                self.removals.refuses = None;
                if !self.has_faults() {
                    self.wrong(Rule::Alive, format!("retention fails on a sound disk: {error}"));
                }
            }
        }
    }

    /// Notes how far this run of the store has appended, after the store noted it.
    pub(super) fn note_end(&mut self, store: &Store<SimDisk>) {
        self.removals.noted.push((self.disk.monotonic(), store.max_physical_offset().get()));
    }

    fn note_cleaned(&mut self, store: &Store<SimDisk>, start: u64, must: u64, cleaned: &Cleaned) {
        let removals = &mut self.removals;
        let used = removals.used_percent;
        removals.refuses = removals
            .refuses
            .map(|refuses| used > LIMITS[2] || refuses && used > LIMITS[1])
            .or_else(|| (used > LIMITS[2]).then_some(true))
            .or_else(|| (used <= LIMITS[1]).then_some(false));
        removals.used_percent = used.saturating_sub(cleaned.log_files as u64);
        removals.is_asked &= cleaned.has_more;
        removals.removed_files += cleaned.log_files as u64;
        removals.must_start = start.max(removals.must_start);
        self.set_usage();
        if start < must && !self.has_clock_steps() {
            let text = format!("retention left the log at {start}, it should have removed it up to {must}");
            self.wrong(Rule::Alive, text);
        }
        self.check_start(start);
        self.check_minima(store);
    }

    /// Checks that each queue starts with a readable message after a round.
    fn check_minima(&mut self, store: &Store<SimDisk>) {
        let queues = store.queues().into_iter().filter(|queue| queue.bounds.min < queue.bounds.max);
        for queue in queues {
            let (topic, queue_id, min) = (&queue.topic, queue.queue_id, queue.bounds.min);
            let first = self.quiet(|_| store.stored_at(topic, queue_id, min));
            if !matches!(first, Ok(Some(_))) {
                let text = format!("{topic}-{queue_id} starts at {min}, and has no message there: {first:?}");
                self.wrong(Rule::R6, text);
            }
        }
    }

    fn has_clock_steps(&self) -> bool {
        self.disk.options().clock_steps_per_mille > 0
    }

    /// The files of the log as the next round will find them.
    fn look(&mut self, store: &Store<SimDisk>) -> Round {
        let end = store.max_physical_offset().get();
        let dir = Path::new(ROOT).join("commitlog");
        let listed = self.quiet(|run| run.disk.list(&dir)).unwrap_or_default();
        let first_stored = log_files::first_stored(&self.disk, &self.plan);
        let mut files = Vec::new();
        for entry in listed {
            let Some(start) = log_files::number(&PathBuf::from(&entry.name)).filter(|&start| start <= end)
            else {
                continue; // one that was made ahead
            };
            files.push(LogFile {
                start,
                end: start + self.plan.log_file,
                written_at_ms: entry.modified_at_ms,
            });
        }
        for at in 1..files.len() {
            let stored = first_stored.get(&files[at].start).copied().unwrap_or_default();
            files[at - 1].written_at_ms = stored.max(files[at - 1].written_at_ms);
        }
        Round { files, used_percent: self.removals.used_percent, is_asked: self.removals.is_asked }
    }

    /// Ends a round, in order or with its process, and notes what it may have removed.
    pub(super) fn end_round(&mut self) {
        let (Some(round), Some(rules)) = (self.removals.round.take(), &self.plan.retention) else { return };
        let start = round.start_after(rules, self.plan.log_file, self.disk.latest_ms());
        self.removals.may_start = start.max(self.removals.may_start);
    }

    /// Checks that the log starts where retention may have left it, and no earlier than the last removal that was durable.
    pub(super) fn check_start(&mut self, start: u64) {
        let Removals { may_start, must_start, .. } = self.removals;
        if start > may_start {
            let text = format!("the log starts at {start}, retention may have removed it up to {may_start}");
            self.wrong(Rule::C1, text);
        }
        if start < must_start {
            let text = format!("the log starts at {start}, it was durably removed up to {must_start}");
            self.wrong(Rule::R4, text);
        }
    }

    /// Checks the first topic after its old messages may have gone, and must have when `is_done`.
    pub(super) fn note_age(
        &mut self,
        store: &Store<SimDisk>,
        before_ms: i64,
        asked_at: Duration,
        is_done: bool,
    ) {
        let Some(kept_ms) = self.plan.retention.and_then(|rules| rules.topic_ms) else { return };
        let kept_ms = kept_ms as i64;
        let oldest_ms = self.disk.latest_ms() - kept_ms;
        // Where the clock was set back a message may say that it is younger than its file: then the file counts.
        let old_files = self.look(store).start_of_younger(oldest_ms);
        for queue_id in 0..self.plan.queues {
            let queue = QueueName { topic: "topic0".to_owned(), queue_id };
            let before = self.first_kept(&queue, old_files, oldest_ms);
            self.removals.hidden_before.insert(queue_id, before);
            let topic = Some(queue.topic);
            self.journal.lock().push(Event::Expired { topic, queue_id: Some(queue_id), before });
        }
        // On a disk with faults a queue that cannot be read stays as it is until the next round; the others do not wait for it. Where
        // stored times do not rise, the next message may be old when a log file took the first one.
        if !is_done || self.plan.disk.clock_steps_per_mille > 0 || self.has_faults() {
            return;
        }
        let young_from = self.removals.young_from(asked_at, kept_ms.unsigned_abs());
        for queue_id in 0..self.plan.queues {
            let earliest = self.quiet(|_| store.earliest_stored_at("topic0", queue_id));
            match earliest {
                Ok(Some(stored_at_ms))
                    if stored_at_ms < before_ms - kept_ms
                        && self.starts_before(store, queue_id, young_from) =>
                {
                    let age_ms = before_ms - stored_at_ms;
                    let text =
                        format!("topic0-{queue_id} keeps {kept_ms} ms, its first message is {age_ms} ms old");
                    self.wrong(Rule::Alive, text);
                }
                Ok(_) => {}
                Err(error) => self.wrong(Rule::R6, format!("topic0-{queue_id} cannot be read: {error}")),
            }
        }
    }

    /// Where the first record of a queue of `topic0` lies, behind old files, that was stored at a time or later, among those that were not
    /// hidden; the end of the log when there is none.
    fn first_kept(&self, queue: &QueueName, old_files: u64, time_ms: i64) -> u64 {
        let Removals { hidden_before, deleted_at, .. } = &self.removals;
        let hidden_before = hidden_before.get(&queue.queue_id).copied().unwrap_or(0);
        let deleted_at = deleted_at.get(&queue.topic).and_then(|places| places.iter().max().copied());
        let from = hidden_before.max(deleted_at.unwrap_or(0)).max(old_files);
        log_files::first_stored_from(&self.disk, &self.plan, queue, from, time_ms)
    }

    /// Whether the first message of a queue of `topic0` is stored before `place` in the log.
    fn starts_before(&mut self, store: &Store<SimDisk>, queue_id: u32, place: u64) -> bool {
        let first = store.queue_bounds("topic0", queue_id).min;
        let entries = self.quiet(|_| store.entries("topic0", queue_id, first, 1));
        entries.is_ok_and(|entries| entries.iter().any(|entry| entry.physical_offset.get() < place))
    }

    /// Deletes a topic as a broker does; its next message makes it again.
    fn delete_topic(&mut self, store: &Store<SimDisk>) {
        let topic = self.some_queue().topic;
        let op = self.journal.lock().invoke(Call::Delete { topic: topic.clone() });
        self.in_flight.push(op);
        self.removals.is_deleting = true;
        self.removals.deleted_at.entry(topic.clone()).or_default().push(store.max_physical_offset().get());
        self.may_end_soon();
        let removed = self.offsets.as_ref().and_then(|offsets| offsets.remove_topic(&topic).ok().flatten());
        let forgotten = removed.map_or(Ok(()), |written| written.now());
        let deleted = forgotten.map_err(StoreError::from).and_then(|()| {
            for reader in &mut self.readers {
                reader.positions.retain(|queue, _| queue.topic != topic);
                reader.outlived.retain(|queue, _| queue.topic != topic);
            }
            store.delete_topic(&topic).map(drop)
        });
        self.in_flight.clear();
        self.removals.deleted_topics += u64::from(deleted.is_ok());
        let mut journal = self.journal.lock();
        match deleted {
            Ok(()) if !self.has_faults() => {
                journal.ok(op, Reply::Deleted);
                drop(journal);
                self.removals.is_deleting = false;
            }
            // On a full disk the deletion may not reach the file; the answer is a success all the same.
            Ok(()) => journal.push(Event::Unknown { op, reason: "the disk has faults".to_owned() }),
            Err(error) => {
                journal.push(Event::Unknown { op, reason: error.to_string() });
                drop(journal);
                if !self.has_faults() {
                    self.wrong(Rule::Alive, format!("a topic is not deleted on a sound disk: {error}"));
                }
            }
        }
    }

    /// Notes the end of the log: records after it did not exist when a topic was deleted, or its old messages were hidden.
    pub(super) fn clip_removals(&mut self, end: u64) {
        let Removals { deleted_at, hidden_before, .. } = &mut self.removals;
        for at in deleted_at.values_mut().flatten().chain(hidden_before.values_mut()) {
            *at = end.min(*at);
        }
    }
}
