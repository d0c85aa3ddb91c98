//! The map of a header: fields by name, in the order of arrival.

use std::fmt;

/// The custom header of a command: names and values, flattened to text.
///
/// All text lies in one buffer and the entries are ranges of it, so that decoding a header costs two allocations for any
/// number of fields. Each name is there once: pushing it again replaces its value, because the last one counts.
///
/// # Source
/// docs/reference/protocol.md 1.2 and 1.7.
#[derive(Clone, Default)]
pub struct ExtFields {
    text: String,
    entries: Vec<Entry>,
    /// One bit for each kind of name present (see [`kind_of`]); a clear bit proves that a name is new.
    kinds: u64,
}

/// A field: its name, directly followed by its value, in the text buffer.
#[derive(Clone, Copy)]
struct Entry {
    name_at: u32,
    value_at: u32,
    end: u32,
}

impl ExtFields {
    /// Most fields of one header that a decoder takes; real ones have about twenty.
    pub const MAX_FIELDS: usize = 1024;

    /// Makes an empty header.
    #[must_use]
    pub const fn new() -> Self {
        Self { text: String::new(), entries: Vec::new(), kinds: 0 }
    }

    /// Makes an empty header with room.
    #[must_use]
    pub fn with_capacity(fields: usize, text_bytes: usize) -> Self {
        Self { text: String::with_capacity(text_bytes), entries: Vec::with_capacity(fields), kinds: 0 }
    }

    /// Makes room for fields to come.
    pub(crate) fn reserve(&mut self, fields: usize, text_bytes: usize) {
        self.entries.reserve(fields);
        self.text.reserve(text_bytes);
    }

    /// The value of `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.position(name).map(|at| self.value(&self.entries[at]))
    }

    /// Says whether `name` is present.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.position(name).is_some()
    }

    /// Sets `name` to `value`.
    ///
    /// # Panics
    /// When all text passes 4 GiB; a frame holds 16 MiB.
    #[inline]
    pub fn push(&mut self, name: &str, value: &str) {
        self.push_with(name, |text| text.push_str(value));
    }

    /// Sets `name` to what `write` appends to the text.
    #[inline]
    pub(crate) fn push_with(&mut self, name: &str, write: impl FnOnce(&mut String)) {
        let name_at = self.text.len();
        self.text.push_str(name);
        let value_at = self.text.len();
        write(&mut self.text);
        let end = self.text.len();
        assert!(u32::try_from(end).is_ok(), "the text of a header passes 4 GiB");
        let entry = Entry { name_at: name_at as u32, value_at: value_at as u32, end: end as u32 };
        let kind = kind_of(name);
        let old = if self.kinds & kind == 0 { None } else { self.position(name) };
        match old {
            Some(at) => self.entries[at] = entry,
            None => self.entries.push(entry),
        }
        self.kinds |= kind;
    }

    /// Removes `name`.
    pub fn remove(&mut self, name: &str) {
        if let Some(at) = self.position(name) {
            self.entries.remove(at);
        }
    }

    /// Names and values in the order of the header.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.entries.iter().map(|entry| (self.name(entry), self.value(entry)))
    }

    /// How many fields there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of all names and values, for reservations.
    pub(crate) const fn text_bytes(&self) -> usize {
        self.text.len()
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.entries.iter().position(|entry| self.name(entry) == name)
    }

    #[inline]
    fn name(&self, entry: &Entry) -> &str {
        &self.text[entry.name_at as usize..entry.value_at as usize]
    }

    #[inline]
    fn value(&self, entry: &Entry) -> &str {
        &self.text[entry.value_at as usize..entry.end as usize]
    }
}

/// One of 64 bits for a name. The letters of SEND_MESSAGE_V2 all get their own.
#[inline]
fn kind_of(name: &str) -> u64 {
    let bytes = name.as_bytes();
    let (first, last) = (bytes.first().copied().unwrap_or(0), bytes.last().copied().unwrap_or(0));
    let mixed = usize::from(first) + bytes.len().wrapping_mul(5) + usize::from(last) * 2;
    1 << (mixed & 63)
}

impl PartialEq for ExtFields {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().all(|(name, value)| other.get(name) == Some(value))
    }
}

impl Eq for ExtFields {}

impl fmt::Debug for ExtFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for ExtFields {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(pairs: I) -> Self {
        let mut fields = Self::new();
        for (name, value) in pairs {
            fields.push(name, value);
        }
        fields
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_pushed_again_keeps_its_last_value() {
        let mut fields = ExtFields::new();
        fields.push("topic", "a");
        fields.push("queueId", "1");
        fields.push("topic", "b");
        assert_eq!(fields.iter().collect::<Vec<_>>(), [("topic", "b"), ("queueId", "1")]);
        fields.remove("queueId");
        assert_eq!(fields.get("queueId"), None);
        assert_eq!(fields, [("topic", "b")].into_iter().collect());
    }

    #[test]
    fn equality_does_not_ask_for_the_order() {
        let one: ExtFields = [("a", "1"), ("b", "2")].into_iter().collect();
        let other: ExtFields = [("b", "2"), ("a", "1")].into_iter().collect();
        assert_eq!(one, other);
        assert_ne!(one, [("a", "1")].into_iter().collect());
    }

    #[test]
    fn names_of_one_kind_are_told_apart() {
        let mut fields = ExtFields::new();
        let names: Vec<String> = (0..200).map(|number| format!("name{number}")).collect();
        for name in &names {
            fields.push(name, name);
        }
        assert!(names.iter().all(|name| fields.get(name) == Some(name)));
        assert_eq!(fields.len(), 200);
    }
}
