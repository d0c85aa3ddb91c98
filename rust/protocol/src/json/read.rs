//! A serde deserializer for the lenient dialect. It never borrows texts from the input: a key may have to be read out of a text
//! that holds it.

use std::borrow::Cow;
use std::fmt;

use serde::de::value::{CowStrDeserializer, StrDeserializer};
use serde::de::{self, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;
use smallvec::SmallVec;

use super::JsonError;
use super::lex::{Lexer, MAX_DEPTH};

/// Most letters of a message about a value, which it may quote: the message goes into the log and into an answer.
const MAX_MESSAGE_LETTERS: usize = 256;

impl de::Error for JsonError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::Value { message: message.to_string().chars().take(MAX_MESSAGE_LETTERS).collect() }
    }
}

/// Reads values out of a text.
pub struct Reader<'a> {
    lexer: Lexer<'a>,
    depth: usize,
    /// Items of lists and maps that may still come.
    items_left: usize,
    /// All that may come.
    max_items: usize,
}

impl<'a> Reader<'a> {
    pub const fn new(text: &'a str) -> Self {
        Self::with_items(text, usize::MAX)
    }

    /// A reader that refuses more items in all lists and maps together.
    pub const fn with_items(text: &'a str, max_items: usize) -> Self {
        Self { lexer: Lexer::new(text), depth: 0, items_left: max_items, max_items }
    }

    /// Counts an item of a list or map.
    fn count(&mut self) -> Result<(), JsonError> {
        let left = self.items_left.checked_sub(1).ok_or(JsonError::TooMany { limit: self.max_items })?;
        self.items_left = left;
        Ok(())
    }

    /// Refuses anything but white space after the value.
    pub fn finish(&mut self) -> Result<(), JsonError> {
        match self.lexer.peek() {
            None => Ok(()),
            Some(_) => Err(JsonError::Trailing { at: self.lexer.at }),
        }
    }

    /// Reads a text, a number or a truth value as text.
    fn scalar(&mut self) -> Result<Cow<'a, str>, JsonError> {
        match self.lexer.peek() {
            Some(b'"') => self.lexer.string(),
            _ => self.lexer.word().map(Cow::Borrowed),
        }
    }

    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, JsonError>) -> Result<T, JsonError> {
        if self.depth >= MAX_DEPTH {
            return Err(JsonError::TooDeep { limit: MAX_DEPTH, at: self.lexer.at });
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }
}

fn visit_number<'de, V: Visitor<'de>>(text: &str, visitor: V) -> Result<V::Value, JsonError> {
    let text = text.trim();
    if let Ok(number) = text.parse::<i64>() {
        visitor.visit_i64(number)
    } else if let Ok(number) = text.parse::<u64>() {
        visitor.visit_u64(number)
    } else if let Ok(number) = text.parse::<f64>()
        && number.is_finite()
    {
        visitor.visit_f64(number)
    } else {
        Err(de::Error::invalid_type(de::Unexpected::Str(text), &visitor))
    }
}

fn visit_bool<'de, V: Visitor<'de>>(text: &str, visitor: V) -> Result<V::Value, JsonError> {
    if text == "1" || text.eq_ignore_ascii_case("true") {
        visitor.visit_bool(true)
    } else if text == "0" || text.eq_ignore_ascii_case("false") {
        visitor.visit_bool(false)
    } else {
        Err(de::Error::invalid_type(de::Unexpected::Str(text), &visitor))
    }
}

/// Finds the variant that `text` means: a name in any case, or an ordinal. An unknown one is returned as it is.
fn visit_variant<'de, V: Visitor<'de>>(
    text: &str,
    variants: &'static [&'static str],
    visitor: V,
) -> Result<V::Value, JsonError> {
    let by_ordinal = || text.parse::<usize>().ok().and_then(|ordinal| variants.get(ordinal));
    let found = variants.iter().find(|variant| variant.eq_ignore_ascii_case(text)).or_else(by_ordinal);
    let name: StrDeserializer<'_, JsonError> = found.copied().unwrap_or(text).into_deserializer();
    visitor.visit_enum(name)
}

