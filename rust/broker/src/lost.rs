//! Names the messages that wait and go with a log file which is removed for want of space.

use std::collections::BTreeMap;
use std::ops::Range;

use rocketpy_env::Disk;
use rocketpy_model::{PhysicalOffset, QueueOffset, property, system};
use rocketpy_protocol::record::RecordView;
use rocketpy_store::Store;
use tracing::error;

use crate::delay::Delays;
use crate::timer::Timers;
use crate::transaction::Transactions;

/// Entries that are read at once.
const PAGE: usize = 512;
/// Maximum number of topics that are named; the others are counted.
const MAX_TOPICS: usize = 20;

/// Number of messages of a topic that wait in a file.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lost {
    pub(crate) delayed: u64,
    pub(crate) timers: u64,
    pub(crate) halves: u64,
}

/// The parts that hold messages back.
pub(crate) struct Waiting<'a, D: Disk> {
    pub(crate) store: &'a Store<D>,
    pub(crate) delays: &'a Delays<D>,
    pub(crate) timers: &'a Timers<D>,
    pub(crate) transactions: &'a Transactions<D>,
}

/// Says which messages are about to be lost.
pub(crate) fn tell(waiting: Waiting<'_, impl Disk>, file: &Range<PhysicalOffset>) {
    let lost = in_file(waiting, file);
    for (topic, Lost { delayed, timers, halves }) in lost.iter().take(MAX_TOPICS) {
        error!(
            start = %file.start, topic, delayed, timers, halves,
            "waiting messages lost: their log file is being removed because the disk is full"
        );
    }
    if lost.len() > MAX_TOPICS {
        let (topics, more) = (lost.len() - MAX_TOPICS, lost.values().skip(MAX_TOPICS));
        let messages: u64 = more.map(|lost| lost.delayed + lost.timers + lost.halves).sum();
        error!(start = %file.start, topics, messages, "waiting messages of more topics lost with the same file");
    }
}

/// Waiting messages in a part of the log, by destination topic.
pub(crate) fn in_file(
    waiting: Waiting<'_, impl Disk>,
    file: &Range<PhysicalOffset>,
) -> BTreeMap<String, Lost> {
    let Waiting { store, delays, timers, transactions } = waiting;
    let mut lost = BTreeMap::new();
    for (level, from) in delays.waiting_from().into_iter().enumerate() {
        each(store, (system::SCHEDULE_TOPIC, level as u32), from, file, |_, record| {
            of_topic(&mut lost, record).delayed += 1;
        });
    }
    each(store, (system::TIMER_TOPIC, 0), QueueOffset::ZERO, file, |_, record| {
        if timers.is_waiting(record) {
            of_topic(&mut lost, record).timers += 1;
        }
    });
    each(store, (system::HALF_TOPIC, 0), QueueOffset::ZERO, file, |half, record| {
        if transactions.is_open(half) {
            of_topic(&mut lost, record).halves += 1;
        }
    });
    lost
}

fn of_topic<'l>(lost: &'l mut BTreeMap<String, Lost>, record: &RecordView<'_>) -> &'l mut Lost {
    lost.entry(record.property(property::REAL_TOPIC).unwrap_or_default().to_owned()).or_default()
}

/// The records of a queue that lie in the file, from an offset on. What cannot be read is left out.
fn each(
    store: &Store<impl Disk>,
    (topic, queue_id): (&str, u32),
    from: QueueOffset,
    file: &Range<PhysicalOffset>,
    mut found: impl FnMut(QueueOffset, &RecordView<'_>),
) {
    let mut at = from.max(store.queue_bounds(topic, queue_id).min);
    while let Ok(entries) = store.entries(topic, queue_id, at, PAGE) {
        let Some(last) = entries.last() else { return };
        at = last.queue_offset + 1;
        for entry in &entries {
            if entry.physical_offset >= file.end {
                return;
            }
            if let Ok(Some(bytes)) = store.record_at(entry.physical_offset)
                && let Ok(record) = RecordView::parse(&bytes)
            {
                found(entry.queue_offset, &record);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rocketpy_model::TopicConfig;

    use super::*;
    use crate::desk::Desk;
    use crate::put::{Origin, put};
    use crate::testing::{TestBroker, add_topic, message, until};

    #[tokio::test]
    async fn what_waits_in_a_file_is_counted_by_its_topic() {
        let broker = TestBroker::open(|_| {});
        for topic in ["orders", "payments"] {
            add_topic(&broker, TopicConfig::new(topic, 1)).await;
        }
        let later =
            ["DELAY\u{1}18\u{2}", "TIMER_DELAY_SEC\u{1}9999\u{2}", "TRAN_MSG\u{1}true\u{2}PGROUP\u{1}g\u{2}"];
        for (topic, properties) in [
            ("orders", ""),
            ("orders", later[0]),
            ("orders", later[1]),
            ("payments", later[1]),
            ("orders", later[2]),
        ] {
            put(&broker.intake, Origin::Client, &message(topic, properties)).unwrap();
        }
        let end = broker.ground.store().max_physical_offset();
        let behind = put(&broker.intake, Origin::Client, &message("payments", later[0])).unwrap();
        assert_eq!(behind.places.as_slice(), [end]);
        let dispatched = broker.ground.store().max_physical_offset();
        until("it can be read", || broker.ground.store().dispatched_offset() >= dispatched).await;
        let expected = [
            ("orders".to_owned(), Lost { delayed: 1, timers: 1, halves: 1 }),
            ("payments".to_owned(), Lost { delayed: 0, timers: 1, halves: 0 }),
        ];
        let Desk { delays, timers, transactions, .. } = &**broker;
        let waiting = Waiting { store: broker.ground.store(), delays, timers, transactions };
        assert_eq!(in_file(waiting, &(PhysicalOffset::ZERO..end)), expected.into());
    }
}
