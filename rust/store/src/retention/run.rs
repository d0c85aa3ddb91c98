//! Carries the decisions out: files of the log, then minimum offsets, then files of queues and index.

mod queues;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use rocketpy_env::failpoint::{self, Point};
use rocketpy_env::planted::{self, Bug};
use rocketpy_env::{Disk, EnvError, Region, local_hour};
use rocketpy_model::PhysicalOffset;
use rocketpy_protocol::record::RecordHead;

use super::config::RetentionConfig;
use super::life::Life;
use super::plan::{Aged, FolderSpace, Keep, LogFile, OldPart, Removal, RetentionPlan, Situation, plan};
use crate::admission::Admission;
use crate::config::AT_OPEN;
use crate::derived::Derived;
use crate::dispatch::Dispatcher;
use crate::error::StoreError;
use crate::keeper::Keeper;
use crate::log::Log;
use crate::mapped::MappedFile;
use crate::read::Reads;
use crate::wake::Wake;

/// Result of one round of retention.
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

/// Removes old files, on a thread of its own.
#[doc(alias = "CleanCommitLogService")]
#[doc(alias = "CleanConsumeQueueService")]
pub(crate) struct Retention<D: Disk> {
    log: Arc<Log<D>>,
    admission: Arc<Admission>,
    dispatcher: Arc<Dispatcher<D>>,
    keeper: Arc<Keeper<D>>,
    derived: Arc<Derived<D>>,
    reads: Arc<Reads<D>>,
    config: RwLock<RetentionConfig>,
    state: Mutex<State>,
    /// Held for one round.
    round: Mutex<Round>,
    life: Mutex<Life>,
    /// The cleaning thread sleeps here.
    wake: Wake,
}

#[derive(Debug, Default)]
struct State {
    /// Files that are old enough are removed at any hour, until none is left.
    is_asked: bool,
    /// Somebody has asked since the last round.
    is_called: bool,
    /// By who stores messages again: where the first message is that waits for that.
    waiting_from: BTreeMap<&'static str, PhysicalOffset>,
    /// Retention time of a topic's messages.
    topics: HashMap<Arc<str>, Duration>,
    /// The first file that stayed at the last round, for the log.
    kept: Option<(PhysicalOffset, &'static str)>,
}

/// State that one round leaves for the next.
#[derive(Debug, Default)]
struct Round {
    /// A folder in which a name was removed, not yet durably.
    unsynced: Option<PathBuf>,
    /// Queues and index know that the log starts here.
    corrected_to: PhysicalOffset,
}

impl<D: Disk> Retention<D> {
    pub(crate) fn new(
        log: &Arc<Log<D>>,
        admission: &Arc<Admission>,
        dispatcher: &Arc<Dispatcher<D>>,
        keeper: &Arc<Keeper<D>>,
        derived: &Arc<Derived<D>>,
        reads: &Arc<Reads<D>>,
    ) -> Self {
        let life = Life::new(log.disk().monotonic(), log.end());
        let keeps = log.config().keeps_files_at_open.then_some((AT_OPEN, PhysicalOffset::ZERO));
        let state = State { waiting_from: keeps.into_iter().collect(), ..State::default() };
        Self {
            log: Arc::clone(log),
            admission: Arc::clone(admission),
            dispatcher: Arc::clone(dispatcher),
            keeper: Arc::clone(keeper),
            derived: Arc::clone(derived),
            reads: Arc::clone(reads),
            config: RwLock::new(log.config().retention.clone()),
            state: Mutex::new(state),
            round: Mutex::default(),
            life: Mutex::new(life),
            wake: Wake::default(),
        }
    }

    /// Lets the cleaning thread end, between two files.
    pub(crate) fn stop(&self) {
        self.wake.stop();
    }

    pub(crate) fn run(&self) {
        let started = Instant::now();
        loop {
            let config = self.config.read().clone();
            let next = Instant::now() + config.interval;
            let is_called = || self.state.lock().is_called;
            while Instant::now() < next && !self.wake.is_stopped() && !is_called() {
                self.wake.sleep(next.saturating_duration_since(Instant::now()), is_called);
            }
            if self.wake.is_stopped() || self.admission.poison_cause().is_some() {
                return;
            }
            let is_called = std::mem::take(&mut self.state.lock().is_called);
            let is_due = is_called || started.elapsed() >= config.first_after;
            let result = match is_due {
                true => self.clean(&|time| self.wake.rest(time)).map(drop),
                false => self.check_space(),
            };
            if let Err(error) = result {
                tracing::error!(%error, "old files not removed, retrying");
                self.wake.rest(config.interval);
            }
        }
    }

