//! The marks of half messages that are over.
//!
//! # Source
//! docs/reference/store-format.md 9.4.

use rocketpy_model::QueueOffset;

use super::RecordView;

/// The tag of a mark.
pub const MARK_TAG: &str = "d";

/// The half messages that a record of `RMQ_SYS_TRANS_OP_HALF_TOPIC` says are over; none if it is no mark.
pub fn marked_halves<'a>(record: &RecordView<'a>) -> impl Iterator<Item = QueueOffset> + use<'a> {
    let body = if record.tag() == Some(MARK_TAG) { record.body } else { &[] };
    let text = str::from_utf8(body).unwrap_or_default();
    text.split(',').filter_map(|number| number.trim().parse().ok()).map(QueueOffset)
}
