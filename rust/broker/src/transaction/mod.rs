//! Transactions: half messages wait in `RMQ_SYS_TRANS_HALF_TOPIC` until their producer ends them.
//!
//! The end of a transaction leaves a mark in `RMQ_SYS_TRANS_OP_HALF_TOPIC`, behind the committed message in the log: where the mark
//! survives, the message does. From the marks a start learns what is over ([`marks`]). A half message stays where it is until it is
//! ended or given up; what waits costs memory only where ended and open ones alternate ([`ranges`]).
//!
//! # Source
//! docs/reference/store-format.md 9.

mod adopt;
mod check;
mod check_counts;
mod marks;
mod ranges;
mod service;
mod survey;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) use check::{real, unasked_ms};
use check_counts::CheckCounts;
use parking_lot::Mutex;
use ranges::Ranges;
use rocketpy_env::planted::{self, Bug};
use rocketpy_env::{Disk, RealDisk};
use rocketpy_model::{PhysicalOffset, QueueOffset, system};
use rocketpy_protocol::record::RecordView;
use rocketpy_store::{Arrival, Store};
#[cfg(feature = "sim")]
pub(crate) use service::round;
pub(crate) use service::{TransactionCheck, settle_at_stop};
use survey::Survey;
use tokio::sync::Notify;
use tracing::debug;

use crate::BrokerError;
use crate::metrics::Metric;
use crate::put::Intake;
use crate::table::offset::{Place, Readable};

/// Half messages and marks have one queue each.
const QUEUE: u32 = 0;
/// Under this name the store keeps the log files that hold open half messages.
const HOLDER: &str = "transactions";
/// Maximum number of open half messages whose topics are read for the metrics, and the time for it.
const MAX_COUNTED: usize = 1000;
const COUNTED_WITHIN: Duration = Duration::from_millis(20);
/// Label for open half messages of unknown topics.
const OTHER_TOPICS: &str = "other";
/// Maximum number of notes of where the marks of later half messages begin; with more, every other one goes.
const MAX_NOTES: usize = 4096;
/// Maximum number of transactions whose end is remembered; of older ones the key index knows which were committed.
const MAX_ENDS: usize = 16_384;

/// The half messages of a broker.
#[derive(Debug)]
#[doc(alias("TransactionalMessageBridge", "TransactionalMessageService"))]
pub(crate) struct Transactions<D: Disk = RealDisk> {
    state: Mutex<State>,
    /// Half messages stored before the start and committed since. Locked during a commit.
    old_commits: tokio::sync::Mutex<OldCommits>,
    /// Rung when a half message begins to wait, or a producer comes or goes.
    arrived: Arc<Notify>,
    intake: Arc<Intake<D>>,
}

#[derive(Debug)]
struct State {
    /// The first half message that is not over.
    next: QueueOffset,
    /// Ended half messages after it.
    over: Ranges,
    /// Where the half queue ended at the start: what is before may have been committed by a process that was killed before its mark.
    found_to: QueueOffset,
    /// How the latest of them ended.
    ends: VecDeque<(QueueOffset, End)>,
    /// Half messages that are being ended.
    at_work: HashSet<QueueOffset>,
    /// Check-backs per half message: their number and the time of the latest one.
    checks: BTreeMap<QueueOffset, Checked>,
    /// Producers were asked since the file of the counts was written.
    has_asked: bool,
    /// When that may be written again, in monotonic time.
    write_counts_at: Duration,
    /// Ended half messages whose op message could not be written yet.
    unmarked: Vec<QueueOffset>,
    /// Start of the op messages of a half message and all later ones.
    notes: VecDeque<(QueueOffset, QueueOffset)>,
    /// Progress that may be written once the log is flushed up to an offset.
    pending: Option<(Progress, PhysicalOffset)>,
    written: Progress,
    /// When there may be something to ask for, in milliseconds of the monotonic clock; `None`: when a half message arrives.
    due_at_ms: Option<i64>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Checked {
    times: u32,
    /// In milliseconds of the monotonic clock. `None`: not since the start.
    at_ms: Option<i64>,
    /// When the half message was stored.
    stored_at_ms: i64,
    /// The connection of the producer that got the latest question; `None`: nobody was there.
    asked: Option<u64>,
    /// How often producers had come or gone by then.
    producer_changes: u64,
}

/// Messages by what their copies share: Apache's broker stores a half message again before each question.
#[derive(Debug, Default)]
pub(crate) struct OldCommits(HashSet<Name>);

/// Identity of all copies of a half message: unique key, born time and born host.
type Name = (String, i64, SocketAddr);

impl OldCommits {
    pub(crate) fn has(&self, half: &RecordView<'_>) -> bool {
        name_of(half).is_some_and(|name| self.0.contains(&name))
    }

