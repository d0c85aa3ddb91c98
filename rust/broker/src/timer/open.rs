//! State that the last run left.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;
use rocketpy_env::Disk;
use rocketpy_model::{PhysicalOffset, QueueOffset, system};
use rocketpy_store::timer::{
    SLOT_MS, TimerCheckpoint, TimerCut, TimerFiles, TimerUnit, read_checkpoint, write_checkpoint,
};
use rocketpy_store::{Store, StoreError};
use tokio::sync::Notify;
use tracing::{info, warn};

use super::counts::Counts;
use super::due_heap::DueHeap;
use super::pending::PendingRecords;
use super::recalled::Recalled;
use super::retained::Retained;
use super::settle::settle;
use super::{Broken, Earlier, HOLDER, Pauses, QUEUE_ID, State, Timers, Unreadable, without_covered};
use crate::BrokerError;
use crate::put::Intake;

/// After so long the slots of the last run may be those of messages to come.
const MAX_STOP_MS: i64 = 10 * 24 * 3_600_000;

impl<D: Disk> Timers<D> {
    /// Makes the wheel anew, from the log of timers as far as that is whole. What is missing is taken from the timer topic again.
    ///
    /// # Errors
    /// A file cannot be read, or not be written.
    pub(crate) fn open(intake: Arc<Intake<D>>) -> Result<Self, BrokerError> {
        let Reopened { state, counts, written } = reopen(intake.store(), intake.recalls())?;
        Ok(Self {
            written: Mutex::new(written),
            waiting: AtomicU64::new(state.retained.count()),
            counts,
            seen: Mutex::new(state.seen()),
            state: Mutex::new(state),
            settling: Mutex::new(()),
            arrived: Notify::new(),
            moved: Notify::new(),
            intake,
        })
    }
}

/// Content of the timer files.
pub(super) struct Reopened<D: Disk> {
    pub(super) state: State<D>,
    pub(super) counts: Counts,
    pub(super) written: TimerCheckpoint,
}

/// Reads the files, and makes the wheel anew. `pending` keeps what was added to it.
///
/// # Errors
/// As [`Timers::open`].
pub(super) fn reopen<D: Disk>(
    store: &Store<D>,
    pending: &Arc<PendingRecords>,
) -> Result<Reopened<D>, BrokerError> {
    let bounds = store.queue_bounds(system::TIMER_TOPIC, QUEUE_ID);
    let this_slot_ms = store.now_ms().div_euclid(SLOT_MS) * SLOT_MS;
    let written = written(store, bounds.max, this_slot_ms)?;
    let until = QueueOffset(written.queue_offset.unsigned_abs()).clamp(bounds.min, bounds.max);
    let is_stale = this_slot_ms.saturating_sub(written.read_ms) > MAX_STOP_MS;
    let read_ms = if is_stale { this_slot_ms } else { written.read_ms.div_euclid(SLOT_MS) * SLOT_MS };
    let taken = if is_stale { None } else { last_before(store, until)? };
    let opened = Opened::of(store, read_ms, taken)?;
    let opened = match opened.next(store, bounds.min, until)? {
        Some(next) => (opened, next),
        None => (Opened::of(store, read_ms, None)?, bounds.min),
    };
    let (Opened { files, retained, counts, recalls, last: taken }, next) = opened;
    let mut due = DueHeap::new(read_ms);
    // What was due when it was taken waits there, whatever the clock says.
    due.begin(files.chain(read_ms).map_err(StoreError::Env)?);
    info!(waiting = retained.count(), next = %next, end = %bounds.max, "timers opened");
    let found = PendingRecords::new(recalls);
    if next < bounds.max {
        found.add(QueueOffset(bounds.max.get() - 1), read_ms); // any up to the last may be a recall
    }
    pending.replace(&found);
    let state = State {
        files,
        due,
        next,
        taken,
        recalled: Recalled::default(),
        earlier: Earlier {
            until,
            read_ms: written.read_ms,
            cut: written.cut,
            earlier_cuts: written.earlier_cuts,
        },
        reached_ms: written.cut.map_or(written.read_ms, |cut| cut.due_at_ms),
        earlier_cuts: cuts_to_keep(&written, read_ms),
        pending: Arc::clone(pending),
        retained,
        unreadable: Unreadable::default(),
        pauses: Pauses::default(),
        broken: Broken::default(),
        has_more: true,
        is_stopped: false,
    };
    store.set_waiting_from(HOLDER, state.waiting_from(store));
    Ok(Reopened { state, counts, written })
}

/// The cuts of the last run that the one of this run does not cover at once: after a start the first slot alone is whole in memory.
fn cuts_to_keep(
    written: &TimerCheckpoint,
    read_ms: i64,
) -> [Option<TimerCut>; TimerCheckpoint::MAX_EARLIER_CUTS] {
    let cut = written.cut.filter(|cut| cut.whole_ms > read_ms + SLOT_MS);
    without_covered(cut.into_iter().chain(written.earlier_cuts.into_iter().flatten()).collect())
}

