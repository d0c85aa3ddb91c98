//! Takes new messages of the timer topic into the wheel.

use rocketpy_env::Disk;
use rocketpy_filter::hash_code;
use rocketpy_model::system;
use rocketpy_protocol::record::RecordView;
use rocketpy_store::timer::{SLOT_MS, TimerMessage, TimerUnit, WHEEL_MS};
use rocketpy_store::{QueueEntry, StoreError};
use tracing::error;

use super::due_heap::Due;
use super::{Earlier, HOLDER, MAX_DUE, QUEUE_ID, State, Timers};
use crate::metrics::Metric;
use crate::put::{DueRecord, due_record};
use crate::refusal::Refusal;

/// Maximum number of messages of one turn.
const TURN: usize = 256;
/// How much later than it was stored another broker may have taken a message.
pub(super) const MAX_LAG_MS: i64 = 3_600_000;

/// Takes up to [`TURN`] messages; whether there may be more.
///
/// # Errors
/// A record or a file cannot be read, or not be written, for now. What was taken before stays taken.
pub(super) fn enroll<D: Disk>(
    timers: &Timers<D>,
    state: &mut State<D>,
    now_ms: i64,
) -> Result<bool, Refusal> {
    let store = timers.store();
    let bounds = store.queue_bounds(system::TIMER_TOPIC, QUEUE_ID);
    if state.next < bounds.min {
        let lost = bounds.min - state.next;
        timers.count(Metric::TimersDropped, lost);
        error!(lost, "timer messages removed before they were entered into the timer wheel");
        state.next = bounds.min;
    }
    if state.next >= bounds.max {
        return Ok(false);
    }
    if state.due.len() > MAX_DUE {
        return Ok(state.pending.give_up()); // there is room after deliveries only
    }
    let entries = store.entries(system::TIMER_TOPIC, QUEUE_ID, state.next, TURN)?;
    let (retained_from, delivered) = (state.retained.from(), state.delivered());
    let taken = enroll_all(timers, state, &entries, now_ms);
    state.keep_earlier_cut(delivered);
    if state.retained.from() != retained_from {
        store.set_waiting_from(HOLDER, state.waiting_from(store)); // before the file is old
    }
    taken
}

fn enroll_all<D: Disk>(
    timers: &Timers<D>,
    state: &mut State<D>,
    entries: &[QueueEntry],
    now_ms: i64,
) -> Result<bool, Refusal> {
    if entries.is_empty() {
        state.next += 1; // nothing but fillers, as far as one read looks
    }
    for entry in entries {
        if !enroll_one(timers, state, entry, now_ms)? {
            return Ok(state.pending.give_up());
        }
        let (next, queue_offset) = (state.next, entry.queue_offset);
        assert!(next <= queue_offset, "timer messages are taken in their order: {queue_offset} after {next}");
        state.next = queue_offset + 1;
        state.taken = Some(entry.physical_offset);
    }
    state.pending.taken(state.next);
    Ok(true)
}

