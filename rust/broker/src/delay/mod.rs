//! Delay levels: messages wait in `SCHEDULE_TOPIC_XXXX`, one queue a level, until they are due, and are then stored again in
//! their own topic.
//!
//! All messages of a queue wait equally long, so the first one of each queue is the next of its level: what waits costs no
//! memory. The progress of each level is in [`progress`], and is written no further than its copies are durable.
//!
//! # Source
//! docs/reference/store-format.md 8.1 to 8.3.

mod adopt;
mod deliver;
mod levels;
mod progress;
mod service;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use parking_lot::Mutex;
use progress::Progress;
use rocketpy_env::{Disk, RealDisk};
use rocketpy_model::{PhysicalOffset, QueueOffset, system};
use rocketpy_protocol::body::DelayOffsetSerializeWrapper;
use rocketpy_store::{Arrival, DelayLevels, Store};
pub(crate) use service::DelayDelivery;
#[cfg(feature = "sim")]
pub(crate) use service::round;
use tokio::sync::Notify;
use tracing::error;

use crate::BrokerError;
use crate::config_file::ConfigFile;
use crate::metrics::Metric;
use crate::put::Intake;
use crate::service::flush_at_stop;

/// Queues of the schedule topic that are looked at: a level of an earlier table may have had messages.
const LEVELS: u32 = DelayLevels::MAX_COUNT;
/// Under this name the store keeps the log files that hold waiting messages.
const HOLDER: &str = "delay levels";
/// Pause between two writes of the progress: after a kill, what was delivered since the last one is delivered again.
const WRITE_EVERY: Duration = Duration::from_secs(1);

/// The messages that wait for a delay level.
#[derive(Debug)]
#[doc(alias = "ScheduleMessageService")]
pub(crate) struct Delays<D: Disk = RealDisk> {
    /// Locked for one delivery, and for the write of the progress: both wait for the disk, so no thread of the runtime takes it.
    state: Mutex<State<D>>,
    /// Published view of the state, as of the last round. Never locked over disk work.
    seen: Mutex<Seen>,
    /// Rung when a message begins to wait.
    arrived: Notify,
    /// A bit for each level in whose queue an entry had another time than its record says.
    damaged_levels: AtomicU64,
    intake: Arc<Intake<D>>,
}

/// Messages of a level whose times of storing are wrong: all before `end` in the log wait for one level more, and come together.
#[derive(Debug, Clone, Copy)]
struct Misdated {
    /// When they are due, by the wall clock as it would be without the steps since the start.
    without_steps_ms: i64,
    end: PhysicalOffset,
}

#[derive(Debug)]
struct State<D: Disk> {
    progress: Progress,
    /// When the next message of each level is to be looked at; `None`: when one arrives.
    due_at_ms: Vec<Option<i64>>,
    /// For each level, messages that were stored while the clock was ahead.
    misdated: Vec<Option<Misdated>>,
    /// Where that message is in the log; until the first look nothing is known, then it is 0.
    first_at: Vec<Option<PhysicalOffset>>,
    write_at: Duration,
    /// When messages are tried again that could not be read, in monotonic time.
    read_again_at: Duration,
    file: ConfigFile<D>,
}

/// Parts of the [`State`] that are published without its lock.
#[derive(Debug, Clone)]
struct Seen {
    /// The first message of each level that waits.
    next: Vec<QueueOffset>,
    due_at_ms: Option<i64>,
    has_unreadable: bool,
    /// When progress is to be written; `None`: there is none.
    write_at: Option<Duration>,
    file: Arc<DelayOffsetSerializeWrapper>,
}

impl<D: Disk> State<D> {
    fn seen(&self) -> Seen {
        Seen {
            next: (0..LEVELS as usize).map(|level| self.progress.next(level)).collect(),
            due_at_ms: self.due_at_ms.iter().flatten().copied().min(),
            has_unreadable: self.progress.has_unreadable(),
            write_at: self.progress.is_ahead().then_some(self.write_at),
            file: self.progress.file(),
        }
    }

    /// Physical offset of the first message without a durable copy.
    fn waiting_from(&self) -> Option<PhysicalOffset> {
        self.first_at.iter().flatten().copied().chain(self.progress.ahead_from()).min()
    }
}

