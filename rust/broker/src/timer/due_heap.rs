//! The messages of the next seconds, ordered by their time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use rocketpy_store::timer::{SLOT_MS, SlotChain, TimerUnit};

/// A message of one of the slots that are in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Due {
    pub(super) due_at_ms: i64,
    pub(super) unit: TimerUnit,
}

impl Due {
    /// Messages of the same time are delivered in the order of the log.
    pub(super) fn order(&self) -> (i64, u64) {
        (self.due_at_ms, self.unit.physical_offset.get())
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.order().cmp(&other.order())
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Debug)]
pub(super) struct DueHeap {
    due: BinaryHeap<Reverse<Due>>,
    /// Number of them per slot.
    open: BTreeMap<i64, usize>,
    /// Slots before this time are in memory, but for what is left of the one that is read.
    until_ms: i64,
    /// Remaining messages of that slot.
    reading: Option<SlotChain>,
}

impl DueHeap {
    pub(super) fn new(read_ms: i64) -> Self {
        Self { due: BinaryHeap::new(), open: BTreeMap::new(), until_ms: read_ms, reading: None }
    }

    pub(super) fn len(&self) -> usize {
        self.due.len()
    }

    pub(super) fn until_ms(&self) -> i64 {
        self.until_ms
    }

    pub(super) fn reading(&self) -> Option<SlotChain> {
        self.reading
    }

    /// Everything in slots before this time is done.
    pub(super) fn first_slot_ms(&self) -> i64 {
        let open = self.open.first_key_value().map(|(slot_ms, _)| *slot_ms);
        let reading = self.reading.map(|chain| chain.slot_ms());
        open.into_iter().chain(reading).min().unwrap_or(self.until_ms).min(self.until_ms)
    }

    /// All messages before this one are done, by time and place in the log.
    pub(super) fn first_order(&self) -> (i64, u64) {
        let first = self.due.peek().map(|due| due.0.order());
        let reading = self.reading.map(|chain| (chain.slot_ms(), 0));
        first.into_iter().chain(reading).min().unwrap_or((self.until_ms, 0)).min((self.until_ms, 0))
    }

    /// All messages of slots before this time are in memory, or were.
    pub(super) fn whole_ms(&self) -> i64 {
        self.reading.map_or(self.until_ms, |chain| chain.slot_ms())
    }

    /// Takes in a message of a slot that is in memory.
    pub(super) fn push(&mut self, due: Due) {
        let slot_ms = due.unit.slot_ms;
        assert!(slot_ms < self.until_ms, "messages in memory are of slots that are read: {slot_ms}");
        *self.open.entry(due.unit.slot_ms).or_default() += 1;
        self.due.push(Reverse(due));
    }

    /// The message that is due first.
    pub(super) fn first(&self) -> Option<Due> {
        self.due.peek().map(|due| due.0)
    }

    /// Whether messages of the slot that is being read may come before it.
    pub(super) fn waits_for_slot(&self, due: &Due) -> bool {
        self.reading.is_some_and(|chain| due.due_at_ms >= chain.slot_ms())
    }

    /// The first message is done.
    pub(super) fn pop(&mut self) {
        let Some(Reverse(due)) = self.due.pop() else { return };
        let slot_ms = due.unit.slot_ms;
        let count = self.open.entry(slot_ms).or_default();
        assert!(*count > 0, "a message in memory is counted for its slot: {slot_ms}");
        *count -= 1;
        if *count == 0 {
            self.open.remove(&slot_ms);
        }
        assert!(!self.due.is_empty() || self.open.is_empty(), "no slot is open without a message in memory");
    }

    /// Begins to read the next slot that has a unit.
    pub(super) fn begin(&mut self, chain: SlotChain) {
        let slot_ms = chain.slot_ms();
        assert!(self.reading.is_none(), "one slot is read at a time: {slot_ms}");
        assert!(self.until_ms <= slot_ms, "slots are read in their order: {slot_ms} after {}", self.until_ms);
        self.reading = Some(chain);
        self.until_ms = chain.slot_ms() + SLOT_MS;
    }

    /// Replaces what is left to read of the current slot.
    pub(super) fn read(&mut self, left: SlotChain) {
        let slot_ms = self.reading.map(|chain| chain.slot_ms());
        assert_eq!(slot_ms, Some(left.slot_ms()), "a slot is read to its end before the next one begins");
        self.reading = Some(left);
    }

    /// All of the slot is read.
    pub(super) fn end(&mut self) {
        let ended = self.reading.take();
        assert!(ended.is_some(), "the reading of a slot ends once: slots are read before {}", self.until_ms);
    }

    /// No slot before this time has a unit.
    pub(super) fn skip_to(&mut self, until_ms: i64) {
        assert!(self.reading.is_none(), "slots are skipped once the slot before them is read: {until_ms}");
        self.until_ms = self.until_ms.max(until_ms);
    }
}
