//! Chooses records of a store, by queue or by their place in the log.

use std::collections::BTreeSet;
use std::path::PathBuf;

use rocketpy_env::{Disk, RealDisk};
use rocketpy_model::{PhysicalOffset, QueueOffset};
use rocketpy_protocol::record::RecordView;
use rocketpy_store::files::Condition;
use rocketpy_store::reader::{
    Missing, QueueRange, RangeOptions, RangeScan, ReadError, ScanOptions, StoreReader,
};

use crate::keyed::{self, Jumps, Members};
use crate::selection::Selection;
use crate::waiting::{self, Waiting};
use crate::walk::{Checks, LogWalk, Step};
use crate::{Progress, ToolError, check_log_files};

/// Maximum bytes of records that one step returns, unless a single record is larger.
const STEP_BYTES: usize = 1 << 20;

/// The chosen records. If topics are named, those of their queues, in one pass over the log. Otherwise all of the log,
/// including records without a queue entry.
pub struct Selected<D: Disk = RealDisk> {
    selection: Selection,
    source: Source<D>,
    /// Damaged records that were left out.
    left_out: u64,
    progress: Progress,
    /// The log was durable before this.
    durable_to: PhysicalOffset,
    /// Named topics without queues, of which no record was found yet.
    unseen: BTreeSet<String>,
    root: PathBuf,
    has_ended: bool,
    /// What waits, if that is wanted, and the records that may wait for the named topics.
    waiting: Option<Waiting>,
    behind: Option<Box<Self>>,
}

enum Source<D: Disk> {
    Queues(Box<RangeScan<D>>),
    Log(Box<LogSource<D>>),
}

struct LogSource<D: Disk> {
    walk: LogWalk<D>,
    /// Where to go next: to single records, then to where the walk continues.
    jumps: Jumps,
    /// Only records that these parts of queues lead to.
    members: Option<Members<D>>,
}

impl<D: Disk> Selected<D> {
    /// Begins to read.
    ///
    /// # Errors
    /// The store does not have the topic, unless a key is wanted: records of a deleted topic may have it; [`rocketpy_store::StoreError::MissingFile`] when log files are missing and damage is
    /// not to be skipped; or a file operation failed.
    pub fn new(reader: &StoreReader<D>, selection: Selection) -> Result<Self, ToolError> {
        let waiting = selection.takes_waiting.then(|| Waiting::open(reader)).transpose()?;
        let by_place = selection.physical_from.is_some() || selection.physical_before.is_some();
        if !by_place && !selection.skips_damage {
            check_log_files(reader, &reader.open_log()?)?;
        }
        let unseen = if by_place { BTreeSet::new() } else { without_queues(reader, &selection)? };
        let jumps = keyed::jumps(reader, &selection)?; // what is known to be covered stays so
        let (source, total_bytes) = match (selection.topics.is_empty() || by_place, jumps) {
            (true, jumps) => open_log(reader, &selection, jumps, None)?,
            (false, None) if unseen.is_empty() => open_queues(reader, &selection)?,
            (false, jumps) => {
                let members = Members::open(reader, ranges(reader, &selection, &unseen)?, unseen.clone())?;
                open_log(reader, &selection, jumps, Some(members))?
            }
        };
        let progress = Progress { done_bytes: 0, total_bytes };
        let condition = Condition::read(&**reader.disk(), reader.root())?;
        let durable_to = condition.mark.map_or(PhysicalOffset::ZERO, |mark| mark.log_to);
        let root = reader.root().to_path_buf();
        let behind = match selection.takes_waiting && !selection.topics.is_empty() {
            true => behind(reader, &selection)?,
            false => None,
        };
        let (left_out, has_ended) = (0, false);
        Ok(Self {
            selection,
            source,
            left_out,
            progress,
            durable_to,
            unseen,
            root,
            has_ended,
            waiting,
            behind,
        })
    }

    /// What waits, and the records that may wait for the named topics.
    pub(crate) fn take_waiting(&mut self) -> (Waiting, Option<Box<Self>>) {
        (self.waiting.take().unwrap_or_default(), self.behind.take())
    }

    /// Whether a message for this queue of a topic is wanted.
    pub(crate) fn wants_for(&self, topic: &str, queue_id: u32) -> bool {
        let Selection { topics, queues, .. } = &self.selection;
        (topics.is_empty() || topics.iter().any(|wanted| wanted == topic))
            && queues.as_ref().is_none_or(|queues| queues.contains(&queue_id))
    }

    /// Damaged records, and places of queues without one, that were left out so far.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Whether damage is left out and counted, instead of an error.
    #[must_use]
    pub fn skips_damage(&self) -> bool {
        self.selection.skips_damage
    }

