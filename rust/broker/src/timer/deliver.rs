//! Delivers what is due, and reads the slots that come next.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rocketpy_env::planted::{self, Bug};
use rocketpy_env::{Disk, EnvError};
use rocketpy_model::{property, system};
use rocketpy_protocol::record::RecordView;
use rocketpy_store::StoreError;
use rocketpy_store::timer::{SLOT_MS, TimerMessage, TimerUnit};
use tokio::runtime::Handle;
use tracing::{error, warn};

use super::due_heap::Due;
use super::enroll::{enroll, note, reached_ms};
use super::open::open_again;
use super::recalled::READ_AHEAD_RECALLS;
use super::retained::Progress;
use super::{MAX_DUE, Pauses, State, Timers};
use crate::metrics::Metric;
use crate::put::{
    DueRecord, FailedReads, Late, MAX_UNREADABLE_MESSAGES, READ_AGAIN_AFTER, StoredAgain, check_creation,
    deliver_late, due_record, is_lasting, is_of_place,
};
use crate::refusal::Refusal;

/// Maximum number of messages that are delivered in one turn, and units that are read in one.
const TURN: usize = 256;
/// How long before it begins a slot is read.
const AHEAD_MS: i64 = 2000;
/// With so many messages in memory no further slot is read.
const READ_AHEAD_MESSAGES: usize = 1 << 16;
/// Pause after something could not be stored or read for now.
const RETRY: Duration = Duration::from_secs(1);

/// One turn at a time of the clock: delivers, takes new messages, reads slots, each a bounded number. Blocks; puts wait on the
/// runtime. Whether there is more to do at once.
pub(crate) fn turn(timers: &Timers<impl Disk>, at_ms: i64, runtime: &Handle) -> bool {
    make_anew(timers);
    let state = &mut *timers.state.lock();
    if state.is_stopped || state.broken.slot_ms.is_some() {
        return false;
    }
    let before = progress(state);
    state.has_more = work(timers, state, at_ms, runtime);
    let after = progress(state);
    let has_moved = after != before;
    if has_moved {
        if after.read_ms != before.read_ms {
            state.recalled.forget_before(after.read_ms);
            state.pending.slots_are_done(after.read_ms);
        }
        // While wheel and log are rebuilt the checkpoint says more: what was taken before that is not there yet.
        if state.next >= state.earlier.until {
            let end = timers.store().max_physical_offset();
            state.retained.step(after, end);
            if timers.intake.is_sync_flush() {
                timers.store().request_flush(end);
            }
        }
        timers.waiting.store(state.retained.count(), Ordering::Relaxed);
    }
    *timers.seen.lock() = state.seen();
    if has_moved {
        timers.moved.notify_one();
    }
    state.has_more
}

fn work<D: Disk>(timers: &Timers<D>, state: &mut State<D>, at_ms: i64, runtime: &Handle) -> bool {
    let (now, mut pauses) = (timers.store().monotonic(), state.pauses);
    let mut has_more = unless_paused(&mut pauses.deliver, now, || deliver(timers, state, at_ms, runtime));
    has_more |= unless_paused(&mut pauses.enroll, now, || {
        state.files.write().map_err(StoreError::Env)?;
        enroll(timers, state, at_ms)
    });
    has_more |= unless_paused(&mut pauses.read, now, || {
        state.files.write().map_err(StoreError::Env)?;
        read_slots(timers, state, at_ms)
    });
    state.pauses = pauses;
    has_more
}

/// Does a part of a turn, whether it has more to do. After an error it pauses.
fn unless_paused(
    pause: &mut Option<Duration>,
    now: Duration,
    part: impl FnOnce() -> Result<bool, Refusal>,
) -> bool {
    if pause.is_some_and(|until| now < until) {
        return false;
    }
    let done = part();
    *pause = done.is_err().then(|| now + RETRY);
    done.unwrap_or_else(|refusal| {
        warn!(%refusal, "timer messages not delivered, retrying");
        false
    })
}

