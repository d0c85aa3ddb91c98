//! Carries the decisions out: files of the log, then minimum offsets, then files of queues and index.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rocketpy_env::failpoint::{self, Point};
use rocketpy_env::{Disk, EnvError, Region, local_hour};
use rocketpy_model::PhysicalOffset;
use rocketpy_protocol::record::RecordHead;

use super::plan::{FolderSpace, FullDisk, Keep, LogFile, Removal, RetentionPlan, Situation, plan};
use crate::core::Core;
use crate::error::StoreError;
use crate::fetch::Boundary;
use crate::mapped::MappedFile;
use crate::queue::Queue;
use crate::recovery::queues::{first_living, leads_before};
use crate::wake::Wake;

/// What one round of retention did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cleaned {
    /// Files of the log that are gone.
    pub log_files: usize,
    /// Files of consume queues that are gone.
    pub queue_files: usize,
    /// Files of the key index that are gone.
    pub index_files: usize,
    /// Whether the next round has more to do at once.
    pub has_more: bool,
}

/// The state of retention in an open store.
#[doc(alias = "CleanCommitLogService")]
#[doc(alias = "CleanConsumeQueueService")]
#[derive(Debug)]
pub(crate) struct Retention {
    state: Mutex<State>,
    /// Held for one round.
    round: Mutex<Round>,
    /// The cleaning thread sleeps here.
    pub wake: Wake,
}

#[derive(Debug, Default)]
struct State {
    /// Files that are old enough go at any hour until none is left.
    is_asked: bool,
    /// Somebody has asked since the last round.
    rings: bool,
    /// How long messages of a topic stay readable.
    topics: HashMap<Arc<str>, Duration>,
    /// The first file that stayed at the last round, for the log.
    kept: Option<(u64, &'static str)>,
}

/// What one round leaves for the next.
#[derive(Debug, Default)]
struct Round {
    /// A folder in which a name was removed, not yet durably.
    unsynced: Option<PathBuf>,
    /// Queues and index know that the log starts here.
    corrected_to: u64,
}

impl Retention {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::default(), round: Mutex::default(), wake: Wake::default() }
    }
}

impl<D: Disk> Core<D> {
    /// The life of the cleaning thread.
    pub(crate) fn run_cleaner(&self) {
        let config = &self.config.retention;
        let started = Instant::now();
        loop {
            let next = Instant::now() + config.interval;
            let is_called = || self.is_stopping() || self.retention.state.lock().rings;
            while Instant::now() < next && !is_called() {
                self.retention.wake.sleep(next.saturating_duration_since(Instant::now()), is_called);
            }
            if self.is_stopping() || self.poison_cause().is_some() {
                return;
            }
            let rings = std::mem::take(&mut self.retention.state.lock().rings);
            let is_due = rings || started.elapsed() >= config.first_after;
            let result =
                if is_due { self.clean(&|time| self.rest(time)).map(drop) } else { self.look_at_space() };
            if let Err(error) = result {
                tracing::error!(%error, "old files could not be removed, trying again");
                self.rest(config.interval);
            }
        }
    }

    /// Sleeps, but not past the stop.
    fn rest(&self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end && !self.is_stopping() {
            self.retention.wake.sleep(end.saturating_duration_since(Instant::now()), || self.is_stopping());
        }
    }

    /// Lets files that are old enough go at once, whatever the hour.
    pub(crate) fn ask_for_cleaning(&self) {
        let mut state = self.retention.state.lock();
        (state.is_asked, state.rings) = (true, true);
        drop(state);
        self.retention.wake.wake();
    }

    /// Says how long messages of each topic stay readable, in place of what was said before; takes effect at once. What is
    /// out of reach comes back at no later call.
    pub(crate) fn set_topic_retention(&self, topics: HashMap<Arc<str>, Duration>) -> Result<(), StoreError> {
        self.retention.state.lock().topics = topics;
        self.age_topics()
    }

