//! Selects records of a store.

use rocketpy_model::{PhysicalOffset, QueueOffset, property};
use rocketpy_protocol::properties_text;
use rocketpy_protocol::record::RecordView;

/// The records to select. The default is all of them.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Only these topics; every topic when empty.
    pub topics: Vec<String>,
    /// Only these queues.
    pub queues: Option<Vec<u32>>,
    /// Only records at or behind this queue offset.
    pub queue_from: Option<QueueOffset>,
    /// Only records before this queue offset.
    pub queue_before: Option<QueueOffset>,
    /// Only records at or behind this physical offset.
    pub physical_from: Option<PhysicalOffset>,
    /// Only records before this physical offset.
    pub physical_before: Option<PhysicalOffset>,
    /// Only records stored at or after this time, in milliseconds since 1970.
    pub stored_from_ms: Option<i64>,
    /// Only records stored before this time, in milliseconds since 1970.
    pub stored_before_ms: Option<i64>,
    /// Only records with this key, or this unique key.
    pub key: Option<String>,
    /// Looks for the key in all of the log. Otherwise the index finds it in the named topics, deleted ones too, or else in those
    /// that have queues, if the index is known to be complete; only what it does not cover is read.
    pub scans_log: bool,
    /// Skips damaged records and counts them. Otherwise the first one ends the selection with an error.
    pub skips_damage: bool,
    /// Does not compare the checksums of records.
    pub trusts_checksums: bool,
    /// Behind the records of named topics also those that wait for them: for a delay level, their time, or the end of their transaction.
    /// A transfer stores what waits as what waits.
    pub takes_waiting: bool,
}

impl Selection {
    pub(crate) fn wants(&self, view: &RecordView<'_>) -> bool {
        (self.topics.is_empty() || self.topics.iter().any(|topic| topic == view.topic))
            && self.queues.as_ref().is_none_or(|queues| queues.contains(&view.queue_id))
            && within(view.queue_offset, self.queue_from, self.queue_before)
            && within(view.physical_offset, self.physical_from, self.physical_before)
            && self.stored_from_ms.is_none_or(|from| view.stored_at_ms >= from)
            && self.stored_before_ms.is_none_or(|before| view.stored_at_ms < before)
            && self.key.as_ref().is_none_or(|key| has_key(view, key))
    }
}

fn within<T: PartialOrd>(value: T, from: Option<T>, before: Option<T>) -> bool {
    from.is_none_or(|from| value >= from) && before.is_none_or(|before| value < before)
}

/// Whether a text is one of a record's keys or its unique key.
fn has_key(view: &RecordView<'_>, key: &str) -> bool {
    let value = |name| properties_text::get_bytes(view.properties, name).unwrap_or_default();
    let is_unique_key = !key.is_empty() && value(property::UNIQUE_KEY) == key.as_bytes();
    is_unique_key || property::split_key_bytes(value(property::KEYS)).any(|item| item == key.as_bytes())
}
