//! Checks a store: every record, consume queues and index files against the log, both ways, and what says which messages wait.

use std::sync::Arc;

use rocketpy_env::Disk;
use rocketpy_model::PhysicalOffset;
use rocketpy_store::files::{Condition, LOCK, Mark, NO_SUM, StreamFiles, file_name, impossible_ms};
use rocketpy_store::reader::{ReadError, StoreReader};

use crate::damage::{Hole, HoleKind};
use crate::index::IndexCheck;
use crate::queues::Queues;
use crate::report::{Problem, ProblemKind, VerifyReport};
use crate::waiting_check::WaitingCheck;
use crate::walk::{Checks, LogWalk, Step};
use crate::{ToolError, Watch, lost_start, tell};

/// Checks a store without a lock. While a server runs, the check ends where the server was when it began.
///
/// # Errors
/// When the store cannot be read at all. Problems are in the report.
pub fn verify<D: Disk>(reader: &StoreReader<D>, watch: Watch<'_>) -> Result<VerifyReport, ToolError> {
    let is_live = reader.disk().lock_holder(&reader.root().join(LOCK))?.is_some();
    Ok(examine(reader, is_live, watch)?.report)
}

/// A report, and what a repair needs.
pub(crate) struct Examined {
    pub report: VerifyReport,
    pub holes: Vec<Hole>,
    pub mark: Option<Mark>,
}

/// Checks a store. `is_live` says that another process has it open.
pub(crate) fn examine<D: Disk>(
    reader: &StoreReader<D>,
    is_live: bool,
    watch: Watch<'_>,
) -> Result<Examined, ToolError> {
    let mut log = reader.open_log()?; // what the checkpoint says is read first: it holds of what is read later
    let condition = log.condition;
    let mut report = VerifyReport {
        path: reader.root().to_path_buf(),
        is_live,
        is_closed: !condition.is_dirty,
        has_mark: condition.mark.is_some(),
        log_files: log.files.files().len() as u64,
        ..VerifyReport::default()
    };
    note_bad_files(reader, &mut report)?;
    note_late_start(reader, log.start(), &mut report)?;
    note_bad_checkpoint(reader, &condition, &mut report);
    let mut queues = Queues::open(reader, &mut log)?;
    queues.note_bad_files(&mut report);
    let covered = covered(&mut queues)?;
    queues.entered_to = match (condition.is_dirty, condition.mark) {
        (false, _) => PhysicalOffset::MAX,
        (true, Some(mark)) => mark.queues_to,
        (true, None) => covered,
    };
    check_sums(reader, &condition, &mut queues, is_live, &mut report)?;
    let index = IndexCheck::open(reader, &condition, &mut report)?;
    let is_closed = report.is_closed;
    let waiting = WaitingCheck::open(reader, is_live, is_closed, &mut report)?;
    let walk = LogWalk::new(reader, condition.checked(), Checks::All)?;
    let mut examination = Examination { walk, queues, index, waiting, report, holes: Vec::new() };
    if is_live {
        examination
            .walk
            .stop_at(condition.mark.map_or(PhysicalOffset::ZERO, |mark| mark.log_to).max(covered));
    }
    examination.walk_log(reader, &condition, watch)?;
    examination.finish(reader, &condition, watch)
}

/// The end of the last record that a queue entry leads to.
fn covered<D: Disk>(queues: &mut Queues<D>) -> Result<PhysicalOffset, ReadError> {
    let mut covered = PhysicalOffset::ZERO;
    for queue in queues.iter_mut() {
        covered = covered.max(queue.end_of_last()?);
        queue.files.close();
    }
    Ok(covered)
}

/// Notes log files whose length differs from that of the first.
fn note_bad_files<D: Disk>(reader: &StoreReader<D>, report: &mut VerifyReport) -> Result<(), ToolError> {
    let files = StreamFiles::list_all(Arc::clone(reader.disk()), reader.log_dirs().to_vec())?;
    let Some(expected) = files.files().first().map(|file| file.size_bytes) else { return Ok(()) };
    for file in files.files().iter().filter(|file| file.size_bytes != expected) {
        let path = files.path_of(file.start);
        let (found, expected) =
            (format!("{} bytes", file.size_bytes), format!("{expected} bytes, as the first file"));
        let problem = Problem::new(ProblemKind::BadFile, path, file.size_bytes, found, expected);
        report.note(problem.in_log(PhysicalOffset(file.start)));
    }
    Ok(())
}

