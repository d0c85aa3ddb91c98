//! The properties text of a message: what it asks for, and what is stored of it.
//!
//! # Source
//! docs/reference/protocol.md 2.3.1 (rules 5 to 7) and 4.4.

use rocketpy_model::{property, sys_flag};
use rocketpy_protocol::properties_text::{self, MAX_BYTES};
use rocketpy_store::DelayLevels;

use super::message::{Delay, Origin};
use super::reserve;
use crate::refusal::Refusal;
use crate::timer::pending::slot_of;

/// Facts about the properties of a message, found in one pass.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PropertyFacts<'a> {
    pub(super) unique_key: Option<&'a str>,
    /// The sender wants its answer before the flush (`WAIT=false`).
    pub(super) answer_before_flush: bool,
    /// What the properties ask for beyond being stored; of several wishes the greatest.
    pub(super) feature: Option<Feature>,
    /// Of those wishes the greatest that is about time.
    pub(super) wait: Option<Feature>,
    /// The text has a property that only the broker may set.
    has_broker_property: bool,
    /// The delay level is taken out.
    drops_delay: bool,
    /// It has waited for its time already.
    has_waited: bool,
    /// The message recalls another one.
    pub(super) recalls: bool,
}

/// What a message asks for beyond being stored: it must not be stored as a plain message.
///
/// A greater one wins where a message asks for several: a delay level counts and a timer next to it does not.
///
/// # Source
/// docs/reference/protocol.md 2.3.13.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Feature {
    /// Delivery at a time that is not a delay level's.
    Timer(Timer),
    /// Delivery after a delay level, from 1 on; `None`: the property holds no number.
    Level(Option<u32>),
    /// Delivery after a commit (`TRAN_MSG`).
    Transaction,
}

/// The time that a message is to be delivered at. Of several the greatest kind counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Timer {
    kind: TimerKind,
    /// `None`: the property holds no number, or one below 0.
    number: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum TimerKind {
    /// At a time in Unix milliseconds.
    AtMs,
    AfterMs,
    AfterSeconds,
}

impl Timer {
    fn new(kind: TimerKind, value: &[u8]) -> Self {
        let number = str::from_utf8(value).ok().and_then(|text| text.trim().parse().ok());
        Self { kind, number: number.filter(|number| *number >= 0) }
    }

    /// When the message is due, in Unix milliseconds.
    ///
    /// # Errors
    /// The property holds no time.
    pub(super) fn due_at_ms(self, now_ms: i64) -> Result<i64, Refusal> {
        let due_at_ms = self.number.and_then(|number| match self.kind {
            TimerKind::AtMs => Some(number),
            TimerKind::AfterMs => now_ms.checked_add(number),
            TimerKind::AfterSeconds => number.checked_mul(1000).and_then(|after| now_ms.checked_add(after)),
        });
        due_at_ms.ok_or(Refusal::NoTime { property: self.property() })
    }

    /// Whether it says a time of the clock, not a delay.
    pub(super) fn names_time(self) -> bool {
        self.kind == TimerKind::AtMs
    }

    pub(super) fn property(self) -> &'static str {
        match self.kind {
            TimerKind::AtMs => property::TIMER_DELIVER_MS,
            TimerKind::AfterMs => property::TIMER_DELAY_MS,
            TimerKind::AfterSeconds => property::TIMER_DELAY_SEC,
        }
    }
}

/// Reads the properties text.
///
/// Delay properties count while the message has not waited yet, `TRAN_MSG` in a message that a client sends.
pub(super) fn inspect(text: &[u8], origin: Origin, delay: Delay) -> PropertyFacts<'_> {
    let mut facts = PropertyFacts::default();
    for (name, value) in properties_text::iter_bytes(text) {
        let feature = match name {
            b"UNIQ_KEY" => {
                facts.unique_key = str::from_utf8(value).ok();
                continue;
            }
            b"WAIT" => {
                facts.answer_before_flush = value.eq_ignore_ascii_case(b"false");
                continue;
            }
            b"MSG_REGION" | b"TRACE_ON" | b"CLUSTER" | b"POP_CK" | b"__CRC32#" => {
                facts.has_broker_property = true;
                continue;
            }
            b"DELAY" if delay == Delay::Dropped => {
                facts.drops_delay = true;
                continue;
            }
            b"DELAY" => match level(value) {
                Some(0) => continue,
                level => Feature::Level(level),
            },
            b"TIMER_DELAY_SEC" => Feature::Timer(Timer::new(TimerKind::AfterSeconds, value)),
            b"TIMER_DELAY_MS" => Feature::Timer(Timer::new(TimerKind::AfterMs, value)),
            b"TIMER_DELIVER_MS" => Feature::Timer(Timer::new(TimerKind::AtMs, value)),
            b"TIMER_OUT_MS" => {
                facts.has_waited = true;
                continue;
            }
            b"TIMER_DEL_UNIQKEY" => {
                facts.recalls = true;
                continue;
            }
            b"TRAN_MSG" if value.eq_ignore_ascii_case(b"true") => Feature::Transaction,
            _ => continue,
        };
        let counts = match feature {
            Feature::Timer(_) | Feature::Level(_) => delay != Delay::Over,
            Feature::Transaction => origin == Origin::Client,
        };
        if counts {
            facts.feature = facts.feature.max(Some(feature));
            if feature != Feature::Transaction {
                facts.wait = facts.wait.max(Some(feature));
            }
        }
    }
    if facts.has_waited {
        let is_timer = |feature: &Feature| matches!(feature, Feature::Timer(_));
        facts.feature = facts.feature.filter(|feature| !is_timer(feature));
        facts.wait = facts.wait.filter(|feature| !is_timer(feature));
    }
    facts
}

