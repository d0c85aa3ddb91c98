//! Opens what the last process left: finds the end of the log and makes the consume queues match it.

pub(crate) mod behind;
mod cut;
mod index;
pub(crate) mod queues;
pub(crate) mod scan;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use behind::Behind;
use queues::{FoundQueue, Trust};
use rocketpy_env::{Disk, EnvError};
use rocketpy_model::PhysicalOffset;
use scan::{Scan, scan};

use crate::checkpoint::{Checkpoint, CheckpointFile, Mark, MarkWriter, NOWHERE, impossible_ms};
use crate::config::StoreConfig;
use crate::dispatch::Progress;
use crate::error::StoreError;
use crate::folder::{Folder, file_name};
use crate::index::Index;
use crate::mapped::{self, LoadedLog, MappedFile};
use crate::queue::entry::record_end;
use crate::queue::files::{FlushFailure, QueueFiles};
use crate::queue::table::QueueTable;
use crate::read::first::FirstReads;

/// What recovery found and did, for the log and for `store stat`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecoveryReport {
    /// The last process closed the store.
    pub clean_exit: bool,
    /// There was a durable mark of our own. If not, another program wrote last, or the store is new.
    pub had_mark: bool,
    /// Records were checked from here to `end`.
    pub verified_from: PhysicalOffset,
    /// The log was known to be durable before this.
    pub durable_to: PhysicalOffset,
    /// End of the log.
    pub end: PhysicalOffset,
    /// Length of the torn tail that was cut off, as far as the first MiB of it shows.
    pub truncated_bytes: u64,
    /// Sound records that were cut off, because a damaged or torn one is before them.
    pub cut_records: u64,
    /// The folder that holds a copy of what was cut off, when sound records were among it.
    pub cut_off_to: Option<PathBuf>,
    /// Records that were written to consume queues again.
    pub dispatched_from: PhysicalOffset,
    /// All consume queues were rebuilt from the log.
    pub rebuilt_queues: bool,
    /// All index files were rebuilt from the log.
    pub rebuilt_index: bool,
    /// Time that recovery took.
    pub took: Duration,
}

impl RecoveryReport {
    /// Adds what an earlier pass of the same start cut off.
    pub(crate) fn add_cut(&mut self, earlier: Self) {
        self.truncated_bytes += earlier.truncated_bytes;
        self.cut_records += earlier.cut_records;
        self.cut_off_to = earlier.cut_off_to.or(self.cut_off_to.take());
    }
}

/// A store whose log is recovered and not yet dispatched to its end.
pub(crate) struct Recovered<D: Disk> {
    pub files: Vec<MappedFile<D::Region>>,
    pub queues: QueueTable,
    pub queue_files: QueueFiles<D>,
    /// End of the log.
    pub end: PhysicalOffset,
    /// How far consume queues cover the log.
    pub progress: Progress,
    pub last_stored_at: i64,
    /// The log is durable before this. What is behind has yet to be written again.
    pub durable_to: PhysicalOffset,
    /// Store time of the latest known record before that.
    pub durable_stored_at: i64,
    pub mark_writer: MarkWriter<D>,
    pub index: Option<Index<D>>,
    /// Records that were not checked.
    pub first_reads: FirstReads,
}

/// What is known before a byte is changed.
struct Plan {
    /// Records are checked from here.
    verify_from: PhysicalOffset,
    /// Damage before this refuses the start.
    durable_to: PhysicalOffset,
    /// Queue entries for records before this are trusted.
    queues_to: PhysicalOffset,
    /// Trust no consume queue.
    rebuild: bool,
    /// If no mark says how far the log is durable: the end of the records that queue entries lead to. Else 0.
    covered: PhysicalOffset,
}

impl Plan {
    /// Trusts no consume queue: all are rebuilt from the start of the log.
    fn rebuild_from(&mut self, log_min: PhysicalOffset) {
        *self = Self { verify_from: log_min, queues_to: log_min, rebuild: true, ..*self };
    }
}

