//! Parser of a message's properties, one pass: requested features and known places. [`super::stored_properties`] writes the stored text.
//!
//! # Source
//! docs/reference/protocol.md 2.3.1 (rules 5 to 7) and 4.4.

use std::ops::Range;

use rocketpy_model::{property, sys_flag};
use rocketpy_protocol::properties_text;
use rocketpy_store::DelayLevels;

use super::message::{Delay, Origin};
use crate::refusal::Refusal;

/// Names of properties that a record may leave out, as a set.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Names(u16);

impl Names {
    /// Malformed pieces between pairs.
    pub(super) const NO_PAIR: Self = Self(1);
    /// Properties that only the broker may set, but for the checksum.
    pub(super) const OF_BROKER: Self = Self(1 << 1);
    pub(super) const CRC: Self = Self(1 << 2);
    pub(super) const DELAY: Self = Self(1 << 3);
    /// Topic and queue that a waiting message is for.
    pub(super) const REAL: Self = Self(1 << 4);
    pub(super) const TIMER_DELAY: Self = Self(1 << 5);
    pub(super) const TIMER_DELIVER: Self = Self(1 << 6);
    pub(super) const TIMER_OUT: Self = Self(1 << 7);
    pub(super) const TRANSACTION_ID: Self = Self(1 << 8);

    pub(super) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) const fn has_any(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// The properties text of a message, read once: what it asks for, and the places of what its record may leave out.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ParsedProperties<'a> {
    pub(super) text: &'a [u8],
    pub(super) unique_key: Option<&'a str>,
    pub(super) producer_group: Option<&'a str>,
    /// Time without questions to the producer of a transaction.
    pub(super) immunity_seconds: Option<u64>,
    /// The sender wants its answer before the flush (`WAIT=false`).
    pub(super) answer_before_flush: bool,
    /// What the properties ask for beyond being stored; of several wishes the greatest.
    pub(super) feature: Option<Feature>,
    /// Of those wishes the greatest that is about time.
    pub(super) wait: Option<Feature>,
    /// It has waited for its time already.
    has_waited: bool,
    /// The message recalls another one.
    pub(super) recalls: bool,
    /// The sender chose its queue by a key, for the order of its messages.
    pub(super) is_ordered: bool,
    /// The names in the text that a record may leave out, and their places in the order of the text.
    pub(super) found: Names,
    pub(super) places: Vec<(Names, Range<usize>)>,
    /// Those that a client's message loses.
    pub(super) not_of_client: Names,
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

/// Reads the properties text, once for everything that is asked of it.
///
/// Delay properties count while the message has not waited yet, `TRAN_MSG` in a message that a client sends.
pub(super) fn parse(text: &[u8], origin: Origin, delay: Delay) -> ParsedProperties<'_> {
    let mut parsed = ParsedProperties { text, ..ParsedProperties::default() };
    parsed.not_of_client = Names::OF_BROKER.and(Names::CRC);
    if delay == Delay::Dropped {
        parsed.not_of_client = parsed.not_of_client.and(Names::DELAY);
    }
    let (mut pairs, mut end) = (properties_text::iter_bytes(text), 0);
    while let Some((name, value)) = pairs.next() {
        let place = pairs.place();
        parsed.note_place(Names::NO_PAIR, end..place.start);
        end = place.end;
        let (names, feature) = parsed.read(name, value, delay);
        parsed.note_place(names, place);
        let counts = match feature {
            None => false,
            Some(Feature::Timer(_) | Feature::Level(_)) => delay != Delay::Over,
            Some(Feature::Transaction) => origin == Origin::Client,
        };
        if counts {
            parsed.feature = parsed.feature.max(feature);
            if feature != Some(Feature::Transaction) {
                parsed.wait = parsed.wait.max(feature);
            }
        }
    }
    parsed.note_place(Names::NO_PAIR, end..text.len());
    if parsed.has_waited {
        let is_timer = |feature: &Feature| matches!(feature, Feature::Timer(_));
        parsed.feature = parsed.feature.filter(|feature| !is_timer(feature));
        parsed.wait = parsed.wait.filter(|feature| !is_timer(feature));
    }
    parsed
}

impl<'a> ParsedProperties<'a> {
    #[inline]
    fn note_place(&mut self, names: Names, place: Range<usize>) {
        if names != Names::default() && !place.is_empty() {
            self.found = self.found.and(names);
            self.places.push((names, place));
        }
    }

    /// Reads one pair. Returns the set that its name belongs to, and what it asks for.
    #[inline]
    fn read(&mut self, name: &[u8], value: &'a [u8], delay: Delay) -> (Names, Option<Feature>) {
        let timer = |kind| Some(Feature::Timer(Timer::new(kind, value)));
        match name {
            b"UNIQ_KEY" => self.unique_key = str::from_utf8(value).ok(),
            b"PGROUP" => self.producer_group = str::from_utf8(value).ok(),
            b"WAIT" => self.answer_before_flush = value.eq_ignore_ascii_case(b"false"),
            b"CHECK_IMMUNITY_TIME_IN_SECONDS" => {
                self.immunity_seconds = str::from_utf8(value).ok().and_then(|text| text.trim().parse().ok());
            }
            b"TIMER_DEL_UNIQKEY" => self.recalls = true,
            b"__SHARDINGKEY" => self.is_ordered = true,
            b"MSG_REGION" | b"TRACE_ON" | b"CLUSTER" | b"POP_CK" => return (Names::OF_BROKER, None),
            b"__CRC32#" => return (Names::CRC, None),
            b"DELAY" if delay == Delay::Dropped => return (Names::DELAY, None),
            b"DELAY" => {
                let level = Some(level(value)).filter(|level| *level != Some(0));
                return (Names::DELAY, level.map(Feature::Level));
            }
            b"TIMER_DELAY_SEC" => return (Names::TIMER_DELAY, timer(TimerKind::AfterSeconds)),
            b"TIMER_DELAY_MS" => return (Names::TIMER_DELAY, timer(TimerKind::AfterMs)),
            b"TIMER_DELIVER_MS" => return (Names::TIMER_DELIVER, timer(TimerKind::AtMs)),
            b"TIMER_OUT_MS" => {
                self.has_waited = true;
                return (Names::TIMER_OUT, None);
            }
            b"REAL_TOPIC" | b"REAL_QID" => return (Names::REAL, None),
            b"__transactionId__" => return (Names::TRANSACTION_ID, None),
            b"TRAN_MSG" if value.eq_ignore_ascii_case(b"true") => {
                return (Names::default(), Some(Feature::Transaction));
            }
            _ => {}
        }
        (Names::default(), None)
    }
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

#[cfg(test)]
mod tests {
    use super::TimerKind::{AfterMs, AfterSeconds, AtMs};
    use super::*;

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
            let found = |origin, delay| parse(text.as_bytes(), origin, delay).feature;
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
}