/// The delay level: 0 for none, the last one that there can be for any above it; `None` for what is not a number.
fn level(value: &[u8]) -> Option<u32> {
    let level: i64 = str::from_utf8(value).ok()?.trim().parse().ok()?;
    Some(level.clamp(0, DelayLevels::MAX_COUNT.into()) as u32)
}

/// # Errors
/// The flags of a client's message ask for an inner batch, or mark a transaction that its properties do not ask for.
pub(super) fn check_sys_flag(flags: i32, feature: Option<Feature>) -> Result<(), Refusal> {
    if sys_flag::transaction(flags) != 0 && feature != Some(Feature::Transaction) {
        return Err(Refusal::TransactionFlag { sys_flag: flags });
    }
    if flags & (sys_flag::INNER_BATCH | sys_flag::NEED_UNWRAP) != 0 {
        return Err(Refusal::InnerBatch { sys_flag: flags });
    }
    Ok(())
}

/// The properties that the broker adds to every message, as text.
///
/// # Source
/// docs/reference/protocol.md 2.3.1 rule 5.
pub(crate) fn broker_suffix(region_id: &str, trace_on: bool, cluster_name: &str) -> Vec<u8> {
    let mut suffix = Vec::new();
    properties_text::push(&mut suffix, property::MSG_REGION, region_id);
    properties_text::push(&mut suffix, property::TRACE_ON, if trace_on { "true" } else { "false" });
    properties_text::push(&mut suffix, property::CLUSTER, cluster_name);
    suffix
}

/// Writes the properties of a message that waits for a delay level, from those that it is delivered with.
///
/// # Errors
/// The text does not fit a record.
///
/// # Source
/// docs/reference/store-format.md 8.2.
pub(super) fn waiting(text: &[u8], level: u32, topic: &str, queue_id: u32) -> Result<Vec<u8>, Refusal> {
    let mut out = Vec::with_capacity(text.len() + topic.len() + 64);
    for (name, value) in properties_text::iter_bytes(text) {
        let is_replaced = matches!(
            name,
            b"DELAY"
                | b"REAL_TOPIC"
                | b"REAL_QID"
                | b"TIMER_DELAY_SEC"
                | b"TIMER_DELAY_MS"
                | b"TIMER_DELIVER_MS"
        );
        if !is_replaced {
            properties_text::push_bytes(&mut out, name, value);
        }
    }
    properties_text::push(&mut out, property::DELAY, &level.to_string());
    properties_text::push(&mut out, property::REAL_TOPIC, topic);
    properties_text::push(&mut out, property::REAL_QUEUE_ID, &queue_id.to_string());
    check_length(&out)?;
    Ok(out)
}

/// Writes the properties of a message that waits for its time, from those that it is delivered with.
///
/// The time is in it as `TIMER_DELIVER_MS`, whatever the message asked by: it is the same after each further storing.
///
/// # Errors
/// The text does not fit a record.
///
/// # Source
/// docs/reference/store-format.md 8.4.
pub(super) fn timed(text: &[u8], due_at_ms: i64, topic: &str, queue_id: u32) -> Result<Vec<u8>, Refusal> {
    let mut out = Vec::with_capacity(text.len() + topic.len() + 96);
    for (name, value) in properties_text::iter_bytes(text) {
        if !matches!(name, b"REAL_TOPIC" | b"REAL_QID" | b"TIMER_OUT_MS" | b"TIMER_DELIVER_MS") {
            properties_text::push_bytes(&mut out, name, value);
        }
    }
    properties_text::push(&mut out, property::TIMER_DELIVER_MS, &due_at_ms.to_string());
    properties_text::push(&mut out, property::TIMER_OUT_MS, &slot_of(due_at_ms).to_string());
    properties_text::push(&mut out, property::REAL_TOPIC, topic);
    properties_text::push(&mut out, property::REAL_QUEUE_ID, &queue_id.to_string());
    check_length(&out)?;
    Ok(out)
}