    pub(crate) fn add(&mut self, half: &RecordView<'_>) {
        self.0.extend(name_of(half));
    }
}

fn name_of(half: &RecordView<'_>) -> Option<Name> {
    Some((half.unique_key()?.to_owned(), half.born_at_ms, half.born_host))
}

/// Offsets of the system's group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Progress {
    /// The first half message that is not over.
    half: QueueOffset,
    /// The first mark that a start has to read.
    op: QueueOffset,
}

/// Whether a transaction may be ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// Nobody else ends it until [`Transactions::release`] or [`Transactions::end`].
    Taken,
    /// Somebody else is at it.
    AtWork,
    /// It is over, and ended so; `None`: how is not remembered.
    Over(Option<End>),
}

/// How a transaction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Commit,
    Rollback,
    /// Its producer was asked too often.
    GivenUp,
    /// Its half message was removed for want of space.
    Lost,
}

impl End {
    /// The counter of transactions that ended in this way.
    const fn metric(self) -> Metric {
        match self {
            Self::Commit => Metric::TransactionsCommitted,
            Self::Rollback => Metric::TransactionsRolledBack,
            Self::GivenUp => Metric::TransactionsGivenUp,
            Self::Lost => Metric::TransactionsLost,
        }
    }
}

impl<D: Disk> Transactions<D> {
    /// Reads what is over from the log ([`survey`]). Offsets are clamped to their queues already.
    ///
    /// # Errors
    /// The marks cannot be read.
    pub(crate) fn open(intake: Arc<Intake<D>>) -> Result<Self, BrokerError> {
        let (store, offsets) = (intake.store(), intake.members().offsets());
        let bounds = |topic: &str| store.queue_bounds(topic, QUEUE);
        let start = |topic: &str| {
            let stored = offsets.get(system::TRANSACTION_GROUP, topic, QUEUE).unwrap_or(0);
            let bounds = bounds(topic);
            QueueOffset(u64::try_from(stored).unwrap_or(0)).clamp(bounds.min, bounds.max)
        };
        let progress = Progress { half: start(system::HALF_TOPIC), op: start(system::OP_HALF_TOPIC) };
        let Survey { mut over, mut next, op } = Survey::take(store, progress)?;
        if planted::has(Bug::HalvesForgotten) {
            (next.get()..bounds(system::HALF_TOPIC).max.get()).for_each(|half| over.insert(half));
            next = QueueOffset(over.take_from(next.get()));
        }
        let mut checks = CheckCounts::read(store);
        checks.retain(|half, _| *half >= next && !over.contains(half.get()));
        let state = State {
            next,
            over,
            found_to: bounds(system::HALF_TOPIC).max,
            ends: VecDeque::new(),
            at_work: HashSet::new(),
            checks,
            has_asked: false,
            write_counts_at: Duration::ZERO,
            unmarked: Vec::new(),
            notes: VecDeque::from([(next, op)]),
            pending: None,
            written: progress,
            due_at_ms: Some(0),
        };
        store.set_waiting_from(HOLDER, Some(PhysicalOffset::ZERO)); // until the first round
        Ok(Self {
            state: Mutex::new(state),
            old_commits: tokio::sync::Mutex::default(),
            arrived: intake.members().clients().producers_changed().clone(),
            intake,
        })
    }

    fn store(&self) -> &Store<D> {
        self.intake.store()
    }

    /// Wakes the checks where a half message begins to wait. Called by the store's threads.
    pub(crate) fn arrived(&self, arrivals: &[Arrival]) {
        if arrivals.iter().any(|arrival| &*arrival.topic == system::HALF_TOPIC) {
            self.arrived.notify_one();
        }
    }

    /// Asks for the right to end a transaction.
    pub(crate) fn claim(&self, half: QueueOffset) -> Claim {
        let mut state = self.state.lock();
        if state.is_over(half) && !planted::has(Bug::CommittedAgain) {
            Claim::Over(state.end_of(half))
        } else if state.at_work.insert(half) {
            Claim::Taken
        } else {
            Claim::AtWork
        }
    }

    /// Gives a claim back: the transaction is not over.
    pub(crate) fn release(&self, half: QueueOffset) {
        self.state.lock().at_work.remove(&half);
    }

    /// Notes the end of a claimed transaction, and marks it. A mark that cannot be written is tried again; without it the next
    /// start would ask the producer.
    pub(crate) fn end(&self, half: QueueOffset, end: End) {
        let is_marked = marks::write(&self.intake, &[half]);
        let mut state = self.state.lock();
        state.at_work.remove(&half);
        state.checks.remove(&half);
        state.set_over(half);
        state.ends.push_back((half, end));
        if state.ends.len() > MAX_ENDS {
            state.ends.pop_front();
        }
        if !is_marked {
            state.unmarked.push(half);
        }
        self.count(end.metric());
    }

