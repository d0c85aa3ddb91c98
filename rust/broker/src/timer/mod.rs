//! Timer messages: they wait in `rmq_sys_wheel_timer` until their time, to the millisecond, and are then stored again in their own topic.
//!
//! Which of them waits for which second is in a file, the wheel ([`rocketpy_store::timer`]): what is years ahead costs no memory. The
//! seconds that come next are in memory, ordered by the exact time ([`due_heap`]). One service takes new messages into the wheel ([`enroll`])
//! and delivers what is due ([`deliver`]); another one writes how far that is, no further than the copies are durable ([`mod@settle`]).
//!
//! # Source
//! docs/reference/store-format.md 8.4 to 8.6.

mod adopt;
mod counts;
mod deliver;
mod due_heap;
mod enroll;
mod open;
pub(crate) mod pending;
#[cfg(feature = "sim")]
mod rebuilt;
mod recalled;
mod retained;
mod service;
mod settle;
#[cfg(test)]
mod tests;

use std::array;
use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use counts::Counts;
#[cfg(feature = "sim")]
pub(crate) use deliver::turn;
use due_heap::{Due, DueHeap};
use parking_lot::Mutex;
use pending::PendingRecords;
#[cfg(feature = "sim")]
pub(crate) use rebuilt::difference;
use recalled::Recalled;
use retained::Retained;
use rocketpy_env::{Disk, RealDisk};
use rocketpy_filter::hash_code;
use rocketpy_model::{DataVersion, PhysicalOffset, QueueOffset, system};
use rocketpy_protocol::record::RecordView;
use rocketpy_store::timer::{SLOT_MS, TimerCheckpoint, TimerCut, TimerFiles, TimerMessage, TimerUnit};
use rocketpy_store::{Arrival, Store};
pub(crate) use service::{TimerDelivery, TimerProgress};
pub(crate) use settle::{deliver_at_stop, settle_at_stop};
#[cfg(feature = "sim")]
pub(crate) use settle::{settle, settled_end};
use tokio::sync::Notify;

use crate::metrics::Metric;
use crate::put::{FailedReads, Intake};

/// Under this name the store keeps the log files that hold waiting messages.
const HOLDER: &str = "timers";
/// With so many messages in memory no others are taken in.
const MAX_DUE: usize = 1 << 20;
/// With the clock set back by more, messages keep no slot before those that are done.
const MAX_CLOCK_SET_BACK_MS: i64 = 7 * 24 * 3_600_000;
/// The queue of the timer topic.
const QUEUE_ID: u32 = 0;

/// The messages that wait for their time.
#[derive(Debug)]
#[doc(alias = "TimerMessageStore")]
pub(crate) struct Timers<D: Disk = RealDisk> {
    /// Locked for one turn of deliveries, which may wait for the disk: no thread of the runtime takes it.
    state: Mutex<State<D>>,
    /// Published view of the state, as of the last turn. Never locked over disk work.
    seen: Mutex<Seen>,
    /// Held while progress is written: the last writing waits for one that is under way.
    settling: Mutex<()>,
    /// Rung when a message begins to wait.
    arrived: Notify,
    /// Rung when there is progress to write.
    moved: Notify,
    /// Content of the checkpoint file.
    written: Mutex<TimerCheckpoint>,
    waiting: AtomicU64,
    counts: Counts,
    intake: Arc<Intake<D>>,
}

#[derive(Debug)]
struct State<D: Disk> {
    files: TimerFiles<D>,
    due: DueHeap,
    /// The first message of the timer topic that is not in the wheel.
    next: QueueOffset,
    /// Physical offset of the last message that is in the wheel.
    taken: Option<PhysicalOffset>,
    recalled: Recalled,
    earlier: Earlier,
    /// Up to which time messages were delivered, by the last run as well, since the clock was set back.
    reached_ms: i64,
    /// What was delivered beyond the present cut, before the clock was set back.
    earlier_cuts: [Option<TimerCut>; TimerCheckpoint::MAX_EARLIER_CUTS],
    pending: Arc<PendingRecords>,
    retained: Retained,
    unreadable: Unreadable,
    pauses: Pauses,
    broken: Broken,
    /// The last turn left something to do.
    has_more: bool,
    /// Nothing is delivered any more: a round may outlive its service.
    is_stopped: bool,
}

/// Parts of the [`State`] that are published without its lock.
#[derive(Debug, Clone, Copy)]
struct Seen {
    /// As [`State::next`].
    next: QueueOffset,
    /// As [`State::read_ms`].
    read_ms: i64,
    /// When the first message in memory is due.
    due_at_ms: Option<i64>,
    has_waiting: bool,
    has_more: bool,
    /// There is progress to write.
    is_ahead: bool,
    pauses: Pauses,
}

/// Unreadable parts of the wheel. All others continue.
#[derive(Debug, Default)]
struct Unreadable {
    /// Messages; no more than [`MAX_UNREADABLE_MESSAGES`](crate::put::MAX_UNREADABLE_MESSAGES).
    messages: Vec<Due>,
    /// When they are tried again, in monotonic time.
    read_again_at: Duration,
    /// The position of a unit, of the slot that is being read.
    unit: Option<(i64, FailedReads)>,
}

