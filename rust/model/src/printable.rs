//! Texts of peers for logs, errors and terminals: control characters become escapes.

use std::borrow::Cow;
use std::fmt::{self, Write};

/// Whether a character could end a line, begin an escape sequence, or turn the direction of the text around it: C0 and C1 controls,
/// line separators, and controls of the direction.
#[must_use]
pub const fn is_control(letter: char) -> bool {
    letter.is_ascii_control()
        || matches!(letter, '\u{80}'..='\u{9f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Writes control characters as escapes: `\n`, `\u{1b}`.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_control) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    Printable(&mut out).write_str(text).expect("a String takes any text");
    Cow::Owned(out)
}

/// The first 200 letters of a text that travels in an error; `...` stands for the rest.
#[must_use]
pub fn beginning(text: &str) -> Cow<'_, str> {
    const MAX_LETTERS: usize = 200;
    match text.char_indices().nth(MAX_LETTERS) {
        None => Cow::Borrowed(text),
        Some((end, _)) => Cow::Owned(format!("{}...", &text[..end])),
    }
}

/// A writer that passes text on as [`printable`] does.
#[derive(Debug)]
pub struct Printable<W>(
    /// The writer that receives the escaped text.
    pub W,
);

impl<W: Write> Write for Printable<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some((at, letter)) = rest.char_indices().find(|(_, letter)| is_control(*letter)) {
            self.0.write_str(&rest[..at])?;
            write!(self.0, "{}", letter.escape_default())?;
            rest = &rest[at + letter.len_utf8()..];
        }
        self.0.write_str(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_off_at_a_letter() {
        assert!(matches!(beginning(&"\u{e9}".repeat(200)), Cow::Borrowed(_)));
        assert_eq!(beginning(&"\u{e9}".repeat(201)), "\u{e9}".repeat(200) + "...");
    }

    #[test]
    fn control_characters_become_escapes_and_other_text_stays() {
        assert!(matches!(printable("orders \u{6807}\u{e9}"), Cow::Borrowed(_)));
        let hostile = "a\0b\nc\r\td\u{1b}[2J\u{9b}\u{7f}\u{2028}\u{202e}\u{2066}";
        let escaped = printable(hostile);
        let wanted = r"a\u{0}b\nc\r\td\u{1b}[2J\u{9b}\u{7f}\u{2028}\u{202e}\u{2066}";
        assert_eq!(escaped, wanted);
    }
}