struct Recovery<'a, D: Disk> {
    disk: &'a Arc<D>,
    config: &'a StoreConfig,
    folder: &'a Folder,
    dirty: bool,
    checkpoint: Checkpoint,
    table: QueueTable,
    queue_files: QueueFiles<D>,
    found: Vec<FoundQueue>,
}

/// Recovers log and queues. Changes nothing before the log was checked.
///
/// `clean_exit` says whether the last process closed the store; with `rebuild` no consume queue is trusted.
///
/// # Errors
/// [`StoreError::UnknownVersion`], [`StoreError::BadCheckpoint`], [`StoreError::InteriorDamage`], [`StoreError::DamageAmongRecords`],
/// [`StoreError::MissingFile`], [`StoreError::WrongFileSize`], [`StoreError::UnexpectedFile`]: nothing was changed.
/// [`StoreError::Env`], with [`EnvError::Unreadable`] for bytes of the log that cannot be read.
///
/// # Source
/// docs/reference/store-format.md 5.4 to 5.8; docs/durability.md R4 to R6.
pub(crate) fn recover<D: Disk>(
    disk: &Arc<D>,
    config: &StoreConfig,
    folder: &Folder,
    clean_exit: bool,
    rebuild: bool,
) -> Result<(Recovered<D>, RecoveryReport), StoreError> {
    let started = Instant::now();
    let mut recovery = Recovery::begin(disk, config, folder, clean_exit)?;
    let LoadedLog { mut files, unfinished } =
        mapped::load(&**disk, &folder.commit_logs, config.commit_log_file_size)?;
    let found = recovery.look(&files, rebuild);
    mapped::check_readable(&files)?; // what cannot be read looks like damage, or like the end of the log
    let Found { plan, scan, behind } = found?;
    folder.mark_open(&**disk)?; // from here on the folder changes
    recovery.remove_unfinished(unfinished)?;
    let cut_off_to = recovery.copy_of(&files, &scan, &behind)?;
    let durable_to = recovery.durable_to(&plan, scan.end);
    let truncated_bytes = recovery.cut_log(&mut files, &plan, &scan, durable_to)?;
    folder.note_page_cache(&**disk)?;
    let mut mark_writer = recovery.mark_writer(&files, &plan, &scan, durable_to)?;
    recovery.cut_queues(&plan, &files, scan.end)?;
    let (index, rebuilt_index) = recovery.index(&files, scan.end, rebuild, &mut mark_writer)?.unzip();
    mapped::check_readable(&files)?;
    let report = RecoveryReport {
        clean_exit: !recovery.dirty,
        had_mark: recovery.checkpoint.mark.is_some(),
        verified_from: plan.verify_from,
        durable_to: plan.durable_to,
        end: scan.end,
        truncated_bytes,
        cut_records: behind.records,
        cut_off_to,
        dispatched_from: plan.queues_to,
        rebuilt_queues: plan.rebuild,
        rebuilt_index: rebuilt_index.unwrap_or(false),
        took: started.elapsed(),
    };
    Ok((Recovered { index, ..recovery.finish(files, &plan, &scan, durable_to, mark_writer) }, report))
}

/// What a first look at log and queues shows.
struct Found {
    plan: Plan,
    scan: Scan,
    behind: Behind,
}

impl<'a, D: Disk> Recovery<'a, D> {
    /// Reads the checkpoint and finds the consume queues.
    fn begin(
        disk: &'a Arc<D>,
        config: &'a StoreConfig,
        folder: &'a Folder,
        clean_exit: bool,
    ) -> Result<Self, StoreError> {
        let checkpoint = Checkpoint::read(&**disk, &folder.checkpoint)?;
        checkpoint.check_version(&folder.checkpoint)?;
        if let Some(found_ms) = impossible_ms(&checkpoint.timestamps) {
            return Err(StoreError::BadCheckpoint { path: folder.checkpoint.clone(), found_ms });
        }
        let table = QueueTable::default();
        let queue_file_size = config.consume_queue_file_size;
        let found = queues::find(&**disk, &folder.consume_queue, queue_file_size, &table)?;
        let queue_files = QueueFiles::new(
            Arc::clone(disk),
            folder.consume_queue.clone(),
            queue_file_size,
            config.open_queue_files,
            config.queue_tail_bytes,
        );
        Ok(Self { disk, config, folder, dirty: !clean_exit, checkpoint, table, queue_files, found })
    }
}