/// Writes the properties of a half message, from those that its message is delivered with.
///
/// # Errors
/// The text does not fit a record.
///
/// # Source
/// docs/reference/store-format.md 9.2.
pub(super) fn half(text: &[u8], topic: &str, queue_id: u32) -> Result<Vec<u8>, Refusal> {
    let mut out = Vec::with_capacity(text.len() + topic.len() + 64);
    let mut unique_key = None;
    for (name, value) in properties_text::iter_bytes(text) {
        match name {
            b"REAL_TOPIC" | b"REAL_QID" | b"__transactionId__" => continue,
            b"UNIQ_KEY" => unique_key = Some(value),
            _ => {}
        }
        properties_text::push_bytes(&mut out, name, value);
    }
    if let Some(key) = unique_key {
        properties_text::push_bytes(&mut out, property::TRANSACTION_ID.as_bytes(), key);
    }
    properties_text::push(&mut out, property::REAL_TOPIC, topic);
    properties_text::push(&mut out, property::REAL_QUEUE_ID, &queue_id.to_string());
    check_length(&out)?;
    Ok(out)
}

fn check_length(text: &[u8]) -> Result<(), Refusal> {
    if text.len() > MAX_BYTES {
        return Err(Refusal::PropertiesTooLong { size_bytes: text.len(), limit_bytes: MAX_BYTES });
    }
    Ok(())
}

/// Writes the properties of a client's message as they are stored: the client's own, a unique key where there is none, and
/// the broker's.
///
/// # Errors
/// The text leaves no room for those of later copies.
pub(super) fn stored(
    text: &[u8],
    facts: &PropertyFacts<'_>,
    new_key: Option<&str>,
    suffix: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), Refusal> {
    out.clear();
    if facts.has_broker_property || facts.drops_delay {
        copy_without_broker_properties(text, facts.drops_delay, out);
    } else {
        out.extend_from_slice(text);
    }
    if out.last().is_some_and(|last| *last != property::PROPERTY_SEPARATOR) {
        out.push(property::PROPERTY_SEPARATOR);
    }
    if let Some(key) = new_key {
        properties_text::push(out, property::UNIQUE_KEY, key);
    }
    out.extend_from_slice(suffix);
    let transaction_id = match facts.feature {
        Some(Feature::Transaction) => facts.unique_key.or(new_key),
        _ => None,
    };
    let half_bytes = transaction_id.map_or(0, |key| property::TRANSACTION_ID.len() + key.len() + 2);
    reserve::check(out, half_bytes)
}