    /// Starts the removal of files that are old enough, whatever the hour.
    pub(crate) fn ask(&self) {
        let mut state = self.state.lock();
        (state.is_asked, state.is_called) = (true, true);
        drop(state);
        self.wake.wake();
    }

    /// Goes by other rules from now on, and has a round at once.
    pub(crate) fn set_config(&self, config: RetentionConfig) {
        *self.config.write() = config;
        self.state.lock().is_called = true;
        self.wake.wake();
    }

    /// Notes where the first message is that waits to be stored again by `holder`.
    pub(crate) fn set_waiting_from(&self, holder: &'static str, from: Option<PhysicalOffset>) {
        let waiting_from = &mut self.state.lock().waiting_from;
        match from {
            Some(from) => drop(waiting_from.insert(holder, from)),
            None => drop(waiting_from.remove(holder)),
        }
    }

    /// Where the first message is that waits.
    fn waiting_from(&self) -> PhysicalOffset {
        self.state.lock().waiting_from.values().copied().min().unwrap_or(PhysicalOffset(u64::MAX))
    }

    /// Checks the space of the file systems, and refuses or admits appends.
    ///
    /// # Source
    /// docs/reference/store-format.md 7.2.
    pub(crate) fn check_space(&self) -> Result<(), StoreError> {
        let situation = self.situation(Vec::new())?;
        self.take_space(&plan(&situation, &self.config.read()));
        Ok(())
    }

    /// One round: space, topics, files of the log, minimum offsets, files of queues and index.
    ///
    /// # Durability
    /// A log file is removed once what follows it is flushed, dispatched and noted in the mark. Each removal is durable
    /// before the next, so that no crash leaves a hole. Slices of a removed file stay valid: its name is gone, and its
    /// space is free once the last slice is dropped.
    ///
    /// # Source
    /// docs/reference/store-format.md 7.3.
    pub(crate) fn clean(&self, pause: &dyn Fn(Duration)) -> Result<Cleaned, StoreError> {
        self.admission.check_sound()?;
        let mut round = self.round.lock();
        self.sync_removed(&mut round)?;
        let files = self.log_files()?;
        let situation = self.situation(files)?;
        let plan = plan(&situation, &self.config.read());
        self.take_space(&plan);
        self.age_topics(&situation.files);
        let log_files = self.remove_log_files(&plan.removals, &mut round, pause)?;
        let has_more = matches!(plan.kept, Some((_, Keep::EnoughForNow))) || log_files < plan.removals.len();
        self.tell_kept(&plan);
        if !has_more {
            self.state.lock().is_asked = false;
        }
        let (queue_files, index_files) = self.correct(&mut round, pause)?;
        Ok(Cleaned { log_files, queue_files, index_files, has_more })
    }

    fn take_space(&self, plan: &RetentionPlan) {
        self.log.files().set_full_folders(&plan.full_folders);
        self.admission.set_full_disk(plan.refusal.clone());
    }

    fn situation(&self, files: Vec<LogFile>) -> Result<Situation, EnvError> {
        let disk = self.log.disk();
        let now_ms = disk.now_ms();
        let young_from = self.young_from(self.config.read().reserved_time);
        let space = |path: &Path| {
            Ok::<_, EnvError>(FolderSpace { path: path.to_path_buf(), usage: disk.usage(path)? })
        };
        let log_folders = self.log.files().writable().iter().map(|dir| space(dir));
        let is_asked = self.state.lock().is_asked;
        Ok(Situation {
            files,
            log_folders: log_folders.collect::<Result<_, _>>()?,
            queue_folder: space(&self.log.folder().consume_queue)?,
            now_ms,
            young_from,
            waiting_from: self.waiting_from(),
            hour: local_hour(now_ms),
            is_asked,
            is_refusing: self.admission.has_full_disk(),
        })
    }

    /// Everything at or after this offset was appended less than `period` ago, by a clock that does not step.
    fn young_from(&self, period: Duration) -> PhysicalOffset {
        let mut life = self.life.lock();
        let end = self.log.end();
        let now = self.log.disk().monotonic();
        life.note(now, end);
        life.young_from(now, period)
    }