/// Compares the start of the log with the mark.
fn note_late_start<D: Disk>(
    reader: &StoreReader<D>,
    start: PhysicalOffset,
    report: &mut VerifyReport,
) -> Result<(), ToolError> {
    let Some(from) = lost_start(reader, start)? else { return Ok(()) };
    let path = reader.log_dirs()[0].join(file_name(from.get()));
    let (found, expected) = (format!("the log starts at {start}"), format!("a start at {from}"));
    let mut problem = Problem::new(ProblemKind::LogStartsLate, path, 0, found, expected).in_log(from);
    problem.size_bytes = Some(start - from);
    report.note(problem);
    Ok(())
}

/// Notes a checkpoint with which a start is refused.
fn note_bad_checkpoint<D: Disk>(reader: &StoreReader<D>, condition: &Condition, report: &mut VerifyReport) {
    if let Some(found_ms) = impossible_ms(&condition.timestamps) {
        let path = reader.root().join("checkpoint");
        let (found, expected) = (format!("a time of {found_ms} ms"), "a time that a clock shows");
        report.note(Problem::new(ProblemKind::BadCheckpoint, path, 0, found, expected));
    }
}

/// Compares all queues with the sums of the mark.
fn check_sums<D: Disk>(
    reader: &StoreReader<D>,
    condition: &Condition,
    queues: &mut Queues<D>,
    is_live: bool,
    report: &mut VerifyReport,
) -> Result<(), ToolError> {
    let Some(mark) = condition.mark.filter(|mark| mark.entries != NO_SUM) else { return Ok(()) };
    let (mut entries, mut firsts) = (0, 0);
    for queue in queues.iter_mut() {
        let (first, max) = (queue.first(), queue.bounds.max);
        entries += queue.at_place(mark.queues_to, first, max)?.get();
        firsts += queue.first().get();
        queue.files.close();
    }
    if (entries, firsts) == (mark.entries, mark.firsts) {
        return Ok(());
    }
    // A server that deletes a topic or an old file writes a new mark, after it has removed the files.
    if is_live {
        let has_new_mark = Condition::read(&**reader.disk(), reader.root())?.mark.map(|now| now.generation)
            != Some(mark.generation);
        if has_new_mark || entries == mark.entries && firsts > mark.firsts {
            return Ok(());
        }
    }
    let text = |entries: u64, firsts: u64| format!("ends that sum up to {entries}, starts to {firsts}");
    let (found, expected) = (text(entries, firsts), text(mark.entries, mark.firsts));
    report.note(Problem::new(ProblemKind::IncompleteQueues, reader.queues_dir(), 0, found, expected));
    Ok(())
}

struct Examination<D: Disk> {
    walk: LogWalk<D>,
    queues: Queues<D>,
    index: IndexCheck<D>,
    waiting: WaitingCheck,
    report: VerifyReport,
    holes: Vec<Hole>,
}

impl<D: Disk> Examination<D> {
    fn walk_log(
        &mut self,
        reader: &StoreReader<D>,
        condition: &Condition,
        watch: Watch<'_>,
    ) -> Result<(), ToolError> {
        let queues_dir = reader.queues_dir();
        let checked = condition.checked();
        let start = self.walk.start();
        self.report.log_start = start;
        self.report.log_end = start;
        let total = self.walk.end_of_files() - start;
        let mut told_at = start;
        loop {
            match self.walk.step()? {
                Step::Record(view) => {
                    self.report.records += 1;
                    let at = view.physical_offset;
                    self.report.records_with_own_check += u64::from(checked.contains(&at));
                    self.queues.check(&view, &mut self.report)?;
                    self.index.check(&view, &mut self.report)?;
                    self.waiting.check(&queues_dir, &view, &mut self.report);
                    self.report.log_end = at + view.size() as u64;
                }
                Step::Damage { at, reason } => {
                    if !self.damage(at, reason, watch)? {
                        break;
                    }
                }
                Step::MissingFiles { at, next } => {
                    let reason = "the files are not there".to_owned();
                    self.holes.push(Hole { from: at, to: next, kind: HoleKind::MissingFiles, reason });
                }
                Step::End => break,
            }
            if self.walk.at() - told_at >= 1 << 18 {
                told_at = self.walk.at();
                tell(watch, told_at - start, total)?;
            }
        }
        tell(watch, total, total)
    }

