//! Checks what says which messages wait: the files of progress, the marks of transactions, and wheel and log of the timers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rocketpy_env::{Disk, EnvError};
use rocketpy_model::{PhysicalOffset, QueueOffset, system};
use rocketpy_protocol::body::{ConsumerOffsetSerializeWrapper, DelayOffsetSerializeWrapper};
use rocketpy_protocol::record::{RecordView, marked_halves};
use rocketpy_store::reader::{ReadError, StoreReader};
use rocketpy_store::timer::{HeldUnits, TimerCheckpoint, checkpoint_path, difference_of_wheel, held_units};
use serde::de::DeserializeOwned;

use crate::ToolError;
use crate::config_file::{is_blank, parse};
use crate::report::{Problem, ProblemKind, VerifyReport};
use crate::waiting::{CONSUMER_OFFSETS, DELAY_OFFSETS, FILE_BYTES, Waiting, config_path};

/// The topics whose queues the progress names.
const TOPICS: [&str; 4] =
    [system::SCHEDULE_TOPIC, system::TIMER_TOPIC, system::HALF_TOPIC, system::OP_HALF_TOPIC];

/// A check in step with the walk over the log.
pub(crate) struct WaitingCheck {
    /// `None` where it is not known what waits.
    waiting: Option<Waiting>,
    /// Behind the last record of each queue.
    ends: BTreeMap<(&'static str, u32), i64>,
    /// The greatest half message that a mark names, and that mark.
    last_marked: Option<(QueueOffset, Mark)>,
    units: Option<Units>,
    is_live: bool,
}

/// Where a mark of a transaction lies.
#[derive(Clone, Copy)]
struct Mark {
    queue_id: u32,
    queue_offset: QueueOffset,
    physical_offset: PhysicalOffset,
}

/// Units of the log of timers, beside the records of the timer topic.
struct Units {
    held: HeldUnits,
    taken_before: i64,
    /// The next unit.
    next: usize,
    waiting: u64,
    without_unit: u64,
    /// A unit that leads to no message of the topic.
    astray: Option<PhysicalOffset>,
    wheel: Option<(PathBuf, String)>,
}

impl WaitingCheck {
    /// Reads how far the broker was, and the timers where nobody writes them.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(crate) fn open<D: Disk>(
        reader: &StoreReader<D>,
        is_live: bool,
        is_closed: bool,
        report: &mut VerifyReport,
    ) -> Result<Self, ToolError> {
        note_bad_progress(reader, report)?;
        let waiting = match Waiting::open(reader) {
            Ok(waiting) => Some(waiting),
            Err(ToolError::BadProgress { .. }) => None,
            Err(error) => return Err(error),
        };
        let units = match waiting.as_ref().and_then(Waiting::timers) {
            Some(timers) if !is_live => Units::open(reader, timers, is_closed)?,
            _ => None,
        };
        Ok(Self { waiting, ends: BTreeMap::new(), last_marked: None, units, is_live })
    }

    /// Takes the next record of the log.
    pub(crate) fn check(&mut self, queues_dir: &Path, view: &RecordView<'_>, report: &mut VerifyReport) {
        let Some(topic) = TOPICS.into_iter().find(|topic| *topic == view.topic) else { return };
        let end = self.ends.entry((topic, view.queue_id)).or_default();
        *end = view.queue_offset.to_wire().saturating_add(1).max(*end);
        if topic == system::OP_HALF_TOPIC {
            return self.check_mark(queues_dir, view, report);
        }
        let waits = self.waiting.as_ref().is_some_and(|waiting| waiting.destination(view).is_some());
        if waits {
            report.waiting.add(view);
        }
        if let Some(units) = self.units.as_mut().filter(|_| topic == system::TIMER_TOPIC) {
            units.check(view, waits, report.log_start);
        }
    }

    fn check_mark(&mut self, queues_dir: &Path, view: &RecordView<'_>, report: &mut VerifyReport) {
        let RecordView { queue_id, queue_offset, physical_offset, .. } = *view;
        let mark = Mark { queue_id, queue_offset, physical_offset };
        match marked_halves(view).max() {
            None => {
                let found = format!("tag {:?}, {} bytes", view.tag().unwrap_or_default(), view.body.len());
                report.note(mark.problem(queues_dir, found, "numbers of half messages".to_owned()));
            }
            Some(half) if self.last_marked.is_none_or(|(last, _)| half > last) => {
                self.last_marked = Some((half, mark));
            }
            Some(_) => {}
        }
    }

