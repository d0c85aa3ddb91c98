//! What waits by the files of the timers after a start, next to what would by the timer topic and the checkpoint alone. The proof compares
//! them.

use std::collections::{BTreeMap, BTreeSet};

use rocketpy_env::Disk;
use rocketpy_model::{PhysicalOffset, QueueOffset, system};
use rocketpy_protocol::record::RecordView;
use rocketpy_store::StoreError;
use rocketpy_store::timer::{SLOT_MS, TimerMessage, TimerUnit};

use super::due_heap::Due;
use super::enroll::is_cut_off;
use super::{QUEUE_ID, State, Timers};
use crate::put::{DueRecord, due_record};
use crate::refusal::Refusal;

/// Entries that are read at once.
const PAGE: usize = 256;

/// A message of the timer topic.
struct Message {
    queue_offset: QueueOffset,
    slot_ms: i64,
    due_at_ms: i64,
}

/// What the files leave out of what waits, and what they hold next to it, by places in the log; `None` when they hold the same. What was
/// taken after its time is left out: its slot is not that of a rebuild.
///
/// One that was taken late has no later slot than `latest_ms`, the latest time that the clock has shown.
///
/// Both sides go by the cuts of the checkpoint: a wrong one shows in what is delivered, not here. Right after the start: later a part is in
/// memory.
///
/// # Errors
/// A record or a file cannot be read.
pub(crate) fn difference<D: Disk>(timers: &Timers<D>, latest_ms: i64) -> Result<Option<String>, Refusal> {
    let mut state = timers.state.lock();
    let messages = messages(timers)?;
    let (held, late) = held(&mut state, &messages, latest_ms)?;
    let waits = messages.iter().filter(|(at, message)| waits(&state, **at, message));
    let waits: BTreeSet<u64> = waits.map(|(at, _)| *at).filter(|at| !late.contains(at)).collect();
    let missing: Vec<_> = waits.difference(&held).collect();
    let beside: Vec<_> = held.difference(&waits).collect();
    let is_same = missing.is_empty() && beside.is_empty();
    Ok((!is_same).then(|| format!("{missing:?} are missing, {beside:?} are held but do not wait")))
}

/// All messages of the timer topic, by the places of their records.
fn messages(timers: &Timers<impl Disk>) -> Result<BTreeMap<u64, Message>, Refusal> {
    let bounds = timers.store().queue_bounds(system::TIMER_TOPIC, QUEUE_ID);
    let (mut next, mut messages) = (bounds.min, BTreeMap::new());
    while next < bounds.max {
        let entries = timers.store().entries(system::TIMER_TOPIC, QUEUE_ID, next, PAGE)?;
        next = entries.last().map_or(bounds.max, |last| last.queue_offset + 1);
        for entry in entries {
            let DueRecord::Found(bytes) = due_record(&timers.intake, entry.physical_offset)? else {
                continue;
            };
            let Ok(record) = RecordView::parse(&bytes) else { continue };
            let Some(timer) = TimerMessage::of(&record) else { continue };
            let (slot_ms, flags) = timer.place(record.stored_at_ms);
            let due_at_ms = if flags & TimerUnit::ROLL != 0 { slot_ms } else { timer.due_at_ms };
            let message = Message { queue_offset: entry.queue_offset, slot_ms, due_at_ms };
            messages.insert(entry.physical_offset.get(), message);
        }
    }
    Ok(messages)
}

/// Whether the checkpoint leaves a message to be delivered.
fn waits(state: &State<impl Disk>, at: u64, message: &Message) -> bool {
    let Message { queue_offset, slot_ms, due_at_ms } = *message;
    let is_new = queue_offset >= state.earlier.until;
    is_new || slot_ms >= state.earlier.read_ms && !is_done(state, at, due_at_ms, slot_ms)
}

fn is_done(state: &State<impl Disk>, at: u64, due_at_ms: i64, slot_ms: i64) -> bool {
    let unit = TimerUnit {
        previous: -1,
        flags: TimerUnit::DEFAULT,
        written_at_ms: slot_ms,
        slot_ms,
        physical_offset: PhysicalOffset(at),
        size_bytes: 0,
        topic_hash: 0,
    };
    is_cut_off(&state.earlier, &Due { due_at_ms, unit })
}

/// The messages of the wheel and those that are to be taken into it; and those of the wheel that are in a later slot than their own.
fn held(
    state: &mut State<impl Disk>,
    messages: &BTreeMap<u64, Message>,
    latest_ms: i64,
) -> Result<(BTreeSet<u64>, BTreeSet<u64>), Refusal> {
    let to_take = messages
        .iter()
        .filter(|(at, message)| message.queue_offset >= state.next && waits(state, **at, message));
    let mut held: BTreeSet<u64> = to_take.map(|(at, _)| *at).collect();
    let mut late = BTreeSet::new();
    let slots = messages.values().map(|message| message.slot_ms);
    let first_ms = slots.clone().min().unwrap_or(0).max(state.read_ms());
    let until_ms = slots.max().unwrap_or(0).max(state.due.until_ms()).max(latest_ms) + SLOT_MS;
    let mut from_ms = first_ms;
    while let Some(slot_ms) = state.files.next_used(from_ms, until_ms).map_err(StoreError::Env)? {
        from_ms = slot_ms + SLOT_MS;
        let mut position = state.files.chain(slot_ms).map_err(StoreError::Env)?.position();
        while let Some(unit) = state.files.unit(position).map_err(StoreError::Env)? {
            position = unit.previous;
            let at = unit.physical_offset.get();
            match messages.get(&at) {
                Some(message) if message.slot_ms != slot_ms => drop(late.insert(at)),
                Some(message) if is_done(state, at, message.due_at_ms, slot_ms) => {}
                _ => drop(held.insert(at)),
            }
        }
    }
    Ok((held, late))
}