/// Makes wheel and log anew where they were found to be damaged, or notes when to try that again. Until then nothing is delivered.
fn make_anew<D: Disk>(timers: &Timers<D>) {
    let now = timers.store().monotonic();
    {
        let state = timers.state.lock();
        let is_wanted = state.broken.slot_ms.is_some() && !state.is_stopped;
        if !is_wanted || state.pauses.read.is_some_and(|until| now < until) {
            return;
        }
    }
    let opened = open_again(timers).unwrap_or_else(|error| {
        warn!(%error, "timer log not rebuilt, retrying");
        false
    });
    let mut state = timers.state.lock();
    if !opened {
        let until = Some(now + RETRY);
        state.pauses = Pauses { deliver: until, enroll: until, read: until };
        state.has_more = false;
    }
    *timers.seen.lock() = state.seen();
}

fn progress(state: &State<impl Disk>) -> Progress {
    Progress {
        read_ms: state.read_ms(),
        cut: state.cut(),
        earlier_cuts: state.earlier_cuts,
        next: state.next,
        units_end: state.files.end(),
    }
}

/// Delivers up to [`TURN`] messages that are due; whether there may be more.
fn deliver<D: Disk>(
    timers: &Timers<D>,
    state: &mut State<D>,
    at_ms: i64,
    runtime: &Handle,
) -> Result<bool, Refusal> {
    let _gather = timers.store().gather();
    read_again(timers, state)?;
    state.pending.taken(state.next); // what was taken before it was added
    let early_ms = if planted::has(Bug::TimerTooEarly) { 500 } else { 0 };
    for _ in 0..TURN {
        let Some(due) = state.due.first().filter(|due| due.due_at_ms - early_ms <= at_ms) else {
            return Ok(false);
        };
        let is_read_on = state.due.len() <= MAX_DUE && state.pauses.read.is_none();
        if is_read_on && state.due.waits_for_slot(&due) {
            return Ok(true);
        }
        let is_rolled = due.unit.flags & TimerUnit::ROLL != 0;
        // What is stored again waits until there is room for it: messages are taken meanwhile.
        if is_rolled && state.pending.is_full() || !is_rolled && state.may_be_recalled(due.unit.slot_ms) {
            return Ok(false);
        }
        match deliver_one(timers, state, &due, at_ms, runtime)? {
            Some(Late::Unreadable(error)) => pass_over(state, due, error)?,
            outcome => is_done(timers, state, &due.unit, outcome),
        }
        state.reached_ms = reached_ms(&due, state.whole_ms()).max(state.reached_ms);
        assert!(
            state.due.first() == Some(due),
            "the delivered timer slot is the first due one: {}",
            due.due_at_ms
        );
        state.due.pop();
    }
    Ok(true)
}

/// A message needs its record no more; `None` where that is no delivery.
fn is_done<D: Disk>(timers: &Timers<D>, state: &mut State<D>, unit: &TimerUnit, outcome: Option<Late>) {
    match outcome {
        Some(Late::Delivered) => {
            timers.count(Metric::TimersDelivered, 1);
        }
        Some(Late::Dropped(reason)) => {
            timers.count(Metric::TimersDropped, 1);
            error!(physical_offset = %unit.physical_offset, reason, "timer message dropped");
        }
        Some(Late::Unreadable(_)) | None => {}
    }
    state.retained.is_done(unit.physical_offset);
    timers.counts.remove(unit);
}

/// Lets others be delivered before a message that cannot be read.
///
/// # Errors
/// There are too many of them.
fn pass_over(state: &mut State<impl Disk>, due: Due, error: StoreError) -> Result<(), Refusal> {
    let passed = state.unreadable.messages.len();
    assert!(passed <= MAX_UNREADABLE_MESSAGES, "timer messages that are passed over have a bound: {passed}");
    if passed == MAX_UNREADABLE_MESSAGES {
        return Err(error.into());
    }
    state.unreadable.messages.push(due);
    Ok(())
}