    /// Notes damage and continues behind it. Returns whether a sound place follows.
    fn damage(&mut self, at: PhysicalOffset, reason: String, watch: Watch<'_>) -> Result<bool, ToolError> {
        let (start, total) = (self.walk.start(), self.walk.end_of_files() - self.walk.start());
        let ground = self.walk.find_ground(at, &mut |at| tell(watch, at - start, total))?;
        let file_end = self.walk.file_end(at)?.unwrap_or(at);
        let (to, kind) = match ground {
            Some(to) if to < file_end => (to, HoleKind::Inside),
            Some(to) => (to, HoleKind::ToFileEnd),
            None => (file_end, HoleKind::Tail),
        };
        self.holes.push(Hole { from: at, to, kind, reason });
        if let Some(ground) = ground {
            self.walk.go_to(ground);
        }
        Ok(ground.is_some())
    }

    fn finish(
        mut self,
        reader: &StoreReader<D>,
        condition: &Condition,
        watch: Watch<'_>,
    ) -> Result<Examined, ToolError> {
        self.settle_tail(watch)?;
        // A closed store ends with its last record. Entries that lead further are wrong.
        let is_complete = !condition.is_dirty && !self.report.is_live;
        let log_end = self.report.log_end;
        self.queues.finish(log_end, is_complete, &mut self.report)?;
        self.report.queues = self.queues.count();
        self.index.finish(log_end, &mut self.report)?;
        self.waiting.finish(reader, &mut self.report)?;
        for hole in &self.holes {
            if hole.kind == HoleKind::Tail && !is_lost(hole, condition) {
                self.report.tail_bytes = hole.size_bytes();
                continue;
            }
            let (path, file_offset) = self.walk.place(hole.from)?;
            let kind = match hole.kind {
                HoleKind::MissingFiles => ProblemKind::MissingLogFiles,
                HoleKind::Tail => ProblemKind::LogEndsEarly,
                HoleKind::Inside | HoleKind::ToFileEnd => ProblemKind::DamagedRecord,
            };
            let expected = match condition.mark.filter(|mark| hole.from < mark.log_to) {
                Some(mark) => format!("a sound record, the log was durable to {}", mark.log_to),
                None => "a sound record".to_owned(),
            };
            let mut problem = Problem::new(kind, path, file_offset, &hole.reason, expected).in_log(hole.from);
            problem.size_bytes = Some(hole.size_bytes());
            self.report.note(problem);
        }
        let has_lost_tail =
            self.holes.last().is_some_and(|hole| hole.kind == HoleKind::Tail && is_lost(hole, condition));
        if let Some(mark) = condition.mark.filter(|_| !has_lost_tail) {
            self.note_early_end(&mark, log_end)?;
        }
        Ok(Examined { report: self.report, holes: self.holes, mark: condition.mark })
    }

    /// Damage that nothing sound follows is one tail, however many files it covers. Zeros are not damage, because files
    /// are made ahead.
    fn settle_tail(&mut self, watch: Watch<'_>) -> Result<(), ToolError> {
        let log_end = self.report.log_end;
        let behind: Vec<Hole> = self.holes.extract_if(.., |hole| hole.from >= log_end).collect();
        let Some(first) = behind.into_iter().next() else { return Ok(()) };
        let (start, total) = (self.walk.start(), self.walk.end_of_files() - self.walk.start());
        let to = self.walk.end_of_data(first.from, &mut |at| tell(watch, at - start, total))?;
        if to > first.from {
            self.holes.push(Hole { to, kind: HoleKind::Tail, ..first });
        }
        Ok(())
    }

    fn note_early_end(&mut self, mark: &Mark, log_end: PhysicalOffset) -> Result<(), ToolError> {
        // Unlike `log_end`, the walk has passed the filler of a full file.
        if self.walk.at() >= mark.log_to {
            return Ok(());
        }
        let (path, file_offset) = self.walk.place(log_end)?;
        let expected = format!("records up to {}", mark.log_to);
        let problem = Problem::new(ProblemKind::LogEndsEarly, path, file_offset, "the log ends", expected);
        self.report.note(problem.in_log(log_end));
        Ok(())
    }
}

/// Whether a tail holds what was durable.
fn is_lost(hole: &Hole, condition: &Condition) -> bool {
    condition.mark.is_some_and(|mark| hole.from < mark.log_to)
}
