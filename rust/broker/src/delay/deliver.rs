//! Stores again what is due.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering;

use rocketpy_env::Disk;
use rocketpy_env::planted::{self, Bug};
use rocketpy_model::{PhysicalOffset, QueueOffset, system};
use rocketpy_protocol::record::RecordView;
use rocketpy_store::{QueueEntry, StoreError};
use tokio::runtime::Handle;
use tracing::{error, warn};

use super::{Delays, LEVELS, Misdated, State};
use crate::clock_steps::HELD_MS;
use crate::metrics::Metric;
use crate::put::{DueRecord, Late, READ_AGAIN_AFTER, deliver_late, due_record};
use crate::refusal::Refusal;

/// Maximum number of messages of a level in one turn; then the others get theirs.
const TURN: usize = 512;
/// Pause after a message could not be stored for now.
const RETRY_MS: i64 = 1000;

/// Result for a message that is due by its queue entry.
enum Outcome {
    Done,
    /// Its record cannot be read for now; others continue.
    Unreadable(StoreError),
    /// Its record says that it is due later.
    NotDue(i64),
}

/// Stores again what is due at a time, a bounded number of messages. Blocks; puts wait on the runtime.
///
/// Returns when the next message is due, 0 where there may be more by now, `None` where nothing waits.
pub(super) fn deliver(delays: &Delays<impl Disk>, at_ms: i64, runtime: &Handle) -> Option<i64> {
    let _gather = delays.store().gather();
    let mut state = delays.state.lock();
    let at_ms = if planted::has(Bug::DelayTooShort) { at_ms.saturating_add(500) } else { at_ms };
    deliver_passed(delays, &mut state, at_ms, runtime);
    for level in 0..LEVELS as usize {
        // Later than that only with a clock that was set back.
        let latest_ms = at_ms.saturating_add(level_ms(delays, level) + HELD_MS);
        if state.due_at_ms[level].is_some_and(|due_at_ms| due_at_ms > at_ms && due_at_ms <= latest_ms) {
            continue;
        }
        let due_at_ms = match deliver_level(delays, &mut state, level, at_ms, runtime) {
            Ok(due_at_ms) => due_at_ms,
            Err(refusal) => {
                warn!(%refusal, level = level + 1, "delayed message not delivered, retrying");
                Some(at_ms.saturating_add(RETRY_MS))
            }
        };
        state.due_at_ms[level] = due_at_ms;
    }
    *delays.seen.lock() = state.seen();
    let read_again_ms = state.progress.has_unreadable().then(|| at_ms.saturating_add(RETRY_MS));
    state.due_at_ms.iter().copied().chain([read_again_ms]).flatten().min()
}

/// Tries the messages again that could not be read, once in a while.
fn deliver_passed<D: Disk>(delays: &Delays<D>, state: &mut State<D>, at_ms: i64, runtime: &Handle) {
    let now = delays.intake.unreadable().now(delays.store());
    if !state.progress.has_unreadable() || now < state.read_again_at {
        return;
    }
    state.read_again_at = now + READ_AGAIN_AFTER;
    for (level, queue_offset, at) in state.progress.unreadable() {
        let mut misdated = state.misdated[level]; // of a message that was also unreadable
        let is_due = |due_at_ms| due(delays, &mut misdated, level, at, due_at_ms, at_ms);
        match deliver_one(delays, queue_offset, at, at_ms, is_due, runtime) {
            Ok(Outcome::Unreadable(_) | Outcome::NotDue(_)) => {}
            Ok(Outcome::Done) => {
                state.progress.is_done(level, queue_offset, delays.store().max_physical_offset())
            }
            Err(refusal) => {
                warn!(%refusal, level = level + 1, "delayed message not delivered, retrying");
                return;
            }
        }
    }
}

