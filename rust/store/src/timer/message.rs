//! What a message of the timer topic asks for, and the slot in which it waits.
//!
//! # Source
//! docs/reference/store-format.md 8.4 and 8.5.

use rocketpy_model::property;
use rocketpy_protocol::record::RecordView;

use super::{SLOT_MS, TimerUnit};

/// A message whose time is further ahead than this is stored again after it, so that the log before it can be removed
/// (`timerRollWindowSlot`).
pub const ROLL_MS: i64 = 172_800 * SLOT_MS;

/// What a record of the timer topic asks for.
#[derive(Debug, Clone, Copy)]
pub struct TimerMessage<'a> {
    /// `TIMER_OUT_MS`, rounded down to a slot.
    pub slot_ms: i64,
    /// The exact time, within a second behind the slot.
    pub due_at_ms: i64,
    /// The topic that it goes to.
    pub topic: &'a str,
    /// The message that it recalls.
    pub recalls: Option<&'a str>,
}

impl<'a> TimerMessage<'a> {
    /// Reads it; `None` for a record that the timer topic should not have.
    pub fn of(record: &RecordView<'a>) -> Option<Self> {
        let number = |name| record.property(name).and_then(|value| value.trim().parse::<i64>().ok());
        let out_ms = number(property::TIMER_OUT_MS)?;
        let slot_ms = out_ms.div_euclid(SLOT_MS).checked_mul(SLOT_MS)?;
        let after_ms = || {
            let seconds = number(property::TIMER_DELAY_SEC).and_then(|seconds| seconds.checked_mul(1000));
            record.stored_at_ms.checked_add(seconds.or_else(|| number(property::TIMER_DELAY_MS))?)
        };
        // Another broker rounds to other slots, and stores a message several times before its time.
        let due_at_ms = number(property::TIMER_DELIVER_MS).or_else(after_ms);
        let due_at_ms = due_at_ms.unwrap_or(out_ms).clamp(out_ms, out_ms.checked_add(SLOT_MS)?);
        let topic = record.property(property::REAL_TOPIC)?;
        Some(Self { slot_ms, due_at_ms, topic, recalls: record.property(property::TIMER_DEL_UNIQUE_KEY) })
    }

    /// Its slot, or that in which it is stored again; and its flags.
    ///
    /// # Source
    /// docs/reference/store-format.md 8.5. Here the time of storing counts, not that of taking: then it is the same whenever the wheel is
    /// rebuilt.
    pub fn place(&self, stored_at_ms: i64) -> (i64, i32) {
        let mut flags = TimerUnit::DEFAULT;
        if self.recalls.is_some() {
            flags |= TimerUnit::RECALL;
        }
        let stored_ms = stored_at_ms.div_euclid(SLOT_MS) * SLOT_MS;
        let excess_ms = self.slot_ms.saturating_sub(stored_ms).saturating_sub(ROLL_MS);
        if excess_ms < 0 {
            return (self.slot_ms, flags);
        }
        // Not just before its time: a last hour in memory and a further storing would come for one message.
        let after_ms = if excess_ms < ROLL_MS / 3 { ROLL_MS / 2 } else { ROLL_MS };
        (stored_ms + after_ms, flags | TimerUnit::ROLL)
    }
}