/// Tries the messages again that could not be read, once in a while.
fn read_again<D: Disk>(timers: &Timers<D>, state: &mut State<D>) -> Result<(), Refusal> {
    let now = timers.intake.unreadable().now(timers.store());
    if state.unreadable.messages.is_empty() || now < state.unreadable.read_again_at {
        return Ok(());
    }
    state.unreadable.read_again_at = now + READ_AGAIN_AFTER;
    let messages = std::mem::take(&mut state.unreadable.messages);
    let mut read = Ok(());
    for due in messages {
        let is_unreadable = read.is_err()
            || match read_unit(timers, state, due.unit) {
                Ok(unreadable) => unreadable.is_some(),
                Err(refusal) => {
                    read = Err(refusal);
                    true
                }
            };
        if is_unreadable {
            state.unreadable.messages.push(due);
        }
    }
    read
}

/// Delivers a message; `None` where it was recalled, or stored again on the way.
///
/// # Errors
/// The message could not be stored for now.
fn deliver_one<D: Disk>(
    timers: &Timers<D>,
    state: &State<D>,
    due: &Due,
    at_ms: i64,
    runtime: &Handle,
) -> Result<Option<Late>, Refusal> {
    let outcome = match due_record(&timers.intake, due.unit.physical_offset)? {
        DueRecord::Lost(reason) => Late::Dropped(reason),
        DueRecord::Unreadable(error) => Late::Unreadable(error),
        DueRecord::Found(bytes) => match RecordView::parse(&bytes) {
            Err(_) => Late::Dropped("its record is damaged".to_owned()),
            Ok(record) if due.unit.flags & TimerUnit::ROLL != 0 => {
                match roll(timers, state, &record, runtime) {
                    Err(refusal) if is_lasting(&refusal) => Late::Dropped(refusal.to_string()),
                    rolled => return rolled.map(|()| None),
                }
            }
            Ok(record) if is_recalled(state, &record) => {
                timers.count(Metric::TimersRecalled, 1);
                return Ok(None);
            }
            Ok(record) => {
                let late = deliver_late(&timers.intake, runtime, &record, |again| {
                    again
                        .with_fact(property::TIMER_ENQUEUE_MS, &due.unit.written_at_ms.to_string())?
                        .with_fact(property::TIMER_DEQUEUE_MS, &at_ms.to_string())
                })?;
                if let (Late::Delivered, Some(topic)) = (&late, record.property(property::REAL_TOPIC)) {
                    timers.count_for(Metric::TimerDequeued, topic);
                }
                late
            }
        },
    };
    Ok(Some(outcome))
}

fn is_recalled(state: &State<impl Disk>, record: &RecordView<'_>) -> bool {
    let topic = record.property(property::REAL_TOPIC);
    let key = record.property(property::UNIQUE_KEY);
    topic.zip(key).is_some_and(|(topic, key)| state.recalled.contains(topic, key))
}

/// Stores a message again whose time is still far away.
fn roll<D: Disk>(
    timers: &Timers<D>,
    state: &State<D>,
    record: &RecordView<'_>,
    runtime: &Handle,
) -> Result<(), Refusal> {
    if let Some(topic) = record.property(property::REAL_TOPIC) {
        check_creation(&timers.intake, topic, record)?; // the copy would look like one of the later topic
    }
    let rolled = record.property(property::TIMER_ROLL_TIMES).and_then(|times| times.parse::<u32>().ok());
    let times = rolled.unwrap_or(0).saturating_add(1).to_string();
    let again = StoredAgain::of(record)
        .to(system::TIMER_TOPIC, super::QUEUE_ID as i32)
        .with_fact(property::TIMER_ROLL_TIMES, &times)?;
    let Some(timer) = TimerMessage::of(record) else {
        return runtime.block_on(again.put(&timers.intake)).map(drop);
    };
    // Counted from the time of storing it would move.
    let again = again.with_property(property::TIMER_DELIVER_MS, &timer.due_at_ms.to_string())?;
    let stored = runtime.block_on(again.put(&timers.intake))?;
    state.pending.add(stored.queue_offset, timer.slot_ms); // its time may have come meanwhile
    Ok(())
}

