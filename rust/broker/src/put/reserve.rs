//! Room that a client's message leaves for its later copies.
//!
//! A retry, a dead letter, a delayed message and a committed one are copies with more properties. A copy that does not fit a record would
//! be rejected for ever: its group would stop at the message, or its transaction would stay open.

use rocketpy_model::name::DERIVED_TOPIC_MAX_BYTES;
use rocketpy_model::{dead_letter, property};
use rocketpy_protocol::properties_text::{self, MAX_BYTES, MAX_SENT_BYTES, RESERVED_BYTES};
use rocketpy_protocol::record::CRC_PROPERTY_BYTES;

use crate::refusal::Refusal;

/// Bytes of a record that are neither body nor properties: the fixed fields with two IPv6 hosts, the longest topic, and the head of
/// the blank that ends a file.
const FRAME_BYTES: usize = 128 + DERIVED_TOPIC_MAX_BYTES;

const TOPIC: usize = DERIVED_TOPIC_MAX_BYTES;
/// An offset message id with an IPv6 address.
const MESSAGE_ID: usize = 56;
const NUMBER: usize = 20;
/// Properties that copies get from the broker, or from the client that sends the copy, with the maximum length of each value. Together they
/// fit [`RESERVED_BYTES`].
const ADDED: [(&str, usize); 23] = [
    (property::DELAY, 10),
    (property::RETRY_TOPIC, TOPIC),
    (property::ORIGIN_MESSAGE_ID, MESSAGE_ID),
    (property::DLQ_ORIGIN_TOPIC, TOPIC),
    (property::DLQ_ORIGIN_MESSAGE_ID, MESSAGE_ID),
    (property::DLQ_REASON, 32),
    (property::DLQ_ERROR, dead_letter::MAX_ERROR_BYTES),
    (property::REAL_TOPIC, TOPIC),
    (property::REAL_QUEUE_ID, NUMBER),
    (property::TIMER_DELIVER_MS, NUMBER),
    (property::TIMER_OUT_MS, NUMBER),
    (property::TIMER_ENQUEUE_MS, NUMBER),
    (property::TIMER_DEQUEUE_MS, NUMBER),
    (property::TIMER_ROLL_TIMES, NUMBER),
    (property::MIN_OFFSET, NUMBER),
    (property::MAX_OFFSET, NUMBER),
    (property::CONSUME_START_TIME, NUMBER),
    (property::RECONSUME_TIME, NUMBER),
    (property::MAX_RECONSUME_TIMES, NUMBER),
    (property::TRANSACTION_CHECK_TIMES, NUMBER),
    (property::TRAN_PREPARED_QUEUE_OFFSET, NUMBER),
    (property::ORIGIN_TOPIC, TOPIC),
    (property::CRC32, CRC_PROPERTY_BYTES),
];

/// Checks the length of a text before it is parsed: what parsing notes takes several times the memory of the text.
///
/// # Errors
/// No record can have so many bytes of properties.
pub(super) fn check_length(text: &[u8]) -> Result<(), Refusal> {
    match text.len() <= MAX_BYTES {
        true => Ok(()),
        false => Err(Refusal::NoRoomForCopies { size_bytes: text.len() }),
    }
}

/// Checks that each later copy of a client's message can be stored. `more_bytes` are those of properties that its half message adds.
///
/// A copy that a client sends, such as a retry, carries properties of [`ADDED`] already: they do not count.
///
/// # Errors
/// The properties leave too little room.
pub(super) fn check(text: &[u8], more_bytes: usize) -> Result<(), Refusal> {
    if text.len() + more_bytes <= MAX_SENT_BYTES {
        return Ok(());
    }
    let size_bytes = text.len() - added_bytes(text) + more_bytes;
    if size_bytes > MAX_SENT_BYTES || text.len() > MAX_BYTES {
        return Err(Refusal::NoRoomForCopies { size_bytes });
    }
    Ok(())
}

/// Checks that each later copy of a client's message fits a file of the commit log.
///
/// # Errors
/// It does not.
pub(super) fn check_file(body: &[u8], properties: &[u8], file_bytes: u64) -> Result<(), Refusal> {
    let size_bytes = body.len() + properties.len();
    match (size_bytes + RESERVED_BYTES + FRAME_BYTES) as u64 <= file_bytes {
        true => Ok(()),
        false => Err(Refusal::LongerThanFile { size_bytes, file_bytes }),
    }
}

/// Bytes of properties that the next copy replaces by its own: the first one of each name.
fn added_bytes(text: &[u8]) -> usize {
    let (mut seen, mut bytes) = (0_u32, 0);
    for (name, value) in properties_text::iter_bytes(text) {
        let found = ADDED.iter().position(|(added, _)| added.as_bytes() == name);
        let Some(at) = found.filter(|at| seen & (1 << at) == 0 && value.len() <= ADDED[*at].1) else {
            continue;
        };
        seen |= 1 << at;
        bytes += name.len() + value.len() + 2;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserve_holds_all_properties_of_copies() {
        let bytes: usize = ADDED.iter().map(|(name, value)| name.len() + value + 2).sum();
        assert!(bytes <= RESERVED_BYTES, "{bytes}");
    }

    #[test]
    fn only_properties_that_a_copy_replaces_are_not_counted() {
        let own = |bytes: usize| format!("a\u{1}{}\u{2}", "x".repeat(bytes - 3));
        let copied = format!("RETRY_TOPIC\u{1}orders\u{2}DELAY\u{1}3\u{2}{}", own(MAX_SENT_BYTES));
        check(copied.as_bytes(), 0).unwrap();
        for text in [
            own(MAX_SENT_BYTES + 1),
            format!("DELAY\u{1}3\u{2}DELAY\u{1}3\u{2}{}", own(MAX_SENT_BYTES)),
            format!("RETRY_TOPIC\u{1}{}\u{2}", "t".repeat(MAX_SENT_BYTES)),
        ] {
            assert!(check(text.as_bytes(), 0).is_err(), "{} bytes", text.len());
        }
        assert!(check(own(MAX_SENT_BYTES).as_bytes(), 1).is_err());
    }
}
