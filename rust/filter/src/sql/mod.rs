//! SQL92 expressions over message properties.

mod evaluate;
mod lexer;
mod parser;
#[cfg(test)]
mod tests;

use std::cell::Cell;

use thiserror::Error;

use self::evaluate::Node;

/// An expression over the properties of a message, parsed once.
///
/// # Source
/// docs/reference/store-format.md 11.5.
#[derive(Debug, Clone, PartialEq)]
pub struct SqlFilter {
    root: Node,
    names: Vec<Box<str>>,
    /// How often names are used.
    uses: usize,
    text_bytes: usize,
}

/// Why an expression is refused. Positions count characters, from 1.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum SqlError {
    #[error("SQL92 expression exceeds {limit_bytes} bytes ({size_bytes}); shorten it")]
    TooLong { size_bytes: usize, limit_bytes: usize },
    #[error(
        "SQL92 expression exceeds {limit} nesting levels at character {at}; use fewer parentheses, or AND between comparisons"
    )]
    TooDeep { at: usize, limit: usize },
    #[error("SQL92 expression exceeds {limit} properties at character {at}; use fewer")]
    TooManyNames { at: usize, limit: usize },
    #[error("expected {expected}, found {found} at character {at} of the SQL92 expression")]
    Unexpected { at: usize, found: String, expected: &'static str },
    #[error(
        "LIKE at character {at} of the SQL92 expression is not supported; write CONTAINS, STARTSWITH or ENDSWITH"
    )]
    Like { at: usize },
    #[error("SQL92 expression has an unexpected {found:?} at character {at}")]
    Character { at: usize, found: char },
    #[error("{what} at character {at} of the SQL92 expression is not closed")]
    NotClosed { at: usize, what: &'static str },
    #[error("invalid number at character {at} of the SQL92 expression; write 10, 0.5 or 1e3")]
    Number { at: usize },
    #[error("SQL92 expression has no condition at character {at}; write a comparison or a property name")]
    NotCondition { at: usize },
    #[error(
        "operand at character {at} of the SQL92 expression cannot be ordered; compare numbers or properties"
    )]
    NotOrdered { at: usize },
    #[error("SQL92 expression cannot compare with NULL at character {at}; write IS NULL or IS NOT NULL")]
    ComparedWithNull { at: usize },
    #[error("range at character {at} of the SQL92 expression is empty; write the lower bound first")]
    EmptyRange { at: usize },
}

impl SqlFilter {
    /// Longest expression.
    pub const MAX_BYTES: usize = 64 * 1024;
    /// Deepest nesting of parentheses and prefix operators. Neither parsing nor evaluating overflows a stack.
    pub const MAX_DEPTH: usize = 32;
    /// Most names of properties. Each is looked for once in a message, however often it is used.
    pub const MAX_NAMES: usize = 64;
    /// Most memory that an expression takes for each of its bytes. The densest form is `a=b OR `: seven bytes make three nodes, two
    /// names and the spare room of a list.
    pub const HEAP_BYTES_PER_BYTE: usize = size_of::<Node>() + 8;

    /// Parses an expression.
    ///
    /// # Errors
    /// The expression is not in the grammar, compares what cannot be compared, or exceeds a bound.
    pub fn parse(text: &str) -> Result<Self, SqlError> {
        let (root, names, uses) = parser::parse(text)?;
        Ok(Self { root, names, uses, text_bytes: text.len() })
    }

    /// The truth of the expression; `None` is SQL's unknown. `property` gives the value of a name.
    #[must_use]
    pub fn evaluate<'a>(&self, property: impl Fn(&str) -> Option<&'a str>) -> Option<bool> {
        let known = [const { Cell::new(None) }; Self::MAX_NAMES];
        let value = |number: usize| {
            let value = known[number].get().unwrap_or_else(|| property(&self.names[number]));
            known[number].set(Some(value));
            value
        };
        evaluate::truth(&self.root, &value)
    }

    /// Bytes that one evaluation looks at most, of the message's properties and of the expression: it looks for each name once, and at
    /// a value as often as its name is used.
    #[must_use]
    pub fn work(&self, properties_bytes: usize) -> usize {
        (self.names.len() + self.uses) * properties_bytes + self.text_bytes
    }

    /// Bytes of memory that the filter holds at most besides its own struct.
    #[must_use]
    pub const fn heap_bytes(&self) -> usize {
        self.text_bytes * Self::HEAP_BYTES_PER_BYTE
    }
}
