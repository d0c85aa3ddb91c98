//! The filter of a read: first by the entry of the consume queue, then by the record.

use rocketpy_model::property;

use crate::{SqlError, SqlFilter, TagFilter};

/// Which messages a reader wants.
///
/// A reader asks twice: [`matches_code`](Self::matches_code) with the queue entry, before it touches the record, and
/// [`matches_record`](Self::matches_record) with the record's properties, when [`needs_record`](Self::needs_record) says so.
#[derive(Debug, Clone, Default, PartialEq)]
#[doc(alias = "ExpressionMessageFilter")]
pub enum MessageFilter {
    /// Every message.
    #[default]
    All,
    /// Messages whose tag has the hash of a wanted one: what a broker gives, as the receiver compares the tags themselves.
    TagCodes(TagFilter),
    /// Messages that carry a wanted tag, letter by letter.
    Tags(TagFilter),
    /// Messages for whose properties the expression is true.
    Sql(SqlFilter),
}

impl MessageFilter {
    /// Matches the hashes of the tags in a subscription expression.
    #[must_use]
    pub fn tag_codes(expression: &str) -> Self {
        match TagFilter::parse(expression) {
            TagFilter::All => Self::All,
            tags @ TagFilter::Tags { .. } => Self::TagCodes(tags),
        }
    }

    /// Matches the tags in a subscription expression themselves.
    #[must_use]
    pub fn tags(expression: &str) -> Self {
        Self::Tags(TagFilter::parse(expression)).simple()
    }

    /// Matches the messages for which an SQL92 expression is true.
    ///
    /// # Errors
    /// The expression is wrong, or exceeds a bound.
    pub fn sql(expression: &str) -> Result<Self, SqlError> {
        SqlFilter::parse(expression).map(Self::Sql)
    }

    /// [`All`](Self::All) where every message is wanted, so that no record is looked at.
    #[must_use]
    pub fn simple(self) -> Self {
        if self.is_all() { Self::All } else { self }
    }

    /// Says whether every message is wanted.
    #[must_use]
    pub const fn is_all(&self) -> bool {
        matches!(self, Self::All | Self::TagCodes(TagFilter::All) | Self::Tags(TagFilter::All))
    }

    /// Bytes of memory that the filter holds besides its own struct.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        /// What the allocator adds to a short text.
        const ALLOCATION_BYTES: usize = 24;
        const TAG_BYTES: usize = size_of::<String>() + size_of::<i64>() + ALLOCATION_BYTES;
        match self {
            Self::All => 0,
            Self::TagCodes(tags) | Self::Tags(tags) => {
                tags.names().iter().map(|tag| tag.len() + TAG_BYTES).sum()
            }
            Self::Sql(expression) => expression.heap_bytes(),
        }
    }

    /// Says whether the message of a queue entry with this tags code may be wanted.
    #[must_use]
    #[inline]
    #[doc(alias = "isMatchedByConsumeQueue")]
    pub fn matches_code(&self, tags_code: i64) -> bool {
        match self {
            Self::All | Self::Sql(_) => true,
            Self::TagCodes(tags) | Self::Tags(tags) => tags.accepts_code(tags_code),
        }
    }

    /// The tag codes that [`matches_code`](Self::matches_code) accepts, sorted, each once; `None` when it accepts every one. It also
    /// accepts every [extension address](crate::is_extension_address).
    #[must_use]
    pub const fn codes(&self) -> Option<&[i64]> {
        match self {
            Self::All | Self::Sql(_) => None,
            Self::TagCodes(tags) | Self::Tags(tags) => tags.codes(),
        }
    }

    /// Says whether [`matches_code`](Self::matches_code) leaves a question that only the record answers.
    #[must_use]
    pub const fn needs_record(&self) -> bool {
        matches!(self, Self::Tags(TagFilter::Tags { .. }) | Self::Sql(_))
    }

    /// Bytes that [`matches_record`](Self::matches_record) looks at, where that is much: a reader stops after some.
    #[must_use]
    pub fn work(&self, properties_bytes: usize) -> usize {
        match self {
            Self::Sql(expression) => expression.work(properties_bytes),
            Self::All | Self::TagCodes(_) | Self::Tags(_) => properties_bytes,
        }
    }

    /// Says whether the message with these properties is wanted. `property` gives the value of a name.
    #[must_use]
    #[doc(alias = "isMatchedByCommitLog")]
    pub fn matches_record<'a>(&self, property: impl Fn(&str) -> Option<&'a str>) -> bool {
        match self {
            Self::All | Self::TagCodes(_) => true,
            Self::Tags(tags) => tags.accepts_tag(property(property::TAGS)),
            Self::Sql(expression) => expression.evaluate(property) == Some(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tag_code;

    fn has_tag(tag: &'static str) -> impl Fn(&str) -> Option<&'static str> {
        move |name| (name == property::TAGS).then_some(tag)
    }

    #[test]
    fn everything_is_wanted_without_a_look_at_the_record() {
        for all in [MessageFilter::All, MessageFilter::tags("*"), MessageFilter::tag_codes("")] {
            assert!(all.is_all() && !all.needs_record());
            assert!(all.matches_code(0) && all.matches_record(|_| panic!("the record is not needed")));
        }
    }

    #[test]
    fn the_codes_are_those_that_match() {
        assert_eq!(MessageFilter::tag_codes("*").codes(), None);
        assert_eq!(MessageFilter::tag_codes("||").codes(), Some(&[][..]), "nothing is wanted");
        for filter in [MessageFilter::tag_codes("b||a||BB||Aa"), MessageFilter::tags("BB||b||a")] {
            assert_eq!(filter.codes(), Some(&[tag_code("a"), tag_code("b"), tag_code("Aa")][..]));
        }
    }

    #[test]
    fn an_expression_reads_the_record_and_passes_only_what_is_true() {
        let filter = MessageFilter::sql("TAGS = 'a' OR missing > 1").unwrap();
        assert!(
            filter.matches_code(7) && filter.codes().is_none() && filter.needs_record() && !filter.is_all()
        );
        assert!(filter.matches_record(has_tag("a")));
        assert!(!filter.matches_record(has_tag("b")), "unknown");
        assert!(!MessageFilter::sql("TAGS = 'a'").unwrap().matches_record(has_tag("b")), "false");
        assert!(MessageFilter::sql("TAGS >").is_err());
    }

    #[test]
    fn tags_whose_hashes_are_equal_differ_in_the_record_alone() {
        let (codes, tags) = (MessageFilter::tag_codes("Aa"), MessageFilter::tags("Aa"));
        assert!(codes.matches_code(tag_code("BB")) && tags.matches_code(tag_code("BB")));
        assert!(!codes.needs_record() && tags.needs_record());
        assert!(codes.matches_record(has_tag("BB")));
        assert!(!tags.matches_record(has_tag("BB")) && tags.matches_record(has_tag("Aa")));
        assert!(!tags.matches_record(|_| None), "a message without a tag");
    }
}