/// Slots of the wheel whose units do not lead to each other.
#[derive(Debug, Default)]
struct Broken {
    /// Slot for which wheel and log are to be rebuilt.
    slot_ms: Option<i64>,
    /// For this one they were.
    made_anew_for_ms: Option<i64>,
}

/// Until when each part of a turn is left out after an error, in monotonic time. None of them holds up the others.
#[derive(Debug, Default, Clone, Copy)]
struct Pauses {
    deliver: Option<Duration>,
    enroll: Option<Duration>,
    read: Option<Duration>,
}

/// What the last run had done where the files no longer say so.
#[derive(Debug, Clone, Copy)]
struct Earlier {
    /// It had taken the messages before this one,
    until: QueueOffset,
    /// and delivered those whose slot is before.
    read_ms: i64,
    /// and of these too,
    cut: Option<TimerCut>,
    /// and of these, before the clock was set back.
    earlier_cuts: [Option<TimerCut>; TimerCheckpoint::MAX_EARLIER_CUTS],
}

impl Earlier {
    /// Of each of them, what it had delivered.
    fn cuts(&self) -> impl Iterator<Item = TimerCut> {
        self.earlier_cuts.into_iter().chain([self.cut]).flatten()
    }
}

impl<D: Disk> State<D> {
    fn seen(&self) -> Seen {
        Seen {
            next: self.next,
            read_ms: self.read_ms(),
            due_at_ms: self.due.first().map(|due| due.due_at_ms),
            has_waiting: self.retained.count() > 0,
            has_more: self.has_more,
            is_ahead: self.retained.is_ahead(),
            pauses: self.pauses,
        }
    }

    /// Everything in slots before this time is delivered, and all recalls for them are taken.
    fn read_ms(&self) -> i64 {
        let unreadable = self.unreadable.messages.iter().map(|due| due.unit.slot_ms);
        let first_ms = unreadable.chain([self.due.first_slot_ms()]).min().unwrap_or(i64::MAX);
        self.pending.first_slot_ms().map_or(first_ms, |pending_ms| pending_ms.min(first_ms))
    }

    /// Whether not everything is in memory yet of what the last run has delivered in part.
    fn reads_earlier(&self) -> bool {
        self.due.reading().is_some_and(|reading| reading.slot_ms() <= self.earlier.read_ms)
    }

    /// Deliveries in the slots from there on.
    fn cut(&self) -> Option<TimerCut> {
        if self.reads_earlier() {
            return self.earlier.cut;
        }
        let unreadable = self.unreadable.messages.iter().map(Due::order);
        let (due_at_ms, at) = unreadable.chain([self.due.first_order()]).min()?;
        let (at, whole_ms) = (PhysicalOffset(at), self.whole_ms());
        Some(TimerCut { due_at_ms, at, taken: self.taken?, whole_ms })
    }

    /// All messages of slots before this time are in memory with their times, or done.
    fn whole_ms(&self) -> i64 {
        // One whose record cannot be read counts by its slot: it may be due earlier.
        let unreadable = self.unreadable.messages.iter().map(|due| due.unit.slot_ms);
        unreadable.fold(self.due.whole_ms(), i64::min)
    }

    /// What is delivered. The cut may reach further: up to the slots that are not in memory.
    fn delivered(&self) -> Option<TimerCut> {
        let cut = self.cut()?;
        let reached =
            TimerCut { due_at_ms: self.reached_ms.saturating_add(1), at: PhysicalOffset::ZERO, ..cut };
        Some(if !self.reads_earlier() && reached.order() < cut.order() { reached } else { cut })
    }

    /// Keeps what was delivered before a message came that is due earlier, as long as the present cut does not say it: the clock was set
    /// back.
    fn keep_earlier_cut(&mut self, before: Option<TimerCut>) {
        let now = self.cut().filter(|_| !self.reads_earlier());
        let says_more = |cut: &TimerCut| now.is_none_or(|now| !now.covers(cut));
        let kept = before.into_iter().chain(self.earlier_cuts.into_iter().flatten()).filter(says_more);
        let kept = kept.collect();
        if now.zip(before).is_some_and(|(now, before)| now.order() < before.order()) {
            self.reached_ms = i64::MIN; // nothing is delivered yet since the clock was set back
        }
        self.earlier_cuts = without_covered(kept);
    }

    /// The slot for a message whose own one may be done.
    ///
    /// One that begins later keeps it: the clock was set back, and everything from that slot on is read again after a start. What is due
    /// already goes to the current slot, or to an earlier one that is not done: so it counts as delivered before all that is not due yet.
    fn free_slot(&self, slot_ms: i64, now_ms: i64) -> i64 {
        let last_ms = self.read_ms().min(self.due.until_ms() - SLOT_MS);
        let is_far = last_ms.saturating_sub(slot_ms) > MAX_CLOCK_SET_BACK_MS; // else places of the wheel are wanted twice
        let this_ms = now_ms.div_euclid(SLOT_MS) * SLOT_MS;
        match slot_ms {
            _ if is_far => slot_ms.max(last_ms),
            _ if slot_ms < this_ms => slot_ms.max(last_ms.min(this_ms)),
            _ => slot_ms,
        }
    }