/// Takes one message; false when its slot is not free yet.
fn enroll_one<D: Disk>(
    timers: &Timers<D>,
    state: &mut State<D>,
    entry: &QueueEntry,
    now_ms: i64,
) -> Result<bool, Refusal> {
    let bytes = match due_record(&timers.intake, entry.physical_offset)? {
        DueRecord::Found(bytes) => bytes,
        DueRecord::Lost(reason) => {
            drop_entry(timers, entry, &reason);
            return Ok(true);
        }
        // Those behind wait for it: it may be the recall of one that would come meanwhile.
        DueRecord::Unreadable(error) => return Err(error.into()),
    };
    let record = RecordView::parse(&bytes).ok();
    let Some((record, timer)) = record.and_then(|record| Some((record, TimerMessage::of(&record)?))) else {
        drop_entry(timers, entry, "its record has no delivery time or no topic");
        return Ok(true);
    };
    let (slot_ms, flags) = timer.place(record.stored_at_ms);
    if is_of_earlier(&state.earlier, entry, slot_ms, flags) {
        return Ok(true);
    }
    let own_ms = slot_ms;
    let slot_ms = state.free_slot(own_ms, now_ms);
    assert!(own_ms <= slot_ms, "no timer message gets a slot before its own: {slot_ms} for {own_ms}");
    if slot_ms - state.read_ms() >= WHEEL_MS {
        return Ok(false);
    }
    let unit = TimerUnit {
        previous: -1,
        flags,
        written_at_ms: now_ms.div_euclid(SLOT_MS) * SLOT_MS,
        slot_ms,
        physical_offset: entry.physical_offset,
        size_bytes: i32::try_from(entry.size_bytes).unwrap_or(i32::MAX),
        topic_hash: hash_code(timer.topic),
    };
    state.files.add(unit).map_err(StoreError::Env)?;
    state.retained.waits(entry.physical_offset);
    timers.counts.add(&unit);
    if timer.recalls.is_none() {
        timers.count_for(Metric::TimerEnqueued, timer.topic);
        timers.count(Metric::TimersEnqueued, 1);
    }
    if timer.recalls.is_some() {
        state.pending.recall_is_in_wheel(unit.slot_ms.max(timer.slot_ms));
    }
    if slot_ms < state.due.until_ms() {
        note(timers, state, &timer, unit);
    }
    Ok(true)
}

/// Takes a message of a slot that is in memory: it waits there for its exact time, or recalls another.
pub(super) fn note<D: Disk>(
    timers: &Timers<D>,
    state: &mut State<D>,
    timer: &TimerMessage<'_>,
    unit: TimerUnit,
) {
    let is_rolled = unit.flags & TimerUnit::ROLL != 0;
    match timer.recalls {
        Some(recalls) if !is_rolled => {
            state.recalled.insert(timer.topic, recalls, unit.slot_ms.max(timer.slot_ms));
            state.retained.is_done(unit.physical_offset);
        }
        _ => {
            let due = Due { due_at_ms: if is_rolled { unit.slot_ms } else { timer.due_at_ms }, unit };
            if is_cut_off(&state.earlier, &due) {
                state.retained.is_done(unit.physical_offset);
                timers.counts.remove(&unit);
            } else {
                state.due.push(due);
            }
        }
    }
}

/// Whether the last run has delivered it, or stored it again.
fn is_of_earlier(earlier: &Earlier, entry: &QueueEntry, slot_ms: i64, flags: i32) -> bool {
    // Another broker counts from the time of taking, which is later: twice is better than never.
    let slot_ms = if flags & TimerUnit::ROLL == 0 { slot_ms } else { slot_ms + MAX_LAG_MS };
    entry.queue_offset < earlier.until && slot_ms < earlier.read_ms
}

/// Whether the last run has delivered it, or stored it again, of a slot that it was not done with.
pub(super) fn is_cut_off(earlier: &Earlier, due: &Due) -> bool {
    let at = due.unit.physical_offset;
    earlier.cuts().any(|cut| at <= cut.taken && (reached_ms(due, cut.whole_ms), at) < cut.order())
}

/// Time that deliveries have reached once this message is delivered. One that was taken after its time may be in a slot that was not whole
/// in memory: it is passed over until that slot is read, so the slot's time counts.
pub(super) fn reached_ms(due: &Due, whole_ms: i64) -> i64 {
    match due.unit.slot_ms < whole_ms {
        true => due.due_at_ms,
        false => due.due_at_ms.max(due.unit.slot_ms),
    }
}

fn drop_entry(timers: &Timers<impl Disk>, entry: &QueueEntry, reason: &str) {
    timers.count(Metric::TimersDropped, 1);
    let (queue_offset, physical_offset) = (entry.queue_offset, entry.physical_offset);
    error!(%queue_offset, %physical_offset, reason, "timer message dropped");
}