/// Reads units of the slots that come next; whether there may be more.
fn read_slots<D: Disk>(timers: &Timers<D>, state: &mut State<D>, at_ms: i64) -> Result<bool, Refusal> {
    let until_ms = at_ms.saturating_add(AHEAD_MS).div_euclid(SLOT_MS) * SLOT_MS;
    let Some(mut chain) = state.due.reading() else {
        let from_ms = state.due.until_ms();
        let is_enough = state.due.len() > READ_AHEAD_MESSAGES
            || state.recalled.len() > READ_AHEAD_RECALLS && state.due.len() > 0;
        if from_ms >= until_ms || is_enough {
            return Ok(false);
        }
        match state.files.next_used(from_ms, until_ms).map_err(StoreError::Env)? {
            Some(slot_ms) if !planted::has(Bug::WheelSlotLost) || slot_ms % (7 * SLOT_MS) != 0 => {
                let chain = state.files.chain(slot_ms).map_err(StoreError::Env)?;
                state.due.begin(chain);
            }
            Some(slot_ms) => state.due.skip_to(slot_ms + SLOT_MS),
            None => state.due.skip_to(until_ms),
        }
        return Ok(true);
    };
    if state.due.len() > MAX_DUE {
        return Ok(false);
    }
    for _ in 0..TURN {
        let (slot_ms, position) = (chain.slot_ms(), chain.position());
        if position < 0 {
            match chain.is_complete() {
                true => state.due.end(),
                false => chain_is_broken(timers, state, slot_ms),
            }
            return Ok(true);
        }
        let unit = match state.files.unit(position) {
            Ok(unit) => unit,
            Err(error) if is_spent(timers, state, position, &error) => {
                timers.count(Metric::TimersDropped, 1);
                error!(slot_ms, position, %error, "timer log not readable: remaining messages of this slot dropped");
                state.due.end();
                return Ok(true);
            }
            Err(error) => return Err(StoreError::Env(error).into()),
        };
        let Some((unit, left)) = unit.and_then(|unit| Some((unit, chain.after(&unit)?))) else {
            chain_is_broken(timers, state, slot_ms);
            return Ok(true);
        };
        if let Some(error) = read_unit(timers, state, unit)? {
            pass_over(state, Due { due_at_ms: unit.slot_ms, unit }, error)?; // it is due at that time or later
        }
        chain = left;
        state.due.read(left);
    }
    Ok(true)
}

/// The units of a slot do not lead to each other, or are not as many as the wheel says. Wheel and log are rebuilt, once for a slot.
fn chain_is_broken<D: Disk>(timers: &Timers<D>, state: &mut State<D>, slot_ms: i64) {
    if state.broken.made_anew_for_ms == Some(slot_ms) {
        timers.count(Metric::TimersDropped, 1);
        error!(slot_ms, "timer log damaged again: remaining messages of this slot dropped");
        state.due.end();
    } else {
        warn!(slot_ms, "timer log damaged, rebuilding it from the timer topic");
        state.broken.slot_ms = Some(slot_ms);
    }
}

/// Counts one more failed read of a unit. Returns whether to give the unit up.
fn is_spent<D: Disk>(timers: &Timers<D>, state: &mut State<D>, position: i64, error: &EnvError) -> bool {
    let now = timers.intake.unreadable().now(timers.store());
    let unit = state.unreadable.unit.filter(|(failed, _)| *failed == position);
    let (_, failed) = state.unreadable.unit.insert(unit.unwrap_or((position, FailedReads::new(now))));
    failed.again(now) && is_of_place(error) && timers.store().poisoned().is_none()
}

/// Takes a unit of the wheel into memory, with the exact time of its record. Returns why that record cannot be read.
///
/// # Errors
/// No record can be read for now.
fn read_unit<D: Disk>(
    timers: &Timers<D>,
    state: &mut State<D>,
    unit: TimerUnit,
) -> Result<Option<StoreError>, Refusal> {
    let bytes = match due_record(&timers.intake, unit.physical_offset)? {
        DueRecord::Found(bytes) => bytes,
        DueRecord::Lost(reason) => {
            is_done(timers, state, &unit, Some(Late::Dropped(reason)));
            return Ok(None);
        }
        DueRecord::Unreadable(error) => return Ok(Some(error)),
    };
    match RecordView::parse(&bytes).ok().as_ref().and_then(TimerMessage::of) {
        Some(timer) => note(timers, state, &timer, unit),
        // The delivery says what is wrong.
        None => state.due.push(Due { due_at_ms: unit.slot_ms, unit }),
    }
    Ok(None)
}
