use crate::property;

/// Why a property cannot be part of a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PropertyError {
    #[error("a property needs a name; its value is: {value:?}")]
    EmptyName { value: String },
    #[error("a property needs a value, the stored text cannot hold an empty one: {name:?}")]
    EmptyValue { name: String },
    #[error("a property must not contain the separators \\u0001 and \\u0002: {name:?}")]
    Separator { name: String },
    #[error("this property name is reserved for the system: {name}")]
    Reserved { name: String },
}

/// The properties of one message, in the order in which they were set.
///
/// A message has few, so a vector serves better than a hash map. Setting a name again replaces its value. What the stored
/// text cannot hold (an empty name or value, a separator) is refused here, so that nothing is lost silently later.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Properties {
    entries: Vec<(String, String)>,
}

impl Properties {
    /// Makes an empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self { entries: Vec::new() }
    }

    /// The value of `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.entries.iter().find(|(have, _)| have == name).map(|(_, value)| value.as_str())
    }

    /// Sets `name`, replacing an earlier value.
    ///
    /// # Errors
    /// When the name or the value is empty or contains a separator.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>) -> Result<(), PropertyError> {
        let (name, value) = (name.into(), value.into());
        if name.is_empty() {
            return Err(PropertyError::EmptyName { value });
        }
        if value.is_empty() {
            return Err(PropertyError::EmptyValue { name });
        }
        if has_separator(&name) || has_separator(&value) {
            return Err(PropertyError::Separator { name });
        }
        match self.entries.iter_mut().find(|(have, _)| *have == name) {
            Some(entry) => entry.1 = value,
            None => self.entries.push((name, value)),
        }
        Ok(())
    }

    /// Sets a property of the user, whose name must not be one of the system's.
    ///
    /// # Errors
    /// As [`Properties::set`], and when the name is reserved.
    #[doc(alias = "putUserProperty")]
    pub fn set_user(
        &mut self,
        name: impl Into<String>,
        value: impl Into<String>,
    ) -> Result<(), PropertyError> {
        let name = name.into();
        if property::is_reserved(&name) {
            return Err(PropertyError::Reserved { name });
        }
        self.set(name, value)
    }

    /// Removes `name` and returns its value.
    pub fn remove(&mut self, name: &str) -> Option<String> {
        let at = self.entries.iter().position(|(have, _)| have == name)?;
        Some(self.entries.remove(at).1)
    }

    /// Names and values in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.entries.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

fn has_separator(text: &str) -> bool {
    text.bytes().any(|byte| byte == property::NAME_VALUE_SEPARATOR || byte == property::PROPERTY_SEPARATOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setting_a_name_again_replaces_its_value_in_place() {
        let mut properties = Properties::new();
        properties.set("a", "1").unwrap();
        properties.set("b", "2").unwrap();
        properties.set("a", "3").unwrap();
        assert_eq!(properties.iter().collect::<Vec<_>>(), [("a", "3"), ("b", "2")]);
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
