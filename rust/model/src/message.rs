//! A message to send.

use bytes::Bytes;

use crate::property::{
    DELAY, KEY_SEPARATOR, KEYS, SHARDING_KEY, TAGS, TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DELIVER_MS,
    split_keys,
};
use crate::{Properties, PropertyError};

/// A message as a user makes it, before it has a queue, an offset or a record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Message {
    /// The topic that it goes to.
    pub topic: String,
    /// What it carries.
    pub body: Bytes,
    /// The user's own number, carried and never interpreted.
    pub flag: i32,
    /// Its properties.
    pub properties: Properties,
    /// Whether it copies a stored message. Rules of new messages (body and tag) do not apply: the copy keeps what was stored.
    pub is_copy: bool,
}

/// When consumers get a message that is not for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Later {
    /// After the delay of a level of the broker's table, from 1 on; brokers take a number above the table for its last level.
    Level(u8),
    /// At a time, in milliseconds since 1970.
    AtMs(i64),
    /// After so many milliseconds.
    AfterMs(u64),
}

impl Message {
    /// Makes a message without tag, keys and other properties.
    pub fn new(topic: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self {
            topic: topic.into(),
            body: body.into(),
            flag: 0,
            properties: Properties::new(),
            is_copy: false,
        }
    }

    /// The tag by which consumers filter.
    #[must_use]
    pub fn tag(&self) -> Option<&str> {
        self.properties.get(TAGS)
    }

    /// Sets the tag.
    ///
    /// # Errors
    /// When the tag is empty or contains a separator.
    pub fn set_tag(&mut self, tag: impl AsRef<str>) -> Result<(), PropertyError> {
        self.properties.set(TAGS, tag)
    }

    /// The keys by which tools look the message up.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        split_keys(self.properties.get(KEYS).unwrap_or_default())
    }

    /// Sets the keys; a key with a space counts as several.
    ///
    /// # Errors
    /// When there is no key, or one contains a separator.
    pub fn set_keys<'a>(&mut self, keys: impl IntoIterator<Item = &'a str>) -> Result<(), PropertyError> {
        let joined = keys.into_iter().collect::<Vec<_>>().join(KEY_SEPARATOR);
        self.properties.set(KEYS, joined)
    }

    /// When it is delivered; `None` for now, or where the property is not a number.
    ///
    /// # Source
    /// docs/reference/protocol.md 2.3.13: a delay level counts before a timer.
    #[must_use]
    pub fn later(&self) -> Option<Later> {
        let number = |name| self.properties.get(name)?.trim().parse::<u64>().ok();
        if let Some(level) = number(DELAY).filter(|level| *level != 0) {
            return Some(Later::Level(u8::try_from(level).unwrap_or(u8::MAX)));
        }
        let after = number(TIMER_DELAY_SEC).map(|seconds| seconds.saturating_mul(1000));
        if let Some(after_ms) = after.or_else(|| number(TIMER_DELAY_MS)) {
            return Some(Later::AfterMs(after_ms));
        }
        number(TIMER_DELIVER_MS).and_then(|at_ms| i64::try_from(at_ms).ok()).map(Later::AtMs)
    }

    /// Sets when it is delivered, instead of what was set before.
    pub fn set_later(&mut self, later: Later) {
        for name in [DELAY, TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS] {
            self.properties.remove(name);
        }
        let (name, value) = match later {
            Later::Level(level) => (DELAY, level.to_string()),
            Later::AtMs(at_ms) => (TIMER_DELIVER_MS, at_ms.to_string()),
            Later::AfterMs(after_ms) => (TIMER_DELAY_MS, after_ms.to_string()),
        };
        self.properties.set(name, value).expect("a number has no separator");
    }

    /// Whether a property asks for a later delivery, with a number or not.
    #[must_use]
    pub fn asks_for_later(&self) -> bool {
        let asks = |(name, value): (&str, &str)| match name {
            DELAY => value.trim() != "0",
            TIMER_DELAY_SEC | TIMER_DELAY_MS | TIMER_DELIVER_MS => true,
            _ => false,
        };
        self.properties.iter().any(asks)
    }

    /// The key whose messages keep their order.
    #[must_use]
    pub fn order_key(&self) -> Option<&str> {
        self.properties.get(SHARDING_KEY)
    }

    /// Sets the key whose messages keep their order.
    ///
    /// # Errors
    /// When the key is empty or contains a separator.
    pub fn set_order_key(&mut self, key: impl AsRef<str>) -> Result<(), PropertyError> {
        self.properties.set(SHARDING_KEY, key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_and_keys_live_in_the_properties() {
        let mut message = Message::new("flights", "body");
        message.set_tag("UA").unwrap();
        message.set_keys(["N14228", "UA1545"]).unwrap();
        assert_eq!(message.tag(), Some("UA"));
        assert_eq!(message.keys().collect::<Vec<_>>(), ["N14228", "UA1545"]);
        assert_eq!(message.properties.get("KEYS"), Some("N14228 UA1545"));
        assert!(message.set_keys([]).is_err());
    }

    #[test]
    fn a_message_has_one_time_of_delivery() {
        let mut message = Message::new("flights", "body");
        assert!(!message.asks_for_later() && message.later().is_none());
        for (later, name, value) in [
            (Later::Level(3), "DELAY", "3"),
            (Later::AtMs(1_700_000_000_000), "TIMER_DELIVER_MS", "1700000000000"),
            (Later::AfterMs(1500), "TIMER_DELAY_MS", "1500"),
        ] {
            message.set_later(later);
            assert_eq!(message.properties.iter().collect::<Vec<_>>(), [(name, value)]);
            assert!(message.asks_for_later());
            assert_eq!(message.later(), Some(later));
        }
        message.properties.set("DELAY", "soon").unwrap();
        assert_eq!(message.later(), Some(Later::AfterMs(1500)));
        message.set_later(Later::Level(0));
        assert!(!message.asks_for_later() && message.later().is_none());
    }
}