    /// The first half message that waits for its end.
    pub(crate) fn first_open(&self) -> Option<QueueOffset> {
        let (first, end) = self.open_range();
        (first < end).then_some(first)
    }

    /// Half messages that wait for their end.
    pub(crate) fn waiting(&self) -> u64 {
        let (next, end) = self.open_range();
        (end - next.min(end)).saturating_sub(self.state.lock().over.count_from(next.get()))
    }

    fn open_range(&self) -> (QueueOffset, QueueOffset) {
        let bounds = self.store().queue_bounds(system::HALF_TOPIC, QUEUE);
        (self.state.lock().next.max(bounds.min), bounds.max)
    }

    /// Open half messages by topic. Reads the records of some; all others count for the topic [`OTHER_TOPICS`].
    pub(crate) fn open_by_topic(&self) -> BTreeMap<String, u64> {
        let mut open = BTreeMap::new();
        let (mut next, end) = self.open_range();
        let begun = Instant::now();
        for read in 0.. {
            {
                let state = self.state.lock();
                next = state.over_from(next);
                if next >= end {
                    break;
                }
                if read >= MAX_COUNTED || begun.elapsed() >= COUNTED_WITHIN {
                    let rest = (end - next).saturating_sub(state.over.count_from(next.get()));
                    *open.entry(OTHER_TOPICS.to_owned()).or_default() += rest;
                    break;
                }
            }
            assert!(next < end, "a half message that is counted is in its queue: {next} of {end}");
            let topic = topic_of(self.store(), next).unwrap_or_else(|| OTHER_TOPICS.to_owned());
            *open.entry(topic).or_default() += 1;
            next += 1;
        }
        open
    }

    /// Whether the half message waits for its end.
    pub(crate) fn is_open(&self, half: QueueOffset) -> bool {
        !self.state.lock().is_over(half)
    }

    /// Whether a process before this one may have committed it without a mark.
    pub(crate) fn may_be_committed(&self, half: QueueOffset) -> bool {
        half < self.state.lock().found_to
    }

    /// Commits of half messages of before the start, one at a time.
    pub(crate) async fn old_commits(&self) -> tokio::sync::MutexGuard<'_, OldCommits> {
        self.old_commits.lock().await
    }

    fn count(&self, metric: Metric) {
        self.intake.ground().metrics().add(metric, 1);
    }

    /// Transactions that ended since the start, in this way.
    #[cfg(test)]
    pub(crate) fn ended(&self, end: End) -> u64 {
        self.intake.ground().metrics().total(end.metric())
    }

    /// Questions that were sent to producers since the start.
    #[cfg(test)]
    pub(crate) fn checked(&self) -> u64 {
        self.intake.ground().metrics().total(Metric::TransactionsChecked)
    }

    /// Notes where marks begin, and writes how far it is as far as the log is flushed. Keeps the files from there on.
    fn settle(&self) {
        let store = self.store();
        // Marks may wait for the disk: requests take the lock meanwhile.
        let unmarked = std::mem::take(&mut self.state.lock().unmarked);
        let is_marked = marks::write(&self.intake, &unmarked);
        let mut state = self.state.lock();
        if !is_marked {
            state.unmarked.extend(unmarked);
        }
        state.note(store);
        if state.pending.is_none() && state.unmarked.is_empty() && state.progress() != state.written {
            state.pending = Some((state.progress(), store.max_physical_offset()));
        }
        let pending = state.pending.map(|(progress, _)| progress.half);
        assert!(pending <= Some(state.next), "progress is not written before transactions end: {pending:?}");
        if let Some((progress, end)) = state.pending
            && (store.flushed_offset() >= end || planted::has(Bug::EndsAheadOfLog))
            && self.commit(system::HALF_TOPIC, progress.half)
            && self.commit(system::OP_HALF_TOPIC, progress.op)
        {
            (state.written, state.pending) = (progress, None);
        }
        let from = state.written.half.min(state.next);
        if state.next >= state.found_to
            && let Ok(mut old) = self.old_commits.try_lock()
        {
            old.0 = HashSet::new();
        }
        drop(state);
        store.set_waiting_from(HOLDER, first_at(store, from));
    }

    /// Writes how often producers were asked: at once, or when the last time was long enough ago.
    fn write_counts(&self, at_once: bool) {
        let store = self.store();
        let now = store.monotonic();
        let counts = {
            let mut state = self.state.lock();
            if !state.has_asked || !at_once && now < state.write_counts_at {
                return;
            }
            (state.has_asked, state.write_counts_at) = (false, now + check_counts::WRITE_EVERY);
            CheckCounts::of(&state.checks)
        };
        if !counts.write(store) {
            self.state.lock().has_asked = true;
        }
    }

    /// Notes an offset of the system's group. Returns false where that has to be tried again.
    fn commit(&self, topic: &str, offset: QueueOffset) -> bool {
        let bounds = self.store().queue_bounds(topic, QUEUE);
        let place = Place { group: system::TRANSACTION_GROUP, topic, queue_id: QUEUE };
        let readable = Readable { min: bounds.min.to_wire(), max: bounds.max.to_wire() };
        let noted = self.intake.members().offsets().reset(place, offset.to_wire(), readable);
        if let Err(error) = &noted {
            debug!(%error, topic, "progress of transactions not saved yet");
        }
        noted.is_ok()
    }

    /// Whether progress waits for a flush, or for a mark.
    fn is_behind(&self) -> bool {
        let state = self.state.lock();
        state.pending.is_some() || !state.unmarked.is_empty() || state.progress() != state.written
    }

    /// Whether the file of the counts is to be written.
    fn has_asked(&self) -> bool {
        self.state.lock().has_asked
    }
}