    /// Looks at the file systems: appends are refused, or go on.
    ///
    /// # Source
    /// docs/reference/store-format.md 7.2.
    pub(crate) fn look_at_space(&self) -> Result<(), StoreError> {
        let situation = self.situation(Vec::new())?;
        self.take_space(&plan(&situation, &self.config.retention));
        Ok(())
    }

    /// One round: space, topics, files of the log, minimum offsets, files of queues and index.
    ///
    /// # Durability
    /// A file of the log goes once what is behind it is flushed, dispatched and written down; each removal is durable before
    /// the next, so that no crash leaves a hole. Whoever holds slices of a file keeps its bytes: the name is gone, the space
    /// comes back with the last of them.
    ///
    /// # Source
    /// docs/reference/store-format.md 7.3.
    pub(crate) fn clean(&self, pause: &dyn Fn(Duration)) -> Result<Cleaned, StoreError> {
        self.check_sound()?;
        let mut round = self.retention.round.lock();
        self.sync_removed(&mut round)?;
        self.age_topics()?;
        let situation = self.situation(self.log_files()?)?;
        let plan = plan(&situation, &self.config.retention);
        self.take_space(&plan);
        let log_files = self.remove_log_files(&plan.removals, &mut round, pause)?;
        let has_more = matches!(plan.kept, Some((_, Keep::EnoughForNow))) || log_files < plan.removals.len();
        self.tell_kept(&plan);
        if !has_more {
            self.retention.state.lock().is_asked = false;
        }
        let (queue_files, index_files) = self.correct(&mut round, pause)?;
        Ok(Cleaned { log_files, queue_files, index_files, has_more })
    }

    fn take_space(&self, plan: &RetentionPlan) {
        self.log.set_full_folders(&plan.full_folders);
        self.set_space_refusal(plan.refusal.clone());
    }

    fn situation(&self, files: Vec<LogFile>) -> Result<Situation, EnvError> {
        let now_ms = self.disk.now_ms();
        let space = |path: &Path| {
            Ok::<_, EnvError>(FolderSpace { path: path.to_path_buf(), usage: self.disk.usage(path)? })
        };
        Ok(Situation {
            files,
            log_folders: self.log.writable().iter().map(|dir| space(dir)).collect::<Result<_, _>>()?,
            queue_folder: space(&self.folder.consume_queue)?,
            now_ms,
            hour: local_hour(now_ms),
            is_asked: self.retention.state.lock().is_asked,
            is_refusing: self.is_refusing_for_space(),
        })
    }

    /// The files of the log with their ages.
    fn log_files(&self) -> Result<Vec<LogFile>, EnvError> {
        let mut modified = HashMap::new();
        for dir in &self.folder.commit_logs {
            for entry in self.disk.list(dir)? {
                modified.insert(dir.join(entry.name), entry.modified_at_ms);
            }
        }
        let files = self.log.all();
        let next_stored = files.iter().skip(1).map(|file| first_stored_at(file)).chain([None]);
        let of = |(file, next_stored): (&Arc<MappedFile<D::Region>>, Option<i64>)| LogFile {
            written_at_ms: modified.get(&file.path).copied().max(next_stored).unwrap_or_default(),
            path: file.path.clone(),
            start: file.start.get(),
            size_bytes: file.region.len(),
        };
        Ok(files.iter().zip(next_stored).map(of).collect())
    }

