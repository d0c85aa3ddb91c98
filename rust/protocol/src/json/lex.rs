//! Tokens of the lenient dialect.

use std::borrow::Cow;

use memchr::memchr2;

use super::JsonError;
use super::scan::find_special;

/// Deepest nesting that is read; real bodies have six levels.
pub(crate) const MAX_DEPTH: usize = 64;

/// A place in a text, moving forward token by token.
#[derive(Debug, Clone)]
pub(crate) struct Lexer<'a> {
    text: &'a str,
    pub at: usize,
}

impl<'a> Lexer<'a> {
    pub(crate) const fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    pub(crate) const fn syntax(&self, expected: &'static str) -> JsonError {
        JsonError::Syntax { expected, at: self.at }
    }

    /// The next byte; white space is not skipped.
    #[inline]
    pub(crate) fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// The next byte after white space.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.byte() {
            self.at += 1;
        }
        self.byte()
    }

    /// Takes `byte` when it comes next after white space.
    pub(crate) fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    pub(crate) fn expect(&mut self, byte: u8, expected: &'static str) -> Result<(), JsonError> {
        if self.take(byte) { Ok(()) } else { Err(self.syntax(expected)) }
    }

    /// Takes a quoted text, from its opening quote on.
    pub(crate) fn string(&mut self) -> Result<Cow<'a, str>, JsonError> {
        self.expect(b'"', "a text")?;
        let start = self.at;
        let rest = &self.text.as_bytes()[start..];
        match memchr2(b'"', b'\\', rest) {
            Some(length) if rest[length] == b'"' => {
                self.at = start + length + 1;
                Ok(Cow::Borrowed(&self.text[start..start + length]))
            }
            Some(_) => {
                let mut out = String::new();
                self.string_tail(&mut out)?;
                Ok(Cow::Owned(out))
            }
            None => Err(JsonError::Syntax { expected: "a closing quote", at: self.text.len() }),
        }
    }

    /// Takes a text without escapes, from behind its opening quote on.
    #[inline]
    pub(crate) fn plain_tail(&mut self) -> Option<&'a str> {
        let rest = &self.text.as_bytes()[self.at..];
        let length = find_special(rest)?;
        let text = (rest[length] == b'"').then(|| &self.text[self.at..self.at + length])?;
        self.at += length + 1;
        Some(text)
    }

    /// Appends a text to `out` and takes its closing quote, from behind its opening quote on.
    #[inline]
    pub(crate) fn string_tail(&mut self, out: &mut String) -> Result<(), JsonError> {
        loop {
            let rest = &self.text.as_bytes()[self.at..];
            let Some(length) = find_special(rest) else {
                return Err(JsonError::Syntax { expected: "a closing quote", at: self.text.len() });
            };
            out.push_str(&self.text[self.at..self.at + length]);
            self.at += length + 1;
            if rest[length] == b'"' {
                return Ok(());
            }
            out.push(self.escape()?);
        }
    }

    /// Takes an escape, from behind its backslash on.
    #[inline]
    fn escape(&mut self) -> Result<char, JsonError> {
        let byte = self.byte().ok_or(self.syntax("an escape"))?;
        let character = match byte {
            b'"' | b'\\' | b'/' | b'\'' => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unicode_escape(),
            _ => return Err(self.syntax("an escape")),
        };
        self.at += 1;
        Ok(character)
    }

    /// Takes `uXXXX`, and the second half of a surrogate pair. A lone half becomes U+FFFD.
    fn unicode_escape(&mut self) -> Result<char, JsonError> {
        self.at += 1;
        let first = self.hex4()?;
        if let Some(character) = char::from_u32(first) {
            return Ok(character);
        }
        let is_high = (0xD800..0xDC00).contains(&first);
        if is_high && self.text.as_bytes()[self.at..].starts_with(b"\\u") {
            let place = self.at;
            self.at += 2;
            let second = self.hex4()?;
            if (0xDC00..0xE000).contains(&second) {
                let code = 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
                return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            self.at = place;
        }
        Ok(char::REPLACEMENT_CHARACTER)
    }

    #[inline]
    fn hex4(&mut self) -> Result<u32, JsonError> {
        let digits = self.text.as_bytes().get(self.at..).and_then(<[u8]>::first_chunk::<4>);
        let value = digits.and_then(|&digits| hex4(digits)).ok_or(self.syntax("four hex digits"))?;
        self.at += 4;
        Ok(value)
    }

    /// Takes an unquoted word: a number, `true`, `false`, `null`, or an unquoted key.
    pub(crate) fn word(&mut self) -> Result<&'a str, JsonError> {
        self.peek();
        let start = self.at;
        while let Some(byte) = self.byte() {
            if !(byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.' | b'_' | b'$')) {
                break;
            }
            self.at += 1;
        }
        if self.at == start {
            return Err(self.syntax("a value"));
        }
        Ok(&self.text[start..self.at])
    }

    /// Takes any value and drops it.
    pub(crate) fn skip_value(&mut self, depth: usize) -> Result<(), JsonError> {
        if depth > MAX_DEPTH {
            return Err(JsonError::TooDeep { limit: MAX_DEPTH, at: self.at });
        }
        match self.peek() {
            Some(b'"') => self.skip_string(),
            Some(b'[') => {
                self.at += 1;
                self.skip_items(b']', |lexer| lexer.skip_value(depth + 1))
            }
            Some(b'{') => {
                self.at += 1;
                self.skip_items(b'}', |lexer| {
                    // A key may be any value: a text, a number, an object.
                    lexer.skip_value(depth + 1)?;
                    lexer.expect(b':', "a colon")?;
                    lexer.skip_value(depth + 1)
                })
            }
            _ => self.word().map(|_| ()),
        }
    }

    fn skip_items(
        &mut self,
        end: u8,
        mut item: impl FnMut(&mut Self) -> Result<(), JsonError>,
    ) -> Result<(), JsonError> {
        if self.take(end) {
            return Ok(());
        }
        loop {
            item(self)?;
            if self.take(b',') {
                continue;
            }
            return self.expect(end, "a comma or the end of the list");
        }
    }

    fn skip_string(&mut self) -> Result<(), JsonError> {
        self.at += 1;
        loop {
            let rest = &self.text.as_bytes()[self.at..];
            let Some(length) = memchr2(b'"', b'\\', rest) else {
                return Err(JsonError::Syntax { expected: "a closing quote", at: self.text.len() });
            };
            self.at += length + 1;
            if rest[length] == b'"' {
                return Ok(());
            }
            self.escape()?;
        }
    }

    /// Says whether a `null` comes next, without taking it.
    pub(crate) fn is_null(&mut self) -> bool {
        self.peek() == Some(b'n') && self.clone().word() == Ok("null")
    }
}

/// The value of four hex digits.
#[inline]
fn hex4(digits: [u8; 4]) -> Option<u32> {
    const NONE: u8 = 0xff;
    static VALUES: [u8; 256] = {
        let mut values = [NONE; 256];
        let mut digit = 0;
        while digit < 16 {
            values[b"0123456789abcdef"[digit] as usize] = digit as u8;
            values[b"0123456789ABCDEF"[digit] as usize] = digit as u8;
            digit += 1;
        }
        values
    };
    let [a, b, c, d] = digits.map(|digit| VALUES[usize::from(digit)]);
    let value = u32::from(a) << 12 | u32::from(b) << 8 | u32::from(c) << 4 | u32::from(d);
    (a | b | c | d < 16).then_some(value)
}
