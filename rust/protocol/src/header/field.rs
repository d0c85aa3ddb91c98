//! How the value of a header field is read and written.

use std::fmt::Write;

use super::HeaderError;
use crate::ExtFields;

/// A type that a header's field can have.
pub trait Field<'a>: Sized {
    /// Reads the field from its text, or from its absence.
    ///
    /// # Errors
    /// When the field is missing and must not be, or the text is not of its type.
    fn read(field: &'static str, text: Option<&'a str>) -> Result<Self, HeaderError>;

    /// Adds the field, unless it has no value.
    fn write(&self, field: &'static str, fields: &mut ExtFields);
}

/// A type whose values have a text.
trait Value<'a>: Sized {
    const EXPECTED: &'static str;

    fn parse(text: &'a str) -> Option<Self>;

    fn push(&self, field: &'static str, fields: &mut ExtFields);
}

fn parse<'a, T: Value<'a>>(field: &'static str, text: &'a str) -> Result<T, HeaderError> {
    T::parse(text).ok_or_else(|| HeaderError::Invalid {
        field,
        expected: T::EXPECTED,
        value: text.chars().take(64).collect(),
    })
}

macro_rules! fields {
    ($($type:ty),+) => {$(
        impl<'a> Field<'a> for $type {
            #[inline]
            fn read(field: &'static str, text: Option<&'a str>) -> Result<Self, HeaderError> {
                parse(field, text.ok_or(HeaderError::Missing { field })?)
            }

            #[inline]
            fn write(&self, field: &'static str, fields: &mut ExtFields) {
                self.push(field, fields);
            }
        }

        impl<'a> Field<'a> for Option<$type> {
            #[inline]
            fn read(field: &'static str, text: Option<&'a str>) -> Result<Self, HeaderError> {
                text.map(|text| parse(field, text)).transpose()
            }

            #[inline]
            fn write(&self, field: &'static str, fields: &mut ExtFields) {
                if let Some(value) = self {
                    value.push(field, fields);
                }
            }
        }
    )+};
}

fields!(&'a str, i32, i64, bool, f64);

impl<'a> Value<'a> for &'a str {
    const EXPECTED: &'static str = "a text";

    #[inline]
    fn parse(text: &'a str) -> Option<Self> {
        Some(text)
    }

    #[inline]
    fn push(&self, field: &'static str, fields: &mut ExtFields) {
        fields.push(field, self);
    }
}

macro_rules! integers {
    ($($type:ty: $expected:literal),+) => {$(
        impl Value<'_> for $type {
            const EXPECTED: &'static str = $expected;

            #[inline]
            fn parse(text: &str) -> Option<Self> {
                text.parse().ok()
            }

            #[inline]
            fn push(&self, field: &'static str, fields: &mut ExtFields) {
                fields.push(field, itoa::Buffer::new().format(*self));
            }
        }
    )+};
}

integers!(i32: "a 32-bit integer", i64: "a 64-bit integer");

impl Value<'_> for bool {
    const EXPECTED: &'static str = "true or false";

    /// As in Java: "true" in any case is true, everything else false. The C++ client says "1" for true.
    #[inline]
    fn parse(text: &str) -> Option<Self> {
        Some(text.eq_ignore_ascii_case("true") || text == "1")
    }

    #[inline]
    fn push(&self, field: &'static str, fields: &mut ExtFields) {
        fields.push(field, if *self { "true" } else { "false" });
    }
}

impl Value<'_> for f64 {
    const EXPECTED: &'static str = "a number";

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn push(&self, field: &'static str, fields: &mut ExtFields) {
        fields.push_with(field, |text| {
            let written = write!(text, "{self:?}");
            debug_assert!(written.is_ok(), "writing to a String does not fail");
        });
    }
}