    fn remove_log_files(
        &self,
        removals: &[Removal],
        round: &mut Round,
        pause: &dyn Fn(Duration),
    ) -> Result<usize, StoreError> {
        if removals.is_empty() {
            return Ok(0);
        }
        let dispatched = self.dispatched();
        // It flushes, too, at least so far: the mark must not lie before the log.
        let kept = self.keep(false);
        let written_down_to = match &kept {
            Ok(()) => PhysicalOffset(dispatched),
            Err(StoreError::Env(_)) => self.keeper.lock().queues_to(), // a full disk: what goes makes space for the next one
            Err(_) => PhysicalOffset::ZERO,
        };
        let may_go = removals
            .iter()
            .take_while(|removal| PhysicalOffset(removal.file.end()) <= written_down_to)
            .count();
        let (removals, _) = removals.split_at(may_go);
        let Some(last) = removals.last() else { return kept.map(|()| 0) };
        // Where nothing can be written in place, as on a full file system that copies on write, the first gives space for that.
        let (removals, is_written) = match self.remove_log_to(PhysicalOffset(last.file.end())) {
            Ok(()) => (removals, true),
            Err(StoreError::Env(EnvError::NoSpace { .. })) => (&removals[..1], false),
            Err(error) => return Err(error),
        };
        let mut removed = 0;
        for removal in removals {
            if removed > 0 {
                pause(self.config.retention.log_file_pause);
            }
            if self.is_stopping() {
                break;
            }
            self.remove_log_file(removal, round)?;
            removed += 1;
            if !is_written {
                self.remove_log_to(PhysicalOffset(removal.file.end()))?;
            }
        }
        kept.map(|()| removed)
    }

    fn remove_log_file(&self, removal: &Removal, round: &mut Round) -> Result<(), StoreError> {
        let Removal { file, age_ms, rule } = removal;
        round.unsynced = file.path.parent().map(Path::to_path_buf);
        match self.disk.remove_file(&file.path) {
            Err(error) if !error.is_not_found() => return Err(error.into()),
            _ => self.log.forget_first(PhysicalOffset(file.start)),
        }
        failpoint::reach(Point::Delete);
        tracing::info!(
            path = %file.path.display(), start = file.start, size_bytes = file.size_bytes,
            age_hours = *age_ms / 3_600_000, rule = rule.name(), reason = %rule, "removed a commit log file"
        );
        self.sync_removed(round)
    }

    /// Makes the last removal durable.
    fn sync_removed(&self, round: &mut Round) -> Result<(), StoreError> {
        if let Some(dir) = &round.unsynced {
            self.disk.sync_dir(dir).map_err(|error| self.noted(error))?;
            round.unsynced = None;
        }
        Ok(())
    }

    /// Says once why the oldest file stays.
    fn tell_kept(&self, plan: &RetentionPlan) {
        let Some((file, why)) = &plan.kept else { return };
        let kind = match why {
            Keep::Last => "last",
            Keep::Young { .. } => "young",
            Keep::NotNow => "not now",
            Keep::EnoughForNow => "enough for now",
        };
        let mut state = self.retention.state.lock();
        if state.kept != Some((file.start, kind)) {
            state.kept = Some((file.start, kind));
            tracing::info!(path = %file.path.display(), reason = %why, "the oldest commit log file stays");
        }
    }

    /// Brings queues and index after the start of the log.
    fn correct(&self, round: &mut Round, pause: &dyn Fn(Duration)) -> Result<(usize, usize), StoreError> {
        let log_min = self.min();
        if log_min <= round.corrected_to {
            return Ok((0, 0));
        }
        let mut queues = self.queues.all();
        queues.sort_unstable_by(|a, b| (&a.topic, a.queue_id).cmp(&(&b.topic, b.queue_id))); // a seed gives one order
        for queue in &queues {
            self.correct_minimum(queue, log_min)?;
        }
        let mut removed = 0;
        for queue in &queues {
            while !self.is_stopping() && self.remove_queue_file(queue, log_min)? {
                removed += 1;
                pause(self.config.retention.queue_file_pause);
            }
        }
        let index_files = self.index.as_ref().map_or(Ok(0), |index| index.expire(PhysicalOffset(log_min)))?;
        self.keep(false)?; // with where queues and index start now
        if !self.is_stopping() {
            round.corrected_to = log_min;
        }
        Ok((removed, index_files))
    }