/// Delivers up to [`TURN`] messages of a level. Returns when the next one is due.
///
/// # Errors
/// A message could not be stored for now. Those before it are delivered.
fn deliver_level<D: Disk>(
    delays: &Delays<D>,
    state: &mut State<D>,
    level: usize,
    at_ms: i64,
    runtime: &Handle,
) -> Result<Option<i64>, Refusal> {
    let (store, queue_id) = (delays.store(), level as u32);
    let first = state.progress.next(level);
    let bounds = store.queue_bounds(system::SCHEDULE_TOPIC, queue_id);
    if first >= bounds.max {
        state.first_at[level] = None;
        return Ok(None);
    }
    if first < bounds.min {
        let lost = bounds.min - first;
        delays.count(Metric::DelayedDropped, lost);
        error!(level = level + 1, lost, "delayed messages removed before their delivery time");
        let end = store.max_physical_offset();
        state.progress.advance(level, bounds.min, end, end);
    }
    let mut next = first.max(bounds.min);
    let entries = store.entries(system::SCHEDULE_TOPIC, queue_id, next, TURN)?;
    let end = store.queue_bounds(system::SCHEDULE_TOPIC, queue_id).max; // dispatch may have moved it since
    assert!(
        entries.iter().all(|entry| next <= entry.queue_offset && entry.queue_offset < end),
        "entries of a delay level are between its progress {next} and the end of its queue {end}"
    );
    let from = entries.first().map(|entry| entry.physical_offset);
    if entries.is_empty() {
        next += 1; // nothing but fillers, as far as one read looks
    }
    let deliver = || deliver_entries(delays, state, level, &entries, &mut next, at_ms, runtime);
    // A panic must not undo what was delivered before it: each further round would deliver it once more.
    let outcome = catch_unwind(AssertUnwindSafe(deliver));
    advance(delays, state, level, next, from);
    outcome.unwrap_or_else(|panic| resume_unwind(panic))
}

/// Delivers those of the entries that are due. Returns when the next one is; `next` is the place after the last one delivered.
///
/// # Errors
/// A message could not be stored for now.
fn deliver_entries<D: Disk>(
    delays: &Delays<D>,
    state: &mut State<D>,
    level: usize,
    entries: &[QueueEntry],
    next: &mut QueueOffset,
    at_ms: i64,
    runtime: &Handle,
) -> Result<Option<i64>, Refusal> {
    for entry in entries {
        state.first_at[level] = Some(entry.physical_offset);
        let mut due = |due_at_ms| {
            due(delays, &mut state.misdated[level], level, entry.physical_offset, due_at_ms, at_ms)
        };
        if due(entry.tags_code) > at_ms {
            let due_at_ms = due(due_by_record(delays, level, entry));
            if due_at_ms > at_ms {
                return Ok(Some(due_at_ms));
            }
        }
        match deliver_one(delays, entry.queue_offset, entry.physical_offset, at_ms, due, runtime)? {
            Outcome::NotDue(due_at_ms) => {
                report_entry(delays, level, entry.queue_offset, due_at_ms);
                return Ok(Some(due_at_ms));
            }
            Outcome::Unreadable(error) => {
                if !state.progress.pass_over(level, entry.queue_offset, entry.physical_offset) {
                    return Err(error.into());
                }
            }
            Outcome::Done => {}
        }
        *next = entry.queue_offset + 1;
    }
    Ok(Some(0))
}

/// Notes what was delivered. With synchronous flush nobody reads the copies before the flush.
fn advance<D: Disk>(
    delays: &Delays<D>,
    state: &mut State<D>,
    level: usize,
    next: QueueOffset,
    from: Option<PhysicalOffset>,
) {
    if next > state.progress.next(level) {
        let end = delays.store().max_physical_offset();
        state.progress.advance(level, next, from.unwrap_or(end), end);
        if delays.intake.is_sync_flush() {
            delays.store().request_flush(end);
        }
    }
}