impl State {
    fn is_over(&self, half: QueueOffset) -> bool {
        half < self.next || self.over.contains(half.get())
    }

    /// How a half message ended, if that is remembered.
    fn end_of(&self, half: QueueOffset) -> Option<End> {
        self.ends.iter().rev().find(|(ended, _)| *ended == half).map(|(_, end)| *end)
    }

    /// The first half message from `half` on that is not over.
    fn over_from(&self, half: QueueOffset) -> QueueOffset {
        let open = QueueOffset(self.over.end_of(half.max(self.next).get()));
        assert!(
            half <= open && !self.is_over(open),
            "the half message after those that are over is open: {open}"
        );
        open
    }

    fn set_over(&mut self, half: QueueOffset) {
        if half < self.next {
            return;
        }
        let before = self.next;
        self.over.insert(half.get());
        self.next = QueueOffset(self.over.take_from(before.get()));
        assert!(
            before <= self.next,
            "the first open half message never goes back: {} after {before}",
            self.next
        );
        assert!(self.is_over(half), "a half message that was marked as over is over: {half}");
        assert!(
            !self.over.contains(self.next.get()),
            "the first open half message is not over: {}",
            self.next
        );
    }

    /// Notes for all half messages that come from now on where their marks begin.
    fn note(&mut self, store: &Store<impl Disk>) {
        // In this order: a half message that comes in between has its mark behind.
        let op = store.next_queue_offset(system::OP_HALF_TOPIC, QUEUE);
        let half = store.next_queue_offset(system::HALF_TOPIC, QUEUE);
        let (last, last_op) = self.notes.back().copied().unwrap_or_default();
        assert!(last <= half, "notes of marks are in the order of half messages: {half} after {last}");
        assert!(last_op <= op, "notes of marks are in the order of op messages: {op} after {last_op}");
        match self.notes.back_mut() {
            Some((last, noted)) if *last == half => *noted = op,
            _ => self.notes.push_back((half, op)),
        }
        while self.notes.get(1).is_some_and(|(half, _)| *half <= self.next) {
            self.notes.pop_front();
        }
        if self.notes.len() > MAX_NOTES {
            let mut number = 0_usize;
            self.notes.retain(|_| {
                number += 1;
                number % 2 == 1
            });
        }
        let first = self.notes.front().map(|(half, _)| *half);
        assert!(
            first.is_some_and(|first| first <= self.next),
            "the notes contain the start of the marks of the first open half message: {first:?}"
        );
    }

    fn progress(&self) -> Progress {
        let op = self.notes.front().filter(|(half, _)| *half <= self.next).map(|(_, op)| *op);
        Progress { half: self.next, op: op.unwrap_or(self.written.op) }
    }
}

/// The topic that a half message is for.
fn topic_of(store: &Store<impl Disk>, half: QueueOffset) -> Option<String> {
    let entries = store.entries(system::HALF_TOPIC, QUEUE, half, 1).ok()?;
    let bytes = store.record_at(entries.first()?.physical_offset).ok()??;
    Some(real(&RecordView::parse(&bytes).ok()?)?.0.to_owned())
}

fn first_at(store: &Store<impl Disk>, from: QueueOffset) -> Option<PhysicalOffset> {
    match store.entries(system::HALF_TOPIC, QUEUE, from, 1) {
        Ok(entries) => entries.first().map(|entry| entry.physical_offset),
        Err(_) => Some(PhysicalOffset::ZERO),
    }
}
