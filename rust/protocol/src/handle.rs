//! Texts that a broker gives to clients and gets back: pop check points, recall handles, and the bit sets of batch
//! acknowledgements. Only their form is here.
//!
//! # Source
//! docs/reference/protocol.md 2.5.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};

/// Why a text is not a valid handle. A retry does not help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid {kind}: {}", .text.chars().take(128).collect::<String>())]
pub struct HandleError {
    /// What kind of text it should be.
    pub kind: &'static str,
    /// The text.
    pub text: String,
}

/// Which form of a topic a popped message came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PopTopic {
    /// The topic itself.
    Normal,
    /// `%RETRY%group_topic`.
    RetryV1,
    /// `%RETRY%group+topic`.
    RetryV2,
}

/// Which popped range a message belongs to: the value of property `POP_CK`.
///
/// # Layout
/// Fields with one space between, in the order below; the last may be missing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[doc(alias = "ExtraInfoUtil")]
pub struct PopCheckPoint {
    /// First offset of the range that was popped.
    pub start_offset: i64,
    /// When it was popped.
    pub popped_at_ms: i64,
    /// For how long nobody else gets the message, in milliseconds.
    pub invisible_ms: i64,
    /// 999 marks an orderly pop.
    pub revive_queue_id: i32,
    /// Which topic the offset belongs to.
    pub topic: PopTopic,
    /// The broker.
    pub broker_name: String,
    /// The queue.
    pub queue_id: i32,
    /// Offset of the message; absent for the whole range.
    pub queue_offset: Option<i64>,
}

impl fmt::Display for PopCheckPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let topic = match self.topic {
            PopTopic::Normal => 0,
            PopTopic::RetryV1 => 1,
            PopTopic::RetryV2 => 2,
        };
        let (start, popped, invisible) = (self.start_offset, self.popped_at_ms, self.invisible_ms);
        let (revive, broker, queue) = (self.revive_queue_id, &self.broker_name, self.queue_id);
        write!(f, "{start} {popped} {invisible} {revive} {topic} {broker} {queue}")?;
        self.queue_offset.map_or(Ok(()), |offset| write!(f, " {offset}"))
    }
}

impl FromStr for PopCheckPoint {
    type Err = HandleError;

    fn from_str(text: &str) -> Result<Self, HandleError> {
        let parse = || {
            let mut parts = text.split(' ');
            let check_point = Self {
                start_offset: parts.next()?.parse().ok()?,
                popped_at_ms: parts.next()?.parse().ok()?,
                invisible_ms: parts.next()?.parse().ok()?,
                revive_queue_id: parts.next()?.parse().ok()?,
                topic: match parts.next()? {
                    "0" => PopTopic::Normal,
                    "1" => PopTopic::RetryV1,
                    "2" => PopTopic::RetryV2,
                    _ => return None,
                },
                broker_name: parts.next()?.to_owned(),
                queue_id: parts.next()?.parse().ok()?,
                queue_offset: match parts.next() {
                    Some(offset) => Some(offset.parse().ok()?),
                    None => None,
                },
            };
            parts.next().is_none().then_some(check_point)
        };
        parse().ok_or_else(|| HandleError { kind: "pop check point", text: text.to_owned() })
    }
}

/// Names a message that waits for its time, so that it can be called back.
///
/// # Layout
/// URL-safe Base64 of `v1 topic brokerName deliverAt uniqueKey`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[doc(alias = "RecallMessageHandle")]
pub struct RecallHandle {
    /// Topic of the message.
    pub topic: String,
    /// The broker that has it.
    pub broker_name: String,
    /// When it is due.
    pub deliver_at_ms: i64,
    /// Its unique key.
    pub unique_key: String,
}

impl fmt::Display for RecallHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (topic, broker, at, key) = (&self.topic, &self.broker_name, self.deliver_at_ms, &self.unique_key);
        f.write_str(&URL_SAFE.encode(format!("v1 {topic} {broker} {at} {key}")))
    }
}

impl FromStr for RecallHandle {
    type Err = HandleError;

    fn from_str(text: &str) -> Result<Self, HandleError> {
        let parse = || {
            let plain = String::from_utf8(URL_SAFE.decode(text).ok()?).ok()?;
            let parts: Vec<&str> = plain.split(' ').collect();
            let ["v1", topic, broker_name, deliver_at_ms, unique_key] = parts[..] else {
                return None;
            };
            Some(Self {
                topic: topic.to_owned(),
                broker_name: broker_name.to_owned(),
                deliver_at_ms: deliver_at_ms.parse().ok()?,
                unique_key: unique_key.to_owned(),
            })
        };
        parse().ok_or_else(|| HandleError { kind: "recall handle", text: text.to_owned() })
    }
}

/// A set of small numbers as JSON bodies carry it: Base64 of its bits, the lowest bit of the first byte for 0.
#[must_use]
pub fn encode_bit_set(numbers: &[u16]) -> String {
    let bytes = numbers.iter().max().map_or(0, |&most| usize::from(most) / 8 + 1);
    let mut bits = vec![0u8; bytes];
    for &number in numbers {
        bits[usize::from(number) / 8] |= 1 << (number % 8);
    }
    STANDARD.encode(bits)
}

/// Reads what [`encode_bit_set`] writes, in ascending order.
///
/// # Errors
/// When the text is not Base64 or has numbers above 65,535.
pub fn decode_bit_set(text: &str) -> Result<Vec<u16>, HandleError> {
    let bad = || HandleError { kind: "bit set", text: text.to_owned() };
    let bits = STANDARD.decode(text).map_err(|_| bad())?;
    let numbers = (0..bits.len() * 8).filter(|number| bits[number / 8] & (1 << (number % 8)) != 0);
    numbers.map(|number| u16::try_from(number).map_err(|_| bad())).collect()
}
