//! Which messages of a store wait: for a delay level, for their time, or for the end of their transaction.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use rocketpy_env::Disk;
use rocketpy_model::{QueueOffset, property, system};
use rocketpy_protocol::body::{ConsumerOffsetSerializeWrapper, DelayOffsetSerializeWrapper};
use rocketpy_protocol::record::{RecordView, marked_halves};
use rocketpy_store::reader::StoreReader;
use rocketpy_store::timer::{TimerCheckpoint, TimerMessage, checkpoint_path, read_checkpoint};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::config_file::{ConfigFile, parse};
use crate::{Selected, Selection, ToolError};

/// The topics in which messages wait.
pub(crate) const TOPICS: [&str; 3] = [system::SCHEDULE_TOPIC, system::TIMER_TOPIC, system::HALF_TOPIC];
/// Largest file of progress.
pub(crate) const FILE_BYTES: u64 = 256 << 20;

/// How far the delay levels are.
pub(crate) const DELAY_OFFSETS: &str = "delayOffset.json";
/// How far groups are, that of the transactions among them.
pub(crate) const CONSUMER_OFFSETS: &str = "consumerOffset.json";

/// How far the broker of a store was with the messages that wait in it.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// By level, the first message that is not delivered.
    delayed_from: BTreeMap<i32, i64>,
    timers: TimerCheckpoint,
    /// The first half message that may be open, and those behind it that are over.
    halves_from: u64,
    over: BTreeSet<u64>,
    /// The first mark that may be of such a one.
    marks_from: u64,
}

/// How many messages wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct WaitingCounts {
    /// For a delay level.
    pub delayed: u64,
    /// For their time, recalls among them.
    pub timers: u64,
    /// For the end of their transaction.
    pub half_messages: u64,
}

impl WaitingCounts {
    /// Counts a record of one of the system topics.
    pub(crate) fn add(&mut self, view: &RecordView<'_>) {
        match view.topic {
            system::SCHEDULE_TOPIC => self.delayed += 1,
            system::TIMER_TOPIC => self.timers += 1,
            _ => self.half_messages += 1,
        }
    }
}

impl Waiting {
    /// Reads how far the broker was. To be called before the messages are looked at: what is delivered meanwhile is then seen twice,
    /// not missed.
    ///
    /// # Errors
    /// A file of progress, or a mark, cannot be read.
    pub(crate) fn open<D: Disk>(reader: &StoreReader<D>) -> Result<Self, ToolError> {
        let delayed: DelayOffsetSerializeWrapper = read_config(reader, DELAY_OFFSETS)?;
        let offsets: ConsumerOffsetSerializeWrapper = read_config(reader, CONSUMER_OFFSETS)?;
        let offset_of = |topic: &str| {
            let queues = offsets.offset_table.get(&format!("{topic}@{}", system::TRANSACTION_GROUP));
            let offset = queues.and_then(|queues| queues.get(&0)).copied().unwrap_or(0);
            u64::try_from(offset).unwrap_or(0)
        };
        let mut waiting = Self {
            delayed_from: delayed.offset_table,
            timers: read_checkpoint(&**reader.disk(), reader.root())?.unwrap_or_default(),
            halves_from: offset_of(system::HALF_TOPIC),
            over: BTreeSet::new(),
            marks_from: offset_of(system::OP_HALF_TOPIC),
        };
        waiting.read_marks(reader)?;
        Ok(waiting)
    }

    fn read_marks<D: Disk>(&mut self, reader: &StoreReader<D>) -> Result<(), ToolError> {
        if !reader.topic_names()?.iter().any(|topic| topic == system::OP_HALF_TOPIC) {
            return Ok(());
        }
        let topics = vec![system::OP_HALF_TOPIC.to_owned()];
        let queue_from = Some(QueueOffset(self.marks_from));
        let selection = Selection { topics, queue_from, skips_damage: true, ..Selection::default() };
        let mut marks = Selected::new(reader, selection)?;
        let mut note = |view: &RecordView<'_>| {
            self.over
                .extend(marked_halves(view).map(|half| half.get()).filter(|half| *half >= self.halves_from));
            Ok::<_, ToolError>(())
        };
        while marks.step(&mut note)? {}
        Ok(())
    }

    /// How far the timers are; `None` where no file says so.
    pub(crate) fn timers(&self) -> Option<&TimerCheckpoint> {
        Some(&self.timers).filter(|timers| **timers != TimerCheckpoint::default())
    }

    /// Each file of progress with topic, queue id and the queue offset that it names.
    pub(crate) fn progress<D: Disk>(
        &self,
        reader: &StoreReader<D>,
    ) -> impl Iterator<Item = (PathBuf, &'static str, u32, i64)> {
        let [delays, offsets] = [DELAY_OFFSETS, CONSUMER_OFFSETS].map(|name| config_path(reader, name));
        let groups = [(system::HALF_TOPIC, self.halves_from), (system::OP_HALF_TOPIC, self.marks_from)];
        let levels = self.delayed_from.iter().filter_map(move |(level, offset)| {
            let queue_id = u32::try_from(level.checked_sub(1)?).ok()?;
            Some((delays.clone(), system::SCHEDULE_TOPIC, queue_id, *offset))
        });
        let timers = (checkpoint_path(reader.root()), system::TIMER_TOPIC, 0, self.timers.queue_offset);
        let groups = groups.map(|(topic, offset)| (offsets.clone(), topic, 0, offset.cast_signed()));
        levels.chain([timers]).chain(groups)
    }

    /// Topic and queue that a record is for if it waits; `None` if it does not.
    pub(crate) fn destination<'a>(&self, view: &RecordView<'a>) -> Option<(&'a str, u32)> {
        let queue_offset = view.queue_offset.get();
        let waits = match view.topic {
            system::SCHEDULE_TOPIC => {
                let level = i32::try_from(view.queue_id).ok()?.checked_add(1)?;
                self.delayed_from.get(&level).is_none_or(|from| view.queue_offset.to_wire() >= *from)
            }
            system::TIMER_TOPIC => {
                let is_taken = view.queue_offset.to_wire() < self.timers.queue_offset;
                TimerMessage::of(view)
                    .is_some_and(|timer| !is_taken || timer.place(view.stored_at_ms).0 >= self.timers.read_ms)
            }
            system::HALF_TOPIC => queue_offset >= self.halves_from && !self.over.contains(&queue_offset),
            _ => false,
        };
        let topic = view.property(property::REAL_TOPIC).filter(|_| waits)?;
        let queue_id = view.property(property::REAL_QUEUE_ID).and_then(|id| id.parse().ok()).unwrap_or(0);
        Some((topic, queue_id))
    }
}

/// A file of the `config` folder, or its backup; nothing where there is none.
///
/// # Errors
/// Neither can be read, or be decoded.
fn read_config<T: DeserializeOwned + Default, D: Disk>(
    reader: &StoreReader<D>,
    name: &str,
) -> Result<T, ToolError> {
    let (disk, path) = (&**reader.disk(), config_path(reader, name));
    let bad = |path, reason| ToolError::BadProgress { path, reason };
    Ok(ConfigFile::read(disk, &path, FILE_BYTES, parse, bad)?.content.unwrap_or_default())
}

pub(crate) fn config_path<D: Disk>(reader: &StoreReader<D>, name: &str) -> PathBuf {
    reader.root().join("config").join(name)
}
