//! The properties that a record gets, written from the places that [`super::properties`] has found: the text is not read again.
//!
//! # Source
//! docs/reference/protocol.md 2.3.1 (rules 5 to 7) and 4.4.

use rocketpy_model::property;
use rocketpy_protocol::properties_text::{self, MAX_BYTES, RESERVED_BYTES};

use super::properties::{Feature, Names, ParsedProperties};
use super::reserve;
use crate::refusal::Refusal;
use crate::timer::pending::slot_of;

/// Properties of the delivered message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Own<'a> {
    pub(super) text: &'a [u8],
    /// Those that the broker adds, at the end of the text.
    added: &'a [u8],
    /// Those of the message that are left out.
    dropped: Names,
    /// Whether the text contains a `__CRC32#` property.
    pub(super) may_have_crc: bool,
}

impl<'a> ParsedProperties<'a> {
    /// Whether the text contains a `__CRC32#` property.
    pub(super) fn has_crc(&self) -> bool {
        self.found.has_any(Names::CRC)
    }

    /// The properties of a message that the broker stores: as they are.
    pub(super) fn as_they_are(&self) -> Own<'a> {
        Own { text: self.text, added: b"", dropped: Names::default(), may_have_crc: self.has_crc() }
    }

    /// Writes the properties of a client's message as they are stored: the client's own, a unique key where there is none, and
    /// the broker's.
    ///
    /// # Errors
    /// The text leaves no room for those of later copies.
    pub(super) fn of_client<'o>(
        &self,
        new_key: Option<&str>,
        suffix: &[u8],
        out: &'o mut Vec<u8>,
    ) -> Result<Own<'o>, Refusal> {
        out.clear();
        let is_changed = self.found.has_any(self.not_of_client);
        let dropped = if is_changed { self.not_of_client.and(Names::NO_PAIR) } else { Names::default() };
        self.copy_without(dropped, out);
        if out.last().is_some_and(|last| *last != property::PROPERTY_SEPARATOR) {
            out.push(property::PROPERTY_SEPARATOR);
        }
        let added_at = out.len();
        if let Some(key) = new_key {
            properties_text::push(out, property::UNIQUE_KEY, key);
        }
        out.extend_from_slice(suffix);
        let transaction_id = match self.feature {
            Some(Feature::Transaction) => self.unique_key.or(new_key),
            _ => None,
        };
        let half_bytes = transaction_id.map_or(0, |key| property::TRANSACTION_ID.len() + key.len() + 2);
        reserve::check(out, half_bytes)?;
        Ok(Own { text: out, added: &out[added_at..], dropped, may_have_crc: false })
    }

    /// Copies the text without some of its properties.
    fn copy_without(&self, dropped: Names, out: &mut Vec<u8>) {
        let mut from = 0;
        for (_, place) in self.places.iter().filter(|(names, _)| dropped.has_any(*names)) {
            out.extend_from_slice(&self.text[from..place.start]);
            from = place.end;
        }
        out.extend_from_slice(&self.text[from..]);
    }

    /// The properties of a message that waits, from those that it is delivered with: without some that it gets anew.
    fn without(&self, own: &Own<'_>, replaced: Names) -> Vec<u8> {
        let mut out = Vec::with_capacity(own.text.len() + RESERVED_BYTES);
        self.copy_without(own.dropped.and(replaced).and(Names::NO_PAIR), &mut out);
        if out.last().is_some_and(|last| *last != property::PROPERTY_SEPARATOR) && !own.added.is_empty() {
            out.push(property::PROPERTY_SEPARATOR);
        }
        out.extend_from_slice(own.added);
        out
    }

    /// Writes the properties of a message that waits for a delay level.
    ///
    /// # Errors
    /// The text does not fit a record.
    ///
    /// # Source
    /// docs/reference/store-format.md 8.2.
    pub(super) fn delayed(
        &self,
        own: &Own<'_>,
        level: u32,
        topic: &str,
        queue_id: u32,
    ) -> Result<Vec<u8>, Refusal> {
        let timers = Names::TIMER_DELAY.and(Names::TIMER_DELIVER);
        let mut out = self.without(own, Names::DELAY.and(Names::REAL).and(timers));
        properties_text::push(&mut out, property::DELAY, &level.to_string());
        end_waiting(out, topic, queue_id)
    }

    /// Writes the properties of a message that waits for its time.
    ///
    /// The time is in it as `TIMER_DELIVER_MS`, whatever the message asked by: it is the same after each further storing.
    ///
    /// # Errors
    /// The text does not fit a record.
    ///
    /// # Source
    /// docs/reference/store-format.md 8.4.
    pub(super) fn timed(
        &self,
        own: &Own<'_>,
        due_at_ms: i64,
        topic: &str,
        queue_id: u32,
    ) -> Result<Vec<u8>, Refusal> {
        let mut out = self.without(own, Names::REAL.and(Names::TIMER_OUT).and(Names::TIMER_DELIVER));
        properties_text::push(&mut out, property::TIMER_DELIVER_MS, &due_at_ms.to_string());
        properties_text::push(&mut out, property::TIMER_OUT_MS, &slot_of(due_at_ms).to_string());
        end_waiting(out, topic, queue_id)
    }

    /// Writes the properties of a half message. `new_key` is its unique key where the client gave none.
    ///
    /// # Errors
    /// The text does not fit a record.
    ///
    /// # Source
    /// docs/reference/store-format.md 9.2.
    pub(super) fn half(
        &self,
        own: &Own<'_>,
        new_key: Option<&str>,
        topic: &str,
        queue_id: u32,
    ) -> Result<Vec<u8>, Refusal> {
        let mut out = self.without(own, Names::REAL.and(Names::TRANSACTION_ID));
        if let Some(key) = self.unique_key.or(new_key) {
            properties_text::push_bytes(&mut out, property::TRANSACTION_ID.as_bytes(), key.as_bytes());
        }
        end_waiting(out, topic, queue_id)
    }
}