    /// The files of the log with their ages.
    fn log_files(&self) -> Result<Vec<LogFile>, EnvError> {
        let mut modified = HashMap::new();
        for dir in &self.log.folder().commit_logs {
            for entry in self.log.disk().list(dir)? {
                modified.insert(dir.join(entry.name), entry.modified_at_ms);
            }
        }
        let files = self.log.files().all();
        let next_stored = files.iter().skip(1).map(|file| first_stored_at(file)).chain([None]);
        let of = |(file, next_stored): (&Arc<MappedFile<D::Region>>, Option<i64>)| LogFile {
            written_at_ms: modified.get(&file.path).copied().max(next_stored).unwrap_or_default(),
            path: file.path.clone(),
            start: file.start,
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
        let dispatched = self.dispatcher.dispatched();
        // This also flushes at least that far: the mark must not lie before the log.
        let kept = if planted::has(Bug::RetentionBeforeFlush) { Ok(()) } else { self.keeper.keep(false) };
        let written_down_to = match &kept {
            Ok(()) => dispatched,
            Err(StoreError::Env(_)) => self.keeper.queues_to(), // a full disk: what goes makes space for the next one
            Err(_) => PhysicalOffset::ZERO,
        };
        let may_go = removals.iter().take_while(|removal| removal.file.end() <= written_down_to).count();
        let (removals, _) = removals.split_at(may_go);
        let Some(last) = removals.last() else { return kept.map(|()| 0) };
        // A full file system that copies on write cannot write in place either. There the removal of the first file
        // makes the space.
        let (removals, is_written) = match self.keeper.remove_log_to(last.file.end()) {
            Ok(()) => (removals, true),
            Err(StoreError::Env(EnvError::NoSpace { .. })) => (&removals[..1], false),
            Err(error) => return Err(error),
        };
        let mut removed = 0;
        let is_reversed = planted::has(Bug::NewestFileFirst);
        for number in 0..removals.len() {
            let removal = &removals[if is_reversed { removals.len() - 1 - number } else { number }];
            if removed > 0 {
                pause(self.config.read().log_file_pause);
            }
            if self.wake.is_stopped() {
                break;
            }
            self.remove_log_file(removal, round)?;
            removed += 1;
            if !is_written {
                self.keeper.remove_log_to(removal.file.end())?;
            }
        }
        kept.map(|()| removed)
    }

    /// Removes the first file of the log.
    ///
    /// # Panics
    /// When it is not the oldest file, or not dispatched yet: that would be a hole in the log, or a loss.
    fn remove_log_file(&self, removal: &Removal, round: &mut Round) -> Result<(), StoreError> {
        let Removal { file, age_ms, rule } = removal;
        assert_eq!(file.start, self.log.start(), "a log has no hole: the oldest file goes first");
        assert!(file.end() <= self.dispatcher.dispatched(), "a file goes after it was dispatched");
        if file.end() > self.waiting_from() {
            self.admission.listeners().removes_waiting(&(file.start..file.end()));
        }
        round.unsynced = file.path.parent().map(Path::to_path_buf);
        match self.log.disk().remove_file(&file.path) {
            Err(error) if !error.is_not_found() => return Err(error.into()),
            _ => self.log.files().forget_first(file.start),
        }
        failpoint::reach(Point::Delete);
        tracing::info!(
            path = %file.path.display(), start = %file.start, size_bytes = file.size_bytes,
            age_hours = *age_ms / 3_600_000, rule = rule.name(), reason = %rule, "commit log file removed"
        );
        self.sync_removed(round)
    }

    /// Makes the last removal durable.
    fn sync_removed(&self, round: &mut Round) -> Result<(), StoreError> {
        if let Some(dir) = &round.unsynced {
            self.log.disk().sync_dir(dir).map_err(|error| self.admission.noted(error))?;
            round.unsynced = None;
        }
        Ok(())
    }

    /// Logs once why the oldest file stays.
    fn tell_kept(&self, plan: &RetentionPlan) {
        let Some((file, why)) = &plan.kept else { return };
        let kind = match why {
            Keep::Last => "last",
            Keep::Young { .. } => "young",
            Keep::NotNow => "not now",
            Keep::Waiting => "waiting",
            Keep::EnoughForNow => "enough for now",
        };
        let mut state = self.state.lock();
        if state.kept != Some((file.start, kind)) {
            state.kept = Some((file.start, kind));
            tracing::info!(path = %file.path.display(), reason = %why, "oldest commit log file kept");
        }
    }
}

/// When the first record of a file was stored, if one is there.
fn first_stored_at<R: Region>(file: &MappedFile<R>) -> Option<i64> {
    let end = file.region.written().min(RecordHead::BYTES as u64);
    stored_at_in(file.region.view(0..end), file.start)
}

/// When the record that these bytes begin was stored, if it is at `offset`.
pub(super) fn stored_at_in(bytes: &[u8], offset: PhysicalOffset) -> Option<i64> {
    let head = RecordHead::of(bytes).filter(RecordHead::is_record)?;
    (head.physical_offset() == offset).then(|| head.stored_at_ms())
}
