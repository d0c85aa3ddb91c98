//! Facts about a record that dispatch needs.

use rocketpy_model::{PhysicalOffset, QueueOffset, system};
use rocketpy_protocol::record::RecordView;

use crate::delay::DelayTables;
use crate::index::Keys;

/// Instead of the uid of a queue: the record gets no entry.
pub(super) const NO_QUEUE: u64 = u64::MAX;

/// One record of the log as its consume queue sees it.
#[doc(alias = "DispatchRequest")]
#[derive(Debug)]
pub(super) struct Fact {
    /// The uid of the record's queue, or [`NO_QUEUE`].
    pub queue: u64,
    pub physical_offset: PhysicalOffset,
    pub size_bytes: u32,
    pub queue_offset: QueueOffset,
    pub tags_code: i64,
    pub stored_at_ms: i64,
}

/// The tags code of a record with these keys: the hash of its tag, 0 without one; for a message of the schedule topic the time of its
/// delivery.
///
/// # Source
/// docs/reference/store-format.md 2.8.
pub fn tags_code(view: &RecordView<'_>, keys: &Keys<'_>, delays: &DelayTables) -> i64 {
    if view.topic == system::SCHEDULE_TOPIC
        && let Some(level) = keys.delay_level()
        && level > 0
    {
        return view.stored_at_ms.saturating_add(delays.ms(level, view.physical_offset));
    }
    rocketpy_filter::tag_code(keys.tag())
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use rocketpy_protocol::record::RecordFields;

    use super::*;

    const T: i64 = 1_700_000_000_123;

    fn code(topic: &str, properties: &[u8]) -> i64 {
        let host = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let fields = RecordFields {
            topic,
            queue_id: 0,
            flag: 0,
            sys_flag: 0,
            born_at_ms: 0,
            born_host: host,
            store_host: host,
            reconsume_times: 0,
            prepared_transaction_offset: 0.into(),
            body: b"",
            properties,
            may_have_crc: true,
        };
        let mut bytes = Vec::new();
        fields.encode(false, &mut bytes).unwrap().finish(&mut bytes, 0.into(), 0.into(), T);
        let view = RecordView::parse(&bytes).unwrap();
        tags_code(&view, &Keys::of(view.properties), &DelayTables::default())
    }

    #[test]
    fn a_delayed_message_has_its_delivery_time_as_tag_code() {
        let delayed = code("SCHEDULE_TOPIC_XXXX", b"TAGS\x01a\x02DELAY\x013\x02");
        assert_eq!(delayed, T + 10_000);
        assert_eq!(delayed as u64, 0x0000_018b_cfe5_8f8b, "vector 15.2");
        assert_eq!(code("topicA", b"TAGS\x01TagA\x02DELAY\x013\x02"), 2_598_919);
        assert_eq!(code("SCHEDULE_TOPIC_XXXX", b"DELAY\x0199\x02"), T + 7_200_000);
        assert_eq!(code("SCHEDULE_TOPIC_XXXX", b"DELAY\x010\x02TAGS\x01TagA\x02"), 2_598_919);
    }
}
