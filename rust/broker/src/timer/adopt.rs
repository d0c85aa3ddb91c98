//! Progress of the timers of a master, copied by its slave.
//!
//! A slave has no wheel: it keeps the log files of what waits, and makes the wheel from the timer topic when it becomes a master.

use rocketpy_env::{Disk, EnvError};
use rocketpy_model::{PhysicalOffset, QueueOffset, system};
use rocketpy_protocol::record::RecordView;
use rocketpy_store::Store;
use rocketpy_store::timer::{SLOT_MS, TimerCheckpoint, TimerMessage, TimerUnit, write_checkpoint};

use super::enroll::MAX_LAG_MS;
use super::{HOLDER, QUEUE_ID, Timers};

/// Maximum number of messages of the timer topic that are looked at in one go, to find the first that waits.
const TURN: usize = 4096;

impl<D: Disk> Timers<D> {
    /// Takes over how far the master is, in memory and in the file. Whether that is news. Blocks.
    ///
    /// # Durability
    /// On return it survives a power loss.
    ///
    /// # Errors
    /// The file is not written: what was known before counts.
    pub(crate) fn adopt(&self, master: &TimerCheckpoint) -> Result<bool, EnvError> {
        let store = self.store();
        let end = store.queue_bounds(system::TIMER_TOPIC, QUEUE_ID).max.to_wire();
        let queue_offset = master.master_queue_offset.clamp(0, end);
        let checkpoint = TimerCheckpoint {
            read_ms: master.read_ms.div_euclid(SLOT_MS) * SLOT_MS, // another broker may count in shorter slots
            log_flushed: 0,
            queue_offset,
            master_queue_offset: queue_offset,
            data_version: master.data_version,
            ..TimerCheckpoint::default()
        };
        let _one_at_a_time = self.settling.lock();
        let is_news = *self.written.lock() != checkpoint;
        if is_news {
            write_checkpoint(store.disk(), &store.config().root, &checkpoint)?;
            *self.written.lock() = checkpoint;
            self.seen.lock().read_ms = checkpoint.read_ms;
        }
        let mut state = self.state.lock();
        let (next, from) = first_waiting(store, state.next, &checkpoint);
        state.next = next;
        store.set_waiting_from(HOLDER, from);
        Ok(is_news)
    }
}

/// The first message from `next` on that the master has not delivered, and where it is. As far as one turn goes.
fn first_waiting(
    store: &Store<impl Disk>,
    mut next: QueueOffset,
    checkpoint: &TimerCheckpoint,
) -> (QueueOffset, Option<PhysicalOffset>) {
    let mut left = TURN;
    loop {
        let entries = match store.entries(system::TIMER_TOPIC, QUEUE_ID, next, left.min(64)) {
            Ok(entries) if entries.is_empty() => return (next, None),
            Ok(entries) => entries,
            Err(_) => return (next, Some(PhysicalOffset::ZERO)), // not known
        };
        for entry in entries {
            let is_taken = entry.queue_offset.to_wire() < checkpoint.queue_offset;
            if left == 0 || !is_taken || !is_delivered(store, entry.physical_offset, checkpoint.read_ms) {
                return (entry.queue_offset, Some(entry.physical_offset));
            }
            next = entry.queue_offset + 1;
            left -= 1;
        }
    }
}

/// Whether the message of a record that the master has taken was delivered before a time. One that cannot be read waits.
fn is_delivered(store: &Store<impl Disk>, at: PhysicalOffset, read_ms: i64) -> bool {
    let Ok(Some(bytes)) = store.record_at(at) else { return false };
    let Ok(record) = RecordView::parse(&bytes) else { return true };
    let Some(timer) = TimerMessage::of(&record) else { return true };
    let (slot_ms, flags) = timer.place(record.stored_at_ms);
    let lag_ms = if flags & TimerUnit::ROLL == 0 { 0 } else { MAX_LAG_MS };
    slot_ms.saturating_add(lag_ms) < read_ms
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::put::{Origin, put};
    use crate::testing::{TestBroker, add_topic, message, until};

    #[tokio::test]
    async fn a_slave_keeps_the_log_from_the_first_timer_that_its_master_has_not_delivered() {
        let broker = TestBroker::open(|_| {});
        add_topic(&broker, rocketpy_model::TopicConfig::new("orders", 1)).await;
        let now_ms = broker.ground.store().now_ms();
        let mut places = Vec::new();
        for after_ms in [60_000, 61_000, 120_000, 62_000] {
            let properties = format!("TIMER_DELIVER_MS\u{1}{}\u{2}", now_ms + after_ms);
            places.push(put(&broker.intake, Origin::Client, &message("orders", &properties)).unwrap().places);
        }
        let end = broker.ground.store().max_physical_offset();
        until("dispatch has come there", || broker.ground.store().dispatched_offset() >= end).await;
        let first = |queue_offset, after_ms| {
            let read_ms = now_ms + after_ms;
            let checkpoint = TimerCheckpoint { read_ms, queue_offset, ..TimerCheckpoint::default() };
            first_waiting(broker.ground.store(), QueueOffset::ZERO, &checkpoint).1
        };
        let place = |index: usize| Some(places[index].as_slice()[0]);
        assert_eq!(first(4, 0), place(0));
        assert_eq!(first(4, 90_000), place(2), "later timers keep their place");
        assert_eq!(first(1, 90_000), place(1), "the master has taken one only");
        assert_eq!(first(4, 200_000), None);
    }
}
