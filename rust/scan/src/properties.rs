//! The columns that come out of a record's property text, taken in one pass over it.

use std::collections::HashMap;

use arrow_array::ArrayRef;
use arrow_schema::ArrowError;
use rocketpy_model::property;
use rocketpy_protocol::properties_text;

use crate::spent::Spent;
use crate::vectors::{Maps, Names, Spans};
use crate::{Column, Columns};

/// Up to this many pairs, a repeated name is looked for among all earlier ones.
const FEW_PAIRS: usize = 64;

/// Tag, keys, message id and the map of all properties.
pub(crate) struct PropertyColumns {
    wanted: Wanted,
    tag: Spans,
    keys: Spans,
    msg_id: Spans,
    map: Maps,
    shape: Shape,
}

/// The names of a row, in order and none twice. Most rows have the same as the one before.
#[derive(Default)]
struct Shape {
    pairs: Vec<ShapePair>,
    /// Each name with the separator behind it, end to end.
    text: Vec<u8>,
    /// The names that stand in the map.
    names: Names,
}

struct ShapePair {
    /// End of the name in the text.
    end: usize,
    role: Role,
}

#[derive(Clone, Copy)]
enum Role {
    Tag,
    Keys,
    MsgId,
    /// The store's own, in no column.
    Checksum,
    Other,
}

#[derive(Clone, Copy)]
struct Wanted {
    tag: bool,
    keys: bool,
    msg_id: bool,
    map: bool,
}

/// The values of one text that have a column of their own.
#[derive(Default)]
struct Known<'a> {
    tag: Option<&'a [u8]>,
    keys: Option<&'a [u8]>,
    msg_id: Option<&'a [u8]>,
}

impl PropertyColumns {
    /// Takes room for `rows` rows, in the memory of a spent batch as far as that will do.
    pub(crate) fn within(columns: &Columns, rows: usize, spent: &mut Spent) -> Self {
        let wanted = Wanted {
            tag: columns.has(Column::Tag),
            keys: columns.has(Column::Keys),
            msg_id: columns.has(Column::MsgId),
            map: columns.has(Column::Properties),
        };
        let mut spans = |column: Column, width: usize| match columns.has(column) {
            true => Spans::within(rows, rows * width, &mut spent.take(column)),
            false => Spans::default(),
        };
        Self {
            wanted,
            tag: spans(Column::Tag, 8),
            keys: spans(Column::Keys, 16),
            msg_id: spans(Column::MsgId, 32),
            map: Maps::within(if wanted.map { rows } else { 0 }, &mut spent.take(Column::Properties)),
            shape: Shape::default(),
        }
    }

    /// Bytes of the property map so far, or of the other columns when those are more: most of it stands in both.
    pub(crate) fn bytes(&self) -> usize {
        let others = self.tag.bytes() + self.keys.bytes() + self.msg_id.bytes();
        self.map.bytes().max(others)
    }

    /// Appends one row. `other_id` writes the message id of a record that carries no unique key.
    pub(crate) fn push(&mut self, text: &[u8], other_id: impl std::fmt::Display) {
        let wanted = self.wanted;
        if !(wanted.tag || wanted.keys || wanted.msg_id || wanted.map) {
            return;
        }
        // Whole texts become UTF-8, not their values: names that differ in such bytes only are one name of the map then.
        let text = &*String::from_utf8_lossy(text);
        let text = text.as_bytes();
        let known = self.push_alike(text).unwrap_or_else(|| self.push_other(text));
        if wanted.tag {
            self.tag.push_option(known.tag);
        }
        if wanted.keys {
            self.keys.push_option(known.keys);
        }
        if wanted.msg_id {
            match known.msg_id {
                Some(id) => self.msg_id.push(id),
                None => self.msg_id.push_display(other_id),
            }
        }
    }