fn copy_without_broker_properties(text: &[u8], drops_delay: bool, out: &mut Vec<u8>) {
    for (name, value) in properties_text::iter_bytes(text) {
        let is_dropped = match name {
            b"MSG_REGION" | b"TRACE_ON" | b"CLUSTER" | b"POP_CK" | b"__CRC32#" => true,
            b"DELAY" => drops_delay,
            _ => false,
        };
        if !is_dropped {
            properties_text::push_bytes(out, name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::TimerKind::{AfterMs, AfterSeconds, AtMs};
    use super::*;

    /// The facts of a message that a client sends.
    fn sent(text: &[u8]) -> PropertyFacts<'_> {
        inspect(text, Origin::Client, Delay::Asked)
    }

    #[test]
    fn a_time_is_counted_from_now_or_absolute() {
        let due = |kind, text: &[u8]| Timer::new(kind, text).due_at_ms(1000).ok();
        assert_eq!(due(AtMs, b"5"), Some(5));
        assert_eq!(due(AfterMs, b" 5 "), Some(1005));
        assert_eq!(due(AfterSeconds, b"5"), Some(6000));
        for (kind, text) in [
            (AtMs, "-5"),
            (AfterMs, "soon"),
            (AfterMs, &i64::MAX.to_string()),
            (AfterSeconds, &(i64::MAX / 2).to_string()),
        ] {
            assert_eq!(due(kind, text.as_bytes()), None, "{kind:?} {text}");
        }
    }

    #[test]
    fn the_greatest_feature_counts_and_only_while_it_is_asked_for() {
        let timer = |kind, number| Some(Feature::Timer(Timer { kind, number }));
        let level = |level| Some(Feature::Level(Some(level)));
        let no_level = Some(Feature::Level(None));
        let transaction = Some(Feature::Transaction);
        for (text, feature, after_the_delay, of_the_broker) in [
            ("DELAY\u{1}3\u{2}", level(3), None, level(3)),
            ("DELAY\u{1}99\u{2}", level(64), None, level(64)),
            ("TIMER_DELAY_MS\u{1}1\u{2}DELAY\u{1}3\u{2}", level(3), None, level(3)),
            ("DELAY\u{1}-1\u{2}", None, None, None),
            ("a\u{1}b\u{2}DELAY\u{1}soon", no_level, None, no_level),
            ("TIMER_DELAY_SEC\u{1}1\u{2}", timer(AfterSeconds, Some(1)), None, timer(AfterSeconds, Some(1))),
            ("TIMER_DELAY_MS\u{1}-1\u{2}", timer(AfterMs, None), None, timer(AfterMs, None)),
            (
                "TIMER_DELIVER_MS\u{1}x\u{2}TIMER_DELAY_MS\u{1}7\u{2}",
                timer(AfterMs, Some(7)),
                None,
                timer(AfterMs, Some(7)),
            ),
            ("TIMER_DELIVER_MS\u{1}1\u{2}TIMER_OUT_MS\u{1}0\u{2}", None, None, None),
            ("TIMER_OUT_MS\u{1}0\u{2}DELAY\u{1}3\u{2}", level(3), None, level(3)),
            ("TRAN_MSG\u{1}True\u{2}", transaction, transaction, None),
            ("TRAN_MSG\u{1}true\u{2}DELAY\u{1}3\u{2}", transaction, transaction, level(3)),
            ("DELAY\u{1}3\u{2}TRAN_MSG\u{1}true\u{2}", transaction, transaction, level(3)),
            ("DELAY\u{1}0\u{2}TRAN_MSG\u{1}false\u{2}", None, None, None),
        ] {
            let found = |origin, delay| inspect(text.as_bytes(), origin, delay).feature;
            assert_eq!(found(Origin::Client, Delay::Asked), feature, "{text:?}");
            assert_eq!(found(Origin::Client, Delay::Over), after_the_delay, "{text:?}, over");
            assert_eq!(found(Origin::Broker, Delay::Asked), of_the_broker, "{text:?}, of the broker");
        }
    }

    #[test]
    fn flags_of_a_transaction_or_an_inner_batch_are_refused() {
        for flags in [0x4, 0x8, 0xC, 0x40, 0x80] {
            assert!(check_sys_flag(flags, None).is_err(), "{flags:#x}");
        }
        assert!(check_sys_flag(0x301, None).is_ok());
        assert!(check_sys_flag(0x4, Some(Feature::Transaction)).is_ok());
    }

    #[test]
    fn the_broker_sets_its_own_properties_once() {
        let suffix = broker_suffix("r", true, "c");
        let text = b"TAGS\x01a\x02CLUSTER\x01forged\x02POP_CK\x01x";
        let mut out = Vec::new();
        stored(text, &sent(text), Some("K"), &suffix, &mut out).unwrap();
        assert_eq!(
            out,
            b"TAGS\x01a\x02UNIQ_KEY\x01K\x02MSG_REGION\x01r\x02TRACE_ON\x01true\x02CLUSTER\x01c\x02"
        );

        let text = b"UNIQ_KEY\x01mine\x02WAIT\x01false";
        let facts = sent(text);
        assert_eq!(facts.unique_key, Some("mine"));
        assert!(facts.answer_before_flush);
        stored(text, &facts, None, &suffix, &mut out).unwrap();
        assert!(out.starts_with(b"UNIQ_KEY\x01mine\x02WAIT\x01false\x02MSG_REGION"));
    }

    #[test]
    fn a_dead_message_loses_its_delay_level_and_no_timer() {
        let text = b"a\x01b\x02DELAY\x013\x02";
        let facts = inspect(text, Origin::Client, Delay::Dropped);
        let mut out = Vec::new();
        stored(text, &facts, None, b"", &mut out).unwrap();
        assert_eq!((facts.feature, out.as_slice()), (None, b"a\x01b\x02".as_slice()));
        let timer = inspect(b"TIMER_DELAY_MS\x011\x02", Origin::Client, Delay::Dropped);
        assert!(timer.feature.is_some());
    }

    #[test]
    fn properties_that_do_not_fit_with_the_brokers_own_are_refused() {
        let text = [b"a\x01".as_slice(), &vec![b'x'; MAX_BYTES - 10]].concat();
        let refused = stored(&text, &sent(&text), None, &broker_suffix("r", true, "c"), &mut Vec::new());
        assert!(matches!(refused, Err(Refusal::NoRoomForCopies { .. })));
    }
}