    /// Notes what shows at the end of the log alone.
    ///
    /// # Errors
    /// A queue or a file cannot be read.
    pub(crate) fn finish<D: Disk>(
        &mut self,
        reader: &StoreReader<D>,
        report: &mut VerifyReport,
    ) -> Result<(), ToolError> {
        for topic in TOPICS {
            let queues = match reader.topic(topic) {
                Err(ReadError::UnknownTopic { .. }) => continue,
                summary => summary?.queues,
            };
            for (queue_id, bounds) in queues {
                let end = self.ends.entry((topic, queue_id)).or_default();
                *end = bounds.max.to_wire().max(*end);
            }
        }
        if self.is_live {
            return Ok(()); // entries that the server has not written yet may be done
        }
        let end_of = |topic, queue_id| self.ends.get(&(topic, queue_id)).copied().unwrap_or(0);
        if let Some(waiting) = &self.waiting {
            for (path, topic, queue_id, offset) in waiting.progress(reader) {
                let end = end_of(topic, queue_id);
                if offset > end {
                    let found = format!("{offset} for queue {queue_id} of {topic}");
                    let expected = format!("at most {end}, where the next start goes on");
                    report.note(Problem::new(ProblemKind::ProgressAhead, path, 0, found, expected));
                }
            }
        }
        let half_end = end_of(system::HALF_TOPIC, 0);
        if let Some((half, mark)) = self.last_marked.filter(|(half, _)| half.to_wire() >= half_end) {
            let found = format!("half message {half}");
            report.note(mark.problem(&reader.queues_dir(), found, format!("one before {half_end}")));
        }
        if let Some(units) = self.units.take() {
            units.finish(report);
        }
        Ok(())
    }
}

impl Mark {
    fn problem(self, queues_dir: &Path, found: String, expected: String) -> Problem {
        let path = queues_dir.join(system::OP_HALF_TOPIC).join(self.queue_id.to_string());
        Problem::new(ProblemKind::BadMark, path, 0, found, expected)
            .of_queue(system::OP_HALF_TOPIC, self.queue_id, self.queue_offset)
            .in_log(self.physical_offset)
    }
}

/// The broker takes a blank file for a missing one.
fn check_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<(), String> {
    if is_blank(bytes) { Ok(()) } else { parse::<T>(bytes).map(drop) }
}

/// Notes files of progress that cannot be decoded.
fn note_bad_progress<D: Disk>(reader: &StoreReader<D>, report: &mut VerifyReport) -> Result<(), ToolError> {
    let mut note = |path: &Path, check: &dyn Fn(&[u8]) -> Result<(), String>| {
        let found = match reader.disk().read(path, FILE_BYTES) {
            Err(EnvError::NotFound { .. }) => return Ok(()),
            read => check(&read?),
        };
        if let Err(found) = found {
            let expected = "how far the broker is; its backup is taken where that can be read";
            report.note(Problem::new(ProblemKind::BadProgress, path.to_owned(), 0, found, expected));
        }
        Ok::<_, ToolError>(())
    };
    note(&config_path(reader, DELAY_OFFSETS), &|bytes| check_json::<DelayOffsetSerializeWrapper>(bytes))?;
    note(&config_path(reader, CONSUMER_OFFSETS), &|bytes| {
        check_json::<ConsumerOffsetSerializeWrapper>(bytes)
    })?;
    note(&checkpoint_path(reader.root()), &|bytes| {
        TimerCheckpoint::decode_file(bytes).map(drop).ok_or_else(|| format!("{} bytes", bytes.len()))
    })
}

impl Units {
    fn open<D: Disk>(
        reader: &StoreReader<D>,
        checkpoint: &TimerCheckpoint,
        is_closed: bool,
    ) -> Result<Option<Self>, EnvError> {
        let (disk, root) = (&**reader.disk(), reader.root());
        let TimerCheckpoint { queue_offset: taken_before, read_ms, .. } = *checkpoint;
        let Some(held) = held_units(disk, root, read_ms)? else { return Ok(None) };
        // A wheel is not flushed: only a stop leaves one that is whole.
        let wheel = if is_closed { difference_of_wheel(disk, root, &held)? } else { None };
        Ok(Some(Self { held, taken_before, next: 0, waiting: 0, without_unit: 0, astray: None, wheel }))
    }

    /// Compares a record of the timer topic. What is not taken yet may have a unit.
    fn check(&mut self, view: &RecordView<'_>, waits: bool, log_start: PhysicalOffset) {
        if view.queue_offset.to_wire() >= self.taken_before {
            return;
        }
        let at = view.physical_offset;
        let (mut is_right, ahead) = (false, &self.held.records[self.next..]);
        for (unit_at, size_bytes) in ahead.iter().take_while(|(unit_at, _)| *unit_at <= at) {
            self.next += 1;
            if *unit_at == at {
                is_right = usize::try_from(*size_bytes) == Ok(view.size());
            } else if *unit_at >= log_start {
                self.astray.get_or_insert(*unit_at);
            }
        }
        self.waiting += u64::from(waits);
        self.without_unit += u64::from(waits && !is_right);
    }

    fn finish(self, report: &mut VerifyReport) {
        let Self { held, waiting, without_unit, astray, wheel, .. } = self;
        let mut note = |path: PathBuf, found: String, at: Option<PhysicalOffset>| {
            let expected = "what the timer topic says; the next start makes it anew";
            let problem = Problem::new(ProblemKind::TimersDiffer, path, 0, found, expected);
            report.note(Problem { physical_offset: at, ..problem });
        };
        if without_unit > 0 {
            let found = format!("{without_unit} of {waiting} timers that wait have no unit");
            note(held.dir.clone(), found, None);
        }
        if let Some((position, previous)) = held.broken {
            let found =
                format!("the unit at {position} leads to {previous}, not to the one before it in its slot");
            note(held.dir.clone(), found, None);
        }
        if let Some(at) = astray {
            note(held.dir, "a unit that leads to no timer".to_owned(), Some(at));
        }
        if let Some((path, found)) = wheel {
            note(path, found, None);
        }
    }
}