impl<D: Disk> Delays<D> {
    /// Reads how far each level is, and has the store take the configured levels.
    ///
    /// # Errors
    /// As [`open`].
    pub(crate) fn open(intake: Arc<Intake<D>>) -> Result<Self, BrokerError> {
        let state = open(intake.store(), &intake.config().delay_levels)?;
        Ok(Self {
            seen: Mutex::new(state.seen()),
            state: Mutex::new(state),
            arrived: Notify::new(),
            damaged_levels: AtomicU64::new(0),
            intake,
        })
    }

    fn store(&self) -> &Store<D> {
        self.intake.store()
    }

    /// Wakes the delivery where a message begins to wait. Called by the store's threads.
    pub(crate) fn arrived(&self, arrivals: &[Arrival]) {
        if arrivals.iter().any(|arrival| &*arrival.topic == system::SCHEDULE_TOPIC) {
            self.arrived.notify_one();
        }
    }

    /// The first message of each level that waits.
    pub(crate) fn waiting_from(&self) -> Vec<QueueOffset> {
        self.seen.lock().next.clone()
    }

    /// The first message of each configured level that waits, and the end of its queue.
    pub(crate) fn waiting(&self) -> Vec<(QueueOffset, QueueOffset)> {
        let store = self.store();
        let next = self.waiting_from().into_iter().zip(0..store.delay_levels().count());
        next.map(|(next, queue)| (next, store.queue_bounds(system::SCHEDULE_TOPIC, queue).max)).collect()
    }

    fn count(&self, metric: Metric, messages: u64) {
        self.intake.ground().metrics().add(metric, messages);
    }

    /// Messages that were stored again, since the start.
    #[cfg(test)]
    pub(crate) fn delivered(&self) -> u64 {
        self.intake.ground().metrics().total(Metric::DelayedDelivered)
    }

    /// Messages that could not be delivered at all, since the start: their topic is gone, or their record is.
    #[cfg(test)]
    pub(crate) fn dropped(&self) -> u64 {
        self.intake.ground().metrics().total(Metric::DelayedDropped)
    }

    /// Progress of the levels, from their file.
    pub(crate) fn content(&self) -> Arc<DelayOffsetSerializeWrapper> {
        Arc::clone(&self.seen.lock().file)
    }

    /// Writes how far each level is, as far as the copies of its messages are durable. Does nothing where that has not changed.
    fn write(&self, flushed: PhysicalOffset) {
        let store = self.store();
        let mut state = self.state.lock();
        let state = &mut *state;
        state.write_at = store.monotonic() + WRITE_EVERY;
        if let Some(content) = state.progress.durable(flushed, store.now_ms()) {
            match state.file.save(&content) {
                Ok(()) => state.progress.written(content),
                Err(error) => error!(%error, "progress of the delay levels not written, retrying"),
            }
        }
        *self.seen.lock() = state.seen();
    }
}

/// Reads how far each level is, and has the store take the levels.
///
/// # Errors
/// The file cannot be read, or not be decoded while it has no good backup; or messages wait by other levels.
fn open<D: Disk>(store: &Store<D>, levels: &DelayLevels) -> Result<State<D>, BrokerError> {
    let file = ConfigFile::on(store.disk().clone(), &store.config().root, "delayOffset.json");
    let bounds = |level: u32| store.queue_bounds(system::SCHEDULE_TOPIC, level - 1);
    let progress = Progress::new(file.load()?.unwrap_or_default(), bounds);
    levels::adopt(store, &progress, levels)?;
    let state = State {
        progress,
        due_at_ms: vec![Some(0); LEVELS as usize],
        misdated: vec![None; LEVELS as usize],
        first_at: vec![Some(PhysicalOffset::ZERO); LEVELS as usize],
        write_at: store.monotonic(),
        read_again_at: Duration::ZERO,
        file,
    };
    store.set_waiting_from(HOLDER, state.waiting_from());
    Ok(state)
}

/// Writes the progress when nothing is delivered any more. Blocks until the log is flushed.
pub(crate) fn write_at_stop(delays: &Delays<impl Disk>) {
    let is_ahead = delays.state.lock().progress.is_ahead();
    if is_ahead {
        flush_at_stop(delays.intake.ground(), "copies of delayed messages");
    }
    delays.write(delays.store().flushed_offset());
}