    /// Whether a recall of a message in this slot is not read yet.
    fn may_be_recalled(&self, slot_ms: i64) -> bool {
        let is_recall = |due: &Due| due.unit.flags & TimerUnit::RECALL != 0 && due.unit.slot_ms <= slot_ms;
        self.pending.holds(slot_ms) || self.unreadable.messages.iter().any(is_recall)
    }

    /// Physical offset of the first message without a durable copy.
    fn waiting_from(&self, store: &Store<D>) -> Option<PhysicalOffset> {
        let next = store.entries(system::TIMER_TOPIC, QUEUE_ID, self.next, 1);
        let next = match next.as_deref() {
            Ok([entry, ..]) => Some(entry.physical_offset),
            Ok([]) => None,
            Err(_) => Some(PhysicalOffset::ZERO), // not known
        };
        self.retained.from().into_iter().chain(next).min()
    }
}

/// The cuts that no other one covers. Where there are too many, those of the fewest messages go: these may come again.
fn without_covered(mut cuts: Vec<TimerCut>) -> [Option<TimerCut>; TimerCheckpoint::MAX_EARLIER_CUTS] {
    cuts.sort_by_key(|cut| Reverse((cut.taken, cut.order(), cut.whole_ms)));
    let mut kept: Vec<TimerCut> = Vec::new();
    for cut in cuts {
        if !kept.iter().any(|other| other.covers(&cut)) {
            kept.push(cut);
        }
    }
    let mut kept = kept.into_iter();
    array::from_fn(|_| kept.next())
}

impl<D: Disk> Timers<D> {
    fn store(&self) -> &Store<D> {
        self.intake.store()
    }

    /// Wakes the service when a message begins to wait. Called by the store's threads.
    pub(crate) fn arrived(&self, arrivals: &[Arrival]) {
        if arrivals.iter().any(|arrival| &*arrival.topic == system::TIMER_TOPIC) {
            self.arrived.notify_one();
        }
    }

    /// Whether a record of the timer topic is a message that is to be delivered, or stored again.
    pub(crate) fn is_waiting(&self, record: &RecordView<'_>) -> bool {
        let slot_ms = |timer: &TimerMessage<'_>| timer.place(record.stored_at_ms).0;
        let message = TimerMessage::of(record).filter(|timer| timer.recalls.is_none());
        message.is_some_and(|timer| slot_ms(&timer) >= self.seen.lock().read_ms)
    }

    /// Messages that wait in the wheel, those included whose delivery is not durable.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// How many wait for a topic, and since when, in Unix milliseconds; `None` for none.
    pub(crate) fn waiting_for(&self, topic: &str) -> Option<(i64, i64)> {
        self.counts.of(hash_code(topic))
    }

    /// How many wait whose slot begins in each of the ranges, in Unix milliseconds.
    pub(crate) fn waiting_in(&self, ranges: &[Range<i64>]) -> Vec<u64> {
        self.counts.in_slots(ranges)
    }

    /// Messages that are not in the wheel yet: how many, and the first of them.
    pub(crate) fn not_taken(&self) -> (u64, QueueOffset) {
        let next = self.seen.lock().next;
        let end = self.store().queue_bounds(system::TIMER_TOPIC, QUEUE_ID).max;
        (end.get().saturating_sub(next.get()), next)
    }

    /// When the first message in memory is due, in Unix milliseconds.
    pub(crate) fn first_due_at_ms(&self) -> Option<i64> {
        self.seen.lock().due_at_ms
    }

    /// Moves with each change of what [`Self::waiting_for`] says.
    pub(crate) fn counts_version(&self) -> DataVersion {
        self.counts.version()
    }

    fn count_for(&self, metric: Metric, topic: &str) {
        self.intake.ground().metrics().add_to(metric, &[topic], 1);
    }

    fn count(&self, metric: Metric, messages: u64) {
        self.intake.ground().metrics().add(metric, messages);
    }

    /// Messages that were delivered, since the start.
    #[cfg(test)]
    pub(crate) fn delivered(&self) -> u64 {
        self.intake.ground().metrics().total(Metric::TimersDelivered)
    }

    /// Messages that could not be delivered at all, since the start: their topic is gone, or their record is.
    #[cfg(test)]
    pub(crate) fn dropped(&self) -> u64 {
        self.intake.ground().metrics().total(Metric::TimersDropped)
    }

    /// Messages that were recalled before their time, since the start.
    #[cfg(test)]
    pub(crate) fn recalled(&self) -> u64 {
        self.intake.ground().metrics().total(Metric::TimersRecalled)
    }

    /// The checkpoint, as stored in its file.
    pub(crate) fn checkpoint(&self) -> TimerCheckpoint {
        *self.written.lock()
    }
}
