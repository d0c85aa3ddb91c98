//! The units of a slot: each names the position of the one before it.

use std::collections::BTreeMap;

use rocketpy_protocol::disk::{TimerSlot, TimerUnit};

use super::SLOT_MS;

/// What is left of a slot while its units are read, from the last one back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotChain {
    left: TimerSlot,
}

impl SlotChain {
    pub(super) fn of(slot: TimerSlot) -> Self {
        Self { left: slot }
    }

    /// The time of the slot.
    pub fn slot_ms(&self) -> i64 {
        self.left.second * SLOT_MS
    }

    /// Position of the next unit; -1 behind the first one of the slot.
    pub fn position(&self) -> i64 {
        self.left.last
    }

    /// Whether all units that the wheel has counted were read. Asked behind the first one.
    pub fn is_complete(&self) -> bool {
        self.left.messages == 0
    }

    /// What is left behind its next unit; `None` if that is none of the slot, or leads to none.
    #[must_use]
    pub fn after(&self, unit: &TimerUnit) -> Option<Self> {
        let TimerSlot { second, first, last, messages } = self.left;
        let messages = messages.saturating_sub(counts(unit));
        let (first, before) = if last == first { (-1, -1) } else { (first, unit.previous) };
        let is_sound =
            unit.slot_ms.div_euclid(SLOT_MS) == second && (-1..last).contains(&before) && before >= first;
        is_sound.then_some(Self { left: TimerSlot { second, first, last: before, messages } })
    }
}

/// The slots of the units of a log, in the order in which these lie there.
#[derive(Debug)]
pub(super) struct Chains {
    by_second: BTreeMap<i64, TimerSlot>,
    /// Where the log begins: units before are removed.
    start: u64,
}

impl Chains {
    pub(super) fn new(start: u64) -> Self {
        Self { by_second: BTreeMap::new(), start }
    }

    /// Whether a unit leads to the one before it in its slot, or begins a slot whose units were done when it was written, as it does after
    /// the clock was set back.
    pub(super) fn has_place_for(&self, unit: &TimerUnit) -> bool {
        let is_removed = || u64::try_from(unit.previous).is_ok_and(|at| at < self.start);
        let slot = self.by_second.get(&unit.slot_ms.div_euclid(SLOT_MS));
        unit.previous == -1 || slot.map_or_else(is_removed, |slot| unit.previous == slot.last)
    }

    pub(super) fn add(&mut self, position: u64, unit: &TimerUnit) {
        let second = unit.slot_ms.div_euclid(SLOT_MS);
        let slot = self.by_second.get(&second).filter(|_| unit.previous != -1).copied();
        self.by_second.insert(second, with(&slot.unwrap_or(empty(second)), position, unit));
    }

    /// The slots, by their seconds.
    pub(super) fn slots(&self) -> &BTreeMap<i64, TimerSlot> {
        &self.by_second
    }
}

pub(super) fn empty(second: i64) -> TimerSlot {
    TimerSlot { second, first: -1, last: -1, messages: 0 }
}

/// The slot with one unit more.
pub(super) fn with(slot: &TimerSlot, position: u64, unit: &TimerUnit) -> TimerSlot {
    let position = position as i64;
    let first = if slot.first < 0 { position } else { slot.first };
    TimerSlot { first, last: position, messages: slot.messages.saturating_add(counts(unit)), ..*slot }
}

/// What a unit adds to the number of its slot.
fn counts(unit: &TimerUnit) -> i32 {
    if unit.flags & TimerUnit::RECALL == 0 { 1 } else { -1 }
}
