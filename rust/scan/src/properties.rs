//! The columns that come out of a record's property text, taken in one pass over it.

use std::collections::HashMap;

use arrow_array::ArrayRef;
use arrow_schema::ArrowError;
use rocketpy_model::property;
use rocketpy_protocol::properties_text;

use crate::vectors::{Maps, Spans};
use crate::{Column, Columns};

/// Up to this many pairs, duplicates are found by comparing each with each.
const FEW_PAIRS: usize = 32;

/// Tag, keys, message id and the map of all properties.
pub(crate) struct PropertyColumns {
    wanted: Wanted,
    tag: Spans,
    keys: Spans,
    msg_id: Spans,
    map: Maps,
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

type Pair<'a> = (&'a [u8], &'a [u8]);

impl PropertyColumns {
    pub(crate) fn new(columns: &Columns, rows: usize) -> Self {
        let wanted = Wanted {
            tag: columns.has(Column::Tag),
            keys: columns.has(Column::Keys),
            msg_id: columns.has(Column::MsgId),
            map: columns.has(Column::Properties),
        };
        let spans = |wanted: bool, width: usize| {
            if wanted { Spans::with_capacity(rows, rows * width) } else { Spans::default() }
        };
        Self {
            wanted,
            tag: spans(wanted.tag, 8),
            keys: spans(wanted.keys, 16),
            msg_id: spans(wanted.msg_id, 32),
            map: Maps::with_capacity(if wanted.map { rows } else { 0 }),
        }
    }

    /// Bytes of the property map so far.
    pub(crate) fn bytes(&self) -> usize {
        self.map.bytes()
    }

    /// Appends one row. `other_id` writes the message id of a record that carries no unique key.
    pub(crate) fn push(&mut self, text: &[u8], other_id: impl std::fmt::Display) {
        let wanted = self.wanted;
        if !(wanted.tag || wanted.keys || wanted.msg_id || wanted.map) {
            return;
        }
        let known = if wanted.map { self.push_map(text) } else { Known::find(text, wanted) };
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

    fn push_map<'a>(&mut self, text: &'a [u8]) -> Known<'a> {
        let mut known = Known::default();
        let mut few: [Pair<'a>; FEW_PAIRS] = [(&[], &[]); FEW_PAIRS];
        let mut count = 0;
        for pair in properties_text::iter_bytes(text) {
            if count == FEW_PAIRS {
                self.push_many(text);
                return Known::find(text, self.wanted);
            }
            known.note(pair);
            match few[..count].iter_mut().find(|earlier| earlier.0 == pair.0) {
                Some(earlier) => earlier.1 = pair.1,
                None => {
                    few[count] = pair;
                    count += 1;
                }
            }
        }
        for (name, value) in &few[..count] {
            self.push_entry(name, value);
        }
        self.map.close_row();
        known
    }

    /// As [`push_map`](Self::push_map), for texts with so many pairs that comparing each with each would be slow.
    fn push_many(&mut self, text: &[u8]) {
        let last: HashMap<&[u8], &[u8]> = properties_text::iter_bytes(text).collect();
        let mut rest = last.clone();
        for (name, _) in properties_text::iter_bytes(text) {
            if let Some(value) = rest.remove(name) {
                self.push_entry(name, value);
            }
        }
        self.map.close_row();
    }

    fn push_entry(&mut self, name: &[u8], value: &[u8]) {
        if name != property::CRC32.as_bytes() {
            self.map.push_entry(name, value);
        }
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
    /// Looks only for what is wanted, from the end, where the pair that counts stands.
    fn find(text: &'a [u8], wanted: Wanted) -> Self {
        let get = |wanted: bool, name: &str| {
            if wanted { properties_text::get_bytes(text, name) } else { None }
        };
        Self {
            tag: get(wanted.tag, property::TAGS),
            keys: get(wanted.keys, property::KEYS),
            msg_id: get(wanted.msg_id, property::UNIQUE_KEY),
        }
    }

    fn note(&mut self, (name, value): Pair<'a>) {
        match name {
            b"TAGS" => self.tag = Some(value),
            b"KEYS" => self.keys = Some(value),
            b"UNIQ_KEY" => self.msg_id = Some(value),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{Array, MapArray, StringArray, StructArray, cast::AsArray};

    use super::*;

    fn columns_of(texts: &[&[u8]]) -> PropertyColumns {
        let mut columns = PropertyColumns::new(&Columns::default(), texts.len());
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
