//! Compares the stored progress of transactions with the log at the start.
//!
//! The progress is an offset of a consumer group, and earlier brokers let every client move those. The log alone decides: a half message
//! whose mark is missing is open, whatever the progress says. Apache's broker leaves some without a mark: it stores a half message
//! again before each question, and puts one that nobody ends into `TRANS_CHECK_MAX_TIME_TOPIC`. Behind its progress these are over.
//!
//! # Source
//! docs/reference/store-format.md 9.4 and 9.5.

use std::collections::{BTreeMap, HashMap};

use rocketpy_env::Disk;
use rocketpy_env::planted::{self, Bug};
use rocketpy_model::{PhysicalOffset, QueueOffset, property, system};
use rocketpy_protocol::record::RecordView;
use rocketpy_store::{Store, StoreError};
use tracing::{info, warn};

use super::ranges::Ranges;
use super::{Name, Progress, QUEUE, marks, name_of};

/// Entries that are read at once.
const PAGE: usize = 1024;

/// State of the half messages, from the log.
#[derive(Debug)]
pub(super) struct Survey {
    /// Ended half messages.
    pub(super) over: Ranges,
    /// The first one that is not.
    pub(super) next: QueueOffset,
    /// Every mark of that one and of later ones is here or behind.
    pub(super) op: QueueOffset,
}

/// Half messages ahead of the stored progress that have no mark.
#[derive(Debug, Default)]
struct Unmarked {
    names: HashMap<QueueOffset, Option<Name>>,
    /// Half messages that no later record replaces, with their physical offsets.
    open: BTreeMap<QueueOffset, PhysicalOffset>,
}

impl Survey {
    /// Reads the marks of all half messages that are there, and looks at those that have none although the stored progress is past
    /// them.
    ///
    /// # Errors
    /// A queue or the log cannot be read.
    pub(super) fn take(store: &Store<impl Disk>, stored: Progress) -> Result<Self, StoreError> {
        let began = store.monotonic();
        let halves = store.queue_bounds(system::HALF_TOPIC, QUEUE);
        let ops = store.queue_bounds(system::OP_HALF_TOPIC, QUEUE);
        let mut over = Ranges::default();
        let first_mark = marks_behind(store, halves.min)?;
        marks::read(store, first_mark, |half| {
            if (halves.min..halves.max).contains(&half) {
                over.insert(half.get());
            }
        })?;
        let mut reopened = 0;
        if planted::has(Bug::EndsAheadOfLog) {
            (halves.min.get()..stored.half.get()).for_each(|half| over.insert(half));
        } else {
            let unmarked = Unmarked::find(store, &over, halves.min, stored.half)?;
            reopened = unmarked.open.len();
            for half in unmarked.names.into_keys().filter(|half| !unmarked.open.contains_key(half)) {
                over.insert(half.get());
            }
        }
        // Those that are gone end no more.
        let next = QueueOffset(over.take_from(halves.min.get()));
        let (min, max) = (halves.min, halves.max);
        assert!(min <= next && next <= max, "the first open half message is of the half queue: {next}");
        let op = marks_behind(store, next)?;
        let elapsed_ms = store.monotonic().saturating_sub(began).as_millis() as u64;
        let half_messages = halves.max.get() - halves.min.get();
        let marks = ops.max.get().saturating_sub(first_mark.get());
        if reopened > 0 {
            warn!(
                stored = %stored.half,
                first_open = %next,
                reopened,
                "stored progress of transactions was past open half messages, reopening them"
            );
        }
        if stored.op > op {
            warn!(stored = %stored.op, first = %op, "stored progress of transactions was past op messages that a start needs");
        }
        if half_messages > 0 {
            info!(half_messages, marks, elapsed_ms, "progress of transactions checked against the log");
        }
        Ok(Self { over, next, op })
    }
}

