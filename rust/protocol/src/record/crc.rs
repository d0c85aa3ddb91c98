//! Checksums of a record, and how one of them is put together from parts.
//!
//! A CRC-32 is linear: appending `n` zero bytes multiplies it by x^(8n) modulo the CRC polynomial, and
//! `crc(a ++ b) = crc(a) * x^(8 * len b) ^ crc(b)`. So the checksum of a whole record is put together from that of its head
//! and that of the body, which the record needs anyway and which goes on over what is behind the body: no body is read twice.
//! The factor depends on a length alone and is computed outside the store's writer lock; under the lock remains one hash of 88
//! bytes (the head with the three late fields) and one multiplication. A short record is hashed as a whole there instead.
//!
//! `crc32fast::Hasher::combine` computes the factor on every call (a multiplication for each bit of the length), so it would
//! put that work under the lock; the tests compare against it.

use rocketpy_model::property::{CRC32, NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR};

/// The CRC-32 polynomial, bits reflected.
const POLYNOMIAL: u32 = 0xEDB8_8320;
/// x^0: the factor of an empty tail.
const ONE: u32 = 0x8000_0000;
/// x^8: the factor of one byte.
const ONE_BYTE: u32 = 0x0080_0000;

/// Decimal digits of a checksum in the record's property.
const DIGITS: usize = 10;
/// Digits that are written and read as one word.
const EIGHT: usize = 8;
/// Eight digits 0.
const ZEROS: u64 = u64::from_le_bytes([b'0'; EIGHT]);
/// Length of the `__CRC32#` property at the end of a record: name, separator, ten digits, separator.
pub const CRC_PROPERTY_BYTES: usize = CRC32.len() + 1 + DIGITS + 1;

/// CRC-32 (IEEE, as zlib) with the top bit cleared.
///
/// # Source
/// docs/reference/store-format.md 0.
#[must_use]
pub fn crc31(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes) & 0x7FFF_FFFF
}

/// The body checksum of a record: [`crc31`] of the body as stored.
#[must_use]
pub fn body_crc(body: &[u8]) -> u32 {
    crc31(body)
}

/// `a * b` modulo the polynomial, both reflected.
const fn multiply(a: u32, b: u32) -> u32 {
    // Reflected: the upper half is reduced already, the lower half counts x^32 times.
    let wide = multiply_without_carries(a, b) << 1;
    let [a, b, c, d] = (wide as u32).to_le_bytes();
    let over =
        REDUCED[3][a as usize] ^ REDUCED[2][b as usize] ^ REDUCED[1][c as usize] ^ REDUCED[0][d as usize];
    (wide >> 32) as u32 ^ over
}

/// `a * b` with no carry from bit to bit.
///
/// Ordinary products of every fourth bit: at most eight ones meet at a bit, and their sum ends before the next fourth bit.
const fn multiply_without_carries(a: u32, b: u32) -> u64 {
    const FOURTHS: u64 = 0x1111_1111_1111_1111;
    let mut product = 0;
    let mut place = 0;
    while place < 4 {
        let mut sum = 0;
        let mut of_a = 0;
        while of_a < 4 {
            let of_b = (place + 4 - of_a) % 4;
            sum ^= (a as u64 & FOURTHS << of_a) * (b as u64 & FOURTHS << of_b);
            of_a += 1;
        }
        product |= sum & FOURTHS << place;
        place += 1;
    }
    product
}

/// `REDUCED[k][v]` is the byte `v` times x^(32 + 8k), reduced.
static REDUCED: [[u32; 256]; 4] = {
    let mut table = [[0; 256]; 4];
    let mut value = 0;
    while value < 256 {
        let mut reduced = value as u32;
        let mut bit = 0;
        while bit < 32 {
            reduced = (reduced >> 1) ^ ((reduced & 1).wrapping_neg() & POLYNOMIAL);
            bit += 1;
            if bit % 8 == 0 {
                table[bit / 8 - 1][value] = reduced;
            }
        }
        value += 1;
    }
    table
};

