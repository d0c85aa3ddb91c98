//! Finds the byte that ends a run of plain text, eight bytes at a time.
//!
//! Header fields are short: a call into a vectorised search costs more than it saves there. A word is searched with the usual
//! trick for a zero byte, `(x - 0x01..) & !x & 0x80..`, whose first hit is always right.

const ONES: u64 = u64::from_ne_bytes([1; 8]);
const TOPS: u64 = u64::from_ne_bytes([0x80; 8]);

/// Marks the zero bytes of a word; marks above the first may be wrong.
#[inline]
const fn zeros(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & TOPS
}

#[inline]
const fn equal_to(word: u64, byte: u8) -> u64 {
    zeros(word ^ (ONES * byte as u64))
}

/// Marks the bytes below 0x20; marks above the first may be wrong.
#[inline]
const fn controls(word: u64) -> u64 {
    word.wrapping_sub(ONES * 0x20) & !word & TOPS
}

#[inline]
fn find(bytes: &[u8], marks: impl Fn(u64) -> u64, is_special: impl Fn(u8) -> bool) -> Option<usize> {
    let (words, tail) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let hits = marks(u64::from_le_bytes(*word));
        if hits != 0 {
            return Some(index * 8 + hits.trailing_zeros() as usize / 8);
        }
    }
    let at = tail.iter().position(|&byte| is_special(byte))?;
    Some(bytes.len() - tail.len() + at)
}

/// The first quote or backslash.
#[inline]
pub(super) fn find_special(bytes: &[u8]) -> Option<usize> {
    let marks = |word| equal_to(word, b'"') | equal_to(word, b'\\');
    find(bytes, marks, |byte| byte == b'"' || byte == b'\\')
}

/// The first byte that has to be escaped in a JSON text: quote, backslash, control.
#[inline]
pub(super) fn find_escaped(bytes: &[u8]) -> Option<usize> {
    let marks = |word| equal_to(word, b'"') | equal_to(word, b'\\') | controls(word);
    find(bytes, marks, |byte| byte == b'"' || byte == b'\\' || byte < b' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_searched_like_single_bytes() {
        let mut state = 1u32;
        for _ in 0..200_000 {
            let mut bytes = [0; 21];
            for byte in &mut bytes {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let random = (state >> 24) as u8;
                // Mostly plain bytes, so that hits lie at all places, with neighbours of the special ones among them.
                *byte = if random < 8 { b"\"\\\x1f\x00!#[]"[random as usize] } else { random | 0x60 };
            }
            let special = bytes.iter().position(|&byte| byte == b'"' || byte == b'\\');
            assert_eq!(find_special(&bytes), special, "{bytes:?}");
            let escaped = bytes.iter().position(|&byte| byte == b'"' || byte == b'\\' || byte < b' ');
            assert_eq!(find_escaped(&bytes), escaped, "{bytes:?}");
        }
    }
}