impl Unmarked {
    /// Finds them from one half message to before another.
    fn find(
        store: &Store<impl Disk>,
        over: &Ranges,
        from: QueueOffset,
        to: QueueOffset,
    ) -> Result<Self, StoreError> {
        let mut found = Self::default();
        let mut half = QueueOffset(over.end_of(from.get()));
        while half < to {
            let entries = store.entries(system::HALF_TOPIC, QUEUE, half, PAGE)?;
            let Some(last) = entries.last() else { break };
            assert!(half <= last.queue_offset, "half messages are read in their order: {half}");
            for entry in entries.iter().filter(|entry| entry.queue_offset < to) {
                if !over.contains(entry.queue_offset.get()) {
                    found.look(store, over, entry.queue_offset, entry.physical_offset)?;
                }
            }
            half = QueueOffset(over.end_of(last.queue_offset.get() + 1));
        }
        // What has no record ends no more.
        let mut gone = QueueOffset(over.end_of(from.get()));
        while gone < to {
            found.names.entry(gone).or_insert(None);
            gone = QueueOffset(over.end_of(gone.get() + 1));
        }
        found.leave_replaced(store)?;
        Ok(found)
    }

    fn look(
        &mut self,
        store: &Store<impl Disk>,
        over: &Ranges,
        half: QueueOffset,
        at: PhysicalOffset,
    ) -> Result<(), StoreError> {
        let bytes = match store.record_at(at) {
            Err(error @ StoreError::Env(_)) => return Err(error),
            other => other.unwrap_or(None), // a damaged one cannot be committed
        };
        let Some(record) = bytes.as_deref().and_then(|bytes| RecordView::parse(bytes).ok()) else {
            return Ok(());
        };
        // A copy that Apache stored before the producer had to be asked: the mark names the first one.
        let first = record.property(property::TRAN_PREPARED_QUEUE_OFFSET).and_then(|text| text.parse().ok());
        if !first.is_some_and(|first: u64| over.contains(first)) {
            self.open.insert(half, at);
        }
        self.names.insert(half, name_of(&record));
        Ok(())
    }

    /// Takes out those that were stored again: as a later half message, or as one that was given up.
    fn leave_replaced(&mut self, store: &Store<impl Disk>) -> Result<(), StoreError> {
        let Some((&first, _)) = self.open.first_key_value() else { return Ok(()) };
        let mut last_of: HashMap<Name, PhysicalOffset> = HashMap::new();
        for (half, at) in &self.open {
            last_of.extend(self.names[half].clone().map(|name| (name, *at)));
        }
        for topic in [system::HALF_TOPIC, system::TRANSACTION_CHECK_MAX_TIME_TOPIC] {
            let mut from = if topic == system::HALF_TOPIC { first } else { QueueOffset::ZERO };
            loop {
                let entries = store.entries(topic, QUEUE, from, PAGE)?;
                let Some(last) = entries.last() else { break };
                from = last.queue_offset + 1;
                for entry in &entries {
                    let bytes = match store.record_at(entry.physical_offset) {
                        Err(error @ StoreError::Env(_)) => return Err(error),
                        other => other.unwrap_or(None),
                    };
                    let record = bytes.as_deref().and_then(|bytes| RecordView::parse(bytes).ok());
                    let Some(name) = record.as_ref().and_then(name_of) else { continue };
                    if let Some(last) = last_of.get_mut(&name) {
                        *last = entry.physical_offset.max(*last);
                    }
                }
            }
        }
        let names = &self.names;
        self.open.retain(|half, at| names[half].as_ref().is_none_or(|name| last_of[name] == *at));
        Ok(())
    }
}

/// The first mark behind a half message in the log. A mark is written when its half message is there.
fn marks_behind(store: &Store<impl Disk>, half: QueueOffset) -> Result<QueueOffset, StoreError> {
    let bounds = store.queue_bounds(system::OP_HALF_TOPIC, QUEUE);
    let Some(first) = store.entries(system::HALF_TOPIC, QUEUE, half, 1)?.first().copied() else {
        return Ok(bounds.max);
    };
    let (mut low, mut high) = (bounds.min, bounds.max);
    while low < high {
        let middle = QueueOffset(low.get() + (high.get() - low.get()) / 2);
        match store.entries(system::OP_HALF_TOPIC, QUEUE, middle, 1)?.first() {
            Some(mark) if mark.physical_offset < first.physical_offset => low = mark.queue_offset + 1,
            _ => high = middle,
        }
    }
    Ok(low)
}