    /// Moves the minimum of a queue to its first record that is still there, or to its end.
    ///
    /// # Source
    /// docs/reference/store-format.md 3.4.
    fn correct_minimum(&self, queue: &Arc<Queue>, log_min: u64) -> Result<(), StoreError> {
        let _no_dispatch = self.dispatcher.lock();
        let former = queue.min();
        if queue.is_deleted() || former >= queue.max() {
            return Ok(());
        }
        let min = first_living(&self.queue_files, queue, former, PhysicalOffset(log_min))?;
        if min > former {
            queue.set_min(min);
            tracing::debug!(topic = %queue.topic, queue_id = queue.queue_id, %former, %min, "a queue starts later");
        }
        Ok(())
    }

    /// Removes the first file of a queue, unless it is the last, or the entry behind it leads to a record that is still
    /// there: with that entry recovery sees that nothing is missing before. Says whether a file went.
    fn remove_queue_file(&self, queue: &Arc<Queue>, log_min: u64) -> Result<bool, StoreError> {
        let mut dispatcher = self.dispatcher.lock();
        let files = &self.queue_files;
        let first = queue.first();
        let next = first + files.entries_a_file();
        if queue.is_deleted()
            || next >= queue.max()
            || !leads_before(files, queue, next, PhysicalOffset(log_min))?
        {
            return Ok(false);
        }
        files.remove_file(queue, first)?;
        queue.set_first(next);
        dispatcher.move_firsts(next - first);
        queue.forget_dirty_file(files.file_start(first));
        // The name that is gone. The next file is there: a log file goes when the entries that lead into it are written.
        self.queues.note_written(queue, files.file_start(next), true);
        tracing::info!(
            topic = %queue.topic, queue_id = queue.queue_id, first_entry = %first, log_min,
            "removed a consume queue file, its records are gone"
        );
        Ok(true)
    }

    /// Moves the minimum of queues whose topics have an age of their own.
    fn age_topics(&self) -> Result<(), StoreError> {
        let topics = self.retention.state.lock().topics.clone();
        let now_ms = self.disk.now_ms();
        for (topic, kept) in topics {
            let kept_ms = i64::try_from(kept.as_millis()).unwrap_or(i64::MAX);
            for queue in self.queues.of_topic(&topic) {
                self.age_queue(&queue, now_ms.saturating_sub(kept_ms))?;
            }
        }
        Ok(())
    }

    fn age_queue(&self, queue: &Queue, stored_from_ms: i64) -> Result<(), StoreError> {
        let _no_dispatch = self.dispatcher.lock();
        let former = queue.min();
        if queue.is_deleted() || former >= queue.max() {
            return Ok(());
        }
        let min = self.offset_by_time(&queue.topic, queue.queue_id, stored_from_ms, Boundary::Lower)?;
        if min > former {
            queue.set_min(min);
            tracing::info!(
                topic = %queue.topic, queue_id = queue.queue_id, %former, %min, stored_from_ms,
                "messages are older than their topic keeps them"
            );
        }
        Ok(())
    }

    /// Notes whether the disk has space for appends.
    fn set_space_refusal(&self, full: Option<FullDisk>) {
        match (&full, self.is_refusing_for_space()) {
            (Some(full), false) => tracing::error!(
                path = %full.path.display(), used_percent = full.used_percent, limit_percent = full.limit_percent,
                "the disk is nearly full, appends are refused until there is space"
            ),
            (None, true) => tracing::info!("the disk has space again, appends go on"),
            _ => {}
        }
        self.set_full_disk(full);
    }
}

/// When the first record of a file was stored, if one is there.
fn first_stored_at<R: Region>(file: &MappedFile<R>) -> Option<i64> {
    let end = file.region.written().min(RecordHead::BYTES as u64);
    stored_at_in(file.region.view(0..end), file.start.get())
}

/// When the record that these bytes begin was stored, if it lies at `offset`.
pub(super) fn stored_at_in(bytes: &[u8], offset: u64) -> Option<i64> {
    let head = RecordHead::of(bytes).filter(RecordHead::is_record)?;
    (head.physical_offset().get() == offset).then(|| head.stored_at_ms())
}
