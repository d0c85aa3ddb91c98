//! Numbers of columns from the text of JSON numbers.

/// The number as a decimal's unscaled value; `None` when the type cannot hold it exactly.
pub(super) fn decimal(text: &str, precision: u8, scale: i8) -> Option<i128> {
    let (is_negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = whole.len() + fraction.len();
    if digits == 0 || !whole.bytes().chain(fraction.bytes()).all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    // Zeros to append, or digits to leave out, which must be zeros.
    let shift = exponent.checked_add(i64::from(scale))?.checked_sub_unsigned(fraction.len() as u64)?;
    let kept = digits.saturating_sub(usize::try_from(shift.checked_neg()?).unwrap_or(0));
    let mut unscaled = 0_i128;
    for (place, digit) in whole.bytes().chain(fraction.bytes()).map(|digit| digit - b'0').enumerate() {
        if place < kept {
            unscaled = unscaled.checked_mul(10)?.checked_add(i128::from(digit))?;
        } else if digit != 0 {
            return None;
        }
    }
    if unscaled != 0 && shift > 0 {
        unscaled = unscaled.checked_mul(10_i128.checked_pow(u32::try_from(shift).ok()?)?)?;
    }
    let fits = unscaled < 10_i128.pow(u32::from(precision));
    fits.then_some(if is_negative { -unscaled } else { unscaled })
}

/// The nearest number; `None` past the largest.
pub(super) fn double(text: &str) -> Option<f64> {
    finite_as_written(text.parse().ok()?, text)
}

/// As [`double`], of single precision.
pub(super) fn float(text: &str) -> Option<f64> {
    finite_as_written(f64::from(text.parse::<f32>().ok()?), text)
}

/// Infinity only where the text says it: Python writes `NaN` and `Infinity` into JSON.
fn finite_as_written(number: f64, text: &str) -> Option<f64> {
    (number.is_finite() || !text.ends_with(|last: char| last.is_ascii_digit())).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decimal_is_exact_or_nothing() {
        for (text, unscaled) in [
            ("1", 100),
            ("-1.5", -150),
            ("1.2500", 125),
            ("1e2", 10_000),
            ("1E+2", 10_000),
            ("125e-2", 125),
            ("99999000e-5", 99_999),
            ("0e0", 0),
            ("0e999999999999", 0),
            ("0.000000000000000000000000000000000000000000000000000", 0),
            ("-0", 0),
            (".5", 50),
            ("5.", 500),
            ("+1", 100),
            ("999.99", 99_999),
        ] {
            assert_eq!(decimal(text, 5, 2), Some(unscaled), "{text}");
        }
        for text in [
            "",
            ".",
            "-",
            "1.255",
            "1000",
            "1e3",
            "1e-3",
            "1e99999999999",
            "1e",
            "1_0",
            "0x1",
            " 1",
            "NaN",
            "--1",
        ] {
            assert_eq!(decimal(text, 5, 2), None, "{text}");
        }
    }

    #[test]
    fn a_decimal_takes_all_its_digits_and_none_more() {
        let most = "9".repeat(38);
        assert_eq!(decimal(&most, 38, 0), Some(10_i128.pow(38) - 1));
        assert_eq!(decimal(&format!("1{}", "0".repeat(38)), 38, 0), None);
        assert_eq!(decimal(&format!("0.{most}"), 38, 38), Some(10_i128.pow(38) - 1));
        assert_eq!(decimal("1e37", 38, 0), Some(10_i128.pow(37)));
        assert_eq!(decimal("1e39", 38, -2), Some(10_i128.pow(37)));
    }

    #[test]
    fn a_number_past_the_largest_is_none_and_infinity_by_name_is_one() {
        assert_eq!((double("1e308"), double("1e309")), (Some(1e308), None));
        assert_eq!((float("3.4e38"), float("-3.5e38")), (Some(f64::from(3.4e38_f32)), None));
        assert_eq!(double("-Infinity"), Some(f64::NEG_INFINITY));
        assert!(double("NaN").is_some_and(f64::is_nan) && float("NaN").is_some_and(f64::is_nan));
    }
}