    /// Reads a text with the names of the shape; `None`, and nothing done, when it has others.
    #[inline]
    fn push_alike<'a>(&mut self, text: &'a [u8]) -> Option<Known<'a>> {
        let known = self.read_alike(text);
        if self.wanted.map {
            match known {
                Some(_) => {
                    self.map.push_keys(&self.shape.names);
                    self.map.close_row();
                }
                None => self.map.drop_row(),
            }
        }
        known
    }

    #[inline]
    fn read_alike<'a>(&mut self, mut text: &'a [u8]) -> Option<Known<'a>> {
        let mut known = Known::default();
        let mut start = 0;
        for pair in &self.shape.pairs {
            let rest = text.strip_prefix(&self.shape.text[start..pair.end])?;
            start = pair.end;
            let value = properties_text::first_piece(rest);
            if value.is_empty() {
                return None;
            }
            known.note(pair.role, value);
            if self.wanted.map && !matches!(pair.role, Role::Checksum) {
                self.map.push_value(value);
            }
            text = rest.get(value.len() + 1..).unwrap_or_default();
        }
        (text.is_empty() && !self.shape.pairs.is_empty()).then_some(known)
    }

    fn push_other<'a>(&mut self, text: &'a [u8]) -> Known<'a> {
        let known = if self.wanted.map { self.push_map(text) } else { Known::find(text) };
        self.shape.learn(text);
        known
    }

    fn push_map<'a>(&mut self, text: &'a [u8]) -> Known<'a> {
        let mut known = Known::default();
        let mut names = NameMarks::default();
        for (count, (name, value)) in properties_text::iter_bytes(text).enumerate() {
            if names.may_have_seen(name) && (count >= FEW_PAIRS || self.map.row_has(name)) {
                self.map.drop_row();
                self.push_last_of_each(text);
                return Known::find(text);
            }
            let role = Role::of(name);
            known.note(role, value);
            if !matches!(role, Role::Checksum) {
                self.map.push_entry(name, value);
            }
        }
        self.map.close_row();
        known
    }

    /// As [`push_map`](Self::push_map), for a text that has a name twice: the last one counts.
    fn push_last_of_each(&mut self, text: &[u8]) {
        let mut last: HashMap<&[u8], &[u8]> = properties_text::iter_bytes(text).collect();
        last.remove(property::CRC32.as_bytes());
        for (name, _) in properties_text::iter_bytes(text) {
            if let Some(value) = last.remove(name) {
                self.map.push_entry(name, value);
            }
        }
        self.map.close_row();
    }

    /// Hands out the finished column. Each may be taken once.
    pub(crate) fn take(&mut self, column: Column) -> Result<ArrayRef, ArrowError> {
        match column {
            Column::Tag => std::mem::take(&mut self.tag).into_text(),
            Column::Keys => std::mem::take(&mut self.keys).into_text(),
            Column::MsgId => std::mem::take(&mut self.msg_id).into_text(),
            _ => std::mem::replace(&mut self.map, Maps::with_capacity(0)).into_array(),
        }
    }
}

impl<'a> Known<'a> {
    fn find(text: &'a [u8]) -> Self {
        let mut known = Self::default();
        properties_text::iter_bytes(text).for_each(|(name, value)| known.note(Role::of(name), value));
        known
    }

    #[inline]
    fn note(&mut self, role: Role, value: &'a [u8]) {
        match role {
            Role::Tag => self.tag = Some(value),
            Role::Keys => self.keys = Some(value),
            Role::MsgId => self.msg_id = Some(value),
            Role::Checksum | Role::Other => {}
        }
    }
}

impl Role {
    #[inline]
    fn of(name: &[u8]) -> Self {
        match name {
            b"TAGS" => Self::Tag,
            b"KEYS" => Self::Keys,
            b"UNIQ_KEY" => Self::MsgId,
            b"__CRC32#" => Self::Checksum,
            _ => Self::Other,
        }
    }
}

impl Shape {
    /// Takes the names of a text, unless one is there twice or there are many.
    fn learn(&mut self, text: &[u8]) {
        self.forget();
        let mut marks = NameMarks::default();
        for (name, _) in properties_text::iter_bytes(text) {
            let is_known = || {
                let starts = std::iter::once(0).chain(self.pairs.iter().map(|pair| pair.end));
                starts.zip(&self.pairs).any(|(start, pair)| &self.text[start..pair.end - 1] == name)
            };
            if self.pairs.len() == FEW_PAIRS || marks.may_have_seen(name) && is_known() {
                return self.forget();
            }
            self.text.extend_from_slice(name);
            self.text.push(property::NAME_VALUE_SEPARATOR);
            let role = Role::of(name);
            self.pairs.push(ShapePair { end: self.text.len(), role });
            if !matches!(role, Role::Checksum) {
                self.names.push(name);
            }
        }
    }

    fn forget(&mut self) {
        self.pairs.clear();
        self.text.clear();
        self.names.clear();
    }
}

/// Which names were met in a text, marked by length and last byte: tells most new names from repeated ones at a glance.
#[derive(Default)]
struct NameMarks(u64);

