//! The error that a dead letter carries.

use crate::printable::is_control;

/// Maximum length of the error of a dead letter, type and text together, in bytes of UTF-8.
pub const MAX_ERROR_BYTES: usize = 512;

/// Text of an error as a dead letter stores it: control characters are escaped, and whole characters are cut off at
/// [`MAX_ERROR_BYTES`]. `None` if the text is empty. A text that was prepared before stays as it is.
///
/// # Examples
/// A newline becomes the two characters `\n`, NUL becomes `\u{0}`.
#[must_use]
pub fn error_text(text: &str) -> Option<String> {
    let mut stored = String::with_capacity(text.len().min(MAX_ERROR_BYTES));
    for character in text.chars() {
        let before = stored.len();
        match is_control(character) {
            true => stored.extend(character.escape_default()),
            false => stored.push(character),
        }
        if stored.len() > MAX_ERROR_BYTES {
            stored.truncate(before);
            break;
        }
    }
    (!stored.is_empty()).then_some(stored)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        let stored = error_text("ValueError: a\u{1}b\u{2}\n\u{9b}c\0").unwrap();
        assert_eq!(stored, r"ValueError: a\u{1}b\u{2}\n\u{9b}c\u{0}");
        assert_eq!(error_text(&stored), Some(stored));
        assert_eq!(error_text(""), None);
    }

    #[test]
    fn long_texts_are_cut_at_a_character() {
        assert_eq!(error_text(&"x".repeat(512)).unwrap(), "x".repeat(512));
        assert_eq!(error_text(&"x".repeat(1 << 20)).unwrap(), "x".repeat(512));
        assert_eq!(error_text(&format!("x{}", "ä".repeat(300))).unwrap(), format!("x{}", "ä".repeat(255)));
        let escaped = error_text(&format!("{}\0", "x".repeat(510))).unwrap();
        assert_eq!(escaped, "x".repeat(510), "no half of an escape");
    }
}