macro_rules! numbers {
    ($($method:ident)+) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
            visit_number(&self.scalar()?, visitor)
        }
    )+};
}

impl<'de> Deserializer<'de> for &mut Reader<'_> {
    type Error = JsonError;

    numbers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_u8 deserialize_u16
        deserialize_u32 deserialize_u64 deserialize_f32 deserialize_f64
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        match self.lexer.peek() {
            Some(b'"') => self.deserialize_str(visitor),
            Some(b'[') => self.deserialize_seq(visitor),
            Some(b'{') => self.deserialize_map(visitor),
            _ => match self.lexer.word()? {
                "null" => visitor.visit_unit(),
                "true" => visitor.visit_bool(true),
                "false" => visitor.visit_bool(false),
                number => visit_number(number, visitor),
            },
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        visit_bool(&self.scalar()?, visitor)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        match self.scalar()? {
            Cow::Borrowed(text) => visitor.visit_str(text),
            Cow::Owned(text) => visitor.visit_string(text),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        if self.lexer.is_null() {
            self.lexer.word()?;
            return visitor.visit_none();
        }
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, JsonError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        self.lexer.expect(b'[', "a list")?;
        self.nested(|reader| {
            let value = visitor.visit_seq(Items { reader, first: true })?;
            reader.lexer.expect(b']', "the end of the list")?;
            Ok(value)
        })
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        self.lexer.expect(b'{', "an object")?;
        self.nested(|reader| {
            let value = visitor.visit_map(Entries { reader, first: true })?;
            reader.lexer.expect(b'}', "the end of the object")?;
            Ok(value)
        })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, JsonError> {
        self.lexer.expect(b'{', "an object")?;
        self.nested(|reader| {
            let places = find_members(reader, fields)?;
            let end = reader.lexer.at;
            let value = visitor.visit_map(Members { reader: &mut *reader, fields, places, next: 0 })?;
            reader.lexer.at = end;
            Ok(value)
        })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, JsonError> {
        visit_variant(&self.scalar()?, variants, visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        self.lexer.skip_value(self.depth)?;
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        char bytes byte_buf unit unit_struct tuple tuple_struct identifier
    }
}

/// Places of the values of `fields` in an object whose opening brace is taken; takes the closing one.
///
/// Of two members with one name the last counts; null counts as absent; unknown members are skipped. serde refuses a member that
/// comes twice, so the object is walked once before it is read.
fn find_members(
    reader: &mut Reader<'_>,
    fields: &[&str],
) -> Result<SmallVec<[Option<usize>; 24]>, JsonError> {
    let mut places = SmallVec::from_elem(None, fields.len());
    let depth = reader.depth;
    let lexer = &mut reader.lexer;
    if lexer.take(b'}') {
        return Ok(places);
    }
    loop {
        let index = match lexer.peek() {
            Some(b'"') => index_of(&lexer.string()?, fields),
            Some(b'{' | b'[') => lexer.skip_value(depth).map(|()| None)?,
            _ => index_of(lexer.word()?, fields),
        };
        lexer.expect(b':', "a colon")?;
        lexer.peek();
        if let Some(index) = index {
            places[index] = (!lexer.is_null()).then_some(lexer.at);
        }
        lexer.skip_value(depth)?;
        if !lexer.take(b',') {
            lexer.expect(b'}', "a comma or the end of the object")?;
            return Ok(places);
        }
    }
}

fn index_of(name: &str, fields: &[&str]) -> Option<usize> {
    fields.iter().position(|field| *field == name)
}

/// The members of an object that is read into a struct, in the order of the struct.
struct Members<'r, 'a> {
    reader: &'r mut Reader<'a>,
    fields: &'static [&'static str],
    places: SmallVec<[Option<usize>; 24]>,
    next: usize,
}

impl<'de> MapAccess<'de> for Members<'_, '_> {
    type Error = JsonError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, JsonError> {
        while let Some(place) = self.places.get(self.next) {
            self.next += 1;
            if let Some(at) = *place {
                self.reader.lexer.at = at;
                let name: StrDeserializer<'_, JsonError> = self.fields[self.next - 1].into_deserializer();
                return seed.deserialize(name).map(Some);
            }
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, JsonError> {
        seed.deserialize(&mut *self.reader)
    }
}

/// The items of a list.
struct Items<'r, 'a> {
    reader: &'r mut Reader<'a>,
    first: bool,
}

impl<'de> SeqAccess<'de> for Items<'_, '_> {
    type Error = JsonError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, JsonError> {
        loop {
            if self.reader.lexer.peek() == Some(b']') {
                return Ok(None);
            }
            if !std::mem::take(&mut self.first) {
                self.reader.lexer.expect(b',', "a comma or the end of the list")?;
            }
            if !self.reader.lexer.is_null() {
                self.reader.count()?;
                return seed.deserialize(&mut *self.reader).map(Some);
            }
            self.reader.lexer.word()?;
        }
    }
}

/// The entries of a map; those with a null value are left out.
struct Entries<'r, 'a> {
    reader: &'r mut Reader<'a>,
    first: bool,
}

impl<'de> MapAccess<'de> for Entries<'_, '_> {
    type Error = JsonError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, JsonError> {
        loop {
            if self.reader.lexer.peek() == Some(b'}') {
                return Ok(None);
            }
            if !std::mem::take(&mut self.first) {
                self.reader.lexer.expect(b',', "a comma or the end of the object")?;
            }
            self.reader.lexer.peek();
            let key_at = self.reader.lexer.at;
            self.reader.lexer.skip_value(self.reader.depth)?;
            self.reader.lexer.expect(b':', "a colon")?;
            if self.reader.lexer.is_null() {
                self.reader.lexer.word()?;
                continue;
            }
            self.reader.count()?;
            self.reader.lexer.at = key_at;
            return seed.deserialize(Key { reader: &mut *self.reader }).map(Some);
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, JsonError> {
        self.reader.lexer.expect(b':', "a colon")?;
        seed.deserialize(&mut *self.reader)
    }
}

/// The key of a map entry: a text, an unquoted number, an object inline, or a text that holds an object.
struct Key<'r, 'a> {
    reader: &'r mut Reader<'a>,
}

macro_rules! number_keys {
    ($($method:ident)+) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
            visit_number(&self.reader.scalar()?, visitor)
        }
    )+};
}

impl<'de> Deserializer<'de> for Key<'_, '_> {
    type Error = JsonError;

    number_keys! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_u8 deserialize_u16
        deserialize_u32 deserialize_u64
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        let text: CowStrDeserializer<'_, JsonError> = self.reader.scalar()?.into_deserializer();
        text.deserialize_any(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, JsonError> {
        if self.reader.lexer.peek() != Some(b'"') {
            return self.reader.deserialize_struct(name, fields, visitor);
        }
        let text = self.reader.lexer.string()?;
        let mut inner = Reader { depth: self.reader.depth, ..Reader::new(&text) };
        let value = inner.deserialize_struct(name, fields, visitor)?;
        inner.finish()?;
        Ok(value)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, JsonError> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        bool f32 f64 char str string bytes byte_buf option unit unit_struct seq tuple tuple_struct map enum
        identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_about_a_value_quotes_only_the_beginning_of_it() {
        let text = format!("\"{}\"", "x".repeat(1 << 20));
        let error = super::super::from_str::<u32>(&text).unwrap_err().to_string();
        assert!(error.contains("xxx") && error.len() <= MAX_MESSAGE_LETTERS, "{} bytes", error.len());
    }
}