/// Ends the properties of a message that waits with the topic and the queue that it is for.
fn end_waiting(mut text: Vec<u8>, topic: &str, queue_id: u32) -> Result<Vec<u8>, Refusal> {
    properties_text::push(&mut text, property::REAL_TOPIC, topic);
    properties_text::push(&mut text, property::REAL_QUEUE_ID, &queue_id.to_string());
    if text.len() > MAX_BYTES {
        return Err(Refusal::PropertiesTooLong { size_bytes: text.len(), limit_bytes: MAX_BYTES });
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::super::message::{Delay, Origin};
    use super::super::properties::{broker_suffix, parse};
    use super::*;

    /// The properties of a message that a client sends.
    fn sent(text: &[u8]) -> ParsedProperties<'_> {
        parse(text, Origin::Client, Delay::Asked)
    }

    #[test]
    fn the_broker_sets_its_own_properties_once() {
        let suffix = broker_suffix("r", true, "c");
        let text = b"TAGS\x01a\x02CLUSTER\x01forged\x02POP_CK\x01x";
        let mut out = Vec::new();
        sent(text).of_client(Some("K"), &suffix, &mut out).unwrap();
        assert_eq!(
            out,
            b"TAGS\x01a\x02UNIQ_KEY\x01K\x02MSG_REGION\x01r\x02TRACE_ON\x01true\x02CLUSTER\x01c\x02"
        );

        let text = b"UNIQ_KEY\x01mine\x02WAIT\x01false";
        let parsed = sent(text);
        assert_eq!(parsed.unique_key, Some("mine"));
        assert!(parsed.answer_before_flush);
        parsed.of_client(None, &suffix, &mut out).unwrap();
        assert!(out.starts_with(b"UNIQ_KEY\x01mine\x02WAIT\x01false\x02MSG_REGION"));
    }

    #[test]
    fn a_dead_message_loses_its_delay_level_and_no_timer() {
        let text = b"a\x01b\x02DELAY\x013\x02";
        let parsed = parse(text, Origin::Client, Delay::Dropped);
        let mut out = Vec::new();
        parsed.of_client(None, b"", &mut out).unwrap();
        assert_eq!((parsed.feature, out.as_slice()), (None, b"a\x01b\x02".as_slice()));
        let timer = parse(b"TIMER_DELAY_MS\x011\x02", Origin::Client, Delay::Dropped);
        assert!(timer.feature.is_some());
    }

    #[test]
    fn properties_that_do_not_fit_with_the_brokers_own_are_refused() {
        let text = [b"a\x01".as_slice(), &vec![b'x'; MAX_BYTES - 10]].concat();
        let (suffix, mut out) = (broker_suffix("r", true, "c"), Vec::new());
        let refused = sent(&text).of_client(None, &suffix, &mut out);
        assert!(matches!(refused, Err(Refusal::NoRoomForCopies { .. })));
    }

    /// The pairs of a text but for some names, as a text.
    fn pairs_without(text: &[u8], dropped: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        for (name, value) in properties_text::iter_bytes(text).filter(|(name, _)| !dropped.contains(name)) {
            properties_text::push_bytes(&mut out, name, value);
        }
        out
    }

    #[test]
    fn properties_of_a_waiting_message_lose_what_it_gets_anew_wherever_it_is() {
        let pieces: [&[u8]; 12] = [
            b"a\x01b",
            b"DELAY\x013",
            b"REAL_TOPIC\x01t",
            b"REAL_QID\x014",
            b"TIMER_DELAY_MS\x015",
            b"TIMER_DELIVER_MS\x016",
            b"TIMER_OUT_MS\x017",
            b"__transactionId__\x01x",
            b"CLUSTER\x01c",
            b"no pair",
            b"",
            b"UNIQ_KEY\x01u",
        ];
        for seed in 0..12 * 12 * 12 {
            let chosen = [seed % 12, seed / 12 % 12, seed / 144, 0];
            let mut text = chosen.map(|at| pieces[at]).join(&2);
            text.truncate(text.len() - seed % 2);
            let (parsed, mut out) = (sent(&text), Vec::new());
            let new_key = parsed.unique_key.is_none().then_some("K");
            let own = parsed.of_client(new_key, b"CLUSTER\x01r\x02", &mut out).unwrap();
            let stored = own.text.to_vec();
            let place = b"REAL_TOPIC\x01q\x02REAL_QID\x019\x02";
            let expected =
                |dropped: &[&[u8]], added: &[u8]| [&pairs_without(&stored, dropped), added, place].concat();
            let of_level: [&[u8]; 6] = [
                b"DELAY",
                b"REAL_TOPIC",
                b"REAL_QID",
                b"TIMER_DELAY_SEC",
                b"TIMER_DELAY_MS",
                b"TIMER_DELIVER_MS",
            ];
            let delayed = parsed.delayed(&own, 2, "q", 9).unwrap();
            assert_eq!(delayed, expected(&of_level, b"DELAY\x012\x02"), "{text:?}");
            let of_time: [&[u8]; 4] = [b"REAL_TOPIC", b"REAL_QID", b"TIMER_OUT_MS", b"TIMER_DELIVER_MS"];
            let timed = parsed.timed(&own, 5000, "q", 9).unwrap();
            assert_eq!(
                timed,
                expected(&of_time, b"TIMER_DELIVER_MS\x015000\x02TIMER_OUT_MS\x014000\x02"),
                "{text:?}"
            );
            let id = parsed.unique_key.unwrap_or("K");
            let half = parsed.half(&own, new_key, "q", 9).unwrap();
            let id = format!("__transactionId__\x01{id}\x02");
            assert_eq!(
                half,
                expected(&[b"REAL_TOPIC", b"REAL_QID", b"__transactionId__"], id.as_bytes()),
                "{text:?}"
            );
        }
    }
}