/// `FACTORS[k][v]` is x^(8 * v * 256^k): the factor of a length is the product over its bytes.
static FACTORS: [[u32; 256]; 4] = {
    let mut table = [[ONE; 256]; 4];
    let mut step = ONE_BYTE;
    let mut place = 0;
    while place < 4 {
        let mut value = 1;
        while value < 256 {
            table[place][value] = multiply(table[place][value - 1], step);
            value += 1;
        }
        step = multiply(table[place][255], step);
        place += 1;
    }
    table
};

/// The factor by which a checksum moves when bytes of a known length follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shift(u32);

impl Shift {
    /// The factor of `length` following bytes.
    ///
    /// # Panics
    /// When the length passes 32 bits; records are shorter.
    pub(super) fn of(length: usize) -> Self {
        let length = u32::try_from(length).expect("records are shorter than 4 GiB");
        let places = length.to_le_bytes().into_iter().enumerate().filter(|(_, value)| *value != 0);
        let factor = places.map(|(place, value)| FACTORS[place][usize::from(value)]).reduce(multiply);
        Self(factor.unwrap_or(ONE))
    }

    /// The checksum of a head and its tail, from the checksum of each; `self` is the tail's factor.
    pub(super) const fn combine(self, head: u32, tail: u32) -> u32 {
        multiply(self.0, head) ^ tail
    }
}

/// The `__CRC32#` property with its digits still zero.
pub(super) const EMPTY_PROPERTY: [u8; CRC_PROPERTY_BYTES] = {
    let mut property = [b'0'; CRC_PROPERTY_BYTES];
    let name = CRC32.as_bytes();
    let mut at = 0;
    while at < name.len() {
        property[at] = name[at];
        at += 1;
    }
    property[at] = NAME_VALUE_SEPARATOR;
    property[CRC_PROPERTY_BYTES - 1] = PROPERTY_SEPARATOR;
    property
};

/// Where the digits start, counted from the end of the record.
pub(super) const DIGITS_FROM_END: usize = DIGITS + 1;

/// Writes ten decimal digits, the least significant one first (the format's quirk), padded with zeros behind.
///
/// # Panics
/// When `out` has no room for them.
pub(super) fn put_digits(value: u32, out: &mut [u8]) {
    let (first, last) = out[..DIGITS].split_at_mut(EIGHT);
    let eight = u64::from(value % 100_000_000);
    // Number after number split in the lanes of one word: into fours, pairs, then digits.
    let fours = (eight % 10_000) | ((eight / 10_000) << 32);
    let hundreds = ((fours * 10_486) >> 20) & 0x0000_007F_0000_007F;
    let pairs = (fours - hundreds * 100) | (hundreds << 16);
    let tens = ((pairs * 103) >> 10) & 0x000F_000F_000F_000F;
    let digits = (pairs - tens * 10) | (tens << 8);
    first.copy_from_slice(&(digits | ZEROS).to_le_bytes());
    let rest = value / 100_000_000;
    last.copy_from_slice(&[b'0' + (rest % 10) as u8, b'0' + (rest / 10) as u8]);
}

/// The checksum that a record's properties text states at its end, when a `__CRC32#` property stands there: not the end of a
/// property whose name ends alike.
pub(super) fn stated(properties: &[u8]) -> Option<u32> {
    let (before, property) = properties.split_last_chunk::<CRC_PROPERTY_BYTES>()?;
    if before.last().is_some_and(|&last| last != PROPERTY_SEPARATOR) {
        return None;
    }
    let name = CRC32.len() + 1;
    if property[..name] != EMPTY_PROPERTY[..name] || property[CRC_PROPERTY_BYTES - 1] != PROPERTY_SEPARATOR {
        return None;
    }
    digits(&property[name..CRC_PROPERTY_BYTES - 1])
}