/// When the message of an entry that waits is due: as its record says, for a damaged entry must not block those after it. Called once
/// for each wait of a level. What cannot be read is tried again when the entry says that it is due.
fn due_by_record(delays: &Delays<impl Disk>, level: usize, entry: &QueueEntry) -> i64 {
    let bytes = delays.store().record_at(entry.physical_offset).ok().flatten();
    let record = bytes.as_deref().and_then(|bytes| RecordView::parse(bytes).ok());
    let Some(record) = record else { return entry.tags_code };
    let due_at_ms = delays.store().tags_code(&record);
    if due_at_ms != entry.tags_code {
        report_entry(delays, level, entry.queue_offset, due_at_ms);
    }
    due_at_ms
}

/// When a message is due, whatever steps the clock has made since it was stored. One that was stored while the clock was ahead, of which
/// no step is known, waits for its level from now on and no longer: it would keep back all behind it.
fn due(
    delays: &Delays<impl Disk>,
    misdated: &mut Option<Misdated>,
    level: usize,
    at: PhysicalOffset,
    due_at_ms: i64,
    at_ms: i64,
) -> i64 {
    let level_ms = level_ms(delays, level);
    let latest_ms = at_ms.saturating_add(level_ms);
    let steps = delays.intake.ground().clock_steps();
    let due_at_ms = steps.stored_at_ms(at, due_at_ms.saturating_sub(level_ms)).saturating_add(level_ms);
    if due_at_ms <= latest_ms {
        *misdated = None;
    }
    if due_at_ms <= latest_ms.saturating_add(HELD_MS) {
        return due_at_ms;
    }
    let total_ms = steps.total_ms();
    let known = misdated.filter(|known| at < known.end);
    let end = known.map_or_else(|| delays.store().max_physical_offset(), |known| known.end);
    let known_ms = known.map_or(latest_ms, |known| known.without_steps_ms.saturating_add(total_ms));
    let due_at_ms = known_ms.min(latest_ms);
    *misdated = Some(Misdated { without_steps_ms: due_at_ms.saturating_sub(total_ms), end });
    due_at_ms
}

/// How long messages of a level wait; levels count from 0 here.
fn level_ms(delays: &Delays<impl Disk>, level: usize) -> i64 {
    delays.store().delay_levels().ms(level as i64 + 1)
}

/// Says once for each level that its queue is damaged.
fn report_entry(delays: &Delays<impl Disk>, level: usize, queue_offset: QueueOffset, due_at_ms: i64) {
    let bit = 1 << level;
    if delays.damaged_levels.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
        let level = level + 1;
        warn!(level, %queue_offset, due_at_ms, "queue entry has a wrong delivery time, using that of its record");
    }
}

/// Delivers a message that its queue entry says to be due.
///
/// # Errors
/// The message could not be stored for now.
fn deliver_one(
    delays: &Delays<impl Disk>,
    queue_offset: QueueOffset,
    physical_offset: PhysicalOffset,
    at_ms: i64,
    due: impl FnOnce(i64) -> i64,
    runtime: &Handle,
) -> Result<Outcome, Refusal> {
    let outcome = match due_record(&delays.intake, physical_offset)? {
        DueRecord::Found(bytes) => match RecordView::parse(&bytes) {
            Ok(record) => {
                let due_at_ms = due(delays.store().tags_code(&record));
                if due_at_ms > at_ms {
                    return Ok(Outcome::NotDue(due_at_ms));
                }
                deliver_late(&delays.intake, runtime, &record, Ok)?
            }
            Err(_) => Late::Dropped("its record is damaged".to_owned()),
        },
        DueRecord::Lost(reason) => Late::Dropped(reason),
        DueRecord::Unreadable(error) => Late::Unreadable(error),
    };
    match outcome {
        Late::Delivered => {
            delays.count(Metric::DelayedDelivered, 1);
        }
        Late::Dropped(reason) => {
            delays.count(Metric::DelayedDropped, 1);
            error!(%queue_offset, %physical_offset, reason, "delayed message dropped");
        }
        Late::Unreadable(error) => return Ok(Outcome::Unreadable(error)),
    }
    Ok(Outcome::Done)
}