/// Checkpoint, reduced to the part that is still valid.
///
/// # Errors
/// The file cannot be read or written.
fn written(
    store: &Store<impl Disk>,
    end: QueueOffset,
    this_slot_ms: i64,
) -> Result<TimerCheckpoint, BrokerError> {
    let written = read_checkpoint(store.disk(), &store.config().root)?.unwrap_or_else(|| {
        let is_new = end == QueueOffset::ZERO;
        if !is_new {
            warn!("no usable progress in config/timercheck: delivered timer messages may be delivered again");
        }
        TimerCheckpoint { read_ms: if is_new { this_slot_ms } else { 0 }, ..TimerCheckpoint::default() }
    });
    without_what_is_gone(store, written, end)
}

/// Makes wheel and log anew while the broker runs, as a start does: the chain of a slot was found broken. Blocks. Returns false where that
/// is to be tried again: what was delivered is not durable yet, and would come again.
///
/// # Errors
/// As [`Timers::open`].
pub(super) fn open_again<D: Disk>(timers: &Timers<D>) -> Result<bool, BrokerError> {
    let store = timers.store();
    store.request_flush(store.max_physical_offset());
    settle(timers, store.flushed_offset());
    let _no_progress_is_written = timers.settling.lock();
    let state = &mut *timers.state.lock();
    if state.retained.is_ahead() {
        return Ok(false);
    }
    let Reopened { state: mut again, counts, .. } = reopen(store, timers.intake.recalls())?;
    again.broken.made_anew_for_ms = state.broken.slot_ms;
    timers.counts.replace(counts);
    *state = again;
    Ok(true)
}

/// The checkpoint without the cuts where the log was cut off since: messages that come now may be where those did.
///
/// # Errors
/// The file cannot be written.
fn without_what_is_gone(
    store: &Store<impl Disk>,
    written: TimerCheckpoint,
    end: QueueOffset,
) -> Result<TimerCheckpoint, BrokerError> {
    let cuts = written.earlier_cuts.into_iter().chain([written.cut]).flatten();
    let is_gone = cuts.map(|cut| cut.taken).any(|taken| taken >= store.max_physical_offset());
    if !is_gone && written.queue_offset <= end.to_wire() {
        return Ok(written);
    }
    warn!(
        "config/timercheck is ahead of the store, which lost messages: delivered timer messages may be delivered again"
    );
    let queue_offset = written.queue_offset.min(end.to_wire());
    let (cut, earlier_cuts) = (None, [None; TimerCheckpoint::MAX_EARLIER_CUTS]);
    let written =
        TimerCheckpoint { queue_offset, master_queue_offset: queue_offset, cut, earlier_cuts, ..written };
    write_checkpoint(store.disk(), &store.config().root, &written).map_err(StoreError::Env)?;
    Ok(written)
}

/// The files, and what their units say.
struct Opened<D: Disk> {
    files: TimerFiles<D>,
    retained: Retained,
    counts: Counts,
    /// Number of recalls per slot.
    recalls: BTreeMap<i64, usize>,
    /// The record of the last unit.
    last: Option<PhysicalOffset>,
}

impl<D: Disk> Opened<D> {
    /// Opens the files, with units for records up to `taken`.
    fn of(store: &Store<D>, read_ms: i64, taken: Option<PhysicalOffset>) -> Result<Self, BrokerError> {
        let config = store.config();
        let (mut retained, counts) = (Retained::new(config.commit_log_file_size), Counts::default());
        let (mut recalls, mut last) = (BTreeMap::<i64, usize>::new(), None);
        let is_kept = |unit: &TimerUnit| {
            if taken.is_none_or(|taken| unit.physical_offset > taken) {
                return false;
            }
            last = Some(unit.physical_offset);
            if unit.slot_ms >= read_ms {
                retained.waits(unit.physical_offset);
                counts.add(unit);
                if unit.flags & TimerUnit::RECALL != 0 {
                    *recalls.entry(unit.slot_ms).or_default() += 1;
                }
            }
            true
        };
        let files = TimerFiles::open(Arc::new(store.disk().clone()), &config.root, read_ms, is_kept)?;
        Ok(Self { files, retained, counts, recalls, last })
    }

    /// The first message that has no unit; `None` when the last unit names no message of the timer topic.
    fn next(
        &self,
        store: &Store<D>,
        min: QueueOffset,
        until: QueueOffset,
    ) -> Result<Option<QueueOffset>, StoreError> {
        let Some(last) = self.last else { return Ok(Some(min)) };
        let (mut from, mut to) = (min.get(), until.get());
        while from < to {
            let middle = from + (to - from) / 2;
            match store.entries(system::TIMER_TOPIC, QUEUE_ID, QueueOffset(middle), 1)?.first() {
                Some(entry) if entry.physical_offset == last => return Ok(Some(entry.queue_offset + 1)),
                Some(entry) if entry.physical_offset < last => from = entry.queue_offset.get() + 1,
                _ => to = middle,
            }
        }
        Ok(None)
    }
}

/// Physical offset of the last message before a queue offset.
fn last_before(store: &Store<impl Disk>, until: QueueOffset) -> Result<Option<PhysicalOffset>, StoreError> {
    let Some(last) = until.checked_sub(QueueOffset(1)) else { return Ok(None) };
    let entries = store.entries(system::TIMER_TOPIC, QUEUE_ID, QueueOffset(last), 1)?;
    Ok(entries.first().filter(|entry| entry.queue_offset < until).map(|entry| entry.physical_offset))
}