    /// How far the selection has come, in bytes of records.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// Reads on and calls `visit` with the next chosen records; false at the end. A step may have none.
    ///
    /// # Errors
    /// A damaged record, unless damage is to be skipped; at the end, a named topic that has neither queues nor a record;
    /// the error of `visit`; or a file operation failed. The selection ends then.
    pub fn step<E: From<ToolError>>(
        &mut self,
        visit: impl FnMut(&RecordView<'_>) -> Result<(), E>,
    ) -> Result<bool, E> {
        if self.has_ended {
            return Ok(false);
        }
        let done = match self.source {
            Source::Queues(_) => self.step_queues(visit),
            Source::Log(_) => self.step_log(visit),
        };
        self.has_ended = !matches!(done, Ok(true));
        if matches!(done, Ok(false))
            && let Some(topic) = self.unseen.pop_first()
        {
            let path = self.root.clone();
            return Err(ToolError::Read(ReadError::UnknownTopic { topic, path }).into());
        }
        done
    }

    fn step_queues<E: From<ToolError>>(
        &mut self,
        mut visit: impl FnMut(&RecordView<'_>) -> Result<(), E>,
    ) -> Result<bool, E> {
        let Source::Queues(scan) = &mut self.source else { return Ok(false) };
        let has_more = scan.advance().map_err(ToolError::from)?;
        self.left_out += scan.take_missing().iter().map(|lost| lost.end - lost.start).sum::<u64>();
        let mut damaged = None;
        for (record, bytes) in scan.block().iter() {
            self.progress.done_bytes += u64::from(record.size_bytes);
            match RecordView::parse(bytes) {
                Ok(view) if self.selection.wants(&view) => visit(&view)?,
                Ok(_) => {}
                Err(_) if self.selection.skips_damage => self.left_out += 1,
                Err(error) => {
                    damaged = Some((*record, error.to_string()));
                    break;
                }
            }
        }
        match damaged {
            Some((record, reason)) => {
                Err(scan.damaged(&record, &reason).map_or_else(ToolError::from, ToolError::from).into())
            }
            None => Ok(has_more),
        }
    }

    fn step_log<E: From<ToolError>>(
        &mut self,
        mut visit: impl FnMut(&RecordView<'_>) -> Result<(), E>,
    ) -> Result<bool, E> {
        let Source::Log(source) = &mut self.source else { return Ok(false) };
        let LogSource { walk, jumps, members } = &mut **source;
        let mut read_bytes = 0;
        loop {
            let is_single = jumps.len() > 1;
            match jumps.pop_front() {
                Some(place) if is_single => walk.look_at(place),
                Some(place) => walk.go_to(place),
                None => {}
            }
            match walk.step().map_err(ToolError::from)? {
                Step::Record(view) => {
                    read_bytes += view.size();
                    self.progress.done_bytes += if is_single { 0 } else { view.size() as u64 };
                    let is_member = |members: &mut Members<D>| members.hold(&view).map_err(ToolError::from);
                    if self.selection.wants(&view) && members.as_mut().map_or(Ok(true), is_member)? {
                        self.unseen.remove(view.topic);
                        visit(&view)?;
                    }
                }
                Step::Damage { .. } if is_single && self.selection.skips_damage => self.left_out += 1,
                Step::Damage { at, reason } if is_single => {
                    return Err(damaged(walk, at, &reason)?.into());
                }
                Step::Damage { at, reason } => match behind_damage(walk, at, self.durable_to)? {
                    Behind::Nothing => return Ok(false),
                    Behind::Written => walk.go_to(at),
                    Behind::Lost { .. } if !self.selection.skips_damage => {
                        return Err(damaged(walk, at, &reason)?.into());
                    }
                    Behind::Lost { ground } => {
                        self.left_out += 1;
                        let Some(ground) = ground else { return Ok(false) };
                        walk.go_to(ground);
                    }
                },
                Step::MissingFiles { at, .. } if !self.selection.skips_damage => {
                    return Err(damaged(walk, at, "the file is missing")?.into());
                }
                Step::MissingFiles { .. } => self.left_out += 1,
                Step::End => return Ok(false),
            }
            if read_bytes >= STEP_BYTES {
                return Ok(true);
            }
        }
    }
}

/// What the log holds from a damaged place on.
enum Behind {
    /// Nothing that was ever promised: the log ends there.
    Nothing,
    /// A server has written there meanwhile: nothing is damaged.
    Written,
    /// Lost records. `ground` is where sound ones follow, if any do.
    Lost { ground: Option<PhysicalOffset> },
}

fn behind_damage<D: Disk>(
    walk: &mut LogWalk<D>,
    at: PhysicalOffset,
    durable_to: PhysicalOffset,
) -> Result<Behind, ToolError> {
    let ground = walk.find_ground(at, &mut |_| Ok(()))?;
    let is_torn_tail = ground.is_none() && at >= durable_to;
    // Files are made ahead: zeros follow the last record.
    if is_torn_tail || walk.end_of_data(at, &mut |_| Ok(()))? == at {
        return Ok(Behind::Nothing);
    }
    // A server writes from front to back: by now the place holds what was being written when it was read.
    Ok(if walk.is_sound_now(at)? { Behind::Written } else { Behind::Lost { ground } })
}

/// The error of a damaged place.
fn damaged<D: Disk>(walk: &mut LogWalk<D>, at: PhysicalOffset, reason: &str) -> Result<ToolError, ToolError> {
    let path = walk.place(at)?.0;
    Ok(ReadError::BadFile { path, reason: format!("physical offset {at}: {reason}") }.into())
}

/// The records of the topics in which messages wait, stored in the same time.
fn behind<D: Disk>(
    reader: &StoreReader<D>,
    selection: &Selection,
) -> Result<Option<Box<Selected<D>>>, ToolError> {
    let there = reader.topic_names()?;
    let topics: Vec<String> =
        waiting::TOPICS.map(str::to_owned).into_iter().filter(|topic| there.contains(topic)).collect();
    if topics.is_empty() {
        return Ok(None);
    }
    let selection = Selection { topics, queues: None, takes_waiting: false, ..selection.clone() };
    Ok(Some(Box::new(Selected::new(reader, selection)?)))
}

fn open_log<D: Disk>(
    reader: &StoreReader<D>,
    selection: &Selection,
    jumps: Option<Jumps>,
    members: Option<Members<D>>,
) -> Result<(Source<D>, u64), ToolError> {
    let condition = Condition::read(&**reader.disk(), reader.root())?;
    let checks = if selection.trusts_checksums { Checks::Layout } else { Checks::All };
    let mut walk = LogWalk::new(reader, condition.checked(), checks)?;
    let start = walk.start().max(selection.physical_from.unwrap_or_default());
    if start > walk.start() {
        // The start of a record cannot be found by its place. So read from the start of its file.
        let file_start = walk.place(start)?.1;
        walk.go_to(start - file_start);
    }
    if let Some(before) = selection.physical_before {
        walk.stop_at(before);
    }
    let mut jumps = jumps.unwrap_or_default();
    if let Some(all_from) = jumps.pop_back() {
        jumps.retain(|&place| place >= walk.start()); // the others' files are gone
        jumps.push_back(all_from.max(walk.at()));
    }
    let all_from = jumps.back().copied().unwrap_or(start);
    let end = walk.end_of_files().min(selection.physical_before.unwrap_or(PhysicalOffset::MAX));
    Ok((Source::Log(Box::new(LogSource { walk, jumps, members })), end.saturating_sub(all_from)))
}

fn open_queues<D: Disk>(
    reader: &StoreReader<D>,
    selection: &Selection,
) -> Result<(Source<D>, u64), ToolError> {
    let ranges = ranges(reader, selection, &BTreeSet::new())?;
    let total = ranges.iter().map(|range| range.estimated_bytes).sum();
    let missing = missing(selection);
    let options = ScanOptions { verify: !selection.trusts_checksums, missing, ..ScanOptions::default() };
    let scan = reader.scan(&ranges, options)?;
    Ok((Source::Queues(Box::new(scan)), total))
}

fn missing(selection: &Selection) -> Missing {
    if selection.skips_damage { Missing::Skip } else { Missing::Fail }
}

/// The named topics that have no queues. Without a key their records cannot be told from those of a topic that never was.
fn without_queues<D: Disk>(
    reader: &StoreReader<D>,
    selection: &Selection,
) -> Result<BTreeSet<String>, ReadError> {
    if selection.key.as_deref().is_none_or(str::is_empty) || selection.topics.is_empty() {
        return Ok(BTreeSet::new());
    }
    let mut topics: BTreeSet<_> = selection.topics.iter().cloned().collect();
    for topic in reader.topic_names()? {
        topics.remove(&topic);
    }
    Ok(topics)
}

/// The parts of the topics' queues that are wanted.
fn ranges<D: Disk>(
    reader: &StoreReader<D>,
    selection: &Selection,
    without_queues: &BTreeSet<String>,
) -> Result<Vec<QueueRange>, ReadError> {
    let mut ranges = Vec::new();
    for topic in selection.topics.iter().filter(|&topic| !without_queues.contains(topic)) {
        let options = RangeOptions {
            queues: selection.queues.clone(),
            stored_from_ms: selection.stored_from_ms,
            stored_before_ms: selection.stored_before_ms,
            missing: missing(selection),
            ..RangeOptions::default()
        };
        for mut range in reader.ranges(topic, &options)? {
            range.start = range.start.max(selection.queue_from.unwrap_or_default());
            range.end = range.end.min(selection.queue_before.unwrap_or(QueueOffset::MAX));
            if range.start < range.end {
                ranges.push(range);
            }
        }
    }
    Ok(ranges)
}