impl NameMarks {
    #[inline]
    fn may_have_seen(&mut self, name: &[u8]) -> bool {
        let last = name.last().copied().unwrap_or(0);
        let mark = 1 << (((name.len() as u8).wrapping_mul(7) ^ last) % 64);
        let seen = self.0 & mark != 0;
        self.0 |= mark;
        seen
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_array::{Array, MapArray, StringArray, StructArray};

    use super::*;

    fn columns_of(texts: &[&[u8]]) -> PropertyColumns {
        let mut columns = PropertyColumns::within(&Columns::default(), texts.len(), &mut Spent::default());
        texts.iter().for_each(|text| columns.push(text, "by-place"));
        columns
    }

    fn pairs(entries: &StructArray) -> Vec<(String, String)> {
        let (keys, values) = (entries.column(0).as_string::<i32>(), entries.column(1).as_string::<i32>());
        (0..entries.len()).map(|row| (keys.value(row).to_owned(), values.value(row).to_owned())).collect()
    }

    fn text_column(columns: &mut PropertyColumns, column: Column) -> StringArray {
        columns.take(column).unwrap().as_string::<i32>().clone()
    }

    #[test]
    fn known_properties_have_columns_and_stand_in_the_map_too() {
        let mut columns =
            columns_of(&[b"TAGS\x01UA\x02UNIQ_KEY\x01ID\x02__CRC32#\x010123456789\x02", b"a\x011"]);
        let tags = text_column(&mut columns, Column::Tag);
        assert_eq!((tags.value(0), tags.is_null(1)), ("UA", true));
        assert_eq!(text_column(&mut columns, Column::Keys).null_count(), 2);
        let ids = text_column(&mut columns, Column::MsgId);
        assert_eq!((ids.value(0), ids.value(1)), ("ID", "by-place"));
        let maps = columns.take(Column::Properties).unwrap();
        let maps: &MapArray = maps.as_map();
        let first = pairs(&maps.value(0));
        assert_eq!(first, [("TAGS".into(), "UA".into()), ("UNIQ_KEY".into(), "ID".into())]);
    }

    #[test]
    fn rows_like_the_one_before_read_as_any_other() {
        let texts: [&[u8]; 12] = [
            b"TAGS\x01A\x02k\x011\x02UNIQ_KEY\x01I\x02__CRC32#\x010123456789\x02",
            b"TAGS\x01B\x02k\x01a long value, of more than one word\x02UNIQ_KEY\x01J\x02__CRC32#\x010123456780",
            b"TAGS\x01B\x02k\x01with\x01one\x02UNIQ_KEY\x01J\x02__CRC32#\x019\x02",
            b"TAGS\x01C\x02k\x011\x02",
            b"TAGS\x01C\x02k\x011\x02k\x012\x02",
            b"TAGS\x01D\x02k\x011\x02",
            b"TAGS\x01D\x02k\x013",
            b"TAGS\x01E\x02k\x01\x02",
            b"TAGS\x01F\x02\x02k\x014\x02",
            b"",
            b"TAGS",
            b"TAGS\x01G\x02kk\x011\x02",
        ];
        let mut columns = columns_of(&texts);
        let maps = columns.take(Column::Properties).unwrap();
        let maps: &MapArray = maps.as_map();
        let tags = text_column(&mut columns, Column::Tag);
        for (row, text) in texts.iter().enumerate() {
            let mut alone = columns_of(&[text]);
            let map = alone.take(Column::Properties).unwrap();
            assert_eq!(pairs(&maps.value(row)), pairs(&map.as_map().value(0)), "row {row}");
            assert_eq!(tags.slice(row, 1), text_column(&mut alone, Column::Tag), "row {row}");
        }
    }

    #[test]
    fn names_that_differ_in_bytes_that_are_not_utf8_are_one_name_of_the_map() {
        let mut columns = columns_of(&[b"\xe4\x011\x02\xe5\x012\x02TAGS\x01gr\xfcn"]);
        let maps = columns.take(Column::Properties).unwrap();
        let found = pairs(&maps.as_map().value(0));
        assert_eq!(found, [("\u{fffd}".into(), "2".into()), ("TAGS".into(), "gr\u{fffd}n".into())]);
        assert_eq!(text_column(&mut columns, Column::Tag).value(0), "gr\u{fffd}n");
    }

    #[test]
    fn the_last_of_two_values_counts_with_few_pairs_and_with_many() {
        let mut many: Vec<u8> = (0..100).flat_map(|n| format!("n{n}\x01{n}\x02").into_bytes()).collect();
        many.extend_from_slice(b"n7\x01seven\x02TAGS\x01T");
        let mut columns = columns_of(&[b"a\x011\x02b\x012\x02a\x013", &many]);
        let maps = columns.take(Column::Properties).unwrap();
        let maps: &MapArray = maps.as_map();
        assert_eq!(pairs(&maps.value(0)), [("a".into(), "3".into()), ("b".into(), "2".into())]);
        let second = pairs(&maps.value(1));
        assert_eq!(second.len(), 101);
        assert_eq!(second[7], ("n7".into(), "seven".into()));
        assert_eq!(text_column(&mut columns, Column::Tag).value(1), "T");
    }
}
