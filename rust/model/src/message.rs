//! A message to send.

use bytes::Bytes;

use crate::property::{KEY_SEPARATOR, KEYS, SHARDING_KEY, TAGS};
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
}

impl Message {
    /// Makes a message without tag, keys and other properties.
    pub fn new(topic: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self { topic: topic.into(), body: body.into(), flag: 0, properties: Properties::new() }
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
        self.properties.get(KEYS).unwrap_or_default().split(KEY_SEPARATOR).filter(|key| !key.is_empty())
    }

    /// Sets the keys; a key with a space counts as several.
    ///
    /// # Errors
    /// When there is no key, or one contains a separator.
    pub fn set_keys<'a>(&mut self, keys: impl IntoIterator<Item = &'a str>) -> Result<(), PropertyError> {
        let joined = keys.into_iter().collect::<Vec<_>>().join(KEY_SEPARATOR);
        self.properties.set(KEYS, joined)
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
}
