//! The properties of a message, kept as the text that is sent and stored.

use std::ops::Range;

use crate::property;

/// Why a property cannot be part of a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PropertyError {
    /// The name is empty.
    #[error("property name must not be empty, its value: {value:?}")]
    EmptyName {
        /// The value that came with it.
        value: String,
    },
    /// The value is empty.
    #[error("property value must not be empty: {name:?}")]
    EmptyValue {
        /// The name of the property.
        name: String,
    },
    /// The name or the value contains a separator.
    #[error("property must not contain the separators \\u0001 and \\u0002: {name:?}")]
    Separator {
        /// The name as given.
        name: String,
    },
    /// The name belongs to the system.
    #[error("property name is reserved for the system: {name}")]
    Reserved {
        /// The name.
        name: String,
    },
}

/// The properties of one message, in the order in which they were set.
///
/// Kept as the text that is sent and stored, one allocation for all of them: a message has few properties, so a search is
/// faster than a map, and sending is a copy. What the text cannot hold (an empty name or value, a separator) is refused
/// here, so that nothing is lost silently later.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Properties {
    /// `name 0x01 value 0x02` for each; no name twice.
    text: String,
}

impl Properties {
    /// Makes an empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self { text: String::new() }
    }

    /// Makes an empty list with room for `size_bytes` of text, two separators for each property included.
    #[must_use]
    pub fn with_capacity(size_bytes: usize) -> Self {
        Self { text: String::with_capacity(size_bytes) }
    }

    /// The value of `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(have, _)| *have == name).map(|(_, value)| value)
    }

    /// Sets `name`, replacing an earlier value.
    ///
    /// # Errors
    /// When the name or the value is empty or contains a separator.
    pub fn set(&mut self, name: impl AsRef<str>, value: impl AsRef<str>) -> Result<(), PropertyError> {
        let (name, value) = (name.as_ref(), value.as_ref());
        if name.is_empty() {
            return Err(PropertyError::EmptyName { value: value.to_owned() });
        }
        if value.is_empty() {
            return Err(PropertyError::EmptyValue { name: name.to_owned() });
        }
        if has_separator(name) || has_separator(value) {
            return Err(PropertyError::Separator { name: name.to_owned() });
        }
        self.replace(name, value);
        Ok(())
    }

    /// Sets a property that was read from a stored text, replacing an earlier value. Its value may have the separator U+0001, as stored
    /// values may.
    ///
    /// # Errors
    /// When name or value could not have been read from a stored text.
    pub fn set_stored(&mut self, name: impl AsRef<str>, value: impl AsRef<str>) -> Result<(), PropertyError> {
        let (name, value) = (name.as_ref(), value.as_ref());
        self.set(name, value).or_else(|error| match error {
            PropertyError::Separator { .. } if !has_separator(name) && !value.contains(END) => {
                self.replace(name, value);
                Ok(())
            }
            error => Err(error),
        })
    }

    fn replace(&mut self, name: &str, value: &str) {
        match self.piece(name) {
            Some(piece) => self.text.replace_range(piece.start + name.len() + 1..piece.end - 1, value),
            None => {
                self.text.push_str(name);
                self.text.push(NAME_VALUE);
                self.text.push_str(value);
                self.text.push(END);
            }
        }
    }

    /// Sets a property of the user, whose name must not be one of the system's.
    ///
    /// # Errors
    /// As [`Properties::set`], and when the name is reserved.
    #[doc(alias = "putUserProperty")]
    pub fn set_user(&mut self, name: impl AsRef<str>, value: impl AsRef<str>) -> Result<(), PropertyError> {
        let name = name.as_ref();
        if property::is_reserved(name) {
            return Err(PropertyError::Reserved { name: name.to_owned() });
        }
        self.set(name, value)
    }

    /// Removes `name` and returns its value.
    pub fn remove(&mut self, name: &str) -> Option<String> {
        let piece = self.piece(name)?;
        let value = self.text[piece.start + name.len() + 1..piece.end - 1].to_owned();
        self.text.replace_range(piece, "");
        Some(value)
    }

    /// Names and values in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.text.split_terminator(END).filter_map(|piece| piece.split_once(NAME_VALUE))
    }

    /// The properties as they are sent and stored, with the final separator.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// The range of `name`, its value and both separators.
    fn piece(&self, name: &str) -> Option<Range<usize>> {
        let mut start = 0;
        for (have, value) in self.iter() {
            let end = start + have.len() + value.len() + 2;
            if have == name {
                return Some(start..end);
            }
            start = end;
        }
        None
    }
}

const NAME_VALUE: char = property::NAME_VALUE_SEPARATOR as char;
const END: char = property::PROPERTY_SEPARATOR as char;

fn has_separator(text: &str) -> bool {
    text.bytes().any(|byte| byte == property::NAME_VALUE_SEPARATOR || byte == property::PROPERTY_SEPARATOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_value_may_have_the_first_separator() {
        let mut properties = Properties::new();
        properties.set_stored("a", "1\u{1}2").unwrap();
        properties.set_stored("b", "3").unwrap();
        assert_eq!(properties.iter().collect::<Vec<_>>(), [("a", "1\u{1}2"), ("b", "3")]);
        properties.set_stored("a", "4\u{1}").unwrap();
        assert_eq!(properties.text(), "a\u{1}4\u{1}\u{2}b\u{1}3\u{2}");
        assert_eq!(properties.remove("a").as_deref(), Some("4\u{1}"));
        for (name, value) in [("", "1"), ("a", ""), ("a\u{1}", "1"), ("a", "1\u{2}")] {
            assert!(properties.set_stored(name, value).is_err(), "{name:?}={value:?}");
        }
    }

    #[test]
    fn setting_a_name_again_replaces_its_value_in_place() {
        let mut properties = Properties::new();
        properties.set("a", "1").unwrap();
        properties.set("b", "2").unwrap();
        properties.set("a", "3").unwrap();
        assert_eq!(properties.iter().collect::<Vec<_>>(), [("a", "3"), ("b", "2")]);
        assert_eq!((properties.len(), properties.text()), (2, "a\u{1}3\u{2}b\u{1}2\u{2}"));
        properties.set("a", "longer").unwrap();
        assert_eq!(properties.get("b"), Some("2"));
        assert_eq!(properties.remove("a").as_deref(), Some("longer"));
        assert_eq!(properties.text(), "b\u{1}2\u{2}");
        properties.set("a", "3").unwrap();
        assert_eq!(properties.remove("a").as_deref(), Some("3"));
        assert_eq!(properties.get("a"), None);
    }

    #[test]
    fn what_the_stored_text_cannot_hold_is_refused() {
        let mut properties = Properties::new();
        assert!(matches!(properties.set("", "1"), Err(PropertyError::EmptyName { .. })));
        assert!(matches!(properties.set("a", ""), Err(PropertyError::EmptyValue { .. })));
        assert!(matches!(properties.set("a\u{1}", "1"), Err(PropertyError::Separator { .. })));
        assert!(matches!(properties.set("a", "1\u{2}"), Err(PropertyError::Separator { .. })));
        assert!(matches!(properties.set_user("TAGS", "1"), Err(PropertyError::Reserved { .. })));
        assert!(properties.is_empty());
    }
}