/// What [`put_digits`] wrote; `None` for other bytes, or more than 32 bits.
fn digits(text: &[u8]) -> Option<u32> {
    let (first, last) = text.split_first_chunk::<EIGHT>()?;
    let &[ninth, tenth] = last else { return None };
    if !text.iter().fold(true, |are, digit| are & digit.is_ascii_digit()) {
        return None;
    }
    let digits = u64::from_le_bytes(*first) ^ ZEROS;
    let pairs = (digits + (digits >> 8) * 10) & 0x00FF_00FF_00FF_00FF;
    let fours = (pairs + (pairs >> 16) * 100) & 0x0000_FFFF_0000_FFFF;
    let eight = (fours + (fours >> 32) * 10_000) & 0xFFFF_FFFF;
    let rest = u64::from(ninth ^ b'0') + u64::from(tenth ^ b'0') * 10;
    u32::try_from(eight + rest * 100_000_000).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combining_parts_equals_hashing_the_whole() {
        let bytes: Vec<u8> =
            (0..70_000u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for tail in [0, 1, 7, 8, 255, 256, 257, 4096, 65_535, 65_536, 65_537, 70_000] {
            let (head, rest) = bytes.split_at(bytes.len() - tail);
            let combined = Shift::of(tail).combine(crc32fast::hash(head), crc32fast::hash(rest));
            assert_eq!(combined, crc32fast::hash(&bytes), "{tail}");
            let mut hasher = crc32fast::Hasher::new();
            hasher.update(head);
            let mut second = crc32fast::Hasher::new();
            second.update(rest);
            hasher.combine(&second);
            assert_eq!(combined, hasher.finalize());
        }
    }

    #[test]
    fn factors_of_tails_multiply() {
        let then = |first: Shift, second: Shift| Shift(multiply(first.0, second.0));
        assert_eq!(then(Shift::of(1000), Shift::of(66_000)), Shift::of(67_000));
        assert_eq!(then(Shift::of(0), Shift::of(5)), Shift::of(5));
        assert_eq!(then(Shift::of(0x0102_0304), Shift::of(0x0100_0000)), Shift::of(0x0202_0304));
    }

    #[test]
    fn a_product_without_carries_is_that_of_single_bits() {
        for (a, b) in
            [(0, u32::MAX), (u32::MAX, u32::MAX), (0x8000_0001, 0xDEAD_BEEF), (POLYNOMIAL, 0x1234_5678)]
        {
            let bits = (0..32).filter(|bit| a >> bit & 1 == 1);
            let product = bits.fold(0, |product, bit| product ^ u64::from(b) << bit);
            assert_eq!(multiply_without_carries(a, b), product, "{a:x} {b:x}");
        }
    }

    #[test]
    fn digits_stand_least_significant_first() {
        let digits = |value| {
            let mut digits = [0; DIGITS];
            put_digits(value, &mut digits);
            digits
        };
        assert_eq!(&digits(1_434_627_325), b"5237264341");
        assert_eq!(&digits(u32::MAX), b"5927694924");
        assert_eq!(&digits(7), b"7000000000");
        for value in
            (0..32).flat_map(|bit| [1 << bit, u32::MAX >> bit]).chain((0..10).map(|n| 10u32.pow(n) - 1))
        {
            let text: Vec<u8> = format!("{value:010}").bytes().rev().collect();
            assert_eq!((&digits(value)[..], super::digits(&text)), (&text[..], Some(value)));
        }
        let mut record = EMPTY_PROPERTY.to_vec();
        let at = record.len() - DIGITS_FROM_END;
        record[at..at + DIGITS].copy_from_slice(&digits(1_434_627_325));
        assert_eq!(stated(&record), Some(1_434_627_325));
    }

    #[test]
    fn a_property_that_is_not_a_checksum_states_none() {
        let mut record = EMPTY_PROPERTY.to_vec();
        assert_eq!(stated(&record), Some(0));
        assert_eq!(stated(&record[1..]), None);
        let behind = |before: &[u8]| stated(&[before, &EMPTY_PROPERTY[..]].concat());
        assert_eq!(behind(b"a\x011\x02"), Some(0));
        assert_eq!(behind(b"x"), None, "a longer name");
        assert_eq!(behind(b"a\x01"), None, "a value");
        record[12] = b'x';
        assert_eq!(stated(&record), None);
        let nines = [&EMPTY_PROPERTY[..9], b"9999999999\x02"].concat();
        assert_eq!(stated(&nines), None, "more than 32 bits");
    }
}