impl<D: Disk> Recovery<'_, D> {
    /// Finds the end of the log, and what is after it. Nothing is changed.
    fn look(&mut self, files: &[MappedFile<D::Region>], rebuild: bool) -> Result<Found, StoreError> {
        let mut plan = self.plan(files)?;
        if rebuild {
            plan.rebuild_from(files.first().map_or(plan.verify_from, |file| file.start));
        }
        let scan = scan(files, plan.verify_from, plan.durable_to, &self.checked())?;
        let behind = self.behind(files, &plan, &scan)?;
        Ok(Found { plan, scan, behind })
    }

    /// The part of the log in which every record has a checksum of its own.
    fn checked(&self) -> Range<PhysicalOffset> {
        self.checkpoint.mark.map_or(NOWHERE, |mark| mark.checked(self.dirty))
    }

    /// Where records begin to have checksums of their own, including those that this store will append.
    fn checked_from(&self, end: PhysicalOffset) -> Option<PhysicalOffset> {
        let former = self.checked();
        let goes_on = !former.is_empty() && former.end >= end;
        self.config.record_check.then(|| if goes_on { former.start.min(end) } else { end })
    }

    fn plan(&mut self, files: &[MappedFile<D::Region>]) -> Result<Plan, StoreError> {
        let (Some(first), Some(last)) = (files.first(), files.last()) else {
            return self.plan_without_log();
        };
        let (min, end) = (first.start, last.end());
        if let Some(mark) = self.checkpoint.mark {
            if !(min..=end).contains(&mark.log_to) {
                let expected = mark.log_to.block_start(self.config.commit_log_file_size);
                return Err(self.missing(expected));
            }
            if let Some(expected) = mark.log_from.filter(|&from| from < min) {
                return Err(self.missing(expected));
            }
            let queues_to = mark.queues_to.max(min);
            let mut plan = Plan {
                verify_from: mark.verify_from.max(min),
                durable_to: mark.log_to,
                queues_to,
                rebuild: false,
                covered: PhysicalOffset::ZERO,
            };
            if !self.queues_are_whole(&mark, queues_to, min)? {
                plan.rebuild_from(min);
            }
            return Ok(plan);
        }
        self.plan_without_mark(files)
    }

    /// Finds the ends of the queues, and returns whether they match the mark.
    ///
    /// The sums show every loss. A loss at the end of a queue makes the sum of the ends smaller, one at its start makes
    /// the sum of the starts larger, the loss of a whole queue makes both smaller, and one in between is a hole between
    /// files. Only folders and the last file of each queue are read; if the starts differ also the first, because
    /// retention may have removed files since.
    fn queues_are_whole(
        &mut self,
        mark: &Mark,
        queues_to: PhysicalOffset,
        log_min: PhysicalOffset,
    ) -> Result<bool, EnvError> {
        let file_size = self.queue_files.file_size();
        for queue in &self.found {
            if let Some(start) = queue.hole(file_size) {
                queue.warn_of_loss("a file between two others is missing", start);
                return Ok(false);
            }
        }
        queues::for_each(&mut self.found, |queue| {
            queue.find_end(&self.queue_files, queues_to, Trust::Durable)
        })?;
        let entries: u64 = self.found.iter().map(|queue| queue.end.get()).sum();
        let firsts: u64 = self.found.iter().map(|queue| queue.first().get()).sum();
        let mut is_whole = entries == mark.entries;
        if is_whole && firsts != mark.firsts {
            for queue in &self.found {
                is_whole &= queue.starts_where_it_may(&self.queue_files, log_min)?;
            }
        }
        if !is_whole {
            tracing::warn!(
                entries,
                firsts,
                expected_entries = mark.entries,
                expected_firsts = mark.firsts,
                "consume queues incomplete, rebuilding them"
            );
        }
        Ok(is_whole)
    }

    /// No commit log at all: a new store, or one whose log is gone.
    fn plan_without_log(&mut self) -> Result<Plan, StoreError> {
        // A mark, or another program's checkpoint, says that there were records.
        if self
            .checkpoint
            .mark
            .map_or(self.checkpoint.timestamps.physic_msg_at_ms > 0, |mark| !mark.is_of_empty_log())
        {
            return Err(self.missing(PhysicalOffset::ZERO));
        }
        if !self.found.is_empty() {
            tracing::warn!(
                queues = self.found.len(),
                "commit log missing or empty, removing the consume queues"
            );
        }
        let former = self.checkpoint.mark.map(|mark| mark.log_to);
        let begin = self.config.begin_at.or(former).unwrap_or_default();
        if former.is_some_and(|former| former != begin) {
            self.checkpoint.mark = None; // it is of an empty log that began elsewhere
        }
        let rebuild = !self.found.is_empty();
        Ok(Plan {
            verify_from: begin,
            durable_to: begin,
            queues_to: begin,
            rebuild,
            covered: PhysicalOffset::ZERO,
        })
    }

    fn missing(&self, expected: PhysicalOffset) -> StoreError {
        let path = self.folder.commit_log.join(file_name(expected.get()));
        StoreError::MissingFile { path, expected }
    }

    /// Another program wrote last: decide by its timestamps, as that program would.
    fn plan_without_mark(&mut self, files: &[MappedFile<D::Region>]) -> Result<Plan, StoreError> {
        let log_min = files[0].start;
        let mut covered = PhysicalOffset::ZERO;
        let mut rebuild = false;
        for queue in &mut self.found {
            queue.find_end(&self.queue_files, PhysicalOffset::MAX, Trust::Walk)?;
            covered =
                queue.last_entry(&self.queue_files)?.map_or(covered, |last| record_end(&last).max(covered));
            rebuild |= queue.misses_files(&self.queue_files, log_min)?;
        }
        let start = self.start_file(files, covered);
        for queue in &mut self.found {
            queue.find_end(&self.queue_files, start, Trust::Walk)?;
            if !queue.leads_to_its_record(&self.queue_files, files)? {
                tracing::warn!(
                    topic = %queue.queue.topic, queue_id = queue.queue.queue_id, entry = %(queue.end - 1),
                    "consume queue entry does not point to its record, rebuilding all consume queues"
                );
                rebuild = true;
                break;
            }
        }
        let start = if rebuild { log_min } else { start };
        Ok(Plan { verify_from: start, durable_to: start, queues_to: start, rebuild, covered })
    }

    /// Start of the file from which the log is read.
    ///
    /// # Source
    /// docs/reference/store-format.md 5.7 step 2 after a clean exit, 5.8 step 2 otherwise.
    fn start_file(&self, files: &[MappedFile<D::Region>], covered: PhysicalOffset) -> PhysicalOffset {
        let min_timestamp = self.checkpoint.timestamps.min_timestamp_ms();
        let fits = |file: &&MappedFile<D::Region>| {
            scan::first_record(file).is_some_and(|first| {
                let known = if self.dirty {
                    first.stored_at_ms <= min_timestamp
                } else {
                    first.physical_offset <= covered
                };
                first.stored_at_ms != 0 && known
            })
        };
        files.iter().skip(1).rev().find(fits).map_or(files[0].start, |file| file.start)
    }

    /// Cuts every queue back to the entries that are trusted, or removes all queues, and enters what stays into the
    /// table.
    fn cut_queues(
        &mut self,
        plan: &Plan,
        files: &[MappedFile<D::Region>],
        log_end: PhysicalOffset,
    ) -> Result<(), StoreError> {
        let log_min = files.first().map_or(PhysicalOffset::ZERO, |file| file.start);
        if plan.rebuild {
            return self.remove_queues(log_min, log_end);
        }
        let trusted = !self.dirty && self.checkpoint.mark.is_some();
        queues::for_each(&mut self.found, |found| {
            if !trusted {
                found.truncate(&**self.disk, &self.queue_files)?;
            }
            if !found.files.is_empty() {
                found.set_bounds(&self.queue_files, log_min)?;
            }
            Ok::<_, StoreError>(())
        })?;
        for found in self.found.drain(..) {
            if !trusted {
                self.table.note_dirty(&found.queue);
            }
            if !found.files.is_empty() {
                self.table.insert(found.queue);
            }
        }
        Ok(())
    }

    /// Removes the queues that are rebuilt. A queue whose records are all gone from the log stays, because nothing else
    /// knows its offsets: its next message must not get one that was used.
    ///
    /// # Source
    /// docs/reference/store-format.md 3.4: the end of a queue survives its messages.
    fn remove_queues(&mut self, log_min: PhysicalOffset, log_end: PhysicalOffset) -> Result<(), StoreError> {
        let mut spent = Vec::new();
        let mut gone = Vec::new();
        for mut found in self.found.drain(..) {
            let is_spent = found.is_spent(&self.queue_files, log_min, log_end)?;
            if is_spent { spent.push(found) } else { gone.push(found) }
        }
        for found in gone {
            let FoundQueue { queue, .. } = found;
            self.queue_files.forget(&queue);
            if spent.iter().any(|other| other.queue.topic == queue.topic) {
                self.queue_files.remove(&queue)?;
                self.disk.sync_dir(&self.queue_files.topic_dir(&queue.topic))?;
            } else {
                self.queue_files.remove_topic_dir(&queue.topic)?;
            }
        }
        for found in spent {
            found.truncate(&**self.disk, &self.queue_files)?;
            self.table.note_dirty(&found.queue);
            found.set_bounds(&self.queue_files, log_min)?;
            self.table.insert(found.queue);
        }
        Ok(())
    }

    /// The checkpoint from now on. It trusts no queue that is about to be rebuilt.
    fn mark_writer(
        &self,
        files: &[MappedFile<D::Region>],
        plan: &Plan,
        scan: &Scan,
        durable_to: PhysicalOffset,
    ) -> Result<MarkWriter<D>, EnvError> {
        let checkpoint = CheckpointFile::open(&**self.disk, &self.folder.checkpoint)?;
        if self.dirty {
            checkpoint.write_again()?;
        }
        let checked_from = self.checked_from(scan.end);
        let mut mark_writer = MarkWriter::new(checkpoint, checked_from);
        if plan.rebuild {
            mark_writer.distrust_queues(files.first().map_or(scan.end, |file| file.start), durable_to)?;
        } else if checked_from.is_none() {
            mark_writer.forget_checks().map_err(FlushFailure::into_error)?;
        }
        Ok(mark_writer)
    }

    fn finish(
        self,
        files: Vec<MappedFile<D::Region>>,
        plan: &Plan,
        scan: &Scan,
        durable_to: PhysicalOffset,
        mark_writer: MarkWriter<D>,
    ) -> Recovered<D> {
        let known = self.checkpoint.timestamps.physic_msg_at_ms;
        let stored_at_ms = scan.last_stored_at.unwrap_or(known);
        assert!(durable_to <= scan.end, "the log is durable as far as it goes");
        let first_reads = FirstReads::new(plan.verify_from, self.checked());
        let queues = self.table.all();
        let progress = Progress {
            dispatched: plan.queues_to,
            entries: queues.iter().map(|queue| queue.max().get()).sum(),
            firsts: queues.iter().map(|queue| queue.first().get()).sum(),
            stored_at_ms,
            trail: scan.trail,
        };
        Recovered {
            files,
            queues: self.table,
            queue_files: self.queue_files,
            end: scan.end,
            progress,
            last_stored_at: stored_at_ms,
            durable_to,
            durable_stored_at: if durable_to < scan.end { known } else { stored_at_ms },
            mark_writer,
            index: None,
            first_reads,
        }
    }
}
